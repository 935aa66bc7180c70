"""The vector tier of the CPU: which functions have vector code, for how many lanes, and its libraries.

Large launches of the others run scalar code that is compiled with more optimisation.

Knows files, compilers and ctypes; must not know arrays or tapes.
"""

import _ctypes
import ctypes
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kernelab.backend.common.backends import Args
from kernelab.backend.common.build_cache import Cache, key_of
from kernelab.backend.common.compiler import Compiler, processor_features
from kernelab.backend.common.tiered import AHEAD, BETTER, Pending
from kernelab.codegen.cpp.emitter import emit
from kernelab.codegen.cpp.entry import ABI_VERSION, Unit
from kernelab.codegen.cpp.targets import Cpu
from kernelab.codegen.vectors.vector_emitter import computes_in_doubles, emit_vectors, operations_an_element
from kernelab.codegen.vectors.vector_operations import FUNCTIONS, Lanes
from kernelab.codegen.vectors.vector_places import is_long
from kernelab.codegen.vectors.vector_values import Refused
from kernelab.data_classes.turns import cached_property
from kernelab.errors import BuildError, Diagnostic
from kernelab.lang.ir import Atomic, Const, For, Function, Let, While, walk
from kernelab.lang.types import float32, float64
from kernelab.passes.access.independence import separate
from kernelab.settings import settings

FEWEST = 4096
"""The threads from which a launch runs vector code."""

FEWEST_WITH_LOOPS = FEWEST // 8
"""The same where threads run loops of a length that is not in the text."""

MOST_STATEMENTS = 1 << 27
"""The statements of all threads that scalar code runs in about the time of a build, loops left out."""

LANES = 16
"""By how much vector code is about faster than scalar code, where it computes as much as it moves."""

FEWEST_OPERATIONS = {4: 4.0, 8: 4.0, 16: 2.0}
"""The operations for each element that lanes access one by one from which vector code is faster, measured."""

_AVX512 = frozenset({"avx512f", "avx512dq", "avx512vl", "avx512bw"})
FLAGS = {32: (), 64: (*(f"-m{name}" for name in sorted(_AVX512)), "-mprefer-vector-width=512")}
"""The flags that vector code needs, by the bytes of its registers: part of the key of its library in the
cache, so that no processor loads what it cannot run."""

OPTIMISED = ("-O2", "-fpeel-loops", "-funswitch-loops")
"""The flags of scalar code for large launches, where there is no vector code.

Short loops of a known length are unrolled, and tests that stay the same leave their loops.
"""

Run = Callable[[Args, Any], int]


class VectorTier:
    """The vector code of a function, if it has any, else optimised scalar code: built when first asked for.

    Launches of at least `fewest` threads run it.  Where it gives the same bits as scalar code, the first of
    them run that until it is built, unless they take longer than a build.
    """

    def __init__(self, function: Function, cache: Cache, compiler: Compiler) -> None:
        self._function = function
        self._cache = cache
        self._compiler = compiler
        loops = (stmt for stmt in walk(function.body) if isinstance(stmt, For | While))
        has_long = any(isinstance(loop, While) or not isinstance(loop.count, Const) for loop in loops)
        self.fewest = FEWEST_WITH_LOOPS if has_long else FEWEST

    def begin(self, threads: int) -> None:
        """Begin to build, in the background, what a launch of so many threads would wait for."""
        is_new = "_pending" not in self.__dict__
        if is_new and threads >= self.fewest and _may_run() and threads > self._most_at_first:
            self._pending = AHEAD.begin(self._built, was_told=True)

    def run(self, threads: int | None = None) -> Run | None:
        """The entry for a launch of so many threads, built now if None; None where scalar code runs."""
        if not _may_run():
            return None
        if threads is not None and threads <= self._most_at_first and not self._pending.is_done:
            return None
        return self._entry

    @property
    def is_settled(self) -> bool:
        """Whether large launches may run vector code, and what they run by the settings of now is built."""
        if not _may_run() or "_pending" not in self.__dict__ or not self._pending.is_done:
            return False
        return self._entry is not None or self._optimised.is_done

    def optimised(self) -> Run | None:
        """Optimised scalar code, once it is built, where no vector code runs; it gives the same bits."""
        if _may_run() and not (self._pending.is_done and self._entry is None):
            return None
        return self._taken(self._optimised, "optimised") if self._optimised.is_done else None

    @cached_property
    def _most_at_first(self) -> int:
        """The threads of the largest launch that scalar code may run while vector code is built."""
        stmts = list(walk(self._function.body))
        return MOST_STATEMENTS // max(len(stmts), 1) if gives_the_same_bits(self._function) else 0

    @cached_property
    def _pending(self) -> Pending[Run | None]:
        return BETTER.begin(self._built, was_told=True)

    @cached_property
    def _optimised(self) -> Pending[Run | None]:
        return BETTER.begin(self._built_optimised, was_told=True)

    @cached_property
    def _entry(self) -> Run | None:
        return self._taken(self._pending, "vector")

    def _taken(self, pending: Pending[Run | None], what: str) -> Run | None:
        try:
            return pending.result()
        except BuildError as problem:
            message = f"the {what} code of `{self._function.name}` could not be built: {problem}"
            hint = "it goes on with scalar code, with the same results, slower"
            Diagnostic(message, None, "vector-code", "warning", hint=hint).warn()
            return None

    def _built(self) -> Run | None:
        widths = widths_of(processor_features()) if self._compiler.is_gcc else ()
        if not widths:
            return None
        try:
            lanes = most_lanes(self._function, widths)
            fewest = FEWEST_OPERATIONS[lanes.width]
            return build(self._function, lanes, self._cache, self._compiler, fewest)
        except Refused:
            return None

    def _built_optimised(self) -> Run | None:
        if not self._compiler.is_gcc or is_long(self._function):
            return None
        return _built(emit([self._function], Cpu(is_optimised=True)), OPTIMISED, self._cache, self._compiler)


def _may_run() -> bool:
    chosen = settings()
    return chosen.vector_code and not chosen.deterministic


def gives_the_same_bits(function: Function) -> bool:
    """Whether vector code gives the same bits as scalar code: it calls no libmvec, and sums nothing."""
    stmts = list(walk(function.body))
    if any(isinstance(stmt, Let) and stmt.op.name in FUNCTIONS for stmt in stmts):
        return False
    if not any(isinstance(stmt, Atomic) for stmt in stmts):
        return True
    # A thread that adds to its own elements alone sums nothing, unless it does so again and again.
    return not any(isinstance(stmt, For | While) for stmt in stmts) and separate(function)


def build(function: Function, lanes: Lanes, cache: Cache, compiler: Compiler, fewest: float = 0.0) -> Run:
    """The vector code of a function, built and loaded; raises BuildError.

    Raises Refused where it has none, or does fewer operations for each element that lanes access one by one.
    """
    unit = emit_vectors(function, lanes)
    flags = (*FLAGS[lanes.register], *(() if is_long(function) else ("-O1",)))
    if operations_an_element(function, lanes) < fewest:
        raise Refused("it moves elements one by one more than it computes")
    return _built(unit, flags, cache, compiler)


def _built(unit: Unit, flags: tuple[str, ...], cache: Cache, compiler: Compiler) -> Run:
    """The only entry of a unit, built with these flags and loaded; raises BuildError."""
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


def most_lanes(function: Function, widths: Sequence[int]) -> Lanes:
    """The most lanes of a processor, half as many where threads compute with float64."""
    is_double = computes_in_doubles(function)
    return lanes_of(max(widths) // (2 if is_double else 1), is_double)


@cache
def lanes_of(width: int, doubles: bool = False) -> Lanes:
    """Lanes of a width, with the functions that libmvec has for them here."""
    lanes = Lanes(width, doubles)
    try:
        library = ctypes.CDLL("libmvec.so.1", ctypes.RTLD_GLOBAL)
    except OSError:
        return lanes
    floats = (float32, float64) if doubles else (float32,)
    known = ((name, type) for name in FUNCTIONS for type in floats)
    functions = frozenset(each for each in known if hasattr(library, lanes.symbol(*each)))
    return Lanes(width, doubles, functions)
