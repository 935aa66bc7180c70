"""Numbers and vectors of structs that require gradients, changed or copied by the host while a tape records.

What comes from the old values is told; what is set by components, or through NumPy, is refused.
"""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import TapeError

K = kl.compile("""
class Inner:
    mass: float
    place: vec3

class Outer:
    inner: Inner
    gain: float
    turn: mat22

def outer(s: Outer, y: array[float]):
    i = tid()
    y[i] += s.gain * s.inner.mass * s.inner.place[1] * s.inner.place[2] * s.turn[0, 1] * s.turn[1, 1]

def inner(s: Inner, y: array[float]):
    i = tid()
    y[i] += s.mass * s.place[1]

def each(s: array[Inner], y: array[float]):
    i = tid()
    y[i] += s[i].mass * s[i].place[1]

def along(v: vec3, y: array[float]):
    i = tid()
    y[i] += v[0] * v[1]
""")
Inner, Outer = K["Inner"], K["Outer"]


def made() -> Any:
    s = Outer(Inner(2.0, kl.vec3(0.5, 3.0, 0.25)), 1.5, kl.mat22(1.0, 2.0, 3.0, 4.0))
    s.requires_grad = True
    return s


def other() -> Any:
    s = made()
    s.gain = 7.0
    return s


def set_field(s: Any, name: str, value: Any) -> Any:
    setattr(s, name, value)
    return s


def told(change: Callable[[Any], Any]) -> str:
    s, y = made(), kl.zeros(2, requires_grad=True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with kl.Tape() as tape:
            K["outer"][2](s, y)
            later = change(s)
            kernel = {Outer: "outer", Inner: "inner"}.get(type(later), "each")
            K[kernel][2](later, y)
        tape.backward(grads={y: kl.ones(2)})
    return "\n".join(str(warning.message) for warning in seen)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "scaled": lambda s: set_field(s, "gain", 2.0 * s.gain),
    "of another field": lambda s: set_field(s, "gain", s.inner.mass),
    "a vector": lambda s: (set_field(s.inner, "place", 2.0 * s.inner.place), s)[1],
    "a matrix": lambda s: set_field(s, "turn", s.turn @ s.turn),
    "a struct in it": lambda s: set_field(s, "inner", Inner(s.gain, s.inner.place)),
    "into another one": lambda s: set_field(other(), "inner", s.inner),
}
COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": lambda s: s.copy(),
    "copy.copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "deepcopy of a list": lambda s: copy.deepcopy([s])[0],
    "copy of a part": lambda s: s.inner.copy(),
    "an array of them": lambda s: kl.array([s.inner, s.inner], dtype=Inner),
    "a full array": lambda s: kl.full(2, s.inner),
    "a filled array": lambda s: kl.zeros(2, dtype=Inner).fill_(s.inner),
    "NumPy's": lambda s: kl.array(np.asarray(s.inner)[None].repeat(2), dtype=Inner),
}


@pytest.mark.parametrize("name", [*CHANGES, *COPIES])
def test_what_comes_from_the_old_values_is_told(name: str) -> None:
    assert "no gradient flows" in told((CHANGES | COPIES)[name])


def test_it_is_told_by_the_names_of_the_fields() -> None:
    assert "from `s.gain` back to `s.inner.mass`" in told(CHANGES["of another field"])


@pytest.mark.parametrize("value", [3.0, np.float32(3.0), 3])
def test_a_constant_is_silent_and_ends_the_chain(value: Any) -> None:
    s, y = made(), kl.zeros(2, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with kl.Tape() as tape:
            K["outer"][2](s, y)
            s.gain = value
            K["outer"][2](s, y)
        tape.backward(grads={y: kl.ones(2)})
    assert s.grad.gain == 2 * 2.0 * 3.0 * 0.25 * 2.0 * 4.0


COMPONENTS: dict[str, Callable[[Any], Any]] = {
    "by number": lambda s: set_item(s.inner.place, 1, 2.0),
    "by letter": lambda s: set_field(s.inner.place, "y", 2.0),
    "by letters": lambda s: set_field(s.inner.place, "yz", s.inner.place.zy),
    "an entry": lambda s: set_item(s.turn, (0, 1), s.gain),
    "a row": lambda s: set_item(s.turn, 0, s.turn[1]),
    "all": lambda s: s.turn.fill(2.0),
    "by NumPy": lambda s: np.multiply(s.turn, 2.0, out=s.turn),
}


def set_item(target: Any, key: Any, value: Any) -> None:
    target[key] = value


@pytest.mark.filterwarnings("ignore:no gradient flows from `s.turn` back to `s.gain`")
@pytest.mark.parametrize("name", COMPONENTS)
def test_components_set_between_two_launches_are_refused_and_after_them_harmless(name: str) -> None:
    s, y = made(), kl.zeros(2, requires_grad=True)
    with kl.Tape() as tape:
        K["outer"][2](s, y)
        COMPONENTS[name](s)
        K["outer"][2](s, y)
    with pytest.raises(
        TapeError, match=r"`s\.(inner\.place|turn)`(?s:.*)set the field of the struct as a whole"
    ):
        tape.backward(grads={y: kl.ones(2)})
    s, y = made(), kl.zeros(2, requires_grad=True)
    with kl.Tape() as tape:
        K["outer"][2](s, y)
    COMPONENTS[name](s)
    tape.backward(grads={y: kl.ones(2)})
    assert s.grad.gain == 2 * 2.0 * 3.0 * 0.25 * 2.0 * 4.0


def test_what_to_do_is_said_of_a_struct_without_a_name_too() -> None:
    held, y = [made()], kl.zeros(2, requires_grad=True)
    with kl.Tape() as tape:
        K["outer"][2](held[0], y)
        held[0].turn.fill(2.0)
        K["outer"][2](held[0], y)
    with pytest.raises(TapeError, match=r"a field of a struct is set as a whole: s\.v = \.\.\."):
        tape.backward(grads={y: kl.ones(2)})


@pytest.mark.parametrize("is_older", [True, False])
def test_an_array_that_stands_for_a_number_may_not_change_unseen(is_older: bool) -> None:
    v, y = kl.array([[1.0, 2.0, 3.0]], dtype=kl.vec3, requires_grad=True), kl.zeros(2, requires_grad=True)
    view = v.numpy() if is_older else None
    with kl.Tape() as tape:
        K["along"][2](v, y)
        (v.numpy() if view is None else view)[0, 1] = 5.0
        K["along"][2](v, y)
    with pytest.raises(TapeError, match="`v`, which this tape uses, was changed before this line"):
        tape.backward(grads={y: kl.ones(2)})


def test_a_computed_number_may_not_change_unseen() -> None:
    x, y = kl.array([[1.0, 2.0, 3.0]], dtype=kl.vec3, requires_grad=True), kl.zeros(2, requires_grad=True)
    with kl.Tape() as tape:
        v = 2.0 * x
        v.numpy()[0, 1] = 5.0
        K["along"][2](v, y)
    with pytest.raises(TapeError, match="`v`, which this tape uses, was changed before this line"):
        tape.backward(grads={y: kl.ones(2)})
