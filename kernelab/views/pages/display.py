"""Gives objects of other layers their rich display in notebooks.

Knows IPython's protocols by name only: `_repr_mimebundle_` and `_render_traceback_`.
"""

import sys
from collections.abc import Callable
from typing import Any

from kernelab.errors import running_shell
from kernelab.views.pages import markup, page
from kernelab.views.pages.markup import Node

Bundle = dict[str, str]

Picture = Callable[[Any], str]
"""An object as the text of an SVG file."""


class View:
    """A view that a notebook shows and a terminal prints."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def __str__(self) -> str:
        return markup.render(self.node)

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Bundle:
        return bundle(self, lambda view: view.node)


def bundle(shown: Any, view: Callable[[Any], Node], svg: Picture | None = None) -> Bundle:
    """The view of an object as text and HTML, and as a picture where there is one.

    Where the view fails, the object as text and the reason.
    """
    try:
        node = view(shown)
        pictures = {} if svg is None else {"image/svg+xml": svg(shown)}
        return {"text/plain": markup.render(node), "text/html": page.render(node), **pictures}
    except Exception as error:  # noqa: BLE001  a view must never stand between a user and a result
        name = object.__repr__(shown) if isinstance(shown, View) else repr(shown)
        return {"text/plain": f"{name}\n(it cannot be shown: {type(error).__name__}: {error})"}


def running_notebook() -> Any:
    """IPython's module of displays where a shell is running, else None."""
    return None if running_shell() is None else sys.modules.get("IPython.display")


def show(shown: Any, view: Callable[[Any], Node]) -> None:
    """Show a view now: in the notebook that is running, else on standard output."""
    if notebook := running_notebook():
        notebook.display(bundle(shown, view), raw=True)
    else:
        sys.stdout.write(bundle(shown, view)["text/plain"] + "\n")


def attach(cls: type, view: Callable[[Any], Node]) -> None:
    """Make instances of a class show a view."""
    made: Any = cls
    made._repr_mimebundle_ = lambda self, include=None, exclude=None: bundle(self, view)


def attach_once(cls: type, view: Callable[[Any], Node]) -> None:
    """The same for reports that a cell may have shown when they were made: it does not show them again."""
    attach(cls, view)

    def unless_shown(self: Any) -> None:
        if self.shown_in is None or self.shown_in != cell():
            show(self, view)

    cls._ipython_display_ = unless_shown  # type: ignore[attr-defined]


def cell() -> int | None:
    """The number of the cell that runs, None outside of notebooks."""
    shell = running_shell()
    return None if shell is None else int(shell.execution_count)


def show_now(shown: Any) -> None:
    """Show an object as the value of a cell is shown."""
    if notebook := running_notebook():
        notebook.display(shown)
        return
    forms: dict[str, Any] = getattr(shown, "_repr_mimebundle_", dict)()
    sys.stdout.write(forms.get("text/plain", repr(shown)) + "\n")
