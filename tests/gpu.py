"""``make test-gpu``: the tests of devices on the first GPU of this machine, in place of the simulated device.

    python -m tests.gpu [--quick | --dry | --sanitize memcheck|racecheck|initcheck|synccheck]
                        [--minutes 9] [what pytest takes]

What tells most comes first; with `--quick` that is all.  What is skipped is listed at the end.  The exit
status is 1 where there is no GPU: nothing was tested then.  With `--dry` simulated devices stand in for the
GPU, below cuda-python.  With `--sanitize` compute-sanitizer watches a few of the tests: those of sums, order
and what is kept.  What hangs ends: a test after two minutes, all of it after `--minutes`.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata

from kernelab.backend.cuda import nvidia
from kernelab.errors import KernelError
from tests.support.hardware import VARIABLE

QUICK = ("tests/runtime/test_devices.py", "tests/runtime/test_capture.py")
"""Arrays, launches, gradients and graphs, as users have them."""

FILES = (
    *QUICK,
    "tests/backend/test_cuda.py",
    "tests/runtime/test_inplace.py",
    "tests/backend/test_specialization.py",
    "tests/backend/test_nvidia.py",
)
PATIENCE = ("--timeout=120", "--timeout-method=thread")
"""A thread ends what hangs in the driver, where no signal comes through; pytest ends with it."""

DRY = ("-p", "tests.support.fakecuda", "--deselect=tests/backend/test_nvidia.py")
"""Simulated devices stand in for what tests/backend/test_nvidia.py tests."""

REST = "NOT ON THE GPU: all other files of tests/, which run on the CPU only (make test)"
WATCHED = (
    "tests/backend/test_cuda.py",
    "tests/backend/test_specialization.py",
    "-k",
    "sum or total or order or keep or room",
)
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
SANITIZER = "nvidia-cuda-sanitizer-api"
FOUND = 9
"""The exit status where compute-sanitizer has something to say."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu")
    parser.add_argument("--sanitize", choices=TOOLS, help="let this tool of compute-sanitizer watch")
    parser.add_argument("--quick", action="store_true", help="only the tests that tell most")
    parser.add_argument("--dry", action="store_true", help="on simulated devices, below cuda-python")
    parser.add_argument("--minutes", type=float, default=9.0, help="end after so long")
    options, rest = parser.parse_known_args(arguments)
    missing = None if options.dry else _missing(options.sanitize)
    if missing is not None:
        print(f"NOT RUN: {missing}")
        return 1
    called = command(options.sanitize, [*(DRY if options.dry else ()), *rest], options.quick)
    try:
        status = subprocess.run(
            called, env=os.environ | {VARIABLE: "1"}, check=False, timeout=60 * options.minutes
        ).returncode
    except subprocess.TimeoutExpired:
        print(f"ENDED after {options.minutes:g} minutes: what comes after the last line above was not tested")
        status = 1
    print(REST)
    return status


def _missing(tool: str | None) -> str | None:
    """Why nothing can be tested; None where it can: then what it will be tested on is printed."""
    try:
        driver = nvidia.open_driver(0)
    except KernelError as problem:
        return str(problem)
    if tool and sanitizer() is None:
        return f"compute-sanitizer was not found; pip install {SANITIZER} installs it"
    print(f"on {driver.name} ({driver.architecture}, {driver.processors} processors)", flush=True)
    return None


def command(tool: str | None, rest: Sequence[str], quick: bool = False) -> list[str]:
    """What is run: pytest, or compute-sanitizer that watches it."""
    pytest = [sys.executable, "-m", "pytest", "-v", "-rs", *PATIENCE]
    if tool is None:
        return [*pytest, *(QUICK if quick else FILES), *rest]
    watch = [str(sanitizer()), "--tool", tool, "--error-exitcode", str(FOUND), "--target-processes", "all"]
    return [*watch, *pytest, *WATCHED, *rest]


def sanitizer() -> str | None:
    """Where compute-sanitizer is: in NVIDIA's package, on the path, or nowhere."""
    try:
        files = metadata.files(SANITIZER) or []
    except metadata.PackageNotFoundError:
        files = []
    packaged = (str(file.locate()) for file in files if str(file).endswith("bin/compute-sanitizer"))
    return next(packaged, None) or shutil.which("compute-sanitizer")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
