"""Which boxes of its arrays a record reads and writes, and what of an array has been written so far."""

from typing import Literal

from kernelab.autodiff.records.coverage import Coverage
from kernelab.autodiff.records.records import LaunchRecord, Record
from kernelab.passes.access.access_regions import Box, covers
from kernelab.runtime.array.array import array
from kernelab.runtime.launch.touched import box_of, part

WHOLE: Box = ()
"""Stands for all elements of an array, where no box is known or it is all of them."""


def box_in(record: Record, how: Literal["read", "written"], k: int) -> Box | None:
    """The box of the k-th array that a record reads, or has written; None if it is empty."""
    if not isinstance(record, LaunchRecord):
        return WHOLE
    call, outline, is_read = record.call, record.outline, how == "read"
    i = (outline.read if is_read else outline.written)[k]
    found = (call.kernel.regions_read_in_text if is_read else call.kernel.regions_changed).get(i)
    argument = call.arguments[i]
    if found is None or not isinstance(argument, array):
        return WHOLE
    box = box_of(found, call.grid.extents, call.arguments)
    return WHOLE if box is not None and covers(box, argument.shape) else box


class Written:
    """What of an array has been written; found out when somebody asks."""

    __slots__ = ("_boxes", "_records", "_whole", "target")

    def __init__(self, target: array) -> None:
        self.target = target
        self._records: list[tuple[Record, int]] = []
        self._boxes = Coverage()
        self._whole = False

    def add(self, record: Record, k: int) -> None:
        """Count what a record wrote of its k-th array."""
        if not self._whole:
            self._records.append((record, k))

    def parts(self) -> list[array]:
        """The parts that have been written."""
        for record, k in self._records:
            box = box_in(record, "written", k)
            self._whole = self._whole or box is WHOLE or self._boxes.is_full
            if box is not None and not self._whole:
                self._boxes.add(box)
        self._records.clear()
        return [self.target] if self._whole else [part(self.target, box) for box in self._boxes]

    def unread(self, read: Coverage | None) -> list[array]:
        """The written parts of which some element is not in what has been read."""
        if read is None:
            return [self.target]
        parts = self.parts()
        if self._whole:
            return parts
        return [part(self.target, box) for box in self._boxes if not read.covers(box)]
