"""Names of generated C++."""

from kernelab.codegen.names import Names, identifier
from kernelab.lang.ir import Var
from kernelab.lang.types import float32


def test_a_hint_is_kept_and_its_repetition_is_numbered() -> None:
    name = Names()
    first, second = Var(float32, "s"), Var(float32, "s")
    assert [name(first), name(second), name(first)] == ["s", "s_1", "s"]


def test_a_number_never_runs_into_a_hint_that_ends_in_digits() -> None:
    name = Names()
    found = [name(Var(float32, hint)) for hint in ("c1", "c_1", "c", "c", "c1")]
    assert found == ["c1", "c_1", "c", "c_2", "c1_1"]


def test_words_of_the_language_and_of_mathematics_are_not_given_out() -> None:
    name = Names()
    found = [name(Var(float32, hint)) for hint in ("double", "sinf", "thread", "threadIdx")]
    assert found == ["double_1", "sinf_1", "thread_1", "threadIdx_1"]


def test_letters_of_other_alphabets_are_spelled_out() -> None:
    assert identifier("α") == "alpha"
    assert identifier("Δx") == "deltax"
    assert identifier("变") != identifier("x")


def test_what_is_no_identifier_becomes_one() -> None:
    assert [identifier(hint) for hint in ("a.b", "2x", "", "__x__")] == ["a_b", "t2x", "t", "x"]


def test_the_names_around_a_parameter_belong_to_it_alone() -> None:
    name = Names()
    assert name.family(Var(float32, "x_n0"), []) == "x_n0"
    assert name.family(Var(float32, "x"), ["_n0"]) == "x_1"
    assert name(Var(float32, "x_1_n0")) == "x_1_n0_1"
