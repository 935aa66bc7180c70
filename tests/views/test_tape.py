"""A tape as a table: its records in order, where they were made, and what was saved."""

import re
import weakref
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest

import kernelab as kl
from kernelab.views.pages import markup
from kernelab.views.tape.digest import TapeData
from kernelab.views.tape.tape_view import (
    FIRST_ROWS,
    LAST_ROWS,
    SHOWN_FIRST,
    SHOWN_LAST,
    names_of,
    tape_view,
    timeline,
)

KERNELS = kl.compile(
    """
class Node:
    mass: float
    height: float

def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def lift(x: array[float], to: array[Node]):
    i = tid()
    to[i].height = x[i]
"""
)
SQUARE, LIFT, NODE = (KERNELS[name] for name in ("square", "lift", "Node"))


def shown(tape: kl.Tape) -> list[str]:
    return markup.render(tape_view(tape)).splitlines()


def recorded(launches: int) -> kl.Tape:
    x, y = kl.ones(3, dtype=float, requires_grad=True), kl.zeros(3, dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        for _ in range(launches):
            kl.launch(SQUARE, dim=3, inputs=[x], outputs=[y])
    return tape


def test_an_empty_tape_says_how_to_record() -> None:
    assert shown(kl.Tape()) == [
        "Nothing was recorded when this was shown: launch inside `with tape:`, then show it again."
    ]


def test_a_launch_shows_its_kernel_grid_arrays_and_line() -> None:
    *_, row = shown(recorded(1))
    assert row.split()[:5] == ["1", "square", "3", "x", "y"]
    assert re.search(r"test_tape\.py, line \d+$", row)


def test_arrays_have_the_names_that_their_user_gave_them_and_else_those_of_parameters() -> None:
    angle, nodes = kl.ones(3, dtype=float, requires_grad=True), kl.zeros(3, dtype=NODE, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(SQUARE, dim=3, inputs=[angle], outputs=[kl.zeros_like(angle)])
        kl.launch(LIFT, dim=3, inputs=[angle], outputs=[nodes])
    first, second = (row.split()[3:5] for row in shown(tape)[-2:])
    assert (first, second) == (["angle", "y"], ["angle", "nodes.height"])


def test_the_name_of_what_a_record_ran_stands_first() -> None:
    def twice(x: kl.array) -> kl.array:
        return x + x

    x, short = kl.ones(3, dtype=float, requires_grad=True), kl.zeros(1, dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        kl.checkpoint(twice, x)
        with pytest.raises(kl.KernelIndexError):
            kl.launch(SQUARE, dim=3, inputs=[x], outputs=[short])
    assert [row.split()[1:3] for row in shown(tape)[-2:]] == [
        ["twice", "(checkpoint)"],
        ["square", "(failed)"],
    ]


class Hostile:
    """A key, and an object, that cannot be looked at."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        raise RuntimeError("no fields")


class HostileDict(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("no items")


def test_an_array_without_a_name_does_not_take_that_of_another_array() -> None:
    y = kl.ones(3, dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(SQUARE, dim=3, inputs=[y], outputs=[kl.zeros(3, dtype=float, requires_grad=True)])
    *_, row = shown(tape)
    assert re.split(r" {2,}", row.strip())[:5] == ["1", "square", "3", "y", "array 2"]
    assert re.findall(r">([^<>]*)∇<", tape.to_svg()) == ["y", "array 2"]


def test_a_name_is_that_of_the_last_array_that_it_was_given() -> None:
    rows = [[0, "x"], [1, "y"], [0, "old"], [1, "x"], [2, "y"], [2, "old"]]
    data = TapeData({"names": rows, "memories": [["a", 4, False], ["b", 4, False], ["c", 4, False]]})
    assert [data.label(memory) for memory in range(3)] == ["a", "x", "old"]
    assert data.names == {1: "x", 2: "old"}


def test_objects_that_cannot_be_looked_at_have_no_names_and_hide_no_others() -> None:
    x, y, z = (kl.zeros(1) for _ in range(3))
    gone = weakref.proxy(Hostile())
    namespace = {"a": Hostile(), "b": {Hostile(): x}, "c": HostileDict(x=x), "d": gone, "e": [y], "z": z}
    memories = [one.allocation for one in (x, y, z)]
    assert names_of(memories, namespace) == {y.allocation: "e[0]", z.allocation: "z"}


def test_arrays_have_their_names_in_the_last_records_of_a_tape_of_many_arrays_too() -> None:
    first, last = kl.ones(3, dtype=float), kl.zeros(3, dtype=float)
    arrays = [first, *(kl.zeros(3, dtype=float) for _ in range(100)), last]
    with kl.Tape() as tape:
        for before, after in pairwise(arrays):
            kl.launch(SQUARE, dim=3, inputs=[before], outputs=[after])
    table = [row.split()[3:5] for row in shown(tape) if "square" in row]
    assert (table[0], table[-1]) == (["first", "y#2"], ["before", "last"])
    assert 'label="last\\nfloat32 (3)"' in tape.visualize()


def test_a_copy_is_a_record_too() -> None:
    x, z = kl.ones(3, dtype=float), kl.zeros(3, dtype=float)
    with kl.Tape() as tape:
        kl.copy(z, x)
    assert shown(tape)[-1].split()[:4] == ["1", "copy", "x", "z"]


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


def test_an_overwrite_that_loses_values_is_told_with_both_lines() -> None:
    x, y = kl.ones(3, dtype=float, requires_grad=True), kl.zeros(3, dtype=float, requires_grad=True)
    with kl.Tape(overwrite="warn") as tape:
        kl.launch(SQUARE, dim=3, inputs=[x], outputs=[y])
        with pytest.warns(kl.KernelWarning, match="overwritten here"):
            x.zero_()
    warning = shown(tape)[1]
    assert re.fullmatch(
        r"⚠ x is overwritten at test_tape\.py, line \d+, "
        r"but the adjoint of test_tape\.py, line \d+ needs its old values",
        warning,
    )


# ------------------------------------------------------------------------------------------ the picture


def parsed(tape: kl.Tape) -> ElementTree.Element:
    return ElementTree.fromstring(tape.to_svg())  # type: ignore[attr-defined]


def labels(picture: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in picture.iter("{http://www.w3.org/2000/svg}text")]


def test_the_picture_has_a_row_for_each_record_and_a_lane_for_each_array() -> None:
    picture = parsed(recorded(2))
    assert picture.get("aria-label") == "tape of 2 records on 2 arrays"
    found = labels(picture)
    assert [found.count(label) for label in ("square", "x∇", "y∇", "1", "2")] == [2, 1, 1, 1, 2]


def test_the_title_of_a_launch_ends_before_its_grid() -> None:
    name = "integrate_particles"
    kernel = kl.compile(f"def {name}(x: array2d[float]):\n    i, j = tid()\n    x[i, j] = 2.0\n")[name]
    shown = []
    for shape in ((3, 3), (1000, 1000)):
        with kl.Tape() as tape:
            kl.launch(kernel, dim=shape, inputs=[kl.zeros(shape, requires_grad=True)])
        shown.append(next(label for label in labels(parsed(tape)) if label.startswith("integrate")))
    assert shown == [name, "integrate_parti…"]


def test_the_picture_of_a_long_tape_shows_its_ends() -> None:
    found = labels(parsed(recorded(100)))
    assert found.count("square") == FIRST_ROWS + LAST_ROWS
    assert "⋮ 70 more" in found
    assert "100" in found


@pytest.mark.parametrize(("count", "label"), [(3, "kept 12 B"), (3000, "kept 12 kB")])
def test_the_picture_draws_what_was_kept_between_reader_and_writer(count: int, label: str) -> None:
    x, y = kl.ones(count, dtype=float, requires_grad=True), kl.zeros(count, dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(SQUARE, dim=count, inputs=[x], outputs=[y])
        x.zero_()
    picture = parsed(tape)
    assert label in labels(picture)
    assert any(path.get("class") == "saved" for path in picture.iter("{http://www.w3.org/2000/svg}path"))


def test_names_in_the_picture_are_text_never_markup() -> None:
    data = {
        "memories": [["<b>&", 4, True]], "layouts": [["float32", [1]]], "arrays": [[0, 0]], "records": [0],
        "kinds": [{"title": "<i>", "place": "</svg>"}], "steps": [[0, [0], []]],
        "clashes": [], "overwrites": [], "names": [],
    }  # fmt: skip
    picture = ElementTree.fromstring(timeline(TapeData(data)))
    assert {"<b>&∇", "<i>"} <= set(labels(picture))


def test_the_lines_of_the_picture_have_numbers_for_places() -> None:
    picture = ElementTree.fromstring(recorded(3)._repr_mimebundle_()["image/svg+xml"])  # type: ignore[attr-defined]
    lines = list(picture.iter("{http://www.w3.org/2000/svg}line"))
    assert lines
    assert all(float(line.attrib[name]) >= 0 for line in lines for name in ("x1", "x2", "y1", "y2"))


def test_a_tape_is_text_html_and_a_picture() -> None:
    forms = recorded(1)._repr_mimebundle_()  # type: ignore[attr-defined]
    assert forms.keys() == {"text/plain", "text/html", "image/svg+xml"}
    assert "<svg" in forms["text/html"]
