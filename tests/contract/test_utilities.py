"""What the host reads of arrays: each utility is differentiated and right in each lane of `vmap`, or refuses.

Two proofs: the text of the package, in which nothing but the named functions reads elements without asking
whether it may, and every utility on a tape, in the transforms, and in lanes.
"""

import ast
import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelab as kl

pytestmark = pytest.mark.slow

ASKS = {"look_at", "looked_at", "readable", "require_readable", "unreadable", "_origins"}
"""Each raises, or says so, where the values of an array differ between lanes."""

READERS = {"layout", "memory", "spaces", "transfers"}
"""The modules that move bytes, and of which the others ask."""

EXEMPT = {
    "arguments._borrowed": "compares addresses",
    "arguments._tensor": "the tensor of another library, which no transform follows",
    "arguments._reference": "a launch hands the array over as well, which is what lanes take",
    "foreign._over_tensor": "compares addresses",
    "indexed._move": "only where nothing records",
    "checked._refuse_turned": "reads copies, where the recorder sees values",
    "checked.trace": "reads an array that it has made",
    "races.known": "reads arrays that it has made",
    "recorder.tabulate": "recorders override it where values differ between lanes",
    "array._listed": "its callers ask",
    "field_values._as_array": "compares addresses",
    "struct_instances._element_of": "reads an array of one number that a struct of the user's owns",
}
"""The functions of `kernelab.runtime` that read elements without asking, and why they may."""

READS = {"host", "seen"}


def functions_that_read() -> Iterator[tuple[str, set[str]]]:
    """The functions whose text reads elements, and the names of what they call."""
    package = Path(kl.__file__).parent
    for path in sorted([*package.glob("*.py"), *package.joinpath("runtime").glob("**/*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                calls = [part.func for part in ast.walk(node) if isinstance(part, ast.Call)]
                if any(isinstance(f, ast.Attribute) and f.attr in READS for f in calls):
                    yield (
                        f"{path.stem}.{node.name}",
                        {getattr(f, "attr", getattr(f, "id", "")) for f in calls},
                    )


def test_nothing_reads_elements_without_asking() -> None:
    silent = {name for name, calls in functions_that_read() if not calls & ASKS}
    assert {name for name in silent if name.partition(".")[0] not in READERS} == set(EXEMPT)


# ------------------------------------------------------------------------- utilities, one by one

N = 4
X = [3.0, -1.0, 2.5, 0.7]
LANES = [X, [0.5, 0.4, -0.3, 2.0], [1.0, 2.0, 3.0, 4.0]]
F = kl.float64


def made(n: int = N, dtype: Any = F) -> Any:
    return kl.zeros(n, dtype=dtype, requires_grad=dtype is F)


def sort_keys(x: Any) -> Any:
    keys = kl.clone(x)
    kl.utils.radix_sort_pairs(keys, kl.zeros(N, dtype=int), N)
    return keys


def sort_values(x: Any) -> Any:
    keys, values = kl.array([2, 0, 3, 1], dtype=int), kl.clone(x)
    kl.utils.radix_sort_pairs(keys, values, 3)
    return values


def sort_vectors_by(x: Any) -> Any:
    keys, values = kl.clone(x), kl.zeros(N, dtype=kl.vec2d, requires_grad=True)
    kl.launch(PAIRS, dim=N, inputs=[x], outputs=[values])
    kl.utils.radix_sort_pairs(keys, values, N)
    return values


def sort_segments(x: Any) -> Any:
    keys, values = kl.clone(x), kl.clone(x)
    kl.utils.segmented_sort_pairs(keys, values, N, kl.array([0, 2, 4], dtype=int))
    return values


def sort_overlapping(x: Any) -> Any:
    keys = kl.clone(x)
    kl.utils.radix_sort_pairs(keys[0:3], keys[1:4], 3)
    return keys


def runs(x: Any) -> Any:
    found, lengths = made(), made(dtype=kl.int32)
    kl.utils.runlength_encode(x[[2, 2, 0, 1]].contiguous(), found, lengths)
    return found


def runs_of_ints(x: Any) -> Any:
    found, lengths = made(dtype=kl.int32), made(dtype=kl.int32)
    count = kl.utils.runlength_encode(kl.array([1, 1, 2, 2], dtype=int), found, lengths)
    return x * float(count)


def cast(x: Any) -> Any:
    narrow, back = kl.zeros(N, dtype=float, requires_grad=True), made()
    kl.utils.array_cast(x, narrow)
    kl.utils.array_cast(narrow, back)
    return back


def scanned(x: Any, inclusive: bool = True) -> Any:
    found = made()
    kl.utils.array_scan(x, found, inclusive)
    return found


def assigned(x: Any) -> Any:
    y = made()
    y.assign(x[[2, 0, 1, 1]])
    return y


def stored(x: Any) -> Any:
    y = made()
    y[0:3] = x[[2, 0, 1]]
    return y


def scattered(x: Any) -> Any:
    y = made()
    y[[2, 0, 1, 3]] = x
    return y


def within(x: Any) -> Any:
    return x[[3, 2, 1, 0]][1:][[0, 2, 2]].contiguous()


def copied(x: Any) -> Any:
    y = made()
    kl.copy(y, x[[1, 0, 3, 2]])
    return y


PAIRS = kl.compile("""
def pairs(x: array[float64], y: array[vec2d]):
    i = tid()
    y[i] = vec2d(x[i] * x[i], sin(x[i]))
""")["pairs"]

UTILITIES: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "array_cast": (cast,),
    "array_inner": (lambda x: kl.utils.array_inner(x, x, out=made(1)),),
    "array_scan": (scanned, lambda x: scanned(x, inclusive=False)),
    "array_sum": (lambda x: kl.utils.array_sum(x * x, out=made(1)),),
    "radix_sort_pairs": (sort_keys, sort_values, sort_vectors_by, sort_overlapping),
    "segmented_sort_pairs": (sort_segments,),
    "runlength_encode": (runs, runs_of_ints),
    "map": (lambda x: kl.map(lambda a: a * kl.sin(a), x), lambda x: kl.map(kl.exp, x)),
    "picked elements": (assigned, stored, scattered, within, copied),
    "copies": (kl.clone, copy.copy, copy.deepcopy, lambda x: x[::-1].contiguous()),
}
PROGRAMS = [pytest.param(f, id=f"{name}-{k}") for name, each in UTILITIES.items() for k, f in enumerate(each)]


def test_every_utility_is_tried() -> None:
    assert set(kl.utils.__all__) - {"ScopedDevice", "ScopedTimer"} <= set(UTILITIES)


def numbers(y: Any) -> np.ndarray[Any, Any]:
    return np.array(y.numpy()).ravel()


def by_differences(program: Callable[[Any], Any]) -> np.ndarray[Any, Any]:
    steps = 1e-6 * np.eye(N)
    ends = [[numbers(program(kl.array(X + s, dtype=F))) for s in (step, -step)] for step in steps]
    return np.array([(after - before) / 2e-6 for after, before in ends]).T


def by_tape(program: Callable[[Any], Any]) -> np.ndarray[Any, Any]:
    rows = []
    for seed in np.eye(numbers(program(kl.array(X, dtype=F))).size):
        x = kl.array(X, dtype=F, requires_grad=True)
        with kl.Tape() as tape:
            y = program(x)
        tape.backward(grads={y: kl.array(seed.reshape(y.numpy().shape), dtype=y.dtype)})
        rows.append(numbers(x.grad))
    return np.array(rows)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_utility_has_the_derivative_of_what_it_did(program: Callable[[Any], Any]) -> None:
    wanted, x = by_differences(program), kl.array(X, dtype=F)
    tolerance = 0.1 if program is cast else 1e-7  # the differences are taken in float32
    np.testing.assert_allclose(by_tape(program), wanted, atol=tolerance)
    for transform in (kl.func.jacrev, kl.func.jacfwd):
        found = transform(program)(x).numpy().reshape(wanted.shape)
        np.testing.assert_allclose(found, wanted, atol=tolerance)
    held = kl.checkpoint(program, x)
    np.testing.assert_array_equal(numbers(held), numbers(program(x)))


@pytest.mark.parametrize("program", PROGRAMS)
def test_in_a_checkpoint_a_utility_has_the_same_derivative(program: Callable[[Any], Any]) -> None:
    np.testing.assert_array_equal(by_tape(lambda x: kl.checkpoint(program, x)), by_tape(program))


@pytest.mark.parametrize("program", PROGRAMS)
def test_in_vmap_a_utility_is_right_in_each_lane_or_refuses(program: Callable[[Any], Any]) -> None:
    lanes = kl.array(LANES, dtype=F)
    if program is runs:  # lanes may have different numbers of them
        with pytest.raises(kl.GradientError, match="differ between the lanes"):
            kl.func.vmap(program)(lanes)
        return
    found = kl.func.vmap(program)(lanes).numpy()
    each = [program(kl.array(lane, dtype=F)).numpy() for lane in LANES]
    np.testing.assert_array_equal(found, each)


def test_lanes_differentiated_are_those_of_each() -> None:
    found = kl.func.vmap(kl.func.jacrev(sort_vectors_by))(kl.array(LANES, dtype=F)).numpy()
    each = [kl.func.jacrev(sort_vectors_by)(kl.array(lane, dtype=F)).numpy() for lane in LANES]
    np.testing.assert_array_equal(found, each)


def test_gradcheck_follows_a_sort() -> None:
    x = kl.array([3.0, 1.0, 2.0, 0.5], dtype=float, requires_grad=True)

    def squares_in_order(x: Any) -> Any:
        keys = x * x
        kl.utils.radix_sort_pairs(keys, kl.zeros(N, dtype=int), N)
        return keys

    assert kl.autograd.gradcheck(squares_in_order, inputs=[x], show_summary=False)


def test_a_struct_is_sorted_with_its_gradient() -> None:
    class Body:
        m: float
        v: kl.vec2

    body = kl.struct(Body)
    bodies = kl.zeros(3, dtype=body, requires_grad=True)
    masses = kl.array([3.0, 1.0, 2.0], requires_grad=True)
    with kl.Tape() as tape:
        bodies["m"].assign(masses)
        kl.utils.radix_sort_pairs(kl.array([2, 0, 1], dtype=int), bodies, 3)
    tape.backward(grads={bodies["m"]: kl.array([1.0, 10.0, 100.0])})
    assert (bodies["m"].list(), masses.grad.list()) == ([1, 2, 3], [100, 1, 10])


def test_lanes_write_to_places_of_their_own() -> None:
    def program(x: Any, places: Any) -> Any:
        y = made()
        kl.launch(SQUARE, dim=N, inputs=[x], outputs=[y[places]])
        y[places[1:3]] = x[places][0:2]
        return y

    places = kl.array([[2, 0, 1, 3], [3, -3, 2, 0], [0, 1, 2, 3]], dtype=int)
    found = kl.func.vmap(program)(kl.array(LANES, dtype=F), places).numpy()
    for lane, values in enumerate(LANES):
        alone = program(kl.array(values, dtype=F), places[lane])
        np.testing.assert_array_equal(found[lane], alone.numpy())


@pytest.mark.parametrize("places", [[[2, 0, 1, 3], [3, 1, 1, 0]], [[0, 1, 2, 3], [0, 1, 3, -1]]])
def test_a_lane_that_writes_twice_to_one_place_is_refused(places: Any) -> None:
    def program(x: Any, places: Any) -> Any:
        y = made()
        kl.launch(SQUARE, dim=N, inputs=[x], outputs=[y[places]])
        return y

    with pytest.raises(kl.LaunchError, match="picks an element twice"):
        kl.func.vmap(program)(kl.array(LANES[:2], dtype=F), kl.array(places, dtype=int))


@pytest.mark.parametrize(
    "ask",
    [
        lambda f, x, k: kl.func.vjp(f, x, k),
        lambda f, x, k: kl.func.jvp(f, (x, k), (x, k)),
        lambda f, x, k: kl.func.hvp(f, (x, k), (x, k)),
        lambda f, x, k: kl.func.grad(f, argnums=1)(x, k),
    ],
)
def test_indices_among_what_is_differentiated_are_told_where_they_go(ask: Callable[..., Any]) -> None:
    x, k = kl.array(X, dtype=F), kl.array([0, 1, 2, 3], dtype=int)
    with pytest.raises(kl.KernelTypeError, match=r"close over .*lambda x: f\(x, k\)"):
        ask(lambda x, k: x[k].contiguous(), x, k)


def test_a_word_of_the_language_is_one_object() -> None:
    assert all(
        getattr(kl, name) is getattr(kl, name) for name in ("sin", "svd3", "tid", "atomic_add", "vec3")
    )
    sines = [kl.map(lambda p: kl.sin(p), kl.ones(1), return_kernel=True) for _ in range(2)]
    assert sines[0] is sines[1]


def test_a_map_that_is_known_asks_for_no_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def sines() -> kl.array:
        return kl.map(lambda p: kl.sin(p) + np.pi * kl.cos(p), kl.ones(1))

    def refuse(name: str) -> None:
        raise AssertionError(f"kernelab was asked for {name}")

    sines()
    monkeypatch.setattr(kl, "__getattr__", refuse)
    assert sines().list() == pytest.approx([np.sin(1) + np.pi * np.cos(1)])


# ------------------------------------------------------------------------- what the host sees of a lane

READERS_OF_VALUES: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda x: x.numpy(),
    "list": lambda x: x.list(),
    "item": lambda x: x[0:1].item(),
    "float": lambda x: float(x[0:1]),
    "int": lambda x: int(x[0:1]),
    "an element": lambda x: x[0],
    "iteration": list,
    "asarray": np.asarray,
    "NumPy's functions": np.sum,
    "dlpack": np.from_dlpack,
    "pickle": pickle.dumps,
    "picked": lambda x: x[[0, 1]].numpy(),
    "picked, list": lambda x: x[[0, 1]].list(),
    "picked, pickle": lambda x: pickle.dumps(x[[0, 1]]),
    "a copy of the host's": lambda x: kl.array(x, dtype=float),
    "sum": lambda x: kl.utils.array_sum(x),
    "inner": lambda x: kl.utils.array_inner(x, x),
    "to_dlpack": lambda x: kl.to_dlpack(x),
    "trace": lambda x: kl.trace(SQUARE, 0, dim=N, inputs=[x], outputs=[kl.zeros_like(x)]),
    "find_races": lambda x: kl.find_races(SQUARE, dim=N, inputs=[x], outputs=[kl.zeros_like(x)]),
    "interface": lambda x: x.__array_interface__,
}
SQUARE = kl.compile("""
def square(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = x[i] * x[i]
""")["square"]


@pytest.mark.parametrize("read", [pytest.param(r, id=name) for name, r in READERS_OF_VALUES.items()])
def test_the_values_of_a_lane_are_not_read(read: Callable[[Any], Any]) -> None:
    with pytest.raises(kl.GradientError, match="differ between the lanes"):
        kl.func.vmap(lambda x: (read(x), x)[1])(kl.array(LANES, dtype=F))


@pytest.mark.parametrize("show", [str, repr, "{}".format, lambda x: repr(x[[0, 1]]), lambda x: repr(x[1:])])
def test_a_lane_shows_as_one(show: Callable[[Any], str]) -> None:
    shown: list[str] = []
    kl.func.vmap(lambda x: (shown.append(show(x)), x)[1])(kl.array(LANES, dtype=F))
    (text,) = shown
    assert "<other values in each lane>" in text and "0." not in text


def test_transforms_along_one_direction_read_values() -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        seen.append((str(x), kl.trace(SQUARE, 0, dim=N, inputs=[x], outputs=[kl.zeros_like(x)])))
        return kl.utils.array_sum(x * x, out=made(1))

    kl.func.grad(f)(kl.array(X, dtype=F))
    assert seen[0][0] == str(np.array(X))


PICKED = kl.compile("""
def picked(x: array[float64], places: array[int], y: array[float64]):
    i = tid()
    y[i] = x[places[i]] * float64(i)
""")["picked"]


def test_a_tape_that_sorts_integers_is_checked_as_a_whole() -> None:
    x, y = kl.array(X, dtype=F, requires_grad=True), made()
    with kl.Tape() as tape:
        keys, places = x.astype(kl.float32), kl.array(range(N), dtype=int) + 0
        kl.utils.radix_sort_pairs(keys, places, N)
        PICKED[N](x, places, y)
    report = kl.autograd.gradcheck_tape(tape, show_summary=False)
    assert report and report.whole
