"""Singletons under copy and pickle: the base class of kernels and of functions for kernels.

Knows nothing of what they are.
"""

from typing import Any, Self

from kernelab.errors import KernelTypeError


class Single:
    """An object compared by identity, of which a copy is itself, as that of a Python function is."""

    __slots__ = ()

    origin: Any = None
    """What it was made of, which says how it is pickled."""
    token: str | None = None
    """Its name in pickles."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self.origin is None:
            message = f"{self!r} cannot be pickled: it is a part of another object"
            raise KernelTypeError.of(message, "pickle", "pickle what it was taken from")
        reduced: tuple[Any, ...] = self.origin.reduced(self)
        return reduced
