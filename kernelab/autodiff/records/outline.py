"""The facts that all launches of a kernel share on a tape: what they read and write, and the adjoint.

Knows launches and derived programs; must not know records or sweeps.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from kernelab.errors import Diagnostic, KernelTypeError
from kernelab.runtime.arguments.arguments import Reference
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.program import Groups, Positions, Pullback
from kernelab.runtime.launch.launch import Call

Pick = Callable[[Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Outline:
    """The facts that launches of a kernel with the same active parameters share: positions of arguments.

    `read` are arrays whose elements its text reads, used or not: what a gradient means must not depend on
    what was optimised away.  `references` says that arrays stand for some of the numbers, `passive` are
    arrays read and used that did not require gradients.  The functions take what stands at some of the
    positions out of the arguments.
    `pullback` is the KernelTypeError where there is no adjoint, None where nothing could be differentiated;
    `switched_off` says that the user wants none.  In a launch that `is_plain` no chain ends.
    """

    pullback: Pullback | KernelTypeError | None
    read: tuple[int, ...]
    reached: tuple[int, ...]
    written: tuple[int, ...]
    references: bool
    passive: tuple[int, ...]
    switched_off: bool
    is_plain: bool
    pick_active: Pick
    pick_read: Pick
    pick_reached: Pick
    pick_written: Pick


def _pick(positions: tuple[int, ...]) -> Pick:
    """A function that selects the values at some positions of a tuple."""
    if len(positions) > 1:
        return itemgetter(*positions)
    first = positions[0] if positions else 0
    return itemgetter(slice(first, first + len(positions)))


def pullback_of(
    kernel: Kernel, active: Collection[int], groups: Groups, settled: Positions = ()
) -> Pullback | KernelTypeError:
    """Reverse mode with respect to the parameters at some positions, or why there is none."""
    try:
        return kernel.program.pullback(tuple(sorted(active)), groups, settled)
    except KernelTypeError as error:
        return error  # raised by backward(), if a gradient has to pass through this kernel


def would_reach(call: Call, positions: Collection[int], active: Collection[int]) -> bool:
    """Whether adjoints would flow to one of some arguments, if these were active, too."""
    pullback = pullback_of(call.kernel, {*active, *positions}, call.groups())
    return not isinstance(pullback, Pullback) or any(i in pullback.reached for i in positions)


def outline_of(call: Call, groups: Groups, settled: Positions) -> Outline:
    """The shared facts of a launch, by which arguments share memory and which of them are saved."""
    plan, arguments = call.kernel.plan, call.arguments
    references = {i for i in plan.numbers if arguments[i].__class__ is Reference}
    # In what shares memory with an array that it changes, a launch reads what it has written.
    together = {i for i in plan.floats if any(i in group for group in groups)}
    changed = together.union(plan.written)
    active = {i for i in plan.floats if arguments[i].requires_grad or i in changed} | references
    used = references.union(i for i in plan.read if i in plan.floats)
    read = references.union(i for i in plan.read_in_text if i in plan.floats)
    pullback = pullback_of(call.kernel, active, groups, settled) if active else None
    if isinstance(pullback, Pullback):
        pullback.adjoint.build_ahead(call.space)
    off = isinstance(pullback, KernelTypeError) and not call.kernel.has_backward
    reached = (
        used.intersection(pullback.reached) if isinstance(pullback, Pullback) else used if not off else ()
    )
    written = tuple(i for i in plan.written if i in plan.floats)
    first = tuple(sorted(read))
    positions = first, first if read == set(reached) else tuple(sorted(reached)), written
    picks = [_pick(several) for several in (getattr(pullback, "active", ()), *positions)]
    passive = tuple(sorted(used - active))
    is_plain = not (off or passive or call.kernel.casts or call.structs)
    return Outline(pullback, *positions, bool(references), passive, off, is_plain, *picks)


def not_kept(kernel: Kernel) -> Diagnostic:
    """The error for a launch that was recorded too late to save what its adjoint needs."""
    message = f"`{kernel.name}` overwrites values that its adjoint needs: too late to record its launch"
    return Diagnostic(message, kernel.span, "residual", hint="launch it inside `with tape:`")
