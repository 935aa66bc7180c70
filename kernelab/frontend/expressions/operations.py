"""Lowers casts, constructors, and operations that need more than the application of a record.

`float(x)`, `vec3(x, y, z)`, `matrix(..., shape=(2, 3))` and `identity(n)` make values.  `/` of ints gives a
float, `//` and `%` follow Python, and an integer divisor is checked before it is used.

    u, sigma, v = svd3(a)       svd3(a, u, sigma, v)

Below the frontend an operation has one result: the components of all of them, in one vector.
"""

import ast
from collections.abc import Mapping, Sequence

from kernelab.errors import Diagnostic, Severity
from kernelab.frontend.expressions.passing import in_order
from kernelab.frontend.meaning import annotations
from kernelab.frontend.meaning.frame import Frame
from kernelab.frontend.meaning.meanings import (
    Argument,
    Arguments,
    ArrayRef,
    Meaning,
    TupleOf,
    Typed,
    Weak,
    describe,
    is_number,
)
from kernelab.frontend.meaning.promote import cast, convert, operate, weak_constant
from kernelab.frontend.meaning.scope import draws, filled, state_of
from kernelab.guidance.hint_tables import OF_WARP
from kernelab.lang import ops
from kernelab.lang.build import constant, type_of, zero
from kernelab.lang.ir import Atom, Var
from kernelab.lang.operators import SYMBOLS
from kernelab.lang.types import (
    Mat,
    Quat,
    Scalar,
    Transform,
    Value,
    Vec,
    bool_,
    float32,
    float64,
    scalar_of,
    size_of,
    uint32,
    with_scalar,
)


def number(frame: Frame, name: str, argument: Argument) -> Weak | Typed:
    """An argument as a number, vector or matrix."""
    if isinstance(argument.value, Weak | Typed):
        return argument.value
    is_array = isinstance(argument.value, ArrayRef)
    hint = "index the array to take one element, or write a loop over its elements" if is_array else ""
    if isinstance(argument.value, TupleOf) and argument.value.items:
        items = argument.value.items
        hint = f"take one of its items, such as «{argument.value.first(ast.unparse(argument.node))}»"
        if argument.value.struct is None and len(items) > 1 and "int32" not in map(describe, items):
            hint = f"a tuple is not a vector: write vec{len(items)}(...) where it is made"
    raise frame.error(argument.node, f"{name} takes numbers, not {describe(argument.value)}", hint=hint)


def shaped_value(frame: Frame, name: str, arguments: Arguments, node: ast.Call) -> Meaning:
    """`vector(...)`, `matrix(...)` and `identity(...)`, whose keywords say which type is meant."""
    if name in annotations.ROTATIONS:
        words = [a for a in arguments if a.keyword == "dtype"]
        arguments = [*in_order(frame, name, [a for a in arguments if a not in words], node), *words]
    named = {a.keyword: a.value for a in arguments if a.keyword is not None}
    named |= _extent_of(name, named, arguments)
    is_identity = name in annotations.IDENTITIES
    plain = [] if is_identity else [a for a in arguments if a.keyword is None]
    operands = [number(frame, name, argument) for argument in plain]
    first = [a.value for a in arguments if a.keyword is None and is_identity]
    kinds = [operand.type for operand in operands]
    kinds.sort(key=lambda kind: not scalar_of(kind).is_float)
    try:
        type = annotations.shaped_type(name, annotations.type_words(name, first, named), kinds)
    except annotations.Unshaped as error:
        raise frame.error(node, error.message, hint=error.hint) from None
    if is_identity:
        return _built(frame, type, [constant(one, type.scalar) for one in annotations.identity_pattern(type)])
    match operands:
        case [Typed() as p] if name == "transformation" and p.type == Vec(type.scalar, 3):
            return _shifted(frame, type, p)
        case _:
            return construct(frame, type, plain, node)


def _extent_of(name: str, named: Mapping[str, Meaning], arguments: Arguments) -> dict[str, Meaning]:
    """The length or shape that `vector(v, dtype=...)` takes over from a vector or matrix of another type."""
    match name, [argument.value for argument in arguments if argument.keyword is None]:
        case "vector", [Typed() as only] if isinstance(only.type, Vec) and "length" not in named:
            return {"length": Weak(only.type.n)}
        case "matrix", [Typed() as only] if isinstance(only.type, Mat) and "shape" not in named:
            return {"shape": TupleOf((Weak(only.type.n), Weak(only.type.m)))}
        case _:
            return {}


def construct(frame: Frame, type: Value, arguments: Arguments, node: ast.Call) -> Meaning:
    """`float(x)`, `vec3(x, y, z)`, `vec3(0.0)`, `vec3()`, `mat22(...)` by rows, or one from another."""
    operands = [number(frame, str(type), argument) for argument in arguments]
    if isinstance(type, Scalar):
        return _scalar_cast(frame, type, operands, arguments, node)
    match operands:
        case []:
            if isinstance(type, Transform):
                message = f"{type}() is all zeros in a kernel, as in Warp; on the host it moves nothing"
                hint = f"write transform_identity(), or {type}(0.0) where zeros are meant"
                frame.notes.append(Diagnostic(message, frame.places(node), "transform", "warning", hint=hint))
            return Typed(zero(type))
        case [Weak(value)]:
            return Typed(weak_constant(frame, value, type, node))
        case [Typed() as only] if isinstance(only.type, Scalar):
            return _built(frame, type, [_entry(frame, only, type, arguments[0])] * size_of(type))
        case [Typed() as only] if isinstance(only.type, Vec | Mat) and only.type.shape == type.shape:
            return only if only.type == type else _built(frame, type, _cast_entries(frame, only, type))
        case _ if (
            isinstance(type, Mat)
            and len(operands) == type.n
            and all(isinstance(o, Typed) and o.type == Vec(type.scalar, type.m) for o in operands)
        ):
            rows = [frame.builder.components(o.atom) for o in operands if isinstance(o, Typed)]
            return _built(frame, type, [entry for row in rows for entry in row])
        case _ if isinstance(type, Vec) and _makes_up(operands, type):
            written = zip(operands, arguments, strict=True)
            return _built(frame, type, [part for o, a in written for part in _entries(frame, o, type, a)])
        case _ if len(operands) == size_of(type) and all(map(is_number, operands)):
            return _built(
                frame, type, [_entry(frame, o, type, a) for o, a in zip(operands, arguments, strict=True)]
            )
        case [Typed() as p] if isinstance(type, Transform) and p.type == Vec(type.scalar, 3):
            return _shifted(frame, type, p)
        case _:
            shown = ", ".join(describe(operand) for operand in operands)
            hint = f"give all {size_of(type)}, or one number for every component"
            raise frame.error(node, f"{type} takes 0, 1 or {size_of(type)} numbers, not ({shown})", hint=hint)


def _makes_up(operands: Sequence[Weak | Typed], type: Vec) -> bool:
    """Whether vectors, and numbers of their type, make up a longer vector, as in `vec6(v, w)`."""
    types = [o.type for o in operands if isinstance(o, Typed)]
    alike = all(not isinstance(t, Mat) and scalar_of(t) == type.scalar for t in types)
    literals = len(operands) - len(types)
    any_vector = any(isinstance(t, Vec) for t in types)
    return alike and any_vector and sum(size_of(t) for t in types) + literals == type.n


def _entries(frame: Frame, operand: Weak | Typed, type: Vec, argument: Argument) -> list[Atom]:
    if isinstance(operand, Weak):
        return [_entry(frame, operand, type, argument)]
    return [operand.atom] if isinstance(operand.type, Scalar) else _cast_entries(frame, operand, type)


def _entry(frame: Frame, operand: Weak | Typed, type: Vec | Mat, argument: Argument) -> Atom:
    return convert(frame, operand, type.scalar, argument.node, f"a component of {type} is")


def _shifted(frame: Frame, type: Vec | Mat, p: Typed) -> Typed:
    """The rigid motion that only shifts."""
    turned = [constant(one, type.scalar) for one in annotations.identity_pattern(Quat(type.scalar))]
    return _built(frame, type, [*_cast_entries(frame, p, type), *turned])


def _cast_entries(frame: Frame, value: Typed, type: Vec | Mat) -> list[Atom]:
    return [cast(frame, entry, type.scalar) for entry in frame.builder.components(value.atom)]


def _built(frame: Frame, type: Value, entries: Sequence[Atom]) -> Typed:
    return Typed(frame.builder.joined(type, entries))


def _scalar_cast(
    frame: Frame, type: Scalar, operands: Sequence[Weak | Typed], arguments: Arguments, node: ast.Call
) -> Meaning:
    match operands:
        case []:
            return Typed(zero(type))
        case [Weak(value)]:
            return _cast_literal(frame, type, value, node)
        case [Typed() as only] if isinstance(only.type, Scalar):
            return Typed(cast(frame, only.atom, type))
        case [Typed() as only]:
            hint = f"take one component, such as {frame.places.text(arguments[0].node)}[0]"
            raise frame.error(node, f"{type} takes one number, not {only.type}", hint=hint)
        case _:
            raise frame.error(node, f"{type} takes one number, not {len(operands)}")


def _cast_literal(frame: Frame, type: Scalar, value: bool | int | float, node: ast.Call) -> Meaning:
    """`float(3)` stays a literal; `float32(3)` is a constant of that type."""
    try:
        converted: bool | int | float = (
            bool(value) if type == bool_ else int(value) if type.is_int else float(value)
        )
    except (OverflowError, ValueError) as error:
        raise frame.error(node, f"this cannot be computed: {error}", "value") from None
    match node.func:
        case ast.Name("float" | "int" | "bool"):
            return Weak(converted)
        case _:
            return Typed(weak_constant(frame, converted, type, node))


# ---------------------------------------------------------------------------------------- division and powers


BINARY = ("div", "floordiv", "mod", "pow")
"""The operations of two values that depend on more than their types."""
Parts = Sequence[ast.expr]


def binary(
    frame: Frame, name: str, left: Weak | Typed, right: Weak | Typed, node: ast.expr, parts: Parts
) -> Weak | Typed:
    """One of `BINARY` of two values, as Python means it."""
    if name == "pow":
        return _power(frame, left, right, node, parts)
    if not (isinstance(left, Weak) and isinstance(right, Weak)) and _is_int(left) and _is_int(right):
        return _int_division(frame, name, left, right, node, parts)
    if (shaped := _shaped_ints(left, right)) is not None:
        return _by_component(frame, name, (left, right), shaped, node, parts)
    result = operate(frame, name, [left, right], node, parts)
    if name == "mod":
        _note_warp(frame, name, node, (left, right))
    return result


def _shaped_ints(left: Weak | Typed, right: Weak | Typed) -> Vec | Mat | None:
    """The type of the vectors or matrices of ints that are divided component by component, if they are."""
    types: list[Vec | Mat] = []
    for value in (left, right):
        if isinstance(value, Typed) and isinstance(value.type, Vec | Mat) and value.type.scalar.is_int:
            types.append(value.type)
        elif not _is_int(value):
            return None
    return types[0] if types and types[0].shape == types[-1].shape else None


def _by_component(
    frame: Frame, name: str, values: Sequence[Weak | Typed], type: Vec | Mat, node: ast.expr, parts: Parts
) -> Typed:
    """Vectors or matrices of ints divided as their components are; a number goes with each of them."""
    noted = len(frame.notes)
    atoms: list[Atom] = []
    columns = [
        [value] * size_of(type)
        if isinstance(value, Weak) or is_number(value)
        else [Typed(x) for x in frame.builder.components(value.atom)]
        for value in values
    ]
    for left, right in zip(*columns, strict=True):
        quotient = _int_division(frame, name, left, right, node, parts)
        assert isinstance(quotient, Typed)
        atoms.append(quotient.atom)
    del frame.notes[noted + 1 :]
    return Typed(frame.builder.joined(with_scalar(type, scalar_of(type_of(atoms[0]))), atoms))


def _is_int(value: Weak | Typed) -> bool:
    return isinstance(value.type, Scalar) and value.type.is_int


def _int_division(
    frame: Frame, name: str, left: Weak | Typed, right: Weak | Typed, node: ast.expr, parts: Parts
) -> Weak | Typed:
    if isinstance(right, Weak) and right.number == 0:
        raise frame.error(node, "division by zero", "value")
    types = [value.type for value in (left, right) if isinstance(value, Typed)]
    _note_warp(frame, name, node, (left, right))
    if isinstance(right, Typed):
        nonzero = frame.builder.apply("ne", right.atom, zero(right.type))
        frame.builder.check(nonzero, "division", "integer division by zero")
    weak = all(value.is_weak for value in (left, right) if isinstance(value, Typed))
    if name != "div" or weak:
        result = operate(frame, name, [left, right], node, parts)
        match right, result:
            case Weak(int() as number), Typed(Var() as var) if name == "mod" and number > 0:
                frame.bounds[var] = number  # `i % 3` is 0, 1 or 2: no check as the index of a component
        return result
    wide = float64 if any(isinstance(t, Scalar) and t.bits == 64 for t in types) else float32
    a, b = (
        Typed(cast(frame, value.atom, wide)) if isinstance(value, Typed) else Weak(float(value.number))
        for value in (left, right)
    )
    return operate(frame, "div", [a, b], node, parts)


def _note_warp(frame: Frame, name: str, node: ast.expr, values: Sequence[Weak | Typed]) -> None:
    """Note an operation that gives another number elsewhere: a warning where it is called by its name."""
    guidance = OF_WARP.find(name) if frame.uses_warp else None
    if guidance is None:
        return
    types = [scalar_of(value.type) for value in values if isinstance(value, Typed)]
    if name == "mod" and any(type.kind == "uint" for type in types):
        return
    is_call = isinstance(node, ast.Call)
    message = guidance.reason.format(name if is_call else SYMBOLS[name])
    severity: Severity = "warning" if is_call else "information"
    hint = guidance.hint if is_call else ""
    frame.notes.append(Diagnostic(message, frame.places(node), "warp", severity, hint=hint))


def _power(
    frame: Frame, base: Weak | Typed, exponent: Weak | Typed, node: ast.expr, parts: Parts
) -> Weak | Typed:
    """`a ** b`: squares and cubes as products, integers to constant powers by squaring."""
    match base, exponent:
        case Typed() as typed, Weak(int() as n) if (
            isinstance(typed.type, Scalar)
            and typed.type != bool_
            and (n in (1, 2, 3) or (0 <= n <= 64 and typed.type.is_int))
        ):
            return _repeated(frame, typed, n, node, parts[0])
        case Typed() as typed, Typed() as other if _is_int(typed) and _is_int(other):
            hint = f"write «float({frame.places.text(parts[0])}) ** {frame.places.text(parts[1])}»"
            raise frame.error(node, "the power of two int variables can be an int or a float", hint=hint)
        case _:
            return operate(frame, "pow", [base, exponent], node, parts)


def _repeated(frame: Frame, base: Typed, n: int, node: ast.expr, part: ast.expr) -> Weak | Typed:
    if n == 0:
        return Weak(1)
    if n == 1:
        return base
    half = _repeated(frame, base, n // 2, node, part)
    square = operate(frame, "mul", [half, half], node, [part, part])
    return operate(frame, "mul", [square, base], node, [part, part]) if n % 2 else square


# ----------------------------------------------------------------------------------- states of random numbers


def advance(frame: Frame, name: str, node: ast.Call) -> None:
    """Leave the state after the draws of `name` in the variable that the call names."""
    count = draws(name)
    if not count:
        return
    state = state_of(node)
    value = frame.env.get(state.id) if isinstance(state, ast.Name) else None
    if not isinstance(state, ast.Name) or not isinstance(value, Typed) or value.type != uint32:
        hint = f"write state = {frame.places.text(state or node)} first, then {name}(state)"
        raise frame.error(state or node, f"{name} advances its state, which must be a variable", hint=hint)
    atom = value.atom
    for _ in range(count):
        atom = frame.builder.apply("rand_next", atom, hint=state.id)
    frame.env[state.id] = Typed(atom)
    frame.set_at[state.id] = frame.places(state)


# --------------------------------------------------------------------------------------------------- several


def split_results(frame: Frame, name: str, whole: Weak | Typed) -> Weak | Typed | TupleOf:
    """The several results of an operation; `whole` itself where it has one."""
    several = [op for op in ops.overloads(name) if op.parts]
    if not several or isinstance(whole, Weak):
        return whole
    size = size_of(whole.type)
    types = next(results for op in several if sum(map(size_of, results := op.results(whole.type))) == size)
    return TupleOf(tuple(map(Typed, frame.builder.split(whole.atom, types))))


def change_variables(
    frame: Frame, name: str, values: Sequence[Weak | Typed], parts: Sequence[ast.expr], node: ast.Call
) -> bool:
    """Give the variables that a call names the results of the operation; False where it names none."""
    targets = parts[filled(name, len(values))]
    if not targets:
        return False
    in_place = targets == parts[:1]
    operands = values if in_place else values[: -len(targets)]
    results = split_results(frame, name, operate(frame, name, operands, node, parts[: len(operands)]))
    items = results.items if isinstance(results, TupleOf) else (results,)
    for target, item, before in zip(
        targets, items, values if in_place else values[-len(targets) :], strict=False
    ):
        assert isinstance(item, Typed)
        if not isinstance(target, ast.Name) or target.id not in frame.env:
            message = f"{name} changes a variable, and {frame.places.text(target)} is none"
            hint = "give the element to a variable, change that, and write it back"
            raise frame.error(target, message, hint=hint)
        if not _holds(before, item.type):
            raise frame.error(target, f"{name} fills a variable of type {item.type}, not {describe(before)}")
        frame.env[target.id] = item
        frame.set_at[target.id] = frame.places(target)
    return True


def _holds(before: Weak | Typed, type: Value) -> bool:
    """Whether a variable can be given a value of a type: one of a literal alone becomes any number."""
    if isinstance(before, Typed):
        return before.type == type
    return isinstance(type, Scalar) and bool_ not in (type, before.type)
