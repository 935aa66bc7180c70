"""A write to elements that no adjoint reads is silent, wherever the indices that are read come from."""

import warnings
from typing import Any

import numpy as np
import pytest

import kernelab as kl

N = 10
READS = {
    "across the end": "w[i + k]",
    "two strides apart": "w[2 * i] * w[2 * i + k]",
    "both ends": "w[i] * w[-1 - i]",
    "far apart": "w[i] + w[i + 7] * w[i]",
    "guarded": "where(i > 0, w[i + k], w[i])",
}


def kernel(read: str) -> Any:
    text = (
        "def k(w: array[float64], k: int, y: array[float64]):\n    i = tid()\n    r = {}\n    y[i] = r * r\n"
    )
    return kl.compile(text.format(read))["k"]


def read_by(expression: str, i: int, k: int) -> set[int]:
    """The elements that a thread reads, found by running the expression as Python."""
    seen: set[int] = set()

    class Noting:
        def __getitem__(self, index: int) -> float:
            seen.add(index % N)
            return 1.0

    scope = {"w": Noting(), "i": i, "k": k, "where": lambda c, a, b: a}
    eval(expression, scope)
    return seen


@pytest.mark.parametrize("policy", ["warn", "error", "save"])
@pytest.mark.parametrize("k", [-2, -1, 0, 1])
@pytest.mark.parametrize("read", READS)
def test_a_write_is_told_if_an_element_that_was_read_is_in_it(read: str, k: int, policy: Any) -> None:
    launch, threads = kernel(READS[read]), 2
    needed = set().union(*(read_by(READS[read], i, k) for i in range(threads)))
    start = np.linspace(1.0, 2.0, N)
    for low in range(N):
        for high in range(low + 1, N + 1):
            w = kl.array(start, dtype=kl.float64, requires_grad=True)
            y = kl.zeros(threads, dtype=kl.float64, requires_grad=True)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                with kl.Tape(overwrite=policy) as tape:
                    launch[threads](w, k, y)
                    try:
                        w[low:high].fill_(0.0)
                        refused = False
                    except kl.TapeError:
                        refused = True
            told = refused or any("is overwritten here" in str(one.message) for one in caught)
            lost = bool(needed & set(range(low, high)))
            assert told == (lost and policy != "save"), (low, high)
            if policy == "save":
                tape.backward(grads={y: np.ones(threads)})
                again = kl.array(start, dtype=kl.float64, requires_grad=True)
                with kl.Tape() as other:
                    launch[threads](again, k, y)
                other.backward(grads={y: np.ones(threads)})
                assert w.grad.list() == again.grad.list()
