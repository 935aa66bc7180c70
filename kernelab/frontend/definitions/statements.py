"""Lowers statements from the syntax tree to IR, with jumps replaced by structured control flow.

Two rules replace break, continue and return:

    if c: A (never falls through); rest     if c: A else: rest
    S (may jump); rest                      S; if not (break or continue or return): rest

where the flags are ordinary variables.  A mistake ends its statement only: the names that the statement
would have set are poisoned, and lowering goes on to find the next mistake.
"""

import ast
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from kernelab.errors import Diagnostic
from kernelab.frontend.definitions import assignment, loops
from kernelab.frontend.expressions import struct_values
from kernelab.frontend.expressions.control import LoopHead, branch, loop, truth
from kernelab.frontend.expressions.expressions import any_expr, condition
from kernelab.frontend.expressions.joins import FLAGS, RETURNED
from kernelab.frontend.meaning import unsupported
from kernelab.frontend.meaning.frame import BrokenCall, Frame, Mistake, Poisoned
from kernelab.frontend.meaning.meanings import (
    ArrayRef,
    Poison,
    StructArrayRef,
    TupleOf,
    Typed,
    Weak,
    describe,
)
from kernelab.frontend.meaning.scope import advanced, bound_in, changed_in, targets
from kernelab.frontend.meaning.syntax_trees import Jump, escaping, is_none, leaves
from kernelab.lang import ops
from kernelab.lang.build import FALSE, integer
from kernelab.lang.ir import Atom, Const, Var
from kernelab.lang.types import bool_, int32

Live = Collection[str]


def block(frame: Frame, stmts: Sequence[ast.stmt], live: Live) -> None:
    """Statements in order; `live` are the variables that later code may read."""
    for k, stmt in enumerate(stmts):
        rest = stmts[k + 1 :]
        jumps = escaping([stmt])
        if isinstance(stmt, ast.If):
            if _absorbs(frame, stmt, rest, jumps, live):
                return
            continue
        _statement(frame, stmt)
        if leaves([stmt]):
            _note_unreached(frame, rest)
        if not rest or leaves([stmt]):
            return
        if jumps:
            _guard(frame, jumps, rest, live)
            return


def _needed(
    frame: Frame, stmt: ast.stmt, rest: Sequence[ast.stmt], jumps: Collection[Jump], live: Live
) -> Live:
    """The names that are read after a statement, or behind a jump at the block's end."""
    if not rest:
        return live
    after = frame.facts.live_after[stmt]
    if not jumps:
        return after
    return (
        after
        | frozenset(live)
        | {FLAGS[jump] for jump in jumps}
        | ({RETURNED} if "return" in jumps else frozenset())
    )


def _absorbs(
    frame: Frame, stmt: ast.If, rest: Sequence[ast.stmt], jumps: Collection[Jump], live: Live
) -> bool:
    """Lower an `if`, with the rest of its block where that belongs into it; says whether it took it."""
    cond: Atom = Var(bool_)  # what stays after a mistake
    with _collecting(frame, ()):
        cond = condition(frame, stmt.test)
    then, orelse = stmt.body, stmt.orelse
    if isinstance(cond, Const):
        chosen = then if cond.value else orelse
        block(frame, [*chosen, *rest], live)
        return True
    if leaves(then) and leaves(orelse):
        _note_unreached(frame, rest)
    takes_rest = bool(rest) and (leaves(then) or leaves(orelse))
    if takes_rest:
        then = then if leaves(then) else [*then, *rest]
        orelse = orelse if leaves(orelse) else [*orelse, *rest]
    needed = live if takes_rest else _needed(frame, stmt, rest, jumps, live)
    with frame.builder.at(frame.places.first_line(stmt)):
        branch(
            frame,
            id(stmt),
            cond,
            lambda: block(frame, then, needed),
            lambda: block(frame, orelse, needed),
            needed,
        )
    if takes_rest:
        return True
    if rest and jumps:
        _guard(frame, jumps, rest, live)
        return True
    return not rest


def _note_unreached(frame: Frame, rest: Sequence[ast.stmt]) -> None:
    if rest:
        span = frame.places.first_line(rest[0])
        frame.notes.append(Diagnostic("this line is never reached", span, "unreached", "warning"))


def _guard(frame: Frame, jumps: Collection[Jump], rest: Sequence[ast.stmt], live: Live) -> None:
    """The rest of a block behind a statement that may have jumped."""
    flag: Atom = FALSE
    for jump in sorted(jumps):
        flag = frame.builder.apply("or", flag, truth(frame.env.get(FLAGS[jump])))
    if isinstance(flag, Const):
        if not flag.value:
            block(frame, rest, live)
        return
    with frame.builder.at(frame.places.first_line(rest[0])):
        branch(frame, ("rest", id(rest[0])), flag, lambda: None, lambda: block(frame, rest, live), live)


@contextmanager
def _collecting(frame: Frame, names: Collection[str]) -> Iterator[None]:
    """A context that collects a mistake, and then poisons the names."""
    try:
        yield
    except Mistake as mistake:
        frame.report(mistake.diagnostic)
    except BrokenCall as broken:
        frame.broken = True
        frame.diagnostics += [
            diagnostic for diagnostic in broken.diagnostics if diagnostic not in frame.diagnostics
        ]
    except Poisoned:
        frame.broken = True
    else:
        return
    for name in names:
        frame.poison(name)


def _statement(frame: Frame, stmt: ast.stmt) -> None:
    if stmt in frame.refused:
        frame.broken = True
        for name in bound_in(stmt):
            frame.poison(name)
        return
    is_loop = isinstance(stmt, ast.For | ast.While)
    names = changed_in([stmt]) if is_loop else {name.id for name in targets(stmt)}
    with _collecting(frame, names), frame.builder.at(frame.places.first_line(stmt)):
        match stmt:
            case ast.Assign():
                assignment.plain(frame, stmt)
            case ast.AnnAssign():
                assignment.annotated(frame, stmt)
            case ast.AugAssign():
                assignment.augmented(frame, stmt)
            case ast.For():
                _for(frame, stmt)
            case ast.While():
                _while(frame, stmt)
            case ast.Break():
                frame.env[FLAGS["break"]] = Weak(True)
            case ast.Continue():
                frame.env[FLAGS["continue"]] = Weak(True)
            case ast.Return():
                _return(frame, stmt)
            case ast.Assert():
                _assert(frame, stmt)
            case ast.Expr():
                _expression(frame, stmt)
            case ast.Pass():
                pass
            case _:
                raise Poisoned


# ------------------------------------------------------------------------- loops


def _for(frame: Frame, stmt: ast.For) -> None:
    inside = loops.Inside(assignment.assign, block)
    call = unsupported.range_of(stmt.iter)
    if call is None:
        loops.over_items(frame, stmt, inside)
        return
    indices = loops.static_indices(frame, stmt, call)
    if indices is not None:
        loops.written_out(frame, stmt, indices, inside)
        return
    assert isinstance(stmt.target, ast.Name)
    name = stmt.target.id
    start: Atom = integer(0)
    step: Atom = integer(1)
    head = LoopHead(Var(int32, name), start)  # what stays after a mistake
    with _collecting(frame, changed_in([stmt])), frame.builder.at(frame.places(call)):
        head, start, step = loops.head(frame, call, name)
    if call is not stmt.iter:
        head, start, step = loops.backwards(frame, head, start, step)
    loops.over_range(frame, stmt, head, lambda: loops.index(frame, head, start, step, name), inside)


def _while(frame: Frame, stmt: ast.While) -> None:
    jumps = escaping(stmt.body)
    loop(
        frame,
        stmt,
        None,
        lambda: block(frame, stmt.body, loops.live_in_loop(frame, stmt, jumps)),
        loops.carried(frame, stmt, jumps),
        jumps,
    )


# ------------------------------------------------------------------------- the rest


def _return(frame: Frame, stmt: ast.Return) -> None:
    frame.env[FLAGS["return"]] = Weak(True)
    if stmt.value is None or is_none(stmt.value):
        return
    if frame.is_kernel:
        hint = "store the result into an array parameter, or make this a function with @func"
        raise frame.error(stmt.value, "a kernel cannot return a value", hint=hint)
    value = frame.value(stmt.value)
    if not isinstance(value, Weak | Typed | TupleOf | ArrayRef | StructArrayRef):
        hint = "return numbers, vectors, matrices, structs, arrays or a tuple of them"
        raise frame.error(stmt.value, f"a function cannot return {describe(value)}", hint=hint)
    struct_values.refuse_local_arrays(frame, value, stmt.value)
    if frame.result is not None:
        value = struct_values.require(frame, value, frame.result, stmt.value, f"{frame.name} returns")
    frame.env[RETURNED] = value
    frame.set_at[RETURNED] = frame.places(stmt)


def _assert(frame: Frame, stmt: ast.Assert) -> None:
    if isinstance(stmt.test, ast.Tuple) and stmt.msg is None:
        hint = "leave the parentheses out«/\\bassert *\\((.*)\\)/assert \\1/»"
        raise frame.error(stmt.test, "assert is not a function: a pair of values always holds", hint=hint)
    cond = condition(frame, stmt.test)
    match stmt.msg:
        case None:
            message = f"assert {frame.places.text(stmt.test)}"
        case ast.Constant(value=str() as message):
            pass
        case _:
            hint = 'write assert condition, "message"'
            raise frame.error(stmt.msg, "the message of an assert has to be plain text", hint=hint)
    if cond == FALSE:
        raise frame.error(stmt.test, f"this assert never holds: {message}", "value")
    frame.builder.check(cond, "assertion", message)


def _expression(frame: Frame, stmt: ast.Expr) -> None:
    if isinstance(stmt.value, ast.Constant) and isinstance(stmt.value.value, str | type(...)):
        return
    value = any_expr(frame, stmt.value)
    if value is not None and not isinstance(value, Poison) and not _may_act(frame, stmt.value):
        hint = "assign it to a name, write return in front of it, or remove it"
        match stmt.value:
            case ast.Compare(left=ast.Name() | ast.Subscript() as left, ops=[ast.Eq()], comparators=[right]):
                hint = f"write «{frame.places.text(left)} = {frame.places.text(right)}» to assign"
            case ast.Compare(ast.Subscript() as left, [ast.Lt()], [ast.UnaryOp(ast.USub(), right)]):
                hint = f"write «{frame.places.text(left)} = {frame.places.text(right)}» to assign"
        message = "this expression has no effect"
        frame.notes.append(Diagnostic(message, frame.places(stmt.value), "unused", "warning", hint=hint))


def _may_act(frame: Frame, node: ast.expr) -> bool:
    """Whether a call may do more than give a value; operations of the table only do if they draw."""
    match node:
        case ast.Call(func=ast.Name(word) as name) if ops.overloads(word):
            is_own = frame.facts.reads.get(name, "outer") != "outer"
            return is_own or any(advanced([node]))
        case _:
            return isinstance(node, ast.Call)
