"""Inspects kernels, functions and tapes: `trace`, `graph`, `contributions` and `show`."""

from collections.abc import Mapping, Sequence
from typing import Any

from kernelab.autodiff.checks.lost_digits import precision
from kernelab.autodiff.inspect.contributions import Contributions, of_call, of_python
from kernelab.autodiff.inspect.contributions import contributions as of_tape
from kernelab.autodiff.inspect.thread_graph import ThreadGraph, graph_thread
from kernelab.autodiff.inspect.thread_run import thread_of_call, trace_call, trace_record, trace_thread
from kernelab.autodiff.tape.tape import Tape
from kernelab.builtins.table import Builtin
from kernelab.errors import KernelTypeError
from kernelab.guidance.bad_calls import explains_bad_calls
from kernelab.runtime.context.conversion import described
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.ops.function_calls import is_function
from kernelab.views.pages.display import show_now

__all__ = ["contributions", "graph", "precision", "show", "trace"]


class Trace(Builtin):
    """Of a matrix, the sum of its diagonal; of a kernel, the run of one thread."""

    def __call__(self, kernel_or_matrix: Any = None, /, *given: Any, **named: Any) -> Any:
        """The sum of the diagonal of a matrix, or the run of one thread of a kernel, or of a function.

        A matrix is a square one of floats.  ``trace(kernel, thread, dim, inputs, outputs, adjoints)``:
        `thread` is a position in the grid `dim`, an int or one for each of its dimensions; `adjoints` are the
        cotangents that the adjoint starts with, by array or name, 1 for all that the kernel changes unless
        given.  `where` chooses lines and iterations (``where=7``, ``where={"line": 7, "k": 3}``), with
        ``compare="float64"`` each value stands beside that of float64, and with ``expressions=True`` every
        subexpression has a row.  ``trace(tape, record, thread, loss)`` is of a recorded launch, by its number
        from 1, on the cotangents that arrive there, with the same options.  ``trace(g, 2.0, 3.0)`` is the run
        of a function for kernels, whose result has the cotangent 1 unless ``adjoints={"result": ...}`` says
        otherwise.  Nothing that is given changes.  Raises LaunchError for a thread outside of the grid,
        TapeError for a record that is not a launch, and what a launch or a call raises.
        """
        if is_function(kernel_or_matrix):
            return trace_call(kernel_or_matrix, given, named)
        if isinstance(kernel_or_matrix, Tape):
            return self._of_tape(kernel_or_matrix, *given, **named)
        return self._of_kernel(kernel_or_matrix, *given, **named)

    def _of_kernel(
        self,
        kernel_or_matrix: Any,
        thread: int | Sequence[int] = 0,
        dim: int | Sequence[int] | None = None,
        inputs: Sequence[Any] = (),
        outputs: Sequence[Any] = (),
        adjoints: Mapping[Any, Any] | None = None,
        **options: Any,
    ) -> Any:
        if isinstance(kernel_or_matrix, Kernel):
            return trace_thread(kernel_or_matrix, thread, dim, inputs, outputs, adjoints, **options)
        is_alone = thread == 0 and dim is None and not inputs and not outputs and adjoints is None
        is_other = kernel_or_matrix is None or isinstance(kernel_or_matrix, str)
        is_other = is_other or callable(kernel_or_matrix)
        if is_other or not is_alone:
            message = "trace takes a square matrix alone, not a matrix and more"
            if is_other:
                what = _not_traced(kernel_or_matrix)
                message = f"trace takes a kernel and a thread, or a function of a kernel cell, not {what}"
            hint = "write kl.trace(kernel, 0, dim=n, inputs=[...], outputs=[...]), or kl.trace(g, 2.0, 3.0)"
            if isinstance(kernel_or_matrix, str):
                hint = "name the kernel without quotation marks: kl.trace(kernel, 0, dim=n, inputs=[...])"
            raise KernelTypeError.of(message, "call", hint)
        return super().__call__(kernel_or_matrix)

    def _of_tape(self, tape: Tape, record: Any = None, thread: Any = 0, *given: Any, **named: Any) -> Any:
        if record is None:
            hint = "write kl.trace(tape, 1, 0, loss=loss), of the first launch and its thread 0"
            raise KernelTypeError.of("a tape is traced by one of its launches", "call", hint)
        return trace_record(tape, record, thread, *given, **named)


trace = Trace("trace")


def contributions(tape: Any, *given: Any, **named: Any) -> Contributions:
    r"""The contributions to one element of a gradient, by launch, thread and line.

    ``contributions(tape, x, index, loss, grads)`` is of an array `x` in ``tape.backward(loss, grads)``;
    ``contributions(g, 2.0, 3.0, argnums=0)`` of the argument at that position of a function for kernels that
    returns a number; ``contributions(f, x, index=i, argnums=0)`` of an element of `x` in the gradient of
    the sum of what a Python function returns.  Where the argument is a struct, ``field="k"`` names the field.
    Raises TapeError where there is no such
    gradient, and what a call raises.

    >>> text = "def square(x: array[float], y: array[float]):\n    y[tid()] = x[tid()] * x[tid()]"
    >>> x, y = kl.array([3.0], requires_grad=True), kl.zeros(1, requires_grad=True)
    >>> with kl.Tape() as tape:
    ...     kl.compile(text)["square"][1](x, y)
    >>> found = kl.contributions(tape, x, 0, y)
    >>> "1 part, by 1 thread of 1 launch" in str(found)
    True
    """
    if is_function(tape):
        return of_call(tape, *given, **named)
    is_python = callable(tape) and not isinstance(tape, Kernel | type)
    return (of_python if is_python else of_tape)(tape, *given, **named)


def graph(of: Any, /, *given: Any, **named: Any) -> ThreadGraph:
    r"""The computation graph of one run: each operation, its value, and the cotangents that flow back.

    ``kl.graph(g, 2.0, 3.0)`` is that of a function for these arguments, ``kl.graph(kernel, thread, dim=n,
    inputs=[...], outputs=[...], adjoints={...})`` that of one thread of a launch, with the arguments of
    `kl.trace`.  Nothing that is given changes.  A notebook shows it as a picture to step through, `to_svg` is
    that for a file.  Raises what `kl.trace` and a call of the function raise.

    >>> area = kl.compile("def area(a: float, b: float) -> float:\n    return a * b")["area"]
    >>> print(kl.graph(area, 2.0, 3.0))
    computation graph · area
    <BLANKLINE>
    <text>
    1 │ def area(a: float, b: float) -> float:
    2 │     return a * b
    <BLANKLINE>
    line  operation       value  cotangent
    ----  --------------  -----  ---------
       1  a               2      3
       1  b               3      2
       2  v1 = a * b      6      1
       2  result[0] = v1  6      1
    """
    if isinstance(of, Kernel):
        return graph_thread(of, *given, **named)
    if not is_function(of):
        message = f"graph takes a kernel and a thread, or a function of a kernel cell, not {_not_traced(of)}"
        hint = "write kl.graph(g, 2.0, 3.0), or kl.graph(kernel, 0, dim=n, inputs=[...], outputs=[...])"
        raise KernelTypeError.of(message, "call", hint)
    return graph_thread(*thread_of_call(of, given, named))


def _not_traced(given: object) -> str:
    return "a Python function: put @kl.func above it" if callable(given) else described(given)


@explains_bad_calls(
    shown="write kl.show(x) of a kernel, an array, a report or a tape",
    positional="write kl.show(x), of a kernel in all forms; %%kernel --show source,tangent chooses some",
)
def show(shown: Any) -> None:
    """Show an object now: a tape, before anything is recorded, as a view that follows the recording.

    A kernel, an array, a report or a tape shows as the value of a cell does; where no notebook is running,
    its text is printed.
    """
    show_now(shown)
