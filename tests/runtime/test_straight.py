"""The straight line that packs usual arguments: it agrees with a closer look, and leaves the rest to that."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import LaunchError
from kernelab.runtime.launch.call import bind

NUMBERS = {
    "int": [0, -1, 2**31 - 1, -(2**31)],
    "int8": [127, -128],
    "uint8": [0, 255],
    "int64": [2**63 - 1, -(2**63)],
    "uint64": [0, 2**64 - 1],
    "float": [0.0, -0.1, 2.0**127, 1e-45],
    "float64": [0.1, -(2.0**127)],
}

TEXT = "".join(
    f"def takes_{name}(n: {name}, out: array[float]):\n    out[0] = float(n)\n\n" for name in NUMBERS
)
KERNELS = kl.compile(TEXT)
CASES = [(name, value) for name, values in NUMBERS.items() for value in values]


def straight(name: str, *arguments: Any) -> list[bytes] | None:
    return KERNELS[f"takes_{name}"].plan.straight.slots(arguments, b"grid")


@pytest.mark.parametrize(("name", "value"), CASES)
def test_numbers_are_packed_as_after_a_closer_look(name: str, value: float) -> None:
    out = kl.zeros(1)
    parameter = KERNELS[f"takes_{name}"].plan.parameters[0]
    assert straight(name, value, out) == [b"grid", parameter.convert(value)[1], out.packed]


@pytest.mark.parametrize(
    ("name", "value"),
    [("int", 2**31), ("int", True), ("int", 1.0), ("uint8", -1), ("uint8", np.uint8(1)), ("float", 1)]
    + [("float", value) for value in (float("inf"), float("nan"), 2.0**128)],
)
def test_any_other_number_is_looked_at(name: str, value: Any) -> None:
    assert straight(name, value, kl.zeros(1)) is None


def test_arrays_that_do_not_fit_or_cannot_be_written_are_looked_at() -> None:
    frozen = np.zeros(1, np.float32)
    frozen.flags.writeable = False
    wrong: list[Any] = [kl.zeros((1, 1)), kl.zeros(1, dtype=kl.float64), frozen, None]
    wrong.append(kl.array(frozen, copy=False))
    for out in wrong:
        assert straight("int", 1, out) is None
    with pytest.raises(LaunchError, match="read-only"):
        bind(KERNELS["takes_int"], [1, wrong[-1]], [])


def test_another_count_of_arguments_is_looked_at() -> None:
    assert straight("int", 1) is None
    assert straight("int", 1, kl.zeros(1), 2) is None
