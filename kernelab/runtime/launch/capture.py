"""Captures launches as a CUDA graph that is replayed as one.

While launches are captured none of them runs: the driver notes them, one after another, and with them what
clears and copies memory.  The graph keeps all memory that it touches.  What needs the host in between cannot
be captured, and is an error that says what to do.  Knows spaces and the recorder; must not know kernels.
"""

from kernelab.backend.cuda.launch_config import current_stream
from kernelab.backend.cuda.pending_launches import PendingGraph, PendingLaunch
from kernelab.backend.cuda.workspace import Scratch
from kernelab.errors import Diagnostic, LaunchError
from kernelab.lang.types import uint8
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import described
from kernelab.runtime.context.recorder import RECORDER, caller
from kernelab.runtime.memory.device import Device, get_device
from kernelab.runtime.memory.spaces import OPEN, Capture, Space
from kernelab.runtime.memory.streams import Stream, flowing, stream_of


class Graph:
    """Launches of a device, captured: `capture_launch` runs them again, on the same memory."""

    def __init__(self, space: Space, made: object, capture: Capture, launches: list[PendingLaunch]) -> None:
        self.device = Device(space.name)
        self._space = space
        self._made: object = made
        self._capture = capture
        self._launches = launches
        self._lent, space.backend.lent = space.backend.lent, []

    def __repr__(self) -> str:
        count = len(self._launches)
        return f"<graph of {count} launch{'es' * (count != 1)} on {self.device}>"

    def __len__(self) -> int:
        return len(self._launches)

    def __del__(self) -> None:
        release(self._space, self._lent)
        for launch in self._launches:
            self._space.backend.pending.give_back(launch.block)

    def launch(self, stream: Stream | None = None) -> None:
        """Run the launches again, in a stream if one is given; what they change counts as written."""
        if RECORDER.get() is not None:
            message = "a tape cannot see what the launches of a graph do"
            hint = "capture the tape's launches and tape.backward() together, and run the graph outside of it"
            raise LaunchError(Diagnostic(message, caller().span, "capture", hint=hint))
        space, capture = self._space, self._capture
        space.require_free("a graph is started")
        space.backend.pending.require_alive()
        memories = list(capture.touched)
        for memory in memories:
            memory.flush()
        for memory in capture.changed:
            memory.will_write(array.over(memory, 0, (memory.nbytes,), (1,), uint8))
        with flowing(stream):
            number = current_stream(space.name)
            space.stream_sync.before(memories, number)
            space.driver.replay(self._made, space.backend.stream())
            if self._launches:
                space.backend.pending.add(PendingGraph(self._launches, number, caller(), self))
            space.ran(memories, number)
        for memory in capture.changed:
            memory.changed_there()


def release(space: Space, lent: list[Scratch]) -> None:
    """Give back what a graph has kept, once nothing of it is under way."""
    if not space.takes_back or OPEN.get(space.name) is not space:
        return
    if lent and space.capture is None:
        space.driver.wait_for_all()
    for scratch in lent:
        scratch.release()


def capture_begin(
    device: Device | str | None = None,
    stream: Stream | None = None,
    force_module_load: bool | None = None,
    external: bool = False,
) -> None:
    """Note launches on a device from now on, in place of running them, until `capture_end`.

    Whatever stream they are given to, they come one after another.  `force_module_load` has no effect: a
    kernel is built when it is first launched, which has to be before the capture.  Raises LaunchError for the
    CPU, where launches are captured already, and for `external`: kernelab joins no capture of others.
    """
    space = _space(device if stream is None else stream_of(stream).device)
    if external:
        message = "kernelab cannot join a capture that another library has begun"
        hint = "capture kernelab's launches on their own: with kl.ScopedCapture() as capture"
        raise LaunchError(Diagnostic(message, caller().span, "capture", hint=hint))
    space.require_free("a capture begins")
    space.synchronize()
    for memory in space.living():
        memory.flush()
        memory.used.clear()
    space.driver.wait_for_all()
    space.capture = Capture()
    space.backend.pending.captured = []
    space.stream_sync.is_capturing = True
    space.driver.begin_capture()


def capture_end(device: Device | str | None = None, stream: Stream | None = None) -> Graph:
    """The graph of what was captured; raises LaunchError where no capture goes on."""
    space = _space(device if stream is None else stream_of(stream).device)
    capture, launches = space.capture, space.backend.pending.captured
    if capture is None or launches is None:
        message = f"no launches are being captured on {space.name}"
        raise LaunchError(Diagnostic(message, caller().span, "capture", hint="begin: kl.capture_begin()"))
    space.require_mine("a capture ends")
    try:
        made = space.driver.end_capture()
    finally:
        space.capture = space.backend.pending.captured = None
        space.stream_sync.is_capturing = False
    return Graph(space, made, capture, launches)


def capture_launch(graph: object, stream: Stream | None = None) -> None:
    """Run the launches of a graph again, in a stream of its device if one is given.

    What has gone wrong in them is raised by what waits for the device.  Raises LaunchError for what is no
    graph, and while a tape records.
    """
    if not isinstance(graph, Graph):
        message = f"capture_launch takes a graph, not {described(graph)}"
        hint = "with kl.ScopedCapture() as capture: ... makes one: capture.graph"
        raise LaunchError(Diagnostic(message, caller().span, "capture", hint=hint))
    graph.launch(stream)


class ScopedCapture:
    """Capture the launches of a ``with`` block; `graph` then runs them, by ``kl.capture_launch``.

    Nothing in the block runs.  Raises LaunchError as `capture_begin` does, and for what cannot be captured:
    the host looking at arrays of the device, kernels that were never launched before.
    """

    def __init__(
        self,
        device: Device | str | None = None,
        stream: Stream | None = None,
        force_module_load: bool | None = None,
        external: bool = False,
    ) -> None:
        self._device = get_device(device) if stream is None else stream_of(stream).device
        self._stream = stream
        self._external = external
        self.active = False
        self.graph: Graph | None = None

    def __enter__(self) -> "ScopedCapture":
        capture_begin(self._device, self._stream, external=self._external)
        self.active = True
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.active = False
        made = capture_end(self._device)
        self.graph = made if kind is None else None


def _space(device: Device | str | None) -> Space:
    place = get_device(device)
    if place.space is None:
        message = "launches are captured on a CUDA device, and this is the CPU"
        hint = 'name one, kl.ScopedCapture("cuda"); without a GPU run the block itself each time'
        raise LaunchError(Diagnostic(message, caller().span, "capture", hint=hint))
    return place.space
