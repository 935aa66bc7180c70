"""The guard of vector code: C++ that tests a launch, and the checks of its threads, before any effect.

A launch that fails one of the tests runs scalar code.  Where a function is to check an index after it has
changed something, vector code runs all checks of a group first:

    for k < count[i]:                    for k < count[i]:
      j = of[start[i] + k]                 j = of[start[i] + k]
      atomic_add(x_bar[j], y_bar[i])       check x_bar[j], y_bar[i]
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from kernelab.codegen.cpp.entry import GRID_SLOTS
from kernelab.codegen.cpp.helpers import Names
from kernelab.codegen.vectors.variation import Lets, lets_of
from kernelab.codegen.vectors.vector_values import Refused
from kernelab.lang import ir
from kernelab.lang.build import elem_of, ndim_of
from kernelab.lang.operators import MIRRORED, OPPOSITE, SYMBOLS
from kernelab.lang.ops import SHAPE
from kernelab.lang.types import Array, Scalar, bytes_of, int32
from kernelab.passes.access.independence import changed, read_only
from kernelab.passes.common.simplify import eliminate

MOST = "(1 << 30)"
"""More threads than vector code counts."""


def launch_rule(function: ir.Function, names: Names, conditions: Iterable[str]) -> str:
    """The expression for whether a launch meets the `conditions` and those that are always made."""
    count = len(function.threads)
    beyond = [f"args[{axis}] == 1" for axis in range(count, GRID_SLOTS)] if count > 1 else []
    extents = [f"args[{axis}] < {MOST}" for axis in range(GRID_SLOTS)]
    product = " * ".join(f"(double)args[{axis}]" for axis in range(GRID_SLOTS))
    rules = [*beyond, *extents, f"{product} < {MOST}", *_apart(function, names), *conditions]
    return " && ".join(dict.fromkeys(rules))


def extent_of(function: ir.Function, axis: int) -> str:
    """The number of threads along a thread index: of all of them where there is only one."""
    return f"args[{axis}]" if len(function.threads) > 1 else THREADS


THREADS = " * ".join(f"args[{axis}]" for axis in range(GRID_SLOTS))
"""The number of threads of a launch."""


def _apart(function: ir.Function, names: Names) -> Iterator[str]:
    """The conditions under which arrays that change share no bytes, nor do their elements."""
    arrays = [var for var in function.params if isinstance(var.type, Array)]
    moved = changed(function)
    for array in (array for array in arrays if array in moved):
        name, inner = names(array), f"{bytes_of(elem_of(array))}"
        for axis in reversed(range(ndim_of(array))):
            extent, stride = f"(i64){name}_n{axis}", f"{name}_s{axis}"
            yield f"({extent} < 2 || {stride} >= {inner})"
            inner = f"({extent} < 2 ? {inner} : {extent} * {stride})"
        for other in arrays:
            if other is not array:
                mine, its = (_reach(each, names) for each in (array, other))
                fields = (
                    f" || {_are_fields(array, other, names)}" if is_field(array) and is_field(other) else ""
                )
                yield f"({mine[1]} <= {its[0]} || {its[1]} <= {mine[0]}{fields})"


def is_field(array: ir.Var) -> bool:
    """Whether an array is a field of structs, whose elements do not lie side by side."""
    return "." in array.hint


def _are_fields(array: ir.Var, other: ir.Var, names: Names) -> str:
    """The test for whether elements of one array stand between those of another, as fields of structs do."""
    both = (array, other)
    sizes = ", ".join(f"{bytes_of(elem_of(each))}" for each in both)
    steps = ", ".join(f"{names(each)}_s{axis}" for each in both for axis in range(ndim_of(each)))
    return f"are_fields({names(other)} - {names(array)}, {sizes}, {{{steps}}})"


def _reach(array: ir.Var, names: Names) -> tuple[str, str]:
    """The first byte of an array, and the one behind its last."""
    name, size = names(array), bytes_of(elem_of(array))
    steps = [f"((i64){name}_n{k} - 1) * {name}_s{k}" for k in range(ndim_of(array))]
    low = " + ".join([name, *(f"({step} < 0 ? {step} : 0)" for step in steps)])
    high = " + ".join([name, *(f"({step} > 0 ? {step} : 0)" for step in steps), f"{size}"])
    return low, high


class Range(NamedTuple):
    """The least value and the largest one, of the type i64, in a launch that meets the `rules`."""

    low: str
    high: str
    rules: tuple[str, ...] = ()


Tests = Sequence[tuple[ir.Atom, bool]]
"""The conditions of branches, and how they come out."""

Order = tuple[str, ir.Atom, ir.Atom]
"""A comparison of two int32."""


def orders(lets: Lets, cond: ir.Atom, truth: bool) -> tuple[list[Order], bool]:
    """Comparisons that hold where a condition comes out so, and whether it takes no more than them."""
    match lets.get(cond):
        case ir.Let(_, op, (inner,)) if op.name == "not":
            return orders(lets, inner, not truth)
        case ir.Let(_, op, args) if op.name == ("and" if truth else "or"):
            parts = [orders(lets, arg, truth) for arg in args]
            return [order for found, _ in parts for order in found], all(is_all for _, is_all in parts)
        case ir.Let(_, op, (left, right)) if op.name in MIRRORED and left.type == right.type == int32:
            return [(op.name if truth else OPPOSITE[op.name], left, right)], True
    return [], False


def launch_constants(function: ir.Function) -> dict[ir.Var, ir.Let]:
    """The integers that are computed of parameters and extents alone: known before the first thread runs."""
    constants: dict[ir.Var, ir.Let] = {}
    params = {var for var in function.params if not isinstance(var.type, Array)}
    for stmt in ir.walk(function.body):
        if not isinstance(stmt, ir.Let) or not isinstance(stmt.out.type, Scalar) or not stmt.out.type.is_int:
            continue
        is_known = stmt.op is SHAPE or all(
            isinstance(arg, ir.Const) or arg in params or arg in constants for arg in stmt.args
        )
        if is_known and not _may_trap(stmt):
            constants[stmt.out] = stmt
    return constants


def _may_trap(stmt: ir.Let) -> bool:
    """Whether the processor may stop at an operation that its kernel may never come to."""
    divisor = stmt.args[-1]
    is_safe = isinstance(divisor, ir.Const) and divisor.value > 0
    return stmt.op.name in ("floordiv", "mod", "div") and not is_safe


class LaunchRanges:
    """The ranges of thread indices, loop indices and launch constants, and of their sums and differences."""

    def __init__(self, function: ir.Function, names: Names) -> None:
        self._function = function
        self._names = names
        self._lets = lets_of(function)
        self.constants = launch_constants(function)
        self._counts = {s.index: s.count for s in ir.of_kind(function.body, ir.For)}

    def of(self, atom: ir.Atom, tests: Tests = ()) -> Range | None:
        """The range of an integer where `tests` come out so, None where it depends on elements of arrays."""
        bounds = self._of(atom, tests)
        if bounds is None:
            return None
        for test, truth in tests:
            for order in orders(self._lets, test, truth)[0]:
                bounds = self._limited(atom, bounds, order)
        return bounds

    def _limited(self, atom: ir.Atom, bounds: Range, order: Order) -> Range:
        """The part of a range in which a comparison holds, or more than that."""
        name, left, right = order
        other = right if left is atom else left
        limits = self._of(other, ()) if atom in (left, right) else None
        if limits is None:
            return bounds
        gap = 1 if name in ("lt", "gt") else 0
        if (name in ("lt", "le")) == (left is atom):
            rules = *bounds.rules, *self._ends_below(atom, bounds), *self._ends_above(other, limits)
            return Range(bounds.low, f"smaller({bounds.high}, {limits.high} - {gap})", rules)
        rules = *bounds.rules, *self._ends_above(atom, bounds), *self._ends_below(other, limits)
        return Range(f"larger({bounds.low}, {limits.low} + {gap})", bounds.high, rules)

    def _ends_below(self, atom: ir.Atom, bounds: Range) -> tuple[str, ...]:
        """The rule by which no sum is so large that 32 bits go on from the least number."""
        return (f"{bounds.high} < (1ll << 31)",) if self._is_sum(atom) else ()

    def _ends_above(self, atom: ir.Atom, bounds: Range) -> tuple[str, ...]:
        """The rule by which no sum is so small that 32 bits go on from the largest number."""
        return (f"{bounds.low} >= -(1ll << 31)",) if self._is_sum(atom) else ()

    def _is_sum(self, atom: ir.Atom) -> bool:
        return isinstance(atom, ir.Var) and atom in self._lets and atom not in self.constants

    def _of(self, atom: ir.Atom, tests: Tests) -> Range | None:
        if isinstance(atom, ir.Const):
            return Range(f"{int(atom.value)}", f"{int(atom.value)}")
        if not isinstance(atom.type, Scalar) or not atom.type.is_int:
            return None
        if atom in self._function.threads:
            return Range("0", f"({extent_of(self._function, self._function.threads.index(atom))} - 1)")
        if atom in self._function.params or atom in self.constants:
            return Range(f"(i64){self._names(atom)}", f"(i64){self._names(atom)}")
        if atom in self._counts:
            count = self.of(self._counts[atom], tests)
            if count is None:
                return None
            rules = *count.rules, *self._ends_above(self._counts[atom], count)
            return Range("0", f"({count.high} - 1)", rules)
        return self._of_let(self._lets[atom], tests) if atom in self._lets else None

    def is_remainder(self, atom: ir.Atom) -> bool:
        """Whether an integer is the remainder by a launch constant: likely within an array of that size."""
        stmt = self._lets.get(atom)
        return stmt is not None and stmt.op.name == "mod" and self._is_constant(stmt.args[1])

    def holds(self, cond: ir.Atom) -> str | None:
        """A comparison of launch constants as a condition of the launch; None for any other."""
        match self._lets.get(cond):
            case ir.Let(_, op, (left, right)) if op.name in OPPOSITE and left.type == right.type == int32:
                one, other = (self.of(arg) if self._is_constant(arg) else None for arg in (left, right))
                return one and other and f"{one.low} {SYMBOLS[op.name]} {other.low}"
        return None

    def _is_constant(self, atom: ir.Atom) -> bool:
        return isinstance(atom, ir.Const) or atom in self._function.params or atom in self.constants

    def _of_let(self, stmt: ir.Let, tests: Tests) -> Range | None:
        if stmt.op.name == "mod":
            divisor = self.of(stmt.args[1], tests)
            if divisor is None:
                return None
            if (number := _number(divisor.low)) is not None and divisor.low == divisor.high:
                return Range(f"{min(number + 1, 0)}", f"{max(number - 1, 0)}", divisor.rules)
            return Range(f"smaller({divisor.low} + 1, 0)", f"larger({divisor.high} - 1, 0)", divisor.rules)
        if stmt.op.name not in ("add", "sub"):
            return None
        left, right = (self.of(arg, tests) for arg in stmt.args)
        if left is None or right is None:
            return None
        rules = left.rules + right.rules
        if stmt.op.name == "add":
            return Range(_sum(left.low, right.low), _sum(left.high, right.high), rules)
        return Range(_difference(left.low, right.high), _difference(left.high, right.low), rules)

    def begins_below_zero(self, index: ir.Atom, tests: Tests) -> bool:
        """Whether it is known without a launch that the range of an index begins below zero."""
        bounds = self.of(index, tests)
        return bounds is not None and (_number(bounds.low) or 0) < 0

    def within(self, index: ir.Atom, extent: str, tests: Tests) -> dict[str, None] | None:
        """The conditions by which a launch knows an index to be within an extent; None if no launch does."""
        bounds = self.of(index, tests)
        if bounds is None or (_number(bounds.high) or 0) < 0:
            return None
        return dict.fromkeys((*bounds.rules, f"{bounds.low} >= 0", f"{bounds.high} < (i64){extent}"))


def _number(bound: str) -> int | None:
    return int(bound) if bound.removeprefix("-").isdecimal() else None


def _sum(one: str, other: str) -> str:
    left, right = _number(one), _number(other)
    return f"({one} + {other})" if left is None or right is None else f"{left + right}"


def _difference(one: str, other: str) -> str:
    left, right = _number(one), _number(other)
    return f"({one} - {other})" if left is None or right is None else f"{left - right}"


# ----------------------------------------------------------------------------------------------- checks ahead


_NOTHING = ir.Const(0, int32)


def checks_of(function: ir.Function) -> ir.Block:
    """The assertions of a function, and a `Store` for each access, of which the value does not count.

    The Vars are those of the function.  Raises Refused where an index depends on what threads change.
    """
    body = eliminate(replace(function, body=_accesses(function.body))).body
    steady = read_only(function)
    for stmt in ir.walk(body):
        if isinstance(stmt, ir.Save) or (
            isinstance(stmt, ir.Load) and stmt.held is None and stmt.array not in steady
        ):
            raise Refused("an index that is tested after a thread has changed something depends on changes")
    return body


def _accesses(block: ir.Block) -> ir.Block:
    return ir.Block(tuple(inner for stmt in block.stmts for inner in _checked(stmt)), block.yields)


def _checked(stmt: ir.Stmt) -> Iterator[ir.Stmt]:
    match stmt:
        case ir.Load(held=None):
            yield stmt
            yield ir.Store(stmt.array, stmt.indices, _NOTHING, stmt.span)
        case ir.Store() | ir.Atomic():
            yield ir.Store(stmt.array, stmt.indices, _NOTHING, stmt.span)
        case ir.If(then=then, orelse=orelse):
            yield replace(stmt, then=_accesses(then), orelse=_accesses(orelse))
        case ir.For(body=body) | ir.While(body=body):
            yield replace(stmt, body=_accesses(body))
        case _:
            yield stmt
