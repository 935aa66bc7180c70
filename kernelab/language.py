"""The words of the language as names of the package: types, operations, constants, names of Warp's."""

from importlib import import_module
from typing import Any

from kernelab import hooks
from kernelab.frontend.definitions.functions import UserFunction as Function
from kernelab.guidance.missing_names import missing
from kernelab.host.making import BARE, CONSTANTS
from kernelab.runtime.host import host_words
from kernelab.warp import names

__all__ = ["Function", "word", "words"]


@hooks.word.provide
def word(name: str) -> Any:
    """A type, an operation or a constant of the language, or a name of Warp's; KernelAttributeError else."""
    __tracebackhide__ = True  # IPython shows the frames of the user
    try:
        return host_words.word(name)
    except KeyError:
        pass
    if name in CONSTANTS:
        return CONSTANTS[name]
    if name in names.__all__:
        return getattr(names, name)
    raise missing("kernelab", name, dir(import_module("kernelab")))


def words() -> set[str]:
    """The names of the language."""
    return {*host_words.names(), *BARE}
