"""Second derivatives of functions of a number keep their digits, however small the number is."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl

Numbers = np.ndarray[Any, np.dtype[np.float64]]

SECOND: dict[str, Callable[[Numbers], Numbers]] = {
    "sin": lambda x: -np.sin(x),
    "tan": lambda x: 2.0 * np.tan(x) / np.cos(x) ** 2,
    "asin": lambda x: x / ((1.0 - x) * (1.0 + x)) ** 1.5,
    "acos": lambda x: -x / ((1.0 - x) * (1.0 + x)) ** 1.5,
    "atan": lambda x: -2.0 * x / (1.0 + x * x) ** 2,
    "sinh": np.sinh,
    "asinh": lambda x: -x / (1.0 + x * x) ** 1.5,
    "atanh": lambda x: 2.0 * x / ((1.0 - x) * (1.0 + x)) ** 2,
    "expm1": np.exp,
    "log1p": lambda x: -1.0 / (1.0 + x) ** 2,
    "tanh": lambda x: -2.0 * np.tanh(x) / np.cosh(x) ** 2,
    "erf": lambda x: -4.0 / np.sqrt(np.pi) * x * np.exp(-x * x),
}


@pytest.mark.parametrize("name", SECOND)
@pytest.mark.parametrize("dtype", [kl.float32, kl.float64])
def test_a_second_derivative_keeps_its_digits(name: str, dtype: Any) -> None:
    sizes = np.array([1e-9, 3e-8, 1e-5, 0.005, 0.3, 0.499, 0.5, 0.501, 0.9])
    x = kl.array(np.concatenate([sizes, -sizes]), dtype=dtype)
    ones = kl.ones_like(x)

    def slope(x: Any) -> Any:
        return kl.func.vjp(lambda x: kl.map(getattr(kl, name), x), x)[1](ones)[0]

    expected = SECOND[name](x.numpy().astype(np.float64))
    rtol = 2e-6 if dtype is kl.float32 else 4e-15
    np.testing.assert_allclose(kl.func.jvp(slope, (x,), (ones,))[1].numpy(), expected, rtol=rtol)
    np.testing.assert_allclose(kl.func.vjp(slope, x)[1](ones)[0].numpy(), expected, rtol=rtol)


def test_the_slopes_of_a_smooth_step_keep_their_digits_at_its_upper_end() -> None:
    upper = np.float32(1.2)
    given = kl.array([-0.7]), kl.array([upper]), kl.array([upper - np.float32(2.0**-20)])
    slopes = kl.func.grad(lambda a, b, x: kl.map(kl.smoothstep, a, b, x), argnums=(0, 1, 2))(*given)
    a, b, x = (one.numpy().astype(np.float64)[0] for one in given)
    t, rest = (x - a) / (b - a), (b - x) / (b - a)
    slope = 6.0 * t * rest / (b - a)
    found = [one.numpy()[0] for one in slopes]
    np.testing.assert_allclose(found, [-slope * rest, -slope * t, slope], rtol=2e-6)


@pytest.mark.parametrize("text", ["log1p(exp(x))", "log(1.0 + exp(x))", "log(exp(x) + exp(-x))"])
def test_second_derivatives_of_quotients_need_no_square_out_of_range(text: str) -> None:
    """At 60 the slope is 1 and no longer changes; the square of exp(60) is no float32."""
    kernel = kl.compile(
        f"def k(z: array[float], y: array[float]):\n    x = z[tid()]\n    y[tid()] = {text}\n"
    )["k"]

    def function(x: Any) -> Any:
        y = kl.zeros_like(x)
        kernel[1](x, y)
        return y

    x = kl.array([60.0])
    for outer in (kl.func.jacfwd, kl.func.jacrev):
        for inner in (kl.func.jacfwd, kl.func.jacrev):
            assert inner(function)(x).numpy() == 1.0
            assert abs(outer(inner(function))(x).numpy().item()) < 1e-6


@pytest.mark.parametrize("text", ["p[i] * (-1.3e20 / (r * r * r))", "-1.3e20 * p[i] / (r * r * r)"])
def test_slopes_of_quotients_in_large_units_need_no_square_out_of_range(text: str) -> None:
    """The change of gravity at the distance of the earth from the sun, in metres."""
    lines = ["def k(p: array[vec3], a: array[vec3]):", "i = tid()", "r = length(p[i])", f"a[i] = {text}"]
    kernel = kl.compile("\n    ".join(lines) + "\n")["k"]

    def pull(p: Any) -> Any:
        a = kl.zeros_like(p)
        kernel[1](p, a)
        return a

    at = np.array([1.5e11, 0.2e11, 0.0])
    r = np.linalg.norm(at)
    expected = -1.3e20 * (np.eye(3) / r**3 - 3.0 * np.outer(at, at) / r**5)
    p = kl.array([at.astype(np.float32)], dtype=kl.vec3)
    for mode in (kl.func.jacfwd, kl.func.jacrev):
        np.testing.assert_allclose(mode(pull)(p).numpy().reshape(3, 3), expected, rtol=1e-5)
