"""Tensors of PyTorch and arrays of JAX where kernelab takes arrays of NumPy, and the other way round."""

import sys
import threading
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas
import pytest
import torch
import xarray

import kernelab as kl
from kernelab.runtime.memory import torch_versions

DOUBLE = kl.compile("def double(x: array[float], y: array[float]):\n    y[tid()] = 2.0 * x[tid()]\n")[
    "double"
]


SQUARE = kl.compile("def square(x: array[float], y: array[float]):\n    y[tid()] = x[tid()] * x[tid()]\n")[
    "square"
]


def test_a_launch_takes_tensors() -> None:
    y = torch.zeros(3)
    kl.launch(DOUBLE, dim=3, inputs=[torch.ones(6)[::2]], outputs=[y])
    assert y.tolist() == [2.0, 2.0, 2.0]
    kl.launch(DOUBLE, dim=3, inputs=[jnp.arange(3.0)], outputs=[y])
    assert y.tolist() == [0.0, 2.0, 4.0]


def test_a_launch_does_not_write_arrays_of_jax_or_take_tensors_with_gradients() -> None:
    with pytest.raises(kl.LaunchError, match="a read-only one, since the kernel writes it"):
        kl.launch(DOUBLE, dim=3, inputs=[torch.ones(3)], outputs=[jnp.zeros(3)])
    with pytest.raises(kl.LaunchError, match="a tensor of PyTorch that requires gradients"):
        kl.launch(DOUBLE, dim=3, inputs=[torch.ones(3, requires_grad=True)], outputs=[torch.zeros(3)])
    with pytest.raises(kl.KernelTypeError, match="cannot make an array from a Tensor"):
        kl.array(torch.ones(3, requires_grad=True))


def test_brain_floats_are_shared_both_ways() -> None:
    x = kl.array([1.0, 2.0], dtype=kl.bfloat16)
    t = kl.to_torch(x)
    assert t.dtype == torch.bfloat16
    t[0] = 5.0
    assert x.list() == [5.0, 2.0]
    back = kl.from_torch(t)
    back.fill_(7.0)
    assert t.tolist() == x.list() == [7.0, 7.0]
    shared = kl.from_dlpack(t)
    shared.fill_(3.0)
    assert t.tolist() == [3.0, 3.0]
    own = torch.ones(2, dtype=torch.bfloat16)  # whose memory kernelab meets for the first time
    kl.from_dlpack(own).fill_(4.0)
    assert own.tolist() == [4.0, 4.0]
    assert torch.from_dlpack(kl.ones(2, dtype=kl.bfloat16)).tolist() == [1.0, 1.0]


def test_jax_copies_arrays() -> None:
    x = kl.array([1.0, 2.0], dtype=float)
    made = jnp.asarray(x)
    x.fill_(9.0)
    np.testing.assert_array_equal(made, [1.0, 2.0])


def test_a_tensor_of_what_a_tape_computed_says_that_the_chain_ends() -> None:
    x, y = kl.ones(3, requires_grad=True), kl.zeros(3, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(DOUBLE, dim=3, inputs=[x], outputs=[y])
    with pytest.warns(kl.KernelWarning, match="no gradient comes back from another library"):
        kl.to_torch(y)
    with pytest.warns(kl.KernelWarning, match="no gradient comes back from another library"):
        jnp.asarray(y)
    assert len(tape.launches) == 1


def test_labelled_arrays_are_made_of_the_memory_and_copied_back() -> None:
    x = kl.array([1.0, 2.0], dtype=float)
    labelled = xarray.DataArray(x.numpy(), dims="t")
    labelled[0] = 5.0
    assert x.list() == [5.0, 2.0]
    assert kl.array(labelled).list() == [5.0, 2.0]
    assert pandas.Series(x).tolist() == [5.0, 2.0]


def test_a_tensor_without_memory_of_its_own_is_an_error() -> None:
    for tensor in (torch.eye(3).to_sparse(), torch.ones(3, device="meta")):
        with pytest.raises(
            kl.KernelTypeError, match=r"a Tensor cannot be shared: .*\n  hint: pass a dense one"
        ):
            kl.launch(DOUBLE, dim=3, inputs=[tensor], outputs=[torch.zeros(3)])


def test_what_a_launch_overwrites_of_a_graph_of_pytorch_is_an_error_there() -> None:
    weight, x = torch.ones(3, requires_grad=True), torch.ones(3)
    y = weight * x
    kl.launch(DOUBLE, dim=3, inputs=[torch.ones(3)], outputs=[x])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    with torch.inference_mode():
        kl.launch(DOUBLE, dim=3, inputs=[x], outputs=[torch.zeros(3)])


SHARES: dict[str, Any] = {
    "from_torch": kl.from_torch,
    "from_torch of a detached one": lambda t: kl.from_torch(t.detach()),
    "from_dlpack": kl.from_dlpack,
    "array": lambda t: kl.array(t, copy=False),
}
OVERWRITES = {
    "a launch": lambda x: DOUBLE[3](kl.ones(3), x),
    "fill_": lambda x: x.fill_(2.0),
    "an index": lambda x: x.__setitem__(0, 2.0),
    "a view": lambda x: x[::2].zero_(),
    "assign": lambda x: x.assign(kl.zeros(3)),
}


@pytest.mark.parametrize("write", OVERWRITES.values(), ids=list(OVERWRITES))
@pytest.mark.parametrize("way", [*SHARES, "to_torch"])
def test_what_is_overwritten_through_shared_memory_is_an_error_there(way: str, write: Any) -> None:
    p = torch.ones(3, requires_grad=True)
    if way == "to_torch":
        x = kl.ones(3)
        loss = (kl.to_torch(x) * p).sum()
    else:
        t = torch.ones(3)
        loss = (t * p).sum()
        x = SHARES[way](t)
    write(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_write_beside_a_tensor_does_not_count_for_it() -> None:
    p, rows = torch.ones(3, requires_grad=True), kl.ones((2, 3))
    loss = (kl.to_torch(rows[0]) * p).sum()
    rows[1].fill_(2.0)
    loss.backward()
    assert p.grad.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("way", ["kept tensors", "arrays of tensors that are gone"])
def test_a_write_counts_for_the_first_of_many_tensors_over_the_same_memory(way: str) -> None:
    p, x = torch.ones(3, requires_grad=True), kl.ones(3)
    first = kl.to_torch(x)
    loss = (first * p).sum()
    others: list[Any] = [
        kl.to_torch(x) if way == "kept tensors" else kl.from_torch(first.detach()) for _ in range(30)
    ]
    x.fill_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    assert len(others) == 30


def test_slices_of_a_tensor_leave_nothing_behind() -> None:
    t = torch.ones(1000)
    x = kl.from_torch(t)
    for n in range(900):
        kl.from_torch(t[n : n + 32]).fill_(2.0)
    assert len(x.allocation.watches) == 1
    assert len(torch_versions._VERSIONS[x.allocation].tensors) < 20


def test_a_thread_may_share_memory_that_another_writes() -> None:
    t = torch.ones(3)
    x = kl.from_torch(t)
    kept, before = [], sys.getswitchinterval()
    sharing = threading.Thread(target=lambda: kept.extend(kl.to_torch(x) for _ in range(1000)))
    sys.setswitchinterval(1e-6)
    try:
        sharing.start()
        while sharing.is_alive():
            x.fill_(2.0)
    finally:
        sys.setswitchinterval(before)
    sharing.join()
    assert len(kept) == 1000


def test_a_part_of_a_tensor_has_a_gradient() -> None:
    column = torch.arange(6.0).reshape(3, 2)[:, 1].detach().requires_grad_(True)
    x, y = kl.from_torch(column, retain_grad=True), kl.zeros(3, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(SQUARE, 3, [x], [y])
    tape.backward(grads={y: torch.ones(1).expand(3)})
    assert column.grad is not None and column.grad.tolist() == [2.0, 6.0, 10.0]


class Square(torch.autograd.Function):
    """As users write it, by the adjoint alone."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        ctx.save_for_backward(x)
        kl.launch(SQUARE, len(x), [x.detach()], [y])
        return y

    @staticmethod
    def backward(ctx: Any, y_bar: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        x_bar, y = torch.zeros_like(x), torch.empty_like(x)
        kl.launch(SQUARE, len(x), [x.detach()], [y], adj_inputs=[x_bar], adj_outputs=[y_bar], adjoint=True)
        return x_bar


def test_an_adjoint_alone_reads_a_gradient_of_pytorch_and_leaves_it_as_it_is() -> None:
    x, z = (torch.tensor([1.0, 2.0, 3.0], requires_grad=True) for _ in range(2))
    (Square.apply(x) + Square.apply(z)).backward(torch.ones(3))  # both addends get one tensor
    assert x.grad is not None and z.grad is not None
    assert x.grad.tolist() == z.grad.tolist() == [2.0, 4.0, 6.0]
    Square.apply(x).sum().backward()  # its gradient is one number, spread
    assert x.grad.tolist() == [4.0, 8.0, 12.0]
