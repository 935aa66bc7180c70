"""What comparisons with differences have told of Python functions with derivatives of their own.

Functions with the same code count as one, unless they have captured other numbers.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from kernelab.data_classes import dataclass, field
from kernelab.runtime.kernel.loading import closure

Function = Callable[..., Any]


MOST_TRIES = 3
"""How often a derivative is compared as long as nothing could be told, or as its function is made anew."""

MOST_KEPT = 1 << 12
"""Of how many functions it is remembered what is known of them."""

MOST_VARIANTS = 16
"""How many functions with the same code are compared by themselves, as they captured other numbers."""


Captured = tuple[object, ...]
"""The numbers and texts that functions hold in their closures and defaults, and the classes of methods."""


@dataclass(slots=True, eq=False)
class Known:
    """What is known of functions with the same `code`, and of their derivatives.

    `tried` counts, by what they captured, how often each argument was compared, `settled` how often it was
    looked at whether the derivative `uses_state`: whether it needs what the last run of the function has left
    outside, as in an attribute.  It `is_nondeterministic` if that differs from run to run.  `latest` tells
    which call ran last.  The function `is_stateful` if its results depend on what its runs leave in arrays;
    None if unknown.
    """

    code: tuple[Any, Any]
    tried: dict[Captured, Counter[int]] = field(default_factory=dict)
    settled: int = 0
    uses_state: bool = False
    is_stateful: bool | None = None
    is_nondeterministic: bool = False
    latest: tuple[int, ...] = ()


_KNOWN: dict[tuple[int, int], Known] = {}
"""By the identities of the code of a function and its derivative, which it keeps."""


@dataclass(slots=True, eq=False)
class Compared:
    """For which arrays comparisons of a derivative with differences are over, and what else is known.

    `tried` counts those of functions with the same code that captured the same numbers.
    """

    known: Known
    tried: Counter[int]
    places: set[int] = field(default_factory=set)
    is_settled: bool = False

    @staticmethod
    def of(func: Function, back: Function) -> "Compared":
        """For a new pair, of which others with the same code may be known."""
        code = code_of(func), code_of(back)
        if len(_KNOWN) == MOST_KEPT:
            _KNOWN.clear()
        known = _KNOWN.setdefault((id(code[0]), id(code[1])), Known(code))
        captured = (*_captured(func), *_captured(back)) if len(known.tried) < MOST_VARIANTS else ()
        return Compared(known, known.tried.setdefault(captured, Counter()))


def _captured(function: Any) -> Iterator[object]:
    """The numbers and texts that a function holds besides its code, and the class of a method's object."""
    while isinstance(function, partial):
        yield from _plain((*function.args, *function.keywords.values()))
        function = function.func
    if (owner := getattr(function, "__self__", None)) is not None:
        yield id(type(owner))
    yield from _plain([*closure(function).values(), *(getattr(function, "__defaults__", None) or ())])


def _plain(values: Iterable[Any]) -> Iterator[object]:
    kinds = bool | int | float | str | np.generic
    yield from ((type(value), repr(value)) for value in values if isinstance(value, kinds))


def code_of(function: Any) -> Any:
    """The code of a function, the same for all that one definition makes; itself if it has none."""
    function = inspect.unwrap(function)
    while isinstance(function, partial):
        function = inspect.unwrap(function.func)
    return getattr(function, "__code__", function)
