"""Lowers expressions from the syntax tree to values, with Python's meaning of every operator.

`and`, `or`, chained comparison and the ternary evaluate only what Python would; what is pure and cheap is
computed without a branch.
"""

import ast
from collections.abc import Callable, Sequence
from functools import partial

from kernelab.errors import Diagnostic
from kernelab.frontend.expressions import calls, operations, places, reads, struct_values
from kernelab.frontend.expressions.control import branch
from kernelab.frontend.expressions.joins import THE_VALUE
from kernelab.frontend.meaning import unsupported
from kernelab.frontend.meaning.frame import Frame, Poisoned
from kernelab.frontend.meaning.meanings import (
    Argument,
    ArrayRef,
    BuiltinRef,
    Evaluated,
    FunctionRef,
    Meaning,
    ModuleRef,
    TupleOf,
    Typed,
    TypeRef,
    Weak,
    describe,
    is_number,
    is_struct,
    is_truth,
)
from kernelab.frontend.meaning.name_lookup import OF_STRUCTS, Unknown
from kernelab.frontend.meaning.promote import as_number, materialise, operate
from kernelab.frontend.meaning.scope import advanced
from kernelab.lang.build import FALSE, TRUE, zero
from kernelab.lang.ir import Atom, Const, Let, Stmt
from kernelab.lang.operators import OPERATIONS
from kernelab.lang.types import Mat, Scalar, Vec, bool_


def binary(
    frame: Frame,
    operator: ast.operator,
    left: Weak | Typed,
    right: Weak | Typed,
    node: ast.expr,
    parts: tuple[ast.expr, ast.expr],
) -> Weak | Typed:
    """`left operator right`, as Python means it."""
    name = OPERATIONS[type(operator)]
    if name in operations.BINARY:
        return operations.binary(frame, name, left, right, node, parts)
    if name == "matmul" and (is_number(left) or is_number(right)):
        message = f"@ multiplies matrices and vectors, not {describe(left)} and {describe(right)}"
        raise frame.error(node, message, hint="write *«/ *@ */ * /»")
    return operate(frame, name, [left, right], node, parts)


# ----------------------------------------------------------------------------------------------- expressions


def any_expr(frame: Frame, node: ast.expr) -> Meaning | None:
    """The value of an expression, None for a call that returns nothing."""
    if node in frame.refused:
        raise Poisoned
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        return Weak(node.value)
    builder = frame.builder
    before, builder.span = builder.span, frame.places(node)  # a context manager takes far longer
    try:
        match node:
            case Evaluated(meaning=meaning):
                return meaning
            case ast.Name():
                return reads.name(frame, node)
            case ast.BinOp():
                return _binary(frame, node)
            case ast.UnaryOp():
                return _unary(frame, node)
            case ast.Compare():
                return _boolean(_comparison(frame, node))
            case ast.BoolOp():
                return _boolean(_logical(frame, node, strict=True))
            case ast.IfExp():
                return _ternary(frame, node)
            case ast.Call():
                return _call(frame, node)
            case ast.Subscript() | ast.Attribute():
                return struct_values.loaded(frame, _selection(frame, node))
            case ast.Tuple(elts=elements):
                return TupleOf(tuple(frame.value(element) for element in elements))
            case _:
                raise Poisoned
    finally:
        builder.span = before


def number(frame: Frame, node: ast.expr) -> Weak | Typed:
    """An expression that is a number, vector or matrix."""
    return as_number(frame, frame.value(node), node)


# ------------------------------------------------------------------------- parts of values


def _selection(frame: Frame, node: ast.Subscript | ast.Attribute) -> Meaning:
    match node:
        case ast.Subscript(value=ast.Attribute(value=inner, attr="shape"), slice=axis) if not isinstance(
            axis, ast.Slice
        ):
            base = frame.value(inner)
            if isinstance(base, ArrayRef):
                return reads.extent(frame, base, frame.value(axis), axis)
        case ast.Attribute(value=inner, attr=attr) if not places.is_component(attr):
            return reads.attribute(frame, node, _base(frame, inner))
    root, steps = places.steps_of(node, places.is_component)
    base = _base(frame, root)
    if isinstance(base, ModuleRef) and isinstance(node, ast.Attribute):
        return reads.attribute(frame, node, base)
    return struct_values.read(frame, base, places.groups_of(steps), node)


def _base(frame: Frame, node: ast.expr) -> Meaning:
    """The base of a selection: of an element of an array of structs, only the fields used are loaded."""
    if not isinstance(node, ast.Subscript | ast.Attribute) or node in frame.refused:
        return frame.value(node)
    with frame.builder.at(frame.places(node)):
        return _selection(frame, node)


# ------------------------------------------------------------------------- arithmetic


def _binary(frame: Frame, node: ast.BinOp) -> Meaning:
    values = [frame.value(part) for part in (node.left, node.right)]
    overloaded = _operator(frame, OPERATIONS[type(node.op)], values, (node.left, node.right), node)
    if overloaded is not None:
        return overloaded
    left, right = (as_number(frame, *pair) for pair in zip(values, (node.left, node.right), strict=True))
    return binary(frame, node.op, left, right, node, (node.left, node.right))


def _operator(
    frame: Frame, name: str, values: Sequence[Meaning], parts: Sequence[ast.expr], node: ast.expr
) -> Meaning | None:
    """An operator on structs: the user's function of its name, such as `add`; None where there is none."""
    if name not in OF_STRUCTS or not any(map(is_struct, values)):
        return None
    try:
        callee = frame.scope.lookup(name)
    except Unknown:
        return None
    if not isinstance(callee, FunctionRef):
        return None
    arguments = [Argument(*pair) for pair in zip(values, parts, strict=True)]
    written = ast.copy_location(ast.Call(ast.copy_location(ast.Name(name), node), list(parts), []), node)
    return calls.call(frame, callee, arguments, written)


def _unary(frame: Frame, node: ast.UnaryOp) -> Meaning:
    if isinstance(node.op, ast.Not):
        return _boolean(frame.builder.apply("not", condition(frame, node.operand)))
    value = frame.value(node.operand)
    name = OPERATIONS[type(node.op)]
    overloaded = _operator(frame, name, [value], [node.operand], node)
    if overloaded is not None:
        return overloaded
    return operate(frame, name, [as_number(frame, value, node.operand)], node, (node.operand,))


# ------------------------------------------------------------------------- truth


def _boolean(atom: Atom) -> Weak | Typed:
    return Weak(bool(atom.value)) if isinstance(atom, Const) else Typed(atom)


def condition(frame: Frame, node: ast.expr) -> Atom:
    """An expression as a condition: a truth value, or a number that is not zero."""
    if node in frame.refused:
        raise Poisoned
    with frame.builder.at(frame.places(node)):
        match node:
            case ast.BoolOp():
                return _logical(frame, node, strict=False)
            case ast.Compare():
                return _comparison(frame, node)
            case _:
                value = reads.optional_value(frame, node)
                there = reads.has_elements(frame, value)
                return _truth(frame, as_number(frame, value, node), node) if there is None else there


def _truth(frame: Frame, value: Weak | Typed, node: ast.expr) -> Atom:
    match value:
        case Weak(number):
            return TRUE if number else FALSE
        case Typed(atom) if value.type == bool_:
            return atom
        case Typed(atom) if isinstance(value.type, Scalar):
            return frame.builder.apply("ne", atom, zero(value.type))
        case _:
            hint = "compare one of its components, or its length"
            raise frame.error(node, f"{describe(value)} is neither true nor false", hint=hint)


def _logical(frame: Frame, node: ast.BoolOp, strict: bool) -> Atom:
    def operand(part: ast.expr) -> Atom:
        if strict and not isinstance(part, ast.BoolOp):
            return _strictly_bool(frame, part)
        match part, node.values[0]:
            case ast.Constant(int() | float() as constant), ast.Compare(left, [_], [_]) if not is_truth(
                Weak(constant)
            ):
                message = (
                    f"{constant} alone is {'true' if constant else 'false'}: it is compared with nothing"
                )
                hint = f"write «{frame.places.text(left)} == {constant}»"
                frame.notes.append(Diagnostic(message, frame.places(part), "condition", "warning", hint=hint))
        return _logical(frame, part, strict) if isinstance(part, ast.BoolOp) else condition(frame, part)

    is_and = isinstance(node.op, ast.And)
    result = operand(node.values[0])
    for part in node.values[1:]:
        result = _shortcut(frame, is_and, result, partial(operand, part), part)
    return result


def _strictly_bool(frame: Frame, node: ast.expr) -> Atom:
    value = number(frame, node)
    if is_truth(value):
        return materialise(frame, value, node)
    message = f"and and or give a truth value, and {frame.places.text(node)} is {describe(value)}"
    raise frame.error(node, message, hint="compare it, or write a if condition else b")


def _shortcut(frame: Frame, is_and: bool, left: Atom, right: Callable[[], Atom], node: ast.expr) -> Atom:
    """`left and right`, or `or`, where the right side is evaluated only if it decides."""
    if isinstance(left, Const):
        return right() if bool(left.value) == is_and else left
    before = dict(frame.env)
    with frame.builder.block() as block:
        value = right()
    if any(before.get(name) is not after for name, after in frame.env.items()):
        message = "a random number cannot be drawn here: it depends on what stands before whether it is"
        raise frame.error(node, message, hint="draw it on a line of its own, before")
    if all(isinstance(stmt, Let) for stmt in block.stmts):
        _replay(frame, block.stmts)
        return frame.builder.apply("and" if is_and else "or", left, value)

    def evaluated() -> tuple[Atom, ...]:
        _replay(frame, block.stmts)
        return (value,)

    sides = (evaluated, lambda: (FALSE,)) if is_and else (lambda: (TRUE,), evaluated)
    return frame.builder.select(left, *sides)[0]


def _replay(frame: Frame, stmts: list[Stmt]) -> None:
    for stmt in stmts:
        frame.builder.emit(stmt)


def _comparison(frame: Frame, node: ast.Compare) -> Atom:
    if unsupported.is_search(node.ops[0]):
        return _membership(frame, node)
    if isinstance(node.ops[0], ast.Is | ast.IsNot):
        return reads.is_none(frame, reads.optional_value(frame, node.left), node)
    left_node, left = node.left, number(frame, node.left)

    def link(left: Weak | Typed, rest: int, left_node: ast.expr) -> Atom:
        right_node, operator = node.comparators[rest], type(node.ops[rest])
        right = number(frame, right_node)
        if operator not in OPERATIONS:
            raise Poisoned
        result = operate(frame, OPERATIONS[operator], [left, right], node, (left_node, right_node))
        here = materialise(frame, result, node)
        if rest + 1 == len(node.ops):
            return here
        return _shortcut(frame, True, here, lambda: link(right, rest + 1, right_node), node)

    return link(left, 0, left_node)


def _membership(frame: Frame, node: ast.Compare) -> Atom:
    """`x in (a, b, c)`, where the items are written out."""
    left, searched = number(frame, node.left), node.comparators[0]
    items: list[tuple[Meaning, ast.expr]]
    if isinstance(searched, ast.List | ast.Tuple):
        items = [(frame.value(part), part) for part in searched.elts]
    else:
        items = [(item, searched) for item in _items_searched(frame, searched, node)]
    result: Atom = FALSE
    for item, part in items:
        equal = operate(frame, "eq", [left, as_number(frame, item, part)], node, (node.left, part))
        result = frame.builder.apply("or", result, materialise(frame, equal, node))
    return frame.builder.apply("not", result) if isinstance(node.ops[0], ast.NotIn) else result


def _items_searched(frame: Frame, searched: ast.expr, node: ast.Compare) -> Sequence[Meaning]:
    match frame.value(searched):
        case TupleOf(items, None):
            return items
        case _:
            refusal = unsupported.refusal_of("membership")
            raise frame.error(node, refusal.reason, "unsupported", refusal.hint)


def _ternary(frame: Frame, node: ast.IfExp) -> Meaning:
    """`a if c else b`: a branch, as only one side is evaluated."""
    cond = condition(frame, node.test)
    if isinstance(cond, Const):
        return frame.value(node.body if cond.value else node.orelse)
    saved = frame.env.get(THE_VALUE)

    def side(part: ast.expr) -> Callable[[], None]:
        def evaluate() -> None:
            frame.env[THE_VALUE] = frame.value(part)
            frame.set_at[THE_VALUE] = frame.places(part)

        return evaluate

    changed = advanced([node.body, node.orelse])
    branch(frame, id(node), cond, side(node.body), side(node.orelse), {THE_VALUE, *changed})
    result = frame.env.pop(THE_VALUE)
    if saved is not None:
        frame.env[THE_VALUE] = saved
    return reads.unpoisoned(result)


# ------------------------------------------------------------------------- calls


def _call(frame: Frame, node: ast.Call) -> Meaning | None:
    callee = _callee(frame, node.func)
    match callee:
        case BuiltinRef(name) if isinstance(word := calls.WORDS.get(name), calls.FromSyntax):
            return word.lower(frame, node)
        case TypeRef(Scalar() as scalar) if len(node.args) == 1 and unsupported.is_text(node.args[0]):
            if node.args[0] not in frame.refused:
                return calls.call(frame, callee, [_special_float(frame, scalar, node)], node)
    if any(word in frame.refused for word in node.keywords):
        raise Poisoned
    arguments = [argument for part in node.args for argument in _arguments(frame, part)]
    arguments += [Argument(frame.value(word.value), word.value, word.arg) for word in node.keywords]
    return calls.call(frame, callee, arguments, node)


def _special_float(frame: Frame, scalar: Scalar, node: ast.Call) -> Argument:
    """`float("inf")` and its kin."""
    part = node.args[0]
    assert isinstance(part, ast.Constant)
    text = str(part.value).strip().lower()
    if not scalar.is_float or text.lstrip("+-") not in ("inf", "infinity", "nan"):
        message = f"{scalar} of text is a number in a kernel only where the text is inf, -inf or nan"
        raise frame.error(part, message, "value", "write the number itself")
    return Argument(Weak(float(text)), part)


def _callee(frame: Frame, node: ast.expr) -> Meaning:
    if isinstance(node, ast.Name) and frame.facts.reads.get(node, "outer") == "outer":
        return reads.outer(frame, node, True)
    return frame.value(node)


def _arguments(frame: Frame, node: ast.expr) -> list[Argument]:
    """An argument, or with a star those that a tuple, vector, matrix or slice of known length stands for."""
    if not isinstance(node, ast.Starred):
        return [Argument(frame.value(node), node)]
    match node.value:
        case ast.Subscript(row, ast.Slice() as part):
            few = places.few(frame, frame.value(row), part)
        case ast.Subscript(table, ast.Tuple([index, ast.Slice() as part])):
            row = ast.copy_location(ast.Subscript(table, index, ast.Load()), node.value)
            few = places.few(frame, frame.value(row), part)
        case _:
            few = None
    if few is not None:
        return [Argument(item, node) for item in few]
    match frame.value(node.value):
        case TupleOf(items, None):
            values: Sequence[Meaning] = items
        case Typed(atom) as value if isinstance(value.type, Vec | Mat):
            values = [Typed(item) for item in frame.builder.items(atom)]
        case value:
            message = f"{describe(value)} cannot be unpacked: how many values it has is not known"
            raise frame.error(node, message, hint="unpack a tuple, a vector, a matrix or x[0:3]")
    return [Argument(item, node) for item in values]
