"""The level of float64: every program runs in its float64 build, on float64 copies of its memory.

Differences are taken there: their error is then far below that of a derivative in float32.
"""

from collections.abc import Callable, Sequence

import numpy as np

from kernelab.autodiff.records.adjoint_buffers import Argument, Extents, Kept
from kernelab.autodiff.transforms.levels import Level, will_write
from kernelab.lang.types import Array, Scalar, Type, float64, is_differentiable, scalar_of, with_scalar
from kernelab.runtime.array.array import array
from kernelab.runtime.kernel.program import Program
from kernelab.runtime.memory.interop import HostArray
from kernelab.runtime.memory.memory import Allocation, allocate


class Wide(Level):
    """Runs programs over float64; what the host sees of an array is left as it was."""

    def __init__(self, parent: Level) -> None:
        super().__init__(parent)
        self._memories: dict[tuple[Allocation, Scalar], Allocation] = {}

    def wide(self, elements: array) -> array:
        """An array in float64; its memory is converted when it is first met, for each precision in it."""
        scalar = scalar_of(elements.dtype)
        key = elements.allocation, scalar
        memory = self._memories[key] = self._memories.get(key) or _converted(*key)
        times = float64.dtype.itemsize // scalar.dtype.itemsize
        strides = tuple(times * stride for stride in elements.strides)
        dtype = with_scalar(elements.dtype, float64)
        return array.over(memory, times * elements.offset, elements.shape, strides, dtype)

    def stand_in(self, elements: array) -> array:
        return self.wide(elements) if is_differentiable(elements.dtype) else elements

    def run(self, program: Program, grid: Extents, arguments: Sequence[Argument]) -> None:
        will_write(program, grid, arguments)
        params = program.function.params
        given = [self._given(a, param.type) for a, param in zip(arguments, params, strict=True)]
        self.parent.run(program.widened, grid, given)

    def _given(self, argument: Argument, type: Type) -> Argument:
        if isinstance(argument, array):
            return self.stand_in(argument)
        if isinstance(argument, Kept) and is_differentiable(argument.elem):
            argument.elem = with_scalar(argument.elem, float64)
        if isinstance(argument, bytes) and not isinstance(type, Array) and is_differentiable(type):
            dtype = scalar_of(type).dtype
            low = np.frombuffer(argument, np.uint8).reshape(-1, 8)[:, : dtype.itemsize]
            return np.ascontiguousarray(low).view(dtype).astype(np.float64).tobytes()
        return argument

    def tabulate(self, target: array, sources: Sequence[array], compute: Callable[..., HostArray]) -> None:
        self.parent.tabulate(target, [self.stand_in(source) for source in sources], compute)

    def move(self, dest: array, src: array, add: bool = False) -> None:
        dest.allocation.will_write(dest)
        self.parent.move(self.stand_in(dest), self.stand_in(src), add)


def _converted(memory: Allocation, scalar: Scalar) -> Allocation:
    """A memory read as floats of one precision, as float64; what is none of these in it is nonsense."""
    count = memory.nbytes // scalar.dtype.itemsize
    made = allocate(count * float64.dtype.itemsize, cleared=False, beside=memory)
    with np.errstate(all="ignore"):
        np.frombuffer(made.blank(), np.float64)[:] = np.frombuffer(memory.seen(), scalar.dtype, count)
    return made
