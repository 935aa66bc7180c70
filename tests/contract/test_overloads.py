"""Of several definitions of one name, rules, maps and transforms mean the one that a call means."""

from typing import Any

import pytest

import kernelab as kl
from kernelab.errors import KernelError

DEFS = """
def f(t: float, u: float):
    return t * t * u

def f(t: float):
    return t * t

def f(t: float64):
    return t * t * t

def f(t: float, n: int):
    return t * t, float(n) * t
"""
KERNEL = """
def kernel(x: array[float], o: array[float]):
    a, b = f(x[0], 3)
    o[0] = f(x[0], 2.0) + f(x[0]) + float(f(float64(x[0]))) + a + b
"""
RULES = {
    "t: float, u: float, adj_ret: float": "adjoint[t] += 100.0 * adj_ret",
    "t: float, adj_ret: float": "adjoint[t] += 1000.0 * adj_ret",
    "other: float64, adj_ret: float64": "adjoint[other] += 10000.0 * adj_ret",
    "t: float, n: int, adj_a: float, adj_b: float": "adjoint[t] += 50000.0 * adj_a + 50000.0 * adj_b",
}
TRUE = [2 * 3.0 * 2.0, 2 * 3.0, 3 * 9.0, 2 * 3.0 + 3.0]
GIVEN = [100.0, 1000.0, 10000.0, 100000.0]


def slopes(text: str) -> tuple[float, float]:
    """The derivative of the kernel at 3, by the adjoint and by the tangent."""
    kernel: Any = kl.compile(text)["kernel"]

    def total(x: Any) -> Any:
        o = kl.zeros(1)
        kernel[1](x, o)
        return o

    x = kl.array([3.0])
    return float(kl.func.grad(total)(x).item()), float(kl.func.jacfwd(total)(x).item())


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("chosen", [[0], [1], [2], [3], [0, 1, 2, 3]], ids=str)
def test_a_rule_belongs_to_the_definition_whose_parameters_it_takes(chosen: list[int], order: int) -> None:
    signatures = list(RULES)
    text = "\n\n".join(DEFS.strip().split("\n\n")[::order])
    for k in chosen:
        head = f"\n@func_grad(f, check=False)\ndef rule_{k}({signatures[k]}):\n"
        text += f"{head}    {RULES[signatures[k]]}\n"
    expected = sum(GIVEN[k] if k in chosen else TRUE[k] for k in range(4))
    assert slopes(text + KERNEL) == pytest.approx((expected, expected))


def test_other_kinds_of_rules_belong_to_one_definition_too() -> None:
    rules = """
@func_jvp(f, check=False)
def moved(t: float, t_dot: float):
    return 1000.0 * t_dot
@func_replay(f)
def again(t: float, u: float):
    return t * t * u
"""
    by_adjoint, by_tangent = slopes(DEFS + rules + KERNEL)
    assert (by_adjoint, by_tangent) == pytest.approx((sum(TRUE), sum(TRUE) - TRUE[1] + 1000.0))


def test_a_rule_for_a_function_of_another_cell_belongs_to_one_definition() -> None:
    first = kl.compile(DEFS)
    rule = "@func_grad(f, check=False)\ndef later(t: float, adj_ret: float):\n"
    rule += "    adjoint[t] += 1000.0 * adj_ret\n"
    kernel: Any = kl.compile(rule + KERNEL, {"f": first["f"]})["kernel"]
    x, o = kl.array([3.0], requires_grad=True), kl.zeros(1, requires_grad=True)
    with kl.Tape() as tape:
        kernel[1](x, o)
    tape.backward(o)
    assert x.grad.item() == pytest.approx(sum(TRUE) - TRUE[1] + 1000.0)


@pytest.mark.parametrize(
    ("signature", "count"),
    [("t, adj_ret", "2"), ("t: vec2, adj_ret: float", "none"), ("t: float", "none")],
)
def test_a_rule_that_fits_several_definitions_or_none_is_refused(signature: str, count: str) -> None:
    rule = f"@func_grad(f)\ndef rule({signature}):\n    adjoint[t] += 1.0\n"
    with pytest.raises(KernelError, match=rf"f has 4 definitions, and {count} of them takes? what rule does"):
        kl.compile(DEFS + rule)


@pytest.mark.parametrize("first", ["t: float, u: float", "t: float, n: int"])
def test_a_map_calls_the_definition_that_a_call_means(first: str) -> None:
    defs = {
        "t: float, u: float": "def f(t: float, u: float):\n    return t * u\n",
        "t: float, n: int": "def f(t: float, n: int):\n    return -t * float(n)\n",
        "t: int": "def f(t: int):\n    return 7\n",
        "t: float64": "def f(t: float64):\n    return t * 0.1\n",
    }
    f: Any = kl.compile(defs.pop(first) + "".join(defs.values()))["f"]
    x = kl.array([1.0, 2.0])
    for mapped in (lambda *given: kl.map(f, *given), f):
        assert mapped(x, 3).list() == [-3.0, -6.0]
        assert mapped(x, 3.0).list() == [3.0, 6.0]
        assert mapped(kl.array([1, 2])).list() == [7, 7]
        assert mapped(x.astype(kl.float64)).list() == [0.1, 0.2]
    assert kl.func.grad(lambda x: kl.map(f, x, 3).sum())(x).list() == [-3.0, -3.0]
