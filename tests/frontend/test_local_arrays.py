"""Local arrays: memory of a thread's own, with gradients through every write to it."""

import numpy as np
import pytest

import kernelab as kl
from kernelab.backend.common import backends
from kernelab.backend.common.backends import pack
from kernelab.backend.cpu import interpreter
from kernelab.codegen.cpp.cuda_target import Cuda
from kernelab.codegen.cpp.emitter import emit
from kernelab.codegen.listing.listing import listing
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.copying import widen
from kernelab.passes.common.scalarise import scalarise
from kernelab.passes.common.simplify import simplify
from tests.frontend.helpers import error
from tests.support.derivatives import derivatives
from tests.support.evaluate import evaluate
from tests.support.lowering import lowered

pytestmark = pytest.mark.slow

REWRITTEN = """
def kernel(x: array[float], y: array[float]):
    i = tid()
    a = zeros(4, dtype=float)
    for k in range(3 * len(x)):
        a[k % 4] = sin(a[(k + 1) % 4]) + x[k % len(x)] * a[k % 4] + x[i]
    a[0] += a[1] * a[2]
    a[-1] *= 2.0
    y[i] = a[0] + a[3]
"""
MADE_AGAIN = """
@func
def weighed(w: array[float], k: int):
    s = 0.0
    for j in range(len(w)):
        s += w[j] * w[j] * float(j + k)
    return s

def kernel(x: array[float], y: array[float]):
    i = tid()
    total = 0.0
    for k in range(6):
        a = zeros(shape=(3,), dtype=float)
        a[k % 3] = x[i] * float(k)
        if k > i + 2:
            break
        if x[i] > 0.0:
            a[0] = a[0] + total * x[k % len(x)]
        else:
            b = zeros((2, 2))
            b[1, k % 2] = cos(x[i])
            a[1] = b[1, 0] * b[1, 1] + weighed(b[1], k)
        total += weighed(a, k)
    y[i] = total
"""
PATHS = """
N = 5

def kernel(x: array[float], y: array[float]):
    i = tid()
    best = zeros(shape=(N, N), dtype=float)
    for r in range(N):
        for c in range(N):
            above = 0.0
            if r > 0:
                above = best[r - 1, c]
            left = 0.0
            if c > 0:
                left = best[r, c - 1]
            best[r, c] = x[(r * N + c + i) % len(x)] * (1.0 + 0.1 * above) + max(above, left)
    y[i] = best[N - 1, N - 1]
"""
VECTORS = """
def kernel(x: array[float], y: array[float]):
    i = tid()
    p = zeros(3, dtype=vec2)
    for k in range(5):
        p[k % 3] = p[(k + 1) % 3] * x[i] + vec2(x[k % len(x)], 1.0)
        p[1].x = p[0].y * x[i]
    y[i] = dot(p[0], p[1]) + length(p[2])
"""
TEXTS = [REWRITTEN, MADE_AGAIN, PATHS, VECTORS]


@pytest.mark.parametrize("text", TEXTS)
def test_gradients_through_local_arrays_agree_with_differences(text: str) -> None:
    function = simplify(widen(lowered(text, "kernel")))
    for seed in (1, 2):
        rng = np.random.default_rng(seed)
        arguments = {"x": rng.uniform(-0.9, 0.9, 4), "y": np.zeros(4)}
        assert derivatives(function, (4,), arguments, rng).agree()


def test_the_backends_agree_on_primals_adjoints_and_tangents() -> None:
    x = np.random.default_rng(0).uniform(-0.9, 0.9, 4).astype(np.float32)
    programs = {}
    for number, text in enumerate(TEXTS):
        function = lowered(text, "kernel")
        tangent = jvp(function, ["x", "y"])
        for kind, program in (("primal", function), ("tangent", tangent)):
            name = f"{kind}_{number}"
            programs[name] = type(program)(
                name, program.params, program.body, program.threads, program.span, program.linear
            )
    built = backends.get("cpu").build([scalarise(program) for program in programs.values()])
    for name, program in programs.items():
        given = {
            "x": x,
            "y": np.zeros(4, np.float32),
            "x_dot": x[::-1].copy(),
            "y_dot": np.zeros(4, np.float32),
        }
        given = {param.hint: given[param.hint] for param in program.params}
        results = []
        for run in ("oracle", "interp", "cpu"):
            after = {key: value.copy() for key, value in given.items()}
            if run == "oracle":
                evaluate(program, (4,), after)
            else:
                entry = interpreter.entry(program) if run == "interp" else built[name]
                entry(pack(entry.info.layout, (4,), after))
            results.append(after)
        for after in results[1:]:
            for key, value in after.items():
                np.testing.assert_allclose(value, results[0][key], 2e-5, 1e-6, err_msg=f"{name} {key}")


def test_a_tape_takes_gradients_through_them_on_the_cpu() -> None:
    x0 = np.random.default_rng(4).uniform(-0.9, 0.9, 4)
    for text in TEXTS:
        wide = simplify(widen(lowered(text, "kernel")))
        kernel = kl.compile(text, {})["kernel"]
        x = kl.array(x0, dtype=float, requires_grad=True)
        y = kl.zeros(4, dtype=float, requires_grad=True)
        with kl.Tape() as tape:
            kernel[4](x, y)
        tape.backward(grads={y: kl.ones(4, dtype=float)})
        slopes = []
        for k in range(4):
            ends = []
            for step in (1e-5, -1e-5):
                after = {"x": x0 + step * (np.arange(4) == k), "y": np.zeros(4)}
                evaluate(wide, (4,), after)
                ends.append(after["y"].sum())
            slopes.append((ends[0] - ends[1]) / 2e-5)
        np.testing.assert_allclose(x.grad.numpy(), slopes, 2e-3, 1e-4)


@pytest.mark.nvrtc
def test_local_arrays_compile_for_cuda() -> None:
    from kernelab.backend.cuda.nvrtc import compile_to_ptx

    functions = []
    for number, text in enumerate(TEXTS):
        adjoint = vjp(lowered(text, "kernel"), ["x", "y"]).adjoint
        functions.append(
            type(adjoint)(
                f"k{number}", adjoint.params, adjoint.body, adjoint.threads, adjoint.span, adjoint.linear
            )
        )
    text = emit([scalarise(function) for function in functions], Cuda()).text
    assert compile_to_ptx(text).count(".visible .entry") == len(TEXTS)


def test_a_reader_sees_where_a_local_array_and_its_adjoint_begin() -> None:
    function = lowered(REWRITTEN, "kernel")
    assert "a = zeros(4, float)" in str(listing(function))
    assert "a_bar = zeros(4, float)" in str(listing(vjp(function, ["x", "y"]).adjoint))


def test_an_index_outside_of_a_local_array_is_an_error() -> None:
    text = "def kernel(y: array[float], i: int):\n    a = zeros(3)\n    a[i] = 1.0\n    y[0] = a[2]"
    kernel = kl.compile(text)["kernel"]
    y = kl.zeros(1, dtype=float)
    kernel[1](y, -1)
    assert y.list() == [1.0]
    with pytest.raises(kl.KernelIndexError, match="axis 0 of array `a` with size 3"):
        kernel[1](y, 3)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("a = zeros(i)", "the shape of a local array has to be known when the kernel is compiled"),
        ("a = zeros((2, 0))", "the shape of a local array has to be known when the kernel is compiled"),
        ("a = zeros(3, dtype=1)", "dtype is a type, not int"),
        ("a = zeros(dtype=float)", "zeros in a kernel takes a shape and a dtype"),
        ("a = zeros(5000)", "a local array of 20,000 bytes is too large: at most 16,384 fit"),
        ("a = zeros(3)\n    b = a", "b would be a second name of a local array"),
        (
            "a = zeros(3)\n    atomic_add(a, 0, 1.0)",
            "atomic_add works on array parameters, not on a local array",
        ),
        ("a = zeros(3)\n    f(a)", "f changes the local array that it is handed"),
        ("a = zeros(3)\n    g(a[1:])", "g changes the local array that it is handed"),
        (
            "a = zeros(3)\n    for k in range(2):\n        a = zeros(3)\n    x[0] = a[0]",
            "a variable stands for one",
        ),
        (
            "for k in range(2):\n        a = zeros(3)\n    x[0] = a[0]",
            "a is made inside of a loop and used after it",
        ),
        (
            "if i > 0:\n        a = zeros(3)\n    else:\n        a = zeros(3)\n    x[0] = a[0]",
            "stands for one array",
        ),
    ],
)
def test_what_a_local_array_cannot_do_is_said(body: str, message: str) -> None:
    functions = "@func\ndef f(a):\n    a[0] = 1.0\n@func\ndef g(a):\n    f(a)\n"
    found = error(f"{functions}def kernel(x: array[float]):\n    i = tid()\n    {body}")
    assert message in found.message
