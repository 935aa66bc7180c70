"""Whether the threads of a launch may run in any order, or together: a fact of the function's array accesses.

Threads are independent if none can read what another changes: an array that is both read and changed is only
ever accessed at one place, which the thread's own indices pick.  An array that is changed in two ways, as by
stores and by sums, counts as read: the order decides what is left.  This is a proof where it says yes; where
it says no, threads must run one after another to give what a sequential run gives.
"""

from collections.abc import Sequence

from kernelab.backend.specialization import reach_of
from kernelab.codegen.apart import Pin, changed, is_apart, own_atomics, pins
from kernelab.codegen.entry import GRID_SLOTS, EntryInfo
from kernelab.codegen.snippets import has_device_words
from kernelab.codegen.totals import met_by_all
from kernelab.lang.build import elem_of
from kernelab.lang.ir import (
    Atom,
    Atomic,
    Function,
    Load,
    Native,
    Store,
    Var,
    locals_of,
    reads,
    walk,
)
from kernelab.lang.types import scalar_of


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
    places, sensitive, pinned = _accesses(function)
    for array in changed(function) - locals_of(function.body):
        if array in sensitive and not is_apart(function, places[array], pinned[array]):
            return f"its threads may meet at elements of `{array.hint}`, where their order matters"
    return ""


_COMMUTATIVE = ("add", "min", "max", "and", "or", "xor")


def _accesses(
    function: Function,
) -> tuple[dict[Var, list[tuple[Atom, ...]]], set[Var], dict[Var, set[Var]]]:
    """Where each array is accessed, the arrays in which the order of accesses can be seen, and the thread
    indices that have one value wherever an array is accessed."""
    used = frozenset(reads(function.body))
    places: dict[Var, list[tuple[Atom, ...]]] = {}
    sensitive: set[Var] = set()
    kinds: dict[Var, str] = {}
    known, common = pins(function), dict[Var, frozenset[Pin]]()
    for stmt in walk(function.body):
        match stmt:
            case Load(_, array, indices):
                if stmt.held is not None:
                    continue
                sensitive.add(array)
            case Store(array, indices):
                sensitive.add(array)
            case Atomic(out, kind, array, indices):
                if kinds.setdefault(array, kind) != kind:
                    sensitive.add(array)
                if kind not in _COMMUTATIVE or (out in used and stmt.held is None):
                    sensitive.add(array)
            case _:
                continue
        places.setdefault(array, []).append(indices)
        common[array] = common.get(array, known[stmt]) & known[stmt]
    return places, sensitive, {array: {index for index, _ in found} for array, found in common.items()}


def summed(function: Function) -> frozenset[str]:
    """The arrays that a function only adds to, by name: they may share memory, whoever comes first."""
    _, sensitive, _ = _accesses(function)
    handed = {array for stmt in walk(function.body) if isinstance(stmt, Native) for _, array in stmt.arrays}
    kinds: dict[Var, set[str]] = {}
    for stmt in walk(function.body):
        if isinstance(stmt, Atomic):
            kinds.setdefault(stmt.array, set()).add(stmt.kind)
    arrays = kinds.keys() - sensitive - handed
    return frozenset(array.hint for array in arrays if kinds[array] == {"add"})


def unordered(function: Function) -> str:
    """Why sums of a function may differ in their last bits from run to run: the end of a sentence, "" if not.

    Running totals of one element are left out: a block adds them up in one order.
    """
    known = {*own_atomics(function), *met_by_all(function)}
    adding = [stmt for stmt in walk(function.body) if isinstance(stmt, Atomic) and stmt.kind == "add"]
    for stmt in adding:
        if stmt not in known and scalar_of(elem_of(stmt.array)).is_float:
            return f"kl.config.deterministic is set, and its threads add to elements of `{stmt.array.hint}`"
    return ""


def overlapping(
    info: EntryInfo, changed: frozenset[str], slots: Sequence[int], summed: frozenset[str] = frozenset()
) -> str:
    """Why arguments of a launch keep its threads from running at once: arrays share memory; "" if not.

    Those that are only `summed` may do so with one another.
    """
    reach = reach_of(info.layout, slots)
    for name in changed & reach.keys():
        if reach[name].folds and name not in summed:
            return f"elements of `{name}`, which it changes, may share memory"
        for other, bytes_of_other in reach.items():
            if other == name or (name in summed and other in summed):
                continue
            if reach[name].meets(bytes_of_other):
                return f"`{name}`, which it changes, may share memory with `{other}`"
    return ""


def repeated(info: EntryInfo, slots: Sequence[int]) -> str:
    """Why the grid of a launch does so: it has dimensions that the kernel does not unpack; "" if not."""
    if info.coordinates < 2 or all(extent == 1 for extent in slots[info.coordinates : GRID_SLOTS]):
        return ""
    return f"its grid has more dimensions than the {info.coordinates} indices that it unpacks"
