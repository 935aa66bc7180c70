"""What a cell may end in: kernels whose programs are all emitted and shown, or an error of kernelab's own."""

import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import kernelab as kl
from kernelab.autodiff.rule_checks.rule_check import leave_unchecked
from kernelab.errors import KernelError, Source
from kernelab.lang.ir import Function
from kernelab.lang.verify import verify
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.texts import compile_source
from kernelab.views.kernel.kernel_facts import view
from kernelab.views.pages import markup, page
from kernelab.views.pages.display import error_lines

SECONDS = 10
"""After how long a cell that is not done is a finding."""


class TooSlowError(Exception):
    """A cell that took longer than it may."""


def compiled(text: str, derives: bool = True) -> int:
    """Compile a cell, derive, emit and show all its programs; the number of programs, 0 for a refused cell.

    Whatever is raised is a finding.  Without derives, the number of kernels.
    """
    count = 0
    with _limit(SECONDS), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = compile_source(Source(text, "cell"), {"kl": kl, "np": np, "N": 3, "vec3": kl.vec3})
        for diagnostic in made.lowered.diagnostics:
            diagnostic.render()
        try:
            made.lowered.raise_errors()
        except KernelError as error:
            error_lines(error)
        for definition in made.definitions.values():
            if isinstance(definition, Kernel) and not definition.is_generic:
                count += _derived(definition) if derives else 1
    return count


def _derived(kernel: Kernel) -> int:
    try:
        leave_unchecked(kernel.laid_out)  # or it would run the compiler
        programs = list(_programs(kernel))
        node = view(kernel)
        markup.render(node)
        page.render(node)
    except KernelError as error:
        error_lines(error)
        return 0
    return len(programs)


def _programs(kernel: Kernel) -> Iterator[Function]:
    active = kernel.differentiable
    derive: list[Callable[[], list[Function]]] = [lambda: [kernel.primal]]
    if active:
        derive += [
            lambda: [kernel.vjp(active).primal, kernel.vjp(active).adjoint],
            lambda: [kernel.jvp(active)],
        ]
    for programs in derive:
        try:
            found = programs()
        except KernelError as error:  # some kernels have no adjoint or tangent
            error_lines(error)
            continue
        for function in found:
            verify(function)
        yield from found


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Raise TooSlowError after so much time of the processor, however busy the machine is."""

    def late(*_: Any) -> None:
        raise TooSlowError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def checked_cell(text: str, derives: bool = True) -> int:
    """Compile a cell; an error says which test would fail the same way, with as few lines as will do."""
    try:
        return compiled(text, derives)
    except Exception as error:  # whatever it is
        wanted, least = _cause(error), _reduced(text, _cause(error))
        error.add_note(f"def test_it() -> None:\n    compiled({least!r})  # {wanted}\n")
        raise


def _cause(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {frame.name}"


def _reduced(text: str, wanted: str) -> str:
    """The text without the lines that the same error does not need."""
    lines, size = text.split("\n"), 8
    while size and len(lines) > 1 and not wanted.startswith(TooSlowError.__name__):
        for first in range(len(lines) - 1, -1, -1):
            fewer = lines[:first] + lines[first + size :]
            if fewer != lines and _fails("\n".join(fewer), wanted):
                lines = fewer
        size //= 2
    return "\n".join(lines)


def _fails(text: str, wanted: str) -> bool:
    try:
        compiled(text)
    except Exception as error:  # noqa: BLE001 (whatever it is, it is compared)
        return _cause(error) == wanted
    return False
