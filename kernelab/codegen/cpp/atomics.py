"""How atomics other than addition are spelled: what they put into memory, on a CPU and on a CUDA device.

They work on elements of 32 and 64 bits, extrema on floats of 16, too.  On a CPU threads run one after the
other, so that they are plain.
"""

from collections.abc import Mapping

from kernelab.codegen.cpp import spelling
from kernelab.lang.ir import AtomicKind
from kernelab.lang.types import HALVES, Scalar, float32, float64, int32, int64, uint32, uint64

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
    """What an element holds after an atomic, as an expression."""
    return _RESULTS[kind].format(old=old, value=value, compare=compare)


def plain(
    kind: AtomicKind, scalar: Scalar, pointer: str, value: str, compare: str | None, out: str | None
) -> tuple[list[str], set[str]]:
    """The statements where no other thread comes between, and the helpers that they call: none."""
    if kind == "add" and out is None and scalar not in HALVES:
        return [f"*({spelling.memory_type(scalar)}*){pointer} += {value};"], set()
    old = spelling.load(scalar, pointer)
    if out is None:
        return [spelling.store(scalar, pointer, result(kind, old, value, compare))], set()
    return [
        f"{spelling.value_type(scalar)} {out} = {old};",
        spelling.store(scalar, pointer, result(kind, out, value, compare)),
    ], set()


def name(kind: AtomicKind, scalar: Scalar) -> str:
    """The helper of a device that does it and returns what the element held."""
    return f"atomic_{kind}_{scalar}"


def device_helpers() -> dict[str, str]:
    """Those helpers, by name."""
    return {
        name(kind, scalar): _helper(kind, scalar)
        for kind in KINDS
        for scalar in SCALARS
        if scalar.is_int or kind not in ("and", "or", "xor")
    }


def half_helpers() -> dict[str, str]:
    """The helpers for floats of 16 bits, which call those that convert them."""
    return {name(kind, half): _helper(kind, half) for kind in EXTREMA for half in HALVES}


def half_uses() -> dict[str, tuple[str, ...]]:
    """What each of these calls."""
    return {
        name(kind, half): (f"from{spelling.half(half)}", f"to{spelling.half(half)}")
        for kind in EXTREMA
        for half in HALVES
    }


def _helper(kind: AtomicKind, scalar: Scalar) -> str:
    type = spelling.value_type(scalar)
    given = f"{type} compare, {type} value" if kind == "cas" else f"{type} value"
    if scalar in HALVES:
        lines = _half_loop(kind, scalar, type)
    else:
        lines = _native(kind, scalar, type) if scalar.is_int else _loop(kind, scalar, type)
    body = "".join(f"  {line}\n" for line in lines)
    return f"__device__ static inline {type} {name(kind, scalar)}(char* pointer, {given}) {{\n{body}}}\n"


def _native(kind: AtomicKind, scalar: Scalar, type: str) -> list[str]:
    call = f"atomic{'CAS' if kind == 'cas' else kind.capitalize()}"
    if kind in ("min", "max"):
        return [f"return {call}(({type}*)pointer, value);"]
    bits = "u64" if scalar.bits == 64 else "unsigned"
    compare = f"({bits})compare, " if kind == "cas" else ""
    return [f"return ({type}){call}(({bits}*)pointer, {compare}({bits})value);"]


def _half_loop(kind: AtomicKind, scalar: Scalar, type: str) -> list[str]:
    """An element of 16 bits is exchanged together with its neighbour in the word."""
    half = spelling.half(scalar)
    return [
        "unsigned* word = (unsigned*)((u64)pointer & ~3ull);",
        "const unsigned shift = 8u * (unsigned)((u64)pointer & 2ull);",
        "unsigned seen = *word, assumed;",
        f"{type} old;",
        "do {",
        "  assumed = seen;",
        f"  old = from{half}((unsigned short)(assumed >> shift));",
        f"  const unsigned held = to{half}({result(kind, 'old', 'value', 'compare')});",
        "  seen = atomicCAS(word, assumed, (assumed & ~(0xffffu << shift)) | held << shift);",
        "} while (seen != assumed);",
        "return old;",
    ]


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
