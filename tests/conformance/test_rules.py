"""The language, one rule a test: on the interpreter, as machine code, and its derivatives."""

import numpy as np
import pytest

from kernelab.backend.base import Entry
from kernelab.lang.ir import Function
from tests.conformance.rule import build, compiled, derived, interpreted, rules

RULES = rules()


@pytest.fixture(scope="module")
def functions() -> dict[str, Function]:
    return {name: one.function(f"rule_{k}") for k, (name, one) in enumerate(RULES.items())}


@pytest.fixture(scope="module")
def entries(functions: dict[str, Function]) -> dict[str, Entry]:
    return build(list(functions.values()))


@pytest.mark.parametrize("name", RULES)
def test_the_rule_holds_on_the_interpreter(name: str, functions: dict[str, Function]) -> None:
    found = interpreted(functions[name], RULES[name])
    np.testing.assert_allclose(found, RULES[name].gives, 1e-6, 1e-6)


@pytest.mark.parametrize("name", RULES)
def test_the_rule_holds_in_machine_code(
    name: str, functions: dict[str, Function], entries: dict[str, Entry]
) -> None:
    found = compiled(entries[functions[name].name], functions[name], RULES[name])
    np.testing.assert_allclose(found, RULES[name].gives, 1e-6, 1e-6)


@pytest.mark.parametrize("name", [name for name, one in RULES.items() if one.smooth])
def test_its_derivatives_are_those_of_what_it_computes(name: str, functions: dict[str, Function]) -> None:
    found = derived(functions[name], RULES[name])
    assert found.agree(), found
