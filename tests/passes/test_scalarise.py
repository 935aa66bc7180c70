"""Scalarising: no vector is left, and nothing else changes."""

import copy
from typing import Any

import numpy as np
import pytest

from kernelab.backend.common.backends import pack
from kernelab.backend.cpu import interpreter
from kernelab.codegen.cpp.entry import layout_of
from kernelab.lang.build import FALSE, constant, integer, zero
from kernelab.lang.ir import Atom, For, Function, Let, Load, Var, atoms, defs, walk
from kernelab.lang.show import show
from kernelab.lang.types import Array, Scalar, bfloat16, float32, int32
from kernelab.lang.verify import verify
from kernelab.passes.common.scalarise import scalarise
from tests.codegen import kernels
from tests.codegen.kernels import CASES
from tests.codegen.writer import MAT22, VEC3, Case, Writer


def let_names(function: Function) -> list[str]:
    return [stmt.op.name for stmt in walk(function.body) if isinstance(stmt, Let)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.function.name)
def test_every_value_is_a_scalar(case: Case) -> None:
    function = verify(scalarise(case.function))
    values: set[Atom] = set(function.params)
    for stmt in walk(function.body):
        values.update(defs(stmt), atoms(stmt))
    assert all(isinstance(v.type, Scalar | Array) for v in values)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.function.name)
def test_the_kernel_computes_the_same(case: Case) -> None:
    given = case.draw(np.random.default_rng(1))
    expected = copy.deepcopy(given)
    interpreter.run(case.function, case.grid, expected)
    scalar = interpreter.entry(scalarise(case.function))
    scalar(pack(layout_of(case.function), case.grid, given))
    for name, value in expected.items():
        np.testing.assert_array_equal(comparable(given[name]), comparable(value), err_msg=name)


def comparable(values: Any) -> Any:
    """The same bits in a type that NumPy compares: it does not take two NaNs of bfloat16 for equal."""
    is_brain = isinstance(values, np.ndarray) and values.dtype == bfloat16.dtype
    return values.view(np.uint16) if is_brain else values


def test_a_vector_parameter_becomes_one_parameter_a_component() -> None:
    function = scalarise(kernels.vectors().function)
    assert [p.hint for p in function.params] == ["x", "y", "z", "p_x", "p_y", "p_z", "j"]


def test_an_element_is_loaded_component_by_component() -> None:
    function = scalarise(kernels.vectors().function)
    loads = [stmt for stmt in walk(function.body) if isinstance(stmt, Load)]
    assert [(load.out.hint, load.component) for load in loads] == [("v_x", 0), ("v_y", 1), ("v_z", 2)]


def test_elements_that_are_scalars_have_no_component() -> None:
    function = scalarise(kernels.saxpy().function)
    assert {stmt.component for stmt in walk(function.body) if isinstance(stmt, Load)} == {None}


def test_components_that_are_put_together_and_taken_apart_cost_nothing() -> None:
    w = Writer("nothing", x=Array(float32, 1))
    (i,) = w.tid("i")
    v = w.load(w["x"], [i])
    vector = w.apply("vec3", v, constant(1, float32), v)
    matrix = w.apply("mat22", v, v, w.apply("extract", vector, integer(1)), v)
    changed = w.apply("insert", vector, integer(-1), w.apply("extract", matrix, integer(1), integer(0)))
    w.store(w["x"], [i], w.apply("extract", changed, integer(2)))
    assert let_names(scalarise(w.function())) == []


def test_a_component_at_run_time_is_a_chain_of_selections() -> None:
    w = Writer("chain", x=Array(VEC3, 1), y=Array(float32, 1), j=int32)
    (i,) = w.tid("i")
    w.store(w["y"], [i], w.apply("extract", w.load(w["x"], [i]), w["j"]))
    names = let_names(scalarise(w.function()))
    assert names == ["lt", "add", "where", "eq", "where", "eq", "where"]


def test_results_keep_the_name_of_the_vector() -> None:
    w = Writer("names", x=Array(VEC3, 1))
    (i,) = w.tid("i")
    w.store(w["x"], [i], w.apply("add", w.load(w["x"], [i], "u"), zero(VEC3), hint="total"))
    text = show(scalarise(w.function()))
    assert "u_x: float32" in text
    assert "total_z" in text


def test_the_stop_of_a_loop_stays_the_same_carry() -> None:
    w = Writer("stopping", x=Array(MAT22, 1))
    (i,) = w.tid("i")
    m = w.load(w["x"], [i])

    def body(k: Var, total: Var, stop: Var) -> tuple[Atom, Atom]:
        return w.apply("add", total, m), w.apply("gt", k, i)

    total, _ = w.loop(integer(9), [m, FALSE], body, stop=1)
    w.store(w["x"], [i], total)
    loop = next(stmt for stmt in walk(verify(scalarise(w.function())).body) if isinstance(stmt, For))
    assert loop.stop == 4
