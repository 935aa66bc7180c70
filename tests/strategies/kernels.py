"""Whole programs: helper functions and a kernel, as text."""

import re

from hypothesis import strategies as st

from tests.strategies.scope import Scope, indented
from tests.strategies.statements import Statements

PLAIN = "def program(x: array[float64], n: array[int], a: array2d[float64], out: array2d[float64]):"
SIGNATURE = (
    "def program(x: array[float64], n: array[int], a: array2d[float64], out: array2d[float64], "
    "s: array[float64], d: array[vec3d], hits: array[int], g: float64):"
)
STRUCT = """class Pair:
    f: float64
    h: vec2d
"""
MOVED = """def moved(s: array[float64], k: int):
    s[k] = 0.5 * s[k] + 0.1
    return s[k]
"""
HELPER = "def helper(u: float64, w: float64, m: int, x: array[float64], row: array[float64]):"
BOTH = "def both(u: float64, v: float64):"
START = ["i = tid()", "m = n[i]", "u = x[i]", "v = a[i, m % 4] * 0.5"]
VARIABLES = [
    "row = a[i]",
    "b = w > 0.0",
    "t = m",
    "p = vec3d(u, v, w)",
    "q = mat22d(u, 0.5, v, 0.25)",
    "c = zeros(3, dtype=float64)",
    "z = Pair(u, vec2d(v, w))",
]
END = ["out[i, 1] += w * u", "out[i, 0] += u + 0.5 * v"]
RESULTS = [
    "out[i, 2] += dot(p, d[i]) + q[0, 1] * q[1, 0] + (0.3 if b else w)",
    "out[i, 3] += c[0] * c[m % 3] + z.f * z.h.y + x[t % 4] * q[0, 0]",
]
EXACT = {"sin": "squash", "cos": "squash", "tanh": "squash", "exp": "squash", "atan": "squash"}
"""Functions of the mathematical library, and what stands for them where every bit must agree."""
SQUASH = """
def squash(x: float64):
    return x / (1.5 + abs(x))

"""


def exact(text: str) -> str:
    """A program without the mathematical library, whose backends round differently."""
    for name, replacement in EXACT.items():
        text = re.sub(rf"\b{name}\(", f"{replacement}(", text)
    return SQUASH + text


@st.composite
def plain_programs(draw: st.DrawFn) -> str:
    """The text of a kernel `program(x, n, a, out)` on scalars and arrays of them."""
    leave = ("out[i, 2] += sin({})", "return")
    scope = Scope(("u", "v", "w"), ("m",), ("i",), leave=leave)
    lines = [*START, "w = x[i + 1] * x[0]", *Statements(draw).block(scope, 6, 2), *END]
    return "\n".join([PLAIN, *indented(lines)]) + "\n"


@st.composite
def programs(draw: st.DrawFn) -> str:
    """The text of a cell whose kernel is `program(x, n, a, out, s, d, hits, g)`."""
    writer = Statements(draw)
    names: list[str] = []
    helper, both = _helper(writer, names), _both(writer, names)
    leave = ("out[i, 2] += sin({})", "return")
    scope = Scope(
        ("u", "v", "w"),
        ("m", "t"),
        ("i",),
        ("b",),
        ("a[i, {}]", "row[{}]", "a[i][{}]"),
        rich=True,
        shared=True,
        functions=("helper", "both"),
        leave=leave,
        names=names,
    )
    lines = [*START, "w = x[i + 1] * g", *VARIABLES, *writer.block(scope, 7, 3), *END, *RESULTS]
    return "\n".join([STRUCT, MOVED, *helper, "", *both, "", SIGNATURE, *indented(lines)]) + "\n"


def _helper(writer: Statements, names: list[str]) -> list[str]:
    """A function that loops, changes the row that it is given, and returns early."""
    scope = Scope(("u", "v", "w"), ("m",), rows=("row[{}]",), leave=("return sin({})",), names=names)
    lines = ["v = u * 0.5", *writer.block(scope, 2), "return u * w + 0.1 * v"]
    return [HELPER, *indented(lines)]


def _both(writer: Statements, names: list[str]) -> list[str]:
    """A function of two results."""
    first = writer.one(["u * v", "max(u, v)", "u - 0.5 * v", "where(u > v, u, v)"])
    second = writer.one(["sin(u - v)", "v", "0.5 * u", "(v if u > 0.1 else 0.3 * u * v)"])
    early = ["if u > 0.4:", f"    return sin({second}), {first} * 0.5"] if writer.chance() else []
    return [BOTH, *indented([*early, f"return {first}, {second}"])]
