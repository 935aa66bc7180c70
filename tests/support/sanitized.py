"""Runs generated code under a sanitizer, in a process that `tests.sanitize` starts.

    python -m tests.support.sanitized KIND FOLDER [--seed 7] [--first 0] [--programs 10000] [--minutes 10]

Rounds are numbered, each with programs of its own: the first runs the zoo, the others run random kernels with
their derivatives and random tapes, three rounds of scalar code and one of vector code in turn.  The program
that runs is written to FOLDER before it runs, since a finding ends the process.

The kernels of a round are one build, without optimisation: that takes half of the time, and makes each access
of the text.  g++ instruments no loads and stores of some lanes only, so here these are loops over lanes.
"""

import argparse
import contextlib
import ctypes
import sys
import tempfile
import threading
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import kernelab as kl
from kernelab.backend.common import backends, compiler
from kernelab.backend.common.compiler import open_compiler, processor_features
from kernelab.backend.cpu import cores, split, vector_tier
from kernelab.backend.cpu.cpu_backend import CpuBackend
from kernelab.backend.cpu.vector_tier import FLAGS, lanes_of, load_library, widths_of
from kernelab.codegen.cpp.emitter import prelude
from kernelab.codegen.cpp.entry import CODE, STATUS_FIELDS, Line, Unit, layout_of
from kernelab.codegen.cpp.targets import Cpu
from kernelab.codegen.vectors import vector_operations, vector_rows
from kernelab.codegen.vectors.vector_emitter import emit_vectors
from kernelab.codegen.vectors.vector_operations import Lanes
from kernelab.codegen.vectors.vector_values import Refused
from kernelab.errors import KernelError
from kernelab.lang.ir import Function
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import Vjp, vjp
from kernelab.passes.common.scalarise import scalarise
from kernelab.runtime.memory import memory
from tests.strategies import GRID, LAYOUTS, exact, plain_programs, programs
from tests.strategies.hosts import host_programs
from tests.support.lowering import lowered
from tests.support.programs import Point, active, complete, reverse
from tests.support.tapes import checked_tape
from tests.support.zoo import ZOO, Animal

CURRENT, COUNTED = "current.txt", "counted.txt"
"""The files in the folder: what runs now, and how much has run."""

RICH, PLAIN, TAPES = 2, 14, 40
"""Programs of a round: kernels of all that there is, kernels of numbers and arrays alone, and tapes."""

NAMES = "FEWEST", "FEWEST_WITH_LOOPS", "MOST_STATEMENTS"


class Log:
    """Says on disk what runs and what has run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = Counter[str]()

    def runs(self, text: str) -> None:
        """Note what is about to run."""
        (self.folder / CURRENT).write_text(text)

    def ran(self, number: int, **more: int) -> None:
        """Note that a round is over."""
        self.count.update(more)
        (self.folder / COUNTED).write_text(f"{number}\n{dict(self.count)!r}\n")


# ------------------------------------------------------------------------------------------ memory


class _TightNumpy:
    """NumPy, as the module that allocates memory sees it: arrays end where their bytes end, and are freed."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def empty(self, nbytes: int, _: Any) -> Any:
        return _tight(nbytes, clear=False)

    def zeros(self, nbytes: int, _: Any) -> Any:
        return _tight(nbytes, clear=True)


def _tight(nbytes: int, *, clear: bool) -> Any:
    libc = ctypes.CDLL(None)
    room = max(1, nbytes - 64)  # `allocate` asks for as many bytes more, to align the first
    address = ctypes.c_void_p()
    if libc.posix_memalign(ctypes.byref(address), ctypes.c_size_t(64), ctypes.c_size_t(room)):
        raise MemoryError
    assert address.value is not None
    if clear:
        ctypes.memset(address.value, 0, room)
    held = (ctypes.c_ubyte * room).from_address(address.value)
    weakref.finalize(held, libc.free, ctypes.c_void_p(address.value))
    return np.frombuffer(held, np.uint8)


def tight_memory() -> None:
    """From now on each array lies in a piece of memory of its own that has its size to the byte."""
    memory.np = _TightNumpy()  # type: ignore[attr-defined]
    memory._SMALL = -1  # a `bytearray` is larger than it says, and in memory that Python has divided itself


@contextlib.contextmanager
def tier(vector: bool) -> Iterator[None]:
    """Within it launches of any size run vector code, or those that usually do."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in zip(NAMES, (1, 1, 0), strict=True) if vector else ():
            patch.setattr(vector_tier, name, value)
        yield


def cut_small_launches() -> None:
    """From now on launches of any size run on several cores, if their threads may."""
    split.ENOUGH, split.FEWEST, split.ROUND, cores.WAKING = 1, 2, 1, -1.0


# ------------------------------------------------------------------------------------------ what runs


def drawn(strategy: Any, count: int, seed: int) -> list[Any]:
    """Some programs, the same for the same seed."""
    found: list[Any] = []

    @hypothesis.seed(seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(one: Any) -> None:
        found.append(one)

    collect()
    return found


def zoo(log: Log) -> None:
    """Every kernel of the zoo: launched, on a tape and back, and its tangent."""
    for animal in ZOO:
        for vector in (False, True):
            log.runs(animal.text)
            with tier(vector):
                _animal(animal)
            log.count.update(zoo=1)


def _animal(animal: Animal) -> None:
    kernel, given = kl.compile(animal.text)[animal.name], animal.draw(np.random.default_rng(3))
    held = [_held(name in animal.differentiable, value) for name, value in given.items()]
    ends = {one: kl.ones_like(one) for one in held if isinstance(one, kl.array) and one.requires_grad}
    with contextlib.suppress(KernelError), kl.Tape() as tape:
        kl.launch(kernel, animal.grid, held)
        tape.backward(grads=ends)
    function = lowered(animal.text, animal.name)
    names = [name for name in animal.differentiable if function.param(name).type]
    with contextlib.suppress(KernelError):
        tangent = scalarise(jvp(function, names))
        entry = CpuBackend().build([tangent])[tangent.name]
        dots = {f"{name}_dot": np.copy(given[name]) for name in names}
        arguments = {**given, **dots}
        entry(backends.pack(entry.info.layout, animal.grid, arguments))


def _held(differs: bool, value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    return kl.array(value, requires_grad=differs, copy=True)


def _renamed(function: Function, name: str) -> Function:
    return Function(name, function.params, function.body, function.threads, function.span, function.linear)


@dataclass(frozen=True, slots=True)
class Family:
    """A program, and those derived from it, under names of their own."""

    text: str
    function: Function
    point: Point
    pulled: Vjp
    programs: tuple[Function, ...]


def _family(text: str, number: int, point: Point) -> Family:
    function = lowered(text, "program")
    pulled = reverse(function, point)
    made = {"primal": function, "tangent": jvp(function, active(function)), "adjoint": pulled.adjoint}
    programs = tuple(scalarise(_renamed(one, f"{kind}_{number}")) for kind, one in made.items())
    return Family(text, function, point, pulled, programs)


def kernels(log: Log, seed: int, run: Callable[..., None]) -> None:
    """Random kernels with their tangents and adjoints, over memory that may overlap."""
    texts = [*drawn(programs(), RICH, seed), *drawn(plain_programs(), PLAIN, seed)]
    log.runs("\n".join(texts))
    layouts = list(LAYOUTS)
    points = [Point.drawn(layouts[(seed + k) % len(layouts)], k) for k in range(len(texts))]
    families = [_family(text, k, point) for k, (text, point) in enumerate(zip(texts, points, strict=True))]
    every = [program for family in families for program in family.programs]
    entries = CpuBackend().build(every)
    for family in families:
        log.runs(family.text)
        for program in family.programs:
            entry = entries[program.name]
            arguments = complete(family.function, program, family.point, GRID, family.pulled)
            run(lambda entry=entry, given=arguments: _launch(entry, given))
    log.count.update(kernels=len(texts), programs=len(every))


def _launch(entry: Any, arguments: dict[str, Any]) -> None:
    held = tightly(arguments)  # packed slots do not keep arrays alive
    entry(backends.pack(entry.info.layout, GRID, held))


def tightly(arguments: dict[str, Any]) -> dict[str, Any]:
    """Copies of arguments: those that overlap in one piece of memory, every other in one of its own."""
    found = {name: np.array(value) for name, value in arguments.items()}
    views = {name: value for name, value in arguments.items() if getattr(value, "base", None) is not None}
    end = -1
    for name, view in sorted(views.items(), key=lambda item: item[1].ctypes.data):
        first = view.ctypes.data
        if first >= end:
            together = [(name, view)]
            start, end = first, first + view.nbytes
        else:
            together.append((name, view))
            end = max(end, first + view.nbytes)
        piece = np.array((ctypes.c_ubyte * (end - start)).from_address(start))
        for other, held in together:
            part = piece[held.ctypes.data - start :][: held.nbytes]
            found[other] = part.view(held.dtype).reshape(held.shape)
    return found


# ------------------------------------------------------------------------------------------ vector code

_LANE_BY_LANE = """
#undef fetch
#undef put
#undef gather
#undef scatter
#define EACH for (int k = 0; k < {width}; ++k) if (mask[k])
static vf fetch(const char* p, vi mask) {{ vf x{{}}; EACH x[k] = ((const float*)p)[k]; return x; }}
static void put(char* p, vf x, vi mask) {{ EACH ((float*)p)[k] = x[k]; }}
static vf gather(const char* p, vi offsets, vi mask) {{
  vf x{{}};
  EACH x[k] = *(const float*)(p + offsets[k]);
  return x;
}}
static void scatter(char* p, vi offsets, vf x, vi mask) {{ EACH *(float*)(p + offsets[k]) = x[k]; }}
"""

_LANE_BY_LANE_64 = """\
#undef fetch_64
#undef gather_64
static vw fetch_64(const char* p, vi mask) { vw x{}; EACH x[k] = ((const double*)p)[k]; return x; }
static void put(char* p, vw x, vi mask) { EACH ((double*)p)[k] = x[k]; }
static vw gather_64(const char* p, vi offsets, vi mask) {
  vw x{};
  EACH x[k] = *(const double*)(p + offsets[k]);
  return x;
}
static void scatter(char* p, vi offsets, vw x, vi mask) { EACH *(double*)(p + offsets[k]) = x[k]; }
"""


_ROW = "return __builtin_ia32_maskloadps((const Four*)p, FourI{-1, -1, n > 2 ? -1 : 0, 0});"
_ROW_BY_NUMBERS = "Four x{}; for (int k = 0; k < n; ++k) x[k] = ((const float*)p)[k]; return x;"


def instrument_lanes() -> None:
    """From now on loads and stores of some lanes are loops over lanes, which sanitizers see."""
    plain = Lanes.helpers.fget
    assert plain is not None

    def helpers(lanes: Lanes) -> str:
        names = "fetch", "put", "gather", "scatter", "fetch_64", "gather_64"
        unseen = "".join(f"#define {name} unseen_{name}\n" for name in names)
        seen = _LANE_BY_LANE.format(width=lanes.width) + (_LANE_BY_LANE_64 if lanes.doubles else "")
        return f"{unseen}{plain(lanes)}{seen}"

    def rows(width: int) -> str:
        text = vector_rows.rows(width)
        assert _ROW in text
        return text.replace(_ROW, _ROW_BY_NUMBERS)

    Lanes.helpers = property(helpers)  # type: ignore[method-assign, assignment]
    vector_operations.rows = rows  # type: ignore[attr-defined]


def vectors(log: Log, seed: int, run: Callable[..., None]) -> None:
    """The vector code of random kernels and their adjoints, over whole groups of threads and a rest."""
    drafts = [exact(text) for text in drawn(plain_programs(), RICH + PLAIN, seed)]
    for width, doubles in product(widths_of(processor_features()), (False, True)):
        lanes, dtype = lanes_of(width >> doubles, doubles), "float64" if doubles else "float32"
        texts = [text.replace("float64", dtype) for text in drafts]
        log.runs("\n".join(texts))
        made: list[tuple[str, Function, Unit]] = []
        for number, text in enumerate(texts):
            primal = lowered(text, "program")
            for kind, one in ("primal", primal), ("adjoint", vjp(primal, ["x", "a", "out"], []).adjoint):
                function = scalarise(_renamed(one, f"{kind}_{number}"))
                with contextlib.suppress(Refused):
                    made.append((text, function, emit_vectors(function, lanes)))
        library = _one_library([unit for _, _, unit in made], lanes)
        for number, (text, function, unit) in enumerate(made):
            log.runs(text)
            threads = 3 * lanes.width + number % lanes.width
            arguments = vector_arguments(function, threads, number, dtype)
            entry = library[unit.entries[0].symbol]
            run(lambda f=function, e=entry, a=arguments, n=threads: _vector_launch(f, e, a, n))
        log.count.update(kernels=len(texts), programs=len(made))


def _one_library(units: list[Unit], lanes: Lanes) -> ctypes.CDLL:
    """The entries of several units, which begin alike, built together."""
    bodies = [line for unit in units for line in unit.lines[unit.entries[0].lines.start :]]
    texts = [line.text for line in bodies]
    head = [*prelude(Cpu(), texts), *lanes.head(texts)]
    unit = Unit((*map(Line, head), *bodies), tuple(unit.entries[0] for unit in units))
    with tempfile.TemporaryDirectory() as folder:
        open_compiler().compile(unit, Path(folder) / "library.so", FLAGS[lanes.register])
        return load_library(Path(folder) / "library.so")


def vector_arguments(function: Function, threads: int, seed: int, dtype: str) -> dict[str, Any]:
    """Arguments for a plain program in a type of floats, or for its adjoint."""
    rng = np.random.default_rng(seed)
    shapes = {"x": (threads + 4,), "a": (threads, 4), "out": (threads, 4)}
    floats = {
        param.hint: rng.normal(size=shapes[param.hint.removesuffix("_bar")]).astype(dtype)
        for param in function.params
        if param.hint != "n"
    }
    return {**floats, "n": rng.integers(0, 4, threads).astype(np.int32)}


def _vector_launch(function: Function, entry: Any, arguments: dict[str, Any], threads: int) -> None:
    held = {name: np.array(value) for name, value in arguments.items()}
    status = (ctypes.c_longlong * STATUS_FIELDS)()
    ended = entry(backends.pack(layout_of(function), (threads,), held), ctypes.byref(status))
    if ended < 0 or status[CODE]:
        raise AssertionError(f"{function.name} gave up: {ended}, {status[CODE]}")


def tapes(log: Log, seed: int, vector: bool, run: Callable[..., None]) -> None:
    """Random host programs on a tape, and back."""
    found = drawn(host_programs(), TAPES, seed)
    with tier(vector):
        for number, program in enumerate(found):
            log.runs("\n# and after the tape:\n".join(program))
            run(lambda program=program, number=number: checked_tape(program, number % 10, "save"))
    log.count.update(tapes=len(found))


def once(work: Callable[[], None]) -> None:
    """Run it in this thread."""
    work()


THREADS = 4


def together(work: Callable[[], None]) -> None:
    """Run it in several threads at the same time; raises what the first one raised."""
    barrier, raised = threading.Barrier(THREADS), list[BaseException]()

    def each() -> None:
        barrier.wait()
        try:
            for _ in range(3):
                work()
        except BaseException as error:  # noqa: BLE001  raised again below
            raised.append(error)

    threads = [threading.Thread(target=each) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("address", "undefined", "thread"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--programs", type=int, default=sys.maxsize)
    parser.add_argument("--minutes", type=float, default=10.0)
    chosen = parser.parse_args()
    warnings.filterwarnings("ignore", "an index of")  # programs count from the end on purpose
    tight_memory()
    instrument_lanes()
    compiler.QUICK = ("-O0",)
    if chosen.kind == "thread":
        cut_small_launches()
    log, run, start = Log(chosen.folder), together if chosen.kind == "thread" else once, time.monotonic()
    number = chosen.first
    while time.monotonic() - start < 60 * chosen.minutes and log.count["programs"] < chosen.programs:
        if number == 0:
            zoo(log)
        else:
            seed, vector = chosen.seed * 10_000 + number, number % 4 == 0
            (vectors if vector else kernels)(log, seed, run)
            tapes(log, seed, vector, run)
        log.ran(number)
        number += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
