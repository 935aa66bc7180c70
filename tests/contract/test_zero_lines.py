"""`kl.contributions` of a zero lists the lines at which the product became zero."""

from typing import Any

import pytest

import kernelab as kl
from kernelab.autodiff.inspect.zero_lines import ZeroLine
from kernelab.backend.cpu.observed_adjoint import UNUSED

kernels: dict[str, Any] = kl.compile("""
def relu(x: array[float], y: array[float]):
    i = tid()
    y[i] = max(x[i], 0.0)

def relu_by_if(x: array[float], y: array[float]):
    i = tid()
    if x[i] > 0.0:
        y[i] = x[i]
    else:
        y[i] = 0.0

def clamped(x: array[float], y: array[float]):
    i = tid()
    s = 2.0 * x[i]
    y[i] = clamp(s, 0.0, 1.0)

def product(x: array[float], w: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * w[i]

def powers(x: array[float], y: array[float]):
    i = tid()
    s = x[i]
    for k in range(3):
        s = s * s
    y[i] = s

def masked(x: array[float], m: array[int], y: array[float]):
    i = tid()
    if m[i] == 1:
        k = i + 0
        y[i] = 3.0 * x[k]

def lengths(v: array[vec3], y: array[float]):
    i = tid()
    y[i] = max(dot(v[i], v[i]) - 100.0, 0.0)

def rounded(x: array[float], y: array[float]):
    i = tid()
    y[i] = round(x[i])

def tiny(x: array[float], y: array[float]):
    i = tid()
    y[i] = (x[i] * 1.0e-30) * 1.0e-30

def doubled(x: array[float], y: array[float]):
    i = tid()
    y[i] = 2.0 * x[i]

def total(y: array[float], loss: array[float]):
    atomic_add(loss, 0, y[tid()])

def first(y: array[float], loss: array[float]):
    loss[0] = y[0]

def gated(x: array[float], loss: array[float]):
    if x[tid()] > 0.0:
        atomic_add(loss, 0, 1.0)
""")


def leaf(*values: float) -> kl.array:
    return kl.array(values, dtype=float, requires_grad=True)


def result(count: int = 2) -> kl.array:
    return kl.zeros(count, dtype=float, requires_grad=True)


def zeros(tape: kl.Tape, x: kl.array, index: int, loss: kl.array) -> list[tuple[int, str, str]]:
    """The record, the text of the line and the reason of each zero."""
    found = kl.contributions(tape, x, index, loss)
    assert not found.parts
    return [(zero.record, _text(zero), zero.reason) for zero in found.zeros]


def _text(zero: ZeroLine) -> str:
    return "" if zero.line is None else zero.line.source.line(zero.line.line).strip()


def recorded(name: str, *arguments: kl.array) -> tuple[kl.Tape, kl.array]:
    y, loss = result(), result(1)
    with kl.Tape() as tape:
        kernels[name][2](*arguments, y)
        kernels["total"][2](y, loss)
    return tape, loss


TAKEN, FLAT = "the other value is taken here", "the derivative is 0 here"
BRANCH = "the way that was taken does not use it"


@pytest.mark.parametrize(
    ("name", "value", "line", "reason"),
    [
        ("relu", -1.0, "y[i] = max(x[i], 0.0)", TAKEN),
        ("relu_by_if", -1.0, "if x[i] > 0.0:", BRANCH),
        ("clamped", 3.0, "y[i] = clamp(s, 0.0, 1.0)", TAKEN),
        ("powers", 0.0, "s = s * s", FLAT),
        ("tiny", 1.0, "y[i] = (x[i] * 1.0e-30) * 1.0e-30", "the product is too small for its type"),
    ],
)
def test_a_zero_is_explained_by_its_line(name: str, value: float, line: str, reason: str) -> None:
    x = leaf(1.0, value)
    tape, loss = recorded(name, x)
    assert zeros(tape, x, 1, loss) == [(1, line, reason)]


def test_a_factor_that_is_zero_is_named() -> None:
    x, w = leaf(1.0, 2.0), leaf(1.0, 0.0)
    tape, loss = recorded("product", x, w)
    assert zeros(tape, x, 1, loss) == [(1, "y[i] = x[i] * w[i]", FLAT)]


def test_a_branch_is_found_though_its_index_is_computed_inside() -> None:
    x, mask = leaf(1.0, 2.0), kl.array([1, 0], dtype=int)
    tape, loss = recorded("masked", x, mask)
    assert zeros(tape, x, 1, loss) == [(1, "if m[i] == 1:", BRANCH)]


def test_vectors_are_explained_alike() -> None:
    v = kl.array([(1.0, 2.0, 3.0)] * 2, dtype=kl.vec3, requires_grad=True)
    tape, loss = recorded("lengths", v)
    assert zeros(tape, v, 0, loss) == [(1, "y[i] = max(dot(v[i], v[i]) - 100.0, 0.0)", TAKEN)]


@pytest.mark.parametrize(("body", "reason"), [("max(q.z, 0.0)", TAKEN), ("q.x", UNUSED)])
def test_a_component_that_is_zero_is_explained_beside_others(body: str, reason: str) -> None:
    turn = kl.compile(f"def turn(q: vec3):\n    return q.x * q.y + {body}\n")["turn"]
    (zero,) = (found := kl.contributions(turn, kl.vec3(1.0, 2.0, -3.0))).zeros
    assert (zero.component, zero.reason, _text(zero)) == ((2,), reason, f"return q.x * q.y + {body}")
    assert f"component z: {reason}" in str(found)


def test_a_zero_is_followed_through_later_launches() -> None:
    x, y, z, loss = leaf(-1.0, 2.0), result(), result(), result(1)
    with kl.Tape() as tape:
        kernels["doubled"][2](x, y)
        kernels["relu"][2](y, z)
        kernels["total"][2](z, loss)
    assert zeros(tape, x, 0, loss) == [(2, "y[i] = max(x[i], 0.0)", TAKEN)]
    text = str(kl.contributions(tape, x, 0, loss))
    assert "where it became zero" in text and "2 relu" in text


def test_an_element_that_a_later_launch_does_not_read_is_said() -> None:
    x, y, z, loss = leaf(1.0, 2.0), result(), result(), result(1)
    with kl.Tape() as tape:
        kernels["doubled"][2](x, y)
        kernels["doubled"][2](x, z)
        kernels["first"][1](y, loss)
    told = [(record, reason) for record, _, reason in zeros(tape, x, 1, loss)]
    assert told == [(3, "none of its threads reads the element")]


@pytest.mark.filterwarnings("ignore:no gradient flows")
def test_zeros_by_construction_are_named_from_the_text() -> None:
    x = leaf(1.0, 2.0)
    tape, loss = recorded("rounded", x)
    assert zeros(tape, x, 1, loss) == [(1, "y[i] = round(x[i])", "`round` has derivative 0")]


def test_a_loss_that_hangs_on_a_condition_only_is_explained() -> None:
    x, loss = leaf(1.0, 2.0), result(1)
    with kl.Tape() as tape:
        kernels["gated"][2](x, loss)
    assert zeros(tape, x, 1, loss) == [(1, "if x[tid()] > 0.0:", "only a condition hangs on it")]


def test_a_zero_leaves_gradients_as_they_are() -> None:
    x = leaf(1.0, -1.0)
    tape, loss = recorded("relu", x)
    tape.backward(loss)
    assert zeros(tape, x, 1, loss)
    assert x.grad.numpy().tolist() == [1, 0]
    assert not kl.contributions(tape, x, 0, loss).zeros
