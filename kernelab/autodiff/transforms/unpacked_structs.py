"""Functions that take structs, as functions of the arrays in them.

What transforms differentiate by is then arrays alone: the parts of a struct follow the arguments, and the
function puts them together again.  Must not know what a transform does with the arrays.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

from kernelab.autodiff.transforms.struct_arguments import assembled, fields, is_struct, parts
from kernelab.autodiff.transforms.trees import argument_name, name_of, rebuilt, refusal
from kernelab.errors import GradientError
from kernelab.runtime.array.array import array

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Apart:
    """A function, its arguments, and the positions of those chosen, which are all arrays."""

    func: Function
    args: list[Any]
    chosen: tuple[int, ...]


def taken_apart(func: Function, args: Sequence[Any], chosen: Sequence[int]) -> Apart:
    """The function with the structs among its chosen arguments taken apart; itself where there are none."""
    places = dict.fromkeys(n for n in chosen if is_struct(args[n]))
    if not places:
        return Apart(func, list(args), tuple(chosen))
    given, taken, names = list(args), {}, {}
    for n in places:
        first = len(given)
        given += parts(args[n])
        taken[n] = tuple(range(first, len(given)))
        names.update({first + k: (n, name) for k, (name, _, _) in enumerate(fields(args[n]))})
    of_parts = _of_parts(func, args, taken)
    of_parts.__kernelab_parts__ = names  # type: ignore[attr-defined]
    return Apart(of_parts, given, tuple(k for n in chosen for k in taken.get(n, (n,))))


def _of_parts(func: Function, args: Sequence[Any], taken: Mapping[int, Sequence[int]]) -> Function:
    @wraps(func)
    def of_parts(*values: Any) -> Any:
        whole = list(values[: len(args)])
        for n, places in taken.items():
            whole[n] = assembled(args[n], iter([values[k] for k in places]))
        with _unchanged(func, whole, taken):
            return func(*whole)

    return of_parts


@contextmanager
def _unchanged(func: Function, args: Sequence[Any], places: Mapping[int, Any]) -> Iterator[None]:
    """Raise GradientError if what stands in some structs changes within it."""
    held = [
        (f"{argument_name(func, n)}, field {name}", part.allocation, part.allocation.version)
        for n in places
        for name, _, part in fields(args[n])
        if isinstance(part, array)
    ]
    yield
    for name, memory, before in held:
        if memory.version != before:
            hint = "write to a new array of structs: kl.clone(ps)"
            raise refusal(GradientError, f"{name_of(func)} changes its argument {name}", "changed", hint)


def together_by_argument(args: Sequence[Any], chosen: Sequence[int], found: Sequence[Any]) -> list[Any]:
    """For each argument chosen what belongs to it, where `found` has an item for each array."""
    rest = iter(found)
    return [rebuilt(args[n], rest) for n in chosen]
