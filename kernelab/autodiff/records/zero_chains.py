"""Zero chains: where values go on to the results, and their derivatives are zero by construction.

    y[i] = round(x[i]) * w[i]        from x to y there is a value, and the derivative 0

The text of the programs is proof (`passes.access.dead_ends`), so that a tape and a transform say the same.
Knows entries of launches; must not know who goes back through them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from kernelab.autodiff.records.moves import Move
from kernelab.autodiff.records.records import Arrays, LaunchEntry
from kernelab.data_classes import replace
from kernelab.errors import Diagnostic, Related
from kernelab.lang.types import is_differentiable
from kernelab.passes.access import dead_ends
from kernelab.passes.access.dead_ends import DeadEnd
from kernelab.runtime.array.array import array
from kernelab.runtime.memory.memory import Allocation


class ZeroChain(NamedTuple):
    """An array whose derivative ends in a launch, where, and the launch that made integers floats again."""

    position: int
    source: array
    entry: LaunchEntry
    end: DeadEnd
    through: LaunchEntry | None

    def explain(self, message: str, if_meant: str = "") -> Diagnostic:
        """The message, with the reason, the lines and what to write instead."""
        match self.end.word:
            case dead_ends.CONDITION:
                what, why = "it only decides a condition, and that has derivative 0", "it is compared here:"
                hint = "let its value enter the result, or smooth the step: smoothstep(...), tanh(...)"
            case dead_ends.INDEX:
                what = "it only picks an element, and that has derivative 0"
                why = "it becomes an integer here:"
                hint = "let its value enter the result, or interpolate between the elements beside it"
            case dead_ends.INTEGER:
                what = "its values go on as integers only, and these have no derivative"
                why, hint = "it becomes an integer here:", "leave them floats"
            case name:
                what = f"its values go on through `{name}` only, and that has derivative 0"
                why = "its derivative ends here:"
                hint = f"leave `{name}` out, or give it a derivative: @func_grad"
        related = [Related(why, self.end.span)]
        if self.through is not None:
            again = "and an index here:" if self.end.word == dead_ends.INDEX else "and a float again here:"
            related.append(Related(again, self.through.place.span))
        span = self.entry.place.span
        return Diagnostic(f"{message}: {what}", span, "cut", hint=hint + if_meant, related=tuple(related))


def loose_ends(
    flows: Iterable[tuple[Arrays, Arrays, Arrays]],
    sources: Collection[Allocation],
    results: Collection[Allocation],
) -> dict[int, Arrays] | None:
    """The entries that pass the values of some memory on, but to no other entry, each with what it wrote.

    `flows` are what each entry read, reached and wrote.  None where some of the values reach the results.
    """
    carrying, ends = set(sources), dict[int, Arrays]()
    for i, (read, _, written) in enumerate(flows):
        used = {one.allocation for one in read}
        if not carrying.isdisjoint(used):
            ends = {k: last for k, last in ends.items() if used.isdisjoint(one.allocation for one in last)}
            carrying.update(one.allocation for one in written)
            ends[i] = written
    return ends if carrying.isdisjoint(results) else None


def zero_chains(
    entries: Sequence[object],
    live: Collection[int],
    on_the_way: Collection[Allocation],
    carries: Callable[[int, array], bool],
    passive: Collection[Allocation] = (),
) -> Iterator[ZeroChain]:
    """The arrays that carry derivatives and whose values reach the results only where these are zero.

    `live` are the positions of the entries that adjoints pass, `on_the_way` is all memory with adjoints, and
    `passive` what would have some if it required gradients.  `carries` is asked with the reader's position.
    """
    integers: dict[Allocation, tuple[LaunchEntry, DeadEnd]] = {}  # those that go on to the results, and where
    for i in range(max(live, default=-1), -1, -1):
        entry = entries[i]
        if isinstance(entry, Move) and entry.dest.allocation in integers:
            integers.setdefault(entry.src.allocation, integers[entry.dest.allocation])
        if not isinstance(entry, LaunchEntry):
            continue
        for end, source, target in entry.dead_ends:
            through, later = integers.get(target.allocation, (None, end))
            leads = (i in live and target.allocation in on_the_way) or target.allocation in passive
            if through is None and not leads:
                continue
            if not is_differentiable(source.dtype):
                integers.setdefault(source.allocation, (through or entry, later))
            elif carries(i, source) and source.allocation not in on_the_way:
                is_index = later.word == dead_ends.INDEX
                yield ZeroChain(i, source, entry, replace(end, word=later.word) if is_index else end, through)
