"""Lowers branches and loops to regions of IR, whose values leave only through their outs.

    if c: x = a            x1 = if c: yield a else: yield x0
    for ...: x = x + 1     x1 = for ... carry x = x0: yield x + 1

The bodies come as functions, so this module knows nothing of statements.
"""

import ast
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence, Set

from kernelab.data_classes import dataclass, field
from kernelab.errors import Span
from kernelab.frontend.expressions.joins import (
    BREAK,
    CONTINUE,
    FLAGS,
    RETURN,
    WATCH,
    Meeting,
    Side,
    Slot,
    fill,
    hint_of,
    join,
    mapped,
    mixed,
    view_sides,
)
from kernelab.frontend.expressions.struct_values import atoms_of
from kernelab.frontend.meaning import array_views
from kernelab.frontend.meaning.frame import Frame, Mistake, WeakType
from kernelab.frontend.meaning.meanings import (
    ArrayRef,
    Meaning,
    Origin,
    Poison,
    StructArrayRef,
    TupleOf,
    Typed,
    Weak,
)
from kernelab.frontend.meaning.promote import cast
from kernelab.frontend.meaning.syntax_trees import Jump
from kernelab.lang.build import FALSE, TRUE, zero
from kernelab.lang.dependence import dependences, reached
from kernelab.lang.ir import (
    Assert,
    Atom,
    Atomic,
    Block,
    Call,
    For,
    If,
    Load,
    Native,
    Stmt,
    Storage,
    Var,
    While,
    called,
    changed,
    defs,
    walk,
)
from kernelab.lang.types import Scalar, bool_, float32

Body = Callable[[], None]


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
    names = dict.fromkeys(name for way in ways for name in way.env if way.env[name] != frame.env.get(name))
    outs: list[Var] = []
    fills: list[list[Atom]] = [[], []]
    for name in names:
        if name.removeprefix(WATCH) not in live:
            frame.env.pop(name, None)
            continue
        meetings: list[Meeting] = []
        try:
            frame.env[name] = join(frame, (key, name), name, [way.side(name) for way in ways], meetings)
            columns = [_fill(frame, meeting, ways) for meeting in meetings]
        except Mistake as mistake:
            frame.report(mistake.diagnostic)
            frame.env[name] = Poison()
        else:
            outs += [meeting.out for meeting in meetings]
            for k, atoms in enumerate(fills):
                atoms += [column[k] for column in columns]
        spans = [way.set_at[name] for way in ways if name in way.set_at]
        if spans:
            frame.set_at[name] = spans[0]
    yes, no = (Block(tuple(way.stmts), tuple(atoms)) for way, atoms in zip(ways, fills, strict=True))
    if outs or yes.stmts or no.stmts:
        frame.builder.emit(If(tuple(outs), cond, yes, no, frame.builder.span))


def _way(frame: Frame, body: Body) -> _Way:
    with frame.builder.block() as block, frame.branch():
        body()
        return _Way(block.stmts, frame.env, frame.set_at)


def _fill(frame: Frame, meeting: Meeting, ways: Sequence[_Way]) -> list[Atom]:
    """The value that each way yields; conversions stand at its end."""
    atoms = []
    strong = [s for s in meeting.sides if isinstance(s.value, Typed) and not s.value.is_weak]
    for side, way in zip(meeting.sides, ways, strict=True):
        against = next((other for other in strong if other is not side), None)
        with frame.builder.block() as tail:
            atoms.append(fill(frame, meeting.slot, side, against))
        way.stmts.extend(tail.stmts)
    return atoms


@dataclass(slots=True)
class _Carries:
    """The carried values of a loop, one entry for each scalar, vector or matrix."""

    vars: list[Var] = field(default_factory=list)
    inits: list[Atom] = field(default_factory=list)
    yields: list[Atom] = field(default_factory=list)
    slots: dict[Atom, Slot] = field(default_factory=dict)

    def open(self, slot: Slot, init: Atom, span: Span) -> Typed:
        """A variable that has a value before the loop."""
        var = Var(slot.type, hint_of(slot.name), span)
        self.vars.append(var)
        self.inits.append(init)
        self.slots[var] = slot
        return slot.filled(var)

    def keep(self, opened: Meaning) -> None:
        """Yield what was carried in."""
        self.yields += [atom for atom in atoms_of(opened) if atom in self.slots]

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
        after = {
            name: _close(
                frame, opened[name], entry[name], Side(frame.env.get(name), frame.set_at.get(name)), carries
            )
            for name in opened
        }
        own_arrays = frame.locals - before
        after |= {
            name: _first_set(frame.env[name], name, carries, own_arrays)
            for name in names
            if name not in opened and name in frame.env
        }
        returned = truth(frame.env.get(RETURN)) if "return" in jumps else FALSE
        stop = frame.builder.apply("or", truth(frame.env.get(BREAK)), returned)
        set_at = frame.set_at
    if head is None and stop == FALSE:
        hint = "change in it what its condition hangs on, or leave it with break or return"
        raise Mistake.of("this loop never ends", "value", hint, frame.places.first_line(node))
    if head is None and stop != TRUE and not _may_differ(stop, block.stmts, carries.vars, carries.yields):
        message = "this loop never ends: nothing in it changes its condition"
        block.stmts.append(Assert(stop, "assertion", message, frame.places.first_line(node)))
    flag = carries.flag(stop, RETURN if returned == stop else BREAK)
    done = flag if returned == stop else carries.flag(returned, RETURN)
    outs = tuple(Var(var.type, var.hint, frame.builder.span) for var in carries.vars)
    frame.builder.emit(_statement(frame, head, outs, carries, flag, block.close(*carries.yields)))
    by_carry: dict[Atom, Var] = dict(zip(carries.vars, outs, strict=True))
    frame.env |= {name: _outside(meaning, by_carry) for name, meaning in after.items()}
    frame.set_at |= {name: span for name, span in set_at.items() if name in names}
    if "return" in jumps:
        frame.env[RETURN] = Weak(False) if done is None else Typed(outs[done])


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

    def opened(value: Weak | Typed, origin: Origin, name: str) -> Typed:
        slot = _carried_slot(frame, origin, name, value)
        return carries.open(slot, fill(frame, slot, Side(value, side.span)), side.span or frame.builder.span)

    assert side.value is not None
    return mapped(side.value, origin, name, opened)


def _carried_slot(frame: Frame, origin: Origin, name: str, value: Weak | Typed) -> Slot:
    if isinstance(value, Typed) and not value.is_weak:
        return Slot(name, value.type, origin, False)
    weak_type = frame.weak_types.by_origin.get(origin)
    if weak_type is not None:
        return Slot(name, weak_type.scalar, origin, weak_type.weak)
    return Slot(name, value.type, origin, value.type != bool_)


def _close(frame: Frame, opened: Meaning, entry: Side, end: Side, carries: _Carries) -> Meaning:
    """A carried variable after an iteration: yields its values, converted to what the loop carries."""
    try:
        sound = [_close_part(frame, *part, carries) for part in _parts(opened, entry, end)]
    except Mistake as mistake:
        frame.report(mistake.diagnostic)
        return Poison()
    return opened if all(sound) else Poison()


def _parts(opened: Meaning, entry: Side, end: Side) -> Iterator[tuple[Meaning, Side, Side]]:
    """The parts of a carried variable, each with its values before the loop and after the body."""
    match opened, end.value:
        case TupleOf(items, struct), TupleOf(ends, other) if (
            len(items) == len(ends) and struct == other and isinstance(entry.value, TupleOf)
        ):
            for item, start, last in zip(items, entry.value.items, ends, strict=True):
                yield from _parts(item, Side(start, entry.span), Side(last, end.span))
        case (ArrayRef()) as view, after if array_views.alike(view, after):
            yield from zip(map(Typed, view.atoms), view_sides(entry, 0), view_sides(end, 0), strict=True)
        case _:
            yield opened, entry, end


def _close_part(frame: Frame, opened: Meaning, entry: Side, end: Side, carries: _Carries) -> bool:
    """Yield a part of a carried variable; False where it depends on a mistake that has been reported."""
    slot = carries.slots.get(opened.atom) if isinstance(opened, Typed) else None
    if slot is not None and isinstance(end.value, Weak | Typed):
        try:
            carries.yields.append(_yielded(frame, slot, entry, end))
        except Mistake:
            carries.keep(opened)
            raise
        return True
    carries.keep(opened)
    if isinstance(opened, Poison) or isinstance(end.value, Poison):
        return False
    if opened != end.value:
        raise mixed("the variable" if slot is None else slot.name, [entry, end])
    return True


def _yielded(frame: Frame, slot: Slot, entry: Side, end: Side) -> Atom:
    value, type = end.value, slot.type
    if not slot.weak or not isinstance(type, Scalar):
        return fill(frame, slot, end, entry)
    match value:
        case Weak(float()) if type.is_int:
            frame.weak_types.require(frozenset({slot.origin}), WeakType(float32, True))
            return zero(type)
        case Typed(atom) if isinstance(atom.type, Scalar) and atom.type not in (type, bool_):
            if not (type.is_float and atom.type.is_int):
                frame.weak_types.require(frozenset({slot.origin}), WeakType(atom.type, value.is_weak))
            # A trial: the next attempt carries the wider type.
            return cast(frame, atom, type)
        case _:
            return fill(frame, slot, end, entry)


def _first_set(value: Meaning, name: str, carries: _Carries, own_arrays: Collection[Var]) -> Meaning:
    """A variable that is first set inside a loop: what the last iteration leaves."""
    _refuse_after_loop(value, name, own_arrays)

    def carried(value: Weak | Typed, origin: Origin, name: str) -> Weak | Typed:
        if isinstance(value, Weak) or not isinstance(value.atom, Var):
            return value
        var = Var(value.type, hint_of(name), value.atom.span)
        carries.vars.append(var)
        carries.inits.append(zero(value.type))
        carries.yields.append(value.atom)
        return Typed(var, value.origins)

    return mapped(value, (), name, carried)


def _refuse_after_loop(value: Meaning, name: str, own_arrays: Collection[Var]) -> None:
    """Raise Mistake where a value holds what ends with its loop: a local array or a row of structs."""
    match value:
        case TupleOf(items) as whole:
            for k, item in enumerate(items):
                _refuse_after_loop(item, whole.label(name, k), own_arrays)
        case StructArrayRef(indices=(index, *_)):
            message = f"{name} is a row of {value.name} that a loop takes: it cannot be used after the loop"
            span = index.span if isinstance(index, Var) else None
            raise Mistake.of(message, "type", "take the row again where it is used", span)
        case ArrayRef() if value.var in own_arrays:
            message = f"the local array {name} is made inside of a loop and used after it"
            raise Mistake.of(message, "type", "make it before the loop", value.var.span)


def _outside(meaning: Meaning, outs: Mapping[Atom, Var]) -> Meaning:
    def after(value: Weak | Typed, origin: Origin, name: str) -> Weak | Typed:
        return value if isinstance(value, Weak) else Typed(outs.get(value.atom, value.atom), value.origins)

    return mapped(meaning, (), "", after)


def _may_differ(atom: Atom, body: Sequence[Stmt], carries: Sequence[Var], yields: Sequence[Atom]) -> bool:
    """Whether what the body of a loop computes may be something else in a later iteration.

    What other threads write in the meantime counts as nothing: nobody says that they run at the same time.
    Nor does an array count that shares its memory with one that the body writes.
    """
    block = Block(tuple(body))
    written = {array for stmt in walk(block) for array in changed(stmt)}
    moved = [carry for carry, last in zip(carries, yields, strict=True) if last is not carry]
    open_ = [out for stmt in walk(block) if _is_open(stmt, written) for out in defs(stmt)]
    return atom in reached(dependences(block), [*moved, *open_])


def _is_open(stmt: Stmt, written: Set[Var]) -> bool:
    """Whether a statement may give something else for the same operands."""
    if isinstance(stmt, Call):
        inside = (inner for one in called(stmt.function) for inner in walk(one.body))
        acts = any(isinstance(inner, Atomic | Native) for inner in inside)
        return acts or not written.isdisjoint(stmt.args)
    return isinstance(stmt, Atomic | Native) or (isinstance(stmt, Load) and stmt.array in written)
