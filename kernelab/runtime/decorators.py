"""Kernels in plain Python files: the decorators, and `compile` for text.

A decorated function is lowered when it is first needed, with the names that are around it then.
"""

import functools
import sys
from collections import ChainMap
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from kernelab.errors import Diagnostic, KernelTypeError, Source
from kernelab.frontend import KernelDefinition, UserFunction, struct_of
from kernelab.runtime.kernel import Kernel, Made, compile_source, definition_of
from kernelab.runtime.structs import Instance, class_of


def kernel(function: Callable[..., Any] | None = None, *, enable_backward: bool = True) -> Any:
    """Make a kernel of a Python function: ``@kernel``, or ``@kernel(...)`` with options.

    With ``enable_backward=False`` a gradient that would have to pass through the kernel is an error.
    """
    # The options are read from the function's text, as those of a cell's decorators are.
    names = _names_around(2)
    if function is None:
        return lambda function: _kernel(function, names)
    return _kernel(function, names)


def func(function: Callable[..., Any] | None = None) -> Any:
    """Make a function that kernels may call of a Python function; on the host it stays callable."""
    names = _names_around(2)
    if function is None:
        return lambda function: Function(function, names)
    return Function(function, names)


def compile(
    text: str,
    namespace: Mapping[str, Any] | None = None,
    label: str = "<text>",
) -> dict[str, Made]:
    """The kernels, functions and structs of a text, by name, as a %%kernel cell would make them.

    `namespace` holds the names around the text, by default those of the caller; `label` is what messages call
    the text.  Raises KernelError with up to ten mistakes.
    """
    around = _names_around(2) if namespace is None else namespace
    compiled = compile_source(Source(text, label), around)
    compiled.raise_errors()
    return compiled.definitions


def struct(cls: type) -> type[Instance]:
    """Make a struct of a Python class with annotated fields: ``@struct``; its instances hold such fields.

    Raises KernelTypeError for methods, base classes, and annotations that are no types of kernels.
    """
    return class_of(struct_of(cls, _names_around(2)))


class Function:
    """A decorated function: kernels call it, and so does Python."""

    def __init__(self, function: Callable[..., Any], namespace: Mapping[str, Any]) -> None:
        self.name = self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self._python = function
        self._namespace = namespace

    def __repr__(self) -> str:
        return f"<kernelab function {self.name}>"

    def __call__(self, *arguments: Any) -> Any:
        return self._python(*arguments)

    @cached_property
    def __kernelab_function__(self) -> UserFunction:
        found = definition_of(self._python, ChainMap(closure(self._python), *_maps(self._namespace)))
        if isinstance(found, KernelDefinition):
            message = f"`{self.name}` is a kernel, not a function: it returns nothing"
            raise KernelTypeError(Diagnostic(message, found.span, "func", hint="decorate it with @kernel"))
        return found


def _kernel(function: Callable[..., Any], namespace: Mapping[str, Any]) -> Kernel:
    def load() -> KernelDefinition:
        found = definition_of(function, ChainMap(closure(function), *_maps(namespace)))
        assert isinstance(found, KernelDefinition)
        return found

    made = Kernel(function.__name__, load)
    functools.update_wrapper(made, function, ("__doc__",), ())
    return made


def _names_around(depth: int) -> Mapping[str, Any]:
    frame = sys._getframe(depth)
    if frame.f_locals is frame.f_globals:
        return frame.f_globals
    return ChainMap(dict(frame.f_locals), frame.f_globals)


def _maps(namespace: Mapping[str, Any]) -> list[Any]:
    return namespace.maps if isinstance(namespace, ChainMap) else [namespace]


def closure(function: Callable[..., Any]) -> dict[str, Any]:
    """What the function's free variables hold now; those not assigned yet are left out."""
    found = {}
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    for name, cell in zip(code.co_freevars if code else (), cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found
