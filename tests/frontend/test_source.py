"""Where text comes from, and that every statement of the IR knows its exact place in it."""

import ast
import linecache
from typing import Any

import pytest

import kernelab as kl
from kernelab.errors import KernelSyntaxError, Source
from kernelab.frontend.definitions.cell import lower_tree
from kernelab.frontend.meaning.source import source_of
from kernelab.lang.ir import Function, Stmt, walk
from tests.frontend.helpers import function


def in_a_file(x, n):  # type: ignore[no-untyped-def]
    x[0] = n


class Holder:
    @staticmethod
    def inside(x):  # type: ignore[no-untyped-def]
        x[0] = unknown  # noqa: F821


def test_a_function_of_a_file_has_the_lines_and_the_name_of_the_file() -> None:
    source, tree = source_of(in_a_file)
    assert source.label == "test_source.py"
    assert source.first_line == in_a_file.__code__.co_firstlineno
    assert source.line(source.first_line + 1) == "    x[0] = n"
    assert isinstance(tree.body[0], ast.FunctionDef)


def test_an_indented_function_keeps_the_columns_of_the_file() -> None:
    source, tree = source_of(Holder.inside)
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    definition.args.args[0].annotation = ast.copy_location(
        ast.parse("array[float]", mode="eval").body, definition
    )
    ast.fix_missing_locations(definition)
    (found,) = lower_tree(source, tree, {}).errors
    assert found.message == "the name unknown is not known here"
    assert found.span is not None
    assert found.span.line == Holder.inside.__code__.co_firstlineno + 2
    assert source.line(found.span.line)[found.span.column : found.span.end_column] == "unknown"


def test_a_function_whose_text_python_does_not_keep_is_refused() -> None:
    scope: dict[str, object] = {}
    exec("def made(x):\n    pass\n", scope)
    made = scope["made"]
    assert callable(made)
    with pytest.raises(KernelSyntaxError, match=r"the source text of made cannot be found"):
        source_of(made)


@pytest.mark.parametrize(
    ("file", "hint"),
    [
        ("<timed exec>", "%%time keeps no text of its cell"),
        ("<dynamic-code>", "cloudpickle left its text behind"),
    ],
)
def test_where_no_text_ever_is_the_hint_says_what_took_it_away(file: str, hint: str) -> None:
    scope: dict[str, Any] = {}
    exec(compile("made = lambda x: x\n\ndef other(x):\n    return x\n", file, "exec"), scope)
    for without in (scope["made"], scope["other"]):
        with pytest.raises(KernelSyntaxError, match=f"hint: {hint}"):
            kl.map(without, kl.ones(2))


GIVEN = "def made(x):\n    return x + 1.0\n\nother = lambda v: v * 3.0\n"
COMMAND = "import kernelab\n\nother = lambda v: v * 2.0\ndef made(x):\n    return x - 1.0\n"


def test_text_of_another_origin_with_the_same_name_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    # What Python 3.13 does with the text of `python -c`, where `exec` runs another text.
    entry = (len(COMMAND), None, COMMAND.splitlines(keepends=True), "<string>")
    monkeypatch.setitem(linecache.cache, "<string>", entry)
    scope: dict[str, Any] = {}
    exec(GIVEN, scope)
    with pytest.raises(KernelSyntaxError, match=r"the source text of made cannot be found"):
        source_of(scope["made"])
    with pytest.raises(KernelSyntaxError, match=r"the source text of this lambda cannot be found"):
        kl.map(scope["other"], kl.ones(2))


def test_the_text_of_the_command_line_is_taken_for_what_it_defines(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = (len(COMMAND), None, COMMAND.splitlines(keepends=True), "<string>")
    monkeypatch.setitem(linecache.cache, "<string>", entry)
    scope: dict[str, Any] = {}
    exec(COMMAND, scope)
    assert source_of(scope["made"])[0].text == "def made(x):\n    return x - 1.0\n"
    assert kl.map(scope["other"], kl.ones(2)).numpy().tolist() == [2.0, 2.0]


TEXT = """
def kernel(x: array[float], n: int):
    i = tid()
    s = x[i] * 2.0 + sin(x[0])
    for k in range(1, n):
        if s > 1.0 and x[k] > 0.0:
            s += x[k]
        assert s < 9.0
    x[i] -= s
"""


def statements(lowered: Function) -> dict[str, set[str]]:
    """The stretches of text that statements of each kind come from."""
    found: dict[str, set[str]] = {}
    for stmt in walk(lowered.body):
        found.setdefault(_kind(stmt), set()).add(_text(stmt))
    return found


def _kind(stmt: Stmt) -> str:
    return getattr(getattr(stmt, "op", None), "name", type(stmt).__name__)


def _text(stmt: Stmt) -> str:
    line = stmt.span.source.line(stmt.span.line)
    return line[stmt.span.column : stmt.span.end_column]


def test_every_statement_comes_from_the_exact_text_that_it_means() -> None:
    found = statements(function(TEXT))
    assert found["mul"] == {"x[i] * 2.0"}
    assert found["sin"] == {"sin(x[0])"}
    assert found["Load"] == {"x[i]", "x[0]", "x[k]"}
    assert found["For"] == {"for k in range(1, n):"}
    assert found["If"] == {"if s > 1.0 and x[k] > 0.0:", "s > 1.0 and x[k] > 0.0"}
    assert found["gt"] == {"s > 1.0", "x[k] > 0.0"}
    assert found["Assert"] == {"assert s < 9.0"}
    assert found["Atomic"] == {"x[i] -= s"}
    assert found["trips"] == {"range(1, n)"}


def test_no_statement_is_without_a_place() -> None:
    assert all(stmt.span.source.label == "Cell In[3]" for stmt in walk(function(TEXT).body))


def test_a_source_that_starts_later_counts_from_there() -> None:
    source = Source("def kernel(x: array[float]):\n    x[0] = y\n", "file.py", first_line=40)
    (found,) = lower_tree(source, ast.parse(source.text), {}).errors
    assert str(found.span) == "file.py, line 41"
