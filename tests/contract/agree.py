"""How the contract's tests check a kernel: a tape's gradients against differences of the same text in Python.

`gradients_are_right(text, threads, x=..., y=...)` launches the kernel `k` of the text on a tape, with machine
code, and compares every element of every array's gradient with central differences of the text run as plain
Python; then the tangent with the adjoint.  Arrays of floats are float64, and all of them require gradients.
"""

from typing import Any

import numpy as np

import kernelab as kl
from kernelab.lang.ir import Function
from kernelab.lang.types import Array
from kernelab.passes.common.effects import effects
from tests.support import python_oracle
from tests.support.derivatives import pushed
from tests.support.lowering import lowered

STEP = 1e-6
Arrays = dict[str, np.ndarray[Any, Any]]


def gradients_are_right(text: str, threads: int | tuple[int, ...] = 1, **arguments: Any) -> Arrays:
    """The gradients of the arrays by name, after checking them, for random cotangents of those that change.

    Lists of floats and arrays of float64 stand for arrays of floats, lists of ints for arrays of ints.
    """
    grid = (threads,) if isinstance(threads, int) else threads
    function = lowered(text, "k")
    given = {name: _array(value) for name, value in arguments.items()}
    floats = [name for name, value in given.items() if _is_float(value)]
    rng = np.random.default_rng(len(text))
    changed = {var.hint for var in effects(function).changed}
    seeds = {name: rng.normal(size=given[name].shape) * (name in changed) for name in floats}
    found = _tape(text, function, grid, given, seeds)
    _compare_with_differences(text, function, grid, given, seeds, found)
    directions = {name: rng.normal(size=given[name].shape) for name in floats}
    moved = pushed(function, grid, given, directions)
    by_tangent = sum(float(np.sum(seeds[name] * moved[name])) for name in floats)
    by_adjoint = sum(float(np.sum(found[name] * directions[name])) for name in floats)
    assert abs(by_adjoint - by_tangent) <= 1e-10 * max(1.0, abs(by_tangent)), "adjoint and tangent differ"
    return found


def _array(value: Any) -> Any:
    if isinstance(value, int | float):
        return value
    array = np.array(value)
    return array.astype(np.int32) if array.dtype.kind == "i" else array.astype(np.float64)


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def _tape(text: str, function: Function, grid: tuple[int, ...], given: Arrays, seeds: Arrays) -> Arrays:
    """The gradients of the values that the arrays hold before the launch, by way of copies of them."""
    kernel, types = kl.compile(text)["k"], {param.hint: param.type for param in function.params}
    leaves: dict[str, Any] = {}
    arguments: list[Any] = []
    for name, value in given.items():
        type = types[name]
        if not isinstance(type, Array):
            arguments.append(value)
            continue
        leaf = kl.array(value, dtype=type.elem, requires_grad=name in seeds)
        leaves[name] = leaf
        arguments.append(kl.clone(leaf))
    with kl.Tape() as tape:
        for argument, leaf in zip(
            [a for a in arguments if isinstance(a, kl.array)], leaves.values(), strict=True
        ):
            kl.copy(argument, leaf)
        kernel[grid](*arguments)
    results = dict(zip(given, arguments, strict=True))
    tape.backward(grads={results[name]: seed for name, seed in seeds.items()})
    return {name: _gradient(leaves[name]) for name in seeds}


def _gradient(leaf: Any) -> np.ndarray[Any, Any]:
    return np.zeros(leaf.host().shape) if leaf.grad is None else leaf.grad.numpy().copy()


def _compare_with_differences(
    text: str, function: Function, grid: tuple[int, ...], given: Arrays, seeds: Arrays, found: Arrays
) -> None:
    code = python_oracle.compiled(text)
    ndims = {param.hint: param.type.ndim for param in function.params if isinstance(param.type, Array)}

    def loss(name: str, place: int, step: float) -> float:
        after = {key: np.array(value) if key in ndims else value for key, value in given.items()}
        after[name].reshape(-1)[place] += step
        python_oracle.run_in_place(code, "k", grid, after, ndims)
        return sum(float(np.sum(seed * after[key])) for key, seed in seeds.items())

    for name, gradient in found.items():
        for place, slope in enumerate(gradient.ravel()):
            expected = (loss(name, place, STEP) - loss(name, place, -STEP)) / (2 * STEP)
            told = f"the gradient of {name}, element {place}, is {slope}, and differences say {expected}"
            assert abs(slope - expected) <= 1e-6 * max(1.0, abs(expected)), told
