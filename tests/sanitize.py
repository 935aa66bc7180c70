"""``make sanitize``: generated code under the sanitizers of g++, as many programs as there is time for.

    python -m tests.sanitize [--minutes 30] [--programs 10000] [--seed 7] [--only address undefined thread]

Each sanitizer has a run of its own, of so many minutes and programs, without recovery: AddressSanitizer and
UndefinedBehaviorSanitizer over the zoo, random kernels with their derivatives and random tapes, as scalar and
as vector code; ThreadSanitizer over launches from several threads.  A finding ends the process that runs the
programs (`tests.support.sanitized`): its report and the program are printed, and the next round begins in
another one.  The exit status is 1 if anything was found.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.sanitized import COUNTED, CURRENT

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Sanitizer:
    """What g++ calls a sanitizer, its library, and how it is told to end the process at its first finding."""

    flags: tuple[str, ...]
    library: str
    variable: str
    options: str


SANITIZERS = {
    "address": Sanitizer(
        # Python itself keeps memory until its end.
        ("-fsanitize=address",),
        "libasan.so",
        "ASAN_OPTIONS",
        "detect_leaks=0",
    ),
    "undefined": Sanitizer(
        ("-fsanitize=undefined,float-cast-overflow",), "libubsan.so", "UBSAN_OPTIONS", "print_stacktrace=1"
    ),
    "thread": Sanitizer(("-fsanitize=thread",), "libtsan.so", "TSAN_OPTIONS", "halt_on_error=1"),
}


def missing(kind: str) -> str:
    """Why generated code cannot run under a sanitizer here; empty where it can."""
    if shutil.which("g++") is None:
        return "there is no g++"
    if not Path(_library(kind)).is_absolute():
        return f"g++ has no {SANITIZERS[kind].library}: on Debian and Ubuntu it comes with g++"
    return ""


def _library(kind: str) -> str:
    asked = ["g++", f"-print-file-name={SANITIZERS[kind].library}"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def environment(kind: str) -> Mapping[str, str]:
    """The environment in which a Python process builds and runs generated code under a sanitizer.

    The flags are part of the compiler's command, and so of the name of each library in the cache.
    """
    chosen = SANITIZERS[kind]
    flags = (*chosen.flags, "-fno-sanitize-recover=all", "-g1")
    own = {
        "KERNELAB_CXX": " ".join(("g++", *flags)),
        "LD_PRELOAD": _library(kind),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        chosen.variable: chosen.options,
    }
    return os.environ | own


def command(arguments: Sequence[str]) -> list[str]:
    """The command of a Python process; its addresses are not random, which ThreadSanitizer needs."""
    python = [sys.executable, *arguments]
    steady = ["setarch", "-R"]
    if shutil.which("setarch") is None or subprocess.run([*steady, "true"], check=False).returncode:
        return python
    return [*steady, *python]


class Run:
    """One sanitizer's run: what has been tried, and how often something was found."""

    def __init__(self, kind: str, seed: int, programs: int, minutes: float) -> None:
        self.kind, self.seed, self.programs = kind, seed, programs
        self.end = time.monotonic() + 60 * minutes
        self.count = Counter[str]()
        self.findings = 0

    def go(self) -> None:
        """Run rounds until time or programs are used up."""
        first = 0
        while self.left > 0 and self.count["programs"] < self.programs:
            print(f"{self.kind}: runs for up to {self.left:.0f} minutes, then says what it tried", flush=True)
            with tempfile.TemporaryDirectory(prefix="kernelab-sanitize-") as folder:
                ended = self._process(Path(folder), first)
                first = self._add(Path(folder), first)
                if ended.returncode:
                    self._tell(ended, Path(folder))
            print(f"{self.kind}: {self.tried}, {self.findings} findings", flush=True)

    @property
    def left(self) -> float:
        """The minutes that are left."""
        return (self.end - time.monotonic()) / 60

    @property
    def tried(self) -> str:
        """How much has run."""
        names = ("zoo", "kernels", "programs", "tapes")
        return ", ".join(f"{self.count[name]} {name}" for name in names)

    def _process(self, folder: Path, first: int) -> "subprocess.CompletedProcess[str]":
        limits = ("--minutes", str(self.left), "--programs", str(self.programs - self.count["programs"]))
        begin = ("--seed", str(self.seed), "--first", str(first))
        asked = command(["-m", "tests.support.sanitized", self.kind, str(folder), *begin, *limits])
        return subprocess.run(
            asked, env=environment(self.kind), cwd=ROOT, capture_output=True, text=True, check=False
        )

    def _add(self, folder: Path, first: int) -> int:
        """Add what a process has run; the round at which the next one begins."""
        counted = folder / COUNTED
        if not counted.exists():
            return first + 1
        number, count = counted.read_text().splitlines()
        self.count.update(ast.literal_eval(count))
        return int(number) + 2

    def _tell(self, ended: "subprocess.CompletedProcess[str]", folder: Path) -> None:
        self.findings += 1
        current = folder / CURRENT
        program = current.read_text() if current.exists() else ""
        print(f"{ended.stdout}{ended.stderr}\nthe program:\n{program}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make sanitize", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="of each sanitizer")
    parser.add_argument("--programs", type=int, default=sys.maxsize, help="of each sanitizer")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--only", nargs="+", choices=SANITIZERS, default=list(SANITIZERS))
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    findings = 0
    for kind in chosen.only:
        reason = missing(kind)
        if reason:
            print(f"NOT RUN: {reason}")
            findings += 1
            continue
        run = Run(kind, chosen.seed, chosen.programs, chosen.minutes)
        run.go()
        findings += run.findings
    return int(findings > 0)


if __name__ == "__main__":
    sys.exit(main())
