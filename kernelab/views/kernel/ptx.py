"""PTX of generated CUDA text, each instruction with the line of the kernel that it comes from.

Knows what NVRTC writes; must not know kernels.
"""

import re
from collections.abc import Iterator

from kernelab.backend.cuda.nvrtc import compile_to_ptx
from kernelab.codegen.common.entry import Line, Unit
from kernelab.errors import Span
from kernelab.runtime.memory.spaces import OPEN

USUAL = "sm_80"
"""What machine text is shown for where no CUDA device is in use."""

_PLACE = re.compile(r"\s*\.loc\s+\d+\s+(\d+)")
_CALLER = re.compile(r"inlined_at\s+\d+\s+(\d+)")
_BOOKKEEPING = re.compile(r"\s*\.file\b|\$L__tmp\d+:")


def ptx(unit: Unit) -> Unit:
    """The PTX of a unit, for the first CUDA device in use; raises BuildError, without NVRTC too."""
    return Unit(tuple(_lines(unit, compile_to_ptx(unit.text, shown_architecture(), located=True))), ())


def shown_architecture() -> str:
    """What machine text is shown for: the first CUDA device in use, else a usual one."""
    return next((space.driver.architecture for space in OPEN.values()), USUAL)


def _lines(unit: Unit, text: str) -> Iterator[Line]:
    """The lines without those that only say where they come from."""
    span: Span | None = None
    for line in text.partition("\t.section")[0].rstrip().splitlines():
        place = _PLACE.match(line)
        if place:
            # What a helper does belongs to the line that calls it.
            number = int((_CALLER.search(line) or place)[1])
            span = unit.lines[number - 1].span if number <= len(unit.lines) else None
        elif not _BOOKKEEPING.match(line):
            span = None if line.startswith((".", "}", "{")) else span
            yield Line(line, span)
