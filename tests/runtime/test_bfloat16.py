"""Brain floats: on the host, in kernels, in sums and under a tape, on both backends against NumPy."""

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import KernelTypeError
from kernelab.lang.rounding import BFLOAT16, rounded
from tests.support.lowering import lowered

SOURCE = """
def total(x: array[bfloat16], s: array[bfloat16]):
    s[0] += x[tid()]

def scattered(x: array[bfloat16], y: array[bfloat16]):
    i = tid()
    y[i % 3] += x[i]

def scaled(x: array[bfloat16], a: bfloat16, v: array[vector(3, bfloat16)], y: array[bfloat16]):
    i = tid()
    y[i] = sin(x[i]) * a + v[i][0] * v[i][2] + 0.1

def cubed(x: array[bfloat16], y: array[bfloat16]):
    i = tid()
    y[i] = x[i] * x[i] * x[i]

def mixed(x: array[bfloat16], f: array[float]):
    i = tid()
    f[i] = float(x[i]) + 1.0

def turned(m: array[matrix((2, 2), bfloat16)], v: array[vector(2, bfloat16)]):
    i = tid()
    v[i] = m[i] @ v[i]
"""


@pytest.fixture(scope="module")
def kernels() -> dict[str, kl.Kernel]:
    return kl.compile(SOURCE)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def b(*values: float) -> np.ndarray:
    return rounded(np.array(values), BFLOAT16)


def test_a_number_is_rounded_to_nearest_even_once() -> None:
    tie = 1 + 2.0**-8
    found = b(tie, tie + 2.0**-40, tie - 2.0**-40, 1 + 3 * 2.0**-8, 3.4e38, 3.3953e38, 2.0**-134, 1e-45)
    wanted = [1, 1 + 2.0**-7, 1, 1 + 2.0**-6, np.inf, 3.3895313892515355e38, 0, 0]
    assert found.astype(float).tolist() == wanted
    assert np.isnan(b(np.nan))[0]
    assert float(kl.bfloat16(tie + 2.0**-40)) == 1 + 2.0**-7


def test_a_whole_number_is_rounded_once_however_large() -> None:
    tie = (2**8 + 1) << 50
    given = np.array([tie, tie + 1, tie - 1, -tie - 1], np.int64)
    even, odd = float(2**58), float(258 << 50)
    assert rounded(given, BFLOAT16).astype(float).tolist() == [even, odd, even, -odd]


def test_arrays_are_made_shown_and_read() -> None:
    x = kl.array([0.1, 2.0], dtype=kl.bfloat16)
    assert x.numpy().dtype == BFLOAT16
    assert np.asarray(x).dtype == BFLOAT16
    assert kl.array(b(1.0, 2.0)).dtype == kl.bfloat16
    assert kl.zeros(3, dtype="bfloat16").dtype == kl.bfloat16
    assert x.list() == [float(np.float32(0.10009765625)), 2.0]
    assert kl.array(x.numpy(), dtype=kl.int32).list() == [0, 2]
    assert kl.types.vector(3, kl.bfloat16)(1, 2, 3).dtype == BFLOAT16


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(kl.KernelValueError, match="does not fit bfloat16"):
        kl.array([1e39], dtype=kl.bfloat16)
    with pytest.raises(KernelTypeError, match="cannot become bfloat16"):
        kl.bfloat16("a")


@pytest.mark.parametrize("hand", [lambda x: x, kl.to_dlpack])
def test_dlpack_shares_the_memory_of_brain_floats(hand: Any) -> None:
    x = kl.array([1.0, 2.5, -3.0, 4.0], dtype=kl.bfloat16)
    shared = kl.from_dlpack(hand(x))
    pairs = kl.from_dlpack(hand(x.reshape((2, 2))), dtype=kl.types.vector(2, kl.bfloat16))
    x[1] = 7.0
    assert shared.dtype == kl.bfloat16
    assert (shared.list(), pairs.numpy().tolist()) == ([1.0, 7.0, -3.0, 4.0], [[1, 7], [-3, 4]])


def test_dlpack_hands_a_part_of_brain_floats_over_with_its_strides() -> None:
    x = kl.array([1.0, 2.5, -3.0, 4.0], dtype=kl.bfloat16)
    assert kl.from_dlpack(x[::2]).list() == [1.0, -3.0]


def test_five_thousand_ones_sum_to_the_nearest_number(kernels: dict[str, kl.Kernel]) -> None:
    s = kl.zeros(1, dtype=kl.bfloat16)
    kl.launch(kernels["total"], 5000, [kl.ones(5000, dtype=kl.bfloat16), s])
    assert s.list() == [4992.0] == b(5000.0).tolist()


def test_scattered_additions_are_rounded_once(kernels: dict[str, kl.Kernel]) -> None:
    x = b(*np.random.default_rng(0).normal(size=60))
    y = kl.zeros(3, dtype=kl.bfloat16)
    kl.launch(kernels["scattered"], 60, [kl.array(x), y])
    wanted = [x[k::3].astype(np.float64).sum() for k in range(3)]
    np.testing.assert_array_equal(y.numpy(), b(*wanted))


def test_a_kernel_computes_in_float32_and_rounds_each_operation(kernels: dict[str, kl.Kernel]) -> None:
    r = np.random.default_rng(1)
    x, v = b(*r.normal(size=40)), b(*r.normal(size=120)).reshape(40, 3)
    a, y = b(1.7)[0], kl.zeros(40, dtype=kl.bfloat16)
    kl.launch(
        kernels["scaled"], 40, [kl.array(x), 1.7, kl.array(v, dtype=kl.types.vector(3, kl.bfloat16)), y]
    )
    wanted = rounded(np.sin(x.astype(np.float32)), BFLOAT16) * a + v[:, 0] * v[:, 2] + b(0.1)
    np.testing.assert_array_equal(y.numpy(), wanted)


def test_widths_do_not_mix_and_convert(kernels: dict[str, kl.Kernel]) -> None:
    f = kl.zeros(2)
    kl.launch(kernels["mixed"], 2, [kl.array(b(0.5, 3.0)), f])
    assert f.list() == [1.5, 4.0]
    for other in ("float16", "float"):
        with pytest.raises(kl.KernelError, match="bfloat16"):
            lowered(f"def f(x: array[bfloat16], y: array[{other}]):\n    x[0] = x[0] + y[0]", "f")


def test_matrices_of_it_multiply(kernels: dict[str, kl.Kernel]) -> None:
    m = kl.array([[[1, 2], [3, 4]]], dtype=kl.types.matrix((2, 2), kl.bfloat16))
    v = kl.array([[5, 6]], dtype=kl.types.vector(2, kl.bfloat16))
    kl.launch(kernels["turned"], 1, [m, v])
    assert v.numpy().tolist() == [[17.0, 39.0]]


def test_a_gradient_is_a_bfloat16_and_agrees_with_differences(kernels: dict[str, kl.Kernel]) -> None:
    x = kl.array([0.5, -2.0, 3.0], dtype=kl.bfloat16, requires_grad=True)
    y = kl.zeros(3, dtype=kl.bfloat16, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernels["cubed"], 3, [x, y])
    tape.backward(grads={y: kl.ones(3, dtype=kl.bfloat16)})
    assert x.grad.dtype == kl.bfloat16
    assert x.grad.list() == [0.75, 12.0, 27.0]
    assert kl.autograd.gradcheck(kernels["cubed"], 3, [x], [y])


def test_whether_numbers_of_uint16_are_counts_or_bits_has_to_be_said() -> None:
    bits = np.array([0x3F80, 0x4000], np.uint16)
    with pytest.raises(KernelTypeError, match=r"counts, or the bits[\s\S]*view\(kl.bfloat16\)"):
        kl.array(bits, dtype=kl.bfloat16)
    assert kl.array(bits).view(kl.bfloat16).list() == [1.0, 2.0]
    assert kl.array(np.array([1, 2], np.uint16).astype(np.float32), dtype=kl.bfloat16).list() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("computed", "expected"),
    [
        (lambda x, b: x * b, [2.0, 4.0, 6.0]),
        (lambda x, b: b * x, [2.0, 4.0, 6.0]),
        (lambda x, b: b - x, [1.0, 0.0, -1.0]),
        (lambda x, b: x**b, [1.0, 4.0, 9.0]),
        (lambda x, b: operator.imul(kl.clone(x), b), [2.0, 4.0, 6.0]),
    ],
)
def test_operators_of_arrays_take_a_number_of_theirs(computed: Any, expected: list[float]) -> None:
    x = kl.array([1.0, 2.0, 3.0], dtype=kl.bfloat16)
    for number in (x[1], kl.bfloat16(2.0)):
        found = computed(x, number)
        assert isinstance(found, kl.array)
        assert (found.dtype, found.list()) == (kl.bfloat16, expected)
