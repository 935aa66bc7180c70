"""Where the cotangent of an operation is 0, what multiplies it still has a slope.

A masked product is 0 there, so that an infinite partial poisons nothing; its derivative is not.
"""

from collections.abc import Sequence
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
import pytest

import kernelab as kl

ENTRIES = ", ".join(f"x[{i}]" for i in range(9))
RESIDUALS = {
    "inverse": f"inverse(mat33d({ENTRIES}))[0, 1]",
    "inverse of 2 rows": "inverse(mat22d(x[0], x[1], x[2], x[3]))[1, 0]",
    "qr3": f"q[0, 1] * r[1, 2]\n    q, r = qr3(mat33d({ENTRIES}))",
    "normalize": "normalize(vec3d(x[0], x[1], x[2])).y",
    "quotients": "(vec2d(x[0], x[1]) / x[2]).x + cw_div(vec2d(x[3], x[4]), vec2d(x[5], x[6])).y",
    "roots and powers": "sqrt(x[0]) * x[1] ** x[2] / cbrt(x[3])",
}
AT = [2.0, 1.0, 0.3, 0.2, 3.0, 1.0, 0.5, 1.0, 4.0]
MODES = {"forward": kl.func.jacfwd, "reverse": kl.func.jacrev}


def kernel(expression: str) -> Any:
    """The kernel that stores an expression; a second line of it comes first."""
    value, _, before = expression.partition("\n    ")
    lines = ["def k(x: array[float64], y: array[float64]):", *([f"    {before}"] if before else [])]
    return kl.compile("\n".join([*lines, f"    y[0] = {value}"]))["k"]


def function(expression: str) -> Any:
    k = kernel(expression)

    def of(x: Any) -> Any:
        y = kl.zeros(1, dtype=kl.float64)
        kl.launch(k, dim=1, inputs=[x], outputs=[y])
        return y

    return of


def doubles(values: Sequence[float]) -> Any:
    return kl.array(values, dtype=kl.float64)


@pytest.mark.parametrize("expression", RESIDUALS.values(), ids=RESIDUALS)
@pytest.mark.parametrize("outer", MODES)
def test_the_hessian_of_a_square_is_not_lost_where_the_residual_is_0(expression: str, outer: str) -> None:
    model, x = function(expression), doubles(AT)
    target = kl.clone(model(x))

    def loss(x: Any) -> Any:
        residual = model(x) - target
        return residual * residual

    row = kl.func.jacfwd(model)(x).numpy().reshape(-1)
    hessian = MODES[outer](kl.func.grad(loss))(x).numpy().reshape(len(AT), len(AT))
    np.testing.assert_allclose(hessian, 2.0 * np.outer(row, row), rtol=1e-9, atol=1e-12)


THIRD = {
    "sqrt": ("x[0] * sqrt(x[1])", -0.25 * 2.0**-1.5),
    "log": ("x[0] * log(x[1])", -0.25),
    "quotient": ("x[0] * (1.0 / x[1])", 0.25),
    "power": ("x[0] * x[1] ** 1.5", 0.75 * 2.0**-0.5),
    "inverse": ("x[0] * inverse(mat22d(x[1], 0.0, 0.0, 1.0))[0, 0]", 0.25),
    "vector": ("x[0] * (vec2d(1.0, 1.0) / x[1]).y", 0.25),
}


@pytest.mark.parametrize(("expression", "wanted"), THIRD.values(), ids=THIRD)
@pytest.mark.parametrize("modes", [*product(MODES, repeat=3)], ids=" ".join)
def test_third_derivatives_pass_a_cotangent_of_0(
    expression: str, wanted: float, modes: Sequence[str]
) -> None:
    third = reduce(lambda f, mode: MODES[mode](f), modes, function(expression))
    found = third(doubles([0.0, 2.0])).numpy().reshape(2, 2, 2)
    assert [found[1, 1, 0], found[1, 0, 1], found[0, 1, 1]] == pytest.approx([wanted] * 3)


@pytest.mark.parametrize(
    ("at", "wanted"),
    [
        ((2.0, 0.0), (0.0, 0.5, 0.5, np.log(2.0) ** 2)),
        ((1.0, 0.0), (0.0, 1.0, 1.0, 0.0)),
        ((0.0, 2.0), (2.0, 0.0, 0.0, 0.0)),
    ],
)
@pytest.mark.parametrize("modes", [*product(MODES, repeat=2)], ids=" ".join)
def test_a_power_has_its_mixed_derivatives_where_the_exponent_is_0(
    at: Sequence[float], wanted: Sequence[float], modes: Sequence[str]
) -> None:
    second = reduce(lambda f, mode: MODES[mode](f), modes, function("x[0] ** x[1]"))
    assert second(doubles(at)).numpy().reshape(-1) == pytest.approx(wanted)


def test_the_inverse_of_a_singular_matrix_poisons_no_tangent_of_a_gradient() -> None:
    entries = "mat22d(x[0], x[1], x[2], x[3])"
    f = function(f"where(determinant({entries}) != 0.0, inverse({entries})[0, 0], x[0] * x[0])")
    for inner in MODES.values():
        hessian = kl.func.jacfwd(inner(f))(doubles([1.0, 2.0, 2.0, 4.0])).numpy().reshape(4, 4)
        np.testing.assert_array_equal(hessian, np.diag([2.0, 0.0, 0.0, 0.0]))
