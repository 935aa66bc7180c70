"""What the host computes of values that a transform differentiates: warned of where it comes back.

A look at such values (to print, to plot, to stop) changes no derivative.  Numbers that are taken from them
and given to a launch, or to an array, are constants there, which a person may not have meant.  Knows what the
host has seen; must not know levels.
"""

import warnings
from typing import Any

from kernelab.autodiff.fromhost import FromHost, HostValues, PassedOn
from kernelab.autodiff.hosttext import may_reach
from kernelab.autodiff.outline import reverse_of
from kernelab.errors import Diagnostic, KernelTypeError, KernelWarning, Related
from kernelab.lang.traced import Origins
from kernelab.runtime.launch import Call
from kernelab.runtime.recorder import Place, called, caller
from kernelab.runtime.strided import array
from kernelab.runtime.taken import Taken


class HostSide:
    """What the host has taken within one run of a function, and which lines have been warned of."""

    def __init__(self) -> None:
        self._seen = FromHost()
        self._told: set[tuple[Place, Place]] = set()

    def looked_at(self, elements: array) -> Origins:
        """Remember what the host looks at; what that is to carry."""
        return self._seen.saw(elements, 0, True)

    def launched(self, call: Call) -> None:
        """Warn of numbers from there that a launch is given, if what it computes follows them."""
        place = caller()
        given = [(i, call.arguments[i]) for i in call.kernel.plan.numbers]
        for number in self._seen.numbers_in(0, given):
            taken = self._source(number, place, len(call.arguments))
            if taken is not None and _is_varied(call, number.position):
                way = f"through the launch of `{call.kernel.name}`: it is given a number taken from"
                self._tell(way, number.certain, place, taken)

    def came_in(self, elements: array, data: Any, how: str) -> None:
        """Warn of values that come from there and that an array is made of, or filled with."""
        values = self._seen.came_in(elements, data, 0, how)
        taken = None if values is None else self._source_of_array(values)
        if values is not None and taken is not None:
            self._tell("through an array: the host made its values from", values.certain, values.place, taken)

    def _source(self, number: PassedOn, place: Place, count: int) -> Taken | None:
        if number.certain:
            return number.taken[0]
        if number.equal is not None and not number.written:
            return number.equal
        taking = self._seen.takings
        return next((t for t in taking if may_reach(t.place, place, number.position, count)), None)

    def _source_of_array(self, values: HostValues) -> Taken | None:
        if values.certain:
            return values.taken[0]
        reaches = {taken: may_reach(taken.place, values.place) for taken in self._seen.takings}
        unclear = values.latest if None in reaches.values() else None
        return next((taken for taken, may in reaches.items() if may), unclear)

    def _tell(self, way: str, certain: bool, place: Place, taken: Taken) -> None:
        if (place, taken.place) in self._told:
            return
        self._told.add((place, taken.place))
        seen = called(taken.elements, "values that are being differentiated")
        shown = Diagnostic(
            f"{'no' if certain else 'perhaps no'} derivative goes {way} {seen}",
            place.span,
            "host",
            "warning",
            hint="compute with kernels, and sum into an array: kl.utils.array_sum(y, out=total); if the "
            "derivative is meant to end here, that is fine",
            related=(Related("the host took them here:", taken.place.span),),
        )
        warnings.warn_explicit(shown.render(), KernelWarning, place.filename, place.line)


def _is_varied(call: Call, position: int) -> bool:
    """Whether what a launch computes has a derivative by a number among its arguments."""
    reverse = reverse_of(call.kernel, {*call.kernel.plan.floats, position}, call.groups())
    return isinstance(reverse, KernelTypeError) or position in reverse.reached
