"""Whether threads of a device may run at once: proved from the text, and no where there is no proof."""

import pytest

from kernelab.backend.cuda.launch_config import in_turn
from kernelab.passes.common.scalarise import scalarise
from tests.support.lowering import lowered

HEAD = (
    "def f(x: array[float], y: array2d[float], z: array3d[float], of: array[int], n: int):\n    i = tid()\n"
)

APART = {
    "rows and columns": "    y[i // 8, i % 8] += x[i]\n",
    "those of an extent": "    y[i // y.shape[1], i % y.shape[1]] += x[i]\n",
    "in any order": "    c = i % 8\n    r = i // 8\n    y[c + 1, r] = y[c + 1, r] * x[i]\n",
    "split twice": "    z[i // 12, i % 12 // 4, i % 12 % 4] += z[i // 12, i % 12 // 4, i % 12 % 4]\n",
    "of the first row alone": "    if i // 8 == 0:\n        x[i % 8] *= 2.0\n",
    "of an infinite number": "    if x[i] == inf:\n        x[i] = 0.0\n",
    "of no number": "    if x[i] == nan:\n        x[i] = 0.0\n",
    "of at least one": "    m = max(n, 1)\n    y[i // m, i % m] += 1.0\n    y[i // m, i % m] *= 2.0\n",
}

MEETING = {
    "quotients alone": "    x[i // 8] *= 2.0\n",
    "remainders alone": "    x[i % 8] *= 2.0\n",
    "of different divisors": "    y[i // 8, i % 4] *= 2.0\n",
    "moved to and fro": "    y[i // 8, i % 8] = y[i // 8, i % 8 + 1]\n",
    "of a divisor that may be below zero": "    y[i // n, i % n] *= 2.0\n",
    "of a divisor of each thread": "    m = max(of[i], 1)\n    y[i // m, i % m] *= 2.0\n",
    "of different rows": """
    if i // 8 == 0:
        x[i % 8] *= 2.0
    if i // 8 == 1:
        x[i % 8] *= 3.0
""",
}


@pytest.mark.parametrize("what", APART)
def test_threads_that_split_their_index_may_run_at_once(what: str) -> None:
    assert in_turn(scalarise(lowered(HEAD + APART[what], "f"))) == ""


@pytest.mark.parametrize("what", MEETING)
def test_threads_that_may_meet_run_in_turn(what: str) -> None:
    assert "where their order matters" in in_turn(scalarise(lowered(HEAD + MEETING[what], "f")))
