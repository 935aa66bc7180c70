"""Random programs of launches, copies and host writes on overlapping views: the tape's gradients are exact.

The oracle carries the Jacobian of every element with respect to the inputs forward in NumPy.
"""

import contextlib
from dataclasses import dataclass
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelab as kl

TEXT = """
def square(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = x[i] * x[i]

def product(x: array[float64], z: array[float64], y: array[float64]):
    i = tid()
    y[i] = x[i] * z[i]

def add(x: array[float64], y: array[float64]):
    i = tid()
    y[i] += x[i]

def bend(x: array[float64]):
    i = tid()
    x[i] = sin(x[i])

def mix(x: array[float64], y: array[float64]):
    i = tid()
    t = x[i]
    x[i] = y[i] * t
    y[i] = t + y[i]
"""

kernels: dict[str, Any] = kl.compile(TEXT)

COUNT, LENGTH, WIDTH = 2, 7, 3
INPUTS = COUNT * LENGTH
Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Window:
    """Some elements of one of the state arrays."""

    array: int
    keys: slice

    def elements(self) -> list[tuple[int, int]]:
        return [(self.array, i) for i in range(LENGTH)[self.keys]]


@dataclass
class Dual:
    """Values with their Jacobian with respect to all inputs."""

    value: Floats
    slope: Floats

    def __mul__(self, other: "Dual") -> "Dual":
        slope = self.slope * other.value[:, None] + self.value[:, None] * other.slope
        return Dual(self.value * other.value, slope)

    def __add__(self, other: "Dual") -> "Dual":
        return Dual(self.value + other.value, self.slope + other.slope)

    def sin(self) -> "Dual":
        return Dual(np.sin(self.value), np.cos(self.value)[:, None] * self.slope)


class Oracle:
    def __init__(self, inputs: Floats) -> None:
        slopes = np.eye(INPUTS).reshape(COUNT, LENGTH, INPUTS)
        self.state = [Dual(inputs[a].copy(), slopes[a].copy()) for a in range(COUNT)]

    def get(self, window: Window) -> Dual:
        whole = self.state[window.array]
        return Dual(whole.value[window.keys].copy(), whole.slope[window.keys].copy())

    def set(self, window: Window, new: Dual) -> None:
        whole = self.state[window.array]
        whole.value[window.keys], whole.slope[window.keys] = new.value, new.slope


KEYS = [slice(0, 3), slice(2, 5), slice(1, 6, 2), slice(0, 5, 2), slice(4, 1, -1), slice(4, 7)]
windows = st.builds(Window, st.integers(0, COUNT - 1), st.sampled_from(KEYS))


def apart(*chosen: Window) -> bool:
    """Whether windows are pairwise equal or without common elements: anything else is a data race."""
    return all(
        a == b or not set(a.elements()) & set(b.elements()) for i, a in enumerate(chosen) for b in chosen[:i]
    )


Action = tuple[str, tuple[Window, ...], float]
actions = st.one_of(
    st.tuples(st.sampled_from(["square", "add", "mix"]), st.tuples(windows, windows), st.just(0.0)),
    st.tuples(st.just("product"), st.tuples(windows, windows, windows), st.just(0.0)),
    st.tuples(st.just("bend"), st.tuples(windows), st.just(0.0)),
    st.tuples(st.just("copy"), st.tuples(windows, windows), st.just(0.0)),
    st.tuples(st.sampled_from(["fill", "assign"]), st.tuples(windows), st.floats(-1, 1)),
).filter(lambda action: action[0] == "copy" or apart(*action[1]))


def predict(oracle: Oracle, action: Action) -> None:
    name, where, number = action
    values = [oracle.get(window) for window in where]
    constant = Dual(np.full(WIDTH, number), np.zeros((WIDTH, INPUTS)))
    match name:
        case "square":
            oracle.set(where[1], values[0] * values[0])
        case "product":
            oracle.set(where[2], values[0] * values[1])
        case "add":
            oracle.set(where[1], values[1] + values[0])
        case "bend":
            oracle.set(where[0], values[0].sin())
        case "mix":
            oracle.set(where[0], values[1] * values[0])
            oracle.set(where[1], values[0] + oracle.get(where[1]))
        case "copy":
            oracle.set(where[0], values[1])
        case _:
            oracle.set(where[0], constant)


def perform(state: list[kl.array], action: Action) -> None:
    name, where, number = action
    views = [state[window.array][window.keys] for window in where]
    match name:
        case "copy":
            kl.copy(*views)
        case "fill":
            views[0].fill_(number)
        case "assign":
            views[0].assign(np.full(WIDTH, number))
        case _:
            kernels[name][WIDTH](*views)


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Action], list[Action], int]:
    return draw(st.lists(actions, max_size=8)), draw(st.lists(actions, max_size=3)), draw(st.integers(0, 99))


def run(inside: list[Action], after: list[Action], seed: int, policy: Any) -> None:
    values, weights = np.random.default_rng(seed).uniform(-1.5, 1.5, (2, COUNT, LENGTH))
    oracle = Oracle(values)
    leaves = [kl.array(row, requires_grad=True) for row in values]
    state = [kl.zeros(LENGTH, kl.float64, requires_grad=True) for _ in leaves]
    with kl.Tape(policy) as tape:
        for mine, given_value in zip(state, leaves, strict=True):
            mine.assign(given_value)
        for action in inside:
            perform(state, action)
            predict(oracle, action)
    for action in after:
        perform(state, action)
    before = [mine.list() for mine in state]
    expected = sum(weights[a] @ oracle.state[a].slope for a in range(COUNT)).reshape(COUNT, LENGTH)
    for times in (1, 2):
        tape.backward(grads=dict(zip(state, weights, strict=True)))
        found = [x.grad.numpy() for x in leaves if x.grad is not None]
        np.testing.assert_allclose(found, times * expected, rtol=1e-9, atol=1e-12)
    assert [mine.list() for mine in state] == before


# A third of the programs in the normal run.
shards = pytest.mark.parametrize("shard", [0, *(pytest.param(k, marks=pytest.mark.long) for k in (1, 2))])


@shards
def test_gradients_are_exact_whatever_is_overwritten(shard: int) -> None:
    @hypothesis.seed(shard)
    @settings(max_examples=50, database=None)
    @given(programs())
    def check(program: tuple[list[Action], list[Action], int]) -> None:
        run(*program, "save")

    check()


@shards
def test_where_no_overwrite_is_reported_none_has_spoilt_the_gradient(shard: int) -> None:
    @hypothesis.seed(shard)
    @settings(max_examples=25, database=None)
    @given(programs())
    def check(program: tuple[list[Action], list[Action], int]) -> None:
        with contextlib.suppress(kl.TapeError):
            run(*program, "error")

    check()
