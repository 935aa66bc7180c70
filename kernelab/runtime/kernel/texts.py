"""Compiles texts that hold several definitions: cells of notebooks, texts of users, and kernelab's own."""

import textwrap
from collections.abc import Mapping
from typing import Any

from kernelab import hooks
from kernelab.backend.common.backends import Entry
from kernelab.data_classes import dataclass, replace
from kernelab.errors import KernelTypeError, Source
from kernelab.frontend.definitions.cell import Definition, Lowered, lower_source
from kernelab.frontend.definitions.functions import UserFunction
from kernelab.frontend.definitions.kernels import GenericKernel, KernelDefinition
from kernelab.frontend.meaning.annotations import StructDefinition
from kernelab.frontend.meaning.source import parse
from kernelab.runtime.context.conversion import described
from kernelab.runtime.context.garbage import put_off
from kernelab.runtime.host.struct_instances import Instance, class_of
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.loading import names_around, warn_of
from kernelab.runtime.kernel.pickling import (
    Part,
    by_token,
    captured,
    require_own_rules,
    require_version,
    token_of,
    version,
)


@dataclass(eq=False)
class Compiled:
    """A text and what was made of it: its kernels and functions, and what the frontend found besides.

    It pickles as text with the names that it takes from around it.
    """

    source: Source
    options: Mapping[str, Any]
    definitions: dict[str, "Made"]
    lowered: Lowered
    token: str | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        source, every = self.source, self.definitions.values()
        functions = [value for value in every if isinstance(value, UserFunction)]
        require_own_rules(member for function in functions for member in function.members)
        constants = [one for function in functions for one in function.constants.values()]
        for value in every:
            constants += value.constants if isinstance(value, Kernel) else ()
        names = captured(parse(source), self.lowered.named, constants, f"the text of {source.label}")
        text = (source.text, source.label, source.first_line)
        return _again, (version(), token_of(self), text, names, {**self.options})


def compile(
    text: Any, namespace: Mapping[str, Any] | None = None, label: str = "<text>"
) -> dict[str, "Made"]:
    r"""The kernels, functions and structs of a text, by name, as a %%kernel cell would make them.

    `namespace` holds the names around the text, by default those of the caller; `label` is what messages call
    the text, which may be indented as a whole.  Raises KernelError with up to ten mistakes, and warns, with
    KernelWarning, of lines that are hardly meant.

    >>> made = kl.compile("def double(x: array[float]):\n    x[tid()] = 2.0 * x[tid()]")
    >>> x = kl.ones(3)
    >>> made["double"][3](x)
    >>> x.list()
    [2.0, 2.0, 2.0]
    """
    around: object = names_around() if namespace is None else namespace
    if not isinstance(text, str):
        message = f"compile takes the text of kernels, not {described(text)}"
        raise KernelTypeError.of(message, "text", "decorate a function with @kl.kernel")
    if not isinstance(around, Mapping):
        message = f"namespace holds the names around the text, and here it is {described(namespace)}"
        raise KernelTypeError.of(message, "text", "write kl.compile(text)[name] for one of its kernels")
    compiled = compile_source(Source(textwrap.dedent(text), label), around)
    compiled.lowered.raise_errors()
    warn_of(compiled.lowered.diagnostics)
    return compiled.definitions


@put_off()
def compile_source(source: Source, namespace: Mapping[str, Any] | None = None, **options: Any) -> Compiled:
    """Compile every def of a text, with the names around it; mistakes are collected, not raised.

    `options` are those of the `kernel` decorator, for every kernel of the text.
    """
    lowered = lower_source(source, {} if namespace is None else namespace)
    definitions = {name: _loaded(definition, options) for name, definition in lowered.definitions.items()}
    compiled = Compiled(source, options, definitions, lowered)
    for name, value in definitions.items():
        if not isinstance(value, type):
            value.origin = Part(_member, (compiled, name))
    return compiled


def _again(
    there: str, token: str, text: tuple[str, str, int], names: Mapping[str, Any], options: Mapping[str, Any]
) -> Compiled:
    require_version(there, f"the text of {text[1]}")
    compiled: Compiled = by_token(token, lambda: compile_source(Source(*text), names, **options))
    return compiled


def _member(compiled: Compiled, name: str) -> "Made":
    if name not in compiled.definitions:
        compiled.lowered.raise_errors()
    return compiled.definitions[name]


def kernels_of(text: str, label: str, names: Mapping[str, Any] | None = None) -> dict[str, Kernel]:
    """The kernels of a text of kernelab's own, by name; raises KernelError where the types do not fit."""
    compiled = compile_source(Source(text, label), names)
    compiled.lowered.raise_errors()
    return {name: value for name, value in compiled.definitions.items() if isinstance(value, Kernel)}


@hooks.compile_entry.provide
def _entry_of(text: str, name: str) -> Entry:
    return kernels_of(text, "kernelab elements")[name].program.entry


Made = Kernel | UserFunction | type[Instance]
"""What a definition of a text is to its user."""


def _loaded(definition: Definition, options: Mapping[str, Any]) -> Made:
    if isinstance(definition, StructDefinition):
        return class_of(definition.struct)
    if isinstance(definition, GenericKernel):
        definition.options |= options
        return Kernel.of(definition.name, definition)
    if not isinstance(definition, KernelDefinition):
        return definition
    return Kernel.of(definition.name, replace(definition, options={**definition.options, **options}))
