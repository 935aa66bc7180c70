"""A listing read literally: its text run as Python, one thread after another, in place of the IR it shows.

It has the interface of `tests.support.evaluate`, so the two can be compared: a listing that folds a value
past a write, or gives two values one name while both are needed, computes something else.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from kernelab.builtins.table import host_type
from kernelab.codegen.listing.listing import BACKWARDS, Listing
from kernelab.lang import ops
from kernelab.lang.ir import Function
from tests.support import python_oracle


class ReadError(AssertionError):
    """A listing that is no Python."""


def read(
    listing: Listing, function: Function, grid: Sequence[int], arguments: Mapping[str, Any]
) -> dict[str, list[Any]]:
    """Run the text over a grid, changing the NumPy arrays among the arguments, by parameter name."""
    residuals: dict[str, list[Any]] = {p.hint: [] for p in function.params if p.hint not in arguments}
    starts: list[dict[str, int]] = []
    namespace = _namespace()
    try:
        exec(f"from __future__ import annotations\n{listing}", namespace)
    except SyntaxError as error:
        raise ReadError(f"{error}\n{listing}") from error
    for linear, place in enumerate(product(*map(range, grid))):
        starts.append({name: len(values) for name, values in residuals.items()})
        place = (linear,) if len(function.threads) == 1 else place
        _enter_thread(namespace, linear, tuple(map(np.int32, place)))
        given = [arguments.get(p.hint, residuals.get(p.hint)) for p in function.params]
        with np.errstate(all="ignore"):
            namespace[function.name](*given)
    return {**residuals, "starts": starts}


def read_textbook(
    listing: Listing, function: Function, grid: Sequence[int], arguments: Mapping[str, Any]
) -> list[Any]:
    """Run the text of a textbook adjoint: all threads up to where it turns, then back, the last thread first.

    Changes the NumPy arrays among the arguments; what the text returns, by threads.
    """
    lines = ["    yield" if BACKWARDS in line.text else line.text for line in listing.lines]
    assert "    yield" in lines, listing
    threads, results = [], []
    for linear, place in enumerate(product(*map(range, grid))):
        namespace = _namespace()
        exec("\n".join(["from __future__ import annotations", *lines]), namespace)
        place = (linear,) if len(function.threads) == 1 else place
        _enter_thread(namespace, linear, tuple(map(np.int32, place)))
        threads.append(namespace[function.name](*(arguments[p.hint] for p in function.params)))
    with np.errstate(all="ignore"):
        for thread in threads:
            next(thread)
        for thread in reversed(threads):
            try:
                next(thread)
            except StopIteration as end:
                results.insert(0, end.value)
    return results


def _enter_thread(namespace: dict[str, Any], linear: int, place: tuple[Any, ...]) -> None:
    stack: list[Any] = []
    namespace["push"] = lambda *values: stack.append(values if len(values) > 1 else values[0])
    namespace["pop"] = stack.pop
    namespace["tid"] = lambda: place if len(place) > 1 else place[0]
    namespace["number_of_thread"] = lambda: np.int64(linear)


def _namespace() -> dict[str, Any]:
    words = {name: partial(_apply, name) for name in ops.names()}
    own = {"insert": _insert, "atomic_add": _atomic_add, "zeros": lambda shape, _: np.zeros(shape)}
    return {**words, **own, "int": python_oracle.WORDS["int"]}


def _apply(name: str, *operands: Any) -> Any:
    """An operation over float64, which Python's own floats are."""
    values = [np.asarray(x, np.int32 if type(x) is int else None) for x in operands]
    found = ops.resolve(name, [host_type(value) for value in values])
    assert found is not None, f"{name} of {operands}"
    return np.asarray(found[0].numpy(*values))[()]


def _atomic_add(array: Any, *place_and_value: Any) -> Any:
    *place, value = place_and_value
    before = array[tuple(place)]
    array[tuple(place)] += value
    return before


def _insert(vector: Any, *place_and_value: Any) -> Any:
    *place, value = place_and_value
    changed = np.array(vector)
    changed[tuple(place)] = value
    return changed
