"""Flow: through which records adjoints will pass on their way from the seeds, and where they cannot go on.

Knows the steps of a tape and its cuts; must not compute any adjoint.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from kernelab.autodiff.records.moves import FunctionRecord
from kernelab.autodiff.records.steps import Step
from kernelab.autodiff.tape.cuts import Cut, rounded, suspects, switched_off
from kernelab.runtime.array.array import array
from kernelab.runtime.memory.memory import Allocation


@dataclass(frozen=True, slots=True)
class Flow:
    """Through which records adjoints pass on their way from the seeds, and what they meet."""

    live: frozenset[int]
    reached: tuple[array, ...]
    cuts: tuple[Cut, ...]

    def on_the_way(self, seeds: Iterable[array]) -> dict[Allocation, array]:
        """The memory that adjoints pass, with an array over each."""
        return {elements.allocation: elements for elements in (*self.reached, *seeds)}


def flow(steps: Sequence[Step], seeds: Collection[array]) -> Flow:
    """Follow the adjoints of the seeds backwards, without computing any."""
    needed = {seed.allocation for seed in seeds}
    passive = suspects(steps)
    live: set[int] = set()
    reached: list[array] = []
    cuts: list[Cut] = []
    for i in range(len(steps) - 1, -1, -1):
        step = steps[i]
        passed = any(target.allocation in needed for target in step.written)
        # A function of the user's may add gradients that come from no seed, such as those of a penalty.
        if not passed and not isinstance(step.record, FunctionRecord):
            continue
        live.add(i)
        for source in step.reached:
            memory = source.allocation
            if memory.requires_grad:
                needed.add(memory)
                reached.append(source)
        if i in passive:
            cuts += [cut for cut in passive[i] if step.record.would_reach(cut.elements)]
    cuts += switched_off(steps, live)
    cuts += rounded(steps, live, needed)
    return Flow(frozenset(live), tuple(reached), tuple(cuts))
