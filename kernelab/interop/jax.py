"""Functions of arrays as functions of JAX's arrays, under `jit`, `grad` and `vmap`."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from kernelab.func import jvp, vmap
from kernelab.interop import Function, Grid, launched, pullback, results_of
from kernelab.runtime.array.array import array


def function(f: Function, dim: Grid = None, *, forward: bool = False) -> Function:
    """`f`, which takes and returns arrays of kernelab, as a function of JAX's arrays with its derivatives.

    It has a `custom_vjp`, or with `forward` a `custom_jvp`: JAX gives a function one of them.  Second
    derivatives compute with `kl.func`, too: `jax.grad` of `jax.grad`, and with `forward` `jax.jvp` of
    `jax.jvp`.  Under `jit` it is a `pure_callback`; `f` runs once on ones while JAX traces, which tells the
    shapes of its results.  `vmap` runs all lanes in one launch.  Arrays of JAX come without a copy and are
    read-only; results are copied.  A kernel is launched over `dim`, as `kernelab.interop.launched` says.
    """
    of_arrays = launched(f, dim)

    def call(*args: Any) -> Any:
        given = [jnp.asarray(one) for one in args]
        several = isinstance(_traced(of_arrays, given), tuple | list)
        found = _bridge(lambda *arrays: results_of(of_arrays(*arrays)), forward)(*given)
        return found if several else found[0]

    call.__name__ = getattr(f, "__name__", "function")
    return call


def _traced(f: Function, given: Sequence[Any]) -> Any:
    """What a function returns for ones of the same shapes."""
    return f(*(array(np.ones(one.shape or (1,), one.dtype)) for one in given))


def _bridge(f: Function, forward: bool) -> Function:
    """A function of arrays that returns a tuple of them, as one of JAX with a derivative."""
    run = _callback(f)
    return _with_jvp(f, run) if forward else _with_vjp(f, run)


def _with_vjp(f: Function, run: Function) -> Function:
    bridge: Any = jax.custom_vjp(run)

    def back(given: Any, bars: Any) -> Any:
        floats = _floats(given)
        found = iter(_bridge(pullback(f, len(given), floats), False)(*given, *bars))
        zeros = (np.zeros(one.shape, jax.dtypes.float0) for one in given)
        return tuple(
            next(found).reshape(one.shape) if n in floats else zero
            for n, (one, zero) in enumerate(zip(given, zeros, strict=True))
        )

    bridge.defvjp(lambda *given: (bridge(*given), given), back)
    return bridge  # type: ignore[no-any-return]


def _with_jvp(f: Function, run: Function) -> Function:
    bridge: Any = jax.custom_jvp(run)

    @bridge.defjvp  # type: ignore[untyped-decorator, unused-ignore]
    def push(given: Any, dots: Any) -> Any:
        floats = _floats(given)

        def pushed(*arrays: array) -> tuple[array, ...]:
            whole = list(arrays[: len(given)])

            def of_floats(*chosen: array) -> tuple[array, ...]:
                for n, one in zip(floats, chosen, strict=True):
                    whole[n] = one
                return results_of(f(*whole))

            return tuple(jvp(of_floats, [whole[n] for n in floats], arrays[len(given) :])[1])

        return bridge(*given), _bridge(pushed, True)(*given, *(dots[n] for n in floats))

    return bridge  # type: ignore[no-any-return]


def _floats(given: Sequence[Any]) -> list[int]:
    return [n for n, one in enumerate(given) if jnp.issubdtype(one.dtype, jnp.floating)]


def _callback(f: Function) -> Function:
    """A function of arrays as a callback of JAX, which vmap batches into one launch."""

    def host(*given: Any) -> tuple[Any, ...]:
        found = f(*(array(np.atleast_1d(np.asarray(one)), copy=False) for one in given))
        return tuple(one.numpy() for one in found)

    @jax.custom_batching.custom_vmap  # type: ignore[untyped-decorator, unused-ignore]
    def run(*given: Any) -> Any:
        like = [jax.ShapeDtypeStruct(one.numpy().shape, one.numpy().dtype) for one in _traced(f, given)]
        return jax.pure_callback(host, tuple(like), *given)

    @run.def_vmap  # type: ignore[untyped-decorator, unused-ignore]
    def batched(_: int, in_batched: Sequence[bool], *given: Any) -> Any:
        dims = tuple(0 if is_batched else None for is_batched in in_batched)
        found = _callback(vmap(f, dims))(*given)
        return found, (True,) * len(found)

    return run  # type: ignore[no-any-return]
