"""Functions for kernels that are written in the language itself, and `grad(f)` of any function."""

import ast
from collections.abc import Callable, Mapping
from functools import cache

from kernelab.builtins.records.library import BY_COUNT, TEXT, WORDS
from kernelab.errors import Source
from kernelab.frontend.expressions.passing import entered, in_order
from kernelab.frontend.meaning.frame import Frame
from kernelab.frontend.meaning.meanings import (
    Argument,
    Arguments,
    BuiltinRef,
    Callee,
    FunctionRef,
    GradRef,
    Meaning,
    Parameter,
    TupleOf,
    Typed,
    Weak,
    describe,
)
from kernelab.frontend.meaning.promote import weak_constant
from kernelab.lang import ops
from kernelab.lang.ir import Block, Call, Native, Print, Var, changed, locals_of, walk
from kernelab.lang.types import Scalar, Value, float32, is_differentiable

Lower = Callable[[Source], Mapping[str, Callee]]
_lower: Lower | None = None


def lower_with(lower: Lower) -> None:
    """Use `lower` to get the functions of a text."""
    global _lower
    _lower = lower


def functions(text: str, title: str) -> Mapping[str, Callee]:
    """The functions that a text defines, by name."""
    assert _lower is not None, "kernelab.frontend.definitions.cell has not been imported"
    return _lower(Source(text, title))


NAMES = frozenset((*WORDS, *(name for name, _ in BY_COUNT)))
"""The words that mean a function of the library, in all calls or in those with some number of arguments."""


def function(name: str, count: int) -> Callee | None:
    """The function of `builtins.records.library` that a call with so many arguments means, None if there is
    none.
    """
    word = BY_COUNT.get((name, count), name if name in WORDS else None)
    return None if word is None else _library()[word]


@cache
def operation(name: str, count: int) -> Callee:
    """An operation of the language as a function that users could have written."""
    names = ", ".join("abcdefgh"[:count])
    text = f"@func\ndef {name}_({names}):\n    return {name}({names})\n"
    return functions(text, f"the operation {name}")[f"{name}_"]


@cache
def _library() -> Mapping[str, Callee]:
    return functions(TEXT, "kernelab's library")


# ------------------------------------------------------------------------------------------------ grad calls


def gradient_of(frame: Frame, name: str, arguments: Arguments, node: ast.Call) -> GradRef:
    """The function that `grad(f)` stands for."""
    match [argument.value for argument in in_order(frame, name, arguments, node)]:
        case [FunctionRef() | BuiltinRef() as function]:
            return GradRef(function)
        case values:
            shown = ", ".join(map(describe, values))
            raise frame.error(node, f"grad takes one function, not ({shown})", hint="write grad(f)(x)")


def call(frame: Frame, gradient: GradRef, arguments: Arguments, node: ast.Call) -> Meaning:
    """The derivatives of a function at its arguments: one value, or a tuple of them."""
    callee = _callee(frame, gradient, arguments, node)
    entry = entered(frame, callee, arguments, node, _strong)
    function, result = entry.instance.function, entry.instance.results
    if _acts(function.body):
        message = f"grad takes a function of its arguments alone, and {function.name} changes or prints more"
        raise frame.error(node, message, hint="return the value instead of storing it")
    if not isinstance(result, Typed) or not (isinstance(result.type, Scalar) and result.type.is_float):
        what = "nothing" if result is None else describe(result)
        message = f"grad takes a function that returns one float, and {function.name} returns {what}"
        raise frame.error(node, message, hint="return one number, such as the sum of what it computes")
    outs = tuple(
        Var(param.type, f"{param.hint}_bar", frame.builder.span)
        for param in function.params
        if isinstance(param.type, Value) and is_differentiable(param.type)
    )
    if not outs:
        raise frame.error(node, f"{function.name} has no argument that is a float", hint="pass a float")
    frame.builder.emit(Call(outs, function, tuple(entry.atoms), frame.builder.span, gradient=True))
    values = tuple(Typed(out) for out in outs)
    return values[0] if len(values) == 1 else TupleOf(values)


def _strong(frame: Frame, parameter: Parameter, argument: Argument) -> Argument:
    """A literal for an argument of any type is a float: its derivative is asked for."""
    if parameter.type is not None or not isinstance(argument.value, Weak):
        return argument
    number = argument.value.number
    if isinstance(number, bool):
        return argument
    constant = weak_constant(frame, float(number), float32, argument.node)
    return Argument(Typed(constant), argument.node, argument.keyword)


def _callee(frame: Frame, gradient: GradRef, arguments: Arguments, node: ast.Call) -> Callee:
    match gradient.function:
        case FunctionRef(function):
            return function
        case BuiltinRef(name) if ops.overloads(name):
            return operation(name, len(arguments))
        case other:
            raise frame.error(node, f"{describe(other)} has no derivative in a kernel", hint="write a def")


def _acts(body: Block) -> bool:
    """Whether a function prints, or changes anything but arrays of its own."""
    own = locals_of(body)
    return any(
        isinstance(stmt, Print | Native)
        or not own.issuperset(changed(stmt))
        or (isinstance(stmt, Call) and _acts(stmt.function.body))
        for stmt in walk(body)
    )
