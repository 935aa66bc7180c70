"""`kernelab.interop.torch.function` on tensors that say they are on a GPU: a simulated one.

Autograd is PyTorch's own.  What a tensor holds stands in the memory of the simulated device; PyTorch's own
operations on it run on the CPU.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_map

import kernelab as kl
from kernelab.backend.cuda.synchronisation import LEGACY
from kernelab.interop import torch as kt
from kernelab.runtime.memory import dlpack
from tests.support.devices import opened
from tests.support.simulated import SimulatedDriver

SAME_MEMORY = {torch.ops.aten.detach.default, torch.ops.aten.alias.default}
MADE = kl.compile(
    """
def wave(x: array[float], y: array[float]):
    i = tid()
    y[i] = sin(x[i]) * x[i] * x[i]
"""
)


class OnDevice(torch.Tensor):
    """A tensor whose numbers are those of an array of the device."""

    held: kl.array
    device = property(lambda self: torch.device("cuda", 0))  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, held: kl.array) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=torch.float32)
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in SAME_MEMORY:
            return cls(args[0].held)
        return tree_map(_moved, func(*tree_map(_fetched, args), **tree_map(_fetched, kwargs or {})))

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, 0

    def __dlpack__(self, **options: Any) -> Any:
        return self.held.__dlpack__(**options)


def _fetched(value: Any) -> Any:
    return torch.from_numpy(value.held.numpy().copy()) if isinstance(value, OnDevice) else value


def _moved(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return OnDevice(kl.array(value.numpy(), dtype=float, device="cuda:0"))


class Capsule:
    """What a capsule describes, as an object that hands it over."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, 0

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    stream = type("Stream", (), {"cuda_stream": LEGACY})
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: stream)
    monkeypatch.setattr(torch.utils.dlpack, "from_dlpack", lambda c: OnDevice(kl.from_dlpack(Capsule(c))))
    with opened(SimulatedDriver(1 << 20)):
        yield


def wave(x: kl.array) -> kl.array:
    assert x.device.is_cuda
    y = kl.zeros_like(x)
    kl.launch(MADE["wave"], dim=x.shape, inputs=[x], outputs=[y])
    return y


def on_device(values: Any) -> Any:
    return _moved(torch.tensor(values))


def slopes(x: Any) -> Any:
    return np.cos(x) * x * x + 2.0 * x * np.sin(x)


def test_values_and_gradients_stay_on_the_device() -> None:
    values = np.array([0.5, 1.0, 2.0], np.float32)
    x = on_device(values).requires_grad_(True)
    y = kt.function(wave)(x)
    assert isinstance(y, OnDevice) and y.device.type == "cuda"
    np.testing.assert_allclose(_fetched(y.detach()), np.sin(values) * values**2, rtol=1e-6)
    y.sum().backward()
    np.testing.assert_allclose(_fetched(x.grad), slopes(values), rtol=1e-5)


def test_second_derivatives_run_there_too() -> None:
    values = np.array([0.5, 1.0], np.float32)
    x = on_device(values).requires_grad_(True)
    (first,) = torch.autograd.grad(kt.function(wave)(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    expected = -np.sin(values) * values**2 + 4.0 * values * np.cos(values) + 2.0 * np.sin(values)
    np.testing.assert_allclose(_fetched(second), expected, rtol=1e-5)


def test_the_memory_of_an_argument_is_shared() -> None:
    x = on_device(np.ones(3, np.float32))
    found = []
    kt.function(lambda given: found.append(given.ptr) or wave(given))(x)
    assert found == [x.held.ptr]
