"""What `map` and the operators of arrays take beside numbers: vectors, structs, picked elements."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl


@kl.struct
class Ball:
    mass: float
    speed: kl.vec3


@kl.func
def scaled(ball: Ball, by: float):  # type: ignore[no-untyped-def]
    made = Ball()
    made.mass = ball.mass * by
    made.speed = ball.speed * by
    return made


@kl.func
def moved(p: kl.vec3, by: kl.vec3):  # type: ignore[no-untyped-def]
    return p + by


def points() -> Any:
    return kl.array(np.arange(6.0).reshape(2, 3), dtype=kl.vec3, requires_grad=True)


def balls(**options: Any) -> Any:
    return kl.full(2, Ball(2.0, (1, 2, 3)), **options)


@pytest.mark.parametrize("backend", ["cpu", "interp"])
def test_a_value_is_the_same_for_all_elements(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELAB_BACKEND", backend)
    p, host = points(), points().numpy()
    shift, turn = kl.vec3(1.0, 2.0, 3.0), kl.mat33(np.diag([2.0, 3.0, 4.0]))
    assert np.allclose((p + shift).numpy(), host + shift) and np.allclose((shift - p).numpy(), shift - host)
    assert np.allclose((turn * p).numpy(), host * [2, 3, 4])
    assert kl.map(kl.dot, p, shift).list() == [8, 26]
    moving = kl.transform(kl.vec3(1, 0, 0), kl.quat_identity())
    assert np.allclose(kl.map(kl.transform_point, moving, p).numpy(), host + np.array([1, 0, 0]))


def test_a_parameter_that_states_a_vector_takes_its_components() -> None:
    p, host = points(), points().numpy()
    for by in ((1, 2, 3), [1.0, 2.0, 3.0], np.array([1.0, 2.0, 3.0])):
        assert np.allclose(kl.map(moved, p, by).numpy(), host + np.array([1, 2, 3]))
    assert np.allclose(kl.map(moved, p, np.ones((2, 3))).numpy(), host + 1)


@pytest.mark.parametrize("backend", ["cpu", "interp"])
def test_structs_are_mapped_to_structs_and_differentiated(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELAB_BACKEND", backend)
    given, by = balls(requires_grad=True), kl.array([3.0, 5.0], requires_grad=True)
    with kl.Tape() as tape:
        made = kl.map(scaled, given, by)
        energy = kl.map(lambda ball, other: ball.mass * ball.speed[1] * other.mass, made, Ball(mass=0.5))
    assert made["mass"].list() == [6, 10] and energy.list() == [18, 50]
    tape.backward(grads={energy: kl.ones(2)})
    assert by.grad.list() == [12, 20]
    assert given["mass"].grad.list() == [9, 25] and given["speed"].grad.numpy()[:, 1].tolist() == [9, 25]


def test_two_structs_of_one_name_are_told_apart() -> None:
    text = "class Ball:\n    charge: float\n\ndef charge(ball: Ball):\n    return ball.charge"
    other: Any = kl.compile(text)
    theirs = kl.full(2, other["Ball"](7.0))
    charge = other["charge"]
    assert kl.map(lambda a, b: a.mass + charge(b), balls(), theirs).list() == [9, 9]


@pytest.mark.parametrize("backend", ["cpu", "interp"])
def test_picked_elements_are_operands_and_gradients_reach_the_array_behind(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELAB_BACKEND", backend)
    x = kl.array([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    with kl.Tape() as tape:
        y = x[[0, 2]] * x[[1, 3]] + 1.0 - abs(-x[[3, 3]])
        y += x[[0, 0]]
        total = kl.zeros(1, requires_grad=True)
        kl.utils.array_sum(kl.map(lambda a, b: a * b, y, x[[1, 2]]), out=total)
    assert y.list() == [0, 10]
    tape.backward(total)
    # y = (x0 x1 + 1 - x3 + x0, x2 x3 + 1 - x3 + x0), total = y0 x1 + y1 x2
    assert x.grad.list() == [2 * (2 + 1) + 3, 0 + 2 * 1, 10 + 3 * 4, -2 + 3 * (3 - 1)]


def test_picked_elements_are_changed_in_place_and_take_results() -> None:
    x = kl.array([1.0, 2.0, 3.0, 4.0])
    x[[0, 2]] += 10.0
    picked = x[[1, 3]]
    picked *= x[[0, 0]]
    assert x.list() == [11, 22, 13, 44]
    made = kl.map(lambda a: -a, kl.ones(2), out=picked)
    assert made is picked and x.list() == [11, -1, 13, -1]
    assert kl.utils.array_sum(x[[0, 2]]) == 24 and kl.utils.array_inner(x[[0, 1]], x[[0, 1]]) == 122


def test_picked_elements_in_place_are_differentiated() -> None:
    x = kl.array([1.0, 2.0, 3.0], requires_grad=True)
    with kl.Tape() as tape:
        y = x * x
        y[[0, 2]] *= x[[1, 2]]
    assert y.list() == [2, 4, 27]
    tape.backward(grads={y: kl.ones(3)})
    assert x.grad.list() == [2 * 1 * 2, 1 + 2 * 2, 3 * 9]


def test_a_map_gives_its_kernel_to_be_launched_by_hand() -> None:
    kernel = kl.map(lambda a, b: a * b, kl.ones(2), 3.0, return_kernel=True)
    assert isinstance(kernel, kl.Kernel)
    x, out = kl.array([1.0, 2.0, 3.0]), kl.zeros(3)
    kl.launch(kernel, dim=3, inputs=[x, 2.0], outputs=[out])
    assert out.list() == [2, 4, 6]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda p: kl.map(lambda a, b: a, p, (1, 2)),
            "numbers, vectors and structs are mapped over, not a tuple",
        ),
        (lambda p: kl.map(lambda a, b: a, p, None), "are mapped over, not None"),
        (lambda p: kl.map(moved, p, (1, 2)), r"an element of vec3 cannot be a tuple of shape \(2,\)"),
        (
            lambda p: kl.map(kl.length, p, out=kl.zeros(2, dtype=int)),
            "gives float32, and out= is an array of int32",
        ),
        (lambda p: kl.map(kl.dot, kl.vec3(), kl.vec3()), "needs an array to go through"),
        (lambda p: kl.map(kl.sin)(p), "needs an array to go through"),
        (lambda p: p.x, r"an array has no x\n.*kl\.map\(lambda v: v\.x, x\)"),
        (lambda p: balls() + 1, r"no arithmetic of arrays of Ball\n.*x\['mass'\], or kl.map"),
        (lambda p: p * kl.vec3(1, 2, 3), r"cannot multiply vec3 by vec3(.|\n)*kl\.cw_mul\(a, b\)"),
        (lambda p: p**2, r"kl\.dot\(a, a\) for the sum of the squares"),
    ],
)
def test_what_does_not_go_together_is_refused(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(kl.KernelError, match=message):
        call(points())
