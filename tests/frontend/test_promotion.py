"""Promotion: literals are weak, ints become floats beside floats, and widths do not mix silently."""

import numpy as np
import pytest

from kernelab.lang.ir import For, Let, Var, walk
from kernelab.lang.types import Type, float32, float64, int32, int64
from tests.frontend.helpers import agrees_with_python, error, errors, function, ran
from tests.frontend.programs import DoubleWriter

HEAD = "def kernel(x: array[float], d: array[float64], n: int, m: int64, k: array[int]):\n    "


def type_of(expression: str, **namespace: object) -> Type:
    """The type that a variable gets from an expression."""
    text = HEAD + f"value = {expression}\n    value = where(n > 0, value, value)\n"
    lowered = function(text, **namespace)
    return next(
        stmt.args[1].type for stmt in lowered.body.stmts if isinstance(stmt, Let) and stmt.op.name == "where"
    )


@pytest.mark.parametrize(
    ("expression", "type"),
    [
        ("x[0] * 2", float32),
        ("d[0] * 2", float64),
        ("d[0] * 0.1", float64),
        ("2 - x[0]", float32),
        ("n + 1", int32),
        ("m + 1", int64),
        ("n + 0.5", float32),
        ("n * x[0]", float32),
        ("n * d[0]", float64),
        ("m * x[0]", float32),
        ("n / n", float32),
        ("m / m", float64),
        ("n // 2", int32),
        ("d[0] ** 2", float64),
        ("sqrt(n)", float32),
        ("sqrt(d[0])", float64),
        ("min(n, 3)", int32),
        ("min(d[0], 3)", float64),
        ("float(d[0])", float32),
        ("float64(x[0])", float64),
        ("int(x[0])", int32),
        ("int64(n)", int64),
        ("x[0] if n > 0 else 0", float32),
        ("0 if n > 0 else d[0]", float64),
        ("1 if n > 0 else 2", int32),
        ("1 if n > 0 else 2.0", float32),
        ("G * d[0]", float64),
        ("G * x[0]", float32),
        ("WIDE * 2", float64),
        ("COUNT + n", int32),
    ],
)
def test_an_expression_has_the_type_that_promotion_gives(expression: str, type: Type) -> None:
    assert type_of(expression, G=9.81, WIDE=np.float64(2.5), COUNT=3) == type


@pytest.mark.parametrize(
    ("expression", "message", "hint"),
    [
        ("x[0] + d[0]", "cannot add float32 and float64", "write float64(x[0])"),
        ("n * m", "cannot multiply int32 by int64", "write int64(n)"),
        ("x[0] < d[0]", "cannot compare float32 with float64", "write float64(x[0])"),
        (
            "where(n > 0, x[0], d[0])",
            "where(condition, a, b) does not take (bool, float32, float64)",
            "write float64(x[0])",
        ),
        ("(x[0] > 0) + 1", "cannot add bool and int", "turn the truth value into a number"),
        ("n + 3000000000", "3000000000 does not fit int32", "write int64(3000000000)"),
        ("float(uint32(-1))", "-1 does not fit uint32", "write uint32(4294967295) for its low bits"),
        ("x[0] * 1e50", "1e+50 does not fit float32", "write float64"),
        ("vec3(1.0) + 1.0", "cannot add vec3 and float", "write vec3(1.0)"),
        ("vec3(1.0) * vec2(1.0)", "cannot multiply vec3 by vec2", ""),
        ("vec3(1.0) < vec3(2.0)", "cannot compare vec3 with vec3", ""),
        ("x[0] & 1", "& does not take float32 and int", ""),
        ("n ** n", "the power of two int variables", "write float(n) ** n"),
        ("x[0] @ x[1]", "@ multiplies matrices and vectors", "write *"),
        ("sin(vec3(1.0))", "sin takes (x: float), not (vec3)", ""),
        ("atan2(x[0])", "atan2 takes (y: float, x: float), not (float32)", ""),
    ],
)
def test_types_that_do_not_go_together_are_refused(expression: str, message: str, hint: str) -> None:
    found = error(HEAD + f"value = {expression}\n")
    assert message in found.message
    assert hint in found.hint


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("x[0] * WIDE", "write float(WIDE)"),
        ("WIDE - x[0]", "write float(WIDE)"),
        ("NARROW + d[0]", "write float64(NARROW)"),
        ("where(n > 0, x[0], WIDE)", "write float(WIDE)"),
        ("n * LONG", "write int(LONG)"),
        ("WIDE * NARROW", "write float64(NARROW)"),
    ],
)
def test_a_captured_number_is_what_is_converted(expression: str, hint: str) -> None:
    captured = {"WIDE": np.float64(2.5), "NARROW": np.float32(0.5), "LONG": np.int64(3)}
    assert error(HEAD + f"value = {expression}\n", **captured).hint == hint
    converted = expression.replace(hint[len("write ") :].split("(")[1][:-1], hint.removeprefix("write "))
    assert type_of(converted, **captured) is not None


def carried(text: str) -> list[Type]:
    """The types that the loops of a kernel carry."""
    return [var.type for stmt in walk(function(text).body) if isinstance(stmt, For) for var in stmt.carries]


def test_a_sum_that_starts_at_the_literal_zero_gets_the_type_of_what_is_added() -> None:
    assert carried(HEAD + "s = 0\n    for i in range(n):\n        s += d[i]\n    d[0] = s\n") == [float64]
    assert carried(HEAD + "s = 0.0\n    for i in range(n):\n        s += x[i]\n    x[0] = s\n") == [float32]


def test_a_counter_stays_an_int_beside_floats() -> None:
    assert carried(HEAD + "c = 0\n    for i in range(n):\n        c += 1\n    d[c] = c * d[0]\n") == [int32]


def test_the_type_of_a_sum_is_found_through_nested_loops() -> None:
    text = (
        HEAD
        + """s = 0
    for i in range(n):
        for j in range(n):
            if x[j] > 0:
                s = s + d[j]
    d[0] = s
"""
    )
    assert carried(text) == [float64, float64]


def test_the_type_of_a_sum_is_found_where_it_is_stored_only() -> None:
    text = HEAD + "s = 1\n    for i in range(n):\n        s = s * 0.1\n    d[0] = s\n"
    assert carried(text) == [float64]
    after = ran(text, x=np.zeros(1, np.float32), d=np.zeros(1), n=3, m=0, k=np.zeros(1, np.int32))
    assert after["d"][0] == pytest.approx(1e-3, rel=1e-14)


def test_the_type_of_a_sum_is_found_through_a_function() -> None:
    text = (
        "def twice(v):\n    return v * 2\n"
        + HEAD
        + """s = 0.0
    for i in range(n):
        s = twice(s) + d[i]
    d[0] = s
"""
    )
    assert carried(text) == [float64]


def test_a_literal_chosen_by_an_if_takes_the_type_of_its_use() -> None:
    text = HEAD + "g = 0.1\n    if n > 0:\n        g = 0.3\n    d[0] = g * d[1]\n"
    after = ran(text, x=np.zeros(1, np.float32), d=np.ones(2), n=1, m=0, k=np.zeros(1, np.int32))
    assert after["d"][0] == 0.3


def test_literals_are_computed_in_the_precision_of_python() -> None:
    after = ran(
        HEAD + "d[0] = 1.0 / 3.0 * d[1]\n",
        x=np.zeros(1, np.float32),
        d=np.ones(2),
        n=1,
        m=0,
        k=np.zeros(1, np.int32),
    )
    assert after["d"][0] == 1.0 / 3.0


def test_an_int_is_stored_into_a_float_array_as_that_float() -> None:
    stored = function(HEAD + "x[0] = n\n").body.stmts[-1]
    assert isinstance(stored.value, Var)
    assert stored.value.type == float32


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("x[0] = d[0]", "x holds float32, not float64", "write float(d[0])"),
        ("d[0] = x[0]", "d holds float64, not float32", "write float64(x[0])"),
        ("k[0] = x[0]", "k holds int32, not float32", "write int(x[0])"),
        ("k[0] = 1.5", "1.5 cannot stand for int32", "write int(1.5)"),
        ("k[0] = m", "k holds int32, not int64", "write int(m)"),
        ("k[0] = n > 1", "k holds int32, not bool", "write int(n > 1)"),
        ("x[0] = True", "True cannot stand for float32", "write where("),
        ("x[0] = vec3(1.0)", "x holds float32, not vec3", "take one component"),
        ("x[0] += d[0]", "x holds float32, not float64", "write float(d[0])"),
        ("v = vec3(x[0], d[0], 1)", "a component of vec3 is float32, not float64", "write float(d[0])"),
        ("for i in range(x[0]):\n        pass", "a bound of range is an int, not float32", "write int(x[0])"),
        ("for i in range(n, m):\n        pass", "the bounds of range are int32 and int64", "write int(...)"),
        ("a: int = 2.5", "2.5 cannot stand for int32", "write int(2.5)"),
    ],
)
def test_a_conversion_that_could_surprise_is_refused(line: str, message: str, hint: str) -> None:
    found = error(HEAD + line + "\n")
    assert message in found.message
    assert hint in found.hint


@pytest.mark.parametrize(
    "body",
    [
        "s = x[0]\n    if n > 0:\n        s = n\n    x[0] = s",
        "s = n\n    for i in range(n):\n        s = x[i]\n    x[0] = s",
        "s = vec2(1.0)\n    for i in range(n):\n        s = x[i]\n    x[0] = s.x",
        "s = 0\n    for i in range(n):\n        s = vec2(x[i])\n    x[0] = s.x",
    ],
)
def test_a_variable_that_changes_its_type_is_refused_with_both_lines(body: str) -> None:
    found = errors(HEAD + body + "\n")[0]
    assert "a variable keeps one type" in found.message
    assert found.span is not None
    assert {found.span.line, found.related[0].span.line} == {2, 4}


@pytest.mark.parametrize("seed", range(40))
def test_variables_that_start_as_literals_are_computed_as_precisely_as_python_does(seed: int) -> None:
    text = DoubleWriter(seed).kernel(start="a, b, c = 0, 1, 0.5")
    arguments = {"x": np.array([3, 1, -2, 5.0]), "out": np.zeros((4, 2))}
    agrees_with_python(text, (4,), rtol=1e-12, **arguments)
