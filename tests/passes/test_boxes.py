"""Boxes: never smaller than what a launch touches, and small where the text tells where that is.

Programs with random indices run on the plain evaluator, which notes each access: it must lie in the box that
was computed before; and of an array that is called settled nothing that was read may change later.
"""

import random
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.lang import ir
from kernelab.lang.ir import Function
from kernelab.lang.show import show
from kernelab.lang.types import Array
from kernelab.passes.access.access_regions import Box, Situation, regions
from kernelab.passes.access.independence import contests
from kernelab.passes.common.simplify import forward
from tests.support import evaluate as evaluator
from tests.support.derivatives import active_names
from tests.support.zoo import ZOO, Animal

Touch = tuple[str, str, tuple[int, ...]]
"""The name of an array, "read" or "change", and the indices of the element."""


@contextmanager
def noting(arrays: Collection[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Touch]]:
    """Within it, the evaluator notes what it touches of the named arrays, in order."""
    touches: list[Touch] = []

    class Noting(evaluator._Thread):
        def stmt(self, stmt: ir.Stmt) -> None:
            super().stmt(stmt)  # an access outside of the array ends here
            if isinstance(stmt, ir.Load | ir.Store | ir.Atomic) and stmt.array.hint in arrays:
                shape = self.env[stmt.array].shape
                place = self.place(stmt.array, stmt.indices)
                found = tuple(i % n for i, n in zip(place, shape, strict=False))
                if not isinstance(stmt, ir.Store) and stmt.held is None:
                    touches.append((stmt.array.hint, "read", found))
                if not isinstance(stmt, ir.Load):
                    touches.append((stmt.array.hint, "change", found))

    with monkeypatch.context() as patch:
        patch.setattr(evaluator, "_Thread", Noting)
        yield touches


def situation(function: Function, grid: tuple[int, ...], arguments: dict[str, Any]) -> Situation:
    given: dict[int, Any] = {}
    for i, param in enumerate(function.params):
        if param.hint in arguments:
            value = arguments[param.hint]
            is_array = isinstance(param.type, Array)
            given[i] = SimpleNamespace(shape=value.shape[: param.type.ndim]) if is_array else value
    return Situation((*grid, *(1,) * (4 - len(grid))), given)


def boxes(function: Function, kind: str, here: Situation) -> dict[str, Box | None]:
    found = regions(function, kind)
    return {function.params[i].hint: region.box(here) for i, region in found.items() if i in here.arguments}


def single_boxes(function: Function, kind: str, here: Situation) -> dict[str, tuple[Box, ...]]:
    found = regions(function, kind)
    return {function.params[i].hint: region.boxes(here) for i, region in found.items() if i in here.arguments}


def holds(box: Box | None, place: tuple[int, ...]) -> bool:
    if box is None:
        return False
    axes = zip(box, place, strict=True)
    return all(
        first <= i < first + count * step and (i - first) % step == 0 for (first, count, step), i in axes
    )


def run_and_check(
    function: Function, grid: tuple[int, ...], arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> list[Touch]:
    here = situation(function, grid, arguments)
    # A launch may end early: what it did before counts.
    with noting(arguments, monkeypatch) as touches, suppress(IndexError, evaluator.Stopped):
        evaluator.evaluate(function, grid, arguments)
    for kind in ("read", "change"):
        known, single = boxes(function, kind, here), single_boxes(function, kind, here)
        for name, how, place in touches:
            if how == kind and name in known:
                told = show(function), name, kind, place, known[name], single[name], here
                assert holds(known[name], place) and any(holds(one, place) for one in single[name]), told
    return touches


# ------------------------------------------------------------------------- random indices


def draw_index(rng: random.Random, leaves: list[str], depth: int = 2) -> str:
    if depth == 0 or rng.random() < 0.3:
        return rng.choice([*leaves, *leaves, str(rng.randint(-2, 4)), "n", "m", "x.shape[0]"])
    a, b = (draw_index(rng, leaves, depth - 1) for _ in "ab")
    few = rng.randint(1, 4)
    return rng.choice(
        [
            f"({a} + {b})",
            f"({a} - {b})",
            f"({a} + {rng.randint(-3, 3)})",
            f"({few} * {a})",
            f"({a} * {b})",
            f"({a} // {few})",
            f"({a} % {few + 2})",
            f"({a} // n)",
            f"min({a}, {b})",
            f"max({a}, {b})",
            f"clamp({a}, 0, {few + 3})",
            f"({a} if {b} > {rng.randint(0, 3)} else {b})",
            f"(-{a})",
        ]
    )


def draw_condition(rng: random.Random, leaves: list[str]) -> str:
    a, b = (draw_index(rng, leaves, 1) for _ in "ab")
    plain = f"{a} {rng.choice(['<', '<=', '>', '>=', '==', '!='])} {b}"
    match rng.randint(0, 7):
        case 6:
            return f"{a} % {rng.randint(1, 4)} {rng.choice(['==', '==', '!='])} {b}"
        case 7:
            return f"{rng.randint(2, 4)} * {plain}"
        case 0:
            return f"not ({plain})"
        case 1:
            return f"{plain} and {draw_condition(rng, leaves)}"
        case 2:
            return f"{plain} or {draw_condition(rng, leaves)}"
        case _:
            return plain


def draw_kernel(rng: random.Random, name: str) -> str:
    threads = rng.choice([["i"], ["i", "j"]])
    lines = [f"def {name}(x: array2d[float64], n: int, m: int):", f"    {', '.join(threads)} = tid()"]
    leaves, indent = [*threads], "    "
    lines.append("    w = int(0)")
    if rng.random() < 0.6:
        steps = rng.choice(["n", "5, -1, -1", "m, 6", "1, 6, 2", f"min({draw_index(rng, leaves, 1)}, 5)"])
        lines.append(f"{indent}for k in range({steps}):")
        leaves, indent = [*leaves, "k", "k"], indent + "    "
        if rng.random() < 0.3:
            lines.append(f"{indent}for l in range(k, 4):")
            leaves, indent = [*leaves, "l", "l"], indent + "    "
    steps: list[str] = []
    if rng.random() < 0.4:
        indent, steps = draw_while(rng, lines, leaves, indent)
        leaves += ["w", "w"]
    around = indent
    if rng.random() < 0.5:
        lines.append(f"{indent}if {draw_condition(rng, leaves)}:")
        indent += "    "
    for _ in range(rng.randint(1, 2)):
        shift, leaf = rng.randint(-2, 2), rng.choice(leaves)
        from_row, to_row = rng.choice(
            [
                (draw_index(rng, leaves), draw_index(rng, leaves)),
                (leaf, f"{leaf} + {shift}"),
                (f"2 * {leaf}", f"2 * {leaf} + {shift}"),
                (f"n - {leaf}", f"n - {leaf} - {shift}"),
                ("n", f"n + {shift}"),
                ("n", "m"),
            ]
        )
        columns = rng.choice([("i", "i"), (draw_index(rng, leaves, 1), draw_index(rng, leaves, 1))])
        lines.append(f"{indent}x[{to_row}, {columns[1]}] = x[{from_row}, {columns[0]}] + 1.0")
    lines += [f"{around}{step}" for step in steps]
    if steps and rng.random() < 0.3:
        lines.append("    x[w, w + 1] = x[w - 1, w] + 1.0")
    return "\n".join(lines) + "\n"


def draw_while(rng: random.Random, lines: list[str], leaves: list[str], indent: str) -> tuple[str, list[str]]:
    """A loop that counts w up or down, as it is often written, and what ends its body."""
    up = rng.random() < 0.6
    start, bound = draw_index(rng, leaves, 1), draw_index(rng, leaves, 1)
    step = rng.choice(["1", "1", "2", "3", "m"])
    if rng.random() < 0.2:
        bound += " - w"
    ahead = rng.choice(["w", "w", "2 * w", "w + 1"]) + rng.choice([" < ", " <= "] if up else [" > ", " >= "])
    change, guard = f"w {'+' if up else '-'}= {step}", ahead + bound
    lines += [f"{indent}w = {start}", f"{indent}rounds = int(0)"]
    body = indent + "    "
    more = draw_condition(rng, [*leaves, "w"])
    also = rng.random() < 0.3
    match rng.randint(0, 4):
        case 0:
            lines.append(f"{indent}while {guard}{f' and ({more})' if also else ''}:")
            return body, [change]
        case 1:
            lines += [f"{indent}while {guard}:", f"{body}{change}"]
            return body, []
        case 2:
            lines += [f"{indent}while True:", f"{body}if not ({guard}):", f"{body}    break"]
            return body, [change]
        case 3:
            lines += [f"{indent}while rounds < 9:", f"{body}rounds += 1"]
            return body, [change, f"if not ({guard}){f' or {more}' if also else ''}:", "    break"]
        case _:
            lines += [f"{indent}while {guard}:", f"{body}if {more}:"]
            lines += [f"{body}    {change}", f"{body}    continue"]
            return body, [change]


COUNT, LAUNCHES = 220, 6
SHAPE = (7, 6)


@pytest.fixture(scope="module")
def drawn() -> dict[str, Any]:
    rng = random.Random(11)
    text = "\n".join(draw_kernel(rng, f"kernel_{i}") for i in range(COUNT))
    made: dict[str, Any] = kl.compile(text)
    return made


@pytest.mark.long
def test_random_indices_stay_in_their_boxes(drawn: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(12)
    small = settled = 0
    for kernel in drawn.values():
        function = forward(kernel.primal)
        rank, contested = len(function.threads), kernel.program.contests
        for _ in range(LAUNCHES):
            grid = tuple(rng.randint(1, 5) for _ in range(rank))
            arguments = {
                "x": np.zeros(SHAPE),
                "n": np.int32(rng.randint(-2, 5)),
                "m": np.int32(rng.randint(1, 5)),
            }
            here = situation(function, grid, arguments)
            found = boxes(function, "read", here).get("x")
            small += found is None or sum(count for _, count, _ in found) < sum(SHAPE)
            is_settled = 0 in contested and all(one.settled(here, here) for one in contested[0])
            settled += is_settled
            touches = run_and_check(function, grid, arguments, monkeypatch)
            if is_settled:
                changed: set[tuple[int, ...]] = set()
                for _, kind, place in reversed(touches):
                    assert kind == "change" or place not in changed
                    changed |= {place} if kind == "change" else set()
    assert small > COUNT * LAUNCHES / 4
    assert settled > COUNT * LAUNCHES / 10


@pytest.mark.parametrize("animal", ZOO, ids=lambda animal: animal.name)
def test_the_zoo_stays_in_its_boxes(animal: Animal, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel: Any = kl.compile(animal.text)[animal.name]
    arguments = {name: np.array(value) for name, value in animal.draw(np.random.default_rng(1)).items()}
    run_and_check(kernel.primal, animal.grid, arguments, monkeypatch)
    program = kernel.vjp(active_names(kernel.primal))
    if not program.residuals:
        bars = {f"{name}_bar": np.ones_like(arguments[name]) for name in active_names(kernel.primal)}
        run_and_check(program.adjoint, animal.grid, arguments | bars, monkeypatch)


# ------------------------------------------------------------------------- what is told apart

TEXT = """
def rows(x: array2d[float], t: int):
    i = tid()
    x[t + 1, i] = x[t, i]

def colours(x: array[float], odd: int):
    i = tid()
    x[2 * i + odd] = x[2 * i + 1 - odd]

def inner(x: array2d[float], y: array2d[float]):
    i, j = tid()
    n = x.shape[0]
    if i == 0 or i >= n - 1:
        return
    y[i, j] = x[i - 1, j] + x[i + 1, j]

def blocked(x: array[float], y: array[float], width: int):
    i = tid()
    for k in range(width):
        y[i * width + k] = x[k * 3]

def looked_up(x: array[float], index: array[int], y: array[float]):
    i = tid()
    y[i] = x[index[i]]

def sometimes(x: array2d[float], y: array[float], t: int):
    i = tid()
    if t > 0:
        y[i] = x[t - 1, i]

def counted(x: array2d[float], n: int):
    i = tid()
    t = int(0)
    while t < n:
        x[t + 1, i] = x[t, i]
        t += 1

def left(x: array2d[float], n: int):
    i = tid()
    t = n
    while True:
        if x[t, i] > 3.0:
            break
        x[t - 2, i] = x[t, i]
        t -= 2
        if t <= 1:
            break

def strided(x: array[float], y: array[float], n: int, s: int):
    i = tid()
    while i < n:
        y[i] = x[2 * i]
        i += s

def nested(x: array[float], n: int):
    t = int(0)
    while t < n:
        u = int(0)
        while u < 3:
            x[3 * t + u] = 1.0
            u += 1
        if x[0] > 0.0:
            t += 1
            continue
        t += 1

def endless(x: array[float], y: array[float], n: int):
    t = int(0)
    while y[0] < 1.0:
        if t >= 0 and t < n:
            x[t] = 1.0
        t += 1

def around(x: array[float], n: int):
    t = int(3)
    while t <= n:
        x[t] = 1.0
        t += 1073741824

def compared_fourfold(x: array[float], n: int):
    t = int(0)
    while 4 * t <= n:
        x[t // 268435456] = 1.0
        t += 268435456

def uneven(x: array[float], n: int):
    t = int(0)
    while t < n:
        x[2 * t] = 1.0
        if x[0] > 0.0:
            t += 1
        else:
            t += 2

def either(x: array[float], y: array[float], n: int):
    i = tid()
    a = i + 1 if y[0] > 0.0 else i
    b = i + 1 if y[1] > 0.0 else i
    if a < n:
        x[b] = 1.0

def alternate(x: array[float], n: int, colour: int):
    i = tid()
    if (i + 1) % 3 == colour and i < n:
        x[i] = 0.0

def alternate_steps(x: array[float], n: int):
    for k in range(n):
        if k % 4 == 1:
            x[k + 1] = 0.0

def doubled(x: array[float], n: int):
    i = tid()
    if 3 * i > n and 2 * i <= 11:
        x[i] = 0.0

def mirrored(x: array[float], n: int):
    i = tid()
    if n - 2 * i >= 3:
        x[i + 1] = 0.0

def edges(x: array2d[float], low: int):
    i, j = tid()
    n, m = x.shape[0], x.shape[1]
    if i < low or j == 0 or i == n - 1 or j == m - 1:
        x[i, j] = 0.0

def corners(x: array2d[float]):
    i, j = tid()
    inner = i > 0 and i < x.shape[0] - 1 or j > 0 and j < x.shape[1] - 1
    if not inner:
        x[i, j] = 0.0

def many(x: array[float], n: int):
    i = tid()
    if i == 0 or i == 2 or i == 4 or i == 6 or i == 8 or i == 10 or i == 12 or i == 14 or i == 16:
        if i < n:
            x[i] = 0.0

def perhaps(x: array[float], y: array[float]):
    i = tid()
    if i < 2 or y[i] > 0.0:
        x[i] = 0.0
"""


@pytest.mark.parametrize(
    ("name", "grid", "arguments", "expected"),
    [
        (
            "edges",
            (5, 6),
            {"x": (5, 6), "low": 2},
            {((0, 2, 1), (0, 6, 1)), ((0, 5, 1), (0, 1, 1)), ((4, 1, 1), (0, 6, 1)), ((0, 5, 1), (5, 1, 1))},
        ),
        (
            "edges",
            (5, 6),
            {"x": (9, 9), "low": 0},
            {((0, 5, 1), (0, 1, 1))},
        ),
        ("corners", (3, 3), {"x": (3, 3)}, {((i, 1, 1), (j, 1, 1)) for i in (0, 2) for j in (0, 2)}),
        ("many", (20,), {"x": (20,), "n": 8}, {((0, 8, 1),)}),
        ("perhaps", (9,), {"x": (9,), "y": (9,)}, {((0, 2, 1),), ((0, 9, 1),)}),
    ],
)
def test_where_one_of_several_conditions_holds_each_has_its_box(
    name: str, grid: tuple[int, ...], arguments: dict[str, Any], expected: set[Box]
) -> None:
    function = kernels[name].primal
    given = {n: np.zeros(value) if isinstance(value, tuple) else value for n, value in arguments.items()}
    assert set(single_boxes(function, "change", situation(function, grid, given))["x"]) == expected


@pytest.mark.parametrize(
    ("name", "grid", "arguments", "kind", "expected"),
    [
        ("rows", (4,), {"x": (9, 6), "t": 3}, "read", {"x": ((3, 1, 1), (0, 4, 1))}),
        ("rows", (4,), {"x": (9, 6), "t": 3}, "change", {"x": ((4, 1, 1), (0, 4, 1))}),
        ("rows", (4,), {"x": (9, 6), "t": -1}, "read", {"x": ((8, 1, 1), (0, 4, 1))}),
        ("colours", (4,), {"x": (9,), "odd": 1}, "read", {"x": ((0, 4, 2),)}),
        ("colours", (9,), {"x": (9,), "odd": 1}, "change", {"x": ((1, 4, 2),)}),
        ("inner", (5, 6), {"x": (5, 6), "y": (5, 6)}, "change", {"y": ((1, 3, 1), (0, 6, 1))}),
        ("inner", (5, 6), {"x": (5, 6), "y": (5, 6)}, "read", {"x": ((0, 5, 1), (0, 6, 1))}),
        ("alternate", (20,), {"x": (20,), "n": 12, "colour": 0}, "change", {"x": ((2, 4, 3),)}),
        ("alternate", (20,), {"x": (20,), "n": 12, "colour": 1}, "change", {"x": ((0, 4, 3),)}),
        ("alternate", (20,), {"x": (20,), "n": 1, "colour": 2}, "change", {"x": None}),
        ("alternate_steps", (1,), {"x": (40,), "n": 14}, "change", {"x": ((2, 4, 4),)}),
        ("doubled", (20,), {"x": (20,), "n": 7}, "change", {"x": ((3, 3, 1),)}),
        ("mirrored", (20,), {"x": (20,), "n": 8}, "change", {"x": ((1, 3, 1),)}),
        ("inner", (9, 2), {"x": (9, 6), "y": (9, 6)}, "change", {"y": ((1, 7, 1), (0, 2, 1))}),
        ("blocked", (2,), {"x": (9,), "y": (20,), "width": 3}, "change", {"y": ((0, 6, 1),)}),
        ("blocked", (2,), {"x": (9,), "y": (20,), "width": 3}, "read", {"x": ((0, 3, 3),)}),
        ("blocked", (2,), {"x": (9,), "y": (20,), "width": 0}, "read", {"x": None}),
        ("looked_up", (2,), {"x": (9,), "index": (5,), "y": (9,)}, "change", {"y": ((0, 2, 1),)}),
        (
            "looked_up",
            (2,),
            {"x": (9,), "index": (5,), "y": (9,)},
            "read",
            {"x": ((0, 9, 1),), "index": ((0, 2, 1),)},
        ),
        ("sometimes", (2,), {"x": (4, 3), "y": (3,), "t": 0}, "read", {"x": None}),
        ("counted", (3,), {"x": (9, 3), "n": 4}, "read", {"x": ((0, 4, 1), (0, 3, 1))}),
        ("counted", (3,), {"x": (9, 3), "n": 4}, "change", {"x": ((1, 4, 1), (0, 3, 1))}),
        ("counted", (3,), {"x": (9, 3), "n": 0}, "change", {"x": None}),
        ("left", (3,), {"x": (9, 3), "n": 8}, "read", {"x": ((2, 4, 2), (0, 3, 1))}),
        ("left", (3,), {"x": (9, 3), "n": 8}, "change", {"x": ((0, 4, 2), (0, 3, 1))}),
        ("strided", (1,), {"x": (20,), "y": (9,), "n": 7, "s": 3}, "read", {"x": ((0, 3, 6),)}),
        ("strided", (2,), {"x": (20,), "y": (9,), "n": 7, "s": -1}, "read", {"x": ((0, 20, 1),)}),
        ("nested", (1,), {"x": (30,), "n": 4}, "change", {"x": ((0, 12, 1),)}),
        ("around", (1,), {"x": (9,), "n": 4}, "change", {"x": ((3, 1, 1),)}),
        ("around", (1,), {"x": (9,), "n": 2**31 - 1}, "change", {"x": ((0, 9, 1),)}),
        ("compared_fourfold", (1,), {"x": (9,), "n": 5}, "change", {"x": ((0, 1, 1),)}),
        ("compared_fourfold", (1,), {"x": (9,), "n": 2**31 - 1}, "change", {"x": ((0, 9, 1),)}),
        ("uneven", (1,), {"x": (9,), "n": 4}, "change", {"x": ((0, 9, 1),)}),
        ("endless", (1,), {"x": (9,), "y": (1,), "n": 4}, "change", {"x": ((0, 9, 1),)}),
        ("either", (3,), {"x": (9,), "y": (2,), "n": 3}, "change", {"x": ((0, 4, 1),)}),
        ("sometimes", (2,), {"x": (4, 3), "y": (3,), "t": 2}, "read", {"x": ((1, 1, 1), (0, 2, 1))}),
    ],
)
def test_the_box_is_exactly_what_is_touched(
    name: str, grid: tuple[int, ...], arguments: dict[str, Any], kind: str, expected: dict[str, Any]
) -> None:
    function = kernels[name].primal
    given = {n: np.zeros(value) if isinstance(value, tuple) else value for n, value in arguments.items()}
    assert boxes(function, kind, situation(function, grid, given)) == expected


kernels: dict[str, Any] = kl.compile(TEXT)


def test_arithmetic_that_does_not_fit_32_bits_tells_nothing() -> None:
    function = kernels["rows"].primal
    here = situation(function, (4,), {"x": np.zeros((9, 6)), "t": 2**31 - 1})
    assert boxes(function, "change", here) == {"x": ((0, 9, 1), (0, 4, 1))}


def test_a_kernel_that_changes_nothing_it_reads_has_nothing_to_settle() -> None:
    assert not kernels["inner"].program.contests
    assert not contests(kernels["looked_up"].primal)
