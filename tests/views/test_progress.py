"""Work of many steps shows a bar after a second, in words too, and says at the end how long it took."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.autodiff.transforms import rows_and_columns
from kernelab.hooks import Progress, steps
from kernelab.views.pages import markup, page
from kernelab.views.pages.display import Bar, finished, running
from kernelab.views.pages.markup import Node


class Seconds:
    """A clock that goes on by so many seconds whenever it is read."""

    def __init__(self, each: float) -> None:
        self.now, self.each = 0.0, each

    def __call__(self) -> float:
        self.now += self.each
        return self.now


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], list[str]]:
    def watched(seconds: float) -> list[str]:
        shown: list[str] = []

        def write(node: Node, is_last: bool) -> None:
            shown.append(markup.render(node).splitlines()[-1])

        monkeypatch.setattr(Progress, "watcher", lambda progress: Bar(progress, write, Seconds(seconds)))
        return shown

    return watched


def test_a_bar_appears_after_a_second_and_says_at_the_end_how_long_it_took(told: Any) -> None:
    shown = told(0.4)
    assert list(steps("rows", [1, 2, 3, 4])) == [1, 2, 3, 4]
    assert shown == ["rows " + "█" * 18 + "░" * 6 + " 3 of 4, 0 s left, 2.5/s", "rows: 4 in 1.6 s"]


def test_what_is_done_within_a_second_shows_nothing(told: Any) -> None:
    shown = told(0.01)
    list(steps("rows", range(50)))
    assert shown == []


def test_a_bar_changes_ten_times_a_second_at_most(told: Any) -> None:
    shown = told(0.02)
    list(steps("rows", range(200)))
    assert 25 <= len(shown) <= 31  # of 200 steps in four seconds


def test_work_that_ends_early_says_how_far_it_came(told: Any) -> None:
    shown = told(0.6)
    with pytest.raises(ZeroDivisionError):
        list(map(lambda k: 1 / (3 - k), steps("rows", range(10))))  # noqa: C417
    assert shown[-1] == "rows: 3 in 2.4 s"


def test_a_notebook_gets_a_bar_of_its_own() -> None:
    progress = Progress("rows", 4, 1)
    assert '<progress max="4" value="1"></progress>' in page.render(running(progress, 2.0))
    assert "rows: 1 of 4, 6 s left" in page.render(running(progress, 2.0))
    assert "1 of 4, 10 min left" in markup.render(running(progress, 200.0))
    assert markup.render(finished(progress, 1.25)) == "rows: 1 of 4 in 1.2 s"


def test_a_stretch_of_rows_counts_as_so_many(told: Any) -> None:
    shown = told(1.0)
    list(steps("rows", [range(2000), range(2000, 4000), range(4000, 4096)]))
    assert shown[0].endswith("2,000 of 4,096, 1 s left, 2e+03/s")
    assert shown[-1] == "rows: 4,096 in 3.0 s"


def test_jacobians_in_chunks_tell_their_steps(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = told(1.0)
    monkeypatch.setattr(rows_and_columns, "CHUNK_BYTES", 1)
    add = kl.compile(
        "def add(x: array[float], s: array[float]):\n    i = tid()\n    atomic_add(s, i // 2, x[i])\n"
    )
    x = kl.array(np.ones(6), dtype=float, requires_grad=True)
    kl.autograd.jacobian(add["add"], 6, [x], [kl.zeros(3)])
    assert shown[0].startswith("adjoints of add ")
    kl.autograd.jacobian_fd(add["add"], 6, [x], [kl.zeros(3)])
    assert shown[-1].startswith("differences of add: 6 in")
