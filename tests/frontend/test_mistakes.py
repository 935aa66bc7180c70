"""Mistakes in elements, calls and statements: one sentence at the exact place, and the next one too."""

import pytest

from kernelab.errors import KernelNameError, KernelSyntaxError, KernelTypeError, KernelValueError, Source
from kernelab.frontend.meaning.source import parse
from tests.frontend.helpers import cell, error, errors

HEAD = "def kernel(x: array[float], v: array[vec3], a: array2d[float], m: array[mat22], n: int):\n    "

MISTAKES = [
    ("x[0.5] = 1.0", "an index is an integer, not float", "write int(0.5)", "0.5"),
    ("x[x[0]] = 1.0", "an index is an integer, not float32", "write int(x[0])", "x[0]"),
    ("x[v[0]] = 1.0", "an index is an integer, not vec3", "", "v[0]"),
    ("k: int = n / 2", "k is int32, not float32", "write int(n / 2), or n // 2 of two ints", "n / 2"),
    ("k: int = div(n, 2)", "k is int32, not float32", "or n // 2 of two ints", "div(n, 2)"),
    ("x[True] = 1.0", "an index is an integer, not bool", "write int(True)", "True"),
    ("x[0, 1] = 1.0", "array[float32] takes 1 index, not 2", "", "x[0, 1]"),
    ("v[0, 1] = 1.0", "array[vec3] takes 1 index, not 2", "write v[0][1]", "v[0, 1]"),
    ("y = a[0, 1, 2]", "array2d[float32] takes 2 indices, not 3", "", "a[0, 1, 2]"),
    (
        "a[0] = 1.0",
        "array2d[float32] needs 1 index more to be assigned",
        "write a[0, :] = ..., or a loop over the rest",
        "a[0]",
    ),
    ("y = a[0] + 1.0", "a[0] is a row of a, array[float32], not a number", "index it", "a[0]"),
    ("y = x + 1.0", "x is array[float32], not a number", "index it", "x"),
    ("x += 1.0", "x is array[float32]: its elements are changed", "write x[:] += 1.0", "x"),
    ("x[0].y = 1.0", "float has no components to assign", "", "x[0].y"),
    ("y = x[0][1]", "float32 has no components", "", "x[0][1]"),
    ("y = v[0].q", "vec3 has no q", "it has x, y and z", "v[0].q"),
    ("y = m[0].x", "mat22 has no x", "", "m[0].x"),
    ("x.y = 1.0", "array[float32] has no y", "index it first: x[i].y", "x.y"),
    ("y = a[0].y", "a row of a, array[float32] has no y", "index it first: a[i].y", "a[0].y"),
    ("a[0].y = 1.0", "a row of a, array[float32] has no y", "", "a[0].y"),
    ("y = v.x", "array[vec3] has no x", "index it first: v[i].x", "v.x"),
    ("None", "a kernel has no None", "use a number", "None"),
    ('b"text"', "a kernel cannot use text as a value", "use a number", 'b"text"'),
    ("x[()] += 1.0", "there is no index in these brackets", "write x[i]", "x[()]"),
    ("y = static((yield))", "static(...) raised SyntaxError: 'yield' outside function", "", "yield"),
    ("y = (1, 2)[0:1]", "a tuple of 2 is indexed by a constant from 0 to 1", "one by one", "0:1"),
    ("y = v[0][3]", "vec3 has no component 3", "the last one is .z or [2]", "3"),
    ("y = v[0].w", "vec3 has no component 3", "the last one is .z or [2]", "w"),
    ("y = m[0][0, 2]", "mat22 has no component 2", "the last one is [1]", "2"),
    ("y = v[0][0, 1]", "vec3 takes 1 index, not 2", "", "0"),
    ("y = a.shape[2]", "array2d[float32] has no axis 2", "its axes are 0 to 1", "2"),
    ("y = a.shape[n]", "the axis of a shape has to be a constant", "shape[0]", "n"),
    ("y = (1, vec2())[n]", "a tuple of 2 is indexed by a constant", "", "n"),
    ("y, z = x[0]", "float32 cannot be unpacked into 2 names", "", "x[0]"),
    ("y, z = 1, 2, 3", "3 values cannot be unpacked into 2 names", "", "y, z"),
    ("v[0] = 1.0", "v holds vec3, not float", "write vec3(1.0)", "1.0"),
    ("v[0].x = v[1]", "this component is float32, not vec3", "v[1][0]", "v[1]"),
    ("y = vec3(1.0, 2.0)", "vec3 takes 0, 1 or 3 numbers, not (float, float)", "", "vec3(1.0, 2.0)"),
    ("y = mat22(1, 2, 3)", "mat22 takes 0, 1 or 4 numbers, not (int, int, int)", "", "mat22(1, 2, 3)"),
    ("y = float(v[0])", "float32 takes one number, not vec3", "v[0][0]", "float(v[0])"),
    ("y = float(1, 2)", "float32 takes one number, not 2", "", "float(1, 2)"),
    ("y = sin(x)", "sin takes numbers, not array[float32]", "index the array", "x"),
    ("y = sin(x[0], q=1)", "the arguments of sin are ", "", "sin(x[0], q=1)"),
    ("y = len(n)", "len takes one array or vector, not (int32)", "", "len(n)"),
    ("y = constant(n)", "constant(...) takes one number that is known", "", "constant(n)"),
    ("y = range(3)", "range(...) stands only behind for ... in", "", "range(3)"),
    ('y = range(n, adjoint="save")', "range(...) stands only behind", "", 'range(n, adjoint="save")'),
    ("for i in range():\n        pass", "range takes 1 to 3 integers, not 0", "", "range()"),
    ("for i in range(0, 3, 0):\n        pass", "the step of range is zero", "", "range(0, 3, 0)"),
    (
        'for i in range(3, adjoint="keep"):\n        pass',
        'adjoint is "save", "recompute" or "checkpoint", not "keep"',
        "about sqrt(n) of n iterations",
        '"keep"',
    ),
    (
        "for i in range(3, adjoint=n):\n        pass",
        'adjoint is "save", "recompute" or "checkpoint", not n',
        "runs the loop again",
        "n",
    ),
    (
        "for i in range(3, reverse=1):\n        pass",
        "range takes no keyword reverse",
        "adjoint=",
        "reverse=1",
    ),
    (
        "atomic_add(n, 0, 1)",
        "atomic_add takes an array, its indices and a value",
        "an atomic changes an element of an array",
        "atomic_add(n, 0, 1)",
    ),
    (
        "atomic_add(a, 0, 1.0)",
        "array2d[float32] takes 2 indices, not 1",
        "atomic_add(a, i, j, value)",
        "atomic_add(a, 0, 1.0)",
    ),
    ("atomic_add(x, 0, v[0])", "x holds float32, not vec3", "", "v[0]"),
    ("i = tid(3)", "tid() takes no arguments", "i, j = tid()", "tid(3)"),
    (
        "i, j = tid()\n    k = tid()",
        "tid() gives 2 indices in one place and 1 in another",
        "call tid() once",
        "tid()",
    ),
    ("a1, b1, c1, d1, e1 = tid()", "tid() gives 1 to 4 indices, not 5", "", "tid()"),
    ("if v[0]:\n        pass", "vec3 is neither true nor false", "compare one of its components", "v[0]"),
    ("y = n and x[0]", "and and or give a truth value, and n is int32", "write a if condition else b", "n"),
    ("assert n > 0, n", "the message of an assert has to be plain text", "write assert condition", "n"),
    ("assert 1 > 2", "this assert never holds: assert 1 > 2", "", "1 > 2"),
    (
        "y = x if n > 0 else v",
        "the value is the array v here and x elsewhere: a variable stands for one array",
        "index each array",
        "v",
    ),
    ("y = max(1)", "max takes ", "", "max(1)"),
    ("y = 1 << -1", "this cannot be computed: negative shift count", "", "1 << -1"),
    ("y = 1 / 0", "division by zero", "", "1 / 0"),
    ("y = float('big')", "float32 of text is a number in a kernel only where", "", "'big'"),
    ("n.x = 1", "n is int32: it has no components to assign", "", "n.x"),
    ("y = v[0]\n    y[0][1] = 2.0", "vec3 has too many indices here", "", "y[0][1]"),
]


@pytest.mark.parametrize(("line", "message", "hint", "place"), MISTAKES, ids=[line for line, *_ in MISTAKES])
def test_a_mistake_is_told_at_its_place(line: str, message: str, hint: str, place: str) -> None:
    found = error(HEAD + line + "\n")
    assert found.message.startswith(message)
    assert hint in found.hint
    assert found.span is not None
    assert found.span.source.line(found.span.line)[found.span.column : found.span.end_column] == place


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("def kernel(x: array[float]):\n    break\n", "this is not Python: 'break' outside loop", 2),
        ("def kernel(x: int, x: int):\n    pass\n", "this is not Python: duplicate argument 'x'", 1),
        ("return 1\n", "this is not Python: 'return' outside function", 1),
    ],
)
def test_what_python_refuses_beyond_its_grammar_is_refused_too(text: str, message: str, line: int) -> None:
    found = error(text)
    assert found.message.startswith(message)
    assert found.span is not None
    assert found.span.line == line


BOTH_RETURN = "if n:\n        return\n    else:\n        return\n    x[1] = 2.0"


@pytest.mark.parametrize("tail", ["return\n    x[1] = nothing", BOTH_RETURN])
def test_a_line_that_is_never_reached_is_pointed_out(tail: str) -> None:
    (note,) = cell(HEAD + tail + "\n").diagnostics
    assert (note.message, note.severity) == ("this line is never reached", "warning")


def test_an_error_reads_like_this() -> None:
    (found,) = errors("def kernel(x: array[vec3], dt: float):\n    x[0] = x[1] + dt\n")
    assert (
        found.render()
        == """\
cannot add vec3 and float32
  Cell In[3], line 2
    2 |     x[0] = x[1] + dt
                   ^^^^^^^^^   vec3 + float32
  hint: write vec3(dt) for the same number in every component"""
    )


def test_every_statement_with_a_mistake_is_found_in_the_order_of_the_lines() -> None:
    text = """
def first(x: array[float]):
    x[0] = one
    for i in range(x[0]):
        x[i] = two
    while three:
        x[0] = four
    if five:
        x[0] = six
    else:
        x[0] = seven

def second(x: array[float]):
    x[0] = eight
"""
    assert [found.span and found.span.line for found in errors(text)] == [3, 4, 5, 6, 7, 8, 9, 11, 14]


def test_what_depends_on_a_mistake_is_not_reported_again() -> None:
    text = HEAD + "y = unknown\n    z = y + 1\n    x[0] = z\n    if z > 0:\n        y = 2.0\n    x[1] = y\n"
    assert len(errors(text)) == 1


def test_an_unknown_name_is_reported_once() -> None:
    text = HEAD + "if n > 0:\n        x[0] = unknown\n    x[1] = unknown\n    x[2] = unknown * 2\n"
    assert len(errors(text)) == 1


def test_a_mistake_in_an_element_does_not_silence_its_array() -> None:
    assert len(errors(HEAD + "x[0] = unknown\n    x[0.5] = 1.0\n")) == 2


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("def kernel(x: array[float]:\n    pass\n", KernelSyntaxError),
        ("def kernel(x: array[float]):\n    y = [1]\n", KernelSyntaxError),
        ("def kernel(x: array[float]):\n    y = nothing\n", KernelNameError),
        ("def kernel(x: array[float]):\n    x[0] = vec3()\n", KernelTypeError),
        ("def kernel(x: array[float]):\n    x[0] = 1 / 0\n", KernelValueError),
        ("def kernel(x):\n    x[0] = 1\n", KernelTypeError),
    ],
)
def test_the_kind_of_the_error_follows_the_first_mistake(text: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        cell(text).raise_errors()


def test_text_that_is_not_python_is_shown_where_python_stumbled() -> None:
    found = error("def kernel(x: array[float]):\n    y = = 2\n")
    assert found.message == "this is not Python: invalid syntax"
    assert found.span is not None
    assert (found.span.line, found.span.column) == (2, 8)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("def k(x: int):\n    i = 0\n     j = 1\n", "unexpected indent", "where the lines of its block"),
        ("def k(x: int):\n        i = 0\n    j = 1\n", "unindent does not match", "an earlier line begins"),
        ("def k(x: int):\ni = 0\n", "indented block after function definition on line 5", "4 spaces further"),
        ("def k(x: int)\n    i = 0\n", "expected ':'", "a colon"),
        ("def k(x: int):\n    i = (x + 1\n", "'(' was never closed", "close it"),
        ("def k(x: int):\n    if x = 1:\n        i = 0\n", "Maybe you meant '=='", "write == to compare"),
        ("def k(x: int):\n    i = min(x 1)\n", "forgot a comma", "by a comma"),
        ("def k(x: int):\n    print('a)\n", "unterminated string literal (detected at line 6)", "quote"),
    ],
)
def test_what_python_stumbles_over_is_told_with_its_line_and_what_to_do(
    text: str, message: str, hint: str
) -> None:
    with pytest.raises(KernelSyntaxError) as caught:
        parse(Source(text, "Cell In[1]", 5))
    (found,) = caught.value.diagnostics
    assert message in found.message
    assert hint in found.hint


def test_columns_count_characters_not_bytes() -> None:
    found = error("def kernel(x: array[float]):\n    größe = π + 1.0\n")
    assert found.span is not None
    assert found.span.source.line(2)[found.span.column : found.span.end_column] == "π"


def test_an_expression_without_effect_is_pointed_out() -> None:
    lowered = cell("def kernel(x: array[float]):\n    x[0] == 1.0\n")
    assert [(note.severity, note.message) for note in lowered.diagnostics] == [
        ("warning", "this expression has no effect")
    ]


@pytest.mark.parametrize("expression", ["i / n", "i % n", "x[i] % 2.0"])
def test_a_difference_from_warp_is_noted_where_the_text_uses_warps_prefix(expression: str) -> None:
    text = "def kernel(x: {0}.array[float], n: int):\n    i = tid()\n    x[i] = float({1})\n"
    (note,) = cell(text.format("wp", expression)).diagnostics
    assert (note.severity, note.code) == ("information", "warp")
    assert cell(text.format("kl", expression)).diagnostics == ()


@pytest.mark.parametrize("expression", ["{0}.div(i, n)", "{0}.mod(i, n)", "{0}.mod(x[i], 2.0)"])
def test_a_division_called_by_its_name_is_warned_of_where_warp_gives_another(
    expression: str,
) -> None:
    text = "def kernel(x: {0}.array[float], n: int):\n    i = tid()\n    x[i] = float(" + expression + ")\n"
    (note,) = cell(text.format("wp")).diagnostics
    assert (note.severity, note.code) == ("warning", "warp")
    assert cell(text.format("kl")).diagnostics == ()


@pytest.mark.parametrize(
    ("lines", "message", "hint"),
    [
        (
            ["k[0] /= 2"],
            "k[0] holds int32, and / gives a float",
            "write k[0] //= 2, or use an array of float",
        ),
        (["k[0] = True"], "True cannot stand for int32", "write where(condition, 1, 0), or int(condition)"),
        (["x[...] = 1.0"], "a kernel cannot select with ...", "write x[:] for a whole array"),
        (
            ["i = tid()", "return x[i]"],
            "a kernel cannot return a value",
            "store the result into an array parameter",
        ),
        (
            ["if x[0] > 1.0:", "    q = 1.0", "else:", "    q = k[0]", "x[0] = float(q)"],
            "q is float here and int32 in line 5: a variable keeps one type",
            "use two names",
        ),
    ],
)
def test_what_to_write_instead_is_told(lines: list[str], message: str, hint: str) -> None:
    found = error(
        "".join(
            f"{line}\n"
            for line in ["def kernel(x: array[float], k: array[int]):", *(f"    {line}" for line in lines)]
        )
    )
    assert found.message == message
    assert hint in found.hint
