"""The verifier: checks scope, single assignment, types and the arity of regions.

Tests run it after every pass.  It raises `InvalidIR`, which names the first statement that is wrong: always a
fault of kernelab, never of its user.
"""

from typing import assert_never

from kernelab.lang import ir
from kernelab.lang.build import type_of
from kernelab.lang.types import Array, Scalar, Type, bool_, is_differentiable, scalar_of, size_of


class InvalidIR(AssertionError):
    """A function that breaks the rules of the IR."""


def verify(function: ir.Function) -> ir.Function:
    """Return the function if it obeys the rules; raises InvalidIR otherwise."""
    _Verifier().function(function)
    return function


def _require(holds: bool, what: str, stmt: ir.Stmt | None = None) -> None:
    if not holds:
        where = "" if stmt is None else f" in {type(stmt).__name__} from {stmt.span}"
        raise InvalidIR(what + where)


class _Verifier:
    def __init__(self) -> None:
        self.seen: set[ir.Var] = set()
        self.scope: set[ir.Var] = set()
        self.saved: dict[ir.Stack, list[Type]] = {}

    def function(self, function: ir.Function) -> None:
        linear = () if function.linear is None else (function.linear,)
        self.block(function.body, (*function.params, *function.threads, *linear))

    def define(self, vars: tuple[ir.Var, ...]) -> None:
        for var in vars:
            if var in self.seen:
                raise InvalidIR(f"{var} is assigned twice")
        self.seen.update(vars)
        self.scope.update(vars)

    def block(self, block: ir.Block, entering: tuple[ir.Var, ...] = ()) -> tuple[Type, ...]:
        self.define(entering)
        for stmt in block.stmts:
            self.in_scope(ir.atoms(stmt), stmt)
            self.stmt(stmt)
            self.define(ir.defs(stmt))
        self.in_scope(block.yields, None)
        self.scope.difference_update(entering, *map(ir.defs, block.stmts))
        return tuple([atom.type for atom in block.yields])

    def in_scope(self, atoms: tuple[ir.Atom, ...], stmt: ir.Stmt | None) -> None:
        for atom in atoms:
            if isinstance(atom, ir.Var) and atom not in self.scope:
                _require(False, f"{atom} is out of scope", stmt)

    def let(self, stmt: ir.Let) -> None:
        inferred = stmt.op.infer([arg.type for arg in stmt.args])
        if inferred != stmt.out.type:
            _require(False, f"{stmt.op.name} gives {inferred}, not {stmt.out.type}", stmt)

    def call(self, stmt: ir.Call) -> None:
        function = stmt.function
        types, wanted = [a.type for a in stmt.args], [p.type for p in function.params]
        _require(types == wanted, f"call of {function.name} with other types", stmt)
        results = [atom.type for atom in function.body.yields]
        if stmt.gradient:
            _require(len(results) == 1, f"gradient of {function.name}, which has several results", stmt)
            results = [t for t in wanted if not isinstance(t, Array) and is_differentiable(t)]
        _require([out.type for out in stmt.outs] == results, f"results of {function.name}", stmt)

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let():
                self.let(stmt)
            case ir.Alloc(out, shape):
                fits = isinstance(out.type, Array) and out.type.ndim == len(shape) and min(shape) > 0
                _require(fits, "a local array of another shape", stmt)
            case ir.Load(out, array, indices):
                self.access(array, indices, out.type, stmt.component, stmt)
                _require(stmt.held is None or stmt.held.type == out.type, "held value of another type", stmt)
            case ir.Store(array, indices, value):
                self.access(array, indices, value.type, stmt.component, stmt)
            case ir.Atomic(out, _, array, indices, value):
                self.access(array, indices, value.type, stmt.component, stmt)
                _require(out.type == value.type, "atomic result of another type", stmt)
                _require((stmt.kind == "cas") == (stmt.compare is not None), "cas alone compares", stmt)
                compares = stmt.compare is None or stmt.compare.type == value.type
                _require(compares, "comparison with another type", stmt)
            case ir.If(outs, cond, then, orelse):
                _require(cond.type == bool_, "condition is not a bool", stmt)
                types = tuple(out.type for out in outs)
                _require(self.block(then) == types, "then yields other types", stmt)
                _require(self.block(orelse) == types, "else yields other types", stmt)
            case ir.For() | ir.While():
                self.loop(stmt)
            case ir.Assert(cond):
                _require(cond.type == bool_, "assertion is not a bool", stmt)
            case ir.Print(texts, specs, values):
                _require(len(texts) == len(specs) + 1 == len(values) + 1, "print of another length", stmt)
                scalars = all(isinstance(value.type, Scalar) for value in values)
                _require(scalars, "print of something else than scalars", stmt)
            case ir.Native(outs, snippet, args):
                sizes = [1 if isinstance(p.type, Array) else size_of(p.type) for p in snippet.arguments]
                _require(len(args) in (len(sizes), sum(sizes)), "native with other arguments", stmt)
            case ir.Call():
                self.call(stmt)
            case ir.Custom(outs, args, rules, body):
                passed, wanted = [a.type for a in args], [p.type for p in rules.function.params]
                _require(passed == wanted, f"use of {rules.function.name} with other types", stmt)
                types = tuple(out.type for out in outs)
                _require(self.block(body) == types, f"results of {rules.function.name}", stmt)
            case ir.Append(array, value):
                _require(array.type == Array(type_of(value), 1), "append of another type", stmt)
            case ir.Save(stack, saved):
                _require(stack not in self.saved, "another save on a stack", stmt)
                self.saved[stack] = [atom.type for atom in saved]
            case ir.Restore(stack, outs):
                _require(self.saved.get(stack) == [out.type for out in outs], "restored types differ", stmt)
            case _:
                assert_never(stmt)

    def access(
        self, array: ir.Var, indices: tuple[ir.Atom, ...], value: Type, component: int | None, stmt: ir.Stmt
    ) -> None:
        _require(isinstance(array.type, Array), f"{array} is not an array", stmt)
        assert isinstance(array.type, Array)
        _require(len(indices) == array.type.ndim, "wrong number of indices", stmt)
        for index in indices:
            _require(isinstance(index.type, Scalar) and index.type.is_int, "index is not an integer", stmt)
        elem = array.type.elem
        expected = elem if component is None else scalar_of(elem)
        _require(value == expected, f"element is {expected}, not {value}", stmt)

    def loop(self, stmt: ir.For | ir.While) -> None:
        types = tuple(var.type for var in stmt.carries)
        _require(tuple(atom.type for atom in stmt.inits) == types, "inits of other types", stmt)
        _require(tuple(out.type for out in stmt.outs) == types, "outs of other types", stmt)
        if isinstance(stmt, ir.For):
            _require(stmt.count.type == stmt.index.type, "count and index differ in type", stmt)
        _require(self.block(stmt.body, ir.entering(stmt)) == types, "body yields other types", stmt)
        if stmt.stop is not None:
            _require(types[stmt.stop] == bool_, "stop is not a bool", stmt)
