"""Comms whose messages are answered on the thread of their subshell, while a cell runs.

Knows ipykernel's comms; must not know what is asked.
"""

import threading
from typing import Any


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
            comm._msg_callback(message)

    comm.handle_msg = handle
