"""Arrays of other libraries: tensors share memory and gradients, dtypes translate, addresses become arrays.

PyTorch's part is played by a module of a few lines over NumPy; where PyTorch itself is installed, it plays.
"""

import importlib.util
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kernelab as kl


class Tensor:
    """As much of a tensor as is asked for."""

    def __init__(self, values: Any, requires_grad: bool = False, device: str = "cpu") -> None:
        self.values = np.asarray(values)
        self.requires_grad, self.device = requires_grad, device
        self.grad: Tensor | None = None
        self.is_leaf = True
        self.dtype = f"torch.{self.values.dtype}"

    def detach(self) -> "Tensor":
        return self

    def numpy(self) -> Any:
        return self.values

    def requires_grad_(self, wanted: bool) -> None:
        self.requires_grad = wanted


def _from_numpy(values: Any) -> Tensor:
    if values.dtype.names:
        raise TypeError("no such tensor")
    return Tensor(values)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    if importlib.util.find_spec("torch"):
        return importlib.import_module("torch")
    module: Any = ModuleType("torch")
    module.zeros_like = lambda t: Tensor(np.zeros_like(t.values))
    module.from_numpy = _from_numpy
    module.tensor = lambda data, requires_grad=False: Tensor(np.array(data, np.float32), requires_grad)
    module.float32 = "torch.float32"
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


DOT = "def dot_(x: array[vec2], l: array[float]):\n    atomic_add(l, 0, dot(x[tid()], x[tid()]))"


def test_a_tensor_and_an_array_share_elements_and_gradients(torch: Any) -> None:
    t = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    x, loss = kl.from_torch(t, kl.vec2), kl.zeros(1, requires_grad=True)
    assert x.requires_grad and x.dtype == kl.vec2 and x.ptr == t.detach().numpy().ctypes.data
    with kl.Tape() as tape:
        kl.launch(kl.compile(DOT)["dot_"], 2, inputs=[x], outputs=[loss])
    tape.backward(loss)
    assert t.grad.numpy().tolist() == [[2, 4], [6, 8]]


def test_an_array_becomes_a_tensor_over_the_same_memory(torch: Any) -> None:
    x = kl.zeros((2, 3), requires_grad=True)
    t = kl.to_torch(x)
    t.detach().numpy()[1, 2] = 5.0
    assert x.numpy()[1, 2] == 5 and t.requires_grad
    t.grad.numpy()[:] = 7.0
    assert x.grad.list() == [7] * 6
    assert not kl.to_torch(x, requires_grad=False).requires_grad


def test_what_cannot_be_shared_is_refused(torch: Any) -> None:
    with pytest.raises(kl.KernelTypeError, match="float32 cannot be shared as an array of float64"):
        kl.from_torch(torch.tensor([1.0]), kl.float64)
    with pytest.raises(kl.KernelTypeError, match="takes a tensor of PyTorch, not a list"):
        kl.from_torch([1.0])
    with pytest.raises(kl.KernelTypeError, match="is on meta"):
        kl.from_torch(Tensor([1.0], device="meta"))
    with pytest.raises(kl.KernelTypeError, match="its strides are negative"):
        kl.to_torch(kl.array([1.0, 2.0])[::-1])
    with pytest.raises(kl.KernelTypeError, match="takes an array of kernelab, not a list"):
        kl.to_torch([1.0])
    assert kl.dtype_to_torch(float) == torch.float32 and kl.dtype_from_torch(torch.float32) == kl.float32
    with pytest.raises(kl.KernelTypeError, match="PyTorch has no dtype for vec3"):
        kl.dtype_to_torch(kl.vec3)
    with pytest.raises(kl.KernelTypeError, match=r"no type of numbers for torch.complex64"):
        kl.dtype_from_torch("torch.complex64")


def test_without_pytorch_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(kl.KernelTypeError, match=r"(?s)PyTorch is not installed.*pip install torch"):
        kl.to_torch(kl.zeros(1))


def test_dtypes_of_numpy_translate_both_ways() -> None:
    assert kl.dtype_from_numpy(np.float64) == kl.dtype_from_numpy(np.dtype("f8")) == kl.float64
    assert kl.dtype_to_numpy(int) is np.int32
    with pytest.raises(kl.KernelTypeError, match="NumPy has no dtype for vec3"):
        kl.dtype_to_numpy(kl.vec3)


def test_devices_of_pytorch_translate_both_ways() -> None:
    assert kl.device_from_torch("cpu") == kl.get_device() and kl.device_to_torch(None) == "cpu"


def test_an_address_becomes_an_array() -> None:
    memory = np.arange(6, dtype=np.float32)
    whole = kl.from_ptr(memory.ctypes.data, 6, float)
    every_other = kl.from_ptr(memory.ctypes.data, 3, float, strides=(8,))
    whole[0] = 10.0
    assert memory[0] == 10 and every_other.list() == [10, 2, 4]
    assert kl.array(memory, copy=False).allocation is whole.allocation is every_other.allocation
    assert kl.from_ptr(0, 0, float).list() == []
    with pytest.raises(kl.KernelValueError, match="no memory at address 0"):
        kl.from_ptr(0, 3, float)


def test_a_capsule_holds_the_memory() -> None:
    assert "dltensor" in repr(kl.to_dlpack(kl.zeros(2)))


def test_memory_at_an_address_is_given_back_when_nobody_looks_at_it() -> None:
    memory, given_back = np.ones(4, np.float32), []
    x = kl.array(
        ptr=memory.ctypes.data, dtype=float, shape=(2, 2), deleter=lambda *given: given_back.append(given)
    )
    view = x[1]
    del x
    assert not given_back and view.list() == [1, 1]
    del view
    assert given_back == [(memory.ctypes.data, 16)]


def test_memory_at_an_address_may_say_how_large_it_is() -> None:
    memory = np.arange(6, dtype=np.float32)
    known = {"ptr": memory.ctypes.data, "dtype": float, "capacity": memory.nbytes}
    turned = kl.array(shape=(3, 2), strides=(4, 12), **known)
    assert turned.numpy().tolist() == memory.reshape(2, 3).T.tolist()
    assert turned.capacity == turned[:, 1].capacity + 12 == 24
    with pytest.raises(kl.KernelValueError, match="take 28 bytes, and there are 24"):
        kl.array(shape=7, **known)
    with pytest.raises(kl.KernelValueError, match="take 28 bytes"):
        kl.array(shape=(3, 2), strides=(4, 16), **known)


def test_options_that_say_nothing_here_are_taken_and_others_refused() -> None:
    gradient = kl.full(2, 3.0)
    assert kl.zeros(2, pinned=True, retain_grad=True).list() == [0, 0]
    assert kl.array([1.0, 2.0], grad=gradient, pinned=True).grad.list() == [3, 3]
    with pytest.raises(kl.KernelTypeError, match="not made with an option colour"):
        kl.zeros_like(gradient, colour="red")


def test_an_address_goes_with_nothing_that_contradicts_it() -> None:
    memory = np.zeros(6, np.float32)
    address = memory.ctypes.data
    with pytest.raises(kl.KernelValueError, match=r"2 elements do not fill the shape \(3, 2\)"):
        kl.from_ptr(address, 2, float, shape=(3, 2))
    with pytest.raises(kl.KernelValueError, match="there is no address"):
        kl.from_ptr(None, 2, float)
    with pytest.raises(kl.KernelTypeError, match="ptr= takes no data"):
        kl.array([1.0], ptr=address, shape=1)
