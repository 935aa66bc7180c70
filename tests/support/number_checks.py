"""What must hold of every program on numbers: simplified or not, it does what its text does as Python."""

from typing import Any

import numpy as np

from kernelab.backend.cpu import interpreter
from kernelab.lang.verify import verify
from kernelab.passes.common.copying import inline
from kernelab.passes.common.simplify import simplify
from tests.strategies.number_programs import GRID, outputs
from tests.support import number_oracle
from tests.support.checks import bits
from tests.support.evaluate import evaluate
from tests.support.lowering import raw

NAMES = {"INF": float("inf"), "NAN": float("nan")}
REALS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.25, np.inf, -np.inf, np.nan, 1e6, 3.0)
WHOLES = (0, 1, -1, 2, 3, 7, -5, 127, -128, 255, 2**31 - 1, -(2**31), 2**40 + 5)


def drawn_arguments(seed: int) -> dict[str, Any]:
    """Arrays of numbers, the special ones among them, and those that the program writes to."""
    rng = np.random.default_rng(seed)
    given = {"x": rng.choice(REALS, 8), "n": rng.choice(WHOLES, 8), "hits": np.zeros(*GRID, np.int32)}
    return given | {"e": np.zeros(GRID)} | {name: np.zeros(GRID, type) for name, type in outputs()}


def check_numbers(text: str, seed: int = 0) -> None:
    """Check a program; raises AssertionError, which says what differs."""
    given = drawn_arguments(seed)

    def after(run: Any, *program: Any, **names: float) -> dict[str, Any]:
        arguments = {name: array.copy() for name, array in given.items()}
        run(*program, GRID, arguments, **names)
        return arguments

    expected = after(number_oracle.run, text, "program", **NAMES)
    before = verify(inline(raw(text, "program", dict(NAMES))))
    simplified = verify(simplify(before))
    ways = {
        "before it is simplified": after(evaluate, before),
        "simplified": after(evaluate, simplified),
        "in the interpreter": after(interpreter.run, simplified),
    }
    for how, found in ways.items():
        wrong = {
            name: (found[name], wanted) for name, wanted in expected.items() if differ(found[name], wanted)
        }
        assert not wrong, f"{how} the program leaves, and as Python: {wrong}\n{text}"


def differ(found: Any, wanted: Any) -> bool:
    return not np.array_equal(bits(found), bits(wanted))
