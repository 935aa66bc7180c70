"""C++ text of types, constants, operations, memory accesses and atomics."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from kernelab.lang.ir import AtomicKind, Const
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
    """The suffix of the helpers of a float of 16 bits."""
    return f"{scalar.flavor}16"


def cuts(types: Sequence[Scalar], type: Scalar) -> list[str]:
    """The conversions of the operands of an operation before a float of 16 bits is computed from them.

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
    stored = f"to{half(scalar)}({value})" if scalar in HALVES else value
    return f"*({memory_type(scalar)}*){pointer} = {stored};"


def offset(pointer: str, bytes: int) -> str:
    """A byte address some bytes further on."""
    return f"({pointer} + {bytes})" if bytes else pointer


def literal(const: Const, infinity: Mapping[Scalar, str], nan: Mapping[Scalar, str]) -> str:
    """A scalar constant, exact to the last bit; `infinity` and `nan` are the target's spellings."""
    scalar = scalar_of(const.type)
    if scalar == bool_:
        return "true" if const.value else "false"
    if scalar.is_int:
        number, suffix = int(const.value), _SUFFIXES.get(scalar.name, "")
        if number == -(2 ** (scalar.bits - 1)) and scalar.bits >= int32.bits:
            return f"({number + 1}{suffix} - 1)"
        return _signed(f"{number}{suffix}")
    width = float32 if scalar in HALVES else scalar
    value = float(const.value)
    if math.isnan(value):
        return nan[width]
    if math.isinf(value):
        return infinity[width] if value > 0 else f"(-{infinity[width]})"
    # The shortest decimal that reads back as the same number.
    return _signed(repr(value) if width == float64 else f"{np.float32(value)!s}f")


def _signed(text: str) -> str:
    return f"({text})" if text.startswith("-") else text


def operation(op: Op, operands: Sequence[str], types: Sequence[Scalar], type: Scalar, prefix: str) -> str:
    """An application of an operation that has a spelling."""
    return _pattern(op, tuple(types), type, prefix).format(*operands)


@lru_cache(4096)
def _pattern(op: Op, types: tuple[Scalar, ...], type: Scalar, prefix: str) -> str:
    """The text of an operation over some types, with ``{0}`` for its first operand."""
    assert op.cpp is not None, f"{op.name} has no spelling over scalars"
    operands = [f"{{{k}}}" for k in range(len(types))]
    if type in HALVES:
        pairs = zip(operands, cuts(types, type), strict=True)
        operands = [f"{cut}({text})" if cut else text for text, cut in pairs]
    floats = [t for t in types if t.is_float] or [type]
    fields = {param.name: text for param, text in zip(op.params, operands, strict=True)}
    fields |= {
        "T": value_type(type),
        "U": value_type(Scalar("uint", type.bits) if type.kind == "int" else type),
        "m": prefix,
        "f": "" if floats[0] == float64 else "f",
    }
    text = unwrapped(op.cpp.format_map(fields))
    return f"round{half(type)}({text})" if type in HALVES else text


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


# --------------------------------------------------------------------------------------------------- atomics


KINDS: tuple[AtomicKind, ...] = ("min", "max", "and", "or", "xor", "exch", "cas")
EXTREMA: tuple[AtomicKind, ...] = ("min", "max")
SCALARS = (int32, int64, uint32, uint64, float32, float64)

_RESULTS: Mapping[AtomicKind, str] = {
    "add": "{old} + {value}",
    "min": "{value} < {old} ? {value} : {old}",
    "max": "{value} > {old} ? {value} : {old}",
    "and": "{old} & {value}",
    "or": "{old} | {value}",
    "xor": "{old} ^ {value}",
    "exch": "{value}",
    "cas": "{old} == {compare} ? {value} : {old}",
}


def result(kind: AtomicKind, old: str, value: str, compare: str | None) -> str:
    """The value of an element after an atomic, as an expression."""
    return _RESULTS[kind].format(old=old, value=value, compare=compare)


def plain(
    kind: AtomicKind, scalar: Scalar, pointer: str, value: str, compare: str | None, out: str | None
) -> list[str]:
    """The statements where no other thread comes between."""
    if kind == "add" and out is None and scalar not in HALVES:
        return [f"*({memory_type(scalar)}*){pointer} += {value};"]
    old = load(scalar, pointer)
    if out is None:
        return [store(scalar, pointer, result(kind, old, value, compare))]
    return [f"{value_type(scalar)} {out} = {old};", store(scalar, pointer, result(kind, out, value, compare))]


def name(kind: AtomicKind, scalar: Scalar) -> str:
    """The helper of a device that does it and returns what the element held."""
    return f"atomic_{kind}_{scalar}"


def device_helpers() -> dict[str, str]:
    return {
        name(kind, scalar): _helper(kind, scalar)
        for kind in KINDS
        for scalar in SCALARS
        if scalar.is_int or kind not in ("and", "or", "xor")
    }


def half_helpers() -> dict[str, str]:
    """The helpers for floats of 16 bits, which call those that convert them."""
    return {name(kind, scalar): _helper(kind, scalar) for kind in EXTREMA for scalar in HALVES}


def _helper(kind: AtomicKind, scalar: Scalar) -> str:
    type = value_type(scalar)
    params = f"{type} compare, {type} value" if kind == "cas" else f"{type} value"
    if scalar in HALVES:
        lines = _half_loop(kind, scalar, type)
    else:
        lines = _native(kind, scalar, type) if scalar.is_int else _loop(kind, scalar, type)
    body = "".join(f"  {line}\n" for line in lines)
    return f"__device__ static inline {type} {name(kind, scalar)}(char* pointer, {params}) {{\n{body}}}\n"


def _native(kind: AtomicKind, scalar: Scalar, type: str) -> list[str]:
    call = f"atomic{'CAS' if kind == 'cas' else kind.capitalize()}"
    if kind in ("min", "max"):
        return [f"return {call}(({type}*)pointer, value);"]
    bits = "u64" if scalar.bits == 64 else "unsigned"
    compare = f"({bits})compare, " if kind == "cas" else ""
    return [f"return ({type}){call}(({bits}*)pointer, {compare}({bits})value);"]


def in_word(pointer: str, bits: int, body: Sequence[str], name: str = "sum") -> list[str]:
    """Lines that exchange an element narrower than a word together with its neighbours in the word.

    The `body` computes the new element, called `name`, from what the word `assumed` holds at `shift`.
    """
    mask = f"{2**bits - 1:#x}u"
    return [
        f"unsigned* word = (unsigned*)((u64){pointer} & ~3ull);",
        f"const unsigned shift = 8u * (unsigned)((u64){pointer} & {4 - bits // 8}ull);",
        "unsigned seen = *word, assumed;",
        "do {",
        "  assumed = seen;",
        *(f"  {line}" for line in body),
        f"  seen = atomicCAS(word, assumed, (assumed & ~({mask} << shift)) | {name} << shift);",
        "} while (seen != assumed);",
    ]


def _half_loop(kind: AtomicKind, scalar: Scalar, type: str) -> list[str]:
    format = half(scalar)
    body = [
        f"old = from{format}((unsigned short)(assumed >> shift));",
        f"const unsigned held = to{format}({result(kind, 'old', 'value', 'compare')});",
    ]
    return [f"{type} old;", *in_word("pointer", 16, body, "held"), "return old;"]


def _loop(kind: AtomicKind, scalar: Scalar, type: str) -> list[str]:
    """A device compares and swaps bits: again until nobody came between."""
    wide = scalar == float64
    bits = "u64" if wide else "unsigned"
    packed = "(u64)__double_as_longlong" if wide else "__float_as_uint"
    unpacked = "__longlong_as_double((i64)assumed)" if wide else "__uint_as_float(assumed)"
    return [
        f"{bits} seen = *({bits}*)pointer, assumed;",
        f"{type} old;",
        "do {",
        "  assumed = seen;",
        f"  old = {unpacked};",
        f"  const {type} held = {result(kind, 'old', 'value', 'compare')};",
        f"  seen = atomicCAS(({bits}*)pointer, assumed, {packed}(held));",
        "} while (seen != assumed);",
        "return old;",
    ]
