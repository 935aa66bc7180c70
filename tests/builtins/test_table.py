"""What holds of every record of the table, at every type: generated, so that a new record needs no test."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernelab.backend import interp
from kernelab.backend.cpu import CpuBackend
from kernelab.backend.nvrtc import compile_to_ptx
from kernelab.backend.packing import pack
from kernelab.codegen.cpp import emit
from kernelab.codegen.entry import layout_of
from kernelab.codegen.flavors import Cuda
from kernelab.lang import ops
from kernelab.lang.ir import Function
from kernelab.lang.ops import Linear, Op
from kernelab.lang.types import SCALARS, bool_, float16, float32, float64, int32, scalar_of, uint8, uint32
from kernelab.lang.verify import verify
from kernelab.passes.jvp import jvp
from kernelab.passes.scalarise import scalarise
from kernelab.passes.vjp import vjp
from tests.support.table import (
    LANES,
    NAMES,
    Case,
    Numpy,
    cases,
    cotangents,
    expected,
    is_reachable,
    named,
    tangent,
    zeros,
)

RECORDS = [op for name in NAMES for op in ops.overloads(name)]
CASES = list(cases(SCALARS))
SPELLED = (bool_, int32, uint8, float16, float32, float64)
# What is no operation over scalars becomes such operations before it is compiled: one width will do.
COMPILED = [case for case in cases(SPELLED) if case.op.cpp is not None] + [
    case for case in cases((bool_, int32, float32)) if case.op.cpp is None
]
RANDOM = [
    case
    for case in cases((int32, uint32, float32, float64))
    if uint32 in [param.pattern for param in case.op.params]
]
COMPILED += [case for case in RANDOM if float64 not in map(scalar_of, (case.result, *case.types))]
DIFFERENTIABLE = [case for case in cases((bool_, int32, float64)) if case.active]
DIFFERENTIABLE += [case for case in RANDOM if case.active and scalar_of(case.result) == float64]

TOLERANCE = {float16: 1e-3, float32: 3e-6, float64: 1e-13}
"""Relative, for what goes through a mathematical library."""


def mistakes(items: list[Case], check: Callable[[Case], None]) -> list[str]:
    """What the check says of each case that fails it."""
    found = []
    for case in items:
        try:
            check(case)
        except AssertionError as error:
            found.append(f"{case.name}: {error}")
    return found


def assert_close(case: Case, found: Numpy, wanted: Numpy) -> None:
    if case.op.exact:
        np.testing.assert_array_equal(found, wanted)
    else:
        tolerance = TOLERANCE[scalar_of(case.result)]
        # Where terms of a composed operation cancel, what is left is as accurate as they were.
        atol = tolerance * np.abs(wanted).max() if case.op.cpp is None else 0.0
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=atol)


@pytest.mark.parametrize("op", RECORDS, ids=lambda op: op.name)
def test_a_record_is_complete(op: Op) -> None:
    assert op.doc.endswith((".", "NaN."))
    assert len(op.domain) == len(op.params)
    assert (op.cpp is None) != (op.expand is None)


def test_every_record_is_met_by_the_generated_tests() -> None:
    assert {case.op for case in CASES} == set(RECORDS)


def test_operands_of_its_types_get_the_record_and_no_earlier_overload() -> None:
    assert [case.name for case in CASES if not is_reachable(case)] == []


def by_components(operands: list[Numpy]) -> list[Numpy]:
    return [column for x in operands for column in x.reshape(LANES, -1).T]


def test_the_expansion_into_scalars_means_what_the_numpy_oracle_says() -> None:
    def check(case: Case) -> None:
        operands = case.draw()
        wanted = expected(case, operands)
        found = interp.evaluate(verify(scalarise(case.function())), *by_components(operands))
        assert_close(case, np.stack(found, -1).reshape(wanted.shape), wanted)

    assert mistakes(CASES, check) == []


def test_compiled_by_the_cpu_backend_a_record_means_what_the_numpy_oracle_says() -> None:
    kernels = [case.kernel(f"kernel_{number}") for number, case in enumerate(COMPILED)]
    entries: dict[str, Any] = {}
    for start in range(0, len(kernels), 500):
        entries |= CpuBackend().build([scalarise(kernel) for kernel in kernels[start : start + 500]])
    kernel_of = dict(zip(COMPILED, kernels, strict=True))

    def check(case: Case) -> None:
        kernel, operands, out = kernel_of[case], case.draw(), case.out()
        arrays = named(case, operands) | {"out": out}
        entries[kernel.name](pack(layout_of(kernel), [LANES], arrays))
        assert_close(case, out, expected(case, operands))

    assert mistakes(COMPILED, check) == []


@pytest.mark.nvrtc
def test_every_spelling_compiles_for_cuda() -> None:
    spelled = [case for case in cases((bool_, int32, uint8, float32)) if case.op.cpp is not None]
    kernels = [scalarise(case.kernel(f"kernel_{number}")) for number, case in enumerate(spelled)]
    ptx = compile_to_ptx(emit(kernels, Cuda()).text)
    assert ptx.count(".visible .entry") == len(kernels)


def directions(case: Case, seed: int) -> dict[str, Numpy]:
    """A random tangent for each operand that has one."""
    rng = np.random.default_rng(seed)
    operands = named(case, case.draw())
    return {name: rng.uniform(-1, 1, operands[name].shape) for name in case.active}


def test_the_tangent_is_what_central_differences_say() -> None:
    def check(case: Case) -> None:
        operands, dots = case.draw(1), directions(case, 2)
        narrow = scalar_of(case.result) != float64
        # Conversions to narrower floats round away small steps; being linear, they allow a large one.
        assert not narrow or isinstance(case.op.derivative, Linear)
        step, tolerance = (1.0, 4e-3) if narrow else (1e-6, 1e-6)
        ends = [interp.evaluate(case.function(), *moved(case, operands, dots, s))[0] for s in (step, -step)]
        slope = (ends[0].astype(float) - ends[1]) / (2 * step)
        np.testing.assert_allclose(tangent(case, operands, dots), slope, rtol=tolerance, atol=tolerance)

    assert mistakes([case for case in DIFFERENTIABLE if "surrogate" not in case.op.tags], check) == []


def moved(case: Case, operands: list[Numpy], dots: dict[str, Numpy], step: float) -> list[Numpy]:
    return [x + step * dots[name] if name in dots else x for name, x in named(case, operands).items()]


def inner(a: Numpy, b: Numpy) -> Numpy:
    """The inner product of each lane."""
    return np.sum((a.astype(float) * b).reshape(LANES, -1), axis=1)


def test_the_adjoint_is_the_transpose_of_the_tangent() -> None:
    def check(case: Case) -> None:
        operands, dots = case.draw(3), directions(case, 4)
        w = np.random.default_rng(5).uniform(-1, 1, case.out().shape).astype(case.out().dtype)
        bars = cotangents(case, operands, w)
        forward = inner(w, tangent(case, operands, dots))
        backward = sum(inner(bars[name], dots[name]) for name in case.active)
        tolerance = {float16: 1e-3, float32: 1e-6, float64: 1e-11}[scalar_of(case.result)]
        np.testing.assert_allclose(backward, forward, rtol=tolerance, atol=tolerance)

    assert mistakes(DIFFERENTIABLE, check) == []


def tangent_of_the_adjoint(case: Case, arrays: dict[str, Numpy], dots: dict[str, Numpy]) -> dict[str, Numpy]:
    adjoint = vjp(case.kernel("kernel"), [*case.active, "out"]).adjoint
    bars = [f"{name}_bar" for name in case.active]
    pushed: Function = verify(jvp(adjoint, [*case.active, *bars]))
    zero = {f"{name}_bar": np.zeros_like(arrays[name]) for name in case.active}
    moving = {f"{name}_dot": dots[name] for name in case.active}
    found = {f"{name}_bar_dot": np.zeros_like(arrays[name]) for name in case.active}
    interp.run(pushed, [LANES], arrays | zero | moving | found)
    return {name: found[f"{name}_bar_dot"] for name in case.active}


def test_the_tangent_of_the_adjoint_is_what_differences_of_the_adjoint_say() -> None:
    def check(case: Case) -> None:
        operands, dots = case.draw(6), directions(case, 7)
        w = np.random.default_rng(8).uniform(-1, 1, case.out().shape)
        arrays = named(case, operands) | {"out": case.out(), "out_bar": w.copy()}
        second = tangent_of_the_adjoint(case, arrays, dots)
        step = 1e-6
        ends = [cotangents(case, moved(case, operands, dots, s), w) for s in (step, -step)]
        for name in case.active:
            slope = (ends[0][name] - ends[1][name]) / (2 * step)
            np.testing.assert_allclose(second[name], slope, rtol=1e-5, atol=1e-5)

    assert mistakes([case for case in DIFFERENTIABLE if scalar_of(case.result) == float64], check) == []


EDGES = (0.0, 1.0, -1.0)


def at_edge(case: Case, edge: float) -> list[Numpy]:
    drawn = named(case, case.draw())
    return [np.full_like(x, edge) if name in case.active else x for name, x in drawn.items()]


@pytest.mark.parametrize("edge", EDGES)
def test_a_zero_cotangent_stays_zero_at_the_edge_of_the_domain(edge: float) -> None:
    def check(case: Case) -> None:
        operands = at_edge(case, edge)
        for bar in cotangents(case, operands, zeros(case.result)).values():
            np.testing.assert_array_equal(bar, 0.0)

    assert mistakes(DIFFERENTIABLE, check) == []


@pytest.mark.parametrize("edge", EDGES)
def test_a_zero_tangent_stays_zero_at_the_edge_of_the_domain(edge: float) -> None:
    def check(case: Case) -> None:
        operands = at_edge(case, edge)
        dots = {name: np.zeros_like(x) for name, x in named(case, operands).items() if name in case.active}
        np.testing.assert_array_equal(tangent(case, operands, dots), 0.0)

    assert mistakes(DIFFERENTIABLE, check) == []
