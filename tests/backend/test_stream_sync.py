"""Streams that wait for each other while somebody else does so, between two calls of the driver."""

from kernelab.backend.cuda.synchronisation import EventPool
from tests.support.simulated import SimulatedDriver


class Interrupted(SimulatedDriver):
    """A device on which memory is given back whenever an event is recorded in the stream 7."""

    def __init__(self) -> None:
        super().__init__(1 << 16)
        self.places: dict[int, int] = {}
        self.waits: list[tuple[int, int]] = []
        self.events = EventPool(self)

    def record(self, event: int, stream: int) -> None:
        self.places[event] = stream
        if stream == 7:
            self.events.hold(0, 8)

    def hold(self, stream: int, event: int) -> None:
        self.waits.append((stream, self.places[event]))


def test_each_waits_for_the_stream_that_it_means() -> None:
    driver = Interrupted()
    for _ in range(2):
        driver.events.hold(3, 7)
    assert driver.waits == [(0, 8), (3, 7)] * 2 and len(driver.places) == 2
