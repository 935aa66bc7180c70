"""The gradient of an array: `requires_grad`, its allocation, checks of what `grad` is set to, its absence.

Gradients belong to memory, so all views of it share them; must not know tapes.  A launch outside of every
tape, or in a thread where none is open, may be meant to be differentiated through.  It leaves its origin
with the memory that it writes, where both sides require gradients; a tape that later takes that memory for
a leaf can say what is missing.  ``record_tape=False`` says that nothing is missing.
"""

import weakref
from collections.abc import Iterable, Sequence
from functools import cache
from threading import get_ident
from typing import Any, Self

from kernelab.data_classes import dataclass
from kernelab.errors import Diagnostic, KernelTypeError, Related
from kernelab.lang.structs import has_derivative
from kernelab.runtime.array.layout import Strided
from kernelab.runtime.context.conversion import described
from kernelab.runtime.context.recorder import Place, caller, warn, warn_at
from kernelab.runtime.memory.memory import Allocation, zeros_beside


@dataclass(frozen=True, slots=True)
class Origin:
    """An unrecorded launch: its kernel, its line, its thread, and the memory with gradients that it read."""

    kernel: str
    place: Place
    thread: int
    sources: "Sequence[weakref.ref[Allocation]]"

    @property
    def alive(self) -> list[Allocation]:
        """The memory that it read, as far as anybody still has it and no gradient has reached it."""
        memories = [source() for source in self.sources]
        return [memory for memory in memories if memory is not None and memory.adjoint is None]

    def explain(self, name: str, reader: Place, entered_by: int) -> Diagnostic:
        """The diagnostic for a tape that reads `name`, which this launch computed: no gradient passes it."""
        elsewhere = self.thread != entered_by
        where = "in another thread" if elsewhere else "outside of the tape"
        hint = "launch it inside `with tape:`" + (", in the thread of the `with`" if elsewhere else "")
        return Diagnostic(
            f"no gradient flows through the launch of `{self.kernel}`, which computed {name} {where}",
            self.place.span,
            "unrecorded-launch",
            hint=f"{hint}; if the gradient is meant to end there, pass record_tape=False to it",
            related=(Related("the tape reads its result here:", reader.span),),
        )


def note_origin(
    kernel: str, arguments: Sequence[Any], read: Iterable[int], written: Sequence[Allocation]
) -> None:
    """Leave with what an unrecorded launch has written, memory with gradients, that it came from others.

    `read` are the positions of the arrays that it has read.
    """
    refs = []
    for i in read:
        memory = arguments[i].allocation
        if memory.requires_grad and memory.adjoint is None and memory not in written:
            refs.append(weakref.ref(memory))
    if not refs:
        return
    place, thread = caller(3), get_ident()  # behind this, `run`, and what has called it
    for memory in written:
        memory.origin = (memory.version, kernel, place, thread, refs)


def origin_of(memory: Allocation) -> Origin | None:
    """The unrecorded launch that computed the memory, if any."""
    if memory.origin is None:
        return None
    _, kernel, place, thread, refs = memory.origin
    return Origin(kernel, place, thread, refs)


def tell_what_is_missing(memory: Allocation) -> None:
    """Warn, once, that a backward pass could not reach an array whose gradient is asked for."""
    missing, memory.missing = memory.missing, None
    if missing is not None:
        warn(missing if isinstance(missing, Diagnostic) else missing(memory))


# -------------------------------------------------------------------------------------------------- gradients


_has_derivative = cache(has_derivative)


class Gradients(Strided):
    """The part of an array that is about its gradient."""

    __slots__ = ()

    @property
    def requires_grad(self) -> bool:
        """Whether tapes compute a gradient with respect to this array; shared by all views of its memory."""
        return self.allocation.requires_grad

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        if wanted and not _has_derivative(self.dtype):
            # Programs ask for gradients of arrays of every kind; that there is none must not be silent.
            message = f"an array of {self.dtype} has no gradient, and requires_grad stays False"
            hint = (
                "only floats, and vectors, matrices and structs of floats, have derivatives: leave "
                "requires_grad out"
            )
            warn_at(message, "grad", hint)
            return
        if wanted != self.allocation.requires_grad:
            self.allocation.missing = None
        self.allocation.requires_grad = bool(wanted)
        if not wanted:
            self.allocation.adjoint = None

    @property
    def grad(self) -> "Self | None":
        """The gradient that the last backward pass left, zeros before; None without `requires_grad`.

        An array that it is set to is shared, not copied, by several arrays if need be: then their gradients
        add up there.  Raises KernelTypeError for a view, which cannot be shared so.
        """
        allocation = self.allocation
        if not allocation.requires_grad:
            tell_what_is_missing(allocation)
            return None
        if allocation.adjoint is None:
            tell_what_is_missing(allocation)
            allocation.adjoint = zeros_beside(allocation)
        if self._grad is None or self._grad.allocation is not allocation.adjoint:
            self._grad = self.twin(allocation.adjoint)
        gradient: Self = self._grad
        return gradient

    @grad.setter
    def grad(self, value: "Self | None") -> None:
        if value is None:
            self.allocation.adjoint = None
            return
        gradient: Any = value
        if not isinstance(gradient, Gradients):
            message = f"a gradient is an array of kernelab, not {described(gradient)}"
            hint = "write kl.array(...) around it, or x.grad = None"
            raise KernelTypeError(Diagnostic(message, code="argument", hint=hint))
        if value.shape != self.shape or value.dtype != self.dtype:
            message = f"the gradient of {self.dtype} {self.shape} cannot be {value.dtype} {value.shape}"
            hint = "a gradient has the shape and dtype of its array: write kl.zeros_like(x), and fill that"
            raise KernelTypeError(Diagnostic(message, code="grad", hint=hint))
        refusal = self._no_gradient_of_mine(value)
        if refusal is not None:
            raise KernelTypeError(Diagnostic(refusal[0], caller().span, "grad", hint=refusal[1]))
        self.requires_grad = True
        self.allocation.adjoint = value.allocation
        self._grad = value

    def _no_gradient_of_mine(self, value: Any) -> tuple[str, str] | None:
        """Explain why an array cannot become the gradient, which is shared and not copied."""
        if value.overlaps(self):
            return "an array cannot be its own gradient: backward() would overwrite it", (
                "write x.grad = kl.zeros_like(x), or x.grad.assign(x) for its values"
            )
        mine = self.offset, self.strides, self.allocation.nbytes
        if mine == (value.offset, value.strides, value.allocation.nbytes):
            return None
        return "a gradient shares the memory of what it is set to, and this is laid out in another way", (
            "write x.grad.assign(g) to copy the values; or set it to an array with memory of its own, laid "
            "out like that of x: g = kl.zeros_like(x)"
        )

    @property
    def retain_grad(self) -> bool:
        """Whether a backward pass leaves the gradient in `grad`: it does for all that require gradients."""
        return self.requires_grad

    @retain_grad.setter
    def retain_grad(self, wanted: bool) -> None:
        if wanted:
            self.requires_grad = True
