"""What must hold of every host program as a function of its two arrays: transforms are exact, too.

The oracle is that of `tests.support.tapes`, complex numbers, for first derivatives; second ones are compared
with differences of these.  What grows beyond `LARGEST` is not compared: rounding errors grow as well.
"""

import contextlib
from itertools import product
from typing import Any

import numpy as np

import kernelab as kl
from kernelab.errors import GradientError
from tests.support import tapes
from tests.support.tapes import Floats, TiedError, TooLargeError, ran, seen

Pair = tuple[Floats, Floats]
LANES = 2
STEP = 1e-6
LARGEST = 1e4


def check_transforms(program: str, seed: int = 0) -> None:
    """Check values, tangents, adjoints, lanes and second derivatives of a program."""
    with contextlib.suppress(TooLargeError, TiedError):
        _check(program, seed)


def check_careless(program: str, seed: int = 0) -> None:
    """Check tangents and adjoints of a program with writes that nobody announces: right, or refused."""
    rng = np.random.default_rng(seed)
    x, along, w = (_pair(rng) for _ in range(3))
    try:
        slope = _inner(w, slopes(program, x, along)[1])
    except (TooLargeError, TiedError):
        return

    def f(a: Any, b: Any) -> Any:
        return ran(program, a, b)

    with contextlib.suppress(GradientError, kl.KernelWarning):
        pulled = kl.func.vjp(f, *_arrays(x))[1](_arrays(w))
        _near(_inner(seen(pulled), along), slope, slope, 1e-9, "the adjoint")
    with contextlib.suppress(GradientError, kl.KernelWarning):
        moved = kl.func.jvp(f, _arrays(x), _arrays(along))[1]
        _near(_inner(w, seen(moved)), slope, slope, 1e-9, "the tangents")
    with contextlib.suppress(GradientError, kl.KernelWarning):
        leaves = [kl.clone(each, requires_grad=True) for each in _arrays(x)]
        # Differences refuse a function that changes its arguments.
        blocks = kl.autograd.jacobian_fd(lambda a, b: f(kl.clone(a), kl.clone(b)), inputs=leaves)
        shares = [
            w[i].ravel() @ blocks[j, i].numpy().reshape(w[i].size, -1) @ along[j].ravel()
            for i, j in product(range(2), repeat=2)
        ]
        _near(sum(shares), slope, sum(map(abs, shares)), 1e-4, "the differences")


def slopes(program: str, x: Pair, along: Pair) -> tuple[Any, Any]:
    """`tapes.slopes` where its numbers are of a size to be compared; raises TooLargeError."""
    found = tapes.slopes(program, x, along)
    if not all(np.abs(part).max() <= LARGEST for parts in found for part in parts):
        raise TooLargeError
    return found


def _check(program: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, along, across, w = (_pair(rng) for _ in range(4))

    def f(a: Any, b: Any) -> Any:
        return ran(program, a, b)

    def pulled(a: Any, b: Any) -> Any:
        return kl.func.vjp(f, a, b)[1](_arrays(w))

    values, dots = slopes(program, x, along)
    found, moved = kl.func.jvp(f, _arrays(x), _arrays(along))
    _close(found, values, "the values")
    _close(moved, dots, "the tangents")
    slope = _inner(w, dots)
    _near(_inner(seen(pulled(*_arrays(x))), along), slope, slope, 1e-9, "the adjoint")
    whole = kl.func.vjp(lambda a, b: (f(a, b), b, a), *_arrays(x))[1]((_arrays(w), *_arrays(across[::-1])))
    slope += _inner(across, along)
    _near(_inner(seen(whole), along), slope, slope, 1e-9, "the adjoint of what returns its inputs, too")
    _check_lanes(program, f, x, (along, across))
    _check_second(program, pulled, x, along, across, w)


def _check_lanes(program: str, f: Any, x: Pair, directions: tuple[Pair, Pair]) -> None:
    def pushed(a_dot: Any, b_dot: Any) -> Any:
        return kl.func.jvp(f, _arrays(x), (a_dot, b_dot))[1]

    many = [np.stack(parts) for parts in zip(*directions, strict=True)]
    expected = [slopes(program, x, direction)[1] for direction in directions]
    found = kl.func.vmap(pushed)(*_arrays(many))
    _close(found, [np.stack(parts) for parts in zip(*expected, strict=True)], "the tangents in lanes")
    found = kl.func.vmap(f)(*_arrays(many))
    expected = [slopes(program, point, x)[0] for point in directions]
    _close(found, [np.stack(parts) for parts in zip(*expected, strict=True)], "the values in lanes")


def _check_second(program: str, pulled: Any, x: Pair, along: Pair, across: Pair, w: Pair) -> None:
    ends = [_inner(w, slopes(program, _moved(x, across, step), along)[1]) for step in (STEP, -STEP)]
    middle, slope = _inner(w, slopes(program, x, along)[1]), (ends[0] - ends[1]) / (2 * STEP)
    size = 1.0 + abs(slope) + abs(middle)
    smooth = abs(ends[0] + ends[1] - 2 * middle) <= 1e-3 * STEP * size
    forward = _inner(seen(kl.func.jvp(pulled, _arrays(x), _arrays(across))[1]), along)
    reverse = _inner(seen(kl.func.vjp(pulled, *_arrays(x))[1](_arrays(along))), across)
    _near(forward, reverse, size, 1e-9, "forward over reverse, and reverse over reverse:")
    if smooth:
        _near(forward, slope, size, 1e-5, "the second derivative")


def _pair(rng: np.random.Generator) -> Pair:
    return rng.normal(size=8), rng.normal(size=(3, 4))


def _moved(x: Pair, along: Pair, step: float) -> Pair:
    return x[0] + step * along[0], x[1] + step * along[1]


def _arrays(values: Any) -> Any:
    return tuple(kl.array(value, dtype=kl.float64) for value in values)


def _inner(one: Any, other: Any) -> float:
    return sum(float(np.sum(a * b)) for a, b in zip(one, other, strict=True))


def _close(found: Any, expected: Any, what: str) -> None:
    for one, other in zip(seen(found), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10, err_msg=what)


def _near(found: float, expected: float, size: float, tolerance: float, what: str) -> None:
    assert abs(found - expected) <= tolerance * max(1.0, abs(size)), f"{what} {found}, not {expected}"


def checked_transforms(program: str, seed: int = 0) -> None:
    """`check_transforms`, whose errors say which test would fail the same way."""
    try:
        check_transforms(program, seed)
    except Exception as error:  # whatever it is, the program is what matters
        error.add_note(
            f'PROGRAM = """\n{program}"""\n\n\ndef test_it() -> None:\n'
            f"    check_transforms(PROGRAM, seed={seed})\n"
        )
        raise
