"""Proofs that no two threads meet at an element of an array.

    y[i + 1], y[i // 8, i % 8]        a thread index, or both parts of one, shifted by as much
    x[1024 * i + k]                   where k is 0 to 1023: each thread has a block of the array
    if i == 0: total[0]               one thread comes there

Each thread index has to tell threads apart along some axis: what is added to its multiple there, in any of
the accesses, is less than that multiple.  An index below zero would count from the end.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from kernelab.lang import ir
from kernelab.passes.access.access_forms import Walker
from kernelab.passes.access.affine_forms import (
    Applied,
    Counter,
    Extent,
    Form,
    Guard,
    Leaf,
    Thread,
    is_uniform,
    single,
)

Place = tuple[tuple[Form | None, ...], frozenset[Guard]]
"""The indices of an access, one an axis, and what holds there."""


def threads_are_disjoint(
    function: ir.Function, accesses: Collection[ir.ArrayAccess], may_wrap: bool = False
) -> bool:
    """Whether no two threads meet at an element by some accesses to one array.

    With `may_wrap` two threads may meet where one index of them is below zero and counts from the end.
    """
    known = places(function)
    if not known or not function.threads:
        return False
    indices, guards = zip(*(known[access] for access in accesses), strict=True)
    axes = [*zip(*indices, strict=True)]
    leaves = {leaf for form in {form for axis in axes for form in axis} if form for leaf, _ in form.terms}

    def separates(leaf: Leaf) -> bool:
        """Whether threads that differ in a number do not meet."""
        if _is_pinned(leaf, guards) or any(_tells_apart(forms, leaf, may_wrap) for forms in axes):
            return True
        parts = {one.args for one in leaves if isinstance(one, Applied) and one.name in ("floordiv", "mod")}
        return any(
            number == single(leaf)
            and _is_positive(divisor)
            and separates(Applied("floordiv", (number, divisor)))
            and separates(Applied("mod", (number, divisor)))
            for number, divisor in parts
        )

    threads = [Thread(axis) for axis in range(len(function.threads))] if len(function.threads) > 1 else []
    is_alone = (not threads or function.linear is not None) and separates(Thread(None))
    return is_alone or (bool(threads) and all(map(separates, threads)))


@lru_cache(16)
def places(function: ir.Function) -> Mapping[ir.ArrayAccess, Place]:
    """Where each access of a function is; nothing where it calls another, whose accesses are unknown."""
    if any(ir.of_kind(function.body, ir.Call)):
        return {}
    walker = _Places(function)
    walker.block(function.body)
    return walker.places


class _Places(Walker):
    def __init__(self, function: ir.Function) -> None:
        super().__init__(function)
        self.places: dict[ir.ArrayAccess, Place] = {}

    def stmt(self, stmt: ir.Stmt) -> None:
        if isinstance(stmt, ir.ArrayAccess):
            self.places[stmt] = tuple(map(self.form, stmt.indices)), frozenset(self.guards)
        super().stmt(stmt)


def _is_pinned(leaf: Leaf, guards: Sequence[Collection[Guard]]) -> bool:
    """Whether a number is the same constant wherever some guards hold."""
    number, values = single(leaf), list[set[int]]()
    for several in guards:
        bounds = [guard.greater for guard in several if guard.lesser == number and guard.gap == 0]
        values.append({end.const for end in bounds if not end.terms and Guard(end, number, 0) in several})
    return bool(set.intersection(*values))


def _tells_apart(forms: Sequence[Form | None], leaf: Leaf, may_wrap: bool) -> bool:
    """Whether indices along an axis differ where a number differs that is in all of them."""
    steps, rests = set[int](), list[Form]()
    for form in forms:
        if form is None:
            return False
        terms = dict(form.terms)
        steps.add(terms.pop(leaf, 0))
        rests.append(Form(form.const, tuple(terms.items())))
    if may_wrap and len(steps) == 1 and 0 not in steps and _are_one(rests):
        return True
    ends = [end for rest in rests if (end := _end(rest)) is not None]
    first = min(rest.const for rest in rests)
    return len(ends) == len(rests) and len(steps) == 1 and first >= 0 and max(ends) - first < max(steps)


def _are_one(forms: Sequence[Form]) -> bool:
    """Whether forms have one value in the whole launch."""
    same = all(form.minus(forms[0]) == Form(0) for form in forms)
    return same and all(is_uniform(leaf) for leaf, _ in forms[0].terms)


def _end(form: Form) -> int | None:
    """The largest value of a constant plus loop counters; None if unknown, or if it may be less than that."""
    total = form.const
    for leaf, factor in form.terms:
        count = _most(leaf.count) if isinstance(leaf, Counter) and leaf.count is not None else None
        if count is None or factor < 0:
            return None
        total += factor * max(count - 1, 0)
    return total


def _is_positive(form: Form) -> bool:
    """Whether a number is the same for all threads, and above zero, or the extent of an array."""
    match form:
        case Form(value, ()):
            return value > 0
        case Form(0, ((Extent(), 1),)):
            return True
        case Form(0, ((Applied("max", args) as leaf, 1),)):
            return is_uniform(leaf) and any(not arg.terms and arg.const > 0 for arg in args)
        case _:
            return False


def _most(form: Form) -> int | None:
    """A constant that a form does not exceed, if one is found."""
    if not form.terms:
        return form.const
    for leaf, factor in form.terms:
        if not isinstance(leaf, Applied) or leaf.name not in ("min", "max"):
            continue
        rest = Form(form.const, tuple(term for term in form.terms if term[0] != leaf))
        bounds = [_most(rest.plus(arg, factor)) for arg in leaf.args]
        known = [bound for bound in bounds if bound is not None]
        if (leaf.name == "min") == (factor > 0):
            return min(known, default=None)
        return max(known) if len(known) == len(bounds) else None
    return None
