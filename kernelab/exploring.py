"""Sliders for the parameters of a function, beside its value, its gradient and its picture: `explore`.

@kl.explore(length=(0.5, 3.0), angle=(0.0, 1.5))
def swing(length, angle):
    ...
    return loss, path           or the loss alone
"""

import inspect
import math
from collections.abc import Callable
from functools import update_wrapper, wraps
from typing import Any

import numpy as np

from kernelab.data_classes import replace
from kernelab.errors import GradientError, KernelError, KernelTypeError, KernelValueError, TapeError
from kernelab.func import value_and_grad
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import described
from kernelab.views.live.live_views import LiveView
from kernelab.views.pages.markup import Below, Beside, Node, Run, Table, cell, words
from kernelab.views.pages.picture import number
from kernelab.views.tape.arrays import values_view

__all__ = ["explore"]


def explore(*func: Any, **ranges: Any) -> Callable[[Callable[..., Any]], "Explorer"]:
    """Show sliders for the parameters of a function, and its value, gradient and picture; a decorator.

    `ranges` has for each parameter the lowest and the highest number, and, if wanted, the one to start from.
    The function gets arrays of one float32, and returns an array of one float, or a tuple of that and the
    arrays to show.  It stays a function.  Raises KernelTypeError or KernelValueError for ranges that are
    none, or not those of its parameters.
    """
    if func:
        message = "explore() takes a range for each parameter"
        raise KernelTypeError.of(message, "explore", "write @kl.explore(x=(0.0, 1.0)) above def")
    sliders = [_slider(name, given) for name, given in ranges.items()]

    def decorate(func: Callable[..., Any]) -> Explorer:
        needed = [
            name
            for name, parameter in inspect.signature(func).parameters.items()
            if parameter.default is parameter.empty or name in ranges
        ]
        if sorted(needed) != sorted(ranges):
            message = f"explore() has ranges for {', '.join(ranges) or 'nothing'}, the parameters are "
            message += ", ".join(needed)
            hint = f"write @kl.explore({', '.join(f'{name}=(0.0, 1.0)' for name in needed)})"
            raise KernelTypeError.of(message, "explore", hint)
        return Explorer(func, tuple(sliders))

    return decorate


def _slider(name: str, bounds: Any) -> dict[str, Any]:
    numbers = bounds if isinstance(bounds, tuple | list) else ()
    if len(numbers) not in (2, 3) or not all(isinstance(x, int | float | np.number) for x in numbers):
        message = f"{name} is {described(bounds)}, and has to be a range of numbers"
        raise KernelTypeError.of(message, "explore", f"write {name}=(0.0, 1.0)")
    low, high = float(numbers[0]), float(numbers[1])
    value = float(numbers[2]) if len(numbers) == 3 else (low + high) / 2
    if not -math.inf < low <= value <= high < math.inf or low == high:
        message = f"{name}={bounds} is not a range: the first number is the lowest, a third one lies between"
        raise KernelValueError.of(message, "explore", f"write {name}=(0.0, 1.0, 0.5)")
    return {"name": name, "low": low, "high": high, "value": value}


def _of_tape(error: TapeError) -> TapeError:
    """The error of a tape that a function opens while its gradient is taken, in the terms of `explore`."""
    first, *rest = error.diagnostics
    if first.code == "nested":
        message = "explore() takes the gradient of this function itself, and a tape cannot be opened in it"
        hint = "leave the tape and its backward out, and return the value: an array of one float"
        first = replace(first, message=message, hint=hint)
    return TapeError(first, *rest)


class Explorer(LiveView):
    """A function with sliders for its parameters; a call of it calls the function."""

    __name__: str

    def __init__(self, func: Callable[..., Any], sliders: tuple[dict[str, Any], ...]) -> None:
        update_wrapper(self, func)
        self.func = func
        self.sliders = sliders
        self._now: Any = self._compute()
        super().__init__()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.func(*args, **kwargs)

    def slide(self, values: dict[str, float]) -> None:
        """Compute the view at other values; an error is shown in it."""
        self.sliders = tuple(each | {"value": float(values[each["name"]])} for each in self.sliders)
        try:
            self._now = self._compute()
        except Exception as error:  # noqa: BLE001 (whatever the function raises, the sliders go on)
            message = str(error) if isinstance(error, KernelError) else f"{type(error).__name__}: {error}"
            self._now = words(Run(message, "bad"))
        self.changed()

    def node(self, budget: int | None) -> Node:
        now = self._now
        return now if not isinstance(now, tuple) else self._view(*now, budget=budget)

    def _compute(self) -> tuple[Any, Any, Any]:
        """The value, the gradients or why there are none, and the pictures."""
        numbers = {each["name"]: each["value"] for each in self.sliders}
        order = sorted(numbers, key=[*inspect.signature(self.func).parameters].index)
        args = [array([numbers[name]], dtype=float) for name in order]

        @wraps(self.func)
        def parted(*args: array) -> tuple[Any, Any]:
            result = self.func(**dict(zip(order, args, strict=True)))
            value, *pictures = result if isinstance(result, tuple) else (result,)
            return value, pictures

        try:
            every = tuple(range(len(args)))
            (value, pictures), gradients = value_and_grad(parted, every, has_aux=True)(*args)
        except TapeError as error:
            raise _of_tape(error) from None
        except (GradientError, KernelTypeError) as error:  # the function's own are raised below
            return *parted(*args), error.diagnostics[0].message
        return value, pictures, dict(zip(order, gradients, strict=True))

    def _view(self, value: Any, pictures: list[Any], gradients: Any, *, budget: int | None) -> Node:
        shown = number(value.item() if isinstance(value, array) else value)
        heading = words(Run(self.__name__, "strong"), " = ", Run(shown, "number"), level=1)
        has_gradient = isinstance(gradients, dict)
        rows = tuple(
            (
                cell(each["name"]),
                cell(number(each["value"]), is_number=True),
                cell(number(gradients[each["name"]].item()) if has_gradient else "none", is_number=True),
            )
            for each in self.sliders
        )
        parts: list[Node] = [heading, Table("", ("parameter", "value", "gradient"), rows)]
        parts += [] if has_gradient else [words(Run(f"no gradient: {gradients}", "bad"))]
        arrays = [each if isinstance(each, array) else array(each) for each in pictures]
        budget = None if budget is None else budget // max(len(arrays), 1)
        drawn = tuple(values_view("", each, budget) for each in arrays)
        return Below((*parts, Beside(drawn))) if drawn else Below(tuple(parts))
