"""Colours of words: nothing of the text is lost, and each kind of word is told from the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelab.views.kernel.code_view import cpp_runs, python_runs
from kernelab.views.pages.markup import Run


@given(st.text(alphabet="ab1.'\"#\\/*\n =def", max_size=60))
def test_the_runs_of_the_lines_are_the_text(text: str) -> None:
    for language in (python_runs, cpp_runs):
        lines = ["".join(run.text for run in line) for line in language(text)]
        assert "\n".join(lines) == text


def test_python_words_are_told_apart() -> None:
    (line,) = python_runs("def f(): return 'a' + 1.5e-3  # why")
    assert [run for run in line if run.style] == [
        Run("def", "keyword"),
        Run("f", "name"),
        Run("return", "keyword"),
        Run("'a'", "string"),
        Run("1.5e-3", "number"),
        Run("# why", "comment"),
    ]


def test_cpp_words_are_told_apart() -> None:
    (line,) = cpp_runs("float x1 = 2.5f; // why")
    assert [run for run in line if run.style] == [
        Run("float", "keyword"),
        Run("// why", "comment"),
    ]


def test_a_string_over_two_lines_is_a_string_on_both() -> None:
    first, second = python_runs('"""one\ntwo"""')
    assert [first, second] == [(Run('"""one', "string"),), (Run('two"""', "string"),)]


@pytest.mark.parametrize("text", ["x1", "_3d", "vec3"])
def test_a_digit_inside_a_name_is_no_number(text: str) -> None:
    assert python_runs(text) == [(Run(text),)]
