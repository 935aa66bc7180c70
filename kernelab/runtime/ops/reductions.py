"""Sums, inner and matrix products, casts and scans of arrays.

Sums are one launch each, two with the clearing of the result, and so recorded and differentiated as any
launch is.
"""

import math
from collections.abc import Sequence
from typing import Any

from kernelab import hooks
from kernelab.errors import KernelTypeError, KernelValueError
from kernelab.lang.structs import Struct
from kernelab.lang.types import (
    Array,
    Scalar,
    Value,
    bool_,
    float32,
    float64,
    int64,
    scalar_of,
    shape_of,
    uint64,
    wide,
    with_scalar,
)
from kernelab.runtime.array.array import array, duplicate, require_array
from kernelab.runtime.context.conversion import described, is_whole
from kernelab.runtime.context.recorder import refusal
from kernelab.runtime.host.create import zeros
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.texts import kernels_of
from kernelab.runtime.launch.launch import launch, run
from kernelab.runtime.memory.device import Device
from kernelab.runtime.ops.elementwise import apply, cast_function, component_indices
from kernelab.runtime.ops.operands import arrays_of, foreign_of, goes_through, made_once, of_foreign, plain

BLOCK = 1024
"""How many elements a thread adds up by itself: of a float32 sum fewer digits are lost than one by one."""

_SUM = """
def array_sum(values: {array}[T], out: array[O]):
    {threads} = tid()
    first = block * BLOCK
    total = W(0)
    for k in range(first, min(first + BLOCK, values.shape[{axis}])):
        total += W(values[{row}k])
    atomic_add(out, {to}, O(total))
"""

_INNER = """
def array_inner(a: {array}[T], b: {array}[T], out: array[O]):
    {threads} = tid()
    first = block * BLOCK
    total = Z(0)
    for k in range(first, min(first + BLOCK, a.shape[{axis}])):
        total += inner(W(a[{row}k]), W(b[{row}k]))
    atomic_add(out, {to}, O(total))

def inner(x, y):
    return {product}
"""

_ONE = {"array": "array", "threads": "block", "row": "", "axis": "0", "to": "0"}
_ROWS = {"array": "array2d", "threads": "row, block", "row": "row, ", "axis": "1", "to": "row"}

_EXTREMUM = """
def array_{name}(values: {array}[T], out: {array}[T]):
    {threads} = tid()
    first = block * BLOCK
    best = values[{row}first]
    for k in range(first + 1, min(first + BLOCK, values.shape[{axis}])):
        best = better(best, values[{row}k])
    out[{row}block] = best

def better(x, y):
    return {better}
"""

# A NaN stays, as in NumPy; of equal numbers the first has the gradient.
_BETTER = {"max": "y if y > x or y != y else x", "min": "y if y < x or y != y else x"}

_MATMUL = """
def array_matmul(a: {array}[T], b: {array}[T], out: {array}[T]):
    {batch}i, j = tid()
    total = W(0)
    for k in range(a.shape[{last}]):
        total += W(a[{of_a}i, k]) * W(b[{of_b}k, j])
    out[{batch}i, j] = T(total)
"""

# The running total of an element is a float64, in vector code too, which has no other float64s.
_MATMUL_32 = """
def array_matmul(a: {array}[T], b: {array}[T], out: {array}[T]):
    {batch}i, j = tid()
    for k in range(a.shape[{last}]):
        out[{batch}i, j] += a[{of_a}i, k] * b[{of_b}k, j]
"""

_SCAN = """
def array_scan(values: array[T], out: array[T]):
    total = W(values[0])
    out[0] = T(total)
    for k in range(1, values.shape[0]):
        total += W(values[k])
        out[k] = T(total)
"""

_EXCLUSIVE_SCAN = """
def array_scan(values: array[T], out: array[T]):
    total = W(0)
    for k in range(values.shape[0]):
        out[k] = T(total)
        total += W(values[k])
"""


def array_sum(
    values: array, out: array | None = None, value_count: int | None = None, axis: int | None = None
) -> Any:
    """The sum of all elements, or along one axis, which then has the extent 1.

    Into `out`, an array of one element (with `axis`, of the shape that remains), a tape differentiates it.
    Without `out` the sum of all is a number or a NumPy vector, which no gradient flows through, and the
    sum along an axis a new array.  `value_count` takes the first elements only, along the axis where one is
    given.  Raises KernelTypeError or KernelValueError where `out` does not fit.
    """
    values = plain(values)
    _require_numbers(values)
    summed = total(_first(values, value_count, axis), axis, out, axis is not None, is_mean=False)
    return _value(summed) if out is None and axis is None else summed


@hooks.total.provide
def total(values: array, axis: int | None, out: array | None, keepdims: bool, is_mean: bool) -> array:
    """The sum or the mean as an array that a tape differentiates: of one element, or without one axis.

    With `keepdims` these axes have length 1.
    """
    values = plain(values)
    _require_numbers(values)
    rows, shape = _rows(values, axis)[0], _reduced(values, axis, keepdims)
    elem = _added_in(values.dtype, out)
    if is_mean:  # the sums of halves and of integers overflow
        is_float = scalar_of(values.dtype).is_float
        elem = wide(values.dtype) if is_float else with_scalar(values.dtype, float64)
    target = _target(None if is_mean else out, shape, elem, values.requires_grad, values.device)
    _accumulate(_SUM, [rows], target, is_new=is_mean or out is None)
    if not is_mean:
        return target
    mean: array = target / (values.size // max(target.size, 1))
    if elem != (wanted := _mean_of(values.dtype)):
        mean = convert(mean, wanted)
    return mean if out is None else _target(out, shape, mean.dtype, False, mean.device).assign(mean)


@hooks.extremum.provide
def extremum(values: array, axis: int | None, keepdims: bool, name: str) -> array:
    """The largest or the smallest element, `name` is "max" or "min", in the shapes of `total`.

    Of vectors and matrices it is that of each component.
    """
    values = plain(values)
    _require_numbers(values, f"no {name}")
    if not values.size:
        raise KernelValueError.of(f"an array without elements has no {name}", "size")
    rows, _ = _rows(values, axis)
    better = _BETTER[name] if isinstance(rows.dtype, Scalar) else f"{name}(x, y)"
    kernel = _compiled(_EXTREMUM.replace("{name}", name).replace("{better}", better), rows.type)
    while True:
        *outer, length = rows.shape
        best = _target(None, (*outer, -(-length // BLOCK)), rows.dtype, rows.requires_grad, rows.device)
        launch(kernel, best.shape, [rows, best])
        if best.shape[-1] == 1:
            return best.reshape(_reduced(values, axis, keepdims))
        rows = best


@hooks.matmul.provide
def matmul(left: Any, right: Any) -> Any:
    """``left @ right``: the product of matrices and vectors, of NumPy too, as a launch.

    Raises KernelTypeError for elements other than numbers of one type, KernelValueError for other shapes.
    """
    foreign = foreign_of((left, right))
    if not all(map(goes_through, (left := plain(left), right := plain(right)))):
        message = f"@ multiplies arrays, not {described(right if isinstance(left, array) else left)}"
        raise refusal(KernelTypeError, message, "operator", "write * for a number")
    a, b = arrays_of((left, right))
    if a.dtype != b.dtype or not isinstance(a.dtype, Scalar) or a.dtype == bool_:
        message = f"@ multiplies numbers of one type, not {a.dtype} by {b.dtype}"
        hint = "element by element write a * b for matrices, kl.dot(a, b) for vectors"
        if isinstance(a.dtype, Scalar) and isinstance(b.dtype, Scalar):
            wider = max((a.dtype, b.dtype), key=lambda type: (type.is_float, type.bits))
            other = a.dtype if b.dtype == wider else b.dtype
            hint = f"convert the {other}: x.astype(kl.{float32 if wider == bool_ else wider})"
            if foreign is not None:
                hint = of_foreign(foreign, (a.dtype, b.dtype))
        raise refusal(KernelTypeError, message, "type", hint)
    rank = max(a.ndim, b.ndim, 2)
    rows, columns = a[None] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
    rows, columns = (x if x.ndim == rank else x[(None,) * (rank - x.ndim)] for x in (rows, columns))
    pairs = list(zip(rows.shape[:-2], columns.shape[:-2], strict=True))
    if rows.shape[-1] != columns.shape[-2] or any(m != n and 1 not in (m, n) for m, n in pairs):
        message = f"@ does not go together with shapes {a.shape} and {b.shape}"
        hint = "the last axis of the left is as long as the last but one of the right, or its only one"
        hint += "; axes before these are as long on both sides, or 1" * bool(pairs)
        raise refusal(KernelValueError, message, "shape", hint)
    if a.ndim == b.ndim == 1:
        return array_inner(a, b, _target(None, (1,), a.dtype, a.requires_grad or b.requires_grad, a.device))
    place = next((x.device for x in (a, b) if x.device.is_cuda), a.device)
    traced = (a.requires_grad or b.requires_grad) and a.dtype.is_float
    batch = tuple(n if m == 1 else m for m, n in pairs)
    whole = *batch, rows.shape[-2], columns.shape[-1]
    out = array(shape=whole, dtype=a.dtype, device=place, requires_grad=traced)
    if out.size:
        text = _MATMUL_32 if a.dtype == float32 else _MATMUL
        run(_compiled(text, rows.type), out.shape, [rows, columns, out])
    shape = batch + a.shape[-2:-1] * (a.ndim > 1) + b.shape[-1:] * (b.ndim > 1)
    return out if out.shape == shape else out.reshape(shape or (1,))


def _batched(rank: int) -> dict[str, str]:
    """What the product's text has for axes in front of those of the matrices; one of length 1 repeats."""
    axes = [*enumerate("pq"[: rank - 2])]
    of = {name: "".join(f"min({q}, {name}.shape[{n}] - 1), " for n, q in axes) for name in "ab"}
    batch = "".join(f"{q}, " for _, q in axes)
    return {"array": f"array{rank}d", "last": str(rank - 1), "batch": batch, "of_a": of["a"], "of_b": of["b"]}


@hooks.convert.provide
def convert(values: array, dtype: Any) -> array:
    """A copy with another dtype; a tape differentiates through it between floats."""
    result = array(shape=values.shape, dtype=dtype, device=values.device)
    result.requires_grad = values.requires_grad and scalar_of(result.dtype).is_float
    array_cast(values, result)
    return result


def array_inner(
    a: array, b: array, out: array | None = None, count: int | None = None, axis: int | None = None
) -> Any:
    """The sum of the products of elements (of vectors and matrices, of their components), as `array_sum`."""
    a, b = plain(a), plain(b)
    _require_alike(a, b)
    _require_numbers(a)
    a, b = _first(a, count, axis), _first(b, count, axis)
    (left, shape), (right, _) = _rows(a, axis), _rows(b, axis)
    traced = a.requires_grad or b.requires_grad
    target = _target(out, shape, _added_in(scalar_of(a.dtype), out), traced, a.device)
    _accumulate(_INNER, [left, right], target, is_new=out is None)
    return _value(target) if out is None and axis is None else target


def array_scan(in_array: array, out_array: array, inclusive: bool = True) -> None:
    """The running sums of a one-dimensional array; without `inclusive`, of the elements before each one.

    Both have the same length and dtype; a tape differentiates through it.  Raises KernelTypeError for others.
    """
    in_array = plain(in_array)
    _require_alike(in_array, out_array)
    _refuse_structs(in_array, "have no sums", "scan")
    if in_array.ndim != 1:
        message = f"a scan goes along one dimension, and the array has {in_array.ndim}"
        raise KernelTypeError.of(message, "ndim", "write x.flatten()")
    if in_array.overlaps(out_array):
        in_array = duplicate(in_array, in_array.requires_grad, "clone")
    if in_array.size:
        run(_compiled(_SCAN if inclusive else _EXCLUSIVE_SCAN, in_array.type), 1, [in_array, out_array])


def array_cast(in_array: array, out_array: array, count: int | None = None) -> None:
    """Convert the elements of one array to the scalar type of another; `count` takes the first ones only.

    Arrays of other shapes, or whose elements have, are taken number by number, in the order of memory.  A
    tape differentiates through it, between floats.  Raises KernelValueError where the numbers do not fill the
    other array, and no `count` says how many are meant.
    """
    source, target = plain(in_array), out_array
    for values in (source, target):
        require_array(values, "array_cast takes")
        _refuse_structs(values, "cannot be cast", "cast")
    if source.ndim != target.ndim or shape_of(source.dtype) != shape_of(target.dtype):
        count = None if count is None else count * math.prod(shape_of(source.dtype))
        source, target = source.contiguous(), target.view(scalar_of(target.dtype)).flatten()
        source = source.view(scalar_of(source.dtype)).flatten()
        if count is None and source.size != target.size:
            message = f"{source.size} numbers cannot be cast into an array that has room for {target.size}"
            raise KernelValueError.of(message, "count", "say how many elements: count=...")
    if count is not None:
        source, target = _first(source, count), _first(target.flatten(), count)
    apply("array_cast", cast_function(target.dtype), [source], (target,))


# ------------------------------------------------------------------------------------------ parts


def _accumulate(text: str, inputs: Sequence[array], target: array, is_new: bool) -> None:
    if not is_new and any(source.overlaps(target) for source in inputs):
        inputs = [duplicate(source, source.requires_grad, "clone") for source in inputs]
    flat = target if target.ndim == 1 else target.flatten()
    if not is_new:
        flat.zero_()
    *rows, length = inputs[0].shape
    blocks = max(-(-length // BLOCK), 1)  # a sum of no elements is computed, too: its gradient is zero
    launch(_compiled(text, inputs[0].type, target.dtype), (*rows, blocks), inputs, [flat])


def _rows(values: array, axis: int | None) -> tuple[array, tuple[int, ...]]:
    """The elements in one row, or in rows, that are to be added up, and the shape of the sums."""
    if axis is None:
        return values if values.ndim == 1 else values.contiguous().flatten(), (1,)
    axis = _axis(values, axis)
    shape = tuple(1 if k == axis else n for k, n in enumerate(values.shape))
    if values.ndim == 1:
        return values, shape
    last = values.transpose([*(k for k in range(values.ndim) if k != axis), axis])
    rows = math.prod(last.shape[:-1])
    return last if last.ndim == 2 else last.contiguous().reshape(rows, last.shape[-1]), shape


def _reduced(values: array, axis: int | None, keepdims: bool) -> tuple[int, ...]:
    """The shape of what a reduction gives: of one element, or without one axis, which may keep length 1."""
    if axis is None:
        return (1,) * (values.ndim if keepdims else 1)
    axis = _axis(values, axis)
    kept = keepdims or values.ndim == 1
    return tuple(1 if k == axis else n for k, n in enumerate(values.shape) if kept or k != axis)


def _first(values: array, count: int | None, axis: int | None = None) -> array:
    """The first elements, all of them for None: of the array in one row, or along an axis."""
    if axis is not None:
        axis = _axis(values, axis)
    if count is None:
        return values
    extent = values.size if axis is None else values.shape[axis]
    if not is_whole(count) or not 0 <= count <= extent:
        along = "" if axis is None else f" along axis {axis}"
        message = f"an array of shape {values.shape} has no first {count} elements{along}"
        raise KernelValueError.of(message, "count")
    if axis is None:
        row = values if values.ndim == 1 else values.contiguous().flatten()
        part: array = row[:count]
    else:
        part = values[(slice(None),) * axis + (slice(count),)]
    return part


def _require_numbers(values: array, lack: str = "no sum") -> None:
    require_array(values, "a reduction takes")
    _refuse_structs(values, f"have {lack}", "reduce")
    if scalar_of(values.dtype) == bool_:
        hint = "count what is true: x.astype(int) makes numbers of them"
        raise KernelTypeError.of(f"truth values have {lack}", "dtype", hint)


def _refuse_structs(values: array, why: str, instead: str) -> None:
    elem: Any = values.dtype
    if isinstance(elem, Struct):
        hint = f"{instead} the array of a field: x['{elem.fields[0].name}']"
        raise KernelTypeError.of(f"elements of {elem} {why}", "struct", hint)


def _axis(values: array, axis: int) -> int:
    if not is_whole(axis) or not -values.ndim <= axis < values.ndim:
        message = f"there is no axis {axis!r} of an array of shape {values.shape}"
        hint = f"the axes are 0 to {values.ndim - 1}, or none for the sum of all"
        raise KernelValueError.of(message, "axis", hint)
    return axis % values.ndim


def _target(out: array | None, shape: tuple[int, ...], elem: Value, traced: bool, place: Device) -> array:
    if out is None:
        return zeros(shape, elem, place, traced and scalar_of(elem).is_float)
    require_array(out, "out is")
    if out.dtype != elem or out.shape != shape:
        message = f"the result is {elem} of shape {shape}, and out is {out.dtype} of shape {out.shape}"
        raise KernelTypeError.of(message, "out", f"make it with kl.zeros({shape}, dtype=kl.{elem})")
    if not out.is_contiguous:
        raise KernelValueError.of("out has to be contiguous", "out", "write into a new array, then copy it")
    return out


def _value(target: array) -> Any:
    (value,) = target.list()
    return value


def _require_alike(a: array, b: array) -> None:
    require_array(a, "the first argument is")
    require_array(b, "the second argument is")
    if a.shape != b.shape or a.dtype != b.dtype:
        message = f"{a.dtype} of shape {a.shape} and {b.dtype} of shape {b.shape} do not go together"
        raise KernelTypeError.of(message, "shape", "both have to have the same shape and dtype")


@made_once(256)
def _compiled(text: str, rows: Array, out: Value | None = None) -> Kernel:
    elem = rows.elem
    words = (
        _batched(max(rows.ndim, 2)) if text in (_MATMUL, _MATMUL_32) else _ONE if rows.ndim == 1 else _ROWS
    )
    is_scan = text in (_SCAN, _EXCLUSIVE_SCAN)
    text = text.strip("\n").format(**words, product=_product(elem))
    name = text.partition("(")[0].removeprefix("def ")
    out = out or elem
    total = wide(elem) if scalar_of(out) == scalar_of(elem) else with_scalar(elem, scalar_of(out))
    if is_scan and scalar_of(elem).is_float:  # one sum of all elements, which a float32 does not hold
        total = with_scalar(elem, float64)
    meanings = {"T": elem, "O": out, "W": total, "Z": scalar_of(total), "BLOCK": BLOCK}
    return kernels_of(text, f"<{name}>", meanings)[name]


def _added_in(elem: Value, out: array | None) -> Value:
    """The type of a new array for a sum: of integers that of NumPy's sums, in which bytes do not overflow."""
    scalar = scalar_of(elem)
    if out is not None or scalar.is_float:
        return elem
    return with_scalar(elem, uint64 if scalar.kind == "uint" else int64)


def _mean_of(elem: Value) -> Value:
    """The type of a mean: that of the elements, or what integers give where they are divided."""
    scalar = scalar_of(elem)
    return elem if scalar.is_float else with_scalar(elem, float64 if scalar.bits == 64 else float32)


def _product(elem: Value) -> str:
    if isinstance(elem, Scalar):
        return "x * y"
    return " + ".join(f"x[{index}] * y[{index}]" for index in component_indices(elem))
