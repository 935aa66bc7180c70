"""Every record of the table at every type that tests use, with operands drawn from its domain.

Knows the table and the IR; must not know what the records mean.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np

import kernelab.builtins  # fills the table
from kernelab.backend.cpu import interpreter
from kernelab.lang import ops
from kernelab.lang.build import Builder
from kernelab.lang.ir import Function, Var
from kernelab.lang.ops import (
    Dims,
    KindPattern,
    MatPattern,
    Op,
    Pattern,
    ScalarPattern,
    VecPattern,
    instantiate,
)
from kernelab.lang.rounding import computed, rounded
from kernelab.lang.types import (
    Array,
    Quat,
    Scalar,
    Value,
    bool_,
    float32,
    float64,
    int32,
    int64,
    is_differentiable,
    scalar_of,
    shape_of,
    uint8,
)
from kernelab.lang.verify import verify
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.vjp import vjp

assert kernelab.builtins

Numpy = np.ndarray[Any, Any]

SCALARS = (bool_, int32, int64, uint8, float32, float64)
LANES = 16
ON_DEMAND = ("vec1", "vec5", "vec16d", "vec6i", "mat11", "mat11d", "mat23i", "mat28ub", "mat1x12", "mat12x1d")
"""Constructors of types that are not listed."""
NAMES = (*ops.names(), *ON_DEMAND)


@dataclass(frozen=True, slots=True)
class Case:
    """A record at operand types, with its result type."""

    op: Op
    types: tuple[Value, ...]
    result: Value

    @property
    def name(self) -> str:
        return f"{self.op.name}({', '.join(map(str, self.types))})"

    @property
    def active(self) -> tuple[str, ...]:
        """The names of the operands that carry derivatives, if the result does."""
        if not is_differentiable(self.result):
            return ()
        pairs = zip(self.op.params, self.types, strict=True)
        return tuple(param.name for param, type in pairs if is_differentiable(type))

    def draw(self, seed: int = 0) -> list[Numpy]:
        """Operands from the record's domain, one item a lane."""
        rng = np.random.default_rng(seed)
        return [_drawn(rng, type, domain) for type, domain in zip(self.types, self.op.domain, strict=True)]

    def function(self) -> Function:
        """The function of the operands that applies the record."""
        params = [Var(type, param.name) for param, type in zip(self.op.params, self.types, strict=True)]
        builder = Builder()
        result = builder.let(self.op, params, self.result)
        return Function("applied", tuple(params), builder.close(result))

    def kernel(self, name: str) -> Function:
        """The kernel that applies the record to elements of arrays, named after the operands."""
        return kernel_of(name, {"": self})

    def out(self) -> Numpy:
        """An array for the kernel's results."""
        return zeros(self.result)


def kernel_of(name: str, applied: Mapping[str, Case]) -> Function:
    """A kernel that applies records, each to arrays of its own, whose names end as its key says."""
    thread, builder = Var(int32, "i"), Builder()
    params: list[Var] = []
    for suffix, case in applied.items():
        operands = zip(case.op.params, case.types, strict=True)
        arrays = [Var(Array(type, 1), param.name + suffix) for param, type in operands]
        out = Var(Array(case.result, 1), f"out{suffix}")
        loaded = [builder.load(array, [thread]) for array in arrays]
        builder.store(out, [thread], builder.let(case.op, loaded, case.result))
        params += [*arrays, out]
    return Function(name, tuple(params), builder.close(), (thread,))


def zeros(type: Value, lanes: int = LANES) -> Numpy:
    """A zero for each lane."""
    return np.zeros((lanes, *shape_of(type)), scalar_of(type).dtype)


def expected(case: Case, operands: list[Numpy]) -> Numpy:
    """What the record's NumPy oracle says."""
    with np.errstate(all="ignore"):
        value = computed(case.op.numpy, operands, scalar_of(case.result).dtype)
    return np.broadcast_to(value, (LANES, *shape_of(case.result)))


def _drawn(rng: np.random.Generator, type: Value, domain: tuple[float, float]) -> Numpy:
    shape, scalar = (LANES, *shape_of(type)), scalar_of(type)
    if scalar == bool_:
        return rng.integers(0, 2, shape).astype(bool)
    low, high = domain
    if scalar.is_int:
        if scalar.kind == "uint":
            low, high = max(low, 0.0), max(high, 3.0)
        return rng.integers(int(np.ceil(low)), int(np.floor(high)) + 1, shape).astype(scalar.dtype)
    return rounded(rng.uniform(low, high, shape), scalar.dtype)


def cases(scalars: tuple[Scalar, ...] = SCALARS) -> Iterator[Case]:
    """Every record at the types that its patterns allow, lengths from 2 to 4."""
    for name in NAMES:
        for op in ops.overloads(name):
            yield from _cases(op, scalars)


def _cases(op: Op, scalars: tuple[Scalar, ...]) -> Iterator[Case]:
    patterns = [param.pattern for param in op.params] + [op.result]
    kinds = {p.name: p for pattern in patterns for p in _scalar_patterns(pattern)}
    lengths = sorted({length for pattern in patterns for length in _lengths(pattern)})
    choices = [[s for s in scalars if s.kind in pattern.kinds] for pattern in kinds.values()]
    for scalar, length in product(product(*choices), _sizes(len(lengths))):
        dims = dict(zip(kinds, scalar, strict=True)) | dict(zip(lengths, length, strict=True))
        for alike in _kinds(dims, lengths):
            types = tuple(instantiate(param.pattern, dims | alike) for param in op.params)
            result = op.infer(types)
            if result is not None and all(scalar_of(type) in scalars for type in types):
                yield Case(op, types, result)


def _kinds(dims: Dims, lengths: list[str]) -> list[Dims]:
    """Vectors proper; and quaternions in place of vectors of length 4, where a record knows one length."""
    floats = all(value.is_float for value in dims.values() if isinstance(value, Scalar))
    if len(lengths) != 1 or dims[lengths[0]] != 4 or not floats:
        return [{}]
    return [{}, {f"kind of {lengths[0]}": Quat}]


def _sizes(count: int) -> list[tuple[int, ...]]:
    """Some lengths for so many variables: each one from 2 to 4, together and different."""
    ways = product(range(3), range(2))
    return sorted({tuple((first + step * k) % 3 + 2 for k in range(count)) for first, step in ways})


def _scalar_patterns(pattern: Pattern) -> list[ScalarPattern]:
    inner = pattern.scalar if isinstance(pattern, VecPattern | MatPattern | KindPattern) else pattern
    return [inner] if isinstance(inner, ScalarPattern) else []


def _lengths(pattern: Pattern) -> list[str]:
    match pattern:
        case VecPattern(_, n):
            found: list[int | str] = [n]
        case MatPattern(_, n, m):
            found = [n, m]
        case _:
            found = []
    return [length for length in found if isinstance(length, str)]


def is_reachable(case: Case) -> bool:
    """Whether the record is the one that operands of these types get."""
    found = ops.resolve(case.op.name, case.types)
    return found is not None and found[0] is case.op and found[1] == case.result


def named(case: Case, operands: list[Numpy]) -> dict[str, Numpy]:
    """Operands by name."""
    return dict(zip([param.name for param in case.op.params], operands, strict=True))


@cache
def pushed(case: Case) -> Function:
    """The tangent program of the record."""
    return verify(jvp(case.function(), case.active))


@cache
def pulled(case: Case) -> Function:
    """The adjoint program of the kernel that applies the record."""
    return verify(vjp(case.kernel("kernel"), [*case.active, "out"]).adjoint)


def tangent(case: Case, operands: list[Numpy], dots: dict[str, Numpy]) -> Numpy:
    """The tangent of the result, for tangents of the operands that carry derivatives."""
    _, moved = interpreter.evaluate(pushed(case), *operands, *dots.values())
    return moved


def cotangents(case: Case, operands: list[Numpy], w: Numpy) -> dict[str, Numpy]:
    """What the adjoint of the kernel adds to the adjoints of the operands."""
    arrays = named(case, operands) | {"out": case.out(), "out_bar": w.copy()}
    bars = {f"{name}_bar": np.zeros_like(arrays[name]) for name in case.active}
    interpreter.run(pulled(case), [LANES], arrays | bars)
    return {name: bars[f"{name}_bar"] for name in case.active}


def case_of(name: str, *types: Value) -> Case:
    """The case of the record that operands of these types get."""
    found = ops.resolve(name, types)
    assert found is not None, f"no {name} of {types}"
    return Case(found[0], types, found[1])


def lanes(*values: Any, dtype: Any = np.float64) -> Numpy:
    """Values, one for each of the first lanes; the last is repeated."""
    array = np.array(values, dtype)
    return np.concatenate([array, np.repeat(array[-1:], LANES - len(array), axis=0)])
