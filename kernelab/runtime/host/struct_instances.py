"""Structs on the host: `p = Particle()`. Assignment to a field converts the value to the field's type.

A class for each definition; knows arrays; must not know kernels.
"""

import copyreg
import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

import numpy as np

from kernelab.errors import KernelError, KernelTypeError, TapeError, counted
from kernelab.host.traced import Origins, follow, origins, traced, untraced
from kernelab.host.values import frozen, view_of
from kernelab.lang.structs import Field, Struct, StructArray, layout
from kernelab.lang.types import Array, Mat, Scalar, Vec, is_differentiable
from kernelab.runtime.array.array import array
from kernelab.runtime.array.layout import is_picked
from kernelab.runtime.array.transfers import look_at
from kernelab.runtime.context.conversion import HostArray, array_type
from kernelab.runtime.context.recorder import refusal
from kernelab.runtime.host.field_values import field_value, initial


class Instance:
    """A struct on the host; compared by identity, as arrays are.

    Numbers, vectors and structs are copied when they are set, arrays are shared.  A one-element array may
    stand for a field of floats: launches read its value, and a tape differentiates with respect to it.  With
    ``s.requires_grad = True`` it does so with respect to every field of floats: ``s.grad.k`` is the gradient
    of ``s.k``.  Arrays in a struct, and copies of it, require gradients only where they are told to.  To ask
    for the gradient of a number or vector that requires none raises TapeError; for a launch it is NaN.
    """

    __slots__ = ("__weakref__", "_element", "_traced", "_values", "_without")

    __kernelab_struct__: ClassVar[Struct]
    _values: dict[str, Any]
    _traced: dict[str, array]
    _element: bool
    _without: frozenset[str]
    """Of a struct of gradients: the fields of floats that have none."""

    def __init__(self, /, *values: Any, **named: Any) -> None:
        struct = self._struct
        object.__setattr__(self, "_values", {entry.name: _initial(entry) for entry in struct.fields})
        object.__setattr__(self, "_traced", {})
        object.__setattr__(self, "_element", False)
        object.__setattr__(self, "_without", frozenset())
        if len(values) > len(struct.fields):
            message = f"{struct} has {counted(len(struct.fields), 'field')}, not {len(values)}"
            hint = f"they are {', '.join(f'{entry.name}: {entry.type}' for entry in struct.fields)}"
            raise KernelTypeError.of(message, "field", hint)
        by_name = dict(zip((entry.name for entry in struct.fields), values, strict=False))
        twice = sorted(set(by_name) & set(named))
        if twice:
            raise KernelTypeError.of(f"{struct} gets two values for {twice[0]}", "field")
        for name, value in (by_name | named).items():
            setattr(self, name, value)

    @classmethod
    def numpy_dtype(cls) -> np.dtype[Any]:
        """The dtype of NumPy arrays of the struct; raises KernelTypeError for a struct that holds arrays."""
        array_type(cls.__kernelab_struct__, 1)  # refuses a struct that holds arrays
        return layout(cls.__kernelab_struct__)

    def __origins__(self) -> Origins:
        """Where the numbers of its fields come from, now that the host takes them."""
        return origins([_taken(self, name) for name in self._values])

    def _follow(self, sources: Origins) -> None:
        """Set the provenance of the numbers of all fields."""
        for name, value in self._values.items():
            if isinstance(value, Instance):
                value._follow(sources)
            else:
                self._values[name] = traced(value, sources)

    @classmethod
    def _read(cls, value: Any, of: array) -> "Instance":
        """A copy of an element of an array, which says so where a field of it is set."""
        instance = cls()
        for entry in instance._struct.fields:
            member: Any = value[entry.name]
            dtype: Any = entry.type
            if isinstance(dtype, Struct):
                member = class_of(dtype)._read(member, of)
            else:
                member = frozen(dtype, member.copy()) if isinstance(member, np.ndarray) else member.item()
            instance._values[entry.name] = member
        object.__setattr__(instance, "_element", True)
        return instance

    @property
    def _struct(self) -> Struct:
        return type(self).__kernelab_struct__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._entry(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "requires_grad" and self._struct.index(name) is None:
            self._trace(bool(value))
            return
        entry = self._entry(name)
        if self._element:
            message = (
                f"this {self._struct} is a copy of an element: setting {name} would not change the array"
            )
            hint = f'write ps["{name}"][i] = ..., or p = ps[i].copy(), change p, and ps[i] = p'
            raise KernelTypeError.of(message, "element", hint)
        kept = _converted(entry, value, str(self._struct))
        if isinstance(kept, Instance) and self._values[name]._is_traced():
            for inner, part in kept._values.items():  # fields that require gradients continue to
                setattr(self._values[name], inner, part)
            return
        self._values[name] = kept
        if name in self._without:
            object.__setattr__(self, "_without", self._without - {name})
        if name not in self._traced:
            return
        if isinstance(kept, array):
            del self._traced[name]  # the array's own gradient counts
        else:
            self._traced[name].assign(follow(np.asarray(untraced(kept))[None], kept))
            self._values[name] = _element_of(self._traced[name])

    def _entry(self, name: str) -> Field:
        k = self._struct.index(name)
        if k is None:
            names = ", ".join(entry.name for entry in self._struct.fields)
            raise NoField.of(f"{self._struct} has no field {name}", "field", f"its fields are {names}")
        return self._struct.fields[k]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={_shown(value)}" for name, value in self._values.items())
        return f"{self._struct}({fields})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostArray:
        record: HostArray = follow(np.array(self._record(), layout(self._struct)), self)
        return record

    def _record(self) -> tuple[Any, ...]:
        """The values of the fields in order, nested as the structs are."""
        return tuple(
            value._record()
            if isinstance(value, Instance)
            else value.item()
            if isinstance(value, array)
            else value
            for value in [_taken(self, name) for name in self._values]
        )

    def _copy(self) -> "Instance":
        copy = type(self)()
        for name in self._values:
            copy._values[name] = _copied(_taken(self, name))
        object.__setattr__(copy, "_without", self._without)
        return copy

    def copy(self) -> "Instance":
        """Another struct with the same values, and the same arrays."""
        return self._copy()

    __copy__ = _copy

    def __deepcopy__(self, memo: dict[int, Any]) -> "Instance":
        memo[id(self)] = copy = type(self)()
        copy._values.update({name: deepcopy(_taken(self, name), memo) for name in self._values})
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._struct, dict(self._values))

    # -------------------------------------------------------------------------------------- gradients

    @property
    def requires_grad(self) -> bool:
        """Whether tapes compute a gradient with respect to the numbers and vectors of floats in it.

        Its arrays have their own: `s.weights.requires_grad = True`.
        """
        return self._is_traced()

    def _is_traced(self) -> bool:
        return any(True for _ in traced_in(self))

    def _trace(self, wanted: bool) -> None:
        """Back each float field by an array of one element that requires gradients, or drop these arrays."""
        for name in () if wanted else tuple(self._traced):
            self._values[name] = _copied(self._values[name])
            del self._traced[name]
        for entry in self._struct.fields:
            value = self._values[entry.name]
            if isinstance(value, Instance):
                value._trace(wanted)
                continue
            is_number = _is_number_of_floats(entry.type) and not isinstance(value, array)
            if wanted and is_number and entry.name not in self._traced:
                self._traced[entry.name] = array([value], entry.type, (1,), requires_grad=True)
                self._values[entry.name] = _element_of(self._traced[entry.name])

    def _named(self, prefix: str) -> Iterator[tuple[str, array]]:
        """The arrays in it, also those in which its numbers stand, by the names of their fields."""
        for name in self._values:
            held = held_in(self, name)
            if isinstance(held, Instance):
                yield from held._named(f"{prefix}.{name}")
            elif isinstance(held, array):
                yield f"{prefix}.{name}", held

    # -------------------------------------------------------------------------------------- leaves

    def _leaves(self) -> list[Any]:
        """The arguments of a launch: the values of the leaves in order, None for an array that is not set."""
        leaves: list[Any] = []
        for entry in self._struct.fields:
            value = self._values[entry.name]
            match entry.type:
                case Struct():
                    leaves += value._leaves()
                case StructArray(elem):
                    count = len(class_of(elem)()._leaves())
                    leaves += value.leaves if value is not None else [None] * count
                case _:
                    leaves.append(self._traced.get(entry.name, value))
        return leaves

    @property
    def grad(self) -> "Instance | None":
        """A struct of the gradients of its fields, zero for integers; None if no field has one."""
        return self._gradients() if self._has_gradients() else None

    def _has_gradients(self) -> bool:
        return bool(self._traced) or any(
            value._has_gradients() if isinstance(value, Instance) else _gradient(value) is not None
            for value in self._values.values()
        )

    def _gradients(self) -> "Instance":
        gradients = cleared(self)
        without: set[str] = set()
        for entry in self._struct.fields:
            name, value = entry.name, self._values[entry.name]
            if isinstance(value, Instance):
                gradients._values[name] = value._gradients()
            elif name in self._traced:
                gradient = self._traced[name].grad
                assert gradient is not None
                gradients._values[name] = _copied(_element_of(gradient))
            elif (part := _gradient(value)) is not None:
                gradients._values[name] = part
            elif _is_number_of_floats(entry.type):
                gradients._values[name] = gradients._values[name] * math.nan
                without.add(name)
            elif isinstance(value, array) and is_differentiable(value.dtype):
                without.add(name)
        object.__setattr__(gradients, "_without", frozenset(without))
        return gradients


class NoField(KernelError, AttributeError):
    """A field that a struct does not have."""


def held_in(instance: Instance, name: str) -> Any:
    """The value of a field: an array of one element where its number or vector requires gradients."""
    return instance._traced.get(name, instance._values[name])


def traced_in(instance: Instance) -> Iterator[array]:
    """The arrays of one element in which numbers and vectors stand that require gradients."""
    yield from instance._traced.values()
    for value in instance._values.values():
        if isinstance(value, Instance):
            yield from traced_in(value)


def holds_arrays(value: Any) -> bool:
    """Whether a value is an array, or a struct that holds one."""
    if isinstance(value, Instance):
        return any(isinstance(leaf, array) for leaf in value._leaves())
    return isinstance(value, array) or is_picked(value)


def cleared(instance: Instance) -> Instance:
    """A struct of the same kind whose numbers are zero, without arrays."""
    result = type(instance)()
    for entry in result._struct.fields:
        inner = result._values[entry.name]
        zero = cleared(inner) if isinstance(inner, Instance) else _initial(replace(entry, default=None))
        result._values[entry.name] = zero
    return result


def class_of(struct: Struct) -> type[Instance]:
    """The class that makes structs of a definition: one for each, defaults and their origins included."""
    defaults = [entry.default for entry in _all_fields(struct)]
    cls: type[Instance] = _class(struct, repr([struct.doc, *defaults]), origins(defaults))
    return cls


def _is_number_of_floats(type: Any) -> bool:
    return isinstance(type, Scalar | Vec | Mat) and is_differentiable(type)


def _element_of(single: array) -> Any:
    """The number in an array of one element, or its vector as a view of it, so that both stay the same."""
    element = single.host()[0]
    return view_of(single.dtype, element) if element.ndim else element.item()


def _reader(name: str) -> property:
    def read(instance: Instance) -> Any:
        if name in instance._without:
            raise _no_gradient(instance, name)
        return _taken(instance, name)

    return property(read)


def _taken(instance: Instance, name: str) -> Any:
    """The value of a field for the host: where it requires gradients it remembers where it comes from.

    A vector of such a field is a view of it, as `numpy` gives, so that tapes notice components that are set.
    """
    value, single = instance._values[name], instance._traced.get(name)
    if single is None:
        return value
    if isinstance(value, np.ndarray):
        return view_of(single.dtype, single.numpy()[0])
    return traced(value, look_at(single))


READING = _reader("").fget.__code__  # type: ignore[union-attr]


def _no_gradient(instance: Instance, name: str) -> TapeError:
    if isinstance(instance._entry(name).type, Array | StructArray):
        why = "its array does not require gradients"
        hint = (
            f"set s.{name}.requires_grad = True, where s is the struct, before it is launched: "
            "s.requires_grad is that of numbers and vectors"
        )
    else:
        why = "it was passed as a plain value"
        hint = (
            "set s.requires_grad = True, where s is the struct, before it is launched; "
            f"or let an array stand for the field: s.{name} = kl.array([...], requires_grad=True)"
        )
    message = f"the field {name} of this {instance._struct} has no gradient: {why}"
    return refusal(TapeError, message, "no-gradient", hint)


def _copied(value: Any) -> Any:
    if isinstance(value, Instance):
        return value._copy()
    return value.copy() if isinstance(value, np.ndarray) else value


def _gradient(value: Any) -> Any:
    has_gradient = isinstance(value, array) or is_picked(value)
    return value.grad if has_gradient and value.requires_grad else None


class _Class(type):
    """The type of these classes: pickled as their definitions, and as little to be changed as these."""

    __kernelab_struct__: Struct

    def __setattr__(cls, name: str, value: Any) -> None:
        struct = vars(cls).get("__kernelab_struct__", value)  # cloudpickle sets what a new one has
        is_harmless = callable(value) or hasattr(type(value), "__get__") or name.startswith("__")
        if name == "__kernelab_struct__":
            is_harmless = value == struct
        elif isinstance(struct, Struct) and struct.index(name) is not None:
            is_harmless = getattr(getattr(value, "fget", None), "__code__", None) == READING
        if not is_harmless:
            message = f"{name} is set on the struct {struct} itself, whose definition kernels hold"
            hint = f"change the definition and run it again, or set {name} in one of them: p.{name} = ..."
            raise KernelTypeError.of(message, "field", hint)
        super().__setattr__(name, value)


def _reduced(cls: Any) -> Any:
    return class_of, (cls.__kernelab_struct__,)


copyreg.pickle(_Class, _reduced)


@cache
def _class(struct: Struct, details: str, _sources: Origins) -> Any:
    body: dict[str, Any] = {"__slots__": (), "__kernelab_struct__": struct, "__doc__": struct.doc or None}
    # A field comes before whatever else structs have: `copy` and `grad` are good names of fields.
    body |= {entry.name: _reader(entry.name) for entry in struct.fields}
    return _Class(struct.name, (Instance,), body)


def _restored(struct: Struct, values: dict[str, Any]) -> Instance:
    instance = class_of(struct)()
    instance._values.update(values)
    return instance


def _all_fields(struct: Struct) -> list[Field]:
    inner = [
        part for entry in struct.fields if isinstance(entry.type, Struct) for part in _all_fields(entry.type)
    ]
    return [*struct.fields, *inner]


def _initial(entry: Field) -> Any:
    return class_of(entry.type)() if isinstance(entry.type, Struct) else initial(entry)


def _converted(entry: Field, value: Any, struct: str) -> Any:
    if isinstance(entry.type, Struct) and isinstance(value, Instance) and value._struct == entry.type:
        return value._copy()
    return field_value(entry, value, struct)


def _shown(value: Any) -> str:
    if isinstance(value, array) or is_picked(value):
        return f"<{value.type} of shape {value.shape}>"
    return str(value.tolist()) if isinstance(value, np.ndarray) else repr(value)
