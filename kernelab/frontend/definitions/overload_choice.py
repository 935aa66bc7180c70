"""Overloads: several functions of one name in a cell, of which a call takes the one that fits its arguments.

A function fits exactly if every argument has the type that is asked for, and loosely if a literal has to be
converted.  The first that fits exactly is taken, else the first that fits loosely.
"""

from collections.abc import Sequence

from kernelab.errors import Diagnostic
from kernelab.frontend.definitions.definitions import Template
from kernelab.frontend.definitions.functions import UserFunction
from kernelab.frontend.meaning import array_views
from kernelab.frontend.meaning.meanings import ArrayRef, Meaning, Parameter, Typed, View, Weak, is_struct
from kernelab.frontend.places import struct_values
from kernelab.lang.types import Scalar, bool_, float32, int32

Shape = Sequence[tuple[str | None, Meaning]]


class Overloads(UserFunction):
    """Functions that share a name; what is said of the name alone is said of the first."""

    def __init__(self, templates: Sequence[Template], members: Sequence[UserFunction] = ()) -> None:
        super().__init__(templates[0])
        self._members = tuple(members) or tuple(UserFunction(template) for template in templates)

    @classmethod
    def of(cls, members: Sequence[UserFunction]) -> "Overloads":
        """Functions that have been made already, under one name."""
        return cls([member.template for member in members], members)

    @property
    def members(self) -> tuple[UserFunction, ...]:
        """The functions of this name."""
        return self._members

    def __repr__(self) -> str:
        return f"<{len(self.members)} kernelab functions {self.name}>"

    def check(self) -> tuple[Diagnostic, ...]:
        """The mistakes of all of them."""
        return tuple(found for member in self.members for found in member.check())

    @property
    def is_usable(self) -> bool:
        """Whether any of them is."""
        return any(member.is_usable for member in self.members)

    def chosen(self, arguments: Shape) -> UserFunction | None:
        """The function that a call with these arguments means, None if there is none."""
        levels = [(_fit(member.signature(), arguments), member) for member in self.members]
        best = max((level for level, _ in levels), default=0)
        return next(member for level, member in levels if level == best) if best else None


def _fit(parameters: Sequence[Parameter], arguments: Shape) -> int:
    """2 for an exact fit, 1 for one that converts literals, 0 for none."""
    plain = [value for keyword, value in arguments if keyword is None]
    found = dict(zip((p.name for p in parameters), plain, strict=False))
    named = {keyword: value for keyword, value in arguments if keyword is not None}
    names = {p.name for p in parameters}
    if len(plain) > len(parameters) or found.keys() & named.keys() or not named.keys() <= names:
        return 0
    found |= named
    if any(p.name not in found and p.default is None for p in parameters):
        return 0
    return min((_match(p, found[p.name]) for p in parameters if p.name in found), default=2)


def _match(parameter: Parameter, value: Meaning) -> int:
    wanted = parameter.type
    if wanted is None:
        return 1
    if is_struct(value):
        return 2 if struct_values.type_of(value) == wanted else 0
    match value:
        case Typed() if not value.is_weak:
            return 2 if value.type == wanted else 0
        case Weak(bool()):
            return 2 if wanted == bool_ else 0
        case Weak(int()):
            return 2 if wanted == int32 else int(isinstance(wanted, Scalar) and wanted != bool_)
        case Typed() if isinstance(value.type, Scalar) and value.type.is_int:
            return 2 if wanted == value.type else int(isinstance(wanted, Scalar) and wanted != bool_)
        case Weak() | Typed():
            return 2 if wanted == float32 else int(isinstance(wanted, Scalar) and wanted.is_float)
        case ArrayRef() | View():
            return 2 if array_views.type_of(value) == wanted else 0
        case _:
            return 0
