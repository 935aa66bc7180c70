"""Pauses Python's garbage collector during compilation, which keeps most of the objects that it creates."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_put_off_here = False
"""Whether a block of kernelab's has put the search off, and not its user."""


@contextmanager
def put_off() -> Iterator[None]:
    """Within the block, or the function that this decorates, Python does not look for garbage.

    Where several threads are in such blocks, the first to leave lets it look again.
    """
    global _put_off_here
    if not gc.isenabled():
        yield
        return
    gc.disable()
    _put_off_here = True
    try:
        yield
    finally:
        _put_off_here = False
        gc.enable()


@contextmanager
def as_the_user_has_it() -> Iterator[None]:
    """Within the block, which runs code of the user's, it looks for garbage unless the user put it off."""
    global _put_off_here
    if not _put_off_here:
        yield
        return
    _put_off_here = False
    gc.enable()
    try:
        yield
    finally:
        gc.disable()
        _put_off_here = True
