"""What a Python function with a derivative of its own uses of the arrays around it, and leaves in them."""

import sys
from collections import UserDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from itertools import islice
from threading import get_ident
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary

import numpy as np

from kernelab.autodiff.records.provenance import LARGE, SMALL
from kernelab.data_classes import dataclass
from kernelab.host.traced import Origins
from kernelab.lang.types import is_differentiable
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import checksum
from kernelab.runtime.context.recorder import Place, Recorder, called, caller, warn_at
from kernelab.runtime.host.struct_instances import Instance
from kernelab.runtime.host.structarray import leaves_of
from kernelab.runtime.kernel.loading import closure
from kernelab.runtime.memory.memory import Allocation, youngest

MOST_REACHED = 1 << 10
"""Of how many objects that a function holds it is looked whether they are arrays."""

_LIBRARIES = sys.stdlib_module_names - {"__main__"} | {"kernelab", "numpy", "scipy"}
"""Packages in whose functions and classes no array of the user's is looked for."""

_Part = tuple[Any, ...]
"""Offset, shape, strides and dtype of an array."""


@dataclass(frozen=True, slots=True)
class Used:
    """Memory that a function has used, in a version: the parts, and their checksums.

    These are None where they are large, and no view of NumPy's may change them, or on a device.
    """

    version: int
    parts: tuple[_Part, ...]
    sums: tuple[int, ...] | None

    @staticmethod
    def of(memory: Allocation, arrays: Sequence[array]) -> "Used":
        """The memory as it is now, of which some arrays were used."""
        extents = {(one.offset, one.shape, one.strides, one.dtype): one.extent for one in arrays}
        nbytes, parts = sum(high - low for low, high in extents.values()), tuple(extents)
        if memory.space is not None or nbytes > (LARGE if memory.was_exposed else SMALL):
            return Used(memory.version, parts, None)
        return Used(memory.version, parts, _sums(memory, parts))

    @property
    def dtype(self) -> Any:
        """The type of elements."""
        return self.parts[0][-1]

    def arrays(self, memory: Allocation) -> list[array]:
        """The parts as arrays."""
        return [array.over(memory, *part) for part in self.parts]

    def has_changed(self, memory: Allocation) -> bool:
        """Whether these parts may have changed since, also through a view of NumPy's."""
        if memory.version == self.version and not memory.was_exposed:
            return False
        if self.sums is None:
            return memory.version != self.version
        return _sums(memory, self.parts) != self.sums


def _sums(memory: Allocation, parts: Iterable[_Part]) -> tuple[int, ...]:
    return tuple(checksum(array.over(memory, *part).seen()) for part in parts)


def arrays_reached(function: Any) -> Iterator[array]:
    """The arrays that a function names or holds, the nearest first.

    It is looked for them in closures, globals, defaults, containers, objects and their classes.
    """
    waiting, known = deque([function]), set[int]()
    while waiting and len(known) < MOST_REACHED:
        value = waiting.popleft()
        if id(value) in known:
            continue
        known.add(id(value))
        if isinstance(value, array):
            yield from leaves_of(value)
        else:
            waiting.extend(islice(_held(value), MOST_REACHED))


def _held(value: Any) -> Iterable[Any]:
    match value:
        case FunctionType() | type() if _is_of_library(value.__module__):
            return ()
        case FunctionType():
            return [*closure(value).values(), *(value.__defaults__ or ()), *_globals_named(value)]
        case MethodType() | staticmethod() | classmethod():
            return [value.__func__, getattr(value, "__self__", None)]
        case property():
            return [value.fget]
        case partial():
            return [value.func, *value.args, *value.keywords.values()]
        case Instance():
            return value._leaves()
        case np.ndarray() if value.dtype == object:
            return value.ravel()
        case tuple() | list() | set() | deque():
            return value
        case dict() | UserDict():
            return value.values()
        case ReferenceType():
            return [value()]
        case ContextVar():
            return [value.get(None)]
        case type():
            return vars(value).values()
        case _:
            return [*getattr(value, "__dict__", {}).values(), type(value)]


def _is_of_library(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] in _LIBRARIES


def _globals_named(function: FunctionType) -> Iterator[Any]:
    """The globals that a function or a def in it names, and what it may take from modules among them."""
    codes, names = [function.__code__], set[str]()
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += (const for const in code.co_consts if isinstance(const, CodeType))
    for value in map(function.__globals__.get, names):
        if isinstance(value, ModuleType):
            if not _is_of_library(value.__name__):
                yield from map(vars(value).get, names)
        else:
            yield value


class Surroundings(Recorder):
    """Notes which arrays a function uses of those around it, and where values of its copies go.

    `used` is memory that is older than its run and not given to it, in the version that it finds, and what it
    uses there.  `carrying` is what holds such values, with the type of elements.
    """

    def __init__(self, own: Iterable[Allocation], before: Mapping[Allocation, Used]) -> None:
        self.used = dict[Allocation, tuple[int, list[array]]]()
        self.carrying = WeakKeyDictionary[Allocation, Any](dict.fromkeys(own))
        self._own, self._first, self._thread = {*own}, youngest(), get_ident()
        self._changed = {one: one.version for one, used in before.items() if used.has_changed(one)}
        self._stale = dict[Allocation, tuple[str, Place]]()

    def used_outside(self, elements: array, by_host: bool) -> Origins:
        memory = elements.allocation
        if get_ident() == self._thread and memory.serial < self._first and memory not in self._own:
            self.used.setdefault(memory, (memory.version, []))[1].append(elements)
            if memory in self._changed and memory not in self._stale:
                self._stale[memory] = called(elements, "an array"), caller()
        return ()

    def computed_outside(self, read: Sequence[array], written: Sequence[array]) -> None:
        if get_ident() == self._thread and any(one.allocation in self.carrying for one in read):
            floats = (one for one in written if is_differentiable(one.dtype))
            self.carrying.update((one.allocation, one.dtype) for one in floats)

    def warn_of_stale(self, func: str) -> bool:
        """Warn of arrays that have changed since `func` was called, not in this run: if there are any."""
        is_told = False
        for memory, (name, place) in self._stale.items():
            if memory.version == self._changed[memory]:
                message = f"{name} has changed since {func} was called, and its derivative reads it here: "
                hint = f"pass it to {func} as an argument, integers as a copy: k.copy()"
                warn_at(f"{message}that is not the derivative of what ran", "changed", hint, place)
                is_told = True
        return is_told
