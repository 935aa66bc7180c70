"""Refusals of a backward pass: gradients that would be wrong or missing, each an error that says why.

Knows records; must not know how they are swept.
"""

from collections.abc import Iterable, Mapping

from kernelab.autodiff.records.records import LaunchRecord, Record
from kernelab.autodiff.tape.cuts import late_fields
from kernelab.errors import Diagnostic, TapeError
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import called, caller
from kernelab.runtime.memory.memory import Allocation


def leads_nowhere(seeds: Iterable[array]) -> Diagnostic:
    """The error for seeds that depend on nothing that requires gradients."""
    names = " and ".join(called(target, "the loss") for target in seeds)
    message = f"{names} does not depend on any array that requires gradients"
    hint = "create the arrays to differentiate by with requires_grad=True, before they are launched"
    return Diagnostic(message, caller().span, "unreached", hint=hint)


def refuse_lost(reached: Iterable[array], lost: Mapping[Allocation, Record]) -> None:
    """Raise where an adjoint goes to what a function has computed and not returned."""
    for elements in reached:
        record = lost.get(elements.allocation)
        if record is not None:
            message = f"{called(elements)} was computed by {record.title}, but not returned"
            hint = "return it from the function: its gradient has no other way in"
            raise TapeError(Diagnostic(message, record.place.span, "lost", hint=hint))


def refuse_latecomers(record: Record) -> None:
    """Raise where an array was set to require gradients after it was recorded."""
    if not isinstance(record, LaunchRecord):
        return
    for primal in record.late:
        message = f"{called(primal)} requires gradients, but did not when {record.title} was recorded"
        hint = "set requires_grad=True before the launch"
        raise TapeError(Diagnostic(message, record.place.span, "late", hint=hint))
    for field in late_fields(record):
        message = f"{field} requires gradients, but did not when {record.title} was recorded"
        hint = "set requires_grad = True on the struct before the launch"
        raise TapeError(Diagnostic(message, record.place.span, "late", hint=hint))


def refuse_shared_gradients(shown: Iterable[tuple[array, bool]]) -> None:
    """Raise where one gradient array is to show those of several arrays that do not add up.

    `shown` are arrays and whether they are inputs, which add to it; anything else replaces it.
    """
    first: dict[Allocation, array] = {}
    replacing: set[Allocation] = set()
    shared: dict[Allocation, tuple[array, array]] = {}
    for source, is_input in shown:
        gradient = source.allocation.adjoint
        if gradient is None:
            continue
        if not is_input:
            replacing.add(gradient)
        other = first.setdefault(gradient, source)
        if other.allocation is not source.allocation:
            shared[gradient] = other, source
    for one, other in (pair for gradient, pair in shared.items() if gradient in replacing):
        message = f"{called(one)} and {called(other)} share one gradient array, and not both are inputs, "
        hint = "give each a gradient of its own: x.grad = None, or x.grad = kl.zeros_like(x)"
        problem = Diagnostic(f"{message}whose gradients add up", caller().span, "shared-gradient", hint=hint)
        raise TapeError(problem)
