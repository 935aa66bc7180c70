"""What launches a kernel without Python: native code for usual arguments, made once it has run a few times.

Knows kernels and what a launch has to look at (`launch.run` says in Python what the native code does); must
not know tapes.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from kernelab.backend.cpu.cpu_backend import BLOCKS, CpuEntry
from kernelab.backend.cpu.native_calls import (
    ARRAY,
    FLOAT32,
    FLOAT64,
    INTEGER,
    MOST_SLOTS,
    Kind,
    Launched,
    facts,
)
from kernelab.codegen.cpp.entry import GRID_SLOTS, slots_of
from kernelab.lang.types import Array, Scalar
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import ENTERED, RECORDER, caller
from kernelab.runtime.kernel.dispatch import Placed
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.memory.spaces import OPEN
from kernelab.settings import settings


def quick_launch(kernel: Kernel, log: logging.Logger, *, waits: bool = False) -> Callable[..., Any] | None:
    """A function of grid, inputs, outputs and `record_tape`; None where there is none, or none yet.

    It returns True where it has launched the kernel, the packed arguments where it has checked them for a
    recorder, and False, with nothing done, where there is more to do.  With `waits` it is built now.
    """
    plan, chosen, entry = kernel.plan, settings(), kernel.program.entry
    on_cpu = entry.on_cpu() if isinstance(entry, Placed) else None
    has_more = plan.formals or plan.late_sums or plan.lost_sums or plan.check or OPEN
    if has_more or chosen.print_launches or chosen.check_races or chosen.check:
        return None
    kinds = [_kind(kernel, i) for i in range(len(plan.types))]
    slots = GRID_SLOTS + sum(map(slots_of, plan.types))
    native = on_cpu.native(waits=waits) if isinstance(on_cpu, CpuEntry) else None
    if native is None or None in kinds or slots > MOST_SLOTS:
        return None
    assert isinstance(on_cpu, CpuEntry)
    known = [kind for kind in kinds if kind is not None]
    launched = Launched(
        facts(*on_cpu.start, plan.coordinates, kernel.program.totals, known),
        BLOCKS,
        on_cpu.ended,
        plan.types,
        kernel.name,
        array,
        settings,
        chosen,
        log.isEnabledFor,
        logging.DEBUG,
        ENTERED,
        OPEN,
        plan.constants,
        RECORDER.get,
        partial(caller, 1),  # behind it, `launch`
    )
    return native.launching(launched)


def _kind(kernel: Kernel, position: int) -> Kind | None:
    """What native code knows of a parameter; None for one that it does not pack."""
    plan = kernel.plan
    wanted, quick = plan.types[position], plan.quick[position]
    if isinstance(wanted, Array):
        return ARRAY, position in plan.written, position in plan.read
    if not isinstance(wanted, Scalar) or quick is None or wanted.name == "uint64":
        return None
    if wanted.is_float:
        return (FLOAT32 if wanted.bits == 32 else FLOAT64), 0, 0
    return INTEGER | wanted.bits // 8 << 4, int(quick.low), int(quick.high)
