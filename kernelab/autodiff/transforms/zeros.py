"""Warns of derivatives of a function that are zero by construction, in both modes of its transforms."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from kernelab.autodiff.records.provenance import Cut
from kernelab.autodiff.records.zero_chains import ZeroChain, zero_chains
from kernelab.autodiff.transforms.levels import Level
from kernelab.autodiff.transforms.reverse import Move, Ran, Reaching
from kernelab.autodiff.transforms.trees import name_of
from kernelab.runtime.array.array import array
from kernelab.runtime.memory.memory import Allocation


def tell_of_zeros(
    func: Callable[..., Any],
    level: Level,
    entries: Sequence[Reaching],
    outputs: Sequence[array],
    names: Mapping[Allocation, str],
) -> None:
    """Warn where values go on to the outputs though the derivative is zero by construction.

    A condition is told of where nothing else leads back to the inputs, which have the given names.
    """
    if not any(isinstance(entry, Ran) and entry.program.dead_ends for entry in entries):
        return
    names = dict(names)
    for entry in entries:
        if isinstance(entry, Move) and entry.src.allocation in names:
            names.setdefault(entry.dest.allocation, names[entry.src.allocation])
    live, on_the_way = set(), {out.allocation for out in outputs}
    for i, entry in reversed([*enumerate(entries)]):
        if any(target.allocation in on_the_way for target in entry.written):
            live.add(i)
            on_the_way.update(source.allocation for source in entry.reached)
    arrives = not on_the_way.isdisjoint(names)
    found = zero_chains(entries, live, on_the_way, lambda source: level.carries(source.allocation))
    together: dict[object, tuple[ZeroChain, list[str]]] = {}  # those that end at one place
    for memory, zero in {zero.source.allocation: zero for zero in found}.items():
        if memory in names or not (zero.end.is_condition and arrives):
            by = names.get(memory) or f"an array that {zero.entry.title} reads"
            _, several = together.setdefault((zero.end.span, zero.entry.place), (zero, []))
            several.append(by)
    for zero, several in together.values():
        arguments = " and ".join(dict.fromkeys(several))
        message = f"the derivative of {name_of(func)} with respect to {arguments} is 0"
        Cut(zero.entry.place, zero.end, partial(zero.explain, message)).warn()
