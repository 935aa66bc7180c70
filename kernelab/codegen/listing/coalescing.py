"""Names for a reader: one name for the values that take turns in what the user calls one variable.

    s_1 = 0.0                              s = 0.0
    s_4 = for k: carry s_2 = s_1           for k in range(n):
        s_3 = s_2 + x[k]; yield s_3            s = s + x[k]

Knows the IR and what is folded away; must not know the printer.  Two Vars may share a name if they have the
same hint or one has none, and neither is still needed when the other is assigned (interference, found by one
backward walk over the structured program).
"""

from collections.abc import Callable, Iterable

from kernelab.codegen.listing.folding import Folded, hint_of, leaves
from kernelab.lang.ir import (
    Atom,
    Block,
    Const,
    For,
    Function,
    If,
    Load,
    Stmt,
    Var,
    While,
    atoms,
    blocks,
    defs,
    walk,
)
from kernelab.lang.show import Names
from kernelab.lang.types import Array

Live = frozenset[Var]


def coalesce(function: Function, folded: Folded, reserved: frozenset[str]) -> Callable[[Var], str]:
    """The name of each Var of a function."""
    fixed = (*function.params, *function.threads, *([function.linear] if function.linear else []))
    interference = _Interference(folded)
    interference.assign(fixed, interference.block(function.body, frozenset()))
    classes = _Classes(interference.edges, _hints(function.body))
    for stmt in walk(function.body):
        for one, other in _copies(stmt):
            classes.merge(one, other)
    _reuse_names(fixed, function.body, classes)
    names = Names(reserved)
    labels = _labels(function.body)
    shown: dict[Var, Var] = {}

    def name(var: Var) -> str:
        root = classes.of(var)
        stand_in = Var(root.type, classes.hint(root) or labels.get(root, ""))
        return names(shown.setdefault(root, stand_in))

    for var in fixed:
        name(var)
    return name


def _hints(body: Block) -> dict[Var, str]:
    return {out: hint_of(out, stmt) for stmt in walk(body) for out in defs(stmt)}


def _labels(body: Block) -> dict[Var, str]:
    """What to call an element that has no name of the user's: ``x_k`` for ``x[k]``."""
    labels = {}
    for stmt in walk(body):
        if isinstance(stmt, Load):
            parts = [str(i.value) if isinstance(i, Const) else i.hint for i in stmt.indices]
            array = stmt.array.hint.replace(".", "_")
            labels[stmt.out] = "_".join([array, *parts]) if all(map(str.isalnum, parts)) else ""
    return labels


def split(function: Function, name: Callable[[Var], str]) -> frozenset[Var]:
    """Values that are only moved into the variable whose name they bear, because both are needed at once."""
    pairs = (pair for stmt in walk(function.body) for pair in _copies(stmt))
    return frozenset(
        value
        for target, value in pairs
        if isinstance(target, Var) and isinstance(value, Var)
        if hint_of(value) == hint_of(target) != "" and name(value) != name(target)
    )


def _copies(stmt: Stmt) -> list[tuple[Atom, Atom]]:
    match stmt:
        case If(outs, _, then, orelse):
            return [*zip(outs, then.yields, strict=True), *zip(outs, orelse.yields, strict=True)]
        case For() | While():
            pairs = (stmt.body.yields, stmt.outs, stmt.inits)
            return [pair for others in pairs for pair in zip(stmt.carries, others, strict=True)]
        case _:
            return []


def _reuse_names(fixed: tuple[Var, ...], body: Block, classes: "_Classes") -> None:
    """The user's `d = a` and, after the last use of that, `d = b` are one name again."""
    representatives: dict[str, list[Var]] = {}
    for var in (*fixed, *_defined(body)):
        if not classes.hint(var) or isinstance(var.type, Array):
            continue
        same = representatives.setdefault(classes.hint(var), [])
        if not any(classes.merge(earlier, var) for earlier in same):
            same.append(var)


def _defined(block: Block) -> Iterable[Var]:
    for stmt in walk(block):
        if isinstance(stmt, For | While):
            yield from stmt.carries
        if isinstance(stmt, For):
            yield stmt.index
        yield from defs(stmt)


class _Interference:
    """Which Vars are needed at the same time."""

    def __init__(self, folded: Folded) -> None:
        self.folded = folded
        self.edges: dict[Var, set[Var]] = {}

    def read(self, items: Iterable[Atom]) -> Live:
        return frozenset(leaf for atom in items for leaf in leaves(atom, self.folded))

    def assign(self, outs: Iterable[Var], live: Live) -> Live:
        """The outs are assigned together while `live` are still needed; what is live before that."""
        outs = frozenset(outs)
        for out in outs:
            self.edges.setdefault(out, set()).update((live | outs) - {out})
            for other in (live | outs) - {out}:
                self.edges.setdefault(other, set()).add(out)
        return live - outs

    def block(self, block: Block, live: Live) -> Live:
        live |= self.read(block.yields)
        for stmt in reversed(block.stmts):
            live = self.stmt(stmt, live)
        return live

    def stmt(self, stmt: Stmt, live: Live) -> Live:
        if not self.folded.keys().isdisjoint(defs(stmt)):
            return live
        match stmt:
            case If(outs, cond, then, orelse):
                after = self.assign(outs, live)
                return self.block(then, after) | self.block(orelse, after) | self.read([cond])
            case For():
                return self.loop(stmt, (*stmt.carries, stmt.index), live)
            case While():
                return self.loop(stmt, stmt.carries, live)
            case _:
                return self.assign(defs(stmt), live) | self.read(atoms(stmt))

    def loop(self, stmt: For | While, heads: tuple[Var, ...], live: Live) -> Live:
        after = self.assign(stmt.outs, live)
        # Python counts a range once, but a reader would be misled if its name changed inside.
        count = self.read([stmt.count]) if isinstance(stmt, For) else frozenset()
        around = after | self.free(stmt.body, heads) | count
        index = {stmt.index} if isinstance(stmt, For) else set()
        begin = self.block(stmt.body, around | index)
        before = self.assign(heads, begin | around)
        if stmt.stop is not None:
            self.read_after_copies(stmt.body.yields, stmt.stop, stmt.carries)
        return before | self.read(stmt.inits)

    def read_after_copies(self, yields: tuple[Atom, ...], stop: int, carries: tuple[Var, ...]) -> None:
        """What ends the loop is read once the carried values are assigned: they must not overwrite it."""
        for leaf in self.read([yields[stop]]):
            others = (carry for carry, value in zip(carries, yields, strict=True) if value is not leaf)
            self.assign([leaf], frozenset(others))

    def free(self, body: Block, heads: tuple[Var, ...]) -> Live:
        """What a body reads from outside: needed until the last iteration."""
        inner = [body, *(block for stmt in walk(body) for block in blocks(stmt))]
        used = self.read(a for block in inner for a in block.yields)
        used |= self.read(a for stmt in walk(body) for a in atoms(stmt))
        inside = {*heads, *_defined(body)}
        return used - inside


class _Classes:
    """The Vars that share a name: a union-find whose roots know the members and bear the hint."""

    def __init__(self, edges: dict[Var, set[Var]], hints: dict[Var, str]) -> None:
        self.edges = edges
        self.hints = hints
        self.parent: dict[Var, Var] = {}
        self.members: dict[Var, set[Var]] = {}

    def hint(self, var: Var) -> str:
        """The user's name for a Var, empty if there is none."""
        return self.hints.get(var, hint_of(var))

    def of(self, var: Var) -> Var:
        """The Var that stands for the class."""
        while (parent := self.parent.get(var)) is not None:
            var = parent
        return var

    def merge(self, one: Atom, other: Atom) -> bool:
        """Give two Vars one name if they can have it; whether they now do."""
        if not isinstance(one, Var) or not isinstance(other, Var):
            return False
        a, b = self.of(one), self.of(other)
        if a is b:
            return True
        hints = {self.hint(a), self.hint(b)} - {""}
        if len(hints) > 1 or self.clash(a, b):
            return False
        a, b = (a, b) if self.hint(a) else (b, a)
        self.parent[b] = a
        self.members[a] = self.members.get(a, {a}) | self.members.get(b, {b})
        return True

    def clash(self, a: Var, b: Var) -> bool:
        mine, theirs = self.members.get(a, {a}), self.members.get(b, {b})
        return any(self.edges.get(var, set()) & theirs for var in mine)
