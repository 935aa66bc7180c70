"""What holds of a record of the table at given types: each check raises AssertionError, with the numbers.

Knows the interpreter and the derivatives; must not know what the records mean.
"""

from typing import Any

import ml_dtypes
import numpy as np

from kernelab.backend.cpu import interpreter
from kernelab.lang.ops import Linear
from kernelab.lang.rounding import is_float_dtype, widened
from kernelab.lang.types import bfloat16, float16, float32, float64, scalar_of
from kernelab.lang.verify import verify
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.common.scalarise import scalarise
from tests.support.table import LANES, Case, Numpy, cotangents, expected, named, pulled, tangent, zeros

TOLERANCE = {float16: 1e-3, bfloat16: 8e-3, float32: 3e-6, float64: 1e-13}
"""Relative, for what goes through a mathematical library."""

EDGES = (0.0, 1.0, -1.0)


def assert_close(case: Case, found: Numpy, wanted: Numpy) -> None:
    """To the last bit for what is exact, else as close as a mathematical library is."""
    if case.op.exact:
        np.testing.assert_array_equal(found, wanted)
        return
    tolerance = TOLERANCE[scalar_of(case.result)]
    # Where terms of a composed operation cancel, what is left is as accurate as they were.
    atol = tolerance * np.abs(wanted).max() if case.op.cpp is None else 0.0
    np.testing.assert_allclose(widened(found), widened(wanted), rtol=tolerance, atol=atol)


def bits(values: Any) -> Numpy:
    """Numbers as what tells them apart: zeros have a sign, and all NaN are one."""
    array = np.asarray(values)
    if not is_float_dtype(array.dtype):
        return array
    wide = array.astype(np.float64)
    return np.where(np.isnan(wide), np.nan, wide).view(np.int64)


def by_components(operands: list[Numpy]) -> list[Numpy]:
    """Operands as a scalarised function takes them."""
    return [column for x in operands for column in x.reshape(LANES, -1).T]


def expansion_is_the_oracle(case: Case) -> None:
    """The expansion into scalars means what the NumPy oracle says."""
    operands = case.draw()
    wanted = expected(case, operands)
    found = interpreter.evaluate(verify(scalarise(case.function())), *by_components(operands))
    assert_close(case, np.stack(found, -1).reshape(wanted.shape), wanted)


def directions(case: Case, seed: int) -> dict[str, Numpy]:
    """A random tangent for each operand that has one."""
    rng = np.random.default_rng(seed)
    operands = named(case, case.draw())
    return {name: rng.uniform(-1, 1, operands[name].shape) for name in case.active}


def moved(case: Case, operands: list[Numpy], dots: dict[str, Numpy], step: float) -> list[Numpy]:
    """The operands, a step along their tangents."""
    return [x + step * dots[name] if name in dots else x for name, x in named(case, operands).items()]


def inner(a: Numpy, b: Numpy) -> Numpy:
    """The inner product of each lane."""
    return np.sum((a.astype(float) * b).reshape(LANES, -1), axis=1)


def tangent_is_the_slope(case: Case) -> None:
    """The tangent is what central differences say."""
    operands, dots = case.draw(1), directions(case, 2)
    narrow = scalar_of(case.result) != float64
    # Conversions to narrower floats round away small steps; being linear, they allow a large one.
    assert not narrow or isinstance(case.op.derivative, Linear)
    step, tolerance = (
        (1.0, 3.2e-2 if scalar_of(case.result) == bfloat16 else 4e-3) if narrow else (1e-6, 1e-6)
    )
    ends = [interpreter.evaluate(case.function(), *moved(case, operands, dots, s))[0] for s in (step, -step)]
    slope = (ends[0].astype(float) - ends[1]) / (2 * step)
    np.testing.assert_allclose(tangent(case, operands, dots), slope, rtol=tolerance, atol=tolerance)


def adjoint_is_the_transpose(case: Case) -> None:
    """The adjoint is the transpose of the tangent."""
    operands, dots = case.draw(3), directions(case, 4)
    w = np.random.default_rng(5).uniform(-1, 1, case.out().shape).astype(case.out().dtype)
    bars = cotangents(case, operands, w)
    forward = inner(w, tangent(case, operands, dots))
    backward = sum(inner(bars[name], dots[name]) for name in case.active)
    tolerance = {float16: 1e-3, bfloat16: 8e-3, float32: 1e-6, float64: 1e-11}[scalar_of(case.result)]
    np.testing.assert_allclose(backward, forward, rtol=tolerance, atol=tolerance)


def tangent_of_the_adjoint(case: Case, arrays: dict[str, Numpy], dots: dict[str, Numpy]) -> dict[str, Numpy]:
    """How the cotangents of the operands change along a direction."""
    bars = [f"{name}_bar" for name in case.active]
    second = verify(jvp(pulled(case), [*case.active, *bars]))
    zero = {f"{name}_bar": np.zeros_like(arrays[name]) for name in case.active}
    moving = {f"{name}_dot": dots[name] for name in case.active}
    found: dict[str, Any] = {f"{name}_bar_dot": np.zeros_like(arrays[name]) for name in case.active}
    interpreter.run(second, [LANES], arrays | zero | moving | found)
    return {name: found[f"{name}_bar_dot"] for name in case.active}


def second_order_is_the_slope(case: Case) -> None:
    """The tangent of the adjoint is what differences of the adjoint say."""
    operands, dots = case.draw(6), directions(case, 7)
    w = np.random.default_rng(8).uniform(-1, 1, case.out().shape)
    arrays = named(case, operands) | {"out": case.out(), "out_bar": w.copy()}
    second = tangent_of_the_adjoint(case, arrays, dots)
    step = 1e-6
    ends = [cotangents(case, moved(case, operands, dots, s), w) for s in (step, -step)]
    for name in case.active:
        slope = (ends[0][name] - ends[1][name]) / (2 * step)
        np.testing.assert_allclose(second[name], slope, rtol=1e-5, atol=1e-5)


def at_edges(case: Case) -> list[Numpy]:
    """Operands that are an edge of the domain in each lane, where they carry derivatives."""
    drawn = named(case, case.draw())
    edges = np.resize(EDGES, LANES)
    return [
        np.broadcast_to(edges, x.T.shape).T.astype(x.dtype) if name in case.active else x
        for name, x in drawn.items()
    ]


def zero_cotangent_stays_zero(case: Case) -> None:
    """A cotangent of zero gives cotangents of zero, also where partials are infinite."""
    for bar in cotangents(case, at_edges(case), zeros(case.result)).values():
        np.testing.assert_array_equal(bar, 0.0)


def zero_tangent_stays_zero(case: Case) -> None:
    """A tangent of zero gives a tangent of zero, also where partials are infinite."""
    operands = at_edges(case)
    dots = {name: np.zeros_like(x) for name, x in named(case, operands).items() if name in case.active}
    np.testing.assert_array_equal(tangent(case, operands, dots), 0.0)


def edge_operands(case: Case) -> list[Numpy]:
    """Operands that are edges of their types: zeros, ones, infinities, NaN, denormal and greatest numbers."""
    rng = np.random.default_rng(17)
    operands = [_edges_of(x, rng) for x in case.draw()]
    if case.op.name in ("floordiv", "mod") and operands[1].dtype.kind in "iu":
        # A kernel checks integer divisors before it divides.
        operands[1][operands[1] == 0] = 1
    return operands


def _edges_of(x: Numpy, rng: np.random.Generator) -> Numpy:
    if is_float_dtype(x.dtype):
        info = ml_dtypes.finfo(x.dtype)
        ends = [info.smallest_subnormal, info.max]
        choices = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, *ends], x.dtype)
    elif x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        choices = np.array([0, 1, limits.max, limits.min], x.dtype)
    else:
        return x
    return np.asarray(rng.choice(choices, x.shape))


def same_at_edges(case: Case, found: Numpy, operands: list[Numpy]) -> None:
    """At edges the same numbers, infinities and NaN as the NumPy oracle's."""
    with np.errstate(all="ignore"):
        wanted = expected(case, operands)
        if not is_float_dtype(wanted.dtype):
            np.testing.assert_array_equal(found, wanted)
            return
        tolerance = TOLERANCE[scalar_of(case.result)]
        np.testing.assert_allclose(widened(found), widened(wanted), rtol=tolerance, atol=tolerance * 1e-30)
