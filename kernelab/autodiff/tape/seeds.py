"""Seeds of a backward pass: a loss, cotangents, or the gradients that arrays hold; and earlier passes.

A cotangent is a NumPy array, or one of kernelab where a device holds it and its primal: then it stays
there.

Gradients that nobody zeroes add up over passes, and so does a loss that launches only add to.  Both may be
meant, so each is one line of information.  The memory itself remembers its passes, by the version that they
left: whatever else is written there ends the sum.
"""

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from kernelab.autodiff.records.adjoint_buffers import Adjoints, about_to_change
from kernelab.autodiff.records.backward import BackwardPlan
from kernelab.autodiff.records.recording import Recording
from kernelab.autodiff.records.records import LaunchRecord, Record
from kernelab.autodiff.tape.seed_refusals import (
    field_among,
    made_by_host,
    no_loss,
    not_computed,
    unrecorded,
    without_gradients,
)
from kernelab.data_classes import dataclass
from kernelab.errors import KernelAttributeError, KernelKeyError, KernelTypeError, TapeError, a_thing, counted
from kernelab.guidance.missing_names import TAPES, Offers
from kernelab.lang.rounding import rounded, widened
from kernelab.lang.types import Scalar, is_differentiable, scalar_of
from kernelab.runtime.array.array import array
from kernelab.runtime.array.transfers import device_add, device_fill, move, put
from kernelab.runtime.context.conversion import HostArray, described, host_values, summed
from kernelab.runtime.context.recorder import Place, called, inform, name_in_caller, refusal, warn_at
from kernelab.runtime.host.struct_instances import Instance
from kernelab.runtime.host.structarray import by_leaves
from kernelab.runtime.memory.memory import UNKNOWN, Allocation, copy_bytes


class Opening(type):
    """The class of `Tape`, which answers to ``with kl.Tape as tape:``."""

    def __enter__(cls) -> NoReturn:
        raise KernelTypeError.of(
            "a tape is opened without its parentheses", "call", "write with kl.Tape() as tape:"
        )

    def __exit__(cls, *_: object) -> None:
        """Never called: Python asks for it before it enters."""


class Habits(Offers, metaclass=Opening):
    """The errors for attributes that a tape does not have."""

    __slots__ = ()
    OFFERED = (
        *("backward", "get_adjoint", "gradients", "launches", "measure", "norms", "overwrite", "profile"),
        *("record_func", "record_launch", "record_scope_begin", "record_scope_end", "reset", "saved_bytes"),
        *("scopes", "to_svg", "visualize", "zero"),
    )

    def __reduce__(self) -> NoReturn:
        message = "a tape cannot be copied or pickled: gradients go to the arrays that it has seen"
        hint = "open a tape where the launches run, or hand on a function: kl.func.grad(f) can be pickled"
        raise KernelTypeError.of(message, "pickle", hint)

    def __getattr__(self, name: str) -> Any:
        """Raises KernelAttributeError that says what to write instead."""
        message, hint = f"a tape has no {name}", TAPES.hint(name) or None
        raise KernelAttributeError.of_name(message, hint, name, self.OFFERED)


class Gradients(dict[Any, Any]):
    """Gradients by arrays and structs; raises KernelKeyError that says how to ask for one that is missing."""

    def __missing__(self, primal: Any) -> NoReturn:
        message, hint = _no_gradient(primal)
        raise refusal(KernelKeyError, message, "no-gradient", hint)


def _no_gradient(primal: Any) -> tuple[str, str]:
    name = called(primal, described(primal))
    is_struct_with_one = isinstance(primal, Instance) and primal.grad is not None
    if is_struct_with_one or (isinstance(primal, array) and primal.requires_grad):
        return f"{name} took no part in what this tape recorded", "launch it inside `with tape:`"
    if isinstance(primal, array):
        return f"{name} requires no gradient", "create it with requires_grad=True, before it is launched"
    if isinstance(primal, Instance):
        hint = "set its requires_grad = True before it is launched"
        return f"{name}, a struct, requires no gradient: its numbers were passed as plain values", hint
    message = f"{name} has no gradient: a tape differentiates with respect to arrays and structs"
    one = "kl.array([value], requires_grad=True)"
    return (
        message,
        f"for a number or vector launch an array of one in its place, {one}, and ask for that one's",
    )


# ----------------------------------------------------------------------------------------------------- seeds


Cotangent = HostArray | array
Seeds = Mapping[array, Cotangent]


def seeds_of(
    recording: Recording, loss: array | None, grads: Mapping[array, Any] | None
) -> dict[array, Cotangent]:
    """The cotangent of each array that a sweep starts from, in the shape of its elements.

    Without a loss and without `grads` these are the gradients that the final arrays hold, and others that no
    sweep has left.  Raises TapeError where a seed is none, or where the tape did not see how it was computed.
    """
    if loss is None and grads is None:
        return _held_gradients(recording)
    if isinstance(loss, array) and not recording.records and loss.allocation not in recording.idle:
        raise unrecorded(recording, loss)
    seeds: dict[array, Cotangent] = {}
    if loss is not None:
        seeds[_checked_loss(loss, recording)] = np.ones((), np.float64)
    if grads is not None:
        if not isinstance(grads, Mapping) or not grads:
            what = "nothing" if isinstance(grads, Mapping) else a_thing(grads)
            hint = "write backward(grads={y: ones_like(y)}), or backward(loss)"
            raise refusal(
                TapeError, f"grads= maps arrays to their cotangents, and here it is {what}", "seed", hint
            )
        for named, seed in grads.items():
            pairs = [(named, seed)] if named.__class__ is array else by_leaves({named: seed})
            for target, cotangent in pairs:
                if isinstance(cotangent, array) and cotangent.allocation.unwritten is not None:
                    name = field_among(target, grads) or called(target)
                    _require_written(cotangent, f"the cotangent of {name}")
                checked = _checked_cotangent(target, cotangent)
                seeds[target] = values_of(seeds[target]) + values_of(checked) if target in seeds else checked
    unwritten = [target for target in seeds if not _is_written(recording, target)]
    for target in unwritten:
        is_read = any(target.overlaps(source) for record in recording.records for source in record.read)
        if len(unwritten) < len(seeds) and target.requires_grad and is_read:
            continue  # an input of the tape: its cotangent adds to what comes from the others
        is_named = target is loss or target in (grads or {})
        # Of a struct, a field that no launch wrote may have the cotangent zero.
        if is_named or values_of(seeds[target]).any() or len(seeds) == 1:
            field = field_among(target, grads or ())
            raise not_computed(field) if field else unrecorded(recording, target)
        del seeds[target]
    return seeds


MOST_KEPT = 65_536
"""Up to how many numbers of the cotangents of a sweep are copied where nobody watches."""


MOST_SUMMED = 1 << 20
"""Up to how many bytes of a leaf's gradient have a checksum: optimisers of NumPy read all after each pass."""


def kept(seeds: Seeds, is_watched: bool) -> dict[array, HostArray] | None:
    """A copy of the cotangents, unless they are many, on a device, or of parts of one memory.

    One number for all elements stays one.
    """
    memories = {target.allocation for target in seeds}
    if len(memories) < len(seeds) or any(memory.space is not None for memory in memories):
        return None
    values = {target: values_of(cotangent) for target, cotangent in seeds.items()}
    if not is_watched and sum([each.size for each in values.values()]) > MOST_KEPT:
        return None
    return {target: each.copy() for target, each in values.items()}


def values_of(cotangent: Cotangent) -> HostArray:
    """The numbers of a cotangent, wherever they are."""
    return cotangent.seen() if isinstance(cotangent, array) else cotangent


def seeded(seeds: Seeds, adjoints: Adjoints, are_held: bool = False) -> Adjoints:
    """Set the adjoints of the seeds to their cotangents.

    Those that are held by gradients count once where they overlap.
    """
    for target, cotangent in seeds.items():
        is_first = target.allocation not in adjoints.memory
        # Final arrays may be overlapping views of one memory, whose gradients are to be taken once.
        if not is_first and not are_held:
            bar = adjoints.of(target)
            if not (isinstance(cotangent, array) and device_add(bar, cotangent)):
                values = bar.host()
                values[...] = values + values_of(cotangent)
                adjoints.memory[target.allocation].copy_of = ()
        elif is_first and isinstance(cotangent, array) and target.is_whole and cotangent.is_contiguous:
            memory = target.allocation
            if memory not in adjoints.settled or not _start_in_gradient(target, cotangent, seeds, adjoints):
                buffer = adjoints.start(memory)
                copy_bytes(buffer, 0, cotangent.allocation, cotangent.offset, buffer.nbytes)
        elif is_first and target.is_whole:
            _set(target.twin(adjoints.start(target.allocation)), cotangent)
        else:
            _set(adjoints.of(target), cotangent)
    return adjoints


def is_own_gradient(target: array, cotangent: Cotangent) -> bool:
    """Whether a cotangent is the gradient of its elements itself, and not another one that is equal."""
    gradient = target.allocation.adjoint
    if gradient is None:
        return False
    own = target.twin(gradient)
    if isinstance(cotangent, array):
        return cotangent.packed == own.packed
    seen = own.seen() if gradient.space is None else None
    return seen is not None and (seen.ctypes.data, seen.strides) == (cotangent.ctypes.data, cotangent.strides)


def clear_gradients(elements: Iterable[array]) -> None:
    """Set the gradients of some elements to zero."""
    for target in elements:
        gradient = target.twin(about_to_change(target))
        put(gradient, 0)
        gradient.allocation.publish()


def _start_in_gradient(target: array, cotangent: array, seeds: Seeds, adjoints: Adjoints) -> bool:
    """Take the gradient of a seed as its adjoint, if it has one that is not a cotangent itself.

    The cotangent is copied there, unless it already was and neither has changed.
    """
    gradient, given = target.allocation.adjoint, cotangent.allocation
    if gradient is None or any(getattr(one, "allocation", None) is gradient for one in seeds.values()):
        return False
    source = given.serial, given.version, cotangent.offset
    is_kept = gradient.is_private and given.is_private
    if not is_kept or gradient.copy_of != (*source, gradient.version):
        gradient = about_to_change(target)
        copy_bytes(gradient, 0, given, cotangent.offset, gradient.nbytes)
        gradient.copy_of = (*source, gradient.version)
    adjoints.share(target.allocation, gradient)
    return True


def _set(bar: array, cotangent: Cotangent) -> None:
    if isinstance(cotangent, array):
        move(bar, cotangent)
        return
    # One number for all elements is set on a device without their coming here.
    on_device = bar.allocation.space is not None and not cotangent.ndim
    if not (on_device and device_fill(bar, np.asarray(cotangent, scalar_of(bar.dtype).dtype).tobytes())):
        bar.blank()[...] = cotangent


def final_ones(recording: Recording) -> dict[array, Cotangent]:
    """Ones for all that a tape computes last; raises TapeError where that is nothing."""
    final = [target for target in final_arrays(recording.records) if target.requires_grad]
    if not final:
        hint = "launch kernels inside `with tape:`, into arrays with requires_grad=True"
        raise refusal(TapeError, "this tape has computed nothing that requires gradients", "loss", hint)
    return {target: np.ones((), np.float64) for target in final}


def final_arrays(records: Sequence[Record]) -> list[array]:
    """The arrays that no record reads any more after it has written them."""
    last_read: dict[Allocation, int] = {}
    written: dict[array, int] = {}
    for i, record in enumerate(records):
        last_read |= {source.allocation: i for source in record.read}
        written |= dict.fromkeys(record.written, i)
    return [target for target, i in written.items() if i >= last_read.get(target.allocation, -1)]


def _held_gradients(recording: Recording) -> dict[array, Cotangent]:
    """The gradients of final arrays, and those that no sweep has left in arrays that are read again."""
    final = final_arrays(recording.records)
    others = dict.fromkeys(target for record in recording.records for target in record.written)
    for target in final:
        del others[target]
    filled = {memory for memory in {target.allocation for target in others} if _is_filled(memory.adjoint)}
    held = [target for target in final if target.allocation.adjoint is not None]
    held += [target for target in others if target.allocation in filled]
    if not held:
        message = "backward() has nothing to start from"
        hint = "pass the loss, or cotangents (grads={y: ones_like(y)}), or fill the .grad of the results"
        if not recording.records:
            message += f": the tape has recorded nothing{' since it was reset' if recording.epoch else ''}"
            hint = "compute inside `with tape:`, then call tape.backward(loss)"
        raise refusal(TapeError, message, "loss", hint)
    _warn_of_other_tapes(recording, [target for target in others if target.allocation not in filled])
    gradients = [(target, gradient) for target in held if (gradient := target.grad) is not None]
    for target, gradient in gradients:
        _require_written(gradient, f"the gradient of {called(target)}")
    return dict(gradients)


def _warn_of_other_tapes(recording: Recording, targets: Sequence[array]) -> None:
    """Warn of gradients on the way that a pass over another tape has left, of which they are leaves."""
    left = {target.allocation: target for target in targets if _holds_passes(target.allocation.adjoint)}
    for target in _written_first(left, recording.records) if left else ():
        message = f"the gradient of {called(target)} is what a pass over another tape has left: "
        message += "backward() does not start from it"
        y = _in_code(target)
        hint = f"write backward(grads={{{y}: {y}.grad}}), or clear it: {y}.grad.zero_()"
        warn_at(message, "seed", hint)


def _holds_passes(gradient: Allocation | None) -> bool:
    return gradient is not None and passes_in(gradient) is not None and _has_numbers(gradient)


def _written_first(arrays: Mapping[Allocation, array], records: Sequence[Record]) -> list[array]:
    """Those of some arrays whose memory the records write before they read it."""
    read, found = set[Allocation](), dict[Allocation, array]()
    for record in records:
        read.update(source.allocation for source in record.read)
        written = (target.allocation for target in record.written)
        found |= {memory: arrays[memory] for memory in written if memory in arrays and memory not in read}
    return [*found.values()]


def _has_numbers(memory: Allocation) -> bool:
    """Whether any byte of some memory is not zero."""
    return bool(np.frombuffer(memory.seen(), np.uint8).any())


def _in_code(target: array) -> str:
    """The name of an array as code in a hint has it: `y` where it has none."""
    name = called(target)
    return name.strip("`") if name.startswith("`") else "y"


def _require_written(cotangent: array, what: str) -> None:
    from kernelab.runtime.launch.checked import require_written

    require_written(cotangent, what)


def _is_filled(gradient: Allocation | None) -> bool:
    """Whether there are numbers in some gradients that are not those of a sweep."""
    return gradient is not None and not gradient.is_as_left and _has_numbers(gradient)


def _is_written(recording: Recording, target: array) -> bool:
    return any(
        target is written or (target.allocation is written.allocation and target.overlaps(written))
        for record in reversed(recording.records)
        for written in record.flow()[2]
    )


def _checked_loss(loss: Any, recording: Recording) -> array:
    if not isinstance(loss, array):
        raise no_loss(loss)
    if loss.size != 1 or not isinstance(loss.dtype, Scalar) or not is_differentiable(loss.dtype):
        name = called(loss, "the loss")
        message = f"{name} is not a single float: it has {counted(loss.size, 'element')} of {loss.dtype}"
        y = _in_code(loss)
        hint = (
            f"add its elements up on the tape: loss = {summed(y, loss.dtype)}, "
            f"or pass cotangents: grads={{{y}: kl.ones_like({y})}}"
        )
        raise refusal(TapeError, message, "loss", hint)
    if not loss.requires_grad:
        raise made_by_host(recording, loss) or without_gradients(loss, recording)
    return loss


def _checked_cotangent(target: Any, cotangent: Any) -> Cotangent:
    if target.__class__ is array is cotangent.__class__ and target.type is cotangent.type:
        are_on_host = target.allocation.space is None, cotangent.allocation.space is None
        fits = target.shape == cotangent.shape and are_on_host[0] == are_on_host[1]
        if fits and target.allocation.requires_grad:
            return cotangent  # as it is: it need not come to the host
    if not isinstance(target, array) or not is_differentiable(target.dtype):
        name = called(target, a_thing(target))
        hint = "write backward(grads={y: kl.ones_like(y)}), where y is the array itself"
        raise refusal(
            TapeError, f"grads= maps arrays of floats to their cotangents, and {name} is none", "seed", hint
        )
    if not isinstance(cotangent, array):
        values = _host_cotangent(target, cotangent)
    elif cotangent.outline().dtype.names:
        raise _no_cotangent(target, f"an array of {cotangent.dtype}")
    else:
        values = cotangent.seen()
    if values.shape != target.outline().shape:
        name = called(target, "the array")
        message = (
            f"the cotangent of {name} has shape {values.shape}, where {target.outline().shape} is needed"
        )
        raise refusal(TapeError, message, "seed", "give one for each element, such as kl.ones_like(y)")
    wanted = target.outline().dtype
    return values if values.dtype == wanted else rounded(values, wanted)


def _no_cotangent(target: array, what: str) -> TapeError:
    message = f"the cotangent of {called(target, 'the array')} is {what}: it has to be real numbers"
    return refusal(
        TapeError, message, "seed", "pass an array, NumPy's or kernelab's, in the shape of the primal"
    )


def _host_cotangent(target: array, cotangent: Any) -> HostArray:
    try:
        kind = widened(np.asarray(cotangent)).dtype.kind
    except (TypeError, ValueError):  # what is not an array, or claims to be one and is none
        kind = "O"
    if kind not in "fiub":
        raise _no_cotangent(target, a_thing(cotangent) + (" of complex numbers" if kind == "c" else ""))
    values = host_values(cotangent, target.dtype)[0]
    return values.reshape(target.outline().shape) if values.ndim == 0 and target.size == 1 else values


# --------------------------------------------------------------------------------------------- earlier passes


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
    if memory.was_exposed and not _has_numbers(memory):
        return None
    return passes


def earlier_passes(plan: BackwardPlan) -> dict[array, Passes | None]:
    """The inputs that adjoints reach, one of each memory, with the earlier passes that its gradients hold."""
    passes: dict[array, Passes | None] = {}
    for memory, elements in {one.source.allocation: one.source for _, one in plan.inputs}.items():
        if memory in plan.on_the_way:
            passes[elements] = None if memory.adjoint is None else passes_in(memory.adjoint)
    return passes


def _listed(arrays: Sequence[array]) -> str:
    """The names of the first few arrays, as far as they have any, and how many others there are."""
    names = [f"`{name}`" for name in map(name_in_caller, arrays) if name][:3]
    others = len(arrays) - len(names)
    if not names:
        return "an array" if others == 1 else f"{others} arrays"
    return ", ".join(names) + (f" and {others} more" if others else "")


def count_pass(plan: BackwardPlan, earlier: Mapping[array, Passes | None], here: Place) -> None:
    """Note with the gradients that a pass has left them, and with those of inputs that it has been added.

    Informs of gradients that hold earlier passes, too.
    """
    leaves: list[tuple[weakref.ref[Allocation], int]] = []
    inputs = {elements.allocation for elements in earlier}
    for target in plan.published():
        gradient = target.allocation.adjoint
        if gradient is not None:
            gradient.left, gradient.leaves = gradient.version, leaves
            is_unsummed = gradient.nbytes > MOST_SUMMED and target.allocation in inputs
            gradient.left_sum = UNKNOWN if is_unsummed else None
            if gradient.exposure is not None or gradient.borrowed:
                gradient.sum_left()
    for elements, passes in earlier.items():
        memory = elements.allocation
        if (gradient := memory.adjoint) is not None:
            leaves.append((weakref.ref(memory), memory.version))
            count, since = (1, here) if passes is None else (passes.count + 1, passes.since)
            gradient.passes = Passes(gradient.version, count, since)
    if summed := [elements for elements, passes in earlier.items() if passes is not None]:
        hint = "to begin anew, call tape.zero() or x.grad.zero_() before it"
        inform(
            lambda: f"backward adds to the gradients of an earlier pass, in {_listed(summed)}", hint, "added"
        )


def warn_of_growing_loss(plan: BackwardPlan, loss: array, here: Place) -> None:
    """Inform of a loss that still holds that of the pass before, since launches have only added to it."""
    memory = loss.allocation
    before: Passes | None = memory.passes or None
    memory.passes = Passes(memory.version, 1, here)
    first = plan.records[plan.first[memory]] if memory in plan.first else None
    if not isinstance(first, LaunchRecord) or before is None or before.since != here:
        return
    if before.version + 1 in first.versions:
        names = [name for name, one in first.named.items() if getattr(one, "allocation", None) is memory]
        changes = first.kernel.effects
        other = {parameter.hint for parameter in changes.reads | changes.writes}
        version = first.versions_written.get(names[0]) if len(names) == 1 and names[0] not in other else None
        if version == before.version + 1:
            adds = f"{first.title} at {first.place} adds to it"
            inform(
                lambda: f"{called(loss)} still holds its value of the pass before, and grows: {adds}",
                "its gradient is right; for the value alone, zero_() it before each pass",
                "grows",
            )
