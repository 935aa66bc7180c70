"""The console script: ``kernelab doctor`` and ``kernelab lesson``.

Knows arguments and exit codes; what it prints is made elsewhere.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from kernelab import __version__, doctor


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in ``arguments`` (default: the process's own) and return its exit code.

    The doctor prints what was found; 0 where kernels compile and run on the CPU, else 1.  ``lesson`` lists
    the lessons, ``lesson 3`` copies one; 1 where there is none, or the copy would overwrite a file.
    """
    parser = argparse.ArgumentParser(
        prog="kernelab", description="Interactive differentiable programming for Jupyter."
    )
    parser.add_argument("--version", action="version", version=f"kernelab {__version__}")
    commands = parser.add_subparsers(metavar="command")
    commands.add_parser("doctor", help="what was found on this machine, and what to do about what is missing")
    lesson = commands.add_parser(
        "lesson", help="copy a lesson of the course into this folder, or list them all"
    )
    lesson.add_argument(
        "number", type=int, nargs="?", help="the number of the lesson; without one, list them"
    )
    kind = lesson.add_mutually_exclusive_group()
    kind.add_argument("--student", action="store_true", help="without the solutions of its exercises")
    kind.add_argument(
        "--key", action="store_true", help="the exercises alone, with solutions, for the teacher"
    )
    given = sys.argv[1:] if arguments is None else arguments
    chosen = parser.parse_args(given or ["--help"])
    if "number" in chosen:
        return _lesson(chosen.number, "student" if chosen.student else "key" if chosen.key else "lesson")
    findings = doctor.examine()
    print(doctor.show(findings))
    return 0 if doctor.cpu_works(findings) else 1


def _lesson(number: int | None, version: Literal["lesson", "student", "key"]) -> int:
    from kernelab.teach import lessons  # here: the doctor has to run where the rest does not

    notebooks = lessons.lessons()
    if number is None:
        print("\n".join(lessons.title(lessons.read(path)) for path in notebooks.values()))
        print("\nkernelab lesson 1 copies the first into this folder (--student: without the solutions)")
        return 0
    if number not in notebooks:
        print(f"there is no lesson {number}: `kernelab lesson` lists those there are", file=sys.stderr)
        return 1
    try:
        copy = lessons.copied(notebooks[number], Path(), version)
    except FileExistsError as error:
        print(f"{error.filename} is there already and may be yours: move or rename it first", file=sys.stderr)
        return 1
    print(f"wrote {copy}: open it in JupyterLab, or type: jupyter lab {copy}")
    if find_spec("jupyterlab") is None:
        print("there is no JupyterLab here: pip install jupyterlab, or open it in another editor")
    return 0


if __name__ == "__main__":
    sys.exit(main())
