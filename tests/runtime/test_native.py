"""Functions of native C++: what they compute, their adjoints, and what is said of mistakes in a snippet."""

import signal
import threading
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.backend.cuda.nvrtc import compile_to_ptx, is_installed
from kernelab.codegen.cpp.cuda_target import Cuda
from kernelab.codegen.cpp.emitter import emit
from kernelab.errors import KernelError, KernelIndexError, KernelSyntaxError, KernelTypeError, KernelWarning
from kernelab.passes.common.scalarise import scalarise

SQUARE = """
    float sq = x * x;
    return sq;
"""


@kl.func_native(SQUARE, "adj_x += 2.f * x * adj_ret;")
def square(x: float) -> float: ...


@kl.func_native(
    "out[tid] = a * x[tid] + y[tid];",
    """
    adj_a += x[tid] * adj_out[tid];
    adj_x[tid] += a * adj_out[tid];
    adj_y[tid] += adj_out[tid];
    """,
)
def saxpy(a: float, x: kl.array[float], y: kl.array[float], out: kl.array[float], tid: int): ...


@kl.func_native(
    "return wp::vec_t<3, float>(x, 2.0f * x, x);", "adj_x += dot(adj_ret, wp::vec3(1.f, 2.f, 1.f));"
)
def spread(x: float) -> kl.vec3: ...


@kl.func_native("return wp::address(m, i, j) + v[1] + (i < m.shape[0] ? 1.0f : 0.0f);")
def pick(m: kl.array(dtype=float, ndim=2), v: kl.vec3, i: int, j: int) -> float: ...


@kl.func_native(
    """
    int next_index = atomicAdd(counter, 1);
    thread_values[tid] = next_index;
    """,
    replay_snippet="",
)
def reversible_increment(counter: kl.array[int], thread_values: kl.array[int], tid: int): ...


@kl.func_native("wp::atomic_add(total, 0, x * x);", "adj_x += 2.0f * x * adj_total[0];")
def add_square(x: float, total: kl.array[float]): ...


@kl.kernel
def squares(x: kl.array[float], y: kl.array[float]):
    i = kl.tid()
    y[i] = 3.0 * square(x[i])


@kl.kernel
def saxpys(a: float, x: kl.array[float], y: kl.array[float], out: kl.array[float]):
    i = kl.tid()
    saxpy(a, x, y, out, i)


@kl.kernel
def spreads(x: kl.array[float], y: kl.array[kl.vec3]):
    i = kl.tid()
    y[i] = spread(x[i]) * x[i]


@kl.kernel
def picks(m: kl.array(dtype=float, ndim=2), y: kl.array[float]):
    i = kl.tid()
    y[i] = pick(m, kl.vec3(1.0, 2.0, 3.0), i, 1)


@kl.kernel
def increments(x: kl.array[float], counter: kl.array[int], values: kl.array[int], y: kl.array[float]):
    i = kl.tid()
    reversible_increment(counter, values, i)
    k = values[i]
    y[k] = x[k] ** 2.0


@kl.kernel
def totals(x: kl.array[float], total: kl.array[float]):
    add_square(x[kl.tid()], total)


def numbers(*values: float) -> Any:
    return kl.array(values, dtype=float, requires_grad=True)


def test_what_a_snippet_returns_and_its_adjoint() -> None:
    x, y = numbers(1.0, 2.0, 3.0), numbers(0.0, 0.0, 0.0)
    with kl.Tape() as tape:
        kl.launch(squares, 3, [x], [y])
    tape.backward(grads={y: kl.ones_like(y)})
    np.testing.assert_array_equal(y.numpy(), [3.0, 12.0, 27.0])
    np.testing.assert_array_equal(x.grad.numpy(), [6.0, 12.0, 18.0])


def test_a_snippet_over_arrays_and_its_adjoint() -> None:
    x, y, out = numbers(1.0, 2.0), numbers(5.0, 6.0), numbers(0.0, 0.0)
    a = numbers(2.0)
    with kl.Tape() as tape:
        kl.launch(saxpys, 2, [a, x, y], [out])
    tape.backward(grads={out: kl.array([1.0, 10.0])})
    np.testing.assert_array_equal(out.numpy(), [7.0, 10.0])
    np.testing.assert_array_equal(x.grad.numpy(), [2.0, 20.0])
    np.testing.assert_array_equal(y.grad.numpy(), [1.0, 10.0])
    np.testing.assert_array_equal(a.grad.numpy(), [21.0])


def test_what_a_snippet_overwrites_has_no_gradient_from_behind_it() -> None:
    x, y, out = numbers(1.0, 2.0), numbers(5.0, 6.0), numbers(0.0, 0.0)
    with kl.Tape() as tape:
        kl.launch(saxpys, 2, [1.0, x, x], [out])
        kl.launch(saxpys, 2, [2.0, x, y], [out])
    tape.backward(grads={out: kl.ones_like(out)})
    np.testing.assert_array_equal(x.grad.numpy(), [2.0, 2.0])


def test_only_some_arrays_may_need_a_gradient() -> None:
    x, out = numbers(1.0, 2.0), numbers(0.0, 0.0)
    y = kl.array([5.0, 6.0])
    with kl.Tape() as tape:
        kl.launch(saxpys, 2, [3.0, x, y], [out])
    tape.backward(grads={out: kl.ones_like(out)})
    np.testing.assert_array_equal(x.grad.numpy(), [3.0, 3.0])
    assert y.grad is None


def test_a_snippet_returns_vectors() -> None:
    x, y = numbers(1.0, 2.0), kl.zeros(2, dtype=kl.vec3, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(spreads, 2, [x], [y])
    tape.backward(grads={y: kl.array(np.ones((2, 3)), dtype=kl.vec3)})
    np.testing.assert_array_equal(y.numpy(), [[1, 2, 1], [4, 8, 4]])
    np.testing.assert_array_equal(x.grad.numpy(), [8.0, 16.0])


def test_a_snippet_sees_strided_arrays_vectors_and_shapes() -> None:
    m, y = kl.array(np.arange(6.0).reshape(2, 3), dtype=float).transpose(), kl.zeros(3)
    kl.launch(picks, 3, [m], [y])
    np.testing.assert_array_equal(y.numpy(), [6.0, 7.0, 8.0])


def test_an_index_outside_is_found_at_the_call() -> None:
    with pytest.raises(KernelIndexError, match="index 2"):
        kl.launch(picks, 3, [kl.zeros((2, 2))], [kl.zeros(3)])


def test_what_a_snippet_wrote_is_kept_for_the_adjoint() -> None:
    x, y = numbers(1.0, 2.0, 3.0), numbers(0.0, 0.0, 0.0)
    counter, values = kl.zeros(1, dtype=int), kl.zeros(3, dtype=int)
    with kl.Tape() as tape:
        kl.launch(increments, 3, [x, counter, values], [y])
    tape.backward(grads={y: kl.ones_like(y)})
    np.testing.assert_array_equal(counter.numpy(), [3])
    np.testing.assert_array_equal(x.grad.numpy(), [2.0, 4.0, 6.0])


def test_what_a_snippet_adds_to_keeps_its_adjoint() -> None:
    x, total = numbers(1.0, 2.0), numbers(0.0)
    with kl.Tape() as tape:
        kl.launch(totals, 2, [x], [total])
        kl.launch(totals, 2, [x], [total])
    tape.backward(total)
    np.testing.assert_array_equal(total.numpy(), [10.0])
    np.testing.assert_array_equal(x.grad.numpy(), [4.0, 8.0])


def test_a_tangent_passes_through_the_adjoint_of_a_function_of_numbers() -> None:
    entry = squares.program.tangent(squares.positions(["x", "y"])).entry
    assert "square_adj" in str(entry) or entry.info.name == "squares_tangent"
    assert kl.autograd.gradcheck(squares, 2, inputs=[numbers(1.0, 2.0)], outputs=[numbers(0.0, 0.0)])


def made(text: str) -> Any:
    return kl.compile(text, {"kl": kl})["kernel"]


CALLS = """
def kernel(x: array[float], y: array[float]):
    i = tid()
    y[i] = f(x[i])
"""


def test_without_an_adjoint_a_gradient_is_refused() -> None:
    kernel = made('@func_native("return x;")\ndef f(x: float) -> float: ...' + CALLS)
    with pytest.raises(KernelTypeError, match="no gradient passes through f: it is native C\\+\\+ without"):
        kernel.vjp(["x", "y"])
    with pytest.raises(KernelTypeError, match="no tangent passes through f"):
        kernel.jvp(["x", "y"])


def test_what_is_wrong_in_a_snippet_is_told_at_its_line() -> None:
    text = (
        '@func_native("""\n    float a = x;\n    return a + bb;\n""")\ndef f(x: float) -> float: ...' + CALLS
    )
    kernel = made(text)
    with pytest.raises(KernelSyntaxError) as caught:
        _ = kernel.program.entry
    (found,) = caught.value.diagnostics
    assert "bb" in found.message and found.span is not None
    assert (found.span.line, found.span.column, found.span.end_column) == (3, 15, 17)


def test_what_an_assembler_does_not_know_is_told_at_the_line_of_the_snippet() -> None:
    text = """
@func_native('''
    asm("no_such_instruction");
    return x;
''')
def f(x: float) -> float: ...
"""
    with pytest.raises(KernelSyntaxError, match="no_such_instruction") as caught:
        _ = made(text + CALLS).program.entry
    (found,) = caught.value.diagnostics
    assert found.span is not None and found.span.line == 3


def test_an_array_that_seems_to_be_read_only_is_not_written() -> None:
    text = """
@func_native("auto& e = x[0]; e = 1.0f;")
def f(x: array[float]): ...
def kernel(x: array[float]):
    f(x)
"""
    with pytest.raises(KernelSyntaxError, match="read-only"):
        _ = made(text).program.entry


def test_words_of_cuda_are_refused_on_a_cpu() -> None:
    text = """
@func_native("__shared__ int s[4]; s[i] = i; __syncthreads();")
def f(i: int): ...
def kernel(x: array[float]):
    f(tid())
"""
    kernel = made(text)
    with pytest.raises(KernelTypeError, match="f uses __shared__, which only a CUDA device has"):
        _ = kernel.program.entry
    if is_installed():
        compile_to_ptx(emit([scalarise(kernel.primal)], Cuda()).text)


@pytest.mark.skipif(not is_installed(), reason="NVRTC is not installed")
def test_snippets_are_cuda_too() -> None:
    for kernel, active in ((squares, ["x", "y"]), (saxpys, ["x", "y", "out"]), (picks, [])):
        programs = [kernel.primal] + ([kernel.vjp(active).adjoint] if active else [])
        for program in programs:
            assert ".entry" in compile_to_ptx(emit([scalarise(program)], Cuda()).text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('@func_native("return x;")\ndef f(x: float): ...', "does not say of which type"),
        ('@func_native("x;")\ndef f(x: float) -> float: ...', "the snippet of f returns nothing"),
        (
            '@func_native("return x;")\ndef f(x) -> float: ...',
            "the argument x of native C\\+\\+ needs a type",
        ),
        (
            '@func_native("return x;")\ndef f(x: float16) -> float: ...',
            "native C\\+\\+ cannot take x: float16",
        ),
        ('@func_native("return x;")\ndef f(x: float) -> float:\n    return x', "has no body of its own"),
        ("@func_native(1)\ndef f(x: float) -> float: ...", "func_native takes snippet, adj_snippet"),
        (
            '@func_native("x[0] = x[0] + 1.0f;", "adj_x[1] += 1.0f;")\ndef f(x: array[float]): ...',
            "its adj_snippet leaves adj_x",
        ),
    ],
)
def test_what_cannot_be_native_is_refused(text: str, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        kl.compile(text + "\ndef kernel(x: array[float]):\n    x[0] = 1.0\n", {})


def test_an_adjoint_that_is_wrong_is_told_once() -> None:
    text = '@func_native("return x * x;", "adj_x += x * adj_ret;"{})\ndef f(x: float) -> float: ...' + CALLS
    with pytest.warns(KernelWarning, match="adj_f gives"):
        made(text.format("")).vjp(["x", "y"])
    made(text.format(", check=False")).vjp(["x", "y"])


ENDLESS = {
    "while": "while (s < 1.0f) s = s * 0.5f;",
    "do": "do { s = s * 0.5f; } while (s < 1.0f);",
    "while in while": "while (true) { while (s < 1.0f) s = s * 0.5f; if (s > 2.0f) return s; }",
    "for without a condition": "for (;;) { for (int i = 0; i < 3; ++i) s *= 0.9f; if (s > 1.0f) break; }",
    "for in an if": "if (s < 1.0f) for (int i = 0;; ++i) s = s * 0.5f; else s = 2.0f;",
    "for that asks": "for (long i = 0; i >= 0; i += i < 9) { s = s * 0.5f; if (interrupted()) break; }",
    "capturing lambda": "auto halve = [&] { while (s < 1.0f) s = s * 0.5f; }; halve();",
}


@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.parametrize("threads", [1, 100_000])
def test_an_interrupt_ends_a_loop_of_a_snippet(name: str, threads: int) -> None:
    text = f'@func_native("""began[0] = 1.0f;\nfloat s = x;\n{ENDLESS[name]}\nreturn s;""")\n'
    text += "def f(x: float, began: array[float]) -> float: ...\n\n"
    text += "def run(x: array[float], began: array[float], y: array[float]):\n    y[tid()] = f(x[0], began)\n"
    kernel = kl.compile(text)["run"]
    x, began, y = kl.full(1, 0.5), kl.zeros(1), kl.zeros(threads)
    kl.launch(kernel, dim=0, inputs=[x, began], outputs=[y])

    def press() -> None:
        while not began.numpy().any():
            threading.Event().wait(0.001)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    presser = threading.Thread(target=press)
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a process in the background ignores it
    try:
        presser.start()
        with pytest.raises(kl.KernelInterrupt):
            kl.launch(kernel, dim=threads, inputs=[x, began], outputs=[y])
        presser.join()
    finally:
        signal.signal(signal.SIGINT, before)


def test_loops_of_snippets_that_end_give_what_they_gave() -> None:
    text = '''@func_native("""
int n = 0, i = 0;
while (i < x) { ++i; if (i == 3) continue; if (i == 7) break; n += i; }
do { n += 100; } while (++i < 10);
for (;;) { if (i > 20) break; else ++i; }
if (n > 0) for (int k = 0; k < 5; ++k) if (k == 2) continue; else n += k;
else n = -1;
// while (true) is a comment, and so is interrupted
return 1000 * n + i;
""")
def f(x: int) -> int: ...

@func_native("""
struct Twice { int of(int v) { while (v < 9) v *= 2; return v; } };
auto more = [](int v) { while (v < 90) v += 7; return v; };
while (int left = 5 - x) { if (left) break; }
return Twice().of(x) + more(x);
""")
def g(x: int) -> int: ...

def run(x: array[int], y: array[int], z: array[int]):
    i = tid()
    y[i] = f(x[i])
    z[i] = g(x[i])
'''
    y, z = kl.zeros(3, dtype=int), kl.zeros(3, dtype=int)
    kl.launch(kl.compile(text)["run"], dim=3, inputs=[kl.array([2, 5, 50], dtype=int)], outputs=[y, z])
    assert y.list() == [(3 + 800 + 8) * 1000 + 21, (12 + 500 + 8) * 1000 + 21, (18 + 300 + 8) * 1000 + 21]
    assert z.list() == [16 + 93, 10 + 96, 50 + 92]
