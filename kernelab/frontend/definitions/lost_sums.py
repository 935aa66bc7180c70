"""Finds sums that threads lose: one loads an element, adds to it and stores it, and so do others.

    if i != j: e[0] = e[0] - x[i]        between load and store another thread may have stored

The element is the same in all threads, and the conditions around the store hold in more than one of them.
Where conditions may pick one thread, as ``i == 0`` and ``i >= n - 1`` do, and where threads take turns by the
results of atomics, nothing is found.  Knows the IR; must not know texts and messages.
"""

from collections.abc import Iterable, Iterator

from kernelab.lang import ir
from kernelab.lang.build import type_of
from kernelab.lang.types import Array, scalar_of

Condition = tuple[ir.Atom, bool]
"""A value, and what it is where something runs."""

_TERMS = {"add": slice(None), "sub": slice(1), "extract": slice(1), "insert": slice(-1, None)}
"""Which arguments of an operation go on in its result as they are, but for what is added."""

_OPPOSITE = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
_TURNED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_SHARED_BY_MANY = frozenset({"mod", "floordiv", "bit_and", "rshift"})
"""What several indices have one result of."""


def lost_sums(kernel: ir.Function) -> Iterator[ir.Store]:
    """The stores of a kernel of which additions may be lost."""
    if kernel.threads and not _takes_turns(kernel.body):
        yield from _Finder(kernel).stores(kernel.body, ())


def _takes_turns(body: ir.Block) -> bool:
    """Whether the result of an atomic is used, in functions that are called, too."""
    read = frozenset(ir.reads(body))
    return any(
        (isinstance(stmt, ir.Atomic) and stmt.out in read)
        or (isinstance(stmt, ir.Call) and _takes_turns(stmt.function.body))
        for stmt in ir.walk(body)
    )


class _Finder:
    """Knows what differs between threads, and between the iterations of loops."""

    def __init__(self, kernel: ir.Function) -> None:
        self.count, self.params = len(kernel.threads), frozenset(kernel.params)
        stmts = [*ir.walk(kernel.body)]
        self.made: dict[ir.Atom, ir.Stmt] = {out: stmt for stmt in stmts for out in ir.defs(stmt)}
        self.by_thread = _reached(kernel.threads, stmts)
        self.by_loop = _reached([var for stmt in stmts for var in ir.entering(stmt)], stmts)

    def stores(self, block: ir.Block, conditions: tuple[Condition, ...]) -> Iterator[ir.Store]:
        """The lost sums of a block that runs under some conditions."""
        for stmt in block.stmts:
            match stmt:
                case ir.Store(array, indices) if array in self.params and self.by_thread.isdisjoint(indices):
                    few = sum(self.picked(*condition) for condition in conditions) >= self.count
                    if not few and self.adds_to(stmt.value, stmt):
                        yield stmt
                case ir.If(_, cond, then, orelse):
                    yield from self.stores(then, (*conditions, (cond, True)))
                    yield from self.stores(orelse, (*conditions, (cond, False)))
                case _:
                    for inner in ir.blocks(stmt):
                        yield from self.stores(inner, conditions)

    def adds_to(self, value: ir.Atom, store: ir.Store) -> bool:
        """Whether a value is what the element held, with something added."""
        match self.made.get(value):
            case ir.Let(_, op, (first, *others)) if op.name in ("add", "sub", "extract", "insert"):
                terms = (
                    (first, *others) if op.name == "add" else others[-1:] if op.name == "insert" else (first,)
                )
                return any(self.holds(term, store) or self.adds_to(term, store) for term in terms)
            case _:
                return False

    def holds(self, value: ir.Atom, store: ir.Store) -> bool:
        """Whether a value is what the element held."""
        match self.made.get(value):
            case ir.Load(_, array, indices) if array is store.array:
                return all(map(self.same, indices, store.indices))
            case _:
                return False

    def same(self, a: ir.Atom, b: ir.Atom) -> bool:
        """Whether two values are equal by their text."""
        match self.made.get(a), self.made.get(b):
            case ir.Let(_, op, args), ir.Let(_, other, others) if op is other and len(args) == len(others):
                return a is b or all(map(self.same, args, others))
            case _:
                return a is b or (isinstance(a, ir.Const) and a == b)

    def picked(self, atom: ir.Atom, truth: bool) -> int:
        """How many thread indices a condition may leave a single value; all of them if it never holds."""
        if atom not in self.by_thread:
            return 0 if not isinstance(atom, ir.Const) or bool(atom.value) == truth else self.count
        match self.made.get(atom):
            case ir.Let(_, op, (arg,)) if op.name == "not":
                return self.picked(arg, not truth)
            case ir.Let(_, op, (a, b)) if op.name in ("and", "or"):
                both = self.picked(a, truth), self.picked(b, truth)
                return sum(both) if truth == (op.name == "and") else min(both)
            case ir.Let(_, op, (a, b)) if op.name in _OPPOSITE:
                name = op.name if truth else _OPPOSITE[op.name]
                if a not in self.by_thread:
                    name, a, b = _TURNED.get(name, name), b, a
                return int(self.picks(name, a, b))
            case ir.If(outs, cond, then, orelse) if atom in outs:
                ways = ((then.yields[outs.index(atom)], True), (orelse.yields[outs.index(atom)], False))
                return min(self.picked(cond, way) + self.picked(value, truth) for value, way in ways)
            case _:
                return self.count

    def picks(self, name: str, index: ir.Atom, other: ir.Atom) -> bool:
        """Whether a comparison of what differs between threads may hold in one thread alone."""
        if name == "ne" or other in self.by_loop or index in self.by_loop:
            return False
        stmt = self.made.get(index)
        if name == "eq":
            return not (isinstance(stmt, ir.Let) and stmt.op.name in _SHARED_BY_MANY)
        is_index = scalar_of(type_of(index)).is_int and not isinstance(stmt, ir.Load)
        if not is_index or other in self.by_thread:
            return False
        if not isinstance(other, ir.Const):
            return name in ("gt", "ge")
        return (name, other.value) in (("lt", 1), ("le", 0), ("lt", 0))


def _reached(sources: Iterable[ir.Var], stmts: list[ir.Stmt]) -> frozenset[ir.Atom]:
    """All values that depend on some, also by an index or by which way is taken; arrays do not count."""
    reached: set[ir.Atom] = set(sources)
    size = -1
    while size != len(reached):
        size = len(reached)
        for stmt in stmts:
            depends = [target for source, target in ir.flows(stmt) if source in reached]
            if not isinstance(stmt, ir.For | ir.While) and not reached.isdisjoint(ir.atoms(stmt)):
                depends += ir.defs(stmt)
            reached.update(target for target in depends if not isinstance(target.type, Array))
    return frozenset(reached)
