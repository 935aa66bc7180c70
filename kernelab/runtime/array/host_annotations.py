"""Annotations of kernel parameters as Python evaluates them: types, and placeholders for any type.

The frontend reads annotations from the text of a kernel; this module only lets Python evaluate the same text.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from kernelab.errors import KernelTypeError
from kernelab.runtime.memory.interop import array_type, value_type


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The annotation of a parameter whose type the arguments decide, or that no kernel takes."""

    text: str

    def __repr__(self) -> str:
        return self.text


def is_any(dtype: Any) -> bool:
    """Whether this stands for any type."""
    return dtype is Any or isinstance(dtype, TypeVar | AnyOf)


def array_annotation(dtype: Any, ndim: int) -> Any:
    """The annotation of arrays of a dtype: their type, or with `Any` what stands for several."""
    if isinstance(dtype, tuple) and len(dtype) == 2:
        dtype, given = dtype
        ndim = next(iter(get_args(given)), given)  # ``array[float, Literal[2]]``, too
    if is_any(dtype):
        return AnyOf(f"array{'' if ndim == 1 else f'{ndim}d'}[{_named(dtype)}]")
    elem = value_type(float if dtype is None else dtype)
    try:
        return array_type(elem, ndim)
    except KernelTypeError:
        # The kernel that has this parameter says so, at its line; the module around it goes on.
        return AnyOf(f"array[{elem}]")


class Ranked:
    """``array2d(...)`` makes an array of so many dimensions; ``array2d[float]`` annotates a parameter."""

    def __init__(self, make: Callable[..., Any], word: str, says: str, ndim: int) -> None:
        self._make = make
        self.ndim = ndim
        self.__name__ = self.__kernelab_name__ = name = f"{word}{ndim}d"
        axes = f"{ndim} dimension{'s' * (ndim > 1)}"
        self.__doc__ = f"``{name}{says} {axes}, ``{name}[float]`` annotates."

    def __repr__(self) -> str:
        return f"<kernelab {self.__name__}>"

    def __getitem__(self, dtype: Any) -> Any:
        return array_annotation(dtype, self.ndim)

    def __call__(self, *given: Any, **options: Any) -> Any:
        """An array; raises KernelTypeError where the data have another number of dimensions."""
        return self._make(*given, **options, ndim=self.ndim)


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
