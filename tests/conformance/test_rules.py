"""The language, one rule a test: on the interpreter, as machine code, and its derivatives."""

import contextlib

import numpy as np
import pytest

from kernelab.backend.common.backends import Entry
from kernelab.errors import KernelError
from kernelab.lang.ir import Function
from tests.conformance.rule import build, compiled, derived, interpreted, rules

RULES = rules()


class _Functions(dict[str, Function]):
    """The kernels of the rules, each lowered when it is first asked for."""

    def __missing__(self, name: str) -> Function:
        self[name] = RULES[name].function(f"rule_{list(RULES).index(name)}")
        return self[name]


@pytest.fixture(scope="module")
def functions() -> _Functions:
    return _Functions()


@pytest.fixture(scope="module")
def entries(functions: _Functions) -> dict[str, Entry]:
    """Machine code for all rules that lower, in one build."""
    for name in RULES:
        with contextlib.suppress(KernelError):  # the rule's own test tells
            functions[name]
    return build(list(functions.values()))


@pytest.mark.parametrize("name", RULES)
def test_the_rule_holds_on_the_interpreter(name: str, functions: _Functions) -> None:
    found = interpreted(functions[name], RULES[name])
    np.testing.assert_allclose(found, RULES[name].gives, 1e-6, 1e-6)


@pytest.mark.parametrize("name", RULES)
def test_the_rule_holds_in_machine_code(name: str, functions: _Functions, entries: dict[str, Entry]) -> None:
    found = compiled(entries[functions[name].name], functions[name], RULES[name])
    np.testing.assert_allclose(found, RULES[name].gives, 1e-6, 1e-6)


@pytest.mark.parametrize("name", [name for name, one in RULES.items() if one.smooth])
def test_its_derivatives_are_those_of_what_it_computes(name: str, functions: _Functions) -> None:
    found = derived(functions[name], RULES[name])
    assert found.agree(), found
