"""Noise.

Smooth random functions of 1 to 4 coordinates, after Perlin (Improving Noise, 2002): each point of the whole
numbers has a random slope, and between them the planes of these slopes are blended by a polynomial of fifth
degree.  The noise is 0 at the points, between -1 and 1, and twice differentiable.  A ``state`` from
`rand_init` chooses the function; it is not advanced.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from kernelab.builtins.composed.composite import composite
from kernelab.builtins.composed.random import STATES, hashed
from kernelab.builtins.records.components import added
from kernelab.builtins.records.table import Float, Vec2, Vec3, Vec4
from kernelab.lang.types import Scalar, int32, uint32

State: Any = uint32
Period: Any = int32

PERIODS = (1.0, 5.0)


def _blended(t: Any) -> Any:
    """0 at 0 and 1 at 1, with slope and curvature 0 at both."""
    return t * t * t * (t * (t * 6.0 - 15.0) + 10.0)


def _plane(m: Any, number: Any, offsets: Sequence[Any], scalar: Scalar) -> Any:
    """The plane through 0 whose slopes are the bytes of a random number, from -1 to 1."""
    bytes_ = [m.rem(m.shr(number, 8 * k), number * 0 + 256) for k in range(len(offsets))]
    slopes = [m.to(byte, scalar) * (2.0 / 255.0) - 1.0 for byte in bytes_]
    return added([offset * slope for offset, slope in zip(offsets, slopes, strict=True)])


def _wrapped(m: Any, place: Any, period: Any | None) -> Any:
    if period is None:
        return place
    return m.rem(place, m.where(period > 0, period, period * 0 + 1))


def _noise(m: Any, state: Any, coordinates: Sequence[Any], periods: Sequence[Any] | None = None) -> Any:
    """Perlin noise; with periods it repeats after so many whole numbers along each coordinate."""
    below, inside = _split(m, coordinates)
    return _blend(m, state, below, inside, periods)


def _split(m: Any, coordinates: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The corner below a point, and where it lies from there."""
    below = [m.floor(x) for x in coordinates]
    return below, [x - low for x, low in zip(coordinates, below, strict=True)]


def _blend(
    m: Any, state: Any, below: Sequence[Any], inside: Sequence[Any], periods: Sequence[Any] | None = None
) -> Any:
    """The noise at a place inside a cell, which may be a number or a `_Slope`."""
    scalar, whole = m.type_of(below[0]), [m.to(low, int32) for low in below]
    wraps = [None] * len(whole) if periods is None else periods
    places = [
        [m.to(_wrapped(m, place + step, period), uint32) for step in (0, 1)]
        for place, period in zip(whole, wraps, strict=True)
    ]
    numbers: dict[tuple[int, ...], Any] = {(): state}
    for k, axis in enumerate(places):
        corners = product((0, 1), repeat=k)
        numbers |= {(*c, s): hashed(m, numbers[c] + axis[s]) for c in corners for s in (0, 1)}
    planes: dict[tuple[int, ...], Any] = {
        corner: _plane(m, numbers[corner], [x - step for x, step in zip(inside, corner, strict=True)], scalar)
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


@dataclass(frozen=True, slots=True)
class _Slope:
    """A number and its partial derivatives along the coordinates."""

    value: Any
    partials: tuple[Any, ...]

    def __add__(self, other: Any) -> "_Slope":
        if not isinstance(other, _Slope):
            return _Slope(self.value + other, self.partials)
        pairs = zip(self.partials, other.partials, strict=True)
        return _Slope(self.value + other.value, tuple(a + b for a, b in pairs))

    def __sub__(self, other: Any) -> "_Slope":
        result: _Slope = self + other * -1.0
        return result

    def __mul__(self, other: Any) -> "_Slope":
        if not isinstance(other, _Slope):
            return _Slope(self.value * other, tuple(a * other for a in self.partials))
        pairs = zip(self.partials, other.partials, strict=True)
        moved = tuple(a * other.value + b * self.value for a, b in pairs)
        return _Slope(self.value * other.value, moved)


def _gradient(m: Any, state: Any, coordinates: Sequence[Any]) -> tuple[Any, ...]:
    """The partial derivatives of the noise."""
    below, inside = _split(m, coordinates)
    zero = inside[0] * 0.0
    units = [tuple(zero + float(i == k) for i in range(len(inside))) for k in range(len(inside))]
    slopes = [_Slope(x, unit) for x, unit in zip(inside, units, strict=True)]
    blended: _Slope = _blend(m, state, below, slopes)
    return blended.partials


def _curl_2(m: Any, state: Any, xy: Sequence[Any]) -> list[Any]:
    along_x, along_y = _gradient(m, state, xy)
    return [along_y, -along_x]


def _curl(m: Any, state: Any, place: Sequence[Any]) -> list[Any]:
    second = hashed(m, state)
    a, b, c = (_gradient(m, s, place) for s in (state, second, hashed(m, second)))
    return [c[1] - b[2], a[2] - c[0], b[0] - a[1]]


@composite(_curl_2, domain=(STATES, (-3.0, 3.0)))
def curlnoise(state: State, xy: Vec2) -> Vec2:
    """A flow in the plane without sources: the slopes of `noise`, turned by a right angle."""


@composite(_curl, domain=(STATES, (-3.0, 3.0)), name="curlnoise")
def curlnoise_3(state: State, xyz: Vec3) -> Vec3:
    """A flow in space without sources: the curl of three fields of `noise`."""


@composite(_curl, domain=(STATES, (-3.0, 3.0)), name="curlnoise")
def curlnoise_4(state: State, xyzt: Vec4) -> Vec3:
    """A flow in space without sources that changes in time, the fourth coordinate."""
