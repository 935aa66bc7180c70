"""Read-only and missing attributes of arrays and kernels, with errors that name the alternative."""

from functools import lru_cache
from typing import Any

from kernelab.errors import Diagnostic, KernelAttributeError, KernelError, KernelTypeError
from kernelab.guidance.objects import ARRAYS, FIXED, KERNELS
from kernelab.guidance.public_names import Offers
from kernelab.host.single import Single


class FixedAttribute(KernelError, AttributeError):
    """An attribute of an array that cannot be assigned."""


@lru_cache
def _fixed(name: str) -> str:
    return FIXED.hint(name)


class Fixed:
    """The part of an array that refuses to become another one."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        hint = _fixed(name)
        if hint:
            message = f"the {name} of an array cannot be assigned"
            raise FixedAttribute(Diagnostic(message, hint=hint, code="attribute"))
        try:
            object.__setattr__(self, name, value)
        except AttributeError as error:
            # One frame, this one: there is no such name.  Otherwise a setter has run, and knows better.
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            message = f"an array has no {name} that could be assigned"
            raise KernelAttributeError.of(message, None, name, dir(self)) from None


# ------------------------------------------------------------------------------------------- attribute hints


class KernelHints(Offers, Single):
    """The part of a kernel that answers what it has not."""

    OFFERED = ("doc", "effects", "jvp", "loops", "name", "primal", "source", "span", "vjp", "widened")

    def __getattr__(self, name: str) -> Any:
        """Raises KernelAttributeError that says what to write instead."""
        raise KernelAttributeError.of(f"a kernel has no {name}", KERNELS.hint(name) or None, name, dir(self))


class Hints(Offers):
    """The part of an array that answers what it has not."""

    __slots__ = ()
    OFFERED = (
        *("assign", "capacity", "contiguous", "device", "dtype", "fill_", "flatten", "grad", "is_contiguous"),
        *("item", "list", "mark_read", "mark_write", "ndim", "numpy", "pinned", "ptr", "requires_grad"),
        *("reshape", "retain_grad", "shape", "size", "strides", "to", "transpose", "view", "zero_"),
    )

    def __getattr__(self, name: str) -> Any:
        """Raises KernelAttributeError that says what to write instead."""
        kind: Any = type(self)
        raise KernelAttributeError(*_answer(kind, name).diagnostics)

    def __matmul__(self, other: Any) -> Any:
        hint = "write kl.utils.array_inner(x, y), or a kernel with a loop"
        raise KernelTypeError(Diagnostic("arrays have no @", code="operator", hint=hint))

    __rmatmul__ = __matmul__


@lru_cache(maxsize=256)
def _answer(cls: Any, name: str) -> KernelAttributeError:
    # Remembered: libraries ask arrays for many names that they may have.
    return KernelAttributeError.of(f"an array has no {name}", ARRAYS.hint(name) or None, name, cls.OFFERED)
