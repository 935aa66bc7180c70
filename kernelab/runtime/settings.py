"""What a program has set for all its kernels; `kernelab.config` is the face of it."""

from contextvars import ContextVar

ENABLE_BACKWARD: ContextVar[bool] = ContextVar("kernelab enable_backward", default=True)
"""Whether kernels that do not say so themselves have a backward pass."""

PRINT_LAUNCHES: ContextVar[bool] = ContextVar("kernelab print_launches", default=False)
"""Whether each launch says so."""
