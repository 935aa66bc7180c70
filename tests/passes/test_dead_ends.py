"""Casts: which arrays reach what a kernel writes through an integer, and which only seem to."""

import pytest

import kernelab as kl


def found(body: str) -> list[tuple[str, str, int]]:
    """The casts of a kernel of some lines: source, target, and the number of the line, from 1."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    text = (
        f"def k(x: array[float], v: array[vec3], n: array[int], y: array[float], m: array[int]):\n{lines}\n"
    )
    return [(cast.source, cast.target, cast.span.line - 1) for cast in kl.compile(text)["k"].casts]


@pytest.mark.parametrize(
    ("body", "casts"),
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
def test_a_value_that_was_an_integer_is_found(body: str, casts: list[tuple[str, str, int]]) -> None:
    assert found(body) == casts


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
def test_indices_branches_sizes_and_rounding_are_none(body: str) -> None:
    assert found(body) == []
