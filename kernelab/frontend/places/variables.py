"""Reads a name: a local variable, which may be unset, or a name from outside of the def."""

import ast

from kernelab.errors import Related
from kernelab.frontend.meaning.frame import Frame, Poisoned
from kernelab.frontend.meaning.meanings import BuiltinRef, HostArray, Meaning, Poison
from kernelab.frontend.meaning.name_lookup import Unknown
from kernelab.frontend.places import places
from kernelab.frontend.regions.control import WATCH, truth
from kernelab.lang.build import FALSE


def name(frame: Frame, node: ast.Name) -> Meaning:
    """The meaning of a name; raises Mistake where it is not known or may be unset."""
    match frame.facts.reads.get(node, "outer"):
        case "local":
            return known(frame.env[node.id])
        case "unset":
            return _perhaps_unset(frame, node)
        case _:
            return outer(frame, node)


def known(value: Meaning) -> Meaning:
    """The value itself; raises Poisoned where it depends on an earlier mistake."""
    if isinstance(value, Poison):
        raise Poisoned
    return value


def _perhaps_unset(frame: Frame, node: ast.Name) -> Meaning:
    is_set = truth(frame.env.get(WATCH + node.id))
    if is_set != FALSE:
        frame.builder.check(is_set, "assertion", f"{node.id} is unset: its loop ran zero times")
        return known(frame.env[node.id])
    if isinstance(frame.env.get(node.id), Poison):
        raise Poisoned
    assigned = frame.facts.assignments[node.id]
    in_loop = assigned[0] in frame.facts.in_loop
    why = "the loop that sets it may run zero times" if in_loop else "it is set in one branch only"
    where = "the loop" if in_loop else "the if"
    related = tuple(Related(f"{node.id} is set here", frame.places(place)) for place in assigned[:1])
    message = f"{node.id} may be unset here: {why}"
    hint = f"set it before {where}, for example {node.id} = 0.0"
    frame.poison(node.id)
    raise frame.error(node, message, "unset", hint, related=related)


def outer(frame: Frame, node: ast.Name, called: bool = False) -> Meaning:
    """The meaning of a name outside of the def; a word of the language may be a number, unless called."""
    if isinstance(frame.env.get(node.id), Poison) or node.id in frame.unknown:
        raise Poisoned
    try:
        value = frame.scope.lookup(node.id, tuple(frame.facts.assignments))
    except Unknown as unknown:
        frame.unknown.add(node.id)
        if node.id in frame.facts.assignments:
            raise _too_early(frame, node) from None
        raise frame.error(node, unknown.message, "name", unknown.hint) from None
    if value == BuiltinRef("adjoint"):
        raise misplaced_adjoint(frame, node)
    if isinstance(value, BuiltinRef) and not called:
        value = frame.scope.number(node.id) or value
    if isinstance(value, HostArray):
        return places.vector_constant(frame, value)
    return known(value)


def _too_early(frame: Frame, node: ast.Name) -> Exception:
    place = frame.facts.assignments[node.id][0]
    return frame.error(
        node,
        f"{node.id} is used before it is set",
        "unset",
        f"set it before this line, for example {node.id} = 0.0",
        related=(Related(f"{node.id} is set here", frame.places(place)),),
    )


def misplaced_adjoint(frame: Frame, node: ast.expr) -> Exception:
    """The mistake of `adjoint[x]` where there is no adjoint."""
    return frame.error(
        node,
        "adjoint[...] has a meaning only in a grad function",
        "name",
        "write it in a def that is decorated with @func_grad(f), for an argument of f",
    )
