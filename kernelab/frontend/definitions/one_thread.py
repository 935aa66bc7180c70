"""The kernel of one thread that calls a function and stores what it returns.

def g(x: float, y: float):          g(x: float32, y: float32, result: array[float32])
    return x * y                      result[0] = g(x, y)
"""

import ast
from collections.abc import Iterator, Sequence

from kernelab.errors import Diagnostic, Span
from kernelab.frontend.definitions.functions import UserFunction
from kernelab.frontend.definitions.kernels import Formal, KernelDefinition, too_large
from kernelab.frontend.expressions import struct_values
from kernelab.frontend.meaning.frame import BrokenCall
from kernelab.frontend.meaning.meanings import (
    Bound,
    HostArray,
    Instance,
    Meaning,
    TupleOf,
    Typed,
    Weak,
    parts_of,
)
from kernelab.frontend.meaning.promote import default_scalar
from kernelab.lang.build import Builder, constant, integer, type_of
from kernelab.lang.ir import Atom, Call, Function, Var
from kernelab.lang.structs import AnyType, Struct, StructArray
from kernelab.lang.types import Array, Mat, Scalar, Vec, scalar_of
from kernelab.lang.verify import verify


def one_thread(function: UserFunction, bound: Sequence[Bound]) -> KernelDefinition:
    """The kernel for arguments of these types; its last parameters are the results, arrays of one element.

    Arguments that are functions themselves are compiled in.  Raises BrokenCall where the function has
    mistakes, or returns something else than numbers, vectors, matrices and structs.
    """
    instance = function.instantiate(tuple(bound))
    formals = [
        Formal(parameter.name, type, parameter.span)
        for parameter, type in zip(function.signature(), bound, strict=True)
        if isinstance(type, Scalar | Vec | Mat | Array | Struct | StructArray)
    ]
    results = list(_results(function, instance, {formal.name for formal in formals}))
    inputs = [var for formal in formals for var in _vars(formal)]
    outputs = [_vars(formal) for formal, _ in results]
    builder = Builder(function.span)
    returned = _returned(function)
    yielded = tuple(Var(type_of(atom), span=returned) for atom in instance.function.body.yields)
    builder.emit(Call(yielded, instance.function, tuple(inputs), function.span))
    builder.span, rest = returned, iter(yielded)
    for targets, (_, item) in zip(outputs, results, strict=True):
        for target, part in zip(targets, parts_of(item), strict=True):
            builder.store(target, [integer(0)], _atom(builder, part, rest))
    params = (*inputs, *(var for vars in outputs for var in vars))
    kernel = verify(Function(function.name, params, builder.close(), (), function.span))
    if (exceeded := too_large(kernel)) is not None:
        raise BrokenCall((exceeded,))
    return KernelDefinition(
        function.name,
        kernel,
        function.source,
        function.__doc__ or "",
        function.span,
        {},
        function.captured,
        tuple(function.constants.values()),
        (*formals, *(formal for formal, _ in results)),
        {},
    )


def _vars(formal: Formal) -> tuple[Var, ...]:
    return struct_values.vars_of(struct_values.parameter(formal.name, formal.type, formal.span))


def _results(
    function: UserFunction, instance: Instance, taken: set[str]
) -> Iterator[tuple[Formal, Meaning | None]]:
    """The parameter for each result, under a name that none of the function's own has, and what it holds."""
    types = result_types(function, instance)
    prefix = "result"
    while any(name.startswith(prefix) for name in taken):
        prefix = f"_{prefix}"
    for k, (type, item) in enumerate(zip(types, _items(instance.results), strict=True)):
        holder = StructArray(type, 1) if isinstance(type, Struct) else Array(type, 1)  # type: ignore[arg-type]
        yield Formal(prefix if len(types) == 1 else f"{prefix}_{k}", holder, _returned(function)), item


def _returned(function: UserFunction) -> Span:
    """The place of the last statement, which as a rule returns."""
    last = function.template.body[-1]
    return function.template.places(last) if isinstance(last, ast.Return) else function.span


def _atom(builder: Builder, part: Meaning, yielded: Iterator[Atom]) -> Atom:
    match part:
        case Weak(number):
            return constant(number, default_scalar(number))
        case HostArray(values, type):
            return builder.joined(type, [constant(value, scalar_of(type)) for value in values.flat])
        case _:
            return next(yielded)


def _items(results: Meaning | None) -> tuple[Meaning | None, ...]:
    return results.items if isinstance(results, TupleOf) and results.struct is None else (results,)


def result_types(function: UserFunction, instance: Instance) -> tuple[AnyType, ...]:
    """The types of what a function returns; raises BrokenCall for what no array holds."""
    types = tuple(_result(item) for item in _items(instance.results))
    if not types or None in types:
        message = f"`{function.name}` does not return a number, a vector, a matrix or a struct"
        raise BrokenCall((Diagnostic(message, function.span, "func"),))
    return tuple(type for type in types if type is not None)


def _result(meaning: Meaning | None) -> AnyType | None:
    match meaning:
        case Weak(number):
            return default_scalar(number)
        case Typed() | HostArray():
            return meaning.type
        case TupleOf():
            return meaning.struct
        case _:
            return None
