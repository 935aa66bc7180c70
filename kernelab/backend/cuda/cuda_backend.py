"""CUDA devices: generated text, compiled for the device and launched through its driver.

`CudaEntry.start` returns before the launch has ended, unless the host has to see how much it has saved: its
status block, in memory that host and device share, says what went wrong, and is read when somebody waits
(`backend/cuda/synchronisation.py`).  An entry that is called waits.  Knows the driver's protocol and the
launch ABI; must not know arrays or tapes.
"""

import math
import struct
from collections.abc import Sequence

from kernelab.backend.common.backends import (
    Args,
    Entry,
    Part,
    StorageFull,
    kept_error,
    memory_error,
    slots_of,
    thread_text,
    warn_of_wrapped_indices,
)
from kernelab.backend.common.build_cache import Cache, key_of
from kernelab.backend.common.reach import overlapping, repeated
from kernelab.backend.common.tiered import BETTER, Pending, Tiered
from kernelab.backend.cuda.launch_config import (
    LAUNCH_CONFIG,
    Scratch,
    Snapshot,
    Workspace,
    current_stream,
    in_turn,
    is_specializable,
    misaligned,
    threads_of,
    unordered,
)
from kernelab.backend.cuda.nvidia import Driver
from kernelab.backend.cuda.synchronisation import PendingLaunch, PendingLaunches, StreamSync, fields
from kernelab.codegen.cpp.cuda_target import Cuda
from kernelab.codegen.cpp.emitter import emit
from kernelab.codegen.cpp.entry import (
    ABI_VERSION,
    CODE,
    FULL,
    GRID_SLOTS,
    MEMORY,
    OK,
    SITE,
    THREAD,
    WRAPPED,
    EntryInfo,
)
from kernelab.codegen.cpp.wide_accumulators import met_by_all, wide
from kernelab.data_classes import dataclass, replace
from kernelab.errors import BuildError, Diagnostic, KernelMemoryError, LaunchError
from kernelab.lang.build import elem_of
from kernelab.lang.ir import Function
from kernelab.lang.types import HALVES, Array, scalar_of
from kernelab.passes.access.independence import changed, summed
from kernelab.settings import settings

WAVES = 16
"""The most blocks per multiprocessor: beyond, a thread of the device runs several threads of the grid."""

MOST_SLOTS = 4096 // 8 - 1
"""The most slots that a kernel takes as arguments, besides the address of its status block."""

SHARE = 2
"""Saved values of loops take at most one part in `SHARE` of the free memory."""

CHEAP = 64 << 20
"""So many bytes are allocated without asking for the free memory."""

CROWD = 4096
"""So many threads should have room for what their loops keep, before their loops keep checkpoints."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled unit: its entries, its machine code, and the optimised build that is pending, if any."""

    entries: tuple[EntryInfo, ...]
    code: bytes
    better: Pending[bytes] | None


class CudaBackend:
    """Builds functions for one device, through the cache."""

    def __init__(self, driver: Driver, name: str = "cuda:0") -> None:
        self.name = name
        self.driver = driver
        self.cache = Cache()
        self.pending = PendingLaunches(driver, name)
        self.lent: list[Scratch] = []
        """The workspace of launches of the capture that goes on: it belongs to the graph."""
        self.stream_sync = StreamSync(driver)

    def build(self, functions: Sequence[Function], threads: int = 0) -> dict[str, Entry]:
        """An entry for each function, by name; they are scalarised, without calls, and of distinct names.

        Raises BuildError.
        """
        return self.load(functions, self.compile(functions))

    def compile(self, functions: Sequence[Function], ahead: bool = False) -> Compiled:
        """The first half of `build`, which any thread may do, whatever the device does; raises BuildError.

        `ahead` of time it lets a build go first that somebody waits for: NVRTC does little at once.
        """
        unit = emit(functions, Cuda())
        for info in unit.entries:
            if info.layout.slots > MOST_SLOTS:
                message = f"`{info.name}` needs {8 * info.layout.slots:,} bytes of arguments on a CUDA device"
                hint = f"there is room for {8 * MOST_SLOTS:,}: split the kernel, or launch it on the CPU"
                raise BuildError.of(message, "cuda", hint)
        if ahead:
            BETTER.wait_for_urgent_builds()
        with BETTER.urgent():
            return Compiled(unit.entries, *self._code(unit.text))

    def load(self, functions: Sequence[Function], compiled: Compiled) -> dict[str, Entry]:
        """The second half: entries for the functions of what they were compiled to; raises BuildError."""
        return {
            info.name: CudaEntry(self, info, function, self._tiered(info.symbol, compiled))
            for function, info in zip(functions, compiled.entries, strict=True)
        }

    def _tiered(self, symbol: str, compiled: Compiled) -> Tiered:
        return Tiered(symbol, lambda code: self.driver.load(code, symbol), compiled.code, compiled.better)

    def _code(self, text: str) -> tuple[bytes, Pending[bytes] | None]:
        """Machine code, and the better one that is being made meanwhile where this one was made quickly."""
        driver, cache = self.driver, self.cache
        key = key_of(text, driver.identity, "cuda", str(ABI_VERSION))
        if not (settings().quick_builds and driver.hurries):
            return cache.data(key, lambda: driver.compile(text)), None
        cached = cache.known(key)
        if cached is not None:
            return cached, None
        quick = driver.compile(text, quickly=True)
        return quick, BETTER.begin(lambda: cache.data(key, lambda: driver.compile(text)))

    def stream(self) -> int:
        """The stream that the next launch runs in: it waits for what the device's own has to do.

        Captured launches are in the device's own.
        """
        stream = 0 if self.stream_sync.is_capturing else current_stream(self.name)
        if stream:
            self.stream_sync.meet(stream, 0)
        return stream


Dims = tuple[int, int]
"""The blocks, and the threads of a block, that run a grid."""


class CudaEntry:
    """A function of a device; `turns` says why its threads run one after another, "" if they need not."""

    def __init__(self, backend: CudaBackend, info: EntryInfo, function: Function, loaded: Tiered) -> None:
        self.info = info
        self.turns = in_turn(function)
        self.changed = frozenset(var.hint for var in changed(function))
        self._backend = backend
        self._loaded = loaded
        self._workspace = Workspace.of(function)
        self._has_warned = False
        self._function = function
        self._summed = summed(function)
        self._accepted: list[int] = []
        self._unordered = unordered(function)
        joint = [scalar_of(elem_of(stmt.array)) for stmt in met_by_all(function)]
        self._joint = bool(joint)
        self._one_block = any(scalar in HALVES for scalar in joint)
        self._fallback: CudaEntry | None = None
        sums = (stmt.array for stmt in wide(function) if isinstance(stmt.array.type, Array))
        self._narrow = [array.hint for array in sums if scalar_of(elem_of(array)) in HALVES]

    def __call__(self, args: Args, /, limit: int = 0, room: int = 0, left: Sequence[Part] = ()) -> None:
        """Run the threads of the grid, and wait for them; see `start`."""
        assert not left, "a device has run all threads or none"
        self.start(args, limit, room)
        self._backend.pending.synchronize()

    def start(self, args: Args, limit: int = 0, room: int = 0, place: object = "") -> None:
        """Start the threads of the grid; the addresses of arrays are the device's.

        A residual's handle is on the host; it then says where on the device the values are.  `place` is the
        line that launches.  What goes wrong is raised when somebody waits for the device; a launch that needs
        a workspace has ended when this returns: where that was too small, it runs again.  Raises a
        KernelError; StorageFull before anything has changed.
        """
        self._backend.pending.require_alive()
        slots = slots_of(args)
        if slots != self._accepted:
            self._require_aligned(slots)
        if self._narrow:
            self._warn_of_narrow_sums()
        if not self._is_specializable(slots):
            self._fallback_entry(place).start(args, limit, room, place)
            return
        slots += [0] * (self.info.layout.slots - len(slots))  # those of the arena are left to the device
        if not self._workspace.needed:
            self._backend.pending.add(self._launch(slots, self._dims(slots, 0), 0, place))
            return
        if self._backend.pending.captured is not None:
            self._capture(slots, limit, place)
            return
        self._workspace.fit(self.info.layout, threads_of(slots), room)
        snapshot = Snapshot(self._backend.driver, self.info, self.changed, slots)
        try:
            while (status := self._attempt(slots, self._bound(slots, limit), snapshot, place)) is not None:
                if not self._workspace.grow(self.info.layout, threads_of(slots), room):
                    thread = thread_text(status[THREAD], slots[:GRID_SLOTS], self.info.coordinates)
                    raise kept_error(self.info.name, self.info.sites[status[SITE]], thread, room)
        finally:
            snapshot.release()

    def _capture(self, slots: list[int], limit: int, place: object) -> None:
        """Put a launch into a graph, with the workspace that the launches before it needed."""
        workspace, scratch = self._workspace, Scratch(self._backend.driver)
        filled, dims = [*slots], self._dims(slots, workspace.arena)
        try:
            workspace.allocate(self.info.layout, filled, math.prod(dims), threads_of(slots), scratch)
            self._backend.pending.add(self._launch(filled, dims, limit, place))
        except KernelMemoryError as problem:
            scratch.release()
            raise memory_error(self.info.name, "all threads") from problem
        workspace.hand_over(self.info.layout, slots, filled, scratch)
        self._backend.lent.append(scratch)

    @property
    def keeps(self) -> bool:
        """Whether a launch copies in the device's own stream, besides its kernel."""
        return self._workspace.needed

    def _is_specializable(self, slots: list[int]) -> bool:
        """Whether a launch meets the preconditions of the text; the last one that did is known again."""
        if self._function.aliased or slots == self._accepted:
            return True
        if not is_specializable(self.info.layout, self.changed, slots):
            return False
        self._accepted = list(slots)
        return True

    def _require_aligned(self, slots: Sequence[int]) -> None:
        """Raise LaunchError for numbers that a device can neither read nor write, and would fail for good."""
        param = misaligned(self.info.layout, slots)
        if param is None:
            return
        assert isinstance(param.type, Array)
        scalar = scalar_of(param.type.elem)
        size = scalar.bits // 8
        message = (
            f"elements of `{param.name}` of `{self.info.name}` stand at addresses that are not multiples "
            f"of {size}: a CUDA device reads no {scalar} there"
        )
        hint = (
            f"pass an array whose address ({slots[param.slot]:#x} here) and strides are multiples of {size}"
        )
        raise LaunchError.of(message, "aligned", hint, self._function.span)

    def _fallback_entry(self, place: object) -> "CudaEntry":
        """The same function, built without preconditions; raises LaunchError in a capture."""
        if self._fallback is None:
            if self._backend.pending.captured is not None:
                where = f", launched in {place}," if place else ""
                message = (
                    f"`{self.info.name}`{where} gets arrays that share memory, run backwards or are very "
                    "large: that takes another build of it, and nothing can be built during a capture"
                )
                hint = "run the block once with these arrays before it is captured"
                raise LaunchError.of(message, "capture", hint)
            function = replace(self._function, aliased=True)
            entry = self._backend.build([function])[function.name]
            assert isinstance(entry, CudaEntry)
            self._fallback = entry
        return self._fallback

    def _bound(self, slots: Sequence[int], limit: int) -> int:
        """The bytes that a thread may save for loops, where many do so at once; 0 is any number."""
        if not limit:
            return 0
        free, _ = self._backend.driver.memory()
        return min(limit, max(free // SHARE // min(threads_of(slots), CROWD), 1))

    def _attempt(self, slots: list[int], limit: int, snapshot: Snapshot, place: object) -> list[int] | None:
        """Run with the room that there is now; the status if it was too little: then nothing has happened."""
        workspace, scratch = self._workspace, Scratch(self._backend.driver)
        filled, dims = [*slots], self._dims(slots, workspace.arena)
        try:
            workspace.allocate(self.info.layout, filled, math.prod(dims), threads_of(slots), scratch)
            launch = self._launch(filled, dims, limit, place)
            self._backend.pending.synchronize_with(launch)
            status = list(fields(launch.block))
            self._backend.pending.give_back(launch.block)
            if status[CODE] == OK:
                workspace.hand_over(self.info.layout, slots, filled, scratch)
        except KernelMemoryError as problem:
            raise memory_error(self.info.name, "all threads") from problem
        finally:
            scratch.release()
        if status[CODE] not in (MEMORY, FULL):
            if status[CODE] != OK:
                raise launch.failure(status)
            warn_of_wrapped_indices(self.info, status[WRAPPED])
            return None
        snapshot.put_back()
        if status[CODE] == FULL and workspace.arena >= limit:
            raise StorageFull(memory_error(self.info.name, str(status[THREAD])).diagnostics[0])
        return status

    # ---------------------------------------------------------------------------------------- running

    def _dims(self, slots: Sequence[int], arena: int) -> Dims:
        """The threads of the device for a launch, each with so many bytes of the arena.

        It is one where the threads of the grid run one after another.
        """
        alone = self.turns or repeated(self.info, slots)
        if self._function.aliased:
            alone = alone or overlapping(self.info.layout, self.changed, slots, self._summed)
        if settings().deterministic:
            alone = alone or self._unordered
        if alone:
            self._warn_of_one_thread(alone)
            return 1, 1
        total, config, most = threads_of(slots), LAUNCH_CONFIG.get(), WAVES * self._backend.driver.processors
        if most * config.threads * arena > CHEAP:
            free, _ = self._backend.driver.memory()
            most = min(most, max(free // SHARE // arena // config.threads, 1))
        if self._one_block or (self._joint and settings().deterministic):
            most = 1  # only within a block sums are float64, and of one order
        if config.blocks:
            most = min(most, config.blocks)
        return max(1, min(-(-total // config.threads), most)), config.threads

    def _warn_of_narrow_sums(self) -> None:
        message = (
            f"`{self.info.name}` adds to many elements of `{self._narrow[0]}`, which stop growing after some "
            f"hundreds of ones: on {self._backend.name} each addition is rounded"
        )
        hint = "add up in float32, and convert the sums; on the CPU they are taken in float64"
        self._narrow = []
        Diagnostic(message, None, "sums", "warning", hint=hint).warn()

    def _warn_of_one_thread(self, why: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            message = f"`{self.info.name}` runs on one thread of {self._backend.name}: {why}"
            hint = "that gives what the CPU gives, slowly; sums by atomics may come in any order"
            Diagnostic(message, None, "order", "warning", hint=hint).warn()

    def _launch(self, slots: Sequence[int], dims: Dims, limit: int, place: object) -> PendingLaunch:
        """Start, and say what is under way."""
        backend, packed = self._backend, struct.pack(f"={len(slots)}q", *slots)
        stream, block = backend.stream(), backend.pending.block(limit)
        loaded = self._loaded.now(may_load=backend.pending.captured is None)
        backend.driver.launch(loaded, *dims, packed, block[1], stream)
        return PendingLaunch(self.info, slots, block, stream, place)
