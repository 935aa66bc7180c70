"""The memory that a launch may keep, and how a program runs within it."""

import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from kernelab.backend.common.backends import Args, Entry, StorageFull
from kernelab.settings import settings

FRESH = 0.25
"""For how many seconds it is remembered how much memory is free."""

LEAST = 1 << 20
"""What a launch may keep however little is free: so little is not what memory runs out of."""


def run_within_budget(usual: Entry, frugal: Callable[[], Entry], args: Args) -> bool:
    """Run a program, and another of the same function where it saves too much; whether it did.

    Raises KernelMemoryError where it keeps more than a launch may.
    """
    saves, room = usual.info.layout.arena is not None, room_to_keep()
    try:
        usual(args, settings().loop_memory if saves else 0, room=room or 0)
    except StorageFull as full:
        frugal()(args, done=full.done, room=room or 0)
        return True
    return False


def room_to_keep(kept: int = 0) -> int | None:
    """The number of bytes that may be kept from now on besides those `kept` already, None for any number."""
    wanted = settings().kept_memory
    if wanted is not None:
        return max(wanted - kept, 0) if wanted else None
    # Asked for now and then only: a query takes as long as a small launch.
    free = _free_memory_at(time.monotonic() // FRESH)
    return None if free is None else max(LEAST, free // 2)


@lru_cache(maxsize=1)
def _free_memory_at(_: float) -> int | None:
    return free_memory()


def free_memory() -> int | None:
    """The free memory of the machine or of the container around the process in bytes; None if unknown."""
    lines = _text("/proc/meminfo").splitlines()
    machine = [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return min([*machine, *_free_of_container()], default=None)


def _free_of_container() -> list[int]:
    """The free memory in bytes under the limits of control groups of both versions."""
    places = (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    )
    found = [(_text(limit).strip(), _text(used).strip()) for limit, used in places]
    return [max(0, int(limit) - int(used)) for limit, used in found if limit.isdigit() and used.isdigit()]


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError:  # no such file on this machine
        return ""
