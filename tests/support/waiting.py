"""Waits for what another thread or process does."""

import time
from collections.abc import Callable
from typing import Any


def wait_for(happened: Callable[[], Any]) -> None:
    """Return when something has happened; fail where it does not happen at all."""
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)
