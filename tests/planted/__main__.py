"""``make planted``: plants every fault in turn, and prints which tests noticed.

    python -m tests.planted [words of a fault's name]

The exit status is 1 if fewer than 95 of 100 faults were caught.
"""

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
from tests.planted.plant import Verdict, copy_checkout, try_fault

ENOUGH = 0.95


def main(words: list[str]) -> int:
    chosen = [
        fault
        for fault in (*FAULTS, *LATER, *BACKWARD, *EXPLAINED, *FOLDED, *OPERATORS, *LANES)
        if not words or " ".join(words) in fault.name
    ]
    with tempfile.TemporaryDirectory(prefix="kernelab-planted-") as folder:
        copy_checkout(Path(folder))
        verdicts = [_tried(fault, Path(folder)) for fault in chosen]
    caught = sum(verdict.caught for verdict in verdicts)
    print(f"{caught} of {len(verdicts)} faults were caught")
    return int(caught < ENOUGH * len(verdicts))


def _tried(fault: Fault, folder: Path) -> Verdict:
    verdict = try_fault(fault, folder)
    said = verdict.by if verdict.caught else "NOBODY NOTICED"
    print(f"{verdict.seconds:6.0f} s  {fault.name}\n          {said}", flush=True)
    return verdict


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
