"""Second order composes: a derivative of a derivative obeys the same contract.

``jvp(f)`` is differentiated in reverse and forwards: the two agree by the inner product, and with differences
of the tangent.
"""

import numpy as np
import pytest

from kernelab.passes.jvp import jvp
from kernelab.passes.vjp import vjp
from tests.support.derivatives import active_names, gradients, pushed
from tests.support.lowering import lowered

KERNELS = {
    "a loop that leaves early": """
def k(x: array[float64], y: array[float64]):
    i = tid()
    s = x[i]
    for j in range(5):
        s = s * x[j] + sin(s)
        if s > 1.5:
            break
    y[i] = s * s
""",
    "a while loop": """
def k(x: array[float64], y: array[float64]):
    i = tid()
    r = x[i] * x[i] + 1.0
    n = 0
    while n < 3:
        r = 0.5 * (r + x[i] / r)
        n += 1
    y[i] = r
""",
    "an array in place": """
def k(x: array[float64], y: array[float64]):
    i = tid()
    for j in range(3):
        y[i] = sin(y[i]) * x[j] + y[i] * y[i]
    x[i] *= y[i]
""",
    "an atomic's old value": """
def k(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = y[i] + x[i] * atomic_add(x, 0, x[i] * x[i])
""",
    "a maximum": """
def k(x: array[float64], y: array[float64]):
    i = tid()
    atomic_max(y, 0, x[i] * x[i] * x[i])
""",
    "components and a local array": """
def k(x: array[float64], y: array[float64]):
    i = tid()
    p = vec3d(x[0], x[1], x[i])
    a = zeros(3, dtype=float64)
    for j in range(6):
        a[j % 3] = p[j % 3] * a[(j + 1) % 3] + x[i]
        p[(i + j) % 3] *= a[0] * 0.5
    y[i] = dot(p, p) * a[2]
""",
    "a function that returns early": """
def soft(v: float64, limit: float64):
    if v > limit:
        return limit + log(1.0 + v - limit)
    return v * v

def k(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = soft(x[i], x[0]) * soft(x[i] * x[1], 0.1)
""",
}
STEP = 1e-6


@pytest.mark.parametrize("text", KERNELS.values(), ids=KERNELS)
def test_second_derivatives_agree_with_each_other_and_with_differences(text: str) -> None:
    grid, rng = (3,), np.random.default_rng(4)
    function = lowered(text, "k")
    values = {"x": rng.uniform(0.2, 1.2, 5), "y": rng.normal(size=3)}
    v, u, w = ({name: rng.normal(size=value.shape) for name, value in values.items()} for _ in range(3))
    tangent = jvp(function, ["x", "y"])
    for name in ("x", "y"):
        tangent.param(f"{name}_dot").hint = f"{name}_v"  # the second tangents are called x_dot, too
    point = values | {f"{name}_v": dot for name, dot in v.items()}
    zeros = {name: np.zeros(value.shape) for name, value in point.items()}
    directions, seeds = zeros | u, zeros | {f"{name}_v": bar for name, bar in w.items()}
    reverse = gradients(vjp(tangent, active_names(tangent)), grid, point, seeds)
    forward = pushed(tangent, grid, point, directions)
    by_reverse = sum(float(np.sum(reverse[name] * u[name])) for name in u)
    by_forward = sum(float(np.sum(forward[f"{name}_v"] * w[name])) for name in w)
    assert by_reverse == pytest.approx(by_forward, rel=1e-10, abs=1e-10)

    def first(shift: float) -> float:
        moved = pushed(function, grid, {name: value + shift * u[name] for name, value in values.items()}, v)
        return sum(float(np.sum(moved[name] * w[name])) for name in w)

    assert by_forward == pytest.approx((first(STEP) - first(-STEP)) / (2 * STEP), rel=1e-6, abs=1e-6)
