"""`print` and `printf` in kernels: what reaches the reader, in which order, and what is refused."""

import numpy as np
import pytest

import kernelab as kl
from kernelab.backend.common import backends
from kernelab.backend.common.backends import Entry, pack
from kernelab.backend.cpu import interpreter
from kernelab.codegen.cpp.cuda_target import Cuda
from kernelab.codegen.cpp.emitter import emit
from kernelab.codegen.cpp.entry import PRINT_LIMIT
from kernelab.lang.ir import Print, walk
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.scalarise import scalarise
from tests.frontend.helpers import error
from tests.support.lowering import lowered

EVERYTHING = """
def kernel(x: array[float], v: array[vec2], m: array[mat22], d: array[float64], h: array[float16]):
    i = tid()
    print("thread", i, "of", len(x))
    for k in range(i):
        print(x[k], x[k] > 1.0, uint64(2**63), sep=";", end="|\\n")
    print(v[i], m[i], (i, 2.5))
    printf("%5.2f%% and %03d, %x\\n", x[i], i, -1)
    printf("%e %lld %g\\n", d[i], int64(i) * int64(1000000000000), h[i])
    printf("%-4s|%s\\n", "ab", "50%")
    print(int8(-3), d[i], h[i])
    if i == 1:
        print()
        print("só \\"quoted\\"\\t.")
"""


def both(text: str) -> list[Entry]:
    function = lowered(text, "kernel")
    return [interpreter.entry(function), backends.get("cpu").build([scalarise(function)])["kernel"]]


def arguments() -> dict[str, object]:
    x = np.array([0.1, 1.5], np.float32)
    return {
        "x": x,
        "v": np.array([[1, 2], [3, 4.25]], np.float32),
        "m": np.arange(8, dtype=np.float32).reshape(2, 2, 2),
        "d": np.array([1 / 3, 2.0]),
        "h": np.array([0.1, 2.0], np.float16),
    }


def test_both_backends_print_the_same_in_the_order_of_the_threads(capsys: pytest.CaptureFixture[str]) -> None:
    given = arguments()
    printed = []
    for entry in both(EVERYTHING):
        entry(pack(entry.info.layout, (2,), given))
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert printed[0].splitlines() == [
        "thread 0 of 2",
        "[1.0, 2.0] [[0.0, 1.0], [2.0, 3.0]] (0, 2.5)",
        " 0.10% and 000, ffffffff",
        "3.333333e-01 0 0.0999756",
        "ab  |50%",
        "-3 0.3333333333333333 0.1",
        "thread 1 of 2",
        "0.1;False;9223372036854775808|",
        "[3.0, 4.25] [[4.0, 5.0], [6.0, 7.0]] (1, 2.5)",
        " 1.50% and 001, ffffffff",
        "2.000000e+00 1000000000000 2",
        "ab  |50%",
        "-3 2.0 2.0",
        "",
        'só "quoted"\t.',
    ]


def test_what_was_printed_before_an_error_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    text = """
def kernel(x: array[float]):
    i = tid()
    print(i)
    assert x[i] < 2.0
    print("fine")
"""
    given = {"x": np.array([1, 3, 1], np.float32)}
    for entry in both(text):
        with pytest.raises(kl.KernelAssertionError):
            entry(pack(entry.info.layout, (3,), given))
        assert capsys.readouterr().out == "0\nfine\n1\n"


def test_of_very_many_lines_the_rest_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    given = {"x": np.zeros(1, np.float32)}
    for entry in both("def kernel(x: array[float]):\n    print(tid())"):
        entry(pack(entry.info.layout, (PRINT_LIMIT + 7,), given))
        lines = capsys.readouterr().out.splitlines()
        assert lines[-2:] == [str(PRINT_LIMIT - 1), "... and 7 more lines"]
        entry(pack(entry.info.layout, (1,), given))
        assert capsys.readouterr().out == "0\n"


def test_a_launch_prints_once_and_its_adjoint_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    text = "def kernel(x: array[float]):\n    i = tid()\n    print(i, x[i])\n    x[i] = x[i] * x[i]"
    kernel = kl.compile(text)["kernel"]
    x = kl.array([2.0, 3.0], dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        kernel[2](x)
    assert capsys.readouterr().out == "0 2.0\n1 3.0\n"
    tape.backward(grads={x: kl.ones_like(x)})
    assert capsys.readouterr().out == ""
    assert x.grad.list() == [4.0, 6.0]


def test_derived_programs_print_where_they_run_the_kernel() -> None:
    function = lowered("def kernel(x: array[float]):\n    print(x[0])\n    x[0] = sin(x[0])", "kernel")
    program = vjp(function, ["x"])

    def prints(function: object) -> int:
        return sum(isinstance(stmt, Print) for stmt in walk(function.body))  # type: ignore[attr-defined]

    assert [prints(f) for f in (program.primal, program.adjoint, jvp(function, ["x"]))] == [1, 0, 1]


@pytest.mark.nvrtc
def test_cuda_prints_with_its_own_printf() -> None:
    from kernelab.backend.cuda.nvrtc import compile_to_ptx

    text = emit([scalarise(lowered(EVERYTHING, "kernel"))], Cuda()).text
    assert 'printf("%5.2f%% and %03d, %x\\n", ' in text
    assert "vprintf" in compile_to_ptx(text)


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("print(x)", "a kernel cannot print array[float32]", "print one of its elements"),
        ("print(x[0], file=1)", "print in a kernel has no file", "leave it out"),
        ("print(x[0], end=1)", "end of print has to be plain text in a kernel", 'write end=""'),
        (
            "printf(x[0])",
            "printf takes text first, and then numbers",
            'write printf("x = %f\\n", x), or print(x)',
        ),
        ('printf("%d", x[0])', "%d cannot show float32", "write %f"),
        ('printf("%f", len(x))', "%f cannot show int32", "write %d"),
        ('printf("%s", x[0])', "printf in a kernel cannot show a number as %s", "%d shows an integer"),
        ('printf("%d", "text")', "%d shows a number, not text", "write %s"),
        ('printf("%f")', "this text has 1 conversion, and printf gets 0 to show", "each %d"),
        ('printf("%f", vec2(x[0]))', "%f shows one number, not vec2", "one by one"),
        ('print(1.0, "a" + x[0])', "a kernel cannot build text", "print("),
    ],
)
def test_what_cannot_be_printed_is_said(line: str, message: str, hint: str) -> None:
    found = error(f"def kernel(x: array[float]):\n    {line}")
    assert found.message == message
    assert hint in found.hint
