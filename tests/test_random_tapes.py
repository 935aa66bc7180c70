"""Host programs that nobody chose, over overlapping views of two arrays: the tape's gradients are exact."""

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.hosts import careless_programs, host_programs
from tests.support.tapes import Policy, checked_tape


@pytest.mark.parametrize("policy", ["save", "error"])
def test_gradients_are_exact_whatever_a_program_overwrites(policy: Policy) -> None:
    @hypothesis.seed(1)
    @settings(max_examples=300, deadline=None, database=None)
    @given(host_programs(), st.integers(0, 9))
    def check(program: tuple[str, str], seed: int) -> None:
        checked_tape(program, seed, policy)

    check()


def test_where_numpy_or_an_unrecorded_launch_interferes_the_gradient_is_exact_or_refused() -> None:
    @hypothesis.seed(2)
    @settings(max_examples=300, deadline=None, database=None)
    @given(careless_programs(), st.integers(0, 9))
    def check(program: tuple[str, str], seed: int) -> None:
        checked_tape(program, seed, "careless")

    check()
