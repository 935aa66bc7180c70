"""The fast gradient check: adjoint against differences along random directions, in float64.

For a Jacobian J, random vectors u of outputs and v of inputs, the adjoint gives ``J^T u`` and differences
give ``J v``, each from one lane of one launch; ``(J^T u) . v`` must be ``u . (J v)``.  Both are taken of the
float64 build of the same IR, so that what remains is rounding in float64, and one wrong entry among
thousands shows.  The adjoint is taken in the kernel's own precision too, and must be that of float64 up to
its rounding.

A screening only ever passes what is right, or names suspects: where products differ, the inputs are halved
again and again down to the columns whose products differ.  The check of entries alone judges those.  Must
not know reports.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelab.autodiff.adjoints import Adjoints
from kernelab.autodiff.differences import Floats, along
from kernelab.autodiff.jacobian import Selection
from kernelab.autodiff.lanes import Batch
from kernelab.autodiff.levels import BASE, Level
from kernelab.autodiff.reverse import Reverse
from kernelab.autodiff.subject import Subject, Variable
from kernelab.autodiff.trees import scalars
from kernelab.autodiff.wide import Wide

DIRECTIONS = 3
"""How many random vectors are tried of each input, and of each output."""

EXACT = 1e-8
"""How far two products may differ, relative to the root of the sum of the squares of their terms."""

ROUNDING = 1e-14
"""The same, relative to the values of the function, which are subtracted from each other."""

AGAIN = (1.0, 0.03)
"""The steps that are tried, relative to the default: a function that bends sharply wants a smaller one."""

OWN = 1e-3
"""How far the adjoint in its own precision may be from that in float64, relative to the largest element."""


PIECES = 16
"""Into how many pieces a suspect part of an input is parted at once."""

MOST = 8
"""How many suspect parts are followed."""

Numbers = np.ndarray[Any, np.dtype[np.int64]]

Products = tuple[float, float, float]
"""By the adjoint, by differences, and the size of their terms."""


@dataclass(frozen=True, slots=True)
class Screened:
    """Two products that agree for one pair of input and output, the worst, and how far they differ.

    `scale` is the root of the sum of the squares of their terms; `entries` counts what they cover.
    """

    input: Variable
    output: Variable
    adjoint: float
    numeric: float
    scale: float
    entries: int
    products: int = DIRECTIONS**2


@dataclass(frozen=True, slots=True)
class Screening:
    """What was found: the products where all agree, else the suspect columns by input, where they are known.

    `complete` says whether all suspects are named, and not only the worst.
    """

    agreed: tuple[Screened, ...] = ()
    suspects: dict[int, Numbers] | None = None
    complete: bool = True


def screen(
    subject: Subject, selection: Selection, eps: float | None, labels: Sequence[str], least: int = 0
) -> Screening:
    """Compare the products of every pair, unless fewer than `least` entries make these less work."""
    own = Adjoint(subject, BASE)
    targets = subject.targets(own.outputs, labels)
    pairs = selection.pairs(subject.sources, targets)
    sizes = [selection.rows(targets[j]) * selection.columns(subject.sources[i]) for i, j in pairs]
    if sum(sizes) < least:
        return Screening()
    exact, rng = Adjoint(subject, Wide(BASE)), np.random.default_rng(len(pairs))
    back: dict[int, tuple[Floats, list[Floats]]] = {}
    for j in dict.fromkeys(j for _, j in pairs):
        u = directions(rng, targets[j].count, selection.rows(targets[j]))
        pulled = exact.products(j, u)
        if not all(map(same_up_to_rounding, own.products(j, u), pulled)):
            return Screening()
        back[j] = u, pulled
    agreed: dict[tuple[int, int], Products] = {}
    suspects: dict[int, Numbers] = {}
    complete = True
    for i in dict.fromkeys(i for i, _ in pairs):
        among = {j: (back[j][0], back[j][1][i]) for k, j in pairs if k == i}
        looked = _Input(subject, i, selection.columns(subject.sources[i]), among, eps, labels)
        parts = looked.agreeing(rng)
        if parts is None:
            suspects[i], named_all = looked.suspects(rng)
            complete = complete and named_all
        else:
            agreed |= {(i, j): products for j, products in parts.items()}
    if suspects:
        return Screening((), suspects, complete)
    found = zip(pairs, sizes, strict=True)
    return Screening(
        tuple(Screened(subject.sources[i], targets[j], *agreed[i, j], size) for (i, j), size in found)
    )


class Adjoint:
    """A subject that has run once in reverse mode, over a level that says in which precision."""

    def __init__(self, subject: Subject, base: Level) -> None:
        started = subject.start()
        self.base = base
        self.inputs = started.inputs
        self.level = Reverse(base)
        self.level.tracked.update(source.allocation for source in self.inputs)
        self.outputs = started.go(self.level)

    def products(self, j: int, u: Floats) -> list[Floats]:
        """``J^T u`` for each row of `u`, by each input."""
        output, batch, bars = self.outputs[j], Batch(self.base, len(u)), Adjoints()
        batch.move(bars.of(output), batch.seeds(output, u))
        self.level.pull(batch, bars)
        views = [batch.view(bars.of(source)) for source in self.inputs]
        if isinstance(self.base, Wide):
            views = [self.base.wide(view) for view in views]
        return [scalars(view).host().astype(np.float64).reshape(len(u), -1) for view in views]


def directions(rng: Any, count: int, used: int) -> Floats:
    """Vectors of numbers of either sign, none near zero, each a float16 too, so that every precision agrees.

    A single wrong entry then cannot hide behind a weight of zero, nor two behind equal weights.
    """
    made = np.zeros((DIRECTIONS, count))
    made[:, :used] = (
        rng.choice((-1.0, 1.0), (DIRECTIONS, used)) * rng.integers(32, 97, (DIRECTIONS, used)) / 64
    )
    return made


def same_up_to_rounding(own: Floats, exact: Floats, rounding: float = OWN) -> bool:
    """Whether products in the precision of the arrays are those in float64, but for rounding."""
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(own - exact)
        largest = np.abs(exact).max(initial=0.0)
    return bool(np.all(off <= rounding * (np.abs(exact) + 0.1 * largest)))


@dataclass(frozen=True, slots=True)
class _Input:
    """One input whose products are compared: `back` has u and ``J^T u`` by the position of each output."""

    subject: Subject
    position: int
    used: int
    back: dict[int, tuple[Floats, Floats]]
    eps: float | None
    labels: Sequence[str]

    def agreeing(self, rng: Any) -> dict[int, Products] | None:
        """The worst products for each output, at the first step at which all agree; None if there is none."""
        v = directions(rng, self.subject.sources[self.position].count, self.used)
        for scale in AGAIN if self.eps is None else AGAIN[:1]:
            found = self._compared(v, scale)
            if all(np.all(each.excess <= 0) for each in found.values()):
                return {j: each.worst() for j, each in found.items()}
        return None

    def suspects(self, rng: Any) -> tuple[Numbers, bool]:
        """The columns whose products differ, and whether those are all, by parting those that do."""
        v = directions(rng, self.subject.sources[self.position].count, self.used)[0]
        parts, complete = [np.arange(self.used)], True
        while parts and max(map(len, parts)) > 1:
            pieces = [piece for part in parts for piece in np.array_split(part, PIECES) if len(piece)]
            moved = np.zeros((len(pieces), len(v)))
            for lane, piece in zip(moved, pieces, strict=True):
                lane[piece] = v[piece]
            found = self._compared(moved, AGAIN[0])
            excess = np.max([each.excess.max(axis=0) for each in found.values()], axis=0)
            order = [k for k in np.argsort(-excess) if excess[k] > 0]
            complete = complete and len(order) <= MOST
            parts = [pieces[k] for k in order[:MOST]]
        return np.sort(np.concatenate([np.zeros(0, np.int64), *parts])), complete and bool(parts)

    def _compared(self, v: Floats, scale: float) -> "dict[int, Compared]":
        steps, values, slopes = along(self.subject, self.position, v, self.eps, scale, self.labels)
        moves = v * steps
        return {
            j: Compared.of(u, slopes[j], pulled, moves, values[j]) for j, (u, pulled) in self.back.items()
        }


@dataclass(frozen=True, slots=True)
class Compared:
    """Products for each u and v; `excess` is how far they differ beyond rounding, infinite if undefined."""

    adjoint: Floats
    numeric: Floats
    scale: Floats
    excess: Floats

    @staticmethod
    def of(u: Floats, slopes: Floats, pulled: Floats, moves: Floats, values: Floats) -> "Compared":
        with np.errstate(invalid="ignore", over="ignore"):
            adjoint, numeric = pulled @ moves.T, u @ slopes.T
            scale = np.sqrt(np.maximum(pulled**2 @ moves.T**2, u**2 @ slopes.T**2))
            noise = ROUNDING * np.sqrt(u**2 @ values.T**2)
            excess = np.abs(adjoint - numeric) - noise - EXACT * scale
        return Compared(adjoint, numeric, scale, np.where(np.isfinite(excess), excess, np.inf))

    def worst(self) -> Products:
        k = np.unravel_index(int(np.argmax(self.excess)), self.excess.shape)
        return float(self.adjoint[k]), float(self.numeric[k]), float(self.scale[k])
