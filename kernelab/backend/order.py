"""Whether the threads of a launch may run in any order, or together: a fact of the function's array accesses.

Threads are independent if none can read what another changes: an array that is both read and changed is only
ever accessed at one place, which the thread's own indices pick.  This is a proof where it says yes; where it
says no, threads must run one after another to give what a sequential run gives.
"""

from kernelab.lang.ir import Atom, Atomic, Function, Load, Store, Var, locals_of, reads, walk


def independent(function: Function) -> bool:
    """Whether every thread computes the same whatever the others have done, but for sums by atomics."""
    used = frozenset(reads(function.body))
    places: dict[Var, set[tuple[Atom, ...]]] = {}
    read: set[Var] = set()
    for stmt in walk(function.body):
        match stmt:
            case Load(_, array, indices):
                read.add(array)
            case Atomic(out, _, array, indices):
                read |= {array} if out in used else set()
            case Store(array, indices):
                pass
            case _:
                continue
        places.setdefault(array, set()).add(indices)
    observed = (changed(function) & read) - locals_of(function.body)
    return all(_is_own(function, places[array]) for array in observed)


def may_meet(function: Function) -> bool:
    """Whether two threads may plainly store to one element, or read what another one changes.

    Those that take turns by the results of atomics do not count: these say themselves who is next.
    """
    used = frozenset(reads(function.body))
    stmts = list(walk(function.body))
    if any(isinstance(stmt, Atomic) and stmt.out in used for stmt in stmts):
        return False
    own, local = set(function.threads), locals_of(function.body)
    stores = [stmt for stmt in stmts if isinstance(stmt, Store) and stmt.array not in local]
    return not independent(function) or any(not own <= set(stmt.indices) for stmt in stores)


def changed(function: Function) -> frozenset[Var]:
    """The arrays that a function stores to or accumulates into."""
    return frozenset(stmt.array for stmt in walk(function.body) if isinstance(stmt, Store | Atomic))


def _is_own(function: Function, places: set[tuple[Atom, ...]]) -> bool:
    if len(places) != 1 or not function.threads:
        return False
    (indices,) = places
    return set(function.threads) <= set(indices)
