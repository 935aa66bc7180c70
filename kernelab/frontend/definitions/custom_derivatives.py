"""Lowers custom derivatives: grad, replay and jvp functions that users write for a function.

A grad function says what to add to the adjoints of its arguments.  It is lowered as a function that returns
what it has added up:

    def adj_f(x: float, adj_ret: float):        def adj_f(x, adj_ret, x_bar = 0.0):
        if x > 0.0:                                 if x > 0.0:
            adjoint[x] += adj_ret / x                   x_bar += adj_ret / x
                                                    return (x_bar,)

The adjoint of an array is an array, which it gets as one more argument.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from kernelab.data_classes import dataclass, field, replace
from kernelab.errors import Diagnostic, Related, Span, counted
from kernelab.frontend.definitions.adjoint_targets import Adjoints, bars, float_part, has_floats, is_float
from kernelab.frontend.definitions.definitions import Template, template
from kernelab.frontend.definitions.functions import UserFunction, as_meaning, lower_rule
from kernelab.frontend.definitions.rule_effects import beyond_adding, changing
from kernelab.frontend.expressions.struct_values import vars_of
from kernelab.frontend.meaning.frame import BrokenCall, Mistake, evaluated
from kernelab.frontend.meaning.meanings import (
    ArrayRef,
    Bound,
    FunctionRef,
    Instance,
    Meaning,
    Parameter,
    Poison,
    StructArrayRef,
    TupleOf,
    TupleType,
    Typed,
    Weak,
    describe,
    numbers,
    parts_of,
)
from kernelab.frontend.meaning.name_lookup import Scope, Unknown, meaning_of, named_in
from kernelab.frontend.meaning.source import Places, source_of
from kernelab.frontend.meaning.syntax_trees import word
from kernelab.frontend.meaning.trial import NOT_RUN, is_trial
from kernelab.lang.build import type_of
from kernelab.lang.ir import CustomRules, Function, RuleName, Var, changed_by
from kernelab.lang.structs import Struct, StructArray, leaves
from kernelab.lang.types import Type, is_differentiable

DECORATORS: Mapping[str, RuleName] = {f"func_{name}": name for name in get_args(RuleName)}
"""The words above the defs of rules."""


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A def that stands for a part of the derivative of a function."""

    kind: RuleName
    template: Template
    checked: bool = True

    @property
    def name(self) -> str:
        return self.template.name

    @property
    def span(self) -> Span:
        return self.template.span


def _stated(rule: Rule, argument: ast.arg) -> Any:
    """The type that an annotation states; None without one, and for one that leaves it open."""
    annotation = argument.annotation
    if annotation is None or rule.template.is_open(annotation):
        return None
    return rule.template.type(annotation)


def definition_for(rule: Rule, function: UserFunction) -> UserFunction:
    """The definition that a rule is for, of several of one name: that whose parameters come first in it."""
    if len(function.members) == 1:
        return function.members[0]
    arguments = rule.template.arguments
    names = [argument.arg for argument in arguments]
    stated = [_stated(rule, one) for one in arguments]
    fitting: dict[tuple[bool, int], list[UserFunction]] = {}
    for member in function.members:
        own = member.signature()
        count, types = len(own), [parameter.type for parameter in own]
        has_all = len(names) == count if rule.kind == "replay" else len(names) > count
        if has_all and all(None in pair or pair[0] == pair[1] for pair in zip(types, stated, strict=False)):
            same_names = names[:count] == [parameter.name for parameter in own]
            fitting.setdefault((same_names, count), []).append(member)
    best = fitting[max(fitting)] if fitting else ()
    if len(best) == 1:
        return best[0]
    fits = f"{len(best)} of them take" if best else "none of them takes"
    message = f"{function.name} has {len(function.members)} definitions, and {fits} what {rule.name} does"
    related = tuple(Related(f"one {function.name} is defined here", one.span) for one in function.members)
    hint = "annotate its parameters as one of them does"
    raise Mistake(Diagnostic(message, rule.span, "type", hint=hint, related=related))


def attach(rule: Rule, function: UserFunction) -> None:
    """From now on the function is differentiated by the rule; a rule of the same kind is replaced."""
    function = definition_for(rule, function)
    rules = function.rules if isinstance(function.rules, Rules) else Rules({})
    function.set_rules(Rules({**rules.of, rule.kind: rule}))


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """The rules of a function."""

    of: Mapping[RuleName, Rule]

    def lower(self, callee: UserFunction, bound: Sequence[Bound], instance: Instance) -> CustomRules:
        """The rules for arguments of certain types; raises BrokenCall where they have mistakes."""
        inputs = list(zip(callee.signature(), bound, strict=True))
        lowering = _Lowering(callee, inputs, instance.function, list(_leaves(instance.results)))
        if any(isinstance(part, ArrayRef | StructArrayRef) for part in parts_of(instance.results)):
            raise BrokenCall(tuple(map(lowering.of_arrays, self.of.values())))
        of_tuples = [parameter.name for parameter, kind in inputs if _is_tuple_of_floats(kind)]
        broken = [rule for rule in self.of.values() if of_tuples and rule.kind != "replay"]
        if broken:
            raise BrokenCall(tuple(lowering.of_tuple(rule, of_tuples[0]) for rule in broken))
        functions = {kind: lowering.rule(rule) for kind, rule in self.of.items()}
        if lowering.errors:
            raise BrokenCall(tuple(lowering.errors))
        checked = frozenset(kind for kind, rule in self.of.items() if rule.checked)
        return CustomRules(instance.function, **functions, checked=checked)


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
                case "grad":
                    return self.grad(rule)
                case "replay":
                    return self.replay(rule)
                case "jvp":
                    return self.jvp(rule)
        except (BrokenCall, Mistake) as broken:
            self.errors += broken.diagnostics
        assert len(self.errors) > before or is_trial()
        return None

    def mistake(self, rule: Rule, message: str, hint: str = "", span: Span | None = None) -> Mistake:
        related = (Related(f"{self.callee.name} is defined here", self.callee.span),)
        return Mistake(Diagnostic(message, span or rule.span, "type", hint=hint, related=related))

    def of_arrays(self, rule: Rule) -> Diagnostic:
        message = f"{self.callee.name} returns arrays, so it can have no {_WHAT[rule.kind]}"
        return self.mistake(rule, message, "return numbers, vectors and structs of them").diagnostic

    def of_tuple(self, rule: Rule, name: str) -> Diagnostic:
        message = f"{self.callee.name} is given a tuple for {name}, so it can have no {_WHAT[rule.kind]}"
        return self.mistake(rule, message, f"let {self.callee.name} take the items one by one").diagnostic

    # ---- parameters

    def parameters(self, rule: Rule, extra: Sequence[tuple[str, Bound]]) -> dict[str, Meaning]:
        """The meanings of the parameters of a rule: those of the function, then the given ones."""
        arguments = rule.template.arguments
        if rule.template.ref_parameters is not None:
            name = min(rule.template.ref_parameters.refs)
            message = f"{rule.name} hands {name} back, which a {_WHAT[rule.kind]} cannot"
            raise self.mistake(rule, message, f"leave ref[...] out: {rule.name} takes the value of {name}")
        wanted = [parameter.name for parameter, _ in self.inputs] + [name for name, _ in extra]
        if len(arguments) != len(wanted):
            raise self.mistake(
                rule,
                f"{rule.name} takes {counted(len(arguments), 'argument')}; the {_WHAT[rule.kind]} of "
                f"{self.callee.name} takes {len(wanted)}",
                f"write def {rule.name}({', '.join(wanted)})",
            )
        kinds = [bound for _, bound in self.inputs] + [type for _, type in extra]
        meanings: dict[str, Meaning] = {}
        for argument, kind in zip(arguments, kinds, strict=True):
            self.agree(rule, argument, kind)
            meanings[argument.arg] = as_meaning(argument.arg, kind, rule.template.places(argument))
        return meanings

    def agree(self, rule: Rule, argument: ast.arg, kind: Bound) -> None:
        if not isinstance(kind, Type | Struct | StructArray):
            return
        stated = _stated(rule, argument)
        if stated not in (None, kind):
            message = f"{rule.name} takes {argument.arg} as {stated}; for {self.callee.name} it is {kind}"
            hint = f"write «{argument.arg}: {kind}»"
            raise self.mistake(rule, message, hint, rule.template.places(argument))

    @property
    def results(self) -> list[Type]:
        return [type_of(atom) for atom in self.function.body.yields]

    @property
    def adjoints_of_results(self) -> list[tuple[str, Bound]]:
        if len(self.returned) == 1:
            return [("adj_ret", self.returned[0])]
        return [(f"adj_ret{k}", kind) for k, kind in enumerate(self.returned, 1)]

    def lowered(
        self, rule: Rule, template: Template, params: Mapping[str, Meaning], results: Sequence[Type]
    ) -> Function:
        function = lower_rule(template, params, self.callee, results)
        yields = [type_of(atom) for atom in function.body.yields]
        if yields != list(results):
            wanted, returned = (", ".join(map(str, types)) or "nothing" for types in (results, yields))
            what = "results" if rule.kind == "replay" else "tangents of the float results"
            message = f"{rule.name} returns {returned}; it should return {wanted}"
            raise self.mistake(rule, message, f"return the {what} of {self.callee.name}")
        return function

    # ---- the three kinds

    def grad(self, rule: Rule) -> Function:
        params = self.parameters(rule, self.adjoints_of_results)
        inputs = dict(list(params.items())[: len(self.inputs)])
        by_name = bars(rule.template, inputs)
        names = {name: bar.name for name, bar in by_name.items()}
        adjoints = Adjoints(rule.template, self.callee.name, names, inputs)
        summed = [bar for bar in by_name.values() if bar.is_summed]
        rewritten = adjoints.rewritten([bar.name for bar in summed])
        if adjoints.errors:
            raise BrokenCall(tuple(adjoints.errors))
        self.report_missing(rule, inputs, adjoints.used)
        params |= {bar.name: bar.meaning for bar in by_name.values()}
        before = [atom for bar in summed for atom in numbers(bar.meaning)]
        function = self.lowered(rule, rewritten, params, [type_of(atom) for atom in before])
        for was, atom in zip(before, function.body.yields, strict=True):
            if not is_differentiable(type_of(was)) and atom != was:
                assert isinstance(was, Var)
                message = f"{rule.name} changes the adjoint of {was.hint}, which has none: it is not a float"
                raise self.mistake(rule, message, "leave this out")
        self.require_values_kept(rule, inputs, function)
        if rule.checked:
            self.require_added(rule, inputs, {name: bar.meaning for name, bar in by_name.items()}, function)
        return _of_floats(function)

    def require_values_kept(self, rule: Rule, inputs: Mapping[str, Meaning], function: Function) -> None:
        """The arrays of the function itself are only read by a rule."""
        changed = changed_by(function)
        for array in (array for meaning in inputs.values() for array in vars_of(meaning) if array in changed):
            does = f"the {_WHAT[rule.kind]} {rule.name} changes {array.hint}"
            message = f"{does}: the values of the forward pass stay"
            hint = f"store into {array.hint} in {self.callee.name}, and only read it here"
            raise self.mistake(rule, message, hint, changing(function, array).span)

    def require_added(
        self, rule: Rule, inputs: Mapping[str, Meaning], bars: Mapping[str, Meaning], function: Function
    ) -> None:
        """The adjoint of an array that the function only reads is only added to: others add to it, too."""
        changed = changed_by(self.function)
        for name, own in zip(inputs, self.own(inputs.values()), strict=True):
            if name not in bars or not isinstance(inputs[name], ArrayRef | StructArrayRef):
                continue
            of_ints = vars_of(inputs[name])
            found = (beyond_adding(function, bar) for bar in vars_of(bars[name]) if bar not in of_ints)
            stmt = next((stmt for stmt in found if stmt is not None), None)
            if stmt is not None and not any(array in changed for array in own):
                message = f"adjoint[{name}] can only be added to: {name} may contribute elsewhere too"
                hint = f"write adjoint[{name}][...] += ..., as {self.callee.name} does not change {name}"
                raise self.mistake(rule, message, hint, stmt.span)

    def report_missing(self, rule: Rule, inputs: Mapping[str, Meaning], used: set[str]) -> None:
        changed = changed_by(self.function)
        for (name, meaning), own in zip(inputs.items(), self.own(inputs.values()), strict=True):
            if name in used or not is_float(meaning):
                continue
            if any(is_differentiable(var.type) and var in changed for var in own):
                raise self.mistake(
                    rule,
                    f"{self.callee.name} changes {name}, but {rule.name} says nothing of adjoint[{name}]",
                    f"take what a result contributes out of adjoint[{name}], or return it instead",
                )
            if rule.checked and isinstance(meaning, ArrayRef | StructArrayRef):
                hint = f"add to adjoint[{name}][...], or write check=False if its gradient is meant to be 0"
                raise self.mistake(rule, f"{rule.name} never adds to adjoint[{name}]", hint)
            message = f"{rule.name} never adds to adjoint[{name}], so the gradient of {name} is 0"
            hint = f"add to adjoint[{name}], or write check=False if this is meant"
            note = Diagnostic(message, rule.span, "adjoint", "warning", hint=hint)
            if rule.checked and note not in self.callee.notes:
                self.callee.notes.append(note)

    def replay(self, rule: Rule) -> Function:
        params = self.parameters(rule, ())
        function = self.lowered(rule, rule.template, params, self.results)
        self.require_values_kept(rule, params, function)
        return function

    def jvp(self, rule: Rule) -> Function:
        floats = [(f"{p.name}_dot", kind) for p, kind in self.inputs if has_floats(kind)]
        params = self.parameters(rule, floats)
        names = list(params)
        inputs, dots = names[: len(self.inputs)], names[len(self.inputs) :]
        primals = [name for name, (_, kind) in zip(inputs, self.inputs, strict=True) if has_floats(kind)]
        for primal, dot in zip(primals, dots, strict=True):
            params[dot] = float_part(params[dot], params[primal])
        function = self.lowered(rule, rule.template, params, self.tangents)
        self.require_values_kept(rule, {name: params[name] for name in inputs}, function)
        self.require_changed(rule, params, dict(zip(primals, dots, strict=True)), function)
        return _of_floats(function)

    @property
    def tangents(self) -> list[Type]:
        """The types of what a jvp function returns, where structs have what is not a float, too."""
        types: list[Type] = []
        for kind in self.returned:
            if isinstance(kind, Struct):
                types += [leaf.type for leaf in leaves(kind, "")]
            elif isinstance(kind, Type) and is_differentiable(kind):
                types.append(kind)
        return types

    def require_changed(
        self, rule: Rule, params: Mapping[str, Meaning], dots: Mapping[str, str], function: Function
    ) -> None:
        """The tangents of arrays that the function changes are changed by the rule."""
        changed, by_rule = changed_by(self.function), changed_by(function)
        inputs = list(params.items())[: len(self.inputs)]
        owns = self.own([meaning for _, meaning in inputs])
        for (name, _), own in zip(inputs, owns, strict=True):
            tangents = vars_of(params[dots[name]]) if name in dots else ()
            for array, dot in zip(own, tangents, strict=False):
                if array in changed and is_differentiable(array.type) and dot not in by_rule:
                    what = f"{self.callee.name} changes {array.hint}"
                    message = f"{what}, but {rule.name} does not change {dot.hint}"
                    raise self.mistake(rule, message, f"store the tangent into {dot.hint}")
                if array not in changed and dot in by_rule:
                    does = f"{self.callee.name} only reads {array.hint}"
                    message = f"{rule.name} changes {dot.hint}, but {does}"
                    hint = "return the tangents of results, and store those of arrays that are changed"
                    raise self.mistake(rule, message, hint, changing(function, dot).span)

    def own(self, inputs: Iterable[Meaning]) -> Iterator[Sequence[Var]]:
        """The parameters of the function that belong to each argument."""
        left = iter(self.function.params)
        for meaning in inputs:
            yield [next(left) for _ in vars_of(meaning)]


def _is_tuple_of_floats(kind: Bound) -> bool:
    return isinstance(kind, TupleType) and any(has_floats(k) or _is_tuple_of_floats(k) for k in kind.items)


def _of_floats(function: Function) -> Function:
    """A rule that yields no more than what belongs to floats: of a struct, not its ints."""
    yields = tuple(atom for atom in function.body.yields if is_differentiable(type_of(atom)))
    return replace(function, body=replace(function.body, yields=yields))


def _leaves(results: Meaning | None) -> Iterator[Bound]:
    """The types of the results of a function; one that is known when it is lowered stands for itself."""
    match results:
        case TupleOf(_, Struct() as struct):
            yield struct
        case TupleOf(items):
            for item in items:
                yield from _leaves(item)
        case Typed():
            yield results.type
        case Weak():
            yield results
        case _:
            pass


_WHAT: dict[RuleName, str] = {"grad": "grad function", "replay": "replay", "jvp": "jvp function"}


# ---------------------------------------------------------------------------------------------- decorators


Collect = Callable[[Sequence[Diagnostic]], None]


def decorator(node: ast.FunctionDef) -> ast.expr | None:
    """The decorator that makes a def a rule, None if it is none."""
    return next((part for part in node.decorator_list if word(part) in DECORATORS), None)


def named(node: ast.FunctionDef) -> set[str]:
    """The name of the function that a rule belongs to, if it is a plain name."""
    match decorator(node):
        case ast.Call(args=[ast.Name(name), *_]):
            return {name}
        case _:
            return set()


def attach_all(
    nodes: Sequence[ast.FunctionDef],
    scope: Scope,
    places: Places,
    functions: Mapping[str, UserFunction],
    collect: Collect,
) -> list[Diagnostic]:
    """Attach the rules of a cell to the functions that they name; notes.

    Functions of the cell are checked with it, those of other cells here.  A function of another cell keeps
    what it had if a rule is wrong.
    """
    own = {member for function in functions.values() for member in function.members}
    taken: dict[tuple[UserFunction, str], Rule] = {}
    before: dict[UserFunction, Any] = {}
    for node in nodes:
        try:
            rule, function = _resolved(node, scope, places)
        except Mistake as mistake:
            collect([mistake.diagnostic])
            continue
        if (function, rule.kind) in taken:
            first = Related("the first one is here", taken[function, rule.kind].span)
            message = f"{function.name} has two rules of the kind func_{rule.kind}"
            collect([Diagnostic(message, rule.span, "name", hint="remove one of them", related=(first,))])
            continue
        taken[function, rule.kind] = rule
        before.setdefault(function, function.rules)
        attach(rule, function)
    notes: list[Diagnostic] = []
    for function in before.keys() - own:
        errors = function.check()
        if errors:
            collect(errors)
            function.set_rules(before[function])
        else:
            notes += function.notes
            for rule in (rule for (owner, _), rule in taken.items() if owner is function):
                message = f"kernels that were compiled before do without {rule.name}"
                hint = "run their cells again"
                notes.append(Diagnostic(message, rule.span, "late", "information", hint=hint))
    return notes


def _resolved(node: ast.FunctionDef, scope: Scope, places: Places) -> tuple[Rule, UserFunction]:
    call = decorator(node)
    assert call is not None
    name = word(call)
    if not isinstance(call, ast.Call) or len(call.args) != 1 or len(node.decorator_list) > 1:
        hint = f"write @{name}(f) alone above the def"
        raise Mistake.of(f"{name} takes the function that it is for", "name", hint, places(call))
    target = _target(call.args[0], scope, places)
    rule = Rule(DECORATORS[name], template(node, places, scope, {}), _checked(call, places))
    return rule, definition_for(rule, target)


def _target(node: ast.expr, scope: Scope, places: Places) -> UserFunction:
    match _meaning(node, scope, places):
        case FunctionRef(UserFunction() as function):
            return function
        case Poison(unknown=True):
            raise Mistake.of("", NOT_RUN, span=places(node))
        case meaning:
            what = "something else" if meaning is None or meaning == Poison() else describe(meaning)
            message = f"{places.text(node)} is {what}, not a function for kernels"
            hint = "custom derivatives belong to a def with @func that kernels call"
            raise Mistake.of(message, "type", hint, places(node))


def _meaning(node: ast.expr, scope: Scope, places: Places) -> Meaning | None:
    if isinstance(node, ast.Name):
        try:
            return scope.lookup(node.id)
        except Unknown as unknown:
            hint = unknown.hint or "define it above, or run its cell first"
            raise Mistake.of(unknown.message, "name", hint, places(node)) from None
    return meaning_of(places.text(node), evaluated(node, places, {**scope.namespace, **scope.assigned}))


def _checked(call: ast.Call, places: Places) -> bool:
    checked = True
    for option in call.keywords:
        match option:
            case ast.keyword("check", ast.Constant(bool() as value)):
                checked = value
            case _:
                message = f"{word(call)} has no option {ast.unparse(option)}"
                hint = f"{word(call)} takes check=True or check=False"
                raise Mistake.of(message, "value", hint, places(option))
    return checked


def rule_from(
    function: Callable[..., Any], namespace: Mapping[str, Any], kind: RuleName, checked: bool
) -> Rule:
    """The rule that a Python function of a file is; raises KernelSyntaxError without its text."""
    source, tree = source_of(function)
    node = next(stmt for stmt in tree.body if isinstance(stmt, ast.FunctionDef))
    scope = Scope({}, {}, named_in(tree, namespace), namespace)
    return Rule(kind, template(node, Places(source), scope, {}), checked)
