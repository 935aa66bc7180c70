"""Transforms say which derivative is zero because values go on as integers, also from launch to launch."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import kernelab as kl

kernels = kl.compile("""
def counted(x: array[float], n: array[int]):
    i = tid()
    n[i] = int(x[i] * 10.0)

def halved(n: array[int], y: array[float]):
    i = tid()
    y[i] = float(n[i]) * 0.5

def weighted(n: array[int], w: array[float], y: array[float]):
    i = tid()
    y[i] = w[i] * float(n[i])

def picked(n: array[int], x: array[float], y: array[float]):
    i = tid()
    y[i] = x[n[i] % 3]

def looked_up(x: array[float], t: array[float], y: array[float]):
    i = tid()
    y[i] = t[int(x[i])]

def scattered(x: array[float], t: array[float], y: array[float]):
    i = tid()
    atomic_add(y, int(x[i]) % 3, t[i])

def stored(x: array[float], t: array[float], y: array[float]):
    i = tid()
    y[int(x[i]) % 3] = t[i]

def from_there(x: array[float], t: array[float], y: array[float]):
    i = tid()
    rest = t[int(x[i]):]
    y[i] = rest[0]

def gathered(n: array[int], t: array[float], y: array[float]):
    i = tid()
    y[i] = t[n[i]]

def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]
""")
X = kl.array([1.1, 2.3, 3.7])
TABLE = kl.ones(40)
Function = Callable[[Any], Any]


def made(kernel: str, *arguments: Any, dtype: Any = float) -> Any:
    result = kl.zeros(3, dtype=dtype)
    kernels[kernel][3](*arguments, result)
    return result


def counts(x: Any) -> Any:
    return made("counted", x, dtype=int)


def copied(values: Any) -> Any:
    result = kl.zeros_like(values)
    kl.copy(result, values)
    return result


def assigned(values: Any) -> Any:
    result = kl.zeros_like(values)
    result[:] = values
    return result


def in_order(values: Any) -> Any:
    keys = kl.array([2, 0, 1])
    kl.utils.radix_sort_pairs(keys, values, 3)
    return values


ZEROS: dict[str, Function] = {
    "a kernel": lambda x: made("halved", counts(x)),
    "beside other arrays": lambda x: made("weighted", counts(x), kl.ones(3)),
    "and on": lambda x: made("square", made("halved", counts(x))),
    "copies": lambda x: copied(made("halved", copied(counts(x)))),
    "a clone": lambda x: made("halved", kl.clone(counts(x))),
    "an assignment": lambda x: made("halved", assigned(counts(x))),
    "a view made contiguous": lambda x: made("halved", counts(x)[::-1].contiguous()),
    "a sort": lambda x: made("halved", in_order(counts(x))),
    "an operator": lambda x: counts(x) * 0.5,
    "a map": lambda x: kl.map(lambda n: 0.5 * kl.float32(n), counts(x)),
    "astype": lambda x: x.astype(int).astype(float),
}
INDICES: dict[str, Function] = {
    "a load": lambda x: made("looked_up", x, TABLE),
    "an atomic": lambda x: made("scattered", x, TABLE),
    "a store": lambda x: made("stored", x, TABLE),
    "a slice": lambda x: made("from_there", x, TABLE),
    "an array of integers": lambda x: made("gathered", counts(x), TABLE),
    "a copy of integers": lambda x: made("gathered", copied(counts(x)), TABLE),
}
OTHERS: dict[str, Function] = {
    "an index": lambda x: made("picked", counts(x), x),
    "other values": lambda x: x * made("halved", counts(kl.ones(3))),
    "a factor": lambda x: x * made("halved", counts(x)),
}
TRANSFORMS: dict[str, Callable[[Function], Any]] = {
    "vjp": lambda f: kl.func.vjp(f, X)[1](X),
    "jvp": lambda f: kl.func.jvp(f, (X,), (X,)),
    "jacfwd": lambda f: kl.func.jacfwd(f)(X),
    "jacrev": lambda f: kl.func.jacrev(f)(X),
    "hessian": lambda f: kl.func.hessian(lambda x: f(x)[:1])(X),
}


def told(transform: str, function: Function) -> list[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        TRANSFORMS[transform](function)
    return [str(warning.message) for warning in seen]


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("way", ZEROS)
def test_a_derivative_that_ends_in_integers_is_explained(way: str, transform: str) -> None:
    (text,) = told(transform, ZEROS[way])
    assert "with respect to `x` is 0: its values go on as integers only" in text


BESIDE: dict[str, Callable[[Any], Any]] = {
    "grad": lambda f: kl.func.grad(f, (0, 1))(X, kl.ones(3)),
    "jvp": lambda f: kl.func.jvp(f, (X, kl.ones(3)), (X, X)),
    "jacfwd": lambda f: kl.func.jacfwd(f, (0, 1))(X, kl.ones(3)),
}


@pytest.mark.parametrize("transform", BESIDE)
@pytest.mark.parametrize("way", ZEROS)
def test_so_is_one_beside_an_argument_that_has_one(way: str, transform: str) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        BESIDE[transform](lambda x, w: (ZEROS[way](x) * w).sum() + (w * w).sum())
    (text,) = [str(warning.message) for warning in seen]
    assert "with respect to `x` is 0: its values go on as integers only" in text


def test_a_tangent_of_zero_beside_another_one_is_silent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kl.func.jvp(lambda x, w: ZEROS["a kernel"](x) * w, (X, kl.ones(3)), (kl.zeros(3), X))


@pytest.mark.parametrize("way", ZEROS)
def test_so_is_one_on_a_tape(way: str) -> None:
    x, w = kl.array([1.1, 2.3, 3.7], requires_grad=True), kl.array([1.0, 2.0, 3.0], requires_grad=True)
    with kl.Tape() as tape:
        loss = (ZEROS[way](x) * w).sum()
    with pytest.warns(kl.KernelWarning, match="no gradient flows to `x`, .* as integers only") as seen:
        tape.backward(loss)
    assert len(seen) == 1


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("way", OTHERS)
def test_integers_beside_another_way_are_silent(way: str, transform: str) -> None:
    assert told(transform, OTHERS[way]) == []


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("way", INDICES)
def test_a_derivative_that_ends_in_an_index_is_explained(way: str, transform: str) -> None:
    (text,) = told(transform, INDICES[way])
    assert "with respect to `x` is 0: it only picks an element" in text


@pytest.mark.parametrize("kernel", ["looked_up", "scattered", "stored", "from_there"])
def test_an_index_beside_a_table_is_told_to_who_asks_for_the_gradient(kernel: str) -> None:
    x, table = kl.array([0.5, 1.5, 2.5], requires_grad=True), kl.ones(40, requires_grad=True)
    y = kl.zeros(3, requires_grad=True)
    with kl.Tape() as tape:
        kernels[kernel][3](x, table, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tape.backward(grads={y: kl.ones(3)})
    assert sum(table.grad.list()) == 3.0
    with pytest.warns(kl.KernelWarning, match="it only picks an element"):
        assert x.grad.list() == [0.0, 0.0, 0.0]


def test_an_index_from_an_array_of_integers_is_told_to_who_asks_for_the_gradient() -> None:
    x, table = kl.array([0.5, 1.5, 2.5], requires_grad=True), kl.ones(40, requires_grad=True)
    n, y = kl.zeros(3, dtype=int), kl.zeros(3, requires_grad=True)
    with kl.Tape() as tape:
        kernels["counted"][3](x, n)
        kernels["gathered"][3](n, table, y)
    tape.backward(grads={y: kl.ones(3)})
    with pytest.warns(kl.KernelWarning, match="it only picks an element"):
        assert x.grad.list() == [0.0, 0.0, 0.0]
