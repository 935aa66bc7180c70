"""Sums into one element: a running total where nothing looks at the element, memory where something does."""

from textwrap import indent

import numpy as np
import pytest

import kernelab as kl
from kernelab.codegen.cpp.addition_bounds import FEW
from kernelab.codegen.cpp.emitter import emit
from kernelab.codegen.cpp.targets import Cpu
from kernelab.codegen.cpp.wide_accumulators import totals, wide
from kernelab.passes.common.scalarise import scalarise
from tests.support.lowering import lowered

pytestmark = pytest.mark.slow


def summed(body: str) -> list[str]:
    """The arrays whose additions in a kernel over x, y, s and k go to a running total."""
    head = "def f(x: array[float], y: array[int], s: array[float], k: int, wide: array[float64]):"
    function = lowered("\n".join([head, "    i = tid()", indent(body, "    ")]), "f")
    return [stmt.array.hint for stmt in totals(function)]


def test_a_sum_over_all_threads_has_a_running_total() -> None:
    assert summed("s[0] += x[i]\ns[k] += x[i]\ns[k + 1] += x[i]") == ["s", "s", "s"]


def test_a_sum_over_the_iterations_of_a_loop_has_one_for_each_thread() -> None:
    assert summed("for n in range(k):\n    s[i] += x[n]") == ["s"]


def test_scattered_additions_have_none() -> None:
    assert summed("s[y[i]] += x[i]\nfor n in range(k):\n    s[n] += x[i]") == []


def scattered(body: str, head: str = "i = tid()") -> list[str]:
    """The arrays for whose additions there may be float64s beside the elements."""
    params = "x: array[float], y: array[int], s: array[float], m: array2d[float], k: int"
    text = "\n".join([f"def f({params}):", f"    {head}", indent(body, "    ")])
    return [stmt.array.hint for stmt in wide(lowered(text, "f"))]


def test_additions_to_changing_elements_have_sums_beside_them() -> None:
    assert scattered("s[y[i]] += x[i]") == ["s"]
    assert scattered("for n in range(k):\n    s[n] += x[i]") == ["s"]
    assert scattered("for n in range(k):\n    m[i, y[n]] += x[i]") == ["m"]
    assert scattered("while k > 0:\n    s[k] += x[i]\n    k -= 1") == ["s"]
    assert scattered("m[i, 0] += x[i]", head="i, j = tid()") == ["m"]


def test_so_have_running_totals_that_come_to_an_element_again() -> None:
    assert scattered("for n in range(k):\n    s[y[i]] += x[n]") == ["s"]
    assert scattered("for n in range(k):\n    for j in range(k):\n        s[y[n]] += x[j]") == ["s"]
    assert scattered("for n in range(k):\n    for j in range(k):\n        m[i, y[j]] += x[i]") == ["m"]


def test_where_a_thread_comes_to_an_element_once_there_are_none() -> None:
    assert scattered("s[i] += x[i]") == []
    assert scattered("s[k] += x[i]") == []
    assert scattered("for n in range(k):\n    s[i] += x[n]") == []
    assert scattered("for n in range(k):\n    for j in range(k):\n        m[i, n] += x[j]") == []
    assert scattered("for n in range(k):\n    for j in range(k):\n        m[i, k] += x[j]") == []
    assert scattered("for n in range(k):\n    m[i, n] += x[i]") == []
    assert scattered("m[j, i] += x[i]", head="i, j = tid()") == []


def test_nor_where_something_looks_at_the_array() -> None:
    assert scattered("s[y[i]] += x[i]\nx[i] = s[0]") == []
    assert scattered("s[y[i]] += x[i]\natomic_max(s, 0, 1.0)") == []


def test_an_element_that_is_looked_at_in_between_has_none() -> None:
    assert summed("s[0] += x[i]\ns[1] = s[0]") == []


def test_an_addition_whose_old_value_is_used_has_none() -> None:
    assert summed("y[atomic_add(y, 0, 1)] = 1\nx[i] = atomic_add(s, 0, x[i])") == []


def test_float64_needs_none() -> None:
    assert summed("wide[0] += float64(x[i])") == []


SUMS = """
def total(x: array[float], s: array[float]):
    s[0] += x[tid()]

def halves(x: array[float16], s: array[float16]):
    s[0] += x[tid()]

def rows(x: array[float], s: array[float]):
    i = tid()
    for _ in range(20_000_000):
        s[i] += x[0]

def scaled(x: array[float], factor: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * factor[0]

def bins(of: array[int], s: array[float]):
    s[of[tid()]] += 1.0

def half_bins(of: array[int], s: array[float16]):
    s[of[tid()]] += float16(1.0)

def brain_bins(of: array[int], s: array[bfloat16]):
    s[of[tid()]] += bfloat16(1.0)

def threes(of: array[int], s: array[bfloat16]):
    i = tid()
    for _ in range(3):
        s[of[i]] += bfloat16(1.0)

def tenths(of: array[int], s: array[float]):
    s[of[tid()]] += 0.1

def small(x: array[float], of: array[int], s: array2d[vec2]):
    i = tid()
    s[of[i], 1] += vec2(x[i], -x[i])

def gather(x: array[float], of: array[int], y: array[float]):
    i = tid()
    y[i] = x[of[i]]

def spread(x: array[float], of: array[int], s: array[float]):
    i = tid()
    s[of[i]] += x[i]

def running(x: array[float], s: array[float]):
    i = tid()
    atomic_add(s, 0, x[i])

def doubling(x: array[float], s: array[float]):
    i = tid()
    atomic_add(s, 0, x[0])
"""


@pytest.fixture(scope="module")
def kernels() -> dict[str, kl.Kernel]:
    return kl.compile(SUMS)


def test_twenty_million_ones_sum_to_twenty_million(kernels: dict[str, kl.Kernel]) -> None:
    n = 20_000_000
    s = kl.zeros(1)
    kl.launch(kernels["total"], n, [kl.ones(n), s])
    assert s.numpy()[0] == n


def test_so_they_do_in_a_loop_of_one_thread(kernels: dict[str, kl.Kernel]) -> None:
    s = kl.zeros(2)
    kl.launch(kernels["rows"], 2, [kl.ones(1), s])
    assert s.list() == [20_000_000, 20_000_000]


def test_five_thousand_halves_sum_to_five_thousand(kernels: dict[str, kl.Kernel]) -> None:
    s = kl.zeros(1, dtype=kl.float16)
    kl.launch(kernels["halves"], 5000, [kl.ones(5000, dtype=kl.float16), s])
    assert s.list() == [5000]


def test_the_gradient_of_what_every_thread_reads_does_not_saturate(kernels: dict[str, kl.Kernel]) -> None:
    n = 20_000_000
    factor, y = kl.ones(1, requires_grad=True), kl.zeros(n, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernels["scaled"], n, [kl.ones(n), factor, y])
    tape.backward(grads={y: kl.ones(n)})
    assert factor.grad.numpy()[0] == n


def test_arrays_that_share_memory_see_every_addition_at_once(kernels: dict[str, kl.Kernel]) -> None:
    x = kl.ones(4)
    kl.launch(kernels["running"], 4, [x, x])
    assert x.list() == [5, 1, 1, 1]
    doubled = kl.ones(2)
    kl.launch(kernels["doubling"], 3, [doubled, doubled])
    assert doubled.list() == [8, 1]
    y = kl.array([1.0, 1.0, 1.0], requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernels["running"], 3, [y, y])
    tape.backward(grads={y: kl.array([1.0, 0.0, 0.0])})
    # y[0] becomes 2 * y[0] + y[1] + y[2].
    np.testing.assert_array_equal(y.grad.numpy(), [2, 1, 1])


def test_so_they_do_where_a_function_is_transformed(kernels: dict[str, kl.Kernel]) -> None:
    def doubled_thrice(x: kl.array) -> kl.array:
        y = kl.zeros(2)
        kl.copy(y, x)
        kl.launch(kernels["doubling"], 3, [y, y])
        return y

    value, pull = kl.func.vjp(doubled_thrice, kl.ones(2))
    assert value.list() == [8, 1]
    assert pull(kl.ones(2))[0].list() == [8, 1]
    value, tangent = kl.func.jvp(doubled_thrice, (kl.ones(2),), (kl.array([1.0, 2.0]),))
    assert value.list() == [8, 1]
    assert tangent.list() == [8, 2]


def test_a_launch_that_fails_keeps_what_threads_before_added() -> None:
    part = kl.compile("""
    def part(x: array[float], s: array[float]):
        i = tid()
        s[0] += x[i]
    """)["part"]
    s = kl.zeros(1)
    with pytest.raises(IndexError):
        kl.launch(part, 5, [kl.ones(3), s])
    assert s.list() == [3]


def ints(*values: int) -> kl.array:
    return kl.array(values, dtype=int)


def test_scattered_additions_do_not_saturate(kernels: dict[str, kl.Kernel]) -> None:
    n = 20_000_000
    s = kl.zeros(3)
    for total in (n, 2 * n):
        kl.launch(kernels["bins"], n, [kl.full(n, 1, dtype=int), s])
        assert s.list() == [0, total, 0]


def test_scattered_tenths_are_as_good_as_float32_can_be(kernels: dict[str, kl.Kernel]) -> None:
    n = 3_000_000
    s = kl.zeros(2)
    kl.launch(kernels["tenths"], n, [kl.zeros(n, dtype=int), s])
    np.testing.assert_allclose(s.numpy()[0], n * float(np.float32(0.1)), 1e-6)


@pytest.mark.parametrize("backend", ["cpu", "interp"])
def test_scattered_halves_are_rounded_once(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELAB_BACKEND", backend)
    kernels = kl.compile(SUMS)
    of = kl.full(5000, 1, dtype=int)
    halves, brains = kl.ones(2, dtype=kl.float16), kl.ones(2, dtype=kl.bfloat16)
    kl.launch(kernels["half_bins"], 5000, [of, halves])
    kl.launch(kernels["brain_bins"], 5000, [of, brains])
    assert halves.list() == [1, 5000]  # 5001 lies between two halves, 5000 and 5004
    assert [float(value) for value in brains.list()] == [1, 4992]


@pytest.mark.parametrize("backend", ["cpu", "interp"])
def test_what_comes_together_in_a_loop_of_each_thread_does_not_saturate(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELAB_BACKEND", backend)
    s = kl.zeros(2, dtype=kl.bfloat16)
    kl.launch(kl.compile(SUMS)["threes"], 4096, [kl.array(np.arange(4096) % 2, dtype=int), s])
    assert [float(value) for value in s.list()] == [6144, 6144]


def test_small_parts_reach_vectors_of_three_of_any_layout() -> None:
    kernels = kl.compile("""
    @struct
    class Mass:
        at: vec3
        kg: float
    def whole(x: array[float], of: array[int], s: array2d[vec3]):
        i = tid()
        s[of[i], 1] += vec3(x[i], -x[i], 3.0 * x[i])
        s[of[i], 0].y += x[i]
    def padded(x: array[float], of: array[int], s: array[Mass]):
        i = tid()
        s[of[i]].at += vec3(x[i], -x[i], 3.0 * x[i])
        s[of[i]].kg += x[i]
    """)
    n, four = 1 << 20, kl.vec3(4096.0, 4096.0, 4096.0)
    x, of = kl.full(n, 2.0**-20), kl.array(np.arange(n) % 2 * 600, dtype=int)
    for rows in (700, 20_000, 600_000):
        layouts = [
            kl.full((rows, 2), four, dtype=kl.vec3),
            kl.full((2 * rows, 2), four, dtype=kl.vec3)[::-2],
            kl.full((2, rows), four, dtype=kl.vec3).transpose(),
        ]
        expected = np.full((rows, 2, 3), 4096.0)
        expected[[0, 600]] = [[4096.0, 4096.5, 4096.0], [4096.5, 4095.5, 4097.5]]
        for s in layouts:
            kl.launch(kernels["whole"], n, [x, of, s])
            np.testing.assert_array_equal(s.numpy(), expected)
        masses = kl.zeros(rows, dtype=kernels["Mass"])
        masses.numpy()["at"] = 4096.0
        kl.launch(kernels["padded"], n, [x, of, masses])
        np.testing.assert_array_equal(masses.numpy()["at"], expected[:, 1])
        assert masses.numpy()["kg"][[0, 1, 600]].tolist() == [0.5, 0.0, 0.5]


@pytest.mark.parametrize("backend", ["cpu", "interp"])
def test_small_parts_reach_large_elements_of_any_layout(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELAB_BACKEND", backend)
    kernel = kl.compile(SUMS)["small"]
    n = 1 << 20
    x, of = kl.full(n, 2.0**-20), kl.array(np.arange(n) % 2 * 600, dtype=int)
    for rows in (700, 20_000, 600_000):  # all float64s from the beginning, and blocks of them
        add_to_layouts(kernel, rows, x, of)


def add_to_layouts(kernel: kl.Kernel, rows: int, x: kl.array, of: kl.array) -> None:
    layouts = [
        kl.full((rows, 2), kl.vec2(4096.0, 4096.0), dtype=kl.vec2),
        kl.full((2 * rows, 2), kl.vec2(4096.0, 4096.0), dtype=kl.vec2)[::-2],
        kl.full((2, rows), kl.vec2(4096.0, 4096.0), dtype=kl.vec2).transpose(),
    ]
    expected = np.full((rows, 2, 2), 4096.0)
    expected[0, 1] = expected[600, 1] = [4096.5, 4095.5]
    for s in layouts:
        kl.launch(kernel, x.size, [x, of, s])
        np.testing.assert_array_equal(s.numpy(), expected)


def test_the_gradient_of_what_is_gathered_does_not_saturate(kernels: dict[str, kl.Kernel]) -> None:
    n = 20_000_000
    x, y = kl.ones(2, requires_grad=True), kl.zeros(n, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernels["gather"], n, [x, kl.full(n, 1, dtype=int), y])
    tape.backward(grads={y: kl.ones(n)})
    assert x.grad.list() == [0, n]


@pytest.mark.parametrize("n", [1 << 16, 10 << 16])
def test_the_gradient_of_what_is_gathered_keeps_its_digits(kernels: dict[str, kl.Kernel], n: int) -> None:
    x, y = kl.ones(2, requires_grad=True), kl.zeros(n, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernels["gather"], n, [x, kl.full(n, 1, dtype=int), y])
    tape.backward(grads={y: kl.full(n, 0.1)})
    np.testing.assert_allclose(x.grad.numpy(), [0.0, n * np.float32(0.1)], rtol=1e-7)


def test_scattered_additions_to_what_is_read_are_seen_at_once(kernels: dict[str, kl.Kernel]) -> None:
    x = kl.array([1.0, 2.0**-12, 2.0**12, 0.0])
    kl.launch(kernels["spread"], 4, [x, ints(2, 2, 3, 2), x])
    # The last thread adds what the third one made of x[3].
    assert x.list() == [1.0, 2.0**-12, 8194.0, 4097.0]


def test_nan_and_infinity_reach_their_elements(kernels: dict[str, kl.Kernel]) -> None:
    s = kl.array([1.0, np.inf, 1.0e30, 3.0e38])
    x = kl.array([np.nan, 1.0, -np.inf, 3.0e38])
    kl.launch(kernels["spread"], 4, [x, ints(0, 1, 2, 3), s])
    np.testing.assert_array_equal(s.numpy(), [np.nan, np.inf, -np.inf, np.inf])


def test_a_scattered_launch_that_fails_keeps_what_threads_before_added(
    kernels: dict[str, kl.Kernel],
) -> None:
    n = 1 << 20
    of = np.ones(n, np.int32)
    of[-1] = 7
    s = kl.full(2, 2.0**24)
    with pytest.raises(IndexError):
        kl.launch(kernels["bins"], n, [kl.array(of), s])
    assert s.list() == [2.0**24, np.float32(2**24 + n - 1)]


def test_few_additions_are_plain(kernels: dict[str, kl.Kernel]) -> None:
    """As those of NumPy: where there are more, float64s take what float32 would lose."""
    repeated = kl.compile("""
    def repeated(of: array[int], s: array[float], times: int):
        i = tid()
        for _ in range(times):
            s[of[i]] += 1.0
    def ending(of: array[int], s: array[float], times: int):
        k = times
        while k > 0:
            s[of[tid()] + k % 1] += 1.0
            k -= 1
    """)
    n, big = 1 << 10, 2.0**25
    of = kl.zeros(n, dtype=int)
    for name, times, kept in (("repeated", 1, 0), ("repeated", 1 << 10, n << 10), ("ending", 1, n)):
        s = kl.full(1, big)
        kl.launch(repeated[name], n, [of, s, times])
        assert s.list() == [big + kept], name
    s = kl.full(1, big)
    kl.launch(kernels["bins"], n, [of, s])
    assert s.list() == [big]


def test_additions_are_counted_by_component() -> None:
    kernels = kl.compile("""
    def all_three(of: array[int], s: array[vec3]):
        s[of[tid()]] += vec3(1.0, 1.0, 1.0)
    def one_more(of: array[int], s: array[vec3]):
        i = tid()
        s[of[i]] += vec3(1.0, 1.0, 1.0)
        s[of[i]].y += 1.0
    """)
    n, big = FEW >> 1, 2.0**25
    of = kl.zeros(2 * n, dtype=int)
    for name, threads, kept in (("all_three", n, (0, 0, 0)), ("one_more", n, (n, 2 * n, n))):
        s = kl.full(1, kl.vec3(big, big, big), dtype=kl.vec3)
        kl.launch(kernels[name], threads, [of, s])
        np.testing.assert_array_equal(s.numpy(), [[big + more for more in kept]], name)
    s = kl.full(1, kl.vec3(big, big, big), dtype=kl.vec3)
    kl.launch(kernels["all_three"], 2 * n, [of, s])
    np.testing.assert_array_equal(s.numpy(), [[big + 2 * n] * 3])


def test_additions_that_meet_at_most_in_pairs_are_plain() -> None:
    assert scattered("m[i - 1, j] += x[j]\nm[i + 1, j] += x[j]", head="i, j = tid()") == []


def test_additions_are_plain_where_few_threads_meet_at_an_element() -> None:
    kernels = kl.compile("""
    def ring(s: array[float], n: int):
        s[(tid() + 3) % n] += 1.0
    def strided(s: array[float], n: int):
        s[2 * tid() % n + 0] += 1.0
    def columns(s: array[float], n: int):
        i, j = tid()
        s[j + n - n] += 1.0
    def wide(s: array[float], n: int):
        i, j = tid()
        s[2 * j + 1] += 1.0
    def by_loop(s: array[float], n: int):
        for k in range(n):
            s[(tid() + k) % n] += 1.0
    def twice(s: array2d[float], n: int):
        i, j = tid()
        k = i * j
        s[i % n, (k + j) % n] += 1.0
    def diagonal(s: array2d[float], n: int):
        i = tid()
        s[i % n, (i + 1) % n] += 1.0
    """)
    big, plain, exact = 2.0**24, True, False
    for name, threads, n, how in (
        ("ring", 1 << 20, 1 << 19, plain),
        ("ring", 1 << 20, 1 << 6, exact),
        ("strided", 1 << 20, 1 << 20, exact),
        ("columns", (1 << 5, 1 << 15), 1 << 15, plain),
        ("columns", (1 << 12, 1 << 8), 1 << 8, exact),
        ("wide", (1 << 5, 1 << 15), 1 << 16, plain),
        ("by_loop", 1 << 13, 1 << 8, exact),
        ("by_loop", 1 << 11, 1 << 10, plain),
        ("twice", (1 << 10, 1 << 10), 1 << 5, exact),
        ("diagonal", 1 << 17, 1 << 8, plain),
        ("diagonal", 1 << 20, 1 << 6, exact),
    ):
        shape = (n, n) if name in ("twice", "diagonal") else (n,)
        s = kl.full(shape, big)
        kl.launch(kernels[name], threads, [s, n])
        counts = s.numpy() - big
        additions = np.prod(threads) * (n if name == "by_loop" else 1)
        assert counts.sum() == (0 if how is plain else additions), (name, threads, n)


def test_iterations_are_counted_beyond_32_bits() -> None:
    kernel = kl.compile("""
    def nested(s: array[float], n: int):
        i = tid()
        for a in range(n):
            for b in range(n):
                if b > 0:
                    break
                s[(a + b) % 3] += 1.0
    """)["nested"]
    n, threads, big = 1 << 16, 16, 2.0**24
    s = kl.full(3, big)
    kl.launch(kernel, threads, [s, n])
    assert (s.numpy() - big).sum() == n * threads


def test_additions_are_plain_where_each_group_of_elements_gets_few(kernels: dict[str, kl.Kernel]) -> None:
    rng, n, m = np.random.default_rng(1), 3 << 19, 1 << 17
    of, x, before = (
        rng.integers(-m, m, n, dtype=np.int32),
        rng.random(n, np.float32),
        rng.random(m, np.float32),
    )
    s, plain = kl.array(before), before.copy()
    kl.launch(kernels["spread"], n, [kl.array(x), kl.array(of), s])
    np.add.at(plain, of, x)
    np.testing.assert_array_equal(s.numpy(), plain)
    one_in_eight = np.arange(n) % 8 == 3
    for crowded in (np.arange(n) < 1 << 16, one_in_eight, ~one_in_eight):
        here = np.where(crowded, np.int32(70_000), of)
        s, sums = kl.array(before), np.zeros(m)
        kl.launch(kernels["spread"], n, [kl.array(x), kl.array(here), s])
        np.add.at(sums, here, x.astype(np.float64))
        np.testing.assert_array_equal(s.numpy(), (before + sums).astype(np.float32))


def test_additions_by_rows_of_indices_are_counted() -> None:
    kernels = kl.compile("""
    def by_columns(of: array2d[int], s: array[float]):
        i = tid()
        s[of[i, 0]] += 1.0
        s[of[i, 2]] += 1.0
    def by_loop(of: array2d[int], s: array[float]):
        i = tid()
        for k in range(3):
            s[of[i, k]] += 1.0
    """)
    rng, n, m, big = np.random.default_rng(2), 1 << 19, 1 << 16, 2.0**25
    spread = rng.integers(-m, m, (n, 3), dtype=np.int32)
    for name, columns in (("by_columns", (0, 2)), ("by_loop", (0, 1, 2))):
        for crowded in (None, *range(3)):
            of = spread.copy()
            if crowded is not None:
                of[:, crowded] = 7
            s = kl.full(m, big)
            kl.launch(kernels[name], n, [kl.array(of), s])
            counts = np.zeros(m)
            if crowded in columns:
                np.add.at(counts, of[:, columns], 1.0)
            np.testing.assert_array_equal(s.numpy(), (big + counts).astype(np.float32))


def test_additions_by_few_long_rows_are_not_overlooked() -> None:
    kernels = kl.compile("""
    def rows(of: array2d[int], s: array[float]):
        i = tid()
        for k in range(1000):
            s[of[i, k]] += 1.0
    """)
    n, big = 1 << 12, 2.0**24
    for seed in range(8):
        rng = np.random.default_rng(seed)
        of = np.repeat(rng.permutation(n).astype(np.int32)[:, None], 1000, 1)
        of[rng.choice(n, 150, replace=False)] = 0
        s = kl.full(n, big)
        kl.launch(kernels["rows"], n, [kl.array(of), s])
        assert s.numpy()[0] - big == np.count_nonzero(of == 0), seed


def test_that_is_counted_only_where_indices_are_known_beforehand() -> None:
    params = "x: array[float], of: array[int], rows: array2d[int], s: array[float], k: int"
    for body, is_counted in {
        "s[of[i]] += x[i]": True,
        "if x[i] > 0.0:\n    s[of[i]] += x[i]": True,
        "s[of[i] + 1] += x[i]": False,
        "s[of[i + 1]] += x[i]": False,
        "for n in range(k):\n    s[of[i]] += x[n] * float(of[n])\n    s[n] += 1.0": False,
        "s[of[i]] += x[i]\ns[of[k]] += x[i]\ns[i + k] += 1.0": False,
        "s[of[i]] += x[i]\nof[i] = k": False,
        "s[rows[i, 1]] += x[i]\ns[rows[i, 0]] -= x[i]": True,
        "for n in range(3):\n    s[rows[i, n]] += x[i]": True,
        "for n in range(3):\n    s[rows[i, 0]] += x[i]": False,
        "for n in range(k):\n    s[rows[i, n]] += x[i]": False,
        "for n in range(3):\n    s[rows[n, i]] += x[i]": False,
        "for n in range(3):\n    s[rows[i, n + 1]] += x[i]": False,
        "for n in range(64):\n    s[rows[i, n]] += x[i]": True,
        "for n in range(65):\n    s[rows[i, n]] += x[i]": False,
    }.items():
        text = f"def f({params}):\n    i = tid()\n" + indent(body, "    ")
        unit = emit([scalarise(lowered(text, "f"))], Cpu())
        assert ("s_n0 >= " in unit.text) == is_counted, body
