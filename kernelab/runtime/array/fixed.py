"""What an array is cannot be assigned: its shape, its dtype, where it stands; it is said what to do instead.

Reading costs nothing: only assignment asks here.
"""

from typing import Any

from kernelab.errors import Diagnostic, KernelAttributeError, KernelError
from kernelab.guidance.objects import FIXED


class FixedAttribute(KernelError, AttributeError):
    """An attribute of an array that cannot be assigned."""


class Fixed:
    """The part of an array that refuses to become another one."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        hint = FIXED.hint(name)
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
