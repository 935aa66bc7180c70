"""``make test-gpu``: the tests of devices on the first GPU of this machine, in place of the simulated device.

    python -m tests.gpu [--sanitize memcheck|racecheck|initcheck|synccheck] [what pytest takes]

What is skipped is listed at the end.  The exit status is 1 where there is no GPU: nothing was tested then.
With `--sanitize` compute-sanitizer watches a few of the tests: those of sums, of order and of what is kept.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata

from kernelab.backend import nvidia
from kernelab.errors import KernelError
from tests.support.hardware import VARIABLE

FILES = (
    "tests/backend/test_cuda.py",
    "tests/backend/test_usual.py",
    "tests/backend/test_nvidia.py",
    "tests/runtime/test_devices.py",
)
REST = "NOT ON THE GPU: all other files of tests/, which run on the CPU only (make test)"
WATCHED = (
    "tests/backend/test_cuda.py",
    "tests/backend/test_usual.py",
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
    options, rest = parser.parse_known_args(arguments)
    try:
        driver = nvidia.open_driver(0)
    except KernelError as problem:
        print(f"NOT RUN: {problem}")
        return 1
    if options.sanitize and sanitizer() is None:
        print(f"NOT RUN: compute-sanitizer was not found; pip install {SANITIZER} installs it")
        return 1
    print(f"on {driver.name} ({driver.architecture}, {driver.processors} processors)", flush=True)
    status = subprocess.run(
        command(options.sanitize, rest), env=os.environ | {VARIABLE: "1"}, check=False
    ).returncode
    print(REST)
    return status


def command(tool: str | None, rest: Sequence[str]) -> list[str]:
    """What is run: pytest, or compute-sanitizer that watches it."""
    pytest = [sys.executable, "-m", "pytest", "-rs"]
    if tool is None:
        return [*pytest, *FILES, *rest]
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
