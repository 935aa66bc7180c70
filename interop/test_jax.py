"""`kernelab.interop.jax.function` beside JAX's own gradients."""

import os
import pickle
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kernelab as kl
from kernelab.interop import jax as kj

MADE = kl.compile(
    """
def wave(x: array[float], y: array[float]):
    i = tid()
    y[i] = sin(x[i]) * x[i] * x[i]

def rounded(x: array[float], y: array[float], k: array[int]):
    i = tid()
    y[i] = x[i] * x[i]
    k[i] = int(4.0 * x[i])

def gather(x: array[float], index: array[int], y: array[float]):
    i = tid()
    y[i] = x[index[i]] * x[index[i]]

def mirrored(x: array[vec3], y: array[vec3]):
    y[tid()] = -x[tid()]

def double(x: array[float]):
    i = tid()
    x[i] = 2.0 * x[i]
"""
)
X = jnp.linspace(0.1, 1.0, 5)


def wave(x: Any) -> Any:
    y = kl.zeros_like(x)
    kl.launch(MADE["wave"], dim=x.shape, inputs=[x], outputs=[y])
    return y


def theirs(x: Any) -> Any:
    return jnp.sin(x) * x * x


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_are_those_of_jax(compiled: bool) -> None:
    f = kj.function(wave)
    for make in (
        lambda f: f,
        lambda f: jax.grad(lambda x: f(x).sum()),
        jax.jacrev,
        lambda f: jax.grad(lambda x: (jax.grad(lambda z: f(z).sum())(x) ** 2).sum()),
    ):
        ours = jax.jit(make(f)) if compiled else make(f)
        np.testing.assert_allclose(ours(X), make(theirs)(X), rtol=1e-4, atol=1e-5)


def test_forward_mode_is_that_of_jax_and_composes() -> None:
    f = kj.function(wave, forward=True)
    np.testing.assert_allclose(jax.jacfwd(f)(X), jax.jacfwd(theirs)(X), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        jax.jit(jax.jacfwd(jax.jacfwd(f)))(X), jax.jacfwd(jax.jacfwd(theirs))(X), rtol=1e-4, atol=1e-5
    )


def test_vmap_runs_all_lanes_also_of_gradients_and_under_jit() -> None:
    rows = jnp.stack([X, X + 1.0, X + 2.0])
    f, launches = kj.function(wave), []
    np.testing.assert_allclose(jax.jit(jax.vmap(f))(rows), theirs(rows), rtol=1e-5)
    ours = jax.vmap(jax.grad(lambda x: f(x).sum()))(rows)
    np.testing.assert_allclose(
        ours, jax.vmap(jax.grad(lambda x: theirs(x).sum()))(rows), rtol=1e-4, atol=1e-5
    )
    counted = kj.function(lambda x: (launches.append(1), wave(x))[1])
    jax.vmap(counted)(rows)
    assert len(launches) < 5


def test_vmap_of_vmap_and_of_some_arguments() -> None:
    rows = jnp.arange(12.0).reshape(2, 2, 3)
    f, scale = kj.function(lambda x, s: x * s), jnp.array([2.0])
    np.testing.assert_allclose(jax.vmap(jax.vmap(f, (0, None)), (0, None))(rows, scale), rows * 2.0)
    np.testing.assert_allclose(
        jax.vmap(jax.vmap(f, (0, None)), (0, 0))(rows, rows[:, 0, :1]), rows * rows[:, :1, :1]
    )
    assert jax.vmap(kj.function(lambda s: s * s))(jnp.arange(3.0)).tolist() == [[0.0], [1.0], [4.0]]
    np.testing.assert_allclose(jax.vmap(f, (0, None))(rows[:1, 0], scale), rows[:1, 0] * 2.0)


def test_several_results_and_integers() -> None:
    index = jnp.array([2, 0, 2], jnp.int32)
    x = jnp.arange(1.0, 4.0)
    assert jax.grad(lambda x: kj.function(MADE["gather"])(x, index).sum())(x).tolist() == [2.0, 0.0, 12.0]
    two = kj.function(lambda x, y: (x * y, wave(x)))
    first, second = two(X, X)
    np.testing.assert_allclose(first, X * X, rtol=1e-6)
    np.testing.assert_allclose(second, theirs(X), rtol=1e-5)
    assert jax.grad(lambda s: kj.function(lambda s: s * s)(s)[0])(3.0) == 6.0


@pytest.mark.parametrize("compiled", [False, True])
def test_results_of_integers_have_no_derivatives(compiled: bool) -> None:
    kernel = MADE["rounded"]
    made = jax.jit if compiled else (lambda f: f)
    f, g = kj.function(kernel), kj.function(kernel, forward=True)
    x = jnp.array([0.5, 1.5, 2.5])
    for back in (
        jax.grad(lambda x: (f(x)[0] * f(x)[1]).sum()),
        jax.jacfwd(lambda x: (g(x)[0] * g(x)[1]).sum()),
    ):
        assert made(back)(x).tolist() == [2.0, 18.0, 50.0]
        assert made(jax.vmap(back))(jnp.stack([x, x])).tolist() == [[2.0, 18.0, 50.0]] * 2
    twice = jax.jacrev(jax.grad(lambda x: (f(x)[0] * f(x)[1]).sum()))
    assert made(twice)(x).diagonal().tolist() == [4.0, 12.0, 20.0]
    twice = jax.jacfwd(jax.jacfwd(lambda x: (g(x)[0] * g(x)[1]).sum()))
    assert made(twice)(x).diagonal().tolist() == [4.0, 12.0, 20.0]
    assert f(x)[1].tolist() == [2, 6, 10]


def test_forward_over_reverse_says_which_mode_it_has() -> None:
    with pytest.raises(TypeError, match="custom_vjp"):
        jax.jacfwd(kj.function(wave))(X)


def test_results_are_copies_and_64_bits_need_jax_to_have_them() -> None:
    buffer = kl.zeros(3)

    def squared(x: Any) -> Any:
        buffer.assign(x * x)
        return buffer

    f = kj.function(squared)
    first, second = f(jnp.ones(3)), f(2.0 * jnp.ones(3))
    assert (first.tolist(), second.tolist()) == ([1.0] * 3, [4.0] * 3)
    with pytest.raises(ValueError, match="cannot specify 64-bit types"):
        kj.function(lambda x: kl.array(x.numpy().astype(np.float64)))(jnp.ones(3))


SHARDED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec
import kernelab as kl
from kernelab.interop import jax as kj

f, mesh = kj.function(lambda x: x * x * x), Mesh(np.array(jax.devices()), ("rows",))
parts = PartitionSpec("rows")
mapped = jax.shard_map(f, mesh=mesh, in_specs=parts, out_specs=parts, check_vma=False)
x = jnp.arange(1.0, 7.0)
assert len(mapped(x).devices()) == 2
for prepare in (jax.jit, lambda f: f):
    np.testing.assert_allclose(prepare(mapped)(x), x**3)
    np.testing.assert_allclose(prepare(jax.grad(lambda x: mapped(x).sum()))(x), 3 * x**2)
misfit = kj.function(lambda a, x: (a * x * x).sum())
both = jax.shard_map(
    lambda a, x: jax.lax.psum(misfit(a, x), "rows"),
    mesh=mesh, in_specs=(PartitionSpec(), parts), out_specs=PartitionSpec(), check_vma=False,
)
np.testing.assert_allclose(jax.grad(lambda a: both(a, x)[0])(jnp.ones(3)), (x**2).reshape(2, 3).sum(0))
print("two devices")
"""


@pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="from JAX 0.6 on")
def test_shard_map_gives_each_device_its_rows_and_sums_gradients() -> None:
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    command = [sys.executable, "-c", SHARDED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "two devices\n", done.stderr


@pytest.mark.parametrize("count", [5, 50_000])
def test_arrays_of_jax_are_read_only_copied_or_not(count: int) -> None:
    f = kj.function(lambda x: (kl.launch(MADE["double"], dim=x.shape, inputs=[x]), x)[1])
    with pytest.raises(kl.LaunchError, match="a read-only one, since the kernel writes it"):
        f(jnp.ones(count))


@pytest.mark.parametrize("compiled", [False, True])
def test_integers_are_zeros_and_nothing_runs_twice_where_jax_traces_nothing(compiled: bool) -> None:
    runs: list[int] = []
    taken = kj.function(lambda x, index: (runs.append(1), of_gather(x, index))[1])
    prepared = jax.jit(taken) if compiled else taken
    assert prepared(jnp.ones(1), jnp.zeros(1, jnp.int32)).tolist() == [1.0]
    assert len(runs) == 1 + compiled


def of_gather(x: Any, index: Any) -> Any:
    y = kl.zeros_like(x)
    kl.launch(MADE["gather"], dim=x.shape, inputs=[x, index], outputs=[y])
    return y


def test_an_error_while_jax_traces_says_what_the_function_ran_on() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        jax.jit(kj.function(lambda x, n: x * (1 // int(n.item()))))(X, 3)
    assert "ran on ones (zeros for integers)" in caught.value.__notes__[0]


def test_numbers_of_python_vectors_and_names() -> None:
    scaled = kj.function(lambda x, s: x * s, forward=True)
    assert jax.jacfwd(lambda s: scaled(X, s).sum())(2.0) == pytest.approx(float(X.sum()))
    assert kj.function(MADE["mirrored"])(jnp.ones((2, 3))).tolist() == [[-1.0] * 3] * 2
    assert pickle.loads(pickle.dumps(kj.function(wave)))(x=X).tolist() == kj.function(wave)(X).tolist()


def test_what_jax_traces_is_passed_as_an_argument() -> None:
    y = kl.zeros(5)

    def closed_over(w: Any) -> Any:
        return kj.function(lambda x: (kl.launch(MADE["wave"], dim=5, inputs=[w], outputs=[y]), x)[1])(X).sum()

    with pytest.raises(kl.LaunchError, match=r"no numbers yet\n(.*\n)*  hint: .*pass it as an argument of f"):
        jax.grad(closed_over)(X)
    with pytest.raises(
        kl.KernelTypeError, match=r"returned a\w* \w+\n  hint: .* arrays of JAX are arguments"
    ):
        jax.grad(lambda w: kj.function(lambda x: x * w)(X).sum())(X)
