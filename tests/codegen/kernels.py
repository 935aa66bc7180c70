"""Kernels written directly as IR, each with a launch: what every target must compute alike."""

from collections.abc import Sequence

import numpy as np

import kernelab.builtins  # noqa: F401  fills the table
from kernelab.lang.build import FALSE, TRUE, constant, integer, zero
from kernelab.lang.ir import (
    Append,
    Atom,
    Function,
    Restore,
    Save,
    Stack,
    Var,
)
from kernelab.lang.rounding import BFLOAT16
from kernelab.lang.types import (
    SCALARS,
    Array,
    Scalar,
    Vec,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
    uint32,
    uint64,
)
from tests.codegen.writer import LINE, MAT22, VEC3, Arguments, Case, Writer, reals


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


def conversions() -> Case:
    """Every scalar type is loaded, converted and stored."""
    w = Writer(
        "conversions",
        **{f"in_{s}": Array(s, 1) for s in SCALARS},
        **{f"out_{s}": Array(s, 1) for s in SCALARS},
    )
    (i,) = w.tid("i")
    for scalar, source in zip(SCALARS, [*SCALARS[1:], SCALARS[0]], strict=True):
        w.store(w[f"out_{scalar}"], [i], w.apply(str(scalar), w.load(w[f"in_{source}"], [i])))

    def draw(r: np.random.Generator) -> Arguments:
        given = {f"in_{s}": r.integers(0, 2 if s == bool_ else 90, 6).astype(s.dtype) for s in SCALARS}
        return given | {f"out_{s}": np.zeros(6, s.dtype) for s in SCALARS}

    return Case(w.function(), (6,), draw)


def halves() -> Case:
    """float16 is rounded after every operation, also where it overflows or loses bits to zero."""
    w = Writer("halves", x=Array(float16, 1), y=Array(float16, 1), z=Array(float16, 1), a=float16)
    (i,) = w.tid("i")
    u = w.load(w["x"], [i])
    square = w.apply("mul", u, w.apply("mul", u, u))
    w.store(w["y"], [i], w.apply("add", square, constant(0.1, float16)))
    w.atomic_add(w["z"], [i], w.apply("div", w.apply("mul", w["a"], u), constant(3, float16)))

    def draw(r: np.random.Generator) -> Arguments:
        x = np.exp(r.uniform(-12, 5, 40)).astype(np.float16)
        return {"x": x, "y": np.zeros(40, np.float16), "z": np.ones(40, np.float16), "a": 0.5}

    return Case(w.function(), (40,), draw)


def roundings() -> Case:
    """Every half becomes a float, and floats of both widths become halves, near ties and near the ends."""
    w = Writer(
        "roundings",
        h=Array(float16, 1),
        f=Array(float32, 1),
        d=Array(float64, 1),
        wide=Array(float32, 1),
        from_f=Array(float16, 1),
        from_d=Array(float16, 1),
    )
    (i,) = w.tid("i")
    w.store(w["wide"], [i], w.apply("float32", w.load(w["h"], [i])))
    w.store(w["from_f"], [i], w.apply("float16", w.load(w["f"], [i])))
    w.store(w["from_d"], [i], w.apply("float16", w.load(w["d"], [i])))

    def draw(r: np.random.Generator) -> Arguments:
        h = np.arange(2**16, dtype=np.uint16).view(np.float16)
        with np.errstate(all="ignore"):
            between = (h.astype(np.float64) + np.roll(h, 1).astype(np.float64)) / 2
        off = between * (1 + r.integers(-1, 2, 2**16) * 2.0**-40)
        blank = {"wide": np.zeros(2**16, np.float32), "from_f": np.zeros_like(h), "from_d": np.zeros_like(h)}
        return {"h": h, "f": off.astype(np.float32), "d": off} | blank

    return Case(w.function(), (2**16,), draw)


def brains() -> Case:
    """bfloat16 becomes a float, and every wider number a bfloat16, near ties and near the ends."""
    wide = {"f": float32, "d": float64, "h": float16, "i": int32, "u": uint32, "l": int64, "ul": uint64}
    arrays = {name: Array(scalar, 1) for name, scalar in wide.items()}
    outs = {f"from_{name}": Array(bfloat16, 1) for name in [*wide, "b"]}
    w = Writer("brains", **arrays, b=Array(bfloat16, 1), as_f=Array(float32, 1), **outs)
    (i,) = w.tid("i")
    b = w.load(w["b"], [i])
    w.store(w["as_f"], [i], w.apply("float32", b))
    w.store(w["from_b"], [i], w.apply("add", w.apply("mul", b, b), constant(0.1, bfloat16)))
    for name in wide:
        w.store(w[f"from_{name}"], [i], w.apply("bfloat16", w.load(w[name], [i])))

    def draw(r: np.random.Generator) -> Arguments:
        n = 2**16
        b = np.arange(n, dtype=np.uint16).view(BFLOAT16)
        with np.errstate(all="ignore"):
            between = (b.astype(np.float64) + np.roll(b, 1).astype(np.float64)) / 2
        off = between * (1 + r.integers(-1, 2, n) * 2.0**-40)
        half = (r.integers(256, 512, n) * 2 + 1) << r.integers(0, 53, n)
        whole = (half + r.integers(-1, 2, n)) * r.choice([-1, 1], n)
        given = {"f": off, "d": off, "h": b.view(np.float16), "l": whole, "ul": abs(whole).astype("u8") * 2}
        given |= {"i": whole % 2**31, "u": whole % 2**32}
        with np.errstate(all="ignore"):
            typed = {name: given[name].astype(scalar.dtype) for name, scalar in wide.items()}
        blank = {name: np.zeros(n, BFLOAT16) for name in outs}
        return typed | blank | {"b": b, "as_f": np.zeros(n, np.float32)}

    return Case(w.function(), (2**16,), draw)


def wrapping() -> Case:
    """Integers wrap around, in every width."""
    types: tuple[Scalar, ...] = tuple(s for s in SCALARS if s.is_int)
    w = Writer("wrapping", **{f"x_{s}": Array(s, 1) for s in types})
    (i,) = w.tid("i")
    for s in types:
        v = w.load(w[f"x_{s}"], [i])
        cubed = w.apply("mul", w.apply("mul", v, v), w.apply("neg", v))
        w.store(w[f"x_{s}"], [i], w.apply("sub", cubed, constant(2 ** (s.bits - 1) - 1, s)))

    def draw(r: np.random.Generator) -> Arguments:
        infos = {s: np.iinfo(s.dtype) for s in types}
        return {f"x_{s}": r.integers(n.min, n.max, 20, s.dtype, endpoint=True) for s, n in infos.items()}

    return Case(w.function(), (20,), draw)


def division() -> Case:
    """Floor division and remainder as in Python, with the smallest integer over -1."""
    w = Writer("division", a=Array(int32, 1), b=Array(int32, 1), q=Array(int32, 1), r=Array(int32, 1))
    (i,) = w.tid("i")
    a, b = w.load(w["a"], [i]), w.load(w["b"], [i])
    w.check(w.apply("ne", b, integer(0)), "division", "integer division by zero")
    w.store(w["q"], [i], w.apply("floordiv", a, b))
    w.store(w["r"], [i], w.apply("mod", a, b))

    def draw(r: np.random.Generator) -> Arguments:
        a, b = r.integers(-20, 20, 30, np.int32), r.integers(1, 6, 30, np.int32) * np.int32(-1)
        a[0], b[0] = -(2**31), -1
        b[10:] *= -1
        return {"a": a, "b": b, "q": np.zeros(30, np.int32), "r": np.zeros(30, np.int32)}

    return Case(w.function(), (30,), draw)


def counters() -> Case:
    """The old value of an atomic is an index: what it is to each thread depends on the threads before."""
    w = Writer("counters", x=Array(float32, 1), y=Array(float32, 1), n=Array(int32, 1), tiny=Array(int8, 1))
    (i,) = w.tid("i")
    v = w.load(w["x"], [i])

    def push() -> Sequence[Atom]:
        w.store(w["y"], [w.atomic_add(w["n"], [integer(0)], integer(1), "slot")], v)
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


def special_numbers() -> Case:
    """Constants that are hard to spell, and comparisons with NaN."""
    w = Writer(
        "special_numbers", x=Array(float64, 1), y=Array(float32, 1), k=Array(int64, 1), b=Array(bool_, 1)
    )
    doubles = [0.1, 1e-320, -0.0, 1.7976931348623157e308, float("inf"), float("-inf"), float("nan")]
    for at, value in enumerate(doubles):
        w.store(w["x"], [integer(at)], constant(value, float64))
    singles = [0.1, 1e-45, -0.0, 3.4028235e38, float("inf"), float("nan"), 16777217.0]
    for at, value in enumerate(singles):
        w.store(w["y"], [integer(at)], constant(value, float32))
    for at, number in enumerate([-(2**63), 2**63 - 1, -1]):
        w.store(w["k"], [integer(at)], constant(number, int64))
    nan = w.load(w["x"], [integer(6)])
    for at, name in enumerate(["lt", "le", "gt", "ge", "eq", "ne"]):
        w.store(w["b"], [integer(at)], w.apply(name, nan, nan))
    w.store(w["b"], [integer(6)], w.apply("not", w.apply("lt", nan, constant(1, float64))))
    return Case(
        w.function(),
        (1,),
        lambda r: {
            "x": np.zeros(7),
            "y": np.zeros(7, np.float32),
            "k": np.zeros(3, np.int64),
            "b": np.zeros(7, bool),
        },
    )


def hard_names() -> Case:
    """Names that C++ or a library owns, that look like the emitter's own, or that are no ASCII."""
    names = ("double", "sinf", "status", "x_n0", "x", "α", "char", "atomicAdd", "x_at")
    w = Writer("double", **{name: Array(float32, 1) for name in names})
    (i,) = w.tid("int")
    total: Atom = zero(float32)
    for name in names:
        total = w.apply("add", total, w.load(w[name], [i], name), hint=name)
    w.store(w["x"], [i], w.apply("sin", total, hint="goto"))
    return Case(w.function(), (3,), lambda r: {name: reals(r, 3) for name in names}, exact=False)


def mathematics() -> Case:
    """Functions of both widths, some of which come from a library."""
    w = Writer(
        "mathematics", x=Array(float32, 1), y=Array(float64, 1), u=Array(float32, 1), v=Array(float64, 1)
    )
    (i,) = w.tid("i")
    for source, target in (("x", "u"), ("y", "v")):
        value: Atom = w.load(w[source], [i])
        total: Atom = zero(value.type)  # type: ignore[arg-type]
        for name in ("sin", "exp", "tanh", "sqrt", "floor", "abs", "erf", "cbrt"):
            total = w.apply("add", total, w.apply(name, value))
        w.store(w[target], [i], w.apply("add", total, w.apply("pow", value, w.apply("atan2", value, total))))
    return Case(
        w.function(),
        (9,),
        lambda r: {
            "x": r.uniform(0.1, 2, 9).astype(np.float32),
            "y": r.uniform(0.1, 2, 9),
            "u": np.zeros(9, np.float32),
            "v": np.zeros(9),
        },
        exact=False,
    )


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
