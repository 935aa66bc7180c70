"""The text of an entry around the body of a thread: the loop over the grid, setup and release.

On a CPU one call runs the whole grid, thread after thread, and polls between chunks of threads; on a CUDA
device each thread of the device runs every n-th thread of the grid.
"""

from dataclasses import dataclass

from kernelab.codegen.cpp.entry import DONE, GRID_SLOTS, TILE, Param
from kernelab.codegen.cpp.helpers import BUDGET
from kernelab.codegen.cpp.wide_accumulators import Total, Wide

INDENT = "  "


@dataclass(frozen=True, slots=True)
class Outline:
    """The inputs of a shell: `coordinates` are the names of the thread's indices, `weight` is the least
    number of statements that a thread runs, `slots` the number of slots of a launch, `arena` the slot of the
    arena on a device if values are saved, `residuals` are the arrays that grow, by their names, `unpack` are
    the lines that read the arguments.
    `descending` says that the last thread comes first, where threads run one after another; `totals` are
    the running totals of its sums and its float64 accumulators; `near` says that 32 bits hold the number of
    any thread; `unit` is the size of the widest scalar that a thread saves.
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


@dataclass(frozen=True, slots=True)
class Shell:
    """The lines before and after a body, indented; the body stands `depth` levels deep."""

    head: tuple[str, ...]
    depth: int
    tail: tuple[str, ...]


def _indented(lines: list[str], depth: int) -> list[str]:
    return [INDENT * depth + line for line in lines]


# ------------------------------------------------------------------------------------------ CPU


def cpu_shell(outline: Outline) -> Shell:
    """One function that runs every thread of the grid and returns status[0]."""
    sums = [line for total in outline.totals for line in total.declared]
    setup = [*outline.unpack]
    setup += [] if outline.arena is None else ["char *base = 0, *top = 0, *limit = 0;"]
    release = [] if outline.arena is None else ["free(base);"]
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
    head = [f'extern "C" int {outline.symbol}(const i64* args, i64* status) {{', *_indented(setup, 1), *loops]
    begin = [] if outline.arena is None else ["top = base;"]
    for name, param in outline.residuals:
        begin.append(f"((i64*)args[{param.slot + 1}])[thread] = {name}_length;")
    head += _indented(begin, depth)
    tail = [*ends, "end:", *_indented([*release, "return (int)status[0];"], 1), "}"]
    return Shell(tuple(head), depth, tuple(tail))


def _poll(outline: Outline, threads: str) -> str:
    spent = threads if outline.weight == 1 else f"({threads}) * {outline.weight}"
    return f"if ((budget -= {spent}) < 0 && (budget = poll(status)) < 0) goto end;"


def _chunk(outline: Outline) -> int:
    return max(1, BUDGET // outline.weight)


def _linear(outline: Outline) -> tuple[list[str], list[str], int]:
    chunk = _chunk(outline)
    loops = ["const i64 total = args[0] * args[1] * args[2] * args[3];"]
    if outline.descending:
        spent = "start - release"
        loops += [
            "thread = total - 1 - already;",
            "while (thread >= 0) {",
            "  const i64 start = thread;",
            f"  const i64 release = start < {chunk} ? -1 : start - {chunk};",
            "  for (; thread > release; --thread) {",
        ]
    else:
        spent = "release - start"
        loops += [
            "thread = already;",
            "while (thread < total) {",
            "  const i64 start = thread;",
            f"  const i64 release = total - start < {chunk} ? total : start + {chunk};",
            "  for (; thread < release; ++thread) {",
        ]
    loops += [f"    const int {name} = (int)thread;" for name in outline.coordinates]
    return _indented(loops, 1), ["    }", f"    {_poll(outline, spent)}", "  }"], 3


def _nested(outline: Outline) -> tuple[list[str], list[str], int]:
    """Loops over the coordinates; what the kernel does not unpack of the grid is run through innermost."""
    *outer, last = outline.coordinates
    k = len(outer)
    step = "--thread" if outline.descending else "++thread"
    first = ["  const i64 ahead = args[0] * args[1] * args[2] * args[3] - already;"]
    first.append("  thread = args[0] * args[1] * args[2] * args[3] - 1;")
    loops = first if outline.descending else []
    loops += [f"{INDENT * (n + 1)}{_over(outline, i, n)}" for n, i in enumerate(outer)]
    chunks, spent = _chunks(outline, last, k)
    loops += _indented(chunks, k + 1)
    beyond = " * ".join(f"args[{n}]" for n in range(k + 1, GRID_SLOTS)) or "1"
    loops.append(f"{INDENT * (k + 3)}for (i64 rest = {beyond}; rest > 0; --rest, {step}) {{")
    skipped = "thread >= ahead" if outline.descending else "thread < already"
    loops.append(f"{INDENT * (k + 4)}if ({skipped}) continue;")
    ends = [
        INDENT * (k + 3) + "}",
        INDENT * (k + 2) + "}",
        INDENT * (k + 2) + _poll(outline, spent),
    ]
    ends += [INDENT * level + "}" for level in range(k + 1, 0, -1)]
    return loops, ends, k + 4


def _over(outline: Outline, name: str, axis: int) -> str:
    if outline.descending:
        return f"for (int {name} = (int)args[{axis}] - 1; {name} >= 0; --{name}) {{"
    return f"for (int {name} = 0; {name} < args[{axis}]; ++{name}) {{"


def _chunks(outline: Outline, name: str, axis: int) -> tuple[list[str], str]:
    """The loops over the last coordinate, in chunks between polls, and how many threads a chunk runs."""
    chunk, extent = _chunk(outline), f"args[{axis}]"
    if outline.descending:
        lines = [
            f"for (i64 start = {extent}; start > 0; start -= {chunk}) {{",
            f"  const i64 release = start < {chunk} ? 0 : start - {chunk};",
            f"  for (int {name} = (int)start - 1; {name} >= release; --{name}) {{",
        ]
        return lines, "start - release"
    lines = [
        f"for (i64 start = 0; start < {extent}; start += {chunk}) {{",
        f"  const i64 release = {extent} - start < {chunk} ? {extent} : start + {chunk};",
        f"  for (int {name} = (int)start; {name} < release; ++{name}) {{",
    ]
    return lines, "release - start"


# ------------------------------------------------------------------------------------------ CUDA


def cuda_shell(outline: Outline) -> Shell:
    """A kernel whose device threads stride over the grid; the arena and the residuals are cut beforehand."""
    setup = ["const i64* const args = given.slots;", *outline.unpack, f"int budget = {BUDGET};"]
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
    given = f"{outline.symbol}_args"
    head = [
        f"struct {given} {{ i64 slots[{outline.slots}]; }};",
        f'extern "C" __global__ void {outline.symbol}(const {given} given, i64* status) {{',
        *_indented(setup, 1),
    ]
    gathered = [INDENT + total.gathered for total in outline.totals if isinstance(total, Total)]
    return Shell(tuple(head), 2, ("  }", "end:;", *gathered, "}"))


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
