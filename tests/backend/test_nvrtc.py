"""CUDA text: every kernel compiles with NVRTC, without a header and without a GPU."""

from dataclasses import replace

import pytest

import kernelab as kl
from kernelab.backend.cuda.nvrtc import compile_to_ptx
from kernelab.codegen.cpp.cuda_target import Cuda
from kernelab.codegen.cpp.emitter import emit
from kernelab.errors import BuildError
from kernelab.lang.build import constant, integer
from kernelab.lang.ir import Function
from kernelab.lang.types import SCALARS, Array, bool_
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.scalarise import scalarise
from kernelab.passes.common.simplify import simplify
from kernelab.runtime.kernel.program import Pullback
from tests.codegen import kernels
from tests.codegen.kernels import CASES
from tests.codegen.writer import Writer
from tests.support.lowering import lowered
from tests.support.zoo import ZOO

pytestmark = pytest.mark.nvrtc


def ptx(*functions: Function) -> str:
    return compile_to_ptx(emit([scalarise(function) for function in functions], Cuda()).text)


def test_every_kernel_compiles_to_an_entry() -> None:
    functions = [case.function for case in CASES]
    functions += [kernels.appending(), kernels.endless(), kernels.checked()]
    text = ptx(*functions)
    assert text.count(".visible .entry") == len(functions)


def test_adjoints_compile() -> None:
    cases = [kernels.saxpy(), kernels.newton(), kernels.vectors(), kernels.mathematics()]
    names = [("x", "y"), ("x", "y"), ("x", "y", "p"), ("x", "u")]
    programs = [vjp(case.function, active) for case, active in zip(cases, names, strict=True)]
    assert ptx(*(program.adjoint for program in programs)).count(".visible .entry") == len(cases)


def test_every_program_of_the_zoo_compiles() -> None:
    programs: list[Function] = []
    for animal in ZOO:
        kernel = simplify(lowered(animal.text, animal.name))
        reverse = vjp(kernel, animal.differentiable)
        programs += [
            kernel,
            _named(reverse.primal, "kept"),
            reverse.adjoint,
            jvp(kernel, animal.differentiable),
        ]
    assert ptx(*programs).count(".visible .entry") == 4 * len(ZOO)


def test_a_snippet_may_have_functions_of_its_own() -> None:
    text = '''@func_native("""
struct Twice { int of(int v) { return 2 * v; } };
auto more = [](int v) { return v + 7; };
return more(Twice().of(x));
""")
def f(x: int) -> int: ...

def run(x: array[int], y: array[int]):
    y[tid()] = f(x[tid()])
'''
    assert ".visible .entry" in ptx(lowered(text, "run"))


def test_the_kernels_of_operators_reductions_and_optimisers_compile() -> None:
    x, v = kl.ones(3, requires_grad=True), kl.ones(2, dtype=kl.vec3, requires_grad=True)
    with kl.Tape() as tape:
        y = kl.map(lambda a, b: kl.sin(a) * b, -x / 2.0, x**2)
        y[1:] += x[:1]
        y *= y
        kl.utils.array_sum(v * 2.0, out=kl.zeros(1, dtype=kl.vec3, requires_grad=True))
        kl.utils.array_inner(v, v, axis=0)
        kl.utils.array_scan(x, y)
        kl.optim.Adam([x]).step([kl.zeros(3)])
        kl.optim.SGD([x]).step([kl.zeros(3)])
    programs: list[Function] = []
    for k, launch in enumerate(tape.launches):
        assert isinstance(launch.pullback, Pullback)
        program = launch.pullback.vjp
        parts = {"primal": launch.kernel.primal, "kept": program.primal, "adjoint": program.adjoint}
        programs += [_named(function, f"{part}_{k}") for part, function in parts.items()]
    assert ptx(*programs).count(".visible .entry") == 3 * len(tape.launches)


def _named(function: Function, suffix: str) -> Function:
    return replace(function, name=f"{function.name}_{suffix}")


def test_atomics_of_every_width_compile() -> None:
    numbers = [scalar for scalar in SCALARS if scalar != bool_]
    w = Writer("sums", **{f"x_{s}": Array(s, 1) for s in numbers})
    (i,) = w.tid("i")
    for scalar in numbers:
        old = w.atomic_add(w[f"x_{scalar}"], [integer(0)], constant(1, scalar))
        w.store(w[f"x_{scalar}"], [i], old)
    text = ptx(w.function())
    assert "atom.add.f64" in text or "atom.global.add.f64" in text


def test_nothing_is_contracted() -> None:
    assert "fma.rn" not in ptx(kernels.saxpy().function)


def test_text_may_name_textures() -> None:
    text = """extern "C" __global__ void k(float* x, unsigned long long image) {
  *x = tex2D<float>((cudaTextureObject_t)image, 0.5f, 0.5f);
}"""
    assert "tex.2d" in compile_to_ptx(text)


def test_a_complaint_shows_the_log_of_the_compiler() -> None:
    with pytest.raises(BuildError, match='identifier "nonsense" is undefined'):
        compile_to_ptx('extern "C" __global__ void k(int* x) { *x = nonsense; }')


def test_numbers_of_different_types_may_share_memory() -> None:
    """What loops keep does, and arrays that are views of others: NVRTC has no flag that says so."""
    ptx = compile_to_ptx("""
extern "C" __global__ void k(char* p, char* r, float* q, int n) {
  *(int*)p = n;
  *q = *(float*)r;
  *(int*)p = n + 2;
}
""")
    moves = [word for word in ptx.split() if word.startswith(("ld.global", "st.global"))]
    assert moves == ["st.global.u32", "ld.global.f32", "st.global.f32", "st.global.u32"]
