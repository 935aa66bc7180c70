"""The warning about threads of a launch on a device that run one after another, and its reason.

`passes/access/independence.py` proves from the text which may run at once; the rest is in the slots of the
launch.
"""

from collections.abc import Sequence

from kernelab.backend.common.specialization import reach_of
from kernelab.codegen.common.entry import GRID_SLOTS, EntryInfo
from kernelab.codegen.cpp.snippets import has_device_words
from kernelab.codegen.cpp.wide_accumulators import met_by_all
from kernelab.lang.build import elem_of
from kernelab.lang.ir import Atomic, Function, Native, walk
from kernelab.lang.types import scalar_of
from kernelab.passes.access.independence import contested, own_atomics


def in_turn(function: Function) -> str:
    """Why the threads of a function must not run at once on a device: the end of a sentence, "" if they may.

    They may where nobody stores to or reads an element that another thread changes: sums, and what else is
    the same in any order, excepted.
    """
    for stmt in walk(function.body):
        if isinstance(stmt, Native) and stmt.changed and not has_device_words(stmt.snippet):
            return f"its snippet {stmt.snippet.name} is written for threads that run one after another"
    for array in contested(function):
        return f"its threads may meet at elements of `{array.hint}`, where their order matters"
    return ""


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
