"""Source text with its syntax tree, and the spans of nodes.

Knows Python's parser and `inspect`; nothing of types or IR.
"""

import ast
import inspect
import linecache
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module
from importlib.machinery import SourceFileLoader
from types import CodeType, FunctionType
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from kernelab.errors import KernelSyntaxError, Source, Span, label_of
from kernelab.frontend.meaning.syntax_trees import module_of, nodes, parameters, refuse_module
from kernelab.guidance.hint_tables import NEAR_THE_ERROR, OF_LINES, OF_PARSER

Place = ast.stmt | ast.expr | ast.arg | ast.keyword


def parse(source: Source) -> ast.Module:
    """The syntax tree of a cell; raises KernelSyntaxError with Python's own message at its line."""
    try:
        tree = module_of(source.text)
        # Finds what the grammar alone does not: break outside of a loop, an argument named twice.
        refuse_module(tree)
    except SyntaxError as error:
        _refuse(source, error)
    except UnicodeEncodeError as error:
        line = source.text.count("\n", 0, error.start) + source.first_line
        column = error.start - source.text.rfind("\n", 0, error.start)
        span = Span(source, line, column - 1, line, column)
        message = f"this is not Python: {source.text[error.start]!r} is half of a character"
        hint = "type it anew: text that was cut in UTF-16 leaves such halves"
        raise KernelSyntaxError.of(message, "syntax", hint, span) from None
    except ValueError as error:  # some versions of Python say so of null characters
        raise KernelSyntaxError.of(f"this is not Python: {error}", "syntax") from None
    return tree


def _refuse(source: Source, error: SyntaxError) -> NoReturn:
    line, column = error.lineno or 1, max(0, (error.offset or 1) - 1)
    end_line, end_column = error.end_lineno or line, (error.end_offset or 0) - 1
    if (end_line, end_column) <= (line, column):
        end_line, end_column = line, column + 1
    first = source.first_line - 1
    span = Span(source, line + first, column, end_line + first, end_column)
    lines = source.text.split("\n")
    hint = _syntax_hint(lines[line - 1], column, error.msg) if line <= len(lines) else ""
    hint = hint or OF_LINES.hint(lines[max(line - 2, 0)].strip())  # a brace opens what the next line breaks
    # Some messages name another line, as Python counts them.
    message = re.sub(r"(?<=\bline )\d+", lambda number: str(int(number[0]) + first), error.msg)
    raise KernelSyntaxError.of(f"this is not Python: {message}", "syntax", hint, span) from None


def _syntax_hint(line: str, column: int, message: str) -> str:
    """The hint for a syntax error of Python in a line; empty where nothing is known."""
    if line.rstrip().endswith(("++", "--")):
        sign, before = line.rstrip()[-1], line.strip()[:-2].strip()
        if "=" in before:
            return f"write {before.rpartition('=')[2].strip()} {sign}= 1 on a line of its own"
        return f"write {before} {sign}= 1«/ *[+-][+-] *$/ {sign}= 1/»"
    near = line[max(0, column - 2) : column + 3]
    return NEAR_THE_ERROR.hint(near) or OF_LINES.hint(line.strip()) or OF_PARSER.hint(message)


class Places:
    """Finds the span of a node: `ast` counts columns in bytes and lines from 1, a span in characters."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._lines = source.text.split("\n")
        self._is_ascii = source.text.isascii()
        self._spans: dict[Place, Span] = {}

    def __call__(self, node: Place) -> Span:
        """The whole stretch of text that the node was parsed from."""
        span = self._spans.get(node)
        if span is None:
            span = self._spans[node] = self._span(node)
        return span

    def _span(self, node: Place) -> Span:
        end_line = node.end_lineno or node.lineno
        end = node.col_offset + 1 if node.end_col_offset is None else node.end_col_offset
        first = self.source.first_line - 1
        return Span(
            self.source,
            node.lineno + first,
            self._column(node.lineno, node.col_offset),
            end_line + first,
            self._column(end_line, end),
        )

    def head(self, node: ast.stmt) -> Span:
        """The line on which a statement begins: of a definition, that of its name."""
        whole = self(node)
        end = len(self._lines[node.lineno - 1].rstrip())
        return Span(self.source, whole.line, whole.column, whole.line, end)

    def first_line(self, node: ast.stmt) -> Span:
        """A statement, without the lines below its first."""
        whole = self(node)
        return whole if whole.end_line == whole.line else self.head(node)

    def text(self, node: ast.expr) -> str:
        """The user's text of an expression."""
        # Not ast.get_source_segment, which takes the whole text apart at each call.
        if node.end_lineno is None or node.end_col_offset is None:
            return ast.unparse(node)
        lines = self._lines[node.lineno - 1 : node.end_lineno]
        if not lines:
            return ast.unparse(node)
        lines[-1] = lines[-1][: self._column(node.end_lineno, node.end_col_offset)]
        lines[0] = lines[0][self._column(node.lineno, node.col_offset) :]
        return "\n".join(lines)

    def before(self, node: ast.expr) -> str:
        """The text before an expression in its first line."""
        return self._lines[node.lineno - 1][: self._column(node.lineno, node.col_offset)]

    def _column(self, line: int, offset: int) -> int:
        if self._is_ascii or not 1 <= line <= len(self._lines):
            return offset
        return len(self._lines[line - 1].encode()[:offset].decode(errors="replace"))


def source_of(function: Callable[..., Any]) -> tuple[Source, ast.Module]:
    """The source of a Python function and its tree, with the line numbers of the file it stands in.

    Raises KernelSyntaxError for a function whose text Python does not keep (`exec`, a plain console).
    """
    try:
        refuse_other_text(function)
        lines, first = _lines_of(function)
    except (OSError, TypeError):
        raise no_text(getattr(function, "__name__", repr(function)), function) from None
    text = "".join(lines)
    dedented = textwrap.dedent(text)
    indent = len(lines[0]) - len(lines[0].lstrip())
    source = Source(dedented, label_of(inspect.unwrap(function).__code__.co_filename), first)
    if indent == 0:
        return source, parse(source)
    return _indented(text, source, indent)


_KEPT: WeakKeyDictionary[Callable[..., Any], list[str]] = WeakKeyDictionary()
"""The lines of the files of functions as they were when the functions were defined."""


def keep_text(function: Callable[..., Any]) -> None:
    """Keep the text of a function that is needed later: its file may be written anew, or be gone, by then."""
    plain = inspect.unwrap(function)
    if isinstance(plain, FunctionType):
        linecache.checkcache(plain.__code__.co_filename)
        if lines := linecache.getlines(plain.__code__.co_filename, plain.__globals__):
            _KEPT[plain] = lines


def _lines_of(function: Callable[..., Any]) -> tuple[list[str], int]:
    """The lines of a function and the number of the first; raises OSError or TypeError without its text."""
    plain = inspect.unwrap(function)
    kept = _KEPT.get(plain)
    if kept is None:
        return inspect.getsourcelines(function)
    first = plain.__code__.co_firstlineno
    if first > len(kept):
        raise OSError
    return inspect.getblock(kept[first - 1 :]), first


_WITHOUT_TEXT = {
    "<dynamic-code>": "cloudpickle left its text behind: define it in a %%kernel cell, or with @kl.func",
    "<timed exec>": "%%time keeps no text of its cell: define it in a cell before, or take %%time away",
}
"""What to do about functions of files that Python never has."""


def no_text(name: str, function: Callable[..., Any]) -> KernelSyntaxError:
    """The error of a function whose text Python does not keep."""
    message = f"the source text of {name} cannot be found, so it cannot be compiled"
    file = getattr(getattr(inspect.unwrap(function), "__code__", None), "co_filename", "")
    hint = "define it in a file or a notebook cell, or pass its text to kl.compile(text)"
    return KernelSyntaxError.of(message, "source", _WITHOUT_TEXT.get(file, hint))


def refuse_other_text(function: Callable[..., Any]) -> None:
    """Raise OSError where the text that Python keeps is not what the function was made of.

    Text that is not in a file goes by a name like `<string>`, which other text may have, too: from Python
    3.13 on, what `exec` runs under `python -c` is looked for in the text of the command line.  Raises
    KernelSyntaxError where the file of a module has been written anew since it was imported.
    """
    plain = inspect.unwrap(function)
    code = getattr(plain, "__code__", None)
    if code is None:
        return
    is_nameless = code.co_filename in ("<string>", "<stdin>")
    module = plain.__globals__
    is_in_file = code.co_filename == module.get("__file__")
    # Other loaders may change what they compile, as that of pytest does.
    if not is_nameless and not (is_in_file and type(module.get("__loader__")) is SourceFileLoader):
        return
    linecache.checkcache(code.co_filename)
    lines = _KEPT.get(plain) or linecache.getlines(code.co_filename)
    if code in _codes_in("".join(lines), code.co_filename):
        return
    if is_nameless:
        raise OSError
    message = f"{label_of(code.co_filename)} has changed since {plain.__name__} was imported from it"
    raise KernelSyntaxError.of(message, "source", "import it anew: importlib.reload(module)")


@lru_cache(16)
def _codes_in(text: str, file: str) -> frozenset[CodeType]:
    """The code of all that is defined in a text; of none where it is not Python."""
    try:
        return frozenset(codes_of(compile(text, file, "exec", dont_inherit=True)))
    except SyntaxError:
        return frozenset()


def codes_of(code: CodeType) -> Iterator[CodeType]:
    """The code of a text, and of all that is defined in it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from codes_of(inner)


def annotations_of(stated: Any) -> dict[str, Any]:
    """The annotations of a function or a class, as Python has them; as text where a name is not known yet.

    From Python 3.14 on annotations are evaluated when they are asked for.
    """
    try:
        return dict(getattr(stated, "__annotations__", {}))
    except NameError:
        later = import_module("annotationlib")
        return dict(later.get_annotations(stated, format=later.Format.STRING))


def _indented(text: str, dedented: Source, indent: int) -> tuple[Source, ast.Module]:
    # Parsed without its indentation, shown with it: columns in messages are those of the file.
    tree = parse(dedented)
    for node in nodes(tree):
        if isinstance(node, ast.stmt | ast.expr | ast.arg | ast.keyword):
            node.col_offset += indent
            if node.end_col_offset is not None:
                node.end_col_offset += indent
    return Source(text, dedented.label, dedented.first_line), tree


def file_of(function: Callable[..., Any]) -> tuple[Source, ...]:
    """The whole text that a Python function stands in; nothing where Python does not keep it."""
    name = inspect.unwrap(function).__code__.co_filename
    text = "".join(_KEPT.get(inspect.unwrap(function)) or linecache.getlines(name))
    return (Source(text, label_of(name)),) if text else ()


# ---------------------------------------------------------------------------------------------------- lambdas


Position = tuple[int, int]


def lambda_of(function: Callable[..., Any], label: str) -> tuple[Source, ast.Module]:
    """The text around a lambda, with a tree in which it is a def; raises KernelSyntaxError without a text."""
    code = function.__code__
    try:
        refuse_other_text(function)
        lines, _ = inspect.findsource(function)
        tree = module_of("".join(lines))
    except (OSError, SyntaxError):
        raise no_text("this lambda", function) from None
    source = Source("".join(lines), label)
    lambdas = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda) and _is_of(node, code)]
    if not lambdas:
        raise no_text("this lambda", function)
    inner = min(lambdas, key=lambda node: (_end(node.body)[0] - node.body.lineno, _length(node.body)))
    body = ast.copy_location(ast.Return(inner.body), inner.body)
    definition = ast.FunctionDef("lambda", inner.args, [body], [])
    return source, ast.Module([ast.copy_location(definition, inner)], [])


def _is_of(node: ast.Lambda, code: CodeType) -> bool:
    """Whether all of the code was made from the lambda's body."""
    names = [argument.arg for argument in parameters(node.args)]
    if names != list(code.co_varnames[: len(names)]) or node.lineno != code.co_firstlineno:
        return False
    first, last = (node.body.lineno, node.body.col_offset), _end(node.body)
    return all(
        first <= (line, column) and (end_line, end_column) <= last
        for line, end_line, column, end_column in code.co_positions()
        if line is not None and end_line is not None and column is not None and end_column
    )


def _end(node: ast.expr) -> Position:
    return node.end_lineno or node.lineno, node.end_col_offset or 0


def _length(node: ast.expr) -> int:
    return _end(node)[1] - node.col_offset
