"""Thread indices: `tid()` gives as many as it is unpacked into."""

import ast

from kernelab.errors import Related
from kernelab.frontend.meaning.frame import Frame, counted
from kernelab.frontend.meaning.meanings import Typed
from kernelab.lang.ir import Var
from kernelab.lang.types import int32


def threads(frame: Frame, node: ast.Call, hints: tuple[str, ...]) -> tuple[Typed, ...]:
    """The thread indices that `tid()` gives, as many as there are hints."""
    if not frame.is_kernel:
        raise frame.error(
            node,
            f"tid() stands in a kernel only, and {frame.name} is a function",
            hint="a def that returns a value is a function: return nothing, or pass the index to it",
        )
    if node.args or node.keywords:
        raise frame.error(node, "tid() takes no arguments", hint="write i = tid(), or i, j = tid()")
    if len(hints) > 4:
        raise frame.error(node, f"tid() gives 1 to 4 indices, not {len(hints)}")
    if not frame.threads:
        frame.threads = tuple(Var(int32, hint, frame.places(node)) for hint in hints)
        frame.threads_span = frame.places(node)
    if len(frame.threads) != len(hints):
        related = (Related("the other tid() is here", frame.threads_span),) if frame.threads_span else ()
        raise frame.error(
            node,
            f"tid() gives {counted(len(frame.threads), 'index')} in one place and {len(hints)} in another",
            hint="call tid() once",
            related=related,
        )
    return tuple(Typed(var) for var in frame.threads)
