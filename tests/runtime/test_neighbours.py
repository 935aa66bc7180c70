"""Arrays and Jacobians where other libraries expect their own: tensors at a launch, ufuncs, operators."""

import sys
from typing import Any

import numpy as np
import pandas
import pytest
import scipy.sparse.linalg

import kernelab as kl

MADE = kl.compile(
    """
def double(x: array[float], y: array[float]):
    i = tid()
    y[i] = 2.0 * x[i]

def double_any(x: array[Any], y: array[Any]):
    i = tid()
    y[i] = x[i] + x[i]

def second(x: array[vec3], y: array[float]):
    i = tid()
    y[i] = x[i][1]
"""
)


class Tensor:
    """A tensor of another library: it speaks DLPack and nothing else."""

    def __init__(self, values: Any, requires_grad: bool = False) -> None:
        self.values, self.requires_grad = values, requires_grad

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize("kernel", ["double", "double_any"])
def test_a_launch_takes_tensors_and_shares_their_memory(kernel: str) -> None:
    x, y = np.arange(3, dtype=np.float32), np.zeros(3, np.float32)
    kl.launch(MADE[kernel], dim=3, inputs=[Tensor(x)], outputs=[Tensor(y)])
    assert y.tolist() == [0.0, 2.0, 4.0]
    y[:] = 0.0
    kl.launch(MADE[kernel], dim=3, inputs=[x], outputs=[y])
    assert y.tolist() == [0.0, 2.0, 4.0]


def test_the_last_axis_of_a_tensor_is_that_of_components() -> None:
    y = kl.zeros(2)
    kl.launch(
        MADE["second"], dim=2, inputs=[Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))], outputs=[y]
    )
    assert y.list() == [1.0, 4.0]


def test_a_tensor_that_does_not_fit_is_refused_with_what_was_found() -> None:
    y = kl.zeros(3)
    with pytest.raises(
        kl.LaunchError, match=r"not a Tensor of dtype float64\n(.*\n)*  hint: convert it to float32"
    ):
        kl.launch(MADE["double"], dim=3, inputs=[Tensor(np.ones(3))], outputs=[y])
    with pytest.raises(kl.LaunchError, match=r"not a Tensor of shape \(3, 1\)"):
        kl.launch(MADE["double"], dim=3, inputs=[Tensor(np.ones((3, 1), np.float32))], outputs=[y])
    frozen = np.zeros(3, np.float32)
    frozen.flags.writeable = False
    with pytest.raises((kl.LaunchError, BufferError)):
        kl.launch(MADE["double"], dim=3, inputs=[y], outputs=[Tensor(frozen)])
    assert not frozen.any()


def test_a_tensor_that_requires_gradients_is_refused_with_the_way_to_do_it() -> None:
    x = Tensor(np.ones(3, np.float32), requires_grad=True)
    with pytest.raises(
        kl.LaunchError, match=r"requires gradients\n(.*\n)*  hint: kernelab\.interop\.torch\.function"
    ):
        kl.launch(MADE["double"], dim=3, inputs=[x], outputs=[kl.zeros(3)])


def test_a_ufunc_writes_into_an_array() -> None:
    x, values = kl.array([1.0, 2.0], dtype=float), np.zeros(2, np.float32)
    assert np.add(x, 1, out=x) is x
    assert x.list() == [2.0, 3.0]
    np.multiply(x, 2.0, out=values)
    assert values.tolist() == [4.0, 6.0]
    fraction, whole = kl.zeros(2), kl.zeros(2)
    np.modf(np.array([1.5, 2.25], np.float32), out=(fraction, whole))
    assert (fraction.list(), whole.list()) == ([0.5, 0.25], [1.0, 2.0])
    assert np.add.reduce(x) == 5.0
    assert type(np.sin(x)) is np.ndarray


def test_what_a_ufunc_writes_cuts_the_chain_with_a_warning() -> None:
    x, y, z = (kl.ones(2, requires_grad=True) for _ in range(3))
    with kl.Tape() as tape:
        MADE["double"][2](x, y)
        np.add(y, 1, out=y)
        MADE["double"][2](y, z)
    with pytest.warns(kl.KernelWarning, match="no gradient flows through `y` here"):
        tape.backward(grads={z: kl.ones_like(z)})


@pytest.mark.parametrize("values", [np.ones(2, np.float32), np.float32(1.0), np.eye(2, dtype=np.float32)])
def test_operators_with_numpy_to_the_left_make_arrays(values: Any) -> None:
    x = kl.array([1.0, 2.0], dtype=float)
    assert isinstance(values + x, kl.array)
    assert isinstance(values < x, kl.array)
    if values.ndim == 2:
        assert isinstance(values @ x, kl.array)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_jacobian_is_a_linear_operator_of_scipy(sparse: bool) -> None:
    x = kl.array([1.0, 2.0, 3.0], dtype=float, requires_grad=True)
    (found,) = kl.autograd.jacobian(lambda x: x * x, inputs=[x], sparse=sparse).values()
    operator = scipy.sparse.linalg.aslinearoperator(found)
    assert operator.matvec(np.ones(3)).tolist() == operator.rmatvec(np.ones(3)).tolist() == [2.0, 4.0, 6.0]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="classes of Python have no buffers before 3.12")
def test_python_sees_the_memory_of_an_array() -> None:
    x = kl.array([1.0, 2.0], dtype=float)
    memoryview(x)[0] = 5.0
    assert x.list() == [5.0, 2.0]
    assert np.asarray(x).base is not None


def test_frames_are_copied_and_refused_at_a_launch_with_the_way_to_do_it() -> None:
    series = pandas.Series([1.0, None, 3.0], dtype="Int64")
    x = kl.array(series, dtype=float)
    assert x.list()[::2] == [1.0, 3.0]
    assert np.isnan(x.list()[1])
    with pytest.raises(kl.LaunchError, match=r"not a Series\n(.*\n)*  hint: make an array of it: kl.array"):
        kl.launch(MADE["double"], dim=3, inputs=[series], outputs=[kl.zeros(3)])


def test_frames_and_buffers_keep_the_width_of_their_numbers() -> None:
    frame = pandas.DataFrame({"a": [0.1, 0.2]})
    assert (kl.array(frame).dtype, kl.array(frame).list()) == (kl.float64, [0.1, 0.2])
    assert kl.array(pandas.DataFrame({"a": [1, 2]})).dtype == kl.int64
    assert kl.array(memoryview(np.array([0.1, 0.2]))).dtype == kl.float64
    assert kl.array([0.1, 0.2]).dtype == kl.float32


def test_functions_of_numpy_compute_with_the_values() -> None:
    x = kl.array([3.0, 4.0], dtype=float)
    assert np.linalg.norm(x) == 5.0
    assert np.concatenate([x, x]).tolist() == [3.0, 4.0, 3.0, 4.0]


def test_functions_of_numpy_write_into_an_array_or_say_what_they_take() -> None:
    x, y = kl.array([3.0, 4.0], dtype=float), kl.zeros(2)
    assert np.cumsum(x, out=y) is y
    assert y.list() == [3.0, 7.0]
    assert np.add(x, 1, out=np.zeros(2), where=kl.array([True, False])).tolist() == [4.0, 0.0]
    for call in (
        lambda: np.copyto(y, 1.0),
        lambda: np.put(y, [0], 1.0),
        lambda: np.fill_diagonal(kl.zeros((2, 2)), 1.0),
    ):
        with pytest.raises(
            kl.KernelTypeError, match=r"np\.\w+ does not take .*\n  hint: .*pass x\.numpy\(\)"
        ):
            call()


def test_what_a_function_of_numpy_writes_cuts_the_chain_with_a_warning() -> None:
    x, y, z = (kl.ones(2, requires_grad=True) for _ in range(3))
    with kl.Tape() as tape:
        MADE["double"][2](x, y)
        np.cumsum(y, out=y)
        MADE["double"][2](y, z)
    with pytest.warns(kl.KernelWarning, match="no gradient flows through `y` here"):
        tape.backward(grads={z: kl.ones_like(z)})
