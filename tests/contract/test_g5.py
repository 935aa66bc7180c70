"""G5: launches and host writes on a tape, with arrays that are overwritten after they were read.

``"save"`` keeps exactly what is lost, ``"warn"`` warns, ``"error"`` raises before anything has changed.
Arrays count by the bytes they share, whatever objects they came through.
"""

import ctypes
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kernelab as kl

TEXT = """
def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def square_table(x: array2d[float], y: array2d[float]):
    i, j = tid()
    y[i, j] = x[i, j] * x[i, j]

def move(z: array[float], x: array[float]):
    i = tid()
    x[i] = z[i]

def move_to(z: array[float], x: array[float], first: int, step: int):
    i = tid()
    x[first + step * i] = z[i]

def scatter(z: array[float], index: array[int], x: array[float]):
    i = tid()
    x[index[i]] = z[i]

def three(x: array[float], y: array[float], first: int, step: int):
    i = tid()
    y[i] = x[first + step * i] * x[first + step * i]

def last_ones(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[-1 - i] * x[-1 - i]

def inner(x: array[float], y: array[float]):
    i = tid()
    n = x.shape[0]
    if i != 0 and not (i >= n - 1):
        y[i] = x[i - 1] * x[i + 1]

def relax(x: array[float], colour: int):
    i = tid()
    x[2 * i + colour] = 0.5 * x[2 * i + 1 - colour] * x[2 * i + 1 - colour]

def step(a: array[float], b: array[float]):
    i = tid()
    b[i] = sin(a[i])

def column(x: array2d[float], j: int, y: array[float]):
    i = tid()
    y[i] = x[i, j] * x[i, j]

def next_row(traj: array2d[float], t: int):
    i = tid()
    traj[t + 1, i] = sin(traj[t, i])

def next_wrapped(traj: array2d[float], t: int):
    i = tid()
    traj[(t + 1) % 3, i] = sin(traj[t % 3, i])

def windows(x: array2d[float], y: array2d[float]):
    i, j = tid()
    y[i, j] = x[i, j] * x[i, j]

@func_native("out[0] = x[0] * x[3];", "adj_x[0] += x[3] * adj_out[0]; adj_x[3] += x[0] * adj_out[0];")
def product(x: array[float], out: array[float]): ...

def native(x: array[float], y: array[float]):
    i = tid()
    if i == 0:
        product(x, y)

class Body:
    position: vec3
    mass: float

def energy(bodies: array[Body], e: array[float]):
    i = tid()
    e[i] = bodies[i].mass * dot(bodies[i].position, bodies[i].position)
"""

kernels: dict[str, Any] = kl.compile(TEXT)


def run(name: str, grid: Any, *arguments: Any, **options: Any) -> None:
    kl.launch(kernels[name], grid, list(arguments), **options)


def leaf(values: Any) -> Any:
    return kl.array(np.array(values, np.float32), dtype=float, requires_grad=True)


def result(shape: Any) -> Any:
    return kl.zeros(shape, dtype=float, requires_grad=True)


def gradient(x: Any) -> list[float]:
    return [float(value) for value in x.grad.numpy().reshape(-1)]


# ------------------------------------------------------------------------- who overwrites

NINES = kl.full(4, 9.0)
ONES = kl.full(4, 1.0)

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
    assert "`x` is overwritten here, but the adjoint of `square` (launched at test_g5.py, line" in text
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
    with pytest.raises(kl.TapeError, match=r"`x` was overwritten here after backward\(\) had run"):
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


# ------------------------------------------------------------------------- the same bytes by other ways


class Interface:
    """Memory that is known by its description only."""

    def __init__(self, values: Any) -> None:
        self.values = values
        self.__array_interface__ = dict(values.__array_interface__)


def pairs() -> Iterator[tuple[str, Any, Any, int]]:
    """Two arrays of NumPy's over common bytes that do not know of each other, and how many are common."""

    def numbers() -> Any:
        return np.arange(1, 11, dtype=np.float32)

    buffer = bytearray(numbers().tobytes())
    yield "frombuffer", np.frombuffer(buffer, np.float32), np.frombuffer(buffer, np.float32), 40
    buffer = bytearray(numbers().tobytes())
    parts = np.frombuffer(buffer, np.float32, 6), np.frombuffer(buffer, np.float32, 8, 8)
    yield "parts of a buffer", *parts, 16
    values = numbers()
    yield "as_strided", values, np.lib.stride_tricks.as_strided(values, (5,), (8,)), 20
    memory = (ctypes.c_float * 10)(*numbers())
    other = (ctypes.c_float * 10).from_address(ctypes.addressof(memory))
    yield "ctypes", np.ctypeslib.as_array(memory), np.ctypeslib.as_array(other), 40
    values = numbers()
    yield "array interface", np.asarray(Interface(values)), np.asarray(Interface(values)), 40
    yield "dlpack", np.from_dlpack(numbers_kept := numbers()), np.from_dlpack(numbers_kept), 40
    values = numbers()
    yield "dlpack of a part, then the whole", np.from_dlpack(values[2:8]), np.from_dlpack(values), 24
    values = numbers()
    yield "dlpack of parts", np.from_dlpack(values[4:]), np.from_dlpack(values[:6]), 8
    mine = kl.array(numbers(), dtype=float)
    yield "kernelab's own, by dlpack", mine.numpy(), np.from_dlpack(mine), 40


PAIRS = {name: others for name, *others in pairs()}


@pytest.mark.parametrize("way", PAIRS)
def test_memory_is_the_same_whatever_way_it_came(way: str) -> None:
    one, other, common = PAIRS[way]
    x, z = kl.from_numpy(one, requires_grad=True), kl.from_numpy(other)
    y, before = result(x.size), one.copy()
    with kl.Tape() as tape:
        run("square", x.size, x, y)
        run("move", z.size, kl.full(z.size, 9.0), z)
    assert tape.saved_bytes == common
    tape.backward(grads={y: kl.full(x.size, 1.0)})
    np.testing.assert_allclose(x.grad.numpy(), 2 * before)


def test_gradients_meet_in_memory_that_came_twice() -> None:
    buffer = bytearray(np.arange(1, 5, dtype=np.float32).tobytes())
    one, two = (kl.from_numpy(np.frombuffer(buffer, np.float32), requires_grad=True) for _ in range(2))
    y = result(4)
    with kl.Tape() as tape:
        run("square", 4, one, y)
        run("square", 4, two, y)
    tape.backward(grads={y: ONES})
    assert gradient(one) == gradient(two) == [2, 4, 6, 8]


def test_a_gradient_moves_along_when_borrowed_memory_grows() -> None:
    values = np.arange(1, 11, dtype=np.float32)
    part = kl.from_dlpack(values[4:8], requires_grad=True)
    y = result(4)
    with kl.Tape() as tape:
        run("square", 4, part, y)
        whole = kl.from_dlpack(values)
    tape.backward(grads={y: ONES})
    assert gradient(part) == gradient(whole)[4:8] == [10, 12, 14, 16]
    further = kl.from_dlpack(values[2:])
    assert gradient(part) == gradient(further)[2:6] == [10, 12, 14, 16]


def test_memory_that_spans_that_of_several_arrays_is_refused() -> None:
    values = np.arange(10, dtype=np.float32)
    first, second = kl.from_dlpack(values[:3]), kl.from_dlpack(values[6:])
    with pytest.raises(kl.KernelValueError, match="reach over 2 separate stretches of memory"):
        kl.from_dlpack(values)
    assert first.allocation is not second.allocation


def test_memory_that_was_given_back_is_forgotten() -> None:
    for _ in range(3):
        values = np.arange(4, dtype=np.float32)
        x = kl.from_numpy(values)
        assert x.allocation.version == 0
        x.fill_(1)


def test_windows_that_share_elements_can_be_read_but_not_written() -> None:
    values = np.arange(5, dtype=np.float32)
    x = kl.from_numpy(np.lib.stride_tricks.as_strided(values, (3, 3), (4, 4)), requires_grad=True)
    y = result((3, 3))
    with kl.Tape() as tape:
        run("windows", (3, 3), x, y)
        with pytest.raises(kl.LaunchError, match="elements share bytes"):
            run("windows", (3, 3), y, x)
        with pytest.raises(kl.KernelValueError, match="share bytes with each other"):
            x.fill_(0)
    tape.backward(grads={y: np.ones((3, 3))})
    assert x.grad.numpy()[0].tolist() == [0, 4, 12]


def test_nor_can_windows_at_an_address_be_written() -> None:
    values = np.arange(5, dtype=np.float32)
    address = values.__array_interface__["data"][0]
    x = kl.array(ptr=address, shape=(3, 3), strides=(4, 4), dtype=float)
    with pytest.raises(kl.LaunchError, match="elements share bytes"):
        run("windows", (3, 3), result((3, 3)), x)
    structs = kl.zeros(4, dtype=kernels["Body"]).numpy()
    bodies = kl.from_numpy(np.lib.stride_tricks.as_strided(structs, (3, 2), (16, 16)), kernels["Body"])
    with pytest.raises(kl.KernelValueError, match="share bytes with each other"):
        bodies["mass"].fill_(1.0)


# ------------------------------------------------------------------------- writes that cannot be seen


def test_a_numpy_write_to_other_elements_is_no_change_of_those_that_matter() -> None:
    x, y = leaf([1, 2, 3, 4, 5, 6, 7]), result(7)
    view = x.numpy()
    with kl.Tape() as tape:
        run("three", 3, x, y, 2, 1)
    view[:2] = 0
    view[5:] = 0
    tape.backward(grads={y: kl.full(7, 1.0)})
    assert gradient(x) == [0, 0, 6, 8, 10, 0, 0]


def test_a_numpy_write_is_noticed_beside_elements_that_were_saved() -> None:
    x, y = leaf([1, 2, 3, 4]), result(4)
    view = x.numpy()
    with kl.Tape() as tape:
        run("square", 4, x, y)
        x[:2].fill_(0)
    view[:2] = 5
    tape.backward(grads={y: ONES})
    assert gradient(x) == [2, 4, 6, 8]
    view[3] = 5
    with pytest.raises(kl.TapeError, match="`x` was changed through a NumPy view"):
        tape.backward(grads={y: ONES})


def test_what_is_saved_is_reported() -> None:
    x, y = leaf([1, 2, 3, 4]), result(4)
    with kl.Tape() as tape:
        run("square", 4, x, y)
        x[:3].fill_(0)
    assert tape.saved_bytes == 12
    assert "12 bytes saved" in repr(tape)
    tape.reset()
    assert tape.saved_bytes == 0


def test_a_part_without_a_name_is_called_a_part_of_the_whole() -> None:
    big, y = leaf([1, 2, 3, 4]), result(2)
    with kl.Tape(overwrite="error"):
        run("square", 2, big[1:3], y)
        with pytest.raises(kl.TapeError, match="argument `x` of `square`, a part of `big`, is overwritten"):
            big.fill_(0)


def test_a_write_that_the_tape_did_not_see_names_the_array() -> None:
    x, y, z = leaf([1, 2, 3, 4]), result(4), result(4)
    with kl.Tape() as tape:
        run("square", 4, x, y)
        y.numpy()[0] = 7
        run("square", 4, y, z)
    with pytest.raises(kl.TapeError, match="`y`, which this tape computed, was changed before this line"):
        tape.backward(grads={z: ONES})
