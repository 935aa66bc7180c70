"""``make sanitize`` finds what it is there for: each sanitizer ends a process at a fault that is planted."""

import subprocess

import pytest

from tests.sanitize import ROOT, command, environment, missing

PAST_THE_END = """
@func_native("(&y(0))[n] = 2.0f;")
def put(y: array[float], n: int): ...

def k(y: array[float], n: int):
    if tid() == 0:
        put(y, n)
"""

SHIFTED = """
@func_native("return 1 << n;")
def shift(n: int) -> int: ...

def k(y: array[float], n: int):
    y[tid()] = float(shift(n))
"""

SHARED = """
@func_native("static int calls = 0; if (n > 1) for (int i = 0; i < 100000; ++i) calls += n; return n;")
def count(n: int) -> int: ...

def k(y: array[float], n: int):
    y[tid()] = float(count(n))
"""

PLAIN = """
def k(y: array[float], n: int):
    y[tid()] = 1.0
"""

RUN = """
import sys
import kernelab as kl
from tests.support.sanitized import tier, tight_memory, together

tight_memory()
text, mode, (extent, n) = sys.argv[1], sys.argv[2], map(int, sys.argv[3:])
kernel = kl.compile(text)["k"]

def launch(extent, n):
    memory = kl.zeros(40)
    # Of 48 elements the last ones pass the bounds checks, and stand behind the memory.
    y = kl.array.over(memory.allocation, 0, (extent,), memory.strides, memory.dtype)
    kernel[extent](y, n)

run = together if mode == "threads" else lambda work: work()
with tier(mode == "vector"):
    kernel.program.entry
    run(lambda: launch(40, 1))
    print("what is right runs to its end", flush=True)
    run(lambda: launch(extent, n))
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "text", "mode", "extent", "n", "said"),
    [
        ("address", PAST_THE_END, "scalar", 40, 40, "heap-buffer-overflow"),
        ("address", PLAIN, "vector", 48, 1, "AddressSanitizer"),
        ("undefined", SHIFTED, "scalar", 40, 40, "shift exponent 40 is too large"),
        ("thread", SHARED, "threads", 40, 40, "ThreadSanitizer: data race"),
    ],
)
def test_a_planted_fault_ends_the_process_and_is_named(
    kind: str, text: str, mode: str, extent: int, n: int, said: str
) -> None:
    if reason := missing(kind):
        pytest.fail(f"NOT RUN: {reason}", pytrace=False)
    asked = command(["-c", RUN, text, mode, str(extent), str(n)])
    ended = subprocess.run(
        asked, env=environment(kind), cwd=ROOT, capture_output=True, text=True, timeout=250, check=False
    )
    assert (ended.stdout, ended.returncode != 0) == ("what is right runs to its end\n", True), ended.stderr
    assert said in ended.stderr
