"""Loss of precision by line: a kernel or tape in its own precision and in float64, forwards and backwards."""

from collections.abc import Mapping, Sequence
from typing import Any

from kernelab.autodiff.checks.lost_digits import Loss, SideBySide, compared
from kernelab.autodiff.checks.tape_replay import Line, NotReplayableError
from kernelab.autodiff.jacobians.subject import of_function, of_kernel, outside_transforms
from kernelab.autodiff.records.adjoint_buffers import Adjoints
from kernelab.autodiff.tape.seeds import values_of
from kernelab.autodiff.tape.tape import Tape
from kernelab.autodiff.transforms.host_numbers import varied_inputs
from kernelab.data_classes import dataclass
from kernelab.errors import NOWHERE, KernelTypeError, Source, Span, TapeError
from kernelab.guidance.bad_calls import explains_bad_calls
from kernelab.hooks import Printed
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import described
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.launch.command import no_grid, require_lists

_CALL = "write kl.precision(kernel, dim=n, inputs=[...], outputs=[...]), or kl.precision(tape, loss=loss)"

_MAPS = "<map_"
"""How the labels of texts begin that `kl.map`, and a call of a function, make themselves."""


@dataclass(frozen=True, slots=True)
class LineDigits:
    """The digits of a source line: the fewest that are left there, and the loss of the most by one operation.

    `forward` is of the values that it computes, `backward` of its adjoint; None where it computes no floats.
    """

    span: Span
    forward: Loss | None
    backward: Loss | None


@dataclass(frozen=True, slots=True, eq=False)
class Precision(Printed):
    """What a kernel or a tape loses at each of its lines; `is_complete` is false where not all was run.

    `digits` is how many a correctly rounded number of its precision has.
    """

    name: str
    lines: tuple[LineDigits, ...]
    digits: float
    is_complete: bool

    def __repr__(self) -> str:
        return f"<precision of {self.name}: {len(self.lines)} lines>"

    def worst(self) -> Loss | None:
        """The operation that loses the most digits; None where none loses a digit."""
        losses = [loss for line in self.lines for loss in (line.forward, line.backward) if loss is not None]
        worst = max(losses, key=lambda loss: loss.lost, default=None)
        return worst if worst is not None and worst.lost >= 1.0 else None


@explains_bad_calls(dim=_CALL, inputs=_CALL, outputs=_CALL)
def precision(
    kernel_or_tape: Any,
    dim: int | Sequence[int] | None = None,
    inputs: Sequence[Any] = (),
    outputs: Sequence[Any] = (),
    loss: array | None = None,
    grads: Mapping[array, Any] | None = None,
) -> Precision:
    r"""How many digits each line of a kernel, a function, or all kernels of a tape, loses against float64.

    A kernel runs on copies of its arguments, a function at `inputs`, and its adjoint with ones behind all
    outputs; a tape runs again from what it began with, and back from ``backward(loss, grads)``, or from the
    last `backward`.  Both run on the interpreter, in their own precision and in float64: launches of more
    than 16,384 threads, or of 512 that have to run one by one, and C++ are run, but not looked at.  Nothing
    that is given changes.  Raises GradientError where no input has gradients, TapeError for a tape that
    cannot run again, and what a launch raises.

    >>> text = "def far(x: array[float], y: array[float]):\n    y[tid()] = (x[tid()] + 1e4) - 1e4"
    >>> x, y = kl.array([0.1], requires_grad=True), kl.zeros(1, requires_grad=True)
    >>> found = kl.precision(kl.compile(text)["far"], dim=1, inputs=[x], outputs=[y])
    >>> "2.4 of 7.2 digits are left" in str(found)
    True
    """
    if isinstance(kernel_or_tape, Tape):
        return _made("the tape", _of_tape(kernel_or_tape, loss, grads))
    if not callable(kernel_or_tape):
        message = f"precision takes a kernel, a function or a tape, not {described(kernel_or_tape)}"
        raise KernelTypeError.of(message, "call", _CALL)
    require_lists(inputs=inputs, outputs=outputs)
    if not isinstance(kernel_or_tape, Kernel):
        subject = of_function(kernel_or_tape, varied_inputs(kernel_or_tape, inputs), outputs, "precision")
    elif dim is None:
        raise no_grid(kernel_or_tape, [*inputs, *outputs])
    else:
        subject = of_kernel(kernel_or_tape, dim, inputs, outputs, "precision")
    with outside_transforms("precision"):
        level, _ = compared(subject)
    return _made(subject.name, level)


def _of_tape(tape: Tape, loss: array | None, grads: Mapping[array, Any] | None) -> SideBySide:
    seeds = tape.cotangents(loss, grads) if loss is not None or grads is not None else tape.last_cotangents
    if seeds is None:
        hint = "write kl.precision(tape, loss=loss), or call tape.backward(loss) first"
        raise TapeError.of("say what the gradient is of", "precision", hint)
    records, level, bars = tuple(tape), SideBySide(), Adjoints()
    with outside_transforms("precision"):
        try:
            run, reverse, _ = Line(records, "save").reversed_run(len(records), level)
        except NotReplayableError as reason:
            hint = "ask for the precision of its kernels, one by one"
            raise TapeError.of(f"the tape cannot run again: {reason}", "precision", hint) from None
        for target, cotangent in seeds.items():
            bars.of(run.of(target)).host()[...] = values_of(cotangent)
        reverse.pull(level, bars)
    return level


def _made(name: str, level: SideBySide) -> Precision:
    """The losses by line, in the order of the text."""
    worst: dict[tuple[Source, int], dict[bool, Loss]] = {}
    for (span, is_backward), loss in level.losses.items():
        if span == NOWHERE or span.source.label.startswith(_MAPS):
            continue
        line = worst.setdefault((span.source, span.line), {})
        before = line.get(is_backward)
        if before is None or (loss.lost, -loss.left) > (before.lost, -before.left):
            line[is_backward] = loss
    lines = [
        LineDigits(next(iter(losses.values())).span, losses.get(False), losses.get(True))
        for _, losses in sorted(worst.items(), key=lambda item: (item[0][0].label, item[0][1]))
    ]
    most = max((loss.most for losses in worst.values() for loss in losses.values()), default=0.0)
    return Precision(name, tuple(lines), most, level.is_complete)
