"""The arguments of a launch by position, by name and by default, in the order of the kernel's parameters.

Knows the names of parameters; must not know their types.
"""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from kernelab.errors import Diagnostic, LaunchError
from kernelab.frontend import GenericKernel, KernelDefinition

Loaded = KernelDefinition | GenericKernel


def ordered(kernel: Loaded, given: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """All arguments in order; those that are missing at the end are left to whoever checks their number.

    Raises LaunchError for a name that the kernel does not have or that got a value already, and for a
    parameter without a value before one that has one.
    """
    arguments = list(given)
    if not named and (not kernel.defaults or len(arguments) >= len(kernel.names)):
        return arguments
    rest = kernel.names[len(arguments) :]
    for name in named:
        if name not in rest:
            raise _not_taken(kernel, name)
    values = {**kernel.defaults, **named}
    for position, name in enumerate(rest):
        if name in values:
            arguments.append(values[name])
        elif any(later in values for later in rest[position:]):
            raise _error(
                kernel, f"kernel `{kernel.name}` needs a value for `{name}`", "pass it by position or name"
            )
        else:
            break
    return arguments


def _not_taken(kernel: Loaded, name: str) -> LaunchError:
    if name in kernel.names:
        return _error(kernel, f"kernel `{kernel.name}` gets two values for `{name}`", "leave one of them out")
    close = difflib.get_close_matches(name, kernel.names, 1)
    hint = f"did you mean {close[0]}?" if close else f"its parameters are {', '.join(kernel.names)}"
    return _error(kernel, f"kernel `{kernel.name}` has no parameter `{name}`", hint)


def _error(kernel: Loaded, message: str, hint: str) -> LaunchError:
    return LaunchError(Diagnostic(message, kernel.span, "count", hint=hint))
