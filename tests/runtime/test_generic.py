"""Kernels with parameters of `Any`: one definition, lowered for the types of each launch."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import KernelTypeError, KernelValueError, LaunchError


@kl.kernel
def scale(x: kl.array(dtype=Any), s: Any):
    """Scale in place."""
    i = kl.tid()
    x[i] = x[i] * s


@kl.kernel(enable_backward=False)
def fill(x: kl.array(dtype=Any, ndim=2), value: Any):
    i, j = kl.tid()
    x[i, j] = value


@kl.overload
def scale(x: kl.array(dtype=kl.float16), s: kl.float16): ...  # noqa: F811


@kl.kernel
def norms(x: kl.array[kl.types.vector(length=Any, dtype=float)], y: kl.array[float]):
    i = kl.tid()
    y[i] = kl.length(x[i])


@pytest.mark.parametrize("dtype", [kl.float64, kl.float32, kl.int32, kl.uint8])
def test_the_arguments_decide_the_types(dtype: Any) -> None:
    x = kl.array([1, 2, 3], dtype=dtype)
    kl.launch(scale, 3, [x, 2])
    assert x.dtype == dtype
    np.testing.assert_array_equal(x.numpy(), [2, 4, 6])


def test_a_generic_kernel_is_differentiated_like_any_other() -> None:
    x, y = kl.array([1.0, 2.0], dtype=kl.float64, requires_grad=True), kl.zeros(2, dtype=kl.float64)
    y.requires_grad = True
    copy = kl.compile("def copy(x: array[Any], y: array[Any]):\n    i = tid()\n    y[i] = x[i] * x[i]\n", {})[
        "copy"
    ]
    with kl.Tape() as tape:
        copy[2](x, y)
    tape.backward(grads={y: kl.ones_like(y)})
    np.testing.assert_array_equal(x.grad.numpy(), [2.0, 4.0])
    with pytest.raises(KernelTypeError, match="the types of `copy` are not known before it is launched"):
        copy.vjp(["x"])


def test_vectors_matrices_and_numbers_of_any_type() -> None:
    x = kl.zeros((2, 2), dtype=kl.vec3)
    fill[2, 2](x, kl.vec3(1.0, 2.0, 3.0))
    np.testing.assert_array_equal(x.numpy()[1, 1], [1, 2, 3])
    numbers = kl.zeros((2, 2), dtype=kl.float64)
    fill[2, 2](numbers, np.array(0.5))
    assert numbers.list() == [0.5] * 4
    q = kl.zeros((1, 1), dtype=kl.quat)
    fill[1, 1](q, kl.quat(0.0, 0.0, 0.0, 1.0))
    np.testing.assert_array_equal(q.numpy(), [[[0, 0, 0, 1]]])
    y = kl.zeros(1)
    kl.launch(norms, 1, [kl.array([[3.0, 4.0]], dtype=kl.vec2), y])
    np.testing.assert_array_equal(y.numpy(), [5.0])


def test_overloads_are_kernels_of_their_own() -> None:
    made = kl.overload(scale, [kl.array(dtype=kl.float64), kl.float64])
    assert kl.overload(scale, {"x": kl.array(dtype=kl.float64), "s": kl.float64}) is made
    assert made.vjp(["s"]).adjoint.param("x").type == kl.array(dtype=kl.float64)
    assert [p.type for p in kl.overload(fill, [kl.array(dtype=int, ndim=2), int]).plan.parameters] == [
        kl.array(dtype=int, ndim=2),
        kl.int32,
    ]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: kl.launch(fill, 1, [kl.zeros(1), 1.0]), LaunchError, "an array of 2 dimensions, not array"),
        (lambda: kl.launch(fill, 1, [kl.zeros(1)]), LaunchError, "kernel `fill` takes 2 arguments, not 1"),
        (
            lambda: kl.launch(fill, 1, [kl.zeros(1), None]),
            LaunchError,
            "`value` of kernel `fill` is a value of",
        ),
        (lambda: kl.overload(fill, [float]), KernelValueError, "kernel `fill` has 2 parameters, not 1"),
        (
            lambda: kl.overload(fill, {"x": float}),
            KernelValueError,
            "the type of `value` of kernel `fill` is",
        ),
        (lambda: kl.overload(fill, {"y": float}), KernelValueError, "has no parameter `y`"),
        (
            lambda: kl.overload(norms.__class__, [float]),
            KernelTypeError,
            "is not a kernel with parameters of Any",
        ),
        (
            lambda: kl.launch(scale, 1, [kl.zeros(1, dtype=kl.mat22), kl.vec3(1.0, 2.0, 3.0)]),
            KernelTypeError,
            "cannot multiply",
        ),
    ],
)
def test_what_does_not_fit_a_generic_kernel(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()
