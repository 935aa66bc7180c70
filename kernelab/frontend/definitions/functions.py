"""Lowers a def that is a function, once for each combination of argument types of its calls."""

import ast
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter as Python
from inspect import Signature
from typing import Any, Protocol

from kernelab import hooks
from kernelab.data_classes.turns import Turn
from kernelab.errors import Diagnostic, Span
from kernelab.frontend.definitions.definitions import Template, default_of, lower_def, snapshot
from kernelab.frontend.definitions.kernel_warnings import idle_calls, note_lost_changes, repeated_draws
from kernelab.frontend.expressions import struct_values
from kernelab.frontend.expressions.joins import RETURNED
from kernelab.frontend.expressions.struct_values import computed_atoms, type_of, vars_of
from kernelab.frontend.meaning import trial, unsupported
from kernelab.frontend.meaning.frame import BrokenCall, Frame, Mistake, Recursion
from kernelab.frontend.meaning.meanings import (
    Arguments,
    Bound,
    BuiltinRef,
    FunctionRef,
    Instance,
    Meaning,
    Parameter,
    TupleOf,
    TupleType,
    Typed,
    Weak,
)
from kernelab.frontend.meaning.name_lookup import Constant, Constants, meaning_of
from kernelab.frontend.meaning.syntax_trees import is_none, leaves, returns_of, returns_value, states_result
from kernelab.guidance.missing_names import FunctionHints
from kernelab.hooks import Displayed
from kernelab.host.single import Single
from kernelab.host.traced import Traced
from kernelab.lang.build import constant
from kernelab.lang.ir import CustomRules, Function, RuleName
from kernelab.lang.structs import AnyType, StructArray
from kernelab.lang.types import Array, Scalar, Type, bool_
from kernelab.lang.verify import verify


class Rules(Protocol):
    """The custom derivative of a function."""

    @property
    def of(self) -> Mapping[RuleName, Any]:
        """The rules by their kinds."""

    def lower(self, callee: "UserFunction", bound: tuple[Bound, ...], instance: Instance) -> CustomRules:
        """For arguments of certain types; raises BrokenCall where a rule has mistakes."""
        ...


_LOWERING = Turn()
"""One thread lowers functions at a time: a function that is being lowered and is called is recursive."""


class UserFunction(FunctionHints, Single, Displayed):
    """A function that kernels, also those of other cells, can call: lowered for each combination of types."""

    OFFERED = ("name", "signature", "source", "span", "textbook")
    is_native = False

    def __init__(self, template: Template) -> None:
        self.template = template
        self.name = self.__name__ = template.name
        self.__doc__ = template.doc or self.unwritten_doc(template.name)
        self.source = template.places.source
        self.span = template.span
        self.ref_parameters = template.ref_parameters
        self.captured: dict[str, Any] = {}
        self.constants: Constants = {}
        self.notes: list[Diagnostic] = []
        self.listener: Callable[[Sequence[Diagnostic]], None] | None = None
        self.callee_rules: dict[UserFunction, Rules | None] = {}
        """The functions that it calls, with the rules that they had when it was lowered."""
        self._instances: dict[Hashable, Instance | BrokenCall] = {}
        self._kernels: dict[Hashable, Any] = {}
        self._signature: tuple[Parameter, ...] | None = None
        self._active: set[tuple[Bound, ...]] = set()
        self.rules: Rules | None = None

    @property
    def __kernelab_function__(self) -> "UserFunction":
        return self

    def __repr__(self) -> str:
        arguments = ", ".join(argument.arg for argument in self.template.arguments)
        return f"<kernelab function {self.name}({arguments})>"

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What it returns for values of the host; of arrays, an array with a result for each element."""
        return hooks.call(self, arguments, named)

    def textbook(self, active: Iterable[str] | None = None) -> Any:
        """Its derivatives with respect to the named parameters, or by all, as textbooks write them.

        Parameters whose types are not stated are floats.  Raises KernelError where there is no adjoint.
        """
        return hooks.textbook(self, active)

    @property
    def __signature__(self) -> Signature:
        """Its parameters as Python's `inspect` has them."""
        template = self.template
        return Signature(
            [
                Python(
                    argument.arg,
                    Python.POSITIONAL_OR_KEYWORD,
                    default=ast.unparse(template.defaults[argument.arg])
                    if argument.arg in template.defaults
                    else Python.empty,
                    annotation=ast.unparse(argument.annotation) if argument.annotation else Python.empty,
                )
                for argument in template.arguments
            ]
        )

    @property
    def members(self) -> "tuple[UserFunction, ...]":
        """The functions of this name."""
        return (self,)

    def fitting(self, arguments: Arguments, /) -> "tuple[UserFunction, ...]":
        """The function itself: it has no overloads."""
        return (self,)

    def for_trial(self) -> "UserFunction":
        """A function that behaves the same, and whose changes leave no trace in this one."""
        copy = object.__new__(type(self))
        state = {name: v.copy() if isinstance(v, dict | list) else v for name, v in vars(self).items()}
        vars(copy).update(state, listener=None, _active=set())
        return copy

    def signature(self) -> tuple[Parameter, ...]:
        """Its parameters; raises BrokenCall where an annotation or a default is wrong."""
        if self._signature is None:
            self._signature = self._parameters()
        return self._signature

    def _parameters(self) -> tuple[Parameter, ...]:
        errors, parameters, defaults = [], [], self.template.defaults
        for argument in self.template.arguments:
            try:
                type = _stated(self.template, argument.annotation)
                default = self._default(defaults[argument.arg]) if argument.arg in defaults else None
                parameters.append(Parameter(argument.arg, type, default, self.template.places(argument)))
            except Mistake as mistake:
                errors.append(mistake.diagnostic)
        if errors:
            raise BrokenCall(tuple(errors))
        return tuple(parameters)

    def default_values(self) -> dict[str, Any]:
        """The values of the defaults, by parameter."""
        return {name: default_of(self.template, node) for name, node in self.template.defaults.items()}

    def _default(self, node: ast.expr) -> Meaning:
        places = self.template.places
        value = default_of(self.template, node)
        if isinstance(value, Traced):  # a constant that the text does not name
            self.constants[id(node), places.text(node)] = Constant({}, places.text(node), value)
        meaning = meaning_of(places.text(node), value)
        if not isinstance(meaning, Weak | Typed | FunctionRef | BuiltinRef):
            raise Mistake.of("a default has to be a number", "value", "give it at the call", places(node))
        return meaning

    def check(self) -> tuple[Diagnostic, ...]:
        """The mistakes that show without a call: of its syntax, and of its body if all types are stated."""
        errors = tuple(unsupported.check(self.template.node, self.template.places).values())
        try:
            parameters = self.signature()
            if not errors and all(parameter.type is not None for parameter in parameters):
                self.instantiate(tuple(p.type for p in parameters if p.type is not None))
        except BrokenCall as broken:
            errors += broken.diagnostics
        return errors

    @property
    def is_usable(self) -> bool:
        """Whether it has not failed for all the types that it was called with."""
        instances = self._instances.values()
        return not instances or any(isinstance(instance, Instance) for instance in instances)

    def instantiate(self, bound: tuple[Bound, ...]) -> Instance:
        """The function for these arguments; raises BrokenCall if it has mistakes, Recursion inside itself."""
        with _LOWERING.lock:
            return self._instance(bound)

    @property
    def kernels(self) -> dict[Hashable, Any]:
        """Kernels of one thread that call it, by the types of the arguments; kept for who calls it."""
        self._renew()
        return self._kernels

    @property
    def derivatives(self) -> tuple[Rules | None, ...]:
        """Its rules and those of the functions that it calls; kernels are compiled with these."""
        self._renew()
        return (self.rules, *self.callee_rules.values())

    def _renew(self) -> None:
        """Lower it again where a function that it calls has got other rules since."""
        if any(callee.rules is not rules for callee, rules in tuple(self.callee_rules.items())):
            self.set_rules(self.rules)

    def _instance(self, bound: tuple[Bound, ...]) -> Instance:
        # With another function for an argument it is another one: apply(f, x), where f calls apply(g, x).
        functions = tuple(part for part in bound if isinstance(part, FunctionRef | BuiltinRef))
        if functions in self._active:
            raise Recursion(self.name)
        self._renew()
        if bound not in self._instances:
            try:
                self._active.add(functions)
                try:
                    plain = self._lowered(bound)
                finally:
                    self._active.remove(functions)
                self._instances[bound] = plain  # which a rule gets that calls the function it belongs to
                self._instances[bound] = self._with_rules(plain, bound)
            except (Mistake, BrokenCall) as broken:
                self._instances[bound] = BrokenCall(broken.diagnostics)
        instance = self._instances[bound]
        if isinstance(instance, BrokenCall):
            raise BrokenCall(instance.diagnostics)
        return instance

    def _lowered(self, bound: tuple[Bound, ...]) -> Instance:
        pairs = list(zip(self.signature(), bound, strict=True))
        params = {p.name: as_meaning(p.name, b, p.span) for p, b in pairs}
        frame = lower_def(self.template, params, result=self._result_type())
        errors = frame.diagnostics if frame.broken else self._missing_return()
        if errors or frame.broken:
            raise BrokenCall(tuple(errors))
        self.captured |= snapshot(frame.scope.captured)
        self.constants |= frame.scope.constants
        self.callee_rules |= frame.scope.callee_rules
        note_lost_changes(frame, self.template)
        instance = _instance(frame, params, self.name, self.span)
        body = instance.function.body
        self.note([*frame.notes, *idle_calls(body, self.template), *repeated_draws(body)])
        return instance

    def note(self, notes: Sequence[Diagnostic]) -> None:
        """Keep the diagnostics of the function, each once, and pass them to its listener."""
        new = [note for note in dict.fromkeys(notes) if note not in self.notes]
        self.notes += new
        if new and self.listener is not None:
            self.listener(new)

    def _missing_return(self) -> list[Diagnostic]:
        body, stated = self.template.body, self.template.node.returns
        bare = returns_of(body, valued=False)
        if returns_value(body):
            if leaves(body) and not bare:
                return []
            message = f"{self.name} returns a value on some paths only"
        elif stated is not None and states_result(self.template.node):
            message = f"{self.name} is to return {self.template.places.text(stated)}, and returns nothing"
        else:
            return []
        if bare:
            return [Diagnostic(message, self.template.places(bare[0]), hint="write the value behind return")]
        return [Diagnostic(message, self.span, hint="add a return with a value at the end")]

    def _with_rules(self, instance: Instance, bound: tuple[Bound, ...]) -> Instance:
        if self.rules is None:
            return instance
        rules = self.rules.lower(self, bound, instance)
        return replace(instance, function=replace(instance.function, custom=rules))

    def set_rules(self, rules: Rules | None) -> None:
        """Differentiate calls that are lowered from now on by these rules, None for the automatic ones."""
        self.rules = rules
        self._instances.clear()
        self._kernels.clear()
        self.callee_rules.clear()

    def _result_type(self) -> AnyType | None:
        returns = self.template.node.returns
        if (
            returns is None
            or isinstance(returns, ast.Tuple | ast.Subscript)
            or self.template.is_open(returns)
            or is_none(returns)
        ):
            return None
        type = self.template.type(returns)
        return None if isinstance(type, Array | StructArray) else type


def _instance(frame: Frame, params: Mapping[str, Meaning], name: str, span: Span) -> Instance:
    results = frame.env.get(RETURNED)
    yields = computed_atoms(results)
    # What is not a float in the adjoint or the tangent of a struct is a parameter already.
    vars = tuple(dict.fromkeys(var for meaning in params.values() for var in vars_of(meaning)))
    function = Function(name, vars, frame.builder.close(*yields), (), span)
    return Instance(verify(function), results, tuple(frame.late_sums))


def _stated(template: Template, node: ast.expr | None) -> AnyType | TupleType | None:
    """The type that the annotation of a function's parameter asks for, None for any."""
    if node is None or template.is_open(node):
        return None
    match node:
        case ast.Name("tuple"):
            return None
        case ast.Subscript(value=ast.Name("tuple"), slice=inner):
            parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            items = [_stated(template, part) for part in parts if not isinstance(part, ast.Constant)]
            stated = [item for item in items if item is not None]
            return TupleType(tuple(stated)) if len(stated) == len(parts) else None
        case _:
            return template.type(node)


def as_meaning(name: str, bound: Bound, span: Span) -> Meaning:
    """The meaning of a parameter of a function, given the key of its instance."""
    if isinstance(bound, TupleType):
        return TupleOf(tuple(as_meaning(f"{name}_{k}", item, span) for k, item in enumerate(bound.items)))
    return bound if isinstance(bound, Meaning) else struct_values.parameter(name, bound, span)


def lower_rule(
    template: Template, params: Mapping[str, Meaning], callee: UserFunction, wanted: Sequence[Type]
) -> Function:
    """A def that is a part of a function's derivative; raises BrokenCall where it has mistakes.

    The plain numbers that it returns are of the wanted types.
    """
    frame = lower_def(template, params)
    if frame.broken:
        raise BrokenCall(tuple(frame.diagnostics))
    callee.captured |= frame.scope.captured
    callee.constants |= frame.scope.constants
    callee.callee_rules |= frame.scope.callee_rules
    callee.note(frame.notes)
    if (results := frame.env.get(RETURNED)) is not None:
        frame.env[RETURNED] = _of_types(results, wanted)
    return _instance(frame, params, template.name, template.span).function


def _of_types(results: Meaning, wanted: Sequence[Type]) -> Meaning:
    items = results.items if isinstance(results, TupleOf) else (results,)
    if len(items) != len(wanted):
        return results
    typed = tuple(
        Typed(constant(item.number, type)) if isinstance(item, Weak) and isinstance(type, Scalar) else item
        for item, type in zip(items, wanted, strict=True)
    )
    return results.of(typed) if isinstance(results, TupleOf) else typed[0]


# ------------------------------------------------------------------------------------------- overload choice


class Overloads(UserFunction):
    """Functions that share a name; what is said of the name alone is said of the first."""

    def __init__(self, members: Sequence[UserFunction]) -> None:
        super().__init__(members[0].template)
        self._members = tuple(members)

    @property
    def members(self) -> tuple[UserFunction, ...]:
        """The functions of this name."""
        return self._members

    def for_trial(self) -> "Overloads":
        """The same, of copies of its members."""
        return Overloads([trial.own(member) for member in self.members])

    def __repr__(self) -> str:
        return f"<{len(self.members)} kernelab functions {self.name}>"

    def check(self) -> tuple[Diagnostic, ...]:
        return tuple(error for member in self.members for error in member.check())

    @property
    def is_usable(self) -> bool:
        return any(member.is_usable for member in self.members)

    def fitting(self, arguments: Arguments) -> tuple[UserFunction, ...]:
        """The function that a call with these arguments means, and those that take the same types."""
        fits = [(_fit(member.signature(), arguments), -len(member.signature())) for member in self.members]
        best = max(fits)  # of those that fit as well, one that needs the fewest defaults
        found = [member for fit, member in zip(fits, self.members, strict=True) if fit == best and fit[0]]
        return tuple(one for one in found if _taken(one, arguments) == _taken(found[0], arguments))


def _fit(parameters: Sequence[Parameter], arguments: Arguments) -> int:
    """2 for an exact fit, 1 for one that converts literals, 0 for none."""
    plain = [a.value for a in arguments if a.keyword is None]
    values = dict(zip((p.name for p in parameters), plain, strict=False))
    named = {a.keyword: a.value for a in arguments if a.keyword is not None}
    names = {p.name for p in parameters}
    if len(plain) > len(parameters) or values.keys() & named.keys() or not named.keys() <= names:
        return 0
    values |= named
    if any(p.name not in values and p.default is None for p in parameters):
        return 0
    return min((_match(p, values[p.name]) for p in parameters if p.name in values), default=2)


def _taken(function: UserFunction, arguments: Arguments) -> list[Any]:
    """The types of the parameters that arguments stand for."""
    parameters = function.signature()
    types = {parameter.name: parameter.type for parameter in parameters}
    return [types[a.keyword or parameters[k].name] for k, a in enumerate(arguments)]


def _match(parameter: Parameter, value: Meaning) -> int:
    wanted = parameter.type
    if wanted is None:
        return 1
    given = value.type if isinstance(value, Weak) else type_of(value)
    if given == wanted:
        return 2
    gives_way = isinstance(value, Weak) or (isinstance(value, Typed) and value.is_weak)
    if not gives_way or not isinstance(given, Scalar) or not isinstance(wanted, Scalar):
        return 0
    return int(bool_ not in (given, wanted) and (wanted.is_float or given.is_int))
