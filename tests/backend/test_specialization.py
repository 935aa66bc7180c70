"""The preconditions of the text for a device, and that launches which do not meet them run all the same."""

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.backend.common.backends import pack, slots_of
from kernelab.backend.cpu import interpreter
from kernelab.backend.cuda.cuda_backend import CudaBackend, CudaEntry
from kernelab.backend.cuda.launch_config import MOST, is_specializable
from kernelab.codegen.cpp.cuda_target import Cuda
from kernelab.codegen.cpp.emitter import emit
from kernelab.codegen.cpp.entry import layout_of
from kernelab.lang.build import integer
from kernelab.lang.ir import Function, walk
from kernelab.lang.types import Array, float32
from kernelab.passes.access.independence import own_atomics
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.scalarise import scalarise
from tests.codegen import kernels
from tests.codegen.writer import Writer
from tests.support.hardware import Watched, open_device
from tests.support.lowering import lowered
from tests.support.simulated import launch

TEXTS = {
    "own": "def own(x: array[float], y: array[float]):\n    i = tid()\n    y[i] += x[i]\n",
    "both": """def both(x: array[float], y: array[float], z: array[float]):
    i = tid()
    atomic_add(y, i, x[i])
    atomic_add(z, i, 2.0 * x[i])
""",
    "mixed": """def mixed(x: array[float], of: array[int], y: array[float]):
    i = tid()
    atomic_add(y, of[i], x[i])
    atomic_min(y, of[i], 3.0)
""",
    "plane": """def plane(x: array2d[float], y: array2d[float]):
    i, j = tid()
    y[j, i] = x[i, j] + float(i) * 100.0 + float(j)
""",
    "block": """def block(y: array3d[float]):
    i, j, k = tid()
    y[i, j, k] = float(i) * 10000.0 + float(j) * 100.0 + float(k)
""",
    "backwards": """def backwards(x: array[float], n: int, y: array[float]):
    i = tid()
    y[i] = x[i - n] + x[-1]
""",
}
FUNCTIONS = {name: scalarise(lowered(text, name)) for name, text in TEXTS.items()}


@pytest.fixture(scope="module")
def driver() -> Watched:
    return open_device()


@pytest.fixture(scope="module")
def entries(driver: Watched) -> dict[str, CudaEntry]:
    return CudaBackend(driver).build(list(FUNCTIONS.values()))  # type: ignore[return-value]


class Memory:
    """One stretch of memory of the device that several arguments share."""

    def __init__(self, driver: Watched, values: Any) -> None:
        self.values, self._driver = values, driver
        self.address = driver.allocate(values.nbytes)
        driver.upload(self.address, values.ctypes.data, values.nbytes)

    def run(self, entry: CudaEntry, function: Function, grid: tuple[int, ...], **views: Any) -> None:
        """Launch over views of the values, and read what has become of them."""
        layout = layout_of(function)
        slots = slots_of(pack(layout, grid, views))
        for param in layout.params:
            if isinstance(param.type, Array):
                slots[param.slot] += self.address - self.values.ctypes.data
        entry((ctypes.c_longlong * len(slots))(*slots))
        self._driver.download(self.values.ctypes.data, self.address, self.values.nbytes)


@pytest.fixture
def numbers(driver: Watched) -> Iterator[Memory]:
    memory = Memory(driver, np.arange(1200, dtype=np.float32))
    yield memory
    driver.free(memory.address)


def text(name: str, **changes: Any) -> str:
    return emit([replace(FUNCTIONS[name], **changes)], Cuda()).text


def test_sums_into_elements_of_a_threads_own_are_plain() -> None:
    assert "atomicAdd" not in text("own")
    assert "atomicAdd" in text("own", aliased=True)
    adjoint = scalarise(vjp(kernels.saxpy().function, ["x", "y"]).adjoint)
    assert len(own_atomics(adjoint)) == len([s for s in walk(adjoint.body) if type(s).__name__ == "Atomic"])


def test_sums_into_elements_that_threads_pick_are_atomic() -> None:
    assert not own_atomics(FUNCTIONS["mixed"])
    assert "atomicAdd" in text("mixed")


def test_a_thread_finds_its_indices_in_32_bits_and_reads_constants_through_the_cache() -> None:
    usual, careful = text("plane"), text("plane", aliased=True)
    assert "unsigned rest = thread;" in usual
    assert "__ldg((const float*)x_at)" in usual
    assert "i64 rest = thread;" in careful
    assert "__ldg" not in careful


def test_arrays_that_are_only_added_to_may_share_memory_and_threads_still_run_at_once(
    driver: Watched, entries: dict[str, CudaEntry], numbers: Memory
) -> None:
    n, expected = 300, numbers.values.copy()
    driver.launches.clear()
    v = numbers.values
    numbers.run(entries["both"], FUNCTIONS["both"], (n,), x=v[:n], y=v[600 : 600 + n], z=v[601 : 601 + n])
    assert driver.launches == [(2, 256)]
    views = {"x": expected[:n], "y": expected[600 : 600 + n], "z": expected[601 : 601 + n]}
    interpreter.run(FUNCTIONS["both"], (n,), views)
    np.testing.assert_array_equal(numbers.values, expected)


def test_every_thread_counts_where_elements_of_a_sum_share_memory(
    entries: dict[str, CudaEntry], numbers: Memory
) -> None:
    n, before = 300, float(numbers.values[1000])
    one = np.lib.stride_tricks.as_strided(numbers.values[1000:], (n,), (0,))
    numbers.run(entries["own"], FUNCTIONS["own"], (n,), x=numbers.values[:n], y=one)
    assert numbers.values[1000] == before + n * (n - 1) / 2


@pytest.mark.filterwarnings("ignore:.*runs on one thread")
def test_additions_and_minima_of_one_element_keep_their_order(
    driver: Watched, entries: dict[str, CudaEntry], numbers: Memory
) -> None:
    assert "`y`, where their order matters" in entries["mixed"].turns


@pytest.mark.parametrize(("name", "grid"), [("plane", (7, 45)), ("block", (3, 5, 20)), ("block", (3, 1, 1))])
def test_threads_find_their_indices(
    name: str, grid: tuple[int, ...], driver: Watched, entries: dict[str, CudaEntry]
) -> None:
    shapes = {"plane": {"x": grid, "y": grid[::-1]}, "block": {"y": grid}}[name]
    memory = Memory(driver, np.arange(700, dtype=np.float32))
    views = {"x": memory.values[:315], "y": memory.values[350 : 350 + int(np.prod(grid))]}
    given = {key: views[key].reshape(shape) for key, shape in shapes.items()}
    expected = {key: value.copy() for key, value in given.items()}
    memory.run(entries[name], FUNCTIONS[name], grid, **given)
    interpreter.run(FUNCTIONS[name], grid, expected)
    for key, value in expected.items():
        np.testing.assert_array_equal(given[key], value)
    driver.free(memory.address)


def test_indices_below_zero_count_from_the_end_and_arrays_may_run_backwards(
    entries: dict[str, CudaEntry], numbers: Memory
) -> None:
    v, expected = numbers.values, numbers.values.copy()
    numbers.run(entries["backwards"], FUNCTIONS["backwards"], (9,), x=v[:10], n=10, y=v[100:109])
    np.testing.assert_array_equal(v[100:109], expected[:9] + 9)
    numbers.run(entries["backwards"], FUNCTIONS["backwards"], (9,), x=v[9::-1], n=10, y=v[200:209])
    np.testing.assert_array_equal(v[200:209], expected[9:0:-1])


def test_what_does_not_fit_in_32_bits_is_not_specialized() -> None:
    w = Writer("copying", x=Array(float32, 1), y=Array(float32, 1))
    (i,) = w.tid("i")
    w.store(w["y"], [i], w.load(w["x"], [integer(0)]))
    layout = layout_of(scalarise(w.function()))

    def meets(threads: int = 4, extent: int = 4, stride: int = 4) -> bool:
        slots = [threads, 1, 1, 1, 4096, extent, stride, 2**50, 4, 4]
        return is_specializable(layout, frozenset({"y"}), slots)

    assert meets()
    assert meets(threads=MOST)
    assert not meets(threads=MOST + 1)
    assert not meets(extent=2**31)
    assert not meets(stride=2**31)
    assert not meets(stride=-4)


# ------------------------------------------------------------------------------------------ sums


SUMS = {
    "loss": """def loss(x: array[float16], of: array[int], y: array[float16], z: array[float]):
    i = tid()
    atomic_add(y, 0, x[i])
    atomic_add(z, of[i], 1.0)
""",
    "rows": """def rows(x: array2d[float], y: array[float]):
    i = tid()
    for k in range(x.shape[1]):
        y[i] += x[i, k]
""",
    "one": "def one(x: array[float], y: array[float]):\n    i = tid()\n    atomic_add(y, 0, x[i])\n",
}


@pytest.fixture(scope="module")
def sums(driver: Watched) -> dict[str, tuple[CudaEntry, Function]]:
    functions = {name: scalarise(lowered(text, name)) for name, text in SUMS.items()}
    built = CudaBackend(driver).build(list(functions.values()))
    return {name: (built[name], functions[name]) for name in SUMS}  # type: ignore[return-value, misc]


def test_a_sum_of_halves_in_one_element_is_exact_whatever_the_number_of_threads(
    driver: Watched, sums: dict[str, tuple[CudaEntry, Function]]
) -> None:
    n, (entry, function) = 1500, sums["loss"]
    x, of = np.full(n, 0.25, np.float16), np.arange(n, dtype=np.int32) % 7
    y, z = np.full(1, 512, np.float16), np.zeros(7, np.float32)
    driver.launches.clear()
    launch(driver, entry, function, (n,), x=x, of=of, y=y, z=z)
    assert driver.launches == [(1, 256)]
    assert float(y[0]) == float(np.float16(512 + n / 4))
    np.testing.assert_array_equal(z, np.bincount(of))


def test_a_total_of_a_threads_own_elements_is_not_gathered(
    driver: Watched, sums: dict[str, tuple[CudaEntry, Function]]
) -> None:
    entry, function = sums["rows"]
    made = emit([function], Cuda()).text
    assert "settle32(y_place, y_total);" in made
    assert "gather32" not in made
    x, y = np.ones((300, 5), np.float32), np.zeros(300, np.float32)
    launch(driver, entry, function, (300,), x=x, y=y)
    np.testing.assert_array_equal(y, 5.0)


@pytest.mark.filterwarnings("ignore:.*runs on one thread")
def test_with_deterministic_set_sums_keep_one_order(
    driver: Watched, sums: dict[str, tuple[CudaEntry, Function]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kl.config, "deterministic", True)
    n, driver_launches = 700, driver.launches
    x, y = np.ones(n, np.float32), np.zeros(1, np.float32)
    driver_launches.clear()
    launch(driver, *sums["one"], (n,), x=x, y=y)
    assert driver_launches == [(1, 256)]
    driver_launches.clear()
    of, halves, z = np.zeros(n, np.int32), np.ones(n, np.float16), np.zeros(1, np.float32)
    launch(driver, *sums["loss"], (n,), x=halves, of=of, y=np.zeros(1, np.float16), z=z)
    assert driver_launches == [(1, 1)]
    assert (y[0], z[0]) == (n, n)
