"""Statements: from the syntax tree to IR, jumps without a jump.

Two rules replace break, continue and return:

    if c: A (never falls through); rest     if c: A else: rest
    S (may jump); rest                      S; if not (break or continue or return): rest

where the flags are ordinary variables.  A mistake ends its statement only: the names that the statement
would have set are poisoned, and lowering goes on to find the next mistake.
"""

import ast
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from kernelab.errors import Diagnostic, Span
from kernelab.frontend import (
    calls,
    fence,
    habits,
    local,
    loops,
    places,
    purpose,
    ranges,
    rows,
    several,
    structs,
)
from kernelab.frontend.advance import advanced
from kernelab.frontend.annotations import annotation
from kernelab.frontend.control import FLAGS, WATCH, LoopHead, branch, loop, truth
from kernelab.frontend.expressions import any_expr, as_number, condition, expr, number
from kernelab.frontend.frame import BrokenCall, Frame, Mistake, Poisoned
from kernelab.frontend.items import unpacked
from kernelab.frontend.joins import RETURNED
from kernelab.frontend.jumps import Jump, escaping, leaves
from kernelab.frontend.operators import binary
from kernelab.frontend.promote import convert
from kernelab.frontend.scope import changed_in, targets
from kernelab.frontend.threads import threads
from kernelab.frontend.values import (
    ArrayRef,
    BuiltinRef,
    Meaning,
    Poison,
    StructArrayRef,
    TupleOf,
    Typed,
    View,
    Weak,
    describe,
)
from kernelab.lang import ops
from kernelab.lang.build import FALSE, integer
from kernelab.lang.ir import Atom, Const, Var
from kernelab.lang.types import Scalar, bool_, int32

Live = Collection[str]


def block(frame: Frame, stmts: Sequence[ast.stmt], live: Live) -> None:
    """Statements in order; `live` are the variables that whoever follows may read."""
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
    """What must survive a statement: what is read after it, and behind a jump at the block's end."""
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
    cond = _condition(frame, stmt.test)
    then, orelse = stmt.body, stmt.orelse
    if isinstance(cond, Const):
        chosen = then if cond.value else orelse
        block(frame, [*chosen, *rest], live)
        return True
    if leaves(then) and leaves(orelse):
        _note_unreached(frame, rest)
    takes_rest = bool(rest) and (leaves(then) or leaves(orelse))
    if takes_rest:
        then, orelse = (
            (then if leaves(then) else [*then, *rest]),
            (orelse if leaves(orelse) else [*orelse, *rest]),
        )
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


def _condition(frame: Frame, test: ast.expr) -> Atom:
    found: list[Atom] = []
    with _collecting(frame, ()):
        found.append(condition(frame, test))
    return found[0] if found else Var(bool_)


@contextmanager
def _collecting(frame: Frame, names: Collection[str]) -> Iterator[None]:
    """Within it, a mistake is collected, and the names are poisoned."""
    try:
        yield
    except Mistake as mistake:
        frame.report(mistake.diagnostic)
    except BrokenCall as broken:
        frame.broken = True
        frame.diagnostics += [found for found in broken.diagnostics if found not in frame.diagnostics]
    except Poisoned:
        frame.broken = True
    else:
        return
    for name in names:
        frame.poison(name)


def _statement(frame: Frame, stmt: ast.stmt) -> None:
    names = (
        changed_in([stmt]) if isinstance(stmt, ast.For | ast.While) else {name.id for name in targets(stmt)}
    )
    with _collecting(frame, names), frame.builder.at(frame.places.first_line(stmt)):
        if stmt in frame.refused:
            raise Poisoned
        match stmt:
            case ast.Assign():
                _assign(frame, stmt)
            case ast.AnnAssign():
                _assign_annotated(frame, stmt)
            case ast.AugAssign():
                _assign_augmented(frame, stmt)
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


# ------------------------------------------------------------------------- assignment


def _assign(frame: Frame, stmt: ast.Assign) -> None:
    purpose.note_sign(frame, stmt)
    value = _right_side(frame, stmt)
    for target in stmt.targets:
        if frame.is_kernel and isinstance(target, ast.Name):
            purpose.note_renamed(frame, stmt, target, value)
        assign(frame, target, value, stmt.value)


def _right_side(frame: Frame, stmt: ast.Assign) -> Meaning:
    match stmt.value, stmt.targets[0]:
        case ast.Call(func=callee, args=[], keywords=[]) as call, ast.Tuple(elts=elements):
            hints = tuple(part.id if isinstance(part, ast.Name) else "" for part in elements)
            if expr(frame, callee) == BuiltinRef("tid"):
                return TupleOf(threads(frame, call, hints))
        case ast.Call(func=callee, args=[], keywords=[]) as call, ast.Name(name):
            if expr(frame, callee) == BuiltinRef("tid"):
                return threads(frame, call, (name,))[0]
    value = expr(frame, stmt.value)
    text = frame.places.text(stmt.value)
    if hint := habits.of_uncalled(value, text):
        raise frame.error(stmt.value, f"{text} is {describe(value)}, not an index", hint=hint)
    return value


def assign(frame: Frame, target: ast.expr, value: Meaning, source: ast.expr) -> None:
    """Give a target a value; several targets take a tuple or the components of a vector."""
    match target:
        case ast.Name(name):
            local.refuse_alias(frame, value, name, source)
            set_name(frame, name, value, frame.places(target))
        case ast.Tuple(elts=elements):
            items = unpacked(frame, value, len(elements), target, source)
            for element, item in zip(elements, items, strict=True):
                assign(frame, element, item, source)
        case ast.Attribute(value=whole, attr=part) if several.is_part(frame, target, any_expr):
            several.assign_part(frame, whole, part, value, source, expr)
        case ast.Subscript() | ast.Attribute() if inner := several.part_around(frame, target, any_expr):
            several.assign_within(frame, target, inner, value, source, expr)
        case ast.Subscript() if (row := rows.target(frame, target, value, expr)) is not None:
            rows.store(frame, row, value, target, source)
        case ast.Subscript() | ast.Attribute():
            place = structs.place(frame, target, expr)
            if isinstance(place, structs.Spot):
                structs.store(frame, place, value, source)
            else:
                places.store(frame, place, convert(frame, value, place.type, source, _holds(place)))
            if place.name is not None:
                frame.set_at[place.name] = frame.places(target)
        case _:
            raise Poisoned


def _holds(place: places.Place) -> str:
    if place.components:
        return "this component is" if isinstance(place.type, Scalar) else "this row is"
    if place.path:
        return f"{ast.unparse(place.node)} is"
    return f"{place.array.hint} holds" if place.array is not None else "this is"


def set_name(frame: Frame, name: str, value: Meaning, span: Span) -> None:
    """Bind a variable; the IR shows its name where the value has none yet."""
    structs.name_leaves(name, value)
    local.name_array(name, value)
    frame.env[name] = value
    frame.set_at[name] = span
    if name in frame.facts.watched:
        frame.env[WATCH + name] = Weak(True)


def _assign_annotated(frame: Frame, stmt: ast.AnnAssign) -> None:
    type = annotation(frame.scope, frame.places, stmt.annotation)
    if stmt.value is None:
        return
    value = expr(frame, stmt.value)
    what = f"{stmt.target.id} is" if isinstance(stmt.target, ast.Name) else "this is"
    value = structs.require(frame, value, type, stmt.value, what)
    assign(frame, stmt.target, value, stmt.value)


def _augmented(frame: Frame, stmt: ast.AugAssign, target: ast.expr) -> Weak | Typed:
    left, right = number(frame, target), number(frame, stmt.value)
    return binary(frame, stmt.op, left, right, _whole(stmt), (target, stmt.value))


def _assign_augmented(frame: Frame, stmt: ast.AugAssign) -> None:
    match stmt.target:
        case ast.Name(name) as target:
            value = _augmented(frame, stmt, target)
            set_name(frame, name, value, frame.places(stmt.target))
        case ast.Attribute() as target if several.is_part(frame, target, any_expr):
            value = _augmented(frame, stmt, target)
            several.assign_part(frame, target.value, target.attr, value, stmt.value, expr)
        case ast.Subscript() | ast.Attribute() as target if inner := several.part_around(
            frame, target, any_expr
        ):
            value = _augmented(frame, stmt, target)
            several.assign_within(frame, target, inner, value, stmt.value, expr)
        case ast.Subscript() as target if _augments_row(frame, stmt, target):
            pass
        case ast.Subscript() | ast.Attribute() as target:
            place = structs.place(frame, target, expr)
            if isinstance(place, structs.Spot):
                raise structs.no_number(frame, place)
            _augment_place(frame, stmt, place)
        case _:
            raise Poisoned


def _augments_row(frame: Frame, stmt: ast.AugAssign, target: ast.Subscript) -> bool:
    """Change a row or slice of an array at once, where that is what stands there."""
    row = rows.target(frame, target, None, expr)
    if row is None:
        return False
    value = expr(frame, stmt.value)
    if row.var not in frame.locals and isinstance(stmt.op, ast.Add | ast.Sub):
        rows.add(frame, row, value, isinstance(stmt.op, ast.Sub), target, stmt.value)
        return True

    def combine(held: Typed, by: Meaning) -> Meaning:
        right = as_number(frame, by, stmt.value)
        return binary(frame, stmt.op, held, right, _whole(stmt), (target, stmt.value))

    rows.change(frame, row, value, combine, target, stmt.value)
    return True


def _augment_place(frame: Frame, stmt: ast.AugAssign, place: places.Place) -> None:
    assert not isinstance(stmt.target, ast.Name)
    right = number(frame, stmt.value)
    shared = place.array is not None and place.array not in frame.locals
    if shared and isinstance(stmt.op, ast.Add | ast.Sub):
        value = convert(frame, right, place.type, stmt.value, _holds(place))
        calls.accumulate(frame, place, value, isinstance(stmt.op, ast.Sub), stmt)
        return
    if isinstance(stmt.op, ast.Div) and isinstance(place.type, Scalar) and place.type.is_int:
        text = frame.places.text(stmt.target)
        hint = f"write {text} //= {frame.places.text(stmt.value)}, or use an array of float"
        raise frame.error(stmt.target, f"{text} holds {place.type}, and / gives a float", hint=hint)
    result = binary(frame, stmt.op, places.load(frame, place), right, _whole(stmt), (stmt.target, stmt.value))
    places.store(frame, place, convert(frame, result, place.type, stmt.value, _holds(place)))


def _whole(stmt: ast.AugAssign) -> ast.expr:
    """An expression that stands where the statement stands, for messages."""
    return ast.copy_location(ast.BinOp(stmt.target, stmt.op, stmt.value), stmt)


# ------------------------------------------------------------------------- loops


def _for(frame: Frame, stmt: ast.For) -> None:
    inside = loops.Inside(assign, block)
    call = fence.range_of(stmt.iter)
    if call is None:
        loops.over_items(frame, stmt, inside)
        return
    indices = loops.static_indices(frame, stmt, call)
    if indices is not None:
        loops.written_out(frame, stmt, indices, inside)
        return
    assert isinstance(stmt.target, ast.Name)
    name = stmt.target.id
    head, start, step = _range(frame, call, name)
    if head is not None and call is not stmt.iter:
        head, start, step = ranges.backwards(frame, head, start, step)
    if head is None:
        for changed in changed_in([stmt]):
            frame.poison(changed)
        head, start, step = LoopHead(Var(int32, name), integer(0)), integer(0), integer(1)
    over = head
    loops.over_range(frame, stmt, over, lambda: ranges.index(frame, over, start, step, name), inside)


def _range(frame: Frame, call: ast.Call, name: str) -> tuple[LoopHead | None, Atom, Atom]:
    """The canonical head of a loop over `range(...)`, its start and its step; no head after a mistake."""
    found: list[tuple[LoopHead, Atom, Atom]] = []
    with _collecting(frame, ()), frame.builder.at(frame.places(call)):
        found.append(ranges.head(frame, call, name))
    return found[0] if found else (None, FALSE, FALSE)


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
    if stmt.value is None or (isinstance(stmt.value, ast.Constant) and stmt.value.value is None):
        return
    if frame.is_kernel:
        raise frame.error(
            stmt.value,
            "a kernel cannot return a value",
            hint="store the result into an array parameter, or make this a function with @func",
        )
    value = expr(frame, stmt.value)
    if not isinstance(value, Weak | Typed | TupleOf | ArrayRef | View | StructArrayRef):
        raise frame.error(
            stmt.value,
            f"a function cannot return {describe(value)}",
            hint="return numbers, vectors, matrices, structs, arrays or a tuple of them",
        )
    structs.refuse_local_arrays(frame, value, stmt.value)
    if frame.result is not None:
        value = structs.require(frame, value, frame.result, stmt.value, f"{frame.name} returns")
    frame.env[RETURNED] = value
    frame.set_at[RETURNED] = frame.places(stmt)


def _assert(frame: Frame, stmt: ast.Assert) -> None:
    cond = condition(frame, stmt.test)
    match stmt.msg:
        case None:
            message = f"assert {frame.places.text(stmt.test)}"
        case ast.Constant(value=str() as message):
            pass
        case _:
            raise frame.error(
                stmt.msg,
                "the message of an assert has to be plain text",
                hint='write assert condition, "message"',
            )
    if cond == FALSE:
        raise frame.error(stmt.test, f"this assert never holds: {message}", "value")
    frame.builder.check(cond, "assertion", message)


def _expression(frame: Frame, stmt: ast.Expr) -> None:
    if isinstance(stmt.value, ast.Constant) and isinstance(stmt.value.value, str | type(...)):
        return
    value = any_expr(frame, stmt.value)
    if value is not None and not isinstance(value, Poison) and not _may_act(frame, stmt.value):
        frame.notes.append(
            Diagnostic(
                "this expression has no effect",
                frame.places(stmt.value),
                "unused",
                "warning",
                hint="assign it to a name, or remove it",
            )
        )


def _may_act(frame: Frame, node: ast.expr) -> bool:
    """Whether a call may do more than give a value; operations of the table only do if they draw."""
    match node:
        case ast.Call(func=ast.Name(word) as name) if ops.overloads(word):
            is_own = frame.facts.reads.get(name, "outer") != "outer"
            return is_own or any(advanced([node]))
        case _:
            return isinstance(node, ast.Call)
