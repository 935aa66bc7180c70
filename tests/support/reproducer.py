"""A program that failed a check, as the text of a test."""

from tests.support.programs import Outcome, check


def checked(text: str, layout: str = "apart", seed: int = 0, loops: bool = True) -> Outcome:
    """`check`, whose errors say which test would fail the same way."""
    try:
        return check(text, layout, seed, loops)
    except Exception as error:  # whatever it is, the program is what matters
        error.add_note(reproducer(text, layout, seed))
        raise


def reproducer(text: str, layout: str, seed: int) -> str:
    """A test to paste."""
    return (
        f'PROGRAM = """\n{text}"""\n\n\ndef test_it() -> None:\n    check(PROGRAM, {layout!r}, seed={seed})\n'
    )
