"""Singletons under copy and pickle: kernels and functions for kernels.

Knows nothing of what they are.
"""

from typing import Any, NoReturn, Self

from kernelab.errors import Diagnostic, KernelTypeError


class Single:
    """An object compared by identity, of which a copy is itself, as that of a Python function is."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        message = f"{self!r} cannot be pickled"
        hint = "define it in a module, and let the other process import that; arrays can be pickled"
        raise KernelTypeError(Diagnostic(message, code="pickle", hint=hint))
