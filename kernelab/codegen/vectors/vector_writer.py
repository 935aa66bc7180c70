"""Lines of vector code: values, memory accesses with their bounds checks, sums, and saved values.

A `VectorWriter` knows the mask under which it writes ("" where all lanes are on) and which effects still wait
for the end of their block: they stand behind the bounds checks of the block, so that a group in which one
fails has changed nothing.
"""

from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kernelab.codegen.common.entry import LIMIT, ROOM, Site
from kernelab.codegen.common.structure import ordered
from kernelab.codegen.cpp import spelling
from kernelab.codegen.cpp.emitter import Body
from kernelab.codegen.cpp.generated_names import Names, identifier
from kernelab.codegen.cpp.targets import Cpu
from kernelab.codegen.cpp.wide_accumulators import Total
from kernelab.codegen.cpp.writer import record, scalar_type
from kernelab.codegen.vectors.launch_rule import LaunchRanges, extent_of
from kernelab.codegen.vectors.variation import LINEAR, UNIFORM, VARYING, Variation, variations
from kernelab.codegen.vectors.vector_helpers import NAMES, VECTORS, Lanes
from kernelab.errors import Span
from kernelab.lang import ir
from kernelab.lang.build import elem_of
from kernelab.lang.ops import SHAPE
from kernelab.lang.types import Array, Scalar, bool_, bytes_of, float32, int32, scalar_of, size_of


class Refused(Exception):
    """A function that stays scalar, and why."""


@dataclass(frozen=True, slots=True)
class Place:
    """The elements that the lanes of a group access, from `base` on, the address of the first lane's.

    They are one (`offsets` is ""), lie side by side, or `offsets` bytes from there; `collide` says that two
    lanes may have the same.
    """

    base: str
    offsets: str = ""
    adjacent: bool = False
    collide: bool = False

    @property
    def is_one(self) -> bool:
        return not self.offsets and not self.adjacent

    def moved(self, bytes: int) -> "Place":
        return Place(spelling.offset(self.base, bytes), self.offsets, self.adjacent, self.collide)

    def of_lane(self, size: int) -> str:
        """The address of the element of `lane`."""
        if self.is_one:
            return self.base
        return f"({self.base} + {f'lane * {size}' if self.adjacent else f'{self.offsets}[lane]'})"


class VectorWriter(Body):
    """Writes the statements of one function that are no regions, for groups of threads."""

    def __init__(self, function: ir.Function, lanes: Lanes) -> None:
        symbols = Names()
        super().__init__(function, symbols.fresh(f"{identifier(function.name)}_vectors"), Cpu(), symbols)
        self.name = Names(NAMES)
        self.lanes = lanes
        self.variation = variations(function)
        self.mask = ""
        self.places: ChainMap[tuple[ir.Var, tuple[ir.Atom, ...]], Place] = ChainMap()
        self.pending: list[tuple[ir.Var, Callable[[], None]]] = []
        self.has_effects = False
        self.conditions: dict[str, None] = {}
        self.ranges = LaunchRanges(function, self.name)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is known of addresses within is forgotten after it."""
        self.addresses, self.positions = self.addresses.new_child(), self.positions.new_child()
        self.places = self.places.new_child()
        yield
        self.addresses, self.positions = self.addresses.parents, self.positions.parents
        self.places = self.places.parents

    @contextmanager
    def braces(self, head: str) -> Iterator[None]:
        self.places = self.places.new_child()
        with super().braces(head):
            yield
        self.places = self.places.parents

    @contextmanager
    def under(self, mask: str) -> Iterator[None]:
        """What is written within runs in the lanes of a mask only."""
        before, self.mask = self.mask, mask
        yield
        self.mask = before

    # ------------------------------------------------------------------------------------------ values

    def of(self, atom: ir.Atom) -> Variation:
        return UNIFORM if isinstance(atom, ir.Const) else self.variation[atom]

    def vector_type(self, scalar: Scalar) -> str:
        if scalar not in VECTORS:
            raise Refused(f"it computes with {scalar} in each thread")
        return VECTORS[scalar]

    def vector(self, atom: ir.Atom) -> str:
        """An atom as a vector."""
        scalar = scalar_type(atom)
        self.vector_type(scalar)
        match self.of(atom):
            case Variation.VARYING:
                return self.atom(atom)
            case Variation.LINEAR:
                return f"({self.atom(atom)} + iota)"
            case Variation.UNIFORM:
                return f"{'truth' if scalar == bool_ else 'splat'}({spelling.unwrapped(self.atom(atom))})"

    def of_lane(self, atom: ir.Atom) -> str:
        """The value of an atom in `lane`."""
        match self.of(atom):
            case Variation.VARYING:
                text = f"{self.atom(atom)}[lane]"
                return f"({text} != 0)" if scalar_type(atom) == bool_ else text
            case Variation.LINEAR:
                return f"({self.atom(atom)} + lane)"
            case Variation.UNIFORM:
                return self.atom(atom)

    def declare(self, var: ir.Var, value: str | None = None) -> None:
        if self.of(var) != VARYING:
            super().declare(var, value)
            return
        text = " = {}" if value is None else f" = {spelling.unwrapped(value)}"
        self.line(f"{self.vector_type(scalar_type(var))} {self.name(var)}{text};")

    def value(self, target: ir.Var, atom: ir.Atom) -> str:
        """An atom in the form of what it is given to."""
        return self.vector(atom) if self.of(target) == VARYING else self.atom(atom)

    def temporary(self, scalar: Scalar, hint: str, value: str) -> str:
        name = self.name.fresh(hint)
        self.line(f"{self.vector_type(scalar)} {name} = {spelling.unwrapped(value)};")
        return name

    def assign(self, targets: Sequence[ir.Var], values: Sequence[ir.Atom], mask: str = "") -> None:
        """Give all targets their values at once; with a mask, in its lanes."""
        moves = []
        types = {self.name(t): self.cpp_type(t) for t in targets}
        for target, value in zip(targets, values, strict=True):
            text, name, scalar = self.value(target, value), self.name(target), scalar_type(target)
            if self.of(target) == VARYING and text != name and (mask or self.of(value) != VARYING):
                chosen = f"{mask} ? {text} : {name}" if mask else text
                text = self.temporary(scalar, f"{name}_next", chosen)
            moves.append((name, text, scalar))
        for name, text, old in ordered(moves, self.name.numbered):
            declared = "" if old is None else f"{types[text]} "
            self.line(f"{declared}{name} = {spelling.unwrapped(text)};")

    def cpp_type(self, var: ir.Var) -> str:
        scalar = scalar_type(var)
        return self.vector_type(scalar) if self.of(var) == VARYING else spelling.value_type(scalar)

    def let(self, stmt: ir.Let) -> None:
        if self.of(stmt.out) != VARYING or stmt.op is SHAPE:
            self.declare(stmt.out, self.operation(stmt))
            return
        types, scalar = [scalar_type(arg) for arg in stmt.args], scalar_type(stmt.out)
        for type in (*types, scalar):
            self.vector_type(type)
        text = self.lanes.operation(stmt.op, [self.vector(arg) for arg in stmt.args], types, scalar)
        if text is not None:
            self.declare(stmt.out, text)
            return
        operands = [self.of_lane(arg) for arg in stmt.args]
        if scalar.is_int and stmt.op.name in ("floordiv", "mod"):
            operands[1] = f"({operands[1]} ? {operands[1]} : 1)"  # lanes that are off may divide by zero
        if stmt.op.helper:
            self.needs.add(stmt.op.helper)
        self.declare(stmt.out)
        value = self.flavor.operation(stmt.op, operands, types, scalar)
        held = f"-(int)({value})" if scalar == bool_ else spelling.unwrapped(value)
        self.line(
            f"for (int lane = 0; lane < {self.lanes.width}; ++lane) {self.name(stmt.out)}[lane] = {held};"
        )

    # ------------------------------------------------------------------------------------------ statements

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let():
                self.let(stmt)
            case ir.Load():
                self.load(stmt)
            case ir.Store():
                place, scalar = self.place_of(stmt), scalar_of(elem_of(stmt.array))
                self.later(stmt.array, lambda: self.store(place, scalar, stmt.value))
            case ir.Atomic():
                self.atomic(stmt)
            case ir.Assert(cond):
                if self.of(cond) == UNIFORM:
                    self.check(f"!{self.atom(cond)}", "0", Site(stmt.span))
                else:
                    self.check(f"any({self.masked(f'!{self.vector(cond)}')})", "0", Site(stmt.span))
            case ir.Save(_, atoms):
                self.save(atoms, stmt in self.early)
            case _:
                super().stmt(stmt)

    def masked(self, text: str) -> str:
        return f"{text} & {self.mask}" if self.mask else text

    def check(self, failed: str, code: str, site: Site) -> None:
        """Leave the group to scalar code where a test fails, as long as it has had no effect."""
        if self.has_effects:
            raise Refused("a thread may fail after it has changed something")
        self.line(f"if ({failed}) goto bail;")

    # Effects wait for the end of their block, so that the tests of the block come before them.

    def later(self, array: ir.Var, write: Callable[[], None]) -> None:
        self.pending.append((array, write))

    def flush(self) -> None:
        pending, self.pending = self.pending, []
        for _, write in pending:
            write()
            self.has_effects = True

    def flush_before(self, stmt: ir.Stmt) -> None:
        """Have the effects on arrays that a statement touches before it."""
        touched = {*ir.atoms(stmt)}.union(*(ir.reads(block) for block in ir.blocks(stmt)))
        if any(array in touched for array, _ in self.pending):
            self.flush()

    @contextmanager
    def block(self, stmt: ir.Stmt, mask: str | None = None) -> Iterator[None]:
        """The block of a statement, whose effects end with it."""
        outer, self.pending = self.pending, []
        with self.under(self.mask if mask is None else mask):
            yield
        assert not self.pending
        self.pending = outer

    # ------------------------------------------------------------------------------------------ memory

    def place_of(self, stmt: ir.Load | ir.Store | ir.Atomic) -> Place:
        """The place that a statement accesses, its indices checked."""
        scalar = scalar_of(elem_of(stmt.array))
        key = stmt.array, stmt.indices
        if key not in self.places:
            if all(self.of(index) == UNIFORM for index in stmt.indices):
                place = Place(self.address(*key, stmt.span))
            else:
                place = self.spread_out(stmt)
            self.places[key] = place
        return self.places[key].moved((stmt.component or 0) * spelling.size(scalar))

    def spread_out(self, stmt: ir.Load | ir.Store | ir.Atomic) -> Place:
        """The place of elements of which each lane has one."""
        array, name, elem = stmt.array, self.name(stmt.array), elem_of(stmt.array)
        last, terms, offsets, collide = len(stmt.indices) - 1, [name], list[str](), False
        linear = [axis for axis, index in enumerate(stmt.indices) if self.of(index) == LINEAR]
        varying = [axis for axis, index in enumerate(stmt.indices) if self.of(index) == VARYING]
        adjacent = not varying and linear == [last] and size_of(elem) == 1
        for axis, index in enumerate(stmt.indices):
            match self.of(index):
                case Variation.UNIFORM:
                    terms.append(f"{self.position(array, axis, index, stmt.span)} * {name}_s{axis}")
                case Variation.LINEAR:
                    terms.append(f"{self.linear_position(array, axis, index)} * {name}_s{axis}")
                    offsets.append(f"iota * (int){name}_s{axis}")
                case Variation.VARYING:
                    offsets.append(f"{self.lane_positions(array, axis, index)} * (int){name}_s{axis}")
                    collide = True
        base = self.name.fresh(f"{name}_at")
        self.line(f"char* {base} = {' + '.join(terms)};")
        if adjacent:
            extent = extent_of(self.function, len(self.function.threads) - 1)
            self.conditions[f"({name}_s{last} == {bytes_of(elem)} || {extent} < 2)"] = None
            return Place(base, adjacent=True)
        self.conditions.update(dict.fromkeys(self.nearby(array)))
        return Place(base, self.temporary(int32, f"{name}_off", " + ".join(offsets)), collide=collide)

    def nearby(self, array: ir.Var) -> Iterator[str]:
        """The conditions under which 32 bits hold the distance between any two elements."""
        assert isinstance(array.type, Array)
        name = self.name(array)
        spans = [f"(double){name}_n{k} * {name}_s{k}" for k in range(array.type.ndim)]
        yield from (f"{name}_s{k} >= 0" for k in range(array.type.ndim))
        yield f"{' + '.join(spans)} < (1 << 30)"

    def within(self, position: str, index: ir.Atom, extent: str, axis: int, site: Site) -> None:
        if self.has_effects:
            self.within_at_launch(index, extent)
            return
        outside = f"(u64){position} >= {extent}"
        if self.counts_from_the_end(index):
            self.needs.add("outside")
            outside = f"outside({position}, {extent})"
        self.line(f"if ({outside}) goto bail;")

    def within_at_launch(self, index: ir.Atom, extent: str) -> None:
        """Have the launch rule test an index, which then stands for all threads."""
        found = self.ranges.of(index)
        if found is None:
            raise Refused("an index that is tested after a thread has changed something depends on values")
        self.conditions[f"{found[0]} >= 0"] = None
        self.conditions[f"{found[1]} < (i64){extent}"] = None

    def linear_position(self, array: ir.Var, axis: int, index: ir.Atom) -> str:
        """The index of the first lane, all lanes within the extent; one below zero is left to scalar code."""
        key = array, axis, index
        if key not in self.positions:
            extent, text = f"{self.name(array)}_n{axis}", self.atom(index)
            if self.has_effects:
                self.within_at_launch(index, extent)
            elif self.mask:
                self.conditions[f"{extent} < (1u << 31)"] = None
                self.line(f"if (any((vu)({text} + iota) >= (unsigned){extent} & {self.mask})) goto bail;")
            else:
                more = f"(u64)((i64){text} + {self.lanes.width - 1})"
                self.line(f"if ((u64){text} >= {extent} || {more} >= {extent}) goto bail;")
            self.positions[key] = f"(i64){text}"
        return self.positions[key]

    def lane_positions(self, array: ir.Var, axis: int, index: ir.Atom) -> str:
        """The indices of the lanes, each within the extent."""
        key = array, axis, index
        if key not in self.positions:
            extent, text, scalar = f"{self.name(array)}_n{axis}", self.atom(index), scalar_type(index)
            if self.has_effects:
                raise Refused(
                    "an index that is tested after a thread has changed something depends on values"
                )
            self.conditions[f"{extent} < (1u << 31)"] = None
            if scalar != int32:
                text = f"(vi){text}"
            if self.counts_from_the_end(index):
                text = f"{text} < 0 ? {text} + (int){extent} : {text}"
            name = self.temporary(int32, f"{self.name(array)}_i{axis}", text)
            self.check(f"any({self.masked(f'((vu){name} >= (unsigned){extent})')})", "0", Site(self.here))
            self.positions[key] = name
        return self.positions[key]

    @property
    def here(self) -> Span:
        return self.span or self.function.span

    def load(self, stmt: ir.Load) -> None:
        if stmt.held is not None:
            self.declare(stmt.out, self.value(stmt.out, stmt.held))
            return
        self.flush_before(stmt)
        scalar, place = scalar_of(elem_of(stmt.array)), self.place_of(stmt)
        if place.is_one:
            self.need_half(scalar)
            self.declare(stmt.out, spelling.load(scalar, place.base))
            return
        type = self.vector_type(scalar)
        if scalar == bool_:
            self.declare(stmt.out)
            with self.each_lane():
                element = spelling.load(scalar, place.of_lane(1))
                self.line(f"{self.name(stmt.out)}[lane] = -(int)({element});")
            return
        self.declare(stmt.out, self.fetched(place, type))

    def fetched(self, place: Place, type: str) -> str:
        if place.adjacent:
            return f"({type})fetch({place.base}, {self.mask})" if self.mask else f"*({type}u*){place.base}"
        return f"({type})gather({place.base}, {place.offsets}, {self.mask or 'on'})"

    def store(self, place: Place, scalar: Scalar, value: ir.Atom) -> None:
        if place.is_one:
            last, first = (f"{end}_on({self.mask})" if self.mask else "" for end in ("last", "first"))
            lane = first or "0" if self.function.descending else last or f"{self.lanes.width - 1}"
            if self.of(value) == UNIFORM:
                self.line(spelling.store(scalar, place.base, self.atom(value)))
                return
            with self.braces(""):
                self.line(f"const int lane = {lane};")
                self.line(spelling.store(scalar, place.base, self.of_lane(value)))
            return
        if scalar in VECTORS and scalar != bool_:
            self.put(place, VECTORS[scalar], self.vector(value))
            return
        self.need_half(scalar)
        with self.each_lane():
            self.line(spelling.store(scalar, place.of_lane(spelling.size(scalar)), self.of_lane(value)))

    def put(self, place: Place, type: str, value: str) -> None:
        value = spelling.unwrapped(value)
        if not place.adjacent:
            self.line(f"scatter({place.base}, {place.offsets}, (vf)({value}), {self.mask or 'on'});")
        elif self.mask:
            self.line(f"put({place.base}, (vf)({value}), {self.mask});")
        else:
            self.line(f"*({type}u*){place.base} = {value};")

    @contextmanager
    def each_lane(self) -> Iterator[None]:
        """A loop over the lanes that are on, in the order of their threads."""
        down, width = self.function.descending, self.lanes.width
        if not self.mask:
            over = (
                f"int lane = {width - 1}; lane >= 0; --lane"
                if down
                else f"int lane = 0; lane < {width}; ++lane"
            )
            with self.braces(f"for ({over})"):
                yield
            return
        with self.braces(f"for (unsigned left = bits({self.mask}); left;)"):
            self.line(f"const int lane = {'31 - __builtin_clz' if down else '__builtin_ctz'}(left);")
            self.line("left &= ~(1u << lane);")
            yield

    # ------------------------------------------------------------------------------------------ sums

    def atomic(self, stmt: ir.Atomic) -> None:
        if stmt.kind != "add" or (stmt.out in self.used and stmt.held is None):
            raise Refused(f"threads take turns at an atomic of the kind {stmt.kind}")
        place, scalar = self.place_of(stmt), scalar_of(elem_of(stmt.array))
        if stmt in self.totals:
            if not place.is_one or scalar != float32:
                raise Refused("a thread has a running total of its own")
            self.later(stmt.array, lambda: self.add_lanes(self.totals[stmt], stmt.value, place))
        else:
            self.later(stmt.array, lambda: self.add(stmt, place, scalar))
        if stmt.held is not None and stmt.out in self.used:
            self.declare(stmt.out, self.value(stmt.out, stmt.held))

    def only(self, value: str) -> str:
        """A vector with zeros in the lanes that are off."""
        return f"({self.mask} ? {value} : decltype({value}){{}})" if self.mask else value

    def add_lanes(self, total: Total, value: ir.Atom, place: Place) -> None:
        """Add to the running total of an element, in as many float64s as there are lanes."""
        moved = f"if ({total.place} != {spelling.unwrapped(place.base)})"
        self.line(f"{moved} {{ {self.folded(total)} {total.settled} {total.place} = {place.base}; }}")
        self.line(f"{total.name}_lanes += __builtin_convertvector({self.only(self.vector(value))}, vd);")

    @staticmethod
    def folded(total: Total) -> str:
        # A copy is handed on: what has an address does not stay in registers.
        lanes = f"{total.name}_lanes"
        return f"{{ const vd lanes = {lanes}; {lanes} = vd{{}}; {total.name} += fold(lanes); }}"

    def add(self, stmt: ir.Atomic, place: Place, scalar: Scalar) -> None:
        wide = self.wide.get(stmt)
        if scalar not in VECTORS or scalar == bool_ or (wide is not None and not place.is_one):
            with self.each_lane():
                at, value = place.of_lane(spelling.size(scalar)), self.of_lane(stmt.value)
                if wide is not None:
                    self.line(wide.added(spelling.unwrapped(at), value))
                else:
                    self.line(spelling.plain("add", scalar, at, value, None, None)[0][0])
            return
        type, value = VECTORS[scalar], self.vector(stmt.value)
        if place.is_one:
            total = f"sum_of({self.only(value)})"
            at = f"*({spelling.value_type(scalar)}*){place.base} += {total};"
            self.line(at if wide is None else wide.added(spelling.unwrapped(place.base), total))
        elif place.collide:
            with self.each_lane():
                at = place.of_lane(spelling.size(scalar))
                self.line(f"*({spelling.value_type(scalar)}*){at} += {self.of_lane(stmt.value)};")
        else:
            self.put(place, type, f"{self.fetched(place, type)} + {value}")

    # ------------------------------------------------------------------------------------------ what is saved

    def save(self, atoms: Sequence[ir.Atom], is_early: bool) -> None:
        offsets, size = self.record(atoms)
        self.needs.add("room")
        most = f"status[{LIMIT if is_early else ROOM}]"
        self.check(f"limit - top < {size} && !room(base, top, limit, {size}, {most})", "0", Site(self.here))
        for atom, offset in zip(atoms, offsets, strict=True):
            type = self.vector_type(scalar_type(atom))
            self.line(
                f"*({type}u*){spelling.offset('top', offset)} = {spelling.unwrapped(self.vector(atom))};"
            )
        self.line(f"top += {size};")

    def restore(self, outs: Sequence[ir.Var]) -> None:
        offsets, size = self.record(outs)
        self.line(f"top -= {size};")
        for out, offset in zip(outs, offsets, strict=True):
            type = self.vector_type(scalar_type(out))
            self.declare(out, f"*({type}u*){spelling.offset('top', offset)}")

    def record(self, atoms: Sequence[ir.Atom]) -> tuple[list[int], int]:
        """The offsets of vectors in a saved record, and its size."""
        offsets, size = record([int32] * len(atoms), 1)
        return [offset * self.lanes.width for offset in offsets], size * self.lanes.width
