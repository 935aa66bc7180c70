"""Kernels that call one function at many points, points to call it at, and slopes of the function there.

Of a function that takes numbers a point is a thread; one that takes arrays is called by one thread.
A slope is a central difference, at each point over the step at which it changes least, relative to itself,
from one step to the next: over wide steps the function bends, over narrow ones its rounding shows.  How much
it changes there is the error that is left.  Where the slopes to the two sides stay apart however small the
step is, there is a kink, and no slope.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kernelab.autodiff.rule_checks.interpreted import NoisyChunk
from kernelab.backend.common import backends
from kernelab.backend.common.backends import Entry
from kernelab.backend.cpu import interpreter
from kernelab.backend.cpu.lanes import Numpy
from kernelab.data_classes import dataclass
from kernelab.lang.build import Builder, elem_of, type_of
from kernelab.lang.ir import Call, Const, Function, Let, Native, Stmt, Var, of_kind
from kernelab.lang.types import Array, int32, scalar_of, shape_of
from kernelab.passes.common.copying import inline, lay_out
from kernelab.passes.common.scalarise import scalarise
from kernelab.passes.common.simplify import simplify
from kernelab.runtime.memory.device import CPU
from kernelab.settings import changed_settings

Point = Mapping[str, Numpy]

POINTS, ATTEMPTS = 32, 60
"""The points sampled at once, and how often arguments of a function that takes arrays are drawn.

Indices and extents of slices that are drawn at random seldom fit each other.
"""

EXTENT, WIDE_EXTENT = 5, 40
"""The extent of every axis; integers are below 4, so that they are indices."""

LARGEST = 100
"""The largest integer in the text of a function that it is called with: it may count a loop."""

SMALL = 32
"""Integers below this are tried: a rule may be wrong where ``n > 3``, ``n * n == 49`` or ``n % 5 == 4``."""

MOST_TRIED = 64
"""How many points are tried one by one, of a function that refuses others by an assertion."""

NARROW, POSITIVE, WIDE = (-2.0, 2.0), (0.1, 3.0), (1e-3, 1e3)
"""Ranges of floats; those of the last are sizes, of either sign."""

FAR = ((1.0, 1e2), (1e-4, 1.0), (1e2, 1e8), (1e-12, 1e-4))
"""Sizes at which a function is looked for that is not finite anywhere else."""


def samples(function: Function, is_wide: bool, integers: Sequence[int] = ()) -> Iterator[Point]:
    """Random arguments of some ranges in turn, not of the widest where an iteration may not converge.

    Of numbers that are integers there are some of `integers` in the last.
    """
    rng = np.random.default_rng(0)
    is_single, ranges = _takes_arrays(function), (NARROW, POSITIVE, WIDE)[: 3 if is_wide else 2]
    for k in range(ATTEMPTS if is_single else len(ranges)):
        drawn = _drawn(rng, function, 1 if is_single else POINTS, ranges[k % len(ranges)])
        yield drawn if k % 2 == 0 else _with_fitting_slices(drawn, EXTENT)
    whole = {param.hint: scalar_of(type_of(param)) for param in function.params if not is_single}
    whole = {name: scalar for name, scalar in whole.items() if scalar.is_int}
    if integers and whole:
        drawn = dict(_drawn(rng, function, max(POINTS, 4 * len(integers)), NARROW))
        for name, scalar in whole.items():
            fitting = [number for number in (0, *integers) if scalar.holds(number)]
            drawn[name] = np.resize(np.array(fitting, scalar.dtype), drawn[name].shape)
            rng.shuffle(drawn[name].reshape(-1))
        yield drawn


def tried_integers(texts: Iterable[Function]) -> list[int]:
    """Small integers, those that some functions compute with, and those beside them.

    They are negative only where such a one is, or one is told from those above zero: others may count
    something.
    """
    lets = [let for text in texts for let in of_kind(text.body, Let)]
    atoms = [atom for let in lets for atom in let.args if isinstance(atom, Const)]
    named = {int(atom.value) for atom in atoms if scalar_of(atom.type).is_int}
    near = {(n, n + step) for n in named if abs(n) <= LARGEST for step in (-1, 0, 1)}
    least = -EXTENT if any(map(_tells_signs, lets)) else 0
    return sorted({*range(least, SMALL), *(number for n, number in near if number >= 0 or n < 0)})


def _tells_signs(let: Let) -> bool:
    """Whether an operation gives something else for integers below zero: their order to it, `abs`, `sign`."""
    types = [atom.type for atom in let.args]
    if any(isinstance(type, Array) or not scalar_of(type).is_int for type in types):
        return False
    is_order = let.op.name in ("lt", "le", "gt", "ge")
    has_zero = any(isinstance(atom, Const) and atom.value == 0 for atom in let.args)
    return (is_order and has_zero) or let.op.name in ("abs", "sign")


def is_coarse(stmt: Stmt) -> bool:
    """Whether a statement may compute in fewer digits than float64: C++, and the bits of a float32."""
    return isinstance(stmt, Native) or (isinstance(stmt, Let) and "bits" in stmt.op.tags)


def far_samples(function: Function) -> Iterator[Point]:
    """Random arguments of other ranges, of either sign and above zero, for a function undefined at those."""
    rng = np.random.default_rng(1)
    is_single = _takes_arrays(function)
    for k in range(ATTEMPTS if is_single else 2 * len(FAR)):
        sizes, is_positive = FAR[k // 2 % len(FAR)], k % 2 == 0
        drawn = _drawn(rng, function, 1 if is_single else MOST_TRIED, sizes, WIDE_EXTENT)
        drawn = _with_fitting_slices(drawn, WIDE_EXTENT) if k % 4 > 1 else drawn
        yield {name: np.abs(values) if is_positive else values for name, values in drawn.items()}


def one_by_one(points: Point) -> Iterator[Point]:
    """Each of some points by itself."""
    for k in range(len(next(iter(points.values()), ()))):
        yield {name: values[k : k + 1] for name, values in points.items()}


def joined(points: Sequence[Point]) -> Point:
    """Some points as one sample."""
    return {name: np.concatenate([point[name] for point in points]) for name in points[0]}


def _drawn(
    rng: "np.random.Generator",
    function: Function,
    count: int,
    between: tuple[float, float],
    extent: int = EXTENT,
) -> Point:
    """Arrays of an extent along each axis, and some numbers, vectors or matrices."""

    def draw(param: Var) -> Numpy:
        elem = elem_of(param) if isinstance(param.type, Array) else type_of(param)
        outer = (extent,) * param.type.ndim if isinstance(param.type, Array) else (count,)
        scalar, shape = scalar_of(elem), (*outer, *shape_of(elem))
        if not scalar.is_float:
            return rng.integers(0, 2 if scalar.kind == "bool" else 4, shape).astype(scalar.dtype)
        if between in (NARROW, POSITIVE):
            return np.asarray(rng.uniform(*between, shape))
        smallest, largest = (float(np.log10(end)) for end in between)
        return np.asarray(10.0 ** rng.uniform(smallest, largest, shape) * rng.choice((-1.0, 1.0), shape))

    return {param.hint: draw(param) for param in function.params}


def _with_fitting_slices(drawn: Point, extent: int) -> Point:
    """The point with slices of two elements from the middle on, which fit whatever their steps are.

    Bounds of several slices that are drawn by themselves seldom do.
    """
    fitting = {"start": extent // 2, "count": 2, "step": 1}
    changed = {name: fitting.get("".join(name.split("_")[-2:-1])) for name in drawn}
    return {
        name: values if changed[name] is None else np.full_like(values, changed[name])
        for name, values in drawn.items()
    }


def _takes_arrays(function: Function) -> bool:
    return any(isinstance(param.type, Array) for param in function.params)


# ------------------------------------------------------------------------------------------ programs


NOISE = 1e-13
"""By how much values are changed to see what results are sums of."""


class _NoisyPatient(NoisyChunk, interpreter.Patient):
    """A run of some threads that ends, and whose values are off in their last digits."""


class Caller:
    """A kernel as it is run here: on the interpreter, or on the CPU where a part of it is C++.

    With `is_noisy` the interpreter changes all values in their last digits.
    """

    def __init__(self, kernel: Function, is_noisy: bool = False) -> None:
        flat = simplify(inline(kernel))
        self._parts: list[interpreter.Patient] = []
        self._rng = np.random.default_rng(2) if is_noisy else None
        self._entry: Entry = (
            interpreter.entry(flat, chunk=self._part)
            if interpreter.can_interpret(flat)
            else CPU.backend.build([scalarise(flat)])[flat.name]
        )

    def _part(self, *args: Any) -> interpreter.Patient:
        part = interpreter.Patient(*args) if self._rng is None else _NoisyPatient(NOISE, self._rng, *args)
        self._parts.append(part)
        return part

    def run(self, threads: int, arguments: Mapping[str, Any]) -> Numpy:
        """Run some threads; which of them did not end."""
        self._parts.clear()
        # Indices are sampled as well: what they do says nothing of the user's program.
        with np.errstate(all="ignore"), changed_settings(negative_index="wrap"):
            self._entry(backends.pack(self._entry.info.layout, (threads,), arguments))
        endless = np.zeros(threads, np.bool_)
        for part in self._parts:
            endless[part.threads.start : part.threads.stop] = part.given_up
        return endless


def calling(function: Function) -> Function:
    """The kernel whose thread i calls the function for element i of its numbers and stores results there."""
    thread, builder = Var(int32, "i", function.span), Builder(function.span)
    params = tuple(
        Var(param.type if isinstance(param.type, Array) else Array(type_of(param), 1), param.hint, param.span)
        for param in function.params
    )
    types = [type_of(atom) for atom in function.body.yields]
    results = tuple(Var(Array(type, 1), f"{function.name}_result_{k}") for k, type in enumerate(types))
    args = tuple(
        own if isinstance(param.type, Array) else builder.load(own, [thread], own.hint)
        for param, own in zip(function.params, params, strict=True)
    )
    outs = tuple(Var(type) for type in types)
    builder.emit(Call(outs, function, args, function.span))
    for result, out in zip(results, outs, strict=True):
        builder.store(result, [thread], out)
    name = f"{function.name}_checked"
    return simplify(lay_out(Function(name, (*params, *results), builder.close(), (thread,), function.span)))


def with_results(kernel: Function, points: Sequence[tuple[str, Numpy]], threads: int) -> dict[str, Numpy]:
    """The arguments of a kernel that calls a function: copies of some points, and zeros for the results."""
    arguments = {name: np.array(value, order="C") for name, value in points}
    for param in kernel.params[len(points) :]:
        elem = elem_of(param)
        arguments[param.hint] = np.zeros((threads, *shape_of(elem)), scalar_of(elem).dtype)
    return arguments


def evaluate(function: Function, *points: Numpy) -> list[Numpy]:
    """The results of a function of numbers; each argument holds a point a row.

    Raises BuildError where it is C++ and there is no compiler, and the function's own errors.
    """
    kernel = calling(function)
    named = [(param.hint, x) for param, x in zip(function.params, points, strict=True)]
    arguments = with_results(kernel, named, len(points[0]))
    Caller(kernel).run(len(points[0]), arguments)
    return [arguments[param.hint] for param in kernel.params[len(points) :]]


# ---------------------------------------------------------------------------------------------------- slopes


STEPS = 10.0 ** -np.arange(2, 13)
SHIFTS = np.concatenate([[0.0], STEPS, -STEPS])
"""The steps at which a function is evaluated; steep ones bend over all but the last."""

WIDE_STEPS = 3
"""How many of the steps are wide enough for a function that moves in small jumps, such as a bisection."""

FALLS = 30.0
"""By how much the error falls at least with a step a tenth as wide, where a function is smooth."""

LEVEL = 0.3
"""From which share of the difference between the two sides that is left with such a step there is a kink."""

FOUND = 1e4
"""A slope is zero below so many roundings over the widest step."""

SURE = 0.1
"""How far slopes over neighbouring steps may be apart, relative to the slope that they are taken for."""

ROUNDINGS = 8 * float(np.finfo(np.float64).eps)
"""By how much the values of a function are off, relative to the terms that they are sums of."""

SMALLEST = 1e-300
"""What may be lost where a value underflows."""


@dataclass(frozen=True, slots=True)
class Slopes:
    """A slope at each point, how far it may be off, and where the function has one that could be found."""

    values: Numpy
    errors: Numpy
    known: Numpy


def slopes(look: Callable[[Numpy], Numpy], terms: Numpy, tolerance: float, is_rough: bool) -> Slopes:
    """The slopes along a direction; `look` gives the values at each of some shifts, a point a column.

    `terms` is the size of what the values are sums of.  A function that `is_rough` may move in small jumps:
    where the slope does not converge as that of a smooth one, it may be off by what wider steps give.
    """
    values = look(SHIFTS)
    with np.errstate(all="ignore"):
        here, ahead, behind = values[0], values[1 : 1 + len(STEPS)], values[1 + len(STEPS) :]
        steps = STEPS[:, np.newaxis]
        noise = (ROUNDINGS * np.where(np.isfinite(terms), terms, 0.0) + SMALLEST) / steps
        central = (ahead - behind) / (2.0 * steps)
        apart = np.abs(np.diff(central, axis=0)) + noise[1:]
        apart = np.where(np.isfinite(apart), apart, np.inf)
        least = FOUND * noise[0]
        sizes = np.maximum(np.maximum(np.abs(central[1:]), np.abs(central[:-1])), least)
        best = np.argmin(np.where(apart < np.inf, apart / sizes, np.inf), axis=0)[np.newaxis]
        slope, error = _at(central, best + 1), 2.0 * _at(apart, best)
        bends = np.abs(ahead - 2.0 * here + behind) / steps
        left = LEVEL * _at(bends, best) + tolerance * np.abs(slope) + 4.0 * _at(noise, best + 1)
        has_kink = _at(bends, best + 1) > left
        if is_rough:
            jumps = 2.0 * np.nanmax(np.abs(slope - central[:WIDE_STEPS]), axis=0, initial=0.0)
            error = np.where(_converges(apart, best), error, np.maximum(error, jumps))
        size = np.maximum(np.abs(slope), least)
        beside = np.where(best < len(apart) - 1, best + 1, best - 1)
        is_found = (error <= SURE * size) & (_at(apart, beside) <= SURE * size + 4.0 * _at(noise, beside + 1))
        is_found |= is_rough  # the error says how far it is found
    return Slopes(slope, error, np.isfinite(slope) & np.isfinite(error) & is_found & ~has_kink)


def _converges(apart: Numpy, best: Numpy) -> Numpy:
    """Where the error falls as that of a smooth function does, twice."""
    first, second, third = (_at(apart, np.maximum(best - k, 0)) for k in (2, 1, 0))
    return np.asarray((best[0] >= 2) & (second <= first / FALLS) & (third <= second / FALLS))


def _at(values: Numpy, rows: Numpy) -> Numpy:
    return np.asarray(np.take_along_axis(values, rows, axis=0)[0])
