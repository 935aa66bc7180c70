"""What one thread does at a time: other objects do not wait for it, and forked processes begin anew."""

import fcntl
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

import kernelab as kl
from kernelab.backend.common.build_cache import _alone
from kernelab.data_classes.turns import Turn, cached_property
from kernelab.runtime.memory.address_ranges import Watches

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


class Slow:
    """An object whose property is computed while somebody else does something."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.computed = 0

    @cached_property
    def value(self) -> int:
        self.computed += 1
        self.begun.set()
        assert self.go_on.wait(60)
        return os.getpid()

    @cached_property
    def failing(self) -> int:
        self.computed += 1
        raise ValueError("not yet" if self.computed == 1 else "again")


def exit_status_of_child(run: object) -> int:
    assert callable(run)
    child = os.fork()
    if child == 0:
        try:
            run()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_threads_that_ask_for_the_same_have_it_computed_once() -> None:
    slow = Slow()
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(lambda: slow.value) for _ in range(3)]
        assert slow.begun.wait(60)
        slow.go_on.set()
        assert {one.result() for one in asked} == {os.getpid()}
    assert slow.computed == 1


def test_other_objects_do_not_wait() -> None:
    first, second = Slow(), Slow()
    second.go_on.set()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: first.value)
        assert first.begun.wait(60)
        assert second.value == os.getpid()
        first.go_on.set()
        assert asked.result() == os.getpid()


def test_what_fails_is_computed_again() -> None:
    slow = Slow()
    for said in ("not yet", "again"):
        with pytest.raises(ValueError, match=said):
            slow.failing  # noqa: B018


@forks
def test_a_forked_process_computes_itself_what_a_thread_of_its_parent_computes() -> None:
    slow = Slow()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: slow.value)
        assert slow.begun.wait(60)

        def ask() -> None:
            slow.go_on.set()
            assert slow.value == os.getpid()

        assert exit_status_of_child(ask) == 0
        slow.go_on.set()
        assert asked.result() == os.getpid()


@forks
def test_a_forked_process_finds_nobody_at_work() -> None:
    turn, held, over = Turn(), threading.Event(), threading.Event()

    def hold() -> None:
        with turn.lock:
            held.set()
            assert over.wait(60)

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        assert held.wait(60)
        assert exit_status_of_child(lambda: turn.lock.acquire()) == 0
        over.set()
        holding.result()


@forks
def test_a_process_that_was_forked_during_a_build_does_not_keep_its_lock(tmp_path: Path) -> None:
    lock, (reader, writer) = tmp_path / "lock", os.pipe()
    with _alone(lock):
        same = lock.open("w")  # the name is gone once the build is over
        child = os.fork()
        if child == 0:
            os.read(reader, 1)  # until the parent has built
            os._exit(0)
    with same:
        fcntl.flock(same, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.write(writer, b"x")
    os.waitpid(child, 0)


class Someone:
    """A watcher, or a witness."""


@contextmanager
def hasty_threads() -> Iterator[None]:
    """Threads that give way as often as Python lets them."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


def in_threads(work: Callable[[int], None], count: int = 4) -> None:
    with hasty_threads(), ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))


def test_threads_begin_and_cease_to_watch_one_memory() -> None:
    watches, before = Watches(), [Someone() for _ in range(50)]
    for k, one in enumerate(before):
        watches.add(cast(Any, one), 10 * k, 10 * k + 5)

    def work(seed: int) -> None:
        for k in range(10_000):
            one, start = cast(Any, Someone()), (k * 37 + seed * 101) % 500
            watches.add(one, start, start + 3)
            assert one in watches.of(start, start + 3)
            if k % 2:
                watches.remove(one, start)

    in_threads(work)
    assert all(one in watches.of(10 * k, 10 * k + 1) for k, one in enumerate(before))
    assert len(watches) == len(before)


def test_threads_begin_to_witness_one_memory() -> None:
    """As tapes in several threads that read the same weights."""
    for _ in range(200):
        memory, everyone = kl.zeros(3).allocation, [[Someone() for _ in range(10)] for _ in range(4)]

        def work(thread: int, memory: Any = memory, everyone: Any = everyone) -> None:
            for one in everyone[thread]:
                memory.witness((weakref.ref(one),))

        in_threads(work)
        assert {ref() for ref in memory.witnesses} == {one for some in everyone for one in some}
