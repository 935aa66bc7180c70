"""Attributes of vector and matrix types that Warp programs read: shape and scalar type."""

import math

from kernelab.lang.types import Mat, Vec

_OF_TYPES = {
    "_shape_": property(lambda type: type.shape),
    "_length_": property(lambda type: math.prod(type.shape)),
    "_wp_scalar_type_": property(lambda type: type.scalar),
}


def install() -> None:
    """Give them to all types that have a shape."""
    for base in {*Vec.__mro__} & {*Mat.__mro__} - {object}:
        for name, attribute in _OF_TYPES.items():
            setattr(base, name, attribute)
