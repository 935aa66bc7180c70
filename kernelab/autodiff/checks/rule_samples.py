"""Kernels that call one function at many points, and points to call it at.

Of a function that takes numbers a point is a thread; one that takes arrays is called by one thread.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kernelab.autodiff.checks.check_levels import NoisyChunk
from kernelab.backend.common import backends
from kernelab.backend.common.backends import Entry
from kernelab.backend.cpu import interpreter
from kernelab.backend.cpu.lanes import Numpy
from kernelab.lang.build import Builder, elem_of, type_of
from kernelab.lang.ir import Call, Function, Native, Var, walk
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

MOST_TRIED = 64
"""How many points are tried one by one, of a function that refuses others by an assertion."""

NARROW, POSITIVE, WIDE = (-2.0, 2.0), (0.1, 3.0), (1e-3, 1e3)
"""Ranges of floats; those of the last are sizes, of either sign."""

FAR = ((1.0, 1e2), (1e-4, 1.0), (1e2, 1e8), (1e-12, 1e-4))
"""Sizes at which a function is looked for that is not finite anywhere else."""


def samples(function: Function, is_wide: bool) -> Iterator[Point]:
    """Random arguments of some ranges in turn, not of the widest where an iteration may not converge."""
    rng = np.random.default_rng(0)
    is_single, ranges = _takes_arrays(function), (NARROW, POSITIVE, WIDE)[: 3 if is_wide else 2]
    for k in range(ATTEMPTS if is_single else len(ranges)):
        yield _drawn(rng, function, 1 if is_single else POINTS, ranges[k % len(ranges)])


def far_samples(function: Function) -> Iterator[Point]:
    """Random arguments of other ranges, of either sign and above zero, for a function undefined at those."""
    rng = np.random.default_rng(1)
    is_single = _takes_arrays(function)
    for k in range(ATTEMPTS if is_single else 2 * len(FAR)):
        sizes, is_positive = FAR[k // 2 % len(FAR)], k % 2 == 0
        drawn = _drawn(rng, function, 1 if is_single else MOST_TRIED, sizes, WIDE_EXTENT)
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
        exponents = rng.uniform(smallest, largest, shape)
        return np.asarray(10.0**exponents * rng.choice((-1.0, 1.0), shape))

    return {param.hint: draw(param) for param in function.params}


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
            CPU.backend.build([scalarise(flat)])[flat.name]
            if any(isinstance(stmt, Native) for stmt in walk(flat.body))
            else interpreter.entry(flat, chunk=self._part)
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
