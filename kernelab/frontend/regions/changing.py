"""Analyses of lowered statements: may they change an array element, or a value between iterations?"""

from collections.abc import Iterator, Sequence

from kernelab.lang import ir


def may_change(stmts: Sequence[ir.Stmt], array: ir.Var | None, indices: Sequence[ir.Atom]) -> bool:
    """Whether one of the statements, or a function that they call, may write an element of an array."""
    writes = _writes(ir.Block(tuple(stmts)))
    return any(written is array and not _surely_distinct(at, indices) for written, at in writes)


def changed_by(function: ir.Function) -> list[ir.Var]:
    """The array parameters that a function changes, also through the functions that it calls."""
    written = {array for array, _ in _writes(function.body)}
    return [param for param in function.params if param in written]


def written_in(stmts: Sequence[ir.Stmt]) -> frozenset[ir.Var]:
    """The arrays that statements may change, local ones among them."""
    return frozenset(array for array, _ in _writes(ir.Block(tuple(stmts))) if isinstance(array, ir.Var))


def _writes(block: ir.Block) -> Iterator[tuple[ir.Atom, Sequence[ir.Atom]]]:
    """The arrays that a block writes, each with the indices there; without indices, anywhere."""
    for stmt in ir.walk(block):
        match stmt:
            case ir.Store(array, indices):
                yield array, indices
            case ir.Atomic(_, _, array, indices):
                yield array, indices
            case ir.Native():
                yield from ((array, ()) for array in stmt.changed)
            case ir.Call(_, function, args):
                changed = changed_by(function)
                pairs = zip(function.params, args, strict=True)
                yield from ((arg, ()) for param, arg in pairs if param in changed)


def _surely_distinct(a: Sequence[ir.Atom], b: Sequence[ir.Atom]) -> bool:
    """Whether two places are certainly different elements: constants along one axis differ, of one sign."""
    pairs = zip(a, b, strict=False)
    return any(
        isinstance(x, ir.Const)
        and isinstance(y, ir.Const)
        and x.value != y.value
        and (x.value < 0) == (y.value < 0)
        for x, y in pairs
    )


def may_differ(
    atom: ir.Atom, body: Sequence[ir.Stmt], carries: Sequence[ir.Var], yields: Sequence[ir.Atom]
) -> bool:
    """Whether what the body of a loop computes may be something else in a later iteration.

    What other threads write in the meantime counts as nothing: nobody says that they run at the same time.
    """
    writes = any(
        isinstance(stmt, ir.Store | ir.Atomic | ir.Native | ir.Call)
        for stmt in ir.walk(ir.Block(tuple(body)))
    )
    differing: set[ir.Atom] = {
        carry for carry, last in zip(carries, yields, strict=True) if last is not carry
    }
    _follow(body, writes, differing)
    return atom in differing


def _follow(stmts: Sequence[ir.Stmt], writes: bool, differing: set[ir.Atom]) -> None:
    """Add what the statements compute of what differs; `writes` says that memory may."""
    for stmt in stmts:
        if isinstance(stmt, ir.If):
            _follow(stmt.then.stmts, writes, differing)
            _follow(stmt.orelse.stmts, writes, differing)
            sides = zip(stmt.outs, stmt.then.yields, stmt.orelse.yields, strict=True)
            differing |= {out for out, *operands in sides if not differing.isdisjoint([stmt.cond, *operands])}
            continue
        inside = ir.Block((stmt,))
        is_open = any(_is_open(inner, writes) for inner in ir.walk(inside))
        if is_open or not differing.isdisjoint(ir.reads(inside)):
            differing |= set(ir.defs(stmt))


def _is_open(stmt: ir.Stmt, writes: bool) -> bool:
    """Whether a statement may give something else for the same operands."""
    return isinstance(stmt, ir.Atomic | ir.Native | ir.Call) or (writes and isinstance(stmt, ir.Load))
