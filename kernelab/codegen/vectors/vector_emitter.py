"""The emitter of vector code for the CPU: threads run in groups, each in a lane of the processor's vectors.

    for (; at + 16 <= release; at += 16) {
      const int i = (int)at;
      vf x_1 = *(vfu*)x_at;             one value for each of the threads i .. i + 15
      *(vfu*)y_at = x_1 * splat(a);

Values that are the same for a group stay scalars (`codegen.vectors.variation`).  Where threads take different
branches both are run, each under the mask of its lanes.  An entry takes the arguments of the scalar one and
gives up where that has to go on: it returns -1, and status[DONE] says how many threads have run.  It does so
before any effect of a group in which an index is out of bounds or an assertion fails, so that errors come
from scalar code.  What this module does not handle stays scalar: `Refused` says why.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import inf

from kernelab.codegen.cpp import spelling
from kernelab.codegen.cpp.emitter import prelude
from kernelab.codegen.cpp.entry import DONE, Line, Unit
from kernelab.codegen.cpp.helpers import BUDGET
from kernelab.codegen.cpp.prefetch import Prefetches, prefetches
from kernelab.codegen.cpp.targets import INDENT, Cpu, box_bounds, chunks, over, polled, reported, row_of
from kernelab.codegen.cpp.wide_accumulators import Wide, versions
from kernelab.codegen.cpp.writer import is_short, scalar_type, weight
from kernelab.codegen.vectors.interior import Interior
from kernelab.codegen.vectors.launch_rule import THREADS, checks_of, extent_of, is_field, launch_rule
from kernelab.codegen.vectors.variation import LINEAR, UNIFORM, VARYING, Variations
from kernelab.codegen.vectors.vector_columns import always_run, columns_walked
from kernelab.codegen.vectors.vector_operations import Lanes
from kernelab.codegen.vectors.vector_places import (
    ROW,
    first_columns,
    is_long,
    is_rare,
    is_read_whole,
    kind_of,
    rows_read,
)
from kernelab.codegen.vectors.vector_values import LateCheck, Refused
from kernelab.codegen.vectors.vector_writer import VectorWriter
from kernelab.lang import ir
from kernelab.lang.build import elem_of
from kernelab.lang.types import Scalar, bool_, float64, size_of
from kernelab.passes.access.independence import independent, own_atomics

FAR = 1 << 24
"""The bytes of an array from which the caches are not likely to keep it until it is read."""

LONG_ROW = 1024
"""The threads of a row from which parts of a line at its ends do not matter."""


def emit_vectors(function: ir.Function, lanes: Lanes) -> Unit:
    """A unit with the vector entry of a scalarised function; raises Refused."""
    _refuse(function)
    try:
        body = VectorBody(function, lanes)
        text = body.lines()
    except LateCheck:
        body = VectorBody(function, lanes, checks_of(function))
        text = body.lines()
    texts = [line.text for line in text]
    head = [*prelude(Cpu(), texts), *lanes.head(texts)]
    lines = [*map(Line, head), *text]
    return Unit(tuple(lines), (body.info(range(len(head), len(lines))),))


def _refuse(function: ir.Function) -> None:
    if not function.threads or function.linear is not None or function.aliased:
        raise Refused("its threads are not told apart by their indices alone")
    if not independent(function):
        raise Refused("its threads have to run one after another")
    for stmt in ir.walk(function.body):
        if isinstance(stmt, ir.Native | ir.Print | ir.Append | ir.Alloc):
            raise Refused(f"it has a statement of the kind {type(stmt).__name__}")


class VectorBody(VectorWriter):
    """Prints one function for groups of threads, which run `checks` first, if there are any."""

    def __init__(self, function: ir.Function, lanes: Lanes, checks: ir.Block | None = None) -> None:
        super().__init__(function, lanes)
        self.checks = checks

    # ------------------------------------------------------------------------------------------ the entry

    def lines(self) -> list[Line]:
        """The whole entry."""
        outline = self.outline()
        self.ahead = outline.prefetches
        loops = self.groups(outline.coordinates, outline.weight)
        shared = [total for stmt, total in self.totals.items() if not self.is_own(stmt)]
        sums = [total for total in outline.totals if total in shared or isinstance(total, Wide)]
        rule = launch_rule(self.function, self.name, self.conditions)
        setup = [*outline.unpack, *self.constants(), f"if (!({rule})) {{ status[{DONE}] = 0; return -1; }}"]
        if self.known_within:  # the indices whose range is known are all within their extents
            setup.append(f"const bool within = {' && '.join(self.known_within)};")
        setup += [self.declared_far(array, name) for array, name in self.far.items()]
        setup += [line for total in sums for line in total.declared]
        setup += [self.zeroed(total) for total in shared]
        if outline.arena is not None:
            setup.append("char *base = 0, *top = 0, *limit = 0;")
        setup += [f"i64 done = 0, row = 0, budget = {BUDGET};", "int code = 0;", "status[0] = 0;"]
        release = ["free(base);"] if outline.arena is not None else []
        release += ["__builtin_ia32_sfence();"] if self.far else []
        release += [self.folded(total) for total in shared]
        release += [total.settled for total in sums]
        signature = f'extern "C" int {self.symbol}(const i64* args, i64* status) {{'
        before, behind = versions(outline.totals) if not is_long(self.function) else ([], [])
        head = [signature, *(INDENT + line for line in (*setup, *before))]
        tail = ["  goto end;", "bail:", f"  status[{DONE}] = done, code = -1;", "end:;"]
        tail += [INDENT + line for line in (*behind, *release)]
        tail += [f"  return code ? code : {reported(bool(self.wraps))};", "}"]
        return [*map(Line, head), *loops, *map(Line, tail)]

    def declared_far(self, array: ir.Var, name: str) -> str:
        """Whether an array is larger than `FAR`, and written in rows of many lines."""
        size, row = f"(i64){self.name(array)}_n0 * {self.name(array)}_s0", len(self.function.threads) - 1
        return f"const bool {name} = {size} >= {FAR} && {extent_of(self.function, row)} >= {LONG_ROW};"

    def prefetches(self, wide: Mapping[ir.Var, Wide]) -> Prefetches:
        return prefetches(self.function, self.name, wide, "at", "lane_extent", self.lanes.width)

    def constants(self) -> list[str]:
        before, self.written, self.depth = (self.written, self.depth), [], 0
        for stmt in self.ranges.constants.values():
            self.let(stmt)
        lines = [line.text for line in self.written]
        self.written, self.depth = before
        return lines

    def groups(self, coordinates: Sequence[str], spent: int) -> list[Line]:
        """The loops over the grid: the last index in groups, the others one by one."""
        last, down, width = len(coordinates) - 1, self.function.descending, self.lanes.width
        chunk = max(1, BUDGET // spent // width) * width
        extents = [f"args[{axis}]" for axis in range(last)] + ["lane_extent"]
        extent = f"args[{last}]" if last else THREADS
        interior = Interior(self.function, self.name, self.ranges, self.variations)
        texts = [*self.inner_groups(coordinates[-1], interior), *self.other_groups(coordinates[-1])]
        head = [f"const i64 lane_extent = {extent};", *self.ahead.declared, *box_bounds(extents)]
        lines = [INDENT + line for line in head]
        for axis, name in enumerate(coordinates[:-1]):
            lines.append(f"{INDENT * (axis + 1)}{over(name, axis, down)}")
        inside = INDENT * (last + 1)
        if last:
            lines.append(f"{inside}row = {row_of(coordinates[:-1])};")
        lines += [inside + line for line in chunks(last, chunk, down)]
        lines += [
            f"{inside}  i64 at = start;",
            *(f"{inside}  {line}" for line in self.inner_bounds(interior)),
        ]
        lines.append(f"{inside}  while (at {'>' if down else '<'} release) {{")
        threads = "start - release" if down else "release - start"
        ends = [f"{inside}  }}", f"{inside}  {polled(f'({threads}) * {spent}')}", f"{inside}}}"]
        ends += [INDENT * level + "}" for level in range(last, 0, -1)]
        return [*map(Line, lines), *texts, *map(Line, ends)]

    def inner_bounds(self, interior: Interior) -> Iterator[str]:
        """From where to where the threads of a chunk lie in the interior."""
        if is_long(self.function):
            return
        first, behind = ("release", "start") if self.function.descending else ("start", "release")
        for text in interior.first:
            first = f"larger({first}, {text})"
        for text in interior.behind:
            behind = f"smaller({behind}, {text})"
        yield f"i64 inner_from = {first}, inner_upto = {behind};"
        tests = [*interior.rows]
        if interior.inner is None:
            tests.append("within")
        elif any(interior.inner):
            rows, starts, ends = interior.inner
            yield "if (!within) {"
            yield from (f"  inner_from = larger(inner_from, {text});" for text in starts)
            yield from (f"  inner_upto = smaller(inner_upto, {text});" for text in ends)
            yield "}"
            tests += [f"(within || {text})" for text in rows]
        if tests:
            yield f"if (!({' && '.join(tests)})) inner_upto = inner_from;"

    def inner_groups(self, index: str, interior: Interior) -> list[Line]:
        """The groups of the interior, of which all lanes are threads."""
        if is_long(self.function):
            return []
        width = self.lanes.width
        if self.function.descending:
            head = [f"if (at <= inner_upto) while (at - inner_from >= {width}) {{", f"  at -= {width};"]
            done = f"{THREADS} - row - at - {width}"
        else:
            head = [f"if (at >= inner_from) for (; inner_upto - at >= {width}; at += {width}) {{"]
            done = "row + at"
        lines = [f"done = {done};", *self.ahead.each, f"const int {index} = (int)at;"]
        self.interior = interior
        texts = self.group([*head, *(INDENT + line for line in lines)], 1, "")
        self.interior = None
        leave = "if (at <= release) break;" if self.function.descending else "if (at >= release) break;"
        indent = INDENT * (len(self.function.threads) + 2)
        return [*texts, Line(f"{indent}}}"), Line(indent + leave)]

    def other_groups(self, index: str) -> list[Line]:
        """The groups at borders, and those of which some lanes are not threads."""
        width, is_down = self.lanes.width, self.function.descending
        left = "at - release" if is_down else "release - at"
        head = [f"const int rest = {left} < {width} ? (int)({left}) : {width};"]
        head += ["at -= rest;", f"done = {THREADS} - row - at - rest;"] if is_down else ["done = row + at;"]
        head += [*self.ahead.each, f"const int {index} = (int)at;", "const vi tail = iota < rest;"]
        step = [] if is_down else [Line(f"{INDENT * (len(self.function.threads) + 2)}at += {width};")]
        return [*self.group(head, 0, "tail"), *step]

    def group(self, head: list[str], depth: int, mask: str) -> list[Line]:
        """The body, for a group."""
        self.written, self.mask, self.has_effects, self.pending = [], mask, False, []
        self.loaded.clear()
        self.asked_by_lanes = self.ahead.lanes
        self.depth = len(self.function.threads) + 2 + depth
        with self.scope():
            lines = [Line(INDENT * (self.depth - depth) + line) for line in head]
            if self.layout.arena is not None:
                self.line("top = base;")
            if self.checks is not None:
                self.check_first(self.checks)
            with self.totals_of_lanes(None):
                self.stmts(self.function.body.stmts)
            self.flush()
        return [*lines, *self.written]

    def check_first(self, checks: ir.Block) -> None:
        self.is_checking, self.is_checked = True, False
        with self.braces("if (true)"):
            self.stmts(checks.stmts)
        self.is_checking, self.is_checked = False, True
        self.loaded.clear()

    # ------------------------------------------------------------------------------------------ choices

    def choice(self, stmt: ir.If) -> None:
        self.flush_before(stmt)
        if self.of(stmt.cond) == UNIFORM:
            super().choice(stmt)
            return
        cond = self.vector(stmt.cond)
        if self.selects(stmt, cond):
            return
        if self.interior is not None and stmt.cond in self.interior.usual:
            usual = stmt.then if self.interior.usual[stmt.cond] else stmt.orelse
            if usual.stmts:
                self.arm(stmt, usual, "")
            return
        masks = [self.temporary(bool_, "mask", self.masked(holds)) for holds in (cond, f"!{cond}")]
        if self.mask or self.interior is None or not self.interior.is_border(stmt):
            self.masked_arms(stmt, masks)
            return
        usual, others = (stmt.then, masks[1]) if stmt.then.stmts else (stmt.orelse, masks[0])
        before = self.has_effects
        self.arm(stmt, usual, f"if (!any({others}))", "")
        after, self.has_effects = self.has_effects, before
        with self.braces("else"):
            self.masked_arms(stmt, masks)
        self.has_effects |= after

    def masked_arms(self, stmt: ir.If, masks: Sequence[str]) -> None:
        """Both branches, each for the lanes that take it."""
        arms = [*zip((stmt.then, stmt.orelse), masks, strict=True)]
        restores = any(isinstance(inner, ir.Restore) for inner in ir.within(stmt))
        # Both arms may have pushed: what was pushed last is popped first.
        for block, mask in reversed(arms) if restores else arms:
            if block.stmts:
                self.arm(stmt, block, f"if (any({mask}))", mask)

    def arm(self, stmt: ir.If, block: ir.Block, head: str, mask: str | None = None) -> None:
        truth = block is stmt.then
        with self.braces(head), self.where(stmt.cond, truth), self.block(mask):
            self.stmts(block.stmts)
            self.flush()
            self.assign(stmt.outs, block.yields, mask or "")

    # ------------------------------------------------------------------------------------------ loops

    def loop(self, stmt: ir.Loop) -> None:
        is_uniform = isinstance(stmt, ir.For) and stmt.stop is None and self.of(stmt.count) == UNIFORM
        kept = self.before_loop(stmt, is_uniform)
        self.flush_before(stmt)
        changes = (inner for inner in ir.walk(stmt.body) if isinstance(inner, ir.Store | ir.Atomic))
        self.has_effects |= not self.is_checking and any(inner not in self.lane_totals for inner in changes)
        for out, carry, init in zip(stmt.outs, stmt.carries, stmt.inits, strict=True):
            self.declare(carry, self.value(carry, init))
            self.name.alias(out, self.name(carry))
        if is_uniform:
            with self.braces(self.loop_head(stmt)), self.block():
                self.poll(stmt)
                self.iterate(stmt, "")
            for line in kept:
                self.line(line)
        else:
            self.diverging_loop(stmt)

    def poll(self, stmt: ir.Loop) -> None:
        if not is_short(stmt):
            self.line(polled(weight(stmt.body) * self.lanes.width))

    def before_loop(self, loop: ir.Loop, is_uniform: bool) -> list[str]:
        """Load and address before a loop what is the same in all of its iterations.

        A check that fails there leaves the group to scalar code, which may find that it never comes to it.
        Returns the lines that write, behind the loop, the columns that it keeps.
        """
        varies, kept = {*ir.entering(loop), *ir.defined(loop.body)}, list[str]()
        for stmt in always_run(loop.body):
            is_known = is_uniform or all(self.of(index) != VARYING for index in stmt.indices)
            if not is_known or not varies.isdisjoint(stmt.indices):
                kept += self.keep_columns(stmt, loop)
                continue
            if isinstance(stmt, ir.Load) and stmt.array in self.steady:
                self.load(stmt)
                self.loaded.add(stmt)
                varies.discard(stmt.out)
            else:
                self.place_of(stmt)
        return kept

    def iterate(self, stmt: ir.Loop, mask: str) -> None:
        with self.totals_of_lanes(ir.entering(stmt)[0]):
            self.stmts(stmt.body.stmts)
        self.flush()
        self.assign(stmt.carries, stmt.body.yields, mask)

    def diverging_loop(self, stmt: ir.Loop) -> None:
        """A loop that lanes leave one by one: it runs as long as any of them has an iteration left."""
        going = self.temporary(bool_, "going", self.mask or "on")
        head, turn = "for (;;)", going
        if isinstance(stmt, ir.For):
            type, k = spelling.value_type(scalar_type(stmt.index)), self.name(stmt.index)
            head = f"for ({type} {k} = 0;; ++{k})"
            if self.of(stmt.count) == UNIFORM:
                most = self.atom(stmt.count)
                head = f"for ({type} {k} = 0; {k} < {most}; ++{k})"
            else:
                most = f"most_of({self.vector(stmt.count)}, {going})"
                turn = f"{going} & ({k} < {self.vector(stmt.count)})"
            if stmt.reverse:
                head = f"for ({type} {k} = {most}; {k}-- > 0;)"
        with self.braces(head):
            mask = self.temporary(bool_, "turn", turn)
            reverse = isinstance(stmt, ir.For) and stmt.reverse
            self.line(f"if (!any({mask})) {'continue' if reverse else 'break'};")
            self.poll(stmt)
            with self.block(mask):
                self.iterate(stmt, mask)
            if stmt.stop is not None:
                self.line(f"{going} &= !{self.name(stmt.carries[stmt.stop])} | !{mask};")


# ------------------------------------------------------------------------------------------ what it gains


def computes_in_doubles(function: ir.Function) -> bool:
    """Whether threads compute with float64 each."""
    kinds = Variations(function).kinds if function.threads else {}
    return any(var.type == float64 and kind == VARYING for var, kind in kinds.items())


ITERATIONS = 8
"""The number of times that a loop is taken to run."""

SLOW = {"div": 4, "sqrt": 4, "floordiv": 16, "mod": 16}
CALL = 16
"""The operations that a mathematical function counts for."""

CHANGE = 4.0
"""What an element that is stored or added to counts for, beside one that is loaded."""

OF_A_ROW = 0.5
"""What an element counts for where a thread goes along a row of its own: the next one is in a cache."""

SPACED = 0.25
"""The same where elements lie apart by the same distance from thread to thread."""

OF_COLUMNS = 0.25
"""The same where a block of columns is kept: most of its cost is that of the shuffles."""

OF_A_VECTOR = 0.25
"""The same for the components of a vector, which is loaded as a whole."""


def operations_an_element(function: ir.Function, lanes: Lanes) -> float:
    """The operations of a scalarised function for each element that its lanes access one by one.

    They say whether vector code is faster than scalar code.  Arithmetic takes one instruction for all lanes.
    Elements that do not lie side by side are moved one by one, as in scalar code, and more slowly: each costs
    as much as the arithmetic of some operations saves.  Sums made lane by lane take as long in either.
    Infinite where none is moved so.
    """
    estimate = _Estimate(function, lanes)
    return estimate.operations / estimate.elements if estimate.elements else inf


class _Estimate:
    """What a function does, by kinds; raises Refused where it has no vector code whatever its types."""

    def __init__(self, function: ir.Function, lanes: Lanes) -> None:
        _refuse(function)
        self.lanes = lanes
        self.variations = Variations(function)
        self.of = self.variations.of
        self.own = own_atomics(function)
        self.depth: dict[ir.Atom, int] = {}
        self.rows = rows_read(function)
        self.columns_read, self.columns_changed = first_columns(function)
        self.walked = columns_walked(function, self.variations, lanes.width)
        self.tests: set[ir.Atom] = set()
        """Conditions that depend on thread indices alone: in the interior of a launch they are known."""
        self.operations = self.elements = 0.0
        self.block(function.body, 0, False)

    def block(self, block: ir.Block, depth: int, in_branch: bool) -> None:
        for stmt in block.stmts:
            self.depth |= dict.fromkeys(ir.defs(stmt), depth)
            match stmt:
                case ir.Let(out, _, args) if self.of(out) == VARYING:
                    if out.type == bool_ and all(a in self.tests or self.of(a) != VARYING for a in args):
                        self.tests.add(out)
                        continue
                    weight = self.weight(stmt)
                    if weight is None:
                        self.elements += float(ITERATIONS**depth)
                    else:
                        self.operations += weight * ITERATIONS**depth
                case ir.Load(held=None) | ir.Store() | ir.Atomic():
                    self.access(stmt, depth, in_branch)
                case ir.If(_, cond, then, orelse):
                    if not is_rare(cond, self.variations.lets):
                        self.block(then, depth, True)
                    self.block(orelse, depth, True)
                case ir.For(body=body) | ir.While(body=body):
                    self.depth |= dict.fromkeys(ir.entering(stmt), depth + 1)
                    self.block(body, depth + 1, False)

    def weight(self, stmt: ir.Let) -> int | None:
        """The operations that one counts for, None where its lanes compute it one by one."""
        types = [arg.type for arg in stmt.args if isinstance(arg.type, Scalar)]
        assert isinstance(stmt.out.type, Scalar)
        if len(types) < len(stmt.args) or not self.lanes.vectors.keys() >= {*types, stmt.out.type}:
            return 0  # the latter is refused when it is printed
        text = self.lanes.operation(stmt.op, ["x"] * len(types), types, stmt.out.type)
        if text is None:
            return None
        return CALL if "_ZGV" in text else SLOW.get(stmt.op.name, 1)

    def access(self, stmt: ir.ArrayAccess, depth: int, in_branch: bool) -> None:
        kinds = [self.of(index) for index in stmt.indices]
        last, is_single = stmt.indices[-1], VARYING not in kinds[:-1]
        is_plain = kind_of(stmt.array) or (size_of(elem_of(stmt.array)) == 1 and not is_field(stmt.array))
        is_linear = kinds[-1] == LINEAR or self.variations.is_mostly_linear(last)
        columns = self.columns_read if isinstance(stmt, ir.Load) else self.columns_changed
        count = columns.get((stmt.array, stmt.indices[:-1]), 0)
        are_next = 0 < count <= ROW and kinds[-2] == LINEAR and VARYING not in kinds
        side_by_side = (is_plain and is_single and is_linear) or are_next
        is_sum = isinstance(stmt, ir.Atomic) and VARYING in kinds and stmt not in self.own
        if is_sum or side_by_side or all(each == UNIFORM for each in kinds):
            return
        # What does not change in a loop is moved before it.
        own = depth if in_branch else max(self.depth.get(index, 0) for index in stmt.indices)
        if stmt in self.walked:
            self.elements += ITERATIONS**own * OF_COLUMNS
            return
        walks_rows = own > 0 and VARYING not in kinds and kinds[-1] == UNIFORM
        moves = 1.0 if isinstance(stmt, ir.Load) else CHANGE
        moves *= SPACED if is_single and self.variations.is_spaced(last) else 1.0
        is_whole = bool(count) or (isinstance(stmt, ir.Load) and is_read_whole(stmt, self.rows))
        moves *= OF_A_VECTOR if is_whole and not walks_rows and not in_branch else 1.0
        self.elements += ITERATIONS**own * moves * (OF_A_ROW if walks_rows else 1.0)
