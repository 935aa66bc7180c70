"""The meaning of `adjoint[x]` in a grad function: a sum that starts at 0, an array, or a struct of these.

    adjoint[x] += v             x_bar += v          x_bar is 0.0 before
    adjoint[a][i] += v          a_bar[i] += v       a_bar is one more parameter
    adjoint[b].mass += v        b_bar.mass += v     b_bar is a struct of sums and parameters
    adjoint[b.mass] += v        the same

What is not a float has no adjoint: in `b_bar` it is what it is in `b`.
"""

import ast
import copy
from collections.abc import Mapping

from kernelab.data_classes import dataclass, replace
from kernelab.errors import Diagnostic
from kernelab.frontend.definitions.definitions import Template, template
from kernelab.frontend.expressions.struct_values import atoms_of, with_atoms
from kernelab.frontend.meaning.meanings import (
    Bound,
    Meaning,
    StructArrayRef,
    TupleOf,
    Typed,
    ViewType,
    is_struct,
)
from kernelab.frontend.meaning.name_lookup import is_word
from kernelab.frontend.meaning.syntax_trees import is_none, leaves, returning
from kernelab.lang.build import type_of, zero
from kernelab.lang.ir import Atom, Var
from kernelab.lang.structs import Struct, StructArray
from kernelab.lang.structs import leaves as leaves_of
from kernelab.lang.types import Array, Type, is_differentiable


@dataclass(frozen=True, slots=True)
class Bar:
    """The name and the meaning of the adjoint of an argument."""

    name: str
    meaning: Meaning

    @property
    def is_summed(self) -> bool:
        """Whether there are sums in it, which the grad function returns."""
        return isinstance(self.meaning, Typed | TupleOf)


def has_floats(kind: Bound) -> bool:
    """Whether arguments of this kind have a derivative, or something in them has."""
    if isinstance(kind, Struct | StructArray):
        return any(is_differentiable(leaf.type) for leaf in leaves_of(kind, ""))
    elem = kind.array if isinstance(kind, ViewType) else kind
    return isinstance(elem, Type) and is_differentiable(elem)


def is_float(meaning: Meaning) -> bool:
    """Whether an argument has a derivative, or something in it has."""
    is_tuple = isinstance(meaning, TupleOf) and meaning.struct is None
    return not is_tuple and any(is_differentiable(atom.type) for atom in atoms_of(meaning))


def bars(rule: Template, inputs: Mapping[str, Meaning]) -> dict[str, Bar]:
    """The adjoints of the arguments that have one."""
    taken = {part.id for part in ast.walk(rule.node) if isinstance(part, ast.Name)}
    taken |= {argument.arg for argument in rule.arguments}
    adjoints = {}
    for name, meaning in inputs.items():
        if not is_float(meaning):
            continue
        bar = f"{name}_bar"
        while bar in taken:
            bar += "_"
        adjoints[name] = Bar(bar, _bar(bar, meaning))
    return adjoints


def _bar(name: str, meaning: Meaning) -> Meaning:
    """The adjoint of an argument: zeros for its floats, parameters of their own for its arrays."""

    def own(atom: Atom) -> Atom:
        if not is_differentiable(atom.type):
            return atom
        if not isinstance(atom, Var) or not isinstance(atom.type, Array):
            return zero(type_of(atom))
        return Var(atom.type, ".".join([name, *atom.hint.split(".")[1:]]), atom.span)

    bar = with_atoms(meaning, own)
    return replace(bar, name=name) if isinstance(bar, StructArrayRef) else bar


def float_part(tangent: Meaning, primal: Meaning) -> Meaning:
    """A tangent whose values other than floats are those of the primal."""
    values = iter([*atoms_of(primal)])

    def part(dot: Atom) -> Atom:
        value = next(values)
        return dot if is_differentiable(dot.type) else value

    return with_atoms(tangent, part)


def is_adjoint(node: ast.expr) -> bool:
    """Whether an expression is the word `adjoint`, bare or with a prefix."""
    return is_word(node, "adjoint")


class Fields(ast.NodeTransformer):
    """Turns `adjoint[b.place.x]` into `adjoint[b].place.x`, where `b` is a struct."""

    def __init__(self, inputs: Mapping[str, Meaning]) -> None:
        self.inputs = inputs

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        names: list[str] = []
        inner = node.slice
        while isinstance(inner, ast.Attribute):
            names.append(inner.attr)
            inner = inner.value
        is_field = names and isinstance(inner, ast.Name) and inner.id in self.inputs
        if not (is_field and is_adjoint(node.value) and is_struct(self.inputs[ast.unparse(inner)])):
            return self.generic_visit(node)
        field: ast.expr = ast.copy_location(ast.Subscript(node.value, inner, ast.Load()), node)
        for name in reversed(names):
            field = ast.copy_location(ast.Attribute(field, name, ast.Load()), node)
        assert isinstance(field, ast.Attribute)
        field.ctx = node.ctx
        return field


class Adjoints(ast.NodeTransformer):
    """Turns `adjoint[x]` into a variable, and gathers what is wrong with its uses."""

    def __init__(
        self, rule: Template, function: str, names: Mapping[str, str], inputs: Mapping[str, Meaning]
    ) -> None:
        self.rule = rule
        self.function = function
        self.names = names
        self.inputs = inputs
        self.used: set[str] = set()
        self.errors: list[Diagnostic] = []
        self.returned: list[str] = []

    def rewritten(self, returned: list[str]) -> Template:
        """The def that returns the sums of these names."""
        self.returned = returned
        old = self.rule
        node = copy.deepcopy(old.node)
        fields = Fields(self.inputs)
        node.body = [self.visit(fields.visit(stmt)) for stmt in node.body]
        if not leaves(node.body):
            node.body.append(returning(returned, node.body[-1]))
        first = node.args.args[0] if node.args.args else ast.arg("", lineno=node.lineno, col_offset=0)
        for name in self.names.values():
            node.args.kwonlyargs.append(ast.copy_location(ast.arg(name), first))
            node.args.kw_defaults.append(None)
        return template(node, old.places, old.scope, old.options)

    def error(self, node: ast.expr | ast.stmt, message: str, hint: str) -> None:
        self.errors.append(Diagnostic(message, self.rule.places(node), "type", hint=hint))

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        if node.value is not None and not is_none(node.value):
            hint = "add what it returns to adjoint[...] of an argument"
            self.error(node.value, f"the grad function {self.rule.name} cannot return a value", hint)
        return returning(self.returned, node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        for target in node.targets:
            self._only_added(target)
        return self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if not isinstance(node.op, ast.Add | ast.Sub):
            self._only_added(node.target)
        return self.generic_visit(node)

    def _only_added(self, target: ast.expr) -> None:
        inner = target
        while isinstance(inner, ast.Attribute) and not is_adjoint(inner):
            inner = inner.value
        match inner:
            case ast.Subscript(value=word, slice=ast.Name(name)) if is_adjoint(word) and name in self.names:
                if inner is not target and not is_struct(self.inputs[name]):
                    return
                message = f"an adjoint can only be added to: {name} may contribute elsewhere too"
                self.error(target, message, f"write {self.rule.places.text(target)} += ...")

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if not is_adjoint(node.value):
            return self.generic_visit(node)
        match node.slice:
            case ast.Name(name) if name in self.names:
                self.used.add(name)
                return ast.copy_location(ast.Name(self.names[name], node.ctx), node)
            case ast.Name(name) if name in self.inputs:
                self.error(node, f"{name} has no adjoint: it is not a float", "leave this line out")
            case ast.Subscript(value=ast.Name(name)) if name in self.names:
                self.error(node, "adjoint[...] takes the name of an argument", f"write adjoint[{name}][...]")
            case _:
                targets = " or ".join(f"adjoint[{name}]" for name in self.names) or "no adjoint at all"
                text = self.rule.places.text(node.slice)
                self.error(node, f"{text} is not an argument of {self.function}", f"write {targets}")
        return node
