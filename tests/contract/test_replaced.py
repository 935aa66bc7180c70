"""Values of the host that are replaced as a whole before they are used: no chain ends there."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl

kernels = kl.compile("""
def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def positive(x: array[float], y: array[float]):
    i = tid()
    if x[i] > 0.0:
        y[i] = x[i] * x[i]

def early(x: array[float], y: array[float]):
    i = tid()
    if x[i] < 0.0:
        return
    y[i] = x[i] * x[i]

def crossed(x: array[float], y: array[float]):
    i = tid()
    y[0 * i] = x[i]

def scaled(x: array[float], factor: float, y: array[float]):
    i = tid()
    y[i] = x[i] * factor

def added(x: array[float], y: array[float]):
    i = tid()
    y[i] = y[i] + x[i]

def total(x: array[float], s: array[float]):
    s[0] += x[tid()]
""")
square, total = kernels["square"], kernels["total"]
Program = Callable[[kl.array, kl.array], kl.array]


def made(y: kl.array) -> kl.array:
    """An array that the host makes of another one."""
    return kl.array(2.0 * y.numpy(), dtype=float, requires_grad=True)


def later(y: kl.array) -> kl.array:
    """An array that the host makes after it has taken another one, of what carries no origin."""
    return kl.array([float(y.numpy()[0])] * 3, dtype=float)


def by(replace: Callable[[kl.array, kl.array, kl.array], object], make: Any = made) -> Program:
    """A program that replaces, or does not, what the host made of y, and then uses it."""

    def program(x: kl.array, y: kl.array) -> kl.array:
        w = make(y)
        w.requires_grad = True
        used = replace(x, y, w)
        return w if used is None else w + used

    return program


def alone(replace: Callable[[kl.array, kl.array, kl.array], object]) -> Any:
    """The same with no result."""

    def run(x: kl.array, y: kl.array, w: kl.array) -> None:
        replace(x, y, w)

    return run


def launched(kernel: str, dim: int = 3) -> Callable[[kl.array, kl.array, kl.array], object]:
    return lambda x, y, w: kernels[kernel][dim](x, w)


def in_place(x: kl.array, y: kl.array, w: kl.array) -> None:
    w.numpy()[:] = 2.0 * y.numpy()
    w.zero_()


REPLACING = {
    "launch": by(launched("square")),
    "launch, by order": by(launched("square"), later),
    "fill_": by(alone(lambda x, y, w: w.fill_(1.0))),
    "fill_, by order": by(alone(lambda x, y, w: w.fill_(1.0)), later),
    "zero_, then added to": by(alone(lambda x, y, w: (w.zero_(), launched("added")(x, y, w)))),
    "assign": by(alone(lambda x, y, w: w.assign(y))),
    "slice": by(alone(lambda x, y, w: w.__setitem__(slice(None), y))),
    "copy": by(alone(lambda x, y, w: kl.copy(w, y))),
    "copy, by order": by(alone(lambda x, y, w: kl.copy(w, y)), later),
    "changed through a view first": by(in_place, kl.zeros_like),
}


def used_first(x: kl.array, y: kl.array, w: kl.array) -> kl.array:
    used = x * w
    w.fill_(1.0)
    return used


def copied_first(x: kl.array, y: kl.array, w: kl.array) -> kl.array:
    used = kl.clone(w, requires_grad=True)
    w.fill_(1.0)
    return used


def again(x: kl.array, y: kl.array, w: kl.array) -> None:
    w.fill_(1.0)
    w.assign(2.0 * y.numpy())


KEEPING = {
    "nothing": by(lambda x, y, w: None),
    "fewer threads": by(launched("square", 2)),
    "a branch": by(launched("positive")),
    "an early return": by(launched("early")),
    "one element": by(launched("crossed")),
    "given twice": by(alone(lambda x, y, w: square[3](w, w))),
    "one number of it": by(alone(lambda x, y, w: kernels["scaled"][3](x, w[:1], w))),
    "an element is read": by(launched("added")),
    "part of it": by(alone(lambda x, y, w: w[1:].zero_())),
    "every other": by(alone(lambda x, y, w: kl.copy(w[::2], y[::2]))),
    "used before": by(used_first),
    "copied before": by(copied_first),
    "written again": by(again),
}


def function(program: Program) -> Callable[[kl.array], kl.array]:
    def run(x: kl.array) -> kl.array:
        y, loss = kl.zeros(3, requires_grad=True), kl.zeros(1, requires_grad=True)
        square[3](x, y)
        total[3](program(x, y), loss)
        total[3](x, loss)
        return loss

    return run


def on_a_tape(run: Callable[[kl.array], kl.array], x: kl.array) -> None:
    x.requires_grad = True
    with kl.Tape() as tape:
        loss = run(x)
    tape.backward(loss)


MODES = {
    "tape": on_a_tape,
    "grad": lambda run, x: kl.func.grad(run)(x),
    "jvp": lambda run, x: kl.func.jvp(run, (x,), (kl.ones(3),)),
    "hvp": lambda run, x: kl.func.jvp(kl.func.grad(run), (x,), (kl.ones(3),)),
}


def told(mode: str, program: Program) -> list[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        MODES[mode](function(program), kl.array([1.5, -2.0, 3.0]))
    return [str(warning.message) for warning in seen]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("replacing", REPLACING)
def test_what_was_replaced_is_no_end_of_a_chain(mode: str, replacing: str) -> None:
    assert told(mode, REPLACING[replacing]) == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("keeping", KEEPING)
def test_what_was_replaced_in_part_or_too_late_is_told(mode: str, keeping: str) -> None:
    assert any("no gradient flows" in message for message in told(mode, KEEPING[keeping]))


def test_values_of_what_was_replaced_come_from_what_replaced_it() -> None:
    x, z = kl.array([1.5, -2.0, 3.0], requires_grad=True), kl.zeros(3)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with kl.Tape() as tape:
            w = kl.array(2.0 * (x * x).numpy(), dtype=float)
            w.fill_(1.0)
            z = x * float(np.sum(w.numpy()))
            loss = z.sum()
        tape.backward(loss)
    assert seen == [] and x.grad.list() == [3.0, 3.0, 3.0]
