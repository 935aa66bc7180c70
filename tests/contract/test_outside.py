"""Values that are computed outside of a recorder, and come back: warned of, or refused.

NumPy memory that a launch writes, a function of `custom_vjp` that reads more than its arguments, another
thread, the gradient of a backward pass, a Jacobian: each time the loss is x ** 3, of x and of a square
that came back in this way, and so every derivative that is found is wrong.
"""

import multiprocessing
import operator
import pickle
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import GradientError

K = kl.compile("""
def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]
""")

Way = Callable[[Any], Any]


def by_numpy_array(x: Any) -> Any:
    out = np.zeros(3, np.float32)
    K["square"][3](x, out)
    return kl.array(out)


def by_numpy_arithmetic(x: Any) -> Any:
    out = np.zeros(3, np.float32)
    K["square"][3](x, out)
    return kl.array(1.0 * out)


def by_copy_to_numpy(x: Any) -> Any:
    out = np.zeros(3, np.float32)
    kl.copy(kl.from_numpy(out), x * x)
    return kl.array(out)


def by_map_to_numpy(x: Any) -> Any:
    out = np.zeros(3, np.float32)
    kl.map(lambda v: v * v, x, out=kl.from_numpy(out))
    return kl.array(out)


def by_rule_that_looks(x: Any) -> Any:
    squared = kl.func.custom_vjp(lambda one: x.numpy() ** 2 * one.numpy(), lambda one, bar: None)
    return squared(kl.ones(3))


def by_rule_that_picks(x: Any) -> Any:
    squared = kl.func.custom_vjp(
        lambda one: np.array([v * v for v in (x[0], x[1], x[2])]), lambda one, bar: None
    )
    return squared(kl.ones(3))


def by_rule_that_launches(x: Any) -> Any:
    def run(one: Any) -> Any:
        y = kl.zeros(3)
        K["square"][3](x, y)
        return y

    return kl.func.custom_vjp(run, lambda one, bar: None)(kl.ones(3))


def by_rule_that_differentiates(x: Any) -> Any:
    run = kl.func.grad(lambda one: (one * x * x).sum())
    return kl.func.custom_vjp(run, lambda one, bar: None)(kl.ones(3))


def by_rule_that_returns(x: Any) -> Any:
    return x * kl.func.custom_vjp(lambda one: x, lambda one, bar: None)(kl.ones(3))


def by_rule_that_captures_values(x: Any) -> Any:
    values = x.numpy() ** 2
    return kl.func.custom_vjp(lambda one: values * one.numpy(), lambda one, bar: None)(kl.ones(3))


def by_rule_that_makes_an_array_of_numbers(x: Any) -> Any:
    numbers = [v * v for v in (x[0], x[1], x[2])]
    return kl.func.custom_vjp(lambda one: one * kl.array(numbers), lambda one, bar: None)(kl.ones(3))


def by_rule_that_assigns_values(x: Any) -> Any:
    values = x.numpy() ** 2
    return kl.func.custom_vjp(lambda one: one.assign(values), lambda one, bar: None)(kl.ones(3))


def by_rule_that_launches_with_a_number(x: Any) -> Any:
    number = x[0] * x[0]
    return kl.func.custom_vjp(lambda one: one * number, lambda one, bar: None)(kl.ones(3))


def by_rule_whose_kernel_captures_a_number(x: Any) -> Any:
    number = x[0] * x[0]
    rule = kl.func.custom_vjp(lambda one: kl.map(lambda v: v * number, one), lambda one, bar: None)
    return rule(kl.ones(3))


def by_rule_in_a_rule_that_captures_a_number(x: Any) -> Any:
    number = x[0] * x[0]
    inner = kl.func.custom_vjp(lambda one: one * number, lambda one, bar: None)
    return kl.func.custom_vjp(lambda one: 2.0 * inner(one), lambda one, bar: None)(kl.ones(3))


def by_rule_in_a_rule_that_is_given_a_number(x: Any) -> Any:
    number = x[0] * x[0]
    inner = kl.func.custom_vjp(lambda one, factor: one * factor, lambda one, factor, bar: None)
    return kl.func.custom_vjp(lambda one: 2.0 * inner(one, number), lambda one, bar: None)(kl.ones(3))


def elsewhere(compute: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(compute).result()


def by_another_thread(x: Any) -> Any:
    return elsewhere(lambda: x * x)


def by_copy_of_another_thread(x: Any) -> Any:
    return elsewhere(lambda: kl.clone(x, requires_grad=False)) * x


def by_transform_of_another_thread(x: Any) -> Any:
    return elsewhere(lambda: kl.func.vmap(lambda number: number * number)(x))


def by_list_of_another_thread(x: Any) -> Any:
    return kl.array(elsewhere(x.list)) * x


def by_bytes_of_another_thread(x: Any) -> Any:
    data = pickle.dumps(x * x)  # as a pool of processes hands arrays on, in threads of its own
    return elsewhere(lambda: pickle.loads(data))


def by_floats_of_another_thread(x: Any) -> Any:
    values = [float(v) ** 2 for v in x.list()]
    return elsewhere(lambda: kl.array(values))


def by_filling_in_another_thread(x: Any) -> Any:
    out, values = kl.zeros(3), [float(v) ** 2 for v in x.list()]
    elsewhere(lambda: out.assign(values))
    return out


def by_another_process(x: Any) -> Any:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(operator.mul, x, x).result()


WAYS = [
    by_numpy_array,
    by_numpy_arithmetic,
    by_copy_to_numpy,
    by_map_to_numpy,
    by_rule_that_looks,
    by_rule_that_picks,
    by_rule_that_launches,
    by_rule_that_differentiates,
    by_rule_that_returns,
    by_rule_that_captures_values,
    by_rule_that_makes_an_array_of_numbers,
    by_rule_that_assigns_values,
    by_rule_that_launches_with_a_number,
    by_rule_whose_kernel_captures_a_number,
    by_rule_in_a_rule_that_captures_a_number,
    by_rule_in_a_rule_that_is_given_a_number,
    by_another_thread,
]
"""Reported by tapes and transforms alike."""

OF_THREADS = [
    by_copy_of_another_thread,
    by_transform_of_another_thread,
    by_list_of_another_thread,
    by_bytes_of_another_thread,
    by_floats_of_another_thread,
    by_filling_in_another_thread,
    by_another_process,
]
"""Reported by transforms alone: a tape sees its own thread."""


def on_a_tape(way: Way) -> None:
    x = kl.array([1.0, 2.0, 3.0], requires_grad=True)
    with kl.Tape() as tape:
        loss = (way(x) * x).sum()
    tape.backward(loss)


def in_grad(way: Way) -> None:
    kl.func.grad(lambda x: (way(x) * x).sum())(kl.array([1.0, 2.0, 3.0]))


def in_jacfwd(way: Way) -> None:
    kl.func.jacfwd(lambda x: way(x) * x)(kl.array([1.0, 2.0, 3.0]))


def in_vmap(way: Way) -> None:
    kl.func.vmap(lambda x: way(x) * x)(kl.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))


def in_jacobian(way: Way) -> None:
    x = kl.array([1.0, 2.0, 3.0], requires_grad=True)
    kl.autograd.jacobian(lambda x: way(x) * x, inputs=[x])


TRANSFORMS = [in_grad, in_jacfwd, in_vmap, in_jacobian]


@pytest.mark.parametrize(
    ("run", "way"),
    [*product([on_a_tape, *TRANSFORMS], WAYS), *product(TRANSFORMS, OF_THREADS)],
)
def test_what_leaves_and_comes_back_is_told(run: Callable[[Way], None], way: Way) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            run(way)
        except GradientError:
            return
    assert any("no gradient" in str(warning.message) for warning in seen)


def test_memory_of_numpy_that_only_kernels_read_is_followed() -> None:
    out = np.zeros(3, np.float32)

    def fifth(x: Any) -> Any:
        y = kl.zeros(3)
        K["square"][3](x, out)
        K["square"][3](out, y)
        return (x * y).sum()

    assert kl.func.grad(fifth)(kl.array([1.0, 2.0, 3.0])).list() == [5.0, 80.0, 405.0]


def test_an_array_of_numpy_is_one_for_all_lanes() -> None:
    out = np.zeros(3, np.float32)

    def squares(x: Any) -> Any:
        y = kl.zeros(3)
        K["square"][3](x, out)
        K["square"][3](out, y)
        return y

    with pytest.raises(GradientError, match="which NumPy shares: there is one for all lanes"):
        kl.func.vmap(squares)(kl.ones((2, 3)))


def test_a_rule_may_read_what_nothing_is_differentiated_by() -> None:
    a = kl.array([2.0, 3.0, 4.0])
    scaled = kl.func.custom_vjp(lambda x: a.numpy() * x.numpy(), lambda x, bar: a.numpy() * bar.numpy())
    x = kl.ones(3, requires_grad=True)
    with kl.Tape() as tape:
        y = scaled(x)
    tape.backward(grads={y: kl.ones(3)})
    assert x.grad.list() == a.list()
    assert kl.func.vmap(scaled)(kl.ones((2, 3))).numpy().tolist() == [a.list()] * 2


@pytest.mark.parametrize("run", [on_a_tape, in_grad, in_jacfwd])
def test_a_rule_may_decide_by_a_number_that_was_taken(run: Callable[[Way], None]) -> None:
    def decided(x: Any) -> Any:
        number, count = x[0], int(x[2])
        power = kl.func.custom_vjp(
            lambda a: a**count if number > 0.0 else a, lambda a, bar: count * bar * a ** (count - 1)
        )
        return power(x)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(decided)


def test_transforms_of_other_threads_share_constants() -> None:
    w, f = kl.array([2.0, 3.0, 4.0]), kl.func.grad(lambda x: (x * x * w).sum())
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: f(kl.full(3, float(n))).list(), range(8)))
    assert found == [[4.0 * n, 6.0 * n, 8.0 * n] for n in range(8)]


def test_a_rule_may_differentiate_what_it_makes() -> None:
    def cube_slope(x: Any) -> Any:
        leaf = kl.array(x.numpy(), requires_grad=True)
        with kl.Tape() as tape:
            energy = (leaf * leaf * leaf).sum()
        tape.backward(energy)
        return leaf.grad

    slope = kl.func.custom_vjp(cube_slope, lambda x, bar: 6.0 * x.numpy() * bar.numpy())
    x = kl.array([1.0, 2.0, 3.0], requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with kl.Tape() as tape:
            loss = (slope(x) * x).sum()
        tape.backward(loss)
        assert x.grad.list() == kl.func.grad(lambda x: (slope(x) * x).sum())(x).list() == [9.0, 36.0, 81.0]


def test_another_thread_does_not_show_the_lanes_as_one() -> None:
    shown = []
    kl.func.vmap(lambda x: (shown.append(elsewhere(lambda: repr(x))), x)[1])(kl.ones((2, 3)))
    assert "other values in each lane" in shown[0]


# ------------------------------------------------------------------------------ gradients of gradients


def told(use: Callable[[Any, kl.Tape], Any]) -> str:
    """The warnings of a tape whose loss is `use(x, tape)`."""
    x, tape = kl.array([1.0, 2.0, 3.0], requires_grad=True), kl.Tape()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with tape:
            loss = use(x, tape)
        tape.backward(loss)
    return "\n".join(str(warning.message) for warning in seen)


def by_backward(x: Any, tape: kl.Tape) -> Any:
    tape.backward((x * x).sum())
    return (x.grad * x).sum()


def by_an_adjoint(x: Any, tape: kl.Tape) -> Any:
    y, slope = kl.zeros(3, requires_grad=True), kl.zeros(3)
    kl.launch(K["square"], 3, [x], [y], adj_inputs=[slope], adj_outputs=[kl.ones(3)], adjoint=True)
    return (slope * x).sum()


def by_a_gradient_for_the_host(x: Any, tape: kl.Tape) -> Any:
    tape.backward((x * x).sum())
    return (kl.array(0.1 * x.grad.numpy()) * x).sum()


def by_a_step(x: Any, tape: kl.Tape) -> Any:
    tape.backward((x * x).sum())
    kl.optim.SGD([x], lr=0.1).step()
    return (x * x).sum()


def by_a_jacobian(x: Any, tape: kl.Tape) -> Any:
    slopes = kl.autograd.jacobian(lambda x: x * x, inputs=[x])[0, 0]
    return (kl.array(np.diag(slopes.numpy()).copy()) * x).sum()


@pytest.mark.parametrize(
    "use",
    [by_backward, by_an_adjoint, by_a_gradient_for_the_host, by_a_step, by_a_jacobian],
)
def test_a_gradient_that_a_loss_depends_on_is_a_constant_with_a_warning(use: Callable[..., Any]) -> None:
    assert "no gradient flows" in told(use)


def test_a_gradient_that_is_only_looked_at_is_not_told() -> None:
    def use(x: Any, tape: kl.Tape) -> Any:
        tape.backward((x * x).sum())
        assert float((x.grad * x.grad).sum()[0]) == 56.0
        x.grad.zero_()
        return (x * x).sum()

    assert told(use) == ""


def test_the_adjoint_of_a_kernel_that_a_loss_depends_on_has_no_gradient() -> None:
    x, y, slope = (kl.ones(3, requires_grad=True) for _ in range(3))
    with kl.Tape() as tape:
        kl.launch(K["square"], 3, [x], [y], adj_inputs=[slope], adj_outputs=[kl.ones(3)], adjoint=True)
        loss = (slope * slope).sum()
    with pytest.warns(kl.KernelWarning, match="does not differentiate what a backward pass"):
        tape.backward(loss)
