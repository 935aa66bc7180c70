"""`x[i] += f(z)` adds after `f`: refused where `f` may change `x[i]` through another argument."""

import textwrap
from collections.abc import Callable
from typing import Any

import pytest

import kernelab as kl
from kernelab.errors import KernelTypeError, LaunchError

HELPERS = """
class Cell:
    level: float

def bump(z: array[float]):
    z[0] = z[0] + 10.0
    return z[0]

def pass_on(z: array[float]):
    return 2.0 * bump(z)

@func_native("z[0] += 1.0f; return z[0];")
def native(z: array[float]) -> float: ...

def collect(a: array[float], b: array[float]):
    a[0] += bump(b)

def collect_for(a: array[float], b: array[float]):
    collect(a, b)
"""
STATEMENTS = {
    "plus": "x[0] += bump(z)",
    "minus": "x[0] -= 2.0 * bump(z)",
    "a call in a call": "x[i] += pass_on(z)",
    "C++": "x[i] += native(z)",
    "an atomic": "x[i] += atomic_add(z, 0, 1.0)",
    "a branch": "x[i] += bump(z) if i == 0 else 1.0",
    "a view": "v = x[0:2]\n    v[i] += bump(z)",
    "a part for it": "x[i] += bump(z[0:1])",
    "in a function": "collect(x, z)",
    "in a function of a function": "collect_for(x, z)",
}
MEETING: dict[str, Callable[[kl.array], kl.array]] = {
    "itself": lambda a: a,
    "a slice": lambda a: a[0:2],
    "a reversed slice": lambda a: a[2::-1],
    "a reshaped one": lambda a: a.reshape(2, 2)[0],
    "its address": lambda a: kl.array(ptr=a.ptr, dtype=float, shape=2),
}


def kernel(statement: str) -> Any:
    text = f"{HELPERS}\ndef added(x: array[float], z: array[float]):\n    i = tid()\n    {statement}\n"
    return kl.compile(text)["added"]


def numbers() -> kl.array:
    return kl.array([1.0, 2.0, 3.0, 4.0], dtype=float, requires_grad=True)


def launch_plainly(added: Any, x: kl.array, z: kl.array) -> None:
    added[1](x, z)


def launch_on_a_tape(added: Any, x: kl.array, z: kl.array) -> None:
    with kl.Tape():
        added[1](x, z)


def launch_in_a_checkpoint(added: Any, x: kl.array, z: kl.array) -> None:
    with kl.Tape():
        kl.checkpoint(lambda: added[1](x, z))


def launch_unrecorded(added: Any, x: kl.array, z: kl.array) -> None:
    kl.launch(added, 1, [x], [z], record_tape=False)


@pytest.mark.parametrize("meeting", MEETING)
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_launch_on_shared_memory_is_refused_at_the_line(name: str, meeting: str) -> None:
    x = numbers()
    wanted = (
        r"the arguments `x` and `z` of this launch of `added` share memory: .* may change .*, which .= reads"
    )
    with pytest.raises(LaunchError, match=wanted):
        kernel(STATEMENTS[name])[1](x, MEETING[meeting](x))
    assert x.list() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "launch", [launch_plainly, launch_on_a_tape, launch_in_a_checkpoint, launch_unrecorded]
)
def test_however_it_is_launched(launch: Callable[[Any, kl.array, kl.array], None]) -> None:
    x = numbers()
    with pytest.raises(LaunchError, match="share memory: bump"):
        launch(kernel(STATEMENTS["plus"]), x, x)


@pytest.mark.parametrize("transform", [kl.func.grad, kl.func.vmap])
def test_in_a_transform(transform: Any) -> None:
    added = kernel(STATEMENTS["plus"])

    def f(x: kl.array) -> kl.array:
        y = kl.clone(x)
        added[1](y, y)
        return y[0:1]

    with pytest.raises(LaunchError, match="share memory: bump"):
        transform(f)(kl.array([[1.0, 2.0]] if transform is kl.func.vmap else [1.0, 2.0], dtype=float))


@pytest.mark.parametrize("name", STATEMENTS)
def test_memory_that_is_not_shared_is_fine(name: str) -> None:
    x = numbers()
    kernel(STATEMENTS[name])[1](x[0:2], x[2:4])
    assert x[1] == 2


@pytest.mark.parametrize(
    "statement", ["x[0] = 1.0 * x[0] + bump(z)", "x[0] *= bump(z)", "t = x[0]\n    x[0] = t + bump(z)"]
)
@pytest.mark.filterwarnings("ignore:threads store to")
def test_what_reads_the_element_first_keeps_the_order_of_python(statement: str) -> None:
    x = numbers()
    kernel(statement)[1](x, x)
    assert x[0] == (11 if "*=" in statement else 12)


def test_fields_of_one_array_of_structs() -> None:
    text = """
    class Cell:
        level: float
        other: float

    def raised(z: array[Cell]):
        z[0].level = z[0].level + 1.0
        return z[0].level

    def levels(x: array[Cell], z: array[Cell]):
        x[0].level += raised(z)

    def others(x: array[Cell], z: array[Cell]):
        x[0].other += raised(z)
    """
    found = kl.compile(textwrap.dedent(text))
    cells = kl.zeros(2, dtype=found["Cell"])
    with pytest.raises(LaunchError, match="share memory: raised"):
        found["levels"][1](cells, cells)
    found["others"][1](cells, cells)
    found["levels"][1](cells[0:1], cells[1:2])
    assert (cells[0].level, cells[0].other, cells[1].level) == (2, 1, 1)


def test_a_call_that_passes_one_array_for_both_is_refused_with_the_cell() -> None:
    with pytest.raises(KernelTypeError, match=r"may change a.0., which .= reads only afterwards") as raised:
        kl.compile(HELPERS + "\ndef added(x: array[float]):\n    collect_for(x, x)\n")
    assert "this call passes one array for both" in str(raised.value)
