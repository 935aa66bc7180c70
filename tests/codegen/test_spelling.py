"""Constants and operations as C++."""

import math

import pytest

from kernelab.codegen.cpp.cuda_target import Cuda
from kernelab.codegen.cpp.spelling import literal, unwrapped
from kernelab.codegen.cpp.targets import Cpu
from kernelab.lang.ir import Const
from kernelab.lang.ops import resolve
from kernelab.lang.types import (
    Scalar,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int32,
    int64,
    uint8,
    uint32,
    uint64,
)

CPU = Cpu()


@pytest.mark.parametrize(
    ("value", "type", "text"),
    [
        (0.1, float64, "0.1"),
        (0.1, float32, "0.1f"),
        (1e30, float32, "1e+30f"),
        (0.123456789, float32, "0.12345679f"),
        (2.0, float16, "2.0f"),
        (-0.0, float64, "(-0.0)"),
        (math.inf, float32, "__builtin_inff()"),
        (-math.inf, float64, "(-__builtin_inf())"),
        (True, bool_, "true"),
        (-3, int32, "(-3)"),
        (7, uint8, "7"),
        (7, uint32, "7u"),
        (2**64 - 1, uint64, "18446744073709551615ull"),
        (-(2**31), int32, "(-2147483647 - 1)"),
        (-(2**63), int64, "(-9223372036854775807LL - 1)"),
    ],
)
def test_a_constant_is_spelled_exactly(value: float, type: Scalar, text: str) -> None:
    assert literal(Const(value, type), CPU.infinity, CPU.nan) == text


def test_a_constant_that_is_no_number_is_spelled_by_the_target() -> None:
    nan = Const(math.nan, float32)
    assert literal(nan, CPU.infinity, CPU.nan) == '__builtin_nanf("")'
    assert literal(nan, Cuda().infinity, Cuda().nan) == "__int_as_float(0x7fc00000)"


def test_only_parentheses_around_everything_are_taken_off() -> None:
    assert unwrapped("(a + b)") == "a + b"
    assert unwrapped("(a) + (b)") == "(a) + (b)"
    assert unwrapped("a") == "a"


def spelled(flavor: Cpu | Cuda, name: str, type: Scalar, *operands: str) -> str:
    found = resolve(name, [type] * len(operands))
    assert found is not None
    return flavor.operation(found[0], list(operands), [type] * len(operands), type)


def test_mathematics_takes_the_prefix_of_the_target_and_the_suffix_of_the_width() -> None:
    assert spelled(Cpu(), "sin", float32, "x") == "__builtin_sinf(x)"
    assert spelled(Cpu(), "sin", float64, "x") == "__builtin_sin(x)"
    assert spelled(Cuda(), "sin", float32, "x") == "sinf(x)"


def test_a_half_is_computed_as_a_float_and_rounded() -> None:
    assert spelled(Cpu(), "mul", float16, "a", "b") == "round16(a * b)"
    assert spelled(Cpu(), "mul", bfloat16, "a", "b") == "roundb16(a * b)"


def test_signed_integers_wrap_on_a_device_too() -> None:
    assert spelled(Cuda(), "add", int32, "a", "b") == "(int)((unsigned)a + (unsigned)b)"
    assert spelled(Cuda(), "mul", int64, "a", "b") == "(i64)((u64)a * (u64)b)"
    assert spelled(Cpu(), "add", int32, "a", "b") == "a + b"
