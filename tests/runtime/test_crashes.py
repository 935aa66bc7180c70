"""Programs that once ended the whole process, or wrote outside of an array, end with an error at the line."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import (
    KernelAssertionError,
    KernelIndexError,
    KernelTypeError,
    KernelValueError,
    KernelZeroDivisionError,
)
from kernelab.lang.ir import Assert, walk
from kernelab.passes.ad.vjp import vjp
from tests.support.lowering import lowered

DIVISIONS = kl.compile("""
def quotient(x: array[float], n: array[int], y: array[float]):
    y[0] = x[6 // n[0]] * 2.0

def remainder(x: array[float], n: array[int], y: array[float]):
    y[0] = x[6 % n[0]] * 2.0

def in_a_loop(x: array[float], n: array[int], y: array[float]):
    s = 0.0
    for k in range(3):
        if k < 2:
            s += x[(6 + k) // n[0]] * x[k]
    y[0] = s

def components(x: array[float], n: array[vec2i], y: array[float]):
    y[0] = x[(vec2i(6, 7) // n[0]).y] * 2.0
""")

STEPS = kl.compile("""
def added(x: array[float], n: array[int], y: array[float]):
    for i in range(0, 5, n[0]):
        y[0] += x[i] * x[i]

def multiplied(x: array[float], n: array[int], y: array[float]):
    product = x[0]
    for _ in range(0, 5, n[0]):
        product = product * x[1]
    y[0] = product

def sliced(x: array[float], n: array[int], y: array[float]):
    for v in x[:: n[0]]:
        y[0] += v * v
""")


BY_A_CONSTANT = """
def half(x: array[float], n: array[int], y: array[float]):
    y[0] = x[n[0] // 2] * 2.0
"""


def divisors(name: str, value: int) -> kl.array:
    return (
        kl.array([[value, value]], dtype=kl.vec2i) if name == "components" else kl.array([value], dtype=int)
    )


@pytest.mark.parametrize("name", ["quotient", "remainder", "in_a_loop", "components"])
def test_an_adjoint_divides_by_what_a_later_launch_made_zero(name: str) -> None:
    x, y, n = kl.ones(8, requires_grad=True), kl.zeros(1, requires_grad=True), divisors(name, 2)
    with kl.Tape(overwrite="warn") as tape:
        kl.launch(DIVISIONS[name], dim=1, inputs=[x, n], outputs=[y])
    with pytest.warns(kl.KernelWarning, match="`n` is overwritten"):
        n.zero_()
    with pytest.raises(KernelZeroDivisionError, match="integer division by zero"):
        tape.backward(grads={y: kl.ones(1)})


@pytest.mark.parametrize("name", ["quotient", "remainder", "in_a_loop", "components"])
def test_an_adjoint_that_is_launched_by_itself_divides_by_zero(name: str) -> None:
    x, y, n = kl.ones(8, requires_grad=True), kl.zeros(1, requires_grad=True), divisors(name, 0)
    with pytest.raises(KernelZeroDivisionError, match="integer division by zero"):
        kl.launch(
            DIVISIONS[name],
            dim=1,
            inputs=[x, n],
            outputs=[y],
            adj_inputs=[x.grad, None],
            adj_outputs=[kl.ones(1)],
            adjoint=True,
        )


def test_a_constant_divisor_costs_an_adjoint_no_check() -> None:
    pair = vjp(lowered(BY_A_CONSTANT, "half"), ["x", "y"])
    assert not any(isinstance(stmt, Assert) for stmt in walk(pair.adjoint.body))


@kl.func_native("float* p = y; p[tid] = 7;")
def through_a_pointer(y: kl.array[float], tid: int) -> None: ...


@kl.kernel
def points(y: kl.array[float]):
    through_a_pointer(y, kl.tid())


@kl.func_native("y[0] = x[0];")
def first_of_table(x: kl.array2d[float], y: kl.array[float]) -> None: ...


@kl.kernel
def reads_table(x: kl.array2d[float], y: kl.array[float]):
    first_of_table(x, y)


def test_a_pointer_to_elements_that_lie_apart_is_refused_before_the_snippet_runs() -> None:
    x = kl.zeros(20)
    with pytest.raises(KernelAssertionError, match="takes y as a pointer, and its elements lie apart"):
        kl.launch(points, dim=10, inputs=[x[10:20][::-1]])
    assert not x.numpy().any()


def test_a_table_without_columns_has_no_first_element() -> None:
    with pytest.raises(KernelIndexError, match="axis 1 of array `x` with size 0"):
        kl.launch(reads_table, dim=1, inputs=[kl.zeros((3, 0)), kl.zeros(1)])


def test_a_part_of_an_array_is_no_argument_of_a_snippet() -> None:
    @kl.func_native("y[0] = x[0];")
    def first(x: kl.array[float], y: kl.array[float]) -> None: ...

    def of_a_row(x: kl.array2d[float], y: kl.array[float]) -> None:
        first(x[0], y)

    with pytest.raises(KernelTypeError, match="the argument x of first is a part of an array"):
        kl.launch(kl.kernel(of_a_row), dim=1, inputs=[kl.ones((2, 2)), kl.zeros(1)])


def test_local_arrays_are_limited_in_sum() -> None:
    lines = [f"    a{k} = zeros(4000)\n    a{k}[tid()] = x[0]\n    s += a{k}[tid()]\n" for k in range(17)]
    text = "def k(x: array[float], y: array[float]):\n    s = 0.0\n{}    y[0] = s\n"
    kl.compile(text.format("".join(lines[:16])))
    with pytest.raises(
        KernelValueError, match="the local arrays of k are too large: at most 262,144 bytes"
    ) as caught:
        kl.compile(text.format("".join(lines)))
    assert "a16 = zeros(4000)" in str(caught.value)


def test_local_arrays_of_functions_count_for_each_call() -> None:
    text = """
def inner(v: float):
    a = zeros(4000)
    a[0] = v
    return a[0]

def k(x: array[float], y: array[float]):
    y[0] = {}
"""
    kl.compile(text.format(" + ".join(["inner(x[0])"] * 16)))
    with pytest.raises(KernelValueError, match="the local arrays of k are too large"):
        kl.compile(text.format(" + ".join(["inner(x[0])"] * 17)))


_SQUARE = "    a{0} = zeros(4000)\n    a{0}[{0}] = x[{0}]\n    s += a{0}[int(x[0]) + {0}] * a{0}[{0}]\n"
LARGE_LOCALS = "def squares(x: array[float], y: array[float]):\n    s = 0.0\n{}    y[0] = s\n".format(
    "".join(_SQUARE.format(k) for k in range(16))
)


def on_a_small_stack(work: Callable[[], Any]) -> Any:
    done: list[Any] = []
    before = threading.stack_size(1 << 18)
    try:
        thread = threading.Thread(target=lambda: done.append(work()))
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    return done[0]


def test_local_arrays_do_not_fill_the_stack_of_a_thread() -> None:
    kernel = kl.compile(LARGE_LOCALS)["squares"]

    def swept() -> list[float]:
        x, y = kl.array(np.arange(16.0), dtype=float, requires_grad=True), kl.zeros(1, requires_grad=True)
        with kl.Tape() as tape:
            kl.launch(kernel, dim=1, inputs=[x], outputs=[y])
        tape.backward(y)
        return x.grad.numpy().tolist()

    assert on_a_small_stack(swept) == [2.0 * k for k in range(16)]


RECORD = np.dtype([("id", "u1"), ("n", "<f4")])

SUMS = kl.compile("""
def count(of: array[int], bins: array[float]):
    bins[of[tid()]] += 1.0

def pick(x: array[float], of: array[int], y: array[float]):
    atomic_add(y, 0, x[of[tid()]] ** 2.0)
""")


def test_sums_into_a_field_of_packed_records_leave_the_other_fields() -> None:
    records = np.zeros(4, RECORD)
    records["id"] = [1, 2, 3, 4]
    of = np.arange(1 << 16, dtype=np.int32) % 4
    kl.launch(SUMS["count"], dim=of.size, inputs=[of], outputs=[records["n"]])
    assert records["id"].tolist() == [1, 2, 3, 4]
    assert records["n"].tolist() == [1 << 14] * 4


def test_sums_into_a_field_of_packed_records_do_not_saturate() -> None:
    records = np.zeros(2, RECORD)
    records["n"] = 1 << 24
    of = np.arange(1 << 21, dtype=np.int32) % 2
    kl.launch(SUMS["count"], dim=of.size, inputs=[of], outputs=[records["n"]])
    assert records["id"].tolist() == [0, 0]
    assert records["n"].tolist() == [(1 << 24) + (1 << 20)] * 2


def test_gradients_gathered_in_a_field_of_packed_records() -> None:
    records, gradients = np.zeros(4, RECORD), np.zeros(4, RECORD)
    records["n"], gradients["id"] = [1, 2, 3, 4], 9
    x, y = kl.array(records["n"], requires_grad=True, copy=False), kl.zeros(1, requires_grad=True)
    x.grad = kl.array(gradients["n"], copy=False)
    of = np.arange(1 << 14, dtype=np.int32) % 4
    with kl.Tape() as tape:
        kl.launch(SUMS["pick"], dim=of.size, inputs=[x, of], outputs=[y])
    tape.backward(y)
    assert gradients["n"].tolist() == [2.0 * (1 << 12) * k for k in (1, 2, 3, 4)]
    assert gradients["id"].tolist() == [9] * 4


@pytest.mark.parametrize("name", STEPS.keys())
def test_an_adjoint_does_not_count_by_steps_of_zero(name: str) -> None:
    x, y, n = kl.ones(8, requires_grad=True), kl.zeros(1, requires_grad=True), kl.ones(1, dtype=int)
    with kl.Tape(overwrite="warn") as tape:
        kl.launch(STEPS[name], dim=1, inputs=[x, n], outputs=[y])
    with pytest.warns(kl.KernelWarning, match="`n` is overwritten"):
        n.zero_()
    with pytest.raises(kl.KernelAssertionError, match="step"):
        tape.backward(grads={y: kl.ones(1)})
    with pytest.raises(kl.KernelAssertionError, match="step"):
        kl.launch(STEPS[name], dim=1, inputs=[x, n], outputs=[y])
    with pytest.raises(kl.KernelAssertionError, match=r"step.*\n.*line \d"):
        kl.launch(STEPS[name], dim=1, inputs=[x, n], outputs=[y], adjoint=True)
