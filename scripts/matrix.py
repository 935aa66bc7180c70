"""Runs the fast tests under every Python of this machine, with the lowest and the newest dependencies.

    python scripts/matrix.py                          every Python from 3.11 on that is found
    python scripts/matrix.py --python 3.13 --newest   one cell of the matrix
    python scripts/matrix.py --list                   what would run

Each cell has an environment of its own below build/matrix, made by that Python's venv and pip.  The lowest
versions are those that pyproject.toml names for that Python.  Ends with 1 where a cell failed.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("notebook", "jupyter", "sparse", "bfloat16", "dask", "matrix")
FOLDERS = ("lang", "frontend", "conformance", "contract", "codegen")
CHECKED = ["test_tiny.py", "test_public_names.py", "test_core.py", *FOLDERS]
FIRST, LAST = (3, 11), (3, 14)


def pythons() -> dict[str, str]:
    """The interpreters that are found, by version: on the path, of pyenv, of uv; the path's first."""
    found: dict[str, str] = {}
    for minor in range(FIRST[1], LAST[1] + 1):
        for command in candidates(f"3.{minor}"):
            if answers(command, f"3.{minor}"):
                found[f"3.{minor}"] = command
                break
    return found


def candidates(version: str) -> Iterator[str]:
    """The commands that may be a Python of that version."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        yield getattr(sys, "_base_executable", sys.executable)
    yield from filter(None, [shutil.which(f"python{version}")])
    yield from map(str, sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), reverse=True))
    yield from map(str, sorted(Path.home().glob(f".local/share/uv/python/cpython-{version}.*/bin/python")))


def answers(command: str, version: str) -> bool:
    """Whether a command is that Python and can make environments."""
    text = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    try:
        told = subprocess.run([command, "-c", text], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return False
    return told.returncode == 0 and told.stdout.strip() == version


def lowest(version: str) -> list[str]:
    """The lowest declared version of each dependency under a Python, as constraints of pip."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    stated = [*project["dependencies"], *(line for extra in EXTRAS for line in optional[extra])]
    found = []
    for requirement in stated:
        line, _, marker = requirement.partition(";")
        given = re.match(r"([A-Za-z0-9_.-]+)(?:\[[^]]*\])?\s*>=\s*([0-9.]+)", line)
        if given is not None and holds(marker, version):
            found.append(f"{given[1]}=={given[2]}.*")
    return found


def holds(marker: str, version: str) -> bool:
    """Whether a marker of `python_version` alone holds for a Python."""
    asked = tuple(map(int, version.split(".")))
    for part in filter(str.strip, marker.split(" and ")):
        stated = re.match(r"\s*python_version\s*(<|>=)\s*['\"](\d+)\.(\d+)['\"]\s*$", part)
        if stated is None:
            raise ValueError(f"this marker is not read here: {marker}")
        bound = int(stated[2]), int(stated[3])
        if not (asked < bound if stated[1] == "<" else asked >= bound):
            return False
    return True


def run_cell(version: str, command: str, which: str, tests: Sequence[str]) -> bool:
    """Make an environment, install into it and run the tests; whether all of it went well."""
    folder = ROOT / "build" / "matrix" / f"{version}-{which}"
    subprocess.run([command, "-m", "venv", "--clear", str(folder)], check=True)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    python = str(programs / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--editable", f"{ROOT}[{','.join(EXTRAS)}]"]
    if which == "lowest":
        constraints = folder / "constraints.txt"
        constraints.write_text("\n".join(lowest(version)), encoding="utf-8")
        install += ["--constraint", str(constraints)]
    environment = os.environ | {"KERNELAB_FRONT_END": "skip", "PYTHONPATH": str(ROOT)}
    if subprocess.run(install, cwd=ROOT, env=environment, check=False).returncode:
        return False
    # Old packages use what new ones deprecate.
    check = [python, "-m", "pytest", "-q", "-n", "logical", "-W", "ignore::DeprecationWarning"]
    check += ["-m", "not slow and not long and not nvrtc"]
    check += tests or [f"tests/{name}" for name in CHECKED]
    environment["PATH"] = f"{programs}{os.pathsep}{environment.get('PATH', '')}"
    return subprocess.run(check, cwd=ROOT, env=environment, check=False).returncode == 0


def main() -> int:
    """Run the cells that were asked for, and say how each ended."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--python", action="append", metavar="VERSION", help="such as 3.13; may be repeated")
    parser.add_argument("--lowest", action="store_true", help="the lowest declared dependencies alone")
    parser.add_argument("--newest", action="store_true", help="the newest dependencies alone")
    parser.add_argument("--list", action="store_true", help="say what would run, and run nothing")
    parser.add_argument("tests", nargs="*", help="the tests (default: the fast ones)")
    given = parser.parse_args()
    found = pythons()
    asked = given.python or list(found)
    missing = [version for version in asked if version not in found]
    every = [which for which in ("lowest", "newest") if getattr(given, which) or given.lowest == given.newest]
    cells = [(version, which) for version in asked if version in found for which in every]
    results = [f"Python {version}: not found" for version in missing]
    failed = bool(missing)
    for version, which in cells:
        if given.list:
            results.append(f"Python {version}, {which}: {found[version]}")
            continue
        print(f"Python {version}, {which}: {found[version]}", flush=True)
        passed = run_cell(version, found[version], which, given.tests)
        failed |= not passed
        results.append(f"Python {version}, {which}: {'passed' if passed else 'FAILED'}")
    print("\n".join(results))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
