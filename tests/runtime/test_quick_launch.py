"""Launches by native code: they do what Python does, or leave everything to it."""

import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.backend.common.compiler import open_compiler, processor_features
from kernelab.backend.common.tiered import AHEAD, BETTER
from kernelab.backend.cpu.cpu_backend import BLOCKS
from kernelab.backend.cpu.vector_tier import widths_of
from kernelab.runtime.kernel.dispatch import has_vectors
from kernelab.runtime.launch.launch import quick_launch
from tests.runtime.test_straight import NUMBERS

TEXT = "".join(
    f"def takes_{name}(n: {name}, out: array[float]):\n    out[0] = float(n)\n\n" for name in NUMBERS
)
KERNELS = kl.compile(
    TEXT
    + """
def scale(x: array[float], s: float, y: array[float]):
    i = tid()
    y[i] = s * x[i]

def tilted(x: array2d[float], y: array2d[float]):
    i, j = tid()
    y[i, j] = x[i, j] + float(i) - float(j)

def positive(x: array[float], y: array[float]):
    assert x[0] > 0.0, "not positive"
    y[0] = x[0]

def before(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i - 1]

def before_by_int64(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[int(int64(i) - int64(1))]

def total(x: array[float], y: array[float]):
    atomic_add(y, 0, x[tid()])

def roots(x: array[float], y: array[float]):
    i = tid()
    assert x[i] >= 0.0, "negative"
    y[i] = sqrt(x[i])

def waves(x: array[float], y: array[float]):
    i = tid()
    y[i] = sin(x[i])

def endless(x: array[float], y: array[float]):
    while y[0] < x[0]:
        y[0] += 0.0 * x[0]
"""
)
CASES = [(name, value) for name, values in NUMBERS.items() for value in values if name != "uint64"]


with_vectors = pytest.mark.skipif(
    not open_compiler().is_gcc or not widths_of(processor_features()), reason="no vector code here"
)


def quick(name: str) -> Callable[..., Any]:
    """The native launch of a kernel, which `kl.launch` then takes."""
    kernel = KERNELS[name]
    kernel.quick = quick_launch(kernel, waits=True)
    assert kernel.quick is not None
    return kernel.quick


def quick_with_vectors(name: str) -> Callable[..., Any]:
    """The native launch of a kernel whose vector code is built."""
    entry = KERNELS[name].program.entry
    assert has_vectors(entry)
    return quick(name)


def leaf(*values: float) -> kl.array:
    return kl.array(values, dtype=float, requires_grad=True)


@pytest.mark.parametrize(("name", "value"), CASES)
def test_numbers_are_packed_as_python_packs_them(name: str, value: float) -> None:
    out, launch = kl.zeros(1), quick(f"takes_{name}")
    parameter = KERNELS[f"takes_{name}"].plan.parameters[0]
    with kl.Tape() as tape:
        assert launch(1, [value], [out], True) == (parameter.convert(value)[1], out.packed)
    assert len(tape) == 0
    assert launch(1, [value], [out], True) is True
    assert out.list() == [float(np.float32(value))]


@pytest.mark.parametrize(
    ("name", "value"),
    [("int", 2**31), ("int", True), ("int", 1.0), ("int", 2**70), ("uint8", -1), ("uint8", np.uint8(1))]
    + [("float", value) for value in (1, float("inf"), float("nan"), 2.0**128)],
)
def test_any_other_number_is_left_to_python(name: str, value: Any) -> None:
    out = kl.zeros(1)
    assert quick(f"takes_{name}")(1, [value], [out], True) is False
    assert out.allocation.version == 0


def test_kernels_that_it_cannot_pack_or_whose_prints_it_would_lose_have_none() -> None:
    more = kl.compile("""
def pointed(v: vec3, y: array[float]):
    y[0] = v[0]

def told(y: array[float]):
    printf("%f", y[0])
""")
    for kernel in (KERNELS["takes_uint64"], *more.values()):
        assert quick_launch(kernel, waits=True) is None


def test_arrays_that_do_not_fit_or_cannot_be_written_are_left_to_python() -> None:
    frozen = np.zeros(1, np.float32)
    frozen.flags.writeable = False
    folded = kl.zeros(1, strides=(0,))
    wrong: list[Any] = [kl.zeros((1, 1)), kl.zeros(1, dtype=kl.float64), frozen, None]
    for out in (*wrong, kl.array(frozen, copy=False)):
        assert quick("takes_int")(1, [1], [out], True) is False
    assert folded.allocation.version == 0
    with pytest.raises(kl.LaunchError, match="read-only"):
        kl.launch(KERNELS["takes_int"], 1, [1], [kl.array(frozen, copy=False)])


def test_another_count_or_kind_of_arguments_is_left_to_python() -> None:
    out, launch = kl.zeros(1), quick("takes_int")
    for given in ([[1], []], [[1], [out, 2]], [(n for n in [1]), [out]], [np.array([1]), [out]]):
        assert launch(1, *given, True) is False
    assert launch(1, (1,), (out,), True) is True


def test_grids_are_those_of_python_or_left_to_it() -> None:
    x, y = kl.array(np.arange(6.0).reshape(2, 3), dtype=float), kl.zeros((2, 3))
    launch = quick("tilted")
    assert launch((2, 3), [x, y], [], True) is True
    assert y.tolist() == [[0, 0, 0], [4, 4, 4]]
    wrong: list[Any] = [6, (2, 3, 1), (2, 0), (2, -3), (2, True), (2.0, 3), [2, 3], (1 << 20, 1 << 20), ()]
    for dim in (*wrong, "23", None, (2**70, 1), (4096, 4096)):
        assert launch(dim, [x, y], [], True) is False
    with pytest.warns(kl.KernelWarning, match="this grid has 1 dimension"):
        kl.launch(KERNELS["tilted"], 2, [x], [y])


def test_writes_are_counted_and_what_hears_of_them_is_told() -> None:
    x, y, launch = leaf(1, 2), leaf(0, 0), quick("scale")
    for times in range(1, 4):
        assert launch(2, [x, 2.0, y], [], True) is True
        assert (x.allocation.version, y.allocation.version) == (0, times)
    with kl.Tape() as tape:
        z = y * y
    assert launch(2, [x, 3.0, y], [], True) is False  # the tape needs what y holds
    kl.launch(KERNELS["scale"], 2, [x, 3.0, y])
    tape.backward(grads={z: kl.ones(2)})
    assert y.grad.list() == [4, 8] and y.list() == [3, 6]


def test_a_tape_records_what_it_has_packed() -> None:
    x, y = leaf(1, 2), leaf(0, 0)
    quick("scale")
    with kl.Tape() as tape:
        kl.launch(KERNELS["scale"], 2, inputs=[x, 3.0], outputs=[y])
        kl.launch(KERNELS["scale"], 2, inputs=[x, 5.0], outputs=[y], record_tape=False)
    assert [record.place.line for record in tape.launches] == [sys._getframe().f_lineno - 2]
    with pytest.raises(kl.TapeError, match="did not see how"):
        tape.backward(grads={y: kl.ones(2)})


def test_a_tape_says_which_unrecorded_launch_is_missing() -> None:
    x, y, z = leaf(1, 2), leaf(0, 0), leaf(0, 0)
    quick("scale")
    kl.launch(KERNELS["scale"], 2, [x, 3.0, y])
    line = sys._getframe().f_lineno - 1
    version, made_by, place, thread, sources = y.allocation.origin
    origin = version, made_by.title, place.line, thread
    assert origin == (1, "the launch of `scale`", line, threading.get_ident())
    assert place.filename == __file__ and [source() for source in sources] == [x.allocation]
    with kl.Tape() as tape:
        kl.launch(KERNELS["scale"], 2, [y, 3.0, z])
    with pytest.warns(kl.KernelWarning, match="which computed `y` outside of the tape"):
        tape.backward(grads={z: kl.ones(2)})
    quiet = leaf(0, 0)
    kl.launch(KERNELS["scale"], 2, [x, 3.0, quiet], record_tape=False)
    assert quiet.allocation.origin is None


def test_sums_that_come_late_are_kept_from_shared_memory() -> None:
    x = kl.ones(3)
    launch = quick("total")
    assert launch(3, [x, x], [], True) is False
    assert launch(3, [x, kl.zeros(1)], [], True) is True
    kl.launch(KERNELS["total"], 3, [x, x])
    assert x.list()[1:] == [1, 1]


def test_errors_of_threads_are_those_of_python() -> None:
    x, y = kl.zeros(1), kl.zeros(1)
    free = len(BLOCKS)
    launch = quick("positive")
    with pytest.raises(kl.KernelAssertionError, match="not positive"):
        launch(1, [x, y], [], True)
    assert y.allocation.version == 1 and len(BLOCKS) == free
    assert launch(1, [kl.ones(1), y], [], True) is True
    assert y.list() == [1]


def test_an_index_below_zero_is_told() -> None:
    x, y = kl.array([1.0, 2.0], dtype=float), kl.zeros(2)
    quick("before")
    with pytest.warns(kl.KernelWarning, match="it counted from the end"):
        kl.launch(KERNELS["before"], 2, [x, y])
    assert y.list() == [2, 1]


def test_settings_and_logs_are_looked_at_in_each_launch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    x, y = kl.ones(2), kl.zeros(2)
    launch = quick("scale")
    assert launch(2, [x, 2.0, y], [], True) is True
    monkeypatch.setattr(kl.config, "print_launches", True)
    kl.launch(KERNELS["scale"], 2, [x, 2.0, y])
    assert "launch of scale" in capsys.readouterr().out
    assert quick_launch(KERNELS["scale"], waits=True) is None
    monkeypatch.undo()
    launch = quick("scale")
    assert launch(2, [x, 2.0, y], [], True) is True
    with caplog.at_level(logging.DEBUG, "kernelab"):
        kl.launch(KERNELS["scale"], 2, [x, 2.0, y])
    assert any("launch of scale" in record.message for record in caplog.records)


FACTOR = 2.0


def test_constants_that_have_changed_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    @kl.kernel
    def by_factor(x: kl.array[float], y: kl.array[float]):
        i = kl.tid()
        y[i] = FACTOR * x[i]

    x, y = kl.ones(1), kl.zeros(1)
    launch = quick_launch(by_factor, waits=True)
    assert launch is not None and launch(1, [x, y], [], True) is True
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 3.0)
    assert launch(1, [x, y], [], True) is False
    by_factor.quick = launch
    with pytest.warns(kl.KernelWarning, match="was compiled with FACTOR = 2.0"):
        kl.launch(by_factor, 1, [x, y])


def test_an_interrupt_ends_what_it_runs() -> None:
    x, y = kl.ones(1), kl.zeros(1)
    launch = quick("endless")
    free, ended = len(BLOCKS), threading.Event()

    def press() -> None:
        while len(BLOCKS) == free and not ended.is_set():  # until the launch has taken one
            ended.wait(0.001)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=press)
    thread.start()
    try:
        with pytest.raises(kl.KernelInterrupt):
            launch(1, [x, y], [], True)
    finally:
        ended.set()
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert len(BLOCKS) == free
    assert launch(1, [kl.zeros(1), y], [], True) is True


def test_threads_launch_at_a_time() -> None:
    launch, wrong = quick("scale"), list[Any]()

    def work(factor: float) -> None:
        x, y = kl.ones(8), kl.zeros(8)
        for _ in range(2000):
            kl.launch(KERNELS["scale"], 8, [x, factor, y])
            if y.allocation.version < 1 or y.list() != [factor] * 8:
                wrong.append(factor)

    threads = [threading.Thread(target=work, args=(float(k),)) for k in range(1, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and launch(1, [kl.ones(1), 2.0, kl.zeros(1)], [], True) is True


def test_references_are_given_back() -> None:
    """Each object that a launch meets is referred to as often after many launches as before them."""
    x, y, frozen = leaf(1, 2), leaf(0, 0), kl.zeros((2, 2))
    kernel, launch, number = KERNELS["scale"], quick("scale"), 1234.5678
    inputs, outputs, short = [x, number], [y], [x]
    asserted, zero = quick("positive"), kl.zeros(1)
    held = [x, y, x.allocation, y.allocation, x.packed, y.packed, x.type, number, inputs, outputs, launch]
    held += [None, True, False, kernel.name, frozen, frozen.allocation, zero.allocation, kl.array, BLOCKS[-1]]
    held += [kl.float32, short]

    def run(count: int) -> None:
        for _ in range(count):
            launch(2, inputs, outputs, True)
            launch((2,), inputs, outputs, False)
            launch(2, inputs, [frozen], True)
            launch(2, short, outputs, True)
            launch("2", inputs, outputs, True)
            with pytest.raises(kl.KernelAssertionError):
                asserted(1, [zero, zero], [], True)
        with kl.Tape():
            for _ in range(count):
                launch(2, inputs, outputs, True)

    run(20)
    for worker in (AHEAD, BETTER):  # builds in the background have references of their own
        worker.wait()
    y.allocation.origin = None
    while gc.collect():  # the blocks of launches that failed, and what is freed with these
        pass
    before = [sys.getrefcount(one) for one in held]
    run(1000)
    y.allocation.origin = None
    gc.collect()
    after = [sys.getrefcount(one) for one in held]
    changed = [(k, b, a) for k, (a, b) in enumerate(zip(after, before, strict=True)) if abs(a - b) > 50]
    assert not changed


@with_vectors
@pytest.mark.parametrize("n", [4095, 4096, 5003, 100_000])
def test_launches_of_many_threads_run_vector_code(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    launch, x, y = quick_with_vectors("scale"), kl.array(np.arange(n), dtype=float), kl.zeros(n)
    assert launch(n, [x, 3.0, y], [], True) is True
    assert np.array_equal(y.numpy(), np.float32(3) * np.arange(n))
    monkeypatch.setattr(kl.config, "vector_code", False)
    assert launch(n, [x, 3.0, y], [], True) is False


@with_vectors
def test_launches_that_may_be_cut_are_left_to_python() -> None:
    launch = quick_with_vectors("scale")
    n = KERNELS["scale"].program.entry.on_cpu().code().most
    x = kl.zeros(n)
    assert launch(n, [x, 3.0, x], [], True) is False
    assert launch(n - 1, [x, 3.0, x], [], True) is True
    launch = quick_with_vectors("tilted")
    n = KERNELS["tilted"].program.entry.on_cpu().code().most
    x = kl.zeros((1, 1))
    assert launch((n // 2, 3), [x, x], [], True) is False


@with_vectors
def test_vector_code_is_what_runs_then() -> None:
    launch, x = quick_with_vectors("waves"), kl.array(np.linspace(0, 9, 9000), dtype=float)
    sines = [kl.zeros(9000) for _ in range(3)]
    assert launch(9000, [x, sines[0]], [], True) is True
    KERNELS["waves"].quick = None
    kl.launch(KERNELS["waves"], 9000, [x, sines[1]])
    for k in range(3):  # so few that scalar code runs
        part = slice(3000 * k, 3000 * k + 3000)
        kl.launch(KERNELS["waves"], 3000, [x[part], sines[2][part]])
    vectors, python, scalar = (one.numpy() for one in sines)
    assert np.array_equal(vectors, python) and not np.array_equal(vectors, scalar)


@with_vectors
@pytest.mark.parametrize("bad", [0, 17, 4095, 4997, 4999])
def test_scalar_code_goes_on_where_vector_code_gives_up(bad: int) -> None:
    launch, free = quick_with_vectors("roots"), len(BLOCKS)
    x, y = kl.full(5000, 4.0, dtype=float), kl.zeros(5000)
    x.numpy()[bad] = -1.0
    for _ in range(3):
        with pytest.raises(kl.KernelAssertionError, match="negative") as told:
            launch(5000, [x, y], [], True)
        assert f"thread {bad}" in str(told.value)
        assert y.numpy()[:bad].tolist() == [2.0] * bad
        assert len(BLOCKS) == free
    x.numpy()[bad] = 4.0
    assert launch(5000, [x, y], [], True) is True
    assert y.numpy().tolist() == [2.0] * 5000


@with_vectors
def test_an_index_beyond_the_array_is_told_of_a_launch_of_many_threads() -> None:
    launch, x, y = quick_with_vectors("scale"), kl.ones(5000), kl.zeros(4999)
    with pytest.raises(kl.KernelIndexError, match="index 4999 is out of bounds"):
        launch(5000, [x, 2.0, y], [], True)


def test_launches_of_many_threads_that_have_no_vector_code_run_scalar_code() -> None:
    x, y = kl.array(np.arange(5000), dtype=float), kl.zeros(5000)
    assert not has_vectors(KERNELS["before_by_int64"].program.entry)
    kl.launch(KERNELS["before_by_int64"], 5000, [x, y])
    BETTER.wait()
    kl.launch(KERNELS["before_by_int64"], 5000, [x, y])
    KERNELS["before_by_int64"].source.told.clear()
    y.zero_()
    with pytest.warns(kl.KernelWarning, match="counted from the end"):
        assert quick("before_by_int64")(5000, [x, y], [], True) is True
    assert y.numpy().tolist() == [4999, *range(4999)]


@with_vectors
def test_programs_of_tapes_run_vector_code_without_python(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.linspace(0, 9, 6000)
    x, y = kl.array(numbers, dtype=float, requires_grad=True), kl.zeros(6000, requires_grad=True)
    quick("waves")
    with kl.Tape() as tape:
        kl.launch(KERNELS["waves"], 6000, [x], [y])

    def gradients() -> Any:
        tape.zero()
        tape.backward(grads={y: kl.ones(6000)})
        assert x.grad is not None
        return x.grad.numpy().copy()

    slopes = [gradients() for _ in range(40)]
    assert np.allclose(slopes[0], np.cos(numbers), atol=1e-6)
    assert all(np.array_equal(slopes[0], others) for others in slopes)
    monkeypatch.setattr(kl.config, "deterministic", True)
    slowly = [gradients() for _ in range(40)]
    assert all(np.array_equal(slowly[0], others) for others in slowly)
    assert not np.array_equal(slopes[0], slowly[0])


def test_kernels_get_it_after_some_launches() -> None:
    kernel = kl.compile("def twice(x: array[float], y: array[float]):\n    y[tid()] = 2.0 * x[tid()]")[
        "twice"
    ]
    x, y = kl.ones(2), kl.zeros(2)
    quick("scale")  # so that the native code is there
    for _ in range(100):
        kl.launch(kernel, 2, [x], [y])
    assert kernel.quick is not None and kernel.quick(2, [x], [y], True) is True
    assert y.list() == [2, 2]
