"""The CPU: generated C++, compiled by the machine's compiler, loaded with ctypes.

An entry is called with its packed arguments and the status block of the OS thread that calls it; while it
runs, other Python threads run too, and now and then it lets pending signals be handled, so that a notebook
can be interrupted.  Knows files, compilers and ctypes; must not know arrays or tapes.
"""

import contextlib
import ctypes
import math
import os
import struct
import threading
from collections.abc import Generator, Sequence
from pathlib import Path

from kernelab.backend.common import packing, print_output
from kernelab.backend.common.backends import Args, Entry, failure, interrupted, register, slots_of
from kernelab.backend.common.build_cache import Cache, key_of
from kernelab.backend.common.compiler import (
    VARIABLES,
    Compiler,
    open_compiler,
)
from kernelab.backend.cpu.vector_tier import VectorTier, load_library
from kernelab.codegen.common.entry import (
    ABI_VERSION,
    DONE,
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
    USED,
    EntryInfo,
)
from kernelab.codegen.cpp.emitter import emit
from kernelab.codegen.cpp.targets import Cpu
from kernelab.lang.ir import Function
from kernelab.lang.types import int64

GIVEN_UP = -1
"""What vector code returns where scalar code has to go on, behind the threads that status[DONE] counts."""

_grid = struct.Struct(f"{GRID_SLOTS}q").unpack_from

_Poll = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class CpuBackend:
    """Builds functions into shared libraries, through the cache; may be called from any thread."""

    name = "cpu"

    def __init__(self, cache: Cache | None = None) -> None:
        self.cache = Cache() if cache is None else cache
        self._compilers: dict[tuple[str | None, ...], Compiler] = {}

    def build(self, functions: Sequence[Function]) -> dict[str, Entry]:
        """An entry for each function, by name; they are scalarised, without calls, and of distinct names.

        Raises NoCompilerError where there is no compiler, else BuildError.
        """
        compiler = self.compiler()
        unit = emit(functions, Cpu())
        key = key_of(unit.text, compiler.identity, str(ABI_VERSION))
        library = self.cache.library(key, lambda path: compiler.compile(unit, path), _load)
        return {
            info.name: CpuEntry(info, library, VectorTier(function, self.cache, compiler))
            for info, function in zip(unit.entries, functions, strict=True)
        }

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


class CpuEntry:
    """A function of a loaded library; large launches go to its vector code, if there is any."""

    __slots__ = ("_library", "_run", "_vectors", "info")

    def __init__(self, info: EntryInfo, library: ctypes.CDLL, vectors: VectorTier | None = None) -> None:
        self.info = info
        self._vectors = vectors
        self._library = library
        self._run = library[info.symbol]

    def __call__(self, args: Args, /, limit: int = 0, done: int = 0, room: int = 0) -> None:
        """Run threads of the grid; raises a KernelError, or what a signal's handler raised meanwhile."""
        free = _thread.free_blocks
        block = free.pop() if free else _Block()
        bounded = bool(limit or done or room)
        if bounded:
            block.status[LIMIT], block.status[DONE] = limit, done
            block.status[ROOM], block.status[USED] = room, 0
        tier, vectors = self._vectors, None
        if tier is not None and not done and math.prod(_grid(args)) >= tier.fewest:
            vectors = tier.run()
        code = GIVEN_UP if vectors is None else vectors(args, block.reference)
        if code == GIVEN_UP:
            bounded |= vectors is not None
            code = self._run(args, block.reference)
        if bounded and not code:
            block.status[LIMIT] = block.status[DONE] = block.status[ROOM] = 0
        if self.info.messages and block.status[PRINTS]:
            block.print(self.info)
        if not code:
            free.append(block)
            return
        if isinstance(block.caught, KeyboardInterrupt):
            raise interrupted(self.info.name)
        raise block.caught or failure(self.info, list(block.status), slots_of(args)[:GRID_SLOTS])


class _Block:
    """The status block of a launch, with the callback that lets signals in while its entry runs.

    A signal's handler may launch too, in the middle of it: that launch has a block of its own.
    """

    def __init__(self) -> None:
        self.status = (ctypes.c_longlong * STATUS_FIELDS)()
        self.reference = ctypes.byref(self.status)
        self.caught: BaseException | None = None
        poller = self._poll()
        next(poller)
        self._callback = _Poll(poller.send)
        self.status[POLL] = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def print(self, info: EntryInfo) -> None:
        """Write what the launch has printed, and let go of it."""
        status = self.status
        words = packing.view(status[PRINTED], (status[PRINTED_WORDS],), (8,), int64).copy()
        packing.free(status[PRINTED])
        prints = status[PRINTS]
        status[PRINTED] = status[PRINTED_WORDS] = status[PRINTED_ROOM] = status[PRINTS] = 0
        print_output.replay(info.messages, words, prints)

    def _poll(self) -> Generator[None, int, None]:
        # A generator, because a signal can strike before the first line of a called function, but a
        # generator is resumed inside its `try`.
        while True:
            try:
                while True:
                    yield
                    ctypes.pythonapi.PyErr_CheckSignals()
            except GeneratorExit:
                return
            except BaseException as error:  # noqa: BLE001  raised again by __call__, once the entry has returned
                self.caught = error
                self.status[STOP] = 1


class _Local(threading.local):
    def __init__(self) -> None:
        self.free_blocks: list[_Block] = []


_thread = _Local()

register(CpuBackend())
