"""Names of generated C++."""

import re

import numpy as np
import pytest

import kernelab as kl
from kernelab.codegen.cpp.cuda_target import Cuda
from kernelab.codegen.cpp.emitter import emit
from kernelab.codegen.cpp.entry import Unit
from kernelab.codegen.cpp.helpers import RESERVED, Names, identifier
from kernelab.codegen.cpp.targets import Cpu
from kernelab.codegen.vectors.vector_emitter import emit_vectors
from kernelab.codegen.vectors.vector_helpers import NAMES
from kernelab.codegen.vectors.vector_operations import Lanes
from kernelab.lang.ir import Var
from kernelab.lang.types import float32
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.scalarise import scalarise
from tests.codegen import kernels
from tests.support.lowering import lowered


def test_a_hint_is_kept_and_its_repetition_is_numbered() -> None:
    name = Names()
    first, second = Var(float32, "s"), Var(float32, "s")
    assert [name(first), name(second), name(first)] == ["s", "s_1", "s"]


def test_a_number_never_runs_into_a_hint_that_ends_in_digits() -> None:
    name = Names()
    found = [name(Var(float32, hint)) for hint in ("c1", "c_1", "c", "c", "c1")]
    assert found == ["c1", "c_1", "c", "c_2", "c1_1"]


def test_words_of_the_language_and_of_mathematics_are_not_given_out() -> None:
    name = Names()
    found = [name(Var(float32, hint)) for hint in ("double", "sinf", "thread", "threadIdx")]
    assert found == ["double_1", "sinf_1", "thread_1", "threadIdx_1"]


def test_letters_of_other_alphabets_are_spelled_out() -> None:
    assert identifier("α") == "alpha"
    assert identifier("Δx") == "deltax"
    assert identifier("变") != identifier("x")


def test_what_is_no_identifier_becomes_one() -> None:
    assert [identifier(hint) for hint in ("a.b", "2x", "", "__x__")] == ["a_b", "t2x", "t", "x"]


def test_the_names_around_a_parameter_belong_to_it_alone() -> None:
    name = Names()
    assert name.family(Var(float32, "x_n0"), []) == "x_n0"
    assert name.family(Var(float32, "x"), ["_n0"]) == "x_1"
    assert name(Var(float32, "x_1_n0")) == "x_1_n0_1"


RING = """
def ring(x: array[float], y: array[float], n: int):
    i = tid()
    for k in range(3):
        y[(i + k) % n] += x[min(i + 1, n - 1)]
"""


@pytest.mark.parametrize("flavor", [Cpu(), Cpu(is_optimised=True), Cuda()])
def test_no_variable_of_a_kernel_can_have_a_name_that_the_text_around_it_uses(flavor: Cpu | Cuda) -> None:
    descending = vjp(kernels.saxpy().function, ("x", "y")).adjoint
    functions = [kernels.appending(), kernels.saving().function, descending, lowered(RING, "ring")]
    assert not open_names(emit([scalarise(function) for function in functions], flavor), RESERVED)


@pytest.mark.parametrize("lanes", [Lanes(8), Lanes(4, doubles=True)])
def test_so_it_is_with_vector_code(lanes: Lanes) -> None:
    text = RING.replace("float", "float64") if lanes.doubles else RING
    assert not open_names(emit_vectors(scalarise(lowered(text, "ring")), lanes), RESERVED | NAMES)


def open_names(unit: Unit, reserved: frozenset[str]) -> list[str]:
    """The names in the bodies of a unit that a variable of a kernel could have, too."""
    body = "\n".join(unit.text.splitlines()[unit.entries[0].lines.start :])
    found = set(re.findall(r"(?<![.\w])[A-Za-z_]\w*", re.sub(r"//.*|__attribute__\(\(\w+\)\)", "", body)))
    hints = r"(x|y|a|s|c|k|kk|n|i|f|t|odd|three|kept|flags|slots|C)(_\w+)?"
    entries = "|".join(entry.symbol for entry in unit.entries)
    given = rf"__.*|{hints}|({entries})(_args)?|lanes_\d+"
    return [name for name in found - reserved if not re.fullmatch(given, name)]


def test_a_variable_may_be_called_as_the_text_around_it_calls_something() -> None:
    text = """
    def sums(x: array[float], known: int, run: int, y: array[float]):
        i = tid()
        v = x[i] + float(known)
        for k in range(3):
            v = sqrt(v * v + float(run))
        y[(i + 1) % 70000] += v
    """
    y = kl.zeros(70_000)
    kl.launch(kl.compile(text)["sums"], len(y), [kl.zeros(len(y)), 5, 1, y])
    np.testing.assert_allclose(y.numpy(), 28.0**0.5, 1e-6)
