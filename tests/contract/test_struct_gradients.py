"""Gradients of structs: by fields of arrays of structs, arrays in structs, numbers that arrays stand for."""

import operator
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import KernelError, KernelWarning, TapeError

TEXT = """
class Mass:
    pos: vec2
    weight: float64
    id: int

class Body:
    a: Mass
    drag: float = 0.5
    flag: int = 7

class Field:
    scale: float
    offset: vec2
    values: array[float]
    bodies: array[Body]

def fall(bodies: array[Body], force: array[vec2], out: array[float]):
    i = tid()
    b = bodies[i]
    for k in range(3):
        if b.a.pos.x > 0.5:
            b.a.pos = b.a.pos - b.drag * b.a.pos * b.a.pos.y
        else:
            b.a.pos.y += float(b.a.weight) * force[i].x
            b.drag = b.drag * b.drag
    bodies[i] = b
    bodies[i].a.pos.x *= bodies[i].a.pos.y
    out[i] = bodies[i].a.pos.x * bodies[i].drag

def square(ms: array[Mass], out: array[float]):
    i = tid()
    out[i] = ms[i].pos.x * ms[i].pos.y + ms[i].pos.x ** 2

def swap(ms: array[Mass]):
    i = tid()
    x = ms[i].pos.x
    ms[i].pos.x = ms[i].pos.y * ms[i].pos.y
    ms[i].pos.y = x
    ms[i].id += 1

def couple(ms: array[Mass], weights: array[float64]):
    i = tid()
    ms[i].pos = ms[i].pos * float(weights[i])

def sample(f: Field, out: array[float]):
    i = tid()
    f.bodies[i].a.pos += f.offset * f.scale
    out[i] = f.values[i] * f.scale + f.bodies[i].a.pos.x * f.bodies[i].drag * f.values[i]
"""


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return kl.compile(TEXT)


def masses(made: dict[str, Any], n: int = 3) -> Any:
    rng = np.random.default_rng(n)
    ms = kl.zeros(n, dtype=made["Mass"], requires_grad=True)
    ms["pos"] = rng.normal(size=(n, 2))
    ms["weight"] = rng.uniform(1, 2, n)
    ms["id"] = np.arange(n)
    return ms


def bodies(made: dict[str, Any], n: int = 3) -> Any:
    bs = kl.zeros(n, dtype=made["Body"], requires_grad=True)
    bs["a"] = masses(made, n)
    bs["drag"] = np.linspace(0.3, 0.9, n)
    bs["flag"].fill_(7)
    return bs


def test_gradcheck_takes_arrays_of_structs_and_structs(made: dict[str, Any]) -> None:
    force = kl.array(np.ones((4, 2)), dtype=kl.vec2, requires_grad=True)
    report = kl.autograd.gradcheck(
        made["fall"], 4, [bodies(made, 4), force], [kl.zeros(4)], show_summary=False
    )
    assert {pair.input for pair in report.pairs} == {
        "bodies.a.pos",
        "bodies.a.weight",
        "bodies.drag",
        "force",
    }
    field = made["Field"](kl.array([1.5], requires_grad=True), (0.5, 0.25), bodies=bodies(made, 3))
    field.values = kl.array([1.0, 2.0, 3.0], requires_grad=True)
    report = kl.autograd.gradcheck(made["sample"], 3, [field], [kl.zeros(3)], show_summary=False)
    assert {pair.input for pair in report.pairs} >= {"f.scale", "f.values", "f.bodies.drag", "f.bodies.a.pos"}


def test_the_gradient_of_an_array_of_structs_is_one(made: dict[str, Any]) -> None:
    ms, out = masses(made), kl.zeros(3, requires_grad=True)
    with kl.Tape() as tape:
        made["square"][3](ms, out)
    tape.backward(grads={out: np.ones(3)})
    x, y = ms["pos"].numpy().T
    np.testing.assert_allclose(ms.grad.numpy()["pos"], np.stack([y + 2 * x, x], 1), rtol=1e-6)
    np.testing.assert_array_equal(ms["pos"].grad.numpy(), ms.grad["pos"].numpy())
    assert tape.gradients[ms] is ms.grad
    assert ms.grad[0].pos.tolist() == ms.grad.numpy()["pos"][0].tolist()
    tape.backward(grads={out: np.ones(3)})
    np.testing.assert_allclose(ms.grad.numpy()["pos"], 2 * np.stack([y + 2 * x, x], 1), rtol=1e-6)
    tape.zero()
    assert not ms.grad.numpy()["pos"].any()


def test_integer_fields_are_not_touched(made: dict[str, Any]) -> None:
    ms, out = masses(made), kl.zeros(3, requires_grad=True)
    with kl.Tape() as tape:
        made["swap"][3](ms)
        made["square"][3](ms, out)
    tape.backward(grads={out: np.ones(3)})
    assert ms["id"].list() == [1, 2, 3]
    assert ms.grad["id"].list() == [0, 0, 0]


def test_in_place_changes_of_fields_are_differentiated_through(made: dict[str, Any]) -> None:
    ms, out = masses(made), kl.zeros(3, requires_grad=True)
    x, y = ms["pos"].numpy().T.copy()
    with kl.Tape() as tape:
        made["swap"][3](ms)
        made["square"][3](ms, out)
    tape.backward(grads={out: np.ones(3)})
    # out = y**2 x + y**4
    np.testing.assert_allclose(ms.grad.numpy()["pos"], np.stack([y**2, 2 * x * y + 4 * y**3], 1), rtol=1e-5)


def test_clones_copies_and_overwrites_of_structs_are_recorded(made: dict[str, Any]) -> None:
    ms, out = masses(made), kl.zeros(3, requires_grad=True)
    x, y = ms["pos"].numpy().T.copy()
    with kl.Tape() as tape:
        other = kl.clone(ms)
        made["swap"][3](other)
        third = kl.zeros_like(ms)
        kl.copy(third, other)
        made["square"][3](third, out)
        third.fill_(made["Mass"]())
    tape.backward(grads={out: np.ones(3)})
    np.testing.assert_allclose(ms.grad.numpy()["pos"], np.stack([y**2, 2 * x * y + 4 * y**3], 1), rtol=1e-5)
    assert tape.saved_bytes > 0


def test_the_cotangent_may_be_an_array_of_structs(made: dict[str, Any]) -> None:
    ms = masses(made)
    y = ms["pos"].numpy()[:, 1].copy()
    with kl.Tape() as tape:
        made["swap"][3](ms)
    seed = kl.zeros(3, dtype=made["Mass"])
    seed["pos"] = np.array([[1, 10], [1, 10], [1, 10]])
    tape.backward(grads={ms: seed})
    np.testing.assert_allclose(ms.grad.numpy()["pos"], np.stack([np.full(3, 10), 2 * y], 1), rtol=1e-6)
    with pytest.raises(KernelError, match="the cotangent of"):
        tape.backward(grads={ms: kl.ones(3)})


def test_arrays_in_structs_and_numbers_by_arrays_have_gradients(made: dict[str, Any]) -> None:
    scale = kl.array([2.0], requires_grad=True)
    values = kl.array([1.0, 2.0, 3.0], requires_grad=True)
    field = made["Field"](scale, (0.5, 0), values, bodies(made))
    start = field.bodies["a"]["pos"].numpy()[:, 0].copy()
    drag = field.bodies["drag"].numpy().copy()
    out = kl.zeros(3, requires_grad=True)
    with kl.Tape() as tape:
        made["sample"][3](field, out)
    tape.backward(grads={out: np.ones(3)})
    v = np.array([1.0, 2, 3])
    np.testing.assert_allclose(values.grad.numpy(), 2 + (start + 1.0) * drag, rtol=1e-5)
    np.testing.assert_allclose(scale.grad.item(), (v + 0.5 * drag * v).sum(), rtol=1e-5)
    gradient = tape.gradients[field]
    assert gradient.values is values.grad
    assert gradient.scale is scale.grad
    np.testing.assert_allclose(gradient.bodies["drag"].numpy(), (start + 1.0) * v, rtol=1e-5)
    with pytest.raises(TapeError, match="field offset of this Field has no gradient"):
        _ = gradient.offset


def test_the_leaves_of_one_array_share_no_bytes(made: dict[str, Any]) -> None:
    bs = bodies(made, 5)
    leaves = [*bs.leaves, *bs[::2].leaves]
    for k, one in enumerate(leaves):
        for j, other in enumerate(leaves):
            assert one.overlaps(other) == (k % 5 == j % 5), (k, j)
    table = bs[:4].reshape(2, 2)
    assert not table.transpose().leaves[0].overlaps(table.leaves[1])
    assert table.transpose().leaves[0].overlaps(table.leaves[0])


def test_leaves_of_one_array_are_no_group_and_two_arguments_over_one_memory_are(made: dict[str, Any]) -> None:
    ms = masses(made)
    assert made["couple"].program.sharing([*ms.leaves, ms["weight"]]) == ()
    both = kl.compile("class Mass:\n    pos: vec2\n    weight: float64\n    id: int\n" + BOTH)["both"]
    (group,) = both.program.sharing([*ms.leaves, *ms.leaves])
    assert both.program.names(group) == ("one.pos", "two.pos")


BOTH = """
def both(one: array[Mass], two: array[Mass]):
    i = tid()
    one[i].pos = two[i].pos * 2.0
"""


def test_one_field_passed_beside_its_array_counts_by_its_bytes(made: dict[str, Any]) -> None:
    ms = masses(made)
    start, weight = ms["pos"].numpy().copy(), ms["weight"].numpy().copy()
    with kl.Tape(overwrite="error") as tape:
        made["couple"][3](ms, ms["weight"])
    seed = kl.zeros(3, dtype=made["Mass"])
    seed["pos"] = np.ones((3, 2))
    tape.backward(grads={ms: seed})
    np.testing.assert_allclose(ms.grad.numpy()["pos"], np.stack([weight, weight], 1), rtol=1e-6)
    np.testing.assert_allclose(ms.grad.numpy()["weight"], start.sum(1), rtol=1e-6)


def test_overwriting_another_field_is_no_hazard_and_the_same_one_is(made: dict[str, Any]) -> None:
    ms, out = masses(made), kl.zeros(3, requires_grad=True)
    with kl.Tape(overwrite="error"):
        made["square"][3](ms, out)
        ms["weight"].fill_(3)
        ms["id"].fill_(3)
        with pytest.raises(TapeError, match="overwritten here"):
            ms["pos"].fill_(3)
        with pytest.raises(TapeError, match="overwritten here"):
            ms[1] = made["Mass"]()


def test_overwritten_fields_are_saved(made: dict[str, Any]) -> None:
    ms, out = masses(made), kl.zeros(3, requires_grad=True)
    x, y = ms["pos"].numpy().T.copy()
    with kl.Tape() as tape:
        made["square"][3](ms, out)
        ms.zero_()
    tape.backward(grads={out: np.ones(3)})
    np.testing.assert_allclose(ms.grad.numpy()["pos"], np.stack([y + 2 * x, x], 1), rtol=1e-6)
    assert 3 * 8 <= tape.saved_bytes <= 3 * ms.numpy().itemsize


def test_a_change_of_a_field_that_the_tape_did_not_see_is_noticed(made: dict[str, Any]) -> None:
    ms, out = masses(made), kl.zeros(3, requires_grad=True)
    with kl.Tape() as tape:
        made["swap"][3](ms)
        kl.launch(made["swap"], 3, [ms], record_tape=False)
        made["square"][3](ms, out)
    with pytest.raises(TapeError, match="the tape did not see how"):
        tape.backward(grads={out: np.ones(3)})


def test_a_cotangent_of_a_field_that_no_launch_wrote_is_refused_by_name() -> None:
    cell = kl.compile(
        "class Pair:\n    a: float\n    b: float\n\n"
        "def first(x: array[float], ps: array[Pair]):\n    i = tid()\n    ps[i].a = x[i]\n"
    )
    x, ps = kl.ones(2, requires_grad=True), kl.zeros(2, dtype=cell["Pair"], requires_grad=True)
    with kl.Tape() as tape:
        cell["first"][2](x, ps)
    pair = cell["Pair"](3.0, 0.0)
    tape.backward(grads={ps: kl.array([pair, pair], dtype=cell["Pair"])})
    assert x.grad.list() == [3.0, 3.0]
    pair.b = 1.0
    with pytest.raises(TapeError, match="field b of `ps` has a cotangent, and this tape did not see how"):
        tape.backward(grads={ps: kl.array([pair, pair], dtype=cell["Pair"])})


def test_only_arrays_of_structs_with_floats_require_gradients() -> None:
    Count = kl.compile("class Count:\n    n: int\n    b: bool\n")["Count"]
    with pytest.warns(KernelWarning, match="an array of Count has no gradient"):
        counts = kl.zeros(2, dtype=Count, requires_grad=True)
    assert not counts.requires_grad


def test_the_adjoint_alone_takes_structs(made: dict[str, Any]) -> None:
    ms, out = masses(made), kl.zeros(3, requires_grad=True)
    out.grad.fill_(1)
    bar = kl.zeros(3, dtype=made["Mass"])
    kl.launch(made["square"], 3, [ms], [out], adj_inputs=[bar], adj_outputs=[out.grad], adjoint=True)
    x, y = ms["pos"].numpy().T
    np.testing.assert_allclose(bar.numpy()["pos"], np.stack([y + 2 * x, x], 1), rtol=1e-6)


# ------------------------------------------------------------------------------------------ requires_grad

FIELDS = """
class Inner:
    w: float

class Material:
    k: float
    v: vec3
    n: int
    inner: Inner

def energies(s: Material, x: array[float], y: array[float]):
    i = tid()
    y[i] = s.k * x[i] + dot(s.v, s.v) * float(s.n) + s.inner.w * s.inner.w

def norms(v: vec3, m: mat22, y: array[float]):
    y[tid()] = dot(v, v) + m[0, 1] * m[0, 1]
"""


@pytest.fixture(scope="module")
def fields() -> dict[str, Any]:
    return kl.compile(FIELDS)


def material(fields: dict[str, Any], **values: Any) -> Any:
    s = fields["Material"](k=2.0, v=(1, 2, 3), n=2, **values)
    s.inner.w = 3.0
    s.requires_grad = True
    return s


def energies(fields: dict[str, Any], s: Any) -> tuple[kl.Tape, kl.array]:
    x, y = kl.array([1.0, 2.0, 3.0], dtype=float, requires_grad=True), kl.zeros(3, requires_grad=True)
    with kl.Tape() as tape:
        fields["energies"][3](s, x, y)
    tape.backward(grads={y: [1, 1, 1]})
    return tape, y


def test_a_struct_that_requires_gradients_gets_those_of_its_numbers_and_vectors(
    fields: dict[str, Any],
) -> None:
    s = material(fields)
    assert s.requires_grad and not fields["Material"]().requires_grad
    tape, y = energies(fields, s)
    assert y.list() == [39, 41, 43]
    for gradient in (s.grad, tape.gradients[s]):
        assert gradient.k == 6 and gradient.v.tolist() == [12, 24, 36]
        assert gradient.n == 0 and gradient.inner.w == 18
    tape.zero()
    assert s.grad.k == 0 and s.grad.v.tolist() == [0, 0, 0]


PLAIN = """
class Inner:
    w: float
    h: vec2

class Plain:
    a: float64
    n: int
    v: vec3
    m: mat22
    inner: Inner
    x: array[float64]
    y: array[float64]

def scaled(p: Plain, out: array[float64]):
    i = tid()
    s = p.v[0] + p.m[0, 1] + p.inner.w + p.inner.h[1]
    out[i] = p.a * p.x[i] * p.x[i] * float64(p.n) + float64(s)
"""
FLOATS = ["a", "v", "m", "inner.w", "inner.h"]


def plain(requires_grad: bool = False) -> tuple[Any, kl.Tape, Any]:
    made = kl.compile(PLAIN)
    x, out = (kl.ones(2, kl.float64, requires_grad=True) for _ in range(2))
    s = made["Plain"](a=2.0, n=3, x=x)
    s.requires_grad = requires_grad
    with kl.Tape() as tape:
        made["scaled"][2](s, out)
    tape.backward(grads={out: np.ones(2)})
    return s, tape, made


@pytest.mark.parametrize("field", FLOATS)
def test_the_gradient_of_a_field_that_requires_none_says_how_to_ask_for_it(field: str) -> None:
    s, tape, _ = plain()
    for gradient in (tape.gradients[s], s.grad, s.grad.copy()):
        assert gradient.x.list() == [12, 12] and gradient.y is None and gradient.n == 0
        with pytest.raises(TapeError, match=r"(?s)has no gradient.*s.requires_grad = True"):
            operator.attrgetter(field)(gradient)
    assert np.sum(np.array(operator.attrgetter(field)(plain(True)[0].grad))) == (6 if field == "a" else 2)


def test_a_kernel_that_takes_a_gradient_which_is_none_reads_nan() -> None:
    s, _, made = plain()
    out = kl.zeros(2, kl.float64)
    made["scaled"][2](s.grad, out)
    assert np.isnan(out.numpy()).all()
    gradient = s.grad
    gradient.a = 1.5
    assert gradient.a == 1.5


def test_fields_that_require_gradients_only_after_the_launch_are_refused() -> None:
    s, tape, _ = plain()
    s.requires_grad = True
    with pytest.raises(TapeError, match=r"`p\.a` requires gradients, but did not when"):
        tape.backward()


def test_a_struct_set_into_one_that_requires_gradients_goes_on_to() -> None:
    s, _, made = plain(True)
    s.inner = made["Inner"](w=5.0)
    assert s.inner.w == 5.0 and s.inner.requires_grad
    assert s.grad.inner.w == 2.0


def test_what_has_no_gradient_on_a_tape_says_how_to_ask_for_it(fields: dict[str, Any]) -> None:
    v, y = (1.0, 2.0, 3.0), kl.zeros(3, requires_grad=True)
    s, other = fields["Material"](), kl.ones(3)
    with kl.Tape() as tape:
        fields["norms"][3](v, np.ones((2, 2)), y)
    asked = {v: "array of one in its place", s: "requires_grad = True", other: "requires_grad=True"}
    for primal, hint in asked.items():
        with pytest.raises(kl.KernelKeyError, match=hint):
            _ = tape.gradients[primal]
    assert s not in tape.gradients and tape.gradients.get(v) is None


def test_a_struct_that_took_no_part_in_a_tape_is_told_as_an_array_is(fields: dict[str, Any]) -> None:
    numbers = material(fields)
    numbers.requires_grad = True
    with kl.Tape() as tape:
        pass
    for primal in (numbers, kl.ones(3, requires_grad=True)):
        with pytest.raises(kl.KernelKeyError, match="took no part in what this tape recorded"):
            _ = tape.gradients[primal]
    energies(fields, numbers)
    with pytest.raises(kl.KernelKeyError, match="took no part in what this tape recorded"):
        _ = tape.gradients[numbers]


def test_fields_set_later_count_and_gradients_add(fields: dict[str, Any]) -> None:
    s = material(fields)
    energies(fields, s)
    s.k, s.v[1] = 5.0, 0.0
    _, y = energies(fields, s)
    assert y.list() == [34, 39, 44]
    assert s.grad.k == 12 and s.grad.v.tolist() == [24, 24, 72]
    s.requires_grad = False
    assert s.grad is None and s.k == 5 and s.v.tolist() == [1, 0, 3]


def test_a_field_set_on_the_tape_ends_the_chain_of_its_old_value(fields: dict[str, Any]) -> None:
    s = material(fields)
    x, y = kl.array([1.0, 2.0, 3.0], dtype=float), kl.zeros(3, requires_grad=True)
    z = kl.zeros(3, requires_grad=True)
    with kl.Tape() as tape:
        fields["energies"][3](s, x, y)
        s.k = 7.0
        fields["energies"][3](s, x, z)
    tape.backward(grads={y: [1, 0, 0], z: [0, 0, 1]})
    assert s.grad.k == 1 and s.k == 7


def test_an_array_of_one_vector_may_stand_for_a_vector(fields: dict[str, Any]) -> None:
    v = kl.array([[1.0, 2.0, 3.0]], dtype=kl.vec3, requires_grad=True)
    m = kl.array([[[0.0, 2.0], [0.0, 0.0]]], dtype=kl.mat22, requires_grad=True)
    y = kl.zeros(2, requires_grad=True)
    with kl.Tape() as tape:
        fields["norms"][2](v, m, y)
    tape.backward(grads={y: [1, 1]})
    assert y.list() == [18, 18]
    assert v.grad is not None and v.grad.numpy().tolist() == [[4, 8, 12]]
    assert m.grad is not None and m.grad.numpy().tolist() == [[[0, 8], [0, 0]]]


def test_an_array_of_one_vector_may_be_a_field(fields: dict[str, Any]) -> None:
    v = kl.array([[1.0, 2.0, 3.0]], dtype=kl.vec3, requires_grad=True)
    energies(fields, fields["Material"](k=1.0, v=v, n=1))
    assert v.grad is not None and v.grad.numpy().tolist() == [[6, 12, 18]]
    with pytest.raises(kl.KernelTypeError, match="an array of one vec3 would do"):
        fields["Material"](v=kl.zeros(2, dtype=kl.vec3))


HOLDS_ARRAYS = """
class Inner:
    a: array[float]
    w: float

class Outer:
    inner: Inner
    b: array[float]
    n: array[int]

def product(s: Outer, y: array[float]):
    i = tid()
    y[i] = s.inner.a[i] * s.b[i] * s.inner.w + float(s.n[i])
"""


def test_arrays_in_a_struct_have_gradients_if_they_require_them_and_say_so_if_not() -> None:
    made = kl.compile(HOLDS_ARRAYS)
    s = made["Outer"](b=kl.array([3.0, 4.0]), n=kl.array([1, 2]))
    s.inner.a, s.inner.w = kl.array([1.0, 2.0], dtype=float), 2.0
    s.requires_grad = True

    def gradient() -> Any:
        y = kl.zeros(2, requires_grad=True)
        with kl.Tape() as tape:
            made["product"][2](s, y)
        tape.backward(grads={y: [1, 1]})
        return tape.gradients[s]

    first = gradient()
    assert first.inner.w == 11.0 and first.n is None
    for part, name in ((first, "b"), (first.inner, "a")):
        with pytest.raises(
            TapeError, match=rf"(?s){name} of this .* does not require gradients.*s\.{name}\.requires_grad"
        ):
            getattr(part, name)
    s.b.requires_grad = s.inner.a.requires_grad = True
    second = gradient()
    assert second.b.list() == [2.0, 4.0] and second.inner.a.list() == [6.0, 8.0]
