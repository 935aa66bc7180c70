"""Interior splitting: the part of a launch in which the boundary conditions of all threads come out alike.

    if i > 0 and j > 0 and j < n - 1:       in a row with i > 0: the threads of j from 1 to n - 1

There vector code has no masks for these branches, and tests no index whose range the launch knows.
"""

from typing import NamedTuple

from kernelab.codegen.cpp.helpers import Names
from kernelab.codegen.vectors.launch_rule import MOST, LaunchRanges, Order, orders
from kernelab.codegen.vectors.variation import LINEAR, UNIFORM, Variations
from kernelab.lang import ir
from kernelab.lang.operators import MIRRORED, SYMBOLS
from kernelab.lang.types import Array, bool_, int32


class Affine(NamedTuple):
    """An int32 as a text of the type i64: a thread index of the last axis and `text`, or `text` alone."""

    is_linear: bool
    text: str


class Interior:
    """How conditions come out in the interior of a function (`usual`), and where that is.

    It has the threads of the rows that meet the conditions `rows`, from the largest of `first` on, up to
    before the least of `behind`.  Where the launch does not know all indices to be within their arrays,
    `inner` are the same of the threads of which they are, None where that depends on more.
    """

    def __init__(
        self, function: ir.Function, names: Names, ranges: LaunchRanges, variations: Variations
    ) -> None:
        self._names, self._lets, self._of = names, variations.lets, variations.of
        given = {var for var in function.params if not isinstance(var.type, Array)}
        self._of_row = given | {*ranges.constants, *function.threads}
        self._last = function.threads[-1]
        self.usual: dict[ir.Atom, bool] = {}
        self.rows: dict[str, None] = {}
        self.first: dict[str, None] = {}
        self.behind: dict[str, None] = {}
        self.inner: tuple[dict[str, None], dict[str, None], dict[str, None]] | None = {}, {}, {}
        self._visit(function.body)

    def keep_within(self, index: ir.Atom, extent: str) -> None:
        """Leave out the threads of which an index is not within an extent."""
        affine = self.affine(index)
        if affine is None or self.inner is None:
            self.inner = None
            return
        rows, first, behind = self.inner
        if affine.is_linear:
            first[f"0 - {affine.text}"] = None
            behind[f"(i64){extent} - {affine.text}"] = None
        else:
            rows[f"({affine.text} >= 0 && {affine.text} < (i64){extent})"] = None

    def is_border(self, stmt: ir.If) -> bool:
        """Whether most groups of the interior have all lanes in one branch, as of ``i + k < n`` in a loop.

        For these there is a text without masks.
        """
        is_plain = not any(isinstance(inner, ir.Loop | ir.Save | ir.Restore) for inner in ir.within(stmt))
        return is_plain and self._is_border(stmt.cond)

    def _is_border(self, cond: ir.Atom) -> bool:
        let = self._lets.get(cond)
        if let is None or let.out.type != bool_:
            return False
        varying = [arg for arg in let.args if self._of(arg) != UNIFORM]
        if let.op.name in MIRRORED:
            return [self._of(arg) for arg in varying] == [LINEAR]
        return let.op.name in ("and", "or", "not") and bool(varying) and all(map(self._is_border, varying))

    def _visit(self, block: ir.Block) -> None:
        for stmt in block.stmts:
            match stmt:
                case ir.If(cond=cond, then=then, orelse=orelse):
                    if self._of(cond) != UNIFORM:
                        self._decide(stmt)
                    truth = self.usual.get(cond)
                    for arm in (then, orelse) if truth is None else (then if truth else orelse,):
                        self._visit(arm)
                case ir.For(body=body) | ir.While(body=body):
                    self._visit(body)

    def _decide(self, stmt: ir.If) -> None:
        """Take the branch that does something, if its threads lie side by side; of two, the first such."""
        if stmt.cond in self.usual:
            return
        for truth, arm in ((True, stmt.then), (False, stmt.orelse)):
            found, is_all = orders(self._lets, stmt.cond, truth) if arm.stmts else ([], False)
            bounds = [self._bounds(order) for order in found]
            if is_all and None not in bounds:
                self.usual[stmt.cond] = truth
                for rows, first, behind in filter(None, bounds):
                    self.rows |= dict.fromkeys(rows)
                    self.first |= dict.fromkeys(first)
                    self.behind |= dict.fromkeys(behind)
                return

    def _bounds(self, order: Order) -> tuple[list[str], list[str], list[str]] | None:
        """What a comparison says of rows, of the first thread of the interior, and of that behind it."""
        name, left, right = order
        one, other = self.affine(left), self.affine(right)
        if one is None or other is None or (one.is_linear and other.is_linear):
            return None
        if other.is_linear:
            name, one, other = MIRRORED[name], other, one
        if not one.is_linear:
            return [f"{one.text} {SYMBOLS[name]} {other.text}"], [], []
        # Below this the sum of both is what 32 bits hold, too.
        rows = [f"{one.text} <= {MOST} && {one.text} >= -{MOST}"] if one.text != "0" else []
        at = f"{other.text} - {one.text}"
        if name in ("lt", "le"):
            return rows, [], [at if name == "lt" else f"{at} + 1"]
        return rows, [at if name == "ge" else f"{at} + 1"], []

    def affine(self, atom: ir.Atom) -> Affine | None:
        """An integer in terms of what is known before the threads of a row run; None for any other."""
        if isinstance(atom, ir.Const):
            return Affine(False, f"{int(atom.value)}ll")
        if atom.type != int32:
            return None
        if atom is self._last:
            return Affine(True, "0")
        if atom in self._of_row:
            return Affine(False, f"(i64){self._names(atom)}")
        stmt = self._lets.get(atom)
        if stmt is None or stmt.op.name not in ("add", "sub"):
            return None
        left, right = (self.affine(arg) for arg in stmt.args)
        if left is None or right is None or (self._of(atom) != LINEAR and self._of(atom) != UNIFORM):
            return None
        text = f"({left.text} {'+' if stmt.op.name == 'add' else '-'} {right.text})"
        return Affine(True, text) if self._of(atom) == LINEAR else Affine(False, f"(i64)(int){text}")
