"""Every operation with a known operand, 0, 1, -1, an infinity or NaN, is the same as with any other operand.

A constant vector or matrix has equal components, so a special number is special in another way in each type:
a number 1 is neutral in a product, a matrix of ones is not.  What is folded is compared with the record's
NumPy oracle to the last bit, expansions and derivatives with the same where nothing is known.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from kernelab.backend.cpu import interpreter
from kernelab.lang import ir
from kernelab.lang.build import Builder, constant, type_of
from kernelab.lang.ir import Const, Function, Let, Var
from kernelab.lang.rounding import computed, rounded
from kernelab.lang.types import (
    Array,
    Scalar,
    Value,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    scalar_of,
    uint8,
    uint64,
)
from kernelab.lang.verify import verify
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.copying import Copier
from kernelab.passes.common.scalarise import scalarise
from kernelab.passes.common.simplify import simplify
from tests.support.checks import bits, by_components, directions, edge_operands
from tests.support.table import LANES, Case, Numpy, cases, named, zeros

WIDTHS = (bool_, int8, int32, int64, uint8, uint64, float16, bfloat16, float32, float64)
CASES = list(cases(WIDTHS))
COMPOSED = [case for case in cases((bool_, int32, float64)) if case.op.expand is not None]
DIFFERENTIABLE = [case for case in cases((bool_, int32, float64)) if case.active]

FLOATS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, float("inf"), float("-inf"), float("nan"))
FEW = (0.0, 1.0, -1.0, 2.0)


def specials(type: Value, floats: Sequence[float] = FLOATS) -> list[Const]:
    """The constants of a type that an algebraic identity may know."""
    scalar = scalar_of(type)
    if scalar == bool_:
        return [Const(False, type), Const(True, type)]
    if scalar.is_float:
        return [constant(number, type) for number in floats]
    ends = np.iinfo(scalar.dtype)
    numbers = (0, 1, 2, int(ends.min), int(ends.max), *(() if scalar.kind == "uint" else (-1,)))
    return [Const(number, type) for number in numbers]


def filled(const: Const, like: Numpy) -> Numpy:
    """An operand that is the constant in every lane."""
    return np.broadcast_to(rounded(np.array(const.value, object), like.dtype), like.shape).copy()


def known(case: Case, place: int, const: Const) -> Function:
    """The function that applies the record with one operand known; its parameters are those of the record."""
    params = [Var(type, param.name) for param, type in zip(case.op.params, case.types, strict=True)]
    args: list[ir.Atom] = [*params]
    args[place] = const
    builder = Builder()
    result = builder.let(case.op, args, case.result)
    return Function("known", tuple(params), builder.close(result))


def divides_by_zero(case: Case, place: int, const: Const) -> bool:
    """Whether an integer would be divided by 0, which a kernel refuses before."""
    is_division = case.op.name in ("floordiv", "mod") and not scalar_of(case.result).is_float
    return is_division and place == 1 and const.value == 0


def in_places(case: Case, floats: Sequence[float]) -> Iterator[tuple[int, Const]]:
    """Each special constant in the place of each operand."""
    for place, type in enumerate(case.types):
        for const in specials(type, floats):
            if not divides_by_zero(case, place, const):
                yield place, const


Check = Callable[[Case, int, Const], None]


def mistakes(items: Sequence[Case], check: Check, numbers: Sequence[float] = FLOATS) -> list[str]:
    """What the check says of each case and constant that fails it; of floats, of these numbers alone."""
    found = []
    for case in items:
        for place, const in in_places(case, numbers):
            try:
                check(case, place, const)
            except AssertionError as error:
                found.append(f"{case.name} where operand {place} is {const.value}: {error}")
    return found


def numpy_says(case: Case, operands: Sequence[Numpy]) -> Numpy:
    with np.errstate(all="ignore"):
        return computed(case.op.numpy, operands, scalar_of(case.result).dtype)


def test_what_stands_for_an_operation_with_a_known_operand_is_its_value() -> None:
    replaced: set[str] = set()

    def check(case: Case, place: int, const: Const) -> None:
        function = known(case, place, const)
        (result,) = function.body.yields
        if any(isinstance(stmt, Let) and stmt.out is result for stmt in function.body.stmts):
            return
        replaced.add(case.op.name)
        operands = edge_operands(case)
        operands[place] = filled(const, operands[place])
        if isinstance(result, Const):
            found = filled(result, zeros(case.result))
        else:
            found = operands[function.params.index(result)]
        wanted = np.broadcast_to(numpy_says(case, operands), found.shape)
        assert np.array_equal(bits(found), bits(wanted)), f"{found} for {wanted}"

    assert mistakes(CASES, check) == []
    assert {"mul", "div", "sub", "add", "where", "and", "or"} <= replaced


def test_operations_of_known_numbers_are_folded_as_numpy_computes_them() -> None:
    wrong: list[str] = []
    for case in CASES:
        if not case.op.exact or not all(isinstance(t, Scalar) for t in (*case.types, case.result)):
            continue
        ways = [
            way
            for way in product(*map(specials, case.types))
            if not any(divides_by_zero(case, k, const) for k, const in enumerate(way))
        ]
        columns = [
            rounded(np.array([way[k].value for way in ways], object), scalar_of(type).dtype)
            for k, type in enumerate(case.types)
        ]
        wanted: Any = np.broadcast_to(numpy_says(case, columns), (len(ways),)) if columns else []
        for way, value in zip(ways, wanted, strict=True):
            found = Builder().let(case.op, way, case.result)
            if isinstance(found, Const):
                number = rounded(np.array(found.value), scalar_of(case.result).dtype)
                said = [const.value for const in way]
                if not np.array_equal(bits(number), bits(value)):
                    wrong.append(f"{case.name} of {said}: {number}, not {value}")
    assert wrong == []


def evaluated(function: Function, operands: Sequence[Numpy]) -> list[Numpy]:
    with np.errstate(all="ignore"):
        return interpreter.evaluate(function, *operands)


def kernel_of(function: Function) -> Function:
    """The kernel that writes what the function yields for elements of arrays, named after its parameters."""
    thread, builder = Var(int32, "i"), Builder()
    arrays = [Var(Array(type_of(param), 1), param.hint) for param in function.params]
    loaded = [builder.load(array, [thread]) for array in arrays]
    (result,) = Copier(builder, dict(zip(function.params, loaded, strict=True))).entered(function, loaded)
    out = Var(Array(type_of(result), 1), "out")
    builder.store(out, [thread], result)
    return Function("known", (*arrays, out), builder.close(), (thread,))


def tangent_is_the_same(case: Case, place: int, const: Const) -> None:
    """The tangent along all operands but the known one."""
    active = [name for name in case.active if name != case.op.params[place].name]
    operands, dots = case.draw(1), directions(case, 2)
    operands[place] = filled(const, operands[place])
    along = [*operands, *(dots[name] for name in active)]
    wanted = evaluated(jvp(case.function(), active), along)[-1]
    found = evaluated(verify(simplify(jvp(known(case, place, const), active))), along)[-1]
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


@lru_cache(1)
def general_adjoint(case: Case, active: tuple[str, ...]) -> Function:
    """The adjoint of the kernel that knows no operand, for some of them."""
    return verify(vjp(case.kernel("general"), [*active, "out"]).adjoint)


def adjoint_is_the_same(case: Case, place: int, const: Const) -> None:
    """The cotangents of all operands but the known one."""
    active = [name for name in case.active if name != case.op.params[place].name]
    operands = case.draw(3)
    operands[place] = filled(const, operands[place])
    w = np.random.default_rng(5).uniform(-1, 1, case.out().shape).astype(case.out().dtype)
    adjoint = verify(simplify(vjp(kernel_of(known(case, place, const)), [*active, "out"]).adjoint))
    wanted, found = ({name: np.zeros(named(case, operands)[name].shape) for name in active} for _ in range(2))
    for program, bars in ((general_adjoint(case, tuple(active)), wanted), (adjoint, found)):
        arrays = named(case, operands) | {"out": case.out(), "out_bar": w.copy()}
        interpreter.run(program, [LANES], arrays | {f"{name}_bar": bar for name, bar in bars.items()})
    for name in active:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-12, atol=1e-12, err_msg=name)


SEVERAL = [case for case in DIFFERENTIABLE if len(case.active) > 1]


@pytest.mark.parametrize("check", [tangent_is_the_same, adjoint_is_the_same])
def test_derivatives_of_an_operator_with_a_known_operand_are_as_with_any_other(check: Check) -> None:
    one_of_each = {case.op: case for case in SEVERAL if case.op.symbol}
    assert mistakes(list(one_of_each.values()), check, FEW) == []


@pytest.mark.long
@pytest.mark.parametrize("check", [tangent_is_the_same, adjoint_is_the_same])
def test_derivatives_with_a_known_operand_are_as_with_any_other(check: Check) -> None:
    assert mistakes(SEVERAL, check) == []


@pytest.mark.long
def test_an_expansion_with_a_known_operand_is_the_same_as_with_any_other() -> None:
    whole: dict[Case, Function] = {}

    def check(case: Case, place: int, const: Const) -> None:
        general = whole.setdefault(case, verify(scalarise(case.function())))
        for operands in (case.draw(), edge_operands(case)):
            operands[place] = filled(const, operands[place])
            wanted = evaluated(general, by_components(operands))
            found = evaluated(verify(scalarise(known(case, place, const))), by_components(operands))
            assert np.array_equal(bits(np.stack(found)), bits(np.stack(wanted))), f"{found} for {wanted}"

    assert mistakes(COMPOSED, check) == []
