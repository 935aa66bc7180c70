"""Provenance of arrays that an unrecorded launch computed.

A launch outside of every tape, or in a thread where none is open, may be meant to be differentiated through.
It leaves its origin with the memory that it writes, where both sides require gradients; a tape that later
takes that memory for a leaf can say what is missing.  ``record_tape=False`` says that nothing is missing.
"""

import sys
import warnings
import weakref
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from threading import get_ident

from kernelab.errors import Diagnostic, KernelWarning, Related
from kernelab.runtime.context.recorder import Place, caller, user_frame
from kernelab.runtime.memory.memory import Allocation


@dataclass(frozen=True, slots=True)
class Origin:
    """An unrecorded launch: its kernel, its line, its thread, and the memory with gradients that it read."""

    kernel: str
    place: Place
    thread: int
    sources: "Sequence[weakref.ref[Allocation]]"

    @property
    def alive(self) -> list[Allocation]:
        """The memory that it read, as far as anybody still has it and no gradient has reached it."""
        held = [source() for source in self.sources]
        return [memory for memory in held if memory is not None and memory.adjoint is None]

    def explain(self, name: str, reader: Place, entered_by: int) -> Diagnostic:
        """The diagnostic for a tape that reads `name`, which this launch computed: no gradient passes it."""
        elsewhere = self.thread != entered_by
        where = "in another thread" if elsewhere else "outside of the tape"
        hint = "launch it inside `with tape:`" + (", in the thread of the `with`" if elsewhere else "")
        return Diagnostic(
            f"no gradient flows through the launch of `{self.kernel}`, which computed {name} {where}",
            self.place.span,
            "unrecorded-launch",
            hint=f"{hint}; if the gradient is meant to end there, pass record_tape=False to it",
            related=(Related("the tape reads its result here:", reader.span),),
        )


def note_origin(kernel: str, read: Iterable[Allocation], written: Collection[Allocation]) -> None:
    """Leave with what an unrecorded launch has written that it came from arrays with gradients."""
    sources = (memory for memory in read if memory.requires_grad and memory.adjoint is None)
    refs = [weakref.ref(memory) for memory in sources if memory not in written]
    if not refs:
        return
    frame = user_frame(sys._getframe(3))  # behind `run`, and what has called it
    code, instruction, thread = frame.f_code, frame.f_lasti, get_ident()
    for memory in written:
        if memory.requires_grad:
            memory.origin = (memory.version, kernel, code, instruction, thread, refs)


def origin_of(memory: Allocation) -> Origin | None:
    """The unrecorded launch that computed the memory, if any."""
    if memory.origin is None:
        return None
    _, kernel, code, instruction, thread, refs = memory.origin
    lines = (line for start, stop, line in code.co_lines() if start <= instruction < stop)
    return Origin(kernel, Place(code.co_filename, next(lines, None) or code.co_firstlineno), thread, refs)


def tell_what_is_missing(memory: Allocation) -> None:
    """Warn, once, that a backward pass could not reach an array whose gradient is asked for."""
    missing, memory.missing = memory.missing, None
    if missing is not None:
        message = missing if isinstance(missing, Diagnostic) else missing(memory)
        place = caller()
        warnings.warn_explicit(message.render(), KernelWarning, place.filename, place.line)
