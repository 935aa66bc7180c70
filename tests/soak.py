"""``make soak``: many kernels, launches and shown tapes in one process, which must not grow.

    python -m tests.soak [--kernels 5000] [--launches 1000000] [--tapes 10000] [--records 30]

Each part does the same again and again, and everything that it makes is dropped.  After a tenth of it, what
is made once has been made; from then to the end the resident memory, the memory maps, the open files and the
threads are compared.  Prints what each kernel, launch and tape has cost; the exit status is 1 where that is
more than it may be.
"""

import argparse
import gc
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import comm
from comm.base_comm import BaseComm

import kernelab as kl

TEXT = "def scale{0}(x: array[float], y: array[float]):\n    i = tid()\n    y[i] = x[i] * {0}.5 + 1.0\n"
ALLOWED = {"kernels": 3_000, "launches": 4, "tapes": 1_000}
"""The bytes that one kernel, launch or tape may leave behind; memory comes back in pages, not in bytes."""

SLACK = 4 << 20
"""Bytes by which the memory of a process moves whatever it does."""


@dataclass(frozen=True, slots=True)
class State:
    """The state of this process."""

    memory: int
    maps: int
    files: int
    threads: int

    @classmethod
    def now(cls) -> "State":
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        maps = Path("/proc/self/maps").read_text().count("\n")
        files = len([*Path("/proc/self/fd").iterdir()])
        return cls(pages * os.sysconf("SC_PAGESIZE"), maps, files, threading.active_count())


class Nowhere(BaseComm):
    """A connection to a page that is not there."""

    def publish_msg(self, *_: Any, **__: Any) -> None:
        """Send nothing."""


def kernels(number: int) -> None:
    """Make, launch and differentiate a kernel that nobody has made before."""
    kernel = kl.compile(TEXT.format(number))[f"scale{number}"]
    x, y = kl.ones(3, requires_grad=True), kl.zeros(3, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernel, 3, [x], [y])
    tape.backward(grads={y: kl.ones(3)})


class Launches:
    """Launches of one kernel."""

    def __init__(self) -> None:
        self.kernel = kl.compile(TEXT.format(0))["scale0"]
        self.x, self.y = kl.ones(3), kl.zeros(3)

    def __call__(self, number: int) -> None:
        """Launch it on arrays of the caller's, and on new ones."""
        kl.launch(self.kernel, 3, [self.x], [self.y])
        if number % 100 == 0:
            kl.launch(self.kernel, 3, [kl.ones(3)], [kl.zeros(3)])


class Tapes:
    """Tapes that are recorded, swept, shown and dropped."""

    def __init__(self, records: int) -> None:
        from kernelab.jupyter.live import widget_of

        comm.create_comm = Nowhere
        self.show, self.records = widget_of, records
        self.kernel = kl.compile(TEXT.format(0))["scale0"]

    def __call__(self, number: int) -> None:
        """Show a tape while it records, as the last line of a cell does."""
        x, y = kl.ones(3, requires_grad=True), kl.zeros(3, requires_grad=True)
        tape = kl.Tape()
        widget = self.show(tape)
        with tape:
            for _ in range(self.records):
                kl.launch(self.kernel, 3, [x], [y])
        tape.backward(grads={y: kl.ones(3)})
        widget.refresh()
        widget.settle()
        widget.close()


def soaked(name: str, step: Callable[[int], None], count: int) -> bool:
    """Repeat a step, print what it left behind; whether that is little enough."""
    warm = max(count // 10, 1)
    for number in range(warm):
        step(number)
    before = State.now()
    for number in range(warm, count):
        step(number)
    after = State.now()
    repeats = max(count - warm, 1)
    grown = after.memory - before.memory
    others = {field: getattr(after, field) - getattr(before, field) for field in ("maps", "files", "threads")}
    print(
        f"{count:9,} {name:8}  memory {before.memory >> 20} to {after.memory >> 20} MiB: "
        f"{grown / repeats:.1f} bytes each, maps {others['maps']:+}, files {others['files']:+}, "
        f"threads {others['threads']:+}",
        flush=True,
    )
    is_flat = others["maps"] < 16 + repeats // 10 and others["files"] < 4 and others["threads"] < 4
    return is_flat and grown <= SLACK + ALLOWED[name] * repeats


def main() -> int:
    """Run the parts one after the other."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--kernels", type=int, default=5_000)
    parser.add_argument("--launches", type=int, default=1_000_000)
    parser.add_argument("--tapes", type=int, default=10_000)
    parser.add_argument("--records", type=int, default=30)
    chosen = parser.parse_args()
    parts: list[tuple[str, Callable[[int], None], int]] = [
        ("launches", Launches(), chosen.launches),
        ("tapes", Tapes(chosen.records), chosen.tapes),
        ("kernels", kernels, chosen.kernels),
    ]
    flat = [soaked(name, step, count) for name, step, count in parts]
    return int(not all(flat))


if __name__ == "__main__":
    sys.exit(main())
