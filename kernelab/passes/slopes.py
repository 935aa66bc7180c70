"""What `grad(f)(x)` in a kernel computes: the tangents of a function along each component of an argument.

    before    g: float32 = gradient square(x)
    after     g: float32 = add(mul(x, 1), mul(1, x))       the tangent of square for the tangent 1 of x

The result is IR like any other, and is differentiated again like any other.
"""

from collections.abc import Iterator

from kernelab.lang.build import Builder, constant, type_of
from kernelab.lang.ir import Atom, Block, Call, Function, Var
from kernelab.lang.types import Scalar, Value, is_differentiable, size_of
from kernelab.passes.inline import lay_out
from kernelab.passes.jvp import jvp


def tangents(function: Function) -> Iterator[tuple[Var, Function]]:
    """For each argument that is a float, vector or matrix, the program with its tangent as last argument."""
    apart = lay_out(_calling(function))
    for param in function.params:
        if isinstance(param.type, Value) and is_differentiable(param.type):
            yield param, jvp(apart, [param.hint])


def _calling(function: Function) -> Function:
    """A function that does nothing but call another, whose own derivative then counts."""
    params = tuple(Var(param.type, param.hint, param.span) for param in function.params)
    outs = tuple(Var(type_of(atom), "", function.span) for atom in function.body.yields)
    body = Block((Call(outs, function, params, function.span),), outs)
    return Function(function.name, params, body, (), function.span)


def directions(builder: Builder, type: Value) -> list[Atom]:
    """A tangent along each component."""
    if isinstance(type, Scalar):
        return [constant(1.0, type)]
    count = size_of(type)
    ones = ([constant(float(k == one), type.scalar) for k in range(count)] for one in range(count))
    return [builder.apply(str(type), *components) for components in ones]
