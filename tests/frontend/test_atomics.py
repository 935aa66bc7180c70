"""Atomics: what they leave and return on every backend, and whose value a minimum's gradient goes to."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.backend.common import backends
from kernelab.backend.common.backends import pack
from kernelab.backend.cpu import interpreter
from kernelab.codegen.cpp.cuda_target import Cuda
from kernelab.codegen.cpp.emitter import emit
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.copying import widen
from kernelab.passes.common.scalarise import scalarise
from kernelab.passes.common.simplify import simplify
from tests.frontend.helpers import error
from tests.support.derivatives import derivatives
from tests.support.evaluate import evaluate
from tests.support.lowering import lowered

EVERY = """
def kernel(x: array[int], f: array[float64], seen: array2d[int], found: array2d[float64], given: array[int]):
    i = tid()
    v = given[i]
    seen[i, 0] = atomic_add(x, 0, v)
    seen[i, 1] = atomic_sub(x, 1, v)
    seen[i, 2] = atomic_min(x, 2, v)
    seen[i, 3] = atomic_max(x, 3, v)
    seen[i, 4] = atomic_and(x, 4, v)
    seen[i, 5] = atomic_or(x, 5, v)
    seen[i, 6] = atomic_xor(x, 6, v)
    seen[i, 7] = atomic_exch(x, 7, v)
    seen[i, 8] = atomic_cas(x, 8, i, v)
    found[i, 0] = atomic_min(f, 0, float64(v))
    found[i, 1] = atomic_max(f, 1, float64(v))
    found[i, 2] = atomic_exch(f, 2, float64(v))
    found[i, 3] = atomic_cas(f, 3, float64(i), float64(v))
    atomic_max(x, 9, v)
    atomic_cas(x, 10, 0, v)
    atomic_min(f, 4, float64(v))
"""
MINIMUM = """
def kernel(x: array[float], m: array[float], n: array[float]):
    i = tid()
    for k in range(3):
        atomic_min(m, i % 2, x[i] * x[i] + float(k))
        if x[i] > 0.0:
            atomic_max(n, 0, sin(x[i]))
"""


def drawn() -> dict[str, np.ndarray]:
    given = np.array([5, 3, 9, -2, 3], np.int32)
    return {
        "x": np.array([0, 0, 7, 7, 127, 0, 1, 42, 0, 0, 0], np.int32),
        "f": np.array([4.0, 4.0, 1.5, 0.0, np.nan]),
        "seen": np.zeros((5, 9), np.int32),
        "found": np.zeros((5, 4)),
        "given": given,
    }


def test_every_backend_leaves_and_returns_what_a_plain_reading_of_the_atomics_says() -> None:
    function = lowered(EVERY, "kernel")
    expected = drawn()
    evaluate(function, (5,), expected)
    assert expected["x"].tolist() == [18, -18, -2, 9, 0, -1, 5 ^ 3 ^ 9 ^ -2 ^ 3 ^ 1, 3, 5, 9, 5]
    assert expected["seen"][:, 2].tolist() == [7, 5, 3, 3, -2]
    entries = [interpreter.entry(function), backends.get("cpu").build([scalarise(function)])["kernel"]]
    for entry in entries:
        after = drawn()
        entry(pack(entry.info.layout, (5,), after))
        for name, value in expected.items():
            np.testing.assert_array_equal(after[name], value, err_msg=name)


@pytest.mark.nvrtc
def test_every_atomic_compiles_for_cuda() -> None:
    from kernelab.backend.cuda.nvrtc import compile_to_ptx

    types = ["int", "int64", "uint32", "uint64", "float", "float64"]
    lines = []
    for number, name in enumerate(types):
        kinds = ["min", "max", "exch", *(["and", "or", "xor"] if "float" not in name else [])]
        a, one = f"a{number}", f"{name}(1)"
        lines += [f"    {a}[0] = atomic_{kind}({a}, 1, {one})" for kind in kinds]
        lines.append(f"    atomic_cas({a}, 1, {name}(0), {one})")
    halves = ["float16", "bfloat16"]
    for number, name in enumerate(halves, start=len(types)):
        lines += [f"    a{number}[0] = atomic_{kind}(a{number}, 1, {name}(1))" for kind in ("min", "max")]
    head = ", ".join(f"a{number}: array[{name}]" for number, name in enumerate([*types, *halves]))
    text = emit([scalarise(lowered(f"def kernel({head}):\n" + "\n".join(lines), "kernel"))], Cuda()).text
    assert compile_to_ptx(text).count(".visible .entry") == 1


@pytest.mark.parametrize("dtype", [kl.float16, kl.bfloat16])
def test_extrema_of_halves_are_what_their_floats_say(dtype: Any) -> None:
    kernel = kl.compile(
        "def k(x: array[Any], low: array[Any], high: array[Any], seen: array[Any]):\n    i = tid()\n"
        "    seen[i] = atomic_min(low, 0, x[i])\n    atomic_max(high, 0, x[i])"
    )["k"]
    x = kl.array([2.0, -1.5, 3.25, -1.5], dtype=dtype, requires_grad=True)
    low, high = kl.zeros(1, dtype=dtype, requires_grad=True), kl.ones(1, dtype=dtype, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernel, dim=4, inputs=[x, low, high, seen := kl.zeros(4, dtype=dtype)])
    tape.backward(grads={low: kl.full(1, 2.0, dtype=dtype), high: kl.full(1, 3.0, dtype=dtype)})
    assert (low.list(), high.list(), seen.list()) == ([-1.5], [3.25], [0.0, 0.0, -1.5, -1.5])
    assert x.grad.list() == [0.0, 2.0, 3.0, 0.0]


MIXED = """
def kernel(x: array[float], m: array[float], n: array[float]):
    i = tid()
    m[1] = x[i] * atomic_min(m, 0, sin(x[i]))
    n[0] = n[0] + m[0] * x[i]
    atomic_max(m, 0, x[i] - 0.5)
"""


@pytest.mark.parametrize("text", [MINIMUM, MIXED])
@pytest.mark.parametrize("start", [0.05, 9.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_gradient_of_a_minimum_goes_to_its_winner(text: str, start: float, seed: int) -> None:
    function = simplify(widen(lowered(text, "kernel")))
    rng = np.random.default_rng(seed)
    arguments = {"x": rng.uniform(-1, 1, 7), "m": np.full(2, start), "n": np.full(1, start - 1.0)}
    assert derivatives(function, (7,), arguments, rng).agree()


def test_of_equal_values_the_one_that_was_there_first_wins() -> None:
    kernel = kl.compile("def kernel(x: array[float], m: array[float]):\n    atomic_max(m, 0, x[tid()])")[
        "kernel"
    ]
    x = kl.array([1.0, 3.0, 2.0, 3.0], dtype=float, requires_grad=True)
    m = kl.zeros(1, dtype=float, requires_grad=True)
    for start, expected in [(0.0, [0.0, 1.0, 0.0, 0.0]), (3.0, [0.0, 0.0, 0.0, 0.0])]:
        m.fill_(start)
        with kl.Tape() as tape:
            kernel[4](x, m)
        m.fill_(17.0)
        tape.backward(grads={m: kl.ones(1, dtype=float)})
        assert x.grad.list() == expected
        tape.zero()


def test_a_minimum_agrees_with_its_tangent_and_differences_through_gradcheck() -> None:
    text = "def kernel(x: array[float], m: array[float]):\n    atomic_min(m, 0, cos(x[tid()]))"
    kernel = kl.compile(text)["kernel"]
    x = kl.array([0.1, 0.7, 0.3], dtype=float, requires_grad=True)
    m = kl.full(1, 9.0, dtype=float, requires_grad=True)
    assert kl.autograd.gradcheck(kernel, dim=3, inputs=[x], outputs=[m])


VECTORS = """
def kernel(x: array[vec3], low: array[vec3], high: array[mat22]):
    i = tid()
    atomic_min(low, 0, cos(x[i].x) * x[i])
    atomic_max(high, 0, mat22(x[i].x, x[i].y, x[i].z, x[i].x * x[i].y))
"""


def test_extrema_of_vectors_and_matrices_go_by_components_in_both_modes() -> None:
    function = simplify(widen(lowered(VECTORS, "kernel")))
    rng = np.random.default_rng(3)
    x, low = rng.normal(size=(5, 3)), np.full((1, 3), 9.0)
    # One component of the maximum stands there already, and nobody beats it.
    high = np.array([[[7.0, -9.0], [-9.0, -9.0]]])
    assert derivatives(function, (5,), {"x": x, "low": low, "high": high}, rng).agree()


def test_which_thread_won_a_component_is_known_from_what_the_atomic_returns() -> None:
    text = """
def kernel(x: array[vec2], low: array[vec2], place: array[vec2i], y: array[float]):
    i = tid()
    old = atomic_min(low, 0, x[i])
    y[i] = old.x * x[i].y
    if x[i].x < old.x:
        place[0].x = i
    if x[i].y < old.y:
        place[0].y = i
"""
    function = simplify(widen(lowered(text, "kernel")))
    rng = np.random.default_rng(0)
    x, low, y = rng.normal(size=(6, 2)), np.full((1, 2), 9.0), np.zeros(6)
    arguments = {"x": x, "low": low, "place": np.zeros((1, 2), np.int32), "y": y}
    assert derivatives(function, (6,), arguments, rng).agree()


@pytest.mark.parametrize("backend", ["cpu", "interp"])
def test_bits_of_vectors_go_by_components(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELAB_BACKEND", backend)
    text = """
def kernel(a: array[vec2i], b: array[vec2i]):
    i = tid()
    atomic_or(a, 0, b[i])
    atomic_and(a, 1, b[i])
    atomic_xor(a, 2, b[i])
"""
    a, b = kl.full(3, [3, 5], dtype=kl.vec2i), kl.array([[4, 8], [6, 1]], dtype=kl.vec2i)
    kl.launch(kl.compile(text)["kernel"], 2, inputs=[a, b])
    assert a.numpy().tolist() == [[3 | 4 | 6, 5 | 8 | 1], [3 & 4 & 6, 5 & 8 & 1], [3 ^ 4 ^ 6, 5 ^ 8 ^ 1]]


def test_where_it_was_found_may_be_remembered() -> None:
    text = """
def kernel(x: array[float], m: array[float], place: array[int]):
    i = tid()
    if x[i] < atomic_min(m, 0, x[i]):
        place[0] = i
"""
    function = simplify(widen(lowered(text, "kernel")))
    rng = np.random.default_rng(0)
    arguments = {"x": rng.normal(size=6), "m": np.full(1, 9.0), "place": np.zeros(1, np.int32)}
    assert derivatives(function, (6,), arguments, rng).agree()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("atomic_exch(y, 0, x[i])", "atomic_exch of y has no derivative"),
        ("atomic_cas(y, 0, 0.0, x[i])", "atomic_cas of y has no derivative"),
    ],
)
def test_an_atomic_without_a_right_derivative_is_refused(body: str, message: str) -> None:
    function = lowered(f"def kernel(x: array[float], y: array[float]):\n    i = tid()\n    {body}", "kernel")
    with pytest.raises(kl.KernelTypeError, match=message):
        vjp(function, ["x", "y"])
    with pytest.raises(kl.KernelTypeError, match=message):
        jvp(function, ["x", "y"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("atomic_or(x, 0, 1.0)", "atomic_or works on integers, not float32"),
        ("atomic_exch(v, 0, vec2())", "atomic_exch works on one number at a time, not on vec2"),
        ("atomic_and(v, 0, vec2())", "atomic_and works on integers, not vec2"),
        ("atomic_max(b, 0, int8(1))", "atomic_max works on numbers of 32 or 64 bits, not int8"),
        ("atomic_cas(x, 0.0)", "atomic_cas takes an array, its indices and two values"),
        ("atomic_min(x, 0, 0, 0.0)", "array[float32] takes 1 index, not 2"),
    ],
)
def test_atomics_say_what_they_work_on(line: str, message: str) -> None:
    text = f"def kernel(x: array[float], v: array[vec2], b: array[int8]):\n    {line}"
    assert error(text).message == message


@pytest.mark.parametrize("text", [MINIMUM, MIXED])
def test_the_second_derivative_of_a_minimum_agrees_with_differences(text: str) -> None:
    function = simplify(widen(lowered(text, "kernel")))
    names = ["x", "m", "n"]
    tangent = jvp(function, names)
    rng = np.random.default_rng(7)
    arguments = {"x": rng.uniform(-1, 1, 5), "m": np.full(2, 0.3), "n": np.full(1, -0.2)}
    arguments |= {f"{name}_dot": rng.normal(size=arguments[name].shape) for name in names}
    found = derivatives(tangent, (5,), arguments, rng)
    assert found.adjoint == pytest.approx(found.differences, rel=1e-5, abs=1e-5)
