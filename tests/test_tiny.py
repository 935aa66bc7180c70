"""The essence, in seconds: text becomes IR, IR becomes its derivatives, and the three witnesses agree."""

import numpy as np

from kernelab.lang.show import show
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.copying import widen
from kernelab.passes.common.simplify import simplify
from tests.support.derivatives import derivatives, gradients, run
from tests.support.lowering import lowered

CUBE = """
def cube(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i] * x[i]
"""


def test_a_kernel_is_data() -> None:
    assert show(lowered(CUBE, "cube")).splitlines() == [
        "cube(x: array[float32], y: array[float32]) threads i: int32",
        "  t_1: float32 = x[i]",
        "  t_2: float32 = x[i]",
        "  t_3: float32 = mul(t_1, t_2)",
        "  t_4: float32 = x[i]",
        "  t_5: float32 = mul(t_3, t_4)",
        "  y[i] = t_5",
    ]


def test_a_derivative_is_a_function_like_any_other() -> None:
    cube = lowered(CUBE, "cube")
    assert [param.hint for param in jvp(cube, ["x", "y"]).params] == ["x", "y", "x_dot", "y_dot"]
    assert [param.hint for param in vjp(cube, ["x", "y"]).adjoint.params] == ["x", "y", "x_bar", "y_bar"]


def test_the_adjoint_of_a_cube_is_three_times_the_square() -> None:
    cube = widen(lowered(CUBE, "cube"))
    arguments = {"x": np.array([1.0, 2.0, 3.0]), "y": np.zeros(3)}
    seeds = {"x": np.zeros(3), "y": np.ones(3)}
    assert run(cube, (3,), arguments)["y"].tolist() == [1.0, 8.0, 27.0]
    assert gradients(vjp(cube, seeds), (3,), arguments, seeds)["x"].tolist() == [3.0, 12.0, 27.0]


def test_adjoint_tangent_and_differences_agree_through_a_loop_that_leaves_early() -> None:
    text = """
def search(x: array[float], y: array[float]):
    i = tid()
    s = 1.0
    for j in range(len(x)):
        s = s * x[j] + sin(s)
        if s > 2.0:
            break
    y[i] = s
"""
    function = simplify(widen(lowered(text, "search")))
    rng = np.random.default_rng(0)
    assert derivatives(function, (2,), {"x": rng.normal(size=6), "y": np.zeros(2)}, rng).agree()
