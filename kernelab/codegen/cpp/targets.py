"""The targets of the emitter, CPU and CUDA: the text that differs between them.

The body of a function is the same text for every target.  A flavor gives the shell around it, the helpers
that the body calls, and the few spellings that differ: mathematics, special constants, wrapping integers,
atomics, and how a thread gives up.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal

from kernelab.codegen.cpp import spelling, wide_accumulators
from kernelab.codegen.cpp.entry import TILE, Message, device_call
from kernelab.codegen.cpp.entry_shells import Outline, Shell, cpu_shell, cuda_shell
from kernelab.codegen.cpp.helpers import CPU_HELPERS, CUDA_HELPERS
from kernelab.lang.ir import Atomic, AtomicKind, Function
from kernelab.lang.ops import ALONG, Op
from kernelab.lang.types import HALVES, Scalar, bfloat16, bool_, float16, float32, float64, int32, int64

Spellings = Mapping[Scalar, str]


class Flavor(ABC):
    """A target of the emitter; what is not abstract holds for C++ that runs one thread after another."""

    target: ClassVar[Literal["cpu", "cuda"]]
    infinity: ClassVar[Spellings]
    nan: ClassVar[Spellings]

    helpers: ClassVar[Mapping[str, str]]
    """The functions that bodies call, by name, in the order in which they are to be defined."""

    leave: ClassVar[str] = "goto end;"
    """The statement with which a thread gives up, after the status has been set."""

    spread: ClassVar[int] = 1
    """The stride, in elements, between the values that a thread appends to a residual."""

    @abstractmethod
    def operation(self, op: Op, operands: list[str], types: list[Scalar], type: Scalar) -> str:
        """An application of an operation over scalars."""

    def atomic(
        self, kind: AtomicKind, scalar: Scalar, pointer: str, value: str, compare: str | None, out: str | None
    ) -> tuple[list[str], set[str]]:
        """The statements that change memory at once, and the helpers that they call.

        `out` is the variable for the old value, if it is used.
        """
        return spelling.plain(kind, scalar, pointer, value, compare, out)

    def add_together(self, scalar: Scalar, pointer: str, value: str) -> tuple[list[str], set[str]]:
        """The statements of an addition that many threads are likely to make at once, as `atomic`'s."""
        return self.atomic("add", scalar, pointer, value, None, None)

    def near(self, function: Function) -> bool:
        """Whether the text assumes the preconditions of `backend/cuda/launch_config.py`.

        Extents, strides and positions are then 32 bits wide, what no thread changes is read through the cache
        for constants, and sums into elements of a thread's own are plain.
        """
        return False

    def load(self, scalar: Scalar, pointer: str, steady: bool) -> str:
        """The value at a byte address; `steady` if nobody changes it during the launch."""
        return spelling.load(scalar, pointer)

    def clear(self, scalar: Scalar, before: str, store: str) -> str:
        """The statement that stores zero to an element whose value has just been loaded."""
        return store

    def kept_at(self, offset: int, unit: int) -> str:
        """The index in the arena of an offset in the topmost record, in units of so many bytes."""
        return spelling.offset("top", offset)

    def taken(self, size: int) -> str:
        """The distance by which a record of so many bytes moves the top of the arena."""
        return str(size)

    def wide(self, function: Function) -> tuple[Atomic, ...]:
        """The additions that may go to a float64 accumulator of each element."""
        return wide_accumulators.wide(function)

    @abstractmethod
    def print(self, message: Message, number: int, values: list[str]) -> tuple[list[str], set[str]]:
        """The statements that print, and the helpers that they call; `number` is the message's own."""

    @abstractmethod
    def shell(self, outline: Outline) -> Shell:
        """The text around the body of a thread."""


class Cpu(Flavor):
    """C++ for g++ and clang++, where threads run one after the other and atomics are plain."""

    target = "cpu"
    infinity: ClassVar[Spellings] = {float32: "__builtin_inff()", float64: "__builtin_inf()"}
    nan: ClassVar[Spellings] = {float32: '__builtin_nanf("")', float64: '__builtin_nan("")'}
    helpers = CPU_HELPERS

    def operation(self, op: Op, operands: list[str], types: list[Scalar], type: Scalar) -> str:
        return spelling.operation(op, operands, types, type, "__builtin_")

    def print(self, message: Message, number: int, values: list[str]) -> tuple[list[str], set[str]]:
        head = f"say(status, {number}, {len(values)})"
        pairs = zip(message.types, values, strict=True)
        kept = [spelling.store(type, f"(said + {k})", value) for k, (type, value) in enumerate(pairs)]
        if not kept:
            return [f"{head};"], {"say"}
        return [f"if (i64* said = {head}) {{ {' '.join(kept)} }}"], {"say"}

    def shell(self, outline: Outline) -> Shell:
        return cpu_shell(outline)


_WRAPPING = {"add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "neg": "-{}"}


class Cuda(Flavor):
    """CUDA C++ for NVRTC, without a header."""

    target = "cuda"
    infinity: ClassVar[Spellings] = {
        float32: "__int_as_float(0x7f800000)",
        float64: "__longlong_as_double(0x7ff0000000000000LL)",
    }
    nan: ClassVar[Spellings] = {
        float32: "__int_as_float(0x7fc00000)",
        float64: "__longlong_as_double(0x7ff8000000000000LL)",
    }
    helpers = CUDA_HELPERS
    spread = TILE

    def operation(self, op: Op, operands: list[str], types: list[Scalar], type: Scalar) -> str:
        if op is ALONG:
            start, count = operands
            return f"{start} + {count} * {self.spread}"
        if type.kind == "int" and op.name in _WRAPPING and all(t == type for t in types):
            # Signed overflow is undefined to this compiler and wraps in kernels.
            wide = "u64" if type == int64 else "unsigned"
            text = _WRAPPING[op.name].format(*(f"({wide}){operand}" for operand in operands))
            return f"({spelling.value_type(type)})({text})"
        return spelling.operation(op, operands, types, type, "")

    def atomic(
        self, kind: AtomicKind, scalar: Scalar, pointer: str, value: str, compare: str | None, out: str | None
    ) -> tuple[list[str], set[str]]:
        if kind == "add":
            call, needs = _device_add(scalar, pointer, value), {f"add{scalar.flavor}{scalar.bits}"}
        else:
            needs = {spelling.name(kind, scalar)}
            given = [pointer, value] if compare is None else [pointer, compare, value]
            call = f"{spelling.name(kind, scalar)}({', '.join(given)})"
        return [f"{call};" if out is None else f"{spelling.value_type(scalar)} {out} = {call};"], needs

    def add_together(self, scalar: Scalar, pointer: str, value: str) -> tuple[list[str], set[str]]:
        if scalar != float32:
            return super().add_together(scalar, pointer, value)
        return [f"warp_add32((float*){pointer}, {value});"], {"warp_add32"}

    def near(self, function: Function) -> bool:
        return not function.aliased

    def load(self, scalar: Scalar, pointer: str, steady: bool) -> str:
        if not steady:
            return spelling.load(scalar, pointer)
        if scalar in HALVES:
            return f"from{spelling.half(scalar)}(__ldg((const unsigned short*){pointer}))"
        if scalar == bool_:
            return f"__ldg((const unsigned char*){pointer}) != 0"
        return f"__ldg((const {spelling.value_type(scalar)}*){pointer})"

    def clear(self, scalar: Scalar, before: str, store: str) -> str:
        # A store to a line whose load is pending makes both slow: an adjoint took six times as long on an
        # H100.  The condition waits for the load.
        bits = {float32: "__float_as_int({})", float64: "__double_as_longlong({})", int32: "{}"}.get(scalar)
        return store if bits is None else f"if ({bits.format(before)} != 0) {store}"

    def kept_at(self, offset: int, unit: int) -> str:
        # The same unit of all threads lies side by side: a warp moves it at once.
        whole, rest = offset // unit * unit, offset % unit
        return spelling.offset(f"(top + {whole} * (i64)width)" if whole else "top", rest)

    def taken(self, size: int) -> str:
        return f"{size} * (i64)width"

    def wide(self, function: Function) -> tuple[Atomic, ...]:
        return ()

    def print(self, message: Message, number: int, values: list[str]) -> tuple[list[str], set[str]]:
        return [device_call(message, values)], set()

    def shell(self, outline: Outline) -> Shell:
        return cuda_shell(outline)


def _device_add(scalar: Scalar, pointer: str, value: str) -> str:
    type = spelling.value_type(scalar)
    if scalar == bfloat16:
        return f"fromb16(addb16({pointer}, {value}))"
    if scalar == float16:
        return f"from16(add16({pointer}, 0u, true, {value}))"
    if scalar.bits == 16:
        return f"({type})add16({pointer}, (unsigned){value}, false, 0.0f)"
    if scalar.bits == 8:
        return f"({type})add8({pointer}, (unsigned){value})"
    if scalar.bits == 64 and scalar.is_int:
        return f"({type})atomicAdd((u64*){pointer}, (u64){value})"
    return f"atomicAdd(({type}*){pointer}, {value})"
