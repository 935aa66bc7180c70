"""A few rounds of what is fuzzed without running programs: cells, arguments, messages of pages."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import (
    KernelError,
    KernelIndexError,
    KernelSyntaxError,
    KernelTypeError,
    LaunchError,
    TapeError,
)
from tests.strategies.cells import cell
from tests.support.front_end import checked_cell
from tests.support.misuse import MADE, Interface, checked_launch, checked_messages

NO_ARRAYS = [Interface({}), Interface({"shape": (3,), "typestr": "??"}), Interface(7)]
MANY = 10**5000
"""An int of more digits than Python writes."""


def test_cells_end_in_kernels_or_in_own_errors() -> None:
    assert sum(checked_cell(cell(seed)) > 0 for seed in range(120)) > 6


def test_launches_run_or_end_in_own_errors() -> None:
    assert sum(checked_launch(seed) for seed in range(6000)) > 300


def test_messages_of_pages_have_answers() -> None:
    checked_messages(range(300))


@pytest.mark.parametrize("lie", NO_ARRAYS)
def test_objects_that_are_wrong_about_their_memory(lie: Any) -> None:
    y = kl.ones(3, requires_grad=True)
    with pytest.raises(LaunchError, match="expects an array of float32"):
        kl.launch(MADE["scale"], 3, [lie, y, 1.0])
    with pytest.raises(LaunchError, match="expects a mat33"):
        kl.launch(MADE["points"], 0, [kl.zeros(0, kl.vec3), lie, kl.zeros(0, kl.vec3), True])
    with pytest.raises(KernelTypeError, match="cannot make an array"):
        kl.array(lie)
    with pytest.raises(KernelError):
        kl.launch(MADE["anything"], 3, [y, [lie], y])
    with kl.Tape() as tape:
        z = y * 2.0
    with pytest.raises(TapeError, match="it has to be real numbers"):
        tape.backward(grads={z: lie})


@pytest.mark.parametrize(
    "dim",
    [np.array(3.0), ({},), (memoryview(bytearray(3)),), np.timedelta64(3, "s"), MANY, (2, MANY), -MANY],
    ids=range(7),
)
def test_dimensions_that_are_none(dim: Any) -> None:
    with pytest.raises(LaunchError, match="a grid cannot have the dimensions"):
        kl.launch(MADE["scale"], dim, [kl.ones(3), kl.ones(3), 1.0])


def test_arguments_beside_the_number_of_threads_are_told_at_once() -> None:
    with pytest.raises(LaunchError, match=r"write scale\[n\]\(\.\.\.\)"):
        MADE["scale"][3, kl.ones(3), kl.ones(3)]


@pytest.mark.parametrize("shape", [int, np.str_("3"), (3, int), kl.ones(2).numpy()])
def test_shapes_that_are_none(shape: Any) -> None:
    with pytest.raises(KernelTypeError, match="the extent of an array is a whole number"):
        kl.ones(6).reshape(shape)


def test_an_index_of_many_digits_is_out_of_bounds() -> None:
    for index in (2**80, -(2**80), (0, 2**80)):
        with pytest.raises(KernelIndexError):
            kl.ones((3, 3))[index]


def test_structs_are_no_cotangents() -> None:
    x = kl.ones(3, requires_grad=True)
    with kl.Tape() as tape:
        y = x * 2.0
    with pytest.raises(TapeError, match="it has to be real numbers"):
        tape.backward(grads={y: kl.zeros(3, dtype=MADE["Ball"])})


@pytest.mark.parametrize("text", ["x = 1\ny = '\ud800'\n", "x = 1\n\x00", "x = " + "-" * 5000 + "1"])
def test_texts_that_no_parser_takes(text: str) -> None:
    with pytest.raises(KernelError) as caught:
        kl.compile(text)
    str(caught.value)


def test_half_of_a_character_is_named_at_its_place() -> None:
    with pytest.raises(KernelSyntaxError, match="half of a character") as caught:
        kl.compile("def k(x: array[float]):\n    y = '\ud800'\n")
    span = caught.value.diagnostics[0].span
    assert span is not None
    assert (span.line, span.column, span.end_column) == (2, 9, 10)
