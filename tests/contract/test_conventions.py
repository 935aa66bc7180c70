"""Where mathematics leaves a choice, the convention holds and stands in the docs of the operation."""

import math
from fractions import Fraction

import numpy as np
import pytest

from kernelab.builtins.reference import reference
from kernelab.lang import ops
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import vjp
from tests.support.derivatives import gradients, run
from tests.support.lowering import lowered

REFERENCE = reference()

KINKS = {
    "abs(x[i])": (0.0, 0.0),
    "max(x[i], 0.0)": (0.0, 1.0),
    "max(0.0, x[i])": (0.0, 0.0),
    "min(x[i], 0.0)": (0.0, 1.0),
    "min(0.0, x[i])": (0.0, 0.0),
    "clamp(x[i], 0.0, 1.0)": (0.0, 1.0),
    "floor(x[i])": (2.0, 0.0),
    "round(x[i])": (0.5, 0.0),
    "sign(x[i])": (0.0, 0.0),
    "length(vec2d(x[i], 0.0))": (0.0, 0.0),
    "normalize(vec2d(x[i], 0.0)).x": (0.0, 0.0),
    "x[i] ** 2.0": (0.0, 0.0),
    "x[i] ** 1.0": (0.0, 1.0),
}


def slopes(expression: str, at: float) -> tuple[float, float]:
    """The derivative of an expression of `x[i]`, by adjoint and by tangent."""
    function = lowered(
        f"def k(x: array[float64], y: array[float64]):\n    i = tid()\n    y[i] = {expression}\n", "k"
    )
    arguments = {"x": np.array([at]), "y": np.zeros(1)}
    pulled = gradients(vjp(function, ["x", "y"]), (1,), arguments, {"x": np.zeros(1), "y": np.ones(1)})
    dots = {"x_dot": np.ones(1), "y_dot": np.zeros(1)}
    moved = run(jvp(function, ["x", "y"]), (1,), arguments | dots)
    return float(pulled["x"][0]), float(moved["y_dot"][0])


@pytest.mark.parametrize(("expression", "convention"), KINKS.items())
def test_both_modes_take_the_same_side_of_a_kink(expression: str, convention: tuple[float, float]) -> None:
    at, expected = convention
    assert slopes(expression, at) == (expected, expected)


@pytest.mark.parametrize("remainder", ["fmod({}, x[i])", "({}) % x[i]"])
@pytest.mark.parametrize(
    ("dividend", "divisor"), [(1.0, 0.1), (0.9, 0.1), (12.0, 0.1), (-1.0, 0.1), (1.0, -0.1)]
)
def test_the_slope_in_a_divisor_is_the_quotient_that_ran(
    remainder: str, dividend: float, divisor: float
) -> None:
    """1.0 / 0.1 rounds up to 10, and the remainder is 1.0 - 9 * 0.1."""
    exact = Fraction(dividend) / Fraction(divisor)
    quotient = math.trunc(exact) if "fmod" in remainder else math.floor(exact)
    assert slopes(remainder.format(dividend), divisor) == (-quotient, -quotient)


WORDS = "sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp expm1 log log1p log10 sqrt cbrt"
WORDS += " erf erfc erfinv erfcinv abs floor"
FORMS = [f"{word}({{}})" for word in WORDS.split()]
FORMS += [
    "{0} * {0}",
    "{} ** 0.5",
    "{} ** 2.0",
    "1.0 / {}",
    "2.0 ** {}",
    "max({}, 0.0)",
    "clamp({}, 0.0, 1.0)",
]
POINTS = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, np.pi / 2, -0.3, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize("step", [1, 5])
def test_the_modes_differ_at_special_points_as_0_and_nan_at_most(step: int) -> None:
    """Where an infinite slope meets one of 0 a mode may make 0 (docs/wrong-gradients.md), never a number."""
    pairs = [(outer, FORMS[(k * step + 12) % len(FORMS)]) for k, outer in enumerate(FORMS)]
    lines = [
        f"    v{k} = {inner.format(f'z[i, {k}]')}\n    y[i, {k}] = {outer.format(f'v{k}')}\n"
        for k, (outer, inner) in enumerate(pairs)
    ]
    header = "def k(z: array2d[float64], y: array2d[float64]):\n    i = tid()\n"
    function = lowered(header + "".join(lines), "k")
    shape = (len(POINTS), len(pairs))
    arguments = {"z": np.repeat(POINTS[:, None], len(pairs), 1), "y": np.zeros(shape)}
    seeds = {"z": np.zeros(shape), "y": np.ones(shape)}
    with np.errstate(all="ignore"):
        pulled = gradients(vjp(function, ["z", "y"]), shape[:1], arguments, seeds)["z"]
        dots = {"z_dot": np.ones(shape), "y_dot": np.zeros(shape)}
        moved = run(jvp(function, ["z", "y"]), shape[:1], arguments | dots)["y_dot"]
        agree = np.isclose(pulled, moved, 1e-9, 1e-12, equal_nan=True)
    masked = (np.isnan(pulled) & (moved == 0)) | (np.isnan(moved) & (pulled == 0))
    wrong = [(pairs[k], POINTS[i], pulled[i, k], moved[i, k]) for i, k in np.argwhere(~(agree | masked))]
    assert not wrong
    assert agree.mean() > 0.9


SAID = {
    "max": "the first, which has the derivative",
    "min": "the first, which has the derivative",
    "clamp": "on a bound the derivative goes to ``x``",
    "abs": "derivative 0 at 0",
    "length": "the zero vector has derivative 0",
    "normalize": "the zero vector stays 0 and has derivative 0",
    "sqrt": "derivative infinite at 0",
    "pow": "``x ** 0`` is 1 and has derivative 0",
    "atan2": "0 at the origin, where there is no derivative",
}


@pytest.mark.parametrize(("name", "convention"), SAID.items())
def test_the_convention_stands_in_the_docs(name: str, convention: str) -> None:
    assert any(convention in op.doc for op in ops.overloads(name))
    assert convention in REFERENCE
