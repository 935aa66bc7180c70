"""Listings: what they say is what the program does, and they say it the way a person would."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from kernelab.codegen.listing.listing import Listing, listing
from kernelab.lang.build import FALSE, TRUE, Builder, constant, integer
from kernelab.lang.ir import Atom, Function, Var, While
from kernelab.lang.types import Array, bool_, float32, is_differentiable
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.copying import widen
from kernelab.passes.common.simplify import simplify
from tests.strategies import COLUMNS, ROWS, plain_programs
from tests.support import zoo
from tests.support.evaluate import evaluate
from tests.support.lowering import lowered
from tests.support.reading import read

pytestmark = pytest.mark.slow

Arguments = dict[str, Any]


def active_of(function: Function) -> list[str]:
    return [param.hint for param in function.params if is_differentiable(param.type)]


def adjoint_of(text: str, name: str) -> Listing:
    primal = lowered(text, name)
    return listing(vjp(primal, active_of(primal)).adjoint)


# ---- golden texts


SHOWN = [zoo.SPRING, zoo.PRODUCT, zoo.NEWTON, zoo.IN_PLACE, zoo.STENCIL]


@pytest.mark.parametrize("animal", SHOWN, ids=lambda animal: animal.name)
def test_the_adjoint_reads_like_this(animal: zoo.Animal, golden: Callable[[str, str], None]) -> None:
    golden(f"listing/{animal.name}_adjoint", str(adjoint_of(animal.text, animal.name)))


# ---- a listing means what the program means


def copies(arguments: Arguments) -> Arguments:
    return {name: np.array(value) if np.ndim(value) else value for name, value in arguments.items()}


def run_both(function: Function, grid: tuple[int, ...], arguments: Arguments) -> Arguments:
    """Run the program and its listing; the residuals of the first, once both are known to agree."""
    given = {param.hint: arguments[param.hint] for param in function.params if param.hint in arguments}
    meant, told = copies(given), copies(given)
    kept, said = evaluate(function, grid, meant), read(listing(function), function, grid, told)
    text = str(listing(function))
    for name, value in meant.items():
        np.testing.assert_allclose(told[name], value, rtol=1e-9, atol=1e-12, err_msg=f"{name} of\n{text}")
    for name in kept.keys() - {"starts"}:
        np.testing.assert_allclose(said[name], kept[name], err_msg=f"{name} of\n{text}")
    residuals: Arguments = {name: np.array(values) for name, values in kept.items() if name != "starts"}
    starts = {name: np.array([start[name] for start in kept["starts"]]) for name in residuals}
    return residuals | {name.replace("residual", "starts"): value for name, value in starts.items()} | meant


def check_all_programs(primal: Function, grid: tuple[int, ...], arguments: Arguments) -> None:
    wide = simplify(widen(primal))
    active = active_of(wide)
    rng = np.random.default_rng(1)
    run_both(wide, grid, arguments)
    program = vjp(wide, active)
    after = run_both(program.primal, grid, arguments)
    bars = {f"{name}_bar": rng.normal(size=np.shape(arguments[name]) or 1) for name in active}
    run_both(program.adjoint, grid, {**after, **bars})
    dots = {f"{name}_dot": rng.normal(size=np.shape(arguments[name]))[()] for name in active}
    run_both(jvp(wide, active), grid, {**arguments, **dots})


# NumPy's `*` is not a product of matrices, so that animal's text cannot be run as it stands.
ANIMALS = [animal for animal in vars(zoo).values() if isinstance(animal, zoo.Animal)]
READABLE = [animal for animal in ANIMALS if animal.name != "matrix_chain"]


@pytest.mark.parametrize("animal", READABLE, ids=lambda animal: animal.name)
def test_the_text_run_as_python_does_what_the_program_does(animal: zoo.Animal) -> None:
    drawn = animal.draw(np.random.default_rng(0))
    arguments = {
        name: value.astype(np.float64) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value
        for name, value in drawn.items()
    }
    check_all_programs(lowered(animal.text, animal.name), animal.grid, arguments)


@pytest.mark.long
@given(plain_programs())
@settings(max_examples=40)
def test_the_text_of_any_program_run_as_python_does_what_the_program_does(text: str) -> None:
    rng = np.random.default_rng(0)
    arguments = {
        "x": rng.uniform(-1, 1, ROWS + COLUMNS),
        "n": rng.integers(0, COLUMNS, ROWS).astype(np.int32),
        "a": rng.uniform(-1, 1, (ROWS, COLUMNS)),
        "out": np.zeros((ROWS, COLUMNS)),
    }
    check_all_programs(lowered(text, "program"), (ROWS,), arguments)


# ---- how it is said

SWAP = """
def swap(n: int, out: array[float]):
    a = 0.0
    b = 1.0
    for k in range(n):
        a, b = b, a + b
    out[0] = a
"""
SHIFT = """
def shift(a: array[float]):
    i = tid()
    left = a[i]
    a[i] = a[i + 1]
    a[i + 1] = left
"""


def body(text: str, name: str) -> list[str]:
    return [line.text for line in listing(lowered(text, name)).lines if not line.is_comment][1:]


def one_liner(expression: str) -> str:
    """The expression as the listing shows it, stored by a kernel whose operands are a, b, c and n."""
    text = f"\ndef f(a: float, b: float, c: float, n: int, out: array[float]):\n    out[0] = {expression}\n"
    return body(text, "f")[0].removeprefix("    out[0] = ")


@pytest.mark.parametrize(
    "expression",
    [
        "a - (b - c)",
        "a - b - c",
        "(a + b) * c",
        "a + b * c",
        "-a * b",
        "-(a + b)",
        "a / (b * c)",
        "(a ** b) ** c",
        "a ** b ** c",
        "(-a) ** b",
        "-a ** b",
        "a if b < c else c",
        "(a if b < c else c) * 2.0",
        "0.1 + a * 1e-30",
        "float(n // (n - 2))",
        "sin(a + b)",
    ],
)
def test_an_expression_has_only_the_parentheses_it_needs(expression: str) -> None:
    assert one_liner(expression) == expression


def test_values_that_change_places_are_assigned_together() -> None:
    assert "        a, b = b, a + b" in body(SWAP, "swap")


def test_a_value_read_before_it_is_overwritten_keeps_a_line_of_its_own() -> None:
    assert body(SHIFT, "shift")[1:] == ["    left = a[i]", "    a[i] = a[i + 1]", "    a[i + 1] = left"]


def test_every_line_says_which_source_line_it_comes_from() -> None:
    lines = adjoint_of(zoo.SPRING.text, "spring").lines
    told = {line.source_line: line.text for line in lines if line.is_comment}
    assert told[4] == "    # line 4: d = length(x[i] - x[i + 1]) - rest"
    assert told[5] == "    # line 5: atomic_add(energy, 0, 0.5 * d * d)"
    assert {line.source_line for line in lines if "x_bar[i" in line.text} == {4}
    assert None not in {line.source_line for line in lines}


def test_the_listing_says_what_each_loop_saves() -> None:
    (saving,) = adjoint_of(zoo.PRODUCT.text, "product").savings
    assert (saving.names, saving.bytes, saving.size) == (("p",), 4, "4 bytes an iteration")
    assert saving.loop is not None
    assert saving.loop.line == 5
    assert adjoint_of(zoo.STENCIL.text, "stencil").savings == ()


STOP_ON_THE_OLD_VALUE = """
def climb(x: array[float], out: array[float]):
    s = 0.0
    for k in range(8):
        before = s
        s = s + x[k]
        if before > 1.0:
            break
    out[0] = s
"""


def test_what_ends_a_loop_is_not_overwritten_before_it_is_tested() -> None:
    check_all_programs(
        lowered(STOP_ON_THE_OLD_VALUE, "climb"), (1,), {"x": np.full(8, 0.4), "out": np.zeros(1)}
    )


def choosing_loop(after: Callable[[Builder, Var], Atom]) -> Function:
    """``while True``: an If yields a value and whether to stop, then comes what `after` writes."""
    builder = Builder()
    out, value, stop = Var(Array(float32, 1), "out"), Var(float32, "value"), Var(bool_)
    with builder.block() as body:
        more = builder.apply("lt", value, constant(3.0, float32))
        bigger = builder.apply("add", value, constant(1.0, float32))
        chosen, done = builder.select(more, lambda: (bigger, FALSE), lambda: (value, TRUE))
        assert isinstance(chosen, Var)
        last = after(builder, chosen)
    results = (Var(float32, "value"), Var(bool_))
    inits = (constant(0.0, float32), FALSE)
    builder.emit(While(results, (value, stop), inits, 1, body.close(last, done)))
    builder.store(out, [integer(0)], results[0])
    return Function("choosing", (out,), builder.close())


def test_a_statement_that_reads_what_an_if_yields_stays_behind_it() -> None:
    double = choosing_loop(lambda builder, chosen: builder.apply("mul", chosen, constant(2.0, float32)))
    run_both(double, (1,), {"out": np.zeros(1)})
    assert "        if stop" not in str(listing(choosing_loop(lambda _, chosen: chosen)))


LEAVES_ON_WHAT_IT_READ = """
def program(x: array[float64], n: array[int], a: array2d[float64], out: array2d[float64]):
    i = tid()
    m = i % 3
    w = x[i]
    a[i, 0] *= cos(w)
    for k in range(0, m + 2, 2):
        w = sin(a[i, -1 - m % 4])
        if w > 0.9:
            m = i
        elif a[i, 2] >= -0.2:
            break
    out[i, 1] += w * x[i]
"""


def test_what_ends_a_loop_is_read_before_what_it_reads_is_assigned_anew() -> None:
    rng = np.random.default_rng(3)
    arguments = {
        "x": rng.normal(size=ROWS + COLUMNS),
        "n": np.zeros(ROWS, np.int32),
        "a": rng.normal(size=(ROWS, COLUMNS)),
        "out": np.zeros((ROWS, COLUMNS)),
    }
    check_all_programs(lowered(LEAVES_ON_WHAT_IT_READ, "program"), (ROWS,), arguments)
