"""A chain that is cut is reported, with array, launch and line; so is a seed that fits nothing."""

import math
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from tests.support.leaves import gradient

TEXT = """
def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def total(x: array[float], l: array[float]):
    atomic_add(l, 0, x[tid()])

def through_int(x: array[float], y: array[float]):
    i = tid()
    s = float(0.0)
    for k in range(2):
        n = int(x[i])
        s += float(n) * 0.5
    y[i] = s

def to_int(x: array[float], n: array[int]):
    i = tid()
    n[i] = int(x[i])

def shifted(n: array[int], m: array[int]):
    i = tid()
    m[i] = n[i] + 1

def from_int(n: array[int], y: array[float]):
    i = tid()
    y[i] = 2.0 * float(n[i])

def fraction(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] - float(int(x[i]))

def binned(x: array[float], table: array[float], y: array[float]):
    i = tid()
    k = int(x[i])
    if x[i] > 1.0:
        y[i] = table[k % 3]

def counted(x: array[float], counts: array[int]):
    k = int(floor(x[tid()]))
    atomic_add(counts, k % 3, 1)

def sized(x: array[float], w: array[float], y: array[float]):
    i = tid()
    y[i] = w[i] * float(x.shape[0])
"""

kernels: dict[str, Any] = kl.compile(TEXT)
square, total = kernels["square"], kernels["total"]


@kl.kernel(enable_backward=False)
def forward_only(x: kl.array[float], y: kl.array[float]):  # type: ignore[no-untyped-def,valid-type]
    i = kl.tid()
    y[i] = x[i] * x[i]


def leaf(*values: float) -> kl.array:
    return kl.array(values or (1.0, 2.0, 3.0), dtype=float, requires_grad=True)


def result(count: int = 3) -> kl.array:
    return kl.zeros(count, dtype=float, requires_grad=True)


def told(act: Callable[[], object]) -> str:
    """What warnings an action gives, as one text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        act()
    return "\n".join(str(warning.message) for warning in caught)


# ------------------------------------------------------------------------------------------ no requires_grad


def test_an_intermediate_without_gradients_is_reported_with_both_launches() -> None:
    x, y, loss = leaf(), kl.zeros(3, dtype=float), result(1)
    with kl.Tape() as tape:
        square[3](x, y)
        total[3](y, loss)
        total[3](x, loss)
    text = told(lambda: tape.backward(loss))
    assert "no gradient flows through `y`, read by the launch of `total`" in text
    assert "total[3](y, loss)" in text and "square[3](x, y)" in text
    assert "requires_grad=True" in text


IN_LOOPS: dict[str, tuple[bool, Any, str]] = {
    "an array that requires none": (False, square, "no gradient flows through `y`"),
    "a cast": (True, kernels["through_int"], "no gradient flows to `y`"),
}


@pytest.mark.parametrize("cause", IN_LOOPS)
def test_a_loop_that_makes_new_arrays_is_told_of_once(cause: str) -> None:
    requires_grad, kernel, message = IN_LOOPS[cause]
    x, loss = leaf(), result(1)
    with kl.Tape() as tape:
        total[3](x, loss)
        for _ in range(3):
            y, z = kl.zeros(3, requires_grad=requires_grad), result()
            square[3](x, y)
            kernel[3](y, z)
            total[3](z, loss)
    text = told(lambda: tape.backward(loss))
    assert message in text
    assert text.count("no gradient flows") == len(tape.findings) == 1


def test_two_arrays_at_one_line_are_both_told_of() -> None:
    x, y, z, loss = leaf(), kl.zeros(3), kl.zeros(3), result(1)
    sums = kl.compile(
        "def sums(y: array[float], z: array[float], l: array[float]): l[0] += y[tid()] + z[tid()]"
    )
    with kl.Tape() as tape:
        for target in (y, z):
            square[3](x, target)
        sums["sums"][3](y, z, loss)
        total[3](x, loss)
    text = told(lambda: tape.backward(loss))
    assert "flows through `y`" in text and "flows through `z`" in text


def beside(text: str) -> Any:
    """A kernel with two results, of which the second is what a text computes of `x`, `a` and `first`."""
    head = "def both(x: array[float], a: float, first: array[float], second: array[float]):\n    i = tid()\n"
    return kl.compile(f"{head}    first[i] = x[i] * a\n    {text}\n")["both"]


@pytest.mark.parametrize(
    "text",
    [
        "second[i] = a",
        "first[i] += 1.0; second[i] = first[i]",
        "part = zeros(3, dtype=float); part[i] = x[i]; second[i] += part[i]",
        "second[i] = atomic_add(first, i, 1.0)",
    ],
)
def test_so_is_one_beside_another_result_that_has_them(text: str) -> None:
    x, a, first, second, loss = leaf(), leaf(2.0), result(), kl.zeros(3, dtype=float), result(1)
    with kl.Tape() as tape:
        beside(text)[3](x, a, first, second)
        loss += (first * second).sum()
    assert "no gradient flows through `second`" in told(lambda: tape.backward(loss))


@pytest.mark.parametrize(
    "text", ["second[i] = 2.0", "if x[i] > a: second[i] += 1.0", "second[i] = stop_gradient(x[i])"]
)
def test_a_result_that_has_no_derivative_needs_no_gradients(text: str) -> None:
    x, a, first, second, loss = leaf(), leaf(2.0), result(), kl.zeros(3, dtype=float), result(1)
    with kl.Tape() as tape:
        beside(text)[3](x, a, first, second)
        loss += (first * second).sum()
    assert told(lambda: tape.backward(loss)) == ""


@pytest.mark.parametrize(
    "energy",
    [lambda y: y.sum(), lambda y: (y * y).sum() / 2.0, lambda y: kl.map(kl.sin, 2.0 * y - 1.0).mean(axis=0)],
    ids=["one", "three", "four"],
)
def test_behind_operators_the_array_that_a_user_made_is_named(energy: Callable[[Any], Any]) -> None:
    x, y = leaf(), kl.zeros(3, dtype=float)
    with kl.Tape() as tape:
        square[3](x, y)
        loss = energy(y) + x.sum()
    text = told(lambda: tape.backward(loss))
    assert "no gradient flows through `y`, read by the launch of `array_" in text
    assert "square[3](x, y)" in text and text.count("no gradient") == 1


def over_itself(change: Callable[[Any], object]) -> Callable[[Any], Any]:
    """A result that has taken values of x, and changes by them in another part."""

    def computed(x: Any) -> Any:
        y = kl.ones(6, dtype=float)
        y[0:3] = x
        change(y)
        return y

    return computed


def squared(x: Any, copied: Callable[[Any], Any]) -> Any:
    """The square of x in an array without gradients, copied, times x."""
    y = kl.zeros(3, dtype=float)
    square[3](x, y)
    return copied(y) * x


@pytest.mark.parametrize(
    "computed",
    [
        over_itself(lambda y: y[3:6].__iadd__(y[0:3])),
        over_itself(lambda y: y[3:6].__imul__(y[0:3])),
        over_itself(lambda y: y[1:4].__imul__(y[0:3])),
        over_itself(lambda y: y.reshape(2, 3)[1].__isub__(y[0:3])),
        over_itself(lambda y: kl.map(lambda v: v * v, y[0:3], out=y[2:5])),
        over_itself(lambda y: kl.utils.array_scan(y[0:3], y[1:4])),
        over_itself(lambda y: y.__setitem__(kl.array([3, 1, 5]), y[0:3])),
        lambda x: squared(x, kl.clone),
        lambda x: squared(x, lambda y: y.copy()),
        lambda x: squared(x, lambda y: kl.clone(y[::-1])),
    ],
)
def test_a_copy_or_another_part_of_one_is_reported(computed: Callable[[Any], Any]) -> None:
    x = leaf()
    with kl.Tape() as tape:
        y = computed(x)
    text = told(lambda: tape.backward(grads={y: kl.ones_like(y)}))
    assert "no gradient flows through an array, read by" in text


@pytest.mark.parametrize(
    "computed",
    [
        over_itself(lambda y: y[3:5].__iadd__(y[4:6])),
        over_itself(lambda y: y[4:6].__imul__(y[3:4])),
        over_itself(lambda y: kl.copy(y[5:6], y[4:5])),
        over_itself(lambda y: square[2](y[3:5], y[4:6])),
    ],
)
def test_a_part_that_has_taken_nothing_is_silent(computed: Callable[[Any], Any]) -> None:
    x = leaf()
    with kl.Tape() as tape:
        y = computed(x)
    assert told(lambda: tape.backward(grads={y: kl.ones_like(y)})) == ""
    assert x.grad.list() == [1.0, 1.0, 1.0]


def test_parts_are_told_apart_as_far_as_they_go() -> None:
    x, y, z = leaf(), kl.zeros((40, 3), dtype=float), kl.zeros((40, 3), dtype=float)
    with kl.Tape() as tape:
        for row in range(20):
            square[3](x, y[row])
        z[0] = y[19]
    text = told(lambda: tape.backward(grads={y: kl.ones_like(y), z: kl.ones_like(z)}))
    assert "no gradient flows through an array, read by `item assignment`" in text


def test_a_clone_that_was_asked_for_without_gradients_is_silent() -> None:
    x = leaf()
    with kl.Tape() as tape:
        y = squared(x, lambda y: kl.clone(y, requires_grad=False))
    assert told(lambda: tape.backward(grads={y: kl.ones_like(y)})) == ""
    assert x.grad.list() == [1.0, 4.0, 9.0]


def test_one_that_launches_change_in_place_as_a_whole_passes_its_gradient_on() -> None:
    x = leaf()
    with kl.Tape() as tape:
        y = kl.zeros(3, dtype=float)
        y[:] = x
        y *= y
        square[3](y, y)
    assert told(lambda: tape.backward(grads={y: kl.ones_like(y)})) == ""
    assert x.grad.list() == [4.0, 32.0, 108.0]


# ------------------------------------------------------------------------------------------ switched off


def test_a_kernel_with_backward_switched_off_is_reported_beside_a_live_path() -> None:
    x, y, z, loss = leaf(), result(), result(), result(1)
    with kl.Tape() as tape:
        forward_only[3](x, y)
        square[3](x, z)
        total[3](y, loss)
        total[3](z, loss)
    text = told(lambda: tape.backward(loss))
    assert "no gradient flows through the launch of `forward_only` to `x`" in text
    assert "forward_only[3](x, y)" in text and "enable_backward=False" in text
    assert gradient(x) == [2, 4, 6]


def test_what_such_a_kernel_overwrites_passes_nothing_on() -> None:
    x, y, z, loss = leaf(), result(), result(), result(1)
    with kl.Tape() as tape:
        square[3](x, y)
        total[3](y, loss)
        forward_only[3](x, y)
        square[3](y, z)
        total[3](z, loss)
    assert "`forward_only`" in told(lambda: tape.backward(loss))
    assert gradient(x) == [2, 4, 6]


def test_such_a_kernel_is_silent_where_no_gradient_could_come_from() -> None:
    x, weights, y, loss = leaf(), kl.array([1.0, 2.0, 3.0], dtype=float), result(), result(1)
    with kl.Tape() as tape:
        forward_only[3](weights, y)
        total[3](y, loss)
        total[3](x, loss)
    assert told(lambda: tape.backward(loss)) == ""
    assert gradient(x) == [1, 1, 1]


# ------------------------------------------------------------------------------------------ integers


def test_a_cast_to_int_in_the_only_path_is_reported_at_its_line() -> None:
    x, y, loss = leaf(), result(), result(1)
    with kl.Tape() as tape:
        kernels["through_int"][3](x, y)
        total[3](y, loss)
    text = told(lambda: tape.backward(loss))
    assert "no gradient flows to `x`, read by the launch of `through_int`" in text
    assert "n = int(x[i])" in text


def test_an_integer_that_travels_through_arrays_is_followed() -> None:
    x, w, y, z, loss = leaf(), leaf(), result(), result(), result(1)
    n, m = kl.zeros(3, dtype=int), kl.zeros(3, dtype=int)
    with kl.Tape() as tape:
        square[3](x, y)
        kernels["to_int"][3](y, n)
        kernels["shifted"][3](n, m)
        kernels["from_int"][3](m, z)
        total[3](z, loss)
        total[3](w, loss)
    text = told(lambda: tape.backward(loss))
    assert "no gradient flows to `y`, read by the launch of `to_int`" in text
    assert "n[i] = int(x[i])" in text and 'kernels["from_int"][3](m, z)' in text


PASSIVE: dict[str, Callable[[Any], Any]] = {
    "as integers only": lambda y: y.astype(int).astype(float),
    "through `rint` only": lambda y: kl.map(kl.rint, y, out=kl.zeros(3)),
    "only decides a condition": lambda y: kl.map(lambda v: 1.0 if v > 1.0 else 0.0, y, out=kl.zeros(3)),
}


@pytest.mark.parametrize("words", PASSIVE)
@pytest.mark.parametrize("further", [False, True])
def test_so_is_an_end_whose_result_requires_no_gradient_unless_a_clone_says_that_it_is_meant(
    words: str, further: bool
) -> None:
    for is_meant in (False, True):
        x, y, z, loss = leaf(), result(), result(), result(1)
        with kl.Tape() as tape:
            square[3](x, y)
            ended = PASSIVE[words](y)
            ended = 2.0 * ended if further else ended
            ended = kl.clone(ended, requires_grad=False) if is_meant else ended
            square[3](ended, z)
            total[3](z, loss)
            total[3](x, loss)
        text = told(lambda tape=tape, loss=loss: tape.backward(loss)) + told(lambda y=y: y.grad)
        assert (words in text) is not is_meant
        assert gradient(x) == [1, 1, 1]


halved_by_host = kl.func.custom_vjp(
    lambda y: kl.array(0.5 * y.numpy(), dtype=y.dtype), lambda y, y_bar: 0.5 * y_bar.numpy()
)


def without_gradients(kernel: Any) -> Callable[[Any], Any]:
    def of(y: Any) -> Any:
        ended = kl.zeros(3)
        kernel[3](y, ended)
        return ended

    return of


FIRST: dict[str, Callable[[Any], Any]] = {
    "a kernel": without_gradients(square),
    "a copy": lambda y: kl.map(kl.float32, y, out=kl.zeros(3)),
    "a kernel without backward": without_gradients(forward_only),
    "a checkpoint": lambda y: kl.checkpoint(without_gradients(square), y),
}
SECOND: dict[str, Callable[[Any], Any]] = {
    "a kernel": lambda w: 2.0 * w,
    "rounding": lambda w: kl.map(kl.rint, w),
    "integers": lambda w: w.astype(int).astype(float),
    "a condition": lambda w: kl.map(lambda v: 1.0 if v > 1.0 else 0.0, w),
    "a function of the host": halved_by_host,
    "an array of the host": lambda w: halved_by_host(kl.array(w.numpy())),
}


@pytest.mark.parametrize("second", SECOND)
@pytest.mark.parametrize("first", FIRST)
def test_an_array_without_gradients_before_another_end_is_reported(first: str, second: str) -> None:
    x, z, other, loss = leaf(), result(), leaf(), result(1)
    with kl.Tape() as tape:
        square[3](SECOND[second](FIRST[first](x)), z)
        total[3](z, loss)
        total[3](other, loss)
    text = told(lambda: tape.backward(loss))
    assert "no gradient flows" in text + told(lambda: x.grad)
    assert gradient(other) == [1, 1, 1]


def test_one_that_is_rounded_beside_another_way_of_its_source_is_silent() -> None:
    x, loss = leaf(), result(1)
    with kl.Tape() as tape:
        whole = kl.map(kl.rint, FIRST["a kernel"](x), out=result())
        total[3](x - whole, loss)
    assert told(lambda: tape.backward(loss)) == ""
    assert told(lambda: x.grad) == ""
    assert gradient(x) == [1, 1, 1]


@pytest.mark.parametrize("name", ["fraction", "binned", "counted", "sized"])
def test_integers_beside_a_live_path_in_indices_and_in_branches_are_silent(name: str) -> None:
    x, w, y, loss = leaf(1.5, 2.5, 3.5), leaf(), result(), result(1)
    arguments = {"fraction": [x, y], "binned": [x, w, y], "counted": [x, kl.zeros(3, dtype=int)],
                 "sized": [x, w, y]}[name]  # fmt: skip
    with kl.Tape() as tape:
        kernels[name][3](*arguments)
        total[3](y, loss)
        total[3](w, loss)
    assert told(lambda: tape.backward(loss)) == ""


BITS = {
    "at once": "y[i] = cast(cast(x[i], int32), float32) + x[i]",
    "a first guess": """
    b = 1597463007 - (cast(x[i], int32) >> 1)
    r = cast(b, float32)
    y[i] = r * (1.5 - 0.5 * x[i] * r * r)
    """,
    "through a loop, a branch and memory of the thread's own": """
    q = zeros(2, dtype=uint32)
    q[1] = cast(x[i], uint32)
    n = uint32(0)
    for j in range(2):
        if j > k[i]:
            n = n + q[j]
    y[i] = x[i] + cast(n, float32)
    """,
    "through an array": "k[i] = cast(x[i], int32)\n    y[i] = cast(k[i], float32) * x[i]",
    "in a function": "y[i] = same(x[i]) + x[i]",
}

NO_BITS = {
    "bits of a rounded value": "n = int(x[i])\n    y[i] = cast((n + 127) << 23, float32) * x[i]",
    "bits that decide": "n = cast(x[i], int32)\n    if n > 5:\n        y[i] = x[i] * 2.0",
    "a number that bits stand for": "y[i] = float(cast(x[i], int32) % 7) * x[i]",
    "bits of a constant": "y[i] = cast(cast(stop_gradient(x[i]), int32) + 1, float32) * x[i]",
    "a rule of the user's": "y[i] = known(x[i]) * x[i]",
}

SAME = """
def same(t: float):
    return cast(cast(t, int32), float32)

def known(t: float) -> float:
    return same(t)

@func_grad(known, check=False)
def adj_known(t: float, adj_ret: float):
    adjoint[t] += adj_ret

def k(x: array[float], k: array[int], y: array[float]):
    i = tid()
    """


def derivatives_of_bits(body: str) -> list[Callable[[], object]]:
    """Both modes, of a kernel that takes the bits of floats."""
    kernel = kl.compile((SAME + body).rstrip(" "))["k"]
    x = kl.array([1.5, 2.5])

    def f(x: Any) -> Any:
        y = kl.zeros(2)
        kernel[2](x, kl.zeros(2, dtype=int), y)
        return y

    def on_a_tape() -> list[float]:
        w = kl.array([1.5, 2.5], requires_grad=True)
        with kl.Tape() as tape:
            kernel[2](w, kl.zeros(2, dtype=int), y := kl.zeros(2, requires_grad=True))
        tape.backward(grads={y: kl.ones(2)})
        return w.grad.list()

    return [on_a_tape, lambda: kl.func.jvp(f, (x,), (kl.ones(2),))[1].list()]


@pytest.mark.parametrize("where", BITS)
def test_a_float_made_of_the_bits_of_another_is_refused_beside_another_path_too(where: str) -> None:
    """Unlike what a float is rounded to, its bits have not the derivative 0."""
    for differentiate in derivatives_of_bits(BITS[where]):
        with pytest.raises(kl.KernelTypeError, match=r"bits of another float has no derivative(.*\n)+.*cast"):
            differentiate()


@pytest.mark.parametrize("what", NO_BITS)
def test_bits_that_no_derivative_passes_are_silent(what: str, recwarn: pytest.WarningsRecorder) -> None:
    backward, forward = derivatives_of_bits(NO_BITS[what])
    assert backward() == pytest.approx(forward(), rel=1e-6) and not recwarn


def test_a_cast_beside_another_path_of_the_same_array_is_silent() -> None:
    x, y, loss = leaf(), result(), result(1)
    with kl.Tape() as tape:
        kernels["through_int"][3](x, y)
        total[3](y, loss)
        total[3](x, loss)
    assert told(lambda: tape.backward(loss)) == ""


# ------------------------------------------------------------------------------------------ zero derivatives

FLAT: dict[str, Any] = kl.compile("""
def steps(x: array[float], y: array[float]):
    i = tid()
    y[i] = floor(x[i]) * 2.0

def chosen(x: array[float], y: array[float]):
    i = tid()
    y[i] = where(x[i] > 1.5, 1.0, 0.0)

def beyond(x: array[float], count: array[float]):
    if x[tid()] > 1.5:
        atomic_add(count, 0, 1.0)

def masked(x: array[float], mask: array[int]):
    i = tid()
    mask[i] = 1 if x[i] > 1.5 else 0

def picked(mask: array[int], y: array[float]):
    i = tid()
    if mask[i] == 1:
        y[i] = 2.0

def kept(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] - floor(x[i])
    if x[i] > 1.5:
        y[i] = x[i] * 2.0
""")


def recorded(name: str, x: kl.array, *others: kl.array) -> tuple[kl.Tape, kl.array]:
    y, loss = result(), result(1)
    with kl.Tape() as tape:
        FLAT[name][3](x, y)
        for one in (y, *others):
            total[3](one, loss)
    return tape, loss


@pytest.mark.parametrize(
    ("name", "words", "line"),
    [
        ("steps", "its values go on through `floor` only", "y[i] = floor(x[i]) * 2.0"),
        ("chosen", "it only decides a condition", "y[i] = where(x[i] > 1.5, 1.0, 0.0)"),
    ],
)
def test_a_derivative_that_is_zero_by_construction_is_reported_at_its_line(
    name: str, words: str, line: str
) -> None:
    x = leaf()
    tape, loss = recorded(name, x)
    text = told(lambda: tape.backward(loss))
    assert f"no gradient flows to `x`, read by the launch of `{name}`: {words}" in text
    assert line in text


def test_a_loss_that_depends_on_an_array_by_a_condition_only_says_so() -> None:
    x, count = leaf(), result(1)
    with kl.Tape() as tape:
        FLAT["beyond"][3](x, count)
    with pytest.raises(kl.TapeError, match="only decides a condition") as caught:
        tape.backward(count)
    assert "if x[tid()] > 1.5:" in str(caught.value)


def test_a_condition_is_followed_through_an_array_of_ints() -> None:
    x, mask, y, loss = leaf(), kl.zeros(3, dtype=int), result(), result(1)
    with kl.Tape() as tape:
        FLAT["masked"][3](x, mask)
        FLAT["picked"][3](mask, y)
        total[3](y, loss)
    text = told(lambda: tape.backward(loss))
    assert "no gradient flows to `x`, read by the launch of `masked`: it only decides a condition" in text
    assert 'FLAT["picked"][3](mask, y)' in text


def test_a_condition_beside_other_inputs_is_told_to_who_asks_for_the_gradient() -> None:
    x, w = leaf(), leaf()
    tape, loss = recorded("chosen", x, w)
    assert told(lambda: tape.backward(loss)) == ""
    assert gradient(w) == [1, 1, 1]
    assert "it only decides a condition" in told(lambda: x.grad)
    assert told(lambda: x.grad) == ""


def test_a_rounding_or_a_condition_beside_the_value_itself_is_silent() -> None:
    x = leaf(0.5, 1.0, 2.0)
    tape, loss = recorded("kept", x)
    assert told(lambda: tape.backward(loss)) == ""
    assert told(lambda: x.grad) == ""
    assert gradient(x) == [1, 1, 2]


# ------------------------------------------------------------------------------------------ NumPy


@pytest.mark.parametrize("how", ["array", "assign", "item assignment", "array of an array"])
def test_a_round_trip_through_numpy_is_reported(how: str) -> None:
    x, y, w, z, loss = leaf(), result(), result(), result(), result(1)
    with kl.Tape() as tape:
        square[3](x, y)
        match how:
            case "array":
                w = kl.array(y.numpy() * 2, dtype=float, requires_grad=True)
            case "assign":
                w.assign(np.sqrt(y.numpy()))
            case "item assignment":
                w[:] = y.list()
            case _:
                w = kl.array(y, requires_grad=True)
        square[3](w, z)
        total[3](z, loss)
    text = told(lambda: tape.backward(loss))
    assert "no gradient flows from `w` back to `y`" in text
    assert "the host took `y` here" in text


@pytest.mark.parametrize("how", ["assign", "item assignment"])
def test_so_is_one_back_into_the_same_array(how: str) -> None:
    x, y, loss = leaf(), result(), result(1)
    with kl.Tape() as tape:
        square[3](x, y)
        if how == "assign":
            y.assign(np.sqrt(y.numpy()))
        else:
            y[:] = y.numpy() * 2
        total[3](y, loss)
    text = told(lambda: tape.backward(loss))
    assert "no gradient flows through `y` here: its new values came by the host" in text


@pytest.mark.parametrize("first", ["assign", "a new array", "in place", "by order", "a number", "a list"])
@pytest.mark.parametrize("second", ["array", "number"])
def test_a_chain_that_passes_the_host_twice_is_reported_at_the_second(first: str, second: str) -> None:
    x, y, w, z, loss = leaf(), result(), kl.zeros(3, dtype=float), result(), result(1)
    u = kl.ones(3, dtype=float)
    with kl.Tape() as tape:
        square[3](x, y)
        match first:
            case "assign":
                u.assign(np.sqrt(y.numpy()))
            case "a new array":
                u = kl.array(y.numpy() + 1, dtype=float)
            case "in place":
                u.numpy()[:] = y.numpy()
            case "by order":
                u = kl.array([math.sin(value) for value in y.list()], dtype=float)
            case "a list":
                u[:] = y.list()
            case _:
                kl.launch(NUMBERS["scale"], 3, [u, y[1]])
        square[3](u, w)
        if second == "array":
            z.assign(w.numpy() * 2)
        else:
            kl.launch(NUMBERS["scale"], 3, [z, w[1]])
        total[3](z, loss)
        total[3](x, loss)
    text = told(lambda: tape.backward(loss))
    back = "from `z` back to `w`" if second == "array" else "from the launch of `scale` back to `w`"
    assert f"no gradient flows {back}" in text


@pytest.mark.parametrize(
    "between",
    [
        "constants",
        "overwritten by the host",
        "overwritten by a launch",
        "a meant end",
        "another part",
        "a size",
    ],
)
def test_one_that_ends_before_it_passes_the_host_again_is_silent(between: str) -> None:
    x, y, w, z, loss = leaf(), result(), kl.zeros(3, dtype=float), result(), result(1)
    u, ones = kl.zeros(3, dtype=float), kl.ones(3, dtype=float)
    with kl.Tape() as tape:
        square[3](x, y)
        match between:
            case "constants":
                assert y.numpy()[0] == 1.0
                u.fill_(2.0)
            case "overwritten by the host":
                u.assign(y.numpy())
                u.fill_(2.0)
            case "overwritten by a launch":
                u.assign(y.numpy())
                square[3](ones, u)
            case "a meant end":
                u.assign(kl.clone(y, requires_grad=False).numpy())
            case "another part":
                both = kl.zeros(6, dtype=float)
                square[3](y, both[:3])
                u.assign(both[3:].numpy())
            case _:
                u.fill_(float(y.numpy().size))
        square[3](u, w)
        z.assign(w.numpy() * 2)
        total[3](z, loss)
        total[3](x, loss)
    assert told(lambda: tape.backward(loss)) == ""


NUMBERS = kl.compile("""
def scale(x: array[float], factor: float):
    x[tid()] *= factor
""")


def test_a_number_that_the_host_takes_and_passes_on_is_reported() -> None:
    x, y, metric, loss = leaf(), result(), result(1), result(1)
    with kl.Tape() as tape:
        square[3](x, y)
        total[3](y, metric)
        kl.launch(NUMBERS["scale"], 3, [x, metric.item()])
        total[3](x, loss)
    text = told(lambda: tape.backward(loss))
    assert "no gradient flows from the launch of `scale` back to `metric`: the host took a number" in text
    assert "metric.item()" in text


def test_so_is_one_that_it_fills_an_array_with() -> None:
    x, y, z, loss = leaf(), result(), result(), result(1)
    with kl.Tape() as tape:
        square[3](x, y)
        z.fill_(y[1])
        total[3](z, loss)
        total[3](x, loss)
    text = told(lambda: tape.backward(loss))
    assert "no gradient flows from `z` back to `y`: the values came by the host" in text


def test_so_is_one_of_an_array_that_gradients_reach_otherwise() -> None:
    x, y, loss = kl.array([0.1, 0.2, 0.3], dtype=float, requires_grad=True), result(), result(1)
    with kl.Tape() as tape:
        square[3](x, y)
        kl.launch(NUMBERS["scale"], 3, [y, y[2]])
        total[3](y, loss)
    assert "from the launch of `scale` back to `y`" in told(lambda: tape.backward(loss))


@pytest.mark.parametrize("factor", [2.5, 0.3])
def test_a_number_of_a_leaf_that_the_host_takes_and_passes_on_is_reported(factor: float) -> None:
    x, loss = leaf(), result(1)
    s = kl.array([factor], dtype=float, requires_grad=True)
    for take in (lambda: s[0], lambda: s.numpy()[0], s.item):
        with kl.Tape() as tape:
            kl.launch(NUMBERS["scale"], 3, [x, take()])
            total[3](x, loss)
        text = told(lambda: tape.backward(loss))
        assert "no gradient flows from the launch of `scale` back to `s`: the host took a number" in text


def test_numbers_of_arrays_without_gradients_and_leaves_that_are_only_looked_at_are_silent() -> None:
    x = kl.array([0.1, 0.2, 0.3], dtype=float, requires_grad=True)
    same, loss = kl.array([0.1, 0.2, 0.3], dtype=float), result(1)
    with kl.Tape() as tape:
        assert x.numpy()[0] < 0.2
        kl.launch(NUMBERS["scale"], 3, [x, same[1]])
        kl.launch(NUMBERS["scale"], 3, [x, same.numpy()[2]])
        kl.launch(NUMBERS["scale"], 3, [x, 0.2])
        total[3](x, loss)
    assert told(lambda: tape.backward(loss)) == ""


def test_a_number_of_a_detached_clone_or_one_that_people_write_is_silent() -> None:
    x, y, loss = leaf(), result(), result(1)
    with kl.Tape() as tape:
        square[3](x, y)
        kl.launch(NUMBERS["scale"], 3, [x, kl.clone(y, requires_grad=False).numpy()[1]])
        assert y.list() == [1.0, 4.0, 9.0]
        kl.launch(NUMBERS["scale"], 3, [y, 4.0])
        total[3](x, loss)
        total[3](y, loss)
    assert told(lambda: tape.backward(loss)) == ""


def test_an_array_that_starts_again_after_it_was_used_and_looked_at_is_silent() -> None:
    x, y, loss = leaf(), result(), result(1)
    with kl.Tape() as tape:
        for _ in range(2):
            y.assign([1.0, 2.0, 3.0])
            square[3](y, x)
            square[3](x, y)
            total[3](y, loss)
            assert y.numpy()[0] == 1.0
    assert told(lambda: tape.backward(loss)) == ""


def test_looking_at_results_while_a_tape_records_is_silent() -> None:
    x, y, loss = leaf(), result(), result(1)
    with kl.Tape() as tape:
        square[3](x, y)
        assert y.numpy().max() == 9.0
        target = kl.array([1.0, 2.0, 3.0], dtype=float, requires_grad=True)
        total[3](y, loss)
        total[3](target, loss)
    assert told(lambda: tape.backward(loss)) == ""


def test_a_control_from_the_host_after_a_look_at_a_number_is_silent() -> None:
    x, y, metric, loss = leaf(), result(), result(1), result(1)
    with kl.Tape() as tape:
        square[3](x, y)
        total[3](y, metric)
        assert metric.item() == 14.0
        control = kl.array([1.0, 2.0, 3.0], dtype=float, requires_grad=True)
        total[3](control, loss)
    assert told(lambda: tape.backward(loss)) == ""


def test_values_of_a_detached_clone_end_the_chain_in_silence() -> None:
    x, y, loss = leaf(), result(), result(1)
    with kl.Tape() as tape:
        square[3](x, y)
        w = kl.array(kl.clone(y, requires_grad=False).numpy() * 2, dtype=float, requires_grad=True)
        total[3](w, loss)
    assert told(lambda: tape.backward(loss)) == ""


# ------------------------------------------------------------------------------------------ unseen launches


def test_a_launch_before_the_tape_is_reported() -> None:
    x, y, loss = leaf(), result(), result(1)
    square[3](x, y)
    with kl.Tape() as tape:
        total[3](y, loss)
    text = told(lambda: tape.backward(loss))
    assert "no gradient flows through the launch of `square`, which computed `y` outside of the tape" in text
    assert "square[3](x, y)" in text


def test_a_launch_in_another_thread_is_reported() -> None:
    x, y, loss = leaf(), result(), result(1)
    with kl.Tape() as tape:
        thread = threading.Thread(target=lambda: square[3](x, y))
        thread.start()
        thread.join()
        total[3](y, loss)
    assert "which computed `y` in another thread" in told(lambda: tape.backward(loss))


def test_beside_other_leaves_who_asks_for_the_missing_gradient_is_told() -> None:
    mass, inverse, x, loss = leaf(), result(), leaf(), result(1)
    square[3](mass, inverse)
    with kl.Tape() as tape:
        total[3](inverse, loss)
        total[3](x, loss)
    assert told(lambda: tape.backward(loss)) == ""
    text = told(lambda: mass.grad)
    assert "no gradient flows through the launch of `square`" in text
    assert told(lambda: mass.grad) == ""


@pytest.mark.parametrize("how", ["record_tape", "clone", "changed since", "recomputed"])
def test_what_is_meant_as_a_leaf_is_silent(how: str) -> None:
    x, y, loss = leaf(), result(), result(1)
    kl.launch(square, 3, [x], [y], record_tape=how != "record_tape")
    if how == "clone":
        y = kl.clone(y)
    if how == "changed since":
        y.assign([1.0, 2.0, 3.0])
    with kl.Tape() as tape:
        if how == "recomputed":
            square[3](x, y)
        total[3](y, loss)
    assert told(lambda: tape.backward(loss)) == ""


def test_an_optimisation_in_functional_style_is_silent() -> None:
    x, history = leaf(), []
    for _ in range(3):
        loss = result(1)
        with kl.Tape() as tape:
            total[3](x, loss)
        assert told(lambda tape=tape, loss=loss: tape.backward(loss)) == ""
        history.append(x)
        x = x - 0.1 * x.grad


# ------------------------------------------------------------------------------------------ seeds


@pytest.mark.parametrize(
    ("seed", "said"),
    [
        (np.ones(2), "has shape"),
        (1.0, "has shape"),
        (np.ones(3, complex), "a NumPy array of complex numbers"),
        (["a", "b", "c"], "has to be real numbers"),
        (None, "has to be real numbers"),
    ],
    ids=str,
)
def test_a_seed_of_the_wrong_shape_or_kind_is_an_error(seed: Any, said: str) -> None:
    x, y = leaf(), result()
    with kl.Tape() as tape:
        square[3](x, y)
    with pytest.raises(kl.TapeError, match=said):
        tape.backward(grads={y: seed})
    assert gradient(x) == [0, 0, 0]


@pytest.mark.parametrize("seed", [2.0, [2], np.float64(2), kl.array([2])], ids=repr)
def test_a_seed_of_one_number_may_be_any_real_number(seed: Any) -> None:
    x, loss = leaf(), result(1)
    with kl.Tape() as tape:
        total[3](x, loss)
    tape.backward(grads={loss: seed})
    assert gradient(x) == [2, 2, 2]


def test_a_loss_of_several_elements_is_an_error_that_offers_cotangents() -> None:
    x, y = leaf(), result()
    with kl.Tape() as tape:
        square[3](x, y)
    with pytest.raises(kl.TapeError, match=r"`y` is not a single float: it has 3 elements(.|\n)*grads="):
        tape.backward(y)


def test_a_loss_that_nothing_differentiable_leads_to_is_an_error() -> None:
    x, loss = kl.ones(3, dtype=float), result(1)
    with kl.Tape() as tape:
        total[3](x, loss)
    with pytest.raises(kl.TapeError, match="`loss` does not depend on any array that requires gradients"):
        tape.backward(loss)


def test_nothing_to_check_is_an_error_of_gradcheck() -> None:
    with pytest.raises(kl.GradientError, match="0 pairs checked"):
        kl.autograd.gradcheck(square, 3, [kl.ones(3, dtype=float)], [kl.zeros(3, dtype=float)])


@pytest.mark.parametrize(
    "between",
    [lambda x: x * x, lambda x: x * x + 1.0, lambda x: kl.map(lambda v: v * v, x)],
)
def test_a_gradient_that_is_asked_for_after_the_array_was_read_is_told(between: Any) -> None:
    x = kl.array([2.0], dtype=float)
    with kl.Tape() as tape:
        y = between(x)
        x.requires_grad = True
        loss = (y * x).sum()
    with pytest.warns(kl.KernelWarning, match="requires gradients, but did not when the launch") as told:
        tape.backward(loss)
    assert len(told) == 1
    assert np.array_equal(x.grad, y.numpy())


def test_what_was_cloned_or_is_of_ints_before_a_gradient_is_asked_for_is_silent() -> None:
    x, n = kl.array([2.0], dtype=float), kl.array([3])
    with warnings.catch_warnings(), kl.Tape() as tape:
        warnings.simplefilter("error")
        y = kl.clone(x, requires_grad=False) ** 2
        counted = (n * n).astype(float)
        x.requires_grad = True
        loss = (y * x * counted).sum()
        tape.backward(loss)
    assert np.array_equal(x.grad, [36.0])
