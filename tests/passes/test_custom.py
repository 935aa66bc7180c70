"""Functions with custom derivatives, differentiated: adjoint, tangent and differences agree."""

from typing import Any

import numpy as np
import pytest

from kernelab.errors import KernelTypeError
from kernelab.lang.ir import Append, Custom, Function, Load, walk
from kernelab.lang.verify import verify
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.copying import inline, lay_out, widen
from kernelab.passes.common.simplify import simplify
from tests.support.derivatives import Arguments, derivatives, gradients, pushed, run, wide
from tests.support.lowering import raw

SQUARE = """
def f(x: float):
    return x * x
@func_grad(f)
def adj_f(x: float, adj_ret: float):
    adjoint[x] += 2.0 * x * adj_ret
"""

LOOPED = """
def f(x: float, n: int):
    y = 1.0
    for _ in range(n):
        y *= sin(x) + 1.5
    return y
@func_grad(f)
def adj_f(x: float, n: int, adj_ret: float):
    for k in range(n):
        term = cos(x) * adj_ret
        for j in range(n):
            if j != k:
                term *= sin(x) + 1.5
        adjoint[x] += term
"""

VECTORS = """
def f(v: vec3, s: float):
    return s * v, dot(v, v)
@func_grad(f)
def adj_f(v: vec3, s: float, adj_scaled: vec3, adj_square: float):
    adjoint[v] += s * adj_scaled
    adjoint[v] += 2.0 * adj_square * v
    adjoint[s] += dot(v, adj_scaled)
"""

ARRAYS = """
def f(a: array[float], b: array[float], i: int):
    return a[i] * b[i]
@func_grad(f)
def adj_f(a: array[float], b: array[float], i: int, adj_ret: float):
    adjoint[a][i] += b[i] * adj_ret
    atomic_add(adjoint[b], i, a[i] * adj_ret)
"""

TANGENT = """
def f(x: float, v: vec3):
    return sin(x), x * v
@func_jvp(f)
def f_jvp(x: float, v: vec3, x_dot: float, v_dot: vec3):
    return cos(x) * x_dot, x_dot * v + x * v_dot
"""

GRADIENTS = """
def cube(t: float):
    return t * t * t
def slope(t: float):
    return grad(cube)(t)
def f(x: float):
    return slope(x) * x
@func_grad(f)
def adj_f(x: float, adj_ret: float):
    adjoint[x] += (grad(slope)(x) * x + slope(x)) * adj_ret
"""

ELSE = """
def f(x: float, n: int):
    y = 1.0
    for k in range(4):
        if k >= n:
            break
        y *= x
    else:
        y = x
    return y
@func_grad(f)
def adj_f(x: float, n: int, adj_ret: float):
    y = float(n)
    for k in range(4):
        if k >= n - 1:
            break
        y *= x
    else:
        y = 1.0
    if n >= 4:
        y = 1.0
    k = 0
    while k < 3:
        if k > n:
            break
        k += 1
    else:
        y *= 1.0
    adjoint[x] += y * adj_ret
"""

KERNELS = {
    "with an else on its loops": ELSE
    + """
def k(x: array[float], y: array[float]):
    i = tid()
    y[i] = f(x[i], i + 1) * f(y[i], 2)
""",
    "called plainly": SQUARE
    + """
def k(x: array[float], y: array[float]):
    i = tid()
    y[i] = sin(f(x[i])) * x[i]
""",
    "called in loops and branches, on what they carry": SQUARE
    + """
def k(x: array[float], y: array[float]):
    i = tid()
    s = x[i]
    for j in range(3):
        if s > 0.2:
            s = cos(f(s)) + s
        else:
            s = f(s) - 0.3
    while s < 4.0:
        s += f(s) + 0.5
    y[i] = s
""",
    "with loops of its own": LOOPED
    + """
def k(x: array[float], y: array[float]):
    i = tid()
    s = x[i]
    for j in range(3):
        s = log(1.0 + f(s, j + i) ** 2)
    y[i] = s * f(x[i], 2)
""",
    "called by another function": SQUARE
    + """
def g(x: float):
    return f(f(x)) + x
def k(x: array[float], y: array[float]):
    i = tid()
    y[i] = g(x[i])
""",
    "with gradients of other functions in both": GRADIENTS
    + """
def k(x: array[float], y: array[float]):
    i = tid()
    y[i] = sin(f(x[i])) + grad(f)(x[i])
""",
    "of vectors, with two results": VECTORS
    + """
def k(x: array[float], v: array[vec3], y: array[float], w: array[vec3]):
    i = tid()
    scaled, square = f(v[i], x[i])
    w[i] = scaled * square
    y[i] = sin(square)
""",
    "of arrays": ARRAYS
    + """
def k(x: array[float], y: array[float], z: array[float]):
    i = tid()
    for j in range(i + 1):
        z[i] += f(x, y, j) * f(x, x, i)
""",
    "after reading what the kernel changes": SQUARE
    + """
def k(x: array[float], y: array[float]):
    i = tid()
    for j in range(2):
        x[i] = sin(f(x[i]) + y[i])
    y[i] = f(x[i])
""",
    "inside of which something is kept": """
def f(x: float, c: array[int], i: int):
    y = x
    if c[i] > 0:
        y += float(c[i])
    return y
@func_grad(f)
def adj_f(x: float, c: array[int], i: int, adj_ret: float):
    adjoint[x] += adj_ret
def k(x: array[float], y: array[float], c: array[int]):
    i = tid()
    for j in range(2):
        y[i] += sin(f(x[i] * x[i], c, i))
        c[i] = c[i] - 1
""",
    "with a tangent": TANGENT
    + """
def k(x: array[float], v: array[vec3], y: array[float], w: array[vec3]):
    i = tid()
    for j in range(2):
        s, u = f(x[i], v[i])
        y[i] += s * s
        w[i] += u * s
""",
    "with a tangent, of what the kernel changes": """
def f(a: array[float], i: int, n: int):
    s = 1.0
    for j in range(n):
        if a[i] > 0.3:
            s *= a[i]
    return s
@func_jvp(f)
def f_jvp(a: array[float], i: int, n: int, a_dot: array[float]):
    if a[i] > 0.3:
        return float(n) * a[i] ** float(n - 1) * a_dot[i]
    return 0.0
def k(x: array[float], y: array[float]):
    i = tid()
    for j in range(3):
        x[i] = sin(f(x, i, j)) + y[i]
        y[i] = x[i] * f(x, i, i)
""",
    "with a grad and a tangent for arrays that it changes": """
def f(a: array[float], i: int, x: float):
    a[i] = x * x
    return x * x * x
@func_grad(f)
def adj_f(a: array[float], i: int, x: float, adj_ret: float):
    adjoint[x] += 2.0 * x * adjoint[a][i] + 3.0 * x * x * adj_ret
    adjoint[a][i] = 0.0
@func_jvp(f)
def f_jvp(a: array[float], i: int, x: float, a_dot: array[float], x_dot: float):
    a_dot[i] = 2.0 * x * x_dot
    return 3.0 * x * x * x_dot
def k(x: array[float], y: array[float], z: array[float]):
    i = tid()
    for j in range(2):
        y[i] += f(z, i, sin(x[i] + z[i]))
    y[i] *= z[i]
""",
    "with a replay": """
def f(kept: array[float], i: int, x: float):
    kept[i] = exp(x)
    return sin(x)
@func_replay(f)
def again(kept: array[float], i: int, x: float):
    return sin(x)
def k(x: array[float], y: array[float], z: array[float]):
    i = tid()
    for j in range(2):
        y[i] += f(z, i, x[i]) ** 2
    y[i] *= z[i]
""",
}


def laid_out(text: str) -> Function:
    return verify(simplify(verify(widen(lay_out(raw(text, "k"))))))


def drawn(function: Function) -> tuple[tuple[int, ...], Arguments]:
    rng = np.random.default_rng(3)
    shapes = {"v": (4, 3), "w": (4, 3)}
    arguments: dict[str, Any] = {
        p.hint: rng.uniform(0.1, 1.0, shapes.get(p.hint, (4,))) for p in function.params if p.hint != "c"
    }
    if any(p.hint == "c" for p in function.params):
        arguments["c"] = np.array([1, 0, 2, 1], np.int32)
    return (4,), wide(function, arguments)


@pytest.mark.parametrize("text", KERNELS.values(), ids=KERNELS.keys())
def test_adjoint_tangent_and_differences_agree_for_a_function(text: str) -> None:
    function = laid_out(text)
    assert any(isinstance(stmt, Custom) for stmt in walk(function.body))
    grid, arguments = drawn(function)
    found = derivatives(function, grid, arguments, np.random.default_rng(4))
    assert found.agree(), found
    assert abs(found.tangent) > 1e-3


@pytest.mark.parametrize("text", KERNELS.values(), ids=KERNELS.keys())
def test_a_function_computes_what_it_computes_without_its_rules(text: str) -> None:
    function = laid_out(text)
    grid, arguments = drawn(function)
    plain = verify(simplify(inline(function)))
    for name, value in run(plain, grid, arguments).items():
        np.testing.assert_array_equal(run(function, grid, arguments)[name], value)


SURROGATE = """
def f(x: float, v: vec3):
    return round(x), sign(v[0]) * v
@func_grad(f, check=False)
def adj_f(x: float, v: vec3, adj_rounded: float, adj_v: vec3):
    adjoint[x] += adj_rounded + dot(adj_v, v)
    adjoint[v] += 3.0 * adj_v
def k(x: array[float], v: array[vec3], y: array[float], w: array[vec3]):
    i = tid()
    a, b = f(2.0 * x[i], v[i])
    y[i] = a * a
    w[i] = b * a
"""


def test_the_tangent_of_a_surrogate_is_the_transpose_of_its_adjoint() -> None:
    function = laid_out(SURROGATE)
    grid, arguments = drawn(function)
    found = derivatives(function, grid, arguments, np.random.default_rng(4))
    assert abs(found.adjoint - found.tangent) < 1e-10
    assert abs(found.tangent - found.differences) > 1e-3


def test_a_surrogate_for_arrays_has_no_tangent_until_one_is_written() -> None:
    text = ARRAYS.replace("func_grad(f)", "func_grad(f, check=False)") + KERNELS["of arrays"][len(ARRAYS) :]
    with pytest.raises(KernelTypeError, match="f has a surrogate gradient, and no tangent"):
        jvp(laid_out(text), ["x"])
    text += """
@func_jvp(f)
def f_jvp(a: array[float], b: array[float], i: int, a_dot: array[float], b_dot: array[float]):
    return a_dot[i] * b[i] + a[i] * b_dot[i]
"""
    function = laid_out(text)
    grid, arguments = drawn(function)
    assert derivatives(function, grid, arguments, np.random.default_rng(4)).agree()
    # An array that is not active has no tangent: it reads as zeros.
    assert verify(jvp(function, ["x", "z"]))


def test_the_rule_of_a_masked_branch_cannot_poison_a_gradient() -> None:
    text = """
def f(x: float):
    return sqrt(x)
@func_grad(f)
def adj_f(x: float, adj_ret: float):
    adjoint[x] += adj_ret / (2.0 * sqrt(x))
def k(x: array[float], y: array[float]):
    i = tid()
    y[i] = where(x[i] > 0.0, f(x[i]), 0.0)
"""
    function = laid_out(text)
    x, y = np.array([0.0, 4.0]), np.zeros(2)
    seeds = {"x": np.zeros(2), "y": np.ones(2)}
    found = gradients(vjp(function, ["x", "y"]), (2,), {"x": x, "y": y}, seeds)
    np.testing.assert_array_equal(found["x"], [0.0, 0.25])


@pytest.mark.parametrize(
    "name", ["called in loops and branches, on what they carry", "of vectors, with two results"]
)
def test_the_tangent_of_the_adjoint_is_what_differences_of_the_adjoint_say(name: str) -> None:
    function = laid_out(KERNELS[name])
    grid, arguments = drawn(function)
    rng = np.random.default_rng(5)
    names = list(arguments)
    seeds = {n: rng.normal(size=arguments[n].shape) for n in names}
    moves = {n: rng.normal(size=arguments[n].shape) for n in ("x",)}
    program = vjp(function, names)
    assert not program.residuals
    bars = {f"{n}_bar": seeds[n] for n in names}
    still = {n: np.zeros_like(value) for n, value in bars.items()}
    after = run(program.primal, grid, arguments)
    found = pushed(program.adjoint, grid, {**after, **bars}, {**moves, **still})["x_bar"]
    ends = []
    for sign in (1e-5, -1e-5):
        moved = {**arguments, "x": arguments["x"] + sign * moves["x"]}
        ends.append(gradients(program, grid, moved, seeds)["x"])
    np.testing.assert_allclose(found, (ends[0] - ends[1]) / 2e-5, rtol=1e-4, atol=1e-5)


COUNTED = """
def next_place(counter: array[int], places: array[int], i: int):
    place = atomic_add(counter, 0, 1)
    places[i] = place
    return place
@func_replay(next_place)
def same_place(counter: array[int], places: array[int], i: int):
    return places[i]
def k(counter: array[int], places: array[int], x: array[float], y: array[float]):
    i = tid()
    place = next_place(counter, places, i)
    y[place] = sin(x[place])
"""


def test_a_replay_stands_for_what_would_be_kept() -> None:
    with_replay = vjp(laid_out(COUNTED), ["x", "y"])
    assert with_replay.residuals == ()
    assert any(isinstance(s, Load) and s.array.hint == "places" for s in walk(with_replay.adjoint.body))
    without = COUNTED[: COUNTED.index("@func_replay")] + COUNTED[COUNTED.index("def k") :]
    kept = vjp(verify(simplify(widen(lay_out(raw(without, "k"))))), ["x", "y"])
    assert [stmt for stmt in walk(kept.primal.body) if isinstance(stmt, Append)]


def test_a_rule_that_reads_what_the_kernel_overwrites_is_refused() -> None:
    text = (
        ARRAYS
        + """
def k(x: array[float], y: array[float]):
    i = tid()
    y[i] = f(x, y, i)
"""
    )
    with pytest.raises(KernelTypeError, match="derivative of f reads y, which this kernel changes"):
        vjp(laid_out(text), ["x", "y"])


def test_an_inactive_array_takes_no_adjoint() -> None:
    program = vjp(laid_out(KERNELS["of arrays"]), ["x", "z"])
    assert [p.hint for p in verify(program.adjoint).params] == ["x", "y", "z", "x_bar", "z_bar"]
