"""Keeping what arrays hold for code that is no kernel: functions that run again, or in the backward pass.

Nothing is known of what such code reads, so whole arrays are kept: all of them where a tape saves what is
overwritten, and else those that the user has marked as read.
"""

import warnings
from typing import Any

import numpy as np

from kernelab.autodiff.overwrites.hazards import Guard
from kernelab.errors import Diagnostic, KernelWarning, Related, TapeError
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import Place, called, caller
from kernelab.runtime.memory.interop import checksum


class Keep:
    """What an array holds now; copied as soon as it is about to change."""

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
