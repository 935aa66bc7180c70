"""Elements whose indices stand in arrays are asked for ahead: values, bounds and errors stay the same."""

import ctypes
import mmap
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.codegen.cpp.emitter import emit
from kernelab.codegen.cpp.prefetch import FAR_OF_LANES, gathers
from kernelab.codegen.cpp.targets import Cpu
from kernelab.passes.common.scalarise import scalarise

N, POINTS = 9_001, FAR_OF_LANES // 4 + 5

TEXT = """
def joined(x: kl.array[float], ends: kl.array2d[int], z: kl.array[float]):
    s = kl.tid()
    d = x[ends[s, 1]] * x[ends[s, 0]]
    kl.atomic_add(z, ends[s, 0], d)
    if d > 0.25:
        kl.atomic_sub(z, ends[s, 1], 2.0 * d)

def paired(x: kl.array[float], ends: kl.array[kl.vec2i], y: kl.array[float]):
    s = kl.tid()
    y[s] = x[ends[s][0]] - 3.0 * x[ends[s][1]]

def walked(x: kl.array[float], a: kl.array[int], y: kl.array[float]):
    s = kl.tid()
    t = float(0.0)
    for k in range(3):
        t += x[a[s]] * float(k)
    y[s] = t
"""


@pytest.fixture(scope="module")
def kernels() -> Any:
    return kl.compile(TEXT)


def found(kernel: Any) -> dict[tuple[str, tuple[str, ...], int], dict[str, bool]]:
    places = gathers(scalarise(kernel.program.flat))
    return {
        (a.hint, *rest): {b.hint: changed for b, changed in to.items()} for (a, *rest), to in places.items()
    }


def test_indices_are_found_in_rows_and_vectors_but_not_in_loops(kernels: Any) -> None:
    assert found(kernels["joined"]) == {
        ("ends", ("1",), 0): {"x": False, "z": True},
        ("ends", ("0",), 0): {"x": False, "z": True},
    }
    assert found(kernels["paired"]) == {("ends", (), 0): {"x": False}, ("ends", (), 1): {"x": False}}
    assert found(kernels["walked"]) == {}


def at_the_end_of_memory(values: Any, first: bool) -> Any:
    """An array with nothing before it, or nothing behind it, that may be read."""
    page = mmap.PAGESIZE
    pages = -(-values.nbytes // page)
    memory = mmap.mmap(-1, (pages + 2) * page)
    start = ctypes.addressof(ctypes.c_ubyte.from_buffer(memory))
    at = page if first else (pages + 1) * page - values.nbytes
    np.frombuffer(memory, values.dtype, values.size, at)[:] = values.reshape(-1)
    protect = ctypes.CDLL(None).mprotect
    for guard in (start, start + (pages + 1) * page):
        assert protect(ctypes.c_void_p(guard), ctypes.c_size_t(page), 0) == 0
    return kl.array(ptr=start + at, dtype=int, shape=values.shape), memory


def run_on_guarded_memory(kernels: Any, n: int, first: bool) -> None:
    """Run a launch and its adjoint on indices with nothing around them: reading more ends the process."""
    rng = np.random.default_rng(n)
    ends = rng.integers(-POINTS, POINTS, (n, 2), dtype=np.int32)
    x = kl.array(rng.random(POINTS, np.float32), dtype=float, requires_grad=True)
    z = kl.zeros(POINTS, dtype=float, requires_grad=True)
    held, memory = at_the_end_of_memory(ends, first)
    with kl.Tape() as tape:
        kl.launch(kernels["joined"], dim=n, inputs=[x, held, z])
    seed = rng.random(POINTS, np.float32)
    tape.backward(grads={z: kl.array(seed, dtype=float)})

    values, expected, bar = x.numpy().astype(np.float64), np.zeros(POINTS), np.zeros(POINTS)
    p, q = values[ends[:, 0]], values[ends[:, 1]]
    above = (p.astype(np.float32) * q.astype(np.float32)) > np.float32(0.25)
    np.add.at(expected, ends[:, 0], p * q)
    np.subtract.at(expected, ends[:, 1], 2 * p * q * above)
    d_bar = seed[ends[:, 0]] - 2.0 * seed[ends[:, 1]] * above
    np.add.at(bar, ends[:, 0], d_bar * q)
    np.add.at(bar, ends[:, 1], d_bar * p)
    np.testing.assert_allclose(z.numpy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(x.grad.numpy(), bar, rtol=1e-5, atol=1e-5)
    assert not memory.closed


def test_no_index_is_read_that_is_not_there() -> None:
    runs = "[t.run_on_guarded_memory(k, n, f) for n in (1, 16, 17, 4099, 9001) for f in (False, True)]"
    text = f"import tests.codegen.test_prefetch as t\nk = t.kl.compile(t.TEXT)\n{runs}"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_index_that_is_wrong_is_an_error_at_its_thread(kernels: Any) -> None:
    ends = np.zeros((N, 2), np.int32)
    ends[N - 3, 1] = 2**31 - 1
    x, y = kl.zeros(POINTS, dtype=float), kl.zeros(N, dtype=float)
    with pytest.raises(kl.KernelIndexError, match=f"thread {N - 3}"):
        kl.launch(kernels["paired"], dim=N, inputs=[x, kl.array(ends, dtype=kl.vec2i), y])


def test_the_text_is_the_same_each_time_where_several_arrays_have_accumulators() -> None:
    text = (
        "def f(b: array[int], x: array[float], y: array[float], z: array[float]):\n"
        "    j = b[tid()]\n    x[j] += 1.0\n    y[j] += 2.0\n    z[j] += 3.0\n"
    )
    made: Any = [kl.compile(text)["f"] for _ in range(30)]
    assert len({emit([kernel.primal], Cpu()).text for kernel in made}) == 1
