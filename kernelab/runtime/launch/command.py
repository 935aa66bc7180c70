"""A launch prepared once and run many times, with arguments that can be replaced."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kernelab import hooks
from kernelab.backend.cuda.launch_config import DEFAULT_CONFIG, LaunchConfig
from kernelab.errors import LaunchError, near
from kernelab.guidance.missing_names import LAUNCHES, Answers
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import described, is_whole
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.launch.footprint import grid_of
from kernelab.runtime.memory.device import Device
from kernelab.runtime.memory.streams import Stream


def require_lists(**lists: Any) -> None:
    """Raise LaunchError where one of these arguments of a launch, by its name, is no sequence."""
    for name, arguments in lists.items():
        if isinstance(arguments, Sequence) and not isinstance(arguments, str):
            continue
        message = f"`{name}` is a list of arguments, not {described(arguments)}"
        raise LaunchError.of(message, "argument", f"write {name}=[...]")


def no_kernel(value: object) -> LaunchError:
    """The error for a launch of what is not a kernel."""
    if value is None:
        hint = "write kl.launch(kernel, dim=n, inputs=[...], outputs=[...])"
        return LaunchError.of("launch() needs a kernel", "kernel", hint)
    name = getattr(value, "__name__", repr(value))
    if hasattr(value, "__kernelab_function__"):
        message = f"`{name}` is a function for kernels: it cannot be launched itself"
        hint = "launch a kernel that calls it; a kernel returns nothing and writes to arrays"
        return LaunchError.of(message, "kernel", hint)
    message = f"launch() takes a kernel first, not the {type(value).__name__} {name}"
    hint = "write the function in a %%kernel cell, or decorate it with @kl.kernel"
    if not callable(value):
        hint = "write launch(kernel, dim=n, inputs=[...]), with the kernel itself, not its name as text"
    return LaunchError.of(message, "kernel", hint)


def no_grid(kernel: Kernel, arguments: Iterable[Any]) -> LaunchError:
    """The error for a launch that does not say its grid; the hint takes the shape of its first array."""
    pairs = zip(kernel.loaded.names, arguments, strict=False)
    shaped = next((name for name, argument in pairs if isinstance(argument, array | np.ndarray)), None)
    hint = f"write dim={shaped}.shape to have one for each element of {shaped}" if shaped else "write dim=n"
    message = f"the launch of `{kernel.name}` does not say how many threads run: dim is missing"
    return LaunchError.of(message, "dim", hint)


# --------------------------------------------------------------------------------------------------- command


class Launch(Answers):
    r"""The result of ``launch(..., record_cmd=True)``: `launch()` runs it, and tapes record that launch.

    ``Launch(kernel)`` starts without threads and arguments, which are set before it runs.  With `adjoint` the
    adjoint program runs instead, on the `adjoints` set, else on the gradients of the arrays.  Arguments are
    checked when it runs.

    >>> double = kl.compile("def double(x: array[float]):\n    x[tid()] = 2.0 * x[tid()]")["double"]
    >>> x = kl.ones(2)
    >>> command = kl.launch(double, dim=2, inputs=[x], record_cmd=True)
    >>> command.launch()
    >>> command.launch()
    >>> x.list()
    [4.0, 4.0]
    """

    NAMED = "a prepared launch"
    HINTS = LAUNCHES

    def __init__(
        self,
        kernel: Kernel,
        device: Device | str | None = None,
        dim: int | Sequence[int] = 0,
        arguments: Sequence[Any] | None = None,
        config: LaunchConfig = DEFAULT_CONFIG,
        adjoint: bool = False,
        adjoints: Sequence[Any] = (),
        record_tape: bool = True,
    ) -> None:
        count = len(kernel.loaded.names)
        self.kernel = kernel
        self.device = device
        self.config = config
        self.dim = dim
        self.arguments = [None] * count if arguments is None else list(arguments)
        self.adjoint = adjoint
        self.adjoints = [*adjoints, *(None,) * (count - len(adjoints))]
        self.record_tape = record_tape

    def __repr__(self) -> str:
        return f"<launch of {self.kernel.name}, dim={self.dim}>"

    def launch(self, stream: Stream | None = None) -> None:
        """Run the kernel, in a stream of the device that its arrays are on, if one is given."""
        hooks.launch(
            self.kernel,
            self.dim,
            self.arguments,
            adj_inputs=self.adjoints if self.adjoint else (),
            device=self.device if stream is None else None,
            adjoint=self.adjoint,
            record_tape=self.record_tape,
            block_dim=self.config.threads,
            max_blocks=self.config.blocks,
            stream=stream,
        )

    def set_dim(self, dim: int | Sequence[int]) -> None:
        """Run on another grid from now on; raises LaunchError where it is none."""
        grid_of(dim)
        self.dim = dim

    def set_param_at_index(self, index: int, value: Any, adjoint: bool = False) -> None:
        """Run with another argument, counted from 0, or with `adjoint` on another adjoint of it.

        Raises LaunchError if there is none.
        """
        if not is_whole(index) or not 0 <= index < len(self.arguments):
            message = (
                f"this launch of `{self.kernel.name}` has {len(self.arguments)} arguments, none at {index}"
            )
            raise LaunchError.of(message, "count", span=self.kernel.span)
        values = self.adjoints if adjoint else self.arguments
        values[index] = value

    def set_param_by_name(self, name: str, value: Any, adjoint: bool = False) -> None:
        """The same by the name of the parameter; raises LaunchError if there is none."""
        names = self.kernel.loaded.names
        if name not in names:
            hint = near(name, names, f"its parameters are {', '.join(names)}")
            message = f"kernel `{self.kernel.name}` has no parameter `{name}`"
            raise LaunchError.of(message, "name", hint, self.kernel.span)
        self.set_param_at_index(names.index(name), value, adjoint)

    def set_params(self, params: Sequence[Any]) -> None:
        """Run with other arguments, all of them."""
        self.arguments = list(params)
