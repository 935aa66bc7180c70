"""Where only intermediate results require gradients, an input without one says why it has none.

That may be meant, so `backward` says nothing; it leaves a word with the memory of each input, which
``x.grad`` gives out.  Beside inputs that do require gradients, the others are taken to be meant as they are.
"""

from collections.abc import Collection, Sequence
from functools import partial

from kernelab.autodiff.records import LaunchRecord
from kernelab.autodiff.steps import Step
from kernelab.errors import Diagnostic
from kernelab.runtime.memory import Allocation
from kernelab.runtime.recorder import Place, name_of_memory
from kernelab.runtime.strided import array


def tell_inputs_without_gradients(steps: Sequence[Step], live: Collection[int]) -> None:
    """Leave a word with the memory that live launches have read and that requires no gradients."""
    for i in live:
        record = steps[i].record
        if not isinstance(record, LaunchRecord):
            continue
        for k in record.outline.passive:
            argument = record.call.arguments[k]
            if isinstance(argument, array) and not argument.allocation.requires_grad:
                argument.allocation.missing = partial(_why, record.kernel.name, record.place)


def _why(kernel: str, place: Place, memory: Allocation) -> Diagnostic:
    name = name_of_memory(memory)
    name = f"`{name}`" if name else "this array"
    message = f"{name} has no gradient: only what was computed from it requires one"
    hint = f"create it with requires_grad=True, before `{kernel}` is launched"
    return Diagnostic(message, place.span, "no-gradient", "warning", hint=hint)
