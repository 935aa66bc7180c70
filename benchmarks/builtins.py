"""Count the builtins of Warp's list that pass their tests, and measure their errors and build times.

    python benchmarks/builtins.py [--write benchmarks/RESULTS.md]

The list is that of Warp 1.19, without tiles, meshes, volumes, textures, hash grids and BVHs.  Errors are
those of the CPU backend against NumPy at the same width, in units in the last place of the greatest
component.  Build times are medians of processor time, of a text never seen before, with a cold cache.
"""

import argparse
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

os.environ.setdefault("KERNELAB_CACHE_DIR", tempfile.mkdtemp())
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import kernelab as kl
from kernelab.backend.common.backends import pack
from kernelab.backend.cpu.cpu_backend import CpuBackend
from kernelab.codegen.cpp.entry import layout_of
from kernelab.frontend.meaning.name_lookup import language
from kernelab.lang import ops
from kernelab.lang.types import Scalar, bool_, float32, float64, int32, scalar_of, uint32
from kernelab.passes.common.scalarise import scalarise
from tests.support import checks
from tests.support.table import LANES, Case, Numpy, cases, expected, named

HEADING = "# Builtins"
ROUNDS = 32

FAMILIES = {
    "scalar": "abs acos asin atan atan2 bit_count cbrt ceil clamp copysign cos cosh degrees erf erfc "
    "erfcinv erfinv exp floor frac isfinite isinf isnan log log10 log2 max min nonzero pow "
    "radians rint round sign sin sinh sqrt step tan tanh trunc",
    "vector and matrix": "argmax argmin cross cw_div cw_mul ddot determinant diag dot eig3 get_diag "
    "identity inverse inverse_approx length length_sq matrix matrix_from_cols "
    "matrix_from_rows norm_huber norm_l1 norm_l2 norm_pseudo_huber normalize outer "
    "qr3 skew smooth_normalize svd2 svd3 trace transpose vector",
    "quaternion": "quat_from_axis_angle quat_from_euler quat_from_matrix quat_identity quat_inverse "
    "quat_rotate quat_rotate_inv quat_rpy quat_slerp quat_to_axis_angle quat_to_euler "
    "quat_to_matrix quat_to_rpy quat_twist quat_twist_angle quat_twist_angle_signed "
    "quaternion",
    "transformation": "transform_compose transform_decompose transform_from_matrix "
    "transform_get_rotation transform_get_translation transform_identity "
    "transform_inverse transform_multiply transform_point transform_set_rotation "
    "transform_set_translation transform_to_matrix transform_vector transformation",
    "spatial": "spatial_adjoint spatial_bottom spatial_cross spatial_cross_dual spatial_dot spatial_top "
    "spatial_vector transform_twist transform_wrench velocity_at_point",
    "geometry": "closest_point_edge_edge intersect_tri_tri",
    "random": "curlnoise noise pnoise poisson rand_init randf randi randn randu sample_cdf sample_triangle "
    "sample_unit_cube sample_unit_disk sample_unit_hemisphere sample_unit_hemisphere_surface "
    "sample_unit_ring sample_unit_sphere sample_unit_sphere_surface sample_unit_square",
    "operators": "add bit_and bit_or bit_xor div div_approx floordiv invert lshift mod mul neg pos "
    "rshift sub unot",
    "utility": "array atomic_add atomic_and atomic_cas atomic_exch atomic_max atomic_min "
    "atomic_or atomic_sub atomic_xor block_dim breakpoint cast expect_near len lerp "
    "lower_bound print printf select smoothstep static tid where zeros",
}
OURS = {"lshift": "shl", "rshift": "shr"}
"""What stands in the table by another name."""

NOT_THERE = {"array", "block_dim", "breakpoint"}
"""Words of Warp that mean nothing here, or, as `array` in a kernel, something else."""
SNIPPETS = {
    "scalar": "y[i] = tanh(y[i])",
    "vector and matrix": "m[i] = inverse(m[i])",
    "quaternion": "q[i] = quat_slerp(q[i], quat_inverse(q[i]), 0.5)",
    "transformation": "q[i] = transform_get_rotation(transform_inverse(transform(v[i], q[i])))",
    "spatial": "v[i] = velocity_at_point(spatial_vector(v[i], v[i]), v[i])",
    "geometry": "v[i] = closest_point_edge_edge(v[i], v[0], v[1], v[2], 1e-6)",
    "random": "y[i] = y[i] * randn(s)",
    "noise": "y[i] = noise(s, v[i])",
    "decompositions": "a, b, c = svd3(m[i])\n    m[i] = a * transpose(c)",
}

Check = Callable[[Case], None]


@dataclass(frozen=True, slots=True)
class Row:
    """How many builtins of a family there are and pass each kind of test."""

    family: str
    listed: int
    there: int
    in_table: int
    passed: tuple[int, ...]


def passes(name: str, items: list[Case], check: Check) -> bool:
    """Whether a check holds of every case; a builtin without one passes."""
    for case in items:
        try:
            check(case)
        except AssertionError as error:
            print(f"{case.name}: {error}", file=sys.stderr)
            return False
    return True


def at_every_edge(case: Case) -> None:
    """Zero derivatives stay zero at the edges of the domain."""
    checks.zero_cotangent_stays_zero(case)
    checks.zero_tangent_stays_zero(case)


def rows() -> Iterator[Row]:
    """A row for each family."""
    by_name: dict[str, list[Case]] = {}
    for case in cases((bool_, int32, uint32, float32, float64)):
        by_name.setdefault(case.op.name, []).append(case)
    known = set(language()) | set(ops.names())
    for family, text in FAMILIES.items():
        names = [OURS.get(name, name) for name in text.split()]
        there = [name for name in names if name in known and name not in NOT_THERE]
        tested = {name: by_name[name] for name in there if name in by_name}
        smooth = {
            name: [case for case in found if case.active and scalar_of(case.result) == float64]
            for name, found in tested.items()
        }
        passed = (
            sum(passes(name, found, checks.expansion_is_the_oracle) for name, found in tested.items()),
            sum(passes(name, found, checks.tangent_is_the_slope) for name, found in smooth.items()),
            sum(passes(name, found, checks.adjoint_is_the_transpose) for name, found in smooth.items()),
            sum(passes(name, found, at_every_edge) for name, found in smooth.items()),
        )
        yield Row(family, len(names), len(there), len(tested), passed)


def errors(scalar: Scalar) -> dict[str, list[tuple[float, str]]]:
    """The error of each record by family, in units in the last place, with the name of the case."""
    family_of = {OURS.get(n, n): family for family, text in FAMILIES.items() for n in text.split()}
    wanted = [
        case
        for case in cases((bool_, int32, uint32, scalar))
        if case.op.name in family_of and scalar_of(case.result) == scalar
    ]
    kernels = [case.kernel(f"kernel_{k}") for k, case in enumerate(wanted)]
    entries: dict[str, Any] = {}
    for start in range(0, len(kernels), 200):
        entries |= CpuBackend().build([scalarise(kernel) for kernel in kernels[start : start + 200]])
    found: dict[str, list[tuple[float, str]]] = {}
    for case, kernel in zip(wanted, kernels, strict=True):
        error = max(_error(case, entries[kernel.name], layout_of(kernel), seed) for seed in range(ROUNDS))
        found.setdefault(family_of[case.op.name], []).append((error, case.name))
    return found


def _error(case: Case, entry: Any, layout: Any, seed: int) -> float:
    operands, out = case.draw(seed), case.out()
    entry(pack(layout, [LANES], named(case, operands) | {"out": out}))
    return ulps(out.reshape(LANES, -1), expected(case, operands).reshape(LANES, -1))


def ulps(found: Numpy, wanted: Numpy) -> float:
    """The greatest error of a component, in units in the last place of the greatest component beside it."""
    unit = np.spacing(np.maximum(np.abs(wanted).max(axis=1, keepdims=True), np.finfo(wanted.dtype).tiny))
    return float(np.nanmax(np.abs(found.astype(np.float64) - wanted) / unit, initial=0.0))


PROLOGUE = """
def k(y: array[float], v: array[vec3], q: array[quat], m: array[mat33]):
    i = tid()
    s = rand_init({seed})
    y[i] = y[i] + {seed}.5
"""


def build_times(repeat: int = 3) -> dict[str, tuple[float, float]]:
    """Processor milliseconds from a new text to the end of its first launch, and of its first gradient."""
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in range(repeat + 1):
        for family, line in {**SNIPPETS, "one of each": "\n    ".join(SNIPPETS.values())}.items():
            times = _build(PROLOGUE.format(seed=seed * 1000 + len(family)) + f"    {line}\n")
            if seed:
                found.setdefault(family, []).append(times)
    return {family: (median(a for a, _ in t), median(b for _, b in t)) for family, t in found.items()}


def _cpu_time() -> float:
    """Seconds of processor time, also of the compiler: other programs do not lengthen it."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in spent)


def _build(text: str) -> tuple[float, float]:
    arrays = [
        kl.array(np.random.default_rng(0).normal(size=shape), dtype=dtype, requires_grad=True)
        for shape, dtype in (((4,), float), ((4, 3), kl.vec3), ((4, 4), kl.quat), ((4, 3, 3), kl.mat33))
    ]
    start = _cpu_time()
    kernel = kl.compile(text)["k"]
    with kl.Tape() as tape:
        kl.launch(kernel, 4, arrays)
    launched = _cpu_time() - start
    written = [array for name, array in zip("yvqm", arrays, strict=True) if f"    {name}[i] =" in text]
    tape.backward(grads={array: kl.ones_like(array) for array in written})
    return launched * 1e3, (_cpu_time() - start) * 1e3


def report() -> str:
    """The tables as Markdown."""
    lines = [HEADING, "", *__doc__.split("\n\n")[2].strip().split("\n"), "Made by `make builtins`.", ""]
    lines += [
        "| family | in Warp's list | in kernelab | in the table | value | tangent | adjoint | edges |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows():
        counts = " | ".join(map(str, row.passed))
        lines.append(f"| {row.family} | {row.listed} | {row.there} | {row.in_table} | {counts} |")
    lines += ["", "What is not in the table is a word of the language, with tests of its own.", ""]
    lines += [
        "| error (ulp) | float32: mean | worst | of | float64: mean | worst | of |",
        "|---|---|---|---|---|---|---|",
    ]
    narrow, wide = errors(float32), errors(float64)
    for family in FAMILIES:
        cells = [_summary(found.get(family, [])) for found in (narrow, wide)]
        lines.append(f"| {family} | {cells[0]} | {cells[1]} |")
    lines += [
        "",
        "| a kernel that uses | first launch (ms) | with adjoint (ms) |",
        "|---|---|---|",
        *(f"| {name} | {first:.0f} | {second:.0f} |" for name, (first, second) in build_times().items()),
    ]
    return "\n".join(lines) + "\n"


def _summary(found: list[tuple[float, str]]) -> str:
    if not found:
        return "| | "
    worst, name = max(found)
    return f"{np.mean([error for error, _ in found]):.3f} | {worst:.2g} | {name if worst else ''}"


def main() -> None:
    """Run everything, print the report, and replace it in a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", type=Path, help="replace the part of this file that is about builtins")
    options = parser.parse_args()
    text = report()
    print(text)
    if options.write:
        before = options.write.read_text().partition(HEADING)[0].rstrip()
        options.write.write_text(f"{before}\n\n{text}")


if __name__ == "__main__":
    main()
