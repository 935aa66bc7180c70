"""Functions for kernels under every transform and check: numbers, vectors, matrices, structs, nested calls.

Each derivative is compared with central differences of the float64 definition of the same text.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import LaunchError

TEXT = """
class Spring:
    stiffness: REAL
    rest: VEC

def product(x: REAL, y: REAL):
    return x * y + sin(x)

def branch(x: REAL, y: REAL):
    if x > y:
        return x * x * y
    return exp(y) - x

def loop(x: REAL, n: int):
    s = x
    for k in range(n):
        s = s * x + REAL(k)
    return s

def inner(x: REAL):
    return tanh(x) * x

def nested(x: REAL, y: REAL):
    return inner(product(x, y)) + inner(y)

def turned(m: MAT, v: VEC):
    return dot(m * v, v) + determinant(m)

def energy(s: Spring, x: VEC):
    d = length(x - s.rest)
    return s.stiffness * d * d

def ruled(x: REAL):
    return x * x * x

@func_grad(ruled)
def adj_ruled(x: REAL, adj_ret: REAL):
    adjoint[x] += REAL(3.0) * x * x * adj_ret

def calls_ruled(x: REAL, y: REAL):
    return ruled(x * y)
"""


def _compiled(real: str, vec: str, mat: str) -> dict[str, Any]:
    text = TEXT.replace("REAL", real).replace("VEC", vec).replace("MAT", mat)
    return dict(kl.compile(text, {}))


NARROW, WIDE = _compiled("float32", "vec3", "mat33"), _compiled("float64", "vec3d", "mat33d")
MATRIX = ((1.0, 2.0, 0.5), (0.0, 1.5, 1.0), (0.3, 0.0, 2.0))

CASES: dict[str, tuple[Any, ...]] = {
    "product": (0.7, 1.3),
    "branch": (1.2, 0.5),
    "loop": (1.1, 4),
    "nested": (0.4, 0.9),
    "turned": (MATRIX, (0.5, -1.0, 2.0)),
    "energy": (None, (0.5, -1.0, 2.0)),
    "calls_ruled": (0.8, 1.5),
}


def arguments(name: str, made: dict[str, Any]) -> list[Any]:
    """The arguments of a case as values of the definitions' types."""
    wide = made is WIDE
    found = []
    for value in CASES[name]:
        if value is None:
            found.append(made["Spring"](stiffness=1.5, rest=(0.2, 0.1, -0.3)))
        elif value is MATRIX:
            found.append((kl.mat33d if wide else kl.mat33)(*np.ravel(MATRIX)))
        elif isinstance(value, tuple):
            found.append((kl.vec3d if wide else kl.vec3)(*value))
        else:
            found.append(value)
    return found


def floats(name: str) -> list[int]:
    """The positions of the arguments with derivatives."""
    return [n for n, value in enumerate(CASES[name]) if not isinstance(value, int)]


def numbers(value: Any) -> np.ndarray[Any, Any]:
    """A value as numbers in float64, those of a struct one field after another."""
    if hasattr(value, "stiffness"):
        return np.concatenate([np.ravel(value.stiffness), np.ravel(value.rest)]).astype(np.float64)
    if isinstance(value, dict):
        return np.concatenate([np.ravel(part) for part in value.values()]).astype(np.float64)
    return np.ravel(value).astype(np.float64)


def moved(value: Any, k: int, step: float) -> Any:
    """A value with one of its numbers changed."""
    if hasattr(value, "stiffness"):
        made = value.copy()
        if k == 0:
            made.stiffness += step
        else:
            made.rest = moved(value.rest, k - 1, step)
        return made
    if np.ndim(value) == 0:
        return value + step
    made = value.copy()
    made.reshape(-1)[k] += step
    return made


def slopes(of: Callable[..., Any], args: Sequence[Any], n: int) -> np.ndarray[Any, Any]:
    """Central differences by each number of an argument."""
    step, found = 1e-5, []
    for k in range(numbers(args[n]).size):
        ends = [[*args[:n], moved(args[n], k, sign * step), *args[n + 1 :]] for sign in (1, -1)]
        found.append((numbers(of(*ends[0])) - numbers(of(*ends[1]))) / (2.0 * step))
    return np.stack(found, axis=-1)


def agree(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(found, np.float64).ravel(), np.ravel(wanted), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_grad_and_value_and_grad(name: str) -> None:
    g, args, exact = NARROW[name], arguments(name, NARROW), arguments(name, WIDE)
    for n in floats(name):
        wanted = slopes(WIDE[name], exact, n)
        agree(numbers(kl.func.grad(g, n)(*args)), wanted)
        value, gradient = kl.func.value_and_grad(g, n)(*args)
        agree(value, WIDE[name](*exact))
        agree(numbers(gradient), wanted)
        assert type(gradient) is type(kl.func.grad(g, n)(*args))
    assert isinstance(kl.func.value_and_grad(g, floats(name)[0])(*args)[0], np.float32)


@pytest.mark.parametrize("name", [name for name in CASES if name != "loop"])
def test_jvp_and_vjp(name: str) -> None:
    g, args, exact = NARROW[name], arguments(name, NARROW), arguments(name, WIDE)
    wanted = [slopes(WIDE[name], exact, n).ravel() for n in range(len(args))]
    value, dot = kl.func.jvp(g, args, args)
    agree(dot, sum(each @ numbers(arg) for each, arg in zip(wanted, exact, strict=True)))
    again, pull = kl.func.vjp(g, *args)
    assert value == again == g(*args)
    for bar, each in zip(pull(2.0), wanted, strict=True):
        agree(numbers(bar), 2.0 * each)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mode", [kl.func.jacfwd, kl.func.jacrev])
def test_jacobians(name: str, mode: Callable[..., Any]) -> None:
    args, exact = arguments(name, NARROW), arguments(name, WIDE)
    for n in floats(name):
        found = mode(NARROW[name], n)(*args)
        agree(numbers(found), slopes(WIDE[name], exact, n))
        if np.ndim(exact[n]) == 0 and not hasattr(exact[n], "stiffness"):
            assert isinstance(found, np.float32)


@pytest.mark.parametrize("name", ["product", "branch", "loop", "nested", "turned", "calls_ruled"])
def test_second_order(name: str) -> None:
    args, exact = arguments(name, NARROW), arguments(name, WIDE)
    n = 0
    wanted = slopes(lambda *values: numbers(kl.func.grad(WIDE[name], n)(*values)), exact, n)
    second = kl.func.hessian(NARROW[name], n)(*args)
    agree(np.asarray(second), wanted)
    agree(np.asarray(kl.func.jacfwd(kl.func.jacrev(NARROW[name], n), n)(*args)), wanted)
    agree(np.asarray(kl.func.jacrev(kl.func.jacfwd(NARROW[name], n), n)(*args)), wanted)
    if wanted.size == 1:
        assert isinstance(second, np.float32)
        agree(kl.func.grad(kl.func.grad(NARROW[name]))(*args), wanted)


def test_hessian_vector_product() -> None:
    gradient, moved_by = kl.func.hvp(NARROW["product"], (0.7, 1.3), (1.0, 2.0))
    agree(gradient, [1.3 + np.cos(0.7), 0.7])
    agree(moved_by, [-np.sin(0.7) + 2.0, 1.0])


def test_vmap_over_numbers_and_gradients() -> None:
    x, y = np.linspace(0.1, 0.9, 5, dtype=np.float32), np.linspace(1.0, 2.0, 5, dtype=np.float32)
    g, over = NARROW["product"], (kl.array(x), kl.array(y))
    agree(kl.func.vmap(g)(*over).numpy(), x * y + np.sin(x))
    agree(kl.func.vmap(kl.func.grad(g))(*over).numpy(), y + np.cos(x))
    agree(kl.func.vmap(kl.func.hessian(g))(*over).numpy(), -np.sin(x))
    agree(kl.func.vmap(g, in_dims=(0, None))(over[0], 2.0).numpy(), 2.0 * x + np.sin(x))
    vectors = kl.array(np.random.default_rng(0).random((4, 3)).astype(np.float32), dtype=kl.vec3)
    matrix = kl.array([kl.mat33(*np.ravel(MATRIX))], dtype=kl.mat33)
    found = kl.func.vmap(kl.func.grad(NARROW["turned"], 1), in_dims=(None, 0))(matrix, vectors)
    matrix64 = np.array(MATRIX)
    agree(found.numpy(), vectors.numpy() @ (matrix64 + matrix64.T).T)


@pytest.mark.parametrize("name", CASES)
def test_gradcheck_takes_the_values(name: str) -> None:
    assert kl.autograd.gradcheck(NARROW[name], inputs=arguments(name, NARROW), show_summary=False)


def test_jacobian_and_differences_take_the_values() -> None:
    found = kl.autograd.jacobian(NARROW["product"], inputs=[0.7, 1.3])
    agree(found[0, 0].numpy(), 1.3 + np.cos(0.7))
    agree(kl.autograd.jacobian_fd(NARROW["product"], inputs=[0.7, 1.3])[1, 0].numpy(), 0.7)
    assert kl.autograd.taylor_test(NARROW["nested"], inputs=[0.4, 0.9], show_summary=False)


def test_numbers_are_float32_and_float64_by_annotation() -> None:
    assert type(kl.func.grad(NARROW["product"])(0.7, 1.3)) is np.float32
    assert type(kl.func.grad(WIDE["product"])(0.7, 1.3)) is np.float64
    assert kl.func.grad(WIDE["product"])(0.7, 1.3) == pytest.approx(1.3 + np.cos(0.7), rel=1e-15)
    assert type(kl.func.grad(NARROW["product"])(1, 2)) is np.float32


def test_a_struct_of_gradients_holds_numbers() -> None:
    spring, x = arguments("energy", NARROW)
    gradient = kl.func.grad(NARROW["energy"])(spring, x)
    assert isinstance(gradient.stiffness, float)
    assert isinstance(gradient.rest, kl.vec3)
    assert (spring.stiffness, spring.requires_grad) == (1.5, False)


def test_a_python_function_of_numbers_is_differentiated_through_its_calls() -> None:
    g = NARROW["product"]

    def f(x: Any) -> Any:
        return g(x, 3.0) * x + 2.0 * x

    agree(kl.func.grad(f)(0.7), 2.0 * 0.7 * 3.0 + np.sin(0.7) + 0.7 * np.cos(0.7) + 2.0)
    agree(kl.func.value_and_grad(f)(0.7)[0], f(0.7))
    agree(kl.func.grad(kl.func.grad(f))(0.7), 6.0 + 2.0 * np.cos(0.7) - 0.7 * np.sin(0.7))


def test_a_closure_over_an_outer_number_keeps_its_derivative() -> None:
    g = NARROW["product"]

    def slope(x: Any) -> Any:
        return kl.func.grad(lambda y: g(x, y) * y)(2.0)  # 2 x y + sin(x), at y = 2

    agree(kl.func.value_and_grad(slope)(0.7), [4.0 * 0.7 + np.sin(0.7), 4.0 + np.cos(0.7)])


def test_mixed_arguments_give_an_array_for_an_array_and_a_number_for_a_number() -> None:
    total = kl.compile("""
def total(x: array[float], s: float) -> float:
    t = 0.0
    for i in range(x.shape[0]):
        t += x[i] * s
    return t
""")["total"]
    x = kl.array([1.0, 2.0], dtype=float)
    by_array, by_number = kl.func.grad(total, (0, 1))(x, 3.0)
    assert (by_array.list(), by_number) == ([3.0, 3.0], 3.0)
    assert isinstance(by_number, np.float32)


def test_a_number_taken_out_of_an_array_warns_where_it_is_used() -> None:
    g, x = NARROW["product"], kl.array([0.7, 1.3], dtype=float)
    with pytest.warns(kl.KernelWarning, match="the host took a number there"):
        kl.func.grad(lambda x: g(x[0], 3.0) * x[0:1])(x)
    with pytest.raises(kl.KernelTypeError, match=r"has no derivative(.*\n)*.*x\[0:1\]"):
        kl.func.grad(lambda x: g(x[0], 3.0))(x)
    x.requires_grad = True
    with kl.Tape() as tape:
        loss = x[0:1] * g(x[1], 3.0)
    with pytest.warns(kl.KernelWarning, match="the host took a number there"):
        tape.backward(loss)


def test_a_struct_computed_from_a_number_of_an_array_warns_too() -> None:
    text = "class P:\n    m: float\n\ndef twice(p: P):\n    q = p\n    q.m = 2.0 * p.m\n    return q\n"
    made: dict[str, Any] = dict(kl.compile(text))

    def f(x: kl.array) -> kl.array:
        return x[0:1] * made["twice"](made["P"](m=x[0])).m

    with pytest.warns(kl.KernelWarning, match="the host took a number there"):
        kl.func.grad(f)(kl.array([2.0], dtype=float))


def test_a_trace_shows_the_lines_of_the_function() -> None:
    text = "def g(x: float, y: float):\n    s = x * y\n    return s * x\n"
    run = kl.trace(kl.compile(text)["g"], 2.0, 3.0)
    primal = [(seen.name, float(seen.value), seen.span.line) for seen in run.primal]
    assert primal[-2:] == [("s", 6.0, 2), ("result[0]", 12.0, 3)]
    last = {seen.name: float(seen.value) for seen in run.adjoint}
    assert (last["x_bar[0]"], last["y_bar[0]"]) == (12.0, 4.0)
    halved = kl.trace(kl.compile(text)["g"], 2.0, y=3.0, adjoints={"result": 0.5})
    assert {seen.name: float(seen.value) for seen in halved.adjoint}["x_bar[0]"] == 6.0


def test_contributions_name_the_line_of_each_use() -> None:
    text = "def g(x: float, v: vec2):\n    s = x * v[0]\n    s += x * v[1]\n    return s * x\n"
    g = kl.compile(text)["g"]
    found = kl.contributions(g, 2.0, (3.0, 4.0))
    lines = {part.line.line: float(part.value) for part in found.parts if part.line is not None}
    assert (lines, float(found.total)) == ({2: 6.0, 3: 8.0, 4: 14.0}, 28.0)
    assert kl.contributions(g, 2.0, (3.0, 4.0), argnums=1).total.tolist() == [4.0, 4.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: kl.func.grad(g)(2.0), "takes 2 arguments, not 1; `y` is missing"),
        (lambda g: kl.func.grad(g, 2)(2.0, 3.0), "was called with 2 arguments"),
        (lambda g: kl.func.grad(g)("2", 3.0), "argument `x` of product is"),
        (lambda g: kl.func.grad(lambda x: g(x, x))(2), r"write 2\.0"),
        (lambda g: kl.func.jvp(g, (2.0, 3.0), (1.0,)), "1 tangents for 2 primals"),
        (lambda g: kl.func.vjp(g, 2.0, 3.0)[1]((1.0, 2.0)), "2 cotangents for the 1 arrays"),
        (lambda g: kl.contributions(g, 2.0, 3.0, argnums=2), "argument 2 of `product` has no gradient"),
        (lambda g: kl.trace(g, 2.0), "takes 2 arguments, not 1"),
    ],
)
def test_a_wrong_call_is_answered_in_words(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(kl.KernelError, match=message):
        call(NARROW["product"])


# ------------------------------------------------------------------------------------------ named arguments


def _scaled(x: Any, k: Any = 1.0, *, c: float = 1.0) -> Any:
    return x * x * k * c


@pytest.mark.parametrize("named", [{"k": 3.0}, {"c": 3.0}, {"c": 1.5, "k": 2.0}])
@pytest.mark.parametrize("name", ["grad", "value_and_grad", "jacrev", "jacfwd", "hessian"])
def test_a_transformed_function_takes_arguments_by_name(name: str, named: dict[str, Any]) -> None:
    transform = getattr(kl.func, name)
    wanted = transform(lambda x: _scaled(x, **named))(2.0)
    assert np.array_equal(transform(_scaled)(2.0, **named), wanted)


def test_a_function_of_a_cell_takes_arguments_by_name_under_second_derivatives() -> None:
    product = WIDE["branch"]
    assert kl.func.grad(kl.func.grad(product))(3.0, y=2.0) == 4.0
    assert kl.func.grad(product, argnums=1)(3.0, y=2.0) == 9.0


def test_vmap_goes_through_an_array_that_is_passed_by_name() -> None:
    x, k = kl.array([1.0, 2.0]), kl.array([3.0, 4.0])
    assert np.array_equal(kl.func.vmap(_scaled)(x, k=k).numpy().reshape(-1), [3.0, 16.0])
    solve = kl.func.custom_vjp(lambda x, k: x.numpy() * k, lambda x, k, y, bar: bar.numpy() * k)
    assert np.array_equal(kl.func.grad(lambda x: solve(x, k=3.0).sum())(x), [3.0, 3.0])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: kl.func.grad(_scaled)(x, q=1.0), "_scaled: got an unexpected keyword argument 'q'"),
        (lambda x: kl.func.grad(_scaled)(k=1.0), "_scaled: missing a required argument: 'x'"),
        (lambda x: kl.func.vmap(_scaled)(x, k=x, c=2.0), "_scaled takes c by name only"),
    ],
)
def test_a_name_that_does_not_fit_is_refused(call: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(kl.KernelTypeError, match=said):
        call(kl.array([1.0, 2.0]))


def test_a_type_that_does_not_fit_is_refused_at_the_line_of_the_call() -> None:
    product = WIDE["product"]
    with pytest.raises(kl.KernelTypeError) as refused:
        kl.func.grad(lambda x: product(x, 3.0) * x)(2.0)
    (found,) = refused.value.diagnostics
    assert found.message == "the argument x of product is float64, not float32"
    assert found.span is not None and found.span.source.label.endswith("test_functions_of_numbers.py")
    assert "kl.array([2.0], dtype=kl.float64)" in found.hint
    x = kl.array([2.0], dtype=kl.float64)
    assert np.allclose(kl.func.grad(lambda x: product(x, 3.0) * x)(x), 12.0 + 2.0 * np.cos(2.0) + np.sin(2.0))
    with pytest.raises(kl.KernelTypeError, match=r"astype\(kl.float64\)"):
        kl.map(product, kl.array([2.0]), 3.0)


# --------------------------------------------------------------------------------- derivatives that are zero

STEPS: Any = kl.compile("""
def constant(x: float):
    return 3.0

def stairs(x: float):
    return floor(x)

def line(x: float):
    return 3.0 * x
""")


@pytest.mark.filterwarnings("ignore:the derivative of stairs")
@pytest.mark.parametrize("name", ["constant", "stairs", "line"])
def test_the_gradient_of_a_gradient_that_is_constant_is_zero(name: str) -> None:
    f, grad = STEPS[name], kl.func.grad
    assert grad(grad(f))(2.5) == 0.0
    assert grad(grad(grad(f)))(2.5) == 0.0
    assert grad(lambda x: kl.func.vjp(f, x)[1](kl.ones_like(x))[0])(2.5) == 0.0
    assert grad(lambda x: grad(f)(x) * x)(2.5) == grad(f)(2.5)


def test_what_goes_through_the_host_is_no_zero() -> None:
    with pytest.warns(kl.KernelWarning, match="no gradient flows"), pytest.raises(kl.GradientError):
        kl.func.grad(lambda x: kl.array(kl.func.grad(STEPS["line"])(x).numpy()))(2.5)


@pytest.mark.parametrize("wide", [kl.float64, kl.float16, kl.bfloat16, kl.vec3d])
def test_a_number_of_another_width_is_refused_and_converted_where_asked_for(wide: Any) -> None:
    is_vector = wide is kl.vec3d
    number = kl.float64 if is_vector else wide
    product = "dot(x[i], p)" if is_vector else "x[i] * p"
    text = f"def f(x: array[{wide.__name__}], p: {wide.__name__}, y: array[{number.__name__}]):\n"
    kernel = kl.compile(text + f"    i = tid()\n    y[i] = {product}\n")["f"]
    given = kl.vec3(1.0, 2.0, 3.0) if is_vector else 3.0

    def total(p: Any) -> kl.array:
        y = kl.zeros(1, dtype=number)
        kernel[1](kl.array([[2.0, 4.0, 8.0]] if is_vector else [2.0], dtype=wide), p, y)
        return y.sum()

    with pytest.raises(LaunchError, match=rf"write .astype\(kl.{wide.__name__}\) here"):
        kl.func.grad(total)(given)
    gradient = kl.func.grad(lambda p: total(p.astype(wide)))(given)
    assert np.asarray(gradient).tolist() == ([2.0, 4.0, 8.0] if is_vector else 2.0)
