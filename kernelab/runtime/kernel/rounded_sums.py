"""Sums of narrow floats that stop growing: how many additions they bear, and the warning."""

from collections.abc import Iterable

from kernelab.backend.cpu.split import MOST_THREADS
from kernelab.codegen.vectors.variation import met_in_place
from kernelab.errors import Diagnostic
from kernelab.lang.build import elem_of
from kernelab.lang.ir import Function, Var
from kernelab.lang.types import Array, bfloat16, float16, float32, scalar_of

GROWS_TO = {bfloat16: 1 << 8, float16: 1 << 11, float32: 1 << 24}
"""The sum of ones at which another one is lost."""


def most_additions(params: Iterable[Var]) -> int:
    """How many ones may be added to an element of the narrowest of some arrays without loss."""
    scalars = (scalar_of(elem_of(param)) for param in params if isinstance(param.type, Array))
    return min((GROWS_TO.get(scalar, MOST_THREADS) for scalar in scalars), default=MOST_THREADS)


def rounded_sum(adjoint: Function, threads: int) -> Diagnostic | None:
    """The warning where too many threads add to one element of a gradient; None where none do."""
    for stmt in met_in_place(adjoint):
        scalar = scalar_of(elem_of(stmt.array))
        if stmt.array in adjoint.params and threads > GROWS_TO.get(scalar, MOST_THREADS):
            name = stmt.array.hint.removesuffix("_bar")
            message = (
                f"in {scalar} the gradient of `{name}` stops growing after some {GROWS_TO[scalar]:,} "
                f"additions: {threads:,} threads read one element of it, and `{name}` is written, too"
            )
            wider = "float64" if scalar == float32 else "float32"
            hint = f"use {wider}, or write to another array than `{name}`"
            return Diagnostic(message, stmt.span, "sums", "warning", hint=hint)
    return None
