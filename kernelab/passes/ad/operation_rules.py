"""Differentiates one operation in either direction: `push` its tangents forward, `pull` cotangents back.

    y = sin(x)      from x_dot, that of x:    x_dot * cos(x)      from g, that of y:    g * cos(x)
    y = a * b                                 a_dot * b + a * b_dot                     g * b, g * a
    y = a - b                                 a_dot - b_dot                             g, -g
    y = floor(x)                              none                                      none

None stands for a derivative of zero.  Knows records; must not know statements, but for atomics.
"""

from collections.abc import Iterable, Sequence

from kernelab.errors import Diagnostic, KernelTypeError
from kernelab.lang.build import Builder, Expr, type_of
from kernelab.lang.ir import Atom, Atomic, AtomicKind
from kernelab.lang.ops import Bilinear, Expanded, Linear, Op, Partials, Rules, Undefined, Zero
from kernelab.lang.types import Scalar


def push(op: Op, y: Expr, xs: Sequence[Expr], dots: Sequence[Expr | None]) -> Expr | None:
    """The tangent of ``y = op(xs)`` from the tangents of the operands; None is zero."""
    if all(dot is None for dot in dots):
        return None
    match op.derivative:
        case Partials(fn, singular):
            partials = as_tuple(fn(y, *xs))
            return total(scaled(d, p, singular) for d, p in zip(dots, partials, strict=True) if d is not None)
        case Linear(_, signs) if signs:
            return total(d if sign > 0 else -d for sign, d in zip(signs, dots, strict=True) if d is not None)
        case Linear():
            return op_of(op, y, [x.const(0) if d is None else d for x, d in zip(xs, dots, strict=True)])
        case Bilinear():
            (a, b), (a_dot, b_dot) = xs, dots
            left = None if a_dot is None else op_of(op, y, [a_dot, b])
            right = None if b_dot is None else op_of(op, y, [a, b_dot])
            return total([left, right])
        case Rules(rule):
            moved: Expr | None = rule(y, tuple(xs), tuple(dots))
            return moved
        case Zero() | Undefined():
            return None
        case Expanded():
            raise AssertionError(f"{op.name} should have been expanded")


def op_of(op: Op, y: Expr, operands: Sequence[Expr]) -> Expr:
    """The operation applied again, to other operands of the same types."""
    return Expr(y.builder, y.builder.let(op, [x.atom for x in operands], y.type))


def scaled(d: Expr, partial: Expr | float | None, singular: bool) -> Expr | None:
    """A derivative times a partial; where the partial may be infinite, 0 if the derivative is 0."""
    if partial is None or (not isinstance(partial, Expr) and partial == 0):
        return None
    if not isinstance(partial, Expr) and partial == -1:
        return -d
    if singular and isinstance(partial, Expr):
        return d.apply("chain", partial)
    return d * partial


def total(terms: Iterable[Expr | None]) -> Expr | None:
    """The sum of the terms that are not None; None if there is none."""
    result: Expr | None = None
    for term in terms:
        if term is not None:
            result = term if result is None else result + term
    return result


def as_tuple(value: object) -> tuple[Expr | float | None, ...]:
    """The result of a rule as a tuple with one item for each operand."""
    return value if isinstance(value, tuple) else (value,)


def pull(op: Op, y: Expr, xs: Sequence[Expr], g: Expr, masked: bool = False) -> tuple[Expr | None, ...]:
    """The cotangents of the operands of ``y = op(xs)`` from the cotangent `g` of its result.

    Where `g` may be a zero that masks a branch, it is multiplied so that it stays zero.
    """
    match op.derivative:
        case Partials(fn, singular):
            return tuple(scaled(g, partial, singular or masked) for partial in as_tuple(fn(y, *xs)))
        case Bilinear() if masked and all(isinstance(x.type, Scalar) for x in xs):
            a, b = xs
            return scaled(g, b, True), scaled(g, a, True)
        case Linear(transpose):
            return _cotangents(transpose(g, *xs))
        case Bilinear(left, right):
            return _cotangents((left(g, *xs), right(g, *xs)))
        case Rules(_, rule):
            return _cotangents(rule(y, tuple(xs), g))
        case Zero() | Undefined():
            return (None,) * len(xs)
        case Expanded():
            raise AssertionError(f"{op.name} should have been expanded")


def _cotangents(value: object) -> tuple[Expr | None, ...]:
    return tuple(item if isinstance(item, Expr) else None for item in as_tuple(value))


# --------------------------------------------------------------------------------------------------- atomics
#
# The cotangent of an element goes to the one value that it holds in the end: that of the thread which was the
# first to reach it, or the value from before the launch if no thread did better.  Threads that ran one after
# another are swept in reverse, so that each time the element changed hands it does so again, backwards; that
# it changed is known from what the thread found there, which `record` keeps.  Of a vector or matrix each
# component goes its own way.


EXTREMA: tuple[AtomicKind, ...] = ("min", "max")


def better(builder: Builder, kind: AtomicKind, value: Atom, old: Atom) -> Atom:
    """Whether a value replaces what an element held."""
    return builder.apply("lt" if kind == "min" else "gt", value, old)


def shared(builder: Builder, wins: Sequence[Atom], winner: Atom, other: Atom) -> Atom:
    """A vector or matrix with the components of one where it wins, of the other elsewhere."""
    pairs = zip(wins, builder.components(winner), builder.components(other), strict=True)
    return builder.apply(str(type_of(winner)), *(builder.apply("where", *parts) for parts in pairs))


def winning(builder: Builder, kind: AtomicKind, value: Atom, old: Atom) -> list[Atom]:
    """Whether each component of a value replaces what the element held there."""
    pairs = zip(builder.components(value), builder.components(old), strict=True)
    return [better(builder, kind, new, before) for new, before in pairs]


def is_one(value: Atom) -> bool:
    """Whether a value wins or loses as a whole."""
    return isinstance(type_of(value), Scalar)


def refused(stmt: Atomic) -> KernelTypeError:
    """The error of an atomic that is differentiated and has no derivative."""
    name = stmt.array.hint
    message = f"atomic_{stmt.kind} of {name} has no derivative"
    note = "whose value stays depends on the order in which threads run"
    hint = f"use atomic_add, atomic_min or atomic_max, or leave out the gradient of {name}"
    return KernelTypeError(Diagnostic(message, stmt.span, "derivative", note=note, hint=hint))
