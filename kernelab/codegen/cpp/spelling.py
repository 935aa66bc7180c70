"""How types, constants, operations and memory accesses are spelled in C++, the same for every target.

A float16 or bfloat16 lives in 16 bits of memory and in a `float` everywhere else, rounded after each
operation.
"""

import math
from collections.abc import Mapping

import numpy as np

from kernelab.lang.ir import Const
from kernelab.lang.ops import Op
from kernelab.lang.types import (
    HALVES,
    Scalar,
    bfloat16,
    bool_,
    float32,
    float64,
    int32,
    int64,
    scalar_of,
    uint32,
    uint64,
)

VALUE_TYPES: Mapping[str, str] = {
    "bool": "bool",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "i64",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned",
    "uint64": "u64",
    "float16": "float",
    "bfloat16": "float",
    "float32": "float",
    "float64": "double",
}
"""The C++ type of a local variable."""

_SUFFIXES: Mapping[str, str] = {"int64": "LL", "uint32": "u", "uint64": "ull"}


def value_type(scalar: Scalar) -> str:
    """The C++ type that computes with a scalar."""
    return VALUE_TYPES[scalar.name]


def memory_type(scalar: Scalar) -> str:
    """The C++ type of a scalar in memory."""
    return "unsigned short" if scalar in HALVES else value_type(scalar)


def half(scalar: Scalar) -> str:
    """What the helpers of a float of 16 bits end with."""
    return f"{scalar.flavor}16"


def cuts(types: list[Scalar], type: Scalar) -> list[str]:
    """What the operands of an operation are passed through before a float of 16 bits is computed of them.

    Rounding to float and then to half would round twice.  What a float does not hold exactly is beyond
    float16, but not beyond bfloat16.
    """
    wide = {float64: "odd32"}
    if type == bfloat16 and len(types) == 1:
        wide |= {int32: "odd32", uint32: "odd32", int64: "odd32i", uint64: "odd32i"}
    return [wide.get(t, "") for t in types]


def size(scalar: Scalar) -> int:
    """The bytes of a scalar in memory."""
    return scalar.bits // 8


def load(scalar: Scalar, pointer: str) -> str:
    """The value at a byte address."""
    if scalar in HALVES:
        return f"from{half(scalar)}(*(unsigned short*){pointer})"
    if scalar == bool_:
        # A bool of C++ that is neither 0 nor 1 would be undefined; memory from elsewhere may hold any byte.
        return f"*(unsigned char*){pointer} != 0"
    return f"*({value_type(scalar)}*){pointer}"


def store(scalar: Scalar, pointer: str, value: str) -> str:
    """The assignment of a value to a byte address."""
    held = f"to{half(scalar)}({value})" if scalar in HALVES else value
    return f"*({memory_type(scalar)}*){pointer} = {held};"


def offset(pointer: str, bytes: int) -> str:
    """A byte address some bytes further on."""
    return f"({pointer} + {bytes})" if bytes else pointer


def literal(const: Const, infinity: Mapping[Scalar, str], nan: Mapping[Scalar, str]) -> str:
    """A scalar constant, exact to the last bit; `infinity` and `nan` are the target's spellings."""
    scalar = scalar_of(const.type)
    if scalar == bool_:
        return "true" if const.value else "false"
    if scalar.is_int:
        return _integer(int(const.value), scalar)
    width = float32 if scalar in HALVES else scalar
    value = float(const.value)
    if math.isnan(value):
        return nan[width]
    if math.isinf(value):
        return infinity[width] if value > 0 else f"(-{infinity[width]})"
    return _signed(_float(value, width))


def _float(value: float, scalar: Scalar) -> str:
    # The shortest decimal that reads back as the same number.
    return repr(value) if scalar == float64 else f"{np.float32(value)!s}f"


def _integer(value: int, scalar: Scalar) -> str:
    suffix = _SUFFIXES.get(scalar.name, "")
    if value == -(2 ** (scalar.bits - 1)) and scalar.bits >= int32.bits:
        return f"({value + 1}{suffix} - 1)"
    return _signed(f"{value}{suffix}")


def _signed(text: str) -> str:
    return f"({text})" if text.startswith("-") else text


def operation(op: Op, operands: list[str], types: list[Scalar], type: Scalar, prefix: str) -> str:
    """An application of an operation that has a spelling."""
    assert op.cpp is not None, f"{op.name} has no spelling over scalars"
    if type in HALVES:
        pairs = zip(operands, cuts(types, type), strict=True)
        operands = [f"{cut}({text})" if cut else text for text, cut in pairs]
    floats = [t for t in types if t.is_float] or [type]
    fields = {param.name: text for param, text in zip(op.params, operands, strict=True)}
    fields |= {
        "T": value_type(type),
        "U": _unsigned(type),
        "m": prefix,
        "f": "" if floats[0] == float64 else "f",
    }
    text = unwrapped(op.cpp.format_map(fields))
    return f"round{half(type)}({text})" if type in HALVES else text


def _unsigned(scalar: Scalar) -> str:
    return value_type(Scalar("uint", scalar.bits)) if scalar.kind == "int" else value_type(scalar)


def unwrapped(text: str) -> str:
    """`text` without a pair of parentheses around all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    if text.index(")") == len(text) - 1:
        return text[1:-1]
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[1:-1] if position == len(text) - 1 else text
    return text
