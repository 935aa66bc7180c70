"""Trials: lowers a text only to find its errors, while cells may run in another thread.

In a trial nothing of the user's runs, and no function of the notebook changes: those that the text names are
copied.  What could be known only by running something is unknown, and nothing is said of it.
"""

import ast
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from enum import Enum
from types import BuiltinFunctionType, ModuleType
from typing import Any, TypeVar

import numpy as np

from kernelab.lang.structs import Struct
from kernelab.lang.types import Mat, Scalar, Vec

F = TypeVar("F")
_COPIES: ContextVar[dict[Any, Any] | None] = ContextVar("copies", default=None)

NOT_RUN = "not run"
"""The code of diagnostics that say what a trial does not know: they are shown to nobody."""


def trial() -> AbstractContextManager[None]:
    """Within the block, what this thread lowers leaves no trace."""
    copies = _COPIES.get()
    return _with_copies({} if copies is None else copies)


def no_trial() -> AbstractContextManager[None]:
    """Within the block, what this thread lowers stays: what is loaded once is loaded as a whole."""
    return _with_copies(None)


@contextmanager
def _with_copies(copies: dict[Any, Any] | None) -> Iterator[None]:
    token = _COPIES.set(copies)
    try:
        yield
    finally:
        _COPIES.reset(token)


def is_trial() -> bool:
    """Whether this thread is in a trial."""
    return _COPIES.get() is not None


def own(function: F) -> F:
    """A function itself; in a trial its copy (`for_trial`), always the same one."""
    copies = _COPIES.get()
    if copies is None:
        return function
    if function not in copies:
        copy = copies[function] = function.for_trial()  # type: ignore[attr-defined]
        copies[copy] = copy
    result: F = copies[function]
    return result


def adopt(functions: Iterable[object]) -> None:
    """Functions that a trial has made itself are its own."""
    copies = _COPIES.get()
    if copies is not None:
        copies |= {function: function for function in functions}


# --------------------------------------------------------------------------------------- what runs nothing


def may_run(node: ast.stmt | ast.expr, names: Mapping[str, Any]) -> bool:
    """Whether Python may evaluate this, or import this, here: always outside of a trial."""
    if not is_trial():
        return True
    match node:
        case ast.Import(names=imported):
            return all(alias.name in sys.modules for alias in imported)
        case ast.ImportFrom(module=str() as module, names=imported, level=0):
            loaded = vars(sys.modules[module]) if module in sys.modules else {}
            return all(alias.name in loaded or module == "kernelab" for alias in imported)
        case ast.Assign(value=value):
            return _is_quiet(value, names)
        case ast.expr():
            return _is_quiet(node, names)
        case _:
            return False


_PLAIN = (
    *(ast.Constant, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Tuple),
    *(ast.List, ast.Subscript, ast.Slice, ast.keyword, ast.expr_context, ast.boolop),
    *(ast.operator, ast.unaryop, ast.cmpop),
)
_VALUES = (bool, int, float, str, type(None), np.generic, np.ndarray, ModuleType, type, Enum)
_TYPES_OF_KERNELS = (Scalar, Vec, Mat, Struct)
_FUNCTIONS: tuple[object, ...] = (
    *(abs, bool, complex, float, int, len, max, min, round, str, sum, tuple),
    *(value for value in vars(math).values() if isinstance(value, BuiltinFunctionType)),
    *(np.array, np.asarray),
)
_SMALL = 1000
"""The largest exponent, and the largest shift: larger ones may take their time."""


def _is_quiet(node: ast.AST, names: Mapping[str, Any]) -> bool:
    """Whether evaluating an expression runs nothing of the user's, and takes no time to speak of."""
    match node:
        case ast.Name(name):
            value = names.get(name)
            return isinstance(value, (*_VALUES, *_TYPES_OF_KERNELS)) or _is_word(value)
        case ast.Call(func=func):
            if not (
                _is_quiet(func, names) if isinstance(func, ast.Attribute) else isinstance(func, ast.Name)
            ):
                return False
            if not _is_harmless(_found(func, names)):
                return False
            return all(_is_quiet(part, names) for part in (*node.args, *node.keywords))
        case ast.BinOp(op=ast.Pow() | ast.LShift(), right=right):
            is_small = isinstance(right, ast.Constant) and isinstance(right.value, int | float)
            if not is_small or abs(right.value) > _SMALL:  # type: ignore[attr-defined]
                return False
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            if any(isinstance(part, ast.List | ast.Tuple | ast.JoinedStr) for part in (left, right)):
                return False
        case _ if not isinstance(node, _PLAIN):
            return False
    return all(_is_quiet(part, names) for part in ast.iter_child_nodes(node))


def _found(node: ast.AST, names: Mapping[str, Any]) -> Any:
    """The value that a dotted name has; what is Python's own, where the notebook has no such name."""
    match node:
        case ast.Name(name):
            return names.get(name, getattr(sys.modules["builtins"], name, None))
        case ast.Attribute(value=inner, attr=name):
            around = _found(inner, names)
            return vars(around).get(name) if isinstance(around, ModuleType) else None
        case _:
            return None


def _is_word(value: Any) -> bool:
    """Whether this is a word of the language on the host: `array` is one, an array made by it is not."""
    return "__kernelab_name__" in getattr(value, "__dict__", {})


def _is_harmless(function: Any) -> bool:
    if isinstance(function, type):
        return issubclass(function, np.generic) or function in _FUNCTIONS
    ours = isinstance(function, _TYPES_OF_KERNELS) or _is_word(function)
    return ours or isinstance(function, np.ufunc) or any(function is allowed for allowed in _FUNCTIONS)
