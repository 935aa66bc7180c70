"""Programs that nobody chose: meaning, derivatives and machine code agree; they use the whole language.

Each program is checked against the same text run as plain Python, by three derivatives and with its loops
written out (`tests.support.programs`); many in one build are run by g++ and by the interpreter.  `make fuzz`
tries as many more as there is time for, and prints a test for what it finds.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kernelab.backend.common import backends
from kernelab.backend.cpu import interpreter
from kernelab.backend.cpu.cpu_backend import CpuBackend
from kernelab.backend.cuda.nvrtc import compile_to_ptx
from kernelab.codegen.cpp.cuda_target import Cuda
from kernelab.codegen.cpp.emitter import emit
from kernelab.lang.ir import Function
from kernelab.lang.verify import verify
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.copying import inline
from kernelab.passes.common.scalarise import scalarise
from kernelab.passes.common.simplify import simplify
from tests.strategies import GRID, LAYOUTS, Memory, exact, programs
from tests.strategies.features import EXPECTED, EXPECTED_IR, features, statements
from tests.support.lowering import lowered, raw
from tests.support.programs import Point, active, complete, same_memory, second_order
from tests.support.reproducer import checked
from tests.support.second import forward_over_reverse, reverse_over_reverse

SHARDS, PROGRAMS = 12, 8
"""The programs of the normal run: one test a shard, so that processes share them; `make fuzz` tries more."""


def examples(count: int, **options: Any) -> settings:
    """Settings for programs, which are large and take a while; the phases are those of the profile."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(
        max_examples=count, deadline=None, derandomize=True, suppress_health_check=slow, **options
    )


@pytest.mark.parametrize("shard", [0, *(pytest.param(k, marks=pytest.mark.long) for k in range(1, SHARDS))])
def test_meaning_adjoint_tangent_differences_and_unrolled_loops_agree(shard: int) -> None:
    count = Counter[str]()

    @hypothesis.seed(shard)
    @examples(PROGRAMS, database=None)
    @given(programs(), st.sampled_from(list(LAYOUTS)))
    def check(text: str, layout: str) -> None:
        outcome = checked(text, layout, shard)
        count.update(tried=1, trusted=outcome.trusted, unrolled=outcome.unrolled)

    check()
    assert count["tried"] >= PROGRAMS
    assert count["trusted"] >= 0.95 * count["tried"], "too many programs whose differences say nothing"
    assert count["unrolled"] >= 0.25 * count["tried"], "too few programs with loops to write out"


@pytest.mark.long
@hypothesis.seed(7)
@examples(24, database=None)
@given(programs(), st.sampled_from(list(LAYOUTS)))
def test_derivatives_of_the_tangent_agree(text: str, layout: str) -> None:
    checked(text, layout, 0, second_order)


@pytest.mark.long
@hypothesis.seed(8)
@examples(12, database=None)
@given(programs(), st.sampled_from(list(LAYOUTS)), st.integers(0, 2))
def test_the_tangent_of_the_adjoint_is_the_adjoint_of_the_tangent(text: str, layout: str, point: int) -> None:
    checked(text, layout, point, forward_over_reverse)


@pytest.mark.long
@hypothesis.seed(9)
@examples(12, database=None)
@given(programs(), st.sampled_from(list(LAYOUTS)), st.integers(0, 2))
def test_the_adjoint_of_the_adjoint_agrees_with_its_tangent(text: str, layout: str, point: int) -> None:
    checked(text, layout, point, reverse_over_reverse)


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


@pytest.mark.long
def test_programs_use_every_feature_of_the_language() -> None:
    texts = drawn(320, seed=0)
    found = sum((features(text) for text in texts), Counter[str]())
    assert [name for name in EXPECTED if not found[name]] == []
    lowered_ones = sum((statements(lowered(text, "program")) for text in texts[::3]), Counter[str]())
    assert [name for name in EXPECTED_IR if not lowered_ones[name]] == []


@pytest.mark.parametrize("seed", range(40))
def test_simplification_keeps_the_meaning_to_the_last_bit(seed: int) -> None:
    (text,) = drawn(1, seed)
    before = verify(inline(raw(text, "program")))
    point = Point.drawn("apart", seed)
    assert np.array_equal(point.ran(before), point.ran(verify(simplify(before))))


def renamed(function: Function, name: str) -> Function:
    return Function(name, function.params, function.body, function.threads, function.span, function.linear)


def derived(function: Function, number: int, layout: str) -> list[Function]:
    """A program and those derived from it, under names of their own."""
    names = active(function)
    groups = [[function.param(name) for name in group] for group in Memory(layout).groups]
    adjoint = vjp(function, names, groups).adjoint
    kinds = {"primal": function, "tangent": jvp(function, names), "adjoint": adjoint}
    return [renamed(made, f"{kind}_{number}") for kind, made in kinds.items()]


def compare(texts: list[str], grid: tuple[int, ...], same: Callable[[Any, Any], None]) -> None:
    """Build all programs with their derivatives as one unit, and run each on both backends."""
    primals = [lowered(text, "program") for text in texts]
    layouts = [list(LAYOUTS)[number % len(LAYOUTS)] for number in range(len(texts))]
    families = [derived(*each) for each in zip(primals, range(len(texts)), layouts, strict=True)]
    everything = [program for family in families for program in family]
    entries = CpuBackend().build([scalarise(program) for program in everything])
    for number, (function, family) in enumerate(zip(primals, families, strict=True)):
        point = Point.drawn(layouts[number], number)
        for program in family:
            arguments = complete(function, program, point, grid)
            compiled, interpreted = same_memory(arguments), same_memory(arguments)
            entry = entries[program.name]
            entry(backends.pack(entry.info.layout, grid, compiled))
            interpreter.run(program, grid, interpreted)
            for name in arguments:
                same(compiled[name], interpreted[name])


@pytest.mark.parametrize("seed", [1, *(pytest.param(k, marks=pytest.mark.long) for k in (3, 4, 5))])
def test_machine_code_equals_the_interpreter(seed: int) -> None:
    compare(drawn(6, seed), GRID, lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9))


@pytest.mark.long
def test_machine_code_equals_the_interpreter_to_the_last_bit_without_the_mathematical_library() -> None:
    # One thread: several would accumulate into shared elements in another order.
    compare([exact(text) for text in drawn(16, seed=2)], (1,), np.testing.assert_array_equal)


@pytest.mark.long
@pytest.mark.nvrtc
def test_random_programs_compile_for_cuda() -> None:
    primals = [lowered(text, "program") for text in drawn(6, seed=3)]
    families = [derived(function, number, "apart") for number, function in enumerate(primals)]
    everything = [scalarise(program) for family in families for program in family]
    text = compile_to_ptx(emit(everything, Cuda()).text)
    assert text.count(".visible .entry") == len(everything)
