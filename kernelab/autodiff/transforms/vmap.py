"""The transform `vmap`: one call of a function for many lanes.

Splits the arguments into lanes, and joins the lanes of what the function returns.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelab.autodiff.records.adjoint_buffers import fresh
from kernelab.autodiff.transforms.base_level import current
from kernelab.autodiff.transforms.batch_level import Batch
from kernelab.autodiff.transforms.rows_and_columns import chunks
from kernelab.autodiff.transforms.transforms import Function, call
from kernelab.autodiff.transforms.trees import argument_name, leaves, rebuilt, with_all_fields
from kernelab.errors import GradientError, a_thing, name_of
from kernelab.runtime.array.array import array
from kernelab.runtime.array.layout import is_integer
from kernelab.runtime.context.recorder import refusal
from kernelab.runtime.host.structarray import structarray
from kernelab.runtime.launch.footprint import part


def lanes_of(func: Function, args: Sequence[Any], in_dims: Any) -> tuple[list[int | None], int]:
    """The axis of each argument that counts lanes, and how many lanes there are."""
    dims = list(in_dims) if isinstance(in_dims, tuple | list) else [in_dims] * len(args)
    if len(dims) != len(args):
        message = f"in_dims has {len(dims)} entries for the {len(args)} arguments of {name_of(func)}"
        raise refusal(GradientError, message, "in_dims")
    counts: dict[str, int] = {}
    for i, (arg, dim) in enumerate(zip(args, dims, strict=True)):
        if dim is not None:
            name = argument_name(func, i)
            dims[i] = _lane_axis(func, name, arg, dim)
            counts[name] = arg.shape[dims[i]]
    if empty := [name for name, count in counts.items() if not count]:
        message = f"argument {empty[0]} of {name_of(func)} has no lanes: the axis that counts them is empty"
        raise refusal(GradientError, message, "in_dims", "call vmap where there is at least one lane")
    if len(set(counts.values())) != 1:
        sizes = ", ".join(f"{name} has {size}" for name, size in counts.items()) or "no argument has any"
        raise refusal(GradientError, f"vmap needs the same number of lanes everywhere: {sizes}", "in_dims")
    return dims, next(iter(counts.values()))


def _lane_axis(func: Function, name: str, arg: Any, dim: Any) -> int:
    """The axis that counts the lanes of one argument; GradientError where `dim` names none."""
    if not is_integer(dim):
        message = f"in_dims says {dim!r} for argument {name}, which is not an axis"
        raise refusal(GradientError, message, "in_dims", "pass a whole number, or None for no lanes")
    if isinstance(arg, structarray):
        message = f"argument {name} of {name_of(func)} is an array of structs, which has no lanes"
        hint = 'take its fields as arguments, and pass ps["mass"] and the rest'
        raise refusal(GradientError, message, "in_dims", hint)
    if not isinstance(arg, array):
        message = f"argument {name} of {name_of(func)} is {a_thing(arg)}: it has no lanes"
        hint = "say None for it in in_dims=(0, None, ...) where all lanes share it"
        hint = f"make an array of it: kl.array(...), or {hint}" if isinstance(arg, np.ndarray) else hint
        raise refusal(GradientError, message, "in_dims", hint)
    if not -arg.ndim <= dim < arg.ndim:
        axes = f"{arg.ndim} {'axis' if arg.ndim == 1 else 'axes'}"
        message = f"in_dims says axis {dim} for argument {name}, which has {axes}"
        raise refusal(GradientError, message, "in_dims", "axes are counted from 0")
    return int(dim % arg.ndim)


def map_lanes(
    func: Function, args: Sequence[Any], in_dims: Any, out_dims: Any, randomness: str, chunk_size: int | None
) -> Any:
    """Run a function once for many lanes, and join the lanes of what it returns."""
    dims, lanes = lanes_of(func, args, in_dims)
    parent = current()
    parent.warn_of_constants([arg for arg, dim in zip(args, dims, strict=True) if dim is not None])
    result: Any = None
    whole: list[array] = []
    for chunk in [range(lanes)] if chunk_size is None else chunks(lanes, chunk_size, 1):
        level = Batch(parent, len(chunk), randomness, chunk.start, "vmap")
        with level.active():
            arguments = [
                arg if dim is None else level.split(_slice(arg, dim, chunk), dim)
                for arg, dim in zip(args, dims, strict=True)
            ]
            result = with_all_fields(call(func, arguments, False)[0])
        outputs = leaves(result, func)
        whole = whole or [fresh((lanes, *out.shape), out.dtype, out) for out in outputs]
        for joined, out in zip(whole, outputs, strict=True):
            parent.move(_slice(joined, 0, chunk), level.view(out))
        level.end()
    axes = zip(whole, _out_axes(func, whole, out_dims), strict=True)
    return rebuilt(result, iter([_with_first_at(joined, dim % joined.ndim) for joined, dim in axes]))


def _out_axes(func: Function, whole: Sequence[array], out_dims: Any) -> list[int]:
    """The position of the batch axis in each result; GradientError where `out_dims` does not say so."""
    axes = list(out_dims) if isinstance(out_dims, tuple | list) else [out_dims] * len(whole)
    if len(axes) != len(whole):
        message = f"out_dims has {len(axes)} entries for the {len(whole)} arrays that {name_of(func)} returns"
        raise refusal(GradientError, message, "out_dims")
    for dim, joined in zip(axes, whole, strict=True):
        if not is_integer(dim) or not -joined.ndim <= dim < joined.ndim:
            message = (
                f"out_dims says {dim!r} for a result that has {joined.ndim} axes, that of the lanes included"
            )
            raise refusal(GradientError, message, "out_dims", f"pass {-joined.ndim} to {joined.ndim - 1}")
    return axes


def _with_first_at(elements: array, axis: int) -> array:
    """A view of an array in which its first axis has another place."""
    order = list(range(1, elements.ndim))
    order.insert(axis, 0)
    return elements.transpose(order)


def _slice(elements: array, axis: int, chunk: range) -> array:
    box = [(0, extent, 1) for extent in elements.shape]
    box[axis] = chunk.start, len(chunk), 1
    return part(elements, tuple(box))
