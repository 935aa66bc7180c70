"""``make fuzz``: as many random programs as there is time for; a test to paste for what is found.

    python -m tests.fuzz [--minutes 30] [--programs 20000] [--seed 7] [--only kernels tapes]

Programs are drawn in rounds, each with a seed of its own.  A round that fails is shrunk; the smallest program
is printed as a test, and the rounds go on.  The exit status is 1 if anything was found.  Besides programs
that run, there are cells that are not programs, wrong arguments of launches, and messages of pages.  Several
processes with seeds of their own may run beside each other.
"""

import argparse
import gc
import itertools
import random
import resource
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable

import hypothesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelab.errors import KernelWarning
from tests.strategies import LAYOUTS, programs
from tests.strategies.cells import cell
from tests.strategies.features import EXPECTED, features
from tests.strategies.hosts import careless_programs, host_programs
from tests.strategies.number_programs import number_programs
from tests.support.front_end import checked_cell
from tests.support.misuse import checked_launch, checked_messages
from tests.support.number_checks import check_numbers
from tests.support.programs import second_order
from tests.support.reproducer import checked
from tests.support.second import forward_over_reverse, reverse_over_reverse
from tests.support.tapes import POLICIES, Policy, checked_tape
from tests.support.transformed import checked_transforms

PROGRAMS, INPUTS = 40, 200
"""What a round draws: programs that run, and other inputs, which take far less time."""

Check = Callable[[Counter[str]], None]


def kernels(seed: int, count: Counter[str]) -> None:
    """A round of kernels, where their arrays may overlap."""

    @hypothesis.seed(seed)
    @_settings()
    @given(programs(), st.sampled_from(list(LAYOUTS)), st.integers(0, 99))
    def check(text: str, layout: str, point: int) -> None:
        count.update(features(text))
        outcome = checked(text, layout, point)
        checked(text, layout, point, second_order)
        checked(text, layout, point, forward_over_reverse)
        checked(text, layout, point, reverse_over_reverse)
        count.update(tried=1, untrusted=not outcome.trusted, unrolled=outcome.unrolled)

    check()


def numbers(seed: int, count: Counter[str]) -> None:
    """A round of programs on numbers of all widths, compared to the last bit."""

    @hypothesis.seed(seed)
    @_settings()
    @given(number_programs(), st.integers(0, 99))
    def check(text: str, seed: int) -> None:
        check_numbers(text, seed)
        count.update(numbers=1)

    check()


def tapes(seed: int, count: Counter[str]) -> None:
    """A round of host programs: launches, copies and writes over views of a few arrays."""

    @hypothesis.seed(seed)
    @_settings()
    @given(host_programs(), careless_programs(), st.sampled_from(POLICIES), st.integers(0, 99))
    def check(careful: tuple[str, str], careless: tuple[str, str], policy: Policy, seed: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error", KernelWarning)
            warnings.filterwarnings("ignore", "an index of .* was negative", KernelWarning)
            checked_tape(careless if policy == "careless" else careful, seed, policy)
        count.update(tapes=1)

    check()


def transforms(seed: int, count: Counter[str]) -> None:
    """A round of host programs as functions: in both modes, in lanes, and at second order."""

    @hypothesis.seed(seed)
    @_settings(PROGRAMS // 2)
    @given(host_programs(), st.integers(0, 99))
    def check(program: tuple[str, str], seed: int) -> None:
        checked_transforms(program[0], seed)
        count.update(transforms=1)

    check()


def cells(seed: int, count: Counter[str]) -> None:
    """A round of arbitrary and mutated cells: each ends in kernels or in an error of kernelab's own.

    All programs of every hundredth cell are derived, emitted and shown, which takes ten times as long.
    """
    for number in range(seed * INPUTS, (seed + 1) * INPUTS):
        count.update(cells=1)
        count.update(compiled=checked_cell(cell(number), derives=number % 100 == 0) > 0)


def arguments(seed: int, count: Counter[str]) -> None:
    """A round of launches with arbitrary arguments: each runs or ends in an error of kernelab's own."""
    for number in range(seed * INPUTS, (seed + 1) * INPUTS):
        count.update(launches=1)
        count.update(launched=checked_launch(number))


def messages(seed: int, count: Counter[str]) -> None:
    """A round of arbitrary messages to the view of a tape: each has an answer, and the view lives on."""
    checked_messages(range(seed * INPUTS, (seed + 1) * INPUTS))
    count.update(messages=INPUTS)


FAMILIES = {
    "kernels": kernels,
    "numbers": numbers,
    "tapes": tapes,
    "transforms": transforms,
    "cells": cells,
    "arguments": arguments,
    "messages": messages,
}
TRIED = {
    "tried": "kernels",
    "numbers": "programs on numbers",
    "tapes": "tapes",
    "transforms": "functions",
    "cells": "cells",
    "launches": "launches",
    "messages": "messages",
}
"""What is counted, and the words for it."""

MEMORY = 12 << 30
"""The bytes of address space of a run: a cell that asks for more gets a MemoryError."""

YOUNG = 200_000
"""The objects that are made between two collections: at the default, collections take a fifth of the time."""


def _settings(examples: int = PROGRAMS) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--programs", type=int, default=sys.maxsize)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--only", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    chosen = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    gc.set_threshold(YOUNG)
    print(f"seed {chosen.seed}", flush=True)
    count, failed, start = Counter[str](), 0, time.monotonic()
    for number, family in ((n, each) for n in itertools.count(1) for each in chosen.only):
        seconds = time.monotonic() - start
        if seconds >= 60 * chosen.minutes or max(count[key] for key in TRIED) >= chosen.programs:
            break
        try:
            FAMILIES[family](chosen.seed * 10_000 + number, count)
        except Exception:  # a finding, whatever it is
            failed += 1
            traceback.print_exc(limit=-2, file=sys.stdout)
        print(f"{_tried(count)}, {failed} failed, {time.monotonic() - start:.0f} s", flush=True)
    print(report(count, failed))
    return int(failed > 0)


def _tried(count: Counter[str]) -> str:
    return ", ".join(f"{count[key]} {name}" for key, name in TRIED.items() if count[key]) or "nothing"


def report(count: Counter[str], failed: int) -> str:
    """What was tried, and how often each feature of the language was drawn."""
    lines = [
        f"{_tried(count)}, {failed} rounds failed",
        f"{count['untrusted']:8} kernels whose differences could not be trusted",
        f"{count['unrolled']:8} kernels compared with themselves without loops",
        f"{count['compiled']:8} cells that made kernels",
        f"{count['launched']:8} launches that ran",
        *(f"{count[name]:8} {name}" for name in sorted(EXPECTED, key=lambda name: -count[name])),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
