"""`kl.checkpoint`: one record for what a function launches, run again for its adjoint."""

import gc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl

TEXT = """
def step(x: array[float], dt: float, y: array[float]):
    i = tid()
    y[i] = x[i] + dt * sin(x[i])

def squash(x: array[float]):
    i = tid()
    x[i] = sin(x[i]) * x[i]

def total(x: array[float], l: array[float]):
    atomic_add(l, 0, x[tid()])

def product(x: array[float], w: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * w[i] + y[i] * 0.5

def shaken(x: array[float], seed: int, y: array[float]):
    i = tid()
    state = rand_init(seed, i)
    y[i] = x[i] * randf(state) * x[i]

def drawn(seed: int, y: array[float]):
    i = tid()
    state = rand_init(seed, i)
    y[i] = 1.0 + randf(state)

def roots(x: array[float], y: array[float]):
    i = tid()
    y[i] = sqrt(x[i])

def row(traj: array2d[float], t: int):
    i = tid()
    traj[t + 1, i] = sin(traj[t, i]) * 1.5

def copied(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i]

def added(x: array[float], y: array[float]):
    i = tid()
    y[i] += x[i]

def fill(y: array[float]):
    y[tid()] = 2.0

def first(n: int, y: array[float]):
    i = tid()
    if i < n:
        y[i] = 0.0
"""

kernels: dict[str, Any] = kl.compile(TEXT)
step, squash, total = kernels["step"], kernels["squash"], kernels["total"]
added, fill, first = kernels["added"], kernels["fill"], kernels["first"]
START = [0.3, -0.7, 1.1, 0.2]


def leaf(values: Any = START) -> kl.array:
    return kl.array(values, dtype=float, requires_grad=True)


def zeros(count: int = 4) -> kl.array:
    return kl.zeros(count, dtype=float, requires_grad=True)


def two_steps(x: kl.array, dt: float = 0.1) -> kl.array:
    for _ in range(2):
        y = zeros()
        step[4](x, dt, y)
        x = y
    return x


def gradients(run: Callable[..., Any], checked: bool, *leaves: kl.array) -> list[np.ndarray[Any, Any]]:
    """The gradients of what `run` adds up; it gets a function that is a checkpoint or a plain call."""
    loss = zeros(1)
    call: Callable[..., Any] = kl.checkpoint if checked else lambda func, *arrays: func(*arrays)
    with kl.Tape() as tape:
        result = run(call, *leaves)
        total[4](result, loss)
    tape.backward(loss)
    return [x.grad.numpy().copy() for x in leaves if x.grad is not None]


def both(run: Callable[..., Any], *starts: list[float]) -> None:
    plain = gradients(run, False, *map(leaf, starts or (START,)))
    again = gradients(run, True, *map(leaf, starts or (START,)))
    assert len(plain) == len(again) > 0
    for one, other in zip(plain, again, strict=True):
        np.testing.assert_array_equal(one, other)
        assert np.abs(one).max() > 0


# ------------------------------------------------------------------------------------------ right


def test_the_gradient_is_that_of_the_plain_calls() -> None:
    def run(call: Any, x: kl.array) -> kl.array:
        for _ in range(3):
            x = call(two_steps, x)
        return x

    both(run)


def test_checkpoints_nest() -> None:
    def run(call: Any, x: kl.array) -> kl.array:
        def outer(x: kl.array) -> kl.array:
            for k in range(2):
                x = call(two_steps, x, 0.1 * k)
            return x

        for _ in range(2):
            x = call(outer, x)
        return x

    both(run)


def test_picked_elements_go_in_and_come_out() -> None:
    def run(call: Any, x: kl.array) -> kl.array:
        def squares(x: Any) -> Any:
            return (x * x)[[1, 0, 3, 2]]

        y = call(squares, call(squares, (x * 1.0)[[2, 0, 1, 3]]))
        y *= 2.0
        return y * 1.0

    both(run)


def test_an_input_changed_in_place_is_kept() -> None:
    def run(call: Any, x: kl.array) -> kl.array:
        def work(x: kl.array) -> None:
            squash[4](x)
            squash[4](x)

        y = x * 1.0
        for _ in range(3):
            call(work, y)
        return y

    both(run)


def test_ping_pong_between_two_buffers_is_kept() -> None:
    def run(call: Any, x: kl.array) -> kl.array:
        a, b = x * 1.0, zeros()

        def work(a: kl.array, b: kl.array) -> None:
            step[4](a, 0.3, b)
            step[4](b, 0.2, a)

        for _ in range(3):
            call(work, a, b)
        return a

    both(run)


def test_arrays_that_the_function_closes_over_are_differentiated() -> None:
    def run(call: Any, x: kl.array, w: kl.array) -> kl.array:
        def work() -> kl.array:
            y = zeros()
            kernels["product"][4](x, w, y)
            kernels["product"][4](y, w, y)
            return y

        return call(work)

    both(run, START, [1.0, 2.0, 3.0, 4.0])


def test_accumulation_into_an_array_from_outside_is_kept() -> None:
    def run(call: Any, x: kl.array, w: kl.array) -> kl.array:
        y = x * 2.0
        call(lambda: kernels["product"][4](x, w, y))
        squash[4](y)
        call(lambda: kernels["product"][4](x, w, y))
        return y

    both(run, START, [1.0, 2.0, 3.0, 4.0])


def test_where_kept_arrays_overlap_the_one_that_was_read_first_is_restored() -> None:
    def inner_twice(x: kl.array) -> None:
        squash[4](x)
        squash[2](x[1:3])

    def run(call: Any, x: kl.array) -> kl.array:
        y = kl.clone(x)
        call(inner_twice, y)
        return y

    both(run)


def test_an_input_overwritten_after_the_checkpoint_is_kept() -> None:
    def run(call: Any, x: kl.array) -> kl.array:
        a = x * 1.0
        y = call(two_steps, a)
        a.fill_(7.0)
        return y

    both(run)


def test_a_trajectory_in_one_array_may_be_written_in_pieces() -> None:
    def run(call: Any, x: kl.array) -> kl.array:
        traj = kl.zeros((7, 4), dtype=float, requires_grad=True)
        kl.copy(traj[0], x)

        def work(t: int) -> None:
            kernels["row"][4](traj, t)
            kernels["row"][4](traj, t + 1)

        for t in range(0, 6, 2):
            call(work, t)
        return traj[6]

    both(run)


def test_random_numbers_of_kernels_are_the_same_again() -> None:
    def run(call: Any, x: kl.array) -> kl.array:
        def work(x: kl.array) -> kl.array:
            y = zeros()
            kernels["shaken"][4](x, 17, y)
            return y

        return call(work, x)

    both(run)


def test_copies_clones_and_host_values_inside_are_run_again() -> None:
    def run(call: Any, x: kl.array) -> kl.array:
        def work(x: kl.array) -> dict[str, kl.array]:
            y, w = kl.clone(x), kl.array([1.0, 2.0, 3.0, 4.0], dtype=float)
            y[1:3] = x[0:2]
            z = y * w
            z[3:] = 0.5
            return {"z": z}

        return call(work, x)["z"]

    both(run)


def test_without_a_tape_it_is_a_plain_call() -> None:
    assert kl.checkpoint(two_steps, leaf()).shape == (4,)
    assert kl.checkpoint(lambda: 3) == 3


def test_primal_data_stay_as_they_are_and_backward_twice_adds() -> None:
    x, loss = leaf(), zeros(1)
    a, b = zeros(), zeros()
    with kl.Tape() as tape:
        kl.copy(a, x)
        for _ in range(2):
            kl.checkpoint(lambda: (step[4](a, 0.3, b), squash[4](b), kl.copy(a, b)))
        total[4](a, loss)
    a.fill_(9.0)
    before = [held.list() for held in (x, a, b, loss)]
    tape.backward(loss)
    once = np.array(x.grad.list() if x.grad is not None else [])
    tape.backward(loss)
    assert [held.list() for held in (x, a, b, loss)] == before
    np.testing.assert_allclose(x.grad.numpy() if x.grad is not None else [], 2 * once, rtol=1e-6)


# ------------------------------------------------------------------------------------------ memory


def test_what_the_function_makes_and_does_not_return_is_freed() -> None:
    seen: list[weakref.ref[Any]] = []

    def work(x: kl.array) -> kl.array:
        y, z = zeros(), zeros()
        step[4](x, 0.1, y)
        step[4](y, 0.1, z)
        seen.append(weakref.ref(y.allocation))
        return z

    x, loss = leaf(), zeros(1)
    with kl.Tape() as tape:
        y = kl.checkpoint(work, x)
        total[4](y, loss)
    gc.collect()
    assert seen[0]() is None
    assert [record.title for record in tape] == ["the checkpoint of work", "the launch of `total`"]
    tape.backward(loss)
    gc.collect()
    assert len(seen) == 2 and seen[1]() is None


# ------------------------------------------------------------------------------------------ loud


def test_a_variable_that_has_changed_is_an_error() -> None:
    x, loss = leaf(), zeros(1)
    dt = 0.1
    with kl.Tape() as tape:
        y = kl.checkpoint(lambda: two_steps(x, dt))
        total[4](y, loss)
    dt = 0.2
    with pytest.raises(kl.TapeError, match=r"did something else than at first(.|\n)*pass what changes"):
        tape.backward(loss)


def test_a_launch_that_is_no_longer_recorded_is_an_error() -> None:
    x, loss, recorded = leaf(), zeros(1), iter([True, False])

    def work(x: kl.array) -> kl.array:
        y = zeros(4)
        kl.launch(kernels["copied"], 4, inputs=[x], outputs=[y], record_tape=next(recorded))
        return y * x

    with kl.Tape() as tape:
        y = kl.checkpoint(work, x)
        total[4](y, loss)
    with pytest.raises(kl.TapeError, match="did something else than at first"):
        tape.backward(loss)


def test_buffers_of_numpy_may_be_filled_again_between_launches() -> None:
    x, loss = leaf(), zeros(1)

    def work(x: kl.array) -> kl.array:
        w, y = np.zeros(4, np.float32), zeros(4)
        for k in range(1, 4):
            w[:] = k
            kernels["added"][4](w, y)
        return y * x

    with kl.Tape() as tape:
        y = kl.checkpoint(work, x)
        total[4](y, loss)
    tape.backward(loss)
    assert x.grad.list() == [6.0] * 4


@pytest.mark.parametrize("ends", [lambda w: None, lambda w: w.assign([0.0] * 4)])
def test_a_count_in_memory_that_the_host_sees_is_an_error(ends: Any) -> None:
    x, loss, w = leaf(), zeros(1), kl.zeros(4)
    seen = w.numpy()

    def work(x: kl.array) -> kl.array:
        seen[:] += 1.0
        y = x * w
        ends(w)
        return y

    with kl.Tape() as tape:
        y = kl.checkpoint(work, x)
        total[4](y, loss)
    with pytest.raises(kl.TapeError, match="did something else than at first"):
        tape.backward(loss)


def test_random_numbers_of_the_host_are_an_error() -> None:
    x, loss, rng = leaf(), zeros(1), np.random.default_rng(0)
    with kl.Tape() as tape:
        y = kl.checkpoint(lambda x: x * kl.array(rng.normal(size=4), dtype=float), x)
        total[4](y, loss)
    with pytest.raises(kl.TapeError, match="did something else than at first"):
        tape.backward(loss)


def chosen_to_go_on(x: kl.array, other: bool) -> Any:
    several = [x * x, x * 2.0]
    return several[other] + 1.0


def chosen_for_one_operand(x: kl.array, other: bool) -> Any:
    one, two = x * x, x * 2.0
    return one * (two if other else one)


def chosen_to_be_returned(x: kl.array, other: bool) -> Any:
    return [x * x, x * 2.0][other]


def returned_in_another_order(x: kl.array, other: bool) -> Any:
    both = {"a": x * x, "b": x * 2.0}
    return {name: both[name] for name in ("ba" if other else "ab")}


def chosen_to_be_changed(x: kl.array, other: bool) -> Any:
    one, two = x * x, x * 2.0
    two_or_one = two if other else one
    two_or_one *= 3.0
    return one


def chosen_to_be_copied(x: kl.array, other: bool) -> Any:
    one, two = x * x, x * 2.0
    return kl.clone(two if other else one)


doubled = kl.func.custom_vjp(lambda v: v.numpy() * 2.0, lambda v, bar: bar.numpy() * 2.0)


def chosen_for_the_host(x: kl.array, other: bool) -> Any:
    one, two = x * 1.0, kl.clone(x, requires_grad=False)  # results do not tell them apart
    return doubled(two if other else one)


@pytest.mark.parametrize(
    "function",
    [
        chosen_for_the_host,
        chosen_to_go_on,
        chosen_for_one_operand,
        chosen_to_be_returned,
        returned_in_another_order,
        chosen_to_be_changed,
        chosen_to_be_copied,
    ],
)
def test_another_array_of_the_same_shape_at_the_second_run_is_an_error(function: Any) -> None:
    """A draw that chooses between two layers of one shape launches the same kernels, on other arrays."""
    x, runs = leaf(), iter([False, True])
    with kl.Tape() as tape:
        result = kl.checkpoint(lambda x: function(x, next(runs)), x)
    first = result["a"] if isinstance(result, dict) else result
    with pytest.raises(kl.TapeError, match="did something else than at first"):
        tape.backward(grads={first: kl.ones(4)})


def test_an_array_kept_by_other_ways_than_the_result_is_an_error() -> None:
    x, loss, others = leaf(), zeros(1), []

    def work(x: kl.array) -> None:
        others.append(two_steps(x))

    with kl.Tape() as tape:
        kl.checkpoint(work, x)
        total[4](others[0], loss)
        total[4](x, loss)
    with pytest.raises(kl.TapeError, match="was computed by the checkpoint of work, but not returned"):
        tape.backward(loss)


def test_a_change_through_numpy_is_an_error() -> None:
    x, loss = leaf(), zeros(1)
    with kl.Tape() as tape:
        y = kl.checkpoint(two_steps, x)
        total[4](y, loss)
    x.numpy()[:] = 5.0
    with pytest.raises(kl.TapeError, match="changed through a view"):
        tape.backward(loss)


def test_a_cut_inside_is_reported() -> None:
    def work(x: kl.array) -> kl.array:
        y, z = kl.zeros(4, dtype=float), zeros()
        step[4](x, 0.1, y)
        step[4](y, 0.1, z)
        return z

    x, loss = leaf(), zeros(1)
    with kl.Tape() as tape:
        y = kl.checkpoint(work, x)
        total[4](y, loss)
    with pytest.warns(
        kl.KernelWarning, match="through the argument `y` of the launch of `step`, read by the launch"
    ):
        tape.backward(loss)


def twice(x: kl.array, name: str) -> kl.array:
    y, z = zeros(), zeros()
    kernels[name][4](x, y)
    kernels[name][4](y, z)
    return z


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ([1.0, 2.0, -3.0, 4.0], "a value turns nan here, in thread 2 of the launch of `roots`"),
        ([1.0, 2.0, 0.0, 4.0], "the adjoint of the launch of `roots` computes inf in thread 2"),
    ],
)
def test_what_turns_nan_inside_is_found(start: list[float], said: str) -> None:
    x, loss = leaf(start), zeros(1)
    with kl.Tape() as tape:
        y = kl.checkpoint(twice, kl.checkpoint(lambda x: x * 1.0, x), "roots")
        total[4](y, loss)
    with pytest.raises(kl.NotFiniteError) as caught:
        tape.backward(loss, check_finite=True)
    assert said in str(caught.value) and "y[i] = sqrt(x[i])" in str(caught.value)
    assert x.list() == start


SLICES = """
def add(x: array[float], y: array[float]):
    i = tid()
    y[i] += sin(x[i])

def times(x: array[float], w: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * w[i]
"""


def _adds(w: kl.array) -> None:
    sliced["add"][2](w[0:2], w[2:4])
    sliced["add"][2](w[4:6], w[2:4])


def _fills(w: kl.array) -> None:
    w[0:2].fill_(0.25)
    sliced["add"][2](w[4:6], w[0:2])
    sliced["add"][2](w[2:4], w[0:2])


def _copies(w: kl.array) -> None:
    kl.copy(w[0:2], w[2:4])
    sliced["times"][2](w[4:6], w[1:3], w[2:4])


def _sets(w: kl.array) -> None:
    w[0:2] += w[2:4]
    w[2:4] = w[4:6]
    w[4:6].assign([1.0, 2.0])
    sliced["times"][2](w[2:4], w[0:2], w[3:5])


sliced: dict[str, Any] = kl.compile(SLICES)


@pytest.mark.parametrize("change", [_adds, _fills, _copies, _sets])
def test_slices_of_an_array_that_the_function_changes_may_be_read(
    change: Callable[[kl.array], None],
) -> None:
    found = []
    for call in (lambda w: kl.checkpoint(change, w), change):
        x = leaf([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
        with kl.Tape() as tape:
            w = kl.clone(x)
            call(w)
        tape.backward(grads={w: [1, 2, 3, 4, 5, 6]})
        found.append(x.grad.list())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


OVERLAPPING: dict[str, Callable[[kl.array], None]] = {
    "item": lambda w: w.__setitem__(slice(2, 6), w[0:4]),
    "copy": lambda w: kl.copy(w[2:6], w[0:4]),
    "backwards": lambda w: kl.copy(w[1:5], w[1:5][::-1]),
    "assign": lambda w: w[0:4].assign(w[1:5]),
}


@pytest.mark.parametrize("how", OVERLAPPING)
def test_copies_within_an_array_that_the_function_closes_over_find_the_old_elements_again(how: str) -> None:
    found = []
    for call in (kl.checkpoint, lambda steps: steps()):
        x, y = leaf([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]), zeros(6)
        with kl.Tape() as tape:
            w = kl.clone(x)

            def steps(w: kl.array = w, y: kl.array = y) -> None:
                OVERLAPPING[how](w)
                sliced["times"][6](w, w, y)

            call(steps)
        tape.backward(grads={y: [1, 2, 3, 4, 5, 6]})
        found.append(x.grad.list())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


@pytest.mark.parametrize("first", ["reads", "writes"])
def test_a_change_before_the_checkpoint_that_the_tape_did_not_see_is_noticed(first: str) -> None:
    def steps(x: kl.array, w: kl.array) -> kl.array:
        y = zeros(2)
        if first == "writes":
            sliced["add"][2](x[:2], w[:2])
        sliced["times"][2](x[:2], w[2:], y)
        return y

    x, w = leaf(), zeros()
    with kl.Tape() as tape:
        step[4](x, 0.5, w)
        w.numpy()[3] = 7.0
        y = kl.checkpoint(steps, x, w)
    with pytest.raises(kl.TapeError, match="the tape did not see how"):
        tape.backward(grads={y: [1, 1]})


MADE: dict[str, Callable[[kl.array, kl.array], kl.array]] = {
    "inside": lambda x, kept: kl.zeros(4, dtype=float),
    "by a copy": lambda x, kept: kl.copy(kept, x) or kept,
    "outside, overwritten before": lambda x, kept: step[4](x, 0.5, kept) or kept,
    "from NumPy": lambda x, kept: kl.array(np.zeros(4, np.float32), copy=False),
}


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("use", ["launch", "copy", "scale"])
def test_a_write_through_numpy_that_is_another_at_the_second_run_is_noticed(
    made: str, use: str, held: bool
) -> None:
    value, views = [1.0], []

    def steps(x: kl.array) -> kl.array:
        w = MADE[made](x, kept)
        view = w.numpy()
        view[1] = value[0]
        value[0] += 1.0
        if held:
            views.append(view)
        y, other = zeros(), w
        if use == "copy":
            other = kl.clone(w)
        elif use == "scale":
            other = w * 2.0
        sliced["times"][4](x, other, y)
        return y

    x, kept = leaf(), kl.zeros(4, dtype=float)
    with kl.Tape() as tape:
        y = kl.checkpoint(steps, x)
    with pytest.raises(kl.TapeError, match=r"did something else than at first|changed through a view"):
        tape.backward(grads={y: np.ones(4)})


def test_a_write_through_numpy_that_is_the_same_again_is_a_constant() -> None:
    def steps(x: kl.array) -> kl.array:
        w, y = kl.zeros(4, dtype=float), zeros()
        w.numpy()[:] = 3.0
        sliced["times"][4](x, w, y)
        return y

    x = leaf()
    with kl.Tape() as tape:
        y = kl.checkpoint(steps, x)
    tape.backward(grads={y: np.ones(4)})
    assert x.grad.list() == [3.0] * 4


def test_a_result_that_numpy_changed_after_a_launch_computed_it_has_no_way_back() -> None:
    def steps(x: kl.array) -> kl.array:
        y = zeros()
        sliced["times"][4](x, x, y)
        y.numpy()[0] = 5.0
        return y

    x = leaf()
    with kl.Tape() as tape:
        y = kl.checkpoint(steps, x)
    with pytest.raises(kl.TapeError, match="the tape did not see how"):
        tape.backward(grads={y: np.ones(4)})


def test_a_launch_that_is_not_recorded_runs_again_on_what_it_found() -> None:
    found = []
    for call in (kl.checkpoint, lambda steps: steps()):
        x, y, factor = leaf(), zeros(), kl.full(4, 2.0, dtype=float)

        def steps(x: kl.array = x, y: kl.array = y, factor: kl.array = factor) -> None:
            kl.launch(squash, 4, [factor], record_tape=False)
            sliced["times"][4](x, factor, y)

        with kl.Tape() as tape:
            call(steps)
            call(steps)
        before = factor.list(), y.list()
        tape.backward(grads={y: np.ones(4)})
        assert (factor.list(), y.list()) == before
        found.append(x.grad.list())
    assert found[0] == found[1]


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_checkpoints_in_checkpoints_know_the_functions_of_the_host_in_them(depth: int) -> None:
    def nested(x: kl.array, depth: int) -> Any:
        return doubled(doubled(x * x)) if depth == 0 else kl.checkpoint(nested, x, depth - 1) * x

    x = kl.array([1.0, 2.0], requires_grad=True)
    with kl.Tape() as tape:
        y = nested(x, depth)
    tape.backward(grads={y: kl.ones(2)})
    power = 2 + depth
    assert y.list() == [4.0, 4.0 * 2.0**power]
    assert x.grad.list() == [4.0 * power, 4.0 * power * 2.0 ** (power - 1)]


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_an_array_that_the_run_changes_may_be_looked_at_afterwards(nested: bool, held: bool) -> None:
    """A NumPy view that is taken after the first run does not make the second one differ."""

    def steps(x: kl.array) -> kl.array:
        x *= 1.5
        y = x * x
        return kl.checkpoint(steps_in_it, x) if nested else y

    def steps_in_it(x: kl.array) -> kl.array:
        return x * x

    x = leaf()
    with kl.Tape() as tape:
        state = kl.clone(x)
        loss = kl.checkpoint(steps, state).sum()
    view = state.numpy()
    expected = 4.5 * x.numpy()
    if not held:
        del view
    tape.backward(loss)
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-6)


def test_a_write_of_the_second_run_through_a_view_taken_after_the_first_is_an_error() -> None:
    views: list[Any] = []

    def steps(x: kl.array) -> kl.array:
        x *= 1.5
        for view in views:
            view *= 2.0
        return x * x

    x = leaf()
    with kl.Tape() as tape:
        state = kl.clone(x)
        loss = kl.checkpoint(steps, state).sum()
    views.append(state.numpy())
    with pytest.raises(kl.TapeError, match="the tape did not see how"):
        tape.backward(loss)


PARTS: dict[str, tuple[Callable[[kl.array], Any], list[float]]] = {
    "nothing": (lambda y: None, [1.0, 1.0, 1.0, 1.0]),
    "a shorter launch": (lambda y: fill[2](y), [0.0, 0.0, 1.0, 1.0]),
    "a launch over a slice": (lambda y: fill[1](y[1:2]), [1.0, 0.0, 1.0, 1.0]),
    "a copy into a slice": (lambda y: kl.copy(y[::2], kl.ones(2, dtype=float)), [0.0, 1.0, 0.0, 1.0]),
    "slices that are not all": (lambda y: (fill[1](y[:1]), y[2:].zero_()), [0.0, 1.0, 0.0, 0.0]),
    "a launch that wrote nothing": (lambda y: first[4](0, y), [1.0, 1.0, 1.0, 1.0]),
    "all, by a launch": (lambda y: fill[4](y), [0.0, 0.0, 0.0, 0.0]),
    "all, by two launches": (lambda y: (fill[1](y[:1]), fill[3](y[1:])), [0.0, 0.0, 0.0, 0.0]),
    "all, by the host": (lambda y: y.fill_(2.0), [0.0, 0.0, 0.0, 0.0]),
}


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("overwritten", PARTS)
def test_what_is_not_overwritten_before_it_is_read_comes_from_outside(
    overwritten: str, checked: bool
) -> None:
    """An array with gradients takes them further; one without them is reported where any would be lost."""
    overwrite, arriving = PARTS[overwritten]

    def gradients(requires_grad: bool) -> tuple[kl.array, kl.array]:
        x, w, loss = leaf(), leaf(), zeros(1)
        y = kl.zeros(4, dtype=float, requires_grad=requires_grad)

        def work() -> None:
            overwrite(y)
            total[4](y, loss)
            total[4](w, loss)

        with kl.Tape() as tape:
            kernels["copied"][4](x, y)
            kl.checkpoint(work) if checked else work()
        tape.backward(loss)
        return x, w

    x, w = gradients(requires_grad=True)
    assert x.grad.list() == arriving and w.grad.list() == [1.0] * 4
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x, w = gradients(requires_grad=False)
    assert x.grad.list() == [0.0] * 4 and w.grad.list() == [1.0] * 4
    assert any("no gradient flows through `y`" in str(one.message) for one in caught) == any(arriving)


def test_an_array_without_gradients_that_is_only_added_to_loses_none() -> None:
    x, y, loss = leaf(), kl.zeros(4), zeros(1)

    def work() -> None:
        added[4](x, y)
        total[4](x, loss)

    with kl.Tape() as tape:
        for _ in range(2):
            kl.checkpoint(work)
    tape.backward(loss)
    assert x.grad.list() == [2.0] * 4 and y.list() == pytest.approx([2 * start for start in START])
    with kl.Tape() as tape:
        kl.checkpoint(work)
        kl.checkpoint(lambda: total[4](y, loss))
    with pytest.warns(kl.KernelWarning, match="no gradient flows through `y`"):
        tape.backward(loss)


def test_numbers_that_a_function_draws_into_an_array_from_outside_are_constants() -> None:
    x, noise, y = leaf(), kl.zeros(4), zeros()

    def work(x: kl.array, seed: int) -> kl.array:
        kernels["drawn"][4](seed, noise)
        return x * noise

    with kl.Tape() as tape:
        z = kl.checkpoint(work, kl.checkpoint(work, x, 1), 2)
        kernels["product"][4](z, noise, y)
    tape.backward(grads={y: kl.ones(4)})  # warns of nothing
    factors = [kl.zeros(4) for _ in range(2)]
    for seed, factor in enumerate(factors, 1):
        kernels["drawn"][4](seed, factor)
    first, second = (factor.numpy() for factor in factors)
    np.testing.assert_allclose(x.grad.numpy(), first * second * second, rtol=1e-6)


RULES = """
def scaled(v: float, by: array[float], slope: array[float], i: int):
    return by[i] * v

def again(v: float, by: array[float], slope: array[float], i: int):
    return by[i] * v

@func_grad(scaled)
def adj_scaled(v: float, by: array[float], slope: array[float], i: int, adj_ret: float):
    adjoint[v] += slope[i] * adj_ret
    adjoint[by][i] += v * adj_ret
    adjoint[slope][i] += 0.0

@func_replay(again, check=False)
def again_replayed(v: float, by: array[float], slope: array[float], i: int):
    return slope[i] * v

@func_native('return by[i] * v;', 'adj_v += slope[i] * adj_ret; adj_by[i] += v * adj_ret;', check=False)
def natively(v: float, by: array[float], slope: array[float], i: int) -> float: ...

def grad(x: array[float], by: array[float], slope: array[float], y: array[float]):
    i = tid()
    y[i] = scaled(x[i], by, slope, i)

def replay(x: array[float], by: array[float], slope: array[float], y: array[float]):
    i = tid()
    t = again(x[i], by, slope, i)
    y[i] = 0.5 * t * t

def native(x: array[float], by: array[float], slope: array[float], y: array[float]):
    i = tid()
    y[i] = natively(x[i], by, slope, i)
"""


@pytest.fixture(scope="module")
def rules() -> Any:
    return kl.compile(RULES)


@pytest.mark.filterwarnings("ignore:adj_scaled gives")
@pytest.mark.parametrize("name", ["grad", "replay", "native"])
def test_what_only_a_derivative_rule_reads_is_kept(rules: Any, name: str) -> None:
    def pulled(change: Callable[[kl.array], object]) -> list[float]:
        x, by, slope = kl.array([1.0, 2.0], requires_grad=True), kl.array([2.0, 3.0]), kl.array([2.0, 3.0])

        def block(x: kl.array) -> kl.array:
            y = kl.zeros(2, requires_grad=True)
            rules[name][2](x, by, slope, y)
            return y

        with kl.Tape() as tape:
            y = kl.checkpoint(block, x)
        change(slope)
        tape.backward(grads={y: kl.ones(2)})
        return x.grad.list()

    expected = pulled(lambda slope: None)
    assert pulled(lambda slope: slope.fill_(100.0)) == expected
    with pytest.raises(kl.TapeError, match="changed through a view"):
        pulled(lambda slope: slope.numpy().fill(100.0))
