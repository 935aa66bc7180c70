"""Devices that are there for a while, under the names that users know; they watch their mirrors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kernelab.backend.cuda.nvidia import Driver
from kernelab.runtime.context.conversion import checksum
from kernelab.runtime.memory.spaces import OPEN, DeviceAllocation, Space


class Watched(DeviceAllocation):
    """Memory of a device that makes sure that nobody writes into a mirror that has been given up."""

    __slots__ = ("_sum",)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._sum: int | None = None

    def flush(self) -> None:
        self._require_untouched()
        super().flush()
        self._remember()

    def _fetch(self) -> None:
        self._require_untouched()
        super()._fetch()
        self._remember()

    def _remember(self) -> None:
        self._sum = checksum(self._image()[: self.nbytes]) if self._newer == "both" else None

    def _require_untouched(self) -> None:
        if self._sum is not None and self._newer == "both":
            message = "memory of a device was written through a view that had been given up"
            assert self._sum == checksum(self._image()[: self.nbytes]), message


class WatchfulSpace(Space):
    """The memory of a device, all of it watched."""

    kind = Watched


@contextmanager
def opened(*drivers: Driver) -> Iterator[None]:
    """Within it the drivers are those of ``cuda:0``, ``cuda:1``, and so on."""
    names = [f"cuda:{k}" for k in range(len(drivers))]
    for name, driver in zip(names, drivers, strict=True):
        OPEN[name] = WatchfulSpace(name, driver)
    try:
        yield
    finally:
        for name in names:
            del OPEN[name]
