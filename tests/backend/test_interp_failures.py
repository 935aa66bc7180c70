"""What the interpreter reports is what a run thread by thread would meet first."""

import numpy as np
import pytest

from kernelab.backend.cpu import interpreter
from kernelab.errors import (
    KernelAssertionError,
    KernelError,
    KernelIndexError,
    KernelZeroDivisionError,
    Source,
    Span,
)
from kernelab.lang.build import Builder, constant, integer
from kernelab.lang.ir import For, Function, Restore, Save, Stack, Var
from kernelab.lang.types import bool_, float32, int32, uint64
from kernelab.lang.verify import verify
from tests.support.lowering import lowered
from tests.support.writing import Writing

WIDTHS = (1, 3, interpreter.WIDTH)
SOURCE = Source("\n" * 9, "Cell In[1]")


def span(line: int) -> Span:
    return Span(SOURCE, line, 0, line, 1)


def reading(x_length: int, threads: int, shift: int, width: int = interpreter.WIDTH) -> None:
    w = Writing()
    x, out = w.array("x"), w.array("out")
    with w.builder.at(span(3)):
        value = w.builder.load(x, [w.apply("add", w.i, integer(shift))])
    w.builder.store(out, [w.i], value)
    arrays = {"x": np.zeros(x_length, np.float32), "out": np.zeros(threads, np.float32)}
    interpreter.run(w.done(), (threads,), arrays, width)


@pytest.mark.parametrize("width", WIDTHS)
def test_an_index_outside_names_the_first_thread_the_array_the_axis_and_the_line(width: int) -> None:
    with pytest.raises(KernelIndexError) as caught:
        reading(5, 9, 1, width)
    (diagnostic,) = caught.value.diagnostics
    assert "index 5 is out of bounds for axis 0 of array `x` with size 5; in thread 4" in diagnostic.message
    assert diagnostic.span == span(3)


def test_a_negative_index_beyond_the_beginning_is_reported_as_it_was_written() -> None:
    with pytest.raises(KernelIndexError, match="index -7 is out of bounds for axis 0 of array `x`"):
        reading(5, 3, -7)


def test_every_index_of_an_empty_array_is_outside() -> None:
    with pytest.raises(KernelIndexError, match="with size 0; in thread 0"):
        reading(0, 3, 0)


def test_an_unsigned_index_never_counts_from_the_end() -> None:
    w = Writing()
    x, index = w.array("x"), w.param("index", uint64)
    w.builder.store(x, [index], constant(1, float32))
    with pytest.raises(KernelIndexError):
        interpreter.run(w.done(), (1,), {"x": np.zeros(3, np.float32), "index": 2**64 - 1})


def failing(first: int, second: int) -> Function:
    """A kernel that fails in thread `first` at its second statement and in `second` at its first."""
    w = Writing()
    out = w.array("out", int32)
    with w.builder.at(span(1)):
        w.builder.check(w.apply("ne", w.i, integer(second)), "assertion", "one")
    w.builder.atomic_add(out, [integer(0)], integer(1))
    with w.builder.at(span(2)):
        w.builder.check(w.apply("ne", w.i, integer(first)), "division", "")
    w.builder.atomic_add(out, [integer(1)], integer(1))
    return w.done()


@pytest.mark.parametrize("width", WIDTHS)
def test_the_failure_reported_is_the_one_that_comes_first_thread_by_thread(width: int) -> None:
    out = np.zeros(2, np.int32)
    with pytest.raises(KernelZeroDivisionError) as caught:
        interpreter.run(failing(first=3, second=5), (8,), {"out": out}, width)
    assert "thread 3" in caught.value.diagnostics[0].message
    assert caught.value.diagnostics[0].span == span(2)
    assert out[1] == 3
    with pytest.raises(KernelAssertionError, match="one; in thread 2"):
        interpreter.run(failing(first=6, second=2), (8,), {"out": out}, width)


def test_threads_with_lower_numbers_finish_what_they_began() -> None:
    function = lowered(
        """
def walk(x: array[float], counts: array[int], out: array[float]):
    i = tid()
    for k in range(counts[i]):
        out[i] += x[k]
""",
        "walk",
    )
    x, out = np.ones(4, np.float32), np.zeros(4, np.float32)
    with pytest.raises(KernelIndexError, match=r"index 4 .* in thread 2"):
        interpreter.run(function, (4,), {"x": x, "counts": np.array([4, 3, 9, 2], np.int32), "out": out})
    assert out[:2].tolist() == [4.0, 3.0]


def test_a_saved_value_is_found_again_by_threads_below_a_failure() -> None:
    w = Writing()
    x, out = w.array("x"), w.array("out", int32)
    stack, k, j = Stack(), Var(int32, "k"), Var(int32, "j")
    with w.builder.block() as pushing:
        w.builder.load(x, [w.apply("mul", k, w.i)])
        w.builder.emit(Save(stack, (w.i,)))
    w.builder.emit(For((), k, integer(4), (), (), pushing.close()))
    with w.builder.block() as popping:
        saved = Var(int32)
        w.builder.emit(Restore(stack, (saved,)))
        w.builder.atomic_add(out, [w.i], saved)
    w.builder.emit(For((), j, integer(4), (), (), popping.close()))
    result = np.zeros(4, np.int32)
    with pytest.raises(KernelIndexError, match="in thread 3"):
        interpreter.run(w.done(), (4,), {"x": np.zeros(8, np.float32), "out": result})
    assert result.tolist() == [0, 4, 8, 0]


def test_coordinates_are_named_where_the_kernel_unpacks_them() -> None:
    w = Writing(threads=2)
    i, j = w.threads
    w.builder.check(w.apply("lt", w.apply("add", i, j), integer(3)), "assertion", "far")
    with pytest.raises(KernelAssertionError, match=r"in thread \(1, 2\)"):
        interpreter.run(w.done(), (2, 3), {})


def test_an_evaluated_function_reports_its_failures_too() -> None:
    x, builder = Var(bool_, "x"), Builder()
    builder.check(x, "assertion", "")
    function = verify(Function("f", (x,), builder.close()))
    with pytest.raises(KernelError, match="in thread 1"):
        interpreter.evaluate(function, np.array([True, False]))
