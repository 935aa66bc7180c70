"""Parameters that a function hands back: `x: ref[float]`."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl

Alias = kl.ref[kl.float32]


@kl.struct
class Body:
    mass: float
    place: kl.vec3


@kl.func
def add(x: kl.ref[float], d: float):  # type: ignore[no-untyped-def, valid-type]
    x += d


@kl.func
def add_twice(x: Alias, d: float):  # type: ignore[no-untyped-def, valid-type]
    add(x, d)
    add(d=d, x=x)


@kl.func
def swap(a: kl.ref[float], b: kl.ref[float]):  # type: ignore[no-untyped-def, valid-type]
    a, b = b, a


@kl.func
def grown(b: kl.ref[Body], steps: int) -> float:  # type: ignore[valid-type]
    before = b.mass
    for _ in range(steps):
        if b.mass > 50.0:
            return -1.0
        b.mass *= b.mass
        b.place.y += b.mass
    return before


@kl.kernel
def everything(x: kl.array[float], bodies: kl.array[Body], y: kl.array[float]):  # type: ignore[no-untyped-def]
    i = kl.tid()
    add_twice(x[i], 1.0)
    swap(x[i], bodies[i].place[0])
    total = x[i]
    if i > 0:
        for j in range(2):
            add(total, float(j) * x[i])
    before = grown(bodies[i], 2)
    body = bodies[i]
    before += grown(body, 1)
    y[i] = total * before + body.mass + body.place[1]


def arguments() -> tuple[Any, Any, Any]:
    bodies = kl.zeros(2, dtype=Body, requires_grad=True)
    numbers = np.zeros(2, dtype=bodies.numpy().dtype)
    numbers["mass"], numbers["place"] = [2.0, 1.5], [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    bodies.assign(numbers)
    x = kl.array([1.0, 2.0], dtype=float, requires_grad=True)
    return x, bodies, kl.zeros(2, requires_grad=True)


def test_variables_elements_components_and_structs_take_back_what_a_function_leaves() -> None:
    x, bodies, y = arguments()
    kl.launch(everything, 2, [x, bodies, y])
    assert x.list() == [1.0, 4.0]
    found = bodies.numpy()
    assert found["mass"].tolist() == [16.0, 1.5**4]
    assert found["place"][:, 0].tolist() == [3.0, 4.0]
    # The first: total 1, mass 2 -> 4 -> 16 and once more in the copy, place.y 2 + 4 + 16 and 256.
    assert y.list()[0] == (2.0 + 16.0) * 1.0 + 256.0 + (2.0 + 4.0 + 16.0 + 256.0)


def test_derivatives_follow_in_both_modes() -> None:
    x, bodies, y = arguments()
    assert kl.autograd.gradcheck(everything, 2, inputs=[x, bodies], outputs=[y])


def test_a_condition_may_be_such_a_call() -> None:
    kernel = kl.compile("""
def less(n: ref[int]) -> bool:
    n -= 1
    return n > 0
def kernel(y: array[int], n: int):
    while less(n):
        y[0] += 1
    if less(n):
        y[0] = 100
    y[1] = n
""")["kernel"]
    y = kl.zeros(2, dtype=int)
    kl.launch(kernel, 1, [y, 4])
    assert y.list() == [3, -1]


def test_elements_apart_from_what_else_a_call_changes_are_taken_as_they_stand() -> None:
    kernel = kl.compile("""
def step(n: ref[int], v: ref[float]) -> float:
    n += 1
    v += 1.0
    return v
def kernel(y: array[float], order: array[int]):
    k = int(0)
    total = float(0.0)
    total += step(k, y[order[1]])
    y[k] += step(order[k], total)
    v = vec3(1.0, 2.0, 3.0)
    v[0] += step(k, v[2])
    y[0] = v[0]
""")["kernel"]
    y, order = kl.zeros(3), kl.array([0, 2], dtype=int)
    kl.launch(kernel, 1, [y, order])
    assert (y.list(), order.list()) == ([5.0, 2.0, 1.0], [0, 3])


def test_ref_is_a_type_with_a_type() -> None:
    assert kl.ref[float] == kl.ref[float] != kl.ref[int]
    assert repr(kl.ref[kl.float32]) == "ref[float32]" and Alias.dtype == kl.float32
    assert len({kl.ref[float], kl.ref[float]}) == 1


def test_native_functions_hand_nothing_back() -> None:
    with pytest.raises(kl.KernelTypeError, match="native C\\+\\+ can hand nothing back by ref"):
        kl.compile(
            'TEXT = "x = 1.0;"\n@func_native(TEXT)\ndef f(x: ref[float]): ...\n'
            "def k(y: array[float]):\n    f(y[0])"
        )


def test_a_loop_whose_condition_changes_the_type_of_what_it_takes_back_is_refused() -> None:
    text = """
def less(n: ref[int]) -> bool:
    n -= 1.0
    return n > 0

def kernel(y: array[int], n: int):
    while less(n):
        y[0] += 1
"""
    with pytest.raises(kl.KernelTypeError, match="n is float32 here and int32 in line 6"):
        kl.compile(text)


HELPERS = """
class Counter:
    n: int
    x: float

def up(k: ref[int]):
    k += 1

def up_field(c: ref[Counter]):
    c.n += 1

def up_element(a: array[int]):
    a[0] = a[0] + 1

def below(k: ref[int], n: int) -> bool:
    k += 1
    return k < n

def up_to(k: ref[int], n: int):
    while k < n:
        up(k)

def up_to_or(k: ref[int], n: int):
    while k < n:
        if k == 100:
            break
        k += 1
    else:
        k += 10

def up_for_ever(k: ref[int], n: int):
    while True:
        k += 1
        if k >= n:
            return

def kernel(a: array[int], n: int, y: array[float]):
    y[0] = 0.0
"""


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("k = 0\nwhile k < n:\n    up(k)\ny[0] = float(k)", 5),
        ("while n > 2:\n    up(n)\n    n -= 2\ny[0] = float(n)", 2),
        ("k = 0\nwhile k < n:\n    b = below(k, 3)\n    y[0] += 1.0", 5),
        ("k, j = 0, 0\nwhile k < n:\n    k = j\n    up(j)\ny[0] = float(j)", 6),
        ("k = 0\nwhile True:\n    up(k)\n    if k > n:\n        break\ny[0] = float(k)", 6),
        ("c = Counter()\nwhile c.n < n:\n    up_field(c)\ny[0] = float(c.n)", 5),
        ("c = Counter()\nwhile c.n < n:\n    up(c.n)\ny[0] = float(c.n)", 5),
        ("v = vec2i()\nwhile v.y < n:\n    up(v[1])\ny[0] = float(v.y)", 5),
        ("v = zeros(2, dtype=int)\nwhile v[0] < n:\n    up(v[0])\ny[0] = float(v[0])", 5),
        ("while a[0] < n:\n    up(a[0])\ny[0] = float(a[0])", 5),
        ("while a[0] < n:\n    up_element(a)\ny[0] = float(a[0])", 5),
        ("b = a[1:]\nwhile a[1] < n:\n    up_element(b)\ny[0] = float(b[0])", 5),
        ("k = 0\nwhile k < n:\n    k = atomic_add(a, 0, 1)\ny[0] = float(a[0])", 6),
        ("while a[0] < n:\n    atomic_add(a, 0, 1)\ny[0] = float(a[0])", 5),
        ("k = 0\nup_to(k, n)\ny[0] = float(k)", 5),
        ("k = 0\nup_to_or(k, n)\ny[0] = float(k)", 15),
        ("k = 0\nup_for_ever(k, n)\ny[0] = float(k)", 5),
    ],
)
def test_a_loop_ends_whose_condition_a_called_function_changes(body: str, left: float) -> None:
    text = HELPERS + "".join(f"    {line}\n" for line in body.split("\n"))
    y = kl.zeros(1, dtype=float)
    kl.compile(text)["kernel"][1](kl.zeros(2, dtype=int), 5, y)
    assert y.list() == [left]
