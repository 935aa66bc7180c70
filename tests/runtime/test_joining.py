"""Arrays joined along an axis: values, derivatives, and what does not go together."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl

random = np.random.default_rng(3)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 4)])
def test_joined_arrays_are_those_of_numpy(shape: tuple[int, ...]) -> None:
    one, other = random.standard_normal((2, *shape))
    for axis in range(-len(shape), len(shape)):
        found = kl.concatenate([kl.array(one), other, kl.array(one)[::-1]], axis)
        assert (found.numpy() == np.concatenate([one, other, one[::-1]], axis)).all()
    for axis in range(-len(shape) - 1, len(shape) + 1):
        assert (
            kl.stack((kl.array(one), kl.array(other)), axis).numpy() == np.stack([one, other], axis)
        ).all()


def test_vectors_and_picked_elements_are_joined() -> None:
    points = kl.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=kl.vec3)
    assert kl.concatenate([points, points[[1]]]).numpy()[2].tolist() == [4, 5, 6]
    assert kl.concatenate([kl.array([1, 2]), kl.array([3])]).list() == [1, 2, 3]
    assert not kl.stack([kl.ones(2), kl.ones(2)]).requires_grad


def test_tapes_and_transforms_differentiate_it() -> None:
    x, y = kl.array([1.0, 2.0], requires_grad=True), kl.array([3.0])
    with kl.Tape() as tape:
        loss = (kl.concatenate([x, y, 2.0 * x]) ** 2).sum()
    tape.backward(loss)
    assert x.grad.list() == [10, 20]
    slopes = kl.func.grad(lambda a, b: (kl.stack([a, b], 1) ** 2).sum(), argnums=(0, 1))(x, 3.0 * x)
    assert [slope.list() for slope in slopes] == [[2, 4], [6, 12]]
    rows = kl.func.vmap(lambda a, b: kl.concatenate([a, b]))(kl.ones((2, 2)), kl.zeros((2, 1)))
    assert rows.numpy().tolist() == [[1, 1, 0]] * 2
    assert kl.func.jacfwd(lambda a: kl.concatenate([a, a * a]))(x).numpy().tolist() == [
        [1, 0],
        [0, 1],
        [2, 0],
        [0, 4],
    ]


@pytest.mark.parametrize(
    ("join", "message"),
    [
        (lambda x: kl.concatenate(x), "takes a list of arrays, not an array"),
        (lambda x: kl.stack([]), "takes a list of arrays, not an empty one"),
        (lambda x: kl.stack([x, 1.0]), "stack joins arrays, not the float 1.0"),
        (lambda x: kl.concatenate([x, x.astype(int)]), "one type, not float32 and int32"),
        (
            lambda x: kl.stack([np.ones(3), x]),
            r"not float64 and float32(.|\n)*kl.array\(..., dtype=kl.float32",
        ),
        (
            lambda x: kl.concatenate([x, kl.ones((2, 2))]),
            r"does not join shapes \(3,\) and \(2, 2\) along axis 0",
        ),
        (lambda x: kl.stack([x, kl.ones(2)]), r"one shape, not \(3,\) and \(2,\)"),
        (lambda x: kl.concatenate([x, x], 1), "there is no axis 1 of 1"),
    ],
)
def test_what_does_not_go_together_is_refused(join: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(kl.KernelError, match=message):
        join(kl.ones(3))


def test_arrays_of_structs_are_joined_and_differentiated() -> None:
    module = kl.compile(
        "class Body:\n    m: float\n    v: vec3\n\n"
        "def energy(b: array[Body], e: array[float]):\n    i = tid()\n    e[i] = b[i].m * b[i].m + b[i].v[0]"
    )
    a, b = (kl.zeros(n, dtype=module["Body"], requires_grad=True) for n in (2, 3))
    a["m"].assign([1.0, 2.0])
    b["m"].assign([3.0, 4.0, 5.0])
    e = kl.zeros(5, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(module["energy"], 5, [kl.concatenate([a, b]), e])
        total = e.sum()
    tape.backward(total)
    assert e.list() == [1.0, 4.0, 9.0, 16.0, 25.0]
    assert (a.grad["m"].list(), b.grad["m"].list()) == ([2.0, 4.0], [6.0, 8.0, 10.0])
    assert kl.stack([a, a]).shape == (2, 2)
