"""Arrays joined along an axis: copies into a new array, which tapes and transforms differentiate."""

from collections.abc import Sequence
from typing import Any

from kernelab.errors import KernelTypeError, KernelValueError
from kernelab.lang.structs import has_derivative
from kernelab.lang.types import scalar_of
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import described, is_whole
from kernelab.runtime.context.recorder import refusal
from kernelab.runtime.host.create import zeros
from kernelab.runtime.ops.operands import arrays_of, foreign_of, goes_through, of_foreign, plain


def concatenate(arrays: Sequence[Any], axis: int = 0) -> array:
    """Join arrays along an axis that they have, as `numpy.concatenate` does; a tape differentiates it.

    They have one dtype, and the same extents along the other axes.  Raises KernelTypeError for other types,
    KernelValueError for shapes that do not fit.

    >>> kl.concatenate([kl.array([1.0, 2.0]), kl.array([3.0])]).list()
    [1.0, 2.0, 3.0]
    """
    return _joined(_parts(arrays, "concatenate"), axis, "concatenate")


def stack(arrays: Sequence[Any], axis: int = 0) -> array:
    """Join arrays of one shape along a new axis, as `numpy.stack` does; a tape differentiates it.

    Raises KernelTypeError for arrays of several types, KernelValueError for several shapes.

    >>> kl.stack([kl.array([1.0, 2.0]), kl.array([3.0, 4.0])], axis=1).numpy().tolist()
    [[1.0, 3.0], [2.0, 4.0]]
    """
    parts = _parts(arrays, "stack")
    for part in parts:
        if part.shape != parts[0].shape:
            message = f"stack joins arrays of one shape, not {parts[0].shape} and {part.shape}"
            raise refusal(KernelValueError, message, "shape", "kl.concatenate joins them along an axis")
    before = (slice(None),) * _position(axis, parts[0].ndim + 1)
    return _joined([part[(*before, None)] for part in parts], axis, "stack")


def _parts(arrays: Any, name: str) -> list[array]:
    if not isinstance(arrays, list | tuple) or not arrays:
        what = "an empty one" if isinstance(arrays, list | tuple) else described(arrays)
        message = f"{name} takes a list of arrays, not {what}"
        raise refusal(KernelTypeError, message, "argument", f"write kl.{name}([x, y])")
    values = [plain(value) for value in arrays]
    other = next((value for value in values if not goes_through(value)), None)
    if other is not None:
        message = f"{name} joins arrays, not {described(other)}"
        raise refusal(KernelTypeError, message, "argument", "make an array of it: kl.array([...])")
    parts = arrays_of(values)
    types = [part.dtype for part in parts]
    if any(type != types[0] for type in types):
        other = next(type for type in types if type != types[0])
        message = f"{name} joins arrays of one type, not {types[0]} and {other}"
        hint, foreign = f"convert one of them: x.astype(kl.{types[0]})", foreign_of(arrays)
        if foreign is not None:
            hint = of_foreign(foreign, [scalar_of(type) for type in types])
        raise refusal(KernelTypeError, message, "type", hint)
    return parts


def _joined(parts: Sequence[array], axis: int, name: str) -> array:
    first = parts[0]
    axis = _position(axis, first.ndim)
    for part in parts:
        if _without(part.shape, axis) != _without(first.shape, axis):
            message = f"{name} does not join shapes {first.shape} and {part.shape} along axis {axis}"
            raise refusal(KernelValueError, message, "shape", "all other extents have to be the same")
    shape = (*first.shape[:axis], sum(part.shape[axis] for part in parts), *first.shape[axis + 1 :])
    traced = has_derivative(first.dtype) and any(part.requires_grad for part in parts)
    whole = zeros(shape, first.dtype, first.device, traced)
    end = 0
    for part in parts:
        start, end = end, end + part.shape[axis]
        whole[(*(slice(None),) * axis, slice(start, end))] = part
    return whole


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _position(axis: Any, ndim: int) -> int:
    if not is_whole(axis) or not -ndim <= axis < ndim:
        hint = f"the axes are 0 to {ndim - 1}"
        raise refusal(KernelValueError, f"there is no axis {axis!r} of {ndim}", "axis", hint)
    return int(axis) % ndim
