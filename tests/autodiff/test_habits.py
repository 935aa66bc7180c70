"""What is said to those who use a tape as they know it from elsewhere, or miss a gradient."""

import copy
import pydoc
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl

TEXT = """
def squares(x: array[float], y: array[float]):
    y[tid()] = x[tid()] * x[tid()]

def products(x: array[float], w: array[float], y: array[float]):
    y[tid()] = x[tid()] * w[tid()]
"""


@pytest.fixture(scope="module")
def kernels() -> Any:
    return kl.compile(TEXT)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gradient", r"a tape has no gradient\n  hint: call tape.backward\(loss\); then x.grad"),
        ("watch", "requires_grad=True is watched"),
        ("zero_grad", r"write tape.zero\(\)"),
        ("backwards", "did you mean backward"),
        ("something", "a tape has no something$"),
    ],
)
def test_a_tape_says_what_to_write_for_what_it_has_not(name: str, message: str) -> None:
    with pytest.raises(AttributeError, match=message):
        getattr(kl.Tape(), name)
    assert not hasattr(kl.Tape(), "__array__")


def test_a_tape_that_was_reset_says_so(kernels: Any) -> None:
    x, y = kl.ones(2, requires_grad=True), kl.zeros(2, requires_grad=True)
    tape = kl.Tape()
    with pytest.raises(kl.TapeError, match="nothing to start from: the tape has recorded nothing\\n"):
        tape.backward()
    with tape:
        kernels["squares"][2](x, y)
    tape.reset()
    with pytest.raises(kl.TapeError, match="nothing to start from: the tape has recorded nothing since it"):
        tape.backward()
    with pytest.raises(
        kl.TapeError, match=r"it has recorded nothing since it was reset(?s:.*)compute it again"
    ):
        tape.backward(grads={y: kl.ones(2)})


@pytest.mark.parametrize("name", ["plot", "show", "display"])
def test_jacobians_and_reports_say_what_to_write_for_what_they_have_not(kernels: Any, name: str) -> None:
    given = {"dim": 2, "inputs": [kl.ones(2, requires_grad=True)], "outputs": [kl.zeros(2)]}
    jacobians = kl.autograd.jacobian(kernels["squares"], **given)
    check = kl.autograd.gradcheck(kernels["squares"], **given, show_summary=False)
    taylor = kl.autograd.taylor_test(kernels["squares"], **given, show_summary=False)
    for shown in (jacobians, check, taylor):
        with pytest.raises(kl.KernelAttributeError, match=rf"has no {name}\n  hint: write kl.show"):
            getattr(shown, name)
    with pytest.raises(kl.KernelAttributeError, match=rf"a Jacobian has no {name}\n  hint: write plt.imshow"):
        getattr(jacobians[0, 0], name)
    with pytest.raises(kl.KernelAttributeError, match=r"has no toarray\n  hint: write jacobian.numpy"):
        _ = jacobians[0, 0].toarray
    for one in (jacobians, jacobians[0, 0], check, taylor):
        copy.copy(one)


def test_help_of_a_kernel_is_short(kernels: Any) -> None:
    assert kernels["squares"].__doc__.startswith("A kernel: squares[n](...) launches n threads")
    assert len(pydoc.render_doc(kernels["squares"]).splitlines()) < 6
    described = kl.compile('def f(x: array[float]):\n    """Doubles."""\n    x[tid()] *= 2.0')["f"]
    assert described.__doc__ == described.doc == "Doubles."
    with pytest.raises(kl.KernelTypeError, match="%%kernel --show source,tangent chooses some"):
        kl.show(described, "tangent")


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            lambda y: y[0],
            r"not the float32 [0-9.]+: a number of the host .*\n(.*\n)*.*loss = y\.sum\(\)",
        ),
        (
            lambda y: kl.utils.array_sum(y),
            r"not the float 14.0: a (.*\n)*.*loss = y\.sum\(\)",
        ),
        (lambda y: y.numpy(), r"not a NumPy array of float32\n(.*\n)*.*loss = y\.sum\(\)"),
        (lambda y: [y], r"not a list\n(.*\n)*.*grads="),
        (lambda y: y, r"not a single float: it has 3 elements(.*\n)*.*loss = y\.sum\(\)"),
    ],
)
def test_what_is_no_loss_is_told_how_to_become_one(
    kernels: Any, loss: Callable[[Any], Any], message: str
) -> None:
    x, y = kl.array([1.0, 2.0, 3.0], requires_grad=True), kl.zeros(3, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernels["squares"], 3, inputs=[x], outputs=[y])
    with pytest.raises(kl.TapeError, match=message):
        tape.backward(loss(y))


def test_a_function_that_returns_a_number_is_told_of_out() -> None:
    with pytest.raises(kl.KernelTypeError, match=r"returned a float(.*\n)*.*y\.sum\(\) in place of"):
        kl.func.grad(lambda x: kl.utils.array_sum(x))(kl.ones(3))


def test_picked_elements_are_returned_to_a_transform_as_an_array() -> None:
    x, picked = kl.ones(3), [[0, 0, 2], [2, 0, 0]]
    for jacobian in (kl.func.jacrev, kl.func.jacfwd):
        assert jacobian(lambda x: (2.0 * x)[[2, 0]])(x).numpy().tolist() == picked
    assert kl.autograd.gradcheck(lambda x: (2.0 * x)[[2, 0]], inputs=[kl.ones(3, requires_grad=True)]).passed
    _, pull = kl.func.vjp(lambda x: {"some": (2.0 * x)[[2, 0]]}, x)
    assert pull({"some": kl.array([1.0, 3.0, 5.0])[[2, 1]]})[0].list() == [6.0, 0.0, 10.0]


def test_who_asks_for_the_gradient_of_an_input_without_one_is_told_why(kernels: Any) -> None:
    x, w = kl.array([1.0, 2.0]), kl.array([3.0, 4.0])
    y, total = kl.zeros(2, requires_grad=True), kl.zeros(1, requires_grad=True)

    def run() -> kl.Tape:
        with kl.Tape() as tape:
            kl.launch(kernels["products"], 2, inputs=[x, w], outputs=[y])
            kl.utils.array_sum(y, out=total)
        tape.backward(total)
        return tape

    run()
    with pytest.warns(
        kl.KernelWarning, match=r"`x` has no gradient: only what was computed from it(.*\n)*.*`products`"
    ):
        assert x.grad is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert x.grad is None, "it is said once"
        run()
        x.requires_grad = True
        assert x.grad.list() == [0, 0], "it requires one now, and no backward pass has run since"
        run()
        assert x.grad.list() == [3, 4]


def test_an_input_beside_others_or_of_another_computation_is_not_spoken_of(kernels: Any) -> None:
    x, y = kl.array([1.0], requires_grad=True), kl.zeros(1, requires_grad=True)
    beside, other, unused = kl.array([2.0]), kl.array([1.0]), kl.zeros(1)
    with kl.Tape() as tape:
        kl.launch(kernels["squares"], 1, inputs=[other], outputs=[unused])
        kl.launch(kernels["products"], 1, inputs=[x, beside], outputs=[y])
    tape.backward(y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert other.grad is None and beside.grad is None


def test_metadata_of_a_generic_kernel_takes_its_types_from_the_inputs() -> None:
    made: Any = kl.compile("def twice(x: array[Any], y: array[Any]):\n    y[tid()] = x[tid()] + x[tid()]")
    x = kl.ones(2, dtype=kl.float64)
    found = kl.autograd.FunctionMetadata()
    found.update_from_kernel(made["twice"], [x])
    assert (found.key, found.input_labels, found.output_labels) == ("twice", ["x"], ["y"])
    assert found.input_dtypes == [x.type] and found.input_strides == [(8,)]
    assert np.shape(found.output_dtypes) == (0,)


@pytest.mark.parametrize("name", ["check_finite", "loss", "overwrite"])
def test_a_setting_that_a_tape_does_not_have_cannot_be_assigned(name: str) -> None:
    with pytest.raises(AttributeError, match=name):
        setattr(kl.Tape(), name, True)
