"""Assignments: to names, elements, components, parts and rows; plain, annotated and augmented.

An augmented assignment to an element of an array reads it, evaluates the right side, and writes, in this
order, as Python does.  Only `+=` and `-=` of an array that threads share are one atomic addition, which comes
after the right side.
"""

import ast
from collections.abc import Callable, Sequence

from kernelab.data_classes import dataclass
from kernelab.errors import Diagnostic, Span
from kernelab.frontend.definitions.loops import unpacked
from kernelab.frontend.expressions import places, struct_values
from kernelab.frontend.expressions.expressions import binary, number
from kernelab.frontend.expressions.joins import WATCH
from kernelab.frontend.expressions.places import Part
from kernelab.frontend.expressions.words import accumulate
from kernelab.frontend.meaning import array_views, unsupported
from kernelab.frontend.meaning.annotations import annotation
from kernelab.frontend.meaning.frame import Frame, Poisoned, threads
from kernelab.frontend.meaning.meanings import (
    ArrayRef,
    BuiltinRef,
    Evaluated,
    LateSum,
    Meaning,
    StructArrayRef,
    TupleOf,
    Typed,
    Weak,
    describe,
)
from kernelab.frontend.meaning.promote import as_number, convert
from kernelab.lang.build import integer
from kernelab.lang.ir import Atom, Atomic, Block, Const, For, Stmt, Store, Var, changed, walk
from kernelab.lang.types import Array, Scalar, Value, Vec, int32


def plain(frame: Frame, stmt: ast.Assign) -> None:
    """Lower `x = value`."""
    _note_sign(frame, stmt)
    value = _right_side(frame, stmt)
    for target in stmt.targets:
        if frame.is_kernel and isinstance(target, ast.Name):
            _note_renamed(frame, stmt, target, value)
        assign(frame, target, value, stmt.value)


def _right_side(frame: Frame, stmt: ast.Assign) -> Meaning:
    match stmt.value, stmt.targets[0]:
        case ast.Call(func=callee, args=[], keywords=[]) as call, ast.Tuple(elts=elements):
            hints = tuple(part.id if isinstance(part, ast.Name) else "" for part in elements)
            if frame.value(callee) == BuiltinRef("tid"):
                return TupleOf(threads(frame, call, hints))
        case ast.Call(func=callee, args=[], keywords=[]) as call, ast.Name(name):
            if frame.value(callee) == BuiltinRef("tid"):
                return threads(frame, call, (name,))[0]
    value = frame.value(stmt.value)
    if value == BuiltinRef("tid"):
        text = frame.places.text(stmt.value)
        hint = unsupported.hint_of_uncalled(value, text)
        raise frame.error(stmt.value, f"{text} is {describe(value)}, not an index", hint=hint)
    return value


def assign(frame: Frame, target: ast.expr, value: Meaning, source: ast.expr) -> None:
    """Give a target a value; several targets take a tuple or the components of a vector."""
    target = _beyond_tuples(frame, target)
    match target:
        case ast.Name(name):
            array_views.refuse_alias(frame, value, name, source)
            set_name(frame, name, value, frame.places(target))
        case ast.Tuple(elts=elements):
            items = unpacked(frame, value, len(elements), target, source)
            for element, item in zip(elements, items, strict=True):
                assign(frame, element, item, source)
        case ast.Subscript() if (row := row_target(frame, target, value)) is not None:
            Row(frame, row, value, target, source).write(frame.builder.store)
        case ast.Subscript() | ast.Attribute():
            place = struct_values.place(frame, target)
            places.store(frame, place, struct_values.require(frame, value, place.type, source, _holds(place)))
            if place.name is not None:
                frame.set_at[place.name] = frame.places(target)
                frame.changed_copies.add(target)
        case _:
            raise Poisoned


def _beyond_tuples(frame: Frame, target: ast.expr) -> ast.expr:
    """The target `t[0][i]` with the array that a tuple `t` holds in the place of `t[0]`."""
    prefixes = [target]
    while isinstance(inner := prefixes[-1], ast.Subscript | ast.Attribute):
        prefixes.append(inner.value)
    root, *longer = reversed(prefixes)
    value = frame.env.get(root.id) if isinstance(root, ast.Name) else None
    for prefix in longer[:-1]:
        if not isinstance(value, TupleOf) or value.struct is not None:
            return target
        value = frame.value(prefix)
        if isinstance(value, ArrayRef | StructArrayRef):
            evaluated = ast.copy_location(Evaluated(frame.places.text(prefix), value), prefix)
            return _replaced(target, prefix, evaluated)
    return target


def _replaced(target: ast.expr, old: ast.expr, new: ast.expr) -> ast.expr:
    match target:
        case _ if target is old:
            return new
        case ast.Attribute(value=value, attr=attr, ctx=ctx):
            copy: ast.expr = ast.Attribute(_replaced(value, old, new), attr, ctx)
        case ast.Subscript(value=value, slice=slice, ctx=ctx):
            copy = ast.Subscript(_replaced(value, old, new), slice, ctx)
        case _:
            raise AssertionError(target)
    return ast.copy_location(copy, target)


def _holds(place: places.Place) -> str:
    if isinstance(place.components, Part) or not isinstance(place.type, Value):
        return f"{ast.unparse(place.node)} is"
    if place.components:
        return "this component is" if isinstance(place.type, Scalar) else "this row is"
    if place.path:
        return f"{ast.unparse(place.node)} is"
    return f"{place.array.hint} holds" if place.array is not None else "this is"


def set_name(frame: Frame, name: str, value: Meaning, span: Span) -> None:
    """Bind a variable; the IR shows its name where the value has none yet."""
    struct_values.name_leaves(name, value)
    array_views.name_array(name, value)
    frame.env[name] = value
    frame.set_at[name] = span
    if name in frame.facts.watched:
        frame.env[WATCH + name] = Weak(True)


def annotated(frame: Frame, stmt: ast.AnnAssign) -> None:
    """Lower `x: type = value`."""
    type = annotation(frame.scope, frame.places, stmt.annotation)
    if stmt.value is None:
        return
    value = frame.value(stmt.value)
    what = f"{stmt.target.id} is" if isinstance(stmt.target, ast.Name) else "this is"
    value = struct_values.require(frame, value, type, stmt.value, what)
    assign(frame, stmt.target, value, stmt.value)


def augmented(frame: Frame, stmt: ast.AugAssign) -> None:
    """Lower `x += value` and its kin."""
    match _beyond_tuples(frame, stmt.target):
        case ast.Name(name) as target:
            _refuse_array(frame, stmt, target)
            left, right = number(frame, target), number(frame, stmt.value)
            value = binary(frame, stmt.op, left, right, _whole(stmt), (target, stmt.value))
            set_name(frame, name, value, frame.places(stmt.target))
            if isinstance(value, Typed) and not isinstance(value.type, Scalar):
                frame.changed_copies.add(target)
        case ast.Subscript() as target if _augments_row(frame, stmt, target):
            pass
        case ast.Subscript() | ast.Attribute() as target:
            place = struct_values.place(frame, target)
            if not isinstance(place.type, Value):
                raise struct_values.no_number(frame, place)
            _augment_place(frame, stmt, place, place.type)
        case _:
            raise Poisoned


def _refuse_array(frame: Frame, stmt: ast.AugAssign, target: ast.Name) -> None:
    """Raise Mistake where the name is that of an array, all of whose elements Python would change."""
    value = frame.env.get(target.id)
    if isinstance(value, ArrayRef):
        whole = f"{target.id}[{', '.join(':' * value.ndim)}]"
        text = ast.unparse(stmt).replace(target.id, whole, 1)
        message = f"{target.id} is {describe(value)}: its elements are changed through an index"
        raise frame.error(target, message, hint=f"write {text} for all of them, {target.id}[i] for one")


def _augments_row(frame: Frame, stmt: ast.AugAssign, target: ast.Subscript) -> bool:
    """Change a row or slice of an array at once, where that is what stands there."""
    into = row_target(frame, target, None)
    if into is None:
        return False
    row = Row(frame, into, frame.value(stmt.value), target, stmt.value)
    if into.var not in frame.locals and isinstance(stmt.op, ast.Add | ast.Sub):
        row.add(isinstance(stmt.op, ast.Sub))
        return True

    def combine(before: Typed, by: Meaning) -> Meaning:
        right = as_number(frame, by, stmt.value)
        return binary(frame, stmt.op, before, right, _whole(stmt), (target, stmt.value))

    row.change(combine)
    return True


def _augment_place(frame: Frame, stmt: ast.AugAssign, place: places.Place, type: Value) -> None:
    """Change the number that a place holds: by an atomic addition, or by reading it before the right side."""
    assert not isinstance(stmt.target, ast.Name)
    shared = place.array is not None and place.array not in frame.locals
    if shared and isinstance(stmt.op, ast.Add | ast.Sub):
        value = convert(frame, _added(frame, stmt, place), type, stmt.value, _holds(place))
        accumulate(frame, place, value, isinstance(stmt.op, ast.Sub), stmt)
        return
    if place.name is not None:
        frame.changed_copies.add(stmt.target)
    before = places.load(frame, place)
    right = number(frame, stmt.value)
    if isinstance(stmt.op, ast.Div) and isinstance(type, Scalar) and type.is_int:
        text = frame.places.text(stmt.target)
        hint = f"write «{text} //= {frame.places.text(stmt.value)}», or use an array of float"
        raise frame.error(stmt.target, f"{text} holds {type}, and / gives a float", hint=hint)
    result = binary(frame, stmt.op, before, right, _whole(stmt), (stmt.target, stmt.value))
    places.store(frame, place, Typed(convert(frame, result, type, stmt.value, _holds(place))))


def _added(frame: Frame, stmt: ast.AugAssign, place: places.Place) -> Weak | Typed:
    """The value that is added atomically; raises Mistake where computing it changes the element itself.

    Where it changes another array, that is noted: a launch may pass the same memory for both.
    """
    with frame.builder.block() as block:
        right = number(frame, stmt.value)
    for inner in block.stmts:
        frame.builder.emit(inner)
    inside = [*walk(Block(tuple(block.stmts)))]
    arrays = frozenset(array for inner in inside for array in changed(inner))
    if not arrays:
        return right
    text, value = frame.places.text(stmt.target), frame.places.text(stmt.value)
    sign = "+" if isinstance(stmt.op, ast.Add) else "-"
    mistake = frame.error(
        stmt,
        f"{value} may change {text}, which {sign}= reads only afterwards, in one atomic addition",
        hint=f"write «{text} = {text} {sign} {value}» for Python's order, or compute {value} a line above",
    )
    assert place.array is not None
    if any(_may_change(inner, place) for inner in inside):
        raise mistake
    others = arrays - frame.locals - {place.array}
    if others:
        frame.late_sums.append(LateSum(place.array, others, mistake.diagnostic))
    return right


def _may_change(stmt: Stmt, place: places.Place) -> bool:
    """Whether a statement, or a function that it calls, may write an element of an array."""
    at = stmt.indices if isinstance(stmt, Store | Atomic) else ()
    return place.array in changed(stmt) and not _surely_distinct(at, place.indices)


def _surely_distinct(a: Sequence[Atom], b: Sequence[Atom]) -> bool:
    """Whether two places are certainly different elements: constants along one axis differ, of one sign."""
    return any(
        isinstance(x, Const)
        and isinstance(y, Const)
        and x.value != y.value
        and (x.value < 0) == (y.value < 0)
        for x, y in zip(a, b, strict=False)
    )


def _whole(stmt: ast.AugAssign) -> ast.expr:
    """An expression that stands where the statement stands, for messages."""
    return ast.copy_location(ast.BinOp(stmt.target, stmt.op, stmt.value), stmt)


# ------------------------------------------------------------------------------------------------ warnings


def _note_renamed(frame: Frame, stmt: ast.Assign, target: ast.Name, value: Meaning) -> None:
    """Warn where the name of an array parameter is given to something else that nobody reads."""
    before = frame.env.get(target.id)
    first = frame.facts.assignments.get(target.id, [None])[0]
    if not isinstance(before, ArrayRef | StructArrayRef) or not isinstance(first, ast.arg):
        return
    if target.id in frame.facts.live_after[stmt]:
        return
    index = ", ".join("ijkl"[: before.ndim])
    text = frame.places.text(stmt.value)
    element = f"{text}[{index}]" if isinstance(value, ArrayRef | StructArrayRef) else text
    message = f"this gives the name {target.id} to something else: the array {target.id} stays as it is"
    hint = f"write «{target.id}[{index}] = {element}»"
    frame.notes.append(Diagnostic(message, frame.places(stmt), "unused", "warning", hint=hint))


def _note_sign(frame: Frame, stmt: ast.Assign) -> None:
    """Warn where a sign touches the = before it rather than what it belongs to, as in `x =+ 1`."""
    text = frame.places.text(stmt.value)
    if not text.startswith(("+ ", "- ")) or not frame.places.before(stmt.value).endswith("="):
        return
    sign = text[0]
    message = f"={sign} assigns, and {'adds' if sign == '+' else 'subtracts'} nothing"
    hint = f"did you mean {sign}=? If not, put a space before the {sign}"
    frame.notes.append(Diagnostic(message, frame.places(stmt), "sign", "warning", hint=hint))


# ---------------------------------------------------------------------------------- rows and slices of arrays


Combine = Callable[[Typed, Meaning], Meaning]


def row_target(frame: Frame, node: ast.expr, value: Meaning | None) -> ArrayRef | None:
    """The row or slice of an array that an assignment names; None where it names something else.

    A row without a slice takes a row only: a number there is an index that was forgotten.
    """
    root, steps = places.steps_of(node, lambda attr: False)
    groups = places.groups_of(steps)
    parts = [part for group in groups for part in group]
    if not array_views.has_slice(parts) and not isinstance(value, ArrayRef):
        return None
    if not isinstance(_row_variable(frame, root), ArrayRef | TupleOf):
        return None
    base = frame.value(root)
    if not isinstance(base, ArrayRef):
        return None
    if base.ndim <= sum(not isinstance(part, ast.Slice) for part in parts):
        return None
    for group in groups:
        if not base.ndim:
            return None
        base = array_views.enter(frame, base, group, node)
    return base


def _row_variable(frame: Frame, root: ast.expr) -> Meaning | None:
    """The variable that is an array, or the struct that holds one in a field."""
    if isinstance(root, Evaluated):
        return root.meaning
    if isinstance(root, ast.Name):
        return frame.env.get(root.id)
    while isinstance(root, ast.Attribute):
        root = root.value
    variable = frame.env.get(root.id) if isinstance(root, ast.Name) else None
    return variable if isinstance(variable, TupleOf) else None


Write = Callable[[Var, Sequence[Atom], Atom], object]
Take = Callable[[list[Atom]], Atom]
"""The value for the element at some indices."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row or slice of an array, written as `node`, and the value that it gets, written as `source`."""

    frame: Frame
    into: ArrayRef
    value: Meaning
    node: ast.expr
    source: ast.expr

    def write(self, write: Write) -> None:
        """Write a number into every element, an array of the same shape, or the components of a vector."""
        extents = self._extents()
        take = self._elements(extents) or self._everywhere()

        def body(indices: list[Atom]) -> None:
            where = array_views.at(self.frame, self.into, indices, self.node)
            write(where.var, where.indices, take(indices))

        _loops(self.frame, extents, [], body)

    def add(self, negate: bool) -> None:
        """Add to every element, or subtract, atomically."""
        b = self.frame.builder
        self.write(lambda array, at, new: b.atomic_add(array, at, b.apply("neg", new) if negate else new))

    def change(self, combine: Combine) -> None:
        """Give every element what an operator makes of it and of a number, or of its counterpart in a row."""
        b, extents = self.frame.builder, self._extents()
        take = self._elements(extents)

        def body(indices: list[Atom]) -> None:
            where = array_views.at(self.frame, self.into, indices, self.node)
            before = Typed(b.load(where.var, where.indices))
            changed = combine(before, self.value if take is None else Typed(take(indices)))
            b.store(where.var, where.indices, self._converted(changed))

        _loops(self.frame, extents, [], body)

    def _extents(self) -> list[Atom]:
        return [array_views.shape(self.frame, self.into, axis).atom for axis in range(self.into.ndim)]

    def _converted(self, value: Meaning) -> Atom:
        return convert(self.frame, value, self.into.elem, self.source, f"{self.into.var.hint} holds")

    def _everywhere(self) -> Take:
        atom = self._converted(self.value)
        return lambda _: atom

    def _elements(self, extents: Sequence[Atom]) -> Take | None:
        """The elements of an array or the components of a vector; None for what goes into every element."""
        value, into = self.value, self.into
        if isinstance(value, ArrayRef):
            return self._of_array(value, extents)
        if not isinstance(value, Typed) or not isinstance(value.type, Vec) or value.type.scalar != into.elem:
            return None
        if into.ndim != 1:
            raise self.frame.error(self.source, f"{describe(value)} does not fit {describe(into)}")
        self._require(extents[0], integer(value.type.n))
        return lambda indices: self.frame.builder.apply("extract", value.atom, *indices)

    def _of_array(self, value: ArrayRef, extents: Sequence[Atom]) -> Take:
        frame, into, source = self.frame, self.into, self.source
        if value.ndim != into.ndim or value.elem != into.elem:
            message = f"what is assigned here is {Array(into.elem, into.ndim)}, not {describe(value)}"
            hint = "both sides have the same number of axes and the same elements"
            raise frame.error(source, message, hint=hint)
        # Two rows of an array are the same or have nothing in common; slices may overlap.
        if value.var is into.var and not (value.is_row and into.is_row):
            hint = "write a loop, in the order that is meant"
            raise frame.error(source, f"{into.var.hint} is assigned a part of itself at once", hint=hint)
        for axis, extent in enumerate(extents):
            self._require(extent, array_views.shape(frame, value, axis).atom)

        def take(indices: list[Atom]) -> Atom:
            where = array_views.at(frame, value, indices, source)
            return frame.builder.load(where.var, where.indices)

        return take

    def _require(self, extent: Atom, length: Atom) -> None:
        b = self.frame.builder
        with b.at(self.frame.places(self.source)):
            same = b.apply("eq", extent, length)
            b.check(same, "assertion", "what is assigned has another length than what it goes into")


def _loops(
    frame: Frame, extents: Sequence[Atom], indices: list[Atom], body: Callable[[list[Atom]], None]
) -> None:
    if not extents:
        body(indices)
        return
    b, index = frame.builder, Var(int32, "k", frame.builder.span)
    with b.block() as inner:
        _loops(frame, extents[1:], [*indices, index], body)
    b.emit(For((), index, extents[0], (), (), inner.close(), b.span))
