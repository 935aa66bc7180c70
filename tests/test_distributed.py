"""`kernelab.distributed` on a local cluster of Dask: two processes, one of which is killed.

What needs other clusters stands in interop/test_clusters.py.
"""

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array
import numpy as np
import pytest
from dask.distributed import Client, Event, LocalCluster
from distributed.utils import get_mp_context
from scipy import sparse

import kernelab as kl
from kernelab.errors import Source
from kernelab.runtime.kernel.texts import compile_source
from kernelab.runtime.memory import spaces
from tests.support.simulated import SimulatedDriver

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CELL = """
def wave(x: array[float], y: array[float]):
    i = tid()
    y[i] = sin(x[i]) * x[i]

def spread(x: array[float], chunk: array[float], loss: array[float]):
    i = tid()
    atomic_add(loss, 0, (x[i % 3] - chunk[i]) * (x[i % 3] - chunk[i]))

def beyond(x: array[float], y: array[float]):
    y[tid()] = x[tid() + 1]

def before(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i - 1] * x[i]

def blocks(x: array[float], y: array[float]):
    i = tid()
    y[i // 4] += x[i] * x[i]

def spoiled(x: array[float], y: array[float]):
    i = tid()
    y[i] = stop_gradient(x[i]) * x[i]
"""
MADE = compile_source(Source(CELL, "Cell In[3]", 2)).definitions


def wave(x: Any) -> Any:
    y = kl.zeros_like(x)
    kl.launch(MADE["wave"], dim=len(x), inputs=[x], outputs=[y])
    return y


def total(x: Any) -> Any:
    return wave(x).sum()


def distance(x: Any, chunk: Any) -> Any:
    loss = kl.zeros(1)
    kl.launch(MADE["spread"], dim=len(chunk), inputs=[x, chunk], outputs=[loss])
    return loss


def of(kernel: str) -> Any:
    """The function that launches a kernel over its argument."""
    launched = MADE[kernel]

    def call(x: Any) -> Any:
        y = kl.zeros_like(x)
        kl.launch(launched, dim=len(x), inputs=[x], outputs=[y])
        return y

    call.__name__ = kernel
    return call


@pytest.fixture(scope="module")
def workers() -> Iterator[Client]:
    """Two processes, which start with the packages that their server has imported."""
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context().set_forkserver_preload(["kernelab.distributed", "pandas", "scipy.sparse"])
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            yield client


def numbers(count: int, n: int = 3) -> list[Any]:
    rng = np.random.default_rng(3)
    return [kl.array(rng.normal(size=n), dtype=float) for _ in range(count)]


def test_results_come_in_order_with_gradients(workers: Client) -> None:
    xs = numbers(5)
    found = kl.distributed.map(kl.func.value_and_grad(total), xs)
    for x, (value, gradient) in zip(xs, found, strict=True):
        here = kl.func.value_and_grad(total)(x)
        assert value.list() == here[0].list()
        assert gradient.list() == here[1].list()


def test_a_generator_may_fill_one_array_for_each_task(workers: Client) -> None:
    def filled() -> Iterator[Any]:
        chunk = kl.zeros(3)
        for value in (1.0, 2.0, 4.0):
            chunk.fill_(value)
            yield chunk[:2]

    assert [y.list() for y in kl.distributed.map(lambda x: 2.0 * x, filled())] == [
        [2.0] * 2,
        [4.0] * 2,
        [8.0] * 2,
    ]
    found, slope = kl.distributed.sum_gradients(lambda x, chunk: (x * chunk).sum(), kl.ones(2), filled())
    assert found == 14.0 and slope.list() == [7.0, 7.0]
    with pytest.raises(kl.KernelTypeError, match="a lock cannot travel to another process"):
        kl.distributed.map(wave, (threading.Lock() for _ in range(2)))


def test_an_error_on_a_worker_has_the_line_and_caret_of_the_cell(workers: Client) -> None:
    with pytest.raises(
        kl.KernelError, match=r"Cell In\[3\], line 12\n   12 \|     y\[tid\(\)\] = x\[tid\(\) \+ 1\]\n +\^"
    ):
        kl.distributed.map(of("beyond"), numbers(2))


def test_a_function_that_cannot_travel_is_named_with_the_reason(workers: Client) -> None:
    lock = threading.Lock()
    with pytest.raises(kl.KernelTypeError, match=r"cannot travel to another process, for it uses `lock`"):
        kl.distributed.map(lambda x: lock.locked(), [1])
    with pytest.raises(kl.KernelTypeError, match="take a Python function, not an int"):
        kl.distributed.map(3, [1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("grid", "found"),
    [
        ({"speed": [1.0], "mass": [2.0]}, "`speed` is parameter 2 of kinetic, and name 1 of the grid"),
        ({"value": [1.0], "speed": [2.0]}, "`value` of the grid is a column of the result, too"),
        ({"mass": 1.0}, "a grid is a dict from names to sequences of numbers"),
        ([[1.0]], "a grid is a dict from names to sequences of numbers"),
    ],
)
def test_a_grid_that_would_be_read_as_something_else_is_an_error(grid: Any, found: str) -> None:
    kinetic = kl.compile("def kinetic(mass: float, speed: float):\n    return mass * speed * speed\n")
    with pytest.raises(kl.KernelError, match=found):
        kl.distributed.sweep(kinetic["kinetic"], grid)


def test_what_is_put_together_of_blocks_is_one_array(workers: Client) -> None:
    x, blocks = numbers(1)[0], dask.array.ones((4, 3), chunks=2, dtype=np.float32)
    with pytest.raises(kl.KernelTypeError, match=r"vmap takes a dask\.array, not a NumPy array"):
        kl.distributed.vmap(wave, np.ones((2, 3)))
    for make in (lambda f: kl.distributed.vmap(f, blocks), lambda f: kl.distributed.jacobian(f, x, 2)):
        with pytest.raises(
            kl.KernelTypeError, match="returned a tuple, and blocks are put together of arrays"
        ):
            make(lambda x: (x, x))
    with pytest.raises(kl.KernelTypeError, match=r"floats of one dimension, not array2d\[float32\]"):
        kl.distributed.jacobian(wave, kl.ones((2, 2)), 2)
    with pytest.raises(kl.KernelValueError, match="blocks=-1 is not a number of blocks"):
        kl.distributed.jacobian(wave, x, -1)


def test_a_block_of_an_array_of_dask_may_have_nothing(workers: Client) -> None:
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    x = dask.array.from_array(values, chunks=(1, 2))
    mapped = kl.distributed.vmap(wave, x[x[:, 0] > 1.0])
    np.testing.assert_allclose(mapped.compute(), (np.sin(values) * values)[1:], rtol=1e-5)


def test_settings_hold_on_workers_and_their_warnings_come_back(
    workers: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, came = [], threading.Event()

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, kl.KernelWarning):
            told.append(str(message))
            came.set()

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", show)
        kl.distributed.map(of("before"), numbers(1))
        assert came.wait(60)
    assert "an index of `x` was negative" in told[0]
    monkeypatch.setattr(kl.config, "negative_index", "error")
    with pytest.raises(kl.KernelIndexError, match="an index of `x` was negative"):
        kl.distributed.map(of("before"), numbers(1))


def slow(f: Any) -> Any:
    """`f`, which on a worker waits for an event first."""
    here = os.getpid()

    def waiting(*args: Any) -> Any:
        if os.getpid() != here:
            Event("started").set()
            Event("go").wait()
        return f(*args)

    return waiting


@pytest.mark.parametrize(
    "call",
    [
        lambda: kl.distributed.map(slow(wave), numbers(20)),
        lambda: kl.distributed.sum_gradients(slow(distance), numbers(1)[0], numbers(9, 50)),
        lambda: kl.distributed.jacobian(slow(wave), numbers(1, 32)[0], 2, sparse=True),
    ],
    ids=["map", "sum_gradients", "jacobian"],
)
def test_an_interrupt_cancels_the_tasks(workers: Client, call: Any) -> None:
    started, go = Event("started"), Event("go")
    started.clear()
    go.clear()

    def interrupt() -> None:
        started.wait()
        os.kill(os.getpid(), signal.SIGINT)

    # A process that a shell has started in the background ignores it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):  # whose traceback, held here, holds no task
            call()
    finally:
        signal.signal(signal.SIGINT, before)
    thread.join()
    assert not workers.futures
    go.set()
    assert kl.distributed.map(len, ["here"]) == [4]


def test_an_error_leaves_nothing_on_the_workers(workers: Client) -> None:
    def bad(x: Any, chunk: Any) -> Any:
        if len(chunk) == 51:
            raise RuntimeError("a bad chunk")
        return distance(x, chunk)

    chunks = [*numbers(8, 50), kl.ones(51)]
    with pytest.raises(RuntimeError, match="a bad chunk"):
        kl.distributed.sum_gradients(bad, numbers(1)[0], chunks)
    assert not workers.futures


def test_the_dashboard_has_the_names_of_functions(workers: Client) -> None:
    kl.distributed.map(kl.func.grad(total), numbers(1))
    kl.distributed.jacobian(wave, numbers(1)[0], 2).compute()
    kl.distributed.vmap(wave, dask.array.ones((2, 3), dtype=np.float32)).compute()

    def prefixes(dask_scheduler: Any) -> set[str]:
        return {*dask_scheduler.task_prefixes}

    assert {"total", "jacobian of wave", "ones_like-wave"} <= workers.run_on_scheduler(prefixes)


def in_pairs(level: list[Any]) -> Any:
    """The sum in the order that `sum_gradients` promises."""
    while len(level) > 1:
        level = [a + b for a, b in zip(level[::2], level[1::2], strict=False)] + level[len(level) & ~1 :]
    return level[0]


def test_sums_have_the_bits_of_sums_in_pairs_also_where_a_worker_dies(workers: Client) -> None:
    x, chunks = numbers(1)[0], numbers(9, 50)
    every = [kl.func.value_and_grad(distance)(x, chunk) for chunk in chunks]
    value, gradient = in_pairs([one.item() for one, _ in every]), in_pairs([one for _, one in every])
    pids = list(workers.run(os.getpid).values())

    def dying(x: Any, chunk: Any) -> Any:
        if os.getpid() == pids[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return distance(x, chunk)

    for loss in (distance, dying):
        found, slope = kl.distributed.sum_gradients(loss, x, chunks)
        assert (found, slope.list()) == (value, gradient.list())


def test_vmap_goes_over_the_blocks_of_an_array_of_dask(workers: Client) -> None:
    values = np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)
    x = dask.array.from_array(values, chunks=(2, 2))
    weights = kl.ones(3)
    weighted = kl.distributed.vmap(lambda row: row * weights, x)
    weights.zero_()  # it counts as it was at the call
    np.testing.assert_allclose(weighted.compute(), values)
    found = kl.distributed.vmap(wave, x)
    assert (found.shape, found.dtype, found.chunks[0]) == ((6, 3), np.float32, (2, 2, 2))
    np.testing.assert_allclose(found.compute(), np.sin(values) * values, rtol=1e-5, atol=1e-7)
    sums = kl.distributed.vmap(total, x)
    np.testing.assert_allclose(sums.compute()[:, 0], (np.sin(values) * values).sum(1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rows", [False, True])
def test_a_jacobian_is_put_together_of_blocks(workers: Client, rows: bool) -> None:
    x = numbers(1, 5)[0]
    here = kl.func.jacrev(wave)(x).numpy()
    blocks = kl.distributed.jacobian(wave, x, 2, rows=rows)
    x.zero_()  # it counts as it was at the call
    assert blocks.numblocks == ((2, 1) if rows else (1, 2))
    np.testing.assert_allclose(blocks.compute(), here, rtol=1e-6)


def blocks(x: Any) -> Any:
    y = kl.zeros(len(x) // 4)
    kl.launch(MADE["blocks"], dim=len(x), inputs=[x], outputs=[y])
    return y


def by_the_host(x: Any) -> Any:
    """What no pattern can be found for."""
    return kl.func.custom_vjp(lambda x: x.numpy() ** 2, lambda x, bar: 2 * x.numpy() * bar.numpy())(x)


@pytest.mark.parametrize("f", [of("before"), kl.func.grad(total), blocks, by_the_host])
@pytest.mark.filterwarnings("ignore:an index of")
def test_a_sparse_jacobian_takes_one_run_a_colour(workers: Client, f: Any) -> None:
    x = numbers(1, 32)[0]
    found = kl.distributed.jacobian(f, x, 2, sparse=True)
    assert sparse.issparse(found)
    here = kl.func.jacrev(f)(x).numpy()
    assert found.nnz == np.count_nonzero(here) <= 64
    np.testing.assert_allclose(found.toarray(), here, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("f", [of("before"), blocks])
@pytest.mark.filterwarnings("ignore:an index of")
def test_columns_and_rows_of_a_sparse_jacobian_are_computed_on_workers(
    workers: Client, f: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, gather = [], kl.distributed._gathered
    monkeypatch.setattr(
        kl.distributed,
        "_gathered",
        lambda task, *given, **named: sent.append(task) or gather(task, *given, **named),
    )
    kl.distributed.jacobian(f, numbers(1, 32)[0], 2, sparse=True)
    assert [task.__name__ for task in sent] == [f"jacobian of {f.__name__}"]


def test_the_launches_of_a_tape_are_checked_by_parts(workers: Client) -> None:
    x, y, z = (kl.array(np.arange(1.0, 4.0), dtype=float, requires_grad=True) for _ in range(3))
    with kl.Tape() as tape:
        kl.launch(MADE["wave"], dim=3, inputs=[x], outputs=[y])
        kl.launch(MADE["wave"], dim=3, inputs=[y], outputs=[z])
    report = kl.distributed.gradcheck_tape(tape)
    assert [bool(launch.report) for launch in report.launches] == [True, True]
    with kl.Tape() as tape:
        kl.launch(MADE["wave"], dim=3, inputs=[x], outputs=[y])
        kl.launch(MADE["spoiled"], dim=3, inputs=[y], outputs=[z])
    with pytest.raises(kl.GradientError, match="the gradient of launch 2, of `spoiled`, is not"):
        kl.distributed.gradcheck_tape(tape)
    with pytest.raises(kl.KernelTypeError, match="takes a Tape, not"):
        kl.distributed.gradcheck_tape(x)


def test_a_sweep_is_a_frame_of_values_and_derivatives(workers: Client) -> None:
    text = "def kinetic(mass: float, speed: float):\n    return 0.5 * mass * speed * speed\n"
    kinetic = kl.compile(text)["kinetic"]
    frame = kl.distributed.sweep(kinetic, {"mass": [1.0, 2.0], "speed": [3.0, 4.0]})
    assert [*frame.columns] == ["mass", "speed", "value", "d_mass", "d_speed"]
    assert frame.values.tolist() == [
        [1, 3, 4.5, 4.5, 3],
        [1, 4, 8, 8, 4],
        [2, 3, 9, 4.5, 6],
        [2, 4, 16, 8, 8],
    ]
    exact = kl.compile("def inverse(x: float64):\n    return 1.0 / x\n")["inverse"]
    frame = kl.distributed.sweep(exact, {"x": [3.0]}, dtype=kl.float64)
    assert frame.values.tolist() == [[3.0, 1 / 3, -1 / 9]]


def test_versions_that_differ_are_an_error(workers: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kl, "__version__", "9.9")
    with pytest.raises(kl.KernelValueError, match=r"has kernelab 0\S+ and Python \S+, and this .* 9\.9"):
        kl.distributed.client()


def test_a_worker_without_a_compiler_is_told_of_once_or_is_an_error(workers: Client) -> None:
    place = next(iter(workers.scheduler_info()["workers"]))

    def hide(path: str) -> str:
        before, os.environ["PATH"] = os.environ["PATH"], path
        return before

    path = workers.run(hide, "", workers=[place])[place]
    try:
        with pytest.warns(kl.KernelWarning, match=rf"no C\+\+ compiler on {place}: kernels run on NumPy"):
            kl.distributed.client()
        kl.distributed.client()
        with pytest.raises(kl.KernelValueError, match=rf"no C\+\+ compiler on {place}"):
            kl.distributed.client(need_compiler=True)
    finally:
        workers.run(hide, path, workers=[place])


def on_its_device(values: list[float]) -> list[float]:
    """As Dask-CUDA has it: each worker sees one device, which is the first."""
    x = kl.array(values, dtype=float, device="cuda:0")
    return kl.func.grad(lambda x: (x * x).sum())(x).numpy().tolist()


def test_each_worker_has_a_device_which_is_its_first(workers: Client) -> None:
    def plug() -> None:
        spaces.OPEN["cuda:0"] = spaces.Space("cuda:0", SimulatedDriver(1 << 20))

    def unplug() -> tuple[int, int]:
        device = spaces.OPEN.pop("cuda:0").driver
        return os.getpid(), len(device.launches)

    workers.run(plug)
    assert kl.distributed.map(on_its_device, [[1.0, 2.0]] * 8) == [[2.0, 4.0]] * 8
    used = workers.run(unplug).values()
    assert len({pid for pid, _ in used}) == 2
    assert sum(launches for _, launches in used) > 0


def test_an_error_that_has_no_line_of_the_users_names_none_of_dask(workers: Client) -> None:
    with pytest.raises(kl.GradientError, match=r"returned 3 elements of float32, .*\n  hint: add them up"):
        kl.distributed.sum_gradients(lambda a, chunk: a * chunk, numbers(1)[0], numbers(1))


def test_an_argument_that_cannot_travel_is_named(workers: Client) -> None:
    lock = threading.Lock()
    with pytest.raises(kl.KernelTypeError, match="a lock cannot travel to another process as an argument of"):
        kl.distributed.map(lambda x: 1, [lock])


ON_WORKERS: dict[str, Callable[[Any], Any]] = {
    "of an argument": lambda u: kl.distributed.map(wave, [u])[0],
    "of what the function captures": lambda u: kl.distributed.map(lambda x: x * u, numbers(1))[0],
    "in a dict": lambda u: kl.distributed.map(lambda x: {"wave": (wave(x),)}, [u])[0]["wave"][0],
    "the gradient of a sum": lambda u: kl.distributed.sum_gradients(distance, u, numbers(2))[1],
    "a sum": lambda u: kl.full(3, kl.distributed.sum_gradients(distance, u, numbers(2))[0], dtype=float),
}


@pytest.mark.parametrize("computed", ON_WORKERS.values(), ids=ON_WORKERS)
def test_what_workers_compute_on_a_tape_ends_its_chain_with_a_warning(
    workers: Client, computed: Callable[[Any], Any]
) -> None:
    x = kl.array([0.5, 1.0, 2.0], requires_grad=True)
    with kl.Tape() as tape:
        u = x * 2.0
        loss = (computed(u) * x).sum()
    with pytest.warns(kl.KernelWarning, match="the host") as told:
        tape.backward(loss)
    assert len(told) == 1
    assert Path(__file__).name in str(told[0].message)
    assert "events.py" not in str(told[0].message)


def test_what_workers_compute_of_constants_on_a_tape_is_one(workers: Client) -> None:
    x = kl.array([0.5, 1.0, 2.0], requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with kl.Tape() as tape:
            (found,) = kl.distributed.map(wave, numbers(1))
            loss = (found * x).sum()
        tape.backward(loss)
    assert x.grad.list() == found.list()
