"""Work of many steps, told to whoever shows it; must not know who that is."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Progress:
    """How many of some steps are done; `watcher` makes what is told after each, and at the end."""

    what: str
    total: int
    done: int = 0

    watcher: ClassVar[Callable[["Progress"], Callable[[], Any]] | None] = None


def steps(what: str, items: Sequence[T]) -> Iterator[T]:
    """The items, one after another, each a step of some work that a message can name."""
    watcher = Progress.watcher
    if watcher is None or len(items) < 2:
        yield from items
        return
    progress = Progress(what, len(items))
    tell = watcher(progress)
    try:
        for item in items:
            yield item
            progress.done += 1
            tell()
    finally:
        if progress.done < progress.total:  # an error, or nobody asked for the rest
            progress.total = progress.done
            tell()
