"""Rules for derivatives of functions that take structs, or return them."""

import warnings
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from tests.frontend.helpers import errors

BODY = """
class Body:
    mass: float
    count: int
    place: vec3
"""
ENERGY = """
def energy(b: Body, s: float) -> float:
    return b.mass * b.mass * s + b.place[0] * float(b.count)
{rule}
def kernel(bodies: array[Body], s: array[float], out: array[float]):
    i = tid()
    out[i] = energy(bodies[i], s[i])
"""
GRAD = """
@func_grad(energy)
def adj_energy(b: Body, s: float, adj_ret: float):
    adjoint[b].mass += 2.0 * b.mass * s * adj_ret
    adjoint[b].place.x += float(b.count) * adj_ret
    adjoint[s] += b.mass * b.mass * adj_ret
"""
JVP = """
@func_jvp(energy)
def energy_dot(b: Body, s: float, b_dot: Body, s_dot: float) -> float:
    moved = float(b_dot.count) * b_dot.place[0]
    return 2.0 * b.mass * b_dot.mass * s + b.mass * b.mass * s_dot + moved
"""
REPLAY = """
@func_replay(energy)
def again(c: Body, s: float):
    return c.mass * c.mass * s + c.place[0] * float(c.count)
"""


def compiled(text: str) -> dict[str, Any]:
    found: dict[str, Any] = kl.compile(BODY + text)
    return found


def bodies(kernels: dict[str, Any]) -> Any:
    found = kl.zeros(2, dtype=kernels["Body"], requires_grad=True)
    whole = np.zeros(2, dtype=found.numpy().dtype)
    whole["mass"], whole["count"], whole["place"] = [2, 3], [4, 5], [[1, 2, 3], [4, 5, 6]]
    found.assign(whole)
    return found


def numbers(*values: float) -> Any:
    return kl.array(list(values), dtype=float, requires_grad=True)


@pytest.mark.parametrize(
    "rule", [GRAD, JVP, GRAD + JVP, GRAD + REPLAY], ids=["grad", "jvp", "both", "replay"]
)
def test_rules_of_a_function_of_a_struct_hold_in_both_modes(rule: str) -> None:
    kernels = compiled(ENERGY.format(rule=rule))
    inputs, out = [bodies(kernels), numbers(5.0, 7.0)], kl.zeros(2, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kl.autograd.gradcheck(kernels["kernel"], 2, inputs=inputs, outputs=[out])
    launched = kernels["kernel"]

    def run(s: Any) -> Any:
        y = kl.zeros_like(s)
        kl.launch(launched, 2, [inputs[0], s, y])
        return y

    np.testing.assert_allclose(kl.func.jacfwd(run)(inputs[1]).numpy(), np.diag([4.0, 9.0]))


def test_the_rule_is_what_counts() -> None:
    surrogate = (
        "@func_grad(energy, check=False)\ndef adj(b, s, adj_ret):\n    adjoint[b].mass += 100.0 * adj_ret\n"
    )
    kernels = compiled(ENERGY.format(rule=surrogate))
    given, out = bodies(kernels), kl.zeros(2, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernels["kernel"], 2, [given, numbers(5.0, 7.0), out])
    tape.backward(grads={out: kl.ones(2)})
    gradient = given.grad.numpy()
    assert gradient["mass"].tolist() == [100.0, 100.0]
    assert not gradient["place"].any() and not gradient["count"].any()


def test_a_wrong_share_of_a_field_is_named() -> None:
    wrong = GRAD.replace("2.0 * b.mass * s", "3.0 * b.mass * s")
    kernels = compiled(ENERGY.format(rule=wrong))
    given, out = bodies(kernels), kl.zeros(2, requires_grad=True)
    with pytest.warns(kl.KernelWarning, match=r"for adjoint\[b\].mass where differences"), kl.Tape() as tape:
        kl.launch(kernels["kernel"], 2, [given, numbers(5.0, 7.0), out])
    tape.backward(grads={out: kl.ones(2)})


def test_structs_are_returned_and_their_adjoints_are_structs() -> None:
    kernels = compiled("""
def moved(b: Body, d: float) -> Body:
    c = Body()
    c.mass = b.mass * d
    c.count = b.count + 1
    c.place = b.place
    return c
@func_grad(moved)
def adj_moved(b: Body, d: float, adj_ret: Body):
    adjoint[b].mass += d * adj_ret.mass
    adjoint[b].place += adj_ret.place
    adjoint[d] += b.mass * adj_ret.mass
@func_jvp(moved)
def moved_dot(b: Body, d: float, b_dot: Body, d_dot: float) -> Body:
    c = b_dot
    c.mass = b_dot.mass * d + b.mass * d_dot
    return c
def kernel(bodies: array[Body], d: array[float], out: array[float]):
    i = tid()
    c = moved(bodies[i], d[i])
    out[i] = c.mass * c.mass + c.place[1] + float(c.count)
""")
    inputs, out = [bodies(kernels), numbers(5.0, 7.0)], kl.zeros(2, requires_grad=True)
    assert kl.autograd.gradcheck(kernels["kernel"], 2, inputs=inputs, outputs=[out])
    kl.launch(kernels["kernel"], 2, [*inputs, out])
    assert out.list() == [100.0 + 2.0 + 5.0, 441.0 + 5.0 + 6.0]


def test_arrays_of_structs_and_arrays_in_structs_have_adjoints_of_their_kind() -> None:
    kernels = compiled("""
class Holder:
    k: float
    v: array[float]
    at: array[int]
def held(h: Holder, i: int):
    return h.k * h.v[h.at[i]]
@func_grad(held)
def adj_held(h: Holder, i: int, adj_ret: float):
    adjoint[h].k += h.v[h.at[i]] * adj_ret
    adjoint[h].v[h.at[i]] += h.k * adj_ret
def picked(bodies: array[Body], i: int):
    return bodies[i].mass * 3.0
@func_grad(picked)
def adj_picked(bodies: array[Body], i: int, adj_ret: float):
    adjoint[bodies][i].mass += 3.0 * adj_ret
def kernel(h: Holder, bodies: array[Body], out: array[float]):
    i = tid()
    out[i] = held(h, i) * picked(bodies, i)
""")
    h = kernels["Holder"](k=3.0, v=numbers(1.0, 2.0, 3.0), at=kl.array([2, 0], dtype=int))
    h.requires_grad = True
    given, out = bodies(kernels), kl.zeros(2, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with kl.Tape() as tape:
            kl.launch(kernels["kernel"], 2, [h, given, out])
        tape.backward(grads={out: kl.ones(2)})
    assert out.list() == [9.0 * 6.0, 3.0 * 9.0]
    assert h.v.grad.list() == [27.0, 0.0, 18.0]
    assert h.grad.k == 3.0 * 6.0 + 1.0 * 9.0
    assert given.grad.numpy()["mass"].tolist() == [27.0, 9.0]


def test_a_field_may_stand_inside_the_brackets_of_adjoint() -> None:
    inside = GRAD.replace("adjoint[b].mass", "adjoint[b.mass]").replace("[b].place.x", "[b.place].x")
    assert inside.count("[b.") == 2
    for rule in (GRAD, inside, GRAD.replace("[b].place.x", "[b.place.x]")):
        kernels = compiled(ENERGY.format(rule=rule))
        given, s, out = bodies(kernels), numbers(3.0, 5.0), numbers(0.0, 0.0)
        with kl.Tape() as tape:
            kl.launch(kernels["kernel"], 2, [given, s, out])
        tape.backward(grads={out: kl.ones(2)})
        assert given.grad.numpy()["mass"].tolist() == [2 * 2 * 3.0, 2 * 3 * 5.0]
        assert given.grad.numpy()["place"][:, 0].tolist() == [4.0, 5.0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("adjoint[b.mass] = adj_ret", "an adjoint can only be added to: b may contribute elsewhere too"),
        ("adjoint[b].mass = adj_ret", "an adjoint can only be added to: b may contribute elsewhere too"),
        ("adjoint[b].count += 1", "adj changes the adjoint of b.count, which has none: it is not a float"),
        ("adjoint[b] += adj_ret", "adjoint[b] is Body, not a number"),
    ],
)
def test_what_is_wrong_with_the_adjoint_of_a_struct_is_said(line: str, message: str) -> None:
    rule = f"@func_grad(energy)\ndef adj(b: Body, s: float, adj_ret: float):\n    {line}\n"
    found = errors(BODY + ENERGY.format(rule=rule))
    assert message in [one.message for one in found]


def test_a_rule_states_the_struct_of_its_function() -> None:
    rule = "class Other:\n    mass: float\n@func_grad(energy)\ndef adj(b: Other, s, adj_ret):\n    pass\n"
    assert "adj takes b as Other; for energy it is Body" in [
        one.message for one in errors(BODY + ENERGY.format(rule=rule))
    ]
