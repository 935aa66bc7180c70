"""A progress bar around a loop of the user's, with the names of tqdm."""

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from kernelab.errors import Diagnostic, KernelTypeError
from kernelab.guidance.bad_calls import telling
from kernelab.hooks import Progress
from kernelab.runtime.context.conversion import described
from kernelab.views.pages.display import bar
from kernelab.views.pages.picture import number

T = TypeVar("T")


class progress(Generic[T]):  # noqa: N801 (called as tqdm is)
    """Go through `iterable` with a progress bar: ``for k in kl.progress(range(200)):``.

    As in tqdm, `desc` stands before the bar, `total` counts the items where `iterable` has no length, and
    with `disable` nothing is shown.  Without an iterable, call `update` after each step, and `close` at the
    end, or use it in a ``with`` statement.  ``set_postfix(loss=loss)`` adds numbers behind the bar.  Raises
    KernelTypeError for what has no items.
    """

    @telling()
    def __init__(
        self,
        iterable: Iterable[T] | None = None,
        desc: str = "steps",
        total: int | None = None,
        *,
        disable: bool = False,
    ) -> None:
        items: Any = iterable
        if not (items is None or isinstance(items, Iterable)):
            message = f"progress goes through items, and {described(items)} has none"
            raise KernelTypeError(Diagnostic(message, code="progress", hint="write kl.progress(range(200))"))
        self._items = iterable
        if total is None and hasattr(iterable, "__len__"):
            total = len(iterable)  # type: ignore[arg-type]
        self._progress = Progress(desc, total or 0)
        self._tell = (lambda *_: None) if disable else bar(self._progress, 0.0)
        self._is_open = True
        self._tell()

    def __iter__(self) -> Iterator[T]:
        """The items, one after another, each a step."""
        try:
            for item in self._items or ():
                yield item
                self.update()
        finally:
            self.close()

    def __len__(self) -> int:
        return self._progress.total

    def update(self, n: int = 1) -> None:
        """Say that so many steps more are done."""
        self._progress.done += n
        self._tell()

    def set_description(self, desc: str) -> None:
        """Change the words before the bar."""
        self._progress.what = desc

    def set_postfix(self, **values: Any) -> None:
        """Show values behind the bar: ``loss=0.0123``; of an array, its one element."""
        texts = ((name, value.item() if hasattr(value, "item") else value) for name, value in values.items())
        self._progress.note = ", ".join(f"{name}={number(value)}" for name, value in texts)

    def close(self) -> None:
        """End the bar: it says how many steps there were, and how long they took."""
        if self._is_open:
            self._is_open = False
            self._tell(True)

    def __enter__(self) -> "progress[T]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
