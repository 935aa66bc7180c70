"""Interrupts of a notebook's cell, delivered to launches in other threads that the cell has started.

A signal reaches the main thread alone.  So that no launch runs on where nobody can end it, one in another
thread ends, too, while the main thread handles the interrupt of the cell that has started that thread, and
after that.  Threads of earlier cells go on, and so do all outside of notebooks: Python ends none of them.
"""

import sys
import threading
from weakref import WeakSet

OURS = "kernelab "
"""The names of threads that serve all cells begin so."""

_older: WeakSet[threading.Thread] | None = None
"""The threads that the cell which runs has not started; None outside of notebooks."""

_ended: WeakSet[threading.Thread] = WeakSet()
"""The threads that cells which were interrupted have started."""


def cell_begins() -> None:
    """Note that a cell begins: the threads there are now are not its own."""
    global _older
    if _older is None or threading.current_thread() is threading.main_thread():
        _older = WeakSet(threading.enumerate())
    else:  # a cell of another thread, beside one of the main thread
        _older.add(threading.current_thread())


def cell_was_interrupted() -> None:
    """End the launches, now and later, in threads that the cell has started."""
    for thread in threading.enumerate():
        if _older is not None and thread not in _older and not thread.name.startswith(OURS):
            _ended.add(thread)


def leave_notebook() -> None:
    """End no launches any more."""
    global _older
    _older = None
    _ended.clear()


def end_if_interrupted() -> None:
    """Raise KeyboardInterrupt in a thread whose cell is interrupted."""
    if _older is None or threading.get_ident() == threading.main_thread().ident:
        return
    thread = threading.current_thread()
    is_of_cell = thread not in _older and not thread.name.startswith(OURS)
    if thread in _ended or (is_of_cell and _main_thread_is_interrupted()):
        raise KeyboardInterrupt


def _main_thread_is_interrupted() -> bool:
    """Whether the main thread handles an interrupt, as while it waits for the threads of a pool to end."""
    error = sys._current_exceptions().get(threading.main_thread().ident or 0)
    return isinstance(error[1] if isinstance(error, tuple) else error, KeyboardInterrupt)
