"""What `backward` refuses: losses, cotangents and chains that have no gradient."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from tests.support.chains import forward_only, kernels, square, total
from tests.support.leaves import gradient, leaf, result


def test_a_loss_of_several_elements_is_refused() -> None:
    x, y = leaf(1, 2), result(2)
    with kl.Tape() as tape:
        square[2](x, y)
    with pytest.raises(kl.TapeError, match="`y` is not a single float: it has 2 elements") as told:
        tape.backward(y)
    assert "grads={y: kl.ones_like(y)}" in str(told.value)


def test_a_loss_without_requires_grad_is_refused() -> None:
    x, y = leaf(1), kl.zeros(1)
    with kl.Tape() as tape:
        square[1](x, y)
    with pytest.raises(kl.TapeError, match="`y` does not require gradients"):
        tape.backward(y)


def test_a_loss_of_arrays_without_gradients_names_them() -> None:
    x, y = kl.ones(2), kl.zeros(2)
    with kl.Tape() as tape:
        square[2](x, y)
        loss = y.sum()
    with pytest.raises(kl.TapeError, match=r"create what you differentiate by.* of `x`, `y`"):
        tape.backward(loss)


def _squared(x: kl.array) -> kl.array:
    hidden = kl.zeros_like(x, requires_grad=False)
    square[x.size](x, hidden)
    return hidden


def test_an_array_of_a_function_that_has_returned_goes_by_its_parameter() -> None:
    x = leaf(1)
    with kl.Tape() as tape:
        loss = (_squared(x) * 2.0).sum()
    with pytest.raises(kl.TapeError, match="create the argument `y` of the launch of `square` with"):
        tape.backward(loss)
    y = result()
    with kl.Tape() as tape:
        square[1](_squared(x), y)
    with pytest.raises(kl.TapeError, match="flows through the argument `y` of the launch of `square`, read"):
        tape.backward(y)


def test_a_loss_that_the_tape_did_not_see_is_refused() -> None:
    x, y, other = leaf(1), result(), result()
    tape = kl.Tape()
    with pytest.raises(kl.TapeError, match="did not see how `y` was computed: it has recorded nothing"):
        tape.backward(y)
    with tape:
        square[1](x, y)
    with pytest.raises(kl.TapeError, match="how `other` was computed: none of its 1 record did"):
        tape.backward(other)


def test_a_loss_whose_only_launch_had_no_threads_is_refused_with_that_launch() -> None:
    x, y, z = leaf(1), result(), result()
    with kl.Tape() as tape:
        square[0](x, y)
        square[1](x, z)
    with pytest.raises(kl.TapeError, match="the launch of `square` had no threads") as refusal:
        tape.backward(y)
    assert "square[0](x, y)" in str(refusal.value)
    tape.reset()
    with pytest.raises(kl.TapeError, match="it has recorded nothing"):
        tape.backward(y)


def test_a_result_of_no_elements_is_refused_in_the_same_way() -> None:
    with kl.Tape() as tape:
        scaled = kl.zeros(0, requires_grad=True) * 2.0
    with pytest.raises(kl.TapeError, match=r"`array_mul` had no threads(.|\n)*have no elements here"):
        tape.backward(grads={scaled: kl.zeros(0)})


def test_a_loss_that_nothing_differentiable_leads_to_is_refused() -> None:
    x, y = kl.ones(1), result()
    with kl.Tape() as tape:
        square[1](x, y)
    with pytest.raises(kl.TapeError, match="`y` does not depend on any array that requires gradients"):
        tape.backward(y)


def test_several_results_that_nothing_differentiable_leads_to_are_named_together() -> None:
    x, y, z = kl.ones(1), result(), result()
    with kl.Tape() as tape:
        square[1](x, y)
        square[1](x, z)
    with pytest.raises(kl.TapeError, match="`y` and `z` do not depend on any array that requires gradients"):
        tape.backward(grads={y: kl.ones(1), z: kl.ones(1)})


def test_a_chain_through_integers_only_is_refused() -> None:
    x, n, y = leaf(1), kl.zeros(1, dtype=int), result()
    with kl.Tape() as tape:
        kernels["above"][1](x, n)
        kernels["gather"][1](kl.ones(2), n, y)
    with pytest.raises(kl.TapeError, match="it only picks an element, and that has derivative 0"):
        tape.backward(y)


def test_a_chain_that_is_cut_in_one_place_is_pointed_out() -> None:
    x, y, loss = leaf(3), kl.zeros(1), result()
    with kl.Tape() as tape:
        square[1](x, y)
        total[1](y, loss)
        total[1](x, loss)
    with pytest.warns(kl.KernelWarning) as caught:
        tape.backward(loss)
    text = str(caught[0].message)
    assert "no gradient flows through `y`, read by the launch of `total`" in text
    assert "the launch of `square` computes it here" in text
    assert gradient(x) == [1]


def test_a_chain_that_is_cut_everywhere_is_an_error_that_says_where() -> None:
    x, y, loss = leaf(3), kl.zeros(1), result()
    with kl.Tape() as tape:
        square[1](x, y)
        total[1](y, loss)
    with pytest.raises(kl.TapeError, match="no gradient flows through `y`"):
        tape.backward(loss)


def test_an_array_used_only_as_an_index_cuts_nothing() -> None:
    x, index, y = leaf(1, 2), kl.array([1, 0]), result(2)
    with kl.Tape() as tape:
        kernels["gather"][2](x, index, y)
    tape.backward(grads={y: [1, 10]})
    assert gradient(x) == [10, 1]


@pytest.mark.parametrize("cotangent", [[1.0], np.ones((2, 1)), kl.ones(3)], ids=str)
def test_a_cotangent_of_the_wrong_shape_is_refused(cotangent: Any) -> None:
    x, y = leaf(1, 2), result(2)
    with kl.Tape() as tape:
        square[2](x, y)
    with pytest.raises(kl.TapeError, match=r"the cotangent of `y` has shape(.|\n)*kl\.ones_like\(y\)"):
        tape.backward(grads={y: cotangent})


def test_what_is_no_array_of_floats_takes_no_cotangent() -> None:
    x, y, n = leaf(1), result(), kl.zeros(1, dtype=int)
    with kl.Tape() as tape:
        square[1](x, y)
    with pytest.raises(kl.TapeError, match="and `n` is none"):
        tape.backward(grads={n: [1]})
    with pytest.raises(kl.TapeError, match=r"the loss is an array of one number, not the float 1\.0"):
        tape.backward(1.0)  # type: ignore[arg-type]


def test_backward_without_anything_to_start_from_is_refused() -> None:
    x, y = leaf(1), result()
    with kl.Tape() as tape:
        square[1](x, y)
    with pytest.raises(kl.TapeError, match="nothing to start from"):
        tape.backward()


def test_the_old_value_that_an_atomic_returns_carries_a_gradient() -> None:
    x, y = leaf(1, 2), result()
    with kl.Tape() as tape:
        kernels["old_value"][1](x, y)
    assert (x.list(), y.list()) == ([3, 2], [1])
    tape.backward(grads={y: [1]})
    assert gradient(x) == [1, 0]


def test_a_kernel_whose_backward_pass_is_off_ends_a_chain_which_is_an_error_if_nothing_is_left() -> None:
    x, y = leaf(1), result()
    with kl.Tape() as tape:
        forward_only[1](x, y)
    assert y.list() == [1]
    with pytest.raises(kl.TapeError, match="the backward pass of the kernel is switched off"):
        tape.backward(y)


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(kl.KernelValueError, match="not a policy"):
        kl.Tape(overwrite="sometimes")  # type: ignore[arg-type]


@pytest.mark.parametrize(("grads", "found"), [({}, "nothing"), ([1.0], "a list")])
def test_cotangents_that_are_no_mapping_of_arrays_are_refused(grads: Any, found: str) -> None:
    x, y = leaf(1), result()
    with kl.Tape() as tape:
        square[1](x, y)
    with pytest.raises(kl.TapeError, match=f"maps arrays to their cotangents, and here it is {found}"):
        tape.backward(grads=grads)


def test_gradients_asked_for_after_the_launch_are_refused() -> None:
    scaled = kl.compile(
        "def k(x: array[float], w: array[float], y: array[float]):\n    i = tid()\n    y[i] = x[i] * w[i]\n"
    )["k"]
    x, w, y = leaf(1, 2), kl.array([3.0, 4.0], dtype=float), kl.zeros(2, dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        scaled[2](x, w, y)
    w.requires_grad = True
    with pytest.raises(kl.TapeError, match="`w` requires gradients, but did not when the launch"):
        tape.backward(grads={y: [1, 1]})


scaled_by_rule = kl.func.custom_vjp(lambda x, w: x * w, lambda x, w, bar: (w * bar, x * bar))


def frozen(w: kl.array, compute: Callable[[], kl.array]) -> kl.array:
    w.requires_grad = False
    result = compute()
    w.requires_grad = True
    return result


@pytest.mark.parametrize("scaled", [scaled_by_rule, kl.array.__mul__])
@pytest.mark.parametrize("run", [kl.checkpoint, lambda f, x, w: f(x, w)])
def test_so_are_those_of_an_array_that_is_frozen_for_one_call(run: Any, scaled: Any) -> None:
    x, w = leaf(1, 2), kl.array([3.0, 4.0], dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        y = run(lambda x, w: frozen(w, lambda: scaled(x, w)) * w, x, w)
    with pytest.raises(kl.TapeError, match="`w` requires gradients, but did not when"):
        tape.backward(grads={y: kl.ones_like(y)})


def test_so_are_checks_and_contributions_of_such_a_tape() -> None:
    x, w = leaf(1, 2), kl.array([3.0, 4.0], dtype=float)
    with kl.Tape() as tape:
        loss = scaled_by_rule(x, w).sum()
    w.requires_grad = True
    for look in (kl.autograd.gradcheck_tape, lambda tape: kl.contributions(tape, x, 0, loss)):
        with pytest.raises(kl.TapeError, match="`w` requires gradients, but did not when"):
            look(tape)


@pytest.mark.parametrize("scaled", [scaled_by_rule, kl.array.__mul__])
def test_a_part_that_was_computed_while_all_were_frozen_is_warned_of(scaled: Any) -> None:
    w = kl.array([3.0, 4.0], dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        y = w * w + frozen(w, lambda: scaled(w, w))
    with pytest.warns(kl.KernelWarning, match="`w` requires gradients, but did not when"):
        tape.backward(grads={y: kl.ones_like(y)})


def test_a_tape_that_recorded_nothing_says_so_before_anything_about_the_loss() -> None:
    with kl.Tape() as tape:
        pass
    for loss in (kl.zeros(1), kl.zeros(3, requires_grad=True)):
        with pytest.raises(kl.TapeError, match="it has recorded nothing"):
            tape.backward(loss)
