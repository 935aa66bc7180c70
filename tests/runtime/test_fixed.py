"""What an array is cannot be assigned, and reading it costs nothing."""

import pytest

import kernelab as kl


@kl.struct
class Body:
    velocity: kl.vec3
    turn: kl.quat


@pytest.mark.parametrize("name", ["dtype", "shape", "strides", "ptr", "size", "ndim", "device", "type"])
def test_what_an_array_is_cannot_be_assigned(name: str) -> None:
    for x in (kl.zeros(3), kl.zeros(3, dtype=Body)):
        before = getattr(x, name)
        with pytest.raises(AttributeError, match=rf"the {name} of an array cannot be assigned\n  hint: "):
            setattr(x, name, 3)
        assert getattr(x, name) == before


class Named(kl.array):
    """A class of a user's own, with an attribute."""


def test_a_class_of_ones_own_may_have_attributes_of_its_own() -> None:
    x = Named([1.0, 2.0])
    x.label = "height"
    assert (x.label, x.shape, x.list()) == ("height", (2,), [1, 2])
    with pytest.raises(AttributeError, match="the shape of an array cannot be assigned"):
        x.shape = (1, 2)
