"""Masked-out branches do not poison: what was not chosen adds nothing to a gradient, not even NaN."""

from collections.abc import Callable

import numpy as np
import pytest

import kernelab as kl
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import vjp
from tests.support.derivatives import active_names, gradients, pushed
from tests.support.lowering import lowered

MASKED = {
    "where(x[i] > 0.0, sqrt(x[i]), 0.0)": 0.25,
    "where(x[i] > 0.0, log(x[i]), x[i])": 0.25,
    "where(x[i] > 0.0, 1.0 / x[i], 0.0)": -0.0625,
    "where(x[i] > 0.0, x[i] ** 0.5, 0.0)": 0.25,
    "where(x[i] > 0.0, x[i] * log(x[i]), 0.0)": 1.0 + np.log(4.0),
    "where(x[i] > 0.0, sqrt(x[i]) / x[i], 0.0)": -0.0625,
    "where(x[i] > 0.0, length(vec2d(x[i], 0.0)) / x[i], 0.0)": 0.0,
    "sqrt(x[i]) if x[i] > 0.0 else float64(0.0)": 0.25,
}
AT = np.array([0.0, 4.0])


@pytest.mark.parametrize(("expression", "slope"), MASKED.items())
def test_a_branch_that_was_not_chosen_has_the_gradient_zero(expression: str, slope: float) -> None:
    text = f"def k(x: array[float64], y: array[float64]):\n    i = tid()\n    y[i] = {expression}\n"
    x = kl.array(AT, dtype=kl.float64, requires_grad=True)
    y = kl.zeros(2, kl.float64, requires_grad=True)
    kernel = kl.compile(text)["k"]
    with kl.Tape() as tape:
        kernel[2](x, y)
    tape.backward(grads={y: np.ones(2)})
    assert x.grad is not None
    found = x.grad.list()
    assert found[1] == pytest.approx(slope)
    if "log(x[i]), x[i]" in expression:
        assert found[0] == 1.0
    else:
        assert found[0] == 0.0


@pytest.mark.parametrize("expression", [text for text in MASKED if text.startswith("where")])
def test_the_tangent_of_a_branch_that_was_not_chosen_is_zero(expression: str) -> None:
    function = lowered(
        f"def k(x: array[float64], y: array[float64]):\n    i = tid()\n    y[i] = {expression}\n", "k"
    )
    arguments = {"x": AT, "y": np.zeros(2)}
    moved = pushed(function, (2,), arguments, {"x": np.ones(2), "y": np.zeros(2)})
    pulled = gradients(vjp(function, ["x", "y"]), (2,), arguments, {"x": np.zeros(2), "y": np.ones(2)})
    np.testing.assert_allclose(moved["y"], pulled["x"], rtol=1e-12)
    assert np.isfinite(moved["y"]).all()


@pytest.mark.parametrize("expression", [text for text in MASKED if text.startswith("where")])
def test_neither_is_there_a_nan_at_second_order(expression: str) -> None:
    function = lowered(
        f"def k(x: array[float64], y: array[float64]):\n    i = tid()\n    y[i] = {expression}\n", "k"
    )
    tangent = jvp(function, ["x", "y"])
    arguments = {"x": AT, "y": np.zeros(2), "x_dot": np.ones(2), "y_dot": np.zeros(2)}
    seeds = {name: np.zeros(2) for name in active_names(tangent)} | {"y_dot": np.ones(2)}
    pulled = gradients(vjp(tangent, active_names(tangent)), (2,), arguments, seeds)
    assert np.isfinite(pulled["x"]).all()
    assert pulled["x"][0] == 0.0


@pytest.mark.parametrize("kind", ["min", "max"])
@pytest.mark.parametrize("value", ["sin(log(x[i]))", "x[i] / x[i] * x[i]", "sqrt(x[i] - 1.0)"])
def test_a_nan_that_loses_an_atomic_extremum_has_the_gradient_zero(kind: str, value: str) -> None:
    text = f"def k(x: array[float64], y: array[float64]):\n    i = tid()\n    atomic_{kind}(y, i, {value})\n"
    function = lowered(text, "k")
    arguments = {"x": np.zeros(1), "y": np.zeros(1)}
    pulled = gradients(vjp(function, ["x", "y"]), (1,), arguments, {"x": np.zeros(1), "y": np.ones(1)})
    moved = pushed(function, (1,), arguments, {"x": np.ones(1), "y": np.ones(1)})
    assert pulled["x"][0] == 0.0
    assert moved["y"][0] == pulled["y"][0] == 1.0


def test_a_mask_further_on_protects_a_whole_chain_and_a_loop() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    i = tid()
    a = sqrt(x[i])
    s = float64(0.0)
    for j in range(3):
        s = s + a / x[i] * log(x[i])
    y[i] = where(x[i] > 0.0, s * a, 0.0)
"""
    function = lowered(text, "k")
    arguments, seeds = {"x": AT, "y": np.zeros(2)}, {"x": np.zeros(2), "y": np.ones(2)}
    pulled = gradients(vjp(function, ["x", "y"]), (2,), arguments, seeds)
    assert pulled["x"].tolist() == pytest.approx([0.0, 3.0 / 4.0])


def test_a_true_infinity_is_not_hidden() -> None:
    text = "def k(x: array[float64], y: array[float64]):\n    i = tid()\n    y[i] = sqrt(x[i])\n"
    function = lowered(text, "k")
    arguments, seeds = {"x": AT, "y": np.zeros(2)}, {"x": np.zeros(2), "y": np.ones(2)}
    assert gradients(vjp(function, ["x", "y"]), (2,), arguments, seeds)["x"][0] == np.inf


PRODUCTS = {
    "scaled": "((1.0 / x) * vec2d(x, 1.0)).x",
    "scaled from the right": "(vec2d(x, 1.0) * (1.0 / x)).y",
    "dot": "dot(vec2d(1.0 / x, 1.0), vec2d(x, 1.0))",
    "cross": "cross(vec3d(1.0 / x, 1.0, x), vec3d(x, x, 1.0)).x",
    "outer": "outer(vec2d(1.0 / x, 1.0), vec2d(x, 1.0))[0, 0]",
    "matrix and vector": "(mat22d(1.0 / x, x, 1.0, x) * vec2d(x, 1.0)).x",
    "vector and matrix": "(vec2d(x, 1.0) * mat22d(1.0 / x, x, 1.0, x)).x",
    "matrices": "(mat22d(1.0 / x, x, 1.0, x) * mat22d(x, 1.0 / x, x, x))[0, 0]",
    "ddot": "ddot(mat22d(1.0 / x, x, 1.0, x), mat22d(x, 1.0, x, x))",
    "by component": "cw_mul(vec2d(1.0 / x, x), vec2d(x, x)).x",
    "quaternions": "(quatd(1.0 / x, x, x, 1.0) * quatd(x, x, 1.0, x)).x",
    "determinant": "determinant(mat22d(1.0 / x, x, 1.0, x))",
    "square": "length_sq(vec2d(1.0 / x, x))",
    "length": "length(vec2d(1.0 / x, x))",
    "solved": "(inverse(mat22d(x, 0.0, 0.0, x)) * vec2d(x, 1.0)).x",
    "inverse": "inverse(mat22d(x, 0.0, 0.0, x))[0, 0]",
    "between vectors": "lerp(vec2d(1.0 / x, x), vec2d(x, 1.0), x).x",
    "between matrices": "lerp(mat22d(1.0 / x, x, 1.0, x), mat22d(x, x, 1.0, x), x)[0, 0]",
    "to infinity": "lerp(vec2d(x, 1.0), vec2d(1.0, x), 1.0 / x).x",
}
UNUSED = {
    "a branch": "r = x * log(x)\nif x > 0.25:\n    y[i] = r\nelse:\n    y[i] = 3.0 * x",
    "a value set anew": "r = sin(x) / x * cos(x)\nif x <= 0.25:\n    r = 3.0 * x\ny[i] = r",
    "an early return": "r = (1.0 / x) * x\ny[i] = 3.0 * x\nif x <= 0.25:\n    return\ny[i] = r",
    "another component": "v = vec2d(x * log(x), 3.0 * x)\ny[i] = v.y",
    "a store over it": "y[i] = x * log(x)\ny[i] = 3.0 * x",
    "a loop that does not run": """
r = x * log(x)
s = 3.0 * x
t = x
while t > 0.25:
    s = s + r
    t = t - 1.0
y[i] = s
""",
    "a break": """
r = x * log(x)
for j in range(3):
    y[i] = 3.0 * x
    if x <= 0.25:
        break
    y[i] = r * r
""",
    "a part of a vector": "v = (1.0 / x) * vec2d(x, x)\ny[i] = v.x\nif x <= 0.25:\n    y[i] = 3.0 * x",
}
BODIES = UNUSED | {name: f"y[i] = where(x > 0.25, {text}, 3.0 * x)" for name, text in PRODUCTS.items()}


def function_of(body: str) -> Callable[[kl.array], kl.array]:
    lines = [
        "def k(x_: array[float64], y: array[float64]):",
        "i = tid()",
        "x = x_[i]",
        *body.strip().split("\n"),
    ]
    kernel = kl.compile("\n    ".join(lines))["k"]

    def function(x: kl.array) -> kl.array:
        y = kl.zeros_like(x)
        kernel[x.size](x, y)
        return y

    return function


@pytest.mark.parametrize("name", BODIES)
def test_what_nothing_uses_adds_nothing_to_a_derivative_of_any_order(name: str) -> None:
    """At 0 the result is 3 * x, also nearby, and what is computed beside it is infinite or NaN."""
    function, x = function_of(BODIES[name]), kl.zeros(1, kl.float64)
    modes = kl.func.jacfwd, kl.func.jacrev
    for mode in modes:
        assert mode(function)(x).numpy() == 3.0
        for outer in modes:
            assert outer(mode(function))(x).numpy() == 0.0


@pytest.mark.parametrize("name", BODIES)
def test_what_is_used_keeps_its_second_derivative(name: str) -> None:
    function, x = function_of(BODIES[name]), kl.array([0.7], dtype=kl.float64)
    step = 1e-5
    slopes = [kl.func.jacfwd(function)(kl.array([0.7 + d], dtype=kl.float64)).numpy() for d in (-step, step)]
    curvature = (slopes[1] - slopes[0]).item() / (2.0 * step)
    for outer in (kl.func.jacfwd, kl.func.jacrev):
        for inner in (kl.func.jacfwd, kl.func.jacrev):
            assert outer(inner(function))(x).numpy().item() == pytest.approx(curvature, rel=1e-6, abs=1e-6)


def test_the_slope_of_the_logistic_function_is_zero_where_its_exponential_overflows() -> None:
    function, x = function_of("y[i] = 1.0 / (1.0 + exp(-x))"), kl.array([-800.0, 2.0], dtype=kl.float64)
    (slopes,) = kl.func.vjp(function, x)[1](kl.ones_like(x))
    at = 1.0 / (1.0 + np.exp(-2.0))
    np.testing.assert_allclose(slopes.numpy(), [0.0, at * (1.0 - at)])


def test_a_logit_of_minus_infinity_has_no_share_in_a_softmax() -> None:
    text = """
def attend(s: array[float64], t: array[float64], v: array[float64], y: array[float64]):
    z = float64(0.0)
    a = float64(0.0)
    for j in range(s.shape[0]):
        e = exp(s[j] * t[0])
        z += e
        a += e * v[j]
    y[0] = a / z
"""
    kernel = kl.compile(text)["attend"]
    v = kl.array([1.0, 2.0, 3.0], dtype=kl.float64)

    def attended(s: kl.array, t: kl.array) -> kl.array:
        y = kl.zeros(1, kl.float64)
        kernel[1](s, t, v, y)
        return y

    t = kl.array([1.5], dtype=kl.float64)
    masked = kl.func.grad(attended, argnums=(0, 1))(kl.array([0.3, 0.7, -np.inf], dtype=kl.float64), t)
    left_out = kl.func.grad(attended, argnums=(0, 1))(kl.array([0.3, 0.7], dtype=kl.float64), t)
    np.testing.assert_allclose(masked[0].numpy(), [*left_out[0].numpy(), 0.0])
    np.testing.assert_allclose(masked[1].numpy(), left_out[1].numpy())
