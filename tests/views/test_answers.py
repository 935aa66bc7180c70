"""What the kernel answers a reader of a tape: who added to an element of a gradient."""

import re

import numpy as np
import pytest

import kernelab as kl
from kernelab.views.pages import markup, page
from kernelab.views.tape import answers
from kernelab.views.tape.answers import answer
from kernelab.views.tape.arrays import array_view
from kernelab.views.tape.digest import Digest

KERNELS = kl.compile(
    """def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def total(y: array[float], loss: array[float]):
    atomic_add(loss, 0, y[tid()])

def lengths(x: array2d[vec2], y: array[float]):
    i, j = tid()
    atomic_add(y, i, length(x[i, j]))
"""
)
SQUARE, TOTAL, LENGTHS = KERNELS["square"], KERNELS["total"], KERNELS["lengths"]


def traced(*shape: int, dtype: object = float) -> kl.array:
    return kl.ones(shape, dtype=dtype, requires_grad=True)


def squared(x: kl.array, y: kl.array) -> kl.Tape:
    with kl.Tape() as tape:
        SQUARE[x.size](x, y)
    return tape


def digest(tape: kl.Tape) -> Digest:
    made = Digest(tape, lambda memories: {})
    made.look()
    return made


@pytest.fixture
def swept() -> tuple[kl.Tape, kl.array, kl.array]:
    x, y, loss = traced(4), traced(4), kl.zeros(1, dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        SQUARE[4](x, y)
        TOTAL[4](y, loss)
    tape.backward(loss)
    return tape, x, loss


def asked(tape: kl.Tape, number: int, *index: int) -> str:
    question = {"ask": "element", "number": number, "index": list(index)}
    return markup.render(answer(digest(tape), question))


def test_an_element_of_a_gradient_tells_launch_thread_and_line(
    swept: tuple[kl.Tape, kl.array, kl.array],
) -> None:
    shown = asked(swept[0], 0, 2)
    assert "gradient of element [2] = 2" in shown
    assert "1 part, by 1 thread of 1 launch" in shown
    assert "y[i] = x[i] * x[i]" in shown
    assert "holds now" not in shown


def test_what_another_sweep_added_is_told(swept: tuple[kl.Tape, kl.array, kl.array]) -> None:
    tape, _, loss = swept
    tape.backward(loss)
    assert "The gradient that it holds now is 4: these are the parts of the last backward() alone." in asked(
        tape, 0, 2
    )


def test_rows_lead_to_their_launch_and_thread(swept: tuple[kl.Tape, kl.array, kl.array]) -> None:
    node = answer(digest(swept[0]), {"ask": "element", "number": 0, "index": [3]})
    assert re.findall(r'data-asks="([^"]*)"', page.render(node)) == ["record 0", "thread 0 3"]


def test_a_sweep_that_nobody_noted_says_what_to_do() -> None:
    x, y = traced(3), traced(3)
    tape = squared(x, y)
    assert "run it once more" in asked(tape, 0, 1)


def test_an_element_that_is_not_there_is_a_sentence(swept: tuple[kl.Tape, kl.array, kl.array]) -> None:
    told = asked(swept[0], 0, 9)
    assert told == (
        "there is no element [9] in an array of shape (4,): "
        "name one element, by as many indices as the array has dimensions"
    )


def test_a_question_that_would_take_minutes_is_not_begun(
    swept: tuple[kl.Tape, kl.array, kl.array], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "MOST_THREADS", 7)
    assert asked(swept[0], 0, 1).startswith("All 8 threads of this tape would run again")


def test_cotangents_of_many_numbers_are_kept_only_while_the_tape_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kernelab.autodiff.tape.seeds.MOST_KEPT", 2)
    x, y = traced(3), traced(3)
    tape = squared(x, y)
    seed = np.arange(3.0, dtype=np.float32)
    tape.backward(grads={y: seed})
    assert tape.last_cotangents is None
    tape.observe()
    tape.backward(grads={y: seed})
    seed[:] = 7.0
    assert tape.last_cotangents is not None
    np.testing.assert_array_equal(tape.last_cotangents[y], [0, 1, 2])
    assert "gradient of element [2] = 4" in asked(tape, 0, 2)
    tape.reset()
    assert tape.last_cotangents is None


def marks(shown: kl.array) -> list[str]:
    tape = kl.Tape()
    with tape:
        y = kl.zeros(shown.shape[0], dtype=float, requires_grad=True)
        (LENGTHS if shown.ndim == 2 else SQUARE)[shown.shape](shown, y)
    tape.backward(grads={y: kl.ones_like(y)})
    node = answer(digest(tape), {"ask": "array", "number": 0})
    return re.findall(r'data-(?:asks|elements)="([^"]*)"', page.render(node))


def test_elements_of_a_small_gradient_are_marked_one_by_one_and_those_of_a_picture_by_its_shape() -> None:
    assert marks(traced(3)) == ["element 0", "element 1", "element 2"]
    assert marks(traced(2, 2, dtype=kl.vec2)) == ["element 0,0", "element 0,1", "element 1,0", "element 1,1"]
    assert marks(traced(40)) == ["40"]
    assert marks(traced(20, 30, dtype=kl.vec2)) == ["20,30"]


def test_nothing_is_marked_where_nobody_can_ask() -> None:
    x, y = traced(3), traced(3)
    squared(x, y).backward(grads={y: kl.ones_like(y)})
    html = page.render(array_view(x))
    assert "gradient" in html
    assert "data-asks" not in html


def test_a_thread_starts_with_the_cotangents_that_arrived_in_the_last_sweep(
    swept: tuple[kl.Tape, kl.array, kl.array],
) -> None:
    tape, _, loss = swept
    tape.backward(grads={loss: np.full(1, 3.0, np.float32)})
    shown = markup.render(answer(digest(tape), {"ask": "thread", "number": 0, "thread": 1}))
    assert "thread 1 of square, launch 1 of the tape, run again" in shown
    assert re.search(r"reads y_bar\[1\] +3\n", shown)
    assert "there is no thread 5" in markup.render(
        answer(digest(tape), {"ask": "thread", "number": 0, "thread": 5})
    )
