"""The parameters of a kernel as the user wrote them: structs among the arguments, flattened into leaves.

Behind this module launches and tapes know leaves only.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kernelab.errors import Diagnostic, LaunchError, Span, a_thing, type_name
from kernelab.frontend.definitions.kernels import Formal
from kernelab.lang.structs import Struct, StructArray, difference, layout, leaves
from kernelab.runtime.array.array import array
from kernelab.runtime.host.struct_instances import Instance
from kernelab.runtime.host.structarray import structarray
from kernelab.runtime.memory.device import CPU
from kernelab.runtime.memory.interop import array_type

Formals = tuple[Formal, ...]


def formals_of(signature: Formals) -> Formals | None:
    """The parameters, None if none of them is a struct."""
    return signature if any(isinstance(formal.type, Struct | StructArray) for formal in signature) else None


def flattened(kernel: str, span: Span, formals: Formals, arguments: Sequence[Any]) -> list[Any]:
    """The arguments with the leaves of each struct in its place; raises LaunchError."""
    if len(arguments) != len(formals):
        raise _wrong_count(kernel, span, formals, len(arguments))
    return [
        part
        for formal, argument in zip(formals, arguments, strict=True)
        for part in _parts(kernel, formal, argument)
    ]


def flattened_adjoints(formals: Formals, given: Sequence[Any]) -> list[Any]:
    """The adjoints given for some of the parameters, by leaves; None for those that are not given."""
    found: list[Any] = []
    for k, formal in enumerate(formals):
        bar = given[k] if k < len(given) else None
        count = len(list(leaves(formal.type, formal.name)))
        if isinstance(bar, structarray):
            found += bar.leaves
        elif isinstance(bar, Instance):
            found += [part if isinstance(part, array) else None for part in bar._leaves()]
        else:
            found += [bar] * (count if bar is None else 1)
    return found


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
            found = _borrowed(argument, elem)
            if found is None or found.dtype != elem or found.ndim != ndim:
                plural = "1 dimension" if ndim == 1 else f"{ndim} dimensions"
                raise _wrong(kernel, formal, argument, f"an array of {elem} with {plural}")
            return found.leaves
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
    found, hint = _found(argument, formal.type)
    if hint == AGAIN:
        hint = hint.format(kernel)
    message = f"argument `{formal.name}` of kernel `{kernel}` expects {wanted}, not {found}"
    note = f"{formal.name}: {formal.type}"
    return LaunchError(Diagnostic(message, formal.span, "struct", note=note, hint=hint))


AGAIN = "run the cell of `{0}` again to compile it for the new definition, or make the struct anew"


def _found(argument: Any, wanted: Any) -> tuple[str, str]:
    struct = wanted.elem if isinstance(wanted, StructArray) else wanted
    given: Any = None
    if isinstance(argument, Instance):
        given = argument._struct
        found = f"a {given}"
    elif isinstance(argument, array):
        given = argument.dtype
        found = f"an {array_type(given, argument.ndim)}"
    elif isinstance(argument, type) and isinstance(getattr(argument, "__kernelab_struct__", None), Struct):
        return f"the struct {argument.__name__} itself", f"make one: {argument.__name__}()"
    elif isinstance(argument, np.ndarray):
        return f"a NumPy array of {argument.dtype}", f"make it with kl.zeros(n, dtype={struct}).numpy()"
    else:
        shown = f"the {type_name(argument)} {argument}" if isinstance(argument, int | float) else None
        return shown or f"{a_thing(argument)}", f"make it with {struct}()"
    if isinstance(given, Struct) and given.name == struct.name and given != struct:
        return f"{found} of another definition: {difference(struct, given)}", AGAIN
    return found, ""


def _wrong_count(kernel: str, span: Span, formals: Formals, given: int) -> LaunchError:
    signature = ", ".join(f"{formal.name}: {formal.type}" for formal in formals)
    arguments = "1 argument" if len(formals) == 1 else f"{len(formals)} arguments"
    message = f"kernel `{kernel}` takes {arguments}, not {given}"
    if given < len(formals):
        message += f"; `{formals[given].name}` is missing"
    return LaunchError(Diagnostic(message, span, "count", hint=f"its signature is {kernel}({signature})"))
