"""Arguments by the names that Warp documents, in kernels and on the host."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl

CALLS = {
    "clamp(x=x, low=0.0, high=1.0)": "clamp(x, 0.0, 1.0)",
    "clamp(x, high=1.0, low=0.0)": "clamp(x, 0.0, 1.0)",
    "pow(y=2.0, x=x)": "x ** 2.0",
    "pow(x=x, y=2)": "x ** 2",
    "where(cond=x > 0.0, value_if_true=1.0, value_if_false=x)": "where(x > 0.0, 1.0, x)",
    "select(cond=x > 0.0, value_if_false=x, value_if_true=1.0)": "where(x > 0.0, 1.0, x)",
    "length(a=v)": "length(v)",
    "determinant(a=diag(vec=v))": "determinant(diag(v))",
    "mul(a=diag(v), b=v)[1]": "(diag(v) * v)[1]",
    "trace(a=inverse(a=skew(vec=v) + diag(v)))": "trace(inverse(skew(v) + diag(v)))",
    "quat_rotate(quat=q, vec=v)[0]": "quat_rotate(q, v)[0]",
    "quat_inverse(quat=quat(x=x, y=0.5, z=0.1, w=0.2))[0]": "-x",
    "quaternion(ijk=v, real=x)[1] + quat(real=x, ijk=v)[3]": "2.0 + x",
    "transformation(p=v)[6] + transform(p=v)[1]": "3.0",
    "curlnoise(state, octaves=3, xyz=v)[1]": "curlnoise(state, v, 3)[1]",
    "float(lshift(a=3, b=rshift(a=8, b=2)))": "12.0",
    "float(skew(vec=vec3i(1, 2, 3))[1, 0])": "3.0",
    "transform_point(xform=transformation(p=v, q=q), point=v)[2]": "transform_point(transform(v, q), v)[2]",
    "transform_vector(mat=identity(n=4, dtype=float), vec=v)[2]": "v[2]",
    "spatial_top(svec=spatial_vector(v=v, w=2.0 * v))[1]": "2.0 * v[1]",
    "svd3(A=diag(v))[1][0]": "svd3(diag(v))[1][0]",
    "float(len(a=v))": "3.0",
    "mat22(diag(vec2(x, 2.0)), shape=(2, 2))[0, 0]": "x",
    "vec3(x, length=3)[2]": "x",
    "float(int8(a=x))": "float(int8(x))",
}
BY_NAME = "\n".join(f"    named[{k}, i] = {call}" for k, call in enumerate(CALLS))
IN_ORDER = "\n".join(f"    plain[{k}, i] = {call}" for k, call in enumerate(CALLS.values()))
TEXT = f"""
def by_name(xs: array[float], named: array2d[float], plain: array2d[float]):
    i = tid()
    x = xs[i]
    v = vec3(x, 2.0, 0.5)
    q = quat_rpy(0.1, 0.2, 0.3)
    state = rand_init(42)
{BY_NAME}
{IN_ORDER}

def in_place(n: array[int], y: array[float]):
    t = transform_identity()
    transform_set_translation(p=vec3(1.0, 2.0, 3.0), xform=t)
    y[0] = t.p[1]
    shifted = transform(p=vec3(1.0, 2.0, 3.0))
    expect_eq(shifted, t)
    expect_eq(transform(vec3(1.0, 2.0, 3.0)), t)
    atomic_add(arr=y, i=0, value=0.5)
    atomic_add(y, 0, value=0.25)
    atomic_cas(arr=n, i=0, compare=0, value=7)
"""


@pytest.fixture(params=["cpu", "interp"])
def cell(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    if request.param == "interp":
        monkeypatch.setenv("KERNELAB_BACKEND", "interp")
    return kl.compile(TEXT)


def test_names_that_warp_documents_put_arguments_in_order(cell: dict[str, Any]) -> None:
    xs = kl.array([-0.7, 0.3, 1.8], dtype=float)
    named, plain = (kl.zeros((len(CALLS), 3), dtype=float) for _ in range(2))
    kl.launch(cell["by_name"], dim=3, inputs=[xs], outputs=[named, plain])
    for call, a, b in zip(CALLS, named.numpy(), plain.numpy(), strict=True):
        assert np.array_equal(a, b, equal_nan=True), call


def test_calls_that_change_something_take_names_too(cell: dict[str, Any]) -> None:
    n, y = kl.zeros(1, dtype=int), kl.zeros(1, dtype=float)
    kl.launch(cell["in_place"], dim=1, outputs=[n, y])
    assert (n.numpy()[0], y.numpy()[0]) == (7, 2.75)


def test_the_host_takes_the_same_names() -> None:
    assert kl.clamp(x=3.0, low=0.0, high=1.0) == kl.clamp(3.0, high=1.0, low=0.0) == 1.0
    q = kl.quat_rpy(0.1, 0.2, 0.3)
    assert kl.quat_rotate(quat=q, vec=kl.vec3(1.0, 2.0, 3.0)) == kl.quat_rotate(q, kl.vec3(1.0, 2.0, 3.0))
    with pytest.raises(kl.KernelError, match=r"the arguments of sin are \(x\)"):
        kl.sin(y=1.0)


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(kl.KernelError, match=r"the arguments of clamp are \(x, low, high\)"):
        kl.compile("def k(y: array[float]):\n    y[0] = clamp(x=1.0, minimum=2.0, high=3.0)")
