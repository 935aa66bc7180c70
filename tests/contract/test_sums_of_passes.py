"""What adds up over backward passes is told once, and the view of an array says of how many passes it is."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.runtime.context import recorder
from kernelab.views.pages import markup
from kernelab.views.tape.arrays import array_view

kernels: dict[str, Any] = kl.compile("""
def squares(x: array[float], loss: array[float]):
    i = tid()
    atomic_add(loss, 0, x[i] * x[i])

def last(x: array[float], loss: array[float]):
    loss[0] = x[0] * x[0]

def twice(x: array[float], y: array[float]):
    i = tid()
    y[i] = 2.0 * x[i]
""")
Capture = pytest.CaptureFixture[str]


def leaf() -> kl.array:
    return kl.array([1.0, 2.0, 3.0], dtype=float, requires_grad=True)


def result(count: int = 1) -> kl.array:
    return kl.zeros(count, dtype=float, requires_grad=True)


def recorded(x: kl.array, loss: kl.array, name: str = "squares") -> kl.Tape:
    with kl.Tape() as tape:
        kernels[name][3](x, loss)
    return tape


def shown(x: kl.array) -> str:
    return markup.render(array_view(x))


def test_a_sum_of_gradients_is_told_once_for_a_line(capsys: Capture) -> None:
    x, tape = leaf(), None
    for _ in range(3):
        loss = result()
        tape = recorded(x, loss)
        tape.backward(loss)
    said = capsys.readouterr().err
    assert said.count("backward adds to the gradients of an earlier pass, in `x`") == 1
    assert "x.grad.zero_()" in said and "test_sums_of_passes.py, line" in said
    assert "sum of 3 backward passes, not zeroed since test_sums_of_passes.py, line" in shown(x)


def test_a_pass_that_fails_says_nothing_of_sums(capsys: Capture) -> None:
    x, loss = leaf(), result()
    recorded(x, loss).backward(loss)

    def fail() -> None:
        raise RuntimeError("not now")

    tape = recorded(x, loss)
    tape.record_func(fail, [loss])
    with pytest.raises(RuntimeError, match="not now"):
        tape.backward(loss)
    assert "an earlier pass" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("count", "told"), [(1, "in an array ("), (2, "in 2 arrays ("), (5, "in 5 arrays (")]
)
def test_gradients_of_arrays_without_names_are_counted(
    count: int, told: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "_TOLD", set())  # each case has the same line
    pairs = [(leaf(), result()) for _ in range(count)]
    for _ in range(2):
        with kl.Tape() as tape:
            for leaf_and_loss in pairs:
                kernels["squares"][3](*leaf_and_loss)
        tape.backward(grads={pair[1]: [1.0] for pair in pairs})
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("how", ["tape", "zero_", "fill_", "None", "view", "assign"])
def test_gradients_that_are_zeroed_are_no_sum(how: str, capsys: Capture) -> None:
    x, loss = leaf(), result()
    for _ in range(3):
        loss.zero_()
        tape = recorded(x, loss)
        tape.backward(loss)
        assert x.grad.numpy().tolist() == [2, 4, 6]
        assert "sum of" not in shown(x)
        match how:
            case "tape":
                tape.zero()
            case "None":
                x.grad = None
            case "view":
                x.grad.numpy()[:] = 0
            case "assign":
                x.grad.assign([0.0, 0.0, 0.0])
            case "zero_":
                x.grad.zero_()
            case _:
                x.grad.fill_(0.0)
    assert capsys.readouterr().err == ""


def test_what_a_pass_replaces_is_no_sum(capsys: Capture) -> None:
    x, y, loss = leaf(), result(3), result()
    with kl.Tape() as tape:
        kernels["twice"][3](x, y)
        kernels["squares"][3](y, loss)
    assert "no backward pass has reached it" in shown(y)
    tape.backward(loss)
    x.grad.zero_()
    tape.backward(loss)
    assert "backward pass" not in shown(y)
    assert capsys.readouterr().err == ""


def test_the_view_says_that_no_pass_has_reached_an_array() -> None:
    x, other, loss = leaf(), leaf(), result()
    assert "no backward pass has reached it" in shown(x)
    recorded(x, loss).backward(loss)
    assert "no backward pass" not in shown(x)
    assert other.grad.numpy().tolist() == [0, 0, 0]
    assert "no backward pass has reached it" in shown(other)
    assert "backward pass" not in shown(kl.zeros(3, dtype=float))


def test_a_loss_that_grows_from_pass_to_pass_is_told_once(capsys: Capture) -> None:
    x, loss = leaf(), result()
    for _ in range(3):
        tape = recorded(x, loss)
        tape.backward(loss)
        tape.zero()
    said = capsys.readouterr().err
    assert said.count("`loss` still holds its value of the pass before, and grows") == 1


@pytest.mark.parametrize("how", ["zeroed", "stored", "the same tape", "other lines", "on the tape"])
def test_a_loss_that_begins_anew_or_is_meant_to_add_up_is_silent(how: str, capsys: Capture) -> None:
    x, loss = leaf(), result()
    tape = recorded(x, loss)
    for _ in range(3):
        match how:
            case "zeroed":
                loss.zero_()
                tape = recorded(x, loss)
            case "stored":
                tape = recorded(x, loss, "last")
            case "on the tape":
                with kl.Tape() as tape:
                    loss.zero_()
                    kernels["squares"][3](x, loss)
            case "other lines":
                tape = recorded(x, loss)
                tape.backward(loss)
                tape.zero()
                break
        tape.backward(loss)
        tape.zero()
    assert capsys.readouterr().err == ""


WAYS_TO_GIVE = {
    "held": lambda h: None,
    "whole": lambda h: {h: h.grad},
    "parts": lambda h: {h[0:2]: h.grad[0:2], h[2:]: h.grad[2:]},
    "backwards": lambda h: {h[::-1]: h.grad[::-1]},
    "of views": lambda h: {view: view.grad for view in (h[::2], h[1::2])},
    "NumPy": lambda h: {h: h.grad.numpy()},
    "a part of NumPy": lambda h: {h[0:2]: h.grad.numpy()[0:2], h[2:]: h.grad[2:]},
}


@pytest.mark.parametrize("how", WAYS_TO_GIVE)
def test_a_state_in_place_is_swept_tape_by_tape(how: str, capsys: Capture) -> None:
    """What is the cotangent of the state at the end of a tape becomes that at its beginning."""
    steps = kl.compile("""
    def step(x: array[float], h: array[float]):
        i = tid()
        h[i] = h[i] * h[i] + x[i]
    """)
    x, h = kl.array([0.5, -0.25, 0.125], requires_grad=True), kl.array([0.5, 1.0, -1.0], requires_grad=True)
    tapes = []
    for _ in range(3):
        with kl.Tape() as tape:
            kl.launch(steps["step"], 3, [x, h])
        tapes.append(tape)
    h.grad.fill_(1.0)
    for tape in reversed(tapes):
        tape.backward(grads=WAYS_TO_GIVE[how](h))
    first, second = x.numpy() + np.float32([0.25, 1.0, 1.0]), np.float32([0.5, 1.0, -1.0])
    third = first * first + x.numpy()
    np.testing.assert_allclose(h.grad.numpy(), 8.0 * second * first * third, rtol=1e-6)
    np.testing.assert_allclose(x.grad.numpy(), 1.0 + 2.0 * third * (1.0 + 2.0 * first), rtol=1e-6)
    assert "`h`" not in capsys.readouterr().err


PARTS_TO_GIVE: dict[str, Callable[[Any], Any]] = {
    "held": lambda h: None,
    "whole": lambda h: {h: h.grad},
    "what changes": lambda h: {h[0:2]: h.grad[0:2]},
}


@pytest.mark.parametrize("how", PARTS_TO_GIVE)
def test_a_state_of_which_tapes_change_a_part_is_swept_tape_by_tape(how: str) -> None:
    """The gradient of what stays as it is goes on from tape to tape, and grows."""
    steps = kl.compile("""
    def step(a: array[float], b: array[float]):
        i = tid()
        a[i] = a[i] * a[i] * b[i]
    """)
    h = kl.array([2.0, 3.0, 5.0, 7.0], requires_grad=True)
    tapes = []
    for _ in range(2):
        with kl.Tape() as tape:
            kl.launch(steps["step"], 2, [h[0:2], h[2:4]])
        tapes.append(tape)
    h.grad.fill_(1.0)
    for tape in reversed(tapes):
        tape.backward(grads=PARTS_TO_GIVE[how](h))
    a, b = np.float32([2.0, 3.0]), np.float32([5.0, 7.0])
    assert h.grad.list() == [*(4.0 * a**3 * b**3), *(1.0 + 3.0 * a**4 * b**2)]


def test_a_state_of_structs_is_swept_tape_by_tape() -> None:
    scope = kl.compile("""
    @struct
    class Body:
        v: float
        n: int

    def step(bodies: array[Body]):
        i = tid()
        bodies[i].v = bodies[i].v * bodies[i].v
    """)
    bodies = kl.zeros(2, dtype=scope["Body"], requires_grad=True)
    bodies["v"].assign([2.0, 3.0])
    tapes = []
    for _ in range(2):
        with kl.Tape() as tape:
            kl.launch(scope["step"], 2, [bodies])
        tapes.append(tape)
    bodies.grad["v"].fill_(1.0)
    for tape in reversed(tapes):
        tape.backward(grads={bodies: bodies.grad})
    assert bodies.grad["v"].list() == [4.0 * 2.0**3, 4.0 * 3.0**3]


def test_only_the_elements_whose_gradient_is_given_count_once() -> None:
    """The others keep what an earlier pass left, and get what this one adds."""
    x, y = leaf(), result(3)
    with kl.Tape() as tape:
        kernels["twice"][3](x, y)
    x.grad.fill_(5.0)
    tape.backward(grads={y: kl.ones(3), x[0:2]: x.grad[0:2]})
    assert x.grad.list() == [7.0, 7.0, 7.0]


def test_a_cotangent_of_its_own_counts_once_beside_others() -> None:
    x, y = leaf(), result(3)
    with kl.Tape() as tape:
        kernels["twice"][3](x, y)
    x.grad.fill_(5.0)
    tape.backward(grads={y: kl.ones(3), x: x.grad})
    assert x.grad.list() == [7.0, 7.0, 7.0]
