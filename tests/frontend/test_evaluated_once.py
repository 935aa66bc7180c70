"""Every part of a statement is evaluated as often as in Python, and in the same order.

`mark(log, k, v)` notes `k` and gives `v`: the log of the interpreter is that of the text run as plain Python.
"""

from typing import Any

import numpy as np
import pytest

from kernelab.backend.cpu import interpreter
from tests.support import python_oracle
from tests.support.lowering import lowered

MARK = """
class Pair:
    f: float
    h: vec2

def mark(log: array[int], k: int, v):
    log[0] = log[0] + 1
    log[log[0]] = k
    return v

def both(u: float, v: float):
    return u, v

"""
SIGNATURE = "def program(log: array[int], x: array[float], a: array2d[float]):"
ALIKE = (
    "x[mark(log, 1, 0)] = mark(log, 2, 1.0)",
    "x[mark(log, 1, 0)] += mark(log, 2, 1.0)",
    "x[mark(log, 1, 0)] *= mark(log, 2, 2.0)",
    "x[mark(log, 1, 0)] **= mark(log, 2, 2.0)",
    "a[mark(log, 1, 0), mark(log, 2, 1)] -= mark(log, 3, 1.0)",
    "a[mark(log, 1, 0)][mark(log, 2, 1)] /= mark(log, 3, 2.0)",
    "x[0], x[mark(log, 2, 1)] = mark(log, 3, 1.0), mark(log, 4, 2.0)",
    "x[mark(log, 1, 0)], x[mark(log, 2, 1)] = both(mark(log, 3, 1.0), mark(log, 4, 2.0))",
    "x[0] = x[1] = mark(log, 1, 2.0)",
    "x[0] = float(mark(log, 1, 1) < mark(log, 2, 2) < mark(log, 3, 3))",
    "x[0] = float(mark(log, 1, 2) < mark(log, 2, 1) < mark(log, 3, 3))",
    "x[0] = float(mark(log, 1, 7) in (mark(log, 2, 1), mark(log, 3, 7), mark(log, 4, 2)))",
    "x[0] = float(mark(log, 1, 7) not in [mark(log, 2, 1), mark(log, 3, 7)])",
    "t = (mark(log, 1, 3), mark(log, 2, 7))\n    x[0] = float(mark(log, 3, 7) in t)",
    "x[0] = mark(log, 1, 1.0) if mark(log, 2, 1) > 0 else mark(log, 3, 2.0)",
    "x[0] = float(mark(log, 1, 1) > 2 and mark(log, 2, 1) > 0 or mark(log, 3, 1) > 0)",
    "if mark(log, 1, 1) > 2:\n        x[0] = 1.0\n    elif mark(log, 2, 1) > 0:\n        x[0] = 2.0",
    "for k in range(mark(log, 1, 0), mark(log, 2, 3), mark(log, 3, 1)):\n        x[k] = mark(log, 4, 1.0)",
    "for k in (mark(log, 1, 0), mark(log, 2, 1)):\n        x[k] = mark(log, 3, 1.0)",
    "for j, e in enumerate((mark(log, 1, 1.0), mark(log, 2, 2.0))):\n        x[j] = e",
    "k = 0\n    while mark(log, 1, k) < 2:\n        k += mark(log, 2, 1)",
    "v = vec3(mark(log, 1, 1.0), mark(log, 2, 2.0), 0.0)\n    v[mark(log, 3, 1)] += mark(log, 4, 1.0)",
    "z = Pair(mark(log, 1, 1.0), vec2(0.0, 0.0))\n    z.h[mark(log, 2, 1)] *= mark(log, 3, 2.0)",
    "c = zeros(3, dtype=float)\n    c[mark(log, 1, 1)] += mark(log, 2, 1.0)",
    "c = zeros(3, dtype=float)\n    c[mark(log, 1, 1)] = c[mark(log, 2, 2)] = mark(log, 3, 1.0)",
    "atomic_add(x, mark(log, 1, 0), mark(log, 2, 1.0))",
    "if (y := mark(log, 1, 1.0)) > 0.0:\n        x[0] = y",
)


@pytest.mark.parametrize("statement", ALIKE)
def test_parts_are_evaluated_as_in_python(statement: str) -> None:
    text = f"{MARK}{SIGNATURE}\n    {statement}\n"
    arguments = {"log": np.zeros(32, np.int32), "x": np.ones(3), "a": np.ones((2, 3))}
    ndims = {"log": 1, "x": 1, "a": 2}
    after = python_oracle.run(text, "program", (1,), arguments, ndims)
    ran = {**arguments, "x": np.ones(3, np.float32), "a": np.ones((2, 3), np.float32)}
    interpreter.run(lowered(text, "program"), (1,), ran)
    assert ran["log"].tolist() == after["log"].tolist()
    np.testing.assert_allclose(ran["x"], after["x"])
    np.testing.assert_allclose(ran["a"], after["a"])


PARTS = {
    "t[mark(log, 1, 0)].p = mark(log, 2, vec3(1.0, 2.0, 3.0))": [2, 1],
    "t[mark(log, 1, 0)].p += mark(log, 2, vec3(1.0, 2.0, 3.0))": [1, 2],
    "t[mark(log, 1, 0)].p.x = mark(log, 2, 1.0)": [2, 1],
    "t[mark(log, 1, 0)].p.x += mark(log, 2, 1.0)": [1, 2],
    "t[mark(log, 1, 0)].p[mark(log, 2, 1)] *= mark(log, 3, 1.0)": [1, 2, 3],
    "t[mark(log, 1, 0)].q[mark(log, 2, 1)] = mark(log, 3, 1.0)": [3, 1, 2],
    "s = t[0]\n    s.p[mark(log, 1, 1)] += mark(log, 2, 1.0)\n    t[0] = s": [1, 2],
}


@pytest.mark.parametrize("statement", PARTS)
def test_indices_of_a_part_of_a_transform_are_evaluated_once(statement: str) -> None:
    text = f"{MARK}def program(log: array[int], t: array[transform]):\n    {statement}\n"
    arguments: dict[str, Any] = {"log": np.zeros(8, np.int32), "t": np.ones((2, 7), np.float32)}
    interpreter.run(lowered(text, "program"), (1,), arguments)
    count, *marks = arguments["log"].tolist()
    assert marks[:count] == PARTS[statement]
