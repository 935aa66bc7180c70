"""Jvp functions are compared with differences, and replays with results, when they are first needed."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.lang.types import is_differentiable

NUMBERS = """
def f(v: float, w: float):
    return v * v * w

@func_jvp(f{option})
def f_jvp(v: float, w: float, v_dot: float, w_dot: float):
    return {tangent}

def k(x: array[float], y: array[float]):
    i = tid()
    y[i] = f(x[i], 2.0)
"""
STRUCTS = """
@struct
class Body:
    mass: float
    place: vec3
    id: int

def f(b: Body, s: float):
    return s * b.mass * b.mass, s * b.place

@func_jvp(f{option})
def f_jvp(b: Body, s: float, b_dot: Body, s_dot: float):
    return {tangent}

def k(b: array[Body], x: array[float], y: array[float]):
    i = tid()
    m, p = f(b[i], x[i])
    y[i] = m + p[0]
"""
ARRAYS = """
def f(a: array[float], i: int, w: float):
    return a[i] * a[i] * w

@func_jvp(f{option})
def f_jvp(a: array[float], i: int, w: float, a_dot: array[float], w_dot: float):
    return {tangent}

def k(x: array[float], y: array[float]):
    i = tid()
    y[i] = f(x, i, 2.0)
"""
SLICES = ARRAYS.replace("f(x, i, 2.0)", "f(x[1:], i, 2.0)")
ROWS = ARRAYS.replace("x: array[float]", "x: array2d[float]").replace("f(x, i, 2.0)", "f(x[1], i, 2.0)")
STORED = """
def f(a: array[float], i: int, w: float):
    a[i] = w * w

@func_jvp(f{option})
def f_jvp(a: array[float], i: int, w: float, a_dot: array[float], w_dot: float):
    a_dot[i] = {tangent}

def k(x: array[float], y: array[float]):
    i = tid()
    f(y, i, x[i])
"""
OF_ARRAYS = "2.0 * a[i] * a_dot[i] * w + a[i] * a[i] * w_dot"
TANGENTS = {
    "numbers": (NUMBERS, "2.0 * v * w * v_dot + v * v * w_dot"),
    "structs": (
        STRUCTS,
        "2.0 * s * b.mass * b_dot.mass + s_dot * b.mass * b.mass, s_dot * b.place + s * b_dot.place",
    ),
    "arrays": (ARRAYS, OF_ARRAYS),
    "slices": (SLICES, OF_ARRAYS),
    "rows": (ROWS, OF_ARRAYS),
    "stored": (STORED, "2.0 * w * w_dot"),
}
MISTAKES: dict[str, Callable[[str], str]] = {
    "factor": lambda text: text.replace("2.0 *", "20.0 *"),
    "sign": lambda text: f"-{text}",
    "without the tangent": lambda text: (
        text.replace(" * v_dot", "")
        .replace(" * b_dot.mass", "")
        .replace(" * a_dot[i]", "")
        .replace("w * w_dot", "w")
    ),
}


def told(text: str, by: str = "jvp") -> list[str]:
    """What is said where the kernel of a text is first differentiated, and where it is again."""
    kernel: Any = kl.compile(text, label="Cell In[7]")["k"]
    names = [param.hint for param in kernel.primal.params if is_differentiable(param.type)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            getattr(kernel, by)(names)
    return [str(w.message) for w in caught if issubclass(w.category, kl.KernelWarning)]


@pytest.mark.parametrize("by", ["jvp", "vjp"])
@pytest.mark.parametrize("name", TANGENTS)
def test_a_right_jvp_function_is_silent(name: str, by: str) -> None:
    text, tangent = TANGENTS[name]
    assert told(text.format(option="", tangent=tangent), by) == []


@pytest.mark.parametrize("by", ["jvp", "vjp"])
@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("name", TANGENTS)
def test_a_wrong_jvp_function_is_warned_of_once_at_its_line(name: str, mistake: str, by: str) -> None:
    text, tangent = TANGENTS[name]
    wrong = MISTAKES[mistake](tangent)
    (message,) = told(text.format(option="", tangent=wrong), by)
    assert "f_jvp gives" in message
    assert "where differences of f give" in message
    line = text[: text.index("def f_jvp")].count("\n") + 1
    assert f"Cell In[7], line {line}" in message
    assert told(text.format(option=", check=False", tangent=wrong), by) == []


def test_a_warning_of_a_jvp_function_says_both_numbers_and_where() -> None:
    text = NUMBERS.replace("v * v * w", "7.0 * v")
    (message,) = told(text.format(option="", tangent="3.0 * v_dot"))
    assert "for v_dot = " in message
    assert ", at v = " in message


def test_a_wrong_jvp_function_is_told_where_a_transform_goes_forward() -> None:
    k: Any = kl.compile(NUMBERS.format(option="", tangent="20.0 * v * w * v_dot"))["k"]

    def run(x: Any) -> Any:
        y = kl.zeros(3, dtype=float)
        k[3](x, y)
        return y

    with pytest.warns(kl.KernelWarning, match="f_jvp gives"):
        kl.func.jacfwd(run)(kl.array(np.ones(3), dtype=float))


REPLAYED = """
def f(v: float, n: int):
    return v * v * float(n), n + 1

@func_replay(f{option})
def again(v: float, n: int):
    return {results}

def k(x: array[float], y: array[float]):
    i = tid()
    s, n = f(x[i], i)
    y[i] = s * s * float(n)
"""
VECTORS = """
def f(v: vec2):
    return 2.0 * v

@func_replay(f{option})
def again(v: vec2):
    return {results}

def k(x: array[vec2], y: array[float]):
    i = tid()
    y[i] = dot(f(x[i]), f(x[i]))
"""
KEPT = """
def f(kept: array[int], i: int, x: array[float]):
    n = kept[i] + 1
    kept[i] = n
    return n, x[i]

@func_replay(f{option})
def again(kept: array[int], i: int, x: array[float]):
    return {results}

def k(x: array[float], kept: array[int], y: array[float]):
    i = tid()
    n, v = f(kept, i, x)
    y[i] = float(n) * v * v
"""
REPLAYS = {
    "numbers": (
        REPLAYED,
        "v * v * float(n), n + 1",
        ["5.0 * v * v * float(n), n + 1", "v * v * float(n), n"],
    ),
    "vectors": (VECTORS, "v + v", ["vec2(2.0 * v[0], 2.0 * v[0])"]),
    "arrays, as the function leaves them": (
        KEPT,
        "kept[i], x[i]",
        ["kept[i] + 1, x[i]", "kept[i], 5.0 * x[i]", "kept[i], x[0]"],
    ),
    "slices": (KEPT.replace("f(kept, i, x)", "f(kept, i, x[1:])"), "kept[i], x[i]", ["kept[i], -x[i]"]),
}


@pytest.mark.parametrize("name", REPLAYS)
def test_a_replay_that_returns_something_else_is_warned_of_once_at_its_line(name: str) -> None:
    text, right, wrong = REPLAYS[name]
    assert told(text.format(option="", results=right), "vjp") == []
    for results in wrong:
        (message,) = told(text.format(option="", results=results), "vjp")
        assert "again returns" in message
        assert "where f returns" in message
        line = text[: text.index("def again")].count("\n") + 1
        assert f"Cell In[7], line {line}" in message
        assert told(text.format(option=", check=False", results=results), "vjp") == []


def test_each_wrong_rule_of_a_function_is_told() -> None:
    text = NUMBERS.format(option="", tangent="20.0 * v * w * v_dot")
    text += """
@func_grad(f)
def adj_f(v: float, w: float, adj_ret: float):
    adjoint[v] += v * w * adj_ret
    adjoint[w] += v * v * adj_ret

@func_replay(f)
def again(v: float, w: float):
    return v * w
"""
    found = told(text)
    assert len(found) == 3
    for words in ("adj_f gives", "f_jvp gives", "again returns"):
        assert sum(words in message for message in found) == 1


def test_a_grad_function_may_read_what_its_function_has_stored() -> None:
    text = """
def f(kept: array[float], i: int, x: float):
    kept[i] = exp(x)
    return exp(x)

@func_grad(f, check=True)
def adj_f(kept: array[float], i: int, x: float, adj_ret: float):
    adjoint[x] += kept[i] * (adj_ret + adjoint[kept][i])
    adjoint[kept][i] = 0.0

def k(x: array[float], kept: array[float], y: array[float]):
    i = tid()
    y[i] = f(kept, i, x[i])
"""
    assert told(text, "vjp") == []
    (message,) = told(text.replace("+= kept[i] *", "+= 2.0 * kept[i] *"), "vjp")
    assert "adj_f gives" in message
