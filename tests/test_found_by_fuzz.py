"""What random programs have found, one test each."""

import numpy as np
import pytest

import kernelab as kl
from tests.support.tapes import check_tape
from tests.support.transformed import check_transforms

SEES_NOTHING = """
def fill_last(x: array[float64]):
    x[7] = 0.5
"""


def refused(inside: str) -> None:
    """A tape whose gradient such a program spoils says so."""
    a, out = (kl.zeros(8, kl.float64, requires_grad=True) for _ in range(2))
    x = kl.array(np.arange(8.0), dtype=kl.float64, requires_grad=True)
    with kl.Tape() as tape:
        kl.copy(a, x)
        exec(inside, {"a": a, "kl": kl, "kernel": kl.compile(SEES_NOTHING)["fill_last"]})
        kl.copy(out, a)
    with pytest.raises(kl.TapeError, match="did not see how"):
        tape.backward(grads={out: np.ones(8)})


def test_a_write_through_numpy_at_the_end_of_the_block_is_noticed() -> None:
    x, y = (kl.ones(3, kl.float64, requires_grad=True) for _ in range(2))
    with kl.Tape() as tape:
        kl.copy(y, x)
        y.numpy()[1] = 0.7
    with pytest.raises(kl.TapeError, match="did not see how"):
        tape.backward(grads={y: np.ones(3)})


def test_a_second_numpy_view_does_not_hide_what_was_written_through_the_first() -> None:
    refused("a.numpy()[1] = 0.7; a.numpy()")


def test_a_fill_does_not_hide_what_was_written_through_numpy_before() -> None:
    refused("a.numpy()[1] = 0.7; a[4:6].fill_(0.0)")


def test_a_copy_within_an_array_does_not_hide_what_was_written_through_numpy_before() -> None:
    refused("a.numpy()[1] = 0.7; kl.copy(a[0:3], a[4:7])")


def test_a_launch_that_is_not_recorded_does_not_hide_a_later_write_through_numpy() -> None:
    refused("kl.launch(kernel, 1, [a], record_tape=False); a[7:].assign([7.0]); a.numpy()[1] = 0.7")


def test_looking_through_numpy_at_the_end_of_the_block_is_no_alarm() -> None:
    check_tape(
        (
            "A.sum() if hasattr(A, 'sum') else A.numpy().sum()\nrun('bend', A[0:3])\n",
            "A.sum() if hasattr(A, 'sum') else A.numpy().sum()\n",
        )
    )


def test_a_launch_that_is_not_recorded_within_a_checkpoint_is_noticed_between_two_reads() -> None:
    inside = """
def f1():
    A[0:3] += B[0, 1:4]
    unrecorded('even', A, B.flatten(), 0)
    run('add', A[5:2:-1], B[0, 1:4])
checkpoint(f1)
"""
    check_tape((inside, ""), policy="careless")


def test_keys_that_underflow_are_ties_of_zeros_whose_signs_no_complex_number_keeps() -> None:
    check_transforms("""
run('turn', I[0:3], A[0:3])
run('pick', I[0:3], A[0:3], A[5:2:-1])
run('inner', B.flatten(), B.flatten(), 0)
run('down', B.flatten(), B.flatten(), 3)
sort_pairs(B[0, 1:4], A[0:3])
""")


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        (
            "def k(x: array[float], y: array[float]):\n    for i in range(x.shape[:0]):\n        y[i] = 1.0",
            "a tuple of",
        ),
        ("class G:\n    ...\ndef k(g: array[G]):\n    g[0].v[0] = 1.0", "G has no fields"),
        ("class G:\n    ...\nclass H:\n    g: G\ndef k(h: array[H]):\n    h[0].g.v = 1.0", "G has no fields"),
        ("class G:\n    ...\ndef k(h: G):\n    h[0].g.v = 1.0", "a G is not indexed(.|\n)*it has no fields"),
        ("class G:\n    ...\nclass H:\n    g: G\ndef k(h: H):\n    h.g += 1.0", "is G, not a number"),
        (
            "def k(y: array[float]):\n    i = tid()\n    y[i] = vector(length=0, dtype=float)[i]",
            "no components",
        ),
        ("def k(x: array[vec3], y: array[float]):\n    y[0] = x[()].y", "no index in these brackets"),
        (
            "@kernel(check=vec3(1.0, 2.0, 3.0))\ndef k(y: array[float]):\n    y[0] = 1.0",
            'check is "full" or None',
        ),
    ],
)
def test_a_cell_that_is_no_program_is_refused_at_its_line(cell: str, said: str) -> None:
    with pytest.raises(kl.KernelError, match=said):
        kl.compile(cell, {"vec3": kl.vec3})
