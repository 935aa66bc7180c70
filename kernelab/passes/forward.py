"""Store-to-load forwarding: a load of an element that the thread has just read or written knows its value.

    before    y[i] = v; u = y[i]
    after     y[i] = v; u = y[i] held v

The load stays, since its cotangent belongs to the element; `held` spares a residual.  Only arrays that the
function also changes matter: what nobody writes can be read again at any time.
"""

from kernelab.lang.ir import Atom, Atomic, Block, Const, For, Function, If, Load, Stmt, Store, Var, While
from kernelab.passes.copying import Copier
from kernelab.passes.effects import Groups, aliases, block_effects, effects

_Element = tuple[object, ...]


def forward(function: Function, groups: Groups = ()) -> Function:
    """The function with `held` set where the value of a loaded element is known."""
    return _Forwarder(function, groups).function(function)


class _Forwarder(Copier):
    def __init__(self, function: Function, groups: Groups) -> None:
        super().__init__()
        self.shared = aliases(function, groups)
        self.changed = effects(function).changed
        self.known: dict[_Element, Atom] = {}

    def stmt(self, stmt: Stmt) -> None:
        super().stmt(stmt)
        match stmt:
            case Store(array, indices, value):
                self.forget(array)
                self.known[self.element(array, indices)] = self.atom(value)
            case Atomic(_, _, array):
                self.forget(array)
            case If(_, _, then, orelse):
                self.forget_changed(then)
                self.forget_changed(orelse)
            case For() | While():
                self.forget_changed(stmt.body)
            case _:
                pass

    def block(self, block: Block) -> Block:
        before = dict(self.known)
        copied = super().block(block)
        self.known = before
        return copied

    def loop(self, stmt: For | While) -> None:
        self.forget_changed(stmt.body)
        super().loop(stmt)

    def load(self, stmt: Load) -> None:
        element = self.element(stmt.array, stmt.indices)
        held = self.known.get(element) if stmt.array in self.shared and self._may_change(stmt.array) else None
        indices = self.atoms(stmt.indices)
        out = self.fresh(stmt.out)
        self.builder.emit(Load(out, self.var(stmt.array), indices, stmt.span, held))
        self.known.setdefault(element, out)

    def element(self, array: Var, indices: tuple[Atom, ...]) -> _Element:
        keys = [atom.value if isinstance(atom, Const) else atom for atom in self.atoms(indices)]
        return (array, *keys)

    def _may_change(self, array: Var) -> bool:
        return bool(self.shared[array] & self.changed)

    def forget(self, array: Var) -> None:
        lost = self.shared[array]
        self.known = {element: value for element, value in self.known.items() if element[0] not in lost}

    def forget_changed(self, block: Block) -> None:
        for array in block_effects(block).changed:
            self.forget(array)
