"""What adds up over backward passes: gradients that nobody zeroes, and a loss that launches only add to.

Both may be meant, so each is one line of information.  The memory itself remembers its passes, by the version
that they left: whatever else is written there ends the sum.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from kernelab.autodiff.records.records import LaunchRecord
from kernelab.autodiff.tape.backward import BackwardPlan
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import Place, called, caller, inform
from kernelab.runtime.memory.memory import Allocation


@dataclass(frozen=True, slots=True)
class Passes:
    """How many backward passes some memory holds the sum of, since which line; the version that they left."""

    version: int
    count: int
    since: Place


def passes_in(memory: Allocation) -> Passes | None:
    """The passes whose sum some memory holds, if nothing has changed it since."""
    passes: Passes | None = memory.passes or None
    if passes is None or passes.version != memory.version:
        return None
    # NumPy changes what it has a view of without a word.
    if memory.was_exposed and not np.frombuffer(memory.seen(), np.uint8).any():
        return None
    return passes


def earlier_passes(plan: BackwardPlan) -> dict[Allocation, Passes]:
    """The gradients that a sweep is going to add to though they hold those of earlier ones; tells of it."""
    found: dict[Allocation, Passes] = {}
    names: list[str] = []
    for memory, elements in _inputs(plan):
        gradient = memory.adjoint
        passes = None if gradient is None else passes_in(gradient)
        if passes is not None and gradient is not None:
            found[gradient] = passes
            names.append(called(elements))
    if found:
        others = f" and {len(names) - 3} more" if len(names) > 3 else ""
        message = f"backward adds to the gradients of an earlier pass, in {', '.join(names[:3])}{others}"
        inform(message, "to begin anew, call tape.zero() or x.grad.zero_() before it", "added")
    return found


def count_pass(plan: BackwardPlan, earlier: Mapping[Allocation, Passes]) -> None:
    """Note with the gradients that one more pass has been added."""
    here = caller()
    for memory, _ in _inputs(plan):
        gradient = memory.adjoint
        if gradient is not None:
            passes = earlier.get(gradient)
            count, since = (1, here) if passes is None else (passes.count + 1, passes.since)
            gradient.passes = Passes(gradient.version, count, since)


def _inputs(plan: BackwardPlan) -> Iterable[tuple[Allocation, array]]:
    pairs = {one.source.allocation: one.source for _, one in plan.inputs}
    return [pair for pair in pairs.items() if pair[0] in plan.on_the_way]


def tell_of_growing_loss(plan: BackwardPlan, loss: array) -> None:
    """Tell of a loss that holds what it was in the pass before, as launches have only added to it since."""
    memory, here = loss.allocation, caller()
    before: Passes | None = memory.passes or None
    first = plan.records[plan.first[memory]] if memory in plan.first else None
    if isinstance(first, LaunchRecord) and before is not None and before.since == here:
        names = [name for name, one in first.arguments.items() if getattr(one, "allocation", None) is memory]
        changes = first.kernel.effects
        other = {parameter.hint for parameter in changes.reads | changes.writes}
        version = first.versions_written.get(names[0]) if len(names) == 1 and names[0] not in other else None
        if version == before.version + 1:
            message = f"{called(loss)} still holds its value of the pass before, and grows"
            inform(
                message, "its gradient is right; for the value alone, zero_() it before each pass", "grows"
            )
    memory.passes = Passes(memory.version, 1, here)
