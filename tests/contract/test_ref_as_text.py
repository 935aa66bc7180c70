"""`ref[...]` means the same where annotations are text, and what Python cannot hand back is told."""

from __future__ import annotations

import warnings

import pytest

import kernelab as kl


@kl.struct
class Held:
    x: float


@kl.func
def raised(p: kl.ref[Held]):  # type: ignore[no-untyped-def, valid-type]
    p.x = p.x + 1.0


@kl.func
def turned(v: kl.ref[kl.vec3]):  # type: ignore[no-untyped-def, valid-type]
    v[0] = 7.0


@kl.func
def through(p: Held) -> float:
    raised(p)
    return p.x


@kl.func
def more(a: kl.ref[float]) -> float:  # type: ignore[valid-type]
    a += 1.0
    return a


@kl.kernel
def in_a_kernel(p: Held, y: kl.array[float]):  # type: ignore[no-untyped-def]
    v = kl.vec3(1.0, 2.0, 3.0)
    turned(v)
    y[0] = through(p)
    y[1] = p.x
    y[2] = v[0]


def test_a_struct_or_vector_goes_back_as_in_a_kernel() -> None:
    y, p, v = kl.zeros(3), Held(x=1.0), kl.vec3(1.0, 2.0, 3.0)
    in_a_kernel[1](p, y)
    turned(v)
    assert [through(p), p.x, v[0]] == y.list() == [2.0, 1.0, 7.0]
    raised(p)
    assert p.x == 2.0


def test_a_number_that_cannot_go_back_is_told_once() -> None:
    with pytest.warns(kl.KernelWarning, match=r"more hands `a` back in kernels[\s\S]*more\(1\.0\)") as told:
        assert more(1.0) == 2.0
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert more(2.0) == 3.0
