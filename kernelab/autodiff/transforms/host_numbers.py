"""Numbers as arguments of transforms: arrays of one element inside the function, numbers again outside.

Inside of another transform results stay arrays, so that no derivative ends in a number of the host.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernelab.autodiff.transforms.base_level import BASE, current
from kernelab.autodiff.transforms.transforms import Flattened, with_flat_structs
from kernelab.autodiff.transforms.trees import mapped, positions, rebuilt, scalar_shape, shaped
from kernelab.data_classes import dataclass
from kernelab.frontend.definitions.functions import UserFunction
from kernelab.host.values import HostValue, type_of
from kernelab.lang.structs import StructArray
from kernelab.lang.types import Array, Mat, Scalar, Value, Vec, float32, is_differentiable
from kernelab.runtime.array.array import array
from kernelab.runtime.array.layout import is_integer
from kernelab.runtime.context.conversion import scalar_of_dtype
from kernelab.runtime.host.struct_instances import Instance, held_in


def kernel_function(func: Any) -> UserFunction | None:
    """The function for kernels that a function is, or is a transform of; None for a Python function."""
    while func is not None:
        function = getattr(func, "__kernelab_function__", None)
        if isinstance(function, UserFunction):
            return function
        func = getattr(func, "__wrapped__", None)
    return None


def as_array(value: Any, stated: object = None, requires_grad: bool = False) -> array | None:
    """A float, vector or matrix of the host as an array of one element; None for anything else.

    `stated` is the type that it gets; else a float of Python's is a float32.
    """
    type = _type(value, stated)
    return None if type is None else array([value], type, (1,), requires_grad=requires_grad)


def _type(value: Any, stated: object) -> Value | None:
    if isinstance(value, array | Instance | str) or value is None:
        return None
    if isinstance(stated, Vec | Mat) and is_differentiable(stated):
        return stated
    own = type_of(value)
    if own is not None:
        return own if is_differentiable(own) else None
    if not isinstance(value, int | float | np.number) or isinstance(value, bool):
        return None
    if isinstance(stated, Scalar):
        return stated if stated.is_float else None
    if isinstance(value, np.floating):
        return scalar_of_dtype(value.dtype)
    return float32 if isinstance(value, float) else None


@dataclass(frozen=True, slots=True)
class Opened:
    """Arguments with arrays of one element at `numbers`, of which those at `chosen` are differentiated.

    `flat` has the fields of structs as arguments; `closes` says that results become values again.
    """

    args: list[Any]
    chosen: tuple[int, ...]
    flat: Flattened
    numbers: frozenset[int]
    closes: bool
    is_of_kernels: bool

    @property
    def call(self) -> tuple[Callable[..., Any], list[Any], tuple[int, ...]]:
        """The function, its arguments and the positions of the arrays that are differentiated."""
        return self.flat.func, self.flat.args, self.flat.chosen

    def closed(self, result: Any) -> Any:
        """A result with its arrays of one element as values."""
        return _closed(result) if self.closes else result

    def by_argument(self, results: Sequence[Any]) -> list[Any]:
        """The results for the arrays by chosen argument, as host values where the arguments are."""
        pairs = zip(self.chosen, self._together(results), strict=True)
        return [_closed(one) if self._is_value(n) else one for n, one in pairs]

    def _together(self, results: Sequence[Any]) -> list[Any]:
        """The results for the arrays by chosen argument: those for the fields of a struct as one."""
        rest = iter(results)
        return [rebuilt(self.args[n], rest) for n in self.chosen]

    def _is_value(self, n: int) -> bool:
        is_struct = self.is_of_kernels and isinstance(self.args[n], Instance)
        return current() is BASE and (n in self.numbers or is_struct)

    def jacobian(self, blocks: Sequence[Any], output: array) -> list[Any]:
        """The blocks of a Jacobian by chosen argument, without axes for single values."""
        lead = scalar_shape(output)
        if self.closes and (output.shape == (1,) or self.is_of_kernels):
            lead = tuple(n for n in lead if n > 1)
        pairs = zip(blocks, self.shapes(), strict=True)
        return self._together([reshaped(block, (*lead, *shape)) for block, shape in pairs])

    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of each differentiated array, without the axis of a single value."""
        flat = self.flat
        return [
            scalar_shape(flat.args[k])[self._is_value(n) and flat.args[k].shape == (1,) :]
            for n, k in zip(flat.owners, flat.chosen, strict=True)
        ]


def opened(func: Callable[..., Any], args: Sequence[Any], argnums: Any) -> Opened:
    """The arguments of a transform; values of the host that are differentiated become arrays.

    Raises KernelTypeError for a chosen argument that has no derivative.
    """
    function, arguments = kernel_function(func), list(args)
    stated = stated_types(function)
    asked = [argnums] if is_integer(argnums) else list(argnums) if isinstance(argnums, Sequence) else []
    numbers = set()
    for n in (n % len(args) for n in asked if is_integer(n) and -len(args) <= n < len(args)):
        elements = as_array(arguments[n], stated[n] if n < len(stated) else None)
        if elements is not None:
            arguments[n] = elements
            numbers.add(n)
    is_outer = current() is BASE and not any(isinstance(arg, array) for arg in args)
    chosen = positions(func, arguments, argnums)
    flat = with_flat_structs(func, arguments, chosen)
    closes, is_of_kernels = is_outer and bool(numbers or function), function is not None
    return Opened(arguments, chosen, flat, frozenset(numbers), closes, is_of_kernels)


def stated_types(function: UserFunction | None) -> list[Any]:
    """The types that the parameters of a function for kernels state; empty where several share its name."""
    if function is None or len(function.members) > 1:
        return []
    return [parameter.type for parameter in function.signature()]


def _closed(result: Any) -> Any:
    return mapped(result, _as_value)


def _as_value(result: Any) -> Any:
    """A struct with numbers and vectors in place of arrays of one element; the element of such an array."""
    if isinstance(result, Instance):
        copy = result.copy()
        for entry in result.__kernelab_struct__.fields:
            member = held_in(result, entry.name)
            if isinstance(member, Instance) or not isinstance(entry.type, Array | StructArray):
                setattr(copy, entry.name, _closed(member))
        return copy
    if not isinstance(result, array) or result.shape != (1,):
        return result
    value = result[0]
    return value.copy() if isinstance(value, HostValue | Instance) else value


def reshaped(block: array, shape: tuple[int, ...]) -> Any:
    """A contiguous array in another shape; its only number where the shape has no axis."""
    if block.shape == shape:
        return block
    return shaped(block, shape) if shape else _closed(shaped(block, (1,)))


def like_array(value: Any, like: Any) -> Any:
    """A tangent or cotangent of the host as an array, where it belongs to an array of one element."""
    elements = as_array(value, like.dtype) if isinstance(like, array) and like.shape == (1,) else None
    return value if elements is None else elements


def arrays_like(cotangents: Any, outputs: Sequence[array]) -> Any:
    """Cotangents with numbers as arrays, where the results are arrays of one element."""
    if not isinstance(cotangents, tuple | list | dict):
        return like_array(cotangents, outputs[0]) if len(outputs) == 1 else cotangents
    several = list(cotangents.values() if isinstance(cotangents, dict) else cotangents)
    likes = outputs if len(several) == len(outputs) else [outputs[0]] * len(several)
    return [like_array(*pair) for pair in zip(several, likes, strict=True)]


def varied_inputs(func: Callable[..., Any], inputs: Sequence[Any]) -> list[Any]:
    """The inputs of a check: floats of the host that are to be varied as arrays that require gradients.

    Floats are varied for a function for kernels, and for a Python function without arrays to vary.
    """
    function = kernel_function(func)
    if function is None and any(getattr(value, "requires_grad", False) for value in inputs):
        return list(inputs)
    stated = stated_types(function)
    return [
        _varied(value, stated[n] if n < len(stated) else None, function is not None)
        for n, value in enumerate(inputs)
    ]


def _varied(value: Any, stated: object, is_of_kernels: bool) -> Any:
    if isinstance(value, Instance) and is_of_kernels:
        value = value.copy()
        value.requires_grad = True
    elements = as_array(value, stated, requires_grad=True)
    return value if elements is None else elements


def lanes_of_values(func: Callable[..., Any], args: Sequence[Any], result: Any) -> Any:
    """What `vmap` joined, an element a lane where a function for kernels went through arrays of one axis."""
    lanes = [arg for arg in args if isinstance(arg, array) and arg.ndim == 1]
    if kernel_function(func) is None or any(isinstance(arg, array) and arg.ndim > 1 for arg in args):
        return result
    return mapped(result, _as_lanes) if lanes else result


def _as_lanes(part: Any) -> Any:
    if not isinstance(part, array):
        return part
    return reshaped(part, part.shape[:1] + tuple(n for n in part.shape[1:] if n > 1))
