"""Locks that nobody holds in a forked process, and properties that one thread computes while others wait.

A fork copies locks as they are, but of the threads that hold them only its own.  `functools.cached_property`
has one lock for all objects of a class up to Python 3.11, and none since: two threads compute the same.
"""

import os
from collections.abc import Callable
from threading import RLock
from typing import TYPE_CHECKING, Any


def after_fork(renew: Callable[[], None]) -> None:
    """Call this in each process that is forked from now on."""
    if hasattr(os, "register_at_fork"):  # Windows has no fork
        os.register_at_fork(after_in_child=renew)


class Turn:
    """What one thread does at a time: `with turn.lock:`."""

    def __init__(self) -> None:
        self.renew()
        after_fork(self.renew)

    def renew(self) -> None:
        """Begin with a lock that nobody holds."""
        self.lock = RLock()


_COMPUTED: dict[tuple[int, str], Any] = {}
"""The locks of the properties that are being computed, by object and name."""

after_fork(_COMPUTED.clear)

if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property:  # noqa: N801 (it stands for that of functools)
        """A property that is computed when it is first asked for, once, and then an attribute."""

        def __init__(self, compute):
            self.compute, self.__doc__ = compute, compute.__doc__

        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            known, key = instance.__dict__, (id(instance), self.name)
            with _COMPUTED.setdefault(key, RLock()):
                try:
                    if self.name not in known:
                        known[self.name] = self.compute(instance)
                    return known[self.name]
                finally:
                    _COMPUTED.pop(key, None)
