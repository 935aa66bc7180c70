"""Noise.

Smooth random functions of 1 to 4 coordinates, after Perlin (Improving Noise, 2002): each point of the whole
numbers has a random slope, and between them the planes of these slopes are blended by a polynomial of fifth
degree.  The noise is 0 at the points, between -1 and 1, and twice differentiable.  A ``state`` from
`rand_init` chooses the function; it is not advanced.
"""

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

from kernelab.builtins.composite import composite
from kernelab.builtins.patterns import Float, Vec2, Vec3, Vec4
from kernelab.builtins.random import STATES, hashed
from kernelab.lang.types import int32, uint32

if TYPE_CHECKING:
    State: TypeAlias = Any
    Period: TypeAlias = Any
else:
    State, Period = uint32, int32

PERIODS = (1.0, 5.0)


def _blended(t: Any) -> Any:
    """0 at 0 and 1 at 1, with slope and curvature 0 at both."""
    return t * t * t * (t * (t * 6.0 - 15.0) + 10.0)


def _plane(m: Any, number: Any, offsets: Sequence[Any]) -> Any:
    """The plane through 0 whose slopes are the bytes of a random number, from -1 to 1."""
    total = None
    for k, offset in enumerate(offsets):
        byte = m.rem(m.shr(number, 8 * k), number * 0 + 256)
        term = (m.to(byte, m.type_of(offset)) * (2.0 / 255.0) - 1.0) * offset
        total = term if total is None else total + term
    return total


def _wrapped(m: Any, place: Any, period: Any | None) -> Any:
    if period is None:
        return place
    return m.rem(place, m.where(period > 0, period, period * 0 + 1))


def _noise(m: Any, state: Any, coordinates: Sequence[Any], periods: Sequence[Any] | None = None) -> Any:
    """Perlin noise; with periods it repeats after so many whole numbers along each coordinate."""
    below = [m.floor(x) for x in coordinates]
    inside = [x - low for x, low in zip(coordinates, below, strict=True)]
    whole = [m.to(low, int32) for low in below]
    wraps = [None] * len(whole) if periods is None else periods
    places = [
        [m.to(_wrapped(m, place + step, period), uint32) for step in (0, 1)]
        for place, period in zip(whole, wraps, strict=True)
    ]
    numbers: dict[tuple[int, ...], Any] = {(): state}
    for k, axis in enumerate(places):
        known = product((0, 1), repeat=k)
        numbers |= {(*c, s): hashed(m, numbers[c] + axis[s]) for c in known for s in (0, 1)}
    planes: dict[tuple[int, ...], Any] = {
        corner: _plane(m, numbers[corner], [x - step for x, step in zip(inside, corner, strict=True)])
        for corner in product((0, 1), repeat=len(whole))
    }
    for k in reversed(range(len(whole))):
        t = _blended(inside[k])
        planes = {c: planes[*c, 0] + t * (planes[*c, 1] - planes[*c, 0]) for c in product((0, 1), repeat=k)}
    return planes[()] * (2.0 / len(whole))


@composite(lambda m, state, x: _noise(m, state, [x]), domain=(STATES, (-3.0, 3.0)))
def noise(state: State, x: Float) -> Float:
    """Noise along a line."""


@composite(_noise, domain=(STATES, (-3.0, 3.0)), name="noise")
def noise_2(state: State, xy: Vec2) -> Float:
    """Noise in the plane."""


@composite(_noise, domain=(STATES, (-3.0, 3.0)), name="noise")
def noise_3(state: State, xyz: Vec3) -> Float:
    """Noise in space."""


@composite(_noise, domain=(STATES, (-3.0, 3.0)), name="noise")
def noise_4(state: State, xyzt: Vec4) -> Float:
    """Noise in space and time."""


@composite(lambda m, state, x, px: _noise(m, state, [x], [px]), domain=(STATES, (-3.0, 3.0), PERIODS))
def pnoise(state: State, x: Float, px: Period) -> Float:
    """Noise along a line that repeats after ``px``, a whole number of at least 1."""


@composite(
    lambda m, state, xy, *periods: _noise(m, state, xy, periods),
    domain=(STATES, (-3.0, 3.0), PERIODS, PERIODS),
    name="pnoise",
)
def pnoise_2(state: State, xy: Vec2, px: Period, py: Period) -> Float:
    """Noise in the plane that repeats after ``px`` and ``py``."""


@composite(
    lambda m, state, xyz, *periods: _noise(m, state, xyz, periods),
    domain=(STATES, (-3.0, 3.0), PERIODS, PERIODS, PERIODS),
    name="pnoise",
)
def pnoise_3(state: State, xyz: Vec3, px: Period, py: Period, pz: Period) -> Float:
    """Noise in space that repeats after ``px``, ``py`` and ``pz``."""


@composite(
    lambda m, state, xyzt, *periods: _noise(m, state, xyzt, periods),
    domain=(STATES, (-3.0, 3.0), PERIODS, PERIODS, PERIODS, PERIODS),
    name="pnoise",
)
def pnoise_4(state: State, xyzt: Vec4, px: Period, py: Period, pz: Period, pt: Period) -> Float:
    """Noise in space and time that repeats after ``px``, ``py``, ``pz`` and ``pt``."""
