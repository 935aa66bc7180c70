"""What a generated program may mention where it stands, and how it draws."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st


@dataclass
class Scope:
    """The names of each type that are assigned here; where it stands; what it may use.

    `counts` are integers that may be read but not assigned.  `rows` spell the thread's own row up to the
    bracket, `shared` says whether `s`, `hits` and `d` are there, `rich` whether there are variables other
    than scalars.  `leave` are the lines that end the function, with a hole for a float.
    """

    floats: tuple[str, ...]
    ints: tuple[str, ...]
    counts: tuple[str, ...] = ()
    bools: tuple[str, ...] = ()
    rows: tuple[str, ...] = ("a[i, {}]",)
    rich: bool = False
    shared: bool = False
    functions: tuple[str, ...] = ()
    leave: tuple[str, ...] = ()
    depth: int = 0
    in_loop: bool = False
    names: list[str] = field(default_factory=list)

    def inner(self, **changes: Any) -> "Scope":
        """The scope of a block inside."""
        return replace(self, depth=self.depth + 1, **changes)

    def fresh(self, letter: str) -> str:
        """A name that nothing else of the program has."""
        self.names.append(letter)
        return f"{letter}{len(self.names)}"

    @property
    def whole_numbers(self) -> tuple[str, ...]:
        return (*self.counts, *self.ints)


class Drawing:
    """A source of choices; what it draws shrinks towards the first of the options."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def one(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def chance(self) -> bool:
        return self.draw(st.booleans())


def indented(lines: Iterable[str]) -> list[str]:
    return ["    " + line for line in lines]
