"""Hooks: functions that lower layers call and higher layers provide.

Arithmetic on arrays runs kernels, and kernels are built on arrays.  The import goes one way only.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class Hook(Generic[P, R]):
    """A function that a module further to the right provides."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._function: Callable[P, R] | None = None

    @property
    def is_provided(self) -> bool:
        """Whether some module has provided the function."""
        return self._function is not None

    def provide(self, function: F) -> F:
        """Call `function` from now on; a decorator."""
        self._function = function
        return function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        assert self._function is not None, f"no module that provides {self.name} has been imported"
        return self._function(*args, **kwargs)


operate: "Hook[[str, Sequence[Any]], Any]" = Hook("operate")
"""An operator applied to arrays and numbers, element by element (`elementwise`)."""

change: "Hook[[str, Any, Any], Any]" = Hook("change")
"""An operator such as `+=` applied in place (`elementwise`)."""

store: "Hook[[Any, Any], None]" = Hook("store")
"""The elements of one array copied into another, cast and broadcast (`reductions`)."""

pick: "Hook[[Any, tuple[Any, ...]], Any]" = Hook("pick")
"""The elements of an array at indices (`indexed`)."""

compile_entry: "Hook[[str, str], Callable[[bytes], None]]" = Hook("compile_entry")
"""The entry of the kernel with that name in a text (`kernel`)."""

run: "Hook[[Any, Any, list[Any]], None]" = Hook("run")
"""A kernel launched on a grid with its arguments (`launch`)."""

launch: "Hook[..., Any]" = Hook("launch")
"""`kl.launch` (`launch`)."""

check_rules: "Hook[[Any], None]" = Hook("check_rules")
"""Warnings of the wrong derivative rules in a program (`rule_check`)."""
