"""Where only intermediate results require gradients, an input without one says why it has none.

That may be meant, so `backward` says nothing; it leaves a word with the memory of each input, which
``x.grad`` gives out.  Beside inputs that do require gradients, the others are taken to be meant as they are.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import partial

from kernelab.autodiff.records.records import LaunchRecord
from kernelab.autodiff.records.steps import Step
from kernelab.errors import Diagnostic
from kernelab.lang.structs import Struct, StructArray, leaves
from kernelab.runtime.arguments.arguments import Reference
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import Place, name_of_memory
from kernelab.runtime.host.struct_instances import Instance, traced_in
from kernelab.runtime.memory.memory import Allocation


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


def late_fields(record: LaunchRecord) -> Iterator[str]:
    """The fields of structs that were told to require gradients only after they were launched as numbers."""
    structs = iter(record.call.structs)
    position = 0
    for formal in record.kernel.plan.formals or ():
        struct = next(structs) if isinstance(formal.type, Struct | StructArray) else None
        if isinstance(struct, Instance):
            yield from _late_in(struct, record, position)
        position += len(list(leaves(formal.type, formal.name)))


def _late_in(struct: Instance, record: LaunchRecord, first: int) -> Iterator[str]:
    traced = {id(elements) for elements in traced_in(struct)}
    for position, leaf in enumerate(struct._leaves() if traced else (), first):
        was_number = not isinstance(record.call.arguments[position], array | Reference)
        if id(leaf) in traced and was_number and record.would_reach_number(position):
            yield f"`{record.kernel.plan.parameters[position].name}`"


def _why(kernel: str, place: Place, memory: Allocation) -> Diagnostic:
    name = name_of_memory(memory)
    name = f"`{name}`" if name else "this array"
    message = f"{name} has no gradient: only what was computed from it requires one"
    hint = f"create it with requires_grad=True, before `{kernel}` is launched"
    return Diagnostic(message, place.span, "no-gradient", "warning", hint=hint)
