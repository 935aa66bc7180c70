"""What the host takes at one level of nested transforms, and uses at another one: warned of.

The number or the array of NumPy's carries its origins into an inner transform, and out of one.  Each time the
derivative of `outer` lacks what came by the host.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl

F = kl.func
K = kl.compile("""
def scaled(x: array[float], gain: float, y: array[float]):
    i = tid()
    y[i] = x[i] * gain
""")

Use = Callable[[Any, Any], Any]
INSIDE: dict[str, Use] = {
    "grad": lambda x, s: F.grad(lambda a: (a * a * s).sum())(x),
    "hvp": lambda x, s: F.hvp(lambda a: (a * a * a * s).sum(), (x,), (x,))[1],
    "jvp": lambda x, s: F.jvp(lambda a: a * s, (x,), (x,))[1],
    "vjp": lambda x, s: F.vjp(lambda a: a * a * s, x)[1](x)[0],
    "jacfwd": lambda x, s: F.jacfwd(lambda a: a * a * s)(x) @ x,
    "vmap": lambda x, s: F.vmap(lambda a: a * s)(x),
    "vmap of grad": lambda x, s: F.vmap(F.grad(lambda a: a * a * s))(x),
    "an argument": lambda x, s: F.grad(lambda a, b: (a * a * b).sum())(x, s),
    "a captured number": lambda x, s: F.grad(lambda a: kl.map(lambda v: v * v * s, a).sum())(x),
    "a launch": lambda x, s: F.grad(lambda a: (a * scaled(a, s)).sum())(x),
    "an array": lambda x, s: F.grad(lambda a: (a * a * kl.array([s, 1.0, s])).sum())(x),
    "an assignment": lambda x, s: F.grad(lambda a: (a * a * kl.zeros(3).fill_(s)).sum())(x),
}


def scaled(x: Any, gain: Any) -> Any:
    y = kl.zeros(3)
    K["scaled"][3](x, gain, y)
    return y


def kept(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The values that a function, differentiated, has taken of its argument."""

    def outer(x: Any) -> Any:
        box = []

        def function(a: Any) -> Any:
            box.append(inner(a))
            return (a * a).sum()

        F.grad(function)(x * x)
        return box[0]

    return outer


OUT_OF: dict[str, Callable[[Any], Any]] = {
    "a number": lambda x: x * kept(lambda a: a[0])(x),
    "an array": lambda x: x * kl.array(np.sin(kept(lambda a: a.numpy())(x))),
    "what stands beside": lambda x: x * F.grad(lambda a: (a.sum(), a.sum().item()), has_aux=True)(x)[1],
}


def told(outer: Callable[[Any], Any], way: Callable[..., Any]) -> str:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        way(lambda x: outer(x).sum())(kl.array([1.0, 2.0, 3.0]))
    return "\n".join(str(warning.message) for warning in seen)


@pytest.mark.parametrize("way", [F.grad, F.jacfwd])
@pytest.mark.parametrize("name", INSIDE)
def test_a_number_that_is_used_further_inside_is_told(name: str, way: Callable[..., Any]) -> None:
    assert "no gradient flows" in told(lambda x: INSIDE[name](x, (x * x)[0]), way)


@pytest.mark.parametrize("name", OUT_OF)
def test_values_that_leave_an_inner_transform_are_told(name: str) -> None:
    assert "no gradient flows" in told(OUT_OF[name], F.grad)


@pytest.mark.parametrize("name", [name for name in INSIDE if name != "an array"])  # told by its order
def test_numbers_that_have_no_derivative_are_silent(name: str) -> None:
    assert told(lambda x: INSIDE[name](x, 2.0 if (x * x)[0] > 0.0 else 3.0), F.grad) == ""
    two = kl.array([2.0])
    assert told(lambda x: INSIDE[name](x, two[0]), F.grad) == ""
