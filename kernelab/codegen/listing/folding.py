"""Folding of IR for a listing: nests single-use values in expressions and lets values share names."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import TypeGuard

from kernelab.lang import ir
from kernelab.lang.show import Names
from kernelab.lang.types import Array, Scalar

WIDTH = 66
"""The approximate limit of the characters of an expression."""

Folded = dict[ir.Var, ir.Let | ir.Load | ir.If]
"""The statement behind each Var that is printed where it is used; an `If` only chooses between two values."""


def fold(function: ir.Function, nameless: frozenset[ir.Var] = frozenset()) -> Folded:
    """The folded Vars of a function; one of `nameless` counts as one that the user gave no name."""
    once = {atom for atom, count in Counter(ir.reads(function.body)).items() if count == 1}
    folded: Folded = {stmt.out: stmt for stmt in ir.walk(function.body) if _is_small_index(stmt)}
    width: dict[ir.Atom, int] = {}
    inner = (block for stmt in ir.walk(function.body) for block in ir.blocks(stmt))
    for block in reversed([function.body, *inner]):
        mine = _candidates(block, once, nameless, folded)
        _keep_lines_short(block, mine, folded, width)
        _keep_what_is_overwritten(block, mine)
        folded |= mine
    for stmt in ir.walk(function.body):
        if isinstance(stmt, ir.For | ir.While) and stmt.stop is not None:
            # A stop that reads old carried values is tested after the new ones are assigned.
            stop, pairs = stmt.body.yields[stmt.stop], zip(stmt.carries, stmt.body.yields, strict=True)
            changed = {var for var, value in pairs if value is not var}
            if isinstance(stop, ir.Var) and not changed.isdisjoint(leaves(stop, folded)):
                folded.pop(stop, None)
    return folded


def hint_of(out: ir.Var, stmt: ir.Stmt | None = None) -> str:
    """The name that a user would know a value by; an element read is not the array it is read from."""
    is_array = isinstance(stmt, ir.Load) and out.hint == stmt.array.hint
    hint = out.hint.replace(".", "_")  # the leaves of a struct: p.mass
    return hint if hint.isidentifier() and not is_array else ""


def operands(stmt: ir.Stmt) -> tuple[ir.Atom, ...]:
    """The atoms that the printed line of a statement reads, with the yields of a folded choice."""
    return (*ir.atoms(stmt), *(atom for block in ir.blocks(stmt) for atom in block.yields))


def leaves(atom: ir.Atom, folded: Folded) -> Iterator[ir.Var]:
    """The Vars by name that an atom's printed expression reads."""
    if not isinstance(atom, ir.Var):
        return
    stmt = folded.get(atom)
    if stmt is None:
        yield atom
        return
    for inner in operands(stmt):
        yield from leaves(inner, folded)


def _is_small_index(stmt: ir.Stmt) -> TypeGuard[ir.Let]:
    """``i + 1``, ``j - n``: shorter to say again than to name."""
    if not isinstance(stmt, ir.Let) or hint_of(stmt.out) or stmt.op.symbol not in ("+", "-"):
        return False
    is_integer = isinstance(stmt.out.type, Scalar) and stmt.out.type.is_int
    return is_integer and all(not isinstance(arg, ir.Var) or hint_of(arg) for arg in stmt.args)


def _chooses(stmt: ir.Stmt, folded: Folded) -> TypeGuard[ir.If]:
    """Whether an If is ``a if c else b``, or ``and`` and ``or``: its branches fold into what they yield."""
    if not isinstance(stmt, ir.If) or len(stmt.outs) != 1:
        return False
    inner = (ir.defs(inner) for block in ir.blocks(stmt) for inner in block.stmts)
    return all(outs and outs[0] in folded for outs in inner)


def _candidates(block: ir.Block, once: set[ir.Atom], nameless: frozenset[ir.Var], folded: Folded) -> Folded:
    used_at = _places(block)
    candidates: Folded = {}
    for stmt in block.stmts:
        if isinstance(stmt, ir.Let | ir.Load) or _chooses(stmt, folded):
            (out,) = ir.defs(stmt)
            yields = {type(atom) for inner in ir.blocks(stmt) for atom in inner.yields}
            is_flag = yields == {ir.Const}  # ``True if c else False``, whatever it is called
            unnamed = out in nameless or is_flag or not hint_of(out, stmt)
            if unnamed and out in once and out in used_at:
                candidates[out] = stmt
    return candidates


def _places(block: ir.Block) -> dict[ir.Atom, int]:
    """The last position at which each atom is read in the block itself; yields follow the last statement."""
    places: dict[ir.Atom, int] = {}
    for position, stmt in enumerate(block.stmts):
        places |= dict.fromkeys(ir.atoms(stmt), position)
    return places | dict.fromkeys(block.yields, len(block.stmts))


def _keep_lines_short(block: ir.Block, mine: Folded, folded: Folded, width: dict[ir.Atom, int]) -> None:
    """Give the widest operands lines of their own until the rest fits one."""
    for stmt in block.stmts:
        choices = ir.defs(stmt) if isinstance(stmt, ir.If) else ()
        chosen = next((out for out in choices if out in mine), None)
        parts = ir.atoms(stmt) if chosen is None else operands(stmt)
        around = 4  # the width of what stands around the operands
        if isinstance(stmt, ir.Let):
            count = len(stmt.args)
            around = 3 * (count - 1) if stmt.op.symbol else len(stmt.op.name) + 2 * count
        for atom in sorted(set(parts), key=lambda atom: -width.get(atom, 0)):
            if around + sum(_width(part, mine, folded, width) for part in parts) <= WIDTH:
                break
            if isinstance(atom, ir.Var):
                mine.pop(atom, None)
        total = around + sum(_width(part, mine, folded, width) for part in parts)
        if total > WIDTH and chosen is not None:
            mine.pop(chosen)
        width |= dict.fromkeys(ir.defs(stmt), total)


def _width(atom: ir.Atom, mine: Folded, folded: Folded, width: dict[ir.Atom, int]) -> int:
    if atom in mine or atom in folded:
        return width.get(atom, 5)
    return len(atom.hint) or 3 if isinstance(atom, ir.Var) else 3


def _keep_what_is_overwritten(block: ir.Block, mine: Folded) -> None:
    """A read moves to where it is printed only if nothing on the way writes its array."""
    used_at = _places(block)
    written_at = _written_at(block)
    printed_at: dict[ir.Var, int] = {}
    for position, stmt in reversed(list(enumerate(block.stmts))):
        for out in [out for out in ir.defs(stmt) if out in mine]:
            place = used_at[out]
            consumer = ir.defs(block.stmts[place]) if place < len(block.stmts) else ()
            printed_at[out] = max([place, *(printed_at[var] for var in consumer if var in mine)])
            loaded = {inner.array for inner in ir.within(stmt) if isinstance(inner, ir.Load)}
            between = position + 1, printed_at[out]
            if any(_has_between(written_at[array], *between) for array in loaded & written_at.keys()):
                del mine[out]


def _written_at(block: ir.Block) -> dict[ir.Var, list[int]]:
    """The positions at which each array is written, in the blocks of the statement there too."""
    places = defaultdict[ir.Var, list[int]](list)
    for position, stmt in enumerate(block.stmts):
        for array in {array for inner in ir.within(stmt) for array in ir.changed(inner)}:
            places[array].append(position)
    return places


def _has_between(places: list[int], start: int, stop: int) -> bool:
    first = bisect_left(places, start)
    return first < len(places) and places[first] < stop


# ------------------------------------------------------------------------------------------------ reordering


def tidy(function: ir.Function) -> ir.Function:
    """The same function with what its loops save first, and what ends them last, where that can be."""
    return replace(function, body=_block(function.body))


def _block(block: ir.Block) -> ir.Block:
    return ir.Block(tuple(_stmt(stmt) for stmt in block.stmts), block.yields)


def _stmt(stmt: ir.Stmt) -> ir.Stmt:
    if isinstance(stmt, ir.If):
        return replace(stmt, then=_block(stmt.then), orelse=_block(stmt.orelse))
    if not isinstance(stmt, ir.For | ir.While):
        return stmt
    body = _saving_first(_block(stmt.body), stmt.carries)
    return replace(stmt, body=body if stmt.stop is None else _with_last(body, body.yields[stmt.stop]))


def _saving_first(body: ir.Block, carries: tuple[ir.Var, ...]) -> ir.Block:
    """Saves and restores keep their order among themselves; the first may go before all else."""
    for position, stmt in enumerate(body.stmts):
        if isinstance(stmt, ir.Save) and set(stmt.atoms) <= set(carries):
            return ir.Block((stmt, *body.stmts[:position], *body.stmts[position + 1 :]), body.yields)
        if any(isinstance(inner, ir.Save | ir.Restore) for inner in ir.within(stmt)):
            return body
    return body


def _with_last(body: ir.Block, stop: object) -> ir.Block:
    for position, stmt in enumerate(body.stmts):
        after = body.stmts[position + 1 :]
        if not isinstance(stmt, ir.If) or stop not in stmt.outs:
            continue
        is_pure = all(isinstance(inner, ir.Let | ir.Load | ir.If) for inner in ir.within(stmt))
        read: set[object] = {atom for other in after for atom in ir.atoms(other)}
        can_wait = read.isdisjoint(stmt.outs) and all(isinstance(s, ir.Let | ir.Save) for s in after)
        if is_pure and can_wait:
            return ir.Block((*body.stmts[:position], *after, stmt), body.yields)
    return body


# ------------------------------------------------------------------------------------------------ coalescing


Live = int
"""A set of Vars as the bits of a number: unions of sets of thousands take no time."""

MOST_CLASSES = 64
"""How many classes of one name are tried for another Var; in longer kernels it gets a name of its own."""


def coalesce(function: ir.Function, folded: Folded, reserved: frozenset[str]) -> Callable[[ir.Var], str]:
    """The name of each Var of a function."""
    fixed = (*function.params, *function.threads, *([function.linear] if function.linear else []))
    interference = _Interference(folded)
    interference.assign(fixed, interference.block(function.body, 0))
    hints = {out: hint_of(out, stmt) for stmt in ir.walk(function.body) for out in ir.defs(stmt)}
    classes = _Classes(interference, hints)
    for stmt in ir.walk(function.body):
        for one, other in _copies(stmt):
            classes.merge(one, other)
    _reuse_names(fixed, function.body, classes)
    names = Names(reserved)
    labels = _labels(function.body)
    shown: dict[ir.Var, ir.Var] = {}

    def name(var: ir.Var) -> str:
        root = classes.of(var)
        stand_in = ir.Var(root.type, classes.hint(root) or labels.get(root, ""))
        return names(shown.setdefault(root, stand_in))

    for var in fixed:
        name(var)
    return name


def _labels(body: ir.Block) -> dict[ir.Var, str]:
    """Names for elements that have none of the user's: ``x_k`` for ``x[k]``."""
    labels = {}
    for stmt in ir.of_kind(body, ir.Load):
        parts = [str(i.value) if isinstance(i, ir.Const) else i.hint for i in stmt.indices]
        array = stmt.array.hint.replace(".", "_")
        labels[stmt.out] = "_".join([array, *parts]) if all(map(str.isalnum, parts)) else ""
    return labels


def split(function: ir.Function, name: Callable[[ir.Var], str]) -> frozenset[ir.Var]:
    """Values that are only moved into the variable whose name they bear, because both are needed at once."""
    pairs = (pair for stmt in ir.walk(function.body) for pair in _copies(stmt))
    return frozenset(
        value
        for target, value in pairs
        if isinstance(target, ir.Var) and isinstance(value, ir.Var)
        if hint_of(value) == hint_of(target) != "" and name(value) != name(target)
    )


def _copies(stmt: ir.Stmt) -> list[tuple[ir.Atom, ir.Atom]]:
    match stmt:
        case ir.If(outs, _, then, orelse):
            return [*zip(outs, then.yields, strict=True), *zip(outs, orelse.yields, strict=True)]
        case ir.For() | ir.While():
            pairs = (stmt.body.yields, stmt.outs, stmt.inits)
            return [pair for others in pairs for pair in zip(stmt.carries, others, strict=True)]
        case _:
            return []


def _reuse_names(fixed: tuple[ir.Var, ...], body: ir.Block, classes: "_Classes") -> None:
    """The user's `d = a` and, after the last use of that, `d = b` are one name again."""
    representatives: dict[str, list[ir.Var]] = {}
    for var in (*fixed, *ir.defined(body)):
        if not classes.hint(var) or isinstance(var.type, Array):
            continue
        same = representatives.setdefault(classes.hint(var), [])
        if not any(classes.merge(earlier, var) for earlier in same[:MOST_CLASSES]):
            same.append(var)


class _Interference:
    """The interference graph: `edges` has, for each Var, those that are live where it is assigned."""

    def __init__(self, folded: Folded) -> None:
        self.folded = folded
        self.edges: dict[ir.Var, Live] = {}
        self._bits: dict[ir.Var, Live] = {}

    def bit(self, var: ir.Var) -> Live:
        return self._bits.setdefault(var, 1 << len(self._bits))

    def set_of(self, vars: Iterable[ir.Var]) -> Live:
        return reduce(or_, map(self.bit, vars), 0)

    def read(self, items: Iterable[ir.Atom]) -> Live:
        return self.set_of(leaf for atom in items for leaf in leaves(atom, self.folded))

    def assign(self, outs: Iterable[ir.Var], live: Live) -> Live:
        """The outs are assigned together while `live` are still needed; what is live before that."""
        outs = tuple(outs)
        assigned = self.set_of(outs)
        for out in outs:
            self.edges[out] = self.edges.get(out, 0) | ((live | assigned) & ~self.bit(out))
        return live & ~assigned

    def block(self, block: ir.Block, live: Live) -> Live:
        live |= self.read(block.yields)
        for stmt in reversed(block.stmts):
            live = self.stmt(stmt, live)
        return live

    def stmt(self, stmt: ir.Stmt, live: Live) -> Live:
        if not self.folded.keys().isdisjoint(ir.defs(stmt)):
            return live
        match stmt:
            case ir.If(outs, cond, then, orelse):
                after = self.assign(outs, live)
                return self.block(then, after) | self.block(orelse, after) | self.read([cond])
            case ir.For() | ir.While():
                return self.loop(stmt, live)
            case _:
                return self.assign(ir.defs(stmt), live) | self.read(ir.atoms(stmt))

    def loop(self, stmt: ir.For | ir.While, live: Live) -> Live:
        heads = ir.entering(stmt)
        after = self.assign(stmt.outs, live)
        # Python counts a range once, but a reader would be misled if its name changed inside.
        count = self.read([stmt.count]) if isinstance(stmt, ir.For) else 0
        around = after | self.free(stmt.body, heads) | count
        index = self.bit(stmt.index) if isinstance(stmt, ir.For) else 0
        begin = self.block(stmt.body, around | index)
        before = self.assign(heads, begin | around)
        yields = stmt.body.yields
        # The stop of a loop is read after the carried values are assigned: they must not overwrite it.
        for leaf in () if stmt.stop is None else leaves(yields[stmt.stop], self.folded):
            others = (carry for carry, value in zip(stmt.carries, yields, strict=True) if value is not leaf)
            self.assign([leaf], self.set_of(others))
        return before | self.read(stmt.inits)

    def free(self, body: ir.Block, heads: tuple[ir.Var, ...]) -> Live:
        """The Vars that a body reads from outside: needed until the last iteration."""
        return self.read(ir.reads(body)) & ~self.set_of((*heads, *ir.defined(body)))


class _Classes:
    """The Vars that share a name: a union-find whose roots know the members, and whom these meet."""

    def __init__(self, interference: _Interference, hints: dict[ir.Var, str]) -> None:
        self.hints = hints
        self.parent: dict[ir.Var, ir.Var] = {}
        self.members = defaultdict[ir.Var, Live](int)
        self.edges = defaultdict[ir.Var, Live](int, interference.edges)
        self._bit = interference.bit

    def hint(self, var: ir.Var) -> str:
        """The user's name for a Var, empty if there is none."""
        return self.hints.get(var, hint_of(var))

    def of(self, var: ir.Var) -> ir.Var:
        """The Var that stands for the class."""
        while (parent := self.parent.get(var)) is not None:
            self.parent[var] = self.parent.get(parent, parent)  # the next search takes half of the steps
            var = parent
        return var

    def merge(self, one: ir.Atom, other: ir.Atom) -> bool:
        """Give two Vars one name if they can have it; whether they now do."""
        if not isinstance(one, ir.Var) or not isinstance(other, ir.Var):
            return False
        a, b = self.of(one), self.of(other)
        if a is b:
            return True
        hints = {self.hint(a), self.hint(b)} - {""}
        if len(hints) > 1 or self.clash(a, b):
            return False
        a, b = (a, b) if self.hint(a) else (b, a)
        self.parent[b] = a
        self.members[a] |= self.members[b] | self._bit(a) | self._bit(b)
        self.edges[a] |= self.edges[b]
        return True

    def clash(self, a: ir.Var, b: ir.Var) -> bool:
        mine, theirs = self.members[a] | self._bit(a), self.members[b] | self._bit(b)
        return bool(self.edges[a] & theirs or self.edges[b] & mine)
