"""Quotients rounded to whole numbers and remainders, of floats of every width, against exact arithmetic."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

import kernelab as kl

FLOATS = ("float16", "bfloat16", "float32", "float64")
LARGEST = {"float16": 65504.0, "bfloat16": 3.38e38, "float32": 3.4e38, "float64": 1.79e308}


def operands(dtype: str) -> tuple[kl.array, kl.array]:
    """Numbers of the usual size, whole ones, and some near the largest."""
    rng, top, type = np.random.default_rng(3), LARGEST[dtype], getattr(kl, dtype)
    a = [
        *(3.0 * rng.standard_normal(2000)),
        *rng.integers(-99, 99, 500),
        top,
        -top,
        top,
        -top,
        top,
        7.0,
        -7.0,
    ]
    b = [
        *(rng.choice([-1.0, 1.0], 2000) * rng.uniform(0.01, 3.0, 2000)),
        *rng.choice([-7, -3, -2, 2, 3, 9], 500),
        -2048.0,
        100.0,
        -top,
        top,
        -0.4 * top,
    ]
    given = [kl.array(np.array(each), dtype=type, requires_grad=True) for each in (a, [*b, 2.0, -2.0])]
    return given[0], given[1]


def exact(array: kl.array) -> list[Fraction]:
    return [Fraction(float(each)) for each in array.numpy()]


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_quotient_is_rounded_down_where_that_is_a_number_of_the_type(dtype: str) -> None:
    a, b = operands(dtype)
    kernel = kl.compile(f"""
def f(a: array[{dtype}], b: array[{dtype}], c: array[{dtype}]):
    i = tid()
    c[i] = a[i] // b[i]
""")["f"]
    c = kl.zeros_like(a)
    kl.launch(kernel, len(a), [a, b], [c])
    quotients = [math.floor(x / y) for x, y in zip(exact(a), exact(b), strict=True)]
    known = np.array([float(q) if abs(q) < 2.0**53 else np.nan for q in quotients])
    wanted = kl.array(known, dtype=getattr(kl, dtype)).numpy()
    kept = ~np.isnan(known)
    assert kept[-7:].sum() >= 4
    np.testing.assert_array_equal(c.numpy()[kept], wanted[kept])
    np.testing.assert_array_equal((a // b).numpy()[kept], wanted[kept])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("remainder", "rounded"), [("a[i] % b[i]", math.floor), ("fmod(a[i], b[i])", math.trunc)]
)
def test_the_slope_of_a_remainder_in_its_divisor_is_a_whole_number(
    remainder: str, rounded: Callable[[Fraction], int], dtype: str
) -> None:
    a, b = operands(dtype)
    a, b = (kl.array(each.numpy()[:2500], dtype=getattr(kl, dtype), requires_grad=True) for each in (a, b))
    kernel = kl.compile(f"""
def f(a: array[{dtype}], b: array[{dtype}], c: array[{dtype}]):
    i = tid()
    c[i] = {remainder}
""")["f"]
    c = kl.zeros(len(a), dtype=getattr(kl, dtype), requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernel, len(a), [a, b], [c])
    tape.backward(grads={c: kl.ones(len(a), dtype=getattr(kl, dtype))})
    slopes = [-rounded(x / y) for x, y in zip(exact(a), exact(b), strict=True)]
    wanted = kl.array(np.array(slopes, float), dtype=getattr(kl, dtype)).numpy()
    assert b.grad is not None
    np.testing.assert_array_equal(b.grad.numpy(), wanted)
