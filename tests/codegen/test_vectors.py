"""Vector code computes what scalar code does: the same bits but for sums and mathematics, the same errors."""

import copy
import ctypes
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.backend.common.backends import pack
from kernelab.backend.common.build_cache import Cache
from kernelab.backend.common.compiler import Compiler, open_compiler, processor_features
from kernelab.backend.common.tiered import AHEAD, BETTER
from kernelab.backend.cpu import cpu_backend, vector_tier
from kernelab.backend.cpu.cpu_backend import CpuBackend
from kernelab.backend.cpu.vector_tier import (
    VectorTier,
    build,
    gives_the_same_bits,
    lanes_of,
    widths_of,
)
from kernelab.codegen.cpp.entry import CODE, STATUS_FIELDS, Unit, layout_of
from kernelab.codegen.vectors import vector_emitter
from kernelab.codegen.vectors.vector_emitter import operations_an_element
from kernelab.codegen.vectors.vector_operations import FUNCTIONS, Lanes
from kernelab.codegen.vectors.vector_places import LONG, is_long
from kernelab.codegen.vectors.vector_values import Refused
from kernelab.lang import ops
from kernelab.lang.ir import Block, Function, Let, Load, Stmt, Store, Var, walk
from kernelab.lang.ops import Op
from kernelab.lang.types import Array, Scalar, int8, int32, uint16
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.scalarise import scalarise
from tests.strategies import exact
from tests.strategies.kernels import plain_programs
from tests.support.lowering import lowered
from tests.support.sanitized import drawn, vector_arguments

WIDTHS = widths_of(processor_features()) if open_compiler().is_gcc else ()
pytestmark = [
    pytest.mark.skipif(not WIDTHS, reason="no vectors that this compiler makes use of"),
]


KINDS = [lanes for width in WIDTHS for lanes in (lanes_of(width), lanes_of(width // 2, doubles=True))]


def kind_of(lanes: Lanes) -> str:
    return f"{lanes.width} of float{64 if lanes.doubles else 32}"


def run_vectors(function: Function, lanes: Lanes, grid: tuple[int, ...], arguments: dict[str, Any]) -> None:
    """Run the vector code of a scalarised function on all of a grid; raises Refused."""
    run = build(function, lanes, Cache(), open_compiler())
    status = (ctypes.c_longlong * STATUS_FIELDS)()
    assert run(pack(layout_of(function), grid, arguments), ctypes.byref(status)) >= 0 and not status[CODE]


# ------------------------------------------------------------------------------------------ random programs


@pytest.mark.long
@pytest.mark.parametrize("lanes", KINDS, ids=kind_of)
def test_random_programs_and_their_adjoints_compute_what_scalar_code_does(lanes: Lanes) -> None:
    width, dtype = lanes.width, "float64" if lanes.doubles else "float32"
    texts = [exact(text).replace("float64", dtype) for text in drawn(plain_programs(), 60, seed=1)]
    primals = [lowered(text, "program") for text in texts]
    adjoints = [vjp(primal, ["x", "a", "out"], []).adjoint for primal in primals]
    tried = {"primal": 0, "adjoint": 0}
    for number, pair in enumerate(zip(primals, adjoints, strict=True)):
        for kind, function in zip(tried, map(scalarise, pair), strict=True):
            if function.linear is not None:  # it reads what its primal has kept, and stays scalar
                continue
            threads = 3 * width + number % width  # whole groups, and tails of every length
            expected = vector_arguments(function, threads, number, dtype)
            found = copy.deepcopy(expected)
            try:
                run_vectors(function, lanes, (threads,), found)
            except Refused:
                continue
            tried[kind] += 1
            entry = CpuBackend().build([function])[function.name]
            entry(pack(layout_of(function), (threads,), expected))
            for name, values in expected.items():
                if kind == "primal" or gives_the_same_bits(function):
                    np.testing.assert_array_equal(found[name], values, err_msg=name)
                else:
                    size = np.abs(values[np.isfinite(values)]).max(initial=0.0)
                    np.testing.assert_allclose(found[name], values, 1e-4, 1e-5 * size, err_msg=name)
    assert tried["primal"] > 20 and tried["adjoint"] > 10, tried


# ------------------------------------------------------------------------------------------ launches


@pytest.fixture
def vectorised(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether each large launch of the test began with vector code, whether or not that is faster."""
    monkeypatch.setattr(vector_tier, "FEWEST_OPERATIONS", dict.fromkeys(vector_tier.FEWEST_OPERATIONS, 0))
    monkeypatch.setattr(vector_tier, "MOST_STATEMENTS", 0)
    kl.config.threads = 1  # where a thread fails, other cores may have changed more
    seen: list[bool] = []
    ask = VectorTier.run

    def asked(self: VectorTier, threads: int | None = None) -> Any:
        run = ask(self, threads)
        seen.append(run is not None)
        return run

    monkeypatch.setattr(VectorTier, "run", asked)
    yield seen
    kl.config.vector_code, kl.config.threads = True, None


N = 5000
"""Threads of launches that run vector code, and end with a part of a group."""

KERNELS = """
def gathered(x: array[float], of: array[int], y: array[float]):
    i = tid()
    y[i] = 2.0 * x[of[i]]

def checked(x: array[float], y: array[float]):
    i = tid()
    v = x[i]
    assert v < 10.0, "too large"
    y[i] = v

def shifted(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i - 1] + x[i]

def guarded(x: array[float], y: array[float], z: array[float]):
    i = tid()
    if i < x.shape[0]:
        y[i] = x[i] + 1.0
    else:
        z[i] = 3.0

def late(x: array[float], of: array[int], y: array[float], z: array[float]):
    i = tid()
    y[i] = x[i]
    z[i] = x[i + 1]

def remainder(a: array[int], b: array[int], c: array[int]):
    i = tid()
    if b[i] != 0:
        c[i] = a[i] // b[i] + a[i] % b[i]

def newton(x: array[float], y: array[float]):
    i = tid()
    v = x[i]
    r = v
    while abs(r * r - v) > 1.0e-4 * v:
        r = 0.5 * (r + v / r)
    y[i] = r

def powers(x: array[float], n: array[int], y: array[float]):
    i = tid()
    v = 1.0
    for k in range(n[i]):
        if x[i] > 0.5:
            v = v * x[i] + 0.1
        else:
            v = v - x[i]
        if v > 4.0:
            break
    y[i] = v

def table(x: array2d[float], y: array2d[float]):
    i, j = tid()
    y[i, j] = x[j, i] + x[i, 0]

def bins(of: array[int], x: array[float], s: array[float]):
    i = tid()
    s[of[i]] += x[i]

def whole(x: array[float], s: array[float]):
    i = tid()
    s[0] += x[i]

def sines(x: array[float], y: array[float]):
    i = tid()
    y[i] = sin(x[i])

def last(x: array[float], y: array[float]):
    i = tid()
    y[1] = x[i]

def structs(x: array[vec3], y: array[vec3]):
    i = tid()
    y[i] = x[i] + vec3(1.0, 2.0, 3.0)

def edges(x: array2d[float], y: array2d[float]):
    i, j = tid()
    v = x[i, j]
    if j >= 2 and i > 0:
        v += x[i - 1, j - 2]
        if not (j + 3 >= x.shape[1]):
            v = v * x[i, j + 3]
    else:
        y[i, j] = 4.0
    y[i, j] += v

def beyond(x: array[float], y: array[float]):
    i = tid()
    if i >= 20:
        y[i] = x[i + 1]

def one_too_far(x: array[float], y: array[float]):
    i = tid()
    if i > 0 and not (i >= x.shape[0] - 1):
        y[i] = x[i - 2] + x[i + 1]

def inside(x: array[float], shift: int, low: int, high: int, y: array[float]):
    i = tid()
    if i > low and i + shift > low and not (i >= high):
        y[i] = x[i - 1] + x[i + 1]
    else:
        y[i] = 3.0

def window(x: array[float], size: int, y: array[float], z: array[float]):
    i = tid()
    s = float(0.0)
    for k in range(size):
        j = i + k - 3
        if j >= 0 and j < x.shape[0]:
            s += x[j]
            z[i] += x[i] * 0.5
        else:
            z[i] -= 1.0
            s = s * 0.25
    y[i] = s

def window_of_some(x: array[float], size: int, y: array[float], z: array[float]):
    i = tid()
    s = float(0.0)
    if x[i] > 0.5:
        for k in range(size):
            if i + k < x.shape[0]:
                s += x[i + k]
                z[i] += 1.0
    y[i] = s

def following(x: array[float], y: array[float]):
    i = tid()
    y[i] = 2.0 * x[i + 1]

def around(x: array2d[float], shift: int, y: array2d[float]):
    i, j = tid()
    y[i, j] = 2.0 * x[i - 1, j + shift] + x[i, j] * x[i + shift, j - 2]

def further(x: array[float], y: array[float]):
    i = tid()
    if i < y.shape[0] - 3:
        y[i] = x[i + 3]

def pixels(x: array2d[uint8], gain: array[int16], y: array2d[uint8], z: array2d[int8]):
    i, j = tid()
    v = float(x[i, j]) * 0.5 + float(gain[i])
    y[i, j] = uint8(v + 20.0)
    z[i, j] = int8(x[i, j]) + z[i, j]
    if x[i, j] > uint8(100):
        y[i, j] = x[i, j] - uint8(200)

def ring(x: array[float], shift: int, n: int, y: array[float]):
    i = tid()
    y[i] = x[(i + shift) % n] + float((i + shift) // n)

def rings(x: array[float], shift: int, n: int, y: array[float]):
    i = tid()
    for k in range(3):
        y[i] = y[i] * 0.5 + x[(i + k + shift) % n]
"""


@pytest.fixture(scope="module")
def kernels() -> dict[str, kl.Kernel]:
    return kl.compile(KERNELS)


@pytest.fixture(scope="module")
def kernels_of_float64() -> dict[str, kl.Kernel]:
    text = KERNELS.replace("v = 1.0", "v = float64(1.0)").replace("vec3", "vec3d")
    return kl.compile(re.sub(r"\bfloat\b", "float64", text))


def in_float64(argument: Any) -> Any:
    """An argument of a launch with the same values; arrays of float32 become arrays of float64."""
    if not isinstance(argument, kl.array) or argument.dtype not in (kl.float32, kl.vec3):
        return argument
    dtype = kl.vec3d if argument.dtype == kl.vec3 else kl.float64
    return kl.array(argument.numpy().astype(np.float64), dtype=dtype)


def reals(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(0.01, 1.0, count).astype(np.float32)


def ints(count: int, low: int, high: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(low, high, count).astype(np.int32)


def both(kernel: kl.Kernel, dim: Any, make: Callable[[], list[Any]]) -> tuple[list[Any], list[Any]]:
    """What a launch leaves in its arguments, and its error, by vector code and by scalar code."""
    found: list[list[Any]] = []
    for is_on in (True, False):
        kl.config.vector_code = is_on
        arguments, told = make(), ""
        try:
            kl.launch(kernel, dim, arguments)
        except kl.KernelError as error:
            told = str(error)
        found.append([*(each.numpy() for each in arguments if hasattr(each, "numpy")), told])
    return found[0], found[1]


def agree(kernel: kl.Kernel, dim: Any, make: Callable[[], list[Any]], seen: list[bool]) -> str:
    """That both leave the same bits and the same error; returns the error."""
    seen.clear()
    with_vectors, scalar = both(kernel, dim, make)
    assert seen == [True, False], "the first launch was to run vector code"
    for one, other in zip(with_vectors, scalar, strict=True):
        np.testing.assert_array_equal(one, other)
    return str(scalar[-1])


def launches() -> dict[str, tuple[Any, Callable[[], list[Any]], str]]:
    """For each kernel a launch, and words of the error that it ends with."""
    bad, large = ints(N, 0, N), reals(N)
    bad[4321] = N
    large[1234] = 11.0
    array, zeros = kl.array, kl.zeros
    return {
        "gathered": (N, lambda: [array(reals(N)), array(bad), zeros(N)], f"index {N} is out of bounds"),
        "checked": (N, lambda: [array(large), zeros(N)], "too large; in thread 1234"),
        "shifted": (N, lambda: [array(reals(N)), zeros(N)], ""),
        "guarded": (N, lambda: [array(reals(N - 30)), zeros(N - 30), zeros(N)], ""),
        "late": (N, lambda: [array(reals(N)), array(bad), zeros(N), zeros(N)], f"in thread {N - 1}"),
        "remainder": (N, lambda: [array(ints(N, -9, 9)), array(ints(N, -3, 4, 1)), zeros(N, int)], ""),
        "newton": (N, lambda: [array(reals(N)), zeros(N)], ""),
        "powers": (N, lambda: [array(reals(N)), array(ints(N, 0, 9)), zeros(N)], ""),
        "table": ((71, 71), lambda: [array(reals(71 * 71).reshape(71, 71)), zeros((71, 71))], ""),
        "bins": (N, lambda: [array(ints(N, -5, 40)), array(reals(N)), zeros(40)], ""),
        "last": (N, lambda: [array(reals(N)), zeros(3)], ""),
        "edges": ((71, 71), lambda: [array(reals(71 * 71).reshape(71, 71)), zeros((71, 71))], ""),
        "one_too_far": (N, lambda: [array(reals(N)), zeros(N)], ""),
        "further": (N, lambda: [array(reals(N - 1)), zeros(N)], f"index {N - 1} is out of bounds"),
        "window": (N, lambda: [array(reals(N)), 8, zeros(N), zeros(N)], ""),
        "window_of_some": (N, lambda: [array(reals(N)), 8, zeros(N), zeros(N)], ""),
        "around": (
            (70, 71),
            lambda: [array(reals(71 * 74).reshape(71, 74)), 1, zeros((70, 71))],
            "",
        ),
        "around, too far": (
            (70, 71),
            lambda: [array(reals(71 * 71).reshape(71, 71)), 1, zeros((70, 71))],
            "index 71 is out of bounds for axis 1",
        ),
        "following": (5120, lambda: [array(reals(5120)), zeros(5120)], "index 5120 is out of bounds"),
        "beyond": (N, lambda: [array(reals(N)), zeros(N)], f"index {N} is out of bounds"),
        "pixels": (
            (71, 71),
            lambda: [
                array(ints(71 * 71, 0, 256).astype(np.uint8).reshape(71, 71)),
                array(ints(71, -300, 300).astype(np.int16)),
                zeros((71, 71), kl.uint8),
                array(ints(71 * 71, -128, 128).astype(np.int8).reshape(71, 71)),
            ],
            "",
        ),
        "structs": (
            N,
            lambda: [array(reals(3 * N).reshape(N, 3), dtype=kl.vec3), zeros(N, kl.vec3)],
            "",
        ),
    }


@pytest.mark.parametrize("name", launches())
def test_launches_leave_the_same_bits_and_errors(
    name: str, kernels: dict[str, kl.Kernel], vectorised: list[bool]
) -> None:
    dim, make, words = launches()[name]
    told = agree(kernels[name.partition(",")[0]], dim, make, vectorised)
    assert (words in told) and bool(words) == bool(told), told


@pytest.mark.parametrize("name", launches())
def test_launches_over_float64_do(
    name: str, kernels_of_float64: dict[str, kl.Kernel], vectorised: list[bool]
) -> None:
    dim, make, words = launches()[name]
    kernel = kernels_of_float64[name.partition(",")[0]]
    told = agree(kernel, dim, lambda: [*map(in_float64, make())], vectorised)
    assert (words in told) and bool(words) == bool(told), told


SIDE_BY_SIDE = """
def turned(x: array2d[vec3], a: array[vec2], b: array2d[vec4], y: array2d[vec3]):
    i, j = tid()
    u = x[i, j]
    w = b[i, j]
    s = a[j]
    if s[0] > 0.5:
        y[i, j] = vec3(u[2], u[0], u[1]) * s[1]
    else:
        y[i, j] += u * w[3]
    v = y[i, j]
    y[i, j][1] = v[0] + w[0]
    b[i, j] = vec4(w[1], w[2], w[3], s[0])
    b[i, j][2] = s[1]
    x[i, j][1] = s[0]
    x[i, j][0] = w[3]

def spun(x: array2d[vec3], a: array[vec2], b: array2d[vec4], y: array2d[vec3]):
    i, j = tid()
    q = b[i, j]
    y[i, j] += quat_rotate(quat(q[0], q[1], q[2], q[3]), x[i, j]) * a[j][0]
    if j % 3 != 0:
        y[i, j] -= x[i, j]
        b[i, j] += q * a[j][1]

def turned_once(x: array2d[vec3], a: array[vec2], b: array2d[vec4], y: array2d[vec3]):
    i, j = tid()
    u = x[i, j]
    if a[j][0] > 0.5:
        y[i, j] = vec3(u[2], u[0], u[1]) * b[i, j][1]
    else:
        y[i, j] = u * a[j][1]

def spun_once(x: array2d[vec3], a: array[vec2], b: array2d[vec4], y: array2d[vec3]):
    i, j = tid()
    q = b[i, j]
    y[i, j] = quat_rotate(quat(q[0], q[1], q[2], q[3]), x[i, j])

def shifted(x: array2d[vec3], a: array[vec2], b: array2d[vec4], y: array2d[vec3]):
    i, j = tid()
    for k in range(3):
        y[i, j] = y[i, j] * 0.5 + x[i, j + k] * a[j + 1][0]
"""


def side_by_side(d: str, begin: int, step: int) -> tuple[list[Any], list[Any]]:
    """Arrays of vectors, and views of them for a launch of 70 by 77 threads; with "d" of float64."""
    given = []
    for seed, components in enumerate((3, 2, 4, 3)):
        shape = (70, 170, components)[components == 2 :]
        values = reals(int(np.prod(shape)), seed).reshape(shape)
        given.append(kl.array(values, dtype=getattr(kl, f"vec{components}{d}"), requires_grad=True))
    return given, [each[..., begin::step] for each in given]


@pytest.mark.parametrize("name", ["turned", "spun", "shifted"])
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("begin", [0, 1])
@pytest.mark.parametrize("d", ["", "d"])
def test_vectors_side_by_side_are_the_same(
    name: str, step: int, begin: int, d: str, vectorised: list[bool]
) -> None:
    """Those of arrays with a step are left to scalar code."""
    kernel, found = kl.compile(re.sub(r"\b(vec\d|quat)\b", rf"\1{d}", SIDE_BY_SIDE))[name], []
    for is_on in (True, False):
        kl.config.vector_code = is_on
        given, views = side_by_side(d, begin, step)
        kl.launch(kernel, (70, 77), views)
        found.append([each.numpy() for each in given])
    assert vectorised == [True, False]
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("components", [2, 3, 4])
def test_vectors_of_integers_side_by_side_are_the_same(components: int, vectorised: list[bool]) -> None:
    type = f"vec{components}i"
    kernel = kl.compile(f"""
    def f(x: array[{type}], y: array[{type}]):
        i = tid()
        y[i] += x[i] * 3
        if x[i][0] > 7:
            y[i] -= x[i]
    """)["f"]
    values = [ints(N * components, -(2**31), 2**31, seed).reshape(N, components) for seed in (0, 1)]
    dtype = getattr(kl, type)
    agree(kernel, N, lambda: [kl.array(each, dtype=dtype) for each in values], vectorised)


@pytest.mark.parametrize("name", ["turned_once", "spun_once"])
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("d", ["", "d"])
def test_so_are_their_gradients(name: str, step: int, d: str, vectorised: list[bool]) -> None:
    kernel, found = kl.compile(re.sub(r"\b(vec\d|quat)\b", rf"\1{d}", SIDE_BY_SIDE))[name], []
    for is_on in (True, False):
        kl.config.vector_code = is_on
        given, views = side_by_side(d, 1, step)
        with kl.Tape() as tape:
            kl.launch(kernel, (70, 77), views)
        tape.backward(grads={views[3]: kl.ones_like(views[3])})
        found.append([each.grad.numpy() for each in given])
    assert vectorised == [True, True, False, False]
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, 1e-5, 1e-5)


FIELDS = """
@struct
class Body:
    x: vec3
    m: float
    hits: int

def moved(b: array[Body], dt: float):
    i = tid()
    v = b[i].x * b[i].m
    for k in range(4):
        v = v * 0.5 + vec3(dt, v[0] * dt, v[1] / (1.0 + v[2] * v[2]))
    b[i].x = v
    b[i].m += dot(v, v)
    b[i].hits += 1
"""


@pytest.mark.parametrize("step", [1, 2, -1])
def test_fields_of_structs_are_apart(
    step: int, vectorised: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels, found, gave_up = kl.compile(FIELDS), list[Any](), list[Any]()
    go_on = cpu_backend.CpuEntry._go_on
    monkeypatch.setattr(cpu_backend.CpuEntry, "_go_on", lambda *given: gave_up.append(1) or go_on(*given))
    for is_on in (True, False):
        kl.config.vector_code = is_on
        bodies = kl.zeros(2 * N, kernels["Body"])
        bodies["x"].assign(reals(6 * N).reshape(2 * N, 3))
        bodies["m"].assign(reals(2 * N, 1))
        kl.launch(kernels["moved"], N, [bodies[::step], 0.1])
        found.append([bodies[name].numpy() for name in ("x", "m", "hits")])
    assert any(vectorised) and bool(gave_up) == (step < 0)  # scalar code takes negative strides
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["ring", "rings"])
@pytest.mark.parametrize("n", [N, 100, 17, 16, 15, 7, 1, -5, -40, N + 3, 0])
@pytest.mark.parametrize("shift", [0, -3, -777, 2**31 - 300, -(2**31)])
def test_indices_on_a_ring_are_the_same(
    name: str, shift: int, n: int, kernels: dict[str, kl.Kernel], vectorised: list[bool]
) -> None:
    found, scalar = both(kernels[name], N, lambda: [kl.array(reals(N)), shift, n, kl.zeros(N)])
    assert any(vectorised)
    for one, other in zip(found, scalar, strict=True):
        np.testing.assert_array_equal(one, other)
    told, words = (
        scalar[-1],
        "zero" if n == 0 else "out of bounds" if n > N and (shift or name == "rings") else "",
    )
    assert (words in told) and bool(words) == bool(told), told


RING_SUMS = """
def sums(x: array2d[float], shift: int, n: int, y: array2d[float]):
    i, j = tid()
    y[(i + 1) % 3, (j + shift) % n] += x[i, j]
    y[i, (j - 1 + n) % n] += 2.0 * x[i, j]

def clamped(x: array2d[float], shift: int, n: int, y: array2d[float]):
    i, j = tid()
    k = where(j < n, j, n - 1)
    y[i, clamp(j + shift, 0, n - 1)] += x[i, max(j - 1, 0)]
    y[i, n - 1 - k] += x[i, min(max(j + shift, 0), x.shape[1] - 1)]
    y[0, max(k - 2, 0)] += 2.0 * x[i, j]

def many(x: array2d[float], shift: int, n: int, y: array2d[float]):
    i, j = tid()
    v = x[i, j]
    for _ in range(2):
"""
RING_SUMS += "        v = v * 2.0 - x[i, j]\n" * 60 + "        y[i, (j + shift) % n] += v\n"


@pytest.mark.parametrize("name", ["sums", "clamped", "many"])
@pytest.mark.parametrize("n", [N, N - 3, 100, 17, 16, 15, 7, 1])
@pytest.mark.parametrize("shift", [0, -3, 777])
@pytest.mark.parametrize("stride", [1, 2])
def test_sums_on_a_ring_are_the_same(
    name: str, n: int, shift: int, stride: int, vectorised: list[bool]
) -> None:
    """Sums of whole numbers, which no order rounds; in a long function all groups have a mask."""
    x = np.random.default_rng(n).integers(-9, 9, (3, N)).astype(np.float32)
    memory = [np.zeros((3, n * stride), np.float32) for _ in range(2)]
    for is_on, each in zip((True, False), memory, strict=True):
        kl.config.vector_code = is_on
        kl.launch(
            kl.compile(RING_SUMS)[name], (3, N), [kl.array(x), shift, n, kl.from_numpy(each[:, ::stride])]
        )
    assert any(vectorised) and memory[0].any()
    np.testing.assert_array_equal(*memory)


@pytest.mark.parametrize("dtype", [kl.vec2, kl.vec3, kl.vec4, kl.vec2i, kl.vec2d])
@pytest.mark.parametrize("n", [N, 100, 17, 16, 15, 1])
@pytest.mark.parametrize("stride", [1, 2])
def test_vectors_on_a_ring_are_the_same(dtype: Any, n: int, stride: int, vectorised: list[bool]) -> None:
    kernel = kl.compile(
        f"def f(x: array[{dtype}], n: int, shift: int, y: array[{dtype}], z: array[{dtype}]):\n"
        "    i = tid()\n    y[i] = x[(i + shift) % n] - x[clamp(i + shift, 0, n - 1)]\n"
        "    if i % 3 == 1:\n        z[i] = x[(i - shift) % n]"
    )["f"]
    values = np.random.default_rng(n).integers(
        -99, 99, (n * stride, kl.zeros(1, dtype=dtype).numpy().shape[1])
    )
    x = kl.array(values, dtype=dtype)[::stride]
    agree(kernel, N, lambda: [x, n, 3, kl.zeros(N, dtype=dtype), kl.zeros(N, dtype=dtype)], vectorised)


@pytest.mark.parametrize("n", [2**31 - 1, 2**31 - 16, 2**31 - 17, 2**30 + 1])
@pytest.mark.parametrize("shift", [-1, -3000, 2**31 - 3000, -(2**31)])
def test_remainders_by_the_largest_numbers_are_the_same(shift: int, n: int, vectorised: list[bool]) -> None:
    kernel = kl.compile("""
    def f(shift: int, n: int, rests: array[int], wholes: array[int]):
        i = tid()
        rests[i] = (i + shift) % n
        wholes[i] = (i + shift) // n
    """)["f"]
    agree(kernel, N, lambda: [shift, n, kl.zeros(N, int), kl.zeros(N, int)], vectorised)


@pytest.mark.parametrize("dtype", [kl.vec2, kl.vec3, kl.vec4, kl.vec3d])
def test_lengths_whose_squares_are_out_of_range_are_the_same_beside_others(
    dtype: Any, vectorised: list[bool]
) -> None:
    kernel = kl.compile(
        f"def f(x: array[{dtype.__name__}], y: array[{dtype.__name__}], z: array[{dtype.scalar}]):\n"
        "    i = tid()\n    z[i] = length(x[i])\n    y[i] = normalize(x[i])"
    )["f"]
    shape, least = kl.zeros(N, dtype=dtype).numpy().shape, np.finfo(kl.zeros(1, dtype).numpy().dtype)
    powers = np.array(
        [0, 0, 0, least.minexp - 9, least.minexp // 2 - 4, least.maxexp // 2 + 4, least.maxexp - 2]
    )
    scales = np.exp2(powers[np.random.default_rng(2).integers(0, 7, (N, 1))].astype(float))
    values = scales * np.random.default_rng(3).uniform(-1, 1, shape)
    values[::50] = 0.0
    x = kl.array(values, dtype=dtype)
    agree(kernel, N, lambda: [x, kl.zeros(N, dtype=dtype), kl.zeros(N, dtype=dtype.scalar)], vectorised)


PASSING = {
    "if i + a < 100:\n    y[i] = 2.0 * x[i + a]": 2**31 - 10,
    "if not (i + a >= 100):\n    y[i] = 2.0 * x[i + a]": 2**31 - 10,
    "if i + a + a > 100:\n    y[i] = 2.0 * x[i + a + a]": -(2**30) - 8,
    "for k in range(4):\n    if i + y.shape[0] < k - a - a:\n        y[i] += x[i + y.shape[0]]": 2**30 + 1,
    "for k in range(i + a + a - 10):\n    y[i] += x[k]": -(2**30) - 8,
}
"""Bodies of kernels in which a sum passes the end of 32 bits, and what `a` is."""


@pytest.mark.parametrize("body", PASSING)
def test_branches_do_not_bound_sums_that_pass_the_end_of_32_bits(body: str, vectorised: list[bool]) -> None:
    lines = ["def f(x: array[float], a: int, y: array[float]):", "i = tid()", *body.splitlines()]
    kernel = kl.compile("\n    ".join(lines))["f"]
    told = agree(kernel, N, lambda: [kl.array(reals(N)), PASSING[body], kl.zeros(N)], vectorised)
    assert "out of bounds" in told


def test_groups_at_the_ends_of_a_branch_are_told_from_those_inside(
    kernels: dict[str, kl.Kernel], vectorised: list[bool]
) -> None:
    x, i = reals(N + 40), np.arange(N)
    ends = [(0, k, N - k) for k in range(18)]
    for shift, low, high in [*ends, (-7, 12, N), (0, N, 3), (0, -2, N), (2**31 - 20, 50, N)]:
        y = kl.zeros(N)
        kl.launch(kernels["inside"], N, [kl.array(x), shift, low, high, y])
        wrapped = (i + shift + 2**31) % 2**32 - 2**31
        sums = np.where(i > 0, x[i - 1], x[-1]) + x[i + 1]
        usual = (i > low) & (wrapped > low) & (i < high)
        np.testing.assert_array_equal(
            y.numpy(), np.where(usual, sums, np.float32(3.0)), err_msg=f"{shift}, {low}, {high}"
        )
    assert all(vectorised)


def test_arguments_of_any_layout_do(kernels: dict[str, kl.Kernel], vectorised: list[bool]) -> None:
    wide = reals(2 * N + 10)
    for take in (
        lambda x: [x[:N], kl.zeros(N)],
        lambda x: [x[: 2 * N : 2], kl.zeros(N)],
        lambda x: [x[N - 1 :: -1], kl.zeros(N)],
        lambda x: [x[:N], x[1 : N + 1]],
        lambda x: [x[1 : N + 1], x[:N]],
        lambda x: [x[:N], x[:N]],
    ):
        agree(kernels["shifted"], N, lambda take=take: take(kl.array(wide)), vectorised)


def test_stores_past_the_caches_are_as_good(monkeypatch: pytest.MonkeyPatch, vectorised: list[bool]) -> None:
    monkeypatch.setattr(vector_emitter, "FAR", 0)
    monkeypatch.setattr(vector_emitter, "LONG_ROW", 0)
    kernels = kl.compile(KERNELS)
    for name in ("checked", "guarded", "remainder", "edges"):
        dim, make, _ = launches()[name]
        agree(kernels[name], dim, make, vectorised)
    # No index is negative, or scalar code would go on from there.
    added = kl.compile("def k(x: array[float], y: array[float]):\n    y[tid()] = x[tid()] + 1.0")["k"]
    for begin in range(9):
        agree(
            added,
            N,
            lambda begin=begin: [kl.array(reals(N)), kl.zeros(N + 9)[begin : N + begin]],
            vectorised,
        )


def test_small_launches_and_deterministic_ones_run_scalar_code(
    kernels: dict[str, kl.Kernel], vectorised: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = kl.array(reals(N))
    kl.launch(kernels["sines"], 100, [x, kl.zeros(N)])
    monkeypatch.setattr(kl.config, "deterministic", True)
    kl.launch(kernels["sines"], N, [x, kl.zeros(N)])
    assert vectorised == [False]


SAME = {
    "z[i] = 2.0 * y[i] + x[j]": True,
    "z[i] = y[i] / sqrt(abs(x[i]) + 1.0)": True,
    "z[i] += y[i]": True,
    "z[0] += y[i]": False,
    "z[i] = sin(y[i])": False,
    "for k in range(3):\n    z[i] += y[i] * float(k)": False,
}
"""Bodies of kernels, and whether vector code plainly gives the same bits."""


@pytest.mark.parametrize("body", SAME)
def test_scalar_code_runs_until_vector_code_is_built_where_both_give_the_same_bits(
    body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["def k(x: array[float], y: array[float], z: array[float]):", "i = tid()", "j = i // 2"]
    kernel = kl.compile("\n    ".join([*lines, *body.splitlines()]))["k"]
    tier, may_build = VectorTier(scalarise(kernel.program.flat), Cache(), open_compiler()), threading.Event()

    def built(*given: Any) -> Any:
        may_build.wait()
        return build(*given)

    monkeypatch.setattr(vector_tier, "build", built)
    monkeypatch.setattr(vector_tier, "FEWEST_OPERATIONS", dict.fromkeys(vector_tier.FEWEST_OPERATIONS, 0))
    if not SAME[body]:
        may_build.set()
    assert (tier.run(N) is None) == SAME[body]
    may_build.set()
    assert tier.run() is not None
    assert tier.run(N) is not None


@pytest.mark.parametrize(("threads", "is_built"), [(N, True), (100, False)])
def test_vector_code_that_a_first_launch_waits_for_is_built_beside_the_scalar_code(
    threads: int, is_built: bool, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "def k(x: array[float], y: array[float]):\n    y[tid()] = sin(x[tid()])\n"
    kernel, begun, compile = kl.compile(text)["k"], threading.Event(), Compiler.compile

    def compiled(compiler: Compiler, unit: Unit, path: Path, more: tuple[str, ...] = ()) -> None:
        if more:
            begun.set()
        compile(compiler, unit, path, more)
        if not more and is_built:
            assert begun.wait(60), "the vector code waited for the scalar code"

    monkeypatch.setattr(Compiler, "compile", compiled)
    kl.launch(kernel, threads, [kl.ones(N), kl.zeros(N)])
    assert begun.is_set() == is_built


@pytest.mark.parametrize("value", ["sin(x[i])", "2.0 * x[i]", "x[i] + x[max(i - 1, 0)] * x[min(i + 1, n)]"])
def test_what_the_backward_pass_of_a_large_launch_runs_is_built_before_it(
    value: str, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"def k(x: array[float], n: int, y: array[float]):\n    i = tid()\n    y[i] = {value}\n"
    kernel, x, y = kl.compile(text)["k"], kl.ones(N, requires_grad=True), kl.zeros(N, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernel, N, [x, N - 1, y])
    AHEAD.wait()
    BETTER.wait()
    compile, compiling = Compiler.compile, list[threading.Thread]()

    def compiled(*given: Any) -> None:
        compiling.append(threading.current_thread())
        compile(*given)

    monkeypatch.setattr(Compiler, "compile", compiled)
    tape.backward(grads={y: kl.ones(N)})  # which may begin to build better code in the background
    assert threading.current_thread() not in compiling and x.grad is not None


GAINS = {
    "z[i] = 2.0 * y[i] + 1.0": True,
    "z[i] = y[j]": False,
    "z[i] = y[i + 1]": True,
    "z[i] = y[(i + 1) % n]": True,
    "z[i] = y[max(i - 1, 0)]": True,
    "z[i] = 0.5 * (y[2 * i] + y[2 * i + 1])": True,
    "z[i] = y[j + 1]": False,
    "z[i] = 1.0": True,
    "z[i] = sin(y[j]) * exp(y[j])": True,
    "x[i] = x[i] * 2.0": True,
    "d = x[0]\nfor k in range(n):\n    d += (x[k] - x[i]) / (1.0 + dot(x[k], x[i]))\nz[i] = d[0]": True,
    "for k in range(n):\n    z[i] += y[of[i + k]]": False,
}
"""Bodies of kernels, and whether vector code of them is taken to be faster."""


@pytest.mark.parametrize("body", GAINS)
def test_where_elements_are_moved_one_by_one_it_takes_arithmetic_to_gain(body: str) -> None:
    params = "x: array[vec3], y: array[float], of: array[int], n: int, z: array[float]"
    lines = "\n".join(["i = tid()", "j = of[i]", body]).replace("\n", "\n    ")
    function = lowered(f"def f({params}):\n    {lines}", "f")
    gain = operations_an_element(scalarise(function), lanes_of(WIDTHS[-1]))
    assert (gain >= vector_tier.FEWEST_OPERATIONS[WIDTHS[-1]]) == GAINS[body], gain


def test_branches_that_hardly_any_thread_takes_do_not_make_a_function_long() -> None:
    text = "def f(x: array[vec3], y: array[float]):\n    i = tid()\n    y[i] = "
    lengths = [f"length(x[i] + vec3({k}.0, 0.0, 0.0))" for k in range(7)]
    function = scalarise(lowered(text + " + ".join(lengths), "f"))
    assert len([*walk(function.body)]) > LONG
    assert not is_long(function)


def test_sums_are_as_good(kernels: dict[str, kl.Kernel], vectorised: list[bool]) -> None:
    n = 1 << 21
    s = kl.zeros(1)
    kl.launch(kernels["whole"], n, [kl.ones(n), s])
    assert vectorised == [True] and s.list() == [n]
    s = kl.full(2, 2.0**24)
    kl.launch(kernels["bins"], n, [kl.zeros(n, dtype=int), kl.ones(n), s])
    assert s.list() == [2.0**24 + n, 2.0**24]


ROWS = """
def rows(x: array2d[float], w: array[float], s: array2d[float]):
    i, j = tid()
    for k in range(s.shape[0]):
        s[k, j] += w[i] * x[k, j]
"""


@pytest.mark.parametrize(
    ("threads", "columns", "more"),
    [
        (40, 131, 0),  # few additions
        (3000, 131, 0),  # a sum for each element
        (4, 100_003, 400_000),  # sums for those that need them
    ],
)
@pytest.mark.parametrize("padding", [0, 4, 3])
def test_sums_into_elements_side_by_side_are_as_good(
    threads: int, columns: int, more: int, padding: int, vectorised: list[bool]
) -> None:
    """Rows whose distance is no multiple of four bytes have their sums at other distances."""
    kernel, found, rows = kl.compile(ROWS)["rows"], [], 3
    x, w = reals(rows * columns).reshape(rows, columns), reals(threads)
    for is_on in (True, False):
        kl.config.vector_code = is_on
        stride = 4 * (columns + more) + padding
        memory = np.zeros(rows * stride + 64, np.uint8)
        sums = np.ndarray((rows, columns + more), np.float32, memory.data, 0, (stride, 4))
        sums[...] = 1024.0
        kl.launch(kernel, (threads, columns), [kl.array(x), kl.array(w), kl.from_numpy(sums)])
        found.append(sums[:, :columns].copy())
    kl.config.vector_code = True
    assert any(vectorised)
    exact = 1024.0 + x.astype(np.float64) * w.astype(np.float64).sum()
    for each in found:
        np.testing.assert_allclose(each, exact, rtol=2e-7 if threads > 1000 else 3e-6)


@pytest.mark.parametrize("dtype", [kl.float32, kl.float64])
@pytest.mark.parametrize("name", ["newton", "powers"])
@pytest.mark.parametrize("loop_memory", [64 << 20, 64])
def test_gradients_through_saved_values_are_the_same(
    name: str, loop_memory: int, dtype: Any, request: pytest.FixtureRequest, vectorised: list[bool]
) -> None:
    """With little memory for loops vector code gives up before scalar code keeps checkpoints."""
    kernels = request.getfixturevalue("kernels" if dtype == kl.float32 else "kernels_of_float64")
    found = []
    before, kl.config.loop_memory = kl.config.loop_memory, loop_memory
    try:
        for is_on in (True, False):
            kl.config.vector_code = is_on
            x, y = kl.array(reals(N), dtype, requires_grad=True), kl.zeros(N, dtype, requires_grad=True)
            between = [] if name == "newton" else [kl.array(ints(N, 0, 9))]
            with kl.Tape() as tape:
                kl.launch(kernels[name], N, [x, *between, y])
            tape.backward(grads={y: kl.ones(N, dtype)})
            found.append(x.grad.numpy())
    finally:
        kl.config.loop_memory = before
    assert any(vectorised)
    np.testing.assert_allclose(found[0], found[1], 1e-6)


# ------------------------------------------------------------------------------------------ late checks

LATE = """
def rows(start: array[int], of: array[int], x: array[float], s: array[float]):
    i = tid()
    for k in range(start[i], start[i] + i % 4):
        s[of[k]] += x[i]

def stores(start: array[int], of: array[int], x: array[float], s: array[float]):
    i = tid()
    s[i] = x[i]
    if x[i] > 2.0:
        s[i] = x[of[start[i]]]

def chases(start: array[int], of: array[int], x: array[float], s: array[float]):
    i = tid()
    j = start[i]
    for k in range(3):
        s[j] += x[i]
        j = of[j]

def asserts(start: array[int], of: array[int], x: array[float], s: array[float]):
    i = tid()
    for k in range(i % 3):
        s[i] = x[i]
        assert of[i + k] < 4990, "too far"
"""

SPOILS = {
    "nothing": (lambda of: None, ""),
    "an index below zero": (lambda of: of.__setitem__(slice(900, 4000), -2), ""),
    "an index behind the end": (lambda of: of.__setitem__(slice(4003, 4103), 2 * N), "out of bounds"),
    "an index far below zero": (lambda of: of.__setitem__(slice(3001, 3101), -3 * N), "out of bounds"),
}


@pytest.mark.parametrize("spoil", SPOILS)
@pytest.mark.parametrize("name", ["rows", "stores", "chases", "asserts"])
def test_checks_come_before_the_first_effect(name: str, spoil: str, vectorised: list[bool]) -> None:
    """Where an index would be tested after an effect, a group runs all of its checks first."""
    change, words = SPOILS[spoil]
    of = ints(N + 9, 0, N, 1)
    change(of)
    whole = ints(N, 0, 5).astype(np.float32)  # sums of integers are exact in any order

    def make() -> list[Any]:
        return [kl.array(ints(N, 0, N)), kl.array(of), kl.array(whole), kl.zeros(N)]

    told = agree(kl.compile(LATE)[name], N, make, vectorised)
    if name != "asserts":
        assert bool(words) == bool(told) and words in told


@pytest.mark.parametrize("index", ["-1", "-1 - n % 4"])
def test_an_index_from_the_end_leaves_the_interior_to_whole_groups(index: str) -> None:
    text = f"def f(x: array[float], n: int, y: array[float]):\n    i = tid()\n    y[i] = x[i] * x[{index}]\n"
    unit = vector_emitter.emit_vectors(scalarise(lowered(text, "f")), lanes_of(WIDTHS[-1]))
    assert not any(re.search(r"-\d+ >= 0", line.text) for line in unit.lines)


@pytest.mark.parametrize("index", ["-1", "-1 - i % 4", "i % 4 - 5", "i - 1"])
def test_indices_that_begin_below_zero_are_tested_before_the_first_effect_too(
    index: str, vectorised: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No launch would meet a rule that such an index is never below zero."""
    kernel = kl.compile(f"""
def chosen(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i]
    if x[i] > 0.5:
        y[i] = x[{index}]
""")["chosen"]
    gave_up, go_on = list[Any](), cpu_backend.CpuEntry._go_on
    monkeypatch.setattr(cpu_backend.CpuEntry, "_go_on", lambda *given: gave_up.append(1) or go_on(*given))
    values = reals(N)
    values[0] = 0.0  # its neighbour would be the last one
    agree(kernel, N, lambda: [kl.array(values), kl.zeros(N)], vectorised)
    assert not gave_up


def test_gradients_of_gathers_in_loops_run_vector_code(vectorised: list[bool]) -> None:
    kernel = kl.compile("""
    def product(start: array[int], col: array[int], val: array[float], x: array[float], y: array[float]):
        i = tid()
        s = 0.0
        for k in range(start[i], start[i + 1]):
            s += val[k] * x[col[k]]
        y[i] = s * s
    """)["product"]
    start = np.concatenate([[0], np.cumsum(ints(N, 0, 5))]).astype(np.int32)
    found = []
    for is_on in (True, False):
        kl.config.vector_code = is_on
        col, val = kl.array(ints(start[-1], 0, N)), kl.array(reals(start[-1]), requires_grad=True)
        x, y = kl.array(reals(N), requires_grad=True), kl.zeros(N, requires_grad=True)
        with kl.Tape() as tape:
            kl.launch(kernel, N, [kl.array(start), col, val, x, y])
        tape.backward(grads={y: kl.ones(N)})
        found.append((x.grad.numpy(), val.grad.numpy()))
    assert vectorised == [True, True, False, False]
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, 1e-5)


# ------------------------------------------------------------------------------------------ running totals

TOTALS = """
def rows(x: array[float], of: array[int], n: int, s: array[float]):
    i = tid()
    for k in range(n):
        s[i] += x[k] * x[i]

def in_a_branch(x: array[float], of: array[int], n: int, s: array[float]):
    i = tid()
    for k in range(n):
        if x[i] > 0.5 or k > i:
            s[i] += x[k]

def guarded_by_its_index(x: array[float], of: array[int], n: int, s: array[float]):
    i = tid()
    for k in range(n):
        if i > 0:
            s[i - 1] += x[k]

def while_it_lasts(x: array[float], of: array[int], n: int, s: array[float]):
    i = tid()
    v = x[i]
    while v < 3.0:
        s[i] += v
        v += 0.4

def colliding(x: array[float], of: array[int], n: int, s: array[float]):
    i = tid()
    j = of[i]
    for k in range(n):
        s[j] += x[i] + float(k)

def element_a_turn(x: array[float], of: array[int], n: int, s: array[float]):
    i = tid()
    for k in range(n):
        for m in range(n):
            s[i + k] += x[m]

def of_each_turn(x: array[float], of: array[int], n: int, s: array[float]):
    i = tid()
    for k in range(n):
        for m in range(n):
            if m != of[i] % 4:
                s[i + k] += x[m]

def own_and_shared(x: array[float], of: array[int], n: int, s: array[float]):
    i = tid()
    for k in range(n):
        s[i] += x[k]
        s[k] += x[i]
        s[0] += 1.0

def in_the_first_threads(x: array[float], of: array[int], n: int, s: array[float]):
    i = tid()
    if i >= 20:
        s[i] += x[i]
    else:
        for k in range(n):
            s[i // 4] += x[k]

def none_at_all(x: array[float], of: array[int], n: int, s: array[float]):
    i = tid()
    for k in range(n - n):
        s[i + n] += x[i + 100_000]
"""


@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("name", [line.split("(")[0][4:] for line in TOTALS.split("\n") if line[:3] == "def"])
def test_running_totals_of_threads_are_what_scalar_code_makes_them(
    name: str, n: int, vectorised: list[bool]
) -> None:
    """To the last bit where every sum is a float64 in its end, else as good."""

    def make() -> list[Any]:
        return [kl.array(reals(N)), kl.array(ints(N, 0, N - 9)), n, kl.array(reals(N + 9, 1))]

    kernel = kl.compile(TOTALS)[name]
    results = []
    for is_on in (True, False):
        kl.config.vector_code = is_on
        given = make()
        kl.launch(kernel, N, given)
        results.append(given[-1].numpy())
    assert vectorised == [True, False]
    if name in ("own_and_shared", "element_a_turn", "of_each_turn", "colliding", "in_the_first_threads"):
        np.testing.assert_allclose(results[0], results[1], 1e-6)
    else:
        np.testing.assert_array_equal(results[0], results[1])


def test_so_they_are_in_adjoints(vectorised: list[bool]) -> None:
    """Of what each thread reads in each iteration; and of what all of them read."""
    kernel = kl.compile("""
    def logistic(x: array[float], r: array[float], y: array[float]):
        i = tid()
        v = x[i]
        for k in range(y.shape[0] // 1000):
            v = r[i] * v * (1.0 - v) + 0.01 * x[k]
        y[i] = v
    """)["logistic"]
    found = []
    for is_on in (True, False):
        kl.config.vector_code = is_on
        x, r, y = (kl.array(reals(N, seed), requires_grad=True) for seed in range(3))
        with kl.Tape() as tape:
            kl.launch(kernel, N, [x, r, y])
        tape.backward(grads={y: kl.ones(N)})
        found.append((x.grad.numpy(), r.grad.numpy()))
    assert vectorised == [True, True, False, False]
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, 1e-5)


def test_so_they_are_of_elements_that_quotients_and_remainders_tell_apart(vectorised: list[bool]) -> None:
    kernel = kl.compile("""
    def parts(x: array[float], s: array2d[float]):
        i = tid()
        for k in range(x.shape[0]):
            s[i // 8, i % 8] += x[k]
    """)["parts"]
    agree(kernel, N, lambda: [kl.array(reals(9)), kl.array(reals(N).reshape(-1, 8))], vectorised)


def test_a_total_of_a_thread_does_not_saturate(vectorised: list[bool]) -> None:
    kernel = kl.compile(
        "def f(s: array[float]):\n    i = tid()\n    for _ in range(20_000):\n        s[i] += 1.0"
    )
    s = kl.full(N, 2.0**24)
    kl.launch(kernel["f"], N, [s])
    assert vectorised == [True] and set(s.list()) == {2.0**24 + 20_000}


# ------------------------------------------------------------------------------------------ mathematics


def apart(found: Any, exact_values: Any) -> Any:
    """The distance of numbers from those of a wider type, in units in the last place."""
    nearest = exact_values.astype(found.dtype)
    unit = np.spacing(np.maximum(np.abs(nearest), np.finfo(found.dtype).tiny)).astype(exact_values.dtype)
    return np.abs(found.astype(exact_values.dtype) - exact_values) / unit


WITHIN = {
    "asin": (-1, 1),
    "acos": (-1, 1),
    "log": (0, 10),
    "log2": (0, 10),
    "log10": (0, 10),
    "tan": (-1.5, 1.5),
    "acosh": (1, 10),
    "atanh": (-1, 1),
    "log1p": (-1, 10),
}
NUMPY = {f"a{name}": getattr(np, f"arc{name}") for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")}
UNARY = sorted(FUNCTIONS - {"pow", "atan2", "hypot", "exp2", "exp10", "erf", "erfc"})
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-42, -1e-42, 1e30, -1e30]


WIDER = {"float32": np.float64, "float64": np.longdouble}


@pytest.mark.parametrize("dtype", WIDER)
@pytest.mark.parametrize("name", UNARY)
def test_functions_are_within_four_units_in_the_last_place(
    name: str, dtype: str, vectorised: list[bool]
) -> None:
    text = f"def f(x: array[{dtype}], y: array[{dtype}]):\n    i = tid()\n    y[i] = {name}(x[i])"
    kernel = kl.compile(text)["f"]
    low, high = WITHIN.get(name, (-10, 10))
    x = np.random.default_rng(0).uniform(low, high, 1 << 16).astype(dtype)
    y = kl.zeros(x.size, getattr(kl, dtype))
    kl.launch(kernel, x.size, [kl.array(x), y])
    assert vectorised == [True]
    assert apart(y.numpy(), NUMPY.get(name, getattr(np, name, None))(x.astype(WIDER[dtype]))).max() < 4.0
    special = np.resize(np.array(SPECIAL, dtype), N)
    make = lambda: [kl.array(special), kl.zeros(N, getattr(kl, dtype))]  # noqa: E731
    with_vectors, scalar = both(kernel, N, make)
    np.testing.assert_allclose(with_vectors[1], scalar[1], 1e-6)
    zeros = special == 0
    np.testing.assert_array_equal(np.signbit(with_vectors[1][zeros]), np.signbit(scalar[1][zeros]))


@pytest.mark.parametrize("dtype", WIDER)
def test_powers_are_too(dtype: str, vectorised: list[bool]) -> None:
    params = ", ".join(f"{name}: array[{dtype}]" for name in "xzy")
    kernel = kl.compile(f"def f({params}):\n    i = tid()\n    y[i] = x[i] ** z[i]")["f"]
    rng = np.random.default_rng(0)
    x, z = (rng.uniform(*bounds, 1 << 16).astype(dtype) for bounds in ((0.01, 10), (-5, 5)))
    y = kl.zeros(x.size, getattr(kl, dtype))
    kl.launch(kernel, x.size, [kl.array(x), kl.array(z), y])
    assert vectorised == [True]
    assert apart(y.numpy(), x.astype(WIDER[dtype]) ** z.astype(WIDER[dtype])).max() < 4.0
    pairs = np.array([(a, b) for a in SPECIAL for b in (*SPECIAL, 2.0, 3.0, 0.5, -3.0)], dtype)
    pairs = np.resize(pairs, (N, 2))
    sources = pairs[:, 0].copy(), pairs[:, 1].copy()
    make = lambda: [*map(kl.array, sources), kl.zeros(N, getattr(kl, dtype))]  # noqa: E731
    with_vectors, scalar = both(kernel, N, make)
    np.testing.assert_allclose(with_vectors[2], scalar[2], 1e-6)


# ------------------------------------------------------------------------------------------ operations


def applications(lanes: Lanes) -> Iterator[tuple[Op, tuple[Scalar, ...], Scalar]]:
    """Every operation with a spelling, over each of the types that lanes compute with; of small ones, two."""
    scalars = [scalar for scalar in lanes.vectors if scalar not in (int8, uint16)]
    for name in ops.names():
        for op in ops.overloads(name):
            if op.cpp is None:
                continue
            for types in product(scalars, repeat=len(op.params)):
                result = op.infer(types)
                if result in lanes.vectors:
                    yield op, types, result


def applying(number: int, types: tuple[Scalar, ...], of_types: Sequence[tuple[Op, Scalar]]) -> Function:
    """A kernel that applies operations to the elements of the same arrays."""
    given = [Var(Array(type, 1), f"x{k}") for k, type in enumerate(types)]
    values = tuple(Var(type, f"v{k}") for k, type in enumerate(types))
    i = Var(int32, "i")
    stmts: list[Stmt] = [Load(value, x, (i,)) for value, x in zip(values, given, strict=True)]
    results = [Var(Array(result, 1), f"y{k}") for k, (_, result) in enumerate(of_types)]
    for (op, result), y in zip(of_types, results, strict=True):
        out = Var(result, "t")
        stmts += [Let(out, op, values), Store(y, (i,), out)]
    return Function(f"apply_{number}", (*given, *results), Block(tuple(stmts)), (i,))


def divides(op: Op, result: Scalar) -> bool:
    """Whether scalar code tests the divisor before the operation."""
    return op.name in ("floordiv", "mod") and result.is_int


EDGES = {
    "float": SPECIAL,
    "int": [0, 1, -1, 2, 7, 31, 32, 33, 127, -128, 2**15 - 1, 2**31 - 1, -(2**31), -7],
    "uint": [0, 1, 2, 7, 31, 32, 33, 128, 255, 2**15, 2**31, 2**32 - 1],
    "bool": [False, True],
}


@pytest.mark.parametrize("lanes", KINDS, ids=kind_of)
def test_operations_give_the_same_bits(lanes: Lanes) -> None:
    groups: dict[tuple[tuple[Scalar, ...], bool], list[tuple[Op, Scalar]]] = {}
    for op, types, result in applications(lanes):
        groups.setdefault((types, divides(op, result)), []).append((op, result))
    functions = [applying(number, types, of) for number, ((types, _), of) in enumerate(groups.items())]
    entries = CpuBackend().build(functions)
    for function, ((types, is_division), of_types) in zip(functions, groups.items(), strict=True):
        pairs = np.array([*product(*(range(len(EDGES[type.kind])) for type in types))])
        given = {
            f"x{k}": np.array(EDGES[type.kind]).astype(type.dtype)[pairs[:, k]]
            for k, type in enumerate(types)
        }
        if is_division:
            given["x1"][given["x1"] == 0] = 3
        expected, found = (
            given | {f"y{k}": np.zeros(len(pairs), result.dtype) for k, (_, result) in enumerate(of_types)}
            for _ in range(2)
        )
        entries[function.name](pack(layout_of(function), (len(pairs),), expected))
        run_vectors(function, lanes, (len(pairs),), found)
        for k, (op, result) in enumerate(of_types):
            same_results(found[f"y{k}"], expected[f"y{k}"], op, result, f"{op.name} {types}")


def same_results(found: Any, expected: Any, op: Op, result: Scalar, name: str) -> None:
    if any(f"{{m}}{function}{{f}}" in str(op.cpp) for function in FUNCTIONS):
        np.testing.assert_allclose(found, expected, 1e-6, err_msg=name)
        return
    np.testing.assert_array_equal(found, expected, err_msg=name)
    if result.is_float:
        known = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(expected[known]), err_msg=name)
