"""Variables that may be unset, told from those that are set on every path."""

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import KernelAssertionError
from tests.frontend.helpers import agrees_with_python, cell, error, ran
from tests.frontend.programs import Writer

pytestmark = pytest.mark.slow

HEAD = "def kernel(x: array[float], n: int):\n    "

UNSET = {
    "set in one branch": ("if n > 0:\n        y = 1.0\n    x[0] = y", "it is set in one branch only", 3),
    "set in a loop over a range of unknown length": (
        "for i in range(n):\n        y = 1.0\n    x[0] = y",
        "the loop that sets it may run zero times",
        3,
    ),
    "set in a while loop": (
        "while n > x[0]:\n        y = 1.0\n    x[0] = y",
        "the loop that sets it may run zero times",
        3,
    ),
    "set after a break": (
        "for i in range(3):\n        if x[i] > 0:\n            break\n        y = 1.0\n    x[0] = y",
        "zero times",
        5,
    ),
    "set after a continue": (
        "for i in range(3):\n        if x[i] > 0:\n            continue\n        y = 1.0\n    x[0] = y",
        "zero times",
        5,
    ),
    "set in one of three branches": (
        "if n > 0:\n        y = 1.0\n    elif n > 1:\n        y = 2.0\n    x[0] = y",
        "it is set in one branch only",
        3,
    ),
    "set later in the same loop": (
        "for i in range(n):\n        if i > 0:\n            x[i] = y\n        y = x[i]",
        "zero times",
        5,
    ),
}


@pytest.mark.parametrize(("body", "why", "line"), UNSET.values(), ids=UNSET)
def test_a_variable_that_may_be_unset_is_refused_with_the_line_that_sets_it(
    body: str, why: str, line: int
) -> None:
    found = error(HEAD + body + "\n")
    assert found.message.startswith("y may be unset here: ")
    assert why in found.message
    assert found.hint.endswith("for example y = 0.0")
    assert found.related[0].span.line == line


def test_a_variable_used_before_it_is_set_is_refused() -> None:
    found = error(HEAD + "x[0] = y\n    y = 1.0\n")
    assert (found.message, found.code) == ("y is used before it is set", "unset")
    assert found.related[0].span.line == 3


SET = {
    "in both branches": """
    if n > 0:
        y = 1.0
    else:
        y = 2.0
    x[0] = y
""",
    "in one branch, the other returns": """
    if n > 0:
        y = 1.0
    else:
        return
    x[0] = y
""",
    "before the only break of an endless loop": """
    while True:
        y = x[0]
        if y > 1:
            break
        x[0] += 1.0
    x[0] = y
""",
    "in a loop of three": """
    for i in range(3):
        y = x[i]
    x[0] = y
""",
    "in a loop over a constant of the notebook": """
    for i in range(N):
        y = x[i]
    x[0] = y
""",
    "in a loop from less a constant of the notebook": """
    for i in range(-N, 0):
        y = x[i]
    x[0] = y
""",
    "under what a constant of the notebook equals": """
    if N != 2.5:
        y = x[0]
    x[0] = y
""",
    "under a constant of the notebook, twice": """
    if N:
        y = x[0]
    x[0] = 1.0
    if N:
        x[1] = y
""",
    "where a constant says that the other side runs": """
    if not static(N == 3):
        z = 1.0
    else:
        y = x[0]
    x[0] = y
""",
    "under a literal": """
    if 1:
        y = x[0]
    x[0] = y
""",
    "before the break and at the end": """
    for i in range(3):
        y = x[i]
        if y > 0:
            break
    x[0] = y
""",
    "before the continue": """
    for i in range(n):
        y = x[i]
        if y > 0:
            continue
        x[i] = y
""",
    "where the other branch goes on with the loop": """
    for i in range(n):
        if x[i] > 0:
            y = 1.0
        else:
            continue
        x[i] = y
""",
}


@pytest.mark.parametrize("body", SET.values(), ids=SET)
def test_a_variable_that_is_set_on_every_path_is_accepted(body: str) -> None:
    assert cell(HEAD.rstrip() + body, N=3).errors == ()


@pytest.mark.long
def test_random_kernels_are_refused_or_fail_where_python_fails_and_agree_elsewhere() -> None:
    accepted = loud = 0
    for seed in range(250):
        text = Writer(seed).kernel(start="a, c = t, x[0]")
        if cell(text).errors:
            continue
        accepted += 1
        arguments = {"x": np.array([3, 1, -2, 5], np.int32), "out": np.zeros((5, 2), np.int32)}
        try:
            agrees_with_python(text, (5,), **arguments)
        except UnboundLocalError:
            loud += 1
            with pytest.raises(KernelAssertionError, match="is unset"):
                ran(text, (5,), **arguments)
    assert accepted > 50
    assert loud > 5


REFUSED = {
    "on the side that never runs": "if not N:\n        y = 1.0\n    x[0] = y\n",
    "under a variable that hides a constant": "N = n\n    if N:\n        y = 1.0\n    x[0] = y\n",
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_a_constant_condition_sets_nothing_on_the_other_side(body: str) -> None:
    assert cell(HEAD + body, N=3).errors


@pytest.mark.parametrize("flag", [True, False])
def test_what_a_flag_decides_at_the_definition_is_set_where_the_flag_is_asked_again(flag: bool) -> None:
    @kl.kernel
    def flagged(x: kl.array[float]):  # type: ignore[no-untyped-def]
        if kl.static(flag):
            pair = kl.vec2(x[0], 2.0)
        else:
            single = 5.0 * x[0]
        if flag:
            x[1] = pair[0] * pair[1]
        else:
            x[1] = single

    x = kl.array([3.0, 0.0], requires_grad=True)
    kl.launch(flagged, 1, [x])
    assert x.list() == [3.0, 6.0 if flag else 15.0]


def test_a_parameter_that_hides_a_constant_does_not_count_as_one() -> None:
    found = error(HEAD + "for i in range(n):\n        y = x[i]\n    x[0] = y\n", n=3)
    assert found.message.startswith("y may be unset here")
