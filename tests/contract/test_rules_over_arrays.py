"""Derivatives that users write for functions over arrays: refused where two of the arrays share memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import KernelTypeError

TEXT = """
@func_native("out[i] = x[i] * x[i];", "adj_x[i] += 2.0 * x[i] * adj_out[i];")
def native(x: array[float64], i: int, out: array[float64]): ...

def plain(x: array[float64], i: int, out: array[float64]):
    out[i] = x[i] * x[i]

def squared(x: array[float64], i: int, out: array[float64]):
    out[i] = x[i] * x[i]

@func_grad(squared)
def adj_squared(x: array[float64], i: int, out: array[float64]):
    adjoint[x][i] += 2.0 * x[i] * adjoint[out][i]
    adjoint[out][i] = 0.0

def moved(x: array[float64], i: int, out: array[float64]):
    out[i] = x[i] * x[i]

@func_jvp(moved)
def moved_dot(x: array[float64], i: int, out: array[float64], x_dot: array[float64], out_dot: array[float64]):
    out_dot[i] = 2.0 * x[i] * x_dot[i]

def through(x: array[float64], i: int, out: array[float64]):
    {name}(x, i, out)

def apart(x: array[float64], out: array[float64]):
    i = tid()
    {name}(x, i, out)

def inside(x: array[float64]):
    i = tid()
    {name}(x, i, x)

def deeper(x: array[float64]):
    i = tid()
    through(x, i, x)
"""
PART = """
def part(x: array[float64]):
    i = tid()
    {name}(x[0:3], i, x[1:4])
"""
X = np.array([0.7, -1.2, 1.9, 0.4])


def launches(name: str) -> dict[str, Callable[[Any], None]]:
    text = TEXT if name == "native" else TEXT + PART  # C++ takes whole arrays
    found: dict[str, Any] = kl.compile(text.replace("{name}", name))
    ways: dict[str, Callable[[Any], None]] = {
        "one array": lambda x: found["apart"][4](x, x),
        "overlapping parts": lambda x: found["apart"][3](x[0:3], x[1:4]),
        "its address": lambda x: found["apart"][4](x, kl.array(ptr=x.ptr, dtype=kl.float64, shape=4)),
        "one in a call": lambda x: found["inside"][4](x),
        "one in a call of a call": lambda x: found["deeper"][4](x),
    }
    if name != "native":
        ways["parts in a call"] = lambda x: found["part"][3](x)
    return ways


def function(launch: Callable[[Any], None]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        y = kl.clone(x)
        launch(y)
        return y

    return run


def on_a_tape(f: Callable[[Any], Any]) -> Any:
    x = kl.array(X, dtype=kl.float64, requires_grad=True)
    with kl.Tape() as tape:
        y = f(x)
    tape.backward(grads={y: kl.ones_like(y)})
    return x.grad


def in_reverse(f: Callable[[Any], Any]) -> Any:
    return kl.func.vjp(f, kl.array(X, dtype=kl.float64))[1](kl.ones(4, dtype=kl.float64))[0]


def by_tangents(f: Callable[[Any], Any]) -> Any:
    return kl.func.jacfwd(f)(kl.array(X, dtype=kl.float64))


WAYS = list(launches("plain"))
NATIVE = list(launches("native"))
REVERSE = [*(("squared", way) for way in WAYS), *(("native", way) for way in NATIVE)]
pytestmark = pytest.mark.filterwarnings("ignore:.* was not compared with")


@pytest.mark.parametrize(("name", "way"), REVERSE)
@pytest.mark.parametrize("ask", [on_a_tape, in_reverse])
def test_reverse_mode_refuses_a_rule_whose_arrays_share_memory(name: str, ask: Any, way: str) -> None:
    with pytest.raises(KernelTypeError, match=f"{name} has a derivative of its own, and changes out"):
        ask(function(launches(name)[way]))


@pytest.mark.parametrize("way", WAYS)
def test_forward_mode_refuses_a_rule_whose_arrays_share_memory(way: str) -> None:
    with pytest.raises(KernelTypeError, match="moved has a derivative of its own, and changes out"):
        by_tangents(function(launches("moved")[way]))


@pytest.mark.parametrize(("name", "way"), [*REVERSE, *(("moved", way) for way in WAYS)])
def test_without_a_derivative_they_may(name: str, way: str) -> None:
    f = function(launches(name)[way])
    expected = function(launches("plain")[way])(kl.array(X, dtype=kl.float64)).list()
    assert f(kl.array(X, dtype=kl.float64)).list() == expected


@pytest.mark.parametrize("way", WAYS)
def test_a_mode_without_a_rule_follows_the_statements(way: str) -> None:
    plain, moved = (function(launches(name)[way]) for name in ("plain", "moved"))
    np.testing.assert_allclose(on_a_tape(moved).numpy(), on_a_tape(plain).numpy())
    np.testing.assert_allclose(by_tangents(plain).numpy().sum(0), on_a_tape(plain).numpy())


@pytest.mark.parametrize(
    ("name", "ask"), [("native", on_a_tape), ("squared", in_reverse), ("moved", by_tangents)]
)
def test_arrays_apart_are_fine(name: str, ask: Any) -> None:
    apart = kl.compile(TEXT.replace("{name}", name))["apart"]

    def f(x: Any) -> Any:
        y = kl.zeros_like(x, requires_grad=True)
        apart[4](x, y)
        return y

    found = ask(f).numpy()
    np.testing.assert_allclose(found.diagonal() if found.ndim == 2 else found, 2 * X)


@pytest.mark.parametrize(
    "call",
    [
        "x, w",
        "x[1:], w",
        "x[::2], w[::2]",
        "x[0:4], x[4:8]",
        "x[::-1], w[2:6]",
        "x[n:], w[n::n]",
        "m[0], m[1]",
    ],
)
def test_a_rule_is_compared_whatever_views_its_function_is_given(call: str) -> None:
    text = f"""
def product(a: array[float], b: array[float], i: int):
    return a[i] * b[i]

@func_grad(product)
def twice(a: array[float], b: array[float], i: int, r: float):
    adjoint[a][i] += 2.0 * b[i] * r
    adjoint[b][i] += 2.0 * a[i] * r

def run(x: array[float], w: array[float], m: array2d[float], n: int, y: array[float]):
    i = tid()
    y[i] = product({call}, i)
"""
    run = kl.compile(text)["run"]
    x, w, m = (kl.ones(shape, dtype=float, requires_grad=True) for shape in (8, 8, (3, 3)))
    y = kl.zeros(2, requires_grad=True)

    def pulled() -> None:
        with kl.Tape() as tape:
            run[2](x, w, m, 1, y)
        tape.backward(grads={y: kl.ones(2)})

    with pytest.warns(kl.KernelWarning, match="twice gives .* where differences of product give"):
        pulled()
