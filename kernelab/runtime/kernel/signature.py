"""The parameters of a kernel as the user wrote them; flattens struct arguments into leaves.

Behind this module launches and tapes know leaves only.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kernelab.errors import Diagnostic, KernelValueError, LaunchError, Span, counted
from kernelab.frontend.definitions.kernels import Formal, GenericKernel
from kernelab.host.values import type_of
from kernelab.lang.rounding import is_float_dtype
from kernelab.lang.structs import AnyType, Struct, StructArray, difference, layout, leaves
from kernelab.lang.types import (
    LARGEST,
    Array,
    Mat,
    Scalar,
    Value,
    Vec,
    bool_,
    float32,
    int32,
    is_differentiable,
    scalar_of,
    shape_of,
)
from kernelab.runtime.array.array import array
from kernelab.runtime.array.exchange import is_outside
from kernelab.runtime.array.layout import is_picked
from kernelab.runtime.context.conversion import array_type, described, scalar_of_dtype, value_type
from kernelab.runtime.context.recorder import warn_at
from kernelab.runtime.host.create import from_other
from kernelab.runtime.host.struct_instances import Instance
from kernelab.runtime.host.structarray import structarray
from kernelab.runtime.kernel.arguments import Formals, wrong_count
from kernelab.runtime.memory.device import CPU


def flattened(kernel: str, span: Span, formals: Formals, arguments: Sequence[Any]) -> list[Any]:
    """The arguments with the leaves of each struct in its place; raises LaunchError."""
    if len(arguments) != len(formals):
        raise wrong_count(kernel, formals, arguments, span)
    return [
        part
        for formal, argument in zip(formals, arguments, strict=True)
        for part in _parts(kernel, formal, argument)
    ]


def flattened_adjoints(formals: Formals, adjoints: Sequence[Any]) -> list[Any]:
    """The adjoints given for some of the parameters, by leaves; None for those that are not given."""
    bars: list[Any] = []
    for k, formal in enumerate(formals):
        bar = adjoints[k] if k < len(adjoints) else None
        count = len(list(leaves(formal.type, formal.name)))
        if isinstance(bar, structarray):
            bars += bar.leaves
        elif isinstance(bar, Instance):
            _warn_of_numbers(formal)
            bars += [part if isinstance(part, array) else None for part in bar._leaves()]
        else:
            bars += [bar] * (count if bar is None else 1)
    return bars


def _warn_of_numbers(formal: Formal) -> None:
    parts = leaves(formal.type, formal.name)
    numbers = [
        f"`{leaf.name}`"
        for leaf in parts
        if not isinstance(leaf.type, Array) and is_differentiable(leaf.type)
    ]
    if numbers:
        message = (
            f"a struct of adjoints takes those of its arrays: it does not get those of {', '.join(numbers)}"
        )
        warn_at(message, "grad", f"set {formal.name}.requires_grad = True, and read {formal.name}.grad")


def structs_in(arguments: Sequence[Any]) -> Iterator[Any]:
    """The structs and arrays of structs among the arguments of a launch."""
    return (argument for argument in arguments if isinstance(argument, structarray | Instance))


def _parts(kernel: str, formal: Formal, argument: Any) -> Sequence[Any]:
    match formal.type:
        case Struct() as struct:
            if isinstance(argument, Instance) and argument._struct == struct:
                return argument._leaves()
            raise _wrong(kernel, formal, argument, f"a {struct}")
        case StructArray(elem, ndim):
            elements = _borrowed(argument, elem)
            if elements is None or elements.dtype != elem or elements.ndim != ndim:
                raise _wrong(
                    kernel, formal, argument, f"an array of {elem} with {counted(ndim, 'dimension')}"
                )
            return elements.leaves
        case _:
            return (argument,)


def _borrowed(argument: Any, elem: Struct) -> structarray | None:
    if isinstance(argument, structarray):
        return argument
    if not isinstance(argument, np.ndarray) or argument.dtype.names is None or not argument.ndim:
        return None
    if argument.dtype != layout(elem):
        return None
    shared = array(argument, elem, device=CPU, copy=False)
    assert isinstance(shared, structarray)
    return shared


def _wrong(kernel: str, formal: Formal, argument: Any, wanted: str) -> LaunchError:
    actual, hint = _described(argument, formal.type)
    if hint == AGAIN:
        hint = hint.format(kernel)
    message = f"argument `{formal.name}` of kernel `{kernel}` expects {wanted}, not {actual}"
    note = f"{formal.name}: {formal.type}"
    return LaunchError(Diagnostic(message, formal.span, "struct", note=note, hint=hint))


AGAIN = "run the cell of `{0}` again to compile it for the new definition, or make the struct anew"


def _described(argument: Any, wanted: Any) -> tuple[str, str]:
    struct = wanted.elem if isinstance(wanted, StructArray) else wanted
    dtype: Any = None
    if isinstance(argument, Instance):
        dtype = argument._struct
        text = f"a {dtype}"
    elif isinstance(argument, array):
        dtype = argument.dtype
        text = f"an {array_type(dtype, argument.ndim)}"
    elif isinstance(argument, type) and isinstance(getattr(argument, "__kernelab_struct__", None), Struct):
        return f"the struct {argument.__name__} itself", f"make one: {argument.__name__}()"
    elif isinstance(argument, np.ndarray):
        return described(argument), f"make it with kl.zeros(n, dtype={struct}).numpy()"
    else:
        return described(argument), f"make it with {struct}()"
    if isinstance(dtype, Struct) and dtype.name == struct.name and dtype != struct:
        return f"{text} of another definition: {difference(struct, dtype)}", AGAIN
    return text, ""


# --------------------------------------------------------------------------------------------------- generic


def types_of(kernel: GenericKernel, arguments: Sequence[Any]) -> list[AnyType | None]:
    """The type of each argument for an open parameter; raises LaunchError for one that has none."""
    if len(arguments) != len(kernel.names):
        count = counted(len(kernel.names), "argument")
        message = f"kernel `{kernel.name}` takes {count}, not {len(arguments)}"
        raise LaunchError.of(message, "count", f"its parameters are {', '.join(kernel.names)}", kernel.span)
    elems = list(dict.fromkeys(_elements(arguments)))
    types: list[AnyType | None] = []
    every = zip(kernel.names, arguments, kernel.open, kernel.arrays, strict=True)
    for name, argument, is_open, is_array in every:
        type = inferred(argument, elems, is_array) if is_open else None
        if is_open and type is None:
            shown = "a value of None" if argument is None else described(argument)
            message = f"argument `{name}` of kernel `{kernel.name}` is {shown}, which says no type"
            hint = "pass an array, a number, a vector or a struct"
            raise LaunchError.of(message, "type", hint, kernel.span)
        types.append(type)
    return types


def _elements(arguments: Sequence[Any]) -> Iterator[Value]:
    for argument in arguments:
        type_ = argument.type if isinstance(argument, array) or is_picked(argument) else None
        if isinstance(type_, Array):
            yield type_.elem


def inferred(argument: Any, elems: Sequence[Value], is_array: bool = False) -> AnyType | None:
    """The type of an argument beside arrays of `elems`; small ones of NumPy are vectors unless `is_array`."""
    match argument:
        case _ if isinstance(argument, array) or is_picked(argument):
            return argument.type  # type: ignore[no-any-return]
        case Instance():
            return argument._struct
        case bool():
            return bool_
        case int():
            return _agreed([e for e in elems if isinstance(e, Scalar) and e.is_int]) or int32
        case float():
            return _agreed([scalar_of(e) for e in elems if scalar_of(e).is_float]) or float32
        case np.generic() | np.ndarray(ndim=0):
            return scalar_of_dtype(argument.dtype)
        case np.ndarray() if is_array and (scalar := scalar_of_dtype(argument.dtype)) is not None:
            return Array(scalar, argument.ndim)
        case np.ndarray():
            return _of_numpy(argument, elems)
        case list() | tuple():
            return _of_numbers(argument, elems)
        case _ if hasattr(argument, "__dlpack__") or is_outside(argument):
            type_: Array = from_other(argument.detach() if hasattr(argument, "detach") else argument).type
            return type_
        case _:
            return None


def _of_numbers(argument: Sequence[Any], elems: Sequence[Value]) -> AnyType | None:
    try:
        values = np.asarray(argument)
    except (TypeError, ValueError):  # the rows have different lengths, or an object in them is not a number
        return None
    if values.dtype.kind not in "biuf":
        return None
    return _of_numpy(values.astype(np.float32 if is_float_dtype(values.dtype) else np.int32), elems)


def _agreed(scalars: Sequence[Scalar]) -> Scalar | None:
    return scalars[0] if len(set(scalars)) == 1 else None


def _of_numpy(values: np.ndarray[Any, Any], elems: Sequence[Value]) -> AnyType | None:
    """A small one is a vector or matrix, of the type of an array's elements where it looks like them."""
    scalar = scalar_of_dtype(values.dtype)
    if scalar is None:
        return None
    own = type_of(values)
    if own is not None:
        return own
    for elem in elems:
        if scalar_of(elem) == scalar and values.shape == shape_of(elem) != ():
            return elem
    match values.shape:
        case (n,) if 1 < n <= LARGEST:
            return Vec(scalar, n)
        case (n, m) if n > 1 and m > 1 and n * m <= LARGEST:
            return Mat(scalar, n, m)
        case shape if 1 <= len(shape) <= 4:
            return Array(scalar, len(shape))
        case _:
            return None


def stated(kernel: GenericKernel, types: Sequence[Any] | Mapping[str, Any]) -> list[AnyType | None]:
    """The types that `overload` was given, by position or name; raises KernelValueError."""
    if isinstance(types, Mapping):
        wrong = [name for name in types if name not in kernel.names]
        missing = [
            n for n, is_open in zip(kernel.names, kernel.open, strict=True) if is_open and n not in types
        ]
        if wrong or missing:
            message = (
                f"kernel `{kernel.name}` has no parameter `{wrong[0]}`"
                if wrong
                else f"the type of `{missing[0]}` of kernel `{kernel.name}` is missing"
            )
            raise KernelValueError.of(message, "value", span=kernel.span)
        chosen: list[Any] = [types.get(name) for name in kernel.names]
    else:
        chosen = list(types)
    if len(chosen) == sum(kernel.open) < len(kernel.names):
        rest = iter(chosen)
        chosen = [next(rest) if is_open else None for is_open in kernel.open]
    if len(chosen) != len(kernel.names):
        message = f"kernel `{kernel.name}` has {len(kernel.names)} parameters, not {len(chosen)}"
        raise KernelValueError.of(message, "count", span=kernel.span)
    stated: list[AnyType | None] = []
    for type, is_open in zip(chosen, kernel.open, strict=True):
        is_known = not is_open or isinstance(type, Array | StructArray | Struct)
        stated.append((type if is_open else None) if is_known else value_type(type))
    return stated
