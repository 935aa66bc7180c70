"""Arrays, launches and gradients on a CUDA device, which is simulated: the same numbers as on the CPU."""

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.autodiff.jacobians.pattern import color_columns, color_stars
from kernelab.errors import KernelIndexError, KernelMemoryError, KernelWarning, LaunchError
from tests.support.devices import opened
from tests.support.hardware import ON_GPU, Watched, open_device

TEXT = """
def scale(x: array[float], factor: float, y: array[float]):
    i = tid()
    y[i] = factor * x[i] * x[i]

def advance(x: array[float], steps: int):
    i = tid()
    v = x[i]
    for k in range(steps):
        v = v * v - 0.5 * v + 0.1
    x[i] = v

def neighbours(x: array[float], y: array[float]):
    i = tid()
    y[i] += x[i] * x[i + 1]

def between(a: array2d[float], t: int, x: array[float], y: array[float]):
    i = tid()
    y[i] += a[t, i + 1] * x[i] * a[t + 1, i + 1]

def walk(x: array[float], n: array[int], y: array[float]):
    i = tid()
    v = x[i]
    k = 0
    while k < n[i]:
        v = sin(v) + 0.1 * x[i]
        k += 1
    y[i] = v

def noise(seed: int, y: array[float]):
    i = tid()
    state = rand_init(seed, i)
    y[i] = randn(state)

def total(x: array[float], e: array[float]):
    i = tid()
    e[0] += x[i] * x[i]

def running(x: array[float]):
    i = tid()
    x[i + 1] = x[i] * x[i + 1]

def fill(p: array[vec3]):
    i = tid()
    p[i] = vec3(1.0, 1.0, 1.0)

def shifts(p: array[vec3], m: mat33, q: array[vec3]):
    i = tid()
    q[i] = m * p[i]
"""


@pytest.fixture(scope="module")
def driver() -> Watched:
    return open_device()


@pytest.fixture(scope="module", autouse=True)
def devices(driver: Watched) -> Iterator[None]:
    with opened(driver, open_device(1 << 20)):
        yield


@pytest.fixture(scope="module")
def kernels(devices: None) -> dict[str, Any]:
    return kl.compile(TEXT)


def reals(n: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, n).astype(np.float32)


# ------------------------------------------------------------------------------------------ arrays


def test_an_array_is_made_where_it_is_asked_for(driver: Watched) -> None:
    x = kl.array([1.0, 2.0, 3.0], dtype=float, device="cuda")
    assert (str(x.device), x.device.is_cuda, x.device.arch) == ("cuda:0", True, driver.architecture)
    assert x.device.sm_count > 0 and not x.device.is_capturing
    assert str(kl.zeros(3).device) == "cpu"
    assert x.list() == [1, 2, 3] and str(x) == "[1. 2. 3.]" and "cuda:0" in repr(x)


def test_every_way_to_make_an_array_knows_devices() -> None:
    x = kl.full(4, 2.5, device="cuda:1")
    made = [kl.zeros_like(x), kl.ones_like(x), kl.empty_like(x), kl.clone(x), kl.array(x, device="cuda:1")]
    assert {str(a.device) for a in made} == {"cuda:1"}
    assert kl.zeros_like(x, device="cpu").device.is_cpu
    assert [a.list() for a in (made[0], made[1], made[3])] == [[0] * 4, [1] * 4, [2.5] * 4]
    assert kl.zeros(4, dtype=kl.vec3, device="cuda").numpy().sum() == 0


def test_a_block_makes_its_arrays_on_its_device() -> None:
    with kl.ScopedDevice("cuda:1"):
        assert str(kl.zeros(2).device) == str(kl.get_device()) == "cuda:1"
        with kl.ScopedDevice("cpu"):
            assert kl.ones(2).device.is_cpu
    assert kl.ones(2).device.is_cpu


def test_arrays_move_between_all_devices() -> None:
    x = kl.array(reals(5), dtype=float)
    there = x.to("cuda")
    assert there.to("cuda:0") is there
    for place in ("cuda:1", "cpu", "cuda:0"):
        there = there.to(place)
        assert str(there.device) == place
        np.testing.assert_array_equal(there.numpy(), x.numpy())


def test_a_copy_within_a_device_does_not_pass_the_host(driver: Watched) -> None:
    x, y = kl.array(reals(5), device="cuda"), kl.zeros(5, device="cuda")
    x.allocation.flush()  # type: ignore[attr-defined]
    driver.copies.clear()
    kl.copy(y, x)
    assert driver.copies == ["across"]
    np.testing.assert_array_equal(y.numpy(), reals(5))


def test_copies_of_parts_and_across_devices_are_exact() -> None:
    x = kl.array(np.arange(12, dtype=np.float32).reshape(3, 4), device="cuda")
    y = kl.zeros((3, 4), device="cuda:1")
    kl.copy(y[:, ::2], x[:, 1::2])
    np.testing.assert_array_equal(y.numpy(), [[1, 0, 3, 0], [5, 0, 7, 0], [9, 0, 11, 0]])
    kl.copy(x[1:], x[:-1])
    np.testing.assert_array_equal(x.numpy()[:, 0], [0, 0, 4])


def test_a_view_of_many_axes_is_copied_over_elements_of_its_own_memory() -> None:
    """Gathering it takes more axes than a launch has, copying what has been gathered does not."""
    values = np.arange(1024, dtype=np.float32).reshape(4, 4, 4, 4, 4)[..., :3]
    expected = values.copy()
    x = kl.array(values, dtype=kl.vec3, device="cuda")
    front = x.flatten()[:16].reshape((2, 2, 2, 2))
    x.allocation.flush()
    kl.copy(front, x[::2, ::2, ::2, ::2])
    expected.reshape(256, 3)[:16] = values[::2, ::2, ::2, ::2].reshape(16, 3)
    np.testing.assert_array_equal(x.numpy(), expected)


def test_views_and_elements_are_those_of_the_same_memory() -> None:
    x = kl.array(np.arange(12, dtype=np.float32).reshape(3, 4), device="cuda")
    assert x[1, 2] == 6 and x[-1][0] == 8 and x[1].list() == [4, 5, 6, 7]
    x[1:, 3] = 0.0
    x[0, 0] = 5.0
    x.transpose()[2].fill_(1.0)
    np.testing.assert_array_equal(x.numpy(), [[5, 1, 1, 3], [4, 5, 1, 0], [8, 9, 1, 0]])
    with pytest.raises(KernelIndexError, match="out of bounds"):
        x[3, 0]


def test_what_numpy_gets_is_a_copy_that_cannot_be_written() -> None:
    x = kl.zeros(3, device="cuda")
    values = x.numpy()
    with pytest.raises(ValueError, match="read-only"):
        values[0] = 1
    x.fill_(2.0)
    assert values.tolist() == [0, 0, 0] and np.asarray(x).tolist() == [2, 2, 2]


def test_memory_goes_back_when_arrays_die() -> None:
    held = kl.zeros(100, device="cuda:1")
    before = held.device.free_memory
    other = kl.zeros(100_000, device="cuda:1")
    assert held.device.free_memory <= before - 400_000
    del other
    assert held.device.free_memory == before


@pytest.mark.skipif(ON_GPU, reason="the simulated device is small, a GPU is not")
def test_a_device_without_room_says_how_much_there_is() -> None:
    with pytest.raises(KernelMemoryError, match=r"for an array of 4\.000 GB on cuda:1: 0\.001 of 0\.001"):
        kl.zeros(10**9, device="cuda:1")


def test_memory_of_a_device_is_not_shared_with_the_cpu_by_mistake() -> None:
    x = kl.zeros(3, device="cuda:1")
    assert x.__dlpack_device__() == (2, 1) and not hasattr(x, "__array_interface__")
    with pytest.raises((RuntimeError, BufferError), match="evice"):
        np.from_dlpack(x)


@pytest.mark.skipif(ON_GPU, reason="cuda:0 and cuda:1 are the same GPU there")
def test_an_address_of_another_device_is_refused() -> None:
    x = kl.zeros(3, device="cuda:1")
    with pytest.raises(LaunchError, match="is not in the memory of cuda:0"):
        kl.array(ptr=x.ptr, shape=3, dtype=float, device="cuda:0")
    with pytest.raises(LaunchError, match=r"in the memory of cuda:1(.|\n)*write device=\"cuda:1\""):
        kl.from_ptr(x.ptr, 3, dtype=float)


def test_copies_by_pythons_own_means_stay_on_the_device() -> None:
    x = kl.array([1.0, 2.0], dtype=float, device="cuda")
    assert str(copy.deepcopy(x).device) == "cuda:0" and copy.copy(x).list() == [1, 2]


# ------------------------------------------------------------------------------------------ launches


def test_a_launch_runs_where_its_arrays_are(kernels: dict[str, Any], driver: Watched) -> None:
    x, y = kl.array(reals(300), device="cuda"), kl.zeros(300, device="cuda")
    driver.launches.clear()
    kl.launch(kernels["scale"], 300, [x, 3.0, y])
    assert driver.launches == [(2, 256)]
    np.testing.assert_allclose(y.numpy(), 3 * reals(300) ** 2, rtol=1e-6)
    here, there = kl.array(reals(300)), kl.zeros(300)
    kl.launch(kernels["scale"], 300, [here, 3.0, there])
    assert len(driver.launches) == 1
    np.testing.assert_array_equal(y.numpy(), there.numpy())


def test_arrays_on_different_devices_are_refused_by_name(kernels: dict[str, Any]) -> None:
    x, y, z = kl.ones(3, device="cuda"), kl.zeros(3), kl.zeros(3, device="cuda:1")
    with pytest.raises(LaunchError, match="different devices: `x` on cuda:0, `y` on cpu") as caught:
        kl.launch(kernels["scale"], 3, [x, 3.0, y])
    assert 'y.to("cuda:0")' in str(caught.value)
    with pytest.raises(LaunchError, match="`x` on cuda:0, `y` on cuda:1"):
        kl.launch(kernels["scale"], 3, [x, 3.0, z])
    with pytest.raises(LaunchError, match="`scale` is to run on cuda:1, and its argument `x` is on cuda:0"):
        kl.launch(kernels["scale"], 3, [x, 3.0, y], device="cuda:1")


def test_an_index_outside_an_array_is_an_error_on_a_device_too(kernels: dict[str, Any]) -> None:
    x, y = kl.ones(3, device="cuda"), kl.zeros(3, device="cuda")
    kl.launch(kernels["neighbours"], 3, [x, y])
    with pytest.raises(KernelIndexError, match=r"index 3 is out .*array `x`.*launched in test_devices.py, "):
        y.numpy()


def test_random_numbers_are_those_of_the_cpu(kernels: dict[str, Any]) -> None:
    here, there = kl.zeros(50), kl.zeros(50, device="cuda")
    kl.launch(kernels["noise"], 50, [7, here])
    kl.launch(kernels["noise"], 50, [7, there])
    np.testing.assert_allclose(there.numpy(), here.numpy(), rtol=2e-6)


def test_vectors_operators_maps_and_sums_stay_on_the_device(kernels: dict[str, Any]) -> None:
    p, q = kl.ones(4, dtype=kl.vec3, device="cuda"), kl.zeros(4, dtype=kl.vec3, device="cuda")
    kl.launch(kernels["shifts"], 4, [p, kl.mat33(*range(9)), q])
    np.testing.assert_array_equal(q.numpy()[0], [3, 12, 21])
    x = kl.array([1.0, 2.0, 3.0], dtype=float, device="cuda")
    y = kl.map(lambda a, b: a * b + 1.0, x, x + np.float32(1)) / 2.0
    assert str(y.device) == "cuda:0" and y.list() == [1.5, 3.5, 6.5]
    y -= x
    assert (y.list(), kl.utils.array_sum(y), kl.utils.array_inner(x, x)) == ([0.5, 1.5, 3.5], 5.5, 14.0)
    picked = x[[2, 0]]
    assert (picked * 2.0).list() == [6, 2] if isinstance(picked, kl.array) else picked.list() == [3, 1]


def test_structs_work_on_a_device() -> None:
    found = kl.compile(
        """
class Ball:
    at: vec2
    mass: float

def fall(balls: array[Ball], g: float):
    i = tid()
    b = balls[i]
    b.at = b.at - vec2(0.0, g * b.mass)
    balls[i] = b
"""
    )
    balls = kl.zeros(3, dtype=found["Ball"], device="cuda")
    balls["mass"].fill_(2.0)
    kl.launch(found["fall"], 3, [balls, 0.5])
    assert balls["at"].list()[1].tolist() == [0, -1]
    assert str(balls.device) == str(balls["mass"].device) == "cuda:0"
    heavy = found["Ball"](at=(1.0, 2.0), mass=5.0)
    balls[1:].fill_(heavy)
    assert balls["mass"].list() == [2, 5, 5]
    balls[:2].zero_()
    assert (balls["mass"].list(), balls["at"].list()[2].tolist()) == ([0, 0, 5], [1, 2])


# ------------------------------------------------------------------------------------------ gradients


def both(run: Any) -> None:
    """`run(device)` gives the same numbers on both."""
    for here, there in zip(run("cpu"), run("cuda"), strict=True):
        np.testing.assert_allclose(np.asarray(there), np.asarray(here), rtol=2e-5, atol=1e-6)


def leaf(values: Any, device: str) -> Any:
    return kl.array(values, dtype=float, device=device, requires_grad=True)


def test_a_tape_with_overwrites_residuals_and_sums_gives_the_same_gradients(kernels: dict[str, Any]) -> None:
    def run(device: str) -> list[Any]:
        x = leaf(reals(40), device)
        y, e = (kl.zeros(n, device=device, requires_grad=True) for n in (39, 1))
        with kl.Tape() as tape:
            kl.launch(kernels["advance"], 40, [x, 3])
            kl.launch(kernels["neighbours"], 39, [x, y])
            x *= 0.5
            kl.launch(kernels["advance"], 40, [x, 2])
            kl.launch(kernels["neighbours"], 39, [x, y])
            kl.launch(kernels["total"], 39, [y, e])
        tape.backward(e)
        return [e.numpy(), x.grad.numpy(), y.grad.numpy()]

    both(run)


@pytest.mark.parametrize("overwritten", [slice(None), slice(3, 5), slice(0, 4)])
def test_rows_that_a_launch_has_read_are_kept_wherever_they_stand(
    kernels: dict[str, Any], overwritten: slice
) -> None:
    def run(device: str) -> list[Any]:
        a, x = leaf(reals(42).reshape(7, 6), device), leaf(reals(4), device)
        y = kl.zeros(4, device=device, requires_grad=True)
        with kl.Tape() as tape:
            rows = kl.clone(a)
            for t in (0, 2, 4, 5):
                kl.launch(kernels["between"], 4, [rows, t, x, y])
            rows[overwritten].fill_(0.5)
            kl.launch(kernels["between"], 4, [rows, 3, x, y])
        tape.backward(grads={y: np.ones(4, np.float32)})
        return [a.grad.numpy(), x.grad.numpy()]

    both(run)


def test_cotangents_stay_on_the_device(kernels: dict[str, Any], driver: Watched) -> None:
    """Those that were computed there: of the whole array, of a view, of both, and in the final `.grad`."""
    p, q = (kl.zeros(4, dtype=kl.vec3, device="cuda", requires_grad=True) for _ in range(2))
    m, ones = kl.mat33(1.0, 2.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 1.0), kl.zeros(8, dtype=kl.vec3, device="cuda")
    kl.launch(kernels["fill"], 8, [ones])
    seeds = {
        "whole": lambda: {q: ones[:4]},
        "spread out": lambda: {q: ones[::2]},
        "parts": lambda: {q[:2]: ones[6:], q[2:]: ones[:2]},
        "both": lambda: {q: ones[:4], q[1:3]: ones[:2]},
    }
    expected = {"both": [1, 2, 2, 1]}
    for what, given in seeds.items():
        p.grad.zero_()
        with kl.Tape() as tape:
            kl.launch(kernels["shifts"], 4, [p, m, q])
        driver.copies.clear()
        tape.backward(grads=given())
        assert not {"up", "down"} & set(driver.copies), what
        np.testing.assert_array_equal(p.grad.numpy(), np.outer(expected.get(what, [1] * 4), [1, 5, 1]))
    q.grad.assign(ones[:4])
    p.grad.zero_()
    driver.copies.clear()
    tape.backward()
    assert not {"up", "down"} & set(driver.copies)
    np.testing.assert_array_equal(p.grad.numpy(), np.outer([1] * 4, [1, 5, 1]))


def test_the_loss_itself_needs_nothing_of_the_host(kernels: dict[str, Any], driver: Watched) -> None:
    x, e = (kl.array(reals(n), device="cuda", requires_grad=True) for n in (6, 3))
    with kl.Tape() as tape:
        kl.launch(kernels["total"], 6, [x, e[1:2]])
    driver.copies.clear()
    tape.backward(e[1:2])
    assert not {"up", "down"} & set(driver.copies)
    np.testing.assert_allclose(x.grad.numpy(), 2 * reals(6), rtol=1e-6)


def test_loops_that_keep_what_they_need_give_the_same_gradients(kernels: dict[str, Any]) -> None:
    counts = np.random.default_rng(3).integers(0, 90, 30).astype(np.int32)

    def run(device: str) -> list[Any]:
        x, n = leaf(reals(30), device), kl.array(counts, device=device)
        y = kl.zeros(30, device=device, requires_grad=True)
        with kl.Tape() as tape:
            kl.launch(kernels["walk"], 30, [x, n, y])
        tape.backward(grads={y: np.ones(30, np.float32)})
        return [y.numpy(), x.grad.numpy()]

    both(run)
    before = kl.config.loop_memory
    kl.config.loop_memory = 200
    try:
        both(run)
        assert kernels["walk"].spilled
    finally:
        kl.config.loop_memory = before


def test_gradients_pass_from_device_to_device() -> None:
    x = leaf([1.0, 2.0], "cpu")
    with kl.Tape() as tape:
        y = (x * x).to("cuda")
        z = (y * 3.0).to("cuda:1").to("cpu") * x
    tape.backward(grads={z: [1.0, 1.0]})
    assert x.grad.list() == [9, 36] and y.grad.list() == [3, 6] and str(y.grad.device) == "cuda:0"


@pytest.mark.filterwarnings("ignore:.*no gradient flows through")
def test_jacobians_tangents_and_checks_are_the_same(kernels: dict[str, Any]) -> None:
    def run(device: str) -> list[Any]:
        x, y = leaf(reals(6), device), kl.zeros(5, device=device, requires_grad=True)
        dense = kl.autograd.jacobian(kernels["neighbours"], 5, [x], [y])[0, 0].numpy()
        slopes = kl.autograd.jacobian_fd(kernels["neighbours"], 5, [x], [y])[0, 0].numpy()
        assert kl.autograd.gradcheck(kernels["neighbours"], 5, [x], [y])

        def f(v: Any) -> Any:
            out = kl.zeros(6, device=device)
            kl.launch(kernels["scale"], 6, [v, 2.0, out])
            kl.launch(kernels["advance"], 6, [out, 2])
            return out

        rows, columns = kl.func.jacrev(f)(x), kl.func.jacfwd(f)(x)
        second = kl.func.jacfwd(kl.func.jacrev(f))(leaf(reals(6), device))
        mapped = kl.func.vmap(f)(kl.array(reals(12).reshape(2, 6), device=device))
        assert {str(a.device) for a in (rows, columns, second, mapped)} == {str(x.device)}
        return [dense, slopes, rows.numpy(), columns.numpy(), second.numpy(), mapped.numpy()]

    both(run)


@pytest.mark.filterwarnings("ignore:.*`running_adjoint` runs on one thread")
def test_threads_that_see_each_other_run_in_order_with_a_warning(kernels: dict[str, Any]) -> None:
    values = 1 + 0.1 * reals(9)

    def run(device: str) -> list[Any]:
        x = leaf(values, device)
        with kl.Tape() as tape:
            kl.launch(kernels["running"], 8, [x])
        tape.backward(grads={x: np.ones(9, np.float32)})
        return [x.numpy(), x.grad.numpy()]

    with pytest.warns(KernelWarning, match="`running` runs on one thread of cuda:0: .* elements of `x`"):
        both(run)


def test_columns_are_coloured_on_the_cpu_whatever_device_is_the_default(driver: Watched) -> None:
    rows = np.repeat(np.arange(20), 2)
    columns = (rows + np.tile([0, 1], 20)) % 20
    driver.launches.clear()

    def run(device: str) -> list[Any]:
        with kl.ScopedDevice(device):
            return [color_columns(rows, columns, (20, 20)), color_stars(rows, columns, 20)]

    assert max(run("cpu")[0]) > 0
    both(run)
    assert not driver.launches


def test_the_lanes_of_tangents_run_at_once(kernels: dict[str, Any], driver: Watched) -> None:
    x = leaf(reals(100), "cuda")

    def f(v: Any) -> Any:
        y = kl.zeros(99, device="cuda")
        kl.launch(kernels["neighbours"], 99, [v, y])
        return y

    driver.launches.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tangents = kl.func.vmap(lambda v: kl.func.jvp(f, (x,), (v,))[1])(
            kl.full((40, 100), 1.0, device="cuda")
        )
    (plain,) = kl.func.jvp(f, (x,), (kl.full(100, 1.0, device="cuda"),))[1:]
    np.testing.assert_array_equal(tangents.numpy(), np.tile(plain.numpy(), (40, 1)))
    assert all(blocks * threads > 1 for blocks, threads in driver.launches)


def test_lanes_of_a_grid_of_four_dimensions_run_at_once(driver: Watched) -> None:
    """The lane shares a dimension of the grid there; `seen` has no lanes, and is written by the first."""
    bend = kl.compile("""
def bend(a: array4d[float], seen: array4d[int], b: array4d[float]):
    i, j, k, l = tid()
    seen[i, j, k, l] = i + j
    b[i, j, k, l] += a[i, j, k, l] * a[1 - i, j, k, l] * float(k + l)
""")["bend"]
    shape = (2, 3, 2, 2)

    def run(device: str) -> list[Any]:
        a, seen = leaf(reals(24).reshape(shape), device), kl.zeros(shape, dtype=int, device=device)

        def f(a: Any) -> Any:
            b = kl.zeros(shape, device=device)
            kl.launch(bend, shape, [a, seen, b])
            return b

        return [kl.func.jacfwd(f)(a).numpy(), kl.func.jacrev(f)(a).numpy(), seen.numpy()]

    driver.launches.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        both(run)
    assert driver.launches and all(blocks * threads > 1 for blocks, threads in driver.launches)


def test_whether_a_value_is_finite_is_found_on_the_device(kernels: dict[str, Any]) -> None:
    x, y = leaf([1.0, 1e30], "cuda"), kl.zeros(2, device="cuda", requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernels["scale"], 2, [x, 2.0, y])
    with pytest.raises(kl.NotFiniteError, match="thread 1"):
        tape.backward(grads={y: [1.0, 1.0]}, check_finite=True)


def test_checked_mode_finds_the_same_on_a_device(kernels: dict[str, Any]) -> None:
    kl.config.check = "full"
    try:
        x, y = kl.empty(4, device="cuda:0"), kl.zeros(4, device="cuda:0")
        x[0:2].fill_(1.0)
        with pytest.raises(kl.KernelValueError, match=r"thread 2 of `scale` reads x\[2\], which nobody has"):
            kernels["scale"][4](x, 2.0, y)
        kl.copy(x, kl.array([1.0, 2.0, np.inf, 4.0], dtype=float, device="cuda:0"))
        kernels["scale"][4](x, 2.0, y)
        with pytest.raises(kl.NotFiniteError, match="a value turns nan here, in thread 2"):
            kernels["scale"][4](x, 0.0, y)
        fresh = kl.empty(3, dtype=kl.vec3, device="cuda:0")
        kernels["fill"][3](fresh)
        assert fresh.allocation.unwritten is None
        with pytest.warns(KernelWarning, match="on one thread"), pytest.raises(kl.KernelRaceError):
            kernels["running"][3](y)
    finally:
        kl.config.check = None
