"""Copies, gradients of copies and fills of a device's arrays: done there, and the same as on the CPU."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from tests.support.devices import opened
from tests.support.hardware import Watched, open_device


@pytest.fixture(autouse=True)
def driver() -> Iterator[Watched]:
    made = open_device(1 << 20)
    with opened(made):
        yield made


def cube(device: str, dtype: Any = float) -> Any:
    values = np.arange(4 * 5 * 6 * (3 if dtype is kl.vec3 else 1)).reshape(4, 5, 6, -1)
    values = values if dtype is kl.vec3 else values[..., 0]
    return kl.array(values.astype(np.float64), dtype=dtype, device=device)


def brought_there(driver: Watched, *arrays: Any) -> None:
    """Let what the host has written be on the device, and forget how it came there."""
    for elements in arrays:
        elements.allocation.flush()
    kl.synchronize()
    driver.copies.clear()


VIEWS: dict[str, Callable[[Any], Any]] = {
    "a transposed": lambda a: a.transpose((2, 0, 1)),
    "every second": lambda a: a[::2, 1::2, ::3],
    "a row": lambda a: a[1, 2],
    "a column": lambda a: a[:, 3, 2],
    "backwards": lambda a: a[::-1, :, ::-1],
    "planes": lambda a: a[1:3],
}


@pytest.mark.parametrize("dtype", [float, kl.float64, kl.int8, kl.float16, kl.vec3])
@pytest.mark.parametrize("view", VIEWS)
def test_elements_that_lie_apart_are_copied_without_the_host(view: str, dtype: Any, driver: Watched) -> None:
    here, there = cube("cpu", dtype), cube("cuda", dtype)
    part = VIEWS[view](there)
    flat = kl.zeros(part.shape, dtype=dtype, device="cuda")
    brought_there(driver, there)
    kl.copy(flat, part)
    back = kl.zeros(there.shape, dtype=dtype, device="cuda")
    kl.copy(VIEWS[view](back), flat)
    assert not {"up", "down"} & set(driver.copies)
    np.testing.assert_array_equal(flat.numpy(), VIEWS[view](here).numpy())
    expected = kl.zeros(there.shape, dtype=dtype, device="cpu")
    kl.copy(VIEWS[view](expected), VIEWS[view](here))
    np.testing.assert_array_equal(back.numpy(), expected.numpy())


def test_elements_that_overlap_are_copied_as_they_were(driver: Watched) -> None:
    x = kl.array(np.arange(10), dtype=float, device="cuda")
    brought_there(driver, x)
    kl.copy(x[1:], x[:-1])
    assert not {"up", "down"} & set(driver.copies)
    assert x.list() == [0, *range(9)]


def test_gradients_of_copies_stay_on_the_device(driver: Watched) -> None:
    def run(device: str) -> Any:
        x = kl.array(np.arange(12).reshape(3, 4), dtype=float, device=device, requires_grad=True)
        y = kl.zeros((4, 3), device=device, requires_grad=True)
        seed = kl.array(np.linspace(0, 1, 12).reshape(4, 3), dtype=float, device=device)
        with kl.Tape() as tape:
            kl.copy(y, x.transpose())
            kl.copy(y[0], x[:, 2])
            z = kl.clone(y)
            y.fill_(7.0)
        if device == "cuda":
            brought_there(driver, seed)
        tape.backward(grads={z: seed})
        assert device == "cpu" or "down" not in driver.copies  # the seed goes there
        return x.grad

    np.testing.assert_array_equal(run("cuda").numpy(), run("cpu").numpy())


@pytest.mark.parametrize(
    "dtype", [float, kl.float64, kl.int8, kl.int64, kl.float16, kl.bfloat16, bool, kl.vec3]
)
@pytest.mark.parametrize("value", [0, 1, -1])
def test_fills_do_not_pass_the_host(value: int, dtype: Any, driver: Watched) -> None:
    here, there = kl.ones(9, dtype=dtype, device="cpu"), kl.ones(9, dtype=dtype, device="cuda")
    brought_there(driver, there)
    for x in (here, there):
        x[2:7].fill_(value)
    there.allocation.flush()
    assert not driver.copies
    np.testing.assert_array_equal(there.numpy(), here.numpy())


def test_a_fill_of_all_that_the_host_has_written_before_it_takes_nothing_along(
    driver: Watched,
) -> None:
    x = kl.zeros(1000, device="cuda")
    x[3] = 5.0
    driver.copies.clear()
    x.fill_(2.5)
    x.zero_()
    x.fill_(1.5)
    assert x.list() == [1.5] * 1000 and not driver.copies  # all know what it holds
    kl.launch(kl.compile("def half(x: array[float]):\n    x[tid()] *= 0.5")["half"], 1000, [x])
    assert x.list() == [0.75] * 1000 and driver.copies == ["down"]
