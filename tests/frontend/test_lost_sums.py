"""A warning where threads may lose a sum, and none where one thread alone stores it."""

import pytest

import kernelab as kl
from kernelab.backend.cpu.cpu_backend import OFTEN
from kernelab.frontend.definitions.kernels import KernelDefinition
from tests.frontend.helpers import cell

ADDED = "e[0] = e[0] - x[i]"
LOST = [
    ADDED,
    "e[0] = x[i] + e[0]",
    "e[0] = e[0] - x[i] - 2.0",
    "e[n - 1] = e[n - 1] + x[i]",
    "v[1].x = v[1].x + x[i]",
    "a = e[0]\na = a + x[i]\ne[0] = a",
    "for k in range(3):\n    e[k] = e[k] + x[i]",
    f"if n > 3:\n    {ADDED}",
    f"if i != 3:\n    {ADDED}",
    f"if i:\n    {ADDED}",
    f"if i < n:\n    {ADDED}",
    f"if i > 0 and x[i] > 0.0:\n    {ADDED}",
    f"if x[i] > 0.5 or i == 0:\n    {ADDED}",
    f"if i % 2 == 0:\n    {ADDED}",
    f"if i >> 1 == 0:\n    {ADDED}",
    f"if i >= n:\n    return\n{ADDED}",
    "for j in range(n):\n    if i != j:\n        e[0] = e[0] - x[i] * x[j]",
    "for j in range(n):\n    if j < i:\n        e[0] = e[0] - x[i] * x[j]",
    "for j in range(n):\n    if i == j:\n        e[0] = e[0] - x[i] * x[j]",
    "m = n\nwhile m > 0:\n    m = m // 2\n    if i < m:\n        e[0] = e[0] + x[i]",
]
LOST_IN_TWO = [
    f"if i != j:\n    {ADDED}",
    f"if i == j:\n    {ADDED}",
    f"if i == 0:\n    {ADDED}",
    f"if i + j == 0:\n    {ADDED}",
]
KEPT = [
    "e[0] += x[i]",
    "e[0] = 2.0 * e[0]",
    "e[i] = e[i] + 1.0",
    "e[i // 2] = e[i // 2] + 1.0",
    "a = zeros(1)\na[0] = a[0] + x[i]\ne[i] = a[0]",
    f"if i == 0:\n    {ADDED}",
    f"if 0 == i:\n    {ADDED}",
    f"if not i:\n    {ADDED}",
    f"if tid() == 0:\n    {ADDED}",
    f"if i == n - 1:\n    {ADDED}",
    f"last = n - 1\nif i == last:\n    {ADDED}",
    f"first = i == 0\nif first:\n    {ADDED}",
    f"if i + 1 == n:\n    {ADDED}",
    f"if i < 1:\n    {ADDED}",
    f"if 1 > i:\n    {ADDED}",
    f"if i <= 0:\n    {ADDED}",
    f"if i >= n - 1:\n    {ADDED}",
    f"if not (i > 0):\n    {ADDED}",
    f"if i > 0:\n    x[i] = 0.0\nelse:\n    {ADDED}",
    f"if i != 0:\n    return\n{ADDED}",
    f"if i == 0 and x[i] > 0.0:\n    {ADDED}",
    f"if i == 0 or i == 5:\n    {ADDED}",
    f"for j in range(n):\n    if i == 0:\n        {ADDED}",
    f"k = atomic_add(v, 0, vec3(1.0, 0.0, 0.0))\nif k.x > 3.0:\n    {ADDED}",
]
STORED = [
    "e[0] = x[i]",
    "e[n - 1] = x[i] * x[i]",
    "s = x[i]\nfor k in range(3):\n    s += x[k]\ne[1] = s",
    "v[0] = vec3(x[i])",
]
NOT_OF_EACH = [
    "e[0] = 1.0",
    "e[0] = x[n]",
    "e[0] = x[i] * e[0] + 1.0",
    "e[i] = x[i]",
    "if i == 0:\n    e[0] = x[i]",
    "if x[i] > 0.0:\n    e[0] = x[i]",
    "if i > 0:\n    return\ne[0] = x[i]",
    "k = atomic_add(e, 1, 1.0)\nif k == 3.0:\n    e[2] = 1.0\ne[0] = x[i]",
]
KEPT_IN_TWO = [
    f"if i == 0 and j == 0:\n    {ADDED}",
    f"if i == 0:\n    if j == n - 1:\n        {ADDED}",
    "if j == 0:\n    for k in range(3):\n        e[i] = e[i] - x[k]",
]
HEAD = "def kernel(x: array[float], e: array[float], v: array[vec3], n: int):\n"


def _told(body: str, indices: str) -> list[str]:
    lines = [f"{indices} = tid()", *body.splitlines()]
    found = cell(HEAD + "".join(f"    {line}\n" for line in lines))
    assert not found.errors
    kernel = found.definitions["kernel"]
    assert isinstance(kernel, KernelDefinition)
    return [one.message for one in kernel.lost_sums]


@pytest.mark.parametrize(
    ("body", "indices"), [*((one, "i") for one in LOST), *((one, "i, j") for one in LOST_IN_TWO)]
)
def test_a_sum_that_threads_lose_is_told(body: str, indices: str) -> None:
    (message,) = _told(body, indices)
    assert "where two do so at once, one addition is lost" in message


@pytest.mark.parametrize(
    ("body", "indices"), [*((one, "i") for one in KEPT), *((one, "i, j") for one in KEPT_IN_TWO)]
)
def test_a_sum_that_loses_nothing_is_no_doubt(body: str, indices: str) -> None:
    assert _told(body, indices) == []


@pytest.mark.parametrize("body", STORED)
def test_a_store_of_every_thread_to_one_element_is_told(body: str) -> None:
    (message,) = _told(body, "i")
    assert "every thread stores a value of its own to " in message


@pytest.mark.parametrize("body", NOT_OF_EACH)
def test_a_store_that_one_thread_may_be_chosen_for_is_no_doubt(body: str) -> None:
    assert _told(body, "i") == []


def test_a_kernel_of_one_thread_is_no_doubt() -> None:
    text = (
        "def kernel(x: array[float], s: array[float]):\n    for k in range(3):\n        s[0] = s[0] + x[k]\n"
    )
    assert cell(text).diagnostics == ()


def test_threads_that_take_turns_in_a_function_are_no_doubt() -> None:
    text = """
def wait(lock: array[int]):
    while atomic_cas(lock, 0, 0, 1) == 1:
        pass

def kernel(x: array[float], s: array[float], lock: array[int]):
    i = tid()
    wait(lock)
    s[0] = s[0] + x[i]
    lock[0] = 0
"""
    kernel = cell(text).definitions["kernel"]
    assert isinstance(kernel, KernelDefinition)
    assert kernel.lost_sums == ()


TOTAL = "def total(x: array[float], s: array[float]):\n    i = tid()\n    s[0] = s[0] + x[i]\n"


def test_a_launch_of_several_threads_warns_at_the_line() -> None:
    total, s = kl.compile(TOTAL)["total"], kl.zeros(1, dtype=float)
    with pytest.warns(
        kl.KernelWarning, match=r"one addition is lost\n.*line 3\n[^~]*write s\[0\] \+= x\[i\],"
    ):
        total[3](kl.ones(3, dtype=float), s)


def test_launches_of_one_thread_are_silent_and_do_not_hide_a_later_one_of_two() -> None:
    total, x, s = kl.compile(TOTAL)["total"], kl.ones(3, dtype=float), kl.zeros(1, dtype=float)
    for _ in range(2 * OFTEN):
        kl.launch(total, dim=1, inputs=[x], outputs=[s])
    assert s.list() == [2.0 * OFTEN]
    with kl.Tape(), pytest.warns(kl.KernelWarning, match="one addition is lost"):
        kl.launch(total, dim=2, inputs=[x], outputs=[s])
