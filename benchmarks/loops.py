"""Measure what the adjoint of a loop costs: its time over that of the loop, and the memory it takes.

    python benchmarks/loops.py [--repeat N] [--write benchmarks/LOOPS.md]

Each row runs in a process of its own, so that its peak of memory is its own.  Times are the least of some
runs.  "checkpoint" is the same launch with a memory of 1 MiB for loops, unless every iteration fits.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    adjoint = _least(repeat, lambda: tape.backward(grads={y: seed}))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    saved = sum(loop.bytes for loop in kernel.loops(["x", "y"]))
    return {"primal": primal, "adjoint": adjoint, "peak": peak / 1024, "saved": saved}


def _least(repeat: int, action: Callable[[], None]) -> float:
    action()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def in_process(row: int, memory: int | None, repeat: int) -> dict[str, float]:
    request = json.dumps([row, memory, repeat])
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    command = [sys.executable, str(HERE / "loops.py"), "--row", request]
    answer: dict[str, float] = json.loads(subprocess.check_output(command, env=environment, text=True))
    return answer


def table(repeat: int) -> str:
    lines = [
        "| | primal (ms) | adjoint / primal | peak (MB) | saved an iteration (bytes) "
        "| checkpoint / primal | peak (MB) |",
        "|---|---|---|---|---|---|---|",
    ]
    for number, row in enumerate(ROWS):
        flat, frugal = in_process(number, 0, repeat), in_process(number, 1 << 20, repeat)
        fits = row.steps * flat["saved"] < 1 << 20
        ratio, peak = f"{frugal['adjoint'] / frugal['primal']:.1f}", f"{frugal['peak']:.0f}"
        lines.append(
            f"| {row.title} | {flat['primal']:.3g} | {flat['adjoint'] / flat['primal']:.1f} "
            f"| {flat['peak']:.0f} | {flat['saved']:.0f} "
            f"| {'fits' if fits else ratio} | {'' if fits else peak} |"
        )
    return "\n".join(lines)


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
            f"kernelab on the CPU with g++, Python {platform.python_version()}, {os.cpu_count()} shared cores;",
            f"the least of {repeat} runs. The textbook bound of adjoint over primal is 4 to 5.",
            'Peaks are beyond what the process held before; "fits" says that 1 MiB holds every iteration.',
            "Made by `python benchmarks/loops.py --write benchmarks/LOOPS.md`.",
        ]
    )


if __name__ == "__main__":
    main()
