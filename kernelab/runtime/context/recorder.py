"""The current recorder of launches, its base class, and the line of the user's code that called.

The runtime reports to the recorder of the current context; it knows no tape.
"""

import linecache
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, ClassVar, TypeVar

from kernelab import hooks
from kernelab.data_classes import dataclass
from kernelab.errors import (
    Diagnostic,
    GradientError,
    KernelError,
    Source,
    Span,
    label_of,
    running_shell,
    warn_once,
)
from kernelab.host.traced import Origins, origins
from kernelab.settings import during

Elements = Any
"""An array; its class reports to the recorder."""


class Recorder:
    """What the runtime reports launches, copies and writes to; what a recorder does not override, it ignores.

    With `copies_again` it repeats each copy that it is told of: the source must still hold its elements
    then.  It `is_checked` where it recorded a launch in checked mode.  `call_type` is the class of
    the calls that it gets, if it is a subclass of `launch.Call`.
    """

    is_checked = False
    copies_again = True
    call_type: ClassVar[Any] = None

    def launch(self, call: Any) -> None:
        """Run a validated launch, a `launch.Call`, and record it."""
        raise NotImplementedError

    def left_out(self, call: Any) -> None:
        """A validated launch that is not to be recorded is about to run."""

    def adjoint_alone(self, what: str, arguments: Sequence[Elements]) -> None:
        """An adjoint or a backward pass is about to compute gradients of some arrays, unrecorded."""

    def gone_back(self, sources: Sequence[Elements], bars: Sequence[Any]) -> None:
        """An adjoint or a backward pass has changed the memory `bars`, gradients computed from arrays."""

    def launched_nothing(self, name: str, targets: Sequence[Elements], arguments: Sequence[Any]) -> None:
        """A launch of the kernel of this name had no threads, so it did not write to `targets`."""

    def copied(self, dest: Elements, src: Elements, how: str) -> None:
        """`dest` now holds the elements of `src`; `how` names the operation."""

    def overwritten(self, dest: Elements, how: str, data: Any = None) -> None:
        """`dest` now holds values of the host's, made of `data`; `how` names the operation."""

    def called_host(self, call: Any, arguments: Sequence[Elements], results: Sequence[Elements]) -> None:
        """A Python function with a derivative of its own has run; `call` is a `HostCall`."""

    def follows_floats(self, memory: Any) -> bool:
        """Whether this recorder has to know of every float that is written to some memory, at once."""
        return False

    def looked_at(self, elements: Elements) -> Origins:
        """The host gets the values of an array; the origins that these are to carry."""
        return ()

    def refused(self, reason: Diagnostic) -> None:
        """Something was refused for this reason, by an error that the user's function may catch."""

    def refusing(self, error: GradientError) -> GradientError:
        """The error of a refusal, to be raised, which this recorder has noted."""
        self.refused(error.diagnostics[0])
        return error

    def unreadable(self, elements: Elements) -> Diagnostic | None:
        """Explain why the host cannot read an array, whose lanes differ; None where it can."""
        return None

    def tabulate(self, target: Elements, sources: Sequence[Elements], compute: Callable[..., Any]) -> None:
        """Set a new array of ints to what the host computes of the values of others."""
        target.blank()[...] = compute(*(source.seen() for source in sources))

    def marked_read(self, elements: Elements) -> None:
        """Code that is not a kernel has read an array."""

    def made_from_host(self, elements: Elements, data: Any = None) -> None:
        """An array was made of values that the host had, of `data`."""

    def filled(self, memory: Any, sources: Origins) -> None:
        """Numbers with these origins went into some memory through a view of NumPy's."""

    def used_outside(self, elements: Elements, by_host: bool) -> Origins:
        """An array is used where this recorder sees nothing: in another thread, or in a rule (`IN_RULE`).

        Returns what the values are to carry that the host gets.
        """
        return ()

    def made_outside(self, elements: Elements, data: Any) -> None:
        """An array was made, or set, from host data where this recorder sees nothing."""

    def computed_outside(self, read: Sequence[Elements], written: Sequence[Elements]) -> None:
        """Arrays were computed from others, or copied, where this recorder sees nothing."""

    def tells(self, other: "Recorder") -> bool:
        """Whether another recorder hears of what this one does."""
        return other is self

    def scope_begin(self, name: str, metadata: Any = None) -> None:
        """Open a named scope; everything until its end belongs to it."""

    def scope_end(self, drop_if_empty: bool = True) -> bool:
        """The innermost scope ends here; False if none is open."""
        return True


RECORDER: ContextVar[Recorder | None] = ContextVar("kernelab recorder", default=None)
"""The recorder of this thread and context, if one is recording."""


ENTERED: list[Recorder] = []
"""The recorders that hear of arrays which are used outside of them: transforms that run, in any thread."""


IN_RULE: ContextVar[int] = ContextVar("kernelab in a rule", default=0)
"""Not 0 while a Python function with a derivative of its own runs, unrecorded, on copies of its arguments.

It is a number that differs between runs, and that memory made in this one exceeds.
"""


GIVEN: ContextVar[list[Any] | None] = ContextVar("kernelab given in a rule", default=None)
"""While such a function runs: the origins of the numbers that it gives to launches and makes arrays of."""


def note_given(numbers: Any, captured: Origins = ()) -> None:
    """Note the origins of numbers that are used unrecorded, and of those that the user of them captured."""
    given = GIVEN.get()
    if given is not None:
        given += (*origins(numbers), *captured)


def note_unrecorded(elements: Elements, data: Any) -> None:
    """Note an array that is made, or set, from host data while nothing records in this thread."""
    note_given(data)
    for recorder in tuple(ENTERED):
        recorder.made_outside(elements, data)


def notify_outside_use(
    arrays: Sequence[Elements], by_host: bool = False, written: Sequence[Elements] = ()
) -> Origins:
    """To be called where arrays are used, by the host or by a launch: tells observers who would miss it.

    `written` are those that are about to be computed from the others.  Returns what the values are to carry
    that the host gets.
    """
    present = RECORDER.get()
    origins: Origins = ()
    for recorder in tuple(ENTERED):
        if present is None or not present.tells(recorder):
            for elements in (*arrays, *written):
                origins += recorder.used_outside(elements, by_host)
            if written:
                recorder.computed_outside(arrays, written)
    return origins


@contextmanager
def observing_outside_use(recorder: Recorder | None) -> Iterator[None]:
    """A context in which a recorder, if there is one, hears of arrays that are used outside of it."""
    if recorder is not None:
        ENTERED.append(recorder)
    try:
        yield
    finally:
        if recorder is not None:
            ENTERED.remove(recorder)


_CALLERS = 4
"""In how many callers of the launching code the name of an array is looked up."""


@dataclass(slots=True, unsafe_hash=True)
class Place:
    """A line of the user's code.

    Nothing changes it.  It is not declared frozen because making it would then take twice the time.
    """

    filename: str
    line: int

    def __str__(self) -> str:
        return f"{label_of(self.filename)}, line {self.line}"

    @property
    def span(self) -> Span:
        """The line, for a diagnostic."""
        lines = linecache.getlines(self.filename)
        text = _without_comment(linecache.getline(self.filename, self.line).rstrip("\n"))
        start = len(text) - len(text.lstrip())
        source = Source("".join(lines), label_of(self.filename))
        return Span(source, self.line, start, self.line, max(start + 1, len(text)))


def _without_comment(line: str) -> str:
    try:
        for token in tokenize.generate_tokens(iter((line,)).__next__):
            if token.type == tokenize.COMMENT:
                return line[: token.start[1]].rstrip()
    except (tokenize.TokenError, SyntaxError):
        return line  # a part of a statement
    return line


def caller(depth: int = 0) -> Place:
    """The line of the user's code that called into kernelab, `depth` frames of which need no look."""
    nearest = sys._getframe(1 + depth)
    cached = _PLACES.get((id(nearest.f_code), nearest.f_lasti))  # no code but the user's is there
    if cached is not None:
        return cached[1]
    frame = user_frame(nearest)
    code, at = frame.f_code, frame.f_lasti
    cached = _PLACES.get((id(code), at))
    if cached is not None:
        return cached[1]
    if len(_PLACES) == _MOST_PLACES:
        _PLACES.clear()
    place = _place(code.co_filename, frame.f_lineno)
    _PLACES[id(code), at] = code, place
    return place


_MOST_PLACES = 4096
_PLACES: dict[tuple[int, int], tuple[CodeType, "Place"]] = {}
"""The lines of instructions, by code, which this keeps: to find one is slow in long code."""

_place = lru_cache(_MOST_PLACES)(Place)


Error = TypeVar("Error", bound=KernelError)


def refusal(kind: type[Error], message: str, code: str, hint: str = "") -> Error:
    """An error that points at the line of the user's code that called into kernelab."""
    return kind(Diagnostic(message, caller().span, code, hint=hint))


def warn_at(message: str, code: str, hint: str, place: Place | None = None, span: Span | None = None) -> None:
    """Warn, with KernelWarning, at a line of the user's code: the one that called into kernelab unless given.

    The message shows that line, or the `span` of a kernel's text.
    """
    place = caller() if place is None else place
    warn(Diagnostic(message, place.span if span is None else span, code, "warning", hint=hint), place)


def warn(diagnostic: Diagnostic, place: Place | None = None) -> None:
    """The same of a diagnostic, whatever line its message shows; once a line in a run of a cell."""
    place = caller() if place is None else place
    warn_once(diagnostic, place.filename, place.line)


_TOLD: set[tuple[str, Place]] = set()
"""The information that has been given, each once for a line of the user's code."""


def inform(message: Callable[[], str], hint: str, code: str) -> None:
    """Write a line of information, which is not a warning, once for a line of the user's code.

    The message is composed only when it is written: to find the names of arrays takes longer than a launch.
    """
    place = caller()
    if (code, place) not in _TOLD:
        _TOLD.add((code, place))
        stream = sys.stderr if running_shell() is None else sys.stdout
        if stream is not None:
            stream.write(f"{place}: {message()} ({hint})\n")


_BETWEEN = (
    "kernelab.",
    "contextlib",
    "functools",
    "torch.",
    "jax.",
    "scipy.",
    "cloudpickle.",
    "dask.",
    "distributed.",
)
"""How the names of modules begin whose code is not the user's, though it calls on."""


def user_frame(frame: FrameType) -> FrameType:
    """The frame itself, if it runs code of the user's, else the nearest around it that does."""
    # A caller is asked for only where it matters: Python makes an object for each.
    while frame.f_globals.get("__name__", "").startswith(_BETWEEN) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def name_in_caller(value: object) -> str | None:
    """The name under which the calling user code holds an object, or the code that called that, if any."""
    return next((name for name, other in _names() if other is value), None)


def called(value: object, otherwise: str = "an array") -> str:
    """The name of an object in a message: its variable in the calling code, if it has one."""
    name = name_in_caller(value)
    return f"`{name}`" if name else otherwise


def name_of_memory(memory: object) -> str | None:
    """The name under which the calling user code, or what called that, holds an array over an allocation."""
    return names_of_memories([memory]).get(memory)


def names_of_memories(memories: Iterable[Any]) -> dict[Any, str]:
    """The same of several allocations, as far as they have names, from one search."""
    wanted = {id(memory): memory for memory in memories}
    names: dict[int, str] = {}
    for name, value in _names():
        memory = id(getattr(value, "allocation", None)) if hasattr(type(value), "allocation") else None
        if memory in wanted:
            names.setdefault(memory, name)
    return {wanted[memory]: name for memory, name in names.items()}


def _names() -> Iterator[tuple[str, object]]:
    """The user's names and what they stand for, from the code that called kernelab outwards.

    Behind them come the arrays that structs hold, by the names of their fields: `s.k`.
    """
    frame = user_frame(sys._getframe(1))
    scopes = [frame.f_locals, frame.f_globals]
    for _ in range(_CALLERS):
        if frame.f_back is not None:
            frame = frame.f_back
            scopes.append(frame.f_locals)
    found = [pair for names in scopes for pair in tuple(names.items()) if not pair[0].startswith("_")]
    yield from found
    for name, value in found:
        if hasattr(type(value), "__kernelab_struct__"):
            yield from value._named(name)


def made_from_host(elements: Elements, data: Any) -> None:
    """Tell the recorder that an array was made of values that the host had, of `data`."""
    recorder = RECORDER.get()
    if recorder is not None:
        recorder.made_from_host(elements, data)
    else:
        note_unrecorded(elements, data)


@hooks.filled.provide
def filled(memory: Any, sources: Origins) -> None:
    """Tell the recorder that numbers with origins went into some memory through a view of NumPy's."""
    recorder = RECORDER.get()
    if recorder is not None:
        recorder.filled(memory, sources)


def unrecorded() -> AbstractContextManager[None]:
    """A context in which no tape records."""
    return during(RECORDER, None)
