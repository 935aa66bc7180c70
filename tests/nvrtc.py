"""``make test-nvrtc``: every program of the tests and notebooks becomes machine code of a GPU, without one.

    python -m tests.nvrtc [--architecture sm_90] [--keep FOLDER] [--only-compile] [what pytest takes]

The tests run once, and every kernel that they make is written down as CUDA text in all its variants
(`tests.support.harvest`); then NVRTC compiles each text that it has not compiled before.  The kernels that
keep most in memory of their own, which makes them slow, are told.  The exit status is 1 if a test failed, if
NVRTC refused a text, or if it is not installed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from kernelab.backend.common.build_cache import cache_dir, key_of
from kernelab.backend.cuda import nvrtc
from kernelab.errors import BuildError
from tests.support.harvest import VARIABLE
from tests.support.usage import Usage, told, usages

BATCH = 8
"""So many texts are compiled as one."""

USUAL = ("-q", "-n", "logical", "--dist=loadgroup", "-m", "not browser")

# The plugin keeps the kernels of a test until its end, and with them their libraries.
UNLOADING = (
    "tests/backend/test_cpu.py::test_libraries_are_unloaded_with_the_kernels_that_they_were_built_for",
)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.nvrtc")
    parser.add_argument("--architecture", action="append", help="sm_80 unless given; may be repeated")
    parser.add_argument(
        "--keep", type=Path, help="gather the texts in this folder, which may hold some already"
    )
    parser.add_argument("--only-compile", action="store_true", help="run no tests: compile what is in --keep")
    options, rest = parser.parse_known_args(arguments)
    if not nvrtc.is_installed():
        print("NOT RUN: NVRTC is not installed; pip install 'kernelab[cuda]' installs it")
        return 1
    with tempfile.TemporaryDirectory(prefix="kernelab-nvrtc-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        tests = 0 if options.only_compile else _run_tests(rest, str(folder))
        compiled = compile_all(folder, options.architecture or ["sm_80"])
    return int(tests != 0 or not compiled)


def _run_tests(rest: Sequence[str], folder: str) -> int:
    left_out = [f"--deselect={name}" for name in UNLOADING]
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.harvest", *USUAL, *left_out, *rest]
    status = subprocess.run(command, env=os.environ | {VARIABLE: folder}, check=False).returncode
    if status:
        print(f"pytest ended with status {status}: there may be more programs than were gathered")
    return status


def compile_all(folder: Path, architectures: Sequence[str]) -> bool:
    """Compile what was gathered, and say what came of it; whether there was any and all of it compiled."""
    texts = sorted(folder.glob("*.cu"))
    too_wide = len(list(folder.glob("*.refused")))
    refused, known = 0, 0
    for architecture in architectures:
        passed, used = Passed(architecture), list[Usage]()
        fresh = [path for path in texts if path.stem not in passed.names]
        known += len(texts) - len(fresh)
        for path, found in _outcomes(fresh, architecture):
            if isinstance(found, str):
                refused += 1
                print(f"{found}\n", flush=True)
            else:
                used += found
                passed.add(path.stem)
        if used:
            print(f"{architecture}: {told(used)}")
    found = f"{len(texts)} programs for {', '.join(architectures)}: NVRTC refused {refused}"
    print(f"{found}; {known} had compiled before; {too_wide} more have too many arguments for a device")
    return bool(texts) and not refused


class Passed:
    """The names of texts, which are hashes of them, that this NVRTC has compiled before, kept in a file."""

    def __init__(self, architecture: str) -> None:
        key = key_of(nvrtc.version(), *nvrtc.FLAGS)[:12]
        self._file = cache_dir() / "nvrtc" / f"{architecture}-{key}"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self.names = set(self._file.read_text().split()) if self._file.exists() else set[str]()

    def add(self, name: str) -> None:
        self.names.add(name)
        with self._file.open("a") as file:
            file.write(f"{name}\n")


Outcome = str | list[Usage]
"""What NVRTC says against a text, or what its kernels take."""


def _outcomes(texts: Sequence[Path], architecture: str) -> Iterator[tuple[Path, Outcome]]:
    batches = [texts[k : k + BATCH] for k in range(0, len(texts), BATCH)]
    began, done = time.monotonic(), 0
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for batch, found in zip(
            batches, pool.map(_of_batch, batches, [architecture] * len(batches)), strict=True
        ):
            yield from zip(batch, found, strict=True)
            done += len(batch)
            if done % (50 * BATCH) == 0:
                print(f"{architecture}: {done} of {len(texts)}, {time.monotonic() - began:.0f} s", flush=True)


def _of_batch(paths: Sequence[Path], architecture: str) -> list[Outcome]:
    """Many texts at once take little longer than one; only if one is refused each is compiled by itself."""
    texts = [path.read_text() for path in paths]
    together = _outcome(joined(texts), architecture)
    if isinstance(together, str):
        return [_outcome(text, architecture) for text in texts]
    parts: list[list[Usage]] = [[] for _ in texts]
    for usage in together:
        unit, name = unit_of(usage.kernel)
        parts[unit].append(replace(usage, kernel=f"{name} of {paths[unit].name}"))
    return [*parts]


def joined(texts: Sequence[str]) -> str:
    """One unit of many, each in a namespace of its own, where its entry needs no name of C."""
    parts = (text.replace('extern "C" __global__', "__global__") for text in texts)
    return "".join(f"namespace unit_{k} {{\n{part}}}\n" for k, part in enumerate(parts))


def unit_of(symbol: str) -> tuple[int, str]:
    """Which of the joined units a kernel is of, and what it is called there: ``_ZN6unit_37f_entryE...``."""
    length, rest = _counted(symbol.removeprefix("_ZN"))
    size, name = _counted(rest[length:])
    return int(rest[len("unit_") : length]), name[:size]


def _counted(text: str) -> tuple[int, str]:
    """The number that a text begins with, and what follows."""
    digits = len(text) - len(text.lstrip("0123456789"))
    return int(text[:digits]), text[digits:]


def _outcome(text: str, architecture: str) -> Outcome:
    try:
        return list(usages(nvrtc.resources(text, architecture)))
    except BuildError as problem:
        return f"{text}\n{problem}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
