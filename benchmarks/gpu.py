"""Measure kernelab beside Warp on the first GPU: work, launches, new kernels, a sparse Jacobian.

    python benchmarks/gpu.py [--warp-python PATH] [--torch-python PATH] [--jax-python PATH]
                             [--repeat N] [--shrink K] [--minutes M] [--write FILE] [--dry]

PyTorch and JAX, where they are installed, do saxpy alone.  With `--dry` a simulated device stands in for the
GPU, below cuda-python, for kernelab alone, and what is measured means nothing: it tries this program.
Work is timed by events of the device, with fresh random inputs; medians are reported, and where the systems
have not computed the same.  Each figure is printed, and the file written anew, as soon as it is there; what
fails or takes too long is a line of the report, and the rest goes on.  Without a GPU nothing is measured: it
says so, and the exit status is 1.
"""

import argparse
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from peer import Peer
from programs import SIZES

from kernelab.backend.cuda.nvidia import open_driver
from kernelab.errors import KernelError

WORK = {"saxpy": 10**8, "stencil": 10**8, "springs": 10**7, "bodies": 20_000, "loop": 10**6}
"""How many threads, or bodies."""

PATIENCE = 120.0
"""Seconds after which a request is given up, and its system started again."""

TO_REACH = """\
To reach: cell text to first launch with adjoint 40 / 90 / 350 ms; saxpy at 90 % of the bandwidth of a copy;
ahead of Warp on all other work, its adjoint at most 2.5 times the primal; launch / record / backward of a
launch 3 / 1 / 3 us; the Jacobian in 5 ms."""

Found = Mapping[str, float]


class System(Protocol):
    """A system under measurement."""

    name: str

    @property
    def works(self) -> Sequence[str]: ...

    def ask(self, **request: Any) -> Found:
        """What it measures; raises RuntimeError where it fails."""


class Restarted:
    """A system in a process of its own, which is started again when a request has ended it."""

    def __init__(self, name: str, python: str, *options: str) -> None:
        self.name, self._python, self._options = name, python, options
        self._peer: Peer | None = None

    @property
    def works(self) -> Sequence[str]:
        """What work it does."""
        return tuple(WORK) if self.name in ("kernelab", "warp") else ("saxpy",)

    def ask(self, **request: Any) -> Found:
        """Raises RuntimeError where the process ends or takes longer than `PATIENCE`."""
        is_new = self._peer is None
        peer = self._peer = self._peer or Peer(self.name, self._python, "gpu_worker.py", *self._options)
        guard = threading.Timer(PATIENCE, peer.process.kill)
        guard.start()
        try:
            if is_new:
                peer.greet()
            return peer.ask(**request)
        except (RuntimeError, OSError, ValueError) as problem:
            self._peer = None
            peer.process.kill()
            code = peer.process.wait()
            raise RuntimeError(f"{self.name} ended with status {code}") from problem
        finally:
            guard.cancel()


@dataclass
class Report:
    """Figures by table, row and system; written anew with each of them."""

    head: str
    systems: Sequence[str]
    file: Path | None = None
    figures: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, table: str, row: str, system: str, value: float) -> None:
        self.figures.setdefault(table, {}).setdefault(row, {})[system] = value
        self._say(f"{table}: {row}: {system} {value:.4g}")

    def note(self, text: str) -> None:
        self.notes.append(text)
        self._say(text)

    def _say(self, text: str) -> None:
        print(text, flush=True)
        if self.file:
            self.file.write_text(self.markdown())

    def markdown(self) -> str:
        """All that is known by now."""
        tables = [self._table(title, rows) for title, rows in self.figures.items()]
        return (
            "\n\n".join([self.head, *tables, "\n".join(f"* {note}" for note in self.notes), TO_REACH]) + "\n"
        )

    def _table(self, title: str, rows: Mapping[str, Found]) -> str:
        lines = [f"## {title}", "", f"| | {' | '.join(self.systems)} |", f"|---{'|---' * len(self.systems)}|"]
        for row, found in rows.items():
            cells = [f"{found[name]:.4g}" if name in found else "-" for name in self.systems]
            lines.append(f"| {row} | {' | '.join(cells)} |")
        return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--warp-python", help="a Python that has warp-lang installed; kernelab alone without")
    parser.add_argument("--torch-python", help="a Python that has PyTorch; this one if it has")
    parser.add_argument("--jax-python", help="a Python that has JAX; this one if it has")
    parser.add_argument("--dry", action="store_true", help="on a simulated device, to try this program")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--shrink", type=int, default=1, help="divide the sizes by this")
    parser.add_argument("--minutes", type=float, default=8.0, help="begin nothing new after so long")
    parser.add_argument("--write", type=Path, help="keep the tables in this file")
    options = parser.parse_args()
    if options.dry:
        fakecuda().install()
    try:
        driver = open_driver(0)
    except KernelError as problem:
        print(f"NOT RUN: no GPU was found, so nothing was measured: {problem}")
        return 1
    pythons = {
        "kernelab": sys.executable,
        "warp": options.warp_python,
        "torch": options.torch_python or (sys.executable if find_spec("torch") else None),
        "jax": options.jax_python or (sys.executable if find_spec("jax") else None),
    }
    if options.dry:  # the others know nothing of simulated devices
        systems = [Restarted("kernelab", sys.executable, "--dry")]
    else:
        systems = [Restarted(name, python) for name, python in pythons.items() if python]
    head = f"# On a GPU\n\n{driver.name}, {driver.architecture}, {driver.processors} processors."
    report = Report(head, [system.name for system in systems], options.write)
    failed = measure(report, systems, options.repeat, options.shrink, 60 * options.minutes)
    print(f"\n{report.markdown()}")
    return int(failed > 0)


def fakecuda() -> Any:
    """The simulated devices of the tests."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    return import_module("tests.support.fakecuda")


Step = tuple[str, Callable[[], None]]


def measure(
    report: Report, systems: Sequence[System], repeat: int, shrink: int, seconds: float = 540.0
) -> int:
    """Take all steps for which there is time, and return how many failed."""
    began, failed = time.monotonic(), 0
    steps = _steps(report, systems, repeat, shrink)
    for number, (what, step) in enumerate(steps, 1):
        spent = time.monotonic() - began
        if spent > seconds:
            report.note(f"NOT MEASURED, the time was up: {what}")
            continue
        print(f"[{number} of {len(steps)}, {spent:.0f} s] {what}", flush=True)
        try:
            step()
        except (RuntimeError, LookupError, ValueError, TypeError, OSError, ZeroDivisionError) as problem:
            failed += 1
            report.note(f"FAILED: {what}: {problem}")
    return failed


def _steps(report: Report, systems: Sequence[System], repeat: int, shrink: int) -> list[Step]:
    ours, n = systems[0], 10**6 // shrink
    steps: list[Step] = []
    for name, full in WORK.items():
        steps.append(
            (name, lambda name=name, full=full: _work(report, systems, name, full // shrink, repeat))
        )
    both = [each for each in systems if len(each.works) > 1]
    steps += [(f"overhead of {each.name}", lambda each=each: _overhead(report, each)) for each in both]
    steps += [(f"graphs of {each.name}", lambda each=each: _graphs(report, each)) for each in both]
    for size in SIZES:
        steps += [
            (
                f"new kernels of {size}, {each.name}",
                lambda each=each, size=size: _new(report, each, size, repeat),
            )
            for each in both
        ]
    steps.append((f"sparse Jacobian of {n:,}", lambda: _banded(report, ours, n, repeat)))
    return steps


def _overhead(report: Report, system: System) -> None:
    for what, value in system.ask(measure="overhead").items():
        report.add("Overhead of a launch, us", what, system.name, value)


def _graphs(report: Report, system: System) -> None:
    for what, value in system.ask(measure="graphs").items():
        report.add("A launch in a graph, us", what, system.name, value)


def _new(report: Report, system: System, size: str, repeat: int) -> None:
    """Text to first launch and first gradient; the first turn warms up."""
    samples: dict[str, list[float]] = {}
    for turn in range(repeat + 1):
        name = f"kernel_{turn}_{size.split()[0]}"
        text = SIZES[size](name, hash((turn, size, os.getpid())))
        for what, value in system.ask(measure="latency", text=text, name=name, size=size).items():
            samples.setdefault(what, []).append(value)
    for what, values in samples.items():
        report.add("A new kernel, ms", f"{size}, {what}", system.name, statistics.median(values[1:]))


def _banded(report: Report, system: System, n: int, repeat: int) -> None:
    found = system.ask(measure="banded", n=n, repeat=repeat)["banded"]
    report.add("A sparse Jacobian, ms", f"three bands, n = {n:,}", system.name, found)


def _work(report: Report, systems: Sequence[System], name: str, n: int, repeat: int) -> None:
    """A kernel and its adjoint on all systems; one that fails does not keep the next from its turn."""
    n = max(n, 8)
    found: dict[str, Found] = {}
    problems: list[str] = []
    for system in systems:
        if name not in system.works:
            continue
        try:
            found[system.name] = system.ask(measure="work", name=name, n=n, repeat=repeat)
        except RuntimeError as problem:
            problems.append(str(problem))
            continue
        for what in ("primal", "adjoint"):
            report.add("Work, ms", f"{name}, {n:,}, {what}", system.name, found[system.name][what])
    for told in _said_of(name, n, repeat, systems, found):
        report.note(told)
    if problems:
        raise RuntimeError("; ".join(problems))


def _said_of(
    name: str, n: int, repeat: int, systems: Sequence[System], found: Mapping[str, Found]
) -> list[str]:
    ours, *others = systems
    if ours.name not in found:
        return []
    mine = found[ours.name]
    told = [f"{name}: the adjoint takes {mine['adjoint'] / mine['primal']:.2f} times the primal"]
    for other in others:
        if other.name in found:
            told += disagreements(name, mine, found[other.name])
    if name == "saxpy":
        copied = ours.ask(measure="copy", n=n, repeat=repeat)["copy"]
        rates = [_rate(8 * n, copied), _rate(12 * n, mine["primal"])]
        told.append(f"a copy moves {rates[0]:.4g} GB/s, saxpy {rates[1]:.4g} GB/s")
    return told


def _rate(nbytes: int, milliseconds: float) -> float:
    """GB/s; infinite where it was too short to be timed."""
    return 1e-6 * nbytes / milliseconds if milliseconds else float("inf")


def disagreements(name: str, ours: Found, theirs: Found) -> list[str]:
    """Where the two systems have not computed the same from the same inputs."""
    return [
        f"{name}: THE SYSTEMS DISAGREE, {what} {ours[what]:.6g} and {theirs[what]:.6g}"
        for what in ("mean", "gradient")
        if abs(ours[what] - theirs[what]) > 1e-3 * max(abs(ours[what]), abs(theirs[what]), 1e-9)
    ]


if __name__ == "__main__":
    sys.exit(main())
