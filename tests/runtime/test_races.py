"""Data races: a checked launch finds elements at which threads meet, and is silent where none do."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.lang.verify import verify
from kernelab.passes.common.race_marks import contested, marked
from kernelab.passes.common.scalarise import scalarise
from kernelab.runtime.launch.races import Race

TEXT = """
class Particle:
    mass: float
    place: vec2

def scatter(x: array[float], to: array[int], y: array[float]):
    i = tid()
    y[to[i]] = x[i]

def shift(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i + 1]

def relax(x: array[float]):
    i = tid()
    if i > 0:
        x[i] = x[i - 1]

def flag(x: array[float], found: array[int]):
    if x[tid()] > 0.0:
        found[0] = 1

def reset_and_add(x: array[float], s: array[float]):
    i = tid()
    if i == 2:
        s[0] = 0.0
    atomic_add(s, 0, x[i])

def pairs(x: array[vec3], y: array[vec3]):
    i = tid()
    y[i // 2] = x[i]

def twice(x: array2d[float]):
    i, j = tid()
    x[i, j] = 2.0 * x[i, j]

def transposed(x: array2d[float]):
    i, j = tid()
    x[i, j] = x[j, i]

def in_loops(x: array[float], n: int):
    i = tid()
    k = int(0)
    while k < n:
        for m in range(2):
            x[i + k * m] = 1.0
        k += 1

def weigh(p: array[Particle], of: array[int], mass: float):
    p[of[tid()]].mass = mass

def even_from_odd(x: array[float]):
    i = tid()
    x[2 * i] = x[2 * i + 1]

def own_rows(x: array2d[float], n: int):
    i = tid()
    for k in range(n - 1):
        x[k + 1, i] = x[k, i] + x[k, 0] * 0.0

def sums(x: array[float], s: array[float]):
    s[0] += x[tid()]

def guarded(x: array[float], s: array[float]):
    if tid() == 0:
        s[0] = x[0]

def ranks(x: array[float], count: array[int], y: array[float]):
    y[atomic_add(count, 0, 1)] = x[tid()]

def buckets(x: array[float], n: int, y: array[float]):
    i = tid()
    for k in range(n):
        y[i * n + k] = x[i] + y[i * n + k]

def local(x: array[float], y: array[float]):
    i = tid()
    a = zeros(shape=(3,), dtype=float)
    a[0] = x[i]
    a[0] = a[0] + 1.0
    y[i] = a[0]

def out_of_bounds(x: array[float], y: array[float]):
    y[tid() // 2] = x[tid() + 5]
"""


@pytest.fixture(scope="module", params=["cpu", "interp"])
def kernels(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELAB_BACKEND", request.param)
        yield kl.compile(TEXT, label="Cell In[3]")


@pytest.fixture
def checking() -> Iterator[None]:
    kl.config.check_races = True
    yield
    kl.config.check_races = False


def ints(*values: int) -> Any:
    return kl.array(values, dtype=int)


def only(races: tuple[Race, ...]) -> tuple[str, str, str, tuple[str, str]]:
    """The element, how the second thread uses it, the line of the store, and the threads of the one race."""
    (race,) = races
    span = race.first.span
    return race.element, race.second.use, span.source.line(span.line).strip(), race.threads


def test_two_stores_to_one_element(kernels: dict[str, Any]) -> None:
    arguments = [kl.ones(6), ints(0, 1, 2, 3, 1, 5), kl.zeros(6)]
    found = kl.find_races(kernels["scatter"], 6, arguments[:2], arguments[2:])
    assert only(found) == ("y[1]", "store", "y[to[i]] = x[i]", ("1", "4"))
    assert "threads 1 and 4 of `scatter` both store to y[1]" in str(found[0])
    assert "Cell In[3], line 8\n    8 |     y[to[i]] = x[i]" in str(found[0])
    assert not np.any(arguments[2].numpy())
    assert repr(found) == f"1 race in this launch of `scatter`\n\n{found[0]}"
    assert repr(found[0]) == "<race of threads 1 and 4 of `scatter` at y[1]>"


def test_a_launch_without_races_says_so(kernels: dict[str, Any]) -> None:
    found = kl.find_races(kernels["scatter"], 2, [kl.ones(6), ints(0, 1), kl.zeros(6)])
    assert (found, repr(found)) == ((), "no races in this launch of `scatter`")
    assert repr(kl.find_races(kernels["relax"], 0, [kl.ones(4)])) == "no races in this launch of `relax`"


def test_equal_values_are_a_race_too(kernels: dict[str, Any]) -> None:
    found = kl.find_races(kernels["flag"], 4, [kl.ones(4), ints(0)])
    assert only(found) == ("found[0]", "store", "found[0] = 1", ("0", "3"))


def test_a_store_beside_a_load_of_another_thread(kernels: dict[str, Any]) -> None:
    found = kl.find_races(kernels["relax"], 4, [kl.ones(4)])
    assert only(found) == ("x[1]", "load", "x[i] = x[i - 1]", ("1", "2"))
    assert "thread 2 reads it here" in str(found[0])


def test_a_store_beside_an_atomic(kernels: dict[str, Any]) -> None:
    found = kl.find_races(kernels["reset_and_add"], 4, [kl.ones(4), kl.zeros(1)])
    assert only(found) == ("s[0]", "atomic", "s[0] = 0.0", ("2", "0"))


def test_stores_of_vectors(kernels: dict[str, Any]) -> None:
    x, y = kl.ones(4, dtype=kl.vec3), kl.zeros(4, dtype=kl.vec3)
    assert only(kl.find_races(kernels["pairs"], 4, [x, y])) == (
        "y[0]",
        "store",
        "y[i // 2] = x[i]",
        ("0", "1"),
    )


def test_stores_in_loops(kernels: dict[str, Any]) -> None:
    x = kl.zeros(9)
    assert only(kl.find_races(kernels["in_loops"], 4, [x, 3])) == (
        "x[1]",
        "store",
        "x[i + k * m] = 1.0",
        ("0", "1"),
    )
    assert kl.find_races(kernels["in_loops"], 4, [x, 1]) == ()


def test_fields_of_structs(kernels: dict[str, Any]) -> None:
    p = kl.zeros(3, dtype=kernels["Particle"])
    found = kl.find_races(kernels["weigh"], 3, [p, ints(0, 2, 2), 1.0])
    assert only(found) == ("p.mass[2]", "store", "p[of[tid()]].mass = mass", ("1", "2"))
    assert kl.find_races(kernels["weigh"], 3, [p, ints(0, 2, 1), 1.0]) == ()


def test_arguments_that_share_memory(kernels: dict[str, Any]) -> None:
    x = kl.ones(9)
    found = kl.find_races(kernels["shift"], 4, [x, x])
    assert only(found) == ("y[1]", "load", "y[i] = x[i + 1]", ("1", "0"))
    assert kl.find_races(kernels["shift"], 4, [x[:5], x[5:]]) == ()
    assert kl.find_races(kernels["shift"], 4, [x, kl.ones(9)]) == ()


def test_threads_that_the_kernel_takes_for_one(kernels: dict[str, Any]) -> None:
    x = kl.ones((3, 2))
    assert kl.find_races(kernels["twice"], (3, 2), [x]) == ()
    first, second = kl.find_races(kernels["twice"], (3, 2, 2), [x])
    assert first.threads == second.threads == ("(0, 0, 0)", "(0, 0, 1)")
    assert (first.second.use, second.second.use) == ("store", "load")


def test_a_transposition_in_place(kernels: dict[str, Any]) -> None:
    found = kl.find_races(kernels["transposed"], (2, 2), [kl.ones((2, 2))])
    assert only(found) == ("x[0, 1]", "load", "x[i, j] = x[j, i]", ("(0, 1)", "(1, 0)"))
    assert kl.find_races(kernels["transposed"], (1, 1), [kl.ones((2, 2))]) == ()


def test_harmless_launches_are_silent(kernels: dict[str, Any]) -> None:
    x, y, one = kl.ones(8), kl.zeros(8), kl.zeros(1)
    launches = [
        ("even_from_odd", 4, [x]),
        ("sums", 8, [x, one]),
        ("guarded", 8, [x, one]),
        ("ranks", 8, [x, ints(0), y]),
        ("buckets", 4, [x, 2, y]),
        ("local", 8, [x, y]),
        ("scatter", 8, [x, ints(7, 6, 5, 4, 3, 2, 1, 0), y]),
        ("scatter", 0, [x, ints(), y]),
    ]
    assert [(name, kl.find_races(kernels[name], n, given)) for name, n, given in launches] == [
        (name, ()) for name, _, _ in launches
    ]
    assert not np.any(y.numpy()) and not np.any(one.numpy())


def test_what_every_thread_reads_in_its_own_row_is_found(kernels: dict[str, Any]) -> None:
    found = kl.find_races(kernels["own_rows"], 3, [kl.ones((3, 3)), 3])
    assert only(found) == ("x[1, 0]", "load", "x[k + 1, i] = x[k, i] + x[k, 0] * 0.0", ("0", "2"))


def test_an_error_of_the_launch_comes_first(kernels: dict[str, Any]) -> None:
    with pytest.raises(kl.KernelIndexError, match="index 6 is out of bounds for axis 0 of array `x`"):
        kl.find_races(kernels["out_of_bounds"], 2, [kl.ones(6), kl.ones(6)])


def test_a_checked_launch_raises_before_anything_is_changed(kernels: dict[str, Any], checking: None) -> None:
    x, y = kl.ones(4), kl.zeros(4)
    with pytest.raises(kl.KernelRaceError, match=r"threads 0 and 3 of `scatter` both store to y\[0\]"):
        kernels["scatter"][4](x, ints(0, 1, 2, 0), y)
    assert y.list() == [0.0] * 4
    kernels["scatter"][3](x, ints(0, 1, 2), y)
    assert y.list() == [1.0, 1.0, 1.0, 0.0]


def test_a_checked_launch_on_a_tape_has_its_gradient(kernels: dict[str, Any], checking: None) -> None:
    x, y = kl.ones(3, requires_grad=True), kl.zeros(3, requires_grad=True)
    with kl.Tape() as tape:
        kernels["scatter"][3](x, ints(2, 1, 0), y)
        with pytest.raises(kl.KernelRaceError):
            kernels["scatter"][3](x, ints(2, 1, 1), y)
    tape.backward(grads={y: np.float32([1, 2, 3])})
    assert len(tape) == 1
    assert x.grad.list() == [3.0, 2.0, 1.0]


def test_what_the_library_launches_has_no_races(checking: None) -> None:
    x, out = kl.array(np.float32([3, 1, 2, 5])), kl.zeros(1)
    assert (x * x + 1.0).list() == [10.0, 2.0, 5.0, 26.0]
    assert kl.map(lambda a: a + 1.0, x).list() == [4.0, 2.0, 3.0, 6.0]
    kl.utils.array_sum(x, out)
    assert out.list() == [11.0]
    scanned = kl.zeros(4)
    kl.utils.array_scan(x, scanned)
    assert scanned.list() == [3.0, 4.0, 6.0, 11.0]
    assert x[ints(0, 0)].list() == [3.0, 3.0]


def test_transforms_run_on_lanes_and_are_not_checked(kernels: dict[str, Any], checking: None) -> None:
    def last(x: Any) -> Any:
        y = kl.zeros(2)
        kernels["scatter"][2](x, ints(0, 0), y)
        return y

    assert kl.func.vmap(last)(kl.array(np.float32([[1, 2], [3, 4]]))).list() == [2.0, 0.0, 4.0, 0.0]


def test_a_marked_program_is_well_formed(kernels: dict[str, Any]) -> None:
    for name in ("in_loops", "pairs", "reset_and_add", "own_rows"):
        function = kernels[name].primal
        made = marked(scalarise(function), contested(function))
        verify(made.function)
        assert made.marks


def test_each_thread_with_an_axis_of_its_own_needs_no_check(kernels: dict[str, Any]) -> None:
    names = ("twice", "local", "shift", "buckets", "transposed", "even_from_odd")
    assert {name: set(contested(kernels[name].primal)) for name in names} == {
        "twice": set(),
        "local": set(),
        "shift": set(),
        "buckets": {"y"},
        "transposed": {"x"},
        "even_from_odd": set(),
    }


NATIVE = """
@func_native("out(0) = x;")
def put(out: array[float], x: float):
    ...

def k(x: array[float], y: array[float]):
    put(y, x[tid()])
"""


def test_what_snippets_change_is_said_not_to_be_seen_once() -> None:
    kernel, given = kl.compile(NATIVE, label="Cell In[4]")["k"], [kl.ones(3), kl.zeros(3)]
    with pytest.warns(
        kl.KernelWarning, match=r"`k` changes y in C\+\+, which the check for races does not see"
    ):
        assert kl.find_races(kernel, 3, given) == ()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kl.find_races(kernel, 3, given)
