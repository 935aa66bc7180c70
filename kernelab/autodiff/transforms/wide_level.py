"""The level of float64, where differences are taken.

Every program runs in its float64 build, on float64 copies of its memory: the error of differences is then far
below that of a derivative in float32.  Knows levels; must not know functions.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from weakref import WeakKeyDictionary

import numpy as np

from kernelab.autodiff.records.adjoint_buffers import Argument, Extents, Kept, fresh
from kernelab.autodiff.transforms.host_calls import HostCall
from kernelab.autodiff.transforms.levels import Level
from kernelab.errors import Diagnostic, GradientError, name_of
from kernelab.lang.types import Array, Scalar, Type, Value, float64, is_differentiable, scalar_of, with_scalar
from kernelab.runtime.array.array import array, numbers_of
from kernelab.runtime.array.origins import stands_on_floats
from kernelab.runtime.context.conversion import HostArray
from kernelab.runtime.context.recorder import RECORDER, caller, refusal
from kernelab.runtime.kernel.program import Program
from kernelab.runtime.launch.call import will_write
from kernelab.runtime.memory.memory import Allocation

Part = tuple[int, tuple[int, ...], tuple[int, ...], Value]
"""An array's place in its memory: offset, shape and strides; and its type."""


class Wide(Level):
    """Runs programs over float64; the host sees what the first lane computes, rounded, when it looks."""

    def __init__(self, parent: Level) -> None:
        super().__init__(parent)
        self._memories: WeakKeyDictionary[Allocation, dict[Scalar, Allocation]] = WeakKeyDictionary()
        self._behind: WeakKeyDictionary[Allocation, set[Part]] = WeakKeyDictionary()
        """What has been computed and the host has not seen."""
        self._integers: WeakKeyDictionary[Allocation, set[Part]] = WeakKeyDictionary()
        """What integers and truth values have been computed, which differ from lane to lane."""

    def wide(self, elements: array) -> array:
        """An array in float64; its memory is converted on first use, once for each precision in it."""
        self.look(elements.allocation)
        scalar = scalar_of(elements.dtype)
        memories = self._memories.setdefault(elements.allocation, {})
        memory = memories[scalar] = memories.get(scalar) or self._converted(elements.allocation, scalar)
        times = float64.dtype.itemsize // scalar.dtype.itemsize
        strides = tuple(times * stride for stride in elements.strides)
        dtype = with_scalar(elements.dtype, float64)
        return array.over(memory, times * elements.offset, elements.shape, strides, dtype)

    def _converted(self, memory: Allocation, scalar: Scalar) -> Allocation:
        """What the levels around this one hold in a memory, read as floats of one precision, as float64."""
        numbers = numbers_of(memory, scalar)
        exact = fresh(numbers.shape, float64, numbers, cleared=False)
        with np.errstate(all="ignore"):
            self.parent.move(exact, numbers)
        self.has_read(memory)
        if memory.is_exposed:
            self.is_exposed(memory)
        return exact.allocation

    def look(self, memory: Allocation, own: int = 0) -> None:
        """Convert a memory anew once the host has changed it; GradientError if it differs between lanes."""
        exact = self._memories.get(memory, {}).values()
        if any(one in level.followed() for level in self.parent.outwards() for one in exact):
            super().look(memory, own)
        elif self.has_changed(memory, own):
            self._memories.pop(memory)
            self.unfollow(memory)

    def note(self, memory: Allocation) -> None:
        super().note(memory)
        if memory in self._memories:
            self.has_written(memory)

    def stand_in(self, elements: array) -> array:
        if is_differentiable(elements.dtype):
            return self.wide(elements)
        if elements.allocation in self._behind and stands_on_floats(elements):
            reason = self.unreadable(elements)
            if reason is not None:
                raise GradientError(reason)
        return elements

    def holds_apart(self, memory: Allocation) -> bool:
        return memory in self._memories

    def run(self, program: Program, grid: Extents, arguments: Sequence[Argument]) -> None:
        self.look_at_arguments(arguments)
        # Floats are those of this level.  Integers beside them are not, but both change at once.
        with self._for_levels_around([arguments[i] for i in program.changed]):
            will_write(program, grid, arguments)
        params = program.function.params
        exact = [self.given(a, param.type) for a, param in zip(arguments, params, strict=True)]
        self.run_wide(program.widened, grid, exact)
        for i in program.changed:
            self.left_behind(arguments[i])

    def run_wide(self, program: Program, grid: Extents, arguments: Sequence[Argument]) -> None:
        """Run a program over float64."""
        self.parent.run(program, grid, arguments)

    def left_behind(self, changed: Argument) -> None:
        """Note what a program has changed: the host sees it once it looks."""
        if isinstance(changed, array):
            behind = self._behind if is_differentiable(changed.dtype) else self._integers
            part = changed.offset, changed.shape, changed.strides, changed.dtype
            behind.setdefault(changed.allocation, set()).add(part)
            self.note(changed.allocation)

    def unreadable(self, elements: array) -> Diagnostic | None:
        for part in self._behind.pop(elements.allocation, ()):
            self._show(array.over(elements.allocation, *part))
        for part in self._integers.get(elements.allocation, ()):
            self._show(array.over(elements.allocation, *part))
        return None if elements.allocation in self._integers else self.parent.unreadable(elements)

    def _show(self, elements: array) -> None:
        """Write what the first lane computes where the host looks; no level takes that for others' writes."""
        recorder = RECORDER.get()
        levels = [*recorder.outwards()] if isinstance(recorder, Level) else [self]
        for level in levels:
            level.look(elements.allocation)
        with np.errstate(all="ignore"):
            elements.host()[...] = self.first(elements).seen()
        for level in levels:
            level.note(elements.allocation)

    def first(self, elements: array) -> array:
        return self.parent.first(self.stand_in(elements))

    def given(self, argument: Argument, type: Type) -> Argument:
        if isinstance(argument, array):
            return self.stand_in(argument)
        if isinstance(argument, Kept) and is_differentiable(argument.elem):
            argument.elem = with_scalar(argument.elem, float64)
        if isinstance(argument, bytes) and not isinstance(type, Array) and is_differentiable(type):
            dtype = scalar_of(type).dtype
            low = np.frombuffer(argument, np.uint8).reshape(-1, 8)[:, : dtype.itemsize]
            return np.ascontiguousarray(low).view(dtype).astype(np.float64).tobytes()
        return argument

    def call_host(self, call: HostCall, arguments: Sequence[array]) -> list[array]:
        results, floats = [], [one.dtype for one in arguments if is_differentiable(one.dtype)]
        for exact in self.parent.call_host(call, [self.stand_in(elements) for elements in arguments]):
            is_float = bool(floats) and is_differentiable(exact.dtype)
            if is_float and scalar_of(exact.dtype) != float64:
                name = name_of(call.func)
                message = f"{name} returned {exact.dtype} for arrays of float64, which a check gives it"
                hint = "return arrays of the dtype that it gets, kl.array(values, dtype=x.dtype), or NumPy's"
                raise refusal(GradientError, message, "float64", hint)
            dtype = with_scalar(exact.dtype, scalar_of(floats[0])) if is_float else exact.dtype
            results.append(fresh(exact.shape, dtype, exact))
            self.parent.move(self.stand_in(results[-1]), exact)
            self.left_behind(results[-1])
        return results

    def compare_rule(self, call: HostCall, arguments: Sequence[array]) -> None:
        self.parent.compare_rule(call, [self.stand_in(elements) for elements in arguments])

    def record_func(self, backward: Callable[[], object], arrays: tuple[array, ...]) -> None:
        message = "a check runs this function in float64, and the host saw the values before that"
        hint = "gradcheck and gradcheck_tape check a function of kl.func.custom_vjp(f, back)"
        raise refusal(GradientError, message, "float64", hint)

    def tabulate(self, target: array, sources: Sequence[array], compute: Callable[..., HostArray]) -> None:
        self.parent.tabulate(target, [self.stand_in(source) for source in sources], compute)

    def move(self, dest: array, src: array, add: bool = False) -> None:
        self.look_at_arguments((dest, src))
        if is_differentiable(dest.dtype):
            with self._for_levels_around([dest]):
                dest.allocation.will_write(dest)
        self.parent.move(self.stand_in(dest), self.stand_in(src), add)
        self.left_behind(dest)

    @contextmanager
    def _for_levels_around(self, written: Sequence[Argument]) -> Iterator[None]:
        """This level and those around it, which follow the integers, do not take writes for others'."""
        memories = [each.allocation for each in written if isinstance(each, array)]
        pairs = [*product((self, *self.parent.outwards()), memories)]
        for level, memory in pairs:
            level.look(memory)
        yield
        for level, memory in pairs:
            level.note(memory)


class Vectors(Wide):
    """The same for a function of float64 vectors: the host may not read what is computed, for it is stale."""

    def unreadable(self, elements: array) -> Diagnostic | None:
        if elements.allocation in self._memories:
            message = f"this array of {elements.dtype} is computed in float64: its values cannot be read here"
            hint = "compute with them in kernels; or let kernels take array[Any], and pass dtype=kl.float64"
            return Diagnostic(message, caller().span, "float64", hint=hint)
        return self.parent.unreadable(elements)

    def narrow(self, exact: array, dtype: Value) -> array:
        """An array of another dtype that holds, at this level, the float64 elements of `exact`."""
        result: array = array(shape=exact.shape, dtype=dtype, device=exact.device)
        self._memories[result.allocation] = {scalar_of(dtype): exact.allocation}
        self.left_behind(result)
        return result

    def leave(self) -> None:
        """Give arrays that the user holds what was computed for them, rounded."""
        while self._behind:
            memory, parts = self._behind.popitem()
            for part in parts:
                elements = array.over(memory, *part)
                self.parent.move(elements, self.wide(elements))
                self.note(memory)
