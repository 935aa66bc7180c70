"""`kernelab.distributed` on a local cluster of Dask: two processes, one of which is killed."""

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import dask.array
import numpy as np
import pytest
from dask.distributed import Client, LocalCluster
from scipy import sparse

import kernelab as kl
from kernelab.errors import Source
from kernelab.runtime.kernel.kernel import compile_source

pytestmark = [
    pytest.mark.xdist_group("dask"),
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


def beyond(x: Any) -> Any:
    y = kl.zeros_like(x)
    kl.launch(MADE["beyond"], dim=len(x), inputs=[x], outputs=[y])
    return y


@pytest.fixture(scope="module")
def workers() -> Iterator[Client]:
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


def test_an_error_on_a_worker_has_the_line_and_caret_of_the_cell(workers: Client) -> None:
    with pytest.raises(
        kl.KernelError, match=r"Cell In\[3\], line 12\n   12 \|     y\[tid\(\)\] = x\[tid\(\) \+ 1\]\n +\^"
    ):
        kl.distributed.map(beyond, numbers(2))


def test_a_function_that_cannot_travel_is_named_with_the_reason(workers: Client) -> None:
    lock = threading.Lock()
    with pytest.raises(kl.KernelTypeError, match=r"cannot travel to another process, for it uses `lock`"):
        kl.distributed.map(lambda x: lock.locked(), [1])


def test_sums_have_the_same_bits_with_one_worker_and_two_of_which_one_dies(workers: Client) -> None:
    x, chunks = numbers(1)[0], numbers(9, 50)
    value, gradient = kl.distributed.sum_gradients(distance, x, chunks)
    every = [kl.func.value_and_grad(distance)(x, chunk) for chunk in chunks]
    assert value == pytest.approx(sum(float(one.item()) for one, _ in every), rel=1e-5)
    np.testing.assert_allclose(gradient.numpy(), sum(one.numpy() for _, one in every), rtol=1e-4)
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as alone,
        alone.as_current(),
    ):
        one_value, one_gradient = kl.distributed.sum_gradients(distance, x, chunks)
    assert (one_value, one_gradient.list()) == (value, gradient.list())
    pids = list(workers.run(os.getpid).values())

    def dying(x: Any, chunk: Any) -> Any:
        if os.getpid() == pids[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return distance(x, chunk)

    again, gradient_again = kl.distributed.sum_gradients(dying, x, chunks)
    assert (again, gradient_again.list()) == (value, gradient.list())


def test_vmap_goes_over_the_blocks_of_an_array_of_dask(workers: Client) -> None:
    values = np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)
    x = dask.array.from_array(values, chunks=(2, 2))
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
    assert blocks.numblocks == ((2, 1) if rows else (1, 2))
    np.testing.assert_allclose(blocks.compute(), here, rtol=1e-6)
    thin = kl.distributed.jacobian(wave, x, 2, rows=rows, sparse=True)
    assert sparse.issparse(thin)
    assert thin.nnz == 5
    np.testing.assert_allclose(thin.toarray(), here, rtol=1e-6)


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


def test_versions_that_differ_are_an_error(workers: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kl, "__version__", "9.9")
    with pytest.raises(kl.KernelValueError, match=r"has kernelab 0\S+ and Python \S+, and this .* 9\.9"):
        kl.distributed.client()
