"""Scratch arrays, without gradients, that launches change in place: adjoints pass them, or are told to end.

A launch that changes an array as it reads it takes the array's adjoint whether it requires gradients or not.
So does the next such launch, and what overwrites the array in between ends the adjoint of what was there.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl

TEXT = """
def gather(g: array[float64], b: array[float64], p: array[float64]):
    i = tid()
    b[i] = 0.8 * b[i] + sin(g[i])
    p[i] = p[i] - b[i] * b[i]

def mix(b: array[float64], s: array[float64], p: array[float64]):
    i = tid()
    s[i] = sin(s[i]) + 0.3 * b[i]
    b[i] = 0.5 * b[i] * s[i]
    p[i] += s[i] + b[i]

def square(b: array[float64]):
    i = tid()
    b[i] = 0.5 * b[i] * b[i] + b[i]

def put(c: array[float64], b: array[float64]):
    i = tid()
    b[i] = 3.0 * c[i]

def read_only(b: array[float64], p: array[float64]):
    i = tid()
    p[i] += b[i] * b[i]
"""

kernels: dict[str, Any] = kl.compile(TEXT)
SIZE = 3


def array(values: Any, requires_grad: bool = False) -> kl.array:
    return kl.array(values, dtype=kl.float64, requires_grad=requires_grad)


Step = Callable[[kl.array, list[kl.array], kl.array, kl.array], None]

STEPS: dict[str, Step] = {
    "gather": lambda g, s, p, c: kernels["gather"][SIZE](g, s[0], p),
    "gather the other": lambda g, s, p, c: kernels["gather"][SIZE](g, s[1], p),
    "mix": lambda g, s, p, c: kernels["mix"][SIZE](s[0], s[1], p),
    "square": lambda g, s, p, c: kernels["square"][SIZE](s[0]),
    "put a constant": lambda g, s, p, c: kernels["put"][SIZE](c, s[0]),
    "put a part": lambda g, s, p, c: kernels["put"][2](c, s[1]),
    "put what has gradients": lambda g, s, p, c: kernels["put"][SIZE](g, s[1]),
    "zero": lambda g, s, p, c: s[0].zero_(),
    "fill": lambda g, s, p, c: s[1].fill_(0.25),
    "copy": lambda g, s, p, c: kl.copy(s[0], c),
    "assign": lambda g, s, p, c: s[1].assign(np.full(SIZE, 0.5)),
}


def run(steps: list[str], at: Any) -> tuple[kl.array, kl.array, kl.Tape]:
    g, p, c = array(at, True), array(np.zeros(SIZE), True), array(np.full(SIZE, 0.2))
    scratch = [array(np.full(SIZE, 0.5)), array(np.full(SIZE, 0.1))]
    with kl.Tape() as tape:
        for step in steps:
            STEPS[step](g, scratch, p, c)
    return g, p, tape


def differences(steps: list[str], at: Any, h: float = 1e-6) -> Any:
    def total(move: float) -> Any:
        return run(steps, at + move)[1].numpy()

    return (total(h) - total(-h)) / (2.0 * h)  # every thread has its own element


@pytest.mark.parametrize("between", ["zero", "put a constant", "copy", "square"])
def test_what_overwrites_scratch_between_two_launches_ends_its_adjoint(between: str) -> None:
    steps, at = ["gather", between, "gather", between, "gather"], np.array([0.3, -0.7, 1.1])
    g, p, tape = run(steps, at)
    tape.backward(grads={p: np.ones(SIZE)})
    np.testing.assert_allclose(g.grad.numpy(), differences(steps, at), rtol=1e-7)
    assert kl.autograd.gradcheck_tape(tape, show_summary=False)


@pytest.mark.parametrize("seed", range(30))
def test_programs_that_change_scratch_in_place_have_their_whole_gradient(seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps = ["gather", *rng.choice([*STEPS], 9).tolist(), "mix"]
    at = rng.uniform(-1.0, 1.0, SIZE)
    g, p, tape = run(steps, at)
    tape.backward(grads={p: np.ones(SIZE)})
    np.testing.assert_allclose(g.grad.numpy(), differences(steps, at), rtol=1e-6, atol=1e-8)


def test_scratch_that_a_launch_only_reads_ends_the_gradient_and_is_told() -> None:
    g, p, b = array([1.0], True), array([0.0], True), array([0.0])
    with kl.Tape() as tape:
        kernels["gather"][1](g, b, p)
        kernels["read_only"][1](b, p)
    with pytest.warns(
        kl.KernelWarning, match="no gradient flows through `b`, read by the launch of `read_on"
    ):
        tape.backward(grads={p: np.ones(1)})


def test_scratch_that_was_cloned_without_gradients_passes_none_on() -> None:
    g, p, y = array([1.0], True), array([0.0], True), array([0.0], True)
    with kl.Tape() as tape:
        kernels["put"][1](g, y)
        b = kl.clone(y, requires_grad=False)
        kernels["gather"][1](g, b, p)
        kernels["gather"][1](g, b, p)
    tape.backward(grads={p: np.ones(1)})
    b1 = 0.8 * 3.0 + np.sin(1.0)
    b2 = 0.8 * b1 + np.sin(1.0)
    np.testing.assert_allclose(g.grad.numpy(), -(2 * b1 + 2 * b2 * 1.8) * np.cos(1.0), rtol=1e-12)


OVERWRITES: dict[str, tuple[bool, Callable[[kl.array], object]]] = {
    "a part is filled": (True, lambda b: b[:2].fill_(1.0)),
    "a part is assigned": (True, lambda b: b[1:].assign(np.ones(2))),
    "a part is copied to": (True, lambda b: kl.copy(b[::2], array([1.0, 1.0]))),
    "an element is set": (True, lambda b: b.__setitem__(0, 3.0)),
    "all is filled": (False, lambda b: b.fill_(1.0)),
    "all is filled in parts": (False, lambda b: (b[:2].fill_(1.0), b[1:].fill_(1.0))),
    "all is filled in steps": (False, lambda b: (b[::2].fill_(1.0), b[1::2].assign(np.ones(1)))),
}


@pytest.mark.parametrize("what", OVERWRITES)
def test_scratch_that_is_overwritten_in_part_still_carries_the_rest(what: str) -> None:
    g, p, b = array([1.0, 2.0, 3.0], True), array([0.0, 0.0, 0.0], True), array([0.0, 0.0, 0.0])
    carries, overwrite = OVERWRITES[what]
    with kl.Tape() as tape:
        kernels["put"][SIZE](g, b)
        overwrite(b)
        kernels["read_only"][SIZE](b, p)
        kernels["read_only"][SIZE](g, p)
    with contextlib.nullcontext() if not carries else pytest.warns(kl.KernelWarning, match="through `b`"):
        tape.backward(grads={p: np.ones(SIZE)})


def test_a_part_of_scratch_that_was_overwritten_carries_nothing() -> None:
    g, p, b = array([1.0, 2.0, 3.0], True), array([0.0, 0.0, 0.0], True), array([0.0, 0.0, 0.0])
    with kl.Tape() as tape:
        kernels["put"][SIZE](g, b)
        b[:2].fill_(1.0)
        kernels["read_only"][2](b[:2], p)
        kernels["read_only"][SIZE](g, p)
    tape.backward(grads={p: np.ones(SIZE)})
