"""Tapes of several threads of Python that share an input: its gradient is the sum of what all of them add."""

from collections.abc import Callable
from threading import Event, RLock, Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.autodiff.records import adjoint_buffers, backward
from kernelab.autodiff.records.records import LaunchRecord

CELL = """
def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def twice(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] + x[i]
"""


class Watched:
    """A lock that tells when somebody comes to it and has to wait."""

    def __init__(self) -> None:
        self.lock, self.waiting = RLock(), Event()

    def acquire(self, blocking: bool = True) -> bool:
        if self.lock.acquire(blocking=False):
            return True
        if not blocking:
            return False
        self.waiting.set()
        return self.lock.acquire()

    def release(self) -> None:
        self.lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def recorded(kernels: dict[str, Any], names: tuple[str, ...], x: Any) -> Callable[[], None]:
    """The backward pass of a tape on which some kernels run one after the other."""
    arrays = [x, *(kl.zeros(4, requires_grad=True) for _ in names)]
    with kl.Tape() as tape:
        for name, read, written in zip(names, arrays, arrays[1:], strict=False):
            kernels[name][4](read, written)
    return lambda: tape.backward(grads={arrays[-1]: kl.ones(4)})


class Passes:
    """Two backward passes over one input, the second in a thread of its own, in the middle of the first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]) -> None:
        kernels, self.lock = kl.compile(CELL), Watched()
        self.x = kl.array([1.0, 2.0, 3.0, 4.0], requires_grad=True)
        recorded(kernels, names, self.x)()  # now there is a gradient to add to
        self.first, self.second = (recorded(kernels, names, self.x) for _ in range(2))
        self.is_done, self.other = Event(), Thread(target=self.run_second)
        monkeypatch.setattr(backward.ADDING, "lock", self.lock)

    def run_second(self) -> None:
        try:
            self.second()
        finally:
            self.is_done.set()

    def meanwhile(self) -> None:
        """Let the second pass run to its end, or to where it waits for the first."""
        if self.other.ident is None:
            self.other.start()
            while not (self.is_done.wait(0.001) or self.lock.waiting.is_set()):
                pass

    def run(self) -> Any:
        """The gradient after both."""
        self.first()
        self.other.join()
        return self.x.grad.list()


@pytest.fixture(params=[("square",), ("square", "twice"), ("twice", "square")], ids=str)
def passes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Passes:
    return Passes(monkeypatch, request.param)


def test_a_second_pass_loses_nothing_while_the_first_adds(
    passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add(a: Any, b: Any, out: Any) -> None:
        before = a.copy()
        passes.meanwhile()
        np.add(before, b, out=out)

    once = passes.x.grad.list()
    monkeypatch.setattr(adjoint_buffers, "np", SimpleNamespace(add=add, ndarray=np.ndarray))
    monkeypatch.setattr(backward, "_added_in_place", lambda *_: [])
    assert passes.run() == pytest.approx([3.0 * value for value in once])


def test_a_second_pass_waits_while_an_adjoint_adds_to_the_gradient_itself(
    passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull, once = LaunchRecord.pull, passes.x.grad.list()

    def pulled(record: Any, adjoints: Any, level: Any) -> None:
        if passes.x.allocation in adjoints.memory:
            passes.meanwhile()
        pull(record, adjoints, level)

    monkeypatch.setattr(LaunchRecord, "pull", pulled)
    assert passes.run() == pytest.approx([3.0 * value for value in once])
    assert passes.lock.waiting.is_set()


def in_another_thread(work: Callable[[], Any]) -> Any:
    """What a function returns that another thread runs."""
    results: list[Any] = []
    other = Thread(target=lambda: results.append(work()))
    other.start()
    other.join()
    return results[0]


@pytest.mark.parametrize("is_assigned", [False, True])
def test_a_transform_warns_of_an_array_that_another_thread_makes_of_its_values(is_assigned: bool) -> None:
    def function(x: Any) -> Any:
        y, w = x * x, kl.zeros(3)
        made = in_another_thread(lambda: w.assign(y.numpy()) if is_assigned else kl.array(np.sin(y.numpy())))
        return ((w if is_assigned else made) * x).sum()

    x = kl.array([0.5, 1.2, 2.0], requires_grad=True)
    with pytest.warns(kl.KernelWarning, match="the values came by the host"):
        kl.func.grad(function)(x)
    with pytest.warns(kl.KernelWarning, match="the values came by the host"):
        kl.func.jvp(function, (x,), (kl.ones(3),))


def test_a_transform_is_silent_where_another_thread_only_looks(recwarn: pytest.WarningsRecorder) -> None:
    def function(x: Any) -> Any:
        y = x * x
        in_another_thread(lambda: float(y.numpy().sum()))
        return (y * x).sum()

    kl.func.grad(function)(kl.array([0.5, 1.2, 2.0], requires_grad=True))
    assert not recwarn.list
