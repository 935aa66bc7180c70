"""Finds the data races of a launch without running it: `find_races`."""

from collections.abc import Sequence
from typing import Any

from kernelab.guidance.bad_calls import telling
from kernelab.runtime.arguments.arguments import ordered, require_arguments_readable
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.launch.command import no_kernel, require_lists
from kernelab.runtime.launch.grid import grid_of
from kernelab.runtime.launch.launch import bind
from kernelab.runtime.launch.races import Races, races_of


@telling()
def find_races(
    kernel: Kernel, dim: int | Sequence[int], inputs: Sequence[Any] = (), outputs: Sequence[Any] = ()
) -> Races:
    """The data races that a launch of `kernel` with these arguments would have; nothing is changed.

    A race is an element that one thread plainly stores to and another one stores to, reads, or changes by an
    atomic.  There is one `Race` for each array and pair of lines, which as text names the element, the lines
    and two threads; what comes back is a tuple of them, empty if there is none.  What C++ snippets change is
    not seen: a warning.  Raises what the launch would raise, and GradientError in a lane of `vmap`.
    """
    if not isinstance(kernel, Kernel):
        raise no_kernel(kernel)
    require_lists(inputs=inputs, outputs=outputs)
    arguments = ordered(kernel.loaded, [*inputs, *outputs], {})
    kernel, grid = kernel.of_arguments(arguments), grid_of(dim)
    parts = [grid.packed]
    bind(kernel, arguments, parts)
    require_arguments_readable(arguments)
    if not grid.threads:
        return Races((), kernel.name)
    found = races_of(kernel, grid.extents, arguments, parts)
    return Races(found, kernel.name)
