"""Whether statements that have been lowered may change a certain element of an array."""

from collections.abc import Iterator, Sequence

from kernelab.lang.ir import Atom, Atomic, Block, Call, Const, Native, Stmt, Store, Var, walk


def may_change(stmts: Sequence[Stmt], array: Var | None, indices: Sequence[Atom]) -> bool:
    """Whether one of the statements, or a function that they call, may write an element of an array."""
    writes = _writes(Block(tuple(stmts)))
    return any(written is array and not _apart(at, indices) for written, at in writes)


def _writes(block: Block) -> Iterator[tuple[Atom, Sequence[Atom]]]:
    """The arrays that a block writes, each with the indices there; without indices, anywhere."""
    for stmt in walk(block):
        match stmt:
            case Store(array, indices):
                yield array, indices
            case Atomic(_, _, array, indices):
                yield array, indices
            case Native():
                yield from ((array, ()) for array in stmt.changed)
            case Call(_, function, args):
                changed = {array for array, _ in _writes(function.body)}
                pairs = zip(function.params, args, strict=True)
                yield from ((arg, ()) for param, arg in pairs if param in changed)


def _apart(a: Sequence[Atom], b: Sequence[Atom]) -> bool:
    """Whether two places are certainly different elements: constants along one axis differ, of one sign."""
    pairs = zip(a, b, strict=False)
    return any(
        isinstance(x, Const)
        and isinstance(y, Const)
        and x.value != y.value
        and (x.value < 0) == (y.value < 0)
        for x, y in pairs
    )
