"""Lowers a def that is a kernel: the types of its parameters, their defaults, and its body.

A call of a function from Python is a kernel of one thread, which stores what the function returns:

    def g(x: float, y: float):          g(x: float32, y: float32, result: array[float32])
        return x * y                      result[0] = g(x, y)
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kernelab.data_classes import dataclass, replace
from kernelab.errors import Diagnostic, KernelTypeError, LaunchError, Source, Span, counted
from kernelab.frontend.definitions.definitions import Template, default_of, lower_def, snapshot
from kernelab.frontend.definitions.functions import Rules, UserFunction
from kernelab.frontend.definitions.kernel_warnings import lost_sum_warnings, note_doubts, note_lost_changes
from kernelab.frontend.expressions import struct_values
from kernelab.frontend.expressions.struct_values import vars_of
from kernelab.frontend.meaning import array_views, unsupported
from kernelab.frontend.meaning.annotations import open_ndim
from kernelab.frontend.meaning.frame import BrokenCall, Mistake
from kernelab.frontend.meaning.meanings import (
    Bound,
    HostArray,
    Instance,
    LateSum,
    Meaning,
    Poison,
    TupleOf,
    Typed,
    Weak,
    parts_of,
)
from kernelab.frontend.meaning.name_lookup import Constant
from kernelab.frontend.meaning.syntax_trees import nodes, returns_value
from kernelab.lang.build import Builder, constant, integer, type_of
from kernelab.lang.ir import Atom, Block, Call, Function, Var, blocks
from kernelab.lang.structs import AnyType, Struct, StructArray
from kernelab.lang.types import Array, Mat, Scalar, Vec, scalar_of
from kernelab.lang.verify import verify

MOST_STATEMENTS = 1_000_000
"""The longest kernel, with its calls written out: functions that call twice what calls twice grow quickly."""

DEEPEST = 120
"""How deep blocks and calls may nest: passes follow them on Python's stack, which has room for twice that."""


@dataclass(frozen=True, slots=True)
class Formal:
    """A parameter of a kernel as the user wrote it; in the IR a struct has a parameter for each leaf."""

    name: str
    type: AnyType
    span: Span


@dataclass(frozen=True, slots=True, eq=False)
class KernelDefinition:
    """A kernel that is ready for the passes: its IR, and what the cell said about it.

    `callee_rules` are the functions that it calls, with the rules that they had when it was lowered.
    """

    name: str
    function: Function
    source: Source
    doc: str
    span: Span
    options: Mapping[str, Any]
    captured: Mapping[str, Any]
    constants: tuple[Constant, ...]
    signature: tuple[Formal, ...]
    defaults: Mapping[str, Any]
    late_sums: tuple[LateSum, ...] = ()
    lost_sums: tuple[Diagnostic, ...] = ()
    callee_rules: tuple[tuple[UserFunction, Rules | None], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters, in order."""
        return tuple(formal.name for formal in self.signature)

    __kernelab_kernel__ = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """A kernel, None where it has mistakes, and everything there is to say about it."""

    kernel: KernelDefinition | None
    errors: tuple[Diagnostic, ...]
    notes: tuple[Diagnostic, ...]


def lower_kernel(template: Template, types: Mapping[str, AnyType] | None = None) -> Outcome:
    """Lower a kernel; all parameters need a type, those that are `Any` have theirs in `types`."""
    try:
        return _lowered(template, types or {})
    except RecursionError:
        return Outcome(None, (too_deep(template.name, template.span),), ())


def _lowered(template: Template, types: Mapping[str, AnyType]) -> Outcome:
    if template.ref_parameters is not None:
        return Outcome(None, (_hands_back(template, sorted(template.ref_parameters.refs)[0]),), ())
    errors: list[Diagnostic] = []
    params: dict[str, Meaning] = {}
    signature: list[Formal] = []
    for argument in template.arguments:
        try:
            type = types.get(argument.arg) or _kernel_type(template, argument)
            params[argument.arg] = struct_values.parameter(argument.arg, type, template.places(argument))
            signature.append(Formal(argument.arg, type, template.places(argument)))
        except Mistake as mistake:
            errors.append(mistake.diagnostic)
            params[argument.arg] = Poison()
    defaults, wrong = default_numbers(template)
    errors += [*wrong, *_stated_result(template)]
    frame = lower_def(template, params, is_kernel=True)
    errors += frame.diagnostics
    if errors or frame.broken:
        return Outcome(None, tuple(errors), tuple(frame.notes))
    vars = tuple(var for meaning in params.values() for var in vars_of(meaning))
    function = Function(template.name, vars, frame.builder.close(), frame.threads, template.span)
    if (exceeded := too_large(function) or array_views.too_many_locals(function)) is not None:
        return Outcome(None, (exceeded,), tuple(frame.notes))
    note_lost_changes(frame, template)
    note_doubts(frame, function, template)
    kernel = KernelDefinition(
        template.name,
        verify(function),
        template.places.source,
        template.doc,
        template.span,
        template.options,
        snapshot(frame.scope.captured),
        tuple(frame.scope.constants.values()),
        tuple(signature),
        defaults,
        tuple(frame.late_sums),
        tuple(lost_sum_warnings(function, template)),
        tuple(frame.scope.callee_rules.items()),
    )
    return Outcome(kernel, (), tuple(frame.notes))


def too_large(kernel: Function) -> Diagnostic | None:
    """The error of a kernel that is too long, or nests too deeply, once its calls are written out."""
    size, depth = _measured(kernel, {})
    if size > MOST_STATEMENTS:
        message = f"{kernel.name} is too long: {size:,} operations, each call of a function written out"
        hint = f"{MOST_STATEMENTS:,} may be: call fewer functions that call functions, or write loops"
        return Diagnostic(message, kernel.span, "size", hint=hint)
    return too_deep(kernel.name, kernel.span) if depth > DEEPEST else None


def _measured(function: Function, cache: dict[Function, tuple[int, int]]) -> tuple[int, int]:
    """The statements of a function, calls written out, and how deep they nest."""
    if function not in cache:
        cache[function] = _measured_block(function.body, cache)
    return cache[function]


def _measured_block(block: Block, cache: dict[Function, tuple[int, int]]) -> tuple[int, int]:
    size, depth = len(block.stmts), 0
    for stmt in block.stmts:
        inner = [_measured_block(part, cache) for part in blocks(stmt)]
        if isinstance(stmt, Call):
            inner.append(_measured(stmt.function, cache))
        for statements, levels in inner:
            size, depth = size + statements, max(depth, levels + 1)
    return size, depth


def too_deep(name: str, span: Span | None = None) -> Diagnostic:
    """The error of a text that nests deeper than Python's stack allows to follow."""
    hint = "split long chains of elif, return, operators and calls into functions or loops"
    return Diagnostic(f"{name} nests too deeply", span, "depth", hint=hint)


def _hands_back(template: Template, name: str) -> Diagnostic:
    message = f"a kernel cannot hand {name} back: nobody takes it"
    hint = "take an array, and store into an element; ref is for functions that kernels call"
    argument = next(argument for argument in template.arguments if argument.arg == name)
    return Diagnostic(message, template.places(argument), "reference", hint=hint)


def _stated_result(template: Template) -> list[Diagnostic]:
    returns = template.node.returns
    if returns is None or returns_value(template.body):
        return []
    try:
        template.type(returns)
    except Mistake:
        return []  # `None` under one of its names
    hint = "leave the annotation out: what a kernel computes goes into an array parameter"
    message = f"a kernel returns nothing, not {template.places.text(returns)}"
    return [Diagnostic(message, template.places(returns), "type", hint=hint)]


def default_numbers(template: Template) -> tuple[dict[str, Any], list[Diagnostic]]:
    """The defaults of a kernel's parameters, and what is wrong with others."""
    defaults, errors = {}, []
    for name, node in template.defaults.items():
        try:
            defaults[name] = _number(template, node)
        except Mistake as mistake:
            errors.append(mistake.diagnostic)
    return defaults, errors


def _number(template: Template, node: ast.expr) -> Any:
    """The default of a kernel's parameter: a number, or a tuple of them for a vector."""
    value = default_of(template, node)
    numbers = value if isinstance(value, tuple) else (value,)
    if all(isinstance(number, bool | int | float | np.generic) for number in numbers):
        return value
    raise Mistake.of("a default has to be a number", "value", "give it at the launch", template.places(node))


def _kernel_type(template: Template, argument: ast.arg) -> AnyType:
    if argument.annotation is not None:
        return template.type(argument.annotation)
    message = f"the argument {argument.arg} of the kernel {template.name} has no type"
    default = template.defaults.get(argument.arg)
    if isinstance(default, ast.Constant) and type(default.value) in (bool, int):
        likely = type(default.value).__name__
    else:
        likely = _likely_type(template.node, argument.arg)
    hint = f"write «{argument.arg}: {likely}»"
    if argument.arg == "self":
        hint = "leave it out: a kernel is not a method"
    raise Mistake.of(message, "annotation", hint, template.places(argument))


def _likely_type(node: ast.FunctionDef, name: str) -> str:
    ndim = 0
    for part in nodes(node):
        match part:
            case ast.Subscript(value=ast.Name(base), slice=ast.Tuple(elts=indices)) if base == name:
                ndim = max(ndim, len(indices))
            case ast.Subscript(value=ast.Name(base)) | ast.Attribute(ast.Name(base), "shape") if base == name:
                ndim = max(ndim, 1)
    if not ndim:
        return "float"
    return "array[float]" if ndim == 1 else f"array{ndim}d[float]"


# -------------------------------------------------------------------------------------------------- generics


class GenericKernel:
    """A kernel before its types are known; `instantiate` makes a kernel of it."""

    def __init__(self, template: Template) -> None:
        self.template = template
        self.name = template.name
        self.source: Source = template.places.source
        self.doc = template.doc
        self.span: Span = template.span
        self.names = tuple(argument.arg for argument in template.arguments)
        self.options: dict[str, Any] = dict(template.options)
        self.open = tuple(is_open(template, argument) for argument in template.arguments)
        pairs = zip(template.arguments, self.open, strict=True)
        self.arrays = tuple(is_open and _rank(argument) is not None for argument, is_open in pairs)
        self._instances: dict[tuple[AnyType | None, ...], KernelDefinition] = {}

    __kernelab_kernel__ = True

    def __repr__(self) -> str:
        return f"<generic kernel {self.name}({', '.join(self.names)})>"

    @property
    def defaults(self) -> dict[str, Any]:
        return default_numbers(self.template)[0]

    def check(self) -> tuple[Diagnostic, ...]:
        """The mistakes that show before any types are known."""
        refused = unsupported.check(self.template.node, self.template.places)
        return (*refused.values(), *default_numbers(self.template)[1])

    def instantiate(self, types: Sequence[AnyType | None]) -> KernelDefinition:
        """The kernel for these types, of which only those of open parameters count; raises KernelError."""
        key = tuple(type if is_open else None for type, is_open in zip(types, self.open, strict=True))
        if key not in self._instances:
            self._instances.setdefault(key, self._lowered(key))  # threads that ask at once get one definition
        return self._instances[key]

    def _lowered(self, types: Sequence[AnyType | None]) -> KernelDefinition:
        stated: dict[str, AnyType] = {}
        for argument, type in zip(self.template.arguments, types, strict=True):
            if type is not None:
                self._refuse_rank(argument, type)
                stated[argument.arg] = type
        outcome = lower_kernel(self.template, stated)
        if outcome.kernel is None:
            raise KernelTypeError(*outcome.errors)
        return replace(outcome.kernel, options=self.options)

    def _refuse_rank(self, argument: ast.arg, type: AnyType) -> None:
        wanted = _rank(argument)
        ndim = type.ndim if isinstance(type, Array | StructArray) else 0
        if wanted is not None and wanted != ndim:
            expected = f"an array of {counted(wanted, 'dimension')}"
            message = f"argument `{argument.arg}` of kernel `{self.name}` expects {expected}, not {type}"
            raise LaunchError.of(message, "ndim", span=self.template.places(argument))


def is_open(template: Template, argument: ast.arg) -> bool:
    """Whether the type of a parameter is left to the launch."""
    return argument.annotation is not None and template.is_open(argument.annotation)


def _rank(argument: ast.arg) -> int | None:
    """The dimensions of a parameter whose type is left to the launch; None unless it is an array."""
    assert argument.annotation is not None
    return open_ndim(argument.annotation)


def is_generic(template: Template) -> bool:
    """Whether a def has a parameter whose type is left to the launch."""
    return any(is_open(template, argument) for argument in template.arguments)


# --------------------------------------------------------------------------------------- kernels of one call


def one_thread(function: UserFunction, bound: Sequence[Bound]) -> KernelDefinition:
    """The kernel for arguments of these types; its last parameters are the results, arrays of one element.

    Arguments that are functions themselves are compiled in.  Raises BrokenCall where the function has
    mistakes, or returns something else than numbers, vectors, matrices and structs.
    """
    instance = function.instantiate(tuple(bound))
    formals = [
        Formal(parameter.name, type, parameter.span)
        for parameter, type in zip(function.signature(), bound, strict=True)
        if isinstance(type, Scalar | Vec | Mat | Array | Struct | StructArray)
    ]
    results = list(_results(function, instance, {formal.name for formal in formals}))
    inputs = [var for formal in formals for var in _vars(formal)]
    outputs = [_vars(formal) for formal, _ in results]
    builder = Builder(function.span)
    returned = _returned(function)
    yielded = tuple(Var(type_of(atom), span=returned) for atom in instance.function.body.yields)
    builder.emit(Call(yielded, instance.function, tuple(inputs), function.span))
    builder.span, rest = returned, iter(yielded)
    for targets, (_, item) in zip(outputs, results, strict=True):
        for target, part in zip(targets, parts_of(item), strict=True):
            builder.store(target, [integer(0)], _atom(builder, part, rest))
    params = (*inputs, *(var for vars in outputs for var in vars))
    kernel = verify(Function(function.name, params, builder.close(), (), function.span))
    if (exceeded := too_large(kernel)) is not None:
        raise BrokenCall((exceeded,))
    return KernelDefinition(
        function.name,
        kernel,
        function.source,
        function.__doc__ or "",
        function.span,
        {},
        function.captured,
        tuple(function.constants.values()),
        (*formals, *(formal for formal, _ in results)),
        {},
    )


def _vars(formal: Formal) -> tuple[Var, ...]:
    return vars_of(struct_values.parameter(formal.name, formal.type, formal.span))


def _results(
    function: UserFunction, instance: Instance, taken: set[str]
) -> Iterator[tuple[Formal, Meaning | None]]:
    """The parameter for each result, under a name that none of the function's own has, and what it holds."""
    types = result_types(function, instance)
    prefix = "result"
    while any(name.startswith(prefix) for name in taken):
        prefix = f"_{prefix}"
    for k, (type, item) in enumerate(zip(types, _items(instance.results), strict=True)):
        holder = StructArray(type, 1) if isinstance(type, Struct) else Array(type, 1)  # type: ignore[arg-type]
        yield Formal(prefix if len(types) == 1 else f"{prefix}_{k}", holder, _returned(function)), item


def _returned(function: UserFunction) -> Span:
    """The place of the last statement, which as a rule returns."""
    last = function.template.body[-1]
    return function.template.places(last) if isinstance(last, ast.Return) else function.span


def _atom(builder: Builder, part: Meaning, yielded: Iterator[Atom]) -> Atom:
    match part:
        case Weak(number):
            return constant(number, part.type)
        case HostArray(values, type):
            return builder.joined(type, [constant(value, scalar_of(type)) for value in values.flat])
        case _:
            return next(yielded)


def _items(results: Meaning | None) -> tuple[Meaning | None, ...]:
    return results.items if isinstance(results, TupleOf) and results.struct is None else (results,)


def result_types(function: UserFunction, instance: Instance) -> tuple[AnyType, ...]:
    """The types of what a function returns; raises BrokenCall for what no array holds."""
    types = tuple(_result(item) for item in _items(instance.results))
    if not types or None in types:
        message = f"`{function.name}` does not return a number, a vector, a matrix or a struct"
        raise BrokenCall((Diagnostic(message, function.span, "func"),))
    return tuple(type for type in types if type is not None)


def _result(meaning: Meaning | None) -> AnyType | None:
    match meaning:
        case Weak() | Typed() | HostArray():
            return meaning.type
        case TupleOf():
            return meaning.struct
        case _:
            return None
