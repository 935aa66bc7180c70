"""Statements of vector code that are not regions: what becomes of each, sums, and saved values."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate

from kernelab.codegen.cpp import spelling
from kernelab.codegen.cpp.entry import Site
from kernelab.codegen.cpp.wide_accumulators import Total, settled_in
from kernelab.codegen.cpp.writer import scalar_type
from kernelab.codegen.vectors.variation import UNIFORM, VARYING
from kernelab.codegen.vectors.vector_memory import VectorMemory
from kernelab.codegen.vectors.vector_operations import VECTORS, Lanes
from kernelab.codegen.vectors.vector_places import BY_LANES, ROW, Elements, Place, column_of, row_at, together
from kernelab.codegen.vectors.vector_values import Refused
from kernelab.data_classes import dataclass, replace
from kernelab.lang import ir
from kernelab.lang.build import elem_of
from kernelab.lang.types import Scalar, float32, float64, int32, scalar_of


@dataclass(slots=True)
class LaneTotal:
    """The running totals of elements of which each lane has one that stays the same within a block.

    `known` are the places that were known when the block began; where the element is not among these, the
    variables `base`, `offsets` and `reached` say where it is, and which lanes have come to it.
    """

    base: str
    offsets: str
    reached: str
    known: Mapping[Elements, Place]
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class LaneByLane:
    """Additions to one array that follow one another and are written together, lane by lane."""

    write: Callable[[list[tuple[ir.Atomic, Place]]], None]
    additions: list[tuple[ir.Atomic, Place]]

    def __call__(self) -> None:
        self.write(self.additions)


@dataclass(frozen=True, slots=True)
class Together:
    """Changes of the components of vectors that follow one another, each with what writes it alone.

    Or of the first `columns` of the rows of an array, in any order.
    """

    write: Callable[["Together"], None]
    place: Place
    changes: list[tuple[ir.Store | ir.Atomic, Callable[[], None]]]
    columns: int = 0

    def __call__(self) -> None:
        self.write(self)

    @property
    def count(self) -> int:
        """The number of components of a vector, or of columns."""
        return self.columns or (int(self.place.packed[0]) if self.place.packed else self.place.row)

    def goes_on_with(self, stmt: ir.Store | ir.Atomic) -> bool:
        """Whether a change is that of the next component, or of another column, of the same kind."""
        (first, _), done = self.changes[0], len(self.changes)
        if type(first) is not type(stmt) or first.array is not stmt.array:
            return False
        if self.columns:
            known, column = [column_of(one) or 0 for one, _ in self.changes], column_of(stmt)
            if column is None or first.indices[:-1] != stmt.indices[:-1]:
                return False
            return column not in known and column // ROW == known[0] // ROW
        is_next = (stmt.component or 0) == (first.component or 0) + done
        return first.indices == stmt.indices and is_next and done < self.count


class VectorWriter(VectorMemory):
    """Writes the statements of one function that are not regions, for groups of threads."""

    def __init__(self, function: ir.Function, lanes: Lanes) -> None:
        super().__init__(function, lanes)
        self.settled_in = settled_in(function)
        self.lane_totals: dict[ir.Atomic, LaneTotal] = {}
        self.named_halves: dict[str, tuple[str, str]] = {}

    # ------------------------------------------------------------------------------------------ statements

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let(out):
                if out not in self.ranges.constants:
                    self.let(stmt)
            case ir.Load():
                self.load(stmt)
            case ir.Store() if self.is_checking:
                self.place_of(stmt)
            case ir.Store():
                place = self.place_of(stmt)
                self.later_together(stmt, place, lambda: self.store(stmt, place))
            case ir.Atomic():
                self.atomic(stmt)
            case ir.Assert() if self.is_checked:
                pass
            case ir.Assert(cond) if self.has_effects and (rule := self.ranges.holds(cond)):
                self.conditions[rule] = None
            case ir.Assert(cond, kind, message):
                failed = f"!{self.atom(cond)}"
                if self.of(cond) != UNIFORM:
                    failed = f"any({self.masked(f'!{self.vector(cond)}')})"
                if kind == "negative":
                    self.line(f"if ({failed}) {self.noted(Site(stmt.span, message))}")
                else:
                    self.check(failed, "0", Site(stmt.span))
            case _:
                super().stmt(stmt)

    # ------------------------------------------------------------------------------------------ components

    def later_together(self, stmt: ir.Store | ir.Atomic, place: Place, alone: Callable[[], None]) -> None:
        """Change a component later, together with the others of its vector if these follow."""
        last = self.pending[-1][1] if self.pending else None
        if isinstance(last, Together) and last.goes_on_with(stmt):
            last.changes.append((stmt, alone))
        elif self.goes_as_row(stmt, place) or (place.packed and not stmt.component):
            self.later(stmt.array, Together(self.change_together, place, [(stmt, alone)]))
        elif columns := self.columns_at_once(stmt, place):
            self.later(stmt.array, Together(self.change_together, place, [(stmt, alone)], columns))
        else:
            self.later(stmt.array, alone)

    def change_together(self, change: Together) -> None:
        if len(change.changes) < change.count:
            for _, alone in change.changes:
                alone()
            return
        if change.columns:
            self.change_columns(change)
        elif change.place.packed:
            self.put_components(change.place.packed, change.place, [stmt for stmt, _ in change.changes])
        else:
            self.change_rows(change)

    def columns_at_once(self, stmt: ir.Store | ir.Atomic, place: Place) -> int:
        """How many columns of rows are changed at once where they lie side by side, from this change on."""
        column, total = column_of(stmt), self.columns_changed.get((stmt.array, stmt.indices[:-1]), 0)
        if column is None or not total or place.is_one or place.collide:
            return 0
        is_sum = isinstance(stmt, ir.Atomic) and scalar_of(elem_of(stmt.array)) != float32
        count = together(column, total)
        return count if count > 1 and (self.are_next(stmt, total) or not is_sum) else 0

    def change_columns(self, change: Together) -> None:
        """Change columns of the rows of all lanes, at once where they lie side by side."""
        first = change.changes[0][0]
        total = self.columns_changed[first.array, first.indices[:-1]]
        ordered = sorted(change.changes, key=lambda one: column_of(one[0]) or 0)
        place = change.place.moved(-4 * ((column_of(first) or 0) % ROW))
        are_next = self.are_next(first, total)
        with self.braces(f"if ({self.side_by_side(first, total, are_next)})"):
            if are_next:
                self.put_components(str(change.count), place, [stmt for stmt, _ in ordered])
            else:
                self.change_rows(replace(change, place=place, changes=ordered))
        with self.braces("else"):
            for _, alone in change.changes:
                alone()

    def put_components(self, kind: str, place: Place, changes: Sequence[ir.Store | ir.Atomic]) -> None:
        """Change all components of vectors that lie side by side."""
        given, values = self.given_components(place), list[str]()
        for k, stmt in enumerate(changes):
            scalar = scalar_of(elem_of(stmt.array))
            before = f"({VECTORS[scalar]})old.at[{k}] + " if isinstance(stmt, ir.Atomic) else ""
            value = f"({before}{self.vector(stmt.value)})"
            values.append(value if scalar == float64 else f"(vf){value}")
        with super().braces(""):
            if isinstance(changes[0], ir.Atomic):
                self.line(f"const Components{kind} old = components_{kind}({given});")
            self.line(f"put_components_{kind}({given}, {', '.join(values)});")

    def goes_as_row(self, stmt: ir.Store | ir.Atomic, place: Place) -> bool:
        """Whether a change begins one of whole rows, one for each lane."""
        is_sum = isinstance(stmt, ir.Atomic) and scalar_of(elem_of(stmt.array)) != float32
        begins = place.row > 1 and (stmt.component or 0) == row_at(stmt) and not place.is_one
        return begins and self.is_usually_whole() and not is_sum

    def change_rows(self, change: Together) -> None:
        """Change the vectors of the lanes, which lie anywhere, one after another."""
        changes = [stmt for stmt, _ in change.changes]
        helper = "add_row" if isinstance(changes[0], ir.Atomic) else "put_row"
        with super().braces(""):
            rows, offsets = self.rows_of([stmt.value for stmt in changes]), change.place.offsets
            place = replace(change.place, offsets=self.array_of(int32, offsets, {}))
            with self.each_lane():
                at = spelling.unwrapped(place.of_lane(spelling.size(float32)))
                self.line(f"{helper}<{change.count}>({at}, {rows}[lane]);")

    # ------------------------------------------------------------------------------------------ sums

    def atomic(self, stmt: ir.Atomic) -> None:
        if stmt.kind != "add" or (stmt.out in self.used and stmt.held is None):
            raise Refused(f"threads take turns at an atomic of the kind {stmt.kind}")
        place, scalar = self.place_of(stmt), scalar_of(elem_of(stmt.array))
        if stmt in self.lane_totals:
            self.add_to_own(self.lane_totals[stmt], stmt, place)
        elif stmt in self.totals:
            if scalar != float32:
                raise Refused(f"it has a running total of {scalar}")
            self.later(stmt.array, lambda: self.add_lanes(self.totals[stmt], stmt.value, place))
        elif self.goes_lane_by_lane(stmt, place, scalar):
            self.later_by_lanes(stmt, place)
        else:
            self.later_together(stmt, place, lambda: self.add(stmt, place, scalar))
        if stmt.held is not None and stmt.out in self.used:
            self.declare(stmt.out, self.value(stmt.out, stmt.held))

    def only(self, atom: ir.Atom) -> str:
        """An atom as a vector with zeros in the lanes that are off."""
        value, scalar = self.vector(atom), scalar_type(atom)
        test = self.mask and self.test_for(scalar, self.mask)
        return f"({test} ? {value} : {VECTORS[scalar]}{{}})" if test else value

    def add_lanes(self, total: Total, value: ir.Atom, place: Place) -> None:
        """Add to the running total of an element, in as many float64s as there are lanes."""
        self.line(total.moved(spelling.unwrapped(place.base), f"{self.folded(total)} "))
        self.add_halves(total, value)

    def add_halves(self, total: Total, value: ir.Atom) -> None:
        low, high = self.halves(total)
        addend = f"const vf addend = {spelling.unwrapped(self.only(value))};"
        self.line(f"{{ {addend} {low} += low(addend), {high} += high(addend); }}")

    def halves(self, total: Total) -> tuple[str, str]:
        """The names of the float64s of the lanes, for a running total."""
        if total.name not in self.named_halves:
            low, high = (self.name.fresh(f"{total.name}_{half}") for half in ("low", "high"))
            self.named_halves[total.name] = low, high
        return self.named_halves[total.name]

    def zeroed(self, total: Total) -> str:
        low, high = self.halves(total)
        return f"vd {low} = {{}}, {high} = {{}};"

    def folded(self, total: Total) -> str:
        low, high = self.halves(total)
        return f"{total.name} += fold({low}, {high}); {low} = {high} = vd{{}};"

    @contextmanager
    def totals_of_lanes(self, counter: ir.Var | None) -> Iterator[None]:
        """A block at whose end running totals reach their elements, of which each lane has one."""
        totals = () if self.is_checking else self.totals
        own = [stmt for stmt in totals if self.settled_in[stmt] is counter and self.is_own(stmt)]
        for stmt in own:
            total = self.totals[stmt]
            base, offsets, reached = (self.name.fresh(f"{total.name}_{part}") for part in _PARTS)
            self.lane_totals[stmt] = LaneTotal(base, offsets, reached, self.places)
            self.line(f"{self.zeroed(total)} char* {base} = 0; vi {offsets} = {{}}, {reached} = {{}};")
        yield
        for stmt in own:
            mine = self.lane_totals.pop(stmt)
            # The interior leaves out branches, and what they add.
            if mine.place is not None or (stmt.array, stmt.indices) in mine.known:
                self.later(stmt.array, self.settling(stmt, mine))

    def is_own(self, stmt: ir.Atomic) -> bool:
        """Whether each lane has a running total of its own for an addition."""
        is_one = all(self.of(index) == UNIFORM for index in stmt.indices)
        return not is_one and scalar_of(elem_of(stmt.array)) == float32

    def add_to_own(self, own: LaneTotal, stmt: ir.Atomic, place: Place) -> None:
        self.add_halves(self.totals[stmt], stmt.value)
        if (stmt.array, stmt.indices) in own.known:
            return
        own.place = Place(own.base, place.offsets and own.offsets, place.adjacent, place.collide)
        offsets = f" {own.offsets} = {place.offsets};" if place.offsets else ""
        self.line(f"{own.base} = {place.base};{offsets} {own.reached} |= {self.mask or 'on'};")

    def settling(self, stmt: ir.Atomic, own: LaneTotal) -> Callable[[], None]:
        """What brings the running totals of the lanes to their elements."""
        place, mask = own.place, own.reached
        if place is None:
            place, mask = self.place_of(stmt), self.mask
        return lambda: self.settle(self.totals[stmt], place, mask)

    def settle(self, total: Total, place: Place, mask: str) -> None:
        low, high = self.halves(total)
        half = self.lanes.width // 2
        with self.under(mask):
            if total.beside is None and not place.collide:
                with self.braces(""):
                    self.line(f"const vf addend = {self.fetched(place, 'vf')};")
                    self.put(place, "vf", f"narrowed(low(addend) + {low}, high(addend) + {high})")
                return
            with self.each_lane():
                at = spelling.unwrapped(place.of_lane(spelling.size(float32)))
                self.line(f"double addend = lane < {half} ? {low}[lane] : {high}[lane - {half}];")
                if total.beside is None:
                    self.line(f"{total.settles}({at}, addend);")
                else:
                    self.line(total.beside.added(at, "addend"))

    def goes_lane_by_lane(self, stmt: ir.Atomic, place: Place, scalar: Scalar) -> bool:
        if scalar not in self.lanes.vectors or scalar in BY_LANES:
            return True
        return not place.is_one and (stmt in self.wide or place.collide)

    def later_by_lanes(self, stmt: ir.Atomic, place: Place) -> None:
        last = self.pending[-1] if self.pending else None
        if last is not None and last[0] is stmt.array and isinstance(last[1], LaneByLane):
            last[1].additions.append((stmt, place))
        else:
            self.later(stmt.array, LaneByLane(self.add_by_lanes, [(stmt, place)]))

    def add_by_lanes(self, additions: list[tuple[ir.Atomic, Place]]) -> None:
        """Each thread makes all of its additions before the next one's, as in scalar code."""
        with self.braces(self.add_side_by_side(additions)):
            arrays: dict[str, str] = {}
            groups = [*self.whole_vectors(additions)]
            laid = [self.laid_out(group, arrays) for group in groups]
            with self.each_lane():
                for group, (value, place) in zip(groups, laid, strict=True):
                    self.add_of_lane(group, value, place)

    def whole_vectors(
        self, additions: list[tuple[ir.Atomic, Place]]
    ) -> Iterator[list[tuple[ir.Atomic, Place]]]:
        """Additions one by one, but together those to all components of a vector that goes as a row."""
        while additions:
            stmt, place = additions[0]
            count = place.row if self.goes_as_row(stmt, place) else 1
            found = [(one.array, one.indices, one.component) for one, _ in additions[:count]]
            row = range(row_at(stmt), row_at(stmt) + count)
            if count > 1 and found != [(stmt.array, stmt.indices, k) for k in row]:
                count = 1
            yield additions[:count]
            additions = additions[count:]

    def laid_out(self, group: list[tuple[ir.Atomic, Place]], arrays: dict[str, str]) -> tuple[str, Place]:
        """The value of `lane` and its place, from arrays: an element of a vector takes longer."""
        stmt, place = group[0]
        text, type = self.of_lane(stmt.value), scalar_type(stmt.value)
        if len(group) > 1:
            text = f"{self.rows_of([one.value for one, _ in group])}[lane]"
        elif self.of(stmt.value) == VARYING and type not in BY_LANES:
            text = f"{self.array_of(type, self.vector(stmt.value), arrays)}[lane]"
        offsets = place.offsets and self.array_of(int32, place.offsets, arrays)
        return text, replace(place, offsets=offsets)

    def add_of_lane(self, group: list[tuple[ir.Atomic, Place]], value: str, place: Place) -> None:
        """Add a value of `lane`: a number, or a row for all components of a vector."""
        stmt, count = group[0][0], len(group)
        wide, scalar = self.wide.get(stmt), scalar_of(elem_of(stmt.array))
        at = spelling.unwrapped(place.of_lane(spelling.size(scalar)))
        if count > 1:
            self.line(
                f"add_row<{count}>({at}, {value});" if wide is None else wide.added_row(count, at, value)
            )
        elif wide is not None:
            self.widen(stmt, at, value)
        else:
            self.line(spelling.plain("add", scalar, f"({at})", value, None, None)[0])

    def rows_of(self, values: Sequence[ir.Atom]) -> str:
        """The array with the vectors of the lanes, whose components are given, laid out as rows."""
        rows, count = self.name.fresh("rows"), len(values)
        components = ", ".join(f"(vf){self.vector(value)}" for value in values)
        self.line(f"Four {rows}[{self.lanes.width}]; rows_of_{count}({rows}, {components});")
        return rows

    def add_side_by_side(self, additions: list[tuple[ir.Atomic, Place]]) -> str:
        """Add for all lanes at once where their sums may lie side by side; returns what else is tested.

        Few additions are rounded as they come, in whatever order.
        """
        wide = self.wide.get(additions[0][0])
        if wide is None or wide.scalar != float32 or wide.triples:
            return ""
        found = [self.side_by_side_where(place) for _, place in additions]
        if None in found or not all(stmt in self.wide for stmt, _ in additions):
            return ""
        tests = [*filter(None, dict.fromkeys(found))]
        with super().braces(f"if ({' && '.join([wide.few, *tests])})"):
            for stmt, place in additions:
                self.line(f"*(vfu*)({place.first}) += {self.vector(stmt.value)};")
        with super().braces(f"else if ({' && '.join([wide.dense, f'{wide.sums}.shift == 2', *tests])})"):
            for stmt, place in additions:
                at, value = spelling.unwrapped(place.first), self.vector(stmt.value)
                sums = f"((vdu*)({wide.dense} + ({wide.place(at)})))"
                self.line(f"{sums}[0] += low({value}), {sums}[1] += high({value});")
        return "else"

    def side_by_side_where(self, place: Place) -> str | None:
        """The test whether the scalars of all lanes lie side by side; "" if they always do, None if never."""
        if place.adjacent and not self.mask:
            return ""
        return (place.row == 1 and self.lies_near(place)) or None

    def array_of(self, scalar: Scalar, vector: str, arrays: dict[str, str]) -> str:
        if vector not in arrays:
            name, type = self.name.fresh("lanes"), VECTORS[scalar]
            declaration = f"{spelling.value_type(scalar)} {name}[{self.lanes.width}]"
            self.line(f"{declaration}; *({type}u*){name} = {vector};")
            arrays[vector] = name
        return arrays[vector]

    def add(self, stmt: ir.Atomic, place: Place, scalar: Scalar) -> None:
        type = VECTORS[scalar]
        if not place.is_one:
            self.put(place, type, f"{self.fetched(place, type)} + {self.vector(stmt.value)}")
            return
        total, wide = f"sum_of({self.only(stmt.value)})", self.wide.get(stmt)
        at = f"*({spelling.value_type(scalar)}*){place.base} += {total};"
        self.line(at if wide is None else wide.added(spelling.unwrapped(place.base), total))

    # ------------------------------------------------------------------------------------------ what is saved

    def record(self, atoms: Sequence[ir.Atom]) -> tuple[list[int], int]:
        """The offsets of vectors in a saved record, and its size."""
        sizes = [self.lanes.width * (8 if scalar_type(atom) == float64 else 4) for atom in atoms]
        ends = [*accumulate(sizes, initial=0)]
        return ends[:-1], ends[-1]

    def keep(self, atom: ir.Atom, place: str) -> None:
        type = self.vector_type(scalar_type(atom))
        self.line(f"*({type}u*){place} = {spelling.unwrapped(self.vector(atom))};")

    def take_back(self, out: ir.Var, place: str) -> None:
        self.declare(out, f"*({self.vector_type(scalar_type(out))}u*){place}")


_PARTS = ("at", "off", "reached")
"""What the variables of a `LaneTotal` are called."""
