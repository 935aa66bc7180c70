"""``make planted``: plants every fault in turn, and prints which tests noticed.

    python -m tests.planted [words of a fault's name, or part of the path of the file that it changes]

The exit status is 1 if fewer than 95 of 100 faults were caught.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.planted.backward import BACKWARD
from tests.planted.explained import EXPLAINED
from tests.planted.faults import FAULTS, Fault
from tests.planted.folded import FOLDED
from tests.planted.lanes import LANES
from tests.planted.later import LATER
from tests.planted.operators import OPERATORS
from tests.planted.plant import ROOT, Verdict, copy_checkout, places, try_fault

ENOUGH = 0.95


def main() -> int:
    parser = argparse.ArgumentParser(prog="make planted", description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", help="of a fault's name, or part of the path that it changes")
    words = " ".join(parser.parse_args().words)
    every = (*FAULTS, *LATER, *BACKWARD, *EXPLAINED, *FOLDED, *OPERATORS, *LANES)
    chosen = [fault for fault in every if words in fault.name or words in _file(fault)]
    if not chosen:
        parser.error(f"no fault has {words!r} in its name or in the path of its file")
    print(f"{len(chosen)} faults", flush=True)
    with tempfile.TemporaryDirectory(prefix="kernelab-planted-") as folder:
        copy_checkout(Path(folder))
        verdicts = [_tried(fault, Path(folder)) for fault in chosen]
    caught = sum(verdict.caught for verdict in verdicts)
    print(f"{caught} of {len(verdicts)} faults were caught")
    return int(caught < ENOUGH * len(verdicts))


def _file(fault: Fault) -> str:
    """The file that a fault changes."""
    (path,) = places(fault)
    return path.relative_to(ROOT).as_posix()


def _tried(fault: Fault, folder: Path) -> Verdict:
    verdict = try_fault(fault, folder)
    said = verdict.by if verdict.caught else "NOBODY NOTICED"
    print(f"{verdict.seconds:6.0f} s  {fault.name}\n          {said}", flush=True)
    return verdict


if __name__ == "__main__":
    sys.exit(main())
