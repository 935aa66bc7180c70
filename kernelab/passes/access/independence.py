"""Proofs about threads: that they may run in any order, and that no change overwrites what was read.

    y[i // 8, i % 8] += x[i]      each thread has an element of its own
    s[0] += x[i]                  threads meet, and add up the same in any order
    x[i] = x[i + 1]               a thread reads what another changes: the order matters

Where `independent` says yes it is a proof; where it says no, threads have to run one after another to give
what a sequential run gives.  The proofs hold where elements of an array do not share bytes, and arrays do
not share them with each other: that belongs to a launch.

    traj[t + 1, i] = f(traj[t, i])      settled: no residual, the adjoint reads traj[t, i] again
    a[i] = f(a[i])                      not: what was read is gone

An array is settled if each change of it either touches no element that is read, or comes before the read.
Part of this proof is in the text, part needs the grid and the numbers of a launch.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache

from kernelab.data_classes import dataclass, field
from kernelab.lang import ir
from kernelab.passes.access.access_forms import Access, accesses
from kernelab.passes.access.access_regions import Box, Region, Situation, region_of
from kernelab.passes.access.affine_forms import Counter, Form, Leaf, Thread
from kernelab.passes.access.blocks import threads_are_disjoint

COMMUTATIVE = frozenset({"add", "min", "max", "and", "or", "xor"})
"""The atomics that leave the same in whatever order threads come, but for rounding."""


@dataclass(slots=True)
class Use:
    """The accesses of a function to an array, the kinds of change, and whether it reads the values.

    `steps` are the stores and other changes of which the last one counts, `repeats` says that one of them is
    in a loop.
    """

    accesses: list[ir.ArrayAccess] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    is_read: bool = False
    steps: int = 0
    repeats: bool = False

    @property
    def depends_at_once(self) -> bool:
        """Whether the order of threads that meet can be seen, where they run at once."""
        return self.is_read or len(self.kinds) > 1 or self.steps > 0

    @property
    def depends_in_step(self) -> bool:
        """The same where they do each statement together, the first of them first."""
        return self.is_read or len(self.kinds) > 1 or self.steps > 1 or self.repeats


def adds_once(function: ir.Function, array: ir.Var) -> bool:
    """Whether nothing happens to an array but that a thread adds, once, to each element that has its indices.

    The others are constants and the counters of all loops around.
    """
    accesses = [(stmt, loops) for stmt, loops in _accesses(function.body, ()) if stmt.array is array]
    if handed(function) or not function.threads or not accesses:
        return False
    if len({stmt.component for stmt, _ in accesses}) < len(accesses):
        return False
    seen = set(ir.reads(function.body))
    for add, loops in accesses:
        numbers = {*function.threads, *(loop.index for loop in loops if isinstance(loop, ir.For))}
        is_add = isinstance(add, ir.Atomic) and add.kind == "add" and add.out not in seen
        is_once = {index for index in add.indices if isinstance(index, ir.Var)} == numbers
        if not (is_add and is_once and all(isinstance(loop, ir.For) for loop in loops)):
            return False
    return True


@lru_cache(16)
def uses(function: ir.Function) -> dict[ir.Var, Use]:
    """The accesses of a function to each array; a load of a value that is known already does not count."""
    seen, by_array = frozenset(ir.reads(function.body)), dict[ir.Var, Use]()
    for stmt, loops in _accesses(function.body, ()):
        use = by_array.setdefault(stmt.array, Use())
        use.accesses.append(stmt)
        if isinstance(stmt, ir.Load):
            use.is_read = True
            continue
        use.kinds.add("store" if isinstance(stmt, ir.Store) else stmt.kind)
        if isinstance(stmt, ir.Atomic):
            use.is_read |= stmt.out in seen and stmt.held is None
        if isinstance(stmt, ir.Store) or stmt.kind not in COMMUTATIVE:
            use.steps += 1
            use.repeats |= bool(loops)
    return by_array


def _accesses(
    block: ir.Block, loops: tuple[ir.Loop, ...]
) -> Iterator[tuple[ir.ArrayAccess, tuple[ir.Loop, ...]]]:
    """The accesses to arrays that are not known already, each with the loops around it."""
    for stmt in block.stmts:
        if isinstance(stmt, ir.Store | ir.Atomic) or (isinstance(stmt, ir.Load) and stmt.held is None):
            yield stmt, loops
        within = (*loops, stmt) if isinstance(stmt, ir.For | ir.While) else loops
        for inner in ir.blocks(stmt):
            yield from _accesses(inner, within)


def independent(function: ir.Function) -> bool:
    """Whether threads that do each statement together compute what they do one after another.

    Sums by atomics may differ in their rounding.
    """
    return all(
        threads_are_disjoint(function, use.accesses)
        for _, use in _changed_uses(function)
        if use.depends_in_step or (use.steps and function.descending)
    )


def separate(function: ir.Function, but: Collection[ir.Var] = ()) -> bool:
    """Whether no thread touches an element that another one changes, in any array but these.

    Threads may run at once then, on any cores, and their results are the same to the last bit.
    """
    changing = (use.accesses for array, use in _changed_uses(function) if array not in but)
    return all(threads_are_disjoint(function, accesses) for accesses in changing)


def contested(function: ir.Function) -> Iterator[ir.Var]:
    """The arrays at whose elements threads may meet where their order matters, if they run at once."""
    for array, use in _changed_uses(function):
        if use.depends_at_once and not threads_are_disjoint(function, use.accesses):
            yield array


def _changed_uses(function: ir.Function) -> Iterator[tuple[ir.Var, Use]]:
    shared = changed(function) - ir.locals_of(function.body)
    return ((array, use) for array, use in uses(function).items() if array in shared)


def may_meet(function: ir.Function) -> bool:
    """Whether two threads may plainly store to one element, or read what another one changes.

    Those that take turns by the results of atomics do not count: these say themselves who is next.
    """
    seen = frozenset(ir.reads(function.body))
    if any(stmt.out in seen for stmt in ir.of_kind(function.body, ir.Atomic)):
        return False
    accesses = (use.accesses for _, use in _changed_uses(function))
    stores = ([stmt for stmt in every if isinstance(stmt, ir.Store)] for every in accesses)
    is_own = all(threads_are_disjoint(function, some) for some in stores if some)
    return not is_own or not independent(function)


def summed(function: ir.Function) -> frozenset[str]:
    """The arrays that a function only adds to, by name: they may share memory, in any order."""
    elsewhere, pairs = handed(function), uses(function).items()
    added = (array for array, use in pairs if use.kinds == {"add"} and not use.is_read)
    return frozenset(array.hint for array in added if array not in elsewhere)


def handed(function: ir.Function) -> frozenset[ir.Var]:
    """The arrays that native code gets."""
    return frozenset(array for stmt in ir.of_kind(function.body, ir.Native) for _, array in stmt.arrays)


def own_atomics(function: ir.Function) -> frozenset[ir.Atomic]:
    """The atomics on elements that no other thread touches in the whole launch."""
    appended = {stmt.array for stmt in ir.of_kind(function.body, ir.Append)}
    atomics = [*ir.of_kind(function.body, ir.Atomic)]
    own = {
        array
        for array in {stmt.array for stmt in atomics} - appended - handed(function)
        if threads_are_disjoint(function, uses(function)[array].accesses)
    }
    return frozenset(stmt for stmt in atomics if stmt.array in own)


def changed(function: ir.Function) -> frozenset[ir.Var]:
    """The arrays that a function stores to or accumulates into."""
    stmts = (stmt for stmt in ir.walk(function.body) if not isinstance(stmt, ir.Append))
    return frozenset(array for stmt in stmts for array in ir.changed(stmt))


def touched_by_first(function: ir.Function) -> frozenset[ir.Var]:
    """The arrays that threads touch in the row of their own first coordinate only, as lanes of a batch do."""
    first, others = function.threads[:1], set[ir.Atom]()
    for stmt in ir.walk(function.body):
        match stmt:
            case ir.Load(_, array, indices) | ir.Store(array, indices) | ir.Atomic(_, _, array, indices):
                if not first or indices[:1] != first:
                    others.add(array)
            case ir.Let():
                pass  # of an array it reads the shape
            case _:
                others.update(ir.atoms(stmt))
    return frozenset(function.params).difference(others)


def read_only(function: ir.Function) -> frozenset[ir.Var]:
    """The parameters that a function reads and nobody changes while it runs."""
    read = {stmt.array for stmt in ir.of_kind(function.body, ir.Load)}
    return frozenset(read - changed(function) - ir.locals_of(function.body))


def never_negative(function: ir.Function) -> frozenset[ir.Var]:
    """The integers that cannot be below zero, unless they are too large for their type."""
    nonnegative = {*function.threads}
    for stmt in ir.walk(function.body):
        match stmt:
            case ir.For(index=index):
                nonnegative.add(index)
            case ir.Let(out, op, args) if op.name in ("add", "mul"):
                if all(arg.value >= 0 if isinstance(arg, ir.Const) else arg in nonnegative for arg in args):
                    nonnegative.add(out)
    return frozenset(nonnegative)


# ------------------------------------------------------------------- values that are read and not overwritten


@dataclass(frozen=True, slots=True, eq=False)
class Contest:
    """A read and a change of one array: settled, the values read preserved, where their boxes are disjoint.

    With `proof` they are also settled where no index is negative.
    """

    read: Region
    change: Region
    proof: bool

    def settled(self, reading: Situation, changing: Situation) -> bool:
        """Whether it is, given what the two regions ask about a launch."""
        read, change = self.read.box(reading), self.change.box(changing)
        if read is None or change is None or disjoint(read, change):
            return True
        return self.proof and not (self.read.wraps(reading) or self.change.wraps(changing))


def contests(function: ir.Function) -> Mapping[int, tuple[Contest, ...]]:
    """For each array parameter that is read and changed, what is to be settled; none if that is hopeless."""
    if any(isinstance(stmt, ir.Custom | ir.Native) for stmt in ir.walk(function.body)):
        return {}
    every = accesses(function)
    contested: dict[int, tuple[Contest, ...]] = {}
    for position in {access.position for access in every if access.kind == "read"}:
        own = [access for access in every if access.position == position]
        reads = [access for access in own if access.kind == "read"]
        pairs = [(read, change) for read in reads for change in own if change.kind == "change"]
        contests = tuple(
            Contest(
                region_of([read]),
                region_of([change]),
                _never_meet(read, change) or _comes_before(function, change, read),
            )
            for read, change in dict.fromkeys(pairs)
        )
        if contests and all(contest.proof or _may_part(contest) for contest in contests):
            contested[position] = contests
    return contested


def disjoint(a: Box, b: Box) -> bool:
    """Whether two boxes of one array have no element in common."""
    return any(map(_axes_disjoint, a, b))


def _axes_disjoint(a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
    (low, count, step), (other, others, other_step) = a, b
    if low + (count - 1) * step < other or other + (others - 1) * other_step < low:
        return True
    period = math.gcd(step if count > 1 else 0, other_step if others > 1 else 0)
    return (low - other) % period != 0 if period else low != other


def _may_part(contest: Contest) -> bool:
    """Whether there is a chance that the boxes are apart at some launch."""
    read, change = contest.read.places[0], contest.change.places[0]  # the others have the same indices
    return any(a.index != b.index for a, b in zip(read.axes, change.axes, strict=True))


def _multiples(index: Form | None, other: Form | None) -> tuple[int, dict[Leaf, int], dict[Leaf, int]] | None:
    """The constant between the uniform parts of two indices, and what else is in each; None if unknown."""
    if index is None or other is None:
        return None
    (mine, varying), (theirs, others) = index.split(), other.split()
    between = mine.minus(theirs)
    return None if between.terms else (between.const, varying, others)


def _never_meet(read: Access, change: Access) -> bool:
    """Whether along some axis the two differ, whichever threads and iterations they belong to."""
    for index, other in zip(read.index, change.index, strict=True):
        parts = _multiples(index, other)
        if parts is None:
            continue
        between, varying, others = parts
        period = 0
        for factor in (*varying.values(), *others.values()):
            period = math.gcd(period, abs(factor))
        if between % period if period else between:
            return True
    return False


def _comes_before(function: ir.Function, change: Access, read: Access) -> bool:
    """Whether a change of an element that is read comes before the read: same thread, earlier iteration.

    Iterations are those of the outermost loop, which must be the same for both.
    """
    if read.loop is None or read.loop != change.loop or len(function.threads) != 1:
        return False
    own = earlier = False
    for index, other in zip(read.index, change.index, strict=True):
        parts = _multiples(index, other)
        if parts is None or parts[1] != parts[2] or len(parts[1]) != 1:
            continue
        between, ((leaf, factor),) = parts[0], parts[1].items()
        if leaf == Thread(None) and between == 0:
            own = True
        if isinstance(leaf, Counter) and leaf.number == read.loop:
            ahead = between // factor  # the change of iteration k + ahead touches what iteration k reads
            earlier = between % factor != 0 or (ahead > 0 if read.reverse else ahead < 0)
    return own and earlier
