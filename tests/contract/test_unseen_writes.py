"""Memory that a tape uses and that a launch with `record_tape=False` changes: right or refused, anywhere."""

from collections.abc import Callable
from typing import Any

import pytest

import kernelab as kl
from tests.support.leaves import gradient, leaf, result

kernels: dict[str, Any] = kl.compile("""
def add(x: array[float], y: array[float]):
    i = tid()
    y[i] += 3.0 * x[i]

def move(z: array[float], x: array[float]):
    i = tid()
    x[i] = z[i]
""")
Body = Callable[[Callable[[], None]], None]


def plainly(work: Callable[[], None]) -> None:
    work()


def twice_inside(work: Callable[[], None]) -> None:
    kl.checkpoint(lambda: kl.checkpoint(work))


def unseen(z: kl.array, x: kl.array) -> None:
    kl.launch(kernels["move"], 2, [z, x], record_tape=False)


BODIES = [plainly, kl.checkpoint, twice_inside]


@pytest.mark.parametrize("around", BODIES)
@pytest.mark.parametrize("within", BODIES)
@pytest.mark.parametrize("makes", [False, True], ids=["input", "computed"])
def test_it_is_refused_between_two_reads(around: Body, within: Body, makes: bool) -> None:
    u, z, y = leaf(1, 2), leaf(5, 6), result(2)
    x = result(2) if makes else u

    def work() -> None:
        if makes:
            kernels["move"][2](u, x)
        kernels["add"][2](x, y)
        within(lambda: unseen(z, x))
        kernels["add"][2](x, y)

    with kl.Tape() as tape:
        around(work)
    with pytest.raises(kl.TapeError, match="changed before this line, and the tape did not see how"):
        tape.backward(grads={y: kl.ones_like(y)})


@pytest.mark.parametrize("place", ["before", "within", "after"])
@pytest.mark.parametrize("makes", [False, True], ids=["input", "computed"])
def test_it_is_refused_on_either_side_of_a_checkpoint(place: str, makes: bool) -> None:
    u, z, y = leaf(1, 2), leaf(5, 6), result(2)
    x = kl.clone(u) if makes else u

    def work() -> None:
        if place == "within":
            unseen(z, x)
        kernels["add"][2](x, y)

    with kl.Tape() as tape:
        if makes:
            kl.copy(x, u)
        kernels["add"][2](x, y)
        if place == "before":
            unseen(z, x)
        kl.checkpoint(work)
        if place == "after":
            unseen(z, x)
            kernels["add"][2](x, y)
    with pytest.raises(kl.TapeError, match="changed before this line, and the tape did not see how"):
        tape.backward(grads={y: kl.ones_like(y)})


@pytest.mark.parametrize("around", BODIES)
def test_it_is_fine_before_the_first_read_and_after_the_last(around: Body) -> None:
    x, z, y = leaf(1, 2), leaf(5, 6), result(2)

    def work() -> None:
        unseen(z, x)
        kernels["add"][2](x, y)
        unseen(z, x)

    with kl.Tape() as tape:
        around(work)
    tape.backward(grads={y: kl.ones_like(y)})
    assert gradient(x) == [3, 3]


def test_it_is_fine_where_a_recorded_write_follows() -> None:
    x, z, y = leaf(1, 2), leaf(5, 6), result(2)
    with kl.Tape() as tape:
        kernels["add"][2](x, y)
        unseen(z, x)
        kernels["move"][2](z, x)
        kernels["add"][2](x, y)
    tape.backward(grads={y: kl.ones_like(y)})
    assert gradient(x) == gradient(z) == [3, 3]


def test_an_update_between_two_tapes_is_no_matter() -> None:
    x, z, y = leaf(1, 2), leaf(5, 6), result(2)
    for _ in range(2):
        with kl.Tape() as tape:
            kernels["add"][2](x, y)
        tape.backward(grads={y: kl.ones_like(y)})
        unseen(z, x)
    assert gradient(x) == [6, 6]
