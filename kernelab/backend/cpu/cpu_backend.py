"""The CPU: generated C++, built by a C++ compiler, loaded with ctypes; vector code for large launches.

An entry is called with its packed arguments and the status block of the OS thread that calls it; while it
runs, other Python threads run too, and now and then it lets pending signals be handled, so that a notebook
can be interrupted.  A launch runs vector code or not by its size alone, never by what happens to be built,
so that it gives the same in every run.  Knows files, compilers and ctypes; must not know arrays or tapes.
"""

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from ctypes import create_string_buffer
from functools import partial, reduce
from math import prod
from operator import add, or_
from pathlib import Path
from struct import iter_unpack
from typing import Any, NamedTuple

from kernelab.backend.common import backends
from kernelab.backend.common.backends import (
    Args,
    Entry,
    Part,
    StorageFull,
    failure,
    grid_in,
    interrupted,
    register,
    rest_of,
    slots_of,
)
from kernelab.backend.common.build_cache import Cache, key_of
from kernelab.backend.common.compiler import VARIABLES, Compiler, open_compiler
from kernelab.backend.common.interrupts import end_if_interrupted
from kernelab.backend.common.tiered import BETTER, Pending, beside
from kernelab.backend.cpu import native_calls
from kernelab.backend.cpu.cores import Work, available
from kernelab.backend.cpu.native_calls import GIVEN_UP, Code, Native
from kernelab.backend.cpu.split import MOST_THREADS, Cut, Split
from kernelab.backend.cpu.vector_tier import LANES, Run, VectorTier, load_library
from kernelab.codegen.cpp.emitter import emit
from kernelab.codegen.cpp.entry import (
    ABI_VERSION,
    BOX,
    CODE,
    DONE,
    FULL,
    GRID_SLOTS,
    LIMIT,
    POLL,
    PRINTED,
    PRINTED_ROOM,
    PRINTED_WORDS,
    PRINTS,
    ROOM,
    STATUS_FIELDS,
    STOP,
    STOPPED,
    SUMS,
    USED,
    WRAPPED,
    EntryInfo,
)
from kernelab.codegen.cpp.targets import Cpu
from kernelab.lang.ir import Function
from kernelab.lang.types import int64
from kernelab.settings import settings

# ---------------------------------------------------------------------------------------------------- entries


_Poll = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class CpuBackend:
    """Builds functions into shared libraries, through the cache; may be called from any thread."""

    name = "cpu"

    def __init__(self) -> None:
        self.cache = Cache()
        self._native: Pending[Native] | None = None
        self._compilers: dict[tuple[str | None, ...], Compiler] = {}

    def build(self, functions: Sequence[Function], threads: int = 0) -> dict[str, Entry]:
        """An entry for each function, by name; they are scalarised, without calls, and of distinct names.

        The vector code that a launch of so many threads needs is built beside them.  Raises NoCompilerError
        where there is no compiler, else BuildError.
        """
        compiler = self.compiler()
        unit = emit(functions, Cpu())
        key = key_of(unit.text, compiler.identity, str(ABI_VERSION))
        tiers = [VectorTier(function, self.cache, compiler) for function in functions]

        def begin_vectors() -> None:
            for tier in tiers:
                tier.begin(threads)

        with beside(begin_vectors):
            library = self.cache.library(key, lambda path: compiler.compile(unit, path), _load)
        return {
            info.name: CpuEntry(info, library, vectors, Split(function, info), self)
            for info, function, vectors in zip(unit.entries, functions, tiers, strict=True)
        }

    def native(self, *, waits: bool = False) -> Native | None:
        """What calls entries without Python, built behind what else is built; None until it is there."""
        if self._native is None and native_calls.is_possible():
            build = partial(native_calls.build, self.cache, self.compiler())
            self._native = BETTER.begin(build, was_told=True)
        if self._native is None or not (waits or self._native.is_done) or self._native.problem is not None:
            return None
        return self._native.result()

    def compiler(self) -> Compiler:
        """The compiler that the environment names now; asked for its version once."""
        asked = tuple(os.environ.get(name) for name in (*VARIABLES, "PATH"))
        if asked not in self._compilers:
            self._compilers[asked] = open_compiler()
        return self._compilers[asked]


def _load(path: Path) -> ctypes.CDLL:
    # Libraries are linked against nothing, which is faster, and find mathematics in the process.
    with contextlib.suppress(OSError):
        ctypes.CDLL("libm.so.6", ctypes.RTLD_GLOBAL)
    return load_library(path)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class CpuEntry:
    """A function of a loaded library; large launches run its vector code, on several cores, if they may.

    After some runs, small launches can `enter` it through native code.
    """

    __slots__ = (
        *("_backend", "_fewest", "_library", "_prints", "_run", "_runs", "_split", "_vectors"),
        *("enter", "info"),
    )

    def __init__(
        self, info: EntryInfo, library: ctypes.CDLL, vectors: VectorTier, split: Split, backend: CpuBackend
    ) -> None:
        self.info = info
        self._backend = backend
        self.enter: Callable[[Args], bool] | None = None
        self._runs = 0
        self._prints = bool(info.messages)
        self._vectors = vectors
        self._split = split
        self._fewest = min(vectors.fewest, split.fewest)
        self._library = library
        self._run: Run = library[info.symbol]

    @property
    def has_vectors(self) -> bool:
        """Whether large launches run vector code."""
        return self._vectors.run() is not None

    def begin_vectors(self, threads: int) -> None:
        """Begin to build, in the background, the vector code that a launch of so many threads waits for."""
        self._vectors.begin(threads)

    def __call__(self, args: Args, /, limit: int = 0, room: int = 0, left: Sequence[Part] = ()) -> None:
        """Run threads of the grid; raises a KernelError, or what a signal's handler raised meanwhile."""
        vectors = None
        if (threads := prod(grid_in(args))) >= self._fewest:
            vectors, left = self._for_many(threads, args, left, limit or room)
        if left and left[0].box:
            self._run_parts(Launch(self._run, vectors, args, limit, room), left)
            return
        free = _thread.free_blocks
        block = free.pop() if free else _Block()
        status = block.status
        if vectors is None and not left:
            if limit or room:
                status[LIMIT], status[ROOM], status[USED] = limit, room, 0
            code = self._run(args, block.reference)
            if not (code or limit or room or self._prints):  # nor did an index count from the end
                free.append(block)
                self._count()
                return
            code = code and status[CODE]
            if not code:  # the error of a launch states its limits, and its block does not serve again
                status[LIMIT] = status[ROOM] = 0
        else:
            block.begin(limit, room)
            launch = Launch(self._run, vectors, args, limit, room)
            code = block.run(launch, left[0], 0) if left else self._run_vectors(launch, block)
            if not code:
                block.end()
                if not left:
                    self._count()
        if self._prints and status[PRINTS]:
            block.print(self.info)
        if code:
            raise block.failure(self.info, args)
        wrapped, status[WRAPPED] = status[WRAPPED], 0
        free.append(block)
        if wrapped:
            backends.warn_of_wrapped_indices(self.info, wrapped)

    def _count(self) -> None:
        """Count a run that Python has made; look, now and then, for what makes such runs without it."""
        self._runs += 1
        if self._runs % OFTEN:
            return
        native = self.native()
        if native is not None:
            self.enter = native.entering(self.code(), BLOCKS, self.ended, settings, settings())

    def code(self) -> Code:
        """What native code may run."""
        entry, fewest = _address(self._run), min(self._fewest, MOST_THREADS)
        if not self._vectors.is_settled:
            return Code(entry, fewest, 0, fewest)
        vectors = self._vectors.run()
        most = self._split.fewest_of(1 if vectors is None else LANES)
        fewest = most if vectors is None else min(self._vectors.fewest, most)
        return Code(entry, fewest, _address(vectors), most)

    def native(self, *, waits: bool = False) -> Native | None:
        """What calls it without Python, if it is there, and this is an entry that it can call."""
        if self._prints or self.info.saves or self.info.keeps:
            return None
        return self._backend.native(waits=waits)

    def ended(self, block: "_Block", args: bytes, has_given_up: bool) -> bool:
        """Go on where native code that called it has got a code other than 0."""
        rest = Launch(self._run, None, args, 0, 0)
        try:
            if self._go_on(rest, block) if has_given_up else block.status[CODE]:
                raise block.failure(self.info, args)
        except BaseException:
            BLOCKS.append(_Block())
            raise
        wrapped, block.status[WRAPPED] = block.status[WRAPPED], 0
        block.end()
        BLOCKS.append(block)
        if wrapped:
            backends.warn_of_wrapped_indices(self.info, wrapped)
        return True

    def _for_many(
        self, threads: int, args: Args, left: Sequence[Part], limits: int
    ) -> tuple[Run | None, Sequence[Part]]:
        """The vector code of a large launch, if it runs that, and the parts in which it runs.

        One core runs vector code of all parts at once, unless these have sums or limits of their own.
        """
        vectors = self._vectors.run(threads) if threads >= self._vectors.fewest else None
        if vectors is None and threads >= self._vectors.fewest:
            self._run = self._vectors.optimised() or self._run
        is_whole = not left or left[0] == ALL
        if threads >= self._split.fewest and is_whole and not settings().deterministic:
            cut = self._split.parts(args, 1 if vectors is None else LANES)
            if cut and (limits or self._split.sums or cores() > 1):
                left = cut
        return vectors, left

    def _run_vectors(self, launch: "Launch", block: "_Block") -> int:
        """Run vector code of a whole launch; where it gives up, scalar code runs to the end of the part."""
        assert launch.vectors is not None
        code = launch.vectors(launch.args, block.reference)
        return self._go_on(launch, block) if code == GIVEN_UP else code and block.status[CODE]

    def _go_on(self, launch: "Launch", block: "_Block") -> int:
        """Run scalar code from where vector code has given up."""
        rest = self._split.parts(launch.args, LANES).behind(block.status[DONE])
        if not rest:
            code = self._run(launch.args, block.reference)
            return code and block.status[CODE]
        self._run_parts(launch, rest)
        return 0

    def _run_parts(self, launch: "Launch", parts: Sequence[Part]) -> None:
        split = self._split
        try:
            cut = parts if isinstance(parts, Cut) else Cut(parts)
            Parts(self.info, launch, cut, split.sums).run(cores() if split.is_separate else 1)
        except KeyboardInterrupt:
            raise interrupted(self.info.name) from None


ALL = Part()


class Launch(NamedTuple):
    """What the parts of a launch have in common: scalar code, vector code if it runs that, and arguments."""

    scalar: Run
    vectors: Run | None
    args: Args
    limit: int
    room: int


class _Block:
    """The status block of a launch, with the callback that lets signals in while its entry runs.

    A signal's handler may launch too, in the middle of it: that launch has a block of its own.
    """

    def __init__(self) -> None:
        self.status = (ctypes.c_longlong * STATUS_FIELDS)()
        self.reference = ctypes.byref(self.status)
        self.address = ctypes.addressof(self.status)
        self.caught: BaseException | None = None
        poller = self._poll()
        next(poller)
        self._callback = _Poll(poller.send)
        self.status[POLL] = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def begin(self, limit: int, room: int) -> None:
        """Set the limits of a launch."""
        status = self.status
        status[LIMIT], status[ROOM], status[USED] = limit, room, 0

    def run(self, launch: Launch, part: Part, box: int) -> int:
        """Run a part of a launch, whose box is at an address; not 0 where something went wrong."""
        status, vectors = self.status, launch.vectors
        status[DONE], status[BOX] = part.done, box
        code = GIVEN_UP
        if vectors is not None and not part.begun:
            code = vectors(launch.args, self.reference)
        if code == GIVEN_UP:
            code = launch.scalar(launch.args, self.reference)
        return code and status[CODE]

    def end(self) -> None:
        """Serve the next launch."""
        status = self.status
        status[LIMIT] = status[DONE] = status[ROOM] = status[BOX] = 0

    def failure(self, info: EntryInfo, args: Args) -> BaseException:
        """The error that a run ended with."""
        if isinstance(self.caught, KeyboardInterrupt):
            return interrupted(info.name)
        return self.caught or failure(info, list(self.status), slots_of(args)[:GRID_SLOTS])

    def print(self, info: EntryInfo) -> None:
        """Write what the launch has printed, and free it."""
        status = self.status
        words = backends.view(status[PRINTED], (status[PRINTED_WORDS],), (8,), int64).copy()
        backends.free(status[PRINTED])
        prints = status[PRINTS]
        status[PRINTED] = status[PRINTED_WORDS] = status[PRINTED_ROOM] = status[PRINTS] = 0
        backends.replay(info.messages, words, prints)

    def _poll(self) -> Generator[None, int, None]:
        # A generator, because a signal can strike before the first line of a called function, but a
        # generator is resumed inside its `try`.
        while True:
            try:
                while True:
                    yield
                    ctypes.pythonapi.PyErr_CheckSignals()
                    end_if_interrupted()
            except GeneratorExit:
                return
            except BaseException as error:  # noqa: BLE001  raised again by __call__, once the entry has returned
                self.caught = error
                self.status[STOP] = 1


class Parts:
    """A launch in parts, and what became of each."""

    def __init__(self, info: EntryInfo, launch: Launch, parts: Cut, sums: int) -> None:
        self._info = info
        self._launch = launch
        self._parts = parts
        self._running: dict[_Block, int] = {}
        """The part that each block runs now."""
        self._ended: dict[int, list[int]] = {}
        """The status of each part that has ended before its last thread."""
        self._wrapped: list[int] = []
        self._sums = sums
        self._boxes = create_string_buffer(boxes := parts.boxes(sums), len(boxes))
        """The box of each part, with what it adds to the elements that all share (`entry.SUMS`)."""
        self._ends = [len(parts)]
        """The parts behind which none matters any more, in the order in which that was found."""
        self._work = Work(self._do, self._stop, len(parts))

    def run(self, cores: int) -> None:
        """Run all of them on at most so many cores; raises the error of the first that fails."""
        try:
            self._work.run(cores - 1)
        finally:
            self._add_up()
        if self._ended:
            raise self._failure()
        if wrapped := reduce(or_, self._wrapped, 0):
            backends.warn_of_wrapped_indices(self._info, wrapped)

    def _do(self, numbers: Iterator[int]) -> None:
        launch, parts = self._launch, self._parts
        ends, running, free = self._ends, self._running, _thread.free_blocks
        boxes, nbytes = ctypes.addressof(self._boxes), len(self._boxes) // len(parts)
        block = None
        for number in numbers:
            if block is None:
                block = free.pop() if free else _Block()
                block.begin(launch.limit, launch.room)
            running[block] = number
            if number > min(ends):  # whoever stopped it may have looked for it before it was there
                return
            if code := block.run(launch, parts[number], boxes + nbytes * number):
                self._has_ended(number, code, block)
                block = None
        if block is not None:
            del running[block]
            self._wrapped.append(block.status[WRAPPED])
            block.status[WRAPPED] = 0
            if len(ends) == 1:  # else it may be told to stop even now
                block.end()
                free.append(block)

    def _has_ended(self, number: int, code: int, block: _Block) -> None:
        """Note that a part has ended before its last thread."""
        del self._running[block]
        if block.caught is not None:
            raise block.caught
        self._wrapped.append(block.status[WRAPPED])
        self._ended[number] = list(block.status)
        if code not in (FULL, STOPPED):
            self._work.end_behind(number)

    def _stop(self, number: int) -> None:
        self._ends.append(number)
        for block, other in list(self._running.items()):
            if other > number:
                block.status[STOP] = 1

    def _add_up(self) -> None:
        """Add to the elements that all parts share what these have summed, in the order of the parts."""
        parts = iter_unpack(f"{8 * (SUMS + 1)}x" + "qd" * self._sums, self._boxes) if self._sums else ()
        totals = [*zip(*list(parts)[: min(self._ends) + 1], strict=True)]
        for places, sums in zip(totals[::2], totals[1::2], strict=True):
            if place := max(places):
                element = ctypes.c_float.from_address(place)
                element.value = reduce(add, sums, element.value)

    def _failure(self) -> BaseException:
        """The error of the launch.  Where a part is full, what is left are all that the first error ends."""
        first = min(self._ended)
        grid = slots_of(self._launch.args)[:GRID_SLOTS]
        error = failure(self._info, self._ended[first], grid)
        if isinstance(error, StorageFull):
            ended = sorted(number for number in self._ended if number <= min(self._ends))
            error.left = [rest_of(self._parts[k], self._info, self._ended[k], grid) for k in ended]
        return error


def cores() -> int:
    """The number of cores that a launch may take."""
    chosen = settings()
    return 1 if chosen.check is not None else chosen.threads or available()


class _Local(threading.local):
    def __init__(self) -> None:
        self.free_blocks: list[_Block] = []


_thread = _Local()

OFTEN = 16
"""After how many runs of an entry it is called by native code, if that is there, and else asked for again."""

BLOCKS = [_Block() for _ in range(4)]
"""Those of native code: a launch that finds none, as in the fifth thread at a time, runs as at first."""

register(CpuBackend())
