"""CUDA streams and events, and page-locked memory of the host.

A launch has been put into its stream when it returns; memory that several streams use is ordered by
`backend/cuda/synchronisation.py`.  Knows spaces and their drivers; must not know arrays or kernels.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import Token
from typing import Any, TypeVar
from weakref import finalize

from kernelab.backend.cuda.launch_config import DEFAULT_CONFIG, LAUNCH_CONFIG, STREAMS, LaunchConfig
from kernelab.backend.cuda.nvidia import Driver
from kernelab.backend.cuda.synchronisation import LEGACY
from kernelab.errors import KernelMemoryError, LaunchError, a_thing, with_article
from kernelab.guidance.bad_calls import explains_bad_calls
from kernelab.runtime.context.recorder import refusal
from kernelab.runtime.memory.device import DEFAULT, Device, get_cuda_devices, get_device
from kernelab.runtime.memory.memory import Allocation, copy_bytes
from kernelab.runtime.memory.spaces import OPEN, Capture, Space
from kernelab.settings import during

Kind = TypeVar("Kind")


class Stream:
    """A queue of a CUDA device: its work runs in order, and concurrently with that of other streams.

    `cuda_stream` is the address of a stream of another library, ``torch.cuda.current_stream().cuda_stream``,
    which has to live as long as this object.  Raises LaunchError for the CPU, which has no streams.
    """

    @explains_bad_calls(priority="leave it out", positional="write kl.Stream(device): it has no priority")
    def __init__(self, device: Device | str | None = None, *, cuda_stream: int | None = None) -> None:
        place, space = _cuda(device, "a stream")
        self.device = place
        self._driver, self._space = space.driver, space
        self.number = space.stream_sync.open() if cuda_stream is None else int(cuda_stream) or LEGACY
        """The driver's number of it; 0 is the device's own stream."""
        if cuda_stream is None:
            _close_with(self, space, space.close_stream)

    @classmethod
    def _own(cls, device: Device | str | None) -> "Stream":
        """The stream in which a device works where nothing else is said."""
        stream = cls.__new__(cls)
        stream.device, space = _cuda(device, "a stream")
        stream._driver, stream._space, stream.number = space.driver, space, 0
        return stream

    def __repr__(self) -> str:
        return f"<stream {self.number:#x} of {self.device}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.device, self.number) == (other.device, other.number)

    def __hash__(self) -> int:
        return hash((self.device, self.number))

    @property
    def cuda_stream(self) -> int:
        """The driver's number of it."""
        return self.number

    @property
    def is_complete(self) -> bool:
        """Whether all that was put into it has ended; raises LaunchError while launches are captured."""
        self._space.require_free("a stream is looked at")
        return self._driver.finished(self.number)

    def record_event(self, event: "Event | None" = None) -> "Event":
        """Record an event, a new one unless given, that completes after all work now in the stream."""
        target = Event(self.device) if event is None else event
        _require_same(target.device, self.device, "an event is recorded")
        self._space.require_mine("an event is recorded")
        target._within = self._space.capture
        if target._within is None:
            self._driver.record(target.number, self.number)
        else:
            self._require_own("an event is recorded in a stream of another library")
        return target

    def _require_own(self, what: str) -> None:
        """Raise LaunchError in a capture, in which streams of other libraries take no part."""
        if self.number and not self._space.stream_sync.is_open(self.number):
            self._space.require_free(what)

    def wait_event(self, event: "Event") -> None:
        """Make later work in the stream wait for an event, which may be of another device.

        Captured launches wait for those before them anyhow, and for all that came before the capture.  Raises
        LaunchError for an event that was recorded in another capture, or then for one of another device.
        """
        self._space.require_mine("a stream is to wait")
        capture = self._space.capture
        if capture is None or _event(event)._within is not capture:
            _event(event)._require_outside()
        if capture is None:
            self._driver.hold(self.number, event.number)
            return
        self._require_own("a stream of another library is to wait")
        if event.device != self.device:
            self._space.require_free(f"a stream is to wait for {event.device}")

    def wait_stream(self, other: "Stream", event: "Event | None" = None) -> None:
        """Make later work in the stream wait for all work now in another stream."""
        self.wait_event(stream_of(other).record_event(event))

    def synchronize(self) -> None:
        """Return when all that is in the stream has ended; raises what went wrong in launches there."""
        self._space.synchronize(self.number)


class Event:
    """A moment in a stream: others wait for it, and with `enable_timing` it notes the time.

    Raises LaunchError for the CPU, which has no streams.
    """

    @explains_bad_calls()
    def __init__(self, device: Device | str | None = None, *, enable_timing: bool = False) -> None:
        self.device, space = _cuda(device, "an event")
        self.enable_timing = bool(enable_timing)
        self._space = space
        self._driver: Driver = space.driver
        self.number = self._driver.open_event(self.enable_timing)
        """The driver's number of it."""
        _close_with(self, space, self._driver.close_event)
        self._within: Capture | None = None
        """The capture in which it was last recorded: then it happens in a graph."""

    def __repr__(self) -> str:
        return f"<event of {self.device}>"

    def _require_outside(self) -> None:
        """Raise LaunchError where it was recorded in a capture: outside of the graph it never happens."""
        if self._within is not None:
            message = "this event was recorded while launches were captured: it is a part of their graph"
            hint = "record one behind kl.capture_launch(graph): kl.record_event()"
            raise refusal(LaunchError, message, "capture", hint)

    @property
    def cuda_event(self) -> int:
        """The driver's number of it."""
        return self.number

    @property
    def is_complete(self) -> bool:
        """Whether it has happened since it was last recorded."""
        self._require_outside()
        return self._driver.happened(self.number)

    def synchronize(self) -> None:
        """Return when it has happened; raises what went wrong in launches by then."""
        self._require_outside()
        self._driver.wait_for(self.number)
        self._space.backend.pending.check()


class ScopedStream:
    """Run the launches of a ``with`` block in a stream, on whose device new arrays are made.

    With `sync_enter` the stream first waits for the one that was in use, with `sync_exit` that one waits for
    it afterwards.  None changes nothing.
    """

    def __init__(self, stream: Stream | None, sync_enter: bool = True, sync_exit: bool = False) -> None:
        self.stream = None if stream is None else stream_of(stream)
        self._sync_enter, self._sync_exit = sync_enter, sync_exit
        self._tokens: list[tuple[Stream, Token[Any], Token[Device]]] = []

    def __enter__(self) -> Stream | None:
        stream = self.stream
        if stream is None:
            return None
        before = get_stream(stream.device)
        if self._sync_enter:
            stream.wait_stream(before)
        self._tokens.append((before, STREAMS.set(_streams_with(stream)), DEFAULT.set(stream.device)))
        return stream

    def __exit__(self, *_: object) -> None:
        if self.stream is None:
            return
        before, streams, device = self._tokens.pop()
        DEFAULT.reset(device)
        STREAMS.reset(streams)
        if self._sync_exit:
            before.wait_stream(self.stream)


def get_stream(device: Device | str | None = None) -> Stream:
    """The stream in which launches on a device run now; raises LaunchError for the CPU."""
    own = Stream._own(device)
    number = STREAMS.get().get(own.device.name, 0)
    return Stream(own.device, cuda_stream=number) if number else own


def set_stream(stream: Stream, device: Device | str | None = None, sync: bool = False) -> None:
    """Run launches on the stream's device in it from now on; with `sync` it first waits for the one before.

    The stream has to live as long as it is in use.  Raises LaunchError where it is not of `device`.
    """
    place = stream_of(stream).device
    if device is not None:
        _require_same(get_device(device), place, "a stream is set")
    if sync:
        stream.wait_stream(get_stream(place))
    STREAMS.set(_streams_with(stream))
    _KEPT[place.name] = stream


_KEPT: dict[str, Stream] = {}


def record_event(event: Event | None = None) -> Event:
    """Record an event, a new one unless given, in the stream in use of its device, or of the default one."""
    return get_stream(None if event is None else _event(event).device).record_event(event)


def wait_event(event: Event) -> None:
    """Make launches in the current stream of the default device wait for an event."""
    get_stream().wait_event(event)


def wait_stream(other_stream: Stream, event: Event | None = None) -> None:
    """Make launches in the current stream of the default device wait for all work in another stream."""
    get_stream().wait_stream(other_stream, event)


def synchronize_event(event: Event) -> None:
    """Return when an event has happened."""
    _event(event).synchronize()


def synchronize_stream(stream_or_device: Stream | Device | str | None = None) -> None:
    """Return when all that is in a stream, or in the one in use of a device, has ended."""
    chosen = stream_or_device
    (chosen if isinstance(chosen, Stream) else get_stream(chosen)).synchronize()


def get_event_elapsed_time(start_event: Event, end_event: Event, synchronize: bool = True) -> float:
    """The milliseconds between two events by the device's clock; with `synchronize` it waits for the last.

    Raises LaunchError for events that note no time.
    """
    for event in (start_event, end_event):
        if not _event(event).enable_timing:
            hint = "make it by kl.Event(enable_timing=True)"
            raise LaunchError.of("this event notes no time", "event", hint)
        event._require_outside()
    _require_same(start_event.device, end_event.device, "time is taken between two events")
    if synchronize:
        end_event.synchronize()
    return start_event._driver.elapsed(start_event.number, end_event.number)


def stream_of(argument: object) -> Stream:
    """The stream of an argument; raises LaunchError where it is none."""
    return _require(Stream, argument)


def flowing(stream: Stream | None) -> AbstractContextManager[None]:
    """Run launches in a stream within; None changes nothing."""
    return nullcontext() if stream is None else during(STREAMS, _streams_with(stream))


def configured(config: LaunchConfig) -> AbstractContextManager[None]:
    """Run launches with a launch configuration within; the default leaves that of a launch around them."""
    return nullcontext() if config is DEFAULT_CONFIG else during(LAUNCH_CONFIG, config)


def _close_with(owner: Stream | Event, space: Space, close: Callable[[int], None]) -> None:
    """Give a stream or an event of a driver back when the object that holds its number goes."""

    def given_back(number: int) -> None:
        if space.takes_back:
            close(number)

    finalize(owner, given_back, owner.number).atexit = False


def _event(argument: Event) -> Event:
    return _require(Event, argument)


def _streams_with(stream: Stream) -> Mapping[str, int]:
    return {**STREAMS.get(), stream.device.name: stream.number}


def _cuda(device: Device | str | None, what: str) -> tuple[Device, Space]:
    place = get_device(device)
    if place.space is None:
        named = "the default device is the CPU" if device is None else "the CPU has none"
        made = "kl.Stream" if what == "a stream" else "kl.Event"
        hint = f'name one, {made}("cuda"); without a GPU leave streams and events out: launches run in order'
        raise LaunchError.of(f"{what} is of a CUDA device, and {named}", "device", hint)
    return place, place.space


def _require_same(one: Device, other: Device, what: str) -> None:
    if one != other:
        message = f"{what} on one device, and these are of {one} and {other}"
        raise LaunchError.of(message, "device", f'pass "{other}" where it is made')


def _require(kind: type[Kind], argument: object) -> Kind:
    if isinstance(argument, kind):
        return argument
    message = f"{with_article(kind.__name__.lower())} is needed here, not {a_thing(argument)}"
    raise LaunchError.of(message, "stream", f"make one: kl.{kind.__name__}()")


# ----------------------------------------------------------------------------------------- page-locked memory


class PinnedAllocation(Allocation):
    """Page-locked memory of the host, handed out by the driver of a device and given back to it."""

    __slots__ = ("_keeper",)

    is_pinned = True

    def __init__(self, keeper: Space, nbytes: int) -> None:
        address, _ = keeper.driver.shared(max(nbytes, 1))
        super().__init__(address, nbytes, None)
        self._keeper = keeper

    def __del__(self) -> None:
        if hasattr(self, "_keeper") and self._keeper.takes_back:  # there was memory
            self._keeper.driver.unshare(self.address)


def allocate_pinned(nbytes: int) -> PinnedAllocation | None:
    """New pinned memory, of zeros; None where there is no CUDA device.

    Raises KernelMemoryError where the system locks no more memory.
    """
    if not OPEN and not get_cuda_devices():
        return None
    try:
        return PinnedAllocation(next(iter(OPEN.values())), nbytes)
    except KernelMemoryError as problem:
        message = f"the system locks no {nbytes / 1e9:,.3f} GB of the host's memory in place"
        hint = "make a smaller array, or a usual one: leave pinned=True away"
        raise KernelMemoryError.of(message, "memory", hint) from problem


def pinned_like(memory: Allocation) -> PinnedAllocation | None:
    """A pinned copy of memory of the host; None for a device's, and where there is no device."""
    pinned = allocate_pinned(memory.nbytes) if memory.space is None else None
    if pinned is not None:
        pinned.folded = memory.folded
        copy_bytes(pinned, 0, memory, 0, memory.nbytes)
    return pinned
