"""Hooks: functions that lower layers call and higher layers provide.

Arithmetic on arrays runs kernels, and kernels are built on arrays.  The import goes one way only: a hook has
the name of the module that provides its function, which is imported at the first call.  The progress of long
computations is told through one: they must not know who displays it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Hook(Generic[P, R]):
    """A function that a module of kernelab provides, further to the right."""

    def __init__(self, module: str) -> None:
        self.module = module
        self._function: Callable[P, R] | None = None

    def provide(self, function: F) -> F:
        """Call `function` from now on; a decorator."""
        self._function = function
        return function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        function = self._function
        if function is None:
            import_module(self.module)
            function = self._function
            assert function is not None, f"{self.module} provides no such function"
        return function(*args, **kwargs)


class Displayed:
    """A base of what a notebook shows as a view when it is the value of a cell."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return display(self, include)


class Printed(Displayed):
    """The same of what prints as the text of its view."""

    __slots__ = ()

    def __str__(self) -> str:
        return str(display(self, frozenset({"text/plain"}))["text/plain"])


class ShownOnce(Displayed):
    """The same of what is shown when it is made: the cell `shown_in`, which has shown it, does not again."""

    __slots__ = ()

    def _ipython_display_(self) -> None:
        show_once(self)


word: "Hook[[str], Any]" = Hook("kernelab.language")
"""What a word of the language is outside of kernels; KernelAttributeError for other names."""

operate: "Hook[[str, Sequence[Any]], Any]" = Hook("kernelab.runtime.ops.elementwise")
"""An operator applied to arrays and numbers, element by element."""

mapped: "Hook[..., Any]" = Hook("kernelab.runtime.ops.elementwise")
"""`kl.map`: a function applied to the elements of arrays."""

change: "Hook[[str, Any, Any], Any]" = Hook("kernelab.runtime.ops.elementwise")
"""An operator such as `+=` applied in place."""

store: "Hook[[Any, Any], None]" = Hook("kernelab.runtime.ops.elementwise")
"""The elements of one array copied into another, cast and broadcast."""

total: "Hook[[Any, int | None, Any, bool, bool], Any]" = Hook("kernelab.runtime.ops.reductions")
"""The sum or the mean of an array, or along an axis of it, as an array or into one."""

extremum: "Hook[[Any, int | None, bool, str], Any]" = Hook("kernelab.runtime.ops.reductions")
"""The largest or smallest element of an array, or along an axis of it, as an array."""

matmul: "Hook[[Any, Any], Any]" = Hook("kernelab.runtime.ops.reductions")
"""The product of matrices and vectors."""

convert: "Hook[[Any, Any], Any]" = Hook("kernelab.runtime.ops.reductions")
"""A copy of an array with another dtype."""

pick: "Hook[[Any, tuple[Any, ...]], Any]" = Hook("kernelab.runtime.ops.indexed")
"""The elements of an array at indices."""

compile_entry: "Hook[[str, str], Callable[[bytes], None]]" = Hook("kernelab.runtime.kernel.texts")
"""The entry of the kernel with that name in a text."""

filled: "Hook[[Any, tuple[Any, ...]], None]" = Hook("kernelab.runtime.context.recorder")
"""Numbers with these origins were assigned to elements of a view of NumPy's over an allocation."""

run: "Hook[[Any, Any, list[Any]], None]" = Hook("kernelab.runtime.launch.launch")
"""A kernel launched on a grid with its arguments."""

call: "Hook[[Any, Sequence[Any], Mapping[str, Any]], Any]" = Hook("kernelab.runtime.ops.function_calls")
"""A function for kernels called from Python, with arguments by position and by name."""

chosen: "Hook[[Any, Sequence[Any], Mapping[str, Any]], Any]" = Hook("kernelab.runtime.ops.function_calls")
"""Which of the functions of one name a call from Python means."""

textbook: "Hook[[Any, Iterable[str] | None], Any]" = Hook("kernelab.runtime.ops.function_calls")
"""The derivatives of a function for kernels as textbooks write them."""

launch: "Hook[..., Any]" = Hook("kernelab.runtime.launch.launch")
"""`kl.launch`."""

check_rules: "Hook[[Any], None]" = Hook("kernelab.autodiff.rule_checks.rule_check")
"""Warnings of the wrong derivative rules in a program."""

compare_host_rule: "Hook[[Any, Sequence[Any]], None]" = Hook("kernelab.autodiff.rule_checks.host_rule_check")
"""A warning of the wrong derivative rule of a Python function."""

display: "Hook[[Any, Any], dict[str, Any]]" = Hook("kernelab.views")
"""The forms in which a notebook shows an object, by MIME type: all of them, or those to be included."""

show_once: "Hook[[Any], None]" = Hook("kernelab.views.pages.display")
"""The display of what is the value of a cell, unless that cell has shown it already."""

widget: "Hook[[Any, dict[str, str]], dict[str, Any]]" = Hook("kernelab")
"""What a running notebook shows of a tape or a live view, given its static forms."""

picture: "Hook[[Any], str]" = Hook("kernelab.views.tape.tape_view")
"""A tape as the text of an SVG file."""

matrices: "Hook[[Any], str]" = Hook("kernelab.views.checks.heatmap")
"""Jacobians as text."""

graph: "Hook[..., str]" = Hook("kernelab.warp.tape_graph")
"""A tape as the text of a DOT file."""

text: "Hook[[Any], str]" = Hook("kernelab.views.kernel.kernel_facts")
"""A function of the IR as readable text."""

error_lines: "Hook[[Any], list[str]]" = Hook("kernelab.views.pages.display")
"""The lines that a notebook shows of an error."""

watch: "Hook[[Any], Callable[[], Any]]" = Hook("kernelab.views.pages.display")
"""The display of a long computation, to be called after each step."""


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
