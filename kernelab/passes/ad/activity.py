"""Activity analysis: finds the values on a path from an active input to an active output.

    t = x[i]; u = sin(t); v = floor(t); w = cos(t); y[i] = u + v        from x to y
    varied    t, u, w and the sum                                       `floor` has the derivative 0
    useful    t, u, v and the sum                                       nothing reads w
    active    t, u and the sum

A Var is *varied* if it depends on an active parameter, *useful* if an active array or result depends on it,
both through floats and operations with a derivative.  Differentiation touches only what is both.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import product

from kernelab.errors import Diagnostic, KernelTypeError
from kernelab.lang import ir
from kernelab.lang.build import elem_of, type_of
from kernelab.lang.dependence import Edges, Node, reached
from kernelab.lang.ops import Bilinear, Op, Partials, Undefined, Zero
from kernelab.lang.types import Array, is_differentiable, scalar_of
from kernelab.passes.ad.derivative_rules import EXTREMA, has_grad
from kernelab.passes.common.effects import block_effects

Opaque = Callable[[ir.Custom], bool]
"""The functions with custom derivatives that are opaque: all arguments lead to all results."""


def active(
    function: ir.Function, params: Iterable[ir.Var], memories: frozenset[ir.Var] = frozenset()
) -> frozenset[ir.Var]:
    """The Vars that are varied and useful when these parameters are active.

    `memories` are arrays that belong to the threads, like those that the function makes itself.

    Raises KernelTypeError where a derivative is needed that an operation does not have.
    """
    chosen = frozenset(params)
    edges = list(_edges(function.body, has_grad))
    passes = partial(_carries, ir.locals_of(function.body) | memories)
    varied = reached(edges, chosen, passes)
    useful = reached(_reversed(edges), [*chosen, *filter(passes, function.body.yields)], passes)
    refuse_undefined(function, varied & useful)
    refuse_lost_bits(function, varied, useful, has_grad)
    return varied & useful


def refuse_undefined(function: ir.Function, vars: frozenset[ir.Var]) -> None:
    """Raise KernelTypeError at an operation without a derivative whose result is among `vars`."""
    for stmt in ir.of_kind(function.body, ir.Let):
        if isinstance(stmt.op.derivative, Undefined) and stmt.out in vars:
            message, note = f"{stmt.op.name} has no derivative", stmt.op.derivative.reason
            hint = "compute it outside of what is differentiated"
            raise KernelTypeError(Diagnostic(message, stmt.span, "derivative", note=note, hint=hint))


def refuse_lost_bits(
    function: ir.Function, varied: frozenset[ir.Var], useful: frozenset[ir.Var] | None, opaque: Opaque
) -> None:
    """Raise KernelTypeError where bits of a float that varies become a useful float again; None is all.

    An integer that a float is rounded to has the derivative 0 nearly everywhere. Its bits have not.
    """
    stmts = [*_statements(function.body, opaque)]
    casts = [stmt for stmt in stmts if isinstance(stmt, ir.Let) and "bits" in stmt.op.tags]
    taken = [stmt.out for stmt in casts if stmt.args[0] in varied]
    if not taken:
        return
    edges = (edge for stmt in stmts for edge in ir.flows(stmt))
    bits = reached(edges, taken, _is_whole)
    for stmt in casts:
        if stmt.args[0] in bits and (useful is None or stmt.out in useful):
            message = f"a {type_of(stmt.out)} that is made of the bits of another float has no derivative"
            hint = (
                "take the bits of stop_gradient(...), if they are meant to be constant, or write a func_grad"
            )
            raise KernelTypeError(Diagnostic(message, stmt.span, "derivative", hint=hint))


def _is_whole(node: Node) -> bool:
    if not isinstance(node, ir.Var):
        return False
    return scalar_of(elem_of(node) if isinstance(node.type, Array) else type_of(node)).is_int


def _statements(block: ir.Block, opaque: Opaque) -> Iterator[ir.Stmt]:
    """The statements of a block and of those inside, but for functions with derivatives of their own."""
    return ir.walk(
        block, lambda stmt: () if isinstance(stmt, ir.Custom) and opaque(stmt) else ir.blocks(stmt)
    )


def masked(function: ir.Function, memories: frozenset[ir.Var] = frozenset()) -> frozenset[ir.Var]:
    """The Vars whose cotangent may be a zero that must not turn into NaN by what multiplies it.

    A selection cuts it to zero, as in ``where(x > 0, x * log(x), 0)``, also one by an atomic minimum or
    maximum, and so does ``exp(-inf)``.  That of what may be infinite is zero where a branch does not use it.
    """
    selected: list[ir.Atom] = []
    for stmt in ir.walk(function.body):
        match stmt:
            case ir.Let(_, op, args) if not op.tags.isdisjoint(("selects", "vanishes")):
                selected += args
            case ir.Atomic(kind=kind, value=value) if kind in EXTREMA:
                selected.append(value)
    passes = partial(_carries, ir.locals_of(function.body) | memories)
    cut = reached(_reversed(_edges(function.body, has_grad)), filter(passes, selected), passes)
    return cut | unbounded(function, has_grad, memories)


def masked_products(function: ir.Function) -> frozenset[ir.Var]:
    """The products of vectors and matrices that have such a cotangent, component by component."""
    lets = (let for let in ir.of_kind(function.body, ir.Let) if isinstance(let.op.derivative, Bilinear))
    products = {let.out for let in lets if let.op.expand is not None}
    return masked(function) & products if products else frozenset()


def unbounded(
    function: ir.Function, opaque: Opaque, memories: frozenset[ir.Var] = frozenset()
) -> frozenset[ir.Var]:
    """The Vars that may be infinite or NaN though all that is loaded is finite: what follows a quotient."""
    stmts = ir.walk(function.body)
    first = [stmt.out for stmt in stmts if isinstance(stmt, ir.Let) and _may_be_infinite(stmt.op, stmt.args)]
    if not first:
        return frozenset()
    return reached(
        _edges(function.body, opaque), first, partial(_carries, ir.locals_of(function.body) | memories)
    )


def _may_be_infinite(op: Op, args: Sequence[ir.Atom]) -> bool:
    """Whether a result may be infinite; that of a division by a number, or of a power, is not."""
    *others, last = args
    if others and isinstance(last, ir.Const) and last.value > 0:
        return False
    return "unbounded" in op.tags or (isinstance(op.derivative, Partials) and op.derivative.singular)


def varied(function: ir.Function, params: frozenset[ir.Var], opaque: Opaque) -> frozenset[ir.Var]:
    """The Vars that depend on the given parameters."""
    appended = {stmt.array for stmt in ir.of_kind(function.body, ir.Append)}
    return reached(
        _edges(function.body, opaque), params, partial(_carries, ir.locals_of(function.body) | appended)
    )


def leads(function: ir.Function) -> dict[ir.Var, frozenset[ir.Var]]:
    """The changed arrays that have a derivative by each parameter, whether users' rules tell it or not."""
    arrays = frozenset(param for param in function.params if isinstance(param.type, Array))
    changed, edges = block_effects(function.body).changed, list(_edges(function.body, has_grad))
    carries = partial(_carries, arrays | ir.locals_of(function.body))
    return {param: changed & reached(edges, [param], carries) for param in function.params}


def _edges(block: ir.Block, opaque: Opaque) -> Iterator[tuple[Node, Node]]:
    """What depends on what, where there is a derivative: pairs of a source and a target."""
    for stmt in _statements(block, opaque):
        match stmt:
            case ir.Let(_, op) if isinstance(op.derivative, Zero):
                pass
            case ir.Custom(outs, args, _, body) if opaque(stmt):
                yield from product(args, (*outs, *block_effects(body).changed))
            case ir.Native(outs, _, args):
                yield from product(args, (*outs, *stmt.changed))
            case ir.Save(stack, atoms):
                yield from ((atom, (stack, i)) for i, atom in enumerate(atoms))
            case ir.Restore(stack, outs):
                yield from (((stack, i), out) for i, out in enumerate(outs))
            case ir.Call():
                raise AssertionError("a call that is differentiated has not been inlined")
            case _:
                yield from ir.flows(stmt)


def _reversed(edges: Edges) -> Edges:
    return ((target, source) for source, target in edges)


def _carries(own: frozenset[ir.Var], node: Node) -> bool:
    """Whether a derivative may pass on through a node; of arrays, through those of the thread's own."""
    if not isinstance(node, ir.Var):
        return isinstance(node, tuple)
    return is_differentiable(node.type) and (not isinstance(node.type, Array) or node in own)
