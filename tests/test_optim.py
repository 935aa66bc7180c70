"""The optimisers: one step against its formula, convergence, and what they refuse."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.optim import SGD, Adam


def parameter(*values: float, dtype: Any = kl.float64) -> kl.array:
    return kl.array(np.array(values), dtype=dtype, requires_grad=True)  # type: ignore[no-any-return]


def bowl(x: kl.array) -> None:
    """Leave in `x.grad` the gradient of the squared distance to 1."""
    assert x.grad is not None
    x.grad.zero_()
    with kl.Tape() as tape:
        away = x - 1.0
        square = away * away
    tape.backward(grads={square: kl.ones_like(square)})


@pytest.mark.parametrize("dtype", [kl.float16, kl.bfloat16, kl.float32, kl.float64])
@pytest.mark.parametrize(
    "optimizer", [SGD(lr=0.05), SGD(lr=0.05, momentum=0.9, nesterov=True), Adam(lr=0.1)], ids=type
)
def test_every_optimiser_finds_the_bottom_of_a_bowl(optimizer: Any, dtype: Any) -> None:
    x = parameter(5.0, -3.0, dtype=dtype)
    optimizer.set_params([x])
    for _ in range(200):
        bowl(x)
        optimizer.step([x.grad])
    # Between 1 and 2, numbers of bfloat16 are 2**-7 apart.
    assert np.allclose(x.numpy().astype(float), 1.0, atol=0.04 if dtype == kl.bfloat16 else 1e-2)


def test_momentum_decay_and_dampening_follow_their_formula() -> None:
    x, grads = parameter(5.0, -3.0), np.array([[1.0, 2.0], [0.5, -1.0], [2.0, 0.0]])
    optimizer = SGD([x], lr=0.1, momentum=0.9, dampening=0.5, weight_decay=0.01)
    p, kept = x.numpy().copy(), None
    for g in grads:
        optimizer.step([kl.array(g)])
        d = g + 0.01 * p
        kept = d if kept is None else 0.9 * kept + 0.5 * d
        p = p - 0.1 * kept
    assert np.allclose(x.numpy(), p)


def test_a_step_without_gradients_takes_those_of_the_parameters() -> None:
    given, own = parameter(5.0, -3.0), parameter(5.0, -3.0)
    bowl(given)
    bowl(own)
    SGD([given], lr=0.05).step([given.grad])
    SGD([own], lr=0.05).step()
    assert own.list() == given.list() != [5.0, -3.0]
    with pytest.raises(kl.KernelValueError, match=r"no backward pass .*\n  hint: create them"):
        SGD([kl.ones(2)]).step()


@pytest.mark.parametrize("kind", [SGD, Adam])
def test_a_step_before_any_backward_pass_is_refused(kind: Any) -> None:
    x = parameter(5.0, -3.0)
    optimizer = kind([x, parameter(1.0)])
    optimizer.zero_grad()
    (x * x).sum()  # on no tape
    with pytest.raises(kl.KernelValueError, match="no backward pass has given a parameter its gradient"):
        optimizer.step()
    bowl(x)
    optimizer.step()  # of one parameter the gradient is zero
    assert x.list() != [5.0, -3.0]


def test_adam_follows_its_formula_and_forgets_when_it_is_told_to() -> None:
    x, grads = parameter(5.0, -3.0), np.array([[1.0, 2.0], [0.5, -1.0], [2.0, 0.0]])
    optimizer = Adam([x], lr=0.1, betas=(0.8, 0.9), eps=1e-4)
    for _ in range(2):
        p, m, v = x.numpy().copy(), np.zeros(2), np.zeros(2)
        for t, g in enumerate(grads, 1):
            optimizer.step([kl.array(g)])
            m, v = 0.8 * m + 0.2 * g, 0.9 * v + 0.1 * g * g
            p = p - 0.1 * (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.9**t)) + 1e-4)
        assert np.allclose(x.numpy(), p)
        optimizer.reset_internal_state()


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.99, 0.9999)])
def test_in_float32_the_first_step_of_adam_is_as_long_as_the_rate(betas: tuple[float, float]) -> None:
    x, slope = parameter(0.0, dtype=kl.float32), kl.array([3.0], dtype=kl.float32)
    Adam([x], lr=0.5, betas=betas).step([slope])
    np.testing.assert_allclose(x.numpy(), [-0.5], rtol=4e-7)


def test_vectors_are_optimised_by_component_and_none_leaves_a_parameter_alone() -> None:
    v, x = kl.array([[5.0, -3.0, 1.0]], dtype=kl.vec3, requires_grad=True), parameter(1.0)
    Adam([v, x], lr=0.5).step([kl.array([[1.0, -2.0, 3.0]], dtype=kl.vec3), None])
    assert np.allclose(v.numpy(), [[4.5, -2.5, 0.5]])
    assert x.list() == [1]


PARTICLE = kl.compile("class Particle:\n    mass: float")["Particle"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: Adam().step([x]), "no parameters"),
        (lambda x: Adam([x]).step([]), "0 gradients for 1 parameters"),
        (
            lambda x: SGD([x]).step([kl.zeros(1)]),
            "gradient 0 is float32",
        ),
        (lambda x: SGD([kl.zeros(2, dtype=int)]), "parameter 0 is an array of int32"),
        (
            lambda x: SGD([kl.from_numpy(np.broadcast_to(np.ones(1), 3))]),
            "elements of parameter 0 share memory",
        ),
        (lambda x: SGD([x[:1], x[::2]]), "parameters 0 and 1 share memory"),
        (lambda x: SGD([kl.zeros(2, dtype=PARTICLE)]), "parameter 0 is an array of Particle"),
    ],
)
def test_what_cannot_be_optimised_is_refused(call: Any, message: str) -> None:
    with pytest.raises(kl.KernelError, match=message):
        call(kl.zeros(2, dtype=kl.float64, requires_grad=True))


PARTS: dict[str, Any] = {
    "a row": lambda w: w[1],
    "a column": lambda w: w[:, 1],
    "a block": lambda w: w[1:, 1:3],
    "every other row": lambda w: w[::2],
    "the transpose": lambda w: w.T,
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("optimizer", [lambda p: SGD(p, lr=0.1, momentum=0.9), lambda p: Adam(p, lr=0.1)])
def test_a_part_of_an_array_is_optimised_as_a_copy_of_it_is(part: str, optimizer: Any) -> None:
    values = np.arange(12.0).reshape(3, 4) / 7.0
    whole, alone = parameter(*values), parameter(*PARTS[part](values))
    view = PARTS[part](whole)
    of_part, of_copy = optimizer([view]), optimizer([alone])
    for _ in range(3):
        for one, opt in ((view, of_part), (alone, of_copy)):
            opt.minimize(lambda p: (p * p * p).sum(), steps=2)
            opt.step([one])
    assert np.array_equal(view.numpy(), alone.numpy())
    PARTS[part](values)[...] = alone.numpy()
    assert np.array_equal(whole.numpy(), values)


def test_two_columns_are_two_parameters() -> None:
    whole = parameter(*np.ones((3, 2)))
    SGD([whole[:, 0], whole[:, 1]], lr=0.5).step([kl.array(np.ones(3)), kl.array(np.zeros(3))])
    assert whole.tolist() == [[0.5, 1.0]] * 3


# ------------------------------------------------------------------------------------------ minimize


@pytest.mark.parametrize("optimizer", [kl.optim.SGD, kl.optim.Adam])
def test_minimize_takes_a_step_by_the_gradient_of_a_function_alone(optimizer: Any) -> None:
    start = np.array([1.0, -2.0, 3.0])
    x, y = (kl.array(start, dtype=float, requires_grad=True) for _ in range(2))
    opt, by_hand = optimizer([x], lr=0.1), optimizer([y], lr=0.1)
    x.grad.fill_(100.0)  # of an earlier pass, which does not count
    for _ in range(3):
        loss = opt.minimize(lambda v: (v * v * v).sum())
        with kl.Tape() as tape:
            other = (y * y * y).sum()
        tape.backward(other)
        by_hand.step()
        tape.zero()
        assert loss.list() == other.list()
        assert x.list() == y.list()
    assert x.grad.list() == [0.0, 0.0, 0.0]


def test_a_loop_as_in_other_libraries_sets_the_gradients_to_zero() -> None:
    x, y = (kl.array([1.0, -2.0], dtype=float, requires_grad=True) for _ in range(2))
    opt, by_hand = kl.optim.SGD([x], lr=0.1), kl.optim.SGD([y], lr=0.1)
    for _ in range(3):
        opt.zero_grad()
        with kl.Tape() as tape:
            loss = (x * x).sum()
        tape.backward(loss)
        opt.step()
        by_hand.minimize(lambda y: (y * y).sum())
        assert x.list() == y.list()
    opt.zero_grad()
    assert x.grad.list() == [0.0, 0.0]
    kl.optim.SGD([kl.ones(2)]).zero_grad()  # nothing to set


def test_minimize_takes_many_steps_and_functions_of_nothing() -> None:
    x = kl.array([4.0], dtype=float, requires_grad=True)
    loss = kl.optim.SGD([x], lr=0.25).minimize(lambda: x * x, steps=20)
    assert loss.shape == (1,)
    assert abs(x.item()) < 1e-5


@pytest.mark.parametrize("given", [(3.0,), (lambda x: x, 0), (lambda x: x, 1.5)])
def test_minimize_refuses_what_is_no_function_or_no_number_of_steps(given: tuple[Any, ...]) -> None:
    with pytest.raises(kl.KernelTypeError, match="takes a function, and 1 step or more, not"):
        kl.optim.SGD([kl.zeros(1, requires_grad=True)]).minimize(*given)


def test_parameters_that_share_memory_are_refused() -> None:
    x = parameter(1.0, 2.0, 3.0)
    for shared in ([x, x], [x[:2], x[1:]]):
        with pytest.raises(kl.KernelValueError, match="parameters 0 and 1 share memory"):
            SGD(shared)
    SGD([x[:1], x[1:]])


@pytest.mark.parametrize(
    ("kind", "name", "value", "message"),
    [
        (kl.optim.Adam, "betas", (0.8, 0.9), r"Adam has no betas\n  hint: set beta1 and beta2"),
        (kl.optim.Adam, "learning_rate", 0.1, r"Adam has no learning_rate\n  hint: write lr"),
        (kl.optim.Adam, "weight_decay", 0.1, "Adam has no weight_decay"),
        (kl.optim.Adam, "beta1", 1.0, "beta1 is a number from 0 up to, not including, 1"),
        (kl.optim.SGD, "lr", float("nan"), "lr is a number of 0 or more, not the float nan"),
    ],
)
def test_a_rate_that_is_set_is_checked(kind: Any, name: str, value: Any, message: str) -> None:
    optimizer = kind([kl.ones(2)])
    with pytest.raises(kl.KernelError, match=message):
        setattr(optimizer, name, value)


def test_a_subclass_has_rates_of_its_own() -> None:
    class Decaying(kl.optim.Adam):
        def __init__(self, params: Any) -> None:
            super().__init__(params)
            self.weight_decay = 0.1

    assert Decaying([kl.ones(2)]).weight_decay == 0.1


def test_parameters_are_set_as_a_whole() -> None:
    optimizer = kl.optim.SGD([kl.ones(2)])
    optimizer.params.append(kl.ones(2))
    with pytest.raises(kl.errors.KernelValueError, match=r"the parameters have changed\n.*set_params"):
        optimizer.step([kl.ones(2), kl.ones(2)])


def test_a_loss_that_comes_from_no_parameter_is_an_error() -> None:
    x, other = kl.array([1.0, 2.0], requires_grad=True), kl.array([3.0], requires_grad=True)
    optimizer = kl.optim.SGD([x], lr=0.1)
    with pytest.raises(kl.KernelValueError, match="<lambda> computes the loss from no parameter"):
        optimizer.minimize(lambda given: other * other)
    assert x.list() == [1.0, 2.0]
    optimizer.minimize(lambda: kl.checkpoint(lambda: (x[1:] * other).sum()))
    np.testing.assert_allclose(x.numpy(), [1.0, 1.7], rtol=1e-6)


def test_a_struct_is_no_parameter_and_its_fields_are() -> None:
    ball: Any = kl.compile("class Ball:\n    radius: float")["Ball"]
    with pytest.raises(
        kl.KernelTypeError, match=r"changes arrays of floats\n  hint: give its fields .*\[s.radius\]"
    ):
        Adam([ball(radius=1.0)])
    b = ball(radius=kl.array([1.0], requires_grad=True))
    Adam([b.radius], lr=0.1).step([kl.ones(1)])
    np.testing.assert_allclose(b.radius.numpy(), [0.9], rtol=1e-4)
