"""The words of the language as the host sees them: some compute there too, the rest say where they belong."""

from typing import Any

from kernelab.builtins.table import Builtin
from kernelab.errors import Diagnostic, KernelTypeError
from kernelab.lang import ops
from kernelab.lang.types import named_types

ATOMICS = tuple(f"atomic_{kind}" for kind in ("add", "sub", "min", "max", "and", "or", "xor", "exch", "cas"))
ONLY_IN_KERNELS = ("tid", *ATOMICS, "printf")
_OWN = frozenset({"shape", "chain", "extract", "insert", "row", "and", "or", "not"})


class Word:
    """A word that means something only inside a kernel."""

    def __init__(self, name: str) -> None:
        self.name = self.__name__ = self.__kernelab_name__ = name

    def __repr__(self) -> str:
        return f"<kernelab word {self.name}>"

    def __call__(self, *_: Any) -> Any:
        message = f"{self.name}() means something only inside a kernel"
        hint = "write it in a def of a %%kernel cell, or of a function decorated with @kl.kernel"
        raise KernelTypeError(Diagnostic(message, code="host", hint=hint))


def constant(value: Any) -> Any:
    """The value itself: kernels capture numbers of the notebook as constants anyway."""
    return value


constant.__kernelab_name__ = "constant"  # type: ignore[attr-defined]


def static(value: Any) -> Any:
    """The value itself: inside a kernel, an expression that is evaluated when the kernel is compiled."""
    return value


static.__kernelab_name__ = "static"  # type: ignore[attr-defined]


def names() -> tuple[str, ...]:
    """Every type and every operation of the language that the host can name."""
    return (*named_types(), *(name for name in ops.names() if name not in _OWN | set(named_types())))


def word(name: str) -> Any:
    """The type or operation of that name; KeyError if there is none."""
    types = named_types()
    if name in types:
        return types[name]
    if name in names():
        return Builtin(name)
    raise KeyError(name)
