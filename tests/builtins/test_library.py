"""What is written in the language itself: searches, samples of distributions, flows of several scales."""

import numpy as np
import pytest

import kernelab as kl

TEXT = """
def search(a: array[float], d: array[float64], y: array[int]):
    i = tid()
    y[i] = lower_bound(a, float(i))
    y[i + 6] = lower_bound(a, 1, 3, float(i) * 9.0)
    y[i + 12] = lower_bound(d, 2.0)


def draw(cdf: array[float], lam: array[float], bins: array[int], counts: array[uint32], rest: array[float]):
    i = tid()
    state = rand_init(42, i)
    bins[i] = sample_cdf(state, cdf)
    counts[i] = poisson(state, lam[i % 4])
    rest[i] = randf(state)


def draw_wide(cdf: array[float64], bins: array[int]):
    state = rand_init(42, tid())
    bins[tid()] = sample_cdf(state, cdf)


def flow(x: array[vec2], lac: array[float], gain: float, y: array[vec2]):
    i = tid()
    state = rand_init(3)
    y[i] = curlnoise(state, x[i], uint32(3), lac[0], gain)
    y[i] -= curlnoise(state, x[i])


def deep_flow(z: array[vec4], w: array[vec3]):
    i = tid()
    state = rand_init(3)
    w[i] = curlnoise(state, z[i], octaves=2)
    w[i] += 2.0 * curlnoise(state, z[i], 0)
"""
KERNELS = kl.compile(TEXT)


def test_a_bound_is_the_first_element_that_is_not_less_or_the_last() -> None:
    a, d = [0.5, 1.5, 2.0, 3.5], kl.array([1.0, 2.0, 3.0], dtype=kl.float64)
    y = kl.zeros(18, dtype=int)
    kl.launch(KERNELS["search"], 6, [kl.array(a, dtype=float), d, y])
    found = y.numpy()
    assert found[:6].tolist() == [0, 1, 2, 3, 3, 3]
    assert found[6:8].tolist() == [1, 2]
    assert (found[12:] == 1).all()


N = 20000


def draws() -> list[np.ndarray]:
    bins, counts, rest = kl.zeros(N, dtype=int), kl.zeros(N, dtype=kl.uint32), kl.zeros(N)
    cdf = kl.array(np.cumsum([0.1, 0.4, 0.5]), dtype=float)
    kl.launch(KERNELS["draw"], N, [cdf, kl.array(RATES, dtype=float), bins, counts, rest])
    return [bins.numpy(), counts.numpy().astype(float), rest.numpy()]


RATES = [0.0, 2.5, 12.0, 300.0]


def test_a_distribution_in_float64_gives_the_same_samples() -> None:
    sums, bins = kl.array([0.125, 0.5, 1.0], dtype=kl.float64), kl.zeros(N, dtype=int)
    KERNELS["draw_wide"][N](sums, bins)
    one, counts, rest = kl.zeros(N, dtype=int), kl.zeros(N, dtype=kl.uint32), kl.zeros(N)
    KERNELS["draw"][N](kl.array([0.125, 0.5, 1.0]), kl.ones(4), one, counts, rest)
    np.testing.assert_array_equal(bins.numpy(), one.numpy())


def test_samples_have_the_moments_of_their_distributions() -> None:
    bins, counts, rest = draws()
    np.testing.assert_allclose(np.bincount(bins) / N, [0.1, 0.4, 0.5], atol=0.012)
    for k, rate in enumerate(RATES):
        found = counts[k::4]
        spread = np.sqrt(rate / len(found))
        assert abs(found.mean() - rate) <= 4 * spread
        # The variance of a sample variance is about 2 rate^2 / n.
        assert abs(found.var() - rate) <= 5 * rate * np.sqrt((2 + 1 / max(rate, 1e-9)) / len(found))
    # What is drawn next does not depend on the count.
    assert abs(np.corrcoef(counts[1::4], rest[1::4])[0, 1]) < 0.05
    assert abs(rest.mean() - 0.5) < 0.01


def test_small_counts_have_the_probabilities_of_poisson() -> None:
    counts = draws()[1][1::4]
    wanted = [np.exp(-2.5), 2.5 * np.exp(-2.5), 2.5**2 / 2 * np.exp(-2.5)]
    np.testing.assert_allclose([(counts == k).mean() for k in range(3)], wanted, atol=0.02)


@pytest.mark.long
def test_octaves_add_finer_and_weaker_flows_and_differentiate_also_in_their_ratio() -> None:
    rng = np.random.default_rng(1)
    x = kl.array(rng.uniform(-3, 3, (4, 2)), dtype=kl.vec2, requires_grad=True)
    z = kl.array(rng.uniform(-3, 3, (4, 4)), dtype=kl.vec4)
    lac = kl.array([2.0], dtype=float, requires_grad=True)
    y, w = kl.zeros(4, dtype=kl.vec2), kl.zeros(4, dtype=kl.vec3)
    kl.launch(KERNELS["flow"], 4, [x, lac, 0.5, y])
    kl.launch(KERNELS["deep_flow"], 4, [z, w])
    state = kl.rand_init(3)

    def finer(points: np.ndarray, scale: float) -> np.ndarray:
        return np.array([kl.curlnoise(state, p * np.float32(scale)) for p in points])

    wanted = finer(x.numpy(), 2.0) * 0.5 + finer(x.numpy(), 4.0) * 0.25
    np.testing.assert_allclose(y.numpy(), wanted, atol=1e-5)
    np.testing.assert_allclose(w.numpy(), finer(z.numpy(), 1) + finer(z.numpy(), 2.0) * 0.5, atol=1e-5)
    # Of two components: those of four are the same text, and take the compiler ten times as long.
    assert kl.autograd.gradcheck(KERNELS["flow"], 4, [x, lac, 0.5], [y])


WORDS = """
def words(x: array[float64], y: array[float64], v: array[vec3i], r: array[vec3]):
    i = tid()
    y[i] = x[i] * where(i > 1, 0.1, 0.2) + select(i > 1, 0.3, 0.7)
    y[i] += where(i, 0.1, 0.2)
    bits = cast(float(i) + 1.5, uint32)
    expect_eq(cast(bits, float), float(i) + 1.5)
    expect_neq(cast(bits, int), 0)
    expect_near(x[i], x[i] + 1e-9)
    expect_near(r[i], r[i] + vec3(0.05), 0.1)
    v[i] = (v[i] << vec3i(1)) % vec3i(3, 4, 5) + (v[i] & vec3i(2)) | ~vec3i(-1)
    r[i] = div_approx(1.0, r[i]) + 1.0 / r[i]


def strict(x: array[vec3]):
    i = tid()
    expect_near(x[i], vec3(1.0), 0.1)
"""
MORE = kl.compile(WORDS)


def test_the_words_of_warp_mean_what_they_mean_there() -> None:
    x, y = kl.array(np.arange(4.0), dtype=kl.float64), kl.zeros(4, dtype=kl.float64)
    v = kl.array([[1, 2, 3]] * 4, dtype=kl.types.vector(3, int))
    r = kl.array(np.full((4, 3), 4.0), dtype=kl.vec3)
    kl.launch(MORE["words"], 4, [x, y, v, r])
    # A literal takes the width of what it meets, also within where and select.
    wanted = [0.3 + 0.2, 0.2 + 0.3 + 0.1, 2 * 0.1 + 0.7 + 0.1, 3 * 0.1 + 0.7 + 0.1]
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-15)
    assert v.numpy()[0].tolist() == [2 % 3 + 0, 4 % 4 + 2, 6 % 5 + 2]
    np.testing.assert_allclose(r.numpy(), 0.5)


@pytest.mark.parametrize("value", [0.5, np.nan])
def test_an_expectation_that_does_not_hold_ends_the_launch_with_its_text(value: float) -> None:
    x = kl.array(np.array([[1, 1, 1], [1, value, 1]]), dtype=kl.vec3)
    with pytest.raises(kl.KernelAssertionError, match=r"expect_near\(x\[i\], vec3\(1.0\), 0.1\)"):
        kl.launch(MORE["strict"], 2, [x])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("y = cast(x[0], int64)", r"cast takes a number of 32 or 64 bits and a type as wide, not \(float32,"),
        ("expect_eq(x[0])", "expect_eq takes two values"),
        ("t = transform_identity()\n    t.r = vec3(1.0)", "transform has no r"),
        ("t = transform_identity()\n    t.p = 1.0", "t.p is vec3, not float"),
    ],
)
def test_what_does_not_fit_is_refused(line: str, message: str) -> None:
    with pytest.raises(kl.KernelError, match=message):
        kl.compile(f"def k(x: array[float]):\n    {line}\n")
