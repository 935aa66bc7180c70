"""Where a chain of gradients goes on in another library, or comes from one, its end is told at the line."""

import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kernelab as kl

SQUARES = kl.compile("def k(x: array[float], y: array[float]):\n    i = tid()\n    y[i] = x[i] * x[i]\n")["k"]


class Tensor:
    """As much of a tensor of PyTorch as is asked for."""

    def __init__(self, values: Any, requires_grad: bool = False, is_leaf: bool = True) -> None:
        self.values, self.requires_grad, self.is_leaf = np.asarray(values), requires_grad, is_leaf
        self.grad: Tensor | None = None
        self.device, self.dtype = "cpu", f"torch.{self.values.dtype}"

    def detach(self) -> "Tensor":
        return Tensor(self.values)

    def numpy(self) -> Any:
        return self.values

    def requires_grad_(self, wanted: bool) -> None:
        self.requires_grad = wanted


@pytest.fixture(autouse=True)
def _torch(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("torch")
    module.zeros_like = lambda t: Tensor(np.zeros_like(t.values))
    module.from_numpy = Tensor
    monkeypatch.setitem(sys.modules, "torch", module)


def told(act: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        act()
    return [str(w.message) for w in caught if issubclass(w.category, kl.KernelWarning)]


def on_a_tape() -> tuple[Any, Any, Any]:
    x, y = kl.ones(3, requires_grad=True), kl.zeros(3, requires_grad=True)
    with kl.Tape() as tape:
        SQUARES[3](x, y)
    return tape, x, y


WAYS = {
    "to_torch": kl.to_torch,
    "to_dlpack": kl.to_dlpack,
    "np.from_dlpack": np.from_dlpack,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("when", ["finished", "swept", "open", "a part"])
def test_what_a_tape_has_computed_ends_its_chain_with_a_warning(way: str, when: str) -> None:
    tape, _, y = on_a_tape()
    if when == "swept":
        tape.backward(grads={y: np.ones(3)})
    if when == "open":
        z = kl.zeros(3, requires_grad=True)
        with kl.Tape():
            SQUARES[3](y, z)
            (message,) = told(lambda: WAYS[way](z))
    else:
        (message,) = told(lambda: WAYS[way](y[1:] if when == "a part" else y))
    assert "was computed on a tape: no gradient comes back" in message
    assert "lambda: WAYS[way]" in message


@pytest.mark.parametrize("way", WAYS)
def test_leaves_constants_and_what_no_tape_holds_are_silent(way: str) -> None:
    tape, x, y = on_a_tape()
    assert told(lambda: WAYS[way](x)) == []
    assert told(lambda: WAYS[way](kl.clone(y, requires_grad=False))) == []
    del tape
    assert told(lambda: WAYS[way](y)) == []


@pytest.mark.parametrize("wanted", [True, False])
def test_saying_what_is_meant_is_silent(wanted: bool) -> None:
    _, _, y = tape_and_arrays = on_a_tape()
    assert told(lambda: kl.to_torch(y, requires_grad=wanted)) == []
    assert len(tape_and_arrays) == 3


def test_a_tensor_that_pytorch_computed_is_told_too() -> None:
    computed = Tensor(np.ones(3, np.float32), requires_grad=True, is_leaf=False)
    (message,) = told(lambda: kl.from_torch(computed))
    assert "was computed by PyTorch: no gradient goes on" in message
    for silent in (True, False):
        assert told(lambda wanted=silent: kl.from_torch(computed, requires_grad=wanted)) == []
    assert told(lambda: kl.from_torch(computed.detach())) == []
    assert told(lambda: kl.from_torch(Tensor(np.ones(3, np.float32), requires_grad=True))) == []


def test_kernelab_itself_follows_its_own_memory() -> None:
    held = on_a_tape()
    assert told(lambda: kl.from_dlpack(held[2])) == []
