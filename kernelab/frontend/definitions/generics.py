"""Kernels some of whose parameters are `Any`: one definition, lowered for the types of a launch's arguments.

def scale(x: array[Any], s: Any):       for float64       def scale(x: array[float64], s: float64):
    i = tid()                                                 i = tid()
    x[i] = x[i] * s                                           x[i] = x[i] * s
"""

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kernelab.errors import Diagnostic, KernelTypeError, LaunchError, Source, Span
from kernelab.frontend.definitions.definitions import Template
from kernelab.frontend.definitions.kernels import KernelDefinition, default_numbers, lower_kernel
from kernelab.frontend.meaning import fence
from kernelab.frontend.meaning.annotations import is_any, open_ndim
from kernelab.lang.structs import AnyType, StructArray
from kernelab.lang.types import Array


class GenericKernel:
    """A kernel before its types are known; `instantiate` makes a kernel of it."""

    def __init__(self, template: Template) -> None:
        self.template = template
        self.name = template.name
        self.source: Source = template.places.source
        self.doc = template.doc
        self.span: Span = template.span
        self.names = tuple(argument.arg for argument in template.arguments)
        self.options: dict[str, Any] = dict(template.options)
        self.open = tuple(is_open(template, argument) for argument in template.arguments)
        self._instances: dict[tuple[AnyType | None, ...], KernelDefinition] = {}

    @property
    def __kernelab_kernel__(self) -> "GenericKernel":
        return self

    def __repr__(self) -> str:
        return f"<generic kernel {self.name}({', '.join(self.names)})>"

    @property
    def defaults(self) -> dict[str, Any]:
        """The defaults of its parameters."""
        return default_numbers(self.template)[0]

    def check(self) -> tuple[Diagnostic, ...]:
        """The mistakes that show before any types are known."""
        refused = fence.check(self.template.node, self.template.places)
        return (*refused.diagnostics, *default_numbers(self.template)[1])

    def instantiate(self, types: Sequence[AnyType | None]) -> KernelDefinition:
        """The kernel for these types, of which only those of open parameters count; raises KernelError."""
        key = tuple(type if is_open else None for type, is_open in zip(types, self.open, strict=True))
        if key not in self._instances:
            self._instances[key] = self._lowered(key)
        return self._instances[key]

    def _lowered(self, types: Sequence[AnyType | None]) -> KernelDefinition:
        given: dict[str, AnyType] = {}
        for argument, type in zip(self.template.arguments, types, strict=True):
            if type is not None:
                self._refuse_rank(argument, type)
                given[argument.arg] = type
        outcome = lower_kernel(self.template, given)
        if outcome.kernel is None:
            raise KernelTypeError(*outcome.errors)
        return replace(outcome.kernel, options=self.options)

    def _refuse_rank(self, argument: ast.arg, type: AnyType) -> None:
        assert argument.annotation is not None
        wanted = open_ndim(argument.annotation)
        found = type.ndim if isinstance(type, Array | StructArray) else 0
        if wanted is not None and wanted != found:
            expected = f"an array of {wanted} dimension{'s' * (wanted != 1)}"
            message = f"argument `{argument.arg}` of kernel `{self.name}` expects {expected}, not {type}"
            raise LaunchError(Diagnostic(message, self.template.places(argument), "ndim"))


def is_open(template: Template, argument: ast.arg) -> bool:
    """Whether the type of a parameter is left to the launch."""
    return argument.annotation is not None and is_any(argument.annotation, template.scope)


def is_generic(template: Template) -> bool:
    """Whether a def has a parameter whose type is left to the launch."""
    return any(is_open(template, argument) for argument in template.arguments)
