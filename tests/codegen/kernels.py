"""Kernels written directly as IR, each with a launch: what every target must compute alike."""

from collections.abc import Sequence

import numpy as np

import kernelab.builtins  # noqa: F401  fills the table
from kernelab.lang.build import FALSE, TRUE, constant, integer, zero
from kernelab.lang.ir import Append, Atom, Function, Restore, Save, Stack, Var
from kernelab.lang.types import Array, Vec, bool_, float32, float64, int8, int32, int64, uint8
from tests.codegen.numbers import (
    brains,
    conversions,
    division,
    halves,
    mathematics,
    roundings,
    special_numbers,
    wrapping,
)
from tests.codegen.writer import LINE, MAT22, VEC3, Case, Writer, reals


def saxpy() -> Case:
    w = Writer("saxpy", x=Array(float32, 1), y=Array(float32, 1), a=float32)
    (i,) = w.tid("i")
    ax = w.apply("mul", w["a"], w.load(w["x"], [i], "u"))
    w.store(w["y"], [i], w.apply("add", ax, w.load(w["y"], [i], "v"), hint="s"))
    return Case(w.function(), (9,), lambda r: {"x": reals(r, 9), "y": reals(r, 9), "a": 1.5})


def transpose() -> Case:
    """Two coordinates on a grid of three extents: each element is visited once for each third index."""
    w = Writer("transpose", x=Array(float64, 2), y=Array(float64, 2))
    i, j = w.tid("i", "j")
    w.atomic_add(w["y"], [j, i], w.load(w["x"], [i, j]))
    return Case(
        w.function(), (3, 4, 2), lambda r: {"x": reals(r, 3, 4, dtype=np.float64), "y": np.zeros((4, 3))}
    )


def volume() -> Case:
    w = Writer("volume", y=Array(int32, 4))
    i, j, k, m = w.tid("i", "j", "k", "m")
    number = w.apply("add", w.apply("mul", i, integer(1000)), w.apply("mul", j, integer(100)))
    number = w.apply("add", number, w.apply("add", w.apply("mul", k, integer(10)), m))
    w.store(w["y"], [i, j, k, m], number)
    return Case(w.function(), (2, 3, 2, 4), lambda r: {"y": np.zeros((2, 3, 2, 4), np.int32)})


def search() -> Case:
    """A loop that ends in a choice: the emitter prints a native break."""
    w = Writer("search", x=Array(float32, 2), y=Array(int32, 1), t=float32)
    (i,) = w.tid("i")

    def body(k: Var, found: Var, stop: Var) -> Sequence[Atom]:
        hit = w.apply("gt", w.load(w["x"], [i, k]), w["t"], hint="hit")
        return w.select(hit, lambda: (k, TRUE), lambda: (found, FALSE))

    found, _ = w.loop(w.shape("x", 1), [integer(-1), FALSE], body, stop=1, hints=["found", "stop"])
    w.store(w["y"], [i], found)
    return Case(w.function(), (5,), lambda r: {"x": reals(r, 5, 8), "y": np.zeros(5, np.int32), "t": 1.5})


def stop_in_the_middle() -> Case:
    """A stop that is computed, used after the loop, and not the last thing that the body does."""
    w = Writer("stop_in_the_middle", x=Array(float32, 2), y=Array(float32, 1), t=float32)
    (i,) = w.tid("i")

    def body(k: Var, total: Var, stop: Var) -> Sequence[Atom]:
        total = w.apply("add", total, w.load(w["x"], [i, k]))
        stop = w.apply("gt", total, w["t"])
        return w.apply("mul", total, constant(1.25, float32)), stop

    total, stopped = w.loop(w.shape("x", 1), [zero(float32), FALSE], body, stop=1)
    w.store(w["y"], [i], w.apply("where", stopped, total, w.apply("neg", total)))
    return Case(w.function(), (6,), lambda r: {"x": reals(r, 6, 5), "y": reals(r, 6), "t": 1.0})


def three_exits() -> Case:
    """Breaks on either side of nested choices."""
    w = Writer("three_exits", x=Array(float32, 2), y=Array(float32, 1))
    (i,) = w.tid("i")

    def body(k: Var, s: Var, stop: Var) -> Sequence[Atom]:
        v = w.load(w["x"], [i, k], "v")
        big = w.apply("gt", v, constant(1.5, float32))
        small = w.apply("lt", v, constant(-1.5, float32))
        negative = w.apply("lt", v, zero(float32))
        grown = w.apply("add", s, v)

        def below() -> Sequence[Atom]:
            return w.select(small, lambda: (w.apply("sub", grown, v), FALSE), lambda: (grown, TRUE))

        return w.select(big, lambda: (v, TRUE), lambda: w.select(negative, below, lambda: (grown, FALSE)))

    s, _ = w.loop(w.shape("x", 1), [zero(float32), FALSE], body, stop=1, hints=["s", "stop"])
    w.store(w["y"], [i], s)
    return Case(w.function(), (16,), lambda r: {"x": reals(r, 16, 12), "y": reals(r, 16)})


def swapping() -> Case:
    """Carries that trade places, in a loop of constant length inside one that runs backwards."""
    w = Writer("swapping", x=Array(int64, 1), y=Array(int64, 2), n=int32)
    (i,) = w.tid("i")

    def inner(k: Var, a: Var, b: Var, c: Var) -> Sequence[Atom]:
        return b, w.apply("add", a, b), a

    def outer(k: Var, a: Var, b: Var, c: Var) -> Sequence[Atom]:
        a, b, c = w.loop(integer(3), [a, b, c], inner)
        return w.apply("add", c, w.apply("int64", k)), a, b

    first = w.load(w["x"], [i])
    results = w.loop(w["n"], [first, constant(1, int64), constant(2, int64)], outer, reverse=True)
    for column, value in enumerate(results):
        w.store(w["y"], [i, integer(column)], value)
    return Case(
        w.function(), (4,), lambda r: {"x": r.integers(-9, 9, 4), "y": np.zeros((4, 3), np.int64), "n": 70}
    )


def newton() -> Case:
    w = Writer("newton", x=Array(float64, 1), y=Array(float64, 1))
    (i,) = w.tid("i")
    a = w.load(w["x"], [i], "a")

    def body(r: Var, stop: Var) -> Sequence[Atom]:
        far = w.apply("gt", w.apply("abs", w.apply("sub", w.apply("mul", r, r), a)), constant(1e-9, float64))
        better = w.apply("mul", constant(0.5, float64), w.apply("add", r, w.apply("div", a, r)))
        return w.select(far, lambda: (better, FALSE), lambda: (r, TRUE))

    root, _ = w.repeat([a, FALSE], body, stop=1, hints=["r", "stop"])
    w.store(w["y"], [i], root)
    return Case(w.function(), (8,), lambda r: {"x": r.uniform(0.5, 9.0, 8), "y": np.zeros(8)})


def from_the_end() -> Case:
    """Indices that count from the end, and one array through two indices and back."""
    w = Writer("from_the_end", x=Array(float32, 1))
    (i,) = w.tid("i")
    back = w.apply("sub", integer(-1), i)
    here, there = w.load(w["x"], [i]), w.load(w["x"], [back])
    w.store(w["x"], [i], there)
    w.store(w["x"], [back], here)
    return Case(w.function(), (4,), lambda r: {"x": reals(r, 8)})


def vectors() -> Case:
    """Vector parameters, elements, carries, constants and components at run time."""
    w = Writer("vectors", x=Array(VEC3, 1), y=Array(VEC3, 1), z=Array(float32, 1), p=VEC3, j=int32)
    (i,) = w.tid("i")
    v = w.load(w["x"], [i], "v")

    def body(k: Var, u: Var) -> Sequence[Atom]:
        at = w.apply("mod", w.apply("add", k, i), integer(3))
        return (w.apply("insert", w.apply("add", u, w["p"]), at, w.apply("extract", v, at)),)

    (u,) = w.loop(integer(4), [zero(VEC3)], body, hints=["u"])
    w.store(w["y"], [i], w.apply("mul", u, w.apply("extract", u, w["j"])))
    w.atomic_add(w["y"], [i], w["p"])
    w.store(w["z"], [i], w.apply("dot", u, v))
    return Case(
        w.function(),
        (5,),
        lambda r: {"x": reals(r, 5, 3), "y": reals(r, 5, 3), "z": reals(r, 5), "p": reals(r, 3), "j": -2},
    )


def matrices() -> Case:
    w = Writer("matrices", x=Array(MAT22, 1), y=Array(MAT22, 1), z=Array(Vec(float32, 2), 1), j=int32)
    (i,) = w.tid("i")
    m = w.load(w["x"], [i], "m")
    product = w.apply("mul", m, m)
    w.store(w["y"], [i], w.apply("insert", product, w["j"], integer(0), constant(7.0, float32)))
    w.store(w["z"], [i], w.apply("row", m, w["j"]))
    return Case(
        w.function(),
        (4,),
        lambda r: {"x": reals(r, 4, 2, 2), "y": reals(r, 4, 2, 2), "z": reals(r, 4, 2), "j": 1},
    )


def counters() -> Case:
    """The old value of an atomic is an index: what it is to each thread depends on the threads before."""
    w = Writer("counters", x=Array(float32, 1), y=Array(float32, 1), n=Array(int32, 1), tiny=Array(int8, 1))
    (i,) = w.tid("i")
    v = w.load(w["x"], [i])

    def push() -> Sequence[Atom]:
        w.store(w["y"], [w.atomic_add(w["n"], [integer(0)], integer(1))], v)
        return ()

    w.select(w.apply("gt", v, zero(float32)), push, lambda: ())
    w.atomic_add(w["tiny"], [integer(0)], constant(100, int8))
    return Case(
        w.function(),
        (12,),
        lambda r: {
            "x": reals(r, 12),
            "y": np.zeros(12, np.float32),
            "n": np.zeros(1, np.int32),
            "tiny": np.zeros(1, np.int8),
        },
    )


def saving() -> Case:
    """What a loop pushes, the reversed loop pops: mixed widths, and more than the first arena holds."""
    w = Writer("saving", x=Array(float64, 1), y=Array(float64, 1), n=int32)
    (i,) = w.tid("i")
    stack = Stack("s")

    def push(k: Var, s: Var) -> Sequence[Atom]:
        odd = w.apply("eq", w.apply("mod", k, integer(2)), integer(1))
        w.emit(Save(stack, (odd, s, k, constant(3, uint8)), LINE))
        return (w.apply("add", w.apply("mul", s, constant(0.5, float64)), constant(1, float64)),)

    def pop(k: Var, total: Var) -> Sequence[Atom]:
        outs = (Var(bool_, "odd"), Var(float64, "s"), Var(int32, "kk"), Var(uint8, "three"))
        w.emit(Restore(stack, outs, LINE))
        weighted = w.apply(
            "mul", outs[1], w.apply("float64", w.apply("add", outs[2], w.apply("int32", outs[3])))
        )
        return (w.apply("where", outs[0], w.apply("sub", total, weighted), w.apply("add", total, weighted)),)

    first = w.load(w["x"], [i])
    count = w.apply("add", w["n"], i)
    w.loop(count, [first], push)
    (total,) = w.loop(count, [zero(float64)], pop, reverse=True)
    w.store(w["y"], [i], total)
    return Case(w.function(), (3,), lambda r: {"x": r.uniform(-1, 1, 3), "y": np.zeros(3), "n": 1000})


def hard_names() -> Case:
    """Names that C++ or a library owns, that look like the emitter's own, or that are no ASCII."""
    names = ("double", "sinf", "status", "x_n0", "x", "α", "char", "atomicAdd", "x_at", "given")
    w = Writer("double", **{name: Array(float32, 1) for name in names})
    (i,) = w.tid("int")
    total: Atom = zero(float32)
    for name in names:
        total = w.apply("add", total, w.load(w[name], [i], name), hint=name)
    w.store(w["x"], [i], w.apply("sin", total, hint="goto"))
    return Case(w.function(), (3,), lambda r: {name: reals(r, 3) for name in names}, exact=False)


def backwards() -> Function:
    """Fills an array from its end."""
    w = Writer("backwards", y=Array(float32, 1))
    (i,) = w.tid("i")
    w.store(w["y"], [w.apply("sub", integer(-1), i)], w.apply("float32", i))
    return w.function()


def appending() -> Function:
    """Appends a number of values that depends on the thread to two residuals."""
    w = Writer("appending", x=Array(float32, 1), kept=Array(float32, 1), flags=Array(bool_, 1))
    (i,) = w.tid("i")

    def body(k: Var) -> Sequence[Atom]:
        v = w.load(w["x"], [k])
        w.emit(Append(w["kept"], v, LINE))
        return ()

    w.loop(i, [], body)
    w.emit(Append(w["flags"], w.apply("gt", i, integer(1)), LINE))
    return w.function()


def endless() -> Function:
    """Never ends."""
    w = Writer("endless", y=Array(float32, 1))
    (i,) = w.tid("i")
    w.repeat([zero(float32), FALSE], lambda c, stop: (w.apply("add", c, constant(1, float32)), FALSE), stop=1)
    w.store(w["y"], [i], zero(float32))
    return w.function()


def checked() -> Function:
    """Asserts that x[i] < limit."""
    w = Writer("checked", x=Array(float32, 1), limit=float32)
    i, _ = w.tid("i", "j")
    w.check(w.apply("lt", w.load(w["x"], [i]), w["limit"]), "assertion", "x is too large")
    w.store(w["x"], [i], zero(float32))
    return w.function()


CASES: tuple[Case, ...] = (
    saxpy(),
    transpose(),
    volume(),
    search(),
    stop_in_the_middle(),
    three_exits(),
    swapping(),
    newton(),
    from_the_end(),
    vectors(),
    matrices(),
    conversions(),
    halves(),
    roundings(),
    brains(),
    wrapping(),
    division(),
    counters(),
    saving(),
    special_numbers(),
    hard_names(),
    mathematics(),
)
