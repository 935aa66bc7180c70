"""Float64 accumulators: selects the atomic additions that are collected in float64 before they are stored.

    energy[0] += e                        in every thread:      energy_total += e
    for k in range(n): s[i] += x[k]       in every iteration:   s_total += x[k]
    bins[of[i]] += 1.0                    in every thread:      bins_wide[of[i]] += 1.0

A float32 that sums ones stops at 2**24, a float16 at 2**11, a bfloat16 at 2**8: each addition is lost
against the sum.  Where the element stays the same from one addition to the next, a running total is a float64
that reaches it once, when another element's turn comes or the launch ends.  Where elements change, additions
that are small against their element, and all of halves, go to a float64 beside the element (`beside`); so do
running totals that come to an element again and again.  That is only done where nothing in the function looks
at the array in between.

Where a launch runs in parts, a running total that all threads share is one of each part (`shared_totals`).
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

from kernelab.codegen.cpp.addition_bounds import bounds_of
from kernelab.codegen.cpp.helpers import Names
from kernelab.data_classes import dataclass
from kernelab.lang import ir
from kernelab.lang.build import elem_of, ndim_of
from kernelab.lang.types import HALVES, Scalar, bytes_of, float32, scalar_of, size_of
from kernelab.passes.access.blocks import threads_are_disjoint


def totals(function: ir.Function) -> tuple[ir.Atomic, ...]:
    """The additions that go to a running total, in order."""
    return tuple(_totals(function))


@lru_cache(16)
def wide(function: ir.Function) -> tuple[ir.Atomic, ...]:
    """The additions that may go to a float64 accumulator of each element, in order: changing elements only.

    Left out are those by which one thread or two reach an element, once each.  Of a running total it is what
    has come together that goes there.
    """
    if function.aliased:
        return ()
    looked_at, may_repeat = arrays_looked_at(function), _totals(function)
    sums = (stmt for stmt, turns in _atomics(function) if not _is_apart(function, stmt, turns, may_wrap=True))
    return tuple(stmt for stmt in sums if may_repeat.get(stmt, True) and _is_sum(stmt, looked_at))


@lru_cache(16)
def _totals(function: ir.Function) -> dict[ir.Atomic, bool]:
    """The additions that go to a running total, and whether one may come to an element more than once."""
    return {stmt: bool(turns) and not _is_apart(function, stmt, turns) for stmt, turns in _sums(function)}


def _is_apart(
    function: ir.Function, stmt: ir.Atomic, turns: tuple["_Turns", ...], may_wrap: bool = False
) -> bool:
    """Whether the element of an addition is another one in each thread and each of these iterations."""
    counted = {var for turn in turns for var in turn.counted}
    return threads_are_disjoint(function, [stmt], may_wrap) and counted <= {*stmt.indices}


def _sums(function: ir.Function) -> Iterator[tuple[ir.Atomic, tuple["_Turns", ...]]]:
    """Those additions, each with the turns in which its element changes."""
    if function.aliased:
        return
    looked_at = arrays_looked_at(function)
    for stmt, turns in _atomics(function):
        steady = turns
        while steady and not steady[-1].changing:
            steady = steady[:-1]
        if steady != turns and _is_sum(stmt, looked_at):
            yield stmt, steady


@lru_cache(16)
def met_by_all(function: ir.Function) -> tuple[ir.Atomic, ...]:
    """The additions to a running total that all threads share: to one element for the whole launch."""
    return tuple(stmt for stmt, turns in _sums(function) if not turns)


@lru_cache(16)
def shared_totals(function: ir.Function) -> tuple[ir.Atomic, ...]:
    """The additions of float32 to a running total that all threads share, if all to their arrays are such.

    Each part of a launch has these totals for itself.
    """
    met = dict.fromkeys(met_by_all(function))
    besides = {stmt.array for stmt in ir.of_kind(function.body, ir.Atomic) if stmt not in met}
    alone = (stmt for stmt in met if stmt.array not in besides)
    return tuple(stmt for stmt in alone if scalar_of(elem_of(stmt.array)) == float32)


def settled_in(function: ir.Function) -> dict[ir.Atomic, ir.Var | None]:
    """For each running total the first counter of the loop whose iterations have an element each.

    None where threads have one each, or all share one.
    """
    return {
        stmt: turns[-1].counted[0] if turns and turns[-1].counted else None for stmt, turns in _sums(function)
    }


@lru_cache(16)
def arrays_looked_at(function: ir.Function) -> frozenset[ir.Var]:
    """The arrays whose elements matter before the launch ends, and those that belong to a thread."""
    used = frozenset(atom for atom in ir.reads(function.body) if isinstance(atom, ir.Var))
    arrays = set()
    for stmt in ir.walk(function.body):
        match stmt:
            case ir.Let():
                pass
            case ir.Load(_, array) | ir.Store(array) | ir.Alloc(array):
                arrays.add(array)
            case ir.Native():
                arrays |= {array for _, array in stmt.arrays}
            case ir.Atomic(out, kind, array, held=held) if kind != "add" or (held is None and out in used):
                arrays.add(array)
    return frozenset(arrays)


def rounded_often(function: ir.Function) -> frozenset[ir.Var]:
    """The arrays of halves that are looked at, and to whose elements threads or iterations add repeatedly."""
    looked_at = arrays_looked_at(function)
    return frozenset(
        stmt.array
        for stmt, turns in _atomics(function)
        if stmt.kind == "add" and stmt.array in looked_at and scalar_of(elem_of(stmt.array)) in HALVES
        if not _is_apart(function, stmt, turns, may_wrap=True)
    )


def _is_sum(stmt: ir.Atomic, looked_at: frozenset[ir.Var]) -> bool:
    return stmt.array not in looked_at and scalar_of(elem_of(stmt.array)) in (*HALVES, float32)


@dataclass(frozen=True, slots=True)
class _Turns:
    """The values that change between iterations of a loop or threads of a launch, and its counters."""

    changing: set[ir.Atom]
    counted: tuple[ir.Var, ...]


@lru_cache(16)
def _atomics(function: ir.Function) -> tuple[tuple[ir.Atomic, tuple[_Turns, ...]], ...]:
    """The atomics in order, each with the turns of the launch and of the loops that change its indices."""
    own = () if function.linear is None else (function.linear,)
    return tuple(_within(function.body, (_Turns({*function.threads, *own}, ()),)))


def _within(block: ir.Block, turns: tuple[_Turns, ...]) -> Iterator[tuple[ir.Atomic, tuple[_Turns, ...]]]:
    for stmt in block.stmts:
        match stmt:
            case ir.Atomic(indices=indices):
                yield stmt, tuple(_Turns(turn.changing.intersection(indices), turn.counted) for turn in turns)
            case ir.If(then=then, orelse=orelse):
                yield from _within(then, turns)
                yield from _within(orelse, turns)
            case ir.For(index=index, carries=carries, body=body):
                yield from _within(body, (*turns, _Turns({index, *carries}, (index,))))
            case ir.While(carries=carries, body=body):
                yield from _within(body, (*turns, _Turns({*carries}, carries)))
        for turn in turns:
            if not isinstance(stmt, ir.Let) or turn.changing.intersection(ir.atoms(stmt)):
                turn.changing.update(ir.defs(stmt))


@dataclass(frozen=True, slots=True)
class Total:
    """The locals of a running total: the float64, and the address that it belongs to, at first none.

    `beside` are the sums that it goes to, None where it goes to its element; `is_own` says that no other
    thread adds to its elements; `number` is its place among those that each part of a launch has.
    """

    name: str
    place: str
    scalar: Scalar
    beside: "Wide | None" = None
    is_own: bool = False
    number: int | None = None

    @property
    def settles(self) -> str:
        """The helper that brings it to its element."""
        return f"settle{self.scalar.flavor}{self.scalar.bits}"

    @property
    def gathered(self) -> str:
        """The statement with which the threads of a block bring theirs to memory, together if they meet."""
        helper = self.settles if self.is_own else f"gather{self.scalar.flavor}{self.scalar.bits}"
        return f"{helper}({self.place}, {self.name});"

    @property
    def declared(self) -> tuple[str, ...]:
        return (f"double {self.name} = 0.0; char* {self.place} = 0;",)

    def moved(self, pointer: str, first: str = "") -> str:
        """The statement that makes it the total of the element at `pointer`; others may come `first`."""
        if self.number is not None:  # it has one element
            return f"{self.place} = {pointer};"
        return f"if ({self.place} != {pointer}) {{ {first}{self.settled} {self.place} = {pointer}; }}"

    @property
    def settled(self) -> str:
        if self.number is not None:
            return f"share32(status, {self.number}, {self.place}, {self.name});"
        if self.beside is None:
            return f"{self.settles}({self.place}, {self.name});"
        return f"if ({self.place}) {self.beside.added(self.place, self.name)} {self.name} = 0.0;"


@dataclass(frozen=True, slots=True)
class Wide:
    """The locals of the accumulators of an array: `sums`, and `low`, the first byte that an element can have.

    `dense` are the float64s of all elements, null where there are blocks of them or none.
    `triples` says that elements are vectors of three float32.
    `additions` is the expression for how many the launch makes at most, `is_few` for whether so few of them
    meet at an element that float32 loses nothing: then `few` is true.
    """

    array: str
    sums: str
    low: str
    dense: str
    few: str
    scalar: Scalar
    ndim: int
    itemsize: int
    triples: bool
    additions: str
    is_few: str

    @property
    def adds(self) -> str:
        """The helper that adds to an element, or to its accumulator."""
        return f"widen{self.scalar.flavor}{self.scalar.bits}"

    @property
    def settles(self) -> str:
        """The function that brings the sums to their elements."""
        return f"spread{self.scalar.flavor}{self.scalar.bits}"

    @property
    def declared(self) -> tuple[str, ...]:
        name = self.array
        reach = [f"({name}_s{k} {{}} 0 ? ((i64){name}_n{k} - 1) * {name}_s{k} : 0)" for k in range(self.ndim)]
        first, last = (" + ".join([name, *(part.format(sign) for part in reach)]) for sign in "<>")
        strides = " | ".join(f"{name}_s{k}" for k in range(self.ndim))
        size = self.scalar.bits // 8
        whole = " && ".join(f"{name}_s{k} % {self.itemsize} == 0" for k in range(self.ndim))
        counts = f"({strides}) % {size} ? 0 : {size.bit_length() - 1}, {self.additions}, {self.few}"
        counts += f", {whole if self.triples else 'false'}"
        return (
            f"char* const {self.low} = {first};",
            f"const bool {self.few} = {self.is_few};",
            f"Sums {self.sums} = sums_of({last} + {self.itemsize} - {self.low}, {counts});",
            f"double* const {self.dense} = {self.sums}.dense;",
        )

    def added(self, pointer: str, value: str) -> str:
        return f"{self.adds}({pointer}, {value}, {self._given(pointer)});"

    def added_triple(self, pointer: str, values: Sequence[str]) -> str:
        """The statement that adds to all three components of the element at `pointer`."""
        return f"widen_triple32({pointer}, {', '.join(values)}, {self._given(pointer)});"

    def added_row(self, count: int, pointer: str, value: str) -> str:
        """The statement that adds to all components of the vector at `pointer`, whose `value` fills a row."""
        return f"widen_row<{count}>({pointer}, {value}, {self._given(pointer)});"

    def _given(self, pointer: str) -> str:
        return f"{self.dense}, {self.few}, {self.sums}, {self.place(pointer)}"

    def place(self, pointer: str) -> str:
        offset = f"{pointer} - {self.low}"
        return f"place_of({self.sums}, {offset})" if self.triples else f"({offset}) >> {self.sums}.shift"

    @property
    def settled(self) -> str:
        return f"{self.settles}({self.low}, {self.sums});"


def versions(sums: Sequence[Total | Wide]) -> tuple[list[str], list[str]]:
    """The lines around loops that are compiled three times, by where each array has its additions.

    In one all are few, in one each is few or has a float64 for each element (`known`).  Other accumulators
    take registers from a loop even where they are never used.
    """
    counted = [each for each in sums if isinstance(each, Wide) and each.is_few != "false"]
    if not counted:
        return [], []
    names = [each.few for each in counted]
    known = " && ".join(f"({each.few} || {each.dense})" for each in counted)
    few = ", ".join(names) if len(names) > 1 else "false"
    params = ", ".join(["const bool known", *(f"const bool {name}" for name in names)])
    head = [f"const auto run = [&]({params}) __attribute__((always_inline)) {{"]
    head.append(f"if (known && !({known})) __builtin_unreachable();")
    calls = f"if ({' && '.join(names)}) run(true, {', '.join(['true'] * len(names))});"
    return head, ["};", f"{calls} else if ({known}) run(true, {few}); else run(false, {few});"]


def wide_of(function: ir.Function, array: ir.Var, names: Names) -> Wide:
    """The accumulators of an array that has a name, with fresh names."""
    name, elem, scalar = names(array), elem_of(array), scalar_of(elem_of(array))
    sums, low, dense, few = (names.fresh(f"{name}_{part}") for part in ("wide", "low", "dense", "few"))
    to_array = [stmt for stmt in wide(function) if stmt.array is array]
    additions, is_few = bounds_of(function, to_array, names)
    is_few = is_few if scalar == float32 else "false"
    ndim, triples = ndim_of(array), scalar == float32 and size_of(elem) == 3
    return Wide(name, sums, low, dense, few, scalar, ndim, bytes_of(elem), triples, additions, is_few)


def total_of(
    stmt: ir.Atomic, names: Names, beside: Wide | None, is_own: bool, number: int | None = None
) -> Total:
    """The running total of an addition, with fresh names, and the sums that it goes to."""
    array, scalar = names(stmt.array), scalar_of(elem_of(stmt.array))
    return Total(names.fresh(f"{array}_total"), names.fresh(f"{array}_place"), scalar, beside, is_own, number)
