"""The same bytes by other ways, and writes that a tape cannot see."""

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from tests.contract.overwriting import ONES, gradient, kernels, leaf, result, run
from tests.support.numpy_version import DLPACK_IS_WRITABLE

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
    mine = kl.array(numbers(), dtype=float)
    yield "kernelab's own, by dlpack", mine.numpy(), np.from_dlpack(mine), 40
    if not DLPACK_IS_WRITABLE:
        return
    yield "dlpack", np.from_dlpack(numbers_kept := numbers()), np.from_dlpack(numbers_kept), 40
    values = numbers()
    yield "dlpack of a part, then the whole", np.from_dlpack(values[2:8]), np.from_dlpack(values), 24
    values = numbers()
    yield "dlpack of parts", np.from_dlpack(values[4:]), np.from_dlpack(values[:6]), 8


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
    with pytest.raises(kl.TapeError, match="`x` was changed through a view"):
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
    with pytest.raises(kl.TapeError, match="`y`, which this tape uses, was changed before this line"):
        tape.backward(grads={z: ONES})
