"""Ten lessons of a first course, each a program as it stands on a blackboard, right and with a mistake in it.

The mistake is in the line that ends in ``# !``; the tool that `docs/wrong-gradients.md` recommends names it.
"""

import re
from typing import Any

import numpy as np
import pytest
from scipy.sparse import identity
from scipy.sparse.linalg import spsolve

import kernelab as kl
from tests.support.lesson import Lesson, shown

# ------------------------------------------------------------------- 1. programs that compute derivatives

GAUSS = """
def g(x: float):
    return x * exp(-x * x)

@func_grad(g)
def adj_g(x: float, adj_ret: float):  {mark}
    adjoint[x] += (1.0 - {two}x * x) * exp(-x * x) * adj_ret

def f(x: float, y: float):
    return g(x) * sin(y)
"""
SLOPES = "dx, dy = kl.func.grad(f, (0, 1))(2.0, 3.0)"


def test_1_a_derivative_is_a_program_and_a_wrong_rule_is_named() -> None:
    right = Lesson(GAUSS.format(two="2.0 * ", mark=""), SLOPES)
    slope = (1 - 8) * np.exp(-4) * np.sin(3)
    assert (right.told, right.dx) == ("", pytest.approx(slope, rel=1e-5))
    wrong = Lesson(GAUSS.format(two="", mark="# !"), SLOPES)
    assert "adj_g gives" in wrong.told
    assert wrong.is_named_in(wrong.told)
    assert wrong.is_named_in(shown(kl.autograd.gradcheck, wrong.f, inputs=[2.0, 3.0]))


# ------------------------------------------------------------------- 2. regression and a small net

NET = """
def relu(z: array2d[float], h: array2d[float]):
    i, j = tid()
    h[i, j] = max(z[i, j], 0.0)  # !
"""
TRAIN = """
rng = np.random.default_rng(0)
x = kl.array(rng.normal(size=(20, 2)), dtype=float)
y = kl.array(rng.normal(size=(20, 1)), dtype=float)
w = kl.array(rng.normal(size=(2, 8)), dtype=float, requires_grad=True)
b = kl.array(BIAS, dtype=float, requires_grad=True)
v = kl.array(rng.normal(size=(8, 1)), dtype=float, requires_grad=True)

def loss(w, b, v):
    h = kl.zeros((20, 8), dtype=float, requires_grad=True)
    kl.launch(relu, dim=(20, 8), inputs=[x @ w + b], outputs=[h])
    return ((h @ v - y) ** 2).mean()

with kl.Tape() as tape:
    first = loss(w, b, v)
tape.backward(first)
"""
STEPS = """
tape.zero()
opt = kl.optim.Adam([w, b, v], lr=0.02)
for k in range(100):
    last = opt.minimize(loss)
"""
FORGOTTEN = """
opt = kl.optim.SGD([w, b, v], lr=0.01)
for k in range(3):
    with kl.Tape() as tape:
        last = loss(w, b, v)
    tape.backward(last)  # !
    opt.step()
"""


def test_2_a_net_learns_and_a_dead_unit_and_a_forgotten_zeroing_are_named() -> None:
    bias = np.zeros(8)
    right = Lesson(NET, TRAIN + STEPS, BIAS=bias)
    assert right.last.item() < 0.5 * right.first.item()
    bias[3] = -50.0
    dead = Lesson(NET, TRAIN, BIAS=bias)
    assert dead.b.grad[3] == 0.0
    zero = kl.contributions(dead.tape, dead.b, 3, dead.first)
    assert "the other value is taken here" in str(zero)
    assert dead.is_named_in(zero)
    forgotten = Lesson(NET.replace("  # !", ""), TRAIN + FORGOTTEN, BIAS=bias)
    assert "backward adds to the gradients of an earlier pass, in `w`, `b`, `v`" in forgotten.told
    assert forgotten.is_named_in(forgotten.told)


# ------------------------------------------------------------------- 3. Newton and Hessians

ENERGY = """
def energy(x: float, y: float):
    return (x - 1.0) * (x - 1.0) + {wall} + x * y  {mark}
"""
NEWTON = """
x, y = 3.0, 2.0
for k in range(8):
    gx, gy = kl.func.grad(energy, (0, 1))(x, y)
    (hxx, hxy), (hyx, hyy) = kl.func.hessian(energy, (0, 1))(x, y)
    dx, dy = np.linalg.solve([[hxx, hxy], [hyx, hyy]], [gx, gy])
    x, y = float(x - dx), float(y - dy)
"""


def test_3_newton_converges_and_a_kink_is_named() -> None:
    right = Lesson(ENERGY.format(wall="cosh(y)", mark=""), NEWTON)
    gx, gy = 2 * (right.x - 1) + right.y, np.sinh(right.y) + right.x
    assert abs(gx) + abs(gy) < 1e-5
    kinked = Lesson(ENERGY.format(wall="max(y, 0.0)", mark="# !"))
    report = shown(kl.autograd.gradcheck, kinked.energy, inputs=[1.0, 0.0])
    assert "kink: " in report
    assert kinked.is_named_in(report)


# ------------------------------------------------------------------- 4. a pendulum over 1000 steps

SWING = """
def swing(x: array[float], v: array[float], g: array[float]):
    i = tid()
    v[i] -= 0.01 * g[0] * sin(x[i])
    x[i] += 0.01 * v[i]
"""
SIMULATE = """
x, v = kl.array([0.1], dtype=float, requires_grad=True), kl.zeros(1, dtype=float, requires_grad=True)
g = kl.array([9.81], dtype=float, requires_grad=True)
with kl.Tape(overwrite=POLICY) as tape:
    for k in range(1000):
        swing[1](x, v, g)
    loss = x * x
    RESET
tape.backward(loss)
"""


def _swung(g: float) -> float:
    x, v = 0.1, 0.0
    for _ in range(1000):
        v -= 0.01 * g * np.sin(x)
        x += 0.01 * v
    return x * x


def test_4_a_thousand_steps_have_a_gradient_and_an_overwritten_array_is_named() -> None:
    right = Lesson(SWING, SIMULATE.replace("RESET", ""), POLICY="save")
    slope = (_swung(9.81 + 1e-5) - _swung(9.81 - 1e-5)) / 2e-5
    assert right.g.grad.item() == pytest.approx(slope, rel=1e-2)
    program = SIMULATE.replace("RESET", "x.assign([0.1])  # !").replace("1000", "1")
    wrong = Lesson(SWING, program, POLICY="warn")
    assert "`x` is overwritten here, but the adjoint of" in wrong.told
    assert wrong.is_named_in(wrong.told)
    saved = Lesson(SWING, SIMULATE.replace("RESET", "x.assign([0.1])"), POLICY="save")
    assert saved.g.grad.item() == right.g.grad.item()


# ------------------------------------------------------------------- 5. heat, inverted by sparse Gauss-Newton

HEAT = """
def heat(u: array[float], a: array[float], new: array[float]):
    i = tid()
    if {first} <= i and i < u.shape[0] - 1:
        new[i] = u[i] + 0.2 * a[i] * (u[i - 1] - 2.0 * u[i] + u[i + {next}])  # !
"""
INVERT = """
start = kl.array(np.linspace(0, 2, 40) ** 2, dtype=float)

def model(a):
    u = start
    for k in range(3):
        new = u.copy()
        kl.launch(heat, dim=40, inputs=[u, a], outputs=[new])
        u = new
    return u

measured = model(kl.array(1.0 + 0.3 * np.sin(np.arange(40) / 5.0), dtype=float)).numpy()
a = kl.ones(40, dtype=float, requires_grad=True)
for k in range(5):
    J = kl.autograd.jacobian(model, inputs=[a], sparse=True)[0, 0].tocsr()
    normal = J.T @ J + 1e-9 * identity(40)
    a.assign(a.numpy() - spsolve(normal.tocsc(), J.T @ (model(a).numpy() - measured)))
"""


def test_5_gauss_newton_finds_a_conductivity_and_an_index_beyond_either_end_is_named() -> None:
    right = Lesson(HEAT.format(first=1, next=1), INVERT, identity=identity, spsolve=spsolve)
    assert right.told == ""
    np.testing.assert_allclose(right.a.numpy()[1:-1], 1 + 0.3 * np.sin(np.arange(1, 39) / 5), atol=1e-2)
    for first, next, told in ((1, 2, "out of bounds"), (0, 1, "an index of `u` was negative")):
        wrong = Lesson(HEAT.format(first=first, next=next), INVERT, identity=identity, spsolve=spsolve)
        assert told in wrong.told
        assert wrong.is_named_in(wrong.told)


# ------------------------------------------------------------------- 6. ray marching

MARCH = """
def march(radius: array[float], depth: array[float]):
    i = tid()
    t = 0.0
    for k in range(32):
        p = vec3(0.05 * float(i), 0.0, t - 3.0)
        t += length(p) - radius[0]
    depth[i] = {depth}  {mark}
"""
RENDER = """
radius = kl.array([1.0], dtype=float, requires_grad=True)
depth = kl.zeros(8, dtype=float, requires_grad=True)
with kl.Tape() as tape:
    march[8](radius, depth)
    loss = depth.sum()
tape.backward(loss)
"""


def test_6_a_marched_depth_has_a_gradient_and_a_cast_is_named() -> None:
    right = Lesson(MARCH.format(depth="t", mark=""), RENDER)
    offsets = 0.05 * np.arange(8)
    assert right.radius.grad.item() == pytest.approx(-(1 / np.sqrt(1 - offsets**2)).sum(), rel=1e-3)
    wrong = Lesson(MARCH.format(depth="float(int(t))", mark="# !"), RENDER)
    assert wrong.is_named_in(wrong.told)
    assert wrong.is_named_in(kl.contributions(wrong.tape, wrong.radius, 0, wrong.loss))


# ------------------------------------------------------------------- 7. a wrong gradient is found

SOFT = """
def soften(v: float):
    return sqrt(v * v + 0.01)

@func_grad(soften, check=False)
def adj_soften(v: float, adj_ret: float):  {mark}
    adjoint[v] += v / {root} * adj_ret

def smooth(x: array[float], y: array[float]):
    i = tid()
    y[i] = soften(x[i])
"""
CHAIN = """
x = kl.array([0.5, -1.0, 2.0], dtype=float, requires_grad=True)
y = kl.zeros(3, dtype=float, requires_grad=True)
with kl.Tape() as tape:
    smooth[3](x, y)
    loss = (y * y * y).sum()
tape.backward(loss)
"""


def test_7_the_first_wrong_launch_of_a_tape_is_found_and_its_rule_named() -> None:
    right = Lesson(SOFT.format(root="sqrt(v * v + 0.01)", mark=""), CHAIN)
    assert "✗" not in shown(kl.autograd.gradcheck_tape, right.tape)
    wrong = Lesson(SOFT.format(root="(v * v + 0.01)", mark="# !"), CHAIN)
    report = shown(kl.autograd.gradcheck_tape, wrong.tape)
    assert "launch 1, smooth, is the first that is wrong" in report
    assert wrong.is_named_in(report)


# ------------------------------------------------------------------- 8. vanishing and exploding

LAYER = """
def layer(x: array[float], w: array[float], y: array[float]):
    i = tid()
    y[i] = {activation}  # !
"""
DEEP = """
x = kl.full(4, 2.0, dtype=float)
x.requires_grad = True
w = kl.array([WEIGHT], dtype=float, requires_grad=True)
with kl.Tape() as tape:
    h = x
    for k in range(30):
        y = kl.zeros(4, dtype=float, requires_grad=True)
        layer[4](h, w, y)
        h = y
    loss = h.sum()
tape.backward(loss, check_finite=True)
"""


def test_8_gradients_that_vanish_and_explode_are_named() -> None:
    vanishing = Lesson(LAYER.format(activation="tanh(w[0] * x[i])"), DEEP, WEIGHT=0.01)
    assert vanishing.x.grad.list() == [0.0] * 4
    zero = kl.contributions(vanishing.tape, vanishing.x, 0, vanishing.loss)
    assert "the product is too small for its type" in str(zero)
    assert vanishing.is_named_in(zero)
    exploding = Lesson(LAYER.format(activation="w[0] * x[i] * x[i]"), DEEP, WEIGHT=1.5)
    assert "a value turns inf here" in exploding.told
    assert exploding.is_named_in(exploding.told)
    right = Lesson(LAYER.format(activation="tanh(w[0] * x[i])"), DEEP, WEIGHT=1.0)
    assert right.x.grad[0] > 0


# ------------------------------------------------------------------- 9. implicit differentiation

KEPLER = """
def residual(z: float, m: float):
    return z - 0.5 * sin(z) - m

def drift(x: array[float], y: array[float]):
    i = tid()
    y[i] = {drift}

def step(z: array[float], m: array[float]):
    i = tid()
    z[i] = z[i] - (z[i] - 0.5 * sin(z[i]) - m[i]) / (1.0 - 0.5 * cos(z[i]))  {mark}
"""
IMPLICIT = """
m = kl.array([0.8], dtype=float, requires_grad=True)
z = kl.array(START, dtype=float, requires_grad=True)
with kl.Tape() as tape:
    for k in range(8):
        step[1](z, m)
tape.backward(grads={z: kl.ones_like(z)}, check_finite=True)
dz, dm = kl.func.grad(residual, (0, 1))(z[0], m[0])
"""


def test_9_the_derivative_of_a_root_is_that_of_its_iteration_and_a_nan_and_lost_digits_are_named() -> None:
    stable = "0.5 - x[i] * x[i] / 24.0"
    right = Lesson(KEPLER.format(mark="", drift=stable), IMPLICIT, START=[1.0])
    assert right.m.grad.item() == pytest.approx(-right.dm / right.dz, rel=1e-5)
    kernels = KEPLER.format(mark="# !", drift=stable).replace("(1.0 - 0.5 * cos", "(0.5 - 0.5 * cos")
    wrong = Lesson(kernels, IMPLICIT, START=[0.0])
    assert re.search("a value turns -?(inf|nan) here", wrong.told)
    assert wrong.is_named_in(wrong.told)
    lost = Lesson(KEPLER.format(mark="", drift="(1.0 - cos(x[i])) / (x[i] * x[i])  # !"))
    x, y = (
        kl.array([1e-3, 2e-3], dtype=float, requires_grad=True),
        kl.zeros(2, dtype=float, requires_grad=True),
    )
    assert "✗" not in shown(kl.autograd.gradcheck, right.drift, dim=2, inputs=[x], outputs=[y])
    report = shown(kl.autograd.gradcheck, lost.drift, dim=2, inputs=[x], outputs=[y])
    assert "precision: the formula is right" in report
    assert lost.is_named_in(report)


# ------------------------------------------------------------------- 10. n bodies with atomics

BODIES = """
def pull(p: array[vec3], f: array[vec3]):
    i, j = tid()
    d = p[j] - p[i]
    {add}  # !
"""
FALL = """
p = kl.array(np.random.default_rng(0).normal(size=(6, 3)), dtype=kl.vec3, requires_grad=True)
f = kl.zeros(6, dtype=kl.vec3, requires_grad=True)
with kl.Tape() as tape:
    pull[6, 6](p, f)
    loss = kl.map(lambda v: kl.dot(v, v), f).sum()
tape.backward(loss, check_finite=True)
"""


def _forces(p: Any) -> float:
    d = p[None] - p[:, None]
    square = (d**2).sum(axis=2) + 0.01
    return float((((d / square[..., None] ** 1.5).sum(axis=1)) ** 2).sum())


def test_10_forces_add_up_and_self_interaction_and_a_race_are_named() -> None:
    softened = "{} d / ((dot(d, d) + 0.01) * sqrt(dot(d, d) + 0.01))"
    right = Lesson(BODIES.format(add="f[i] +=" + softened.format("")), FALL)
    values, slopes = right.p.numpy().astype(float), np.zeros((6, 3))
    for at in np.ndindex(slopes.shape):
        step = np.zeros_like(values)
        step[at] = 1e-5
        slopes[at] = (_forces(values + step) - _forces(values - step)) / 2e-5
    np.testing.assert_allclose(right.p.grad.numpy(), slopes, rtol=1e-2, atol=1e-2)
    alone = Lesson(BODIES.format(add="f[i] += d / (dot(d, d) * length(d))"), FALL)
    assert "a value turns nan here" in alone.told
    assert alone.is_named_in(alone.told)
    racing = Lesson(BODIES.format(add="f[i] = f[i] +" + softened.format("")))
    p, f = kl.zeros(6, dtype=kl.vec3), kl.zeros(6, dtype=kl.vec3)
    assert racing.is_named_in(kl.find_races(racing.pull, (6, 6), [p], [f]))
