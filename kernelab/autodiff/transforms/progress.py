"""Progress reports of long computations; must not know who displays them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from kernelab import hooks

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Progress:
    """The state of a long computation; `watcher` creates the display that is updated after each step."""

    what: str
    total: int
    done: int = 0

    watcher: ClassVar[Callable[["Progress"], Callable[[], Any]]] = hooks.watch


def steps(what: str, items: Sequence[T]) -> Iterator[T]:
    """The items, one after another, each a step of some work that a message can name.

    A range counts as much as it is long: a stretch of rows as so many rows.
    """
    watcher = Progress.watcher
    if len(items) < 2:
        yield from items
        return
    progress = Progress(what, sum(map(_amount, items)))
    tell = watcher(progress)
    try:
        for item in items:
            yield item
            progress.done += _amount(item)
            tell()
    finally:
        if progress.done < progress.total:  # an error, or nobody asked for the rest
            progress.total = progress.done
            tell()


def _amount(item: object) -> int:
    return len(item) if isinstance(item, range) else 1
