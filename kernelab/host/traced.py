"""Provenance of host numbers: subclasses of float, complex, NumPy scalars and ndarray that carry origins.

    v = traced(1.5, origins)          a float in every other respect
    2.0 * v, np.sqrt(v), v ** 2       have the same origins; v > 1.0, int(v), round(v) are plain

A function whose derivative is zero everywhere ends them: comparisons, integers, `np.floor`.  An array that it
gives is marked as CONSTANT.  `math`, `float()` and `complex()` give plain numbers.  What an origin is, is not
known here.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self
from weakref import ReferenceType, ref

import numpy as np

from kernelab.hooks import filled
from kernelab.lang.rounding import BFLOAT16

MOST = 4
"""How many origins a number remembers."""


Origins = tuple[ReferenceType[Any], ...]
"""Where numbers come from; the maker of an origin decides how long it matters."""


class Traced:
    """A base of all numbers with origins."""

    __slots__ = ()

    _origins: Origins = ()
    _stands_for: type

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return _computed(ufunc, method, inputs, options)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _applied(func, args, kwargs)


class _Constant:
    """The origin of arrays that are computed from traced numbers by functions whose derivative is zero."""

    __slots__ = ("__weakref__",)


_THE_CONSTANT = _Constant()
CONSTANT: Origins = (ref(_THE_CONSTANT),)
"""The origins of such an array."""

_PLAIN = frozenset((float, int, bool, complex, np.float32, np.float64))
"""The most frequent kinds of numbers that have no origins."""


def origins(*values: Any) -> Origins:
    """The origins of numbers, of those in lists, tuples and dicts too, as far as they still matter.

    An array of kernelab's says by `__origins__` what its numbers come from, now that the host takes them.
    """
    sources: Origins = ()
    for value in values:
        if value.__class__ in _PLAIN:
            continue
        if isinstance(value, Traced):
            sources += value._origins
        elif value.__class__ is np.ndarray and isinstance(value.base, TracedArray):
            sources += value.base._origins  # a plain view by `asarray`
        elif value.__class__ in (list, tuple):
            sources += origins(*value)
        elif value.__class__ is dict:
            sources += origins(*value.values())
        elif hasattr(value.__class__, "__origins__"):
            sources += value.__origins__()
    return _that_matter(sources) if sources else sources


def _that_matter(sources: Origins) -> Origins:
    # By identity: a reference to what has gone away has no hash.
    alive = {id(origin): origin for origin in sources if origin() is not None}
    if len(alive) > 1:
        alive.pop(id(CONSTANT[0]), None)
    return tuple(alive.values())[:MOST]


def traced(value: Any, sources: Origins) -> Any:
    """A result that knows what it comes from: floats, arrays of floats, and those in lists and tuples."""
    if not sources:
        return value
    base = value.__class__
    if base in _NUMBERS:
        number = _NUMBERS[base]._over.__new__(_NUMBERS[base], value)
        number._origins = sources
        return number
    if isinstance(value, np.ndarray):
        return _traced_array(value, sources)
    if isinstance(value, list | tuple):
        parts = [traced(part, sources) for part in value]
        return value.__class__(*parts) if hasattr(value, "_fields") else value.__class__(parts)
    return value


def follow(value: Any, *operands: Any) -> Any:
    """A result that comes from where its operands come from."""
    return traced(value, origins(*operands))


def untraced(value: Any) -> Any:
    """The same numbers without origins, over the same memory; those in lists, tuples and dicts too."""
    if value.__class__ in _PLAIN:
        return value
    if isinstance(value, TracedArray):
        return value.view(np.ndarray)
    if isinstance(value, TracedNumber | TracedFlat):
        return value._plain()
    if value.__class__ in (list, tuple):
        return value.__class__([untraced(part) for part in value])
    if value.__class__ is dict:
        return {name: untraced(part) for name, part in value.items()}
    return value


def _traced_array(values: Any, sources: Origins) -> Any:
    if not isinstance(values, Traced):
        if values.__class__ is not np.ndarray or values.dtype.kind not in "fcbiuV":
            return values  # another library's, which knows better what its results are
        values = values.view(TracedArray)
    values._origins = _of_kind(values, sources)
    return values


def _of_kind(values: Any, sources: Origins) -> Origins:
    """The origins of an array: integers and truth values have no derivatives; text and objects may have."""
    return CONSTANT if sources and values.dtype.kind in "biu" else sources


def _computed(ufunc: Any, method: str, inputs: Any, options: dict[str, Any]) -> Any:
    """Apply a function of NumPy's to numbers with origins."""
    out = options.pop("out", ())
    sources = origins(*inputs, options)
    options = untraced(options) | ({"out": untraced(out)} if out else {})
    result = getattr(ufunc, method)(*untraced(inputs), **options)
    if method == "at":
        changed(inputs[0], sources)
        return result
    if ufunc in FLAT:
        sources = CONSTANT if sources else ()
    for target in out:
        changed(target, sources)
    if len(out) == 1:
        return out[0] if isinstance(out[0], Traced) else traced(result, sources)
    return traced(result, sources)


def changed(target: Any, sources: Origins) -> None:
    """Update the origins of a target of which some elements were assigned, and of what it is a view of."""
    while sources and isinstance(target, np.ndarray):
        if isinstance(target, TracedArray) and target.dtype.kind in "fc":
            target._origins = _that_matter((*sources, *target._origins))
        target = target.base
    memory = getattr(target, "allocation", None) if sources else None
    if memory is not None:
        filled(memory, sources)


def _changed_out(result: Any, given: Sequence[Any], plain: Sequence[Any], sources: Origins) -> None:
    """Update the origins of an argument that a function has written to and returned: its `out`."""
    for one, seen in zip(given, plain, strict=True):
        if seen is result:
            changed(one, sources)


FLAT = frozenset((np.sign, np.floor, np.ceil, np.trunc, np.rint, np.heaviside))
"""Functions whose derivative is zero wherever there is one."""

_SHAPED_LIKE: frozenset[Any] = frozenset((np.zeros_like, np.ones_like, np.empty_like))
"""Functions that look at the shape of their argument, not at its numbers."""


# ------------------------------------------------------------------------------------------ numbers


class TracedNumber(Traced):
    """A number with origins.  Copies and pickles of it are plain."""

    __slots__ = ()

    def _plain(self) -> Any:
        raise NotImplementedError

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: Any) -> Self:
        return self

    def __round__(self, digits: Any = None) -> Any:
        result = round(self._plain(), digits)
        return traced(result, self._origins) if digits is not None else result


def _following(compute: Callable[..., Any]) -> Callable[..., Any]:
    """A method whose results come from where the number and its arguments come from."""

    def computed(self: Any, *others: Any, **options: Any) -> Any:
        sources, plain, named = origins(self, *others), untraced(others), untraced(options)
        result = compute(untraced(self), *plain, **named)
        _changed_out(result, (*others, *options.values()), (*plain, *named.values()), sources)
        return traced(result, sources)

    return computed


def _operators(compute: Callable[[Any, Any], Any], types: tuple[type, ...]) -> tuple[Any, Any]:
    """A binary operator from both sides; operands of other kinds may know what it means."""

    def ahead(self: Any, other: Any) -> Any:
        if other.__class__ not in types and not isinstance(other, Traced | np.generic):
            return NotImplemented
        return traced(compute(untraced(self), untraced(other)), origins(self, other))

    def behind(self: Any, other: Any) -> Any:
        if other.__class__ not in types and not isinstance(other, Traced | np.generic):
            return NotImplemented
        return traced(compute(untraced(other), untraced(self)), origins(self, other))

    return ahead, behind


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "divmod": divmod, "pow": operator.pow,
}  # fmt: skip
_OPERANDS = (bool, int, float, complex, np.ndarray)
_SIGNS = ("__neg__", "__pos__", "__abs__")
_METHODS = (
    *("item", "tolist", "astype", "sum", "mean", "prod", "min", "max", "round", "clip", "squeeze", "copy"),
    *("conj", "conjugate", "cumsum", "cumprod", "flatten", "ravel", "repeat", "reshape", "take", "transpose"),
    *("std", "var"),
)
_PARTS = ("real", "imag")


def _follow_methods(kind: Any, base: Any, names: Iterable[str]) -> None:
    for name in names:
        setattr(kind, name, _following(getattr(base, name)))


def _follow_parts(kind: Any, base: Any) -> None:
    for name in _PARTS:
        setattr(kind, name, property(_following(getattr(base, name).__get__)))


def _follow_operators(kind: Any, types: tuple[type, ...]) -> None:
    for name, compute in _BINARY.items():
        ahead, behind = _operators(compute, types)
        setattr(kind, f"__{name}__", ahead)
        setattr(kind, f"__r{name}__", behind)


def _number_of(base: Any, over: Any = None) -> Any:
    """The class of numbers of a type of Python's or NumPy's with origins: of `float` it is `TracedFloat`.

    It is a subclass of the type, or of another one, `over`, that holds its numbers.
    """
    over = over or base

    def made(cls: Any, *values: Any, **named: Any) -> Any:
        return follow(base(*untraced(values), **untraced(named)), values, named)

    def reduce(self: Any, _protocol: Any) -> Any:
        return base, (self._plain(),)

    members = {
        "__slots__": ("_origins",), "__new__": made, "__module__": __name__, "__hash__": over.__hash__,
        "_plain": over.__pos__ if over is base else lambda self: base(over.__pos__(self)), "_over": over,
        "__reduce_ex__": reduce, "__copy__": TracedNumber.__copy__, "__deepcopy__": TracedNumber.__deepcopy__,
        "__round__": TracedNumber.__round__, "_stands_for": base,
    }  # fmt: skip
    # NumPy takes the first base for the kind of number that this is.
    kind: Any = type(f"Traced{base.__name__.capitalize()}", (over, TracedNumber), members)
    _follow_methods(kind, base, [name for name in (*_SIGNS, *_METHODS) if hasattr(base, name)])
    _follow_parts(kind, base)
    _follow_operators(kind, (*_OPERANDS, list, tuple) if issubclass(base, np.generic) else _OPERANDS)
    return kind


_FLOATS = (float, np.float16, np.float32, np.float64, np.longdouble)
_COMPLEX = (complex, np.complex64, np.complex128, np.clongdouble)
_NUMBERS: dict[Any, Any] = {base: _number_of(base) for base in (*_FLOATS, *_COMPLEX)}
if not BFLOAT16.names:
    _BRAIN = _NUMBERS[BFLOAT16.type] = _number_of(BFLOAT16.type, np.float32)  # itself it has no subclasses
    _BRAIN.dtype = property(lambda _: BFLOAT16)
    _BRAIN.__repr__, _BRAIN.__str__ = (lambda v: repr(v._plain())), (lambda v: str(v._plain()))
    _BRAIN.__format__ = lambda v, spec: format(v._plain(), spec)


# ------------------------------------------------------------------------------------------ arrays


class TracedArray(Traced, np.ndarray[Any, Any]):
    """An array of NumPy's with origins.  It prints and pickles as a plain one."""

    __slots__ = ("_origins",)
    _stands_for = np.ndarray

    def __array_finalize__(self, source: Any) -> None:
        self._origins = _of_kind(self, getattr(source, "_origins", ()))

    def __getitem__(self, key: Any) -> Any:
        item = super().__getitem__(key)
        return item if isinstance(item, np.ndarray) else traced(item, origins(self))

    def __setitem__(self, key: Any, value: Any) -> None:
        self.view(np.ndarray)[key] = untraced(value)
        changed(self, origins(value))

    def fill(self, value: Any) -> None:
        """Set every element to a number."""
        self[...] = value

    def put(self, indices: Any, values: Any, mode: Any = "raise") -> None:
        """Set the elements of the flat indices to numbers."""
        np.put(self, indices, values, mode)

    def setfield(self, value: Any, dtype: Any, offset: Any = 0) -> None:
        """Set the bytes of every element, from an offset on, to a number of some dtype."""
        self.view(np.ndarray).setfield(untraced(value), dtype, offset)
        changed(self, origins(value))

    @property
    def flat(self) -> Any:
        """The elements one by one, which come from where the array comes from."""
        return TracedFlat(self)

    @flat.setter
    def flat(self, values: Any) -> None:
        self.flat[:] = values

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __str__(self) -> str:
        return str(self.view(np.ndarray))

    def __format__(self, spec: str) -> str:
        return format(self.view(np.ndarray), spec)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.view(np.ndarray).__reduce_ex__(protocol)


class TracedFlat(Traced):
    """The elements of an array with origins, in order: its `flat`."""

    __slots__ = ("_array", "_flat")
    _stands_for = np.flatiter

    def __init__(self, elements: TracedArray) -> None:
        self._array = elements
        self._flat = elements.view(np.ndarray).flat

    @property
    def _origins(self) -> Origins:  # type: ignore[override]  # those that the array has by now
        return self._array._origins

    def _plain(self) -> Any:
        return self._flat

    @property
    def base(self) -> Any:
        return self._array

    @property
    def coords(self) -> tuple[int, ...]:
        """The indices of the next element."""
        place: tuple[int, ...] = self._flat.coords
        return place

    @property
    def index(self) -> int:
        """The position of the next element."""
        return self._flat.index

    def __len__(self) -> int:
        return len(self._flat)

    def __iter__(self) -> "TracedFlat":
        return self

    def __next__(self) -> Any:
        return traced(next(self._flat), self._origins)

    def __getitem__(self, key: Any) -> Any:
        return traced(self._flat[untraced(key)], self._origins)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._flat[key] = untraced(value)
        changed(self._array, origins(value))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return traced(np.array(self._flat, dtype), self._origins)

    def copy(self) -> Any:
        """The elements as an array of one axis."""
        return traced(self._flat.copy(), self._origins)


for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
    setattr(TracedFlat, _name, _following(getattr(np.flatiter, _name)))


def _applied(func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
    """Apply one of NumPy's functions of arrays to numbers with origins."""
    options, plain = dict(kwargs), untraced(args)
    named = untraced(options)
    result = func(*plain, **named)
    if func in _SHAPED_LIKE:
        return traced(result, CONSTANT if origins(args) else ())
    if func is np.full_like:
        return follow(result, args[1:], options.get("fill_value"))
    sources = origins(args, options)
    _changed_out(result, (*args, *options.values()), (*plain, *named.values()), sources)
    if result is None:  # as of np.put, np.place and np.copyto, which change their first argument
        changed(args[0] if args else options.get("dst", options.get("a", options.get("arr"))), sources)
    return traced(result, sources)


def _settable_part(base: Any) -> property:
    """The real or imaginary parts of an array, a view of it."""

    def assign(self: TracedArray, values: Any) -> None:
        base.__set__(self.view(np.ndarray), untraced(values))
        changed(self, origins(values))

    return property(base.__get__, assign)


for _name in _PARTS:
    setattr(TracedArray, _name, _settable_part(getattr(np.ndarray, _name)))

_follow_methods(
    TracedArray,
    np.ndarray,
    ("item", "tolist", "sum", "mean", "var", "std", "prod", "min", "max", "trace", "dot", "round", "take"),
)
