"""Launches and host writes on a tape, with arrays that are overwritten after they were read.

``"save"`` keeps exactly what is lost, ``"warn"`` warns, ``"error"`` raises before anything has changed.
Arrays count by the bytes they share, whatever objects they came through.
"""

import gc
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from tests.contract.overwriting import ONES, gradient, kernels, leaf, result, run

# ------------------------------------------------------------------------- who overwrites

NINES = kl.full(4, 9.0)

WRITES: dict[str, tuple[Callable[[Any], object], int]] = {
    "a launch": (lambda x: run("move", 4, NINES, x), 4),
    "a launch of fewer threads": (lambda x: run("move", 3, NINES, x), 3),
    "a launch that starts later": (lambda x: run("move_to", 2, NINES, x, 2, 1), 2),
    "a launch that skips": (lambda x: run("move_to", 2, NINES, x, 1, 2), 2),
    "a launch whose index is loaded": (lambda x: run("scatter", 1, NINES, kl.array([2]), x), 4),
    "a launch outside the tape": (lambda x: run("move", 2, NINES, x, record_tape=False), 2),
    "a launch in place": (lambda x: run("step", 4, x, x), 4),
    "a launch on a slice": (lambda x: run("move", 2, NINES, x[1:3]), 2),
    "a copy": (lambda x: kl.copy(x, NINES), 4),
    "a copy with offsets": (lambda x: kl.copy(x, NINES, dest_offset=1, src_offset=1, count=2), 2),
    "assign": (lambda x: x.assign(NINES), 4),
    "assign of host data": (lambda x: x.assign([9, 9, 9, 9]), 4),
    "fill_": (lambda x: x.fill_(9), 4),
    "zero_ of a slice": (lambda x: x[:1].zero_(), 1),
    "an item": (lambda x: x.__setitem__(3, 9), 1),
    "a slice of items": (lambda x: x.__setitem__(slice(None, None, 2), 9), 2),
    "a slice of an array": (lambda x: x.__setitem__(slice(0, 2), NINES[:2]), 2),
    "adding in place": (lambda x: x.__iadd__(ONES), 4),
    "multiplying in place": (lambda x: x.__imul__(2.0), 4),
    "a map with out=": (lambda x: kl.map(kl.sin, NINES, out=x), 4),
    "mark_write": (lambda x: (x.mark_write(), x.host().fill(9)), 4),
    "a reshaped view": (lambda x: x.reshape(2, 2)[1].fill_(9), 2),
    "a transposed view": (lambda x: x.reshape(2, 2).transpose()[0].fill_(9), 2),
    "the same bytes as integers": (lambda x: kl.from_numpy(x.numpy().view(np.int32)).fill_(9), 4),
}


@pytest.mark.parametrize("when", ["inside", "after"])
@pytest.mark.parametrize("what", WRITES)
def test_exactly_what_is_lost_is_saved(what: str, when: str) -> None:
    write, lost = WRITES[what]
    x, y = leaf([1, 2, 3, 4]), result(4)
    with kl.Tape() as tape:
        run("square", 4, x, y)
        if when == "inside":
            write(x)
    if when == "after":
        write(x)
    now = x.list()
    tape.backward(grads={y: ONES})
    assert gradient(x) == [2, 4, 6, 8]
    assert x.list() == now
    assert tape.saved_bytes == 4 * lost


@pytest.mark.parametrize("what", WRITES)
def test_an_error_comes_before_anything_has_changed(what: str) -> None:
    write, _ = WRITES[what]
    x, y = leaf([1, 2, 3, 4]), result(4)
    with kl.Tape(overwrite="error") as tape:
        run("square", 4, x, y)
        with pytest.raises(kl.TapeError, match="`x` is overwritten here, but the adjoint of `square`"):
            write(x)
    assert x.list() == [1, 2, 3, 4]
    tape.backward(grads={y: ONES})
    assert gradient(x) == [2, 4, 6, 8]


@pytest.mark.parametrize("what", WRITES)
def test_a_warning_goes_on_with_the_new_values(what: str) -> None:
    write, _ = WRITES[what]
    x, y = leaf([1, 2, 3, 4]), result(4)
    with kl.Tape(overwrite="warn") as tape:
        run("square", 4, x, y)
        with pytest.warns(kl.KernelWarning, match="`x` is overwritten here") as caught:
            write(x)
    assert len(caught) == 1
    now = 2 * x.host()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tape.backward(grads={y: ONES})
    if "in place" not in what:
        assert gradient(x) == pytest.approx(list(now))


def test_the_message_names_the_array_both_lines_the_gradient_and_the_fix() -> None:
    x, y = leaf([1, 2, 3, 4]), result(4)
    with kl.Tape(overwrite="error"):
        run("square", 4, x, y)
        with pytest.raises(kl.TapeError) as caught:
            x.fill_(0)
    text = str(caught.value)
    assert "`x` is overwritten here, but the adjoint of `square` (launched at overwriting.py, line" in text
    assert "x.fill_(0)" in text
    assert "the gradient of `x` would be wrong" in text
    assert 'hint: write into another array, or use Tape(overwrite="save")' in text
    assert "it was read by this launch:" in text


def test_a_write_after_backward_is_silent_and_another_backward_is_an_error() -> None:
    x, y = leaf([1, 2, 3, 4]), result(4)
    with kl.Tape(overwrite="error") as tape:
        run("square", 4, x, y)
    tape.backward(grads={y: ONES})
    x.fill_(0)
    with pytest.raises(kl.TapeError, match=r"`x` was overwritten at .*, after backward\(\) had run"):
        tape.backward(grads={y: ONES})
    assert gradient(x) == [2, 4, 6, 8]


def test_two_backward_passes_need_nothing_if_nothing_changed() -> None:
    x, y = leaf([1, 2, 3, 4]), result(4)
    with kl.Tape() as tape:
        run("square", 4, x, y)
        x.fill_(0)
    tape.backward(grads={y: ONES})
    tape.backward(grads={y: ONES})
    assert gradient(x) == [4, 8, 12, 16]


# ------------------------------------------------------------------------- which elements a launch reads

READS: dict[str, tuple[str, int, tuple[Any, ...], set[int]]] = {
    "some at an offset": ("three", 3, (2, 1), {2, 3, 4}),
    "every second": ("three", 3, (1, 2), {1, 3, 5}),
    "every third": ("three", 2, (1, 3), {1, 4}),
    "from the end": ("last_ones", 2, (), {5, 6}),
    "backwards": ("three", 3, (4, -2), {0, 2, 4}),
    "inside of a border": ("inner", 4, (), {0, 1, 2, 3, 4}),
    "nothing": ("inner", 1, (), set()),
}


@pytest.mark.parametrize("what", READS)
@pytest.mark.parametrize("element", range(7))
def test_only_what_a_launch_has_read_is_guarded(what: str, element: int) -> None:
    name, threads, options, read = READS[what]
    values = np.arange(1, 8, dtype=np.float32)
    x, y = leaf(values), result(7)
    with kl.Tape() as tape:
        run(name, threads, x, y, *options)
        x[element] = 50.0
    assert tape.saved_bytes == 4 * (element in read)
    tape.backward(grads={y: kl.full(7, 1.0)})
    other, z = leaf(values), result(7)
    with kl.Tape() as again:
        run(name, threads, other, z, *options)
    again.backward(grads={z: kl.full(7, 1.0)})
    assert gradient(x) == gradient(other)


def test_of_a_column_only_the_column_is_kept() -> None:
    x, y = leaf(np.arange(12).reshape(4, 3)), result(4)
    with kl.Tape() as tape:
        run("column", 4, x, 1, y)
        x.fill_(0)
    assert tape.saved_bytes == 16
    tape.backward(grads={y: ONES})
    assert gradient(x) == [0, 2, 0, 0, 8, 0, 0, 14, 0, 0, 20, 0]


def test_elements_that_are_lost_one_after_another_are_kept_once_each() -> None:
    x, y = leaf([1, 2, 3, 4, 5, 6]), result(6)
    with kl.Tape() as tape:
        run("square", 6, x, y)
        saved = []
        for part in (slice(0, 2), slice(1, 4), slice(0, 4), slice(5, 6), slice(None, None, 2), slice(None)):
            x[part].fill_(0)
            saved.append(tape.saved_bytes // 4)
    assert saved == [2, 4, 4, 5, 6, 6]
    tape.backward(grads={y: kl.full(6, 1.0)})
    assert gradient(x) == [2, 4, 6, 8, 10, 12]


def test_scattered_elements_of_a_table_are_kept_once_each() -> None:
    x, y = leaf(np.arange(1, 10).reshape(3, 3)), result((3, 3))
    with kl.Tape() as tape:
        run("square_table", (3, 3), x, y)
        x[:, 1].fill_(0)
        assert tape.saved_bytes == 12
        x[1].fill_(0)
        assert tape.saved_bytes == 20
        x[::2, ::2].fill_(0)
    assert tape.saved_bytes == 36
    tape.backward(grads={y: kl.full((3, 3), 1.0)})
    assert gradient(x) == [2, 4, 6, 8, 10, 12, 14, 16, 18]


def test_reused_buffers_save_just_what_they_destroy() -> None:
    a, b = leaf([0.1, 0.2, 0.3, 0.4]), result(4)
    with kl.Tape() as tape:
        for _ in range(5):
            run("step", 4, a, b)
            a, b = b, a
    assert tape.saved_bytes == 4 * 16
    tape.backward(grads={a: ONES})
    first = np.array([0.1, 0.2, 0.3, 0.4])
    slope = np.ones(4)
    for _ in range(5):
        slope *= np.cos(first)
        first = np.sin(first)
    np.testing.assert_allclose(b.grad.numpy(), slope, rtol=1e-5)


@pytest.mark.parametrize("size", [4, 2**19])  # as bytes, as an array
def test_what_overwrites_a_whole_array_tells_of_both_launches(size: int) -> None:
    x, y, z = leaf(np.full(size, 3.0)), result(size), result(size)
    with kl.Tape() as tape:
        kernels["square"][size](x, y)
        kernels["move"][size](z, x)
    (event,), (reader, _) = tape.overwrites, tape.launches
    assert (event.elements, event.outcome, event.nbytes) == (x, "saved", 4 * size)
    assert event.reader.call.arguments is reader.arguments
    assert event.place.line == event.reader.place.line + 1
    for _ in range(2):
        tape.zero()
        tape.backward(grads={y: kl.full(size, 1.0)})
        assert gradient(y) == [1] * size
        assert reader.saved()[0].list() == [3] * size
        assert not x.list()[0]


def test_launches_that_go_to_and_fro_leave_few_objects_for_the_collector_to_visit() -> None:
    a, b = leaf([0.1, 0.2]), result(2)
    counts = []
    with kl.Tape():
        for count in (100, 500):
            for _ in range(count):
                run("step", 2, a, b)
                a, b = b, a
            gc.collect()
            counts.append(len(gc.get_objects()))
    assert counts[1] - counts[0] <= 8 * 500 + 200


def test_a_ring_of_rows_saves_the_rows_that_it_destroys() -> None:
    traj = leaf(np.outer([1, 0, 0], [0.1, 0.2, 0.3, 0.4]))
    with kl.Tape() as tape:
        for t in range(5):
            run("next_wrapped", 4, traj, t)
    assert tape.saved_bytes == 3 * 16
    tape.backward(grads={traj: np.outer([0, 0, 1], np.ones(4))})
    value, slope = np.array([0.1, 0.2, 0.3, 0.4]), np.ones(4)
    for _ in range(5):
        slope *= np.cos(value)
        value = np.sin(value)
    np.testing.assert_allclose(traj.grad.numpy()[0], slope, rtol=1e-5)


def test_red_and_black_sweeps_save_one_colour_at_a_time() -> None:
    start = np.linspace(0.5, 1.2, 8)
    x = leaf(start)
    with kl.Tape() as tape:
        for k in range(4):
            run("relax", 4, x, k % 2)
    assert tape.saved_bytes == 3 * 16
    tape.backward(grads={x: kl.full(8, 1.0)})

    def total(values: Any) -> float:
        values = values.copy()
        for k in range(4):
            values[k % 2 :: 2] = 0.5 * values[1 - k % 2 :: 2] ** 2
        return float(values.sum())

    slopes = [(total(start + e) - total(start - e)) / 2e-6 for e in 1e-6 * np.eye(8)]
    np.testing.assert_allclose(x.grad.numpy(), slopes, rtol=1e-4, atol=1e-6)


def test_a_row_that_is_computed_twice_is_saved() -> None:
    traj = leaf(np.outer([1, 0, 0], [0.1, 0.2, 0.3, 0.4]))
    with kl.Tape() as tape:
        run("next_row", 4, traj, 0)
        run("next_row", 4, traj, 1)
        traj[1].fill_(0.7)
        run("next_row", 4, traj, 1)
    assert tape.saved_bytes == 16
    tape.backward(grads={traj: np.outer([0, 0, 1], np.ones(4))})
    assert gradient(traj)[:4] == [0, 0, 0, 0]


@pytest.mark.parametrize("t", [-1, -2])
def test_rows_that_count_from_the_end_are_the_rows_they_are(t: int) -> None:
    rows = np.outer([0.1, 0.2], [1.0, 2.0])
    traj = leaf(rows)
    with kl.Tape() as tape:
        run("next_row", 2, traj, t)
    tape.backward(grads={traj: [[1, 1], [1, 1]]})
    expected = np.ones((2, 2))
    expected[t + 1] = 0
    expected[t] += np.cos(rows[t])
    np.testing.assert_allclose(traj.grad.numpy(), expected, rtol=1e-5)


def test_one_row_that_is_both_the_last_and_the_first() -> None:
    traj = leaf([[0.1, 0.2]])
    with kl.Tape() as tape:
        run("next_row", 2, traj, -1)
    tape.backward(grads={traj: [[1, 1]]})
    np.testing.assert_allclose(traj.grad.numpy()[0], np.cos([0.1, 0.2]), rtol=1e-5)


def test_fields_of_structs_are_guarded_one_by_one() -> None:
    bodies = kl.zeros(3, dtype=kernels["Body"], requires_grad=True)
    bodies["mass"].fill_(2.0)
    bodies["position"].fill_(1.0)
    e = result(3)
    with kl.Tape() as tape:
        run("energy", 3, bodies, e)
        bodies["mass"].fill_(5.0)
    assert tape.saved_bytes == 12
    tape.backward(grads={e: [1, 1, 1]})
    assert gradient(bodies["mass"]) == [3, 3, 3]
    assert bodies["position"].grad.numpy().tolist() == [[4, 4, 4]] * 3


def test_structs_that_are_overwritten_one_by_one_lose_their_fields_one_by_one() -> None:
    bodies = kl.zeros(3, dtype=kernels["Body"], requires_grad=True)
    bodies["mass"].fill_(2.0)
    bodies["position"].fill_(1.0)
    e = result(3)
    with kl.Tape() as tape:
        run("energy", 3, bodies, e)
        bodies[1:2].zero_()
        assert tape.saved_bytes == 16
        bodies[0] = kernels["Body"]()
        assert tape.saved_bytes == 32
        bodies.zero_()
    assert tape.saved_bytes == 48
    tape.backward(grads={e: [1, 1, 1]})
    assert gradient(bodies["mass"]) == [3, 3, 3]
    assert bodies["position"].grad.numpy().tolist() == [[4, 4, 4]] * 3


def test_what_native_code_may_read_is_guarded_whole() -> None:
    x, y = leaf([1, 2, 3, 4]), result(4)
    with kl.Tape() as tape:
        run("native", 2, x, y)
        x[3] = 9.0
    assert tape.saved_bytes == 4
    tape.backward(grads={y: ONES})
    assert gradient(x) == [4, 0, 0, 1]


@pytest.mark.filterwarnings("ignore:this tape already holds")
def test_a_tape_that_is_entered_again_saves_again() -> None:
    x, y, z = leaf([1, 2, 3, 4]), result(4), result(4)
    tape = kl.Tape()
    with tape:
        run("square", 4, x, y)
    tape.backward(grads={y: ONES})
    with tape:
        x.fill_(0)
        run("square", 4, y, z)
    x.grad.zero_()
    tape.backward(grads={z: ONES})
    assert tape.saved_bytes == 16
    assert gradient(x) == [4, 32, 108, 256]
