"""Programs on numbers of all widths that nobody chose do to the last bit what they do as Python."""

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.number_programs import number_programs
from tests.support.number_checks import check_numbers
from tests.test_random_programs import examples


@pytest.mark.parametrize("shard", [0, *(pytest.param(k, marks=pytest.mark.long) for k in range(1, 24))])
def test_programs_on_numbers_do_what_they_do_as_python(shard: int) -> None:
    @hypothesis.seed(shard)
    @examples(10, database=None)
    @given(number_programs(), st.integers(0, 99))
    def check(text: str, seed: int) -> None:
        check_numbers(text, seed)

    check()
