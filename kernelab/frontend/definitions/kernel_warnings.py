"""Warns of kernels and functions that keep all rules and hardly are what was meant.

Must not know how a kernel is lowered: it looks at the tree of a def, and at what its frame has found out.
"""

import ast
from collections.abc import Iterator, Mapping

from kernelab.errors import Diagnostic
from kernelab.frontend.definitions.definitions import Template
from kernelab.frontend.definitions.lost_sums import lost_sums
from kernelab.frontend.meaning.frame import Frame
from kernelab.frontend.meaning.meanings import Meaning, TupleOf, Typed
from kernelab.frontend.meaning.syntax_trees import nodes
from kernelab.guidance.hint_tables import NAMES
from kernelab.lang.ir import Append, Assert, Atomic, Block, Call, Function, Native, Print, Store, walk


def note_doubts(frame: Frame, kernel: Function, template: Template) -> None:
    """Add the warnings of a kernel that has been lowered to the notes of its frame."""
    _note_no_effect(frame, kernel.body, template)
    _note_no_thread(frame, template)
    _note_thread_twice(frame, template)


def note_lost_change(frame: Frame, template: Template, params: Mapping[str, Meaning]) -> None:
    """Warn where a component or field of a parameter that is a copy is assigned, and nothing reads it."""
    parts = (ast.Attribute, ast.Subscript)
    stored = [n for n in nodes(template.node) if isinstance(n, parts) and isinstance(n.ctx, ast.Store)]
    owners = {_owner(target) for target in stored}
    read = {n.id for n in nodes(template.node) if isinstance(n, ast.Name) and n not in owners}
    for target in stored:
        owner = _owner(target)
        if not isinstance(owner, ast.Name) or owner.id in read or not _is_copied(target, params):
            continue
        name, place = owner.id, template.places(target)
        message = (
            f"{template.places.text(target)} is assigned in the own copy of {name}, and nothing reads it"
        )
        argument = next(argument for argument in template.arguments if argument.arg == name)
        stated = template.places.text(argument.annotation) if argument.annotation is not None else "..."
        hint = f"return {name}; or write {name}: ref[{stated}], which hands it back to the caller"
        if frame.is_kernel:
            hint = f"annotate {name}: array[{stated}], and assign to a part of {name}[i]"
        frame.notes.append(Diagnostic(message, place, "unused", "warning", hint=hint))


def _owner(target: ast.expr) -> ast.expr:
    while isinstance(target, ast.Attribute | ast.Subscript):
        target = target.value
    return target


def _is_copied(target: ast.expr, params: Mapping[str, Meaning]) -> bool:
    """Whether a target is a part of a value parameter, and no element of an array in it."""
    return isinstance(_meaning(target, params), Typed | TupleOf)


def _meaning(target: ast.expr, params: Mapping[str, Meaning]) -> Meaning | None:
    """What a part of a parameter means; of a vector or a matrix the whole of it."""
    match target:
        case ast.Name(name):
            return params.get(name)
        case ast.Attribute(value, field) | ast.Subscript(value, field):
            whole = _meaning(value, params)
            if not isinstance(whole, TupleOf) or whole.struct is None:
                return whole
            names = [entry.name for entry in whole.struct.fields]
            return whole.items[names.index(field)] if field in names else None
        case _:
            return None


def _note_no_effect(frame: Frame, body: Block, template: Template) -> None:
    """Warn where a kernel changes nothing, unless it says so, or a line of it has been pointed out."""
    if all(isinstance(stmt, ast.Pass | ast.Return) or _is_text(stmt) for stmt in template.body):
        return
    if any(note.code in ("unused", "unreached") for note in frame.notes) or _does_something(body):
        return
    message, span = f"the kernel {frame.name} changes nothing", template.span
    hint = "store what it computes into an array parameter: y[i] = ..."
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


def lost_sum_warnings(kernel: Function, template: Template) -> Iterator[Diagnostic]:
    """The warnings of a launch whose threads store to one element what they have read there, and more."""
    lines, text = {store.span.line for store in lost_sums(kernel)}, template.places.text
    for stmt in nodes(template.node) if lines else ():
        if not isinstance(stmt, ast.Assign) or (place := template.places(stmt)).line not in lines:
            continue
        target = stmt.targets[0]
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


def _is_text(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)


def _does_something(body: Block) -> bool:
    return any(
        isinstance(stmt, Store | Atomic | Append | Assert | Print | Native)
        or (isinstance(stmt, Call) and _does_something(stmt.function.body))
        for stmt in walk(body)
    )
