"""Origins: what computed or copied memory outside of tapes, for the message about the gradient that it ends.

A launch outside of every tape, or in a thread where none is open, may be meant to be differentiated through,
and so may a copy.  It leaves its origin with the memory that it writes, where both sides require gradients; a
tape that later takes that memory for a leaf can say what is missing.  ``record_tape=False`` says that nothing
is missing.  Must not know tapes.
"""

import weakref
from collections.abc import Iterable, Sequence
from threading import get_ident
from typing import Any, NamedTuple

from kernelab.data_classes import dataclass
from kernelab.errors import Diagnostic, GradientError, Related
from kernelab.lang.structs import leaves
from kernelab.lang.types import is_differentiable
from kernelab.runtime.array.layout import Strided, share_bytes
from kernelab.runtime.context.recorder import Place, Recorder, caller, name_of_memory, refusal
from kernelab.runtime.memory.memory import Allocation, Note


class Unrecorded(NamedTuple):
    """What computed or copied: how messages call it, have it recorded, and end the gradient there."""

    title: str
    record: str
    end: str
    is_copy: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """What computed or copied outside of a tape, its line and thread, and the memory that it read."""

    made_by: Unrecorded
    place: Place
    thread: int
    sources: "Sequence[weakref.ref[Allocation]]"

    @property
    def alive(self) -> list[Allocation]:
        """The memory that it and what ran before it read, as far as no gradient has reached it."""
        return _computed_from([source() for source in self.sources])

    def explain(self, name: str, reader: Place, entered_by: int) -> Diagnostic:
        """The diagnostic for a tape that reads `name`, which this computed: no gradient passes it."""
        elsewhere = self.thread != entered_by
        where = "in another thread" if elsewhere else "outside of the tape"
        title, record, end, is_copy = self.made_by
        wrote = "filled" if is_copy else "computed"
        hint = f"{record} inside `with tape:`" + (", in the thread of the `with`" if elsewhere else "")
        return Diagnostic(
            f"no gradient flows through {title}, which {wrote} {name} {where}",
            self.place.span,
            "unrecorded-launch",
            hint=f"{hint}; if the gradient is meant to end there, {end}",
            related=(Related("the tape reads its result here:", reader.span),),
        )


def unrecorded_launch(kernel: str) -> Unrecorded:
    """What messages say of unrecorded launches of a kernel."""
    return Unrecorded(f"the launch of `{kernel}`", "launch it", "pass record_tape=False to it")


def note_origin(
    kernel: str, arguments: Sequence[Any], used: Sequence[Sequence[int]], written: Sequence[Allocation]
) -> None:
    """Leave with what an unrecorded launch has just written, memory with gradients, that it came from others.

    `used` are the positions of the arrays that it reads, and of numbers for which arrays may stand.
    """
    read, numbers = used
    elements = [arguments[i] for i in read]
    elements += [one for i in numbers if (one := getattr(arguments[i], "array", None)) is not None]
    if refs := _come_from(elements, written):
        place = caller(3)  # behind this, `run`, and what has called it
        _leave(unrecorded_launch(kernel), place, refs, written)


def note_copied(how: str, dest: Strided, *sources: Strided) -> None:
    """The same of elements that the host has just copied, or moved within their memory, by `how`.

    Where those were computed unrecorded, so are the copies, but for a clone: that may be meant.
    """
    written = (dest.allocation,)
    if dest.allocation.requires_grad and (refs := _come_from(sources, written)):
        notes = (_origin_before(one.allocation, written) for one in sources if how != "clone")
        copied = Unrecorded(f"`{how}`", "copy", "copy clone(x, requires_grad=False)", is_copy=True)
        made_by, place = next((note[1:3] for note in notes if note is not None), (copied, None))
        _leave(made_by, place or caller(), refs, written)


def note_called(title: str, arguments: Iterable[Strided], results: Iterable[Strided]) -> None:
    """The same of what a function of Python has just computed unrecorded, if it has a derivative."""
    written = [one.allocation for one in results if one.allocation.requires_grad]
    if refs := _come_from(arguments, written):
        called = Unrecorded(title, "call it", "give it clone(x, requires_grad=False)")
        _leave(called, caller(), refs, written)


def _leave(
    made_by: Unrecorded, place: Place, refs: "list[weakref.ref[Allocation]]", written: Iterable[Allocation]
) -> None:
    thread = get_ident()
    for memory in written:
        memory.origin = (memory.version, made_by, place, thread, refs)


def _come_from(elements: Iterable[Strided], written: Sequence[Allocation]) -> "list[weakref.ref[Allocation]]":
    memories: list[Allocation | None] = [one.allocation for one in elements if one.allocation.requires_grad]
    return [weakref.ref(one) for one in _computed_from(memories, written) if one not in written]


def _origin_before(memory: Allocation, written: Sequence[Allocation]) -> Note | None:
    """What was left with some memory, unless it has changed since by more than was `written` just now."""
    note = memory.origin
    return note if note is not None and note[0] == memory.version - written.count(memory) else None


def _computed_from(
    memories: "list[Allocation | None]", written: Sequence[Allocation] = ()
) -> list[Allocation]:
    """These, as far as they are alive, and what they come from, without those that a gradient has reached.

    What has been `written` just now counts as it was before.
    """
    found: dict[Allocation, None] = {}
    for memory in memories:  # which grow
        if memory is None or memory in found:
            continue
        found[memory] = None
        if (note := _origin_before(memory, written)) is not None:
            memories += [earlier() for earlier in note[4]]
    return [memory for memory in found if memory.adjoint is None]


def origin_of(memory: Allocation) -> Origin | None:
    """What computed the memory unrecorded, if anything."""
    return None if memory.origin is None else Origin(*memory.origin[1:])


# -------------------------------------------------------------------------- floats written as integers

_AS_INTEGERS: "weakref.WeakKeyDictionary[Allocation, set[tuple[Any, ...]]]" = weakref.WeakKeyDictionary()
"""Where arrays of integers stand over bytes that may be those of floats."""

INTEGERS_OVER_FLOATS: list[bool] = []
"""Not empty once there was such an array: every launch on a tape asks."""


def note_as_integers(elements: Strided) -> None:
    """Note an array over bytes of another one, unless it has floats."""
    if not has_floats(elements.dtype):
        INTEGERS_OVER_FLOATS[:] = [True]
        place = elements.offset, elements.shape, elements.strides, elements.dtype
        _AS_INTEGERS.setdefault(elements.allocation, set()).add(place)


def has_floats(dtype: Any) -> bool:
    """Whether elements of a type are floats, or structs with some."""
    return any(is_differentiable(leaf.type) for leaf in leaves(dtype, ""))


def stands_on_floats(elements: Strided) -> bool:
    """Whether an array of integers stands over bytes that may be those of floats."""
    places = _AS_INTEGERS.get(elements.allocation)
    if places is None or has_floats(elements.dtype):
        return False
    return any(share_bytes(elements, elements.over(elements.allocation, *place)) for place in places)


def refuse_written_as_integers(
    recorder: Recorder, targets: Iterable[Strided], source: Strided | None = None
) -> None:
    """Raise GradientError where floats that derivatives follow are written through an array of integers.

    Those of a `source` go on where its bytes are copied as integers.
    """
    for target in targets if INTEGERS_OVER_FLOATS else ():
        followed = [target.allocation]
        if source is not None and source.allocation in _AS_INTEGERS:
            followed.append(source.allocation)
        followed = [*filter(recorder.follows_floats, followed)]
        if followed and stands_on_floats(target):
            name = name_of_memory(followed[0])
            floats = f"`{name}`" if name else "floats"
            message = f"the bytes of {floats} are written as {target.dtype} here: derivatives do not see that"
            hint = "write floats, or change a copy that has no gradients: kl.clone(y, requires_grad=False)"
            raise recorder.refusing(refusal(GradientError, message, "unseen-write", hint))
