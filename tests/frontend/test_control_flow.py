"""Control flow: branches, loops and every way to leave them, against the same text run as Python."""

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import KernelAssertionError
from kernelab.lang.ir import For, If, While, walk
from tests.frontend.helpers import agrees_with_python, error, function, ran
from tests.frontend.programs import Writer

COUNT = np.array([3, 1, -2, 5], np.int32)


@pytest.mark.parametrize("seed", range(60))
def test_a_random_kernel_full_of_jumps_means_what_it_means_in_python(seed: int) -> None:
    agrees_with_python(Writer(seed).kernel(), (5,), x=COUNT.copy(), out=np.zeros((5, 2), np.int32))


@pytest.mark.parametrize("seed", range(1000, 1040))
def test_a_random_function_full_of_returns_means_what_it_means_in_python(seed: int) -> None:
    agrees_with_python(
        Writer(seed).function_and_kernel(), (5,), x=COUNT.copy(), out=np.zeros((5, 2), np.int32)
    )


BODIES = {
    "a value that only a search loop sets": """
    while True:
        n += 3
        if n % 7 == 0:
            found = n * n
            break
    out[t] = found
""",
    "an index used after its loop": """
    for i in range(len(x)):
        if x[i] < 0:
            break
    out[t] = i
""",
    "an index set before its loop, which may run zero times": """
    i = 42
    for i in range(t):
        n += i
    out[t] = i + n
""",
    "an index that the body changes": """
    for i in range(4):
        n += i
        i = i * 10
        n += i
    out[t] = n + i
""",
    "bounds that the body changes": """
    k = 3
    for i in range(k):
        k += 1
        n += k
    out[t] = n
""",
    "a range that runs backwards": """
    for i in range(7, t, -2):
        n = n * 3 + i
    out[t] = n
""",
    "a step known at run time": """
    for i in range(0, 9 * x[t % 3], x[t % 3]):
        n = n * 2 + i
    out[t] = n
""",
    "break out of a while inside a for": """
    for i in range(3):
        k = 0
        while k < 10:
            k += 1
            if k > t:
                break
            n += k
        n = n * 2
    out[t] = n
""",
    "continue at several depths": """
    for i in range(5):
        if i == t:
            continue
        for j in range(3):
            if j == 1:
                if i > 2:
                    continue
                n += 10
            n += j
        n = n + i
    out[t] = n
""",
    "a variable first set in both branches": """
    if t > 1:
        y = 3
    else:
        y = t * 2
    out[t] = y
""",
    "a variable first set in a loop that runs a constant number of times": """
    for i in range(3):
        y = i * t
    out[t] = y
""",
    "a tuple carried through a loop": """
    p = (t, 1)
    for i in range(4):
        p = (p[1], p[0] + p[1])
    out[t] = p[0]
""",
    "two variables that change places": """
    a, b = t, 5
    for i in range(3):
        a, b = b, a + 1
    out[t] = a * 10 + b
""",
    "both sides of an if return": """
    if t > 1:
        out[t] = 1
        return
    else:
        out[t] = 2
        return
""",
    "a ternary inside a ternary": """
    out[t] = 1 if t == 0 else 2 if t == 1 else 3
""",
    "a truth value carried through a loop": """
    going = True
    while going:
        n += 1
        going = n < 4 + t
    out[t] = n
""",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_control_flow_means_what_it_means_in_python(body: str) -> None:
    text = "def kernel(x: array[int], out: array[int]):\n    t = tid()\n    n = 0\n" + body.removeprefix("\n")
    agrees_with_python(text, (4,), x=np.array([3, 1, -2, 5], np.int32), out=np.zeros(4, np.int32))


def test_a_ternary_evaluates_only_the_side_it_takes() -> None:
    text = "def kernel(x: array[float], n: int):\n    x[0] = x[n] if n < len(x) else 7.0\n"
    assert ran(text, x=np.zeros(2, np.float32), n=5)["x"][0] == 7.0


def test_and_evaluates_its_right_side_only_if_the_left_holds() -> None:
    text = "def kernel(x: array[float], n: int):\n    if n < len(x) and x[n] > 1.0:\n        x[0] = 7.0\n"
    assert ran(text, x=np.zeros(2, np.float32), n=5)["x"][0] == 0.0


def test_a_chain_of_comparisons_evaluates_each_operand_at_most_once() -> None:
    test = "0 < atomic_add(x, 0, 1) < 9 < atomic_add(x, 1, 1)"
    text = f"def kernel(x: array[int]):\n    if {test}:\n        x[2] = 1\n"
    assert ran(text, x=np.array([0, 20, 0], np.int32))["x"].tolist() == [1, 20, 0]
    assert ran(text, x=np.array([3, 20, 0], np.int32))["x"].tolist() == [4, 21, 1]


def test_pure_conditions_need_no_branch() -> None:
    lowered = function(
        "def kernel(x: array[int], n: int):\n    if n > 0 and n < 9 or n == 20:\n        x[0] = 1\n"
    )
    assert sum(isinstance(stmt, If) for stmt in walk(lowered.body)) == 1


def test_a_plain_loop_over_range_counts_its_own_index() -> None:
    lowered = function("def kernel(x: array[float], n: int):\n    for i in range(n):\n        x[i] = 1.0\n")
    (loop,) = (stmt for stmt in walk(lowered.body) if isinstance(stmt, For))
    assert (loop.count, loop.index.hint, loop.stop, loop.carries) == (lowered.params[1], "i", None, ())


def test_a_loop_carries_only_what_the_next_iteration_or_the_code_after_it_reads() -> None:
    text = """
def kernel(x: array[float]):
    s = 0.0
    for i in range(len(x)):
        square = x[i] * x[i]
        s += square
    x[0] = s
"""
    (loop,) = (stmt for stmt in walk(function(text).body) if isinstance(stmt, For))
    assert [var.hint for var in loop.carries] == ["s"]


def test_a_while_loop_stops_on_a_carried_truth_value() -> None:
    lowered = function("def kernel(x: array[int]):\n    while x[0] < 9:\n        x[0] = x[0] + 2\n")
    (loop,) = (stmt for stmt in walk(lowered.body) if isinstance(stmt, While))
    assert loop.carries[loop.stop].hint == "stop"


def test_a_branch_on_a_constant_of_the_notebook_lowers_one_side_only() -> None:
    text = (
        "def kernel(x: array[float]):\n    if FAST:\n        x[0] = 1.0\n    else:\n        x[0] = unknown\n"
    )
    assert not any(isinstance(stmt, If) for stmt in walk(function(text, FAST=True).body))


def test_an_index_read_after_a_loop_that_ran_zero_times_ends_the_launch() -> None:
    text = "def kernel(x: array[int], n: int):\n    for i in range(n):\n        x[1] = i\n    x[0] = i\n"
    assert ran(text, x=np.zeros(2, np.int32), n=3)["x"].tolist() == [2, 2]
    with pytest.raises(KernelAssertionError, match="i is unset"):
        ran(text, x=np.zeros(2, np.int32), n=0)


def test_a_step_of_zero_at_run_time_ends_the_launch() -> None:
    text = "def kernel(x: array[int], n: int):\n    for i in range(0, 9, n):\n        x[0] = i\n"
    with pytest.raises(KernelAssertionError, match="step of range is zero"):
        ran(text, x=np.zeros(1, np.int32), n=0)


def test_a_loop_that_never_ends_is_refused() -> None:
    assert (
        error("def kernel(x: array[int]):\n    while True:\n        x[0] = 1\n").message
        == "this loop never ends"
    )


LONG = """
def kernel(a: int, b: int, out: array[int]):
    for i in range(a, b):
        out[0] = i
        return
"""


@pytest.mark.parametrize(("a", "b"), [(-3, 2**31 - 1), (-(2**31), 0), (-(2**31), 2**31 - 1)])
def test_a_range_that_its_index_cannot_count_is_an_error_at_the_line(a: int, b: int) -> None:
    with pytest.raises(KernelAssertionError, match="more than 2147483647 items, too many to count") as caught:
        kl.compile(LONG)["kernel"][1](a, b, kl.zeros(1, dtype=int))
    assert "for i in range(a, b):" in str(caught.value)


@pytest.mark.parametrize(("a", "b"), [(3, -(2**31)), (2**31 - 1, -(2**31)), (0, -1)])
def test_a_range_with_nothing_in_it_runs_zero_times(a: int, b: int) -> None:
    out = kl.full(1, 7, dtype=int)
    kl.compile(LONG)["kernel"][1](a, b, out)
    assert out.numpy().tolist() == [7]


def test_a_step_that_has_become_zero_does_not_end_the_process() -> None:
    text = "def kernel(x: array[float], n: array[int], y: array[float]):\n"
    text += "    for k in range(0, 6, n[0]):\n        y[0] = y[0] + x[k] * x[k]\n"
    x, y, n = kl.ones(8, requires_grad=True), kl.zeros(1, requires_grad=True), kl.array([2], dtype=int)
    with kl.Tape(overwrite="warn") as tape:
        kl.compile(text)["kernel"][1](x, n, y)
    with pytest.warns(kl.KernelWarning):
        n.fill_(0)
    with pytest.raises(KernelAssertionError, match="the step is zero"):
        tape.backward(y)
