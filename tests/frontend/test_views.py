"""Rows and slices of arrays in kernels: NumPy's meaning, the parameter's gradient, and what is refused."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.backend.common import backends
from kernelab.backend.common.backends import pack
from kernelab.errors import KernelAssertionError
from kernelab.passes.common.copying import widen
from kernelab.passes.common.scalarise import scalarise
from kernelab.passes.common.simplify import simplify
from tests.frontend.helpers import agrees_with_python, error, function, ran
from tests.support.derivatives import derivatives

ROWS = """
@func
def total(row: array[float]):
    s = 0.0
    for j in range(len(row)):
        s += row[j] * row[j]
    return s

@func
def corner(part, k):
    return part[0, k] + part[-1, -1] * float(part.shape[0]) + float(part.shape[1])

def kernel(a: array2d[float], b: array3d[float], out: array2d[float]):
    i = tid()
    row = a[i]
    column = a[:, i]
    out[i, 0] = total(row) + sin(row[1]) * column[-1]
    out[i, 1] = total(a[i, 1:]) + total(a[::2, i]) * 0.5
    out[i, 2] = total(a[i][::-1][1:3]) + total(b[i, :, 1]) + total(b[0][i])
    out[i, 3] = corner(b[i], 1) + corner(b[:, i, 1:], 0) + corner(a[1:], 2)
    block = out[i : i + 1, 4:]
    block[0, 1] += 3.0 * row[2]
    block[0][0] = row[0] * 2.0
    atomic_add(block, 0, 1, 0.5 * row[1])
"""
SLICES = """
def kernel(x: array[float], out: array2d[int], bounds: array2d[int]):
    i = tid()
    lo, hi = bounds[i, 0], bounds[i, 1]
    out[i, 0] = len(x[lo:hi])
    out[i, 1] = len(x[lo:hi:2])
    out[i, 2] = len(x[hi:lo:-1])
    out[i, 3] = len(x[lo:hi:-3])
    out[i, 4] = len(x[:hi]) * 100 + len(x[lo:])
    out[i, 5] = len(x[::-2][1:lo])
    part = x[lo:hi]
    back = x[hi:lo:-2]
    for k in range(len(part)):
        out[i, 6] += int(part[k]) * (k + 1)
    for k in range(1, len(back) + 1):
        out[i, 7] += int(back[-k]) * k + back.size
"""
CHOSEN = """
def kernel(a: array2d[float], out: array[float]):
    i = tid()
    row = a[0]
    if i % 2 == 1:
        row = a[i]
    part = row[1:]
    if i == 2:
        part = row[2:]
    for k in range(3):
        out[i] += row[k] * part[0] * float(len(part))
        row = a[k]
        last = a[:, k]
    out[i] += last[i] * row[1]
"""


def arguments() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    draw = lambda *shape: rng.uniform(-1, 1, shape).astype(np.float32)  # noqa: E731
    return {"a": draw(4, 4), "b": draw(4, 4, 4), "out": np.zeros((4, 6), np.float32)}


def on_the_cpu(text: str, grid: tuple[int, ...], given: dict[str, Any]) -> dict[str, Any]:
    after = {name: value.copy() for name, value in given.items()}
    entry = backends.get("cpu").build([scalarise(simplify(function(text)))])["kernel"]
    entry(pack(entry.info.layout, grid, after))
    return after


def test_rows_and_slices_are_what_numpy_makes_of_them() -> None:
    agrees_with_python(ROWS.replace("@func\n", ""), (4,), **arguments())


def test_the_backends_agree_on_rows_and_slices() -> None:
    given = arguments()
    for name, value in on_the_cpu(ROWS, (4,), given).items():
        np.testing.assert_allclose(value, ran(ROWS, (4,), **given)[name], 1e-6)


def test_the_bounds_of_slices_mean_what_they_mean_in_python() -> None:
    pairs = [(lo, hi) for lo in (-9, -6, -2, 0, 1, 3, 5, 7) for hi in (-8, -5, -1, 0, 2, 5, 9)]
    given = {
        "x": np.arange(1, 6, dtype=np.float32),
        "out": np.zeros((len(pairs), 8), np.int32),
        "bounds": np.array(pairs, np.int32),
    }
    agrees_with_python(SLICES, (len(pairs),), **given)
    np.testing.assert_array_equal(
        on_the_cpu(SLICES, (len(pairs),), given)["out"], ran(SLICES, (len(pairs),), **given)["out"]
    )


def test_a_variable_may_stand_for_one_row_or_another() -> None:
    given = {"a": arguments()["a"], "out": np.zeros(4, np.float32)}
    agrees_with_python(CHOSEN, (4,), **given)


@pytest.mark.parametrize(("text", "names"), [(ROWS, ("a", "b", "out")), (CHOSEN, ("a", "out"))])
def test_gradients_through_views_agree_with_differences(text: str, names: tuple[str, ...]) -> None:
    rng = np.random.default_rng(5)
    given = {name: np.float64(value) for name, value in arguments().items() if name in names}
    if text is CHOSEN:
        given["out"] = np.zeros(4)
    wide = simplify(widen(simplify(function(text))))
    assert derivatives(wide, (4,), given, rng).agree()


def test_vectors_are_sliced_by_constants() -> None:
    text = """
def kernel(v: array[vec4], out: array[vec2]):
    out[0] = v[0][1:3] + v[0][::3]
    u = v[0]
    out[1] = u[-2:]
"""
    after = ran(text, v=np.array([[1, 2, 4, 8]], np.float32), out=np.zeros((2, 2), np.float32))
    assert after["out"].tolist() == [[3.0, 12.0], [4.0, 8.0]]


def test_an_index_outside_of_a_slice_is_an_error_though_the_array_goes_on() -> None:
    text = "def kernel(x: array[float], i: int):\n    part = x[1:3]\n    part[i] = 1.0"
    x = np.zeros(9, np.float32)
    assert ran(text, x=x, i=-2)["x"].tolist() == [0, 1, 0, 0, 0, 0, 0, 0, 0]
    for outside in (2, -3):
        with pytest.raises(KernelAssertionError, match=r"part\[i\] is outside of the slice"):
            ran(text, x=x, i=outside)


def test_a_view_in_a_launched_kernel_has_the_gradient_of_its_array() -> None:
    text = """
def kernel(a: array2d[float], out: array[float]):
    i = tid()
    row = a[i, 1:]
    out[i] = row[0] * row[1]
"""
    a = kl.array(np.arange(6.0).reshape(2, 3), dtype=float, requires_grad=True)
    out = kl.zeros(2, dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        kl.compile(text)["kernel"][2](a, out)
    tape.backward(grads={out: kl.ones(2, dtype=float)})
    assert a.grad.numpy().tolist() == [[0, 2, 1], [0, 5, 4]]


STEPS = """
def ends(part):
    return part[0] + 10.0 * part[len(part) - 1]
def kernel(x: array[float], a: int, b: int, step: int, out: array[float]):
    part = x[a:b:step]
    out[0] = float(len(part))
    if len(part) > 0:
        out[1] = ends(part)
        every = part[::step]
        out[2] = ends(every) * x[0]
        out[3] = float(len(every))
        part[0] = 100.0
    whole = x[::step]
    out[4] = ends(whole[1:])
"""


@pytest.mark.parametrize("backend", ["cpu", "interp"])
@pytest.mark.parametrize(
    ("a", "b", "step"), [(1, 6, 2), (5, 0, -2), (-1, -7, -1), (0, 99, 3), (6, 2, 1), (-2, 1, -3), (2, 6, -1)]
)
def test_a_step_may_be_known_at_run_time_only(
    backend: str, a: int, b: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELAB_BACKEND", backend)
    numbers = np.arange(3.0, 10.0, dtype=np.float32)
    x, out = kl.array(numbers, dtype=float), kl.zeros(5, dtype=float)
    kl.launch(kl.compile(STEPS)["kernel"], 1, inputs=[x, a, b, step, out])

    def ends(part: Any) -> Any:
        return part[0] + 10.0 * part[-1]

    part = numbers[a:b:step]
    expected = [len(part), 0.0, 0.0, 0.0, 0.0]
    if len(part):
        expected[1:4] = [ends(part), ends(part[::step]) * numbers[0], len(part[::step])]
        part[0] = 100.0
    expected[4] = ends(numbers[::step][1:])
    assert out.numpy().tolist() == expected


def test_a_step_of_zero_is_an_error_at_its_line() -> None:
    x = kl.zeros(3, dtype=float)
    with pytest.raises(kl.KernelAssertionError, match=r"the step of the slice, step, is not 0"):
        kl.launch(kl.compile(STEPS)["kernel"], 1, inputs=[x, 0, 2, 0, kl.zeros(5, dtype=float)])


def test_gradients_reach_what_a_step_at_run_time_picks() -> None:
    text = """
def kernel(x: array[float], step: int, out: array[float]):
    i = tid()
    out[i] = x[::step][i] * x[i]
"""
    x = kl.array([1.0, 2.0, 3.0, 4.0, 5.0], dtype=float, requires_grad=True)
    out = kl.zeros(2, dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kl.compile(text)["kernel"], 2, inputs=[x, -3, out])
    tape.backward(grads={out: kl.ones(2, dtype=float)})
    assert x.grad.list() == [5.0, 2.0 + 2.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "y = x if i > 0 else z",
            "the value is the array z here and x elsewhere: a variable stands for one array",
        ),
        ("y = x[1:]\n    if i > 0:\n        y = z[1:]\n    x[0] = y[0]", "a variable stands for one array"),
        ("y = x[1:]\n    if i > 0:\n        y = x[::2]\n    x[0] = y[0]", "the two have different forms"),
        ("for k in range(3):\n        x = x[1:]\n        x[0] = 1.0", "the two have different forms"),
        ("y = x[::0]", "the slice step cannot be zero"),
        ("y = x[0.5:]", "an index is an integer, not float"),
        ("y = x[1:, 2]", "array[float32] takes 1 index, not 2"),
        ("y = x[1:][1, 2]", "a slice of x, array[float32] takes 1 index, not 2"),
        ("y = x[1:] + 1.0", "x[1:] is a slice of x, array[float32], not a number"),
        ("y = vec3()[i:]", "the bounds of a slice of vec3 have to be constants"),
        ("y = x[1:].x", "a slice of x, array[float32] has no x"),
    ],
)
def test_what_a_view_cannot_do_is_said(body: str, message: str) -> None:
    found = error(f"def kernel(x: array[float], z: array[float]):\n    i = tid()\n    {body}")
    assert message in found.message


def test_unpacking_an_array_of_another_length_is_an_error() -> None:
    kernel = kl.compile("def kernel(x: array[float], y: array[float]):\n    p, q = x[1:3]\n    y[0] = p * q")
    y = kl.zeros(1)
    kl.launch(kernel["kernel"], 1, [kl.array([1.0, 2.0, 3.0], dtype=float), y])
    assert y.list() == [6.0]
    with pytest.raises(KernelAssertionError, match=r"x\[1:3\] has another number of elements than 2"):
        kl.launch(kernel["kernel"], 1, [kl.ones(2), y])
    with pytest.raises(kl.KernelError, match="int32 cannot be unpacked into 2 names"):
        kl.compile("def kernel(n: int):\n    p, q = n")


def test_a_number_of_elements_that_is_no_int_ends_the_launch() -> None:
    text = "def k(x: array2d[int8], n: array[int]):\n    n[0] = x[:, 2:].size\n    n[1] = x.size\n"
    one, n = kl.ones(1, dtype=kl.int8), kl.zeros(2, dtype=int)
    for rows, fits in ((2**15, True), (2**16, False)):
        x = kl.array(ptr=one.ptr, shape=(rows, 2**15), strides=(0, 0), dtype=kl.int8)
        if fits:
            kl.launch(kl.compile(text)["k"], 1, inputs=[x, n])
            assert n.list() == [rows * (2**15 - 2), rows * 2**15]
            continue
        with pytest.raises(kl.KernelAssertionError, match=r"x.size < 2\*\*31"):
            kl.launch(kl.compile(text)["k"], 1, inputs=[x, n])


WIDE = """
def within(n: {type}, x: array[float64], y: array[float64]):
    {read}

def length(n: {type}, x: array[float64], y: array[float64]):
    y[0] = float64(len(x[{slice}]))
"""
READS = {
    "a component": "y[0] = vec4d(x[0], x[1], x[2], x[3])[n]",
    "a component that is set": "v = vec4d(x[0])\n    v[n] = 9.0\n    y[0] = v[0] + v[1]",
    "an entry": "y[0] = mat22d(x[0], x[1], x[2], x[3])[1, n]",
    "a row": "y[0] = mat22d(x[0], x[1], x[2], x[3])[n][0]",
    "an item": "y[0] = (x[0], x[1], x[2])[n]",
    "an element of a slice": "y[0] = x[:3][n]",
}
WIDER = [
    ("int64", 2**32 + 1),
    ("int64", -(2**32)),
    ("int64", -(2**63)),
    ("uint64", 2**32),
    ("uint64", 2**64 - 1),
]


@pytest.mark.parametrize(("type", "n"), WIDER)
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_an_index_of_64_bits_does_not_wrap_around_into_the_axis(read: str, type: str, n: int) -> None:
    kernel = kl.compile(WIDE.format(type=type, read=read, slice="n:"))["within"]
    with pytest.raises(KernelAssertionError, match="outside of"):
        kernel[1](n, kl.ones(4, dtype=kl.float64), kl.zeros(1, dtype=kl.float64))


@pytest.mark.parametrize(
    ("type", "n", "slice", "length"),
    [
        ("int64", 2**32 + 1, "::n", 1),
        ("int64", 2**32, "::n", 1),
        ("int64", -(2**63), "::n", 1),
        ("uint32", 2**32 - 1, "::n", 1),
        ("uint64", 2**64 - 1, "::n", 1),
        ("uint64", 2**64 - 2, "n:", 0),
        ("uint64", 2**63, ":n", 4),
    ],
)
def test_a_slice_takes_bounds_and_steps_of_any_width(type: str, n: int, slice: str, length: int) -> None:
    kernel = kl.compile(WIDE.format(type=type, read="pass", slice=slice))["length"]
    y = kl.zeros(1, dtype=kl.float64)
    kernel[1](n, kl.ones(4, dtype=kl.float64), y)
    assert y.list() == [length]
