"""The level of forward mode: carries tangents beside the arrays, and notes what ran, to explain zeros."""

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from operator import add

from kernelab.autodiff.records.adjoint_buffers import Argument, Extents, Kept, KeptValues, fresh
from kernelab.autodiff.records.moves import Move
from kernelab.autodiff.transforms.host_calls import HostCall
from kernelab.autodiff.transforms.levels import Level, active_with, carried
from kernelab.autodiff.transforms.reverse import Explaining, Ran
from kernelab.data_classes import dataclass
from kernelab.errors import KernelError
from kernelab.lang.types import is_differentiable, scalar_of
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import itemsize
from kernelab.runtime.context.recorder import Place, caller
from kernelab.runtime.kernel.program import Groups, Program
from kernelab.runtime.memory.memory import Allocation, zeros_beside


@dataclass(frozen=True, slots=True, eq=False)
class Moved(Ran):
    """A program that ran in forward mode, with its arguments that may have tangents, and integer arrays."""

    program: Program
    arguments: tuple[Argument | None, ...]
    groups: Groups
    place: Place

    @property
    def reached(self) -> list[array]:
        """The arrays from which tangents pass; where values go on without, those that an adjoint reaches."""
        given = enumerate(self.arguments)
        active = tuple(i for i, argument in given if argument is not None and not _is_integer(argument))
        try:
            passed = self.program.pullback(active, self.groups).reached if self.program.dead_ends else active
        except KernelError:  # there is no adjoint: no message
            passed = active
        return self._arrays(i for i in passed if i in self.program.reads)


def _is_integer(argument: Argument) -> bool:
    return isinstance(argument, array) and not is_differentiable(argument.dtype)


class Forward(Explaining):
    """Carries tangents: `dots` holds the tangents of each memory that has any, `kept` those of residuals.

    A program that appends a value to a residual appends its tangent to another at the same time, so both
    begin at the same places.
    """

    def __init__(self, parent: Level) -> None:
        super().__init__(parent)
        self.dots: dict[Allocation, Allocation] = {}
        self.kept: dict[Kept, Kept] = {}

    def dot(self, primal: array) -> array:
        """The tangent of an array: the same elements of a memory that starts as zeros."""
        memory = self.dots.get(primal.allocation)
        if memory is None:
            memory = self.dots[primal.allocation] = zeros_beside(primal.allocation)
        return primal.twin(memory)

    def followed(self) -> Collection[Allocation]:
        return self.dots

    def carries(self, memory: Allocation) -> bool:
        return memory in self.dots

    def _run(self, program: Program, grid: Extents, arguments: Sequence[Argument]) -> None:
        moving = {i for i in program.floats if carried(arguments[i], self.dots, self.kept)}
        if not moving:
            self.parent.run(program, grid, arguments)
            self._pass(program, arguments)
            return
        groups = program.sharing(arguments)
        active = active_with(moving, program, groups)
        dots = [self._tangent(arguments[i]) for i in active]
        given = enumerate(arguments)
        moved = tuple(argument if i in active or _is_integer(argument) else None for i, argument in given)
        self._ran(Moved(program, moved, groups, caller()))
        self.parent.run(program.tangent(active, groups), grid, [*arguments, *dots])

    def forget(self, memory: Allocation) -> None:
        self.unfollow(memory)
        dot = self.dots.pop(memory, None)
        if dot is not None:
            self.parent.forget(dot)
        self.parent.forget(memory)

    def _called_host(self, call: HostCall, arguments: Sequence[array], results: Sequence[array]) -> None:
        moving = [k for k, elements in enumerate(arguments) if self.carries(elements.allocation)]
        back, dots = call.reversed(len(results)), {k: self._flat(self.dot(arguments[k])) for k in moving}
        tangents = self._transposed(back, [*arguments, *results], dots, results)
        for result, tangent in zip(results, tangents, strict=True):
            self.parent.move(self.dot(result), tangent)

    def _transposed(
        self, back: HostCall, values: Sequence[array], dots: Mapping[int, array], results: Sequence[array]
    ) -> list[array]:
        """The tangents of results, by what takes their adjoints back to those of values with tangents."""
        tangents = [fresh(result.shape, result.dtype, result) for result in results]
        for n, tangent in enumerate(tangents):
            scalar = scalar_of(tangent.dtype)
            for e in range(tangent.allocation.nbytes // itemsize(scalar)):
                seeds = [fresh(one.shape, one.dtype, one) for one in results]
                seeds[n].host().reshape(-1)[e] = 1
                bars = self.parent.call_host(back, [*values, *seeds])
                parts = [(self._flat(bars[k]), dot) for k, dot in dots.items()]
                with self.parent.active():
                    slope = reduce(add, ((bar * dot).sum() for bar, dot in parts))
                offset = e * itemsize(scalar)
                element = array.over(tangent.allocation, offset, (1,), (itemsize(scalar),), scalar)
                self.parent.move(element, slope)
        return tangents

    def _flat(self, elements: array) -> array:
        """The numbers of an array in a row, in memory of their own."""
        copy = self.parent.copy(elements)
        scalar = scalar_of(copy.dtype)
        size = itemsize(scalar)
        return array.over(copy.allocation, 0, (copy.allocation.nbytes // size,), (size,), scalar)

    def _tangent(self, argument: Argument) -> Argument:
        match argument:
            case array():
                return self.dot(argument)
            case Kept():
                return self.kept.setdefault(argument, Kept(argument.elem))
            case KeptValues(kept):
                return KeptValues(self.kept[kept])
            case _:
                raise AssertionError("neither numbers nor starts have tangents")

    def _move(self, dest: array, src: array, add: bool) -> None:
        self.parent.move(dest, src, add)
        if dest.allocation in self.dots or src.allocation in self.dots:
            self.parent.move(self.dot(dest), self.dot(src), add)
            self.entries.append(Move(dest, src, add))
        else:
            self._pass_move(dest, src, add)
