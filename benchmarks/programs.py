"""Random straight-line kernels of a given number of operations, the same text for every system.

The language's names have the prefix ``wp.``, which both understand.

Vectors and matrices from about 10 operations on, as in simulation code.  Every text is new, so no cache
helps.
"""

import random

VECTOR = ("{a} + {b}", "{a} - {b}", "wp.cross({a}, {b})", "{a} * {s}", "{m} * {a}", "wp.cw_mul({a}, {b})")
SCALAR = ("wp.dot({a}, {b})", "wp.sin({s})", "{s} * {t}", "{s} + {t}", "wp.length({a})", "wp.tanh({s})")
MATRIX = ("{m} * {n}", "{m} + {n}", "wp.transpose({m})", "wp.outer({a}, {b})", "{m} * {s}")


def small(name: str, seed: int) -> str:
    """Four scalar operations: load, load, compute, store."""
    constant = random.Random(seed).random()
    return "\n".join(
        [
            f"def {name}(x: wp.array[float], y: wp.array[float]):",
            "    i = wp.tid()",
            f"    y[i] = wp.sin(x[i]) * x[i] + {constant:.6f}",
            "",
        ]
    )


def large(name: str, seed: int, operations: int) -> str:
    """`operations` operations on vec3, mat33 and floats, all of which reach the result."""
    rng = random.Random(seed)
    names = {"vec": ["va", "vb"], "mat": ["ma"], "num": ["sa"]}
    lines = [
        f"def {name}(p: wp.array[wp.vec3], q: wp.array[wp.mat33], y: wp.array[float]):",
        "    i = wp.tid()",
        f"    va = p[i] * {rng.random():.6f}",
        "    vb = p[i + 1]",
        "    ma = q[i]",
        "    sa = wp.dot(va, vb)",
    ]
    for k in range(operations - 4):
        kind, forms = rng.choice([("vec", VECTOR), ("num", SCALAR), ("mat", MATRIX)])
        a, b = _recent(rng, names["vec"]), _recent(rng, names["vec"])
        m, n = _recent(rng, names["mat"]), _recent(rng, names["mat"])
        s, t = _recent(rng, names["num"]), _recent(rng, names["num"])
        expression = rng.choice(forms).format(a=a, b=b, m=m, n=n, s=s, t=t)
        scale = {"vec": " * 0.5", "mat": " * 0.3", "num": " * 0.5"}[kind]
        lines.append(f"    {kind}{k} = ({expression}){scale}")
        names[kind].append(f"{kind}{k}")
    last = {kind: found[-1] for kind, found in names.items()}
    lines += [f"    y[i] = {last['num']} + wp.dot({last['mat']} * {last['vec']}, vb)", ""]
    return "\n".join(lines)


def _recent(rng: random.Random, found: list[str]) -> str:
    return rng.choice(found[-3:])


SIZES = {
    "4 operations": small,
    "40 operations": lambda name, seed: large(name, seed, 40),
    "200 operations": lambda name, seed: large(name, seed, 200),
}
