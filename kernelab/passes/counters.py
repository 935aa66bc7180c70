"""Counters: carried integers that grow by the same amount in every iteration.

    i = 3; for k in ...: i = i + 2        at the start of iteration k, i is 3 + 2 * k

So are cursors into residuals, and the index of a `while` that counts.  Reverse mode recomputes them from the
number of the iteration instead of saving them; integers wrap, so this is exact.
"""

from dataclasses import dataclass

from kernelab.lang.build import Builder, zero
from kernelab.lang.ir import Atom, Block, Const, For, If, Let, Loop, Var, defs, walk
from kernelab.lang.types import Scalar, Value


@dataclass(frozen=True, slots=True)
class Term:
    """An amount by which an iteration raises a counter, or lowers it if `sign` is -1."""

    sign: int
    amount: Atom


Step = tuple[Term, ...]


def counters(loop: Loop) -> dict[int, Step]:
    """The carries that count, by position, with what an iteration adds to each."""
    integers = [i for i, carry in enumerate(loop.carries) if _is_integer(carry)]
    if not integers:
        return {}
    inside: set[Atom] = {var for stmt in walk(loop.body) for var in defs(stmt)}
    inside.update(loop.carries, (loop.index,) if isinstance(loop, For) else ())
    path = _Path()
    path.follow(loop.body, None if loop.stop is None else loop.body.yields[loop.stop])
    steps = {i: path.step(loop.body.yields[i], loop.carries[i], inside) for i in integers}
    return {i: step for i, step in steps.items() if step is not None}


def counted(builder: Builder, start: Atom, step: Step, number: Atom, hint: str = "") -> Atom:
    """What a counter that began at `start` holds after `number` iterations."""
    type = _type_of(start)
    total: Atom = zero(type)
    for term in step:
        total = builder.apply("add" if term.sign > 0 else "sub", total, term.amount)
    passed = number if number.type == type else builder.apply(str(type), number)
    return builder.apply("add", start, builder.apply("mul", total, passed), hint=hint)


def _is_integer(var: Var) -> bool:
    return isinstance(var.type, Scalar) and var.type.is_int


def _type_of(atom: Atom) -> Value:
    assert isinstance(atom.type, Scalar)
    return atom.type


class _Path:
    """The way through an iteration after which another follows, as far as it is known.

    `while c: B` is a choice between B and the end: what the end leaves, no iteration starts with.
    """

    def __init__(self) -> None:
        self.lets: dict[Atom, Let] = {}
        self.moved: dict[Atom, Atom] = {}

    def follow(self, block: Block, stop: Atom | None) -> None:
        self.lets |= {stmt.out: stmt for stmt in block.stmts if isinstance(stmt, Let)}
        for stmt in block.stmts:
            if isinstance(stmt, If) and stop in stmt.outs:
                position = stmt.outs.index(stop)
                for taken, other in ((stmt.then, stmt.orelse), (stmt.orelse, stmt.then)):
                    if _is_true(other.yields[position]):
                        self.moved |= zip(stmt.outs, taken.yields, strict=True)
                        self.follow(taken, taken.yields[position])
                        return

    def step(self, value: Atom, carry: Var, inside: set[Atom]) -> Step | None:
        """What was added to `carry` on the way to `value`, if that is the same in every iteration."""
        terms: list[Term] = []
        value = self.source(value)
        while value is not carry:
            stmt = self.lets.get(value)
            match None if stmt is None else (stmt.op.name, stmt.args):
                case ("add" | "sub" as name, (rest, amount)) if amount not in inside:
                    terms.append(Term(-1 if name == "sub" else 1, amount))
                case ("add", (amount, rest)) if amount not in inside:
                    terms.append(Term(1, amount))
                case _:
                    return None
            value = self.source(rest)
        return tuple(terms)

    def source(self, value: Atom) -> Atom:
        """What a value is on the way through the iteration."""
        while value in self.moved:
            value = self.moved[value]
        return value


def _is_true(atom: Atom) -> bool:
    return isinstance(atom, Const) and bool(atom.value)
