"""Structs on the host: fields that convert, arrays of structs over one memory, launches with both."""

import copy
import ctypes
import pickle
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.lib.recfunctions import require_fields

import kernelab as kl
from kernelab.errors import KernelError, KernelTypeError, LaunchError
from kernelab.frontend.meaning.source import annotations_of

TEXT = """
class Spring:
    k: float = 2.0
    rest: float64

class Particle:
    '''A point with a mass.'''
    pos: vec3
    mass: float = 1.0
    id: int
    fixed: bool
    spring: Spring

class Cloud:
    center: vec2
    weights: array[float]
    particles: array[Particle]

def move(ps: array[Particle], by: Particle, out: array[float]):
    i = tid()
    ps[i].pos += by.pos
    ps[i].mass *= by.mass
    ps[i].id = ps[i].id + by.id
    p = ps[i]
    p.spring.rest = by.spring.rest
    p.fixed = not p.fixed
    ps[i] = p
    out[i] = ps[i].pos.z + p.spring.k + float(p.spring.rest)

def weigh(c: Cloud, grid: array2d[Spring], out: array[float]):
    i = tid()
    out[i] = c.weights[i] * c.particles[i].mass + c.center.y + grid[i, 1].k
"""


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return kl.compile(TEXT)


@pytest.fixture
def particles(made: dict[str, Any]) -> Any:
    Particle = made["Particle"]
    return kl.array([Particle(pos=(k, 2 * k, 3 * k), mass=k + 1, id=k) for k in range(4)])


def message(call: Callable[[], object]) -> str:
    with pytest.raises(KernelError) as caught:
        call()
    return caught.value.diagnostics[0].message


# ------------------------------------------------------------------------- one struct


def test_a_struct_starts_with_its_defaults_and_shows_its_fields(made: dict[str, Any]) -> None:
    p = made["Particle"]()
    shown = "Particle(pos=[0.0, 0.0, 0.0], mass=1.0, id=0, fixed=False, spring=Spring(k=2.0, rest=0.0))"
    assert repr(p) == shown
    assert made["Particle"].__doc__ == "A point with a mass."
    assert isinstance(p, made["Particle"])


def test_fields_are_converted_to_their_types_and_copied(made: dict[str, Any]) -> None:
    p, s = made["Particle"](), made["Spring"](k=3)
    given = np.array([1.0, 2.0, 3.0])
    p.pos, p.mass, p.id, p.fixed, p.spring = given, np.float64(0.1), np.int64(7), True, s
    given[0] = s.k = 100
    assert (p.pos.tolist(), p.pos.dtype) == ([1, 2, 3], np.float32)
    assert p.mass == np.float32(0.1)
    assert (p.id, p.fixed, p.spring.k) == (7, True, 3.0)
    p.id, p.fixed = True, 0
    assert repr((p.id, p.fixed)) == "(1, False)"
    p.spring.rest = 0.5
    assert p.copy().spring.rest == 0.5
    assert p.copy().spring is not p.spring


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("mass", "heavy", "the field mass of Particle is float32, not the text 'heavy'"),
        ("mass", [1, 2], "the field mass of Particle is float32, not a list"),
        ("mass", 10**400, "the field mass of Particle is float32, not an int of so many digits"),
        ("id", 1.5, "the field id of Particle is int32, not the float 1.5"),
        ("id", 2**31, "the field id of Particle is int32, not 2147483648, which it cannot hold"),
        ("fixed", 2, "the field fixed of Particle is bool, not the int 2"),
        ("mass", True, "the field mass of Particle is float32, not the bool True"),
        ("pos", (1, 2), "the field pos of Particle is vec3, not a tuple"),
        ("pos", kl.zeros(3), "the field pos of Particle is vec3, not an array[float32]"),
        ("spring", 3.0, "the field spring of Particle is Spring, not the float 3.0"),
        ("weight", 1, "Particle has no field weight"),
    ],
)
def test_a_field_refuses_what_it_cannot_hold(
    made: dict[str, Any], name: str, value: object, found: str
) -> None:
    assert message(lambda: setattr(made["Particle"](), name, value)) == found


def test_a_field_that_does_not_exist_is_an_attribute_error(made: dict[str, Any]) -> None:
    assert not hasattr(made["Particle"](), "weight")
    with pytest.raises(AttributeError, match="its fields are pos, mass, id, fixed, spring"):
        made["Particle"]().weight  # noqa: B018


def test_array_fields_hold_the_array_itself_and_numpy_arrays_without_a_copy(made: dict[str, Any]) -> None:
    c, w = made["Cloud"](), np.ones(3, np.float32)
    assert c.weights is None
    c.weights = w
    w[1] = 5
    assert c.weights.list() == [1, 5, 1]
    wrong = kl.zeros((2, 2))
    assert message(lambda: setattr(c, "weights", wrong)).endswith(
        "is array[float32], not an array2d[float32]"
    )


def test_structs_and_arrays_of_them_are_copied_and_pickled(made: dict[str, Any], particles: Any) -> None:
    cloud = made["Cloud"](weights=kl.ones(2), particles=particles)
    for other in (copy.deepcopy(cloud), pickle.loads(pickle.dumps(cloud))):
        assert (other.particles[2].mass, other.weights.list()) == (3, [1, 1])
        other.particles["mass"][2] = 5.0
        other.center = (7, 7)
        assert isinstance(other, made["Cloud"])
    assert (particles[2].mass, cloud.center[0]) == (3, 0)
    assert copy.copy(cloud).particles is particles


@kl.struct
class Node:
    """A node."""

    value: float = 2.5
    place: kl.vec2
    link: "int" = -1


@kl.struct
class Tree:
    root: Node
    nodes: kl.array(dtype=Node)  # type: ignore[valid-type]
    heights: "kl.array2d(dtype=float)"


@kl.kernel
def climb(t: Tree, out: kl.array(dtype=float)):  # type: ignore[valid-type,no-untyped-def]
    i = kl.tid()
    out[i] = t.nodes[i].value + t.root.value + t.heights[i, 0] + float(t.root.link)


def test_a_python_class_is_a_struct_too() -> None:
    assert repr(Node()) == "Node(value=2.5, place=[0.0, 0.0], link=-1)"
    assert Node.__doc__ == "A node."
    nodes = kl.array([Node(value=1), Node(value=2)])
    out = kl.zeros(2)
    climb[2](Tree(Node(), nodes, kl.ones((2, 1))), out)
    assert out.list() == [3.5, 4.5]


def test_where_python_keeps_annotations_is_no_method() -> None:
    class Ball:
        mass: float

    stated = dict(Ball.__annotations__)
    Ball.__annotate_func__ = lambda _: stated  # type: ignore[attr-defined]
    assert repr(kl.struct(Ball)(mass=2.0)) == "Ball(mass=2.0)"


def test_annotations_with_a_name_that_is_not_there_yet_are_read_as_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Late:
        @property
        def __annotations__(self) -> dict[str, Any]:  # type: ignore[override]
            raise NameError("Later")

    later = SimpleNamespace(
        Format=SimpleNamespace(STRING=4), get_annotations=lambda _, format: {"x": "Later"}
    )
    monkeypatch.setitem(sys.modules, "annotationlib", later)
    assert annotations_of(Late()) == {"x": "Later"}


def test_a_python_class_that_is_no_struct_is_refused() -> None:
    class Moving:
        x: float

        def move(self) -> None: ...

    class Derived(Moving):
        y: float

    class Odd:
        x: list

    Loop = type("Loop", (), {"__annotations__": {"x": "kl.array(dtype=Loop)"}})
    assert message(lambda: kl.struct(Moving)) == "the struct Moving cannot have the method move"
    assert message(lambda: kl.struct(Derived)) == "the struct Derived cannot inherit from a class"
    assert "which is not a type" in message(lambda: kl.struct(Odd))
    assert message(lambda: kl.struct(Loop)) == "the struct Loop cannot hold itself"


def test_a_field_may_have_any_name_but_an_underscored_one() -> None:
    Odd = kl.compile("class Odd:\n    copy: float\n    grad: float = 3.0\n    leaves: int\n")["Odd"]
    odd = Odd(copy=2)
    assert (odd.copy, odd.grad, odd.leaves) == (2, 3, 0)
    assert copy.deepcopy(odd).copy == copy.copy(odd).copy == 2
    assert kl.array([odd])[0].copy == 2
    assert message(lambda: kl.compile("class P:\n    _x: float\n")).startswith(
        "the name of a field cannot begin"
    )


# ------------------------------------------------------------------------- arrays of structs


def test_an_array_of_structs_is_one_structured_numpy_array(made: dict[str, Any], particles: Any) -> None:
    values = particles.numpy()
    assert values.dtype.names == ("pos", "mass", "id", "fixed", "spring")
    assert values["spring"]["k"].tolist() == [2, 2, 2, 2]
    values["mass"][2] = 9
    assert particles[2].mass == 9
    assert np.array(particles).dtype == np.asarray(particles).dtype == values.dtype
    assert particles.dtype == made["Particle"].__kernelab_struct__
    assert particles.shape == (4,)


def test_the_layout_is_that_of_a_c_compiler(made: dict[str, Any]) -> None:
    class Spring(ctypes.Structure):
        _fields_ = (("k", ctypes.c_float), ("rest", ctypes.c_double))

    class Particle(ctypes.Structure):
        _fields_ = (
            ("pos", ctypes.c_float * 3),
            ("mass", ctypes.c_float),
            ("id", ctypes.c_int),
            ("fixed", ctypes.c_bool),
            ("spring", Spring),
        )

    dtype = kl.zeros(1, dtype=made["Particle"]).numpy().dtype
    assert dtype.itemsize == ctypes.sizeof(Particle)
    assert [dtype.fields[name][1] for name, _ in Particle._fields_] == [
        getattr(Particle, name).offset for name, _ in Particle._fields_
    ]


def test_arrays_of_structs_are_made_as_other_arrays_are(made: dict[str, Any], particles: Any) -> None:
    Particle = made["Particle"]
    assert kl.zeros((2, 3), dtype=Particle)[1, 2].mass == 0
    assert kl.full(2, Particle(mass=3)).numpy()["mass"].tolist() == [3, 3]
    assert kl.zeros(2, dtype=Particle).fill_(Particle(id=4))["id"].list() == [4, 4]
    assert kl.zeros_like(particles).shape == (4,)
    assert kl.clone(particles)[3].pos.tolist() == [3, 6, 9]
    shared = kl.from_numpy(particles.numpy(), dtype=Particle)
    shared["mass"][0] = 50.0
    assert particles[0].mass == 50
    assert [p.id for p in particles] == [p.id for p in particles.list()] == [0, 1, 2, 3]
    assert kl.array([[Particle()], [Particle()]]).shape == (2, 1)
    assert particles.reshape(2, 2)[1, 0].id == 2


def test_elements_slices_and_fields_are_read_and_written(made: dict[str, Any], particles: Any) -> None:
    particles[0], particles[1] = particles[1], particles[0]
    assert particles["id"].list() == [1, 0, 2, 3]
    particles[2:] = made["Particle"](mass=7)
    assert particles["mass"].list() == [2, 1, 7, 7]
    particles["spring"]["k"].fill_(4)
    assert particles[::2].numpy()["spring"]["k"].tolist() == [4, 4]
    particles["pos"] = np.ones((4, 3))
    assert particles["pos"][3].tolist() == [1, 1, 1]


def test_a_copy_of_an_element_is_no_way_to_change_the_array(particles: Any) -> None:
    with pytest.raises(KernelTypeError, match="is a copy of an element"):
        particles[0].mass = 3
    p = particles[0].copy()
    p.mass = 3
    particles[0] = p
    assert particles["mass"][0] == 3


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda ps: ps["weight"], "Particle has no field weight"),
        (lambda ps: ps.__setitem__(0, 3.0), "cannot make Particle from a float"),
        (lambda ps: ps.assign(np.zeros(4)), "cannot make Particle from NumPy data of float64"),
        (lambda ps: kl.array([ps[0], 3.0]), "cannot make Particle from a float"),
        (lambda ps: kl.copy(ps["mass"], ps), "cannot copy Particle elements into an array of float32"),
    ],
)
def test_an_array_of_structs_refuses_other_data(
    particles: Any, call: Callable[[Any], object], found: str
) -> None:
    assert message(lambda: call(particles)) == found


def test_structs_with_arrays_are_in_no_array(made: dict[str, Any]) -> None:
    assert message(lambda: kl.zeros(2, dtype=made["Cloud"])).startswith(
        "an array cannot hold Cloud: its field weights"
    )


# ------------------------------------------------------------------------- launches


def test_a_launch_takes_structs_and_arrays_of_structs(made: dict[str, Any], particles: Any) -> None:
    by = made["Particle"](pos=(1, 1, 1), mass=2, id=10, spring=made["Spring"](rest=0.25))
    out = kl.zeros(4)
    made["move"][4](particles, by, out)
    values = particles.numpy()
    assert values["pos"].tolist() == [[k + 1, 2 * k + 1, 3 * k + 1] for k in range(4)]
    assert values["mass"].tolist() == [2, 4, 6, 8]
    assert values["id"].tolist() == [10, 11, 12, 13]
    assert values["fixed"].all()
    assert out.list() == [3 * k + 1 + 2 + 0.25 for k in range(4)]


def test_a_launch_takes_views_and_structured_numpy_arrays(made: dict[str, Any], particles: Any) -> None:
    by, out = made["Particle"](mass=3), kl.zeros(2)
    made["move"][2](particles[::2], by, out)
    assert particles["mass"].list() == [3, 2, 9, 4]
    values = particles.numpy().copy()
    made["move"][2](values, by, out)
    assert values["mass"].tolist() == [9, 6, 9, 4]


def test_a_launch_takes_structs_that_hold_arrays(made: dict[str, Any], particles: Any) -> None:
    cloud = made["Cloud"](center=(0, 100), weights=kl.array([1.0, 2, 3, 4]), particles=particles)
    grid, out = kl.full((4, 2), made["Spring"](k=1000)), kl.zeros(4)
    made["weigh"][4](cloud, grid, out)
    assert out.list() == [1101, 1104, 1109, 1116]


NO_ARRAY = "argument `ps` of kernel `move` expects an array of Particle with 1 dimension, not "


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (
            lambda m, ps: [ps, 3, kl.zeros(4)],
            "argument `by` of kernel `move` expects a Particle, not the int 3",
        ),
        (
            lambda m, ps: [ps, m["Particle"], kl.zeros(4)],
            "argument `by` of kernel `move` expects a Particle, not the struct Particle itself",
        ),
        (
            lambda m, ps: [ps, m["Spring"](), kl.zeros(4)],
            "argument `by` of kernel `move` expects a Particle, not a Spring",
        ),
        (
            lambda m, ps: [kl.zeros(4), m["Particle"](), kl.zeros(4)],
            NO_ARRAY + "an array[float32]",
        ),
        (
            lambda m, ps: [ps.reshape(2, 2), m["Particle"](), kl.zeros(4)],
            NO_ARRAY + "an array2d[Particle]",
        ),
        (lambda m, ps: [ps, m["Particle"]()], "kernel `move` takes 3 arguments, not 2; `out` is missing"),
    ],
)
def test_a_wrong_argument_is_named(made: dict[str, Any], particles: Any, arguments: Any, found: str) -> None:
    with pytest.raises(LaunchError) as caught:
        kl.launch(made["move"], 4, inputs=arguments(made, particles))
    assert caught.value.diagnostics[0].message == found


def test_an_array_field_that_is_not_set_has_no_elements_and_is_named(made: dict[str, Any]) -> None:
    grid = kl.zeros((1, 2), dtype=made["Spring"])
    with pytest.raises(kl.KernelIndexError, match=r"axis 0 of array `c.weights` with size 0"):
        made["weigh"][1](made["Cloud"](), grid, kl.zeros(1))


def test_an_instance_of_a_changed_definition_is_refused_and_of_the_same_one_taken(
    made: dict[str, Any],
) -> None:
    changed = kl.compile("class Spring:\n    k: float\n    rest: float\n    extra: int\n")["Spring"]
    out, cloud = kl.zeros(1), made["Cloud"](weights=kl.ones(1), particles=kl.zeros(1, dtype=made["Particle"]))
    with pytest.raises(LaunchError) as caught:
        made["weigh"][1](cloud, kl.zeros((1, 2), dtype=changed), out)
    (found,) = caught.value.diagnostics
    assert "of another definition: rest is float64 in one and float32 in the other" in found.message
    assert (
        found.hint
        == "run the cell of `weigh` again to compile it for the new definition, or make the struct anew"
    )
    same = kl.compile("class Spring:\n    k: float = 5.0\n    rest: float64\n")["Spring"]
    made["weigh"][1](cloud, kl.full((1, 2), same()), out)
    assert out.list() == [5]


def test_a_struct_says_how_numpy_stores_it(made: dict[str, Any]) -> None:
    particle = made["Particle"]
    assert particle.numpy_dtype() == kl.zeros(1, dtype=particle).numpy().dtype
    assert kl.array(np.zeros(2, particle.numpy_dtype()), dtype=particle).shape == (2,)
    with pytest.raises(kl.KernelTypeError, match="an array cannot hold Cloud"):
        made["Cloud"].numpy_dtype()


@pytest.mark.parametrize("fill", ["array", "assign", "set", "set one", "in a list"])
def test_records_of_the_same_fields_in_another_order_are_refused_and_can_be_converted(fill: str) -> None:
    @kl.struct
    class Ordered:
        a: float
        b: kl.vec3
        n: int

    data = np.zeros(2, [("n", np.int32), ("a", np.float64), ("b", np.float32, 3)])
    data["n"], data["a"] = [3, 4], [1.5, 2.5]
    ps = kl.zeros(2, dtype=Ordered)
    fills: dict[str, Callable[[Any], Any]] = {
        "array": lambda data: kl.array(data, dtype=Ordered),
        "assign": ps.assign,
        "set": lambda data: ps.__setitem__(slice(None), data),
        "set one": lambda data: ps.__setitem__(0, data[0]),
        "in a list": lambda data: kl.array([data[0], data[1]], dtype=Ordered),
    }
    message = r"(?s)fields are n, a, b, in another order than those of Ordered.*require_fields\(data, "
    with pytest.raises(KernelTypeError, match=message):
        fills[fill](data)
    fills[fill](require_fields(data, kl.zeros(0, dtype=Ordered).numpy().dtype))
    made = kl.array(require_fields(data, kl.zeros(0, dtype=Ordered).numpy().dtype), dtype=Ordered)
    assert (made["a"].list(), made["n"].list()) == ([1.5, 2.5], [3, 4])


@pytest.mark.parametrize(
    ("field", "value"),
    [("m", 1e39), ("h", 1e6), ("v", (0.0, 1e39)), ("k", (2**31, 0)), ("m", np.float64(-1e300))],
)
def test_a_field_takes_no_number_that_it_cannot_hold(field: str, value: Any) -> None:
    Wide = kl.compile("class Wide:\n    m: float\n    h: float16\n    v: vec2\n    k: vec2i\n")["Wide"]
    wide = Wide()
    with pytest.raises(kl.KernelTypeError, match=f"the field {field} of Wide"):
        setattr(wide, field, value)
    with pytest.raises(kl.KernelTypeError, match=f"the field {field} of Wide"):
        Wide(**{field: value})
    wide.m, wide.v = float("inf"), (float("nan"), 1e38)
    assert wide.m == float("inf") and wide.v[1] == np.float32(1e38)


def test_an_element_alone_is_its_struct_and_dlpack_knows_none() -> None:
    Pair = kl.compile("class Pair:\n    m: float\n")["Pair"]
    pairs = kl.array([Pair(3.0)])
    assert pairs.item().m == 3.0
    with pytest.raises(kl.KernelTypeError, match="DLPack knows no elements of Pair"):
        kl.to_dlpack(pairs)


def test_a_field_may_be_called_self() -> None:
    Own = kl.compile("class Own:\n    self: float\n")["Own"]
    assert Own(self=2.0).self == 2.0


@pytest.mark.parametrize(("name", "value"), [("m", 5.0), ("m", float), ("added", 5.0)])
def test_the_class_of_a_definition_does_not_change_beside_it(name: str, value: Any) -> None:
    """An instance would show the class's value in place of its own, and kernels would know neither."""
    Fixed = kl.compile("class Fixed:\n    m: float = 2.0\n")["Fixed"]
    with pytest.raises(kl.KernelTypeError, match=f"{name} is set on the struct Fixed itself"):
        setattr(Fixed, name, value)
    Fixed.weight = lambda self: 9.81 * self.m
    assert (Fixed().m, Fixed(m=3.0).m, Fixed(m=1.0).weight()) == (2.0, 3.0, 9.81)


def test_cloudpickle_makes_the_class_of_a_definition_by_value() -> None:
    """In this process it finds the class and sets its parts once more; in another it makes one."""
    cloudpickle = pytest.importorskip("cloudpickle")
    Sent = kl.compile("class Sent:\n    m: float = 2.0\n    v: vec3\n")["Sent"]
    sent = cloudpickle.dumps(lambda m: Sent(m=m).m + Sent().m)
    assert pickle.loads(sent)(1.0) == 3.0
    run = "import pickle, sys; print(pickle.load(sys.stdin.buffer)(1.0))"
    assert subprocess.run([sys.executable, "-c", run], input=sent, capture_output=True).stdout == b"3.0\n"
