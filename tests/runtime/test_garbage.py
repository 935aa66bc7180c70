"""Python's search for garbage while kernels are compiled."""

import gc

import pytest

import kernelab as kl
from kernelab.backend.common.tiered import AHEAD, BETTER
from kernelab.runtime.context.garbage import as_the_user_has_it, put_off
from kernelab.runtime.memory.address_ranges import Watches
from kernelab.runtime.memory.memory import Allocation

TEXT = """
def scale(x: array[float], y: array[float]):
    i = tid()
    y[i] = 2.0 * x[i]
"""


def builds_end() -> None:
    """Wait for the builds in the background: they put it off, too."""
    for worker in (AHEAD, BETTER):
        worker.wait()


@pytest.fixture(autouse=True)
def earlier_builds_have_ended() -> None:
    builds_end()


def test_python_looks_for_garbage_again_once_a_kernel_is_compiled() -> None:
    kernel = kl.compile(TEXT)["scale"]
    assert isinstance(kernel, kl.Kernel)
    kernel.vjp(["x", "y"])
    builds_end()
    assert gc.isenabled()


def test_it_does_so_after_a_mistake() -> None:
    with pytest.raises(kl.KernelError):
        kl.compile(TEXT.replace("2.0", "nonsense"))
    builds_end()
    assert gc.isenabled()


def test_it_stays_off_for_those_who_switched_it_off() -> None:
    gc.disable()
    try:
        kl.compile(TEXT)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_nothing_is_collected_within() -> None:
    collected: list[object] = []

    def note(phase: str, info: dict[str, int]) -> None:
        collected.append(info)

    gc.callbacks.append(note)
    try:
        with put_off(), put_off():
            kept = [(k,) for k in range(100_000)]
            assert kept and not collected
    finally:
        gc.callbacks.remove(note)


def test_threads_may_leave_in_any_order() -> None:
    compiling, others = put_off(), put_off()
    compiling.__enter__()
    with others, as_the_user_has_it():
        assert gc.isenabled()
        compiling.__exit__(None, None, None)
    assert gc.isenabled()
    others = put_off()
    with put_off():
        others.__enter__()
    assert not gc.isenabled()
    others.__exit__(None, None, None)
    assert gc.isenabled()


def test_adjoints_are_freed_without_the_collector() -> None:
    """A reference cycle would keep the buffers of every sweep, so that each takes new pages."""
    kernel = kl.compile(TEXT)["scale"]
    x, y = kl.ones(1000, requires_grad=True), kl.zeros(1000, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernel, 1000, [x, y])
    counts = []
    gc.disable()
    try:
        for _ in range(4):
            tape.backward(grads={y: kl.ones(1000)})
            counts.append(sum(issubclass(type(each), Allocation) for each in gc.get_objects()))
    finally:
        gc.enable()
    assert counts[1] == counts[-1]


def test_a_watcher_that_goes_while_another_one_is_added_disturbs_nothing() -> None:
    class Circle:
        def __init__(self) -> None:
            self.itself = self

    before = gc.get_threshold()
    gc.freeze()  # what earlier tests have left need not be looked through each time
    try:
        # Python looks for garbage once at each of the objects that adding makes.
        for threshold in range(1, 60):
            gc.disable()
            gc.collect()
            watches, living = Watches(), [Circle() for _ in range(3)]
            for watcher, start in zip(living, (5, 30), strict=False):
                watches.add(watcher, start, start + 1)
            watches.add(Circle(), 6, 7)
            gc.set_threshold(threshold)
            gc.enable()
            watches.add(living[2], 7, 8)
            gc.disable()
            gc.collect()
            assert watches.starts == [5, 7, 30]
            assert watches.of(7, 8) == [living[2]]
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
        gc.enable()
