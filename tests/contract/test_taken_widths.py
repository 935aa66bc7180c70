"""Numbers that the host takes out of arrays of every width of floats remember where they come from."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.host.traced import Traced, origins, untraced

TAKEN: dict[str, Callable[[Any], Any]] = {
    "an element": lambda y: y[1],
    "the only one": lambda y: y[1:2].item(),
    "of a list": lambda y: y.list()[1],
    "of NumPy's array": lambda y: y.numpy()[1],
    "of its iterator": lambda y: next(iter(y.numpy())),
    "a sum": lambda y: y.numpy().sum(),
    "NumPy's sum": np.sum,
    "a maximum": lambda y: y.numpy().max(),
    "a product": lambda y: y.numpy() @ y.numpy(),
    "its negative": lambda y: -y[1],
    "a multiple": lambda y: 2.0 * y[1] + 1,
    "a power": lambda y: y[1] ** 2,
    "a sine": lambda y: np.sin(y[1]),
    "of a vector": lambda y: kl.types.vector(3, y.dtype)(y[0], y[1], y[2])[1],
    "converted": lambda y: y.dtype(y.list()[1]),
    "by a function of the language": lambda y: kl.sin(y[1]),
}
every_width = pytest.mark.parametrize("dtype", [kl.bfloat16, kl.float16, kl.float32, kl.float64], ids=str)


def squares(dtype: Any) -> Any:
    x = kl.array([1.0, 1.5, 2.0], dtype=dtype, requires_grad=True)
    return x * x


@every_width
@pytest.mark.parametrize("take", TAKEN.values(), ids=TAKEN)
def test_a_number_of_a_tape_remembers_it_and_is_the_number_that_it_is_without(
    take: Callable[[Any], Any], dtype: Any
) -> None:
    plain = take(squares(dtype))
    with kl.Tape():
        number = take(squares(dtype))
        assert origins(number)
        assert isinstance(number, Traced)
        assert type(untraced(number)) is type(plain)
        assert type(pickle.loads(pickle.dumps(number))) is type(plain)
        assert (repr(number), str(number), f"{number}") == (repr(plain), str(plain), f"{plain}")
        assert number == plain
        assert kl.array([number]).dtype == kl.array([plain]).dtype
        assert kl.full(2, number).dtype == kl.full(2, plain).dtype


@every_width
def test_a_launch_that_is_given_it_is_told(dtype: Any) -> None:
    x = kl.array([1.0, 1.5, 2.0], dtype=dtype, requires_grad=True)
    with kl.Tape() as tape:
        y = x * x
        z = y + kl.map(lambda a, b: a * b, kl.ones(3, dtype=dtype), y[1])
    with pytest.warns(kl.KernelWarning, match="the host took a number there and passed it on"):
        tape.backward(grads={z: kl.ones(3, dtype=dtype)})


@pytest.mark.filterwarnings("ignore::kernelab.errors.KernelWarning")
@pytest.mark.parametrize("take", TAKEN.values(), ids=TAKEN)
def test_runs_of_differences_see_the_numbers_that_they_compute(take: Callable[[Any], Any]) -> None:
    """Else `jacobian_fd` and `taylor_test` follow another way through the function than it goes itself."""
    x = kl.array([1.0, 1.5, 2.0], dtype=kl.float64, requires_grad=True)
    seen: list[float] = []

    def f(x: Any) -> Any:
        seen.append(float(take(kl.map(lambda v: v * v, x))))
        return x * x

    f(x)
    kl.autograd.jacobian_fd(f, inputs=[x])
    kl.autograd.taylor_test(f, inputs=[x])
    np.testing.assert_allclose(seen, seen[0], rtol=0.5)
    assert len(seen) > 2


@pytest.mark.parametrize("read", [float, lambda y: y.item(), lambda y: y.list()[0], lambda y: y.numpy()[0]])
def test_a_branch_on_such_a_number_is_that_of_the_function(read: Callable[[Any], Any]) -> None:
    x = kl.array([1.0, 1.5, 2.0], dtype=kl.float64, requires_grad=True)
    found = kl.autograd.jacobian_fd(lambda x: x * x if read(x.sum()) > 0 else x, inputs=[x])
    np.testing.assert_allclose(found[0, 0].numpy(), np.diag([2.0, 3.0, 4.0]), atol=1e-6)
