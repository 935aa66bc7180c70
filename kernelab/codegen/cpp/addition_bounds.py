"""Bounds on how many additions a launch makes to an element, as C++ expressions of its arguments.

    bins[of[i]] += 1.0                               all threads may meet at an element
    out[(i - 1 + n) % n, j] += x                     at most 2 * (threads along i / n + 1) do
    z[a[i]] += force                                 counted by the indices, before the launch

A thread index that stands on an axis, or its remainder on a ring, tells threads apart.  An index below zero
counts from the end, so that two threads may meet there.
"""

import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from kernelab.codegen.cpp.entry import GRID_SLOTS
from kernelab.codegen.cpp.helpers import Names
from kernelab.lang import ir
from kernelab.lang.build import elem_of
from kernelab.lang.ops import SHAPE
from kernelab.lang.types import Array, int32
from kernelab.passes.access.affine_forms import (
    Applied,
    Counter,
    Extent,
    Form,
    IntParam,
    Leaf,
    Thread,
    is_uniform,
)
from kernelab.passes.access.blocks import places
from kernelab.passes.access.independence import changed

MANY = 1 << 12
"""The elements of an array from which it pays to count additions before they are made."""

FEW = 1 << 16
"""With fewer additions in a launch float32 loses less than a thousandth, also if all go to one element."""

FEW_OF_ELEMENT = 1 << 12
"""With fewer additions to each element it loses even less, however many there are in all."""

MOST_OF_ROW = 1 << 6
"""With longer rows of indices too few threads are counted to find an element that gets many additions."""

MOST_SCALE = 1 << 10
"""The least multiple of a thread index that is taken to pass the end of 32 bits."""


class Bounds(NamedTuple):
    """How many additions a launch makes to an array at most, and whether these are few."""

    additions: str
    is_few: str


def bounds_of(function: ir.Function, stmts: Sequence[ir.Atomic], names: Names) -> Bounds:
    """The bounds on the additions by these statements to an array of float32; -1 where there is none."""
    known = {var: names(var) for var in function.params if not isinstance(var.type, Array)}
    for let in ir.walk(function.body):
        match let:
            case ir.Let(out, op, (ir.Var() as of, ir.Const(axis))) if op is SHAPE:
                known[out] = f"(i64){names(of)}_n{axis}"
    executions = dict(_executions(function.body, known))
    counts = [executions[stmt] for stmt in stmts]
    counted = _spread_out(function, stmts, executions, names)
    if None in counts:
        return Bounds("-1.0", counted or "false")
    threads = " * ".join(f"(double)args[{axis}]" for axis in range(GRID_SLOTS))
    by_component: dict[int | None, list[str]] = {}
    for stmt, count in zip(stmts, counts, strict=True):
        by_component.setdefault(stmt.component, []).append(f"{count}")
    total = f"{threads} * ({' + '.join(map(str, counts))})"
    first, *others = by_component.values()
    most = f"{threads} * ({' + '.join(first)})" if others.count(first) == len(others) else total
    meeting = [_threads_meeting(function, stmt, names) for stmt in stmts]
    of_element = " + ".join(f"{each} * {count}" for each, count in zip(meeting, counts, strict=True))
    tests = [f"{most} >= 0 && {most} < {FEW}"]
    tests += [f"{of_element} < {FEW_OF_ELEMENT}"] if any(each != threads for each in meeting) else []
    return Bounds(total, " || ".join([*tests, *([f"({counted})"] if counted else [])]))


def _threads_meeting(function: ir.Function, stmt: ir.Atomic, names: Names) -> str:
    """How many threads come to one element in the same iteration of a statement at most."""
    threads = [f"(double)args[{axis}]" for axis in range(GRID_SLOTS)]
    factors = [*threads]
    for form in places(function)[stmt][0]:
        thread, meeting = _thread_in(form), "2.0"
        match form:
            case Form(0, ((Applied("mod", (number, size)), 1),)):
                extent, thread = _spelt(size, function, names), _thread_in(number, 2)
                meeting = f"({extent} > 0 ? {{0}} / {extent} + 1 : {{0}})" if extent else "{0}"
        match thread:
            case Thread(axis) if axis is not None or len(function.threads) == 1:
                axis = axis or 0
                if factors[axis] == threads[axis]:  # two remainders of an index may agree: the first counts
                    factors[axis] = meeting.format(threads[axis])
            case Thread() if meeting == "2.0":
                factors = [meeting, *["1.0"] * (GRID_SLOTS - 1)]
    return " * ".join(factors)


def _spelt(form: Form, function: ir.Function, names: Names) -> str:
    """The expression for a number that is known when a launch begins, "" for others."""
    match form:
        case Form(value, ()):
            return str(value)
        case Form(0, ((IntParam(position), 1),)):
            return names(function.params[position])
        case Form(0, ((Extent(position, axis), 1),)):
            return f"(i64){names(function.params[position])}_n{axis}"
    return ""


def _thread_in(form: Form | None, most: int = MOST_SCALE) -> Leaf | None:
    """The thread index of which a form is a multiple, below `most`, plus what is the same in all threads."""
    varying = [] if form is None else [(leaf, by) for leaf, by in form.terms if _varies(leaf)]
    match varying:
        case [(Thread() as thread, factor)] if abs(factor) < most:
            return thread
    return None


def _varies(leaf: Leaf) -> bool:
    """Whether a number differs between threads in the same iterations of the loops around it."""
    if isinstance(leaf, Applied):
        return leaf.name == "join" or any(_varies(inner) for arg in leaf.args for inner, _ in arg.terms)
    return not isinstance(leaf, Counter) and not is_uniform(leaf)


def _spread_out(
    function: ir.Function,
    stmts: Sequence[ir.Atomic],
    executions: Mapping[ir.Atomic, str | None],
    names: Names,
) -> str:
    """The expression that counts additions to an array by their indices, "" where nobody knows these before.

    Each thread reads them from its own row of an array that does not change: at a column, or all in a loop.
    """
    if len(function.threads) != 1:
        return ""
    steady = {*function.params}.difference(changed(function))
    loads = {stmt.out: stmt for stmt in ir.of_kind(function.body, ir.Load)}
    loops = {stmt.index: stmt.count for stmt in ir.of_kind(function.body, ir.For)}
    times: dict[tuple[ir.Var, str, int], collections.Counter[int | None]] = {}
    for stmt in stmts:
        match loads.get(stmt.indices[0]) if isinstance(stmt.indices[0], ir.Var) else None:
            case ir.Load(array=of, indices=(thread, *columns)) if thread in function.threads and of in steady:
                column, count = _columns(columns, loops)
            case _:
                return ""
        times_a_thread = "1.0" if column else f"{count}.0 * 1.0"
        if elem_of(of) != int32 or count is None or executions[stmt] != times_a_thread:
            return ""
        times.setdefault((of, column, count), collections.Counter())[stmt.component] += count
    if any(max(number.values()) > MOST_OF_ROW for number in times.values()):
        return ""
    threads = " * ".join(f"args[{axis}]" for axis in range(GRID_SLOTS))
    extent = f"{names(stmts[0].array)}_n0"
    tests, each = [f"{extent} >= {MANY}"], []
    for (of, column, count), number in times.items():
        name, is_row = names(of), isinstance(of.type, Array) and of.type.ndim == 2
        tests.append(f"{threads} <= (i64){name}_n0")
        tests += [f"{column or count - 1} < (i64){name}_n1"] if is_row else []
        first = f"{name} + {column or 0} * {name}_s1" if is_row else name
        across = f"{name}_s1" if is_row else "0"
        each.append(f"{{{first}, {name}_s0, {max(number.values())}, {across}, {1 if column else count}}}")
    return " && ".join([*tests, f"spread_out({extent}, {threads}, {{{', '.join(each)}}})"])


def _columns(columns: Sequence[ir.Atom], loops: Mapping[ir.Var, ir.Atom]) -> tuple[str, int | None]:
    """The column that is read, or "" and how many a loop reads; None of others."""
    match columns:
        case []:
            return "0", 1
        case [ir.Const(column)] if column >= 0:
            return f"{column}", 1
        case [ir.Var() as counter] if isinstance(count := loops.get(counter), ir.Const) and count.value > 0:
            return "", int(count.value)
    return "", None


def _executions(
    block: ir.Block, known: Mapping[ir.Var, str], around: str | None = ""
) -> Iterator[tuple[ir.Atomic, str | None]]:
    """How often a thread comes to each atomic at most, as an expression; None where that is unknown.

    It comes to the block `around` times, a text that ends with a sign.
    """
    for stmt in block.stmts:
        if isinstance(stmt, ir.Atomic):
            yield stmt, None if around is None else f"{around}1.0"
        times = around
        if isinstance(stmt, ir.For | ir.While) and around is not None:
            count = _count(stmt, known)
            times = None if count is None else f"{around}{count} * "
        for inner in ir.blocks(stmt):
            yield from _executions(inner, known, times)


def _count(loop: ir.Loop, known: Mapping[ir.Var, str]) -> str | None:
    """The iterations of a loop at most, as an expression; None where that is unknown."""
    match loop:
        case ir.For(count=ir.Const(value)):
            return f"{max(int(value), 0)}.0"
        case ir.For(count=ir.Var() as count) if count in known:
            # Products of int32 would begin again at 2**31.
            return f"({known[count]} > 0 ? (double){known[count]} : 0)"
    return None
