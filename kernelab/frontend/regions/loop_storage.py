"""The storage of a loop for its adjoint, as chosen by its user: ``range(n, adjoint="checkpoint")``.

Knows the words and how a mistake in them reads; what they mean stands in `kernelab.passes.ad.primal_replay`.
"""

import ast

from kernelab.frontend.meaning.frame import Frame, Poisoned
from kernelab.lang.ir import Storage

WORDS: dict[str, Storage] = {"save": "save", "recompute": "recompute", "checkpoint": "checkpoint"}

_HINT = (
    '"save" keeps the values of every iteration, "recompute" runs the loop again when its adjoint comes, '
    '"checkpoint" keeps about sqrt(n) of n iterations and runs those between again'
)


def chosen_storage(frame: Frame, call: ast.Call) -> Storage | None:
    """The word that a `range` gives for `adjoint`; None where it gives none."""
    found: Storage | None = None
    for word in call.keywords:
        if word in frame.refused:
            raise Poisoned
        if word.arg != "adjoint":
            message = f"range takes no keyword {word.arg}"
            raise frame.error(word, message, hint="write range(start, stop, step), and adjoint=... behind it")
        found = _word(frame, word.value)
    return found


def _word(frame: Frame, value: ast.expr) -> Storage:
    match value:
        case ast.Constant(str(text)) if text in WORDS:
            return WORDS[text]
        case _:
            words = '"save", "recompute" or "checkpoint"'
            message = f"adjoint is {words}, not {frame.places.text(value)}"
            raise frame.error(value, message, "value", hint=_HINT)
