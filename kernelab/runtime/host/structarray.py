"""Arrays of structs: one memory, in which every leaf of the struct is a strided array.

Launches, tapes and hazards see only the leaves, which are ordinary arrays; must not know kernels.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from kernelab.errors import KernelAttributeError, KernelIndexError, KernelTypeError, a_thing
from kernelab.lang.structs import Struct, layout, placed
from kernelab.lang.types import Value, is_differentiable
from kernelab.runtime.array.array import array, struct_in
from kernelab.runtime.array.origins import note_as_integers
from kernelab.runtime.array.transfers import look_at, readable
from kernelab.runtime.context.conversion import HostArray, array_type
from kernelab.runtime.context.recorder import made_from_host
from kernelab.runtime.host.struct_instances import Instance, class_of
from kernelab.runtime.memory.device import CPU, Device
from kernelab.runtime.memory.memory import Allocation, address_of, borrow, youngest


class structarray(array):  # noqa: N801 (an `array` to users, made by `kl.zeros(n, dtype=Particle)`)
    """Structs in 1 to 4 dimensions: ``ps["mass"]`` is the array of one field, over the same memory."""

    __slots__ = ("_leaves",)

    dtype: Struct  # type: ignore[assignment]
    _leaves: tuple[array, ...]

    def place(
        self,
        allocation: Allocation,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: Any,
    ) -> None:
        super().place(allocation, offset, shape, strides, dtype)
        self._leaves = tuple(
            array.over(allocation, offset + leaf.offset, shape, strides, leaf.type) for leaf in placed(dtype)
        )
        size = layout(dtype).itemsize
        if not allocation.parts and offset % size == 0 and strides[-1] % size == 0:
            count = (allocation.nbytes // size,)
            allocation.parts = tuple([(leaf.offset, count, (size,), leaf.type) for leaf in placed(dtype)])

    def __getattr__(self, name: str) -> Any:
        """Raises KernelAttributeError that says what to write instead."""
        if name != "dtype" and name in {entry.name for entry in self.dtype.fields}:
            message = f"{name} is a field of the structs in this array"
            raise KernelAttributeError.of_name(message, f'write x["{name}"], the array of it', name)
        return super().__getattr__(name)

    def twin(self, allocation: Allocation) -> "structarray":
        return self.over(allocation, self.offset, self.shape, self.strides, self.dtype)  # type: ignore[arg-type]

    def _adopt(self, data: Any, elem: Any, shape: Any, copy: bool, place: Device = CPU) -> None:
        elem = elem or struct_in(data)
        array_type(elem, 1)  # refuses a struct that holds arrays
        values = _values(data, elem)
        if shape is not None:
            values = np.broadcast_to(values, shape) if values.ndim == 0 else values.reshape(shape)
        if values.ndim == 0:
            values = values[None]
        shared = isinstance(data, np.ndarray) and np.may_share_memory(values, data)
        if copy or not shared or place.is_cuda:
            self._allocate(values.shape, elem, place=place)
            self.blank()[...] = values
            made_from_host(self, data)
            return
        before = youngest()
        whole = borrow(values)
        self.place(whole, address_of(values) - whole.address, values.shape, values.strides, elem)
        whole.folded |= self.folds
        if whole.serial <= before:
            note_as_integers(self)

    def _fitting(self, values: Any) -> HostArray:
        return _values(values, self.dtype)

    def _view(self, buffer: Any) -> HostArray:
        return np.ndarray(self.shape, layout(self.dtype), buffer, self.offset, self.strides)

    # -------------------------------------------------------------------------------------- leaves

    @property
    def leaves(self) -> tuple[array, ...]:
        """The arrays of the leaves, in order, over the same memory."""
        return self._leaves

    def field(self, name: str) -> array:
        """The array of one field; raises KernelIndexError if there is none of that name."""
        k = self.dtype.index(name)
        if k is None:
            listed = ", ".join(entry.name for entry in self.dtype.fields)
            message = f"{self.dtype} has no field {name}"
            raise KernelIndexError.of(message, "field", f"its fields are {listed}")
        type: Any = self.dtype.fields[k].type
        if isinstance(type, Struct):
            kept = layout(self.dtype).fields
            assert kept is not None
            offset = self.offset + int(kept[name][1])
            return array.over(self.allocation, offset, self.shape, self.strides, cast(Value, type))
        names = [leaf.name for leaf in placed(self.dtype)]
        return self._leaves[names.index(name)]

    # -------------------------------------------------------------------------------------- elements

    def __getitem__(self, key: Any) -> Any:
        """A field's array for a name; a copy of the struct for integers; else a view."""
        if isinstance(key, str):
            return self.field(key)
        item = super().__getitem__(key)
        return self._instance(item) if isinstance(item, np.void) else item

    def _instance(self, element: np.void) -> Instance:
        origins, instance = look_at(self), class_of(self.dtype)._read(element, self)
        if origins:
            instance._follow(origins)
        return instance

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, str):
            self.field(key).assign(value)
            return
        super().__setitem__(key, value)

    def fill_(self, value: Any) -> "structarray":
        """Set every element to one struct."""
        self._overwrite(value, "fill_")
        return self

    def assign(self, src: Any) -> "structarray":
        """Copy the elements of an array of structs, or of a list of structs, into this array."""
        super().assign(src if isinstance(src, array) else array(src, self.dtype))
        return self

    def list(self) -> list[Any]:
        """The elements in order, as structs."""
        return [self._instance(value) for value in readable(self).reshape(-1)]

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """None: it would make fields of the gaps between fields, so NumPy asks `__array__`."""
        raise AttributeError("__array_interface__")


def by_leaves(cotangents: Mapping[array, Any]) -> Iterator[tuple[array, Any]]:
    """Arrays and their cotangents, with those of structs by their leaves of floats."""
    for target, cotangent in cotangents.items():
        if not isinstance(target, structarray):
            yield target, cotangent
            continue
        bars = cotangent if isinstance(cotangent, array) else array(cotangent, target.dtype)
        if not isinstance(bars, structarray) or (bars.dtype, bars.shape) != (target.dtype, target.shape):
            message = f"the cotangent of {target.type} of shape {target.shape} is another one"
            raise KernelTypeError.of(message, "seed", "write kl.zeros_like(ps) and set its fields")
        yield from (
            pair for pair in zip(target.leaves, bars.leaves, strict=True) if is_differentiable(pair[0].dtype)
        )


def leaves_of(a: array) -> tuple[array, ...]:
    """The arrays that launches and tapes see of an array: those of its leaves, or itself."""
    return a.leaves if isinstance(a, structarray) else (a,)


def _values(data: Any, struct: Struct) -> HostArray:
    """Structs, alone or in nested lists, as a structured NumPy array; raises KernelTypeError."""
    wanted = layout(struct)
    if isinstance(data, int | float) and not isinstance(data, bool) and data == 0:
        return np.zeros((), wanted)
    if isinstance(data, structarray) and data.dtype == struct:
        look_at(data)
        return data.seen()
    if isinstance(data, np.ndarray | np.void) and data.dtype == wanted:
        return np.asarray(data)
    if isinstance(data, Instance) and data._struct == struct:
        return np.array(data._record(), wanted)
    if isinstance(data, Sequence) and not isinstance(data, str):
        rows = [_values(part, struct) for part in data]
        if len({row.shape for row in rows}) <= 1:
            return np.stack(rows) if rows else np.zeros(0, wanted)
    raise _unfit(data, struct, wanted)


def _unfit(data: Any, struct: Struct, wanted: np.dtype[Any]) -> KernelTypeError:
    """The error that data of another kind, or of other fields, cannot become structs."""
    kind = a_thing(data)
    hint = f"give structs made by {struct}(), or NumPy data of the dtype that .numpy() has"
    if isinstance(data, np.ndarray | np.void):
        kind = f"NumPy data of {data.dtype}"
        names = data.dtype.names or ()
        if sorted(names) == sorted(wanted.names or ()) and names != wanted.names:
            kind = f"NumPy data whose fields are {', '.join(names)}, in another order than those of {struct}"
        if sorted(names) == sorted(wanted.names or ()):
            to = f"kl.zeros(0, dtype={struct}).numpy().dtype"
            hint = f"convert it by name: numpy.lib.recfunctions.require_fields(data, {to})"
    if isinstance(data, Instance) and data._struct.name == struct.name:
        kind = f"a {data._struct.name} of another definition"
    return KernelTypeError.of(f"cannot make {struct} from {kind}", "dtype", hint)


array.structs = structarray
