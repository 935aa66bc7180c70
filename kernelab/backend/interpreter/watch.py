"""One thread of a program, run with every value seen: what each line loads, computes, stores and adds.

The interpreter runs it, whatever the kernel runs on otherwise.  Knows programs and packed arguments; must not
know what is made of the values.
"""

from dataclasses import dataclass
from typing import Any

from kernelab.backend.common import backends
from kernelab.backend.common.backends import Args
from kernelab.backend.interpreter.chunk import Bounds, Chunk
from kernelab.backend.interpreter.interpreter import Launch, entry
from kernelab.backend.interpreter.lanes import Frame, Numpy
from kernelab.codegen.common.entry import GRID_SLOTS
from kernelab.errors import Span
from kernelab.lang.ir import Atom, Atomic, For, Function, If, Let, Load, Loop, Restore, Stmt, Store

SIGNS = {"add": "+=", "min": "min=", "max": "max=", "and": "&=", "or": "|=", "xor": "^="}
"""How an atomic is written; others exchange values, which is written as an assignment."""


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """A value at a line: that of a variable, or of an element that was read, written or added to.

    `sign` is "=" for what is now so, else how the element was changed by the value.  `is_read` tells elements
    that were read from those that were written.
    """

    span: Span
    name: str
    sign: str
    value: Any
    is_read: bool = False


class Watched(Chunk):
    """A chunk of one thread that notes what it does, up to `most` values."""

    seen: list[Seen]
    most: int

    def stmt(self, stmt: Stmt, frame: Frame) -> None:
        """Run a statement, and note its value."""
        if isinstance(stmt, If):
            self.note(stmt, "if", frame.values(stmt.cond))
        super().stmt(stmt, frame)
        match stmt:
            case Let(out) if out.hint:
                self.note(stmt, out.hint, frame.values(out))
            case Load(out, array, indices, held=None):
                name = f"{array.hint}{self.index(indices, frame)}"
                self.note(stmt, name, frame.values(out), is_read=True)
            case Restore(_, outs):
                for out in outs:
                    if out.hint:
                        self.note(stmt, out.hint, frame.values(out))
            case Store(array, indices, value):
                self.note(stmt, f"{array.hint}{self.index(indices, frame)}", frame.values(value))
            case Atomic(_, kind, array, indices, value):
                name = f"{array.hint}{self.index(indices, frame)}"
                self.note(stmt, name, frame.values(value), SIGNS.get(kind, "="))
            case _:
                pass

    def iteration(
        self, stmt: Loop, around: Frame, carried: list[Numpy], trip: int, counts: Numpy | None
    ) -> list[Numpy]:
        """Run an iteration, and note its number."""
        if isinstance(stmt, For):
            assert counts is not None
            number = counts - 1 - trip if stmt.reverse else counts * 0 + trip
            self.note(stmt, stmt.index.hint or "iteration", number)
        return super().iteration(stmt, around, carried, trip, counts)

    def index(self, indices: tuple[Atom, ...], frame: Frame) -> str:
        """The indices as they are written."""
        return f"[{', '.join(str(int(frame.places(index)[0])) for index in indices)}]"

    def note(self, stmt: Stmt, name: str, values: Numpy, sign: str = "=", is_read: bool = False) -> None:
        """Keep the value of the only thread."""
        if len(self.seen) < self.most:
            value = values[0]
            self.seen.append(Seen(stmt.span, name, sign, value.copy() if value.ndim else value[()], is_read))


def watch(function: Function, args: Args, thread: int, most: int) -> list[Seen]:
    """Run one thread of a program on packed arguments, whose memory it changes; at most `most` values.

    Raises the KernelError that the thread ends with, if it does.
    """
    made = entry(function)
    slots = backends.slots_of(args)
    grid = slots[:GRID_SLOTS]
    seen: list[Seen] = []

    def chunk(*given: Any) -> Chunk:
        watched = Watched(*given)
        watched.seen, watched.most = seen, most
        return watched

    launch = Launch(made.program, made.info, slots, Bounds(), chunk)
    failure = launch.chunk(range(thread, thread + 1), grid)
    launch.sums.settle()
    if failure is not None:
        raise backends.failure(made.info, failure.status, grid)
    return seen
