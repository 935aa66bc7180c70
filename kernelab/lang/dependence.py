"""Dependence analysis: which values, arrays and stacks depend on which, by data and by control flow."""

from collections.abc import Callable, Iterable, Iterator
from itertools import product

from kernelab.lang import ir
from kernelab.lang.ops import SHAPE

Node = ir.Atom | ir.Stack | tuple[ir.Stack, int]
"""A value, an array, a stack or a position of what a stack holds."""

Edges = Iterable[tuple[Node, Node]]
"""Pairs of a source and a target."""


def decided_by(stmt: ir.Stmt) -> tuple[ir.Atom, ...]:
    """What decides whether, and how often, the blocks of a statement run."""
    match stmt:
        case ir.If(_, cond):
            return (cond,)
        case ir.For():
            return (stmt.count,) if stmt.stop is None else (stmt.count, stmt.carries[stmt.stop])
        case ir.While():
            return (stmt.carries[stmt.stop],)
        case _:
            return ()


def dependences(block: ir.Block, deciding: tuple[ir.Atom, ...] = ()) -> Iterator[tuple[Node, Node]]:
    """What depends on what in a block, all of it on what is `deciding` whether it runs.

    All that a call gives depends on all that it takes.
    """
    for stmt in block.stmts:
        inside = (*deciding, *decided_by(stmt))
        match stmt:
            case ir.Let(_, op) if op is SHAPE:
                pass
            case ir.If(outs, _, then, orelse):
                yield from product(inside, outs)
                for branch in (then, orelse):
                    yield from zip(branch.yields, outs, strict=True)
                    yield from dependences(branch, inside)
            case ir.For() | ir.While():
                for carried in zip(stmt.carries, stmt.outs, stmt.inits, stmt.body.yields, strict=True):
                    yield from product((*inside, *carried[2:]), carried[:2])
                yield from dependences(stmt.body, inside)
            case ir.Save(stack, atoms):
                yield from product((*deciding, *atoms), (stack,))
            case ir.Restore(stack, outs):
                yield from product((*deciding, stack), outs)
            case _:
                yield from product((*deciding, *ir.atoms(stmt)), (*ir.defs(stmt), *ir.changed(stmt)))


def reached(
    edges: Edges, start: Iterable[Node], passes: Callable[[Node], bool] = lambda node: True
) -> frozenset[ir.Var]:
    """The Vars that edges lead to from the `start`, through nodes that let them pass."""
    following: dict[Node, list[Node]] = {}
    for node, after in edges:
        following.setdefault(node, []).append(after)
    seen: set[Node] = set(start)
    waiting: list[Node] = [*seen]
    while waiting:
        for node in following.get(waiting.pop(), ()):
            if node not in seen and passes(node):
                seen.add(node)
                waiting.append(node)
    return frozenset(node for node in seen if isinstance(node, ir.Var))
