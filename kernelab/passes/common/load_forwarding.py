"""Load forwarding: replaces a load of an element that the thread has just read or written by that value.

    before    y[i] = v; u = y[i]; w = mul(u, x[j]); z = add(w, x[j])
    after     y[i] = v; t = x[j]; w = mul(v, t); z = add(w, t)

What stood in memory between is not kept, and its derivative takes the short way.  A write to an array forgets
what is known of it, and of the arrays that may share its memory.
"""

from dataclasses import replace

from kernelab.lang import ir
from kernelab.lang.types import is_differentiable
from kernelab.passes.common.copying import Copier
from kernelab.passes.common.effects import Groups, aliases, block_effects

_Element = tuple[object, ...]


def forward(function: ir.Function, groups: Groups = (), merged: bool = True) -> ir.Function:
    """The function without the loads whose value is known.

    With `merged=False`, loads of floats that follow other loads stay where they stand, and hold that value.
    """
    return _Forwarder(function, groups, merged).function(function)


class _Forwarder(Copier):
    def __init__(self, function: ir.Function, groups: Groups, merged: bool) -> None:
        super().__init__()
        self.shared = aliases(function, groups)
        self.merged = merged
        self.known: dict[_Element, ir.Atom] = {}
        self.loaded: set[ir.Atom] = set()

    def stmt(self, stmt: ir.Stmt) -> None:
        super().stmt(stmt)
        match stmt:
            case ir.Store(array, indices, value):
                self.forget(array)
                self.known[self.element(array, indices)] = self.atom(value)
            case ir.Atomic(_, _, array):
                self.forget(array)
            case ir.Native():
                for array in stmt.changed:
                    self.forget(self.var(array))
            case ir.If(_, _, then, orelse):
                self.forget_changed(then)
                self.forget_changed(orelse)
            case ir.For() | ir.While() | ir.Custom():
                self.forget_changed(stmt.body)
            case _:
                pass

    def block(self, block: ir.Block) -> ir.Block:
        before = dict(self.known)
        copied = super().block(block)
        self.known = before
        return copied

    def loop(self, stmt: ir.For | ir.While) -> None:
        self.forget_changed(stmt.body)
        super().loop(stmt)

    def load(self, stmt: ir.Load) -> None:
        element = self.element(stmt.array, stmt.indices)
        known = self.known.get(element)
        is_apart = not self.merged and known in self.loaded and is_differentiable(stmt.out.type)
        if known is not None and not is_apart:
            self.env[stmt.out] = known
            self._share_name(known, stmt)
            return
        super().load(replace(stmt, held=known) if known is not None else stmt)
        self.known[element] = self.atom(stmt.out)
        self.loaded.add(self.atom(stmt.out))

    def _share_name(self, value: ir.Atom, stmt: ir.Load) -> None:
        """A loaded value that stands for several of the user's names is named after its element."""
        if isinstance(value, ir.Var) and value in self.loaded and value.hint != stmt.out.hint:
            indices = (
                index.hint if isinstance(index, ir.Var) else str(index.value) for index in stmt.indices
            )
            value.hint = "_".join([stmt.array.hint, *indices]).replace("-", "")

    def element(self, array: ir.Var, indices: tuple[ir.Atom, ...]) -> _Element:
        keys = [atom.value if isinstance(atom, ir.Const) else atom for atom in self.atoms(indices)]
        return (array, *keys)

    def forget(self, array: ir.Var) -> None:
        lost = self.shared[array]
        self.known = {element: value for element, value in self.known.items() if element[0] not in lost}

    def forget_changed(self, block: ir.Block) -> None:
        for array in block_effects(block).changed:
            self.forget(array)
