"""Measure what checked mode costs: launches with `kl.config.check = "full"`, and without.

    python benchmarks/checked.py [--repeat 5] [--shrink 1] [--write benchmarks/CHECKED.md]

Programs are built before anything is measured.
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent

TEXT = """
def saxpy(a: float, x: array[float], y: array[float]):
    i = tid()
    y[i] = a * x[i] + y[i]

def chain(x: array[float], y: array[float]):
    i = tid()
    u = sin(x[i]) * exp(-x[i])
    y[i] = sin(u + 1.0) * exp(-u * u)

def scatter(x: array[float], to: array[int], y: array[float]):
    i = tid()
    y[to[i]] = x[i]

def squares(x: array[float], s: array[float]):
    atomic_add(s, 0, x[tid()] * x[tid()])
"""

Arguments = Callable[[int, Any], list[Any]]
ROWS: dict[str, tuple[str, int, Arguments]] = {
    "saxpy, 1,000 threads": ("saxpy", 1000, lambda n, kl: [2.0, kl.ones(n), kl.ones(n)]),
    "saxpy, 1,000,000 threads": ("saxpy", 1_000_000, lambda n, kl: [2.0, kl.ones(n), kl.ones(n)]),
    "sin, exp chain, 1,000,000 threads": ("chain", 1_000_000, lambda n, kl: [kl.ones(n), kl.ones(n)]),
    "chain into kl.empty, 1,000,000 threads": ("chain", 1_000_000, lambda n, kl: [kl.ones(n), None]),
    "scatter by indices, 1,000,000 threads": (
        "scatter",
        1_000_000,
        lambda n, kl: [kl.ones(n), kl.array(np.arange(n, dtype=np.int32)[::-1].copy()), kl.ones(n)],
    ),
    "sum of squares, 1,000,000 threads": ("squares", 1_000_000, lambda n, kl: [kl.ones(n), kl.zeros(1)]),
}


def main() -> None:
    """Measure all rows, and print them as a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--shrink", type=int, default=1)
    parser.add_argument("--write", type=Path, help="write the table to this file")
    options = parser.parse_args()
    report = f"{_preamble(options.repeat)}\n\n{table(options.repeat, options.shrink)}\n"
    print(report)
    if options.write:
        options.write.write_text(report)


def table(repeat: int, shrink: int) -> str:
    """The rows as Markdown."""
    lines = ["|  | launch (ms) | checked (ms) | checked / launch |", "|---|---|---|---|"]
    for title, (name, threads, make) in ROWS.items():
        plain, checked = measure(name, threads // shrink, make, repeat)
        lines.append(f"| {title} | {plain:.3g} | {checked:.3g} | {checked / plain:.1f} |")
    for title, backward in (("100 launches on a tape, 1,000 threads, record", False), ("backward", True)):
        plain, checked = (taped(1000 // shrink, repeat, check)[backward] for check in (None, "full"))
        lines.append(f"| {title} | {plain:.3g} | {checked:.3g} | {checked / plain:.1f} |")
    return "\n".join(lines)


def measure(name: str, threads: int, make: Arguments, repeat: int) -> tuple[float, float]:
    """The processor time of a launch in ms, without checks and with them."""
    kl, kernels = _kernels()
    given = make(threads, kl)
    found = []
    for check in (None, "full"):
        kl.config.check = check
        times = []
        for _ in range(repeat + 2):  # the first ones build
            arguments = [kl.empty(threads) if one is None else one for one in given]
            start = time.thread_time()
            kl.launch(kernels[name], threads, arguments)
            times.append(time.thread_time() - start)
        found.append(1e3 * min(times[2:]))
    kl.config.check = None
    return found[0], found[1]


def taped(threads: int, repeat: int, check: str | None) -> tuple[float, float]:
    """The processor time of recording 100 launches, and of `backward`, in ms."""
    kl, kernels = _kernels()
    kl.config.check = check
    records, sweeps = [], []
    for _ in range(repeat + 1):
        x = kl.ones(threads, requires_grad=True)
        start = time.thread_time()
        with kl.Tape() as tape:
            y = x
            for _ in range(100):
                z = kl.empty_like(y)
                kl.launch(kernels["chain"], threads, [y, z])
                y = z
        records.append(time.thread_time() - start)
        start = time.thread_time()
        tape.backward(grads={y: kl.ones(threads)})
        sweeps.append(time.thread_time() - start)
    kl.config.check = None
    return 1e3 * min(records[1:]), 1e3 * min(sweeps[1:])


def _kernels() -> tuple[Any, dict[str, Any]]:
    sys.path.insert(0, str(HERE.parent))
    import kernelab as kl

    return kl, kl.compile(TEXT)


def _preamble(repeat: int) -> str:
    return "\n".join(
        [
            "# What checked mode costs",
            "",
            f"kernelab on a CPU, Python {platform.python_version()}, {os.cpu_count()} shared cores.",
            f'Processor time, least of {repeat} runs. "checked" is with `kl.config.check = "full"`;',
            "all programs were built before.",
            "Made by `python benchmarks/checked.py --write benchmarks/CHECKED.md`.",
        ]
    )


if __name__ == "__main__":
    main()
