"""Measure the memory of a long tape: a simulation of many launches, with `kl.checkpoint` and without.

    python benchmarks/checkpoints.py [--elements 100000] [--steps 1000] [--block 32]

Each way runs in a process of its own, which reports how far its resident memory rose above what it was when
the kernels had been built, how long the launches and `backward` took together, and the gradient's first
element, which must be the same.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
WAYS = ("every array kept", "checkpoints")

TEXT = """
def step(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] + 0.01 * sin(x[i])

def total(x: array[float], loss: array[float]):
    atomic_add(loss, 0, x[tid()])
"""


def main() -> None:
    """Run both ways, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--elements", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--block", type=int, default=32)
    parser.add_argument("--way", choices=WAYS)
    options = parser.parse_args()
    if options.way is not None:
        print(json.dumps(measure(options.way, options.elements, options.steps, options.block)))
        return
    print("| | peak memory (MB) | time (s) |\n|---|---|---|")
    gradients = set()
    for way in WAYS:
        command = [sys.executable, __file__, *sys.argv[1:], "--way", way]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        gradients.add(found["gradient"])
        print(f"| {way} | {found['peak'] / 1e6:.0f} | {found['seconds']:.2f} |")
    assert len(gradients) == 1, f"the two ways disagree: {gradients}"


def measure(way: str, elements: int, steps: int, block: int) -> dict[str, float]:
    """The peak of resident memory, the time and a gradient, of one way in this process."""
    sys.path.insert(0, str(HERE.parent))
    import kernelab as kl

    kernels = kl.compile(TEXT)

    def run(x: kl.array, count: int) -> kl.array:
        for _ in range(count):
            y = kl.empty(elements, dtype=float, requires_grad=True)
            kernels["step"][elements](x, y)
            x = y
        return x

    def simulate(count: int) -> float:
        x, loss = kl.ones(elements, dtype=float, requires_grad=True), kl.zeros(1, requires_grad=True)
        with kl.Tape() as tape:
            y = x
            for first in range(0, count, block if way == "checkpoints" else count):
                length = min(block, count - first) if way == "checkpoints" else count
                y = kl.checkpoint(run, y, length) if way == "checkpoints" else run(y, length)
            kernels["total"][elements](y, loss)
        tape.backward(loss)
        assert x.grad is not None
        return float(x.grad[0])

    simulate(2)
    peak, seconds, gradient = watched(lambda: simulate(steps))
    return {"peak": peak, "seconds": seconds, "gradient": gradient}


def watched(act: Callable[[], float]) -> tuple[float, float, float]:
    """By how many bytes resident memory rises while `act` runs, how long it takes, and what it returns."""
    before, done, peak = resident(), threading.Event(), [0]

    def watch() -> None:
        while not done.wait(0.001):
            peak[0] = max(peak[0], resident() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    result = act()
    seconds = time.perf_counter() - start
    done.set()
    watcher.join()
    return peak[0], seconds, result


def resident() -> int:
    """The bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


if __name__ == "__main__":
    main()
