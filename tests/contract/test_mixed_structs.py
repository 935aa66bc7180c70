"""Arrays of structs that hold floats beside integers, or floats of two widths, in every transform."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.interop.scipy import problem

CELL = """
class Cell:
    level: FLOAT
    count: int
    weight: float64

def store(x: array[FLOAT], cells: array[Cell]):
    i = tid()
    cells[i].level = x[i] * x[i]
    cells[i].weight = float64(x[i])

def count(s: array[FLOAT], cells: array[Cell]):
    i = tid()
    cells[i].count += int(s[0])

def advance(x: array[FLOAT], cells: array[Cell]):
    i = tid()
    cells[i].level = x[i] * 0.5
    cells[i].count += 1

def read(cells: array[Cell], y: array[FLOAT]):
    i = tid()
    y[i] += cells[i].level * FLOAT(cells[i].count) * FLOAT(cells[i].weight)
"""
KERNELS = {dtype: kl.compile(CELL.replace("FLOAT", str(dtype))) for dtype in (kl.float32, kl.float64)}
X = np.array([1.0, 2.0])
either = pytest.mark.parametrize("dtype", KERNELS, ids=str)


def stored(x: Any) -> tuple[Any, Any]:
    """Cells for x, and zeros of as many numbers."""
    cells = kl.zeros(len(x), dtype=KERNELS[x.dtype]["Cell"], requires_grad=True)
    KERNELS[x.dtype]["store"][len(x)](x, cells)
    return cells, kl.zeros_like(x, requires_grad=True)


def counted(x: Any, s: Any) -> Any:
    """The sum of s x ** 3: `s` goes into integers alone."""
    cells, y = stored(x)
    KERNELS[x.dtype]["count"][len(x)](s, cells)
    KERNELS[x.dtype]["read"][len(x)](cells, y)
    return y.sum()


def advanced(x: Any) -> Any:
    """The sum of 3 x ** 3 + 2 x ** 2: floats and integers change at once, twice."""
    cells, y = stored(x)
    cells["count"].fill_(3)
    KERNELS[x.dtype]["read"][len(x)](cells, y)
    KERNELS[x.dtype]["advance"][len(x)](x, cells)
    KERNELS[x.dtype]["read"][len(x)](cells, y)
    return y.sum()


def of_lanes(x: Any) -> Any:
    """The sum over lanes, which differ by an integer: 6 x ** 3 in all."""
    s = kl.array([[1.0], [2.0], [3.0]], dtype=x.dtype)
    return kl.func.vmap(lambda s: counted(x, s))(s).sum()


def of_lanes_of_lanes(x: Any) -> Any:
    s = kl.array([[1.0], [2.0], [3.0]], dtype=x.dtype)
    zeros = kl.zeros((2, 1), dtype=x.dtype)
    inner = kl.func.vmap(lambda s, t: counted(x, kl.map(lambda a, b: a + b, s, t)), in_dims=(0, None))
    return kl.func.vmap(lambda t: inner(s, t).sum())(zeros).sum() * 0.5


SLOPES: dict[str, Callable[[Any, Any], Any]] = {
    "grad": lambda f, x: kl.func.grad(f)(x).numpy(),
    "jacfwd": lambda f, x: kl.func.jacfwd(f)(x).numpy().reshape(-1),
    "grad in vmap": lambda f, x: kl.func.vmap(kl.func.grad(f))(x.reshape((1, 2))).numpy()[0],
    "jac": lambda f, x: problem(f, x).jac(x.numpy()),
    "differences": lambda f, x: kl.autograd.jacobian_fd(f, inputs=[kl.clone(x, requires_grad=True)])[
        0, 0
    ].numpy()[0],
}
CURVATURES: dict[str, Callable[[Any, Any], Any]] = {
    "hessian": lambda f, x: kl.func.hessian(f)(x).numpy(),
    "grad of grad": lambda f, x: np.diag(kl.func.grad(lambda x: kl.func.grad(f)(x).sum())(x).numpy()),
    "hess": lambda f, x: problem(f, x).hess(x.numpy()),
    "hessp": lambda f, x: np.diag(problem(f, x).hessp(x.numpy(), np.ones(2))),
}
functions = pytest.mark.parametrize(
    ("f", "slope", "curvature"),
    [
        (of_lanes, 18.0 * X**2, 36.0 * X),
        (of_lanes_of_lanes, 18.0 * X**2, 36.0 * X),
        (advanced, 9.0 * X**2 + 4.0 * X, 18.0 * X + 4.0),
    ],
    ids=["lanes", "lanes of lanes", "changed twice"],
)


@either
@functions
@pytest.mark.parametrize("found", SLOPES.values(), ids=SLOPES)
def test_slopes_pass_what_lies_beside_integers(
    found: Callable[[Any, Any], Any], f: Any, slope: Any, curvature: Any, dtype: Any
) -> None:
    assert found(f, kl.array(X, dtype=dtype)) == pytest.approx(slope, rel=1e-5)


@either
@functions
@pytest.mark.parametrize("found", CURVATURES.values(), ids=CURVATURES)
def test_second_derivatives_pass_it_too(
    found: Callable[[Any, Any], Any], f: Any, slope: Any, curvature: Any, dtype: Any
) -> None:
    assert found(f, kl.array(X, dtype=dtype)) == pytest.approx(np.diag(curvature), rel=1e-5)


@either
def test_lanes_return_all_fields_of_an_array_of_structs(dtype: Any) -> None:
    kernels = KERNELS[dtype]

    def cells_of(x: Any) -> Any:
        cells = kl.zeros(2, dtype=kernels["Cell"])
        kl.launch(kernels["store"], 2, [x, cells])
        kl.launch(kernels["count"], 2, [x, cells])
        return cells

    x = kl.array(np.arange(6.0).reshape(3, 2), dtype=dtype)
    found = kl.func.vmap(cells_of)(x)
    assert [*found] == ["level", "count", "weight"]
    np.testing.assert_array_equal(found["level"].numpy(), x.numpy() ** 2)
    np.testing.assert_array_equal(found["count"].numpy(), [[0, 0], [2, 2], [4, 4]])
