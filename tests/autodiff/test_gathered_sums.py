"""Adjoints of stencils gathered by element give what scattering gives; what is not known to, scatters."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelab as kl
from kernelab.autodiff.records import gathered_launch
from kernelab.backend.common.compiler import open_compiler, processor_features
from kernelab.backend.cpu import vector_tier
from kernelab.backend.cpu.vector_tier import widths_of

pytestmark = pytest.mark.skipif(
    not open_compiler().is_gcc or not widths_of(processor_features()), reason="no vector code here"
)

KERNELS = """
def three(x: array[float], y: array[float]):
    i = tid()
    if i > 0 and i < x.shape[0] - 1:
        y[i] = 0.5 * x[i - 1] - x[i] + 0.25 * x[i + 1]

def inside(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * 2.0 + x[i + 3]

def returning(x: array2d[float], y: array2d[float]):
    i, j = tid()
    if i == 0 or j < 2 or j >= x.shape[1] - 2:
        return
    y[i, j] = x[i, j - 2] - 3.0 * x[i - 1, j] + x[i, j + 2]

def one_sided(x: array2d[float], y: array2d[float]):
    i, j = tid()
    v = x[i, j]
    if i > 0:
        v += 0.5 * x[i - 1, j]
    if j < x.shape[1] - 1:
        v -= x[i, j + 1]
    y[i, j] = v

def seven(x: array3d[float], y: array3d[float]):
    i, j, k = tid()
    if i > 0 and j > 0 and k > 0 and i < x.shape[0] - 1 and j < x.shape[1] - 1 and k < x.shape[2] - 1:
        around = x[i - 1, j, k] + x[i + 1, j, k] + x[i, j - 1, k] + x[i, j + 1, k]
        y[i, j, k] = around + x[i, j, k - 1] + x[i, j, k + 1] - 6.0 * x[i, j, k]

def nonlinear(x: array2d[float], a: array2d[float], y: array2d[float], z: array2d[float]):
    i, j = tid()
    if i > 0 and j > 0 and i < x.shape[0] - 1 and j < x.shape[1] - 1:
        slope = x[i + 1, j] - x[i - 1, j]
        y[i, j] = a[i, j] * slope * x[i, j - 1]
        z[i, j] = x[i, j] * a[i, j + 1] + a[i, j - 1]

def moved(x: array[float], by: int, y: array[float]):
    i = tid()
    if i + by < x.shape[0]:
        y[i] = x[i + by] * x[i + by] + 3.0 * x[i]

def where_positive(x: array[float], m: array[float], y: array[float]):
    i = tid()
    if i > 0 and i < x.shape[0] - 1:
        if m[i] > 0.5:
            y[i] = m[i] * x[i - 1] + x[i + 1]
        else:
            y[i] = x[i]

def channels(x: array3d[float], y: array2d[float]):
    i, j = tid()
    if j > 0:
        y[i, j] = x[0, i, j] + 2.0 * x[0, i, j - 1] + 3.0 * x[1, i, j] - x[1, i, j - 1]

def turned(x: array2d[float], y: array2d[float]):
    i, j = tid()
    if i > 0:
        y[i, j] = x[j, i] - x[j, i - 1] + 0.5 * x[i, j]

def around(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i - 1] + 2.0 * x[i]

def smoothed(x: array[float]):
    i = tid()
    if i > 0:
        x[i] = 0.5 * x[i - 1] + 0.5 * x[i]

def steep(x: array[float], y: array[float]):
    i = tid()
    if i > 0 and i < x.shape[0] - 1:
        y[i] = sin(x[i - 1] * x[i] * x[i + 1])

def every_other(x: array[float], y: array[float]):
    i = tid()
    if 2 * i + 1 < x.shape[0]:
        y[i] = x[2 * i] + x[2 * i + 1]
"""

N = 5000
CASES: dict[str, tuple[Any, list[tuple[int, ...] | int], bool]] = {
    "three": (N, [(N,), (N,)], True),
    "inside": (N, [(N + 3,), (N,)], True),
    "returning": ((80, 90), [(80, 90)] * 2, True),
    "one_sided": ((80, 90), [(80, 90)] * 2, True),
    "seven": ((20, 18, 22), [(20, 18, 22)] * 2, True),
    "nonlinear": ((80, 90), [(80, 90)] * 4, True),
    "moved": (N, [(N,), 7, (N,)], True),
    "where_positive": (N, [(N,)] * 3, True),
    "channels": ((80, 90), [(2, 80, 90), (80, 90)], True),
    "turned": ((80, 80), [(80, 80)] * 2, False),
    "around": (N, [(N,)] * 2, False),
    "smoothed": (N, [(N,)], False),
    "steep": (N, [(N,)] * 2, False),
    "every_other": (N, [(N,)] * 2, False),
}
"""For each kernel a grid, the shapes of its arrays or its numbers, and whether sums are gathered."""


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of launches of each adjoint whose sums were gathered."""
    seen: list[int] = []
    run = gathered_launch.Launches.run

    def counted(self: gathered_launch.Launches, args: bytes, leaves: bool = False) -> None:
        seen.append(len(self.programs))
        run(self, args, leaves)

    monkeypatch.setattr(gathered_launch.Launches, "run", counted)
    yield seen
    kl.config.vector_code = True


@pytest.fixture(scope="module")
def kernels() -> dict[str, kl.Kernel]:
    return kl.compile(KERNELS)


def reals(shape: tuple[int, ...], seed: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def leaf(values: Any) -> kl.array:
    return kl.array(values, dtype=float, requires_grad=True)


def gradients(kernel: kl.Kernel, dim: Any, arguments: list[Any], times: int = 1) -> list[Any]:
    """The gradients of the arrays, whose last ones get cotangents, after so many passes that add up."""
    arrays = [each for each in arguments if isinstance(each, kl.array)]
    with kl.Tape() as tape:
        kl.launch(kernel, dim, arguments)
    for k in range(times):
        tape.backward(grads={arrays[-1]: kl.array(reals(arrays[-1].shape, 99 + k))})
    return [each.grad.numpy().copy() for each in arrays]


def both(make: Callable[[], list[Any]]) -> tuple[list[Any], list[Any]]:
    """What vector code gives, and scalar code, which scatters."""
    found = []
    for is_on in (True, False):
        kl.config.vector_code = is_on
        found.append(make())
    return found[0], found[1]


def test_a_pass_follows_the_settings_of_its_time(kernels: dict[str, kl.Kernel], ran: list[int]) -> None:
    x, y = leaf(reals((9000,), 1)), leaf(reals((9000,), 2))
    with kl.Tape() as tape:
        kl.launch(kernels["three"], 9000, [x, y])
    for is_on, count in ((True, 1), (False, 1), (True, 2)):
        kl.config.vector_code = is_on
        tape.backward(grads={y: kl.ones_like(y)})
        assert len(ran) == count


@pytest.mark.parametrize("name", CASES)
def test_gathered_sums_are_those_that_scatter(
    name: str, kernels: dict[str, kl.Kernel], ran: list[int]
) -> None:
    dim, shapes, is_gathered = CASES[name]

    def make() -> list[Any]:
        arguments = [
            shape if isinstance(shape, int) else leaf(reals(shape, k)) for k, shape in enumerate(shapes)
        ]
        return gradients(kernels[name], dim, arguments, times=2)

    for found, expected in zip(*both(make), strict=True):
        np.testing.assert_allclose(found, expected, 2e-5, 2e-5)
    assert bool(ran) == is_gathered


def test_a_gradient_that_is_there_already_is_added_to(kernels: dict[str, kl.Kernel], ran: list[int]) -> None:
    def make() -> list[Any]:
        x, y = leaf(reals((N,), 1)), leaf(np.zeros(N, np.float32))
        x.grad = kl.array(reals((N,), 2))
        return gradients(kernels["three"], N, [x, y])

    for found, expected in zip(*both(make), strict=True):
        np.testing.assert_allclose(found, expected, 1e-5, 1e-5)
    assert ran


def test_parts_of_one_memory_are_as_good(kernels: dict[str, kl.Kernel], ran: list[int]) -> None:
    def make(overlap: int) -> list[Any]:
        whole = leaf(reals((3 * N,), 1))
        with kl.Tape() as tape:
            kl.launch(kernels["three"], N, [whole[:N], whole[N - overlap : 2 * N - overlap]])
        tape.backward(grads={whole: kl.array(reals((3 * N,), 2))})
        return [whole.grad.numpy().copy()]

    for overlap in (0, 100):
        for found, expected in zip(*both(lambda: make(overlap)), strict=True):  # noqa: B023
            np.testing.assert_allclose(found, expected, 1e-5, 1e-5)


def test_an_array_passed_twice_gets_both_gradients(kernels: dict[str, kl.Kernel], ran: list[int]) -> None:
    def make() -> list[Any]:
        x, y, z = (leaf(reals((80, 90), k)) for k in range(3))
        return gradients(kernels["nonlinear"], (80, 90), [x, x, y, z])

    for found, expected in zip(*both(make), strict=True):
        np.testing.assert_allclose(found, expected, 2e-5, 2e-5)


@pytest.mark.filterwarnings("ignore:.*unpacks 2 thread indices")
def test_smaller_grids_and_further_ones_are_as_good(kernels: dict[str, kl.Kernel], ran: list[int]) -> None:
    for dim in ((70, 90), (80, 75), (80, 90, 1), (80, 90, 2)):

        def make(dim: Any = dim) -> list[Any]:
            return gradients(
                kernels["one_sided"], dim, [leaf(reals((80, 90), 1)), leaf(np.zeros((80, 90), np.float32))]
            )

        for found, expected in zip(*both(make), strict=True):
            np.testing.assert_allclose(found, expected, 2e-5, 2e-5)


def test_a_chain_of_stencils_is_as_good(kernels: dict[str, kl.Kernel], ran: list[int]) -> None:
    def make() -> list[Any]:
        several = [leaf(reals((N,), k)) for k in range(4)]
        with kl.Tape() as tape:
            for before, after in pairwise(several):
                kl.launch(kernels["three"], N, [before, after])
        tape.backward(grads={several[-1]: kl.array(reals((N,), 9))})
        return [each.grad.numpy().copy() for each in several]

    for found, expected in zip(*both(make), strict=True):
        np.testing.assert_allclose(found, expected, 2e-5, 2e-5)
    assert len(ran) == 3


# ------------------------------------------------------------------------------------------ random stencils

AXES = "ijk"


@st.composite
def stencils(draw: Any) -> tuple[str, tuple[int, ...]]:
    """A kernel that reads elements around each thread, behind tests that need not be those of the border."""
    rank = draw(st.integers(1, 3))
    axes = AXES[:rank]
    shape = tuple(draw(st.integers(*{1: (20, 60), 2: (12, 20), 3: (12, 15)}[rank])) for _ in axes)
    offset = st.integers(-2, 2)
    terms = []
    for k in range(draw(st.integers(2, 5))):
        place = ", ".join(f"{axis} + {draw(offset)}" for axis in axes)
        factor = draw(st.sampled_from(["", "", " * x[{0}]", " * w[{0}]"])).format(", ".join(axes))
        terms.append(f"{0.5 + k} * x[{place}]{factor}")
    low, high = draw(st.sampled_from([2, 2, 2, 1])), draw(st.sampled_from([2, 2, 3, 1]))
    tests = [f"{axis} >= {low} and {axis} < x.shape[{n}] - {high}" for n, axis in enumerate(axes)]
    kind = f"array{rank}d[float]" if rank > 1 else "array[float]"
    unpacked = ", ".join(axes)
    lines = [
        f"def drawn(x: {kind}, w: {kind}, y: {kind}):",
        f"    {unpacked} = tid()",
        f"    if {' and '.join(tests)}:",
        f"        v = {terms[0]}",
        *(f"        v += {term}" for term in terms[1:-1]),
    ]
    if draw(st.booleans()):
        lines += [f"        if w[{unpacked}] > 0.0:", f"            v += {terms[-1]}"]
    else:
        lines.append(f"        v += {terms[-1]}")
    lines.append(f"        y[{unpacked}] = v")
    return "\n".join(lines) + "\n", shape


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*no gradient flows to an array")
def test_random_stencils_have_the_gradients_of_scalar_code(
    monkeypatch: pytest.MonkeyPatch, ran: list[int]
) -> None:
    monkeypatch.setattr(vector_tier, "FEWEST", 1)
    monkeypatch.setattr(vector_tier, "MOST_STATEMENTS", 0)

    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(stencils())
    def run(drawn: tuple[str, tuple[int, ...]]) -> None:
        text, shape = drawn
        kernel = kl.compile(text)["drawn"]

        def make() -> list[Any]:
            return gradients(kernel, shape, [leaf(reals(shape, k)) for k in range(3)])

        try:
            scattered = both(make)
        except kl.KernelIndexError:
            return
        for found, expected in zip(*scattered, strict=True):
            np.testing.assert_allclose(found, expected, 2e-5, 2e-5)

    run()
    assert len(ran) > 5
