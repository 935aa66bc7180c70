"""Measure kernelab beside Warp, numba, JAX and hand-written C++ in one run.

    python benchmarks/bench.py [--peers PYTHON] [--rounds N] [--shrink N] [--write benchmarks/RESULTS.md]

Each system runs in a process of its own; where there is no `--peers`, Warp, numba, JAX and Matplotlib are
installed from PyPI into build/peers.  Samples alternate between systems, so that noise of a shared machine
falls on all.  Gradients are compared with those of C++ first.  Medians are reported, and ratios of medians.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import simulations
from kernels import TITLES
from peer import HERE, Peer
from programs import SIZES

PACKAGES = ("numpy", "warp-lang", "numba", "jax[cpu]", "ml_dtypes", "matplotlib")
SYSTEMS = ("kernelab", "kernelab, all cores", "warp", "numba", "jax", "c++")
FIRST_OF_OTHERS = "\n## Memory of a long tape"
"""What other programs have written into the file stands behind this heading."""

CHAINS = (100, 1000, 10_000, 100_000)
JACOBIANS = (1000, 10_000, 100_000, 1_000_000)
STATEMENTS = (100, 300, 1000, 3000)
MOST = {"chain": 10_000, "statements": 1000}
"""The largest sizes that Warp is asked for."""

PROGRAMS = "Programs of simulation and graphics"

FIRST_CELL = "import kernelab as kl; kl.zeros(3); kl.kernel, kl.launch, kl.Tape"

IMPORTS = {
    "kernelab": "import kernelab",
    "kernelab and what a first cell uses": FIRST_CELL,
    "NumPy and ml_dtypes alone": "import numpy, ml_dtypes",
    "warp with init": "import warp; warp.config.quiet = True; warp.init()",
    "numba": "import numba",
    "jax": "import jax.numpy",
}

LAUNCHES = {
    "launch": "plain launch (us)",
    "many": "plain launch of 10,000 threads (us)",
    "step": "a tape of one launch, recorded, backward and zeroed (us)",
    "operators": "x * 2 + y by the operators of arrays (us)",
}
"""The rows of what `overhead` measures."""

Samples = dict[tuple[str, str], list[float]]


class Results:
    """Samples by table, row and system, and how they are printed."""

    def __init__(self) -> None:
        self.tables: dict[str, Samples] = {}
        self.wrong: set[tuple[str, str]] = set()

    def add(self, table: str, row: str, system: str, value: float) -> None:
        self.tables.setdefault(table, {}).setdefault((row, system), []).append(value)

    def add_all(self, table: str, system: str, values: Mapping[str, float], before: str = "") -> None:
        for row, value in values.items():
            self.add(table, before + row, system, value)

    def median(self, table: str, row: str, system: str) -> float | None:
        found = self.tables[table].get((row, system))
        return statistics.median(found) if found else None

    def markdown(self, table: str, unit: str, base: str) -> str:
        """A table: medians, for other systems than `base` their ratio to it, and the spread of kernelab."""
        samples = self.tables[table]
        named = dict.fromkeys(system for _, system in samples)
        others = [system for system in SYSTEMS if system in named and system != base]
        heads = [f"{base} ({unit})", *(f"{system} / {base}" for system in others), "spread of kernelab"]
        lines = [f"## {table}", "", f"| | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
        rows = dict.fromkeys(row for row, _ in samples)
        lines += [f"| {row} | {' | '.join(self._cells(table, row, base, others))} |" for row in rows]
        return "\n".join(lines)

    def _cells(self, table: str, row: str, base: str, others: Sequence[str]) -> Iterator[str]:
        first = self.median(table, row, base)
        yield "" if first is None else f"{first:.3g}"
        for system in others:
            found = self.median(table, row, system)
            wrong = " (wrong gradient)" if (row, system) in self.wrong else ""
            yield "" if found is None or not first else f"{found / first:.2f}{wrong}"
        own = self.tables[table].get((row, "kernelab"), [])
        yield f"{min(own):.3g} to {max(own):.3g}" if own else ""


class Bench:
    """The systems under measurement, and what has been measured."""

    def __init__(self, python: str, rounds: int, shrink: int) -> None:
        self.python, self.rounds, self.shrink = python, rounds, shrink
        self.results = Results()
        self.versions: dict[str, str] = {}

    def start(self, *systems: str) -> list[Peer]:
        peers = [
            Peer(name, sys.executable if name.startswith("kernelab") else self.python) for name in systems
        ]
        for peer in peers:
            peer.greet()
            if "," not in peer.name:
                self.versions[peer.name] = peer.version
        return peers

    def throughput(self) -> None:
        peers = self.start(*SYSTEMS)
        for name, title in TITLES.items():
            request = {"measure": "kernel", "name": name, "shrink": self.shrink}
            found = {peer.name: peer.ask(**request) for peer in peers}
            by_hand = found["c++"]["gradients"]
            for system, answer in found.items():
                if answer and not _agree(answer["gradients"], by_hand):
                    self.results.wrong.add((f"{title}, adjoint", system))
            time.sleep(2)  # better code is built in the background
            for _ in range(self.rounds):
                for peer in peers:
                    times = peer.ask(**request) if found[peer.name] else {}
                    self.results.add_all("Throughput of kernels", peer.name, times, f"{title}, ")
        for peer in peers:
            peer.end()

    def simulations(self) -> None:
        peers = self.start("kernelab", "kernelab, all cores", "warp")
        for title in simulations.TEXTS:
            request = {"measure": "kernel", "name": title, "shrink": self.shrink}
            found = {peer.name: peer.ask(**request) for peer in peers}
            agree = _agree(found["warp"]["gradients"], found["kernelab"]["gradients"])
            if not agree and title not in simulations.OWN_NUMBERS:
                self.results.wrong.add((f"{title}, adjoint", "warp"))
            time.sleep(1)  # better code is built in the background
            for _ in range(min(3, self.rounds)):
                for peer in peers:
                    self.results.add_all(PROGRAMS, peer.name, peer.ask(**request), f"{title}, ")
        for peer in peers:
            peer.end()

    def tapes(self) -> None:
        peers = self.start("kernelab", "warp")
        for turn in range(min(3, self.rounds) + 1):
            for peer in peers:
                for what, value in peer.ask(measure="overhead").items():
                    if turn and what in LAUNCHES:
                        self.results.add("Tapes, a launch", LAUNCHES[what], peer.name, value)
                for kind, title in (("new", "new arrays"), ("made", "made beforehand"), ("two", "ping-pong")):
                    found = peer.ask(measure="chain", launches=10_000 // self.shrink, kind=kind)
                    if turn:
                        self._add_chain(peer.name, title, found)
        self.sizes("chain", CHAINS, peers, lambda n: {"measure": "chain", "launches": n, "kind": "new"})
        for peer in peers:
            peer.end()

    def _add_chain(self, system: str, title: str, found: dict[str, float]) -> None:
        for what in ("record", "backward"):
            self.results.add("Tapes, a launch", f"{title}, {what} (us)", system, found[what])

    def sizes(
        self, what: str, sizes: Sequence[int], peers: Sequence[Peer], request: Callable[[int], dict[str, Any]]
    ) -> None:
        """One measurement of each size, for the picture and a table of its own."""
        for n in sizes:
            for peer in peers:
                if peer.name == "kernelab" or n <= MOST[what]:
                    found = peer.ask(**request(n))
                    found.pop("memory", None)
                    self.results.add_all(f"Cost against size: {what}", peer.name, found, f"{n}, ")

    def first_calls(self) -> None:
        """What is measured in a process and with a cache that are new each time."""
        for _ in range(min(3, self.rounds)):
            for n in JACOBIANS:
                (peer,) = self.start("kernelab")
                found = peer.ask(measure="jacobian", n=n)
                self.results.add_all("Cost against size: Jacobian", "kernelab", found, f"{n}, ")
                peer.end()
            for peer in self.start("kernelab", "warp"):
                found = peer.ask(measure="chain", launches=10_000 // self.shrink, kind="new")
                self.results.add("Tapes, a launch", "new arrays, memory (kB)", peer.name, found["memory"])
                self.results.add_all("First checks", peer.name, peer.ask(measure="checks"))
                peer.end()
        peers = self.start("kernelab", "warp")
        for turn in range(self.rounds + 1):
            self._latency(peers, turn)
        for peer in peers:
            peer.ask(measure="statements", count=10)
        self.sizes("statements", STATEMENTS, peers, lambda n: {"measure": "statements", "count": n})
        for peer in peers:
            peer.end()

    def _latency(self, peers: Sequence[Peer], turn: int) -> None:
        for size, program in SIZES.items():
            name = f"kernel_{turn}_{size.split()[0]}"
            text = program(name, hash((turn, size, os.getpid())))
            if turn <= 2 or size != "200 operations":  # which take Warp seconds
                for peer in peers:
                    found = peer.ask(measure="latency", text=text, name=name, size=size)
                    if turn:
                        self.results.add_all("From a text to its gradient", peer.name, found, f"{size}, ")

    def imports(self) -> None:
        # As users have it: Python keeps what it has compiled.
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "PYTHONDONTWRITEBYTECODE": ""}
        environment["PYTHONPYCACHEPREFIX"] = tempfile.mkdtemp()
        for turn in range(self.rounds + 1):
            for title, statement in IMPORTS.items():
                python = self.python if title.startswith(("warp", "numba", "jax")) else sys.executable
                start = time.perf_counter()
                subprocess.run([python, "-c", statement], env=environment, check=True, capture_output=True)
                if turn:
                    self.results.add("Imports", title, "kernelab", 1e3 * (time.perf_counter() - start))

    def picture(self, file: Path) -> None:
        """The log-log picture of cost against size."""
        panels: dict[str, dict[str, list[tuple[int, float]]]] = {}
        for what, unit in (("chain", "us a launch"), ("Jacobian", "ms"), ("statements", "ms")):
            table = f"Cost against size: {what}"
            for row, system in self.results.tables[table]:
                n, part = row.split(", ")
                series = panels.setdefault(f"{what} ({unit})", {}).setdefault(f"{system}, {part}", [])
                series.append((int(n), self.results.median(table, row, system) or 0.0))
        text = json.dumps(panels)
        subprocess.run([self.python, str(HERE / "picture.py"), str(file)], input=text, text=True, check=True)

    def report(self, seconds: float) -> str:
        tables = [
            self.results.markdown(table, unit, base)
            for table, unit, base in (
                ("Throughput of kernels", "ms", "c++"),
                (PROGRAMS, "ms", "kernelab"),
                ("Tapes, a launch", "us or kB", "kernelab"),
                ("Imports", "ms", "kernelab"),
                ("From a text to its gradient", "ms", "kernelab"),
                ("First checks", "ms", "kernelab"),
                ("Cost against size: chain", "us", "kernelab"),
                ("Cost against size: Jacobian", "ms", "kernelab"),
                ("Cost against size: statements", "ms", "kernelab"),
            )
            if table in self.results.tables
        ]
        return "\n\n".join([self._preamble(seconds), *tables]) + "\n"

    def _preamble(self, seconds: float) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return "\n".join(
            [
                "# Benchmark results",
                "",
                f"{versions}; Python {platform.python_version()}.",
                f"{_processor()}, {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f} at the end.",
                f"Medians of up to {self.rounds} interleaved runs in {seconds:.0f} s, made by `make bench`.",
                "A run of a kernel is the median of the calls that 30 ms leave time for: caches are warm.",
                "A ratio above 1 is slower than the first column. C++ is one thread, `-O3 -march=native`;",
                "kernelab takes one core but in the column of all cores.",
                "",
                "![Cost against size](sizes.svg)",
            ]
        )


def _agree(found: dict[str, list[float]], wanted: dict[str, list[float]]) -> bool:
    """Whether samples of gradients agree to float32's accuracy over long sums."""
    return all(
        abs(a - b) <= 2e-3 * (max(map(abs, wanted[name])) + abs(b))
        for name in wanted
        for a, b in zip(found[name], wanted[name], strict=True)
    )


def _processor() -> str:
    """The model of the processor, and the widest vectors that it has."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    about = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    flags = about.get("flags", "").split()
    vectors = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "no AVX2"
    return f"{about.get('model name', '')}, {vectors}"


def _environment() -> str:
    """The Python of the environment of the other systems, made when it is first needed."""
    folder = HERE.parent / "build" / "peers"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PACKAGES], check=True)
        (folder / "complete").touch()
    return str(python)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", help="a Python that has the other systems installed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shrink", type=int, default=1, help="divide the sizes of kernels and tapes")
    parser.add_argument("--write", type=Path, help="write the tables to this file, the picture beside it")
    options = parser.parse_args()
    bench, start = Bench(options.peers or _environment(), options.rounds, options.shrink), time.perf_counter()
    for part in (bench.throughput, bench.simulations, bench.tapes, bench.imports, bench.first_calls):
        part()
        print(f"{part.__name__}: {time.perf_counter() - start:.0f} s", flush=True)
    report = bench.report(time.perf_counter() - start)
    print(report)
    if options.write:
        before = options.write.read_text(encoding="utf-8") if options.write.exists() else ""
        _, heading, behind = before.partition(FIRST_OF_OTHERS)
        options.write.write_text(report + heading + behind, encoding="utf-8")
        bench.picture(options.write.with_name("sizes.svg"))


if __name__ == "__main__":
    main()
