"""Which elements of an array have been read, or written, so far: boxes of its indices, merged where they fit.

    rows 0, 1, 2, ... of a trajectory, one after another      one box that grows

Knows boxes; must not know arrays or records.
"""

from collections.abc import Iterator

from kernelab.passes.access.access_regions import Axis, Box

MOST = 64
"""How many boxes are told apart: what does not fit any more is left out."""


class Coverage:
    """Boxes over one array; it may cover less than was added, never more."""

    __slots__ = ("_boxes",)

    def __init__(self) -> None:
        self._boxes: list[Box] = []

    def __iter__(self) -> Iterator[Box]:
        return iter(self._boxes)

    def covers(self, box: Box) -> bool:
        """Whether all elements of a box are in one of the boxes."""
        return any(all(map(_within, box, one)) for one in self._boxes)

    def add(self, box: Box) -> None:
        """Count the elements of a box too."""
        if self.covers(box):
            return
        for k, one in enumerate(self._boxes):
            joined = _joined(one, box)
            if joined is not None:
                del self._boxes[k]
                self.add(joined)
                return
        if not self.is_full:
            self._boxes.append(box)

    @property
    def is_full(self) -> bool:
        """Whether another box may be left out."""
        return len(self._boxes) == MOST


def _within(inner: Axis, outer: Axis) -> bool:
    """Whether the indices `inner` are all among `outer`."""
    (first, count, step), (start, total, stride) = inner, outer
    if first < start or first + (count - 1) * step > start + (total - 1) * stride:
        return False
    return (first - start) % stride == 0 and (count == 1 or step % stride == 0)


def _joined(a: Box, b: Box) -> Box | None:
    """The box that holds the elements of two and nothing else, where they differ along one axis only."""
    differing = [k for k, pair in enumerate(zip(a, b, strict=True)) if pair[0] != pair[1]]
    if len(differing) != 1:
        return None
    k = differing[0]
    axis = _continued(*sorted((a[k], b[k])))
    return None if axis is None else (*a[:k], axis, *a[k + 1 :])


def _continued(low: Axis, high: Axis) -> Axis | None:
    """The indices of two in one, where `high` goes on with `low` or they overlap in step."""
    (first, count, step), (start, total, stride) = low, high
    if count == 1:
        step = start - first if total == 1 else stride
    if total == 1:
        stride = step
    if step != stride or step <= 0 or (start - first) % step or start > first + count * step:
        return None
    last = max(first + (count - 1) * step, start + (total - 1) * step)
    return first, (last - first) // step + 1, step
