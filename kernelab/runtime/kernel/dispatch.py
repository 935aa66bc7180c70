"""Builds programs, and runs them on the device of their arguments, within the memory that a launch may keep.

The device is the CPU, or the CUDA device that holds all arrays.  A program is built for a device when it
first runs there, or ahead of that in the background.  Knows packed launches and spaces; must not know
kernels.
"""

import time
import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelab.backend.common.backends import Args, Entry, Part, StorageFull, slots_of
from kernelab.backend.common.reach import reach_of
from kernelab.backend.cpu.cpu_backend import CpuEntry
from kernelab.backend.cuda.launch_config import current_stream
from kernelab.codegen.cpp.entry import EntryInfo, layout_of
from kernelab.data_classes import dataclass
from kernelab.errors import Diagnostic, LaunchError, Span
from kernelab.lang.ir import Function
from kernelab.passes.common.scalarise import scalarise
from kernelab.runtime.context.conversion import HostArray
from kernelab.runtime.context.garbage import put_off
from kernelab.runtime.context.recorder import caller, refusal
from kernelab.runtime.memory.device import CPU
from kernelab.runtime.memory.spaces import OPEN, DeviceAllocation, Space
from kernelab.settings import settings

if TYPE_CHECKING:
    from kernelab.backend.cuda.cuda_backend import Compiled, CudaEntry
    from kernelab.passes.common.shadow_values import Poisoned

MOST_KNOWN = 16
"""The launches whose allocations are remembered."""


class Held(NamedTuple):
    """The allocations that hold the arrays of a launch, and how many there had been on devices until then."""

    owners: list[tuple[str, weakref.ref[DeviceAllocation]]]
    allocated: int


def place(function: Function, threads: int = 0) -> "Placed":
    """The entry of a scalarised function, wherever it will run; `threads` are those of its first launch.

    It is built for the CPU at once, unless CUDA devices are in use.  Raises BuildError.
    """
    placed = Placed(function)
    if not OPEN:
        placed.on_cpu(threads)
    return placed


class Placed:
    """A program with an entry for each place where it has run; `compiled` is what was compiled ahead."""

    __slots__ = ("_cpu", "_devices", "_enter", "_known", "_layout", "compiled", "function")

    def __init__(self, function: Function) -> None:
        self.function = function
        self._layout = layout_of(function)
        self._cpu: Entry | None = None
        self._enter: Callable[[Args], bool] | None = None
        self._devices: dict[Space, CudaEntry] = {}
        self.compiled: dict[Space, Compiled] = {}
        self._known: dict[tuple[int, ...], Held] = {}

    @property
    def info(self) -> EntryInfo:
        """Facts of the program that callers need; they depend on the device only in the lines of its text."""
        if self._cpu is None and self._devices:
            return next(iter(self._devices.values())).info
        return (self._cpu or self.on_cpu()).info

    def __call__(self, args: Args, /, limit: int = 0, room: int = 0, left: Sequence[Part] = ()) -> None:
        """Run where the arrays are; raises LaunchError where they are not all in one place."""
        if OPEN:
            by_name = self._held(slots_of(args))
            if by_name:
                self._run(by_name, args, limit, room)
                return
            self._require_no_capture()
        entry = self._cpu or self.on_cpu()
        if limit or room or left:
            entry(args, limit, room, left)
        elif self._enter is None or not self._enter(args):
            entry(args)
            self._enter = entry.enter if isinstance(entry, CpuEntry) else None

    def on_cpu(self, threads: int = 0) -> Entry:
        if self._cpu is None:
            self._cpu = CPU.backend.build([self.function], threads)[self.function.name]
        return self._cpu

    def on(self, space: Space) -> "CudaEntry":
        """The entry for a device."""
        if space not in self._devices:
            if space.capture is not None:
                message = f"`{self.function.name}` is not built for {space.name} yet: it cannot be captured"
                hint = "run the block before it is captured, twice where it adds to gradients"
                raise LaunchError.of(message, "capture", hint, self.function.span)
            functions = [self.function]
            compiled = self.compiled.pop(space, None) or space.backend.compile(functions)
            entry: Any = space.backend.load(functions, compiled)[self.function.name]
            self._devices[space] = entry
        return self._devices[space]

    def _require_no_capture(self) -> None:
        for space in OPEN.values():
            if space.capture is not None and not space.is_captured_elsewhere:
                name = self.function.name
                message = f"`{name}` runs on the CPU while launches on {space.name} are captured"
                hint = (
                    "it would run now, and not with the graph: move it out of the block, or its arrays there"
                )
                raise refusal(LaunchError, message, "capture", hint)

    # ---------------------------------------------------------------------------------------- on a device

    def _held(self, slots: Sequence[int]) -> dict[str, DeviceAllocation]:
        """The allocation of each array, by the name of its parameter, if they are a device's.

        Those of recent launches are known again while they live: no other memory has their addresses then.
        What was the host's stays so until a device has new memory.
        """
        key = tuple(slots)
        cached = self._known.get(key)
        if cached is not None:
            living = {name: owner for name, ref in cached.owners if (owner := ref()) is not None}
            if len(living) == len(cached.owners) and (living or cached.allocated == Space.allocated):
                return living
        by_name = self._find_held(slots)
        if len(self._known) == MOST_KNOWN:
            self._known.clear()
        owners = [(name, weakref.ref(owner)) for name, owner in by_name.items()]
        self._known[key] = Held(owners, Space.allocated)
        return by_name

    def _find_held(self, slots: Sequence[int]) -> dict[str, DeviceAllocation]:
        owners: dict[str, DeviceAllocation | None] = {}
        for name, reach in reach_of(self._layout, slots).items():
            if reach.low < reach.high:
                owners[name] = _owner(reach.low)
        for param in self._layout.params:
            if param.residual:
                owners[param.name] = _owner(slots[param.slot + 1])
        placed = {name: owner for name, owner in owners.items() if owner is not None}
        if (len(placed) < len(owners) and placed) or len({owner.space for owner in placed.values()}) > 1:
            raise LaunchError(self._apart(owners))
        return placed

    def _apart(self, owners: dict[str, DeviceAllocation | None]) -> Diagnostic:
        places = {name: "cpu" if owner is None else owner.space.name for name, owner in owners.items()}
        first = next(iter(places))
        other = next(name for name in places if places[name] != places[first])
        message = (
            f"the arrays of `{self.function.name}` are on different devices: "
            f"`{first}` on {places[first]}, `{other}` on {places[other]}"
        )
        hint = f'move one of them: {other}.to("{places[first]}")'
        return Diagnostic(message, self.function.span, "device", hint=hint)

    def _run(self, by_name: dict[str, DeviceAllocation], args: Args, limit: int, room: int) -> None:
        space = next(iter(by_name.values())).space
        space.require_mine(f"`{self.function.name}` is launched")
        entry, owners = self.on(space), list(by_name.values())
        for owner in owners:
            owner.flush()
        if space.capture is not None:
            space.capture.touched |= dict.fromkeys(owners)
        stream = current_stream(space.name)
        space.stream_sync.before(owners, 0 if entry.keeps else stream)
        try:
            entry.start(args, limit, room, caller())
        finally:
            space.ran(owners, stream)
            for name in entry.changed & by_name.keys():
                by_name[name].changed_there()
            for param in self._layout.params:
                if param.residual:
                    by_name[param.name].changed_there()


def _owner(address: int) -> DeviceAllocation | None:
    return next((owner for space in OPEN.values() if (owner := space.owner(address)) is not None), None)


# ---------------------------------------------------------------------------------------------------- tracing


@dataclass(frozen=True, slots=True)
class Tracing:
    """A program built so that it finds where values turn NaN or infinite."""

    program: "Poisoned"
    entry: Entry

    def culprit(self, marks: HostArray) -> "Culprit | None":
        """Decode the marks of the threads; the first thread that has one counts."""
        marked = marks.nonzero()[0]
        if not len(marked):
            return None
        thread = int(marked[0])
        site, word = self.program.where_it_began(int(marks[thread]))
        return Culprit(site.span, site.array, site.value, word, thread)


@dataclass(frozen=True, slots=True)
class Culprit:
    """The place where a value became NaN or infinite: the line, the value, and the thread.

    `array` is the parameter whose element was so when it was read there, `value` the number that was passed
    so, if that is how it came.
    """

    span: Span
    array: str
    value: str
    word: str
    thread: int


# ---------------------------------------------------------------------------------------------------- builds


@put_off()
def build(function: Function, threads: int = 0) -> Placed:
    """The entry of a function, ready to run; `threads` are those of its first launch."""
    return place(scalarise(function), threads)


def tracing(program: "Poisoned") -> Tracing:
    """A program that finds where values turn NaN or infinite, ready to run."""
    return Tracing(program, place(program.function))


def ready(function: Function, space: Space | None, threads: int = 0) -> Placed:
    """The entry of a function, built for a device, or for the CPU."""
    placed = build(function, threads)
    if space is None:
        placed.on_cpu(threads)
    else:
        placed.compiled[space] = space.backend.compile([placed.function], ahead=True)
    return placed


def ready_for_many(function: Function) -> Placed:
    """The same for the CPU, with the code that large launches run."""
    placed = ready(function, None)
    has_vectors(placed)
    return placed


def has_vectors(entry: Entry) -> bool:
    """Whether large launches run vector code, which is built now if it is not yet."""
    on_cpu = entry.on_cpu() if isinstance(entry, Placed) else entry
    return isinstance(on_cpu, CpuEntry) and on_cpu.has_vectors


def begin_vectors(entry: Entry, threads: int) -> None:
    """Begin to build, in the background, the vector code that a launch of so many threads waits for."""
    on_cpu = entry.on_cpu() if isinstance(entry, Placed) else entry
    if isinstance(on_cpu, CpuEntry):
        on_cpu.begin_vectors(threads)


# ----------------------------------------------------------------------------------------------------- memory


FRESH = 0.25
"""For how many seconds it is remembered how much memory is free."""

LEAST = 1 << 20
"""What a launch may keep however little is free: so little is not what memory runs out of."""


def run_within_budget(usual: Entry, frugal: Callable[[], Entry], args: Args, kept: int) -> bool:
    """Run a program, and another of the same function where it saves too much; whether it did.

    Raises KernelMemoryError where it keeps more than may be kept besides the bytes `kept` already.
    """
    saves, left = usual.info.layout.arena is not None, room_to_keep(kept)
    room = 0 if left is None else max(left, 1)  # 0 would be any number
    try:
        usual(args, settings().loop_memory if saves else 0, room=room)
    except StorageFull as full:
        frugal()(args, room=room, left=full.left)
        return True
    return False


def may_keep(nbytes: int, kept: int) -> bool:
    """Whether so many bytes may be kept besides those `kept` already."""
    if nbytes <= LEAST and settings().kept_memory is None:
        return True
    room = room_to_keep(kept)
    return room is None or nbytes <= room


def room_to_keep(kept: int = 0) -> int | None:
    """The number of bytes that may be kept from now on besides those `kept` already, None for any number."""
    wanted = settings().kept_memory
    if wanted is not None:
        return max(wanted - kept, 0) if wanted else None
    # Asked for now and then only: a query takes as long as a small launch.
    free = _free_memory_at(time.monotonic() // FRESH)
    return None if free is None else max(LEAST, free // 2)


@lru_cache(maxsize=1)
def _free_memory_at(_: float) -> int | None:
    return free_memory()


def free_memory() -> int | None:
    """The free memory of the machine or of the container around the process in bytes; None if unknown."""
    lines = _text("/proc/meminfo").splitlines()
    machine = [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return min([*machine, *_free_of_container()], default=None)


def _free_of_container() -> list[int]:
    """The free memory in bytes under the limits of control groups of both versions."""
    places = (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    )
    pairs = [(_text(limit).strip(), _text(used).strip()) for limit, used in places]
    return [max(0, int(limit) - int(used)) for limit, used in pairs if limit.isdigit() and used.isdigit()]


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError:  # no such file on this machine
        return ""
