"""Dead ends: which arrays reach what a kernel writes only where derivatives are zero, and where."""

import pytest

import kernelab as kl


def found(body: str, word: str = "int") -> list[tuple[str, str, int]]:
    """The dead ends of a kernel of some lines: source, target, and the number of the line, from 1."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    text = (
        f"def k(x: array[float], v: array[vec3], n: array[int], y: array[float], m: array[int]):\n{lines}\n"
    )
    ends = kl.compile(text)["k"].program.dead_ends
    return [(end.source, end.target, end.span.line - 1) for end in ends if end.word == word]


@pytest.mark.parametrize(
    ("body", "ends"),
    [
        ("i = tid()\ny[i] = float(int(x[i]))", [("x", "y", 2)]),
        ("i = tid()\nk = int(v[i][1])\ny[i] = float(k) + x[i]", [("v", "y", 2)]),
        ("i = tid()\nm[i] = int(x[i])", [("x", "m", 2)]),
        ("i = tid()\ny[i] = x[i] + float(int(x[i]))", [("x", "y", 2)]),
        ("i = tid()\ny[i] = float(n[i])", [("n", "y", 2)]),
        ("i = tid()\nk = int(0)\nfor j in range(3):\n    k += int(x[j])\ny[i] = float(k)", [("x", "y", 4)]),
        ("i = tid()\nk = int(0)\nif x[i] > 0.0:\n    k = int(x[i])\ny[i] = float(k)", [("x", "y", 4)]),
        ("i = tid()\na = zeros(2, dtype=int)\na[0] = int(x[i])\ny[i] = float(a[0])", [("x", "y", 3)]),
        ("atomic_add(y, 0, float(int(x[tid()])))", [("x", "y", 1)]),
    ],
)
def test_a_value_that_was_an_integer_is_found(body: str, ends: list[tuple[str, str, int]]) -> None:
    assert found(body) == ends


@pytest.mark.parametrize(
    ("word", "body", "line"),
    [
        ("round", "i = tid()\ny[i] = round(x[i]) * 2.0", 2),
        ("floor", "i = tid()\ns = floor(x[i])\ny[i] = s * s", 2),
        ("sign", "i = tid()\na = zeros(2, dtype=float)\na[0] = sign(x[i])\ny[i] = a[0]", 3),
        ("if", "i = tid()\ny[i] = float(x[i] > 0.5)", 2),
        ("if", "i = tid()\ny[i] = where(x[i] > 0.5, 1.0, 0.0)", 2),
        ("if", "i = tid()\nif x[i] > 0.5:\n    atomic_add(y, 0, 1.0)", 2),
        ("if", "i = tid()\ns = 0.0\nif not (x[i] > 0.5 and i > 2):\n    s = 1.0\ny[i] = s", 3),
        ("if", "i = tid()\ns = 0.0\nwhile s < x[i]:\n    s += 1.0\ny[i] = s", 3),
        ("if", "i = tid()\ns = 0.0\nfor k in range(int(x[i])):\n    s += 1.0\ny[i] = s", 3),
        ("if", "i = tid()\nif x[i] < 0.0:\n    return\ny[i] = 1.0", 2),
        ("if", "i = tid()\nfor k in range(3):\n    if x[i] < float(k):\n        break\n    y[i] += 1.0", 3),
    ],
)
def test_roundings_and_conditions_are_found(word: str, body: str, line: int) -> None:
    assert found(body, word) == [("x", "y", line)]


def test_a_rounding_counts_more_than_a_condition() -> None:
    assert found("i = tid()\nif x[i] > 0.5:\n    y[i] = round(x[i])", "round") == [("x", "y", 3)]


@pytest.mark.parametrize("body", ["y[tid()] = stop_gradient(x[tid()])", "y[tid()] = 2.0 * x[tid()]"])
def test_what_is_meant_as_a_constant_is_no_dead_end(body: str) -> None:
    assert kl.compile(f"def k(x: array[float], y: array[float]):\n    {body}\n")["k"].program.dead_ends == ()


@pytest.mark.parametrize(
    "body",
    [
        "i = tid()\ny[i] = x[i]",
        "i = tid()\ny[i] = x[n[i]]",
        "i = tid()\ny[int(v[i][0])] = x[i]",
        "i = tid()\nif x[i] > 0.0:\n    y[i] = 1.0",
        "i = tid()\nm[i] = where(x[i] > 0.0, 1, 0)",
        "i = tid()\ny[i] = floor(x[i])",
        "i = tid()\ny[i] = x[i] * float(x.shape[0])",
        "i = tid()\ny[i] = x[i] * float(i)",
    ],
)
def test_indices_branches_sizes_and_rounding_are_no_integers(body: str) -> None:
    assert found(body) == []
