"""Arrays over the memory of another array, whatever way they came to its address, are the same to a tape."""

import ctypes
from typing import Any

import numpy as np
import pytest

import kernelab as kl


class Described:
    """Another library's array over an address that kernelab has told."""

    def __init__(self, address: int, shape: tuple[int, ...]) -> None:
        self.__array_interface__ = {"data": (address, False), "shape": shape, "typestr": "<f8", "version": 3}


def by_ctypes(address: int, count: int) -> Any:
    return np.ctypeslib.as_array((ctypes.c_double * count).from_address(address))


OVER_THE_SAME = {
    "array(ptr=)": lambda x: kl.array(ptr=x.ptr, dtype=kl.float64, shape=x.shape),
    "from_ptr": lambda x: kl.from_ptr(x.ptr, x.size, kl.float64),
    "part of it": lambda x: kl.array(ptr=x[1:].ptr - 8, dtype=kl.float64, shape=x.shape),
    "array interface": lambda x: kl.from_numpy(np.asarray(Described(x.ptr, x.shape))),
    "ctypes": lambda x: kl.from_numpy(by_ctypes(x.ptr, x.size)),
    "address of NumPy's view": lambda x: kl.array(ptr=x.numpy().ctypes.data, dtype=kl.float64, shape=x.shape),
    "DLPack": kl.from_dlpack,
    "DLPack of NumPy's view": lambda x: kl.from_dlpack(x.numpy()),
    "DLPack of a view": lambda x: kl.from_dlpack(x.reshape(3, 1)).flatten(),
    "capsule": lambda x: kl.from_dlpack(kl.to_dlpack(x)),
    "as bytes and back": lambda x: kl.array(x.numpy().view(np.uint8).view(np.float64), copy=False),
}


@pytest.mark.parametrize("again", OVER_THE_SAME.values(), ids=list(OVER_THE_SAME))
@pytest.mark.parametrize("early", [True, False], ids=["made before", "made while recording"])
def test_an_array_over_the_address_of_another_is_the_same_memory(again: Any, early: bool) -> None:
    x = kl.array([1.0, 2.0, 3.0], dtype=kl.float64, requires_grad=True)
    y = kl.zeros(3, dtype=kl.float64, requires_grad=True)
    other = again(x) if early else None
    with kl.Tape() as tape:
        kl.copy(y, x * x)
        other = again(x) if other is None else other
        other.fill_(9.0)
        kl.copy(y, y * x)
    assert other.allocation is x.allocation
    tape.backward(grads={y: kl.ones_like(y)})
    # x.grad is the gradient of the value that was read first; the second factor is the host's.
    np.testing.assert_array_equal(x.grad.numpy(), 9.0 * 2.0 * np.array([1.0, 2.0, 3.0]))


def test_what_runs_over_the_end_of_an_array_is_refused() -> None:
    x = kl.zeros(3, dtype=kl.float64)
    with pytest.raises(kl.KernelValueError, match="an array's memory"):
        kl.array(ptr=x[1:].ptr, dtype=kl.float64, shape=64)


def test_in_vmap_an_address_means_the_lane() -> None:
    def doubled(x: Any) -> Any:
        y = kl.clone(x)
        z = kl.array(ptr=y.ptr, dtype=kl.float64, shape=y.shape)
        z *= 2.0
        return y

    lanes = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(kl.func.vmap(doubled)(kl.array(lanes, dtype=kl.float64)).numpy(), 2 * lanes)
