"""Marks from the last traced or profiled run: each line's share of the cost, and what loops kept."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernelab.autodiff.inspect.thread_run import ThreadRun
from kernelab.autodiff.tape.measures import Profile
from kernelab.backend.cpu.interpreter import Seen
from kernelab.errors import counted
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.views.kernel.code_view import Parts

LEAST = 0.05
"""A line is marked if its share of a run is at least this."""

Said = tuple[int, str, str]
"""A line, from 1, the kind of its mark, and the words."""


def of_runs(kernel: Kernel, parts: Parts, names: Mapping[str, Any]) -> Iterator[Said]:
    """What runs of this very text tell of a kernel; names hold the results of cells, too."""
    values = list(names.values())[::-1]
    run = next((one for one in values if type(one) is ThreadRun and _is_of(one, kernel)), None)
    if run is not None:
        yield from _of_thread(run, parts)
    for profile in [one for one in values if type(one) is Profile][:1]:
        for time in (one for one in profile.kernels if one.name == kernel.name):
            back = "" if time.backward is None else f" and {1e3 * time.backward:.3g} ms back"
            launches = counted(time.launches, "launch")
            text = f"{1e3 * time.forward:.3g} ms forward{back}, in the profile of {launches}"
            yield kernel.span.line, "cost", text


def _is_of(run: ThreadRun, kernel: Kernel) -> bool:
    texts = {one.span.source.text.rstrip() for one in run.primal}  # a magic ends what it is given
    return run.kernel == kernel.name and kernel.source.text.rstrip() in texts


def _of_thread(run: ThreadRun, parts: Parts) -> Iterator[Said]:
    def own(values: Sequence[Seen]) -> list[tuple[int, Seen]]:
        """Those of the kernel's own cell, with the lines that these have in it now."""
        text = parts.source.text.rstrip()
        here = (one for one in values if one.span.source.text.rstrip() == text)
        return [(one.span.line - one.span.source.first_line + parts.source.first_line, one) for one in here]

    lines = Counter(line for line, _ in own((*run.primal, *run.adjoint)))
    for line, count in lines.items():
        if count >= LEAST * lines.total():
            yield line, "cost", f"{100 * count / lines.total():.0f}% of the values of the traced thread"
    trips = Counter(line for line, one in own(run.primal) if one.loops and one.name == one.loops[-1][0])
    for saving in () if parts.adjoint is None else parts.adjoint.savings:
        if saving.loop is not None and not saving.when and (count := trips[saving.loop.line]):
            kept = f"kept {count * saving.bytes} bytes in {count} iterations of the traced thread"
            yield saving.loop.line, "saved", kept
