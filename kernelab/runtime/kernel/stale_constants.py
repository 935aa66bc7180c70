"""Warns once, at a launch, when a constant compiled into the kernel has changed its value since.

A launch compares identities, and the bytes of vectors and arrays, in one expression made of the names.
Kernels of a notebook's cells are compared after each cell instead (`jupyter.stale`), and their launches pay
nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from kernelab.frontend import Constant, KernelDefinition
from kernelab.lang.rounding import is_float_dtype
from kernelab.runtime.context.recorder import warn_at
from kernelab.runtime.kernel.loading import maps_of

MAX_VALUE = 40
"""How many characters of a value are shown."""

_GONE = object()


class Constants:
    """The constants of a kernel of which nothing has been said; `unchanged` looks at their names."""

    def __init__(self, definition: KernelDefinition) -> None:
        self._definition = definition
        self._watch(definition.constants)

    def _watch(self, found: Sequence[Constant]) -> None:
        self._found = [one for one in found if current(one.around, one.name, _GONE) is not _GONE]
        self.unchanged = _comparison(self._found)

    def tell(self) -> None:
        """Warn, with KernelWarning, of the names that hold something else; they are not looked at again."""
        values = [current(one.around, one.name, one.value) for one in self._found]
        values = [now.copy() if isinstance(now, np.ndarray) else now for now in values]
        pairs = list(zip(self._found, values, strict=True))
        self._watch([Constant(one.around, one.name, now) for one, now in pairs if same(one.value, now)])
        for one, now in pairs:
            if not same(one.value, now):
                was = f"`{self._definition.name}` was compiled with {one.name} = {short(one.value)}"
                hint = f"give the kernel {one.name} as an argument, or define it again"
                message = f"{was}; {one.name} is {short(now)} now"
                warn_at(message, "stale", hint, span=self._definition.span)


_COMPARISON = """
def unchanged():
    try:
        return {conditions}
    except Exception:
        return False
"""


def _comparison(found: Sequence[Constant]) -> Callable[[], bool]:
    """A function that says whether every name holds the very object that it held, or an array as it was."""
    names: dict[str, Any] = {}
    conditions = ["True"]
    for k, one in enumerate(found):
        root, dot, rest = one.name.partition(".")
        is_array = isinstance(one.value, np.ndarray)
        names[f"then_{k}"] = one.value.tobytes() if is_array else one.value
        # The one dictionary that has the name is faster to read than several in turn.
        names[f"names_{k}"] = next(space for space in maps_of(one.around) if root in space)
        held = f"names_{k}[{root!r}]{dot}{rest}"
        conditions.append(f"{held}.tobytes() == then_{k}" if is_array else f"{held} is then_{k}")
    exec(_COMPARISON.format(conditions=" and ".join(conditions)), names)
    made: Callable[[], bool] = names["unchanged"]
    return made


def constants_of(definition: KernelDefinition) -> Constants | None:
    """The constants that a launch has to compare; None where there are none."""
    if not definition.constants or definition.source.label.startswith("Cell In["):
        return None
    return Constants(definition)


def current(names: Mapping[str, Any], name: str, otherwise: Any) -> Any:
    """The value of a name such as `Config.gain` in a namespace; `otherwise` where it has none."""
    root, *parts = name.split(".")
    if root not in names:
        return otherwise
    return reduce(lambda value, part: getattr(value, part, otherwise), parts, names[root])


def same(then: Any, now: Any) -> bool:
    """Whether a kernel that was compiled with one value holds for the other."""
    if then is now:
        return True
    if type(then) is not type(now) or callable(then):
        return False
    return bool(np.array_equal(then, now, equal_nan=is_float_dtype(np.asarray(then).dtype)))


def short(value: Any) -> str:
    """A value in a few characters."""
    text = str(value.tolist()) if isinstance(value, np.generic | np.ndarray) else repr(value)
    return text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 1] + "…"
