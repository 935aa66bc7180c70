"""A cell: what may stand in it, what its decorators say, and that one broken def leaves the others alone."""

import numpy as np
import pytest

from kernelab.frontend.definitions.functions import UserFunction
from kernelab.frontend.definitions.kernels import KernelDefinition
from tests.frontend.helpers import cell, error, errors, kernel

GOOD = "def kernel(x: array[float]):\n    x[0] = 1.0\n"


def test_imports_and_constants_of_a_cell_become_names() -> None:
    lowered = cell(
        "'''Doc.'''\nimport math\nfrom math import pi as half_turn\nG = 2 * half_turn\nN: int = 3\n" + GOOD
    )
    assert lowered.errors == ()
    assert sorted(lowered.assigned) == ["G", "N", "half_turn", "math"]
    assert lowered.assigned["G"] == pytest.approx(6.283185)


def test_a_constant_of_a_cell_may_use_the_notebook() -> None:
    assert cell("H = G / 2\n" + GOOD, G=4.0).assigned == {"H": 2.0}


def test_a_cell_does_not_change_the_notebook() -> None:
    notebook = {"G": 1.0}
    cell("G = 2.0\n" + GOOD, **notebook)
    assert notebook == {"G": 1.0}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("print(1)", "a kernel cell holds defs, imports and constants only"),
        ("for i in range(3):\n    pass", "a kernel cell holds defs, imports and constants only"),
        ("x[0] = 3", "a kernel cell holds defs, imports and constants only"),
        ("G += 1", "a kernel cell holds defs, imports and constants only"),
        ("G = missing", "this line raised NameError: name 'missing' is not defined"),
        ("import no_such_module", "this line raised ModuleNotFoundError: No module named 'no_such_module'"),
        ("class Point(Base):\n    pass", "the struct Point cannot inherit from a class"),
        ("@jit\ndef f(x: array[float]):\n    pass", "the decorator @jit is not known here"),
        ("def kernel(x: array[float]):\n    pass", "kernel is defined twice in this cell"),
    ],
)
def test_what_does_not_belong_into_a_cell_is_refused_and_its_kernels_are_kept(
    line: str, message: str
) -> None:
    lowered = cell(GOOD + line + "\n")
    (found,) = lowered.errors
    assert found.message == message
    assert list(lowered.definitions) == ["kernel"]


def test_a_kernel_that_uses_a_constant_that_failed_is_not_reported_again() -> None:
    assert len(errors("G = missing\ndef kernel(x: array[float]):\n    x[0] = G\n")) == 1


def test_the_error_of_a_second_definition_shows_the_first() -> None:
    (related,) = error(GOOD + GOOD).related
    assert related.span.line == 1


@pytest.mark.parametrize(
    "decorator", ["@kernel", "@kl.kernel", "@wp.kernel()", "@kernelab.kernel(enable_backward=FLAG)"]
)
def test_a_decorator_makes_a_kernel(decorator: str) -> None:
    options = kernel(decorator + "\n" + GOOD, FLAG=False).options
    assert options == ({"enable_backward": False} if "FLAG" in decorator else {})


def test_options_that_mean_nothing_here_are_taken() -> None:
    text = '@wp.kernel(module="unique", module_options={"max_unroll": 4}, grid_stride=False)\n' + GOOD
    assert kernel(text).options == {}
    assert kernel('@wp.kernel(module_options={"enable_backward": False})\n' + GOOD).options == {
        "enable_backward": False
    }


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ("enabel_backward=False", "kernel has no option enabel_backward", "did you mean enable_backward?"),
        (
            "module_options={'fast_mth': 1}",
            "module_options has no option fast_mth",
            "did you mean fast_math?",
        ),
    ],
)
def test_an_unknown_option_is_refused(options: str, message: str, hint: str) -> None:
    found = error(f"@kernel({options})\n" + GOOD)
    assert (found.message, found.hint) == (message, hint)


def test_a_decorated_kernel_returns_nothing() -> None:
    found = error("@kernel\ndef kernel(x: array[float]):\n    return x[0]\n")
    assert (found.message, found.span and found.span.line) == ("a kernel cannot return a value", 3)


def test_a_decorated_kernel_cannot_be_called() -> None:
    text = "@kernel\ndef first(x: array[float]):\n    pass\ndef second(x: array[float]):\n    first(x)\n"
    assert error(text).message == "first is a kernel: a kernel cannot call another"


def test_an_argument_of_a_kernel_may_have_a_number_as_default() -> None:
    head = "def kernel(x: array[float], n: int, dt: float = 2 * STEP, g: vec2 = (0.0, -9.8)):"
    text = f"STEP = 0.25\n{head}\n    x[0] = dt\n"
    found = kernel(text)
    assert found.names == ("x", "n", "dt", "g")
    assert found.defaults == {"dt": 0.5, "g": (0.0, -9.8)}
    wrong = error("def kernel(x: array[float], dt: float = 'fast'):\n    x[0] = dt\n")
    assert wrong.message == "a default has to be a number"
    broken = error("def kernel(x: array[float], dt: float = 1 / 0):\n    x[0] = dt\n")
    assert broken.message == "the default raised ZeroDivisionError: division by zero"


def test_a_default_has_the_value_of_a_constant_at_the_def_as_in_python() -> None:
    head = "(y: array[float], by: float = 10.0 * SCALE, also: float = LATER):\n    y[0] = by\n"
    helper = "def scaled(v: float, by: float = SCALE):\n    return v * by\n"
    text = f"SCALE = 2.0\n{helper}def first{head}SCALE = 3.0\nLATER = 0.5\ndef second{head}"
    for notebook, later in (({}, 0.5), ({"SCALE": 7.0, "LATER": 0.25}, 0.25)):
        made = cell(text, **notebook)
        first, second, scaled = (made.definitions[name] for name in ("first", "second", "scaled"))
        assert isinstance(first, KernelDefinition) and first.defaults == {"by": 20.0, "also": later}
        assert isinstance(second, KernelDefinition) and second.defaults == {"by": 30.0, "also": 0.5}
        assert isinstance(scaled, UserFunction) and scaled.default_values() == {"by": 2.0}


def test_a_kernel_knows_its_text_its_place_and_its_documentation() -> None:
    found = kernel('\n\ndef kernel(x: array[float]):\n    """Set x."""\n    x[0] = 1.0\n')
    assert (found.name, found.doc, str(found.span)) == ("kernel", "Set x.", "Cell In[3], line 3")
    assert found.source.line(5) == "    x[0] = 1.0"


def test_a_kernel_may_do_nothing() -> None:
    assert kernel("def kernel():\n    pass\n").function.body.stmts == ()


def test_a_cell_with_no_def_gives_nothing() -> None:
    assert cell("").definitions == {}


def test_one_broken_kernel_leaves_the_others() -> None:
    lowered = cell("def broken(x: array[float]):\n    x[0] = y\n" + GOOD)
    assert list(lowered.definitions) == ["kernel"]
    assert isinstance(lowered.definitions["kernel"], KernelDefinition)
    assert len(lowered.errors) == 1


def test_lowering_again_gives_new_functions() -> None:
    assert kernel(GOOD).function is not kernel(GOOD).function


def test_numpy_numbers_keep_their_type() -> None:
    found = error("def kernel(x: array[float]):\n    x[0] = x[1] * W\n", W=np.float64(2))
    assert found.message == "cannot multiply float32 by float64"


@pytest.mark.parametrize(
    "line",
    [
        " + ".join(["x[i]"] * 900),
        "(" * 150 + "x[i]" + ")" * 150 + " * 2.0" + " + 1.0" * 600,
    ],
    ids=["a long sum", "a deep expression"],
)
def test_what_nests_too_deeply_is_refused_in_a_sentence(line: str) -> None:
    text = f"def k(x: array[float]):\n    i = tid()\n    x[i] = {line}\n"
    (found,) = cell(text).errors
    assert "nests too deeply" in found.message
    assert "split long chains" in found.hint
