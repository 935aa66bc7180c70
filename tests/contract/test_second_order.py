"""Second order composes: a derivative of a derivative obeys the same contract.

``jvp(f)`` is differentiated in reverse and forwards: the two agree by the inner product, and with differences
of the tangent.  Through functions, all four orders of the modes give the same Hessian, that of differences.
"""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import KernelTypeError
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import vjp
from tests.support.derivatives import active_names, gradients, pushed
from tests.support.lowering import lowered

pytestmark = pytest.mark.slow

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


# ------------------------------------------------------------------------- transforms of functions

SUM = """
def squares(y: array[float64], total: array[float64]):
    i = tid()
    atomic_add(total, 0, y[i] * y[i])

def masked(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = where(x[i] > 0.5, x[i] * log(x[i] - 0.5) * sqrt(x[i] - 0.5), x[i] * x[i])

def as_often_as(x: array[float64], n: int, y: array[float64]):
    i = tid()
    s = x[i]
    for k in range(n):
        s = s * s * x[0]
    y[i] = s

def halfway(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = x[i] * x[(i + 1) % 3]

def exchanged(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = x[i] * atomic_exch(x, 0, x[i])

def sines(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = x[i] * sin(x[i])

def constants(y: array[float64]):
    i = tid()
    y[i] = 0.5 * float64(i)

def nine(q: array[float64], x: array[float64], r: array[float64], s: array[float64], t: array[float64],
         u: array[float64], v: array[float64], w: array[float64], y: array[float64]):
    i = tid()
    y[i] = x[i] * sin(x[i]) + q[i] * t[i]
    q[i] = y[i] * w[i]
"""
COUNT = 5
ORDERS = {
    "forward over reverse": lambda f: kl.func.jacfwd(kl.func.grad(f)),
    "reverse over forward": lambda f: kl.func.jacrev(lambda x: kl.func.jacfwd(f)(x).reshape((COUNT,))),
    "forward over forward": lambda f: kl.func.jacfwd(lambda x: kl.func.jacfwd(f)(x).reshape((COUNT,))),
    "reverse over reverse": lambda f: kl.func.jacrev(kl.func.grad(f)),
}


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("KERNELAB_BACKEND", "interp")
    return kl.compile(SUM)


def doubles(values: Any) -> Any:
    return kl.array(np.asarray(values), dtype=kl.float64)


def squares(kernels: dict[str, Any], *arrays: Any) -> Any:
    total = kl.zeros(1, dtype=kl.float64)
    for each in arrays:
        kernels["squares"][each.shape[0]](each, total)
    return total


def by_differences(f: Any, x: Any) -> Any:
    """The Hessian of a function by central differences of its gradient."""
    gradient, columns = kl.func.grad(f), []
    for unit in np.eye(len(x)):
        ahead, behind = (gradient(doubles(x + h * unit)).numpy() for h in (STEP, -STEP))
        columns.append((ahead - behind) / (2 * STEP))
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("text", KERNELS.values(), ids=KERNELS)
def test_every_order_of_modes_gives_the_hessian(text: str, kernels: dict[str, Any]) -> None:
    kernel = kl.compile(text)["k"]
    start = np.random.default_rng(5).uniform(0.2, 1.2, COUNT)

    def f(x: Any) -> Any:
        a, y = kl.clone(x), doubles([0.3, 0.5, 0.4])
        kernel[3](a, y)
        return squares(kernels, y, a)

    expected = by_differences(f, start)
    scale = max(1.0, float(np.abs(expected).max()))
    found = {name: order(f)(doubles(start)).numpy() for name, order in ORDERS.items()}
    for name, hessian in found.items():
        np.testing.assert_allclose(hessian, expected, atol=1e-6 * scale, err_msg=name)
        np.testing.assert_allclose(hessian, found["forward over reverse"], atol=1e-11 * scale, err_msg=name)


@pytest.mark.parametrize("order", ORDERS)
def test_a_branch_that_is_masked_out_poisons_no_second_derivative(
    order: str, kernels: dict[str, Any]
) -> None:
    def f(x: Any) -> Any:
        y = kl.zeros_like(x)
        kernels["masked"][COUNT](x, y)
        return squares(kernels, y)

    start = np.array([0.5, 0.4, 0.1, 0.5, -0.3])
    np.testing.assert_allclose(ORDERS[order](f)(doubles(start)).numpy(), np.diag(12.0 * start**2), atol=1e-12)


@pytest.mark.parametrize("order", ORDERS)
def test_a_loop_that_runs_zero_times_leaves_second_derivatives_alone(
    order: str, kernels: dict[str, Any]
) -> None:
    def f(x: Any) -> Any:
        y = kl.zeros_like(x)
        kernels["as_often_as"][COUNT](x, 0, y)
        return squares(kernels, y)

    np.testing.assert_allclose(ORDERS[order](f)(doubles(np.ones(COUNT))).numpy(), 2.0 * np.eye(COUNT))


@pytest.mark.parametrize("order", ORDERS)
def test_an_array_that_a_later_launch_overwrites_counts_as_it_was(
    order: str, kernels: dict[str, Any]
) -> None:
    def f(x: Any) -> Any:
        a, b = kl.clone(x), kl.zeros_like(x)
        kernels["halfway"][COUNT - 2](a, b)
        kl.copy(a, b)
        kernels["halfway"][COUNT - 2](a, b)
        a.fill_(3.0)
        return squares(kernels, b)

    start = np.random.default_rng(6).uniform(0.4, 1.1, COUNT)
    hessian = ORDERS[order](f)(doubles(start)).numpy()
    np.testing.assert_allclose(hessian, by_differences(f, start), atol=1e-6)


def _nine(kernels: dict[str, Any], x: Any, a: Any, b: Any) -> None:
    spare = [kl.clone(x) for _ in range(6)]
    kernels["nine"][COUNT](a, b, *spare, kl.clone(b))


OVERWRITES = {
    "what varies": lambda k, x, a, b: k["sines"][COUNT](x, a),
    "what it has computed": lambda k, x, a, b: k["sines"][COUNT](b, a),
    "constants": lambda k, x, a, b: k["constants"][COUNT](a),
    "a part": lambda k, x, a, b: k["sines"][2](b, a[1:3]),
    "every other element, backwards": lambda k, x, a, b: k["sines"][3](b, a[::-2]),
    "sums": lambda k, x, a, b: k["squares"][COUNT](b, a[2:3]),
    "one of nine arrays": _nine,
    "a copy": lambda k, x, a, b: kl.copy(a, b),
    "a shifted copy of itself": lambda k, x, a, b: kl.copy(a[1:], a[:-1]),
    "a sum of arrays": lambda k, x, a, b: a.__iadd__(b),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("overwrite", OVERWRITES.values(), ids=OVERWRITES)
def test_what_an_adjoint_has_read_counts_as_it_was_however_it_is_overwritten(
    order: str, overwrite: Any, kernels: dict[str, Any]
) -> None:
    def f(x: Any) -> Any:
        a, b = kl.clone(x), kl.zeros_like(x)
        kernels["sines"][COUNT](a, b)
        overwrite(kernels, x, a, b)
        kernels["sines"][COUNT](a, b[::-1])
        return squares(kernels, a, b)

    start = np.random.default_rng(7).uniform(0.4, 1.1, COUNT)
    hessian = kl.func.vmap(ORDERS[order](f))(doubles([start])).numpy()[0]
    np.testing.assert_allclose(hessian, by_differences(f, start), atol=1e-5)
    np.testing.assert_allclose(ORDERS[order](f)(doubles(start)).numpy(), hessian, atol=1e-11)


@pytest.mark.parametrize("order", ORDERS)
def test_where_there_is_no_derivative_there_is_an_error_at_any_order(
    order: str, kernels: dict[str, Any]
) -> None:
    def f(x: Any) -> Any:
        a, y = kl.clone(x), kl.zeros_like(x)
        kernels["exchanged"][COUNT](a, y)
        return squares(kernels, y)

    with pytest.raises(KernelTypeError, match="atomic_exch"):
        ORDERS[order](f)(doubles(np.ones(COUNT)))
