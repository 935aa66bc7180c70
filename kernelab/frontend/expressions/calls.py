"""Lowers calls: of the words of the language, by a table, of types, and of users' functions."""

import ast
from collections.abc import Callable, Mapping
from functools import partial

from kernelab.data_classes import dataclass, replace
from kernelab.frontend.expressions import operations, passing, reads, struct_values, words
from kernelab.frontend.expressions.operations import number
from kernelab.frontend.expressions.passing import call_function, in_order
from kernelab.frontend.meaning import annotations, array_views, unsupported
from kernelab.frontend.meaning.frame import Frame
from kernelab.frontend.meaning.meanings import (
    Argument,
    Arguments,
    ArrayRef,
    BuiltinRef,
    FunctionRef,
    GradRef,
    KernelRef,
    Meaning,
    StructRef,
    TupleOf,
    Typed,
    TypeRef,
    Weak,
    describe,
)
from kernelab.frontend.meaning.promote import operate
from kernelab.lang import ops
from kernelab.lang.build import zero
from kernelab.lang.types import Mat, Scalar, Value, Vec, bool_


def _is_restated(type: Value, argument: Argument) -> bool:
    """Whether an argument says again how long a vector or how large a matrix of this type is."""
    match type, argument.keyword, argument.value:
        case Vec(), "length", Weak(number):
            return number == type.n
        case Mat(), "shape", TupleOf((Weak(n), Weak(m))):
            return (n, m) == type.shape
        case _:
            return False


def call(frame: Frame, callee: Meaning, arguments: Arguments, node: ast.Call) -> Meaning | None:
    """The value of a call, None for a function that returns nothing."""
    match callee:
        case BuiltinRef(name):
            word = WORDS.get(name, _OPERATION)
            assert isinstance(word, FromValues)
            return word.lower(frame, name, arguments, node)
        case TypeRef(type) if type == bool_ and (there := _has_elements(frame, arguments)) is not None:
            return there
        case TypeRef(type):
            plain = [argument for argument in arguments if not _is_restated(type, argument)]
            return operations.construct(frame, type, in_order(frame, type, plain, node), node)
        case StructRef(struct):
            return struct_values.construct(frame, struct, arguments, node)
        case FunctionRef(function):
            return call_function(frame, function, arguments, node)
        case GradRef():
            return passing.call_gradient(frame, callee, arguments, node)
        case KernelRef(name):
            raise frame.error(
                node,
                f"{name} is a kernel: a kernel cannot call another",
                hint=f"give the kernel another name than that of the operation {name}"
                if ops.overloads(name)
                else "launch it from Python, or make it a function with @func",
            )
        case _:
            text = frame.places.text(node.func)
            product = f"write {text} * (...)" if isinstance(callee, Weak | Typed) else ""
            hint = f"write «{text}[i]»" if isinstance(callee, ArrayRef) else product
            if isinstance(node.func, ast.Attribute):
                hint = unsupported.hint_of_method(node.func.attr, frame.places.text(node.func.value))
            raise frame.error(node.func, f"{text} is {describe(callee)}, not a function", hint=hint)


# ------------------------------------------------------------------------- operations


def _operation(frame: Frame, name: str, arguments: Arguments, node: ast.Call) -> Meaning | None:
    """An operation of the table of builtins; raises Mistake for a word that cannot be called."""
    if not ops.overloads(name):
        hint = "write zeros(n) for an array of the thread's own, or vec3(...)" if "array" in name else ""
        raise frame.error(node, f"{name} cannot be called here", "name", hint)
    operands, parts = _operands(frame, name, arguments, node)
    if operations.change_variables(frame, name, operands, parts, node):
        return None
    result = operate(frame, name, operands, node, parts)
    operations.advance(frame, name, node)
    return operations.split_results(frame, name, result)


def _operands(
    frame: Frame, name: str, arguments: Arguments, node: ast.Call
) -> tuple[list[Weak | Typed], list[ast.expr]]:
    """The operands of an operation in the order of its parameters, and how they are written."""
    ordered = in_order(frame, name, arguments, node)
    return [number(frame, name, argument) for argument in ordered], [argument.node for argument in ordered]


_COORDINATES: dict[str | None, str] = dict.fromkeys(("xy", "xyz", "xyzt"), "coordinate")
"""The names that an operation has for what the library's function of it takes."""


def _library_function(frame: Frame, name: str, arguments: Arguments, node: ast.Call) -> Meaning | None:
    function = passing.library_function(name, len(arguments))
    if function is None:
        return _operation(frame, name, arguments, node)
    if name == "curlnoise":
        arguments = [replace(a, keyword=_COORDINATES.get(a.keyword, a.keyword)) for a in arguments]
    result = call_function(frame, function, arguments, node)
    operations.advance(frame, name, node)
    return result


def _extremum(frame: Frame, name: str, arguments: Arguments, node: ast.Call) -> Meaning | None:
    """`min` and `max` of two values or more."""
    if len(arguments) <= 2:
        return _operation(frame, name, arguments, node)
    first, second, *rest = arguments
    pair = _operation(frame, name, (first, second), node)
    assert pair is not None
    return _extremum(frame, name, (Argument(pair, node), *rest), node)


def _binary(frame: Frame, name: str, arguments: Arguments, node: ast.Call) -> Meaning | None:
    if len(arguments) != 2:
        return _operation(frame, name, arguments, node)
    (left, right), parts = _operands(frame, name, arguments, node)
    return operations.binary(frame, name, left, right, node, parts)


# ------------------------------------------------------------------------- conditions


def _where(frame: Frame, name: str, arguments: Arguments, node: ast.Call) -> Meaning:
    """`where(condition, a, b)`; a condition is a truth value, an int or an array that may be absent."""
    ordered = in_order(frame, name, arguments, node)
    present = _has_elements(frame, ordered[:1])
    if present is not None:
        ordered = [Argument(present, ordered[0].node), *ordered[1:]]
    operands = [number(frame, name, argument) for argument in ordered]
    operands[:1] = [_as_condition(frame, operand) for operand in operands[:1]]
    return operate(frame, name, operands, node, [argument.node for argument in ordered])


def _select(frame: Frame, name: str, arguments: Arguments, node: ast.Call) -> Meaning | None:
    """`select(condition, if_false, if_true)`."""
    if len(arguments) != 3:
        return _operation(frame, name, arguments, node)
    condition, if_false, if_true = in_order(frame, name, arguments, node)
    return _where(frame, "where", (condition, if_true, if_false), node)


def _has_elements(frame: Frame, arguments: Arguments) -> Typed | None:
    """Whether the one argument is an array that is there; None where it is not an array."""
    there = reads.has_elements(frame, arguments[0].value) if len(arguments) == 1 else None
    return None if there is None else Typed(there)


def _as_condition(frame: Frame, operand: Weak | Typed) -> Weak | Typed:
    """An integer as a condition: whether it is not 0."""
    if isinstance(operand, Weak):
        return Weak(bool(operand.number)) if isinstance(operand.number, int) else operand
    is_int = isinstance(operand.type, Scalar) and operand.type.is_int
    return Typed(frame.builder.apply("ne", operand.atom, zero(operand.type))) if is_int else operand


# ------------------------------------------------------------------------- words of the language


@dataclass(frozen=True, slots=True)
class FromValues:
    """A word that takes the values of its arguments."""

    lower: Callable[[Frame, str, Arguments, ast.Call], Meaning | None]


@dataclass(frozen=True, slots=True)
class FromSyntax:
    """A word that takes the call as it is written."""

    lower: Callable[[Frame, ast.Call], Meaning | None]


_OPERATION = FromValues(_operation)

WORDS: Mapping[str, FromValues | FromSyntax] = {
    "tid": FromSyntax(words.thread_index),
    "static": FromSyntax(reads.static),
    "type": FromSyntax(reads.type_of),
    "print": FromSyntax(words.print_),
    "printf": FromSyntax(words.printf),
    "expect_eq": FromSyntax(partial(words.expect, operator="eq", name="expect_eq")),
    "expect_neq": FromSyntax(partial(words.expect, operator="ne", name="expect_neq")),
    "expect_near": FromSyntax(words.expect_near),
    "range": FromSyntax(words.misplaced_range),
    "len": FromValues(words.length),
    "constant": FromValues(words.constant),
    "cast": FromValues(words.reinterpreted),
    "zeros": FromValues(array_views.local_zeros),
    "grad": FromValues(passing.gradient_of),
    "where": FromValues(_where),
    "select": FromValues(_select),
    **dict.fromkeys(("min", "max"), FromValues(_extremum)),
    **dict.fromkeys(operations.BINARY, FromValues(_binary)),
    **dict.fromkeys(words.ATOMICS, FromValues(words.atomic)),
    **dict.fromkeys(annotations.SHAPED_WORDS, FromValues(operations.shaped_value)),
    **dict.fromkeys(passing.LIBRARY, FromValues(_library_function)),
}
"""The words whose calls mean more than an operation of the table of builtins."""
