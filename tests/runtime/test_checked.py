"""Checked mode: races, reads of what nobody has written, the line of the first NaN, sizes that do not fit."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.runtime.memory.unwritten import unwritten

TEXT = """
class Particle:
    mass: float
    place: vec3

def scatter(x: array[float], to: array[int], y: array[float]):
    i = tid()
    y[to[i]] = x[i]

def root(x: array[float], y: array[float]):
    i = tid()
    y[i] = 1.0 + sqrt(x[i])

def taken(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i]

def taken_if(x: array[float], n: int, y: array[float]):
    i = tid()
    if i < n:
        y[i] = x[i]

def summed(x: array[float], s: array[float]):
    atomic_add(s, 0, x[tid()])

def in_turn(x: array[float], y: array[float]):
    i = tid()
    y[i] = 0.0
    for k in range(3):
        y[i] = y[i] + x[i]

def odd(y: array[float]):
    i = tid()
    y[2 * i + 1] = 1.0

def shifted(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i + 1]

def parts(y: array[vec3]):
    i = tid()
    y[i][0] = 1.0
    y[i][1] = 2.0
    y[i].z = y[i][0]

def second(y: array[vec3]):
    y[tid()][1] = 1.0

def part(y: array[vec3], k: int, out: array[float]):
    i = tid()
    out[i] = y[i][k]

def weigh(p: array[Particle], out: array[float]):
    i = tid()
    p[i].place = vec3(1.0)
    out[i] = p[i].mass

def least(x: array[float], d: array[float]):
    i = tid()
    d[i] = min(d[i], x[i])

def apart(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] - x[i]

def table(x: array2d[float]):
    i, j = tid()
    x[i, j] = 1.0

def counted(x: array[float], y: array[float]):
    i = tid()
    print(x[i])
    y[i] = x[i]
"""


@pytest.fixture(scope="module", params=["cpu", "interp"])
def kernels(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELAB_BACKEND", request.param)
        yield kl.compile(TEXT, label="Cell In[3]")


@pytest.fixture(autouse=True)
def _checking() -> Iterator[None]:
    kl.config.check = "full"
    yield
    kl.config.check = None


def ints(*values: int) -> Any:
    return kl.array(values, dtype=int)


# ---------------------------------------------------------------------------------------- races


def test_a_race_is_named_with_both_threads_and_nothing_is_changed(kernels: dict[str, Any]) -> None:
    y = kl.zeros(4)
    with pytest.raises(kl.KernelRaceError, match=r"threads 1 and 3 of `scatter` both store to y\[2\]"):
        kernels["scatter"][4](kl.ones(4), ints(0, 2, 1, 2), y)
    assert y.list() == [0.0] * 4
    kernels["scatter"][4](kl.ones(4), ints(0, 2, 1, 3), y)
    assert y.list() == [1.0] * 4


# ---------------------------------------------------------------------------------------- unwritten elements


def test_a_read_of_what_nobody_has_written_is_named_with_line_thread_and_element(
    kernels: dict[str, Any],
) -> None:
    x, y = kl.empty(4), kl.zeros(4)
    x[0:2].fill_(1.0)
    with pytest.raises(kl.KernelValueError) as raised:
        kernels["taken"][4](x, y)
    assert str(raised.value).startswith(
        "thread 2 of `taken` reads x[2], which nobody has written\n"
        "  Cell In[3], line 16\n"
        "   16 |     y[i] = x[i]\n"
        "                   ^^^^\n"
    )
    assert y.list() == [0.0] * 4
    kernels["taken"][2](x[0:2], y[0:2])
    x[2:4].assign([1.0, 1.0])
    kernels["taken"][4](x, y)
    assert unwritten(x.allocation) is None


def test_what_a_launch_writes_is_written_and_no_more(kernels: dict[str, Any]) -> None:
    x = kl.empty(6)
    kernels["odd"][3](x)
    kernels["taken"][1](x[1:2], kl.zeros(1))
    with pytest.raises(kl.KernelValueError, match=r"thread 0 of `taken` reads x\[0\]"):
        kernels["taken"][2](x[2:4], kl.zeros(2))


def test_what_a_thread_stores_first_it_may_read(kernels: dict[str, Any]) -> None:
    y = kl.empty(3)
    kernels["in_turn"][3](kl.ones(3), y)
    assert y.list() == [3.0] * 3
    with pytest.raises(kl.KernelValueError, match=r"thread 0 of `summed` reads s\[0\]"):
        kernels["summed"][3](kl.ones(3), kl.empty(1))


def test_an_array_that_stands_for_a_number_has_to_be_written() -> None:
    kernel = kl.compile("def k(a: float, y: array[float]):\n    y[tid()] = a")["k"]
    y, a = kl.zeros(2), kl.empty(1)
    with pytest.raises(kl.KernelValueError, match="`k` takes a from an array that nobody has written"):
        kernel[2](a, y)
    a.fill_(3.0)
    kernel[2](a, y)
    assert y.list() == [3.0, 3.0]


@pytest.mark.parametrize(("use", "is_read"), [("y[i] = ", True), ("", False)])
def test_an_exchange_reads_where_its_old_value_is_used(use: str, is_read: bool) -> None:
    text = f"def k(x: array[float], y: array[float]):\n    i = tid()\n    {use}atomic_exch(x, i, 1.0)"
    kernel, x = kl.compile(text)["k"], kl.empty(2)
    if is_read:
        with pytest.raises(kl.KernelValueError, match=r"`k` reads x\[0\], which nobody has written"):
            kernel[2](x, kl.zeros(2))
    else:
        kernel[2](x, kl.zeros(2))
        assert x.list() == [1.0, 1.0]


def test_components_and_fields_are_told_apart(kernels: dict[str, Any]) -> None:
    whole, some = kl.empty(3, dtype=kl.vec3), kl.empty(3, dtype=kl.vec3)
    kernels["parts"][3](whole)
    assert unwritten(whole.allocation) is None and whole.list() == [kl.vec3(1.0, 2.0, 1.0)] * 3
    kernels["second"][3](some)
    kernels["part"][3](whole, 2, kl.zeros(3))
    with pytest.raises(kl.KernelValueError, match=r"reads y\[0\]"):
        kernels["part"][3](some, 0, kl.zeros(3))
    with pytest.raises(kl.KernelValueError, match=r"reads p.mass\[0\], which nobody has written"):
        kernels["weigh"][2](kl.empty(2, dtype=kernels["Particle"]), kl.zeros(2))


def test_an_early_read_ends_at_the_store_also_of_a_view_of_the_same_memory(kernels: dict[str, Any]) -> None:
    x = kl.empty(4)
    x[3:4].fill_(2.0)
    with pytest.raises(kl.KernelRaceError):
        kernels["shifted"][3](x, x)
    with pytest.raises(kl.KernelValueError, match=r"thread 0 of `shifted` reads x\[1\]"):
        kernels["shifted"][1](x[0:2], x[0:2])


def from_gradients(f: Any, x: kl.array, seed: kl.array) -> None:
    with kl.Tape() as tape:
        y = f(x)
        y.grad = seed
    tape.backward()


def by_a_rule(f: Any, x: kl.array, seed: kl.array) -> None:
    rule = kl.func.custom_vjp(lambda x: x.numpy() * 1.0, lambda x, y, bar: seed)
    with kl.Tape() as tape:
        y = rule(x)
    tape.backward(grads={y: kl.ones(2)})


def on_a_tape(f: Any, x: kl.array, seed: kl.array) -> None:
    with kl.Tape() as tape:
        y = f(x)
    tape.backward(grads={y: seed})


SEEDED = {
    "tape": (on_a_tape, "the cotangent of `y`"),
    "a gradient": (from_gradients, "the gradient of `y`"),
    "a rule": (by_a_rule, "adjoint 0 that"),
    "vjp": (lambda f, x, seed: kl.func.vjp(f, x)[1](seed), "cotangent 0"),
    "jvp": (lambda f, x, seed: kl.func.jvp(f, (x,), (seed,)), r"tangents\[0\]"),
    "hvp": (lambda f, x, seed: kl.func.hvp(lambda x: f(x).sum(), (x,), (seed,)), r"tangents\[0\]"),
}


@pytest.mark.filterwarnings("ignore::kernelab.errors.KernelWarning")
@pytest.mark.parametrize("way", SEEDED)
def test_a_tangent_or_a_cotangent_has_to_be_written(way: str) -> None:
    run, called = SEEDED[way]
    x, seed = kl.array([1.0, 2.0], dtype=float, requires_grad=True), kl.empty(2)
    seed[:1].fill_(1.0)
    with pytest.raises(kl.KernelValueError, match=f"nobody has written all elements of {called}"):
        run(lambda x: x * x, x, seed)
    seed[1:].fill_(1.0)
    run(lambda x: x * x, x, seed)


def test_copies_are_as_unwritten_as_what_they_copy(kernels: dict[str, Any]) -> None:
    x, y = kl.empty(3), kl.zeros(3)
    x[0:1].fill_(1.0)
    kl.copy(y, x)
    clone = kl.clone(y)
    kernels["taken"][1](clone[0:1], kl.zeros(1))
    with pytest.raises(kl.KernelValueError, match=r"reads x\[1\]"):
        kernels["taken"][3](clone, kl.zeros(3))
    y.fill_(2.0)
    kernels["taken"][3](y, kl.zeros(3))


def test_what_others_may_have_written_counts_as_written(kernels: dict[str, Any]) -> None:
    seen, told, shared = kl.empty(3), kl.empty(3), kl.empty(3)
    seen.numpy()[:] = 1.0
    told.ptr  # noqa: B018  an address is out
    np.from_dlpack(shared)[:] = 1.0
    for x in (seen, told, shared):
        assert unwritten(x.allocation) is None


def test_all_that_the_library_writes_counts_as_written(kernels: dict[str, Any]) -> None:
    x, out = kl.array(np.float32([3, 1, 2, 5])), kl.empty(1)
    kl.utils.array_sum(x, out=out)
    scanned, mapped, doubled = kl.empty(4), kl.empty(4), kl.empty(4)
    kl.utils.array_scan(x, scanned)
    kl.map(lambda a: a + 1.0, x, out=mapped)
    doubled[...] = x * 2.0
    for given in (out, scanned, mapped, doubled, x[ints(0, 3)], kl.full(3, 1.0), kl.ones_like(x)):
        kernels["taken"][given.size](given, kl.zeros(given.size))


# ---------------------------------------------------------------------------------------- what is not finite


def test_the_line_and_the_thread_where_a_value_turns_are_named(kernels: dict[str, Any]) -> None:
    y = kl.zeros(3)
    with pytest.raises(
        kl.NotFiniteError, match="a value turns nan here, in thread 1 of the launch of `root`"
    ) as raised:
        kernels["root"][3](kl.array(np.float32([4, -1, 9])), y)
    assert "line 12\n   12 |     y[i] = 1.0 + sqrt(x[i])\n                         ^^^^^^^^^^" in str(
        raised.value
    )
    assert y.list() == [0.0] * 3


def test_infinities_that_come_in_are_data(kernels: dict[str, Any]) -> None:
    far, d = kl.full(3, np.inf), kl.full(3, np.inf)
    kernels["least"][3](far, d)
    kernels["taken"][3](far, d)
    assert d.list() == [np.inf] * 3
    with pytest.raises(kl.NotFiniteError, match="a value turns nan here, in thread 0"):
        kernels["apart"][3](far, d)


def test_a_nan_that_is_read_and_passed_on_is_told_where_it_is_read(kernels: dict[str, Any]) -> None:
    x = kl.array(np.float32([1, np.nan]))
    with pytest.raises(
        kl.NotFiniteError, match="x holds nan where thread 1 of the launch of `taken` reads it"
    ):
        kernels["taken"][2](x, kl.zeros(2))
    kernels["taken_if"][2](x, 1, kl.zeros(2))


def test_what_nobody_has_written_is_no_nan(kernels: dict[str, Any]) -> None:
    held = kl.full((2, 3), np.nan)
    x = kl.empty(2, dtype=kl.vec3)
    kl.copy(kl.array(ptr=x.ptr, shape=(2, 3), dtype=kl.float32), held)
    fresh = kl.empty(2, dtype=kl.vec3)
    # The bytes of `fresh` may be anything: here they are those of a NaN.
    np.frombuffer(fresh.allocation.buffer(), np.float32)[:] = np.nan
    kernels["second"][2](fresh)


# ---------------------------------------------------------------------------------------- sizes


def test_more_threads_than_elements_are_told_with_both_numbers(kernels: dict[str, Any]) -> None:
    with pytest.raises(
        kl.KernelIndexError,
        match=r"index 4 is out of bounds for axis 0 of array `x` with size 4; in thread 4 of `taken`\n"
        r"(?s:.*)the launch has 5 threads, and x has 4 elements: launch it with dim=4",
    ):
        kernels["taken"][5](kl.ones(4), kl.zeros(5))
    kernels["taken_if"][5](kl.ones(4), 4, kl.zeros(5))


def test_elements_that_are_left_out_are_a_warning_once(kernels: dict[str, Any]) -> None:
    s, table = kl.zeros(1), kl.zeros((4, 3))
    said = r"the launch of `summed` has 3 threads, and x has 4 elements(?s:.*)dim=4, or pass the part of x"
    with pytest.warns(kl.KernelWarning, match=said):
        kernels["summed"][3](kl.ones(4), s)
    kernels["summed"][3](kl.ones(4), s)  # a second warning would be an error
    with pytest.warns(
        kl.KernelWarning, match=r"has 2 x 3 threads, and x has 4 x 3 elements(?s:.*)dim=\(4, 3\)"
    ):
        kernels["table"][(2, 3)](table)


def test_launches_that_fit_some_array_or_shift_their_indices_are_silent(kernels: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernels["taken"][3](kl.ones(4), kl.zeros(3))
        kernels["shifted"][3](kl.ones(4), kl.zeros(4)[:3])


# ---------------------------------------------------------------------------------------- modes


def test_launches_print_once(kernels: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    kernels["counted"][1](kl.full(1, 7.0), kl.zeros(1))
    assert capsys.readouterr().out.split() == ["7.0"]


def test_a_tape_in_checked_mode_has_the_same_gradients(kernels: dict[str, Any]) -> None:
    def gradient() -> list[float]:
        x, y, s = kl.array(np.float32([1, 4, 9]), requires_grad=True), kl.empty(3, requires_grad=True), None
        s = kl.zeros(1, requires_grad=True)
        with kl.Tape() as tape:
            kernels["root"][3](x, y)
            kernels["in_turn"][3](y, kl.empty(3, requires_grad=True))
            kernels["summed"][3](y, s)
        tape.backward(s)
        assert x.grad is not None
        return [*x.grad.list(), *s.list()]

    checked = gradient()
    kl.config.check = None
    assert checked == gradient()


@pytest.mark.parametrize("kind", ["min", "max"])
def test_what_the_winner_of_an_extremum_takes_is_no_race(kind: str) -> None:
    kernel = kl.compile(f"""
def reached(x: array[vec2], s: array[vec2]):
    i = tid()
    old = atomic_{kind}(s, i % 2, x[i])
    x[i] = x[i] * old[0]
""")["reached"]

    def gradients() -> list[Any]:
        x = kl.array(np.float32([[3, 1], [1, 4], [2, 5], [6, 0]]), dtype=kl.vec2, requires_grad=True)
        s = kl.array(np.float32([[2.5, 2.5], [0.5, 0.5]]), dtype=kl.vec2, requires_grad=True)
        with kl.Tape() as tape:
            moved = 1.0 * x
            kernel[4](moved, s)
            loss = moved.sum()
        tape.backward(grads={loss: [[1.0, 2.0]], s: kl.full(2, kl.vec2(3.0, 1.0))})
        return [x.grad.tolist(), s.grad.tolist()]

    checked = gradients()
    kl.config.check = None
    assert checked == gradients()


def test_sums_of_adjoints_are_no_races_and_backward_names_the_line(kernels: dict[str, Any]) -> None:
    text = """
def picked(x: array[float], of: array[int], y: array[float]):
    i = tid()
    y[i] = sqrt(x[of[i]])
"""
    kernel = kl.compile(text, label="Cell In[4]")["picked"]
    x, y = kl.array(np.float32([4, 0]), requires_grad=True), kl.zeros(3, requires_grad=True)
    with kl.Tape() as tape:
        kernel[3](x, ints(0, 0, 0), y)
    tape.backward(grads={y: kl.ones(3)})
    assert x.grad is not None and x.grad.list() == [0.75, 0.0]
    with kl.Tape() as tape:
        kernel[3](x, ints(0, 1, 0), y)
    with pytest.raises(kl.NotFiniteError, match=r"the gradient of `x` turns inf(?s:.*)line 4"):
        tape.backward(grads={y: kl.ones(3)})
    tape.backward(grads={y: kl.ones(3)}, check_finite=False)
    x.grad.zero_()
    kl.launch(
        kernel, 3, [x, ints(0, 0, 0)], [y], adj_inputs=[x.grad, None], adj_outputs=[kl.ones(3)], adjoint=True
    )
    assert x.grad.list() == [0.75, 0.0]
    with pytest.raises(kl.KernelValueError, match=r"thread 0 of `picked_adjoint` reads y_bar\[0\]"):
        kl.launch(
            kernel,
            3,
            [x, ints(0, 0, 0)],
            [y],
            adj_inputs=[x.grad, None],
            adj_outputs=[kl.empty(3)],
            adjoint=True,
        )


def test_what_a_snippet_changes_counts_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELAB_BACKEND", "cpu")
    text = """
@func_native("out(0) = x;", "adj_x += adj_out(0);")
def put(out: array[float], x: float):
    ...

def k(x: array[float], y: array[float]):
    put(y, x[tid()])
"""
    kernel = kl.compile(text, label="Cell In[5]")["k"]
    x, y = kl.ones(1, requires_grad=True), kl.empty(1, requires_grad=True)
    with pytest.warns(kl.KernelWarning, match=r"`k` changes y in C\+\+"), kl.Tape() as tape:
        kernel[1](x, y)
    assert unwritten(y.allocation) is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kl.KernelWarning)
        tape.backward(grads={y: kl.ones(1)})
    assert x.grad is not None and x.grad.list() == [1.0]


def test_one_kernel_may_be_checked_alone() -> None:
    kl.config.check = None
    text = "@kernel(check='full')\ndef k(x: array[float], y: array[float]):\n    y[tid() // 2] = x[tid()]\n"
    kernel = kl.compile(text)["k"]
    with pytest.raises(kl.KernelRaceError):
        kernel[2](kl.ones(2), kl.zeros(1))
    with pytest.raises(kl.KernelValueError, match=r"thread 0 of `k` reads x\[0\]"):
        kernel[1](kl.empty(1), kl.zeros(1))
    partly = kl.empty(2)
    partly[0:1].fill_(1.0)  # outside of checked mode one write is as good as all
    kernel[1](partly[1:2], kl.zeros(1))


def test_what_check_can_be_is_said() -> None:
    with pytest.raises(kl.KernelValueError, match='check is "full", or None for no checks, not True'):
        kl.config.check = True
    with pytest.raises(kl.KernelError, match=r'check is "full" or None, not 3(?s:.*)write check="full"'):
        kl.compile("@kernel(check=3)\ndef k(x: array[float]):\n    x[tid()] = 1.0\n")


TRANSFORMS = {
    "vjp": lambda f, x: kl.func.vjp(f, x),
    "jvp": lambda f, x: kl.func.jvp(f, (x,), (kl.ones(2),)),
    "jacrev": lambda f, x: kl.func.jacrev(f)(x),
    "jacfwd": lambda f, x: kl.func.jacfwd(f)(x),
    "second order": lambda f, x: kl.func.jacfwd(kl.func.jacrev(f))(x),
    "vmap over something else": lambda f, x: kl.func.vmap(lambda v: (v, f(x)))(kl.ones((2, 2))),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_the_launches_of_transforms_are_checked(kernels: dict[str, Any], transform: str) -> None:
    def turns_nan(x: Any) -> Any:
        y = kl.zeros(2)
        kernels["root"][2](x, y)
        return y

    def last(x: Any) -> Any:
        y = kl.zeros(2)
        kernels["scatter"][2](x, ints(0, 0), y)
        return y

    def unwritten_elements(x: Any) -> Any:
        y = kl.zeros(2)
        kernels["taken"][2](kl.empty(2), y)
        return y

    apply = TRANSFORMS[transform]
    with pytest.raises(kl.NotFiniteError, match="thread 1"):
        apply(turns_nan, kl.array(np.float32([1, -2]), requires_grad=True))
    with pytest.raises(kl.KernelRaceError):
        apply(last, kl.ones(2, requires_grad=True))
    with pytest.raises(kl.KernelValueError, match="nobody has written"):
        apply(unwritten_elements, kl.ones(2, requires_grad=True))
    kernels["root"][2](kl.ones(2), kl.zeros(2))


def test_launches_on_lanes_are_not_checked(kernels: dict[str, Any]) -> None:
    def last(x: Any) -> Any:
        y = kl.zeros(2)
        kernels["scatter"][2](x, ints(0, 0), y)
        return y

    assert kl.func.vmap(last)(kl.array(np.float32([[1, 2], [3, 4]]))).list() == [2.0, 0.0, 4.0, 0.0]


def test_a_function_without_mistakes_has_its_gradient_in_checked_mode(kernels: dict[str, Any]) -> None:
    def loss(x: Any) -> Any:
        y, s = kl.empty(3), kl.zeros(1)
        kernels["root"][3](x, y)
        kernels["summed"][3](y, s)
        return s

    x = kl.array(np.float32([1, 4, 16]), requires_grad=True)
    value, gradient = kl.func.value_and_grad(loss)(x)
    assert float(value) == 10.0
    np.testing.assert_allclose(gradient.numpy(), [0.5, 0.25, 0.125], rtol=1e-6)


def recorded(function: Any, x: Any) -> Any:
    with kl.Tape():
        return function(x)


def _sorted(values: Any) -> Any:
    kl.utils.radix_sort_pairs(values, kl.ones(3), 3)
    return values


def _begun(values: Any) -> Any:
    values[[0, 1]] = 1.0
    return values


COPIES: dict[str, Any] = {
    "copy": lambda values: kl.clone(values),
    "into another": lambda values: kl.zeros(3).assign(values),
    "picked": lambda values: values[[0, 1, 2]].contiguous(),
    "sorted": _sorted,
    "picked elements written": _begun,
}


@pytest.mark.parametrize("run", [lambda f, x: f(x), lambda f, x: kl.func.jvp(f, (x,), (x,)), recorded])
@pytest.mark.parametrize("way", COPIES)
def test_a_copy_is_as_unwritten_as_what_it_copies_wherever_it_is_made(
    run: Any, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kl.config, "check", "full")
    with pytest.raises(kl.KernelValueError, match="which nobody has written"):
        run(lambda x: COPIES[way](kl.empty(3)) + x, kl.ones(3))


@pytest.mark.parametrize(
    "run",
    [
        lambda f, x: kl.func.grad(f)(x),
        lambda f, x: kl.func.vjp(f, x),
        lambda f, x: kl.func.jvp(f, (x,), (kl.ones(3),)),
        lambda f, x: kl.func.jacfwd(f)(x),
        lambda f, x: kl.func.jacrev(f)(x),
        lambda f, x: kl.func.hessian(f)(x),
        lambda f, x: kl.func.hvp(f, (x,), (kl.ones(3),)),
        lambda f, x: kl.autograd.jacobian(f, inputs=[x]),
        lambda f, x: kl.autograd.jacobian(f, inputs=[x], sparse=True),
        lambda f, x: kl.autograd.jacobian_fd(f, inputs=[x]),
        lambda f, x: kl.autograd.gradcheck(f, inputs=[x], show_summary=False),
        lambda f, x: kl.autograd.taylor_test(f, inputs=[x], show_summary=False),
    ],
)
def test_so_is_the_copy_that_a_transform_makes_of_an_argument(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kl.config, "check", "full")
    begun = kl.empty(3, requires_grad=True)
    begun[:2] = 1.0
    run(lambda x: x[:2].sum(), begun)
    with pytest.raises(kl.KernelValueError, match=r"reads .*\[2\], which nobody has written"):
        run(lambda x: x.sum(), begun)


@pytest.mark.parametrize("way", ["tape", "transform"])
def test_an_assignment_to_one_element_twice_is_told_at_its_line(way: str) -> None:
    """NumPy keeps the last value, and no tape."""

    def assigned(v: Any) -> Any:
        y = kl.zeros(3, requires_grad=True)
        y[[0, 0]] = v
        return y

    def on_a_tape(v: Any) -> Any:
        with kl.Tape():
            return assigned(v)

    v = kl.array([1.0, 2.0], requires_grad=True)
    assert assigned(kl.array([1.0, 2.0])).list() == [2.0, 0.0, 0.0]
    with pytest.raises(kl.KernelRaceError, match="`y` is assigned at one index twice") as caught:
        on_a_tape(v) if way == "tape" else kl.func.vjp(assigned, v)
    assert "y[[0, 0]] = v" in str(caught.value)
