"""What a notebook calls arrays: its variables, and the places in lists, dicts and objects that they hold.

Knows names and memory, and of notebooks only where their names are.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import name_of_memory
from kernelab.runtime.memory.memory import Allocation

MOST_LOOKED_UP = 64
"""For how many memories the frames of callers are gone through."""

MOST = 20_000
"""How many places are looked at in one container."""


def names_of(memories: Iterable[Allocation], namespace: Mapping[str, Any]) -> dict[Allocation, str]:
    """The name of an array over each memory: that of a variable before that of a place in a container."""
    wanted = {id(memory): memory for memory in memories}
    found: dict[int, str] = {}
    for places in (_variables(namespace), _inside(namespace)):
        for name, held in places:
            key = id(held.allocation)
            if key in wanted:
                found.setdefault(key, name)
        if len(found) == len(wanted):
            break
    return {wanted[key]: name for key, name in found.items()}


def names_now(memories: Iterable[Allocation]) -> Mapping[Allocation, str]:
    """What the notebook that is running calls them; elsewhere, what the code that called kernelab does."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None:
        return names_of(memories, shell.user_ns)
    named = ((memory, name_of_memory(memory)) for memory in islice(memories, MOST_LOOKED_UP))
    return {memory: name for memory, name in named if name}


def _variables(namespace: Mapping[str, Any]) -> Iterator[tuple[str, array]]:
    for name, held in tuple(namespace.items()):
        if isinstance(held, array) and not name.startswith("_"):
            yield name, held


def _inside(namespace: Mapping[str, Any]) -> Iterator[tuple[str, array]]:
    for name, held in tuple(namespace.items()):
        if name.startswith("_") or isinstance(held, array | type):
            continue
        match held:
            case list() | tuple():
                found = enumerate(held[:MOST])
                places: Iterable[tuple[str, Any]] = ((f"{name}[{i}]", one) for i, one in found)
            case dict():
                places = ((f"{name}[{key!r}]", one) for key, one in tuple(held.items())[:MOST])
            case _:
                fields = getattr(held, "__dict__", None)
                places = () if not isinstance(fields, dict) else _fields(name, fields)
        yield from ((place, one) for place, one in places if isinstance(one, array))


def _fields(name: str, fields: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(f"{name}.{field}", one) for field, one in tuple(fields.items())[:MOST]]
