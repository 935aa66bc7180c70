"""Trees of arrays in tuples, lists and dicts: the arguments and results of transformed functions.

Also the names by which messages call a function and its arguments.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from kernelab.autodiff.transforms.base_level import current
from kernelab.errors import GradientError, KernelTypeError, a_thing, name_of, shown_type, type_name
from kernelab.host.traced import Traced
from kernelab.lang.structs import placed
from kernelab.lang.types import Mat, Scalar, Vec, bytes_of, is_differentiable, shape_of, size_of
from kernelab.runtime.array.array import array
from kernelab.runtime.array.layout import contiguous_strides, is_integer, is_picked
from kernelab.runtime.context.recorder import refusal, unrecorded
from kernelab.runtime.host.create import zeros
from kernelab.runtime.host.struct_instances import Instance, cleared, held_in
from kernelab.runtime.host.structarray import leaves_of, structarray
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.launch.checked import require_written
from kernelab.runtime.memory.memory import Allocation


def is_struct(value: object) -> bool:
    return isinstance(value, Instance | structarray)


def fields(value: Any) -> Iterator[tuple[str, Any, Any]]:
    """The name, type and value of each field of floats in a struct or an array of structs, in order."""
    if isinstance(value, structarray):
        for leaf, part in zip(placed(value.dtype), value.leaves, strict=True):
            if is_differentiable(leaf.type):
                yield leaf.name, leaf.type, part
        return
    for entry in value.__kernelab_struct__.fields:
        member = held_in(value, entry.name)
        if is_struct(member):
            yield from ((f"{entry.name}.{name}", type, inner) for name, type, inner in fields(member))
        elif _has_floats(entry.type, member):
            yield entry.name, entry.type, member


def _has_floats(type: Any, member: Any) -> bool:
    if isinstance(member, array):
        return bool(member.size) and is_differentiable(member.dtype)
    return isinstance(type, Scalar | Vec | Mat) and is_differentiable(type)


def parts(value: Any) -> list[array]:
    """An array for each field of floats."""
    return [part if isinstance(part, array) else array([part], type, (1,)) for _, type, part in fields(value)]


def assembled(value: Any, floats: Iterator[array], result: Any = None) -> Any:
    """A struct like another whose fields of floats are `floats`; the other fields are those of `result`."""
    if isinstance(value, structarray):
        return _filled(value, floats)
    result = value.copy() if result is None else result
    for entry in value.__kernelab_struct__.fields:
        member = getattr(value, entry.name)
        if is_struct(member):
            setattr(result, entry.name, assembled(member, floats, getattr(result, entry.name)))
        elif _has_floats(entry.type, member):
            setattr(result, entry.name, next(floats))
    return result


def _filled(value: structarray, floats: Iterator[array]) -> Any:
    """An array of structs with memory of its own, into which the given arrays are moved."""
    with unrecorded():
        result = zeros(value.shape, value.dtype, value.device)
    assert isinstance(result, structarray)
    for target, source in zip(result.leaves, value.leaves, strict=True):
        current().move(target, next(floats) if is_differentiable(target.dtype) else source)
    return result


def together(value: Any, items: Iterator[Any]) -> Any:
    """The values for the float fields: a struct if they are like its fields, else a dict by their names."""
    by_name = {name: (type, member, next(items)) for name, type, member in fields(value)}
    values = [part for _, _, part in by_name.values()]
    if not all(_is_like(type, member, part) for type, member, part in by_name.values()):
        return dict(zip(by_name, values, strict=True))
    return assembled(value, iter(values), None if isinstance(value, structarray) else cleared(value))


def _is_like(type: Any, member: Any, part: Any) -> bool:
    shape, dtype = (member.shape, member.dtype) if isinstance(member, array) else ((1,), type)
    return isinstance(part, array) and (part.shape, part.dtype) == (shape, dtype)


# ----------------------------------------------------------------------------------------------------- trees


def argument_name(func: Callable[..., Any], position: int) -> str:
    """The name of an argument of a function in messages."""
    try:
        names = list(inspect.signature(func).parameters)
    except (TypeError, ValueError):
        names = []
    position, field = getattr(func, "__kernelab_parts__", {}).get(position, (position, ""))
    field = f".{field}" if field else ""
    return f"`{names[position]}{field}`" if position < len(names) else f"number {position}{field}"


def leaves(value: Any, func: Callable[..., Any]) -> list[array]:
    """The arrays that a function returned, in order; KernelTypeError where there is anything else."""
    return list(_leaves(value, name_of(func)))


def _leaves(value: Any, func: str, what: str = "") -> Iterator[array]:
    if is_struct(value):
        for name, _, member in fields(value):
            yield from _leaves(member, func, f" as {name}")
    elif isinstance(value, array):
        yield value
    elif isinstance(value, tuple | list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _leaves(part, func, " among its results")
    else:
        raise _no_leaf(value, func, what)


def _no_leaf(value: Any, func: str, what: str) -> Exception:
    kind = f"a {shown_type(value).__module__}.{type_name(value)}".replace("builtins.", "")
    why = "which is data of the host and has no derivative"
    if value is None:
        kind = "None" if what else "nothing"
        why = "which has no derivative" if what else "so there is nothing to differentiate"
    message = f"{func} returned {kind}{what}, {why}"
    hint = "return kernelab arrays that kernels have written, alone or in tuples, lists or dicts"
    if isinstance(value, int | float | np.generic | Traced):
        hint = "return an array: kl.sin(x) in place of np.sin(x) or math.sin(x), y.sum() in place of "
        hint += "y.numpy().sum(), x[0:1] in place of x[0]; or write @kl.func above a def of numbers alone"
    return refusal(KernelTypeError, message, "result", hint)


def with_memory(value: Any) -> Any:
    """The same tree with an array in the place of elements that were picked from another one."""
    return mapped(value, lambda part: part.contiguous() if is_picked(part) else part)


def in_order_of(value: Any, result: Any) -> Any:
    """Cotangents with each dict in the order of that of the result; GradientError where names differ.

    A dict by the names of fields stands for a struct, None for zeros in all that is there.
    """
    if value is None and result is not None:
        return [None for _ in _leaves(result, "")]
    if isinstance(value, dict) and is_struct(result):
        result = {name: part for name, _, part in fields(result)}
    if isinstance(value, dict) or isinstance(result, dict):
        if not isinstance(value, dict) or not isinstance(result, dict) or value.keys() != result.keys():
            raise _other_names(value, result)
        return {name: in_order_of(value[name], part) for name, part in result.items()}
    if not isinstance(value, tuple | list) or not isinstance(result, tuple | list):
        return value
    if getattr(value, "_fields", None) not in (None, getattr(result, "_fields", None)):
        raise _other_names(value, result)
    return [in_order_of(*pair) for pair in zip_longest(value, result[: len(value)])]


def _other_names(value: Any, result: Any) -> Exception:
    message = f"the cotangents are {_with_names(value)} for a result that is {_with_names(result)}"
    return refusal(GradientError, message, "cotangents", "give them in the structure of the result")


def _with_names(value: Any) -> str:
    names = list(value) if isinstance(value, dict) else getattr(value, "_fields", ())
    return f"{a_thing(value)} of {', '.join(map(str, names))}" if names else a_thing(value)


def cotangents_of(value: Any, func: Callable[..., Any]) -> list[array | None]:
    """The arrays in a tree of cotangents, in order, and None where there is none."""
    if isinstance(value, np.ndarray | np.generic | int | float):
        message = f"a cotangent for {name_of(func)} is {a_thing(value)}, not an array of kernelab"
        raise refusal(GradientError, message, "cotangents", "write kl.array(...) around it, with its dtype")
    if is_struct(value):
        return [*parts(value)]
    if not isinstance(value, tuple | list | dict):
        return [None] if value is None else [*leaves(with_memory(value), func)]
    several = value.values() if isinstance(value, dict) else value
    return [leaf for part in several for leaf in cotangents_of(part, func)]


def mapped(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """The same tree with what `leaf` makes of everything in it that is not a tuple, list or dict."""
    if isinstance(value, tuple | list):
        items = [mapped(part, leaf) for part in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: mapped(part, leaf) for key, part in value.items()}
    return leaf(value)


def memories_in(value: Any) -> set[Allocation]:
    """The memory of all arrays in a tree, and in its structs."""
    found: set[Allocation] = set()

    def note(part: Any) -> None:
        some = parts(part) if is_struct(part) else leaves_of(part) if isinstance(part, array) else ()
        found.update(one.allocation for one in some)

    mapped(value, note)
    return found


def with_all_fields(value: Any) -> Any:
    """The same tree with a dict of all fields, integers too, in the place of each array of structs."""

    def by_name(part: Any) -> Any:
        if not isinstance(part, structarray):
            return part
        return {leaf.name: member for leaf, member in zip(placed(part.dtype), part.leaves, strict=True)}

    return mapped(value, by_name)


def rebuilt(value: Any, items: Iterator[Any]) -> Any:
    """The same tree with other leaves; a dict of fields for a struct that they do not fit."""
    return mapped(value, lambda part: together(part, items) if is_struct(part) else next(items))


def chosen_by(func: Callable[..., Any], argnums: int | Sequence[int]) -> tuple[int, ...]:
    """The positions that `argnums` names; raises KernelTypeError for what names none."""
    require_callable(func)
    one = is_integer(argnums)
    chosen: tuple[Any, ...] = (argnums,) if one else tuple(argnums) if isinstance(argnums, Sequence) else ()
    if not chosen or not all(map(is_integer, chosen)):
        message = f"argnums={argnums!r} chooses no argument of {name_of(func)}"
        hint = "pass a position, such as 0, or a tuple of them; the arguments stand behind: grad(f)(x, y)"
        raise refusal(KernelTypeError, message, "argnums", hint)
    return chosen


def positions(func: Callable[..., Any], args: Sequence[Any], argnums: int | Sequence[int]) -> tuple[int, ...]:
    """The arguments to differentiate with respect to; an error names the one that has no derivative."""
    chosen = chosen_by(func, argnums)
    for n in chosen:
        _require_floats(func, args, n, argnums)
    if all(isinstance(args[n], array) and not args[n].size for n in chosen):
        n = chosen[0]
        raise _no_floats(args[n], f"argument {argument_name(func, n % len(args))} of {name_of(func)}")
    places = tuple(n % len(args) for n in chosen)
    twice = next((n for n in places if places.count(n) > 1), None)
    if twice is not None:
        message = (
            f"argnums={argnums!r} chooses argument {argument_name(func, twice)} of {name_of(func)} twice"
        )
        raise refusal(KernelTypeError, message, "argnums", "name each argument once")
    return places


def _require_floats(func: Callable[..., Any], args: Sequence[Any], n: int, argnums: object) -> None:
    if not -len(args) <= n < len(args):
        count = "one argument" if len(args) == 1 else f"{len(args)} arguments"
        message = f"argnums={argnums!r}: {name_of(func)} was called with {count}"
        raise refusal(KernelTypeError, message, "argnums", "arguments are counted from 0")
    value = args[n]
    if is_struct(value):
        has_floats = any(True for _ in fields(value))
    else:
        has_floats = isinstance(value, array) and is_differentiable(value.dtype)
    if not has_floats:
        raise _no_floats(value, f"argument {argument_name(func, n % len(args))} of {name_of(func)}")


def require_callable(func: object) -> None:
    """Raise KernelTypeError for what no transform can differentiate: a kernel, and what cannot be called."""
    if isinstance(func, Kernel):
        message = f"transforms take a Python function, and {func.name} is a kernel"
        hint = f"def f(x): y = kl.zeros_like(x); {func.name}[x.size](x, y); return y"
        raise refusal(KernelTypeError, message, "function", hint)
    if not callable(func):
        message = f"transforms take a Python function, not {a_thing(func)}"
        hint = (
            "pass the function itself, and its arguments behind: kl.func.grad(f)(x), not kl.func.grad(f(x))"
        )
        raise refusal(KernelTypeError, message, "function", hint)


def _no_floats(value: Any, what: str) -> Exception:
    if is_struct(value):
        message = f"{what} has no field of floats to differentiate with respect to"
        return refusal(KernelTypeError, message, "argument")
    if isinstance(value, array) and not value.size:
        message = f"{what} has no elements to differentiate with respect to: its shape is {value.shape}"
        hint = "pass an array with elements, or leave the call out"
        return refusal(KernelTypeError, message, "argument", hint)
    kind = f"an array of {value.dtype}" if isinstance(value, array) else f"{a_thing(value)}"
    message = f"{what} is {kind}: only floats and arrays of floats are differentiated"
    hint = "make an array of it: kl.array(..., dtype=float)"
    if is_integer(value):
        hint = f"where a float is meant, write {value}.0; argnums= chooses other arguments"
    if isinstance(value, dict | list | tuple):
        hint = "pass each array as an argument, with argnums=(0, 1), or a struct of arrays (@kl.struct)"
    if isinstance(value, array):
        hint = "close over indices and counts, as in lambda x: f(x, k); for floats write dtype=float"
    return refusal(KernelTypeError, message, "argument", hint)


def require_like(value: Any, like: Any, what: str) -> None:
    """Raise GradientError unless a value is an array of the shape and dtype of another, or such a struct."""
    if is_struct(like):
        _require_like_struct(value, like, what)
        return
    if not isinstance(value, array):
        hint = "write kl.array(...) around it, with its dtype"
        raise refusal(GradientError, f"{what} is {a_thing(value)}, not an array of kernelab", "shape", hint)
    if value.shape != like.shape or value.dtype != like.dtype:
        message = f"{what} is {value.dtype} {value.shape}, and has to be {like.dtype} {like.shape}"
        raise refusal(GradientError, message, "shape")
    require_written(value, what)


def _require_like_struct(value: Any, like: Any, what: str) -> None:
    if type(value) is not type(like):
        raise refusal(GradientError, f"{what} is {a_thing(value)}, and has to be {a_thing(like)}", "shape")
    names = [name for name, _, _ in fields(like)]
    if names != [name for name, _, _ in fields(value)]:
        message = f"{what} has no array for each of {', '.join(names)}"
        raise refusal(GradientError, message, "shape", "set the arrays in it")
    for name, mine, other in zip(names, parts(value), parts(like), strict=True):
        require_like(mine, other, f"field {name} of {what}")


def scalar_shape(elements: array) -> tuple[int, ...]:
    """The shape of an array with the components of its elements as last axes."""
    return (*elements.shape, *shape_of(elements.dtype))


def number_count(elements: array) -> int:
    """The number of scalars in an array."""
    return elements.size * size_of(elements.dtype)


def lines(matrix: array, axis: int, first: int, count: int, rest: Sequence[int]) -> array:
    """Some rows (axis 0) or columns (axis 1) of a contiguous matrix, with them as the first axis.

    `rest` is the shape that the other side of the matrix stands for.
    """
    step, other = matrix.strides if axis == 0 else matrix.strides[::-1]
    shape, strides = (count, *rest), (step, *contiguous_strides(tuple(rest), other))
    return array.over(matrix.allocation, matrix.offset + first * step, shape, strides, matrix.dtype)


def shaped(matrix: array, shape: Sequence[int]) -> array:
    """A contiguous array seen in another shape of any number of dimensions."""
    strides = contiguous_strides(tuple(shape), bytes_of(matrix.dtype))
    return array.over(matrix.allocation, matrix.offset, tuple(shape), strides, matrix.dtype)
