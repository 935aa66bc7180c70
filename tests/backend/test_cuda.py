"""CUDA text on a simulated device: the same numbers as the interpreter, and the same errors.

The simulated device runs threads in an order of its own (`tests.support.shim`), so what depends on their
order does not pass by luck.
"""

import copy
import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernelab.backend.common.backends import Args, Entry, Part, StorageFull, pack, slots_of
from kernelab.backend.cpu import interpreter
from kernelab.backend.cuda.cuda_backend import CudaBackend, CudaEntry
from kernelab.backend.cuda.launch_config import Workspace
from kernelab.backend.cuda.nvidia import Driver
from kernelab.codegen.cpp.cuda_target import Cuda
from kernelab.codegen.cpp.emitter import emit
from kernelab.codegen.cpp.entry import TILE, layout_of
from kernelab.errors import (
    BuildError,
    KernelAssertionError,
    KernelError,
    KernelIndexError,
    KernelMemoryError,
    KernelWarning,
)
from kernelab.lang.build import integer
from kernelab.lang.ir import Function
from kernelab.lang.rounding import widened
from kernelab.lang.types import Array, Scalar, bfloat16, float16, float32, scalar_of, shape_of
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import Vjp, vjp
from kernelab.passes.common.scalarise import scalarise
from tests.codegen import kernels
from tests.codegen.kernels import CASES
from tests.codegen.writer import Case, Writer
from tests.support.hardware import Watched, open_device
from tests.support.lowering import lowered
from tests.support.simulated import SimulatedDriver, launch
from tests.support.zoo import ZOO, Animal

IN_TURN = pytest.mark.filterwarnings("ignore:.*runs on one thread")
PRIMALS = {animal.name: lowered(animal.text, animal.name) for animal in ZOO}
PROGRAMS = {animal.name: vjp(PRIMALS[animal.name], animal.differentiable) for animal in ZOO}
TANGENTS = {animal.name: jvp(PRIMALS[animal.name], animal.differentiable) for animal in ZOO}


def programs() -> list[Function]:
    found = [*PRIMALS.values(), *TANGENTS.values()]
    for name, program in PROGRAMS.items():
        found += [replace(program.primal, name=f"{name}_kept"), program.adjoint]
    return found


@pytest.fixture(scope="module")
def driver() -> Watched:
    return open_device()


@pytest.fixture(scope="module")
def cases(driver: Watched) -> dict[str, Entry]:
    others = [kernels.appending(), kernels.checked(), kernels.backwards()]
    return CudaBackend(driver).build([*(scalarise(case.function) for case in CASES), *others])


@pytest.fixture(scope="module")
def zoo(driver: Watched) -> dict[str, Entry]:
    return CudaBackend(driver).build([scalarise(program) for program in programs()])


def assert_close(found: Any, expected: Any, name: str) -> None:
    found, expected = widened(found), widened(expected)
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5, err_msg=name)


# ------------------------------------------------------------------------------------------ numbers


@IN_TURN
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.function.name)
def test_the_device_and_the_interpreter_agree(case: Case, driver: Watched, cases: dict[str, Entry]) -> None:
    given = case.draw(np.random.default_rng(0))
    expected = copy.deepcopy(given)
    launch(driver, cases[case.function.name], case.function, case.grid, **given)
    interpreter.run(case.function, case.grid, expected)
    for name, value in expected.items():
        assert_close(given[name], value, name)


@IN_TURN
@pytest.mark.parametrize("animal", ZOO, ids=lambda animal: animal.name)
def test_every_program_of_the_zoo_computes_the_same_on_the_device(
    animal: Animal, driver: Watched, zoo: dict[str, Entry]
) -> None:
    drawn = animal.draw(np.random.default_rng(2))
    primal, tangent, program = (table[animal.name] for table in (PRIMALS, TANGENTS, PROGRAMS))
    found, expected = copy.deepcopy(drawn), copy.deepcopy(drawn)
    launch(driver, zoo[animal.name], primal, animal.grid, **found)
    interpreter.run(primal, animal.grid, expected)
    assert_all_close(found, expected, animal.name)
    found, expected = (derived(tangent, drawn) for _ in range(2))
    launch(driver, zoo[tangent.name], tangent, animal.grid, **found)
    interpreter.run(tangent, animal.grid, expected)
    assert_all_close(found, expected, tangent.name)
    wanted = swept(
        program, interpreter.entry(program.primal), interpreter.entry(program.adjoint), animal, None
    )
    got = swept(program, zoo[f"{animal.name}_kept"], zoo[program.adjoint.name], animal, driver)
    assert_all_close(got, wanted, program.adjoint.name)


def assert_all_close(found: Mapping[str, Any], expected: Mapping[str, Any], program: str) -> None:
    for name, value in expected.items():
        assert_close(found[name], value, f"{program}: {name}")


def derived(function: Function, drawn: Mapping[str, Any], seed: int = 5) -> dict[str, Any]:
    """The arguments of a primal, and random ones for what a derived program takes besides."""
    rng, given = np.random.default_rng(seed), copy.deepcopy(dict(drawn))
    for param in function.params[len(given) :]:
        primal = np.asarray(given.get(param.hint.rpartition("_")[0], 0.0))
        is_array = isinstance(param.type, Array)
        inner = shape_of(param.type.elem if isinstance(param.type, Array) else param.type)
        # Beside a value stands its tangent, a value too, or its adjoint, an array of one.
        shape = primal.shape if primal.ndim > len(inner) else (*(1,) * is_array, *inner)
        given[param.hint] = rng.uniform(-1, 1, shape).astype(np.float32)[()]
    return given


def swept(
    program: Vjp, primal: Entry, adjoint: Entry, animal: Animal, driver: Driver | None
) -> dict[str, Any]:
    """The arguments after the primal and its adjoint, which reads what the primal has kept."""
    given, threads = animal.draw(np.random.default_rng(2)), int(np.prod(animal.grid))
    tables = {r.array.hint: (np.zeros(3, np.int64), np.zeros(threads, np.int64)) for r in program.residuals}
    _run(primal, program.primal, animal.grid, given | tables, driver)
    kept: dict[str, Any] = {}
    for residual in program.residuals:
        (address, length, _), starts = tables[residual.array.hint]
        elem = residual.array.type.elem.dtype
        values = np.zeros(int(length), elem)
        if driver is None:
            ctypes.memmove(values.ctypes.data, int(address), values.nbytes)
            ctypes.CDLL(None).free(ctypes.c_void_p(int(address)))
        else:
            driver.download(values.ctypes.data, int(address), values.nbytes)
            driver.free(int(address))
        kept |= {residual.array.hint: values, residual.starts.hint: starts}
    bars = derived(replace(program.adjoint, params=_bars(program, given)), given)
    _run(adjoint, program.adjoint, animal.grid, bars | kept, driver)
    return bars


def _bars(program: Vjp, given: Mapping[str, Any]) -> Any:
    kept = {r.array.hint for r in program.residuals} | {r.starts.hint for r in program.residuals}
    return tuple(param for param in program.adjoint.params if param.hint not in kept)


def _run(
    entry: Entry, function: Function, grid: Any, arguments: dict[str, Any], driver: Driver | None
) -> None:
    if driver is None:
        entry(pack(layout_of(function), grid, arguments))
    else:
        launch(driver, entry, function, grid, **arguments)


def total(scalar: Scalar) -> Function:
    """``y[0] += x[i]`` in every thread, and ``z[i / 2] += x[i]``."""
    w = Writer(f"total_{scalar}", x=Array(scalar, 1), y=Array(scalar, 1), z=Array(scalar, 1))
    (i,) = w.tid("i")
    value = w.load(w["x"], [i])
    w.atomic_add(w["y"], [integer(0)], value)
    w.atomic_add(w["z"], [w.apply("floordiv", i, integer(2))], value)
    return w.function()


@pytest.mark.filterwarnings("ignore:.*stop growing")
def test_sums_of_many_threads_do_not_stop_where_a_narrow_float_would(driver: Watched) -> None:
    n, functions = 5000, [total(scalar) for scalar in (float32, float16, bfloat16)]
    built = CudaBackend(driver).build([scalarise(function) for function in functions])
    for function in functions:
        assert isinstance(function.params[0].type, Array)
        dtype = scalar_of(function.params[0].type.elem).dtype
        start = 2.0**24 if dtype == np.float32 else 256.0
        x, y, z = np.ones(n, dtype), np.full(1, start, dtype), np.zeros(n // 2, dtype)
        launch(driver, built[function.name], function, (n,), x=x, y=y, z=z)
        assert float(y[0]) == float(np.float64(start + n).astype(dtype))
        assert np.all(z.astype(np.float32) == 2.0)


def test_scattered_sums_of_halves_are_warned_of(driver: Watched) -> None:
    function = replace(total(float16), name="scattered")
    entry = CudaBackend(driver).build([scalarise(function)])["scattered"]
    x, y, z = np.ones(4, np.float16), np.zeros(1, np.float16), np.zeros(2, np.float16)
    with pytest.warns(KernelWarning, match="`scattered` adds to many elements of `z`, which stop growing"):
        launch(driver, entry, function, (4,), x=x, y=y, z=z)
    assert z.tolist() == [2, 2]


@pytest.mark.parametrize("scalar", [float16, bfloat16])
def test_extrema_of_halves_leave_the_other_half_of_a_word_alone(driver: Watched, scalar: Scalar) -> None:
    w = Writer(f"extrema_{scalar}", x=Array(scalar, 1), y=Array(scalar, 1), z=Array(scalar, 1))
    (i,) = w.tid("i")
    value = w.load(w["x"], [i])
    w.atomic("min", w["y"], [integer(0)], value)
    w.atomic("max", w["z"], [integer(1)], value)
    function = w.function()
    entry = CudaBackend(driver).build([scalarise(function)])[function.name]
    x, y, z = np.array([2, -3, 5, 1], scalar.dtype), np.ones(2, scalar.dtype), np.ones(2, scalar.dtype)
    launch(driver, entry, function, (4,), x=x, y=y, z=z)
    assert (y.astype(float).tolist(), z.astype(float).tolist()) == ([-3, 1], [1, 5])


def test_each_block_adds_to_a_sum_once(driver: Watched) -> None:
    unit = emit([scalarise(total(float32))], Cuda())
    assert "gather32(y_place, y_total);" in unit.text
    assert unit.text.count("atomicAdd(") == 2  # that of z, and the one by which a total is settled


# ------------------------------------------------------------------------------------------ order


def writer_of(name: str, write: Any) -> Function:
    w = Writer(name, x=Array(float32, 1), y=Array(float32, 1))
    (i,) = w.tid("i")
    write(w, i)
    return w.function()


def shifted(w: Writer, i: Any, by: int) -> Any:
    return w.apply("add", i, integer(by))


def _meeting(w: Writer, i: Any) -> None:
    w.store(w["y"], [integer(0)], w.load(w["x"], [i]))


def _running(w: Writer, i: Any) -> None:
    w.store(w["y"], [shifted(w, i, 1)], w.load(w["y"], [i]))


def _apart(w: Writer, i: Any) -> None:
    w.store(w["y"], [shifted(w, i, 1)], w.load(w["x"], [i]))


def _from_below(w: Writer, i: Any) -> None:
    w.store(w["y"], [shifted(w, i, -1)], w.load(w["x"], [i]))


def _swapped(w: Writer, i: Any) -> None:
    w.store(w["x"], [i], w.atomic("exch", w["y"], [integer(0)], w.load(w["x"], [i])))


ORDERS = {
    "meeting": (_meeting, "y"),
    "running": (_running, "y"),
    "apart": (_apart, ""),
    "from_below": (_from_below, "y"),
    "swapped": (_swapped, "y"),
}


@pytest.fixture(scope="module")
def orders(driver: Watched) -> dict[str, CudaEntry]:
    functions = [scalarise(writer_of(name, write)) for name, (write, _) in ORDERS.items()]
    return CudaBackend(driver).build(functions)  # type: ignore[return-value]


@pytest.mark.parametrize("name", ORDERS)
def test_what_depends_on_the_order_of_threads_runs_in_order_and_says_so(
    name: str, driver: Watched, orders: dict[str, CudaEntry]
) -> None:
    write, array = ORDERS[name]
    function, n = writer_of(name, write), 300
    x = np.arange(n, dtype=np.float32)
    found = {"x": x.copy(), "y": np.full(n + 1, -1, np.float32)}
    expected = copy.deepcopy(found)
    interpreter.run(function, (n,), expected)
    driver.launches.clear()
    if array:
        with pytest.warns(KernelWarning, match=f"`{name}` runs on one thread of cuda:0: .* `{array}`"):
            launch(driver, orders[name], function, (n,), **found)
    else:
        launch(driver, orders[name], function, (n,), **found)
    assert driver.launches == [(1, 1) if array else (2, 256)]
    assert_all_close(found, expected, name)


@IN_TURN
def test_arguments_that_share_memory_run_in_order(driver: Watched, cases: dict[str, Entry]) -> None:
    n = 300
    memory = np.arange(n + 1, dtype=np.float32)
    address = driver.allocate(memory.nbytes)
    driver.upload(address, memory.ctypes.data, memory.nbytes)
    two = 2.0
    slots = slots_of(pack(cases["saxpy"].info.layout, (n,), {"x": memory[:n], "y": memory[1:], "a": two}))
    for param in cases["saxpy"].info.layout.params[:2]:
        slots[param.slot] += address - memory.ctypes.data
    cases["saxpy"]((ctypes.c_longlong * len(slots))(*slots))
    assert driver.launches[-1] == (1, 1)
    driver.download(memory.ctypes.data, address, memory.nbytes)
    expected = np.arange(n + 1, dtype=np.float32)
    interpreter.run(kernels.saxpy().function, (n,), {"x": expected[:n], "y": expected[1:], "a": two})
    np.testing.assert_array_equal(memory, expected)
    driver.free(address)


PAIRS = """
def pairs(x: wp.array[float], n: int, y: wp.array[float]):
    i = wp.tid()
    s = float(0.0)
    for k in range(n):
        s += wp.sin(x[k] - x[i])
    y[i] = s
"""


@pytest.mark.parametrize("threads", [1, 31, 300])
def test_a_warp_that_adds_to_one_element_adds_once(driver: Watched, threads: int) -> None:
    program = vjp(lowered(PAIRS, "pairs"), ["x", "y"]).adjoint
    assert "warp_add32((float*)x_bar_at" in emit([scalarise(program)], Cuda()).text
    entry = CudaBackend(driver).build([scalarise(program)])["pairs_adjoint"]
    rng = np.random.default_rng(threads)
    given: dict[str, Any] = {
        name: rng.random(threads, np.float32) for name in ("x", "y", "x_bar", "y_bar")
    } | {"n": threads}
    expected = copy.deepcopy(given)
    launch(driver, entry, program, (threads,), **given)
    interpreter.run(program, (threads,), expected)
    np.testing.assert_allclose(given["x_bar"], expected["x_bar"], rtol=1e-4, atol=1e-4)


MOVED = """
def moved(x: wp.array[float], y: wp.array[float]):
    i = wp.tid()
    y[i] = x[i]
    x[i] = 0.0
"""
CLEARED = """
def cleared(x: wp.array[float], j: wp.array[int], y: wp.array[float]):
    i = wp.tid()
    y[i] = x[i]
    v = x[i]
    x[j[i]] = 5.0
    y[i] += v
    x[i] = 0.0
"""


@IN_TURN
def test_a_store_of_zero_that_waits_for_a_load_still_clears_every_value(driver: Watched) -> None:
    """The condition compares bits: -0.0 and nan are cleared too, and so is what was stored in between."""
    moved = lowered(MOVED, "moved")
    assert "!= 0) *(float*)x_at = 0.0f;" in emit([scalarise(moved)], Cuda()).text
    between = lowered(CLEARED, "cleared")
    entries = CudaBackend(driver).build([scalarise(moved), scalarise(between)])
    x, y = np.array([-0.0, 3.0, np.nan, 0.0], np.float32), np.zeros(4, np.float32)
    launch(driver, entries["moved"], moved, (4,), x=x, y=y)
    assert x.tobytes() == bytes(16) and np.signbit(y[0]) and np.isnan(y[2])
    j = np.arange(4, dtype=np.int32)
    launch(driver, entries["cleared"], between, (4,), x=x, j=j, y=y)
    assert x.tobytes() == bytes(16)


# ------------------------------------------------------------------------------------------ room


LOOP = """
def walk(x: wp.array[float], n: wp.array[int], y: wp.array[float]):
    i = wp.tid()
    v = x[i]
    for k in range(n[i]):
        v = wp.sin(v) + 0.1
    y[i] = v
"""


def test_a_loop_that_keeps_much_runs_again_with_more_room_where_arrays_say_how_much(driver: Watched) -> None:
    program = vjp(lowered(LOOP, "walk"), ["x", "y"]).adjoint
    entry = CudaBackend(driver).build([scalarise(program)])["walk_adjoint"]
    n = np.array([3, 700, 0], np.int32)
    given = {name: np.ones(3, np.float32) for name in ("x", "y", "x_bar", "y_bar")} | {"n": n}
    expected = copy.deepcopy(given)
    for launches in (4, 1):
        given["x_bar"][:] = given["y_bar"][:] = 1
        driver.launches.clear()
        launch(driver, entry, program, (3,), **given)
        assert len(driver.launches) == launches
    interpreter.run(program, (3,), expected)
    assert_all_close(given, expected, "walk")


def test_what_a_device_has_no_room_for_is_an_error_and_changes_nothing() -> None:
    small = SimulatedDriver(1 << 20)
    case = kernels.saving()
    entry = CudaBackend(small).build([scalarise(case.function)])["saving"]
    given = {"x": np.ones(3), "y": np.full(3, 7.0), "n": 2**20}
    with pytest.raises(
        KernelError, match="`saving` ran out of memory for the values that its gradient needs"
    ):
        launch(small, entry, case.function, (3,), **given)
    np.testing.assert_array_equal(given["y"], 7.0)
    assert not small.taken


def test_a_thread_that_may_keep_less_says_so_before_anything_has_changed(
    driver: Watched, cases: dict[str, Entry]
) -> None:
    case = kernels.saving()
    y = np.full(3, 7.0)
    with pytest.raises(StorageFull):
        launch(driver, _Bounded(cases["saving"], 4096), case.function, (3,), x=np.ones(3), y=y, n=100_000)
    np.testing.assert_array_equal(y, 7.0)


class _Bounded:
    """An entry whose threads may save so many bytes, and append so many to residuals, all together."""

    def __init__(self, entry: Entry, limit: int = 0, room: int = 0) -> None:
        self.info, self._entry, self._limit, self._room = entry.info, entry, limit, room

    def __call__(self, args: Args, /, limit: int = 0, room: int = 0, left: Sequence[Part] = ()) -> None:
        self._entry(args, self._limit, self._room)


@IN_TURN
def test_residuals_take_all_that_they_may_before_a_launch_ends(
    driver: Watched, cases: dict[str, Entry]
) -> None:
    """A thread appends 79 values at most: doubled from 1 on there would have to be memory for 128."""
    function, x = kernels.appending(), np.arange(80, dtype=np.float32)
    value = Workspace.of(function).kept(layout_of(function), 80)

    def append(room: int) -> list[int]:
        kept, flags = np.zeros(3, np.int64), np.zeros(3, np.int64)
        residuals = {
            name: (handle, np.zeros(80, np.int64)) for name, handle in (("kept", kept), ("flags", flags))
        }
        launch(driver, _Bounded(cases["appending"], room=room), function, (80,), x=x, **residuals)
        return [int(kept[0]), int(flags[0])]

    for _ in range(2):
        with pytest.raises(KernelMemoryError, match="would take more than"):
            append(70 * value)
        for address in append(100 * value):
            driver.free(address)


@IN_TURN
def test_the_threads_of_a_warp_append_side_by_side(driver: Watched, cases: dict[str, Entry]) -> None:
    x, function = np.arange(80, dtype=np.float32), kernels.appending()
    kept, starts = np.zeros(3, np.int64), np.full(80, -1, np.int64)
    flags, flag_starts = np.zeros(3, np.int64), np.full(80, -1, np.int64)
    arguments = {"x": x, "kept": (kept, starts), "flags": (flags, flag_starts)}
    launch(driver, cases["appending"], function, (80,), **arguments)
    address, length, _ = kept.tolist()
    values = np.zeros(length, np.float32)
    driver.download(values.ctypes.data, address, values.nbytes)
    np.testing.assert_array_equal(starts[:TILE], np.arange(TILE))
    for i, start in enumerate(starts):
        np.testing.assert_array_equal(values[start : start + TILE * i : TILE], x[:i])
    for handle in (kept, flags):
        driver.free(int(handle[0]))


# ------------------------------------------------------------------------------------------ errors


def test_an_index_outside_an_array_is_an_error_with_its_place(
    driver: Watched, cases: dict[str, Entry]
) -> None:
    x, y = np.ones(10, np.float32), np.zeros(11, np.float32)
    message = "index 10 is out of bounds for axis 0 of array `x` with size 10; in thread 10"
    with pytest.raises(KernelIndexError, match=message):
        launch(driver, cases["saxpy"], kernels.saxpy().function, (11,), x=x, y=y, a=2.0)
    launch(driver, cases["saxpy"], kernels.saxpy().function, (10,), x=x, y=y, a=2.0)
    np.testing.assert_array_equal(y[:10], 4.0)


@IN_TURN
def test_an_assertion_ends_the_launch_with_its_message(driver: Watched, cases: dict[str, Entry]) -> None:
    x = np.array([1, 2, 9, 1], np.float32)
    with pytest.raises(KernelAssertionError, match=r"assertion failed: x is too large; in thread \(2, 0\)"):
        launch(driver, cases["checked"], kernels.checked(), (4, 1), x=x, limit=5.0)


def test_more_arguments_than_a_device_takes_are_refused(driver: Watched) -> None:
    w = Writer("wide", **{f"x{k}": Array(float32, 4) for k in range(60)})
    (i,) = w.tid("i")
    w.store(w["x0"], [i, i, i, i], w.load(w["x59"], [i, i, i, i]))
    with pytest.raises(BuildError, match="`wide` needs 4,352 bytes of arguments"):
        CudaBackend(driver).build([scalarise(w.function())])


def test_memory_of_the_device_is_given_back_and_can_run_out() -> None:
    small = SimulatedDriver(1 << 16)
    held = [small.allocate(1 << 14) for _ in range(4)]
    with pytest.raises(KernelMemoryError, match="there is no memory left on the device"):
        small.allocate(1)
    for address in held:
        small.free(address)
    assert small.allocate(1 << 16) == held[0]
