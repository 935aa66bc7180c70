"""What loops keep: save, recompute and checkpoint give the same gradient to the last bit, in other memory."""

import itertools
import re
from collections.abc import Iterator

import numpy as np
import pytest

from kernelab.backend.common import backends
from kernelab.backend.cpu import interpreter
from kernelab.backend.cpu.cpu_backend import CpuBackend
from kernelab.backend.cpu.lanes import LaneStack, Numpy
from kernelab.backend.cuda.nvrtc import compile_to_ptx
from kernelab.codegen.cpp.cuda_target import Cuda
from kernelab.codegen.cpp.emitter import emit
from kernelab.lang.ir import For, Function, Restore, Save, Storage, While, walk
from kernelab.lang.verify import verify
from kernelab.passes.access.affine_forms import counters
from kernelab.passes.ad import primal_replay
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.copying import widen
from kernelab.passes.common.scalarise import scalarise
from tests.strategies import exact
from tests.strategies.arguments import GRID
from tests.support import programs
from tests.support.derivatives import Arguments, active_names, derivatives, gradients, run, wide
from tests.support.lowering import lowered
from tests.support.programs import Point
from tests.test_random_programs import drawn, renamed

STORAGES: tuple[Storage, ...] = ("save", "recompute", "checkpoint")


@pytest.fixture(autouse=True)
def no_loop_is_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(primal_replay, "FEW", -1)


def pulled(function: Function, storage: Storage, arguments: Arguments, grid: tuple[int, ...]) -> Arguments:
    names = active_names(function)
    rng = np.random.default_rng(4)
    seeds = {name: rng.normal(size=np.shape(arguments[name])) for name in names}
    program = vjp(function, names, storage=storage)
    assert program.sites == vjp(function, names).sites
    return gradients(program, grid, arguments, seeds)


def assert_same(function: Function, arguments: Arguments, grid: tuple[int, ...]) -> None:
    saved, *others = (pulled(function, storage, arguments, grid) for storage in STORAGES)
    for other in others:
        for name in saved:
            np.testing.assert_array_equal(saved[name], other[name])


def of_program(text: str, number: int, storage: Storage = "save") -> np.ndarray:
    """The gradient of a random program, all parts in a row."""
    found = programs.pulled(lowered(text, "program"), Point.drawn("apart", number), storage=storage)
    return np.append(found.bars, found.g_bar)


@pytest.mark.parametrize("seed", [11, *(pytest.param(k, marks=pytest.mark.long) for k in (14, 15, 16))])
def test_every_storage_gives_the_gradient_of_random_programs_to_the_last_bit(seed: int) -> None:
    for number, text in enumerate(drawn(4, seed)):
        saved, *others = (of_program(text, number, storage) for storage in STORAGES)
        for other in others:
            np.testing.assert_array_equal(saved, other)


@pytest.mark.long
def test_random_programs_may_choose_for_each_loop() -> None:
    words = itertools.cycle([", adjoint='checkpoint'", ", adjoint='recompute'", "", ", adjoint='save'"])
    for number, text in enumerate(drawn(15, seed=13)):
        chosen = re.sub(r"(range\(.*)\):", lambda head: f"{head[1]}{next(words)}):", text)
        np.testing.assert_array_equal(of_program(chosen, number, "checkpoint"), of_program(text, number))


@pytest.mark.long
def test_machine_code_gives_the_same_gradient_for_every_storage() -> None:
    primals = [lowered(exact(text), "program") for text in drawn(8, seed=12)]
    named = {
        (number, storage): renamed(
            vjp(primal, programs.active(primal), storage=storage).adjoint, f"{storage}_{number}"
        )
        for number, primal in enumerate(primals)
        for storage in STORAGES
    }
    entries = CpuBackend().build([scalarise(program) for program in named.values()])
    for number, primal in enumerate(primals):
        found = []
        for storage in STORAGES:
            program = named[number, storage]
            arguments = programs.complete(primal, program, Point.drawn("apart", number), GRID)
            found.append({name: np.array(value) for name, value in arguments.items()})
            entry = entries[program.name]
            entry(backends.pack(entry.info.layout, GRID, found[-1]))
        for other in found[1:]:
            for name, value in found[0].items():
                np.testing.assert_array_equal(other[name], value)


@pytest.mark.nvrtc
def test_every_storage_compiles_for_cuda() -> None:
    function = lowered(LOOPS["storages within storages"], "k")
    programs = [
        renamed(vjp(function, ["x", "out"], storage=storage).adjoint, storage) for storage in STORAGES
    ]
    text = compile_to_ptx(emit([scalarise(program) for program in programs], Cuda()).text)
    assert text.count(".visible .entry") == len(STORAGES)


RECURRENCE = """
def k(x: array[float], n: array[int], out: array[float]):
    i = tid()
    s = x[i]
    for j in range(n[i]):
        s = sin(s) * x[j % 3] + 0.5
    out[i] = s * s
"""

LOOPS = {
    "a recurrence": RECURRENCE,
    "a while that counts and may leave": """
def k(x: array[float], n: array[int], out: array[float]):
    i = tid()
    s = x[i]
    j = 0
    while j < n[i]:
        s = s * x[j % 3] + 0.3
        j += 2
        if s > 1.0:
            break
    out[i] = s * float(j)
""",
    "a local array that changes": """
def k(x: array[float], n: array[int], out: array[float]):
    i = tid()
    a = zeros(3, float)
    s = x[i]
    for j in range(n[i]):
        a[j % 3] = a[(j + 1) % 3] * s + x[j % 3]
        s = s * 0.5 + sin(a[j % 3])
    out[i] = s + a[0] * a[1]
""",
    "an array that changes in place": """
def k(x: array[float], n: array[int], out: array[float]):
    i = tid()
    for j in range(n[i]):
        if out[i] < 2.0:
            out[i] = out[i] * x[j % 3] + cos(out[i])
""",
    "indices of other widths": """
def k(x: array[float], n: array[int], out: array[float]):
    i = tid()
    s = x[i]
    m = int8(1)
    for j in range(int64(n[i])):
        s = sin(s) * x[j % int64(3)] + 0.1
        m += int8(50)
    for j in range(int8(0), int8(n[i]), int8(2)):
        s = s * x[int(j) % 3] + 0.01 * float(m)
    out[i] = s * s
""",
    "loops in branches of loops": """
def k(x: array[float], n: array[int], out: array[float]):
    i = tid()
    s = x[i]
    for j in range(n[i]):
        if j % 2 == 0:
            t = s
            for m in range(j):
                t = t * x[m % 3] + 0.1
            s = sin(s + t)
        else:
            while s < 1.0:
                s = s + 0.3 * s * s + 0.1
    out[i] = s * s
""",
    "storages within storages": """
def k(x: array[float], n: array[int], out: array[float]):
    i = tid()
    s = x[i]
    for a in range(n[i], adjoint="save"):
        for b in range(n[i], adjoint="checkpoint"):
            s = sin(s) + 0.1
            for c in range(b, adjoint="recompute"):
                s = s * x[c % 3] + 0.2
        for d in range(3, -1, -1, adjoint="recompute"):
            s = s * x[d % 3]
    out[i] = s
""",
}


@pytest.fixture(params=LOOPS.values(), ids=list(LOOPS))
def function(request: pytest.FixtureRequest) -> Function:
    return widen(lowered(request.param, "k"))


TRIPS = np.array([0, 1, 2, 3, 4, 5, 8, 9, 10, 17], np.int32)


def arguments_for(function: Function) -> Arguments:
    """For a thread with each of the numbers of trips."""
    rng = np.random.default_rng(3)
    threads = len(TRIPS)
    given = {"x": rng.uniform(0.3, 0.9, threads), "n": TRIPS, "out": rng.normal(size=threads)}
    return wide(function, given)


def test_every_storage_gives_the_same_gradient_at_any_trip_count(function: Function) -> None:
    assert_same(function, arguments_for(function), TRIPS.shape)


@pytest.mark.parametrize("storage", STORAGES)
def test_every_storage_gives_the_derivative(
    function: Function, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.support.derivatives.vjp", lambda f, names: vjp(f, names, storage=storage))
    found = derivatives(function, TRIPS.shape, arguments_for(function), np.random.default_rng(2))
    assert found.agree(), found


@pytest.mark.parametrize("storage", ["recompute", "checkpoint"])
def test_the_tangent_of_an_adjoint_is_the_same_for_every_storage(storage: Storage) -> None:
    function = widen(lowered(RECURRENCE, "k"))
    arguments, rng, size = arguments_for(function), np.random.default_rng(3), len(TRIPS)
    bars = {"x_bar": np.zeros(size), "out_bar": rng.normal(size=size)}
    dots = {f"{name}_dot": rng.normal(size=size) for name in ("x", "out", "x_bar", "out_bar")}
    found = []
    for chosen in ("save", storage):
        program = jvp(vjp(function, ["x", "out"], storage=chosen).adjoint, ["x", "out", "x_bar", "out_bar"])
        found.append(run(program, TRIPS.shape, {**arguments, **bars, **dots}))
    for name in ("x_bar", "x_bar_dot"):
        np.testing.assert_array_equal(found[0][name], found[1][name])


# ---------------------------------------------------------------------------------------------- memory


@pytest.fixture
def deepest(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many records stood on all stacks of the interpreter at most."""
    depth, found = [0], [0]
    push, pop = LaneStack.push, LaneStack.pop

    def counted_push(self: LaneStack, threads: Numpy, values: list[Numpy]) -> None:
        push(self, threads, values)
        depth[0] += len(threads)
        found[0] = max(found[0], depth[0])

    def counted_pop(self: LaneStack, threads: Numpy) -> list[Numpy]:
        depth[0] -= len(threads)
        return pop(self, threads)

    monkeypatch.setattr(LaneStack, "push", counted_push)
    monkeypatch.setattr(LaneStack, "pop", counted_pop)
    yield found
    assert depth == [0]


def sweep(text: str, trips: int, storage: Storage) -> None:
    function = widen(lowered(text, "k"))
    arguments = {"x": np.full(3, 0.5), "n": np.array([trips], np.int32), "out": np.zeros(3)}
    bars = {"x_bar": np.zeros(3), "out_bar": np.ones(3)}
    interpreter.run(vjp(function, ["x", "out"], storage=storage).adjoint, (1,), {**arguments, **bars})


def test_save_keeps_every_iteration(deepest: list[int]) -> None:
    sweep(RECURRENCE, 2500, "save")
    assert deepest == [2500]


def test_checkpoints_need_room_for_three_times_the_root_of_the_iterations(deepest: list[int]) -> None:
    sweep(RECURRENCE, 2500, "checkpoint")
    assert deepest == [49 + 99]


def test_a_recomputed_loop_is_not_multiplied_by_those_around_it(deepest: list[int]) -> None:
    text = """
def k(x: array[float], n: array[int], out: array[float]):
    s = x[0]
    for a in range(n[0]):
        for b in range(n[0], adjoint="recompute"):
            s = sin(s) * x[1]
    out[0] = s
"""
    sweep(text, 40, "save")
    assert deepest == [39 + 40]


# ---------------------------------------------------------------------------------------------- counters


COUNTING = """
def k(x: array[float], n: int, out: array[float]):
    s = 1.0
    j = 3
    m = int8(0)
    while s < 100.0:
        s = s * x[j % 3] + x[int(m) % 2]
        j += n
        m = m + int8(50)
    out[0] = s
"""


def test_integers_that_count_are_not_saved() -> None:
    adjoint = verify(vjp(lowered(COUNTING, "k"), ["x", "out"]).adjoint)
    (save,) = (stmt for stmt in walk(adjoint.body) if isinstance(stmt, Save))
    assert [atom.type.name for atom in save.atoms] == ["float32"]  # type: ignore[union-attr]


def test_counters_that_wrap_are_recomputed_exactly() -> None:
    function = widen(lowered(COUNTING, "k"))
    given = {"x": np.array([1.1, 1.2, 1.3]), "n": 5, "out": np.zeros(1)}
    found = derivatives(function, (1,), wide(function, given), np.random.default_rng(1))
    assert found.agree(), found


def test_a_count_that_depends_on_the_iteration_is_no_counter() -> None:
    text = """
def k(x: array[float], n: int, out: array[float]):
    s = 1.0
    j = 0
    m = 0
    for i in range(n):
        s = s * x[j % 3]
        j += i
        if s > 1.0:
            m += 1
        s = s * x[m % 3]
    out[0] = s
"""
    (loop,) = (stmt for stmt in walk(lowered(text, "k").body) if isinstance(stmt, For | While))
    assert not counters(loop)


def test_a_plain_sum_keeps_nothing_whatever_its_storage() -> None:
    for storage in STORAGES:
        text = f"""
def k(x: array[float], n: int, out: array[float]):
    s = 0.0
    for i in range(n, adjoint="{storage}"):
        s += 2.0 * x[i]
    out[0] = s
"""
        adjoint = vjp(lowered(text, "k"), ["x", "out"]).adjoint
        assert not [stmt for stmt in walk(adjoint.body) if isinstance(stmt, Save | Restore) and _slots(stmt)]


def _slots(stmt: Save | Restore) -> int:
    return len(stmt.atoms if isinstance(stmt, Save) else stmt.outs)
