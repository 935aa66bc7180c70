"""A decorated function gives the same where Python calls it as in a kernel: values, not names, are bound.

Each text is a function of two numbers, called with numbers, which Python computes, and with arrays, which
kernels do.
"""

import functools
import inspect
import linecache
import runpy
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.runtime.kernel.python_copies import with_copies

HEAD = """import kernelab as kl

@kl.struct
class Part:
    mass: float
    place: kl.vec3

@kl.struct
class Whole:
    part: Part
    turn: kl.mat22

@kl.func
def scaled(v: kl.ref[kl.vec3], by: float):
    v *= by

@kl.func
def moved(p: kl.ref[Part], by: float):
    q = p
    p = Part(q.mass * by, q.place)
    p.place.x += by
    q.mass = 9.0

@kl.func
def both(v: kl.ref[kl.vec3], m: kl.ref[kl.mat22], by: float):
    if by < 0.0:
        v = -v
        return
    v, m = v * by, m * 2.0

@kl.func
def one_of(n: int) -> float:
    return 10.0

@kl.func
def one_of(t: float) -> float:
    return 4.0 * t

@kl.func
def one_of(v: kl.vec2) -> float:
    return v[1]

@kl.func
def one_of(v: kl.vec3, by: float) -> float:
    return v[2] * by

@kl.func
def f(x: float, y: float):
    v = kl.vec3(x, y, 1.0)
    m = kl.mat22(x, y, 1.0, 2.0)
"""

BODIES = {
    "a second name": "w = v; w.x = 9.0; return v.x + w.x",
    "two names at once": "w = u = v; w.x = 9.0; u.y = 8.0; return v.x + v.y + w.x + w.y + u.x + u.y",
    "an annotated name": "w: kl.vec3 = v; w.x = 9.0; return v.x + w.x",
    "a name within an expression": "d = kl.length(w := v); w.x = 9.0; return v.x + w.x + d",
    "names exchanged": "w = v * 2.0; v, w = w, v; v.x = 3.0; return v.x + w.x",
    "a branch": "w = v if x > 0.0 else v * 2.0; w.x = 3.0; return v.x + w.x",
    "a row": "r = m[0]; r[0] = 7.0; return m[0, 0] + r[0]",
    "a transpose": "n = m.T; n[0, 1] = 5.0; return m[1, 0] + n[0, 1]",
    "letters": "s = v.xy; s.x = 9.0; return v.x + s.x",
    "a slice": "s = v[0:2]; s[0] = 9.0; return v.x + s[0]",
    "a field": "p = Part(x, v); w = p.place; w.x = 9.0; return p.place.x + w.x + v.x",
    "a struct": "p = Part(x, v); q = p; q.mass = 9.0; q.place.y = 8.0; return p.mass + p.place.y + q.mass",
    "a struct in a struct": "w = Whole(Part(x, v), m); q = w.part; q.mass = 5.0; return w.part.mass + q.mass",
    "a part of a transform": (
        "t = kl.transform(v, kl.quat_identity()); p = t.p; p.y = 7.0; t.p.x = 5.0; return t.p.x + t.p.y + p.x"
    ),
    "an item of a tuple": "t = (v, v); w = t[0]; w.x = 9.0; return v.x + t[1].x + w.x",
    "names of a tuple": "a, (b, c) = v, (v, v); a.x = 2.0; b.x = 3.0; return v.x + a.x + b.x + c.x",
    "an element": "a = kl.zeros(1, dtype=kl.vec3); a[0] = v; w = a[0]; w.x = 9.0; return a[0].x + w.x",
    "a loop over a tuple": (
        "\n    s = 0.0\n    for w in (v, v):\n        w.x += 1.0\n        s += w.x\n    return s"
    ),
    "a loop over what it changes": """
    s = 0.0
    for w in (v, m[0], v):
        v.x += 1.0
        m[0] = v.xy
        s += w.x
    for i, w in enumerate((v, m[1])):
        m[1] = 2.0 * v.xy
        w.x *= 3.0
        s += w.x * i
    for q, w in zip((v, v), (m, m)):
        v.x, m[0, 1] = s, 2.0
        s += q.x + w[0, 1]
    return s + v.x""",
    "the best so far": (
        "\n    best = v\n    for i in range(3):\n        v[i] = v[i] + 1.0\n        if v[0] > 2.0:\n"
        "            best = v\n    return best[0] + 2.0 * best[1] + 4.0 * best[2]"
    ),
    "several of one name": "return one_of(3) + one_of(x) + one_of(v.xy) + one_of(by=y, v=v) + one_of(int(y))",
    "a vector handed back": "scaled(v, 3.0); return v.x + v.y",
    "a second name handed back": "w = v; scaled(w, 3.0); return v.x + v.y + w.x",
    "a name of a branch handed back": "w = v if x > 0.0 else v.zyx; scaled(w, 3.0); return v.x + w.x",
    "a field handed back": "p = Part(x, v); w = p.place; scaled(w, 3.0); return p.place.x + v.x + w.x",
    "a second struct handed back": "p = Part(x, v); q = p; moved(q, y); return p.mass + q.place.x",
    "a loop over a tuple handed back": (
        "\n    s = 0.0\n    for w in (v, v):\n        scaled(w, y)\n        s += w.x\n    return s"
    ),
    "a second transform filled": (
        "t = kl.transform(v, kl.quat_identity()); u = t; kl.transform_set_translation(u, 2.0 * v); "
        "return t.p.x + u.p.x"
    ),
    "what was before a step": """
    p, s = Part(x, v), 0.0
    for k in range(3):
        prev = p
        moved(p, y)
        s += p.place.x - prev.place.x
    return s""",
    "a struct handed back": "p = Part(x, v); moved(p, y); return p.mass + 2.0 * p.place.x + v.x",
    "draws": ("s = kl.rand_init(7); a = kl.randf(s); b = kl.randf(s, x, 9.0); return a + b + kl.randn(s)"),
    "draws of a loop": (
        "\n    s = kl.rand_init(5)\n    t = 0.0\n    for i in range(3):\n        c = s\n"
        "        t += kl.randf(state=s) * x\n        t += kl.sample_unit_sphere(c).x\n"
        "    return t"
    ),
    "two handed back": "both(v, m, y); return v.x + v.z + m[0, 1]",
}


def loaded(path: Path, body: str, name: str = "f") -> Any:
    path.write_text(HEAD + f"    {body.strip()}\n")
    linecache.checkcache(str(path))
    return runpy.run_path(str(path))[name]


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_what_python_computes_is_what_a_kernel_computes(body: str, tmp_path: Path) -> None:
    f = loaded(tmp_path / "functions.py", body)
    x, y = [1.5, -0.75, 0.25], [2.0, -0.5, 3.0]
    here = [float(f(p, q)) for p, q in zip(x, y, strict=True)]
    np.testing.assert_allclose(here, f(kl.array(x, dtype=float), kl.array(y, dtype=float)).numpy(), rtol=1e-6)


def test_a_struct_handed_to_a_function_from_outside_is_set_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "functions.py"
    loaded(path, "return x + y + v.x + m[0, 0]")
    names = runpy.run_path(str(path))
    part = names["Part"](2.0, kl.vec3(1.0, 2.0, 3.0))
    names["moved"](part, 3.0)
    assert (part.mass, part.place.x) == (6.0, 4.0)
    v, m = kl.vec3(1.0, 2.0, 3.0), kl.mat22(1.0)
    names["both"](v, m, -1.0)
    assert v.tolist() == [-1.0, -2.0, -3.0] and m[0, 0] == 1.0


def test_a_call_that_no_function_of_a_name_takes_is_refused(tmp_path: Path) -> None:
    one_of = loaded(tmp_path / "functions.py", "return x + y + v.x + m[0, 0]", "one_of")
    assert [one_of(3), one_of(3.0), one_of(kl.vec2(1.0, 2.0))] == [10.0, 12.0, 2.0]
    with pytest.raises(kl.KernelTypeError, match=r"one_of.* has no definition for"):
        one_of(kl.vec4())


def test_errors_have_the_line_of_the_file_and_the_def_its_defaults_and_free_variables() -> None:
    scale = 3.0

    @kl.func
    def part(v: kl.vec3, by: float = 2.0):  # type: ignore[no-untyped-def]
        w = v
        w[0] = scale * by
        return w[0] / (v[1] - 2.0) if by > 5.0 else v[0] + w[0]

    assert part(kl.vec3(1.0, 2.0, 3.0)) == 7.0
    assert list(inspect.signature(part).parameters) == ["v", "by"]
    with pytest.raises(TypeError) as caught:
        part(None)
    last = traceback.extract_tb(caught.tb)[-1]
    assert (last.filename, last.line) == (__file__, "w[0] = scale * by")


def test_a_function_that_sets_no_part_runs_as_it_is() -> None:
    def plain(x: float) -> float:
        y = x
        return y * 2.0

    assert with_copies(plain) is plain


def test_what_another_decorator_puts_around_a_function_runs() -> None:
    def doubled(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*arguments: Any) -> Any:
            return 2.0 * function(*arguments)

        return wrapper

    @kl.func
    @doubled
    def part(v: kl.vec3):  # type: ignore[no-untyped-def]
        v[0] = 5.0
        return v[0] + v[1]

    assert part(kl.vec3(1.0, 2.0, 3.0)) == 14.0


@kl.struct
class Spring:
    stiffness: kl.float64
    axis: kl.vec2d


@kl.func
def pulled(spring: Spring):  # type: ignore[no-untyped-def]
    s = spring.stiffness
    s *= 3.0
    spring.axis[1] *= 2.0
    return s * spring.stiffness + spring.axis[0] * spring.axis.y


@kl.func
def bent(x: kl.float64):  # type: ignore[no-untyped-def]
    s = x
    s *= 2.0
    return s if x < 1.0 else s * x


SPRING = Spring(0.7, kl.vec2d(0.4, 0.5))


def test_transforms_of_a_function_of_a_struct_differentiate_what_it_returns() -> None:
    value, slope = kl.func.value_and_grad(pulled)(SPRING)
    assert value == pulled(SPRING) == pytest.approx(1.87)
    assert (slope.stiffness, *slope.axis) == pytest.approx((4.2, 1.0, 0.8))
    assert kl.func.jvp(pulled, (SPRING,), (Spring(1.0, kl.vec2d(0.0, 1.0)),))[1] == pytest.approx(5.0)
    second = kl.func.hessian(pulled)(SPRING)
    assert second["stiffness"]["stiffness"] == pytest.approx(6.0)
    assert second["axis"]["axis"].list() == [0.0, 2.0, 2.0, 0.0]
    assert (SPRING.stiffness, *SPRING.axis) == (0.7, 0.4, 0.5)


def test_on_a_tape_a_struct_that_holds_arrays_is_computed_by_a_kernel() -> None:
    x, spring = kl.array([0.7], dtype=kl.float64, requires_grad=True), SPRING.copy()
    with kl.Tape() as tape:
        spring.stiffness = 1.0 * x
        y = pulled(spring)
    tape.backward(y)
    assert (y.item(), x.grad.item(), spring.stiffness.item()) == pytest.approx((1.87, 4.2, 0.7))


def test_so_is_one_whose_numbers_require_gradients() -> None:
    spring = SPRING.copy()
    spring.requires_grad = True
    with kl.Tape() as tape:
        y = pulled(spring)
    tape.backward(y)
    assert (spring.grad.stiffness, *spring.grad.axis) == pytest.approx((4.2, 1.0, 0.8))


def test_so_are_picked_elements() -> None:
    x = kl.array([0.7, 1.5], dtype=kl.float64, requires_grad=True)
    with kl.Tape() as tape:
        y = bent(x[kl.array([1, 0])])
    tape.backward(grads={y: kl.ones_like(y)})
    assert y.list() == [4.5, 1.4] and x.grad.list() == [2.0, 6.0]


@kl.func
def stiffened(spring: kl.ref[Spring], by: kl.float64):  # type: ignore[no-untyped-def]
    spring.stiffness *= by


def test_a_struct_that_is_handed_back_is_changed_whatever_it_holds() -> None:
    plain, held, required = SPRING.copy(), SPRING.copy(), SPRING.copy()
    held.stiffness = kl.array([0.7], dtype=kl.float64)
    required.requires_grad = True
    for spring in (plain, held, required):
        stiffened(spring, 2.0)
        assert float(spring.stiffness) == 1.4


def test_elements_of_an_array_are_not_handed_back() -> None:
    with pytest.raises(kl.KernelTypeError, match=r"stiffened hands `spring` back, .*[\s\S]*hint: return it"):
        stiffened(SPRING.copy(), kl.array([2.0], dtype=kl.float64))


@pytest.mark.parametrize("number", [lambda s: s.stiffness, lambda s: s.axis.x, lambda s: kl.length(s.axis)])
def test_a_number_read_out_of_a_struct_that_requires_gradients_is_reported(
    number: Callable[[Any], Any],
) -> None:
    x, spring = kl.array([0.7], dtype=kl.float64, requires_grad=True), SPRING.copy()
    spring.requires_grad = True
    with kl.Tape() as tape:
        y = x * number(spring)
    with pytest.warns(kl.KernelWarning, match="the host took a number there and passed it on"):
        tape.backward(y)


def test_a_step_along_the_gradient_of_a_struct_is_silent() -> None:
    spring = SPRING.copy()
    spring.requires_grad = True
    for _ in range(3):
        with kl.Tape() as tape:
            y = pulled(spring)
            assert spring.stiffness > 0.0
        tape.backward(y)
        spring.stiffness -= 0.1 * spring.grad.stiffness
        spring.axis -= 0.1 * spring.grad.axis
        tape.zero()
    assert spring.stiffness == pytest.approx(0.7 * 0.4**3)


@kl.func
def overwrites(v: kl.vec3):  # type: ignore[no-untyped-def]
    w = v
    w[0] = w[0] * 2.0
    v[1] = 7.0
    return v[0] + v[1] + 10.0 * w[0]


AXIS = np.array([1.0, 2.0, 3.0], np.float32)


@kl.func
def along(v: float):  # type: ignore[no-untyped-def]
    w = AXIS
    w[0] = w[0] * 2.0
    return v * w[0] + AXIS[0]


def test_arrays_of_numpy_that_stand_for_vectors_are_values() -> None:
    values = np.array([1.0, 2.0, 3.0], np.float32)
    assert overwrites(values) == overwrites(kl.vec3(1.0, 2.0, 3.0)) == 28.0
    assert values.tolist() == [1.0, 2.0, 3.0]
    assert [along(1.0), along(1.0)] == [3.0, 3.0]
    assert AXIS.tolist() == [1.0, 2.0, 3.0]
    assert kl.map(along, kl.array([1.0])).list() == [3.0]


@kl.func
def grown(v: kl.vec3, by: kl.vec3):  # type: ignore[no-untyped-def]
    w = AXIS
    before, v = v, AXIS
    v += by
    return before + v + 10.0 * w


def test_so_are_those_that_change_in_place_as_a_whole() -> None:
    values, by = np.array([1.0, 2.0, 3.0], np.float32), np.array([0.5, 0.5, 0.5], np.float32)
    assert grown(values, by).tolist() == [12.5, 24.5, 36.5]
    assert (values.tolist(), AXIS.tolist()) == ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
