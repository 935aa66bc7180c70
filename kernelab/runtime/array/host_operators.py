"""Python's operators on arrays, comparisons included, and the functions that they stand for.

Knows the operators only; `elementwise` makes kernels of them.  ``==`` compares elements: the package itself
compares arrays by ``is``, and as keys of a dict they count by identity.
"""

from typing import Any

from kernelab import hooks
from kernelab.errors import Diagnostic, KernelValueError


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

    def __eq__(self, other: object) -> Any:
        return _operate("==", self, other)

    def __ne__(self, other: object) -> Any:
        return _operate("!=", self, other)

    def __lt__(self, other: Any) -> Any:
        return _operate("<", self, other)

    def __le__(self, other: Any) -> Any:
        return _operate("<=", self, other)

    def __gt__(self, other: Any) -> Any:
        return _operate(">", self, other)

    def __ge__(self, other: Any) -> Any:
        return _operate(">=", self, other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        """The truth of the only element; raises KernelValueError for an array of more, or of none."""
        elements: Any = self
        if elements.size == 1:
            return bool(elements.flatten()[0])
        message = f"an array of {elements.size} elements is neither true nor false"
        hint = "write x.numpy().all() or .any(); x.size > 0, or x is not None, where that is meant"
        raise KernelValueError(Diagnostic(message, code="truth", hint=hint))

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
