"""Functions of kernels for other libraries: `kernelab.interop.scipy`, `.torch` and `.jax`, with gradients.

    from kernelab.interop import torch as kt
    y = kt.function(f)(x)        # f takes and returns arrays; x and y are tensors

What is shared and what is copied stands in docs/interop.md.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from kernelab.autodiff.records.adjoint_buffers import filled
from kernelab.autodiff.transforms.base_level import current
from kernelab.autodiff.transforms.transforms import record
from kernelab.autodiff.transforms.trees import require_callable
from kernelab.errors import KernelTypeError, a_thing
from kernelab.func import jvp
from kernelab.lang.types import Array, is_differentiable, scalar_of, shape_of
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import scalar_of_dtype
from kernelab.runtime.context.recorder import RECORDER
from kernelab.runtime.host.create import zeros
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.launch.launch import launch

Function = Callable[..., Any]
Grid = int | Sequence[int] | None

__all__ = ["jax", "scipy", "torch"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"kernelab.interop.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def launched(f: Function, dim: Grid = None) -> Function:
    """A function of arrays; of a kernel, the function of its first arguments that launches it.

    The kernel's last parameters that it writes are new arrays of zeros, which come back, in the shape of the
    first argument; `dim` is the grid, by default that shape.  For a parameter that is an array of vectors or
    matrices the last axes are the components.  Raises KernelTypeError for a kernel that writes nothing else,
    or writes before what it reads, and for what is no function.
    """
    if not isinstance(f, Kernel):
        require_callable(f)
        return f
    types = [parameter.type for parameter in f.plan.parameters]
    count = len(types) - len(f.plan.written)
    if f.plan.formals is not None or f.plan.written != tuple(range(count, len(types))) or count == len(types):
        message = f"`{f.name}` cannot stand for a function: the arrays that it writes have to come last"
        hint = "write a function that makes the outputs, launches the kernel and returns them"
        raise KernelTypeError.of(message, "interop", hint, f.span)

    def call(*inputs: Any) -> Any:
        inputs = tuple(_of_components(one, type) for one, type in zip(inputs, types, strict=False))
        first = next((one for one in inputs if isinstance(one, array)), None)
        if first is None:
            message = f"`{f.name}` was called without an array, whose shape that of its outputs would be"
            hint = "write a function that makes the outputs, launches the kernel and returns them"
            raise KernelTypeError.of(message, "interop", hint, f.span)
        outputs = [zeros(first.shape, type.elem) for type in types[count:] if isinstance(type, Array)]
        launch(f, dim=first.shape if dim is None else dim, inputs=inputs, outputs=outputs)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    call.__name__ = f.name
    return call


def _of_components(argument: Any, wanted: Any) -> Any:
    """An array of numbers whose last axes are the components of the vectors that a kernel takes, as such."""
    if not isinstance(argument, array) or not isinstance(wanted, Array) or argument.dtype == wanted.elem:
        return argument
    parts = shape_of(wanted.elem)
    fits = argument.dtype == scalar_of(wanted.elem) and argument.shape[wanted.ndim :] == parts
    return argument.view(wanted.elem) if fits else argument


def recorded(
    f: Function, arguments: Sequence[array], floats: Sequence[int], own: bool = False
) -> tuple[list[array], Function]:
    """The results of `f`, and the function from their cotangents to adjoints of the arguments at `floats`.

    `f` returns a tuple of arrays.  It gets copies of these arguments, unless they are the caller's `own`; so
    does the function of cotangents.
    """
    recording = record(f, arguments, floats, own=own)

    def pull(bars: Sequence[array], own: bool = False) -> list[array]:
        pairs = zip(bars, recording.outputs, strict=True)
        seeds = [bar if is_differentiable(out.dtype) else None for bar, out in pairs]
        return recording.pull(current(), seeds, own)

    return recording.outputs, pull


def pullback(f: Function, count: int, floats: Sequence[int], own: bool = False) -> Function:
    """The function of `count` arguments, then cotangents, that gives the adjoints of those at `floats`.

    `f` gets copies of these, unless they and the cotangents are the function's `own`.
    """

    def adjoints(*values: array) -> tuple[array, ...]:
        _, pull = recorded(f, values[:count], floats, own)
        return tuple(pull(values[count:], own and RECORDER.get() is None))

    return adjoints


def pushforward(f: Function, count: int, moved: Sequence[int]) -> Function:
    """The function of `count` arguments, then tangents of those at `moved`, that gives those of `f`."""

    def tangents(*values: array) -> tuple[array, ...]:
        whole = list(values[:count])

        def of_moved(*chosen: array) -> tuple[array, ...]:
            for n, primal in zip(moved, chosen, strict=True):
                whole[n] = primal
            return results_of(f(*whole))

        return tuple(jvp(of_moved, [whole[n] for n in moved], values[count:])[1])

    return tangents


def copy_of(values: Any) -> array:
    """An array with the numbers of one of NumPy, in memory of its own."""
    dtype = scalar_of_dtype(values.dtype)
    if dtype is None or not 0 < values.ndim <= 4:
        return array(values)
    return filled(values.shape, dtype, values)


def results_of(returned: Any) -> tuple[array, ...]:
    """The arrays that a function returned; raises KernelTypeError for anything else."""
    arrays = tuple(returned) if isinstance(returned, tuple | list) else (returned,)
    for one in arrays:
        if not isinstance(one, array):
            hint = "return an array of kernelab, or a tuple of them; tensors and arrays of JAX are arguments"
            raise KernelTypeError.of(f"the function returned {a_thing(one)}", "interop", hint)
    return arrays
