"""Jacobians of Python functions: rows by reverse mode and columns by forward mode, many at a time."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kernelab.autodiff.records.adjoint_buffers import fresh, scalars
from kernelab.autodiff.transforms.base_level import current
from kernelab.autodiff.transforms.batch_level import Batch
from kernelab.autodiff.transforms.transforms import Function, Recorded, push
from kernelab.autodiff.transforms.trees import (
    is_struct,
    leaves,
    lines,
    mapped,
    number_count,
    parts,
    rebuilt,
    scalar_shape,
    shaped,
)
from kernelab.errors import GradientError, name_of
from kernelab.hooks import steps
from kernelab.lang.rounding import alike
from kernelab.lang.types import is_differentiable, scalar_of
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import HostArray
from kernelab.runtime.context.recorder import refusal
from kernelab.runtime.launch.footprint import lane_of

CHUNK_BYTES = 1 << 28
"""How much memory the lanes of one chunk may take, unless `chunk_size` is given."""

_ROUNDING = {2: 0.1, 4: 3e-4, 8: 1e-8}
"""How far two runs of one program may be apart, as a share of its largest result, by the bytes of a float."""


def rows(recorded: Recorded, chunk_size: int | None = None) -> list[list[array]]:
    """For each output the Jacobian with respect to each input, outputs' axes first, by adjoints."""
    _require_float_outputs(recorded.func, recorded.outputs)
    return [[*_rows(recorded, k, chunk_size)] for k in range(len(recorded.outputs))]


def _rows(recorded: Recorded, k: int, chunk_size: int | None) -> Iterator[array]:
    output, inputs, parent = recorded.outputs[k], recorded.inputs, current()
    shape = scalar_shape(output)
    count = number_count(output)
    scalar = scalar_of(output.dtype)
    matrices = [fresh((count, number_count(source)), scalar_of(source.dtype), source) for source in inputs]
    stretches = chunks(count, chunk_size, sum(source.allocation.nbytes for source in inputs))
    for chunk in steps("rows of the Jacobian", stretches):
        seeds: list[array | None] = [None] * len(recorded.outputs)
        batch = None if len(chunk) == count == 1 else Batch(parent, len(chunk))
        values = unit_vectors(chunk, count, scalar.dtype)
        if batch is not None:
            seeds[k] = batch.seeds(output, values)
        else:
            seed = seeds[k] = fresh(output.shape, output.dtype, output)
            seed.host()[...] = values.reshape(seed.host().shape)
        for matrix, source, bar in zip(matrices, inputs, recorded.pull(batch or parent, seeds), strict=True):
            across = lines(matrix, 0, chunk.start, len(chunk), scalar_shape(source))
            view = (
                batch.view(bar)
                if batch is not None
                else array.over(bar.allocation, bar.offset, (1, *bar.shape), (0, *bar.strides), bar.dtype)
            )
            parent.move(across, scalars(view))
    for matrix, source in zip(matrices, inputs, strict=True):
        yield shaped(matrix, (*shape, *scalar_shape(source)))


def columns(
    func: Function,
    args: Sequence[Any],
    chosen: Sequence[int],
    has_aux: bool,
    chunk_size: int | None,
    randomness: str,
    asked: str,
) -> tuple[Any, list[list[array]], Any]:
    """Call a function: its result, each output's Jacobian with respect to each input, and the rest.

    `asked` is the name of the transform that the user called.
    """
    parent = current()
    matrices: dict[int, list[array]] = {}
    result: Any = None
    aux: Any = None
    held: list[HostArray] = []
    filled = [i for i in chosen if number_count(args[i])]
    for i in filled:
        source, count = args[i], number_count(args[i])
        blocks: list[array] = []
        stretches = chunks(count, chunk_size, 2 * source.allocation.nbytes)
        for chunk in steps("columns of the Jacobian", stretches):
            level = Batch(parent, len(chunk), randomness, chunk.start, asked)
            is_last = i == filled[-1] and chunk.stop == count
            level.outside = None if is_last else {}
            level.dependent = {args[j].allocation for j in filled}
            level.host_inputs = [] if held or not is_last else None
            with level.active():
                dot = level.seeds(source, unit_vectors(chunk, count, scalar_of(source.dtype).dtype))
                value, dots, extra = push(func, args, [i], [dot], has_aux)
            outputs = leaves(value, func)
            _require_float_outputs(func, outputs)
            if level.host_inputs is not None:
                values = [*(level.first(out).seen().copy() for out in outputs), *level.host_inputs]
                held = held or values
                _require_alike(func, held, values)
            blocks = blocks or [
                fresh((number_count(out), count), scalar_of(out.dtype), out) for out in outputs
            ]
            for matrix, out, out_dot in zip(blocks, outputs, dots, strict=True):
                down = lines(matrix, 1, chunk.start, len(chunk), scalar_shape(out))
                parent.move(down, scalars(level.view(out_dot)))
            if result is None:
                result, aux = _first_lane(level, value), _first_lane(level, extra)
            level.leave(undo=not is_last)
        matrices[i] = blocks
    rows = [
        [_block(out, args[i], matrices[i][k] if i in matrices else None) for i in chosen]
        for k, out in enumerate(leaves(result, func))
    ]
    return result, rows, aux


def _block(output: array, source: array, matrix: array | None) -> array:
    """A block of a Jacobian in the shape of output and input; None stands for one without columns."""
    if matrix is None:
        matrix = fresh((number_count(output), 0), scalar_of(output.dtype), output)
    return shaped(matrix, (*scalar_shape(output), *scalar_shape(source)))


def _require_alike(func: Function, held: Sequence[HostArray], values: Sequence[HostArray]) -> None:
    """Raise GradientError where a function that runs for some columns is not what it was for the others."""
    if len(held) != len(values) or not all(map(_are_alike, held, values)):
        message = f"{name_of(func)} ran once more for other columns, and did something else than before"
        hint = (
            "draw random numbers, and count, outside of it, and pass them as arguments; jacrev runs it once"
        )
        raise refusal(GradientError, message, "result", hint)


def _are_alike(one: HostArray, other: HostArray) -> bool:
    """Whether values are the same but for rounding: sums may be taken in another order."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype.kind in "biu" or one.dtype.names:
        return bool((one == other).all())
    return bool(alike(one, other, _ROUNDING[one.dtype.itemsize]).all())


def _first_lane(level: Batch, value: Any) -> Any:
    """A result with the arrays of the first lane; in all else the lanes of tangents agree."""

    def first(part: Any) -> Any:
        if is_struct(part):
            return rebuilt(part, iter([first(field) for field in parts(part)]))
        if not isinstance(part, array) or part.allocation not in level.wide:
            return part
        return level.parent.copy(lane_of(level.view(part), 0))

    return mapped(value, first)


def _require_float_outputs(func: Function, outputs: Sequence[array]) -> None:
    for k, output in enumerate(outputs):
        if not is_differentiable(output.dtype):
            message = f"output {k} of {name_of(func)} is an array of {output.dtype}, which has no derivative"
            raise refusal(
                GradientError, message, "result", "return arrays of floats only; has_aux=True for the rest"
            )


def unit_vectors(chunk: Sequence[int] | np.ndarray[Any, Any], count: int, dtype: Any) -> np.ndarray[Any, Any]:
    """Some rows of the identity."""
    values = np.zeros((len(chunk), count), dtype)
    values[np.arange(len(chunk)), chunk] = 1
    return values


def chunks(count: int, size: int | None, nbytes: int) -> list[range]:
    """0 to `count` in stretches: of `size` if given, else so that lanes of `nbytes` fit into memory."""
    step = size if size is not None else max(1, CHUNK_BYTES // max(nbytes, 1))
    return [range(start, min(count, start + step)) for start in range(0, count, step)]
