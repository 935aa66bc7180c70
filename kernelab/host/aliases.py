"""Class statements that inherit from a type of values: ``class vec5(vector(5, float)): pass``.

Programs for Warp name their types so.  Such a class adds nothing, so its name stands for the type itself.
Knows how Python makes a class; must not know what types there are.
"""

from typing import Any

from kernelab.errors import Diagnostic, KernelTypeError


class Alias(type):
    """The class of bases that stand for a type of values; a class with such a base is that type."""

    named: Any

    def __new__(mcs, name: str, bases: tuple[Any, ...], members: dict[str, Any]) -> Any:
        """The type of the base; raises KernelTypeError for a class that adds to it, or to several."""
        added = [member for member in members if not member.startswith("__")]
        if len(bases) != 1 or added:
            what = f"add {added[0]}" if added else "inherit from several types"
            message = f"the class {name} is another name of {bases[0].named}, and cannot {what}"
            hint = "write pass, and functions with @func; @struct makes a class of several values"
            raise KernelTypeError(Diagnostic(message, code="class", hint=hint))
        return bases[0].named


def base_of(value: Any) -> Any:
    """The class that stands for a type of values among the bases of a class."""
    return type.__new__(Alias, str(value), (), {"named": value})
