"""Data classes of kernelab's own making do what those of `dataclasses` do."""

import copy
import dataclasses
import inspect
import pickle
from dataclasses import field
from typing import Any, ClassVar

import pytest

from kernelab import data_classes


def _kinds(decorator: Any) -> dict[str, type]:
    """The same classes, made by either decorator."""

    @decorator(frozen=True, slots=True)
    class Point:
        unit: ClassVar[str] = "m"
        x: float
        y: float = 0.0
        note: str = field(default="", compare=False)
        seen: list[int] = field(default_factory=list, repr=False, hash=False, compare=False)
        size: float = field(init=False, default=1.0)

        def __post_init__(self) -> None:
            object.__setattr__(self, "size", self.x + self.y)

    @decorator(frozen=True, slots=True)
    class Point3(Point):
        z: float = 0.0

    @decorator(frozen=True, slots=True)
    class One:
        value: Any

    @decorator(frozen=True, slots=True)
    class Nothing:
        pass

    @decorator(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
    class Thing:
        name: str

        def __repr__(self) -> str:
            return self.name

    return {kind.__name__: kind for kind in (Point, Point3, One, Nothing, Thing)}


OURS, THEIRS = _kinds(data_classes.dataclass), _kinds(dataclasses.dataclass)
for _name, _kind in OURS.items():
    _kind.__qualname__ = _name  # where pickle finds it
    globals()[_name] = _kind
NAN = float("nan")
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Point", (1.0,), {}),
    ("Point", (1.0, 2.0), {"note": "a"}),
    ("Point", (1.0, 2.0, "b", [3]), {}),
    ("Point3", (1.0, 2.0), {"z": 4.0}),
    ("One", (NAN,), {}),
    ("One", (1,), {}),
    ("One", (True,), {}),
    ("Nothing", (), {}),
]


@pytest.mark.parametrize("name", OURS)
def test_a_class_says_the_same_of_itself(name: str) -> None:
    ours, theirs = OURS[name], THEIRS[name]
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert ours.__match_args__ == theirs.__match_args__
    assert ours.__slots__ == theirs.__slots__
    assert [one.name for one in dataclasses.fields(ours)] == [one.name for one in dataclasses.fields(theirs)]


@pytest.mark.parametrize(("name", "args", "named"), CASES)
def test_an_object_does_the_same(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    ours, theirs = OURS[name](*args, **named), THEIRS[name](*args, **named)
    assert repr(ours) == repr(theirs).replace("_kinds.<locals>.", "")
    for other, arguments, rest in CASES:
        same = ours == OURS[other](*arguments, **rest)
        assert same == (theirs == THEIRS[other](*arguments, **rest))
        assert not same or hash(ours) == hash(OURS[other](*arguments, **rest))
    for made in (copy.copy(ours), pickle.loads(pickle.dumps(ours)), dataclasses.replace(ours)):
        assert repr(made) == repr(ours)
    for attribute in ("x", "value", "other"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(ours, attribute, 1)
    with pytest.raises(TypeError):
        OURS[name](*args, **named, nonsense=1)


def test_objects_without_equality_are_compared_by_identity() -> None:
    one, other = OURS["Thing"]("a"), OURS["Thing"]("a")
    assert one != other
    assert repr(one) == "a"
    assert len({one, other}) == 2
