"""What a reader sees: one name for values that take turns, values inside expressions, statements in order."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeGuard

from kernelab.lang.ir import (
    Atom,
    Atomic,
    Block,
    Const,
    For,
    Function,
    If,
    Let,
    Load,
    Native,
    Restore,
    Save,
    Stmt,
    Store,
    Var,
    While,
    atoms,
    blocks,
    defs,
    reads,
    walk,
)
from kernelab.lang.show import Names
from kernelab.lang.types import Array, Scalar

WIDTH = 66
"""How many characters an expression may take, about."""

Folded = dict[Var, Let | Load | If]
"""The statement behind each Var that is printed where it is used; an `If` only chooses between two values."""


def fold(function: Function, nameless: frozenset[Var] = frozenset()) -> Folded:
    """What is folded in a function; a Var among `nameless` counts as one that the user gave no name."""
    uses = Counter(reads(function.body))
    once = {atom for atom, count in uses.items() if count == 1}
    folded: Folded = {stmt.out: stmt for stmt in walk(function.body) if _is_small_index(stmt)}
    width: dict[Atom, int] = {}
    for block in reversed(list(_all_blocks(function.body))):
        mine = _candidates(block, once, nameless, folded)
        _keep_lines_short(block, mine, folded, width)
        _keep_what_is_overwritten(block, mine)
        folded |= mine
    for stmt in walk(function.body):
        if isinstance(stmt, For | While) and stmt.stop is not None:
            _keep_stop(stmt, stmt.body.yields[stmt.stop], folded)
    return folded


def _keep_stop(loop: For | While, stop: Atom, folded: Folded) -> None:
    """What ends a loop is tested after the carried values are assigned: it must not read the old ones."""
    changed = {var for var, value in zip(loop.carries, loop.body.yields, strict=True) if value is not var}
    if isinstance(stop, Var) and not changed.isdisjoint(leaves(stop, folded)):
        folded.pop(stop, None)


def hint_of(out: Var, stmt: Stmt | None = None) -> str:
    """The name that a user would know a value by; an element read is not the array it is read from."""
    is_array = isinstance(stmt, Load) and out.hint == stmt.array.hint
    hint = out.hint.replace(".", "_")  # the leaves of a struct: p.mass
    return hint if hint.isidentifier() and not is_array else ""


def operands(stmt: Stmt) -> tuple[Atom, ...]:
    """What the printed line of a statement reads, with what a folded choice yields."""
    return (*atoms(stmt), *(atom for block in blocks(stmt) for atom in block.yields))


def leaves(atom: Atom, folded: Folded) -> Iterator[Var]:
    """The Vars by name that an atom's printed expression reads."""
    if not isinstance(atom, Var):
        return
    stmt = folded.get(atom)
    if stmt is None:
        yield atom
        return
    for inner in operands(stmt):
        yield from leaves(inner, folded)


def _all_blocks(block: Block) -> Iterator[Block]:
    yield block
    for stmt in walk(block):
        yield from blocks(stmt)


def _is_small_index(stmt: Stmt) -> TypeGuard[Let]:
    """``i + 1``, ``j - n``: shorter to say again than to name."""
    if not isinstance(stmt, Let) or hint_of(stmt.out) or stmt.op.symbol not in ("+", "-"):
        return False
    is_integer = isinstance(stmt.out.type, Scalar) and stmt.out.type.is_int
    return is_integer and all(not isinstance(arg, Var) or hint_of(arg) for arg in stmt.args)


def _chooses(stmt: Stmt, folded: Folded) -> TypeGuard[If]:
    """Whether an If is ``a if c else b``, or ``and`` and ``or``: its branches fold into what they yield."""
    if not isinstance(stmt, If) or len(stmt.outs) != 1:
        return False
    return all(defs(inner) and defs(inner)[0] in folded for block in blocks(stmt) for inner in block.stmts)


def _is_flag(stmt: Stmt) -> bool:
    """``True if c else False``, whatever it is called."""
    return isinstance(stmt, If) and {type(a) for b in blocks(stmt) for a in b.yields} == {Const}


def _candidates(block: Block, once: set[Atom], nameless: frozenset[Var], folded: Folded) -> Folded:
    used_at = _places(block)
    mine: Folded = {}
    for stmt in block.stmts:
        if isinstance(stmt, Let | Load) or _chooses(stmt, folded):
            (out,) = defs(stmt)
            unnamed = out in nameless or _is_flag(stmt) or not hint_of(out, stmt)
            if unnamed and out in once and out in used_at:
                mine[out] = stmt
    return mine


def _places(block: Block) -> dict[Atom, int]:
    """Where in the block itself each atom is read; the yields come after the last statement."""
    places: dict[Atom, int] = {}
    for position, stmt in enumerate(block.stmts):
        places |= dict.fromkeys(atoms(stmt), position)
    return places | dict.fromkeys(block.yields, len(block.stmts))


def _keep_lines_short(block: Block, mine: Folded, folded: Folded, width: dict[Atom, int]) -> None:
    """Give the widest operands lines of their own until the rest fits one."""
    for stmt in block.stmts:
        chosen = next((out for out in defs(stmt) if out in mine), None) if isinstance(stmt, If) else None
        parts = atoms(stmt) if chosen is None else operands(stmt)
        around = _width_around(stmt)
        for atom in sorted(set(parts), key=lambda atom: -width.get(atom, 0)):
            if around + sum(_width(part, mine, folded, width) for part in parts) <= WIDTH:
                break
            if isinstance(atom, Var):
                mine.pop(atom, None)
        total = around + sum(_width(part, mine, folded, width) for part in parts)
        if total > WIDTH and chosen is not None:
            mine.pop(chosen)
        width |= dict.fromkeys(defs(stmt), total)


def _width(atom: Atom, mine: Folded, folded: Folded, width: dict[Atom, int]) -> int:
    if atom in mine or atom in folded:
        return width.get(atom, 5)
    return len(atom.hint) or 3 if isinstance(atom, Var) else 3


def _width_around(stmt: Stmt) -> int:
    match stmt:
        case Let(_, op, args):
            return 3 * (len(args) - 1) if op.symbol else len(op.name) + 2 * len(args)
        case _:
            return 4


def _keep_what_is_overwritten(block: Block, mine: Folded) -> None:
    """A read moves to where it is printed only if nothing on the way writes its array."""
    used_at = _places(block)
    printed_at: dict[Var, int] = {}
    for position, stmt in reversed(list(enumerate(block.stmts))):
        for out in [out for out in defs(stmt) if out in mine]:
            place = used_at[out]
            consumer = defs(block.stmts[place]) if place < len(block.stmts) else ()
            printed_at[out] = max([place, *(printed_at[var] for var in consumer if var in mine)])
            between = block.stmts[position + 1 : printed_at[out]]
            if _loaded(stmt) & {array for other in between for array in _changed(other)}:
                del mine[out]


def _within(stmt: Stmt) -> list[Stmt]:
    """A statement, and those in its blocks."""
    return [stmt, *(inner for block in blocks(stmt) for inner in walk(block))]


def _loaded(stmt: Stmt) -> set[Var]:
    """The arrays that a statement, with the blocks in it, reads."""
    return {inner.array for inner in _within(stmt) if isinstance(inner, Load)}


def _changed(stmt: Stmt) -> set[Var]:
    """The arrays that a statement, with the blocks in it, writes."""
    inner = _within(stmt)
    natives = {array for each in inner if isinstance(each, Native) for array in each.changed}
    return natives | {each.array for each in inner if isinstance(each, Store | Atomic)}


# ------------------------------------------------------------------------------------------------ reordering


def tidy(function: Function) -> Function:
    """The same function with what its loops save first, and what ends them last, where that can be."""
    return replace(function, body=_block(function.body))


def _block(block: Block) -> Block:
    return Block(tuple(_stmt(stmt) for stmt in block.stmts), block.yields)


def _stmt(stmt: Stmt) -> Stmt:
    if isinstance(stmt, If):
        return replace(stmt, then=_block(stmt.then), orelse=_block(stmt.orelse))
    if not isinstance(stmt, For | While):
        return stmt
    body = _saving_first(_block(stmt.body), stmt.carries)
    return replace(stmt, body=body if stmt.stop is None else _with_last(body, body.yields[stmt.stop]))


def _saving_first(body: Block, carries: tuple[Var, ...]) -> Block:
    """Saves and restores keep their order among themselves; the first may go before all else."""
    for position, stmt in enumerate(body.stmts):
        if isinstance(stmt, Save) and set(stmt.atoms) <= set(carries):
            return Block((stmt, *body.stmts[:position], *body.stmts[position + 1 :]), body.yields)
        if any(isinstance(inner, Save | Restore) for inner in _reordering_within(stmt)):
            return body
    return body


def _reordering_within(stmt: Stmt) -> list[Stmt]:
    return [stmt, *(inner for block in blocks(stmt) for inner in walk(block))]


def _with_last(body: Block, stop: object) -> Block:
    for position, stmt in enumerate(body.stmts):
        after = body.stmts[position + 1 :]
        if isinstance(stmt, If) and stop in stmt.outs and _can_wait(stmt, after):
            return Block((*body.stmts[:position], *after, stmt), body.yields)
    return body


def _can_wait(choice: If, after: tuple[Stmt, ...]) -> bool:
    inner = _reordering_within(choice)
    read: set[object] = {atom for stmt in after for atom in atoms(stmt)}
    if not all(isinstance(stmt, Let | Load | If) for stmt in inner) or not read.isdisjoint(choice.outs):
        return False
    return all(isinstance(stmt, Let | Save) for stmt in after)


# ------------------------------------------------------------------------------------------------ coalescing


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
