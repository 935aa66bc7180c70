"""Structs, vectors and matrices go into functions as copies, in kernels and where Python calls a function.

Warnings say where a part of a copy is assigned that nobody reads, be it of an argument or of an element,
where nobody takes what a function makes of its copy, and where a call draws random numbers from a copy of
a state from which the caller draws again.
"""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import Diagnostic
from tests.frontend.helpers import cell


@kl.struct
class Part:
    place: kl.vec3
    mass: float


@kl.struct
class Whole:
    part: Part
    turn: kl.mat22


@kl.func
def heavier(w: Whole, by: float):  # type: ignore[no-untyped-def]
    w.part.mass += by
    w.part.place[0] = by
    w.turn[0, 1] = by
    return w.part.mass + w.part.place[0] + w.turn[0, 1]


@kl.func
def outer(w: Whole, by: float):  # type: ignore[no-untyped-def]
    return heavier(w, by) + w.part.mass


@kl.func
def first_set(v: kl.vec3, m: kl.mat22):  # type: ignore[no-untyped-def]
    v[0] = 7.0
    m[1, 0] = 9.0
    return v[0] + m[1, 0]


@kl.func
def handed_back(v: kl.ref[kl.vec3], w: kl.vec3):  # type: ignore[no-untyped-def, valid-type]
    v[0] = 7.0
    w[0] = 8.0
    return w[0]


def wholes() -> Any:
    return Whole(part=Part(place=kl.vec3(1.0, 2.0, 3.0), mass=4.0))


@kl.kernel
def in_a_kernel(w: Whole, y: kl.array[float]):  # type: ignore[no-untyped-def]
    y[0] = outer(w, 2.0)
    y[1] = w.part.mass + w.part.place[0] + w.turn[0, 1]
    v, m = kl.vec3(1.0, 2.0, 3.0), kl.mat22(0.0)
    y[2] = first_set(v, m)
    y[3] = v[0] + m[1, 0]
    u = kl.vec3(1.0, 2.0, 3.0)
    y[4] = handed_back(v, u)
    y[5] = v[0] + u[0]


def test_a_call_from_python_leaves_what_a_call_in_a_kernel_leaves() -> None:
    y, whole = kl.zeros(6, dtype=float), wholes()
    in_a_kernel[1](whole, y)
    here = [outer(whole, 2.0), whole.part.mass + whole.part.place[0] + whole.turn[0, 1]]
    v, m, u = kl.vec3(1.0, 2.0, 3.0), kl.mat22(0.0), kl.vec3(1.0, 2.0, 3.0)
    here += [first_set(m=m, v=v), v[0] + m[1, 0], handed_back(v, u), v[0] + u[0]]
    assert here == y.list() == [14.0, 5.0, 16.0, 1.0, 8.0, 8.0]


def test_an_element_of_an_array_goes_in_as_a_copy_that_can_be_changed() -> None:
    places = kl.array(np.ones((1, 3)), dtype=kl.vec3)
    assert first_set(places[0], kl.mat22(0.0)) == 16.0
    assert places.numpy().tolist() == [[1.0, 1.0, 1.0]]


STRUCTS = """
class Part:
    place: vec3
    mass: float
    counts: array[float]

class Whole:
    part: Part

"""
ELEMENTS = """
class Ball:
    place: vec3
    mass: float

def k(p: array[Ball], x: array[vec3], a: array2d[float], y: array[float]):
    i = tid()
    y[i] = 0.0
"""
KERNEL = """
def kernel(y: array[float]):
    y[0] = 1.0
"""


def warned(text: str) -> list[Diagnostic]:
    return [note for note in cell(STRUCTS + text + KERNEL).diagnostics if note.code == "unused"]


@pytest.mark.parametrize(
    ("parameter", "line", "hint"),
    [
        ("p: Part", "p.mass = 3.0", "return p; or write p: ref[Part], which hands it back to the caller"),
        ("p: Part", "p.place[0] += 3.0", "p: ref[Part]"),
        ("p: Part", "p.place.x = 3.0", "p: ref[Part]"),
        ("p: Whole", "p.part.mass = 3.0", "p: ref[Whole]"),
        ("p: vec3", "p[0] = 3.0", "p: ref[vec3]"),
        ("p: vec3", "p.x += 3.0", "p: ref[vec3]"),
        ("p: mat22", "p[0, 1] = 3.0", "p: ref[mat22]"),
        ("p: Part", "p.mass = 2.0 * p.mass", "p: ref[Part]"),
        ("p: Part", "p.place = normalize(p.place) * exp(p.mass)", "p: ref[Part]"),
        ("p: vec3", "p[0] = p[1]", "p: ref[vec3]"),
    ],
)
def test_a_part_of_a_copy_that_nothing_reads_is_warned_of(parameter: str, line: str, hint: str) -> None:
    (note,) = warned(f"@func\ndef f({parameter}, y: array[float]):\n    {line}\n    y[0] = 2.0\n")
    target = line.split("=")[0].rstrip("+ ")
    assert note.severity == "warning" and note.span is not None
    assert note.message == f"{target} is assigned in the own copy of p, and nothing reads it"
    assert note.span.line == 12 and hint in note.hint


def test_in_a_kernel_the_hint_is_an_array() -> None:
    (note,) = warned("def k(p: Part, y: array[float]):\n    p.mass = 3.0\n    y[0] = 2.0\n")
    assert note.hint == "annotate p: array[Part], and assign to a part of p[i]"


@pytest.mark.parametrize(
    "text",
    [
        "def f(p: Part) -> Part:\n    p.mass = 3.0\n    return p\n",
        "def f(p: Part) -> float:\n    p.mass = 3.0\n    return 2.0 * p.mass\n",
        "def f(p: ref[Part]):\n    p.mass = 3.0\n",
        "def f(p: Part) -> float:\n    p.mass = 2.0 * p.mass\n    return p.mass\n",
        "def f(p: Part, y: array[float]):\n    p.mass = atomic_add(y, 0, p.mass)\n",
        "def f(p: array[Part]):\n    p[0].mass = 3.0\n",
        "def f(p: array[vec3]):\n    p[0][1] = 3.0\n",
        "def f(p: Part):\n    p.counts[0] = 3.0\n",
        "def f(p: Whole):\n    p.part.counts[0] += 3.0\n",
        "def f(y: array[float]):\n    p = vec3()\n    p[0] = 3.0\n    y[0] = p[0]\n",
    ],
)
def test_what_is_read_handed_back_or_stored_is_silent(text: str) -> None:
    assert warned("@func\n" + text) == []


@pytest.mark.parametrize(
    ("lines", "part", "hint"),
    [
        ("q = p[i]\nq.mass = 3.0", "q.mass", "assign to p[i].mass; or store the copy: p[i] = q"),
        ("q = p[i]\nq.mass += 3.0", "q.mass", "p[i] = q"),
        ("q = p[i]\ny[i] = q.mass\nq.mass = 2.0 * q.mass", "q.mass", "p[i] = q"),
        ("v = p[i].place\nv.x = 3.0", "v.x", "assign to p[i].place.x"),
        ("v = x[i]\nv += vec3(1.0)", "v", "assign to x[i]; or store the copy: x[i] = v"),
        ("m = mat33()\nrow = m[0]\nrow[1] = 2.0\ny[i] = m[0, 1]", "row[1]", "m[0] = row"),
        ("for q in p:\n    q.mass = 3.0", "q.mass", "for k in range(len(p)):, and assign to p[k].mass"),
        ("if i > 0:\n    q = p[i]\n    q.mass = 3.0", "q.mass", "p[i] = q"),
    ],
)
def test_a_copy_of_an_element_that_changes_and_is_not_stored_is_warned_of(
    lines: str, part: str, hint: str
) -> None:
    (note,) = warned(ELEMENTS + "".join(f"    {line}\n" for line in lines.splitlines()))
    assert note.message.startswith(f"{part} is assigned in a copy of ") and hint in note.hint


@pytest.mark.parametrize(
    "lines",
    [
        "q = p[i]\nq.mass = 3.0\np[i] = q",
        "q = p[i]\nq.mass = 3.0\ny[i] = q.mass",
        "q = p[i]\nif y[i] > 0.0:\n    q.mass = 3.0\np[i] = q",
        "q = p[i]\nfor k in range(3):\n    y[i] += q.mass\n    q.mass = q.mass + 1.0",
        "q = p[i]\nfor k in range(3):\n    if y[k] > 0.0:\n        break\nelse:\n    q.mass = 2.0\np[i] = q",
        "q = p[i]\nr = p[0]\nq.mass, r.mass = r.mass, q.mass\np[i] = q\np[0] = r",
        "v = x[i]\nfor k in range(3):\n    v += x[k]\ny[i] = v.x",
        "n = 0\nfor k in range(3):\n    n += 1\ny[i] = 1.0",
        "row = a[i]\nrow[0] = 2.0",
        "p[i].mass = 2.0\nx[i].y += 1.0",
    ],
)
def test_a_copy_of_an_element_that_is_read_or_stored_is_silent(lines: str) -> None:
    assert warned(ELEMENTS + "".join(f"    {line}\n" for line in lines.splitlines())) == []


def test_a_decorated_function_is_warned_of_when_a_kernel_first_calls_it() -> None:
    @kl.func
    def lost(v: kl.vec3, y: kl.array[float]):  # type: ignore[no-untyped-def]
        v[0] = 3.0
        y[0] = 1.0

    @kl.kernel
    def calling(y: kl.array[float]):  # type: ignore[no-untyped-def]
        lost(kl.vec3(1.0, 2.0, 3.0), y)

    with pytest.warns(kl.KernelWarning, match=r"(?s)v\[0\] is assigned in the own copy of v.*ref\[kl.vec3\]"):
        calling[1](kl.zeros(1, dtype=float))


CALLED = """
def faster(v: vec3):
    v *= 2.0
    return v

def fill(y: array[float], v: vec3):
    y[0] = v.x
    return v

def deep(y: array[float], v: vec3):
    return fill(y, v)

def checked(v: vec3):
    assert v.x > 0.0
    return v

def said(v: vec3):
    print(v.x)
    return v

def handing(v: ref[vec3]):
    v *= 2.0
    return v.x

def kernel(x: array[vec3], y: array[float]):
    v = x[tid()]
"""


@pytest.mark.parametrize("call", ["faster(v)", "faster(2.0 * v)", "faster(v=v)"])
def test_a_call_whose_result_nobody_takes_and_that_does_nothing_else_is_warned_of(call: str) -> None:
    notes = cell(f"{CALLED}    {call}\n    y[0] = v.x\n").diagnostics
    assert [note.message for note in notes] == ["this call has no effect"]


@pytest.mark.parametrize(
    "call",
    [
        "fill(y, v)",
        "deep(y, v)",
        "checked(v)",
        "said(v)",
        "handing(v)",
        "fill(y, faster(v))",
        "faster(fill(y, v))",
    ],
)
def test_a_call_that_does_something_is_silent(call: str) -> None:
    assert not cell(f"{CALLED}    {call}\n    y[1] = v.x\n").diagnostics


DRAWING = """
def draw(own: uint32):
    return randf(own)

def deep(state: uint32):
    return 2.0 * draw(state)

def back(state: uint32):
    u = randf(state)
    return u, state

def handing(state: ref[uint32]):
    return randf(state)

def kernel(y: array[float], n: int):
    state = rand_init(3, tid())
"""


def repeated(lines: str) -> list[Diagnostic]:
    """The warnings of lines of a kernel that draw from a copy."""
    text = DRAWING + "".join(f"    {line}\n" for line in lines.splitlines())
    return [note for note in cell(text).diagnostics if "own copy" in note.message]


@pytest.mark.parametrize(
    "lines",
    [
        "y[0] = draw(state) + draw(state)",
        "y[0] = draw(state)\ny[1] = randf(state)",
        "y[0] = deep(state)\ny[1] = draw(state)",
        "for k in range(n):\n    y[k] = draw(state)",
        "while True:\n    y[0] = draw(state)\n    if y[0] > 0.5:\n        break",
        "for k in range(n):\n    for j in range(n):\n        y[k] += draw(state)",
        "for k in range(n):\n    y[k] = draw(state)\n    y[k] += randf(state)",
        "y[0] = draw(state)\ny[1] = float(poisson(state, 2.0))",
        "y[0] = draw(state)\nv = sample_unit_sphere(state)",
    ],
)
def test_numbers_that_a_copy_of_a_state_gives_twice_are_warned_of(lines: str) -> None:
    (note,) = repeated(lines)
    assert note.severity == "warning" and note.span is not None
    assert "draws from its own copy of state, and the next draw gives the same number again" in note.message
    first = next(k for k, line in enumerate(lines.splitlines()) if "draw(" in line or "deep(" in line)
    assert note.span.line == DRAWING.count("\n") + 1 + first
    own = "own: ref[uint32] in draw" if note.message.startswith("draw") else "state: ref[uint32] in deep"
    assert own in note.hint


@pytest.mark.parametrize(
    "lines",
    [
        "y[0] = draw(state)",
        "y[0] = randf(state)\ny[1] = draw(state)",
        "y[0], state = back(state)\ny[1], state = back(state)",
        "for k in range(n):\n    y[k], state = back(state)",
        "for k in range(n):\n    y[k] = handing(state)",
        "for k in range(n):\n    own = rand_init(3, k)\n    y[k] = draw(own)",
        "if n > 2:\n    y[0] = draw(state)\nelse:\n    y[0] = deep(state)",
        "for k in range(n):\n    if k == 2:\n        y[0] = draw(state)\n        break",
        "y[0] = draw(rand_init(3, n)) + draw(rand_init(3, n))",
        "y[0] = draw(state)\nstate = rand_next(state)\ny[1] = draw(state)",
    ],
)
def test_a_state_that_is_handed_back_made_anew_or_drawn_from_once_is_silent(lines: str) -> None:
    assert repeated(lines) == []
