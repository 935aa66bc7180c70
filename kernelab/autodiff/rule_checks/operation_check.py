"""Checks the adjoint of one operation against differences at given points.

The operation is applied in a kernel over float64 whose adjoint is made by the same passes as any.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from kernelab.autodiff.rule_checks.rule_samples import calling, evaluate
from kernelab.backend.cpu import interpreter
from kernelab.backend.cpu.lanes import Numpy
from kernelab.data_classes import dataclass
from kernelab.lang.build import Builder, type_of
from kernelab.lang.ir import Const, Function, Let, Var
from kernelab.lang.ops import Derivative, Op, Undefined
from kernelab.lang.types import Value, float64, is_differentiable, scalar_of, shape_of
from kernelab.passes.ad.vjp import vjp

STEP = 1e-5
"""How far an operand is moved, relative to its size."""

CLOSER = 1e-3
"""How much shorter the step is that a mistake has to show at, too."""

TOLERANCE = 1e-3
"""Relative; where the differences to both sides disagree by more there is a kink, and nothing to compare."""

JUMP = 0.9
"""How much of what a step changes half of it changes where an operation jumps; where it is smooth, half."""

ROUNDING = 1e-11
"""What differences may be off besides, relative to the result."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What makes two statements one operation; a whole number that is written down counts by its value."""

    op: Op
    args: tuple[Value | Const, ...]
    result: Value

    @staticmethod
    def of(stmt: Let) -> "Operation":
        types = ((arg, type_of(arg)) for arg in stmt.args)
        args = (a if isinstance(a, Const) and not is_differentiable(type) else type for a, type in types)
        return Operation(stmt.op, tuple(args), type_of(stmt.out))


@dataclass(frozen=True, slots=True)
class Mistake:
    """An adjoint that differs from differences: at which point, and the two values.

    Where the operation `jumps`, it has no derivative, and there is nothing that its adjoint could be.
    """

    point: int
    claimed: float
    slope: float
    jumps: bool


def has_derivative(operation: Operation) -> bool:
    """Whether an operation over float64 has floats to move, a float to look at and a rule to look up."""
    moved = [type for type in operation.args if isinstance(type, Value) and is_differentiable(type)]
    is_wide = all(scalar_of(type) == float64 for type in (*moved, operation.result))
    return bool(moved) and is_wide and not isinstance(operation.op.derivative, Undefined)


def wrong_adjoint(operation: Operation, points: Sequence[Numpy]) -> Mistake | None:
    """The first point at which the adjoint of an operation is not its derivative; a point is a row."""
    seed = _drawn(0, (len(points[0]), *shape_of(operation.result)))
    for k, bar in adjoints(operation, points, seed).items():
        for size in (np.maximum(1.0, np.abs(points[k])), np.abs(points[k])):
            wrong = _compared(operation, points, k, bar, seed, size)
            # Of large numbers a step may pass several stairs of `floor`, which look like a slope.
            if wrong is not None and _compared(operation, points, k, bar, seed, CLOSER * size) is not None:
                return wrong
    return None


def _compared(
    operation: Operation, points: Sequence[Numpy], k: int, bar: Numpy, seed: Numpy, size: Numpy
) -> Mistake | None:
    """The first point at which an adjoint is not the slope of differences along a direction."""
    along = STEP * size * _drawn(1 + k, points[k].shape[1:])
    with np.errstate(all="ignore"):
        here, ahead, behind, halfway = (
            _sums(seed * value(operation, [*points[:k], points[k] + moved, *points[k + 1 :]]))
            for moved in (0.0, along, -along, along / 2)
        )
        slope, claimed = (ahead - behind) / 2, _sums(bar * along)
        noise = ROUNDING * np.abs(here) + np.finfo(np.float64).tiny
        smooth = np.isfinite(slope + claimed)
        smooth &= np.abs(ahead - 2 * here + behind) <= TOLERANCE * np.abs(slope) + noise
        most = np.maximum(np.abs(slope), np.abs(claimed))
        wrong = smooth & (np.abs(slope - claimed) > TOLERANCE * most + noise)
    if not wrong.any():
        return None
    at = int(np.argmax(wrong))
    length = float(_sums(np.abs(along))[at] * (seed[at] if seed.ndim == 1 else 1.0))
    jumps = bool(abs(halfway - here)[at] > JUMP * abs(ahead - here)[at])
    return Mistake(at, float(claimed[at]) / length, float(slope[at]) / length, jumps)


def _drawn(seed: int, operation: Sequence[int]) -> Numpy:
    """Factors that leave no component out; those of a batch differ, as do those of components."""
    return np.random.default_rng(seed).uniform(0.5, 1.5, tuple(operation))


def _sums(values: Numpy) -> Numpy:
    sums: Numpy = np.sum(values.reshape(len(values), -1), axis=1)
    return sums


def value(operation: Operation, points: Sequence[Numpy]) -> Numpy:
    """What the operation gives at some points."""
    return evaluate(_applied(operation), *points)[0]


def adjoints(operation: Operation, points: Sequence[Numpy], seed: Numpy) -> dict[int, Numpy]:
    """The adjoint of each operand that has one, for a cotangent of each result."""
    kernel, program = calling(_applied(operation)), _adjoint(operation, operation.op.derivative)
    # Of a transposed matrix they are a view, and programs want components that lie beside each other.
    numbers = (np.array(one, order="C") for one in (*points, value(operation, points)))
    values = dict(zip(kernel.params, numbers, strict=True))
    bars = {param: np.zeros(values[param].shape) for param in kernel.params if is_differentiable(param.type)}
    bars[kernel.params[-1]] = seed.copy()
    arguments = {param.hint: each for param, each in values.items()}
    arguments |= {f"{param.hint}_bar": bar for param, bar in bars.items()}
    interpreter.run(program, [len(seed)], {param.hint: arguments[param.hint] for param in program.params})
    return {k: bars[param] for k, param in enumerate(kernel.params[:-1]) if param in bars}


@lru_cache(256)
def _applied(operation: Operation) -> Function:
    """The function that applies the operation."""
    types = [type_of(arg) if isinstance(arg, Const) else arg for arg in operation.args]
    params = tuple(Var(type, f"x{k}") for k, type in enumerate(types))
    args = [
        arg if isinstance(arg, Const) else param for arg, param in zip(operation.args, params, strict=True)
    ]
    builder = Builder()
    return Function("applied", params, builder.close(builder.let(operation.op, args, operation.result)))


@lru_cache(256)
def _adjoint(operation: Operation, derivative: Derivative) -> Function:
    """The adjoint of a kernel that calls the function, as long as the record keeps its derivative."""
    kernel = calling(_applied(operation))
    return vjp(kernel, [param.hint for param in kernel.params if is_differentiable(param.type)]).adjoint
