"""Expressions and assignments mean what they mean in Python, a line each."""

import numpy as np
import pytest

from kernelab.errors import KernelZeroDivisionError
from kernelab.frontend.expressions.calls import WORDS
from kernelab.frontend.meaning.name_lookup import SPECIAL, language
from kernelab.lang.ir import Assert, Atomic, Let, Load, Store, walk
from tests.frontend.helpers import agrees_with_python, error, function, ran

LINES = [
    "out[i] = x[i] * 2 + 1",
    "out[i] = 2 * x[i] - x[i] / 3",
    "out[i] = x[i] ** 2 + x[i] ** 3 + (x[i] + 4.0) ** 0.5",
    "out[i] = x[i] ** 0 + x[i] ** 1",
    "out[i] = x[i] // 0.3 + x[i] % 0.3",
    "out[i] = -x[i] + +x[i] * -1.5",
    "out[i] = i / n + n / 2",
    "out[i] = (i - 3) // n + (i - 3) % n",
    "out[i] = i ** 2 + n ** 5 + 2 ** 3",
    "out[i] = (i << 2) + (n >> 1) + (i & 1) + (i | 4) + (i ^ 3) + ~i",
    "out[i] = x[i] if x[i] > 0 else -x[i]",
    "out[i] = float(0.1 < x[i] < 0.5)",
    "out[i] = float(x[i] > 0 and not x[i] > 0.5 or i == 2)",
    "out[i] = float(x[i] != 0) + int(x[i] == x[i])",
    "out[i] = abs(x[i]) + abs(i - 2) + min(x[i], 0) + max(i, 2)",
    "out[i] = min(x[i], 0.25, i) + max(1, 2, x[i])",
    "out[i] = int(x[i] * 5) + int(-x[i] * 5)",
    "out[i] = float(i) + float(bool(i))",
    "out[i] = pow(x[i] + 2.0, 1.5)",
    "out[i] = sqrt(2) + sin(1) * x[i] + exp(0.5)",
    "out[i] = where(x[i] > 0, 1, x[i])",
    "out[i] = x[-1] + x[-i - 1]",
    "out[i] = len(x) + x.shape[0] + x.shape[-1]",
    "a = b = x[i]; out[i] = a + b",
    "a, b = x[i], 2; a, b = b, a; out[i] = a - b",
    "(a, b), c = (x[i], 1), 3.0; out[i] = a + b * c",
    "a: float = 3; out[i] = a / 2",
    "a = 1; a += x[i]; a *= 2; a -= 1; a /= 3; out[i] = a",
    "a = n; a //= 2; a %= 2; a **= 2; a <<= 1; a |= 8; out[i] = a",
    "out[i] += x[i]; out[i] -= 0.5; out[i] *= 3; out[i] /= 2; out[i] **= 2",
    "v = vec3(x[i], 1, 2); out[i] = v.x + v[1] * v.z + v[-1]",
    "v = vec3(2.0); v.y = x[i]; v[0] += 1; v[-1] *= 3; out[i] = v.x + v.y * v.z",
    "v = vec2(); v[i % 2] = x[i]; out[i] = v.x - v.y",
    "v = vec2(1, 2) * x[i] + vec2(0.5) - vec2(3, 4) / 2; out[i] = v.x * v.y",
    "a, b = vec2(x[i], 3); out[i] = a * b",
    "m = mat22(1, 2, 3, x[i]); out[i] = m[0, 1] + m[1][1] * m[1, 0]",
    "m = mat22(1, 2, 3, 4); m[0, 1] = x[i]; m[1][0] += 2; m[1, 1] *= 2; out[i] = m[0, 1] * m[1, 0] + m[1, 1]",
    "m = mat22(1, 2, 3, 4); m[i % 2] = vec2(x[i], 7); v = m[i % 2]; out[i] = m[0, 0] + v.y",
    "m = mat22(1, 2, 3, 4) @ mat22(0, 1, 1, x[i]); v = m @ vec2(1, 2); out[i] = v.x - v.y",
    "t = (x[i], (i, 2)); out[i] = t[0] + t[1][0] * t[-1][1]",
    "pass; out[i] = 1",
    "assert x[i] < 5, 'small'; out[i] = 1",
    "'text that means nothing'; out[i] = 1; ...",
]


@pytest.mark.parametrize("line", LINES)
def test_a_line_means_what_it_means_in_python(line: str) -> None:
    text = "def kernel(x: array[float], n: int, out: array[float]):\n    i = tid()\n    " + line + "\n"
    x = np.array([0.25, -0.7, 0.5, 0.0], np.float32)
    agrees_with_python(text, (4,), x=x, n=3, out=np.full(4, 2.0, np.float32))


def test_elements_of_arrays_of_several_dimensions_are_read_and_written_by_index() -> None:
    text = """
def kernel(a: array3d[float], b: array2d[vec2], out: array2d[float]):
    i, j = tid()
    row = a[i]
    out[i, j] = row[j, 1] + row[j][0] + a[i][j, 1] * b[i][j].y + len(row) + a.shape[2] + a.ndim
    b[i, j].x = out[i][j]
    b[i][j][1] += 2.0
    out[i][j] += b[i, j][0] * a.size
"""
    rng = np.random.default_rng(0)
    arrays = {"a": (2, 3, 2), "b": (2, 3, 2), "out": (2, 3)}
    drawn = {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in arrays.items()}
    expected = {name: array.astype(float) for name, array in drawn.items()}
    for i in range(2):
        for j in range(3):
            a, b, out = (expected[name] for name in arrays)
            out[i, j] = a[i, j, 1] + a[i, j, 0] + a[i, j, 1] * b[i, j, 1] + 3 + 2 + 3
            b[i, j, 0] = out[i, j]
            b[i, j, 1] += 2.0
            out[i, j] += b[i, j, 0] * 12
    after = ran(text, (2, 3), **drawn)
    for name in arrays:
        np.testing.assert_allclose(after[name], expected[name], rtol=1e-5)


def test_adding_to_an_element_is_atomic_and_multiplying_it_is_not() -> None:
    lowered = function("def kernel(x: array[float]):\n    x[0] += 1.0\n    x[0] -= 2.0\n    x[0] *= 3.0\n")
    kinds = [type(stmt) for stmt in lowered.body.stmts]
    assert kinds == [Atomic, Atomic, Load, Let, Store]


def test_adding_to_a_component_of_an_element_adds_nothing_to_the_others() -> None:
    text = "def kernel(x: array[vec2]):\n    x[0].y += 2.0\n    x[0][0] -= 1.0\n"
    assert ran(text, x=np.array([[5, 7]], np.float32))["x"].tolist() == [[4, 9]]


def test_atomic_add_gives_the_value_before() -> None:
    lines = "old[0] = atomic_add(x, 1, 0, 5)", "old[1] = atomic_sub(x, 1, 0, 2)"
    text = "def kernel(x: array2d[int], old: array[int]):\n    " + "\n    ".join(lines) + "\n"
    after = ran(text, x=np.array([[1], [2]], np.int32), old=np.zeros(2, np.int32))
    assert (after["old"].tolist(), after["x"].tolist()) == ([2, 7], [[1], [5]])


def test_copies_of_a_vector_are_independent() -> None:
    text = "def kernel(x: array[vec2]):\n    a = x[0]\n    b = a\n    b.x = 9.0\n    x[0] = a\n    x[1] = b\n"
    assert ran(text, x=np.array([[1, 2], [0, 0]], np.float32))["x"].tolist() == [[1, 2], [9, 2]]


@pytest.mark.parametrize("division", ["7 / n", "7 // n", "7 % n", "floordiv(7, n)", "mod(n, n)", "div(n, n)"])
def test_an_int_divisor_of_zero_ends_the_launch(division: str) -> None:
    text = f"def kernel(x: array[float], n: int):\n    x[0] = {division}\n"
    with pytest.raises(KernelZeroDivisionError):
        ran(text, x=np.zeros(1, np.float32), n=0)


def test_a_constant_divisor_is_not_checked() -> None:
    lowered = function("def kernel(x: array[int], n: int):\n    x[0] = n // 3 + n % 5\n")
    assert not any(isinstance(stmt, Assert) for stmt in walk(lowered.body))


def test_a_float_divisor_of_zero_gives_an_infinity() -> None:
    assert (
        ran("def kernel(x: array[float]):\n    x[0] = 1.0 / x[1]\n", x=np.zeros(2, np.float32))["x"][0]
        == np.inf
    )


def test_dividing_by_a_literal_zero_is_refused() -> None:
    found = error("def kernel(x: array[int], n: int):\n    x[0] = n // 0\n")
    assert (found.message, found.code) == ("division by zero", "value")


def test_a_component_index_known_at_run_time_only_is_checked() -> None:
    lowered = function("def kernel(x: array[vec3], n: int):\n    v = x[0]\n    v[n] = 1.0\n    x[0] = v\n")
    assert [stmt.message for stmt in lowered.body.stmts if isinstance(stmt, Assert)] == [
        "a component index outside of vec3"
    ]


def test_a_component_index_that_a_remainder_keeps_inside_is_not_checked() -> None:
    lowered = function(
        "def kernel(x: array[vec3], n: int):\n    v = x[0]\n    v[n % 3] = 1.0\n    x[0] = v\n"
    )
    assert not any(isinstance(stmt, Assert) for stmt in walk(lowered.body))


def test_a_component_index_that_a_loop_keeps_inside_is_not_checked() -> None:
    lowered = function(
        "def kernel(x: array[vec3], o: array[float]):\n    for k in range(3):\n        o[k] = x[0][k]\n"
    )
    assert not any(isinstance(stmt, Assert) for stmt in walk(lowered.body))


def test_one_thread_index_is_one_name_and_several_are_a_tuple() -> None:
    assert [
        var.hint for var in function("def kernel(x: array[int]):\n    i = tid()\n    x[i] = i\n").threads
    ] == ["i"]
    text = "def kernel(x: array3d[int]):\n    i, j, k = tid()\n    x[i, j, k] = i\n"
    assert [var.hint for var in function(text).threads] == ["i", "j", "k"]


def test_a_kernel_may_ask_for_its_index_twice() -> None:
    assert len(function("def kernel(x: array[int]):\n    x[tid()] = tid()\n").threads) == 1


def test_variables_keep_their_names() -> None:
    lowered = function("def kernel(x: array[float]):\n    speed = x[0] * 2.0\n    x[1] = speed\n")
    assert [stmt.out.hint for stmt in lowered.body.stmts if isinstance(stmt, Let)] == ["speed"]


def test_every_word_that_can_be_called_has_a_handler() -> None:
    callable_words = [word for word in SPECIAL if "array" not in word and word != "adjoint"]
    assert [word for word in callable_words if word not in WORDS] == []
    assert [word for word in WORDS if word not in language()] == []


@pytest.mark.parametrize("word", [word for word in SPECIAL if word not in WORDS and word != "adjoint"])
def test_a_word_that_stands_in_annotations_cannot_be_called(word: str) -> None:
    message = error(f"def kernel(x: array[float]):\n    x[0] = {word}(3)\n").message
    assert message == f"{word} cannot be called here"
