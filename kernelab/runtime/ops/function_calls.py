"""Calls of functions for kernels from Python: ``g(2.0, 3.0)``.

Values of the host give values of the host: a kernel of one thread, made once for each combination of types,
calls the function.  An array for a number, a vector, a matrix or a struct is gone through element by element,
as by `map`; where any argument is an array, results are arrays, and tapes and transforms follow the launch.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kernelab import hooks
from kernelab.data_classes import dataclass, replace
from kernelab.errors import KernelError, KernelTypeError, LaunchError, Related, counted, near
from kernelab.frontend.definitions.functions import UserFunction
from kernelab.frontend.definitions.kernels import one_thread
from kernelab.frontend.expressions import struct_values
from kernelab.frontend.meaning.meanings import Argument, BuiltinRef, FunctionRef, Meaning, TupleType, Weak
from kernelab.frontend.meaning.name_lookup import meaning_of
from kernelab.host.traced import Origins, origins, traced
from kernelab.host.values import HostValue
from kernelab.lang.structs import StructArray, has_derivative
from kernelab.lang.types import Array, Mat, Vec, float32
from kernelab.runtime.array.array import array
from kernelab.runtime.array.layout import is_picked
from kernelab.runtime.context.conversion import described
from kernelab.runtime.context.recorder import unrecorded
from kernelab.runtime.host.create import zeros
from kernelab.runtime.host.struct_instances import Instance
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.signature import inferred
from kernelab.runtime.launch.launch import run
from kernelab.runtime.memory.device import CPU
from kernelab.runtime.ops.elementwise import map
from kernelab.runtime.ops.operands import goes_through, mistakes_raised, value_type_of


@dataclass(frozen=True, slots=True)
class OneThread:
    """A call as a launch of one thread: its kernel, the arguments, and the arrays for the results."""

    kernel: Kernel
    inputs: list[Any]
    outputs: list[Any]


@hooks.call.provide
def call(func: Any, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """What a function for kernels returns for values of the host, and for arrays.

    Python's numbers become what the annotations say, float32 and int32 where there are none.  Raises
    KernelTypeError for a wrong number of arguments, and for types that the function does not take.
    """
    function = chosen(func, positional, named)
    arguments = bound(function, positional, named)
    if _is_mapped(function, arguments):
        try:
            results = map(function, *arguments)
        except KernelError as error:
            raise _with_elements(error, function, arguments) from None
        return tuple(results) if isinstance(results, list) else results
    if arrays_among(arguments):
        return _as_returned(_run(function, arguments).outputs)
    with unrecorded():
        outputs = _run(function, arguments).outputs
    sources = origins(leaves_among(arguments))
    return _as_returned([_value(output[0], sources) for output in outputs])


def _with_elements(error: KernelError, function: UserFunction, arguments: Sequence[Any]) -> KernelError:
    """The error with a note on parameters without a type, of which the text saw one element."""
    span = error.diagnostics[0].span
    if span is None or span.source != function.span.source:
        return error
    notes = [
        f"`{one.name}` is one element here; for the whole write {one.name}: array{rank}[{given.dtype}]:"
        for one, given in zip(function.signature(), arguments, strict=True)
        if one.type is None and isinstance(given, array | np.ndarray)
        for rank in [f"{given.ndim}d" if given.ndim > 1 else ""]
    ]
    related = tuple(Related(note, function.span) for note in notes)
    return type(error)(*(replace(each, related=(*each.related, *related)) for each in error.diagnostics))


def as_launch(func: Any, positional: Sequence[Any], named: Mapping[str, Any] | None = None) -> OneThread:
    """The call of a function as a launch of one thread that has not run; its kernel is made once."""
    function = chosen(func, positional, named or {})
    return _prepared(function, bound(function, positional, named or {}))


def is_function(value: Any) -> bool:
    """Whether a value is a function for kernels."""
    return isinstance(getattr(value, "__kernelab_function__", None), UserFunction)


def kernel_of(function: UserFunction, types: Sequence[Any]) -> Kernel:
    """The kernel of one thread for these types of the arguments; raises KernelError."""
    key = tuple(types)
    kernel: Kernel | None = function.kernels.get(key)
    if kernel is None:
        with mistakes_raised():
            definition = one_thread(function, key)
        kernel = function.kernels[key] = Kernel.of(function.name, definition)
    return kernel


def stated_kernel(func: Any) -> Kernel | str:
    """The kernel of one thread for the types that a function states, float for those it leaves open.

    Where there is none, the reason why.
    """
    function: UserFunction = func.__kernelab_function__.members[0]
    try:
        with mistakes_raised():
            types = [parameter.type or float32 for parameter in function.signature()]
        return kernel_of(function, types)
    except KernelError as error:
        return error.diagnostics[0].message


@hooks.textbook.provide
def textbook(func: Any, active: Iterable[str] | None) -> Any:
    """The derivatives of a function as textbooks write them; raises KernelError where there are none."""
    kernel = stated_kernel(func)
    if isinstance(kernel, Kernel):
        return kernel.textbook(active)
    span = func.__kernelab_function__.span
    raise KernelTypeError.of(kernel, "derivative", "state the types of its parameters", span)


def _run(function: UserFunction, arguments: Sequence[Any]) -> OneThread:
    launch = _prepared(function, arguments)
    try:
        run(launch.kernel, 1, [*launch.inputs, *launch.outputs])
    except LaunchError as error:
        raise _of_function(error, function) from None
    return launch


def _of_function(error: LaunchError, function: UserFunction) -> Exception:
    """The error of a launch as one of a call."""
    said, own = f"kernel `{function.name}`", f"function `{function.name}`"
    diagnostics = [replace(each, message=each.message.replace(said, own)) for each in error.diagnostics]
    return KernelTypeError(*diagnostics) if said in error.diagnostics[0].message else error


def _prepared(function: UserFunction, arguments: Sequence[Any]) -> OneThread:
    with mistakes_raised():
        stated = [parameter.type for parameter in function.signature()]
    types = [
        _type(function, k, argument, type, arguments)
        for k, (argument, type) in enumerate(zip(arguments, stated, strict=True))
    ]
    kernel = kernel_of(function, types)
    inputs = [
        argument
        for argument, type in zip(arguments, types, strict=True)
        if not isinstance(type, FunctionRef | BuiltinRef)
    ]
    formals = kernel.definition.signature[len(inputs) :]
    place = next((a.device for a in arrays_among(inputs)), CPU)
    traced = any(a.requires_grad for a in arrays_among(inputs))
    outputs = [
        zeros(1, formal.type.elem, place, requires_grad=traced and has_derivative(formal.type.elem))
        for formal in formals
        if isinstance(formal.type, Array | StructArray)
    ]
    return OneThread(kernel, inputs, outputs)


def leaves_among(values: Sequence[Any]) -> list[Any]:
    """The values with the leaves of each struct in its place."""
    parts = (value._leaves() if isinstance(value, Instance) else [value] for value in values)
    return [leaf for leaves in parts for leaf in leaves]


def arrays_among(values: Sequence[Any]) -> list[array]:
    """The arrays among values and in their structs."""
    return [leaf for leaf in leaves_among(values) if isinstance(leaf, array)]


def _as_returned(results: Sequence[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)


def _value(result: Any, sources: Origins) -> Any:
    """A value of its own, which remembers where it comes from: an element of an array cannot be changed."""
    if isinstance(result, Instance):
        result = result.copy()
        result._follow(sources)
        return result
    return traced(result.copy() if isinstance(result, HostValue) else result, sources)


# --------------------------------------------------------------------------------------------- arguments


def bound(function: UserFunction, positional: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """A value for each parameter, in order; raises KernelTypeError where there is none, or one too many."""
    with mistakes_raised():
        parameters = function.signature()
    names = [parameter.name for parameter in parameters]
    rest = names[len(positional) :]
    unknown = next((name for name in named if name not in rest), None)
    if unknown in names:
        raise _refused(function, f"gets two values for `{unknown}`", "leave one of them out")
    if unknown is not None:
        hint = near(unknown, names, f"its parameters are {', '.join(names)}")
        raise _refused(function, f"has no parameter `{unknown}`", hint)
    values = {**function.default_values(), **named}
    missing = [name for name in rest if name not in values]
    if len(positional) > len(names) or missing:
        message = f"takes {counted(len(names), 'argument')}, not {len(positional) + len(named)}"
        message += f"; `{missing[0]}` is missing" if missing else ""
        raise _refused(function, message, f"write {function.name}({', '.join(names)})")
    return [*positional, *(values[name] for name in rest)]


def _refused(function: UserFunction, message: str, hint: str) -> KernelTypeError:
    return KernelTypeError.of(f"function `{function.name}` {message}", "count", hint, function.span)


def _type(function: UserFunction, k: int, argument: Any, stated: Any, arguments: Sequence[Any]) -> Any:
    """The type that an argument is called with, or what it means where it is a function itself."""
    if isinstance(stated, TupleType):
        raise _refused(function, "takes a tuple, which only kernels have", "call it in a kernel")
    if stated is not None:
        return stated
    meaning = meaning_of("", argument)
    if isinstance(meaning, FunctionRef | BuiltinRef):
        return meaning
    beside = [value_type_of(other) for other in arguments if isinstance(other, np.floating)]
    value_type = inferred(argument, beside)
    if value_type is None:
        name = function.signature()[k].name
        message = (
            f"argument `{name}` of function `{function.name}` is {described(argument)}, no value of a kernel"
        )
        hint = "pass a number, a vector such as kl.vec3(1.0, 2.0, 3.0), a matrix, a struct or an array"
        raise KernelTypeError.of(message, "argument", hint, function.span)
    return value_type


def _is_mapped(function: UserFunction, arguments: Sequence[Any]) -> bool:
    """Whether arrays stand for numbers, vectors, matrices or structs, and none for an array."""
    types = [parameter.type for parameter in function.signature()]
    if any(isinstance(type, Array | StructArray) for type in types):
        return False
    return any(
        isinstance(argument, array)
        or is_picked(argument)
        or (goes_through(argument) and not isinstance(type, Vec | Mat))
        for argument, type in zip(arguments, types, strict=True)
    )


@hooks.chosen.provide
def chosen(func: Any, positional: Sequence[Any], named: Mapping[str, Any]) -> UserFunction:
    """The function that a call means, of several of one name; raises KernelTypeError where none fits."""
    function: UserFunction = func.__kernelab_function__
    if len(function.members) == 1:
        return function.members[0]
    values = [(None, value) for value in positional] + list(named.items())
    node = ast.Constant(None)
    with mistakes_raised():
        meant = function.fitting([Argument(_meaning(value), node, name) for name, value in values])
    if len(meant) == 1:
        return meant[0]
    shown = ", ".join(described(value) for _, value in values)
    if meant:
        raise _refused(function, f"has {len(meant)} definitions for {shown}", "rename one of them")
    raise _refused(function, f"has no definition for {shown}", "annotate one with these types")


def _meaning(value: Any) -> Meaning:
    """What an argument means to the choice between definitions."""
    if type(value) in (bool, int, float):
        return Weak(value)
    type_ = inferred(value, ())
    if isinstance(value, array):
        type_ = value.dtype  # gone through element by element
    return Weak(0.0) if type_ is None else struct_values.parameter("", type_, None)  # type: ignore[arg-type]
