"""Numbers that the host takes out of arrays: the chain that they cut is reported."""

import copy
import json
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.host.traced import origins

kernels = kl.compile("""
def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def total(x: array[float], s: array[float]):
    s[0] += x[tid()]

def scaled(x: array[float], factor: float, y: array[float]):
    i = tid()
    y[i] = x[i] * factor

def mixed(x: array[float], weights: vec2, y: array[float]):
    i = tid()
    y[i] = weights[0] * x[i] * weights[1]

@struct
class Spring:
    stiffness: float

def pulled(x: array[float], spring: Spring, y: array[float]):
    i = tid()
    y[i] = x[i] * spring.stiffness
""")


def told_of(use: Callable[[Any, Any, Any], None]) -> str:
    """What `backward` says where a program uses x, the sum s of its squares, and y for a loss of x and y."""
    x = kl.array([1.0, 2.0, 3.0], requires_grad=True)
    squares, y = (kl.zeros(3, requires_grad=True) for _ in range(2))
    s, loss = (kl.zeros(1, requires_grad=True) for _ in range(2))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with kl.Tape() as tape:
            kernels["square"][3](x, squares)
            kernels["total"][3](squares, s)
            use(x, s, y)
            kernels["total"][3](y, loss)
            kernels["total"][3](x, loss)
        tape.backward(loss)
    return "\n".join(str(warning.message) for warning in seen)


@pytest.mark.parametrize(
    "factor",
    [
        lambda s: 1.0 / s.item(),
        lambda s: s.item() * 0.1,
        lambda s: -(s.item() ** 0.5),
        lambda s: min(7.0, 2 + s.item() / 100),
        lambda s: abs(3.0 - s.item()) % 5.0,
        lambda s: s[0:1].item() // 2.5,
        lambda s: np.float64(2.0) if s.item() < 0.0 else 2.0 - s.item(),
        lambda s: copy.copy(s.item()),
        lambda s: copy.deepcopy({"scale": [s.numpy()[0]]})["scale"][0],
    ],
)
def test_a_number_that_was_computed_from_one_of_the_tape_is_reported(factor: Callable[[Any], float]) -> None:
    text = told_of(lambda x, s, y: kernels["scaled"][3](x, factor(s), y))
    assert "no gradient flows from the launch of `scaled` back to" in text
    assert "the host took a number there and passed it on" in text


@pytest.mark.parametrize(
    "factor",
    [
        lambda s: 1.0 / kl.clone(s, requires_grad=False).item(),
        lambda s: 0.25 if s.item() > 3.0 else 0.5,
        lambda s: float(round(10.0 * s.item())),
        lambda s: len([s.item()]) * 0.5,
    ],
)
def test_a_number_that_was_only_chosen_by_one_or_comes_from_a_detached_clone_is_silent(
    factor: Callable[[Any], float],
) -> None:
    assert told_of(lambda x, s, y: kernels["scaled"][3](x, factor(s), y)) == ""


@pytest.mark.parametrize(
    "weights",
    [
        lambda s: (1.0, s.item() * 0.1),
        lambda s: [s.item(), 1.0],
        lambda s: kl.vec2(s.item(), 1.0),
        lambda s: copy.copy(kl.vec2(s.item(), 1.0)),
        lambda s: copy.deepcopy([kl.vec2(s.item(), 1.0)])[0],
    ],
)
def test_a_number_of_the_tape_in_a_vector_is_reported(weights: Callable[[Any], Any]) -> None:
    text = told_of(lambda x, s, y: kernels["mixed"][3](x, weights(s), y))
    assert "no gradient flows from the launch of `mixed` back to" in text


def test_vectors_of_other_numbers_are_silent() -> None:
    def use(x: Any, s: Any, y: Any) -> None:
        assert s.item() > 0.0
        kernels["mixed"][3](x, kl.vec2(0.5, 2.5), y)
        kernels["mixed"][3](x, (0.5, 3.0), y)

    assert told_of(use) == ""


@pytest.mark.parametrize("copied", [lambda spring: spring, copy.copy, copy.deepcopy])
def test_a_number_computed_for_a_field_of_a_struct_is_reported(copied: Callable[[Any], Any]) -> None:
    def use(x: Any, s: Any, y: Any) -> None:
        kernels["pulled"][3](x, copied(kernels["Spring"](s.item() * 0.1)), y)

    assert "no gradient flows from the launch of `pulled` back to" in told_of(use)
    assert told_of(lambda x, s, y: kernels["pulled"][3](x, kernels["Spring"](0.1), y)) == ""


def test_numbers_that_no_launch_gets_are_silent() -> None:
    history: list[float] = []

    def use(x: Any, s: Any, y: Any) -> None:
        history.append(0.5 * s.item() + 1.0)
        kernels["scaled"][3](x, 0.5, y)

    assert told_of(use) == ""
    assert told_of(lambda x, s, y: kernels["scaled"][3](x, history[0], y)) == ""


def taken() -> Any:
    x = kl.array([2.0], requires_grad=True)
    with kl.Tape():
        return x.item()


def test_such_a_number_is_a_float_in_every_other_respect() -> None:
    number = taken()
    assert isinstance(number, float)
    assert (number, repr(number), f"{number:.3f}", hash(number)) == (2.0, "2.0", "2.000", hash(2.0))
    assert json.dumps([number, number * 2]) == "[2.0, 4.0]"
    assert np.array([number, 1.0]).dtype == np.float64
    assert type(np.ones(2) > number) is type(np.asarray(number * np.ones(2))) is np.ndarray
    assert (1 - number, number // 1, divmod(number, 2), round(number), pow(number, 2)) == (
        -1,
        2,
        (1, 0),
        2,
        4,
    )
    assert (-number) ** 0.5 == (-2.0) ** 0.5
    with pytest.raises(ZeroDivisionError):
        number / 0
    with pytest.raises(TypeError):
        number + "a"


def test_copies_of_it_keep_its_origin_and_pickles_are_plain_floats() -> None:
    number = taken()
    assert copy.deepcopy(number) is number
    assert copy.copy(number) is number
    for made in (pickle.loads(pickle.dumps(number)), float(number)):
        assert type(made) is float
        assert made == 2.0


def test_a_number_that_is_taken_while_no_tape_records_is_a_plain_float() -> None:
    assert type(kl.array([2.0], requires_grad=True).item()) is float
    with kl.Tape():
        assert type(kl.array([2.0]).item()) is float
        assert type(kl.array([2], dtype=int).item()) is int


def test_it_keeps_no_array_alive_once_the_tape_is_reset() -> None:
    x = kl.array([2.0], requires_grad=True)
    tape = kl.Tape()
    with tape:
        number = 3.0 * x.item()
        assert origins(number)
    tape.reset()
    assert not origins(number)


@pytest.mark.parametrize(
    "number", [np.sum, np.max, lambda y: np.dot(y, y), np.linalg.norm, lambda y: np.sin(y)[0]]
)
@pytest.mark.parametrize(
    "transform",
    [
        lambda f, x: kl.func.jvp(f, [x], [x]),
        lambda f, x: kl.func.vjp(f, x),
        lambda f, x: kl.func.jacfwd(kl.func.jacrev(f))(x),
        lambda f, x: kl.autograd.jacobian(f, inputs=[x]),
    ],
)
def test_what_a_function_of_numpy_makes_of_an_array_is_reported_in_a_transform(
    transform: Callable[[Any, Any], Any], number: Callable[[Any], Any]
) -> None:
    with pytest.warns(kl.KernelWarning, match="the host took a number there and passed it on"):
        transform(lambda x: x * number(x * x), kl.array([1.0, 2.0], requires_grad=True))


@pytest.mark.parametrize(
    "take",
    [
        lambda springs: springs.numpy()["stiffness"][0],
        lambda springs: springs.numpy()["stiffness"].sum(),
        lambda springs: springs[::-1].numpy()["stiffness"].tolist()[0],
        lambda springs: springs["stiffness"].numpy()[0],
        lambda springs: springs.list()[0].stiffness,
    ],
)
def test_a_number_of_an_array_of_structs_is_reported(take: Callable[[Any], Any]) -> None:
    x, y = kl.ones(2, requires_grad=True), kl.zeros(2, requires_grad=True)
    springs = kl.zeros(2, dtype=kernels["Spring"], requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernels["square"], 2, [x], [springs["stiffness"]])
        kl.launch(kernels["scaled"], 2, [x, take(springs)], [y])
    with pytest.warns(kl.KernelWarning, match="the host took a number there and passed it on"):
        tape.backward(grads={y: kl.ones(2)})
