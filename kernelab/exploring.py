"""Sliders for the parameters of a function, beside its value, its gradient and its picture: `explore`.

@kl.explore(length=(0.5, 3.0), angle=(0.0, 1.5))
def swing(length, angle):
    ...
    return loss, path           or the loss alone
"""

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import update_wrapper, wraps
from typing import Any, NamedTuple

import numpy as np

from kernelab.data_classes import replace
from kernelab.errors import (
    WARNED,
    Diagnostic,
    GradientError,
    KernelError,
    KernelTypeError,
    KernelValueError,
    TapeError,
    name_of,
)
from kernelab.func import value_and_grad
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import described
from kernelab.runtime.kernel.kernel import Kernel
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
        parameters = _parameters(func)
        needed = [name for name, has_default in parameters.items() if not has_default or name in ranges]
        if sorted(needed) != sorted(ranges):
            message = f"explore() has ranges for {', '.join(ranges) or 'nothing'}, the parameters are "
            message += ", ".join(needed)
            hint = f"write @kl.explore({', '.join(f'{name}=(0.0, 1.0)' for name in needed)})"
            raise KernelTypeError.of(message, "explore", hint)
        return Explorer(func, tuple(sliders))

    return decorate


def _parameters(func: Any) -> dict[str, bool]:
    """The named parameters of a function, and whether each has a default; KernelTypeError if it has none."""
    try:
        parameters = {} if isinstance(func, Kernel) else inspect.signature(func).parameters
    except (TypeError, ValueError):  # neither callable, nor of Python
        parameters = {}
    various = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    named = [one for one in parameters.values() if one.kind not in various]
    if not named:
        message = f"explore() takes a function of named parameters, and {name_of(func)} is none"
        hint = "write def f(x): ..., which may launch kernels, and returns an array of one float"
        raise KernelTypeError.of(message, "explore", hint)
    return {one.name: one.default is not one.empty for one in named}


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


class Moment(NamedTuple):
    """What a function gives at some values of its sliders: gradients, or why there are none.

    `warnings` are those of kernelab, which nobody would see who moves a slider.
    """

    sliders: tuple[dict[str, Any], ...]
    value: Any
    gradients: dict[str, array] | str
    pictures: Sequence[array]
    warnings: Sequence[str]


@contextmanager
def _noting_warnings() -> Iterator[list[str]]:
    """Within it, the messages of kernelab's warnings are noted, too."""
    told: list[str] = []

    def note(diagnostic: Diagnostic) -> None:
        if diagnostic.message not in told:
            told.append(diagnostic.message)

    WARNED.append(note)
    try:
        yield told
    finally:
        WARNED.remove(note)


class Explorer(LiveView):
    """A function with sliders for its parameters; a call of it calls the function."""

    __name__: str

    def __init__(self, func: Callable[..., Any], sliders: tuple[dict[str, Any], ...]) -> None:
        update_wrapper(self, func)
        self.func = func
        self.sliders = sliders
        self._now: Moment | Node = self._compute(sliders)
        super().__init__()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.func(*args, **kwargs)

    def slide(self, values: dict[str, float]) -> None:
        """Compute the view at other values; an error is shown in it."""
        sliders = tuple(each | {"value": float(values[each["name"]])} for each in self.sliders)
        try:
            now: Moment | Node = self._compute(sliders)
        except Exception as error:  # noqa: BLE001 (whatever the function raises, the sliders go on)
            message = str(error) if isinstance(error, KernelError) else f"{type(error).__name__}: {error}"
            now = words(Run(message, "bad"))
        self.sliders, self._now = sliders, now
        self.changed()

    def node(self, budget: int | None) -> Node:
        now = self._now
        return self._view(now, budget) if isinstance(now, Moment) else now

    def _compute(self, sliders: tuple[dict[str, Any], ...]) -> Moment:
        """What the function gives at these values."""
        numbers = {each["name"]: each["value"] for each in sliders}
        order = [name for name in inspect.signature(self.func).parameters if name in numbers]
        args = [array([numbers[name]], dtype=float) for name in order]

        @wraps(self.func)
        def parted(*args: array) -> tuple[Any, Any]:
            result = self.func(**dict(zip(order, args, strict=True)))
            value, *pictures = result if isinstance(result, tuple) else (result,)
            return value, pictures

        gradients: dict[str, array] | str
        with _noting_warnings() as told:
            try:
                every = tuple(range(len(args)))
                (value, pictures), found = value_and_grad(parted, every, has_aux=True)(*args)
                gradients = dict(zip(order, found, strict=True))
            except TapeError as error:
                raise _of_tape(error) from None
            except (GradientError, KernelTypeError) as error:  # the function's own are raised here
                (value, pictures), gradients = parted(*args), error.diagnostics[0].message
        shown = [each if isinstance(each, array) else array(each) for each in pictures]
        return Moment(sliders, value, gradients, shown, told)

    def _view(self, now: Moment, budget: int | None) -> Node:
        heading = words(Run(self.__name__, "strong"), " = ", Run(_number(now.value), "number"), level=1)
        gradients = now.gradients if isinstance(now.gradients, dict) else {}
        rows = tuple(
            (
                cell(each["name"]),
                cell(number(each["value"]), is_number=True),
                cell(number(gradients[each["name"]].item()) if gradients else "none", is_number=True),
            )
            for each in now.sliders
        )
        parts: list[Node] = [heading, Table("", ("parameter", "value", "gradient"), rows)]
        parts += [words(Run(message, "bad")) for message in now.warnings]
        parts += (
            [words(Run(f"no gradient: {now.gradients}", "bad"))] if isinstance(now.gradients, str) else []
        )
        budget = None if budget is None else budget // max(len(now.pictures), 1)
        drawn = tuple(values_view("", each, budget) for each in now.pictures)
        return Below((*parts, Beside(drawn))) if drawn else Below(tuple(parts))


def _number(value: Any) -> str:
    """The value of a function, which may be any."""
    if isinstance(value, array):
        return number(value.item()) if value.size == 1 else f"{value.size} elements of {value.dtype}"
    return number(value)
