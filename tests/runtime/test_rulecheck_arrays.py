"""Grad functions over arrays are compared with differences when they are first needed, once each."""

import warnings
from typing import Any

import pytest

import kernelab as kl

ROW = """
def dot_row(x: array2d[float], w: array[float], i: int):
    s = float(0.0)
    for k in range(w.shape[0]):
        s += x[i, k] * w[k] * w[k]
    return s

@func_grad(dot_row{option})
def adj_dot_row(x: array2d[float], w: array[float], i: int, adj_ret: float):
    for k in range(w.shape[0]):
        {x_rule}
        {w_rule}

def k(x: array2d[float], w: array[float], y: array[float]):
    i = tid()
    y[i] = dot_row(x, w, i)
"""
RIGHT = {
    "x_rule": "adjoint[x][i, k] += w[k] * w[k] * adj_ret",
    "w_rule": "adjoint[w][k] += 2.0 * x[i, k] * w[k] * adj_ret",
    "option": "",
}

SCATTER = """
def put(y: array[vec2], n: int, v: vec2, s: float):
    y[n] = s * v

@func_grad(put)
def adj_put(y: array[vec2], n: int, v: vec2, s: float):
    b = adjoint[y][n]
    {clear}
    adjoint[v] += s * b
    adjoint[s] += {share}

def k(v: array[vec2], s: float, y: array[vec2]):
    i = tid()
    put(y, i, v[i], s)
"""

NATIVE = """
@func_native("y(i) = x(i) * x(i);", adj_snippet="adj_x(i) += {factor} * x(i) * adj_y(i);")
def square(x: array[float], y: array[float], i: int):
    ...

def k(x: array[float], y: array[float]):
    square(x, y, tid())
"""


def told(text: str) -> list[str]:
    kernel: Any = kl.compile(text, label="Cell In[7]")["k"]
    names = [param.hint for param in kernel.primal.params]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernel.vjp(names)
        kernel.vjp(names[-1:])
    return [str(w.message) for w in caught if issubclass(w.category, kl.KernelWarning)]


def test_a_right_rule_is_silent() -> None:
    assert told(ROW.format(**RIGHT)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"x_rule": "adjoint[x][i, k] += w[k] * adj_ret"},
        {"x_rule": "adjoint[x][k, i] += w[k] * w[k] * adj_ret"},
        {"x_rule": "adjoint[x][i, k] += w[k] * w[k]"},
        {"w_rule": "adjoint[w][k] += x[i, k] * w[k] * adj_ret"},
        {"w_rule": "adjoint[w][0] += 2.0 * x[i, k] * w[k] * adj_ret"},
    ],
    ids=["formula", "index", "without adj_ret", "factor", "element"],
)
def test_a_wrong_rule_is_warned_of_once_at_its_line(wrong: dict[str, str]) -> None:
    (message,) = told(ROW.format(**RIGHT | wrong))
    name = "x" if "x_rule" in wrong else "w"
    assert "adj_dot_row gives" in message
    assert f"for adjoint[{name}] along a direction where differences of dot_row give" in message
    assert "Cell In[7], line 9" in message


def test_what_a_rule_leaves_out_is_found() -> None:
    (message,) = told(ROW.format(**RIGHT | {"w_rule": "if k > 9:\n            adjoint[w][k] += adj_ret"}))
    assert "adj_dot_row gives 0 for adjoint[w] along a direction" in message


def test_a_surrogate_says_so_and_is_not_compared() -> None:
    assert told(ROW.format(**RIGHT | {"w_rule": "adjoint[w][k] += adj_ret", "option": ", check=False"})) == []


def test_what_a_function_stores_is_compared_too() -> None:
    right = {"clear": "adjoint[y][n] = vec2(0.0, 0.0)", "share": "dot(b, v)"}
    assert told(SCATTER.format(**right)) == []
    (message,) = told(SCATTER.format(**right | {"share": "b[0]"}))
    assert "for adjoint[s] along a direction" in message
    assert ", at n = " in message


def test_snippets_over_arrays_are_compared() -> None:
    assert told(NATIVE.format(factor="2.0f")) == []
    (message,) = told(NATIVE.format(factor="1.0f"))
    assert "for adjoint[x] along a direction where differences of square give" in message


ROOT = """
def root(x: array[float], i: int):
    r = 1.0
    while abs(r * r - x[i]) > 1.0e-5:
        r = 0.5 * (r + x[i] / r)
    return r

@func_grad(root)
def adj_root(x: array[float], i: int, adj_ret: float):
    adjoint[x][i] += {factor} * adj_ret / root(x, i)

def k(x: array[float], y: array[float]):
    i = tid()
    y[i] = root(x, i)
"""


def test_a_function_that_does_not_end_at_some_points_is_compared_at_the_others() -> None:
    assert told(ROOT.format(factor=0.5)) == []
    (message,) = told(ROOT.format(factor=1.0))
    assert "adj_root gives" in message
