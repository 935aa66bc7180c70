"""Activity analysis: finds the values on a path from an active input to an active output.

    t = x[i]; u = sin(t); v = floor(t); w = cos(t); y[i] = u + v        from x to y
    varied    t, u, w and the sum                                       `floor` has the derivative 0
    useful    t, u, v and the sum                                       nothing reads w
    active    t, u and the sum

A Var is *varied* if it depends on an active parameter, *useful* if an active array or result depends on it,
both through floats and operations with a derivative.  Differentiation touches only what is both.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

from kernelab.errors import Diagnostic, KernelTypeError
from kernelab.lang import ir
from kernelab.lang.ops import Undefined, Zero
from kernelab.lang.types import is_differentiable
from kernelab.passes.ad.custom_rules import has_grad
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
    found = varied(function, chosen, memories=memories) & _useful(function, chosen, memories)
    refuse_undefined(function, found)
    return found


def refuse_undefined(function: ir.Function, vars: frozenset[ir.Var]) -> None:
    """Raise KernelTypeError at an operation without a derivative whose result is among `vars`."""
    for stmt in ir.walk(function.body):
        if isinstance(stmt, ir.Let) and isinstance(stmt.op.derivative, Undefined) and stmt.out in vars:
            raise KernelTypeError(
                Diagnostic(
                    f"{stmt.op.name} has no derivative",
                    stmt.span,
                    "derivative",
                    note=stmt.op.derivative.reason,
                    hint="compute it outside of what is differentiated",
                )
            )


def masked(function: ir.Function, memories: frozenset[ir.Var] = frozenset()) -> frozenset[ir.Var]:
    """The Vars whose cotangent may be cut to zero by a selection, as in ``where(x > 0, x * log(x), 0)``.

    What multiplies such a cotangent must not turn the zero into NaN.
    """
    backward = _Useful(set())
    backward.locals = ir.locals_of(function.body) | memories
    for stmt in ir.walk(function.body):
        if isinstance(stmt, ir.Let) and "selects" in stmt.op.tags:
            backward.add_all(stmt.args)
    while backward.grew:
        backward.grew = False
        backward.block(function.body)
    return frozenset(backward.vars)


def varied(
    function: ir.Function,
    params: frozenset[ir.Var],
    opaque: Opaque = has_grad,
    memories: frozenset[ir.Var] = frozenset(),
) -> frozenset[ir.Var]:
    """The Vars that depend on the given parameters."""
    forward = _Varied(set(params), opaque)
    forward.locals = set(memories)
    while forward.grew:
        forward.grew = False
        forward.block(function.body)
    return frozenset(forward.vars)


class _Varied:
    def __init__(self, vars: set[ir.Var], opaque: Opaque) -> None:
        self.vars = vars
        self.opaque = opaque
        self.slots: set[tuple[ir.Stack, int]] = set()
        self.locals: set[ir.Var] = set()
        self.grew = True

    def add(self, var: ir.Var) -> None:
        if var not in self.vars and is_differentiable(var.type):
            self.vars.add(var)
            self.grew = True

    def flow(self, source: ir.Atom, target: ir.Var) -> None:
        if source in self.vars:
            self.add(target)

    def flow_each(self, sources: Sequence[ir.Atom], targets: Sequence[ir.Var]) -> None:
        """The first flows to the first, the second to the second."""
        for source, target in zip(sources, targets, strict=True):
            self.flow(source, target)

    def spread(self, sources: Sequence[ir.Atom], targets: Sequence[ir.Var]) -> None:
        """Everything flows everywhere."""
        if not self.vars.isdisjoint(sources):
            for target in targets:
                self.add(target)

    def block(self, block: ir.Block) -> None:
        for stmt in block.stmts:
            self.stmt(stmt)

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let(out, op, args):
                if not isinstance(op.derivative, Zero):
                    self.spread(args, (out,))
            case ir.Alloc(out):
                self.locals.add(out)
            case ir.Load(out, array) | ir.Atomic(out, _, array):
                self.flow(array, out)
            case ir.Store(array, _, value):
                if array in self.locals:
                    self.flow(value, array)
            case ir.Append(array, value):
                self.flow(value, array)
            case ir.If(outs, _, then, orelse):
                for branch in (then, orelse):
                    self.block(branch)
                    self.flow_each(branch.yields, outs)
            case ir.For() | ir.While():
                self.flow_each(stmt.inits, stmt.carries)
                self.block(stmt.body)
                self.flow_each(stmt.body.yields, stmt.carries)
                self.flow_each(stmt.carries, stmt.outs)
            case ir.Custom(outs, args, _, body):
                if self.opaque(stmt):
                    self.spread(args, outs)
                else:
                    self.block(body)
                    self.flow_each(body.yields, outs)
            case ir.Native(outs, _, args):
                self.spread(args, outs)
            case ir.Save(stack, atoms):
                self.push(stack, atoms)
            case ir.Restore(stack, outs):
                self.pop(stack, outs)
            case ir.Assert() | ir.Print():
                pass
            case ir.Call():
                raise AssertionError("a call that is differentiated has not been inlined")
            case _:
                assert_never(stmt)

    def push(self, stack: ir.Stack, atoms: Sequence[ir.Atom]) -> None:
        for i, atom in enumerate(atoms):
            if atom in self.vars and (stack, i) not in self.slots:
                self.slots.add((stack, i))
                self.grew = True

    def pop(self, stack: ir.Stack, outs: Sequence[ir.Var]) -> None:
        for i, out in enumerate(outs):
            if (stack, i) in self.slots:
                self.add(out)


def _useful(function: ir.Function, params: frozenset[ir.Var], memories: frozenset[ir.Var]) -> set[ir.Var]:
    backward = _Useful(set(params))
    backward.locals = ir.locals_of(function.body) | memories
    for atom in function.body.yields:
        backward.add(atom)
    while backward.grew:
        backward.grew = False
        backward.block(function.body)
    return backward.vars


class _Useful:
    def __init__(self, vars: set[ir.Var]) -> None:
        self.vars = vars
        self.locals: frozenset[ir.Var] = frozenset()
        self.grew = True

    def add(self, atom: ir.Atom) -> None:
        if isinstance(atom, ir.Var) and atom not in self.vars and is_differentiable(atom.type):
            self.vars.add(atom)
            self.grew = True

    def add_all(self, atoms: Sequence[ir.Atom]) -> None:
        for atom in atoms:
            self.add(atom)

    def add_each(self, outs: Sequence[ir.Var], sources: Sequence[ir.Atom]) -> None:
        """Add the yields that produce useful outs."""
        for out, source in zip(outs, sources, strict=True):
            if out in self.vars:
                self.add(source)

    def block(self, block: ir.Block) -> None:
        for stmt in reversed(block.stmts):
            self.stmt(stmt)

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let(out, op, args):
                if out in self.vars and not isinstance(op.derivative, Zero):
                    self.add_all(args)
            case ir.Load(out, array):
                if out in self.vars and array in self.locals:
                    self.add(array)
            case ir.Store(array, _, value) | ir.Atomic(_, _, array, _, value):
                if array in self.vars:
                    self.add(value)
            case ir.If(outs, _, then, orelse):
                for branch in (then, orelse):
                    self.add_each(outs, branch.yields)
                    self.block(branch)
            case ir.For() | ir.While():
                self.loop(stmt)
            case ir.Custom(outs, args, _, body) if has_grad(stmt):
                if not self.vars.isdisjoint({*outs, *block_effects(body).changed}):
                    self.add_all(args)
            case ir.Custom(outs, _, _, body):
                self.add_each(outs, body.yields)
                self.block(body)
            case ir.Native(outs, _, args):
                if not self.vars.isdisjoint({*outs, *stmt.changed}):
                    self.add_all(args)
            case ir.Alloc() | ir.Assert() | ir.Print():
                pass
            case ir.Call() | ir.Save() | ir.Restore() | ir.Append():
                raise AssertionError(f"{type(stmt).__name__} is not differentiated in reverse")
            case _:
                assert_never(stmt)

    def loop(self, stmt: ir.For | ir.While) -> None:
        for i, carry in enumerate(stmt.carries):
            if stmt.outs[i] in self.vars or carry in self.vars:
                self.add(carry)
                self.add(stmt.body.yields[i])
        self.block(stmt.body)
        for i, carry in enumerate(stmt.carries):
            if carry in self.vars:
                self.add(stmt.inits[i])
                self.add(stmt.body.yields[i])
