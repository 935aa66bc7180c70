"""Functions applied to arrays element by element: `map`, and the operators of arrays.

    map(lambda x, s: x * s, x, 2.0)      runs

    def map_lambda(a0: array[float32], a1: float32, out: array[float32]):
        i = tid()
        out[i] = function(a0[i], a1)

Each is one launch of a kernel that is written here as text, once for each combination of types, and so is
recorded and differentiated as any launch is.
"""

import inspect
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernelab import hooks
from kernelab.backend.cuda.launch_config import config_of
from kernelab.errors import KernelTypeError, KernelValueError, a_thing, counted
from kernelab.frontend.definitions.functions import UserFunction
from kernelab.frontend.definitions.kernels import result_types
from kernelab.frontend.meaning.meanings import Parameter, Typed
from kernelab.lang.operators import BINARY
from kernelab.lang.structs import AnyType, has_derivative
from kernelab.lang.types import Array, Scalar, Value, bool_, int32, scalar_of, shape_of, with_scalar
from kernelab.runtime.array.array import array
from kernelab.runtime.array.layout import is_picked
from kernelab.runtime.array.transfers import INDICES, readable, transfer
from kernelab.runtime.context.conversion import array_type
from kernelab.runtime.context.recorder import RECORDER, caller, name_in_caller, refusal
from kernelab.runtime.host.create import unfilled
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.texts import kernels_of
from kernelab.runtime.launch.launch import launch, run
from kernelab.runtime.memory.device import CPU, Device, get_device
from kernelab.runtime.memory.streams import configured
from kernelab.runtime.ops.operands import (
    Pattern,
    argument,
    arrays_of,
    broadcast,
    callee_of,
    copied_if_overlapping,
    declared,
    foreign_of,
    function_of,
    goes_through,
    is_operand,
    made_once,
    mistakes_raised,
    of_foreign,
    pattern,
    plain,
    refuse_structs,
    require_place,
    value_type_of,
)

LARGEST_EXPONENT = 16
"""Up to which a power is compiled for its exponent."""

_NAMES = {entry.symbol: entry.name for entry in BINARY} | {"~": "invert", "abs": "abs"}


# ------------------------------------------------------------------------------------------ map


@hooks.mapped.provide
def map(
    func: Any,
    *inputs: Any,
    out: Any = None,
    return_kernel: bool = False,
    block_dim: int = 256,
    device: Device | str | None = None,
) -> Any:
    """Apply `func` to every element of arrays and return the array of results, or write them to `out`.

    `func` is a function of a kernel cell, an operation of the language, a NumPy function of the same meaning,
    or a Python function or lambda of plain arithmetic, whose parameters take what they are given, whatever
    their annotations say; with several results they become a list of arrays.
    `inputs` are arrays, whose shapes broadcast as NumPy's do, and numbers, vectors, matrices and structs that
    are the same for all elements.  The results require gradients if an input does.  With `return_kernel` the
    kernel is returned instead, for launches on arrays of these types: its arguments are the inputs, then the
    results.  `block_dim` is that of a launch.  Raises KernelError where the function cannot be compiled,
    or shapes do not fit.

    >>> kl.map(kl.sin, kl.zeros((2, 3))).shape
    (2, 3)
    >>> kl.map(lambda u, v: u + 2.0 * v, kl.array([1.0, 2.0]), 10.0).list()
    [21.0, 22.0]
    """
    place = None if device is None else get_device(device)
    if isinstance(func, array):
        message = "map() takes the function first, then the arrays that it goes through"
        raise KernelTypeError.of(message, "map", "write kl.map(func, x, ...)")
    values = [plain(value) for value in inputs]
    if not any(goes_through(value) for value in values):
        message = "map() needs an array to go through, and was given none"
        raise KernelTypeError.of(message, "map", "write kl.map(func, kl.array(...))")
    callee = callee_of(func, len(inputs))
    if len(callee.members) > 1:
        callee = hooks.chosen(callee, inputs, {})
    if callee.ref_parameters is not None:
        message = f"{callee.name} hands `{min(callee.ref_parameters.refs)}` back, which no element can be"
        raise refusal(KernelTypeError, message, "map", "return it: map() gives arrays of what is returned")
    of_users = getattr(func, "__kernelab_function__", None)
    if not (inspect.isfunction(func) or isinstance(of_users, UserFunction)):
        refuse_structs(arrays_of(inputs))
    operands = _inputs(callee, values)
    outs = None if out is None else tuple(out) if isinstance(out, tuple | list) else (out,)
    require_place(place, operands)
    name = f"map_{callee.name.strip('_')}"
    if return_kernel:
        plain_outs = None if outs is None else tuple(plain(out) for out in outs)
        return _prepared(name, callee, operands, tuple(range(len(operands))), plain_outs)[0]
    with configured(config_of(block_dim, 0)):
        results = _into(name, callee, operands, outs)
    return results[0] if len(results) == 1 else list(results)


def _into(name: str, callee: UserFunction, operands: Sequence[Any], outs: tuple[Any, ...] | None) -> Any:
    """Apply a function; results for picked elements go to where these come from."""
    if outs is None or not any(is_picked(out) for out in outs):
        return apply(name, callee, operands, outs)
    computed = apply(name, callee, operands, tuple(plain(out) for out in outs))
    for out, results in zip(outs, computed, strict=True):
        if is_picked(out):
            out.assign(results)
    return outs


@hooks.operate.provide
def operate(symbol: str, operands: Sequence[Any]) -> Any:
    """`a symbol b`, or `symbol a`, for each element; NotImplemented for an operand that is none."""
    if any(isinstance(operand, list) for operand in operands):
        message, hint = f"{symbol} does not take an array and a list", "make an array of it: kl.array([...])"
        raise refusal(KernelTypeError, message, "type", hint)
    if not all(is_operand(operand) for operand in operands):
        return NotImplemented
    callee, inputs = _operation(symbol, [plain(operand) for operand in operands])
    try:
        return apply(f"array_{_NAMES[symbol]}", callee, inputs, None)[0]
    except KernelTypeError as error:
        raise _no_operation(error, inputs, foreign=foreign_of(operands)) from None


@hooks.change.provide
def change(symbol: str, target: Any, other: Any) -> Any:
    """`target symbol= other`, in place; left to another library, it would change the name alone."""
    if not is_operand(other):
        message = f"{symbol}= does not change an array by {a_thing(other)}"
        raise refusal(KernelTypeError, message, "type", "make an array of it: kl.array(...)")
    if is_picked(target):
        return target.assign(change(symbol, target.contiguous(), other))
    callee, (first, *rest) = _operation(symbol, (target, plain(other)))
    broadcast(first, *rest, within=target.shape)
    rest = [copied_if_overlapping(operand, target) for operand in rest]
    key = tuple(pattern(operand, target.shape) for operand in rest)
    try:
        kernel = _changing(f"array_i{_NAMES[symbol]}", callee, target.type, key)
    except KernelTypeError as error:
        raise _no_operation(error, [target, *rest], other) from None
    run(kernel, target.shape, [target, *rest])
    return target


_OF_ELEMENTS = re.compile(r"(\w+)\((a), ([ab])\)")
"""A call of elements a and b, which a hint of the language gives in place of an operator."""


def _no_operation(
    error: KernelTypeError, operands: Sequence[Any], added: Any = None, foreign: Any = None
) -> KernelTypeError:
    """The mistake in an operator's text as one of the line that uses it: in place to take what is `added`.

    One of the operands may be `foreign`, an array of NumPy.
    """
    scalars = [scalar_of(value_type_of(operand)) for operand in operands]
    hint = _OF_ELEMENTS.sub(r"kl.\1(\2, \3)", error.diagnostics[0].hint)
    if "kl." not in hint:
        hint = "say what is meant: kl.map(lambda a, b: ..., x, y)"
    if len({*scalars}) > 1:
        wider = max(scalars, key=lambda scalar: (scalar.is_float, scalar.bits))
        wanted = wider if added is None else scalars[0]
        one = added if added is not None else operands[next(k for k, s in enumerate(scalars) if s != wanted)]
        what = f"the {value_type_of(one)}" if added is None else "the right side"
        is_number = isinstance(one, int | float)
        type = wanted if is_number else with_scalar(value_type_of(one), wanted)
        way = "{}.astype(kl.{})" if isinstance(one, array) else "kl.array({}, dtype=kl.{})"
        way = "kl.{1}({0})" if is_number else way
        otherwise = "mask" if isinstance(one, array) and one.dtype == bool_ else "x"
        hint = f"convert {what}: {way.format(name_in_caller(one) or otherwise, type)}"
        if foreign is not None:
            hint = of_foreign(foreign, scalars)
    return refusal(KernelTypeError, error.diagnostics[0].message, "type", hint)


@hooks.store.provide
def store(part: array, values: array) -> None:
    """``x[...] = values``, where `part` is what the index means: a copy, cast and stretched as needed."""
    if values.size == part.size == 1 and values.ndim != part.ndim:
        values = values.reshape(part.shape)
    if (part.packed, part.dtype) == (values.packed, values.dtype):
        return  # `x[...] += 1` has changed the elements in place already
    if (part.shape, part.dtype) == (values.shape, values.dtype):
        transfer(part, values, "item assignment")
    elif RECORDER.get() is not None and shape_of(part.dtype) == shape_of(values.dtype):
        apply("item_assignment", cast_function(part.dtype), [values], (part,))
    else:
        broadcast(part, values, within=part.shape)
        part.assign(np.broadcast_to(readable(values), part.outline().shape))


def cast_function(elem: Value) -> UserFunction:
    """The function that casts each component to a type of elements."""
    components = ", ".join(f"S(x[{index}])" for index in component_indices(elem))
    value = "S(x)" if isinstance(elem, Scalar) else f"T({components})"
    return function_of("cast", f"def cast(x):\n    return {value}", (("T", elem), ("S", scalar_of(elem))))


def component_indices(elem: Value) -> list[str]:
    """The indices of the components of an element, as text."""
    return [", ".join(str(k) for k in index) for index in np.ndindex(shape_of(elem))]


def apply(
    name: str, callee: UserFunction, inputs: Sequence[Any], outs: tuple[Any, ...] | None
) -> tuple[array, ...]:
    """Launch a function on all elements; the arrays that hold the results."""
    distinct = {id(one): one for one in inputs}  # of x * x the kernel reads x once
    order = {key: k for k, key in enumerate(distinct)}
    places = tuple([order[id(one)] for one in inputs])
    kernel, arguments, results = _prepared(name, callee, [*distinct.values()], places, outs)
    launch(kernel, results[0].shape, [_launched(value) for value in arguments], results)
    return results


_PLAIN_NUMBERS = frozenset(
    np.dtype(kind).type for kind in ("f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4")
)


def _launched(value: Any) -> Any:
    """The operand as native code launches it: a number of NumPy's that has no origin as one of Python's."""
    return value.item() if value.__class__ in _PLAIN_NUMBERS else value


Places = tuple[int, ...]
"""Which of the operands each argument of a function is."""


def _prepared(
    name: str, callee: UserFunction, inputs: Sequence[Any], places: Places, outs: tuple[Any, ...] | None
) -> tuple[Kernel, Sequence[Any], tuple[array, ...]]:
    """The kernel that applies a function, what it reads, and what it writes."""
    if outs is None:
        kernel, shape, results = _into_new(name, callee, inputs, places)
        arrays = [one for one in inputs if isinstance(one, array)]
        place = arrays[0].device if arrays else CPU
        traced = any(one.requires_grad for one in arrays)
        new = [unfilled(shape, elem, place, traced and has_derivative(elem)) for elem in results]
        return kernel, inputs, tuple(new)
    shape, results = broadcast(*inputs), _results(callee, _types(callee, [inputs[k] for k in places]))
    _check(callee, outs, len(results), shape)
    for out in outs:
        inputs = [copied_if_overlapping(a, out) for a in inputs]
    try:
        types = [out.type for out in outs]
        return _mapping_of(name, callee, inputs, places, outs[0].shape, types), inputs, outs
    except KernelTypeError as error:
        raise _other_results(error, callee, results, outs) from None


Plan = tuple[Kernel, tuple[int, ...], tuple[AnyType, ...]]

_MOST_PLANS = 1024
_PLANS: dict[Hashable, Plan] = {}
"""Maps into new arrays: kernel, shape and results, by the function and what the operands are."""


def _into_new(name: str, callee: UserFunction, inputs: Sequence[Any], places: Places) -> Plan:
    """The kernel that applies a function, and the arrays that are to be made for its results."""
    kinds = tuple([(a.type, a.shape) if isinstance(a, array) else value_type_of(a) for a in inputs])
    plan = _PLANS.get((name, callee, callee.derivatives, kinds, places))
    if plan is not None:
        return plan
    shape, results = broadcast(*inputs), _results(callee, _types(callee, [inputs[k] for k in places]))
    types = [array_type(elem, len(shape)) for elem in results]
    plan = _mapping_of(name, callee, inputs, places, shape, types), shape, results
    if len(_PLANS) >= _MOST_PLANS:
        _PLANS.clear()
    # Only now does the function know which others it calls, whose rules are its derivatives, too.
    _PLANS[name, callee, callee.derivatives, kinds, places] = plan
    return plan


def _mapping_of(
    name: str,
    callee: UserFunction,
    inputs: Sequence[Any],
    places: Places,
    shape: tuple[int, ...],
    outs: Sequence[Array],
) -> Kernel:
    key = tuple(pattern(a, shape) for a in inputs)
    return _mapping(name, callee, callee.derivatives, key, places, tuple(outs))


def _types(callee: UserFunction, inputs: Sequence[Any]) -> tuple[AnyType, ...]:
    """The types that a function is called with: numbers become what its parameters state, as in any call."""
    types = (value_type_of(value) for value in inputs)
    stated = (parameter.type for parameter in callee.signature())
    return tuple(
        wanted if isinstance(wanted, Scalar) and isinstance(actual, Scalar) else actual
        for wanted, actual in zip(stated, types, strict=False)
    )


def _other_results(
    error: KernelTypeError, callee: UserFunction, results: Sequence[AnyType], outs: Sequence[array]
) -> KernelTypeError:
    """The mistake in the text of the kernel as what it is to the caller: results that `out` does not hold."""
    for result, out in zip(results, outs, strict=True):
        if result != out.dtype:
            message = f"`{callee.name}` gives {result}, and out= is an array of {out.dtype}"
            hint = f"make it so: kl.zeros({out.shape}, dtype=kl.{result}), or convert in the function"
            return refusal(KernelTypeError, message, "out", hint)
    return error


def _check(callee: UserFunction, outs: tuple[Any, ...], results: int, shape: tuple[int, ...]) -> None:
    if len(outs) != results:
        message = f"`{callee.name}` has {results} results, and out= has {len(outs)} arrays"
        raise KernelValueError.of(message, "out")
    for out in outs:
        if not isinstance(out, array):
            message = f"out= takes an array, not {a_thing(out)}"
            raise KernelTypeError.of(message, "out", "make one: kl.empty_like(x)")
        stretches = all(n in (1, extent) for n, extent in zip(shape[::-1], out.shape[::-1], strict=False))
        if out.shape != outs[0].shape or len(shape) > out.ndim or not stretches:
            raise KernelValueError.of(f"the results have shape {shape}, and out= has {out.shape}", "shape")


# ------------------------------------------------------------------------------------------ functions


def _inputs(callee: UserFunction, values: Sequence[Any]) -> list[Any]:
    """The arguments of a map: arrays as arrays, numbers as NumPy scalars of the type that they get."""
    with mistakes_raised():
        signature = callee.signature()
    needed = [parameter for parameter in signature if parameter.default is None]
    if not len(needed) <= len(values) <= len(signature):
        names = ", ".join(parameter.name for parameter in signature)
        message = f"`{callee.name}({names})` was given {counted(len(values), 'argument')}"
        raise KernelTypeError.of(message, "count", "give one for each of its parameters", callee.span)
    types = [parameter.type for parameter in signature]
    arrays = arrays_of(values)
    return [argument(value, types[i], arrays) for i, value in enumerate(values)]


def _operation(symbol: str, operands: Sequence[Any]) -> tuple[UserFunction, list[Any]]:
    """An operator as a function of the operands that change from call to call, and these."""
    arrays = arrays_of(operands)
    refuse_structs(arrays)
    inputs = [argument(operand, None, arrays) for operand in operands]
    if len(inputs) == 1:
        word = "not " if symbol == "~" and scalar_of(value_type_of(inputs[0])) == bool_ else symbol
        return function_of(word, f"def {_NAMES[symbol]}_(a):\n    return {word}(a)"), inputs
    text = f"def {_NAMES[symbol]}_(a, b):\n    return a {symbol} b"
    exponent = operands[1]
    if symbol == "**" and isinstance(exponent, int) and abs(exponent) <= LARGEST_EXPONENT:
        return function_of(symbol, f"def power(a):\n    return a ** {exponent}"), inputs[:1]
    if symbol == "**" and isinstance(exponent, int | float):
        # A power whose type no array decides: an int stays one, so that x ** 20 is defined for x < 0.
        inputs[1] = int32(exponent) if isinstance(exponent, int) and int32.holds(exponent) else inputs[1]
    return function_of(symbol, text), inputs


# ------------------------------------------------------------------------------------------ kernels


def _results(callee: UserFunction, types: tuple[AnyType, ...]) -> tuple[AnyType, ...]:
    with mistakes_raised():
        complete = (*types, *(_left_out(one) for one in callee.signature()[len(types) :]))
        return result_types(callee, callee.instantiate(complete))


def _left_out(parameter: Parameter) -> Any:
    """What a parameter stands for that gets its default."""
    default = parameter.default
    return parameter.type or (default.type if isinstance(default, Typed) else default)


@made_once(1024)
def _mapping(
    name: str,
    callee: UserFunction,
    _: tuple[Any, ...],
    inputs: tuple[Pattern, ...],
    places: Places,
    outs: tuple[Array, ...],
) -> Kernel:
    """The kernel that maps a function, one for each of the derivatives that it gets: an index an element."""
    read = [f"a{k}" for k in range(len(inputs))] if len(inputs) > 1 else ["a"]
    written = [f"out{k}" for k in range(len(outs))] if len(outs) > 1 else ["out"]
    ndim = outs[0].ndim
    whole = tuple(range(ndim))
    values = ", ".join(inputs[k].read(read[k]) for k in places)
    targets = ", ".join(Pattern(type, whole).read(n) for n, type in zip(written, outs, strict=True))
    body = [f"{', '.join(INDICES[:ndim])} = tid()", f"{targets} = function({values})"]
    params = dict(zip([*read, *written], [*(p.type for p in inputs), *outs], strict=True))
    return _kernel(name, params, body, callee, [inputs[k].type for k in places])


@made_once(1024)
def _changing(name: str, callee: UserFunction, target: Array, inputs: tuple[Pattern, ...]) -> Kernel:
    """The kernel that replaces each element of its first argument by the function of it."""
    first = Pattern(target, tuple(range(target.ndim)))
    read = [f"b{k}" if k else "b" for k in range(len(inputs))]
    values = ", ".join([first.read("a"), *(p.read(n) for n, p in zip(read, inputs, strict=True))])
    body = [f"{', '.join(INDICES[: target.ndim])} = tid()", f"{first.read('a')} = function({values})"]
    types = [target, *(p.type for p in inputs)]
    return _kernel(name, dict(zip(["a", *read], types, strict=True)), body, callee, types)


def _kernel(
    name: str,
    params: Mapping[str, AnyType],
    body: Sequence[str],
    callee: UserFunction,
    given: Sequence[AnyType],
) -> Kernel:
    """The kernel with this body, which calls a function with arguments of the types `given`."""
    head, words = declared([*params], [*params.values()])
    lines = [f"def {name}({', '.join(head)}):", *(f"    {line}" for line in body)]
    try:
        return kernels_of("\n".join(lines), f"<{name}>", {"function": callee} | words)[name]
    except KernelTypeError as error:
        raise _at_the_call(error, f"<{name}>", callee, given) from None


def _at_the_call(
    error: KernelTypeError, label: str, callee: UserFunction, types: Sequence[AnyType]
) -> KernelTypeError:
    """The error at the line of the user's, where it stands in the text that is written here."""
    pairs = zip((parameter.type for parameter in callee.signature()), types, strict=False)
    wanted = next((str(one) for one, type in pairs if one not in (None, getattr(type, "elem", type))), None)
    if wanted is None:
        return error
    hint = f"give the array that type where it is made: kl.array(..., dtype=kl.{wanted})"
    if wanted == "bool":
        hint = "write a comparison, such as x > 0.0"
    elif wanted.startswith("float"):
        hint = f"write kl.array([2.0], dtype=kl.{wanted}) for a number 2.0, or x.astype(kl.{wanted})"
    return KernelTypeError(
        *(
            replace(each, span=caller().span, hint=hint)
            if each.span is not None and each.span.source.label == label
            else each
            for each in error.diagnostics
        )
    )
