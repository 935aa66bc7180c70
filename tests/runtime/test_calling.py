"""Launches with arguments by name and by default."""

import pytest

import kernelab as kl

TEXT = """
def move(x: array[float], by: float, times: int = 2, floor: float = -1.0):
    i = tid()
    x[i] = max(x[i] + by * float(times), floor)
"""
move = kl.compile(TEXT, {})["move"]


@pytest.mark.parametrize(
    ("given", "named", "expected"),
    [
        ((1.0,), {}, 2.0),
        ((1.0, 3), {}, 3.0),
        ((), {"by": 1.0}, 2.0),
        ((1.0,), {"floor": 7.0}, 7.0),
        ((), {"times": 4, "by": 0.5, "floor": 0.0}, 2.0),
    ],
)
def test_arguments_come_by_position_by_name_or_by_default(
    given: tuple[float, ...], named: dict[str, float], expected: float
) -> None:
    x = kl.zeros(2, dtype=float)
    move[2](x, *given, **named)
    assert x.list() == [expected, expected]


def test_launch_takes_defaults_too() -> None:
    x = kl.zeros(2, dtype=float)
    kl.launch(move, dim=2, inputs=[x, 1.0])
    assert x.list() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("given", "named", "message"),
    [
        ((1.0,), {"flor": 1.0}, "kernel `move` has no parameter `flor`"),
        ((1.0,), {"by": 1.0}, "kernel `move` gets two values for `by`"),
        ((), {"times": 1}, "kernel `move` needs a value for `by`"),
        ((1.0, 2, 3.0, 4.0), {}, "kernel `move` takes 4 arguments, not 5"),
    ],
)
def test_a_launch_that_does_not_fit_the_parameters_says_so(
    given: tuple[float, ...], named: dict[str, float], message: str
) -> None:
    with pytest.raises(kl.LaunchError, match=message):
        move[1](kl.zeros(1, dtype=float), *given, **named)


def test_a_text_may_be_indented_as_a_whole() -> None:
    made = kl.compile("""
        def one(x: kl.array[float]):
            x[tid()] = 1.0
    """)
    assert list(made) == ["one"]
