"""Lowers loops over `range(...)` and over elements of arrays, and unrolls those over a few known items.

for i in range(n)           one loop of the IR
for e in x                  for k in range(len(x)), where e is x[k]; also enumerate(x) and zip(x, y)
for v in (a, b, c)          the body for a, then for b, then for c
for i in range(3)           the same with 0, 1 and 2, where the body has static(i)
"""

import ast
from collections.abc import Callable, Collection, Sequence
from functools import partial

import numpy as np

from kernelab.data_classes import dataclass, replace
from kernelab.errors import counted as numbered
from kernelab.frontend.expressions import places, struct_values
from kernelab.frontend.expressions.control import LoopHead, branch, loop, truth
from kernelab.frontend.expressions.joins import FLAGS, RETURNED, WATCH
from kernelab.frontend.meaning import array_views, unsupported
from kernelab.frontend.meaning.frame import Frame, Mistake, Poisoned
from kernelab.frontend.meaning.meanings import (
    ArrayRef,
    Meaning,
    StructArrayRef,
    TupleOf,
    Typed,
    Weak,
    describe,
)
from kernelab.frontend.meaning.promote import cast, convert, integer_hint
from kernelab.frontend.meaning.scope import targets
from kernelab.frontend.meaning.syntax_trees import Jump, escaping
from kernelab.lang.build import integer
from kernelab.lang.ir import Atom, Const, Storage, Var
from kernelab.lang.ops import TRIPS
from kernelab.lang.types import Mat, Scalar, Vec, bool_, int32, spelled


def backwards(frame: Frame, head: LoopHead, start: Atom, step: Atom) -> tuple[LoopHead, Atom, Atom]:
    """The same indices, last first."""
    b = frame.builder
    last = b.apply("sub", head.count, like(head.count, 1))
    back = b.apply("neg", step)
    index = Var(head.index.type, "k", head.index.span)
    return replace(head, index=index), b.apply("add", start, b.apply("mul", last, step)), back


def index(frame: Frame, head: LoopHead, start: Atom, step: Atom, name: str) -> Atom:
    """The index of a body: `start + step * k`, k counted from 0."""
    if start == like(start, 0) and step == like(step, 1):
        return head.index
    moved = frame.builder.apply("mul", head.index, step)
    if start == like(start, 0):
        return moved
    return frame.builder.apply("add", start, moved, hint=name)


def like(atom: Atom, value: int) -> Const:
    """A constant of the type of an integer."""
    assert isinstance(atom.type, Scalar)
    return Const(value, atom.type)


def head(frame: Frame, call: ast.Call, name: str) -> tuple[LoopHead, Atom, Atom]:
    """The loop that counts a `range(...)`, and its start and step; raises Mistake where it is none."""
    start, stop, step = _bounds(frame, call)
    if isinstance(step, Const) and step.value == 0:
        raise frame.error(call, "the step of range is zero", "value")
    nonzero = frame.builder.apply("ne", step, like(step, 0))
    frame.builder.check(nonzero, "assertion", "the step of range is zero")
    plain = start == like(start, 0) and step == like(step, 1)
    count = stop if plain else _trips(frame, call, start, stop, step)
    index = Var(count.type, name if plain else "k", frame.places(call))
    if plain and isinstance(count, Const):
        frame.bounds[index] = int(count.value)
    return LoopHead(index, count, _chosen_storage(frame, call)), start, step


def _trips(frame: Frame, call: ast.Call, start: Atom, stop: Atom, step: Atom) -> Atom:
    """The number of iterations, checked to be one that the type of the bounds holds."""
    scalar = start.type
    assert isinstance(scalar, Scalar)
    count = frame.builder.let(TRIPS, (start, stop, step), scalar)
    if isinstance(count, Const) and count.value < 0:
        bounds = (int(bound.value) for bound in (start, stop, step) if isinstance(bound, Const))
        message = f"this range has {len(range(*bounds))} items, and {spelled(scalar)} does not count so far"
        raise frame.error(call, message, "value", "write its bounds as int64(...)")
    if not _surely_fits(start, step):
        counted, most = frame.builder.apply("ge", count, like(count, 0)), np.iinfo(scalar.dtype).max
        frame.builder.check(counted, "assertion", f"the range has more than {most} items, too many to count")
    return count


def _surely_fits(start: Atom, step: Atom) -> bool:
    """Whether the number of items is in range, whatever the bound is that is not known."""
    match start, step:
        case Const(first), Const(by):
            return (by > 0 and first >= 0) or (by < 0 and first < 0) or abs(by) > 2
        case _, Const(by):
            return abs(by) > 2
        case _:
            return False


def _bounds(frame: Frame, call: ast.Call) -> tuple[Atom, Atom, Atom]:
    if not 1 <= len(call.args) <= 3:
        raise frame.error(call, f"range takes 1 to 3 integers, not {len(call.args)}")
    parts = [(_counted(frame, frame.value(part)), part) for part in call.args]
    types = {
        value.type for value, part in parts if _is_bound(frame, value, part) and isinstance(value, Typed)
    }
    if len(types) > 1:
        hint = "write int(...)"
        raise frame.error(call, f"the bounds of range are {' and '.join(sorted(map(str, types)))}", hint=hint)
    type = types.pop() if types else int32
    bounds = [convert(frame, value, type, part, "a bound of range is") for value, part in parts]
    match bounds:
        case [stop]:
            return like(stop, 0), stop, like(stop, 1)
        case [start, stop]:
            return start, stop, like(stop, 1)
        case _:
            return bounds[0], bounds[1], bounds[2]


def _counted(frame: Frame, value: Meaning) -> Meaning:
    """A truth value as a bound: 1 or 0, as in Python."""
    match value:
        case Weak(bool() as truth):
            return Weak(int(truth))
        case Typed(atom) if atom.type == bool_:
            return Typed(cast(frame, atom, int32))
        case _:
            return value


def _is_bound(frame: Frame, value: Meaning, part: ast.expr) -> bool:
    if isinstance(value, Weak | Typed) and isinstance(value.type, Scalar) and value.type.kind == "int":
        return True
    text = frame.places.text(part)
    hint = f"write range(«len({text})»)" if isinstance(value, ArrayRef) else integer_hint(frame, part)
    if isinstance(part, ast.Constant):
        hint = "count with ints, and compute the number in the block: t = 0.1 * float(k)"
    if text.endswith(".shape"):
        hint = f"write «{text}[0]», the first extent"
    raise frame.error(part, f"a bound of range is an int, not {describe(value)}", hint=hint)


# ----------------------------------------------------------------------------------------------------- loops


MOST_ITEMS = 256
"""The most copies of an unrolled body."""

Live = Collection[str]
Assign = Callable[[Frame, ast.expr, Meaning, ast.expr], None]
Lower = Callable[[Frame, Sequence[ast.stmt], Live], None]


@dataclass(frozen=True, slots=True)
class Inside:
    """The body of a loop to lower: the assignment of its target, and its statements."""

    assign: Assign
    block: Lower


def over_range(
    frame: Frame, stmt: ast.For, head: LoopHead, index: Callable[[], Atom], inside: Inside
) -> None:
    """A loop that counts."""
    assert isinstance(stmt.target, ast.Name)
    name = stmt.target.id
    counted(frame, stmt, head, lambda: Typed(index()), inside)
    if name in frame.facts.watched:
        ran = frame.builder.apply("gt", head.count, like(head.count, 0))
        frame.env[WATCH + name] = Typed(frame.builder.apply("or", truth(frame.env.get(WATCH + name)), ran))


def counted(frame: Frame, stmt: ast.For, head: LoopHead, item: Callable[[], Meaning], inside: Inside) -> None:
    """A loop of the IR whose target is set to an item before the body."""
    jumps = escaping(stmt.body)

    def body() -> None:
        inside.assign(frame, stmt.target, item(), stmt.iter)
        inside.block(frame, stmt.body, live_in_loop(frame, stmt, jumps))

    loop(frame, stmt, head, body, carried(frame, stmt, jumps), jumps)


def over_items(frame: Frame, stmt: ast.For, inside: Inside) -> None:
    """A loop over anything but `range(...)`."""
    items = _items(frame, stmt.iter, stmt)
    if isinstance(items, ArrayItems):
        index = Var(int32, "k", frame.places(stmt.iter))
        counted(frame, stmt, LoopHead(index, items.count), lambda: items.at(index), inside)
    else:
        written_out(frame, stmt, items, inside)


# ------------------------------------------------------------------------- written out


def written_out(frame: Frame, stmt: ast.For, items: Sequence[Meaning], inside: Inside) -> None:
    """The body once for each item; behind a `break` or a `return` the others are skipped."""
    jumps = escaping(stmt.body)
    live = {*live_in_loop(frame, stmt, jumps)}
    around = {flag: frame.env.get(flag, Weak(False)) for flag in FLAGS.values()}
    frame.env |= dict.fromkeys(FLAGS.values(), Weak(False))
    for k, item in enumerate(items):
        left = frame.builder.apply("or", *(truth(frame.env.get(FLAGS[jump])) for jump in ("break", "return")))
        if isinstance(left, Const) and left.value:
            break
        if isinstance(left, Const):
            _one(frame, stmt, item, live, inside)
        else:
            step = partial(_one, frame, stmt, item, live, inside)
            branch(frame, ("item", id(stmt), k), left, lambda: None, step, live)
    kept = {FLAGS["return"]} if "return" in jumps else set()
    frame.env |= {flag: value for flag, value in around.items() if flag not in kept}


def _one(frame: Frame, stmt: ast.For, item: Meaning, live: Live, inside: Inside) -> None:
    inside.assign(frame, stmt.target, item, stmt.iter)
    inside.block(frame, stmt.body, live)
    frame.env[FLAGS["continue"]] = Weak(False)


def static_indices(frame: Frame, stmt: ast.For, call: ast.Call) -> list[Meaning] | None:
    """The indices of a loop whose body has `static(...)` of its index; None for any other loop."""
    assert isinstance(stmt.target, ast.Name)
    if not any(_names(part, stmt.target.id) for inner in stmt.body for part in ast.walk(inner)):
        return None
    bounds = (frame.value(part) for part in call.args)
    numbers = (bound.number if isinstance(bound, Weak) else None for bound in bounds)
    indices = unsupported.known_range(number if type(number) is int else None for number in numbers)
    if indices is None:
        return None
    if len(indices) > MOST_ITEMS:
        message = f"a loop that is written out runs at most {MOST_ITEMS} times, not {len(indices)}"
        raise frame.error(stmt.iter, message, "value", "leave static out of its body")
    return [Weak(k) for k in (indices if call is stmt.iter else reversed(indices))]


def _names(part: ast.AST, name: str) -> bool:
    match part:
        case ast.Call(func=ast.Name("static") | ast.Attribute(attr="static"), args=args):
            return any(isinstance(n, ast.Name) and n.id == name for a in args for n in ast.walk(a))
        case _:
            return False


# ------------------------------------------------------------------------- items


@dataclass(frozen=True, slots=True)
class ArrayItems:
    """As many items as an array has: their number, and the one at an index."""

    count: Atom
    at: Callable[[Atom], Meaning]


Items = Sequence[Meaning] | ArrayItems


def _items(frame: Frame, node: ast.expr, stmt: ast.For) -> Items:
    match node:
        case ast.Call(func=ast.Name("enumerate"), args=[inner, *start], keywords=[]) if len(start) < 2:
            first = frame.value(start[0]) if start else Weak(0)
            return _numbered(frame, _items(frame, inner, stmt), first, node)
        case ast.Call(func=ast.Name("zip"), args=[_, *_] as parts, keywords=[]):
            return _together(frame, [_items(frame, part, stmt) for part in parts], node)
        case ast.List(elts=elements):
            return [frame.value(element) for element in elements]
    value = frame.value(node)
    items = items_of(frame, value, node)
    if items is None:
        hint = unsupported.refusal_of("iteration").hint
        message = f"a loop goes over range(...), arrays, vectors and tuples, not {describe(value)}"
        raise Mistake.of(message, "unsupported", hint, frame.places.first_line(stmt))
    return items


def _numbered(frame: Frame, items: Items, first: Meaning, node: ast.expr) -> Items:
    """The items of `enumerate(...)`: pairs of a number and an item."""
    match first, items:
        case Weak(int() as start), ArrayItems(count, at):

            def pair(k: Atom) -> Meaning:
                return TupleOf((Typed(frame.builder.apply("add", k, integer(start))), at(k)))

            return ArrayItems(count, pair)
        case Weak(int() as start), [*few]:
            return [TupleOf((Weak(start + k), item)) for k, item in enumerate(few)]
        case _:
            raise frame.error(node, "the start of enumerate has to be a constant", hint="add it in the loop")


def _together(frame: Frame, parts: Sequence[Items], node: ast.expr) -> Items:
    """The items of `zip(...)`: as many as the shortest has."""
    many = [part for part in parts if isinstance(part, ArrayItems)]
    few = [part for part in parts if not isinstance(part, ArrayItems)]
    if few and many:
        hint = "write for k in range(...), and index both"
        raise frame.error(node, "zip takes arrays only, or tuples and vectors only", hint=hint)
    if few:
        return [TupleOf(tuple(items)) for items in zip(*few, strict=False)]
    count = many[0].count
    for part in many[1:]:
        count = frame.builder.apply("min", count, part.count)
    return ArrayItems(count, lambda k: TupleOf(tuple(part.at(k) for part in many)))


def items_of(frame: Frame, value: Meaning, node: ast.expr) -> Items | None:
    """The items of a value; None for what has none."""
    match value:
        case TupleOf(items, None):
            return items
        case Typed(atom) if isinstance(value.type, Vec | Mat):
            return [Typed(item) for item in frame.builder.items(atom)]
        case ArrayRef():
            count = array_views.shape(frame, value, 0).atom
            return ArrayItems(
                count, lambda k: places.element(frame, array_views.at(frame, value, (k,), node))
            )
        case StructArrayRef(name, struct, vars, indices) if value.ndim == 1:
            count = array_views.shape(frame, struct_values.first(value), 0).atom
            return ArrayItems(
                count,
                lambda k: struct_values.loaded(frame, StructArrayRef(name, struct, vars, (*indices, k))),
            )
        case _:
            return None


def unpacked(
    frame: Frame, value: Meaning, count: int, target: ast.expr, source: ast.expr
) -> Sequence[Meaning]:
    """The items for `count` names; an array or a slice has to have as many elements when the kernel runs."""
    items = value.items if isinstance(value, TupleOf) else items_of(frame, value, source)
    if items is None:
        raise frame.error(source, f"{describe(value)} cannot be unpacked into {count} names")
    if isinstance(items, ArrayItems):
        same = frame.builder.apply("eq", items.count, integer(count))
        text = frame.places.text(source)
        frame.builder.check(same, "assertion", f"{text} has another number of elements than {count}")
        return [items.at(integer(k)) for k in range(count)]
    if len(items) != count:
        message = f"{numbered(len(items), 'value')} cannot be unpacked into {count} names"
        raise frame.error(target, message, "value", "write one name for each value")
    return items


# ------------------------------------------------------------------------- what a loop carries


def live_in_loop(frame: Frame, stmt: ast.For | ast.While, jumps: frozenset[Jump]) -> Live:
    """The names that the end of an iteration hands on."""
    flags = {FLAGS[jump] for jump in jumps & {"break", "return"}}
    return frame.facts.carried[stmt] | flags | ({RETURNED} if "return" in jumps else frozenset())


def carried(frame: Frame, stmt: ast.For | ast.While, jumps: Collection[Jump]) -> list[str]:
    """The names that a loop carries, in the order of the text."""
    names = frame.facts.carried[stmt]
    ordered = [name for name in frame.facts.assignments if name in names]
    others = sorted(names - set(ordered))
    watched = frame.facts.watched - {name.id for name in targets(stmt)}
    watches = [WATCH + name for name in ordered if name in watched and WATCH + name in frame.env]
    result = [RETURNED] if "return" in jumps and not frame.is_kernel else []
    return [*ordered, *others, *watches, *result]


# ------------------------------------------------------------------------------------------------- storage


_STORAGES: dict[str, Storage] = {"save": "save", "recompute": "recompute", "checkpoint": "checkpoint"}

_STORAGE_HINT = (
    '"save" keeps the values of every iteration, "recompute" runs the loop again when its adjoint comes, '
    '"checkpoint" keeps about sqrt(n) of n iterations and runs those between again'
)


def _chosen_storage(frame: Frame, call: ast.Call) -> Storage | None:
    """The word that a `range` gives for `adjoint`; None where it gives none."""
    storage: Storage | None = None
    for word in call.keywords:
        if word in frame.refused:
            raise Poisoned
        if word.arg != "adjoint":
            message = f"range takes no keyword {word.arg}"
            raise frame.error(word, message, hint="write range(start, stop, step), and adjoint=... behind it")
        storage = _storage(frame, word.value)
    return storage


def _storage(frame: Frame, value: ast.expr) -> Storage:
    match value:
        case ast.Constant(str(text)) if text in _STORAGES:
            return _STORAGES[text]
        case _:
            words = '"save", "recompute" or "checkpoint"'
            message = f"adjoint is {words}, not {frame.places.text(value)}"
            raise frame.error(value, message, "value", hint=_STORAGE_HINT)
