"""Analyses of the names of a def, on the syntax tree before lowering: liveness and definite assignment.

    live_after[stmt]   the names whose values may be read after a statement falls through
    carried[loop]      the names that a loop carries: assigned in its body, and read before they are written
                       there or read after the loop
    reads[name]        whether a read finds the local variable, what the name means outside, or maybe neither
    watched            the loop indices that may be unset where they are read: known at run time only

Liveness is one walk backwards, definite assignment one walk forwards; both follow break, continue and
return.  Expects the loops of `syntax_trees.plain_loops`.  Knows no types and no meaning of names.
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Literal, NamedTuple

from kernelab.builtins.language_words import DRAWS
from kernelab.data_classes import dataclass, field
from kernelab.frontend.meaning.syntax_trees import (
    LoopElse,
    LoopEnd,
    blocks,
    nodes,
    parameters,
    root_of,
    statements,
    word,
)
from kernelab.lang import ops

_DRAWS = "draws "


@cache
def draws(name: str) -> int:
    """The number of draws of an operation from its random state."""
    tags = [tag for op in ops.overloads(name) for tag in op.tags if tag.startswith(_DRAWS)]
    return int(tags[0].removeprefix(_DRAWS)) if tags else DRAWS.get(name, 0)


def advanced(parts: Sequence[ast.AST]) -> Iterator[str]:
    """The names that calls within the syntax advance."""
    for part in parts:
        for node in nodes(part):
            match node:
                case ast.Call(func=ast.Name(name) | ast.Attribute(attr=name), args=args):
                    state = [state_of(node)] if draws(name) else []
                    for variable in (*state, *args[filled(name, len(args))]):
                        if isinstance(variable, ast.Name):
                            yield variable.id


@cache
def filled(name: str, count: int) -> slice:
    """The arguments that a call fills: `transform_set_translation(t, p)`, `svd3(a, u, sigma, v)`."""
    if name in ("transform_set_translation", "transform_set_rotation"):
        return slice(0, 1)
    parts = next((op.parts for op in ops.overloads(name)), ())
    return slice(count - len(parts), count) if parts and count > len(parts) else slice(0, 0)


def state_of(node: ast.Call) -> ast.expr | None:
    """The argument of a call that stands for the state."""
    named = [word.value for word in node.keywords if word.arg == "state"]
    return next(iter((*node.args[:1], *named)), None)


# ----------------------------------------------------------------------------------------------------- scope


Names = frozenset[str]
Read = Literal["local", "unset", "outer"]
NONE: Names = frozenset()


@dataclass(slots=True)
class Facts:
    """The results of the two analyses, by identity of the node."""

    live_after: dict[ast.stmt, Names] = field(default_factory=dict)
    carried: dict[ast.stmt, Names] = field(default_factory=dict)
    reads: dict[ast.Name, Read] = field(default_factory=dict)
    assignments: dict[str, list[ast.expr | ast.arg]] = field(default_factory=dict)
    in_loop: set[ast.expr | ast.arg] = field(default_factory=set)
    watched: Names = NONE


class Known(NamedTuple):
    """What is known before a def runs: how often a loop does, and whether a condition holds; None if not."""

    trips: Callable[[ast.For], int | None]
    holds: Callable[[ast.expr], bool | None]


def analyse(arguments: ast.arguments, body: Sequence[ast.stmt], known: Known) -> Facts:
    """The facts of a def."""
    facts = Facts(assignments={parameter.arg: [parameter] for parameter in parameters(arguments)})
    _collect(body, facts, False)
    _Liveness(facts).block(body, NONE, NONE, NONE)
    names = frozenset(parameter.arg for parameter in parameters(arguments))
    _Assignment(facts, known).block(body, _State(names, names))
    unset = {name.id for name, read in facts.reads.items() if read == "unset"}
    counting = (stmt for stmt in statements(body) if isinstance(stmt, ast.For) and _counts(stmt))
    facts.watched = frozenset(name.id for loop in counting for name in targets(loop) if name.id in unset)
    return facts


def _counts(loop: ast.For) -> bool:
    """Whether a loop goes over `range(...)`, or over `reversed(range(...))`."""
    return any(isinstance(part, ast.Call) and word(part) == "range" for part in nodes(loop.iter))


def assigned(stmt: ast.stmt) -> Iterator[ast.expr]:
    """What a statement itself assigns, the items of a tuple one by one, without the statements inside it."""
    match stmt:
        case ast.Assign(targets=several):
            yield from _items(several)
        case (
            ast.AugAssign(target=target)
            | ast.AnnAssign(target=target, value=ast.expr())
            | ast.For(target=target)
        ):
            yield from _items([target])


def _items(targets: Sequence[ast.expr]) -> Iterator[ast.expr]:
    for target in targets:
        if isinstance(target, ast.Tuple):
            yield from _items(target.elts)
        else:
            yield target


def targets(stmt: ast.stmt) -> Iterator[ast.Name]:
    """The names that a statement itself assigns."""
    return (target for target in assigned(stmt) if isinstance(target, ast.Name))


def changed(stmt: ast.stmt) -> Iterator[str]:
    """The names whose values a statement itself may change: assigned, advanced, or through a component."""
    yield from advanced(_own(stmt))
    yield from (root.id for root in map(root_of, assigned(stmt)) if isinstance(root, ast.Name))


def changed_in(stmts: Sequence[ast.stmt]) -> Names:
    """The names whose values the statements, and those inside them, may change."""
    return frozenset(name for stmt in statements(stmts) for name in changed(stmt))


def bound_in(refused: ast.stmt) -> Names:
    """The names that a statement binds which a kernel cannot contain, in whatever way Python has."""
    return frozenset(
        name.partition(".")[0]
        for node in ast.walk(refused)
        if not isinstance(getattr(node, "ctx", None), ast.Load)
        for name in (getattr(node, part, None) for part in ("id", "name", "asname"))
        if isinstance(name, str)
    )


def _collect(stmts: Sequence[ast.stmt], facts: Facts, in_loop: bool) -> None:
    for stmt in stmts:
        for name in targets(stmt):
            facts.assignments.setdefault(name.id, []).append(name)
            if in_loop or isinstance(stmt, ast.For):
                facts.in_loop.add(name)
        for inner in blocks(stmt):
            _collect(inner, facts, in_loop or isinstance(stmt, ast.For | ast.While))


def _own(stmt: ast.stmt) -> list[ast.AST]:
    """The expressions that a statement itself evaluates, without the statements inside it."""
    match stmt:
        case ast.If(test=test):
            return [test]
        case ast.While():
            return []
        case ast.For(iter=iterable):
            return [iterable]
        case ast.AnnAssign(target=target, value=value):
            return [target] if value is None else [target, value]
        case _:
            return [stmt]


def _reads(stmt: ast.stmt) -> list[ast.Name]:
    names = [node for part in _own(stmt) for node in nodes(part) if isinstance(node, ast.Name)]
    reads = [node for node in names if isinstance(node.ctx, ast.Load)]
    if isinstance(stmt, ast.AugAssign) and isinstance(stmt.target, ast.Name):
        reads.append(stmt.target)
    return reads


class _Liveness:
    """Walks backwards; each method gives the names live before what it is handed."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def block(self, stmts: Sequence[ast.stmt], live: Names, at_break: Names, at_continue: Names) -> Names:
        for stmt in reversed(stmts):
            self.facts.live_after[stmt] = live
            live = self.stmt(stmt, live, at_break, at_continue)
        return live

    def stmt(self, stmt: ast.stmt, live: Names, at_break: Names, at_continue: Names) -> Names:
        reads = frozenset(name.id for name in _reads(stmt))
        match stmt:
            case ast.Break():
                return at_break
            case ast.Continue():
                return at_continue
            case ast.Return():
                return reads
            case ast.If(body=body, orelse=orelse):
                then = self.block(body, live, at_break, at_continue)
                return reads | then | self.block(orelse, live, at_break, at_continue)
            case ast.For() | ast.While():
                return reads | self.loop(stmt, live)
            case _:
                return (live - {name.id for name in targets(stmt)}) | reads

    def loop(self, loop: ast.For | ast.While, live: Names) -> Names:
        # What the body reads first is live at its end too: a second walk reaches the fixed point.
        after = live if isinstance(loop, ast.For) else NONE
        own = frozenset(name.id for name in targets(loop))
        head = self.block(loop.body, after, live, after) - own
        head = self.block(loop.body, after | head, live, after | head) - own
        self.facts.carried[loop] = changed_in([loop]) & (head | live)
        return head | after


@dataclass(frozen=True, slots=True)
class _State:
    """The names set on every path to a point, and on some path; `reached` is false behind a jump."""

    all: Names
    some: Names
    reached: bool = True

    def join(self, other: "_State") -> "_State":
        if not self.reached:
            return other
        if not other.reached:
            return self
        return _State(self.all & other.all, self.some | other.some)


_NOWHERE = _State(NONE, NONE, False)


class _Assignment:
    """Walks forwards, and classifies every read of a name."""

    def __init__(self, facts: Facts, known: Known) -> None:
        self.facts = facts
        self.known = known
        self._at_break: list[_State] = []
        self._at_continue: list[_State] = []
        self._at_end: list[_State] = []
        self._ends: dict[ast.stmt, tuple[_State, _State]] = {}

    def block(self, stmts: Sequence[ast.stmt], state: _State) -> _State:
        for stmt in stmts:
            state = self.stmt(stmt, state)
        return state

    def stmt(self, stmt: ast.stmt, state: _State) -> _State:
        for name in _reads(stmt):
            self.facts.reads[name] = _classify(name.id, state)
        match stmt:
            case LoopEnd():
                self._at_end[-1] = state
                return _NOWHERE
            case ast.Break():
                self._at_break[-1] = self._at_break[-1].join(state)
                return _NOWHERE
            case ast.Continue():
                self._at_continue[-1] = self._at_continue[-1].join(state)
                return _NOWHERE
            case ast.Return():
                return _NOWHERE
            case LoopElse(loop=loop, orelse=orelse):
                done, left = self._ends[loop]
                return self.block(orelse, done).join(left)
            case ast.If(test=test, body=body, orelse=orelse):
                sides = self.block(body, state), self.block(orelse, state)
                return self._decided(test, *sides)
            case ast.For() | ast.While():
                return self.loop(stmt, state)
            case _:
                return _assign(state, frozenset(name.id for name in targets(stmt)))

    def _decided(self, test: ast.expr, then: _State, orelse: _State) -> _State:
        """The state after an `if`: that of the side that is known to run, where it goes on."""
        joined, holds = then.join(orelse), self.known.holds(test)
        taken = then if holds else orelse
        return joined if holds is None or not taken.reached else _State(taken.all, joined.some)

    def loop(self, loop: ast.For | ast.While, state: _State) -> _State:
        assigned = frozenset(name.id for stmt in statements([loop]) for name in targets(stmt))
        self._at_break.append(_NOWHERE)
        self._at_continue.append(_NOWHERE)
        head = _State(state.all, state.some | assigned, state.reached)
        self._at_end.append(_State(head.all, head.some, False))  # an endless loop ends nowhere
        own = frozenset(name.id for name in targets(loop))
        end = self.block(loop.body, _assign(head, own)).join(self._at_continue.pop())
        left, done = self._at_break.pop(), self._at_end.pop()
        if isinstance(loop, ast.For):
            done = end if self.known.trips(loop) else end.join(head)
        self._ends[loop] = (done, left)
        return done.join(left)


def _assign(state: _State, names: Names) -> _State:
    return _State(state.all | names, state.some | names, state.reached) if state.reached else state


def _classify(name: str, state: _State) -> Read:
    if name in state.all or (not state.reached and name in state.some):
        return "local"
    return "unset" if name in state.some else "outer"
