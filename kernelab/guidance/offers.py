"""Completion lists of objects and public modules, and the error for a name that a module lacks."""

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, NoReturn

from kernelab.errors import KernelAttributeError
from kernelab.guidance.public_names import PUBLIC_NAMES


def missing(module: str, name: str, known: Iterable[str]) -> KernelAttributeError:
    """The error for a name that a public module has not: why and what to write instead, or one like it."""
    found = PUBLIC_NAMES.find(name)
    if found is None:
        return KernelAttributeError.of(f"{module} has no {name}", None, name, known)
    return KernelAttributeError.of(f"{module} has no {name}: {found.reason}", found.hint, name)


def face(module: str, names: Sequence[str]) -> tuple[Callable[[str], NoReturn], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a public module, for what it has not and for what it has."""

    def answer(name: str) -> NoReturn:
        raise missing(module, name, names)

    return answer, lambda: [*names]


class Offers:
    """An object of which completion shows the names that serve a user, and not the machinery."""

    __slots__ = ()
    OFFERED: ClassVar[tuple[str, ...]] = ()

    def __dir__(self) -> list[str]:
        """The names that a completer offers."""
        return sorted({*(name for name in super().__dir__() if name.startswith("__")), *self.OFFERED})
