"""Floats that are written through integers over their bytes: derivatives do not see that, and say so."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl


@kl.struct
class Bits:
    whole: kl.int64


kernels: dict[str, Any] = kl.compile(
    """
def clear_structs(x: array[Bits]):
    x[tid()].whole = int64(0)

def clear(x: array[int64]):
    x[tid()] = int64(0)

def without_sign(x: array[int64]):
    i = tid()
    x[i] = x[i] & int64(9223372036854775807)

def clear_bytes(x: array2d[uint8]):
    i, j = tid()
    x[i, j] = uint8(0)
""",
    {"Bits": Bits},
)


def in_structs(y: kl.array) -> Any:
    return y.numpy().view(np.dtype([("whole", np.int64)]))


ONES = np.ones(3).view(np.int64)
WAYS: dict[str, Callable[[kl.array], Any]] = {
    "a launch": lambda y: kernels["clear"][3](y.view(kl.int64)),
    "a launch on a part": lambda y: kernels["clear"][1](y.view(kl.int64)[1:2]),
    "a launch that reads them": lambda y: kernels["without_sign"][3](y.view(kl.int64)),
    "fill_": lambda y: y.view(kl.uint64).fill_(0),
    "zero_": lambda y: y.view(kl.int64).zero_(),
    "assign": lambda y: y.view(kl.int64).assign(ONES),
    "a slice": lambda y: y.view(kl.int64).__setitem__(slice(1, 3), 0),
    "an element": lambda y: y.view(kl.int64).__setitem__(1, 0),
    "a copy": lambda y: kl.copy(y.view(kl.int64), kl.array(ONES)),
    "a copy of what is followed": lambda y: kl.copy(y.view(kl.int64), kl.clone(y).view(kl.int64)),
    "a copy of itself": lambda y: y.view(kl.int64)[0:1].assign(y.view(kl.int64)[1:2]),
    "an operator": lambda y: y.view(kl.int64).__imul__(0),
    "from_numpy": lambda y: kernels["clear"][3](kl.from_numpy(y.numpy().view(np.int64))),
    "an array of NumPy's": lambda y: kernels["clear"][3](y.numpy().view(np.int64)),
    "bytes": lambda y: kernels["clear_bytes"][3, 8](kl.from_numpy(y.numpy().view(np.uint8).reshape(3, 8))),
    "structs of NumPy's": lambda y: kernels["clear_structs"][3](
        kl.array(in_structs(y), dtype=Bits, copy=False)
    ),
    "an address": lambda y: kernels["clear"][3](kl.from_ptr(y.ptr, 3, dtype=kl.int64)),
}
DERIVATIVES: dict[str, Callable[[Any, kl.array], Any]] = {
    "grad": lambda f, x: kl.func.grad(f)(x),
    "jvp": lambda f, x: kl.func.jvp(f, (x,), (kl.ones_like(x),)),
    "grad in lanes": lambda f, x: kl.func.vmap(kl.func.grad(f))(kl.array(np.stack([x.numpy()] * 2))),
    "hessian": lambda f, x: kl.func.hessian(f)(x),
    "checkpoint": lambda f, x: kl.func.grad(lambda x: kl.checkpoint(f, x))(x),
}


def values() -> kl.array:
    return kl.array([-3.0, 2.0, 4.0], dtype=kl.float64)


def refused() -> Any:
    return pytest.raises(kl.GradientError, match=r"the bytes of `y` are written as u?int(64|8) here")


@pytest.mark.parametrize("way", WAYS)
def test_a_tape_lets_no_adjoint_pass(way: str) -> None:
    x = values()
    x.requires_grad = True
    with kl.Tape() as tape:
        y = x * x
        WAYS[way](y)
        loss = (y * x).sum()
    with pytest.raises(kl.TapeError, match="changed before this line, and the tape did not see how"):
        tape.backward(loss)


@pytest.mark.parametrize("way", WAYS)
def test_it_keeps_what_was_read_before(way: str) -> None:
    x = values()
    x.requires_grad = True
    with kl.Tape() as tape:
        y = x * x
        loss = (y * y).sum()
        WAYS[way](y)
    tape.backward(loss)
    assert x.grad.list() == [-108.0, 32.0, 256.0]


@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("way", ["a launch", "fill_", "a copy", "a slice", "an element"])
def test_transforms_refuse_it(way: str, derivative: str) -> None:
    def f(x: kl.array) -> Any:
        y = x * x
        WAYS[way](y)
        return (y * x).sum()

    with refused():
        DERIVATIVES[derivative](f, values())


@kl.struct
class Body:
    mass: kl.float64
    hits: kl.int64


def test_fields_of_structs_beside_floats_may_be_written() -> None:
    bodies = kl.zeros(3, dtype=Body, requires_grad=True)
    x = values()
    x.requires_grad = True
    with kl.Tape() as tape:
        bodies["mass"].assign(x)
        kernels["clear"][3](bodies["hits"])
        bodies["hits"].fill_(2)
        kernels["clear"][3](bodies.numpy()["hits"])
        y = bodies["mass"] * bodies["mass"]
    tape.backward(grads={y: kl.ones_like(y)})
    assert x.grad.list() == [-6.0, 4.0, 8.0]


def test_bytes_may_be_written_where_no_derivative_is_taken() -> None:
    x = values()
    x.requires_grad = True
    bits = x.view(kl.int64)
    bits[0] = 0
    with kl.Tape() as tape:
        free = kl.clone(x, requires_grad=False)
        kernels["without_sign"][3](free.view(kl.int64))
        y = x * free
    tape.backward(grads={y: kl.ones_like(y)})
    assert x.grad.list() == [0.0, 2.0, 4.0]


def cleared(x: kl.array) -> kl.array:
    y = x * x
    kernels["clear"][3](y.view(kl.int64))
    return (y * x).sum()


def test_checks_and_forms_in_float64_refuse_it_too() -> None:
    x = values()
    x.requires_grad = True
    for refuses in (
        lambda: kl.autograd.gradcheck(cleared, inputs=[x]),
        lambda: kl.autograd.taylor_test(cleared, inputs=[x]),
        lambda: kl.autograd.jacobian_fd(cleared, inputs=[x]),
    ):
        with refused():
            refuses()


def test_forms_in_float64_have_no_bits_of_float32() -> None:
    def hashed(x: kl.array) -> kl.array:
        return (x * (x.view(kl.int32) % 7 + 0.0 * x)).sum()

    with pytest.raises(kl.GradientError, match="is computed in float64: its values cannot be read here"):
        kl.func.as_numpy(hashed)(np.array([1.0, 2.0], np.float32))
