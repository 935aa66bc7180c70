"""Arrays and dtypes of other libraries: PyTorch tensors, NumPy dtypes, DLPack, raw addresses.

PyTorch is imported only where a tensor is asked for.  Memory is shared or the call is an error: nothing here
copies.
"""

import math
from importlib import import_module
from typing import Any

import numpy as np

from kernelab.backend.cuda.synchronisation import TorchStream
from kernelab.errors import KernelTypeError, KernelValueError
from kernelab.guidance.bad_calls import explains_bad_calls
from kernelab.lang.types import SCALARS, Scalar, Value, bfloat16, scalar_of, uint16
from kernelab.runtime.array.array import array, require_array
from kernelab.runtime.array.exchange import capsule, warn_of_end
from kernelab.runtime.context.conversion import described, shape_tuple, type_of_numpy, value_type
from kernelab.runtime.context.recorder import ENTERED, called, warn_at
from kernelab.runtime.host.create import from_dlpack, from_numpy
from kernelab.runtime.memory.device import CPU, Device, get_device
from kernelab.runtime.memory.torch_versions import count_writes


@explains_bad_calls(return_ctype="leave it out: a launch takes the array, or the tensor itself")
def from_torch(
    t: Any,
    dtype: Any = None,
    requires_grad: bool | None = None,
    grad: Any = None,
    retain_grad: bool = False,
) -> array:
    """An array over the memory of a tensor of PyTorch, and over that of its `.grad`.

    On a CUDA device the stream that PyTorch uses at the moment and kernelab wait for each other.
    With a vector or matrix for a `dtype` the last axes are its components.  `requires_grad` is the tensor's
    unless given; a leaf that requires gradients and has none yet gets zeros, which both sides then share.
    A tensor that PyTorch has computed with gradients is warned of, unless `requires_grad` is given: none goes
    on to PyTorch's graph.  Within a function that is differentiated each that requires gradients is.
    `retain_grad` changes nothing: gradients are kept.  Raises KernelTypeError where the memory cannot be
    shared.
    """
    elem = None if dtype is None else value_type(dtype)
    result = _over_tensor(t, elem)
    if requires_grad is None and t.requires_grad and not t.is_leaf:
        message = f"{called(t, 'this tensor')} was computed by PyTorch: no gradient goes on to its graph"
        hint = (
            "call t.backward(kl.to_torch(x.grad)) after backward() of the tape, and write from_torch(t, "
            "requires_grad=True) to say so; or pass t.detach() where values are meant to come alone"
        )
        warn_at(message, "library", hint)
    elif requires_grad is None and t.requires_grad and ENTERED:
        name = called(t, "this tensor")
        message = f"no gradient flows to {name}: it is not an argument of the function that is differentiated"
        hint = "pass it as an argument; if it is meant to be a constant: from_torch(t, requires_grad=False)"
        warn_at(message, "library", hint)
    wanted = bool(t.requires_grad) if requires_grad is None else requires_grad
    if grad is not None:
        result.give_gradient(grad if isinstance(grad, array) else from_torch(grad, elem))
    elif wanted:
        result.requires_grad = True
        if t.is_leaf:
            if t.grad is None:
                t.grad = _zeros_like(t, result)
            result.grad = from_torch(t.grad, elem)
    return result


def _zeros_like(t: Any, shared: array) -> Any:
    """Zeros laid out like a tensor, gaps included, as gradients are; not where its elements share bytes."""
    if shared.is_contiguous or shared.folds:
        return _torch().zeros_like(t)
    return t.new_empty_strided(t.shape, t.stride()).zero_()


def _over_tensor(t: Any, elem: Value | None) -> array:
    if not all(hasattr(t, name) for name in ("detach", "is_leaf", "device")):
        hint = "make an array of it: kl.array(...), or kl.from_dlpack(...)"
        raise KernelTypeError.of(f"from_torch takes a tensor of PyTorch, not {described(t)}", "torch", hint)
    if str(t.device).partition(":")[0] == "cuda":
        on_device = from_dlpack(t.detach(), elem)
        count_writes(on_device, t)
        return on_device
    values = host_of(t)
    shared = from_numpy(values, elem, device=CPU)
    if values.size and not np.may_share_memory(shared.host(), values):
        message = f"a tensor of {_name(t.dtype)} cannot be shared as an array of {shared.dtype}"
        raise KernelTypeError.of(message, "torch", f"convert it first: t.to(torch.{scalar_of(shared.dtype)})")
    count_writes(shared, t, values.base)  # which lives as long as the memory, and is a detached tensor
    return shared


def to_torch(a: array, requires_grad: bool | None = None) -> Any:
    """A tensor of PyTorch over the memory of an array, components in the last axes, its `.grad` shared too.

    `requires_grad` is the array's unless given.  The tensor is a leaf: no gradient passes from PyTorch's
    graph to a tape, nor back; what a tape has computed is warned of, unless `requires_grad` is given.  Hand
    it over: ``tape.backward(grads={a: kl.from_torch(t.grad)})``.
    Raises KernelTypeError for what a tensor cannot look at.
    """
    require_array(a, "to_torch takes")
    torch = _torch()
    if min(a.strides, default=0) < 0 or not a.allocation.writable:
        why = "its strides are negative" if a.allocation.writable else "its memory is read-only"
        raise KernelTypeError.of(f"a tensor cannot share this array: {why}", "torch", "pass kl.clone(x)")
    if requires_grad is None:
        warn_of_end(a, TO_TORCH)
    tensor = _tensor(a, torch)
    count_writes(a, tensor)
    if a.requires_grad if requires_grad is None else requires_grad:
        tensor.requires_grad_(True)
        if a.grad is not None:
            tensor.grad = to_torch(a.grad, requires_grad=False)
    return tensor


TO_TORCH = (
    "the tensor is a leaf: call backward() there, then tape.backward(grads={y: kl.from_torch(t.grad)}), and "
    "write to_torch(y, requires_grad=True) to say so; or requires_grad=False where its values go alone"
)


def _tensor(a: array, torch: Any) -> Any:
    try:
        if a.device.is_cuda and not _is_struct(a):
            stream = TorchStream(a.device.ordinal)
            return torch.utils.dlpack.from_dlpack(capsule(a, stream(), partner=stream))
        if scalar_of(a.dtype) == bfloat16:  # of which NumPy and PyTorch have different ideas
            return torch.from_numpy(a.view(uint16).numpy()).view(torch.bfloat16)
        return torch.from_numpy(a.numpy())
    except TypeError:
        hint = "pass the array of one field: x['field']" if _is_struct(a) else ""
        raise KernelTypeError.of(f"PyTorch has no tensors of {a.dtype}", "torch", hint) from None


def to_dlpack(a: array) -> Any:
    """The memory of an array as a DLPack capsule, for libraries that take no arrays themselves.

    Components of vectors and matrices stand in the last axes.  Raises KernelTypeError where `a` is none.

    >>> np.from_dlpack(kl.ones(2, dtype=kl.vec3)).shape
    (2, 3)
    """
    require_array(a, "to_dlpack takes")
    return a.__dlpack__()


def from_ptr(
    ptr: int,
    length: int,
    dtype: Any = None,
    shape: Any = None,
    device: Device | str | None = None,
    strides: Any = None,
) -> array:
    """An array over memory at an address, which must stay there as long as the array; nothing checks that.

    `length` elements of `dtype`, or a `shape`, with `strides` in bytes where they are not contiguous.
    """
    shape = shape_tuple(length if shape is None else shape)
    if ptr is None or (length is not None and math.prod(shape) != length):
        wrong = "there is no address" if ptr is None else f"{length} elements do not fill the shape {shape}"
        raise KernelValueError.of(
            wrong, "shape" if ptr else "address", "pass x.ptr, and as many as are there"
        )
    return array(dtype=dtype, shape=shape, device=device, ptr=ptr, strides=strides)


def dtype_from_numpy(numpy_dtype: Any) -> Scalar:
    """The type of numbers that NumPy calls by this dtype; raises KernelTypeError where there is none."""
    return type_of_numpy(numpy_dtype)


def dtype_to_numpy(dtype: Any) -> Any:
    """NumPy's class of the numbers of a type: ``np.float32`` for `float32` and for `float`.

    Raises KernelTypeError for vectors, matrices and structs, and for what is not a type.
    """
    elem = value_type(dtype)
    if not isinstance(elem, Scalar):
        message = f"NumPy has no dtype for {elem}: its arrays hold the components in the last axes"
        raise KernelTypeError.of(message, "dtype")
    return elem.dtype.type


def dtype_from_torch(torch_dtype: Any) -> Scalar:
    """The type of numbers that PyTorch calls by this dtype; raises KernelTypeError where there is none."""
    name = _name(torch_dtype)
    scalar = next((scalar for scalar in SCALARS if scalar.name == name), None)
    if scalar is None:
        named = f"torch.{name}" if str(torch_dtype).startswith("torch.") else described(torch_dtype)
        hint = "pass a dtype of numbers of PyTorch, such as torch.float32"
        raise KernelTypeError.of(f"there is no type of numbers for {named}", "dtype", hint)
    return scalar


def dtype_to_torch(dtype: Any) -> Any:
    """PyTorch's dtype of the numbers of a type: ``torch.float32`` for `float32` and for `float`.

    Raises KernelTypeError where PyTorch has none, or is not installed.
    """
    elem = value_type(dtype)
    if not isinstance(elem, Scalar) or not hasattr(_torch(), elem.name):
        raise KernelTypeError.of(f"PyTorch has no dtype for {elem}", "dtype")
    return getattr(_torch(), elem.name)


def device_from_torch(torch_device: Any) -> Device:
    """The device that PyTorch calls so; raises LaunchError for one that is not there."""
    return get_device(str(torch_device))


def device_to_torch(device: Device | str | None) -> str:
    """PyTorch's name of a device, "cpu" or "cuda:0"; raises LaunchError for a missing device."""
    return str(get_device(device))


def host_of(t: Any) -> np.ndarray[Any, Any]:
    """The memory of a tensor of PyTorch as a NumPy array; raises KernelTypeError where there is none."""
    if str(t.device).partition(":")[0] != "cpu":
        message = f"this tensor is on {t.device}, and kernels run on the CPU and on CUDA devices"
        raise KernelTypeError.of(message, "torch", "copy it there first: t.cpu()")
    try:
        if _name(t.dtype) == "bfloat16":
            brains: np.ndarray[Any, Any] = t.detach().view(_torch().uint16).numpy().view(bfloat16.dtype)
            return brains
        values: np.ndarray[Any, Any] = t.detach().numpy()
        return values
    except (TypeError, RuntimeError) as error:
        raise KernelTypeError.of(f"a tensor of {_name(t.dtype)} cannot be shared: {error}", "torch") from None


def _torch() -> Any:
    try:
        return import_module("torch")
    except ImportError:
        raise KernelTypeError.of("PyTorch is not installed", "torch", "run `pip install torch`") from None


def _name(torch_dtype: Any) -> str:
    return str(torch_dtype).rpartition(".")[2]


def _is_struct(a: array) -> bool:
    return not hasattr(a.dtype, "shape") and not isinstance(a.dtype, Scalar)
