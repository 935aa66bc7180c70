"""Counters: carried integers that grow by the same amount in every iteration.

    i = 3; for k in ...: i = i + 2        at the start of iteration k, i is 3 + 2 * k

So are cursors into residuals, and the index of a `while` that counts.  Reverse mode recomputes them from the
number of the iteration instead of saving them; integers wrap, so this is exact.
"""

from dataclasses import dataclass

from kernelab.lang.build import Builder, type_of, zero
from kernelab.lang.ir import Atom, Block, Const, For, If, Let, Loop, Var, defs, walk
from kernelab.lang.types import Scalar


@dataclass(frozen=True, slots=True)
class Term:
    """An amount by which an iteration raises a counter, or lowers it if `sign` is -1."""

    sign: int
    amount: Atom


Step = tuple[Term, ...]


def counters(loop: Loop) -> dict[int, Step]:
    """The carries that count, by position, with what an iteration adds to each."""
    integers = [
        i for i, carry in enumerate(loop.carries) if isinstance(carry.type, Scalar) and carry.type.is_int
    ]
    if not integers:
        return {}
    inside: set[Atom] = {var for stmt in walk(loop.body) for var in defs(stmt)}
    inside.update(loop.carries, (loop.index,) if isinstance(loop, For) else ())
    path = _Path()
    path.follow(loop.body, None if loop.stop is None else loop.body.yields[loop.stop])
    steps = {i: path.step(loop.body.yields[i], loop.carries[i], inside) for i in integers}
    return {i: step for i, step in steps.items() if step is not None}


def counted(builder: Builder, start: Atom, step: Step, number: Atom, hint: str = "") -> Atom:
    """The value of a counter that began at `start` after `number` iterations."""
    type = type_of(start)
    total: Atom = zero(type)
    for term in step:
        total = builder.apply("add" if term.sign > 0 else "sub", total, term.amount)
    passed = number if number.type == type else builder.apply(str(type), number)
    return builder.apply("add", start, builder.apply("mul", total, passed), hint=hint)


class _Path:
    """The ways through an iteration after which another follows, as far as they are known.

    `while c: B` is a choice between B and the end: what the end leaves, no iteration starts with.
    """

    def __init__(self) -> None:
        self.lets: dict[Atom, Let] = {}
        self.choices: dict[Atom, tuple[Atom, ...]] = {}
        self.known: dict[tuple[Atom, Var], Step | None] = {}

    def follow(self, block: Block, stop: Atom | None) -> None:
        self.lets |= {stmt.out: stmt for stmt in block.stmts if isinstance(stmt, Let)}
        for stmt in block.stmts:
            if isinstance(stmt, If):
                position = stmt.outs.index(stop) if stop in stmt.outs else None
                ways = [way for way in (stmt.then, stmt.orelse) if not _ends(way, position)]
                self.choices |= {out: tuple(way.yields[i] for way in ways) for i, out in enumerate(stmt.outs)}
                for way in ways:
                    self.follow(way, None if position is None else way.yields[position])

    def step(self, value: Atom, carry: Var, inside: set[Atom]) -> Step | None:
        """The amount added to `carry` to give `value`, if it is the same in every iteration."""
        if (value, carry) not in self.known:
            self.known[value, carry] = self._step(value, carry, inside)
        return self.known[value, carry]

    def _step(self, value: Atom, carry: Var, inside: set[Atom]) -> Step | None:
        if value is carry:
            return ()
        if value in self.choices:
            steps = {self.step(choice, carry, inside) for choice in self.choices[value]}
            return steps.pop() if len(steps) == 1 else None
        stmt = self.lets.get(value)
        match None if stmt is None else (stmt.op.name, stmt.args):
            case ("add" | "sub" as name, (rest, amount)) if amount not in inside:
                term = Term(-1 if name == "sub" else 1, amount)
            case ("add", (amount, rest)) if amount not in inside:
                term = Term(1, amount)
            case _:
                return None
        before = self.step(rest, carry, inside)
        return None if before is None else (term, *before)


def _ends(way: Block, position: int | None) -> bool:
    if position is None:
        return False
    stop = way.yields[position]
    return isinstance(stop, Const) and bool(stop.value)
