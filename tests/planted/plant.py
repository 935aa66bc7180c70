"""Plants a fault in a copy of the checkout and runs the tests that should notice it."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.planted.faults import Fault

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("kernelab", "tests", "docs", "pyproject.toml", "README.md")
LIMIT = 900.0
"""Seconds after which a run has hung, which somebody would notice, too."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the tests noticed a fault, by which test, and after how long."""

    fault: Fault
    caught: bool
    by: str
    seconds: float


def places(fault: Fault, root: Path = ROOT) -> list[Path]:
    """The files in which the text to change stands, as often as it does."""
    files = sorted((root / fault.folder).rglob("*.py"))
    return [path for path in files for _ in range(path.read_text(encoding="utf-8").count(fault.old))]


def copy_checkout(folder: Path) -> None:
    """Copy what the tests need to a folder of its own."""
    for name in COPIED:
        source, ignored = ROOT / name, shutil.ignore_patterns("__pycache__", "node_modules")
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copy(source, folder / name)


def try_fault(fault: Fault, folder: Path) -> Verdict:
    """Plant a fault in a copied checkout, run its tests until one fails, and restore it."""
    (path,) = places(fault, folder)
    sound = path.read_text(encoding="utf-8")
    path.write_text(sound.replace(fault.old, fault.new), encoding="utf-8")
    start = time.monotonic()
    try:
        caught, by = _run(fault.tests, folder)
    finally:
        path.write_text(sound, encoding="utf-8")
    return Verdict(fault, caught, by, time.monotonic() - start)


def _run(tests: tuple[str, ...], folder: Path) -> tuple[bool, str]:
    options = ["-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command = [sys.executable, "-m", "pytest", *options, "--hypothesis-profile=unshrunk", *tests]
    try:
        # A fault as long as what it replaces, planted in the same second, has the same compiled module.
        with tempfile.TemporaryDirectory() as compiled:
            environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONPYCACHEPREFIX": compiled}
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=LIMIT,
                check=False,
            )
    except subprocess.TimeoutExpired:
        return True, "it never ends"
    lines = done.stdout.splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    if done.returncode < 0:
        return True, f"Python crashes with signal {-done.returncode}"
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(f"pytest said {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.returncode != 0, failed[0].split(" - ")[0].partition(" ")[2] if failed else ""
