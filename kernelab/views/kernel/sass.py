"""SASS of generated CUDA text, each instruction with the line of the kernel that it comes from.

Knows what NVIDIA's disassembler writes; must not know kernels.
"""

import re
from collections.abc import Iterator

from kernelab.backend.cuda import nvdisasm
from kernelab.backend.cuda.nvrtc import compile_to_cubin
from kernelab.codegen.common.entry import Line, Unit
from kernelab.errors import Span
from kernelab.views.kernel.ptx import shown_architecture

_PLACE = re.compile(r'\s*//## File "[^"]*", line (\d+)(?: inlined at "[^"]*", line (\d+))?')
_INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]+\*/")
_LABEL = re.compile(r"\.L_x_\d+:")
_ENTRY = re.compile(r"([A-Za-z_]\w*):$")
_REGISTERS = re.compile(r'.*"SHI_REGISTERS=(\d+)"')
_PADDING = re.compile(r"\s*/\*[0-9a-f]+\*/\s*NOP;?")


def sass(unit: Unit) -> Unit:
    """The SASS of a unit, for the first CUDA device in use; raises BuildError, without the tools too."""
    cubin = compile_to_cubin(unit.text, shown_architecture(), located=True)
    return Unit(tuple(_lines(unit, nvdisasm.sass(cubin))), ())


def _lines(unit: Unit, text: str) -> Iterator[Line]:
    """The instructions, labels and names of entries; the directives of the assembler are left out."""
    span: Span | None = None
    inlined = False
    registers = ""
    for line in text.splitlines():
        if place := _PLACE.match(line):
            # What a helper does belongs to the line that calls it; who calls that comes in further lines.
            number = int(place[2] or place[1])
            if not inlined and number <= len(unit.lines):
                span = unit.lines[number - 1].span
            inlined = place[2] is not None
            continue
        inlined = False
        if found := _REGISTERS.match(line):
            registers = f"  // {found[1]} registers"
        elif entry := _ENTRY.match(line):
            span = None
            yield Line(f"{entry[1]}:{registers}")
        elif _LABEL.match(line):
            yield Line(line)
        elif _INSTRUCTION.match(line) and not _PADDING.match(line):
            yield Line(re.sub(r"^\s*", "  ", line), span)
