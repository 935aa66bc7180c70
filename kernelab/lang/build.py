"""A builder of IR: appends statements, folds constants, opens and closes blocks.

Passes and the frontend write IR through it; derivative rules write through `Expr`, which gives a builder's
atoms Python's operators.  It folds only what is exact, so a program keeps its meaning to the last bit.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any, Union

import numpy as np

from kernelab.data_classes import dataclass
from kernelab.errors import NOWHERE, Span
from kernelab.lang import ir, ops
from kernelab.lang.ops import Op
from kernelab.lang.rounding import computed, rounded
from kernelab.lang.types import (
    Array,
    Mat,
    Scalar,
    Type,
    Value,
    Vec,
    bool_,
    float64,
    int32,
    is_differentiable,
    scalar_of,
    shape_of,
    size_of,
    with_scalar,
)

TRUE = ir.Const(True, bool_)
FALSE = ir.Const(False, bool_)


def zero(type: Value) -> ir.Const:
    return constant(0, type)


def constant(value: bool | int | float, type: Value) -> ir.Const:
    """`value` as a constant of a type, rounded to what the type can hold."""
    scalar = scalar_of(type)
    with np.errstate(all="ignore"):
        number = rounded(np.array(value), scalar.dtype).item()
    return ir.Const(number, type)


def integer(value: int) -> ir.Const:
    """An int32 constant, such as an index."""
    return ir.Const(value, int32)


def type_of(atom: ir.Atom) -> Value:
    """The type of an atom that is a value, not an array."""
    assert not isinstance(atom.type, Array)
    return atom.type


def is_float(atom: ir.Atom) -> bool:
    """Whether it is a number, vector or matrix of floats."""
    return not isinstance(atom.type, Array) and is_differentiable(atom.type)


def elem_of(array: ir.Var) -> Value:
    """The type of the elements of an array."""
    assert isinstance(array.type, Array)
    return array.type.elem


def ndim_of(array: ir.Var) -> int:
    """The number of axes of an array."""
    assert isinstance(array.type, Array)
    return array.type.ndim


class Builder:
    """Collects statements into blocks; `span` is what the next statements inherit."""

    def __init__(self, span: Span = NOWHERE) -> None:
        self.span = span
        self._open: list[list[ir.Stmt]] = [[]]

    def emit(self, stmt: ir.Stmt) -> None:
        """Append a statement to the innermost open block."""
        self._open[-1].append(stmt)

    def here(self) -> "Place":
        """The position behind the last statement of the innermost open block."""
        return Place(self._open[-1], len(self._open[-1]))

    def close(self, *yields: ir.Atom) -> ir.Block:
        """The outermost block, with everything appended outside of inner ones."""
        (stmts,) = self._open
        return ir.Block(tuple(stmts), yields)

    @contextmanager
    def block(self) -> Iterator["OpenBlock"]:
        """A context in which statements go into a new block, which `OpenBlock.close` returns afterwards."""
        stmts: list[ir.Stmt] = []
        self._open.append(stmts)
        try:
            yield OpenBlock(stmts)
        finally:
            self._open.pop()

    @contextmanager
    def at(self, span: Span) -> Iterator[None]:
        """A context in which statements inherit `span`."""
        before, self.span = self.span, span
        try:
            yield
        finally:
            self.span = before

    def let(self, op: Op, args: Sequence[ir.Atom], type: Value, hint: str = "") -> ir.Atom:
        """Apply an operation; a constant or an operand where that is the exact result."""
        args = tuple(args)
        folded = _fold(op, args, type)
        if folded is not None:
            return folded
        out = ir.Var(type, hint, self.span)
        self.emit(ir.Let(out, op, args, self.span))
        return out

    def apply(self, name: str, *args: ir.Atom, hint: str = "") -> ir.Atom:
        """Apply the overload of `name` that takes these operands; TypeError if there is none."""
        overload = ops.resolve(name, [arg.type for arg in args])
        if overload is None:
            raise TypeError(f"no {name} of {', '.join(str(arg.type) for arg in args)}")
        op, type = overload
        return self.let(op, args, type, hint)

    def components(self, atom: ir.Atom) -> list[ir.Atom]:
        """The scalars of a value, by rows."""
        shape = shape_of(type_of(atom))
        if not shape:
            return [atom]
        return [self.apply("extract", atom, *map(integer, place)) for place in product(*map(range, shape))]

    def items(self, atom: ir.Atom) -> list[ir.Atom]:
        """The components of a vector, or the rows of a matrix."""
        type = type_of(atom)
        assert isinstance(type, Vec | Mat)
        operation = "row" if isinstance(type, Mat) else "extract"
        return [self.apply(operation, atom, integer(k)) for k in range(type.n)]

    def joined(self, type: Value, scalars: Sequence[ir.Atom]) -> ir.Atom:
        """The value of a type that is made up of these scalars, by rows."""
        if isinstance(type, Scalar):
            return scalars[0]
        return self.apply(str(type), *scalars) if scalars else zero(type)

    def split(self, whole: ir.Atom, types: Sequence[Value]) -> list[ir.Atom]:
        """The values of these types, of the vector that holds the scalars of all of them."""
        rest = iter(self.components(whole))
        return [self.joined(type, [next(rest) for _ in range(size_of(type))]) for type in types]

    def units(self, type: Value) -> list[ir.Atom]:
        """The values of a type that are 1 in one component and 0 in the others."""
        places = range(size_of(type))
        rows = ([constant(int(k == one), scalar_of(type)) for k in places] for one in places)
        return [self.joined(type, row) for row in rows]

    def load(self, array: ir.Var, indices: Sequence[ir.Atom], hint: str = "") -> ir.Var:
        """Read an element of an array."""
        out = ir.Var(elem_of(array), hint, self.span)
        self.emit(ir.Load(out, array, tuple(indices), self.span))
        return out

    def store(self, array: ir.Var, indices: Sequence[ir.Atom], value: ir.Atom) -> None:
        """Write an element of an array."""
        self.emit(ir.Store(array, tuple(indices), value, self.span))

    def atomic_add(self, array: ir.Var, indices: Sequence[ir.Atom], value: ir.Atom) -> ir.Var:
        """Add to an element of an array; the result is what it held before."""
        return self.atomic("add", array, indices, value)

    def atomic(
        self,
        kind: ir.AtomicKind,
        array: ir.Var,
        indices: Sequence[ir.Atom],
        value: ir.Atom,
        compare: ir.Atom | None = None,
    ) -> ir.Var:
        """Change an element of an array at once; the result is what it held before."""
        out = ir.Var(type_of(value), "", self.span)
        self.emit(ir.Atomic(out, kind, array, tuple(indices), value, self.span, compare=compare))
        return out

    def check(self, cond: ir.Atom, kind: ir.AssertKind, message: str) -> None:
        """End the launch with an error unless `cond` holds."""
        if cond != TRUE:
            self.emit(ir.Assert(cond, kind, message, self.span))

    def select(
        self,
        cond: ir.Atom,
        then: Callable[[], Sequence[ir.Atom]],
        orelse: Callable[[], Sequence[ir.Atom]],
        hints: Sequence[str] = (),
    ) -> tuple[ir.Atom, ...]:
        """An `If` whose branches are written by the two functions; they return what the branch yields."""
        if isinstance(cond, ir.Const):
            return tuple(then() if cond.value else orelse())
        with self.block() as yes:
            yes_values = tuple(then())
        with self.block() as no:
            no_values = tuple(orelse())
        names = [*hints, *[""] * (len(yes_values) - len(hints))]
        outs = tuple(ir.Var(a.type, n, self.span) for a, n in zip(yes_values, names, strict=True))
        self.emit(ir.If(outs, cond, yes.close(*yes_values), no.close(*no_values), self.span))
        return outs


@dataclass(slots=True)
class Place:
    """A position in an open block, where statements can be inserted once others follow."""

    stmts: list[ir.Stmt]
    index: int

    def emit(self, stmt: ir.Stmt) -> None:
        """Insert a statement; the next one comes behind it."""
        self.stmts.insert(self.index, stmt)
        self.index += 1


@dataclass(frozen=True, slots=True)
class OpenBlock:
    """A block under construction; `close` gives the finished block."""

    stmts: list[ir.Stmt]

    def close(self, *yields: ir.Atom) -> ir.Block:
        return ir.Block(tuple(self.stmts), yields)


def _has_nothing(type: Type, args: tuple[ir.Atom, ...]) -> bool:
    """Whether the result or an operand is a vector or matrix without components."""
    shaped = [one for one in (type, *[arg.type for arg in args]) if isinstance(one, _SHAPED)]
    return bool(shaped) and any(0 in one.shape for one in shaped)


_SHAPED = (Vec, Mat)


OF_NOTHING = {
    **dict.fromkeys(("eq", "isfinite"), True),
    **dict.fromkeys(("ne", "isnan", "isinf"), False),
    **dict.fromkeys(("dot", "ddot", "length", "length_sq", "norm_l1", "norm_l2", "trace"), 0),
}
"""The results of operations on vectors and matrices without components: the sum of nothing is 0."""


def _fold(op: Op, args: tuple[ir.Atom, ...], type: Value) -> ir.Atom | None:
    if _has_nothing(type, args):
        # A product over nothing is a sum of nothing, too.
        return ir.Const(OF_NOTHING[op.name], type) if isinstance(type, Scalar) else zero(type)
    if ir.Const not in [arg.__class__ for arg in args]:
        return None
    same = _identity(op.name, args, type)
    if same is not None:
        return same
    if not op.exact or not isinstance(type, Scalar) or not args:
        return None
    values: list[Any] = []
    wide: list[Any] = []
    for arg in args:
        if not isinstance(arg, ir.Const) or not isinstance(arg.type, Scalar):
            return None
        values.append(rounded(arg.value, arg.type.dtype)[()])
        wide.append(np.float64(arg.value if arg.exact is None else arg.exact))
    has_exact = type.is_float and type != float64 and all(is_float(arg) for arg in args)
    with np.errstate(all="ignore"):
        result = computed(op.numpy, values, type.dtype).item()
        exact = float(op.numpy(*wide)) if has_exact else None
    # A NaN or an infinity stays visible as the operation that made it.
    return ir.Const(result, type, exact) if math.isfinite(result) else None


def _identity(name: str, args: tuple[ir.Atom, ...], type: Value) -> ir.Atom | None:
    """The operand that is the exact result, as in ``x * 1``, ``x - 0``, ``where(True, x, y)``."""
    match name, args:
        # A matrix, quaternion or transform of ones is not neutral in a product.
        case ("mul" | "div", (x, ir.Const(1, Scalar()))) | ("mul", (ir.Const(1, Scalar()), x)) if (
            x.type == type
        ):
            return x
        case ("sub", (x, ir.Const(0 as value))) if math.copysign(1.0, value) > 0:  # not of -0.0
            return x
        case ("add", (x, ir.Const(0, Scalar() as t))) | ("add", (ir.Const(0, Scalar() as t), x)) if t.is_int:
            return x
        case "where", (ir.Const(cond), x, y):
            return x if cond else y
        case (
            ("and", (x, ir.Const(True)))
            | ("and", (ir.Const(True), x))
            | ("or", (x, ir.Const(False)))
            | ("or", (ir.Const(False), x))
        ):
            return x
        case ("and", (_, ir.Const(False))) | ("and", (ir.Const(False), _)):
            return FALSE
        case ("or", (_, ir.Const(True))) | ("or", (ir.Const(True), _)):
            return TRUE
        case _:
            return None


Operand = Union["Expr", int, float]
Infix = Callable[["Expr", Operand], "Expr"]


def _operator(name: str) -> Infix:
    """The operation `name` as an operator of expressions."""
    return lambda left, right: left.apply(name, right)


def _reflected(name: str) -> Infix:
    """The same for an expression on the right."""
    return lambda right, left: right.wrap(left).apply(name, right)


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """An atom with Python's operators, in which derivative rules and expansions are written.

    Numbers in an operation with it take its scalar type.
    """

    builder: Builder
    atom: ir.Atom

    @property
    def type(self) -> Value:
        return type_of(self.atom)

    def apply(self, name: str, *others: Operand) -> "Expr":
        """The operation `name` with this as first operand."""
        args = [self.atom, *(self.wrap(other).atom for other in others)]
        return Expr(self.builder, self.builder.apply(name, *args))

    def wrap(self, value: Operand) -> "Expr":
        """`value` itself, or a number as a constant of this expression's scalar type."""
        if isinstance(value, Expr):
            return value
        return self.const(value, scalar_of(self.type))

    def const(self, value: float, type: Type | None = None) -> "Expr":
        """A constant of this expression's type, or of another."""
        target = self.type if type is None else type
        assert not isinstance(target, Array)
        return Expr(self.builder, ir.Const(constant(value, target).value, target, float(value)))

    def at(self, *indices: int) -> "Expr":
        """The component of a vector (one index) or matrix (two) at constant indices."""
        return Expr(self.builder, self.builder.apply("extract", self.atom, *map(integer, indices)))

    def make(self, type: Value, *components: "Expr") -> "Expr":
        """The vector or matrix of that type from its components, by rows."""
        return Expr(self.builder, self.builder.apply(str(type), *(c.atom for c in components)))

    def like(self, scalar: Scalar) -> Value:
        """This expression's type over another scalar."""
        return with_scalar(self.type, scalar)

    __add__, __radd__ = _operator("add"), _reflected("add")
    __sub__, __rsub__ = _operator("sub"), _reflected("sub")
    __mul__, __rmul__ = _operator("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _operator("div"), _reflected("div")
    __lt__, __le__, __gt__, __ge__ = (_operator(name) for name in ("lt", "le", "gt", "ge"))

    def __neg__(self) -> "Expr":
        return self.apply("neg")

    def eq(self, other: Operand) -> "Expr":
        """Whether the two are equal (``==`` compares expressions by identity)."""
        return self.apply("eq", other)
