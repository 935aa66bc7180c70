"""What is known before a kernel runs: tuples, enumerations, `static`, types of values, slices of vectors."""

import enum
from typing import Any

import numpy as np
import pytest

from kernelab.backend.cpu import interpreter
from kernelab.errors import KernelError
from tests.frontend.helpers import error, function


class Mode(enum.IntEnum):
    SLOW = 1
    FAST = 2


class Flag(enum.IntFlag):
    A = 1
    B = 4


def computed(body: str, before: str = "", **namespace: Any) -> list[float]:
    """What a kernel leaves in x, which holds 1, 2, 3, 4 first; i is 3."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    text = f"{before}\ndef kernel(x: array[float], i: int):\n{lines}\n"
    after = {"x": np.array([1, 2, 3, 4], np.float32), "i": 3}
    interpreter.run(function(text, **namespace), (1,), after, width=1)
    return list(after["x"])


@pytest.mark.parametrize(
    ("body", "x"),
    [
        ("for v in (x[1], 2.5, x[3]):\n    x[0] += v", [9.5, 2, 3, 4]),
        ("t = (1.0, x[3])\nfor v in t:\n    if v > 2.0:\n        x[0] = v", [4, 2, 3, 4]),
        ("for a, b in ((1.0, 2.0), (3.0, 4.0)):\n    x[0] += a * b", [15, 2, 3, 4]),
        ("for c in vec3(1.0, 2.0, 4.0):\n    x[0] += c", [8, 2, 3, 4]),
        ("for row in mat22(1.0, 2.0, 3.0, 4.0):\n    x[0] += row[1]", [7, 2, 3, 4]),
        ("for k in reversed(range(1, 4)):\n    x[k] = x[k - 1]", [1, 1, 2, 3]),
        ("for k in reversed(range(i, -1, -2)):\n    x[0] = 10.0 * x[0] + float(k)", [113, 2, 3, 4]),
        ("v = vec3(*(x[0], x[1]), 5.0)\nx[0] = v[2] + v[1]", [7, 2, 3, 4]),
        ("v = vec4(*vec2(1.0, 2.0), *x[2:4])\nx[0] = dot(v, v)", [30, 2, 3, 4]),
        (
            "m = mat22(1.0)\nx[0] = (m * vec2(3.0, 2.0))[1]\nx[1] = (mat22(1.0, 2.0, 3.0, 4.0) * m)[1, 1]",
            [5, 7, 3, 4],
        ),
        ("c = float32(0.0)\nif x[0] > 0.5:\n    c = float32(-0.0)\nx[0] = 1.0 / c", [-np.inf, 2, 3, 4]),
        ("t = (0.0, 1.0)\nif x[0] > 0.5:\n    t = (-0.0, 1.0)\nx[0] = x[1] / t[0]", [-np.inf, 2, 3, 4]),
        ("m = matrix_from_rows(*mat22(1.0, 2.0, 3.0, 4.0))\nx[0] = m[1, 0]", [3, 2, 3, 4]),
        (
            "m = mat33(1.0)\nm[1][0:2] = vec2(5.0, 6.0)\nm[2][2] = x[3]\nx[0] = m[1][::-1][1] + m[2][1:][1]",
            [10, 2, 3, 4],
        ),
        ("x[0] = float(Mode.FAST) + float(Flag.A | Flag.B) + float(Mode.SLOW.value)", [8, 2, 3, 4]),
        ("t = (1, 2.0)\nx[0] = float(static(len(t) + N))", [5, 2, 3, 4]),
        ("v = vec3(1.0)\nx[0] = float(static(len(v) * 2))", [6, 2, 3, 4]),
        ("a, b = static((2.5, N))\nx[0] = a * float(b)", [7.5, 2, 3, 4]),
        ("y = x[1] + x.dtype(1)\nx[0] = type(y)(i) + y.dtype(2)", [5, 2, 3, 4]),
        ("x[0] = float(length)", [7, 2, 3, 4]),
        (
            "m = matrix(0.0, shape=(2, 3))\nx[0] = float(m.shape[1] + m[0].length + vec4.length)",
            [10, 2, 3, 4],
        ),
        ("x[0] = type(x).dtype(i) + vec2(1.0).dtype(1) + x.dtype.dtype(1)", [5, 2, 3, 4]),
        ("t = (1.0, x[3], 5)\nfor k in range(3):\n    x[0] += t[k]", [11, 2, 3, 4]),
        ("v = vec3(1.0, 2.0, 3.0).zx\nx[0] = v[0] * 10.0 + v[1]", [31, 2, 3, 4]),
        ("v = vector(vec2(1.5), dtype=float64)\nx[0] = float(v[0])", [1.5, 2, 3, 4]),
    ],
)
def test_what_is_known_is_used(body: str, x: list[float]) -> None:
    assert computed(body, Mode=Mode, Flag=Flag, N=3, length=7) == x


@pytest.mark.parametrize(
    ("body", "x"),
    [
        ("v = vec4(1.0, 2.0, 3.0, 4.0)\nv[1:3] = vec2(8.0, 9.0)\nx[0] = v[1] * 10.0 + v[2]", 89),
        ("v = vec4(1.0, 2.0, 3.0, 4.0)\nv[::2] += vec2(10.0, 20.0)\nx[0] = v[0] * 100.0 + v[2]", 1123),
        (
            "m = mat33(0.0)\nm[1:, 0] = vec2(1.0, 2.0)\nm[0] = vec3(3.0)\nx[0] = m[1, 0] + m[2, 0] + m[0, 2]",
            6,
        ),
        ("m = mat33(0.0)\nm[0:2, 1:3] = mat22(1.0, 2.0, 3.0, 4.0)\nx[0] = m[0, 1] + 10.0 * m[1, 2]", 41),
        ("m = mat22(1.0, 2.0, 3.0, 4.0)\nm[1:, :1] += m[:1, 1:]\nx[0] = m[1, 0]", 5),
        ("m = mat22(1.0, 2.0, 3.0, 4.0)\nw = m[:, i - 2]\nx[0] = w[0] + 10.0 * w[1]", 42),
        ("m = mat33(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)\nn = m[::-2, :2]\nx[0] = n[0, 1]", 8),
    ],
)
def test_slices_of_vectors_and_matrices(body: str, x: float) -> None:
    assert computed(body)[0] == x


TUPLES = """
def total(t: tuple[float, int, vec2], weight: float):
    s = t[0] * weight
    for c in t[2]:
        s += c
    return s + float(t[1])
def sum_up(values):
    s = 0.0
    for v in values:
        s += v
    return s
"""


def test_a_tuple_is_handed_to_a_function() -> None:
    body = (
        "t = (x[1], i, vec2(1.0, 2.0))\nx[0] = total(t, 10.0) + sum_up((1.0, x[3])) + sum_up((1, x[0], 1.0))"
    )
    assert computed(body, TUPLES)[0] == 26.0 + 5.0 + 3.0


OPERATORS = """
class Complex:
    re: float
    im: float
def add(a: Complex, b: Complex):
    return Complex(a.re + b.re, a.im + b.im)
def mul(a: Complex, b: Complex):
    return Complex(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)
def neg(a: Complex):
    return Complex(-a.re, -a.im)
"""


def test_operators_of_structs_are_functions_of_their_names() -> None:
    body = "a = Complex(x[0], x[1])\nb = -(a * a + a)\nx[0] = b.re\nx[1] = b.im"
    assert computed(body, OPERATORS)[:2] == [2.0, -6.0]
    assert "is Complex, not a number" in error(OPERATORS + "def kernel(c: Complex):\n    d = c - c\n").message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("for v in i:\n    pass", "a loop goes over range(...), arrays, vectors and tuples, not int32"),
        (
            "y = x[0]\nx[1] = static(y + 1.0)",
            "static(...) is computed before the kernel runs, and y is known",
        ),
        ("v = vec3(*x)", "array[float32] cannot be unpacked: how many values it has is not known"),
        ("x[0] = type(x)(1)", "type(x) is array[float32], not a function"),
        ("x[0] = type((1, 2))(1)", "type takes one number, vector, matrix or struct, not ((int, int))"),
        ("v = vec4(0.0)\nv[i:] = vec2(1.0)", "the bounds of a slice of vec4 have to be constants"),
        ("v = vec4(0.0)\nv[1:3] = vec3(1.0)", "is vec2, not vec3"),
        ("x[0] = float(Mode.QUICK)", "Mode has no QUICK"),
        ("t = (1.0, vec2(1.0))\nx[0] = t[i]", "a tuple of 2 is indexed by a constant from 0 to 1"),
        ("v = vec2(1.0).xz", "vec2 has no xz"),
    ],
)
def test_what_is_not_known_is_told(body: str, message: str) -> None:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    found = error(f"def kernel(x: array[float], i: int):\n{lines}\n", Mode=Mode)
    assert message in found.message


def test_a_static_struct_becomes_constants() -> None:
    import kernelab as kl

    @kl.struct
    class Pair:
        a: float
        v: kl.vec2

    pair = Pair()
    pair.a, pair.v = 2.0, (3.0, 4.0)
    assert computed("p = static(pair)\nx[0] = p.a + p.v[1]", pair=pair)[0] == 6.0
    with pytest.raises(KernelError):
        computed("p = static(object())")
