"""What a kernel cannot contain is refused by one sentence, at its place, with what to write instead."""

import pytest

from tests.frontend.helpers import cell, error, errors

REFUSED = {
    "a lambda": ("f = lambda a: a", "a kernel cannot contain a lambda", "with def", "lambda a: a"),
    "a list comprehension": (
        "y = [a for a in x]",
        "a kernel cannot build a list",
        "for loop",
        "[a for a in x]",
    ),
    "a set comprehension": (
        "y = {a for a in x}",
        "a kernel cannot build a list",
        "for loop",
        "{a for a in x}",
    ),
    "a dict comprehension": ("y = {a: 1 for a in x}", "a kernel cannot build a list", "for loop", "{a: 1"),
    "a generator": ("y = max(a for a in x)", "a kernel cannot build a list", "for loop", "(a for a in x)"),
    "a list": ("y = [1, 2]", "a kernel has no lists", "zeros(3)", "[1, 2]"),
    "a dictionary": ("y = {1: 2}", "a kernel has no dictionaries", "vec2", "{1: 2}"),
    "a set": ("y = {1, 2}", "a kernel has no sets", "in (0, 2)", "{1, 2}"),
    "try": (
        "try:\n        x[0] = 1.0\n    except ValueError:\n        pass",
        "a kernel cannot catch exceptions",
        "with an if",
        "try:",
    ),
    "try with star": (
        "try:\n        x[0] = 1.0\n    except* ValueError:\n        pass",
        "a kernel cannot catch exceptions",
        "with an if",
        "try:",
    ),
    "raise": ("raise ValueError", "a kernel cannot raise an exception", "assert", "raise ValueError"),
    "with": ("with a:\n        pass", "a kernel cannot contain a with block", "outside", "with a:"),
    "a class": ("class A:\n        pass", "a kernel cannot define a class", "outside", "class A:"),
    "a nested def": (
        "def g(a):\n        return a",
        "a kernel cannot define a function",
        "above",
        "def g(a):",
    ),
    "an async def": (
        "async def g(a):\n        return a",
        "a kernel cannot wait for anything",
        "plain def",
        "async def g",
    ),
    "yield": ("yield 1", "a kernel cannot yield", "array", "yield 1"),
    "yield from": ("yield from x", "a kernel cannot yield", "array", "yield from x"),
    "global": ("global a", "a kernel cannot assign to a variable outside of itself", "array", "global a"),
    "del": ("a = 1\n    del a", "a kernel cannot delete anything", "leave the del out", "del a"),
    "import": ("import math", "a kernel cannot import a module", "top of the cell", "import math"),
    "from import": (
        "from math import pi",
        "a kernel cannot import a module",
        "top of the cell",
        "from math import",
    ),
    "a walrus": (
        "y = 1 if x[0] > 0.0 else (a := 2)",
        "a kernel cannot assign inside an expression here",
        "a line of its own",
        "a := 2",
    ),
    "match": (
        "match x[0]:\n        case 1:\n            pass",
        "a kernel cannot contain a match statement",
        "elif",
        "match x[0]:",
    ),
    "an f-string": ("y = f'{x}'", "a kernel cannot build text", "write print(", "f'{x}'"),
    "text": ("y = 'mode'", "a kernel cannot use text as a value", "an int", "'mode'"),
    "two stars in a call": ("y = min(**x)", "a call in a kernel cannot unpack with **", "one by one", "**x"),
    "a star on the left": ("a, *b = 1, 2", "a kernel cannot unpack with a star", "one by one", "*b"),
    "is": ("y = x[0] is 1", "a kernel cannot compare with is", "==", "x[0] is 1"),
    "is not": ("y = x[0] is not 1", "a kernel cannot compare with is", "==", "x[0] is not 1"),
    "in": ("y = 1 in x", "a kernel cannot search with in", "for loop", "1 in x"),
    "a loop over a sum": ("for a in 1 + 2:\n        pass", "goes over range(...)", "x[i]", "for a in 1 + 2:"),
    "a loop that sorts": ("for a in sorted(x):\n        pass", "cannot sort", "range(n)", "for a in"),
    "a loop with two targets": (
        "for i, j in range(3):\n        pass",
        "the index of a loop has to be one name",
        "range(...)",
        "for i, j",
    ),
    "a complex number": ("y = 2j", "a kernel has no complex numbers", "vec2", "2j"),
    "None": ("y = None", "a kernel has no None", "-1", "None"),
    "text that is computed": ("print(f'{x[0]}')", "a kernel cannot build text", "printf", "f'"),
}


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize(("line", "message", "hint", "place"), REFUSED.values(), ids=REFUSED)
def test_what_a_kernel_cannot_contain_is_refused_at_its_place(
    line: str, message: str, hint: str, place: str
) -> None:
    found = error(f"def kernel(x: array[float]):\n    {line}\n")
    assert message in found.message
    assert hint in found.hint
    assert found.code == "unsupported"
    assert found.span is not None
    shown = found.span.source.line(found.span.line)[found.span.column : found.span.end_column]
    assert shown.startswith(place) or place.startswith(shown)


def test_an_async_statement_is_refused() -> None:
    found = errors("async def kernel(x: array[float]):\n    await x\n")
    assert [diagnostic.message[:31] for diagnostic in found] == ["a kernel cannot wait for anythi"]


@pytest.mark.parametrize("parameters", ["*args", "**kwargs", "x: array[float], *args"])
def test_star_parameters_are_refused(parameters: str) -> None:
    found = error(f"def kernel({parameters}):\n    pass\n")
    assert found.message == "a kernel cannot take *args or **kwargs"


def test_a_refused_statement_silences_what_depends_on_it_and_nothing_else() -> None:
    text = """
def kernel(x: array[float]):
    f = lambda a: a
    x[0] = f(x[1])
    x[1] = unknown
"""
    assert [diagnostic.span and diagnostic.span.line for diagnostic in errors(text)] == [3, 5]


def test_a_function_is_fenced_though_nobody_calls_it() -> None:
    assert error("def f(a):\n    return [a]\n").message == "a kernel has no lists"


def test_docstrings_messages_and_ellipsis_are_no_text() -> None:
    assert (
        cell("def kernel(x: array[float]):\n    'Doc.'\n    assert x[0] > 0, 'message'\n    ...\n").errors
        == ()
    )
