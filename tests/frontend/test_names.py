"""What names mean: local, cell, notebook's kernelab objects, the language, the notebook's numbers."""

import functools
import math
from typing import Any

import numpy as np
import pytest

from kernelab.builtins import scalar
from kernelab.errors import Source
from kernelab.frontend.definitions.cell import lower_source
from kernelab.frontend.definitions.functions import UserFunction
from kernelab.lang.ir import Const, Store
from kernelab.lang.types import named_types
from tests.frontend.helpers import cell, error, function, kernel


def stored(expression: str, **namespace: Any) -> bool | int | float:
    """The constant that a kernel stores."""
    lowered = function(f"def kernel(x: array[float64]):\n    x[0] = {expression}\n", **namespace)
    store = lowered.body.stmts[-1]
    assert isinstance(store, Store)
    assert isinstance(store.value, Const)
    return store.value.value


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("G", 9.81),
        ("G + 1", 10.81),
        ("COUNT * 2", 6),
        ("math.pi", math.pi),
        ("np.pi", math.pi),
        ("np.sin(1.0)", math.sin(1.0)),
        ("math.sqrt(2)", math.sqrt(2)),
        ("np.arctan2(1, 2)", math.atan2(1, 2)),
        ("np.maximum(1, 2)", 2),
        ("kl.sin(1.0)", math.sin(1.0)),
        ("wp.sin(1.0)", math.sin(1.0)),
        ("kernelab.sin(1.0)", math.sin(1.0)),
        ("hyperbolic(1.0)", math.tanh(1.0)),
        ("constant(4)", 4),
        ("kl.static(len([1, 2, 3]) * G)", 3 * 9.81),
        ("static(G)", 9.81),
        ("WIDE", 2.5),
        ("float64(WIDE)", 2.5),
        ("kl.float64(3)", 3),
        ("np.float64(3)", 3),
    ],
)
def test_a_name_outside_of_the_kernel_stands_for_its_value(expression: str, value: float) -> None:
    names = {
        "G": 9.81,
        "COUNT": 3,
        "math": math,
        "np": np,
        "hyperbolic": scalar.tanh,
        "WIDE": np.float64(2.5),
    }
    assert stored(expression, **names) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("imported", "expression", "value"),
    [
        ("from math import sin", "sin(1.0)", math.sin(1.0)),
        ("from math import exp as e", "e(1.0)", math.e),
        ("from numpy import arctan2, maximum", "arctan2(1.0, maximum(2.0, 1.0))", math.atan2(1, 2)),
        ("from numpy import round", "round(2.5)", 2.0),
    ],
)
def test_a_function_imported_by_its_name_means_what_it_does_with_the_name_of_its_module(
    imported: str, expression: str, value: float
) -> None:
    body = function(f"{imported}\ndef kernel(x: array[float64]):\n    x[0] = {expression}\n").body
    store = body.stmts[-1]
    assert isinstance(store, Store) and isinstance(store.value, Const)
    assert store.value.value == pytest.approx(value, rel=1e-15)


def test_one_imported_in_the_notebook_does_too_and_what_has_another_meaning_is_refused() -> None:
    assert stored("power(2.0, 3.0)", power=np.power) == 8.0
    told = error("from numpy import sign\ndef kernel(x: array[float64]):\n    x[0] = sign(x[1])\n")
    assert "numpy.sign has no meaning in a kernel: it is 0 at 0" in told.message


def test_one_that_wraps_a_function_of_numpy_does_not_mean_what_that_does() -> None:
    @functools.wraps(np.power)
    def power(x: float, y: float) -> float:
        return x

    told = error("def kernel(x: array[float64]):\n    x[0] = power(2.0, 3.0)\n", power=power)
    assert "power is a function of the notebook, which a kernel cannot use" in told.message


def test_a_word_of_the_language_is_not_hidden_by_a_number_of_the_notebook() -> None:
    assert (
        function("def kernel(x: array[vec3], o: array[float]):\n    o[0] = length(x[0])\n", length=5).name
        == "kernel"
    )


def test_a_constant_of_the_cell_comes_before_the_notebook() -> None:
    lowered = cell("G = 2.0\ndef kernel(x: array[float]):\n    x[0] = G\n", G=1.0)
    assert lowered.assigned == {"G": 2.0}
    assert stored("G", G=1.0) == 1.0


def test_a_local_name_hides_what_it_is_made_of() -> None:
    lowered = function("def kernel(x: array[int]):\n    tid = tid()\n    x[tid] = tid\n")
    assert [var.hint for var in lowered.threads] == ["tid"]


def test_a_prefix_and_an_alias_name_types_too() -> None:
    text = (
        "def kernel(x: kl.array[wp.vec3], y: array(dtype=Point), s: kernelab.float32):\n    y[0] = s * x[0]\n"
    )
    assert [str(p.type) for p in kernel(text, Point=named_types()["vec3"]).function.params] == [
        "array[vec3]",
        "array[vec3]",
        "float32",
    ]


def test_a_small_numpy_array_is_a_constant_vector() -> None:
    text = "def kernel(x: array[vec3], m: array[mat22]):\n    x[0] = UP * 2\n    m[0] = M\n"
    captured = kernel(text, UP=np.array([0, 0, 1], np.float32), M=np.eye(2, dtype=np.float32)).captured
    assert sorted(captured) == ["M", "UP"]


def test_captured_values_are_listed_and_unused_ones_are_not() -> None:
    text = "def half(a):\n    return a * H\ndef kernel(x: array[float]):\n    x[0] = half(x[1]) + math.pi\n"
    assert kernel(text, H=0.5, G=9.81, math=math).captured == {"H": 0.5, "math.pi": math.pi}


def test_a_function_of_an_earlier_cell_can_be_called() -> None:
    earlier = cell("def twice(a):\n    return a * 2\n").definitions["twice"]
    assert isinstance(earlier, UserFunction)
    assert kernel("def kernel(x: array[float]):\n    x[0] = twice(x[1])\n", twice=earlier).name == "kernel"


def test_a_function_keeps_the_values_that_the_notebook_had_when_its_cell_ran() -> None:
    notebook = {"G": 2.0, "Point": named_types()["vec2"]}
    text = "def scaled(a):\n    return a * G\ndef first(p: 'Point'):\n    return p.x\n"
    definitions = lower_source(Source(text, "Cell In[1]"), notebook).definitions
    notebook |= {"G": 3.0}
    del notebook["Point"]
    use = "def kernel(x: array[float64]):\n    x[0] = scaled(1.5)\n    x[1] = float64(first(vec2(4.0)))\n"
    store = function(use, **notebook, **definitions).body.stmts[0]
    assert isinstance(store, Store)
    assert isinstance(store.value, Const)
    assert store.value.value == 3.0


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("x[0] = sine(x[1])", "the name sine is not known here", "did you mean sin?"),
        ("x[0] = Vec3(1.0).x", "the name Vec3 is not known here", "did you mean vec3?"),
        ("speed = 1.0\n    x[0] = spede", "the name spede is not known here", "did you mean speed?"),
        ("x[0] = GRAVTY", "the name GRAVTY is not known here", "did you mean GRAVITY?"),
        ("x[0] = helpr(x[1])", "the name helpr is not known here", "did you mean helper?"),
        ("x[0] = zzzzqqqq", "the name zzzzqqqq is not known here", "run the cell that defines it first"),
        ("x[0] = sum(x)", "the name sum is not known here", "write a loop"),
        ("x[0] = random.random()", "the name random is not known here", "rand_init(seed, i)"),
        ("x[0] = norm(vec2(x[0], 1.0))", "the name norm is not known here", "length(v)"),
        ("x[0] = kl.sine(1.0)", "kl has no sine", "did you mean sin?"),
        ("x[0] = math.pie", "math has no pie", "did you mean pi?"),
        ("x[0] = data[0]", "data is a list of the notebook, which a kernel cannot use", "numbers"),
        (
            "x[0] = table[0]",
            "table is a NumPy array of shape (200,), which a kernel cannot use",
            "array argument",
        ),
        ("x[0] = plain(1.0)", "plain is a function of the notebook, which a kernel cannot use", "@func"),
        ("x[0] = static(nope)", "static(...) raised NameError: name 'nope' is not defined", ""),
        ("x[0] = static('text')", "static(...) gives str, which a kernel cannot use", "number"),
        ("x[0] = tid", "tid is the function tid, not an index", "write tid()"),
        ("x[0] = math", "x holds float32, not the module math", ""),
        ("x[0] = x[1].real", "float32 has no real", ""),
        ("x[0] = x.length", "array[float32] has no length", "write len(x)"),
        ("x[0] = GRAVITY(1)", "GRAVITY is float, not a function", ""),
        ("x[0] = other(x)", "other is a kernel: a kernel cannot call another", "@func"),
        ("GRAVITY[0] = 1.0", "GRAVITY[0] cannot be assigned", ""),
        ("y = unknown_type(3)", "the name unknown_type is not known here", ""),
    ],
)
def test_a_name_that_means_nothing_here_is_refused_with_what_may_have_been_meant(
    line: str, message: str, hint: str
) -> None:
    other = cell("def other(x: array[float]):\n    pass\n").definitions["other"]
    names = {
        "GRAVITY": 9.81,
        "math": math,
        "data": [1],
        "table": np.zeros(200),
        "plain": _plain,
        "other": other,
    }
    text = f"def helper(a):\n    return a\ndef kernel(x: array[float]):\n    {line}\n"
    found = error(text, **names)
    assert found.message.startswith(message)
    assert hint in found.hint


def _plain(a: float) -> float:
    return a


@pytest.mark.parametrize(
    ("annotation", "type"),
    [
        ("float", "float32"),
        ("int", "int32"),
        ("bool", "bool"),
        ("uint8", "uint8"),
        ("float64", "float64"),
        ("np.float64", "float64"),
        ("vec3", "vec3"),
        ("mat44d", "mat44d"),
        ("'float'", "float32"),
        ("array[float]", "array[float32]"),
        ("array[vec3]", "array[vec3]"),
        ("array2d[float]", "array2d[float32]"),
        ("array[float, 3]", "array3d[float32]"),
        ("array(dtype=float)", "array[float32]"),
        ("array(dtype=float, ndim=2)", "array2d[float32]"),
        ("array2d(dtype=mat22)", "array2d[mat22]"),
        ("wp.array4d(dtype=wp.float64)", "array4d[float64]"),
        ("'array[vec2]'", "array[vec2]"),
    ],
)
def test_an_annotation_names_a_type(annotation: str, type: str) -> None:
    assert str(kernel(f"def kernel(a: {annotation}):\n    pass\n", np=np).function.params[0].type) == type


@pytest.mark.parametrize(
    ("annotation", "message", "hint"),
    [
        ("flaot", "the name flaot is not known here", "did you mean float?"),
        ("array", "array does not say what its elements are", "write array[float]"),
        ("array[array[float]]", "an array cannot hold arrays", "write array2d[float32]"),
        ("array(ndim=2)", "an array annotation takes dtype and ndim", "write array(dtype=float, ndim=2)"),
        ("array(dtype=float, ndim=7)", "an array has 1 to 4 dimensions, not 7", ""),
        ("array(dtype=float, ndim=n)", "ndim is a number from 1 to 4", ""),
        ("sin", "sin is the function sin, not a type", "float, int, vec3"),
        ("3", "3 is not a type", "float, int, vec3"),
        ("'not a type'", "'not a type' is not a type", "float, int, vec3"),
        ("float[3]", "the type float32 takes nothing in brackets", "array[float]"),
    ],
)
def test_an_annotation_that_names_no_type_is_refused(annotation: str, message: str, hint: str) -> None:
    found = error(f"def kernel(a: {annotation}):\n    pass\n")
    assert found.message.startswith(message)
    assert hint in found.hint


@pytest.mark.parametrize(
    ("body", "proposal"),
    [
        ("x[tid()] = 1.0", "write a: float"),
        ("x[0] = a[0]", "write a: array[float]"),
        ("x[0] = a[0, 1]", "write a: array2d[float]"),
        ("x[0] = a.shape[0]", "write a: array[float]"),
    ],
)
def test_an_argument_without_a_type_is_refused_with_a_proposal(body: str, proposal: str) -> None:
    found = error(f"def kernel(a, x: array[float]):\n    {body}\n")
    assert found.message == "the argument a of the kernel kernel has no type"
    assert found.hint == proposal
