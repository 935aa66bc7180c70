"""Frozen data classes with slots, made in a sixth of the time that `dataclasses` takes for one.

A first cell imports more than 200 of them.  Their methods are shared, so that only `__init__` is compiled; it
sets slots by their descriptors, which is faster, too.  Any other data class is made by `dataclasses`.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = ["dataclass", "field", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, **options: Any) -> Any:
        """Make a class a data class, as `dataclasses.dataclass` does."""
        if options.get("frozen") and options.get("slots"):
            del options["frozen"], options["slots"]
            return lambda cls: _frozen(cls, **options)
        make = dataclasses.dataclass(**options)
        return make if cls is None else make(cls)


def _frozen(cls: type, *, eq: bool = True, repr: bool = True, weakref_slot: bool = False) -> type:
    cls.__doc__ = cls.__doc__ or cls.__name__  # else its signature is looked for
    make = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, weakref_slot=weakref_slot)
    cls, own = make(cls), vars(cls)
    methods: dict[str, Callable[..., Any]] = {"__init__": _init(cls)}
    methods |= {"__setattr__": _no_change, "__delattr__": _no_change}
    if "__getstate__" not in own:
        methods |= {"__getstate__": _state, "__setstate__": _set_state}
    if repr and "__repr__" not in own:
        methods["__repr__"] = _repr
    if eq:
        values = _values([one.name for one in dataclasses.fields(cls) if one.compare])
        equal, hashed = _comparing(values)
        if "__eq__" not in own:
            methods["__eq__"] = equal
        if own.get("__hash__") is None:
            methods["__hash__"] = hashed
    for name, method in methods.items():
        setattr(cls, name, method)
    return cls


class _Factory:
    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _init(cls: type) -> Callable[..., None]:
    """The constructor; what is made of a factory has a default that stands for it."""
    namespace: dict[str, Any] = {"FACTORY": _FACTORY}
    parameters, body = ["self"], []
    fields = dataclasses.fields(cls)
    for one in fields:
        name = one.name
        namespace[f"_set_{name}"] = getattr(cls, name).__set__
        value = name
        if one.default_factory is not MISSING:
            namespace[f"_make_{name}"], namespace[f"_default_{name}"] = one.default_factory, _FACTORY
            value = f"_make_{name}() if {name} is FACTORY else {name}" if one.init else f"_make_{name}()"
        elif one.default is not MISSING:
            namespace[f"_default_{name}"] = one.default
            value = name if one.init else f"_default_{name}"
        if one.init:
            parameters.append(f"{name}=_default_{name}" if f"_default_{name}" in namespace else name)
        if one.init or f"_default_{name}" in namespace:
            body.append(f" _set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    text = [f"def __init__({', '.join(parameters)}):", *body, " return None"]
    exec("\n".join(text), namespace)  # made of the names of fields alone
    made: Callable[..., None] = namespace["__init__"]
    made.__annotations__ = {**{one.name: one.type for one in fields if one.init}, "return": None}
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda one: tuple(getattr(one, name) for name in names)


def _comparing(values: Callable[[Any], tuple[Any, ...]]) -> tuple[Callable[..., Any], Callable[..., int]]:
    def equal(self: Any, other: Any) -> Any:
        if self is other:
            return True
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(values(self))

    return equal, hashed


def _repr(self: Any) -> str:
    shown = [f"{one.name}={getattr(self, one.name)!r}" for one in dataclasses.fields(self) if one.repr]
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _no_change(self: Any, name: str, value: Any = None) -> NoReturn:
    raise FrozenInstanceError(f"{name!r} of {self.__class__.__name__} cannot change")


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for one, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)
