"""Vectors and matrices of any shape: as annotations, constructors and captured types, on both backends."""

import numpy as np
import pytest

import kernelab as kl
from kernelab.lang.types import Mat, Vec, float32, float64, int32, type_named
from tests.frontend.helpers import errors

KERNEL = "def k(x: array[float]):\n    "

vec5 = kl.types.vector(length=5, dtype=float)
mat23i = kl.types.matrix(shape=(2, 3), dtype=int)

TEXT = """
def joined(x: array[vec5], y: array[kl.types.vector(length=5, dtype=float)], z: array[mat23]):
    i = tid()
    v = x[i]
    y[i] = v * 2.0 + vec5(1.0, 2.0, 3.0, 4.0, v[0]) + vector(v[0], v[1], v[2], v[3], 1.0)
    m = matrix(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, shape=(2, 3))
    six = vec6(vec3(v[0], 1.0, v[1]), vec3(3.0))
    z[i] = (m + matrix_from_rows(vec3(six[0], six[1], six[2]), vec3(1.0))) @ (2.0 * identity(n=3))

def whole(x: array[mat23i], n: mat23i, y: array[mat23i], t: array[int]):
    i = tid()
    m = x[i] + n * 2
    m[1, 2] = 7
    m[0] = vec3i(1, 2, 3)
    y[i] = m
    row = m[1]
    t[i] = row[0] + m[0, 1] + (m @ transpose(m))[0, 0]
"""


def test_vectors_and_matrices_of_any_shape_are_values_and_differentiate() -> None:
    joined = kl.compile(TEXT)["joined"]
    data = np.random.default_rng(0).uniform(-1, 1, (3, 5)).astype(np.float32)
    x = kl.array(data, dtype=vec5, requires_grad=True)
    y, z = kl.zeros(3, dtype=vec5), kl.zeros(3, dtype=kl.mat23)
    assert kl.autograd.gradcheck(joined, 3, [x], [y, z])
    joined[3](x, y, z)
    added = np.array([1, 2, 3, 4, 1], np.float32) + data * [1, 1, 1, 1, 0] + data[:, :1] * [0, 0, 0, 0, 1]
    np.testing.assert_allclose(y.numpy(), data * 2 + added, rtol=1e-6)
    np.testing.assert_allclose(
        z.numpy()[:, 0, :], 2 * (data[:, [0, 0, 1]] * [1, 0, 1] + [1, 3, 3]), rtol=1e-6
    )


def test_matrices_of_integers_compute_with_integers() -> None:
    whole = kl.compile(TEXT)["whole"]
    y, t = kl.zeros(2, dtype=mat23i), kl.zeros(2, dtype=int)
    whole[2](np.arange(12, dtype=np.int32).reshape(2, 2, 3), np.arange(6).reshape(2, 3), y, t)
    assert y.numpy()[1].tolist() == [[1, 2, 3], [15, 18, 7]]
    assert t.numpy().tolist() == [25, 31]


@pytest.mark.parametrize(
    ("name", "type"),
    [
        ("vec2i", Vec(int32, 2)),
        ("vec16d", Vec(float64, 16)),
        ("mat23", Mat(float32, 2, 3)),
        ("mat22f", Mat(float32, 2, 2)),
        ("mat1x12i", Mat(int32, 1, 12)),
        ("vec145", None),
        ("vec3q", None),
        ("mat13x13", None),
        ("mat116", None),
    ],
)
def test_a_name_says_shape_and_scalar(name: str, type: object) -> None:
    assert type_named(name) == type


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("v = vector(length=145)", "a kernel value holds at most 144 numbers, not 145"),
        ("v = vector()", "vector does not say its length"),
        ("v = matrix(1.0)", "matrix does not say its shape"),
        ("v = identity(n=x[0])", "the n of identity has to be known when the kernel is compiled"),
        ("v = vector(1.0, size=3)", "vector takes length and dtype"),
        ("v = vector(length=3, dtype=3)", "the dtype of vector has to be a type of numbers"),
        ("v = vec5(1.0, 2.0)", "vec5 takes 0, 1 or 5 numbers, not (float, float)"),
        ("v = outer(vec13(1.0), vec13(1.0))", "outer takes (a: vector, b: vector), not (vec13, vec13)"),
    ],
)
def test_what_does_not_name_a_type_is_refused(text: str, message: str) -> None:
    assert errors(f"{KERNEL}{text}\n")[0].message == message


def test_on_the_host_the_words_say_where_they_belong() -> None:
    with pytest.raises(kl.KernelTypeError, match="only inside a kernel"):
        kl.vector(1.0)


NOTHING = """
def twice(v):
    return 2.0 * v

def kernel(x: array[vec3], n: int, out: array[float]):
    v = x[0]
    none = v[3:]
    expect_eq(none, vector(length=0, dtype=float))
    expect_eq(v[2:1] != none, False)
    v[1:1] = none
    v[7:] += none
    out[0] = length(v)
    sum = twice(none)
    for i in range(n):
        if v.x > 0.0:
            sum += none
    out[1] = float(len(sum)) + dot(sum, none) + length(none)
    wide = matrix(shape=(2, 0), dtype=float)
    out[2] = (wide @ none).y + v.x
    for c in none:
        out[3] = c
"""


@pytest.mark.parametrize("backend", ["cpu", "interp"])
def test_a_vector_without_components_is_a_value_without_effect(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELAB_BACKEND", backend)
    x = kl.array([[2.0, 3.0, 6.0]], dtype=kl.vec3, requires_grad=True)
    out = kl.full(4, 5.0, dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kl.compile(NOTHING)["kernel"], 1, inputs=[x, 3, out])
    assert out.list() == [7.0, 0.0, 2.0, 5.0]
    tape.backward(grads={out: kl.ones(4, dtype=float)})
    np.testing.assert_allclose(x.grad.numpy(), [[2 / 7 + 1, 3 / 7, 6 / 7]], rtol=1e-6)


def test_on_the_host_a_vector_without_components_equals_another() -> None:
    none = kl.types.vector(0, float)
    v = kl.vec3(1.0, 2.0, 3.0)
    assert v[3:] == none() and v[2:1] == none() and v[1:] != none()
    assert len(none()) == 0


def test_nothing_is_stored_or_handed_over_as_a_vector_without_components() -> None:
    none = kl.types.vector(0, float)
    with pytest.raises(kl.KernelTypeError, match="an array cannot hold vec0"):
        kl.zeros(3, dtype=none)
    for annotation in ("none", "array[none]", "array(dtype=none)"):
        (found,) = errors(f"def k(x: {annotation}):\n    y = x", none=none)
        assert found.message == "vec0 has no components"
    (found,) = errors("def k(x: array[float], v: vec3):\n    x[0] = max(v[3:])")
    assert found.message == "vec0 has no components, so max of it is not a number"
