"""The names around a Python function that becomes a kernel: of its frame, its module and its closure."""

import sys
from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Any


def names_around(depth: int) -> Mapping[str, Any]:
    """The names that the caller's caller sees, or whoever stands `depth` frames up."""
    frame = sys._getframe(depth)
    if frame.f_locals is frame.f_globals:
        return frame.f_globals
    return ChainMap(dict(frame.f_locals), frame.f_globals)


def maps_of(namespace: Mapping[str, Any]) -> list[Any]:
    """The dictionaries behind a namespace."""
    return namespace.maps if isinstance(namespace, ChainMap) else [namespace]


def closure(function: Callable[..., Any]) -> dict[str, Any]:
    """What the function's free variables hold now; those not assigned yet are left out."""
    found = {}
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    for name, cell in zip(code.co_freevars if code else (), cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


def evaluated(annotation: Any, function: Callable[..., Any], names: Mapping[str, Any]) -> Any:
    """An annotation as an object: its text is evaluated, where Python has left it as text."""
    if not isinstance(annotation, str):
        return annotation
    return eval(annotation, dict(ChainMap(closure(function), *maps_of(names))))
