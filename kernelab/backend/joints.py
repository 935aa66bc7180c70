"""Events by which one stream waits for what another has been given so far, each in one use at a time.

Whoever lets go of memory makes streams wait, too, and Python lets go of it anywhere: between two calls of the
driver, and in other threads.  An event that all shared would then be recorded anew before it was waited for.
Knows the driver's protocol.
"""

from kernelab.backend.driver import Driver


class Joints:
    """The events of a device with which streams are joined."""

    __slots__ = ("_driver", "_idle")

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._idle: list[int] = []

    def hold(self, stream: int, other: int, waiting: Driver | None = None) -> None:
        """Let a stream, of the device `waiting` if one is given, wait for another of this device."""
        try:
            event = self._idle.pop()
        except IndexError:
            event = self._driver.open_event(timed=False)
        self._driver.record(event, other)
        (waiting or self._driver).hold(stream, event)
        self._idle.append(event)
