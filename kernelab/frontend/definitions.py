"""What a def becomes: a kernel, lowered once, or a function, lowered for each combination of types."""

import ast
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from kernelab.errors import Diagnostic, KernelTypeError, Source, Span
from kernelab.frontend import fence, structs, views
from kernelab.frontend.annotations import annotation, is_any
from kernelab.frontend.byref import Calls, hand_back
from kernelab.frontend.control import WATCH
from kernelab.frontend.frame import BrokenCall, Frame, Mistake, Recursion, Wishes
from kernelab.frontend.joins import RETURNED
from kernelab.frontend.jumps import leaves, plain_loops, returns_value, states_result
from kernelab.frontend.names import Scope, Unknown, meaning_of
from kernelab.frontend.scope import analyse, changed_in
from kernelab.frontend.source import Places
from kernelab.frontend.statements import block
from kernelab.frontend.values import (
    ArrayRef,
    Bound,
    FunctionRef,
    HandsBack,
    Instance,
    Meaning,
    ModuleRef,
    Parameter,
    Poison,
    StructArrayRef,
    TupleOf,
    TupleType,
    Typed,
    View,
    Weak,
)
from kernelab.frontend.walking import nodes
from kernelab.lang.ir import Atom, CustomRules, Function
from kernelab.lang.structs import AnyType, StructArray
from kernelab.lang.types import Array
from kernelab.lang.verify import verify

_ATTEMPTS = 40
"""How often a def is lowered again to find the types of its weak variables; two is usual."""


@dataclass(frozen=True, slots=True)
class Formal:
    """A parameter of a kernel as the user wrote it; in the IR a struct has a parameter for each leaf."""

    name: str
    type: AnyType
    span: Span


@dataclass(frozen=True, slots=True, eq=False)
class KernelDefinition:
    """A kernel that is ready for the passes: its IR, and what the cell said about it."""

    name: str
    function: Function
    source: Source
    doc: str
    span: Span
    options: Mapping[str, Any]
    captured: Mapping[str, Any]
    signature: tuple["Formal", ...]
    defaults: Mapping[str, Any]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters, in order."""
        return tuple(formal.name for formal in self.signature)

    @property
    def __kernelab_kernel__(self) -> "KernelDefinition":
        return self


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """A def as it stands in the cell, before any types are known."""

    node: ast.FunctionDef
    body: list[ast.stmt]
    places: Places
    scope: Scope
    options: Mapping[str, Any] = field(default_factory=dict)
    hands_back: HandsBack | None = None

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def span(self) -> Span:
        return self.places.head(self.node)

    @property
    def doc(self) -> str:
        return ast.get_docstring(self.node) or ""

    @property
    def arguments(self) -> list[ast.arg]:
        arguments = self.node.args
        return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]

    @property
    def defaults(self) -> dict[str, ast.expr]:
        """The defaults of the parameters that have one."""
        arguments = self.node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        last = positional[len(positional) - len(arguments.defaults) :]
        found = dict(zip((argument.arg for argument in last), arguments.defaults, strict=True))
        named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        return found | {argument.arg: default for argument, default in named if default is not None}


def template(node: ast.FunctionDef, places: Places, scope: Scope, options: Mapping[str, Any]) -> Template:
    """The def with its loops, and what it hands back, in the form that lowering knows."""
    handed = hand_back(node)
    node.body = plain_loops(node.body)
    return Template(node, node.body, places, scope, options, handed)


def _trips(template: Template) -> Callable[[ast.For], int | None]:
    """How often a loop runs, where its bounds are numbers in the text or constants of the notebook."""
    scope = template.scope
    variables = changed_in(template.body) | {argument.arg for argument in template.arguments}

    def bound(node: ast.expr) -> int | None:
        match node:
            case ast.Constant(value=int() as number):
                return number
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number)):
                return -number
            case ast.Name(name) if name not in variables:
                value = scope.assigned.get(name, scope.namespace.get(name))
                return value if isinstance(value, int) else None
            case _:
                return None

    def trips(loop: ast.For) -> int | None:
        if isinstance(loop.iter, ast.Tuple):
            return len(loop.iter.elts)
        ranges = fence.range_of(loop.iter)
        bounds = [None] if ranges is None else [bound(part) for part in ranges.args]
        known = [number for number in bounds if number is not None]
        if len(known) != len(bounds) or not 1 <= len(known) <= 3 or known[2:] == [0]:
            return None
        return len(range(*known))

    return trips


def lower_def(
    template: Template,
    params: Mapping[str, Meaning],
    is_kernel: bool,
    result: AnyType | None,
    refused: frozenset[ast.AST],
) -> Frame:
    """The def with parameters of known types; lowered again until the types of weak variables are settled."""
    names = template.scope.within()
    handed = Calls(template.places, lambda callee: _handed_back(template, callee))
    handed.written(template.body)
    facts = analyse(template.node.args, template.body, _trips(template))
    wishes = Wishes()
    for _ in range(_ATTEMPTS):
        wishes.renewed = False
        frame = Frame(
            template.name,
            template.places,
            names.within(),
            facts,
            wishes,
            is_kernel,
            _uses_warp(template.node),
            result,
            refused | handed.refused,
        )
        for error in handed.errors:
            frame.report(error)
        # What a loop's index holds before its loop is never read, but a loop around it carries it.
        frame.env |= {name: Weak(0) for name in sorted(facts.watched)}
        frame.env |= {WATCH + name: Weak(False) for name in sorted(facts.watched)}
        frame.env |= params
        frame.set_at |= {argument.arg: template.places(argument) for argument in template.arguments}
        block(frame, template.body, {RETURNED})
        if not wishes.renewed:
            return frame
    frame.report(
        Diagnostic(
            f"the types of the variables of {template.name} cannot be found",
            template.span,
            "type",
            hint="start each variable with a typed number, such as float32(0.0)",
        )
    )
    return frame


def _handed_back(template: Template, callee: ast.expr) -> HandsBack | None:
    """What a call hands back to the variables that it names; None for most."""
    scope = template.scope.within()
    try:
        match callee:
            case ast.Name(name):
                found = scope.lookup(name)
            case ast.Attribute(value=ast.Name(module), attr=name):
                around = scope.lookup(module)
                found = scope.attribute(around, name) if isinstance(around, ModuleRef) else Poison()
            case _:
                return None
    except Unknown:
        return None
    return found.function.hands_back if isinstance(found, FunctionRef) else None


def _uses_warp(node: ast.FunctionDef) -> bool:
    return any(isinstance(part, ast.Name) and part.id == "wp" for part in nodes(node))


def as_meaning(name: str, bound: Bound, span: Span) -> Meaning:
    """What a parameter of a function stands for, given what decides on its instance."""
    if isinstance(bound, TupleType):
        return TupleOf(tuple(as_meaning(f"{name}_{k}", item, span) for k, item in enumerate(bound.items)))
    return bound if isinstance(bound, Meaning) else structs.parameter(name, bound, span)


def kept(captured: Mapping[str, Any]) -> dict[str, Any]:
    """Captured values as they are now, should the notebook change an array in place."""
    return {n: value.copy() if isinstance(value, np.ndarray) else value for n, value in captured.items()}


def evaluated(template: Template, node: ast.expr) -> Any:
    """What Python makes of a default, with the names of the notebook and the cell."""
    places, scope = template.places, template.scope
    code = compile(ast.fix_missing_locations(ast.Expression(node)), places.source.label, "eval")
    try:
        return eval(code, {**scope.namespace, **scope.assigned})
    except Exception as error:  # noqa: BLE001 (whatever the user's expression raises is told at its place)
        message = f"the default raised {type(error).__name__}: {error}"
        raise Mistake(Diagnostic(message, places(node), "value")) from None


# ------------------------------------------------------------------------- functions


class UserFunction:
    """A function that kernels, also those of other cells, can call: lowered for each combination of types."""

    def __init__(self, template: Template) -> None:
        self.template = template
        self.name = self.__name__ = template.name
        self.__doc__ = template.doc
        self.source = template.places.source
        self.span = template.span
        self.captured: dict[str, Any] = {}
        self.notes: list[Diagnostic] = []
        self.listener: Callable[[Sequence[Diagnostic]], None] | None = None
        self._instances: dict[Hashable, Instance | BrokenCall] = {}
        self._signature: tuple[Parameter, ...] | None = None
        self._active = False
        self.rules: Rules | None = None

    @property
    def __kernelab_function__(self) -> "UserFunction":
        return self

    def __repr__(self) -> str:
        arguments = ", ".join(argument.arg for argument in self.template.arguments)
        return f"<kernelab function {self.name}({arguments})>"

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise KernelTypeError(
            Diagnostic(
                f"{self.name} is a function for kernels: it cannot be called from Python",
                self.span,
                hint="call it in a kernel, and launch that",
            )
        )

    @property
    def hands_back(self) -> HandsBack | None:
        """What calls have to take back from it."""
        return self.template.hands_back

    @property
    def members(self) -> "tuple[UserFunction, ...]":
        """The functions of this name."""
        return (self,)

    def chosen(self, arguments: Sequence[tuple[str | None, Meaning]], /) -> "UserFunction | None":
        """Itself: there is no other of its name."""
        return self

    def signature(self) -> tuple[Parameter, ...]:
        """Its parameters; raises BrokenCall where an annotation or a default is wrong."""
        if self._signature is None:
            self._signature = self._parameters()
        return self._signature

    def _parameters(self) -> tuple[Parameter, ...]:
        arguments = self.template.node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
        defaults += [*arguments.defaults, *arguments.kw_defaults]
        errors, parameters = [], []
        for argument, default in zip(self.template.arguments, defaults, strict=True):
            try:
                parameters.append(self._parameter(argument, default))
            except Mistake as mistake:
                errors.append(mistake.diagnostic)
        if errors:
            raise BrokenCall(tuple(errors))
        return tuple(parameters)

    def _parameter(self, argument: ast.arg, default: ast.expr | None) -> Parameter:
        template = self.template
        type = _stated(template, argument.annotation)
        value = None if default is None else self._default(default)
        return Parameter(argument.arg, type, value, template.places(argument))

    def _default(self, node: ast.expr) -> Meaning:
        places = self.template.places
        value = evaluated(self.template, node)
        meaning = meaning_of(places.text(node), value)
        if not isinstance(meaning, Weak | Typed | FunctionRef):
            raise Mistake(
                Diagnostic("a default has to be a number", places(node), "value", hint="give it at the call")
            )
        return meaning

    def check(self) -> tuple[Diagnostic, ...]:
        """The mistakes that show without a call: of its syntax, and of its body if all types are stated."""
        errors = fence.check(self.template.node, self.template.places).diagnostics
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
        found = self._instances.values()
        return not found or any(isinstance(instance, Instance) for instance in found)

    def instantiate(self, bound: tuple[Bound, ...]) -> Instance:
        """The function for these arguments; raises BrokenCall if it has mistakes, Recursion inside itself."""
        if self._active:
            raise Recursion(self.name)
        key = tuple(_key(part) for part in bound)
        if key not in self._instances:
            self._active = True
            try:
                self._instances[key] = self._lowered(bound)
            finally:
                self._active = False
            # A rule may call the function that it belongs to: there it is the plain one.
            self._instances[key] = self._with_rules(self._instances[key], bound)
        found = self._instances[key]
        if isinstance(found, BrokenCall):
            raise BrokenCall(found.diagnostics)
        return found

    def _lowered(self, bound: tuple[Bound, ...]) -> Instance | BrokenCall:
        template = self.template
        refused = fence.check(template.node, template.places)
        errors = list(refused.diagnostics)
        pairs = list(zip(self.signature(), bound, strict=True))
        params = {p.name: as_meaning(p.name, b, p.span) for p, b in pairs}
        try:
            frame = lower_def(template, params, False, self._result_type(), refused.nodes)
        except Mistake as mistake:
            return BrokenCall((*errors, mistake.diagnostic))
        errors += frame.diagnostics
        if not errors and not frame.broken:
            errors += self._missing_return()
        if errors or frame.broken:
            return BrokenCall(tuple(errors))
        self.captured |= kept(frame.scope.captured)
        self.note(frame.notes)
        return self._finished(frame, params)

    def note(self, found: Sequence[Diagnostic]) -> None:
        """Keep what there is to say of the function, each thing once, and tell it to whoever listens."""
        new = [note for note in dict.fromkeys(found) if note not in self.notes]
        self.notes += new
        if new and self.listener is not None:
            self.listener(new)

    def _missing_return(self) -> list[Diagnostic]:
        body, stated = self.template.body, self.template.node.returns
        if leaves(body):
            return []
        if returns_value(body):
            message = f"{self.name} returns a value on some paths only"
        elif stated is not None and states_result(self.template.node):
            message = f"{self.name} is to return {self.template.places.text(stated)}, and returns nothing"
        else:
            return []
        return [Diagnostic(message, self.span, hint="add a return with a value at the end")]

    def _with_rules(self, instance: Instance | BrokenCall, bound: tuple[Bound, ...]) -> Instance | BrokenCall:
        if self.rules is None or isinstance(instance, BrokenCall):
            return instance
        try:
            rules = self.rules.lower(self, bound, instance)
        except BrokenCall as broken:
            return broken
        return replace(instance, function=replace(instance.function, custom=rules))

    def set_rules(self, rules: "Rules | None") -> None:
        """Differentiate calls that are lowered from now on by these rules, None for the automatic ones."""
        self.rules = rules
        self._instances.clear()

    def _result_type(self) -> AnyType | None:
        returns = self.template.node.returns
        if (
            returns is None
            or isinstance(returns, ast.Tuple | ast.Subscript)
            or is_any(returns, self.template.scope)
            or (isinstance(returns, ast.Constant) and returns.value is None)
        ):
            return None
        type = annotation(self.template.scope, self.template.places, returns)
        return None if isinstance(type, Array | StructArray) else type

    def _finished(self, frame: Frame, params: Mapping[str, Meaning]) -> Instance:
        return _instance(frame, params, self.name, self.span)


def _instance(frame: Frame, params: Mapping[str, Meaning], name: str, span: Span) -> Instance:
    yields: list[Atom] = []
    results = _results(frame.env.get(RETURNED), yields)
    # What is no float in the adjoint or the tangent of a struct is a parameter already.
    vars = tuple(dict.fromkeys(var for meaning in params.values() for var in structs.vars_of(meaning)))
    function = Function(name, vars, frame.builder.close(*yields), (), span)
    return Instance(verify(function), results)


def _results(value: Meaning | None, yields: list[Atom]) -> Meaning | None:
    match value:
        case Typed(atom):
            yields.append(atom)
            return value
        case TupleOf(items) as whole:
            return whole.of([item for item in (_results(item, yields) for item in items) if item is not None])
        case ArrayRef() | View():
            yields += views.atoms(value)
            return value
        case StructArrayRef(indices=indices):
            yields += indices
            return value
        case _:
            return value


def _stated(template: Template, node: ast.expr | None) -> AnyType | TupleType | None:
    """The type that the annotation of a function's parameter asks for, None for any."""
    if node is None or is_any(node, template.scope):
        return None
    match node:
        case ast.Name("tuple"):
            return None
        case ast.Subscript(value=ast.Name("tuple"), slice=inner):
            parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            items = [_stated(template, part) for part in parts if not isinstance(part, ast.Constant)]
            known = [item for item in items if item is not None]
            return TupleType(tuple(known)) if len(known) == len(parts) else None
        case _:
            return annotation(template.scope, template.places, node)


def _key(part: Bound) -> Hashable:
    if isinstance(part, TupleType):
        return tuple(map(_key, part.items))
    # 1, 1.0 and True are equal, and mean different things.
    return (type(part.number), repr(part.number)) if isinstance(part, Weak) else part


# ------------------------------------------------------------------------- rules of users' derivatives


class Rules(Protocol):
    """The custom derivative of a function."""

    def lower(self, callee: UserFunction, bound: tuple[Bound, ...], instance: Instance) -> CustomRules:
        """For arguments of certain types; raises BrokenCall where a rule has mistakes."""
        ...


def lower_rule(template: Template, params: Mapping[str, Meaning], callee: UserFunction) -> Function:
    """A def that is a part of a function's derivative; raises BrokenCall where it has mistakes."""
    refused = fence.check(template.node, template.places)
    frame = lower_def(template, params, False, None, refused.nodes)
    errors = (*refused.diagnostics, *frame.diagnostics)
    if errors or frame.broken:
        raise BrokenCall(errors)
    callee.captured |= frame.scope.captured
    callee.note(frame.notes)
    return _instance(frame, params, template.name, template.span).function
