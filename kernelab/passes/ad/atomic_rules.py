"""Derivatives of atomics, with the condition for an `atomic_min` or `atomic_max` to keep a value.

The cotangent of an element goes to the one value that it holds in the end: that of the thread which was the
first to reach it, or the value from before the launch if no thread did better.  Threads that ran one after
another are swept in reverse, so that each time the element changed hands it does so again, backwards; that it
changed is known from what the thread found there, which `record` keeps.  Of a vector or matrix each component
goes its own way.
"""

from collections.abc import Sequence

from kernelab.errors import Diagnostic, KernelTypeError
from kernelab.lang.build import Builder, type_of
from kernelab.lang.ir import Atom, Atomic, AtomicKind
from kernelab.lang.types import Scalar
from kernelab.passes.ad.record import components

EXTREMA: tuple[AtomicKind, ...] = ("min", "max")


def better(builder: Builder, kind: AtomicKind, value: Atom, old: Atom) -> Atom:
    """Whether a value replaces what an element held."""
    return builder.apply("lt" if kind == "min" else "gt", value, old)


def shared(builder: Builder, wins: Sequence[Atom], winner: Atom, other: Atom) -> Atom:
    """A vector or matrix with the components of one where it wins, of the other elsewhere."""
    pairs = zip(wins, components(builder, winner), components(builder, other), strict=True)
    return builder.apply(str(type_of(winner)), *(builder.apply("where", *parts) for parts in pairs))


def winning(builder: Builder, kind: AtomicKind, value: Atom, old: Atom) -> list[Atom]:
    """Whether each component of a value replaces what the element held there."""
    pairs = zip(components(builder, value), components(builder, old), strict=True)
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
