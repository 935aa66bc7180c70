"""Access regions: the elements of its arrays that a launch accesses, for a known grid and known arguments.

    a Region      the accesses of a function to one parameter, `indices.Form`s and guards
    its box       for each axis the first index, how many, and the step between them

    y[2 * i + 1]             over 100 threads: ((1, 100, 2),)
    if i > 0: y[i]           over 100 threads: ((1, 99, 1),)

A box may be too large, where an index is loaded or a hull spans several accesses; it is never too small.
Index arithmetic counts as exact only while it stays within 32 bits.  Negative indices count from the end.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Literal, NamedTuple, get_args

from kernelab.data_classes import dataclass, field, replace
from kernelab.lang.ir import Function
from kernelab.passes.access.access_forms import Access, accesses
from kernelab.passes.access.affine_forms import (
    Applied,
    Bound,
    Counter,
    Extent,
    Form,
    Guard,
    IntParam,
    Leaf,
    Pace,
    Thread,
    Trips,
    counters_of,
    pace,
)

_LIMIT = 2**31


class Range(NamedTuple):
    """The numbers low, low + step, ... high; none if `high` is less.  The step of a single one is 0."""

    low: int
    high: int
    step: int


NOTHING = Range(0, -1, 0)

Axis = tuple[int, int, int]
Box = tuple[Axis, ...]
"""For each axis the first index, how many there are, and the step; None stands for no elements at all."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The four extents of a grid, and by position the arguments that matter: ints, and what has a shape.

    `last` is the last iteration of a loop, by its number, in which a place is reached.
    """

    extents: Sequence[int]
    arguments: Mapping[int, Any]
    last: Mapping[int, int] = field(default_factory=dict)


Side = Literal["above", "below", "in step", "never"]


@dataclass(frozen=True, slots=True)
class Limits:
    """An index, and the forms that guards, given by their position, keep it above, below and away from.

    They are in this order: what an index never is counts at the ends that the others leave.  Each has a
    number: a multiple of the index is compared with the form, or it differs from it by multiples.
    """

    index: Form | None
    bounds: tuple[tuple[Side, int, Form, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """An access: its index along each axis, and what holds where it happens."""

    axes: tuple[Limits, ...]
    guards: tuple[Guard, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """The accesses to the array parameter at a position; `uses` are the arguments that say where they fall.

    It is `vague` where the text does not determine some index.
    """

    position: int
    places: tuple[Place, ...]
    uses: tuple[int, ...]
    vague: bool

    def box(self, situation: Situation) -> Box | None:
        """The smallest known box around all accesses, None if there is none."""
        shape = situation.arguments[self.position].shape
        hull: list[Range] | None = None
        for place in self.places:
            for ranges in _ranges(place, shape, situation):
                pairs = zip(hull or ranges, ranges, strict=True)
                hull = [_hull(before, more) for before, more in pairs]
        return None if hull is None else _box(hull)

    def boxes(self, situation: Situation) -> tuple[Box, ...]:
        """Boxes that hold all accesses, one for each, and more where indices count from the end as well."""
        shape = situation.arguments[self.position].shape
        boxes = (_box(ranges) for place in self.places for ranges in _ranges(place, shape, situation))
        return tuple(dict.fromkeys(boxes))

    def wraps(self, situation: Situation) -> bool:
        """Whether an index may count from the end, or is not known."""
        here = [_reached(place, situation) for place in self.places]
        pairs = [(place, at) for place, at in zip(self.places, here, strict=True) if at is not None]
        ranges = [_index(limits, *at) for place, at in pairs for limits in place.axes]
        return any(values is None or values.low < 0 for values in ranges)


def regions(function: Function, kind: str) -> dict[int, Region]:
    """The regions that a function reads (kind "read") or changes ("change"), by position of the parameter."""
    by_position: dict[int, list[Access]] = {}
    for access in accesses(function):
        if access.kind == kind:
            by_position.setdefault(access.position, []).append(access)
    return {position: region_of(several) for position, several in by_position.items()}


def region_of(several: Sequence[Access]) -> Region:
    """The region of accesses to one parameter."""
    cases = ((each.index, guards) for each in several for guards in each.cases)
    placed = (Place(tuple(_limits(index, guards) for index in indices), guards) for indices, guards in cases)
    places = tuple(dict.fromkeys(placed))
    forms = [form for place in places for form in _forms(place)]
    vague = any(_is_vague(limits.index) for place in places for limits in place.axes)
    return Region(several[0].position, places, tuple(sorted(_uses(forms))), vague)


def covers(box: Box, shape: Sequence[int]) -> bool:
    """Whether a box is the whole array."""
    return all(axis == (0, extent, 1) for axis, extent in zip(box, shape, strict=True))


# ------------------------------------------------------------------------- from the text


def _limits(index: Form | None, guards: Sequence[Guard]) -> Limits:
    if index is None:
        return Limits(None)
    bounds: list[tuple[Side, int, Form, int]] = []
    for position, guard in enumerate(guards):
        slack, gap = guard.greater.minus(guard.lesser), Form(guard.gap or 0)
        factor = _multiple(slack, index)
        rest = slack.minus(index.times(factor))
        if guard.gap == 0 and Guard(guard.greater, guard.lesser, 0) in guards:
            bounds += [("in step", position, *of) for of in _residue(slack, index)]
        if guard.gap is None and abs(factor) == 1:
            bounds.append(("never", position, rest.times(-factor), 1))
        elif guard.gap is not None and factor > 0:
            bounds.append(("above", position, gap.minus(rest), factor))
        elif guard.gap is not None and factor < 0:
            bounds.append(("below", position, rest.minus(gap), -factor))
    return Limits(index, tuple(sorted(bounds, key=lambda bound: _SIDES.index(bound[0]))))


def _multiple(slack: Form, index: Form) -> int:
    """How many times an index is in a form with nothing else that varies between threads; 0 if it is not."""
    (_, mine), (_, theirs) = index.split(), slack.split()
    factors = {divmod(theirs.get(leaf, 0), factor) for leaf, factor in mine.items()}
    (factor, remainder), *others = factors or {(0, 0)}
    return 0 if others or remainder or mine.keys() != theirs.keys() else factor


def _residue(slack: Form, index: Form) -> Iterator[tuple[Form, int]]:
    """What an index differs from by multiples of a number, where a form that has a remainder of it is 0."""
    rest, varying = slack.split()
    match [*varying.items()]:
        case [(Applied("mod", (operand, Form(modulus, ()))), 1)] if modulus > 0:
            shift = operand.minus(index)
            if _is_fixed(shift):
                yield rest.plus(shift).times(-1), modulus


_SIDES = get_args(Side)


def _is_vague(form: Form | None) -> bool:
    if form is None:
        return True
    counts = [leaf.count for leaf, _ in form.terms if isinstance(leaf, Counter)]
    return any(_is_vague(count) for count in counts)


def _is_fixed(form: Form) -> bool:
    return not form.split()[1]


def _forms(place: Place) -> Iterable[Form]:
    for guard in place.guards:
        yield from (guard.lesser, guard.greater)
    for limits in place.axes:
        if limits.index is not None:
            yield limits.index


def _uses(forms: Iterable[Form]) -> set[int]:
    positions: set[int] = set()
    for form in forms:
        for leaf, _ in form.terms:
            match leaf:
                case IntParam(position) | Extent(position):
                    positions.add(position)
                case Applied(_, args):
                    positions |= _uses(args)
                case Counter(_, count):
                    positions |= set() if count is None else _uses([count])
                case Trips(bounds):
                    paces = [pace for bound in bounds for pace in (bound.lesser, bound.greater)]
                    positions |= _uses(form for pace in paces for form in (pace.start, pace.rate))
                case Thread():
                    pass
    return positions


# ------------------------------------------------------------------------- at a launch


def _ranges(place: Place, shape: Sequence[int], situation: Situation) -> Iterator[tuple[Range, ...]]:
    """The indices of an access along each axis; none if it never happens."""
    here = _reached(place, situation)
    if here is not None:
        yield from product(
            *(_clipped(_index(limits, *here), n) for limits, n in zip(place.axes, shape, strict=True))
        )


def _box(ranges: Iterable[Range]) -> Box:
    return tuple((low, (high - low) // step + 1 if step else 1, step or 1) for low, high, step in ranges)


def _reached(place: Place, situation: Situation) -> tuple[Situation, frozenset[int]] | None:
    """The situation where a place is reached, and which of its guards count; None if it never is.

    A guard counts where what it compares is within 32 bits.
    """
    exact = [
        i
        for i, guard in enumerate(place.guards)
        if range_of(guard.lesser, situation) is not None and range_of(guard.greater, situation) is not None
    ]
    last: dict[int, int] = {}
    for i in exact:
        guard = place.guards[i]
        slack = guard.greater.minus(guard.lesser).minus(Form(guard.gap or 0))
        values = None if guard.gap is None else range_of(slack, situation)
        if values is not None and values.high < 0:
            return None
        for counter in counters_of(slack) if values is not None else ():
            start, rate = (range_of(form, situation) for form in pace(slack, counter))
            if start is not None and rate is not None and rate.high < 0:
                last[counter.number] = min(start.high // -rate.high, last.get(counter.number, _LIMIT))
    return replace(situation, last=last) if last else situation, frozenset(exact)


def _index(limits: Limits, situation: Situation, exact: frozenset[int]) -> Range | None:
    """The values of an index where its guards hold."""
    values = None if limits.index is None else range_of(limits.index, situation)
    for side, position, form, number in limits.bounds:
        bound = range_of(form, situation) if position in exact else None
        if values is None or bound is None:
            continue
        if side == "above":
            values = _from(values, -(-bound.low // number))
        elif side == "below":
            values = _through(values, bound.high // number)
        elif side == "in step" and bound.low == bound.high:
            values = _in_step(values, bound.low, number)
        elif side == "never" and bound.low == bound.high:
            values = _from(values, values.low + (bound.low == values.low))
            values = _through(values, values.high - (bound.low == values.high))
    return values


def _from(values: Range, bound: int) -> Range:
    """The part of a range that is not less than a bound."""
    low, high, step = values
    if low >= bound:
        return values
    return Range(low - (low - bound) // step * step, high, step) if step else NOTHING


def _through(values: Range, bound: int) -> Range:
    """The part of a range that is not greater than a bound."""
    low, high, step = values
    if high <= bound:
        return values
    return Range(low, high + (bound - high) // step * step, step) if step else NOTHING


def _in_step(values: Range, start: int, step: int) -> Range:
    """The part of a range that differs from a number by multiples of a step; all, if steps are uneven."""
    if step % max(values.step, 1):
        return values
    low = values.low + (start - values.low) % step
    high = values.high - (values.high - low) % step
    if low > high or (low - values.low) % max(values.step, 1):
        return NOTHING
    return Range(low, high, step if low < high else 0)


def _clipped(values: Range | None, extent: int) -> list[Range]:
    """The indices that are inside of an axis, counted from its start: of those below 0, and of the others."""
    if values is None:
        return [Range(0, extent - 1, 1)]
    below, others = _through(_from(values, -extent), -1), _through(_from(values, 0), extent - 1)
    counted = Range(below.low + extent, below.high + extent, below.step)
    return [
        Range(low, high, step if low < high else 0) for low, high, step in (counted, others) if low <= high
    ]


def _hull(a: Range, b: Range) -> Range:
    """The least range around two, none of them empty."""
    low, high = min(a.low, b.low), max(a.high, b.high)
    return Range(low, high, math.gcd(a.step, b.step, abs(a.low - b.low)))


def range_of(form: Form, situation: Situation) -> Range | None:
    """The values of a form, None if they are not known or do not fit 32 bits."""
    low = high = form.const
    step = 0
    for leaf, factor in form.terms:
        values = _leaf_range(leaf, situation)
        if values is None:
            return None
        if values.high < values.low:
            return NOTHING
        ends = (factor * values.low, factor * values.high)
        low, high, step = low + min(ends), high + max(ends), math.gcd(step, factor * values.step)
    return Range(low, high, step) if low >= -_LIMIT and high < _LIMIT else None


def _leaf_range(leaf: Leaf, situation: Situation) -> Range | None:
    match leaf:
        case IntParam(position):
            value = int(situation.arguments[position])
            return Range(value, value, 0)
        case Extent(position, axis):
            extent = situation.arguments[position].shape[axis]
            return Range(extent, extent, 0)
        case Thread(None):
            return _up_to(math.prod(situation.extents))
        case Thread(axis):
            assert axis is not None
            return _up_to(situation.extents[axis])
        case Counter(number, count):
            trips = None if count is None else range_of(count, situation)
            last = situation.last.get(number, _LIMIT)
            return None if trips is None else _up_to(min(trips.high, last + 1))
        case Trips(bounds):
            limits = [most for bound in bounds if (most := _trips(bound, situation)) is not None]
            return _ordered(0, min(limits)) if limits else None
        case Applied(name, args):
            ranges = [range_of(arg, situation) for arg in args]
            operands = [one for one in ranges if one is not None]
            if name == "join":
                return _either(operands) if len(operands) == len(ranges) else None
            if any(one.high < one.low for one in operands):
                return NOTHING
            return _operation(name, operands) if len(operands) == len(ranges) else None


def _trips(bound: Bound, situation: Situation) -> int | None:
    """The most iterations of a loop, with the one that fails the bound; None if that is not known.

    What is compared must stay within 32 bits until then.
    """
    fall = range_of(bound.lesser.rate.minus(bound.greater.rate), situation)
    slack = range_of(bound.greater.start.minus(bound.lesser.start), situation)
    if fall is None or slack is None or fall.low <= 0:
        return None
    passed = max(0, (slack.high - bound.gap) // fall.low + 1)
    fits = all(_fits(pace, passed, situation) for pace in (bound.lesser, bound.greater))
    return passed + 1 if fits else None


def _fits(pace: Pace, iterations: int, situation: Situation) -> bool:
    start, rate = range_of(pace.start, situation), range_of(pace.rate, situation)
    if start is None or rate is None:
        return False
    low = start.low + min(0, rate.low * iterations)
    high = start.high + max(0, rate.high * iterations)
    return low >= -_LIMIT and high < _LIMIT


def _up_to(count: int) -> Range:
    return Range(0, count - 1, int(count > 1)) if count > 0 else NOTHING


def _operation(name: str, args: list[Range]) -> Range | None:
    match name:
        case "cast":
            return args[0]
        case "min":
            return _ordered(min(args[0].low, args[1].low), min(args[0].high, args[1].high))
        case "max":
            return _ordered(max(args[0].low, args[1].low), max(args[0].high, args[1].high))
        case "clamp":
            at_least = _ordered(max(args[0].low, args[1].low), max(args[0].high, args[1].high))
            return _operation("min", [at_least, args[2]])
        case "mul":
            return _product(args[0], args[1])
        case "floordiv" | "mod":
            return _divided(name, args[0], args[1])
        case _:
            return None


def _either(args: list[Range]) -> Range:
    """The union of two ranges; that of a loop which never runs is empty."""
    first, second = args
    if first.high < first.low or second.high < second.low:
        return second if first.high < first.low else first
    return _hull(first, second)


def _ordered(low: int, high: int) -> Range:
    return Range(low, high, int(low < high))


def _product(a: Range, b: Range) -> Range:
    ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    step = a.step * abs(b.low) if not b.step else b.step * abs(a.low) if not a.step else 1
    low, high = min(ends), max(ends)
    return Range(low, high, step if low < high else 0)


def _divided(name: str, a: Range, b: Range) -> Range | None:
    divisor = b.low
    if b.step or divisor <= 0:
        return None
    if name == "floordiv":
        return _ordered(a.low // divisor, a.high // divisor)
    if a.low // divisor == a.high // divisor:
        return Range(a.low % divisor, a.high % divisor, a.step)
    return Range(0, divisor - 1, int(divisor > 1))
