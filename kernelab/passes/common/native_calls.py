"""Checks of native C++ calls before differentiation, which refuses those without a derivative."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NoReturn

from kernelab.errors import Diagnostic, KernelTypeError
from kernelab.lang.ir import Block, Custom, Function, Native, blocks
from kernelab.lang.native import Snippet
from kernelab.passes.common.effects import block_effects


def refuse_native(stmt: Native, missing: Literal["adj_snippet", "jvp"]) -> NoReturn:
    """Raise KernelTypeError where a derivative would have to pass through a snippet."""
    name = stmt.snippet.name
    if missing == "adj_snippet":
        message = f"no gradient passes through {name}: it is native C++ without an adjoint"
        hint = f"give @func_native an adj_snippet for {name}"
    else:
        message = f"no tangent passes through {name}: it is native C++"
        hint = f"write its tangent in a function decorated with @func_jvp({name})"
    raise KernelTypeError(Diagnostic(message, stmt.span, "derivative", hint=hint))


def refuse_unrepeatable(function: Function) -> None:
    """Raise KernelTypeError where the backward pass would have to run a snippet again and cannot.

    One that returns a value is run again for it; that must change nothing, and find what it found.
    """
    changed = block_effects(function.body).changed
    for stmt, repeated in _natives(function.body, True):
        if not stmt.outs or not repeated:
            continue
        lost = [array for _, array in stmt.arrays if array in changed]
        if lost:
            name = stmt.snippet.name
            message = f"the backward pass cannot call {name} again: the kernel changes {lost[0].hint}"
            hint = f"give @func_native a replay_snippet that returns what {name} returned"
            raise KernelTypeError(Diagnostic(message, stmt.span, "derivative", hint=hint))


def _natives(block: Block, repeated: bool) -> Sequence[tuple[Native, bool]]:
    found = []
    for stmt in block.stmts:
        inside = repeated and not (isinstance(stmt, Custom) and stmt.rules.replay is not None)
        if isinstance(stmt, Native):
            found.append((stmt, repeated))
        for inner in blocks(stmt):
            found += _natives(inner, inside)
    return found


def without(snippet: Snippet, absent: Sequence[bool]) -> Snippet:
    """The snippet with some of its arguments absent: arrays that read as zeros."""
    gone = {param.name for param, is_gone in zip(snippet.arguments, absent, strict=True) if is_gone}
    params = tuple(
        replace(param, access="absent") if param.name in gone else param for param in snippet.params
    )
    return replace(snippet, params=params)
