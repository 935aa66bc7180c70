"""Python functions with a derivative of their own, `custom_vjp`, on tapes and under every transform."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from tests.support.lesson import shown

Host = np.ndarray[Any, Any]

rng = np.random.default_rng(0)
MATRIX = np.asarray(rng.normal(size=(3, 3)) + 3.0 * np.eye(3))
RIGHT = np.asarray(rng.normal(size=3))


def solve_back(a: Any, b: Any, x: Any, x_bar: Any) -> tuple[Host, Host]:
    b_bar = np.linalg.solve(a.numpy().T, x_bar.numpy())
    return -np.outer(b_bar, x.numpy()), b_bar


def solve_host(a: Any, b: Any) -> Host:
    return np.linalg.solve(a.numpy(), b.numpy())


solve = kl.func.custom_vjp(solve_host, solve_back)


def loss(a: Any, b: Any) -> Any:
    x = solve(a, b * b)
    return (x * x).sum()


def exact(a: Host, b: Host) -> float:
    x = np.linalg.solve(a, b * b)
    return float(x @ x)


def slopes(f: Callable[[Host], Any], at: Host) -> Host:
    found = []
    for k in range(at.size):
        step = np.zeros(at.size)
        step[k] = 1e-5
        step = step.reshape(at.shape)
        found.append((np.asarray(f(at + step)) - np.asarray(f(at - step))) / 2e-5)
    return np.stack(found, -1).reshape(*np.shape(found[0]), *at.shape)


BY_MATRIX = slopes(lambda a: exact(a, RIGHT), MATRIX)
BY_RIGHT = slopes(lambda b: exact(MATRIX, b), RIGHT)


def arrays(dtype: Any = float, requires_grad: bool = False) -> tuple[Any, Any]:
    made = (kl.array(values, dtype=dtype, requires_grad=requires_grad) for values in (MATRIX, RIGHT))
    a, b = made
    return a, b


def agree(found: Any, wanted: Any, tolerance: float = 2e-4) -> None:
    found = found.numpy() if isinstance(found, kl.array) else np.asarray(found)
    np.testing.assert_allclose(found.reshape(np.shape(wanted)), wanted, rtol=tolerance, atol=tolerance)


def test_alone_it_is_the_function_with_floats_of_the_type_given() -> None:
    for dtype in (kl.float32, kl.float64):
        x = solve(*arrays(dtype))
        assert (x.dtype, x.requires_grad) == (dtype, False)
        agree(x, np.linalg.solve(MATRIX, RIGHT), 1e-5)


def test_on_a_tape_it_is_pulled_by_its_derivative_from_the_values_of_the_call() -> None:
    a, b = arrays(requires_grad=True)
    with kl.Tape() as tape:
        total = loss(a, b)
        a.fill_(0.0)
    tape.backward(total)
    agree(a.grad, BY_MATRIX)
    agree(b.grad, BY_RIGHT)


@pytest.mark.parametrize("overwrite", ["save", "warn", "error"])
def test_on_a_tape_a_change_of_what_the_derivative_takes_is_an_error_where_it_cannot_be_undone(
    overwrite: Any,
) -> None:
    def squared_back(b: Any, y_bar: Any) -> Host:
        return 2.0 * b.numpy() * y_bar.numpy()

    squared, b = kl.func.custom_vjp(lambda b: b.numpy() ** 2, squared_back), arrays(requires_grad=True)[1]
    with kl.Tape(overwrite=overwrite) as tape:
        y = squared(b)
    y.numpy()[:] = 7.0  # which it does not take
    tape.backward(grads={y: np.ones(3)})
    agree(b.grad, 2.0 * RIGHT)
    b.numpy()[:] = 7.0
    with pytest.raises(kl.TapeError, match=r"`b` was changed through a view .*, but the function"):
        tape.backward(grads={y: np.ones(3)})


def test_on_a_tape_what_requires_no_gradient_gets_none() -> None:
    a, b = arrays()
    b.requires_grad = True
    with kl.Tape() as tape:
        total = loss(a, b)
    tape.backward(total)
    assert a.grad is None
    agree(b.grad, BY_RIGHT)


def test_reverse_mode() -> None:
    agree(kl.func.grad(loss)(*arrays()), BY_MATRIX)
    value, (by_matrix, by_right) = kl.func.value_and_grad(loss, (0, 1))(*arrays())
    agree(value, [exact(MATRIX, RIGHT)])
    agree(by_matrix, BY_MATRIX)
    agree(by_right, BY_RIGHT)
    x, pull = kl.func.vjp(solve, *arrays())
    agree(pull(kl.ones_like(x))[1], np.linalg.solve(MATRIX.T, np.ones(3)))


def test_forward_mode() -> None:
    a, b = arrays()
    direction = kl.array(rng.normal(size=3), dtype=float)
    _, dot = kl.func.jvp(lambda b: loss(a, b), (b,), (direction,))
    agree(dot, [BY_RIGHT @ direction.numpy()])
    _, both = kl.func.jvp(solve, (a, b), (a, b))
    agree(both, np.zeros(3))  # the solution does not change where both sides grow alike


def test_what_is_overwritten_after_the_call_does_not_matter() -> None:
    def overwriting(a: Any, b: Any) -> Any:
        squared = b * b
        x = solve(a, squared)
        squared.fill_(7.0)
        kept = x * x
        x.fill_(3.0)
        return kept.sum()

    agree(kl.func.grad(overwriting, 1)(*arrays()), BY_RIGHT)
    agree(kl.func.grad(overwriting, 0)(*arrays()), BY_MATRIX)
    a, b = arrays(requires_grad=True)
    with kl.Tape() as tape:
        total = overwriting(a, b)
    tape.backward(total)
    agree(b.grad, BY_RIGHT)


@pytest.mark.parametrize(
    "around", [lambda a, b: kl.checkpoint(loss, a, b), lambda a, b: kl.checkpoint(lambda: loss(a, b))]
)
def test_in_a_checkpoint_it_reads_what_was_there_at_first(around: Callable[[Any, Any], Any]) -> None:
    matrix, b = arrays(requires_grad=True)
    with kl.Tape() as tape:
        a = kl.clone(matrix)
        total = around(a, b)
        a.fill_(7.0)
    tape.backward(total)
    agree(matrix.grad, BY_MATRIX)
    agree(b.grad, BY_RIGHT)


def test_one_that_draws_anew_in_a_checkpoint_is_an_error() -> None:
    drawn = kl.func.custom_vjp(lambda b: b.numpy() * rng.normal(), lambda b, y_bar: y_bar)
    b = arrays(requires_grad=True)[1]
    with kl.Tape() as tape:
        total = kl.checkpoint(lambda b: (drawn(b) * b).sum(), b)
    with pytest.raises(kl.TapeError, match="it did something else than at first"):
        tape.backward(total)


def test_record_func_in_a_checkpoint_is_an_error() -> None:
    with kl.Tape() as tape, pytest.raises(kl.TapeError, match="record_func adds to a tape"):
        kl.checkpoint(lambda b: tape.record_func(lambda: None, [b]), arrays(requires_grad=True)[1])


def squares_host(b: Any) -> Host:
    values: Host = b.numpy()
    values *= values
    return values


def by_kernels(b: Any, y_bar: Any) -> Any:
    b *= 2.0
    y_bar *= b
    return y_bar


def by_numpy(b: Any, y_bar: Any) -> Host:
    bar: Host = y_bar.numpy()
    bar *= 2.0 * b.numpy()
    b.numpy()[:] = 0.0
    return bar


@pytest.mark.parametrize("back", [by_kernels, by_numpy])
def test_what_they_are_given_may_be_changed(back: Callable[..., Any]) -> None:
    squares, b = kl.func.custom_vjp(squares_host, back), arrays(requires_grad=True)[1]
    with kl.Tape() as tape:
        y = squares(b)
        z = y + b
    for _ in range(2):
        tape.zero()
        tape.backward(grads={z: np.ones(3)})
        agree(b.grad, 2.0 * RIGHT + 1.0)
        agree(y.grad, np.ones(3))
    value, pull = kl.func.vjp(squares, b)
    for _ in range(2):
        agree(pull(kl.ones(3))[0], 2.0 * RIGHT)
    agree(value, RIGHT**2)
    agree(kl.func.jvp(squares, (b,), (kl.ones(3),))[1], 2.0 * RIGHT)
    agree(b, RIGHT)


def test_a_tape_that_does_not_save_warns_where_an_argument_is_overwritten() -> None:
    squares = kl.func.custom_vjp(lambda b: b.numpy() ** 2, lambda b, y_bar: 2.0 * b * y_bar)
    b = arrays(requires_grad=True)[1]
    with kl.Tape(overwrite="error"):
        a = kl.clone(b)
        squares(a).fill_(1.0)
        with pytest.raises(
            kl.TapeError, match="`a` is overwritten here, but a function recorded on the tape"
        ):
            a.fill_(1.0)


@pytest.mark.parametrize("mode", [kl.func.jacfwd, kl.func.jacrev])
def test_jacobians(mode: Callable[..., Any]) -> None:
    a, b = arrays()
    agree(mode(solve, 1)(a, b), np.linalg.inv(MATRIX))
    agree(mode(solve, 0)(a, b), slopes(lambda a: np.linalg.solve(a, RIGHT), MATRIX))


def test_lanes_run_one_by_one() -> None:
    a, b = arrays()
    many = kl.array(rng.normal(size=(4, 3)), dtype=float)
    agree(kl.func.vmap(solve, in_dims=(None, 0))(a, many), np.linalg.solve(MATRIX, many.numpy().T).T)
    gradients = kl.func.vmap(kl.func.grad(loss, 1), in_dims=(None, 0))(a, many)
    agree(gradients, [slopes(lambda b: exact(MATRIX, b), row.astype(float)) for row in many.numpy()])
    jacobians = kl.func.vmap(kl.func.jacfwd(solve, 1), in_dims=(None, 0))(a, many)
    agree(jacobians, [np.linalg.inv(MATRIX)] * 4)
    assert b.shape == (3,)


def inner_back(a: Any, b: Any, x: Any, x_bar: Any) -> tuple[Any, Any]:
    b_bar = linear(kl.clone(a.T), x_bar)
    return -(b_bar[:, None] * x[None, :]), b_bar


linear = kl.func.custom_vjp(solve_host, inner_back)


def smooth(b: Any, a: Any) -> Any:
    x = linear(a, b * b)
    return (x * x * x).sum()


def power(n: kl.array, x: kl.array) -> Host:
    return np.asarray(x.numpy() ** n.numpy()[0])


def power_back(n: kl.array, x: kl.array, bar: kl.array) -> Host:
    return np.asarray(n.numpy()[0] * x.numpy() ** (n.numpy()[0] - 1) * bar.numpy())


def power_back_back(n: kl.array, x: kl.array, bar: kl.array, other: kl.array) -> tuple[Host, Host]:
    k, given = n.numpy()[0], x.numpy()
    return k * (k - 1) * given ** (k - 2) * bar.numpy() * other.numpy(), k * given ** (k - 1) * other.numpy()


POWER = kl.func.custom_vjp(power, kl.func.custom_vjp(power_back, power_back_back))
POWERS = kl.func.vmap(POWER)
LANES: dict[str, Callable[[Any, Any], Any]] = {
    "values": POWERS,
    "jacrev around": lambda n, x: kl.func.jacrev(lambda x: POWERS(n, x))(x),
    "jacrev inside": kl.func.vmap(kl.func.jacrev(POWER, 1)),
    "jacfwd around": lambda n, x: kl.func.jacfwd(lambda x: POWERS(n, x))(x),
    "jacfwd inside": kl.func.vmap(kl.func.jacfwd(POWER, 1)),
    "hessian around": lambda n, x: kl.func.hessian(lambda x: POWERS(n, x).sum())(x),
    "hessian inside": kl.func.vmap(kl.func.hessian(lambda n, x: POWER(n, x).sum(), 1)),
    "nested": lambda n, x: kl.func.vmap(lambda n: kl.func.vmap(lambda x: POWER(n, x))(x))(n),
}


@pytest.mark.parametrize("lanes", LANES)
def test_integers_may_differ_between_lanes(lanes: str) -> None:
    n, x = kl.array([2, 3], dtype=int), kl.array([[1.0, 2.0], [3.0, 4.0]])
    exponents, values = n.numpy()[:, None], x.numpy()
    slopes = [exponents * values ** (exponents - 1), exponents * (exponents - 1) * values ** (exponents - 2)]
    given = LANES[lanes](n, x).numpy()
    if lanes == "values":
        agree(given, values**exponents)
    elif lanes == "nested":
        agree(given, np.stack([values**2, values**3]))
    elif lanes.endswith("around"):
        agree(given.reshape(4, 4), np.diag(slopes["hessian" in lanes].reshape(-1)))
    else:
        agree(given, np.stack([np.diag(row) for row in slopes["hessian" in lanes]]))


def test_a_rule_with_integers_that_differ_between_lanes_is_compared() -> None:
    wrong = kl.func.custom_vjp(power, lambda n, x, bar: 1.1 * power_back(n, x, bar))
    n, x = kl.array([2, 3], dtype=int), kl.array([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    assert kl.autograd.gradcheck(lambda x: kl.func.vmap(POWER)(n, x), inputs=[x], show_summary=False)
    with pytest.warns(kl.KernelWarning, match="for `x` along a direction where differences of power give"):
        kl.func.grad(lambda x: kl.func.vmap(wrong)(n, x).sum())(x)


def test_second_derivatives_pass_through_a_derivative_of_arrays() -> None:
    a, b = arrays()

    def f(b: Host) -> float:
        return float((np.linalg.solve(MATRIX, b * b) ** 3).sum())

    first = slopes(f, RIGHT)
    agree(kl.func.grad(smooth)(b, a), first)

    inverse = np.linalg.inv(MATRIX)

    def gradient(b: Host) -> Host:
        return np.asarray(2.0 * b * (inverse.T @ (3.0 * (inverse @ (b * b)) ** 2)))

    second = slopes(gradient, RIGHT)
    agree(kl.func.jacfwd(kl.func.grad(smooth))(b, a), second, 2e-3)
    agree(kl.func.jacrev(kl.func.grad(smooth))(b, a), second, 2e-3)
    agree(kl.func.hessian(smooth)(b, a), second, 2e-3)


def test_second_derivatives_pass_through_a_rule_of_numpy_that_has_a_rule() -> None:
    def twice(x: Any, y_bar: Any, by_x: Any) -> tuple[Host, Host]:
        return (y_bar * by_x * -np.sin(x.numpy())).numpy(), by_x.numpy() * np.cos(x.numpy())

    slope = kl.func.custom_vjp(lambda x, y_bar: y_bar.numpy() * np.cos(x.numpy()), twice)
    wave = kl.func.custom_vjp(lambda x: np.sin(x.numpy()), slope)
    x = kl.array(RIGHT, dtype=float)
    wanted = np.diag(2.0 * np.cos(2.0 * RIGHT))
    for second in (kl.func.hessian, lambda f: kl.func.jacrev(kl.func.grad(f))):
        agree(second(lambda x: (wave(x) * wave(x)).sum())(x), wanted)


def test_second_derivatives_through_numpy_are_not_silent() -> None:
    a, b = arrays()
    for second in (
        lambda: kl.func.hvp(lambda b: loss(a, b), b, kl.ones_like(b)),
        lambda: kl.func.jacrev(kl.func.grad(lambda b: loss(a, b)))(b),
    ):
        with pytest.raises(kl.GradientError, match="a second derivative passes through solve_back"):
            second()
    with pytest.raises(kl.GradientError, match="cannot be read here"):
        kl.func.hessian(lambda b: loss(a, b))(b)


def test_gradcheck_compares_it_in_float64() -> None:
    a, b = arrays(requires_grad=True)
    assert kl.autograd.gradcheck(loss, inputs=[a, b], show_summary=False)

    def wrong(a: Any, b: Any, x: Any, x_bar: Any) -> tuple[Host, Host]:
        by_matrix, by_right = solve_back(a, b, x, x_bar)
        return by_matrix, 2.0 * by_right

    bad = kl.func.custom_vjp(solve_host, wrong, check=False)
    assert not kl.autograd.gradcheck(
        lambda a, b: bad(a, b), inputs=[a, b], show_summary=False, raise_exception=False
    )


def test_several_results_numbers_and_none() -> None:
    def both(x: Any, n: int) -> tuple[Host, float]:
        return x.numpy() ** n, float(x.numpy().sum())

    def back(x: Any, n: int, y_bar: Any, s_bar: Any) -> Host:
        return np.asarray(n * x.numpy() ** (n - 1) * y_bar.numpy() + s_bar.numpy())

    powers = kl.func.custom_vjp(both, back)
    x = kl.array([1.0, 2.0], dtype=float)
    agree(kl.func.jacrev(lambda x: powers(x, 3))(x)[0], np.diag([3.0, 12.0]))
    agree(kl.func.jacfwd(lambda x: powers(x, 3))(x)[1], [[1.0, 1.0]])
    ignored = kl.func.custom_vjp(lambda x: x.numpy() * 2.0, lambda x, y_bar: None, check=False)
    agree(kl.func.jacrev(ignored)(x), np.zeros((2, 2)))


def test_vectors_are_arrays_with_components_last() -> None:
    def turned(v: Any) -> Any:
        return kl.array(v.numpy()[:, ::-1].copy(), dtype=kl.vec3)

    turn = kl.func.custom_vjp(turned, lambda v, out_bar: out_bar.numpy()[:, ::-1])
    v = kl.array(rng.normal(size=(2, 3)), dtype=kl.vec3)
    wanted = np.einsum("ij,kl->ikjl", np.eye(2), np.eye(3)[::-1])
    for mode in (kl.func.jacfwd, kl.func.jacrev):
        agree(mode(turn)(v), wanted)


def test_a_result_of_numpy_with_the_shape_of_the_vectors_is_vectors() -> None:
    def back(v: Any, out_bar: Any) -> Any:
        return out_bar.numpy() * (np.abs(v) < 1.0)

    clip = kl.func.custom_vjp(lambda v: np.clip(v, -1.0, 1.0), back)
    v = kl.array([[2.0, 0.5, 0.25], [-3.0, 0.75, 0.125]], dtype=kl.vec3, requires_grad=True)
    loss = kl.zeros(1, requires_grad=True)
    with kl.Tape() as tape:
        clipped = clip(v)
        v.assign(clipped)
        kl.utils.array_inner(v, v, out=loss)
    assert clipped.dtype == kl.vec3
    tape.backward(loss)
    agree(v.grad, [[0.0, 1.0, 0.5], [0.0, 1.5, 0.25]])
    other = kl.func.custom_vjp(lambda v: v.numpy().sum(1), lambda v, out_bar: np.outer(out_bar, np.ones(3)))
    assert (other(v).dtype, other(v).shape) == (kl.float32, (2,))


@pytest.mark.parametrize(
    ("back", "message"),
    [
        (lambda x: x, "takes 1 argument, for 1 argument and 1 result"),
        (lambda x, y_bar: (y_bar, y_bar), "returned 2 adjoints for 1 arrays"),
        (lambda x, y_bar: np.zeros(3), r"adjoint 0 that .* has to be float32 \(2,\)"),
        (lambda x, y_bar: "no", r"adjoint 0 that .* has to be float32 \(2,\)"),
    ],
)
def test_a_derivative_that_does_not_fit_is_an_error(back: Any, message: str) -> None:
    double = kl.func.custom_vjp(lambda x: x.numpy() * 2.0, back)
    with pytest.raises(kl.GradientError, match=message):
        kl.func.jacrev(double)(kl.array([1.0, 2.0], dtype=float))


def test_structs_and_other_results_are_refused() -> None:
    with pytest.raises(kl.KernelTypeError, match="returned a str"):
        kl.func.custom_vjp(lambda x: "x", lambda x, y_bar: None)(kl.zeros(1))


@pytest.mark.parametrize(
    "argument",
    [
        lambda x: x[0],
        lambda x: 2.0 * x[1],
        lambda x: x.numpy(),
        lambda x: x.list(),
        lambda x: kl.vec2(x[0], 1.0),
    ],
)
@pytest.mark.parametrize("others", [0, 1])
def test_an_argument_that_the_host_took_out_of_an_array_is_reported(
    argument: Callable[[Any], Any], others: int
) -> None:
    weighted = kl.func.custom_vjp(
        lambda *a: np.sum(a[0]) * np.ones(2), lambda *a: [np.zeros(2)] * others, check=False
    )

    def total(x: Any) -> Any:
        squares = x * x
        return (weighted(argument(squares), *[x] * others).astype(x.dtype) + squares).sum()

    x = kl.array([2.0, 3.0], requires_grad=True)
    told = r"no gradient flows from the function <lambda> back to .*: the host took a number there"
    with pytest.warns(kl.KernelWarning, match=told):
        kl.func.grad(total)(x)
    with kl.Tape() as tape:
        y = total(x)
    with pytest.warns(kl.KernelWarning, match=told):
        tape.backward(y)


def test_an_argument_that_does_not_depend_on_what_is_differentiated_is_silent() -> None:
    scaled = kl.func.custom_vjp(lambda x, n: x.numpy() * n, lambda x, n, y_bar: y_bar.numpy() * n)

    def total(x: Any) -> Any:
        assert x[0] > 0.0
        return (scaled(x, 3) + scaled(x, int(x[1])) + scaled(x, kl.ones(1).numpy())).sum()

    x = kl.array([2.0, 3.0], requires_grad=True)
    agree(kl.func.grad(total)(x), [7.0, 7.0])
    with kl.Tape() as tape:
        y = total(x)
    tape.backward(y)
    agree(x.grad, [7.0, 7.0])


def test_picked_elements_are_an_argument_like_any_array() -> None:
    squares = kl.func.custom_vjp(lambda p: p.numpy() ** 2, lambda p, y_bar: 2.0 * p * y_bar)
    places = kl.array([2, 0, 2], dtype=int)

    def total(x: Any) -> Any:
        return squares(x[places]).sum()

    x = kl.array([2.0, 3.0, 5.0], requires_grad=True)
    agree(kl.func.grad(total)(x), [4.0, 0.0, 20.0])
    agree(kl.func.jvp(total, (x,), (kl.ones(3),))[1], [24.0])
    agree(kl.func.hessian(total)(x), np.diag([2.0, 0.0, 4.0]))
    with kl.Tape() as tape:
        y = total(x)
    tape.backward(y)
    agree(x.grad, [4.0, 0.0, 20.0])


def cubed_host(x: Any) -> Host:
    x *= 2.0  # the rule knows nothing of it
    return np.asarray(x.numpy() ** 3)


def test_gradcheck_names_the_line_at_which_a_function_changes_its_argument() -> None:
    cubed = kl.func.custom_vjp(cubed_host, lambda x, y_bar: 3.0 * x**2 * y_bar, check=False)
    x = kl.array([1.0, 2.0], requires_grad=True)
    line = cubed_host.__code__.co_firstlineno + 1
    told = f"cubed_host changes its copy of `x` in test_custom_vjp.py, line {line}"
    assert told in shown(kl.autograd.gradcheck, cubed, inputs=[x])


# ------------------------------------------------------------------- record_func, under transforms


TAPE = kl.Tape()


def cubed(x: Any, by_numpy: bool = False) -> Any:
    """A cube that the host computes, with its derivative, by hand."""
    y = kl.zeros_like(x)
    y.assign(x.numpy() ** 3)

    def cubed_back() -> None:
        if by_numpy:
            x.grad.numpy()[:] += 3.0 * x.numpy() ** 2 * y.grad.numpy()
        else:
            x.grad += 3.0 * x * x * y.grad

    TAPE.record_func(cubed_back, [x, y])
    return y


def of_a_recorded_function(x: Any, by_numpy: bool = False) -> Any:
    """x**7; what the host read is overwritten on the way."""
    square = x * x
    y = cubed(square, by_numpy)
    square.fill_(2.0)
    y *= x
    return y


@pytest.mark.parametrize("by_numpy", [True, False])
def test_record_func_under_transforms(by_numpy: bool) -> None:
    x, ones = kl.array([0.5, -1.0], dtype=float), kl.ones(2, dtype=float)
    slopes = 7.0 * x.numpy() ** 6

    def total(x: Any) -> Any:
        return of_a_recorded_function(x, by_numpy).sum()

    agree(kl.func.grad(total)(x), slopes)
    agree(kl.func.vjp(total, x)[1](kl.array([2.0], dtype=float))[0], 2.0 * slopes)
    agree(kl.func.jvp(total, (x,), (ones,))[1], [slopes.sum()])
    for jacobian in (kl.func.jacrev, kl.func.jacfwd):
        agree(jacobian(lambda x: of_a_recorded_function(x, by_numpy))(x), np.diag(slopes))
    x.requires_grad = True
    found = kl.autograd.jacobian(lambda x: of_a_recorded_function(x, by_numpy), inputs=[x])
    agree(np.asarray(found[0, 0]), np.diag(slopes))


def test_second_derivatives_differentiate_a_recorded_function() -> None:
    x = kl.array([0.5, -1.0], dtype=float)
    hessian = kl.func.hessian(lambda x: cubed(x * 2.0).sum())
    agree(hessian(x), np.diag(48.0 * x.numpy()))
    with pytest.raises(kl.GradientError, match=r"several directions at once[\s\S]*x\.grad\.numpy"):
        kl.func.hessian(lambda x: cubed(x, by_numpy=True).sum())(x)


def test_where_record_func_cannot_work_custom_vjp_is_named() -> None:
    x = kl.array([[0.5, -1.0]], dtype=float, requires_grad=True)
    with pytest.raises(kl.GradientError, match="differ between the lanes of a vmap"):
        kl.func.vmap(cubed)(x)
    with pytest.raises(kl.GradientError, match=r"lanes of a vmap[\s\S]*kl\.func\.custom_vjp"):
        kl.func.vmap(lambda x: TAPE.record_func(lambda: None, [x]))(x)
    with pytest.raises(kl.GradientError, match=r"gradcheck_tape check a function of kl\.func\.custom_vjp"):
        kl.autograd.gradcheck(lambda x: cubed(x).sum(), inputs=[x], show_summary=False)
    third = kl.array([3.0], dtype=float)

    def hidden(x: Any) -> Any:
        scale, y = third * x, kl.zeros(1, dtype=float)

        def back() -> None:
            x.grad += scale * y.grad

        TAPE.record_func(back, [x, y])
        return y

    with pytest.raises(kl.GradientError, match=r"`scale`[\s\S]*name it in arrays="):
        kl.func.jvp(hidden, (third,), (third,))


def test_without_record_func_the_hosts_part_is_still_told() -> None:
    def through(x: Any) -> Any:
        y = kl.zeros(1, dtype=float)
        y.assign(x.numpy() * 3.0)
        return x + y

    with pytest.warns(kl.KernelWarning, match="no gradient flows from `y` back to `x`") as told:
        assert kl.func.grad(through)(kl.ones(1, dtype=float))[0] == 1.0
    assert "y.assign(x.numpy() * 3.0)" in str(told[0].message)


@pytest.mark.parametrize(
    "back",
    [
        lambda a, g, factor=2.0: factor * a.numpy() * g.numpy(),
        lambda a, y, g, factor=2.0: factor * a.numpy() * g.numpy(),
        lambda a, g, *, factor=2.0: factor * a.numpy() * g.numpy(),
        lambda a=None, g=None: 2.0 * a.numpy() * g.numpy(),
        lambda a, *rest: 2.0 * a.numpy() * rest[-1].numpy(),
    ],
)
def test_parameters_with_defaults_keep_them(back: Any) -> None:
    square = kl.func.custom_vjp(lambda a: a.numpy() ** 2, back, check=False)
    found = kl.func.grad(lambda a: square(a).sum())(kl.array([1.0, 2.0, 3.0]))
    assert found.list() == [2.0, 4.0, 6.0]


def scaled_square(a: Any, n: float = 2.0, m: float = 1.0) -> Any:
    return a * a * (n * m)


@pytest.mark.parametrize(
    "back",
    [
        lambda a, n, m, r: r * 2.0 * a * n * m,
        lambda a, n, m, y, r: r * 2.0 * y / a,
        lambda a, r: r * 4.0 * a,  # of the arguments that the call gives
        lambda a, y, r: r * 2.0 * y / a,
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_a_default_that_the_call_leaves_out_is_given_to_the_derivative_that_names_it(
    back: Any, check: bool
) -> None:
    f = kl.func.custom_vjp(scaled_square, back, check=check)
    x = kl.array([1.0, 2.0, 3.0], dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        total = f(x).sum()
    tape.backward(total)
    assert np.allclose(x.grad.numpy(), [4.0, 8.0, 12.0])
    assert np.allclose(kl.func.grad(lambda v: f(v).sum())(x).numpy(), [4.0, 8.0, 12.0])


def test_a_check_of_many_inputs_takes_no_more_memory_than_their_jacobian() -> None:
    n = 200
    square = kl.func.custom_vjp(lambda a: a.numpy() ** 2, lambda a, w: 2 * a.numpy() * w.numpy())
    x = kl.ones(n, dtype=kl.float64, requires_grad=True)
    tracemalloc.start()
    try:
        assert kl.autograd.gradcheck(lambda x: square(x).sum(), inputs=[x], show_summary=False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * n**3  # a product of each result with each direction would take 8 * n**3
