"""Random numbers in kernels: states advance as Python would have it, and all backends agree."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from tests.frontend.helpers import errors, ran

MASK = 0xFFFFFFFF


def drawn(state: int) -> int:
    """The PCG hash, in Python's integers."""
    scrambled = (state * 747796405 + 2891336453) & MASK
    word = (((scrambled >> ((scrambled >> 28) + 4)) ^ scrambled) * 277803737) & MASK
    return (word >> 22) ^ word


def stream(seed: int, offset: int, count: int) -> list[int]:
    """So many draws."""
    state, found = drawn((seed + drawn(offset)) & MASK), []
    for _ in range(count):
        state = drawn(state)
        found.append(state)
    return found


def unit(number: int) -> float:
    return (number >> 8) / 2**24


KERNEL = """
def kernel(x: array[float], n: int):
    i = tid()
    state = rand_init(42, i)
"""


def values(body: str, size: int, n: int = 3) -> list[float]:
    """What the body leaves in `x`, by the interpreter and by the compiler, for thread 0."""
    text = KERNEL + "".join(f"    {line}\n" for line in body.splitlines())
    interpreted = ran(text, (1,), x=np.zeros(size, np.float32), n=n)["x"]
    x = kl.zeros(size)
    kl.compile(text)["kernel"][1](x, n)
    assert x.numpy().tolist() == interpreted.tolist()
    return interpreted.tolist()


FIRST = [unit(number) for number in stream(42, 0, 12)]


def test_each_call_draws_the_next_number() -> None:
    assert values("x[0] = randf(state) - 2.0 * randf(state)\nx[1] = kl.randf(state)", 2) == [
        np.float32(FIRST[0]) - np.float32(2 * FIRST[1]),
        FIRST[2],
    ]


def test_a_loop_carries_the_state() -> None:
    assert values("for k in range(n):\n    x[k] = randf(state)\nx[n] = randf(state)", 4) == FIRST[:4]


def test_a_while_loop_may_draw_in_its_condition() -> None:
    body = "k = 0\nwhile randf(state) < 2.0 and k < n:\n    k += 1\nx[0] = randf(state)"
    assert values(body, 1) == [FIRST[4]]


def test_the_branch_taken_advances_the_state() -> None:
    body = "if n > {0}:\n    x[1] = randf(state)\nx[0] = randf(state)"
    assert values(body.format(2), 2) == [FIRST[1], FIRST[0]]
    assert values(body.format(5), 2) == [FIRST[0], 0.0]


def test_the_side_of_a_ternary_that_is_evaluated_advances_the_state() -> None:
    body = "x[1] = randf(state) if n > {0} else 0.0\nx[0] = randf(state)"
    assert values(body.format(2), 2) == [FIRST[1], FIRST[0]]
    assert values(body.format(5), 2) == [FIRST[0], 0.0]


def test_a_function_gets_a_copy_of_the_state() -> None:
    body = "x[0] = twice(state)\nx[1] = randf(state)"
    text = "def twice(s: uint32):\n    a = randf(s)\n    return randf(s)\n" + KERNEL
    text += "".join(f"    {line}\n" for line in body.splitlines())
    found = ran(text, (1,), x=np.zeros(2, np.float32), n=0)["x"]
    assert found.tolist() == [FIRST[1], FIRST[0]]


def test_what_takes_several_draws_advances_by_as_many() -> None:
    body = "a = randn(state)\nb = sample_unit_cube(state)\nx[0] = b.x\nx[1] = randf(state)"
    assert values(body, 2) == [np.float32(FIRST[2] - 0.5), FIRST[5]]


def test_whole_numbers_stay_within_their_bounds() -> None:
    body = "for k in range(n):\n    x[k] = float(randi(state, -2, 3))\nx[n] = float(randi(state, 5, 5))"
    found = values(body, 13, 12)
    assert found[:12] == [number % 5 - 2 for number in stream(42, 0, 12)]
    assert found[12] == 5.0


def test_the_bounds_have_the_derivative() -> None:
    text = """
def kernel(low: array[float], x: array[float]):
    i = tid()
    state = rand_init(42, i)
    x[i] = randf(state, low[i], 2.0 * low[i]) * randf(state)
"""
    low, x = kl.array([1.0, 2.0, 3.0], requires_grad=True), kl.zeros(3)
    kernel = kl.compile(text)["kernel"]
    assert kl.autograd.gradcheck(kernel, 3, [low], [x])


MANY = 4000


def samples(name: str, dtype: Any, seed: int) -> Any:
    """What an operation draws in many threads; on the host it draws the same."""
    text = f"""
def kernel(found: array[{dtype}]):
    i = tid()
    state = rand_init({seed}, i)
    found[i] = {name}(state)
"""
    found = kl.empty(MANY, dtype=dtype)
    kl.compile(text)["kernel"][MANY](found)
    few = [getattr(kl, name)(kl.rand_init(seed, i)) for i in range(20)]
    np.testing.assert_allclose(found.numpy()[:20], np.array(few), rtol=1e-5, atol=1e-6)
    return found.numpy()


@pytest.mark.parametrize(
    ("name", "size", "inside"),
    [
        ("sample_unit_ring", 2, lambda p: np.isclose(np.linalg.norm(p, axis=1), 1)),
        ("sample_unit_disk", 2, lambda p: np.linalg.norm(p, axis=1) <= 1),
        ("sample_unit_square", 2, lambda p: np.abs(p).max(axis=1) <= 0.5),
        ("sample_triangle", 2, lambda p: (p.min(axis=1) >= 0) & (p.sum(axis=1) <= 1)),
        ("sample_unit_cube", 3, lambda p: np.abs(p).max(axis=1) <= 0.5),
        ("sample_unit_sphere_surface", 3, lambda p: np.isclose(np.linalg.norm(p, axis=1), 1)),
        ("sample_unit_sphere", 3, lambda p: np.linalg.norm(p, axis=1) <= 1 + 1e-6),
        ("sample_unit_hemisphere_surface", 3, lambda p: p[:, 2] >= 0),
        ("sample_unit_hemisphere", 3, lambda p: p[:, 2] >= 0),
    ],
)
def test_a_sampled_point_lies_where_it_should_and_points_have_the_right_mean(
    name: str, size: int, inside: Callable[[Any], Any]
) -> None:
    points = samples(name, kl.types.vector(size), 1)
    assert inside(points).all()
    middle = np.full(2, 1 / 3) if name == "sample_triangle" else np.zeros(size)
    if "hemisphere" in name:
        middle[2] = 0.5 if "surface" in name else 3 / 8
    np.testing.assert_allclose(points.mean(axis=0), middle, atol=0.04)


def test_normal_numbers_have_mean_zero_and_variance_one() -> None:
    numbers = samples("randn", kl.float32, 7)
    assert abs(numbers.mean()) < 0.05
    assert abs(numbers.std() - 1) < 0.05


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x[0] = randf(rand_init(1))", "randf advances its state, which must be a variable"),
        ("x[0] = randf(seed)", "randf advances its state, which must be a variable"),
        ("x[0] = 1.0 if n > 0 and randf(state) > 0.5 else 0.0", "a random number cannot be drawn here"),
        ("x[0] = randf(n)", "randf takes (state: uint32)"),
    ],
)
def test_where_no_state_can_advance_is_refused(line: str, message: str) -> None:
    (found,) = errors(f"{KERNEL}    {line}\n", seed=np.uint32(3))
    assert found.message.startswith(message)
