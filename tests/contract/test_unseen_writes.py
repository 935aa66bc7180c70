"""Memory that a tape uses and that a launch with `record_tape=False` changes: right or refused, anywhere."""

import contextlib
import sys
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
@pytest.mark.parametrize("changes", [False, True])
def test_a_change_through_a_view_of_an_input_is_refused(around: Body, changes: bool) -> None:
    x, y = leaf(1, 2), result(2)

    def work() -> None:
        kernels["add"][2](x, y)
        view = x.numpy()
        if changes:
            view[0] = 7
        kernels["add"][2](x, y)
        view[1] = x.list()[1]

    with kl.Tape() as tape:
        around(work)
    if changes:
        with pytest.raises(kl.TapeError):
            tape.backward(grads={y: kl.ones_like(y)})
    else:
        tape.backward(grads={y: kl.ones_like(y)})
        assert gradient(x) == [6, 6]


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


def test_many_of_them_are_refused_as_one_is_and_are_not_all_kept() -> None:
    x, y, z = leaf(1, 2), result(2), leaf(5, 6)
    references = []
    with kl.Tape() as tape:
        kernels["add"][2](x, y)
        for count in (10, 1000):
            for _ in range(count):
                unseen(z, x)
            references.append(sys.getrefcount(x))
        kernels["add"][2](x, y)
    assert references[0] == references[1]
    with pytest.raises(kl.TapeError, match="changed before this line, and the tape did not see how"):
        tape.backward(grads={y: kl.ones_like(y)})


def test_an_update_between_two_tapes_is_no_matter() -> None:
    x, z, y = leaf(1, 2), leaf(5, 6), result(2)
    for _ in range(2):
        with kl.Tape() as tape:
            kernels["add"][2](x, y)
        tape.backward(grads={y: kl.ones_like(y)})
        unseen(z, x)
    assert gradient(x) == [6, 6]


def doubled(x: kl.array) -> kl.array:
    y = kl.zeros_like(x)
    kl.launch(kernels["add"], 2, [x], [y], record_tape=False)
    return y


def doubled_by_command(x: kl.array) -> kl.array:
    y = kl.zeros_like(x)
    kl.launch(kernels["add"], 2, [x], [y], record_tape=False, record_cmd=True).launch()
    return y


def adjoint_alone(x: kl.array) -> kl.array:
    y, bar = kl.zeros_like(x), kl.zeros_like(x)
    kl.launch(kernels["add"], 2, [x], [y], [bar], [kl.ones_like(x)], adjoint=True)
    return bar


@pytest.mark.parametrize("function", [doubled, doubled_by_command, adjoint_alone])
@pytest.mark.parametrize("nested", [False, True])
def test_an_unrecorded_launch_of_lanes_is_refused(function: Any, nested: bool) -> None:
    lanes = kl.func.vmap(function)
    with pytest.raises(kl.GradientError, match="differ between the lanes of a vmap"):
        (kl.func.vmap(lanes) if nested else lanes)(kl.ones((2, 2, 2) if nested else (2, 2)))


def test_an_unrecorded_launch_in_vmap_leaves_outer_arrays_alone() -> None:
    z, w = leaf(5, 6), result(2)
    with pytest.raises(kl.GradientError, match=r"a function in vmap writes `.`, made outside of it"):
        kl.func.vmap(lambda x: (unseen(z, w), kl.clone(x))[1])(kl.ones((2, 2)))


def test_an_unrecorded_launch_in_vmap_draws_no_numbers() -> None:
    draw = kl.compile("""
    def draw(seed: int, y: array[float]):
        i = tid()
        state = rand_init(seed, i)
        y[i] = randf(state)
    """)["draw"]

    def drawn(x: kl.array) -> kl.array:
        y = kl.zeros_like(x)
        kl.launch(draw, 2, [7], [y], record_tape=False)
        return y

    for randomness in ("error", "different"):
        with pytest.raises(kl.GradientError, match="draws random numbers"):
            kl.func.vmap(drawn, randomness=randomness)(kl.ones((2, 2)))
    lanes = kl.func.vmap(drawn, randomness="same")(kl.ones((2, 2)))
    assert lanes[0].list() == lanes[1].list()


@pytest.mark.parametrize("transform", [kl.func.grad, kl.func.jacfwd, kl.func.hessian])
def test_an_adjoint_by_itself_is_refused_where_its_operands_are_differentiated(transform: Any) -> None:
    with pytest.raises(kl.GradientError, match="the adjoint of `add`, launched by itself"):
        transform(lambda x: adjoint_alone(x)[0:1])(kl.ones(2))


@pytest.mark.parametrize("again", [plainly, kl.checkpoint])
def test_no_gradient_passes_what_a_checkpoint_wrote_that_raised(again: Body) -> None:
    x, y = leaf(1.0, 2.0), result(2)

    def work() -> None:
        kl.launch(kernels["add"], 2, [x, y])
        raise ArithmeticError

    def tried() -> None:
        with contextlib.suppress(ArithmeticError):
            kl.checkpoint(work)

    with kl.Tape() as tape:
        again(tried)
        kl.launch(kernels["add"], 2, [x, y])
    with pytest.raises(kl.TapeError, match="through the checkpoint of work, which failed before"):
        tape.backward(grads={y: kl.ones(2)})
