"""Structs in a kernel: flattened into tuples of leaves, so that nothing below the frontend knows structs.

    q = Particle()          q is (Const 0.0, Const 0.0 ...), one item a field
    q.mass = 2.0            q is another tuple: structs are copied on assignment
    ps[i].mass += 1.0       an atomic add to the array of the leaf `ps.mass`
    q = ps[i]               one load a leaf

Of an element of an array of structs only the leaves that are used are loaded.  `atoms_of` takes any value
apart, tuples, structs and views of arrays alike, and `with_atoms` puts it together of others.
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Any, assert_never

import numpy as np

from kernelab.data_classes import replace
from kernelab.errors import Diagnostic, Span, counted
from kernelab.frontend.expressions import places
from kernelab.frontend.expressions.places import COMPONENTS, Component, Groups, Place, Step
from kernelab.frontend.meaning import array_views
from kernelab.frontend.meaning.array_views import index
from kernelab.frontend.meaning.frame import Frame, Mistake, NotSet, Poisoned
from kernelab.frontend.meaning.meanings import (
    Arguments,
    ArrayRef,
    HostArray,
    Meaning,
    NoArray,
    Pick,
    SliceRange,
    StructArrayRef,
    TupleOf,
    Typed,
    ViewType,
    describe,
    is_struct,
    parts_of,
)
from kernelab.frontend.meaning.name_lookup import Constant
from kernelab.frontend.meaning.promote import convert
from kernelab.host.traced import Traced, untraced
from kernelab.lang.build import constant, zero
from kernelab.lang.ir import Atom, Var
from kernelab.lang.structs import AnyType, Field, Struct, StructArray, difference, leaves
from kernelab.lang.types import Array, Mat, Scalar, Value, Vec, spelled

# ------------------------------------------------------------------------- atoms of any value


ChangeAtom = Callable[[Atom], Any]
"""The new atom for an atom of a value; for an array, an array."""


def atoms_of(meaning: Meaning | None) -> Iterator[Atom]:
    """What exists at run time of a value, in order: numbers, arrays, and where rows and slices are."""
    for part in parts_of(meaning):
        match part:
            case Typed(atom):
                yield atom
            case ArrayRef(var):
                yield from (var, *part.atoms)
            case StructArrayRef(vars=vars, indices=indices):
                yield from (*vars, *indices)


def with_atoms(meaning: Meaning, change: ChangeAtom) -> Meaning:
    """The same kind of value with other atoms, which are changed in the order of `atoms_of`."""
    match meaning:
        case Typed(atom):
            return replace(meaning, atom=change(atom))
        case TupleOf(items):
            return meaning.of(with_atoms(item, change) for item in items)
        case ArrayRef(var, picks):
            return ArrayRef(change(var), tuple(_changed(pick, change) for pick in picks))
        case StructArrayRef(vars=vars, indices=indices):
            return replace(meaning, vars=tuple(map(change, vars)), indices=tuple(map(change, indices)))
        case _:
            return meaning


def _changed(pick: Pick, change: ChangeAtom) -> Pick:
    if isinstance(pick, SliceRange):
        start, count = change(pick.start), change(pick.count)
        return SliceRange(start, pick.step if isinstance(pick.step, int) else change(pick.step), count)
    return None if pick is None else change(pick)


def computed_atoms(meaning: Meaning | None) -> Iterator[Atom]:
    """What is computed at run time of a value: numbers, and where its rows and slices of arrays are."""
    return (atom for atom in atoms_of(meaning) if not isinstance(atom.type, Array))


def vars_of(meaning: Meaning) -> tuple[Var, ...]:
    """The Vars that a parameter consists of, in order."""
    return tuple(atom for atom in atoms_of(meaning) if isinstance(atom, Var))


def type_of(meaning: Meaning) -> AnyType | None:
    """The type of a value of the program; None for plain tuples, and for what is known when it is lowered."""
    match meaning:
        case Typed():
            return meaning.type
        case ArrayRef():
            return Array(meaning.elem, meaning.ndim)
        case TupleOf(_, struct):
            return struct
        case StructArrayRef(_, struct):
            return StructArray(struct, meaning.ndim) if meaning.ndim else struct
        case _:
            return None


def is_view(meaning: Meaning) -> bool:
    """Whether it is a part of an array, not the whole."""
    match meaning:
        case ArrayRef(_, picks):
            return bool(picks)
        case StructArrayRef(indices=indices):
            return bool(indices)
        case _:
            return False


# ------------------------------------------------------------------------- parameters and leaves


def parameter(name: str, type: AnyType | ViewType, span: Span) -> Meaning:
    """A parameter of a def: a Var for each leaf."""
    match type:
        case ViewType():
            return array_views.parameter(name, type, span)
        case Struct(_, fields):
            parts = (parameter(f"{name}.{entry.name}", entry.type, span) for entry in fields)
            return TupleOf(tuple(parts), type)
        case StructArray(elem):
            vars = tuple(Var(leaf.type, leaf.name, span) for leaf in leaves(type, name))
            return StructArrayRef(name, elem, vars)
        case Array():
            return ArrayRef(Var(type, name, span))
        case Scalar() | Vec() | Mat():
            return Typed(Var(type, name, span))
        case _:
            assert_never(type)


def name_leaves(name: str, value: Meaning) -> None:
    """Name the unnamed leaves of a struct in the IR after its variable."""
    match value:
        case Typed(Var() as var) if not var.hint:
            var.hint = name
        case TupleOf(items, Struct()):
            for k, item in enumerate(items):
                name_leaves(value.label(name, k), item)


def atoms(frame: Frame, value: Meaning, node: ast.expr) -> list[Atom]:
    """The atoms of a value to hand to a function; raises Mistake where an array of a struct is not set."""
    if not isinstance(value, TupleOf) or value.struct is None:
        return list(atoms_of(value))
    for entry, item in zip(value.struct.fields, value.items, strict=True):
        if isinstance(item, NoArray):
            raise _unset(frame, node, value.struct, entry.name)
    return [atom for item in value.items for atom in atoms(frame, item, node)]


def first(array: StructArrayRef) -> ArrayRef:
    """An array of the same shape."""
    return ArrayRef(array.vars[0], array.indices)


def require(frame: Frame, value: Meaning, type: AnyType, node: ast.expr, purpose: str) -> Meaning:
    """A value of a type, converted where numbers may be; `purpose` completes the message: "q is"."""
    if isinstance(type, Value):
        return Typed(convert(frame, value, type, node, purpose))
    if type_of(value) == type and not is_view(value):
        return value
    own = _struct_of(value)
    wanted = type.elem if isinstance(type, StructArray) else type
    why = ""
    if own is not None and isinstance(wanted, Struct) and own.name == wanted.name and own != wanted:
        why = f" of another definition: {difference(wanted, own)}"
    raise frame.error(node, f"{purpose} {type}, not {describe(value)}{why}")


def _struct_of(value: Meaning) -> Struct | None:
    return value.struct if isinstance(value, TupleOf | StructArrayRef) else None


def refuse_local_arrays(frame: Frame, value: Meaning, node: ast.expr) -> None:
    """Raise Mistake where a function would return memory of its own, which ends with the call."""
    if any(isinstance(part, ArrayRef) and part.var in frame.locals for part in parts_of(value)):
        hint = "return a vector, or write into an array that is passed as an argument"
        message = "a function cannot return a local array, which ends with the call"
        raise frame.error(node, message, hint=hint)


# ------------------------------------------------------------------------- reading


def field(frame: Frame, base: Meaning, name: str, node: ast.expr) -> Meaning:
    """A field of a struct, loaded where the struct is an element of an array."""
    struct, k = _position(frame, base, name, node)
    match base:
        case TupleOf(items):
            if isinstance(items[k], NoArray):
                raise _unset(frame, node, struct, name)
            return items[k]
        case StructArrayRef():
            entered = base.field(k)
            return places.element(frame, entered) if isinstance(entered, ArrayRef) else entered
        case _:
            raise AssertionError(f"{base} is not a struct")


def _position(frame: Frame, base: Meaning, name: str, node: ast.expr) -> tuple[Struct, int]:
    struct = _struct_of(base)
    assert struct is not None
    k = struct.index(name)
    if k is None:
        names = ", ".join(entry.name for entry in struct.fields)
        raise frame.error(node, f"{struct} has no field {name}", "name", f"its fields are {names}")
    return struct, k


def _unset(frame: Frame, node: ast.expr, struct: Struct, name: str) -> Mistake:
    message = f"the array {name} of this {struct} is not set"
    hint = f"assign an array parameter to .{name} first"
    return NotSet(Diagnostic(message, frame.places(node), "unset", hint=hint))


def read(frame: Frame, base: Meaning, groups: Groups, node: ast.expr) -> Meaning:
    """Read the part that indices and component names select; whole structs of an array are not loaded."""
    while groups:
        if is_struct(base):
            base, groups = _enter(frame, base, groups[0], node), groups[1:]
        else:
            base, groups = places.step(frame, base, groups, node)
    return base


def _enter(frame: Frame, base: Meaning, group: Sequence[ast.expr], node: ast.expr) -> Meaning:
    if isinstance(group[0], Component):
        return field(frame, base, COMPONENTS[int(str(group[0].value))], node)
    if not isinstance(base, StructArrayRef) or base.ndim == 0:
        struct = _struct_of(base)
        assert struct is not None
        hint = f"take a field: {struct.fields[0].name}, for example" if struct.fields else "it has no fields"
        raise frame.error(node, f"a {struct} is not indexed", hint=hint)
    if len(group) > base.ndim:
        raise frame.error(node, f"{describe(base)} takes {counted(base.ndim, 'index')}, not {len(group)}")
    indices = tuple(index(frame, part) for part in group)
    return StructArrayRef(base.name, base.struct, base.vars, (*base.indices, *indices))


def loaded(frame: Frame, value: Meaning) -> Meaning:
    """A value; an element of an array of structs is copied out, leaf by leaf."""
    if not isinstance(value, StructArrayRef) or value.ndim:
        return value
    items = [
        places.element(frame, entered) if isinstance(entered, ArrayRef) else loaded(frame, entered)
        for entered in map(value.field, range(len(value.struct.fields)))
    ]
    return TupleOf(tuple(items), value.struct)


# ------------------------------------------------------------------------- making


def construct(frame: Frame, struct: Struct, arguments: Arguments, node: ast.expr) -> Meaning:
    """`Particle()`, `Particle(mass=2.0)`: fields in order or by name, the others as their defaults say."""
    if sum(argument.keyword is None for argument in arguments) > len(struct.fields):
        counts = f"{counted(len(struct.fields), 'field')}, not {len(arguments)}"
        raise frame.error(node, f"{struct} has {counts}")
    values: dict[int, Meaning] = {}
    for position, argument in enumerate(arguments):
        word, part = argument.keyword, argument.node
        k = position if word is None else _position(frame, TupleOf((), struct), word, part)[1]
        if k in values:
            raise frame.error(part, f"{struct} gets two values for {struct.fields[k].name}")
        entry = struct.fields[k]
        values[k] = require(frame, argument.value, entry.type, part, f"{entry.name} of {struct} is")
    items = [values[k] if k in values else default(frame, entry) for k, entry in enumerate(struct.fields)]
    return TupleOf(tuple(items), struct)


def default(frame: Frame, entry: Field) -> Meaning:
    """The value of a field that is not set: its default, else zeros; not for arrays."""
    if isinstance(entry.default, Traced):
        frame.scope.constants[id(entry), entry.name] = Constant({}, entry.name, entry.default)
    match entry.type:
        case Struct() as inner:
            return construct(frame, inner, (), ast.Constant(0, lineno=1, col_offset=0))
        case Array() | StructArray() as type:
            return NoArray(type)
        case type if entry.default is None:
            return Typed(zero(type))
        case Scalar() as type:
            return Typed(constant(untraced(entry.default), type))
        case type:
            return places.vector_constant(frame, HostArray(np.asarray(entry.default), type))


# ------------------------------------------------------------------------- writing


def place(frame: Frame, target: ast.expr) -> Place:
    """The place that a subscript or attribute on the left of an assignment names."""
    if any(part in frame.refused for part in ast.walk(target)):
        raise Poisoned
    root, steps = places.steps_of(target)
    base = frame.value(root) if isinstance(root, ast.Name) else None
    if base is None or not is_struct(base):
        return _without_structs(frame, target)
    assert isinstance(root, ast.Name)
    path: list[int] = []
    while steps and is_struct(base):
        step = steps.pop(0)
        if isinstance(step, ast.Attribute):
            _, k = _position(frame, base, step.attr, step)
            if isinstance(base, StructArrayRef):
                base = base.field(k)
            else:
                assert isinstance(base, TupleOf)
                base = base.items[k]
                path.append(k)
        else:
            base = _enter(frame, base, step, target)
    return _place(frame, target, root.id, tuple(path), base, _groups(frame, base, steps))


def _place(
    frame: Frame, target: ast.expr, name: str, path: tuple[int, ...], base: Meaning, groups: Groups
) -> Place:
    match base:
        case Typed():
            components = places.component_path(frame, base.type, groups, target)
            return Place(target, base.type, name, path, components=components)
        case ArrayRef(picks=()) if not groups and path:
            return Place(target, base.type, name, path)
        case ArrayRef():
            return places.array_place(frame, base, groups, target)
        case NoArray(type) if not groups:
            return Place(target, type, name, path)
        case StructArrayRef(struct=struct) if base.ndim == 0:
            return Place(target, struct, arrays=base.vars, indices=base.indices)
        case StructArrayRef(struct=struct, indices=()) if path:
            return Place(target, StructArray(struct, base.ndim), name, path)
        case StructArrayRef():
            message = f"{describe(base)} needs {counted(base.ndim, 'index')} more to be assigned"
            raise frame.error(target, message, hint="write a loop over the rest")
        case TupleOf(_, Struct() as struct):
            return Place(target, struct, name, path)
        case _:
            message = f"{frame.places.text(target)} cannot be assigned: the array is not set"
            raise frame.error(target, message, hint="set the field to an array parameter first")


def _without_structs(frame: Frame, target: ast.expr) -> Place:
    """The same where neither a struct nor an array of structs is assigned to."""
    # Several letters count where they are assigned: what they give when read is a value of its own.
    root, steps = places.steps_of(target, places.names_components)
    groups = places.groups_of(steps)
    base = frame.value(root)
    if not groups:
        raise _not_assignable(frame, target, base)
    if isinstance(base, ArrayRef):
        return places.array_place(frame, base, groups, target)
    if not isinstance(root, ast.Name) or root.id not in frame.env or not isinstance(base, Typed):
        raise _not_assignable(frame, target, base)
    if isinstance(base.type, Scalar):
        hint = f"write {root.id} for the number itself; a result needs {root.id}: array[{spelled(base.type)}]"
        raise frame.error(target, f"{root.id} is {describe(base)}: it has no components to assign", hint=hint)
    return _place(frame, target, root.id, (), base, groups)


def _not_assignable(frame: Frame, target: ast.expr, base: Meaning) -> Exception:
    text = frame.places.text(target)
    if isinstance(base, HostArray | Typed):
        hint = "copy it into a variable first, and assign to that"
        return frame.error(target, f"{text} cannot be assigned: it is not a variable of this def", hint=hint)
    hint = "assign to a variable, an array element or a component"
    return frame.error(target, f"{text} cannot be assigned", hint=hint)


def _groups(frame: Frame, base: Meaning, steps: Sequence[Step]) -> Groups:
    """The remaining steps below a leaf: indices and the names of components."""
    for step in steps:
        if isinstance(step, ast.Attribute) and not places.names_components(step.attr):
            raise frame.error(step, f"{describe(base)} has no {step.attr}", "name")
    return places.groups_of(steps)


def no_number(frame: Frame, spot: Place) -> Mistake:
    """The mistake of `+=` on a struct."""
    text = ast.unparse(spot.node)
    hint = ""
    if isinstance(spot.type, Struct) and spot.type.fields:
        hint = f"change its fields: {text}.{spot.type.fields[0].name} += ..."
    return frame.error(spot.node, f"{text} is {spot.type}, not a number", hint=hint)
