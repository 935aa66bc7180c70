"""Which device the tests of devices use: a simulated one, or with ``KERNELAB_TEST_GPU=1`` a GPU.

Both note what they are asked to launch and to copy, and which memory they have handed out.
"""

import os
from collections.abc import Callable

from kernelab.backend.cuda.nvidia import Driver
from tests.support.simulated import SimulatedDriver

VARIABLE = "KERNELAB_TEST_GPU"
ON_GPU = os.environ.get(VARIABLE) == "1"


class WatchedGpu(Driver):
    """The first GPU of this machine, with a stream of its own for each object."""

    def __init__(self) -> None:
        super().__init__(0)
        self.taken: dict[int, int] = {}
        self.launches: list[tuple[int, int]] = []
        self.copies: list[str] = []
        self.replays = 0

    def allocate(self, nbytes: int) -> int:
        address = super().allocate(nbytes)
        self.taken[address] = nbytes
        return address

    def free(self, address: int) -> None:
        del self.taken[address]
        super().free(address)

    def upload(self, address: int, source: int, nbytes: int) -> None:
        self._noted("up", super().upload, address, source, nbytes)

    def download(self, target: int, address: int, nbytes: int) -> None:
        self._noted("down", super().download, target, address, nbytes)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self._noted("across", super().copy, target, source, nbytes)

    def _noted(self, name: str, copy: Callable[..., None], *arguments: object) -> None:
        """Copy, and note it once: not also the copies that it consists of."""
        self.copies.append(name)
        count = len(self.copies)
        copy(*arguments)
        del self.copies[count:]

    def replay(self, graph: object, stream: int = 0) -> None:
        self.replays += 1
        super().replay(graph, stream)

    def launch(
        self, function: object, blocks: int, threads: int, slots: bytes, status: int, stream: int = 0
    ) -> None:
        self.launches.append((blocks, threads))
        super().launch(function, blocks, threads, slots, status, stream)


Watched = WatchedGpu | SimulatedDriver


def open_device(nbytes: int = 64 << 20) -> Watched:
    """A device of the chosen kind; a simulated one has so many bytes of memory."""
    return WatchedGpu() if ON_GPU else SimulatedDriver(nbytes)
