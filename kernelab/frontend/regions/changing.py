"""What lowered statements may change: an element of an array, or a value from one iteration to the next."""

from collections.abc import Iterator, Sequence

from kernelab.lang.ir import (
    Atom,
    Atomic,
    Block,
    Call,
    Const,
    Function,
    If,
    Load,
    Native,
    Stmt,
    Store,
    Var,
    defs,
    reads,
    walk,
)


def may_change(stmts: Sequence[Stmt], array: Var | None, indices: Sequence[Atom]) -> bool:
    """Whether one of the statements, or a function that they call, may write an element of an array."""
    writes = _writes(Block(tuple(stmts)))
    return any(written is array and not _apart(at, indices) for written, at in writes)


def changed_by(function: Function) -> list[Var]:
    """The array parameters that a function changes, also through the functions that it calls."""
    written = {array for array, _ in _writes(function.body)}
    return [param for param in function.params if param in written]


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
                changed = changed_by(function)
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


def may_differ(atom: Atom, body: Sequence[Stmt], carries: Sequence[Var], yields: Sequence[Atom]) -> bool:
    """Whether what the body of a loop computes may be something else in a later iteration.

    What other threads write in the meantime counts as nothing: nobody says that they run at the same time.
    """
    writes = any(_is_write(stmt) for stmt in walk(Block(tuple(body))))
    differing: set[Atom] = {carry for carry, last in zip(carries, yields, strict=True) if last is not carry}
    _follow(body, writes, differing)
    return atom in differing


def _follow(stmts: Sequence[Stmt], writes: bool, differing: set[Atom]) -> None:
    """Add what the statements compute of what differs; `writes` says that memory may."""
    for stmt in stmts:
        if isinstance(stmt, If):
            _follow(stmt.then.stmts, writes, differing)
            _follow(stmt.orelse.stmts, writes, differing)
            sides = zip(stmt.outs, stmt.then.yields, stmt.orelse.yields, strict=True)
            differing |= {out for out, *given in sides if not differing.isdisjoint([stmt.cond, *given])}
            continue
        inside = Block((stmt,))
        is_open = any(_is_open(inner, writes) for inner in walk(inside))
        if is_open or not differing.isdisjoint(reads(inside)):
            differing |= set(defs(stmt))


def _is_write(stmt: Stmt) -> bool:
    return isinstance(stmt, Store | Atomic | Native | Call)


def _is_open(stmt: Stmt, writes: bool) -> bool:
    """Whether a statement may give something else for the same operands."""
    return isinstance(stmt, Atomic | Native | Call) or (writes and isinstance(stmt, Load))
