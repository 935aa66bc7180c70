"""The graph of a tape: its launches, arrays, scopes and repetitions as DOT text."""

import io
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import kernelab as kl
from kernelab.errors import KernelTypeError

kernels: dict[str, Any] = kl.compile("""
def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def push(rate: array[float], z: array[float]):
    i = tid()
    z[i] = z[i] + rate[i]
""")
square, push = kernels["square"], kernels["push"]


def boxes(text: str) -> list[str]:
    return re.findall(r'r\d+ \[shape=box, label="(\w+)', text)


def ellipses(text: str) -> list[str]:
    return re.findall(r'a\d+ \[shape=ellipse.*label="([^\\"]*)', text)


def frames(text: str) -> list[str]:
    return re.findall(r'label="([^"]*)"; style=rounded', text)


def test_launches_are_boxes_between_the_arrays_that_they_read_and_write(golden: Any) -> None:
    x, y = kl.ones(3, requires_grad=True), kl.zeros(3)
    with kl.Tape() as tape:
        square[3](x, y)
        push[3](x, y)
    text = tape.visualize()
    golden("tape_graph", re.sub(r'tooltip="[^"]*"', 'tooltip="..."', text))
    assert (boxes(text), ellipses(text)) == (["square", "push"], ["x", "y"])


def test_arrays_are_named_by_label_variable_or_parameter() -> None:
    held = [kl.ones(1), kl.zeros(1)]
    with kl.Tape() as tape:
        square[1](*held)
        push[1](*held)
    assert ellipses(tape.visualize()) == ["rate", "y"]
    assert ellipses(tape.visualize(choose_longest_node_name=False)) == ["x", "y"]
    labels = {held[0]: "the input"}
    assert ellipses(
        tape.visualize(array_labels=labels, track_outputs=held[1:], track_output_names=["end"])
    ) == [
        "the input",
        "end",
    ]


def test_an_array_without_a_name_has_not_that_of_another() -> None:
    x = kl.ones(2, requires_grad=True)
    with kl.Tape() as tape:
        square[2](kl.ones(2, requires_grad=True), x)
        y = kl.zeros(2, requires_grad=True)
        square[2](x, y)
    assert [name for name in ellipses(tape.visualize()) if "x" in name] == ["x"]


def test_arrays_that_nothing_changes_can_be_hidden_unless_they_are_tracked() -> None:
    x, y = kl.ones(1), kl.zeros(1)
    with kl.Tape() as tape:
        square[1](x, y)
    assert ellipses(tape.visualize(hide_readonly_arrays=True)) == ["y"]
    assert ellipses(tape.visualize(hide_readonly_arrays=True, track_inputs=[x])) == ["x", "y"]


def test_what_repeats_on_the_same_arrays_is_shown_once() -> None:
    x, y, z = kl.ones(1), kl.zeros(1), kl.zeros(1)
    with kl.Tape() as tape:
        for _ in range(5):
            square[1](x, y)
            push[1](y, z)
        push[1](x, z)
    text = tape.visualize()
    assert (boxes(text), frames(text)) == (["square", "push", "push"], ["repeated 5x"])
    assert len(boxes(tape.visualize(simplify_graph=False))) == 11


def test_launches_on_other_arrays_are_no_repetition() -> None:
    held = [kl.zeros(1) for _ in range(4)]
    with kl.Tape() as tape:
        for before, after in pairwise(held):
            square[1](before, after)
    assert boxes(tape.visualize()) == ["square"] * 3


def test_scopes_are_frames_inside_one_another_and_repeat_as_a_whole() -> None:
    x, y = kl.ones(1), kl.zeros(1)
    with kl.Tape() as tape, kl.ScopedTimer("all", print=False):
        square[1](x, y)
        for _ in range(3):
            with kl.ScopedTimer("step", print=False):
                push[1](x, y)
    assert frames(tape.visualize()) == ["all", "repeated 3x", "step"]
    assert frames(tape.visualize(simplify_graph=False)) == ["all", "step", "step", "step"]
    assert frames(tape.visualize(ignore_graph_scopes=True)) == ["repeated 3x"]


def test_copies_functions_and_numbers_from_arrays_are_in_the_graph_too() -> None:
    def back() -> None: ...

    x, y = kl.ones(1, requires_grad=True), kl.zeros(1, requires_grad=True)
    with kl.Tape() as tape:
        y.assign(x)
        tape.record_func(back, [x, y])
    text = tape.visualize()
    assert boxes(text) == ["assign", "back"]
    assert "a0 -> r0;\n  r0 -> a1;" in text


def test_the_text_goes_to_a_file_and_the_direction_is_the_users(tmp_path: Path) -> None:
    tape = kl.Tape()
    text = tape.visualize(str(tmp_path / "tape.dot"), graph_direction="TB")
    assert (tmp_path / "tape.dot").read_text(encoding="utf-8") == text
    assert "rankdir=TB;" in text


def test_an_open_file_is_refused_with_what_to_write() -> None:
    with pytest.raises(KernelTypeError, match=r"not a StringIO\n.*file\.write\(tape\.visualize\(\)\)"):
        kl.Tape().visualize(io.StringIO())  # type: ignore[arg-type]


def test_quotes_in_labels_are_escaped() -> None:
    x, y = kl.ones(1), kl.zeros(1)
    with kl.Tape() as tape:
        square[1](x, y)
    assert r'label="a \"b\"\nfloat32 (1)"' in tape.visualize(array_labels={x: 'a "b"'})


@pytest.mark.parametrize("name", ["graph", "scopes"])
def test_resetting_a_tape_forgets_its_scopes(name: str) -> None:
    tape = kl.Tape()
    tape.record_scope_begin(name)
    tape.record_scope_end(remove_scope_if_empty=False)
    tape.reset()
    assert list(tape.scopes) == []
