"""How much memory an adjoint may take for what its loops save, and what happens beyond it.

An adjoint first runs as it is, saving every iteration.  A thread that would save more than the budget stops
before it has changed anything, and from it on another adjoint of the same kernel goes on: one that keeps
checkpoints and runs the iterations between them again, in the same order of operations.
"""

from collections.abc import Callable
from contextvars import ContextVar

from kernelab.backend.base import Args, Entry, StorageFull

LOOP_MEMORY: ContextVar[int] = ContextVar("loop_memory", default=64 << 20)
"""How many bytes a thread may save for its sweep before its loops keep checkpoints; 0 is any number.

Beyond some megabytes another run of a short iteration costs about as much as the memory it spares.
"""


def run_within_budget(usual: Entry, frugal: Callable[[], Entry], args: Args) -> bool:
    """Run an adjoint, and another of the same function where it saves too much; whether it did."""
    try:
        usual(args, LOOP_MEMORY.get() if usual.info.saves else 0)
    except StorageFull as full:
        frugal()(args, done=full.done)
        return True
    return False
