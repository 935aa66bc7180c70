"""Prints atoms and operations as Python-like expressions, with as few parentheses as precedence allows.

Knows the symbols of the table and Python's precedence; must not know statements.
"""

from collections.abc import Callable

import numpy as np

from kernelab.codegen.listing.folding import Folded
from kernelab.data_classes import dataclass
from kernelab.lang.ir import Atom, Const, If, Let, Load, Stmt, Var
from kernelab.lang.ops import COPY, SHAPE, Op
from kernelab.lang.types import Scalar, scalar_of, shape_of, size_of, spelled

TERNARY, OR, AND, NOT, COMPARE = 0, 1, 2, 3, 4
SUM, PRODUCT, UNARY, POWER, ATOM = 9, 10, 11, 12, 20

_INFIX = {"or": OR, "and": AND, "|": 5, "^": 6, "&": 7, "<<": 8, ">>": 8, "+": 9, "-": 9}
_INFIX |= dict.fromkeys(("*", "/", "//", "%", "@"), 10) | {"**": POWER}
_INFIX |= dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), COMPARE)
_PREFIX = {"not": NOT, "-": UNARY, "+": UNARY, "~": UNARY}


SPELT_OUT = 4
"""A vector or matrix of so many components is shown with all of them."""


@dataclass(frozen=True, slots=True)
class Text:
    """An expression and how tightly its outermost operator binds."""

    text: str
    binds: int = ATOM

    def within(self, binds: int) -> str:
        """The text, in parentheses where an operator around it binds more tightly."""
        return self.text if self.binds >= binds else f"({self.text})"


@dataclass(frozen=True, slots=True)
class Expressions:
    """Prints atoms, given the name of each Var and what is folded."""

    name: Callable[[Var], str]
    folded: Folded

    def show(self, atom: Atom) -> str:
        return self.text(atom).text

    def list(self, atoms: tuple[Atom, ...]) -> str:
        return ", ".join(self.show(atom) for atom in atoms)

    def text(self, atom: Atom) -> Text:
        if isinstance(atom, Const):
            return number(atom)
        stmt = self.folded.get(atom)
        return Text(self.name(atom)) if stmt is None else self.value(stmt)

    def value(self, stmt: Let | Load | If) -> Text:
        """The value that a statement computes, as an expression."""
        match stmt:
            case If(_, cond, then, orelse):
                return self.choice(cond, then.yields[0], orelse.yields[0])
            case Let(_, op, args):
                return self.operation(op, args)
            case Load(_, array, indices):
                return self.element(array, indices, stmt.component)

    def element(self, array: Var, indices: tuple[Atom, ...], component: int | None = None) -> Text:
        part = "" if component is None else f"[{component}]"
        return Text(f"{self.name(array)}[{self.list(indices)}]{part}")

    def operation(self, op: Op, args: tuple[Atom, ...]) -> Text:
        match op.name, args:
            case "copy", (x,):
                return self.text(x)
            case "where", (cond, yes, no):
                return self.choice(cond, yes, no)
            case "extract", (vector, *indices):
                return Text(f"{self.text(vector).within(ATOM)}[{self.list(tuple(indices))}]")
            case "insert", (Const(0) as blank, *place, value) if size_of(blank.type) <= SPELT_OUT:
                return self.unit(blank, tuple(place), value, op)
            case "add", (a, Var() as b) if (negated := self.negated(b)) is not None:
                return Text(f"{self.text(a).within(SUM)} - {negated.within(SUM + 1)}", SUM)
            case "shape", (array, axis) if op is SHAPE:
                return Text(f"{self.show(array)}.shape[{self.show(axis)}]")
            case "trips", (start, stop, Const(1)):
                return Text(f"len(range({self.list((start, stop))}))")
            case "trips", _:
                return Text(f"len(range({self.list(args)}))")
            case _, (x,) if op.symbol in _PREFIX:
                return self.prefix(op.symbol, x)
            case _, (a, b) if op.symbol in _INFIX:
                return self.infix(op.symbol, a, b)
            case _:
                return Text(f"{spelled(op.name)}({self.list(args)})")

    def negated(self, atom: Atom) -> Text | None:
        """The operand of the minus in ``-x``, ``-x * y`` or ``-x / y``: subtracting it is exact."""
        match self.folded.get(atom) if isinstance(atom, Var) else None:
            case Let(_, op, (x,)) if op.name == "neg":
                return self.text(x)
            case Let(_, op, (a, b)) if op.name in ("mul", "div", "chain", "chain_both"):
                first, second = self.negated(a), self.negated(b)
                if first is None and second is None:
                    return None
                left, right = first or self.text(a), self.text(b) if first else second or self.text(b)
                return Text(f"{left.within(PRODUCT)} {op.symbol} {right.within(PRODUCT + 1)}", PRODUCT)
            case _:
                return None

    def unit(self, blank: Const, place: tuple[Atom, ...], value: Atom, op: Op) -> Text:
        """A vector or matrix with one component that is not zero: ``vec3(0.0, x, 0.0)``."""
        if not all(isinstance(index, Const) for index in place):
            return Text(f"{op.name}({self.list((blank, *place, value))})")
        indices = tuple(int(index.value) for index in place if isinstance(index, Const))
        components = [number(Const(blank.value, scalar_of(blank.type))).text] * size_of(blank.type)
        components[int(np.ravel_multi_index(indices, shape_of(blank.type)))] = self.show(value)
        return Text(f"{blank.type}({', '.join(components)})")

    def choice(self, cond: Atom, yes: Atom, no: Atom) -> Text:
        match yes, no:
            case Const(True, Scalar(kind="bool")), Const(False):
                return self.text(cond)
            case _, Const(False):
                return Text(f"{self.text(cond).within(AND)} and {self.text(yes).within(NOT)}", AND)
            case Const(True, Scalar(kind="bool")), _:
                return Text(f"{self.text(cond).within(OR)} or {self.text(no).within(AND)}", OR)
            case Const(False, Scalar(kind="bool")), Const(True):
                return self.prefix("not", cond)
            case _:
                parts = (self.text(yes).within(OR), self.text(cond).within(OR), self.text(no).text)
                return Text("{} if {} else {}".format(*parts), TERNARY)

    def prefix(self, symbol: str, x: Atom) -> Text:
        binds = _PREFIX[symbol]
        space = " " if symbol.isalpha() else ""
        return Text(f"{symbol}{space}{self.text(x).within(binds)}", binds)

    def infix(self, symbol: str, a: Atom, b: Atom) -> Text:
        binds = _INFIX[symbol]
        left, right = binds, binds + 1
        if binds == COMPARE or symbol == "**":
            left += 1
        if symbol == "**":
            right = UNARY
        return Text(f"{self.text(a).within(left)} {symbol} {self.text(b).within(right)}", binds)


def is_start_at_zero(stmt: Stmt) -> bool:
    """Whether a statement only names a zero: the cotangent with which a sweep begins."""
    return isinstance(stmt, Let) and stmt.op is COPY and isinstance(stmt.args[0], Const)


def number(const: Const) -> Text:
    """A constant with the digits that its own width needs: ``0.1``, not ``0.10000000149011612``."""
    scalar = scalar_of(const.type)
    digits = repr(float(str(scalar.dtype.type(const.value)))) if scalar.is_float else str(const.value)
    if not isinstance(const.type, Scalar):
        return Text(f"{const.type}({digits})")
    return Text(digits, UNARY if digits.startswith("-") else ATOM)
