"""What a function in a transform writes: seen, or refused, and never lost in silence."""

import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import GradientError

K = kl.compile("""
def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def add(x: array[float], y: array[float]):
    i = tid()
    y[i] += x[i]
""")

Poke = Callable[[kl.array], None]


def by_numpy(y: kl.array) -> None:
    y.numpy()[:] = 5.0


def by_an_earlier_view(y: kl.array) -> None:
    view = y.numpy()
    K["add"][3](kl.ones(3), y)
    view[1] = 7.0


def by_an_unrecorded_launch(y: kl.array) -> None:
    kl.launch(K["square"], 3, [kl.ones(3), y], record_tape=False)


POKES = [by_numpy, by_an_earlier_view, by_an_unrecorded_launch]


def reader(poke: Poke) -> Callable[[kl.array], kl.array]:
    def f(x: kl.array) -> kl.array:
        y, z = kl.zeros_like(x), kl.zeros_like(x)
        K["square"][3](x, y)
        poke(y)
        K["square"][3](y, z)
        return z

    return f


def returner(poke: Poke) -> Callable[[kl.array], kl.array]:
    def f(x: kl.array) -> kl.array:
        y = kl.zeros_like(x)
        K["square"][3](x, y)
        poke(y)
        return y

    return f


def changer_of_its_argument(poke: Poke) -> Callable[[kl.array], kl.array]:
    def f(x: kl.array) -> kl.array:
        y = kl.zeros_like(x)
        poke(x)
        K["square"][3](x, y)
        return y

    return f


TRANSFORMS: dict[str, Callable[[Any, kl.array], Any]] = {
    "jacrev": lambda f, x: kl.func.jacrev(f)(x),
    "jacfwd": lambda f, x: kl.func.jacfwd(f)(x),
    "jvp": lambda f, x: kl.func.jvp(f, (x,), (kl.ones(3),)),
    "vjp": lambda f, x: kl.func.vjp(f, x)[1](kl.ones(3)),
    "hvp": lambda f, x: kl.func.jacrev(kl.func.jacrev(f))(x),
    "vmap": lambda f, x: kl.func.vmap(kl.func.jacrev(f))(kl.ones((2, 3))),
    "jacobian": lambda f, x: kl.autograd.jacobian(f, inputs=[x]),
    "gradcheck": lambda f, x: kl.autograd.gradcheck(f, inputs=[x], show_summary=False),
}


@pytest.mark.filterwarnings("ignore::kernelab.errors.KernelWarning")
@pytest.mark.parametrize("shape", [reader, returner, changer_of_its_argument])
@pytest.mark.parametrize("poke", POKES)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_write_that_no_transform_has_seen_is_refused(transform: str, poke: Poke, shape: Any) -> None:
    x = kl.array([1.0, 2.0, 3.0], dtype=float, requires_grad=True)
    with pytest.raises(GradientError):
        TRANSFORMS[transform](shape(poke), x)


def looking(x: kl.array) -> kl.array:
    y, z = kl.zeros_like(x), kl.zeros_like(x)
    K["square"][3](x, y)
    assert y.numpy().shape == (3,)
    y.assign(kl.clone(y))
    K["square"][3](y, z)
    z[0:1].fill_(2.0)
    kl.copy(y[1:], z[:2])
    return y


@pytest.mark.parametrize("transform", ["jacrev", "vjp", "jvp"])
def test_looking_and_writes_that_are_seen_are_no_matter(transform: str) -> None:
    x = kl.array([1.0, 2.0, 3.0], dtype=float)
    TRANSFORMS[transform](looking, x)
    np.testing.assert_allclose(kl.func.jacrev(looking)(x).numpy(), [[2, 0, 0], [0, 0, 0], [0, 32, 0]])


def counting(x: kl.array) -> kl.array:
    K["add"][1](x[:1], TOTAL)
    return x


def filling(x: kl.array) -> kl.array:
    TOTAL.fill_(3.0)
    return x


def copying(x: kl.array) -> kl.array:
    kl.copy(TOTAL, x[:1])
    return x


def counting_calls(x: kl.array) -> kl.array:
    K["add"][1](kl.ones(1), TOTAL)
    return x


TOTAL = kl.zeros(1)


@pytest.mark.parametrize("function", [counting, counting_calls, filling, copying])
def test_a_function_in_vmap_may_not_write_what_was_made_outside_of_it(function: Any) -> None:
    with pytest.raises(GradientError, match="in vmap writes `TOTAL`, made outside of it"):
        kl.func.vmap(function)(kl.ones((2, 3)))


KEPT: dict[str, Any] = {}
"""Where the functions below find the array that they were not given."""


def adding_first(x: kl.array) -> kl.array:
    K["add"][3](x * x, KEPT["y"])
    return KEPT["y"] * KEPT["y"]


def adding_what_is_constant(x: kl.array) -> kl.array:
    K["add"][3](kl.ones(3), KEPT["y"])
    return KEPT["y"] * x * x


def adding_last(x: kl.array) -> kl.array:
    z = KEPT["y"] * x * x
    KEPT["y"] += z
    return z


def filling_last(x: kl.array) -> kl.array:
    z = KEPT["y"] * x * x
    KEPT["y"].fill_(5.0)
    return z


def multiplying_a_part(x: kl.array) -> kl.array:
    KEPT["y"][1:] *= x[1:] * x[1:]
    return KEPT["y"] * 1.0


def assigning(x: kl.array) -> kl.array:
    KEPT["y"].assign(KEPT["y"] + x * x)
    return KEPT["y"] * x


def columns_in_chunks(f: Any, x: kl.array) -> Any:
    return kl.func.jacfwd(f, chunk_size=1)(x)


def columns_in_two_chunks(f: Any, x: kl.array) -> Any:
    return kl.func.jacfwd(f, chunk_size=2)(x)


def second_of_two_arguments(f: Any, x: kl.array) -> Any:
    return kl.func.jacfwd(lambda a, b: f(b) + 0.0 * a, (0, 1))(x, x)[1]


RUNNING_OFTEN = [
    lambda f, x: kl.func.jacfwd(f)(x),
    columns_in_chunks,
    columns_in_two_chunks,
    second_of_two_arguments,
    lambda f, x: kl.func.jacfwd(lambda x: kl.func.jvp(f, (x,), (kl.ones(3),))[0])(x),
]
KEEPING = [adding_first, adding_what_is_constant, adding_last, filling_last, multiplying_a_part, assigning]


@pytest.mark.parametrize("function", KEEPING)
@pytest.mark.parametrize("transform", RUNNING_OFTEN)
def test_a_function_that_runs_for_several_columns_writes_what_it_closes_over_as_one_run(
    transform: Any, function: Any
) -> None:
    x, seen = kl.array([1.0, 2.0, 3.0]), []
    for derive in (lambda: kl.func.jacrev(function)(x), lambda: transform(function, x)):
        KEPT["y"] = kl.array([1.0, 2.0, 4.0])
        jacobian = derive().numpy()
        seen.append((jacobian, KEPT["y"].numpy()))
    KEPT["y"] = kl.array([1.0, 2.0, 4.0])
    function(x)
    assert np.allclose(seen[1][0], seen[0][0])
    for _, left in seen:
        assert np.allclose(left, KEPT["y"].numpy())


@pytest.mark.parametrize("chunk_size", [None, 1])
def test_so_does_one_whose_hessian_is_taken(chunk_size: int | None) -> None:
    KEPT["y"] = kl.array([1.0, 2.0, 4.0])
    grad = kl.func.grad(lambda x: adding_first(x).sum())
    x = kl.array([1.0, 2.0, 3.0])
    hessian = kl.func.jacfwd(grad, chunk_size=chunk_size)(x).numpy()
    assert np.allclose(hessian, np.diag([4.0 + 12.0, 8.0 + 48.0, 16.0 + 108.0]))
    assert np.allclose(KEPT["y"].numpy(), [2.0, 6.0, 13.0])


def by_a_pool(y: Any) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(y.fill_, 9.0)  # whose error stays in a future that nobody asks


def by_a_rule(y: Any) -> None:
    kl.func.custom_vjp(lambda a: y.assign(a * y), lambda a, bar: bar)(y * 2.0)


def as_integers(y: Any) -> None:
    y.view(kl.int32).fill_(0)


@pytest.mark.parametrize("act", [by_a_pool, by_a_rule, as_integers])
@pytest.mark.parametrize("transform", [kl.func.grad, kl.func.hessian, kl.func.jacrev])
def test_what_a_transform_refuses_is_an_error_though_the_function_catches_it(
    transform: Callable[..., Any], act: Callable[[Any], None]
) -> None:
    def cubes(x: Any) -> Any:
        y = 1.0 * x
        squares = y * y
        with suppress(RuntimeError):
            act(y)
        return (squares * y).sum()

    with pytest.raises(GradientError, match="the function has caught this error, and went on"):
        transform(cubes)(kl.array([1.0, 2.0, 3.0]))


@pytest.mark.parametrize("transform", [kl.func.vmap, kl.func.jacfwd])
def test_so_are_values_that_cannot_be_read(transform: Callable[..., Any]) -> None:
    def scaled(x: Any) -> Any:
        y = x * 1.0
        y *= 2.0
        with suppress(ValueError):
            y *= float(y[0])
        return y

    with pytest.raises(GradientError, match="the function has caught this error, and went on"):
        transform(scaled)(kl.array([[1.0, 2.0], [3.0, 4.0]]) if transform is kl.func.vmap else kl.ones(3))


def test_in_vmap_an_element_takes_an_array_of_one() -> None:
    def turned(x: Any) -> Any:
        y = kl.zeros((2, 2))
        y[0, 1] = x[1:2]
        y[1, -1] = x[0:1]
        return y

    lanes = kl.func.vmap(turned)(kl.array([[1.0, 2.0], [3.0, 4.0]]))
    assert lanes.list() == [0.0, 2.0, 0.0, 1.0, 0.0, 4.0, 0.0, 3.0]


def test_in_vmap_arrays_of_its_own_are_written_as_ever() -> None:
    def f(x: kl.array) -> kl.array:
        y = kl.zeros(3)
        K["add"][3](x, y)
        y[1:2].fill_(3.0)
        K["add"][3](x, y)
        return y

    found = kl.func.vmap(f)(kl.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=float))
    np.testing.assert_array_equal(found.numpy(), [[2, 5, 6], [8, 8, 12]])


TRAJECTORY = kl.compile("""
def step(traj: array2d[float], t: int, tmp: array[float]):
    i = tid()
    tmp[i] = sin(traj[t, i])

def store(tmp: array[float], traj: array2d[float], t: int):
    i = tid()
    traj[t + 1, i] = tmp[i] * tmp[i] + 0.5
""")
WIDTH = 500


def trajectory(steps: int) -> Callable[[kl.array], kl.array]:
    def f(x: kl.array) -> kl.array:
        traj = kl.zeros((steps + 1, WIDTH), dtype=float)
        kl.copy(traj[0], x)
        for t in range(steps):
            tmp = kl.zeros(WIDTH, dtype=float)
            TRAJECTORY["step"][WIDTH](traj, t, tmp)
            TRAJECTORY["store"][WIDTH](tmp, traj, t)
        return traj[steps]

    return f


def pulled(steps: int, lanes: int) -> np.ndarray[Any, Any]:
    xs = kl.array(np.linspace(0.1, 1.0, lanes * WIDTH, dtype=np.float32).reshape(lanes, WIDTH))

    def gradient(x: kl.array) -> kl.array:
        return kl.func.vjp(trajectory(steps), x)[1](kl.ones(WIDTH))[0]

    if lanes == 1:
        return gradient(xs[0]).numpy()[np.newaxis]
    return kl.func.vmap(gradient)(xs).numpy()


@pytest.mark.parametrize("lanes", [1, 2])
def test_memory_grows_with_the_length_of_a_trajectory_and_not_with_its_square(lanes: int) -> None:
    peaks = []
    for steps in (10, 40, 80):
        pulled(2, lanes)
        tracemalloc.start()
        found = pulled(steps, lanes)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert np.isfinite(found).all()
    assert peaks[2] < 2.5 * peaks[1]


def test_a_part_that_is_overwritten_is_kept_and_the_rest_read_where_it_stands() -> None:
    def f(x: kl.array) -> kl.array:
        traj, tmp = kl.zeros((3, WIDTH), dtype=float), kl.zeros(WIDTH, dtype=float)
        kl.copy(traj[1], x)
        TRAJECTORY["step"][WIDTH](traj, 1, tmp)
        traj[1:2, 1:].fill_(3.0)
        TRAJECTORY["store"][WIDTH](tmp, traj, -1)
        return traj[0]

    x = np.linspace(0.1, 1.0, WIDTH, dtype=np.float32)
    found = kl.func.vjp(f, kl.array(x))[1](kl.ones(WIDTH))[0]
    np.testing.assert_allclose(found.numpy(), np.sin(2 * x), rtol=1e-5)


def added_in_place(x: kl.array, *data: Any) -> kl.array:
    y = kl.from_numpy(*data or (np.zeros(3, np.float32),))
    K["add"][3](x * x, y)
    return y


def test_a_function_may_add_to_memory_of_a_numpy_array_that_nobody_else_sees() -> None:
    x = kl.array([1.0, 2.0, 3.0])
    for jacobian in (kl.func.jacfwd, kl.func.jacrev):
        assert jacobian(added_in_place)(x).numpy().tolist() == np.diag([2.0, 4.0, 6.0]).tolist()
    lanes = kl.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert kl.func.vmap(added_in_place)(lanes).numpy().tolist() == [[1.0, 4.0, 9.0], [16.0, 25.0, 36.0]]
    rows = kl.func.vmap(kl.func.grad(lambda x: added_in_place(x).sum()))(lanes)
    assert rows.numpy().tolist() == (2.0 * lanes.numpy()).tolist()


SHOWN: dict[str, Any] = {
    "the array": lambda data: data,
    "a view": lambda data: data[:],
    "a view of its row": lambda data: data.reshape(1, 3)[0],
    "its bytes": memoryview,
}


@pytest.mark.parametrize("shown", SHOWN)
def test_what_numpy_shows_of_it_is_told_of(shown: str) -> None:
    seen = []

    def function(x: kl.array) -> kl.array:
        data = np.zeros(3, np.float32)
        seen.append(SHOWN[shown](data))
        return added_in_place(x, data)

    with pytest.raises(GradientError, match="cannot be read here; NumPy shares its memory"):
        kl.func.jacfwd(function)(kl.ones(3))
    with pytest.raises(GradientError, match="a function in vmap writes `y`, which NumPy shares"):
        kl.func.vmap(function)(kl.ones((2, 3)))


def test_memory_of_a_numpy_array_is_exposed_as_long_as_others_refer_to_it() -> None:
    data = np.zeros(3, np.float32)
    views = [kl.from_numpy(data), kl.from_numpy(data[1:])]
    assert views[0].allocation is views[1].allocation
    assert views[0].allocation.is_exposed
    view = data[:2]
    del data
    assert views[0].allocation.is_exposed
    del view
    assert not views[0].allocation.is_exposed
    view = views[1].numpy()
    assert views[0].allocation.is_exposed
    del view
    assert kl.from_numpy(np.frombuffer(bytearray(8), np.float32)).allocation.is_exposed
