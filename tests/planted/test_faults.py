"""The planted faults fit the source as it is; `make planted` runs the tests on each of them."""

import ast

import pytest

from tests.planted.backward import BACKWARD
from tests.planted.explained import EXPLAINED
from tests.planted.faults import FAULTS as FIRST
from tests.planted.faults import Fault
from tests.planted.folded import FOLDED
from tests.planted.lanes import LANES
from tests.planted.later import LATER
from tests.planted.operators import OPERATORS
from tests.planted.plant import ROOT, places

FAULTS = (*FIRST, *LATER, *BACKWARD, *EXPLAINED, *FOLDED, *OPERATORS, *LANES)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_changes_exactly_one_place_and_leaves_python(fault: Fault) -> None:
    (path,) = places(fault)
    changed = path.read_text(encoding="utf-8").replace(fault.old, fault.new)
    ast.parse(changed)
    assert all((ROOT / test.partition("::")[0]).exists() for test in fault.tests)


def test_there_are_faults_enough_and_no_two_are_the_same() -> None:
    assert len(FAULTS) >= 30
    assert (
        len({(fault.old, fault.new) for fault in FAULTS})
        == len({fault.name for fault in FAULTS})
        == len(FAULTS)
    )
