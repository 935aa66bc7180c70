"""Overwritten arrays: gradients stay right, or a warning or an error names the line; no false alarms."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.autodiff.records.snapshots import Snapshot
from tests.support.leaves import gradient, leaf, result

TEXT = """
def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def double(x: array[float], y: array[float]):
    i = tid()
    y[i] = 2.0 * x[i]

def move(z: array[float], x: array[float]):
    i = tid()
    x[i] = z[i]

def add(x: array[float], y: array[float]):
    i = tid()
    y[i] += x[i]

def total(x: array[float], l: array[float]):
    atomic_add(l, 0, x[tid()])

def weigh(x: array[float], index: array[int], y: array[float]):
    i = tid()
    y[i] = x[index[i]]
"""

kernels: dict[str, Any] = kl.compile(TEXT)
square, double, move, add, total = (kernels[name] for name in ("square", "double", "move", "add", "total"))


Overwrite = Callable[[kl.array], object]
NINES = kl.full(3, 9.0)
OVERWRITES: dict[str, Overwrite] = {
    "launch": lambda x: move[3](NINES, x),
    "launch in place": lambda x: double[3](x, x),
    "accumulation": lambda x: add[3](NINES, x),
    "copy": lambda x: kl.copy(x, NINES),
    "assign": lambda x: x.assign([9, 9, 9]),
    "fill_": lambda x: x.fill_(9),
    "zero_": lambda x: x.zero_(),
    "item": lambda x: x.__setitem__(1, 9),
    "view": lambda x: x[2:].fill_(9),
    "reshaped": lambda x: x.reshape(3, 1).fill_(9),
    "reversed": lambda x: move[3](NINES, x[::-1]),
    "numpy argument": lambda x: move[3](NINES, x.numpy()),
}


@pytest.mark.parametrize("overwrite", OVERWRITES.values(), ids=OVERWRITES)
@pytest.mark.parametrize("inside", [True, False], ids=["inside", "after"])
def test_the_old_values_are_saved(overwrite: Overwrite, inside: bool) -> None:
    x, y = leaf(1, 2, 3), result(3)
    with kl.Tape() as tape:
        square[3](x, y)
        if inside:
            overwrite(x)
    if not inside:
        overwrite(x)
    now = x.list()
    tape.backward(grads={y: [1, 1, 1]})
    assert gradient(x) == [2, 4, 6]
    assert x.list() == now
    one = overwrite in (OVERWRITES["item"], OVERWRITES["view"])
    assert tape.saved_bytes == (4 if one else 12)


@pytest.mark.parametrize("overwrite", OVERWRITES.values(), ids=OVERWRITES)
def test_the_error_comes_before_anything_is_overwritten(overwrite: Overwrite) -> None:
    x, y = leaf(1, 2, 3), result(3)
    with kl.Tape(overwrite="error") as tape:
        square[3](x, y)
        with pytest.raises(kl.TapeError, match="`x` is overwritten here, but the adjoint of `square`"):
            overwrite(x)
    assert x.list() == [1, 2, 3]
    assert len(tape) == 1
    tape.backward(grads={y: [1, 1, 1]})
    assert gradient(x) == [2, 4, 6]


def test_the_error_shows_the_writing_and_the_reading_line() -> None:
    x, y = leaf(1, 2, 3), result(3)
    with kl.Tape(overwrite="error"):
        square[3](x, y)
        with pytest.raises(kl.TapeError) as caught:
            x.fill_(0)
    text = str(caught.value)
    assert "x.fill_(0)" in text
    assert "square[3](x, y)" in text
    assert text.count("test_hazards.py, line") == 3


def test_a_warning_names_the_array_and_goes_on() -> None:
    x, y = leaf(1, 2, 3), result(3)
    with kl.Tape(overwrite="warn") as tape:
        square[3](x, y)
        with pytest.warns(kl.KernelWarning, match="`x` is overwritten here") as caught:
            x.fill_(10)
    assert caught[0].filename == __file__
    tape.backward(grads={y: [1, 1, 1]})
    assert gradient(x) == [20, 20, 20]


def test_an_array_without_a_name_is_called_by_the_parameter() -> None:
    arrays = [leaf(1, 2, 3), result(3)]
    with kl.Tape(overwrite="error"):
        square[3](*arrays)
        with pytest.raises(kl.TapeError, match="the argument `x` of `square` is overwritten"):
            arrays[0].fill_(0)


# Each does something to arrays that no recorded adjoint needs as they were.
HARMLESS: dict[str, Callable[[kl.array, kl.array], object]] = {
    "what the kernel wrote": lambda x, y: y.fill_(0),
    "other bytes": lambda x, y: x[3:].fill_(9),
    "other bytes between": lambda x, y: x[:0].fill_(9),
    "reading": lambda x, y: square[3](x[:3], y),
    "the gradient": lambda x, y: x.grad.fill_(0),  # type: ignore[union-attr]
}


@pytest.mark.parametrize("act", HARMLESS.values(), ids=HARMLESS)
def test_what_no_adjoint_needs_raises_no_alarm(act: Callable[[kl.array, kl.array], object]) -> None:
    x, y = leaf(1, 2, 3, 4), result(3)
    with kl.Tape(overwrite="error"):
        square[3](x[:3], y)
        act(x, y)


def test_interleaved_views_do_not_alarm_each_other() -> None:
    x, y = leaf(1, 2, 3, 4), result(2)
    with kl.Tape(overwrite="error"):
        square[2](x[::2], y)
        x[1::2].fill_(9)


def test_a_linear_kernel_needs_nothing() -> None:
    x, y = leaf(1, 2, 3), result(3)
    with kl.Tape(overwrite="error") as tape:
        double[3](x, y)
        x.fill_(0)
    tape.backward(grads={y: [1, 1, 1]})
    assert gradient(x) == [2, 2, 2]


def test_integers_that_an_adjoint_needs_are_saved_too() -> None:
    x, index, y = leaf(1, 2), kl.array([1, 1]), result(2)
    with kl.Tape() as tape:
        kernels["weigh"][2](x, index, y)
        index.fill_(0)
    tape.backward(grads={y: [1, 10]})
    assert gradient(x) == [0, 11]


def test_before_the_launch_and_after_reset_nothing_is_guarded() -> None:
    x, y = leaf(1, 2, 3), result(3)
    with kl.Tape(overwrite="error") as tape:
        x.fill_(1)
        square[3](x, y)
    tape.reset()
    x.fill_(2)


def test_many_launches_save_one_version_once() -> None:
    x, y = leaf(1, 2, 3), result(3)
    with kl.Tape() as tape:
        for _ in range(5):
            square[3](x, y)
        x.fill_(0)
    assert tape.saved_bytes == 12


def test_equal_views_save_their_bytes_once() -> None:
    x, y = leaf(1, 2, 3), result(3)
    with kl.Tape() as tape:
        for _ in range(5):
            square[2](x[1:], y[1:])
        x.fill_(0)
    assert tape.saved_bytes == 8


def test_bytes_are_saved_once_though_their_neighbours_change() -> None:
    x, y = leaf(1, 2, 3), result()
    with kl.Tape() as tape:
        for i in range(3):
            square[1](x[:1], y)
            x[1 + i % 2 :].fill_(i)
        x.fill_(0)
    assert tape.saved_bytes == 4


def test_every_version_that_is_needed_is_saved() -> None:
    x, y, loss = kl.array([2.0]), result(), result()
    weights = leaf(1)
    with kl.Tape() as tape:
        for value in (2.0, 3.0, 4.0):
            x.fill_(value)
            square[1](weights, y)
            weights.fill_(value)
            total[1](y, loss)
    tape.backward(loss)
    assert tape.saved_bytes == 12
    assert gradient(weights) == [2]


def test_a_change_through_a_numpy_view_is_an_error_that_names_the_array() -> None:
    x, y = leaf(1, 2, 3), result(3)
    view = x.numpy()
    with kl.Tape() as tape:
        square[3](x, y)
    view[0] = 5
    with pytest.raises(kl.TapeError, match="`x` was changed through a view"):
        tape.backward(grads={y: [1, 1, 1]})
    assert gradient(x) == [0, 0, 0]


def test_a_view_made_after_the_launch_is_noticed_too() -> None:
    x, y = leaf(1, 2, 3), result(3)
    with kl.Tape() as tape:
        square[3](x, y)
    x.numpy()[0] = 5
    with pytest.raises(kl.TapeError, match="`x` was changed through a view"):
        tape.backward(grads={y: [1, 1, 1]})


def test_a_change_of_borrowed_memory_is_noticed() -> None:
    data = np.ones(3, np.float32)
    x, y = kl.from_numpy(data, requires_grad=True), result(3)
    with kl.Tape() as tape:
        square[3](x, y)
    data[1] = 7
    with pytest.raises(kl.TapeError, match="`x` was changed through a view"):
        tape.backward(grads={y: [1, 1, 1]})


def test_a_change_through_a_view_stays_noticed_when_the_array_is_overwritten_later() -> None:
    x, y = leaf(1, 2, 3), result(3)
    with kl.Tape() as tape:
        square[3](x, y)
    x.numpy()[0] = 5
    x.fill_(0)
    with pytest.raises(kl.TapeError, match="`x` was changed through a view"):
        tape.backward(grads={y: [1, 1, 1]})


def test_looking_at_an_array_through_numpy_is_no_change() -> None:
    x, y = leaf(1, 2, 3), result(3)
    view = x.numpy()
    with kl.Tape() as tape:
        square[3](x, y)
        assert view.sum() == 6
        x.fill_(0)
    assert view.sum() == 0
    tape.backward(grads={y: [1, 1, 1]})
    assert gradient(x) == [2, 4, 6]


def test_a_change_of_what_nobody_needs_is_fine() -> None:
    x, y = leaf(1, 2, 3), result(3)
    with kl.Tape() as tape:
        square[3](x, y)
    y.numpy()[0] = 5
    tape.backward(grads={y: [1, 1, 1]})


def test_a_training_loop_saves_and_warns_of_nothing() -> None:
    x, target = leaf(1, 2, 3), kl.array([1.0, 1.0, 1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            y, loss = result(3), result()
            with kl.Tape(overwrite="error") as tape:
                square[3](x, y)
                add[3](target, y)
                total[3](y, loss)
            tape.backward(loss)
            slope = gradient(x)
            tape.reset()
            x.assign(x.numpy() - 0.1 * np.array(slope))
    np.testing.assert_allclose(x.list(), np.array([1, 2, 3]) * 0.8**3, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64", "vec3", "mat22"])
def test_an_array_of_any_type_may_have_a_numpy_view_on_a_tape(dtype: str) -> None:
    text = "def scale(x: array[{0}], s: array[{1}], y: array[{0}]):\n    i = tid()\n    y[i] = x[i] * s[i]\n"
    scalar = dtype if "float" in dtype else "float32"
    scale = kl.compile(text.format(dtype, scalar))["scale"]
    x, y = (kl.zeros(3, dtype=getattr(kl, dtype), requires_grad=True) for _ in range(2))
    s = kl.ones(3, dtype=getattr(kl, scalar), requires_grad=True)
    views = [x.numpy(), s.numpy()]
    with kl.Tape() as tape:
        scale[3](x, s, y)
    tape.backward(grads={y: kl.ones_like(y)})
    assert (x.grad.numpy() == 1).all()
    views[1][0] = 2
    with pytest.raises(kl.TapeError, match="changed through a view"):
        tape.backward(grads={y: kl.ones_like(y)})


def test_a_snapshot_may_be_released_by_two_threads() -> None:
    """As where both look at a constant that a transform in one of them has read."""
    x = kl.array([1.0, 2.0, 3.0])
    snapshot = Snapshot(x)
    for _ in range(2):
        snapshot.release()
    x.fill_(4.0)
    assert snapshot.saved is None and not x.allocation.watches.starts
