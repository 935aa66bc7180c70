"""Index analysis: the indices of each array access of a function, as affine forms where they are affine.

    traj[t + 1, i % n]        Access(traj, "change", (Form(1, t), Form(0, mod(i, n))), guards, ...)

An index is a `Form`: a constant plus multiples of leaves, which are integer parameters, extents of arrays,
thread indices, loop counters, and operations that are not linear.  None stands for an index that is not in
the text, such as one that is loaded.  A `Guard` is an inequality that holds where the access is reached.
What a loop carries and changes by the same amount in every iteration has a form, too; how often a `while`
loop runs at most follows from the guards on which it goes on.
Values, that is what the leaves are at a launch, are the business of `access_regions`.
"""

from collections.abc import Sequence
from typing import Literal, assert_never

from kernelab.data_classes import dataclass
from kernelab.lang import ir
from kernelab.lang.build import ndim_of
from kernelab.lang.operators import OPPOSITE
from kernelab.lang.ops import TRIPS
from kernelab.lang.types import bool_, int32, int64
from kernelab.passes.access.affine_forms import (
    Bound,
    Counter,
    Extent,
    Form,
    Guard,
    IntParam,
    Step,
    Thread,
    Trips,
    applied,
    compared,
    counted,
    counters,
    operation,
    pace,
    single,
)

Cases = tuple[tuple[Guard, ...], ...]
"""The guards of each of several cases, one of which holds; a case without guards may hold anywhere."""

_MOST_CASES = 8


@dataclass(frozen=True, slots=True)
class Access:
    """A read or a change of an array parameter, with the outermost loop around it.

    All `guards` hold where it is reached, and all those of one of the `cases`.
    """

    position: int
    kind: Literal["read", "change"]
    index: tuple[Form | None, ...]
    guards: tuple[Guard, ...]
    cases: Cases
    loop: int | None
    reverse: bool


def accesses(function: ir.Function) -> tuple[Access, ...]:
    """Every access to an array parameter; a load of what is known already is none."""
    walker = Walker(function)
    walker.block(function.body)
    return tuple(walker.found)


_SIGNED = (int32, int64)

Condition = tuple[str, ir.Atom, ir.Atom]


class Walker:
    """Walks through a function, and knows the forms of its integers and the guards of where it is.

    `path` are the branches around, with whether their conditions hold.
    """

    def __init__(self, function: ir.Function) -> None:
        self.positions = {param: i for i, param in enumerate(function.params)}
        self.forms: dict[ir.Var, Form | None] = {
            param: single(IntParam(i)) for param, i in self.positions.items() if param.type in _SIGNED
        }
        for axis, thread in enumerate(function.threads):
            self.forms[thread] = single(Thread(axis if len(function.threads) > 1 else None))
        if function.linear is not None:
            self.forms[function.linear] = single(Thread(None))
        self.used = frozenset(ir.reads(function.body))
        self.counts: dict[ir.Atom, Form | None] = {}
        self.conditions: dict[ir.Var, Condition] = {}
        self.guards: list[Guard] = []
        self.cases: Cases = ((),)
        self.path: list[tuple[ir.If, bool]] = []
        self.loops: list[tuple[int, bool]] = []
        self.numbered = self.joins = 0
        self.found: list[Access] = []

    def form(self, atom: ir.Atom) -> Form | None:
        if isinstance(atom, ir.Const):
            return Form(int(atom.value)) if atom.type in _SIGNED else None
        return self.forms.get(atom)

    def block(self, block: ir.Block) -> None:
        for stmt in block.stmts:
            self.stmt(stmt)

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let():
                self.let(stmt)
            case ir.Load(_, array, indices) if stmt.held is None:
                self.access(array, "read", indices)
            case ir.Store(array, indices):
                self.access(array, "change", indices)
            case ir.Atomic(out, _, array, indices):
                self.access(array, "change", indices)
                if stmt.held is None and out in self.used:
                    self.access(array, "read", indices)
            case ir.If():
                self.branches(stmt)
            case ir.For() | ir.While():
                self.loop(stmt)
            case ir.Custom(outs, _, _, body):
                self.block(body)
                for out, source in zip(outs, body.yields, strict=False):
                    self.forms[out] = self.form(source)
            case ir.Native():
                for _, touched in stmt.arrays:
                    self.anywhere(touched)
            case ir.Append(array):
                self.anywhere(array)
            case ir.Call():
                raise AssertionError("calls are inlined before anyone asks where they reach")
            case ir.Load() | ir.Restore() | ir.Alloc() | ir.Assert() | ir.Print() | ir.Save():
                pass  # what they define has no form
            case _:
                assert_never(stmt)

    def anywhere(self, array: ir.Var) -> None:
        """Note that an array may be read and changed at unknown indices."""
        position = self.positions.get(array)
        if position is None:
            return
        unknown = (None,) * ndim_of(array)
        self.found.append(Access(position, "read", unknown, (), ((),), None, False))
        self.found.append(Access(position, "change", unknown, (), ((),), None, False))

    def access(self, array: ir.Var, kind: Literal["read", "change"], indices: tuple[ir.Atom, ...]) -> None:
        position = self.positions.get(array)
        if position is None:
            return
        loop, reverse = self.loops[0] if self.loops else (None, False)
        forms = tuple(self.form(index) for index in indices)
        self.found.append(Access(position, kind, forms, tuple(self.guards), self.cases, loop, reverse))

    def let(self, stmt: ir.Let) -> None:
        name, args = stmt.op.name, stmt.args
        if name in ("and", "or") or (name in OPPOSITE and args[0].type in _SIGNED):
            self.conditions[stmt.out] = name, args[0], args[1]
        elif name == "not":
            self.conditions[stmt.out] = name, args[0], args[0]
        elif name == "shape" and isinstance(args[0], ir.Var) and isinstance(args[1], ir.Const):
            if args[0] in self.positions:
                self.forms[stmt.out] = single(Extent(self.positions[args[0]], int(args[1].value)))
        elif stmt.out.type in _SIGNED:
            if name == "where":
                self.forms[stmt.out] = self.join(args[1], args[2])
                return
            forms = [form for arg in args if (form := self.form(arg)) is not None]
            if len(forms) == len(args):
                self.forms[stmt.out] = applied(name, forms)
            if stmt.op is TRIPS and len(forms) == len(args):
                self.range(stmt.out, *forms)

    def range(self, out: ir.Var, start: Form, stop: Form, step: Form) -> None:
        """Note how often a loop over `range(start, stop, step)` runs: not at all for a number below 0."""
        count = applied("floordiv", [start.minus(stop), step])
        if not step.terms and abs(step.const) == 1:
            count = start.minus(stop).times(step.const)
        if count is not None:
            self.counts[out] = count.times(-1)
            self.forms[out] = operation("max", [count.times(-1), Form(0)])

    def join(self, first: ir.Atom, second: ir.Atom) -> Form | None:
        """The form of what is one of two."""
        forms = [form for atom in (first, second) if (form := self.form(atom)) is not None]
        if len(forms) < 2 or forms[0] == forms[1]:
            return forms[0] if len(forms) == 2 else None
        self.joins += 1
        return operation("join", forms, self.joins)

    def branches(self, stmt: ir.If) -> None:
        for truth, branch in ((True, stmt.then), (False, stmt.orelse)):
            before, cases = len(self.guards), self.cases
            self.guards += self.implied(stmt.cond, truth)[0]
            self.cases = _few(_both(cases, self.cases_of(stmt.cond, truth)), self.guards)
            self.path.append((stmt, truth))
            self.block(branch)
            self.path.pop()
            self.cases = cases
            del self.guards[before:]
        for out, then, orelse in zip(stmt.outs, stmt.then.yields, stmt.orelse.yields, strict=True):
            self.forms[out] = self.join(then, orelse)
            if out.type == bool_:
                self.conditions[out] = _choice(stmt.cond, then, orelse)

    def loop(self, stmt: ir.For | ir.While) -> None:
        number, steps = self.numbered, counters(stmt)
        count = self.counts.get(stmt.count, self.form(stmt.count)) if isinstance(stmt, ir.For) else None
        if count is None and steps:
            count = self.trips(stmt, steps)
        self.iterate(stmt, steps, Counter(number, count))
        for out, init, last in zip(stmt.outs, stmt.inits, stmt.body.yields, strict=True):
            self.forms[out] = self.join(init, last)

    def trips(self, loop: ir.For | ir.While, steps: dict[int, Step]) -> Form | None:
        """The most iterations of a loop, found by a walk over its body for the conditions of going on."""
        if loop.stop is None:
            return None
        recorded, number, counter = len(self.found), self.numbered, Counter(self.numbered, None)
        self.iterate(loop, steps, counter)
        del self.found[recorded:]
        self.numbered = number
        going, _ = self.implied(loop.body.yields[loop.stop], False)
        guards = [guard for guard in going if guard.gap is not None]
        bounds = [Bound(pace(g.lesser, counter), pace(g.greater, counter), g.gap or 0) for g in guards]
        return single(Trips(tuple(bounds))) if bounds else None

    def iterate(self, stmt: ir.For | ir.While, steps: dict[int, Step], counter: Counter) -> None:
        """Walk the body of a loop in the iteration with the number of a counter."""
        reverse = isinstance(stmt, ir.For) and stmt.reverse
        if isinstance(stmt, ir.For):
            self.forms[stmt.index] = single(counter)
        for i, step in steps.items() if not reverse else ():
            start, rate = self.form(stmt.inits[i]), self.rate(step)
            if start is not None and rate is not None:
                self.forms[stmt.carries[i]] = counted(start, rate, counter)
        self.loops.append((counter.number, reverse))
        self.numbered += 1
        self.block(stmt.body)
        self.loops.pop()

    def rate(self, step: Step) -> Form | None:
        """By how much an iteration raises a counter."""
        total = Form(0)
        for term in step:
            amount = self.form(term.amount)
            if amount is None:
                return None
            total = total.plus(amount, term.sign)
        return total

    def implied(self, atom: ir.Atom, truth: bool) -> tuple[list[Guard], bool]:
        """The guards that a condition implies where it is true, or false, and whether they are all of it."""
        if not isinstance(atom, ir.Var) or atom not in self.conditions:
            return [], False
        match self.conditions[atom]:
            case "same", a, _:
                return self.implied(a, truth)
            case "not", a, _:
                return self.implied(a, not truth)
            case ("and" | "or") as name, a, b if truth == (name == "and"):
                (first, is_first), (second, is_second) = self.implied(a, truth), self.implied(b, truth)
                return [*first, *second], is_first and is_second
            case "unless", a, b if not truth:
                return [*self.implied(a, True)[0], *self.implied(b, False)[0]], False
            case "and" | "or" | "unless" | "either", _, _:
                return [], False  # one of two holds, it is not known which
            case name, a, b:
                left, right = self.form(a), self.form(b)
                if left is None or right is None:
                    return [], False
                return [*compared(name if truth else OPPOSITE[name], left, right)], True

    def cases_of(self, atom: ir.Atom, truth: bool) -> Cases:
        """The cases in which a condition is true, or false."""
        implied = self.implied(atom, truth)[0]
        match self.conditions.get(atom) if isinstance(atom, ir.Var) else None:
            case "same", a, _:
                return self.cases_of(a, truth)
            case "not", a, _:
                return self.cases_of(a, not truth)
            case ("and" | "or") as name, a, b:
                first, second = self.cases_of(a, truth), self.cases_of(b, truth)
                together = _both(first, second) if truth == (name == "and") else (*first, *second)
                return _few(together, implied)
            case _:
                return (tuple(implied),)


def _both(first: Cases, second: Cases) -> Cases:
    """The cases in which one of each holds."""
    return tuple((*one, *other) for one in first for other in second)


def _few(cases: Cases, otherwise: Sequence[Guard]) -> Cases:
    """Some cases, or in place of too many one with the guards that hold in all of them."""
    return cases if len(cases) <= _MOST_CASES else (tuple(otherwise),)


def _choice(cond: ir.Atom, then: ir.Atom, orelse: ir.Atom) -> Condition:
    """The guards of a bool that is one of two."""
    match [atom.value if isinstance(atom, ir.Const) else None for atom in (then, orelse)]:
        case [True, False]:
            return "same", cond, cond
        case [False, True]:
            return "not", cond, cond
        case [_, False]:
            return "and", cond, then
        case [True, _]:
            return "or", cond, orelse
        case [_, True]:
            return "unless", cond, then
        case _:
            return "either", then, orelse
