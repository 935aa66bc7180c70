"""Arrays around a function of `custom_vjp`: what it reads, and changes before the derivative; what it leaves.

Both are constants to every recorder.  Where such a constant makes a derivative wrong, there is a warning.
"""

import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.autodiff.transforms import compared

X = np.array([0.3, 0.7, 1.1, -0.4], np.float32)


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compared, "_KNOWN", {})


K = kl.compile("""
def double(w: array[float]):
    i = tid()
    w[i] = 2.0 * w[i]

def slope_into(a: array[float], out: array[float]):
    i = tid()
    out[i] = cos(a[i])

def count(n: array[int]):
    n[0] += 1

class Held:
    by: array[float]
""")


def leaf() -> Any:
    return kl.array(X, requires_grad=True)


def pulled_on_a_tape(f: Callable[[Any], Any], meanwhile: Callable[[], object]) -> Any:
    x = leaf()
    with kl.Tape() as tape:
        y = f(x)
        meanwhile()
        loss = y.sum()
    tape.backward(loss)
    return x.grad


def pulled_on_a_tape_that_has_ended(f: Callable[[Any], Any], meanwhile: Callable[[], object]) -> Any:
    x = leaf()
    with kl.Tape() as tape:
        loss = f(x).sum()
    meanwhile()
    tape.backward(loss)
    return x.grad


def pulled_by_vjp(f: Callable[[Any], Any], meanwhile: Callable[[], object]) -> Any:
    _, back = kl.func.vjp(f, leaf())
    meanwhile()
    return back(kl.ones(4))[0]


def pulled_in_grad(f: Callable[[Any], Any], meanwhile: Callable[[], object]) -> Any:
    def loss(x: Any) -> Any:
        y = f(x)
        meanwhile()
        return y.sum()

    return kl.func.grad(loss)(leaf())


PASSES = [pulled_on_a_tape, pulled_on_a_tape_that_has_ended, pulled_by_vjp, pulled_in_grad]
passes = pytest.mark.parametrize("pulled", PASSES)
CHANGES: dict[str, Callable[[Any], object]] = {
    "operator": lambda w: w.__imul__(2.0),
    "assign": lambda w: w.assign(np.ones(4, np.float32)),
    "fill": lambda w: w.fill_(5.0),
    "part": lambda w: w[1:3].fill_(5.0),
    "launch": lambda w: K["double"][4](w),
    "copy": lambda w: kl.copy(w, kl.ones(4)),
    "view of NumPy's": lambda w: w.numpy().fill(5.0),
}


# ------------------------------------------------------------------------------------------ what it reads


@passes
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("is_kernel", [False, True], ids=["numpy", "kernels"])
def test_an_array_that_changes_before_the_derivative_reads_it_is_told(
    pulled: Callable[..., Any], change: Callable[[Any], object], is_kernel: bool
) -> None:
    w = kl.full(4, 3.0)
    scaled = kl.func.custom_vjp(
        lambda a: a * w if is_kernel else a.numpy() * w.numpy(),
        lambda a, bar: bar * w if is_kernel else bar.numpy() * w.numpy(),
    )
    with pytest.warns(kl.KernelWarning, match="`w` has changed since <lambda> was called"):
        pulled(scaled, lambda: change(w))


GLOBAL: Any = None


def of_objects(slope: kl.array) -> Any:
    held = np.empty(1, object)
    held[0] = slope
    return held


def held_by_methods(slope: kl.array) -> Any:
    class Held:
        @staticmethod
        def static(a: kl.array, bar: kl.array) -> Any:
            return bar * slope

        @property
        def by(self) -> kl.array:
            return slope

    return Held()


def holder(slope: kl.array) -> Any:
    return K["Held"](by=slope)


def in_a_lambda(slope: kl.array) -> Callable[..., Any]:
    globals()["GLOBAL"] = slope
    return lambda a, bar: (lambda: bar * GLOBAL)()


def in_a_loop(slope: kl.array) -> Callable[..., Any]:
    globals()["GLOBAL"] = slope
    return lambda a, bar: [bar * GLOBAL for _ in range(2)][1]


HOLDERS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "a closure": lambda slope: lambda a, bar: bar * slope,
    "a default": lambda slope: lambda a, bar, by=slope: bar * by,
    "a list": lambda slope: (lambda held: lambda a, bar: bar * held[0])([slope]),
    "an attribute": lambda slope: (lambda held: lambda a, bar: bar * held.by)(SimpleNamespace(by=slope)),
    "a function": lambda slope: (lambda inner: lambda a, bar: inner(bar))(lambda bar: bar * slope),
    "a partial": lambda slope: partial(lambda by, a, bar: bar * by, slope),
    "a deque": lambda slope: (lambda held: lambda a, bar: bar * held[0])(deque([slope])),
    "an array of objects": lambda slope: (lambda held: lambda a, bar: bar * held[0])(of_objects(slope)),
    "a reference": lambda slope: (lambda held: lambda a, bar: bar * held())(weakref.ref(slope)),
    "a class": lambda slope: (lambda held: lambda a, bar: bar * held.by)(type("Held", (), {"by": slope})),
    "a static method": lambda slope: held_by_methods(slope).static,
    "a property": lambda slope: (lambda held: lambda a, bar: bar * held.by)(held_by_methods(slope)),
    "a struct": lambda slope: (lambda held: lambda a, bar: bar * held.by)(holder(slope)),
    "a global in a lambda": in_a_lambda,
    "a global in a loop": in_a_loop,
}


@passes
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_array_that_only_the_derivative_reads_is_told(
    pulled: Callable[..., Any], change: Callable[[Any], object]
) -> None:
    slope = kl.full(4, 3.0)
    scaled = kl.func.custom_vjp(lambda a: 3.0 * a, lambda a, bar: bar * slope)
    with pytest.warns(kl.KernelWarning, match="`slope` has changed since <lambda> was called"):
        pulled(scaled, lambda: change(slope))


@pytest.mark.parametrize("held", HOLDERS.values(), ids=HOLDERS)
def test_it_is_told_wherever_the_derivative_holds_it(held: Callable[[Any], Callable[..., Any]]) -> None:
    slope = kl.full(4, 3.0)
    scaled = kl.func.custom_vjp(lambda a: 3.0 * a, held(slope))
    np.testing.assert_array_equal(pulled_on_a_tape(scaled, lambda: None).numpy(), 3.0)
    with pytest.warns(kl.KernelWarning, match="has changed since <lambda> was called"):
        pulled_on_a_tape(scaled, lambda: slope.fill_(5.0))


@pytest.mark.parametrize("is_read", [False, True], ids=["by the derivative", "by both"])
def test_a_checkpoint_keeps_what_a_derivative_reads(is_read: bool) -> None:
    slope = kl.full(4, 3.0)
    scaled = kl.func.custom_vjp(
        lambda a: a * 3.0 + 0.0 * slope if is_read else a * 3.0, lambda a, bar: bar * slope
    )
    found = pulled_on_a_tape(lambda x: kl.checkpoint(scaled, x), lambda: slope.fill_(5.0))
    np.testing.assert_array_equal(found.numpy(), 3.0)
    with pytest.raises(kl.TapeError, match="was changed through a view"):
        pulled_on_a_tape(lambda x: kl.checkpoint(scaled, x), lambda: slope.numpy().fill(7.0))


@passes
@pytest.mark.parametrize("change", [lambda k: k.fill_(0), lambda k: k.numpy().fill(0)], ids=["fill", "numpy"])
@pytest.mark.parametrize("is_given", [False, True], ids=["captured", "argument"])
def test_integers_that_change_are_told(
    pulled: Callable[..., Any], is_given: bool, change: Callable[[Any], object]
) -> None:
    k = kl.array([3, 1, 0, 2])

    def pick(a: Any, *_: Any) -> Any:
        return a.numpy()[k.numpy()]

    def back(a: Any, *rest: Any) -> Any:
        return np.bincount(k.numpy(), rest[-1].numpy(), 4).astype(np.float32)

    picked = kl.func.custom_vjp(pick, back if not is_given else lambda a, k, bar: back(a, bar))
    with pytest.warns(kl.KernelWarning, match="`k` has changed since pick was called"):
        pulled(lambda x: picked(x, k) if is_given else picked(x), lambda: change(k))


@passes
def test_a_copy_of_integers_as_an_argument_is_right(pulled: Callable[..., Any]) -> None:
    k = kl.array([3, 1, 0, 2])
    picked = kl.func.custom_vjp(
        lambda a, k: a.numpy()[k.numpy()],
        lambda a, k, bar: np.bincount(k.numpy(), bar.numpy(), 4).astype(np.float32),
    )
    found = pulled(lambda x: picked(x, k.copy()), lambda: k.fill_(0))
    np.testing.assert_array_equal(found.numpy(), 1.0)


@passes
def test_what_the_derivative_does_not_read_or_writes_itself_may_change(pulled: Callable[..., Any]) -> None:
    w, scratch, runs = kl.full(4, 3.0), kl.zeros(4), kl.zeros(1, dtype=int)

    def wave(a: Any) -> Any:
        K["count"][1](runs)
        scratch.assign(w)
        return np.sin(a.numpy()) + 0.0 * scratch.numpy()

    def back(a: Any, bar: Any) -> Any:
        K["count"][1](runs)
        K["slope_into"][4](a, scratch)
        return bar * scratch

    found = pulled(kl.func.custom_vjp(wave, back), lambda: (w.fill_(5.0), scratch.fill_(7.0)))
    np.testing.assert_allclose(found.numpy(), np.cos(X), rtol=1e-6)


@passes
def test_another_part_may_change_and_what_is_written_again_is_the_same(pulled: Callable[..., Any]) -> None:
    w = kl.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    scaled = kl.func.custom_vjp(lambda a: a * w[:4], lambda a, bar: bar * w[:4])
    found = pulled(scaled, lambda: (w[4:].fill_(0.0), w[1:3].assign(np.array([2.0, 3.0], np.float32))))
    np.testing.assert_array_equal(found.numpy(), [1.0, 2.0, 3.0, 4.0])


def test_an_array_may_change_between_one_step_and_the_next() -> None:
    w, x = kl.full(4, 1.0), leaf()
    scaled = kl.func.custom_vjp(lambda a: a * w, lambda a, bar: bar * w)
    for step in range(3):
        with kl.Tape() as tape:
            loss = scaled(x).sum()
        tape.backward(loss)
        np.testing.assert_array_equal(x.grad.numpy(), 2.0**step)
        tape.zero()
        w *= 2.0


def test_a_derivative_adds_to_the_gradient_of_another_array_once_for_each_call() -> None:
    w, x = kl.array(2.0 * X, requires_grad=True), leaf()

    def back(a: Any, bar: Any) -> Any:
        w.grad.assign(w.grad.numpy() + (bar * a).numpy())
        return bar * w

    scaled = kl.func.custom_vjp(lambda a: a * w, back)
    with kl.Tape() as tape, pytest.warns(kl.KernelWarning, match="no gradient flows to `w`"):
        loss = scaled(scaled(x)).sum()
    tape.backward(loss)
    np.testing.assert_allclose(w.grad.numpy(), 4.0 * X * X, rtol=1e-6)
    np.testing.assert_allclose(x.grad.numpy(), 4.0 * X * X, rtol=1e-6)


READS: dict[str, Callable[[Any], Any]] = {
    "launch": lambda w: kl.map(kl.sin, w),
    "operator": lambda w: 2.0 * w,
    "copy": lambda w: kl.copy(kl.zeros(4), w),
    "host": lambda w: w.numpy(),
    "picked": lambda w: w[[2, 0, 1, 3]].contiguous(),
    "picked by a launch": lambda w: kl.map(kl.sin, w[[2, 0, 1, 3]]),
    "picked by two axes": lambda w: 2.0 * w.reshape((2, 2))[kl.array([0, 1]), kl.array([1, 0])],
    "picked by the host": lambda w: w[[2, 0, 1, 3]].numpy(),
    "put into picked": lambda w: kl.zeros(4)[[2, 0, 1, 3]].assign(w),
}
reads = pytest.mark.parametrize("read", READS.values(), ids=READS)


def function_that(reads: Callable[[Any], Any], w: Any) -> Callable[[Any], Any]:
    def f(a: Any) -> Any:
        reads(w)
        return 2.0 * a

    return kl.func.custom_vjp(f, lambda a, bar: 2.0 * bar)


@reads
def test_a_tape_tells_of_what_it_reads_besides_its_arguments(read: Callable[[Any], Any]) -> None:
    w = leaf()
    with kl.Tape(), pytest.warns(kl.KernelWarning, match="a function of custom_vjp uses it"):
        function_that(read, w)(leaf())


@reads
def test_a_transform_refuses_it(read: Callable[[Any], Any]) -> None:
    with pytest.raises(kl.GradientError, match="used in a function of custom_vjp or record_func"):
        kl.func.grad(lambda w: (function_that(read, w)(leaf()) * w).sum())(leaf())


# ------------------------------------------------------------------------------------------ what it leaves


def layer_that_keeps(here: Any) -> Callable[[Any], Any]:
    def wave(a: Any) -> Any:
        here.wave = kl.map(kl.sin, a)
        here.both = [here.wave, kl.clone(here.wave)]
        return here.wave

    return kl.func.custom_vjp(wave, lambda a, bar: bar * kl.map(kl.cos, a))


USES: dict[str, Callable[[Any], Any]] = {
    "itself": lambda here: here.wave,
    "clone": lambda here: here.both[1],
    "part": lambda here: here.wave[:],
    "through": lambda here: here.wave * 2.0,
}
uses = pytest.mark.parametrize("use", USES.values(), ids=USES)
MESSAGE = "a function of custom_vjp computed it here, and did not return it"


@uses
def test_a_tape_tells_of_what_a_function_leaves_and_the_loss_needs(use: Callable[[Any], Any]) -> None:
    here, x = SimpleNamespace(), leaf()
    layer = layer_that_keeps(here)
    with kl.Tape() as tape:
        loss = (layer(x) * use(here)).sum()
    with pytest.warns(kl.KernelWarning, match=MESSAGE):
        tape.backward(loss)


@uses
@pytest.mark.parametrize("transform", [kl.func.grad, kl.func.jacrev, kl.func.jacfwd])
def test_a_transform_tells_of_it(transform: Any, use: Callable[[Any], Any]) -> None:
    here = SimpleNamespace()
    layer = layer_that_keeps(here)
    with pytest.warns(kl.KernelWarning, match=MESSAGE):
        transform(lambda x: (layer(x) * use(here)).sum())(leaf())


@uses
def test_a_checkpoint_tells_of_it_inside_and_outside(use: Callable[[Any], Any]) -> None:
    here, x = SimpleNamespace(), leaf()
    layer = layer_that_keeps(here)
    with kl.Tape() as tape:
        inside = kl.checkpoint(lambda x: (layer(x) * use(here)).sum(), x)
    with pytest.warns(kl.KernelWarning, match=MESSAGE):
        tape.backward(inside)
    with kl.Tape() as tape:
        outside = (kl.checkpoint(layer, x) * use(here)).sum()
    with pytest.warns(kl.KernelWarning, match=MESSAGE):
        tape.backward(outside)


def test_an_array_from_outside_that_it_fills_is_told() -> None:
    slope, x = kl.zeros(4), leaf()

    def wave(a: Any) -> Any:
        K["slope_into"][4](a, slope)
        return kl.map(kl.sin, a)

    layer = kl.func.custom_vjp(wave, lambda a, bar: bar * kl.map(kl.cos, a))
    with kl.Tape() as tape:
        loss = (layer(x) * slope).sum()
    with pytest.warns(kl.KernelWarning, match=f"from `slope` back to `x`: {MESSAGE}"):
        tape.backward(loss)


@passes
def test_what_it_leaves_may_be_looked_at_dropped_or_overwritten(pulled: Callable[..., Any]) -> None:
    here = SimpleNamespace()
    layer = layer_that_keeps(here)

    def waved(x: Any) -> Any:
        y = layer(x)
        here.wave.fill_(1.0)
        return y * here.wave

    found = pulled(waved, lambda: str(here.both))
    np.testing.assert_allclose(found.numpy(), np.cos(X), rtol=1e-6)


LOOKS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda state: state,
    "host": lambda state: kl.array(state.numpy()),
    "picked": lambda state: state[[0, 1, 2, 3]],
}


def keep_by_a_copy(here: Any, new: Any) -> None:
    kl.copy(here.state, new)


def keep_by_name(here: Any, new: Any) -> None:
    here.state = new


@passes
@pytest.mark.parametrize("keep", [keep_by_a_copy, keep_by_name])
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
@pytest.mark.parametrize("check", [False, True])
def test_a_state_that_the_next_call_reads_is_told_and_keeps_its_values(
    pulled: Callable[..., Any], keep: Callable[..., None], look: Callable[[Any], Any], check: bool
) -> None:
    here, found = SimpleNamespace(state=kl.full(4, 0.2)), list[Any]()

    def cell(a: Any) -> Any:
        new = kl.map(lambda h, a: kl.tanh(0.7 * h + a), look(here.state), a)
        keep(here, new)
        return new

    step = kl.func.custom_vjp(cell, lambda a, y, bar: bar * (1.0 - y * y), check=check)

    def steps(x: Any) -> Any:
        y = step(step(step(x)))
        found.append(kl.clone(y, requires_grad=False).numpy())
        return y

    with pytest.warns(kl.KernelWarning, match=MESSAGE):
        pulled(steps, lambda: None)
    y = state = np.full(4, 0.2)
    for n in range(3):
        y = state = np.tanh(0.7 * state + (y if n else X))
    np.testing.assert_allclose(found[0], y, rtol=1e-6)


@passes
def test_what_another_such_function_finds_is_told(pulled: Callable[..., Any]) -> None:
    shared = kl.zeros(4)

    def leave(a: Any) -> Any:
        kl.copy(shared, a)
        return 2.0 * a

    left = kl.func.custom_vjp(leave, lambda a, bar: 2.0 * bar)
    found = kl.func.custom_vjp(lambda a: a + shared, lambda a, bar: bar)
    with pytest.warns(kl.KernelWarning, match=MESSAGE):
        pulled(lambda x: found(left(x)), lambda: None)


@passes
def test_memory_that_each_call_fills_anew_is_no_state(pulled: Callable[..., Any]) -> None:
    buffer, sums = kl.zeros(4), kl.zeros(4)

    def wave(a: Any) -> Any:
        kl.map(lambda s, a: s + a, sums, a, out=sums)
        for i in range(4):
            kl.copy(buffer[i : i + 1], a[i : i + 1])
        return np.sin(buffer.numpy())

    waved = kl.func.custom_vjp(wave, lambda a, bar: bar.numpy() * np.cos(a.numpy()))
    found = pulled(lambda x: waved(waved(x)), lambda: None)
    np.testing.assert_allclose(found.numpy(), np.cos(np.sin(X)) * np.cos(X), rtol=1e-5)


@passes
def test_a_function_may_begin_where_its_last_run_ended(pulled: Callable[..., Any]) -> None:
    here = SimpleNamespace(last=kl.ones(4))

    def root(a: Any) -> Any:
        for _ in range(30):
            here.last = kl.map(lambda y, a: 0.5 * (y + (a * a + 1.0) / y), here.last, a)
        return here.last

    rooted = kl.func.custom_vjp(root, lambda a, y, bar: bar * a / y)
    found = pulled(lambda x: rooted(rooted(x)), lambda: None)
    np.testing.assert_allclose(found.numpy(), X / np.sqrt(X * X + 2.0), rtol=1e-5)
