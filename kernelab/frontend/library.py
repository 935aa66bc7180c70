"""The functions of the language that are written in it: `builtins.library`, lowered when needed."""

from functools import cache

from kernelab.builtins.library import BY_COUNT, TEXT, WORDS
from kernelab.errors import Source
from kernelab.frontend.values import Callee


@cache
def _functions() -> dict[str, Callee]:
    from kernelab.frontend.cell import lower_source  # the cell lowers calls, which ask for these functions
    from kernelab.frontend.functions import UserFunction

    lowered = lower_source(Source(TEXT, "kernelab's library"), {})
    lowered.raise_errors()
    found = lowered.definitions.items()
    return {name: function for name, function in found if isinstance(function, UserFunction)}


def function(name: str, count: int) -> Callee | None:
    """The function that a call of a word with so many arguments means, None if there is none."""
    word = BY_COUNT.get((name, count), name if name in WORDS else None)
    return None if word is None else _functions()[word]
