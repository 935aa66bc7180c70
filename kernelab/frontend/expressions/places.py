"""Elements and components: what `a[i, j]`, `v.x`, `m[i][j]` and `a[i].x` read and write.

A component write is a functional insert into the variable or the element that holds it.
"""

import ast
from collections.abc import Callable, Sequence
from itertools import product

from kernelab.data_classes import dataclass
from kernelab.errors import counted
from kernelab.frontend.meaning import array_views, unsupported
from kernelab.frontend.meaning.array_views import index
from kernelab.frontend.meaning.frame import Frame
from kernelab.frontend.meaning.meanings import (
    ArrayRef,
    HostArray,
    Meaning,
    TupleOf,
    Typed,
    Weak,
    describe,
    is_number,
    numbers,
)
from kernelab.frontend.meaning.promote import cast, convert, nearest
from kernelab.lang.build import constant, integer, zero
from kernelab.lang.ir import Atom, Const, Var
from kernelab.lang.structs import AnyType
from kernelab.lang.types import Mat, Quat, Scalar, Transform, Value, Vec, float32, int32, spelled

Groups = list[list[ast.expr]]
COMPONENTS = ("x", "y", "z", "w")


class Component(ast.Constant):
    """The index that a component's name stands for."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some components of a vector or matrix: the type that they make up, and the place of each, by rows."""

    type: Vec | Mat
    places: tuple[tuple[Atom, ...], ...]


def _part(frame: Frame, type: Vec | Mat, group: Sequence[ast.expr]) -> Part:
    """The part of a vector or matrix that indices and slices select."""
    if len(group) > len(type.shape):
        raise frame.error(group[0], f"{type} takes {counted(len(type.shape), 'index')}, not {len(group)}")
    axes: list[list[Atom]] = []
    lengths: list[int] = []
    for axis, extent in enumerate(type.shape):
        node = group[axis] if axis < len(group) else None
        if node is None or isinstance(node, ast.Slice):
            chosen = range(extent) if node is None else positions(frame, node, extent, type)
            axes.append([integer(k) for k in chosen])
            lengths.append(len(chosen))
        else:
            axes.append([_component_index(frame, node, extent, type)])
    shape: Vec | Mat = Vec(type.scalar, lengths[0])
    if len(lengths) == 2:
        shape = Mat(type.scalar, *lengths)
    elif isinstance(group[0], Swizzle) and group[0].letters == "q":
        shape = Quat(type.scalar)
    return Part(shape, tuple(product(*axes)))


PARTS = {"p": range(3), "q": range(3, 7)}
"""The components of a transform that its attributes stand for."""


class Swizzle(ast.Slice):
    """Letters that stand for several components: the `zx` of `v.zx = vec2()`, the `p` of a transform."""

    def __init__(self, letters: str) -> None:
        super().__init__()
        self.letters = letters


def positions(frame: Frame, node: ast.Slice, extent: int, type: Value) -> Sequence[int]:
    """The positions of a slice, of which there may be none."""
    if isinstance(node, Swizzle):
        return _lettered(frame, node, extent, type)
    bounds = _bounds(frame, node)
    if bounds is None:
        hint = "pick the components one by one"
        raise frame.error(node, f"the bounds of a slice of {type} have to be constants", hint=hint)
    if bounds[2] == 0:
        raise frame.error(node, "the slice step cannot be zero", "value")
    return range(extent)[slice(*bounds)]


def _lettered(frame: Frame, node: Swizzle, extent: int, type: Value) -> Sequence[int]:
    if isinstance(type, Transform) and node.letters in PARTS:
        return PARTS[node.letters]
    chosen = ["xyzw".find(letter) for letter in node.letters]
    if max(chosen) >= extent or min(chosen) < 0 or not isinstance(type, Vec):
        raise frame.error(node, f"{type} has no {node.letters}", "name", f"it has {extent} components")
    if len(set(chosen)) < len(chosen):
        raise frame.error(node, f"{node.letters} names a component twice", "value", "assign it once")
    return chosen


def _bounds(frame: Frame, node: ast.Slice) -> list[int | None] | None:
    bounds: list[int | None] = []
    for bound in (node.lower, node.upper, node.step):
        match None if bound is None else frame.value(bound):
            case None:
                bounds.append(None)
            case Weak(int() as number) | Typed(Const(int() as number)):
                bounds.append(int(number))
            case _:
                return None
    return bounds


def read_part(frame: Frame, whole: Atom, chosen: Part) -> Atom:
    """The components as a vector or matrix of their own."""
    parts = [frame.builder.apply("extract", whole, *place) for place in chosen.places]
    return frame.builder.joined(chosen.type, parts)


def few(frame: Frame, array: Meaning, node: ast.Slice) -> list[Meaning] | None:
    """The elements that a slice with constant bounds from the start of a whole array has; None for others."""
    bounds = _bounds(frame, node)
    if not isinstance(array, ArrayRef) or bounds is None or bounds[1] is None:
        return None
    if not array.is_row or array.ndim != 1 or any(bound is not None and bound < 0 for bound in bounds):
        return None
    chosen = range(bounds[1])[slice(*bounds)]
    return [Typed(frame.builder.load(array.var, (*array.indices, integer(k)))) for k in chosen]


# ----------------------------------------------------------------------------------- elements and components


Step = ast.Attribute | list[ast.expr]
"""An attribute, or the indices of a subscript."""


def steps_of(node: ast.expr, takes: Callable[[str], bool] = lambda attr: True) -> tuple[ast.expr, list[Step]]:
    """The root of nested subscripts, and attributes that it `takes`, and these from left to right."""
    steps: list[Step] = []
    while True:
        match node:
            case ast.Subscript(value=inner, slice=ast.Tuple(elts=indices)):
                steps.append(indices)
            case ast.Subscript(value=inner, slice=index):
                steps.append([index])
            case ast.Attribute(value=inner, attr=attr) if takes(attr):
                steps.append(node)
            case _:
                return node, steps[::-1]
        node = inner


def groups_of(steps: Sequence[Step]) -> Groups:
    """The indices of each step, those that the names of components stand for too."""
    return [[named(step)] if isinstance(step, ast.Attribute) else step for step in steps]


def is_component(attr: str) -> bool:
    """Whether a name stands for one component."""
    return attr in COMPONENTS


def names_components(attr: str) -> bool:
    """Whether a name stands for components: by their letters, or as a part of a transform."""
    return (bool(attr) and set(attr) <= set(COMPONENTS)) or attr in PARTS


def named(node: ast.Attribute) -> ast.expr:
    """The index that the name of a component, or of several, stands for; it stands where the name does."""
    attr = node.attr
    new = Component(COMPONENTS.index(attr)) if attr in COMPONENTS else Swizzle(attr)
    ast.copy_location(new, node)
    new.lineno = node.end_lineno or node.lineno
    new.col_offset = (node.end_col_offset or len(attr)) - len(attr)
    return new


def step(frame: Frame, base: Meaning, groups: Groups, node: ast.expr) -> tuple[Meaning, Groups]:
    """The part of a value that the first indices select, and the indices that are left."""
    refuse_component(frame, base, groups[0], node)
    match base:
        case ArrayRef():
            return element(frame, array_views.enter(frame, base, groups[0], node)), groups[1:]
        case Typed() if isinstance(base.type, Vec | Mat):
            indices, *rest = _joined(base.type, groups)
            if array_views.has_slice(indices):
                return Typed(read_part(frame, base.atom, _part(frame, base.type, indices))), rest
            return _taken(frame, base.atom, component_atoms(frame, base.type, indices)), rest
        case TupleOf(items):
            return _item(frame, items, groups[0]), groups[1:]
        case _:
            hint = "only arrays, vectors, matrices and tuples can be indexed"
            if isinstance(node, ast.Subscript):
                text = frame.places.text(node.value)
                is_scalar = isinstance(base, Typed) and isinstance(base.type, Scalar)
                alone = f"{text} is one number already: leave the brackets out" if is_scalar else ""
                hint = unsupported.hint_of_uncalled(base, text) or alone or hint
            raise frame.error(node, f"{describe(base)} has no components", hint=hint)


def swizzled(frame: Frame, node: ast.Attribute, base: Typed, letters: str) -> Typed:
    """`v.xz`: some components of a vector as a vector, in the order of the letters."""
    assert isinstance(base.type, Vec)
    wanted = [COMPONENTS.index(letter) for letter in letters]
    if max(wanted) >= base.type.n or len(wanted) > len(COMPONENTS):
        hint = f"it has {', '.join(COMPONENTS[: base.type.n])}"
        raise frame.error(node, f"{describe(base)} has no {letters}", "name", hint)
    parts = [frame.builder.apply("extract", base.atom, integer(k)) for k in wanted]
    return Typed(frame.builder.apply(str(Vec(base.type.scalar, len(wanted))), *parts))


def refuse_component(frame: Frame, base: Meaning, group: Sequence[ast.expr], node: ast.expr) -> None:
    """Raise Mistake where `.x` follows a value that is not a vector."""
    if isinstance(base, Typed) and isinstance(base.type, Vec):
        return
    match group:
        case [Component(value=number), *_]:
            name = COMPONENTS[int(str(number))]
        case [Swizzle(letters=name), *_]:
            pass
        case _:
            return
    hint = f"index it first: {base.var.hint}[i].{name}" if isinstance(base, ArrayRef) else ""
    if is_number(base):
        is_thread = frame.places.text(node).startswith("tid()")
        hint = "write i, j = tid() for the two indices of a grid" if is_thread else "it is one number"
    raise frame.error(node, f"{describe(base)} has no {name}", "name", hint)


def element(frame: Frame, entered: ArrayRef) -> Meaning:
    """A view, or the element that is left if it has no axes."""
    if entered.ndim:
        return entered
    return Typed(frame.builder.load(entered.var, entered.indices))


def _joined(type: Value, groups: Groups) -> Groups:
    """The indices that select within a vector or matrix: `m[i][j]` counts as `m[i, j]`."""
    match groups:
        case [[row], [column], *rest] if isinstance(type, Mat) and not array_views.has_slice([row]):
            return [[row, column], *rest]
        case _:
            return groups


def component_atoms(frame: Frame, type: Value, indices: Sequence[ast.expr]) -> tuple[Atom, ...]:
    """Component indices, counted from the start and inside the vector or matrix."""
    assert isinstance(type, Vec | Mat)
    if len(indices) > len(type.shape):
        raise frame.error(indices[0], f"{type} takes {counted(len(type.shape), 'index')}, not {len(indices)}")
    return tuple(
        _component_index(frame, part, extent, type) for part, extent in zip(indices, type.shape, strict=False)
    )


def _component_index(frame: Frame, node: ast.expr, extent: int, type: Value) -> Atom:
    atom = index(frame, node)
    if not extent:
        raise frame.error(node, f"{type} has no components", "value")
    if isinstance(atom, Const):
        number = int(atom.value)
        if not -extent <= number < extent:
            last = (
                f".{COMPONENTS[extent - 1]} or [{extent - 1}]"
                if isinstance(type, Vec) and extent <= len(COMPONENTS)
                else f"[{extent - 1}]"
            )
            hint = f"the last one is {last}"
            raise frame.error(node, f"{type} has no component {number}", "value", hint=hint)
        return integer(number % extent)
    if frame.bounds.get(atom, extent + 1) <= extent:
        return cast(frame, atom, int32)
    with frame.builder.at(frame.places(node)):
        narrow = nearest(frame, atom, int32)
        above = frame.builder.apply("ge", narrow, integer(0))
        below = frame.builder.apply("lt", narrow, integer(extent))
        frame.builder.check(
            frame.builder.apply("and", above, below), "assertion", f"a component index outside of {type}"
        )
        return narrow


def _item(frame: Frame, items: Sequence[Meaning], group: Sequence[ast.expr]) -> Meaning:
    is_slice = isinstance(group[0], ast.Slice)
    match frame.value(group[0]) if len(group) == 1 and not is_slice else None:
        case Weak(int() as number) if -len(items) <= number < len(items):
            return items[number]
        case Typed() as value if items and isinstance(value.type, Scalar) and value.type.is_int:
            chosen = _chosen_item(frame, items, value.atom, group[0])
            if chosen is not None:
                return chosen
    last = len(items) - 1
    message = f"a tuple of {len(items)} is indexed by a constant from 0 to {last}"
    of_one = "where its items are of one type, the index may be a variable"
    raise frame.error(group[0], message, hint="take its items one by one" if is_slice else of_one)


def _chosen_item(frame: Frame, items: Sequence[Meaning], index: Atom, node: ast.expr) -> Meaning | None:
    """The item at an index that is known at run time; None where the items are not of one type."""
    types = list(dict.fromkeys(item.type for item in items if isinstance(item, Typed)))
    kinds = {type(item.number) for item in items if isinstance(item, Weak)}
    if len(types) > 1 or not all(isinstance(item, Weak | Typed) for item in items) or bool in kinds:
        return None
    if kinds and types and not isinstance(types[0], Scalar):
        return None
    elem = types[0] if types else float32 if float in kinds else int32
    b = frame.builder
    with b.at(frame.places(node)):
        chosen, k = convert(frame, items[-1], elem, node, "this item is"), nearest(frame, index, int32)
        inside = b.apply("and", b.apply("ge", k, integer(0)), b.apply("lt", k, integer(len(items))))
        b.check(inside, "assertion", f"an index outside of a tuple of {len(items)}")
        for position, item in reversed(list(enumerate(items[:-1]))):
            here = convert(frame, item, elem, node, "this item is")
            chosen = b.apply("where", b.apply("eq", k, integer(position)), here, chosen)
    return Typed(chosen)


@dataclass(frozen=True, slots=True)
class Place:
    """The target of an assignment: a part of the variable `name`, or an element of `arrays` at `indices`.

    `path` are the positions of fields where the variable is a struct; an array of structs has an array for
    each leaf.  `held` is the type of what stands there, `components` the indices within a vector or matrix.
    """

    node: ast.expr
    held: AnyType
    name: str | None = None
    path: tuple[int, ...] = ()
    arrays: tuple[Var, ...] = ()
    indices: tuple[Atom, ...] = ()
    components: tuple[Atom, ...] | Part = ()

    @property
    def array(self) -> Var | None:
        """The array, or the first of several, of which it is an element."""
        return self.arrays[0] if self.arrays else None

    @property
    def type(self) -> AnyType:
        """The type of what is written."""
        if isinstance(self.components, Part):
            return self.components.type
        match self.held, len(self.components):
            case _, 0:
                return self.held
            case Mat(scalar, _, m), 1:
                return Vec(scalar, m)
            case (Vec() | Mat()) as whole, _:
                return whole.scalar
            case _:
                return self.held


def array_place(frame: Frame, array: ArrayRef, groups: Groups, target: ast.expr) -> Place:
    """The place of an element, or of a component of one."""
    rest, has_slice = array, any(map(array_views.has_slice, groups))
    while groups and rest.ndim:
        refuse_component(frame, rest, groups[0], target)
        rest, groups = array_views.enter(frame, rest, groups[0], target), groups[1:]
    if rest.ndim and (has_slice or not rest.is_row):
        # An assignment takes the rows and slices of variables itself; this is one of what a call has given.
        hint = "write a loop over its elements"
        raise frame.error(target, f"{describe(rest)} cannot be assigned at once", hint=hint)
    if rest.ndim:
        message = f"{describe(array)} needs {counted(rest.ndim, 'index')} more to be assigned"
        hint = f"write {ast.unparse(target)[:-1]}{', :' * rest.ndim}] = ..., or a loop over the rest"
        if isinstance(target, ast.Attribute):
            indices = ", ".join("ijkl"[: rest.ndim])
            hint = f"write {ast.unparse(target.value)}[{indices}].{target.attr} = ... for one element"
        raise frame.error(target, message, hint=hint)
    components = component_path(frame, array.elem, groups, target)
    return Place(target, array.elem, arrays=(array.var,), indices=rest.indices, components=components)


def component_path(frame: Frame, type: Value, groups: Groups, target: ast.expr) -> tuple[Atom, ...] | Part:
    """The indices of a component, or a slice, that is to be written within a vector or matrix."""
    if not groups:
        return ()
    if isinstance(type, Scalar):
        hint = "one number has one index fewer: write y[i, j], and annotate y: array2d[float], for a table"
        raise frame.error(target, f"{spelled(type)} has no components to assign", hint=hint)
    if isinstance(type, Mat):
        refuse_component(frame, Typed(zero(type)), groups[0], target)
    indices, *rest = _joined(type, groups)
    if array_views.has_slice(indices) and not rest:
        return _part(frame, type, indices)
    if isinstance(type, Transform) and isinstance(indices[0], Swizzle):
        return _within_part(frame, _part(frame, type, indices), rest, target)
    if rest:
        raise frame.error(target, f"{type} has too many indices here")
    return component_atoms(frame, type, indices)


def _within_part(frame: Frame, part: Part, groups: Groups, target: ast.expr) -> tuple[Atom, ...] | Part:
    """The components that indices select of a part of a transform, such as `t.p.x` or `t.q[i]`."""
    (start,), *_ = part.places
    inner = component_path(frame, part.type, groups, target)
    if isinstance(inner, Part):
        moved = ((frame.builder.apply("add", k, start),) for (k,) in inner.places)
        return Part(inner.type, tuple(moved))
    return (frame.builder.apply("add", *inner, start),)


def load(frame: Frame, target: Place) -> Typed:
    """Read the value of a place."""
    return _taken(frame, _held(frame, target), target.components)


def _taken(frame: Frame, whole: Atom, components: tuple[Atom, ...] | Part) -> Typed:
    """A value, or a component, a row or a part of it."""
    if isinstance(components, Part):
        return Typed(read_part(frame, whole, components))
    if not components:
        return Typed(whole)
    operation = "row" if isinstance(whole.type, Mat) and len(components) == 1 else "extract"
    return Typed(frame.builder.apply(operation, whole, *components))


def _held(frame: Frame, target: Place) -> Atom:
    if target.array is not None:
        return frame.builder.load(target.array, target.indices)
    value = frame.env[target.name or ""]
    if isinstance(value, TupleOf) and target.path:
        value = value.at(target.path)
    assert isinstance(value, Typed)
    return value.atom


def store(frame: Frame, target: Place, value: Meaning) -> None:
    """Write a value, which has the place's type."""
    if target.components:
        (part,) = numbers(value)
        value = Typed(inserted(frame, _held(frame, target), target, part))
    if target.name is None:
        for array, atom in zip(target.arrays, numbers(value), strict=True):
            frame.builder.store(array, target.indices, atom)
        return
    if target.path:
        around = frame.env[target.name]
        assert isinstance(around, TupleOf)
        value = around.replaced(target.path, value)
    elif isinstance(value, Typed) and isinstance(value.atom, Var):
        value.atom.hint = target.name
    frame.env[target.name] = value


def inserted(frame: Frame, whole: Atom, target: Place, value: Atom) -> Atom:
    """A vector or matrix with some components, or one row, replaced."""
    chosen = target.components
    if isinstance(chosen, Part):
        at: Sequence[tuple[Atom, ...]] = chosen.places
    elif isinstance(target.held, Mat) and len(chosen) == 1:
        at = [(*chosen, integer(column)) for column in range(target.held.m)]
    else:
        return frame.builder.apply("insert", whole, *chosen, value)
    for entry, indices in zip(frame.builder.components(value), at, strict=True):
        whole = frame.builder.apply("insert", whole, *indices, entry)
    return whole


def accumulate(frame: Frame, target: Place, value: Atom) -> Typed:
    """Add to an array element, atomically; the result is what it held before."""
    assert target.array is not None and isinstance(target.held, Value)
    alone = inserted(frame, zero(target.held), target, value) if target.components else value
    return _taken(frame, frame.builder.atomic_add(target.array, target.indices, alone), target.components)


def vector_constant(frame: Frame, value: HostArray) -> Typed:
    """A small NumPy array of the notebook as a constant vector or matrix."""
    assert isinstance(value.type, Vec | Mat)
    entries = [constant(number, value.type.scalar) for number in value.array.ravel().tolist()]
    return Typed(frame.builder.apply(str(value.type), *entries))
