"""Builds functions when they are needed, or in the background ahead of that, also for large launches."""

from kernelab.backend.common.backends import Entry
from kernelab.backend.cpu.cpu_backend import CpuEntry
from kernelab.lang.ir import Function
from kernelab.passes.common.scalarise import scalarise
from kernelab.passes.common.shadow_values import Poisoned
from kernelab.runtime.context.garbage import put_off
from kernelab.runtime.kernel.dispatch import Placed, Tracing, place
from kernelab.runtime.memory.spaces import Space


@put_off()
def build(function: Function) -> Placed:
    """The entry of a function, ready to run."""
    return place(scalarise(function))


def tracing(program: Poisoned) -> Tracing:
    """A program that finds where values turn NaN or infinite, ready to run."""
    return Tracing(program, place(program.function))


def ready(function: Function, space: Space | None) -> Placed:
    """The entry of a function, built for a device, or for the CPU."""
    placed = build(function)
    if space is None:
        placed.on_cpu()
    else:
        placed.compiled[space] = space.backend.compile([placed.function], ahead=True)
    return placed


def ready_for_many(function: Function) -> Placed:
    """The same for the CPU, with the code that large launches run."""
    placed = ready(function, None)
    has_vectors(placed)
    return placed


def has_vectors(entry: Entry) -> bool:
    """Whether large launches run vector code, which is built now if it is not yet."""
    on_cpu = entry.on_cpu() if isinstance(entry, Placed) else entry
    return isinstance(on_cpu, CpuEntry) and on_cpu.has_vectors
