"""Derivatives through what the language offers beyond numbers: slices, rows, tuples, operators of structs."""

import numpy as np

import kernelab as kl

TEXT = """
class Complex:
    re: float
    im: float

def mul(a: Complex, b: Complex):
    return Complex(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)

def weighted(values: tuple[float, float, float], w: vec3):
    s = 0.0
    for k in range(3):
        s += values[k] * w[k]
    return s

def everything(x: array[float], m: array[mat33], a: array2d[float], y: array[float]):
    i = tid()
    v = vec4(*x[0:4])
    v[1:3] += vec2(x[i], 2.0)
    n = m[i]
    n[1:, 0] = v.yx
    n[0] *= v[3]
    z = Complex(v[0], v[2]) * Complex(x[i], n[2, 0])
    s = weighted((z.re, z.im, n[0, 1]), vec3(*n[:, 1])) * vec2(*a[i + 2, :2]).y
    for c in v[::2]:
        s += c * c
    y[i] = s
    a[i] = a[i + 2]
    a[i, 1:] += x[2] * x[i]
"""


def test_gradients_through_slices_rows_and_tuples() -> None:
    kernel = kl.compile(TEXT, {})["everything"]
    rng = np.random.default_rng(3)

    def made(*shape: int, dtype: object = float) -> object:
        return kl.array(rng.uniform(0.5, 1.5, shape), dtype=dtype, requires_grad=True)

    x, m, a, y = made(4), made(2, 3, 3, dtype=kl.mat33), made(4, 3), made(2)
    assert kl.autograd.gradcheck(kernel, 2, inputs=[x, m], outputs=[a, y])
