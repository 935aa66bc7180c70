"""Prepared products of a launch's Jacobian with several vectors; decisions common to all calls are made once.

It runs the program that a `Forward` level on a `Batch` would run, over arrays laid out as that program needs
them: the vectors stand in memory once and for all, only what the kernel changes is copied.  What it is not
made for is left to the levels.
"""

from math import prod
from typing import Any, NamedTuple

import numpy as np

from kernelab.autodiff.jacobians.subject import Subject
from kernelab.autodiff.records.adjoint_buffers import Argument, Extents, fresh
from kernelab.autodiff.transforms.base_level import BASE
from kernelab.autodiff.transforms.batch_level import with_lanes
from kernelab.data_classes import dataclass
from kernelab.errors import KernelIndexError
from kernelab.lang.types import Array
from kernelab.runtime.array.array import array
from kernelab.runtime.kernel.facts import Positions
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.program import Program
from kernelab.runtime.memory.memory import duplicate_of
from kernelab.settings import settings

Values = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class PreparedTangents:
    """The tangents of one output of a kernel along fixed vectors of one input.

    `program` takes the kernel's arguments, the tangents of those at `active`, then `numbers`.  What stands at
    `wide` has an axis for the lanes in front.  `source` and `target` are the positions of input and output.
    """

    kernel: Kernel
    program: Program
    grid: Extents
    numbers: tuple[bytes, ...]
    changed: frozenset[int]
    active: Positions
    wide: frozenset[int]
    source: int
    target: int
    seeds: array

    def run(self, subject: Subject) -> Values | None:
        """The tangents, lanes first, for plain arguments; None where the levels have to raise an error."""
        arguments = [self._primal(k, argument) for k, argument in enumerate(subject.arguments)]
        dots = {k: self._dot(k, len(arguments) + n, arguments[k]) for n, k in enumerate(self.active)}
        try:
            BASE.run(self.program, self.grid, [*arguments, *dots.values(), *self.numbers])
        except KernelIndexError:  # the levels know in which lane
            return None
        return dots[self.target].host().reshape(self.seeds.shape[0], -1)

    def _primal(self, k: int, argument: Any) -> Argument:
        if not isinstance(argument, array):
            return self.kernel.plan.parameters[k].convert(argument)[1]
        if k in self.wide:
            copies = fresh((self.seeds.shape[0], *argument.shape), argument.dtype, cleared=False)
            copies.host()[...] = argument.host()
            return copies
        return argument.twin(duplicate_of(argument.allocation)) if k in self.changed else argument

    def _dot(self, k: int, position: int, primal: Any) -> array:
        """The tangent of a primal, which has the axis for the lanes already if it is wide itself."""
        if k == self.source:
            return self.seeds
        shape = primal.shape[1:] if k in self.wide else primal.shape
        return fresh((self.seeds.shape[0], *shape) if position in self.wide else shape, primal.dtype)


class _Tangent(NamedTuple):
    """The tangent program of a kernel for one input and output; `wide` are its arrays that differ by lane."""

    program: Program
    active: Positions
    wide: frozenset[int]
    source: int
    target: int


def build_ahead(subject: Subject, i: int, j: int) -> None:
    """Build in the background what the tangents of output `j` along vectors of input `i` would run."""
    found = _tangent(subject, i, j)
    if found is not None:
        laned, grid, _ = with_lanes(found.program, subject.grid, tuple(sorted(found.wide)), lanes=1)
        laned.build_ahead(None, prod(grid))


def prepared(subject: Subject, i: int, j: int, seeds: Values) -> PreparedTangents | None:
    """The tangents of output `j` along vectors of input `i`; None where only the levels can compute them.

    The arguments are plain (`is_plain`), here and at each run.
    """
    found = _tangent(subject, i, j)
    if found is None:
        return None
    assert subject.kernel is not None
    tangent, active, wide, source, target = found
    elements = subject.sources[i].elements
    laned, grid, numbers = with_lanes(tangent, subject.grid, tuple(sorted(wide)), len(seeds))
    dots = fresh((len(seeds), *elements.shape), elements.dtype)
    dots.host()[...] = seeds.reshape(dots.host().shape)
    changed = subject.kernel.program.changed
    return PreparedTangents(subject.kernel, laned, grid, numbers, changed, active, wide, source, target, dots)


def _tangent(subject: Subject, i: int, j: int) -> _Tangent | None:
    """The tangent program; None where only the levels can compute its result."""
    kernel, outputs = subject.kernel, subject.outputs
    assert kernel is not None
    assert outputs is not None
    if 0 in subject.grid or 1 < kernel.plan.coordinates != len(subject.grid):
        return None  # nothing runs, or the launch warns or raises
    program = kernel.program
    source = _position(subject, subject.sources[i].elements)
    target = _position(subject, outputs[j].elements)
    if source in program.changed or target not in program.changed or source not in program.floats:
        return None
    active = tuple(k for k in program.floats if k == source or k in program.changed)
    tangent, count = program.tangent(active), len(subject.arguments)
    wide = frozenset({count + active.index(source)})
    while more := tangent.to_widen(tuple(sorted(wide))) - wide:
        wide |= more
    if tangent.is_opaque or count + active.index(target) not in wide:
        return None
    return _Tangent(tangent, active, wide, source, target)


def _position(subject: Subject, elements: array) -> int:
    return next(k for k, argument in enumerate(subject.arguments) if argument is elements)


def is_plain(subject: Subject) -> bool:
    """Whether it is a launch with numbers, and arrays in memories of their own on the CPU."""
    if subject.kernel is None:
        return False
    memories = set()
    for argument, parameter in zip(subject.arguments, subject.kernel.plan.types, strict=True):
        if argument.__class__ is array and argument.type is parameter:
            memory = argument.allocation
            if memory.space is not None or memory.folded or memory in memories:
                return False
            memories.add(memory)
        elif isinstance(argument, array) or isinstance(parameter, Array):
            return False
    return not settings().print_launches  # a launch through the levels says so
