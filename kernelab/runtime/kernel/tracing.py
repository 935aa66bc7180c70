"""Programs built to find where a value turned NaN or infinite, and what they find.

Knows `passes.programs.nan_provenance` and the backend; must not know kernels.
"""

from dataclasses import dataclass

from kernelab.backend.common.backends import Entry
from kernelab.errors import Span
from kernelab.lang.ir import Function
from kernelab.passes.common.scalarise import scalarise
from kernelab.passes.programs.nan_provenance import Poisoned, poison
from kernelab.runtime.kernel.dispatch import place
from kernelab.runtime.memory.interop import HostArray


@dataclass(frozen=True, slots=True)
class Tracing:
    """A program built so that it finds where values turn NaN or infinite."""

    program: Poisoned
    entry: Entry

    def culprit(self, marks: HostArray) -> "Culprit | None":
        """What the marks of the threads say; the first thread that has one counts."""
        marked = marks.nonzero()[0]
        if not len(marked):
            return None
        thread = int(marked[0])
        site, word = self.program.where_it_began(int(marks[thread]))
        return Culprit(site.span, site.array, site.value, word, thread)


@dataclass(frozen=True, slots=True)
class Culprit:
    """Where a value turned NaN or infinite: the line, what it turned into, and the thread.

    `array` is the parameter whose element was so when it was read there, `value` the number that was passed
    so, if that is how it came.
    """

    span: Span
    array: str
    value: str
    word: str
    thread: int


def traced(function: Function) -> Tracing:
    """The program, built so."""
    program = poison(scalarise(function))
    return Tracing(program, place(program.function))
