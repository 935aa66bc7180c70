"""Lowers calls of operations, casts and constructors, words of the language and users' functions.

Works on operands that have been lowered already.
"""

import ast
from collections.abc import Mapping, Sequence
from typing import get_args

from kernelab.frontend.expressions import division, library_functions
from kernelab.frontend.expressions.passing import (
    Argument,
    Arguments,
    beside_type,
    call_function,
    in_order,
    in_order_of,
)
from kernelab.frontend.meaning import array_views, habit_hints, local_arrays, shaped
from kernelab.frontend.meaning.array_views import index
from kernelab.frontend.meaning.frame import Frame, counted
from kernelab.frontend.meaning.meanings import (
    ArrayRef,
    BuiltinRef,
    FunctionRef,
    GradRef,
    KernelRef,
    Meaning,
    StructArrayRef,
    StructRef,
    TupleOf,
    Typed,
    TypeRef,
    View,
    Weak,
    describe,
    is_number,
)
from kernelab.frontend.meaning.promote import cast, convert, default_scalar, operate, weak_constant
from kernelab.frontend.places import places, presence, several, struct_values
from kernelab.frontend.places.several import advance
from kernelab.lang import ops
from kernelab.lang.build import constant, integer, zero
from kernelab.lang.ir import Atom, AtomicKind, Const
from kernelab.lang.types import HALVES, Mat, Quat, Scalar, Transform, Value, Vec, bool_, scalar_of, size_of


def call(frame: Frame, callee: Meaning, arguments: Arguments, node: ast.Call) -> Meaning | None:
    """The value of a call, None for a function that returns nothing."""
    match callee:
        case BuiltinRef(name):
            return builtin(frame, name, arguments, node)
        case TypeRef(type) if type == bool_ and (there := _has_elements(frame, arguments)) is not None:
            return there
        case TypeRef(type):
            return construct(frame, type, in_order_of(frame, type, arguments, node), node)
        case StructRef(struct):
            given = [(argument.keyword, argument.value, argument.node) for argument in arguments]
            return struct_values.construct(frame, struct, given, node)
        case FunctionRef(function):
            return call_function(frame, function, arguments, node)
        case GradRef():
            return library_functions.call(frame, callee, arguments, node)
        case KernelRef(name):
            raise frame.error(
                node,
                f"{name} is a kernel: a kernel cannot call another",
                hint="launch it from Python, or make it a function with @func",
            )
        case _:
            text = frame.places.text(node.func)
            hint = f"write {text}[i]" if isinstance(callee, ArrayRef | View) else ""
            if isinstance(node.func, ast.Attribute):
                hint = habit_hints.of_method(node.func.attr, frame.places.text(node.func.value))
            raise frame.error(node.func, f"{text} is {describe(callee)}, not a function", hint=hint)


def _positional(frame: Frame, name: str, arguments: Arguments) -> Arguments:
    for argument in arguments:
        if argument.keyword is not None:
            raise frame.error(
                argument.node, f"{name} takes no keyword {argument.keyword}", hint="leave the keyword out"
            )
    return arguments


# ------------------------------------------------------------------------- words of the language


def builtin(frame: Frame, name: str, arguments: Arguments, node: ast.Call) -> Meaning | None:
    """An operation of the table, or a word that lowering knows itself."""
    match name:
        case _ if name.startswith("atomic_"):
            return _atomic(frame, name, in_order(frame, name, arguments, node), node)
        case "zeros":
            return local_arrays.zeros(frame, arguments, node)
        case "len":
            return _length(frame, in_order(frame, name, arguments, node), node)
        case "constant":
            return _constant(frame, _positional(frame, name, arguments), node)
        case "min" | "max" if len(arguments) > 2:
            first, second, *rest = arguments
            pair = builtin(frame, name, (first, second), node)
            assert pair is not None
            return builtin(frame, name, (Argument(pair, node), *rest), node)
        case "select" if len(arguments) == 3:
            first, second, third = in_order(frame, name, arguments, node)
            return builtin(frame, "where", (first, third, second), node)
        case "grad":
            return library_functions.gradient_of(frame, _positional(frame, name, arguments), node)
        case "cast":
            return _reinterpreted(frame, arguments, node)
        case _ if (found := library_functions.function(name, len(arguments))) is not None:
            result = call_function(frame, found, arguments, node)
            advance(frame, name, node)
            return result
        case _ if name in shaped.WORDS:
            return _shaped(frame, name, arguments, node)
        case "range":
            raise frame.error(
                node, "range(...) stands only behind for ... in", hint="write for i in range(n)"
            )
        case _ if not ops.overloads(name):
            hint = "write zeros(n) for an array of the thread's own, or vec3(...)" if "array" in name else ""
            raise frame.error(node, f"{name} cannot be called here", "name", hint)
        case _ if several.changes(name, len(arguments)):
            ordered = in_order(frame, name, arguments, node)
            given = [number(frame, name, a) for a in ordered]
            several.change(frame, name, given, [a.node for a in ordered], node)
            return None
        case _ if name in division.NAMES and len(arguments) == 2:
            ordered = in_order(frame, name, arguments, node)
            left, right = (number(frame, name, a) for a in ordered)
            return division.divided(frame, name, left, right, node, [a.node for a in ordered])
        case "pow" if len(arguments) == 2:
            ordered = in_order(frame, name, arguments, node)
            operands = [number(frame, name, a) for a in ordered]
            return power(frame, operands, node, [a.node for a in ordered])
        case _:
            return _operation(frame, name, in_order(frame, name, arguments, node), node)


def _operation(frame: Frame, name: str, arguments: Arguments, node: ast.Call) -> Meaning:
    """An operation of the table, applied to its operands in order."""
    if name == "where" and (there := _has_elements(frame, arguments[:1])) is not None:
        arguments = [Argument(there, arguments[0].node), *arguments[1:]]
    operands = [number(frame, name, a) for a in arguments]
    if name == "where":
        operands[:1] = [_as_condition(frame, operand) for operand in operands[:1]]
    result = operate(frame, name, operands, node, [a.node for a in arguments])
    advance(frame, name, node)
    return several.taken_apart(frame, name, result)


def _has_elements(frame: Frame, arguments: Arguments) -> Typed | None:
    """Whether the one argument is an array that is there; None where it is no array."""
    there = presence.has_elements(frame, arguments[0].value) if len(arguments) == 1 else None
    return None if there is None else Typed(there)


def _as_condition(frame: Frame, operand: Weak | Typed) -> Weak | Typed:
    """An integer as a condition: whether it is not 0."""
    if isinstance(operand, Weak):
        return Weak(bool(operand.number)) if isinstance(operand.number, int) else operand
    is_int = isinstance(operand.type, Scalar) and operand.type.is_int
    return Typed(frame.builder.apply("ne", operand.atom, zero(operand.type))) if is_int else operand


def _reinterpreted(frame: Frame, arguments: Arguments, node: ast.Call) -> Meaning:
    """`cast(x, float32)`: the bits of a number as a number of another type."""
    match [argument.value for argument in arguments]:
        case [Typed(atom) as value, TypeRef(Scalar() as wanted)] if isinstance(value.type, Scalar):
            if value.type.kind != "float" and wanted.kind != "float" and value.type.bits == wanted.bits:
                return Typed(cast(frame, atom, wanted))
            if ops.resolve(f"cast_{wanted}", [value.type]) is not None:
                return Typed(frame.builder.apply(f"cast_{wanted}", atom))
    given = ", ".join(describe(argument.value) for argument in arguments)
    raise frame.error(
        node,
        f"cast takes a number of 32 or 64 bits and a type as wide, not ({given})",
        hint="write float(x) or int(x) to convert the number itself",
    )


def number(frame: Frame, name: str, argument: Argument) -> Weak | Typed:
    """An argument as a number, vector or matrix."""
    if isinstance(argument.value, Weak | Typed):
        return argument.value
    hint = "index the array to take one element" if isinstance(argument.value, ArrayRef | View) else ""
    raise frame.error(argument.node, f"{name} takes numbers, not {describe(argument.value)}", hint=hint)


def power(
    frame: Frame, operands: Sequence[Weak | Typed], node: ast.expr, parts: Sequence[ast.expr]
) -> Weak | Typed:
    """`a ** b`: squares and cubes as products, integers to constant powers by squaring."""
    base, exponent = operands
    match base, exponent:
        case Typed() as typed, Weak(int() as n) if (
            isinstance(typed.type, Scalar)
            and typed.type != bool_
            and (n in (1, 2, 3) or (0 <= n <= 64 and typed.type.is_int))
        ):
            return _repeated(frame, typed, n, node, parts[0])
        case Typed() as typed, Typed() as other if _is_int(typed) and _is_int(other):
            raise frame.error(
                node,
                "the power of two int variables can be an int or a float",
                hint=f"write float({frame.places.text(parts[0])}) ** {frame.places.text(parts[1])}",
            )
        case _:
            return operate(frame, "pow", operands, node, parts)


def _is_int(value: Typed) -> bool:
    return isinstance(value.type, Scalar) and value.type.is_int


def _repeated(frame: Frame, base: Typed, n: int, node: ast.expr, part: ast.expr) -> Weak | Typed:
    if n == 0:
        return Weak(1)
    if n == 1:
        return base
    half = _repeated(frame, base, n // 2, node, part)
    square = operate(frame, "mul", [half, half], node, [part, part])
    return operate(frame, "mul", [square, base], node, [part, part]) if n % 2 else square


def _length(frame: Frame, arguments: Arguments, node: ast.Call) -> Meaning:
    match [argument.value for argument in arguments]:
        case [ArrayRef() | View() as array]:
            return places.shape(frame, array, 0)
        case [StructArrayRef() as array]:
            return places.shape(frame, struct_values.first(array), 0)
        case [TupleOf(items, None)]:
            return Weak(len(items))
        case [Typed() as value] if isinstance(value.type, Vec | Mat):
            return Weak(value.type.n)
        case given:
            shown = ", ".join(describe(value) for value in given)
            raise frame.error(node, f"len takes one array or vector, not ({shown})")


def _constant(frame: Frame, arguments: Arguments, node: ast.Call) -> Meaning:
    match arguments:
        case [Argument(Weak() | Typed(Const()) as value)]:
            return value
        case _:
            raise frame.error(
                node,
                "constant(...) takes one number that is known when the kernel is compiled",
                hint="leave constant out: numbers of the notebook are constants anyway",
            )


_ATOMICS: dict[str, AtomicKind] = {f"atomic_{kind}": kind for kind in get_args(AtomicKind)}


def _atomic(frame: Frame, name: str, arguments: Arguments, node: ast.Call) -> Meaning:
    wanted = 2 if name == "atomic_cas" else 1
    match arguments:
        case [Argument(ArrayRef() | View() as array, target), *rest] if len(rest) > wanted:
            indices, values = rest[:-wanted], rest[-wanted:]
        case _:
            raise frame.error(
                node,
                f"{name} takes an array, its indices and {'two values' if wanted == 2 else 'a value'}",
                hint=f"write {name}(a, i, {'compare, ' if wanted == 2 else ''}value)",
            )
    if len(indices) != array.ndim:
        raise frame.error(
            node,
            f"{describe(array)} takes {counted(array.ndim, 'index')}, not {len(indices)}",
            hint=f"write {name}({array.var.hint}, {', '.join('ijkl'[: array.ndim])}, value)",
        )
    known = {id(argument.node): argument.value for argument in arguments}
    atoms = tuple(index(frame, a.node, lambda _, part: known[id(part)]) for a in indices)
    if array.var in frame.locals:
        hint = f"write {frame.places.text(target)}[i] += value"
        raise frame.error(node, f"{name} works on array parameters, not on a local array", hint=hint)
    if isinstance(array, View):
        array = array_views.at(frame, array, atoms, node)
        atoms = ()
    where = places.Place(target, None, array.var, (*array.indices, *atoms), array.elem, ())
    given = [convert(frame, v.value, array.elem, v.node, f"{array.var.hint} holds") for v in values]
    if name in ("atomic_add", "atomic_sub"):
        return accumulate(frame, where, given[0], name == "atomic_sub", node)
    _refuse_atomic(frame, name, array.elem, node)
    compare = given[0] if wanted == 2 else None
    return Typed(frame.builder.atomic(_ATOMICS[name], array.var, where.indices, given[-1], compare))


def _refuse_atomic(frame: Frame, name: str, elem: Value, node: ast.expr) -> None:
    """Raise Mistake where an atomic does not work on elements of a type.

    A vector or matrix is changed component by component: other threads may come between two of them, which
    makes no difference to an extremum or to bits, and every difference to an exchange.
    """
    if not isinstance(elem, Scalar) and name in ("atomic_exch", "atomic_cas"):
        hint = "exchange one number, such as the index of a vector"
        raise frame.error(node, f"{name} works on one number at a time, not on {elem}", hint=hint)
    extremum_of_half = name in ("atomic_min", "atomic_max") and scalar_of(elem) in HALVES
    if isinstance(elem, Quat | Transform) or (scalar_of(elem).bits < 32 and not extremum_of_half):
        hint = "use an array of int, int64, float or float64"
        raise frame.error(node, f"{name} works on numbers of 32 or 64 bits, not {elem}", hint=hint)
    if name in ("atomic_and", "atomic_or", "atomic_xor") and not scalar_of(elem).is_int:
        raise frame.error(node, f"{name} works on integers, not {elem}", hint="use an array of int")


def accumulate(
    frame: Frame, target: places.Place, value: Atom, negate: bool, node: ast.expr | ast.stmt
) -> Typed:
    """Add to an array element, or subtract from it, atomically."""
    if not isinstance(target.held, Scalar | Vec | Mat) or target.type == bool_:
        raise frame.error(node, "a truth value cannot be added to", hint="write b[i] = b[i] or condition")
    if negate:
        value = frame.builder.apply("neg", value)
    return places.accumulate(frame, target, value)


# ------------------------------------------------------------------------- casts and constructors


def _shaped(frame: Frame, name: str, arguments: Arguments, node: ast.Call) -> Meaning:
    """`vector(...)`, `matrix(...)` and `identity(...)`, whose keywords say which type is meant."""
    if name in shaped.ROTATIONS:
        arguments = beside_type(frame, name, arguments, node)
    named = {a.keyword: a.value for a in arguments if a.keyword is not None}
    named |= _extent_of(name, named, arguments)
    is_identity = name in shaped.IDENTITIES
    plain = [] if is_identity else [a for a in arguments if a.keyword is None]
    given = [number(frame, name, argument) for argument in plain]
    first = [a.value for a in arguments if a.keyword is None and is_identity]
    kinds = [default_scalar(o.number) if isinstance(o, Weak) else o.type for o in given]
    kinds.sort(key=lambda kind: not scalar_of(kind).is_float)
    try:
        type = shaped.shaped_type(name, shaped.bound(name, first, named), kinds)
    except shaped.Unshaped as error:
        raise frame.error(node, error.message, hint=error.hint) from None
    if is_identity:
        return _built(frame, type, [constant(one, type.scalar) for one in shaped.is_one(type)])
    match given:
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
            return Typed(zero(type))
        case [Weak(value)]:
            return Typed(weak_constant(frame, value, type, node))
        case [Typed() as only] if isinstance(only.type, Scalar):
            return _built(frame, type, [_entry(frame, only, type, arguments[0])] * size_of(type))
        case [Typed() as only] if isinstance(only.type, Vec | Mat) and only.type.shape == type.shape:
            return only if only.type == type else _built(frame, type, _cast_entries(frame, only, type))
        case _ if (
            isinstance(type, Mat) and len(operands) == type.n and all(_is_row(o, type) for o in operands)
        ):
            return _built(
                frame,
                type,
                [
                    frame.builder.apply("extract", o.atom, integer(k))
                    for o in operands
                    if isinstance(o, Typed)
                    for k in range(type.m)
                ],
            )
        case _ if isinstance(type, Vec) and _join(operands, type):
            written = zip(operands, arguments, strict=True)
            parts = [part for o, a in written for part in _entries(frame, o, type, a)]
            return _built(frame, type, parts)
        case _ if len(operands) == size_of(type) and all(map(is_number, operands)):
            return _built(
                frame, type, [_entry(frame, o, type, a) for o, a in zip(operands, arguments, strict=True)]
            )
        case [Typed() as p] if isinstance(type, Transform) and p.type == Vec(type.scalar, 3):
            return _shifted(frame, type, p)
        case _:
            given = ", ".join(describe(operand) for operand in operands)
            hint = f"give all {size_of(type)}, or one number for every component"
            raise frame.error(node, f"{type} takes 0, 1 or {size_of(type)} numbers, not ({given})", hint=hint)


def _is_row(operand: Weak | Typed, type: Mat) -> bool:
    return isinstance(operand, Typed) and operand.type == Vec(type.scalar, type.m)


def _join(operands: Sequence[Weak | Typed], type: Vec) -> bool:
    """Whether vectors, and numbers of their type, make up a longer vector, as in `vec6(v, w)`."""
    given = [o.type for o in operands if isinstance(o, Typed)]
    alike = all(not isinstance(t, Mat) and scalar_of(t) == type.scalar for t in given)
    literals = len(operands) - len(given)
    any_vector = any(isinstance(t, Vec) for t in given)
    return alike and any_vector and sum(size_of(t) for t in given) + literals == type.n


def _entries(frame: Frame, operand: Weak | Typed, type: Vec, argument: Argument) -> list[Atom]:
    if isinstance(operand, Weak):
        return [_entry(frame, operand, type, argument)]
    return [operand.atom] if isinstance(operand.type, Scalar) else _cast_entries(frame, operand, type)


def _entry(frame: Frame, operand: Weak | Typed, type: Vec | Mat, argument: Argument) -> Atom:
    return convert(frame, operand, type.scalar, argument.node, f"a component of {type} is")


def _shifted(frame: Frame, type: Vec | Mat, p: Typed) -> Typed:
    """The rigid motion that only shifts."""
    turned = [constant(one, type.scalar) for one in shaped.is_one(Quat(type.scalar))]
    return _built(frame, type, [*_cast_entries(frame, p, type), *turned])


def _cast_entries(frame: Frame, value: Typed, type: Vec | Mat) -> list[Atom]:
    assert isinstance(value.type, Vec | Mat)
    indices = (
        [(i,) for i in range(value.type.n)]
        if isinstance(value.type, Vec)
        else [(i, j) for i in range(value.type.n) for j in range(value.type.m)]
    )
    entries = (frame.builder.apply("extract", value.atom, *(integer(k) for k in index)) for index in indices)
    return [cast(frame, entry, type.scalar) for entry in entries]


def _built(frame: Frame, type: Value, entries: Sequence[Atom]) -> Typed:
    return Typed(frame.builder.apply(str(type), *entries) if entries else zero(type))


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
            raise frame.error(
                node,
                f"{type} takes one number, not {only.type}",
                hint=f"take one component, such as {frame.places.text(arguments[0].node)}[0]",
            )
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
