"""Random numbers and noise.

A state is a uint32, made by `rand_init`; every function below that draws takes one and, called in a kernel
with a variable, advances it by as many draws as it needs.  A draw hashes the state (the PCG hash of
Jarzynski and Olano, Hash Functions for GPU Rendering, 2020), so that the same states give the same numbers
everywhere.  On the host the state is left as it is.  Floats are float32 unless bounds say otherwise;
derivatives are those with respect to the bounds.

Noise is a smooth random function of 1 to 4 coordinates, after Perlin (Improving Noise, 2002): each point of
the whole numbers has a random slope, and between them the planes of these slopes are blended by a polynomial
of fifth degree.  The noise is 0 at the points, between -1 and 1, and twice differentiable.  A state chooses
the function; it is not advanced.
"""

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from kernelab.builtins.composite import composite
from kernelab.builtins.table import Float, Vec2, Vec3, Vec4, added
from kernelab.data_classes import dataclass
from kernelab.lang.ops import Derivative, Expanded, VecPattern, Zero
from kernelab.lang.types import Scalar, float32, int32, uint32

State: Any = uint32
Single: Any = float32
Seed: Any = int32
Pair: Any = VecPattern(float32, 2)
Triple: Any = VecPattern(float32, 3)

STATES = (0.0, 4e9)
SEEDS = (-2e9, 2e9)
TURN = 2.0 * math.pi
_ZERO = Zero()


def hashed(m: Any, state: Any) -> Any:
    """The state after one draw, which is the number drawn too."""
    scrambled = state * 747796405 + 2891336453
    word = m.xor(m.shr(scrambled, m.shr(scrambled, 28) + 4), scrambled) * 277803737
    return m.xor(m.shr(word, 22), word)


def _drawn(m: Any, state: Any, count: int) -> list[Any]:
    """So many floats from 0 to 1."""
    numbers = []
    for _ in range(count):
        state = hashed(m, state)
        numbers.append(m.to(m.shr(state, 8), float32) * 2.0**-24)  # the upper 24 bits
    return numbers


def _numbers(
    draws: int, domain: Any = STATES, derivative: Derivative = _ZERO, **record: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A record that takes so many draws from a state; it has no derivative unless given."""
    return composite(derivative=derivative, domain=domain, tags=(f"draws {draws}",), **record)


@composite(derivative=Zero(), domain=SEEDS, exact=True)
def rand_init(m: Any, seed: Seed) -> State:
    """The state that a seed gives."""
    return hashed(m, m.to(seed, uint32))


@composite(derivative=Zero(), domain=SEEDS, name="rand_init", exact=True)
def rand_init_at(m: Any, seed: Seed, offset: Seed) -> State:
    """A state of its own for each ``offset``, such as the thread index."""
    return hashed(m, m.to(seed, uint32) + hashed(m, m.to(offset, uint32)))


@composite(derivative=Zero(), domain=STATES, exact=True)
def rand_next(m: Any, state: State) -> State:
    """The state after one draw."""
    return hashed(m, state)


@_numbers(1, exact=True)
def randu(m: Any, state: State) -> State:
    """A uint32 from all that there are."""
    return hashed(m, state)


@_numbers(1, exact=True)
def randi(m: Any, state: State) -> Seed:
    """An int32 from all that there are."""
    return m.to(hashed(m, state), int32)


def _whole(m: Any, state: Any, low: Any, high: Any) -> Any:
    start = m.to(low, uint32)
    span = m.to(high, uint32) - start
    drawn = start + m.rem(hashed(m, state), m.where(low < high, span, span * 0 + 1))
    return m.to(drawn, m.type_of(low))


@_numbers(1, (STATES, (-9.0, 0.0), (1.0, 9.0)), name="randi", exact=True)
def randi_between(m: Any, state: State, low: Seed, high: Seed) -> Seed:
    """A whole number from ``low`` to ``high``, ``high`` excluded; ``low`` where that leaves none."""
    return _whole(m, state, low, high)


@_numbers(1, (STATES, (0.0, 4.0), (5.0, 9.0)), name="randu", exact=True)
def randu_between(m: Any, state: State, low: State, high: State) -> State:
    """A whole number from ``low`` to ``high``, ``high`` excluded; ``low`` where that leaves none."""
    return _whole(m, state, low, high)


@_numbers(1, exact=True)
def randf(m: Any, state: State) -> Single:
    """A float from 0 to 1, 1 excluded."""
    return _drawn(m, state, 1)[0]


@_numbers(1, (STATES, (-3.0, 0.0), (1.0, 3.0)), Expanded(), name="randf", exact=True)
def randf_between(m: Any, state: State, low: Float, high: Float) -> Float:
    """A float from ``low`` to ``high``; the derivative is that of ``low + (high - low) * randf(state)``."""
    return (high - low) * m.to(_drawn(m, state, 1)[0], m.type_of(low)) + low


@_numbers(2)
def randn(m: Any, state: State) -> Single:
    """A float of the normal distribution of mean 0 and variance 1, by the method of Box and Muller."""
    first, second = _drawn(m, state, 2)
    size = m.sqrt(-2.0 * m.log(m.where(first > 0.0, first, first + 2.0**-25)))
    return size * m.cos(second * TURN)


def _ring(m: Any, turn: Any) -> list[Any]:
    return [m.cos(turn * TURN), m.sin(turn * TURN)]


def _sphere(m: Any, height: Any, turn: Any) -> list[Any]:
    """A point of the unit sphere at a height from -1 to 1 (Archimedes: heights are uniform)."""
    size = m.sqrt(m.where(height * height < 1.0, 1.0 - height * height, 0.0 * height))
    return [*(size * x for x in _ring(m, turn)), height]


def _surface(m: Any, state: Any, lowest: float) -> list[Any]:
    height, turn = _drawn(m, state, 2)
    return _sphere(m, height * (1.0 - lowest) + lowest, turn)


def _ball(m: Any, state: Any, lowest: float) -> list[Any]:
    height, turn, size = _drawn(m, state, 3)
    return [m.cbrt(size) * x for x in _sphere(m, height * (1.0 - lowest) + lowest, turn)]


@_numbers(1)
def sample_unit_ring(m: Any, state: State) -> Pair:
    """A point of the circle of radius 1."""
    return _ring(m, _drawn(m, state, 1)[0])


@_numbers(2)
def sample_unit_disk(m: Any, state: State) -> Pair:
    """A point of the disk of radius 1."""
    size, turn = _drawn(m, state, 2)
    return [m.sqrt(size) * x for x in _ring(m, turn)]


@_numbers(2, exact=True)
def sample_unit_square(m: Any, state: State) -> Pair:
    """A point of the square of side 1 around 0."""
    return [x - 0.5 for x in _drawn(m, state, 2)]


@_numbers(2)
def sample_triangle(m: Any, state: State) -> Pair:
    """Barycentric coordinates ``u, v`` of a point of a triangle; the third is ``1 - u - v``."""
    first, second = _drawn(m, state, 2)
    root = m.sqrt(first)
    return [1.0 - root, (1.0 - second) * root]


@_numbers(3, exact=True)
def sample_unit_cube(m: Any, state: State) -> Triple:
    """A point of the cube of side 1 around 0."""
    return [x - 0.5 for x in _drawn(m, state, 3)]


@_numbers(2)
def sample_unit_sphere_surface(m: Any, state: State) -> Triple:
    """A point of the surface of the sphere of radius 1."""
    return _surface(m, state, -1.0)


@_numbers(3)
def sample_unit_sphere(m: Any, state: State) -> Triple:
    """A point within the sphere of radius 1."""
    return _ball(m, state, -1.0)


@_numbers(2)
def sample_unit_hemisphere_surface(m: Any, state: State) -> Triple:
    """A point of the upper half of the surface of the sphere of radius 1, where z is not negative."""
    return _surface(m, state, 0.0)


@_numbers(3)
def sample_unit_hemisphere(m: Any, state: State) -> Triple:
    """A point of the upper half of the sphere of radius 1."""
    return _ball(m, state, 0.0)


# ------------------------------------------------------------------------------------------------------ noise


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


@composite(domain=(STATES, (-3.0, 3.0)))
def noise(m: Any, state: State, x: Float) -> Float:
    """Noise along a line."""
    return _noise(m, state, [x])


@composite(domain=(STATES, (-3.0, 3.0)), name="noise")
def noise_2(m: Any, state: State, xy: Vec2) -> Float:
    """Noise in the plane."""
    return _noise(m, state, xy)


@composite(domain=(STATES, (-3.0, 3.0)), name="noise")
def noise_3(m: Any, state: State, xyz: Vec3) -> Float:
    """Noise in space."""
    return _noise(m, state, xyz)


@composite(domain=(STATES, (-3.0, 3.0)), name="noise")
def noise_4(m: Any, state: State, xyzt: Vec4) -> Float:
    """Noise in space and time."""
    return _noise(m, state, xyzt)


@composite(domain=(STATES, (-3.0, 3.0), PERIODS))
def pnoise(m: Any, state: State, x: Float, px: Period) -> Float:
    """Noise along a line that repeats after ``px``, a whole number of at least 1."""
    return _noise(m, state, [x], [px])


@composite(domain=(STATES, (-3.0, 3.0), PERIODS, PERIODS), name="pnoise")
def pnoise_2(m: Any, state: State, xy: Vec2, px: Period, py: Period) -> Float:
    """Noise in the plane that repeats after ``px`` and ``py``."""
    return _noise(m, state, xy, (px, py))


@composite(domain=(STATES, (-3.0, 3.0), PERIODS, PERIODS, PERIODS), name="pnoise")
def pnoise_3(m: Any, state: State, xyz: Vec3, px: Period, py: Period, pz: Period) -> Float:
    """Noise in space that repeats after ``px``, ``py`` and ``pz``."""
    return _noise(m, state, xyz, (px, py, pz))


@composite(domain=(STATES, (-3.0, 3.0), PERIODS, PERIODS, PERIODS, PERIODS), name="pnoise")
def pnoise_4(m: Any, state: State, xyzt: Vec4, px: Period, py: Period, pz: Period, pt: Period) -> Float:
    """Noise in space and time that repeats after ``px``, ``py``, ``pz`` and ``pt``."""
    return _noise(m, state, xyzt, (px, py, pz, pt))


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


def _curl(m: Any, state: Any, place: Sequence[Any]) -> list[Any]:
    second = hashed(m, state)
    a, b, c = (_gradient(m, s, place) for s in (state, second, hashed(m, second)))
    return [c[1] - b[2], a[2] - c[0], b[0] - a[1]]


@composite(domain=(STATES, (-3.0, 3.0)))
def curlnoise(m: Any, state: State, xy: Vec2) -> Vec2:
    """A flow in the plane without sources: the slopes of `noise`, turned by a right angle."""
    along_x, along_y = _gradient(m, state, xy)
    return [along_y, -along_x]


@composite(domain=(STATES, (-3.0, 3.0)), name="curlnoise")
def curlnoise_3(m: Any, state: State, xyz: Vec3) -> Vec3:
    """A flow in space without sources: the curl of three fields of `noise`."""
    return _curl(m, state, xyz)


@composite(domain=(STATES, (-3.0, 3.0)), name="curlnoise")
def curlnoise_4(m: Any, state: State, xyzt: Vec4) -> Vec3:
    """A flow in space without sources that changes in time, the fourth coordinate."""
    return _curl(m, state, xyzt)
