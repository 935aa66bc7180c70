"""The interpreter: statements, arguments and memory as the IR means them."""

import signal
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernelab.backend.common.backends import get, pack
from kernelab.backend.cpu import interpreter
from kernelab.backend.cpu.chunk import Chunk
from kernelab.backend.cpu.lanes import Frame
from kernelab.codegen.cpp.entry import layout_of
from kernelab.errors import KernelInterrupt
from kernelab.lang.build import FALSE, TRUE, Builder, constant, integer
from kernelab.lang.ir import Atomic, Block, For, Function, If, Load, Restore, Save, Stack, Store, Var, While
from kernelab.lang.ops import SHAPE
from kernelab.lang.types import (
    Mat,
    Vec,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
    uint64,
)
from kernelab.lang.verify import verify
from kernelab.passes.access.independence import independent
from tests.codegen import kernels
from tests.support.evaluate import evaluate
from tests.support.lowering import lowered
from tests.support.writing import Writing

# ------------------------------------------------------------------------------------------ arguments


def test_one_thread_index_is_the_linear_index_whatever_the_rank_of_the_grid() -> None:
    w = Writing()
    out = w.array("out", int32)
    w.builder.store(out, [w.i], w.i)
    result = np.zeros(6, np.int32)
    interpreter.run(w.done(), (2, 3), {"out": result})
    assert result.tolist() == [0, 1, 2, 3, 4, 5]


def test_several_thread_indices_are_the_first_coordinates_and_linear_the_position() -> None:
    w = Writing(threads=2)
    linear = Var(int64, "linear")
    out = w.array("out", int32, 1)
    i, j = w.threads
    w.builder.store(out, [linear], w.apply("add", w.apply("mul", i, integer(10)), j))
    result = np.zeros(12, np.int32)
    interpreter.run(w.done(linear), (2, 3, 2), {"out": result})
    assert result.tolist() == [0, 0, 1, 1, 2, 2, 10, 10, 11, 11, 12, 12]


def test_a_thread_index_beyond_the_rank_of_the_grid_is_zero() -> None:
    w = Writing(threads=3)
    out = w.array("out", int32)
    w.builder.store(out, [w.i], w.threads[2])
    result = np.full(2, 7, np.int32)
    interpreter.run(w.done(), (2,), {"out": result})
    assert result.tolist() == [0, 0]


def test_arrays_may_have_any_strides() -> None:
    w = Writing(threads=2)
    x, out = w.array("x", ndim=2), w.array("out", ndim=2)
    i, j = w.threads
    w.builder.store(out, [i, j], w.builder.load(x, [j, i]))
    source = np.arange(24, dtype=np.float32).reshape(4, 6)
    result = np.zeros((2, 3), np.float32)
    interpreter.run(w.done(), (2, 3), {"x": source[2::-1, ::3], "out": result})
    np.testing.assert_array_equal(result, source[2::-1, ::3].T)


def test_a_broadcast_array_can_be_read() -> None:
    w = Writing()
    x, out = w.array("x"), w.array("out")
    w.builder.store(out, [w.i], w.builder.load(x, [w.i]))
    result = np.zeros(3, np.float32)
    interpreter.run(w.done(), (3,), {"x": np.broadcast_to(np.float32(2.5), 3), "out": result})
    assert result.tolist() == [2.5, 2.5, 2.5]


@pytest.mark.parametrize(
    ("type", "value"),
    [
        (bool_, True),
        (int8, -3),
        (uint64, 2**63 + 1),
        (float16, 0.5),
        (bfloat16, 0.5),
        (float32, -1.25),
        (float64, 1e300),
        (Vec(float32, 3), [1.0, 2.0, 3.0]),
        (Mat(float64, 2, 2), [[1.0, 2.0], [3.0, 4.0]]),
        (Vec(int8, 2), [-1, 2]),
    ],
    ids=str,
)
def test_a_value_of_any_type_arrives_as_it_was_passed(type: Any, value: Any) -> None:
    w = Writing()
    given, out = w.param("given", type), w.array("out", type)
    w.builder.store(out, [w.i], given)
    scalar = getattr(type, "scalar", type)
    result = np.zeros((2, *np.shape(value)), scalar.dtype)
    interpreter.run(w.done(), (2,), {"given": value, "out": result})
    np.testing.assert_array_equal(result, np.array([value, value], scalar.dtype))


def test_shape_gives_the_extents_also_for_an_axis_known_at_run_time() -> None:
    w = Writing()
    x, out = w.array("x", Vec(float32, 3), 2), w.array("out", int32)
    w.builder.store(out, [w.i], w.builder.let(SHAPE, [x, w.i], int32))
    result = np.zeros(2, np.int32)
    interpreter.run(w.done(), (2,), {"x": np.zeros((4, 5, 3), np.float32), "out": result})
    assert result.tolist() == [4, 5]


def test_an_argument_of_another_dtype_is_refused_by_name() -> None:
    w = Writing()
    w.array("x")
    with pytest.raises(TypeError, match=r"x is an array\[float32\], not an array of shape .* float64"):
        interpreter.run(w.done(), (1,), {"x": np.zeros(3)})


def test_an_empty_grid_runs_nothing() -> None:
    w = Writing()
    w.builder.store(w.array("out"), [integer(99)], constant(1, float32))
    interpreter.run(w.done(), (0,), {"out": np.zeros(0, np.float32)})


# ------------------------------------------------------------------------------------------ memory


def test_a_negative_index_counts_from_the_end() -> None:
    w = Writing()
    x, out = w.array("x"), w.array("out")
    back = w.apply("sub", integer(-1), w.i)
    w.builder.store(out, [back], w.builder.load(x, [w.i]))
    result = np.zeros(3, np.float32)
    interpreter.run(w.done(), (3,), {"x": np.array([1, 2, 3], np.float32), "out": result})
    assert result.tolist() == [3.0, 2.0, 1.0]


def test_of_several_stores_to_one_element_the_last_thread_wins() -> None:
    w = Writing()
    out = w.array("out", int32)
    w.builder.store(out, [w.apply("mod", w.i, integer(2))], w.i)
    result = np.zeros(2, np.int32)
    interpreter.run(w.done(), (7,), {"out": result})
    assert result.tolist() == [6, 5]


def test_a_thread_sees_what_it_has_stored() -> None:
    function = lowered(
        """
def twice(a: array[float]):
    i = tid()
    a[i] = a[i] + 1.0
    a[i] = a[i] * a[i]
""",
        "twice",
    )
    a = np.array([1, 2, 3], np.float32)
    interpreter.run(function, (3,), {"a": a})
    assert a.tolist() == [4.0, 9.0, 16.0]


@pytest.mark.parametrize("dtype", [float32, int32, float16, bfloat16], ids=str)
def test_an_atomic_gives_each_thread_what_it_found_in_thread_order(dtype: Any) -> None:
    w = Writing()
    total, x, out = w.array("total", dtype), w.array("x", dtype), w.array("out", dtype)
    old = w.builder.atomic_add(total, [w.apply("mod", w.i, integer(2))], w.builder.load(x, [w.i]))
    w.builder.store(out, [w.i], old)
    function, rng = w.done(), np.random.default_rng(0)
    drawn = {"total": np.ones(2), "x": rng.uniform(-9, 9, 40), "out": np.zeros(40)}
    wanted = {name: value.astype(dtype.dtype) for name, value in drawn.items()}
    found = {name: value.copy() for name, value in wanted.items()}
    evaluate(function, (40,), wanted)
    interpreter.run(function, (40,), found)
    np.testing.assert_array_equal(found["out"], wanted["out"])
    np.testing.assert_array_equal(found["total"], wanted["total"])


def test_additions_to_scattered_elements_are_rounded_once() -> None:
    w = Writing()
    total, x = w.array("total"), w.array("x")
    w.builder.atomic_add(total, [w.apply("mod", w.i, integer(2))], w.builder.load(x, [w.i]))
    x_values = np.random.default_rng(1).uniform(-1, 1, 1000).astype(np.float32)
    result = np.zeros(2, np.float32)
    interpreter.run(w.done(), (1000,), {"total": result, "x": x_values})
    np.testing.assert_array_equal(
        result, [np.sum(x_values[k::2], dtype=np.float64).astype(np.float32) for k in (0, 1)]
    )


def test_what_is_held_is_taken_for_what_memory_holds() -> None:
    w = Writing()
    x, out = w.array("x"), w.array("out")
    first, second = Var(float32), Var(float32)
    w.builder.emit(Load(first, x, (integer(0),), held=constant(5, float32)))
    w.builder.emit(Atomic(second, "add", x, (integer(0),), constant(1, float32), held=constant(7, float32)))
    w.builder.store(out, [integer(0)], w.apply("add", first, second))
    arrays = {"x": np.array([100], np.float32), "out": np.zeros(1, np.float32)}
    interpreter.run(w.done(), (1,), arrays)
    assert (float(arrays["out"][0]), float(arrays["x"][0])) == (12.0, 101.0)


def test_an_access_to_a_component_touches_nothing_else() -> None:
    w = Writing()
    m = w.array("m", Mat(float32, 2, 2))
    value = Var(float32)
    w.builder.emit(Load(value, m, (w.i,), component=1))
    w.builder.emit(Store(m, (w.i,), value, component=2))
    array = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    interpreter.run(w.done(), (2,), {"m": array})
    assert array.ravel().tolist() == [0, 1, 1, 3, 4, 5, 5, 7]


# ------------------------------------------------------------------------------------------ regions


def test_each_thread_takes_its_branch_and_branches_nest() -> None:
    function = lowered(
        """
def choose(x: array[float], out: array[float]):
    i = tid()
    y = 0.0
    if x[i] > 0.0:
        if x[i] > 1.0:
            y = sqrt(x[i])
        else:
            out[i] = 9.0
    else:
        y = -x[i]
    out[i] += y
""",
        "choose",
    )
    arrays = {"x": np.array([4.0, 0.5, -2.0], np.float32), "out": np.zeros(3, np.float32)}
    interpreter.run(function, (3,), arrays)
    assert arrays["out"].tolist() == [2.0, 9.0, 2.0]


def powers(reverse: bool) -> Function:
    """``out[i] = sum of k * 10**trip`` over the ``counts[i]`` values k of a loop's index."""
    w = Writing()
    counts, out = w.array("counts", int32), w.array("out", int32)
    count = w.builder.load(counts, [w.i])
    k, total, scale = Var(int32, "k"), Var(int32, "total"), Var(int32, "scale")
    with w.builder.block() as body:
        more = w.apply("add", total, w.apply("mul", k, scale))
        wider = w.apply("mul", scale, integer(10))
    outs = (Var(int32), Var(int32))
    inits = (integer(0), integer(1))
    w.builder.emit(For(outs, k, count, (total, scale), inits, body.close(more, wider), reverse=reverse))
    w.builder.store(out, [w.i], outs[0])
    return w.done()


@pytest.mark.parametrize(("reverse", "wanted"), [(False, [0, 0, 210, 0, 10]), (True, [0, 0, 12, 0, 1])])
def test_each_thread_runs_its_own_number_of_iterations(reverse: bool, wanted: list[int]) -> None:
    arrays = {"counts": np.array([0, 1, 3, -2, 2], np.int32), "out": np.full(5, -1, np.int32)}
    interpreter.run(powers(reverse), (5,), arrays)
    assert arrays["out"].tolist() == wanted


@pytest.mark.parametrize("kind", ["for", "while"])
def test_a_loop_ends_after_the_iteration_that_sets_its_stop(kind: str) -> None:
    w = Writing()
    limits, out = w.array("limits", int32), w.array("out", int32)
    limit = w.builder.load(limits, [w.i])
    trips, done, k = Var(int32, "trips"), Var(bool_, "done"), Var(int32, "k")
    with w.builder.block() as open_body:
        more = w.apply("add", trips, integer(1))
        reached = w.apply("ge", more, limit)
    body, outs = open_body.close(more, reached), (Var(int32), Var(bool_))
    # The stop that a loop starts with ends nothing.
    inits = (integer(0), TRUE)
    if kind == "for":
        w.builder.emit(For(outs, k, integer(4), (trips, done), inits, body, stop=1))
    else:
        w.builder.emit(While(outs, (trips, done), inits, 1, body))
    w.builder.store(out, [w.i], outs[0])
    arrays = {"limits": np.array([3, 1, 0, 4], np.int32), "out": np.zeros(4, np.int32)}
    interpreter.run(w.done(), (4,), arrays)
    assert arrays["out"].tolist() == [3, 1, 1, 4]


def test_each_thread_has_a_stack_of_its_own() -> None:
    w = Writing()
    counts, out = w.array("counts", int32), w.array("out", int32)
    count, stack = w.builder.load(counts, [w.i]), Stack()
    k, j, total = Var(int32, "k"), Var(int32, "j"), Var(int32, "total")
    with w.builder.block() as pushing:
        value = w.apply("add", w.i, w.apply("mul", k, integer(10)))
        w.builder.emit(Save(stack, (value, w.apply("float32", value))))
    w.builder.emit(For((), k, count, (), (), pushing.close()))
    with w.builder.block() as popping:
        saved, as_float = Var(int32), Var(float32)
        w.builder.emit(Restore(stack, (saved, as_float)))
        same = w.apply("where", w.apply("eq", w.apply("int32", as_float), saved), saved, integer(-9999))
        shifted = w.apply("add", w.apply("mul", total, integer(100)), same)
    end = Var(int32)
    w.builder.emit(For((end,), j, count, (total,), (integer(0),), popping.close(shifted)))
    w.builder.store(out, [w.i], end)
    arrays = {"counts": np.array([2, 0, 3, 1], np.int32), "out": np.full(4, -1, np.int32)}
    interpreter.run(w.done(), (4,), arrays)
    assert arrays["out"].tolist() == [1000, 0, 221202, 3]


def test_a_function_is_evaluated_lane_by_lane() -> None:
    x, y = Var(float64, "x"), Var(Vec(float64, 2), "y")
    builder = Builder()
    function = verify(Function("f", (x, y), builder.close(builder.apply("mul", x, y), TRUE)))
    product, truth = interpreter.evaluate(function, np.array([2.0, 3.0]), np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert product.tolist() == [[2.0, 4.0], [9.0, 12.0]]
    assert truth.tolist() == [True, True]


def test_the_backend_of_the_name_interp_builds_entries_that_take_packed_arguments() -> None:
    w = Writing()
    out = w.array("out", uint8)
    w.builder.store(out, [w.i], constant(3, uint8))
    function = w.done()
    result = np.zeros(2, np.uint8)
    entry = get("interp").build([function])["kernel"]
    entry(pack(layout_of(function), (2,), {"out": result}))
    assert result.tolist() == [3, 3]
    assert entry.info.coordinates == 1


def test_an_interrupt_names_the_kernel_and_an_except_of_mistakes_lets_it_pass() -> None:
    entry = get("interp").build([kernels.endless()])["endless"]
    packed = pack(layout_of(kernels.endless()), (1,), {"y": np.zeros(1, np.float32)})
    striking = threading.Timer(0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    striking.start()
    try:
        with pytest.raises(KernelInterrupt, match="the kernel `endless` was interrupted") as caught:
            entry(packed)
    finally:
        striking.join()
        signal.signal(signal.SIGINT, before)
    assert isinstance(caught.value, KeyboardInterrupt)
    assert not isinstance(caught.value, Exception)


def test_an_if_without_results_may_do_nothing_on_one_side() -> None:
    w = Writing()
    out = w.array("out", int32)
    with w.builder.block() as then:
        w.builder.store(out, [w.i], integer(1))
    w.builder.emit(If((), w.apply("gt", w.i, integer(0)), then.close(), Block(())))
    w.builder.emit(If((), FALSE, Block(()), Block(())))
    result = np.zeros(3, np.int32)
    interpreter.run(w.done(), (3,), {"out": result})
    assert result.tolist() == [0, 1, 1]


def test_threads_that_store_to_an_element_and_add_to_it_take_turns() -> None:
    function = lowered(
        "def k(x: array[float], y: array[float]):\n"
        "    i = tid()\n"
        "    y[0] = 0.0\n"
        "    atomic_add(y, 0, x[i])\n",
        "k",
    )
    assert not independent(function)
    y = np.zeros(1, np.float32)
    interpreter.run(function, (3,), {"x": np.array([1, 2, 4], np.float32), "y": y})
    assert y[0] == 4


MEETING = {
    "by one store or another": "    if x[i] > 0.0:\n        y[0] = x[i]\n    else:\n        y[0] = -x[i]\n",
    "by a store that some threads repeat": "    for k in range(int(abs(x[i]))):\n        y[0] = x[i]\n",
    "by two stores": "    if x[i] > 1.5:\n        y[i % 2] = x[i]\n    y[0] = 0.5\n",
    "by one store": "    y[i % 2] = x[i]\n",
    "nowhere": "    for k in range(int(abs(x[i]))):\n        y[i] = float(k)\n    y[i] = y[i] + 1.0\n",
}


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("how", MEETING)
def test_where_threads_store_to_one_element_the_last_one_counts(how: str, descending: bool) -> None:
    function = lowered("def k(x: array[float], y: array[float]):\n    i = tid()\n" + MEETING[how], "k")
    function = replace(function, descending=descending)
    x = np.array([1, -3, 2], np.float32)
    together, one_by_one = np.zeros(3, np.float32), np.zeros(3, np.float32)
    interpreter.run(function, (3,), {"x": x, "y": together})
    evaluate(function, (3,), {"x": x, "y": one_by_one})
    np.testing.assert_array_equal(together, one_by_one)
    assert independent(function) == (how == "nowhere" or (how == "by one store" and not descending))


# ------------------------------------------------------------------------------------------ lanes


def with_lanes(statement: str) -> Function:
    text = "def k(x: array2d[float], y: array2d[float], z: array[float]):\n    lane, i = tid()\n"
    return lowered(f"{text}    n = x.shape[1]\n    {statement}", "k")


MOVING = "y[lane, i] = 0.5 * x[lane, i] + x[lane, (i + 1) % n]"
ACROSS = "y[lane, i] = 0.5 * x[lane, i] + x[(lane + 1) % 4, i]"
TOTAL = "y[lane, i] = 0.5 * x[lane, i] + z[0]\n    z[0] = x[lane, (i + 1) % n]"


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    ("statement", "shift", "sizes"),
    [
        (MOVING, 0, [4] * 5),  # y is x: a thread sees what another one has changed, in its lane
        (MOVING, 1, [1] * 20),  # the last element of a row of y is the first of the next row of x
        (ACROSS, 0, [1] * 20),
        (TOTAL, 0, [1] * 20),  # one element for all lanes
    ],
)
def test_threads_run_one_by_one_and_those_of_lanes_that_are_apart_together(
    statement: str, shift: int, sizes: list[int], descending: bool
) -> None:
    function = replace(with_lanes(statement), descending=descending)
    together: list[int] = []

    class Counted(Chunk):
        def run(self, frame: Frame) -> list[Any]:
            together.append(len(self.threads))
            return super().run(frame)

    results = []
    for lanes, chunk in ((False, Chunk), (True, Counted)):
        memory, z = np.arange(24, dtype=np.float32), np.ones(1, np.float32)
        arrays = {"x": memory[:20].reshape(4, 5), "y": memory[shift : shift + 20].reshape(4, 5), "z": z}
        interpreter.entry(function, chunk=chunk, lanes=lanes)(pack(layout_of(function), (4, 5), arrays))
        results.append([*memory, *z])
    assert results[0] == results[1]
    assert together == sizes
