"""What `Tape` does not do, said to those who know tapes from TensorFlow or PyTorch; and what is no loss.

Also what has no gradient, and how to ask for one.
"""

from typing import Any, NoReturn

from kernelab.errors import Diagnostic, KernelAttributeError, KernelKeyError, KernelTypeError
from kernelab.guidance.objects import TAPES
from kernelab.guidance.offers import Offers
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import described
from kernelab.runtime.context.recorder import called, caller
from kernelab.runtime.host.struct_instances import Instance

_SUMMED = (
    "sum into an array on the tape: loss = kl.zeros(1, requires_grad=True); kl.utils.array_sum(y, out=loss)"
)


class Opening(type):
    """The class of `Tape`, which answers to ``with kl.Tape as tape:``."""

    def __enter__(cls) -> NoReturn:
        raise KernelTypeError(
            Diagnostic(
                "a tape is opened without its parentheses", code="call", hint="write with kl.Tape() as tape:"
            )
        )

    def __exit__(cls, *_: object) -> None:
        """Never called: Python asks for it before it enters."""


class Habits(Offers, metaclass=Opening):
    """The part of a tape that answers what it has not."""

    __slots__ = ()
    OFFERED = (
        *("backward", "get_adjoint", "gradients", "launches", "overwrite", "record_func", "record_launch"),
        *("record_scope_begin", "record_scope_end", "reset", "saved_bytes", "scopes", "to_svg", "visualize"),
        "zero",
    )

    def __reduce__(self) -> NoReturn:
        message = "a tape cannot be copied or pickled: gradients go to the arrays that it has seen"
        hint = "record what the copy launches on a tape of its own"
        raise KernelTypeError(Diagnostic(message, code="pickle", hint=hint))

    def __getattr__(self, name: str) -> Any:
        """Raises KernelAttributeError that says what to write instead."""
        raise KernelAttributeError.of(f"a tape has no {name}", TAPES.hint(name) or None, name, self.OFFERED)


class Gradients(dict[Any, Any]):
    """Gradients by arrays and structs; raises KernelKeyError that says how to ask for one that is missing."""

    def __missing__(self, primal: Any) -> NoReturn:
        message, hint = _no_gradient(primal)
        raise KernelKeyError(Diagnostic(message, caller().span, "no-gradient", hint=hint))


def _no_gradient(primal: Any) -> tuple[str, str]:
    name = called(primal, described(primal))
    if isinstance(primal, array) and primal.requires_grad:
        return f"{name} took no part in what this tape recorded", "launch it inside `with tape:`"
    if isinstance(primal, array):
        return f"{name} requires no gradient", "create it with requires_grad=True, before it is launched"
    if isinstance(primal, Instance):
        hint = "set its requires_grad = True before it is launched"
        return f"{name}, a struct, requires no gradient: its numbers were passed as plain values", hint
    message = f"{name} has no gradient: a tape differentiates with respect to arrays and structs"
    one = "kl.array([value], requires_grad=True)"
    return (
        message,
        f"for a number or vector launch an array of one in its place, {one}, and ask for that one's",
    )


def no_loss(value: Any) -> tuple[str, str]:
    """What is wrong with a value that was passed for the loss, and what to do."""
    message = f"the loss is an array of one number, not {described(value)}"
    if isinstance(value, int | float) or getattr(value, "shape", None) == ():
        return f"{message}: a number of the host knows nothing of how it was computed", _SUMMED
    if isinstance(value, list | tuple | dict):
        return message, "pass one array, or backward(grads={y: ones_like(y)}) for several"
    return message, _SUMMED


def no_function(value: object) -> tuple[str, str]:
    """What is wrong with a value that was to be recorded as a function, and what to do."""
    message = f"record_func takes a function without arguments, not {described(value)}"
    return message, "write tape.record_func(lambda: ..., arrays=[x, y])"
