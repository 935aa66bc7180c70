"""Whether the threads of a launch may run in any order, or together: a fact of the function's array accesses.

Threads are independent if none can read what another changes: an array that is both read and changed is only
ever accessed at one place, which the thread's own indices pick.  An array that is changed in two ways, as by
stores and by sums, counts as read: the order decides what is left.  This is a proof where it says yes; where
it says no, threads must run one after another to give what a sequential run gives.
"""

from collections.abc import Sequence

from kernelab.backend.reach import reach_of
from kernelab.codegen.entry import GRID_SLOTS, EntryInfo
from kernelab.codegen.snippets import has_device_words
from kernelab.lang.ir import (
    Atom,
    Atomic,
    Const,
    Function,
    Let,
    Load,
    Native,
    Store,
    Var,
    locals_of,
    reads,
    walk,
)


def independent(function: Function) -> bool:
    """Whether every thread computes the same whatever the others have done, but for sums by atomics."""
    used = frozenset(reads(function.body))
    places: dict[Var, set[tuple[Atom, ...]]] = {}
    ways: dict[Var, set[str]] = {}
    read: set[Var] = set()
    for stmt in walk(function.body):
        match stmt:
            case Load(_, array, indices):
                read.add(array)
            case Atomic(out, kind, array, indices):
                read |= {array} if out in used else set()
                ways.setdefault(array, set()).add(kind)
            case Store(array, indices):
                ways.setdefault(array, set()).add("store")
            case _:
                continue
        places.setdefault(array, set()).add(indices)
    mixed = {array for array, found in ways.items() if len(found) > 1}
    observed = ((changed(function) & read) | mixed) - locals_of(function.body)
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
    plain = {stmt.array for stmt in walk(function.body) if isinstance(stmt, Store | Atomic)}
    natives = (stmt.changed for stmt in walk(function.body) if isinstance(stmt, Native))
    return frozenset(plain.union(*natives))


def _is_own(function: Function, places: set[tuple[Atom, ...]]) -> bool:
    if len(places) != 1 or not function.threads:
        return False
    (indices,) = places
    return set(function.threads) <= set(indices)


# ------------------------------------------------------------------------------- a device, in parallel


def in_turn(function: Function) -> str:
    """Why the threads of a function must not run at once on a device: the end of a sentence, "" if they may.

    They may where nobody stores to or reads an element that another thread changes: sums, and what else is
    the same in any order, excepted.
    """
    for stmt in walk(function.body):
        if isinstance(stmt, Native) and stmt.changed and not has_device_words(stmt.snippet):
            return f"its snippet {stmt.snippet.name} is written for threads that run one after another"
    places, sensitive = _accesses(function)
    for array in changed(function) - locals_of(function.body):
        if array in sensitive and not _is_apart(function, places[array]):
            return f"its threads may meet at elements of `{array.hint}`, where their order matters"
    return ""


_COMMUTATIVE = ("add", "min", "max", "and", "or", "xor")


def _accesses(function: Function) -> tuple[dict[Var, list[tuple[Atom, ...]]], set[Var]]:
    """Where each array is accessed, and the arrays in which the order of accesses can be seen."""
    used = frozenset(reads(function.body))
    places: dict[Var, list[tuple[Atom, ...]]] = {}
    sensitive: set[Var] = set()
    for stmt in walk(function.body):
        match stmt:
            case Load(_, array, indices):
                if stmt.held is not None:
                    continue
                sensitive.add(array)
            case Store(array, indices):
                sensitive.add(array)
            case Atomic(out, kind, array, indices):
                if kind not in _COMMUTATIVE or (out in used and stmt.held is None):
                    sensitive.add(array)
            case _:
                continue
        places.setdefault(array, []).append(indices)
    return places, sensitive


def _is_apart(function: Function, places: Sequence[tuple[Atom, ...]]) -> bool:
    """Whether no two threads meet: each thread index stands alone on an axis, and is shifted by as much."""
    shifted = {
        stmt.out: (stmt.args, stmt.op.name)
        for stmt in walk(function.body)
        if isinstance(stmt, Let) and stmt.op.name == "add"
    }

    def shift(atom: Atom, thread: Var) -> int | None:
        if atom is thread:
            return 0
        args = shifted[atom][0] if isinstance(atom, Var) and atom in shifted else ()
        numbers = [int(arg.value) for arg in args if isinstance(arg, Const)]
        # Below zero an index would count from the end, and might meet another there.
        return numbers[0] if thread in args and numbers and numbers[0] >= 0 else None

    def alone(axis: int, thread: Var) -> bool:
        found = {shift(indices[axis], thread) for indices in places}
        return len(found) == 1 and None not in found

    axes = range(len(places[0]))
    if function.linear is not None and any(alone(axis, function.linear) for axis in axes):
        return True
    return bool(function.threads) and all(
        any(alone(axis, thread) for axis in axes) for thread in function.threads
    )


def overlapping(info: EntryInfo, changed: frozenset[str], slots: Sequence[int]) -> str:
    """Why arguments of a launch keep its threads from running at once: arrays share memory; "" if not."""
    reach = reach_of(info.layout, slots)
    for name in changed & reach.keys():
        for other, bytes_of_other in reach.items():
            if other != name and reach[name].meets(bytes_of_other):
                return f"`{name}`, which it changes, may share memory with `{other}`"
    return ""


def repeated(info: EntryInfo, slots: Sequence[int]) -> str:
    """Why the grid of a launch does so: it has dimensions that the kernel does not unpack; "" if not."""
    if info.coordinates < 2 or all(extent == 1 for extent in slots[info.coordinates : GRID_SLOTS]):
        return ""
    return f"its grid has more dimensions than the {info.coordinates} indices that it unpacks"
