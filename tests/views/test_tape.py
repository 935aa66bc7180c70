"""A tape as a table: its records in order, where they were made, and what was saved."""

import re

import kernelab as kl
from kernelab.views import text
from kernelab.views.tape import SHOWN_FIRST, SHOWN_LAST, tape_view

SQUARE = kl.compile("def square(x: array[float], y: array[float]):\n    i = tid()\n    y[i] = x[i] * x[i]\n")[
    "square"
]


def shown(tape: kl.Tape) -> list[str]:
    return text.render(tape_view(tape)).splitlines()


def recorded(launches: int) -> kl.Tape:
    x, y = kl.ones(3, dtype=float, requires_grad=True), kl.zeros(3, dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        for _ in range(launches):
            kl.launch(SQUARE, dim=3, inputs=[x], outputs=[y])
    return tape


def test_an_empty_tape_says_how_to_record() -> None:
    assert shown(kl.Tape()) == ["This tape is empty: launch kernels inside `with tape:` to record them."]


def test_a_launch_shows_its_kernel_grid_arrays_and_line() -> None:
    *_, row = shown(recorded(1))
    assert row.split()[:5] == ["1", "square", "3", "x", "y"]
    assert re.search(r"test_tape\.py, line \d+$", row)


def test_a_copy_is_a_record_too() -> None:
    x, z = kl.ones(3, dtype=float), kl.zeros(3, dtype=float)
    with kl.Tape() as tape:
        kl.copy(z, x)
    assert "copy" in shown(tape)[-1]


def test_a_long_tape_shows_its_ends() -> None:
    lines = shown(recorded(100))
    assert len([line for line in lines if "square" in line]) == SHOWN_FIRST + SHOWN_LAST
    assert any("84 more" in line for line in lines)


def test_saved_bytes_are_in_the_title() -> None:
    x, y = kl.ones(3, dtype=float, requires_grad=True), kl.zeros(3, dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(SQUARE, dim=3, inputs=[x], outputs=[y])
        x.zero_()
    assert shown(tape)[0] == "tape of 2 records, 12 bytes saved from being overwritten"
