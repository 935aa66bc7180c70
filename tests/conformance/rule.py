"""The rules of the language, as `rules/*.txt` tell them, and what it takes to run one.

    # a sentence
    defs and structs of the rule, with --- behind them, where it has any
    the body of a kernel
    -> the first numbers of `out` after a run  # 4 threads, kink

Every body is that of one kernel over the same arguments.  `kink`: it has no derivative where these stand.
Knows the frontend and both ways to run a kernel; must not know what the rules say.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import kernelab
from kernelab.backend.common.backends import Entry, pack
from kernelab.backend.cpu import interpreter
from kernelab.backend.cpu.cpu_backend import CpuBackend
from kernelab.codegen.cpp.entry import layout_of
from kernelab.lang.ir import Function
from kernelab.lang.verify import verify
from kernelab.passes.common.copying import widen
from kernelab.passes.common.scalarise import scalarise
from tests.support.derivatives import Derivatives, derivatives, wide
from tests.support.lowering import lowered

PARAMETERS = (
    "out: array[float], x: array[float], a: array2d[float], v: array[vec3], m: array[mat22], k: array[int], "
    "n: int, s: float"
)
NOTEBOOK = {
    "np": np,
    "kl": kernelab,
    "TABLE": [1],
    "THREE": 3,
    "index": 3,
    "HALF": 0.5,
    "AXIS": np.array([0.0, 0.0, 1.0], np.float32),
}
"""What a rule finds in the notebook."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, the text that shows it, and the first numbers of `out` after a run."""

    sentence: str
    before: str
    body: str
    gives: tuple[float, ...]
    threads: int
    smooth: bool

    def function(self, name: str) -> Function:
        """The kernel, under a name of its own."""
        text = f"{self.before}\ndef {name}({PARAMETERS}):\n{textwrap.indent(self.body, '    ')}\n"
        return lowered(text, name, NOTEBOOK)


_RULE = re.compile(r"# (.+)\n(?:((?:.*\n)*?)---\n)?((?:.*\n)*?)-> ([^#\n]+?)(?:  # (.+))?\n")


def rules() -> dict[str, Rule]:
    """All rules by their heading and sentence, in the order of the files."""
    found = [(heading, one) for heading, text in _headings() for one in _parsed(text)]
    named = {f"{heading}: {one.sentence}": one for heading, one in found}
    assert len(named) == len(found), "two rules have one sentence"
    return named


def _headings() -> Iterator[tuple[str, str]]:
    for file in sorted((Path(__file__).parent / "rules").glob("*.txt")):
        yield file.stem.partition(" ")[2], file.read_text()


def _parsed(text: str) -> Iterator[Rule]:
    for part in re.split(r"\n\n(?=# )", text.strip("\n")):
        match = _RULE.fullmatch(f"{part}\n")
        assert match is not None, f"this is not a rule:\n{part}"
        sentence, before, body, gives, options = match.groups(default="")
        threads = re.search(r"(\d+) threads", options)
        numbers = tuple(float(number) for number in gives.split(","))
        count = int(threads.group(1)) if threads else 1
        yield Rule(sentence, before, body, numbers, count, "kink" not in options)


def arguments() -> dict[str, Any]:
    """What every rule is run with."""
    f = np.float32
    return {
        "out": np.zeros(8, f),
        "x": np.array([1.0, 2.0, 3.0, 4.0], f),
        "a": np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], f),
        "v": np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], f),
        "m": np.array([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]], f),
        "k": np.array([3, -7, 5, 0], np.int32),
        "n": np.int32(3),
        "s": f(0.5),
    }


def interpreted(function: Function, given: Rule) -> Sequence[float]:
    """What the interpreter leaves in `out`, one thread after another."""
    after = arguments()
    interpreter.run(function, (given.threads,), after, width=1)
    return _first(after, given)


def build(functions: Sequence[Function]) -> dict[str, Entry]:
    """Machine code for all rules, in one build."""
    return CpuBackend().build([scalarise(function) for function in functions])


def compiled(entry: Entry, function: Function, given: Rule) -> Sequence[float]:
    """What machine code leaves in `out`."""
    after = arguments()
    entry(pack(layout_of(function), (given.threads,), after))
    return _first(after, given)


def _first(after: dict[str, Any], given: Rule) -> Sequence[float]:
    return [float(number) for number in after["out"][: len(given.gives)]]


def derived(function: Function, given: Rule) -> Derivatives:
    """The adjoint, the tangent and differences of a rule, in a random direction."""
    wider = verify(widen(function))
    return derivatives(wider, (given.threads,), wide(wider, arguments()), np.random.default_rng(3))
