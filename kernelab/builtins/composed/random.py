"""Random numbers.

A state is a uint32, made by `rand_init`; every function below takes one and, called in a kernel with a
variable, advances it by as many draws as it needs.  A draw hashes the state (the PCG hash of Jarzynski and
Olano, Hash Functions for GPU Rendering, 2020), so that the same states give the same numbers everywhere.
On the host the state is left as it is.  Floats are float32 unless bounds say otherwise; derivatives are those
with respect to the bounds.
"""

import math
from collections.abc import Callable
from typing import Any

from kernelab.builtins.composed.composite import composite
from kernelab.builtins.records.table import Float
from kernelab.lang.ops import VecPattern, Zero
from kernelab.lang.types import float32, int32, uint32

State: Any = uint32
Single: Any = float32
Seed: Any = int32
Pair: Any = VecPattern(float32, 2)
Triple: Any = VecPattern(float32, 3)

STATES = (0.0, 4e9)
SEEDS = (-2e9, 2e9)
TURN = 2.0 * math.pi


def hashed(m: Any, state: Any) -> Any:
    """The state after one draw, which is the number drawn too."""
    scrambled = state * 747796405 + 2891336453
    word = m.xor(m.shr(scrambled, m.shr(scrambled, 28) + 4), scrambled) * 277803737
    return m.xor(m.shr(word, 22), word)


def _fraction(m: Any, number: Any) -> Any:
    """The upper 24 bits as a float from 0 to 1, 1 excluded."""
    return m.to(m.shr(number, 8), float32) * 2.0**-24


def _drawn(m: Any, state: Any, count: int) -> list[Any]:
    """So many floats from 0 to 1."""
    numbers = []
    for _ in range(count):
        state = hashed(m, state)
        numbers.append(_fraction(m, state))
    return numbers


def _numbers(
    meaning: Callable[..., Any], draws: int, *, name: str = "", exact: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A record that takes so many draws from a state, and has no derivative."""
    tags = (f"draws {draws}",)
    return composite(meaning, derivative=Zero(), domain=STATES, name=name, exact=exact, tags=tags)


@composite(lambda m, seed: hashed(m, m.to(seed, uint32)), derivative=Zero(), domain=SEEDS, exact=True)
def rand_init(seed: Seed) -> State:
    """The state that a seed gives."""


@composite(
    lambda m, seed, offset: hashed(m, m.to(seed, uint32) + hashed(m, m.to(offset, uint32))),
    derivative=Zero(),
    domain=SEEDS,
    name="rand_init",
    exact=True,
)
def rand_init_at(seed: Seed, offset: Seed) -> State:
    """A state of its own for each ``offset``, such as the thread index."""


@composite(hashed, derivative=Zero(), domain=STATES, exact=True)
def rand_next(state: State) -> State:
    """The state after one draw."""


@_numbers(hashed, 1, exact=True)
def randu(state: State) -> State:
    """A uint32 from all that there are."""


@_numbers(lambda m, state: m.to(hashed(m, state), int32), 1, exact=True)
def randi(state: State) -> Seed:
    """An int32 from all that there are."""


def _whole(m: Any, state: Any, low: Any, high: Any) -> Any:
    start = m.to(low, uint32)
    span = m.to(high, uint32) - start
    drawn = start + m.rem(hashed(m, state), m.where(low < high, span, span * 0 + 1))
    return m.to(drawn, m.type_of(low))


@composite(
    _whole,
    derivative=Zero(),
    domain=(STATES, (-9.0, 0.0), (1.0, 9.0)),
    name="randi",
    tags=("draws 1",),
    exact=True,
)
def randi_between(state: State, low: Seed, high: Seed) -> Seed:
    """A whole number from ``low`` to ``high``, ``high`` excluded; ``low`` where that leaves none."""


@composite(
    _whole,
    derivative=Zero(),
    domain=(STATES, (0.0, 4.0), (5.0, 9.0)),
    name="randu",
    tags=("draws 1",),
    exact=True,
)
def randu_between(state: State, low: State, high: State) -> State:
    """A whole number from ``low`` to ``high``, ``high`` excluded; ``low`` where that leaves none."""


@_numbers(lambda m, state: _drawn(m, state, 1)[0], 1, exact=True)
def randf(state: State) -> Single:
    """A float from 0 to 1, 1 excluded."""


@composite(
    lambda m, state, low, high: (high - low) * m.to(_drawn(m, state, 1)[0], m.type_of(low)) + low,
    domain=(STATES, (-3.0, 0.0), (1.0, 3.0)),
    name="randf",
    tags=("draws 1",),
    exact=True,
)
def randf_between(state: State, low: Float, high: Float) -> Float:
    """A float from ``low`` to ``high``; the derivative is that of ``low + (high - low) * randf(state)``."""


def _normal(m: Any, state: Any) -> Any:
    first, second = _drawn(m, state, 2)
    size = m.sqrt(-2.0 * m.log(m.where(first > 0.0, first, first + 2.0**-25)))
    return size * m.cos(second * TURN)


@_numbers(_normal, 2)
def randn(state: State) -> Single:
    """A float of the normal distribution of mean 0 and variance 1, by the method of Box and Muller."""


def _ring(m: Any, turn: Any) -> list[Any]:
    return [m.cos(turn * TURN), m.sin(turn * TURN)]


def _disk(m: Any, state: Any) -> list[Any]:
    size, turn = _drawn(m, state, 2)
    return [m.sqrt(size) * x for x in _ring(m, turn)]


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


def _triangle(m: Any, state: Any) -> list[Any]:
    first, second = _drawn(m, state, 2)
    root = m.sqrt(first)
    return [1.0 - root, (1.0 - second) * root]


@_numbers(lambda m, state: _ring(m, _drawn(m, state, 1)[0]), 1)
def sample_unit_ring(state: State) -> Pair:
    """A point of the circle of radius 1."""


@_numbers(_disk, 2)
def sample_unit_disk(state: State) -> Pair:
    """A point of the disk of radius 1."""


@_numbers(lambda m, state: [x - 0.5 for x in _drawn(m, state, 2)], 2, exact=True)
def sample_unit_square(state: State) -> Pair:
    """A point of the square of side 1 around 0."""


@_numbers(_triangle, 2)
def sample_triangle(state: State) -> Pair:
    """Barycentric coordinates ``u, v`` of a point of a triangle; the third is ``1 - u - v``."""


@_numbers(lambda m, state: [x - 0.5 for x in _drawn(m, state, 3)], 3, exact=True)
def sample_unit_cube(state: State) -> Triple:
    """A point of the cube of side 1 around 0."""


@_numbers(lambda m, state: _surface(m, state, -1.0), 2)
def sample_unit_sphere_surface(state: State) -> Triple:
    """A point of the surface of the sphere of radius 1."""


@_numbers(lambda m, state: _ball(m, state, -1.0), 3)
def sample_unit_sphere(state: State) -> Triple:
    """A point within the sphere of radius 1."""


@_numbers(lambda m, state: _surface(m, state, 0.0), 2)
def sample_unit_hemisphere_surface(state: State) -> Triple:
    """A point of the upper half of the surface of the sphere of radius 1, where z is not negative."""


@_numbers(lambda m, state: _ball(m, state, 0.0), 3)
def sample_unit_hemisphere(state: State) -> Triple:
    """A point of the upper half of the sphere of radius 1."""
