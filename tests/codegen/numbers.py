"""Kernels about numbers of every type, each with a launch: conversions, roundings, ends of ranges."""

import numpy as np

import kernelab.builtins  # noqa: F401  fills the table
from kernelab.lang.build import constant, integer, zero
from kernelab.lang.ir import Atom
from kernelab.lang.rounding import BFLOAT16
from kernelab.lang.types import (
    SCALARS,
    Array,
    Scalar,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int32,
    int64,
    uint32,
    uint64,
)
from tests.codegen.writer import Arguments, Case, Writer


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
