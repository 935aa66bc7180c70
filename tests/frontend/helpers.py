"""What the tests of the frontend share: from a cell's text to its kernels, mistakes and results."""

from typing import Any

import numpy as np

from kernelab.backend.cpu import interpreter
from kernelab.errors import Diagnostic, Source
from kernelab.frontend.definitions.cell import Lowered, lower_source
from kernelab.frontend.definitions.kernels import KernelDefinition
from kernelab.lang.ir import Function
from kernelab.lang.types import Array
from kernelab.lang.verify import verify
from kernelab.passes.ad.jvp import expand_gradients
from kernelab.passes.common.copying import inline
from tests.support import python_oracle

LABEL = "Cell In[3]"


def cell(text: str, **namespace: Any) -> Lowered:
    """A cell, lowered with the names of a notebook."""
    return lower_source(Source(text, LABEL), namespace)


def errors(text: str, **namespace: Any) -> list[Diagnostic]:
    """The mistakes of a cell."""
    return list(cell(text, **namespace).errors)


def error(text: str, **namespace: Any) -> Diagnostic:
    """The one mistake of a cell."""
    (found,) = errors(text, **namespace)
    return found


def kernel(text: str, name: str = "kernel", **namespace: Any) -> KernelDefinition:
    """A kernel of a cell that has no mistakes."""
    lowered = cell(text, **namespace)
    lowered.raise_errors()
    definition = lowered.definitions[name]
    assert isinstance(definition, KernelDefinition)
    return definition


def function(text: str, name: str = "kernel", **namespace: Any) -> Function:
    """The IR of a kernel, with its calls inlined."""
    return verify(inline(expand_gradients(kernel(text, name, **namespace).function)))


def ran(text: str, grid: tuple[int, ...] = (1,), /, **arguments: Any) -> dict[str, Any]:
    """The arguments after `kernel` of a cell ran on the interpreter, one thread after another."""
    after = {
        name: value.copy() if isinstance(value, np.ndarray) else value for name, value in arguments.items()
    }
    interpreter.run(function(text), grid, after, width=1)
    return after


def agrees_with_python(
    text: str, grid: tuple[int, ...] = (1,), /, name: str = "kernel", rtol: float = 1e-4, **arguments: Any
) -> None:
    """Assert that a kernel and the same text run as Python leave the same arrays."""
    lowered = function(text, name)
    ndims = {p.hint: p.type.ndim for p in lowered.params if isinstance(p.type, Array)}
    expected = python_oracle.run(text, name, grid, arguments, ndims)
    after = {
        name: value.copy() if isinstance(value, np.ndarray) else value for name, value in arguments.items()
    }
    interpreter.run(lowered, grid, after, width=1)
    for parameter in ndims:
        np.testing.assert_allclose(after[parameter], expected[parameter], rtol, 0.1 * rtol, err_msg=parameter)
