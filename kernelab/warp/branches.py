"""`capture_if` and `capture_while`: conditions in device memory that the host evaluates.

While launches are captured there is no number yet to decide by: that is an error.
"""

from collections.abc import Callable
from typing import Any

from kernelab.errors import Diagnostic, LaunchError
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import described
from kernelab.runtime.context.recorder import caller
from kernelab.runtime.launch.capture import Graph
from kernelab.runtime.memory.spaces import OPEN
from kernelab.runtime.memory.streams import Stream

Body = Callable[..., Any] | Graph


def capture_if(
    condition: array,
    on_true: Body | None = None,
    on_false: Body | None = None,
    stream: Stream | None = None,
    **kwargs: Any,
) -> None:
    """Run `on_true` where the first element of `condition` is not 0, `on_false` otherwise.

    Both are graphs, or functions, which get what is given by name.  Raises LaunchError while launches are
    captured, and for what is neither.
    """
    body = on_true if _holds("capture_if", condition) else on_false
    if body is not None:
        _run("capture_if", body, stream, kwargs)


def capture_while(condition: array, while_body: Body, stream: Stream | None = None, **kwargs: Any) -> None:
    """Run `while_body` as long as the first element of `condition`, which it changes, is not 0.

    It is a graph, or a function, which gets what is given by name.  Raises LaunchError while launches are
    captured, and for what is neither.
    """
    while _holds("capture_while", condition):
        _run("capture_while", while_body, stream, kwargs)


def _holds(word: str, condition: array) -> bool:
    if any(space.capture is not None for space in OPEN.values()):
        message = f"{word} decides by a number in memory, and launches that are captured do not run"
        hint = f"capture what it runs, and call {word} outside of the capture"
        raise LaunchError(Diagnostic(message, caller().span, "capture", hint=hint))
    if not isinstance(condition, array) or condition.size == 0:
        message = f"{word} decides by the first element of an array, not by {described(condition)}"
        raise LaunchError(Diagnostic(message, caller().span, "capture", hint="kl.ones(1, dtype=int)"))
    return bool(condition.flatten()[:1].item())


def _run(word: str, body: object, stream: Stream | None, named: dict[str, Any]) -> None:
    if isinstance(body, Graph):
        body.launch(stream)
    elif callable(body):
        body(**named)
    else:
        message = f"{word} runs a function or a graph, not {described(body)}"
        raise LaunchError(Diagnostic(message, caller().span, "capture", hint="write a function around it"))


__all__ = ["capture_if", "capture_while"]
