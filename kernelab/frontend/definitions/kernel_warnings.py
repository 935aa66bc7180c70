"""Warns of kernels and functions that are valid, but probably mistakes.

Must not know how a kernel is lowered: it looks at the tree of a def, at what its frame has found out, and for
sums that threads lose, where one loads an element, adds to it and stores it and so do others, at the IR.
"""

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import product

from kernelab.errors import Diagnostic
from kernelab.frontend.definitions.definitions import Template
from kernelab.frontend.meaning.frame import Frame
from kernelab.frontend.meaning.scope import assigned, draws
from kernelab.frontend.meaning.syntax_trees import nodes, root_of, statements, word
from kernelab.guidance.hint_tables import NAMES
from kernelab.lang import ir, ops
from kernelab.lang.build import type_of
from kernelab.lang.dependence import reached
from kernelab.lang.operators import MIRRORED, OPPOSITE
from kernelab.lang.types import Array, scalar_of


def note_doubts(frame: Frame, kernel: ir.Function, template: Template) -> None:
    """Add the warnings of a kernel that has been lowered to the notes of its frame."""
    _note_no_effect(frame, kernel, template)
    _note_no_thread(frame, template)
    _note_thread_twice(frame, template)
    frame.notes += (*idle_calls(kernel.body, template), *repeated_draws(kernel.body))


def _note_no_effect(frame: Frame, kernel: ir.Function, template: Template) -> None:
    """Warn where a kernel changes nothing, unless it says so, or a line of it has been pointed out."""
    if all(isinstance(stmt, ast.Pass | ast.Return) or _is_text(stmt) for stmt in template.body):
        return
    if any(note.code in ("unused", "unreached") for note in frame.notes) or _acts(kernel):
        return
    message, span = f"the kernel {frame.name} changes nothing", template.span
    hint = "store what it computes into an array parameter: y[i] = ...; a function returns it"
    names = {argument.arg for argument in template.arguments}
    for node in nodes(template.node):
        match node:
            case ast.Name(name, ast.Store()) if name in names:
                span = template.places(node)
                hint = f"{name} is the thread's own number: for a result annotate {name}: array[float], and "
                hint += f"write {name}[i] = ..., or {name}[0] += ... for a sum"
    frame.notes.append(Diagnostic(message, span, "unused", "warning", hint=hint))


def _note_no_thread(frame: Frame, template: Template) -> None:
    """Warn where an index that is called as the thread's is a number of the notebook."""
    numbers = {constant.name: constant.value for constant in frame.scope.constants.values()}
    for node in [] if frame.threads else nodes(template.node):
        match node:
            case ast.Subscript(slice=ast.Name(name)) if "tid()" in NAMES.hint(name) and name in numbers:
                message = f"{name} is {numbers[name]} of the notebook here, in every thread"
                place = template.places(node.slice)
                hint = NAMES.hint(name)
                frame.notes.append(Diagnostic(message, place, "name", "warning", hint=hint))
                return


def _note_thread_twice(frame: Frame, template: Template) -> None:
    """Warn where two names of the same number, `tid()`, index an array together, as if they were two."""
    named: set[str] = set()
    for node in nodes(template.node) if len(frame.threads) == 1 else ():
        match node:
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)):
                pairs = list(zip(targets, values, strict=False))
            case ast.Assign([target], value):
                pairs = [(target, value)]
            case _:
                continue
        for pair in pairs:
            match pair:
                case ast.Name(name), ast.Call(func=ast.Name("tid")):
                    named.add(name)
    for node in nodes(template.node) if len(named) > 1 else ():
        match node:
            case ast.Subscript(slice=ast.Tuple([ast.Name(i), ast.Name(j), *_])) if {i, j} <= named and i != j:
                message = f"{i} and {j} are the same number: that of the thread"
                hint = f"write {i}, {j} = tid(), and launch over dim=(n, m)"
                place = template.places(node.slice)
                frame.notes.append(Diagnostic(message, place, "name", "warning", hint=hint))
                return


def _is_text(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)


def idle_calls(body: ir.Block, template: Template) -> Iterator[Diagnostic]:
    """The warnings of calls whose results nobody takes, of functions that do nothing else."""
    idle = {call.span for call in ir.of_kind(body, ir.Call) if not _acts(call.function)}
    for stmt in statements(template.body):
        if not isinstance(stmt, ast.Expr) or (place := template.places(stmt.value)) not in idle:
            continue
        if all(node is stmt.value for node in nodes(stmt) if isinstance(node, ast.Call)):
            hint = "give what it returns to a name, or remove it"
            yield Diagnostic("this call has no effect", place, "unused", "warning", hint=hint)


def repeated_draws(block: ir.Block, loop: ir.Stmt | None = None) -> Iterator[Diagnostic]:
    """The warnings of calls that draw from a copy of a state, from which the caller draws once more.

    Both are statements of one block, or the call is one of the body of a loop: branches exclude each other.
    """
    called: dict[ir.Var, Diagnostic] = {}
    for stmt in block.stmts:
        for state in _draws(stmt):
            if state in called:
                yield called.pop(state)
            elif isinstance(stmt, ir.Call) and not draws(stmt.function.name):
                called[state] = _drawn_again(stmt, state)
        for inner in ir.blocks(stmt):
            yield from repeated_draws(inner, stmt if isinstance(stmt, ir.Loop) else None)
    if loop is not None:
        made = {*ir.entering(loop), *(out for stmt in block.stmts for out in ir.defs(stmt))}
        yield from (diagnostic for state, diagnostic in called.items() if state not in made)


def _draws(stmt: ir.Stmt) -> Iterator[ir.Var]:
    """The states that a statement draws random numbers from."""
    match stmt:
        case ir.Let(_, op, (ir.Var() as state, *_)) if draws(op.name):
            yield state
        case ir.Call(_, function, (ir.Var() as state, *_)) if draws(function.name):  # poisson, sample_cdf
            yield state
        case ir.Call(_, function, args, gradient=False):
            yield from (arg for k in _drawn_from(function) if isinstance(arg := args[k], ir.Var))


@lru_cache(512)  # as for ir.changed_by
def _drawn_from(function: ir.Function) -> tuple[int, ...]:
    """Which parameters a function draws random numbers from."""
    states = {state for stmt in ir.walk(function.body) for state in _draws(stmt)}
    return tuple(k for k, param in enumerate(function.params) if param in states)


def _drawn_again(call: ir.Call, state: ir.Var) -> Diagnostic:
    name, params = call.function.name, call.function.params
    own = next(param.hint for param, arg in zip(params, call.args, strict=True) if arg is state)
    message = f"{name} draws from its own copy of {state.hint}, and the next draw gives the same number again"
    hint = f"write {own}: ref[uint32] in {name}, which hands the state back to the caller; "
    hint += "if the same numbers are meant, begin each time with rand_init(...)"
    return Diagnostic(message, call.span, "unused", "warning", hint=hint)


_ACTING = ir.Store | ir.Atomic | ir.Append | ir.Assert | ir.Print | ir.Native


@lru_cache(512)  # many calls may be of one function
def _acts(function: ir.Function) -> bool:
    return any(isinstance(stmt, _ACTING) for one in ir.called(function) for stmt in ir.walk(one.body))


# --------------------------------------------------------------------------------------------- lost changes
#
# After ``s = p[i]``, ``s.mass = 2.0`` leaves p[i] as it is: where nothing reads s afterwards, that was hardly
# meant.  The same holds of an argument, which a function gets as a copy.


def note_lost_changes(frame: Frame, template: Template) -> None:
    """Add the warnings of a def that has been lowered to the notes of its frame."""
    changes = [change for stmt in statements(template.body) for change in _changes(stmt)]
    own = {n for stmt, target, owner in changes for n in _names(stmt if _only_sets(stmt) else target, owner)}
    read = {n.id for stmt in template.body for n in _names(stmt) if n not in own}
    for stmt, target, owner in changes:
        still_read = read & frame.facts.live_after[stmt] if _only_sets(stmt) else read
        if target in frame.changed_copies and owner not in still_read:
            arguments = [argument for argument in template.arguments if argument.arg == owner]
            frame.notes += (_lost_argument(frame, template, target, argument) for argument in arguments)
            frame.notes += [] if arguments else _lost_copy(template, target, owner)


def _changes(stmt: ast.stmt) -> Iterator[tuple[ast.stmt, ast.expr, str]]:
    """What a statement assigns, and what ``+=`` changes, each with the variable that it belongs to."""
    for target in () if isinstance(stmt, ast.For) else assigned(stmt):
        if isinstance(owner := root_of(target), ast.Name):
            yield stmt, target, owner.id


def _names(part: ast.AST, name: str = "") -> Iterator[ast.Name]:
    """Where variables, or that of the name, are read; the target of a component reads its variable too."""
    for node in nodes(part):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and name in ("", node.id):
            yield node


def _only_sets(stmt: ast.stmt) -> bool:
    """Whether a statement sets one target, and no call in it can have another effect."""
    calls = (node for node in nodes(stmt) if isinstance(node, ast.Call))
    tuples = (node for node in nodes(stmt) if isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Store))
    return not any(tuples) and all(ops.overloads(word(call)) for call in calls)


def _lost_argument(frame: Frame, template: Template, target: ast.expr, argument: ast.arg) -> Diagnostic:
    text, name = template.places.text, argument.arg
    message = f"{text(target)} is assigned in the own copy of {name}, and nothing reads it"
    stated = text(argument.annotation) if argument.annotation is not None else "..."
    hint = f"return {name}; or write {name}: ref[{stated}], which hands it back to the caller"
    if frame.is_kernel:
        hint = f"annotate {name}: array[{stated}], and assign to a part of {name}[i]"
    return Diagnostic(message, template.places(target), "unused", "warning", hint=hint)


def _lost_copy(template: Template, target: ast.expr, name: str) -> Iterator[Diagnostic]:
    """The warning of a variable that holds a copy of a part of something; of any other it says nothing."""
    text = template.places.text
    part = text(target).removeprefix(name)
    for stmt in statements(template.body):
        match stmt:
            case ast.Assign([ast.Name(id)], ast.Subscript() | ast.Attribute() as source) if id == name:
                whole = text(source)
                hint = f"assign to {whole}{part}; or store the copy: {whole} = {name}"
            case ast.For(ast.Name(id), source) if id == name:
                whole = f"{text(source)}[k]"
                hint = f"write for k in range(len({text(source)})):, and assign to {whole}{part}"
            case _:
                continue
        message = f"{text(target)} is assigned in a copy of {whole}, and nothing reads it"
        yield Diagnostic(message, template.places(target), "unused", "warning", hint=hint)
        return


# ------------------------------------------------------------------------------------------------- lost sums
#
#     if i != j: e[0] = e[0] - x[i]        between load and store another thread may have stored
#     e[0] = x[i] * x[i]                   one thread's value stays, of all that were computed
#
# The element is the same in all threads, and the conditions around the store hold in more than one of them.
# Where conditions may pick one thread, as ``i == 0`` and ``i >= n - 1`` do, and where threads take turns by
# the results of atomics, nothing is found.  Nor is a store under a condition, which may choose the thread.


Condition = tuple[ir.Atom, bool]
"""A value, and what it is where something runs."""

_SHARED_BY_MANY = frozenset({"mod", "floordiv", "bit_and", "shr", "rshift"})
"""What several indices have one result of."""


def lost_sum_warnings(kernel: ir.Function, template: Template) -> Iterator[Diagnostic]:
    """The warnings of a launch whose threads store to one element what they have read there, and more."""
    sums, text = {store.span.line for store in lost_sums(kernel)}, template.places.text
    stores = {store.span.line for store in lost_stores(kernel)} - sums
    for stmt in nodes(template.node) if sums or stores else ():
        if not isinstance(stmt, ast.Assign) or (place := template.places(stmt)).line not in sums | stores:
            continue
        target = stmt.targets[0]
        if place.line in stores:
            message = f"every thread stores a value of its own to {text(target)}, and one of them stays"
            hint = f"write «{text(target)} += {text(stmt.value)}» for the sum over all threads"
            hint += ", or store to an element of each thread, as in y[i] = ..."
            yield Diagnostic(message, place, "race", "warning", hint=hint)
            continue
        message = (
            f"threads store to {text(target)} what they have read there, and more: "
            "where two do so at once, one addition is lost"
        )
        change = f"{text(target)} += ..."
        match stmt.value:
            case ast.BinOp(read, ast.Add() | ast.Sub() as op, right) if text(read) == text(target):
                change = f"«{text(target)} {'+' if isinstance(op, ast.Add) else '-'}= {text(right)}»"
        hint = f"write {change}, which adds up over all threads"
        yield Diagnostic(message, place, "race", "warning", hint=hint)


def lost_sums(kernel: ir.Function) -> Iterator[ir.Store]:
    """The stores of a kernel of which additions may be lost."""
    stores = ir.of_kind(kernel.body, ir.Store)
    may_meet = any(not {*kernel.threads}.issubset(stmt.indices) for stmt in stores)
    if may_meet and not _takes_turns(kernel):
        yield from _Finder(kernel).stores(kernel.body, ())


def lost_stores(kernel: ir.Function) -> Iterator[ir.Store]:
    """The stores of a kernel to one element that run in every thread, with a value of its own in each.

    An array that the kernel also reads may hand on values from thread to thread, on the CPU.
    """
    aside = {stmt.array for stmt in ir.walk(kernel.body) if isinstance(stmt, ir.Load)}
    own = [stmt for stmt in kernel.body.stmts if isinstance(stmt, ir.Store)]
    own = [stmt for stmt in own if stmt.array in kernel.params and stmt.array not in aside]
    if kernel.threads and own and not _takes_turns(kernel):
        by_thread = _reached(kernel.threads, [*ir.walk(kernel.body)])
        yield from (one for one in own if one.value in by_thread and by_thread.isdisjoint(one.indices))


def _takes_turns(kernel: ir.Function) -> bool:
    """Whether the result of an atomic is used, in functions that are called, too."""
    bodies = [one.body for one in ir.called(kernel)]
    read = frozenset(atom for body in bodies for atom in ir.reads(body))
    return any(stmt.out in read for body in bodies for stmt in ir.of_kind(body, ir.Atomic))


class _Finder:
    """Knows what differs between threads, and between the iterations of loops."""

    def __init__(self, kernel: ir.Function) -> None:
        self.count, self.params = len(kernel.threads), frozenset(kernel.params)
        stmts = [*ir.walk(kernel.body)]
        self.made: dict[ir.Atom, ir.Stmt] = {out: stmt for stmt in stmts for out in ir.defs(stmt)}
        self.by_thread = _reached(kernel.threads, stmts)
        self.by_loop = _reached([var for stmt in stmts for var in ir.entering(stmt)], stmts)

    def stores(self, block: ir.Block, conditions: tuple[Condition, ...]) -> Iterator[ir.Store]:
        """The lost sums of a block that runs under some conditions."""
        for stmt in block.stmts:
            match stmt:
                case ir.Store(array, indices) if array in self.params and self.by_thread.isdisjoint(indices):
                    few = sum(self.picked(*condition) for condition in conditions) >= self.count
                    if not few and self.adds_to(stmt.value, stmt):
                        yield stmt
                case ir.If(_, cond, then, orelse):
                    yield from self.stores(then, (*conditions, (cond, True)))
                    yield from self.stores(orelse, (*conditions, (cond, False)))
                case _:
                    for inner in ir.blocks(stmt):
                        yield from self.stores(inner, conditions)

    def adds_to(self, value: ir.Atom, store: ir.Store) -> bool:
        """Whether a value is what the element held, with something added."""
        match self.made.get(value):
            case ir.Let(_, op, (first, *others)) if op.name in ("add", "sub", "extract", "insert"):
                terms = {"add": (first, *others), "insert": others[-1:]}.get(op.name, (first,))
                return any(self.holds(term, store) or self.adds_to(term, store) for term in terms)
            case _:
                return False

    def holds(self, value: ir.Atom, store: ir.Store) -> bool:
        """Whether a value is what the element held."""
        match self.made.get(value):
            case ir.Load(_, array, indices) if array is store.array:
                return all(map(self.same, indices, store.indices))
            case _:
                return False

    def same(self, a: ir.Atom, b: ir.Atom) -> bool:
        """Whether two values are equal by their text."""
        match self.made.get(a), self.made.get(b):
            case ir.Let(_, op, args), ir.Let(_, other, others) if op is other and len(args) == len(others):
                return a is b or all(map(self.same, args, others))
            case _:
                return a is b or (isinstance(a, ir.Const) and a == b)

    def picked(self, atom: ir.Atom, truth: bool) -> int:
        """How many thread indices a condition may leave a single value; all of them if it never holds."""
        if atom not in self.by_thread:
            return 0 if not isinstance(atom, ir.Const) or bool(atom.value) == truth else self.count
        match self.made.get(atom):
            case ir.Let(_, op, (arg,)) if op.name == "not":
                return self.picked(arg, not truth)
            case ir.Let(_, op, (a, b)) if op.name in ("and", "or"):
                both = self.picked(a, truth), self.picked(b, truth)
                return sum(both) if truth == (op.name == "and") else min(both)
            case ir.Let(_, op, (a, b)) if op.name in OPPOSITE:
                name = op.name if truth else OPPOSITE[op.name]
                if a not in self.by_thread:
                    name, a, b = MIRRORED.get(name, name), b, a
                return int(self.picks(name, a, b))
            case ir.If(outs, cond, then, orelse) if atom in outs:
                ways = ((then.yields[outs.index(atom)], True), (orelse.yields[outs.index(atom)], False))
                return min(self.picked(cond, way) + self.picked(value, truth) for value, way in ways)
            case _:
                return self.count

    def picks(self, name: str, index: ir.Atom, other: ir.Atom) -> bool:
        """Whether a comparison of what differs between threads may hold in one thread alone."""
        if name == "ne" or other in self.by_loop or index in self.by_loop:
            return False
        stmt = self.made.get(index)
        if name == "eq":
            return not (isinstance(stmt, ir.Let) and stmt.op.name in _SHARED_BY_MANY)
        is_index = scalar_of(type_of(index)).is_int and not isinstance(stmt, ir.Load)
        if not is_index or other in self.by_thread:
            return False
        if not isinstance(other, ir.Const):
            return name in ("gt", "ge")
        return (name, other.value) in (("lt", 1), ("le", 0), ("lt", 0))


def _reached(sources: Iterable[ir.Var], stmts: list[ir.Stmt]) -> frozenset[ir.Var]:
    """All values that depend on some, also by an index or by which way is taken; arrays do not count."""
    edges = [edge for stmt in stmts for edge in ir.flows(stmt)]
    for stmt in stmts:
        if not isinstance(stmt, ir.Loop):
            edges += product(ir.atoms(stmt), ir.defs(stmt))
    return reached(edges, sources, lambda node: isinstance(node, ir.Var) and not isinstance(node.type, Array))
