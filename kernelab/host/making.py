"""Types as callables on the host: construction of values, `isinstance`, base classes; named constants.

Knows types and host values; must not know kernels.
"""

import math
from operator import attrgetter
from typing import Any

import numpy as np

from kernelab.errors import KernelTypeError, KernelValueError
from kernelab.host.traced import follow, untraced
from kernelab.host.values import Host, as_components, type_of, value_of
from kernelab.lang.rounding import BFLOAT16, fits, rounded, widened
from kernelab.lang.types import Mat, Scalar, Transform, Vec, size_of


class Alias(type):
    """The class of bases that stand for a type of values; a class with such a base is that type."""

    named: Any

    def __new__(mcs, name: str, bases: tuple[Any, ...], members: dict[str, Any]) -> Any:
        """The type of the base; raises KernelTypeError for a class that adds to it, or to several."""
        added = [member for member in members if not member.startswith("__")]
        if len(bases) != 1 or added:
            what = f"add {added[0]}" if added else "inherit from several types"
            message = f"the class {name} is another name of {bases[0].named}, and cannot {what}"
            hint = "write pass, and functions with @func; @struct makes a class of several values"
            raise KernelTypeError.of(message, "class", hint)
        return bases[0].named


# ---------------------------------------------------------------------------------------------------- making


def install() -> None:
    """Make the types callable, valid for `isinstance`, and usable as bases of class statements."""
    kinds: Any = {Scalar: _number, Vec: made_of, Mat: made_of, Transform: moved_by}
    for kind, make in kinds.items():
        kind.__call__ = make
        if kind is not Scalar:
            kind.__instancecheck__, kind.__mro_entries__ = lambda self, value: type_of(value) == self, _bases


def _bases(self: Vec | Mat, _: tuple[Any, ...]) -> tuple[Any, ...]:
    return (type.__new__(Alias, str(self), (), {"named": self}),)  # a class that stands for the type


def _number(self: Scalar, value: Any = 0) -> Any:
    """The NumPy scalar of this type nearest to `value`; raises for what is not a number, or does not fit."""
    try:
        number = untraced(value) if value is not None else ""
        if self.is_int and hasattr(number, "__array__") and not fits(np.asarray(number), self.dtype).all():
            raise OverflowError  # NumPy would wrap it
        result = rounded(np.float64(number), BFLOAT16)[()] if self.flavor else self.dtype.type(number)
        return follow(result, value)
    except (TypeError, ValueError):
        raise KernelTypeError.of(f"{value!r} cannot become {self}", "value", "pass a number") from None
    except OverflowError:
        raise KernelValueError.of(f"{value} does not fit {self}", "range") from None


_FLOATS = frozenset({float})
_class_of = attrgetter("__class__")


def made_of(type: Vec | Mat, /, *components: Any) -> Any:
    """A vector or matrix of no components (zeros), of one (repeated, or nested), or of all by rows.

    Raises KernelTypeError for other components.
    """
    if not components:
        return value_of(type, np.zeros(type.shape, type.scalar.dtype))
    is_usual = type.scalar.is_float and not type.scalar.flavor and len(components) == size_of(type)
    if is_usual and _FLOATS.issuperset(map(_class_of, components)):
        return value_of(type, np.array(components, type.scalar.dtype).reshape(type.shape))
    try:
        if any(component is None for component in components):
            raise TypeError("None is no number")
        columns = [as_components(untraced(component), type.scalar) for component in components]
    except (TypeError, ValueError, OverflowError) as error:
        message = f"{', '.join(map(repr, components))} cannot be the components of a {type}"
        raise KernelTypeError.of(message, "value", str(error)) from None
    if len(columns) == 1 and columns[0].shape in ((), type.shape):
        return follow(value_of(type, np.broadcast_to(columns[0], type.shape)), *components)
    if isinstance(type, Mat) and len(columns) == 1 and columns[0].ndim == 2:
        shape = " by ".join(map(str, columns[0].shape))
        hint = "write x.T for the transpose, or x.ravel() for the same numbers by rows"
        raise KernelTypeError.of(f"{type} takes no matrix of {shape}", "count", hint)
    joined = np.concatenate([component.ravel() for component in columns])
    size = math.prod(type.shape)
    if joined.size != size:
        hint = f"give {size} numbers, or one for all of them: {type}(0.0)"
        raise KernelTypeError.of(f"{type} takes 0, 1 or {size} components, not {joined.size}", "count", hint)
    return follow(value_of(type, joined.reshape(type.shape)), *components)


def moved_by(type: Transform, /, *components: Any, **parts: Any) -> Any:
    """A rigid motion on the host: of its 7 numbers, or of `p` and `q`, one number filling all.

    What is left out moves nothing.  Raises KernelTypeError for other parts, or parts of other lengths.
    """
    one = components[0] if len(components) == 1 else None
    if len(components) > 2 or (not parts and one is not None and np.size(one) in (1, 7)):
        if parts:
            message = f"{type} takes its numbers, or p and q, not both"
            raise KernelTypeError.of(message, "count", "write transform(p=p, q=q)")
        return made_of(type, *components)
    named = dict(zip("pq", components, strict=False))
    wrong = [name for name in parts if name not in ("p", "q") or name in named]
    if wrong:
        message = f"{type} takes p and q, each once, not {wrong[0]}"
        raise KernelTypeError.of(message, "overload", "write transform(p=p, q=q)")
    numbers = [
        _part_of(type, name, (named | parts).get(name, usual))
        for name, usual in (("p", (0, 0, 0)), ("q", (0, 0, 0, 1)))
    ]
    return follow(made_of(type, *numbers), components, parts)


def _part_of(type: Transform, name: str, value: Any) -> Host:
    length, part = {"p": 3, "q": 4}[name], np.asarray(widened(np.asarray(untraced(value))))
    if part.shape != (length,) or part.dtype.kind not in "biuf":
        message = f"{name} of a {type} is {length} numbers, not {value!r}"
        raise KernelTypeError.of(message, "count", "write transform(p=vec3(), q=quat())")
    return part


# -------------------------------------------------------------------------------------------------- constants


_NUMBERS = {
    "pi": math.pi,
    "tau": math.tau,
    "half_pi": math.pi / 2.0,
    "inf": math.inf,
    "nan": math.nan,
    "e": math.e,
    "phi": (1.0 + math.sqrt(5.0)) / 2.0,
    "ln2": math.log(2.0),
    "ln10": math.log(10.0),
    "log2e": math.log2(math.e),
    "log10e": math.log10(math.e),
}

CONSTANTS: dict[str, float] = _NUMBERS | {name.upper(): value for name, value in _NUMBERS.items()}
"""What ``kl.pi``, ``kl.PI``, ``kl.inf`` and their kin are."""

BARE = ("pi", "tau", "inf", "nan", "PI", "TAU", "INF", "NAN")
"""Those that need no prefix in a cell: `e` and `phi` alone are more likely a variable that is missing."""
