"""Derivatives as textbooks write them: their text run as Python is the derivative that runs."""

import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from matplotlib.mathtext import MathTextParser

import kernelab as kl
from kernelab.codegen.listing.listing import Line, Listing, listing
from kernelab.lang.ir import Call, Function, walk
from kernelab.lang.types import is_differentiable
from kernelab.lang.verify import verify
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.textbook import textbook_adjoint, textbook_tangent
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.copying import lay_out, widen
from kernelab.passes.common.simplify import simplify
from kernelab.views.kernel.kernel_facts import view
from kernelab.views.pages.display import View
from tests.strategies import COLUMNS, ROWS, plain_programs
from tests.support import zoo
from tests.support.evaluate import evaluate
from tests.support.lowering import raw
from tests.support.reading import read, read_textbook

Arguments = dict[str, Any]


def active_of(function: Function) -> list[str]:
    return [param.hint for param in function.params if is_differentiable(param.type)]


def copies(arguments: Arguments, function: Function) -> Arguments:
    names = (param.hint for param in function.params)
    return {
        n: np.array(arguments[n]) if np.ndim(arguments[n]) else arguments[n] for n in names if n in arguments
    }


def what_runs(primal: Function, grid: tuple[int, ...], arguments: Arguments, bars: Arguments) -> Arguments:
    """What the simplified programs leave in all arrays: the primal, and then the adjoint."""
    program = vjp(simplify(primal), active_of(primal))
    after = copies(arguments, program.primal)
    kept = evaluate(program.primal, grid, after)
    residuals: Arguments = {name: np.array(values) for name, values in kept.items() if name != "starts"}
    starts = {name: np.array([start[name] for start in kept["starts"]]) for name in residuals}
    starts = {name.replace("residual", "starts"): value for name, value in starts.items()}
    swept = copies({**after, **residuals, **starts, **bars}, program.adjoint)
    evaluate(program.adjoint, grid, swept)
    return {**after, **{name: swept[name] for name in bars}}


def check(primal: Function, grid: tuple[int, ...], arguments: Arguments) -> None:
    wide = widen(lay_out(primal))
    active = active_of(wide)
    rng = np.random.default_rng(1)
    bars = {f"{name}_bar": rng.normal(size=np.shape(arguments[name]) or 1) for name in active}
    meant = what_runs(wide, grid, arguments, bars)
    book = textbook_adjoint(wide, active)
    verify(book.function)
    text = listing(book.function, book.reverse)
    told = copies({**arguments, **bars}, book.function)
    read_textbook(text, book.function, grid, told)
    for name, value in told.items():
        np.testing.assert_allclose(value, meant[name], rtol=1e-9, atol=1e-12, err_msg=f"{name} of\n{text}")
    dots = {f"{name}_dot": rng.normal(size=np.shape(arguments[name]))[()] for name in active}
    check_tangent(wide, grid, {**arguments, **dots})


def check_tangent(wide: Function, grid: tuple[int, ...], arguments: Arguments) -> None:
    running = jvp(simplify(wide), active_of(wide))
    meant = copies(arguments, running)
    evaluate(running, grid, meant)
    tangent = textbook_tangent(wide, active_of(wide))
    verify(tangent)
    told = copies(arguments, tangent)
    read(listing(tangent), tangent, grid, told)
    for name, value in told.items():
        np.testing.assert_allclose(value, meant[name], rtol=1e-9, atol=1e-12, err_msg=str(listing(tangent)))


ANIMALS = [animal for animal in vars(zoo).values() if isinstance(animal, zoo.Animal)]
READABLE = [animal for animal in ANIMALS if animal.name != "matrix_chain"]  # its `*` is not NumPy's


@pytest.mark.parametrize("animal", READABLE, ids=lambda animal: animal.name)
def test_the_text_run_as_python_is_the_derivative_that_runs(animal: zoo.Animal) -> None:
    drawn = animal.draw(np.random.default_rng(0))
    arguments = {
        name: value.astype(np.float64) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value
        for name, value in drawn.items()
    }
    check(raw(animal.text, animal.name), animal.grid, arguments)


@pytest.mark.long
@given(plain_programs())
@settings(max_examples=40)
def test_the_text_of_any_program_run_as_python_is_the_derivative_that_runs(text: str) -> None:
    rng = np.random.default_rng(0)
    arguments = {
        "x": rng.uniform(-1, 1, ROWS + COLUMNS),
        "n": rng.integers(0, COLUMNS, ROWS).astype(np.int32),
        "a": rng.uniform(-1, 1, (ROWS, COLUMNS)),
        "out": np.zeros((ROWS, COLUMNS)),
    }
    check(raw(text, "program"), (ROWS,), arguments)


# ---- how it is said

SQUARE = """
def square(x: float):
    return x * x

def twice(x: array[float], y: array[float]):
    i = tid()
    s = square(x[i])
    y[i] = s * s + s
"""


def book_of(text: str, name: str) -> list[str]:
    function = raw(text, name)
    book = textbook_adjoint(function, active_of(function))
    return [line.text.strip() for line in listing(book.function, book.reverse).lines]


def test_each_use_adds_its_share_by_itself() -> None:
    lines = book_of(SQUARE, "twice")
    assert [line for line in lines if "+=" in line] == [
        "v3_bar += y_bar[i]",
        "v2_bar += v3_bar",
        "s_bar += v3_bar",
        "s_bar += v2_bar * s",
        "s_bar += v2_bar * s",
        "v1_bar += s_bar * v1",
        "v1_bar += s_bar * v1",
        "x_bar[i] += v1_bar",
    ]


SURROGATE = """
@func
def clipped(x: float, top: float):
    return min(x, top)

@func_grad(clipped, check=False)
def clipped_grad(x: float, top: float, adj_ret: float):
    adjoint[x] += 3.0 * adj_ret

def uses(x: array[float], n: int, y: array[float]):
    i = tid()
    for k in range(n):
        y[i] = clipped(x[i], 1.0) * y[i]
"""


def test_a_custom_derivative_is_one_share() -> None:
    kernel = kl.compile(SURROGATE)["uses"]
    lines = [line.text.strip() for line in kernel.textbook(["x", "y"]).adjoint.lines]
    assert any("3.0" in line for line in lines), "\n".join(lines)
    only_x = str(kernel.textbook("x"))
    assert only_x == str(kernel.textbook(["x"]))
    assert "x_bar[i] += " in only_x and "y_bar[i] = 0.0" in only_x


def test_a_function_has_seeds_and_yields_the_cotangents_of_its_parameters() -> None:
    function = next(s.function for s in walk(raw(SQUARE, "twice").body) if isinstance(s, Call))
    book = textbook_adjoint(function, ["x"])
    text = str(listing(book.function, book.reverse))
    names: dict[str, Any] = {}
    exec(text.replace(": float", ""), names)
    assert names["square_adjoint"](3.0, 2.0) == (9.0, 12.0)


# ---- LaTeX

ANIMAL_KERNELS = [(animal.text, animal.name) for animal in ANIMALS]


def compiles(latex: str) -> None:
    """Each row is mathematics for Matplotlib, which knows most of amsmath but no `aligned`."""
    first, *rows, last = latex.splitlines()
    assert (first, last) == (r"\begin{aligned}", r"\end{aligned}")
    for row in rows:
        text = row.removesuffix(r" \\").removeprefix("&")
        text = text.replace(r"\mathrel", "").replace(r"\textbf", r"\mathbf").replace(r"\mathtt", r"\mathrm")
        parses(re.sub(r"\d+", "1", text))


@cache
def parses(latex: str) -> None:
    """Parsing is slow, and many rows differ in their numbers alone."""
    MathTextParser("path").parse(f"${latex}$")


@pytest.mark.long
@pytest.mark.parametrize(("text", "name"), ANIMAL_KERNELS, ids=[name for _, name in ANIMAL_KERNELS])
def test_every_program_is_latex_too(text: str, name: str) -> None:
    derivation = kl.compile(text)[name].textbook()
    for shown in (derivation.adjoint, derivation.running, derivation.tangent):
        assert shown is not None
        compiles(shown.latex)


@pytest.mark.parametrize(
    ("python", "latex"),
    [
        ("v3_bar += cos(v1) * v4_bar", r"\bar{v}_3 \mathrel{+}= \cos(v_1)\,\bar{v}_4"),
        ("x_bar[i + 1] += -(a / b)", r"\bar{x}_{i + 1} \mathrel{+}= -\frac{a}{b}"),
        ("energy_dot = 2.0 * (a + b) * 3.0", r"\dot{\mathit{energy}} = 2\,(a + b) \cdot 3"),
        (
            "y = sqrt(x) if x > 1e-07 else -x ** 2",
            r"y = \sqrt{x}\;\mathrm{if}\;x > 1 \cdot 10^{-7}\;\mathrm{else}\;-{x}^{2}",
        ),
        ("alpha_bar_2 = dot(u, v1[0])", r"\bar{\alpha}_2 = u \cdot v_1[0]"),
        ("for k in reversed(range(n + 1)):", r"\textbf{for } k = n + 1 - 1, \dots, 0\textbf{:}"),
    ],
)
def test_a_line_reads_like_this(python: str, latex: str) -> None:
    made = Listing("f", (Line("def f():"), Line(f"    {python}")))
    assert made.latex == f"\\begin{{aligned}}\n&{latex}\n\\end{{aligned}}"
    compiles(made.latex)


# ---- where it is shown


def test_a_view_shows_it_beside_what_runs() -> None:
    shown = str(View(view(kl.compile(SQUARE)["twice"], ("textbook",))))
    assert "adjoint as in a textbook" in shown and "v3_bar += y_bar[i]" in shown
    assert "\nadjoint\n" in shown and "    return x * x" in shown


def test_a_derivation_is_text_markdown_and_latex() -> None:
    derivation = kl.compile(SQUARE)["twice"].textbook()
    assert "x_bar[i] += v1_bar" in str(derivation)
    assert derivation.markdown.count("```python") == 3 and derivation.latex in derivation.markdown
    assert "adjoint that runs" in derivation._repr_mimebundle_()["text/plain"]


def test_a_kernel_without_an_adjoint_says_why() -> None:
    kernel = kl.compile("def count(n: array[int]):\n    n[tid()] = 1\n")["count"]
    assert "no parameter is a float" in str(View(view(kernel, ("textbook",))))


def test_a_function_of_numbers_has_them_too() -> None:
    function = kl.compile("def g(x: float, y: float):\n    return x * y + sin(x)\n")["g"]
    text = str(function.textbook())
    assert [line.strip() for line in text.splitlines() if "_bar[0] +=" in line] == [
        "x_bar[0] += v2_bar * cos(x)",
        "x_bar[0] += v1_bar * y",
        "y_bar[0] += v1_bar * x",
    ]
    assert "y_bar" not in str(function.textbook(["x"]))
    assert r"\bar{x}_0 \mathrel{+}= \bar{v}_2\,\cos(x)" in function.textbook().latex
