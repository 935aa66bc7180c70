"""Operators and `map`: their values and types, what a tape makes of them, and what they refuse."""

import linecache
import operator
import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelab as kl

RATE = 3.0
OFFSET = np.array([1.0, 2.0, 3.0], np.float32)


def array(*values: float, dtype: Any = float) -> kl.array:
    return kl.array(values, dtype=dtype)  # type: ignore[no-any-return]


def values(x: Any) -> list[Any]:
    assert isinstance(x, kl.array)
    return x.list()


def gradients(function: Callable[..., kl.array], *inputs: list[float]) -> list[Any]:
    leaves = [kl.array(value, dtype=kl.float64, requires_grad=True) for value in inputs]
    with kl.Tape() as tape:
        result = function(*leaves)
    tape.backward(grads={result: kl.ones_like(result)})
    return [leaf.grad.numpy() for leaf in leaves if leaf.grad is not None]


def differences(function: Callable[..., kl.array], *inputs: list[float]) -> list[Any]:
    """The derivatives of the sum of the results by central differences."""
    found = []
    for k, value in enumerate(inputs):
        flat = np.asarray(value, np.float64)
        slopes = np.zeros_like(flat)
        for i in np.ndindex(flat.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = flat.copy()
                moved[i] += step
                given = [*inputs[:k], moved, *inputs[k + 1 :]]
                ends.append(function(*(kl.array(x, dtype=kl.float64) for x in given)).numpy().sum())
            slopes[i] = (ends[0] - ends[1]) / 2e-6
        found.append(slopes)
    return found


class Elsewhere:
    """An array of another library, which takes arrays of kernelab to its right."""

    def __rmul__(self, other: Any) -> str:
        return "its own"


# ------------------------------------------------------------------------------------------ operators


@pytest.mark.parametrize(
    "compute", [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod]
)
def test_an_operator_does_for_arrays_and_numbers_what_numpy_does(compute: Callable[..., Any]) -> None:
    a, b = array(7.0, -8.0, 9.5), array(2.0, 3.0, -4.0)
    x, y = a.numpy(), b.numpy()
    assert np.array_equal(compute(a, b).numpy(), compute(x, y))
    assert np.array_equal(compute(a, 2.5).numpy(), compute(x, np.float32(2.5)))
    assert np.array_equal(compute(2, b).numpy(), compute(np.float32(2), y))


BITS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]


@pytest.mark.parametrize("compute", BITS)
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
def test_operators_of_bits_do_what_numpys_do(compute: Callable[..., Any], dtype: type) -> None:
    x, y = np.array([1, 7, 12], dtype), np.array([3, 0, 2], dtype)
    a, b = kl.array(x), kl.array(y)
    given = [(a, b), (a, 3), (a, dtype(3)), (a, y), (x, b), (dtype(3), b)]
    for left, right in given:
        found = compute(left, right)
        wanted = compute(*(np.asarray(one) if isinstance(one, kl.array) else one for one in (left, right)))
        assert isinstance(found, kl.array)
        assert found.numpy().dtype == dtype
        assert np.array_equal(found.numpy(), wanted)


@pytest.mark.parametrize(
    "change", [operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift]
)
@pytest.mark.parametrize("other", [2, np.int32(2), np.array([1, 2, 3], np.int32)])
def test_bits_change_in_place_also_by_what_numpy_gives(change: Callable[..., Any], other: Any) -> None:
    whole, wanted = array(1, -7, 12, 5, dtype=int), np.array([1, -7, 12, 5], np.int32)
    part = whole[1:]
    assert change(part, other) is part
    change(wanted[1:], other)
    assert np.array_equal(whole.numpy(), wanted)


def test_masks_are_joined_and_turned_around() -> None:
    a = array(-2.0, 0.5, 1.0, 3.0)
    inside = (a > 0.0) & (a < 2.0)
    assert values(inside) == [False, True, True, False]
    assert values(~inside) == values((a <= 0.0) | (a >= 2.0)) == [True, False, False, True]
    assert values(inside ^ (a > 0.75)) == [False, True, False, True]
    assert values(~array(0, -1, 5, dtype=int)) == [-1, 0, -6]


def test_a_product_in_place_changes_the_array_and_has_its_gradient() -> None:
    def product(x: kl.array, y: kl.array) -> kl.array:
        held = view = kl.clone(x)
        held @= y
        assert held is view
        return view * view

    given = [[1.0, 2.0], [3.0, 4.0]], [[0.5, 1.0], [-1.0, 2.0]]
    for found, wanted in zip(gradients(product, *given), differences(product, *given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_powers_signs_and_magnitudes() -> None:
    a = array(1.0, -2.0, 3.0)
    assert values(a**2) == [1, 4, 9]
    assert values(a**-1) == [1, -0.5, np.float32(1 / 3)]
    assert values(a**17) == [1, -(2**17), np.float32(3.0) ** 17]
    assert values(2**a) == [2, 0.25, 8]
    assert values(-a) == [-1, 2, -3]
    assert values(+a) == values(a)
    assert values(abs(a)) == [1, 2, 3]


def test_numpy_numbers_and_arrays_are_operands_on_either_side() -> None:
    a = array(1.0, 2.0, 3.0)
    assert values(np.sqrt(4.0) * a) == [2, 4, 6]
    assert values(OFFSET + a) == values(a + OFFSET) == [2, 4, 6]
    assert (np.float64(2) * a).dtype == kl.float32


def test_numbers_take_the_type_of_the_array_as_literals_do_in_kernels() -> None:
    i = array(1, 2, 3, dtype=int)
    assert (i * 2).dtype == kl.int32
    assert (values(i * 2.5), (i * 2.5).dtype) == ([2.5, 5, 7.5], kl.float32)
    assert (values(i / 2), values(i // 2)) == ([0.5, 1, 1.5], [0, 1, 1])
    assert (array(1.0, dtype=kl.float64) * 0.1).list() == [0.1]
    assert (array(1, dtype=kl.int64) / 2).dtype == kl.float64


def test_shapes_stretch_as_numpys_do() -> None:
    grid, row, column = np.arange(6.0).reshape(2, 3), np.arange(3.0), np.array([[1.0], [2.0]])
    g, r, c = (kl.array(given, dtype=float) for given in (grid, row, column))
    assert np.array_equal((g + r).numpy(), grid + row)
    assert np.array_equal((c * r).numpy(), column * row)
    assert np.array_equal((g - array(1.0)).numpy(), grid - 1)
    assert np.array_equal((g[:, ::2] * 2.0).numpy(), grid[:, ::2] * 2)


def test_vectors_and_matrices_have_the_operators_that_kernels_have() -> None:
    v = kl.array([[1.0, 2.0, 3.0]], dtype=kl.vec3)
    m = kl.array([np.eye(3) * 2], dtype=kl.mat33)
    assert ((v + v * 2.0) / 3.0).numpy().tolist() == [[1, 2, 3]]
    assert (m * v).numpy().tolist() == [[2, 4, 6]]


def test_in_place_operators_change_the_array_and_its_views() -> None:
    a = array(1.0, 2.0, 3.0, 4.0)
    same, part = a, a[::2]
    part *= 10.0
    a += 1.0
    a -= array(1.0, 1.0, 1.0, 1.0)
    a /= 2
    assert same is a
    assert values(a) == [5, 1, 15, 2]


def test_an_array_is_changed_by_its_own_shifted_view_as_if_that_had_been_read_before() -> None:
    a = array(1.0, 2.0, 3.0, 4.0)
    tail = a[1:]
    tail += a[:-1]
    assert values(a) == [1, 3, 5, 7]


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        (lambda a: a + kl.zeros(2), r"shapes \(3,\) and \(2,\)"),
        (
            lambda a: a + kl.zeros(3, dtype=kl.float64),
            r"add float32 and float64(.|\n)*a\.astype\(kl\.float64\)",
        ),
        (lambda a: operator.iadd(kl.zeros(3, dtype=int), a), "int32, not float32"),
        (lambda a: operator.iadd(kl.zeros(3, dtype=int), 1.5), r"int32, not float32(.|\n)*kl\.int32\("),
        (lambda a: operator.iadd(a, kl.zeros((2, 3))), r"fit \(3,\)"),
        (lambda a: kl.zeros(3, dtype=kl.vec3) * kl.zeros(3, dtype=kl.vec3), "vec3 and vec3"),
        (lambda a: kl.ones(3, dtype=kl.uint8) * 300, "300 does not fit uint8"),
        (lambda a: a & 1, "& does not take float32"),
        (lambda a: a * np.True_, "multiply float32 by bool"),
        (lambda a: operator.iadd(a, np.True_), "add float32 and bool"),
        (lambda a: operator.imul(a, Elsewhere()), r"\*= does not change an array by an Elsewhere"),
        (lambda a: operator.imatmul(a, kl.ones(3)), r"shape \(3,\), the data have shape \(1,\)"),
        (lambda a: operator.setitem(a, slice(None), kl.ones(2)), r"shapes \(3,\) and \(2,\)"),
    ],
)
def test_what_does_not_go_together_is_refused(compute: Callable[..., Any], message: str) -> None:
    with pytest.raises(kl.KernelError, match=message):
        compute(array(1.0, 2.0, 3.0))


def test_integers_divided_by_zero_are_an_error() -> None:
    with pytest.raises(kl.KernelZeroDivisionError):
        array(1, 2, dtype=int) // 0


def test_what_is_no_operand_is_pythons_own_error() -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        array(1.0) + "x"


def test_what_another_library_knows_is_left_to_it() -> None:
    assert array(1.0) * Elsewhere() == "its own"


# ------------------------------------------------------------------------------------------ map


def test_a_lambda_is_mapped_with_what_it_names_around_it() -> None:
    a = array(1.0, 2.0, 3.0)
    local = 10.0
    assert values(kl.map(lambda x: RATE * x + local, a)) == [13, 16, 19]
    local = 20.0
    assert values(kl.map(lambda x: RATE * x + local, a)) == [23, 26, 29]


def test_several_lambdas_of_a_line_are_told_apart() -> None:
    a = array(4.0)
    first, second, third = lambda x: x + 1.0, lambda x: x - 1.0, lambda y: lambda x: x * 3.0
    assert [values(kl.map(f, a)) for f in (first, second, third(0))] == [[5], [3], [12]]


def test_a_lambda_made_in_a_loop_keeps_the_default_it_was_made_with() -> None:
    for scaled in ([lambda x, k=k: x * k for k in (2.0, 3.0)], [lambda x, *, k=k: x * k for k in (2.0, 3.0)]):
        assert [values(kl.map(f, array(1.0))) for f in scaled] == [[2], [3]]


def test_functions_as_defaults_are_told_apart_though_they_have_one_name() -> None:
    text = "def g(t: float):\n    return t * {}"
    twice, thrice = (kl.compile(text.format(factor))["g"] for factor in (2.0, 3.0))
    mapped: list[Any] = [lambda x, g=g: g(x) for g in (twice, thrice)]
    assert [values(kl.map(f, array(1.0))) for f in mapped] == [[2], [3]]


def distance(x: Any, y: Any) -> Any:
    if x > y:
        return x - y
    return y - x


@kl.func
def weighted(x: float, n: int):  # type: ignore[no-untyped-def]
    return x * float(n)


def test_functions_of_all_kinds_are_mapped() -> None:
    a = array(1.0, 2.0, 3.0)
    cell: dict[str, Any] = kl.compile("def cubed(x):\n    return x * x * x")
    assert values(kl.map(distance, a, 2.0)) == [1, 0, 1]
    assert values(kl.map(weighted, a, 3)) == [3, 6, 9]
    assert values(kl.map(cell["cubed"], a)) == [1, 8, 27]
    assert values(kl.map(kl.max, a, 2.0)) == values(kl.map(np.maximum, a, 2.0)) == [2, 2, 3]
    assert values(kl.map(np.sqrt, a * a)) == values(kl.map(abs, -a)) == [1, 2, 3]
    assert kl.map(kl.float64, a).dtype == kl.float64


def test_operations_of_the_language_go_through_arrays_as_map_does() -> None:
    a, p = array(1.0, -2.0, 3.0), kl.array([[3.0, 4.0, 0.0]], dtype=kl.vec3)
    assert values(kl.exp(a)) == values(kl.map(kl.exp, a))
    assert values(kl.max(a, 0.0)) == values(kl.where(a > 0.0, a, 0.0)) == [1, 0, 3]
    assert kl.clamp(a, kl.zeros((2, 1)), 1.0).numpy().tolist() == [[1, 0, 1], [1, 0, 1]]
    assert values(kl.length(p)) == values(kl.dot(p, kl.vec3(1.0, 0.5, 9.0))) == [5]
    turns = kl.array(np.array([np.eye(3) * 2.0]), dtype=kl.mat33)
    factors = kl.qr3(turns)
    assert isinstance(factors, tuple) and np.allclose(np.abs(factors[1].numpy()), 2.0 * np.eye(3))


def test_derivatives_follow_operations_on_arrays() -> None:
    x = kl.array([0.5, 2.0], requires_grad=True)
    with kl.Tape() as tape:
        loss = kl.sin(kl.sqrt(x)).sum()
    tape.backward(loss)
    slopes = np.cos(np.sqrt([0.5, 2.0])) / (2.0 * np.sqrt([0.5, 2.0]))
    assert np.allclose(x.grad.numpy(), slopes)
    assert np.allclose(kl.func.vmap(kl.func.grad(lambda t: kl.sin(kl.sqrt(t))))(x).numpy()[:, 0], slopes)
    assert float(kl.func.grad(kl.sin)(0.5)) == pytest.approx(np.cos(0.5))
    assert np.allclose(kl.func.grad(kl.length)(kl.vec3(0.0, 3.0, 4.0)), [0.0, 0.6, 0.8])


def test_several_results_become_several_arrays() -> None:
    total, product = kl.map(lambda x, y: (x + y, x * y), array(1.0, 2.0), array(3.0, 4.0))
    assert (values(total), values(product)) == ([4, 6], [3, 8])


def test_results_go_where_out_says_also_into_an_argument() -> None:
    a, b = array(1.0, 2.0), kl.zeros(2)
    assert kl.map(lambda x: x + 1.0, a, out=b) is b
    kl.map(lambda x: x * x, b, out=b)
    assert values(b) == [4, 9]


def test_a_function_may_read_vectors_and_return_numbers() -> None:
    v = kl.array([[3.0, 4.0, 0.0]], dtype=kl.vec3)
    assert values(kl.map(kl.length, v)) == [5]
    assert values(kl.map(lambda p: kl.dot(p, p), v)) == [25]


def nothing(x: Any) -> None:
    x + 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: kl.map(print, a), "a function of numbers first"),
        (lambda a: kl.map(lambda x: eval(x), a), "the name eval is not known"),
        (lambda a: kl.map(eval("lambda x: x"), a), "source text of this lambda cannot be found"),
        (lambda a: kl.map(nothing, a), "returns nothing"),
        (lambda a: kl.map(lambda x, y: x, a), "given 1 argument"),
        (lambda a: kl.map(lambda x: x, 1.0), "needs an array"),
        (lambda a: kl.map(lambda x: x, a, out=kl.zeros(2)), r"shape \(3,\), and out= has \(2,\)"),
        (lambda a: kl.map(lambda x: x, a, out=3), "out= takes an array, not an int"),
        (lambda a: kl.map(lambda x: x, a, out=[a, a]), "has 1 results, and out= has 2"),
    ],
)
def test_what_cannot_be_mapped_is_refused(call: Callable[..., Any], message: str) -> None:
    with pytest.raises(kl.KernelError, match=message):
        call(array(1.0, 2.0, 3.0))


# ------------------------------------------------------------------------------------------ derivatives


def in_place(x: kl.array, y: kl.array) -> kl.array:
    z = x * y
    z += x
    z *= z
    z **= 2
    z /= y
    z -= 0.5
    return z


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: 2.0 * x - y / x + x**3 + abs(-y) * x**0.5,
        in_place,
        lambda x, y: kl.map(lambda a, b: kl.sin(a) * b if a > b else a * b, x, y),
        lambda x, y: kl.map(lambda a: a * a, x * y, out=kl.zeros(3, dtype=kl.float64, requires_grad=True)),
    ],
)
def test_gradients_agree_with_differences(function: Callable[..., kl.array]) -> None:
    inputs = [[1.5, 0.5, 2.0], [0.7, 1.3, 1.1]]
    for found, expected in zip(gradients(function, *inputs), differences(function, *inputs), strict=True):
        assert np.allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_the_gradient_of_a_stretched_operand_is_summed() -> None:
    grid, row = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [0.5, 1.5, 2.5]
    found = gradients(lambda g, r: g * r * r, grid, row)  # type: ignore[arg-type]
    expected = differences(lambda g, r: g * r * r, grid, row)  # type: ignore[arg-type]
    assert np.allclose(found[1], expected[1])


def test_overlapping_operands_in_place_have_the_right_gradient() -> None:
    def shifted(x: kl.array) -> kl.array:
        y = x * 1.0
        tail = y[1:]
        tail *= y[:-1]
        return y

    inputs = [1.5, 0.5, 2.0]
    assert np.allclose(gradients(shifted, inputs)[0], differences(shifted, inputs)[0])


def test_results_require_gradients_where_an_operand_does() -> None:
    a, leaf = array(1.0), kl.ones(1, requires_grad=True)
    assert (a + leaf).requires_grad
    assert not (a + a).requires_grad
    assert not kl.map(lambda x: int(x), leaf).requires_grad


def test_a_gradient_belongs_to_the_array_that_the_user_holds() -> None:
    grid, one = kl.ones((2, 2), requires_grad=True), kl.ones(1, requires_grad=True)
    with kl.Tape() as tape:
        loss = grid * one
    tape.backward(grads={loss: kl.ones_like(loss)})
    assert tape.gradients[one].list() == [4]
    assert tape.gradients[grid].numpy().tolist() == [[1, 1], [1, 1]]


# ------------------------------------------------------------------------------------------ parts of arrays


def parts(x: kl.array, y: kl.array) -> kl.array:
    z = x * y
    z[1:] += y[1:]
    z[:1] *= 3.0
    return z


def assigned(x: kl.array, y: kl.array) -> kl.array:
    z = kl.zeros((3, 3), dtype=x.dtype, requires_grad=x.requires_grad)
    z[0] = x * x
    z[1:] = y
    z[:, 2:] = x[:1]
    z[2, 0] = y[1:2]
    return z * z


def narrowed(x: kl.array, y: kl.array) -> kl.array:
    z = kl.zeros(3, requires_grad=x.requires_grad)
    z[:] = x * y
    return z


@pytest.mark.parametrize("function", [parts, assigned])
def test_assigning_to_parts_of_an_array_is_differentiated(function: Callable[..., kl.array]) -> None:
    inputs = [[1.5, 0.5, 2.0], [0.7, 1.3, 1.1]]
    for found, expected in zip(gradients(function, *inputs), differences(function, *inputs), strict=True):
        assert np.allclose(found, expected)


def test_assigning_converts_and_is_differentiated_then_too() -> None:
    found = gradients(narrowed, [1.5, 0.5, 2.0], [0.5, 1.0, 4.0])
    assert found[0].tolist() == [0.5, 1, 4]


def test_assigning_without_a_tape_does_what_numpy_does() -> None:
    x = kl.zeros((2, 3))
    x[:] = array(1.0, 2.0, 3.0, dtype=kl.float64)
    x[1] += array(1.0, 1.0, 1.0)
    x[0, 0] = array(9.0)
    x[:, 2] = 5.0
    assert x.numpy().tolist() == [[9, 2, 5], [2, 3, 5]]


def test_an_attribute_that_changed_is_captured_anew() -> None:
    scene = SimpleNamespace(water=SimpleNamespace(density=2.0))
    x = kl.array([1.0], dtype=float)
    assert kl.map(lambda v: v * scene.water.density, x).list() == [2.0]
    scene.water.density = 3.0
    assert kl.map(lambda v: v * scene.water.density, x).list() == [3.0]


def test_a_large_value_that_was_changed_in_place_is_captured_anew() -> None:
    weights = kl.spatial_matrix(np.eye(6, dtype=np.float32))

    def corner(x):  # type: ignore[no-untyped-def]
        return x * weights[0, 0]

    first = kl.map(corner, kl.ones(2)).list()
    weights[0, 0] = 3.0
    assert (first, kl.map(corner, kl.ones(2)).list()) == ([1, 1], [3, 3])


COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@pytest.mark.parametrize("compare", COMPARISONS)
@pytest.mark.parametrize("dtype", [kl.float32, kl.int32, kl.bfloat16])
def test_comparisons_go_element_by_element_as_numpys_do(compare: Any, dtype: Any) -> None:
    a, b = np.array([[1, 2, 3], [3, 2, 1]]), np.array([2, 2, 2])
    x, y = kl.array(a, dtype=dtype), kl.array(b, dtype=dtype)
    assert str(compare(x, y).dtype) == "bool"
    np.testing.assert_array_equal(compare(x, y).numpy(), compare(a, b))
    np.testing.assert_array_equal(compare(2, x).numpy(), compare(2, a))
    np.testing.assert_array_equal(compare(x[[1, 0]], y).numpy(), compare(a[[1, 0]], b))
    lanes = kl.func.vmap(lambda row: compare(row, y))(x)
    np.testing.assert_array_equal(lanes.numpy(), compare(a, b))


def test_vectors_are_equal_where_all_components_are() -> None:
    v = kl.array([[1, 2, 3], [4, 5, 6]], dtype=kl.vec3)
    assert (v == kl.vec3(4, 5, 6)).list() == [False, True]
    assert (v != v).list() == [False, False]


def test_arrays_are_keys_by_identity() -> None:
    x, y = kl.zeros(2), kl.zeros(2)
    held = {x: "x", y: "y"}
    assert (held[x], held[y], len({x, y, x})) == ("x", "y", 2)
    assert x is not None and (x == None) is False and (x != "text") is True  # noqa: E711


def test_only_one_element_is_true_or_false() -> None:
    assert kl.array([3.0]) and not kl.array([[0]])
    for many in (kl.zeros(2), kl.zeros(0)):
        with pytest.raises(kl.KernelValueError, match="neither true nor false"):
            bool(many)
    with pytest.raises(kl.KernelValueError, match="neither true nor false"):
        assert kl.zeros(2) == kl.zeros(2)
    with pytest.raises(kl.GradientError, match="differ between the lanes"):
        kl.func.vmap(lambda x: (bool(x[0:1]), x)[1])(kl.ones((2, 2)))


def test_a_comparison_on_a_tape_ends_no_chain() -> None:
    x = kl.array([1.0, -2.0], requires_grad=True)
    with kl.Tape() as tape:
        y = x * x
        assert (y > 2.0).list() == [False, True]
    tape.backward(grads={y: kl.ones(2)})
    assert x.grad.list() == [2, -4]


def test_a_function_whose_annotation_was_edited_is_lowered_anew(tmp_path: Path) -> None:
    """Its byte code is the same: Python does not evaluate annotations of variables."""
    text = "import kernelab as kl\ndef f(v):\n    s: kl.{} = 2048.0\n    s += 1.0\n    return float(s) * v\n"
    path, results = tmp_path / "functions.py", []
    for name in ("float16", "float32"):
        path.write_text(text.format(name))
        linecache.checkcache(str(path))
        results += values(kl.map(runpy.run_path(str(path))["f"], array(1.0)))
    assert results == [2048.0, 2049.0]


HALF = kl.float16


def test_annotations_of_variables_name_what_the_code_does_not() -> None:
    def rounded(v: Any) -> Any:
        s: HALF = 2049.0  # type: ignore[valid-type]
        return float(s) * v

    assert values(kl.map(rounded, array(1.0))) == [2048.0]


def test_a_whole_number_is_the_integer_that_an_operation_takes() -> None:
    v = kl.array([[0.1, 0.2, 0.3]] * 2, dtype=kl.vec3)
    alone = kl.quat_from_euler(kl.vec3(0.1, 0.2, 0.3), 0, 1, 2)
    assert np.allclose(kl.quat_from_euler(v, 0, 1, 2).numpy(), [list(alone)] * 2)
    assert np.allclose(kl.map(kl.quat_from_euler, v, 0, np.int64(1), 2).numpy(), [list(alone)] * 2)
    noise = kl.noise(kl.rand_init(3), kl.vec3(0.1, 0.2, 0.3))
    assert np.allclose(kl.noise(kl.rand_init(3), v).numpy(), [noise] * 2)
    with pytest.raises(kl.KernelTypeError, match=r"0.5 cannot stand for int32(.|\n)*write int"):
        kl.quat_from_euler(v, 0.5, 1, 2)
    with pytest.raises(kl.KernelTypeError, match="the argument state is uint32, not float32"):
        kl.noise(kl.ones(2), v)
    with pytest.raises(kl.KernelTypeError, match=r"cond is bool, not float32(.|\n)*x > 0.0"):
        kl.where(kl.ones(2), 1.0, 2.0)


def test_a_fraction_is_not_cut_off_for_an_integer_parameter() -> None:
    @kl.func
    def scaled(n: int, x: float) -> float:
        return float(n) * x

    x = kl.array([1.0, 2.0])
    assert kl.map(scaled, 2, x).list() == scaled(2, x).list() == [2.0, 4.0]
    with pytest.raises(kl.KernelTypeError, match=r"2.5 cannot stand for int32"):
        kl.map(scaled, 2.5, x)
