"""`expect_eq`, `expect_neq` and `expect_near` on the host, where they mean what they mean in a kernel."""

from typing import Any

import numpy as np

from kernelab.errors import Diagnostic, KernelAssertionError, KernelTypeError, type_name, with_article
from kernelab.host.values import type_of
from kernelab.runtime.array.array import array


def expect_eq(a: Any, b: Any) -> None:
    """Raise KernelAssertionError unless two values are equal; KernelTypeError if they cannot be compared."""
    _require(bool(np.all(_compared("expect_eq", a, b))), f"expect_eq: {a} is not {b}")


def expect_neq(a: Any, b: Any) -> None:
    """Raise KernelAssertionError if two values are equal; KernelTypeError if they cannot be compared."""
    _require(not np.all(_compared("expect_neq", a, b)), f"expect_neq: both are {a}")


def expect_near(a: Any, b: Any, tolerance: float = 1e-6) -> None:
    """Raise KernelAssertionError unless two values differ by `tolerance` at most, NaN from everything.

    Of vectors the largest difference of a component counts, of matrices the Frobenius norm of the difference.
    """
    _compared("expect_near", a, b)
    difference = np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64))
    distance = float(np.linalg.norm(difference) if difference.ndim == 2 else np.max(difference, initial=0.0))
    _require(distance <= tolerance, f"expect_near: {a} and {b} differ by {distance:g}, not {tolerance:g}")


def _compared(name: str, a: Any, b: Any) -> Any:
    """Where two values are equal, if their shapes let them be compared."""
    if isinstance(a, array) or isinstance(b, array):
        hint = "compare x.numpy(): np.testing.assert_allclose(x.numpy(), y.numpy())"
        message = f"{name} compares values, not arrays"
        raise KernelTypeError(Diagnostic(message, code="host", hint=hint))
    first, second = np.asarray(a), np.asarray(b)
    if first.shape != second.shape:
        message = f"{name} cannot compare {_said(a)} with {_said(b)}"
        raise KernelTypeError(Diagnostic(message, code="host", hint="give two values of one type"))
    return first == second


def _said(value: Any) -> str:
    return with_article(type_of(value) or type_name(value))


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise KernelAssertionError(Diagnostic(message, code="assertion"))
