"""The errors for a loss, or for arrays with cotangents, that a backward pass cannot start from."""

from collections.abc import Iterable
from typing import Any

from kernelab.autodiff.records.cuts import called_in
from kernelab.autodiff.records.provenance import array_from_host
from kernelab.autodiff.records.recording import Recording
from kernelab.autodiff.records.records import LaunchRecord, Record
from kernelab.errors import Diagnostic, Related, TapeError, counted
from kernelab.lang.structs import leaves
from kernelab.lang.types import is_differentiable
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import described
from kernelab.runtime.context.recorder import called, caller, names_of_memories, refusal
from kernelab.runtime.host.structarray import leaves_of, structarray
from kernelab.runtime.memory.memory import Allocation

_SUMMED = "write loss = y.sum() on the tape"


def field_among(target: array, named: Iterable[array]) -> str:
    """The name of an array that is a field of an array of structs among those named; empty for any other."""
    for structs in named:
        fields = leaves(structs.dtype, "") if isinstance(structs, structarray) else ()
        for part, field in zip(leaves_of(structs), fields, strict=False):
            if part is target:
                return f"field {field.name[1:]} of {called(structs, 'an array of structs')}"
    return ""


def not_computed(field: str) -> TapeError:
    """The error for a field that no launch wrote and that has a cotangent."""
    message = f"{field} has a cotangent, and this tape did not see how it was computed"
    return refusal(
        TapeError, message, "unrecorded", "compute it inside `with tape:`, or set its cotangent to 0"
    )


def made_by_host(recording: Recording, target: array, *, by_order: bool = False) -> TapeError | None:
    """The error for an array that the host made of values with gradients, or by order may have; else None."""
    host = recording.provenance
    for values in host.arrays.get(target.allocation, ()):
        reads = values.host_reads or (host.host_reads[: values.earlier][-1:] if by_order else ())
        if reads:
            return TapeError(array_from_host(target, values, reads[0], None).describe())
    return None


def unrecorded(recording: Recording, target: array) -> TapeError:
    """The error for an array that a tape did not see computed."""
    idle = recording.idle.get(target.allocation)
    if idle is not None:
        name, place = idle
        message = f"{called(target, 'the array')} was not computed: the launch of `{name}` had no threads"
        hint = "launch it over at least one thread: an extent of its dim was 0 here"
        if name.startswith("array_"):
            hint = "the arrays that it goes through have no elements here: leave it out of the loss"
        return TapeError.of(message, "unrecorded", hint, place.span)
    if (by_host := made_by_host(recording, target)) is not None:
        return by_host
    if any(one.allocation is target.allocation for record in recording.records for one in record.read):
        name = called(target, "the array")
        hint = "start from a result: the loss, or grads= of an array that a launch has written"
        return refusal(TapeError, f"{name} is only read on this tape, and not computed", "unrecorded", hint)
    count = len(recording.records)
    recorded = f"none of its {counted(count, 'record')} did" if count else "it has recorded nothing"
    hint = "compute it inside `with tape:`, by launches or operators"
    if not count and recording.epoch:
        recorded += " since it was reset"
        hint = "compute it again inside `with tape:`; call tape.reset() after backward(), tape.zero() before"
    message = f"this tape did not see how {called(target, 'the array')} was computed: {recorded}"
    return refusal(TapeError, message, "unrecorded", hint)


def no_loss(value: Any) -> TapeError:
    """The error for a value that was passed as the loss but is none."""
    message, hint = f"the loss is an array of one number, not {described(value)}", _SUMMED
    if isinstance(value, int | float) or getattr(value, "shape", None) == ():
        message += ": a number of the host knows nothing of how it was computed"
        hint = "pass the array itself, such as loss for loss[0]; of several numbers " + _SUMMED
    elif isinstance(value, list | tuple | dict):
        hint = "pass one array, or backward(grads={y: ones_like(y)}) for several"
    return refusal(TapeError, message, "loss", hint)


def without_gradients(loss: array, recording: Recording) -> TapeError:
    """The error for a loss that does not require gradients: where the arrays with gradients end."""
    way = _way_to(loss, recording)
    by_host = next(filter(None, (made_by_host(recording, source, by_order=True) for source in way)), None)
    if by_host is not None:
        return by_host
    ends: dict[Allocation, tuple[array, Record]] = {}
    for record in recording.records:
        read, written = _touched(record)
        begin = next((ends[source.allocation] for source in read if source.allocation in ends), None)
        for target in written:
            if begin is None and any(source.requires_grad for source in read):
                ends.setdefault(target.allocation, (target, record))
            elif begin is not None:
                ends.setdefault(target.allocation, begin)
            if target.requires_grad:
                ends.pop(target.allocation, None)
    first: array = loss
    related: tuple[Related, ...] = ()
    name, hint = "it", _sources(loss, way)
    if loss.allocation in ends:
        first, record = ends[loss.allocation]
        name = "it" if first is loss else called_in(record, first, "that")
        what = f"{record.title} computes {called(first, 'it')} of arrays that do, here:"
        related = (Related(what, record.place.span),)
        hint = f"create {name} with requires_grad=True"
    if not is_differentiable(first.dtype):
        hint = f"{called(first, name)} holds {first.dtype}, which has no derivative: leave it floats"
    message = f"{called(loss, 'the loss')} does not require gradients"
    return TapeError(Diagnostic(message, caller().span, "loss", hint=hint, related=related))


def _way_to(loss: array, recording: Recording) -> list[array]:
    """The arrays of floats that a loss was computed of, itself first."""
    way = [loss]
    for record in reversed(recording.records):
        read, written = _touched(record)
        if not {target.allocation for target in written}.isdisjoint([one.allocation for one in way]):
            way += [source for source in read if is_differentiable(source.dtype)]
    return way


def _sources(loss: array, way: list[array]) -> str:
    """What to do about a loss that was computed of arrays none of which requires gradients."""
    memories = [source.allocation for source in way[1:]]
    names = [name for memory, name in names_of_memories(memories).items() if memory is not loss.allocation]
    if not names:
        return "create it with requires_grad=True"
    listed = ", ".join(f"`{name}`" for name in names)
    return f"create what you differentiate by, and all behind it, with requires_grad=True, of {listed}"


def _touched(record: Record) -> tuple[list[array], list[array]]:
    """The arrays that a record reads and writes, also those of ints: floats may end in them."""
    read, _, written = record.flow()
    if not isinstance(record, LaunchRecord):
        return [*read], [*written]
    plan, arguments = record.kernel.plan, record.arguments
    is_ints = [isinstance(a, array) and not is_differentiable(a.dtype) for a in arguments]
    reads, changes = ([arguments[i] for i in places if is_ints[i]] for places in (plan.read, plan.written))
    return [*read, *reads], [*written, *changes]
