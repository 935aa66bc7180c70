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
from typing import Any

import numpy as np

from kernelab.autodiff.jacobians.differences import OWN_SIZE, Floats, along, is_tiny, steps_of
from kernelab.autodiff.jacobians.jacobian import Selection, Trace, tangents
from kernelab.autodiff.jacobians.subject import Subject, Variable
from kernelab.autodiff.records.moves import HostCallRecord
from kernelab.autodiff.transforms.base_level import BASE
from kernelab.autodiff.transforms.batch_level import Batch
from kernelab.autodiff.transforms.forward_and_reverse import Run
from kernelab.autodiff.transforms.wide_level import Wide
from kernelab.data_classes import dataclass
from kernelab.errors import GradientError, KernelError, Span
from kernelab.lang.ir import Custom, Native, walk
from kernelab.runtime.context.recorder import refusal

DIRECTIONS = 3
"""How many random vectors are tried of each input, and of each output."""

EXACT = 1e-8
"""How far two products may differ, relative to the root of the sum of the squares of their terms."""

ROUNDING = 1e-14
"""The same, relative to the values of the function, which are subtracted from each other."""

STEP_SCALES = (1.0, 0.03, 0.001)
"""The steps that are tried, relative to the default: a function that bends sharply wants a smaller one."""

OWN_PRECISION = 1e-3
"""How far the adjoint in its own precision may be from that in float64, unless the precision is coarser."""

FACTORS = (-1.0, 2.0**-10, 2.0**10)
"""What cotangents and tangents, which are float16 too, are multiplied by to see whether rules are linear."""

NOT_LINEAR = "{} is not in proportion to {}"

LINEAR, OWN_ROUNDING, HOST_ROUNDING = 1e-6, 1e-11, 1e-5
"""How far it may be off, relative to each component and the largest; of Python functions the largest."""

ALIKE = 1e3
"""By which factor rows, or columns, may differ that are not rescaled."""

MOST_POWER = 1000
"""The largest power of two by which one is rescaled."""

PIECES = 4
"""Into how many pieces a suspect part of an input is parted at once."""

MOST_PARTS, FEW_PARTS = 8, 2
"""How many suspect parts are followed at most, and of more parts than these."""

MOST_ROWS = 4
"""How many suspect rows of a suspect column are looked at."""

Numbers = np.ndarray[Any, np.dtype[np.int64]]

Products = tuple[float, float, float]
"""By the adjoint, by differences, and the size of their terms."""


@dataclass(frozen=True, slots=True)
class Screening:
    """The result of screening: the worst products of each pair of input and output where all agree.

    Else the suspect columns by input, if known: all of them, or only the worst.
    """

    agreed: Sequence[tuple[Variable, Variable, Products]] = ()
    suspects: dict[int, Numbers] | None = None


def screen(subject: Subject, selection: Selection, eps: float | None, least: int = 0) -> Screening:
    """Compare the products of every pair, unless fewer than `least` entries make these less work."""
    own = Trace(subject)
    targets = own.targets
    pairs = selection.pairs(subject.sources, targets)
    if sum(selection.entries(subject.sources[i], targets[j]) for i, j in pairs) < least:
        return Screening()
    exact, rng = Trace(subject, Wide(BASE)), np.random.default_rng(len(pairs))
    pullbacks: dict[int, tuple[Floats, list[Floats]]] = {}
    for j in dict.fromkeys(j for _, j in pairs):
        u = directions(rng, targets[j].count, selection.rows(targets[j]))
        pulled = exact.products(j, u)
        rounding, products = max(OWN_PRECISION, 16 * own.epsilon), own.products(j, u)
        excess = [_beyond_rounding(*both, rounding) for both in zip(products, pulled, strict=True)]
        worst = {i: np.argsort(-excess[i])[:FEW_PARTS] for i, k in pairs if k == j and (excess[i] > 0).any()}
        if worst:
            return Screening((), worst)
        pullbacks[j] = u, pulled
    agreed: dict[tuple[int, int], Products] = {}
    suspects: dict[int, Numbers] = {}
    for i in dict.fromkeys(i for i, _ in pairs):
        among = {j: (pullbacks[j][0], pullbacks[j][1][i]) for k, j in pairs if k == i}
        screened = _Input(exact, i, selection.columns(subject.sources[i]), eps)
        parts, asked = screened.agreeing(among, directions(rng, subject.sources[i].count, screened.used))
        if parts is None:
            suspects[i] = screened.suspects(*asked)
            if not len(suspects[i]):
                return Screening()
        else:
            agreed |= {(i, j): products for j, products in parts.items()}
    if suspects:
        return Screening((), suspects)
    return Screening([(subject.sources[i], targets[j], agreed[i, j]) for i, j in pairs])


def require_chain(subject: Subject, exact: Trace, code: str) -> None:
    """Raise GradientError where a Python function computes none of its outputs from its inputs."""
    if subject.kernel is None and not exact.has_chain:
        message = f"0 pairs checked: {subject.name} computes nothing from its inputs"
        hint = "compute with its parameters, which are copies of what is in inputs="
        raise refusal(GradientError, message, code, hint)


def worst_rows(exact: Trace, i: int, j: int, column: int, slopes: Floats) -> Numbers:
    """The rows in which the adjoint of a column is farthest from its `slopes`, found by parting them."""
    signs = np.random.default_rng(column).choice((-1.0, 1.0), exact.targets[j].count)
    parts = [np.arange(len(slopes))]
    while max(map(len, parts)) > 1:
        pieces, u = _parted(parts, signs)
        off = np.abs(exact.products(j, u, [i])[0][:, column] - u[:, : len(slopes)] @ slopes)
        parts = [pieces[k] for k in np.argsort(-np.where(np.isfinite(off), off, np.inf))[:MOST_ROWS]]
    return np.concatenate(parts)


def _parted(parts: Sequence[Numbers], weights: Floats) -> tuple[list[Numbers], Floats]:
    """The pieces of some parts, and the weights of each piece in a vector that is zero elsewhere."""
    pieces = [piece for part in parts for piece in np.array_split(part, PIECES) if len(piece)]
    vectors = np.zeros((len(pieces), len(weights)))
    for vector, piece in zip(vectors, pieces, strict=True):
        vector[piece] = weights[piece]
    return pieces, vectors


def directions(rng: Any, count: int, used: int) -> Floats:
    """Vectors of numbers of either sign, none near zero, each a float16 too, so that every precision agrees.

    A single wrong entry then cannot hide behind a weight of zero, nor two behind equal weights.
    """
    vectors = np.zeros((DIRECTIONS, count))
    vectors[:, :used] = (
        rng.choice((-1.0, 1.0), (DIRECTIONS, used)) * rng.integers(32, 97, (DIRECTIONS, used)) / 64
    )
    return vectors


def same_up_to_rounding(own: Floats, exact: Floats, rounding: float, smallest: float) -> bool:
    """Whether products in a precision that ends at `smallest` are those in float64, up to rounding."""
    return not (_beyond_rounding(own, exact, rounding) > smallest).any()


def _beyond_rounding(own: Floats, exact: Floats, rounding: float) -> Floats:
    """By how much each number of products differs more than rounding explains; infinite if undefined."""
    allowed = rounding * (np.abs(exact) + 0.1 * np.abs(exact).max(initial=0.0))
    excess = np.abs(own.astype(np.float64) - exact) - allowed
    return np.asarray(np.where(np.isnan(excess), np.inf, excess).max(axis=0, initial=-np.inf))


# ------------------------------------------------------------------------------------------ rules of users


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a derivative is wrong: a verdict, as gradcheck lists them, and the line at fault, if known."""

    verdict: str
    explanation: str
    span: Span | None


def rules_in(entries: Sequence[Any]) -> list[Custom | Native | HostCallRecord]:
    """The statements of recorded programs, and the Python functions, whose derivatives users wrote."""
    programs = {entry.program: None for entry in entries if isinstance(entry, Run)}
    written = (stmt for program in programs for stmt in walk(program.function.body))
    calls = [e for e in entries if isinstance(e, HostCallRecord) and e.call.back is not None]
    return [*(stmt for stmt in written if isinstance(stmt, Custom | Native)), *calls]


def faults(exact: Trace, selection: Selection) -> dict[tuple[int, int], Fault]:
    """By input and output: rules that are not linear, and tangents that are not those of the adjoint."""
    rules, by_pair = rules_in(exact.level.entries), dict[tuple[int, int], Fault]()
    if not rules:
        return by_pair
    sources, rng = exact.subject.sources, np.random.default_rng(1)
    pairs = selection.pairs(sources, exact.targets)
    has_jvp = any(isinstance(stmt, Custom) and stmt.rules.jvp is not None for stmt in rules)
    by_host = any(isinstance(rule, HostCallRecord) for rule in rules)
    spans = {_written(rule) for rule in rules}
    span = next(iter(spans)) if len(spans) == 1 else None
    seeds: dict[int, Floats] = {}
    separate: dict[int, dict[int, Floats]] = {}
    for j in dict.fromkeys(j for _, j in pairs):
        seeds[j] = u = directions(rng, exact.targets[j].count, selection.rows(exact.targets[j]))
        wanted = [i for i, k in pairs if k == j]
        for i, pulled in zip(wanted, exact.products(j, mixed(u), wanted), strict=True):
            separate.setdefault(i, {})[j] = pulled[: len(u)]
            if not is_linear(pulled, len(u), by_host):
                by_pair[i, j] = Fault("nonlinear", NOT_LINEAR.format("the adjoint", "a cotangent"), span)
            elif has_jvp:
                v = directions(rng, sources[i].count, selection.columns(sources[i]))
                message = _tangent_fault(exact, i, j, (u, pulled[: len(u)], v))
                if message:
                    by_pair[i, j] = Fault("tangent", message, span)
    together = exact.products_together(seeds, [*separate]) if len(seeds) > 1 else ()
    for (i, parts), whole in zip(separate.items(), together, strict=False):
        if not _is_sum(whole, [*parts.values()], by_host):
            message = NOT_LINEAR.format("the adjoint", "the cotangents of several outputs")
            by_pair |= {(i, j): Fault("nonlinear", message, span) for j in parts if (i, j) not in by_pair}
    return by_pair


def _written(rule: Custom | Native | HostCallRecord) -> Span | None:
    if not isinstance(rule, Custom):
        return rule.span if isinstance(rule, Native) else rule.place.span
    rules = rule.rules
    return (rules.jvp or rules.grad or rules.replay or rules.function).span


def mixed(u: Floats) -> Floats:
    """Some vectors, then multiples of the first and a sum of two; powers of two do not round."""
    return np.concatenate([u, np.outer(FACTORS, u[0]), u[:1] + u[1:2]])


def is_linear(products: Floats, count: int, by_host: bool = False) -> bool:
    """Whether the products of `count` vectors, mixed, are those of a linear function.

    With `by_host` Python functions computed them, which may round to any precision.
    """
    first, second, others = products[0], products[1], products[count:]
    parts = [*((factor * first,) for factor in FACTORS), (first, second)]
    return all(_is_sum(other, terms, by_host) for terms, other in zip(parts, others, strict=True))


def _is_sum(whole: Floats, terms: Sequence[Floats], by_host: bool) -> bool:
    """Whether products are the sum of others, up to rounding."""
    rounding, least = (OWN_PRECISION, HOST_ROUNDING) if by_host else (LINEAR, OWN_ROUNDING)
    size = np.sum(np.abs(terms), axis=0)
    allowed = rounding * size + least * size.max(initial=0.0, where=np.isfinite(size))
    return not np.any(np.isfinite(size) & ~(np.abs(np.sum(terms, axis=0) - whole) <= allowed))


def _tangent_fault(exact: Trace, i: int, j: int, vectors: tuple[Floats, Floats, Floats]) -> str:
    """How a product with the tangent differs from that with the adjoint, for `u`, ``J^T u`` and `v`."""
    u, pulled, v = vectors
    try:
        along = mixed(v)
        pushed = tangents(exact.subject, Batch(Wide(BASE), len(along)), i, along)[1][j]
    except KernelError:  # what has an adjoint may have no tangent
        return ""
    if not is_linear(pushed, len(v)):
        return NOT_LINEAR.format("what the tangent gives", "the tangent of an input")
    by_adjoint, by_tangent = pulled @ v.T, u @ pushed[: len(v)].T
    scale = np.sqrt(np.maximum(pulled**2 @ v.T**2, u**2 @ pushed[: len(v)].T ** 2))
    off = np.abs(by_adjoint - by_tangent) - EXACT * scale
    if not (off > 0).any():
        return ""
    k = np.unravel_index(int(np.argmax(off)), off.shape)
    return f"along a direction the tangent is {by_tangent[k]:.6g} where the adjoint is {by_adjoint[k]:.6g}"


Pullbacks = dict[int, tuple[Floats, Floats]]
"""u and ``J^T u`` by the position of each output."""


@dataclass(frozen=True, slots=True)
class _Input:
    """One input whose products are compared."""

    exact: Trace
    position: int
    used: int
    eps: float | None

    def agreeing(
        self, pullbacks: Pullbacks, v: Floats
    ) -> tuple[dict[int, Products] | None, tuple[Pullbacks, Floats]]:
        """The worst products for each output, None if some differ; the vectors that show it.

        Where rows or columns are of very different sizes, they are rescaled and compared again: an entry
        would not show beside others in larger units.  Tiny inputs are moved by steps of their own size, too.
        """
        elements = self.exact.subject.sources[self.position].elements
        if self.eps is None and is_tiny(elements) and not _agree(self._compared(pullbacks, v, OWN_SIZE)[0]):
            return None, (pullbacks, v)
        for scale in STEP_SCALES if self.eps is None else STEP_SCALES[:1]:
            compared, slopes = self._compared(pullbacks, v, scale)
            if not _agree(compared):
                continue
            steps = steps_of(elements, self.eps, scale)
            asked = self._rescaled(pullbacks, v, steps, slopes)
            if asked is not None and not _agree(self._compared(*asked, scale)[0]):
                return None, asked
            return {j: each.worst() for j, each in compared.items()}, (pullbacks, v)
        return None, (pullbacks, v)

    def _rescaled(
        self, pullbacks: Pullbacks, v: Floats, steps: Floats, slopes: Sequence[Floats]
    ) -> tuple[Pullbacks, Floats] | None:
        """The vectors with larger rows and columns weighted less; None where all are alike."""
        sizes = {j: np.abs(slopes[j]).max(axis=0) for j in pullbacks}
        moves = v * steps
        columns = [np.abs(pulled * moves).max(axis=0) for _, pulled in pullbacks.values()]
        if all(are_alike(each) for each in (*sizes.values(), *columns)):
            return None
        scaled = {j: u * weights_of(sizes[j]) for j, (u, _) in pullbacks.items()}
        pulled = {j: self.exact.products(j, u, [self.position])[0] for j, u in scaled.items()}
        largest = np.max([np.abs(each * moves).max(axis=0) for each in pulled.values()], axis=0)
        weights = weights_of(largest)
        return {j: (scaled[j], pulled[j]) for j in pullbacks}, v * (weights / weights.max())

    def suspects(self, pullbacks: Pullbacks, vectors: Floats) -> Numbers:
        """The columns whose products differ, the worst if they are many, by parting those that do."""
        v = vectors[0]
        parts = [np.arange(self.used)]
        while parts and max(map(len, parts)) > 1:
            pieces, piecewise = _parted(parts, v)
            compared, _ = self._compared(pullbacks, piecewise, STEP_SCALES[0])
            excess = np.max([each.excess.max(axis=0) for each in compared.values()], axis=0)
            order = [k for k in np.argsort(-excess) if excess[k] > 0]
            parts = [pieces[k] for k in order[: MOST_PARTS if len(order) <= MOST_PARTS else FEW_PARTS]]
        return np.sort(np.concatenate([np.zeros(0, np.int64), *parts]))

    def _compared(
        self, pullbacks: Pullbacks, v: Floats, scale: float
    ) -> "tuple[dict[int, Compared], list[Floats]]":
        """The products, and the derivatives of the outputs along each row of `v` times the steps."""
        steps, values, slopes = along(self.exact.subject, self.position, v, self.eps, scale)
        moves = v * steps
        compared = {
            j: Compared.of(u, slopes[j], pulled, moves, values[j]) for j, (u, pulled) in pullbacks.items()
        }
        return compared, slopes


def _agree(compared: "dict[int, Compared]") -> bool:
    return all(each.agrees for each in compared.values())


def are_alike(sizes: Floats) -> bool:
    """Whether sizes are so near to each other that rounding in one of them does not hide another."""
    some = sizes[(sizes > 0) & np.isfinite(sizes)]
    return not len(some) or bool(some.max() <= ALIKE * some.min())


def weights_of(sizes: Floats) -> Floats:
    """Powers of two by which numbers become about 1; those that are zero or infinite stay as they are."""
    usable = (sizes > 0) & np.isfinite(sizes)
    exponents = np.frexp(np.where(usable, sizes, 1.0))[1]
    return np.where(usable, np.ldexp(1.0, np.clip(-exponents, -MOST_POWER, MOST_POWER)), 1.0)


def _size_of_terms(a: Floats, b: Floats) -> Floats:
    """The root of the sum of squares of the terms of each product of rows, which alone may underflow."""
    largest = [float(np.abs(x).max(initial=0.0, where=np.isfinite(x))) or 1.0 for x in (a, b)]
    squares = [(x / size) ** 2 for x, size in zip((a, b), largest, strict=True)]
    return np.asarray(np.sqrt(squares[0] @ squares[1].T) * largest[0] * largest[1])


@dataclass(frozen=True, slots=True)
class Compared:
    """Products for each u and v; `excess` is how far they differ beyond rounding, infinite if undefined.

    Where the differences `are_sharp`, their rounding is less than what they may be off besides.
    """

    adjoint: Floats
    numeric: Floats
    scale: Floats
    excess: Floats
    are_sharp: bool = False

    @property
    def agrees(self) -> bool:
        return bool(np.all(self.excess <= 0))

    @staticmethod
    def of(u: Floats, slopes: Floats, pulled: Floats, moves: Floats, values: Floats) -> "Compared":
        adjoint, numeric = pulled @ moves.T, u @ slopes.T
        scale = np.maximum(_size_of_terms(pulled, moves), _size_of_terms(u, slopes))
        noise = ROUNDING * _size_of_terms(u, values)
        excess = np.abs(adjoint - numeric) - noise - EXACT * scale
        excess, are_sharp = (
            np.where(np.isfinite(excess), excess, np.inf),
            bool(np.all(noise <= EXACT * scale)),
        )
        return Compared(adjoint, numeric, scale, excess, are_sharp)

    def worst(self) -> Products:
        k = np.unravel_index(int(np.argmax(self.excess)), self.excess.shape)
        return float(self.adjoint[k]), float(self.numeric[k]), float(self.scale[k])
