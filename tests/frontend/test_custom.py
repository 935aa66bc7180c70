"""Rules for derivatives in a cell: what they mean, and one sentence for each mistake."""

import numpy as np
import pytest

import kernelab as kl
from kernelab.backend.cpu.interpreter import evaluate
from kernelab.errors import Diagnostic
from kernelab.frontend.definitions.functions import UserFunction
from kernelab.frontend.definitions.kernels import KernelDefinition
from kernelab.lang.ir import Call, CustomRules, walk
from kernelab.lang.verify import verify
from kernelab.passes.common.copying import inline
from tests.frontend.helpers import cell, error, errors, kernel, ran

FUNCTION = """
def f(x: float, n: int):
    return x * float(n)
"""
KERNEL = """
def kernel(x: array[float], y: array[float]):
    i = tid()
    y[i] = f(x[i], i)
"""


def rules(text: str, **namespace: object) -> CustomRules:
    found = [s.function.custom for s in walk(kernel(text, **namespace).function.body) if isinstance(s, Call)]
    (custom,) = found
    assert custom is not None
    for rule in (custom.grad, custom.replay, custom.jvp):
        if rule is not None:
            verify(rule)
    return custom


def with_rule(rule: str) -> str:
    return FUNCTION + rule + KERNEL


def test_a_call_knows_the_rules_of_its_function() -> None:
    found = rules(
        with_rule("""
@func_grad(f)
def adj_f(x: float, n: int, adj_ret: float):
    adjoint[x] += float(n) * adj_ret
@kl.func_replay(f)
def f_again(x, n):
    return x * float(n)
@wp.func_jvp(f)
def f_moved(x: float, n: int, x_dot: float) -> float:
    return x_dot * float(n)
""")
    )
    assert found.grad is not None
    assert [p.hint for p in found.grad.params] == ["x", "n", "adj_ret"]
    assert found.replay is not None
    assert found.jvp is not None
    assert [p.hint for p in found.jvp.params] == ["x", "n", "x_dot"]
    assert found.checked


def test_rules_may_stand_before_their_function_and_belong_to_one_that_returns_nothing() -> None:
    text = """
@func_grad(f)
def adj_f(a: array[float], i: int):
    adjoint[a][i] *= 0.0
def f(a: array[float], i: int):
    a[i] = 1.0
def kernel(a: array[float]):
    f(a, tid())
"""
    found = rules(text)
    assert found.grad is not None
    assert [p.hint for p in found.grad.params] == ["a", "i", "a_bar"]


def test_a_rule_adds_up_over_branches_loops_and_early_returns() -> None:
    text = with_rule("""
@func_grad(f, check=False)
def adj_f(x: float, n: int, adj_ret: float):
    x_bar = 3.0
    if x < 0.0:
        return
    for k in range(n):
        if k == 2:
            adjoint[x] -= x_bar
            continue
        adjoint[x] += adj_ret
    if x > 5.0:
        adjoint[x] += 100.0 + adjoint[x]
        return
""")
    found = rules(text)
    assert not found.checked
    call = """
def go(x: float, n: int, adj_ret: float):
    x_bar = 3.0
    total = 0.0
    if x < 0.0:
        return total
    for k in range(n):
        if k == 2:
            total -= x_bar
            continue
        total += adj_ret
    if x > 5.0:
        total += 100.0 + total
        return total
    return total
def kernel(x: array[float], n: array[int], y: array[float]):
    i = tid()
    y[i] = go(x[i], n[i], 2.0)
"""
    x, n = np.array([-1, 1, 2, 6], np.float32), np.array([1, 2, 4, 4], np.int32)
    wanted = ran(call, (4,), x=x, n=n, y=np.zeros(4, np.float32))["y"]
    assert found.grad is not None
    (given,) = evaluate(inline(found.grad), x, n, np.full(4, 2, np.float32))
    np.testing.assert_array_equal(given, wanted)
    np.testing.assert_array_equal(wanted, [0, 4, 3, 106])


def test_a_rule_may_belong_to_a_function_of_another_cell() -> None:
    f = cell(FUNCTION).definitions["f"]
    assert isinstance(f, UserFunction)
    cell("@func_grad(f)\ndef adj_f(x, n, adj_ret):\n    adjoint[x] += float(n) * adj_ret\n", f=f)
    assert rules(KERNEL, f=f).grad is not None


def test_a_wrong_rule_leaves_a_function_of_another_cell_as_it_was() -> None:
    f = cell(FUNCTION).definitions["f"]
    found = error("@func_grad(f)\ndef adj_f(x, n, adj_ret):\n    adjoint[x] += wrong\n", f=f)
    assert found.message == "the name wrong is not known here"
    assert isinstance(kernel(KERNEL, f=f), KernelDefinition)


def test_a_function_without_types_has_its_rules_lowered_for_each_call() -> None:
    text = """
def f(x):
    return x * x
@func_grad(f)
def adj_f(x, adj_ret):
    adjoint[x] += 2.0 * x * adj_ret
def kernel(x: array[float64], y: array[float64]):
    y[tid()] = f(x[tid()])
"""
    found = rules(text)
    assert found.grad is not None
    assert [str(p.type) for p in found.grad.params] == ["float64", "float64"]


def test_a_float_whose_adjoint_is_never_set_is_warned_of() -> None:
    text = with_rule("@func_grad(f{})\ndef adj_f(x: float, n: int, adj_ret: float):\n    pass\n")
    (warning,) = cell(text.replace("{}", "")).diagnostics
    assert (warning.severity, warning.message) == (
        "warning",
        "adj_f never adds to adjoint[x], so the gradient of x is 0",
    )
    assert warning.span is not None
    assert warning.span.line == 5
    assert cell(text.replace("{}", ", check=False")).diagnostics == ()


def test_a_rule_may_call_the_function_that_it_belongs_to() -> None:
    found = rules("""
def f(x: float):
    return exp(x)
@func_grad(f)
def adj_f(x: float, adj_ret: float):
    adjoint[x] += f(x) * adj_ret
def kernel(x: array[float], y: array[float]):
    y[tid()] = f(x[tid()])
""")
    assert found.grad is not None
    (inner,) = [stmt for stmt in walk(found.grad.body) if isinstance(stmt, Call)]
    assert inner.function.custom is None


def test_a_result_that_is_a_literal_has_an_adjoint_in_the_signature_too() -> None:
    found = rules("""
def f(x: float):
    return x * x, 3
@func_grad(f)
def adj_f(x: float, adj_square: float, adj_three: int):
    adjoint[x] += 2.0 * x * adj_square
def kernel(x: array[float], y: array[float]):
    y[tid()], _ = f(x[tid()])
""")
    assert found.grad is not None
    assert [p.hint for p in found.grad.params] == ["x", "adj_square"]


def test_a_function_that_calls_itself_is_refused_still() -> None:
    found = errors("def f(x: float):\n    return f(x)\n" + KERNEL.replace(", i)", ")"))
    assert "f calls itself, which a kernel cannot do" in [one.message for one in found]


def test_a_rule_for_a_function_of_another_cell_says_which_kernels_do_without_it() -> None:
    f = cell(FUNCTION).definitions["f"]
    lowered = cell("@func_replay(f)\ndef again(x, n):\n    return x * float(n)\n", f=f)
    assert [note.message for note in lowered.diagnostics] == [
        "kernels that were compiled before do without again"
    ]


def place(found: Diagnostic) -> tuple[int, int]:
    assert found.span is not None
    return found.span.line, found.span.column


HEAD = "def adj_f(x: float, n: int, adj_ret: float):\n"
MISTAKES = {
    "adj_f takes 2 arguments; the grad function of f takes 3": (
        "@func_grad(f)\ndef adj_f(x: float, adj_ret: float):\n    adjoint[x] += 1.0\n",
        (5, 0),
    ),
    "adj_f takes n as float32; for f it is int32": (
        "@func_grad(f)\ndef adj_f(x: float, n: float, adj_ret: float):\n    adjoint[x] += 1.0\n",
        (5, 20),
    ),
    "the name g is not known here": ("@func_grad(g)\n" + HEAD + "    adjoint[x] += 1.0\n", (4, 11)),
    "kernel is the kernel kernel, not a function for kernels": (
        "@func_grad(kernel)\n" + HEAD + "    adjoint[x] += 1.0\n",
        (4, 11),
    ),
    "func_grad takes the function that it is for": (
        "@func_grad\n" + HEAD + "    adjoint[x] += 1.0\n",
        (4, 1),
    ),
    "func_grad has no option checked=False": (
        "@func_grad(f, checked=False)\n" + HEAD + "    adjoint[x] += 1.0\n",
        (4, 14),
    ),
    "n has no adjoint: it is not a float": (
        "@func_grad(f)\n" + HEAD + "    adjoint[x] += 1.0\n    adjoint[n] += 1\n",
        (7, 4),
    ),
    "z is not an argument of f": ("@func_grad(f)\n" + HEAD + "    adjoint[z] += 1.0\n", (6, 4)),
    "an adjoint can only be added to: x may contribute elsewhere too": (
        "@func_grad(f)\n" + HEAD + "    adjoint[x] = 1.0\n",
        (6, 4),
    ),
    "the grad function adj_f cannot return a value": (
        "@func_grad(f)\n" + HEAD + "    adjoint[x] += 1.0\n    return x\n",
        (7, 11),
    ),
    "again returns float64; it should return float32": (
        "@func_replay(f)\ndef again(x: float, n: int):\n    return float64(x)\n",
        (5, 0),
    ),
    "moved returns float32, float32; it should return float32": (
        "@func_jvp(f)\ndef moved(x: float, n: int, x_dot: float):\n    return x, x_dot\n",
        (5, 0),
    ),
    "moved takes 2 arguments; the jvp function of f takes 3": (
        "@func_jvp(f)\ndef moved(x: float, n: int):\n    return x\n",
        (5, 0),
    ),
    "f has two rules of the kind func_replay": (
        2 * "@func_replay(f)\ndef again(x: float, n: int):\n    return x\n",
        (8, 0),
    ),
    "adjoint[...] has a meaning only in a grad function": (
        "def g(x: float):\n    return adjoint[x]\n",
        (5, 11),
    ),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_in_a_rule_is_one_sentence_at_its_place(message: str) -> None:
    rule, where = MISTAKES[message]
    found = error(with_rule(rule))
    assert found.message == message
    assert place(found) == where
    assert found.hint


ARRAYS = """
def f(a: array[float], i: int):
    {}
    return a[i]
@{}(f)
def rule({}):
    {}
"""


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            ("pass", "func_grad", "a: array[float], i: int, adj_ret: float", "pass"),
            "rule never adds to adjoint[a]",
        ),
        (
            ("a[i] = 0.0", "func_grad", "a: array[float], i: int, adj_ret: float", "pass"),
            "f changes a, but rule says nothing of adjoint[a]",
        ),
        (
            ("a[i] = 0.0", "func_replay", "a: array[float], i: int", "return atomic_add(a, i, 1.0)"),
            "the replay rule changes a: the values of the forward pass stay",
        ),
        (
            ("a[i] = 0.0", "func_jvp", "a: array[float], i: int, a_dot: array[float]", "return a_dot[i]"),
            "f changes a, but rule does not change a_dot",
        ),
        (
            (
                "pass",
                "func_grad",
                "a: array[float], i: int, adj_ret: float",
                "adjoint[a[i]] += adj_ret",
            ),
            "adjoint[...] takes the name of an argument",
        ),
    ],
)
def test_a_rule_for_arrays_says_what_happens_to_their_adjoints(parts: tuple[str, ...], message: str) -> None:
    assert message in [found.message for found in errors(ARRAYS.format(*parts))]


READS = """
def add(v: array[float], i: int, by: float):
    v[i] += by
def store(v: array[float], i: int, by: float):
    v[i] = by
def f(a: array[float], i: int):
    return a[i] * a[i]
@func_grad(f{check})
def rule(a: array[float], i: int, adj_ret: float):
    by = 2.0 * a[i] * adj_ret
    {line}
def k(x: array[float], y: array[float]):
    i = tid()
    y[i] = f(x, i)
"""


@pytest.mark.parametrize(
    "line",
    [
        "adjoint[a][i] = by",
        "adjoint[a][i] *= by",
        "adjoint[a][i] += adjoint[a][i] + by",
        "adjoint[a][i:] = by",
        "atomic_max(adjoint[a], i, by)",
        "old = atomic_add(adjoint[a], i, by); adjoint[a][0] += old",
        "store(adjoint[a], i, by)",
    ],
)
def test_adjoints_of_arrays_that_are_only_read_are_only_added_to(line: str) -> None:
    found = [error.message for error in errors(READS.format(line=line, check=""))]
    assert found == ["adjoint[a] can only be added to: a may contribute elsewhere too"]
    assert not errors(READS.format(line=line, check=", check=False"))


@pytest.mark.parametrize(
    "line",
    [
        "adjoint[a][i] += by",
        "adjoint[a][i] -= -by",
        "adjoint[a][i:] += by",
        "atomic_add(adjoint[a], i, by)",
        "add(adjoint[a], i, by)",
        "bar = adjoint[a]; bar[i] += by",
    ],
)
def test_adjoints_of_arrays_are_added_to_in_any_way(line: str) -> None:
    assert not errors(READS.format(line=line, check=""))


@pytest.mark.parametrize(
    "line", ["adjoint[p][i].v[1] += by", "adjoint[p][i].v.x -= by", "adjoint[p][i].m[0] += vec2(by)"]
)
def test_components_of_adjoints_are_added_to(line: str) -> None:
    text = """
class Part:
    n: int
    v: vec3
    m: mat22
def f(p: array[Part], i: int):
    return p[i].v[1] + p[i].m[0, 1]
@func_grad(f, check=True)
def rule(p: array[Part], i: int, by: float):
    part = p[i]
    {}
def k(p: array[Part], y: array[float]):
    i = tid()
    y[i] = f(p, i)
"""
    assert not errors(text.format(line))
    assert errors(text.format(line.replace("+", "").replace("-", "")))


def test_functions_that_return_arrays_can_have_no_rules() -> None:
    text = """
def f(a: array[float]):
    return a
@func_grad(f)
def adj_f(a: array[float], adj_ret: float):
    pass
def k(x: array[float]):
    f(x)[0] = 1.0
"""
    assert error(text).message == "f returns arrays, so it can have no grad function"


@pytest.mark.parametrize("value", ["0.0", "-1.0", "float(0.0)", "1"])
def test_a_rule_may_return_a_plain_number(value: str) -> None:
    text = f"""
def f(a: float64):
    return a * a
@func_jvp(f, check=False)
def f_dot(a: float64, da: float64):
    return {value}
@func_replay(f, check=False)
def again(a: float64):
    return {value}
def k(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = f(x[i])
"""
    kernel = kl.compile(text)["k"]
    x = kl.array([3.0], dtype=kl.float64)

    def squared(x: kl.array) -> kl.array:
        y = kl.zeros_like(x)
        kernel[1](x, y)
        return y

    assert kl.func.jvp(squared, (x,), (kl.ones_like(x),))[1].list() == [{"-1.0": -1, "1": 1}.get(value, 0)]
