"""Mistakes planted in the cloth of lesson 4 and in the heat of lesson 5, in the line that ends in ``# !``.

As in `test_planted`: each is named with its line by what the program says, or by the first tool that the docs
recommend.
"""

from collections.abc import Callable

import pytest

import kernelab as kl
from tests.support.lesson import Lesson, shown

# ------------------------------------------------------------------------------------------ cloth

SPRING = """
def spring(stretch: float):
    return 800.0 * stretch
"""
WRONG_SPRING = """
@func_grad(spring, check={})
def adj_spring(stretch: float, adj_ret: float):  # !
    adjoint[stretch] += 80.0 * adj_ret
"""
STEP = """
def step(x: array2d[vec3], v: array2d[vec3], wind: array[vec3], x_new: array2d[vec3], v_new: array2d[vec3]):
    i, j = tid()
    n = x.shape[0]
    gust = wind[0] - v[i, j]
    force = vec3(0.0, -9.81, 0.0) + length(gust) * gust
    for di in range(-1, 2):
        for dj in range(-1, 2):
            a, b = i + di, j + dj
            if (di != 0 or dj != 0) and 0 <= a and a < n and 0 <= b and b < n:
                d = x[a, b] - x[i, j]
                rest = sqrt(float(di * di + dj * dj)) / float(n - 1)
                force += spring(length(d) - rest) * normalize(d)
                force += 4.0 * (v[a, b] - v[i, j])
    if i == 0:
        force = vec3(0.0, 0.0, 0.0)
    v_new[i, j] = v[i, j] + 0.002 * force
    x_new[i, j] = x[i, j] + 0.002 * v_new[i, j]
"""
FALL = """
n = 3
across, out = np.meshgrid(np.linspace(0, 1, n), np.linspace(0, 1, n))
lifted = np.stack([across, 0.1 * across * out, out], axis=-1)

def falling(wind):
    x = kl.array(lifted, dtype=kl.vec3, requires_grad=True)
    v = kl.zeros((n, n), dtype=kl.vec3, requires_grad=True)
    for k in range(3):
        x_new, v_new = (kl.zeros((n, n), dtype=kl.vec3, requires_grad=True) for _ in range(2))
        kl.launch(step, dim=(n, n), inputs=[x, v, wind], outputs=[x_new, v_new])
        x, v = x_new, v_new
    return kl.map(lambda p: p[2], x[n - 1]).mean()

wind = kl.array([[0.1, 0.0, 0.3]], dtype=kl.vec3, requires_grad=True)
for attempt in range(2):
    with kl.Tape(overwrite="warn") as tape:
        z = falling(wind)
    tape.backward(z)
    slope = wind.grad.numpy()
    if attempt == 0:
        wind.assign(wind.numpy() - 0.1 * slope)
        tape.zero()
"""


def cloth(*changes: tuple[str, str], rule: str = "") -> Lesson:
    """The lesson with some text changed."""
    kernels, program = SPRING + rule + STEP, FALL
    for old, new in changes:
        assert (old in kernels) != (old in program)
        kernels, program = kernels.replace(old, new), program.replace(old, new)
    return Lesson(kernels, program)


FORCE = "force += spring(length(d) - rest) * normalize(d)"
SAID = {
    "a wrong rule": (lambda: cloth(rule=WRONG_SPRING.format(True))),
    "a cast of the wind": lambda: cloth(
        ("gust = wind[0] - v[i, j]", "gust = vec3(float(int(wind[0][0])), 0.0, 0.0) - v[i, j]  # !")
    ),
    "an overwritten leaf": lambda: cloth(
        ("    tape.backward(z)", "    wind.assign(0.5 * wind.numpy())  # !\n    tape.backward(z)")
    ),
    "an overwritten leaf in the steps": lambda: cloth(
        ("        x, v = x_new, v_new", "        wind.fill_(0.0)  # !\n        x, v = x_new, v_new")
    ),
    "a forgotten zeroing": lambda: cloth(
        ("        tape.zero()\n", ""), ("    tape.backward(z)", "    tape.backward(z)  # !")
    ),
    "a wrapped index": lambda: cloth(
        ("0 <= a and ", ""), ("d = x[a, b] - x[i, j]", "d = x[a, b] - x[i, j]  # !")
    ),
    "a wrapped index behind a guard": lambda: cloth(
        ("0 <= a and ", "-1 <= a and "), ("d = x[a, b] - x[i, j]", "d = x[a, b] - x[i, j]  # !")
    ),
    "a neighbour outside": lambda: cloth(
        ("a < n", "a <= n"), ("d = x[a, b] - x[i, j]", "d = x[a, b] - x[i, j]  # !")
    ),
    "a state that the host passes on": lambda: cloth(
        (
            "x, v = x_new, v_new",
            "x, v = kl.array(x_new.numpy(), dtype=kl.vec3, requires_grad=True), v_new  # !",
        )
    ),
    "a spring of no length": lambda: cloth(
        ("(di != 0 or dj != 0) and ", ""),
        ("spring(length(d) - rest) * normalize(d)", "spring(length(d) - rest) * d / length(d)  # !"),
        ("tape.backward(z)", "tape.backward(z, check_finite=True)"),
    ),
}


@pytest.mark.parametrize("planted", SAID)
def test_a_mistake_in_the_cloth_is_named_by_what_the_program_says(planted: str) -> None:
    lesson = SAID[planted]()
    assert lesson.is_named_in(lesson.told), lesson.told


CHECKED: dict[str, tuple[Callable[[], Lesson], str]] = {
    "a wrong rule": (lambda: cloth(rule=WRONG_SPRING.format(False)), "custom:"),
    "a cast": (
        lambda: cloth((FORCE, "force += float(int(800.0 * (length(d) - rest))) * normalize(d)  # !")),
        "zero by construction",
    ),
    "a kink": (
        lambda: cloth(
            (FORCE, "force += 800.0 * max(length(d) - rest, 0.0) * normalize(d)  # !"),
            ("0.1 * across * out", "0.0 * across"),
        ),
        "kink:",
    ),
    "lost digits": (
        lambda: cloth((FORCE, "force += 800.0 * ((length(d) + 1.0e4) - (rest + 1.0e4)) * normalize(d)  # !")),
        "precision:",
    ),
    "a step in place": (
        lambda: cloth(
            ("outputs=[x_new, v_new]", "outputs=[x, v]"),
            ("        x, v = x_new, v_new\n", ""),
            ("v_new[i, j] = v[i, j] + 0.002 * force", "v_new[i, j] = v[i, j] + 0.002 * force  # !"),
        ),
        "race:",
    ),
}


LONGEST = ("a kink", "a step in place")
"""Those that the normal run checks in the heat alone."""


@pytest.mark.parametrize(
    "planted",
    [pytest.param(name, marks=pytest.mark.long) if name in LONGEST else name for name in CHECKED],
)
def test_a_mistake_in_the_cloth_is_named_by_gradcheck_tape(planted: str) -> None:
    make, verdict = CHECKED[planted]
    lesson = make()
    report = shown(kl.autograd.gradcheck_tape, lesson.tape)
    assert verdict in report
    assert lesson.is_named_in(report), report


def test_a_dead_unit_in_the_cloth_is_named_by_contributions() -> None:
    lesson = cloth(
        ("gust = wind[0] - v[i, j]", "gust = vec3(0.0, 0.0, clamp(wind[0][2], 0.0, 0.01)) - v[i, j]  # !")
    )
    found = str(kl.contributions(lesson.tape, lesson.wind, 0, lesson.z))
    assert "the other value is taken here" in found
    assert lesson.is_named_in(found), found


PENDULUM = """
def pull(angle: array[float], speed: array[float], dt: float):
    i = tid()
    speed[i] -= dt * 9.81 * {}

def move(angle: array[float], speed: array[float], dt: float):
    i = tid()
    angle[i] += {}
"""
IN_PLACE = """
angle, speed = (kl.full(3, value, dtype=float, requires_grad=True) for value in (1.5, 0.0))
with kl.Tape() as tape:
    for k in range({}):
        pull[3](angle, speed, 0.01)
        move[3](angle, speed, 0.01)
"""


@pytest.mark.parametrize(("fast", "steps"), [("auto", 500), (False, 15)], ids=["a thousand", "each alone"])
@pytest.mark.parametrize(
    ("force", "way"),
    [
        ("sin(float(int(angle[i])))  # !", "dt * speed[i]"),
        ("sin(angle[i])", "float(int(100.0 * dt * speed[i]))  # !"),
    ],
    ids=["of the angle", "of the speed"],
)
def test_a_cast_in_steps_in_place_is_named_by_gradcheck_tape(
    force: str, way: str, fast: bool | str, steps: int
) -> None:
    lesson = Lesson(PENDULUM.format(force, way), IN_PLACE.format(steps))
    report = shown(kl.autograd.gradcheck_tape, lesson.tape, fast=fast)
    assert "zero by construction: `int` has derivative 0" in report
    assert lesson.is_named_in(report), report[-400:]


# ------------------------------------------------------------------------------------------ heat

FLOW = """
def between(a: float, left: float, right: float):
    return a * (right - left)
"""
WRONG_BETWEEN = """
@func_grad(between, check={})
def adj_between(a: float, left: float, right: float, adj_ret: float):  # !
    adjoint[a] += (right - left) * adj_ret
    adjoint[left] += a * adj_ret
    adjoint[right] += a * adj_ret
"""
HEAT = """
def flow(u: array[float], a: array[float], new: array[float]):
    i = tid()
    n = len(u)
    change = 0.0
    if i + 1 < n:
        change += between(a[i], u[i], u[i + 1])
    if i > 0:
        change += a[i - 1] * (u[i - 1] - u[i])
    new[i] = u[i] + 0.3 * change
"""
GAUSS_NEWTON = """
from scipy.sparse import identity
from scipy.sparse.linalg import spsolve

n = 12
hot = np.where(np.arange(n) // 3 % 2 == 0, 1.0, 0.0)

def early(a):
    u = kl.array(hot, dtype=float)
    for k in range(4):
        new = kl.zeros(n, dtype=float)
        kl.launch(flow, dim=n, inputs=[u, a], outputs=[new])
        u = new
    return u

measured = np.linspace(1.0, 0.0, n)
guess = kl.array(np.linspace(1.02, 1.32, n - 1), dtype=float, requires_grad=True)
for k in range(2):
    J = kl.autograd.jacobian(early, inputs=[guess], sparse=True)[0, 0].tocsr()
    residual = early(guess).numpy() - measured
    step = spsolve((J.T @ J + 0.03 * identity(n - 1)).tocsc(), J.T @ residual)
    guess.assign(guess.numpy() - step)
guess.assign(np.linspace(1.02, 1.32, n - 1))
"""


def heat(*changes: tuple[str, str], rule: str = "") -> Lesson:
    """The lesson with some text changed."""
    kernels, program = FLOW + rule + HEAT, GAUSS_NEWTON
    for old, new in changes:
        assert (old in kernels) != (old in program)
        kernels, program = kernels.replace(old, new), program.replace(old, new)
    return Lesson(kernels, program)


RIGHT, LEFT = "change += between(a[i], u[i], u[i + 1])", "change += a[i - 1] * (u[i - 1] - u[i])"
HEAT_SAID = {
    "a wrong rule": (lambda: heat(rule=WRONG_BETWEEN.format(True))),
    "a cast": lambda: heat(
        (f"    if i + 1 < n:\n        {RIGHT}\n", ""),
        (LEFT, "change += float(int(4.0 * a[i - 1])) * (u[i - 1] - u[i])  # !"),
    ),
    "an overwritten leaf": lambda: heat(("    return u", "    a.assign(np.ones(n - 1))  # !\n    return u")),
    "an overwritten leaf in the steps": lambda: heat(
        ("        u = new", "        a.fill_(1.0)  # !\n        u = new")
    ),
    "a wrapped index": lambda: heat(("if i > 0:", "if i >= 0:"), (LEFT, f"{LEFT}  # !")),
    "a state that the host passes on": lambda: heat(
        ("u = new", "u = kl.array(new.numpy(), dtype=float)  # !")
    ),
    "a guess that the host clips": lambda: heat(
        (
            "    u = kl.array(hot",
            "    a = kl.array(np.clip(a.numpy(), 0.1, 2.0), dtype=float)  # !\n    u = kl.array(hot",
        )
    ),
}


@pytest.mark.parametrize("planted", HEAT_SAID)
def test_a_mistake_in_the_heat_is_named_by_what_the_program_says(planted: str) -> None:
    lesson = HEAT_SAID[planted]()
    assert lesson.is_named_in(lesson.told), lesson.told


HEAT_CHECKED: dict[str, tuple[Callable[[], Lesson], str]] = {
    "a wrong rule": (lambda: heat(rule=WRONG_BETWEEN.format(False)), "custom:"),
    "a cast of one side": (
        lambda: heat((RIGHT, "change += float(int(4.0 * a[i])) * (u[i + 1] - u[i])  # !")),
        "zero by construction",
    ),
    "a rounded temperature": (
        lambda: heat((RIGHT, "change += a[i] * (round(u[i + 1]) - u[i])  # !")),
        "zero by construction",
    ),
    "a kink": (
        lambda: heat((RIGHT, "change += max(a[i], 1.02) * (u[i + 1] - u[i])  # !")),
        "kink:",
    ),
    "lost digits": (
        lambda: heat((RIGHT, "change += ((a[i] + 1.0e5) - 1.0e5) ** 2.0 * (u[i + 1] - u[i])  # !")),
        "precision:",
    ),
    "a step in place": (
        lambda: heat(
            ("new[i] = u[i] + 0.3 * change", "u[i] = u[i] + 0.3 * change  # !"), ("        u = new\n", "")
        ),
        "race:",
    ),
}


@pytest.mark.parametrize("planted", HEAT_CHECKED)
def test_a_mistake_in_the_heat_is_named_by_gradcheck(planted: str) -> None:
    make, verdict = HEAT_CHECKED[planted]
    lesson = make()
    report = shown(kl.autograd.gradcheck, lesson.early, inputs=[lesson.guess])
    assert verdict in report, report
    assert lesson.is_named_in(report), report


def test_a_dead_unit_beside_one_that_lives_is_named_by_contributions() -> None:
    lesson = heat((RIGHT, "change += clamp(a[i], 0.0, 0.5) * (u[i + 1] - u[i])  # !"))
    found = str(kl.contributions(lesson.early, lesson.guess, index=2))
    assert "the other value is taken here" in found
    assert lesson.is_named_in(found), found


def test_lost_digits_of_the_heat_are_named_by_precision() -> None:
    lesson = heat((RIGHT, "change += ((a[i] + 1.0e5) - 1.0e5) ** 2.0 * (u[i + 1] - u[i])  # !"))
    report = kl.precision(lesson.early, inputs=[lesson.guess])
    assert lesson.is_named_in(str(report).splitlines()[-1]), report


def test_a_pattern_that_has_grown_since_is_found_again() -> None:
    """The entries of another branch, which the remembered pattern has not, are not lost."""
    lesson = heat((RIGHT, "change += a[i] * (u[i + 1] - u[i]) * (1.0 if a[0] < 2.0 else a[n - 2])"))
    narrow = kl.autograd.jacobian(lesson.early, inputs=[lesson.guess], sparse=True)[0, 0]
    lesson.guess.assign(lesson.np.linspace(2.01, 2.31, 11))
    wide = kl.autograd.jacobian(lesson.early, inputs=[lesson.guess], sparse=True)[0, 0]
    assert wide.nnz > narrow.nnz
    dense = kl.autograd.jacobian(lesson.early, inputs=[lesson.guess])[0, 0].numpy()
    lesson.np.testing.assert_allclose(wide.numpy(), dense, rtol=1e-4, atol=1e-5 * abs(dense).max())
