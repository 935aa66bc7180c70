"""`kernelab.distributed` on 1, 2 and 4 workers, on two kinds of processors, and short of memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from dask.distributed import Client, LocalCluster
from distributed.scheduler import KilledWorker
from distributed.utils import get_mp_context

import kernelab as kl

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

MADE = kl.compile(
    """
def misfit(a: array[float], chunk: array[float], loss: array[float]):
    i = tid()
    d = sin(a[i % 3]) - chunk[i]
    loss[0] += d * d
"""
)


def misfit(a: Any, chunk: Any) -> Any:
    loss = kl.zeros(1)
    kl.launch(MADE["misfit"], dim=len(chunk), inputs=[a, chunk], outputs=[loss])
    return loss


@contextmanager
def cluster(count: int, **options: Any) -> Iterator[Client]:
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context().set_forkserver_preload(["kernelab.distributed"])
        options = {"threads_per_worker": 1, "dashboard_address": ":0", **options}
        with LocalCluster(n_workers=count, **options) as workers, Client(workers) as client:
            yield client


def numbers(count: int) -> list[Any]:
    rng = np.random.default_rng(5)
    return [kl.array(rng.normal(size=1000), dtype=float) for _ in range(count)]


def test_sums_have_the_same_bits_with_1_2_and_4_workers() -> None:
    a, chunks, found = kl.array([0.1, 0.2, 0.3], dtype=float), numbers(11), set()
    for count in (1, 2, 4):
        with cluster(count):
            value, slope = kl.distributed.sum_gradients(misfit, a, chunks)
            found.add((value, *slope.list()))
    assert len(found) == 1


def plain_processor() -> None:
    from kernelab.backend.common import compiler

    compiler.processor_features = frozenset


def test_a_worker_with_another_processor_builds_for_itself_in_the_same_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELAB_CACHE_DIR", str(tmp_path))
    a, chunks = kl.array([0.1, 0.2, 0.3], dtype=float), numbers(1)
    with cluster(2, env={"KERNELAB_CACHE_DIR": str(tmp_path)}) as client:
        places = [*client.scheduler_info()["workers"]]
        client.run(plain_processor, workers=places[:1])
        both = [
            client.submit(misfit, a, chunks[0], workers=[place], pure=False).result().item()
            for place in places
        ]
        assert both[0] == pytest.approx(both[1], rel=1e-5)
        assert len([*tmp_path.rglob("*.so")]) == 2


def test_a_task_beyond_the_limit_of_memory_ends_with_what_dask_says_of_it() -> None:
    def greedy(n: int) -> int:
        held = [np.ones(1 << 20) for _ in range(n)]
        while True:
            held[0] += 1.0

    with dask.config.set({"distributed.scheduler.allowed-failures": 0}), cluster(1, memory_limit="700MB"):
        with pytest.raises(KilledWorker):
            kl.distributed.map(greedy, [200])
        assert kl.distributed.map(len, ["here"]) == [4]


def test_workers_may_come_after_the_call() -> None:
    square = kl.compile("def square(x: float):\n    return x * x\n")["square"]
    with cluster(0) as client:
        client.cluster.adapt(minimum=0, maximum=1)
        assert kl.distributed.sweep(square, {"x": [3.0]}).values.tolist() == [[3.0, 9.0, 6.0]]
