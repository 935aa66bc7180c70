"""Hazards: bytes that a recorded adjoint needs, and that someone is about to overwrite.

A `Watch` guards the elements of one array in the version that a recorded launch read.  The memory tells it
before they change; what happens then is the tape's policy: their bytes are saved for the adjoint, or there is
a warning or an error at the overwriting line.  A change through a NumPy view goes unseen, so while there is
such a view a fingerprint is kept and compared.
"""

import warnings
import zlib
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kernelab.errors import Diagnostic, KernelWarning, Related, TapeError
from kernelab.runtime.memory import allocate
from kernelab.runtime.recorder import Place, caller, name_in_caller
from kernelab.runtime.strided import array

Policy = Literal["save", "warn", "error"]
POLICIES: tuple[Policy, ...] = ("save", "warn", "error")

DEFAULT_POLICY: ContextVar[Policy] = ContextVar("kernelab overwrite policy", default="save")
"""The policy of tapes that are not given one."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Which parameter of which launch needs the elements, and where the launch stands."""

    kernel: str
    parameter: str
    place: Place

    def __str__(self) -> str:
        return f"the adjoint of `{self.kernel}` (launched at {self.place})"


@dataclass(slots=True)
class Guard:
    """The policy of a tape, and how many bytes it has saved."""

    policy: Policy
    saved_bytes: int = 0


class Watch:
    """Keeps the elements of an array, as they are now, for adjoints; `spent` once they are overwritten."""

    __slots__ = ("__weakref__", "_changed", "_fingerprint", "elements", "guard", "reader", "saved", "spent")

    def __init__(self, guard: Guard, elements: array, reader: Reader) -> None:
        self.guard = guard
        self.elements = elements
        self.reader = reader
        self.saved: array | None = None
        self.spent = False
        self._changed = False
        self._fingerprint = fingerprint(elements) if elements.allocation.is_exposed else None
        elements.allocation.watch(self, elements.extent)

    def exposed(self) -> None:
        """From here on the elements may change unseen."""
        if self._fingerprint is None:
            self._fingerprint = fingerprint(self.elements)

    def before_write(self, target: array) -> None:
        """Save the elements, or complain, if `target` overwrites any of them."""
        if target is not self.elements and not target.overlaps(self.elements):
            return
        if self.guard.policy == "error":
            raise TapeError(self._overwritten())
        self._note_change()
        self.spent = True
        self.elements.allocation.unwatch(self, self.elements.extent)
        self._fingerprint = None
        if self.guard.policy == "warn":
            self._warn()
            return
        self.saved = snapshot(self.elements)
        self.guard.saved_bytes += self.saved.allocation.nbytes

    def check(self) -> None:
        """Raise TapeError if the elements changed unseen."""
        self._note_change()
        if self._changed:
            raise TapeError(self._changed_unseen())

    def _note_change(self) -> None:
        if self._fingerprint is not None and self._fingerprint != fingerprint(self.elements):
            self._changed = True

    def _warn(self) -> None:
        place = caller()
        message = self._overwritten().render()
        warnings.warn_explicit(message, KernelWarning, place.filename, place.line)

    def _name(self) -> str:
        name = name_in_caller(self.elements)
        return f"`{name}`" if name else f"the argument `{self.reader.parameter}` of `{self.reader.kernel}`"

    def _overwritten(self) -> Diagnostic:
        return Diagnostic(
            f"{self._name()} is overwritten here, but {self.reader} needs its old values",
            caller().span,
            "overwrite",
            hint='write into another array, or use Tape(overwrite="save"), which keeps the old values',
            related=(Related("it was read by this launch:", self.reader.place.span),),
        )

    def _changed_unseen(self) -> Diagnostic:
        return Diagnostic(
            f"{self._name()} was changed through a NumPy view, but {self.reader} needs its old values",
            self.reader.place.span,
            "host-write",
            hint="change it after backward(), or with assign() or fill_(), which are noticed",
        )


def fingerprint(elements: array) -> int:
    """A checksum of the elements."""
    values = elements.host()
    return zlib.crc32(np.ascontiguousarray(values).data.cast("B")) if values.size else 0


def snapshot(elements: array) -> array:
    """A copy of the elements in memory of its own, with the same strides."""
    low, high = elements.extent
    saved = allocate(high - low, cleared=False)
    copied = array.over(saved, elements.ptr - low, elements.shape, elements.strides, elements.dtype)
    copied.host()[...] = elements.host()
    return copied
