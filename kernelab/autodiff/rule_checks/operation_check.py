"""Checks the adjoint of one operation against differences at given points, as a rule that a user wrote is.

The operation is applied by a function over float64 that has no rule of its own: its adjoint is made by the
same passes as any.
"""

from collections.abc import Callable, Sequence

import numpy as np

from kernelab.autodiff.rule_checks.rule_check import RuleCheck
from kernelab.autodiff.rule_checks.rule_samples import Point
from kernelab.backend.cpu.lanes import Numpy
from kernelab.data_classes import dataclass
from kernelab.lang.build import Builder, type_of
from kernelab.lang.ir import Const, CustomRules, Function, Let, Var
from kernelab.lang.ops import Op, Undefined
from kernelab.lang.types import Value, float64, is_differentiable, scalar_of

CLOSER = 1e-6
"""How much shorter the steps are that a mistake has to show at, too."""

NEAR, EVEN, JUMP = 1e-10, 1e-3, 0.9
"""A small step, and what share of its change half of it makes where an operation jumps; where smooth, half.

At a jump both sides change alike: where they do not there is a kink, and nothing to compare.
"""

ROUNDING = 1e-11
"""What rounding may change, relative to the terms that the result is a sum of."""


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


@np.errstate(all="ignore")
def wrong_adjoint(operation: Operation, points: Sequence[Numpy]) -> Mistake | None:
    """The first point at which the adjoint of an operation is not its derivative; a point is a row."""
    check, named = _begun(operation, points)
    weights = check.started(named)
    bars, rounding = check.adjoints(named, weights), ROUNDING * check.size_of_terms(weights)
    for name in check.floats:
        x, bar = named[name], bars[name]
        for size in (np.maximum(1.0, np.abs(x)), np.abs(x)):
            along = size * check.rng.uniform(0.5, 1.5, x.shape)
            wrong, closer = (
                check.wrong("grad", named, weights, name, direction, check.inner(bar, direction))
                for direction in (along, CLOSER * along)
            )
            # Of large numbers a step may pass several stairs of `floor`, which look like a slope.
            if wrong is not None and closer is not None:
                at, claimed, slope = wrong
                length = float(np.sum(along[at]))
                return Mistake(at, claimed / length, slope / length, jumps=False)
            jumps = _jumps(check.moved(named, weights, name, along), rounding)
            if jumps.any():
                return Mistake(int(np.argmax(jumps)), 0.0, np.inf, jumps=True)
    return None


def _jumps(look: Callable[[Numpy], Numpy], rounding: Numpy) -> Numpy:
    """At which points there is a jump."""
    here, ahead, behind, halfway = look(np.array([0.0, NEAR, -NEAR, NEAR / 2]))
    change = np.abs(ahead - here)
    is_even = np.abs(ahead - 2.0 * here + behind) <= EVEN * change
    return np.asarray(is_even & (change > rounding) & (np.abs(halfway - here) > JUMP * change))


def adjoints(operation: Operation, points: Sequence[Numpy]) -> list[Numpy]:
    """The adjoints of the operands that have one, where each number of the result has the cotangent 1."""
    check, named = _begun(operation, points)
    check.started(named)
    bars = check.adjoints(named, dict.fromkeys(check.changed, np.ones(())))
    return [bars[name] for name in check.floats]


def _begun(operation: Operation, points: Sequence[Numpy]) -> tuple[RuleCheck, Point]:
    """The check of the function that applies the operation, and its arguments there."""
    applied = _applied(operation)
    named = {param.hint: values for param, values in zip(applied.params, points, strict=True)}
    return RuleCheck(CustomRules(applied)), named


def _applied(operation: Operation) -> Function:
    """The function that applies the operation."""
    types = [type_of(arg) if isinstance(arg, Const) else arg for arg in operation.args]
    params = tuple(Var(type, f"x{k}") for k, type in enumerate(types))
    args = [
        arg if isinstance(arg, Const) else param for arg, param in zip(operation.args, params, strict=True)
    ]
    builder = Builder()
    return Function("applied", params, builder.close(builder.let(operation.op, args, operation.result)))
