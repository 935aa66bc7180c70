"""Programs derived from a kernel, ready to run: reverse mode's two, and what building an entry means.

Knows passes and the backend; must not know how kernels are written, launched or recorded.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial

from kernelab.backend.common.backends import Args, Entry
from kernelab.backend.common.tiered import AHEAD, Pending
from kernelab.lang.build import elem_of
from kernelab.lang.ir import Custom, Function, walk
from kernelab.passes.access.access_regions import Region, regions
from kernelab.passes.ad.vjp import Vjp
from kernelab.passes.common.effects import effects
from kernelab.passes.common.inline import inline
from kernelab.passes.common.scalarise import scalarise
from kernelab.passes.common.simplify import simplify
from kernelab.runtime.context.garbage import put_off
from kernelab.runtime.kernel.dispatch import Placed, place
from kernelab.runtime.kernel.memory_budget import run_within_budget
from kernelab.runtime.kernel.tracing import Tracing, traced
from kernelab.runtime.memory.spaces import Space


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
        """The adjoint that adds apart what different lines contribute to one element, if it can be had."""
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
    """The function with what was kept apart for differentiation inlined."""
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
