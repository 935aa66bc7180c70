"""Whole programs in the interpreter, against a plain run thread by thread."""

import ctypes
from typing import Any

import numpy as np
import pytest

from kernelab.backend.cpu import interpreter
from kernelab.codegen.cpp import wide_accumulators
from kernelab.lang.build import integer
from kernelab.lang.ir import Append, For, Var
from kernelab.lang.types import float32, int32
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.copying import widen
from kernelab.passes.common.scalarise import scalarise
from kernelab.passes.common.simplify import simplify
from tests.support.derivatives import active_names, wide
from tests.support.evaluate import evaluate
from tests.support.lowering import lowered
from tests.support.writing import Writing
from tests.support.zoo import ZOO, Animal

Numpy = np.ndarray[Any, Any]
WIDTHS = (1, 3, interpreter.WIDTH)


def narrow(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments with Python's numbers as kernels take them."""
    widths = {float: np.float32, int: np.int32}
    return {name: widths.get(type(value), np.array)(value) for name, value in arguments.items()}


def copied(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: np.array(value) for name, value in arguments.items()}


@pytest.mark.parametrize("animal", ZOO, ids=lambda animal: animal.name)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_zoo_does_what_it_does_thread_by_thread(animal: Animal, width: int) -> None:
    function = lowered(animal.text, animal.name)
    drawn = narrow(animal.draw(np.random.default_rng(1)))
    wanted, found = copied(drawn), copied(drawn)
    evaluate(function, animal.grid, wanted)
    interpreter.run(function, animal.grid, found, width)
    # A sum in float64 is rounded once, a sum in memory each time.
    rounding = 1e-6 if wide_accumulators.totals(function) or wide_accumulators.wide(function) else 0.0
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rounding, 0.0, err_msg=name)


@pytest.mark.parametrize("animal", ZOO, ids=lambda animal: animal.name)
def test_scalarised_the_zoo_does_the_same(animal: Animal) -> None:
    function = lowered(animal.text, animal.name)
    drawn = animal.draw(np.random.default_rng(2))
    wanted, found = copied(drawn), copied(drawn)
    interpreter.run(function, animal.grid, wanted)
    interpreter.run(scalarise(function), animal.grid, found)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, name)


def test_a_running_total_overflows_in_silence() -> None:
    function = lowered(
        "def total(x: array[float], l: array[float]):\n    atomic_add(l, 0, x[tid()])\n", "total"
    )
    found = {"x": np.full(2, 3e38, np.float32), "l": np.zeros(1, np.float32)}
    interpreter.run(function, (2,), found)
    assert np.isinf(found["l"][0])


def new_residual(threads: int) -> tuple[Numpy, Numpy]:
    return np.zeros(3, np.int64), np.full(threads, -1, np.int64)


def contents(residual: tuple[Numpy, Numpy], dtype: np.dtype[Any]) -> Numpy:
    address, length, _ = map(int, residual[0])
    return np.frombuffer(ctypes.string_at(address, length * dtype.itemsize), dtype)


@pytest.mark.parametrize("animal", ZOO, ids=lambda animal: animal.name)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_residuals_and_the_adjoint_of_the_zoo_are_those_of_a_run_thread_by_thread(
    animal: Animal, width: int
) -> None:
    rng = np.random.default_rng(3)
    function = simplify(widen(lowered(animal.text, animal.name)))
    names = active_names(function)
    drawn = wide(function, animal.draw(rng))
    program, threads = vjp(function, names), int(np.prod(animal.grid))
    wanted, found = copied(drawn), copied(drawn)
    kept = evaluate(program.primal, animal.grid, wanted)
    residuals = {residual.array.hint: new_residual(threads) for residual in program.residuals}
    interpreter.run(program.primal, animal.grid, found | residuals, width)
    stored: dict[str, Any] = {}
    for residual in program.residuals:
        name = residual.array.hint
        stored[name] = contents(residuals[name], np.array(kept[name]).dtype)
        stored[residual.starts.hint] = residuals[name][1]
        assert residuals[name][1].tolist() == [start[name] for start in kept["starts"]]
        np.testing.assert_array_equal(stored[name], kept[name])
    bars = {f"{name}_bar": rng.normal(size=drawn[name].shape) for name in names}
    wanted |= copied(bars | stored)
    found |= copied(bars | stored)
    evaluate(program.adjoint, animal.grid, wanted)
    interpreter.run(program.adjoint, animal.grid, found, width)
    for name in bars:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("width", WIDTHS)
def test_what_a_thread_appends_stands_together_in_the_order_of_the_threads(width: int) -> None:
    w = Writing()
    counts, residual = w.array("counts", int32), w.array("residual", float32)
    k = Var(int32, "k")
    with w.builder.block() as body:
        value = w.apply("float32", w.apply("add", w.i, w.apply("mul", k, integer(10))))
        w.builder.emit(Append(residual, value))
    w.builder.emit(For((), k, w.builder.load(counts, [w.i]), (), (), body.close()))
    kept = new_residual(4)
    arguments = {"counts": np.array([2, 0, 3, 1], np.int32), "residual": kept}
    interpreter.run(w.done(), (4,), arguments, width)
    assert contents(kept, np.dtype(np.float32)).tolist() == [0, 10, 2, 12, 22, 3]
    assert kept[1].tolist() == [0, 2, 2, 5]
