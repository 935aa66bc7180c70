"""Buffers of the host that a function fills again between two reads: every transform reads what they hold.

Those that compute in another precision than the function, or run it more than once, keep copies.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.interop.scipy import problem

K = kl.compile("""
def scale(x: array[Any], w: array[Any], y: array[Any]):
    i = tid()
    y[i] = x[i] * w[i]
""")
X = np.array([1.0, 2.0, 3.0])
Buffer = tuple[Any, Any]
"""What the function computes with, and what the host fills."""


def by_launch(x: kl.array, w: Any) -> kl.array:
    y = kl.zeros_like(x)
    K["scale"][3](x, w, y)
    return y


def by_rule(x: kl.array, w: Any) -> kl.array:
    scaled = kl.func.custom_vjp(lambda x, w: x * w, lambda x, w, bar: (w * bar, x * bar))
    return scaled(x, kl.array(w))


def by_copy(x: kl.array, w: Any) -> kl.array:
    copied = kl.zeros_like(x)
    copied.assign(w)
    return x * copied


def numpy_array(dtype: Any) -> Buffer:
    data = np.zeros(3, dtype)
    return data, data


def shared(dtype: Any) -> Buffer:
    data = np.zeros(3, dtype)
    return kl.from_numpy(data), data


def viewed(dtype: Any) -> Buffer:
    w = kl.array(np.zeros(3, dtype))
    return w, w.numpy()


def part(dtype: Any) -> Buffer:
    w = kl.array(np.zeros(5, dtype))
    return w[1:4], w.numpy()[1:4]


def checked(f: Any, x: kl.array) -> Any:
    assert kl.autograd.gradcheck(f, inputs=[x], show_summary=False)
    return kl.func.grad(f)(x)


WAYS: dict[str, Callable[[Any, kl.array], Any]] = {
    "grad": lambda f, x: kl.func.grad(f)(x),
    "jacfwd": lambda f, x: kl.func.jacfwd(f)(x),
    "as_numpy": lambda f, x: kl.func.as_numpy(f, x)(X)[1],
    "problem": lambda f, x: problem(f, x).jac(X),
    "jacobian_fd": lambda f, x: kl.autograd.jacobian_fd(f, inputs=[x])[0, 0].numpy(),
    "gradcheck": checked,
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("read", [by_launch, kl.array.__mul__, by_rule, by_copy])
@pytest.mark.parametrize("made", [numpy_array, shared, viewed, part])
@pytest.mark.parametrize("way", WAYS)
def test_each_read_finds_what_the_buffer_holds_then(way: str, made: Any, read: Any, dtype: Any) -> None:
    def f(x: kl.array) -> kl.array:
        w, data = made(dtype)
        for k in range(1, 4):
            data[:] = k
            x = read(x, w)
        return x.sum()

    found = WAYS[way](f, kl.array(X, dtype=dtype, requires_grad=True))
    np.testing.assert_allclose(np.ravel(np.asarray(found)), [6.0] * 3, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_differences_refuse_what_the_host_writes_into_what_was_computed(dtype: Any) -> None:
    def f(x: kl.array) -> kl.array:
        y = x * x
        y.numpy()[0] = 3.0
        return y * x

    x = kl.array(X, dtype=dtype, requires_grad=True)
    with pytest.raises(kl.GradientError, match="changed before this line, and the transform did not see how"):
        kl.autograd.jacobian_fd(f, inputs=[x])
