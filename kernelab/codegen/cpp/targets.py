"""Targets of the emitter: the text that differs between CPU and CUDA; for the CPU, entries around a body.

The body of a function is the same text for every target.  A flavor gives the shell around it, the helpers
that the body calls, and the few spellings that differ: mathematics, special constants, wrapping integers,
atomics, and how a thread gives up.  On a CPU one call of an entry runs the whole grid, thread after thread,
and polls between chunks of threads; on a CUDA device each thread of the device runs every n-th thread of
the grid.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from kernelab.codegen.cpp import spelling, wide_accumulators
from kernelab.codegen.cpp.entry import BOX, DONE, GRID_SLOTS, MEMORY, WRAPPED, Message, Param
from kernelab.codegen.cpp.helpers import BUDGET, CPU_HELPERS
from kernelab.codegen.cpp.own_memory import ON_STACK, OwnMemory, late_values
from kernelab.codegen.cpp.prefetch import Prefetches
from kernelab.codegen.cpp.wide_accumulators import Total, Wide, versions
from kernelab.data_classes import dataclass, field
from kernelab.lang.ir import Atomic, AtomicKind, Function
from kernelab.lang.ops import Op
from kernelab.lang.types import Scalar, float32, float64

# ---------------------------------------------------------------------------------------------------- entries


INDENT = "  "


@dataclass(frozen=True, slots=True)
class Outline:
    """The inputs of a shell: `coordinates` are the names of the thread's indices, `weight` is the least
    number of statements that a thread runs, `slots` the number of slots of a launch, `arena` the slot of the
    arena on a device if values are saved, `residuals` are the arrays that grow, by their names, `unpack` are
    the lines that read the arguments.
    `descending` says that the last thread comes first, where threads run one after another; `totals` are
    the running totals of its sums and its float64 accumulators; `near` says that 32 bits hold the number of
    any thread; `unit` is the size of the widest scalar that a thread saves; `wraps` says that indices that
    are computed may be below zero; `prefetches` are the elements that threads of one index ask for ahead.
    """

    symbol: str
    unpack: tuple[str, ...]
    coordinates: tuple[str, ...]
    weight: int
    slots: int
    arena: int | None
    residuals: tuple[tuple[str, Param], ...]
    descending: bool = False
    totals: tuple[Total | Wide, ...] = ()
    near: bool = False
    unit: int = 1
    wraps: bool = False
    prefetches: Prefetches = field(default_factory=Prefetches)


@dataclass(frozen=True, slots=True)
class Shell:
    """The lines before and after a body, indented; the body stands `depth` levels deep."""

    head: tuple[str, ...]
    depth: int
    tail: tuple[str, ...]


def indented(lines: list[str], depth: int) -> list[str]:
    return [INDENT * depth + line for line in lines]


# ------------------------------------------------------------------------------------------ CPU


def cpu_shell(outline: Outline, own: int, is_optimised: bool = False) -> Shell:
    """One function that runs every thread of the grid and returns status[0]; threads own so many bytes.

    Where it is optimised, loops with sums have a version for few additions.
    """
    before, behind = versions(outline.totals) if is_optimised else ([], [])
    sums = [line for total in outline.totals for line in total.declared]
    setup, release = [], list[str]()
    if own:
        setup.append(f"char* const own = (char*)malloc({own});")
        setup.append(f"if (!own) {{ fail(status, {MEMORY}, 0, 0); return {MEMORY}; }}")
        release.append("free(own);")
    setup += outline.unpack
    setup += [] if outline.arena is None else ["char *base = 0, *top = 0, *limit = 0;"]
    release += [] if outline.arena is None else ["free(base);"]
    release += [total.settled for total in outline.totals]
    for name, param in outline.residuals:
        setup.append(f"i64* const {name}_handle = (i64*)args[{param.slot}];")
        setup.append(f"char* {name} = (char*){name}_handle[0];")
        setup.append(f"i64 {name}_length = {name}_handle[1], {name}_capacity = {name}_handle[2];")
        fields = (f"(i64){name}", f"{name}_length", f"{name}_capacity")
        release += [f"{name}_handle[{k}] = {field};" for k, field in enumerate(fields)]
    setup += sums
    setup += [f"i64 thread = 0, budget = {BUDGET};", f"const i64 already = status[{DONE}];", "status[0] = 0;"]
    loops, ends, depth = _linear(outline) if len(outline.coordinates) < 2 else _nested(outline)
    setup += before
    head = [f'extern "C" int {outline.symbol}(const i64* args, i64* status) {{', *indented(setup, 1), *loops]
    begin = [] if outline.arena is None else ["top = base;"]
    for name, param in outline.residuals:
        begin.append(f"((i64*)args[{param.slot + 1}])[thread] = {name}_length;")
    head += indented(begin, depth)
    release = [*behind, *release, f"return {reported(outline.wraps)};"]
    tail = [*ends, "end:;" if behind else "end:", *indented(release, 1), "}"]
    return Shell(tuple(head), depth, tuple(tail))


def reported(wraps: bool) -> str:
    """The result of an entry: not 0 where its status says something."""
    return f"(int)(status[0] | (status[{WRAPPED}] != 0))" if wraps else "(int)status[0]"


def polled(spent: int | str, leave: str = "goto end;") -> str:
    """The statement that asks now and then whether to stop, after so many statements."""
    return f"if ((budget -= {spent}) < 0 && (budget = poll(status)) < 0) {leave}"


def _poll(outline: Outline, threads: str) -> str:
    return polled(threads if outline.weight == 1 else f"({threads}) * {outline.weight}")


def _chunk(outline: Outline) -> int:
    return max(1, BUDGET // outline.weight)


def box_bounds(extents: Sequence[str]) -> list[str]:
    """The lines that say from where to where the coordinates of an entry run: its box, or these extents."""
    lines = [f"const i64* const box = (const i64*)status[{BOX}];"]
    for k, extent in enumerate(extents):
        first, behind = f"from{k} = box ? box[{2 * k}] : 0", f"upto{k} = box ? box[{2 * k + 1}] : {extent}"
        lines.append(f"const i64 {first}, {behind};")
    return lines


def over(name: str, axis: int, descending: bool) -> str:
    """The loop over a coordinate."""
    if descending:
        return f"for (int {name} = (int)upto{axis} - 1; {name} >= from{axis}; --{name}) {{"
    return f"for (int {name} = (int)from{axis}; {name} < upto{axis}; ++{name}) {{"


def chunks(axis: int, chunk: int, descending: bool) -> list[str]:
    """The loop over a coordinate in chunks between polls: from `start` to `release`."""
    if descending:
        return [
            f"for (i64 start = upto{axis}; start > from{axis}; start -= {chunk}) {{",
            f"  const i64 release = start - from{axis} < {chunk} ? from{axis} : start - {chunk};",
        ]
    return [
        f"for (i64 start = from{axis}; start < upto{axis}; start += {chunk}) {{",
        f"  const i64 release = upto{axis} - start < {chunk} ? upto{axis} : start + {chunk};",
    ]


def _linear(outline: Outline) -> tuple[list[str], list[str], int]:
    chunk = _chunk(outline)
    loops = ["const i64 total = args[0] * args[1] * args[2] * args[3];", *outline.prefetches.declared]
    loops += box_bounds(["total"])
    if outline.descending:
        spent = "start - release"
        loops += [
            "thread = (total - already < upto0 ? total - already : upto0) - 1;",
            "while (thread >= from0) {",
            "  const i64 start = thread;",
            f"  const i64 release = start - from0 < {chunk} ? from0 - 1 : start - {chunk};",
            "  for (; thread > release; --thread) {",
        ]
    else:
        spent = "release - start"
        loops += [
            "thread = already > from0 ? already : from0;",
            "while (thread < upto0) {",
            "  const i64 start = thread;",
            f"  const i64 release = upto0 - start < {chunk} ? upto0 : start + {chunk};",
            "  for (; thread < release; ++thread) {",
        ]
    each = [*outline.prefetches.each, *(f"const int {name} = (int)thread;" for name in outline.coordinates)]
    loops += indented(each, 2)
    return indented(loops, 1), ["    }", f"    {_poll(outline, spent)}", "  }"], 3


def _nested(outline: Outline) -> tuple[list[str], list[str], int]:
    """Loops over the coordinates; what the kernel does not unpack of the grid is run through innermost."""
    *outer, last = outline.coordinates
    k = len(outer)
    step = "--thread" if outline.descending else "++thread"
    loops = indented(box_bounds([f"args[{axis}]" for axis in range(k + 1)]), 1)
    if outline.descending:
        loops.append("  const i64 ahead = args[0] * args[1] * args[2] * args[3] - already;")
    loops += [f"{INDENT * (n + 1)}{over(i, n, outline.descending)}" for n, i in enumerate(outer)]
    beyond = " * ".join(f"args[{n}]" for n in range(k + 1, GRID_SLOTS)) or "1"
    lines, spent = _chunks(outline, outer, beyond)
    loops += indented(lines, k + 1)
    each = f"for (int {last} = (int)start; {last} < release; ++{last}) {{"
    if outline.descending:
        each = f"for (int {last} = (int)start - 1; {last} >= release; --{last}) {{"
    loops.append(f"{INDENT * (k + 2)}{each}")
    loops.append(f"{INDENT * (k + 3)}for (i64 rest = {beyond}; rest > 0; --rest, {step}) {{")
    skipped = "thread >= ahead" if outline.descending else "thread < already"
    loops.append(f"{INDENT * (k + 4)}if ({skipped}) continue;")
    ends = [INDENT * (k + 3) + "}", INDENT * (k + 2) + "}", INDENT * (k + 2) + _poll(outline, spent)]
    ends += [INDENT * level + "}" for level in range(k + 1, 0, -1)]
    return loops, ends, k + 4


def _chunks(outline: Outline, outer: Sequence[str], beyond: str) -> tuple[list[str], str]:
    """The loop over the last coordinate in chunks, and how many threads a chunk runs."""
    first = f"({row_of(outer)} + start) * ({beyond})"
    begin = f"  thread = {first}{' - 1' if outline.descending else ''};"
    spent = "start - release" if outline.descending else "release - start"
    return [*chunks(len(outer), _chunk(outline), outline.descending), begin], spent


def row_of(outer: Sequence[str]) -> str:
    """The number of coordinates of the last axis before those of this row, given the coordinates around."""
    row = "0"
    for axis, name in enumerate(outer):
        row = f"({name} + {row}) * args[{axis + 1}]" if axis else f"{name} * args[1]"
    return row


# ---------------------------------------------------------------------------------------------------- targets


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

    wrapped: ClassVar[str] = f"status[{WRAPPED}]"
    """The bits of the places where a computed index was below zero."""

    spread: ClassVar[int] = 1
    """The stride, in elements, between the values that a thread appends to a residual."""

    @abstractmethod
    def operation(self, op: Op, operands: list[str], types: list[Scalar], type: Scalar) -> str:
        """An application of an operation over scalars."""

    def atomic(
        self, kind: AtomicKind, scalar: Scalar, pointer: str, value: str, compare: str | None, out: str | None
    ) -> list[str]:
        """The statements that change memory at once.

        `out` is the variable for the old value, if it is used.
        """
        return spelling.plain(kind, scalar, pointer, value, compare, out)

    def add_together(self, scalar: Scalar, pointer: str, value: str) -> list[str]:
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

    def own_memory(self, function: Function) -> OwnMemory:
        """The memory that each thread has for itself."""
        return OwnMemory(function, late_values(function.body), ON_STACK)

    def wide(self, function: Function) -> tuple[Atomic, ...]:
        """The additions that may go to a float64 accumulator of each element."""
        return wide_accumulators.wide(function)

    def shared_totals(self, function: Function) -> Mapping[Atomic, int]:
        """The running totals that each part of a launch has for itself, by number."""
        return {stmt: k for k, stmt in enumerate(wide_accumulators.shared_totals(function))}

    @abstractmethod
    def print(self, message: Message, number: int, values: list[str]) -> str:
        """The statement that prints; `number` is the message's own."""

    @abstractmethod
    def shell(self, outline: Outline, own: int) -> Shell:
        """The text around the body of a thread, which owns so many bytes from malloc."""


class Cpu(Flavor):
    """C++ for g++ and clang++, where threads run one after the other and atomics are plain."""

    target = "cpu"
    infinity: ClassVar[Spellings] = {float32: "__builtin_inff()", float64: "__builtin_inf()"}
    nan: ClassVar[Spellings] = {float32: '__builtin_nanf("")', float64: '__builtin_nan("")'}
    helpers = CPU_HELPERS

    def __init__(self, is_optimised: bool = False) -> None:
        self.is_optimised = is_optimised

    def operation(self, op: Op, operands: list[str], types: list[Scalar], type: Scalar) -> str:
        return spelling.operation(op, operands, types, type, "__builtin_")

    def print(self, message: Message, number: int, values: list[str]) -> str:
        head = f"say(status, {number}, {len(values)})"
        pairs = zip(message.types, values, strict=True)
        kept = [spelling.store(type, f"(said + {k})", value) for k, (type, value) in enumerate(pairs)]
        return f"if (i64* said = {head}) {{ {' '.join(kept)} }}" if kept else f"{head};"

    def shell(self, outline: Outline, own: int) -> Shell:
        return cpu_shell(outline, own, self.is_optimised)
