"""Launches on several cores: the same bits and the same errors for any number of them."""

import copy
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.backend.common.backends import pack
from kernelab.backend.cpu import cores, split, vector_tier
from kernelab.backend.cpu.cpu_backend import CpuBackend, Parts
from kernelab.backend.cpu.split import Split, parts_of
from kernelab.codegen.cpp.wide_accumulators import shared_totals
from kernelab.errors import KernelError, KernelInterrupt
from kernelab.lang.ir import Append, Function, walk
from kernelab.lang.types import scalar_of, shape_of
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.scalarise import scalarise
from tests.support.lowering import lowered
from tests.support.zoo import ZOO, Animal

COUNTS = (1, 2, 3, 7)


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The numbers of parts of launches, all of which are cut that may be, and run on seven cores."""
    for name, value in (("ENOUGH", 1), ("FEWEST", 2), ("ROUND", 1)):
        monkeypatch.setattr(split, name, value)
    monkeypatch.setattr(cores, "WAKING", -1.0)
    seen: list[int] = []
    made = Parts.__init__

    def noted(self: Parts, info: Any, launch: Any, parts: Any, sums: int) -> None:
        seen.append(len(parts))
        made(self, info, launch, parts, sums)

    monkeypatch.setattr(Parts, "__init__", noted)
    kl.config.threads = 7
    yield seen
    kl.config.threads = None


def test_parts_are_boxes_one_behind_the_other_that_cover_the_grid() -> None:
    for grid, descending in product([(1000,), (3, 1000), (1000, 3), (1, 2, 500)], (False, True)):
        parts = parts_of(grid, 9, descending)
        assert 3 <= len(parts) <= 12 and parts[0].done == 0
        order = np.arange(np.prod(grid)).reshape(grid)
        seen = [
            order[tuple(map(slice, part.box[::2], part.box[1::2]))[: len(grid)]].ravel() for part in parts
        ]
        found = np.concatenate([each[::-1] if descending else each for each in seen])
        np.testing.assert_array_equal(found[::-1] if descending else found, order.ravel())
        assert [part.done for part in parts] == [sum(map(len, seen[:k])) for k in range(len(seen))]


# ------------------------------------------------------------------------------------------ results


def programs_of(animal: Animal) -> Iterator[tuple[Function, dict[str, Any]]]:
    """A kernel, its tangent and its adjoint, with arguments."""
    function, given = lowered(animal.text, animal.name), animal.draw(np.random.default_rng(2))
    yield function, given
    names = [name for name in animal.differentiable if name in {param.hint for param in function.params}]
    tangent = jvp(function, names)
    yield tangent, {**given, **{f"{name}_dot": np.copy(given[name]) for name in names}}
    pulled = vjp(function, names)
    if not any(isinstance(stmt, Append) for stmt in walk(pulled.primal.body)):
        bars = (param for param in pulled.adjoint.params if param.hint.endswith("_bar"))
        yield pulled.adjoint, {**given, **{bar.hint: seed(bar, given) for bar in bars}}


def seed(bar: Any, given: dict[str, Any]) -> Any:
    """The first values of an adjoint: those of its array, or of a number, in an array of one element."""
    value = np.array(given[bar.hint.removesuffix("_bar")], scalar_of(bar.type.elem).dtype)
    return value if value.ndim == bar.type.ndim + len(shape_of(bar.type.elem)) else value[None]


def same_on_all(cases: list[tuple[tuple[int, ...], Function, dict[str, Any]]]) -> None:
    """Run programs whole and on any number of cores: the same bits, but for the rounding of sums."""
    built = CpuBackend().build([scalarise(function) for _, function, _ in cases])
    for grid, function, given in cases:
        entry = built[function.name]
        summed = {stmt.array.hint for stmt in shared_totals(scalarise(function))}

        def run(count: int, entry: Any = entry, given: Any = given, grid: Any = grid) -> dict[str, Any]:
            kl.config.threads = count
            own = copy.deepcopy(given)
            entry(pack(entry.info.layout, grid, own))
            return {name: np.asarray(value) for name, value in own.items()}

        with pytest.MonkeyPatch.context() as whole:
            whole.setattr(Split, "parts", lambda *_: ())
            expected = run(1)
        found = [run(count) for count in COUNTS]
        for name, value in expected.items():
            assert len({each[name].tobytes() for each in found}) == 1, (function.name, name)
            np.testing.assert_allclose(found[0][name], value, 1e-6 if name in summed else 0)


def test_the_zoo_its_tangents_and_its_adjoints_give_the_same_bits_on_any_number_of_cores(
    cut: list[int],
) -> None:
    same_on_all([(animal.grid, *each) for animal in ZOO for each in programs_of(animal)])
    assert len(cut) >= 3 * 25, len(cut) // 3  # one core runs most launches whole


def random_kernel(rng: np.random.Generator, name: str) -> str:
    """A kernel whose threads write elements of their own, and sums that all of them share."""
    lines = [f"def {name}(x: array[float], p: array[float], y: array[float], s: array[vec2]):"]
    lines += ["    i = tid()", "    v = x[i]"]
    steps = (
        "v = v * p[{0}] + 0.5",
        "v = sin(v) - p[{0}] * x[i]",
        "s[{0}].x += v",
        "if v > 0.25:\n        s[{0}].y -= v * p[{0}]",
        "if x[i] < 0.0:\n        v = -v\n    else:\n        v = v * p[{0}]",
        "for k in range(3):\n        v = v + p[{0}] * cos(v)\n        s[{0}].x += v",
        "y[i] += v * v",
    )
    lines += [f"    {step.format(rng.integers(3))}" for step in rng.choice(steps, 5)]
    return "\n".join([*lines, "    y[i] = y[i] + v", ""])


def test_random_programs_and_their_adjoints_give_the_same_bits_on_any_number_of_cores(cut: list[int]) -> None:
    rng, cases = np.random.default_rng(4), []
    for number in range(12):
        text = random_kernel(rng, f"kernel_{number}")
        given = {name: rng.normal(size=n).astype(np.float32) for name, n in (("x", 23), ("p", 3), ("y", 23))}
        given["s"] = rng.normal(size=(3, 2)).astype(np.float32)
        animal = Animal(f"kernel_{number}", text, (23,), lambda _, given=given: given)
        cases += [(animal.grid, *each) for each in programs_of(animal)]
    same_on_all(cases)
    assert len(cut) >= 3 * len(cases) == 3 * 36  # one core runs most launches whole


TEXTS = """
def curved(x: array[float], y: array[float], at: int, s: array[float]):
    i = tid()
    y[i] = sin(x[i]) * exp(-x[i - at]) * cos(x[i]) + sin(2.0 * x[i])
    s[1] += x[i]

def bent(x: array[float], y: array[float], at: int):
    i = tid()
    y[i] = sin(x[i]) * exp(-x[i - at]) * cos(x[i]) + sin(2.0 * x[i])

def limited(x: array[float], n: array[int], a: array[float], y: array[float]):
    i = tid()
    v = x[i]
    for k in range(n[i]):
        v = v + a[0] * sin(v)
    y[i] = v

def risky(x: array[float], of: array[int], y: array[float], s: array[float]):
    i = tid()
    s[0] += x[i]
    y[i] = x[of[i]]
    assert x[i] < 5.0, "too large"
    y[i] = y[i] + float(7 // of[i])

def halting(n: array[int], of: array[int], y: array[float]):
    i = tid()
    k = int(0)
    while k < n[i]:
        k = 0
    y[i] = float(of[of[i]])

def shift(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i + 1]

def follow(x: array[float]):
    i = tid()
    x[i + 1] = x[i] + 1.0

def bins(of: array[int], y: array[float]):
    i = tid()
    y[of[i]] += 1.0

def count(of: array[int], y: array[int]):
    i = tid()
    y[0] += of[i]

def seen(x: array[float], y: array[float], s: array[float]):
    i = tid()
    s[0] += x[i]
    y[i] = s[0]

def both(x: array[float], y: array[float]):
    i = tid()
    y[0] += x[i]
    y[i] += x[i]
    y[i + 1] += x[i]

def told(x: array[float]):
    i = tid()
    x[i] = 1.0
    if i == 0:
        print(x[i])

def half(x: array[float], y: array2d[float]):
    i, j = tid()
    y[i, 0] = x[j]

def grown(y: array2d[float]):
    i, j = tid()
    y[i, j] += 1.0
"""


@pytest.fixture
def kernels(cut: list[int]) -> Any:
    return kl.compile(TEXTS)


def test_vector_code_gives_the_same_bits_where_some_parts_go_on_in_scalar_code(
    kernels: Any, cut: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_tier, "FEWEST", 1)
    monkeypatch.setattr(vector_tier, "MOST_STATEMENTS", 0)
    monkeypatch.setattr(split, "MOST", 5)
    kl.config.negative_index = "wrap"
    x = kl.array(np.random.default_rng(0).normal(size=333).astype(np.float32))
    found = []
    for count in COUNTS:
        kl.config.threads, y, s = count, kl.zeros(333), kl.full(3, 0.5)
        kl.launch(kernels["curved"], 333, [x], [y, 150, s])  # up to thread 149 an index is negative
        found.append(y.numpy().tobytes() + s.numpy().tobytes())
        np.testing.assert_allclose(s.numpy(), [0.5, 0.5 + x.numpy().sum(dtype=np.float64), 0.5], 1e-6)
        (found_by_own,) = {each[: 4 * 333] for each in found}
        kl.launch(kernels["bent"], 333, [x], [y, 150])
        assert y.numpy().tobytes() == found_by_own
    kl.config.negative_index = "warn"
    assert len({*found}) == 1 and len(cut) == 2 * len(COUNTS)


@pytest.mark.parametrize("fewest", [1, 1 << 62], ids=["vector", "scalar"])
def test_threads_that_save_too_much_go_on_with_checkpoints_in_the_same_parts(
    fewest: int, cut: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FEWEST", "FEWEST_WITH_LOOPS"):
        monkeypatch.setattr(vector_tier, name, fewest)
    monkeypatch.setattr(vector_tier, "MOST_STATEMENTS", 0)
    monkeypatch.setattr(split, "MOST", 9)
    kernel = kl.compile(TEXTS)["limited"]
    rng = np.random.default_rng(1)
    n = rng.integers(0, 40, 300).astype(np.int32)
    n[:100] = 3  # the first parts save little
    gradients = []
    for memory, counts in ((0, (1,)), (100, COUNTS)):
        kl.config.loop_memory = memory
        for count in counts:
            kl.config.threads = count
            x = kl.array(np.linspace(0, 1, 300, dtype=np.float32), requires_grad=True)
            a, y = kl.full(1, 0.1, requires_grad=True), kl.zeros(300, requires_grad=True)
            with kl.Tape() as tape:
                kl.launch(kernel, 300, [x, kl.array(n), a], [y])
            tape.backward(grads={y: kl.ones_like(y)})
            gradients.append(np.append(x.grad.numpy(), a.grad.numpy()))
    kl.config.loop_memory = 64 << 20
    assert kernel.spilled == len(COUNTS) and min(cut) > 1
    np.testing.assert_allclose(gradients[1], gradients[0], 1e-5)
    assert len({gradient.tobytes() for gradient in gradients[1:]}) == 1


# ------------------------------------------------------------------------------------------ what stays whole


def overlapping(kernels: Any) -> None:
    x = kl.zeros(101)
    kl.launch(kernels["shift"], 100, [x], [x[:100]])


WHOLE: dict[str, Callable[[Any], None]] = {
    "a thread reads what another one writes": lambda k: kl.launch(k["follow"], 100, [kl.zeros(101)]),
    "sums over indices": lambda k: kl.launch(k["bins"], 9, [kl.zeros(9, dtype=int)], [kl.zeros(9)]),
    "a sum of integers": lambda k: kl.launch(k["count"], 9, [kl.zeros(9, int)], [kl.zeros(1, int)]),
    "a sum that is read": lambda k: kl.launch(k["seen"], 9, [kl.zeros(9)], [kl.zeros(9), kl.zeros(1)]),
    "a sum to which others are added": lambda k: kl.launch(k["both"], 9, [kl.zeros(9)], [kl.zeros(10)]),
    "prints": lambda k: kl.launch(k["told"], 9, [kl.zeros(9)]),
    "threads that share an index": lambda k: kl.launch(k["half"], (3, 3), [kl.zeros(3)], [kl.zeros((3, 1))]),
    "a grid with more dimensions than indices": lambda k: kl.launch(
        k["grown"], (3, 3, 3), [kl.zeros((3, 3))]
    ),
    "arrays that share memory": overlapping,
}


@pytest.mark.filterwarnings("ignore:.*unpacks 2 thread indices")
@pytest.mark.parametrize("name", WHOLE)
def test_a_launch_whose_threads_may_meet_is_never_cut(name: str, kernels: Any, cut: list[int]) -> None:
    WHOLE[name](kernels)
    assert cut == []
    kl.launch(kernels["shift"], 100, [kl.zeros(101)], [kl.zeros(100)])
    assert cut != []


# ------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("place", "value"), [(30, 99), (31, 0), (32, -99)], ids=["an index", "a division", "a negative index"]
)
def test_the_error_is_that_of_the_first_thread_and_those_before_it_have_run(
    place: int, value: int, kernels: Any, cut: list[int]
) -> None:
    of = np.ones(64, np.int32)
    of[place] = value
    of[place + 9 :: 7] = 77  # later threads fail, too
    said = []
    for count in COUNTS:
        kl.config.threads = count
        x, y, s = kl.ones(64), kl.zeros(64), kl.zeros(1)
        x[50:] = 9.0
        with pytest.raises(KernelError) as caught:
            kl.launch(kernels["risky"], 64, [x, kl.array(of)], [y, s])
        said.append(str(caught.value))
        assert s.numpy() == place + 1
        np.testing.assert_array_equal(y.numpy()[:place], 8.0)
    assert len({*said}) == 1 and f"in thread {place}" in said[0]
    assert len(cut) == len(COUNTS)


def test_an_error_ends_later_threads_that_would_run_forever(kernels: Any) -> None:
    n, of = np.zeros(64, np.int32), np.zeros(64, np.int32)
    n[40], of[20] = 1, 99
    with pytest.raises(KernelError, match="in thread 20"):
        kl.launch(kernels["halting"], 64, [kl.array(n), kl.array(of)], [kl.zeros(64)])
    of[20] = n[40] = 0
    y = kl.ones(64)
    kl.launch(kernels["halting"], 64, [kl.array(n), kl.array(of)], [y])
    np.testing.assert_array_equal(y.numpy(), 0.0)


@pytest.mark.parametrize("endless", [slice(0, 1), slice(5, 6), slice(None)], ids=["first", "other", "all"])
def test_an_interrupt_ends_all_parts(endless: slice, kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    began, do = threading.Event(), Parts._do

    def ring(*_: object) -> None:
        raise KeyboardInterrupt

    def noted(self: Parts, numbers: Iterator[int]) -> None:
        began.set()
        do(self, numbers)

    def interrupt() -> None:
        began.wait()
        os.kill(os.getpid(), signal.SIGALRM)

    n, of = np.zeros(64, np.int32), kl.zeros(64, dtype=int)
    kl.launch(kernels["halting"], 64, [of, of], [kl.zeros(64)])  # built before anything rings
    n[endless] = 1
    given = [kl.array(n), of]
    monkeypatch.setattr(Parts, "_do", noted)
    before, other = signal.signal(signal.SIGALRM, ring), threading.Thread(target=interrupt)
    other.start()
    try:
        with pytest.raises(KernelInterrupt, match="was interrupted"):
            kl.launch(kernels["halting"], 64, given, [kl.zeros(64)])
    finally:
        other.join()
        signal.signal(signal.SIGALRM, before)
    y = kl.ones(64)
    kl.launch(kernels["halting"], 64, [of, of], [y])
    np.testing.assert_array_equal(y.numpy(), 0.0)


# ---------------------------------------------------------------------------------- threads and processes


def test_launches_from_several_threads_share_the_cores(kernels: Any, cut: list[int]) -> None:
    results: list[Any] = []

    def work(k: int) -> None:
        kl.config.threads = 3  # settings belong to a thread
        x, y = kl.full(101, float(k)), kl.zeros(100)
        for _ in range(20):
            kl.launch(kernels["shift"], 100, [x], [y])
        results.append((y.numpy() == k).all())

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4 and len(cut) == 80


FORKED = """
    import os
    import kernelab as kl
    from kernelab.backend.cpu import cores, split

    split.ENOUGH, split.FEWEST, split.ROUND, cores.WAKING = 1, 2, 1, -1.0
    kl.config.threads = 3
    kernel = kl.compile(TEXTS)["shift"]
    x, y = kl.ones(101), kl.zeros(100)
    kl.launch(kernel, 100, [x], [y])
    assert cores.POOL._count == 2
    child = os.fork()
    kl.launch(kernel, 100, [x], [y])
    assert cores.POOL._count == 2 and (y.numpy() == 1).all()
    if not child:
        os._exit(5)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_has_helpers_of_its_own() -> None:
    text = f"TEXTS = {TEXTS!r}\n{textwrap.dedent(FORKED)}"
    ended = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=100, check=False
    )
    assert ended.stdout == "5\n", ended.stderr


def test_what_goes_wrong_in_a_helper_is_raised_where_the_work_is() -> None:
    main = threading.current_thread()
    began = threading.Event()

    def do(numbers: Iterator[int]) -> None:
        for number in numbers:
            if threading.current_thread() is not main:
                began.set()
                raise MemoryError(number)
            if number:
                began.wait()

    work = cores.Work(do, lambda number: None, 1000)
    before, cores.WAKING = cores.WAKING, -1.0
    try:
        with pytest.raises(MemoryError):
            work.run(2)
    finally:
        cores.WAKING = before


def test_the_number_of_cores_is_checked() -> None:
    for wrong in (0, -1, 1.5, True, "all"):
        with pytest.raises(kl.KernelError, match="threads is a number of cores"):
            kl.config.threads = wrong  # type: ignore[assignment]
