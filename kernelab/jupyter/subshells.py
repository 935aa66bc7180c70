"""Comms whose messages are answered on the thread of their subshell, while a cell runs.

Knows ipykernel's comms and Python's pending calls; must not know what is asked.
"""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LONGEST = 0.1
"""Seconds that a cell waits for an answer at most: it may hold a lock that the answer needs."""


class Pause:
    """Lets the thread that runs cells wait while another thread answers.

    Beside a cell that computes in Python an answer has the interpreter's lock in every second interval, and
    waits longer where the cell holds the lock but has no processor.  The cell would lose the answer's time in
    any case, so it waits for the answer as a whole.  A cell in C or in a system call is not stopped.
    """

    def __init__(self) -> None:
        self.answering = threading.Lock()
        self.is_due = False

    @contextmanager
    def cells(self) -> Iterator[None]:
        """Cells wait until the block has ended; where another thread answers already, they wait for that."""
        if not self.answering.acquire(blocking=False):
            yield
            return
        try:
            if not self.is_due:
                self.is_due = True
                api = ctypes.pythonapi
                # The interpreter calls it on the main thread, between two instructions.  It takes a function
                # of C; this one calls __bool__ and hands on what that raises, which a callback would not.
                if api.Py_AddPendingCall(api.PyObject_IsTrue, ctypes.py_object(self)) != 0:
                    self.is_due = False  # too many others are due
            yield
        finally:
            self.answering.release()

    def __bool__(self) -> bool:
        """Wait for the answer; an interrupt ends this like anything else in the cell.  False is success."""
        self.is_due = False
        if self.answering.acquire(timeout=LONGEST):
            self.answering.release()
        return False


PAUSE = Pause()


def answer_beside_cells(comm: Any) -> None:
    """Answer each message on the thread that it comes to, as if no cell had run for it.

    A comm triggers IPython's events of a cell around each message.  On another thread these would reach into
    the cell that runs: Matplotlib would send its figures then, as an output of no cell.
    """
    # Since 7.3 ipykernel hands a page's message to the thread that last sent to it, which may be busy.
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda data, default: default
    with_events = comm.handle_msg

    def handle(message: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            with_events(message)
        elif comm._msg_callback is not None:
            with PAUSE.cells():
                comm._msg_callback(message)

    comm.handle_msg = handle
