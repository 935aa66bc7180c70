"""``make test-nvrtc``: every program of the tests and notebooks becomes machine code of a GPU, without one.

    python -m tests.nvrtc [--architecture sm_90] [what pytest takes]

The tests run once, and every kernel that they make is written down as CUDA text in all its variants
(`tests.support.harvest`); then NVRTC compiles each text.  The exit status is 1 if a test failed, if NVRTC
refused a text, or if it is not installed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from kernelab.backend import nvrtc
from kernelab.errors import BuildError
from tests.support.harvest import VARIABLE

USUAL = ("-q", "-n", "logical", "--maxprocesses=4", "--dist=loadgroup", "-m", "not browser")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.nvrtc")
    parser.add_argument("--architecture", action="append", help="sm_80 unless given; may be repeated")
    options, rest = parser.parse_known_args(arguments)
    if not nvrtc.is_installed():
        print("NOT RUN: NVRTC is not installed; pip install 'kernelab[cuda]' installs it")
        return 1
    with tempfile.TemporaryDirectory(prefix="kernelab-nvrtc-") as folder:
        tests = _run_tests(rest, folder)
        compiled = compile_all(Path(folder), options.architecture or ["sm_80"])
    return int(tests != 0 or not compiled)


def _run_tests(rest: Sequence[str], folder: str) -> int:
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.harvest", *USUAL, *rest]
    status = subprocess.run(command, env=os.environ | {VARIABLE: folder}, check=False).returncode
    if status:
        print(f"pytest ended with status {status}: there may be more programs than were gathered")
    return status


def compile_all(folder: Path, architectures: Sequence[str]) -> bool:
    """Compile what was gathered, and say what came of it; whether there was any and all of it compiled."""
    texts = sorted(folder.glob("*.cu"))
    too_wide = len(list(folder.glob("*.refused")))
    failures = 0
    with ProcessPoolExecutor() as pool:
        for architecture in architectures:
            for log in pool.map(_complaint, texts, [architecture] * len(texts), chunksize=8):
                failures += bool(log)
                print(log, end="\n\n" if log else "")
    found = f"{len(texts)} programs for {', '.join(architectures)}: NVRTC refused {failures}"
    print(f"{found}; {too_wide} more have too many arguments for a device")
    return bool(texts) and not failures


def _complaint(path: Path, architecture: str) -> str:
    """What NVRTC says against a text; "" if it compiles."""
    text = path.read_text()
    try:
        nvrtc.compile_to_cubin(text, architecture)
    except BuildError as problem:
        return f"{text}\n{problem}"
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
