"""Measure kernelab beside Warp: latency of a new kernel, and overhead of a launch.

    python benchmarks/compare.py --warp-python PATH [--repeat N] [--write benchmarks/RESULTS.md]

Each system runs in a process of its own, with its own Python environment; measurements alternate between
them, so that noise of a shared machine falls on both.  Medians are reported, and ratios of medians.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from programs import SIZES

HERE = Path(__file__).parent
OVERHEAD = "Overhead of a launch"
Samples = dict[tuple[str, str], list[float]]


class Peer:
    """A worker process and what it has answered."""

    def __init__(self, name: str, python: str, script: str = "worker.py", *options: str) -> None:
        cache = tempfile.mkdtemp()
        environment = {**os.environ, "KERNELAB_CACHE_DIR": cache, "PYTHONPATH": str(HERE.parent)}
        self.name = name
        self.process = subprocess.Popen(
            [python, str(HERE / script), name, *options],
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.version = ""

    def greet(self) -> None:
        """Wait until it is ready."""
        self.version = self._answer()["version"]

    def ask(self, **request: Any) -> dict[str, float]:
        _pipe(self.process.stdin).write(json.dumps(request) + "\n")
        _pipe(self.process.stdin).flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._json_line())
        return answer

    def _json_line(self) -> str:
        for line in _pipe(self.process.stdout):
            if line.startswith("{"):
                return line
        raise RuntimeError(f"{self.name} ended early")


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


@dataclass
class Table:
    """Samples by row and system, and how to print them."""

    title: str
    unit: str
    samples: Samples = field(default_factory=dict)

    def add(self, row: str, system: str, value: float) -> None:
        self.samples.setdefault((row, system), []).append(value)

    def add_all(self, values: Mapping[str, float], system: str) -> None:
        for row, value in values.items():
            self.add(row, system, value)

    def markdown(self, first: str, second: str) -> str:
        lines = [
            f"## {self.title}",
            "",
            f"| | {first} ({self.unit}) | {second} ({self.unit}) | ratio |",
            "|---|---|---|---|",
        ]
        for row in dict.fromkeys(row for row, _ in self.samples):
            a, b = (statistics.median(self.samples[row, system]) for system in (first, second))
            lines.append(f"| {row} | {a:.3g} | {b:.3g} | {b / a:.1f} |")
        return "\n".join(lines)


def measure(ours: Peer, theirs: Peer, repeat: int) -> list[Table]:
    """Alternate between the systems, `repeat` times."""
    overhead = Table(OVERHEAD, "us")
    latency = new_kernels((ours, theirs), repeat)
    for turn in range(repeat + 1):
        for peer in (ours, theirs):
            found = peer.ask(measure="overhead")
            if turn > 0:
                overhead.add_all(found, peer.name)
    return [latency, overhead]


def new_kernels(peers: Sequence[Peer], repeat: int) -> Table:
    """What it takes to run a kernel that no cache has seen; the first turn warms up."""
    latency = Table("Text of a new kernel to its first launch and first gradient", "ms")
    for turn in range(repeat + 1):
        for size, program in SIZES.items():
            name = f"kernel_{turn}_{size.split()[0]}"
            text = program(name, hash((turn, size, os.getpid())))
            for peer in peers:
                found = peer.ask(measure="latency", text=text, name=name, size=size)
                if turn > 0:
                    latency.add_all({f"{size}, {what}": value for what, value in found.items()}, peer.name)
    return latency


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--warp-python", required=True, help="a Python that has warp-lang installed")
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--write", type=Path, help="write the tables to this file")
    options = parser.parse_args()
    ours, theirs = Peer("kernelab", sys.executable), Peer("warp", options.warp_python)
    ours.greet(), theirs.greet()
    tables = [table.markdown("kernelab", "warp") for table in measure(ours, theirs, options.repeat)]
    report = "\n\n".join([_preamble(ours, theirs, options.repeat), *tables]) + "\n"
    print(report)
    if options.write:
        # What other benchmarks wrote stands behind it.
        _, _, last = options.write.read_text().partition(f"\n## {OVERHEAD}")
        _, heading, behind = last.partition("\n#")
        options.write.write_text(report + heading + behind)


def _preamble(ours: Peer, theirs: Peer, repeat: int) -> str:
    return "\n".join(
        [
            "# Benchmark results",
            "",
            f"kernelab {ours.version} beside Warp {theirs.version} on the CPU,",
            f"Python {platform.python_version()}, {os.cpu_count()} shared cores.",
            f"Medians of {repeat} interleaved runs; a ratio above 1 means that kernelab is faster.",
            "Latency is that of a text never seen before, with a cold cache. Made by `make bench`.",
        ]
    )


if __name__ == "__main__":
    main()
