"""The class `array`: a typed, strided view of memory that kernels, NumPy and gradients share.

Knows memory, dtypes and the current recorder; must not know kernels or tapes.  Every change that the host
makes passes through `write` or `transfer`: they warn the memory's watchers and tell the recorder.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic

import numpy as np

from kernelab import hooks
from kernelab.errors import KernelIndexError, KernelTypeError, KernelValueError
from kernelab.guidance.bad_calls import explains_bad_calls
from kernelab.hooks import Displayed
from kernelab.host.traced import traced
from kernelab.host.values import frozen, value_of
from kernelab.lang.structs import Struct
from kernelab.lang.types import Scalar, Value, scalar_of, shape_of
from kernelab.runtime.array.array_attributes import Arithmetic, Fixed, Hints, array_annotation
from kernelab.runtime.array.exchange import INTERFACE, Exchange, at_address, from_interface, is_outside
from kernelab.runtime.array.indexing import Index, is_indices, keys_of, require_inside
from kernelab.runtime.array.layout import (
    Views,
    contiguous_strides,
    fits,
    is_integer,
    is_picked,
    other_shape,
    shaped,
    share_bytes,
)
from kernelab.runtime.array.origins import note_as_integers
from kernelab.runtime.array.transfers import allocate_on, laid_out, look_at, transfer, unreadable, write
from kernelab.runtime.context.conversion import (
    HostArray,
    checked_address,
    copy_elements,
    described,
    element,
    fitting,
    host_values,
    is_plain,
    itemsize,
    shape_tuple,
    too_many_axes,
    value_type,
)
from kernelab.runtime.context.recorder import made_from_host
from kernelab.runtime.memory.device import CPU, Device, device_of, get_device
from kernelab.runtime.memory.memory import Allocation, address_of, borrow, youngest
from kernelab.runtime.memory.streams import pinned_like
from kernelab.runtime.memory.torch_versions import count_writes

Shape = tuple[int, ...]


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    _Element = TypeVar("_Element", default=Any)

    class _Shown(Displayed, Generic[_Element]):
        """What a type checker needs for ``array[float]``; a bare ``array`` is one of anything."""
else:
    _Element, _Shown = None, {None: Displayed}


class array(Arithmetic, Exchange, Views, Hints, Fixed, _Shown[_Element]):  # noqa: N801 (the name users know)
    """Elements of one dtype in 1 to 4 dimensions; ``==`` compares these one by one.

    ``array(data, dtype)`` copies lists, NumPy arrays or other arrays (``copy=False`` shares NumPy's memory
    where the dtype fits); ``array(ptr=, dtype=, shape=, strides=)`` looks at an address, which must stay
    valid for `capacity` bytes (`deleter` gets both at the end).  `grad` is the array of the gradient;
    `pinned` locks memory of the host in place; `retain_grad` changes nothing.
    ``array(dtype=float)``, ``array(dtype=vec3, ndim=2)`` and ``array[float]`` are annotations.  Raises
    KernelTypeError where data and dtype do not go together.

    >>> x = kl.array([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    >>> x.shape, x.dtype, x[1].list()
    ((2, 2), float32, [3.0, 4.0])
    >>> kl.array([[1, 2, 3]], dtype=kl.vec3).shape
    (1,)
    """

    __kernelab_name__ = "array"
    __slots__ = ()

    structs: ClassVar[Any] = None

    if not TYPE_CHECKING:  # to which a call makes an array, whatever annotations Python evaluates

        def __new__(
            cls, data: Any = None, dtype: Any = None, shape: Any = None, *_: Any, ndim: int = 1, **others: Any
        ) -> Any:
            if data is None and shape is None:
                if others.get("ptr") is not None:
                    hint = "write shape=n for the number of elements there"
                    raise KernelTypeError.of("an array at an address needs a shape", "shape", hint)
                if dtype is None:
                    hint = "give it data, or write kl.zeros(10); "
                    hint += "an annotation names a type: array(dtype=float)"
                    raise KernelTypeError.of("cannot make an array from None", "data", hint)
                return array_annotation(dtype, ndim)
            of_structs = (struct_in(data) if dtype is None else struct_named(dtype)) is not None
            return super().__new__(cls.structs if of_structs else cls)

    @classmethod
    def class_of(cls, dtype: Any) -> Any:
        """The class of arrays of this type of elements: structs have one of their own."""
        return array.structs if isinstance(dtype, Struct) else array

    def __class_getitem__(cls, dtype: Any) -> Any:
        return array_annotation(dtype, 1)

    @explains_bad_calls()
    def __init__(
        self,
        data: Any = None,
        dtype: Any = None,
        shape: int | Sequence[int] | None = None,
        device: Device | str | None = None,
        requires_grad: bool = False,
        copy: bool = True,
        ndim: int | None = None,
        *,
        ptr: int | None = None,
        strides: Sequence[int] | None = None,
        deleter: Callable[[int, int], None] | None = None,
        grad: "array | None" = None,
        pinned: bool = False,
        retain_grad: bool = False,
        capacity: int | None = None,
    ) -> None:
        place = get_device(device)
        elem = None if dtype is None or dtype is Any else value_type(dtype)
        if ptr is not None:
            if data is not None:
                message = "an array is made of data, or looks at an address: ptr= takes no data"
                raise KernelTypeError.of(message, "data", "leave one of the two out")
            place = CPU if device is None else place
            self._point(ptr, shape, strides, elem, deleter, place, capacity)
        elif data is None:
            assert shape is not None
            self._allocate(shape_tuple(shape), value_type(float) if elem is None else elem, strides, place)
        elif strides is not None:
            message = "data bring their own layout: strides go with shape= or ptr="
            hint = "transpose or slice the array, or copy into kl.zeros(shape, strides=...)"
            raise KernelTypeError.of(message, "strides", hint)
        elif hasattr(type(data), INTERFACE) and is_outside(data):
            self._share(
                array.over(*from_interface(data, elem)), elem, shape, copy, None if device is None else place
            )
        else:
            self._adopt(data, elem, shape, copy, place)
        if ndim is not None and ndim != self.ndim:
            raise KernelTypeError.of(f"the data have {self.ndim} dimensions, not {ndim}", "ndim")
        if pinned and copy and ptr is None and (locked := pinned_like(self.allocation)) is not None:
            self.place(locked, self.offset, self.shape, self.strides, self.dtype)
        if requires_grad:
            self.requires_grad = True
        if grad is not None:
            self.give_gradient(grad)

    def _point(
        self, ptr: Any, extents: Any, strides: Any, dtype: Any, deleter: Any, place: Device, capacity: Any
    ) -> None:
        elem, shape = value_type(float if dtype is None else dtype), shape_tuple(extents)
        steps, needed = laid_out(shape, elem, strides)
        if capacity is not None and needed > capacity:
            message = f"the elements take {needed:,} bytes, and there are {capacity:,} at the address"
            raise KernelValueError.of(message, "capacity", "check shape, strides and dtype")
        address = checked_address(ptr, needed)
        before = youngest()
        memory = at_address(place.space, address, shape, steps, itemsize(elem), deleter)
        self.place(memory, address - memory.address, shape, steps, elem)
        memory.folded |= self.folds
        self._note_shared(before)

    def _share(self, shared: "array", elem: Any, shape: Any, copy: bool, place: Device | None) -> None:
        fits = shape is None and elem in (None, shared.dtype) and place in (None, shared.device)
        if copy or not fits:
            self._adopt(shared, elem, shape, True, shared.device if place is None else place)
            return
        self.place(shared.allocation, shared.offset, shape_tuple(shared.shape), shared.strides, shared.dtype)
        made_from_host(self, shared)

    def _allocate(
        self, shape: Shape, elem: Value, strides: Any = None, place: Device = CPU, cleared: bool = True
    ) -> None:
        steps, nbytes = laid_out(shape, elem, strides)
        self.place(allocate_on(place, nbytes, cleared=cleared), 0, shape, steps, elem)
        self.allocation.folded = strides is not None and self.folds

    def _adopt(
        self, data: Any, elem: Value | None, shape: int | Sequence[int] | None, copy: bool, place: Device
    ) -> None:
        source = given = data
        if isinstance(data, array):
            origins = look_at(data)
            source = traced(data.seen(), origins) if origins else data
            copy |= data.allocation.space is not None
            elem, data = elem or data.dtype, data.seen()
        values, elem = host_values(data, elem)
        axes = values.ndim - len(shape_of(elem))
        if shape is not None:
            wanted = shape_tuple(shape)
            values, axes = shaped(values, wanted, shape_of(elem)), len(wanted)
        elif axes == 0:
            values, axes = values[None], 1
        if axes > 4:
            raise KernelTypeError(too_many_axes(axes))
        elsewhere = copy or place.is_cuda
        if elsewhere or not fits(values, elem) or not np.may_share_memory(values, data):
            self._allocate(shape_tuple(values.shape[:axes]), elem, place=place, cleared=False)
            copy_elements(self.blank(), values)
        else:
            before = youngest()
            allocation = borrow(values)
            offset = address_of(values) - allocation.address
            self.place(allocation, offset, shape_tuple(values.shape[:axes]), values.strides[:axes], elem)
            allocation.folded |= self.folds
            self._note_shared(before)
            count_writes(self, source)
            if isinstance(given, array):
                return  # the memory of an array, whose values nobody has made
        made_from_host(self, source)

    def _note_shared(self, before: int) -> None:
        """Note what stands over memory that was there before; a field of structs has others beside it."""
        memory = self.allocation
        if memory.serial <= before and self.is_contiguous and (self.size > 1 or memory.nbytes < 16):
            note_as_integers(self)

    def overlaps(self, other: "array") -> bool:
        """Whether the two have bytes in common."""
        return share_bytes(self, other)

    # -------------------------------------------------------------------------------------- what it is

    @property
    def device(self) -> Device:
        return device_of(self.allocation.space)

    def __copy__(self) -> "array":
        return duplicate(self, self.requires_grad, "clone")

    def __deepcopy__(self, memo: dict[int, Any]) -> "array":
        return memo.setdefault(id(self), self.__copy__())  # type: ignore[no-any-return]

    def __reduce__(self) -> tuple[Any, ...]:
        look_at(self)
        if self.device.is_cuda:
            message = f"an array on {self.device} cannot be pickled"
            raise KernelTypeError.of(message, "pickle", 'pickle x.to("cpu")')
        return _restored, (type(self), self.seen().copy(), self.dtype, self.requires_grad)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        if unreadable(self) is None:
            values = np.array2string(self.seen(), separator=", ", prefix="array(")
        else:
            values = "<other values in each lane>"
        gradient = ", requires_grad=True" if self.requires_grad else ""
        return f"array({values}, shape={self.shape}, dtype={self.dtype}, device={self.device}{gradient})"

    def __str__(self) -> str:
        return str(self.seen()) if unreadable(self) is None else repr(self)

    # -------------------------------------------------------------------------------------- values

    def list(self) -> list[Any]:
        """The elements in order, as Python numbers, or as vectors and matrices."""
        origins = look_at(self)  # where the values are kept elsewhere, it fetches them
        values: list[Any] = traced(_listed(self), origins)
        return values

    def item(self) -> Any:
        """The only element of a one-element array; raises KernelValueError otherwise.

        While a tape records, a float that gradients depend on remembers where it comes from: `backward` warns
        where it, or what Python's arithmetic and NumPy made of it, was passed to a launch.
        """
        if self.size != 1:
            message = f"item() takes the one element of an array, and this one has {self.size}"
            hint = "write x.list(), x[0] for one, or kl.sin(x) for math.sin(x)"
            raise KernelValueError.of(message, "size", hint)
        return self.list()[0]

    def tolist(self) -> Any:
        """The elements in nested lists, as NumPy's `tolist`; of one dimension, as `list`."""
        return self.list() if self.ndim == 1 else [row.tolist() for row in self]

    def __format__(self, spec: str) -> str:
        """The only element in a format such as ``.3f``; raises KernelValueError where there are more."""
        return format(self.item(), spec) if spec else str(self)

    @explains_bad_calls(dim="write axis=0", dtype="convert first: x.astype(kl.float64)")
    def sum(self, axis: int | None = None, *, out: "array | None" = None, keepdims: bool = False) -> "array":
        """The sum of all elements as an array of one element, or along an axis, which is left out.

        A tape differentiates it.  Sums of integers are int64 or uint64.  ``out=`` takes the array that it is
        written to, ``keepdims=True`` keeps the axes, of length 1; `np.sum(x)` gives NumPy's own.  Raises
        KernelTypeError for truth values, structs and an `out` that does not fit, KernelValueError for an axis
        that is not there.
        """
        return hooks.total(self, axis, out, keepdims, False)  # type: ignore[no-any-return]

    @explains_bad_calls(dim="write axis=0", dtype="convert first: x.astype(kl.float64)")
    def mean(self, axis: int | None = None, *, out: "array | None" = None, keepdims: bool = False) -> "array":
        """The mean of all elements in an array of one, or along an axis, as `sum`; of integers a float."""
        return hooks.total(self, axis, out, keepdims, True)  # type: ignore[no-any-return]

    @explains_bad_calls(dim="write axis=0", out="copy the result: out.assign(x.max())")
    def max(self, axis: int | None = None, *, keepdims: bool = False) -> "array":
        """The largest element in an array of one, or along an axis, as `sum`.

        A tape differentiates it: of equal ones the first has the gradient.  A NaN among them is the result.
        """
        return hooks.extremum(self, axis, keepdims, "max")  # type: ignore[no-any-return]

    @explains_bad_calls(dim="write axis=0", out="copy the result: out.assign(x.min())")
    def min(self, axis: int | None = None, *, keepdims: bool = False) -> "array":
        """The smallest element in an array of one, or along an axis, as `max`."""
        return hooks.extremum(self, axis, keepdims, "min")  # type: ignore[no-any-return]

    def astype(self, dtype: Any) -> "array":
        """A copy with another dtype, which a tape differentiates between floats."""
        return hooks.convert(self, dtype)  # type: ignore[no-any-return]

    def copy(self) -> "array":
        """A contiguous copy, which a tape differentiates."""
        return self.__copy__()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __round__(self, digits: int | None = None) -> float:
        if self.size != 1:
            hint = "write kl.round(x), or kl.round(x * 100.0) / 100.0 for two places"
            raise KernelTypeError.of(f"round() of Python takes one number, not {self.size}", "type", hint)
        return round(self.item(), digits)  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    # -------------------------------------------------------------------------------------- views

    def __getitem__(self, key: Index | tuple[Index, ...]) -> Any:
        """A view of the same memory; an element's value where every axis has an integer.

        An array or a list of indices for an axis picks elements, and so do truth values: an `indexedarray`.
        """
        if self.__class__ is array and (key.__class__ is int or key.__class__ is slice):
            view = self._along_first(key)
            if view is not None:
                return view
        keys = keys_of(self, key, looks=True)
        if any(is_indices(k) for k in keys):
            return hooks.pick(self, keys)
        try:
            values = self.outline()[keys]
        except OverflowError:
            message = f"an index of so many digits is out of bounds (the shape is {self.shape})"
            raise KernelIndexError.of(message, "index") from None
        except IndexError as error:
            raise KernelIndexError.of(f"{error} (the shape is {self.shape})", "index") from None
        axes = sum(k is None or isinstance(k, slice) for k in keys)
        if axes > 4:
            raise KernelTypeError(too_many_axes(axes))
        if axes == 0:
            origins = look_at(self)
            values = values if self.allocation.space is None else self.seen()[keys]
            return traced(values if not values.ndim else frozen(self.dtype, values.copy()), origins)
        return self._seen(values, axes)

    def __setitem__(self, key: Index | tuple[Index, ...], value: Any) -> None:
        keys = keys_of(self, key)
        if any(is_indices(k) for k in keys):
            hooks.pick(self, keys).put(value)
            return
        require_inside(self.shape, keys)
        view = self[tuple(slice(k, k + 1 or None) if is_integer(k) else k for k in keys)]
        if is_picked(value):
            value = value.contiguous()
        if not isinstance(value, array):
            view._overwrite(value, "item assignment")
            return
        hooks.store(view if all(map(is_integer, keys)) else self[key], value)

    def contiguous(self) -> "array":
        """This array if it is contiguous, else a copy that is."""
        return self if self.is_contiguous else duplicate(self, self.requires_grad, "contiguous")

    def to(self, device: Device | str | None) -> "array":
        """This array on a device: itself where it is there already, else a copy, which a tape sees.

        Raises LaunchError for a device that is not there.
        """
        place = get_device(device)
        return self if place == self.device else duplicate(self, self.requires_grad, "to", place)

    # -------------------------------------------------------------------------------------- writing

    def _overwrite(self, values: Any, how: str) -> None:
        write(self, self._fitting(values), how, values)

    def _fitting(self, values: Any) -> HostArray:
        """Host data as they can be written into this array; raises where they cannot."""
        converted, shape = fitting(values, self.dtype), self.outline().shape
        if converted.ndim > len(shape) or any(
            n not in (1, m) for n, m in zip(converted.shape[::-1], shape[::-1], strict=False)
        ):
            elements = str(self.dtype) if len(shape) > self.ndim else ""
            raise KernelValueError(other_shape(shape, converted.shape, elements))
        return converted

    def fill_(self, value: Any) -> "array":
        """Set every element to `value`: a number, or components of a vector or matrix."""
        write(self, value if is_plain(value, self.dtype) else element(value, self.dtype), "fill_", value)
        return self

    def zero_(self) -> "array":
        """Set every element to zero."""
        write(self, 0, "zero_", 0)
        return self

    def assign(self, src: Any) -> "array":
        """Copy the elements of an array, or of host data of this shape, into this array."""
        if is_picked(src):
            src = src.contiguous()
        if isinstance(src, array):
            transfer(self, src, "assign")
            return self
        values, _ = host_values(src, self.dtype)
        if values.shape != self.outline().shape:
            raise KernelValueError(other_shape(self.shape, values.shape))
        write(self, values, "assign", src)
        return self


def struct_named(dtype: Any) -> Struct | None:
    """The struct that a class of the host, or its type, stands for; None if that is none."""
    return getattr(dtype, "__kernelab_struct__", None)


def struct_in(data: Any) -> Struct | None:
    """The struct that host data are made of: an instance, an array of them, or a list."""
    if isinstance(data, array):
        elem: Any = data.dtype
        return elem if isinstance(elem, Struct) else None
    if isinstance(data, list | tuple):
        return struct_in(data[0]) if data else None
    return struct_named(type(data))


def require_array(value: Any, wants: str, hint: str = "make an array of it: kl.array(...)") -> None:
    """Raise KernelTypeError where a value is not an array; `wants` are the words before "an array"."""
    if not isinstance(value, array):
        raise KernelTypeError.of(f"{wants} an array of kernelab, not {described(value)}", "argument", hint)


def numbers_of(memory: Allocation, scalar: Scalar) -> array:
    """The whole of a memory as numbers of a type."""
    size = itemsize(scalar)
    return array.over(memory, 0, (memory.nbytes // size,), (size,), scalar)


def parts_of(elements: array) -> Sequence[array]:
    """The whole memory of an array: numbers of its type, or where it holds structs, their leaves."""
    memory = elements.allocation
    if not memory.parts:
        return [numbers_of(memory, scalar_of(elements.dtype))]
    return [array.over(memory, *part) for part in memory.parts]


DETACHED = "clone without gradients"
"""How the copy came about that a user makes to end a chain of gradients."""


def duplicate(
    src: array, requires_grad: bool, how: str, place: Device | None = None, pinned: bool = False
) -> array:
    """A contiguous copy of `src`, in memory of its own, of the same device unless another is named."""
    size = itemsize(src.dtype)
    place = src.device if place is None else place
    memory = allocate_on(place, src.size * size, cleared=False, pinned=pinned)
    copy = array.over(memory, 0, src.shape, contiguous_strides(src.shape, size), src.dtype)
    if requires_grad:
        copy.requires_grad = True
    transfer(copy, src, how)
    return copy


def _restored(kind: type[array], values: HostArray, dtype: Value, requires_grad: bool) -> array:
    return kind(values, dtype, requires_grad=requires_grad)


def _listed(elements: array) -> list[Any]:
    flat = elements.seen().reshape((-1, *shape_of(elements.dtype)))
    return flat.tolist() if flat.ndim == 1 else [value_of(elements.dtype, value) for value in flat]


# -------------------------------------------------------------------------------------------------- gathered


class Gathered(array):
    """Picked elements in memory of their own; `source` takes them back by `assign`, unless it `repeats`."""

    __slots__ = ("source",)

    source: Any
