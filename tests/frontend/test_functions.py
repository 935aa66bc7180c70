"""Functions: lowered for the types of each call, with several results, early returns and defaults."""

import numpy as np
import pytest

from kernelab.errors import KernelTypeError
from kernelab.frontend.definitions.functions import UserFunction
from kernelab.frontend.definitions.kernels import GenericKernel, KernelDefinition
from kernelab.lang.ir import Call, Function, walk
from kernelab.lang.types import Array, Vec, float64
from tests.frontend.helpers import cell, error, errors, kernel, ran

KERNEL = "def kernel(x: array[float], d: array[float64], k: array[int]):\n    "


def called(text: str) -> list[Function]:
    """The functions that the kernel of a cell calls, in order."""
    return [stmt.function for stmt in walk(kernel(text).function.body) if isinstance(stmt, Call)]


def computed(text: str) -> float:
    """What the kernel of a cell leaves in x[0], from x = [0.5, 2, 3]."""
    after = ran(text, x=np.array([0.5, 2, 3], np.float32), d=np.ones(2), k=np.ones(2, np.int32))
    return float(after["x"][0])


def test_a_function_is_lowered_once_for_each_combination_of_types() -> None:
    text = (
        "def f(a, b):\n    return a * b\n"
        + KERNEL
        + """x[0] = f(x[1], x[2])
    x[1] = f(x[2], x[1])
    d[0] = f(d[0], d[1])
    k[0] = f(k[0], k[1])
"""
    )
    functions = called(text)
    assert functions[0] is functions[1]
    assert [str(f.body.yields[0].type) for f in functions[1:]] == ["float32", "float64", "int32"]


def test_literal_arguments_are_part_of_the_function_and_keep_their_value() -> None:
    text = (
        "def f(a, n, scale=2):\n    return a ** n * scale\n"
        + KERNEL
        + "x[0] = f(x[1], 2) + f(x[1], 3, scale=0.5)\n"
    )
    assert computed(text) == 4 * 2 + 8 * 0.5
    assert [[p.hint for p in f.params] for f in called(text)] == [["a"], ["a"]]


def test_equal_literals_of_different_kinds_are_told_apart() -> None:
    text = (
        "def f(a):\n    return a / 2\n\ndef g(a):\n    return a // 2\n"
        + KERNEL
        + "x[0] = g(7) + g(7.5) * 10 + f(True + 0)\n"
    )
    assert computed(text) == 3 + 30 + 0.5


def test_an_annotated_parameter_converts_a_literal() -> None:
    text = "def f(a: float) -> float:\n    return a\n" + KERNEL + "x[0] = f(3) + f(k[0])\n"
    assert computed(text) == 4


def test_several_results_come_back_as_a_tuple() -> None:
    text = (
        "def f(a):\n    return a, (a * 2, 7)\n"
        + KERNEL
        + "p, (q, r) = f(x[1])\n    x[0] = p + q * 10 + r * 100\n"
    )
    assert computed(text) == 2 + 40 + 700


def test_returns_at_any_depth_give_their_value() -> None:
    text = (
        """
def first_above(x: array[float], limit):
    for i in range(len(x)):
        if x[i] > limit:
            return i
    return -1
"""
        + KERNEL
        + "x[0] = first_above(x, 1.0) * 10 + first_above(x, 9.0)\n"
    )
    assert computed(text) == 9


def test_a_function_may_write_an_array_and_return_nothing() -> None:
    text = (
        "def put(x: array[float], i, v):\n    if i < 0:\n        return\n    x[i] = v\n"
        + KERNEL
        + "put(x, 0, 9.0)\n    put(x, -1, 1.0)\n"
    )
    assert computed(text) == 9


def test_a_function_may_take_a_function_a_type_and_a_builtin() -> None:
    text = (
        """
def twice(f, a):
    return f(f(a))
def half(a):
    return a / 2
"""
        + KERNEL
        + "x[0] = twice(half, x[1]) + twice(abs, -1.0) + twice(float, k[0])\n"
    )
    assert computed(text) == 0.5 + 1 + 1


def test_a_local_of_the_caller_is_unknown_in_the_function() -> None:
    text = "def f(a):\n    return a + secret\n" + KERNEL + "secret = 1.0\n    x[0] = f(secret)\n"
    assert error(text).message == "the name secret is not known here"


def test_literal_results_stay_weak() -> None:
    text = (
        "def third():\n    return 1.0 / 3.0\n"
        + KERNEL
        + "d[0] = third() * d[1]\n    x[0] = 1.0 if d[0] == 1.0 / 3.0 else 0.0\n"
    )
    assert computed(text) == 1.0


def test_returns_of_a_literal_and_a_number_agree() -> None:
    text = (
        "def f(a):\n    if a > 1:\n        return 0\n    return a\n" + KERNEL + "x[0] = f(x[0]) + f(x[1])\n"
    )
    assert computed(text) == 0.5


def test_a_mistake_in_a_function_is_told_once_where_it_is() -> None:
    text = (
        "def f(a):\n    return a + vec3(1.0)\n"
        + KERNEL
        + "x[0] = f(x[1])\n    x[1] = f(x[2])\n    x[2] = f(x[0])\n"
    )
    found = error(text)
    assert found.message == "cannot add float32 and vec3"
    assert found.span is not None
    assert found.span.line == 2


def test_a_kernel_that_calls_a_broken_function_is_not_compiled_and_others_are() -> None:
    text = (
        "def f(a):\n    return a + nothing\n"
        + KERNEL
        + "x[0] = f(x[1])\ndef other(x: array[float]):\n    x[0] = 1.0\n"
    )
    assert list(cell(text).definitions) == ["other"]


def test_a_function_whose_types_are_stated_is_checked_though_nobody_calls_it() -> None:
    assert (
        error("def f(a: float, v: vec3) -> float:\n    return a + v\n").message
        == "cannot add float32 and vec3"
    )


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("def f(a):\n    return f(a)\n" + KERNEL + "x[0] = f(x[1])\n", "f calls itself", 2),
        (
            "def f(a):\n    return g(a)\ndef g(a):\n    return f(a)\n" + KERNEL + "x[0] = f(x[1])\n",
            "f calls itself",
            4,
        ),
        (
            "def f(a):\n    if a > 0:\n        return a\n" + KERNEL + "x[0] = f(x[1])\n",
            "f returns a value on some paths only",
            1,
        ),
        (
            "def f(a, i):\n    if a > 0:\n        return a\n    return i\n"
            + KERNEL
            + "x[0] = f(x[1], k[0])\n",
            "the returned value is int32 here and float32 in line 3",
            4,
        ),
        (
            "def f(a):\n    return a, a\n" + KERNEL + "x[0] = f(x[1])\n",
            "x holds float32, not (float32, float32)",
            4,
        ),
        ("def f(a):\n    pass\n" + KERNEL + "x[0] = f(x[1])\n", "f(x[1]) returns nothing", 4),
        ("def f(a):\n    return a\n" + KERNEL + "x[0] = f()\n", "f needs a value for a", 4),
        ("def f(a):\n    return a\n" + KERNEL + "x[0] = f(1, 2)\n", "f takes 1 argument, not 2", 4),
        ("def f(a):\n    return a\n" + KERNEL + "x[0] = f(1, a=2)\n", "f gets two values for a", 4),
        ("def f(a):\n    return a\n" + KERNEL + "x[0] = f(b=2)\n", "f has no argument b", 4),
        (
            "def f(a: int):\n    return a\n" + KERNEL + "x[0] = f(x[0])\n",
            "the argument a of f is int32, not float32",
            4,
        ),
        (
            "def f(a: array[int]):\n    return a[0]\n" + KERNEL + "x[0] = f(x)\n",
            "the argument a of f is array[int32], not array[float32]",
            4,
        ),
        ("def f(a):\n    return tid()\n" + KERNEL + "x[0] = f(1)\n", "tid() stands in a kernel only", 2),
        ("def f(a) -> int:\n    return a\n" + KERNEL + "x[0] = f(x[0])\n", "f returns int32, not float32", 2),
        ("def f(a=nope):\n    return a\n" + KERNEL + "x[0] = f()\n", "the default raised NameError", 1),
        (
            "def f(a: vec199):\n    return a\n" + KERNEL + "x[0] = f(1)\n",
            "the name vec199 is not known here",
            1,
        ),
        (
            "def f(x):\n    return sin\n" + KERNEL + "y = f(x)\n",
            "a function cannot return the function sin",
            2,
        ),
    ],
)
def test_a_mistake_in_a_function_or_its_call_is_refused(text: str, message: str, line: int) -> None:
    found = errors(text)[0]
    assert found.message.startswith(message)
    assert found.span is not None
    assert found.span.line == line


def test_a_row_that_is_passed_on_has_the_dimensions_that_are_asked_for() -> None:
    text = "def f(r: array2d[float]):\n    return r[0, 0]\ndef kernel(a: array2d[float]):\n    f(a[1])\n"
    message = "the argument r of f is array2d[float32], not a row of a, array[float32]"
    assert error(text).message == message


def test_an_error_at_a_call_shows_the_definition() -> None:
    (related,) = error("def f(a):\n    return a\n" + KERNEL + "x[0] = f()\n").related
    assert (related.message, related.span.line) == ("f is defined here", 1)


def test_a_function_explains_itself_on_the_host() -> None:
    twice = cell('def twice(a, b=1):\n    """Two times a."""\n    return a * 2\n').definitions["twice"]
    assert isinstance(twice, UserFunction)
    assert (repr(twice), twice.__doc__) == ("<kernelab function twice(a, b)>", "Two times a.")
    with pytest.raises(KernelTypeError, match=r"takes 2 arguments, not 3\n(.*\n)*.*write twice\(a, b\)"):
        twice(1.0, 2, 3)


def test_a_cell_tells_kernels_from_functions() -> None:
    text = """
def kernel(x: array[float]):
    helper(x)
    x[0] = value(x[0])
def helper(x: array[float]):
    x[0] = 1.0
def value(a):
    return a
@func
def nothing(x: array[float]):
    pass
"""
    kinds = {name: type(definition) for name, definition in cell(text).definitions.items()}
    assert kinds == {
        "kernel": KernelDefinition,
        "helper": UserFunction,
        "value": UserFunction,
        "nothing": UserFunction,
    }


def test_a_function_of_any_type_is_made_for_the_types_of_each_call() -> None:
    text = """
from typing import Any

@func
def twice(a: Any) -> Any:
    return a + a

@func
def first(a: array(dtype=Any), k: "int") -> Any:
    return twice(a[k])

@func
def applied(f: Any, a: Any):
    return f(f(a))

def kernel(x: array[float], d: array[float64], v: array[vec2], n: array[int]):
    x[0] = first(x, 0) + float(twice(n[0]))
    d[0] = first(d, 0)
    v[0] = applied(twice, v[0])
"""
    given = {
        "x": np.ones(1, np.float32),
        "d": np.full(1, 3.0),
        "v": np.array([[1, 2]], np.float32),
        "n": np.array([5], np.int32),
    }
    after = ran(text, **given)
    assert (after["x"][0], after["d"][0], after["v"].tolist()) == (12.0, 6.0, [[4.0, 8.0]])


def test_a_generic_kernel_is_lowered_when_it_has_types() -> None:
    lowered = cell("def kernel(x: array[Any]):\n    x[0] = 1.5\n")
    made = lowered.definitions["kernel"]
    assert isinstance(made, GenericKernel)
    assert made.instantiate([Array(float64, 1)]).function.params[0].type == Array(float64, 1)
    with pytest.raises(KernelTypeError, match="x holds vec2d, not float"):
        made.instantiate([Array(Vec(float64, 2), 1)])


OVERLOADS = """
@func
def size(v: vec2):
    return length(v)

@func
def size(x: float) -> float:
    return abs(x)

@func
def size(n: int, scale: int = 2) -> int:
    return n * scale

@func
def size(a: array[float]):
    return size(a[0]) + float(size(len(a)))
"""


def test_of_several_functions_of_one_name_the_one_that_fits_is_called() -> None:
    text = (
        OVERLOADS
        + """
def kernel(x: array[float], v: array[vec2]):
    x[0] = size(v[0]) + size(-0.5) + float(size(3)) + size(x[1:])
    x[1] = float(size(4, scale=3)) + size(x[2])
"""
    )
    given = {"x": np.array([0, -2, -8], np.float32), "v": np.array([[3, 4]], np.float32)}
    assert ran(text, **given)["x"].tolist() == [5 + 0.5 + 6 + 2 + 4, 12 + 8, -8]


def test_the_overload_that_needs_no_default_is_called() -> None:
    with_default = "@func\ndef f(a: float, b: float = 2.0):\n    return a * b\n"
    without = "@func\ndef f(a: float):\n    return a\n"
    kernel = "def kernel(x: array[float]):\n    x[0] = f(3.0)\n    x[1] = f(3.0, 5.0)\n"
    for text in (with_default + without, without + with_default):
        assert ran(text + kernel, x=np.zeros(2, np.float32))["x"].tolist() == [3, 15]


def test_a_call_that_no_overload_fits_is_a_mistake() -> None:
    found = error(OVERLOADS + "def kernel(x: array[float], d: array[float64]):\n    x[0] = size(d[0])\n")
    assert found.message == "no size takes (float64)"
    assert found.related[0].message == "the first size is defined here"


@pytest.mark.parametrize(
    ("first", "second", "call", "shown"),
    [
        ("t: float", "t: float", "f(x[0])", "float32"),
        ("t: float", "t: float", "f(1.0)", "float"),
        ("t: float", "t: float", "f(1)", "int"),
        ("t: float", "other: float32", "f(x[0])", "float32"),
        ("t: float, u: float", "t: float, u: float = 2.0", "f(x[0], u=1.0)", "float32, float"),
        ("t: float, u: int = 2", "t: float, v: float = 2.0", "f(t=x[0])", "float32"),
        ("t: vec2", "t: vector(2, float)", "f(vec2(1.0, 2.0))", "vec2"),
        ("t: array[float]", "t: array1d[float]", "f(x)", "array[float32]"),
    ],
)
def test_a_call_that_two_overloads_fit_is_a_mistake(first: str, second: str, call: str, shown: str) -> None:
    defs = f"def f({first}):\n    return 1.0\ndef f({second}):\n    return -1.0\n"
    found = error(f"{defs}def kernel(x: array[float]):\n    x[0] = {call}\n")
    assert found.message == f"2 definitions of f take ({shown})"
    assert [(one.message, one.span.line) for one in found.related] == [
        ("one f is defined here", 1),
        ("one f is defined here", 3),
    ]


def test_a_call_that_only_one_of_two_overloads_fits_is_none() -> None:
    text = """
def f(t: float, u: float = 2.0) -> float:
    return 1.0
def f(t: float, v: int) -> float:
    return 2.0
def f(t: Any) -> float:
    return 3.0

def kernel(x: array[float]):
    x[0] = f(x[0], 1.0)
    x[1] = f(x[0], 1)
    x[2] = f(vec2(1.0, 2.0))
"""
    assert ran(text, x=np.zeros(3, np.float32))["x"].tolist() == [1.0, 2.0, 3.0]


def test_a_mistake_in_one_overload_is_told() -> None:
    text = "@func\ndef f(x: int):\n    return wrong\n@func\ndef f(x: float):\n    return x\n"
    assert error(text).message.startswith("the name wrong is not known")
