"""Attributes of `array` other than its elements: operators, annotations, gradients, and missing attributes.

``==`` compares elements: the package itself compares arrays by ``is``, and as keys of a dict they count by
identity.  The frontend reads annotations from the text of a kernel; here Python only evaluates the same
text.

Gradients belong to memory, so all views of it share them; must not know tapes.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any, Self, TypeVar, get_args
from weakref import ref as weak

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
from kernelab.guidance.missing_names import ARRAYS, FIXED, KERNELS, Offers, of_numpy
from kernelab.host.single import Single
from kernelab.lang.structs import has_derivative
from kernelab.runtime.array.layout import Strided
from kernelab.runtime.context.conversion import array_type, described, value_type
from kernelab.runtime.context.recorder import refusal, warn, warn_at
from kernelab.runtime.memory.memory import Allocation, zeros_like_memory

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
    __and__, __rand__, __iand__ = _arithmetic("&")
    __or__, __ror__, __ior__ = _arithmetic("|")
    __xor__, __rxor__, __ixor__ = _arithmetic("^")
    __lshift__, __rlshift__, __ilshift__ = _arithmetic("<<")
    __rshift__, __rrshift__, __irshift__ = _arithmetic(">>")

    __eq__, __ne__ = _comparison("=="), _comparison("!=")
    __lt__, __le__ = _comparison("<"), _comparison("<=")
    __gt__, __ge__ = _comparison(">"), _comparison(">=")
    __neg__, __pos__, __abs__, __invert__ = _sign("-"), _sign("+"), _sign("abs"), _sign("~")
    __hash__ = object.__hash__

    def __matmul__(self, other: Any) -> Any:
        """The product of matrices and vectors, as NumPy's; of two vectors, an array of one element."""
        return hooks.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        """The product with the array to the right."""
        return hooks.matmul(other, self)

    def __imatmul__(self, other: Any) -> Any:
        """Set the elements to those of the product, which has to have the same shape."""
        elements: Any = self
        return elements.assign(hooks.matmul(self, other))

    def __bool__(self) -> bool:
        """The truth of the only element; raises KernelValueError for an array of more, or of none."""
        elements: Any = self
        if elements.size == 1:
            return bool(elements.flatten()[0])
        message = f"an array of {elements.size} elements is neither true nor false"
        hint = "write kl.where(x > 0.0, y, z), kl.max(x, y), ... for each element; "
        hint += "x.numpy().all() or .any(), x.size > 0, or x is not None, where that is meant"
        raise KernelValueError.of(message, "truth", hint)


# ------------------------------------------------------------------------------------------------- attributes


class FixedAttribute(KernelError, AttributeError):
    """An attribute of an array that cannot be assigned."""


_fixed = lru_cache(FIXED.hint)


class Fixed:
    """The part of an array that refuses assignment to its attributes."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        hint = _fixed(name)
        if hint:
            message = f"the {name} of an array cannot be assigned"
            raise FixedAttribute.of(message, "attribute", hint)
        try:
            object.__setattr__(self, name, value)
        except AttributeError as error:
            # One frame, this one: there is no such name.  Otherwise a setter has run, and knows better.
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            message = f"an array has no {name} that could be assigned"
            raise KernelAttributeError.of_name(message, None, name, dir(self)) from None


# ------------------------------------------------------------------------------------------- attribute hints


class KernelHints(Offers, Single):
    """The part of a kernel that answers for attributes that it does not have."""

    OFFERED = (
        *("doc", "effects", "jvp", "loops", "name", "primal", "source", "span", "textbook", "vjp", "widened"),
    )

    def __getattr__(self, name: str) -> Any:
        """Raises KernelAttributeError that says what to write instead."""
        message, hint = f"a kernel has no {name}", KERNELS.hint(name) or None
        raise KernelAttributeError.of_name(message, hint, name, dir(self))


class Hints(Offers):
    """The part of an array that answers for attributes that it does not have."""

    __slots__ = ()
    OFFERED = (
        *("T", "assign", "astype", "capacity", "contiguous", "copy"),
        *("max", "mean", "min", "sum", "to_numpy", "tolist"),
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
    guidance = ARRAYS.find(name) or of_numpy(name)
    hint = guidance.hint if guidance is not None else None
    return KernelAttributeError.of_name(f"an array has no {name}", hint, name, cls.OFFERED)


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


# -------------------------------------------------------------------------------------------------- gradients


_has_derivative = cache(has_derivative)


def warn_of_missing_gradient(memory: Allocation) -> None:
    """Warn, once, that a backward pass could not reach an array whose gradient is asked for."""
    missing, memory.missing = memory.missing, None
    if missing is not None:
        warn(missing if isinstance(missing, Diagnostic) else missing(memory))


GIVEN: set[weak[Allocation]] = set()
"""The memory of gradients that arrays were made with."""


@contextmanager
def own_gradients(arrays: Callable[[], "Iterable[Gradients]"]) -> Iterator[None]:
    """A context in which memory has the gradients that these arrays were made with.

    Other arrays over it may have been made with others since: a function that PyTorch calls makes some for
    each call.  Raises KernelValueError where these arrays themselves were made with several.
    """
    given: dict[Allocation, Allocation] = {}
    for elements in arrays():
        memory, gradient = elements.allocation, elements.given_gradient()
        if gradient is not None and given.setdefault(memory, gradient) is not gradient:
            message = "arrays over one memory were made with several gradients, and a tape has recorded both"
            hint = "pass one of the arrays to all launches, or copy the data for the other"
            raise refusal(KernelValueError, message, "grad", hint)
    before = {memory: memory.adjoint for memory in given}
    try:
        for memory, gradient in given.items():
            memory.adjoint = gradient
        yield
    finally:
        for memory, adjoint in before.items():
            memory.adjoint = adjoint


class Gradients(Strided):
    """The part of an array that is about its gradient."""

    __slots__ = ()

    @property
    def requires_grad(self) -> bool:
        """Whether tapes compute a gradient with respect to this array; shared by all views of its memory."""
        return self.allocation.requires_grad

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        if wanted and not _has_derivative(self.dtype):
            # Programs ask for gradients of arrays of every kind; that there is none must not be silent.
            message = f"an array of {self.dtype} has no gradient, and requires_grad stays False"
            hint = (
                "only floats, and vectors, matrices and structs of floats, have derivatives: leave "
                "requires_grad out"
            )
            warn_at(message, "grad", hint)
            return
        if wanted != self.allocation.requires_grad:
            self.allocation.missing = None
        self.allocation.requires_grad = bool(wanted)
        if not wanted:
            self.allocation.adjoint = None

    @property
    def grad(self) -> "Self | None":
        """The gradient that the last backward pass left, zeros before; None without `requires_grad`.

        An array that it is set to is shared, not copied, by several arrays if need be: then their gradients
        add up there.  Raises KernelTypeError for a view, which cannot be shared so.
        """
        allocation = self.allocation
        if not allocation.requires_grad:
            warn_of_missing_gradient(allocation)
            return None
        if allocation.adjoint is None:
            warn_of_missing_gradient(allocation)
            allocation.adjoint = zeros_like_memory(allocation)
        if self._grad is None or (
            self._grad.allocation is not allocation.adjoint and self.given_gradient() is None
        ):
            self._grad = self.twin(allocation.adjoint)
        gradient: Self = self._grad
        return gradient

    @grad.setter
    def grad(self, value: "Self | None") -> None:
        if value is None:
            self.allocation.adjoint = None
            return
        gradient: Any = value
        if not isinstance(gradient, Gradients):
            message = f"a gradient is an array of kernelab, not {described(gradient)}"
            raise KernelTypeError.of(message, "argument", "write kl.array(...) around it, or x.grad = None")
        if value.shape != self.shape or value.dtype != self.dtype:
            message = f"the gradient of {self.dtype} {self.shape} cannot be {value.dtype} {value.shape}"
            hint = "a gradient has the shape and dtype of its array: write kl.zeros_like(x), and fill that"
            raise KernelTypeError.of(message, "grad", hint)
        reason = self._no_gradient_of_mine(value)
        if reason is not None:
            raise refusal(KernelTypeError, reason[0], "grad", reason[1])
        self.requires_grad = True
        self.allocation.adjoint = value.allocation
        self._grad = value

    def give_gradient(self, gradient: "Gradients") -> None:
        """Set the gradient of an array that is being made, which others over its memory leave alone."""
        self.grad = gradient
        GIVEN.add(weak(gradient.allocation, GIVEN.discard))

    def given_gradient(self) -> Allocation | None:
        """The memory of the gradient that this array was made with, where that still counts."""
        gradient: Allocation | None = None if self._grad is None else self._grad.allocation
        now = self.allocation.adjoint
        if gradient is None or now is None or not {weak(gradient), weak(now)} <= GIVEN:
            return None
        return gradient

    def _no_gradient_of_mine(self, value: Any) -> tuple[str, str] | None:
        """Explain why an array cannot become the gradient, which is shared and not copied."""
        if value.overlaps(self):
            return "an array cannot be its own gradient: backward() would overwrite it", (
                "write x.grad = kl.zeros_like(x), or x.grad.assign(x) for its values"
            )
        mine = self.offset, self.strides, self.allocation.nbytes
        if mine == (value.offset, value.strides, value.allocation.nbytes):
            return None
        is_part = value.allocation.nbytes > self.allocation.nbytes
        how = "is a part of a larger array" if is_part else "is laid out in another way"
        return f"a gradient shares the memory of what it is set to, and this {how}", (
            "write x.grad.assign(g) to copy the values; or set it to an array with memory of its own, laid "
            "out like that of x: g = kl.zeros_like(x)"
        )

    @property
    def retain_grad(self) -> bool:
        """Whether a backward pass leaves the gradient in `grad`: it does for all that require gradients."""
        return self.requires_grad

    @retain_grad.setter
    def retain_grad(self, wanted: bool) -> None:
        if wanted:
            self.requires_grad = True
