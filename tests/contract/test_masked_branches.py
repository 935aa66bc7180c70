"""Masked-out branches do not poison: what was not chosen adds nothing to a gradient, not even NaN."""

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
