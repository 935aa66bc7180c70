"""Warnings where a transform computes with values that the host took of what is differentiated.

To the transform they are constants: the derivative along the host's computation is not in its result.
"""

from collections.abc import Iterable

from kernelab.autodiff.records.provenance import Cut, Provenance, array_from_host, number_from_host
from kernelab.autodiff.records.records import would_reach
from kernelab.host.traced import Origins
from kernelab.lang.types import is_differentiable
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import Place, caller
from kernelab.runtime.kernel.arguments import array_of
from kernelab.runtime.launch.call import Call


def warn_of_arguments(host: Provenance, call: Call) -> None:
    """Warn of host values computed from differentiated ones, where the launch would differentiate them."""
    title, place = f"the launch of `{call.kernel.name}`", caller()
    plan, floats = call.kernel.plan, call.kernel.program.floats
    for i, argument in enumerate(call.arguments):
        elements = array_of(argument)
        if isinstance(elements, array):
            is_float = i in floats or i in plan.numbers
            cut = _made_by_order(host, elements, (title, place)) if is_float else None
            if cut is not None and would_reach(call, (i,), floats):
                host.tell(cut)
            continue
        sources = host.sources(argument)
        if sources and would_reach(call, (i,), floats):
            host.tell(number_from_host(title, place, sources[0], in_transform=True))
    warn_of_numbers(host, title, plan.origins)


def _made_by_order(host: Provenance, elements: array, reader: tuple[str, Place] | None) -> Cut | None:
    """The cut at an array that the host has made after it took values, not known from which."""
    values = next(iter(host.arrays.get(elements.allocation, [])[-1:]), None)
    if values is None or not values.earlier or values.host_reads:
        return None
    return array_from_host(elements, values, host.host_reads[values.earlier - 1], reader, in_transform=True)


def warn_of_arrays(host: Provenance, arrays: Iterable[array], reader: str | None) -> None:
    """Warn of host values where something other than a launch would differentiate them."""
    for elements in arrays:
        if is_differentiable(elements.dtype):
            host.look_again(elements)
            cut = _made_by_order(host, elements, None if reader is None else (reader, caller()))
            if cut is not None:
                host.tell(cut)


def warn_of_numbers(host: Provenance, title: str, taken: Origins) -> None:
    """Warn of the first of the numbers that something captures or is given, with these origins."""
    for source in host.known(taken)[:1]:
        host.tell(number_from_host(title, caller(), source, in_transform=True))
