"""An array that the host has made of values it took is told, whatever reads it first: a launch or another."""

import pickle
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import kernelab as kl

Read = Callable[[Any], Any]
TOLD = "the host made its values after it had taken|the values came by the host|the host took a number there"


def filled(values: Any) -> Any:
    made = kl.zeros(3)
    made.numpy()[:] = values
    return made


def of_plain_numbers(values: Any) -> Any:
    return kl.array([float(v) for v in values], dtype=float)


def with_origins(values: Any) -> Any:
    return kl.array(values)


MADE: list[Read] = [filled, of_plain_numbers, with_origins]
PASSED_ON: dict[str, Read] = {
    "as it is": lambda made: made,
    "a clone": kl.clone,
    "a slice": lambda made: made[0:3],
    "another shape": lambda made: made.reshape((3, 1)),
    "a copy": lambda made: _copied(made),
    "an array of it": kl.array,
    "an array of several": lambda made: kl.array([made, made])[1],
    "its memory": lambda made: kl.array(made, copy=False),
    "its values": lambda made: kl.array(made.list(), dtype=float),
}
TWICE = kl.func.custom_vjp(lambda a: a * 2.0, lambda a, bar: bar * 2.0)
READERS: dict[str, Read] = {
    "a function of custom_vjp": TWICE,
    "vmap": lambda made: kl.func.vmap(lambda row: 2.0 * row)(made).reshape((3,)),
    "an inner gradient": lambda made: kl.func.grad(lambda a: (a * a).sum())(made),
    "an inner tangent": lambda made: kl.func.jvp(lambda a: a * a, (made,), (kl.ones(3),))[1],
    "a checkpoint": lambda made: kl.checkpoint(lambda a: 2.0 * a, made),
}
ONES = kl.ones(3)


def _copied(made: Any) -> Any:
    copied = kl.zeros(3)
    kl.copy(copied, made)
    return copied


def leaf() -> Any:
    return kl.array([1.0, 2.0, 3.0], requires_grad=True)


RETURNED: dict[str, Callable[[Read], Any]] = {
    "vjp": lambda f: kl.func.vjp(f, leaf())[1](kl.ones_like(f(leaf()))),
    "jvp": lambda f: kl.func.jvp(f, (leaf(),), (ONES,)),
    "jacfwd": lambda f: kl.func.jacfwd(f)(leaf()),
    "jacrev": lambda f: kl.func.jacrev(f)(leaf()),
    "jacobian": lambda f: kl.autograd.jacobian(f, inputs=[leaf()]),
    "one of several": lambda f: kl.func.jacrev(lambda x: (f(x), x * x))(leaf()),
}


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("passed_on", PASSED_ON.values(), ids=PASSED_ON)
@pytest.mark.parametrize("derived", RETURNED.values(), ids=RETURNED)
def test_what_a_function_returns_is_told(derived: Callable[[Read], Any], passed_on: Read, made: Read) -> None:
    with pytest.warns(kl.KernelWarning, match=TOLD):
        derived(lambda x: passed_on(made(np.sin((x * x).numpy()))))


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_what_something_in_a_transform_reads_is_told(reader: Read, made: Read) -> None:
    with pytest.warns(kl.KernelWarning, match=TOLD):
        kl.func.grad(lambda x: (reader(made(np.sin((x * x).numpy()))) * x).sum())(leaf())


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("passed_on", PASSED_ON.values(), ids=PASSED_ON)
def test_what_a_launch_on_a_tape_reads_is_told(passed_on: Read, made: Read) -> None:
    x = leaf()
    with kl.Tape() as tape:
        loss = (passed_on(made(np.sin((x * x).numpy()))).reshape((3,)) * x).sum()
    with pytest.warns(kl.KernelWarning, match=TOLD):
        tape.backward(loss)


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("name", ["a function of custom_vjp", "a checkpoint"])
def test_what_something_on_a_tape_reads_is_told(name: str, made: Read) -> None:
    x = leaf()
    with kl.Tape() as tape:
        loss = (READERS[name](made(np.sin((x * x).numpy()))) * x).sum()
    with pytest.warns(kl.KernelWarning, match=TOLD):
        tape.backward(loss)


@pytest.mark.parametrize("made", MADE)
def test_what_a_checkpoint_makes_and_returns_is_told_once(made: Read) -> None:
    x = leaf()
    with kl.Tape() as tape:
        loss = (kl.checkpoint(lambda a: made(np.sin((a * a).numpy())), x) * x).sum()
    with pytest.warns(kl.KernelWarning, match=TOLD) as told:
        tape.backward(loss)
    assert len(told) == 1


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("is_inside", [False, True], ids=["tape", "checkpoint"])
def test_what_a_function_of_custom_vjp_captures_is_told(is_inside: bool, made: Read) -> None:
    x = leaf()
    with kl.Tape() as tape:
        held = made(np.sin((x * x).numpy()))
        scaled = kl.func.custom_vjp(lambda a: a * held, lambda a, bar: bar * held)
        loss = (kl.checkpoint(scaled, x) if is_inside else scaled(x)).sum()
    with pytest.warns(kl.KernelWarning, match=TOLD):
        tape.backward(loss)


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("used", [lambda a, n: a * n, lambda a, n: a * n[0:3]], ids=["whole", "slice"])
def test_what_such_a_function_captures_in_a_transform_is_told(used: Callable[..., Any], made: Read) -> None:
    def loss(x: Any) -> Any:
        held = made(np.sin((x * x).numpy()))
        scaled = kl.func.custom_vjp(lambda a: used(a, held), lambda a, bar: used(bar, held))
        return scaled(x).sum()

    with pytest.warns(kl.KernelWarning, match=TOLD):
        kl.func.grad(loss)(leaf())


TAKEN: dict[str, Read] = {
    "plain": lambda left: kl.array(np.asarray(left)),
    "pickled": lambda left: pickle.loads(pickle.dumps(left)),
    "scaled": lambda left: left.numpy() * 1.0 * kl.ones(3),
    "an array of it": kl.array,
}


@pytest.mark.parametrize("taken", TAKEN.values(), ids=TAKEN)
@pytest.mark.parametrize("on_tape", [True, False], ids=["tape", "grad"])
def test_what_the_host_takes_of_what_such_a_function_leaves_is_told(taken: Read, on_tape: bool) -> None:
    def loss(x: Any) -> Any:
        left = kl.zeros(3)
        kl.func.custom_vjp(lambda a: left.assign(a * a) * 1.0, lambda a, bar: 2.0 * a * bar)(x * x)
        return (taken(left) * x).sum()

    x, tape = leaf(), kl.Tape()
    with tape if on_tape else nullcontext():
        total = loss(x) if on_tape else x
    with pytest.warns(kl.KernelWarning, match=f"{TOLD}|a function of custom_vjp computed it here"):
        tape.backward(total) if on_tape else kl.func.grad(loss)(x)


@pytest.mark.parametrize("made", MADE)
def test_what_a_derivative_returns_is_told_in_second_derivatives(made: Read) -> None:
    cube = kl.func.custom_vjp(
        lambda a: a * a * a, lambda a, bar: made(3.0 * a.numpy() ** 2 * bar.numpy()), check=False
    )
    with pytest.warns(kl.KernelWarning, match=TOLD):
        kl.func.hvp(lambda x: (cube(x) * x).sum(), (leaf(),), (ONES,))


def test_auxiliary_results_and_arrays_from_before_are_silent() -> None:
    before = filled(np.ones(3))
    kl.func.grad(lambda x: ((x * x).sum(), filled(x.numpy())), has_aux=True)(leaf())
    kl.func.jacrev(lambda x: (x * x, before))(leaf())
    x = leaf()
    with kl.Tape() as tape:
        y = x * x
        assert y.numpy().max() > 0.0
        loss = (kl.checkpoint(lambda a: a * before, y) + TWICE(before)).sum()
    tape.backward(loss)
