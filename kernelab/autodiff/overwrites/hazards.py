"""Hazards: bytes that a recorded adjoint needs and that are about to be overwritten.

A `Watch` guards the elements of one array that a recorded launch read, in the version that it read.  The
memory tells it before they change; what happens then is the tape's policy: what is about to be lost is saved
for the adjoint, or there is a warning or an error at the overwriting line.  A change through a NumPy view
goes unseen, so while there is such a view a fingerprint is kept and compared.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from kernelab.autodiff.overwrites.keeping import Kept
from kernelab.errors import Diagnostic, KernelMemoryError, KernelWarning, Related, TapeError
from kernelab.lang.types import bytes_of
from kernelab.passes.access.access_regions import Box, Region, covers
from kernelab.runtime.arguments.arguments import Reference
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import Place, called, caller, name_in_caller, name_of_memory
from kernelab.runtime.kernel.memory_budget import room_to_keep
from kernelab.runtime.launch.launch import Call
from kernelab.runtime.launch.touched import box_of, overwrites, part
from kernelab.runtime.memory.interop import checksum
from kernelab.settings import Policy

POLICIES: tuple[Policy, ...] = ("save", "warn", "error")


@dataclass(slots=True, eq=False)
class Reader:
    """A launch that needs elements for its adjoint: its place, and the arrays that the adjoint reaches.

    `reached` are positions of arguments.  Nothing changes it; like calls it is not declared frozen.
    """

    call: Call
    region: Region
    reached: tuple[int, ...]
    place: Place

    def __str__(self) -> str:
        return f"the adjoint of `{self.call.kernel.name}` (launched at {self.place})"

    def box(self) -> Box | None:
        """The indices of the elements, None if there are none."""
        return box_of(self.region, self.call.grid.extents, self.call.arguments)

    def loses(self, target: array, elements: array) -> bool:
        """Whether a write to `target` changes any of the elements, which may be less than the box."""
        return overwrites(target, elements, self.region, self.call.grid.extents, self.call.arguments)

    @property
    def argument(self) -> str:
        """The name of the argument in messages, if the array has none of its own."""
        kernel = self.call.kernel
        return f"the argument `{kernel.plan.parameters[self.region.position].name}` of `{kernel.name}`"

    def affected(self) -> Sequence[array]:
        """The arrays whose gradients depend on the elements."""
        given = [self.call.arguments[i] for i in self.reached]
        return [argument.array if isinstance(argument, Reference) else argument for argument in given]


Outcome = Literal["saved", "tainted", "refused"]


@dataclass(slots=True, eq=False)
class Overwrite:
    """Elements that an adjoint needs, the line that overwrote them, and what the policy made of it.

    Of ``"saved"`` ones `nbytes` were kept; where they were not, gradients are ``"tainted"``, or the write was
    ``"refused"``.  Nothing changes it; like calls it is not declared frozen.
    """

    elements: array
    reader: Reader
    place: Place
    outcome: Outcome
    nbytes: int


@dataclass(slots=True)
class Guard:
    """The policy of a tape, how many bytes it has saved, and what was overwritten while they mattered.

    Once a tape is `swept`, few will sweep it again: what is overwritten then is not kept, and an error comes
    with the next sweep only, if it needs the old values.
    """

    policy: Policy
    saved_bytes: int = 0
    swept: bool = False
    overwrites: list[Overwrite] = field(default_factory=list)

    def clear(self) -> None:
        """Forget what was saved and overwritten."""
        self.saved_bytes = 0
        self.swept = False
        self.overwrites.clear()


class Watch:
    """Keeps the elements of an array, as they are now, for adjoints; `spent` once any is overwritten.

    It watches the whole array until something there changes; only then it finds out which elements matter.
    """

    __slots__ = (
        "__weakref__",
        "_changed",
        "_extent",
        "_fingerprint",
        "_kept",
        "_lost",
        "_part",
        "elements",
        "guard",
        "reader",
        "spent",
    )  # fmt: skip

    def __init__(self, guard: Guard, elements: array, reader: Reader) -> None:
        self.guard = guard
        self.elements = elements
        self.reader = reader
        self.spent = False
        self._kept: Kept | None = None
        self._lost: Place | None = None
        self._part: array | None = None
        self._changed = False
        self._fingerprint: int | None = None
        self._extent: tuple[int, int] | None = elements.extent
        elements.allocation.watch(self, self._extent)
        if elements.allocation.is_exposed:
            self.exposed()

    @property
    def saved(self) -> array | None:
        """An array to read in place of the elements, if any of them are lost."""
        return None if self._kept is None else self._kept.whole()

    def exposed(self) -> None:
        """From here on the elements may change unseen."""
        needed = self._needed()
        if needed is not None and self._fingerprint is None:
            self._fingerprint = self._checksum()

    def before_write(self, target: array) -> None:
        """Save the elements, or complain, if `target` overwrites any of them."""
        if self._extent is None:
            return
        needed = self._needed()
        if needed is None or (target is not needed and not target.overlaps(needed)):
            return
        if self._fingerprint is None and not self.reader.loses(target, self.elements):
            return
        if self.guard.policy == "error" and not self.guard.swept:
            self._note_overwrite("refused")
            raise TapeError(self._overwritten())
        self._note_change()
        self.spent = True
        if self.guard.swept:
            self._lost = caller()
            self._release()
            return
        if self.guard.policy == "warn":
            self._note_overwrite("tainted")
            self._release()
            self._warn()
            return
        self._save(target, needed)

    def _save(self, target: array, needed: array) -> None:
        """Keep what `target` is about to overwrite; raises KernelMemoryError beyond what a tape may keep."""
        room = room_to_keep(self.guard.saved_bytes)
        if room is not None and min(target.size, needed.size) * bytes_of(needed.dtype) > room:
            raise KernelMemoryError(self._too_much())
        if self._kept is None:
            box = self.reader.box()
            assert box is not None
            self._kept = Kept(self.elements, box, needed)
        saved = self._kept.keep(target)
        self.guard.saved_bytes += saved
        self._note_overwrite("saved", saved)
        if self._kept.is_complete:
            self._release()
        elif self._fingerprint is not None:
            self._fingerprint = self._kept.checksum()

    def check(self) -> None:
        """Raise TapeError if the elements changed unseen."""
        self._note_change()
        if self._changed:
            raise TapeError(self._changed_unseen())
        if self._lost is None:
            return
        if self.guard.policy != "warn":
            raise TapeError(self._overwritten_since(self._lost))
        warnings.warn_explicit(
            self._overwritten_since(self._lost).render(), KernelWarning, self._lost.filename, self._lost.line
        )

    def _needed(self) -> array | None:
        """The elements that matter; None if none does, or all are taken care of."""
        if self._part is None and self._extent is not None:
            box = self.reader.box()
            if box is None:
                self._release()
                return None
            if covers(box, self.elements.shape):
                self._part = self.elements
            else:
                self._part = part(self.elements, box)
                self.elements.allocation.unwatch(self, self._extent)
                self._extent = self._part.extent
                self.elements.allocation.watch(self, self._extent)
        return self._part

    def _release(self) -> None:
        self._fingerprint = None
        assert self._extent is not None
        self.elements.allocation.unwatch(self, self._extent)
        self._extent = self._part = None

    def _note_overwrite(self, outcome: Outcome, nbytes: int = 0) -> None:
        self.guard.overwrites.append(Overwrite(self.elements, self.reader, caller(), outcome, nbytes))

    def _note_change(self) -> None:
        if self._fingerprint is not None and self._fingerprint != self._checksum():
            self._changed = True

    def _checksum(self) -> int:
        assert self._part is not None
        return checksum(self._part.host()) if self._kept is None else self._kept.checksum()

    def _warn(self) -> None:
        place = caller()
        message = self._overwritten().render()
        warnings.warn_explicit(message, KernelWarning, place.filename, place.line)

    def _name(self) -> str:
        name = name_in_caller(self.elements)
        if name:
            return f"`{name}`"
        whole = name_of_memory(self.elements.allocation)
        within = f", a part of `{whole}`," if whole else ""
        return f"{self.reader.argument}{within}"

    def _overwritten(self) -> Diagnostic:
        return Diagnostic(
            f"{self._name()} is overwritten here, but {self.reader} needs its old values",
            caller().span,
            "overwrite",
            note=self._consequence(),
            hint='write into another array, or use Tape(overwrite="save"), which keeps the old values',
            related=(Related("it was read by this launch:", self.reader.place.span),),
        )

    def _too_much(self) -> Diagnostic:
        return Diagnostic(
            f"{self._name()} is overwritten here, and there is no room to keep its old values: "
            f"the tape keeps {self.guard.saved_bytes:,} bytes already",
            caller().span,
            "out-of-memory",
            hint="run stretches of the loop in kl.checkpoint(...), which keeps what enters them "
            "and runs them again, or allow more: kl.config.kept_memory = ...",
            related=(Related("it was read by this launch:", self.reader.place.span),),
        )

    def _overwritten_since(self, place: Place) -> Diagnostic:
        return Diagnostic(
            f"{self._name()} was overwritten here after backward() had run: for another one {self.reader} "
            "needs its old values",
            place.span,
            "overwrite",
            note=self._consequence(),
            hint="call backward() as often as you need before you overwrite it, or record again",
            related=(Related("it was read by this launch:", self.reader.place.span),),
        )

    def _changed_unseen(self) -> Diagnostic:
        return Diagnostic(
            f"{self._name()} was changed through a NumPy view, but {self.reader} needs its old values",
            self.reader.place.span,
            "host-write",
            note=self._consequence(),
            hint="change it after backward(), or with assign() or fill_(), which are noticed",
        )

    def _consequence(self) -> str:
        """The gradients that are wrong without the old values, in words."""
        affected = self.reader.affected()
        names = dict.fromkeys(name_in_caller(one) or name_of_memory(one.allocation) for one in affected)
        known = [f"`{name}`" for name in names if name]
        if not known:
            return "the gradients of what the launch read would be wrong"
        plural = "s" if len(known) > 1 else ""
        return f"the gradient{plural} of {' and '.join(known)} would be wrong"


# ----------------------------------------------------------------------------------------------------- keeps


class Keep:
    """The present value of an array, copied as soon as it is about to change."""

    __slots__ = ("__weakref__", "_checksum", "_extent", "_values", "elements")

    def __init__(self, elements: array) -> None:
        self.elements = elements
        self._values: bytes | None = None
        self._extent = elements.extent
        self._checksum = checksum(elements.host()) if elements.allocation.is_exposed else None
        elements.allocation.watch(self, self._extent)

    @property
    def nbytes(self) -> int:
        return 0 if self._values is None else len(self._values)

    def before_write(self, target: array) -> None:
        """Copy the elements, if `target` overwrites any of them."""
        if self._values is None and (target is self.elements or target.overlaps(self.elements)):
            self._values = self.elements.host().tobytes()
            self.elements.allocation.unwatch(self, self._extent)

    def exposed(self) -> None:
        """From here on the elements may change unseen."""
        if self._checksum is None:
            self._checksum = checksum(self.elements.host())

    def restore(self) -> bool:
        """Put the elements back as they were; false if they have changed unseen."""
        if self._values is None:
            return self._checksum is None or self._checksum == checksum(self.elements.host())
        values = self.elements.host()
        values[...] = _from_bytes(self._values, values)
        return self._checksum is None or self._checksum == checksum(self._values)


def _from_bytes(kept: bytes, like: Any) -> Any:
    return np.frombuffer(kept, like.dtype).reshape(like.shape)


class Marked:
    """An array that other code has read: on a tape that does not save, it complains of a later write."""

    __slots__ = ("__weakref__", "_guard", "_place", "elements")

    def __init__(self, guard: Guard, elements: array, place: Place) -> None:
        self.elements = elements
        self._guard = guard
        self._place = place
        elements.allocation.watch(self, elements.extent)

    def before_write(self, target: array) -> None:
        """Warn, or raise TapeError, if `target` overwrites any of the elements."""
        if target is not self.elements and not target.overlaps(self.elements):
            return
        if self._guard.policy == "error":
            raise TapeError(self._overwritten())
        self.elements.allocation.unwatch(self, self.elements.extent)
        place = caller()
        warnings.warn_explicit(self._overwritten().render(), KernelWarning, place.filename, place.line)

    def exposed(self) -> None:
        """A view does no harm by itself."""

    def _overwritten(self) -> Diagnostic:
        return Diagnostic(
            f"{called(self.elements)} is overwritten here, but a function recorded on the tape "
            "has read it and may need its old values",
            caller().span,
            "overwrite",
            hint='write into another array, or use Tape(overwrite="save"), which keeps the old values',
            related=(Related("it was marked as read here:", self._place.span),),
        )
