"""What holds of every record of the table, at every type: generated, so that a new record needs no test."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from kernelab.backend.common.backends import pack
from kernelab.backend.cpu.cpu_backend import CpuBackend
from kernelab.backend.cuda.nvrtc import compile_to_ptx
from kernelab.codegen.cpp.cuda_target import Cuda
from kernelab.codegen.cpp.emitter import emit
from kernelab.codegen.cpp.entry import layout_of
from kernelab.lang import ops
from kernelab.lang.ir import Function
from kernelab.lang.ops import Op
from kernelab.lang.types import (
    SCALARS,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int32,
    scalar_of,
    uint8,
    uint32,
)
from kernelab.passes.common.scalarise import scalarise
from tests.support.checks import (
    adjoint_is_the_transpose,
    assert_close,
    edge_operands,
    expansion_is_the_oracle,
    same_at_edges,
    second_order_is_the_slope,
    tangent_is_the_slope,
    zero_cotangent_stays_zero,
    zero_tangent_stays_zero,
)
from tests.support.table import LANES, NAMES, Case, Numpy, cases, expected, is_reachable, kernel_of, named

RECORDS = [op for name in NAMES for op in ops.overloads(name)]
CASES = list(cases(SCALARS))
SPELLED = (bool_, int32, uint8, float16, bfloat16, float32, float64)
# What is not an operation over scalars becomes such operations before it is compiled: one width will do.
COMPILED = [case for case in cases(SPELLED) if case.op.cpp is not None] + [
    case for case in cases((bool_, int32, float32)) if case.op.cpp is None
]
RANDOM = [
    case
    for case in cases((int32, uint32, float32, float64))
    if uint32 in [param.pattern for param in case.op.params]
]
COMPILED += [case for case in RANDOM if float64 not in map(scalar_of, (case.result, *case.types))]
COMPILED = list(dict.fromkeys(COMPILED))
DIFFERENTIABLE = [case for case in cases((bool_, int32, float64)) if case.active]
DIFFERENTIABLE += [case for case in RANDOM if case.active and scalar_of(case.result) == float64]


def mistakes(items: list[Case], check: Callable[[Case], None]) -> list[str]:
    """What the check says of each case that fails it."""
    found = []
    for case in items:
        try:
            check(case)
        except AssertionError as error:
            found.append(f"{case.name}: {error}")
    return found


@pytest.mark.parametrize("op", RECORDS, ids=lambda op: op.name)
def test_a_record_is_complete(op: Op) -> None:
    assert op.doc.endswith((".", "NaN."))
    assert len(op.domain) == len(op.params)
    assert (op.cpp is None) != (op.expand is None)


def test_every_record_is_met_by_the_generated_tests() -> None:
    assert {case.op for case in CASES} == set(RECORDS)


def test_operands_of_its_types_get_the_record_and_no_earlier_overload() -> None:
    assert [case.name for case in CASES if not is_reachable(case)] == []


@pytest.mark.long
def test_the_expansion_into_scalars_means_what_the_numpy_oracle_says() -> None:
    assert mistakes([case for case in CASES if rounds_as_the_oracle(case)], expansion_is_the_oracle) == []


def rounds_as_the_oracle(case: Case) -> bool:
    """NumPy computes a composed bfloat16 in float32 and rounds once, its expansion after each operation."""
    return case.op.cpp is not None or bfloat16 not in map(scalar_of, (case.result, *case.types))


@cache
def compiled() -> list[tuple[dict[str, Case], Function, Callable[[Any], None]]]:
    """Kernels that apply ten records each, which compiles faster than a kernel for each record."""
    groups = [
        {f"_{number}": case for number, case in enumerate(COMPILED[start : start + 10])}
        for start in range(0, len(COMPILED), 10)
    ]
    functions = [kernel_of(f"kernel_{number}", group) for number, group in enumerate(groups)]
    entries: dict[str, Any] = {}
    for start in range(0, len(functions), 40):
        entries |= CpuBackend().build([scalarise(function) for function in functions[start : start + 40]])
    return [
        (group, function, entries[function.name]) for group, function in zip(groups, functions, strict=True)
    ]


def computed(operands: Callable[[Case], list[Numpy]]) -> dict[Case, Numpy]:
    """What machine code makes of the operands of each record."""
    results = {case: case.out() for case in COMPILED}
    for group, function, entry in compiled():
        arrays = {
            name + suffix: array
            for suffix, case in group.items()
            for name, array in (named(case, operands(case)) | {"out": results[case]}).items()
        }
        entry(pack(layout_of(function), [LANES], arrays))
    return results


def test_compiled_by_the_cpu_backend_a_record_means_what_the_numpy_oracle_says() -> None:
    found = computed(Case.draw)
    assert mistakes(COMPILED, lambda case: assert_close(case, found[case], expected(case, case.draw()))) == []


def test_compiled_by_the_cpu_backend_it_does_so_at_the_edges_of_its_types() -> None:
    found, sharp = computed(edge_operands), [case for case in COMPILED if has_edges(case)]
    assert mistakes(sharp, lambda case: same_at_edges(case, found[case], edge_operands(case))) == []


def has_edges(case: Case) -> bool:
    """Whether a record says what it does at the edges of its types.

    A float that is out of range converts to any integer.  `erfcinv` of a denormal number has three digits,
    as the exponential that it is computed by is denormal too.
    """
    whole = not scalar_of(case.result).is_float and case.op.name == str(case.result)
    return not (whole and scalar_of(case.types[0]).is_float) and case.op.name != "erfcinv"


@pytest.mark.nvrtc
def test_every_spelling_compiles_for_cuda() -> None:
    spelled = [case for case in cases((bool_, int32, uint8, float32)) if case.op.cpp is not None]
    kernels = [scalarise(case.kernel(f"kernel_{number}")) for number, case in enumerate(spelled)]
    ptx = compile_to_ptx(emit(kernels, Cuda()).text)
    assert ptx.count(".visible .entry") == len(kernels)


def test_the_tangent_is_what_central_differences_say() -> None:
    proper = [case for case in DIFFERENTIABLE if "surrogate" not in case.op.tags]
    assert mistakes(proper, tangent_is_the_slope) == []


def test_the_adjoint_is_the_transpose_of_the_tangent() -> None:
    assert mistakes(DIFFERENTIABLE, adjoint_is_the_transpose) == []


@pytest.mark.long
def test_the_tangent_of_the_adjoint_is_what_differences_of_the_adjoint_say() -> None:
    wide = [case for case in DIFFERENTIABLE if scalar_of(case.result) == float64]
    assert mistakes(wide, second_order_is_the_slope) == []


def test_a_zero_cotangent_stays_zero_at_the_edges_of_the_domain() -> None:
    assert mistakes(DIFFERENTIABLE, zero_cotangent_stays_zero) == []


def test_a_zero_tangent_stays_zero_at_the_edges_of_the_domain() -> None:
    assert mistakes(DIFFERENTIABLE, zero_tangent_stays_zero) == []
