"""Kernels as machine code: the same numbers as the interpreter, and errors instead of crashes."""

import copy
import ctypes
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.backend.common.backends import Entry, pack
from kernelab.backend.common.compiler import open_compiler
from kernelab.backend.common.tiered import BETTER
from kernelab.backend.cpu import cpu_backend, interpreter, vector_tier
from kernelab.backend.cpu.cpu_backend import CpuBackend, CpuEntry
from kernelab.codegen.cpp.entry import layout_of
from kernelab.errors import (
    KernelAssertionError,
    KernelIndexError,
    KernelZeroDivisionError,
)
from kernelab.lang.ir import Function
from kernelab.lang.rounding import widened
from kernelab.passes.ad.vjp import Vjp, vjp
from kernelab.passes.common.scalarise import scalarise
from tests.codegen import kernels
from tests.codegen.kernels import CASES
from tests.codegen.writer import Case
from tests.support.lowering import lowered
from tests.support.zoo import ZOO

ROOT = Path(__file__).resolve().parents[2]
BATCH = [scalarise(case.function) for case in CASES]
BATCH += [kernels.appending(), kernels.endless(), kernels.checked(), kernels.backwards()]
"""Everything that these tests run, in one build."""


@pytest.fixture(scope="module", params=["scalar", "vector", "optimised"])
def entries(request: pytest.FixtureRequest) -> Iterator[dict[str, Entry]]:
    """All of them, as small launches run them, and as large ones do."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "optimised":
            compiler = open_compiler()
            optimised = replace(compiler, flags=(*compiler.flags, *vector_tier.OPTIMISED))
            patch.setattr(CpuBackend, "compiler", lambda _: optimised)
        for name in ("FEWEST", "FEWEST_WITH_LOOPS"):
            patch.setattr(vector_tier, name, 1 if request.param == "vector" else 1 << 62)
        patch.setattr(vector_tier, "MOST_STATEMENTS", 0)
        yield CpuBackend().build(BATCH)


def launch(entry: Entry, function: Function, grid: Sequence[int], **arguments: Any) -> None:
    entry(pack(layout_of(function), grid, arguments))


def assert_equal(found: Any, expected: Any, exact: bool, name: str) -> None:
    if not exact:
        tolerance = 1e-5 if np.asarray(expected).dtype.itemsize == 4 else 1e-13
        np.testing.assert_allclose(found, expected, tolerance, tolerance, err_msg=name)
        return
    # Brain floats warn of NaN where they are compared.
    found, expected = widened(found), widened(expected)
    np.testing.assert_array_equal(found, expected, err_msg=name)
    if np.asarray(expected).dtype.kind == "f":
        known = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found)[known], np.signbit(expected)[known], err_msg=name)


# ------------------------------------------------------------------------------------------ results


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.function.name)
def test_machine_code_and_interpreter_agree(case: Case, seed: int, entries: dict[str, Entry]) -> None:
    given = case.draw(np.random.default_rng(seed))
    expected = copy.deepcopy(given)
    launch(entries[case.function.name], case.function, case.grid, **given)
    interpreter.run(case.function, case.grid, expected)
    for name, value in expected.items():
        assert_equal(given[name], value, case.exact, name)


@pytest.mark.parametrize("fewest", [1, 1 << 62], ids=["vector", "scalar"])
def test_the_zoo_computes_the_same_as_machine_code(fewest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FEWEST", "FEWEST_WITH_LOOPS"):
        monkeypatch.setattr(vector_tier, name, fewest)
    monkeypatch.setattr(vector_tier, "MOST_STATEMENTS", 0)
    programs = {animal.name: lowered(animal.text, animal.name) for animal in ZOO}
    built = CpuBackend().build([scalarise(program) for program in programs.values()])
    for animal in ZOO:
        given = animal.draw(np.random.default_rng(2))
        expected = copy.deepcopy(given)
        launch(built[animal.name], programs[animal.name], animal.grid, **given)
        interpreter.run(programs[animal.name], animal.grid, expected)
        for name, value in expected.items():
            assert_equal(given[name], value, False, f"{animal.name}: {name}")


@pytest.mark.skipif(not open_compiler().is_gcc, reason="code is compiled once here")
def test_large_launches_without_vector_code_run_optimised_code_once_it_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n = 4096
    for name in ("FEWEST", "FEWEST_WITH_LOOPS"):
        monkeypatch.setattr(vector_tier, name, n)
    kernel = kl.compile(
        "def rows(of: array2d[int], x: array[float], y: array[float]):\n    i = tid()\n"
        "    for k in range(8):\n        y[i] += x[of[i, k]] * sin(float(k))"
    )["rows"]
    rng = np.random.default_rng(3)
    of, x = kl.array(rng.integers(0, n, (n, 8)), dtype=int), kl.array(rng.random(n), dtype=float)
    entry, found = kernel.program.entry.on_cpu(), []
    codes = []
    for _ in range(3):
        y = kl.zeros(n)
        kl.launch(kernel, n, [of, x, y])
        found.append(y.numpy())
        codes.append(entry.code().entry)
        BETTER.wait()
    assert not entry.has_vectors
    assert codes[0] != codes[-1]
    np.testing.assert_array_equal(found[0], found[-1])


ADJOINTS = (
    kernels.saxpy,
    kernels.newton,
    kernels.vectors,
    kernels.matrices,
    kernels.three_exits,
    kernels.mathematics,
)


def test_adjoints_agree_too() -> None:
    cases = [make() for make in ADJOINTS]
    adjoints = [vjp(case.function, _floats(case)).adjoint for case in cases]
    built = CpuBackend().build([scalarise(adjoint) for adjoint in adjoints])
    for case, adjoint in zip(cases, adjoints, strict=True):
        rng = np.random.default_rng(5)
        given = case.draw(rng)
        for param in adjoint.params[len(given) :]:
            primal = np.asarray(given[param.hint.removesuffix("_bar")])
            shape = (
                primal.shape if primal.ndim and param.type.ndim == _ndim(case, param) else (1, *primal.shape)
            )
            given[param.hint] = rng.uniform(-1, 1, shape).astype(_dtype(param))
        expected = copy.deepcopy(given)
        launch(built[adjoint.name], adjoint, case.grid, **given)
        interpreter.run(adjoint, case.grid, expected)
        for name, value in expected.items():
            assert_equal(given[name], value, False, f"{case.function.name}: {name}")


def _floats(case: Case) -> list[str]:
    given = case.draw(np.random.default_rng(0))
    return [name for name, value in given.items() if np.asarray(value).dtype.kind == "f"]


def _ndim(case: Case, param: Any) -> Any:
    return getattr(case.function.param(param.hint.removesuffix("_bar")).type, "ndim", None)


def _dtype(param: Any) -> Any:
    return getattr(param.type.elem, "scalar", param.type.elem).dtype


def test_an_adjoint_reads_what_its_primal_appended() -> None:
    case = kernels.counters()
    program = vjp(case.function, ["x", "y"])
    built = CpuBackend().build([scalarise(program.primal), scalarise(program.adjoint)])
    found = _through(case, program, built["counters"], built["counters_adjoint"])
    expected = _through(case, program, interpreter.entry(program.primal), interpreter.entry(program.adjoint))
    np.testing.assert_array_equal(found, expected)
    assert np.count_nonzero(found) == np.count_nonzero(case.draw(np.random.default_rng(0))["x"] > 0)


def _through(case: Case, program: Vjp, primal: Entry, adjoint: Entry) -> Any:
    """The cotangent of x where that of y[k] is k + 1."""
    given = case.draw(np.random.default_rng(0))
    table, starts = np.zeros(3, np.int64), np.zeros(12, np.int64)
    launch(primal, program.primal, (12,), **given, residual_1=(table, starts))
    kept = np.frombuffer(ctypes.string_at(int(table[0]), 4 * int(table[1])), np.int32).copy()
    ctypes.CDLL(None).free(ctypes.c_void_p(int(table[0])))
    given |= {"x_bar": np.zeros(12, np.float32), "y_bar": np.arange(1, 13, dtype=np.float32)}
    launch(adjoint, program.adjoint, (12,), **given, residual_1=kept, starts_1=starts)
    return given["x_bar"]


def test_what_is_appended_stands_in_order_with_the_start_of_each_thread(entries: dict[str, Entry]) -> None:
    x = np.arange(80, dtype=np.float32)
    function = kernels.appending()
    kept, starts = np.zeros(3, np.int64), np.full(80, -1, np.int64)
    flags, flag_starts = np.zeros(3, np.int64), np.full(80, -1, np.int64)
    launch(entries["appending"], function, (80,), x=x, kept=(kept, starts), flags=(flags, flag_starts))
    address, length, capacity = kept.tolist()
    assert length == sum(range(80)) <= capacity
    values = np.frombuffer(ctypes.string_at(address, 4 * length), np.float32)
    np.testing.assert_array_equal(values, np.concatenate([x[:i] for i in range(80)]))
    np.testing.assert_array_equal(starts, np.cumsum(np.arange(80)) - np.arange(80))
    assert ctypes.string_at(int(flags[0]), 80) == bytes([0, 0] + [1] * 78)
    for handle in (kept, flags):
        ctypes.CDLL(None).free(ctypes.c_void_p(int(handle[0])))


def test_halves_need_no_machine_that_knows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    case, compiler = kernels.roundings(), open_compiler()
    plain = replace(compiler, flags=tuple(flag for flag in compiler.flags if flag != "-mf16c"))
    monkeypatch.setattr(CpuBackend, "compiler", lambda _: plain)
    entry = CpuBackend().build([case.function])[case.function.name]
    given = case.draw(np.random.default_rng(0))
    expected = copy.deepcopy(given)
    launch(entry, case.function, case.grid, **given)
    interpreter.run(case.function, case.grid, expected)
    for name, value in expected.items():
        assert_equal(given[name], value, True, name)


def test_strides_are_followed_in_any_direction(entries: dict[str, Entry]) -> None:
    x, y = np.arange(10, dtype=np.float32), np.zeros(20, np.float32)
    launch(entries["saxpy"], kernels.saxpy().function, (10,), x=x[::-1], y=y[::2], a=2.0)
    np.testing.assert_array_equal(y[::2], 2 * x[::-1])
    np.testing.assert_array_equal(y[1::2], 0)


def test_a_grid_without_threads_runs_nothing(entries: dict[str, Entry]) -> None:
    y = np.ones(3, np.float32)
    launch(entries["saxpy"], kernels.saxpy().function, (0,), x=y[:0], y=y[:0], a=2.0)
    launch(entries["checked"], kernels.checked(), (3, 0), x=y, limit=0.0)
    np.testing.assert_array_equal(y, 1)


# ------------------------------------------------------------------------------------------ errors


def test_an_index_outside_an_array_is_an_error_with_its_place(entries: dict[str, Entry]) -> None:
    x, y = np.ones(10, np.float32), np.zeros(12, np.float32)
    with pytest.raises(KernelIndexError) as caught:
        launch(entries["saxpy"], kernels.saxpy().function, (12,), x=x, y=y, a=2.0)
    text = str(caught.value)
    assert "index 10 is out of bounds for axis 0 of array `x` with size 10; in thread 10" in text
    assert "Cell In[3], line 3" in text
    assert "hint: " in text


def test_after_an_error_no_thread_runs_on(entries: dict[str, Entry]) -> None:
    x, y = np.ones(10, np.float32), np.zeros(12, np.float32)
    with pytest.raises(KernelIndexError):
        launch(entries["saxpy"], kernels.saxpy().function, (12,), x=x, y=y, a=2.0)
    np.testing.assert_array_equal(y, [2.0] * 10 + [0.0] * 2)


def test_an_index_too_far_below_zero_is_reported_as_it_was_written(entries: dict[str, Entry]) -> None:
    y = np.zeros(3, np.float32)
    with pytest.raises(
        KernelIndexError, match=r"index -4 is out of bounds for axis 0 .* size 3; in thread 3"
    ):
        launch(entries["backwards"], kernels.backwards(), (4,), y=y)
    np.testing.assert_array_equal(y, [2, 1, 0])


def test_both_backends_say_the_same_of_an_error(entries: dict[str, Entry]) -> None:
    function = kernels.transpose().function
    arguments = {"x": np.ones((3, 4)), "y": np.zeros((2, 3))}
    messages = []
    for run in (entries["transpose"], interpreter.entry(function)):
        with pytest.raises(KernelIndexError) as caught:
            launch(run, function, (3, 4), **arguments)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "in thread (0, 2)" in messages[0]


def test_an_assertion_ends_the_launch_with_its_message(entries: dict[str, Entry]) -> None:
    x = np.array([1, 2, 9, 1], np.float32)
    with pytest.raises(KernelAssertionError, match=r"assertion failed: x is too large; in thread \(2, 0\)"):
        launch(entries["checked"], kernels.checked(), (4, 1), x=x, limit=5.0)


def test_an_integer_divided_by_zero_is_an_error(entries: dict[str, Entry]) -> None:
    case = kernels.division()
    given = case.draw(np.random.default_rng(0))
    given["b"][7] = 0
    with pytest.raises(KernelZeroDivisionError, match="integer division by zero; in thread 7"):
        launch(entries["division"], case.function, case.grid, **given)


def test_a_launch_after_an_error_is_as_good_as_new(entries: dict[str, Entry]) -> None:
    test_an_assertion_ends_the_launch_with_its_message(entries)
    x = np.array([1, 2], np.float32)
    launch(entries["checked"], kernels.checked(), (2, 1), x=x, limit=5.0)
    np.testing.assert_array_equal(x, 0)


def test_values_that_do_not_fit_into_memory_are_an_error_not_a_crash() -> None:
    # In a process of its own, whose memory is limited to little more than it has already.
    text = """
        import resource
        import numpy as np
        from kernelab.backend.cpu.cpu_backend import CpuBackend, CpuEntry
        from kernelab.backend.common.backends import pack
        from kernelab.codegen.cpp.entry import layout_of
        from kernelab.errors import KernelError
        from tests.backend.test_cpu import BATCH
        from tests.codegen import kernels

        function = kernels.saving().function
        entry = CpuBackend().build(BATCH)["saving"]
        arguments = {"x": np.zeros(3), "y": np.zeros(3), "n": 2**30}
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**27, -1))
        try:
            entry(pack(layout_of(function), (3,), arguments))
        except KernelError as error:
            print(error)
    """
    done = run_python(text)
    assert "`saving` ran out of memory" in done.stdout, done.stderr


# ------------------------------------------------------------------------------------------ interruption


def run_python(text: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", textwrap.dedent(text)]
    return subprocess.run(
        command, cwd=ROOT, env=_environment(), capture_output=True, text=True, timeout=120, check=False
    )


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


ENDLESS = """
import signal
import numpy as np
from kernelab.backend.cpu import cpu_backend
from kernelab.backend.cpu.cpu_backend import CpuBackend, CpuEntry
from kernelab.backend.common.backends import pack
from kernelab.codegen.cpp.entry import layout_of
from tests.backend.test_cpu import BATCH
from tests.codegen import kernels

signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores it
entries = CpuBackend().build(BATCH)
y = np.zeros(4, np.float32)
for attempt in range(2):
    print("running", flush=True)
    try:
        entries["endless"](pack(layout_of(kernels.endless()), (4,), {"y": y}))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
x = np.ones(4, np.float32)
entries["saxpy"](pack(layout_of(kernels.saxpy().function), (4,), {"x": x, "y": y, "a": 3.0}))
print(y.tolist())
"""


@pytest.fixture
def endless(entries: dict[str, Entry]) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS], cwd=ROOT, env=_environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    yield process
    process.kill()
    process.communicate()


def test_an_endless_kernel_can_be_interrupted_and_python_goes_on(endless: "subprocess.Popen[str]") -> None:
    assert endless.stdout is not None
    for _ in range(2):
        assert endless.stdout.readline() == "running\n"
        # Let it enter the kernel: only there is nothing but the poll to notice the signal.
        with pytest.raises(subprocess.TimeoutExpired):
            endless.wait(0.3)
        endless.send_signal(signal.SIGINT)
        assert endless.stdout.readline() == "interrupted\n"
    # Not by `communicate`: what was read ahead of the last line would be lost.
    assert endless.stdout.read() == "[3.0, 3.0, 3.0, 3.0]\n"
    assert endless.stderr is not None
    assert endless.stderr.read() == ""


def test_what_a_signal_handler_raises_comes_out_of_the_launch(entries: dict[str, Entry]) -> None:
    class Alarm(BaseException):
        pass

    def ring(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(Alarm):
            launch(entries["endless"], kernels.endless(), (1,), y=np.zeros(1, np.float32))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_launches_of_a_signal_handler_leave_the_launch_that_they_interrupt_alone(
    entries: dict[str, Entry],
) -> None:
    class Enough(BaseException):
        pass

    errors: list[KernelAssertionError] = []

    def ring(*_: object) -> None:
        one = np.ones(1, np.float32)
        launch(entries["saxpy"], kernels.saxpy().function, (1,), x=one, y=one.copy(), a=2.0)
        with pytest.raises(KernelAssertionError) as caught:
            launch(entries["checked"], kernels.checked(), (1, 1), x=np.full(1, 9, np.float32), limit=3.5)
        errors.append(caught.value)
        if len(errors) == 3:
            raise Enough

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        with pytest.raises(Enough):
            launch(entries["endless"], kernels.endless(), (1,), y=np.zeros(1, np.float32))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(errors) == 3


# ------------------------------------------------------------------------------------------ threads


def test_threads_launch_at_the_same_time_without_disturbing_each_other(entries: dict[str, Entry]) -> None:
    wrong: list[int] = []
    function = kernels.checked()

    def work(number: int) -> None:
        for _ in range(50):
            x = np.full(64, number, np.float32)
            try:
                launch(entries["checked"], function, (64, 1), x=x, limit=3.5)
            except KernelAssertionError:
                wrong.extend([number] if number < 4 or x.any() != 1 else [])
            else:
                wrong.extend([number] if number >= 4 or x.any() else [])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_thread_builds_while_another_launches() -> None:
    built: dict[str, Entry] = {}
    backend = CpuBackend()
    thread = threading.Thread(target=lambda: built.update(backend.build([kernels.saxpy().function])))
    thread.start()
    launched = backend.build(BATCH)["backwards"]
    launch(launched, kernels.backwards(), (3,), y=np.zeros(3, np.float32))
    thread.join()
    assert list(built) == ["saxpy"]


def test_an_exception_that_is_set_in_another_thread_ends_its_launch(entries: dict[str, Entry]) -> None:
    raised: list[BaseException] = []

    def work() -> None:
        try:
            launch(entries["endless"], kernels.endless(), (1,), y=np.zeros(1, np.float32))
        except BaseException as error:  # noqa: BLE001  it is compared below
            raised.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert thread.ident is not None
    inside = {CpuEntry.__call__.__code__, CpuEntry._run_vectors.__code__, cpu_backend._Block.run.__code__}
    while sys._current_frames()[thread.ident].f_code not in inside:
        threading.Event().wait(0.001)
    set_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    assert set_in(ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt)) == 1
    thread.join(60)
    assert [isinstance(error, KeyboardInterrupt) for error in raised] == [True]


def test_a_launch_lets_other_threads_of_python_run(entries: dict[str, Entry]) -> None:
    def stop(process: int) -> None:
        signal.pthread_kill(process, signal.SIGALRM)

    class Alarm(Exception):
        pass

    def ring(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    # The timer's thread must get its turn while the kernel, which never ends, runs in this one.
    timer = threading.Timer(0.05, stop, [threading.main_thread().ident])
    timer.start()
    try:
        with pytest.raises(Alarm):
            launch(entries["endless"], kernels.endless(), (1,), y=np.zeros(1, np.float32))
    finally:
        timer.join()
        signal.signal(signal.SIGALRM, before)


def test_a_forked_child_launches_what_its_parent_built(entries: dict[str, Entry]) -> None:
    text = """
        import os
        import numpy as np
        from kernelab.backend.cpu.cpu_backend import CpuBackend, CpuEntry
        from kernelab.backend.common.backends import pack
        from kernelab.codegen.cpp.entry import layout_of
        from tests.backend.test_cpu import BATCH
        from tests.codegen import kernels

        entry = CpuBackend().build(BATCH)["saxpy"]
        x, y = np.ones(4, np.float32), np.zeros(4, np.float32)
        args = pack(layout_of(kernels.saxpy().function), (4,), {"x": x, "y": y, "a": 3.0})
        entry(args)
        child = os.fork()
        entry(args)
        if child == 0:
            os._exit(int(y[0]))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), y[0])
    """
    assert run_python(text).stdout == "6 6.0\n"


DROPPED = (
    "def k(x: array[float], y: array[float]):\n    i = tid()\n    y[i] = sin(x[i]) * 1.375 + cos(x[i])\n"
)


@pytest.mark.parametrize("count", [3, 10_000])
def test_libraries_are_unloaded_with_the_kernels_that_they_were_built_for(
    empty_cache: Path, count: int
) -> None:
    def loaded() -> int:
        gc.collect()
        return Path("/proc/self/maps").read_text().count(str(empty_cache))

    before = loaded()
    kernel = kl.compile(DROPPED)["k"]
    x, y = kl.ones(count, requires_grad=True), kl.zeros(count, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernel, count, [x], [y])
    tape.backward(grads={y: kl.ones(count)})
    assert loaded() > before
    del tape, kernel
    x.grad.zero_()  # arrays may outlive the kernels that wrote them
    del x, y
    assert loaded() == before


def test_a_function_keeps_its_library_loaded(empty_cache: Path) -> None:
    run = CpuBackend().build([kernels.saxpy().function])["saxpy"]._run
    gc.collect()
    assert str(empty_cache) in Path("/proc/self/maps").read_text()
    del run
    gc.collect()
    assert str(empty_cache) not in Path("/proc/self/maps").read_text()
