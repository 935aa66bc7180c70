"""Structs in kernels: flattened into leaves, copied on assignment, refused where they cannot be had."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.backend.common.backends import pack
from kernelab.backend.cpu import interpreter
from kernelab.backend.cpu.cpu_backend import CpuBackend
from kernelab.backend.cuda.nvrtc import compile_to_ptx
from kernelab.codegen.cpp.cuda_target import Cuda
from kernelab.codegen.cpp.emitter import emit
from kernelab.codegen.cpp.entry import layout_of
from kernelab.frontend.meaning.annotations import StructDefinition
from kernelab.lang.structs import Struct, StructArray, leaves
from kernelab.lang.types import is_differentiable
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.copying import widen
from kernelab.passes.common.scalarise import scalarise
from kernelab.passes.common.simplify import simplify
from tests.frontend.helpers import cell, error, errors, function, kernel, ran
from tests.support.derivatives import derivatives, wide
from tests.support.lowering import lowered

PARTICLE = """
class Spring:
    k: float = 2.0
    rest: float

@struct
class Particle:
    pos: vec3
    mass: float = 1.0
    id: int
    spring: Spring

"""


def test_a_parameter_of_a_struct_is_one_parameter_for_each_leaf() -> None:
    made = kernel(PARTICLE + "def kernel(p: Particle, out: array[float]):\n    out[0] = p.mass\n")
    names = [param.hint for param in made.function.params]
    assert names == ["p.pos", "p.mass", "p.id", "p.spring.k", "p.spring.rest", "out"]
    assert [str(formal.type) for formal in made.signature] == ["Particle", "array[float32]"]


def test_of_an_element_only_the_leaves_that_are_used_are_loaded() -> None:
    text = "def kernel(ps: array[Particle], out: array[float]):\n    out[0] = ps[1].pos.y + ps[1].spring.k\n"
    loads = [stmt for stmt in function(PARTICLE + text).body.stmts if type(stmt).__name__ == "Load"]
    assert [load.array.hint for load in loads] == ["ps.pos", "ps.spring.k"]  # type: ignore[union-attr]


LOCAL = (
    PARTICLE
    + """
def kernel(out: array[float]):
    a = Particle(vec3(1.0, 2.0, 3.0), mass=4.0)
    b = a
    b.mass = 5.0
    b.pos.x += 10.0
    b.spring.rest = b.spring.k
    c = b.spring
    c.k = -1.0
    a.spring = c
    out[0] = a.mass
    out[1] = b.mass
    out[2] = a.pos.x
    out[3] = b.pos.x
    out[4] = b.spring.k + b.spring.rest
    out[5] = a.spring.k
"""
)


def test_a_struct_is_copied_on_assignment() -> None:
    after = ran(LOCAL, out=np.zeros(6, np.float32))
    np.testing.assert_array_equal(after["out"], [4, 5, 1, 11, 4, -1])


def test_a_function_gets_a_copy_and_returns_another() -> None:
    text = """
def grown(p: Particle, by: float = 2.0) -> Particle:
    p.mass = p.mass * by
    return p

def pair(p: Particle):
    return p, p.spring

def kernel(out: array[float]):
    p = Particle(mass=3.0)
    q = grown(p)
    r, s = pair(grown(q, 3.0))
    out[0] = p.mass
    out[1] = q.mass
    out[2] = r.mass + s.k
"""
    after = ran(PARTICLE + text, out=np.zeros(3, np.float32))
    np.testing.assert_array_equal(after["out"], [3, 6, 20])


def test_a_struct_meets_itself_behind_branches_and_loops() -> None:
    text = """
def kernel(x: array[float], out: array[float]):
    best = Particle(mass=-1.0)
    for i in range(len(x)):
        p = Particle(mass=x[i], id=i)
        if p.mass > best.mass:
            best = p
        elif p.mass < 0.0:
            best.spring.k += 1.0
    out[0] = best.mass
    out[1] = float(best.id)
    out[2] = best.spring.k
    q = Particle(mass=2.0)
    last = best if best.mass > 100.0 else q
    out[3] = last.mass
"""
    x = np.array([0.5, -2, 3, -1, 2], np.float32)
    after = ran(PARTICLE + text, x=x, out=np.zeros(4, np.float32))
    np.testing.assert_array_equal(after["out"], [3, 2, 3, 2])


def test_a_function_without_types_takes_structs_and_arrays_of_structs() -> None:
    text = """
def heavier(p, q):
    return p if p.mass > q.mass else q

def heaviest(ps):
    found = ps[0]
    for i in range(len(ps)):
        found = heavier(found, ps[i])
    return found

def kernel(ps: array[Particle], out: array[float]):
    out[0] = heaviest(ps).spring.k
    ps[0].mass, ps[1].mass = 5.0, 6.0
    out[1] = heaviest(ps).mass
"""
    names = [leaf.name for leaf in leaves(StructArray(struct(PARTICLE, "Particle"), 1), "ps")]
    values: dict[str, Any] = {name: np.array([1, 2, 3], np.float32) for name in names}
    values |= {"ps.pos": np.zeros((3, 3), np.float32), "ps.id": np.zeros(3, np.int32)}
    after = ran(PARTICLE + text, **values, out=np.zeros(2, np.float32))
    np.testing.assert_array_equal(after["out"], [3, 6])


def struct(text: str, name: str) -> Struct:
    found = cell(text).definitions[name]
    assert isinstance(found, StructDefinition)
    return found.struct


GRID = """
class Cell:
    x: float
    y: float

class Grid:
    origin: Cell
    values: array2d[float]
    cells: array[Cell]

def at(g: Grid, i: int, j: int) -> float:
    g.values[i, j] += 1.0
    return g.values[i, j] + g.origin.x + g.cells[j].y

def kernel(g: Grid, rows: array2d[Cell], out: array[float]):
    out[0] = at(g, 1, 1)
    row = rows[1]
    out[1] = row[0].y + float(rows.shape[0]) + float(len(g.cells)) + float(g.values.shape[1])
    h = Grid(values=g.values)
    h.cells = g.cells
    h.origin = rows[0, 1]
    out[2] = at(h, 0, 0)
    rows[0, 0] = h.origin
    h.cells[0].x = 7.0
"""


def test_a_struct_may_hold_arrays_also_of_structs_and_shares_them() -> None:
    after = ran(
        GRID,
        **{
            "g.origin.x": np.float32(1),
            "g.origin.y": np.float32(2),
            "g.values": np.array([[1, 2], [3, 4]], np.float32),
            "g.cells.x": np.array([10, 20], np.float32),
            "g.cells.y": np.array([30, 40], np.float32),
            "rows.x": np.array([[1, 2], [3, 4]], np.float32),
            "rows.y": np.array([[5, 6], [7, 8]], np.float32),
            "out": np.zeros(3, np.float32),
        },
    )
    np.testing.assert_array_equal(after["out"], [5 + 1 + 40, 7 + 2 + 2 + 2, 2 + 2 + 30])
    np.testing.assert_array_equal(after["g.values"], [[2, 2], [3, 5]])
    np.testing.assert_array_equal(after["rows.x"], [[2, 2], [3, 4]])
    np.testing.assert_array_equal(after["g.cells.x"], [7, 20])


def test_components_named_as_fields_are_fields() -> None:
    text = "class P:\n    y: float\n    x: vec2\ndef kernel(ps: array[P], out: array[float]):\n"
    text += "    ps[0].x.y = 5.0\n    q = ps[0]\n    q.y = q.x.y + ps[0].y\n    out[0] = q.y\n"
    after = ran(
        text,
        **{
            "ps.y": np.ones(1, np.float32),
            "ps.x": np.zeros((1, 2), np.float32),
            "out": np.zeros(1, np.float32),
        },
    )
    assert after["out"][0] == 6


def test_a_default_may_be_a_vector_and_a_constant_of_the_notebook() -> None:
    text = "class P:\n    v: vec2 = V\n    n: int = N + 1\n"
    text += "def kernel(out: array[float]):\n    p = P()\n    out[0] = p.v.y * float(p.n)\n"
    after = ran_with(text, V=np.array([1.0, 3.0]), N=4)
    assert after == 15


def ran_with(text: str, **namespace: object) -> float:
    out = {"out": np.zeros(1, np.float32)}
    interpreter.run(function(text, **namespace), (1,), out, width=1)
    return float(out["out"][0])


# ------------------------------------------------------------------------- derivatives

CHAINS = """
class Bob:
    pos: vec2
    mass: float
    id: int

class Pair:
    a: Bob
    b: Bob

def pull(p: Bob, q: Bob, k: float) -> Bob:
    d = p.pos - q.pos
    p.pos = p.pos - k * d / p.mass
    p.mass *= 1.0 + 0.1 * dot(d, d)
    return p

def swing(ps: array[Bob], rest: Pair, after: array[Bob], out: array[float]):
    i = tid()
    pair = Pair(ps[i], ps[i + 1])
    for k in range(4):
        pair.a = pull(pair.a, pair.b, 0.3)
        if pair.a.pos.x > pair.b.pos.x:
            t = pair.a
            pair.a = pair.b
            pair.b = t
            pair.b.pos.y *= 1.1
        elif pair.a.id > 1:
            pair = rest
        out[i] += pair.a.mass * pair.b.pos.y
    while pair.a.mass < 3.0:
        pair.a.mass = pair.a.mass * 1.5 + 0.1 * rest.b.mass
    after[i].mass += pair.a.mass * after[i].pos.x
    after[i].pos = pair.a.pos * after[i].mass
    after[i].pos.y *= after[i].pos.x
    out[i] += after[i].pos.y * after[i].mass + ps[i + 1].pos.y
    pair.b = after[i]
    pair.b.pos = pair.b.pos * pair.b.mass
    after[i] = pair.b
"""


def drawn(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "ps.pos": rng.normal(size=(6, 2)),
        "ps.mass": rng.uniform(0.5, 2, 6),
        "ps.id": np.arange(6, dtype=np.int32) % 3,
        "rest.a.pos": rng.normal(size=2),
        "rest.a.mass": 1.5,
        "rest.a.id": 0,
        "rest.b.pos": rng.normal(size=2),
        "rest.b.mass": 0.75,
        "rest.b.id": 2,
        "after.pos": rng.normal(size=(5, 2)),
        "after.mass": rng.normal(size=5),
        "after.id": np.zeros(5, np.int32),
        "out": np.zeros(5),
    }


def _narrow(value: Any) -> Any:
    array = np.asarray(value)
    return array.astype(np.float32 if array.dtype.kind == "f" else np.int32)


@pytest.mark.parametrize("seed", range(6))
def test_adjoint_tangent_and_differences_agree_on_structs_in_loops_and_branches(seed: int) -> None:
    rng = np.random.default_rng(seed)
    program = simplify(widen(lowered(CHAINS, "swing")))
    arguments = drawn(rng)
    found = derivatives(program, (5,), wide(program, arguments), rng)
    assert found.agree(), found


def test_machine_code_and_interpreter_agree() -> None:
    rng = np.random.default_rng(0)
    program = lowered(CHAINS, "swing")
    arguments = {name: _narrow(value) for name, value in drawn(rng).items()}
    first, second = ({name: np.array(value) for name, value in arguments.items()} for _ in range(2))
    interpreter.run(program, (5,), first, width=1)
    CpuBackend().build([scalarise(program)])["swing"](pack(layout_of(program), (5,), second))
    for name in arguments:
        np.testing.assert_allclose(first[name], second[name], rtol=1e-6, err_msg=name)


@pytest.mark.nvrtc
def test_structs_compile_for_cuda() -> None:
    program = lowered(CHAINS, "swing")
    names = [param.hint for param in program.params if is_differentiable(param.type)]
    reverse = vjp(program, names)
    for made in (program, reverse.primal, reverse.adjoint, jvp(program, names)):
        assert ".visible .entry" in compile_to_ptx(emit([scalarise(made)], Cuda()).text)


# ------------------------------------------------------------------------- refusals

USES = "def kernel(p: P, ps: array[Q], out: array[float]):\n    {}\n"
TWO = "class P:\n    a: float\n    v: vec3\n    data: array[float]\nclass Q:\n    a: float\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class P:\n    def f(self):\n        pass\n", "the struct P cannot have the method f"),
        ("class P(Q):\n    x: float\n", "the struct P cannot inherit from a class"),
        ("class P:\n    next: P\n", "the struct P cannot hold itself"),
        ("class P:\n    next: array[P]\n", "the struct P cannot hold itself"),
        ("class P:\n    x = 1.0\n", "the field x has no type"),
        ("class P:\n    x: float = 'one'\n", "the default of x is 'one', not a float32"),
        ("class P:\n    x: int = 1.5\n", "the default of x is 1.5, not an int32"),
        ("class P:\n    x: float = nothing\n", "this raised NameError: name 'nothing' is not defined"),
        ("class P:\n    x: float\n    x: int\n", "P has two fields x"),
        ("class P:\n    x: float\n    print(1)\n", "the struct P holds fields only"),
        ("@dataclass\nclass P:\n    x: float\n", "the decorator @dataclass is not known here"),
        ("class P:\n    x: nonsense\n", "the name nonsense is not known here"),
    ],
)
def test_what_a_struct_cannot_have_is_refused(text: str, message: str) -> None:
    assert error(text).message == message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("out[0] = p.b", "P has no field b"),
        ("p.b = 1.0", "P has no field b"),
        ("out[0] = ps[0].v.x", "Q has no field v"),
        ("out[0] = p", "out holds float32, not P"),
        ("p = ps[0]\n    out[0] = p + 1.0", "p is Q, not a number"),
        ("ps[0] = p", "ps[0] is Q, not P"),
        ("ps[0] += ps[1]", "ps[0] is Q, not a number"),
        (
            "q = ps[0] if out[0] > 0.0 else p\n    out[0] = q.a",
            "the value is P here and Q in line 8: a variable keeps one type",
        ),
        ("ps[0, 1] = ps[1]", "array[Q] takes 1 index, not 2"),
        ("out[0] = p[0]", "a P is not indexed"),
        ("q = P(1.0)\n    out[0] = q.data[0]", "the array data of this P is not set"),
        ("q = P(1.0)\n    q.data[0] = 1.0", "q.data[0] cannot be assigned: the array is not set"),
        ("q = Q(b=1.0)", "Q has no field b"),
        ("q = Q(1.0, 2.0)", "Q has 1 field, not 2"),
        ("q = Q(1.0, a=2.0)", "Q gets two values for a"),
        ("q = Q(vec3())", "a of Q is float32, not vec3"),
        ("p.data = ps", "p.data is array[float32], not array[Q]"),
        ("p.v.w = 1.0", "vec3 has no component 3"),
        ("p.v.foo = 1.0", "vec3 has no foo"),
        ("atomic_add(ps, 0, ps[1])", "atomic_add takes an array, its indices and a value"),
    ],
)
def test_what_cannot_be_done_with_a_struct_is_refused(line: str, message: str) -> None:
    assert [found.message for found in errors(TWO + USES.format(line))] == [message]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class P:\n    x: float\nclass P:\n    y: float\n", "P is defined twice in this cell"),
        (
            "def P(x: array[float]):\n    x[0] = 1.0\nclass P:\n    y: float\n",
            "P is defined twice in this cell",
        ),
        ("class P:\n    y: float\ndef P(x: array[float]):\n    x[0] = 1.0\n", "P is a struct of this cell"),
    ],
)
def test_a_name_is_defined_once(text: str, message: str) -> None:
    assert error(text).message == message


def test_a_row_of_structs_that_a_loop_takes_ends_with_it() -> None:
    text = "class P:\n    x: float\ndef kernel(ps: array2d[P], out: array[float]):\n"
    text += "    for i in range(3):\n        row = ps[i]\n        out[i] = row[0].x\n"
    assert not errors(text)
    found = error(text + "    out[0] = row[1].x\n")
    assert "is a row of ps that a loop takes: it cannot be used after the loop" in found.message


def test_an_array_cannot_hold_structs_that_hold_arrays() -> None:
    found = error("class G:\n    v: array[float]\ndef kernel(g: array[G]):\n    g[0].v[0] = 1.0\n")
    assert found.message == "an array cannot hold G: its field v is an array"


def test_a_function_returns_a_struct_that_holds_arrays() -> None:
    text = "class G:\n    v: array[float]\n    k: int\n"
    text += (
        "def f(g: G, n: int):\n    if n > 2:\n        g.k = n\n        return g\n    g.k += 1\n    return g\n"
    )
    text += "def kernel(g: G, n: int):\n    h = f(f(g, n), 1)\n    h.v[h.k] = 1.0\n"
    assert not errors(text)


def test_a_function_returns_no_memory_of_its_own() -> None:
    text = "def f(x: float):\n    a = zeros(3, dtype=float)\n    a[0] = x\n    return a\n"
    text += "def kernel(y: array[float]):\n    y[0] = f(2.0)[0]\n"
    assert error(text).message == "a function cannot return a local array, which ends with the call"


def test_a_struct_with_a_mistake_is_told_once_more_at_most_where_it_is_used() -> None:
    found = cell("class P:\n    x: nonsense\ndef kernel(p: P):\n    pass\n").errors
    assert [one.message for one in found] == [
        "the name nonsense is not known here",
        "P has a mistake of its own",
    ]


def test_the_struct_of_another_definition_is_named() -> None:
    old = cell("class P:\n    x: float\ndef f(p: P) -> float:\n    return p.x\n").definitions
    text = "class P:\n    x: float\n    y: int\ndef kernel(p: P, out: array[float]):\n    out[0] = f(p)\n"
    found = error(text, f=old["f"])
    expected = "the argument p of f is P, not P of another definition: the other one has a field y too"
    assert found.message == expected


def test_operators_of_structs_mean_functions_of_the_notebook() -> None:
    first = cell(PAIR + "def add(a: Pair, b: Pair):\n    return Pair(a.x + b.x, a.y + b.y)\n")
    text = "def kernel(out: array[float]):\n    p = Pair(1.0, 2.0) + Pair(3.0, 4.0)\n    out[0] = p.y\n"
    found = cell(text, Pair=first.definitions["Pair"].struct, add=first.definitions["add"])  # type: ignore[union-attr]
    assert found.errors == ()


PAIR = "class Pair:\n    x: float\n    y: float\n"


def test_components_of_a_transform_in_a_struct_are_assigned() -> None:
    kernels = kl.compile("""
class Body:
    pose: transform
def kernel(bodies: array[Body], x: array[float], y: array[float]):
    i = tid()
    bodies[i].pose.p.x = x[i] * x[i]
    bodies[i].pose.q[3] += x[i]
    body = bodies[i]
    body.pose.p.y = 3.0 * x[i]
    y[i] = body.pose.p.x + body.pose.p.y + body.pose.q.w
""")
    bodies = kl.zeros(2, dtype=kernels["Body"], requires_grad=True)
    x, y = kl.array([2.0, 3.0], dtype=float, requires_grad=True), kl.zeros(2, requires_grad=True)
    assert kl.autograd.gradcheck(kernels["kernel"], 2, inputs=[bodies, x], outputs=[y])
    kl.launch(kernels["kernel"], 2, [bodies, x, y])
    assert y.list() == [4.0 + 6.0 + 2.0, 9.0 + 9.0 + 3.0]
    assert bodies.numpy()["pose"][:, 1].tolist() == [0.0, 0.0]
