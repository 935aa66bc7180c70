"""Host programs that nobody chose, over overlapping views of two arrays: the gradients are exact."""

import hypothesis
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelab as kl
from tests.strategies.hosts import careless_programs, host_programs
from tests.support.tapes import Policy, checked_tape
from tests.support.transformed import check_careless, checked_transforms

# A quarter of the programs in the normal run.
quarters = pytest.mark.parametrize(
    "shard", [0, *(pytest.param(k, marks=pytest.mark.long) for k in (1, 2, 3))]
)


@quarters
@pytest.mark.parametrize("policy", ["save", "error", "passive"])
def test_gradients_are_exact_whatever_a_program_overwrites(policy: Policy, shard: int) -> None:
    @hypothesis.seed(1 + 10 * shard)
    @settings(max_examples=38, deadline=None, database=None)
    @given(host_programs(), st.integers(0, 9))
    def check(program: tuple[str, str], seed: int) -> None:
        checked_tape(program, seed, policy)

    check()


@quarters
def test_where_numpy_or_an_unrecorded_launch_interferes_the_gradient_is_exact_or_refused(shard: int) -> None:
    @hypothesis.seed(2 + 10 * shard)
    @settings(max_examples=38, deadline=None, database=None)
    @given(careless_programs(), st.integers(0, 9))
    def check(program: tuple[str, str], seed: int) -> None:
        checked_tape(program, seed, "careless")

    check()


@pytest.mark.long
def test_transforms_of_such_programs_are_exact_too() -> None:
    @hypothesis.seed(3)
    @settings(max_examples=20, deadline=None, database=None)
    @given(host_programs(), st.integers(0, 9))
    def check(program: tuple[str, str], seed: int) -> None:
        checked_transforms(program[0], seed)

    check()


@quarters
def test_transforms_of_careless_programs_are_exact_or_refused(shard: int) -> None:
    @hypothesis.seed(4 + 10 * shard)
    @settings(max_examples=19, deadline=None, database=None)
    @given(careless_programs(), st.integers(0, 9))
    def check(program: tuple[str, str], seed: int) -> None:
        check_careless(program[0], seed)

    check()


def test_cotangents_of_overlapping_views_add_up() -> None:
    x, y = (kl.zeros(4, kl.float64, requires_grad=True) for _ in range(2))
    with kl.Tape() as tape:
        kl.copy(y, x)
    tape.backward(grads={y: np.ones(4), y[1:3]: np.full(2, 10.0)})
    assert x.grad is not None
    assert x.grad.list() == [1.0, 11.0, 11.0, 1.0]
