"""What threads keep, known before they run: as much as they then do, or more where they may do with less."""

import pytest

from kernelab.backend.needs import Needs, needs
from kernelab.codegen.entry import layout_of
from kernelab.lang.ir import Function
from kernelab.passes.scalarise import scalarise
from kernelab.passes.vjp import vjp
from tests.support.lowering import lowered


def of(function: Function, grid: tuple[int, ...], **numbers: int) -> Needs | None:
    """The needs of a launch over arrays of 10 elements an axis."""
    function = scalarise(function)
    layout = layout_of(function)
    slots = [*grid, *[1] * (4 - len(grid)), *[10] * (layout.slots - 4)]
    for param in layout.params:
        if param.name in numbers:
            slots[param.slot] = numbers[param.name]
    return needs(function, layout, slots)


def adjoint(loop: str) -> Function:
    """The adjoint of a kernel whose loop body keeps `v` each time."""
    text = f"""
def looped(x: wp.array[float], n: int, m: int, c: wp.array[int], b: wp.array[wp.uint8],
           y: wp.array[float]):
    i = wp.tid()
    v = x[i]
{loop}
    y[i] = v
"""
    return vjp(lowered(text, "looped"), ["x", "y"]).adjoint


def nested(*heads: str) -> str:
    lines = [f"{'    ' * (k + 1)}{head}:" for k, head in enumerate(heads)]
    return "\n".join([*lines, f"{'    ' * (len(heads) + 1)}v = wp.sin(v) + 0.1"])


FLOAT = 4
LOOPS = {
    "an argument": ("for k in range(n)", 7 * FLOAT, True),
    "no iteration": ("for k in range(0 * n)", 0, True),
    "an extent": ("for k in range(x.shape[0] - 2)", 8 * FLOAT, True),
    "the smaller of two": ("for k in range(wp.min(n, m))", 5 * FLOAT, True),
    "parts of a number": ("for k in range(n // 2 + n % 4)", 6 * FLOAT, True),
    "the thread's own number": ("for k in range(i + n)", (99 + 7) * FLOAT, False),
    "what stands in an array": ("for k in range(c[i])", None, False),
    "what an array says if it is small": ("for k in range(wp.min(c[i], n))", 7 * FLOAT, False),
    "what an array says within bounds": ("for k in range(wp.clamp(c[i], 2, m) + 1)", 6 * FLOAT, False),
    "what an array of bytes says": ("for k in range(int(b[i]))", 255 * FLOAT, False),
    "until something happens": ("for k in range(wp.where(v > 1.0, c[i], n) % 6)", 5 * FLOAT, False),
}


@pytest.mark.parametrize("what", LOOPS)
def test_the_count_of_a_loop_says_what_it_keeps(what: str) -> None:
    head, arena, exact = LOOPS[what]
    found = of(adjoint(nested(head)), (100,), n=7, m=5)
    assert found == (None if arena is None else Needs(arena, {}, exact))


def test_nested_loops_multiply() -> None:
    one, two = (
        of(adjoint(nested("for k in range(n)", "for j in range(m)")), (9,), n=n, m=5) for n in (7, 14)
    )
    assert one is not None and two is not None and two.arena == 2 * one.arena >= 2 * 7 * 5 * FLOAT


def test_a_branch_may_be_taken_or_not() -> None:
    found = of(
        adjoint("    if x[i] > 0.0:\n" + nested("for k in range(n)").replace("    ", "        ")), (9,), n=7
    )
    assert found is not None and found.arena >= 7 * FLOAT and not found.exact


def test_what_is_overwritten_is_counted_by_residual() -> None:
    text = """
def advance(x: wp.array[float], n: int):
    i = wp.tid()
    for k in range(n):
        x[i] = wp.sin(x[i])
    x[i] *= x[i]
"""
    found = of(vjp(lowered(text, "advance"), ["x"]).primal, (9,), n=6)
    assert found is not None and sorted(found.residuals.values()) == [1, 6] and found.exact


def test_a_number_that_wraps_around_is_not_known() -> None:
    assert of(adjoint(nested("for k in range(n * m)")), (9,), n=2**30, m=8) is None


def test_a_negative_count_is_none() -> None:
    assert of(adjoint(nested("for k in range(n - m)")), (9,), n=2, m=8) == Needs(0, {}, True)
