"""Who added to one element of a gradient: the parts add up to it, whatever the tape did."""

from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelab as kl
from kernelab.autodiff.inspect.contributions import Contributions, _Sweep
from tests.strategies.hosts import host_programs
from tests.support.tapes import recorded

KERNELS = kl.compile(
    """def spring(x: array[vec3], rest: float, energy: array[float]):
    i = tid()
    d = length(x[i] - x[i + 1]) - rest
    atomic_add(energy, 0, 0.5 * d * d)

def heights(x: array[vec3], energy: array[float]):
    atomic_add(energy, 0, x[tid()].y * 3.0)

def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def in_place(x: array[float]):
    i = tid()
    x[i] = sin(x[i]) * x[i]

def neighbours(x: array[float], y: array[float], n: int):
    i = tid()
    for k in range(n):
        y[i] += x[(i + k) % n] * x[i]

def raise_y(x: array[vec3]):
    i = tid()
    x[i].y = x[i].y * x[i].x

def total(y: array[float], loss: array[float]):
    atomic_add(loss, 0, y[tid()])

def grid(y: array2d[float], x: array[float]):
    i, j = tid()
    y[i, j] = x[i] * x[j]
"""
)
N = 4


def floats(n: int | tuple[int, ...] = N, dtype: Any = float) -> kl.array:
    shape = (n,) if isinstance(n, int) else n
    values = np.random.default_rng(0).uniform(0.5, 1.5, (*shape, 3) if dtype is kl.vec3 else shape)
    return kl.array(values, dtype=dtype, requires_grad=True)


def number() -> kl.array:
    return kl.zeros(1, dtype=float, requires_grad=True)


def summed(found: Contributions) -> Any:
    return sum((part.value for part in found.parts), np.zeros_like(found.total))


def check(tape: kl.Tape, primal: kl.array, loss: kl.array) -> list[Contributions]:
    """Every element: the parts add up to what backward publishes, and asking changes no gradient."""
    found = [kl.contributions(tape, primal, index, loss) for index in np.ndindex(primal.shape)]
    tape.backward(loss)
    assert primal.grad is not None
    for index, one in zip(np.ndindex(primal.shape), found, strict=True):
        gradient = primal.grad.numpy()[index]
        np.testing.assert_allclose(one.total, gradient, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(summed(one), gradient, rtol=1e-5, atol=1e-6)
    return found


def told(found: Contributions) -> list[tuple[Any, Any, Any]]:
    return [(p.record, p.thread, None if p.line is None else p.line.line) for p in found.parts]


@pytest.fixture
def springs() -> tuple[kl.Tape, kl.array, kl.array]:
    x, energy = floats(N + 1, kl.vec3), number()
    with kl.Tape() as tape:
        kl.launch(KERNELS["spring"], dim=N, inputs=[x, 0.25], outputs=[energy])
        kl.launch(KERNELS["heights"], dim=N + 1, inputs=[x], outputs=[energy])
    return tape, x, energy


def test_launches_threads_and_lines_are_named_in_the_order_of_the_sweep(
    springs: tuple[kl.Tape, kl.array, kl.array],
) -> None:
    found = check(*springs)
    assert told(found[0]) == [(2, (0,), 7), (1, (0,), 3)]
    assert sorted(told(found[2])) == [(1, (1,), 3), (1, (2,), 3), (2, (2,), 7)]
    np.testing.assert_array_equal(found[2].parts[0].value, [0, 3, 0])


def test_as_text_the_largest_part_is_first(springs: tuple[kl.Tape, kl.array, kl.array]) -> None:
    tape, x, energy = springs
    lines = str(kl.contributions(tape, x, 2, energy)).splitlines()
    assert lines[1] == "3 parts, by 3 threads of 2 launches"
    assert "atomic_add(energy, 0, x[tid()].y * 3.0)" in lines[5]
    assert "2 heights test_contributions.py" in lines[5]


def test_gradients_stay_as_they_are(springs: tuple[kl.Tape, kl.array, kl.array]) -> None:
    tape, x, energy = springs
    tape.backward(energy)
    assert x.grad is not None
    before = x.grad.numpy().copy()
    first = kl.contributions(tape, x, 1, energy)
    np.testing.assert_array_equal(x.grad.numpy(), before)
    np.testing.assert_allclose(first.total, before[1], rtol=1e-6)


def test_a_loop_of_one_thread_is_one_part() -> None:
    x, y, loss = floats(), kl.zeros(N, dtype=float, requires_grad=True), number()
    with kl.Tape() as tape:
        kl.launch(KERNELS["neighbours"], dim=N, inputs=[x, y, N])
        kl.launch(KERNELS["total"], dim=N, inputs=[y], outputs=[loss])
    found = check(tape, x, loss)
    assert {thread for _, thread, _ in told(found[1])} == {(0,), (1,), (2,), (3,)}
    assert len(found[1].parts) == N


def test_of_a_value_that_is_changed_in_place_only_what_reached_that_value_counts() -> None:
    x, y, loss = floats(), kl.zeros(N, dtype=float, requires_grad=True), number()
    with kl.Tape() as tape:
        kl.launch(KERNELS["square"], dim=N, inputs=[x], outputs=[y])
        kl.launch(KERNELS["in_place"], dim=N, inputs=[y])
        kl.launch(KERNELS["in_place"], dim=N, inputs=[y])
        kl.launch(KERNELS["total"], dim=N, inputs=[y], outputs=[loss])
    assert {record for one in check(tape, y, loss) for record, _, _ in told(one)} == {2}
    tape.zero()
    assert {record for one in check(tape, x, loss) for record, _, _ in told(one)} == {1}


def test_nothing_is_kept_of_values_that_are_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, counts = _Sweep.keep, list[int]()

    def keep(self: Any, *rest: Any) -> None:
        kept(self, *rest)
        counts.append(len(self.parts))

    monkeypatch.setattr(_Sweep, "keep", keep)
    x = kl.ones(3, requires_grad=True)
    with kl.Tape() as tape:
        for _ in range(20):
            x *= 0.5
        loss = x.sum()
    assert [part.value.tolist() for part in kl.contributions(tape, x, 0, loss).parts] == [0.5**20]
    assert len(counts) == 22
    assert max(counts) <= 2


def test_one_component_that_is_overwritten_leaves_the_parts_of_the_others() -> None:
    x, energy = floats(N, kl.vec3), number()
    with kl.Tape() as tape:
        kl.launch(KERNELS["raise_y"], dim=N, inputs=[x])
        kl.launch(KERNELS["heights"], dim=N, inputs=[x], outputs=[energy])
        kl.launch(KERNELS["spring"], dim=N - 1, inputs=[x, 0.1], outputs=[energy])
    check(tape, x, energy)


def test_views_copies_and_grids_add_up_too() -> None:
    x, y = floats(N + 2), kl.zeros(N, dtype=float, requires_grad=True)
    table, loss = kl.zeros((N, N), dtype=float, requires_grad=True), number()
    with kl.Tape() as tape:
        kl.copy(y, x[1 : N + 1])
        kl.launch(KERNELS["in_place"], dim=N, inputs=[y])
        kl.launch(KERNELS["grid"], dim=(N, N), inputs=[table, x[2:]])
        kl.launch(KERNELS["total"], dim=N, inputs=[table[1]], outputs=[loss])
        kl.launch(KERNELS["total"], dim=N, inputs=[y], outputs=[loss])
    found = check(tape, x, loss)
    assert (1, None, None) in told(found[1])
    assert {(3, (1, j)) for j in range(N)} <= {(record, thread) for record, thread, _ in told(found[3])}


@pytest.mark.parametrize("how", ["assignment", "copy"])
def test_a_copy_within_an_array_leaves_the_parts_of_what_it_reads(how: str) -> None:
    x, y, z, loss = floats(), kl.zeros(N, dtype=float, requires_grad=True), floats(), number()
    with kl.Tape() as tape:
        kl.launch(KERNELS["square"], dim=N, inputs=[x], outputs=[y])
        if how == "copy":
            kl.copy(y, y, dest_offset=0, src_offset=2, count=2)
        else:
            y[:2] = y[2:]
        kl.launch(KERNELS["square"], dim=N, inputs=[y], outputs=[z])
        kl.launch(KERNELS["total"], dim=N, inputs=[z], outputs=[loss])
    found = check(tape, y, loss)
    assert [told(one) for one in found[:2]] == [[(3, (0,), 11)], [(3, (1,), 11)]]
    assert [told(one) for one in found[2:]] == [
        [(3, (2,), 11), (2, None, None)],
        [(3, (3,), 11), (2, None, None)],
    ]


def test_a_checkpoint_is_one_part() -> None:
    x, y, loss = floats(), kl.zeros(N, dtype=float, requires_grad=True), number()

    def run(x: kl.array, y: kl.array) -> None:
        kl.launch(KERNELS["square"], dim=N, inputs=[x], outputs=[y])

    with kl.Tape() as tape:
        kl.checkpoint(run, x, y)
        kl.launch(KERNELS["total"], dim=N, inputs=[y], outputs=[loss])
    found = check(tape, x, loss)
    assert told(found[2]) == [(1, None, None)]


def test_a_seed_is_a_part_of_what_nothing_reads() -> None:
    x, y = floats(), kl.zeros(N, dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(KERNELS["square"], dim=N, inputs=[x], outputs=[y])
    found = kl.contributions(tape, y, 1, grads={y: np.arange(4.0)})
    assert told(found) == [(None, None, None)]
    assert float(found.total) == 1.0
    nothing = kl.contributions(tape, x, 0, grads={y: np.arange(4.0)})
    assert "nothing was added to it" in str(nothing)
    assert [zero.reason for zero in nothing.zeros] == ["the cotangent of its result is 0"]


@pytest.mark.parametrize(
    ("index", "error"),
    [(9, "no element [9]"), ((0, 0), "no element [0, 0]")],
)
def test_an_index_outside_is_refused(
    springs: tuple[kl.Tape, kl.array, kl.array], index: Any, error: str
) -> None:
    tape, x, energy = springs
    with pytest.raises(kl.LaunchError, match="there is") as raised:
        kl.contributions(tape, x, index, energy)
    assert error in str(raised.value)


def test_what_cannot_be_taken_apart_is_refused(springs: tuple[kl.Tape, kl.array, kl.array]) -> None:
    tape, x, energy = springs
    with pytest.raises(kl.TapeError, match="say what the gradient is of"):
        kl.contributions(tape, x, 0)
    with pytest.raises(kl.TapeError, match="does not require one"):
        kl.contributions(tape, kl.zeros(3), 0, energy)
    half = kl.zeros(3, dtype=kl.float16, requires_grad=True)
    with pytest.raises(kl.TapeError, match="halves are added up over launches"):
        kl.contributions(tape, half, 0, energy)
    other = kl.zeros(1, requires_grad=True)
    with pytest.raises(kl.TapeError):
        kl.contributions(tape, x, 0, other)


@pytest.mark.long
def test_parts_add_up_whatever_a_program_overwrites_and_every_launch_tells_its_threads() -> None:
    threads: set[Any] = set()

    @hypothesis.seed(3)
    @settings(max_examples=40, deadline=None, database=None)
    @given(host_programs(), st.integers(0, 9))
    def check(program: tuple[str, str], seed: int) -> None:
        tape, seeds, leaves = recorded(program[0], seed)
        tape.backward(grads=seeds)
        for target in (*seeds, *leaves):
            assert target.grad is not None
            for index in np.ndindex(target.shape):
                found = kl.contributions(tape, target, index, grads=seeds)
                np.testing.assert_allclose(found.total, target.grad.numpy()[index], rtol=1e-9, atol=1e-12)
                np.testing.assert_allclose(summed(found), found.total, rtol=1e-9, atol=1e-12)
                launches = [part for part in found.parts if part.title.startswith("the launch")]
                assert all(part.thread is not None for part in launches)
                threads.update(part.thread for part in launches)

    check()
    assert len(threads) >= 3


LINES = kl.compile(
    """def lines(x: array[float64], y: array[float64]):
    i = tid()
    a = sin(x[i])
    b = x[i] * x[i]
    for k in range(2):
        b += 3.0 * x[i]
    if x[i] > 0.0:
        a += cos(x[i])
    y[i] = a + b * 2.0

def changed(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = sin(x[i])
    x[i] = x[i] * 2.0
    y[i] += x[i] * x[i]
"""
)


@pytest.mark.parametrize("value", [0.7, -0.7])
def test_what_lines_contribute_through_one_element_is_told_apart(value: float) -> None:
    x = kl.array([1.3, value], dtype=kl.float64, requires_grad=True)
    y = kl.zeros(2, dtype=kl.float64, requires_grad=True)
    with kl.Tape() as tape:
        LINES["lines"][2](x, y)
    found = kl.contributions(tape, x, 1, grads={y: np.ones(2)})
    parts = {part.line.line: float(part.value) for part in found.parts if part.line is not None}
    expected = {3: np.cos(value), 4: 4.0 * value, 6: 12.0} | ({8: -np.sin(value)} if value > 0.0 else {})
    assert parts == pytest.approx(expected)
    assert float(found.total) == pytest.approx(sum(expected.values()))

    trace = kl.trace(LINES["lines"], 1, dim=2, inputs=[x], outputs=[y])
    told: dict[int, float] = {}
    for seen in trace.adjoint:
        if seen.name.startswith("x_bar") and seen.sign == "+=":
            told[seen.span.line] = told.get(seen.span.line, 0.0) + float(seen.value)
    assert told == pytest.approx(expected)


def test_lines_that_change_the_element_between_reads_still_add_up() -> None:
    x = kl.array([1.3, 0.7], dtype=kl.float64, requires_grad=True)
    y = kl.zeros(2, dtype=kl.float64, requires_grad=True)
    with kl.Tape() as tape:
        LINES["changed"][2](x, y)
    found = kl.contributions(tape, x, 1, grads={y: np.ones(2)})
    assert float(found.total) == pytest.approx(np.cos(0.7) + 8.0 * 0.7)
    assert float(sum(part.value for part in found.parts)) == pytest.approx(float(found.total))


USES = kl.compile(
    """@func
def steep(v: float64):
    return v * v

@func_grad(steep, check=False)
def adj_steep(v: float64, adj_ret: float64):
    adjoint[v] += 1000.0 * adj_ret

@func
def wave(v: float64):
    return sin(v)

def named(x: array[float64], y: array[float64]):
    i = tid()
    s = x[i]
    a = wave(s)
    b = steep(s)
    y[i] = a + b + wave(s)

def repeated(x: array[float64], y: array[float64]):
    i = tid()
    a = wave(x[i])
    b = steep(x[i])
    y[i] = a + b + wave(x[i])

def changed(x: array[float64], y: array[float64]):
    i = tid()
    a = wave(x[i])
    b = steep(x[i])
    y[i] = a + b + wave(x[i])
    x[i] = 0.0
"""
)


@pytest.mark.parametrize(("name", "first"), [("named", 16), ("repeated", 22), ("changed", 28)])
def test_every_use_of_an_element_is_booked_on_its_own_line(name: str, first: int) -> None:
    value, wave = 0.7, float(np.cos(0.7))
    x = kl.array([value], dtype=kl.float64, requires_grad=True)
    y = kl.zeros(1, dtype=kl.float64, requires_grad=True)
    trace = kl.trace(USES[name], 0, dim=1, inputs=[x], outputs=[y])
    with kl.Tape() as tape:
        USES[name][1](x, y)
    found = kl.contributions(tape, x, 0, grads={y: np.ones(1)})
    parts = {part.line.line: float(part.value) for part in found.parts if part.line is not None}
    assert parts == pytest.approx({first: wave, first + 1: 1000.0, first + 2: wave})

    target = "s_bar" if name == "named" else "x_bar[0]"
    shares = [(seen.span.line, float(seen.value)) for seen in trace.adjoint if seen.sign == "+="]
    told = [seen.span.line for seen in trace.adjoint if (seen.name, seen.sign) == (target, "+=")]
    assert told == [first + 2, first + 1, first]
    assert (first + 1, 1000.0) in shares


def test_a_field_of_a_struct_is_named() -> None:
    text = "@kl.struct\nclass S:\n    k: float\n    m: vec2\n\n"
    text += "def g(s: S, x: float):\n    return s.k * x * s.m.y\n"
    names = kl.compile(text, {"kl": kl})
    s = names["S"]()
    s.k, s.m = 2.0, kl.vec2(0.5, 3.0)
    assert kl.contributions(names["g"], s, 4.0, field="k").total == 12.0
    np.testing.assert_array_equal(kl.contributions(names["g"], s, 4.0, field="m").total, [0.0, 8.0])
    with pytest.raises(kl.TapeError, match=r"argument 0 is a struct: name a field, field='k' or 'm'"):
        kl.contributions(names["g"], s, 4.0)


def test_an_array_of_a_struct_is_named() -> None:
    text = "@kl.struct\nclass S:\n    k: array[float]\n\n"
    text += "def h(s: S, y: array[float]):\n    i = tid()\n    y[i] = s.k[i] * s.k[0]\n"
    names = kl.compile(text, {"kl": kl})
    s = names["S"]()
    s.k = kl.array([1.0, 2.0, 3.0], dtype=float)

    def f(s: Any) -> Any:
        y = kl.zeros(3, dtype=float)
        names["h"][3](s, y)
        return y

    found = kl.contributions(f, s, field="k", index=0)
    assert (found.total, len(found.parts)) == (7.0, 3)
    with pytest.raises(kl.TapeError, match="name an array of the struct"):
        kl.contributions(f, s)


def reasons(found: Contributions) -> list[tuple[int | None, str]]:
    """Why nothing was added, each reason with its record."""
    assert not found.parts
    return [(zero.record, zero.reason) for zero in found.zeros]


def test_the_record_at_which_the_values_of_an_array_end_is_named() -> None:
    x, other, loss = floats(), floats(), number()
    y, z = (kl.zeros(N, requires_grad=True) for _ in range(2))
    with kl.Tape() as tape:
        kl.launch(KERNELS["square"], dim=N, inputs=[x], outputs=[y])
        kl.launch(KERNELS["square"], dim=N, inputs=[y], outputs=[z])
        kl.launch(KERNELS["total"], dim=N, inputs=[other], outputs=[loss])
    assert reasons(kl.contributions(tape, x, 0, loss)) == [
        (2, "nothing that leads to the loss reads its `y`")
    ]


def test_where_the_host_took_the_values_of_an_array_is_named() -> None:
    x, y, loss = floats(), kl.zeros(N, requires_grad=True), number()
    with kl.Tape() as tape:
        factor = float(x.numpy()[0])
        y = kl.map(lambda v: v * factor, floats())
        kl.launch(KERNELS["total"], dim=N, inputs=[y], outputs=[loss])
    found = kl.contributions(tape, x, 0, loss)
    assert reasons(found) == [(None, "the host took its values"), (None, "nothing on the tape reads it")]
    assert found.zeros[0].line is not None
    assert "x.numpy()" in found.zeros[0].line.line_text
    assert "x.numpy()" in str(found)


def test_an_element_that_no_thread_reads_is_told() -> None:
    x, y, loss = floats(), kl.zeros(N, requires_grad=True), number()
    with kl.Tape() as tape:
        kl.launch(KERNELS["square"], dim=2, inputs=[x], outputs=[y])
        kl.launch(KERNELS["total"], dim=N, inputs=[y], outputs=[loss])
    assert reasons(kl.contributions(tape, x, 3, loss)) == [(1, "none of its threads reads the element")]


CUT: dict[str, Callable[[Any], Any]] = {
    "a number": lambda x: (x * x[0]).sum(),
    "an array": lambda x: (kl.array(np.sin(x.numpy())) * x).sum(),
    "an item": lambda x: x.sum() * x.max().item(),
}


@pytest.mark.parametrize("name", CUT)
def test_a_part_that_is_lost_on_the_host_is_told_beside_the_others(name: str) -> None:
    with pytest.warns(kl.KernelWarning, match="no gradient flows"):
        kl.contributions(CUT[name], kl.array([0.5, 0.3]), index=0)
    x = kl.array([0.5, 0.3], requires_grad=True)
    with kl.Tape() as tape:
        loss = CUT[name](x)
    with pytest.warns(kl.KernelWarning, match="no gradient flows"):
        kl.contributions(tape, x, 0, loss)
