"""Devices that are there for a while, under the names that users know."""

from collections.abc import Iterator
from contextlib import contextmanager

from kernelab.backend.cuda.nvidia import Driver
from kernelab.runtime.memory.spaces import OPEN, Space


@contextmanager
def opened(*drivers: Driver) -> Iterator[None]:
    """Within it the drivers are those of ``cuda:0``, ``cuda:1``, and so on."""
    names = [f"cuda:{k}" for k in range(len(drivers))]
    for name, driver in zip(names, drivers, strict=True):
        OPEN[name] = Space(name, driver, watchful=True)
    try:
        yield
    finally:
        for name in names:
            del OPEN[name]
