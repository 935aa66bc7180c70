"""Hooks: functions that lower layers call and higher layers provide.

Arithmetic on arrays runs kernels, and kernels are built on arrays.  The import goes one way only.  The
package's own module says which module provides each; that is imported at the first call.  The progress of
long computations is told through one: they must not know who displays it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Hook(Generic[P, R]):
    """A function that a module further to the right provides."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.module = ""
        self._function: Callable[P, R] | None = None

    @property
    def is_provided(self) -> bool:
        """Whether some module has provided the function."""
        return self._function is not None

    def provide(self, function: F) -> F:
        """Call `function` from now on; a decorator."""
        self._function = function
        return function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        function = self._function
        if function is None:
            import_module(self.module)
            function = self._function
            assert function is not None, f"{self.module} does not provide {self.name}"
        return function(*args, **kwargs)


class Displayed:
    """A base of what a notebook shows as a view when it is the value of a cell."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return display(self)


operate: "Hook[[str, Sequence[Any]], Any]" = Hook("operate")
"""An operator applied to arrays and numbers, element by element (`elementwise`)."""

change: "Hook[[str, Any, Any], Any]" = Hook("change")
"""An operator such as `+=` applied in place (`elementwise`)."""

store: "Hook[[Any, Any], None]" = Hook("store")
"""The elements of one array copied into another, cast and broadcast (`reductions`)."""

total: "Hook[[Any, int | None, Any, bool], Any]" = Hook("total")
"""The sum or the mean of an array, or along an axis of it, as an array or into one (`reductions`)."""

matmul: "Hook[[Any, Any], Any]" = Hook("matmul")
"""The product of matrices and vectors (`reductions`)."""

convert: "Hook[[Any, Any], Any]" = Hook("convert")
"""A copy of an array with another dtype (`reductions`)."""

pick: "Hook[[Any, tuple[Any, ...]], Any]" = Hook("pick")
"""The elements of an array at indices (`indexed`)."""

compile_entry: "Hook[[str, str], Callable[[bytes], None]]" = Hook("compile_entry")
"""The entry of the kernel with that name in a text (`kernel`)."""

run: "Hook[[Any, Any, list[Any]], None]" = Hook("run")
"""A kernel launched on a grid with its arguments (`launch`)."""

call: "Hook[[Any, Sequence[Any], Mapping[str, Any]], Any]" = Hook("call")
"""A function for kernels called from Python, with arguments by position and by name (`function_calls`)."""

textbook: "Hook[[Any, Iterable[str] | None], Any]" = Hook("textbook")
"""The derivatives of a function for kernels as textbooks write them (`function_calls`)."""

launch: "Hook[..., Any]" = Hook("launch")
"""`kl.launch` (`launch`)."""

check_rules: "Hook[[Any], None]" = Hook("check_rules")
"""Warnings of the wrong derivative rules in a program (`rule_check`)."""

display: "Hook[[Any], dict[str, Any]]" = Hook("display")
"""The forms in which a notebook shows an object, by MIME type (`views`)."""

widget: "Hook[[Any, dict[str, str]], dict[str, Any]]" = Hook("widget")
"""What a running notebook shows of a tape or a live view, given its static forms (the package itself)."""

picture: "Hook[[Any], str]" = Hook("picture")
"""A tape as the text of an SVG file (`views`)."""

graph: "Hook[..., str]" = Hook("graph")
"""A tape as the text of a DOT file (`tape_graph`)."""

text: "Hook[[Any], str]" = Hook("text")
"""A function of the IR as readable text (`views`)."""

error_lines: "Hook[[Any], list[str]]" = Hook("error_lines")
"""The lines that a notebook shows of an error (`display`)."""

watch: "Hook[[Any], Callable[[], Any]]" = Hook("watch")
"""The display of a long computation, to be called after each step (`display`)."""


class Progress:
    """The state of a long computation; `watcher` creates the display that is updated after each step.

    A `total` of 0 is one that nobody knows; the `note` stands behind the bar.
    """

    watcher: Callable[["Progress"], Callable[[], Any]] = watch

    def __init__(self, what: str, total: int, done: int = 0) -> None:
        self.what, self.total, self.done, self.note = what, total, done, ""


def steps(what: str, items: Sequence[T]) -> Iterator[T]:
    """The items, one after another, each a step of some work that a message can name.

    A range counts as much as it is long: a stretch of rows as so many rows.
    """
    watcher = Progress.watcher
    if len(items) < 2:
        yield from items
        return
    progress = Progress(what, sum(map(_amount, items)))
    tell = watcher(progress)
    try:
        for item in items:
            yield item
            progress.done += _amount(item)
            tell()
    finally:
        if progress.done < progress.total:  # an error, or nobody asked for the rest
            progress.total = progress.done
            tell()


def _amount(item: object) -> int:
    return len(item) if isinstance(item, range) else 1
