"""Long functions: what is read long after it was computed stands in memory, and nothing else changes."""

import numpy as np
import pytest

import kernelab as kl
from kernelab.codegen.cpp import own_memory
from kernelab.codegen.cpp.emitter import emit
from kernelab.codegen.cpp.targets import Cpu
from kernelab.passes.common.scalarise import scalarise
from tests.support.lowering import lowered

FORMS = ["a = a * 0.99 + b * 0.01", "b = a * b + 0.5", "if n > 2: a = a - b * 0.1", "n = n * 3 % 7"]
MANY = "\n    ".join(
    [
        "def many(x: array[float], k: array[int], y: array[float]):",
        *("i = tid()", "a = x[i]", "n = k[i]", "b = 0.5 * a", "late = a > 0.5", "first = b"),
        *(FORMS[k % 4] for k in range(40)),
        "y[i] = a + b * float(n) + first if late else -first",
    ]
)


def made(backend: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[float], list[float]]:
    """What the kernel computes, and its gradient."""
    monkeypatch.setenv("KERNELAB_BACKEND", backend)
    x = kl.array(np.linspace(0.1, 1.0, 7), dtype=float, requires_grad=True)
    y = kl.zeros(7, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kl.compile(MANY)["many"], 7, [x, kl.array(range(7), dtype=int), y])
    tape.backward(grads={y: kl.ones(7)})
    return y.list(), x.grad.list()


def test_what_waits_in_memory_is_what_waits_in_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    function = scalarise(lowered(MANY, "many"))
    assert "volatile float" not in emit([function], Cpu()).text
    monkeypatch.setattr(own_memory, "LONG", 20)
    monkeypatch.setattr(own_memory, "LATE", 5)
    text = emit([function], Cpu()).text
    assert "volatile float late_1[" in text and "volatile bool late_2[" in text
    assert made("cpu", monkeypatch) == made("interp", monkeypatch)
