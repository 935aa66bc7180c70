"""Race detection: records, with each access to some arrays, which threads accessed an element, and how.

    before    y[j] = v
    after     y[j] = v; key = thread * sites + 7; min(y_store_first[j], key); max(y_store_last[j], key)

Of arrays with elements that nobody has written, what is set is marked apart, and what is read before that.

    before    v = x[j]
    after     v = x[j]
              if x_set_first[j] == UNMARKED: min(x_early_first[j], key)

A component that a store to another one loads and stores back is neither read nor set.

Works on scalarised functions without calls.  Marks are minima and maxima of int64, so threads may run in any
order, or together: what they leave says whether two different threads came to an element, at which places of
the text.  Sums and prints of the kernel are kept and left out; what C++ snippets touch leaves no mark.
"""

from collections.abc import Callable, Collection
from typing import Literal

from kernelab.data_classes import dataclass, replace
from kernelab.errors import Span
from kernelab.lang import ir
from kernelab.lang.build import elem_of, ndim_of
from kernelab.lang.types import Array, int64, with_scalar
from kernelab.passes.access.blocks import threads_are_disjoint
from kernelab.passes.access.independence import uses
from kernelab.passes.common.copying import Copier
from kernelab.passes.common.simplify import adds_nothing

Use = Literal["store", "load", "atomic", "early", "set"]
"""What a thread does to an element: "set" is to store or change a value, "early" to read it before that."""

USES: tuple[Use, ...] = ("store", "load", "atomic")
"""The uses that can meet in a race."""


def ends(use: Use) -> tuple[str, ...]:
    """Which marks a use leaves on an element: of those in a race the last one, too."""
    return ("first", "last") if use in USES else ("first",)


UNMARKED = (2**63 - 1, -1)
"""The first and the last mark of an element that no thread accessed."""


@dataclass(frozen=True, slots=True)
class Marked:
    """A program that leaves marks, which two parameters more take for each array and use of it, in order.

    A mark is the number of a thread times `count`, plus the number of the site, which is less than `count`.
    """

    function: ir.Function
    sites: tuple[Span, ...]
    count: int
    marks: tuple[tuple[str, Use], ...]

    def read(self, mark: int) -> tuple[int, Span]:
        """The thread and the place that a mark stands for."""
        thread, site = divmod(mark, self.count)
        return thread, self.sites[site]


def contested(function: ir.Function) -> frozenset[str]:
    """The array parameters that the kernel stores to, unless each thread has elements of its own."""
    stored = {array: use.accesses for array, use in uses(function).items() if "store" in use.kinds}
    arrays = (array for array in function.params if array in stored)
    return frozenset(array.hint for array in arrays if not threads_are_disjoint(function, stored[array]))


def stored(function: ir.Function) -> frozenset[str]:
    """The array parameters that the kernel stores to."""
    targets = {stmt.array for stmt in ir.of_kind(function.body, ir.Store)}
    return frozenset(var.hint for var in targets.intersection(function.params))


def unseen(function: ir.Function) -> dict[str, Span]:
    """The arrays that C++ snippets may change, with the call: no mark tells which elements."""
    return {array.hint: stmt.span for stmt in ir.of_kind(function.body, ir.Native) for array in stmt.changed}


def marked(function: ir.Function, watched: Collection[str], unset: Collection[str] = ()) -> Marked:
    """The program that leaves marks on the arrays `watched`, also of early reads of those `unset`."""
    thread = function.linear or ir.Var(int64, "thread", function.span)
    marker = _Marker(function, thread, watched, unset)
    program = marker.function(function)
    params = (*function.params, *(mark for pair in marker.marks.values() for mark in pair))
    program = replace(program, params=params, linear=thread if marker.marks else function.linear)
    uses = tuple((array.hint, use) for array, use in marker.marks)
    return Marked(program, tuple(marker.sites), marker.count, uses)


class _Marker(Copier):
    def __init__(
        self, function: ir.Function, thread: ir.Var, watched: Collection[str], unset: Collection[str]
    ) -> None:
        super().__init__()
        self.thread = thread
        self.watched = [param for param in function.params if param.hint in watched]
        self.unset = [param for param in function.params if param.hint in unset]
        self.used = _users(function) if unset else {}
        self.carried = _carried_back(function, self.used) if unset else {}
        accesses = (stmt for stmt in ir.walk(function.body) if isinstance(stmt, ir.ArrayAccess))
        self.count = sum((stmt.array in self.watched) + 2 * (stmt.array in self.unset) for stmt in accesses)
        self.sites: list[Span] = []
        self.marks: dict[tuple[ir.Var, Use], tuple[ir.Var, ...]] = {}

    def stmt(self, stmt: ir.Stmt) -> None:
        if isinstance(stmt, ir.Print):
            return
        super().stmt(stmt)  # before its marks: it raises the error for an index outside
        if isinstance(stmt, ir.Load | ir.Atomic):
            self.mark_early(stmt)
        if isinstance(stmt, ir.ArrayAccess) and stmt.array in self.watched:
            kinds: dict[type, Use] = {ir.Load: "load", ir.Store: "store", ir.Atomic: "atomic"}
            self.leave(kinds[type(stmt)], stmt)
        if isinstance(stmt, ir.Store | ir.Atomic):
            self.mark_set(stmt)

    def mark_set(self, stmt: ir.Store | ir.Atomic) -> None:
        if stmt.array not in self.unset or adds_nothing(stmt):
            return
        if stmt.value not in self.carried or self.carried[stmt.value] != _place(stmt):
            self.leave("set", stmt)

    def mark_early(self, stmt: ir.Load | ir.Atomic) -> None:
        if stmt.array not in self.unset or stmt.out in self.carried or stmt.held is not None:
            return
        is_blind = isinstance(stmt, ir.Atomic) and stmt.kind == "exch" and stmt.out not in self.used
        if is_blind or adds_nothing(stmt):
            return
        b, first, (marks,) = self.builder, ir.Var(int64, "", stmt.span), self.marks_of(stmt.array, "set")
        b.emit(ir.Load(first, marks, self.atoms(stmt.indices), stmt.span, None, stmt.component))
        with b.block() as early:
            self.leave("early", stmt)
        is_early = b.apply("eq", first, ir.Const(UNMARKED[0], int64))
        b.emit(ir.If((), is_early, early.close(), ir.Block(()), stmt.span))

    def leave(self, use: Use, stmt: ir.ArrayAccess) -> None:
        b, number, indices = self.builder, len(self.sites), self.atoms(stmt.indices)
        self.sites.append(stmt.span)
        scaled = b.apply("mul", self.thread, ir.Const(self.count, int64))
        key = b.apply("add", scaled, ir.Const(number, int64))
        kinds: tuple[ir.AtomicKind, ...] = ("min", "max")
        for kind, marks in zip(kinds, self.marks_of(stmt.array, use), strict=False):
            out = ir.Var(int64, "", stmt.span)
            b.emit(ir.Atomic(out, kind, marks, indices, key, stmt.span, component=stmt.component))

    def marks_of(self, array: ir.Var, use: Use) -> tuple[ir.Var, ...]:
        if (array, use) not in self.marks:
            type = Array(with_scalar(elem_of(array), int64), ndim_of(array))
            marks = (ir.Var(type, f"{array.hint}_{use}_{end}", array.span) for end in ends(use))
            self.marks[array, use] = tuple(marks)
        return self.marks[array, use]


Place = tuple[ir.Var, tuple[ir.Atom, ...], int | None]


def _place(stmt: ir.ArrayAccess) -> Place:
    return stmt.array, stmt.indices, stmt.component


Users = dict[ir.Atom, list[ir.Stmt | None]]
"""The statements that use each value; None for what a block hands on."""


def _users(function: ir.Function) -> Users:
    users: Users = {}
    for stmt in ir.walk(function.body):
        for atom in ir.atoms(stmt):
            users.setdefault(atom, []).append(stmt)
        for block in ir.blocks(stmt):
            for atom in block.yields:
                users.setdefault(atom, []).append(None)
    return users


def _carried_back(function: ir.Function, users: Users) -> dict[ir.Atom, Place]:
    """The loaded values that go nowhere but back to their place, by themselves or as a side of a `where`."""
    loads = ir.of_kind(function.body, ir.Load)

    def goes_back(value: ir.Atom, place: Place) -> bool:
        return all(_carries(user, value, place, goes_back) for user in users.get(value, ()))

    return {load.out: _place(load) for load in loads if goes_back(load.out, _place(load))}


def _carries(
    user: ir.Stmt | None, value: ir.Atom, place: Place, goes_back: Callable[[ir.Atom, Place], bool]
) -> bool:
    match user:
        case ir.Store():
            return _place(user) == place
        case ir.Let(out, op, args) if op.name == "where":
            return args[0] is not value and goes_back(out, place)
        case _:
            return False
