"""Python's search for garbage, put off while programs are made: most of what is made then stays."""

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
