"""Errors as a notebook shows them: the message, the place, the user's own calls, and no frame of ours."""

import linecache
import re
from collections.abc import Callable
from functools import cached_property

import pytest

from kernelab.errors import EXCERPT, Diagnostic, KernelIndexError, KernelTypeError, Related, Source, Span
from kernelab.views.pages.display import error_lines, warning_lines

CELL = Source("def f(x: array[vec3]):\n    p = x[0] + 1.5\n", "Cell In[12]", first_line=2)
SPAN = Span(CELL, 3, 8, 3, 18)
MISTAKE = Diagnostic("cannot add vec3 and float32", SPAN, note="vec3 + float32", hint="write vec3(1.5)")


def plain(lines: list[str]) -> str:
    return re.sub(r"\x1b\[\d+m", "", "\n".join(lines))


def test_a_mistake_is_shown_with_its_place_a_caret_and_a_hint() -> None:
    assert plain(error_lines(KernelTypeError(MISTAKE))) == (
        "KernelTypeError: cannot add vec3 and float32\n"
        "  Cell In[12], line 3\n"
        "    3 |     p = x[0] + 1.5\n"
        "                ^^^^^^^^^^   vec3 + float32\n"
        "  hint: write vec3(1.5)"
    )


def test_another_place_is_shown_where_it_is_another() -> None:
    head = Span(CELL, 2, 0, 2, 22)
    shown = Diagnostic(
        "no", SPAN, related=(Related("here too", SPAN), Related("defined here", head))
    ).render()
    assert "here too" not in shown
    assert "  defined here\n  Cell In[12], line 2\n    2 | def f(x: array[vec3]):" in shown


LONG = Source("x = " + " + ".join(f"some_name_{k}" for k in range(30)), "Cell In[1]")


@pytest.mark.parametrize("name", ["some_name_0", "some_name_15", "some_name_29"])
def test_of_a_long_line_the_part_around_the_caret_is_shown(name: str) -> None:
    """A page would wrap the whole line, and the caret would stand below something else."""
    column = LONG.line(1).index(name)
    text, caret = Diagnostic("no", Span(LONG, 1, column, 1, column + len(name))).render().splitlines()[2:]
    start = caret.index("^")
    assert text[start : start + caret.count("^")] == name
    assert len(text) < 120


def test_a_line_that_is_long_by_its_indent_is_shown_without_it() -> None:
    source = Source(
        " " * 20 + "kl.launch(step, dim=n, inputs=[x, v, f, wind, stiffness], outputs=[x_new, v_new])",
        "Cell In[1]",
    )
    shown = Diagnostic("no", Span(source, 1, 20, 1, len(source.line(1)))).render().splitlines()
    assert shown[2] == f"    1 | {source.line(1).strip()}"
    assert shown[3] == " " * 8 + "^" * len(source.line(1).strip())


def test_the_caret_of_all_of_a_long_line_ends_with_what_is_shown() -> None:
    text, caret = Diagnostic("no", Span(LONG, 1, 0, 1, len(LONG.line(1)))).render().splitlines()[2:]
    assert text == f"    1 | {LONG.line(1)[:EXCERPT]} …"
    assert caret == " " * 8 + "^" * EXCERPT


def test_the_colours_leave_every_character_in_place() -> None:
    error = KernelTypeError(MISTAKE, MISTAKE)
    assert plain(error_lines(error)) == f"KernelTypeError: {error}"
    assert plain(warning_lines(MISTAKE.severity, MISTAKE.render())) == f"error: {MISTAKE.render()}"


def test_the_message_the_place_the_caret_and_the_hint_stand_out() -> None:
    lines = error_lines(KernelTypeError(MISTAKE))
    colours = [re.findall(r"\x1b\[([1-9]\d?)m", line) for line in lines]
    assert colours == [["31", "1"], ["32"], [], ["1"], ["34"]]


def test_the_place_and_the_hint_of_a_warning_stand_out_as_those_of_an_error_do() -> None:
    name, *shown = warning_lines("KernelWarning", MISTAKE.render())
    assert plain([name]) == "KernelWarning: cannot add vec3 and float32"
    assert shown == error_lines(KernelTypeError(MISTAKE))[1:]


def user_code(name: str, text: str, raised: Exception) -> Callable[[], None]:
    """A function `train` of a user whose module is a notebook and whose file is `name`."""
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    namespace = {"__name__": "__main__", "launch": _raiser(raised)}
    exec(compile(text, name, "exec"), namespace)
    return namespace["train"]  # type: ignore[return-value]


def _raiser(raised: Exception) -> Callable[[], None]:
    text = "def launch():\n    raise error\n"
    namespace = {"__name__": "kernelab.runtime.launch.launch", "error": raised}
    exec(compile(text, "<launch>", "exec"), namespace)
    return namespace["launch"]  # type: ignore[return-value]


def test_an_error_of_a_launch_shows_the_users_calls_that_led_to_it() -> None:
    raised = KernelIndexError(Diagnostic("index 9 is outside of x", SPAN))
    train = user_code("<cell>", "def train():\n    step = 1\n    launch()\n", raised)
    with pytest.raises(KernelIndexError) as caught:
        train()
    shown = plain(error_lines(caught.value))
    assert "  called from" in shown
    assert shown.endswith("  <cell>, line 3, in train\n    3 |     launch()")
    assert "raise error" not in shown


def test_a_line_that_calls_by_way_of_a_lambda_in_it_is_shown_once() -> None:
    raised = KernelIndexError(Diagnostic("index 9 is outside of x", SPAN))
    train = user_code("<cell>", "def train():\n    return (lambda: launch())()\n", raised)
    with pytest.raises(KernelIndexError) as caught:
        train()
    assert plain(error_lines(caught.value)).count("<cell>, line 2") == 1


def test_a_call_that_the_message_names_already_and_one_of_pythons_own_library_are_left_out() -> None:
    text = "def train():\n    launch()\n"
    here = Span(Source(text, "<cell>"), 2, 4, 2, 12)
    raised = KernelTypeError(Diagnostic("this overwrites x", here))
    train = user_code("<cell>", text, raised)
    outer = user_code("<outer>", "def train():\n    owner.value\n", raised)
    owner = type("Owner", (), {"value": cached_property(lambda _: train())})()
    outer.__globals__["owner"] = owner
    with pytest.raises(KernelTypeError) as caught:
        outer()
    shown = plain(error_lines(caught.value))
    assert "functools" not in shown
    assert shown.count("<cell>, line 2") == 1
    assert "  <outer>, line 2, in train" in shown


def test_the_line_that_runs_a_cell_magic_is_no_call_of_the_users() -> None:
    raised = KernelTypeError(MISTAKE)
    text = "def train():\n    launch()\n"
    train = user_code("<magic>", text, raised)
    typed = ["%%kernel\n", "%%kernel\n"]
    linecache.cache["<magic>"] = (len(text), None, typed, "<magic>")
    with pytest.raises(KernelTypeError) as caught:
        train()
    assert "<magic>" not in plain(error_lines(caught.value))
