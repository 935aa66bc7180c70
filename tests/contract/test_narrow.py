"""Halves: sums of many launches are rounded once; checks in float64 know what the rules of operations say."""

import re
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import TapeError
from kernelab.runtime.kernel.program import GROWS_TO

TEXT = """
def scale_{name}(x: array[{name}], w: array[{name}], y: array[{name}]):
    i = tid()
    y[i] = x[i] * w[0]
"""


BOTH = """
def both(a: array[float16], b: array[float16], s: array[float16], t: array[float16]):
    i = tid()
    s[0] += a[0]
    t[0] += b[0]

def written_too(w: array[bfloat16], y: array[bfloat16]):
    i = tid()
    if i == 0:
        w[1] = w[0] * w[2]
    y[i] = w[2]

def in_loops(x: array[float], w: array[vec2bf], v: bfloat16, y: array[float]):
    p = w[0]
    s = 0.0
    for j in range(x.shape[0]):
        if x[j] > 0.0:
            s += float(v) * x[j]
        k = 0
        while k < 2:
            s += float(p[k]) * x[j]
            k += 1
    y[tid()] = s

def by_one_thread(w: array[bfloat16], y: array[bfloat16]):
    i = tid()
    if i == 0:
        w[0] = w[0] * w[1]
    y[i] = y[i] * y[i]
"""


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    return kl.compile("".join(TEXT.format(name=name) for name in ("float16", "bfloat16", "float32")) + BOTH)


def gradient(kernels: dict[str, Any], name: str, launches: int, sweeps: int = 1, parts: int = 1) -> float:
    dtype = getattr(kl, name)
    x, w = kl.ones(2, dtype=dtype), kl.ones(parts, dtype=dtype, requires_grad=True)
    y = kl.zeros((launches, 2), dtype=dtype, requires_grad=True)
    with kl.Tape() as tape:
        for k in range(launches):
            kernels[f"scale_{name}"][2](x, w if parts == 1 else w[k % parts :], y[k])
    for _ in range(sweeps):
        tape.backward(grads={y: kl.ones_like(y)})
    return float(w.grad.numpy()[0])


@pytest.mark.parametrize(("name", "launches"), [("float16", 2000), ("bfloat16", 1200), ("float32", 10)])
def test_the_shares_of_many_launches_add_up(kernels: dict[str, Any], name: str, launches: int) -> None:
    assert gradient(kernels, name, launches) == 2.0 * launches


def test_the_shares_of_elements_with_many_axes_add_up() -> None:
    """Four of the array, and one of each vector."""
    text = "def k(x: array4d[vec2bf], y: array[bfloat16], n: int):\n    y[n] = x[0, 0, 0, 0][1]\n"
    kernel = kl.compile(text)["k"]
    x = kl.ones((1, 1, 1, 2), dtype=kl.vec2bf, requires_grad=True)
    y = kl.zeros(600, dtype=kl.bfloat16, requires_grad=True)
    with kl.Tape() as tape:
        for n in range(600):
            kernel[1](x, y, n)
    tape.backward(grads={y: kl.ones_like(y)})
    assert x.grad.numpy().astype(float).ravel().tolist() == [0.0, 600.0, 0.0, 0.0]


def test_a_second_sweep_adds_the_whole_gradient_again(kernels: dict[str, Any]) -> None:
    assert gradient(kernels, "bfloat16", 600, sweeps=2) == 2400.0


def test_views_keep_shares_of_their_own(kernels: dict[str, Any]) -> None:
    assert gradient(kernels, "float16", 6, parts=2) == 6.0


def test_a_numpy_view_that_is_alive_changes_nothing_and_its_writes_are_seen(kernels: dict[str, Any]) -> None:
    x, w = (kl.full(2, 3.0, dtype=kl.bfloat16, requires_grad=True) for _ in range(2))
    y = kl.zeros(2, dtype=kl.bfloat16, requires_grad=True)
    view = x.numpy()
    with kl.Tape() as tape:
        kernels["scale_bfloat16"][2](x, w, y)
    tape.backward(grads={y: kl.ones_like(y)})
    assert (x.grad.numpy().tolist(), w.grad.numpy().tolist()) == ([3.0, 3.0], [6.0, 0.0])
    view[0] = 5.0
    with pytest.raises(TapeError, match="`x` was changed through a view"):
        tape.backward(grads={y: kl.ones_like(y)})


def test_in_a_checkpoint_they_add_up_too(kernels: dict[str, Any]) -> None:
    x, w = kl.ones(1, dtype=kl.bfloat16), kl.ones(1, dtype=kl.bfloat16, requires_grad=True)

    def several(w: Any) -> Any:
        y = kl.zeros((600, 1), dtype=kl.bfloat16, requires_grad=True)
        for k in range(600):
            kernels["scale_bfloat16"][1](x, w, y[k])
        return y

    with kl.Tape() as tape:
        y = kl.checkpoint(several, w)
    tape.backward(grads={y: np.ones((600, 1))})
    assert float(w.grad.numpy()[0]) == 600.0


def summed(kernels: dict[str, Any], name: str, launches: int) -> Any:
    """A function whose result reads its argument, a half, in many launches."""
    dtype = getattr(kl, name)
    x = kl.ones(2, dtype=dtype)

    def f(w: Any) -> Any:
        y = kl.zeros((launches, 2), dtype=dtype)
        for k in range(launches):
            kernels[f"scale_{name}"][2](x, w, y[k])
        return y

    return f


@pytest.mark.parametrize(("name", "launches"), [("float16", 2000), ("bfloat16", 600)])
def test_in_transforms_they_add_up_too(kernels: dict[str, Any], name: str, launches: int) -> None:
    dtype, f = getattr(kl, name), summed(kernels, name, launches)
    ones = kl.ones((launches, 2), dtype=dtype)
    _, pull = kl.func.vjp(f, kl.ones(1, dtype=dtype))
    for _ in range(2):
        assert float(pull(ones)[0].numpy()[0]) == 2.0 * launches


def test_in_lanes_they_add_up_too(kernels: dict[str, Any]) -> None:
    f, ones = summed(kernels, "bfloat16", 600), kl.ones((600, 2), dtype=kl.bfloat16)
    found = kl.func.vmap(lambda w: kl.func.vjp(f, w)[1](ones)[0])(kl.ones((3, 1), dtype=kl.bfloat16))
    assert found.numpy().astype(float).tolist() == [[1200.0]] * 3


def read_often(kernels: dict[str, Any], what: str) -> Any:
    """A function whose result reads, in 600 launches, what another launch has written, or parts of it."""
    ones, launch = kl.ones(2, dtype=kl.bfloat16), kernels["scale_bfloat16"]

    def f(w: Any) -> Any:
        y = kl.zeros((600, 2), dtype=kl.bfloat16, requires_grad=True)
        x = w if what == "an input, by parts" else kl.zeros(2, dtype=kl.bfloat16, requires_grad=True)
        if x is not w:
            launch[2](w, ones, x)
        for k in range(600):
            if what == "overwritten between" and k == 300:
                launch[2](w, ones, x)
            launch[2](ones, x[k % 2 :] if "part" in what else x, y[k])
        return y

    return f


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("a result", [1200.0, 0.0]),
        ("a result, by parts", [600.0, 600.0]),
        ("an input, by parts", [600.0, 600.0]),
        ("overwritten between", [1200.0, 0.0]),
    ],
)
def test_so_do_those_of_results_and_of_parts(
    what: str, expected: list[float], kernels: dict[str, Any]
) -> None:
    f, w = read_often(kernels, what), kl.ones(2, dtype=kl.bfloat16, requires_grad=True)
    with kl.Tape() as tape:
        y = f(w)
    tape.backward(grads={y: kl.ones_like(y)})
    (pulled,) = kl.func.vjp(f, kl.ones(2, dtype=kl.bfloat16))[1](kl.ones_like(y))
    assert w.grad.numpy().tolist() == pulled.numpy().tolist() == expected


def test_a_gradient_that_is_published_on_the_way_has_all_shares(kernels: dict[str, Any]) -> None:
    """That of `x[1:]`, read first by the launch in the middle, while shares of all of `x` add up."""
    w, ones = (kl.ones(2, dtype=kl.bfloat16, requires_grad=grad) for grad in (True, False))
    x, y = (kl.zeros(shape, dtype=kl.bfloat16, requires_grad=True) for shape in (2, (601, 2)))
    with kl.Tape() as tape:
        kernels["scale_bfloat16"][2](w, ones, x)
        kernels["scale_bfloat16"][1](x[1:], ones, y[600])
        for k in range(600):
            kernels["scale_bfloat16"][2](x, ones, y[k])
    tape.backward(grads={y: kl.ones_like(y)})
    assert x.grad.numpy().astype(float).tolist() == [600.0, 600.0]  # 601 is not a bfloat16
    assert w.grad.numpy().tolist() == x.grad.numpy().tolist()


def test_so_do_those_of_one_launch_whose_arguments_share_memory(kernels: dict[str, Any]) -> None:
    """By tape and transform: what is only added to needs no order."""

    def f(w: Any) -> Any:
        s = kl.zeros(1, dtype=kl.float16, requires_grad=True)
        kernels["both"][4000](w, w, s, s)
        return s

    w = kl.ones(1, dtype=kl.float16, requires_grad=True)
    with kl.Tape() as tape:
        s = f(w)
    tape.backward(grads={s: np.ones(1)})
    (pulled,) = kl.func.vjp(f, w)[1](kl.ones(1, dtype=kl.float16))
    assert s.list() == w.grad.list() == pulled.list() == [8000.0]


@pytest.mark.parametrize("loop_memory", [64 << 20, 64])
def test_what_a_loop_reads_of_one_half_adds_up(
    loop_memory: int, kernels: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a number and of a vector, in loops in loops, with what they save and with checkpoints."""
    monkeypatch.setattr(kl.config, "loop_memory", loop_memory)
    x, w = kl.ones(4096), kl.ones(1, dtype=kl.vec2bf, requires_grad=True)
    v, y = kl.ones(1, dtype=kl.bfloat16, requires_grad=True), kl.zeros(1, requires_grad=True)
    with kl.Tape() as tape:
        kernels["in_loops"][1](x, w, v, y)
    tape.backward(grads={y: kl.ones(1)})
    assert (w.grad.numpy().tolist(), v.grad.numpy().tolist()) == ([[4096.0, 4096.0]], [4096.0])

    def f(v: Any) -> Any:
        y = kl.zeros(1)
        kernels["in_loops"][1](x, w, v, y)
        return y * y

    assert kl.func.hvp(f, kl.ones(1, dtype=kl.bfloat16), kl.ones(1, dtype=kl.bfloat16))[1].list() == [2.0**25]


CARRIED = {
    "a vector of which another component is written": """
    v = vector(length=2, dtype=T)
    v[0] = x[0]
    for j in range(len(y)):
        y[j] = v[0] * x[1]
        v[1] = y[j]
    """,
    "a matrix of which another row is written": """
    m = matrix(shape=(2, 2), dtype=T)
    m[0, 0] = x[0]
    for j in range(len(y)):
        y[j] = m[0, 0] * x[1]
        m[1] = vector(y[j], y[j], length=2, dtype=T)
    """,
    "two names that are exchanged": """
    a, b = x[0], x[1]
    for j in range(len(y)):
        y[j] = a * b
        a, b = b, a
    """,
    "a name that a branch keeps": """
    a = x[0]
    j = 0
    while j < len(y):
        y[j] = a * x[1]
        a = where(y[j] < T(0.0), a * a, a)
        j += 1
    """,
    "a local array of which another element is written": """
    q = zeros(4, dtype=T)
    q[0] = x[0]
    for j in range(len(y)):
        y[j] = q[0] * x[1]
        q[1 + j % 3] = y[j]
    """,
    "a field of a struct": """
    p = Pair(x[0], x[1])
    for j in range(len(y)):
        y[j] = p.first * p.second
        p = Pair(p.second, p.first)
    """,
}


@pytest.mark.parametrize("storage", ["save", "checkpoint"])
@pytest.mark.parametrize("scalar", ["float16", "bfloat16"])
@pytest.mark.parametrize("what", CARRIED)
def test_what_a_loop_hands_on_in_halves_adds_up(what: str, scalar: str, storage: str) -> None:
    """Also where it goes through an insertion, an exchange, a choice or memory of the thread's own."""
    struct = "class Pair:\n    first: T\n    second: T\n\n"
    text = f"{struct}def k(x: array[T], y: array[T]):{CARRIED[what]}"
    text = re.sub(r"\bT\b", scalar, text).replace("range(len(y))", f'range(len(y), adjoint="{storage}")')
    kernel, dtype = kl.compile(text.rstrip(" "))["k"], getattr(kl, scalar)
    x, y = (kl.ones(size, dtype=dtype, requires_grad=True) for size in (2, 4096))
    with kl.Tape() as tape:
        kernel[1](x, y)
    tape.backward(grads={y: kl.ones_like(y)})
    assert x.grad.numpy().astype(float).tolist() == [4096.0, 4096.0]


ADDED = {
    "a name": """
    s = T(0.0)
    for j in range(len(c)):
        s += x[0] * c[j]
    y[0] = s
    """,
    "a name that goes through float32": """
    s = T(0.0)
    for j in range(len(c)):
        s = T(float(s) + float(x[0] * c[j]))
    y[0] = s
    """,
    "a component of a vector": """
    v = vector(length=2, dtype=T)
    for j in range(len(c)):
        v[0] = v[0] + x[0] * c[j]
    y[0] = v[0]
    """,
    "a vector and a matrix": """
    v, m = vector(T(0.0), length=2, dtype=T), matrix(T(0.0), shape=(2, 2), dtype=T)
    for j in range(len(c)):
        m = m + outer(vector(x[0], x[1], length=2, dtype=T), vector(c[j], c[j], length=2, dtype=T))
        v = v + vector(x[0] * c[j], c[j], length=2, dtype=T)
    y[0] = T(0.5) * (v[0] + m[0, 1])
    """,
    "names that are exchanged": """
    a, b = T(0.0), T(0.0)
    j = 0
    while j < len(c):
        a, b = b, a + x[0] * c[j]
        j += 1
    y[0] = a + b
    """,
    "a local array": """
    q = zeros(2, dtype=T)
    for j in range(len(c)):
        q[j % 1] += x[0] * c[j]
    y[0] = q[0]
    """,
    "a field of a struct": """
    p = Pair(T(0.0), T(1.0))
    for j in range(len(c)):
        p.first = p.first + x[0] * p.second * c[j] if x[1] > T(0.0) else p.first
    y[0] = p.first
    """,
    "what a function with rules returns": """
    s = T(0.0)
    for j in range(len(c)):
        s = s + product(x[0], c[j])
    y[0] = s
    """,
}
RULES = """
def product(a: T, b: T):
    return a * b

@func_WAY(product)
RULE

"""
WAYS = {
    "jvp": "def jvp_product(a: T, b: T, da: T, db: T):\n    return a * db + b * da",
    "grad": "def adj_product(a: T, b: T, r: T):\n    adjoint[a] += b * r\n    adjoint[b] += a * r",
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scalar", ["float16", "bfloat16"])
@pytest.mark.parametrize("what", ADDED)
def test_tangents_that_a_loop_adds_up_in_halves_add_up(what: str, scalar: str, way: str) -> None:
    """Of a sum whose values are 0 and 1 in turn, so that nothing is lost forwards."""
    rules = RULES.replace("WAY", way).replace("RULE", WAYS[way])
    text = f"{rules}class Pair:\n    first: T\n    second: T\n\n"
    text += f"def k(x: array[T], c: array[T], y: array[T]):{ADDED[what]}"
    kernel, dtype = kl.compile(re.sub(r"\bT\b", scalar, text).rstrip(" "))["k"], getattr(kl, scalar)

    def total(c: Any) -> Any:
        y = kl.zeros(1, dtype=dtype)
        kernel[1](kl.ones(2, dtype=dtype), c, y)
        return y

    c, ones = kl.array(np.tile([1.0, -1.0], 2048), dtype=dtype), kl.ones(4096, dtype=dtype)
    value, slope = kl.func.jvp(total, (c,), (ones,))
    assert (float(value[0]), float(slope[0])) == (0.0, 4096.0)
    assert kl.func.vjp(total, c)[1](kl.ones(1, dtype=dtype))[0].numpy().astype(float).sum() == 4096.0


@pytest.mark.parametrize("dtype", [kl.float16, kl.bfloat16])
def test_sums_products_and_scans_of_halves_round_once(dtype: Any) -> None:
    x = kl.ones(4096, dtype=dtype, requires_grad=True)
    with kl.Tape() as tape:
        y = kl.zeros(4096, dtype=dtype, requires_grad=True)
        kl.utils.array_scan(x, y)
    tape.backward(grads={y: kl.ones_like(y)})
    found = [
        x.sum(),
        x @ x,
        x.reshape(1, 4096) @ x,
        x.reshape(4096, 1).sum(axis=0),
        y[4095:],
        x.grad[0:1],
    ]
    assert [one.numpy().astype(float).item() for one in found] == [4096.0] * 6


IN_PLACE = {
    "an element that no thread writes": "y[i] = x[2] * x[0]\n    if i == 0:\n        x[1] = x[0]",
    "an element that an index picks": "y[i] = x[int(x[1])] * x[2]\n    if i == 0:\n        x[1] = x[1]",
    "an element in a loop of one thread": """
    if i == 0:
        x[1] = x[0]
        for j in range(len(y)):
            y[j] = x[1] * x[2]
            x[0] = y[j]
    """,
    "a part of the array": """
    if i == 0:
        for j in range(len(y)):
            p = x[0:3]
            p[1] = p[0] * p[2]
            y[j] = p[1]
    """,
}


@pytest.mark.parametrize("scalar", ["float16", "bfloat16"])
@pytest.mark.parametrize("what", IN_PLACE)
def test_what_is_read_of_an_array_that_is_written_adds_up(
    what: str, scalar: str, recwarn: pytest.WarningsRecorder
) -> None:
    """By tape, by transform, in lanes, and the derivative of that."""
    text = f"def k(x: array[T], y: array[T]):\n    i = tid()\n    {IN_PLACE[what]}"
    kernel, dtype = kl.compile(re.sub(r"\bT\b|\bT(?=])", scalar, text).rstrip(" "))["k"], getattr(kl, scalar)

    def f(w: Any) -> Any:
        x, y = kl.clone(w), kl.zeros(4096, dtype=dtype, requires_grad=True)
        kernel[4096](x, y)
        return y

    ones, w = kl.ones(4096, dtype=dtype), kl.array([1.0, 0.0, 1.0], dtype=dtype, requires_grad=True)
    with kl.Tape() as tape:
        y = f(w)
    tape.backward(grads={y: ones})

    def pulled(seeds: Any) -> Any:
        return kl.func.vjp(f, w)[1](seeds)[0]

    expected = [4096.0, 0.0, 4096.0]
    assert w.grad.numpy().astype(float).tolist() == expected
    assert kl.func.jvp(pulled, (ones,), (ones,))[1].numpy().astype(float).tolist() == expected
    lanes = kl.func.vmap(pulled)(kl.ones((2, 4096), dtype=dtype))
    assert lanes.numpy().astype(float).tolist() == [expected] * 2
    assert not recwarn


ALONE = {
    "an element that no thread writes": "y[i] = x[2] + x[0]\n    if i == 0:\n        x[1] = x[0]",
    "an element in a loop of one thread": """
    if i == 0:
        x[1] = x[0]
        for j in range(len(y)):
            y[j] = x[1] + x[2]
            x[0] = y[j]
    """,
}


@pytest.mark.parametrize("scalar", ["float16", "bfloat16"])
@pytest.mark.parametrize("what", ALONE)
def test_so_does_that_of_an_adjoint_that_runs_by_itself(what: str, scalar: str) -> None:
    text = f"def k(x: array[T], y: array[T]):\n    i = tid()\n    {ALONE[what]}"
    kernel, dtype = kl.compile(re.sub(r"\bT\b", scalar, text).rstrip(" "))["k"], getattr(kl, scalar)
    x, y = kl.ones(3, dtype=dtype), kl.ones(4096, dtype=dtype)
    x_bar, y_bar = kl.zeros(3, dtype=dtype), kl.ones(4096, dtype=dtype)
    kl.launch(kernel, 4096, [x], [y], adj_inputs=[x_bar], adj_outputs=[y_bar], adjoint=True)
    assert x_bar.numpy().astype(float).tolist() == [4096.0, 0.0, 4096.0]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("scalar", ["float16", "bfloat16"])
def test_so_does_a_jacobian_of_which_each_thread_computes_a_row(scalar: str, sparse: bool) -> None:
    text = """
def k(x: array[T], own: array2d[T], y: array[T]):
    i = tid()
    own[i, 0] = x[i]
    s = float(0.0)
    for j in range(4096):
        s += float(own[i, 0])
        own[i, 1] = T(s)
    y[i] = T(s)
"""
    kernel, dtype = kl.compile(re.sub(r"\bT\b", scalar, text))["k"], getattr(kl, scalar)
    x, own, y = (kl.ones(s, dtype=dtype, requires_grad=True) for s in (2, (2, 2), 2))
    found = kl.autograd.jacobian(kernel, dim=2, inputs=[x], outputs=[own, y], sparse=sparse)[0, 1]
    assert found.numpy().astype(float).tolist() == [[4096.0, 0.0], [0.0, 4096.0]]


@pytest.mark.parametrize(
    ("name", "threads", "is_told"),
    [("written_too", 4000, True), ("written_too", 200, False), ("by_one_thread", 4000, False)],
)
def test_a_sum_that_has_to_be_rounded_at_each_addition_is_told(
    name: str, threads: int, is_told: bool, kernels: dict[str, Any], recwarn: pytest.WarningsRecorder
) -> None:
    """Arguments that share memory: their adjoints stay where they are."""
    shared = kl.ones(threads + 2, dtype=kl.bfloat16, requires_grad=True)
    with kl.Tape() as tape:
        both = kl.clone(shared)
        kernels[name][threads](both[:3], both[2:])
    tape.backward(grads={both: kl.ones_like(both)})
    told = [
        str(each.message) for each in recwarn if "stops growing after some 256 additions" in str(each.message)
    ]
    assert len(told) == is_told and all("y[i] = w[2]" in each for each in told)


def test_so_is_one_of_an_adjoint_that_runs_by_itself() -> None:
    text = "def k(w: array[bfloat16], y: array[bfloat16]):\n    w[1] = w[0]\n    y[tid()] = w[2]"
    both = kl.ones(4002, dtype=kl.bfloat16, requires_grad=True)
    with pytest.warns(kl.KernelWarning, match="stops growing after some 256 additions"):
        kl.launch(kl.compile(text)["k"], 4000, [both[:3], both[2:]], adjoint=True)


@pytest.mark.parametrize(("narrow", "wider"), [("bfloat16", "float32"), ("float32", "float64")])
def test_a_wider_type_is_recommended(narrow: str, wider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"def k(w: array[{narrow}], y: array[{narrow}]):\n    w[1] = w[0]\n    y[tid()] = w[2]"
    both = kl.ones(4002, dtype=getattr(kl, narrow), requires_grad=True)
    monkeypatch.setitem(GROWS_TO, kl.float32, 256)
    with pytest.warns(kl.KernelWarning, match=f"use {wider}, or write to another array"):
        kl.launch(kl.compile(text)["k"], 4000, [both[:3], both[2:]], adjoint=True)


def test_derivatives_of_such_sums_are_right(kernels: dict[str, Any]) -> None:
    f = summed(kernels, "bfloat16", 600)

    def pulled(seed: Any) -> Any:
        return kl.func.vjp(f, kl.ones(1, dtype=kl.bfloat16))[1](seed)[0]

    seeds = kl.ones((600, 2), dtype=kl.bfloat16)
    assert kl.func.jvp(pulled, (seeds,), (seeds,))[1].numpy().astype(float).tolist() == [1200.0]
    assert np.all(
        kl.func.vjp(pulled, seeds)[1](kl.ones(1, dtype=kl.bfloat16))[0].numpy().astype(float) == 1.0
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("float16", "log10(v)"), ("bfloat16", "degrees(v)"), ("float32", "log10(v) - 0.43429448 * v")],
)
def test_a_check_in_float64_knows_the_constants_of_rules_to_all_digits(name: str, value: str) -> None:
    text = f"def k(x: array[{name}], y: array[{name}]):\n    v = x[tid()]\n    y[tid()] = {value}\n"
    dtype = getattr(kl, name)
    x = kl.array([1.0, 2.25, 0.75, 1.5], dtype=dtype, requires_grad=True)
    y = kl.zeros(4, dtype=dtype, requires_grad=True)
    assert kl.autograd.gradcheck(kl.compile(text)["k"], dim=4, inputs=[x], outputs=[y])
