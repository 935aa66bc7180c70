"""Arrays that the host fills in place with what it took: through views of NumPy's, buffers, lent memory."""

import ctypes
import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from tests.support.numpy_version import DLPACK_IS_WRITABLE

kernels = kl.compile("""
def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def weighted(x: array[float], w: array[float], y: array[float]):
    i = tid()
    y[i] += x[i] * w[i]

def scaled(x: array[float], factor: float, y: array[float]):
    i = tid()
    y[i] = x[i] * factor

@struct
class Spring:
    stiffness: float
    axis: vec3

def pulled(x: array[float], springs: array[Spring], y: array[float]):
    i = tid()
    y[i] = x[i] * springs[i].stiffness
""")
weighted, scaled, pulled = (kernels[name] for name in ("weighted", "scaled", "pulled"))
Use = Callable[[Any, Any, Any], Any]


def told_on_a_tape(use: Use) -> list[str]:
    x = kl.array([1.1, 2.3, 3.7], requires_grad=True)
    q, y = (kl.zeros(3, requires_grad=True) for _ in range(2))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with kl.Tape() as tape:
            kernels["square"][3](x, q)
            use(x, q, y)
        tape.backward(grads={y: kl.ones_like(y)})
    return [str(warning.message) for warning in seen]


def told_by(transform: Callable[[Callable[[Any], Any], Any], Any]) -> Callable[[Use], list[str]]:
    def told(use: Use) -> list[str]:
        def function(x: Any) -> Any:
            q, y = kl.zeros(3), kl.zeros(3)
            kernels["square"][3](x, q)
            use(x, q, y)
            return y

        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            transform(function, kl.array([1.1, 2.3, 3.7]))
        return [str(warning.message) for warning in seen]

    return told


MODES = {
    "tape": told_on_a_tape,
    "vjp": told_by(lambda f, x: kl.func.vjp(f, x)[1](x)),
    "jvp": told_by(lambda f, x: kl.func.jvp(f, (x,), (x,))),
}

EARLIER = kl.zeros(3)
VIEW = EARLIER.numpy()
LENT = np.zeros(3, np.float32)


def through_a_view(x: Any, q: Any, y: Any) -> None:
    w = kl.zeros(3)
    w.numpy()[:] = 2.0 * q.numpy()
    weighted[3](x, w, y)


def through_a_view_that_is_older(x: Any, q: Any, y: Any) -> None:
    VIEW[:] = VIEW + q.numpy()
    weighted[3](x, EARLIER, y)


def through_a_view_between_two_launches(x: Any, q: Any, y: Any) -> None:
    w = kl.zeros(3)
    view, values = w.numpy(), q.numpy()
    kl.copy(y, w)
    view[:] = values
    weighted[3](x, w, y)


def element_by_element(x: Any, q: Any, y: Any) -> None:
    w = kl.zeros(3)
    view = w.numpy()
    for i in range(3):
        view[i] = float(q.numpy()[i])
    w[0] = 1.0  # a write that is seen does not hide those before it
    weighted[3](x, w, y)


def by_a_buffer(x: Any, q: Any, y: Any) -> None:
    w = kl.zeros(3)
    floats = (ctypes.c_float * 3).from_buffer(memoryview(w.numpy()))
    floats[:] = q.numpy().tolist()
    weighted[3](x, w, y)


def by_another_library(x: Any, q: Any, y: Any) -> None:
    w = kl.zeros(3)
    np.copyto(np.from_dlpack(w), q.numpy())
    weighted[3](x, w, y)


def in_lent_memory(x: Any, q: Any, y: Any) -> None:
    LENT[:] = LENT + q.numpy()
    weighted[3](x, LENT, y)


def and_cloned(x: Any, q: Any, y: Any) -> None:
    w = kl.zeros(3)
    w.numpy()[:] = q.numpy()
    weighted[3](x, kl.clone(w), y)


def made_of_a_list_and_copied(x: Any, q: Any, y: Any) -> None:
    w = kl.zeros(3)
    kl.copy(w, kl.array([float(value) for value in q.numpy()]))
    weighted[3](x, w, y)


def for_a_number(x: Any, q: Any, y: Any) -> None:
    factor = kl.zeros(1)
    factor.numpy()[0] = q.numpy().sum()
    scaled[3](x, factor, y)


def in_structs(x: Any, q: Any, y: Any) -> None:
    springs = kl.zeros(3, dtype=kernels["Spring"])
    springs.numpy()["stiffness"][:] = q.numpy()
    pulled[3](x, springs, y)


FILLS = [
    through_a_view,
    through_a_view_that_is_older,
    through_a_view_between_two_launches,
    element_by_element,
    by_a_buffer,
    *([by_another_library] if DLPACK_IS_WRITABLE else []),
    in_lent_memory,
    and_cloned,
    made_of_a_list_and_copied,
    for_a_number,
    in_structs,
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("use", FILLS, ids=lambda use: str(use.__name__))
def test_what_the_host_fills_in_place_is_reported(use: Use, mode: str) -> None:
    (text,) = MODES[mode](use)
    assert "the host made its values after it had taken those of" in text


def before_anything_is_taken(x: Any, q: Any, y: Any) -> None:
    w = kl.zeros(3)
    w.numpy()[:] = 2.0
    q.numpy()
    weighted[3](x, w, y)


def looked_at_alone(x: Any, q: Any, y: Any) -> None:
    w = kl.ones(3)
    view = w.numpy()
    assert q.numpy().sum() > view.sum()
    weighted[3](x, w, y)


def changed_by_a_fill(x: Any, q: Any, y: Any) -> None:
    w = kl.zeros(3)
    view = w.numpy()
    q.numpy()
    w.fill_(2.0)
    assert view[0] == 2.0
    weighted[3](x, w, y)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("use", [before_anything_is_taken, looked_at_alone, changed_by_a_fill])
def test_a_view_through_which_nothing_came_is_silent(use: Use, mode: str) -> None:
    assert MODES[mode](use) == []


FILLED: dict[str, Callable[[Any, Any], Any]] = {
    "all": lambda w, q: w.numpy().__setitem__(slice(None), 2.0 * q.numpy()),
    "one": lambda w, q: w.numpy().__setitem__(1, q[0]),
    "a part": lambda w, q: w[1:].numpy().__setitem__(slice(None), q.numpy()[:2]),
    "flat": lambda w, q: setattr(w.numpy(), "flat", q.numpy()),
    "fill": lambda w, q: w.numpy().fill(q[2]),
    "copyto": lambda w, q: np.copyto(w.numpy(), q.numpy()),
    "add.at": lambda w, q: np.add.at(w.numpy(), [0, 0], q.numpy()[:2]),
    "out": lambda w, q: np.sin(q.numpy(), out=w.numpy()),
    "sum": lambda w, q: np.sum(q.numpy(), keepdims=True, out=w.numpy()[:1]),
    "components": lambda w, q: operator.setitem(w.numpy().reshape(3, 1)[:, 0], slice(0, 2), q.numpy()[1:]),
}


@pytest.mark.parametrize("name", FILLED)
def test_what_is_computed_of_the_tapes_values_is_told_also_of_an_array_with_gradients(name: str) -> None:
    def use(x: Any, q: Any, y: Any) -> None:
        w = kl.zeros(3, requires_grad=True)
        FILLED[name](w, q)
        weighted[3](x, w, y)

    (text,) = told_on_a_tape(use)
    assert "no gradient flows from an array back to `q`: the values came by the host" in text


def test_an_array_with_gradients_may_be_filled_with_other_values_and_with_its_own() -> None:
    def use(x: Any, q: Any, y: Any) -> None:
        w = kl.ones(3, requires_grad=True)
        w.numpy()[:] = 2.0 * w.numpy() + kl.clone(q, requires_grad=False).numpy()
        w.numpy()[0] = 1.0 if q[0] > 0.0 else 2.0
        weighted[3](x, w, y)

    assert told_on_a_tape(use) == []


def test_what_replaced_such_values_is_silent() -> None:
    def use(x: Any, q: Any, y: Any) -> None:
        w = kl.zeros(3, requires_grad=True)
        w.numpy()[:] = q.numpy()
        kernels["square"][3](x, w)
        weighted[3](x, w, y)

    assert told_on_a_tape(use) == []


def test_an_array_kept_from_a_function_under_vmap_is_not_looked_at() -> None:
    kept = []

    def function(x: Any) -> Any:
        q = kl.zeros(3)
        kernels["square"][3](x, q)
        kept.append((q, q.ptr))
        return kl.clone(q)

    kl.func.vmap(function)(kl.ones((2, 3)))
    with kl.Tape():
        x, q = kl.ones(3, requires_grad=True), kl.zeros(3, requires_grad=True)
        kernels["square"][3](x, q)
        assert q.numpy().tolist() == [1.0, 1.0, 1.0]
