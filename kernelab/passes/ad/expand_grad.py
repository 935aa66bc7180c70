"""Expands `grad(f)(x)` in a kernel into the tangents of the function along each component of an argument.

    before    g: float32 = gradient square(x)
    after     g: float32 = add(mul(x, 1), mul(1, x))       the tangent of square for the tangent 1 of x

This comes before inlining.  The result is IR like any other, and is differentiated again like any other.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from kernelab.lang.build import type_of
from kernelab.lang.ir import Block, Call, CustomRules, Function, Stmt, Var, walk
from kernelab.lang.types import Value, is_differentiable
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.common.copying import Copier
from kernelab.passes.common.inline import lay_out


@lru_cache(256)
def expand_gradients(function: Function) -> Function:
    """The function without `gradient` calls, also in what it calls; itself where there is none."""
    return _Expander().whole(function) if _asks_for_gradients(function) else function


@lru_cache(256)
def _asks_for_gradients(function: Function) -> bool:
    calls = [stmt for stmt in walk(function.body) if isinstance(stmt, Call)]
    called = [stmt.function for stmt in calls]
    called += [] if function.custom is None else function.custom.functions.values()
    return any(stmt.gradient for stmt in calls) or any(map(_asks_for_gradients, called))


class _Expander(Copier):
    def whole(self, function: Function) -> Function:
        rules = None if function.custom is None else _expand_rules(function.custom)
        return replace(self.function(function), custom=rules)

    def stmt(self, stmt: Stmt) -> None:
        match stmt:
            case Call(gradient=True):
                self.gradient(stmt)
            case Call():
                super().stmt(replace(stmt, function=expand_gradients(stmt.function)))
            case _:
                super().stmt(stmt)

    def gradient(self, stmt: Call) -> None:
        args = self.atoms(stmt.args)
        programs = _tangents(expand_gradients(stmt.function))
        for out, (param, program) in zip(stmt.outs, programs, strict=True):
            assert isinstance(param.type, Value)
            seeds = self.builder.units(param.type)
            slopes = [self.entered(program, (*args, seed))[-1] for seed in seeds]
            self.env[out] = self.builder.joined(param.type, slopes)


@lru_cache(256)
def _expand_rules(rules: CustomRules) -> CustomRules:
    return rules.mapped(expand_gradients)


def _tangents(function: Function) -> Iterator[tuple[Var, Function]]:
    """For each argument that is a float, vector or matrix, the program with its tangent as last argument."""
    laid_out = lay_out(_calling(function))
    for param in function.params:
        if isinstance(param.type, Value) and is_differentiable(param.type):
            yield param, jvp(laid_out, [param.hint])


def _calling(function: Function) -> Function:
    """A function that does nothing but call another, whose own derivative then counts."""
    params = tuple(Var(param.type, param.hint, param.span) for param in function.params)
    outs = tuple(Var(type_of(atom), "", function.span) for atom in function.body.yields)
    body = Block((Call(outs, function, params, function.span),), outs)
    return Function(function.name, params, body, (), function.span)
