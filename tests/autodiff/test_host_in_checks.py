"""Checks of functions in which the host looks at what kernels have computed: it sees those values."""

from collections.abc import Callable

import numpy as np
import pytest

import kernelab as kl

KERNELS = """
def squares(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def weights(w: array[float]):
    i = tid()
    w[i] = 2.0 + float(i)
"""


@pytest.fixture
def squares() -> Callable[[kl.array], kl.array]:
    kernels = kl.compile(KERNELS)

    def squared(x: kl.array) -> kl.array:
        y = kl.zeros(3)
        kernels["squares"][3](x, y)
        return y

    return squared


@pytest.fixture
def x() -> kl.array:
    return kl.array([1.0, 1.5, 2.0], requires_grad=True)


def _agrees(function: Callable[[kl.array], kl.array], x: kl.array) -> None:
    assert kl.autograd.gradcheck(function, inputs=[x], show_summary=False)
    adjoint, differences = (
        find(function, inputs=[x])[0, 0].numpy() for find in (kl.autograd.jacobian, kl.autograd.jacobian_fd)
    )
    np.testing.assert_allclose(adjoint, differences, rtol=1e-4)


def test_a_factor_that_a_launch_has_made_is_seen(
    squares: Callable[[kl.array], kl.array], x: kl.array
) -> None:
    weights = kl.compile(KERNELS)["weights"]

    def weighted(x: kl.array) -> kl.array:
        w = kl.zeros(3)
        weights[3](w)
        return squares(x) * float(w.numpy().sum()) + squares(x) * w[1]

    _agrees(weighted, x)


def test_a_loop_ends_by_the_values_that_it_has_computed(
    squares: Callable[[kl.array], kl.array], x: kl.array
) -> None:
    steps: set[int] = set()

    def doubled(x: kl.array) -> kl.array:
        y, step = squares(x), 0
        while y.numpy().max() < 50.0 and step < 20:
            y, step = y * 2.0, step + 1
        steps.add(step)
        return y

    _agrees(doubled, x)
    assert steps == {4}


def test_a_view_that_is_older_than_a_launch_is_no_write_of_the_hosts(
    squares: Callable[[kl.array], kl.array], x: kl.array
) -> None:
    kernel = kl.compile(KERNELS)["squares"]

    def again(x: kl.array) -> kl.array:
        y = kl.zeros(3)
        seen = y.numpy()
        kernel[3](x, y)
        largest = y.numpy().max()
        kernel[3](x, y)
        return y * float(largest > 3.0) + float(seen is None)

    _agrees(again, x)


@pytest.mark.filterwarnings("ignore::kernelab.KernelWarning")
def test_the_line_where_the_host_takes_the_input_is_named(
    squares: Callable[[kl.array], kl.array], x: kl.array
) -> None:
    def f(x: kl.array, z: kl.array) -> kl.array:
        str(x.numpy())  # a look
        return squares(x) * z * float(z.numpy()[0])

    z = kl.ones(3, requires_grad=True)
    report = kl.autograd.gradcheck(f, inputs=[x, z], show_summary=False, raise_exception=False)
    assert [pair.verdict for pair in report.pairs] == ["", "host"]
    span = report.worst().span
    assert span is not None
    assert "z.numpy()" in span.line_text


@pytest.mark.parametrize(
    "passed",
    [
        lambda y: kl.array(y.numpy(), dtype=float),
        lambda y: kl.array(np.sin(y.numpy()), dtype=float) * 2.0,
        lambda y: y * float(y.numpy()[0] + 1.0),
    ],
    ids=["a copy", "NumPy", "a factor"],
)
@pytest.mark.filterwarnings("ignore::kernelab.KernelWarning")
def test_a_result_that_follows_through_the_host_fails(
    passed: Callable[[kl.array], kl.array], squares: Callable[[kl.array], kl.array], x: kl.array
) -> None:
    report = kl.autograd.gradcheck(
        lambda x: passed(squares(x)), inputs=[x], show_summary=False, raise_exception=False
    )
    assert not report
    assert report.worst().verdict == "host"
    span = report.worst().span
    assert span is not None
    assert "y.numpy()" in span.line_text
