"""Programs that nobody chose: meaning, derivatives and machine code agree.

Each is checked against the same text run as plain Python, by three derivatives, and, many in one build, by
comparing g++ with the interpreter.
"""

import math
from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from kernelab.backend import interp, packing
from kernelab.backend.cpu import CpuBackend
from kernelab.backend.nvrtc import compile_to_ptx
from kernelab.codegen.cpp import emit
from kernelab.codegen.flavors import Cuda
from kernelab.lang.ir import Function
from kernelab.lang.verify import verify
from kernelab.passes.inline import inline
from kernelab.passes.jvp import jvp
from kernelab.passes.scalarise import scalarise
from kernelab.passes.simplify import simplify
from kernelab.passes.vjp import vjp
from tests.strategies import COLUMNS, ROWS, exact, programs
from tests.support import evaluate as oracle
from tests.support import python_oracle
from tests.support.derivatives import Arguments, active_names, derivatives, run
from tests.support.lowering import lowered, raw

Grid = tuple[int, ...]
GRID: Grid = (ROWS,)
NDIMS = {"x": 1, "n": 1, "a": 2, "out": 2}


def examples(count: int, **options: Any) -> settings:
    """Settings for programs, which are large and take a while."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(
        max_examples=count, deadline=None, derandomize=True, suppress_health_check=slow, **options
    )


def draw_arguments(seed: int) -> Arguments:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.normal(size=ROWS + COLUMNS),
        "n": rng.integers(0, 4, ROWS).astype(np.int32),
        "a": rng.normal(size=(ROWS, COLUMNS)),
        "out": np.zeros((ROWS, COLUMNS)),
    }


@examples(120)
@given(programs())
def test_a_program_means_what_its_text_means_in_python(text: str) -> None:
    arguments = draw_arguments(len(text))
    expected = python_oracle.run(text, "program", GRID, arguments, NDIMS, atan=math.atan)
    found = run(lowered(text, "program"), GRID, arguments)
    for name in ("a", "out"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, atol=1e-12)


@examples(60)
@given(programs())
def test_simplification_keeps_the_meaning_to_the_last_bit(text: str) -> None:
    arguments = draw_arguments(len(text))
    before = verify(inline(raw(text, "program")))
    after = verify(simplify(before))
    plain, simple = run(before, GRID, arguments), run(after, GRID, arguments)
    for name in ("a", "out"):
        np.testing.assert_array_equal(plain[name], simple[name])


@examples(120)
@given(programs())
def test_adjoint_tangent_and_differences_agree(text: str) -> None:
    function, arguments = lowered(text, "program"), draw_arguments(len(text))
    # Near a kink differences of one step may straddle it: those of a smaller step then do not.
    attempts = [(1e-5, 1e-5), (1e-6, 1e-4), (1e-7, 1e-3)]
    for attempt, (step, tolerance) in enumerate(attempts):
        found = derivatives(function, GRID, arguments, np.random.default_rng(attempt), step)
        if found.agree(exactly=1e-9, roughly=tolerance):
            return
    raise AssertionError(found)


def drawn(count: int, seed: int) -> list[str]:
    """The texts of some programs, always the same."""
    texts: list[str] = []

    @hypothesis.seed(seed)
    @examples(count, database=None, phases=[Phase.generate])
    @given(programs())
    def collect(text: str) -> None:
        texts.append(text)

    collect()
    return texts


def renamed(function: Function, name: str) -> Function:
    return Function(name, function.params, function.body, function.threads, function.span, function.linear)


def derived(function: Function, number: int) -> list[Function]:
    """A program and those derived from it, under names of their own."""
    names = active_names(function)
    adjoint = vjp(function, names).adjoint
    kinds = {"primal": function, "tangent": jvp(function, names), "adjoint": adjoint}
    return [renamed(made, f"{kind}_{number}") for kind, made in kinds.items()]


def complete(function: Function, program: Function, grid: Grid, arguments: Arguments) -> Arguments:
    """Arguments for a derived program: random tangents or cotangents, and what the primal keeps."""
    rng = np.random.default_rng(3)
    found = dict(arguments)
    reverse = vjp(function, active_names(function))
    kept = oracle.evaluate(reverse.primal, grid, {name: np.array(value) for name, value in arguments.items()})
    for residual in reverse.residuals:
        name = residual.array.hint
        found[name] = np.array(kept[name], residual.type.dtype)  # type: ignore[union-attr]
        found[residual.starts.hint] = np.array([start[name] for start in kept["starts"]], np.int64)
    for param in program.params:
        base, _, suffix = param.hint.rpartition("_")
        if suffix in ("dot", "bar"):
            found[param.hint] = rng.normal(size=arguments[base].shape)
    return {param.hint: found[param.hint] for param in program.params}


def compare(texts: list[str], grid: Grid, same: Callable[[Any, Any], None]) -> None:
    """Build all programs with their derivatives as one unit, and run each on both backends."""
    primals = [lowered(text, "program") for text in texts]
    families = [derived(function, number) for number, function in enumerate(primals)]
    everything = [program for family in families for program in family]
    entries = CpuBackend().build([scalarise(program) for program in everything])
    for number, (function, family) in enumerate(zip(primals, families, strict=True)):
        for program in family:
            arguments = complete(function, program, grid, draw_arguments(number))
            compiled, interpreted = ({k: np.array(v) for k, v in arguments.items()} for _ in range(2))
            entry = entries[program.name]
            entry(packing.pack(entry.info.layout, grid, compiled))
            interp.run(program, grid, interpreted)
            for name in arguments:
                same(compiled[name], interpreted[name])


def test_machine_code_equals_the_interpreter() -> None:
    compare(drawn(50, seed=1), GRID, lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9))


def test_machine_code_equals_the_interpreter_to_the_last_bit_without_the_mathematical_library() -> None:
    # One thread: several would accumulate into shared elements in another order.
    compare([exact(text) for text in drawn(20, seed=2)], (1,), np.testing.assert_array_equal)


@pytest.mark.nvrtc
def test_random_programs_compile_for_cuda() -> None:
    families = [derived(lowered(text, "program"), number) for number, text in enumerate(drawn(12, seed=3))]
    everything = [scalarise(program) for family in families for program in family]
    text = compile_to_ptx(emit(everything, Cuda()).text)
    assert text.count(".visible .entry") == len(everything)
