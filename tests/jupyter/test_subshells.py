"""A cell that computes in Python waits while another thread answers, not too long, and can be interrupted."""

import signal
import threading
import time
from collections.abc import Callable

import pytest

from kernelab.jupyter import subshells
from kernelab.jupyter.subshells import Pause


class Cell:
    """The main thread, which counts while another one answers within a pause."""

    def __init__(self) -> None:
        self.pause, self.count, self.interrupted = Pause(), 0, threading.Event()

    def run(self, answer: Callable[[], None]) -> None:
        """Count until the answer is given; it begins when the cell has come to the pause."""

        def answering() -> None:
            with self.pause.cells():
                while self.pause.is_due:
                    time.sleep(0)
                answer()

        thread = threading.Thread(target=answering)
        try:
            thread.start()
            while thread.is_alive():
                self.count += 1
        except KeyboardInterrupt:
            assert self.interrupted.is_set()
        thread.join()

    def interrupt(self, *_: object) -> None:
        """What a signal does: it interrupts the cell once, however often it comes."""
        if not self.interrupted.is_set():
            self.interrupted.set()
            raise KeyboardInterrupt


def test_a_cell_stands_still_while_an_answer_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subshells, "LONGEST", 600)
    cell, counts = Cell(), set()

    def answer() -> None:
        for _ in range(1000):
            counts.add(cell.count)
            time.sleep(0)  # whoever waits for the interpreter may go on

    cell.run(answer)
    assert len(counts) == 1


def test_a_cell_goes_on_beside_an_answer_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subshells, "LONGEST", 0)
    cell = Cell()

    def answer() -> None:
        before = cell.count
        while cell.count == before:
            time.sleep(0)

    cell.run(answer)


def test_a_cell_that_waits_for_an_answer_is_interrupted_like_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subshells, "LONGEST", 600)
    cell, main = Cell(), threading.get_ident()
    usual = signal.signal(signal.SIGINT, cell.interrupt)

    def answer() -> None:
        # A signal that comes just before the cell waits does not end the wait: the next one does.
        while not cell.interrupted.wait(0.01):
            signal.pthread_kill(main, signal.SIGINT)

    try:
        cell.run(answer)
    finally:
        signal.signal(signal.SIGINT, usual)
    assert cell.interrupted.is_set()


def test_threads_that_answer_at_the_same_time_do_not_wait_for_each_other() -> None:
    cell, waits = Cell(), []

    def answer() -> None:
        with cell.pause.cells():
            pass
        waits.append(cell.pause.answering.locked())

    cell.run(answer)
    waits.append(cell.pause.answering.locked())
    assert waits == [True, False]
