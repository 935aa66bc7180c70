"""A program that failed a check, as the text of a test."""

from collections.abc import Callable
from typing import TypeVar

from tests.support.programs import check

T = TypeVar("T")


def checked(text: str, layout: str, seed: int, by: Callable[[str, str, int], T] = check) -> T:
    """Check a program; an error says which test would fail the same way."""
    try:
        return by(text, layout, seed)
    except Exception as error:  # whatever it is, the program is what matters
        error.add_note(reproducer(text, layout, seed, by.__name__))
        raise


def reproducer(text: str, layout: str, seed: int, check: str) -> str:
    """A test to paste."""
    call = f"{check}(PROGRAM, {layout!r}, seed={seed})"
    return f'PROGRAM = """\n{text}"""\n\n\ndef test_it() -> None:\n    {call}\n'
