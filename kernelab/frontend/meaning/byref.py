"""Parameters passed by reference, `x: ref[float]`, and the calls that pass them.

    def step(x: ref[float], d: float) -> float:     def step(x, d):
        x += d                                          x += d
        return x * x                                    return (x * x, x)

    e = step(p.x, 0.1)                              (step_result, p.x) = step(p.x, 0.1); e = step_result

So a value goes in and comes back when the function returns: no two names ever stand for one memory, and
derivatives need no rule.  Works on the syntax tree, before anything is known of variables.
"""

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations

from kernelab.data_classes import dataclass, field
from kernelab.errors import Diagnostic
from kernelab.frontend.meaning.meanings import RefParameters
from kernelab.frontend.meaning.name_lookup import is_word
from kernelab.frontend.meaning.source import Places
from kernelab.frontend.meaning.syntax_trees import (
    blocks,
    is_none,
    leaves,
    nodes,
    parameters,
    returning,
    returns_value,
    root_of,
    states_result,
)


class RefCall(ast.Call):
    """A call whose variables get what comes back: all that is left of it is the value of an assignment."""


def hand_back(node: ast.FunctionDef) -> RefParameters | None:
    """Make a def return the values of its `ref` parameters, and type these; None where it has none."""
    arguments = parameters(node.args)
    refs = [
        a for a in arguments if isinstance(a.annotation, ast.Subscript) and is_word(a.annotation.value, "ref")
    ]
    if not refs:
        return None
    handed = RefParameters(
        node.name,
        tuple(argument.arg for argument in arguments),
        frozenset(argument.arg for argument in refs),
        returns_value(node.body),
    )
    for argument in refs:
        assert isinstance(argument.annotation, ast.Subscript)
        argument.annotation = argument.annotation.slice
    names = [argument.arg for argument in refs]
    rewriting = _Returning(node, names)
    node.body = [statement for stmt in node.body for statement in rewriting.statements(stmt)]
    if not leaves(node.body):
        node.body.append(returning(names, node.body[-1]))
    node.returns = None
    return handed


class _Returning(ast.NodeTransformer):
    def __init__(self, node: ast.FunctionDef, refs: Sequence[str]) -> None:
        self.stated = node.returns if states_result(node) else None
        self.result = f"{node.name}_result"
        self.refs = refs

    def statements(self, stmt: ast.stmt) -> list[ast.stmt]:
        visited = self.visit(stmt)
        return visited if isinstance(visited, list) else [visited]

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        value = node.value
        if value is None or is_none(value):
            return [returning(self.refs, node)]
        if self.stated is None:
            return [returning(self.refs, node, value)]
        target = ast.Name(self.result, ast.Store())
        converted = ast.AnnAssign(target, self.stated, value, 1)
        assignment = ast.fix_missing_locations(ast.copy_location(converted, node))
        result = ast.copy_location(ast.Name(self.result, ast.Load()), value)
        return [assignment, returning(self.refs, node, result)]


# ------------------------------------------------------------------------- calls


@dataclass(slots=True)
class Calls:
    """Calls of functions that hand something back, written as assignments; what cannot be is refused."""

    places: Places
    find: Callable[[ast.expr], RefParameters | None]
    errors: list[Diagnostic] = field(default_factory=list)
    refused: set[ast.AST] = field(default_factory=set)

    def written(self, body: list[ast.stmt]) -> None:
        """Write the calls in a block, and in those inside it, as assignments, in place."""
        body[:] = [statement for stmt in body for statement in self._statement(stmt)]

    def _statement(self, stmt: ast.stmt) -> Iterator[ast.stmt]:
        for inner in blocks(stmt):
            self.written(inner)
        call = _whole_call(stmt)
        for node in (node for part in _own(stmt) for node in nodes(part)):
            if isinstance(node, ast.Call) and node is not call and not isinstance(node, RefCall):
                self._refuse_inside(stmt, node)
        callee = None if call is None or stmt in self.refused else self.find(call.func)
        targets = None if callee is None or call is None else self._targets(stmt, call, callee)
        if callee is None or call is None or targets is None:
            yield stmt
            return
        result = f"{callee.name}_result"
        names: list[ast.expr] = [ast.Name(result, ast.Store())] if callee.gives else []
        handed = ast.copy_location(RefCall(call.func, call.args, call.keywords), call)
        assignment = ast.Assign([ast.Tuple([*names, *targets], ast.Store())], handed)
        yield ast.fix_missing_locations(ast.copy_location(assignment, stmt))
        if not isinstance(stmt, ast.Expr):
            setattr(stmt, _slot(stmt), ast.copy_location(ast.Name(result, ast.Load()), call))
            yield stmt

    def _refuse_inside(self, stmt: ast.stmt, node: ast.Call) -> None:
        callee = self.find(node.func)
        if callee is not None:
            message = (
                f"{callee.name} changes what it is handed: its call stands alone, or is all of a right side"
            )
            self._error(stmt, node, message, f"write t = {self.places.text(node)} first, and use t")

    def _error(self, stmt: ast.stmt, node: ast.expr, message: str, hint: str) -> None:
        self.errors.append(Diagnostic(message, self.places(node), "reference", hint=hint))
        self.refused.add(stmt)

    def _targets(self, stmt: ast.stmt, call: ast.Call, callee: RefParameters) -> list[ast.expr] | None:
        arguments = dict(zip(callee.parameters, call.args, strict=False))
        arguments |= {word.arg: word.value for word in call.keywords if word.arg is not None}
        targets: list[ast.expr] = []
        for name in callee.parameters:
            if name not in callee.refs:
                continue
            if name not in arguments:
                message = f"{callee.name} changes {name}, and is given no variable for it"
                self._error(stmt, call, message, f"write {name}=..., a variable, an element or a component")
                return None
            argument = arguments[name]
            if not isinstance(argument, ast.Name | ast.Attribute | ast.Subscript):
                message = (
                    f"{callee.name} changes {name}, which has to be a variable, an element or a component"
                )
                self._error(stmt, argument, message, "give the value to a variable first")
                return None
            if any(isinstance(part, ast.Call) for part in nodes(argument)):
                message = f"{callee.name} changes {self.places.text(argument)}, which must not call anything"
                self._error(stmt, argument, message, "give the index to a variable first")
                return None
            targets.append(_target(argument))
        return targets if self._are_distinct(stmt, call, callee, targets) else None

    def _are_distinct(
        self, stmt: ast.stmt, call: ast.Call, callee: RefParameters, targets: list[ast.expr]
    ) -> bool:
        changed = [*targets, stmt.target] if isinstance(stmt, ast.AugAssign) else targets
        pairs = [(one, other) for one, other in permutations(changed, 2) if one in targets]
        for one, other in pairs:
            if ast.unparse(one) == ast.unparse(other):
                message = f"{callee.name} is to change {ast.unparse(one)} twice at once"
                self._error(stmt, call, message, "use two variables")
                return False
        for one, other in pairs:
            # What comes back is stored in order: the second would be looked up where the first has changed.
            if _depends(other, one) or (other not in targets and _depends(one, other)):
                message = f"{callee.name} changes {ast.unparse(one)}, and {ast.unparse(other)} depends on it"
                self._error(stmt, call, message, "give one of them, or the index, to a variable first")
                return False
        return True


def _depends(target: ast.expr, changed: ast.expr) -> bool:
    """Whether a target is part of what is changed, or its indices read a variable of which that is part."""
    inner = target
    variable = ast.unparse(root_of(changed))
    while isinstance(inner, ast.Attribute | ast.Subscript):
        names = nodes(inner.slice) if isinstance(inner, ast.Subscript) else ()
        if any(isinstance(node, ast.Name) and node.id == variable for node in names):
            return True
        inner = inner.value
        if ast.unparse(inner) == ast.unparse(changed):
            return True
    return False


def _slot(stmt: ast.stmt) -> str:
    """The field of a statement that may be a call which hands something back."""
    return "test" if isinstance(stmt, ast.If) else "value"


def _whole_call(stmt: ast.stmt) -> ast.Call | None:
    """The call that a statement consists of, or that is all of its right side."""
    call = getattr(stmt, _slot(stmt), None)
    return call if isinstance(call, ast.Call) and not isinstance(call, RefCall) else None


def _own(stmt: ast.stmt) -> Iterator[ast.AST]:
    """The parts of a statement that are not blocks."""
    for part in ast.iter_child_nodes(stmt):
        if not isinstance(part, ast.stmt):
            yield part


def _target(argument: ast.Name | ast.Attribute | ast.Subscript) -> ast.expr:
    """The same place as a target; what stands inside is shared with the argument."""
    target = copy.copy(argument)
    target.ctx = ast.Store()
    return target
