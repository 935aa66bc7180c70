"""A wrong rule of `custom_vjp` is told once, when it is first used; a right one never."""

import random
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.autodiff.transforms import compared

Host = np.ndarray[Any, Any]
Rule = Callable[..., Any]
Way = Callable[[Rule, tuple[Any, ...]], Any]

rng = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def nothing_has_been_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compared, "_KNOWN", {})
    monkeypatch.setitem(globals(), "rng", np.random.default_rng(3))  # the same whichever tests ran before


def numbers(*shape: int, dtype: Any = kl.float32) -> Any:
    return kl.array(rng.uniform(0.5, 2.0, shape), dtype=dtype)


def on_a_tape(rule: Rule, arguments: tuple[Any, ...]) -> None:
    given = [kl.array(a.numpy(), dtype=a.dtype, requires_grad=True) for a in arguments]
    with kl.Tape() as tape:
        result = rule(*given)
    results = result if isinstance(result, tuple) else (result,)
    tape.backward(grads={one: kl.ones_like(one) for one in results})


def in_a_checkpoint(rule: Rule, arguments: tuple[Any, ...]) -> None:
    on_a_tape(lambda *given: kl.checkpoint(rule, *given), arguments)


def pulled(rule: Rule, arguments: tuple[Any, ...]) -> None:
    result, pull = kl.func.vjp(rule, *arguments)
    pull(tuple(map(kl.ones_like, result)) if isinstance(result, tuple) else kl.ones_like(result))


def in_lanes(rule: Rule, arguments: tuple[Any, ...]) -> None:
    many = [kl.array(np.stack([a.numpy()] * 2), dtype=a.dtype) for a in arguments]
    kl.func.vmap(lambda *given: kl.func.jvp(rule, given, given)[1])(*many)


WAYS: dict[str, Way] = {
    "tape": on_a_tape,
    "checkpoint": in_a_checkpoint,
    "vjp": pulled,
    "jvp": lambda rule, given: kl.func.jvp(rule, given, given),
    "jacrev": lambda rule, given: kl.func.jacrev(rule, tuple(range(len(given))))(*given),
    "jacfwd": lambda rule, given: kl.func.jacfwd(rule, tuple(range(len(given))))(*given),
    "vmap": in_lanes,
}


def told(
    func: Rule, back: Rule, arguments: tuple[Any, ...], way: Way = on_a_tape, **options: Any
) -> list[str]:
    """What is said while a function is differentiated twice."""
    rule = kl.func.custom_vjp(func, back, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            way(rule, arguments)
    return [str(one.message) for one in caught]


# ------------------------------------------------------------------------------------------ a family of rules


def solved(a: Any, b: Any) -> Host:
    return np.linalg.solve(a.numpy(), b.numpy())


def solved_back(a: Any, b: Any, x: Any, x_bar: Any) -> tuple[Host, Host]:
    b_bar = np.linalg.solve(a.numpy().T, x_bar.numpy())
    return -np.outer(b_bar, x.numpy()), b_bar


def scaled_and_summed(x: Any, n: int, s: Any) -> tuple[Host, Host]:
    return s.numpy() * x.numpy() ** n, np.sin(x.numpy()).sum()


def scaled_and_summed_back(x: Any, n: int, s: Any, y_bar: Any, total_bar: Any) -> tuple[Host, Host]:
    power, bar = x.numpy() ** (n - 1), y_bar.numpy()
    return n * s.numpy() * power * bar + np.cos(x.numpy()) * total_bar.numpy(), power * x.numpy() * bar


def turned(v: Any) -> Any:
    return kl.array(v.numpy()[:, ::-1] ** 2, dtype=v.dtype)


def turned_back(v: Any, bar: Any) -> Host:
    return 2.0 * v.numpy() * bar.numpy()[:, ::-1]


def relaxed(x: Any) -> Any:
    y = x * x
    for _ in range(3):
        y = y * 0.5 + x
    return y


def relaxed_back(x: Any, bar: Any) -> Any:
    return bar * (x * 0.25 + 1.75)


def gathered(x: Any, k: Any) -> Host:
    return np.exp(x.numpy())[k.numpy()]


def gathered_back(x: Any, k: Any, y: Any, bar: Any) -> Host:
    found = np.zeros_like(x.numpy())
    np.add.at(found, k.numpy(), bar.numpy() * y.numpy())
    return found


def over(count: int) -> kl.array:
    return kl.array(np.arange(count) % 3, dtype=int)


FAMILY: dict[str, tuple[Rule, Rule, tuple[Any, ...]]] = {
    "two arguments": (solved, solved_back, (numbers(3, 3), numbers(3))),
    "in float64": (solved, solved_back, (numbers(4, 4, dtype=float), numbers(4, dtype=float))),
    "two results": (
        lambda x, s: scaled_and_summed(x, 3, s),
        lambda x, s, y_bar, total_bar: scaled_and_summed_back(x, 3, s, y_bar, total_bar),
        (numbers(2, 3), numbers(2, 3)),
    ),
    "vectors": (turned, turned_back, (kl.array(rng.uniform(0.5, 1.0, (4, 3)), dtype=kl.vec3),)),
    "kernels": (relaxed, relaxed_back, (numbers(5),)),
    "a number": (
        lambda x: float(np.prod(x.numpy())),
        lambda x, y, bar: (bar * y).numpy() / x.numpy(),
        (numbers(4),),
    ),
    "many": (
        lambda x: np.cumsum(x.numpy()),
        lambda x, bar: np.cumsum(bar.numpy()[::-1])[::-1],
        (numbers(300),),
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FAMILY)
def test_a_right_rule_is_silent(name: str, way: str) -> None:
    func, back, arguments = FAMILY[name]
    assert told(func, back, arguments, WAYS[way]) == []


def as_list(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple) else [found]


def wrong(back: Rule, how: Callable[[list[Any]], list[Any]]) -> Rule:
    """A rule whose adjoints are changed, which has as many parameters as the right one."""
    names = back.__code__.co_varnames[: back.__code__.co_argcount]
    given = ", ".join(names)
    return eval(
        f"lambda {given}: tuple(how(as_list(back({given}))))", {"how": how, "as_list": as_list, "back": back}
    )


def host(bar: Any) -> Host:
    return np.array(bar.numpy() if isinstance(bar, kl.array) else bar)


def without_one(bars: list[Any]) -> list[Any]:
    first = host(bars[0])
    first.reshape(-1)[np.argmax(abs(first))] = 0.0
    return [first, *bars[1:]]


WRONG: dict[str, Callable[[list[Any]], list[Any]]] = {
    "sign": lambda bars: [-host(bars[0]), *bars[1:]],
    "factor": lambda bars: [*bars[:-1], 2.0 * host(bars[-1])],
    "a little": lambda bars: [1.1 * host(bars[0]), *bars[1:]],
    "none": lambda bars: [*bars[:-1], None],
    "without an element": without_one,
    "reversed": lambda bars: [host(bars[0])[::-1], *bars[1:]],
}


@pytest.mark.parametrize("mistake", WRONG)
@pytest.mark.parametrize("name", FAMILY)
def test_a_wrong_rule_is_told_once(name: str, mistake: str) -> None:
    func, back, arguments = FAMILY[name]
    (message,) = told(func, wrong(back, WRONG[mistake]), arguments)
    assert "along a direction where differences of" in message
    assert "check=False" in message


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["two arguments", "two results", "vectors"])
def test_it_is_told_once_in_every_way(name: str, way: str) -> None:
    func, back, arguments = FAMILY[name]
    assert len(told(func, wrong(back, WRONG["factor"]), arguments, WAYS[way])) == 1


def test_one_with_transposed_or_swapped_adjoints_is_told() -> None:
    a, b = numbers(3, 3), numbers(3, 3)

    def product(a: Any, b: Any) -> Host:
        return a.numpy() @ b.numpy()

    def right(a: Any, b: Any, c_bar: Any) -> tuple[Host, Host]:
        return c_bar.numpy() @ b.numpy().T, a.numpy().T @ c_bar.numpy()

    def transposed(a: Any, b: Any, c_bar: Any) -> tuple[Host, Host]:
        return c_bar.numpy() @ b.numpy(), a.numpy().T @ c_bar.numpy()

    def swapped(a: Any, b: Any, c_bar: Any) -> tuple[Host, Host]:
        return right(a, b, c_bar)[::-1]

    assert told(product, right, (a, b)) == []
    assert "transposed gives" in told(product, transposed, (a, b))[0]
    assert "swapped gives" in told(product, swapped, (a, b))[0]


def test_the_warning_is_at_the_line_of_the_rule_and_shows_the_function() -> None:
    def cube(x: Any) -> Host:
        return np.asarray(x.numpy() ** 3)

    def cube_back(x: Any, bar: Any) -> Host:
        return np.asarray(2.0 * x.numpy() ** 2 * bar.numpy())

    rule, x = kl.func.custom_vjp(cube, cube_back), numbers(3)
    with pytest.warns(kl.KernelWarning, match="cube_back gives .* for `x` along a direction") as caught:
        pulled(rule, (x,))
    (one,) = caught
    assert one.filename.endswith("test_compared_host_rules.py")
    assert one.lineno == cube_back.__code__.co_firstlineno
    assert "cube is defined here" in str(one.message)


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize(
    "factor", ["np.clip({}, -5.0, 5.0)", "abs({})", "np.maximum({}, 0.0)", "({} + 0.01)", "np.sign({})"]
)
def test_one_that_is_not_linear_is_told(factor: str, size: int) -> None:
    back = eval(f"lambda x, bar: 2.0 * {factor.format('bar.numpy()')}", {"np": np})
    (one,) = told(lambda x: 2.0 * x.numpy(), back, (numbers(size),))
    assert "is not in proportion to its cotangents" in one


def test_a_rule_of_kernels_is_compared_where_a_second_derivative_passes() -> None:
    def total(rule: Rule) -> Rule:
        return lambda x: (rule(x) * rule(x)).sum()

    def hessian(rule: Rule, given: tuple[Any, ...]) -> None:
        kl.func.hessian(total(rule))(*given)

    def in_lanes(rule: Rule, given: tuple[Any, ...]) -> None:
        kl.func.vmap(kl.func.hessian(total(rule)))(*given)

    for second, x in ((hessian, numbers(3)), (in_lanes, numbers(2, 3))):
        assert told(lambda x: x * x, lambda x, bar: 2.0 * x * bar, (x,), second) == []
        wrong_back = eval("lambda x, bar: 3.0 * x * bar")
        assert len(told(lambda x: x * x, wrong_back, (x,), second)) == 1


# ------------------------------------------------------------------------------------------ what is not told


def test_a_surrogate_says_so() -> None:
    x = kl.array([0.3, 1.2])
    assert told(lambda x: np.round(x.numpy()), lambda x, bar: bar, (x,), check=False) == []
    assert len(told(lambda x: np.round(x.numpy()), lambda x, bar: bar, (x,))) == 1


def test_a_kink_is_no_mistake() -> None:
    zeros = kl.zeros(5)
    assert (
        told(lambda x: np.maximum(x.numpy(), 0.0), lambda x, bar: bar.numpy() * (x.numpy() > 0.0), (zeros,))
        == []
    )
    assert told(lambda x: abs(x.numpy()), lambda x, bar: bar.numpy() * np.sign(x.numpy()), (zeros,)) == []
    assert told(lambda x: np.sort(x.numpy()), lambda x, bar: bar, (kl.ones(5),)) == []


def symmetrised(a: Any, factor: Any, bar: Any) -> Host:
    lower, bar = factor.numpy(), bar.numpy()
    inner = np.tril(lower.T @ bar) - 0.5 * np.diag(np.diag(lower.T @ bar))
    found = np.linalg.solve(lower.T, inner) @ np.linalg.inv(lower)
    return np.asarray(0.5 * (found + found.T))


def test_the_adjoint_of_a_symmetric_matrix_of_which_half_is_read_may_be_symmetric() -> None:
    a = kl.array([[3.0, 1.0, 0.5], [1.0, 2.0, 0.3], [0.5, 0.3, 1.5]])

    def decomposed(a: Any) -> Host:
        return np.linalg.cholesky(a.numpy())

    assert told(decomposed, symmetrised, (a,)) == []
    assert len(told(decomposed, lambda a, y, bar: 2.0 * symmetrised(a, y, bar), (a,))) == 1
    whole = told(solved, lambda a, b, x, x_bar: (solved_back(a, b, x, x_bar)[0].T, None), (a, kl.ones(3)))
    assert len(whole) == 1


def test_what_needs_no_gradient_is_not_compared() -> None:
    a, b = numbers(3, 3), numbers(3)
    rule = kl.func.custom_vjp(solved, lambda a, b, x, x_bar: (None, solved_back(a, b, x, x_bar)[1]))
    kl.func.grad(lambda b: rule(a, b).sum())(b)
    kl.func.jvp(lambda b: rule(a, b), (b,), (b,))
    b.requires_grad = True
    with kl.Tape() as tape:
        x = rule(a, b)
    tape.backward(grads={x: kl.ones(3)})
    with pytest.warns(kl.KernelWarning, match="gives 0 for `a`"):
        kl.func.grad(lambda a: rule(a, b).sum())(a)


def test_a_function_that_differs_from_run_to_run_is_not_compared() -> None:
    assert (
        told(lambda x: x.numpy() * np.random.default_rng().normal(), lambda x, bar: bar, (numbers(3),)) == []
    )


def test_one_that_fails_beside_its_arguments_is_not_compared() -> None:
    x = numbers(3)
    at = x.numpy().copy()

    def strict(x: Any) -> Host:
        if not np.allclose(x.numpy(), at, atol=1e-7):
            raise ValueError("outside of the domain")
        return np.asarray(x.numpy() ** 2)

    assert told(strict, lambda x, bar: 3.0 * x * bar, (x,)) == []


def test_zeros_are_no_comparison_and_the_next_values_are() -> None:
    rule = kl.func.custom_vjp(lambda x: x.numpy() ** 2, lambda x, bar: 3.0 * x * bar)
    pulled(rule, (kl.zeros(3),))
    with pytest.warns(kl.KernelWarning, match="along a direction"):
        pulled(rule, (kl.ones(3),))


def test_integers_of_both_sides_are_left_alone() -> None:
    def both(x: Any, k: Any) -> tuple[Host, Host]:
        return gathered(x, k), np.floor(100.0 * x.numpy()).astype(np.int64)

    def back(x: Any, k: Any, y: Any, n: Any, bar: Any, n_bar: Any) -> Host:
        return gathered_back(x, k, y, bar)

    x, k = numbers(3), over(5)
    for right, count in ((True, 0), (False, 1)):
        rule = back if right else lambda x, k, y, n, bar, n_bar: -gathered_back(x, k, y, bar)
        found = told(
            both, rule, (x,), lambda rule, given: kl.func.grad(lambda x: rule(x, k)[0].sum())(*given)
        )
        assert len(found) == count


# ------------------------------------------------------------------------------------------ side effects


@pytest.mark.parametrize("is_summed", [False, True])
def test_an_error_that_cancels_along_one_direction_is_told(is_summed: bool) -> None:
    missed = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x, y = (kl.array(rng.normal(size=7), dtype=kl.float64) for _ in range(2))

        def product(x: Any, y: Any) -> Host:
            terms = x.numpy() * y.numpy()
            return np.asarray(terms.sum(keepdims=True) if is_summed else terms)

        def product_back(x: Any, y: Any, bar: Any) -> Any:
            return (y.numpy() + 0.05) * bar.numpy(), x.numpy() * bar.numpy()

        # A warning is given once a line.
        product_back.__code__ = product_back.__code__.replace(co_firstlineno=10_000 + seed)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            pulled(kl.func.custom_vjp(product, product_back), (x, y))
        missed += not found
    assert missed <= 1


def test_it_costs_seven_runs_and_the_rule_four_once() -> None:
    runs = []

    def square(x: Any) -> Host:
        runs.append("f")
        return np.asarray(x.numpy() ** 2)

    def square_back(x: Any, bar: Any) -> Any:
        runs.append("b")
        return 2.0 * x * bar

    x = numbers(3)
    for _ in range(20):
        pulled(kl.func.custom_vjp(square, square_back), (x,))  # made anew each time
    assert runs.count("f") <= 20 + 3 * 7
    assert runs.count("b") <= 20 + 3 * 4
    runs.clear()
    pulled(kl.func.custom_vjp(square, lambda x, bar: 2.0 * x * bar, check=False), (x,))
    assert runs == ["f"]


OWN = np.random.default_rng(1)


def test_random_numbers_go_on_as_if_nothing_had_been_compared() -> None:
    def noisy(x: Any) -> Host:
        return x.numpy() * np.random.normal() * OWN.normal() * random.random()  # noqa: NPY002

    def drawn(check: bool) -> list[float]:
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)
        OWN.bit_generator.state = np.random.default_rng(1).bit_generator.state
        with suppress(kl.KernelError):
            pulled(kl.func.custom_vjp(noisy, lambda x, bar: bar, check=check), (kl.ones(2),))
        return [np.random.normal(), OWN.normal(), random.random()]  # noqa: NPY002

    assert drawn(True) == drawn(False)


def test_nothing_else_changes() -> None:
    x = kl.array([1.0, 2.0], requires_grad=True)

    def square(x: Any) -> Host:
        x *= x
        return x.numpy()

    rule = kl.func.custom_vjp(square, lambda x, bar: 2.0 * x * bar)
    with kl.Tape() as tape:
        y = rule(x)
        z = y * y
    count = len(tape)
    tape.backward(grads={z: kl.ones(2)})
    assert len(tape) == count
    assert (x.list(), y.list(), x.grad.list()) == ([1.0, 2.0], [1.0, 4.0], [4.0, 32.0])


def test_warnings_of_the_function_itself_are_not_repeated() -> None:
    def root(x: Any) -> Host:
        if x.numpy().min() < 1.0:
            warnings.warn("outside", RuntimeWarning, stacklevel=1)
        return np.sqrt(x.numpy())

    assert told(root, lambda x, y, bar: bar / (2.0 * y), (kl.ones(2),)) == []


def test_a_rule_with_a_rule_of_its_own_is_compared_by_both() -> None:
    def twice(x: Any, y_bar: Any, by_x: Any) -> tuple[Host, Host]:
        return (y_bar * by_x * -np.sin(x.numpy())).numpy(), 2.0 * by_x.numpy() * np.cos(x.numpy())

    slope = kl.func.custom_vjp(lambda x, y_bar: y_bar.numpy() * np.cos(x.numpy()), twice)
    wave = kl.func.custom_vjp(lambda x: np.sin(x.numpy()), slope)
    x = numbers(3)
    kl.func.grad(lambda x: wave(x).sum())(x)
    with pytest.warns(kl.KernelWarning, match="twice gives .* for `y_bar`"):
        kl.func.jacrev(kl.func.grad(lambda x: (wave(x) * wave(x)).sum()))(x)


# ------------------------------------------------------------------------------------------ in float32 alone

KERNEL = """
def square(x: array[float32], y: array[float32]):
    i = tid()
    y[i] = x[i] * x[i]
"""


def test_functions_that_take_float32_only_are_compared_in_it() -> None:
    kernel: Any = kl.compile(KERNEL)["square"]

    def square(x: Any) -> Any:
        y = kl.zeros_like(x)
        kl.launch(kernel, dim=x.shape, inputs=[x], outputs=[y])
        return y

    x = kl.array([0.5, -1.0, 200.0])
    assert told(square, lambda x, bar: 2.0 * x * bar, (x,)) == []
    assert len(told(square, lambda x, bar: 3.0 * x * bar, (x,))) == 1


def square_for_two(n: int) -> Any:
    """The power n, with a rule that is right for n = 2 alone."""
    return kl.func.custom_vjp(lambda x: x.numpy() ** n, lambda x, bar: 2.0 * x.numpy() * bar.numpy())


class Powers:
    exponent = 2

    def power(self, x: Any) -> Any:
        return x.numpy() ** self.exponent

    def back(self, x: Any, bar: Any) -> Any:
        return 2.0 * x.numpy() * bar.numpy()


class Cubes(Powers):
    exponent = 3


@pytest.mark.parametrize("kind", ["a closure", "methods"])
def test_functions_of_one_text_are_compared_by_what_they_captured(kind: str) -> None:
    def made(n: int) -> Any:
        if kind == "a closure":
            return square_for_two(n)
        powers = Powers() if n == 2 else Cubes()
        return kl.func.custom_vjp(powers.power, powers.back)

    x = kl.array([1.0, 2.0, 3.0], requires_grad=True)
    for _ in range(4):
        assert kl.func.grad(lambda x: made(2)(x).sum())(x).list() == [2.0, 4.0, 6.0]
    with pytest.warns(kl.KernelWarning, match="where differences of"):
        kl.func.grad(lambda x: made(3)(x).sum())(x)


def test_a_function_made_anew_with_another_number_each_time_is_not_compared_for_ever() -> None:
    runs = []

    def made(factor: float) -> Any:
        def scaled(x: Any) -> Any:
            runs.append(factor)
            return factor * x.numpy()

        return kl.func.custom_vjp(scaled, lambda x, bar: factor * bar.numpy())

    x = kl.array([1.0, 2.0], requires_grad=True)
    for k in range(60):
        before = len(runs)
        kl.func.grad(lambda x, k=k: made(1.0 + k)(x).sum())(x)
    assert len(runs) - before == 1
