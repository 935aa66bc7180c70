"""Programs derived from a kernel, ready to run: reverse mode's two, and what building an entry means.

Knows passes and the backend; must not know how kernels are written, launched or recorded.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from kernelab.backend.common.backends import Args, Entry, StorageFull
from kernelab.backend.common.tiered import AHEAD, Pending
from kernelab.errors import Span
from kernelab.lang.build import elem_of
from kernelab.lang.ir import Custom, Function, walk
from kernelab.passes.access.access_regions import Region, regions
from kernelab.passes.ad.vjp import Vjp
from kernelab.passes.common.effects import effects
from kernelab.passes.common.inline import inline
from kernelab.passes.common.scalarise import scalarise
from kernelab.passes.common.simplify import simplify
from kernelab.passes.programs.nan_provenance import Poisoned, poison
from kernelab.runtime.context.garbage import put_off
from kernelab.runtime.kernel.dispatch import Placed, place
from kernelab.runtime.memory.interop import HostArray
from kernelab.runtime.memory.spaces import Space
from kernelab.settings import settings

FRESH = 0.25
"""For how many seconds it is remembered how much memory is free."""

LEAST = 1 << 20
"""What a launch may keep however little is free: so little is not what memory runs out of."""


def run_within_budget(usual: Entry, frugal: Callable[[], Entry], args: Args) -> bool:
    """Run a program, and another of the same function where it saves too much; whether it did.

    Raises KernelMemoryError where it keeps more than a launch may.
    """
    info = usual.info
    room = room_to_keep() if info.saves or info.keeps else 0
    try:
        usual(args, settings().loop_memory if info.saves else 0, room=room)
    except StorageFull as full:
        frugal()(args, done=full.done, room=room)
        return True
    return False


def run_keeping(entry: Entry, args: Args) -> None:
    """Run a primal that keeps residuals; raises KernelMemoryError where these are more than they may be."""
    entry(args, room=room_to_keep())


def room_to_keep() -> int:
    """The number of bytes that a launch that begins now may keep, 0 for any number."""
    wanted = settings().kept_memory
    if wanted is not None:
        return wanted
    free = _free.now()
    return 0 if free is None else max(LEAST, free // 2)


class _FreeMemory:
    """The amount of free memory, sampled now and then: a query takes as long as a small launch."""

    def __init__(self) -> None:
        self.asked = -FRESH
        self.found: int | None = None

    def now(self) -> int | None:
        moment = time.monotonic()
        if moment - self.asked >= FRESH:
            self.asked, self.found = moment, free_memory()
        return self.found


_free = _FreeMemory()


def free_memory() -> int | None:
    """The free memory of the machine or of the container around the process in bytes; None if unknown."""
    return min([*_free_of_machine(), *_free_of_container()], default=None)


def _free_of_machine() -> list[int]:
    lines = _text("/proc/meminfo").splitlines()
    return [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]


def _free_of_container() -> list[int]:
    """The free memory in bytes under the limits of control groups of both versions."""
    places = (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    )
    found = [(_text(limit).strip(), _text(used).strip()) for limit, used in places]
    return [max(0, int(limit) - int(used)) for limit, used in found if limit.isdigit() and used.isdigit()]


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError:  # no such file on this machine
        return ""


# --------------------------------------------------------------------------------------------------- tracing


@dataclass(frozen=True, slots=True)
class Tracing:
    """A program built so that it finds where values turn NaN or infinite."""

    program: Poisoned
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


def traced(function: Function) -> Tracing:
    """The program, built so."""
    program = poison(scalarise(function))
    return Tracing(program, place(program.function))


# --------------------------------------------------------------------------------------------------- derived


class Reverse:
    """Reverse mode of a kernel with respect to some parameters: the two programs, and what they share.

    `active` are positions of parameters, `reached` those of them whose adjoint the adjoint program changes,
    `needed` those of arrays whose elements it reads, with their regions; `residuals` are the element types of
    what the augmented primal keeps.  `derive` derives them again, with another storage of loops; `spilled`
    counts the sweeps that went on with that.
    """

    def __init__(
        self,
        primal: Function,
        program: Vjp,
        active: tuple[int, ...],
        derive: Callable[..., Vjp],
        clearer: Callable[[Region], Region],
    ) -> None:
        self.program = program
        self.active = active
        self._derive = derive
        self.spilled = 0
        self._ahead: Pending[Placed] | None = None
        self.residuals = tuple(elem_of(residual.array) for residual in program.residuals)
        found, count = effects(program.adjoint), len(primal.params)
        params = program.adjoint.params
        known = regions(program.adjoint, "read")
        self.needed = tuple(
            (i, clearer(known[i])) for i, param in enumerate(params[:count]) if param in found.reads
        )
        self.reached = tuple(
            i for i, bar in zip(active, params[count:], strict=False) if bar in found.changed
        )

    @cached_property
    def primal_entry(self) -> Entry:
        return build(self.program.primal)

    @cached_property
    def adjoint_entry(self) -> Entry:
        return build(self.program.adjoint) if self._ahead is None else self._ahead.result()

    @cached_property
    def frugal(self) -> Vjp:
        """The programs whose loops keep checkpoints where they would save every iteration."""
        return self._derive("checkpoint")

    @cached_property
    def adjoint_by_line(self) -> Function:
        """The adjoint that adds up what each line contributes to an element on its own, if available."""
        found = self._derive("save", by_line=True)
        known = [param.type for param in self.program.adjoint.params]
        same = [param.type for param in found.adjoint.params] == known and found.sites == self.program.sites
        return found.adjoint if same else self.program.adjoint

    @cached_property
    def frugal_entry(self) -> Entry:
        """The adjoint that saves little, or the usual one if the other would need more of the primal."""
        frugal = self.frugal
        return build(frugal.adjoint) if frugal.sites == self.program.sites else self.adjoint_entry

    def sweep(self, args: Args) -> None:
        """Run the adjoint, within the memory that loops may take."""
        if not self._saves:
            self.adjoint_entry(args)
            return
        self.spilled += run_within_budget(self.adjoint_entry, lambda: self.frugal_entry, args)

    @cached_property
    def _saves(self) -> bool:
        return self.adjoint_entry.info.saves

    @cached_property
    def tracing(self) -> Tracing:
        """The adjoint, built to find where values turn NaN or infinite."""
        return traced(self.program.adjoint)

    @cached_property
    def tracing_again(self) -> tuple[Tracing, tuple[int, ...]] | None:
        """The primal, built so and reading residuals, and the positions of arrays that it reads itself.

        None where residuals do not hold all that it would need.
        """
        if self.program.again is None:
            return None
        function = flat(self.program.again)
        reads = effects(function).reads
        return traced(function), tuple(i for i, param in enumerate(function.params) if param in reads)

    def build_ahead(self, space: Space | None) -> None:
        """Start to build the adjoint in the background: while the primal is built and runs, it gets ready.

        `space` is where it will run, None on the CPU.
        """
        if self._ahead is None and "adjoint_entry" not in self.__dict__:
            self._ahead = AHEAD.begin(partial(_ready, self.program.adjoint, space), was_told=True)


def flat(function: Function) -> Function:
    """The function with its custom derivatives inlined."""
    if not any(isinstance(stmt, Custom) for stmt in walk(function.body)):
        return function
    return simplify(inline(function))


def flat_pair(program: Vjp) -> Vjp:
    """The two programs of reverse mode, each flat."""
    return replace(program, primal=flat(program.primal), adjoint=flat(program.adjoint))


@put_off()
def build(function: Function) -> Placed:
    """The entry of a program, ready to run."""
    return place(scalarise(function))


def _ready(function: Function, space: Space | None) -> Placed:
    made = build(function)
    made.compile_ahead(space)
    return made
