"""From text to a verified function, for tests of what comes after the frontend."""

from functools import lru_cache
from typing import Any

from kernelab.errors import Source
from kernelab.frontend.definitions.cell import lower_source
from kernelab.frontend.definitions.kernels import KernelDefinition
from kernelab.lang.ir import Function
from kernelab.lang.verify import verify
from kernelab.passes.ad.jvp import expand_gradients
from kernelab.passes.common.copying import inline
from kernelab.passes.common.simplify import simplify


def raw(text: str, name: str, namespace: dict[str, Any] | None = None) -> Function:
    """The kernel of that name before its calls are inlined; raises what the frontend refuses."""
    result = lower_source(Source(text, "test"), namespace or {})
    result.raise_errors()
    definition = result.definitions[name]
    assert isinstance(definition, KernelDefinition)
    return expand_gradients(definition.function)


def lowered(text: str, name: str, namespace: dict[str, Any] | None = None) -> Function:
    """The kernel of that name, calls inlined and simplified."""
    return _simplified(text, name) if namespace is None else _lowered(text, name, namespace)


def _lowered(text: str, name: str, namespace: dict[str, Any] | None) -> Function:
    return verify(simplify(verify(inline(raw(text, name, namespace)))))


@lru_cache(4)
def _simplified(text: str, name: str) -> Function:
    """Kept, because a random program is checked in several ways, one after another."""
    return _lowered(text, name, None)
