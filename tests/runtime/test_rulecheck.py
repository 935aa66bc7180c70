"""Grad functions are compared with differences when they are first needed, once each."""

import warnings
from collections.abc import Iterator

import pytest

import kernelab as kl
from kernelab.runtime.kernel.kernel import Kernel

CELL = """
def f({params}):
    return {value}

@func_grad(f{option})
def adj_f({params}, adj_ret: float):
    {rule}

def k(x: array[float], v: array[vec2], n: array[int], y: array[float]):
    i = tid()
    y[i] = f({arguments})
"""
OF_X = {"params": "x: float", "arguments": "x[i]", "option": ""}


@pytest.fixture(autouse=True)
def _told_of_everything() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        yield


def made(**parts: str) -> Kernel:
    kernel = kl.compile(CELL.format(**OF_X | parts), label="Cell In[7]")["k"]
    assert isinstance(kernel, Kernel)
    return kernel


def told(kernel: Kernel, recwarn: pytest.WarningsRecorder) -> list[str]:
    recwarn.clear()
    kernel.vjp(["x", "v", "y"])
    return [str(w.message) for w in recwarn if issubclass(w.category, kl.KernelWarning)]


RIGHT = [
    ("x * x", "adjoint[x] += 2.0 * x * adj_ret"),
    ("sqrt(x)", "if x > 0.0:\n        adjoint[x] += adj_ret / (2.0 * sqrt(x))"),
    ("abs(x)", "adjoint[x] += sign(x) * adj_ret"),
    ("max(x, 0.5)", "if x > 0.5:\n        adjoint[x] += adj_ret"),
    ("log(x)", "adjoint[x] += adj_ret / max(x, 1.0e-6)"),
    ("exp(3.0 * x)", "adjoint[x] += 3.0 * exp(3.0 * x) * adj_ret"),
    ("cast(cast(x, int32), float32)", "adjoint[x] += adj_ret"),
    ("x * cast(cast(x, int32) & 0x7FFFFFFF, float32)", "adjoint[x] += 2.0 * abs(x) * adj_ret"),
]


@pytest.mark.parametrize(("value", "rule"), RIGHT, ids=[value for value, _ in RIGHT])
def test_a_right_rule_is_silent(value: str, rule: str, recwarn: pytest.WarningsRecorder) -> None:
    assert told(made(value=value, rule=rule), recwarn) == []


WRONG = [
    ("x * x", "adjoint[x] += x * adj_ret"),
    ("round(x)", "adjoint[x] += adj_ret"),
    ("x * x", "if x > 1.0:\n        adjoint[x] += 2.0 * x * adj_ret"),
    ("sin(x)", "adjoint[x] += sqrt(1.0 - sin(x) * sin(x)) * adj_ret"),
    ("cast(cast(x, int32), float32)", "adjoint[x] += 1.05 * adj_ret"),
]


@pytest.mark.parametrize(("value", "rule"), WRONG, ids=[value for value, _ in WRONG])
def test_a_wrong_rule_is_warned_of_once_at_its_line(
    value: str, rule: str, recwarn: pytest.WarningsRecorder
) -> None:
    kernel = made(value=value, rule=rule)
    (message,) = told(kernel, recwarn)
    assert "adj_f gives" in message
    assert "Cell In[7], line 6" in message
    kernel.vjp(["x"])
    assert told(kernel, recwarn) == []
    assert told(made(value=value, rule=rule, option=", check=False"), recwarn) == []


def test_a_warning_says_both_numbers_and_where(recwarn: pytest.WarningsRecorder) -> None:
    (message,) = told(made(value="7.0 * x", rule="adjoint[x] += 3.0 * adj_ret"), recwarn)
    assert "adj_f gives 3 for adjoint[x] where differences of f give 7, at x = " in message


@pytest.mark.parametrize(
    "is_wrong",
    ["k == 7", "k > 9", "k < -3", "k % 9 == 5", "k == 2 or k == 99", "k * k == 49", "k % 14 == 11"],
)
def test_a_rule_that_is_wrong_for_some_integers_that_a_text_names_is_warned_of(
    is_wrong: str, recwarn: pytest.WarningsRecorder
) -> None:
    """Whether the rule names them or the function."""
    of_k = {"params": "x: float, k: int", "arguments": "x[i], n[i]"}
    rule = "adjoint[x] += float(k) * adj_ret"
    off = f"adjoint[x] += (1.0 if {is_wrong} else float(k)) * adj_ret"
    function = f"x * x * x if {is_wrong} else x * float(k)"
    assert told(made(value="x * float(k)", rule=rule, **of_k), recwarn) == []
    assert len(told(made(value="x * float(k)", rule=off, **of_k), recwarn)) == 1
    assert len(told(made(value=function, rule=rule, **of_k), recwarn)) == 1


@pytest.mark.parametrize("most", ["min(k, 3)", "k & 15", "clamp(k, 0, 50)"])
def test_a_rule_that_is_wrong_from_some_integer_on_is_warned_of(
    most: str, recwarn: pytest.WarningsRecorder
) -> None:
    of_k = {"params": "x: float, k: int", "arguments": "x[i], n[i]", "value": "x * float(k)"}
    assert told(made(**of_k, rule="adjoint[x] += float(k) * adj_ret"), recwarn) == []
    assert len(told(made(**of_k, rule=f"adjoint[x] += float({most}) * adj_ret"), recwarn)) == 1


@pytest.mark.parametrize(
    ("value", "right", "wrong"),
    [
        ("x if k >= 0 else 3.0 * x", "1.0 if k >= 0 else 3.0", "1.0"),
        ("x / float(k) if k < 0 else x * float(k)", "1.0 / float(k) if k < 0 else float(k)", "float(k)"),
        ("x * float(abs(k))", "float(abs(k))", "float(k)"),
        ("x * float(sign(k) * k)", "float(sign(k) * k)", "float(k)"),
    ],
)
def test_a_rule_that_is_wrong_below_zero_is_warned_of_where_a_text_tells_signs(
    value: str, right: str, wrong: str, recwarn: pytest.WarningsRecorder
) -> None:
    of_k = {"params": "x: float, k: int", "arguments": "x[i], n[i]", "value": value}
    assert told(made(**of_k, rule=f"adjoint[x] += ({right}) * adj_ret"), recwarn) == []
    assert len(told(made(**of_k, rule=f"adjoint[x] += {wrong} * adj_ret"), recwarn)) == 1


def test_vectors_and_integers_are_sampled_too(recwarn: pytest.WarningsRecorder) -> None:
    parts = {"params": "v: vec2, n: int", "arguments": "v[i], n[i]", "value": "dot(v, v) * float(n)"}
    right = "adjoint[v] += 2.0 * adj_ret * float(n) * v"
    assert told(made(**parts, rule=right), recwarn) == []
    (message,) = told(made(**parts, rule=right.replace("float(n)", "0.5")), recwarn)
    assert "adjoint[v] along a direction" in message


def test_a_function_that_refuses_negative_numbers_is_sampled_above_zero(
    recwarn: pytest.WarningsRecorder,
) -> None:
    text = CELL.format(**OF_X | {"value": "x * x", "rule": "adjoint[x] += x * adj_ret"})
    text = text.replace("    return x * x", "    assert x > 0.0\n    return x * x")
    kernel = kl.compile(text)["k"]
    assert isinstance(kernel, Kernel)
    assert len(told(kernel, recwarn)) == 1


def test_a_launch_on_a_tape_warns(recwarn: pytest.WarningsRecorder) -> None:
    kernel = made(value="x * x", rule="adjoint[x] += x * adj_ret")
    x, y = kl.ones(1, dtype=float, requires_grad=True), kl.zeros(1, dtype=float, requires_grad=True)
    v, n = kl.zeros(1, dtype=kl.vec2), kl.zeros(1, dtype=int)
    recwarn.clear()
    with kl.Tape():
        kl.launch(kernel, 1, inputs=[x, v, n, y])
    assert [w.category for w in recwarn] == [kl.KernelWarning]


ITERATION = """
def f(x: float):
{body}

@func_grad(f)
def adj_f(x: float, adj_ret: float):
    r = f(x)
    adjoint[x] += {factor} * adj_ret * {slope}

def k(x: array[float], y: array[float]):
    i = tid()
    y[i] = f(x[i])
"""
ITERATIONS = {
    "bisection": (
        """
    low = -3.0
    high = 3.0
    for k in range({steps}):
        mid = 0.5 * (low + high)
        if mid * mid * mid + mid < x:
            low = mid
        else:
            high = mid
    return 0.5 * (low + high)""",
        "1.0 / (3.0 * r * r + 1.0)",
    ),
    "an iteration until it is close enough": (
        """
    r = 1.0
    while abs(r * r * r + r - x) > 1.0e-{digits}:
        r -= (r * r * r + r - x) / (3.0 * r * r + 1.0)
    return r""",
        "1.0 / (3.0 * r * r + 1.0)",
    ),
    "an iteration that ends for positive numbers only": (
        """
    r = 1.0
    while abs(r * r - x) > 1.0e-{digits}:
        r = 0.5 * (r + x / r)
    return r""",
        "0.5 / r",
    ),
    "an iteration that does not converge everywhere": (
        """
    r = 0.0
    before = 1.0
    while abs(r - before) > 1.0e-{digits}:
        before = r
        r = 0.5 * cos(r) * x
    return r""",
        "0.5 * cos(r) / (1.0 + 0.5 * sin(r) * x)",
    ),
}


def iteration(name: str, factor: float, steps: int) -> Kernel:
    body, slope = ITERATIONS[name]
    body = body.strip("\n").format(steps=steps, digits=steps // 4)
    kernel = kl.compile(ITERATION.format(body=body, slope=slope, factor=factor))["k"]
    assert isinstance(kernel, Kernel)
    return kernel


def warned(kernel: Kernel, recwarn: pytest.WarningsRecorder) -> list[str]:
    recwarn.clear()
    kernel.vjp(["x", "y"])
    return [str(w.message) for w in recwarn if issubclass(w.category, kl.KernelWarning)]


@pytest.mark.parametrize("steps", [16, 28])
@pytest.mark.parametrize("name", ITERATIONS)
def test_the_derivative_of_what_an_iteration_finds_is_silent(
    name: str, steps: int, recwarn: pytest.WarningsRecorder
) -> None:
    assert warned(iteration(name, 1.0, steps), recwarn) == []


@pytest.mark.parametrize("name", ITERATIONS)
def test_a_wrong_derivative_of_what_an_iteration_finds_is_warned_of(
    name: str, recwarn: pytest.WarningsRecorder
) -> None:
    (message,) = warned(iteration(name, 1.5, 22), recwarn)
    assert "adj_f gives" in message


RULES = """
def f(x: float, w: vec2, n: int):
    return n * x * x * w.x, x * w

{rules}

def k(x: array[float], v: array[vec2], n: array[int], y: array[float]):
    i = tid()
    p, q = f(x[i], v[i], n[i])
    y[i] = p * p + q.y
"""
JVP = """@func_jvp(f)
def tangent_f(x: float, w: vec2, n: int, dx: float, dw: vec2):
    return {}
"""
REPLAY = """@func_replay(f)
def again_f(x: float, w: vec2, n: int):
    return {}
"""
GRAD = """@func_grad(f{option})
def adj_f(x: float, w: vec2, n: int, a: float, b: vec2):
    adjoint[x] += {factor} * n * x * w.x * a + dot(w, b)
    adjoint[w] += vec2(n * x * x * a, 0.0) + x * b
"""
RIGHT_TANGENT = "2.0 * n * x * w.x * dx + n * x * x * dw.x, x * dw + dx * w"
TANGENTS = {
    "n * x * w.x * dx + n * x * x * dw.x, x * dw + dx * w": "for dx along a direction",
    "2.0 * n * x * w.x * dx, x * dw + dx * w": "for dw along a direction",
    "2.0 * n * x * w.x * dx + n * x * x * dw.x, x * dw": "for dx along a direction",
    "2.0 * n * x * w.x * dx * dx + n * x * x * dw.x, x * dw + dx * w": "for dx along a direction",
    "2.0 * n * x * w.x * dx + n * x * x * abs(dw.x), x * dw + dx * w": "for dw along a direction",
}
REPLAYS = {
    "n * x * w.x, x * w": "again_f returns",
    "n * x * x * w.x, x * vec2(w.x, w.x)": "again_f returns",
    "x * x * w.x, x * w": "again_f returns",
}


def told_of(rules: str, recwarn: pytest.WarningsRecorder) -> list[str]:
    kernel = kl.compile(RULES.format(rules=rules))["k"]
    assert isinstance(kernel, Kernel)
    return told(kernel, recwarn)


@pytest.mark.parametrize("grad", ["", GRAD.format(option="", factor="2.0")], ids=["alone", "with grad"])
@pytest.mark.parametrize("value", TANGENTS)
def test_a_wrong_jvp_function_is_warned_of(value: str, grad: str, recwarn: pytest.WarningsRecorder) -> None:
    [message] = told_of(grad + JVP.format(value), recwarn)
    assert TANGENTS[value] in message and "def tangent_f" in message


@pytest.mark.parametrize("value", REPLAYS)
def test_a_wrong_replay_function_is_warned_of(value: str, recwarn: pytest.WarningsRecorder) -> None:
    [message] = told_of(REPLAY.format(value), recwarn)
    assert REPLAYS[value] in message and "where f returns" in message and "def again_f" in message


def test_right_rules_of_every_kind_are_silent(recwarn: pytest.WarningsRecorder) -> None:
    replay = REPLAY.format("x * w.x * x * n, w * x")
    rules = GRAD.format(option="", factor="2.0") + JVP.format(RIGHT_TANGENT) + replay
    assert told_of(rules, recwarn) == []


def test_the_tangent_of_a_surrogate_is_not_compared_but_what_it_replays_is(
    recwarn: pytest.WarningsRecorder,
) -> None:
    surrogate = GRAD.format(option=", check=False", factor="9.0")
    assert told_of(surrogate + JVP.format(next(iter(TANGENTS))), recwarn) == []
    assert told_of(surrogate + REPLAY.format(next(iter(REPLAYS))), recwarn)


def test_a_replay_function_may_return_no_number_where_its_function_does(
    recwarn: pytest.WarningsRecorder,
) -> None:
    kernel = made(
        value="sqrt(x)",
        rule="adjoint[x] += 0.5 / sqrt(x) * adj_ret\n@func_replay(f)\ndef r(x: float):\n    return sqrt(x)",
    )
    assert told(kernel, recwarn) == []
