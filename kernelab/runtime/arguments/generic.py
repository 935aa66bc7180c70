"""The types of a launch's arguments, which decide what a generic kernel becomes.

A number of Python takes the type of the arrays around it, if their elements are of one kind.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kernelab.errors import Diagnostic, KernelValueError, LaunchError, type_name, with_article
from kernelab.frontend.definitions.generics import GenericKernel
from kernelab.host.values import type_of
from kernelab.lang.rounding import is_float_dtype
from kernelab.lang.structs import AnyType, Struct, StructArray
from kernelab.lang.types import (
    LARGEST,
    Array,
    Mat,
    Scalar,
    Value,
    Vec,
    bool_,
    float32,
    int32,
    scalar_of,
    shape_of,
)
from kernelab.runtime.array.array import array
from kernelab.runtime.array.viewing import is_picked
from kernelab.runtime.host.struct_instances import Instance
from kernelab.runtime.memory.interop import array_type, scalar_of_dtype, value_type


def types_of(kernel: GenericKernel, arguments: Sequence[Any]) -> list[AnyType | None]:
    """The type of each argument for an open parameter; raises LaunchError for one that has none."""
    if len(arguments) != len(kernel.names):
        count = "1 argument" if len(kernel.names) == 1 else f"{len(kernel.names)} arguments"
        message = f"kernel `{kernel.name}` takes {count}, not {len(arguments)}"
        hint = f"its parameters are {', '.join(kernel.names)}"
        raise LaunchError(Diagnostic(message, kernel.span, "count", hint=hint))
    elems = list(dict.fromkeys(_elements(arguments)))
    found: list[AnyType | None] = []
    for name, argument, is_open in zip(kernel.names, arguments, kernel.open, strict=True):
        type = _type_of(argument, elems) if is_open else None
        if is_open and type is None:
            shown = with_article(_named(argument))
            message = f"argument `{name}` of kernel `{kernel.name}` is {shown}, which says no type"
            hint = "pass an array, a number, a vector or a struct"
            raise LaunchError(Diagnostic(message, kernel.span, "type", hint=hint))
        found.append(type)
    return found


def _elements(arguments: Sequence[Any]) -> Iterator[Value]:
    for argument in arguments:
        known = isinstance(argument, array) or is_picked(argument)
        type_ = argument.type if known else None
        if isinstance(type_, Array):
            yield type_.elem


def _type_of(argument: Any, elems: Sequence[Value]) -> AnyType | None:
    match argument:
        case array():
            return argument.type
        case _ if is_picked(argument):
            picked: Array = argument.type
            return picked
        case Instance():
            return argument._struct
        case bool():
            return bool_
        case int():
            return _agreed([e for e in elems if isinstance(e, Scalar) and e.is_int]) or int32
        case float():
            return _agreed([scalar_of(e) for e in elems if scalar_of(e).is_float]) or float32
        case np.generic() | np.ndarray(ndim=0):
            return scalar_of_dtype(argument.dtype)
        case np.ndarray():
            return _of_numpy(argument, elems)
        case list() | tuple():
            values = np.asarray(argument)
            return _of_numpy(values.astype(np.float32 if is_float_dtype(values.dtype) else np.int32), elems)
        case _:
            return None


def _agreed(found: Sequence[Scalar]) -> Scalar | None:
    return found[0] if len(set(found)) == 1 else None


def _of_numpy(values: np.ndarray[Any, Any], elems: Sequence[Value]) -> AnyType | None:
    """A small one is a vector or matrix, of the type of an array's elements where it looks like them."""
    scalar = scalar_of_dtype(values.dtype)
    if scalar is None:
        return None
    known = type_of(values)
    if known is not None:
        return known
    for elem in elems:
        if scalar_of(elem) == scalar and values.shape == shape_of(elem) != ():
            return elem
    match values.shape:
        case (n,) if 1 < n <= LARGEST:
            return Vec(scalar, n)
        case (n, m) if n > 1 and m > 1 and n * m <= LARGEST:
            return Mat(scalar, n, m)
        case shape if 1 <= len(shape) <= 4:
            made: Array = array_type(scalar, len(shape))
            return made
        case _:
            return None


def stated(kernel: GenericKernel, types: Sequence[Any] | Mapping[str, Any]) -> list[AnyType | None]:
    """The types that `overload` was given, by position or name; raises KernelValueError."""
    if isinstance(types, Mapping):
        wrong = [name for name in types if name not in kernel.names]
        missing = [
            n for n, is_open in zip(kernel.names, kernel.open, strict=True) if is_open and n not in types
        ]
        if wrong or missing:
            message = (
                f"kernel `{kernel.name}` has no parameter `{wrong[0]}`"
                if wrong
                else f"the type of `{missing[0]}` of kernel `{kernel.name}` is missing"
            )
            raise KernelValueError(Diagnostic(message, kernel.span, "value"))
        given: list[Any] = [types.get(name) for name in kernel.names]
    else:
        given = list(types)
    if len(given) == sum(kernel.open) < len(kernel.names):
        rest = iter(given)
        given = [next(rest) if is_open else None for is_open in kernel.open]
    if len(given) != len(kernel.names):
        message = f"kernel `{kernel.name}` has {len(kernel.names)} parameters, not {len(given)}"
        raise KernelValueError(Diagnostic(message, kernel.span, "count"))
    return [_stated(type) if is_open else None for type, is_open in zip(given, kernel.open, strict=True)]


def _stated(type: Any) -> AnyType:
    if isinstance(type, Array | StructArray | Struct):
        return type
    return value_type(type)


def _named(argument: Any) -> str:
    return "value of None" if argument is None else type_name(argument)
