"""Converts numbers of the host to kernel types; a number that does not fit is an error.

Knows NumPy and the scalar types; must not know arrays.  Fractions are dropped where ints are asked for, as
NumPy does; a number that would become another one, or infinite, is refused.
"""

import numbers
from typing import Any

import numpy as np

from kernelab.errors import Diagnostic, KernelTypeError, KernelValueError, a_thing, type_name
from kernelab.host.traced import untraced
from kernelab.host.values import refuse_mask
from kernelab.lang.rounding import largest, rounded, widened
from kernelab.lang.types import Scalar

_NONE = object()

HostArray = np.ndarray[Any, Any]

PART_BYTES = 16 << 20
"""The bytes that are copied at once: some milliseconds, tens of them where the pages are new."""


def as_numpy(data: Any, purpose: str = "make an array from") -> HostArray:
    """Host data as a NumPy array of numbers; raises KernelTypeError or KernelValueError for anything else."""
    refuse_mask(data)
    try:
        values = untraced(data) if isinstance(data, np.ndarray) else np.asarray(data)
        if values.dtype == object and values.size and _culprit(values) is None:
            values = np.asarray(values.tolist())
    except (TypeError, ValueError, RuntimeError) as problem:  # the last of PyTorch, where gradients go on
        message, hint = f"cannot {purpose} {described(data)}: {problem}", ""
        if "inhomogeneous" in str(problem):
            message = f"cannot {purpose} {described(data)}: its rows have different lengths"
            hint = "give every row the same number of elements"
        raise KernelTypeError(Diagnostic(message, code="data", hint=hint)) from None
    if values.dtype.kind in "biufV":
        return values
    raise _no_numbers(values, data, purpose)


def converted(values: HostArray, scalar: Scalar) -> HostArray:
    """The values as numbers of that type; raises KernelValueError for one that does not fit."""
    wanted = scalar.dtype
    if values.dtype == wanted:
        return values
    values = widened(values)
    if values.dtype.kind == "V":
        raise KernelTypeError(Diagnostic(f"structs cannot become numbers of {scalar}", code="dtype"))
    if values.dtype.kind == "f" and scalar.is_float and not scalar.flavor:
        try:
            with np.errstate(over="raise", invalid="ignore"):
                return values.astype(wanted)
        except FloatingPointError:
            pass  # it may be infinite already: the rest looks at each number
    with np.errstate(over="ignore", invalid="ignore"):
        result = rounded(values, wanted)
    if values.size and scalar.kind != "bool" and not np.can_cast(values.dtype, wanted):
        outside = _outside(values, result, scalar)
        if outside.any():
            raise _does_not_fit(values[outside].flat[0], scalar)
    return result


def copy_elements(target: HostArray, values: HostArray) -> None:
    """Copy elements as NumPy does, a part after the other: an interrupt arrives between two of them."""
    if target.nbytes <= PART_BYTES or target.shape != values.shape:
        target[...] = values
        return
    rows = max(1, len(target) * PART_BYTES // target.nbytes)
    for start in range(0, len(target), rows):
        if rows == 1:
            copy_elements(target[start], values[start])
        else:
            target[start : start + rows] = values[start : start + rows]


def described(data: Any, by_shape: bool = False) -> str:
    """Describe host data in a message: the dtype of an array, or its shape where that matters."""
    if data is _NONE:
        return "None"
    if isinstance(data, np.ndarray):
        return f"a NumPy array of {f'shape {data.shape}' if by_shape else data.dtype}"
    if isinstance(data, str):
        return f"the text {data[:20]!r}"
    if isinstance(data, int) and abs(data) >= 10**30:
        return "a large int"  # it may have thousands of digits, which Python refuses to write
    if isinstance(data, bool | int | float | np.number):
        return f"the {type_name(data)} {data!s}"
    return a_thing(data)


def _outside(values: HostArray, result: HostArray, scalar: Scalar) -> HostArray:
    """Mask of numbers that changed in the conversion: outside the range of the int type, or infinite."""
    if scalar.is_float:
        return np.isinf(result) & np.isfinite(values)
    limits = np.iinfo(scalar.dtype)
    if values.dtype.kind == "f":
        return ~((values > limits.min - 1.0) & (values < limits.max + 1.0))
    return (values < limits.min) | (values > limits.max)


def _does_not_fit(number: Any, scalar: Scalar) -> KernelValueError:
    value = number.item() if isinstance(number, np.generic) else number
    shown = str(value) if abs(value) < 1e30 or isinstance(value, float) else "a number of so many digits"
    if scalar.is_float:
        hint = f"{scalar} holds numbers up to {largest(scalar.dtype):.3g}"
    else:
        limits = np.iinfo(scalar.dtype)
        hint = f"{scalar} holds {limits.min} to {limits.max}"
    return KernelValueError(Diagnostic(f"{shown} does not fit {scalar}", code="range", hint=hint))


def _no_numbers(values: HostArray, data: Any, purpose: str) -> Exception:
    culprit = _culprit(data)
    if culprit is None:
        hint = "the largest ints are those of uint64, the largest floats those of float64"
        message = "an int of so many digits fits no type of numbers"
        return KernelValueError(Diagnostic(message, code="range", hint=hint))
    message = f"cannot {purpose} {described(data)}"
    hint = "elements are numbers, vectors and matrices of numbers, or structs"
    if values.dtype.kind == "c":
        message, hint = f"{message}: complex numbers have no type here", "pass x.real and x.imag apart"
    elif hasattr(data, "__iter__") and not hasattr(data, "__len__"):
        hint = "write list(...) around it"
    elif isinstance(data, set | frozenset | dict):
        hint = "write sorted(...) around it, or list(x.values())"
    elif culprit is not data and not (culprit is _NONE and data is None):
        message += f" that holds {described(culprit)}"
    return KernelTypeError(Diagnostic(message, code="data", hint=hint))


def _culprit(data: Any) -> Any:
    """The first part of nested data that is no number, None if there is none."""
    if isinstance(data, numbers.Real | np.bool_):
        return None
    if not isinstance(data, list | tuple) and not (isinstance(data, np.ndarray) and data.ndim):
        return _NONE if data is None else data
    return next((culprit for part in data if (culprit := _culprit(part)) is not None), None)
