"""`kl.teach.check`: what passes, what does not, and what a student reads."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import KernelValueError

NAMES = kl.compile("""
def f(x: float, y: float):
    return x * y + sin(x)

def double(x: array[float], y: array[float]):
    y[tid()] = 2.0 * x[tid()]

def halve(x: array[float], y: array[float]):
    y[tid()] = 0.5 * x[tid()]
""")
f, double, halve = NAMES["f"], NAMES["double"], NAMES["halve"]


def right(x: float, y: float) -> tuple[float, float]:
    return y + math.cos(x), x


def test_a_gradient_by_hand_is_compared_with_differences(capsys: pytest.CaptureFixture[str]) -> None:
    kl.teach.check(right, of=f, at=[(2.0, 3.0), (0.0, 1.0)])
    kl.teach.check(right, of=lambda x, y: x * y + math.sin(x), at=[(2.0, 3.0)])
    assert "✓ right is right at 2 of 2 points" in capsys.readouterr().out
    with pytest.raises(
        kl.teach.NotYet, match=r"at 2, 3 it is \(2.58385, 3\), and has to be \(2.58385, 2\) by"
    ):
        kl.teach.check(lambda x, y: (y + math.cos(x), 3.0), of=f, at=[(2.0, 3.0)])
    kl.teach.check(lambda x: 2 * x, of=lambda x: float(x @ x), at=[np.array([1.0, -2.0, 0.0])])
    kl.teach.check(lambda x: 2.0 * x, of=lambda x: (x * x).sum(), at=[kl.array([1.0, -2.0, 3.0])])


def test_hints_come_one_by_one_and_a_blank_gets_the_first() -> None:
    hints = ["look at y", "swap them", "it is y + cos(x), x"]
    for _ in range(2):
        with pytest.raises(kl.teach.NotYet, match=r"swapped is still blank\n  write .*\n  hint: look at y$"):
            kl.teach.check(..., 1.0, hints=hints, name="swapped")

    def swapped(x: float, y: float) -> tuple[float, float]:
        return x, y + math.cos(x)

    said = []
    for _ in range(4):
        with pytest.raises(kl.teach.NotYet) as error:
            kl.teach.check(swapped, of=f, at=[(2.0, 3.0)], hints=hints)
        said.append(str(error.value))
    assert "hint: look at y\n  (run this cell again for the next hint)" in said[0]
    assert "earlier hint: look at y" in said[1]
    assert "hint: swap them" in said[1]
    assert said[2] == said[3]
    assert said[2].endswith("hint: it is y + cos(x), x")


@pytest.mark.parametrize("result", [..., (..., 1.0), (None, 1.0)])
def test_a_function_that_returns_a_gap_is_blank(result: object) -> None:
    with pytest.raises(kl.teach.NotYet, match="still blank"):
        kl.teach.check(lambda x, y: result, of=f, at=[(2.0, 3.0)])


def test_a_function_whose_return_was_forgotten_hears_of_it() -> None:
    def slope(x: float) -> None:
        result = 2.0 * x  # noqa: F841

    with pytest.raises(kl.teach.NotYet, match=r"slope returns nothing yet; the value after `return`"):
        kl.teach.check(slope, of=lambda x: x * x, at=[1.0])


def test_a_function_that_nbgrader_has_emptied_is_blank() -> None:
    def emptied(x: float) -> float:
        raise NotImplementedError

    with pytest.raises(kl.teach.NotYet, match="emptied is still blank"):
        kl.teach.check(emptied, math.sin, at=[1.0])


def test_a_kernel_is_compared_with_a_function_or_a_kernel_and_changes_nothing() -> None:
    x, y = kl.array([1.0, 2.0, 3.0]), kl.zeros(3)
    kl.teach.check(double, lambda x: 2 * x, dim=3, inputs=[x], outputs=[y])
    kl.teach.check(double, double, dim=3, inputs=[x], outputs=[y])
    assert y.list() == [0.0, 0.0, 0.0]
    with pytest.raises(kl.teach.NotYet, match=r"`y` is \(0.5, 1, 1.5\), and has to be \(2, 4, 6\)"):
        kl.teach.check(halve, double, dim=3, inputs=[x], outputs=[y])


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (1.0, 2.0),
        (0.0, 1e-3),
        ("left", "right"),
        (True, False),
        (1, "one"),
        (math.nan, 1.0),
        ([1.0], (1.0, 2.0)),
        ((1.0, np.ones(2)), (1.0, np.ones(2), np.ones(3))),
        ([1.0, 0.0, 0.0, 1.0], np.eye(2)),
    ],
)
def test_two_values_are_the_same_or_not(answer: object, expected: object) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kl.teach.check(expected, expected)
        with pytest.raises(kl.teach.NotYet, match="and has to be"):
            kl.teach.check(answer, expected)


def test_values_may_be_arrays_of_any_kind() -> None:
    kl.teach.check(kl.array([1.0, 2.0]), np.array([1.0, 2.0]))
    kl.teach.check(np.float32(0.5), kl.array([0.5]))
    kl.teach.check([1, 2], np.array([1.0, 2.0]))
    kl.teach.check(np.eye(2), ([1.0, 0.0], [0.0, 1.0]))
    with pytest.raises(kl.teach.NotYet, match=r"it is \(1, 3\), and has to be \(1, 2\)$"):
        kl.teach.check([1, 3], np.array([1.0, 2.0]))
    with pytest.raises(kl.teach.NotYet, match="of shape"):
        kl.teach.check(np.zeros(7), np.ones(7))


@pytest.mark.parametrize(
    "at", [[0.5, 1.0], np.linspace(0.0, 1.0, 3), kl.array([0.5, 1.0]), 0.5, np.float32(0.5)]
)
def test_points_are_a_list_or_an_array_or_one_number(at: Any) -> None:
    kl.teach.check(math.cos, of=math.sin, at=at)
    with pytest.raises(kl.teach.NotYet, match=r"at 0\.5 it is"):
        kl.teach.check(math.tan, math.cos, at=at)


def test_a_kernel_that_writes_to_no_output_is_not_right() -> None:
    x, y = kl.ones(2), kl.zeros(2)
    other = kl.compile("def other(y: array[float], x: array[float]):\n    y[tid()] = x[tid()]\n")["other"]
    with pytest.raises(kl.teach.NotYet, match="other writes to no output yet"):
        kl.teach.check(other, lambda x: 0.0 * x, dim=2, inputs=[x], outputs=[y])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kl.teach.check(right, of=f), r"no point to compare at\n  hint: write at=\[0.5, 2.0\]"),
        (lambda: kl.teach.check(right, f), r"no point to compare at\n  hint: write at=\[0.5, 2.0\]"),
        (lambda: kl.teach.check(right), r"nothing to compare with\n  hint: write check\(answer, expected\)"),
        (lambda: kl.teach.check(right, right, of=right, at=1.0), "two things to compare with"),
        (lambda: kl.teach.check(2.0, of=right, at=[1.0]), "compared at points, and the float 2.0 is none"),
        (lambda: kl.teach.check(right, of=lambda x: (x, x), at=1.0), r"of= returns a tuple, and has to"),
        (lambda: kl.teach.check(right, of=lambda x: x * x, at=[np.ones(2)]), "returns a NumPy array"),
        (lambda: kl.teach.check(lambda x: np.nan, of=lambda x: np.nan, at=2.0), "at 2 are not finite"),
        (lambda: kl.teach.check(1.0, 1.0, tolerance=np.nan), "tolerance=nan is not a share of a number"),
        (
            lambda: kl.teach.check(
                double, lambda x: (x, x), dim=2, inputs=[kl.ones(2)], outputs=[kl.zeros(2)]
            ),
            r"1 output to compare with 2 results\n  hint: write outputs=\[...\]",
        ),
        (lambda: kl.teach.chek, r"kernelab.teach has no chek\n  hint: did you mean check\?"),
    ],
)
def test_a_check_that_says_too_little_is_told_what_to_write(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(kl.KernelError, match=message):
        call()


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (INF, INF),
        ([NAN, 1.0], [NAN, 1.0]),
        (1000.0, 1000.5),
        (1e-9, 0.0),
        (np.float32(1e6 + 0.0625), 1e6),
        ([1e6, 0.05], [1e6, 0.0]),
        (2.0, 2),
        (np.array([1, 4]), [1, 4]),
    ],
)
def test_values_that_pass(found: Any, expected: Any) -> None:
    kl.teach.check(found, expected)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (5.0, INF),
        (-INF, INF),
        (1e300, INF),
        (INF, 1e300),
        (0.5, NAN),
        (NAN, 0.5),
        ([5.0, 1.0], [INF, 2.0]),
        ([1e6, 0.0], [1e6, 0.5]),
        (1000, 1001),
        (2**60, 2**60 + 1),
        ([1.0, 2.0], [1.0, 2.0, 3.0]),
    ],
)
def test_values_that_do_not_pass(found: Any, expected: Any) -> None:
    with pytest.raises(kl.teach.NotYet):
        kl.teach.check(found, expected)


@pytest.mark.parametrize(
    "launched", [{"dim": 0, "outputs": [kl.zeros(3)]}, {"dim": (2, 0), "outputs": [kl.zeros(3)]}, {"dim": 3}]
)
def test_a_kernel_that_writes_nothing_cannot_be_compared(launched: dict[str, Any]) -> None:
    with pytest.raises(
        kl.errors.KernelValueError, match=r"there is nothing that the kernel writes\n  hint: write dim=n"
    ):
        kl.teach.check(halve, double, inputs=[kl.ones(3)], **launched)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [([[1, 2], [3, 4]], [1, 2, 3, 4]), ([1, [2, 3]], [[1, 2], 3]), (([1.0], 2.0, 3.0), ([1.0, 2.0], [3.0]))],
)
def test_lists_of_other_lists_are_not_the_same(answer: Any, expected: Any) -> None:
    with pytest.raises(kl.teach.NotYet):
        kl.teach.check(answer, expected)
    kl.teach.check(answer, answer)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (np.complex128(1 + 2j), 1.0),
        (np.complex128(1 + 2j), 1 + 3j),
        (np.False_, True),
        (np.array([True, False]), [True, True]),
        (1, True),
        ({"a": np.ones(2)}, {"a": np.zeros(2)}),
        ({"a": 1.0}, {"b": 1.0}),
        ({"a": 1.0}, 1.0),
    ],
)
def test_complex_numbers_truth_values_and_dicts_are_compared_as_a_whole(answer: Any, expected: Any) -> None:
    with pytest.raises(kl.teach.NotYet):
        kl.teach.check(answer, expected)
    kl.teach.check(answer, answer)
    kl.teach.check(np.True_, True)


def test_what_a_check_cannot_compare_is_said() -> None:
    x = kl.array([0.5, 1.0], requires_grad=True)
    with pytest.raises(KernelValueError, match="the function of= returns several arrays"):
        kl.teach.check(lambda x: x.numpy(), of=lambda x: (kl.map(kl.sin, x), kl.map(kl.cos, x)), at=[x])
    kernel = kl.compile("def f(x: array[float], y: array[float]):\n    y[tid()] = x[tid()]")["f"]
    with pytest.raises(KernelValueError, match="a kernel is compared with what a reference returns"):
        kl.teach.check(kernel, of=lambda x: x, dim=2, inputs=[x], outputs=[kl.zeros(2)])


def doubled_in_place(x: Any) -> Any:
    x *= 2.0
    return x


def test_functions_get_arrays_of_their_own() -> None:
    points = [np.array([1.0, 2.0]), kl.array([1.0, 2.0])]
    with pytest.raises(kl.teach.NotYet, match="0 of 2 agree"):
        kl.teach.check(lambda x: x, doubled_in_place, at=points)
    kl.teach.check(doubled_in_place, doubled_in_place, at=points)
    text = "def k(x: array[float], y: array[float]):\n    i = tid()\n    y[i] = 2.0 * x[i]"
    doubled = kl.compile(text)["k"]
    kl.teach.check(doubled, doubled_in_place, dim=2, inputs=points[1:], outputs=[kl.zeros(2)])
    assert [list(each) for each in points] == [[1.0, 2.0]] * 2


def test_one_hint_may_stand_alone() -> None:
    with pytest.raises(kl.teach.NotYet, match=r"hint: the chain rule$"):
        kl.teach.check(1.0, 2.0, hints="the chain rule", name="one hint")


def test_a_function_that_takes_other_arguments_is_told_how_it_is_called() -> None:
    def of_two(x: float, y: float) -> float:
        return x * y

    def of_one(x: float) -> float:
        return x

    with pytest.raises(
        kl.teach.NotYet, match="of_two is called with 1 argument here: missing a required argument: 'y'"
    ):
        kl.teach.check(of_two, of=of_one, at=[1.0])
    with pytest.raises(kl.KernelValueError, match="the function to compare with is called with 1 argument"):
        kl.teach.check(of_one, of=of_two, at=[1.0])
    with pytest.raises(kl.KernelValueError, match="the function to compare with is called with 1 argument"):
        kl.teach.check(of_one, of_two, at=[1.0])
    with pytest.raises(
        kl.KernelValueError, match=r"(?s)the reference is called with 1 argument.*hint: it takes the inputs"
    ):
        kl.teach.check(double, of_two, dim=2, inputs=[kl.ones(2)], outputs=[kl.zeros(2)])
    with pytest.raises(kl.KernelValueError, match="called with 1 argument here: 'x' is not a callable"):
        kl.teach.check(of_one, of="x", at=[1.0])  # type: ignore[arg-type]
