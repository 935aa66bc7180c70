"""A call of a kernel: its arguments checked and packed, its writes announced, and how it runs.

What a recorder gets.  Knows kernels and arrays; must not know tapes.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from kernelab.backend.cuda.launch_config import DEFAULT_CONFIG, LaunchConfig
from kernelab.data_classes import dataclass
from kernelab.runtime.array.array import Gathered, array
from kernelab.runtime.kernel.arguments import Parameter, arrays_in, wrong_count
from kernelab.runtime.kernel.dispatch import Culprit, Tracing
from kernelab.runtime.kernel.facts import Groups, Positions
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.program import Program, Pullback
from kernelab.runtime.kernel.signature import flattened
from kernelab.runtime.launch.footprint import Grid, Residual, changed_part, settled
from kernelab.runtime.memory.device import Device, device_of
from kernelab.runtime.memory.memory import Allocation, announce
from kernelab.runtime.memory.spaces import Space, space_of
from kernelab.runtime.memory.streams import configured
from kernelab.runtime.memory.torch_versions import tell_torch


def bind(kernel: Kernel, arguments: list[Any], parts: list[bytes]) -> None:
    """Check the arguments and append their slots to `parts`; raises LaunchError.

    The list then holds the leaves of structs in their place.
    """
    plan = kernel.plan
    if plan.formals is not None:
        arguments[:] = flattened(kernel.name, kernel.span, plan.formals, arguments)
    if len(arguments) != len(plan.types):
        raise wrong_count(kernel.name, plan.parameters, arguments, kernel.span)
    before = len(parts)
    for argument, expected, quick in zip(arguments, plan.types, plan.quick, strict=True):
        if argument.__class__ is array and argument.type is expected:
            parts.append(argument.packed)
        elif quick is not None and argument.__class__ is quick.kind and quick.low <= argument <= quick.high:
            parts.append(quick.pack(argument))
        else:
            i = len(parts) - before
            arguments[i], packed = plan.parameters[i].convert(argument)
            parts.append(packed)
            if i in plan.written and type(argument).__module__.partition(".")[0] == "torch":
                tell_torch(argument)
    for i in plan.written:
        memory = arguments[i].allocation
        if not memory.writable or memory.folded or arguments[i].__class__ is not array:
            require_writable(plan.parameters[i], arguments[i])


def require_writable(parameter: Parameter, argument: Any) -> None:
    """Raise LaunchError for an array that a kernel cannot change."""
    memory = argument.allocation
    if not memory.writable or (memory.folded and argument.folds):
        what = "a read-only one" if not memory.writable else "one whose elements share bytes"
        raise parameter.wrong(f"{what}, since the kernel writes it", "pass a copy", "read-only")
    if argument.__class__ is Gathered and argument.source.repeats:
        what = "one that picks an element twice, since the kernel writes it"
        raise parameter.wrong(what, "pick each element once", "index")


class Slots(Protocol):
    """An array, or what a kernel reads in place of one."""

    @property
    def packed(self) -> bytes: ...


@dataclass(slots=True, eq=False)
class Call:
    """A validated launch that has not run yet: what a recorder gets, and keeps.

    Nothing changes it.  It is not declared frozen because making it would then take twice the time.
    `structs` are the structs and arrays of structs whose leaves are among the arguments, `config` is
    the launch configuration on a CUDA device.
    """

    kernel: Kernel
    grid: Grid
    arguments: tuple[Any, ...]
    parts: tuple[bytes, ...]
    structs: tuple[Any, ...] = ()
    config: LaunchConfig = DEFAULT_CONFIG

    @property
    def targets(self) -> tuple[array, ...]:
        """The arrays whose elements the launch changes."""
        return tuple(self.arguments[i] for i in self.kernel.plan.written)

    def overwrites_all(self, position: int) -> bool:
        """Whether each element of an array is stored to, and none is read."""
        target = self.arguments[position]
        given = [elements.allocation for elements in arrays_in(self.arguments)]
        is_read = position in self.kernel.plan.read_in_text or given.count(target.allocation) > 1
        whole = target.shape == self.grid.extents
        return whole and not is_read and self.kernel.program.stores_own(position)

    def memories(self) -> list[Allocation]:
        """The memory of each array argument."""
        return self.kernel.plan.straight.memories(self.arguments)

    @property
    def space(self) -> Space | None:
        """The device's memory that the arrays are in; None for the host's."""
        return next((space_of(memory) for memory in self.memories()), None)

    @property
    def device(self) -> Device:
        return device_of(self.space)

    def groups(self) -> Groups:
        """The arguments that share memory which the launch changes, in groups."""
        return self.kernel.program.sharing(self.arguments)

    def will_write(self) -> None:
        """Warn observers who need what the launch overwrites, and count the writes."""
        will_write(self.kernel.program, self.grid.extents, self.arguments)

    def settled(self, groups: Groups) -> Positions:
        """The arrays that the launch changes, but nothing of what it reads of them."""
        return settled(self.kernel.program, self.grid.extents, self.arguments, groups)

    def build(self, pullback: object) -> None:
        """Build what `augmented`, or `primal` where there is no backward pass, will run."""
        if isinstance(pullback, Pullback) and pullback.residuals:
            pullback.primal.built_for(self.grid.threads)
        else:
            self.kernel.program.entry_for(self.arguments, self.grid.threads)

    def primal(self) -> None:
        """Run the kernel."""
        entry = self.kernel.program.entry_for(self.arguments, self.grid.threads)
        if self.config is DEFAULT_CONFIG:
            entry(b"".join(self.parts))
            return
        with configured(self.config):
            entry(b"".join(self.parts))

    def augmented(self, pullback: Pullback, held: int) -> tuple[array, ...]:
        """Run the kernel keeping its residuals: each one's values and where each thread's begin.

        Raises KernelMemoryError if they take more than may be kept besides the bytes `held` already.
        """
        kept = [Residual(type, self.grid.threads, self.space) for type in pullback.residuals]
        with configured(self.config):
            parts = [*self.parts, *(residual.packed for residual in kept)]
            pullback.primal.run(b"".join(parts), kept=held)
        return tuple(part for residual in kept for part in residual.arrays())

    def parts_with(self, replaced: Mapping[int, Slots]) -> tuple[bytes, ...]:
        """The packed arguments, with other arrays at some positions."""
        parts = list(self.parts)
        for i, other in replaced.items():
            parts[1 + i] = other.packed
        return tuple(parts)

    def trace_by(
        self, tracing: Tracing, replaced: dict[int, array], residuals: Sequence[array] = ()
    ) -> Culprit | None:
        """Find where a value became NaN or infinite, by a program that traces the kernel.

        `replaced` are copies of what it writes; `residuals` are what it reads in place of overwritten values.
        """
        from kernelab.runtime.launch.checked import trace  # where a value is not finite, as below

        parts = [*self.parts_with(replaced), *(residual.packed for residual in residuals)]
        return trace(tracing, parts, self.grid.threads, self.device)


def will_write(
    program: Program, extents: tuple[int, ...], arguments: Sequence[Any], among: Iterable[int] | None = None
) -> list[Allocation]:
    """Warn those who need what a program overwrites, count the writes; which of the memory has gradients.

    `among` are the positions of arguments that it changes, all of them unless given.
    """
    traced, changes = [], []
    for i in program.changed if among is None else among:
        target = arguments[i]
        if not isinstance(target, array):  # what another program has kept
            continue
        memory = target.allocation
        if memory.requires_grad:
            traced.append(memory)
        if memory.watches.starts or memory.witnesses:
            changes.append((target, partial(changed_part, program, extents, arguments, i)))
        else:
            memory.version += 1
    if changes:
        announce(changes)
    return traced
