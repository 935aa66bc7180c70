"""Python's arithmetic operators on arrays: which there are, and what each stands for.

Knows the operators only; `elementwise` makes kernels of them.  `==` is not among them: arrays are compared by
identity, so that they can be keys of a dict.
"""

from typing import Any

from kernelab.runtime import hooks


class Arithmetic:
    """The operators of arrays, element by element, with arrays and numbers."""

    __slots__ = ()

    __array_priority__ = 1000
    """NumPy leaves ``values + x`` to an array `x`."""

    def __add__(self, other: Any) -> Any:
        return _operate("+", self, other)

    def __radd__(self, other: Any) -> Any:
        return _operate("+", other, self)

    def __iadd__(self, other: Any) -> Any:
        return _change("+", self, other)

    def __sub__(self, other: Any) -> Any:
        return _operate("-", self, other)

    def __rsub__(self, other: Any) -> Any:
        return _operate("-", other, self)

    def __isub__(self, other: Any) -> Any:
        return _change("-", self, other)

    def __mul__(self, other: Any) -> Any:
        return _operate("*", self, other)

    def __rmul__(self, other: Any) -> Any:
        return _operate("*", other, self)

    def __imul__(self, other: Any) -> Any:
        return _change("*", self, other)

    def __truediv__(self, other: Any) -> Any:
        return _operate("/", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _operate("/", other, self)

    def __itruediv__(self, other: Any) -> Any:
        return _change("/", self, other)

    def __floordiv__(self, other: Any) -> Any:
        return _operate("//", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _operate("//", other, self)

    def __ifloordiv__(self, other: Any) -> Any:
        return _change("//", self, other)

    def __mod__(self, other: Any) -> Any:
        return _operate("%", self, other)

    def __rmod__(self, other: Any) -> Any:
        return _operate("%", other, self)

    def __imod__(self, other: Any) -> Any:
        return _change("%", self, other)

    def __pow__(self, other: Any) -> Any:
        return _operate("**", self, other)

    def __rpow__(self, other: Any) -> Any:
        return _operate("**", other, self)

    def __ipow__(self, other: Any) -> Any:
        return _change("**", self, other)

    def __neg__(self) -> Any:
        return _operate("-", self)

    def __pos__(self) -> Any:
        return _operate("+", self)

    def __abs__(self) -> Any:
        return _operate("abs", self)


def _operate(symbol: str, *operands: Any) -> Any:
    return hooks.operate(symbol, operands)


def _change(symbol: str, target: Any, other: Any) -> Any:
    return hooks.change(symbol, target, other)
