"""Scatter to gather: where threads of an adjoint add to neighbours, each element collects its sum instead.

    before    g = y_bar[i]; y_bar[i] = 0; x_bar[i - 1] += a * g; x_bar[i + 1] += b * g
    sums      x_bar[p] += a * y_bar[p + 1] + b * y_bar[p - 1]
    rest      y_bar[i] = 0

The adjoint of a stencil scatters.  Where each index of its additions is a thread index plus what is the same
in the whole launch, it is known which threads add to an element: a function over elements computes what they
add, and adds once.  Which threads make an addition is told at a launch (`GatheredSum.part`): the function
tests whether they are among these, and no more.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from math import prod
from typing import NamedTuple

from kernelab.data_classes import dataclass, replace
from kernelab.lang import ir
from kernelab.lang.build import Builder, elem_of, integer, is_float, type_of, zero
from kernelab.lang.ops import SHAPE
from kernelab.lang.types import float32, int32, scalar_of
from kernelab.passes.access.access_forms import Walker
from kernelab.passes.access.access_regions import Situation, range_of
from kernelab.passes.access.affine_forms import Extent, Form, Guard, IntParam, Thread, is_uniform
from kernelab.passes.access.independence import changed, independent
from kernelab.passes.common.copying import Copier
from kernelab.passes.common.simplify import simplify, without_atomics

_PLAIN = ir.Let | ir.ArrayAccess | ir.If
"""The statements of a function whose additions can be made by elements."""

_ADDITION = 8
"""The operations that an addition to memory counts for, estimated."""

_SLOW = {"div": 4, "sqrt": 4}


@dataclass(frozen=True, slots=True)
class Addition:
    """An addition of a thread to an element whose index is known along each axis.

    `path` are the branches around it, from the outermost, `guards` the bounds of thread indices that are all
    that those in `sure` test.
    """

    stmt: ir.Atomic
    index: tuple[Form, ...]
    guards: tuple[Guard, ...]
    path: tuple[ir.If, ...]
    sure: frozenset[ir.If]

    @property
    def threads(self) -> tuple[Thread | None, ...]:
        """The thread index in the index along each axis."""
        return tuple(map(_thread_of, self.index))

    def shift(self, axis: int) -> Form:
        """How far the element is from the thread, along an axis."""
        return self.index[axis].split()[0]


class Part(NamedTuple):
    """A launch over elements: the grid, and the last arguments."""

    grid: tuple[int, ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class GatheredSum:
    """A function whose threads are elements of the array parameter at a position.

    Of its `axes` each belongs to the thread index at that place of `threads`; along others the index is
    `fixed`.  The last parameters are int32s: along each axis the first element of the launch, and for each
    addition the first thread that makes it and the one behind the last.
    """

    function: ir.Function
    position: int
    axes: tuple[int, ...]
    threads: tuple[Thread, ...]
    fixed: tuple[tuple[int, Form], ...]
    additions: tuple[Addition, ...]

    def part(self, situation: Situation) -> Part | None:
        """The launch over elements; None where an index may not be within its axis, or few get all of it."""
        shape = situation.arguments[self.position].shape
        if any(not 0 <= _value(form, situation, -1) < shape[axis] for axis, form in self.fixed):
            return None
        grid, numbers, inner = list[int](), list[int](), 1
        for axis, thread in zip(self.axes, self.threads, strict=True):
            making = [_making(addition, thread, situation) for addition in self.additions]
            shifts = [_value(addition.shift(axis), situation, _NOWHERE) for addition in self.additions]
            lows, highs = (
                [n + by for n, by in zip(ends, shifts, strict=True)] for ends in zip(*making, strict=True)
            )
            first, behind = min(lows), max(highs)
            if first < 0 or behind > shape[axis] or max(lows) >= min(highs):
                return None
            grid.append(behind - first)
            numbers += [first, *(n for two in making for n in two)]
            inner *= min(highs) - max(lows)
        return None if 3 * inner < prod(grid) else Part(tuple(grid), tuple(numbers))


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """A function as sums that are gathered first, and what is left of it: None if that changes nothing."""

    sums: tuple[GatheredSum, ...]
    rest: ir.Function | None


def gathered(function: ir.Function) -> Gathered | None:
    """The function with sums gathered; None where none can be, or it would compute more than it saves.

    The arrays that it changes must share no memory, nor elements of one memory.
    """
    stmts = [*ir.walk(function.body)]
    if not function.threads or function.linear is not None or function.aliased:
        return None
    if not all(isinstance(stmt, _PLAIN) for stmt in stmts) or not _reads_first(function, stmts):
        return None
    walker = _Additions(function)
    walker.block(function.body)
    arrays = [array for array in changed(function) if _is_scattered(array, stmts, walker.additions)]
    sums = tuple(one for array in arrays for one in _sums(function, array, walker.additions))
    if not sums or any(_calls(each.function) for each in sums):
        return None
    rest = simplify(without_atomics(function, lambda stmt: stmt.array in arrays))
    rest = replace(rest, name=f"{function.name}_rest")
    works = any(ir.changed(stmt) for stmt in ir.walk(rest.body))
    result = Gathered(sums, rest if works else None)
    return result if _pays(function, result) else None


def _reads_first(function: ir.Function, stmts: Sequence[ir.Stmt]) -> bool:
    """Whether what it reads is what was there at first, so that additions can come before all changes."""
    seen = frozenset(ir.reads(function.body))
    uses_old = any(isinstance(stmt, ir.Atomic) and stmt.out in seen for stmt in stmts)
    return independent(function) and not uses_old and _moved(function.body, frozenset()) is not None


def _moved(block: ir.Block, moved: frozenset[ir.Var]) -> frozenset[ir.Var] | None:
    """The arrays that have changed behind a block; None where one is read after it has."""
    for stmt in block.stmts:
        if isinstance(stmt, ir.Load) and stmt.held is None and stmt.array in moved:
            return None
        after = [_moved(inner, moved) for inner in ir.blocks(stmt)]
        if None in after:
            return None
        moved = moved.union(ir.changed(stmt), *(each for each in after if each is not None))
    return moved


def _is_scattered(array: ir.Var, stmts: Sequence[ir.Stmt], added: Sequence[Addition]) -> bool:
    """Whether all that happens to an array is that threads add to elements known by their indices."""
    touching = [stmt for stmt in stmts if array in ir.atoms(stmt)]
    if len(touching) < 2 or scalar_of(elem_of(array)) != float32:
        return False
    additions = {addition.stmt for addition in added}
    return all(isinstance(stmt, ir.Atomic) and stmt.kind == "add" and stmt in additions for stmt in touching)


def _pays(function: ir.Function, result: Gathered) -> bool:
    """Whether it takes no more operations than the function does; each addition to memory counts for some."""
    additions = sum(len(each.additions) for each in result.sums)
    after = sum(_operations(each.function.body) for each in result.sums)
    after += 0 if result.rest is None else _operations(result.rest.body)
    return after <= _operations(function.body) + _ADDITION * (additions - len(result.sums))


def _calls(function: ir.Function) -> bool:
    """Whether it calls a mathematical function, whose last bits differ between scalar and vector code."""
    return any("{m}" in (stmt.op.cpp or "") for stmt in ir.of_kind(function.body, ir.Let))


def _operations(block: ir.Block) -> int:
    return sum(_SLOW.get(let.op.name, 1) for let in ir.of_kind(block, ir.Let) if is_float(let.out))


# ------------------------------------------------------------------------------------------ analysis


class _Additions(Walker):
    """Finds the additions whose indices are thread indices, one along an axis, plus constants of a launch."""

    def __init__(self, function: ir.Function) -> None:
        super().__init__(function)
        self.additions: list[Addition] = []
        self.count = len(function.threads)

    def stmt(self, stmt: ir.Stmt) -> None:
        if isinstance(stmt, ir.Atomic):
            self.addition(stmt)
        super().stmt(stmt)

    def addition(self, stmt: ir.Atomic) -> None:
        forms = [form for index in stmt.indices if (form := self.form(index)) is not None]
        if len(forms) < len(stmt.indices) or not all(map(_is_shift, forms)):
            return
        threads = [thread for form in forms if (thread := _thread_of(form)) is not None]
        if len(threads) != self.count or len({*threads}) != self.count:
            return
        guards, sure = list[Guard](), set[ir.If]()
        for branch, truth in self.path:
            implied, are_all = self.implied(branch.cond, truth)
            if are_all and all(map(_is_bound, implied)):
                guards += implied
                sure.add(branch)
        path = tuple(branch for branch, _ in self.path)
        self.additions.append(Addition(stmt, tuple(forms), tuple(guards), path, frozenset(sure)))


def _is_shift(form: Form) -> bool:
    """Whether a form is a thread index, or none, plus what is the same in the whole launch."""
    others = [(leaf, factor) for leaf, factor in form.terms if not is_uniform(leaf)]
    is_thread = all(isinstance(leaf, Thread) and factor == 1 for leaf, factor in others)
    return len(others) <= 1 and is_thread and all(isinstance(leaf, _KNOWN) for leaf, _ in form.terms)


_KNOWN = Thread | IntParam | Extent


def _thread_of(form: Form) -> Thread | None:
    return next((leaf for leaf, _ in form.terms if isinstance(leaf, Thread)), None)


def _slack(guard: Guard) -> Form:
    """The form that is not below zero where a guard holds."""
    return guard.greater.minus(guard.lesser).minus(Form(guard.gap or 0))


def _is_bound(guard: Guard) -> bool:
    """Whether a guard tests one thread index, or what is the same in the whole launch."""
    _, others = _slack(guard).split()
    single = all(isinstance(leaf, Thread) and abs(factor) == 1 for leaf, factor in others.items())
    return len(others) <= 1 and single


# ------------------------------------------------------------------------------------------ at a launch


def _value(form: Form, situation: Situation, otherwise: int) -> int:
    """The value of what is the same in the whole launch."""
    values = range_of(form, situation)
    return values.low if values is not None and values.low == values.high else otherwise


_NOWHERE = -(1 << 40)


def _making(addition: Addition, thread: Thread, situation: Situation) -> tuple[int, int]:
    """The first thread along an axis that makes an addition, and the one behind the last."""
    extents = situation.extents
    low, high, never = 0, prod(extents) if thread.axis is None else extents[thread.axis], set[int]()
    for guard in addition.guards:
        same, others = _slack(guard).split()
        fits = all(range_of(form, situation) is not None for form in (guard.lesser, guard.greater))
        bound, factor = _value(same, situation, _NOWHERE), others.get(thread, 0)
        if (
            not fits
            or bound == _NOWHERE
            or (not others and (bound < 0 if guard.gap is not None else not bound))
        ):
            return _NOWHERE, _NOWHERE
        if factor and guard.gap is None:
            never.add(-factor * bound)
        elif factor == 1:
            low = max(low, -bound)
        elif factor == -1:
            high = min(high, bound + 1)
    while low in never:
        low += 1
    while high - 1 in never:
        high -= 1
    return (_NOWHERE, _NOWHERE) if any(low < each < high for each in never) else (low, high)


# ------------------------------------------------------------------------------------------ the functions


def _sums(function: ir.Function, array: ir.Var, every: Sequence[Addition]) -> Iterator[GatheredSum]:
    """The sums of an array: one for all additions whose indices have the same thread indices in them."""
    groups: dict[object, list[Addition]] = {}
    for addition in every:
        if addition.stmt.array is array:
            others = tuple(form for form in addition.index if _thread_of(form) is None)
            groups.setdefault((addition.threads, others), []).append(addition)
    for number, additions in enumerate(groups.values()):
        first = additions[0]
        axes = tuple(axis for axis, thread in enumerate(first.threads) if thread is not None)
        threads = tuple(thread for thread in first.threads if thread is not None)
        fixed = tuple((axis, form) for axis, form in enumerate(first.index) if axis not in axes)
        name, order = f"{function.name}_of_{array.hint}{number or ''}", dict(fixed)
        over_elements = _Gathering(function, threads).function_of(name, array, axes, order, additions)
        yield GatheredSum(over_elements, function.params.index(array), axes, threads, fixed, tuple(additions))


class _Gathering:
    """Writes the function over elements for additions of a function."""

    def __init__(self, function: ir.Function, threads: Sequence[Thread]) -> None:
        self.original = function
        self.builder = Builder(function.span)
        self.threads = [function.threads[thread.axis or 0] for thread in threads]
        self.elements = [ir.Var(int32, thread.hint, thread.span) for thread in self.threads]

    def function_of(
        self,
        name: str,
        array: ir.Var,
        axes: Sequence[int],
        fixed: dict[int, Form],
        additions: Sequence[Addition],
    ) -> ir.Function:
        b, numbers, at = self.builder, list[ir.Var](), list[ir.Atom]()
        making: list[list[tuple[ir.Var, ir.Var]]] = [[] for _ in additions]
        for element in self.elements:
            first, *others = (
                ir.Var(int32, f"{element.hint}_{kind}", element.span)
                for kind in ("first", *("from", "upto") * len(additions))
            )
            numbers += [first, *others]
            at.append(b.apply("add", element, first))
            for ranges, low, high in zip(making, others[::2], others[1::2], strict=True):
                ranges.append((low, high))
        total: ir.Atom | None = None
        for addition, ranges in zip(additions, making, strict=True):
            shifts = (self.atom(addition.shift(axis)) for axis in axes)
            threads = [b.apply("sub", place, shift) for place, shift in zip(at, shifts, strict=True)]
            total = self.more(threads, ranges, addition, total)
        assert total is not None
        places = dict(zip(axes, at, strict=True)) | {axis: self.atom(form) for axis, form in fixed.items()}
        with b.at(additions[0].stmt.span):
            b.atomic_add(array, [places[axis] for axis in sorted(places)], total)
        params, elements = (*self.original.params, *numbers), tuple(self.elements)
        result = replace(self.original, name=name, params=params, threads=elements, descending=False)
        return simplify(replace(result, body=b.close()))

    def atom(self, form: Form) -> ir.Atom:
        """What is the same in the whole launch."""
        total: ir.Atom = integer(form.const)
        for leaf, factor in form.terms:
            assert isinstance(leaf, IntParam | Extent)
            value: ir.Atom = self.original.params[leaf.position]
            if isinstance(leaf, Extent):
                value = self.builder.let(SHAPE, (value, integer(leaf.axis)), int32)
            total = self.builder.apply("add", total, self.builder.apply("mul", value, integer(factor)))
        return total

    def more(
        self,
        threads: Sequence[ir.Atom],
        ranges: Iterable[tuple[ir.Var, ir.Var]],
        addition: Addition,
        total: ir.Atom | None,
    ) -> ir.Atom:
        """The total with what a thread adds, if it is one of those that make the addition."""
        b, tests = self.builder, list[ir.Atom]()
        for thread, (low, high) in zip(threads, ranges, strict=True):
            tests += [b.apply("ge", thread, low), b.apply("lt", thread, high)]
        share = _Share(b, dict(zip(self.threads, threads, strict=True)), addition)
        every = reduce(partial(b.apply, "and"), tests)
        return share.where(every, lambda: share.total(self.original.body, total), total)


class _Share(Copier):
    """Computes what a thread adds, by what comes before the addition; the sure branches are not tested."""

    def __init__(self, builder: Builder, env: dict[ir.Var, ir.Atom], addition: Addition) -> None:
        super().__init__(builder, env)
        self.addition = addition

    def total(self, block: ir.Block, before: ir.Atom | None) -> ir.Atom:
        """The sum of what there was before and what the thread adds in a block."""
        wanted = self.addition.stmt
        for stmt in block.stmts:
            with self.builder.at(stmt.span):
                if stmt is wanted:
                    value = self.atom(wanted.value)
                    return value if before is None else self.builder.apply("add", before, value)
                if not isinstance(stmt, ir.If) or stmt not in self.addition.path:
                    self.stmt(stmt)
                    continue
                is_then = any(inner is wanted for inner in ir.walk(stmt.then))
                return self.branch(stmt, is_then, before)
        raise AssertionError("the addition stands elsewhere")

    def branch(self, stmt: ir.If, is_then: bool, before: ir.Atom | None) -> ir.Atom:
        taken = stmt.then if is_then else stmt.orelse
        if stmt in self.addition.sure:
            return self.total(taken, before)
        cond = self.atom(stmt.cond)
        if not is_then:
            cond = self.builder.apply("not", cond)
        return self.where(cond, lambda: self.total(taken, before), before)

    def where(self, cond: ir.Atom, total: Callable[[], ir.Atom], before: ir.Atom | None) -> ir.Atom:
        none = zero(type_of(self.addition.stmt.value)) if before is None else before
        (value,) = self.builder.select(cond, lambda: (total(),), lambda: (none,))
        return value

    def stmt(self, stmt: ir.Stmt) -> None:
        if not isinstance(stmt, ir.Store | ir.Atomic):
            super().stmt(stmt)
