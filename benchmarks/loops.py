"""Measure what the adjoint of a loop costs: its time over that of the loop, and the memory it takes.

    python benchmarks/loops.py [--repeat N] [--write benchmarks/LOOPS.md]

Each row runs in a process of its own, so that its peak of memory is its own.  Times are the least of some
runs, of the processor and not of the clock, since machines are shared.  "checkpoint" is the same launch with
a memory of 1 MiB for loops, unless every iteration fits.  "By hand" is what a C++ programmer writes for the
same adjoint, with a stack of known size: the floor.
"""

import argparse
import ctypes
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent

CELL = """
def logistic(x: array[float], steps: int, y: array[float]):
    i = tid()
    s = x[i]
    for k in range(steps):
        s = 3.7 * s * (1.0 - s)
    y[i] = s

def nested(x: array[float], steps: int, y: array[float]):
    i = tid()
    s = x[i]
    for a in range(steps):
        t = s
        for b in range(steps):
            t = sin(t) + 0.1 * s
        s = 0.5 * (s + t)
    y[i] = s

def newton(x: array[float], steps: int, y: array[float]):
    i = tid()
    a = x[i] * float(steps)
    s = a
    while abs(s * s - a) > 1e-5 * a:
        s = 0.5 * (s + a / s)
    y[i] = s

def pendulum(x: array[float], steps: int, y: array[float]):
    i = tid()
    p = x[i]
    v = 0.0
    for k in range(steps):
        v = v - 1e-3 * sin(p) - 1e-4 * v
        p = p + 1e-3 * v
    y[i] = p
"""


BY_HAND = """
extern "C" void primal(const float* x, int steps, float* y, int n) {
  for (int i = 0; i < n; ++i) {
    float s = x[i];
    for (int k = 0; k < steps; ++k) s = 3.7f * s * (1.0f - s);
    y[i] = s;
  }
}
extern "C" void adjoint(const float* x, int steps, float* x_bar, float* y_bar, int n, float* stack) {
  for (int i = n - 1; i >= 0; --i) {
    float s = x[i], *top = stack;
    for (int k = 0; k < steps; ++k) *top++ = s, s = 3.7f * s * (1.0f - s);
    float s_bar = y_bar[i];
    y_bar[i] = 0.0f;
    for (int k = 0; k < steps; ++k) s = *--top, s_bar = s_bar * (1.0f - s) * 3.7f - s_bar * (3.7f * s);
    x_bar[i] += s_bar;
  }
}
"""
"""The first kernel and its adjoint."""


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel, how many threads run it, and its trip count."""

    kernel: str
    threads: int
    steps: int

    @property
    def title(self) -> str:
        return f"{self.kernel}, {self.steps:,} steps, {self.threads:,} thread{'s' * (self.threads > 1)}"


ROWS = (
    Row("logistic", 100_000, 32),
    Row("logistic", 10_000, 1_000),
    Row("nested", 500, 50),
    Row("newton", 100_000, 1_000),
    Row("pendulum", 1, 1_000_000),
    Row("pendulum", 1, 10_000_000),
)


def measure(row: Row, memory: int | None, repeat: int) -> dict[str, float]:
    """Milliseconds of the primal and of the adjoint, megabytes at the peak, bytes saved an iteration."""
    import kernelab as kl

    if memory is not None:
        kl.config.loop_memory = memory
    kernel: Any = kl.compile(CELL)[row.kernel]
    x = kl.full(row.threads, 0.4, dtype=float, requires_grad=True)
    y = kl.zeros(row.threads, dtype=float, requires_grad=True)
    seed = kl.ones(row.threads, dtype=float)
    with kl.Tape() as tape:
        kl.launch(kernel, row.threads, inputs=[x, row.steps], outputs=[y])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    primal = _least(repeat, lambda: kl.launch(kernel, row.threads, inputs=[x, row.steps], outputs=[y]))
    adjoint = _least(repeat, lambda: tape.backward(grads={y: seed}), tape.zero)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    saved = sum(loop.bytes for loop in kernel.loops())
    return {"primal": primal, "adjoint": adjoint, "peak": peak / 1024, "saved": saved}


def by_hand(row: Row, repeat: int) -> str:
    """Adjoint over primal of the logistic map, written by hand."""
    if row.kernel != "logistic":
        return ""
    folder = Path(tempfile.mkdtemp())
    (folder / "hand.cpp").write_text(BY_HAND)
    flags = ["-O2", "-ffp-contract=off", "-fno-strict-aliasing", "-shared", "-fPIC"]
    subprocess.check_call(["g++", *flags, str(folder / "hand.cpp"), "-o", str(folder / "hand.so")])
    library, n = ctypes.CDLL(str(folder / "hand.so")), row.threads
    x, y, x_bar, y_bar, stack = (np.full(max(n, row.steps), 0.4, np.float32) for _ in range(5))
    at = [ctypes.c_void_p(held.ctypes.data) for held in (x, y, x_bar, y_bar, stack)]
    primal = _least(repeat, lambda: library.primal(at[0], row.steps, at[1], n))
    adjoint = _least(repeat, lambda: library.adjoint(at[0], row.steps, at[2], at[3], n, at[4]))
    return f"{adjoint / primal:.1f}"


def _least(repeat: int, action: Callable[[], None], before: Callable[[], None] = lambda: None) -> float:
    action()
    times = []
    for _ in range(repeat):
        before()
        start = time.thread_time()
        action()
        times.append(time.thread_time() - start)
    return 1e3 * min(times)


def in_process(row: int, memory: int | None, repeat: int) -> dict[str, float]:
    request = json.dumps([row, memory, repeat])
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    command = [sys.executable, str(HERE / "loops.py"), "--row", request]
    answer: dict[str, float] = json.loads(subprocess.check_output(command, env=environment, text=True))
    return answer


def table(repeat: int) -> str:
    heads = ("", "primal (ms)", "adjoint / primal", "by hand", "peak (MB)", "saved an iteration (bytes)")
    heads += ("checkpoint / primal", "peak (MB)")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for number, row in enumerate(ROWS):
        flat, frugal = in_process(number, 0, repeat), in_process(number, 1 << 20, repeat)
        fits = row.steps * flat["saved"] < 1 << 20
        cells = [row.title, f"{flat['primal']:.3g}", _ratio(flat)]
        cells += [by_hand(row, repeat), f"{flat['peak']:.0f}", f"{flat['saved']:.0f}"]
        cells += ["fits", ""] if fits else [_ratio(frugal), f"{frugal['peak']:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _ratio(times: dict[str, float]) -> str:
    return f"{times['adjoint'] / times['primal']:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--row", help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help="write the table to this file")
    options = parser.parse_args()
    if options.row:
        row, memory, repeat = json.loads(options.row)
        print(json.dumps(measure(ROWS[row], memory, repeat)))
        return
    report = f"{_preamble(options.repeat)}\n\n{table(options.repeat)}\n"
    print(report)
    if options.write:
        options.write.write_text(report)


def _preamble(repeat: int) -> str:
    return "\n".join(
        [
            "# What the adjoint of a loop costs",
            "",
            f"kernelab on a CPU, Python {platform.python_version()}, {os.cpu_count()} shared cores.",
            f"Processor time, least of {repeat} runs. The textbook bound of adjoint over primal is 4 to 5;",
            "a primal of many short threads overlaps them, which its adjoint cannot.",
            '"By hand" is the same adjoint in C++. Peaks are beyond what the process held before.',
            '"fits" says that 1 MiB holds every iteration.',
            "Made by `python benchmarks/loops.py --write benchmarks/LOOPS.md`.",
        ]
    )


if __name__ == "__main__":
    main()
