"""`gradcheck_tape` runs the tape's own backward pass: tapes that pass, and for planted faults do not.

`make planted` plants faults in the backward pass and expects tests of this file alone to fail.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.autodiff.records import snapshots

KERNELS = kl.compile("""
def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def scale(x: array[float], w: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * w[i]

def add(x: array[float], s: array[float]):
    i = tid()
    atomic_add(s, 0, x[i] * x[i])

def weigh(x: array[bfloat16], w: array[bfloat16], y: array[bfloat16]):
    i = tid()
    y[i] = x[i] * w[0]
""")


def reals(n: int = 6) -> Any:
    return kl.array(np.random.default_rng(n).uniform(0.5, 1.5, n), dtype=float, requires_grad=True)


def blank(n: int = 6) -> Any:
    return kl.zeros(n, dtype=float, requires_grad=True)


def chain() -> None:
    x, w, y, z, loss = reals(), reals(), blank(), blank(), blank(1)
    KERNELS["square"][6](x, y)
    KERNELS["scale"][6](y, w, z)
    KERNELS["add"][6](z, loss)


def views_of_one_array() -> None:
    x, y, z = reals(), blank(), blank()
    KERNELS["square"][3](x[:3], y[:3])
    KERNELS["square"][3](x[2:5], y[3:])
    KERNELS["scale"][6](y, x, z)


def reads_at_two_places() -> None:
    x, y, z, u = reals(), blank(), blank(), blank()
    KERNELS["square"][6](x, y)
    KERNELS["square"][6](y, z)
    KERNELS["scale"][6](z, y, u)


def copies_and_fills() -> None:
    x, y, z, u = reals(), blank(), blank(), blank()
    KERNELS["square"][6](x, y)
    kl.copy(z, y)
    z[1:3].fill_(2.0)
    KERNELS["scale"][6](z, y, u)
    kl.copy(u, z)
    KERNELS["square"][6](u, y)


def overwrites() -> None:
    x, w, y, z = reals(), reals(), blank(), blank()
    KERNELS["square"][6](x, y)
    KERNELS["scale"][6](y, w, z)
    y[2:4].fill_(0.3)
    KERNELS["scale"][6](y, z, blank())
    KERNELS["square"][6](w, z)
    KERNELS["square"][6](z, y)


def many_readers() -> None:
    x, y = reals(), blank()
    KERNELS["square"][6](x, y)
    for _ in range(4):
        KERNELS["scale"][6](y, x, blank())
    y.fill_(0.3)


def halves() -> None:
    x, w = kl.ones(2, dtype=kl.bfloat16), kl.ones(1, dtype=kl.bfloat16, requires_grad=True)
    for _ in range(300):
        KERNELS["weigh"][2](x, w, kl.zeros(2, dtype=kl.bfloat16, requires_grad=True))


def checkpoints() -> None:
    x, w, loss = reals(), reals(), blank(1)

    def block(a: Any) -> Any:
        y, z = blank(), blank()
        KERNELS["square"][6](a, y)
        KERNELS["scale"][6](y, w, z)
        KERNELS["square"][6](z, a)
        return z

    def outer(a: Any) -> Any:
        return kl.checkpoint(block, kl.checkpoint(block, a))

    a = blank()
    KERNELS["square"][6](x, a)
    z = kl.checkpoint(outer, a)
    KERNELS["scale"][6](z, a, a)
    KERNELS["add"][6](a, loss)


TAPES = [
    chain,
    views_of_one_array,
    reads_at_two_places,
    copies_and_fills,
    overwrites,
    many_readers,
    halves,
    checkpoints,
]


@pytest.mark.parametrize("record", TAPES, ids=lambda record: record.__name__)
def test_a_tape_that_is_right_passes_by_its_own_backward_pass(record: Callable[[], None]) -> None:
    with kl.Tape() as tape:
        record()
    report = kl.autograd.gradcheck_tape(tape, show_summary=False, raise_exception=False)
    assert report
    assert report.whole is not None, report.alone


@pytest.mark.parametrize("record", [overwrites, many_readers], ids=lambda record: record.__name__)
def test_so_does_one_that_saves_what_is_overwritten_in_memory_of_arrays(
    record: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "SMALL", 0)
    test_a_tape_that_is_right_passes_by_its_own_backward_pass(record)
