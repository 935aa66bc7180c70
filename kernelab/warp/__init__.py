"""Compatibility with programs written for Warp: names, settings, attributes of types.

    import kernelab.warp as wp

has all names of kernelab, too; and ``import kernelab as wp`` finds the names that are here, since kernelab
asks here for what it lacks.  Completion offers none of them.
"""

from importlib import import_module
from typing import Any

from kernelab.warp import names


def __getattr__(name: str) -> Any:
    """A name of Warp's, or of kernelab."""
    if name in names.__all__:
        return getattr(names, name)
    return getattr(import_module("kernelab"), name)


def __dir__() -> list[str]:
    """The names that a completer offers: those of kernelab."""
    return dir(import_module("kernelab"))
