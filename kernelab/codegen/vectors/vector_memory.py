"""Memory accesses of vector code with their bounds checks, and the order in which effects are written.

Effects wait for the end of their block, behind the bounds checks of the block, so that a group in which one
fails has changed nothing.
"""

from collections import ChainMap, Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kernelab.codegen.cpp import spelling
from kernelab.codegen.cpp.entry import Site
from kernelab.codegen.cpp.writer import scalar_type, site_of
from kernelab.codegen.vectors.interior import Interior
from kernelab.codegen.vectors.launch_rule import LaunchRanges, is_field
from kernelab.codegen.vectors.variation import LINEAR, UNIFORM, VARYING, Variation
from kernelab.codegen.vectors.vector_columns import columns_walked
from kernelab.codegen.vectors.vector_operations import SMALL, VECTORS, Lanes
from kernelab.codegen.vectors.vector_places import (
    BY_LANES,
    MOST_STREAMS,
    ROW,
    Elements,
    Place,
    column_of,
    first_columns,
    is_long,
    is_read_whole,
    kind_of,
    row_at,
    row_of,
    rows_read,
    together,
)
from kernelab.codegen.vectors.vector_values import LateCheck, VectorValues
from kernelab.data_classes import replace
from kernelab.data_classes.turns import cached_property
from kernelab.errors import Span
from kernelab.lang import ir
from kernelab.lang.build import elem_of, ndim_of
from kernelab.lang.types import bool_, bytes_of, float32, float64, int32, scalar_of, size_of


class VectorMemory(VectorValues):
    """Writes what a function reads and changes of arrays, for groups of threads."""

    def __init__(self, function: ir.Function, lanes: Lanes) -> None:
        super().__init__(function, lanes)
        self.places: ChainMap[Elements, Place] = ChainMap()
        self.read_together: ChainMap[tuple[Elements, int], str] = ChainMap()
        self.pending: list[tuple[ir.Var, Callable[[], None]]] = []
        self.has_effects = False
        self.loaded: set[ir.Load] = set()
        self.walked = columns_walked(function, self.variations, lanes.width)
        self.columns: ChainMap[Elements, str] = ChainMap()
        self.is_checking = self.is_checked = False
        self.conditions: dict[str, None] = {}
        self.known_within: dict[str, None] = {}
        self.tests: list[tuple[ir.Atom, bool]] = []
        self.ranges = LaunchRanges(function, self.name)
        self.rows = rows_read(function)
        self.columns_read, self.columns_changed = first_columns(function)
        self.far: dict[ir.Var, str] = {}
        """For arrays that are only written, whether they are too large for a cache to keep what is."""
        self.interior: Interior | None = None
        """The interior, while its groups are written."""

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is known of addresses within is forgotten after it."""
        self.addresses, self.positions = self.addresses.new_child(), self.positions.new_child()
        self.places, self.read_together = self.places.new_child(), self.read_together.new_child()
        yield
        self.addresses, self.positions = self.addresses.parents, self.positions.parents
        self.places, self.read_together = self.places.parents, self.read_together.parents

    @contextmanager
    def braces(self, head: str) -> Iterator[None]:
        self.places, self.read_together = self.places.new_child(), self.read_together.new_child()
        self.columns = self.columns.new_child()
        with super().braces(head):
            yield
        self.places, self.read_together = self.places.parents, self.read_together.parents
        self.columns = self.columns.parents

    def check(self, failed: str, code: str, site: Site) -> None:
        """Leave the group to scalar code where a test fails, as long as it has had no effect."""
        if self.has_effects:
            raise LateCheck("a thread may fail after it has changed something")
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
    def block(self, mask: str | None = None) -> Iterator[None]:
        """The block of a statement, whose effects end with it."""
        outer, self.pending = self.pending, []
        with self.under(self.mask if mask is None else mask):
            yield
        assert not self.pending
        self.pending = outer

    # ------------------------------------------------------------------------------------------ memory

    def place_of(self, stmt: ir.ArrayAccess) -> Place:
        """The place that a statement accesses, its indices checked."""
        scalar = scalar_of(elem_of(stmt.array))
        key = stmt.array, stmt.indices
        if key not in self.places:
            if all(self.of(index) == UNIFORM for index in stmt.indices):
                place = Place(self.address(*key, stmt.span))
            else:
                place = self.spread_out(stmt)
            self.places[key] = place
        row = 1 if self.places[key].packed else row_of(stmt)
        return self.places[key].moved((stmt.component or 0) * spelling.size(scalar), row)

    def spread_out(self, stmt: ir.ArrayAccess) -> Place:
        """The place of elements of which each lane has one."""
        array, name, elem = stmt.array, self.name(stmt.array), elem_of(stmt.array)
        last, terms, offsets, collide = len(stmt.indices) - 1, [name], list[str](), False
        linear = [axis for axis, index in enumerate(stmt.indices) if self.of(index) == LINEAR]
        varying = [axis for axis, index in enumerate(stmt.indices) if self.of(index) == VARYING]
        adjacent = not varying and linear == [last] and size_of(elem) == 1 and not is_field(array)
        for axis, index in enumerate(stmt.indices):
            match self.of(index):
                case Variation.UNIFORM:
                    terms.append(f"{self.position(array, axis, index, stmt.span)} * {name}_s{axis}")
                case Variation.LINEAR:
                    stride = f"{bytes_of(elem)}" if adjacent else f"{name}_s{axis}"
                    terms.append(f"{self.linear_position(array, axis, index)} * {stride}")
                    offsets.append(f"iota * (int){name}_s{axis}")
                case Variation.VARYING:
                    position = self.lane_positions(array, axis, index, stmt.span)
                    offsets.append(f"{position} * (int){name}_s{axis}")
                    collide = True
        base = self.name.fresh(f"{name}_at")
        self.line(f"char* {base} = {' + '.join(terms)};")
        if adjacent:
            self.conditions[f"({name}_s{last} == {bytes_of(elem)} || {name}_n{last} < 2)"] = None
            return Place(base, adjacent=True)
        self.conditions.update(dict.fromkeys(self.nearby(array)))
        packed = kind_of(array) if not varying and linear == [last] else ""
        if packed:
            self.conditions[f"({name}_s{last} == {bytes_of(elem)} || {name}_n{last} < 2)"] = None
        offset = self.temporary(int32, f"{name}_off", " + ".join(offsets))
        is_likely = varying == [last] and self.variations.is_mostly_linear(stmt.indices[last])
        near = self.declared_near(array, offset) if is_likely else ""
        place = Place(base, offset, False, collide, packed, near)
        columns = "" if self.mask or self.is_checking else self.columns.get((array, stmt.indices))
        return self.in_column(stmt, place, columns) if columns else place

    def declared_near(self, array: ir.Var, offsets: str) -> str:
        """The variable that says whether elements at `offsets` lie side by side, "" for other sizes."""
        elem = elem_of(array)
        is_of_words = scalar_of(elem) in (float32, int32) and not is_field(array)
        if not is_of_words or not (size_of(elem) == 1 or kind_of(array)):
            return ""
        near = self.name.fresh(f"{self.name(array)}_near")
        self.line(f"const bool {near} = !any({offsets} != {offsets}[0] + {bytes_of(elem)} * iota);")
        return near

    def nearby(self, array: ir.Var) -> Iterator[str]:
        """The conditions under which 32 bits hold the distance between any two elements."""
        name, axes = self.name(array), range(ndim_of(array))
        spans = [f"(double){name}_n{k} * {name}_s{k}" for k in axes]
        yield from (f"{name}_s{k} >= 0" for k in axes)
        yield f"{' + '.join(spans)} < (1 << 30)"

    def within(self, position: str, index: ir.Atom, extent: str, axis: int, site: Site) -> None:
        if self.is_inside(index, extent):
            return
        if self.has_effects and not self.is_checked:
            self.within_at_launch(index, extent)
            return
        if not self.is_checked:
            unless = self.unless_within(index, extent).removesuffix(" && ")
            test = self.tested(position, index, extent, site, "goto bail;")
            self.line(f"if ({unless}) {test}" if unless else test)
        elif self.counts_from_the_end(index):
            self.line(f"if ((u64){position} >= {extent}) {position} += {extent};")

    def is_inside(self, index: ir.Atom, extent: str) -> bool:
        """Whether the interior only has threads of which an index is within an extent."""
        if self.interior is None or not self.unless_within(index, extent):
            return False
        self.interior.keep_within(index, extent)
        return True

    def unless_within(self, index: ir.Atom, extent: str) -> str:
        """The beginning of a test that a launch may do without, by the range of an index."""
        conditions = self.ranges.within(index, extent, self.tests)
        if conditions is None:
            return ""
        self.known_within |= conditions
        return "!within && "

    @contextmanager
    def where(self, cond: ir.Atom, truth: bool) -> Iterator[None]:
        """A branch, whose condition bounds what is accessed within."""
        self.tests.append((cond, truth))
        yield
        self.tests.pop()

    def within_at_launch(self, index: ir.Atom, extent: str) -> None:
        """Have the launch rule test an index, which then stands for all threads."""
        conditions = self.ranges.within(index, extent, self.tests)
        # No launch meets a rule that an index never keeps: one that counts from the end, most of all.
        if conditions is None or self.ranges.begins_below_zero(index, self.tests):
            raise LateCheck("an index that is tested after a thread has changed something depends on values")
        self.conditions |= conditions

    def linear_position(self, array: ir.Var, axis: int, index: ir.Atom) -> str:
        """The index of the first lane, all lanes within the extent; one below zero is left to scalar code."""
        key = array, axis, index
        if key not in self.positions:
            extent = f"{self.name(array)}_n{axis}"
            text = f"(i64){self.atom(index)}"
            if self.interior is not None and self.is_inside(index, extent):
                affine = self.interior.affine(index)
                text = text if affine is None else f"(at + {affine.text})"
            elif self.is_checked:
                pass
            elif self.has_effects:
                self.within_at_launch(index, extent)
            elif self.mask:
                self.conditions[f"{extent} < (1u << 31)"] = None
                outside = f"any((vu)({self.atom(index)} + iota) >= (unsigned){extent} & {self.mask})"
                self.line(f"if ({self.unless_within(index, extent)}{outside}) goto bail;")
            else:
                more = f"(u64)({text} + {self.lanes.width - 1})"
                outside = f"((u64){text} >= {extent} || {more} >= {extent})"
                self.line(f"if ({self.unless_within(index, extent)}{outside}) goto bail;")
            self.positions[key] = text
        return self.positions[key]

    def lane_positions(self, array: ir.Var, axis: int, index: ir.Atom, span: Span) -> str:
        """The indices of the lanes, each within the extent."""
        key = array, axis, index
        if key not in self.positions:
            extent, text, scalar = f"{self.name(array)}_n{axis}", self.atom(index), scalar_type(index)
            self.conditions[f"{extent} < (1u << 31)"] = None
            if scalar != int32:
                text = f"(vi){text}"
            name = self.temporary(int32, f"{self.name(array)}_i{axis}", text)
            outside = f"any({self.masked(f'((vu){name} >= (unsigned){extent})')})"
            if self.has_effects and not self.is_checked and self.ranges.is_remainder(index):
                self.within_at_launch(index, extent)
            elif self.counts_from_the_end(index):
                outside = f"{self.unless_within(index, extent)}{outside}"
                with self.braces(f"if ({outside})"):
                    self.line(f"{name} = {name} < 0 ? {name} + (int){extent} : {name};")
                    if not self.is_checked:
                        self.check(outside, "0", Site(self.here))
                        self.line(self.noted(site_of(span, array)))
            elif not self.is_checked:
                self.check(outside, "0", Site(self.here))
            self.positions[key] = name
        return self.positions[key]

    @property
    def here(self) -> Span:
        return self.span or self.function.span

    def load(self, stmt: ir.Load) -> None:
        if stmt in self.loaded:
            return
        if stmt.held is not None:
            self.declare(stmt.out, self.value(stmt.out, stmt.held))
            return
        self.flush_before(stmt)
        scalar, place = scalar_of(elem_of(stmt.array)), self.place_of(stmt)
        if place.is_one:
            self.declare(stmt.out, spelling.load(scalar, place.base))
            return
        type = self.vector_type(scalar)
        if scalar in SMALL and place.adjacent and not self.mask:
            self.declare(stmt.out, f"widened<{spelling.value_type(scalar)}>({place.base})")
            return
        if scalar in BY_LANES:
            self.declare(stmt.out)
            sign = "-(int)" if scalar == bool_ else ""
            with self.each_lane():
                value = spelling.load(scalar, place.of_lane(spelling.size(scalar)))
                self.line(f"{self.name(stmt.out)}[lane] = {sign}({value});")
            return
        kind = place.packed or (self.reads_row(stmt, place) and str(place.row))
        if kind and stmt.array in self.steady:
            first = 0 if place.packed else row_at(stmt)
            together = self.components(stmt, kind, first)
            self.declare(stmt.out, f"({type}){together}.at[{(stmt.component or 0) - first}]")
            return
        row = self.row_of_columns(stmt, place)
        known = f"{row}_there ? ({type}){row}.at[{(column_of(stmt) or 0) % ROW}] : " if row else ""
        self.declare(stmt.out, f"{known}{self.fetched(place, type)}")

    def row_of_columns(self, stmt: ir.Load, place: Place) -> str:
        """The variable with columns of the rows of all lanes, this one among them; "" where it is read alone.

        They are there where the columns lie side by side.
        """
        row, column = (stmt.array, stmt.indices[:-1]), column_of(stmt)
        total = self.columns_read.get(row, 0)
        count = 0 if column is None else together(column, total)
        if column is None or count < 2 or stmt.array not in self.steady or place.is_one or self.is_checking:
            return ""
        are_next = self.are_next(stmt, total)
        if not are_next and not self.is_usually_whole():
            return ""
        key = row, column // ROW
        if key not in self.read_together:
            kind, first = f"Components{count}", place.moved(-4 * (column % ROW))
            there = self.side_by_side(stmt, total, are_next)
            if are_next:
                read = f"components_{count}({self.given_components(first)})"
            else:
                read = f"components_apart_{count}({first.base}, {first.offsets})"
                there += f" && rest == {self.lanes.width}" if self.mask else ""
            all = self.read_together[key] = self.name.fresh(f"{self.name(stmt.array)}_row")
            self.line(f"const bool {all}_there = {there};")
            self.line(f"const {kind} {all} = {all}_there ? {read} : {kind}{{}};")
        return self.read_together[key]

    def side_by_side(self, stmt: ir.ArrayAccess, count: int, are_next: bool) -> str:
        """The test whether the first columns of an array lie side by side, and its rows if they have to."""
        name, axis = self.name(stmt.array), len(stmt.indices) - 1
        rows = f" && {name}_s{axis - 1} == {4 * count}" if are_next else ""
        return f"{name}_s{axis} == 4 && {name}_n{axis} >= {count}{rows}"

    def are_next(self, stmt: ir.ArrayAccess, count: int) -> bool:
        """Whether the rows of neighbours are one behind another, and each is no longer than a vector."""
        of = [self.of(index) for index in stmt.indices[:-1]]
        return count <= ROW and of[-1:] == [LINEAR] and all(one == UNIFORM for one in of[:-1])

    def keep_columns(self, stmt: ir.ArrayAccess, loop: ir.Loop) -> Iterator[str]:
        """Keep a block of the columns that a loop walks along, if it does; yields the line that writes it."""
        array, key = stmt.array, (stmt.array, stmt.indices)
        if self.walked.get(stmt) is not loop or self.mask or self.is_checking or key in self.columns:
            return
        axis, name = len(stmt.indices) - 1, self.name(array)
        columns = self.columns[key] = self.name.fresh(f"{name}_columns")
        is_row, is_steady = f"{name}_s{axis} == 4", array in self.steady
        if not is_steady:  # else rows may overlap
            is_row += "".join(f" && {name}_s{row} >= 4 * (i64){name}_n{axis}" for row in range(axis))
        self.line(f"const bool {columns}_in_rows = {is_row};")
        self.line(f"Columns {columns}; {columns}.block = -1;")
        if not is_steady:
            yield f"put_columns({columns});"

    def in_column(self, stmt: ir.ArrayAccess, place: Place, columns: str) -> Place:
        """The place in the block of columns that has come to these elements; the block before is written."""
        array, axis, width = stmt.array, len(stmt.indices) - 1, self.lanes.width
        at = self.position(array, axis, stmt.indices[axis], stmt.span)
        block, lane, extent = f"{at} / {width}", f"{at} % {width}", f"(i64){self.name(array)}_n{axis}"
        with self.braces(f"if ({columns}_in_rows && {columns}.block != {block})"):
            first, count = f"{place.base} - {lane} * 4", f"smaller({extent} - {block} * {width}, {width})"
            if array not in self.steady:
                self.line(f"put_columns({columns});")
                self.line(f"{columns}.first = {first}, {columns}.count = {count};")
                self.line(f"{columns}.offsets = {place.offsets};")
            self.line(f"get_columns({columns}, {first}, {place.offsets}, {block}, {count});")
        return replace(place, columns=columns, column=f"{columns}.at[{lane}]")

    def given_components(self, place: Place) -> str:
        """What the helpers for components take before values."""
        return f"{place.base}, {place.offsets}, {self.mask}" if self.mask else place.base

    def components(self, stmt: ir.Load, kind: str, first: int) -> str:
        """The variable with components of the vectors of all lanes, read when one of them is asked for.

        Nobody changes the array.
        """
        key = (stmt.array, stmt.indices), first
        if key not in self.read_together:
            name = self.name.fresh(f"{self.name(stmt.array)}_all")
            place = self.places[key[0]].moved(4 * first)
            self.line(f"const Components{kind} {name} = {self.read_components(place, kind)};")
            self.read_together[key] = name
        return self.read_together[key]

    def read_components(self, place: Place, kind: str) -> str:
        if place.packed:
            return f"components_{kind}({self.given_components(place)})"
        steps, near = range(0, 4 * int(kind), 4), self.lies_near(place)
        parts = (f"gather({place.base} + {step}, {place.offsets}, {self.mask})" for step in steps)
        apart = f"Components{kind}{{{{{', '.join(parts)}}}}}"
        if self.is_usually_whole():
            whole = f"components_apart_{kind}({place.base}, {place.offsets})"
            apart = f"rest == {self.lanes.width} ? {whole} : {apart}" if self.mask else whole
        return f"{near} ? components_{kind}({place.first}) : {apart}" if near else apart

    def reads_row(self, stmt: ir.Load, place: Place) -> bool:
        """Whether the rows of all lanes are read as a whole: those of which all components are wanted."""
        if place.row > 1 and place.near:
            return True
        return is_read_whole(stmt, self.rows) and self.is_usually_whole()

    def fetched(self, place: Place, type: str) -> str:
        kind = "_64" if type == VECTORS[float64] else ""
        if place.adjacent:
            return (
                f"({type})fetch{kind}({place.base}, {self.mask})" if self.mask else f"*({type}u*){place.base}"
            )
        gathered = f"gather{kind}({place.base}, {place.offsets}, {self.mask or 'on'})"
        if place.column:
            return f"({type})({place.columns}_in_rows ? {place.column} : (vf){gathered})"
        if place.row == 1 and (near := self.lies_near(place)):
            return f"({type})({near} ? *(viu*)({place.first}) : (vi){gathered})"
        return f"({type}){gathered}"

    def lies_near(self, place: Place) -> str:
        """The test whether the elements of all lanes lie side by side; "" where it does not pay."""
        if not self.mask or not place.near:
            return place.near
        return f"{place.near} && rest == {self.lanes.width}" if self.is_usually_whole() else ""

    def is_usually_whole(self) -> bool:
        """Whether most groups have all lanes on: in a long function they do, though all have a mask."""
        return not self.mask or (self.mask == "tail" and is_long(self.function))

    def store(self, stmt: ir.Store, place: Place) -> None:
        scalar, value = scalar_of(elem_of(stmt.array)), stmt.value
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
        if scalar in self.lanes.vectors and scalar not in BY_LANES:
            self.put(place, VECTORS[scalar], self.vector(value), self.is_far(stmt))
            return
        with self.each_lane():
            self.line(spelling.store(scalar, place.of_lane(spelling.size(scalar)), self.of_lane(value)))

    def is_far(self, stmt: ir.Store) -> str:
        """The variable that says whether a store goes past the caches: "" where that would not pay.

        Then they need not read what is overwritten.  A store in a loop comes back to a line too late.
        """
        if stmt not in self.alone:
            return ""
        if stmt.array not in self.far:
            self.far[stmt.array] = self.name.fresh(f"{self.name(stmt.array)}_far")
        return self.far[stmt.array]

    @cached_property
    def alone(self) -> frozenset[ir.Stmt]:
        """The stores to which a thread comes once, of arrays of which it touches nothing else."""
        counts = Counter(atom for stmt in ir.walk(self.function.body) for atom in ir.atoms(stmt))
        stores = [stmt for stmt in ir.once(self.function.body) if isinstance(stmt, ir.Store)]
        return frozenset(stmt for stmt in stores if counts[stmt.array] == 1 and len(stores) <= MOST_STREAMS)

    def put(self, place: Place, type: str, value: str, far: str = "") -> None:
        value = spelling.unwrapped(value)
        moved = value if type == VECTORS[float64] else f"(vf)({value})"
        if not place.adjacent:
            kept = f"if ({place.columns}_in_rows) {place.column} = {moved}; else " if place.column else ""
            self.line(f"{kept}scatter({place.base}, {place.offsets}, {moved}, {self.mask or 'on'});")
        elif self.mask:
            self.line(f"put({place.base}, {moved}, {self.mask});")
        else:
            aligned = f"!((i64){place.base} & {self.lanes.register - 1})"
            streamed = f"if ({far} && {aligned}) stream({place.base}, {moved}); else " if far else ""
            self.line(f"{streamed}*({type}u*){place.base} = {value};")
