"""Remembers what a function made, so that all threads get the same object."""

from collections.abc import Callable
from functools import lru_cache
from threading import RLock
from typing import TypeVar

Made = TypeVar("Made")


def made_once(maxsize: int) -> Callable[[Callable[..., Made]], Callable[..., Made]]:
    """`lru_cache`, but threads that ask for the same at the same time get one object, not one each."""

    def decorate(make: Callable[..., Made]) -> Callable[..., Made]:
        lock, first = RLock(), lru_cache(maxsize)(make)

        def made(*given: object) -> Made:
            with lock:
                return first(*given)

        return lru_cache(maxsize)(made)

    return decorate
