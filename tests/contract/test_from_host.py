"""Values that the host computes from a tape: where they come back to the tape, it is reported."""

import copy
import io
import json
import math
import pickle
import warnings
from array import array as typed_array
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl

kernels = kl.compile("""
def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def total(x: array[float], s: array[float]):
    s[0] += x[tid()]

def scaled(x: array[float], factor: float, y: array[float]):
    i = tid()
    y[i] = x[i] * factor

def above(x: array[float], limit: float, y: array[float]):
    i = tid()
    if x[i] > limit:
        y[i] = x[i]

def repeated(x: array[float], n: int, y: array[float]):
    i = tid()
    for _ in range(n):
        y[i] += x[i]

def mixed(x: array[float], weights: vec2, y: array[float]):
    i = tid()
    y[i] = weights[0] * x[i] * weights[1]

def weighted(x: array[float], w: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * w[i]

def weighted_by_row(x: array[float], w: array2d[float], row: int, y: array[float]):
    i = tid()
    y[i] = x[i] * w[row, i]

@struct
class Spring:
    stiffness: float
    axis: vec3

def pulled(x: array[float], springs: array[Spring], y: array[float]):
    i = tid()
    y[i] = x[i] * springs[i].stiffness * springs[i].axis[0]
""")
Spring = kernels["Spring"]
Use = Callable[[Any, Any, Any, Any], Any]


def told_of(use: Use) -> list[str]:
    """What `backward` says of a program that uses x, its squares q, their sum s, and y for the loss."""
    x = kl.array([1.1, 2.3, 3.7], requires_grad=True)
    q, y = (kl.zeros(3, requires_grad=True) for _ in range(2))
    s, loss = (kl.zeros(1, requires_grad=True) for _ in range(2))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with kl.Tape() as tape:
            kernels["square"][3](x, q)
            kernels["total"][3](q, s)
            made = use(x, s, q, y)
            kernels["total"][3](y if made is None else made, loss)
            kernels["total"][3](x, loss)
        tape.backward(loss)
    return [str(warning.message) for warning in seen]


def by_number(number: Callable[[Any, Any], Any]) -> Use:
    """A program that scales x by a number made of s and q."""
    return lambda x, s, q, y: kernels["scaled"][3](x, number(s, q), y)


def by_array(values: Callable[[Any, Any], Any]) -> Use:
    """A program that weights x by an array made of s and q."""
    return lambda x, s, q, y: kernels["weighted"][3](x, values(s, q), y)


# ------------------------------------------------------------------------------------------ numbers


@pytest.mark.parametrize(
    "number",
    [
        lambda s, q: 2.0 * s[0],
        lambda s, q: np.sqrt(s.item()),
        lambda s, q: np.sqrt(s[0]),
        lambda s, q: np.sqrt(s.numpy())[0],
        lambda s, q: s.numpy().sum(),
        lambda s, q: np.mean(q.numpy()),
        lambda s, q: q.numpy().std(),
        lambda s, q: np.median(q.numpy()),
        lambda s, q: 0.1 / np.linalg.norm(q.numpy()),
        lambda s, q: np.max(np.abs(q.numpy())),
        lambda s, q: min(1.0, 0.3 / q.numpy().max()),
        lambda s, q: (q.numpy() @ q.numpy()) ** 0.5,
        lambda s, q: (np.ones((2, 3)) @ q.numpy())[0],
        lambda s, q: sum(v * v for v in q.numpy()),
        lambda s, q: max(q.list()),
        lambda s, q: q.numpy().tolist()[1],
        lambda s, q: round(s.item(), 3),
        lambda s, q: divmod(s.item(), 2.0)[1],
        lambda s, q: np.float32(2.0) * s[0],
        lambda s, q: np.clip(s.item(), 0.0, 100.0),
        lambda s, q: np.interp(s.item(), [0.0, 100.0], [0.0, 1.0]),
        lambda s, q: np.where(s.numpy() > 0, s.numpy(), 0)[0],
        lambda s, q: np.sort(q.numpy())[1],
        lambda s, q: kl.sqrt(s.item()),
        lambda s, q: kl.float64(s.item()) * 0.5,
        lambda s, q: 0.5 * kl.utils.array_sum(q),
        lambda s, q: np.dot(q, q),
        lambda s, q: np.linalg.norm(q),
        lambda s, q: np.fft.rfft(q.numpy())[0].real,
        lambda s, q: np.fft.rfft(q.numpy())[1].conj().imag,
        lambda s, q: abs(np.fft.rfft(q.numpy())[0]),
        lambda s, q: np.angle(np.fft.rfft(q.numpy())[1] * 1j),
        lambda s, q: (2.0 - np.fft.rfft(q.numpy()).tolist()[1] * 1j).conjugate().imag,
        lambda s, q: abs(s.item() * 1j),
        lambda s, q: s[0].real,
        lambda s, q: (s[0] + 0j).item().real,
        lambda s, q: np.roots(q.numpy())[0].real,
        lambda s, q: q.numpy().flat[1],
        lambda s, q: q.numpy().flat[1:].sum(),
        lambda s, q: next(q.numpy().flat),
        lambda s, q: sum(v * v for v in q.numpy().flat),
        lambda s, q: np.mean(q.numpy().flat),
        lambda s, q: q.numpy().flat.base[1],
        lambda s, q: q.numpy().flat.copy()[1],
        lambda s, q: np.sin(q)[0],
        lambda s, q: kl.array([0.1 * s.item()]),
        lambda s, q: kl.array([0.1 * s.item()]).item(),
        lambda s, q: kl.zeros(1).fill_(0.1 * s.item()),
    ],
)
def test_a_number_made_of_the_tapes_is_reported(number: Callable[[Any, Any], Any]) -> None:
    (text,) = told_of(by_number(number))
    assert "no gradient flows from" in text and "the host took" in text


@pytest.mark.parametrize(
    "number",
    [
        lambda s, q: 0.5 if s.item() > 3.0 else 0.25,
        lambda s, q: 1.0 / len(q.numpy()),
        lambda s, q: 1.0 / q.numpy().size,
        lambda s, q: (q.numpy() > 1.0).mean(),
        lambda s, q: [0.1, 0.2, 0.3][int(q.numpy().argmax())],
        lambda s, q: float(np.floor(s.item())),
        lambda s, q: 1.0 / kl.clone(s, requires_grad=False).item(),
        lambda s, q: 0.1 / kl.array([0.3, 0.7]).numpy().max(),
    ],
)
def test_a_number_that_does_not_depend_on_the_tape_is_silent(number: Callable[[Any, Any], Any]) -> None:
    assert told_of(by_number(number)) == []


def test_numbers_equal_to_some_that_were_looked_at_are_silent() -> None:
    def use(x: Any, s: Any, q: Any, y: Any) -> None:
        quarter = kl.array([0.25], requires_grad=True)
        assert quarter.item() == quarter.numpy()[0] == quarter.list()[0]
        kernels["scaled"][3](x, 0.25, y)

    assert told_of(use) == []


def test_a_number_whose_derivative_is_zero_in_the_kernel_is_silent() -> None:
    assert told_of(lambda x, s, q, y: kernels["above"][3](x, 0.1 * s.item(), y)) == []
    assert told_of(lambda x, s, q, y: kernels["repeated"][3](x, int(s.item()), y)) == []
    assert told_of(lambda x, s, q, y: kernels["repeated"][3](x, int(np.ceil(q.numpy().max())), y)) == []


def test_a_number_that_leads_nowhere_is_silent() -> None:
    unused = kl.zeros(3, requires_grad=True)
    assert told_of(lambda x, s, q, y: kernels["scaled"][3](x, 2.0 * s.item(), unused)) == []


def test_a_number_of_what_a_launch_computed_without_gradients_is_reported() -> None:
    w = kl.zeros(3)

    def use(x: Any, s: Any, q: Any, y: Any) -> None:
        kernels["square"][3](x, w)
        kernels["scaled"][3](x, w.numpy().max(), y)

    (text,) = told_of(use)
    assert "no gradient flows from the launch of `scaled` back to `w`" in text


def test_in_a_loop_it_is_reported_once() -> None:
    def use(x: Any, s: Any, q: Any, y: Any) -> Any:
        for _ in range(5):
            y = kl.zeros(3, requires_grad=True)
            kernels["scaled"][3](x, 0.1 * x.numpy()[0], y)
            x = y
        return y

    assert len(told_of(use)) == 1


# ------------------------------------------------------------------------------------------ arrays


@pytest.mark.parametrize(
    "values",
    [
        lambda s, q: kl.array(np.sin(q.numpy())),
        lambda s, q: kl.array(np.sin(q.numpy()), requires_grad=True),
        lambda s, q: kl.from_numpy(np.sqrt(q.numpy())),
        lambda s, q: kl.from_dlpack(2.0 * q.numpy()),
        lambda s, q: kl.array([2.0 * v for v in q]),
        lambda s, q: kl.array(q),
        lambda s, q: kl.array([0.1 * s.item()] * 3),
        lambda s, q: kl.full(3, 0.1 * s.item()),
        lambda s, q: kl.array([q, 2.0 * q])[1],
        lambda s, q: kl.array(([q[0:1]], [q[1:2]], [s])).reshape(3),
        lambda s, q: kl.array([q[kl.array([2, 0, 1])]])[0],
        lambda s, q: kl.zeros((2, 3)).assign([q, q])[0],
        lambda s, q: kl.full(1, q, dtype=kl.vec3).view(float).reshape(3),
        lambda s, q: kl.zeros(1, dtype=kl.vec3).fill_(q).view(float).reshape(3),
        lambda s, q: kl.zeros(3).fill_(0.1 * s.item()),
        lambda s, q: kl.zeros(3).assign(2.0 * q.numpy()),
        lambda s, q: kl.array((q.numpy() - q.numpy().mean()) / q.numpy().std()),
        lambda s, q: kl.array(np.stack([q.numpy()] * 2)[0]),
        lambda s, q: kl.array(q.numpy().astype(object).astype(np.float32)),
        lambda s, q: kl.array(q.numpy().astype("U32").astype(np.float32)),
        lambda s, q: kl.array(np.linalg.solve(np.eye(3), q.numpy()), dtype=float),
        lambda s, q: kl.array(np.where(q.numpy() > 2.0, q.numpy(), 0.0), dtype=float),
        lambda s, q: kl.clone(kl.array(2.0 * q.numpy())),
        lambda s, q: kl.ones(3) * (0.1 * s.item()),
        lambda s, q: kl.ones(3) * (2.0 * q.numpy()),
        lambda s, q: 2.0 * q.numpy(),
    ],
)
def test_an_array_made_of_the_tapes_values_is_reported(values: Callable[[Any, Any], Any]) -> None:
    (text,) = told_of(by_array(values))
    assert "no gradient flows from" in text and "the host took" in text


def test_the_report_names_array_reader_and_both_lines() -> None:
    def use(x: Any, s: Any, q: Any, y: Any) -> None:
        root = np.sqrt(q.numpy())
        w = kl.array(root)
        kernels["weighted"][3](x, w, y)

    (text,) = told_of(use)
    assert "w = kl.array(root)" in text and "root = np.sqrt(q.numpy())" in text
    assert "the launch of `weighted` reads them here:" in text
    assert "requires_grad=False" in text


@pytest.mark.parametrize(
    "values",
    [
        lambda s, q: kl.array((q.numpy() > 2.0).astype(np.float32)),
        lambda s, q: kl.array(np.ones_like(q.numpy())),
        lambda s, q: kl.array(np.sign(q.numpy())),
        lambda s, q: kl.array(np.histogram(q.numpy(), bins=3)[0].astype(np.float32)),
        lambda s, q: kl.array(np.sin(kl.clone(q, requires_grad=False).numpy())),
    ],
)
def test_an_array_that_does_not_depend_on_the_tape_is_silent(values: Callable[[Any, Any], Any]) -> None:
    assert told_of(by_array(values)) == []


def test_an_element_that_takes_an_array_of_one_is_not_looked_at() -> None:
    def use(x: Any, s: Any, q: Any, y: Any) -> Any:
        y[0] = q[1:2]
        y[kl.array([1])] = s
        return y * kl.array(np.full(3, 0.5, np.float32))

    assert told_of(use) == []


def test_memory_of_the_tape_that_comes_back_as_it_is_cuts_nothing() -> None:
    x, y, loss = kl.array([1.0, 2.0], requires_grad=True), kl.zeros(2, requires_grad=True), kl.zeros(1)
    loss.requires_grad = True
    with kl.Tape() as tape:
        kernels["square"][2](x, y)
        kernels["total"][2](x * y.numpy(), loss)
        kernels["weighted"][2](np.asarray(y), x, kl.zeros(2, requires_grad=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tape.backward(loss)
    assert x.grad.list() == [3.0, 12.0]


def test_values_that_are_added_to_an_array_of_numpys_are_reported() -> None:
    def use(x: Any, s: Any, q: Any, y: Any) -> None:
        held = np.zeros(3, np.float32)
        held += q.numpy()
        kernels["weighted"][3](x, kl.array(held), y)

    assert len(told_of(use)) == 1


# ------------------------------------------------------------------------------------------ other ways


@pytest.mark.parametrize(
    "use",
    [
        lambda x, s, q, y: x * (0.1 * s.item()),
        lambda x, s, q, y: x / s.numpy().max(),
        lambda x, s, q, y: x ** (0.1 * s.item()),
        lambda x, s, q, y: x * (2.0 * q.numpy()),
        lambda x, s, q, y: kl.map(lambda a, b: a * b, x, 0.1 * s.item()),
        lambda x, s, q, y: (lambda factor: kl.map(lambda a: a * factor, x))(0.1 * s.item()),
    ],
)
def test_numbers_in_the_arithmetic_of_arrays_are_reported(use: Use) -> None:
    assert len(told_of(use)) == 1


@pytest.mark.parametrize(
    "weights",
    [
        lambda s, q: kl.vec2(0.1 * s.item(), 1.0),
        lambda s, q: 2.0 * kl.vec2(s.item(), 1.0) + kl.vec2(1.0, 1.0),
        lambda s, q: kl.normalize(kl.vec2(s[0], q[1])),
        lambda s, q: (0.3 * s.item(), 1.0),
        lambda s, q: 0.3 * q.numpy()[:2],
    ],
)
def test_numbers_in_vectors_are_reported(weights: Callable[[Any, Any], Any]) -> None:
    assert len(told_of(lambda x, s, q, y: kernels["mixed"][3](x, weights(s, q), y))) == 1


def set_in(whole: Any, change: Callable[[Any], None]) -> Any:
    """A vector, matrix or transform after a change."""
    change(whole)
    return whole


PUT: list[Callable[[Any, Any], None]] = [
    lambda v, n: np.put(v, 0, n[0]),
    lambda v, n: v.put(0, n[0]),
    lambda v, n: np.place(v, v > 0.0, n),
    lambda v, n: np.putmask(v, v > 0.0, n),
    lambda v, n: np.copyto(v, n),
    lambda v, n: np.copyto(dst=v, src=n, where=v > 0.0),
    lambda v, n: np.add.at(v, 0, n[0]),
    lambda v, n: v.flat.__setitem__(0, n[0]),
    lambda v, n: setattr(v, "flat", n),
    lambda v, n: v.fill(n[0]),
    lambda v, n: np.multiply(v, n, out=v),
    lambda v, n: np.outer(n, n).astype(np.float32).sum(axis=0, out=v if v.ndim == 1 else v[0]),
    lambda v, n: n.take([0, 1, 2], out=v if v.ndim == 1 else v[0]),
    lambda v, n: np.dot(np.eye(3, dtype=np.float32), n, v if v.ndim == 1 else v[0]),
    lambda v, n: n.round(2, v if v.ndim == 1 else v[0]),
    lambda v, n: setattr(v, "real", n),
    lambda v, n: v.real.__setitem__(0, n[0]),
    lambda v, n: v.setfield(n[0], v.dtype),
    lambda v, n: np.choose([0, 0, 0], [n, n], out=v if v.ndim == 1 else v[0]),
]
VIEWS: list[Callable[[Any], Any]] = [
    lambda m: m,
    lambda m: m[0],
    lambda m: m.T[:, 0],
    lambda m: m.reshape(9)[:3],
    lambda m: m.view(),
]


@pytest.mark.parametrize(
    "number",
    [
        lambda s, q: kl.vec3(q)[1],
        lambda s, q: kl.vec2(s, 1.0).x,
        lambda s, q: kl.transform(q, kl.quat_identity()).p[0],
        lambda s, q: kl.float64(s),
        lambda s, q: kl.vec3(*q).mean(),
        lambda s, q: kl.vec3(*q).tolist()[2],
        lambda s, q: kl.vec3(*q).reshape(3, 1)[1, 0],
        lambda s, q: kl.vec3(*q).astype(np.float64)[1],
        lambda s, q: kl.outer(kl.vec3(*q), kl.vec3(*q)).T[0, 1],
        lambda s, q: kl.outer(kl.vec3(*q), kl.vec3(*q)).trace(),
        lambda s, q: kl.transform(kl.vec3(*q), kl.quat(q[0], q[1], q[2], 1.0)).q.x,
        lambda s, q: set_in(kl.vec3(), lambda v: setattr(v, "xy", kl.vec2(s[0], 1.0))).x,
        lambda s, q: set_in(kl.vec3(), lambda v: v[1:].__setitem__(0, s[0])).y,
        lambda s, q: set_in(kl.vec3(), lambda v: v.fill(s[0])).y,
        lambda s, q: set_in(kl.vec3(), lambda v: np.add(v, s[0], out=v)).y,
        lambda s, q: set_in(kl.mat33(), lambda m: m[0].__setitem__(1, s[0]))[0, 1],
        lambda s, q: set_in(kl.transform(), lambda t: setattr(t.p, "x", s[0])).p.x,
        lambda s, q: set_in(kl.transform(), lambda t: setattr(t.q, "x", s[0])).q.x,
        *(
            lambda s, q, way=way, of=of: set_in(kl.mat33(1.0), lambda m: way(of(m), q.numpy()))[0, 0]
            for way in PUT
            for of in VIEWS
        ),
    ],
)
def test_components_of_vectors_matrices_and_transforms_are_reported(
    number: Callable[[Any, Any], Any],
) -> None:
    (text,) = told_of(by_number(number))
    assert "no gradient flows from" in text and "the host took" in text


def test_vectors_of_other_numbers_beside_them_are_silent() -> None:
    def use(x: Any, s: Any, q: Any, y: Any) -> None:
        taken, m = kl.vec3(*q), kl.mat33(1.0)
        row, copy = m[0], m[1].copy()
        copy[0] = taken[0]
        kernels["scaled"][3](x, row[0] + m.T[1, 1] + np.zeros_like(taken)[0], y)

    assert told_of(use) == []


def test_components_and_vectors_of_a_leaf_are_reported() -> None:
    p = kl.array([[1.0, 2.0, 3.0]], dtype=kl.vec3, requires_grad=True)
    for number in (lambda: 0.1 * p[0].x, lambda: kl.length(p[0]), lambda: p[0][1], lambda: p.list()[0].y):
        assert len(told_of(by_number(lambda s, q, number=number: number()))) == 1


def test_numbers_in_structs_are_reported() -> None:
    def one(stiffness: Any) -> Any:
        return Spring(stiffness, kl.vec3(1.0, 0.0, 0.0))

    def of_list(x: Any, s: Any, q: Any, y: Any) -> None:
        kernels["pulled"][3](x, kl.array([one(0.1 * s.item())] * 3, dtype=Spring), y)

    def of_field(x: Any, s: Any, q: Any, y: Any) -> None:
        springs = kl.array([one(1.0)] * 3, dtype=Spring)
        springs["stiffness"].fill_(0.1 * s.item())
        kernels["pulled"][3](x, springs, y)

    def of_element(x: Any, s: Any, q: Any, y: Any) -> None:
        springs = kl.array([one(1.0)] * 3, dtype=Spring)
        springs[1] = one(0.1 * s.item())
        kernels["pulled"][3](x, springs, y)

    def read(x: Any, s: Any, q: Any, y: Any) -> None:
        springs = kl.array([one(1.5)] * 3, dtype=Spring, requires_grad=True)
        kernels["scaled"][3](x, springs[0].stiffness, y)

    for use in (of_list, of_field, of_element, read):
        assert len(told_of(use)) == 1
    constant = kl.array([one(0.5)] * 3, dtype=Spring)
    assert told_of(lambda x, s, q, y: kernels["pulled"][3](x, constant, y)) == []


@pytest.mark.parametrize(
    "copied",
    [
        lambda springs: kl.array(springs, dtype=Spring),
        lambda springs: kl.array([springs], dtype=Spring)[0],
        lambda springs: kl.zeros((1, 3), dtype=Spring).assign([springs])[0],
    ],
)
def test_structs_that_the_host_copies_from_array_to_array_are_reported(copied: Callable[[Any], Any]) -> None:
    def use(x: Any, s: Any, q: Any, y: Any) -> None:
        springs = kl.full(3, Spring(1.0, kl.vec3(1.0)), dtype=Spring, requires_grad=True)
        springs["stiffness"] = q
        kernels["pulled"][3](x, copied(springs), y)

    (text,) = told_of(use)
    assert "no gradient flows from" in text and "the host took" in text


def test_a_number_inside_a_checkpoint_is_reported() -> None:
    def scale(x: Any, s: Any) -> Any:
        y = kl.zeros(3, requires_grad=True)
        kernels["scaled"][3](x, 0.1 * s.item(), y)
        return y

    assert len(told_of(lambda x, s, q, y: kl.checkpoint(scale, x, s))) == 1


def into_a_checkpoint(x: Any, s: Any, q: Any, y: Any) -> Any:
    factor = 0.1 * s.item()
    return kl.checkpoint(lambda x: x * factor, x)


def into_a_checkpoint_as_a_constant(x: Any, s: Any, q: Any, y: Any) -> Any:
    factor = 0.1 * s.item()
    return kl.checkpoint(lambda x: kl.map(lambda v: v * factor, x), x)


def into_a_checkpoint_without_origin(x: Any, s: Any, q: Any, y: Any) -> Any:
    held = filled_one_by_one(q)
    return kl.checkpoint(lambda x: x * kl.array(held), x)


def out_of_a_checkpoint(x: Any, s: Any, q: Any, y: Any) -> Any:
    factors = []

    def doubled(x: Any) -> Any:
        twice = 2.0 * x
        factors.append(0.1 * twice.numpy())
        return twice

    return kl.checkpoint(doubled, x) * factors[0]


@pytest.mark.parametrize(
    "use",
    [
        into_a_checkpoint,
        into_a_checkpoint_as_a_constant,
        into_a_checkpoint_without_origin,
        out_of_a_checkpoint,
    ],
)
def test_a_number_that_enters_or_leaves_a_checkpoint_is_reported(use: Use) -> None:
    assert len(told_of(use)) == 1


def test_data_of_a_checkpoint_that_were_there_before_a_look_are_silent() -> None:
    def weighted(x: Any) -> Any:
        twice = x * kl.array(np.array([1.0, 2.0, 3.0], np.float32))
        assert twice.numpy().max() > 0.0
        return twice

    assert told_of(lambda x, s, q, y: kl.checkpoint(weighted, x)) == []


# ------------------------------------------------------------------------------------------ by order


def filled_one_by_one(q: Any) -> Any:
    held = np.zeros(3, np.float32)
    for i, value in enumerate(q.numpy()):
        held[i] = 0.7 * value
    return held


def looked_at(values: Any, data: Any) -> Any:
    assert values.max() > 0.0
    return data


DRAWN = np.array([0.3, 0.1, 0.7], np.float32)


class Labelled:
    """Values of another library, such as a Series of pandas."""

    def __init__(self, values: Any) -> None:
        self.values = np.array(values.tolist(), np.float32)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.values


@pytest.mark.parametrize(
    "values",
    [
        lambda s, q: kl.array(filled_one_by_one(q)),
        lambda s, q: filled_one_by_one(q),
        lambda s, q: kl.from_numpy(filled_one_by_one(q)),
        lambda s, q: kl.zeros(3).assign(filled_one_by_one(q)),
        lambda s, q: kl.array(np.float32(0.7) * np.asarray(q)),
        lambda s, q: kl.array([math.sqrt(s.item())] * 3),
        lambda s, q: kl.array([float(s), 0.0, 0.0]),
        lambda s, q: kl.array(looked_at(q.numpy(), DRAWN)),
        lambda s, q: kl.clone(kl.array(looked_at(q.numpy(), DRAWN))),
        lambda s, q: kl.array(deque(q.numpy())),
        lambda s, q: kl.array(typed_array("f", q.numpy())),
        lambda s, q: kl.array(memoryview(filled_one_by_one(q))),
        lambda s, q: kl.array([deque(q.numpy())]).reshape(3),
        lambda s, q: kl.array(Labelled(q.numpy())),
        lambda s, q: kl.zeros(3).assign(Labelled(filled_one_by_one(q))),
    ],
)
def test_an_array_made_of_host_data_after_a_look_is_reported(values: Callable[[Any, Any], Any]) -> None:
    (text,) = told_of(by_array(values))
    assert "no gradient flows through" in text
    assert "the host made its values after it had taken those of" in text
    assert "the host took" in text and "reads them here:" in text


def test_in_a_loop_the_array_is_reported_once() -> None:
    def use(x: Any, s: Any, q: Any, y: Any) -> Any:
        for _ in range(3):
            noise = kl.array(looked_at(x.numpy(), DRAWN))
            y = kl.zeros(3, requires_grad=True)
            kernels["weighted"][3](x, noise, y)
            x = y
        return y

    (text,) = told_of(use)
    assert "noise = kl.array(looked_at(x.numpy(), DRAWN))" in text


def made_first(x: Any, s: Any, q: Any, y: Any) -> None:
    noise = kl.array(DRAWN)
    kernels["weighted"][3](x, looked_at(q.numpy(), noise), y)


def used_before(x: Any, s: Any, q: Any, y: Any) -> None:
    for _ in range(2):
        kernels["weighted"][3](x, DRAWN, y)
        assert y.numpy().max() > 0.0


def with_gradients_of_its_own(x: Any, s: Any, q: Any, y: Any) -> None:
    noise = kl.array(looked_at(q.numpy(), DRAWN), requires_grad=True)
    kernels["weighted"][3](x, noise, y)


def of_detached_values(x: Any, s: Any, q: Any, y: Any) -> None:
    constant = kl.clone(q, requires_grad=False)
    kernels["weighted"][3](x, kl.array(looked_at(q.numpy(), 2.0 * constant.numpy())), y)


def after_a_look_at_detached_values(x: Any, s: Any, q: Any, y: Any) -> None:
    kernels["weighted"][3](x, kl.array(looked_at(kl.clone(q, requires_grad=False).numpy(), DRAWN)), y)


def of_integers(x: Any, s: Any, q: Any, y: Any) -> None:
    kernels["weighted"][3](x, kl.array(looked_at(q.numpy(), [1, 0, 2]), dtype=float), y)


def of_an_array(x: Any, s: Any, q: Any, y: Any) -> None:
    kernels["weighted"][3](x, looked_at(q.numpy(), kl.array(constant)), y)


def unread(x: Any, s: Any, q: Any, y: Any) -> None:
    unused = kl.array(looked_at(q.numpy(), DRAWN))
    kernels["weighted"][3](x, unused, kl.zeros(3))
    kernels["scaled"][3](x, 0.3, y)


def filled_with_a_number(x: Any, s: Any, q: Any, y: Any) -> None:
    kernels["weighted"][3](x, looked_at(q.numpy(), kl.full(3, 0.3)), y)


constant = kl.array([0.3, 0.1, 0.7])


@pytest.mark.parametrize(
    "use",
    [
        made_first, used_before, with_gradients_of_its_own, of_detached_values,
        after_a_look_at_detached_values, of_integers, of_an_array, unread, filled_with_a_number,
    ],
)  # fmt: skip
def test_other_arrays_are_silent(use: Use) -> None:
    assert told_of(use) == []


BY_VIEW: dict[str, Callable[[Any, Any, Any, int], Any]] = {
    "a view": lambda x, w, y, row: kernels["weighted"][3](x, w[row], y),
    "the whole": lambda x, w, y, row: kernels["weighted_by_row"][3](x, w, row, y),
    "a part of columns": lambda x, w, y, row: kernels["weighted"][2](x, w[row, 1:], y),
}
INTO_ROW_1: list[Callable[[Any, Any], Any]] = [
    lambda w, n: w[1].assign(n),
    lambda w, n: w.__setitem__((slice(1, 2), slice(None)), n[None]),
    lambda w, n: w.__setitem__((1, slice(1, None)), n[1:]),
    lambda w, n: w[1].fill_(n[0]),
]


@pytest.mark.parametrize("needs_gradients", [False, True])
@pytest.mark.parametrize("into", INTO_ROW_1)
@pytest.mark.parametrize("way", BY_VIEW)
@pytest.mark.parametrize("row", [0, 1])
def test_a_row_that_the_host_wrote_is_reported_where_it_is_read(
    row: int, way: str, into: Callable[[Any, Any], Any], needs_gradients: bool
) -> None:
    """Another row is silent, also where the host writes that first, or later, from elsewhere."""

    def use(x: Any, s: Any, q: Any, y: Any) -> None:
        w = kl.ones((3, 3), requires_grad=needs_gradients)
        w[0].assign(np.full(3, 2.0))
        into(w, q.numpy())
        w[2].assign(q.numpy())
        BY_VIEW[way](x, w, y, row)

    assert len(told_of(use)) == row


@pytest.mark.parametrize("needs_gradients", [False, True])
@pytest.mark.parametrize("others", [1, 15, 40])
def test_rows_that_the_host_writes_later_hide_none_before(others: int, needs_gradients: bool) -> None:
    """Nor do those of many lines, of which not each is told from the rest."""

    def use(x: Any, s: Any, q: Any, y: Any) -> None:
        w = kl.ones((others + 2, 3), requires_grad=needs_gradients)
        w[1].assign(q.numpy())
        for k in range(others):
            w[k + 2].assign(np.full(3, 2.0))
        kernels["weighted"][3](x, w[1], y)

    assert any("no gradient flows from" in text for text in told_of(use))


def only_printed(x: Any, s: Any, q: Any, y: Any) -> None:
    shown = io.StringIO()
    print(math.sqrt(s.item()), float(s), np.asarray(q).sum(), file=shown)
    kernels["scaled"][3](x, 1.0 / 3.0, y)


def through_math(x: Any, s: Any, q: Any, y: Any) -> None:
    kernels["scaled"][3](x, math.sqrt(s.item()), y)


def of_equal_value(x: Any, s: Any, q: Any, y: Any) -> None:
    assert s.item() == float(s)
    kernels["scaled"][3](x, float(repr(float(s))), y)


@pytest.mark.parametrize("use", [only_printed, through_math, of_equal_value])
def test_a_number_that_carries_no_origin_is_silent(use: Use) -> None:
    """Python's own conversions are not followed, and no number is matched by its value: the docs say so."""
    assert told_of(use) == []


# ------------------------------------------------------------------------------------------ as plain ones


@pytest.mark.parametrize("kind", [complex, np.complex64, np.complex128])
def test_a_complex_number_that_remembers_looks_and_travels_like_a_plain_one(kind: Any) -> None:
    with kl.Tape() as tape:
        one = kl.clone(kl.array([1.5], requires_grad=True)).numpy().astype(np.complex128)
    assert tape is not None  # what has an origin keeps it as long as the tape is there
    plain = kind(1.5 + 2.0j)
    value = one.tolist()[0] + 2.0j if kind is complex else (one + 2.0j).astype(kind)[0]
    assert type(value) is not kind and isinstance(value, kind)
    assert value == plain and hash(value) == hash(plain) and complex(value) == 1.5 + 2.0j
    assert repr(value) == repr(plain) and f"{value:.2f}" == f"{plain:.2f}"
    assert type(pickle.loads(pickle.dumps(value))) is kind and copy.deepcopy(value) is value


def test_flat_of_an_array_that_remembers_is_what_that_of_a_plain_one_is() -> None:
    values, plain = viewed(), np.array([1.5, 2.5, 3.5], np.float32)
    flat = values.flat
    assert len(flat) == 3 and flat.base is values and next(flat) == 1.5
    assert (flat.index, flat.coords) == (1, (1,)) and list(flat) == [2.5, 3.5]
    assert np.array_equal(np.asarray(values.flat), plain) and np.array_equal(np.array(values.flat), plain)
    assert (values.flat == plain).all() and ((values.flat < 2.0) == (plain.flat < 2.0)).all()
    values.flat[1:] = values.flat[0]
    assert values.tolist() == [1.5, 1.5, 1.5]
    values.flat = plain
    assert values.tolist() == plain.tolist()


def viewed() -> Any:
    with kl.Tape():
        return kl.array([1.5, 2.5, 3.5], requires_grad=True).numpy()


def test_an_array_that_remembers_looks_and_travels_like_a_plain_one() -> None:
    values, plain = viewed(), np.array([1.5, 2.5, 3.5], np.float32)
    assert isinstance(values, np.ndarray) and values.base is not None
    for shown in (repr, str, "{}".format, np.array2string):
        assert shown(values) == shown(plain)
    assert json.dumps(values.tolist()) == "[1.5, 2.5, 3.5]"
    assert type(pickle.loads(pickle.dumps(values))) is np.ndarray
    assert repr(values[0]) == repr(plain[0]) and f"{values[0]:.2f}" == "1.50"
    assert hash(values[0]) == hash(plain[0]) and {values[0]: 1}[plain[0]] == 1
    assert type(copy.deepcopy(values[0])) is type(pickle.loads(pickle.dumps(values[0]))) is np.float32
    assert (values == plain).all() and type(values == plain) is type(values > 2.0) is np.ndarray
    assert type(values.argmax()) is np.int64
    assert values.astype(int).tolist() == [1, 2, 3]
    np.testing.assert_array_equal(values, plain)
    file = io.BytesIO()
    np.save(file, values)
    file.seek(0)
    np.testing.assert_array_equal(np.load(file), plain)


@pytest.mark.parametrize(
    "compute",
    [
        lambda a: a.mean(), lambda a: a.std(), lambda a: a.sum(), lambda a: a[0] * 2, lambda a: 2.0 * a,
        lambda a: a / np.float64(3), lambda a: np.sqrt(a), lambda a: a @ a, lambda a: a[0] / 3,
        lambda a: np.float64(2) * a[0], lambda a: a.max() ** 2, lambda a: divmod(a[0], 2), lambda a: -a[1],
        lambda a: a[0].item() * np.float64(2), lambda a: np.linalg.norm(a), lambda a: round(a[0], 1),
        lambda a: a[0] + [1, 2], lambda a: a[0] * 1j, lambda a: 1j * a[1].item(),
        lambda a: np.add.accumulate(a), lambda a: np.modf(a)[1], lambda a: a[0] == 1,
    ],
)  # fmt: skip
def test_what_is_computed_of_it_is_the_same_as_of_a_plain_one(compute: Callable[[Any], Any]) -> None:
    found, wanted = compute(viewed()), compute(np.array([1.5, 2.5, 3.5], np.float32))
    np.testing.assert_array_equal(found, wanted)
    assert np.result_type(*np.atleast_1d(found)) == np.result_type(*np.atleast_1d(wanted))
    assert isinstance(found, type(wanted))


def test_outside_of_a_tape_it_is_a_plain_one() -> None:
    x = kl.array([1.0, 2.0], requires_grad=True)
    assert type(x.numpy()) is type(np.sin(x)) is np.ndarray
    assert type(x[0]) is type(np.sum(x)) is np.float32
    with kl.Tape():
        assert type(kl.array([1.0]).numpy()) is np.ndarray


def test_what_is_written_through_it_changes_the_array() -> None:
    x = kl.array([1.0, 2.0], requires_grad=True)
    with kl.Tape():
        view = x.numpy()
        view[0] = 5.0
        view *= 2.0
    assert x.list() == [10.0, 4.0]


# ------------------------------------------------------------------------------------------ earlier views


BY_A_VIEW: dict[str, Callable[[Any], Any]] = {
    "a copy": lambda view: kl.array(view.copy()),
    "as it is": kl.array,
    "computed": lambda view: kl.array(2.0 * view + 1.0),
    "assigned": lambda view: kl.zeros(3).assign(view.copy()),
}


@pytest.mark.parametrize("needs_gradients", [True, False])
@pytest.mark.parametrize("is_early", [True, False], ids=["before the tape", "on the tape"])
@pytest.mark.parametrize("how", BY_A_VIEW)
def test_what_a_launch_writes_below_an_earlier_view_is_reported(
    how: str, is_early: bool, needs_gradients: bool
) -> None:
    early = kl.zeros(3, requires_grad=needs_gradients)
    view = early.numpy() if is_early else None

    def use(x: Any, s: Any, q: Any, y: Any) -> Any:
        z = early if is_early else kl.zeros(3, requires_grad=needs_gradients)
        seen = z.numpy() if view is None else view
        kernels["square"][3](x, z)
        return x * BY_A_VIEW[how](seen)

    assert len(told_of(use)) == 1


@pytest.mark.parametrize("needs_gradients", [True, False])
def test_so_is_what_a_checkpoint_writes_below_one(needs_gradients: bool) -> None:
    early = kl.zeros(3, requires_grad=needs_gradients)
    view = early.numpy()

    def use(x: Any, s: Any, q: Any, y: Any) -> Any:
        kl.checkpoint(lambda x: kl.copy(early, x * x), x)
        return x * kl.array(view.copy())

    assert len(told_of(use)) == 1


@pytest.mark.parametrize("how", BY_A_VIEW)
@pytest.mark.parametrize("mode", ["grad", "jvp"])
def test_so_it_is_in_a_transform(mode: str, how: str) -> None:
    def function(x: Any) -> Any:
        z = kl.zeros(3)
        view = z.numpy()
        kernels["square"][3](x, z)
        return (x * BY_A_VIEW[how](view)).sum()

    x = kl.array([1.1, 2.3, 3.7])
    with pytest.warns(kl.KernelWarning, match="no gradient flows"):
        kl.func.grad(function)(x) if mode == "grad" else kl.func.jvp(function, (x,), (kl.ones(3),))


def test_a_view_that_is_only_looked_at_or_has_gone_is_silent() -> None:
    def use(x: Any, s: Any, q: Any, y: Any) -> None:
        z = kl.zeros(3, requires_grad=True)
        view = z.numpy()
        kernels["square"][3](x, z)
        assert view[0] > 1.0
        kernels["scaled"][3](z, 2.0, y)

    early = kl.zeros(3, requires_grad=True)
    early.numpy()[0] = 1.0

    def without(x: Any, s: Any, q: Any, y: Any) -> Any:
        kernels["square"][3](x, early)
        return early * kl.array([1.0, 2.0, 3.0])

    assert told_of(use) == [] == told_of(without)


@pytest.mark.parametrize("is_keyword", [False, True])
def test_a_number_that_is_the_default_of_a_mapped_function_is_told_each_time(is_keyword: bool) -> None:
    def scaled(x: Any) -> Any:
        y = x * x
        by_keyword, by_position = lambda v, *, c=y[0]: v * c, lambda v, c=y[0]: v * c
        return kl.map(by_keyword if is_keyword else by_position, x).sum()

    x = kl.array([0.5, 1.2, 2.0], requires_grad=True)
    scaled(x)
    for _ in range(2):
        with kl.Tape() as tape:
            loss = scaled(x)
        with pytest.warns(kl.KernelWarning, match="the host took a number there"):
            tape.backward(loss)
    with pytest.warns(kl.KernelWarning, match="the host took a number there"):
        kl.func.grad(scaled)(x)
