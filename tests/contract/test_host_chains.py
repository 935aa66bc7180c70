"""A check that takes the host's values for constants passes no function that computes by the host."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import GradientError, KernelWarning

K = kl.compile(
    """
def product(x: array[SCALAR], z: array[SCALAR], y: array[SCALAR]):
    i = tid()
    y[i] = x[i] * z[i]

def scaled(x: array[SCALAR], gain: SCALAR, y: array[SCALAR]):
    i = tid()
    y[i] = x[i] * gain
""".replace("SCALAR", "float64")
)
N = 3


def product(x: kl.array, z: kl.array) -> kl.array:
    y = kl.zeros(N, dtype=kl.float64)
    K["product"][N](x, z, y)
    return y


def scaled(x: kl.array, gain: Any) -> kl.array:
    y = kl.zeros(N, dtype=kl.float64)
    K["scaled"][N](x, gain, y)
    return y


def assigned(x: kl.array) -> kl.array:
    y = kl.zeros(N, dtype=kl.float64)
    y.assign(x.numpy() * 2.0)
    return product(x, y)


def written_in_place(x: kl.array) -> kl.array:
    y = product(x, x)
    z = kl.ones(N, dtype=kl.float64)
    z.numpy()[:] = np.sin(x.numpy())
    return product(y, z)


CHAINS: dict[str, Callable[[kl.array], kl.array]] = {
    "assign": assigned,
    "a new array": lambda x: product(x, kl.array(np.exp(x.numpy()), dtype=kl.float64)),
    "a view of NumPy": written_in_place,
    "a number": lambda x: scaled(x, float(x[0]) * 3.0),
    "a number by math": lambda x: scaled(x, math.sqrt(x[1])),
    "a list": lambda x: product(x, kl.array([2.0 * v for v in x.list()], dtype=kl.float64)),
    "only for one element": lambda x: product(x, kl.array([1.0, 2.0, float(x.numpy()[2])], dtype=kl.float64)),
}
HARMLESS: dict[str, Callable[[kl.array], kl.array]] = {
    "a look": lambda x: (str(x), str(x.numpy().mean()), product(x, x))[-1],
    "a branch": lambda x: scaled(x, 2.0 if x.numpy().sum() > 0 else 3.0),
    "a shape": lambda x: scaled(x, float(x.numpy().size)),
    "constants": lambda x: product(x, kl.array(np.arange(3.0), dtype=kl.float64)),
    "nothing": lambda x: product(x, x),
}


def leaf() -> kl.array:
    return kl.array([1.0, 2.0, 3.0], dtype=kl.float64, requires_grad=True)


@pytest.mark.filterwarnings("ignore::kernelab.errors.KernelWarning")
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("name", CHAINS)
def test_no_chain_through_the_host_passes(name: str, fast: bool) -> None:
    report = kl.autograd.gradcheck(
        CHAINS[name], inputs=[leaf()], fast=fast, raise_exception=False, show_summary=False
    )
    assert not report
    assert report.worst().verdict == "host"


@pytest.mark.filterwarnings("ignore::kernelab.errors.KernelWarning")
def test_the_error_says_that_the_host_computes() -> None:
    with pytest.raises(GradientError, match="leaves out what the host computes for output 0") as error:
        kl.autograd.gradcheck(assigned, inputs=[leaf()], show_summary=False)
    assert "compute them with kernels" in str(error.value)


@pytest.mark.filterwarnings("ignore::kernelab.errors.KernelWarning")
@pytest.mark.parametrize("name", CHAINS)
def test_no_chain_through_the_host_passes_a_taylor_test(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report = kl.autograd.taylor_test(CHAINS[name], inputs=[leaf()])
    assert not report
    assert "a rule that a user wrote" not in capsys.readouterr().out
    assert "follows its inputs through values that the host computes" in report.fault


@pytest.mark.parametrize("name", CHAINS)
def test_differences_of_a_chain_through_the_host_warn(name: str) -> None:
    with pytest.warns(KernelWarning, match="leave out what the host computes: output 0 follows the inputs"):
        kl.autograd.jacobian_fd(CHAINS[name], inputs=[leaf()])


@pytest.mark.filterwarnings("ignore:.*no derivative:kernelab.errors.KernelWarning")
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("name", HARMLESS)
def test_what_only_looks_at_values_passes(name: str, fast: bool) -> None:
    assert kl.autograd.gradcheck(HARMLESS[name], inputs=[leaf()], fast=fast, show_summary=False)
    kl.autograd.jacobian_fd(HARMLESS[name], inputs=[leaf()])
    assert kl.autograd.taylor_test(HARMLESS[name], inputs=[leaf()], show_summary=False)


def test_only_the_inputs_that_the_host_takes_fail() -> None:
    with pytest.warns(KernelWarning):
        report = kl.autograd.gradcheck(
            lambda x, y: product(x, y) + assigned(y),
            inputs=[leaf(), leaf()],
            raise_exception=False,
            show_summary=False,
        )
    assert [pair.verdict for pair in report.pairs] == ["", "host"]


def test_only_the_outputs_that_follow_by_the_host_fail() -> None:
    with pytest.warns(KernelWarning):
        report = kl.autograd.gradcheck(
            lambda x: (product(x, x), assigned(x)), inputs=[leaf()], raise_exception=False, show_summary=False
        )
    assert [pair.verdict for pair in report.pairs] == ["", "host"]


@pytest.mark.parametrize("fast", [False, True])
def test_a_function_of_float64_that_rounds_to_float32_on_its_way_passes(fast: bool) -> None:
    def rounded(x: kl.array) -> kl.array:
        return x.astype(kl.float32).astype(kl.float64) * x

    assert kl.autograd.gradcheck(rounded, inputs=[leaf()], fast=fast, show_summary=False)


def by_math(x: kl.array, gain: Any) -> kl.array:
    return scaled(x, math.sin(gain))


def by_the_kernel(x: kl.array, gain: Any) -> kl.array:
    assert f"{float(gain):.3f}" == "0.500"
    return scaled(x, gain)


def by_numpy(x: kl.array, gain: Any) -> kl.array:
    return scaled(x, np.sin(gain.numpy()[0]))


def unused(x: kl.array, gain: Any) -> kl.array:
    return product(x, x)


TRANSFORMS: dict[str, Callable[..., Any]] = {
    "jacrev": lambda f, x: kl.func.jacrev(f, argnums=(0, 1))(x, np.float64(0.5)),
    "jacfwd": lambda f, x: kl.func.jacfwd(f, argnums=(0, 1))(x, np.float64(0.5)),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=list(TRANSFORMS))
def test_an_argument_that_only_the_host_has_read_is_told_at_that_line(transform: Callable[..., Any]) -> None:
    x = kl.array([1.0, 2.0, 3.0], dtype=kl.float64)
    with pytest.warns(KernelWarning) as caught:
        transform(by_math, x)
    assert {str(one.message).splitlines()[0] for one in caught} == {
        "the derivative of by_math with respect to `gain` is 0: the host took its value here, as a constant"
    }
    assert "math.sin(gain)" in str(caught[0].message)


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=list(TRANSFORMS))
def test_a_number_that_is_told_already_or_has_a_derivative_is_not_told_so(
    transform: Callable[..., Any],
) -> None:
    x = kl.array([1.0, 2.0, 3.0], dtype=kl.float64)
    transform(by_the_kernel, x)
    transform(unused, x)
    with pytest.warns(KernelWarning, match="no gradient flows") as caught:
        transform(by_numpy, x)
    assert len(caught) == 1
