"""The gradient of an array: `requires_grad`, its allocation, and checks of what is assigned to `grad`.

Gradients belong to memory, so all views of it share them; must not know tapes.
"""

from functools import cache
from typing import Any, Self

from kernelab.errors import Diagnostic, KernelTypeError
from kernelab.lang.structs import has_derivative
from kernelab.runtime.array.layout import Strided
from kernelab.runtime.context.conversion import described
from kernelab.runtime.context.recorder import caller, warn_at
from kernelab.runtime.memory.memory import zeros_beside
from kernelab.runtime.memory.origin import tell_what_is_missing

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
        given: Any = value
        if not isinstance(given, Gradients):
            message = f"a gradient is an array of kernelab, not {described(given)}"
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
