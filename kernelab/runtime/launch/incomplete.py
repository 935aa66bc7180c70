"""Launches that are incomplete: without a kernel, without a grid, or with no lists of arguments.

Knows kernels and arrays by name; must not launch.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kernelab.errors import Diagnostic, LaunchError
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import described
from kernelab.runtime.kernel.kernel import Kernel


def require_lists(**given: Any) -> None:
    """Raise LaunchError where one of these arguments of a launch, by its name, is no sequence."""
    for name, arguments in given.items():
        if isinstance(arguments, Sequence) and not isinstance(arguments, str):
            continue
        message = f"`{name}` is a list of arguments, not {described(arguments)}"
        raise LaunchError(Diagnostic(message, code="argument", hint=f"write {name}=[...]"))


def no_kernel(found: object) -> LaunchError:
    """The error for a launch of what is no kernel."""
    if found is None:
        hint = "write kl.launch(kernel, dim=n, inputs=[...], outputs=[...])"
        return LaunchError(Diagnostic("launch() needs a kernel", code="kernel", hint=hint))
    name = getattr(found, "__name__", repr(found))
    if hasattr(found, "__kernelab_function__"):
        message = f"`{name}` is a function for kernels: it cannot be launched itself"
        hint = "launch a kernel that calls it; a kernel returns nothing and writes to arrays"
        return LaunchError(Diagnostic(message, code="kernel", hint=hint))
    message = f"launch() takes a kernel first, not the {type(found).__name__} {name}"
    hint = "write the function in a %%kernel cell, or decorate it with @kl.kernel"
    return LaunchError(Diagnostic(message, code="kernel", hint=hint))


def no_grid(kernel: Kernel, arguments: Iterable[Any]) -> LaunchError:
    """The error for a launch that does not say its grid; the hint takes the shape of its first array."""
    given = zip(kernel.loaded.names, arguments, strict=False)
    shaped = next((name for name, argument in given if isinstance(argument, array | np.ndarray)), None)
    hint = f"write dim={shaped}.shape to have one for each element of {shaped}" if shaped else "write dim=n"
    message = f"the launch of `{kernel.name}` does not say how many threads run: dim is missing"
    return LaunchError(Diagnostic(message, code="dim", hint=hint))
