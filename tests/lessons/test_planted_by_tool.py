"""Mistakes planted in the programs of all lessons, in the line that ends in ``# !``; two or more a lesson.

Each is named with its line by what the program says when it runs, or by the first tool that the table of
`docs/wrong-gradients.md` recommends for what one sees.
"""

from collections.abc import Callable
from typing import Any

import pytest

import kernelab as kl
from tests.support.lesson import Lesson, shown

Tool = Callable[[Lesson], object]


def said(lesson: Lesson) -> str:
    return lesson.told


def checked(name: str, values: list[Any]) -> Tool:
    return lambda lesson: shown(kl.autograd.gradcheck, lesson.names[name], inputs=values)


def checked_tape(lesson: Lesson) -> str:
    return shown(kl.autograd.gradcheck_tape, lesson.tape)


def contributed(name: str, value: Any) -> Tool:
    return lambda lesson: kl.contributions(lesson.names[name], value)


def reached(name: str, index: Any) -> Tool:
    return lambda lesson: kl.contributions(lesson.tape, lesson.names[name], index, lesson.loss)


def digits(lesson: Lesson) -> object:
    return kl.precision(lesson.tape)


HERON = """
def heron(x: float):
    guess = 1.0
    for k in range(6):
        guess = {}  # !
    return guess
"""
PLANE = """
def square(v: float):
    return v * v

@func_grad(square, check=False)
def adj_square(v: float, adj_ret: float):{m1}
    adjoint[v] += {rule} * adj_ret

def plane_loss(places: array2d[float], heights: array[float], w: array[float], loss: array[float]):
    i = tid()
    guess = w[0] * places[i, 0] + w[1] * places[i, 1] + w[2]
    error = {err}{m2}
    atomic_add(loss, 0, square(error) / float(len(heights)))
"""
FITTED = """
rng = np.random.default_rng(0)
places = kl.array(rng.normal(size=(20, 2)), dtype=float)
heights = kl.array(rng.normal(size=20), dtype=float)
w = kl.array([0.1, 0.2, 0.3], dtype=float, requires_grad=True)
loss = kl.zeros(1, dtype=float, requires_grad=True)
with kl.Tape() as tape:
    kl.launch(plane_loss, dim=20, inputs=[places, heights, w], outputs=[loss])
"""
LEAKY = "def leaky(z: array2d[float], h: array2d[float]):\n    i, k = tid()\n    h[i, k] = {}  # !\n"
BENT = """
z = kl.array([[-1.0, 2.0], [-3.0, 4.0]], dtype=float, requires_grad=True)
h = kl.zeros((2, 2), dtype=float, requires_grad=True)
with kl.Tape() as tape:
    leaky[2, 2](z, h)
    loss = (h * h).sum()
tape.backward(loss)
"""
HAND = """
def hand(q: vec3):
    a, b, c = q[0], q[0] + q[1], {}  # !
    return cos(a) + 0.8 * cos(b) + 0.5 * cos(c)
"""
VALLEY = """
def sq(v: float):
    return v * v

@func_grad(sq, check=False)
def adj_sq(v: float, adj_ret: float):  # !
    adjoint[v] += v * adj_ret

def valley(x: float, y: float):
    return sq(1.0 - x) + 20.0 * (y - x * x) * (y - x * x)
"""
SWING = """
def swing(start: array[float], steps: int, end: array[float]):
    i = tid()
    angle, speed = {}, 0.0{}
    for k in range(steps):
        speed -= {}{}
        angle += 0.01 * speed
    end[i] = angle
"""
SWUNG = """
start = kl.array([0.5, 1.0, 1.5], dtype=float, requires_grad=True)
end = kl.zeros(3, dtype=float, requires_grad=True)
with kl.Tape({}) as tape:
    swing[3](start, 100, end)
    {}
    loss = (end * end).sum()
tape.backward(loss)
"""
DISC = """
def disc(r: array[float], area: array[float]):
    i, j = tid()
    d = length(vec2(0.2 * float(i) - 0.8, 0.2 * float(j) - 0.8)) - {}
    covered = {}
    atomic_add(area, 0, covered * 0.04)
"""
DRAWN = """
r = kl.array([0.5], dtype=float, requires_grad=True)
area = kl.zeros(1, dtype=float, requires_grad=True)
with kl.Tape() as tape:
    disc[9, 9](r, area)
loss = area
tape.backward(area)
"""
SCENE = """
def scene(p: vec3, s: array[float]):
    a = length(p - vec3(s[0], s[1], 0.0)) - s[2]
    b = length(p - vec3(s[3], s[4], 0.0)) - s[5]
    h = {}  # !
    return b + (a - b) * h

def look(s: array[float], y: array[float]):
    y[0] = scene(vec3(0.1, 0.2, 0.3), s)
"""
SEEN = """
s = kl.array([0.0, 0.1, 0.2, 0.5, 0.6, 0.3], dtype=float, requires_grad=True)
y = kl.zeros(1, dtype=float, requires_grad=True)
with kl.Tape() as tape:
    look[1](s, y)
loss = y
"""
LAYER = """
def layer(w: array2d[float], x: array[float], y: array[float]):
    i = tid()
    z = 0.0
    for j in range(len(x)):
        z += {}
    y[i] = {}
"""
PASSED = """
w = kl.array([[0.1, -0.2], [0.3, 0.4]], dtype=float, requires_grad=True)
x = kl.array([1.0, 2.0], dtype=float, requires_grad=True)
y = kl.zeros(2, dtype=float, requires_grad=True)
with kl.Tape({}) as tape:
    layer[2](w, x, y)
    {}
    loss = (y * y).sum()
tape.backward(loss)
"""
SPRINGS = """
def springs(p: array[vec2], energy: array[float]):
    i = tid()
    stretch = length(p[i + 1] - p[i]) - 1.0
    angle = sqrt(abs(p[i].x * p[i + 1].y))  # !
    atomic_add(energy, 0, stretch * stretch + 0.1 * angle)
"""
BOWL = "def bowl(x: array[float], loss: array[float]):\n    i = tid()\n    loss[0] += {}\n"
TRAINED = """
x = kl.array([1.0, 2.0], dtype=float, requires_grad=True)
for k in range(2):
    loss = kl.zeros(1, dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        bowl[2](x, loss)
    tape.backward(loss){}
"""
CUBE = """
def cube(x: float):
    return x * x * x

@func_grad(cube{})
def adj_cube(x: float, adj_ret: float):  # !
    adjoint[x] += 2.0 * x * x * adj_ret
"""
GENTLE = "def gentle(x: array[float], y: array[float]):\n    i = tid()\n    y[i] = {}  # !\n"
CURVED = """
x = kl.array([0.0, 1.0], dtype=float, requires_grad=True)
y = kl.zeros(2, dtype=float, requires_grad=True)
with kl.Tape() as tape:
    gentle[2](x, y)
    loss = y.sum()
tape.backward(loss)
"""
LOOPS = """
def loops(x: array[float], c: array[float], y: array[float]):
    i = tid()
    a, b = x[i], x[i]
    for k in range(8):
        a = {}
    for k in range(8):
        b = {}
    y[i] = a + b
"""
LOOPED = """
x = kl.array([0.3, 0.7], dtype=float, requires_grad=True)
c = kl.array(np.arange(8.0), dtype=float, requires_grad=True)
y = kl.zeros(2, dtype=float, requires_grad=True)
with kl.Tape() as tape:
    loops[2](x, c, y)
    loss = y.sum()
tape.backward(loss)
"""
PLANTED: dict[str, tuple[str, str, Tool]] = {
    "1 cast in heron": (
        HERON.format("0.5 * float(int(guess + x / guess))"),
        "s = kl.func.grad(heron)(9.0)",
        said,
    ),
    "1 dead in heron": (HERON.format("0.5 * (guess + min(x, 4.0) / guess)"), "", contributed("heron", 9.0)),
    "1 kink in heron": (
        HERON.format("0.5 * (guess + abs(x - 9.0) + x / guess)"),
        "",
        checked("heron", [9.0]),
    ),
    "2 digits": (
        PLANE.format(m1="", rule="2.0 * v", err="(guess + 1.0e5) - (1.0e5 + heights[i])", m2="  # !"),
        FITTED,
        checked_tape,
    ),
    "2 wrong rule": (
        PLANE.format(m1="  # !", rule="v", err="guess - heights[i]", m2=""),
        FITTED,
        checked_tape,
    ),
    "2 dead relu": (LEAKY.format("max(z[i, k], 0.0)"), BENT, reached("z", (0, 0))),
    "2 nan": (LEAKY.format("sqrt(z[i, k])"), BENT.replace("(loss)", "(loss, check_finite=True)"), said),
    "3 dead joint": (
        HAND.format("q[0] + q[1] + clamp(q[2], -0.1, 0.1)"),
        "",
        contributed("hand", kl.vec3(0.1, 0.2, 0.5)),
    ),
    "3 kink of joint": (
        HAND.format("q[0] + q[1] + abs(q[2])"),
        "",
        checked("hand", [kl.vec3(0.1, 0.2, 0.0)]),
    ),
    "3 wrong rule": (VALLEY, "", checked("valley", [0.5, 0.2])),
    "4 wrapped": (
        SWING.format("start[i - 1]", "  # !", "0.01 * 9.81 * sin(angle)", ""),
        SWUNG.format("", ""),
        said,
    ),
    "4 overwritten leaf": (
        SWING.format("start[i]", "", "0.01 * 9.81 * sin(angle)", ""),
        SWUNG.format('overwrite="warn"', "start.assign(np.zeros(3))  # !"),
        said,
    ),
    "4 digits": (
        SWING.format("start[i]", "", "0.01 * 9.81e6 * (sin(angle) + 1.0e5 - 1.0e5) * 1.0e-6", "  # !"),
        SWUNG.format("", ""),
        digits,
    ),
    "4 cast": (
        SWING.format("start[i]", "", "0.01 * 9.81 * round(sin(angle))", "  # !"),
        SWUNG.format("", ""),
        checked_tape,
    ),
    "6 kink": (DISC.format("r[0]", "max(abs(d), 0.0)  # !"), DRAWN.replace("0.5]", "0.8]"), checked_tape),
    "6 wrapped": (
        DISC.format("r[i - 1]  # !", "1.0 / (1.0 + exp(d / 0.05))"),
        DRAWN.replace("[0.5]", "[0.5] * 9"),
        said,
    ),
    "6 dead clamp": (SCENE.format("clamp(0.5 + 50.0 * (b - a), 0.0, 1.0)"), SEEN, reached("s", 3)),
    "6 digits": (SCENE.format("(b + 1.0e6) - (a + 1.0e6)"), SEEN, checked_tape),
    "7 infinite": (
        SPRINGS,
        """
p = kl.array([[0.0, 1.0], [1.0, 2.0], [2.0, 0.0]], dtype=kl.vec2, requires_grad=True)
energy = kl.zeros(1, dtype=float, requires_grad=True)
with kl.Tape() as tape:
    springs[2](p, energy)
tape.backward(energy, check_finite=True)
""",
        said,
    ),
    "7 cast": (BOWL.format("float(int(x[i] * x[i]))  # !"), TRAINED.format("\n    tape.zero()"), said),
    "7 zeroing": (BOWL.format("x[i] * x[i]"), TRAINED.format("  # !"), said),
    "7 digits": (
        BOWL.format("(x[i] + 1.0e5) * (x[i] + 1.0e5) - 1.0e10  # !"),
        TRAINED.format("\n    tape.zero()"),
        digits,
    ),
    "8 wrapped": (LAYER.format("w[i, j - 1] * x[j]  # !", "max(z, 0.1 * z)"), PASSED.format("", ""), said),
    "8 overwritten": (
        LAYER.format("w[i, j] * x[j]", "max(z, 0.1 * z)"),
        PASSED.format('overwrite="warn"', "w.fill_(0.0)  # !"),
        said,
    ),
    "8 dead": (
        LAYER.format("w[i, j] * x[j]", "max(z, 0.0)  # !"),
        PASSED.format("", ""),
        reached("w", (0, 0)),
    ),
    "8 cast": (
        LAYER.format("float(int(w[i, j])) * x[j]  # !", "max(z, 0.1 * z)"),
        PASSED.format("", ""),
        said,
    ),
    "8 kink": (
        LAYER.format("w[i, j] * x[j]", "max(z, 0.1 * z)  # !"),
        PASSED.format("", "").replace("[0.1, -0.2]", "[0.2, -0.1]"),
        checked_tape,
    ),
    "9 wrong rule": (CUBE.format(""), "s = kl.func.grad(cube)(2.0)", said),
    "9 wrong rule unchecked": (CUBE.format(", check=False"), "", checked("cube", [2.0])),
    "9 digits": (
        """
def kepler(m: float):
    z = m
    for k in range(5):
        z = m + 0.6 * (1.0e5 + sin(z)) - 0.6e5  # !
    return z
""",
        "",
        checked("kepler", [0.5]),
    ),
    "9 dead": (
        """
def kepler(m: float):
    z = clamp(m, 0.0, 0.4)  # !
    for k in range(5):
        z = 0.6 * sin(z)
    return z
""",
        "",
        contributed("kepler", 0.5),
    ),
    "10 kink": (GENTLE.format("tanh(abs(x[i]))"), CURVED, checked_tape),
    "10 dead": (GENTLE.format("tanh(min(x[i], 0.5))"), CURVED, reached("x", 1)),
    "10 digits": (LOOPS.format("(a + c[k] + 1.0e6) - 1.0e6  # !", "b * b"), LOOPED, digits),
    "10 cast": (LOOPS.format("a + c[k]", "float(int(b * b))  # !"), LOOPED, checked_tape),
    "10 wrapped": (LOOPS.format("a + c[k - 1]  # !", "b * b"), LOOPED, said),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_mistake_is_named_by_the_first_tool(planted: str) -> None:
    kernels, program, tool = PLANTED[planted]
    lesson = Lesson(kernels, program)
    found = str(tool(lesson))
    assert lesson.is_named_in(found), found


def test_a_dead_unit_is_named_though_the_loss_is_flat_there_too() -> None:
    lesson = Lesson(LEAKY.format("max(z[i, k], 0.0)"), BENT)
    first, second = kl.contributions(lesson.tape, lesson.z, (0, 0), lesson.loss).zeros
    assert (first.title, first.reason) == ("the launch of `array_mul`", "the derivative is 0 here")
    assert (second.title, second.reason) == ("the launch of `leaky`", "the other value is taken here")
