"""Values of the fields of structs on the host: defaults, and what is set, converted to the field's type.

Numbers and vectors keep their origins.  Knows arrays; must not know structs on the host.
"""

import math
from typing import Any

import numpy as np

from kernelab.errors import KernelTypeError, KernelValueError
from kernelab.host.traced import follow, untraced
from kernelab.host.values import type_of, value_of
from kernelab.lang.rounding import rounded, widened
from kernelab.lang.structs import Field, Struct, StructArray
from kernelab.lang.types import (
    Array,
    Mat,
    Scalar,
    Value,
    Vec,
    is_differentiable,
    scalar_of,
    shape_of,
    size_of,
)
from kernelab.runtime.array.array import array
from kernelab.runtime.array.layout import is_picked
from kernelab.runtime.context.conversion import converted, described
from kernelab.runtime.memory.device import CPU


def initial(entry: Field) -> Any:
    """The value of a field that is not set: its default, else zeros; no array."""
    match entry.type:
        case Array() | StructArray():
            return None
        case Scalar() as type:
            return follow(
                type.dtype.type(0 if entry.default is None else entry.default).item(), entry.default
            )
        case Struct():
            raise AssertionError("its class makes a struct inside of another")
        case type:
            numbers = np.zeros(type.shape) if entry.default is None else entry.default
            return follow(value_of(type, np.array(numbers, type.scalar.dtype)), entry.default)


def field_value(entry: Field, value: Any, struct: str) -> Any:
    """A value as a field holds it; raises KernelTypeError for one that does not fit."""
    match entry.type:
        case Array() | StructArray():
            if value is None:
                return None
            elements = value if is_picked(value) else _as_array(value, entry.type)
            if elements is not None and elements.type == entry.type:
                return elements
            if elements is not None:
                picked = "picked elements of " if is_picked(value) else ""
                raise _wrong(entry, struct, f"{picked}an {elements.type}")
        case (Scalar() | Vec() | Mat()) as type if isinstance(value, array):
            if value.dtype == type and is_differentiable(type) and value.size == 1:
                return value
            hint = f"an array of one {type} would do" if is_differentiable(type) else ""
            kind = f"an {value.type}" if value.dtype != type else f"an array of {value.size} of them"
            raise _wrong(entry, struct, kind, hint)
        case Scalar() as scalar:
            return _number(entry, scalar, value, struct)
        case Vec() | Mat() as type:
            return _components(entry, type, value, struct)
    hint = ""
    if isinstance(entry.type, Array) and isinstance(value, np.ndarray | list | tuple):
        hint = f"write kl.array(..., dtype=kl.{entry.type.elem}) around it"
    raise _wrong(entry, struct, described(value, by_shape=True), hint)


def _as_array(value: Any, wanted: Array | StructArray) -> array | None:
    if isinstance(value, array):
        return value
    if isinstance(value, np.ndarray):
        elem: Any = wanted.elem
        shared = array(value, elem, device=CPU, copy=False)
        return shared if np.shares_memory(shared.host(), value) or not value.size else None
    return None


def _number(entry: Field, scalar: Scalar, value: Any, struct: str) -> Any:
    raw = untraced(value)
    raw = raw.item() if isinstance(raw, np.generic | np.ndarray) and np.ndim(raw) == 0 else raw
    if isinstance(raw, int) and (scalar.is_int or (scalar.kind == "bool" and raw in (0, 1))):
        raw = int(raw) if scalar.is_int else bool(raw)
    kinds: Any = bool if scalar.kind == "bool" else (int, float) if scalar.is_float else int
    if not isinstance(raw, kinds) or (isinstance(raw, bool) and scalar.kind != "bool"):
        raise _wrong(entry, struct, described(value, by_shape=True))
    if scalar.is_int and not scalar.holds(raw):
        raise _wrong(entry, struct, f"{raw}, which it cannot hold")
    with np.errstate(over="ignore"):
        try:
            number = rounded(raw, scalar.dtype).item()
        except OverflowError:
            raise _wrong(entry, struct, "an int of so many digits", "no float is that large") from None
    if scalar.is_float and math.isinf(number) and not math.isinf(raw):
        raise _wrong(entry, struct, f"{raw}, which it cannot hold")
    return follow(number, value)


def _components(entry: Field, type: Value, value: Any, struct: str) -> Any:
    if type_of(value) == type:
        return value.copy()
    try:
        numbers = widened(np.asarray(untraced(value)))
    except ValueError:
        raise _wrong(entry, struct, described(value, by_shape=True)) from None
    kinds = "iuf" if scalar_of(type).is_float else "iu" if scalar_of(type).is_int else "b"
    fits = numbers.dtype.kind in kinds and numbers.shape in (shape_of(type), (size_of(type),))
    if not fits:
        hint = f"give {size_of(type)} numbers, or kl.{type}(...)"
        raise _wrong(entry, struct, described(value, by_shape=True), hint)
    try:
        components = converted(numbers, scalar_of(type)).reshape(shape_of(type)).copy()
    except KernelValueError as error:
        raise _wrong(entry, struct, f"{described(value)}: {error.diagnostics[0].message}") from None
    return follow(value_of(type, components), value)


def _wrong(entry: Field, struct: str, actual: str, hint: str = "") -> KernelTypeError:
    message = f"the field {entry.name} of {struct} is {entry.type}, not {actual}"
    return KernelTypeError.of(message, "field", hint)
