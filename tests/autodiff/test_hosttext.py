"""What the text of the user's code says of numbers on their way from one line to another."""

import linecache
from itertools import count

import pytest

from kernelab.autodiff.hosttext import may_reach
from kernelab.runtime.recorder import Place

NUMBERS = count()


def reaches(text: str, position: int | None = None, arguments: int = 0) -> bool | None:
    """Whether what is taken on the line that says `take` reaches the one that says `use`."""
    lines = [line + "\n" for line in text.strip("\n").splitlines()]
    name = f"<host text {next(NUMBERS)}>"
    linecache.cache[name] = len(text), None, lines, name
    taken, used = (next(k for k, line in enumerate(lines, 1) if word in line) for word in ("# take", "# use"))
    return may_reach(Place(name, taken), Place(name, used), position, arguments)


@pytest.mark.parametrize(
    "way",
    [
        "b = a",
        "b = 2.0 * math.sqrt(a)",
        "b: float = a + 1.0",
        "b, c = a, 1.0",
        "b = [a, 1.0]",
        "b = np.array([a, 1.0]).sum()",
        "b = 1.0\nb += a",
        "b = []\nb.append(a)",
        "b = {}\nb['x'] = a",
        "b = a if ok else 1.0",
        "b = max(a, 1.0)",
        "b = f(1.0, key=a)",
        "b = [v for v in [a]]",
        "for v in [a]:\n    b = v",
        "np.copyto(b, a)",
        "np.multiply(a, 2.0, out=b)",
        "self.v = a\nb = self.v",
        "b = (c := a)",
        "with ctx(a) as b:\n    pass",
        "b = round(a, 2)",
        "if ok:\n    b = a",
    ],
)
def test_a_number_goes_where_it_is_assigned_computed_with_or_stored(way: str) -> None:
    assert reaches(f"a = s.item()  # take\n{way}\nlaunch(k, 3, [x, b])  # use") is True


@pytest.mark.parametrize(
    "way",
    [
        "b = 1.0",
        "b = 1.0 if a > 2.0 else 0.5",
        "b = 1.0\nif a > 1.0:\n    b = 0.5",
        "b = int(a)",
        "b = round(a)",
        "b = len([a])",
        "b = np.argmax(a)",
        "b = np.zeros_like(a)",
        "b = a.shape[0]",
        "b = (a > 1.0) * 2.0",
        "b, c = 1.0, a",
        "print(a)\nb = 2.0",
        "b = a.astype(np.int32)",
        "b = table[int(a)]",
        "def f():\n    b = a\nb = 1.0",
    ],
)
def test_a_number_does_not_go_through_conditions_integers_and_facts(way: str) -> None:
    assert reaches(f"a = s.item()  # take\n{way}\nlaunch(k, 3, [x, b])  # use") is False


@pytest.mark.parametrize(
    "used",
    [
        "k[3](x, b, y)  # use",
        "kl.launch(k, dim=3, inputs=[x, b], outputs=[y])  # use",
        "kl.launch(k, 3, [x, b], [y])  # use",
    ],
)
def test_of_a_launch_only_the_argument_asked_about_counts(used: str) -> None:
    assert reaches(f"b = s.item()  # take\n{used}", 1, 3) is True
    assert reaches(f"x = s.item()  # take\n{used}", 1, 3) is False


def test_taking_may_stand_on_the_line_of_use_or_within_a_loop_after_it() -> None:
    assert reaches("k[3](x, math.sqrt(s.item()), y)  # take # use", 1, 3) is True
    assert reaches("k[3](x, 1.0 / len(s.numpy()), y)  # take # use", 1, 3) is False
    assert (
        reaches("for _ in range(3):\n    k[3](x, b, y)  # use\n    b = 0.5 * s.item()  # take", 1, 3) is True
    )


def test_what_is_stored_in_an_array_or_given_to_an_operator_is_used() -> None:
    assert reaches("a = s.item()  # take\nw[:] = np.sqrt(a)  # use") is True
    assert reaches("a = s.item()  # take\nw = x * np.sqrt(a)  # use") is True


def test_lines_of_different_functions_files_and_texts_that_are_gone_do_not_tell() -> None:
    text = "def f(s):\n    return s.item()  # take\n\ndef g(x, v):\n    k[3](x, v, y)  # use"
    assert reaches(text) is None
    assert may_reach(Place("<one>", 1), Place("<another>", 1)) is None
    assert may_reach(Place("<nowhere>", 1), Place("<nowhere>", 2)) is None
    assert reaches("this is = no Python  # take\n# use") is None
