"""Collects the facts of a kernel for its view: listings of derived programs, generated text by target.

Knows `Kernel`, the emitter and its flavors; must not know markup beyond calling the view.  Nothing is built:
the text is emitted, and no compiler runs but for the pane of PTX.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from kernelab import hooks
from kernelab.backend.cuda import nvrtc
from kernelab.codegen.cpp.cuda_target import Cuda
from kernelab.codegen.cpp.emitter import emit
from kernelab.codegen.cpp.entry import Line, Unit
from kernelab.codegen.cpp.targets import Cpu
from kernelab.codegen.listing.listing import Derivation, listing
from kernelab.errors import KernelError, Span
from kernelab.lang.ir import Function, walk
from kernelab.passes.ad.primal_replay import loop_storage
from kernelab.passes.ad.vjp import Vjp
from kernelab.passes.common.scalarise import scalarise
from kernelab.runtime.context.garbage import put_off
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.memory.spaces import OPEN
from kernelab.runtime.ops.function_calls import stated_kernel
from kernelab.views.kernel.code_view import (
    DEFAULT,
    MAX_GENERATED,
    OF_TWO,
    PANES,
    Parts,
    kernel_view,
    listing_view,
    textbook_folds,
)
from kernelab.views.pages.markup import Below, Beside, Node, Run, words

USUAL = "sm_80"
"""What machine text is shown for where no CUDA device is in use."""

_PLACE = re.compile(r"\s*\.loc\s+\d+\s+(\d+)")
_CALLER = re.compile(r"inlined_at\s+\d+\s+(\d+)")
_BOOKKEEPING = re.compile(r"\s*\.file\b|\$L__tmp\d+:")


def ptx(unit: Unit) -> Unit:
    """The PTX of a unit, for the first CUDA device in use; raises BuildError, without NVRTC too."""
    return Unit(tuple(_lines(unit, nvrtc.compile_to_ptx(unit.text, shown_architecture(), located=True))), ())


def shown_architecture() -> str:
    """The architecture of the machine text: that of the first CUDA device in use, else a default."""
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


# ------------------------------------------------------------------------------------------------------ sass


_SASS_PLACE = re.compile(r'\s*//## File "[^"]*", line (\d+)(?: inlined at "[^"]*", line (\d+))?')
_INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]+\*/")
_LABEL = re.compile(r"\.L_x_\d+:")
_ENTRY = re.compile(r"([A-Za-z_]\w*):$")
_REGISTERS = re.compile(r'.*"SHI_REGISTERS=(\d+)"')
_PADDING = re.compile(r"\s*/\*[0-9a-f]+\*/\s*NOP;?")


def sass(unit: Unit) -> Unit:
    """The SASS of a unit, for the first CUDA device in use; raises BuildError, without the tools too."""
    cubin = nvrtc.compile_to_cubin(unit.text, shown_architecture(), located=True)
    return Unit(tuple(_sass_lines(unit, nvrtc.sass(cubin))), ())


def _sass_lines(unit: Unit, text: str) -> Iterator[Line]:
    """The instructions, labels and names of entries; the directives of the assembler are left out."""
    span: Span | None = None
    inlined = False
    registers = ""
    for line in text.splitlines():
        if place := _SASS_PLACE.match(line):
            # What a helper does belongs to the line that calls it; who calls that comes in further lines.
            number = int(place[2] or place[1])
            if not inlined and number <= len(unit.lines):
                span = unit.lines[number - 1].span
            inlined = place[2] is not None
            continue
        inlined = False
        if used := _REGISTERS.match(line):
            registers = f"  // {used[1]} registers"
        elif entry := _ENTRY.match(line):
            span = None
            yield Line(f"{entry[1]}:{registers}")
        elif _LABEL.match(line):
            yield Line(line)
        elif _INSTRUCTION.match(line) and not _PADDING.match(line):
            yield Line(re.sub(r"^\s*", "  ", line), span)


# ---------------------------------------------------------------------------------------------- kernel facts


@put_off()
def view(kernel: Kernel, shown: Sequence[str] = DEFAULT) -> Node:
    """The view of a kernel; `shown` names the panes that are open, the default also folds the others in."""
    return kernel_view(parts_of(kernel), shown)


def function_view(function: Any, shown: Sequence[str] = DEFAULT) -> Node:
    """The view of a function for kernels; of one whose types are not stated, for floats."""
    kernel = stated_kernel(function)
    if isinstance(kernel, Kernel):
        return kernel_view(replace(parts_of(kernel), is_function=True), shown)
    return words(Run("function ", "dim"), Run(function.name, "strong"), Run(f" · {kernel}", "dim"))


def program_view(function: Function) -> Node:
    """A program, such as ``kernel.primal`` or ``kernel.jvp(["x"])``, as readable text."""
    return listing_view(listing(function))


@hooks.text.provide
def program_text(function: Function) -> str:
    """The same as plain text."""
    return str(listing(function))


def vjp_view(pair: Vjp) -> Node:
    """The two programs of reverse mode, one below the other."""
    return Below((program_view(pair.primal), program_view(pair.adjoint)))


def derivation_view(derivation: Derivation) -> Node:
    """Both adjoints side by side, and the rest folded."""
    beside = listing_view(derivation.adjoint, OF_TWO), listing_view(derivation.running, OF_TWO)
    titles = PANES["textbook"], "adjoint that runs"
    panes = (replace(pane, title=title) for pane, title in zip(beside, titles, strict=True))
    return Below((Beside(tuple(panes)), *textbook_folds(derivation)))


def parts_of(kernel: Kernel) -> Parts:
    """The facts of a kernel that views show, each computed on demand."""
    active = kernel.differentiable
    refused = refusal(kernel)
    program = None if refused else kernel.vjp(active)
    primal = kernel.primal if program is None else program.primal
    functions = [primal] if program is None else [primal, program.adjoint]
    return Parts(
        kernel.name,
        kernel.source,
        kernel.primal,
        None if program is None else listing(program.adjoint),
        refused,
        () if program is None else listing(program.primal).savings,
        None if refused or not _has_tangent(kernel, active) else lambda: listing(kernel.jvp(active)),
        None if refused else cache(kernel.textbook),
        *_texts(functions),
        kernel.definition.captured,
        () if program is None else loop_storage(kernel.primal, program.adjoint),
        kernel.spilled,
    )


def refusal(kernel: Kernel) -> str:
    """The reason why a kernel has no adjoint; empty if it has one."""
    active = kernel.differentiable
    if not active:
        return "no parameter is a float or an array of floats"
    try:
        kernel.vjp(active)
    except KernelError as error:
        return str(error)
    return ""


def _has_tangent(kernel: Kernel, active: list[str]) -> bool:
    if kernel.laid_out is kernel.primal:
        return True
    # A surrogate gradient that a user wrote may have no tangent.
    try:
        kernel.jvp(active)
    except KernelError:
        return False
    return True


Texts = Mapping[str, Callable[[], Unit]]


def _texts(functions: list[Function]) -> tuple[Texts, Texts]:
    """The generated texts by pane, of all programs, and of those that a folded pane has room to show."""
    first = cache(lambda: [scalarise(functions[0])])
    every = cache(lambda: first() + [scalarise(function) for function in functions[1:]])

    def shown() -> list[Function]:
        statements = sum(1 for _ in walk(first()[0].body))
        return first() if statements >= MAX_GENERATED else every()

    cuda = cache(lambda: emit(every(), Cuda()))
    units: Texts = {
        "cpp": lambda: emit(every(), Cpu()),
        "cuda": cuda,
        "ptx": lambda: ptx(cuda()),
        "sass": lambda: sass(cuda()),
    }
    return units, {"cpp": lambda: emit(shown(), Cpu()), "cuda": lambda: emit(shown(), Cuda())}
