"""Source locations, diagnostics, and the exceptions that users meet.

Knows nothing of kernels and arrays, and of notebooks only what their cells are called: a `Source` is labelled
text, a `Span` a stretch of it, a `Diagnostic` one sentence about a span, and a `KernelError` carries
diagnostics.  Everything else in the package raises these.
"""

import difflib
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import PurePath
from typing import Any, Literal, Self

from kernelab import hooks
from kernelab.data_classes import dataclass, field

Severity = Literal["error", "warning", "information"]

MAX_SHOWN = 10
"""How many diagnostics one error message shows."""


def running_shell() -> Any:
    """The shell of IPython that is running, None without one; nothing here imports IPython."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def label_of(filename: str) -> str:
    """The label of a file in messages: ``Cell In[3]`` for a cell of a notebook, else the file's name."""
    describe = getattr(getattr(running_shell(), "compile", None), "format_code_name", lambda _: None)
    described = describe(filename)
    if described:
        return " ".join(described)
    return filename if filename.startswith("<") else PurePath(filename).name


_OUR_NAME = re.compile(r"(?<![\w.])kl\.(?=\w)")


def as_imported(text: str) -> str:
    """A message with the name that the notebook or script has given to the package: ``wp.`` for ``kl.``."""
    package = sys.modules["kernelab"]
    names = [name for name, value in list(vars(sys.modules["__main__"]).items()) if value is package]
    return text if "kl" in names or not names else _OUR_NAME.sub(f"{names[0]}.", text)


def shown_type(value: object) -> type:
    """The type that a message names: of numbers with origins, that of the numbers that they stand for."""
    return getattr(type(value), "_stands_for", type(value))


def type_name(value: object) -> str:
    """The name of the type that a message names."""
    return shown_type(value).__name__


def name_of(func: object) -> str:
    """The name of a function in messages."""
    return getattr(func, "__name__", None) or type(func).__name__


def a_thing(value: object) -> str:
    """The type of a value for messages: "a list", "an array"."""
    if value is None:
        return "None"
    name = value.__name__ if isinstance(value, type) else type_name(value)
    return "a NumPy array" if name == "ndarray" else with_article(name)


def with_article(name: object) -> str:
    """A noun after its article: "an int32", "a uint8"."""
    return f"{'an' if str(name)[:1].lower() in 'aeio' else 'a'} {name}"


_PLURALS = {"axis": "axes", "entry": "entries", "index": "indices", "launch": "launches"}


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 entry", "2 entries"."""
    return f"{number} {noun if number == 1 else _PLURALS.get(noun, noun + 's')}"


def told_apart(one: float, other: float) -> tuple[str, str]:
    """Two numbers in as many digits, four at least, as show that they differ."""
    pairs = [(f"{one:.{digits}g}", f"{other:.{digits}g}") for digits in range(4, 18)]
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])


def near(name: str, names: Iterable[str], otherwise: str = "", cutoff: float = 0.6) -> str:
    """A hint for a name that is not there: the most similar one of some names, else `otherwise`."""
    close = closest(name, names, cutoff)
    return f"did you mean {close}?" if close else otherwise


def closest(name: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """The most similar one of some names, empty if none is similar."""
    size = len(name)
    able = [one for one in names if 2 * min(len(one), size) >= cutoff * (len(one) + size)]
    return next(iter(difflib.get_close_matches(name, able, 1, cutoff)), "")


@lru_cache(8)
def _lines(text: str) -> list[str]:
    return text.split("\n")


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """The text that kernels were written in, with the label a message shows for it (``Cell In[3]``)."""

    text: str
    label: str
    first_line: int = 1
    told: set[int] = field(default_factory=set)
    """The lines that a warning has named which is given once."""

    def line(self, number: int) -> str:
        """The text of a line, counted from `first_line`; empty outside the text."""
        lines = _lines(self.text)
        index = number - self.first_line
        return lines[index] if 0 <= index < len(lines) else ""

    def __repr__(self) -> str:
        return f"<source {self.label}>"


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of source text: lines count from 1, columns from 0, ends are exclusive in the column."""

    source: Source
    line: int
    column: int
    end_line: int
    end_column: int

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        return f"{self.source.label}, line {self.line}"

    @property
    def line_text(self) -> str:
        """The text of its first line, without the indent."""
        return self.source.line(self.line).strip()


NOWHERE = Span(Source("", "<generated>"), 1, 0, 1, 0)
"""The span of what no user wrote."""


def text_of(span: Span) -> str:
    """The text of an expression, the first line of a longer one."""
    line = span.source.line(span.line)
    is_one = span.end_line == span.line
    return (line[span.column : span.end_column] if is_one else line[span.column :].rstrip() + " ...").strip()


@dataclass(frozen=True, slots=True)
class Related:
    """Another place that a diagnostic speaks of, such as an earlier definition."""

    message: str
    span: Span


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding: the problem, its location, what was found there, and what to write instead.

    `code` is a stable short name for tools, `note` stands beside the caret, `hint` says what to do.  What the
    hint marks as «code» goes into `changes`, of which `jupyter.typed_kernels` makes edits.
    """

    message: str
    span: Span | None = None
    code: str = "error"
    severity: Severity = "error"
    note: str = ""
    hint: str = ""
    related: tuple[Related, ...] = ()
    changes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if "kl." in self.message or "kl." in self.hint:
            object.__setattr__(self, "message", as_imported(self.message))
            object.__setattr__(self, "hint", as_imported(self.hint))
        if "«" in self.hint:
            object.__setattr__(self, "changes", tuple(_MARKED.findall(self.hint)))
            object.__setattr__(self, "hint", _MARKED.sub(_shown, self.hint).strip())

    def render(self) -> str:
        """The finding as text: message, place, source line with a caret, hint."""
        parts = [self.message]
        if self.span is not None:
            parts += _excerpt(self.span, self.note)
        if self.hint:
            parts.append(f"  hint: {self.hint}")
        for other in self.related:
            if other.span == self.span:
                continue
            parts.append(f"  {other.message}")
            parts += _excerpt(other.span, "")
        return "\n".join(parts)

    def warn(self) -> None:
        """Warn, with KernelWarning, at the line of the span; without one, where the caller was called."""
        if self.span is None:
            warnings.warn(self.render(), KernelWarning, stacklevel=3)
        else:
            warn_once(self, self.span.source.label, self.span.line)


WARNED: list[Callable[[Diagnostic], None]] = []
"""Who hears of each warning at a line: a notebook's page keeps those that are open."""

_WARNED: dict[int | None, dict[str, dict[Any, Any]]] = {}
"""For the cell that runs, None outside of notebooks, what `warnings` knows of each file."""


def warn_once(diagnostic: Diagnostic, filename: str, line: int) -> None:
    """Warn, with KernelWarning, at a line: once in each run of a cell, as loops would repeat it.

    Filters decide, as they do for Python's own warnings.
    """
    cell = getattr(running_shell(), "execution_count", None)
    if cell not in _WARNED:
        _WARNED.clear()
    registry = _WARNED.setdefault(cell, {}).setdefault(filename, {})
    warnings.warn_explicit(diagnostic.render(), KernelWarning, filename, line, registry=registry)
    for listener in WARNED:
        listener(diagnostic)


_MARKED = re.compile("«(.*?)»", re.DOTALL)


def _shown(change: re.Match[str]) -> str:
    """The words of a marked part of a hint: the code itself, nothing where it is a substitution."""
    is_substitution = len(change[1]) > 1 and change[1].startswith("/")
    return "" if is_substitution else change[1].removeprefix("^")


EXCERPT = 88
"""How many characters of a line are shown: a page wraps longer ones, and carets below them stand anywhere."""


def _excerpt(span: Span, note: str) -> list[str]:
    text = span.source.line(span.line)
    place = [f"  {span}"]
    if not text.strip():
        return place
    end = span.end_column if span.end_line == span.line else len(text)
    start, end, text = _window(text, span.column, max(end, span.column + 1))
    gutter = f"{span.line:>5} | "
    caret = " " * (len(gutter) + start) + "^" * (end - start)
    return [*place, gutter + text, caret + (f"   {note}" if note else "")]


def _window(text: str, start: int, end: int) -> tuple[int, int, str]:
    """The columns of a part of a line and its text, both cut to what fits, "…" for what was left out."""
    indent = len(text) - len(text.lstrip())
    if len(text) > EXCERPT and indent <= start:
        text, start, end = text[indent:], start - indent, end - indent
    if len(text) <= EXCERPT:
        return start, end, text
    after = min(end + 20, len(text))
    first = min(max(0, after - EXCERPT), start)
    head = "… " if first else ""
    shown = head + text[first : first + EXCERPT] + (" …" if first + EXCERPT < len(text) else "")
    shift = len(head) - first
    return start + shift, min(end, first + EXCERPT) + shift, shown


class Diagnosed(BaseException):
    """Something raised that carries one or more diagnostics, and reads as they do."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__(*diagnostics)
        self.diagnostics = diagnostics

    def __str__(self) -> str:
        shown = [diagnostic.render() for diagnostic in self.diagnostics[:MAX_SHOWN]]
        hidden = len(self.diagnostics) - len(shown)
        if hidden > 0:
            shown.append(f"... and {hidden} more")
        return "\n\n".join(shown)

    def _render_traceback_(self) -> list[str]:
        return hooks.error_lines(self)

    def __reduce__(self) -> tuple[type["Diagnosed"], tuple[Diagnostic, ...]]:
        return type(self), self.diagnostics


class KernelError(Diagnosed, RuntimeError):
    """An error in the user's program, as one or more diagnostics.

    Every kind of it is a RuntimeError, by which programs written for Warp catch errors, and most are
    what Python raises for the same mistake, too.

    `failed` says which thread found it, in the terms of the backend; None where none did.
    """

    failed: object = None

    @classmethod
    def of(cls, message: str, code: str, hint: str = "", span: Span | None = None) -> Self:
        """The error of one finding."""
        return cls(Diagnostic(message, span, code, hint=hint))


class KernelInterrupt(Diagnosed, KeyboardInterrupt):
    """A kernel that was interrupted while it ran; as for every interrupt, `except Exception` lets it pass."""


class KernelSyntaxError(KernelError):
    """Text that is not Python, or Python that a kernel cannot contain."""


class KernelTypeError(KernelError, TypeError):
    """Values of types that do not go together."""


class KernelNameError(KernelError, NameError):
    """A name that means nothing here, or a variable that may be unset."""


class KernelAttributeError(KernelError, AttributeError):
    """A name that an object or a module does not have, with what to write instead."""

    @classmethod
    def of_name(cls, message: str, instead: str | None, name: str, known: Iterable[str] = ()) -> Self:
        """The error for a name: what to write instead where that is known, else a name that is near it."""
        hint = instead or ("" if name.startswith("_") else near(name, known, cutoff=0.7))
        return cls.of(message, "attribute", hint)


class KernelValueError(KernelError, ValueError):
    """A value that makes no sense where it stands."""


class KernelMemoryError(KernelError, MemoryError):
    """An array for which there is not enough memory."""


class KernelIndexError(KernelError, IndexError):
    """An array index outside the array, found while a kernel ran."""


class KernelKeyError(KernelError, KeyError):
    """A key under which there is nothing, with those there are."""


class KernelZeroDivisionError(KernelError, ZeroDivisionError):
    """An integer divided by zero, found while a kernel ran."""


class KernelAssertionError(KernelError, AssertionError):
    """An `assert` of a kernel that did not hold."""


class KernelRaceError(KernelError):
    """Threads of one launch that meet at an element which one of them stores to."""


class LaunchError(KernelError, TypeError):
    """Arguments of a launch that do not fit the kernel."""


class TapeError(KernelError):
    """A tape used in a way that gives no gradient."""


class BuildError(KernelError):
    """Generated code that could not be built or loaded."""


class GradientError(KernelError, ValueError):
    """A gradient that cannot be right, or a gradient check that failed."""


class NotFiniteError(KernelError, FloatingPointError):
    """A value or a gradient that turned NaN or infinite, with the place where it did."""


class MissingPackageError(KernelError, ImportError):
    """A package that kernelab can do without is not installed, and what was asked for needs it."""


def missing(wanted: str, package: str, extra: str) -> Diagnostic:
    """What to say where a package is not installed; `extra` is the one of kernelab that brings it."""
    hint = f"pip install 'kernelab[{extra}]'"
    return Diagnostic(
        f"{wanted} needs the package {package}, which is not installed", None, "package", hint=hint
    )


class KernelWarning(UserWarning):
    """Something that runs, but probably does not do what was meant."""
