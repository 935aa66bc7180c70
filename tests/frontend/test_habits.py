"""What people write out of habit is refused, or warned of, with what to write instead."""

import math

import numpy as np
import pytest

from kernelab.errors import Diagnostic
from tests.frontend.helpers import cell, error

HEAD = (
    "def kernel(x: array[float], y: array[float], v: array[vec3], m: array[mat33], a: array2d[float], "
    "q: array[transform], n: int, s: float):\n    i = tid()\n    "
)

HABITS = [
    ("v[2] = v[0] * v[1]", "write cw_mul(v[0], v[1]) for each component, or dot(v[0], v[1]) for their sum"),
    ("v[2] = v[0] / v[1]", "write cw_div(v[0], v[1])"),
    ("v[0][0] = float(cw_div(vec2i(7, 8), vec2i(2, 3))[0])", "write vec2i(7, 8) // vec2i(2, 3) for ints"),
    ("y[i] = v[0] @ v[1]", "write dot(v[0], v[1])"),
    ("v[2] = v[0] ** 2", "write cw_mul(v[0], v[0]) for each component, or dot(v[0], v[0])"),
    ("y[i] = s ^ 2", "^ is a bit operation of ints: write s ** 2 for a power"),
    ("y[i] = x[i] & 1", "it is a bit operation of ints: write and between conditions"),
    ("y[i] = x[i] << 1", "it shifts the bits of ints"),
    ("y[i] = where(v[0] > v[1], 1.0, 0.0)", "compare one component, or length(...), at a time"),
    ("y[i] = randf()", "write state = rand_init(seed, i) first, then randf(state)"),
    ("y[i] = round(x[i], 2)", "it rounds to a whole number: write round(x * 100.0) / 100.0"),
    ("v[i] = sin(v[i])", "it takes one number: write vec3(sin(v[i][0]), sin(v[i][1]), sin(v[i][2]))"),
    ("m[i] = sin(m[i])", "it takes one number: write a loop over the components of m[i]"),
    ("v[i] = v[i].normalize()", "write normalize(v[i])"),
    ("y[i] = v[i].dot(v[0])", "write dot(v[i], ...)"),
    ("y[i] = v[i].norm()", "write length(v[i])"),
    ("y[i] = v[i].length()", "write length(v[i])"),
    ("y[i] = float(x.shape())", "write x.shape without brackets"),
    ("y[i] = v[i].rg", "write v[i].xy"),
    ("y[i] = v[i].q", "it has x, y and z"),
    ("m[i] = m[i].inv()", "write inverse(m[i])"),
    ("m[i] = m[i].q", "it has T, shape and dtype; write m[i, j] for an entry"),
    ("q[i] = q[i].r", "it has p and q"),
    ("y[i] = x[i].item()", "it is one number already"),
    ("y[i] = x[i].sin()", "write sin(x[i])"),
    ("y[i] = s.q", "it is one number"),
    ("y[i] = a.sum()", "write a loop: s = 0.0, then s += x[k] for k in range(len(x))"),
    ("x.append(s)", "k = atomic_add(count, 0, 1)"),
    ("y[i] = a.T[0]", "write x[j, i]"),
    ("y.fill_(0.0)", "write a loop over its elements, or x[:] = value"),
    ("y[i] = x.q", "it has shape, ndim, size and dtype"),
    ("y[i] = exp(x)", "index the array to take one element"),
    ("y[i] = x", "write x[i], where i = tid()"),
    ("v[i] = (1.0, s, 2.0)", "write vec3(1.0, s, 2.0)"),
    ("y[i] = x + 1.0", "index it to take one element, such as x[i], where i = tid()"),
    ("y[i] = x(i)", "write x[i]"),
    ("y[i] = np.linalg.norm(v[i])", "write length(v) of a vector"),
    ("y[i] = np.sum(x)", "write a loop"),
    ("y[i] = np.sign(x[i])", "write sign(x), or where(condition, a, b)"),
    ("y[i] = np.random.rand()", "write state = rand_init(seed, i), then randf(state)"),
    ("y[i] = np.sine(x[i])", "did you mean sin?"),
    ("y[i] = math.hypot(s, s)", "write length(vec2(a, b)), or sqrt(a * a + b * b)"),
    ("y[i] = relu(s)", "write max(x, 0.0)"),
    ("y[i] = clip(s, 0.0, 1.0)", "write clamp(x, low, high)"),
    ("y[i] = float(threadIdx.x)", "write i = tid()"),
    ("k = tid", "write tid()"),
    ("y[tid] = s", "write tid()"),
    ("y[i] = tid * s", "write tid()"),
    ("k = cuda.grid(1)", "write i = tid()"),
    ("y[i] = float(open)", "it is Python's, and has no meaning in a kernel"),
    ("y[i] = print(s)", "call it on a line of its own"),
    ("y[i]++", "write y[i] += 1"),
    ("y[i] = x[i] && s", "write and"),
    ("y[i] = x[i] <> s", "write !="),
    ("y[i] = !s", "write not"),
    ("y[i] = s > 0.0 ? 1.0 : 2.0", "write a if condition else b"),
    ("if n === 1:\n        y[i] = s", "write =="),
    ("if n > 1: y[i] = s else: y[i] = 1.0", "write y = a if condition else b, or begin a line with else:"),
    ("y[i] = x[i]s", "an operator is missing behind the bracket"),
    ("if s > 0.0:\n        break", "only a loop is left by it: write return, which ends the thread"),
    ("if i in range(n):\n        y[i] = s", "for a test 0 <= i and i < n"),
    ("k = tid().x", "write i, j = tid() for the two indices of a grid"),
    ("k = len(x[i])", "write len(x) for the array"),
    ("b = zeros(3, 3)", "several dimensions are one argument: zeros((2, 3))"),
    ("y[i] = where(s > 0.0, s)", "other): the last one is taken"),
    ("y[i] = x[1:3]", "take one element of it, such as x[i], where i = tid()"),
    ("v[i] = np.zeros(3)", "an array is no vector: write vec3(...)"),
    ("v[i] = m[i]", "take one row, such as m[i][0]"),
    ("y[i] = np.heaviside(s, 0.0)", "write where(x > 0.0, 1.0, 0.0)"),
    ("y[i] = np.roll(x, 1)[i]", "write x[(i - 1) % len(x)]"),
    ("y[i] = np.real(s)", "a kernel has no complex numbers"),
    ("y[i] = s.real", "it is one number already"),
    ("y[i] = v[i].norm_sqr()", "write length_sq(v[i])"),
    ("y[i] = squared_norm(v[i])", "write length_sq(v)"),
    ("y[i] = gammaln(s)", "use SciPy's on the host, in a function of kl.func.custom_vjp"),
    ("y[i] = y_bar[i]", "tape.backward(loss), then x.grad"),
    ("y[i] = nn.relu(s)", "write sin, where, max, ... without a prefix"),
    ("exit()", "write return, which ends the thread"),
    ("float t = 1.0;", "a kernel is Python: write x = 0.0"),
]


def _error(line: str) -> Diagnostic:
    return error(f"{HEAD}{line}\n", np=np, math=math)


@pytest.mark.parametrize(("line", "hint"), HABITS, ids=[line for line, _ in HABITS])
def test_a_habit_is_answered_by_what_to_write_instead(line: str, hint: str) -> None:
    assert hint in _error(line).hint


@pytest.mark.parametrize(
    "line",
    [
        "y[i] = np.sin(x[i]) + math.sqrt(x[i])",
        "y[i] = np.clip(x[i], 0.0, 1.0)",
        "y[i] = float(len(a))",
        "v[i] = abs(v[i])",
        "y[i] = min(v[i])",
        "y[i] = a[i][n]",
        "y[0:6:2] = 1.0",
        "m[i] = m[i].T",
        'y[i] = float("-inf")',
    ],
)
def test_what_is_natural_works(line: str) -> None:
    assert cell(f"{HEAD}{line}\n", np=np, math=math).errors == ()


def _warnings(lines: str) -> list[tuple[str, str, int]]:
    notes = cell(f"{HEAD}{lines}\n").diagnostics
    return [(note.message, note.hint, note.span.line) for note in notes if note.span is not None]


def test_an_array_parameter_that_is_only_renamed_is_pointed_out() -> None:
    message = "this gives the name {0} to something else: the array {0} stays as it is"
    assert _warnings("y = x") == [(message.format("y"), "write y[i] = x[i]", 3)]
    assert _warnings("a = s\n    x[0] = 1.0") == [(message.format("a"), "write a[i, j] = s", 3)]


def test_a_name_of_an_array_that_is_used_again_is_a_variable_like_others() -> None:
    assert _warnings("y = x\n    y[i] = 1.0") == []


def test_a_sign_that_touches_the_equals_sign_is_pointed_out() -> None:
    assert _warnings("y[i] =+ 2.0\n    n =- n * 2\n    y[i] = float(n)") == [
        ("=+ assigns, and adds nothing", "did you mean +=? If not, put a space before the +", 3),
        ("=- assigns, and subtracts nothing", "did you mean -=? If not, put a space before the -", 4),
    ]


@pytest.mark.parametrize("line", ["y[i] = + s", "y[i] =-s", "y[i] = - s", "y[i] =(- s)", "y[i] -= - s"])
def test_a_sign_before_what_it_belongs_to_is_not(line: str) -> None:
    assert _warnings(line) == []


def test_a_kernel_that_changes_nothing_is_pointed_out() -> None:
    assert [(message, line) for message, _, line in _warnings("t = x[i] * 2.0")] == [
        ("the kernel kernel changes nothing", 1)
    ]


@pytest.mark.parametrize("lines", ["assert x[i] > 0.0", "print(x[i])", "y[i] = 1.0", "atomic_add(y, 0, s)"])
def test_a_kernel_that_changes_or_says_something_is_not(lines: str) -> None:
    assert _warnings(lines) == []


def test_the_value_of_an_operation_that_nobody_takes_is_pointed_out() -> None:
    ((message, _, line),) = _warnings("y[i] = 1.0\n    sin(s)")
    assert (message, line) == ("this expression has no effect", 4)


def test_a_function_that_is_to_return_a_value_and_never_does_is_refused() -> None:
    text = "def f(x: float) -> float:\n    y = x\n"
    assert error(text).message == "f is to return float, and returns nothing"
    assert error("def f(x: float) -> float:\n    while x > 0.0:\n        return x\n").message == (
        "f returns a value on some paths only"
    )
