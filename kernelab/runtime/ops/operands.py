"""Operands of `map` and of array operators: accepted values and broadcasting.

An operand is an array, of structs too, or a value that is the same for all elements: a number, a vector, a
matrix, a struct.  Must not know functions or kernels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelab.errors import Diagnostic, KernelTypeError, KernelValueError, LaunchError
from kernelab.frontend.meaning.promote import default_scalar
from kernelab.host.traced import follow, untraced
from kernelab.host.values import type_of, value_of
from kernelab.lang.structs import AnyType, Struct, StructArray
from kernelab.lang.types import (
    Array,
    Mat,
    Scalar,
    Vec,
    float32,
    float64,
    int32,
    named_types,
    scalar_of,
    shape_of,
)
from kernelab.runtime.array.array import array, duplicate
from kernelab.runtime.array.viewing import is_picked
from kernelab.runtime.context.conversion import described
from kernelab.runtime.host.struct_instances import Instance
from kernelab.runtime.memory.device import CPU, Device
from kernelab.runtime.memory.interop import element, scalar_of_dtype

INDICES = ("i", "j", "k", "l")


def is_operand(value: Any) -> bool:
    """Whether an operator of arrays knows what to do with a value."""
    return isinstance(value, array | np.ndarray | np.number | bool | int | float) or is_picked(value)


def plain(value: Any) -> Any:
    """The operand, with picked elements in an array of their own."""
    return value.contiguous() if is_picked(value) else value


def goes_through(value: Any) -> bool:
    """Whether an operand has an element for each result: an array, not one value for all."""
    return isinstance(value, array) or (
        isinstance(value, np.ndarray) and value.ndim > 0 and not type_of(value)
    )


def arrays_of(values: Sequence[Any]) -> list[array]:
    """The arrays among operands, those of NumPy as such."""
    return [
        value if isinstance(value, array) else array(value, device=CPU, copy=False)
        for value in values
        if goes_through(value)
    ]


def refuse_structs(arrays: Sequence[array]) -> None:
    """Raise KernelTypeError for an array of structs, which have no operators."""
    for given in arrays:
        elem: Any = given.dtype
        if isinstance(elem, Struct):
            message = f"there is no arithmetic of arrays of {elem}"
            hint = f"use the arrays of its fields: x['{elem.fields[0].name}'], or kl.map(func, x, ...)"
            raise KernelTypeError(Diagnostic(message, code="struct", hint=hint))


def argument(value: Any, wanted: object, arrays: Sequence[array]) -> Any:
    """The operand as a launch takes it; `wanted` is the type that its parameter states, if it does."""
    if isinstance(value, array | Instance) or type_of(value) is not None:
        return value
    place = next((given.device for given in arrays if given.device.is_cuda), CPU)
    if isinstance(wanted, Vec | Mat) and isinstance(value, np.ndarray | list | tuple):
        several = isinstance(value, np.ndarray) and value.ndim > len(shape_of(wanted))
        return (
            array(value, wanted, device=place, copy=False)
            if several
            else follow(value_of(wanted, element(untraced(value), wanted)), value)
        )
    if isinstance(value, np.ndarray) and value.ndim:
        return array(value, device=place, copy=False)
    if not isinstance(value, np.generic | np.ndarray | bool | int | float):
        message = f"arrays, numbers, vectors and structs are mapped over, not {described(value)}"
        hint = "write kl.array(...) around it, or kl.vec3(...) for one vector"
        raise KernelTypeError(Diagnostic(message, code="map", hint=hint))
    number = untraced(value)
    number = number.item() if hasattr(number, "item") else number
    scalar = wanted if isinstance(wanted, Scalar) else _scalar_for(number, arrays)
    if isinstance(number, int) and scalar.is_int and not holds(scalar, number):
        raise KernelValueError(Diagnostic(f"{number} does not fit {scalar}", code="range"))
    return follow(scalar(number), value)


def require_place(place: Device | None, given: Sequence[Any], what: str = "map()") -> None:
    """Raise LaunchError where an array is on another device than the one that was asked for."""
    for k, value in enumerate(given):
        if place is not None and isinstance(value, array) and value.device != place:
            message = f"{what} is to run on {place}, and its array {k} is on {value.device}"
            raise LaunchError(Diagnostic(message, code="device", hint=f'move it: x.to("{place}")'))


def holds(scalar: Scalar, number: int) -> bool:
    """Whether a type of ints has a number."""
    limits = np.iinfo(scalar.dtype)
    return int(limits.min) <= number <= int(limits.max)


def _scalar_for(number: bool | int | float, arrays: Sequence[array]) -> Scalar:
    """The type of a number combined with arrays: that of the arrays, as for a literal in a kernel."""
    elems: list[Any] = [given.dtype for given in arrays]
    kinds = [scalar_of(elem) for elem in elems if not isinstance(elem, Struct)]
    floats = [kind for kind in kinds if kind.is_float]
    ints = [kind for kind in kinds if kind.is_int]
    if isinstance(number, bool):
        return default_scalar(number)
    if isinstance(number, int):
        return next(iter([*floats, *ints]), int32)
    if floats:
        return floats[0]
    return float64 if any(kind.bits == 64 for kind in ints) else float32


def value_type_of(given: Any) -> Any:
    """The type of an operand's elements, or of the operand itself."""
    if isinstance(given, array):
        return given.dtype
    if isinstance(given, Instance):
        return given._struct
    found = type_of(given) or scalar_of_dtype(given.dtype)
    assert found is not None
    return found


def broadcast(*operands: Any, within: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """The shape that all operands stretch to; raises KernelValueError where they do not."""
    shapes = [operand.shape for operand in operands if isinstance(operand, array)]
    try:
        found = np.broadcast_shapes(*shapes)
    except ValueError:
        found = None
    if found is None or (within is not None and found != within):
        given = " and ".join(str(shape) for shape in shapes)
        message = f"arrays of shapes {given} do not go together element by element"
        hint = "extents are equal, or 1" if within is None else f"the result has to fit {within}"
        raise KernelValueError(Diagnostic(message, code="shape", hint=hint))
    return found


def apart(given: Any, target: array) -> Any:
    """The operand, or a copy of it where writing `target` would change elements before they are read."""
    if not isinstance(given, array) or given.allocation is not target.allocation:
        return given
    same = (given.offset, given.shape, given.strides) == (target.offset, target.shape, target.strides)
    return given if same or not given.overlaps(target) else duplicate(given, given.requires_grad, "clone")


@dataclass(frozen=True, slots=True)
class Pattern:
    """An operand of a kernel: its type, and its thread indices (None for the only element)."""

    type: AnyType
    axes: tuple[int | None, ...] = ()

    def read(self, name: str) -> str:
        """The element of a parameter of this name that belongs to the thread."""
        indices = ", ".join("0" if axis is None else INDICES[axis] for axis in self.axes)
        return f"{name}[{indices}]" if indices else name


def pattern(given: Any, shape: tuple[int, ...]) -> Pattern:
    """The pattern of an operand in a kernel over `shape`."""
    if not isinstance(given, array):
        return Pattern(value_type_of(given))
    first = len(shape) - given.ndim
    axes = (None if n == 1 != shape[first + k] else first + k for k, n in enumerate(given.shape))
    return Pattern(given.type, tuple(axes))


def declared(names: Sequence[str], types: Sequence[AnyType]) -> tuple[list[str], dict[str, Any]]:
    """Parameters as the text of a kernel declares them, and what the words of their annotations mean."""
    words: dict[Any, str] = {}
    lines = []
    for name, type in zip(names, types, strict=True):
        value = type.elem if isinstance(type, Array | StructArray) else type
        if value not in words:
            # The name of a type, or one for a type that has none: T7 for a vector of seven numbers.
            word = f"T{''.join(character for character in str(value) if character.isalnum())}"
            word = f"{word}_{len(words)}" if word in words.values() else word
            words[value] = str(value) if str(value) in named_types() else word
        lines.append(f"{name}: {_spelled(type, words[value])}")
    return lines, {word: value for value, word in words.items()}


def _spelled(type: AnyType, word: str) -> str:
    if not isinstance(type, Array | StructArray):
        return word
    return f"array[{word}]" if type.ndim == 1 else f"array{type.ndim}d[{word}]"
