"""Rows and slices of arrays that are assigned at once."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.backend.cpu import interpreter
from kernelab.errors import KernelAssertionError
from tests.frontend.helpers import error, function

HEAD = "def kernel(x: array[float], a: array2d[float], b: array2d[float], i: int):\n"


def after(body: str) -> dict[str, Any]:
    """The arrays after a kernel with this body: x = 1..4, a = 0, b = 0..5 in two rows, i = 1."""
    arrays = {
        "x": np.array([1, 2, 3, 4], np.float32),
        "a": np.zeros((2, 3), np.float32),
        "b": np.arange(6, dtype=np.float32).reshape(2, 3),
    }
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    interpreter.run(function(HEAD + lines), (1,), {**arrays, "i": 1}, width=1)
    return arrays


@pytest.mark.parametrize(
    ("body", "name", "expected"),
    [
        ("x[1:3] = 0.0", "x", [1, 0, 0, 4]),
        ("x[::2] = 9", "x", [9, 2, 9, 4]),
        ("x[i:] = vec3(7.0, 8.0, 9.0)", "x", [1, 7, 8, 9]),
        ("x[1:] = b[i]", "x", [1, 3, 4, 5]),
        ("x[:3] -= b[i, ::-1]", "x", [-4, -2, 0, 4]),
        ("x[:] += x[3]", "x", [5, 6, 7, 8]),
        ("a[i] = b[0]", "a", [[0, 0, 0], [0, 1, 2]]),
        ("a[:, 1] = 5.0", "a", [[0, 5, 0], [0, 5, 0]]),
        ("a[:] = b", "a", [[0, 1, 2], [3, 4, 5]]),
        ("a[:, :2] = b[:, 1:]", "a", [[1, 2, 0], [4, 5, 0]]),
        ("x[1:] *= 2.0", "x", [1, 4, 6, 8]),
        ("x[i:] /= vec3(2.0, 3.0, 8.0)", "x", [1, 1, 1, 0.5]),
        ("x[:3] *= b[i]", "x", [3, 8, 15, 4]),
        ("x[::2] **= 2", "x", [1, 2, 9, 4]),
        ("x[:] %= x[1]", "x", [1, 0, 1, 0]),
        ("b[0, 1:] *= 2.0", "b", [[0, 2, 4], [3, 4, 5]]),
        ("row = a[0]\nrow[1:] = 2.0", "a", [[0, 2, 2], [0, 0, 0]]),
    ],
)
def test_rows_and_slices_are_assigned_at_once(body: str, name: str, expected: Any) -> None:
    np.testing.assert_array_equal(after(body)[name], expected)


def test_arrays_in_structs_are_assigned_at_once_whatever_their_fields_are_called() -> None:
    held = "class Held:\n    x: array[float]\n    a: array2d[float]\n\n"
    lines = ["h.x[1:] *= 2.0", "h.a[0] = h.x", "h.a[1, 1:] += 1.0"]
    defs = kl.compile(held + "def kernel(h: Held):\n    " + "\n    ".join(lines))
    struct = defs["Held"]()
    struct.x, struct.a = kl.array([1.0, 2.0, 3.0]), kl.zeros((2, 3))
    kl.launch(defs["kernel"], dim=1, inputs=[struct])
    assert struct.a.numpy().tolist() == [[1, 4, 6], [0, 1, 1]]


def test_a_length_that_does_not_fit_is_found_when_the_kernel_runs() -> None:
    with pytest.raises(KernelAssertionError, match="has another length than what it goes into"):
        after("x[i:] = b[0, 1:]")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("a[i] = 1.0", "array2d[float32] needs 1 index more to be assigned"),
        ("x[1:] = x[:3]", "x is assigned a part of itself at once"),
        ("x[1:] = b", "what is assigned here is array[float32], not array2d[float32]"),
        ("x[1:] = vec2d(1.0)", "x holds float32, not vec2d"),
        ("x[1:] *= x[:3]", "x is assigned a part of itself at once"),
        ("x[1:] *= vec2d(1.0)", "cannot multiply float32 by vec2d"),
    ],
)
def test_what_cannot_be_assigned_at_once(body: str, message: str) -> None:
    assert message in error(HEAD + f"    {body}\n").message
