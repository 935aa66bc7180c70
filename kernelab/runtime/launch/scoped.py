"""Blocks of host code that are timed, named on a tape, run on a device, or captured as a CUDA graph.

While launches are captured none of them runs: the driver notes them, one after another, and with them what
clears and copies memory.  The graph keeps all memory that it touches.  What needs the host in between
cannot be captured, and is an error that says what to do.  Knows spaces and the recorder; must not know
kernels.
"""

import sys
import time
from contextvars import ContextVar, Token
from typing import Any

from kernelab.backend.cuda.launch_config import Scratch, current_stream
from kernelab.backend.cuda.synchronisation import PendingGraph, PendingLaunch
from kernelab.errors import LaunchError, counted
from kernelab.guidance.bad_calls import explains_bad_calls
from kernelab.lang.types import uint8
from kernelab.runtime.array.array import numbers_of
from kernelab.runtime.context.conversion import described
from kernelab.runtime.context.recorder import RECORDER, Recorder, caller, refusal
from kernelab.runtime.memory.device import CPU, DEFAULT, Device, get_cuda_devices, get_device
from kernelab.runtime.memory.spaces import OPEN, Capture, Space
from kernelab.runtime.memory.streams import Stream, flowing, stream_of

_DEPTH: ContextVar[int] = ContextVar("kernelab timer depth", default=0)


class ScopedTimer:
    """Time a ``with`` block, print how long it took, and name it on the tape that is recording.

    `elapsed` holds the milliseconds afterwards, and `dict`, where given, gets them appended to a list under
    the name.  `detailed` profiles the block by function; `synchronize` waits for devices before and behind
    it; `skip_tape` leaves the tape alone; nothing happens unless `active`.  `use_nvtx`, `color`,
    `cuda_filter` and `report_func` have no effect.
    ``ScopedTimer.enabled = False`` silences all that are made from then on.
    """

    enabled = True

    @explains_bad_calls()
    def __init__(
        self,
        name: str,
        active: bool = True,
        print: bool = True,
        detailed: bool = False,
        dict: dict[str, list[float]] | None = None,
        use_nvtx: bool = False,
        color: int | str = "rapids",
        synchronize: bool = False,
        cuda_filter: int = 0,
        report_func: Any = None,
        skip_tape: bool = False,
    ) -> None:
        self.name = name
        self.active = active and self.enabled
        self.print = print
        self.elapsed = 0.0
        self.dict = dict
        self.skip_tape = skip_tape
        self.synchronize = synchronize
        self._profile: Any = None
        if detailed:
            from cProfile import Profile  # which takes time to load, as below

            self._profile = Profile()
        self._recorder: Recorder | None = None
        self._began = 0.0

    def __enter__(self) -> "ScopedTimer":
        if not self.active:
            return self
        self._recorder = None if self.skip_tape else RECORDER.get()
        if self._recorder is not None:
            self._recorder.scope_begin(self.name)
        _DEPTH.set(_DEPTH.get() + 1)
        if self.synchronize:
            synchronize()
        if self._profile is not None:
            self._profile.enable()
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.active:
            return
        if self.synchronize:
            synchronize()
        self.elapsed = (time.perf_counter() - self._began) * 1000.0
        if self._profile is not None:
            self._profile.disable()
        _DEPTH.set(_DEPTH.get() - 1)
        if self._recorder is not None:
            self._recorder.scope_end()
        if self.dict is not None:
            self.dict.setdefault(self.name, []).append(self.elapsed)
        self._report()

    def _report(self) -> None:
        indent = "    " * _DEPTH.get()
        if self._profile is not None:
            from pstats import Stats

            Stats(self._profile, stream=sys.stdout).sort_stats("tottime").print_stats(20)
        if self.print:
            sys.stdout.write(f"{indent}{self.name} took {self.elapsed:.2f} ms\n")


class ScopedDevice:
    """Make a device the default for a ``with`` block: arrays that do not say where are made there.

    None keeps the default.  Raises LaunchError for a device that is not there.
    """

    def __init__(self, device: Device | str | None) -> None:
        self.device = get_device(device)
        self._tokens: list[Token[Device]] = []

    def __enter__(self) -> Device:
        self._tokens.append(DEFAULT.set(self.device))
        return self.device

    def __exit__(self, *_: object) -> None:
        DEFAULT.reset(self._tokens.pop())


def set_device(device: Device | str) -> None:
    """Make a device the default, where arrays are made that do not say where.

    Raises LaunchError for one that is not there.
    """
    DEFAULT.set(get_device(device))


def get_preferred_device() -> Device:
    """The device that a program had best run on: the first CUDA device, else the CPU."""
    return next(iter(get_cuda_devices()), CPU)


def synchronize() -> None:
    """Return when every stream of every device has come to its end; raises what went wrong in launches."""
    for space in OPEN.values():
        space.synchronize()


def is_cpu_available() -> bool:
    """Whether kernels can run on the CPU: always."""
    return True


def is_cuda_available() -> bool:
    """Whether kernels can run on a CUDA device."""
    return bool(get_cuda_devices())


# ----------------------------------------------------------------------------------------------------- graphs


class Graph:
    """Launches of a device, captured: `capture_launch` runs them again, on the same memory."""

    def __init__(self, space: Space, handle: object, capture: Capture, launches: list[PendingLaunch]) -> None:
        self.device = Device(space.name)
        self._space = space
        self._handle: object = handle
        self._capture = capture
        self._launches = launches
        self._lent, space.backend.lent = space.backend.lent, []

    def __repr__(self) -> str:
        return f"<graph of {counted(len(self._launches), 'launch')} on {self.device}>"

    def __len__(self) -> int:
        return len(self._launches)

    def __del__(self) -> None:
        release(self._space, self._lent)
        for launch in self._launches:
            self._space.backend.pending.give_back(launch.block)

    def launch(self, stream: Stream | None = None) -> None:
        """Run the launches again, in a stream if one is given; what they change counts as written."""
        if RECORDER.get() is not None:
            hint = "capture the tape's launches and tape.backward() together, and run the graph outside of it"
            raise refusal(LaunchError, "a tape cannot see what the launches of a graph do", "capture", hint)
        space, capture = self._space, self._capture
        space.require_free("a graph is started")
        space.backend.pending.require_alive()
        memories = list(capture.touched)
        for memory in memories:
            memory.flush()
        for memory in capture.changed:
            memory.will_write(numbers_of(memory, uint8))
        with flowing(stream):
            number = current_stream(space.name)
            space.stream_sync.before(memories, number)
            space.driver.replay(self._handle, space.backend.stream())
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


_OF_WARP = {
    "apic": "leave it out: captured launches are not saved in files",
    "capture_mode": "leave it out: there is one way to capture",
}


@explains_bad_calls(**_OF_WARP)
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
        raise refusal(LaunchError, message, "capture", hint)
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
        raise refusal(LaunchError, message, "capture", "begin: kl.capture_begin()")
    space.require_mine("a capture ends")
    try:
        handle = space.driver.end_capture()
    finally:
        space.capture = space.backend.pending.captured = None
        space.stream_sync.is_capturing = False
    return Graph(space, handle, capture, launches)


def capture_launch(graph: object, stream: Stream | None = None) -> None:
    """Run the launches of a graph again, in a stream of its device if one is given.

    What has gone wrong in them is raised by what waits for the device.  Raises LaunchError for what is no
    graph, and while a tape records.
    """
    if not isinstance(graph, Graph):
        hint = "with kl.ScopedCapture() as capture: ... makes one: capture.graph"
        raise refusal(LaunchError, f"capture_launch takes a graph, not {described(graph)}", "capture", hint)
    graph.launch(stream)


class ScopedCapture:
    """Capture the launches of a ``with`` block; `graph` then runs them, by ``kl.capture_launch``.

    Nothing in the block runs.  Raises LaunchError as `capture_begin` does, and for what cannot be captured:
    the host looking at arrays of the device, kernels that were never launched before.
    """

    @explains_bad_calls(**_OF_WARP)
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
        graph = capture_end(self._device)
        self.graph = graph if kind is None else None


def _space(device: Device | str | None) -> Space:
    place = get_device(device)
    if place.space is None:
        message = "launches are captured on a CUDA device, and this is the CPU"
        hint = 'name one, kl.ScopedCapture("cuda"); without a GPU run the block itself each time'
        raise refusal(LaunchError, message, "capture", hint)
    return place.space
