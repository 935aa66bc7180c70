"""Counters: carried integers that grow by the same amount in every iteration.

    i = 3; for k in ...: i = i + 2        at the start of iteration k, i is 3 + 2 * k

So are cursors into residuals, and the index of a `while` that counts.  Reverse mode recomputes them from the
number of the iteration instead of saving them; integers wrap, so this is exact.
"""

from dataclasses import dataclass

from kernelab.lang.build import Builder
from kernelab.lang.ir import Atom, Const, For, Let, Loop, Var, defs, walk
from kernelab.lang.types import Scalar


@dataclass(frozen=True, slots=True)
class Term:
    """An amount by which an iteration raises a counter, or lowers it if `sign` is -1."""

    sign: int
    amount: Atom


Step = tuple[Term, ...]


def counters(loop: Loop) -> dict[int, Step]:
    """The carries that count, by position, with what an iteration adds to each."""
    found: dict[int, Step] = {}
    integers = [i for i, carry in enumerate(loop.carries) if _is_integer(carry)]
    if not integers:
        return found
    inside: set[Atom] = {var for stmt in walk(loop.body) for var in defs(stmt)}
    inside.update(loop.carries, (loop.index,) if isinstance(loop, For) else ())
    definer: dict[Atom, Let] = {stmt.out: stmt for stmt in loop.body.stmts if isinstance(stmt, Let)}
    for i in integers:
        step = _step(loop.body.yields[i], loop.carries[i], definer, inside)
        if step is not None:
            found[i] = step
    return found


def _is_integer(var: Var) -> bool:
    return isinstance(var.type, Scalar) and var.type.is_int


def _step(value: Atom, carry: Var, definer: dict[Atom, Let], inside: set[Atom]) -> Step | None:
    """What was added to `carry` on the way to `value`, if that is the same in every iteration."""
    terms: list[Term] = []
    while value is not carry:
        stmt = definer.get(value)
        match None if stmt is None else (stmt.op.name, stmt.args):
            case ("add" | "sub" as name, (rest, amount)) if amount not in inside:
                terms.append(Term(-1 if name == "sub" else 1, amount))
            case ("add", (amount, rest)) if amount not in inside:
                terms.append(Term(1, amount))
            case _:
                return None
        value = rest
    return tuple(terms)


def counted(builder: Builder, start: Atom, step: Step, number: Atom) -> Atom:
    """What a counter that began at `start` holds after `number` iterations."""
    total: Atom = Const(0, start.type)  # type: ignore[arg-type]
    for term in step:
        total = builder.apply("add" if term.sign > 0 else "sub", total, term.amount)
    passed = number if number.type == start.type else builder.apply(str(start.type), number)
    return builder.apply("add", start, builder.apply("mul", total, passed))
