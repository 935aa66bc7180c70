"""Noise: where it is 0, how far it goes, that it repeats, and that kernels differentiate it."""

import numpy as np
import pytest

import kernelab as kl
from kernelab.lang.types import Scalar, Vec, float64, int32, uint32
from tests.support.table import LANES, Numpy, case_of

RNG = np.random.default_rng(5)


def field(name: str, n: int, points: Numpy, *periods: int) -> Numpy:
    """Noise at points, by the record's NumPy."""
    type: Scalar | Vec = float64 if n == 1 else Vec(float64, n)
    case = case_of(name, uint32, type, *[int32] * len(periods))
    state = np.full(len(points), 12345, np.uint32)
    wraps = [np.full(len(points), period, np.int32) for period in periods]
    return np.asarray(case.op.numpy(state, points[:, 0] if n == 1 else points, *wraps))


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_noise_is_zero_at_whole_numbers_and_within_one_elsewhere(n: int) -> None:
    assert not field("noise", n, RNG.integers(-5, 5, (LANES, n)).astype(float)).any()
    values = field("noise", n, RNG.uniform(-50, 50, (4000, n)))
    assert 0.05 < values.std() < 0.5
    assert np.abs(values).max() < 1
    assert abs(values.mean()) < 0.05


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_periodic_noise_repeats_along_each_coordinate_and_not_before(n: int) -> None:
    points, periods = RNG.uniform(-9, 9, (LANES, n)), list(range(3, 3 + n))
    here = field("pnoise", n, points, *periods)
    for axis, period in enumerate(periods):
        step = np.eye(n)[axis]
        np.testing.assert_allclose(field("pnoise", n, points + step * period, *periods), here, atol=1e-12)
        assert not np.allclose(field("pnoise", n, points + step, *periods), here)


def test_noise_is_continuous_across_the_cells() -> None:
    edge = np.array([[2.0, 0.3]])
    sides = [field("noise", 2, edge + np.array([shift, 0.0]))[0] for shift in (-1e-9, 1e-9)]
    assert abs(sides[0] - sides[1]) < 1e-7


def test_another_state_gives_another_field() -> None:
    xy = np.array([0.3, 0.7], np.float32)
    assert kl.noise(kl.rand_init(1), xy) != kl.noise(kl.rand_init(2), xy)


def test_a_kernel_may_call_and_differentiate_it() -> None:
    text = """
def kernel(x: array[vec2], y: array[float], seed: int):
    i = tid()
    state = rand_init(seed)
    y[i] = noise(state, x[i] * 3.0) + pnoise(state, x[i], 2, 3) + noise(state, x[i].x)
"""
    kernel = kl.compile(text)["kernel"]
    x = kl.array(RNG.uniform(-2, 2, (8, 2)), dtype=kl.vec2, requires_grad=True)
    y = kl.zeros(8)
    kernel[8](x, y, 3)
    state, points = kl.rand_init(3), x.numpy()
    whole = [
        kl.noise(state, p * np.float32(3)) + kl.pnoise(state, p, 2, 3) + kl.noise(state, p[0]) for p in points
    ]
    np.testing.assert_allclose(y.numpy(), np.array(whole), atol=1e-6)
    with kl.Tape() as tape:
        kernel[8](x, y, 3)
    tape.backward(grads={y: kl.ones(8)})
    step, slopes = 1e-3, []
    for k in range(2):
        ends = []
        for sign in (1, -1):
            moved, out = kl.array(points + sign * step * np.eye(2)[k], dtype=kl.vec2), kl.zeros(8)
            kernel[8](moved, out, 3)
            ends.append(out.numpy().astype(float))
        slopes.append((ends[0] - ends[1]) / (2 * step))
    np.testing.assert_allclose(x.grad.numpy(), np.stack(slopes, -1), atol=5e-3)


def test_the_flow_in_the_plane_follows_the_lines_of_equal_noise() -> None:
    points, h = RNG.uniform(-3, 3, (LANES, 2)), 1e-5
    along = [
        (field("noise", 2, points + h * e) - field("noise", 2, points - h * e)) / (2 * h) for e in np.eye(2)
    ]
    np.testing.assert_allclose(field("curlnoise", 2, points), np.stack([along[1], -along[0]], -1), atol=1e-8)


@pytest.mark.parametrize("n", [2, 3])
def test_a_flow_has_no_sources(n: int) -> None:
    points, h = RNG.uniform(-3, 3, (LANES, n)), 1e-5
    sources = 0.0
    for k in range(n):
        step = h * np.eye(n)[k]
        ends = [field("curlnoise", n, points + sign * step)[..., k] for sign in (1, -1)]
        sources = sources + (ends[0] - ends[1]) / (2 * h)
    np.testing.assert_allclose(sources, 0.0, atol=1e-8)
