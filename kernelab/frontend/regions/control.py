"""Lowers branches and loops to regions of IR, whose values leave only through their outs.

    if c: x = a            x1 = if c: yield a else: yield x0
    for ...: x = x + 1     x1 = for ... carry x = x0: yield x + 1

The bodies come as functions, so this module knows nothing of statements.
"""

import ast
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field

from kernelab.errors import Diagnostic, Span
from kernelab.frontend.meaning import array_views
from kernelab.frontend.meaning.frame import Frame, Mistake, Wish
from kernelab.frontend.meaning.meanings import (
    ArrayRef,
    Meaning,
    Origin,
    Poison,
    StructArrayRef,
    TupleOf,
    Typed,
    View,
    Weak,
)
from kernelab.frontend.meaning.promote import cast, default_scalar
from kernelab.frontend.regions.changing import may_differ
from kernelab.frontend.regions.joins import (
    RETURNED,
    Joined,
    Side,
    Slot,
    Slots,
    ViewSlots,
    fill,
    item_sides,
    join,
    mixed,
    same,
    view_sides,
)
from kernelab.frontend.syntax.jumps import LEFT, Jump
from kernelab.lang.build import FALSE, TRUE, zero
from kernelab.lang.ir import Assert, Atom, Block, For, If, Stmt, Storage, Var, While
from kernelab.lang.types import Scalar, Value, bool_, float32

WATCH = "%set "
"""Before the name of a loop's index: the variable that says whether the index is set."""
BREAK, CONTINUE, RETURN = "%break", "%continue", "%return"
THE_VALUE = "the value"
"""The name under which the two sides of a ternary meet, as a message says it."""
FLAGS: dict[Jump, str] = {"break": BREAK, "continue": CONTINUE, "return": RETURN}
_HINTS = {BREAK: "stop", CONTINUE: "skip", RETURN: "done", RETURNED: "result", THE_VALUE: ""}

Body = Callable[[], None]


def hint_of(name: str) -> str:
    """The name that the IR shows for a variable."""
    if name.startswith(LEFT):
        return "left"
    return f"{name.removeprefix(WATCH)}_set" if name.startswith(WATCH) else _HINTS.get(name, name)


def truth(meaning: Meaning | None) -> Atom:
    """A jump's flag as an atom; unset is false."""
    match meaning:
        case Weak(number):
            return TRUE if number else FALSE
        case Typed(atom):
            return atom
        case _:
            return FALSE


@dataclass(frozen=True, slots=True)
class _Way:
    """One way through an `if`: its statements and the variables at its end."""

    stmts: list[Stmt]
    env: dict[str, Meaning]
    set_at: dict[str, Span]

    def side(self, name: str) -> Side:
        # A flag that nobody has set, or that was dropped where nobody read it, is false.
        unset = Weak(False) if name in FLAGS.values() or name.startswith(WATCH) else None
        return Side(self.env.get(name, unset), self.set_at.get(name))


def branch(frame: Frame, key: Hashable, cond: Atom, then: Body, orelse: Body, live: Collection[str]) -> None:
    """An `If`; of the variables that its sides change, those in `live` are merged and the others forgotten.

    `key` tells this branch from all others of the def, also when the def is lowered again.
    """
    ways = [_way(frame, body) for body in (then, orelse)]
    names = dict.fromkeys(
        name for way in ways for name in way.env if not same(way.env[name], frame.env.get(name))
    )
    slots: list[Slot] = []
    fills: list[list[Atom]] = [[], []]
    meanings: dict[str, Joined] = {}
    for name in names:
        if name.removeprefix(WATCH) not in live:
            frame.env.pop(name, None)
            continue
        sides = [way.side(name) for way in ways]
        try:
            meanings[name] = join(frame, (key, name), name, sides)
            _fill(frame, meanings[name], sides, ways, slots, fills)
        except Mistake as mistake:
            frame.report(mistake.diagnostic)
            meanings[name] = Poison()
    outs = tuple(Var(slot.type, hint_of(slot.name), frame.builder.span) for slot in slots)
    yes, no = (Block(tuple(way.stmts), tuple(atoms)) for way, atoms in zip(ways, fills, strict=True))
    if outs or yes.stmts or no.stmts:
        frame.builder.emit(If(outs, cond, yes, no, frame.builder.span))
    remaining = list(outs)
    for name, joined in meanings.items():
        frame.env[name] = _leave(joined, remaining)
        spans = [way.set_at[name] for way in ways if name in way.set_at]
        if spans:
            frame.set_at[name] = spans[0]


def _way(frame: Frame, body: Body) -> _Way:
    with frame.builder.block() as block, frame.branch():
        body()
        return _Way(block.stmts, frame.env, frame.set_at)


def _fill(
    frame: Frame,
    joined: Joined,
    sides: Sequence[Side],
    ways: Sequence[_Way],
    slots: list[Slot],
    fills: list[list[Atom]],
) -> None:
    match joined:
        case Slot():
            atoms = []
            strong = [s for s in sides if isinstance(s.value, Typed) and not s.value.is_weak]
            for side, way in zip(sides, ways, strict=True):
                against = next((other for other in strong if other is not side), None)
                with frame.builder.block() as tail:
                    atoms.append(fill(frame, joined, side, against))
                way.stmts.extend(tail.stmts)
            slots.append(joined)
            for atom, column in zip(atoms, fills, strict=True):
                column.append(atom)
        case ViewSlots(_, items):
            columns = [view_sides(side, len(items)) for side in sides]
            for item, pair in zip(items, zip(*columns, strict=True), strict=True):
                _fill(frame, item, pair, ways, slots, fills)
        case Slots(items):
            for k, item in enumerate(items):
                _fill(frame, item, item_sides(sides, k), ways, slots, fills)


def _leave(joined: Joined, outs: list[Var]) -> Meaning:
    match joined:
        case Slot():
            return joined.filled(outs.pop(0))
        case ViewSlots(view, items):
            return array_views.with_atoms(view, [_atom(_leave(item, outs)) for item in items])
        case Slots(items, form):
            return form.of(_leave(item, outs) for item in items)
        case _:
            return joined


def _atom(meaning: Meaning) -> Atom:
    assert isinstance(meaning, Typed)
    return meaning.atom


@dataclass(slots=True)
class _Carries:
    """The carried values of a loop, one entry for each scalar, vector or matrix."""

    vars: list[Var] = field(default_factory=list)
    inits: list[Atom] = field(default_factory=list)
    yields: list[Atom] = field(default_factory=list)
    slots: dict[Var, Slot] = field(default_factory=dict)

    def open(self, slot: Slot, init: Atom, span: Span) -> Typed:
        """A variable that has a value before the loop."""
        var = Var(slot.type, hint_of(slot.name), span)
        self.vars.append(var)
        self.inits.append(init)
        self.slots[var] = slot
        return slot.filled(var)

    def keep(self, opened: Meaning) -> None:
        """Yield what was carried in."""
        match opened:
            case Typed(Var() as var) if var in self.slots:
                self.yields.append(var)
            case TupleOf(items):
                for item in items:
                    self.keep(item)
            case ArrayRef() | View():
                for atom in array_views.atoms(opened):
                    self.keep(Typed(atom))

    def flag(self, value: Atom, name: str) -> int | None:
        """Carry a flag that starts false in each iteration; None if it never is anything else."""
        if value == FALSE:
            return None
        self.vars.append(Var(bool_, hint_of(name)))
        self.inits.append(FALSE)
        self.yields.append(value)
        return len(self.vars) - 1


@dataclass(frozen=True, slots=True)
class LoopHead:
    """The index and count of a loop, and its storage; without a count it ends only by a jump."""

    index: Var
    count: Atom
    storage: Storage | None = None


def loop(
    frame: Frame,
    node: ast.For | ast.While,
    head: LoopHead | None,
    body: Body,
    names: Sequence[str],
    jumps: Collection[Jump],
) -> None:
    """A loop over `body` that carries `names`; `jumps` are the kinds of jump in its body."""
    carries, before = _Carries(), set(frame.locals)
    entry = {name: Side(frame.env[name], frame.set_at.get(name)) for name in names if name in frame.env}
    opened = {name: _open(frame, (id(node), name), name, side, carries) for name, side in entry.items()}
    with frame.builder.block() as block, frame.branch():
        frame.env |= opened
        frame.env |= {BREAK: Weak(False), CONTINUE: Weak(False), RETURN: Weak(False)}
        body()
        after: dict[str, Meaning | None] = {
            name: _close(frame, opened[name], entry[name], _side(frame, name), carries) for name in opened
        }
        made = frame.locals - before
        after |= {
            name: _first_set(_side(frame, name).value, name, carries, made)
            for name in names
            if name not in opened
        }
        returned = truth(frame.env.get(RETURN)) if "return" in jumps else FALSE
        stop = frame.builder.apply("or", truth(frame.env.get(BREAK)), returned)
        set_at = frame.set_at
    if head is None and stop == FALSE:
        raise Mistake(
            Diagnostic(
                "this loop never ends",
                frame.places.first_line(node),
                "value",
                hint="leave it with break or return, or give it a condition",
            )
        )
    if head is None and stop != TRUE and not may_differ(stop, block.stmts, carries.vars, carries.yields):
        message = "this loop never ends: nothing in it changes its condition"
        block.stmts.append(Assert(stop, "assertion", message, frame.places.first_line(node)))
    flag = carries.flag(stop, RETURN if returned == stop else BREAK)
    done = flag if returned == stop else carries.flag(returned, RETURN)
    outs = tuple(Var(var.type, var.hint, frame.builder.span) for var in carries.vars)
    frame.builder.emit(_statement(frame, head, outs, carries, flag, block.close(*carries.yields)))
    by_carry = dict(zip(carries.vars, outs, strict=True))
    frame.env |= {name: _outside(meaning, by_carry) for name, meaning in after.items() if meaning is not None}
    frame.set_at |= {name: span for name, span in set_at.items() if name in names}
    if "return" in jumps:
        frame.env[RETURN] = Weak(False) if done is None else Typed(outs[done])


def _side(frame: Frame, name: str) -> Side:
    return Side(frame.env.get(name), frame.set_at.get(name))


def _statement(
    frame: Frame,
    head: LoopHead | None,
    outs: tuple[Var, ...],
    carries: _Carries,
    stop: int | None,
    body: Block,
) -> For | While:
    vars, inits, span = tuple(carries.vars), tuple(carries.inits), frame.builder.span
    if head is not None:
        return For(outs, head.index, head.count, vars, inits, body, span, stop=stop, storage=head.storage)
    assert stop is not None
    return While(outs, vars, inits, stop, body, span)


def _open(frame: Frame, origin: Origin, name: str, side: Side, carries: _Carries) -> Meaning:
    """A variable as the body sees it at the start of an iteration."""
    match side.value:
        case TupleOf(items) as whole:
            return whole.of(
                _open(frame, (*origin, k), whole.label(name, k), Side(item, side.span), carries)
                for k, item in enumerate(items)
            )
        case ArrayRef() | View() as view:
            opened = [
                _open(frame, (*origin, k), name, part, carries) for k, part in enumerate(view_sides(side, 0))
            ]
            return array_views.with_atoms(view, [_atom(item) for item in opened])
        case Weak() | Typed() as value:
            slot = _carried_slot(frame, origin, name, value)
            return carries.open(slot, fill(frame, slot, side), side.span or frame.builder.span)
        case value:
            assert value is not None
            return value


def _carried_slot(frame: Frame, origin: Origin, name: str, value: Weak | Typed) -> Slot:
    if isinstance(value, Typed) and not value.is_weak:
        return Slot(name, value.type, origin, False)
    wish = frame.wishes.granted.get(origin)
    if wish is not None:
        return Slot(name, wish.scalar, origin, wish.weak)
    type: Value = value.type if isinstance(value, Typed) else default_scalar(value.number)
    return Slot(name, type, origin, type != bool_)


def _close(frame: Frame, opened: Meaning, entry: Side, end: Side, carries: _Carries) -> Meaning:
    """A carried variable after an iteration: yields its value, converted to what the loop carries."""
    try:
        return _closed(frame, opened, entry, end, carries)
    except Mistake as mistake:
        frame.report(mistake.diagnostic)
        return Poison()


def _closed(frame: Frame, opened: Meaning, entry: Side, end: Side, carries: _Carries) -> Meaning:
    match opened, end.value:
        case (Poison(), _) | (_, Poison()):
            carries.keep(opened)
            return Poison()
        case TupleOf(items, struct) as whole, TupleOf(ends, other) if (
            len(items) == len(ends) and struct == other and isinstance(entry.value, TupleOf)
        ):
            return whole.of(
                [
                    _closed(frame, item, Side(start, entry.span), Side(last, end.span), carries)
                    for item, start, last in zip(items, entry.value.items, ends, strict=True)
                ]
            )
        case ArrayRef() | View() as view, end_view if array_views.alike(view, end_view):
            given = [Typed(atom) for atom in array_views.atoms(view)]
            befores, afters = view_sides(entry, 0), view_sides(end, 0)
            closed = [
                _closed(frame, item, start, last, carries)
                for item, start, last in zip(given, befores, afters, strict=True)
            ]
            return array_views.with_atoms(view, [_atom(item) for item in closed])
        case Typed(Var() as var), Weak() | Typed():
            try:
                carries.yields.append(_yielded(frame, carries.slots[var], entry, end))
            except Mistake:
                carries.keep(opened)
                raise
            return opened
        case _ if same(opened, end.value):
            carries.keep(opened)
            return opened
        case _:
            carries.keep(opened)
            raise mixed(slot_name(opened, carries), [entry, end])


def slot_name(opened: Meaning, carries: _Carries) -> str:
    """The name of a carried variable, for a message."""
    return (
        carries.slots[opened.atom].name
        if isinstance(opened, Typed) and isinstance(opened.atom, Var)
        else "the variable"
    )


def _yielded(frame: Frame, slot: Slot, entry: Side, end: Side) -> Atom:
    value, type = end.value, slot.type
    if not slot.weak or not isinstance(type, Scalar):
        return fill(frame, slot, end, entry)
    match value:
        case Weak(float()) if type.is_int:
            frame.wishes.ask(frozenset({slot.origin}), Wish(float32, True))
            return zero(type)
        case Typed(atom) if isinstance(atom.type, Scalar) and atom.type not in (type, bool_):
            if not (type.is_float and atom.type.is_int):
                frame.wishes.ask(frozenset({slot.origin}), Wish(atom.type, value.is_weak))
            # A trial: the next attempt carries the wider type.
            return cast(frame, atom, type)
        case _:
            return fill(frame, slot, end, entry)


def _made_in_a_loop(name: str, var: Var) -> Diagnostic:
    message = f"the local array {name} is made inside of a loop and used after it"
    return Diagnostic(message, var.span, "type", hint="make it before the loop")


def _first_set(value: Meaning | None, name: str, carries: _Carries, made: Collection[Var]) -> Meaning | None:
    """A variable that is first set inside a loop: what the last iteration leaves."""
    match value:
        case TupleOf(items) as whole:
            parts = (_first_set(item, whole.label(name, k), carries, made) for k, item in enumerate(items))
            return whole.of(item for item in parts if item is not None)
        case StructArrayRef(indices=(index, *_)):
            message = f"{name} is a row of {value.name} that a loop takes: it cannot be used after the loop"
            span = index.span if isinstance(index, Var) else None
            raise Mistake(Diagnostic(message, span, "type", hint="take the row again where it is used"))
        case ArrayRef() | View() if value.var in made:
            raise Mistake(_made_in_a_loop(name, value.var))
        case ArrayRef() | View():
            found = [_first_set(Typed(atom), "", carries, made) for atom in array_views.atoms(value)]
            return array_views.with_atoms(value, [_atom(item) for item in found if item is not None])
        case Typed(atom, origins) if isinstance(atom, Var):
            var = Var(value.type, hint_of(name), atom.span)
            carries.vars.append(var)
            carries.inits.append(zero(value.type))
            carries.yields.append(atom)
            return Typed(var, origins)
        case _:
            return value


def _outside(meaning: Meaning, outs: dict[Var, Var]) -> Meaning:
    match meaning:
        case Typed(Var() as var, origins):
            return Typed(outs.get(var, var), origins)
        case TupleOf(items) as whole:
            return whole.of(_outside(item, outs) for item in items)
        case ArrayRef() | View():
            moved = [_outside(Typed(atom), outs) for atom in array_views.atoms(meaning)]
            return array_views.with_atoms(meaning, [_atom(item) for item in moved])
        case _:
            return meaning
