"""Vectors, matrices, quaternions and transforms on the host: NumPy arrays with the language's operators.

To functions of NumPy they are arrays, and what those give are arrays.  Operators mean what they mean in a
kernel: they are looked up in the table, so that `*` multiplies matrices and quaternions.  The type of a value
is read off its class, its NumPy dtype and its shape, so copies, slices and pickles need no care.  Knows the
types and the table; must not know arrays of kernelab.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from kernelab.errors import KernelError, KernelTypeError, KernelValueError, KernelZeroDivisionError, type_name
from kernelab.host.traced import TracedArray, changed, follow, origins, traced, untraced
from kernelab.lang import ops
from kernelab.lang.operators import ARITHMETIC, SYMBOLS, UNARY
from kernelab.lang.rounding import BFLOAT16, computed, rounded, widened
from kernelab.lang.types import (
    BY_DTYPE,
    LARGEST,
    Mat,
    Quat,
    Scalar,
    Transform,
    Type,
    Value,
    Vec,
    float32,
    float64,
    scalar_of,
    with_scalar,
)

Host = np.ndarray[Any, Any]

_LETTERS = "xyzw"


class NoComponent(KernelError, AttributeError):
    """A component that a value does not have."""


def _binary(name: str) -> tuple[Any, Any]:
    """The methods of a binary operator: with the value to the left, and to the right."""
    return (lambda self, other: _operate(name, self, other)), (
        lambda self, other: _operate(name, other, self)
    )


def _sign(name: str) -> Any:
    return lambda self: _operate(name, self)


class HostValue(TracedArray):
    """A vector, matrix, quaternion or transform on the host, such as `kl.vec3(1.0, 2.0, 3.0)`.

    ``v.x``, ``v.xz``, ``v[0]`` and ``v[1:]`` read components, ``v.x = 1.0`` and ``v[0] = 1.0`` set them;
    ``==`` compares whole values, also with tuples.  ``v += w`` makes a new value, as in a kernel.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init_subclass__(cls) -> None:
        cls._stands_for = cls

    @property
    def type(self) -> Vec | Mat | None:
        """The kernel type; None where a view of NumPy's has no longer the shape of one."""
        kind: Any = self.__class__
        return _type(kind, self.dtype, self.shape)

    # -------------------------------------------------------------------------------------- NumPy

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, _memo: Any) -> Any:
        return self.copy()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return np.ndarray.__reduce_ex__(self, protocol)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        operator = _OPERATORS.get(ufunc)
        # `number * v` asks a number of NumPy's first, which asks this.
        if (
            operator is not None
            and method == "__call__"
            and isinstance(inputs[0], np.generic)
            and not options
        ):
            return _operate(operator, *inputs)
        return super().__array_ufunc__(ufunc, method, *inputs, **options)

    # -------------------------------------------------------------------------------------- components

    def __getitem__(self, key: Any) -> Any:
        if self.type is None:
            return super().__getitem__(key)
        item = np.asarray(self)[key]
        return traced(_part(item) if isinstance(item, np.ndarray) else item, self._origins)

    def __setitem__(self, key: Any, value: Any) -> None:
        type = self.type
        if type is None:
            super().__setitem__(key, value)
            return
        if not self.flags.writeable:
            message = f"this {type} is a copy of an element: setting a component would not change the array"
            hint = "write x[i] = ..., or v = x[i].copy(), change v, and x[i] = v"
            raise KernelTypeError.of(message, "element", hint)
        items = widened(np.asarray(untraced(value)))
        if items.dtype.kind not in ("biuf" if type.scalar.is_float else "biu"):
            message = f"{value!r} cannot be a component of a {type}"
            raise KernelTypeError.of(message, "value", f"give a number of {type.scalar}")
        try:
            np.asarray(self)[key] = rounded(items, self.dtype)
            changed(self, origins(value))
        except ValueError:
            message = f"components of a {type} cannot be set to numbers of shape {items.shape}"
            raise KernelValueError.of(message, "shape", "give as many as are set") from None

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self)))

    def __getattr__(self, name: str) -> Any:
        places = _places(self.type, name)
        return self[places[0]] if len(name) == 1 else traced(_part(np.asarray(self)[places]), self._origins)

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(self.__class__, name):
            super().__setattr__(name, value)
            return
        places = _places(self.type, name)
        if len(set(places)) < len(places):
            hint = "set each component once"
            raise KernelTypeError.of(f"{name} names a component of the {self.type} twice", "name", hint)
        if len(places) == 1:
            self[places[0]] = value
        else:
            self[places] = follow(np.broadcast_to(np.asarray(untraced(value)), (len(places),)), value)

    # -------------------------------------------------------------------------------------- text

    def __repr__(self) -> str:
        type = self.type
        if type is None:
            return repr(np.asarray(self))
        return f"{type}({_listed(self, '[]')})" if isinstance(type, Mat) else f"{type}{_listed(self, '()')}"

    def __str__(self) -> str:
        if self.type is None:
            return str(np.asarray(self))
        if isinstance(self.type, Mat):
            return "[" + ",\n ".join(map(str, self)) + "]"  # a row a line, as NumPy does
        return _listed(self, "[]")

    def __format__(self, spec: str) -> str:
        if not spec or self.type is None:
            return format(str(self), spec)
        return f"[{', '.join(format(part, spec) for part in self)}]"

    # -------------------------------------------------------------------------------------- operators

    def __eq__(self, other: Any) -> Any:
        if self.type is None or (isinstance(other, np.ndarray) and type_of(other) is None):
            return np.asarray(self) == np.asarray(other)
        if isinstance(other, HostValue) and other.__class__ is not self.__class__:
            return False
        if not isinstance(other, np.ndarray | list | tuple):
            return False
        try:
            same = np.asarray(other)
        except ValueError:
            return False
        return same.shape == self.shape and bool(np.all(np.asarray(self) == same))

    def __ne__(self, other: Any) -> Any:
        equal = self == other
        return not equal if isinstance(equal, bool) else ~equal

    def __radd__(self, other: Any) -> Any:
        if other.__class__ is int and other == 0:
            return self.copy()  # Python's sum() starts with it
        return _operate("add", other, self)

    __neg__, __pos__, __abs__ = _sign("neg"), _sign("pos"), _sign("abs")
    __add__ = _binary("add")[0]
    __sub__, __rsub__ = _binary("sub")
    __mul__, __rmul__ = _binary("mul")
    __truediv__, __rtruediv__ = _binary("div")
    __floordiv__, __rfloordiv__ = _binary("floordiv")
    __mod__, __rmod__ = _binary("mod")
    __pow__, __rpow__ = _binary("pow")
    __matmul__, __rmatmul__ = _binary("matmul")
    # An operator with assignment makes a new value: other names of the old one keep it.
    __iadd__, __isub__, __imul__, __itruediv__ = __add__, __sub__, __mul__, __truediv__
    __ifloordiv__, __imod__, __ipow__, __imatmul__ = __floordiv__, __mod__, __pow__, __matmul__


class Vector(HostValue):
    """A vector on the host."""

    __slots__ = ()


class Quaternion(HostValue):
    """A quaternion on the host: x, y, z, w."""

    __slots__ = ()


class Transformation(HostValue):
    """A rigid motion on the host: its translation `p`, then its rotation `q`."""

    __slots__ = ()

    @property
    def p(self) -> Any:
        """The translation; a part of this value."""
        return self[:3]

    @p.setter
    def p(self, translation: Any) -> None:
        self[:3] = translation

    @property
    def q(self) -> Any:
        """The rotation; a part of this value."""
        return traced(np.asarray(self)[3:].view(Quaternion), self._origins)

    @q.setter
    def q(self, rotation: Any) -> None:
        self[3:] = rotation


class Matrix(HostValue):
    """A matrix on the host: ``m[i]`` is a row, a part of it."""

    __slots__ = ()

    def get_row(self, row: int) -> Any:
        """A row, as a part of this value."""
        return self[row]

    def get_col(self, column: int) -> Any:
        """A column, as a part of this value."""
        return self[:, column]

    def set_row(self, row: int, values: Any) -> None:
        """Set the entries of a row; raises KernelValueError for another number of them."""
        self[row] = values

    def set_col(self, column: int, values: Any) -> None:
        """Set the entries of a column; raises KernelValueError for another number of them."""
        self[:, column] = values


_CLASSES: dict[Any, type[HostValue]] = {
    Vec: Vector, Quat: Quaternion, Transform: Transformation, Mat: Matrix
}  # fmt: skip


def value_of(type: Type, numbers: Any) -> Any:
    """A host value of a type, of an array of its shape and dtype.

    It owns its memory: what changes a view of it finds it as the base of that.
    """
    kind = _CLASSES.get(type.__class__)
    return numbers[()] if kind is None else numbers.view(kind).copy()


def view_of(type: Type, numbers: Host) -> Any:
    """A host value over the memory of an array."""
    return numbers.view(_CLASSES[type.__class__])


def frozen(type: Type, numbers: Host) -> Any:
    """A host value whose components cannot be set, because that would not change what it was read from."""
    numbers.flags.writeable = False
    return view_of(type, numbers)


def as_components(value: Any, scalar: Scalar) -> Host:
    """Numbers in the dtype of a scalar type; raises what NumPy does."""
    refuse_mask(value)
    return rounded(value, BFLOAT16) if scalar.dtype == BFLOAT16 else np.asarray(value, scalar.dtype)


def type_of(value: Any) -> Vec | Mat | None:
    """The kernel type of a host value; None for anything else."""
    return value.type if isinstance(value, HostValue) else None


@cache
def _type(kind: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Vec | Mat | None:
    scalar = BY_DTYPE.get(dtype)
    if scalar is None or math.prod(shape) > LARGEST:
        return None
    match shape:
        case (4,) if kind is Quaternion:
            return Quat(scalar)
        case (7,) if kind is Transformation:
            return Transform(scalar)
        case (n,) if kind is Vector:
            return Vec(scalar, n)
        case (n, m) if kind is Matrix:
            return Mat(scalar, n, m)
        case _:
            return None


def _part(part: Host) -> Host:
    """Components as a vector or matrix over the same memory."""
    return part.view({1: Vector, 2: Matrix}[part.ndim]) if part.ndim in (1, 2) else part


def _places(type: Vec | Mat | None, name: str) -> list[int]:
    """The components that letters name, such as 0 and 2 for `xz`; raises NoComponent."""
    if name.startswith("_"):
        raise AttributeError(name)
    count = type.n if isinstance(type, Vec) else 0
    places = [_LETTERS.find(letter) for letter in name]
    if count and len(name) <= len(_LETTERS) and all(0 <= place < count for place in places):
        return places
    there = f"it has {', '.join(_LETTERS[:count])}" if count else "write m[i, j] for an entry"
    if not set(name) <= set("xyzwrgba"):
        there = "operations are functions, such as kl.length(v), kl.cross(v, w), kl.inverse(m)"
    raise NoComponent.of(f"{type or 'this array'} has no {name}", "name", there)


def _listed(value: HostValue, brackets: str) -> str:
    parts = (_listed(part, "[]") if isinstance(part, HostValue) else str(part) for part in value)
    return f"{brackets[0]}{', '.join(parts)}{brackets[1]}"


# ------------------------------------------------------------------------------------------ operators


def _operate(name: str, *operands: Any) -> Any:
    """An operator of the language on operands of which one at least is a value."""
    known = [type_of(operand) for operand in operands]
    type = next((one for one in known if one is not None), None)
    others = [operand for operand, one in zip(operands, known, strict=True) if one is None]
    # NumPy adds arrays to values, and multiplies them as matrices: both mean the same there.
    if type is None or (name in ("add", "sub", "matmul") and others and all(map(_is_array, others))):
        return follow(_BY_NUMPY[name](*untraced(operands)), *operands)
    for other in others:
        if _is_array(other):
            raise ambiguous(name, type)
        if isinstance(other, str | list | tuple | dict | complex | None):
            raise unknown(name, type, other)
        if not _is_number(other):
            return NotImplemented
    # A number takes the type of the other operand's components.
    types: list[Value] = [one or type.scalar for one in known]
    if _divides_ints(name, operands, types):
        return _divided(name, operands, types)
    overload = ops.resolve(name, types)
    if overload is None:
        raise no_overload(name, operands, types, known)
    op, result = overload
    numbers = _numbers(operands, types)
    with np.errstate(all="ignore"):
        return follow(value_of(result, computed(op.numpy, numbers, scalar_of(result).dtype)), *operands)


def _divides_ints(name: str, operands: tuple[Any, ...], types: list[Value]) -> bool:
    """Whether vectors or matrices of ints are divided, which kernels do component by component."""
    if name not in ("div", "floordiv", "mod") or not all(scalar_of(type).is_int for type in types):
        return False
    if any(isinstance(x, float | np.floating) for x in operands):
        return False
    return types[0] == types[1] or any(isinstance(type, Scalar) for type in types)


def _divided(name: str, operands: tuple[Any, ...], types: list[Value]) -> Any:
    """Each component by its own: `/` gives floats, and a divisor of 0 is an error."""
    numbers = _numbers(operands, types)
    if not np.all(numbers[1]):
        raise KernelZeroDivisionError.of("integer division by zero", "division")
    scalar = scalar_of(types[0])
    if name == "div":
        scalar = float64 if scalar.bits == 64 else float32
        numbers = [np.asarray(x, scalar.dtype) for x in numbers]
    overload = ops.resolve(name, [scalar, scalar])
    assert overload is not None
    whole = next(type for type in types if isinstance(type, Vec | Mat))
    return value_of(with_scalar(whole, scalar), computed(overload[0].numpy, numbers, scalar.dtype))


_BY_NUMPY = {entry.name: entry.ufunc for entry in (*ARITHMETIC, *UNARY)} | {"abs": np.absolute}
_OPERATORS = {entry.ufunc: entry.name for entry in ARITHMETIC}


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0)


def _numbers(operands: tuple[Any, ...], types: list[Value]) -> list[Any]:
    """The operands as NumPy's arrays and numbers."""
    pairs = zip(operands, types, strict=True)
    return [np.asarray(x) if type_of(x) is not None else _number(x, type) for x, type in pairs]


def _number(value: Any, type: Type) -> Any:
    assert isinstance(type, Scalar)
    value = untraced(value)
    array = widened(np.asarray(value))
    if array.dtype.kind not in ("iuf" if type.is_float else "iu"):
        hint = f"write int({value}) to cut it off" if array.dtype.kind == "f" else "give a number"
        raise KernelTypeError.of(f"{value} cannot stand for {type}", "value", hint)
    try:
        return as_components(value, type)
    except OverflowError:
        raise KernelValueError.of(f"{value} does not fit {type}", "range") from None


# ----------------------------------------------------------------------------------- operands that do not fit


_SUMS = ("add", "sub")

Known = Sequence[Vec | Mat | None]
"""The type of each operand; None for what is a number."""


def no_overload(name: str, operands: Sequence[Any], types: Sequence[Type], known: Known) -> KernelTypeError:
    """No operation takes operands of these types."""
    shown = [
        str(x) if kind is None else str(type) for x, type, kind in zip(operands, types, known, strict=True)
    ]
    if len(shown) == 1:
        return KernelTypeError.of(f"{name} takes no {shown[0]}", "overload")
    message = f"{SYMBOLS[name]} does not take {' and '.join(shown)}"
    return KernelTypeError.of(message, "overload", _hint(name, operands, types, known))


def _hint(name: str, operands: Sequence[Any], types: Sequence[Type], known: Known) -> str:
    whole = next(type for type in known if type is not None)
    if None in known:
        number = operands[known.index(None)]
        return f"write kl.{whole}({number}) for the same number in every component" if name in _SUMS else ""
    if len({type.scalar for type in known if type is not None}) > 1:
        return "write kl.vec3d(v), or the like, to give both the same numbers"
    vectors = all(type.__class__ is Vec for type in types)
    if vectors and name in ("mul", "div"):
        return f"write kl.dot(a, b), or kl.cw_{name}(a, b) for component by component"
    if name == "matmul":
        return "write kl.dot(a, b)" if vectors else "write *"
    return "kl.transform_point(t, v) moves a point" if isinstance(types[0], Transform) else ""


def unknown(name: str, type: Type | None, other: object) -> KernelTypeError:
    """The other operand is not a value at all."""
    kind = "None" if other is None else f"a {type_name(other)}"
    hint = f"make a value of it: kl.{type}(...)" if isinstance(other, list | tuple) else ""
    return KernelTypeError.of(f"{SYMBOLS[name]} does not take {type} and {kind}", "overload", hint)


def ambiguous(name: str, type: Type | None) -> KernelTypeError:
    """The other operand is an array of NumPy, which multiplies by components."""
    message = f"{SYMBOLS[name]} of a {type} and a NumPy array could mean two things"
    hint = f"write kl.{type}(...) for the language's, np.asarray(v) for component by component"
    return KernelTypeError.of(message, "overload", hint)


def refuse_mask(data: Any) -> None:
    """Raise KernelTypeError for a masked array, or a list of them, of which something is masked."""
    several = isinstance(data, list | tuple) and data and isinstance(data[0], np.ndarray)
    for part in data if several else [data]:
        if isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part):
            count = np.count_nonzero(part.mask)
            message = f"{count} of {part.size} elements are masked, and arrays of kernelab have no masks"
            hint = "fill them in: x.filled(0.0); where the mask matters pass it along: kl.array(x.mask)"
            raise KernelTypeError.of(message, "data", hint)
