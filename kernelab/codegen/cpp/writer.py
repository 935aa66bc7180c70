"""Lines of a generated body: values, memory accesses with their bounds checks, and saved values.

A `Writer` knows where it stands, the names that were given out, and the sites of the checks; the regions and
the entry around them are `cpp`'s.  An array element is checked against its bounds once where several accesses
share array and indices, in the outermost block that dominates them.
"""

import math
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from kernelab.codegen.cpp import spelling
from kernelab.codegen.cpp.entry import FULL, KEPT, LIMIT, MEMORY, ROOM, Line, Site
from kernelab.codegen.cpp.helpers import Names
from kernelab.codegen.cpp.own_memory import OwnMemory
from kernelab.codegen.cpp.spelling import unwrapped
from kernelab.codegen.cpp.targets import INDENT, Flavor
from kernelab.codegen.cpp.wide_accumulators import Total, Wide
from kernelab.data_classes.turns import cached_property
from kernelab.errors import NOWHERE, Span
from kernelab.lang import ir
from kernelab.lang.build import elem_of
from kernelab.lang.ops import SHAPE
from kernelab.lang.types import Scalar, scalar_of, size_of
from kernelab.passes.access.independence import never_negative, own_atomics, read_only

# ----------------------------------------------------------- structure that decides how a function is printed


SHORT = 1 << 14
"""A loop of at most so many statements in all runs without a poll."""


def weight(block: ir.Block) -> int:
    """About how many statements run, counting loops of unknown length once."""
    total = 1
    for stmt in block.stmts:
        match stmt:
            case ir.For(_, _, ir.Const(count)):
                total += max(1, int(count)) * weight(stmt.body)
            case _:
                total += 1 + sum(weight(inner) for inner in ir.blocks(stmt))
    return total


def is_short(loop: ir.Loop) -> bool:
    """Whether a loop provably ends soon."""
    if not (isinstance(loop, ir.For) and isinstance(loop.count, ir.Const)):
        return False
    return int(loop.count.value) * weight(loop.body) <= SHORT


def sides(stmt: ir.If) -> tuple[bool, ir.Block, ir.Block]:
    """The branch to print first, whether it is the one where the condition holds, and the other.

    A branch without statements comes last: its values are those that the outs begin with.
    """
    if stmt.then.stmts or not stmt.orelse.stmts:
        return True, stmt.then, stmt.orelse
    return False, stmt.orelse, stmt.then


def ends_in_choice(block: ir.Block, stop: ir.Atom) -> bool:
    """Whether the last statement is an `If` that decides `stop`."""
    last = block.stmts[-1] if block.stmts else None
    return isinstance(last, ir.If) and stop in last.outs


def stop_values(block: ir.Block, stop: ir.Atom) -> Iterator[ir.Atom]:
    """The values of `stop` at the places where an iteration ends, as the emitter prints them."""
    if not ends_in_choice(block, stop):
        yield stop
        return
    last = block.stmts[-1]
    assert isinstance(last, ir.If) and isinstance(stop, ir.Var)
    position = last.outs.index(stop)
    for branch in (last.then, last.orelse):
        yield from stop_values(branch, branch.yields[position])


def stops(value: ir.Atom) -> bool:
    """Whether what a loop yields for its `stop` says that it ends."""
    return isinstance(value, ir.Const) and bool(value.value)


def chosen(stmt: ir.If, branch: ir.Block, yields: Sequence[ir.Atom]) -> tuple[ir.Atom, ...]:
    """The values of `yields` if a branch was taken."""
    values = dict(zip(stmt.outs, branch.yields, strict=True))
    return tuple(value if isinstance(value, ir.Const) else values.get(value, value) for value in yields)


Move = tuple[str, str, Scalar]


def ordered(
    moves: Sequence[Move], temporary: Callable[[str], str]
) -> Iterator[tuple[str, str, Scalar | None]]:
    """Assignments, one after the other, that do what `moves` do at once.

    The third part is the type where the target is a new temporary, which breaks a cycle such as a swap.
    """
    waiting = [move for move in moves if move[0] != move[1]]
    while waiting:
        free = next((m for m in waiting if all(m[0] != value for _, value, _ in waiting)), None)
        if free is not None:
            waiting.remove(free)
            yield free[0], free[1], None
            continue
        target, _, scalar = waiting[0]
        old = temporary(f"{target}_old")
        yield old, target, scalar
        waiting = [(t, old if value == target else value, s) for t, value, s in waiting]


def early_saves(body: ir.Block) -> frozenset[ir.Stmt]:
    """The saves that a thread passes before it has changed anything: there it can still start anew."""
    saves: set[ir.Stmt] = set()
    for stmt in body.stmts:
        inside = [*ir.within(stmt)]
        if any(isinstance(inner, ir.Store | ir.Atomic | ir.Append | ir.Print) for inner in inside):
            break
        saves.update(inner for inner in inside if isinstance(inner, ir.Save))
    return frozenset(saves)


# ---------------------------------------------------------------------------------------------------- writer


class Writer:
    """Writes the statements of one function that are not regions."""

    def __init__(self, function: ir.Function, flavor: Flavor) -> None:
        self.function = function
        self.flavor = flavor
        self.name = Names()
        self.used = frozenset(ir.reads(function.body))
        self.late: set[ir.Var] = set()  # what has been declared of `late_values`
        self.totals: dict[ir.Atomic, Total] = {}
        self.wide: dict[ir.Atomic, Wide] = {}
        self.widened: list[tuple[ir.Atomic, str, str, Line]] = []
        """The last additions to accumulators: what adds, the addresses, the values and their lines."""
        saves = ir.of_kind(function.body, ir.Save)
        saved = (spelling.size(scalar_type(atom)) for stmt in saves for atom in stmt.atoms)
        self.widest = max(saved, default=1)  # the size of every record is a multiple of it
        self.never_negative = never_negative(function)
        self.near = flavor.near(function)
        wraps = dict.fromkeys(site for stmt in ir.walk(function.body) for site in self.wrapping(stmt))
        self.wraps = {site: min(number, 63) for number, site in enumerate(wraps)}
        self.own = own_atomics(function) if self.near else frozenset[ir.Atomic]()
        self.steady = read_only(function)
        self.common = {*function.params, *(loop.index for loop in ir.of_kind(function.body, ir.For))}
        self.sites: list[Site] = []
        self.depth = 0
        self.written: list[Line] = []
        self.span: Span | None = None
        self.addresses: ChainMap[tuple[ir.Var, tuple[ir.Atom, ...]], str] = ChainMap()
        self.positions: ChainMap[tuple[ir.Var, int, ir.Atom], str] = ChainMap()
        self.in_memory: dict[ir.Var, dict[tuple[tuple[ir.Atom, ...], int | None], ir.Var]] = {}
        """The variables loaded from each array, by element and component, where memory still holds them."""

    @cached_property
    def own_memory(self) -> OwnMemory:
        return self.flavor.own_memory(self.function)

    # ---------------------------------------------------------------------------------------- lines

    def line(self, text: str) -> None:
        self.written.append(Line(INDENT * self.depth + text, self.span))

    @contextmanager
    def braces(self, head: str) -> Iterator[None]:
        """A block of C++: what is written within stands inside, and its addresses are forgotten after it."""
        self.line(f"{head} {{")
        self.depth += 1
        self.addresses, self.positions = self.addresses.new_child(), self.positions.new_child()
        self.in_memory.clear()
        span = self.span
        yield
        self.in_memory.clear()
        self.span = span
        self.addresses, self.positions = self.addresses.parents, self.positions.parents
        self.depth -= 1
        self.line("}")

    # --------------------------------------------------------------------------------------- values

    def atom(self, atom: ir.Atom) -> str:
        if isinstance(atom, ir.Const):
            return spelling.literal(atom, self.flavor.infinity, self.flavor.nan)
        return self.name(atom)

    def declare(self, var: ir.Var, value: str | None = None) -> None:
        type = "" if var in self.late else f"{spelling.value_type(scalar_type(var))} "
        self.line(f"{type}{self.name(var)}{'' if value is None else f' = {unwrapped(value)}'};")

    def assign(self, targets: Sequence[ir.Var], values: Sequence[ir.Atom]) -> None:
        """Give all targets their values at once, though C++ does it one after the other."""
        moves = [(self.name(t), self.atom(v), scalar_type(t)) for t, v in zip(targets, values, strict=True)]
        for target, value, scalar in ordered(moves, self.name.numbered):
            declared = "" if scalar is None else f"{spelling.value_type(scalar)} "
            self.line(f"{declared}{target} = {unwrapped(value)};")

    def operation(self, stmt: ir.Let) -> str:
        if stmt.op is SHAPE:
            array, axis = stmt.args
            assert isinstance(array, ir.Var) and isinstance(axis, ir.Const), (
                "the axis of a shape is a constant"
            )
            return f"(int){self.name(array)}_n{axis.value}"
        scalar = scalar_type(stmt.out)
        types = [scalar_type(arg) for arg in stmt.args]
        return self.flavor.operation(stmt.op, [self.atom(arg) for arg in stmt.args], types, scalar)

    def check(self, failed: str, code: str, site: Site) -> None:
        self.line(f"if ({failed}) {{ fail(status, {code}, {len(self.sites)}, thread); {self.flavor.leave} }}")
        self.sites.append(site)

    # --------------------------------------------------------------------------------------- memory

    def allocate(self, stmt: ir.Alloc) -> None:
        elem, ndim = elem_of(stmt.out), len(stmt.shape)
        scalar, inner = scalar_of(elem), size_of(elem)
        name = self.name.family(stmt.out, ["_data", *axes_of(ndim)])
        sizes = [math.prod(stmt.shape[k + 1 :]) * inner * spelling.size(scalar) for k in range(ndim)]
        for line in (*self.own_memory.zeros(name, stmt), *self.dimensions(name, stmt.shape, sizes)):
            self.line(line)

    def dimensions(self, name: str, shape: Sequence[object], strides: Sequence[object]) -> Iterator[str]:
        """The lines that declare the extents and the strides of an array."""
        for type, letter, values in (("u64", "n", shape), ("i64", "s", strides)):
            declared = ", ".join(f"{name}_{letter}{k} = {value}" for k, value in enumerate(values))
            yield f"const {'unsigned' if self.near else type} {declared};"

    def load(self, stmt: ir.Load) -> None:
        if stmt.held is not None:
            self.declare(stmt.out, self.atom(stmt.held))
            return
        scalar, pointer = self.access(stmt)
        self.declare(stmt.out, self.flavor.load(scalar, pointer, self.near and stmt.array in self.steady))
        self.in_memory.setdefault(stmt.array, {})[stmt.indices, stmt.component] = stmt.out

    def overwrite(self, stmt: ir.Store) -> None:
        scalar, pointer = self.access(stmt)
        text = spelling.store(scalar, pointer, self.atom(stmt.value))
        loaded = self.in_memory.get(stmt.array, {})
        before = loaded.pop((stmt.indices, stmt.component), None)
        # Another element's value is no longer known: its indices may be equal to these.
        self.in_memory[stmt.array] = {key: var for key, var in loaded.items() if key[0] == stmt.indices}
        new = stmt.value.value if isinstance(stmt.value, ir.Const) else 1
        is_zero = new == 0 and math.copysign(1.0, new) > 0  # to the last bit, as -0.0 is not
        if before is not None and self.near and is_zero:
            text = self.flavor.clear(scalar, self.name(before), text)
        self.line(text)

    def atomic(self, stmt: ir.Atomic) -> None:
        self.in_memory.pop(stmt.array, None)
        scalar, pointer = self.access(stmt)
        if stmt in self.totals:
            total = self.totals[stmt]
            self.line(total.moved(unwrapped(pointer)))
            self.line(f"{total.name} += {self.atom(stmt.value)};")
        elif stmt in self.wide:
            self.widen(stmt, unwrapped(pointer), self.atom(stmt.value))
        else:
            self.change(stmt, scalar, pointer)
        if stmt.held is not None:
            self.declare(stmt.out, self.atom(stmt.held))

    def widen(self, stmt: ir.Atomic, pointer: str, value: str) -> None:
        """Add to the accumulator of an element: to three in a row, those of one vector, at once."""
        wide = self.wide[stmt]
        self.line(wide.added(pointer, value))
        self.widened = [*self.widened[-2:], (stmt, pointer, value, self.written[-1])]
        stmts, pointers, values, lines = zip(*self.widened, strict=True)
        in_a_row = (*self.written[-3:],) == lines and len({(one.array, one.indices) for one in stmts}) == 1
        if wide.triples and in_a_row and [one.component for one in stmts] == [0, 1, 2]:
            del self.written[-3:]
            self.line(wide.added_triple(pointers[0], values))

    def change(self, stmt: ir.Atomic, scalar: Scalar, pointer: str) -> None:
        """Change an element in memory at once."""
        out = self.name(stmt.out) if stmt.out in self.used and stmt.held is None else None
        compare = None if stmt.compare is None else self.atom(stmt.compare)
        value = self.atom(stmt.value)
        if stmt.kind == "add" and out is None and stmt not in self.own and self.may_meet(stmt.indices):
            lines = self.flavor.add_together(scalar, pointer, value)
        else:
            spell = spelling.plain if stmt in self.own else self.flavor.atomic
            lines = spell(stmt.kind, scalar, pointer, value, compare, out)
        for line in lines:
            self.line(line)

    def may_meet(self, indices: Sequence[ir.Atom]) -> bool:
        """Whether neighbouring threads are likely to add to one element at the same time."""
        return all(isinstance(index, ir.Const) or index in self.common for index in indices)

    def access(self, stmt: ir.ArrayAccess) -> tuple[Scalar, str]:
        """The scalar type and the address of what a statement reads or writes."""
        scalar = scalar_of(elem_of(stmt.array))
        element = self.address(stmt.array, stmt.indices, stmt.span)
        return scalar, spelling.offset(element, (stmt.component or 0) * spelling.size(scalar))

    def address(self, array: ir.Var, indices: tuple[ir.Atom, ...], span: Span) -> str:
        """The address of an element, checked; the same one again where it is known already."""
        cached = self.addresses.get((array, indices))
        if cached is not None:
            return cached
        name = self.name(array)
        terms = [name]
        wide = "(u64)" if self.near else ""
        for axis, index in enumerate(indices):
            terms.append(f"{wide}{self.position(array, axis, index, span)} * {name}_s{axis}")
        address = self.name.fresh(f"{name}_at")
        self.line(f"char* {address} = {' + '.join(terms)};")
        self.addresses[array, indices] = address
        return address

    def position(self, array: ir.Var, axis: int, index: ir.Atom, span: Span) -> str:
        """An index within the extent of an axis; below zero it counts from the end, as in Python."""
        cached = self.positions.get((array, axis, index))
        if cached is not None:
            return cached
        name = self.name(array)
        position = self.name.fresh(f"{name}_i{axis}")
        self.line(f"{self.position_type(index)} {position} = {unwrapped(self.atom(index))};")
        self.within(position, index, f"{name}_n{axis}", axis, site_of(span, array))
        self.positions[array, axis, index] = position
        return position

    def within(self, position: str, index: ir.Atom, extent: str, axis: int, site: Site) -> None:
        offender = self.atom(index) if self.near or self.counts_from_the_end(index) else position
        report = f"fail_index(status, {len(self.sites)}, thread, {offender}, {extent}, {axis});"
        self.line(self.tested(position, index, extent, site, f"{{ {report} {self.flavor.leave} }}"))
        self.sites.append(site)

    def tested(self, position: str, index: ir.Atom, extent: str, site: Site, leave: str) -> str:
        """The test of an index, which below zero counts from the end; that of a computed one is noted."""
        unsigned = "" if self.position_type(index) == "unsigned" else "(u64)"
        outside = f"{unsigned}{position} >= {extent}"
        if not self.counts_from_the_end(index):
            return f"if ({outside}) {leave}"
        again = f"if ({unsigned}({position} += {extent}) >= {extent}) {leave}"
        noted = "" if isinstance(index, ir.Const) else f" {self.noted(site)}"
        return f"if ({outside}) {{ {again}{noted} }}"

    def noted(self, site: Site) -> str:
        """The statement that notes that a computed index was below zero."""
        return f"{self.flavor.wrapped} |= 1ull << {self.wraps[site]};"

    def wrapping(self, stmt: ir.Stmt) -> Iterator[Site]:
        """The place of a statement that notes computed indices below zero."""
        match stmt:
            case ir.Load() | ir.Store() | ir.Atomic():
                if any(map(self.may_wrap, stmt.indices)):
                    yield site_of(stmt.span, stmt.array)
            case ir.Assert(_, "negative", array):
                yield Site(stmt.span, array)

    def position_type(self, index: ir.Atom) -> str:
        """The type that holds an index, and what it becomes within its axis."""
        scalar = scalar_type(index)
        return "unsigned" if self.near and scalar.kind == "int" and scalar.bits <= 32 else "i64"

    def counts_from_the_end(self, index: ir.Atom) -> bool:
        """Whether an index may be below zero."""
        return index.value < 0 if isinstance(index, ir.Const) else self.may_wrap(index)

    def may_wrap(self, index: ir.Atom) -> bool:
        """Whether an index is computed, and may be below zero."""
        if isinstance(index, ir.Const) or index in self.never_negative:
            return False
        return scalar_type(index).kind == "int"

    # -------------------------------------------------------------------------------- what is saved

    def save(self, atoms: Sequence[ir.Atom], is_early: bool) -> None:
        offsets, size = self.record(atoms)
        site = Site(self.span or NOWHERE)
        field, full = (LIMIT, FULL) if is_early else (ROOM, KEPT)
        most, code = f"status[{field}]", f"status[{field}] ? {full} : {MEMORY}"
        taken = self.flavor.taken(size)
        self.check(f"limit - top < {taken} && !room(base, top, limit, {size}, {most})", code, site)
        for atom, offset in zip(atoms, offsets, strict=True):
            self.keep(atom, self.flavor.kept_at(offset, self.widest))
        self.line(f"top += {taken};")

    def restore(self, outs: Sequence[ir.Var]) -> None:
        offsets, size = self.record(outs)
        self.line(f"top -= {self.flavor.taken(size)};")
        for out, offset in zip(outs, offsets, strict=True):
            self.take_back(out, self.flavor.kept_at(offset, self.widest))

    def record(self, atoms: Sequence[ir.Atom]) -> tuple[list[int], int]:
        """The offset of each value in a saved record, the widest first, and the record's size."""
        scalars = [scalar_type(atom) for atom in atoms]
        offsets = [0] * len(scalars)
        end = 0
        for k in sorted(range(len(scalars)), key=lambda k: -scalars[k].bits):
            offsets[k] = end
            end += spelling.size(scalars[k])
        return offsets, (end + self.widest - 1) // self.widest * self.widest

    def keep(self, atom: ir.Atom, place: str) -> None:
        self.line(spelling.store(scalar_type(atom), place, self.atom(atom)))

    def take_back(self, out: ir.Var, place: str) -> None:
        self.declare(out, spelling.load(scalar_type(out), place))

    def append(self, array: ir.Var, value: ir.Atom) -> None:
        name, scalar = self.name(array), scalar_type(value)
        size = spelling.size(scalar)
        full = f"{name}_length == {name}_capacity && !more(status, {name}, {name}_capacity, {size})"
        self.check(full, f"status[{ROOM}] ? {KEPT} : {MEMORY}", Site(self.span or NOWHERE))
        self.line(spelling.store(scalar, f"({name} + {name}_length * {size})", self.atom(value)))
        self.line(f"{name}_length += {self.flavor.spread};")


def axes_of(ndim: int) -> list[str]:
    """The suffixes of the names of the extents and strides of an array."""
    return [f"_{letter}{k}" for letter in "ns" for k in range(ndim)]


def site_of(span: Span, array: ir.Var) -> Site:
    """The site of an access."""
    return Site(span, array.hint or "t")


def scalar_type(atom: ir.Atom) -> Scalar:
    assert isinstance(atom.type, Scalar), f"{atom} is not scalarised"
    return atom.type
