"""Custom derivatives as users write them: grad, replay and jvp functions for a function of their own.

A grad function says what to add to the adjoints of its arguments.  It is lowered as a function that returns
what it has added up:

    def adj_f(x: float, adj_ret: float):        def adj_f(x, adj_ret, x_bar = 0.0):
        if x > 0.0:                                 if x > 0.0:
            adjoint[x] += adj_ret / x                   x_bar += adj_ret / x
                                                    return (x_bar,)

The adjoint of an array is an array, which it gets as one more argument.
"""

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from kernelab.errors import Diagnostic, Related, Span
from kernelab.frontend.annotations import annotation
from kernelab.frontend.definitions import Template, UserFunction, as_meaning, lower_rule, template
from kernelab.frontend.frame import BrokenCall, Mistake, counted
from kernelab.frontend.jumps import leaves
from kernelab.frontend.names import PREFIXES
from kernelab.frontend.values import (
    ArrayRef,
    Bound,
    Instance,
    Meaning,
    Parameter,
    StructArrayRef,
    TupleOf,
    Typed,
    View,
    Weak,
)
from kernelab.lang.build import type_of, zero
from kernelab.lang.ir import Atomic, Call, CustomRules, Function, Native, Store, Var, walk
from kernelab.lang.structs import Struct, StructArray
from kernelab.lang.types import Array, Type, is_differentiable

RuleKind = Literal["func_grad", "func_replay", "func_jvp"]
KINDS: tuple[RuleKind, ...] = get_args(RuleKind)


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A def that stands for a part of the derivative of a function."""

    kind: RuleKind
    template: Template
    checked: bool = True

    @property
    def name(self) -> str:
        return self.template.name

    @property
    def span(self) -> Span:
        return self.template.span


def attach(rule: Rule, function: UserFunction) -> None:
    """From now on the function is differentiated by the rule; a rule of the same kind is replaced."""
    rules = function.rules if isinstance(function.rules, Rules) else Rules({})
    function.set_rules(Rules({**rules.of, rule.kind: rule}))


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """The rules of a function."""

    of: Mapping[RuleKind, Rule]

    def lower(self, callee: UserFunction, bound: Sequence[Bound], instance: Instance) -> CustomRules:
        """The rules for arguments of certain types; raises BrokenCall where they have mistakes."""
        inputs = list(zip(callee.signature(), bound, strict=True))
        lowering = _Lowering(callee, inputs, instance.function, list(_leaves(instance.results)))
        if any(isinstance(kind, Struct | StructArray) for kind in bound) or _returns_more_than_numbers(
            instance.results
        ):
            raise BrokenCall(tuple(lowering.of_structs(rule) for rule in self.of.values()))
        made = {kind: lowering.rule(rule) for kind, rule in self.of.items()}
        if lowering.errors:
            raise BrokenCall(tuple(lowering.errors))
        grad = self.of.get("func_grad")
        return CustomRules(
            instance.function,
            made.get("func_grad"),
            made.get("func_replay"),
            made.get("func_jvp"),
            grad is None or grad.checked,
        )


@dataclass(slots=True)
class _Lowering:
    callee: UserFunction
    inputs: Sequence[tuple[Parameter, Bound]]
    function: Function
    returned: list[Bound]
    errors: list[Diagnostic] = field(default_factory=list)

    def rule(self, rule: Rule) -> Function | None:
        before = len(self.errors)
        try:
            match rule.kind:
                case "func_grad":
                    return self.grad(rule)
                case "func_replay":
                    return self.replay(rule)
                case "func_jvp":
                    return self.jvp(rule)
        except BrokenCall as broken:
            self.errors += broken.diagnostics
        except Mistake as mistake:
            self.errors.append(mistake.diagnostic)
        assert len(self.errors) > before
        return None

    def mistake(self, rule: Rule, message: str, hint: str = "", span: Span | None = None) -> Mistake:
        related = (Related(f"{self.callee.name} is defined here", self.callee.span),)
        return Mistake(Diagnostic(message, span or rule.span, "type", hint=hint, related=related))

    def of_structs(self, rule: Rule) -> Diagnostic:
        what = "takes structs, or returns structs or arrays"
        message = f"{self.callee.name} {what}, so it can have no {_WHAT[rule.kind]}"
        hint = "pass and return the fields as numbers of their own"
        return self.mistake(rule, message, hint).diagnostic

    # ---- parameters

    def parameters(self, rule: Rule, extra: Sequence[tuple[str, Bound]]) -> dict[str, Meaning]:
        """What the parameters of a rule stand for: those of the function, then the given ones."""
        arguments = rule.template.arguments
        wanted = [parameter.name for parameter, _ in self.inputs] + [name for name, _ in extra]
        if len(arguments) != len(wanted):
            raise self.mistake(
                rule,
                f"{rule.name} takes {counted(len(arguments), 'argument')}; the {_WHAT[rule.kind]} of "
                f"{self.callee.name} takes {len(wanted)}",
                f"write def {rule.name}({', '.join(wanted)})",
            )
        kinds = [bound for _, bound in self.inputs] + [type for _, type in extra]
        found: dict[str, Meaning] = {}
        for argument, kind in zip(arguments, kinds, strict=True):
            self.agree(rule, argument, kind)
            found[argument.arg] = as_meaning(argument.arg, kind, rule.template.places(argument))
        return found

    def agree(self, rule: Rule, argument: ast.arg, kind: Bound) -> None:
        if argument.annotation is None or not isinstance(kind, Type):
            return
        stated = annotation(rule.template.scope, rule.template.places, argument.annotation)
        if stated != kind:
            raise self.mistake(
                rule,
                f"{rule.name} takes {argument.arg} as {stated}; for {self.callee.name} it is {kind}",
                f"write {argument.arg}: {kind}",
                rule.template.places(argument),
            )

    @property
    def results(self) -> list[Type]:
        return [type_of(atom) for atom in self.function.body.yields]

    @property
    def adjoints_of_results(self) -> list[tuple[str, Bound]]:
        if len(self.returned) == 1:
            return [("adj_ret", self.returned[0])]
        return [(f"adj_ret{k}", kind) for k, kind in enumerate(self.returned, 1)]

    def lowered(
        self, rule: Rule, made: Template, params: Mapping[str, Meaning], results: Sequence[Type]
    ) -> Function:
        function = lower_rule(made, params, self.callee)
        found = [type_of(atom) for atom in function.body.yields]
        if found != list(results):
            wanted, given = (", ".join(map(str, types)) or "nothing" for types in (results, found))
            what = "results" if rule.kind == "func_replay" else "tangents of the float results"
            message = f"{rule.name} returns {given}; it should return {wanted}"
            raise self.mistake(rule, message, f"return the {what} of {self.callee.name}")
        return function

    # ---- the three kinds

    def grad(self, rule: Rule) -> Function:
        params = self.parameters(rule, self.adjoints_of_results)
        inputs = dict(list(params.items())[: len(self.inputs)])
        bars = _bars(rule, inputs)
        adjoints = _Adjoints(rule, self.callee.name, {name: bar.name for name, bar in bars.items()}, inputs)
        summed = [bar for bar in bars.values() if bar.is_summed]
        made = adjoints.rewritten([bar.name for bar in summed])
        if adjoints.errors:
            raise BrokenCall(tuple(adjoints.errors))
        self.report_missing(rule, inputs, adjoints.used)
        params |= {bar.name: bar.meaning for bar in bars.values()}
        return self.lowered(rule, made, params, [bar.type for bar in summed])

    def report_missing(self, rule: Rule, inputs: Mapping[str, Meaning], used: set[str]) -> None:
        changed = changed_by(self.function)
        for (name, meaning), (parameter, _) in zip(inputs.items(), self.inputs, strict=True):
            if name in used or not _is_float(meaning):
                continue
            if isinstance(meaning, ArrayRef) and self.function.param(parameter.name) in changed:
                raise self.mistake(
                    rule,
                    f"{self.callee.name} changes {name}, but {rule.name} says nothing of adjoint[{name}]",
                    f"take what a result contributes out of adjoint[{name}], or return it instead",
                )
            if rule.checked and isinstance(meaning, ArrayRef):
                raise self.mistake(
                    rule,
                    f"{rule.name} never adds to adjoint[{name}]",
                    f"add to adjoint[{name}][...], or write check=False if its gradient is meant to be 0",
                )
            note = self.missing(rule, name)
            if rule.checked and note not in self.callee.notes:
                self.callee.notes.append(note)

    def missing(self, rule: Rule, name: str) -> Diagnostic:
        return Diagnostic(
            f"{rule.name} never adds to adjoint[{name}], so the gradient of {name} is 0",
            rule.span,
            "adjoint",
            "warning",
            hint=f"add to adjoint[{name}], or write check=False if this is meant",
        )

    def replay(self, rule: Rule) -> Function:
        params = self.parameters(rule, ())
        function = self.lowered(rule, rule.template, params, self.results)
        for array in changed_by(function):
            raise self.mistake(
                rule,
                f"the replay {rule.name} changes {array.hint}: the backward pass keeps what is there",
                f"store into {array.hint} in {self.callee.name}, and only read it here",
            )
        return function

    def jvp(self, rule: Rule) -> Function:
        floats = [(f"{p.name}_dot", kind) for p, kind in self.inputs if _is_float_type(kind)]
        params = self.parameters(rule, [(name, kind) for name, kind in floats if isinstance(kind, Type)])
        results = [type for type in self.results if is_differentiable(type)]
        function = self.lowered(rule, rule.template, params, results)
        arguments = [argument.arg for argument in rule.template.arguments]
        dots = dict(zip([name for name, _ in floats], arguments[len(self.inputs) :], strict=True))
        changed = {array.hint for array in changed_by(function)}
        for array in changed_by(self.function):
            dot = dots.get(f"{array.hint}_dot")
            if dot is not None and dot not in changed:
                raise self.mistake(
                    rule,
                    f"{self.callee.name} changes {array.hint}, but {rule.name} does not change {dot}",
                    f"store the tangent into {dot}",
                )
        return function


def _returns_more_than_numbers(results: Meaning | None) -> bool:
    match results:
        case TupleOf(items, struct):
            return struct is not None or any(map(_returns_more_than_numbers, items))
        case ArrayRef() | View() | StructArrayRef():
            return True
        case _:
            return False


def _leaves(results: Meaning | None) -> Iterator[Bound]:
    """The types of the results of a function; one that is known when it is lowered stands for itself."""
    match results:
        case TupleOf(items):
            for item in items:
                yield from _leaves(item)
        case Typed():
            yield results.type
        case Weak():
            yield results
        case _:
            pass


_WHAT: dict[RuleKind, str] = {
    "func_grad": "grad function",
    "func_replay": "replay",
    "func_jvp": "jvp function",
}


# ------------------------------------------------------------------------- the adjoints of arguments


@dataclass(frozen=True, slots=True)
class _Bar:
    """What `adjoint[x]` stands for: a sum that starts at 0, or an array."""

    name: str
    meaning: Meaning
    is_summed: bool

    @property
    def type(self) -> Type:
        assert isinstance(self.meaning, Typed)
        return self.meaning.type


def _is_float_type(kind: Bound) -> bool:
    return isinstance(kind, Type) and is_differentiable(kind)


def _is_float(meaning: Meaning) -> bool:
    match meaning:
        case Typed():
            return is_differentiable(meaning.type)
        case ArrayRef(var):
            return is_differentiable(var.type)
        case _:
            return False


def _bars(rule: Rule, inputs: Mapping[str, Meaning]) -> dict[str, _Bar]:
    node = rule.template.node
    taken = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    taken |= {argument.arg for argument in rule.template.arguments}
    found = {}
    for name, meaning in inputs.items():
        if not _is_float(meaning):
            continue
        bar = f"{name}_bar"
        while bar in taken:
            bar += "_"
        match meaning:
            case ArrayRef(var):
                found[name] = _Bar(bar, ArrayRef(Var(var.type, bar, var.span)), False)
            case Typed():
                found[name] = _Bar(bar, Typed(zero(meaning.type)), True)
    return found


def is_adjoint(node: ast.expr) -> bool:
    """Whether an expression is the word `adjoint`, bare or with a prefix."""
    match node:
        case ast.Name("adjoint"):
            return True
        case ast.Attribute(value=ast.Name(prefix), attr="adjoint"):
            return prefix in PREFIXES
        case _:
            return False


class _Adjoints(ast.NodeTransformer):
    """Turns `adjoint[x]` into a variable, and gathers what is wrong with its uses."""

    def __init__(
        self, rule: Rule, function: str, names: Mapping[str, str], inputs: Mapping[str, Meaning]
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
        old = self.rule.template
        node = copy.deepcopy(old.node)
        node.body = [self.visit(stmt) for stmt in node.body]
        if not leaves(node.body):
            node.body.append(self._return(node.body[-1]))
        first = node.args.args[0] if node.args.args else ast.arg("", lineno=node.lineno, col_offset=0)
        for name in self.names.values():
            node.args.kwonlyargs.append(ast.copy_location(ast.arg(name), first))
            node.args.kw_defaults.append(None)
        return template(node, old.places, old.scope, old.options)

    def _return(self, place: ast.stmt) -> ast.stmt:
        names: list[ast.expr] = [
            ast.copy_location(ast.Name(name, ast.Load()), place) for name in self.returned
        ]
        value = ast.copy_location(ast.Tuple(names, ast.Load()), place) if names else None
        return ast.copy_location(ast.Return(value), place)

    def error(self, node: ast.expr | ast.stmt, message: str, hint: str) -> None:
        self.errors.append(Diagnostic(message, self.rule.template.places(node), "type", hint=hint))

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            hint = "add what it returns to adjoint[...] of an argument"
            self.error(node.value, f"the grad function {self.rule.name} cannot return a value", hint)
        return self._return(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        for target in node.targets:
            self._only_added(target)
        return self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if not isinstance(node.op, ast.Add | ast.Sub):
            self._only_added(node.target)
        return self.generic_visit(node)

    def _only_added(self, target: ast.expr) -> None:
        match target:
            case ast.Subscript(value=word, slice=ast.Name(name)) if is_adjoint(word) and name in self.names:
                self.error(
                    target,
                    f"an adjoint can only be added to: {name} may contribute elsewhere too",
                    f"write adjoint[{name}] += ...",
                )

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if not is_adjoint(node.value):
            return self.generic_visit(node)
        match node.slice:
            case ast.Name(name) if name in self.names:
                self.used.add(name)
                return ast.copy_location(ast.Name(self.names[name], node.ctx), node)
            case ast.Name(name) if name in self.inputs:
                self.error(node, f"{name} has no adjoint: it is no float", "leave this line out")
            case ast.Subscript(value=ast.Name(name)) if name in self.names:
                self.error(node, "adjoint[...] takes the name of an argument", f"write adjoint[{name}][...]")
            case _:
                known = " or ".join(f"adjoint[{name}]" for name in self.names) or "no adjoint at all"
                text = self.rule.template.places.text(node.slice)
                self.error(node, f"{text} is no argument of {self.function}", f"write {known}")
        return node


# ------------------------------------------------------------------------- what a function changes


def changed_by(function: Function) -> list[Var]:
    """The array parameters that a function changes, also through the functions that it calls."""
    return [array for array in dict.fromkeys(_changed(function)) if array in function.params]


def _changed(function: Function) -> Iterator[Var]:
    for stmt in walk(function.body):
        match stmt:
            case Store(array) | Atomic(_, _, array):
                yield array
            case Native():
                yield from stmt.changed
            case Call(_, callee, args):
                inner = set(_changed(callee))
                for param, arg in zip(callee.params, args, strict=True):
                    if param in inner and isinstance(arg, Var) and isinstance(arg.type, Array):
                        yield arg
            case _:
                pass
