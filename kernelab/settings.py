"""The settings of a program: one frozen object, which `kernelab.config` reads and replaces.

What the main thread sets holds in every thread; what another thread, or a block, sets holds there alone.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Literal, TypeVar

from kernelab.data_classes import dataclass, replace

T = TypeVar("T")

Policy = Literal["save", "warn", "error"]
"""What a tape does where an array is overwritten that an adjoint needs."""

Check = Literal["full"]
"""What a checked launch looks for: all that there is to find."""


NegativeIndex = Literal["warn", "wrap", "error"]
"""What a computed index below zero does: counts from the end, with or without a warning, or is an error."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that `kernelab.config` documents; `overwrite` is the default policy of tapes.

    A thread of an adjoint that would save more than `loop_memory` bytes keeps checkpoints: beyond some
    megabytes another run of a short iteration costs about as much as the memory that it spares.
    """

    overwrite: Policy = "save"
    loop_memory: int = 64 << 20
    kept_memory: int | None = None
    enable_backward: bool = True
    check: Check | None = None
    check_races: bool = False
    deterministic: bool = False
    quick_builds: bool = True
    idle_builds: bool = True
    vector_code: bool = True
    threads: int | None = None
    print_launches: bool = False
    live_tapes: bool = True
    negative_index: NegativeIndex = "warn"


LIVE = "KERNELAB_LIVE_TAPES"
"""The environment variable that turns live tapes off, as `0`, for notebooks that run in batch."""

_AT_FIRST = Settings(live_tapes=os.environ.get(LIVE, "").strip().lower() not in ("0", "false", "no", "off"))
SETTINGS: ContextVar[Settings] = ContextVar("kernelab settings")
"""The settings of a block or a thread that has its own."""

_get: Any = partial(SETTINGS.get, _AT_FIRST)
settings: Callable[[], Settings] = _get
"""Returns the settings of the current context, else those of the program; in C, since each launch asks."""


@contextmanager
def during(variable: ContextVar[T], value: T) -> Iterator[None]:
    """A context in which a variable of the current context has another value."""
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)


def changed_settings(**changed: Any) -> AbstractContextManager[None]:
    """Replace some of the settings of the current context for a while."""
    return during(SETTINGS, replace(settings(), **changed))


def change_settings(**changed: Any) -> None:
    """Replace some of the settings: those of the program, unless the current context has its own."""
    chosen = replace(settings(), **changed)
    has_own = SETTINGS.get(None) is not None
    if not has_own and threading.current_thread() is threading.main_thread():
        _get.__setstate__((SETTINGS.get, (chosen,), {}, {}))
    else:
        SETTINGS.set(chosen)
