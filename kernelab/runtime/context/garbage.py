"""Pauses Python's garbage collector during compilation, which keeps most of the objects that it creates."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_LOCK = Lock()
_blocks = 0
"""How many blocks of kernelab's run, in all threads, for which the search was put off."""


@contextmanager
def put_off() -> Iterator[None]:
    """Within the block, or the function that this decorates, Python does not look for garbage.

    Where several threads are in such blocks, the last to leave lets it look again.
    """
    if not gc.isenabled() and not _blocks:  # its user has put it off
        yield
        return
    _count(1)
    try:
        yield
    finally:
        _count(-1)


@contextmanager
def as_the_user_has_it() -> Iterator[None]:
    """Within the block, which runs code of the user's, it looks for garbage unless the user put it off."""
    if not _blocks:
        yield
        return
    gc.enable()
    try:
        yield
    finally:
        _count(0)


def _count(entered: int) -> None:
    """Change the number of blocks; Python looks for garbage while there are none."""
    global _blocks
    with _LOCK:
        _blocks += entered
        if _blocks:
            gc.disable()
        else:
            gc.enable()
