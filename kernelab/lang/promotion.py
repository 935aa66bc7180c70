"""Type promotion: which overload operands choose, and the types that they take for it."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal

from kernelab.lang import ops
from kernelab.lang.ops import Op
from kernelab.lang.types import Scalar, Value, bool_, float32, float64, int32, scalar_of

Promotable = tuple[Value, Literal["own", "weak", "literal"]]
"""The type of an operand, and whether it gives way: a literal, or a variable that only literals went into."""


def default_scalar(number: bool | int | float) -> Scalar:
    """The type of a Python number that meets nothing: 32 bits wide."""
    return bool_ if isinstance(number, bool) else int32 if isinstance(number, int) else float32


@lru_cache(4096)
def promoted(
    name: str, kinds: tuple[Promotable, ...], width: Scalar | None = None
) -> tuple[Op, Value, tuple[Value, ...]] | None:
    """The overload of `name` for these operands, its result type and the types that the operands take.

    What gives way takes the type of what it meets, and an int becomes the float that it meets.  Two widths of
    floats, or of ints, that both are stated fit no overload of one width.  `width` is that of weak floats.
    """
    for types in _plans(name, kinds, width):
        overload = ops.resolve(name, types)
        if overload is not None:
            return *overload, tuple(types)
    return None


def _plans(name: str, kinds: Sequence[Promotable], width: Scalar | None) -> Iterator[list[Value]]:
    """The types that operands may take, the least conversion first; `width` is that of weak floats."""
    strong = {scalar_of(type) for type, how in kinds if how == "own"}
    floats = {s for s in strong if s.is_float}
    ints = {s for s in strong if s.is_int}
    if len(floats) > 1:
        yield [_own(kind, float32, int32) for kind in kinds]
        return
    any_float = bool(floats) or any(how != "own" and scalar_of(type).is_float for type, how in kinds)
    weak = [type for type, how in kinds if how == "weak" and isinstance(type, Scalar)]
    widest = max((s for s in weak if s.is_float), key=lambda s: s.bits, default=float32)
    float_type = _sole(floats) or width or widest
    int_type = _sole(ints) or max((s for s in weak if s.is_int), key=lambda s: s.bits, default=int32)
    yield [_own(kind, float_type, int_type) for kind in kinds]
    yield [_own(kind, float_type, float_type) for kind in kinds]
    only_for_floats = len(ints) <= 1 and ops.resolve(name, [int32] * len(kinds)) is None
    if any_float or only_for_floats:
        wide = float64 if not any_float and any(s.bits == 64 for s in ints) else float_type
        yield [wide if isinstance(type, Scalar) and type != bool_ else type for type, _ in kinds]
    if int_type != int32:
        # As in `randi(state, 0, 10)`, where the state alone is unsigned.
        yield [_own(kind, float_type, int32) for kind in kinds]


def _own(kind: Promotable, float_type: Scalar, int_type: Scalar) -> Value:
    type, how = kind
    if how == "own" or not isinstance(type, Scalar) or type == bool_:
        return type
    return float_type if type.is_float else int_type


def _sole(scalars: set[Scalar]) -> Scalar | None:
    return next(iter(scalars)) if len(scalars) == 1 else None
