"""Copies of IR: every statement again, with fresh Vars, through a folding builder; inlined, or widened.

Most passes are a `Copier` that treats a few kinds of statement differently.  Inlining replaces calls by the
statements of the function, and composed operations by their parts.  Widening makes every float a float64, in
values, arrays and constants, for finite differences; a constant keeps its digits: it was rounded to float32
when it was lowered.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, assert_never

from kernelab.errors import NOWHERE
from kernelab.lang import ir, ops
from kernelab.lang.build import Builder, Expr, is_float, type_of
from kernelab.lang.native import Snippet
from kernelab.lang.ops import COPY, Expanded, Op
from kernelab.lang.types import Array, Mat, Type, Value, float64, scalar_of, type_named, with_scalar


class Copier:
    """Copies into `builder`; `env` says what stands for a Var of the original, itself where it is missing."""

    def __init__(self, builder: Builder | None = None, env: dict[ir.Var, ir.Atom] | None = None) -> None:
        self.builder = Builder() if builder is None else builder
        self.env: dict[ir.Var, ir.Atom] = {} if env is None else env

    def function(self, function: ir.Function) -> ir.Function:
        """The whole function again; parameters and thread indices keep their Vars."""
        self.stmts(function.body)
        return replace(function, body=self.builder.close(*self.atoms(function.body.yields)))

    def atom(self, atom: ir.Atom) -> ir.Atom:
        return self.env.get(atom, atom) if isinstance(atom, ir.Var) else atom

    def var(self, var: ir.Var) -> ir.Var:
        copied = self.atom(var)
        assert isinstance(copied, ir.Var), f"{var} became a constant"
        return copied

    def atoms(self, atoms: Sequence[ir.Atom]) -> tuple[ir.Atom, ...]:
        return tuple([self.atom(atom) for atom in atoms])

    def fresh(self, var: ir.Var) -> ir.Var:
        """A new Var for the copy of the one that defines `var`."""
        copied = ir.Var(var.type, var.hint, var.span)
        self.env[var] = copied
        return copied

    def fresh_all(self, vars: Sequence[ir.Var]) -> tuple[ir.Var, ...]:
        return tuple([self.fresh(var) for var in vars])

    def entered(self, function: ir.Function, args: Sequence[ir.Atom]) -> tuple[ir.Atom, ...]:
        """Write out the statements of another function; what it yields."""
        inside = type(self)(self.builder, dict(zip(function.params, args, strict=True)))
        inside.stmts(function.body)
        return inside.atoms(function.body.yields)

    def stmts(self, block: ir.Block) -> None:
        """Copy the statements of a block into the open block."""
        builder = self.builder
        with builder.at(builder.span):
            for stmt in block.stmts:
                builder.span = stmt.span
                self.stmt(stmt)

    def block(self, block: ir.Block) -> ir.Block:
        """A copy of a block as a block of its own."""
        with self.builder.block() as copied:
            self.stmts(block)
        return copied.close(*self.atoms(block.yields))

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let():
                self.let(stmt)
            case ir.Alloc(out, shape, span):
                self.builder.emit(ir.Alloc(self.fresh(out), shape, span))
            case ir.Load():
                self.load(stmt)
            case ir.Store(array, indices, value, span, component):
                copied = ir.Store(self.var(array), self.atoms(indices), self.atom(value), span, component)
                self.builder.emit(copied)
            case ir.Atomic():
                self.atomic(stmt)
            case ir.If():
                self.if_(stmt)
            case ir.For() | ir.While():
                self.loop(stmt)
            case ir.Assert(cond, kind, message):
                self.builder.check(self.atom(cond), kind, message)
            case ir.Print(texts, specs, values, span):
                self.builder.emit(ir.Print(texts, specs, self.atoms(values), span))
            case ir.Native(outs, snippet, args, span):
                args = self.atoms(args)
                self.builder.emit(ir.Native(self.fresh_all(outs), snippet, args, span))
            case ir.Call(outs, function, args, span):
                args = self.atoms(args)
                self.builder.emit(ir.Call(self.fresh_all(outs), function, args, span, stmt.gradient))
            case ir.Custom():
                self.custom(stmt)
            case ir.Save(stack, atoms, span):
                self.builder.emit(ir.Save(stack, self.atoms(atoms), span))
            case ir.Restore(stack, outs, span):
                self.builder.emit(ir.Restore(stack, self.fresh_all(outs), span))
            case ir.Append(array, value, span):
                self.builder.emit(ir.Append(self.var(array), self.atom(value), span))
            case _:
                assert_never(stmt)

    def let(self, stmt: ir.Let) -> None:
        out = stmt.out
        self.env[out] = self.builder.let(stmt.op, self.atoms(stmt.args), type_of(out), out.hint)

    def load(self, stmt: ir.Load) -> None:
        held = None if stmt.held is None else self.atom(stmt.held)
        array, indices = self.var(stmt.array), self.atoms(stmt.indices)
        self.builder.emit(ir.Load(self.fresh(stmt.out), array, indices, stmt.span, held, stmt.component))

    def atomic(self, stmt: ir.Atomic) -> None:
        held = None if stmt.held is None else self.atom(stmt.held)
        array, indices, value = self.var(stmt.array), self.atoms(stmt.indices), self.atom(stmt.value)
        compare = None if stmt.compare is None else self.atom(stmt.compare)
        out = self.fresh(stmt.out)
        self.builder.emit(
            ir.Atomic(out, stmt.kind, array, indices, value, stmt.span, held, stmt.component, compare)
        )

    def if_(self, stmt: ir.If) -> None:
        cond = self.atom(stmt.cond)
        if isinstance(cond, ir.Const):
            taken = stmt.then if cond.value else stmt.orelse
            self.stmts(taken)
            self.env.update(zip(stmt.outs, self.atoms(taken.yields), strict=True))
            return
        then, orelse = self.block(stmt.then), self.block(stmt.orelse)
        self.builder.emit(ir.If(self.fresh_all(stmt.outs), cond, then, orelse, stmt.span))

    def custom(self, stmt: ir.Custom) -> None:
        args, body = self.atoms(stmt.args), self.block(stmt.body)
        self.builder.emit(ir.Custom(self.fresh_all(stmt.outs), args, stmt.rules, body, stmt.span))

    def loop(self, stmt: ir.Loop) -> None:
        inits, carries, head = self.atoms(stmt.inits), self.fresh_all(stmt.carries), self.head(stmt)
        body = self.block(stmt.body)
        outs = self.fresh_all(stmt.outs)
        self.builder.emit(replace(stmt, outs=outs, carries=carries, inits=inits, body=body, **head))

    def head(self, stmt: ir.Loop) -> dict[str, Any]:
        """The copied index and count of a `For`, as its fields; a `While` has neither."""
        if isinstance(stmt, ir.While):
            return {}
        return {"count": self.atom(stmt.count), "index": self.fresh(stmt.index)}


class Accompanying(Copier):
    """A `Copier` that gives some values a companion, such as a tangent, through branches, loops and stacks.

    `companions` are those of the values of the original, `beside` the arrays that hold those of elements.
    """

    def __init__(self) -> None:
        super().__init__()
        self.companions: dict[ir.Atom, ir.Atom] = {}
        self.beside: dict[ir.Var, ir.Var] = {}
        self._pushed: dict[ir.Stack, list[int]] = {}

    def is_accompanied(self, atom: ir.Atom) -> bool:
        """Whether a value that goes into a region, or comes out of one, has a companion."""
        raise NotImplementedError

    def companion(self, atom: ir.Atom) -> ir.Atom:
        """The companion of a value, or what stands for it where there is none."""
        raise NotImplementedError

    def new_companion(self, var: ir.Var) -> ir.Var:
        """A Var that becomes the companion of a value."""
        raise NotImplementedError

    def held(self, value: ir.Atom, beside: ir.Var) -> ir.Atom:
        """The companion of a value, as an array of companions holds it."""
        return self.companion(value)

    def taken(self, var: ir.Var, beside: ir.Var) -> ir.Var:
        """A Var for the element of an array of companions, which becomes the companion of a value."""
        return self.new_companion(var)

    def companion_array(self, stmt: ir.Alloc) -> ir.Alloc:
        """The local array that holds the companions of the elements of another."""
        raise NotImplementedError

    def place(self, stmt: ir.ArrayAccess) -> tuple[ir.Atom, ...]:
        """The indices of the companion of an element."""
        return self.atoms(stmt.indices)

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Alloc(out) if self.is_accompanied(out):
                super().stmt(stmt)
                added = self.companion_array(stmt)
                self.beside[out] = added.out
                self.builder.emit(added)
            case ir.Store(array, _, value, span) if array in self.beside:
                super().stmt(stmt)
                beside = self.beside[array]
                self.builder.emit(ir.Store(beside, self.place(stmt), self.held(value, beside), span))
            case ir.Save(stack, atoms, span):
                moved = self._pushed[stack] = self._accompanied(atoms)
                self.builder.emit(ir.Save(stack, self._both(atoms, moved), span))
            case ir.Restore(stack, outs, span):
                self.builder.emit(ir.Restore(stack, self._fresh_both(outs, self._pushed[stack]), span))
            case _:
                super().stmt(stmt)

    def if_(self, stmt: ir.If) -> None:
        moved = self._accompanied(stmt.outs)
        then, orelse = self._region(stmt.then, moved), self._region(stmt.orelse, moved)
        outs = self._fresh_both(stmt.outs, moved)
        self.builder.emit(ir.If(outs, self.atom(stmt.cond), then, orelse, stmt.span))

    def loop(self, stmt: ir.Loop) -> None:
        moved = self._accompanied(stmt.carries)
        inits, carries = self._both(stmt.inits, moved), self._fresh_both(stmt.carries, moved)
        head, body = self.head(stmt), self._region(stmt.body, moved)
        outs = self._fresh_both(stmt.outs, moved)
        self.builder.emit(replace(stmt, outs=outs, carries=carries, inits=inits, body=body, **head))

    def load(self, stmt: ir.Load) -> None:
        super().load(stmt)
        if stmt.array in self.beside:
            array = self.beside[stmt.array]
            self.builder.emit(ir.Load(self.taken(stmt.out, array), array, self.place(stmt), stmt.span))

    def _accompanied(self, atoms: Sequence[ir.Atom]) -> list[int]:
        return [i for i, atom in enumerate(atoms) if self.is_accompanied(atom)]

    def _both(self, atoms: Sequence[ir.Atom], moved: list[int]) -> tuple[ir.Atom, ...]:
        """The copies of atoms, and then the companions of those at some positions."""
        return (*self.atoms(atoms), *(self.companion(atoms[i]) for i in moved))

    def _fresh_both(self, vars: Sequence[ir.Var], moved: list[int]) -> tuple[ir.Var, ...]:
        return (*self.fresh_all(vars), *(self.new_companion(vars[i]) for i in moved))

    def _region(self, block: ir.Block, moved: list[int]) -> ir.Block:
        with self.builder.block() as copied:
            self.stmts(block)
            yields = self._both(block.yields, moved)
        return copied.close(*yields)


# --------------------------------------------------------------------------------------------------- inlining


@lru_cache(16)
def inline(function: ir.Function) -> ir.Function:
    """The function with every call replaced by what it does, to any depth."""
    return _Inliner().function(function)


def lay_out(function: ir.Function, merged: bool = True) -> ir.Function:
    """The function with its calls inlined, those with derivatives that users wrote as `Custom` statements.

    With `merged=False`, the arguments and results of a call are copies that stand at its line.
    """
    return (LayingOut() if merged else _Naming()).function(function)


class _Inliner(Copier):
    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Call():
                assert not stmt.gradient, "expand_gradients comes first"
                self.call(stmt)
            case ir.Custom():
                self.stmts(stmt.body)
                self.env.update(zip(stmt.outs, self.atoms(stmt.body.yields), strict=True))
            case _:
                super().stmt(stmt)

    def call(self, stmt: ir.Call) -> None:
        self.env.update(zip(stmt.outs, self.entered(stmt.function, self.atoms(stmt.args)), strict=True))


class LayingOut(_Inliner):
    """Inlines calls, but for those whose derivative a user wrote."""

    def stmt(self, stmt: ir.Stmt) -> None:
        if isinstance(stmt, ir.Custom):
            self.custom(stmt)
        else:
            super().stmt(stmt)

    def call(self, stmt: ir.Call) -> None:
        rules = stmt.function.custom
        if rules is None:
            super().call(stmt)
            return
        args = self.atoms(stmt.args)
        callee = type(self)(self.builder, dict(zip(stmt.function.params, args, strict=True)))
        body = callee.block(stmt.function.body)
        self.builder.emit(ir.Custom(self.fresh_all(stmt.outs), args, rules, body, stmt.span))


class _Naming(LayingOut):
    def call(self, stmt: ir.Call) -> None:
        params, args = stmt.function.params, self.atoms(stmt.args)
        with self.builder.at(stmt.span):
            args = tuple(self.named(param, arg) for param, arg in zip(params, args, strict=True))
        super().call(replace(stmt, args=args))
        if stmt.function.custom is None:
            for out in stmt.outs:
                with self.builder.at(out.span if out.span is not NOWHERE else stmt.span):
                    self.env[out] = self.named(out, self.env[out])

    def named(self, name: ir.Var, value: ir.Atom) -> ir.Atom:
        """A copy of a float, under a name."""
        if not is_float(name):
            return value
        return self.builder.let(COPY, (value,), type_of(name), name.hint)


# ----------------------------------------------------------------------------------------- expand operations


def expanded(function: ir.Function, also: Collection[ir.Var] = ()) -> ir.Function:
    """The function without operations whose derivative is that of their expansion.

    Nor with the products of vectors and matrices whose results are among `also`.
    """
    if not also and not any(_is_composed(stmt.op) for stmt in ir.of_kind(function.body, ir.Let)):
        return function
    return _Expanding(Expander(), also).function(function)


class _Expanding(Copier):
    def __init__(self, builder: "Expander", also: Collection[ir.Var]) -> None:
        super().__init__(builder)
        self.expander = builder
        self.also = also

    def let(self, stmt: ir.Let) -> None:
        self.expander.opens = stmt.out in self.also
        super().let(stmt)
        self.expander.opens = False


def _is_composed(op: Op) -> bool:
    return isinstance(op.derivative, Expanded)


class Expander(Builder):
    """Writes composed operations as their parts; remembers what vectors and matrices were made of."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[ir.Atom, Sequence[ir.Atom]] = {}
        self.opens = False
        """Whether the next operation is written as its parts, whatever its derivative."""

    def let(self, op: Op, args: Sequence[ir.Atom], type: Value, hint: str = "") -> ir.Atom:
        if _is_composed(op) or self.opens:
            assert op.expand is not None
            self.opens = False
            result: Expr = op.expand(*(Expr(self, arg) for arg in args))
            if hint and isinstance(result.atom, ir.Var) and not result.atom.hint:
                result.atom.hint = hint
            return result.atom
        component = self._component(args) if op.name == "extract" else None
        if component is not None:
            return component
        out = super().let(op, args, type, hint)
        if "make" in op.tags:
            self.made[out] = tuple(args)
        return out

    def _component(self, args: Sequence[ir.Atom]) -> ir.Atom | None:
        whole, *indices = args
        parts = self.made.get(whole)
        if parts is None or not all(isinstance(i, ir.Const) and i.value >= 0 for i in indices):
            return None
        places = [int(i.value) for i in indices if isinstance(i, ir.Const)]
        at = places[0] * whole.type.m + places[1] if isinstance(whole.type, Mat) else places[0]
        return parts[at]


# --------------------------------------------------------------------------------------------------- widening


def widen(function: ir.Function) -> ir.Function:
    """The function over float64, with parameters of its own."""
    return widen_all(function)[0]


def widen_all(function: ir.Function) -> tuple[ir.Function, dict[ir.Var, ir.Atom]]:
    """The same, and what stands there for each value of the function."""
    widener = _Widener()
    params = tuple(widener.fresh(param) for param in function.params)
    wide = widener.function(function)
    return replace(wide, name=f"{function.name}_float64", params=params), widener.env


def widened(type: Type) -> Type:
    """The type over float64 where it was over another float."""
    if isinstance(type, Array):
        return Array(_wide(type.elem), type.ndim)
    return _wide(type)


def _wide(type: Value) -> Value:
    return with_scalar(type, float64) if scalar_of(type).is_float else type


class _Widener(Copier):
    def fresh(self, var: ir.Var) -> ir.Var:
        copied = ir.Var(widened(var.type), var.hint, var.span)
        self.env[var] = copied
        return copied

    def atom(self, atom: ir.Atom) -> ir.Atom:
        if not isinstance(atom, ir.Const):
            return super().atom(atom)
        type = _wide(atom.type)
        number = atom.value if atom.exact is None else atom.exact
        return ir.Const(float(number), type) if type != atom.type else atom

    def stmt(self, stmt: ir.Stmt) -> None:
        # A widened kernel serves to check another, whose output the reader has seen.
        match stmt:
            case ir.Print():
                pass
            case ir.Native(_, snippet):
                super().stmt(replace(stmt, snippet=_wide_snippet(snippet)))
            case _:
                super().stmt(stmt)

    def let(self, stmt: ir.Let) -> None:
        args = self.atoms(stmt.args)
        type = _wide(type_of(stmt.out))
        if stmt.op in (ops.SHAPE, ops.COPY):
            self.env[stmt.out] = self.builder.let(stmt.op, args, type, stmt.out.hint)
            return
        resolved = ops.resolve(_renamed(stmt.op.name), [arg.type for arg in args])
        # An operation of float32 alone, such as `randf`, stays one.
        op, own = (stmt.op, type_of(stmt.out)) if resolved is None else resolved
        if resolved is None:
            args = tuple(self.converted(arg, type_of(old)) for arg, old in zip(args, stmt.args, strict=True))
        self.env[stmt.out] = self.converted(self.builder.let(op, args, own, stmt.out.hint), type)

    def converted(self, atom: ir.Atom, type: Value) -> ir.Atom:
        return atom if atom.type == type else self.builder.apply(str(type), atom)

    def custom(self, stmt: ir.Custom) -> None:
        super().custom(replace(stmt, rules=widen_rules(stmt.rules)))


@lru_cache(256)
def widen_rules(rules: ir.CustomRules) -> ir.CustomRules:
    """The rules of a function, over float64."""
    return rules.mapped(lambda rule: replace(widen(lay_out(rule)), name=rule.name))


@lru_cache(256)
def _wide_snippet(snippet: Snippet) -> Snippet:
    params = tuple(replace(param, type=widened(param.type)) for param in snippet.params)
    result = None if snippet.result is None else _wide(snippet.result)
    return replace(snippet, params=params, result=result, is_wide=True)


def _renamed(name: str) -> str:
    """The name of a cast or constructor of the wide type: ``vec3`` becomes ``vec3d``."""
    type = type_named(name)
    return name if type is None else str(_wide(type))
