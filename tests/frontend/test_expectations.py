"""`expect_eq`, `expect_neq` and `expect_near`: asserts in Warp's words."""

from typing import Any

import pytest

import kernelab as kl

TEXT = """
def check(x: array[vec3], m: mat22, n: int):
    wp.expect_eq(x[0], vec3(1.0, 2.0, 3.0))
    expect_neq(n, 4)
    expect_near(x[0], vec3(1.0, 2.0, 3.01), 0.1)
    expect_near(m, mat22(1.09, 2.09, 3.09, 4.09), 0.1)  # each entry differs by 0.09
    expect_near(x[0][1], 2.5, tolerance=float(n))
"""


@pytest.fixture(scope="module", params=["cpu", "interp"])
def check(request: pytest.FixtureRequest) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "interp":
            patch.setenv("KERNELAB_BACKEND", "interp")
        yield kl.compile(TEXT)["check"]


MATRIX = [[1, 2], [3, 4]]


def test_what_holds_says_nothing(check: Any) -> None:
    kl.launch(check, 1, inputs=[kl.array([[1, 2, 3]], dtype=kl.vec3), MATRIX, 1])


@pytest.mark.parametrize(
    ("x", "m", "n", "line"),
    [
        ([1, 2, 4], MATRIX, 1, "wp.expect_eq"),
        ([1, 2, 3], MATRIX, 4, "expect_neq"),
        ([1, 2, 3], [[1, 2], [3, 4.5]], 1, "expect_near.m"),
        ([1, 2, 3], MATRIX, 0, "expect_near.x.0..1."),
    ],
)
def test_what_does_not_hold_is_an_error_at_its_line(check: Any, x: Any, m: Any, n: int, line: str) -> None:
    with pytest.raises(kl.KernelAssertionError, match=line):
        kl.launch(check, 1, inputs=[kl.array([x], dtype=kl.vec3), m, n])


def test_a_wrong_number_of_values_is_refused() -> None:
    with pytest.raises(kl.KernelError, match="expect_eq takes two values"):
        kl.compile("def f(n: int):\n    expect_eq(n)")
    with pytest.raises(kl.KernelError, match="expect_near takes two values and a tolerance"):
        kl.compile("def f(n: float):\n    expect_near(n, n, n, n)")


def test_on_the_host_what_holds_says_nothing() -> None:
    v = kl.vec3(1.0, 2.0, 3.0)
    kl.expect_eq(v[1:], kl.vec2(2.0, 3.0))
    kl.expect_neq(v, kl.vec3(1.0, 2.0, 4.0))
    kl.expect_near(v, kl.vec3(1.0, 2.0, 3.01), 0.1)
    kl.expect_near(2, 2.5, tolerance=0.5)
    kl.expect_near(kl.mat22(1.0, 2.0, 3.0, 4.0), kl.mat22(1.0, 2.0, 3.0, 4.0))


def test_on_the_host_what_does_not_hold_is_an_error() -> None:
    with pytest.raises(kl.KernelAssertionError, match="expect_eq: 2 is not 3"):
        kl.expect_eq(2, 3)
    with pytest.raises(kl.KernelAssertionError, match="expect_neq: both are 2"):
        kl.expect_neq(2, 2)
    kl.expect_near(kl.mat22(0.0), kl.mat22(0.09), 0.1)
    with pytest.raises(kl.KernelAssertionError, match=r"differ by 0.18, not 0.1"):
        kl.expect_near(kl.mat22(0.0), kl.mat22(0.09, 0.0, 0.0, 0.18), 0.1)
    with pytest.raises(kl.KernelAssertionError, match="differ by nan"):
        kl.expect_near(kl.vec2(0.0, float("nan")), kl.vec2(0.0), 1.0)


def test_on_the_host_arrays_and_values_of_other_shapes_are_refused() -> None:
    with pytest.raises(kl.KernelTypeError, match="cannot compare a vec3 with a vec2"):
        kl.expect_neq(kl.vec3(0.0), kl.vec2(0.0))
    with pytest.raises(kl.KernelTypeError, match="compares values, not arrays"):
        kl.expect_eq(kl.zeros(2), kl.zeros(2))
