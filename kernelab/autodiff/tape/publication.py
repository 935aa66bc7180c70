"""Publication: which elements show which gradient, and after which record of a sweep it is known.

    x (an input)           its gradient is that of the value it held when the tape first read it
    rows of a trajectory   each is written, then read: its gradient is known after the adjoint of that read
    y (never read)         shows its cotangent, the gradient with respect to the value at the end

Knows what steps have read and written; must not compute any adjoint.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from kernelab.autodiff.records.coverage import Coverage
from kernelab.autodiff.records.pieces import WHOLE, Written, box_in
from kernelab.autodiff.records.steps import Step, Stretch, stretch
from kernelab.errors import Diagnostic, TapeError
from kernelab.passes.access.access_regions import Box
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import called, caller
from kernelab.runtime.launch.touched import part
from kernelab.runtime.memory.interop import itemsize
from kernelab.runtime.memory.memory import Allocation


@dataclass(frozen=True, slots=True, eq=False)
class Publication:
    """Elements of `source` whose gradient is to be published, and whether it adds to what was there."""

    elements: array
    leaf: bool
    source: array


@dataclass(slots=True)
class Publications:
    """What is published when: before the sweep, and after the adjoint of each record."""

    before: list[array] = field(default_factory=list)
    after: dict[int, list[Publication]] = field(default_factory=dict)

    def leaves(self) -> Iterator[tuple[int, array]]:
        """The leaves, each with the step that reads it first."""
        return ((i, p.source) for i, group in self.after.items() for p in group if p.leaf)

    def start_from(self, seed: array, steps: Sequence[Step]) -> None:
        """Publish what a sweep starts from: an input adds it to its gradient, a result shows it."""
        # Of elements that no record touches, too, the gradient is that of the value at the end.
        if any(seed.overlaps(target) for step in reversed(steps) for target in step.written):
            self.before.insert(0, seed)
            return
        first = next(i for i, step in enumerate(steps) if any(seed.overlaps(one) for one in step.read))
        self.after.setdefault(first, []).append(Publication(seed, True, seed))

    def all(self) -> Iterator[Publication]:
        for elements in self.before:
            yield Publication(elements, False, elements)
        for group in self.after.values():
            yield from group


def publications(steps: Sequence[Step]) -> Publications:
    """Find where each array with gradients is first read, and which are never read.

    Memory that the tape reads before it writes it holds inputs: an array over it is one piece, which counts
    from its first read on.  Of memory that the tape has made, each box of indices that a launch reads counts
    by itself.
    """
    history = _History()
    settled = history.settled
    for i, step in enumerate(steps):
        for k, source in enumerate(step.read):
            if source not in settled and source.allocation.requires_grad:
                history.read(i, step, k, source)
        for k, target in enumerate(step.written):
            history.write(step, k, target)
    history.publish_what_is_never_read()
    return history.plan


def refuse_shared_gradients(plan: Publications, replaced: Collection[Allocation]) -> None:
    """Raise TapeError where one gradient array is to show those of several arrays that do not add up.

    Leaves add to it, and in `replaced` memory it is what the sweep starts from; anything else replaces it.
    """
    first: dict[Allocation, Publication] = {}
    replacing: dict[Allocation, bool] = {}
    shared: dict[Allocation, tuple[array, array]] = {}
    for one in plan.all():
        memory = one.elements.allocation
        if memory.adjoint is None or memory in replaced:
            continue
        other = first.setdefault(memory.adjoint, one)
        replacing[memory.adjoint] = replacing.get(memory.adjoint, False) or not one.leaf
        if other.elements.allocation is not memory:
            shared[memory.adjoint] = other.source, one.source
    for gradient, (one_of, other_of) in shared.items():
        if replacing[gradient]:
            names = f"{called(one_of)} and {called(other_of)}"
            message = f"{names} share one gradient array, and not both are inputs, whose gradients add up"
            hint = "give each a gradient of its own: x.grad = None, or x.grad = kl.zeros_like(x)"
            raise TapeError(Diagnostic(message, caller().span, "shared-gradient", hint=hint))


class _History:
    """What the steps so far have read and written.

    `settled` are arrays whose further reads change nothing; `inputs` is memory that was read before it was
    written.  What is read as a whole is among `whole`, as a stretch or, if it is all of it, as memory.
    """

    def __init__(self) -> None:
        self.plan = Publications()
        self.settled: set[array] = set()
        self._inputs: set[Allocation] = set()
        self._whole: set[Stretch | Allocation] = set()
        self._boxes: dict[Stretch, Coverage] = {}
        self._written: dict[Allocation, dict[Stretch, Written]] = {}
        self._targets: dict[array, Written] = {}

    def read(self, i: int, step: Step, k: int, source: array) -> None:
        """Count that step `i` has read `source`, its k-th array."""
        memory, key = source.allocation, stretch(source)
        if key in self._whole or memory in self._whole:
            self.settled.add(source)
            return
        if not self._written.get(memory):
            self._inputs.add(memory)
        box = WHOLE if memory in self._inputs else box_in(step.record, "read", k)
        if box is WHOLE:
            self._read_whole(i, source, key)
        elif box is not None:
            self._read_box(i, source, key, box)

    def _read_whole(self, i: int, source: array, key: Stretch) -> None:
        memory = source.allocation
        earlier = self._written.get(memory, {})
        self.settled.add(source)
        self._whole.add(key)
        if _is_whole(source):
            self._whole.add(memory)
        is_leaf = key not in earlier and not any(w.target.overlaps(source) for w in earlier.values())
        self._publish(i, Publication(source, is_leaf, source))

    def _read_box(self, i: int, source: array, key: Stretch, box: Box) -> None:
        known = self._boxes.setdefault(key, Coverage())
        if known.covers(box):
            return
        known.add(box)
        elements = part(source, box)
        earlier = self._written.get(source.allocation, {}).values()
        is_leaf = not any(elements.overlaps(one) for several in earlier for one in several.parts())
        self._publish(i, Publication(elements, is_leaf, source))

    def _publish(self, i: int, publication: Publication) -> None:
        self.plan.after.setdefault(i, []).append(publication)

    def write(self, step: Step, k: int, target: array) -> None:
        """Count that a step has written `target`, its k-th array, if that has gradients."""
        found = self._targets.get(target)
        if found is None:
            if not target.allocation.requires_grad:
                return
            here = self._written.setdefault(target.allocation, {})
            found = self._targets[target] = here.setdefault(stretch(target), Written(target))
        found.add(step.record, k)

    def publish_what_is_never_read(self) -> None:
        """Let what was written and not read show its cotangent, before the sweep."""
        for memory, targets in self._written.items():
            if memory not in self._whole:
                for key, found in targets.items():
                    if key not in self._whole:
                        self.plan.before += found.unread(self._boxes.get(key))


def _is_whole(elements: array) -> bool:
    return elements.is_contiguous and elements.size * itemsize(elements.dtype) == elements.allocation.nbytes
