"""No-clobber analysis: finds arrays that a function changes without overwriting a value that it has read.

    traj[t + 1, i] = f(traj[t, i])      settled: no residual, the adjoint reads traj[t, i] again
    a[i] = f(a[i])                      not: what was read is gone

An array is settled if each change of it either touches no element that is read, or comes before the read.
Part of the proof is in the text, part needs the grid and the numbers of a launch.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kernelab.lang.ir import Custom, Function, Native, walk
from kernelab.passes.access.access_forms import Access, accesses
from kernelab.passes.access.access_regions import Box, Region, Situation, region_of
from kernelab.passes.access.affine_forms import Counter, Form, Leaf, Thread


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
        if read is None or change is None or apart(read, change):
            return True
        return self.proof and not (self.read.wraps(reading) or self.change.wraps(changing))


def contests(function: Function) -> Mapping[int, tuple[Contest, ...]]:
    """For each array parameter that is read and changed, what is to be settled; none if that is hopeless."""
    if any(isinstance(stmt, Custom | Native) for stmt in walk(function.body)):
        return {}
    found = accesses(function)
    contested: dict[int, tuple[Contest, ...]] = {}
    for position in {access.position for access in found if access.kind == "read"}:
        own = [access for access in found if access.position == position]
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


def apart(a: Box, b: Box) -> bool:
    """Whether two boxes of one array have no element in common."""
    return any(map(_axes_apart, a, b))


def _axes_apart(a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
    (low, count, step), (other, others, other_step) = a, b
    if low + (count - 1) * step < other or other + (others - 1) * other_step < low:
        return True
    period = math.gcd(step if count > 1 else 0, other_step if others > 1 else 0)
    return (low - other) % period != 0 if period else low != other


def _may_part(contest: Contest) -> bool:
    """Whether there is a chance that the boxes are apart at some launch."""
    (read,), (change,) = contest.read.places, contest.change.places
    return any(a.index != b.index for a, b in zip(read.axes, change.axes, strict=True))


def _parts(index: Form | None, other: Form | None) -> tuple[int, dict[Leaf, int], dict[Leaf, int]] | None:
    """The constant between the uniform parts of two indices, and what else is in each; None if unknown."""
    if index is None or other is None:
        return None
    (mine, varying), (theirs, others) = index.split(), other.split()
    between = mine.minus(theirs)
    return None if between.terms else (between.const, varying, others)


def _never_meet(read: Access, change: Access) -> bool:
    """Whether along some axis the two differ, whichever threads and iterations they belong to."""
    for index, other in zip(read.index, change.index, strict=True):
        parts = _parts(index, other)
        if parts is None:
            continue
        between, varying, others = parts
        period = 0
        for factor in (*varying.values(), *others.values()):
            period = math.gcd(period, abs(factor))
        if between % period if period else between:
            return True
    return False


def _comes_before(function: Function, change: Access, read: Access) -> bool:
    """Whether a change of an element that is read comes before the read: same thread, earlier iteration.

    Iterations are those of the outermost loop, which must be the same for both.
    """
    if read.loop is None or read.loop != change.loop or len(function.threads) != 1:
        return False
    own = earlier = False
    for index, other in zip(read.index, change.index, strict=True):
        parts = _parts(index, other)
        if parts is None or parts[1] != parts[2] or len(parts[1]) != 1:
            continue
        between, ((leaf, factor),) = parts[0], parts[1].items()
        if leaf == Thread(None) and between == 0:
            own = True
        if isinstance(leaf, Counter) and leaf.number == read.loop:
            ahead = between // factor  # the change of iteration k + ahead touches what iteration k reads
            earlier = between % factor != 0 or (ahead > 0 if read.reverse else ahead < 0)
    return own and earlier
