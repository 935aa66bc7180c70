"""Lowers calls of functions: of users', of the library in the language itself, and of `grad(f)`."""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from kernelab.builtins.language_words import BY_COUNT, LIBRARY_TEXT, LIBRARY_WORDS
from kernelab.data_classes import dataclass, replace
from kernelab.errors import Related, Source, counted
from kernelab.frontend.expressions import struct_values
from kernelab.frontend.expressions.struct_values import is_view, type_of, with_atoms
from kernelab.frontend.meaning import array_views
from kernelab.frontend.meaning.byref import RefCall
from kernelab.frontend.meaning.frame import Frame, Mistake, Poisoned, Recursion
from kernelab.frontend.meaning.meanings import (
    Argument,
    Arguments,
    ArrayRef,
    Bound,
    BuiltinRef,
    Callee,
    FunctionRef,
    GradRef,
    Instance,
    Meaning,
    Origin,
    Parameter,
    StructArrayRef,
    TupleOf,
    TupleType,
    Typed,
    TypeRef,
    ViewType,
    Weak,
    describe,
)
from kernelab.frontend.meaning.promote import weak_constant, weak_origins
from kernelab.lang import ops
from kernelab.lang.ir import Alloc, Atom, Call, Function, Native, Print, Var, called, changed, walk
from kernelab.lang.structs import AnyType
from kernelab.lang.types import Array, Quat, Scalar, Transform, Type, Value, Vec, float32, is_differentiable


@dataclass(frozen=True, slots=True)
class Entered:
    """A function with the arguments of a call: its instance for their types, and what is handed over."""

    instance: Instance
    given: Sequence[tuple[Parameter, Argument]]
    atoms: Sequence[Atom]


Adapt = Callable[[Frame, Parameter, Argument], Argument]


def call_function(frame: Frame, function: Callee, arguments: Arguments, node: ast.Call) -> Meaning | None:
    """The value of a call of a function, None where it returns nothing."""
    entry = entered(frame, function, arguments, node)
    instance = entry.instance
    outs: list[Var] = []
    numbers = [argument.value for _, argument in entry.given if isinstance(argument.value, Typed)]
    result = None
    if instance.results is not None:
        received = _Received(frame, dict(zip(instance.function.params, entry.atoms, strict=True)), outs)
        result = received.of(instance.results, numbers, ("call", frame.places(node)))
    frame.builder.emit(Call(tuple(outs), instance.function, tuple(entry.atoms), frame.builder.span))
    _take_over_sums(frame, instance, entry.atoms, node)
    return result


def _take_over_sums(frame: Frame, instance: Instance, atoms: Sequence[Atom], node: ast.Call) -> None:
    """Note the late sums of a function for the arrays that it is given; raises Mistake where two are one."""
    passed = {p: a for p, a in zip(instance.function.params, atoms, strict=True) if isinstance(a, Var)}
    for late in instance.late_sums:
        array, changed = passed[late.array], frozenset(passed[var] for var in late.changed)
        if array in changed:
            related = (Related("this call passes one array for both", frame.places(node)),)
            raise Mistake(replace(late.diagnostic, related=related))
        frame.late_sums.append(replace(late, array=array, changed=changed))


def entered(
    frame: Frame, function: Callee, arguments: Arguments, node: ast.Call, adapt: Adapt | None = None
) -> Entered:
    """The function that a call means, for its arguments; `adapt` may change these first."""
    chosen = _chosen(frame, function, arguments, node)
    if chosen.ref_parameters is not None and not isinstance(node, RefCall):
        if node in frame.refused:
            raise Poisoned
        message = f"{chosen.name} changes what it is handed, so it is called by its own name"
        raise frame.error(node, message, hint=f"write {chosen.name}(x) as a statement")
    function = chosen
    pairs = _bind(frame, function, arguments, node)
    if adapt is not None:
        pairs = [(parameter, adapt(frame, parameter, argument)) for parameter, argument in pairs]
    bound: list[Bound] = []
    atoms: list[Atom] = []
    for parameter, argument in pairs:
        kind, passed = _passed(frame, function, parameter, argument)
        bound.append(kind)
        atoms += passed
    try:
        instance = function.instantiate(tuple(bound))
    except Recursion:
        message = f"{function.name} calls itself, which a kernel cannot do"
        raise frame.error(node, message, "recursion", "write a loop") from None
    frame.scope.constants |= function.constants
    frame.scope.captured |= function.captured
    frame.scope.callee_rules |= {function: function.rules, **function.callee_rules}
    array_views.refuse_changes(frame, function.name, instance.function, atoms, node)
    return Entered(instance, pairs, atoms)


def _chosen(frame: Frame, function: Callee, arguments: Arguments, node: ast.Call) -> Callee:
    """The function that a call means, of several of one name."""
    found = function.fitting(arguments)
    if len(found) == 1:
        return found[0]
    shown = ", ".join(describe(argument.value) for argument in arguments)
    if found:
        message = f"{len(found)} definitions of {function.name} take ({shown})"
        related = tuple(Related(f"one {function.name} is defined here", one.span) for one in found)
        raise frame.error(node, message, hint="rename one of them, or change its types", related=related)
    related = (Related(f"the first {function.name} is defined here", function.span),)
    message = f"no {function.name} takes ({shown})"
    raise frame.error(node, message, hint="add one with these types, or convert an argument", related=related)


def _bind(
    frame: Frame, function: Callee, arguments: Arguments, node: ast.Call
) -> list[tuple[Parameter, Argument]]:
    parameters = function.signature()
    plain = [a for a in arguments if a.keyword is None]
    named = {a.keyword: a for a in arguments if a.keyword is not None}
    definition = (Related(f"{function.name} is defined here", function.span),)
    if len(plain) > len(parameters):
        message = f"{function.name} takes {counted(len(parameters), 'argument')}, not {len(arguments)}"
        raise frame.error(node, message, related=definition)
    bound = dict(zip((p.name for p in parameters), plain, strict=False))
    for word, argument in named.items():
        if word in bound or word not in {p.name for p in parameters}:
            what = "gets two values for" if word in bound else "has no argument"
            raise frame.error(argument.node, f"{function.name} {what} {word}", related=definition)
        bound[word] = argument
    missing = [p.name for p in parameters if p.name not in bound and p.default is None]
    if missing:
        hint = f"write {function.name}({', '.join(p.name for p in parameters)})"
        message = f"{function.name} needs a value for {', '.join(missing)}"
        raise frame.error(node, message, hint=hint, related=definition)
    defaults = {p.name: Argument(p.default, node) for p in parameters if p.default is not None}
    return [(p, (defaults | bound)[p.name]) for p in parameters]


def _passed(
    frame: Frame, function: Callee, parameter: Parameter, argument: Argument
) -> tuple[Bound, list[Atom]]:
    """The part of an argument in the key of the instance, and the atoms to pass."""
    value = argument.value
    if isinstance(value, TupleOf) and value.struct is None:
        return _tuple(frame, function, parameter, argument, value)
    if isinstance(value, StructArrayRef) and value.indices:
        hint = "pass the whole array and the index of the row"
        raise frame.error(argument.node, f"a row of {value.name} cannot be passed to a function", hint=hint)
    purpose = f"the argument {parameter.name} of {function.name} is"
    if isinstance(value, ArrayRef) and is_view(value):
        if function.is_native:
            message = f"{purpose} a part of an array, and C++ takes whole ones"
            raise frame.error(
                argument.node, message, hint="pass the array, and the index where the part begins"
            )
        if parameter.type is None or parameter.type == type_of(value):
            return array_views.passed(value)
        raise frame.error(argument.node, f"{purpose} {parameter.type}, not {describe(value)}")
    match parameter.type:
        case None:
            return _as_it_is(frame, function, parameter, argument)
        case TupleType():
            raise frame.error(argument.node, f"{purpose} a tuple, not {describe(value)}")
        case wanted:
            sound = struct_values.require(frame, value, wanted, argument.node, purpose)
            return wanted, struct_values.atoms(frame, sound, argument.node)


def _as_it_is(
    frame: Frame, function: Callee, parameter: Parameter, argument: Argument
) -> tuple[Bound, list[Atom]]:
    """The same for a parameter without a type, which takes that of the argument."""
    value = argument.value
    if isinstance(value, Weak | TypeRef | BuiltinRef | FunctionRef):
        return value, []
    type = type_of(value)
    if type is None:
        message = f"{function.name} cannot take {describe(value)} for {parameter.name}"
        raise frame.error(argument.node, message)
    return type, struct_values.atoms(frame, value, argument.node)


def _tuple(
    frame: Frame, function: Callee, parameter: Parameter, argument: Argument, value: TupleOf
) -> tuple[Bound, list[Atom]]:
    """A tuple is handed over item by item."""
    wanted = parameter.type.items if isinstance(parameter.type, TupleType) else (None,) * len(value.items)
    if len(wanted) != len(value.items) or isinstance(parameter.type, AnyType):
        kind = f"a tuple of {len(wanted)}" if isinstance(parameter.type, TupleType) else f"{parameter.type}"
        message = f"the argument {parameter.name} of {function.name} is {kind}, not {describe(value)}"
        raise frame.error(argument.node, message)
    kinds, atoms = list[Bound](), list[Atom]()
    for k, (item, type) in enumerate(zip(value.items, wanted, strict=True)):
        assert not isinstance(type, ViewType | Weak | TypeRef | BuiltinRef | FunctionRef)
        part = Parameter(f"{parameter.name}[{k}]", type, None, parameter.span)
        bound, passed = _passed(frame, function, part, Argument(item, argument.node))
        kinds.append(bound)
        atoms += passed
    return TupleType(tuple(kinds)), atoms


@dataclass(frozen=True, slots=True, eq=False)
class _Received:
    """The results of a function for its caller: new Vars for values, the caller's own arrays for arrays."""

    frame: Frame
    handed: Mapping[Atom, Atom]
    outs: list[Var]

    def of(self, results: Meaning, numbers: Sequence[Typed], origin: Origin) -> Meaning:
        """The results of a call; weak where all that went in was weak."""
        match results:
            case Typed():
                origins = weak_origins(self.frame, numbers, results.type, origin)
                return Typed(self.out(results.type), origins - {origin})
            case TupleOf(items, struct) as whole:
                weak = numbers if struct is None else ()
                return whole.of([self.of(item, weak, origin) for item in items])
            case _:
                return with_atoms(results, self.atom)

    def out(self, type: Type) -> Var:
        self.outs.append(Var(type, "", self.frame.builder.span))
        return self.outs[-1]

    def atom(self, atom: Atom) -> Atom:
        """The array that was passed for a parameter, a new Var for what is computed."""
        return self.handed[atom] if isinstance(atom.type, Array) else self.out(atom.type)


# ------------------------------------------------------------------------------------------- named arguments


Names = tuple[str, ...]

_OF_VALUES = {"atomic_cas": ("compare", "value")}
_OF_INDICES = ("i", "j", "k", "l")
_OF_WORDS: dict[str, Names] = {"select": ("cond", "value_if_false", "value_if_true"), "len": ("a",)}


def in_order(frame: Frame, called: str | Value, arguments: Arguments, node: ast.Call) -> Arguments:
    """The arguments of an operation, a word or a type, those with names where they belong."""
    if all(a.keyword is None for a in arguments):
        return arguments
    name, choices = str(called), list(_names(called))
    plain = [a for a in arguments if a.keyword is None]
    named = {a.keyword: Argument(a.value, a.node) for a in arguments if a.keyword is not None}
    for names in choices:
        if len(names) == len(arguments) and set(names[len(plain) :]) == set(named):
            return [*plain, *(named[word] for word in names[len(plain) :])]
    if not choices:
        unknown = next(iter(named))
        hint = "leave the keyword out"
        raise frame.error(named[unknown].node, f"{name} takes no keyword {unknown}", hint=hint)
    wanted = " or ".join(f"({', '.join(names)})" for names in choices)
    raise frame.error(node, f"the arguments of {name} are {wanted}", hint="leave the keywords out")


def _names(called: str | Value) -> Iterator[Names]:
    """The names that the arguments of a call may have, in each way to call it."""
    match called:
        case Transform() | "transformation":
            yield from (("p", "q"), ("p",))
        case Quat() | "quaternion":
            yield from (("x", "y", "z", "w"), ("ijk", "real"))
        case Vec(_, 6):
            yield ("w", "v")
        case str() if called.startswith("atomic_"):
            values = _OF_VALUES.get(called, ("value",))
            yield from (("arr", *_OF_INDICES[:n], *values) for n in range(1, 5))
        case str() if called in _OF_WORDS:
            yield _OF_WORDS[called]
        case _:
            yield from dict.fromkeys(tuple(p.name for p in op.params) for op in ops.overloads(str(called)))


# ----------------------------------------------------------------------------------- functions of the library


Lower = Callable[[Source], Mapping[str, Callee]]
_lower: Lower | None = None


def lower_with(lower: Lower) -> None:
    """Use `lower` to get the functions of a text."""
    global _lower
    _lower = lower


def lowered_text(text: str, title: str) -> Mapping[str, Callee]:
    """The functions that a text defines, by name."""
    assert _lower is not None, "kernelab.frontend.definitions.cell has not been imported"
    return _lower(Source(text, title))


LIBRARY = frozenset((*LIBRARY_WORDS, *(name for name, _ in BY_COUNT)))
"""The words that mean a function of the library, in all calls or in those with some number of arguments."""


def library_function(name: str, count: int) -> Callee | None:
    """The function of `builtins.language_words` that a call with so many arguments means, None if there is
    none.
    """
    word = BY_COUNT.get((name, count), name if name in LIBRARY_WORDS else None)
    return None if word is None else _library()[word]


@cache
def operation(name: str, count: int) -> Callee:
    """An operation of the language as a function that users could have written."""
    names = ", ".join("abcdefgh"[:count])
    text = f"@func\ndef {name}_({names}):\n    return {name}({names})\n"
    return lowered_text(text, f"the operation {name}")[f"{name}_"]


@cache
def _library() -> Mapping[str, Callee]:
    return lowered_text(LIBRARY_TEXT, "kernelab's library")


# ------------------------------------------------------------------------------------------------ grad calls


def gradient_of(frame: Frame, name: str, arguments: Arguments, node: ast.Call) -> GradRef:
    """The function that `grad(f)` stands for."""
    match [argument.value for argument in in_order(frame, name, arguments, node)]:
        case [FunctionRef() | BuiltinRef() as function]:
            return GradRef(function)
        case values:
            shown = ", ".join(map(describe, values))
            raise frame.error(node, f"grad takes one function, not ({shown})", hint="write grad(f)(x)")


def call_gradient(frame: Frame, gradient: GradRef, arguments: Arguments, node: ast.Call) -> Meaning:
    """The derivatives of a function at its arguments: one value, or a tuple of them."""
    entry = entered(frame, _differentiated(frame, gradient, arguments, node), arguments, node, _strong)
    function, result = entry.instance.function, entry.instance.results
    if _acts(function):
        message = f"grad takes a function of its arguments alone, and {function.name} changes or prints more"
        raise frame.error(node, message, hint="return the value instead of storing it")
    if not isinstance(result, Typed) or not (isinstance(result.type, Scalar) and result.type.is_float):
        what = "nothing" if result is None else describe(result)
        message = f"grad takes a function that returns one float, and {function.name} returns {what}"
        raise frame.error(node, message, hint="return one number, such as the sum of what it computes")
    outs = tuple(
        Var(param.type, f"{param.hint}_bar", frame.builder.span)
        for param in function.params
        if isinstance(param.type, Value) and is_differentiable(param.type)
    )
    if not outs:
        raise frame.error(node, f"{function.name} has no argument that is a float", hint="pass a float")
    frame.builder.emit(Call(outs, function, tuple(entry.atoms), frame.builder.span, gradient=True))
    values = tuple(Typed(out) for out in outs)
    return values[0] if len(values) == 1 else TupleOf(values)


def _strong(frame: Frame, parameter: Parameter, argument: Argument) -> Argument:
    """A literal for an argument of any type is a float: its derivative is asked for."""
    if parameter.type is not None or not isinstance(argument.value, Weak):
        return argument
    number = argument.value.number
    if isinstance(number, bool):
        return argument
    constant = weak_constant(frame, float(number), float32, argument.node)
    return Argument(Typed(constant), argument.node, argument.keyword)


def _differentiated(frame: Frame, gradient: GradRef, arguments: Arguments, node: ast.Call) -> Callee:
    match gradient.function:
        case FunctionRef(function):
            return function
        case BuiltinRef(name) if ops.overloads(name):
            return operation(name, len(arguments))
        case other:
            raise frame.error(node, f"{describe(other)} has no derivative in a kernel", hint="write a def")


def _acts(function: Function) -> bool:
    """Whether a function prints, or changes anything but arrays of its own."""
    stmts = [stmt for one in called(function) for stmt in walk(one.body)]
    own = {stmt.out for stmt in stmts if isinstance(stmt, Alloc)}
    return any(isinstance(stmt, Print | Native) or not own.issuperset(changed(stmt)) for stmt in stmts)
