"""Whole programs: host programs over in-place kernels, views, structs and checkpoints, to second order.

The tape, the tangent and the tangent of the gradient of each program are compared with central differences.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl

pytestmark = pytest.mark.slow

N = 6
START = np.array([0.7, -0.4, 1.3, 0.2, -0.9, 0.5])
DIRECTION = np.array([1.0, -0.5, 0.3, 0.7, -0.2, 0.4])
TEXT = """
@struct
class Body:
    q: vec3d
    w: float64
    h: mat22d

def start(a: array[Body], x: array[float64]):
    i = tid()
    a[i].w = x[i] + 0.5
    a[i].q = vec3d(x[i], x[i] * x[i], 0.3)

def push(a: array[Body], x: array[float64]):
    i = tid()
    a[i].q.x = x[i] * a[i].w
    a[i].h[0, 1] += x[i] * a[i].q.x
    t = a[i]
    t.q[2] = t.h[0, 1] * x[i]
    a[(i + 1) % 6].w = t.q[2] + a[i].w
    a[i] = t

def energy(a: array[Body], y: array[float64]):
    i = tid()
    y[i] = a[i].w * a[i].q.z + a[i].h[0, 1] * a[i].q.x

def square(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = x[i] * x[i] + 0.3 * x[i]

def bend(x: array[float64]):
    i = tid()
    x[i] = sin(x[i]) * x[i] + 0.5 * x[(i + 1) % x.shape[0]]

def exchange(x: array[float64], y: array[float64], z: array[float64]):
    i = tid()
    y[i] = x[i] * z[i]
    z[(i + 1) % 6] = y[i] + x[i]
    x[i] = z[i] * y[(i + 5) % 6]

def search(x: array[float64], y: array[float64]):
    i = tid()
    lo = int(0)
    hi = x.shape[0] - 1
    best = x[0]
    at = int(0)
    while lo <= hi:
        m = (lo + hi) // 2
        if x[m] > best:
            best = x[m]
            at = m
            lo = m + 1
        elif x[m] * x[m] < 0.1:
            hi -= 2
            continue
        else:
            hi = m - 1
            x[m] = x[m] * best
    y[i] += best * x[at] + float64(at)

def gather(x: array[float64], of: array[int], y: array[float64]):
    i = tid()
    y[i] += x[of[i]] * x[i]

def shuffle(of: array[int]):
    i = tid()
    of[i] = (of[i] * 5 + 1) % 6

def counters(x: array[float64], n: array[int], y: array[float64], s: array[float64]):
    i = tid()
    t = int(0)
    while t < 4:
        k = atomic_add(n, 0, 1)
        old = atomic_add(s, 0, x[i] * x[t])
        y[k % y.shape[0]] += old * x[i]
        if old > 1.5:
            t += 2
            continue
        m = atomic_max(s, 1, x[i] * old)
        y[t] = y[t] * m + old
        t += 1

def total(x: array[float64], s: array[float64]):
    s[0] += x[tid()] * x[tid()]
"""

PROGRAMS: dict[str, Callable[[Any], Any]] = {}
kernels: dict[str, Any] = kl.compile(TEXT)


def program(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PROGRAMS[function.__name__] = function
    return function


def made(n: Any = N) -> Any:
    return kl.zeros(n, kl.float64, requires_grad=True)


def run(name: str, threads: int, *arguments: Any) -> None:
    kernels[name][threads](*arguments)


def loss_of(y: Any) -> Any:
    loss = made(1)
    run("total", y.size, y, loss)
    return loss


@program
def structs_with_partial_writes(x: Any) -> Any:
    a, y, z = kl.zeros(N, kernels["Body"], requires_grad=True), made(), made()
    run("start", N, a, x)
    run("push", N, a, x)
    run("energy", N, a, y)
    run("start", 3, a, y[1:4])
    run("push", 5, a, y)
    run("energy", N, a, z)
    return loss_of(z)


@program
def a_search_that_changes_what_it_searches(x: Any) -> Any:
    a, y = kl.clone(x), made()
    a.requires_grad = True
    run("search", 2, a, y)
    run("search", 3, a, a)
    run("square", N, a, y)
    return loss_of(y)


@program
def indices_that_change_between_launches(x: Any) -> Any:
    of, y = kl.array([0, 3, 1, 5, 5, 2], dtype=int), made()
    for source in (x, y, x):
        run("gather", N, source, of, y)
        run("shuffle", N, of)
    of.fill_(1)
    return loss_of(y)


@program
def views_of_one_buffer(x: Any) -> Any:
    buffer = made(3 * N)
    kl.copy(buffer[:N], x)
    run("square", N, buffer[:N], buffer[N : 2 * N])
    run("bend", 4, buffer[1:5])
    run("square", N, buffer[3:9], buffer[2 * N :])
    run("bend", N, buffer[::3])
    run("square", 4, buffer[2:10:2], buffer[0:4])
    return loss_of(buffer)


@program
def picked_elements(x: Any) -> Any:
    a, y, z = made(8), made(4), made(4)
    kl.copy(a[1:7], x)
    picked = a[kl.array([1, 3, 5, 2], dtype=int)]
    run("square", 4, picked, y)
    run("bend", 4, picked)
    run("square", 4, picked, y[::-1])
    run("bend", N, a[1:7])
    run("square", 4, picked, z)
    return loss_of(z * y)


@program
def atomics_in_a_while_loop(x: Any) -> Any:
    counts, y, s = kl.zeros(1, dtype=int), made(5), made(2)
    run("square", 5, x[:5], y)
    run("counters", 3, x, counts, y, s)
    run("counters", 2, y, counts, y, s)
    return loss_of(y)


@program
def checkpoints_in_checkpoints(x: Any) -> Any:
    w, y = made(), made()

    def outer(a: Any, b: Any) -> None:
        t = made()
        run("exchange", N, a, t, b)

        def inner(q: Any) -> None:
            run("bend", N, q)
            run("exchange", N, q, b, t)

        kl.checkpoint(inner, a)
        run("square", N, t, b)

    run("square", N, x, w)
    kl.checkpoint(outer, w, y)
    w.fill_(0.3)
    kl.checkpoint(outer, y, w)
    return loss_of(w)


def given(values: np.ndarray[Any, Any], requires_grad: bool = False) -> Any:
    return kl.array(values, dtype=kl.float64, requires_grad=requires_grad)


def differences(of: Callable[[np.ndarray[Any, Any]], Any], along: np.ndarray[Any, Any]) -> Any:
    return (of(START + 1e-6 * along) - of(START - 1e-6 * along)) / 2e-6


@pytest.mark.parametrize("name", PROGRAMS)
def test_tape_tangent_and_second_derivative_agree_with_differences(name: str) -> None:
    compute = PROGRAMS[name]
    gradient = kl.func.grad(compute)
    x = given(START, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with kl.Tape() as tape:
            loss = compute(x)
        tape.backward(loss)
        _, slope = kl.func.jvp(compute, (given(START),), (given(DIRECTION),))
        first, second = kl.func.jvp(gradient, (given(START),), (given(DIRECTION),))

    def loss_at(point: np.ndarray[Any, Any]) -> Any:
        return compute(given(point)).item()

    def gradient_at(point: np.ndarray[Any, Any]) -> Any:
        return gradient(given(point)).numpy().copy()

    expected = [differences(loss_at, direction) for direction in np.eye(N)]
    np.testing.assert_allclose(x.grad.numpy(), expected, 1e-6, 1e-6 * np.abs(expected).max())
    np.testing.assert_allclose(first.numpy(), x.grad.numpy(), 1e-12)
    np.testing.assert_allclose(slope.item(), x.grad.numpy() @ DIRECTION, 1e-10)
    turned = differences(gradient_at, DIRECTION)
    np.testing.assert_allclose(second.numpy(), turned, 1e-5, 1e-5 * np.abs(turned).max())
