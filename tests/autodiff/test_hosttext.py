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


RETURNED = """
def root(s):
    return math.sqrt(s.item())  # take

def scale(x, {parameters}):
    k[3](x, factor, y)  # use

def run(x, s):
    v = {call}
    scale(x, {arguments})
"""


@pytest.mark.parametrize(
    ("parameters", "call", "arguments", "wanted"),
    [
        ("factor", "0.5 * root(s)", "v", True),
        ("other, factor", "root(s)", "1.0, v", True),
        ("other, factor", "root(s)", "v, 1.0", False),
        ("other=1.0, factor=2.0", "root(s)", "factor=v", True),
        ("factor", "int(root(s))", "v", False),
        ("factor", "np.root(s)", "v", False),
    ],
)
def test_it_goes_through_results_and_arguments_of_functions(
    parameters: str, call: str, arguments: str, wanted: bool
) -> None:
    text = RETURNED.format(parameters=parameters, call=call, arguments=arguments)
    assert reaches(text, 1, 3) is wanted


OBJECT = """
class Simulation:
    def measure(self, s):
        self.size = float(s)  # take

    def half(self):
        return 0.5 * self.{read}

    def step(self, x):
        k[3](x, self.half(), y)  # use
"""


def test_it_goes_through_attributes_and_methods_of_an_object() -> None:
    assert reaches(OBJECT.format(read="size"), 1, 3) is True
    assert reaches(OBJECT.format(read="count"), 1, 3) is False


def test_functions_within_functions_see_the_names_around_them() -> None:
    text = "def f(s):\n    v = s.item()  # take\n    def g({}):\n        k[3](x, v, y)  # use\n    return g"
    assert reaches(text.format("x"), 1, 3) is True
    assert reaches(text.format("x, v"), 1, 3) is False


def test_of_several_statements_on_a_line_the_launch_counts() -> None:
    assert reaches("a = s.item()  # take\nprint(a); k[3](x, 0.3, y)  # use", 1, 3) is False
    assert reaches("n = s.numpy().shape[0]  # take\nk[3](x, 1.0 / n, y)  # use", 1, 3) is False


def test_lines_of_different_files_and_texts_that_are_gone_do_not_tell() -> None:
    assert may_reach(Place("<one>", 1), Place("<another>", 1)) is None
    assert may_reach(Place("<nowhere>", 1), Place("<nowhere>", 2)) is None
    assert reaches("this is = no Python  # take\n# use") is None
