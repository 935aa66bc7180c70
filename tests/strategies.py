"""Random well-typed kernels, as text.

A program works on rows: thread `i` owns row `i` of `a`, which it reads and overwrites, and of `out`, which it
accumulates into; `x` is shared and read only; `n` holds trip counts.  Loops are nested, leave early, and run
zero times; variables are carried, re-assigned, and assigned in branches; indices are found at run time.
Values stay small, so that differences of the same text run as plain Python mean something.
"""

import re
from dataclasses import dataclass, field

from hypothesis import strategies as st

ROWS, COLUMNS = 3, 4
"""Threads, and elements of each thread's row; `x` has `ROWS + COLUMNS` elements."""

SIGNATURE = "def program(x: array[float64], n: array[int], a: array2d[float64], out: array2d[float64]):"

UNARY = (
    "sin({})",
    "cos({})",
    "tanh({})",
    "exp(-abs({}))",
    "sqrt(1.5 + abs({}))",
    "atan({})",
    "-{}",
    "abs({})",
)
BINARY = ("({} + {})", "({} - {})", "0.7 * {} * {}", "({} / (1.5 + abs({})))", "max({}, {})", "min({}, {})")
COMPARISONS = ("<", ">", "<=", ">=")


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


@dataclass
class Scope:
    """What a program may mention where it stands."""

    floats: list[str]
    ints: list[str]
    depth: int = 0
    in_loop: bool = False
    in_while: bool = False
    loops: list[str] = field(default_factory=list)

    def inner(self, **changes: object) -> "Scope":
        copied = Scope(
            list(self.floats), list(self.ints), self.depth + 1, self.in_loop, self.in_while, self.loops
        )
        for name, value in changes.items():
            setattr(copied, name, value)
        return copied


@st.composite
def programs(draw: st.DrawFn) -> str:
    """The text of a kernel `program(x, n, a, out)`."""
    scope = Scope(floats=["u", "v", "w"], ints=["i", "m"])
    lines = [
        "i = tid()",
        "m = n[i]",
        "u = x[i]",
        "v = a[i, m % 4] * 0.5",
        "w = x[i + 1] * x[0]",
        *draw(_blocks(scope, size=5)),
        "out[i, 1] += w * u",
        "out[i, 0] += u + 0.5 * v",
    ]
    return "\n".join([SIGNATURE, *_indented(lines)]) + "\n"


def _indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


@st.composite
def _blocks(draw: st.DrawFn, scope: Scope, size: int) -> list[str]:
    lines: list[str] = []
    for _ in range(draw(st.integers(1, size))):
        lines += draw(_statements(scope))
    return lines


@st.composite
def _statements(draw: st.DrawFn, scope: Scope) -> list[str]:
    simple = [_assignment, _assignment, _augmented, _array_write, _array_write, _accumulation, _integer]
    nested = [_if, _if, _for, _for, _while] if scope.depth < 3 else []
    jumps = [_break, _continue] if scope.in_loop else []
    leave = [_return] if scope.depth > 0 else []
    return draw(draw(st.sampled_from([*simple, *nested, *jumps, *leave]))(scope))


def _float(scope: Scope, depth: int = 2) -> st.SearchStrategy[str]:
    """An expression of type float64."""
    leaves = st.one_of(
        st.sampled_from(scope.floats),
        st.sampled_from(["float64(0.5)", "float64(-0.75)", "float64(2)"]),
        _index(scope).map(lambda k: f"x[{k}]"),
        _index(scope).map(lambda k: f"a[i, {k}]"),
    )
    if depth == 0:
        return leaves
    inner = _float(scope, depth - 1)
    return st.one_of(
        leaves,
        st.tuples(st.sampled_from(UNARY), inner).map(lambda t: _apply(*t)),
        st.tuples(st.sampled_from(BINARY), inner, inner).map(lambda t: _apply(*t)),
        st.tuples(inner, _condition(scope), inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
        st.tuples(_condition(scope), inner, inner).map(lambda t: f"where({t[0]}, {t[1]}, {t[2]})"),
    )


def _apply(template: str, *operands: str) -> str:
    # An operand that is not a leaf may be a sum, and a sign binds less tightly than a product.
    return template.format(*(f"({operand})" for operand in operands))


def _index(scope: Scope) -> st.SearchStrategy[str]:
    return st.one_of(
        st.integers(0, COLUMNS - 1).map(str),
        st.tuples(st.sampled_from(scope.ints), st.integers(0, 3)).map(
            lambda t: f"({t[0]} + {t[1]}) % {COLUMNS}"
        ),
        st.sampled_from(scope.ints).map(lambda name: f"-1 - {name} % {COLUMNS}"),
    )


def _condition(scope: Scope) -> st.SearchStrategy[str]:
    operand = st.sampled_from([*scope.floats, "x[1]", "a[i, 2]"])
    compared = st.tuples(
        operand, st.sampled_from(COMPARISONS), st.sampled_from(["0.1", "-0.2", "0.6", "v", "w"])
    )
    parity = st.sampled_from(scope.ints).map(lambda name: f"{name} % 2 == 0")
    one = st.one_of(compared.map(" ".join), parity)
    both = st.tuples(one, st.sampled_from(["and", "or"]), one).map(lambda t: f"({t[0]}) {t[1]} not ({t[2]})")
    return st.one_of(one, one, both)


def _assignment(scope: Scope) -> st.SearchStrategy[list[str]]:
    target = st.sampled_from(scope.floats)
    return st.tuples(target, _float(scope)).map(lambda t: [f"{t[0]} = sin({t[1]})"])


def _augmented(scope: Scope) -> st.SearchStrategy[list[str]]:
    changes = st.sampled_from(["{} += 0.3 * sin({})", "{} *= 0.5 + cos({})", "{} -= 0.2 * tanh({})"])
    return st.tuples(changes, st.sampled_from(scope.floats), _float(scope)).map(
        lambda t: [t[0].format(t[1], t[2])]
    )


def _array_write(scope: Scope) -> st.SearchStrategy[list[str]]:
    changes = st.sampled_from(["a[i, {}] = sin({})", "a[i, {}] *= cos({})", "a[i, {}] += 0.5 * sin({})"])
    written = st.tuples(changes, _index(scope), _float(scope))
    return written.map(lambda t: [t[0].format(t[1], t[2])])


def _accumulation(scope: Scope) -> st.SearchStrategy[list[str]]:
    return st.tuples(_index(scope), _float(scope)).map(lambda t: [f"atomic_add(out, i, {t[0]}, sin({t[1]}))"])


def _integer(scope: Scope) -> st.SearchStrategy[list[str]]:
    source = st.sampled_from(["m = (m + {}) % 5", "m = {} % 3", "m = m if w > 0.1 else {}"])
    return st.tuples(source, st.sampled_from(scope.ints)).map(lambda t: [t[0].format(t[1])])


@st.composite
def _if(draw: st.DrawFn, scope: Scope) -> list[str]:
    lines = [f"if {draw(_condition(scope))}:", *_indented(draw(_blocks(scope.inner(), 2)))]
    if draw(st.booleans()):
        lines += ["else:", *_indented(draw(_blocks(scope.inner(), 2)))]
    return lines


def _loop_name(scope: Scope) -> str:
    scope.loops.append("k")
    return f"k{len(scope.loops)}"


@st.composite
def _for(draw: st.DrawFn, scope: Scope) -> list[str]:
    name = _loop_name(scope)
    ranges = ["3", "m % 4", "n[i]", "1, 4", "3, -1, -1", "0, m, 2", "0"]
    head = f"for {name} in range({draw(st.sampled_from(ranges))}):"
    inner = scope.inner(ints=[*scope.ints, name], in_loop=True, in_while=False)
    return [head, *_indented(draw(_blocks(inner, 3)))]


@st.composite
def _while(draw: st.DrawFn, scope: Scope) -> list[str]:
    name = _loop_name(scope)
    inner = scope.inner(ints=[*scope.ints, name], in_loop=True, in_while=True)
    condition = draw(st.sampled_from([f"{name} < 3", f"{name} < 4 and v < 0.7", f"{name} < m"]))
    return [f"{name} = 0", f"while {condition}:", *_indented([f"{name} += 1", *draw(_blocks(inner, 3))])]


def _break(scope: Scope) -> st.SearchStrategy[list[str]]:
    return _condition(scope).map(lambda c: [f"if {c}:", "    break"])


def _continue(scope: Scope) -> st.SearchStrategy[list[str]]:
    return _condition(scope).map(lambda c: [f"if {c}:", "    continue"])


@st.composite
def _return(draw: st.DrawFn, scope: Scope) -> list[str]:
    last = draw(_float(scope, 1))
    return [f"if {draw(_condition(scope))}:", f"    out[i, 2] += sin({last})", "    return"]
