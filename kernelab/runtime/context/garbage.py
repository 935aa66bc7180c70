"""Pauses Python's garbage collector during compilation, which keeps most of the objects that it creates."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def put_off() -> Iterator[None]:
    """Within the block, or the function that this decorates, Python does not look for garbage.

    Where several threads are in such blocks, the first to leave lets it look again.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
