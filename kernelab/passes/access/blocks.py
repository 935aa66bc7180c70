"""Proofs that each thread has a block of an array to itself.

    first = 1024 * block
    for k in range(first, min(first + 1024, n)):
        total += x[k]                                  x[1024 * block + j], where j is 0 to 1023

So it is where the indices along an axis are a multiple of one thread index and what is less than that.
"""

from collections.abc import Sequence
from functools import lru_cache

from kernelab.lang import ir
from kernelab.passes.access.access_forms import Access, accesses
from kernelab.passes.access.affine_forms import Applied, Counter, Form, Leaf, Thread


def in_blocks(function: ir.Function, array: ir.Var) -> bool:
    """Whether no two threads meet at an element of a parameter, as their blocks of it are apart."""
    if array not in function.params or not function.threads or not _is_inlined(function):
        return False
    position = function.params.index(array)
    indices = [access.index for access in _accesses(function) if access.position == position]
    several = len(function.threads) > 1
    threads = [Thread(axis if several else None) for axis in range(len(function.threads))]
    axes = [*zip(*indices, strict=True)]
    return all(any(_are_apart(forms, thread) for forms in axes) for thread in threads)


def _is_inlined(function: ir.Function) -> bool:
    """Whether a function calls no other, whose accesses would be unknown."""
    return not any(isinstance(stmt, ir.Call) for stmt in ir.walk(function.body))


@lru_cache(16)
def _accesses(function: ir.Function) -> tuple[Access, ...]:
    return accesses(function)


def _are_apart(forms: Sequence[Form | None], thread: Thread) -> bool:
    """Whether indices along an axis differ between threads that differ in one index; none is negative."""
    steps, ends = set[int](), list[int]()
    for form in forms:
        terms = {} if form is None else dict(form.terms)
        steps.add(terms.pop(thread, 0))
        within = _most_of(terms)
        if form is None or within is None or form.const < 0:
            return False
        ends.append(form.const + within)
    first = min(form.const for form in forms if form is not None)
    return len(steps) == 1 and max(ends) - first < max(steps)


def _most_of(terms: dict[Leaf, int]) -> int | None:
    """The largest sum of multiples of loop counters; None where it is not known, or may be below zero."""
    total = 0
    for leaf, factor in terms.items():
        count = _most(leaf.count) if isinstance(leaf, Counter) and leaf.count is not None else None
        if count is None or factor < 0:
            return None
        total += factor * max(count - 1, 0)
    return total


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
