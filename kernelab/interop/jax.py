"""Functions of arrays as functions of JAX's arrays, under `jit`, `grad` and `vmap`."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from kernelab.errors import KernelTypeError
from kernelab.func import Made, vmap
from kernelab.interop import Function, Grid, copy_of, launched, pullback, pushforward, results_of
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import RECORDER

COPIED_BYTES = 1 << 14
"""Up to this size a copy takes less time than to keep note of memory that is shared."""


def function(f: Function, dim: Grid = None, *, forward: bool = False) -> Function:
    """`f`, which takes and returns arrays of kernelab, as a function of JAX's arrays with its derivatives.

    It has a `custom_vjp`, or with `forward` a `custom_jvp`: JAX gives a function one of them.  Second
    derivatives compute with `kl.func`, too: `jax.grad` of `jax.grad`, and with `forward` `jax.jvp` of
    `jax.jvp`.  Under `jit` it is a `pure_callback`; while JAX traces, `f` runs once on ones, and zeros for
    integers, which tells the shapes of its results.  `vmap` runs all lanes in one launch.  Arrays of JAX come
    without a copy, unless they are small, and are read-only; results are copied.  A kernel is launched over
    `dim`, as `kernelab.interop.launched` says.
    """
    of_arrays = launched(f, dim)
    several: set[bool] = set()

    def of_jax(*arrays: array) -> tuple[array, ...]:
        returned = of_arrays(*arrays)
        several.add(isinstance(returned, tuple | list))
        if len(several) > 1:
            message = f"{call.__name__} returns one array for some arguments, and several for others"
            raise KernelTypeError.of(message, "interop", "return a tuple always")
        return results_of(returned)

    of_jax.__name__ = getattr(f, "__name__", "function")
    of_jax.__wrapped__ = of_arrays  # type: ignore[attr-defined]
    bridge = _bridge(of_jax, forward)

    def call(*args: Any) -> Any:
        results = bridge(*map(_as_array, args))
        return results if several == {True} else results[0]

    call.__name__ = of_jax.__name__
    return Made(call, partial(function, f, dim, forward=forward))


def _bridge(f: Function, forward: bool, copied: Callable[[int], bool] = lambda n: False) -> Function:
    """A function of arrays that returns a tuple of them, as one of JAX with a derivative."""
    run = _callback(f, copied)
    bridge = (_with_jvp if forward else _with_vjp)(f, run)
    return lambda *arrays: (bridge if _are_traced(arrays) else run)(*arrays)


def _as_array(value: Any) -> Any:
    return value if isinstance(value, jax.Array) else jnp.asarray(value)


def _are_traced(arrays: Sequence[Any]) -> bool:
    """Whether JAX traces or differentiates any of them; where not, a rule would only cost time."""
    return any(isinstance(one, jax.core.Tracer) for one in arrays)


def _with_vjp(f: Function, run: Function) -> Function:
    bridge: Any = jax.custom_vjp(run)

    @cache
    def adjoints(count: int, floats: tuple[int, ...]) -> Function:
        return _bridge(pullback(f, count, floats, own=True), False, lambda n: n >= count or n in floats)

    def back(primals: Any, bars: Any) -> Any:
        floats = _floats(primals)
        taken = (jnp.zeros(bar.shape, int) if bar.dtype == jax.dtypes.float0 else bar for bar in bars)
        cotangents = iter(adjoints(len(primals), floats)(*primals, *taken))
        return tuple(
            next(cotangents).reshape(one.shape) if n in floats else _nothing(one)
            for n, one in enumerate(primals)
        )

    def forward(*primals: Any) -> Any:
        arrays = tuple(map(_as_array, primals))
        return (bridge if _are_traced(arrays) else run)(*arrays), arrays

    bridge.defvjp(forward, back)
    return bridge  # type: ignore[no-any-return]


def _with_jvp(f: Function, run: Function) -> Function:
    bridge: Any = jax.custom_jvp(run)

    @cache
    def tangents(count: int, floats: tuple[int, ...]) -> Function:
        return _bridge(pushforward(f, count, floats), True)

    @bridge.defjvp  # type: ignore[untyped-decorator, unused-ignore]
    def push(given: Any, dots: Any) -> Any:
        primals = tuple(map(_as_array, given))
        floats, results = _floats(primals), bridge(*primals)
        pushed = tangents(len(primals), floats)(*primals, *(_as_array(dots[n]) for n in floats))
        moving = _floats(results)
        return results, tuple(dot if n in moving else _nothing(dot) for n, dot in enumerate(pushed))

    return bridge  # type: ignore[no-any-return]


def _nothing(elements: Any) -> Any:
    """What JAX has for a derivative of integers."""
    return np.zeros(elements.shape, jax.dtypes.float0)


def _floats(arrays: Sequence[Any]) -> tuple[int, ...]:
    return tuple(n for n, one in enumerate(arrays) if jnp.issubdtype(one.dtype, jnp.floating))


def _callback(f: Function, copied: Callable[[int], bool]) -> Function:
    """A function of arrays as a callback of JAX, which runs all lanes of `vmap` in one launch.

    It gets its arguments over the memory of JAX, but those at places that are `copied` in arrays of its own.
    """

    def host(ndims: Sequence[int], *values: Any) -> tuple[Any, ...]:
        arrays = [np.asarray(one) for one in values]
        whole = [one if ndim else one[..., None] for one, ndim in zip(arrays, ndims, strict=True)]
        run, parts = _over_lanes(f, whole, arrays[0].ndim - ndims[0])
        given = [copy_of(part) if copied(n) else _fixed(part) for n, part in enumerate(parts)]
        outputs = run(*given)
        if RECORDER.get() is None:  # JAX copies them, and nobody else has them
            return tuple([one.seen() for one in outputs])
        return tuple([one.numpy() for one in outputs])

    @cache
    def results(*like: jax.ShapeDtypeStruct) -> tuple[jax.ShapeDtypeStruct, ...]:
        """What `f` returns for arrays of these shapes: it runs on ones, and zeros for integers."""
        makes = (np.ones if jnp.issubdtype(one.dtype, jnp.floating) else np.zeros for one in like)
        numbers = (make(one.shape, one.dtype) for make, one in zip(makes, like, strict=True))
        try:
            outputs = host([one.ndim for one in like], *numbers)
        except Exception as problem:
            problem.add_note(f"while JAX traced it, {f.__name__} ran on ones (zeros for integers)")
            raise
        return tuple(jax.ShapeDtypeStruct(one.shape, one.dtype) for one in outputs)

    @cache
    def at(*ndims: int) -> Function:  # JAX builds anew for another object
        return partial(host, ndims)

    def run(*arrays: Any) -> Any:
        called = at(*(one.ndim for one in arrays))
        if not _are_traced(arrays):  # without a detour over its device
            outputs = called(*arrays)
            # JAX may be set to have no numbers of such a type.
            if all(jax.dtypes.canonicalize_dtype(one.dtype) == one.dtype for one in outputs):
                return tuple(jnp.array(one) for one in outputs)
        like = results(*(jax.ShapeDtypeStruct(one.shape, one.dtype) for one in arrays))
        return jax.pure_callback(called, like, *arrays, vmap_method="expand_dims")

    return run


def _fixed(values: Any) -> array:
    """A read-only array with the numbers of one of NumPy: in the same memory, or a copy of few."""
    if values.nbytes > COPIED_BYTES:
        return array(values, copy=False)
    elements = copy_of(values)
    elements.allocation.writable = elements.host().flags.writeable = False
    return elements


def _over_lanes(f: Function, arguments: list[Any], levels: int) -> tuple[Function, list[Any]]:
    """`f` over the first axes of its arguments, without those of one element where others have more."""
    if not levels:
        return f, arguments
    axes = [[one.shape[k] > 1 for one in arguments] for k in range(levels)]
    axes = [has_lanes if any(has_lanes) else [True] * len(arguments) for has_lanes in axes]
    for has_lanes in reversed(axes):
        f = vmap(f, tuple(0 if one else None for one in has_lanes))
    alone = [tuple(k for k in range(levels) if not axes[k][n]) for n in range(len(arguments))]
    return f, [np.squeeze(one, where) if where else one for one, where in zip(arguments, alone, strict=True)]
