"""The target CUDA: its spellings, and the kernel around a body."""

import math
from collections.abc import Mapping
from typing import ClassVar

from kernelab.codegen.cpp import spelling
from kernelab.codegen.cpp.entry import GRID_SLOTS, TILE, Message, device_call
from kernelab.codegen.cpp.helpers import BUDGET, CUDA_HELPERS
from kernelab.codegen.cpp.own_memory import OwnMemory
from kernelab.codegen.cpp.targets import INDENT, Flavor, Outline, Shell, Spellings, indented
from kernelab.codegen.cpp.wide_accumulators import Total
from kernelab.lang.ir import Atomic, AtomicKind, Function
from kernelab.lang.ops import ALONG, Op
from kernelab.lang.types import HALVES, Scalar, bfloat16, bool_, float16, float32, float64, int32, int64

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
    wrapped = "wrapped"
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
    ) -> list[str]:
        if kind == "add":
            call = _device_add(scalar, pointer, value)
        else:
            arguments = [pointer, value] if compare is None else [pointer, compare, value]
            call = f"{spelling.name(kind, scalar)}({', '.join(arguments)})"
        return [f"{call};" if out is None else f"{spelling.value_type(scalar)} {out} = {call};"]

    def add_together(self, scalar: Scalar, pointer: str, value: str) -> list[str]:
        if scalar != float32:
            return super().add_together(scalar, pointer, value)
        return [f"warp_add32((float*){pointer}, {value});"]

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

    def own_memory(self, function: Function) -> OwnMemory:
        # A device thread has memory of its own, and its compiler sees to the registers.
        return OwnMemory(function, {}, math.inf)

    def wide(self, function: Function) -> tuple[Atomic, ...]:
        return ()

    def shared_totals(self, function: Function) -> Mapping[Atomic, int]:
        return {}

    def print(self, message: Message, number: int, values: list[str]) -> str:
        return device_call(message, values)

    def shell(self, outline: Outline, own: int) -> Shell:
        return _shell(outline)


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


def _shell(outline: Outline) -> Shell:
    """A kernel whose device threads stride over the grid; the arena and the residuals are cut beforehand."""
    setup = ["const i64* const args = given.slots;", *outline.unpack, f"int budget = {BUDGET};"]
    setup += ["u64 wrapped = 0;"] if outline.wraps else []
    setup += [line for total in outline.totals for line in total.declared]
    setup += [f"const i64 {name}_room = args[{param.slot + 2}];" for name, param in outline.residuals]
    number, here = ("unsigned", "") if outline.near else ("i64", "(i64)")
    each = "total - 1 - turn" if outline.descending else "turn"
    setup += [
        f"const {number} total = args[0] * args[1] * args[2] * args[3];",
        f"const {number} width = {here}gridDim.x * blockDim.x;",
        *_arena(outline),
        f"for ({number} turn = {here}blockIdx.x * blockDim.x + threadIdx.x; turn < total; turn += width) {{",
        f"  const i64 thread = {each};",
        *(INDENT + line for line in _coordinates(outline, number)),
        *(INDENT + line for line in _each_device_thread(outline)),
    ]
    struct = f"{outline.symbol}_args"
    head = [
        f"struct {struct} {{ i64 slots[{outline.slots}]; }};",
        f'extern "C" __global__ void {outline.symbol}(const {struct} given, i64* status) {{',
        *indented(setup, 1),
    ]
    gathered = [INDENT + total.gathered for total in outline.totals if isinstance(total, Total)]
    noted = ["  if (wrapped) note(status, wrapped);"] if outline.wraps else []
    return Shell(tuple(head), 2, ("  }", "end:;", *gathered, *noted, "}"))


def _arena(outline: Outline) -> list[str]:
    if outline.arena is None:
        return []
    # The first units of all threads come first: `width` threads, each of which has args[arena + 1] bytes.
    here = "((i64)blockIdx.x * blockDim.x + threadIdx.x)"
    return [
        f"char* base = (char*)args[{outline.arena}] + {here} * {outline.unit};",
        f"char *top = base, *limit = base + args[{outline.arena + 1}] * (i64)width;",
    ]


def _each_device_thread(outline: Outline) -> list[str]:
    lines = [] if outline.arena is None else ["top = base;"]
    for name, param in outline.residuals:
        # `entry` says where the elements are that a thread of the grid owns.
        lines.append(f"i64 {name}_length = thread / {TILE} * {TILE} * {name}_room + thread % {TILE};")
        lines.append(f"i64 {name}_capacity = {name}_length + {TILE} * {name}_room;")
        lines.append(f"char* {name} = (char*)args[{param.slot}];")
        lines.append(f"((i64*)args[{param.slot + 1}])[thread] = {name}_length;")
    return lines


def _coordinates(outline: Outline, number: str) -> list[str]:
    """The thread's indices, the last first: by one division each, and none by an extent that is not there."""
    names = outline.coordinates
    if len(names) < 2:
        return [f"const int {name} = (int)thread;" for name in names]
    beyond = " * ".join(f"args[{axis}]" for axis in range(len(names), GRID_SLOTS))
    lines = [f"{number} rest = thread;"]
    if beyond:
        lines.append(f"if ({beyond} != 1) rest /= ({number})({beyond});")
    for axis in range(len(names) - 1, 0, -1):
        lines.append(f"const int {names[axis]} = (int)(rest % ({number})args[{axis}]);")
        lines.append(f"rest /= ({number})args[{axis}];")
    return [*lines, f"const int {names[0]} = (int)rest;"]
