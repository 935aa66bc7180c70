"""Where mathematics or Python leaves a choice: what the docs of the records promise, by other means."""

import math
from itertools import product
from statistics import NormalDist

import numpy as np
import pytest

import kernelab as kl
from kernelab.backend.common.backends import pack
from kernelab.backend.cpu import interpreter
from kernelab.backend.cpu.cpu_backend import CpuBackend
from kernelab.builtins.arithmetic import floordiv, mod, pow_, shl, shr, where
from kernelab.builtins.convert import extract, insert, row
from kernelab.builtins.matrix import determinant, inverse, matrix_product
from kernelab.builtins.scalar import bit_count, log, rint, round_, sign, sqrt, step
from kernelab.builtins.vector import argmax, argmin, cross, dot, normalize, outer
from kernelab.codegen.cpp.entry import layout_of
from kernelab.lang.build import Builder, Expr
from kernelab.lang.ir import Function, Var
from kernelab.lang.types import Mat, Scalar, Vec, float32, float64, int8, int32, int64
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.common.scalarise import scalarise
from tests.support.table import LANES, Case, Numpy, case_of, cotangents, lanes

DIVIDENDS = [-128, -127, -7, -6, -1, 0, 1, 5, 6, 7, 127]
DIVISORS = [-128, -3, -2, -1, 1, 2, 3, 127]
PAIRS = list(product(DIVIDENDS, DIVISORS))
TYPES = (int8, int32, int64, float32, float64)


def wrapped(value: float, scalar: Scalar) -> float:
    """A whole number in the range of a signed type, as overflow leaves it."""
    half = 1 << (scalar.bits - 1)
    return (int(value) + half) % (2 * half) - half if scalar.is_int else value


@pytest.fixture(scope="module")
def compiled() -> dict[str, Numpy]:
    """The quotients and remainders of all pairs, by operation and type, from one build."""
    types = {f"{name}_{scalar}": (name, scalar) for name in ("floordiv", "mod") for scalar in TYPES}
    kernels = {key: case_of(name, scalar, scalar).kernel(key) for key, (name, scalar) in types.items()}
    entries = CpuBackend().build([scalarise(kernel) for kernel in kernels.values()])
    results = {}
    for key, (_, scalar) in types.items():
        a, b = np.array(PAIRS, scalar.dtype).T.copy()
        out = np.zeros(len(PAIRS), scalar.dtype)
        entries[key](pack(layout_of(kernels[key]), [len(PAIRS)], {"a": a, "b": b, "out": out}))
        results[key] = out
    return results


@pytest.mark.parametrize("scalar", TYPES, ids=str)
def test_floor_division_and_remainder_are_those_of_python(scalar: Scalar, compiled: dict[str, Numpy]) -> None:
    number = int if scalar.is_int else float
    quotients = [wrapped(number(a) // number(b), scalar) for a, b in PAIRS]
    remainders = [number(a) % number(b) for a, b in PAIRS]
    pairs = np.array(PAIRS, scalar.dtype)
    assert [floordiv(a, b) for a, b in pairs] == quotients
    assert [mod(a, b) for a, b in pairs] == remainders
    np.testing.assert_array_equal(compiled[f"floordiv_{scalar}"], quotients)
    np.testing.assert_array_equal(compiled[f"mod_{scalar}"], remainders)


HARD = [(1.0, 0.1), (-1.0, 0.1), (5.5, -0.5), (-0.0, 2.0), (1e300, 3.0), (2.0, np.inf)]


@pytest.mark.parametrize(("a", "b"), HARD)
def test_the_expansions_of_floor_division_and_remainder_round_as_python_does(a: float, b: float) -> None:
    for name, wanted in (("floordiv", a // b), ("mod", a % b)):
        function = scalarise(case_of(name, float64, float64).function())
        (found,) = interpreter.evaluate(function, lanes(a), lanes(b))
        assert (found[0], np.signbit(found[0])) == (wanted, np.signbit(wanted))


def test_division_of_a_float_by_zero_gives_what_division_gives() -> None:
    function = scalarise(case_of("floordiv", float64, float64).function())
    (found,) = interpreter.evaluate(function, lanes(1.0, -1.0, 0.0), lanes(0.0))
    np.testing.assert_array_equal(found[:3], [np.inf, -np.inf, np.nan])


def test_a_shift_by_the_width_or_more_or_by_a_negative_amount_leaves_only_the_sign() -> None:
    assert [int(shl(5, b)) for b in (0, 31, 32, -1)] == [5, -(2**31), 0, 0]
    assert [int(shr(-5, b)) for b in (0, 1, 32, -1)] == [-5, -3, -1, -1]


def test_sign_is_one_at_zero_and_step_is_one_below_zero() -> None:
    assert [float(sign(x)) for x in (-2.0, 0.0, 3.0)] == [-1.0, 1.0, 1.0]
    assert [float(step(x)) for x in (-2.0, 0.0, 3.0)] == [1.0, 0.0, 0.0]


def test_round_takes_halves_away_from_zero_and_rint_to_even() -> None:
    halves = (-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997)
    assert [float(round_(x)) for x in halves] == [-3, -2, -1, 1, 2, 3, 0]
    assert [float(rint(x)) for x in halves] == [-2, -2, 0, 0, 2, 2, 0]


def inverse_error_function(name: str, *values: float) -> list[float]:
    """By the expansion, which is what compiled kernels run; the oracle says the same."""
    function = scalarise(case_of(name, float64).function())
    (found,) = interpreter.evaluate(function, lanes(*values))
    with np.errstate(invalid="ignore"):
        oracle = case_of(name, float64).op.numpy(np.array(values))
    np.testing.assert_allclose(found[: len(values)], oracle, rtol=1e-13)
    return [float(y) for y in found[: len(values)]]


def test_the_inverse_error_function_is_the_quantile_of_the_normal_distribution() -> None:
    for x in (-0.999999, -0.7, -0.5, -0.1, 0.3, 0.49, 0.51, 0.9, 0.9999999999):
        wanted = NormalDist().inv_cdf((1.0 + x) / 2.0) / np.sqrt(2.0)
        (found,) = inverse_error_function("erfinv", x)
        assert np.isclose(found, wanted, rtol=1e-7 if x > 0.99999 else 1e-10)


def test_the_inverse_error_functions_are_accurate_where_their_operand_is_tiny() -> None:
    (small,) = inverse_error_function("erfinv", 1e-20)
    assert np.isclose(small * 2.0 / np.sqrt(np.pi), 1e-20, rtol=1e-14)
    for c in (1e-300, 1e-30, 1e-5, 0.2, 0.7, 1.3, 1.999):
        (found,) = inverse_error_function("erfcinv", c)
        assert np.isclose(math.erfc(found), c, rtol=1e-11)


def test_the_inverse_error_functions_end_in_infinities_and_nan() -> None:
    assert inverse_error_function("erfinv", -1.0, 0.0, 1.0) == [-np.inf, 0.0, np.inf]
    assert inverse_error_function("erfcinv", 0.0, 1.0, 2.0) == [np.inf, 0.0, -np.inf]
    assert np.isnan(inverse_error_function("erfinv", 1.5, -2.0, np.nan)).all()


@pytest.mark.parametrize("value", [0, 1, -1, -128, 127, 85])
def test_the_bits_of_a_negative_number_are_counted_in_its_own_width(value: int) -> None:
    wanted = (value % 256).bit_count()
    (found,) = interpreter.evaluate(
        scalarise(case_of("bit_count", int8).function()), lanes(value, dtype=np.int8)
    )
    assert (int(bit_count(np.int8(value))), int(found[0])) == (wanted, wanted)


def test_the_least_component_has_the_derivative_and_of_equal_ones_the_first() -> None:
    (bar,) = gradient(case_of("min", Vec(float64, 3)), lanes([5.0, 2.0, 2.0]))
    assert bar.tolist() == [0.0, 1.0, 0.0]
    assert (int(argmin(np.array([5.0, 2.0, 2.0]))), int(argmax(np.array([5.0, 2.0, 5.0])))) == (1, 0)


def gradient(case: Case, *operands: Numpy, w: Numpy | None = None) -> list[Numpy]:
    """The cotangents of the operands in the first lane, for a cotangent of ones."""
    seed = np.ones_like(case.out()) if w is None else w
    return [bar[0] for bar in cotangents(case, list(operands), seed).values()]


@pytest.mark.parametrize("name", ["min", "max"])
def test_at_a_tie_the_first_operand_has_the_derivative(name: str) -> None:
    assert gradient(case_of(name, float64, float64), lanes(2.0), lanes(2.0)) == [1.0, 0.0]
    vec2 = Vec(float64, 2)
    first, second = gradient(case_of(name, vec2, vec2), lanes([2.0, 2.0]), lanes([2.0, 2.0]))
    assert (first.tolist(), second.tolist()) == ([1.0, 1.0], [0.0, 0.0])


@pytest.mark.parametrize("x", [-1.0, 1.0])
def test_on_a_bound_of_clamp_the_derivative_goes_to_the_number(x: float) -> None:
    case = case_of("clamp", float64, float64, float64)
    assert gradient(case, lanes(x), lanes(-1.0), lanes(1.0)) == [1.0, 0.0, 0.0]


def test_the_absolute_value_has_derivative_zero_at_zero() -> None:
    assert gradient(case_of("abs", float64), lanes(0.0)) == [0.0]


@pytest.mark.parametrize("name", ["length", "normalize", "length_sq"])
def test_the_zero_vector_has_derivative_zero(name: str) -> None:
    (bar,) = gradient(case_of(name, Vec(float64, 3)), lanes([0.0, 0.0, 0.0]))
    assert bar.tolist() == [0.0, 0.0, 0.0]


def test_the_zero_vector_normalized_is_zero() -> None:
    assert normalize(np.zeros(3)).tolist() == [0.0, 0.0, 0.0]


def test_a_power_with_exponent_zero_is_flat_and_zero_to_a_power_does_not_depend_on_it() -> None:
    case = case_of("pow", float64, float64)
    assert gradient(case, lanes(0.0), lanes(0.0)) == [0.0, 0.0]
    assert gradient(case, lanes(0.0), lanes(2.0)) == [0.0, 0.0]
    assert float(pow_(0.0, 0.0)) == 1.0


def test_a_negative_base_has_a_derivative_where_the_exponent_is_whole() -> None:
    base, exponent = gradient(case_of("pow", float64, float64), lanes(-3.0), lanes(2.0))
    assert base == -6.0
    assert np.isnan(exponent)
    assert gradient(case_of("pow", float64, int32), lanes(-3.0), lanes(3, dtype=np.int32)) == [27.0]


def masked(function: object, y: float) -> tuple[float, float]:
    """The value and tangent of ``where(x > 0, function(x), y)`` at 0."""
    x, builder = Var(float64, "x"), Builder()
    expr = Expr(builder, x)
    result = where(expr > 0.0, function(expr), y)  # type: ignore[operator]
    program = jvp(Function("masked", (x,), builder.close(result.atom)), ["x"])
    value, moved = interpreter.evaluate(program, lanes(0.0), lanes(1.0))
    return float(value[0]), float(moved[0])


def test_a_branch_that_is_not_chosen_leaves_no_trace_in_the_tangent() -> None:
    assert masked(sqrt, 0.0) == (0.0, 0.0)
    assert masked(log, 2.0) == (2.0, 0.0)


def test_an_index_of_a_vector_counts_from_the_end_where_it_is_negative() -> None:
    v = np.array([1.0, 2.0, 3.0], np.float32)
    assert [float(extract(v, i)) for i in (0, 2, -1, -3)] == [1.0, 3.0, 3.0, 1.0]
    assert insert(v, -1, np.float32(9.0)).tolist() == [1.0, 2.0, 9.0]
    m = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert row(m, -1).tolist() == [3.0, 4.0, 5.0]
    assert float(extract(m, -1, 0)) == 3.0


RNG = np.random.default_rng(11)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7, 12])
def test_determinant_and_inverse_are_those_of_linear_algebra(n: int) -> None:
    m = RNG.uniform(-1, 1, (n, n)) + 2 * np.eye(n)
    assert np.isclose(determinant(m), np.linalg.det(m), rtol=1e-12)
    np.testing.assert_allclose(inverse(m), np.linalg.inv(m), rtol=1e-12)


def test_rows_are_exchanged_where_a_matrix_needs_it() -> None:
    m = np.roll(np.diag([1e-9, 2.0, -3.0, 1e9, 5.0, 6.0, 7.0]), 2, axis=0)
    assert np.isclose(determinant(m), np.linalg.det(m), rtol=1e-12)
    np.testing.assert_allclose(inverse(m), np.linalg.inv(m), rtol=1e-12)
    assert determinant(m * (np.arange(7) != 3)) == 0.0


def test_products_are_those_of_linear_algebra() -> None:
    a, b = RNG.uniform(-1, 1, (2, 3)), RNG.uniform(-1, 1, (3, 4))
    u, v = RNG.uniform(-1, 1, (2, 3))
    np.testing.assert_allclose(matrix_product(a, b), a @ b, rtol=1e-14)
    np.testing.assert_allclose(cross(u, v), np.cross(u, v), rtol=1e-14)
    np.testing.assert_allclose(outer(u, v), np.outer(u, v), rtol=1e-14)
    assert np.isclose(dot(u, v), u @ v, rtol=1e-14)


def test_the_inverse_is_nan_where_the_determinant_overflows() -> None:
    kernel = kl.compile("def invert(m: array[mat33]):\n    i = tid()\n    m[i] = inverse(m[i])")["invert"]
    m = kl.array(np.multiply.outer([2.0, 1e13], np.eye(3)), dtype=kl.mat33)
    kl.launch(kernel, dim=2, inputs=[m])
    np.testing.assert_array_equal(m.numpy()[0], 0.5 * np.eye(3))
    assert np.isnan(m.numpy()[1]).all()


def test_the_inverse_of_a_singular_matrix_poisons_no_derivative_that_is_zero() -> None:
    case = case_of("inverse", Mat(float64, 2, 2))
    (bar,) = gradient(case, np.zeros((LANES, 2, 2)), w=np.zeros((LANES, 2, 2)))
    assert bar.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_on_the_host_wrong_operands_are_named_with_what_is_taken() -> None:
    with pytest.raises(TypeError, match=r"cross takes no \(vec3d, float32\); it is defined as cross\("):
        cross(np.zeros(3), 1.0)


@pytest.mark.parametrize("backend", ["cpu", "interp"])
def test_sums_products_and_bits_of_matrices_of_integers_are_integers(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELAB_BACKEND", backend)
    text = """
def k(m: array[mat22i], v: array[vec2i], n: array[int], out: array[mat22i], w: array[vec2i]):
    n[0] = trace(m[0])
    n[1] = ddot(m[0], m[1])
    out[0] = outer(v[0], v[1])
    out[1] = (m[0] << m[1]) | (~m[0] & m[1])
    out[2] = diag(v[0])
    w[0] = get_diag(m[1])
"""
    a, b, v = np.array([[1, 2], [3, 4]]), np.array([[3, 1], [0, 2]]), np.array([[5, -6], [7, 8]])
    n, out, w = kl.zeros(2, dtype=int), kl.zeros(3, dtype=kl.mat22i), kl.zeros(1, dtype=kl.vec2i)
    kl.launch(
        kl.compile(text)["k"],
        1,
        inputs=[kl.array(np.stack([a, b]), dtype=kl.mat22i), kl.array(v, dtype=kl.vec2i), n, out, w],
    )
    assert n.list() == [np.trace(a), (a * b).sum()]
    expected = [np.outer(v[0], v[1]), (a << b) | (~a & b), np.diag(v[0])]
    assert out.numpy().tolist() == np.stack(expected).tolist()
    assert w.numpy().tolist() == [[3, 2]]


def test_the_derivative_of_copysign_has_the_signs_of_zeros_too() -> None:
    @kl.kernel
    def signed(x: kl.array[float], y: kl.array[float], z: kl.array[float]) -> None:  # type: ignore[valid-type]
        i = kl.tid()
        z[i] = kl.copysign(x[i], y[i])

    x = kl.array([2.0, 2.0, -2.0, -2.0, -0.0, -0.0], requires_grad=True)
    y, z = kl.array([0.0, -0.0, 3.0, -3.0, 1.0, -1.0]), kl.zeros(6, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(signed, 6, [x, y, z])
    tape.backward(grads={z: kl.ones(6)})
    assert x.grad.list() == [1.0, -1.0, -1.0, 1.0, -1.0, 1.0]


def test_a_matrix_can_be_made_of_one_row_or_column() -> None:
    @kl.kernel
    def laid(rows: kl.array[float], columns: kl.array[float]) -> None:  # type: ignore[valid-type]
        row = kl.matrix_from_rows(kl.vec3(1.0, 2.0, 3.0))
        column = kl.matrix_from_cols(kl.vec3(1.0, 2.0, 3.0))
        for k in range(3):
            rows[k], columns[k] = row[0, k], column[k, 0]

    rows, columns = kl.zeros(3), kl.zeros(3)
    kl.launch(laid, 1, [rows, columns])
    assert rows.list() == columns.list() == [1.0, 2.0, 3.0]
