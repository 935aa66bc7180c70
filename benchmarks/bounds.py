"""Measure what the bounds checks of generated code cost: each kernel with them, and with them left out.

    python benchmarks/bounds.py [--repeat 15] [--shrink 1] [--write benchmarks/BOUNDS.md]

kernelab has no switch for this: the script takes the checks out of the emitters of C++.  An index below
zero is still counted from the end.  Both forms run in one process, one after the other.
"""

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import kernels
from worker import Kernelab, Runs, of_arrays

HEAD = """\
# What bounds checks cost

kernelab on a CPU, Python {python}, on one of {cores} shared cores. Times are processor times: the least of
{repeat} runs, interleaved. Sizes are divided by {shrink}.

* "checked": the code that kernelab runs.
* "without": the same code without bounds checks.

Made by `python benchmarks/bounds.py --write benchmarks/BOUNDS.md`.

| work | primal, checked (ms) | without | ratio | adjoint, checked (ms) | without | ratio |
|---|--:|--:|--:|--:|--:|--:|
"""


def main() -> None:
    """Measure all kernels, and print them as a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--shrink", type=int, default=1)
    parser.add_argument("--write", type=Path, help="write the table to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KERNELAB_CACHE_DIR"] = folder
        lines = [row(name, options.repeat, options.shrink) for name in kernels.texts()]
    head = HEAD.format(
        python=platform.python_version(), cores=os.cpu_count(), repeat=options.repeat, shrink=options.shrink
    )
    report = head + "\n".join(lines) + "\n"
    print(report)
    if options.write:
        options.write.write_text(report)


def row(name: str, repeat: int, shrink: int) -> str:
    """The row of a kernel."""
    forms = [ready(name, shrink)]
    with ExitStack() as stack:
        for change in unchecked():
            stack.enter_context(change)
        forms.append(ready(name, shrink))
    times: list[list[float]] = [[], [], [], []]
    for _ in range(repeat):
        for k, form in enumerate(forms):
            form.clear()
            times[k].append(milliseconds(form.primal))
            times[2 + k].append(milliseconds(form.adjoint))
    a, b, c, d = map(min, times)
    return f"| {kernels.TITLES[name]} | {a:.3g} | {b:.3g} | {a / b:.2f} | {c:.3g} | {d:.3g} | {c / d:.2f} |"


def ready(name: str, shrink: int) -> Runs:
    """A kernel of which every program is built, as its third run finds it."""
    runs = of_arrays(Kernelab(), kernels.work(name, shrink))
    for _ in range(3):
        runs.clear()
        runs.primal()
        runs.adjoint()
    return runs


def milliseconds(action: Callable[[], Any]) -> float:
    """How long processors work for an action."""
    start = time.process_time()
    action()
    return 1e3 * (time.process_time() - start)


def unchecked() -> list[Any]:
    """The changes that take bounds checks out of scalar and of vector code."""
    from kernelab.codegen.cpp.writer import Writer
    from kernelab.codegen.vectors.vector_memory import VectorMemory

    def within(self: Any, position: str, index: Any, extent: str, axis: int, site: Any) -> None:
        if self.counts_from_the_end(index):
            self.line(self.tested(position, index, extent, site, "{}"))

    def as_checked(method: Callable[..., Any]) -> Callable[..., Any]:
        def changed(self: Any, *arguments: Any) -> Any:
            before, self.is_checked = self.is_checked, True
            try:
                return method(self, *arguments)
            finally:
                self.is_checked = before

        return changed

    vectors = ("within", "linear_position", "lane_positions")
    return [
        patch.object(Writer, "within", within),
        *(patch.object(VectorMemory, name, as_checked(getattr(VectorMemory, name))) for name in vectors),
    ]


if __name__ == "__main__":
    main()
