"""Recording: what a kernel reads from arrays that it also changes is kept for the adjoint.

    before    v = a[i]; a[i] = w
    primal    v = a[i]; append residual v; a[i] = w
    replay    r = residual[start + 0]; v = a[i] held r; a[i] = w

A load from an array that the function changes, an atomic whose result is used, and an `atomic_min` or
`atomic_max` of floats is a *site*.  Each kept
site has a residual: a growing array to which the primal appends, thread after thread, `starts` holding where
a thread's values begin.  The replayable program (`passes.ad.readback`) reads them back, so that what is
recorded needs nothing special of loops, branches or exits, and `vjp` knows nothing of it but `held`.

The programs of reverse mode are differentiated in reverse, too.  Each value that a `Restore` gives back is a
site then: a stack cannot be taken from while it is replayed for a sweep that has stacks of its own.
"""

import itertools
from collections.abc import Collection
from dataclasses import dataclass, replace

from kernelab.lang.ir import Append, Function, Save, Stmt, walk
from kernelab.passes.ad.readback import replayable
from kernelab.passes.ad.save_points import Residual, Site, components, residual_of, sites, sources
from kernelab.passes.common.copying import Copier
from kernelab.passes.common.effects import Groups
from kernelab.passes.common.load_forwarding import forward


@dataclass(frozen=True, slots=True)
class Recorded:
    """The primal that appends, and the program that reads back, with the residuals that link them.

    `reopened` are the positions of parameters that the function itself appends to.  The replayable program
    stores to them; its last parameters are where each thread begins in them.
    """

    primal: Function
    replayable: Function
    residuals: tuple[Residual, ...]
    reopened: tuple[int, ...] = ()


def record(
    function: Function,
    groups: Groups = (),
    keep: Collection[int] | None = None,
    intact: Collection[str] = (),
    by_line: bool = False,
) -> Recorded:
    """Record the sites of a function, by default all; `keep` lists the positions of those to keep.

    A site that is not kept is left as it is, for an adjoint that does not need its value.  `by_line` is that
    of `forward`.
    """
    function = forward(function, groups, by_line)
    chosen = [site for i, site in enumerate(sites(function, groups, intact)) if keep is None or i in keep]
    appended = {stmt.array for stmt in walk(function.body) if isinstance(stmt, Append)}
    if not chosen and not appended and not any(isinstance(stmt, Save) for stmt in walk(function.body)):
        return Recorded(function, function, ())
    taken = {param.hint for param in function.params}
    numbers = (number for number in itertools.count(1) if f"residual_{number}" not in taken)
    residuals = {site: residual_of(site, number) for site, number in zip(chosen, numbers, strict=False)}
    primal = _Appender(residuals).function(function)
    arrays = tuple(r.array for r in residuals.values())
    primal = replace(primal, params=(*function.params, *arrays))
    reopened = tuple(i for i, param in enumerate(function.params) if param in appended)
    again = replayable(function, residuals, [function.params[i] for i in reopened])
    return Recorded(primal, again, tuple(residuals.values()), reopened)


class _Appender(Copier):
    """Writes the primal: the same program, with an append after each kept site."""

    def __init__(self, residuals: dict[Site, Residual]) -> None:
        super().__init__()
        self.residuals = residuals

    def stmt(self, stmt: Stmt) -> None:
        super().stmt(stmt)
        for site, out in sources(stmt):
            if site in self.residuals:
                for component in components(self.builder, self.atom(out)):
                    self.builder.emit(Append(self.residuals[site].array, component, stmt.span))
