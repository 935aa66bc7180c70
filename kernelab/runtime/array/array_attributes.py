"""Attributes of `array` other than its elements: operators, annotations, and messages for missing attributes.

``==`` compares elements: the package itself compares arrays by ``is``, and as keys of a dict they count by
identity.  The frontend reads annotations from the text of a kernel; here Python only evaluates the same
text.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, get_args

from kernelab import hooks
from kernelab.data_classes import dataclass
from kernelab.errors import (
    Diagnostic,
    KernelAttributeError,
    KernelError,
    KernelTypeError,
    KernelValueError,
    counted,
)
from kernelab.guidance.hint_tables import ARRAYS, FIXED, KERNELS, Offers
from kernelab.host.single import Single
from kernelab.runtime.context.conversion import array_type, value_type

Binary = Callable[[Any, Any], Any]


def _arithmetic(symbol: str) -> tuple[Binary, Binary, Binary]:
    """The methods of a binary operator: with the array to the left, to the right, and in place."""

    def operator(self: Any, other: Any) -> Any:
        return hooks.operate(symbol, (self, other))

    def reflected(self: Any, other: Any) -> Any:
        return hooks.operate(symbol, (other, self))

    def in_place(self: Any, other: Any) -> Any:
        return hooks.change(symbol, self, other)

    operator.__doc__ = f"A new array of ``self {symbol} other``, element by element."
    reflected.__doc__ = f"A new array of ``other {symbol} self``, element by element."
    in_place.__doc__ = f"Set each element to ``self {symbol} other``."
    return operator, reflected, in_place


def _comparison(symbol: str) -> Binary:
    return _arithmetic(symbol)[0]


def _sign(symbol: str) -> Callable[[Any], Any]:
    def operator(self: Any) -> Any:
        return hooks.operate(symbol, (self,))

    operator.__doc__ = f"A new array of {symbol} of each element."
    return operator


class Arithmetic:
    """The operators of arrays: all but ``@`` element by element, with arrays and numbers."""

    __slots__ = ()

    __array_priority__ = 1000
    """NumPy leaves ``values + x`` to an array `x`."""

    __add__, __radd__, __iadd__ = _arithmetic("+")
    __sub__, __rsub__, __isub__ = _arithmetic("-")
    __mul__, __rmul__, __imul__ = _arithmetic("*")
    __truediv__, __rtruediv__, __itruediv__ = _arithmetic("/")
    __floordiv__, __rfloordiv__, __ifloordiv__ = _arithmetic("//")
    __mod__, __rmod__, __imod__ = _arithmetic("%")
    __pow__, __rpow__, __ipow__ = _arithmetic("**")

    __eq__, __ne__ = _comparison("=="), _comparison("!=")
    __lt__, __le__ = _comparison("<"), _comparison("<=")
    __gt__, __ge__ = _comparison(">"), _comparison(">=")
    __neg__, __pos__, __abs__ = _sign("-"), _sign("+"), _sign("abs")
    __hash__ = object.__hash__

    def __matmul__(self, other: Any) -> Any:
        """The product of matrices and vectors, as NumPy's; of two vectors, an array of one element."""
        return hooks.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        """The product with the array to the right."""
        return hooks.matmul(other, self)

    def __bool__(self) -> bool:
        """The truth of the only element; raises KernelValueError for an array of more, or of none."""
        elements: Any = self
        if elements.size == 1:
            return bool(elements.flatten()[0])
        message = f"an array of {elements.size} elements is neither true nor false"
        hint = "write x.numpy().all() or .any(); x.size > 0, or x is not None, where that is meant"
        raise KernelValueError(Diagnostic(message, code="truth", hint=hint))


# ------------------------------------------------------------------------------------------------- attributes


class FixedAttribute(KernelError, AttributeError):
    """An attribute of an array that cannot be assigned."""


@lru_cache
def _fixed(name: str) -> str:
    return FIXED.hint(name)


class Fixed:
    """The part of an array that refuses to become another one."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        hint = _fixed(name)
        if hint:
            message = f"the {name} of an array cannot be assigned"
            raise FixedAttribute(Diagnostic(message, hint=hint, code="attribute"))
        try:
            object.__setattr__(self, name, value)
        except AttributeError as error:
            # One frame, this one: there is no such name.  Otherwise a setter has run, and knows better.
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            message = f"an array has no {name} that could be assigned"
            raise KernelAttributeError.of(message, None, name, dir(self)) from None


# ------------------------------------------------------------------------------------------- attribute hints


class KernelHints(Offers, Single):
    """The part of a kernel that answers what it has not."""

    OFFERED = (
        *("doc", "effects", "jvp", "loops", "name", "primal", "source", "span", "textbook", "vjp", "widened"),
    )

    def __getattr__(self, name: str) -> Any:
        """Raises KernelAttributeError that says what to write instead."""
        raise KernelAttributeError.of(f"a kernel has no {name}", KERNELS.hint(name) or None, name, dir(self))


class Hints(Offers):
    """The part of an array that answers what it has not."""

    __slots__ = ()
    OFFERED = (
        *("T", "assign", "astype", "capacity", "contiguous", "copy", "mean", "sum", "to_numpy", "tolist"),
        *("device", "dtype", "fill_", "flatten", "grad", "is_contiguous"),
        *("item", "list", "mark_read", "mark_write", "ndim", "numpy", "pinned", "ptr", "requires_grad"),
        *("reshape", "retain_grad", "shape", "size", "strides", "to", "transpose", "view", "zero_"),
    )

    def __getattr__(self, name: str) -> Any:
        """Raises KernelAttributeError that says what to write instead."""
        kind: Any = type(self)
        raise KernelAttributeError(*_answer(kind, name).diagnostics)


@lru_cache(maxsize=256)
def _answer(cls: Any, name: str) -> KernelAttributeError:
    # Remembered: libraries ask arrays for many names that they may have.
    return KernelAttributeError.of(f"an array has no {name}", ARRAYS.hint(name) or None, name, cls.OFFERED)


# ---------------------------------------------------------------------------------- annotations of parameters


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The annotation of a parameter whose type the arguments decide, or that no kernel takes."""

    text: str
    dtype: Any = Any
    ndim: int = 0

    def __repr__(self) -> str:
        return self.text


def is_any(dtype: Any) -> bool:
    """Whether this stands for any type."""
    return dtype is Any or isinstance(dtype, TypeVar | AnyOf)


def array_annotation(dtype: Any, ndim: int) -> Any:
    """The annotation of arrays of a dtype: their type, or with `Any` what stands for several."""
    if isinstance(dtype, tuple) and len(dtype) == 2:
        dtype, literal = dtype
        ndim = next(iter(get_args(literal)), literal)  # ``array[float, Literal[2]]``, too
    if is_any(dtype):
        return AnyOf(f"array{'' if ndim == 1 else f'{ndim}d'}[{_named(dtype)}]", dtype, ndim)
    elem = value_type(float if dtype is None else dtype)
    try:
        return array_type(elem, ndim)
    except KernelTypeError:
        # The kernel that has this parameter says so, at its line; the module around it goes on.
        return AnyOf(f"array[{elem}]", elem, ndim)


class Ranked:
    """``array2d(...)`` makes an array of so many dimensions; ``array2d[float]`` annotates a parameter."""

    def __init__(self, make: Callable[..., Any], word: str, says: str, ndim: int) -> None:
        self._make = make
        self.ndim = ndim
        self.__name__ = self.__kernelab_name__ = name = f"{word}{ndim}d"
        axes = counted(ndim, "dimension")
        self.__doc__ = f"``{name}{says} {axes}, ``{name}[float]`` annotates."

    def __repr__(self) -> str:
        return f"<kernelab {self.__name__}>"

    def __getitem__(self, dtype: Any) -> Any:
        return array_annotation(dtype, self.ndim)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """An array; raises KernelTypeError where the data have another number of dimensions."""
        return self._make(*arguments, **options, ndim=self.ndim)


def shaped_annotation(name: str, extents: tuple[Any, ...], dtype: Any) -> AnyOf | None:
    """The placeholder for a vector or matrix type of an open size or element; None if neither is open."""
    if not any(is_any(part) for part in (*extents, dtype)):
        return None
    return AnyOf(f"{name}[{', '.join(_named(part) for part in (*extents, dtype))}]")


def _named(part: Any) -> str:
    return "Any" if part is Any else getattr(part, "__name__", str(part))


class ref:  # noqa: N801 (in small letters, like `array`)
    """``x: ref[float]``: a parameter that goes back into the variable, element or component of the caller.

    What the function leaves in it goes there when the function returns.  Not for kernels.
    """

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype

    def __class_getitem__(cls, dtype: Any) -> "ref":
        return cls(dtype)

    def __repr__(self) -> str:
        return f"ref[{self.dtype}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ref) and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash(("ref", self.dtype))
