"""`kernelab.interop.torch.function` beside PyTorch's own gradients."""

import pickle
from typing import Any

import pytest
import torch

import kernelab as kl
from kernelab.interop import torch as kt

# What PyTorch says of itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit"),
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),
]

MADE = kl.compile(
    """
def wave(x: array[Any], y: array[Any]):
    i = tid()
    y[i] = sin(x[i]) * x[i] * x[i]

def rounded(x: array[float], y: array[float], k: array[int]):
    i = tid()
    y[i] = x[i] * x[i]
    k[i] = int(4.0 * x[i])

def gather(x: array[float], index: array[int], y: array[float]):
    i = tid()
    y[i] = x[index[i]] * x[index[i]]

def squares(x: array[vec3], y: array[float]):
    y[tid()] = dot(x[tid()], x[tid()])

def mirrored(x: array[vec3], y: array[vec3]):
    y[tid()] = -x[tid()]

def backwards(y: array[float], x: array[float]):
    y[tid()] = x[tid()]
"""
)


def wave(x: Any) -> Any:
    y = kl.zeros_like(x)
    kl.launch(MADE["wave"], dim=x.shape, inputs=[x], outputs=[y])
    return y


def product(x: Any, y: Any) -> Any:
    return (x * y, wave(x) + y)


def test_first_and_second_derivatives_pass_torchs_checks() -> None:
    x = torch.linspace(0.1, 1.0, 4, dtype=torch.float64, requires_grad=True)
    y = torch.linspace(-1.0, 1.0, 4, dtype=torch.float64, requires_grad=True)
    for f, given in ((wave, (x,)), (product, (x, y))):
        assert torch.autograd.gradcheck(kt.function(f), given, check_forward_ad=True)
        assert torch.autograd.gradgradcheck(kt.function(f), given)


def test_gradients_are_those_of_torch_and_memory_is_shared() -> None:
    x = torch.linspace(0.1, 1.0, 5, requires_grad=True)
    seen: list[int] = []
    y = kt.function(lambda a: (seen.append(a.ptr), wave(a))[1])(x)
    kt.function(lambda a: (seen.append(a.ptr), wave(a))[1])(x.detach())
    assert len(seen) == 2
    assert seen[1] == x.data_ptr()
    (ours,) = torch.autograd.grad(y.sum(), x)
    (theirs,) = torch.autograd.grad((torch.sin(x) * x * x).sum(), x)
    torch.testing.assert_close(ours, theirs)


def test_forward_runs_once_and_what_is_overwritten_before_backward_is_an_error() -> None:
    x, runs = torch.linspace(0.1, 1.0, 5, requires_grad=True), []
    f = kt.function(lambda a: (runs.append(1), wave(a))[1])
    f(x).sum().backward()
    assert len(runs) == 1
    y = x * 1.0
    z = f(y)
    y += 1.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_a_kernel_stands_for_a_function_with_integers_and_scalars() -> None:
    x = torch.arange(1.0, 4.0, requires_grad=True)
    index = torch.tensor([2, 0, 2], dtype=torch.int32)
    kt.function(MADE["gather"])(x, index).sum().backward()
    assert x.grad.tolist() == [2.0, 0.0, 12.0]
    single = torch.tensor(3.0, requires_grad=True)
    kt.function(lambda s: s * s)(single).sum().backward()
    assert single.grad.item() == 6.0
    with pytest.raises(kl.KernelTypeError, match="the arrays that it writes have to come last"):
        kt.function(MADE["backwards"])


def test_results_of_integers_have_no_derivatives() -> None:
    f, x = kt.function(MADE["rounded"]), torch.tensor([0.5, 1.5, 2.5])

    def loss(x: Any) -> Any:
        y, k = f(x)
        return (y * k).sum()

    assert torch.func.grad(loss)(x).tolist() == [2.0, 18.0, 50.0]
    assert torch.func.vmap(torch.func.grad(loss))(torch.stack([x, x])).tolist() == [[2.0, 18.0, 50.0]] * 2
    assert torch.func.jvp(loss, (x,), (torch.ones(3),))[1].item() == 70.0
    assert torch.autograd.functional.hessian(loss, x).diagonal().tolist() == [4.0, 12.0, 20.0]


@pytest.mark.parametrize("in_dims", [0, 1])
def test_vmap_runs_all_lanes_and_composes_with_grad(in_dims: int) -> None:
    x = torch.rand(3, 4, dtype=torch.float64)
    f = kt.function(wave)
    torch.testing.assert_close(
        torch.func.vmap(f, in_dims)(x), (torch.sin(x) * x * x) if in_dims == 0 else (torch.sin(x) * x * x).T
    )
    ours = torch.func.vmap(torch.func.grad(lambda v: f(v).sum()))(x)
    torch.testing.assert_close(ours, torch.cos(x) * x * x + 2 * x * torch.sin(x))
    torch.testing.assert_close(
        torch.func.jacrev(f)(x[0]), torch.diag(torch.cos(x[0]) * x[0] ** 2 + 2 * x[0] * torch.sin(x[0]))
    )


def test_a_result_over_the_memory_of_an_argument_is_copied() -> None:
    x = torch.ones(3, requires_grad=True)
    y = kt.function(lambda a: a)(x)
    assert y.data_ptr() != x.data_ptr()


def test_results_of_two_calls_in_one_array_are_apart() -> None:
    buffer = kl.zeros(3)

    def cube(x: Any) -> Any:
        buffer.assign(x * x * x)
        return buffer[:]

    f, x = kt.function(cube), torch.tensor([0.5, 1.0, 2.0], requires_grad=True)
    (f(x) * f(2 * x)).sum().backward()
    assert x.grad.tolist() == [1.5, 48.0, 1536.0]
    assert f(x.detach()).tolist() != f(2 * x.detach()).tolist()


@pytest.mark.parametrize(
    "views",
    [
        lambda y: (y, y),
        lambda y: (y[:2], y[1:]),
        lambda y: (y[0:1], y[1:3], y),
        lambda y: (y.reshape((1, 3)), y),
    ],
)
@pytest.mark.parametrize("needs_grad", [True, False])
def test_results_that_share_memory_are_apart(views: Any, needs_grad: bool) -> None:
    """PyTorch does not see that a change in place of one result would change another."""
    start = [1.0, 2.0, 3.0]
    x, a = (torch.tensor(start, requires_grad=needs_grad) for _ in range(2))
    got = kt.function(lambda v: views(v * v))(x)
    expected = [v.clone() for v in views(a * a)]
    totals = []
    for results in (got, expected):
        results[0].mul_(3.0)
        totals.append(sum((result * result).sum() for result in results))
    assert totals[0].item() == totals[1].item()
    if needs_grad:
        for total in totals:
            total.backward()
        assert x.grad.tolist() == a.grad.tolist()


def test_a_tensor_that_is_no_argument_is_told_to_get_no_gradient() -> None:
    weights = torch.ones(3, requires_grad=True)
    f = kt.function(lambda x: x * kl.from_torch(weights))
    with pytest.warns(kl.KernelWarning, match="no gradient flows to `weights`"):
        f(torch.ones(3, requires_grad=True))
    kt.function(lambda x: x * kl.from_torch(weights, requires_grad=False))(torch.ones(3, requires_grad=True))


def test_a_compiled_program_breaks_its_graph_and_is_right() -> None:
    f = kt.function(wave)
    compiled = torch.compile(lambda v: f(v * 2.0) + 1.0, backend="eager")
    x = torch.linspace(0.1, 1.0, 4, requires_grad=True)
    torch.testing.assert_close(compiled(x), torch.sin(2 * x) * 4 * x * x + 1.0)
    compiled(x).sum().backward()
    assert x.grad is not None


def test_what_is_no_array_is_an_error() -> None:
    with pytest.raises(kl.KernelTypeError, match="the function returned a float"):
        kt.function(lambda x: 1.0)(torch.ones(2))


def test_an_error_within_a_function_names_it_and_the_line_that_called_it() -> None:
    squared = kl.compile("def squared(x: array[float]):\n    x[tid()] = x[tid()] * x[tid()]")["squared"]

    def in_place(x: Any) -> Any:
        squared[len(x)](x)
        return x

    f = kt.function(in_place)
    with pytest.raises(kl.GradientError, match="in_place changes its argument `x`") as caught:
        f(torch.ones(3, requires_grad=True))
    assert "f(torch.ones(3, requires_grad=True))" in str(caught.value)


def test_what_pytorch_writes_down_is_refused_and_what_it_batches_of_old_names_the_way() -> None:
    f, x = kt.function(wave), torch.linspace(0.1, 1.0, 4)
    make_fx = pytest.importorskip("torch.fx.experimental.proxy_tensor").make_fx
    for record in (torch.func.linearize, lambda f, x: make_fx(f)(x)):
        with pytest.raises(kl.KernelTypeError, match="a function of kernelab would be left out"):
            record(f, x)
    with pytest.raises(
        kl.KernelTypeError, match=r"no numbers of its own(.*\n)*  hint: .*torch\.func\.jacrev"
    ):
        torch.autograd.functional.jacobian(f, x, vectorize=True)


def test_the_last_axes_of_a_tensor_are_the_components_that_a_kernel_takes() -> None:
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    kt.function(MADE["squares"])(x).sum().backward()
    assert x.grad.tolist() == (2.0 * x).tolist()
    assert kt.function(MADE["mirrored"])(x).tolist() == (-x).tolist()


def test_a_function_is_pickled_as_the_call_that_made_it_and_takes_arguments_by_name() -> None:
    f, x = kt.function(wave), torch.ones(3, requires_grad=True)
    assert pickle.loads(pickle.dumps(f))(x).tolist() == f(x=x).tolist() == f(x).tolist()
    with pytest.raises(kl.KernelTypeError, match="take a Python function, not an int"):
        kt.function(3)  # type: ignore[arg-type]
