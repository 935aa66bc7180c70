"""Long cells: the work of lowering, deriving and showing them grows with the text, not with its square."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from kernelab.errors import KernelError, Source
from kernelab.frontend.definitions.cell import lower_source
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.texts import compile_source
from kernelab.views.kernel.kernel_facts import view
from kernelab.views.pages import markup, page

HEAD = "def k(x: array[float], y: array[float], n: int):\n    i = tid()\n    a = x[i]\n"
END = "    y[i] = a\n"
Cell = Callable[[range], str]


def repeated(line: str, first: str = "") -> Cell:
    return lambda lines: HEAD + first + "".join(line.format(k) for k in lines) + END


CELLS: dict[str, Cell] = {
    "one variable": repeated("    a = a * 1.5 + {0}.0\n"),
    "many variables": repeated("    a{0} = a * 1.5\n    a = a{0} + a\n"),
    "stores": repeated("    y[i + {0}] = x[i + {0}] * 2.0\n"),
    "sums whose old values are used": repeated("    a += atomic_add(y, {0}, a)\n"),
    "branches": repeated("    if n > {0}:\n        y[{0}] = a\n"),
    "loops": repeated("    for j{0} in range(n):\n        a = a * x[i]\n"),
    "vectors": repeated("    v = cross(v, vec3(a, 2.0, {0}.0))\n", "    v = vec3(a)\n"),
    "local arrays": repeated("    b{0} = zeros(2)\n    b{0}[0] = a\n    a = b{0}[0] * 2.0\n"),
    "prints": repeated("    print(a)\n"),
    "unknown names": repeated("    b = unknown_{0}\n"),
    "wrong types": repeated("    b = vec3(1.0) + x[{0}]\n"),
    "kernels": lambda lines: "".join(f"def k{k}(x: array[float]):\n    x[{k}] = 1.0\n" for k in lines),
    "functions": lambda lines: (
        "".join(f"def f{k}(x: float):\n    return x * {k}.5\n" for k in lines)
        + repeated("    a = f{0}(a)\n")(lines)
    ),
}


def calls(text: str) -> int:
    """The functions that Python calls to compile and to show a cell."""
    count = 0

    def count_calls(_: Any, event: str, __: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(count_calls)
    try:
        shown(text)
    finally:
        sys.setprofile(None)
    return count


def shown(text: str) -> None:
    made = compile_source(Source(text, "cell"))
    try:
        made.lowered.raise_errors()
    except KernelError as error:
        str(error)
    for kernel in made.definitions.values():
        if isinstance(kernel, Kernel):
            node = view(kernel)
            markup.render(node)
            page.render(node)


@pytest.mark.long
@pytest.mark.parametrize("name", CELLS)
def test_the_work_grows_with_the_text(name: str) -> None:
    shown(CELLS[name](range(10)))  # what is made once, such as tables of words
    assert calls(CELLS[name](range(160))) < 4.4 * calls(CELLS[name](range(40)))


def chain(calls: int) -> str:
    links = "".join(f"def f{k}(x: float):\n    return f{k + 1}(x) * 1.5\n" for k in range(calls))
    return links + f"def f{calls}(x: float):\n    return x\ndef k(x: array[float]):\n    x[0] = f0(x[0])\n"


def test_functions_may_call_functions_that_stand_below_them_in_long_chains() -> None:
    shown(chain(100))
    assert not lower_source(Source(chain(100), "cell"), {}).errors


def test_calls_that_nest_too_deeply_for_the_passes_are_refused() -> None:
    (error,) = lower_source(Source(chain(300), "cell"), {}).errors
    assert error.message == "k nests too deeply"


def test_calls_whose_number_grows_with_a_power_of_their_depth_are_refused() -> None:
    doubled = "".join(f"def f{k}(x: float):\n    return f{k + 1}(x) + f{k + 1}(-x)\n" for k in range(40))
    text = doubled + "def f40(x: float):\n    return x\ndef k(x: array[float]):\n    x[0] = f0(x[0])\n"
    (error,) = lower_source(Source(text, "cell"), {}).errors
    assert error.message.startswith("k is too long: ")


class Names(dict[str, Any]):
    """The names of a notebook, and how often all of them were read."""

    reads = 0

    def keys(self) -> Any:
        self.reads += 1
        return super().keys()


def test_a_constant_of_a_cell_is_no_reason_to_copy_the_names_of_the_notebook() -> None:
    few, many = Names(), Names()
    lower_source(Source("A = 1\n", "cell"), few)
    lower_source(Source("".join(f"A{k} = {k}\n" for k in range(50)), "cell"), many)
    assert many.reads == few.reads


def test_constants_of_a_cell_see_those_above_them() -> None:
    text = "import math\nA = 2\nB = A + 1\nC = [A * k for k in range(B)]\nfrom math import *\nD = floor(2.5)"
    lowered = lower_source(Source(text, "cell"), {"A": 7})
    assert not lowered.errors
    assert {name: lowered.assigned[name] for name in "ABCD"} == {"A": 2, "B": 3, "C": [0, 2, 4], "D": 2}
