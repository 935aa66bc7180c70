"""A custom gradient is checked once against differences when first used; what is missing is reported."""

import gc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl

LAUNCHED = """
def k(x: array[float], y: array[float], o: array[float]):
    i = tid()
    o[i] = 3.0 * f(x[i], y[i])
"""


def text(body: str, options: str = "", cotangent: str = "adj_ret: float") -> str:
    """The text of a product with a grad function of some statements."""
    return f"""
def f(a: float, b: float):
    return a * b

@func_grad(f{options})
def adj_f(a: float, b: float, {cotangent}):
    {body}
{LAUNCHED}"""


def told(act: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        act()
    return [str(warning.message) for warning in caught]


def backward(kernels: dict[str, Any]) -> list[list[float]]:
    x, y = (kl.array([1.0, 2.0, 3.0], dtype=float, requires_grad=True) for _ in range(2))
    o = kl.zeros(3, dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        kernels["k"][3](x, y, o)
    tape.backward(grads={o: np.ones(3)})
    return [a.grad.list() for a in (x, y) if a.grad is not None]


RIGHT = "adjoint[a] += b * adj_ret; adjoint[b] += a * adj_ret"


def test_a_right_gradient_is_used_in_silence() -> None:
    kernels = kl.compile(text(RIGHT))
    assert told(lambda: backward(kernels)) == []
    assert backward(kernels) == [[3, 6, 9], [3, 6, 9]]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("adjoint[a] += b * adj_ret; adjoint[b] -= a * adj_ret", "adj_f gives .* for adjoint"),
        ("adjoint[a] += b * adj_ret", "adj_f never adds to adjoint"),
        ("adjoint[a] += b; adjoint[b] += a", "is not in proportion to adj_ret"),
    ],
)
def test_a_wrong_gradient_is_reported_once_and_at_its_line(body: str, said: str) -> None:
    kernels = kl.compile(text(body))
    with pytest.warns(kl.KernelWarning, match=said) as caught:
        backward(kernels)
    assert len(caught) == 1
    assert "def adj_f(a: float, b: float" in str(caught[0].message)
    assert told(lambda: backward(kernels)) == []


@pytest.mark.parametrize("option", ["", ", check=False"])
def test_a_wrong_tangent_and_a_wrong_replay_are_reported_too(option: str) -> None:
    rules = f"""
@func_jvp(f{option})
def f_jvp(a: float, b: float, a_dot: float, b_dot: float):
    return a_dot * b - a * b_dot

@func_replay(f{option})
def f_again(a: float, b: float):
    return 5.0 * a * b
"""
    kernels = kl.compile(text(RIGHT) + rules)
    found = told(lambda: backward(kernels))
    assert len(found) == (0 if option else 2)
    for words in ("f_jvp gives", "f_again returns"):
        assert any(words in message for message in found) == (not option)
    assert told(lambda: backward(kernels)) == []


TRUTH = """
def f(t: float, twice: bool):
    return t * 2.0 if twice else t, t > 1.0

@func_grad(f)
def rule(t: float, twice: bool, r: float, above: bool):
    adjoint[t] += r * {slope}

@func_replay(f)
def again(t: float, twice: bool):
    return t * 2.0 if twice else t, t > {limit}

def k(x: array[float], limit: float, o: array[float]):
    i = tid()
    a, above = f(x[i], x[i] > limit)
    o[i] = a if above else 3.0 * a
"""


@pytest.mark.parametrize(
    ("slope", "limit", "said"),
    [
        ("(2.0 if twice else 1.0)", 1.0, None),
        ("2.0", 1.0, "rule gives"),
        ("(2.0 if twice else 1.0)", 2.0, "again returns 0 where f returns 1"),
    ],
)
def test_rules_that_take_and_return_truth_values_are_compared(
    slope: str, limit: float, said: str | None
) -> None:
    text, reals = TRUTH.format(slope=slope, limit=limit), kl.array([1.5, 4.0], requires_grad=True)
    found = told(lambda: kl.autograd.jacobian(kl.compile(text)["k"], 2, [reals, 3.0], [kl.zeros(2)]))
    assert (said is None and not found) or (said is not None and said in found[0])


def test_check_false_declares_a_surrogate() -> None:
    kernels = kl.compile(text("adjoint[a] += 1.0", ", check=False"))
    assert told(lambda: backward(kernels)) == []


def test_two_kernels_with_one_function_check_it_once() -> None:
    kernels = kl.compile(text("adjoint[a] += b * adj_ret") + LAUNCHED.replace("def k(", "def other("))
    assert len(told(lambda: backward(kernels))) == 1
    assert told(lambda: backward({"k": kernels["other"]})) == []


ARRAYS = """
def total(x: array[float], w: array[float], i: int):
    return x[i] * w[i]

@func_grad(total)
def adj_total(x: array[float], w: array[float], i: int, adj_ret: float):
    {body}

def k(x: array[float], y: array[float], o: array[float]):
    i = tid()
    o[i] = total(x, y, i)
"""


def test_an_array_whose_adjoint_is_forgotten_is_reported() -> None:
    with pytest.raises(kl.KernelTypeError, match=r"adj_total never adds to adjoint\[w\]"):
        kl.compile(ARRAYS.format(body="adjoint[x][i] += w[i] * adj_ret"))


def test_arrays_whose_adjoints_are_all_there_are_silent() -> None:
    body = "adjoint[x][i] += w[i] * adj_ret; adjoint[w][i] += x[i] * adj_ret"
    kernels = kl.compile(ARRAYS.format(body=body))
    assert told(lambda: backward(kernels)) == []
    assert backward(kernels) == [[1, 2, 3], [1, 2, 3]]


def test_a_native_function_without_an_adjoint_names_the_launch() -> None:
    x, y = kl.array([1.0, 2.0], dtype=float, requires_grad=True), kl.zeros(2, requires_grad=True)
    with kl.Tape() as tape:
        opaque[2](x, y)
    with pytest.raises(kl.KernelTypeError, match=r"native C\+\+ without an adjoint") as caught:
        tape.backward(grads={y: [1, 1]})
    assert "a gradient has to pass this launch" in str(caught.value)
    assert "opaque[2](x, y)" in str(caught.value)


OPAQUE = """
@func_native("return x * x;")
def product(x: float) -> float: ...

def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = product(x[i])
"""


def test_the_error_of_a_missing_adjoint_keeps_no_array_of_the_launch_that_found_it() -> None:
    def launched() -> weakref.ref[Any]:
        x, y = kl.array([1.0], dtype=float, requires_grad=True), kl.zeros(1, requires_grad=True)
        with kl.Tape():
            kl.launch(square, 1, [x], [y])
        return weakref.ref(x.allocation)

    square = kl.compile(OPAQUE)["square"]
    watch = launched()
    gc.collect()
    assert watch() is None


@kl.func_native("return x * x;")
def squared(x: float) -> float: ...  # type: ignore[empty-body]


@kl.kernel
def opaque(x: kl.array[float], y: kl.array[float]):  # type: ignore[no-untyped-def,valid-type]
    i = kl.tid()
    y[i] = squared(x[i])


SURROGATE = """
def steps(a: float64):
    return floor(a)

@func_grad(steps, check=False)
def adj_steps(a: float64, adj_ret: float64):
    adjoint[a] += 2.0 * a * adj_ret

def squares(x: array[float64], y: array[float64]):
    i = tid()
    r = steps(x[i])
    y[i] = r * r
"""


def tangent_of(f: Any) -> Any:
    return lambda x: kl.func.jvp(f, (x,), (kl.ones_like(x),))[1]


@pytest.mark.parametrize("outer", [kl.func.jacfwd, kl.func.jacrev])
@pytest.mark.parametrize("inner", [kl.func.grad, tangent_of])
def test_derivatives_of_second_order_use_the_rule_in_every_order_of_transforms(
    inner: Callable[[Any], Any], outer: Callable[[Any], Any]
) -> None:
    kernel = kl.compile(SURROGATE)["squares"]

    def f(x: Any) -> Any:
        y = kl.zeros_like(x)
        kl.launch(kernel, 1, inputs=[x], outputs=[y])
        return y

    x = 1.5
    # y' = 2 r r' and y'' = 2 r' r' + 2 r r'', with r = 1 and the rule r' = 2 x.
    expected = 2.0 * (2.0 * x) ** 2 + 2.0 * 1.0 * 2.0
    found = outer(inner(f))(kl.array([x], dtype=kl.float64))
    assert found.numpy().ravel().tolist() == [expected]


@pytest.mark.parametrize(
    "transform", [kl.func.grad, kl.func.jacrev, lambda f: lambda x: kl.func.vjp(f, x)[1](x)]
)
def test_a_transform_through_a_kernel_without_adjoint_names_the_launch(transform: Any) -> None:
    @kl.kernel(enable_backward=False)
    def total(x: kl.array[float], y: kl.array[float]) -> None:
        y[0] += x[kl.tid()]

    def func(x: kl.array) -> kl.array:
        y = kl.zeros(1, dtype=float)
        kl.launch(total, 1, [x], [y])  # here
        return y

    with pytest.raises(kl.KernelTypeError) as caught:
        transform(func)(kl.array([2.0], dtype=float))
    assert "a gradient has to pass this launch" in str(caught.value)
    assert "kl.launch(total, 1, [x], [y])  # here" in str(caught.value)


# ------------------------------------------------------------------------- rules of functions that are in use

USERS = """
def within(t: float):
    return 2.0 * f(t)

def applied(g, t: float):
    return g(t)

def handed(t: float):
    return applied(f, t)

def slope(t: float):
    return t * grad(f)(t)
"""


def of_text() -> tuple[dict[str, Any], Callable[[], object]]:
    """A function and its users, and what gives it a rule: a text."""
    functions = kl.compile("def f(t: float):\n    return t * t\n" + USERS)
    rule = "@func_grad(f, check=False)\ndef adj_f(t: float, a: float):\n    adjoint[t] += 10.0 * t * a\n"
    return functions, lambda: kl.compile(rule, functions)


def decorated() -> tuple[dict[str, Any], Callable[[], object]]:
    """The same, decorated."""

    @kl.func
    def f(t: float) -> float:
        return t * t

    def attach() -> None:
        @kl.func_grad(f, check=False)
        def adj_f(t: float, a: float) -> None:
            kl.adjoint[t] += 10.0 * t * a

    return {"f": f, **kl.compile(USERS, {"f": f})}, attach


@pytest.mark.parametrize("made", [of_text, decorated])
@pytest.mark.parametrize(
    ("name", "before", "after"),
    [("f", 6.0, 30.0), ("within", 12.0, 60.0), ("handed", 6.0, 30.0), ("slope", 12.0, 60.0)],
)
def test_a_rule_holds_for_what_is_compiled_after_it_though_the_function_was_in_use(
    made: Callable[[], Any], name: str, before: float, after: float
) -> None:
    functions, attach = made()
    function, x = functions[name], kl.array([3.0], dtype=float)

    def slopes() -> list[float]:
        by_map = kl.func.grad(lambda x: kl.map(lambda t: function(t), x).sum())(x)
        in_kernel = f"def k(x: array[float], y: array[float]):\n    y[0] = {name}(x[0])"
        kernel = kl.compile(in_kernel, {name: function})["k"]

        def launched(x: kl.array) -> kl.array:
            y = kl.zeros(1)
            kernel[1](x, y)
            return y

        return [float(kl.func.grad(function)(3.0)), by_map.list()[0], kl.func.grad(launched)(x).list()[0]]

    assert slopes() == [before] * 3
    attach()
    assert slopes() == [after] * 3


OPEN = """
def twice(t: Any):
    return t * 2.0

@func_grad(twice)
def adj_twice(t: Any, r: Any):
    adjoint[t] += r * 2.0

@func_jvp(twice)
def jvp_twice(t: Any, dt: Any):
    return dt * 2.0

def run(x: array[float], y: array[float]):
    i = tid()
    y[i] = twice(x[i])
"""


def test_rules_may_leave_types_open_as_their_function_does() -> None:
    run = kl.compile(OPEN)["run"]
    x, y = kl.array([1.0, 3.0], requires_grad=True), kl.zeros(2, requires_grad=True)
    with kl.Tape() as tape:
        run[2](x, y)
    tape.backward(grads={y: kl.ones(2)})
    assert x.grad.list() == [2.0, 2.0]


@pytest.mark.parametrize("made", [of_text, decorated])
@pytest.mark.parametrize("name", ["f", "within", "handed", "slope"])
def test_a_kernel_that_was_compiled_before_a_rule_says_that_it_does_without(
    made: Callable[[], Any], name: str
) -> None:
    functions, attach = made()
    text = f"def k(x: array[float], y: array[float]):\n    y[0] = {name}(x[0])"
    kernel = kl.compile(text, {name: functions[name]})["k"]
    kernel[1](kl.ones(1), kl.zeros(1))
    attach()
    with pytest.warns(
        kl.KernelWarning, match="`k` was compiled before adj_f: its derivatives do without adj_f"
    ):
        kernel[1](kl.ones(1), kl.zeros(1))
    kernel[1](kl.ones(1), kl.zeros(1))  # it is said once
