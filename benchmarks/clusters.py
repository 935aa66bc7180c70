"""What a task of `kernelab.distributed` costs, and how it scales over the processes of this machine.

    python benchmarks/clusters.py [--workers 1 2 4] [--tasks 200]

For each number of workers: milliseconds a task of plain NumPy and of `value_and_grad` of a kernel, both over
50 elements and under Dask, taking turns; the seconds of a sum of gradients over chunks that take a while;
the time of the processor of the worker that worked longest on it and of this process, which on idle cores
bound the seconds; and whether that sum has the same bits as with the first number of workers.  At the end a
sparse Jacobian with ten bands.  The load of the machine stands beside the numbers: with other programs at
work seconds are upper bounds.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from dask.distributed import Client, LocalCluster

import kernelab as kl

TEXT = """
def wave(x: array[float], y: array[float]):
    i = tid()
    y[i] = sin(x[i]) * x[i] * x[i]

def misfit(a: array[float], chunk: array[float], loss: array[float]):
    i = tid()
    s = chunk[i]
    for _ in range(500):
        s = sin(s + a[i % 8])
    loss[0] += s * s

def bands(x: array[float], y: array[float]):
    i = tid()
    s = float(0.0)
    for k in range(10):
        j = i + k - 5
        if j >= 0 and j < x.shape[0]:
            s += x[j] * x[j]
    y[i] = s
"""
MADE = kl.compile(TEXT)


def loss(x: Any) -> Any:
    y = kl.zeros_like(x)
    kl.launch(MADE["wave"], dim=len(x), inputs=[x], outputs=[y])
    return y.sum()


def misfit(a: Any, chunk: Any) -> Any:
    e = kl.zeros(1)
    kl.launch(MADE["misfit"], dim=len(chunk), inputs=[a, chunk], outputs=[e])
    return e


def bands(x: Any) -> Any:
    y = kl.zeros_like(x)
    kl.launch(MADE["bands"], dim=len(x), inputs=[x], outputs=[y])
    return y


def plain(x: Any) -> Any:
    """The same value and gradient in NumPy."""
    return (np.sin(x) * x * x).sum(), np.cos(x) * x * x + 2 * x * np.sin(x)


def timed(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def spent(run: Callable[[], Any], workers: Client) -> tuple[float, float, float]:
    """Seconds, and those of the processor: of the worker that worked longest, and of this process."""
    before, here = workers.run(time.process_time), time.process_time()
    seconds, here = timed(run), time.process_time() - here
    longest = max(now - before[place] for place, now in workers.run(time.process_time).items())
    return seconds, longest, here


def overhead(tasks: int) -> tuple[float, float]:
    """Milliseconds a task of NumPy and of kernelab, medians of rounds that take turns."""
    values = [np.linspace(0.1, 1.0, 50, dtype=np.float32) + n for n in range(tasks)]
    xs, f = [kl.array(value) for value in values], kl.func.value_and_grad(loss)
    ways: list[Callable[[], Any]] = [
        lambda: kl.distributed.map(plain, values),
        lambda: kl.distributed.map(f, xs),
    ]
    for way in ways:
        way()
    taken = [[timed(way) / tasks * 1e3 for _ in range(5)] for way in ways]
    return statistics.median(taken[0]), statistics.median(taken[1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--columns", type=int, default=1_000_000)
    given = parser.parse_args()
    kl.config.threads = 1  # the workers share the cores
    rng = np.random.default_rng(1)
    a = kl.array(rng.normal(size=8), dtype=float)
    chunks = [kl.array(rng.normal(size=10_000), dtype=float) for _ in range(16)]
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start\n")
    print(
        "| workers | NumPy, ms a task | kernelab, ms a task | sum of gradients, s "
        "| of the busiest worker, s | of this process, s | same bits |"
    )
    print("|---|---|---|---|---|---|---|")
    first: Any = None
    for count in given.workers:
        with (
            LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=":0") as there,
            Client(there) as workers,
        ):
            theirs, ours = overhead(given.tasks)
            total = lambda: kl.distributed.sum_gradients(misfit, a, chunks)  # noqa: E731
            value, slope = total()
            found = value, slope.list()
            first = first or found
            seconds, longest, here = (
                min(one) for one in zip(*(spent(total, workers) for _ in range(3)), strict=True)
            )
        columns = f"{theirs:.2f} | {ours:.2f} | {seconds:.2f} | {longest:.2f} | {here:.2f} | {found == first}"
        print(f"| {count} | {columns} |", flush=True)
    x = kl.array(rng.normal(size=given.columns), dtype=float)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as there, Client(there):
        both = [timed(lambda: kl.distributed.jacobian(bands, x, 11, sparse=True)) for _ in range(2)]
    print(f"\nJacobian of {given.columns:,} columns and ten bands: {both[0]:.1f} s, again {both[1]:.1f} s")
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
