"""Functions for kernels that are written in the language itself, lowered when they are first called.

Calls ask for them, and lowering them lowers calls.  So `cell`, which knows both, hands `lower` down.
"""

from collections.abc import Callable, Mapping
from functools import cache

from kernelab.builtins.records.library import BY_COUNT, TEXT, WORDS
from kernelab.errors import Source
from kernelab.frontend.meaning.meanings import Callee

Lower = Callable[[Source], Mapping[str, Callee]]
_lower: Lower | None = None


def lower_with(lower: Lower) -> None:
    """Use `lower` to get the functions of a text."""
    global _lower
    _lower = lower


def functions(text: str, title: str) -> Mapping[str, Callee]:
    """The functions that a text defines, by name."""
    assert _lower is not None, "kernelab.frontend.definitions.cell has not been imported"
    return _lower(Source(text, title))


def function(name: str, count: int) -> Callee | None:
    """The function of `builtins.records.library` that a call with so many arguments means, None if there is
    none.
    """
    word = BY_COUNT.get((name, count), name if name in WORDS else None)
    return None if word is None else _library()[word]


@cache
def operation(name: str, count: int) -> Callee:
    """An operation of the language as a function that users could have written."""
    names = ", ".join("abcdefgh"[:count])
    text = f"@func\ndef {name}_({names}):\n    return {name}({names})\n"
    return functions(text, f"the operation {name}")[f"{name}_"]


@cache
def _library() -> Mapping[str, Callee]:
    return functions(TEXT, "kernelab's library")
