"""Functions of the language called on the host: some compute a value there, the others raise an error."""

from functools import cache
from typing import Any

import numpy as np

from kernelab.builtins.language_words import said_of
from kernelab.builtins.table import Builtin
from kernelab.errors import KernelAssertionError, KernelTypeError, a_thing, type_name, with_article
from kernelab.frontend.meaning.scope import filled
from kernelab.host.values import type_of
from kernelab.lang import ops
from kernelab.lang.types import Quat, Transform, named_types, scalar_of, type_named
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import value_type


def expect_eq(a: Any, b: Any) -> None:
    """Raise KernelAssertionError unless two values are equal; KernelTypeError if they cannot be compared."""
    _require(bool(np.all(_compared("expect_eq", a, b))), f"expect_eq: {a} is not {b}")


def expect_neq(a: Any, b: Any) -> None:
    """Raise KernelAssertionError if two values are equal; KernelTypeError if they cannot be compared."""
    _require(not np.all(_compared("expect_neq", a, b)), f"expect_neq: both are {a}")


def expect_near(a: Any, b: Any, tolerance: float = 1e-6) -> None:
    """Raise KernelAssertionError unless two values differ by `tolerance` at most, NaN from everything.

    Of vectors and matrices the largest difference of a component counts.
    """
    _compared("expect_near", a, b)
    distance = float(np.max(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)), initial=0.0))
    _require(distance <= tolerance, f"expect_near: {a} and {b} differ by {distance:g}, not {tolerance:g}")


def _compared(name: str, a: Any, b: Any) -> Any:
    """Mask of equal elements, if the shapes of the two values allow a comparison."""
    if isinstance(a, array) or isinstance(b, array):
        hint = "compare x.numpy(): np.testing.assert_allclose(x.numpy(), y.numpy())"
        raise KernelTypeError.of(f"{name} compares values, not arrays", "host", hint)
    first, second = np.asarray(a), np.asarray(b)
    if first.shape != second.shape:
        message = f"{name} cannot compare {_said(a)} with {_said(b)}"
        raise KernelTypeError.of(message, "host", "give two values of one type")
    return first == second


def _said(value: Any) -> str:
    return with_article(type_of(value) or type_name(value))


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise KernelAssertionError.of(message, "assertion")


# ------------------------------------------------------------------------------------------------ host words


ATOMICS = tuple(f"atomic_{kind}" for kind in ("add", "sub", "min", "max", "and", "or", "xor", "exch", "cas"))
ONLY_IN_KERNELS = (
    *("tid", *ATOMICS, "printf", "vector", "matrix", "identity", "quaternion", "transformation"),
    *("select", "cast", "lower_bound", "sample_cdf", "poisson"),
)
_OWN = frozenset({"shape", "chain", "chain_both", "rarely", "extract", "insert", "row", "and", "or", "not"})


class Word:
    """A word that means something only inside a kernel."""

    def __init__(self, name: str) -> None:
        self.name = self.__name__ = self.__kernelab_name__ = name
        self.__doc__ = f"{said_of(name)}\n\nOnly inside a kernel."

    def __repr__(self) -> str:
        return f"<kernelab word {self.name}>"

    def __call__(self, *_: Any, **__: Any) -> Any:
        hint = "write it in a def of a %%kernel cell, or of a function decorated with @kl.kernel"
        raise KernelTypeError.of(f"{self.name}() means something only inside a kernel", "host", hint)


class AdjointWord(Word):
    """The word `adjoint`, which grad functions index by their arguments."""

    def __getitem__(self, _: Any) -> Any:
        message = "adjoint[...] means something only in a grad function"
        raise KernelTypeError.of(message, "host", "write it in a def that is decorated with @kl.func_grad(f)")

    def __setitem__(self, index: Any, _: Any) -> None:
        self[index]


class Changing(Builtin):
    """An operation that changes what it is given: ``transform_set_rotation(t, q)``, ``svd3(a, u, s, v)``."""

    def __call__(self, *values: Any, **named: Any) -> Any:
        """Set the components of the values that are to hold the results; else what the operation gives.

        Raises KernelTypeError for a target that is not a vector or matrix of the type that a result has.
        """
        ordered = self._in_order(values, named)
        targets = ordered[filled(self.name, len(ordered))]
        if not targets:
            return super().__call__(*ordered)
        outs = super().__call__(*(ordered if targets == ordered[:1] else ordered[: -len(targets)]))
        for target, result in zip(targets, outs if isinstance(outs, tuple) else (outs,), strict=True):
            type = type_of(result)
            if type is None or type_of(target) != type:
                kind = f"a {type}" if type else "a variable, which the host cannot"
                message = f"{self.name} fills {kind}, not {a_thing(target)}"
                raise KernelTypeError.of(message, "overload", f"take what it gives: x = {self.name}(...)")
            target[:] = result
        return None


adjoint = AdjointWord("adjoint")


def constant(value: Any) -> Any:
    """The value itself: kernels capture numbers of the notebook as constants anyway."""
    return value


def static(value: Any) -> Any:
    """The value itself: inside a kernel, an expression that is evaluated when the kernel is compiled."""
    return value


def quat_identity(dtype: Any = float) -> Any:
    """The quaternion that turns nothing."""
    return Quat(scalar_of(value_type(dtype)))(0, 0, 0, 1)


def transform_identity(dtype: Any = float) -> Any:
    """The transform that moves nothing."""
    return Transform(scalar_of(value_type(dtype)))(0, 0, 0, 0, 0, 0, 1)


_ON_THE_HOST: dict[str, Any] = {
    function.__name__: function
    for function in (constant, static, quat_identity, transform_identity, expect_eq, expect_neq, expect_near)
}
for _function in _ON_THE_HOST.values():
    _function.__kernelab_name__ = _function.__name__


def names() -> tuple[str, ...]:
    """Every type and every operation of the language that the host can name."""
    types = named_types()
    operations = (name for name in ops.names() if name not in _OWN | set(types))
    return (*ONLY_IN_KERNELS, *_ON_THE_HOST, *types, *operations)


@cache
def word(name: str) -> Any:
    """The type or operation of that name, one object for each; KeyError if there is none."""
    type = type_named(name)
    if type is not None:
        return type
    if name in _ON_THE_HOST:
        return _ON_THE_HOST[name]
    if name in ONLY_IN_KERNELS:
        return Word(name)
    if name in names():
        changing = any(op.parts for op in ops.overloads(name)) or filled(name, 2) == slice(0, 1)
        return (Changing if changing else Builtin)(name)
    raise KeyError(name)
