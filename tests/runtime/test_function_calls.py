"""Functions for kernels, called from Python."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl

TEXT = """
class Body:
    mass: float
    at: vec3

def g(x: float, y: float):
    return x * y + sin(x)

def wide(x: float64):
    return x / 3.0

def turned(m: mat22, v: vec2):
    return m * v, length(v)

def moved(body: Body, by: vec3) -> Body:
    made = body
    made.at = body.at + by * body.mass
    return made

def nested(x: float, y: float = 2.0):
    return g(x, y) + g(y, x)

def loose(x, y):
    return x * y

def squares(x: array[float]) -> float:
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * x[i]
    return total

def twice(f: Any, x: float):
    return f(f(x))

def one(x: float):
    return 1.0

@func_native("return x * x;", "adj_x += 2.0f * x * adj_ret;")
def native(x: float) -> float: ...
"""


@pytest.fixture(scope="module", name="made")
def _made() -> dict[str, Any]:
    return dict(kl.compile(TEXT))


def test_numbers_give_a_number_of_the_type_that_is_returned(made: dict[str, Any]) -> None:
    result = made["g"](2.0, 3.0)
    assert type(result) is np.float32
    assert result == pytest.approx(6.0 + np.sin(2.0), rel=1e-6)
    assert type(made["wide"](1.0)) is np.float64
    assert made["wide"](1.0) == 1.0 / 3.0


def test_arguments_have_names_and_defaults(made: dict[str, Any]) -> None:
    assert made["g"](y=3, x=2) == made["g"](2.0, 3.0)
    assert made["nested"](1.0) == made["nested"](1.0, y=2.0) == pytest.approx(4.0 + np.sin(1.0) + np.sin(2.0))


def test_vectors_and_matrices_go_in_and_come_out(made: dict[str, Any]) -> None:
    vector, norm = made["turned"](kl.mat22(0.0, 1.0, 2.0, 0.0), kl.vec2(3.0, 4.0))
    assert (vector, norm) == (kl.vec2(4.0, 6.0), 5.0)
    assert made["turned"](np.eye(2), (3.0, 4.0))[0] == kl.vec2(3.0, 4.0)


def test_structs_go_in_and_come_out(made: dict[str, Any]) -> None:
    body = made["Body"](mass=2.0, at=(1.0, 0.0, 0.0))
    moved = made["moved"](body, (0.0, 1.0, 0.0))
    assert isinstance(moved, made["Body"])
    assert (moved.mass, tuple(moved.at)) == (2.0, (1.0, 2.0, 0.0))
    moved.mass = 3.0  # a value of its own
    assert body.mass == 2.0


def test_types_follow_from_the_arguments_where_none_are_stated(made: dict[str, Any]) -> None:
    assert (made["loose"](2, 3), type(made["loose"](2, 3))) == (6, np.int32)
    assert type(made["loose"](2.0, 3.0)) is np.float32
    assert type(made["loose"](np.float64(2.0), 3.0)) is np.float64
    assert made["loose"](kl.vec2(1.0, 2.0), 2.0) == kl.vec2(2.0, 4.0)


def test_a_function_takes_a_function(made: dict[str, Any]) -> None:
    half = kl.compile("def half(x: float):\n    return 0.5 * x\n")["half"]
    assert made["twice"](half, 8.0) == 2.0
    assert made["twice"](kl.sqrt, 16.0) == 2.0


def test_a_constant_result_and_cpp_are_called_too(made: dict[str, Any]) -> None:
    assert made["one"](5.0) == 1.0
    assert made["native"](3.0) == 9.0


def test_the_definition_is_chosen_by_the_arguments() -> None:
    text = "def f(x: float):\n    return 1\n\ndef f(x: vec2):\n    return 2\n"
    f: Any = kl.compile(text)["f"]
    assert (f(1.0), f(kl.vec2(1.0, 2.0))) == (1, 2)
    with pytest.raises(kl.KernelError, match="function `f` has no definition for"):
        f(1.0, 2.0)
    text += "\ndef f(x: float):\n    return 3\n"
    with pytest.raises(kl.KernelError, match=r"function `f` has 2 definitions for the float 1.0"):
        kl.compile(text)["f"](1.0)


def test_arrays_for_numbers_are_gone_through(made: dict[str, Any]) -> None:
    x = kl.array([2.0, 3.0], dtype=float)
    assert made["g"](x, 3.0).list() == [made["g"](2.0, 3.0), made["g"](3.0, 3.0)]
    assert made["g"](x.numpy(), 3.0).shape == (2,)


def test_of_an_array_the_result_is_an_array_that_a_tape_differentiates(made: dict[str, Any]) -> None:
    x = kl.array([2.0, 3.0], dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        total = made["squares"](x)
    tape.backward(total)
    assert (total.list(), x.grad.list()) == ([13.0], [4.0, 6.0])


def test_a_decorated_function_of_arrays_is_what_kernels_compute() -> None:
    @kl.func
    def cube(x: float) -> float:
        return x * x * x

    @kl.func_grad(cube, check=False)
    def adj_cube(x: float, adj_ret: float) -> None:
        kl.adjoint[x] += 7.0 * adj_ret

    x = kl.array([2.0], dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        y = cube(x)
    tape.backward(y)
    assert (cube(2.0), y.list(), x.grad.list()) == (8.0, [8.0], [7.0])


def test_a_wrong_argument_is_named_with_its_function(made: dict[str, Any]) -> None:
    with pytest.raises(
        kl.KernelTypeError, match=r"argument `x` of function `g` expects a float32, not the text"
    ):
        made["g"]("2", 3.0)
    with pytest.raises(kl.KernelTypeError, match=r"argument `body` of function `moved` expects a Body"):
        made["moved"](1.0, (0.0, 0.0, 0.0))


@pytest.mark.parametrize("given", [kl.ones(3), np.ones((3, 2))])
def test_a_mistake_says_that_an_array_without_a_type_is_gone_through(given: Any) -> None:
    made = kl.compile("def mean(x, scale: float):\n    return x[0] * scale / float(len(x))")
    kind = "array[float32]" if given.ndim == 1 else "array2d[float64]"
    with pytest.raises(kl.KernelError) as refused:
        made["mean"](given, given)
    notes = [related.message for related in refused.value.diagnostics[0].related]
    assert notes == [f"`x` is one element here; for the whole write x: {kind}:"]
