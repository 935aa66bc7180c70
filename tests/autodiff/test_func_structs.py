"""Structs, and arrays of structs, as arguments and results of the transforms of `kl.func`."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import GradientError, KernelTypeError

CELL = """
@struct
class Inner:
    a: float
    n: int

@struct
class Params:
    k: float
    d: vec3
    inner: Inner
    w: array[float]

@struct
class Counts:
    n: int

@struct
class Particle:
    mass: float
    kind: int
    v: vec3

def uses(p: Params, x: array[float], y: array[float]):
    i = tid()
    y[i] = p.k * p.k * x[i] + p.d[1] * x[i] * x[i] + float(p.inner.n) * p.inner.a * p.w[i] * p.w[i]

def energy(ps: array[Particle], total: array[float]):
    i = tid()
    atomic_add(total, 0, 0.5 * ps[i].mass * dot(ps[i].v, ps[i].v) * float(ps[i].kind))

def push(ps: array[Particle], out: array[Particle]):
    i = tid()
    out[i] = ps[i]
    out[i].v = ps[i].v * ps[i].mass

def spoil(ps: array[Particle]):
    i = tid()
    ps[i].mass = 0.0

def add(x: array[float], s: array[float]):
    i = tid()
    atomic_add(s, 0, x[i])
"""


@pytest.fixture(scope="module")
def k() -> dict[str, Any]:
    return kl.compile(CELL)


@pytest.fixture
def p(k: dict[str, Any]) -> Any:
    made = k["Params"](k=2.0, d=kl.vec3(1.0, 2.0, 3.0), w=kl.array([1.0, 2.0], dtype=float))
    made.inner = k["Inner"](a=4.0, n=3)
    return made


X = kl.array([3.0, 5.0], dtype=float)


def values(k: dict[str, Any]) -> Any:
    def f(p: Any, x: Any) -> Any:
        y = kl.zeros_like(x)
        k["uses"][2](p, x, y)
        return y

    return f


def loss(k: dict[str, Any]) -> Any:
    def f(p: Any, x: Any) -> Any:
        total = kl.zeros(1)
        k["add"][2](values(k)(p, x), total)
        return total

    return f


EXPECTED = {
    "k": [[[12.0]], [[20.0]]],
    "d": [[[0.0, 9.0, 0.0]], [[0.0, 25.0, 0.0]]],
    "inner.a": [[[3.0]], [[12.0]]],
    "w": [[24.0, 0.0], [0.0, 48.0]],
}


@pytest.mark.parametrize("transform", [kl.func.jacrev, kl.func.jacfwd])
def test_a_jacobian_by_a_struct_is_a_dict_by_its_fields(k: dict[str, Any], p: Any, transform: Any) -> None:
    by_p, by_x = transform(values(k), (0, 1))(p, X)
    assert list(by_p) == list(EXPECTED)
    for name, expected in EXPECTED.items():
        assert np.allclose(by_p[name].numpy().reshape(np.shape(expected)), expected), name
    assert np.allclose(by_x.numpy(), [[4 + 2 * 2 * 3, 0], [0, 4 + 2 * 2 * 5]])
    assert (p.k, p.inner.a) == (2.0, 4.0)


def test_a_gradient_by_a_struct_is_a_struct(k: dict[str, Any], p: Any) -> None:
    value, g = kl.func.value_and_grad(loss(k))(p, X)
    assert value.numpy() == 32.0 + 3 * 4 * 5 + 2 * 34
    assert (type(g), g.k.numpy(), g.inner.a.numpy(), g.inner.n) == (type(p), [32.0], [15.0], 0)
    assert (g.d.numpy().tolist(), g.w.numpy().tolist()) == ([[0.0, 34.0, 0.0]], [24.0, 48.0])
    assert np.allclose(kl.func.vjp(loss(k), p, X)[1](kl.ones(1))[0].k.numpy(), 32.0)
    p.k -= 0.0625 * g.k  # a step of descent
    assert loss(k)(p, X).numpy() == pytest.approx(60 + 68)


def test_tangents_of_structs_are_structs(k: dict[str, Any], p: Any) -> None:
    along = k["Params"](k=1.0, d=kl.vec3(0.0, 1.0, 0.0), w=kl.zeros(2))
    _, moved = kl.func.jvp(values(k), (p, X), (along, kl.zeros(2)))
    assert np.allclose(moved.numpy(), [12 + 9, 20 + 25])
    gradient, product = kl.func.hvp(lambda p: loss(k)(p, X), p, along)
    assert (gradient.k.numpy(), product.k.numpy(), product.w.numpy().tolist()) == ([32.0], [16.0], [0.0, 0.0])
    with pytest.raises(GradientError, match=r"field w of tangents\[0\] is float32 \(3,\)"):
        kl.func.jvp(values(k), (p, X), (k["Params"](w=kl.zeros(3)), kl.zeros(2)))
    with pytest.raises(GradientError, match=r"tangents\[0\] has no array for each of k, d, inner.a, w"):
        kl.func.jvp(values(k), (p, X), (k["Params"](), kl.zeros(2)))


def test_second_order_by_a_struct(k: dict[str, Any], p: Any) -> None:
    found = kl.func.hessian(loss(k))(p, X)
    assert found["k"]["k"].numpy() == 16.0
    assert np.allclose(found["inner.a"]["w"].numpy(), [[6.0, 12.0]])
    assert np.allclose(found["w"]["w"].numpy(), np.diag([24.0, 24.0]))
    again = kl.func.jacrev(kl.func.grad(loss(k)))(p, X)
    assert again["k"]["k"].numpy() == 16.0


def test_second_order_by_a_struct_of_numbers_and_vectors() -> None:
    text = "@struct\nclass Body:\n    mass: float\n    v: vec3\n\n"
    text += "def kinetic(b: Body, s: float):\n    return 0.5 * s * b.mass * dot(b.v, b.v)\n"
    k = kl.compile(text)
    b = k["Body"](2.0, kl.vec3(1.0, 2.0, 3.0))
    found = kl.func.hessian(k["kinetic"])(b, 1.0)
    assert (found["mass"]["mass"], found["v"]["v"].list()) == (0.0, (2.0 * np.eye(3)).ravel().tolist())
    assert found["mass"]["v"].list() == found["v"]["mass"].list() == [1.0, 2.0, 3.0]
    (by_mass, by_scale), _ = (kl.func.hessian(k["kinetic"], (0, 1))(b, 1.0)[0][key] for key in ("mass", "v"))
    assert (by_mass["v"].list(), by_scale) == ([1.0, 2.0, 3.0], 7.0)


def test_a_struct_that_all_lanes_share(k: dict[str, Any], p: Any) -> None:
    many = kl.array([[3.0, 5.0], [1.0, 2.0]], dtype=float)
    found = kl.func.vmap(kl.func.grad(loss(k)), (None, 0))(p, many)
    assert found["k"].numpy().tolist() == [[32.0], [12.0]]
    with pytest.raises(GradientError, match="argument `p` of f is a Params: it has no lanes"):
        kl.func.vmap(values(k))(p, many)


def particles(k: dict[str, Any]) -> Any:
    ps = kl.zeros(2, dtype=k["Particle"])
    ps["mass"].assign(np.array([2.0, 3.0]))
    ps["kind"].assign(np.array([1, 2]))
    ps["v"].assign(np.array([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]]))
    return ps


def test_a_gradient_by_an_array_of_structs_is_such_an_array(k: dict[str, Any]) -> None:
    def kinetic(ps: Any) -> Any:
        total = kl.zeros(1)
        k["energy"][ps.shape[0]](ps, total)
        return total

    ps = particles(k)
    value, g = kl.func.value_and_grad(kinetic)(ps)
    assert value.numpy() == 14.0 + 3.0
    assert g["mass"].numpy().tolist() == [7.0, 1.0]
    assert g["v"].numpy().tolist() == [[2.0, 4.0, 6.0], [0.0, 6.0, 0.0]]
    for transform in (kl.func.jacrev, kl.func.jacfwd):
        found = transform(kinetic)(ps)
        assert found["mass"].numpy().tolist() == [[7.0, 1.0]]
        assert found["v"].shape == (1, 2, 3)
    second = kl.func.hessian(kinetic)(ps)
    assert np.allclose(second["mass"]["v"].numpy()[0], [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])


def test_a_function_may_return_structs(k: dict[str, Any]) -> None:
    def pushed(ps: Any) -> Any:
        out = kl.zeros_like(ps)
        k["push"][2](ps, out)
        return out

    found = kl.func.jacfwd(pushed)(particles(k))
    assert list(found) == ["mass", "v"]
    assert np.allclose(found["v"]["mass"].numpy()[:, :, 0], [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    out, moved = kl.func.jvp(pushed, (particles(k),), (particles(k),))
    assert np.allclose(moved["v"].numpy(), 2 * out["v"].numpy())


def test_what_no_transform_takes_says_so(k: dict[str, Any]) -> None:
    def spoiled(ps: Any) -> Any:
        k["spoil"][2](ps)
        return ps["mass"].contiguous()

    with pytest.raises(GradientError, match=r"(?s)changes its argument `ps`, field mass.*test_func_structs"):
        kl.func.jacrev(spoiled)(particles(k))
    with pytest.raises(KernelTypeError, match="argument `c` of <lambda> has no field of floats"):
        kl.func.jacrev(lambda c: X)(k["Counts"](n=3))
    with pytest.raises(
        GradientError, match="argument `ps` of spoiled is an array of structs, which has no lanes"
    ):
        kl.func.vmap(spoiled)(particles(k))
    with pytest.raises(KernelTypeError, match="<lambda> returned a float as k, which is data of the host"):
        kl.func.jacrev(lambda x: k["Params"](k=1.0))(X)


# ------------------------------------------------------------------------------------------ kl.autograd


def test_jacobians_of_functions_are_by_the_fields_that_require_gradients(k: dict[str, Any], p: Any) -> None:
    with pytest.raises(
        GradientError, match=r"(?s)no input of f is an array with requires_grad.*for a struct"
    ):
        kl.autograd.jacobian(values(k), inputs=[p, X])
    p.requires_grad = True
    for compute in (kl.autograd.jacobian, kl.autograd.jacobian_fd):
        found = compute(values(k), inputs=[p, X])
        assert list(found) == [("p.k", 0), ("p.d", 0), ("p.inner.a", 0)]
        assert np.allclose(found["p.d", 0].numpy(), [[0, 9, 0], [0, 25, 0]], atol=1e-3)
    p.w.requires_grad = True
    report = kl.autograd.gradcheck(values(k), inputs=[p, X], show_summary=False)
    assert [pair.input for pair in report.pairs] == ["p.k", "p.d", "p.inner.a", "p.w"]
    assert (p.k, p.w.numpy().tolist()) == (2.0, [1.0, 2.0])


def test_arrays_of_structs_are_copied_and_overwritten_inside_a_function(k: dict[str, Any]) -> None:
    def f(ps: Any) -> Any:
        kept, total = kl.clone(ps), kl.zeros(1)
        kl.copy(kept[:1], ps[1:])
        kept[1:].zero_()
        k["energy"][2](kept, total)
        return total

    ps = particles(k)
    g = kl.func.grad(f)(ps)
    assert g["mass"].numpy().tolist() == [0.0, 1.0]
    assert g["v"].numpy().tolist() == [[0.0, 0.0, 0.0], [0.0, 6.0, 0.0]]
    _, moved = kl.func.jvp(f, (ps,), (g,))
    assert moved.numpy().tolist() == [1.0 + 36.0]
