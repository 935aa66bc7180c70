"""Draws a graph without cycles in layers: each box is below those that lead to it, and few edges cross.

The method of K. Sugiyama, S. Tagawa, M. Toda, "Methods for Visual Understanding of Hierarchical System
Structures", IEEE Transactions on Systems, Man, and Cybernetics 11 (1981): layers by the longest path, places
within a layer by barycentres, points in the layers that an edge passes.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from kernelab.data_classes import dataclass

GAP, PASSING, HEIGHT, BETWEEN = 16.0, 10.0, 52.0, 34.0
"""Distances: between boxes, the width of an edge that passes, the height of a box, between layers."""

SWEEPS = 8
"""How often the places in the layers are improved."""

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Layout:
    """The upper left corner of each box, the points that an edge passes in between, and the size of all."""

    places: Sequence[tuple[float, float]]
    passing: Mapping[Edge, Sequence[tuple[float, float]]]
    width: float
    height: float


def layout(widths: Sequence[float], edges: Sequence[Edge]) -> Layout:
    """Lay out boxes of these widths; an edge leads from a box to a later one."""
    ranks = _ranks(len(widths), edges)
    sizes = [*widths]
    chains: dict[Edge, list[int]] = {}
    links: list[Edge] = []
    passed: dict[tuple[int, int], int] = {}
    for a, b in edges:
        chain = []
        for rank in range(ranks[a] + 1, ranks[b]):
            if (a, rank) not in passed:  # edges from one box pass a layer together
                passed[a, rank] = len(sizes)
                sizes.append(PASSING)
                ranks.append(rank)
            chain.append(passed[a, rank])
        chains[a, b] = chain
        links += zip((a, *chain), (*chain, b), strict=True)
    layers: list[list[int]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    for number, rank in enumerate(ranks):
        layers[rank].append(number)
    above, below = _neighbours(len(sizes), links)
    centres = _centres(layers, sizes, above, below)
    left = min((centre - size / 2 for centre, size in zip(centres, sizes, strict=True)), default=0.0)
    right = max((centre + size / 2 for centre, size in zip(centres, sizes, strict=True)), default=0.0)
    tops = [GAP + rank * (HEIGHT + BETWEEN) for rank in ranks]
    places = [
        (centre - size / 2 - left + GAP, top) for centre, size, top in zip(centres, sizes, tops, strict=True)
    ]
    middles = {
        edge: [(places[k][0] + PASSING / 2, places[k][1] + HEIGHT / 2) for k in chain]
        for edge, chain in chains.items()
    }
    height = len(layers) * (HEIGHT + BETWEEN) - BETWEEN + 2 * GAP
    return Layout(places[: len(widths)], middles, right - left + 2 * GAP, height)


def _ranks(count: int, edges: Sequence[Edge]) -> list[int]:
    """The layer of each box: below all that lead to it; what nothing leads to is just above its first use."""
    ranks = [0] * count
    for a, b in sorted(edges, key=lambda edge: edge[1]):
        ranks[b] = max(ranks[b], ranks[a] + 1)
    targets = {b for _, b in edges}
    uses: dict[int, int] = {}
    for a, b in edges:
        uses[a] = min(uses.get(a, ranks[b]), ranks[b])
    return [rank if k in targets else uses.get(k, 1) - 1 for k, rank in enumerate(ranks)]


def _neighbours(count: int, links: Sequence[Edge]) -> tuple[list[list[int]], list[list[int]]]:
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    for a, b in dict.fromkeys(links):
        above[b].append(a)
        below[a].append(b)
    return above, below


def _centres(
    layers: list[list[int]], sizes: Sequence[float], above: list[list[int]], below: list[list[int]]
) -> list[float]:
    """The middle of each box across: in each layer in turn near the mean of its neighbours."""
    centres = [0.0] * len(sizes)
    for layer in layers:
        _place(layer, [float(k) for k in range(len(layer))], sizes, centres)
    for sweep in range(SWEEPS):
        is_down = sweep % 2 == 0
        for layer in layers if is_down else reversed(layers):
            beside = above if is_down else below
            wanted = {k: fmean(centres[n] for n in beside[k] or (k,)) for k in layer}
            layer.sort(key=lambda k: wanted[k])
            _place(layer, [wanted[k] for k in layer], sizes, centres)
    return centres


def _place(
    layer: Sequence[int], wanted: Sequence[float], sizes: Sequence[float], centres: list[float]
) -> None:
    """Place boxes in their order, apart, as near as can be to where they want to be (least squares)."""
    offsets = [0.0]
    for one, other in pairwise(layer):
        offsets.append(offsets[-1] + (sizes[one] + sizes[other]) / 2 + GAP)
    groups: list[tuple[float, int]] = []  # the mean of neighbours that touch, and how many these are
    for want, offset in zip(wanted, offsets, strict=True):
        groups.append((want - offset, 1))
        while len(groups) > 1 and groups[-2][0] > groups[-1][0]:
            (a, m), (b, n) = groups[-2:]
            groups[-2:] = [((a * m + b * n) / (m + n), m + n)]
    starts = (mean for mean, count in groups for _ in range(count))
    for k, offset, start in zip(layer, offsets, starts, strict=True):
        centres[k] = start + offset
