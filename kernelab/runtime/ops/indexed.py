"""The class `indexedarray`: elements of an array selected along each axis by arrays of indices.

A launch reads them into an array of their own and, where the kernel writes, writes them back: to a tape these
are launches too, so gradients reach the array behind.  Nothing else in the package knows of picked elements.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kernelab import hooks
from kernelab.errors import KernelIndexError, KernelRaceError, KernelTypeError, KernelValueError
from kernelab.hooks import Displayed
from kernelab.host.traced import Origins, traced
from kernelab.lang.structs import Struct
from kernelab.lang.types import int32
from kernelab.runtime.array.array import Gathered, array, duplicate, require_array
from kernelab.runtime.array.array_attributes import Arithmetic, Fixed, Hints, Ranked, array_annotation
from kernelab.runtime.array.indexing import is_indices, keys_of, require_inside
from kernelab.runtime.array.origins import note_copied
from kernelab.runtime.array.transfers import look_at, readable, tabulate, unreadable
from kernelab.runtime.context.conversion import HostArray, described
from kernelab.runtime.context.recorder import ENTERED, RECORDER, name_of_memory, notify_outside_use, refusal
from kernelab.runtime.host.create import unfilled
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.texts import kernels_of
from kernelab.runtime.launch.launch import run
from kernelab.runtime.memory.device import CPU, Device, get_device
from kernelab.runtime.ops.operands import made_once, plain
from kernelab.settings import settings

_TEXT = """
def gather(data: {array}[T], {indices}, out: {array}[T]):
    {threads} = tid()
    out[{threads}] = data[{picked}]

def scatter(data: {array}[T], {indices}, out: {array}[T]):
    {threads} = tid()
    data[{picked}] = out[{threads}]
"""


class indexedarray(Arithmetic, Fixed, Hints, Displayed):  # noqa: N801 (the name users know)
    """Elements of `data` at `indices`: one array of int32 for each axis, or None for the whole axis.

    ``indexedarray(x, [rows, None])`` stands wherever a kernel takes an array of as many dimensions; gradients
    reach `x`.  ``indexedarray(dtype=float)`` and ``indexedarray[float]`` are annotations, and mean what those
    of `array` mean.  Raises KernelTypeError for indices of other types.

    >>> x = kl.array([10.0, 20.0, 30.0])
    >>> kl.map(lambda v: 2.0 * v, kl.indexedarray(x, kl.array([2, 0]))).list()
    [60.0, 20.0]
    """

    __kernelab_name__ = "indexedarray"
    __slots__ = ("_extents", "data", "indices")

    def __new__(
        cls, data: Any = None, indices: Any = None, dtype: Any = None, ndim: int | None = None
    ) -> Any:
        return array_annotation(dtype, ndim or 1) if data is None else super().__new__(cls)

    def __class_getitem__(cls, dtype: Any) -> Any:
        return array_annotation(dtype, 1)

    def __init__(self, data: array, indices: Any = None, dtype: Any = None, ndim: int | None = None) -> None:
        require_array(data, "what is picked from is")
        elem: Any = data.dtype
        if isinstance(elem, Struct):
            message = f"elements of {data.dtype} cannot be picked by indices"
            raise KernelTypeError.of(message, "dtype", "pick from a field: ps['mass']")
        if ndim is not None and ndim != data.ndim:
            raise KernelTypeError.of(f"the array has {data.ndim} dimensions, not {ndim}", "ndim")
        self.data = data
        self.indices = _checked(data, indices)
        self._extents = tuple(
            extent if picked is None else picked.size
            for extent, picked in zip(data.shape, self.indices, strict=True)
        )

    def __repr__(self) -> str:
        return f"indexedarray({self}, shape={self.shape}, dtype={self.dtype}, device={self.device})"

    def __str__(self) -> str:
        behind = (self.data, *(picked for picked in self.indices if picked is not None))
        readable = all(unreadable(each) is None for each in behind)
        return str(self.numpy()) if readable else "<other values in each lane>"

    def __len__(self) -> int:
        return self.shape[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return indexedarray, (self.data, list(self.indices))

    # -------------------------------------------------------------------------------------- what it is

    @property
    def shape(self) -> tuple[int, ...]:
        return self._extents

    @property
    def dtype(self) -> Any:
        return self.data.dtype

    @property
    def ndim(self) -> int:
        return self.data.ndim

    @property
    def type(self) -> Any:
        """The type of arrays that it stands for."""
        return self.data.type

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape))

    @property
    def device(self) -> Device:
        return self.data.device

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements stand in memory in order: nobody knows, so no."""
        return False

    @property
    def requires_grad(self) -> bool:
        """Whether tapes compute a gradient with respect to the array behind."""
        return self.data.requires_grad

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        self.data.requires_grad = wanted

    @property
    def grad(self) -> "indexedarray | None":
        """The gradient of the array behind, at the same indices."""
        gradient = self.data.grad
        return None if gradient is None else indexedarray(gradient, list(self.indices))

    @property
    def repeats(self) -> bool:
        """Whether an element is picked twice, so that it cannot be written by a launch."""
        pairs = zip(self.indices, self.data.shape, strict=True)
        return any(picked is not None and _repeats(picked, extent) for picked, extent in pairs)

    # -------------------------------------------------------------------------------------- elements

    def contiguous(self) -> array:
        """The elements in an array of their own; a tape differentiates through it."""
        copy = unfilled(self.shape, self.dtype, self.device, self.requires_grad)
        self._move("gather", copy)
        return copy

    def __getitem__(self, key: Any) -> Any:
        """An element for integers along all axes, else some of these elements: an `indexedarray` too."""
        return self.data[self._within(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self._within(key)] = value

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def flatten(self) -> array:
        """The elements in one row, in an array of their own."""
        return self.contiguous().flatten()

    def reshape(self, *shape: Any) -> array:
        """The elements in another shape, in an array of their own."""
        return self.contiguous().reshape(*shape)

    def transpose(self, *axes: Any) -> array:
        """The elements with the axes in another order, by default reversed, in an array of their own."""
        return self.contiguous().transpose(*axes)

    @property
    def T(self) -> array:  # noqa: N802 (NumPy's name)
        """The elements with the axes reversed, in an array of their own."""
        return self.transpose()

    def gathered(self) -> Gathered:
        """The same, for a launch."""
        plain = self.contiguous()
        result: Gathered = object.__new__(Gathered)
        result.place(plain.allocation, plain.offset, plain.shape, plain.strides, plain.dtype)
        result.source = self
        return result

    def assign(self, src: Any) -> "indexedarray":
        """Copy the elements of an array, or of host data of this shape, to where these come from."""
        if isinstance(src, indexedarray):
            src = src.contiguous()
        values = src if isinstance(src, array) else array(src, self.dtype, device=self.device)
        if (values.shape, values.dtype) != (self.shape, self.dtype):
            message = (
                f"the picked elements are {self.dtype} {self.shape}, the data {values.dtype} {values.shape}"
            )
            raise KernelValueError.of(message, "shape")
        self._move("scatter", values)
        return self

    def put(self, values: Any) -> None:
        """Assign ``x[indices] = values``, with conversion and broadcasting."""
        if isinstance(values, indexedarray):
            values = values.contiguous()
        if not isinstance(values, array) or (values.shape, values.dtype) != (self.shape, self.dtype):
            wanted = self.requires_grad or getattr(values, "requires_grad", False) is True
            converted = array(shape=self.shape, dtype=self.dtype, device=self.device, requires_grad=wanted)
            converted[...] = values
            values = converted
        self.assign(values)

    def sum(self, axis: int | None = None, *, out: array | None = None, keepdims: bool = False) -> array:
        """The sum of the picked elements, as that of an array."""
        return self.contiguous().sum(axis, out=out, keepdims=keepdims)

    def mean(self, axis: int | None = None, *, out: array | None = None, keepdims: bool = False) -> array:
        """The mean of the picked elements, as that of an array."""
        return self.contiguous().mean(axis, out=out, keepdims=keepdims)

    def max(self, axis: int | None = None, *, keepdims: bool = False) -> array:
        """The largest of the picked elements, as that of an array."""
        return self.contiguous().max(axis, keepdims=keepdims)

    def min(self, axis: int | None = None, *, keepdims: bool = False) -> array:
        """The smallest of the picked elements, as that of an array."""
        return self.contiguous().min(axis, keepdims=keepdims)

    def astype(self, dtype: Any) -> array:
        """The picked elements as an array with another dtype."""
        return self.contiguous().astype(dtype)

    def copy(self) -> array:
        """The picked elements as an array of their own."""
        return self.contiguous()

    def fill_(self, value: Any) -> "indexedarray":
        """Set every picked element to `value`."""
        return self.assign(array(shape=self.shape, dtype=self.dtype, device=self.device).fill_(value))

    def zero_(self) -> "indexedarray":
        """Set every picked element to zero."""
        return self.fill_(0)

    def numpy(self) -> HostArray:
        """A copy of the elements as a NumPy array."""
        origins = look_at(self.data)
        values: HostArray = traced(self.data.seen()[self._places()].copy(), origins)
        return values

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Apply one of NumPy's functions, which takes the picked elements as it takes an array.

        Raises KernelTypeError for ``out=`` of picked elements.
        """
        if isinstance(kwargs.get("out"), indexedarray):
            message, hint = f"np.{func.__name__} does not write to picked elements", "x[indices] = the result"
            raise refusal(KernelTypeError, message, "numpy", f"write {hint}")
        return func(*map(_plain_parts, args), **{name: _plain_parts(value) for name, value in kwargs.items()})

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostArray:
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def __origins__(self) -> Origins:
        return look_at(self.data)

    def list(self) -> list[Any]:
        """The elements in order, as Python numbers, or as NumPy vectors and matrices."""
        return array(self.numpy(), self.dtype, self.shape, CPU).list()

    def to(self, device: Device | str | None) -> "indexedarray":
        """These elements on a device: itself where it is there already."""
        place = get_device(device)
        if place == self.device:
            return self
        moved = [None if picked is None else picked.to(place) for picked in self.indices]
        return indexedarray(self.data.to(place), moved)

    # -------------------------------------------------------------------------------------- parts

    def _move(self, how: str, elements: array) -> None:
        is_checked, recorder = settings().check is not None, RECORDER.get()
        if is_checked and how == "scatter" and self.repeats:
            if recorder is not None:
                name = name_of_memory(self.data.allocation)
                message = (
                    f"{f'`{name}`' if name else 'an array'} is assigned at one index twice: which value "
                )
                message += "stays there is not defined"
                raise refusal(
                    KernelRaceError, message, "race", "pick each element once, or add the values up"
                )
            is_checked = False  # NumPy keeps the last of the values
        if recorder is not None or is_checked:
            if elements.overlaps(self.data):
                elements = duplicate(elements, elements.requires_grad, "clone")
            rows = map(self._row, range(self.ndim))
            run(_kernels(self.type)[how], self.shape, [self.data, *rows, elements])
            return
        if ENTERED:
            ends = (self.data, elements) if how == "gather" else (elements, self.data)
            picked = (row for row in self.indices if row is not None)
            notify_outside_use((ends[0], *picked), written=ends[1:])
        if how == "gather":
            if self.ndim == 1:
                # "wrap" for indices from the end; no index is beyond the extent.
                np.take(self.data.seen(), self._places()[0], 0, elements.blank(), "wrap")
            else:
                elements.blank()[...] = self.data.seen()[self._places()]
            note_copied(how, elements, self.data)
        else:
            whole = self.data.seen().copy()
            whole[self._places()] = elements.seen()
            self.data._overwrite(whole, how)
            note_copied(how, self.data, elements, self.data)

    def _within(self, key: Any) -> tuple[Any, ...]:
        """An index of these elements as one of the array behind."""
        keys = keys_of(self, key)
        require_inside(self.shape, keys)
        parts = []
        for axis, wanted in enumerate(keys):
            part = self._row(axis)[wanted]
            parts.append(part.contiguous() if isinstance(part, indexedarray) else part)
        return tuple(parts)

    def _row(self, axis: int) -> array:
        picked = self.indices[axis]
        if picked is not None:
            return picked
        return array(np.arange(self.shape[axis], dtype=np.int32), device=self.device)

    def _places(self) -> tuple[Any, ...]:
        rows = [readable(self._row(axis)) for axis in range(self.ndim)]
        for axis, (row, extent) in enumerate(zip(rows, self.data.shape, strict=True)):
            outside = row[(row < -extent) | (row >= extent)]
            if outside.size:
                message = f"index {outside[0]} is out of bounds for axis {axis} with size {extent}"
                raise KernelIndexError.of(message, "index")
        return np.ix_(*rows)


indexedarray1d, indexedarray2d, indexedarray3d, indexedarray4d = (
    Ranked(indexedarray, "indexedarray", "(data, indices)`` picks from", ndim) for ndim in (1, 2, 3, 4)
)


def _plain_parts(value: Any) -> Any:
    """The argument of a function with picked elements, also those in lists, in arrays of their own."""
    if isinstance(value, list | tuple):
        return type(value)(map(plain, value))
    return plain(value)


@hooks.pick.provide
def pick(data: array, keys: Sequence[Any]) -> indexedarray:
    """``data[rows, :]``: the elements at arrays of indices, one for an axis.

    Raises KernelIndexError for two lists of indices, of which NumPy makes pairs.
    """
    several = [key for key in keys if is_indices(key)]
    if len(several) > 1 and not all(isinstance(key, array) for key in several):
        message = f"{len(several)} lists of indices can mean two things: NumPy makes pairs of them, "
        message += "arrays of kernelab every combination"
        hint = "write x.flatten()[rows * x.shape[1] + columns] with NumPy's rows and columns for pairs, "
        hint += "x[rows][:, columns] for combinations"
        raise refusal(KernelIndexError, message, "index", hint)
    # Integers and slices first: what remains has the axes that the indices pick from.
    simple = tuple(key if isinstance(key, slice | int | np.integer) else slice(None) for key in keys)
    rest = [key for key in keys if not isinstance(key, int | np.integer)]
    indices: list[Any] = [None if isinstance(key, slice) else key for key in rest]
    for axis, picked in enumerate(indices):
        if picked is not None and not isinstance(picked, array):
            indices[axis] = array(picked, int32, device=data.device)
    view: Any = data
    return indexedarray(view[simple], indices)


def _checked(data: array, indices: Any) -> tuple[array | None, ...]:
    several = isinstance(indices, Sequence) and not isinstance(indices, array)
    by_axis = list(indices) if several else [indices]
    by_axis += [None] * (data.ndim - len(by_axis))
    if len(by_axis) > data.ndim:
        message = f"there are indices for {len(by_axis)} axes of an array of {data.ndim} dimensions"
        raise KernelTypeError.of(message, "index")
    for picked in by_axis:
        if picked is None:
            continue
        require_array(picked, "indices are", "write kl.array([0, 2], dtype=int)")
        if picked.dtype != int32 or picked.ndim != 1:
            message = f"indices are an array of int32 of 1 dimension, not {described(picked)} {picked.type}"
            raise KernelTypeError.of(message, "index", "write kl.array(..., dtype=int)")
    return tuple(by_axis)


def _repeats(picked: array, extent: int) -> bool:
    """Whether indices of an axis name one of its places twice, in any lane."""
    repeated: list[bool] = []

    def look(values: HostArray) -> HostArray:
        repeated.append(len(np.unique(np.where(values < 0, values + extent, values))) < values.size)
        return np.zeros(1, np.int32)

    tabulate(array(shape=1, dtype=int32, device=picked.device), [picked], look)
    return any(repeated)


@made_once(64)
def _kernels(type: Any) -> dict[str, Kernel]:
    threads = "abcd"[: type.ndim]
    text = _TEXT.strip("\n").format(
        array=f"array{type.ndim}d",
        indices=", ".join(f"index_{axis}: array[int]" for axis in threads),
        threads=", ".join(threads),
        picked=", ".join(f"index_{axis}[{axis}]" for axis in threads),
    )
    return kernels_of(text, "<indexedarray>", {"T": type.elem})
