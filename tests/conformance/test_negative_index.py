"""A computed index below zero counts from the end: one warning at its line, or an error."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.backend.cpu import interpreter
from kernelab.errors import KernelIndexError, KernelValueError, KernelWarning
from kernelab.settings import changed_settings
from tests.support.devices import opened
from tests.support.hardware import open_device

HEAD = "def kernel(x: array[float], of: array[int], k: int, y: array[float]):\n    i = tid()\n"

WRAPPING = {
    "a neighbour": "y[i] = x[i - 1]",
    "a number": "y[i] = x[k] + x[i] * x[i] + sin(x[i])",
    "an index that is read": "y[i] = x[of[i]] * x[i] + sin(x[i])",
    "what is stored": "y[i - 1] = x[i]",
    "what is added": "y[i - 1] += x[i] * x[i]",
    "an atomic": "atomic_add(y, i - 1, x[i])",
    "an index in a branch": "if i < 2:\n        y[i] = x[i - 1]",
    "an index in a loop": "s = 0.0\n    for j in range(3):\n        s += x[i - j]\n    y[i] = s",
    "an index in a slice": "part = x[0:3]\n    y[i] = part[min(i, 2) - 1]",
    "the bound of a slice": "s = 0.0\n    for e in x[i - 1:i]:\n        s += e\n    y[i] = s",
    "a local array": "t = zeros(3)\n    t[min(i, 2) - 1] = x[i]\n    y[i] = t[2]",
    "an index of 64 bits": "y[i] = x[int64(i) - int64(1)]",
}

SILENT = {
    "a number that is written out": "y[i] = x[-1]",
    "a name for such a number": "last = -1\n    y[i] = x[last]",
    "a slice that is written out": "y[i] = x[-2:][0]",
    "a component": "v = vec3(x[i], x[i], x[i])\n    y[i] = v[-1]",
    "an index that was tested": "if i > 0:\n        y[i] = x[i - 1]",
    "an index that goes round": "y[i] = x[(i - 1) % len(x)]",
    "an index that is clamped": "y[i] = x[max(i - 1, 0)]",
}


def launch(kernel: Any, n: int, device: str = "cpu") -> None:
    x = kl.array(np.arange(1, n + 1) / n, dtype=float, requires_grad=True, device=device)
    y = kl.zeros(n, dtype=float, requires_grad=True, device=device)
    of = kl.array(np.arange(n, dtype=np.int32) - 3, device=device)
    with kl.Tape() as tape:
        kl.launch(kernel, dim=n, inputs=[x, of, -2], outputs=[y], device=device)
    tape.backward(grads={y: kl.ones_like(y)})
    kl.synchronize()


def told(kernel: Any, n: int, device: str = "cpu") -> list[str]:
    """The warnings of two launches and their adjoints."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        launch(kernel, n, device)
        launch(kernel, n, device)
    assert all(issubclass(found.category, KernelWarning) for found in caught)
    return [str(found.message) for found in caught]


@pytest.fixture
def errors() -> Iterator[None]:
    kl.config.negative_index = "error"
    yield
    kl.config.negative_index = "warn"


@pytest.fixture
def device() -> Iterator[str]:
    with opened(open_device()):
        yield "cuda"


@pytest.mark.parametrize("n", [6, 6000])
@pytest.mark.parametrize("name", WRAPPING)
def test_a_computed_index_below_zero_is_told_once_and_not_by_the_adjoint(name: str, n: int) -> None:
    kernel = kl.compile(f"{HEAD}    {WRAPPING[name]}")["kernel"]
    (message,) = told(kernel, n)
    assert " was negative: it counted from the end, as in Python\n  <text>, line " in message
    assert "hint: test it first" in message and "^^^" in message


@pytest.mark.parametrize("name", SILENT)
def test_one_that_is_written_out_or_never_negative_is_silent(name: str) -> None:
    assert told(kl.compile(f"{HEAD}    {SILENT[name]}")["kernel"], 6) == []


@pytest.mark.parametrize("n", [6, 6000])
def test_it_is_an_error_where_the_settings_say_so(n: int, errors: None) -> None:
    kernel = kl.compile(f"{HEAD}    {WRAPPING['an index that is read']}")["kernel"]
    for _ in range(2):
        with pytest.raises(KernelIndexError, match="was negative: it counted from the end"):
            launch(kernel, n)


def test_each_line_is_told_and_named() -> None:
    kernel = kl.compile(f"{HEAD}    y[i] = x[i - 1]\n    s = x[i - 2]\n    y[i] += s")["kernel"]
    first, second = told(kernel, 6)
    assert "line 3\n" in first and "x[i - 1]" in first
    assert "line 4\n" in second and "x[i - 2]" in second


def test_a_line_that_is_first_negative_in_a_later_launch_is_told_then() -> None:
    kernel = kl.compile("def kernel(x: array[float], k: int, y: array[float]):\n    y[0] = x[k]")["kernel"]
    x, y = kl.ones(3), kl.zeros(1)
    kl.launch(kernel, 1, [x, 2], [y])
    with pytest.warns(KernelWarning, match="was negative"):
        kl.launch(kernel, 1, [x, -2], [y])
    kl.launch(kernel, 1, [x, -2], [y])


def test_an_error_of_the_launch_comes_first() -> None:
    kernel = kl.compile("def kernel(x: array[float]):\n    i = tid()\n    x[2 * i - 1] = 1.0")["kernel"]
    with pytest.raises(KernelIndexError, match="index 3 is out of bounds"):
        kl.launch(kernel, 3, [kl.zeros(3)])


@pytest.mark.parametrize("name", WRAPPING)
def test_the_interpreter_tells_of_it_too(name: str) -> None:
    function = kl.compile(f"{HEAD}    {WRAPPING[name]}")["kernel"].primal
    f = np.float32
    arrays = {
        "x": np.ones(6, f),
        "of": np.arange(6, dtype=np.int32) - 3,
        "k": np.int32(-2),
        "y": np.ones(6, f),
    }
    with pytest.warns(KernelWarning, match="was negative"):
        interpreter.run(function, (6,), arrays)
    interpreter.run(function, (6,), arrays)


@pytest.mark.parametrize("name", ["what is added", "the bound of a slice", "an index of 64 bits"])
def test_a_device_tells_of_it_too(name: str, device: str) -> None:
    (message,) = told(kl.compile(f"{HEAD}    {WRAPPING[name]}")["kernel"], 6, device)
    assert "was negative: it counted from the end" in message


def test_a_device_raises_too(device: str, errors: None) -> None:
    with pytest.raises(KernelIndexError, match="was negative"):
        launch(kl.compile(f"{HEAD}    {WRAPPING['a neighbour']}")["kernel"], 6, device)


def test_a_setting_that_is_none_is_refused() -> None:
    with pytest.raises(KernelValueError, match='negative_index is "warn", "wrap" or "error", not False'):
        kl.config.negative_index = False  # type: ignore[assignment]


def test_wrapping_that_is_wanted_is_not_warned_of() -> None:
    kernel = kl.compile(f"{HEAD}    {WRAPPING['a neighbour']}")["kernel"]
    with changed_settings(negative_index="wrap"):
        assert told(kernel, 6) == []
    assert len(told(kernel, 6)) == 1
