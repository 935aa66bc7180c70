"""Edges and triangles: by points that are sampled on them, and by cases that are known."""

import numpy as np

import kernelab as kl
from tests.support.table import Numpy

RNG = np.random.default_rng(4)
UP, RIGHT = np.array([0.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0])
EPSILON = np.float64(1e-9)


def nearest(p1: Numpy, q1: Numpy, p2: Numpy, q2: Numpy) -> tuple[float, float, float]:
    s, t, d = kl.closest_point_edge_edge(p1, q1, p2, q2, EPSILON)
    assert 0.0 <= s <= 1.0
    assert 0.0 <= t <= 1.0
    assert np.isclose(d, np.linalg.norm(p1 + s * (q1 - p1) - p2 - t * (q2 - p2)))
    return s, t, d


def test_no_points_of_two_edges_are_nearer_than_those_found() -> None:
    ways = np.linspace(0, 1, 41)[:, None]
    for _ in range(40):
        p1, q1, p2, q2 = RNG.normal(size=(4, 3))
        a, b = p1 + ways * (q1 - p1), p2 + ways * (q2 - p2)
        least = np.linalg.norm(a[:, None] - b[None], axis=-1).min()
        assert nearest(p1, q1, p2, q2)[2] <= least + 1e-12


def test_an_edge_that_is_a_point_or_parallel_has_a_nearest_point() -> None:
    p, q, r, s = RNG.normal(size=(4, 3))
    assert nearest(p, p, r, s)[0] == 0.0
    assert nearest(p, q, r, r)[1] == 0.0
    assert np.isclose(nearest(p, p, r, r)[2], np.linalg.norm(p - r))
    assert np.isclose(nearest(p, q, p + UP, q + UP)[2], distance_of_lines(p, q))


def distance_of_lines(p: Numpy, q: Numpy) -> float:
    along = (q - p) / np.linalg.norm(q - p)
    return float(np.linalg.norm(np.cross(UP, along)))


def meet(a: Numpy, b: Numpy) -> bool:
    found = kl.intersect_tri_tri(*a, *b)
    assert found == kl.intersect_tri_tri(*b, *a)
    return bool(found)


def crosses(corners: Numpy, start: Numpy, end: Numpy) -> bool:
    """Whether an edge passes through a triangle, by the linear equations of the two."""
    a, b, c = corners
    u, v, t = np.linalg.solve(np.stack([b - a, c - a, start - end], axis=1), start - a)
    return bool(u >= 0 and v >= 0 and u + v <= 1 and 0 <= t <= 1)


def test_triangles_meet_exactly_if_an_edge_of_one_passes_through_the_other() -> None:
    found = set()
    for _ in range(200):
        a, b = RNG.normal(size=(2, 3, 3))
        pairs = [(a, b[k], b[k - 1]) for k in range(3)] + [(b, a[k], a[k - 1]) for k in range(3)]
        wanted = any(crosses(*pair) for pair in pairs)
        assert meet(a, b) == wanted
        found.add(wanted)
    assert found == {True, False}


def test_triangles_in_one_plane_meet_where_they_overlap_or_touch() -> None:
    flat = np.array([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    turn = np.linalg.qr(RNG.normal(size=(3, 3)))[0]
    for shift, wanted in [(0.5, True), (-0.2, True), (1.9, True), (2.1, False), (-2.5, False)]:
        moved = flat + shift * RIGHT
        assert meet(flat, moved) == wanted
        assert meet(flat @ turn.T, moved @ turn.T) == wanted
    assert meet(flat, flat * 0.1 + [0.1, 0.1, 0.0])
    assert meet(flat, flat + 2.0 * RIGHT)
    assert not meet(flat, flat + 0.01 * UP)
