"""How much memory an adjoint may take for what its loops save, and what happens beyond it.

An adjoint first runs as it is, saving every iteration.  A thread that would save more than the budget stops
before it has changed anything, and from it on another adjoint of the same kernel goes on: one that keeps
checkpoints and runs the iterations between them again.  The gradients are the same to the last bit.
"""

from contextvars import ContextVar

from kernelab.backend.base import Args, StorageFull
from kernelab.runtime.kernel import Reverse

LOOP_MEMORY: ContextVar[int] = ContextVar("loop_memory", default=64 << 20)
"""How many bytes a thread may save for its sweep before its loops keep checkpoints; 0 is any number.

Beyond some megabytes another run of a short iteration costs about as much as the memory it spares.
"""


def sweep(reverse: Reverse, args: Args) -> None:
    """Run an adjoint within the budget."""
    limit = LOOP_MEMORY.get() if reverse.saves else 0
    try:
        reverse.adjoint_entry(args, limit)
    except StorageFull as full:
        reverse.spilled += 1
        reverse.frugal_entry(args, done=full.done)
