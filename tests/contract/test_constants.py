"""Constants of kernels: a launch tells of one that has changed, backward of one that the tape computed."""

import math
import warnings
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelab as kl

TEXT = """
def gained(v: float):
    return gain * v

def plain(x: array[float]):
    x[0] = gain * x[0]

def calling(x: array[float]):
    x[0] = gained(x[0])

def attribute(x: array[float]):
    x[0] = x[0] * cfg.gain

def known(x: array[float]):
    x[0] = x[0] * static(2.0 * gain)

def vector(x: array[float]):
    x[0] = x[0] * length(axis)

def typed(x: array[float]):
    x[0] = float(number(x[0]))

def renamed(x: array[float]):
    x[0] = wave(x[0])

def library(x: array[float]):
    x[0] = x[0] * math.pi * pi * sqrt(4.0)

def nothing(x: array[float]):
    x[0] = 1.0
"""
CHANGES: dict[str, dict[str, Any]] = {
    "plain": {"gain": 3.0},
    "calling": {"gain": 3.0},
    "attribute": {"cfg": SimpleNamespace(gain=3.0)},
    "known": {"gain": 3.0},
    "vector": {"axis": np.ones(3, np.float32)},
}
WORDS: dict[str, dict[str, Any]] = {"typed": {"number": kl.float16}, "renamed": {"wave": kl.cos}}
"""Types and operations under names of the user's own."""


def names() -> dict[str, Any]:
    cfg = SimpleNamespace(gain=2.0)
    words = {"number": kl.float64, "wave": kl.sin, "sqrt": kl.sqrt}
    return {"gain": 2.0, "cfg": cfg, "axis": np.zeros(3, np.float32), "math": math, "pi": math.pi, **words}


def launch(kernel: kl.Kernel, x: kl.array | None = None) -> None:
    kernel[1](kl.ones(1, dtype=float) if x is None else x)


@pytest.mark.parametrize("name", [*CHANGES, *WORDS])
def test_a_changed_constant_is_told_once_at_a_launch(name: str) -> None:
    around = names()
    kernel = kl.compile(TEXT, around)[name]
    launch(kernel)
    around |= (CHANGES | WORDS)[name]
    with pytest.warns(kl.KernelWarning, match=f"`{name}` was compiled with") as caught:
        launch(kernel)
    launch(kernel)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_a_change_before_the_first_launch_is_told_too() -> None:
    around = names()
    kernel = kl.compile(TEXT, around)["plain"]
    around["gain"] = 3.0
    with pytest.warns(kl.KernelWarning, match=r"gain = 2\.0; gain is 3\.0 now"):
        launch(kernel)


def test_an_attribute_that_is_assigned_is_told() -> None:
    around = names()
    kernel = kl.compile(TEXT, around)["attribute"]
    around["cfg"].gain = 3.0
    with pytest.warns(kl.KernelWarning, match=r"cfg\.gain = 2\.0; cfg\.gain is 3\.0 now"):
        launch(kernel)


@pytest.mark.parametrize("name", [*CHANGES, *WORDS, "library", "nothing"])
def test_equal_values_and_names_that_are_gone_are_no_change(name: str) -> None:
    around = names()
    kernel = kl.compile(TEXT, around)[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        around |= {**names(), "gain": float("2.0"), "cfg": SimpleNamespace(gain=float("2.0"))}
        launch(kernel)
        around.clear()
        launch(kernel)


def test_only_what_may_change_is_looked_at() -> None:
    kernels = kl.compile(TEXT, names())
    assert [name for name in ("library", "nothing") if kernels[name].plan.constants is not None] == []
    assert all(kernels[name].plan.constants is not None for name in CHANGES | WORDS)


@pytest.mark.parametrize("name", ["vector", "NumPy"])
def test_an_array_that_is_changed_in_place_is_told(name: str) -> None:
    axis = kl.vec3(1.0, 2.0, 2.0) if name == "vector" else np.array([1.0, 2.0, 2.0], np.float32)
    for first in (False, True):
        kernel = kl.compile(TEXT, names() | {"axis": axis})["vector"]
        if first:
            launch(kernel)
        axis[0] += 1.0
        with pytest.warns(kl.KernelWarning, match="`vector` was compiled with axis = "):
            launch(kernel)
        launch(kernel)


def test_a_variable_of_the_function_around_is_told() -> None:
    gain, axis = 2.0, kl.vec3(1.0, 2.0, 2.0)

    @kl.func
    def gained(v: float) -> float:
        return gain * v

    @kl.kernel
    def direct(x: kl.array[float]) -> None:
        x[0] = x[0] * gain + axis[0]

    @kl.kernel
    def calling(x: kl.array[float]) -> None:
        x[0] = gained(x[0])

    for kernel in (direct, calling):
        launch(kernel)
    gain = 3.0
    for kernel in (direct, calling):
        with pytest.warns(kl.KernelWarning, match=rf"`{kernel.name}` was compiled with gain = 2\.0"):
            launch(kernel)
    axis[0] = 7.0
    with pytest.warns(kl.KernelWarning, match="`direct` was compiled with axis = "):
        launch(direct)


scale = 2.0


@kl.kernel
def decorated(x: kl.array[float]) -> None:
    x[0] = x[0] * scale


def test_a_decorated_kernel_looks_at_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    launch(decorated)
    monkeypatch.setitem(globals(), "scale", 5.0)
    with pytest.warns(kl.KernelWarning, match=r"`decorated` was compiled with scale = 2\.0"):
        launch(decorated)


# ---------------------------------------------------------------------------- functions that are defined anew

OF_FUNCTIONS = """
def twice(v: float):
    return 2.0 * f(v)

def applied(g, v: float):
    return g(v)

def called(x: array[float]):
    x[0] = f(x[0])

def within(x: array[float]):
    x[0] = twice(x[0])

def handed(x: array[float]):
    x[0] = applied(f, x[0])

def slope(x: array[float]):
    x[0] = grad(f)(x[0])

def member(x: array[float]):
    x[0] = lib.f(x[0])
"""


def square_times(factor: float) -> Any:
    @kl.func
    def f(v: float) -> float:
        return factor * v * v

    return f


@pytest.mark.parametrize("name", ["called", "within", "handed", "slope", "member"])
def test_a_function_that_is_defined_anew_is_told_once_at_a_launch(name: str) -> None:
    around: dict[str, Any] = {"f": square_times(1.0), "lib": ModuleType("lib")}
    around["lib"].f = square_times(1.0)
    kernel = kl.compile(OF_FUNCTIONS, around)[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        launch(kernel)
    around["f"] = around["lib"].f = square_times(9.0)
    told = rf"`{name}` was compiled with an earlier `(lib\.)?f`"
    with pytest.warns(kl.KernelWarning, match=told) as caught:
        launch(kernel)
    launch(kernel)
    assert len(caught) == 1


def test_a_derivative_of_a_function_tells_that_it_calls_an_earlier_one() -> None:
    around: dict[str, Any] = {"f": square_times(1.0), "lib": ModuleType("lib")}
    around["lib"].f = square_times(1.0)
    twice = kl.compile(OF_FUNCTIONS, around)["twice"]
    assert kl.func.grad(twice)(2.0) == 8.0
    around["f"] = square_times(9.0)
    with pytest.warns(kl.KernelWarning, match="compiled with an earlier `f`, and still calls that"):
        kl.func.grad(twice)(2.0)


def test_one_that_python_would_call_anew_is_told_where_its_derivative_is_that_of_the_earlier() -> None:
    f = square_times(1.0)

    @kl.func
    def twice(v: float) -> float:
        return 2.0 * f(v)

    assert (twice(2.0), kl.func.grad(twice)(2.0)) == (8.0, 8.0)
    f = square_times(9.0)
    assert twice(2.0) == 72.0
    with pytest.warns(kl.KernelWarning, match="compiled with an earlier `f`, and still calls that"):
        assert kl.func.grad(twice)(2.0) == 8.0


def test_a_function_for_other_types_is_no_change() -> None:
    @kl.func
    def f(v: float) -> float:
        return v * v

    @kl.kernel
    def called(x: kl.array[float]) -> None:
        x[0] = f(x[0])

    launch(called)

    @kl.func
    def f(v: kl.vec3) -> kl.vec3:  # noqa: F811 (a function for other types)
        return 2.0 * v

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        launch(called)


# ------------------------------------------------------------------- constants that the host took from arrays


def scaled_by(name: str, factor: Any) -> kl.Kernel:
    axis = np.array([0.0, 1.0, 0.0], np.float32) * factor
    return kl.compile(TEXT, {**names(), "gain": factor, "cfg": SimpleNamespace(gain=factor), "axis": axis})[
        name
    ]


def by_kernel(name: str) -> Callable[[Any, Any], Any]:
    def scaled(x: Any, factor: Any) -> Any:
        y = kl.clone(x)
        launch(scaled_by(name, factor), y)
        return y

    return scaled


def by_function(x: Any, factor: Any) -> Any:
    return kl.compile("def scaled(v: float):\n    return gain * v", {"gain": factor})["scaled"](x)


def by_map(x: Any, factor: Any) -> Any:
    return kl.map(lambda v: v * factor, x)


Gain = kl.compile("@struct\nclass Gain:\n    size: float")["Gain"]
IN_STRUCTS = """
@struct
class Spring:
    stiffness: float = gain
    axis: vec3 = axis

@struct
class Pair:
    first: Spring

def made(x: array[float]):
    x[0] = x[0] * Spring().stiffness * Pair().first.axis[0]

def given(x: array[float], spring: Spring):
    x[0] = x[0] * spring.stiffness

def nested(x: array[float], pair: Pair):
    x[0] = x[0] * pair.first.stiffness

def along(x: array[float], spring: Spring):
    x[0] = x[0] * spring.axis[0]

def listed(x: array[float], springs: array[Spring]):
    x[0] = x[0] * springs[0].stiffness

def found(x: array[float]):
    x[0] = x[0] * static(take())

def held(x: array[float]):
    x[0] = x[0] * static(keep()).size
"""
ARGUMENTS: dict[str, Callable[[Any], list[Any]]] = {
    "made": lambda cell: [],
    "given": lambda cell: [cell["Spring"]()],
    "nested": lambda cell: [cell["Pair"]()],
    "along": lambda cell: [cell["Spring"]().copy()],
    "listed": lambda cell: [kl.array([cell["Spring"]()], dtype=cell["Spring"])],
    "found": lambda cell: [],
    "held": lambda cell: [],
}


def by_struct(name: str) -> Callable[[Any, Any], Any]:
    def scaled(x: Any, factor: Any) -> Any:
        y = kl.clone(x)
        around = {"gain": factor, "axis": kl.vec3(factor, 0.0, 0.0), "take": lambda: factor}
        cell = kl.compile(IN_STRUCTS, around | {"keep": lambda: Gain(factor)})
        cell[name][1](y, *ARGUMENTS[name](cell))
        return y

    return scaled


WAYS = [*map(by_kernel, CHANGES), by_function, by_map, *map(by_struct, ARGUMENTS)]


def squared(way: Callable[[Any, Any], Any], take: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: way(x, take(x * 1.0)).sum()


def number_of(x: Any) -> Any:
    return x.numpy()[0]


@pytest.mark.parametrize("way", WAYS)
def test_a_constant_that_a_tape_computed_is_reported(way: Callable[[Any, Any], Any]) -> None:
    x, tape = kl.ones(1, dtype=float, requires_grad=True), kl.Tape()
    with tape:
        loss = squared(way, number_of)(x)
    with pytest.warns(kl.KernelWarning, match="no gradient flows from .* back to"):
        tape.backward(loss)


@pytest.mark.parametrize("way", WAYS)
def test_so_is_one_that_a_function_computes_which_is_differentiated(way: Callable[[Any, Any], Any]) -> None:
    with pytest.warns(kl.KernelWarning, match="no gradient flows from .* back to"):
        kl.func.grad(squared(way, number_of))(kl.ones(1, dtype=float))


@pytest.mark.parametrize("way", WAYS)
def test_one_of_a_detached_clone_is_silent(way: Callable[[Any, Any], Any]) -> None:
    def detached(x: Any) -> Any:
        return number_of(kl.clone(x, requires_grad=False))

    x, tape = kl.ones(1, dtype=float, requires_grad=True), kl.Tape()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with tape:
            loss = squared(way, detached)(x)
        tape.backward(loss)
