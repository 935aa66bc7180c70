"""Measure kernelab beside Warp on the first GPU: new kernels, work, launches, a sparse Jacobian.

    python benchmarks/gpu.py --warp-python PATH [--repeat N] [--shrink K] [--write FILE]

Work is timed by events of the device, with fresh random inputs; medians are reported, and where the systems
have not computed the same.  Without a GPU nothing is measured: it says so, and the exit status is 1.
"""

import argparse
import sys
from pathlib import Path

from compare import Peer, Table, new_kernels

from kernelab.backend.nvidia import open_driver
from kernelab.errors import KernelError

WORK = {"saxpy": 10**8, "stencil": 10**8, "springs": 10**7, "bodies": 20_000, "loop": 10**6}
"""How many threads, or bodies."""

TO_REACH = """\
To reach: cell text to first launch with adjoint 40 / 90 / 350 ms; saxpy at 90 % of the bandwidth of a copy;
ahead of Warp on all other work, its adjoint at most 2.5 times the primal; launch / record / backward of a
launch 3 / 1 / 3 us; the Jacobian in 5 ms. A launch of kernelab returns when it has ended, one of Warp's when
it has begun."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--warp-python", required=True, help="a Python that has warp-lang installed")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--shrink", type=int, default=1, help="divide the sizes by this")
    parser.add_argument("--write", type=Path, help="write the tables to this file")
    options = parser.parse_args()
    try:
        driver = open_driver(0)
    except KernelError as problem:
        print(f"NOT RUN: no GPU was found, so nothing was measured: {problem}")
        return 1
    script = "gpu_worker.py"
    ours = Peer("kernelab", sys.executable, script)
    theirs = Peer("warp", options.warp_python, script)
    head = f"# On a GPU\n\nkernelab {ours.version} beside Warp {theirs.version}, {driver.architecture}."
    parts = [head, *_report(ours, theirs, options.repeat, options.shrink), TO_REACH]
    report = "\n\n".join(parts) + "\n"
    print(report)
    if options.write:
        options.write.write_text(report)
    return 0


def _report(ours: Peer, theirs: Peer, repeat: int, shrink: int) -> list[str]:
    latency = new_kernels((ours, theirs), repeat)
    overhead = Table("Overhead of a launch", "us")
    work = Table("Work", "ms")
    for peer in (ours, theirs):
        overhead.add_all(peer.ask(measure="overhead"), peer.name)
    notes = _work(ours, theirs, work, repeat, shrink)
    banded = ours.ask(measure="banded", n=10**6 // shrink, repeat=repeat)["banded"]
    notes.append(f"Sparse Jacobian, three bands, n = {10**6 // shrink:,}: {banded:.3g} ms")
    tables = [table.markdown(ours.name, theirs.name) for table in (latency, work, overhead)]
    return [*tables, "\n".join(f"* {note}" for note in notes)]


def _work(ours: Peer, theirs: Peer, table: Table, repeat: int, shrink: int) -> list[str]:
    """Fill the table; what else is to be said of the work."""
    notes = []
    for name, full in WORK.items():
        n = max(full // shrink, 8)
        found = {
            peer.name: peer.ask(measure="work", name=name, n=n, repeat=repeat) for peer in (ours, theirs)
        }
        for system, values in found.items():
            for what in ("primal", "adjoint"):
                table.add(f"{name}, {n:,}, {what}", system, values[what])
        notes += disagreements(name, found[ours.name], found[theirs.name])
        ratio = found[ours.name]["adjoint"] / found[ours.name]["primal"]
        notes.append(f"{name}: the adjoint takes {ratio:.2f} times the primal")
        if name == "saxpy":
            copied = ours.ask(measure="copy", n=n, repeat=repeat)["copy"]
            reached = 12 * n / found[ours.name]["primal"] / (8 * n / copied)
            notes.append(f"saxpy moves bytes at {100 * reached:.0f} % of the rate of a copy")
    return notes


def disagreements(name: str, ours: dict[str, float], theirs: dict[str, float]) -> list[str]:
    """Where the two systems have not computed the same from the same inputs."""
    return [
        f"{name}: THE SYSTEMS DISAGREE, {what} {ours[what]:.6g} and {theirs[what]:.6g}"
        for what in ("mean", "gradient")
        if abs(ours[what] - theirs[what]) > 1e-3 * max(abs(ours[what]), abs(theirs[what]), 1e-9)
    ]


if __name__ == "__main__":
    sys.exit(main())
