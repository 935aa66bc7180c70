"""Resolves the function that `map` applies: a kernel function, an operation, or plain Python text.

    lambda x: x * s        the text of the lambda, with the `s` of this moment, lowered for each type
    kl.sin, abs, np.sin    def sin_(x): return sin(x)

Knows texts and the names around them; must not know arrays or launches.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from dis import get_instructions
from functools import lru_cache
from itertools import chain
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from kernelab.errors import Diagnostic, KernelTypeError, Source, label_of
from kernelab.frontend import UserFunction, errors_of, lower_python, lower_source
from kernelab.frontend.meaning.frame import BrokenCall
from kernelab.lang.types import LARGEST, Scalar
from kernelab.runtime.context.conversion import described
from kernelab.runtime.context.once import made_once
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.loading import closure


def callee_of(func: Any, count: int) -> UserFunction:
    """The function of the language that `map` applies; raises KernelTypeError where there is none."""
    found = getattr(func, "__kernelab_function__", None)
    if isinstance(found, UserFunction):
        return found
    word = getattr(func, "__kernelab_name__", None) or (str(func) if isinstance(func, Scalar) else None)
    if isinstance(func, np.ufunc) or (inspect.isbuiltin(func) and func.__module__ == "math"):
        module = np if isinstance(func, np.ufunc) else inspect.getmodule(func)
        return _word(func.__name__, count, ("module", module))
    if isinstance(word, str):
        return _word(word, count)
    if inspect.isbuiltin(func) and func in (abs, min, max, round):
        return _word(func.__name__, count)
    if inspect.isfunction(func):
        return _python(func)
    named = getattr(func, "__name__", None)
    hint = "write kl.map(lambda x: x * x, a), or pass a function of a %%kernel cell"
    if isinstance(func, Kernel):
        hint = f"launch a kernel: kl.launch({named}, dim=x.shape, inputs=[x], outputs=[y])"
    message = f"map() takes a function of numbers first, not {f'`{named}`' if named else described(func)}"
    raise KernelTypeError(Diagnostic(message, code="map", hint=hint))


@contextmanager
def mistakes_raised() -> Iterator[None]:
    """Raise the mistakes of a function that is instantiated within it as an error of its user."""
    try:
        yield
    except BrokenCall as broken:
        raise errors_of(broken.diagnostics) from None


def _word(name: str, count: int, *module: tuple[str, ModuleType | None]) -> UserFunction:
    """A function that calls a word of the language, or of a module, on its arguments."""
    names = ", ".join(f"x{k}" if k else "x" for k in range(count))
    called = f"module.{name}" if module else name
    return function_of(name, f"def {name}_({names}):\n    return {called}({names})", module)


@made_once(256)
def function_of(title: str, text: str, names: tuple[tuple[str, Any], ...] = ()) -> UserFunction:
    """The one function of a text, which `names` are known to."""
    lowered = lower_source(Source(text, f"<{title}>"), dict(names))
    lowered.raise_errors()
    (found,) = lowered.definitions.values()
    assert isinstance(found, UserFunction)
    return found


def _python(func: Callable[..., Any]) -> UserFunction:
    code: Any = func.__code__
    used = named_in(func)
    key = tuple((name, _same(value, _attributes_in(code))) for name, value in used.items())
    return _lowered(Keyed((code, repr(func.__defaults__), key), (func, used)))


def named_in(func: Callable[..., Any]) -> dict[str, Any]:
    """The values of the names in a function's text, from its surroundings."""
    names = {**func.__globals__, **closure(func)}
    return {name: names[name] for name in dict.fromkeys(_names_of(func.__code__)) if name in names}


@dataclass(frozen=True, slots=True, eq=False)
class Keyed:
    """A function and the names around it, equal to another if its code and what it names are the same."""

    key: Any
    held: tuple[Callable[..., Any], dict[str, Any]]

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keyed) and self.key == other.key


@made_once(256)
def _lowered(keyed: Keyed) -> UserFunction:
    function, names = keyed.held
    return lower_python(function, names, label_of(function.__code__.co_filename))


def _names_of(code: Any) -> Iterator[str]:
    yield from code.co_names
    yield from code.co_freevars
    for constant in code.co_consts:
        if inspect.iscode(constant):
            yield from _names_of(constant)


@lru_cache(maxsize=256)
def _attributes_in(code: CodeType) -> tuple[str, ...]:
    """The words that the text of a function writes behind dots."""
    inner = [_attributes_in(constant) for constant in code.co_consts if inspect.iscode(constant)]
    own = [step.argval for step in get_instructions(code) if step.opname in ("LOAD_ATTR", "LOAD_METHOD")]
    return tuple(dict.fromkeys([*own, *chain(*inner)]))


_DEEPEST = 4
"""How many dots a function may write behind a name, as in `scene.water.density`, for a change to count."""


def _same(value: Any, words: tuple[str, ...], depth: int = 0) -> Any:
    """A key of a captured value: equal keys mean the same value for a text of these words."""
    if isinstance(value, bool | int | float | np.generic):
        return type(value), repr(value)
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes() if value.size <= LARGEST else id(value)
    if depth == _DEEPEST or isinstance(value, UserFunction | Kernel):
        return id(value)
    parts = (word for word in words if hasattr(value, word))
    return id(value), tuple((word, _same(getattr(value, word), words, depth + 1)) for word in parts)
