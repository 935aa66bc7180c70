"""Short loops whose counter picks a component are written out; the results are the same."""

import numpy as np
import pytest

import kernelab as kl
from kernelab.lang import ir
from kernelab.passes.common.simplify import simplify
from kernelab.passes.common.unroll import MOST, unrolled
from tests.support.derivatives import run
from tests.support.lowering import lowered

HEAD = "def f(x: array2d[float64], y: array[float64]):\n    i = tid()\n    "
SORT = """
v = vec4d()
for k in range(4):
    v[k] = x[i, k]
for a in range(4):
    for b in range(3):
        if v[b] > v[b + 1]:
            t = v[b]
            v[b] = v[b + 1]
            v[b + 1] = t
y[i] = v[0] + 10.0 * v[1] + 100.0 * v[2] + 1000.0 * v[3]
"""
CHOLESKY = """
m = mat33d(x[i, 0], x[i, 1], x[i, 2], x[i, 1], x[i, 3], x[i, 1], x[i, 2], x[i, 1], x[i, 3])
a = transpose(m) * m + identity(3, dtype=float64)
l = mat33d(0.0)
for r in range(3):
    for c in range(r + 1):
        s = a[r, c]
        for k in range(c):
            s -= l[r, k] * l[c, k]
        l[r, c] = sqrt(s) if r == c else s / l[c, c]
y[i] = l[2, 2] + l[2, 1] * l[1, 0]
"""
BACKWARDS = """
v = vec4d(x[i, 0], x[i, 1], x[i, 2], x[i, 3])
for k in range(2, -1, -1):
    v[k] = 0.5 * v[k + 1] * v[k] + v[2 - k]
y[i] = v[0]
"""
PROGRAMS = {"sort": SORT, "cholesky": CHOLESKY, "backwards": BACKWARDS}


def written(text: str) -> ir.Function:
    return lowered(HEAD + "\n    ".join(text.strip().split("\n")), "f")


def loops(function: ir.Function) -> int:
    return sum(isinstance(stmt, ir.For) for stmt in ir.walk(function.body))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_whose_loops_are_written_out_computes_the_same(name: str) -> None:
    function = written(PROGRAMS[name])
    x, results = np.random.default_rng(0).standard_normal((6, 4)), []
    for one in (function, simplify(unrolled(function))):
        arguments = {"x": x.copy(), "y": np.zeros(6)}
        results.append(run(one, (6,), arguments)["y"])
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize(("name", "left"), [("sort", 1), ("cholesky", 0), ("backwards", 0)])
def test_only_loops_whose_counter_picks_a_component_are_written_out(name: str, left: int) -> None:
    assert loops(simplify(unrolled(written(PROGRAMS[name])))) == left


@pytest.mark.parametrize(
    "text",
    [
        "s = float64(0.0)\nfor k in range(4):\n    s += x[i, k]\ny[i] = s",
        "v = vec4d()\nfor k in range(4):\n    if x[i, k] < 0.0:\n        break\n    v[k] = 1.0\ny[i] = v[0]",
        f"v = vec4d()\nfor k in range({MOST + 1}):\n    v[k % 4] += x[i, 0]\ny[i] = v[0]",
        "v = vec4d()\nfor k in range(x.shape[1]):\n    v[k] = x[i, k]\ny[i] = v[0]",
    ],
    ids=["no component", "a break", "too long", "a length found at run time"],
)
def test_other_loops_stay(text: str) -> None:
    assert loops(simplify(unrolled(written(text)))) == 1


def test_an_index_beyond_the_vector_is_still_an_error() -> None:
    kernel = kl.compile(
        f"{HEAD}v = vec2d()\n    for k in range(3):\n        v[k] = x[i, 0]\n    y[i] = v[0]\n"
    )["f"]
    with pytest.raises(kl.KernelError, match="a component index outside of vec2d"):
        kernel[1](kl.zeros((1, 1), kl.float64), kl.zeros(1, kl.float64))


def test_the_backward_pass_keeps_nothing_for_them() -> None:
    kernel = kl.compile(HEAD + "\n    ".join(BACKWARDS.strip().split("\n")))["f"]
    x = kl.array(np.random.default_rng(1).standard_normal((5, 4)), dtype=kl.float64, requires_grad=True)
    y = kl.zeros(5, kl.float64, requires_grad=True)
    assert kl.autograd.gradcheck(kernel, 5, [x], [y])
    loops = [
        stmt
        for stmt in ir.walk(kernel.program.pullback((0, 1)).adjoint.flat.body)
        if isinstance(stmt, ir.Save | ir.For)
    ]
    assert not loops
