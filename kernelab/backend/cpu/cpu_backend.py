"""The CPU: generated C++, built by a C++ compiler, loaded with ctypes; vector code for large launches.

An entry is called with its packed arguments and the status block of the OS thread that calls it; while it
runs, other Python threads run too, and now and then it lets pending signals be handled, so that a notebook
can be interrupted.  A launch runs vector code or not by its size alone, never by what happens to be built,
so that it gives the same in every run.  Knows files, compilers and ctypes; must not know arrays or tapes.
"""

import _ctypes
import contextlib
import ctypes
import os
import struct
import threading
import warnings
import weakref
from collections.abc import Callable, Generator, Sequence
from functools import cache, cached_property
from math import prod
from pathlib import Path
from typing import Any

from kernelab.backend.common import backends
from kernelab.backend.common.backends import Args, Entry, failure, interrupted, register, slots_of
from kernelab.backend.common.build_cache import Cache, key_of
from kernelab.backend.common.compiler import VARIABLES, Compiler, open_compiler, processor_features
from kernelab.codegen.cpp.emitter import emit
from kernelab.codegen.cpp.entry import (
    ABI_VERSION,
    CODE,
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
    WRAPPED,
    EntryInfo,
)
from kernelab.codegen.cpp.targets import Cpu
from kernelab.codegen.vectors.vector_emitter import emit_vectors, is_long
from kernelab.codegen.vectors.vector_gain import operations_an_element
from kernelab.codegen.vectors.vector_helpers import FUNCTIONS, Lanes
from kernelab.codegen.vectors.vector_values import Refused
from kernelab.errors import BuildError, Diagnostic, KernelWarning
from kernelab.lang.ir import Const, For, Function, While, walk
from kernelab.lang.types import int64
from kernelab.settings import settings

# ------------------------------------------------------------------------------------------------ vector code


FEWEST = 4096
"""The threads from which a launch runs vector code."""

FEWEST_WITH_LOOPS = FEWEST // 8
"""The same where threads run loops of a length that is not in the text."""

FEWEST_OPERATIONS = 5
"""The operations for each element that lanes access one by one from which vector code is faster, measured."""

_AVX512 = frozenset({"avx512f", "avx512dq", "avx512vl", "avx512bw"})
_FLAGS = {8: (), 16: (*(f"-m{name}" for name in sorted(_AVX512)), "-mprefer-vector-width=512")}
"""The flags that vector code needs, by its lanes: part of the key of its library in the cache, so that no
processor loads what it cannot run."""

Run = Callable[[Args, Any], int]


class VectorTier:
    """The vector code of a function, if it has any: built when it is first asked for.

    Launches of at least `fewest` threads run it.
    """

    def __init__(self, function: Function, cache: Cache, compiler: Compiler) -> None:
        self._function = function
        self._cache = cache
        self._compiler = compiler
        loops = (stmt for stmt in walk(function.body) if isinstance(stmt, For | While))
        has_long = any(isinstance(loop, While) or not isinstance(loop.count, Const) for loop in loops)
        self.fewest = FEWEST_WITH_LOOPS if has_long else FEWEST

    def run(self) -> Run | None:
        """The entry for a large launch; None where scalar code runs."""
        chosen = settings()
        return self._entry if chosen.vector_code and not chosen.deterministic else None

    @cached_property
    def _entry(self) -> Run | None:
        widths = widths_of(processor_features()) if self._compiler.is_gcc else ()
        if not widths:
            return None
        try:
            lanes = lanes_of(max(widths))
            return build(self._function, lanes, self._cache, self._compiler, FEWEST_OPERATIONS)
        except Refused:
            return None
        except BuildError as problem:
            message = f"the vector code of `{self._function.name}` could not be built: {problem}"
            hint = "it goes on with scalar code, with the same results, slower"
            shown = Diagnostic(message, None, "vector-code", "warning", hint=hint).render()
            warnings.warn(shown, KernelWarning, stacklevel=2)
            return None


def build(function: Function, lanes: Lanes, cache: Cache, compiler: Compiler, fewest: float = 0.0) -> Run:
    """The vector code of a function, built and loaded; raises BuildError.

    Raises Refused where it has none, or does fewer operations for each element that lanes access one by one.
    """
    unit, flags = (
        emit_vectors(function, lanes),
        (*_FLAGS[lanes.width], *(() if is_long(function) else ("-O1",))),
    )
    if operations_an_element(function, lanes) < fewest:
        raise Refused("it moves elements one by one more than it computes")
    key = key_of(unit.text, compiler.identity, *flags, str(ABI_VERSION))
    library = cache.library(key, lambda path: compiler.compile(unit, path, flags), load_library)
    run: Run = library[unit.entries[0].symbol]
    return run


def load_library(path: Path) -> ctypes.CDLL:
    """A library that is unloaded with the last of its functions: a process may map only so many."""
    library = ctypes.CDLL(str(path))
    weakref.finalize(library, _ctypes.dlclose, library._handle).atexit = False
    return library


def widths_of(features: frozenset[str]) -> tuple[int, ...]:
    """The numbers of lanes that vector code can have on a processor with these features."""
    if "avx2" not in features:
        return ()
    return (8, 16) if features >= _AVX512 else (8,)


@cache
def lanes_of(width: int) -> Lanes:
    """Lanes of a width, with the functions that libmvec has for them here."""
    try:
        library = ctypes.CDLL("libmvec.so.1", ctypes.RTLD_GLOBAL)
    except OSError:
        return Lanes(width)
    known = Lanes(width)
    return Lanes(width, frozenset(name for name in FUNCTIONS if hasattr(library, known.symbol(name))))


# ---------------------------------------------------------------------------------------------------- entries


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

    __slots__ = ("_library", "_prints", "_run", "_vectors", "info")

    def __init__(self, info: EntryInfo, library: ctypes.CDLL, vectors: VectorTier | None = None) -> None:
        self.info = info
        self._prints = bool(info.messages)
        self._vectors = vectors
        self._library = library
        self._run = library[info.symbol]

    @property
    def has_vectors(self) -> bool:
        """Whether large launches run vector code."""
        return self._vectors is not None and self._vectors.run() is not None

    def __call__(self, args: Args, /, limit: int = 0, done: int = 0, room: int = 0) -> None:
        """Run threads of the grid; raises a KernelError, or what a signal's handler raised meanwhile."""
        free = _thread.free_blocks
        block = free.pop() if free else _Block()
        bounded = limit or done or room
        if bounded:
            block.status[LIMIT], block.status[DONE] = limit, done
            block.status[ROOM], block.status[USED] = room, 0
        tier, code = self._vectors, GIVEN_UP
        if tier is not None and not done and prod(_grid(args)) >= tier.fewest:
            vectors = tier.run()
            if vectors is not None:
                bounded, code = True, vectors(args, block.reference)
        if code == GIVEN_UP:
            code = self._run(args, block.reference)
        wrapped = 0
        if code and not block.status[CODE]:
            wrapped, block.status[WRAPPED], code = block.status[WRAPPED], 0, 0
        if bounded and not code:
            block.status[LIMIT] = block.status[DONE] = block.status[ROOM] = 0
        if self._prints and block.status[PRINTS]:
            block.print(self.info)
        if not code:
            free.append(block)
            if wrapped:
                backends.tell_of_wrapped(self.info, wrapped)
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
