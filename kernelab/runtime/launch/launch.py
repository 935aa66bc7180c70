"""Launching kernels: check the arguments, pack the slots, run the entry, count the writes, tell the recorder.

Knows kernels and arrays; must not know tapes.  The way without a recorder is kept short: what can be known of
a kernel before it is launched stands in its `Plan`, and arrays carry their packed slots with them.
"""

import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from kernelab import hooks
from kernelab.backend.cpu.cpu_backend import BLOCKS, OFTEN, CpuEntry
from kernelab.backend.cpu.native_calls import (
    ARRAY,
    FLOAT32,
    FLOAT64,
    INTEGER,
    MOST_SLOTS,
    Kind,
    Launched,
    facts,
)
from kernelab.backend.cuda.launch_config import BLOCK, LAUNCH_CONFIG, config_of
from kernelab.codegen.cpp.entry import GRID_SLOTS, slots_of
from kernelab.data_classes import replace
from kernelab.errors import LaunchError, counted
from kernelab.guidance.bad_calls import explains_bad_calls, no_argument, show_signature
from kernelab.lang.types import Array, Scalar, float32, is_differentiable, with_scalar
from kernelab.runtime.array.array import Gathered, array, duplicate
from kernelab.runtime.array.origins import (
    INTEGERS_OVER_FLOATS,
    note_origin,
    refuse_written_as_integers,
    unrecorded_launch,
)
from kernelab.runtime.context.recorder import (
    ENTERED,
    RECORDER,
    caller,
    note_given,
    notify_outside_use,
    unrecorded,
    warn_at,
)
from kernelab.runtime.kernel.arguments import (
    Parameter,
    Plan,
    Reference,
    array_of,
    arrays_in,
    hold_values,
    ordered,
    require_arguments_readable,
)
from kernelab.runtime.kernel.dispatch import Placed
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.program import Program
from kernelab.runtime.kernel.signature import flattened_adjoints, structs_in
from kernelab.runtime.launch.call import Call, bind, require_writable, will_write
from kernelab.runtime.launch.command import Launch, no_grid, no_kernel, require_lists
from kernelab.runtime.launch.footprint import Grid, grid_of
from kernelab.runtime.memory.device import CPU, Device, get_device
from kernelab.runtime.memory.spaces import OPEN
from kernelab.runtime.memory.streams import Stream, configured, flowing, stream_of
from kernelab.settings import settings

if TYPE_CHECKING:
    from kernelab.runtime.launch.checked import Checked
    from kernelab.runtime.launch.races import Races

_LISTS = (list, tuple)

LOG = logging.getLogger(__name__)
"""Logs each launch at the level DEBUG: `logging.getLogger("kernelab")` has builds, too."""


@hooks.launch.provide
def launch(
    kernel: Kernel | None = None,
    dim: int | Sequence[int] | None = None,
    inputs: Sequence[Any] = (),
    outputs: Sequence[Any] = (),
    adj_inputs: Sequence[Any] = (),
    adj_outputs: Sequence[Any] = (),
    device: Device | str | None = None,
    stream: Stream | None = None,
    adjoint: bool = False,
    record_tape: bool = True,
    record_cmd: bool = False,
    max_blocks: int = 0,
    block_dim: int = BLOCK,
    **unknown: Never,
) -> Any:
    """Run `kernel` once for each thread of a grid of `dim` threads (an int, or 1 to 4 of them).

    The arguments are `inputs`, then `outputs`, in the order of the kernel's parameters: arrays, NumPy arrays
    of the same dtype (without a copy), numbers, and tuples for vectors.  With `adjoint` the adjoint program
    runs instead: it reads the gradients of what the kernel writes and adds to those of what it reads,
    `adj_inputs` and `adj_outputs` where given, else the arrays' own, which it clears where the kernel
    overwrites.  On a CUDA device there are blocks of `block_dim` threads, at most `max_blocks` of them (0 is
    no limit), in `stream`; on the CPU the two have no effect.  Parameters with defaults may be left out.
    With `record_cmd` nothing runs yet: a `Launch` comes back, which runs when it is told to.
    Raises LaunchError, which names the argument, and the kernel's own errors.

    >>> text = "def double(x: array[float], y: array[float]):\\n    y[tid()] = 2.0 * x[tid()]"
    >>> x, y = kl.ones(2), kl.zeros(2)
    >>> kl.launch(kl.compile(text)["double"], dim=2, inputs=[x], outputs=[y])
    >>> y.list()
    [2.0, 2.0]
    """
    usual = device is None and stream is None and block_dim == BLOCK
    usual = usual and not (adjoint or record_cmd or max_blocks or unknown)
    if usual and kernel.__class__ is Kernel and kernel.quick is not None:
        done = kernel.quick(dim, inputs, outputs, record_tape)
        if done is True:
            return None
        if done and dim is not None:
            _record(kernel, grid_of(dim), (*inputs, *outputs), done)
            return None
    if unknown:
        raise no_argument("launch", next(iter(unknown)), list(signature(launch).parameters))
    if not isinstance(kernel, Kernel):
        raise no_kernel(kernel)
    if dim is None:
        raise no_grid(kernel, [*inputs, *outputs])
    if inputs.__class__ not in _LISTS or outputs.__class__ not in _LISTS or adjoint:
        require_lists(inputs=inputs, outputs=outputs, adj_inputs=adj_inputs, adj_outputs=adj_outputs)
    arguments, adjoints = [*inputs, *outputs], _adjoints(kernel, inputs, adj_inputs, adj_outputs)
    if len(arguments) != kernel.arity or record_cmd:
        grid_of(dim)  # first: of what stands in its place too few arguments are left
        arguments = ordered(kernel.loaded, arguments, {})
        if record_cmd:
            config = config_of(block_dim, max_blocks)
            return Launch(kernel, device, dim, arguments, config, adjoint, adjoints, record_tape)
        kernel = kernel.of_arguments(arguments)
    if usual:
        run(kernel, dim, arguments, record_tape)
        return None
    config = config_of(block_dim, max_blocks)
    device = device if stream is None else stream_of(stream).device
    with configured(config), flowing(stream):
        if device is not None:
            _require_place(kernel, get_device(device), arguments)
        if adjoint:
            launch_adjoint(kernel, dim, arguments, adjoints)
        else:
            run(kernel, dim, arguments, record_tape)
    return None


show_signature(launch, launch, ("unknown",))


@hooks.run.provide
def run(kernel: Kernel, dim: int | Sequence[int], arguments: list[Any], record_tape: bool = True) -> None:
    """Launch with the arguments in the order of the parameters; the list then holds what was launched."""
    plan = kernel.plan
    grid = grid_of(dim)
    structs: tuple[Any, ...] = ()
    parts = plan.straight.slots(arguments, grid.packed) if plan.formals is None else None
    usual = parts is not None
    if parts is None:
        parts = [grid.packed]
        structs = () if plan.formals is None else tuple(structs_in(arguments))
        bind(kernel, arguments, parts)
    if plan.late_sums:
        _refuse_late_sums(kernel, arguments)
    if plan.lost_sums and grid.threads > 1:
        for warning in plan.lost_sums:
            warning.warn()
    if plan.constants is not None and not plan.constants.unchanged():
        plan.constants.tell()
    if 0 < plan.coordinates != len(grid.extents):
        _warn_of_rank(kernel, grid)
    chosen, checked = settings(), None
    if chosen.print_launches:
        sys.stdout.write(f"launch of {kernel.name}, dim={grid.extents}, {caller()}\n")
    if LOG.isEnabledFor(logging.DEBUG):
        LOG.debug("launch of %s, dim=%s, %s", kernel.name, grid.extents, caller())
    recorder = RECORDER.get()
    if not grid.threads:
        if recorder is not None and record_tape:
            recorder.launched_nothing(kernel.name, [arguments[i] for i in plan.written], arguments)
        return
    if ENTERED:
        _notify_outside(plan, arguments)
    if (chosen.check_races or chosen.check or plan.check) and hold_values(arguments):
        checked = _checked(kernel, grid, arguments, parts)
    if recorder is not None and record_tape:
        if not usual:
            _clone_numbers(kernel, arguments)
        _record(kernel, grid, tuple(arguments), parts[1:], structs)
    else:
        if recorder is not None:
            recorder.left_out(Call(kernel, grid, tuple(arguments), (*parts,), structs, LAUNCH_CONFIG.get()))
        traced = will_write(kernel.program, grid.extents, arguments)
        if traced and record_tape:
            note_origin(kernel.name, arguments, (plan.read, plan.numbers), traced)
        kernel.program.entry_for(arguments, grid.threads)(b"".join(parts))
    if checked is not None:
        checked.has_run()
        if recorder is not None:
            recorder.is_checked = True
    if usual:
        _count(kernel)
        return
    for i in plan.written:
        if arguments[i].__class__ is Gathered:  # what was written goes to where they were picked from
            arguments[i].source.assign(arguments[i])


def _notify_outside(plan: Plan, arguments: Sequence[Any]) -> None:
    """Tell observers of the arrays and the numbers that a launch is given."""
    notify_outside_use([arguments[i] for i in plan.read], written=[arguments[i] for i in plan.written])
    note_given([arguments[i] for i in plan.numbers], plan.origins)


def _count(kernel: Kernel) -> None:
    """Count a usual launch; look, now and then, for what launches the kernel without Python."""
    kernel.launches += 1
    if not kernel.launches % OFTEN:
        kernel.quick = quick_launch(kernel)


def _record(
    kernel: Kernel,
    grid: Grid,
    arguments: tuple[Any, ...],
    parts: Sequence[bytes],
    structs: tuple[Any, ...] = (),
) -> None:
    """Let the recorder run a launch whose arguments are checked and packed."""
    recorder = RECORDER.get()
    assert recorder is not None
    make = recorder.call_type or Call
    if INTEGERS_OVER_FLOATS:
        refuse_written_as_integers(recorder, [arguments[i] for i in kernel.plan.written])
    recorder.launch(make(kernel, grid, arguments, (grid.packed, *parts), structs, LAUNCH_CONFIG.get()))


def _checked(
    kernel: Kernel, grid: Grid, arguments: Sequence[Any], parts: Sequence[bytes]
) -> "Checked | None":
    """Check a launch as far as the settings or the kernel want it."""
    from kernelab.runtime.launch.checked import check_launch, warn_of_sizes  # in checked mode alone
    from kernelab.runtime.launch.races import races_of, refuse

    if kernel.check is None:
        refuse(races_of(kernel.program, kernel.name, grid.extents, arguments, parts))
        return None
    warn_of_sizes(kernel.program, kernel.name, grid, arguments)
    return check_launch(kernel.program, kernel.name, grid, arguments, parts)


def _refuse_late_sums(kernel: Kernel, arguments: Sequence[Any]) -> None:
    """Raise LaunchError where computing what is added to an element may change that, in shared memory."""
    for i, j, diagnostic in kernel.plan.late_sums:
        if arguments[i].overlaps(arguments[j]):
            added, changed = (kernel.plan.parameters[k].name for k in (i, j))
            shared = f"the arguments `{added}` and `{changed}` of this launch of `{kernel.name}` share memory"
            raise LaunchError(replace(diagnostic, message=f"{shared}: {diagnostic.message}"))


def _clone_numbers(kernel: Kernel, arguments: list[Any]) -> None:
    """Clone arrays that stand for numbers and that the launch changes: every thread sees the old value."""
    plan = kernel.plan
    for i in plan.numbers:
        if arguments[i].__class__ is not Reference:
            continue
        source = arguments[i].array
        if any(source.overlaps(arguments[j]) for j in plan.written):
            arguments[i] = Reference(duplicate(source, source.requires_grad, "clone"))


def _warn_of_rank(kernel: Kernel, grid: Grid) -> None:
    """A grid of another rank runs, padded or flattened, but is hardly what was meant."""
    unpacked, rank = kernel.plan.coordinates, len(grid.extents)
    dimensions = f"this grid has {counted(rank, 'dimension')}"
    message = f"`{kernel.name}` unpacks {unpacked} thread indices, and {dimensions}"
    hint = f"launch it with dim=({', '.join('nmkl'[:unpacked])})"
    if unpacked == 1:
        if grid.threads in (0, grid.extents[0]):
            return
        message = f"`{kernel.name}` takes one thread index, and {dimensions}: it counts all its threads"
        hint = f"write {', '.join('ijkl'[:rank])} = tid(), or launch it with dim={grid.threads}"
    warn_at(message, "grid", hint)


def _adjoints(
    kernel: Kernel, inputs: Sequence[Any], adj_inputs: Sequence[Any], adj_outputs: Sequence[Any]
) -> list[Any]:
    """The adjoints in the order of the arguments, None for inputs that are given none."""
    missing = len(inputs) - len(adj_inputs) if adj_outputs else 0
    if missing < 0:
        message = f"{len(adj_inputs)} adjoints for the {counted(len(inputs), 'input')} of `{kernel.name}`"
        raise LaunchError.of(message, "count", "adj_inputs go with inputs, adj_outputs with outputs")
    return [*adj_inputs, *(None,) * missing, *adj_outputs]


def launch_adjoint(kernel: Kernel, dim: int | Sequence[int], arguments: list[Any], grads: list[Any]) -> None:
    """Run the adjoint program alone, on the gradients given, else on those of the arrays."""
    grid = grid_of(dim)
    parts = [grid.packed]
    bind(kernel, arguments, parts)
    if kernel.plan.formals is not None:
        grads = flattened_adjoints(kernel.plan.formals, grads)
    if len(grads) > len(arguments):
        message = f"{len(grads)} adjoint arguments for the {len(arguments)} parameters of `{kernel.name}`"
        raise LaunchError.of(message, "count", span=kernel.span)
    if any(argument.__class__ is Gathered for argument in arguments):
        message = "picked elements have an adjoint on a tape only"
        raise LaunchError.of(message, "index", "pass x.contiguous()", kernel.span)
    bars = _bars(kernel, arguments, [*grads, *(None,) * (len(arguments) - len(grads))])
    _warn_of_no_adjoints(kernel, bars)
    program = kernel.program
    pullback = program.pullback(tuple(bars), program.sharing(arguments))
    if pullback.residuals:
        message = f"`{kernel.name}` overwrites values that its adjoint needs, so its adjoint cannot run alone"
        raise LaunchError.of(message, "residual", "launch it under a Tape", kernel.span)
    primals, given = [*arrays_in(arguments)], [*bars.values()]
    _keep_given(kernel, pullback.adjoint, arguments, bars)
    if ENTERED:
        notify_outside_use([*primals, *given])
    recorder = RECORDER.get()
    if recorder is not None:
        recorder.adjoint_alone(f"the adjoint of `{kernel.name}`, launched by itself,", [*primals, *given])
        recorder.gone_back([*primals, *given], [bar.allocation for bar in bars.values()])
    given, checked = [*bars.values()], None
    if kernel.check is not None and grid.threads:
        from kernelab.runtime.launch.checked import check_launch

        adjoint, packed = pullback.adjoint, [*parts, *(bar.packed for bar in given)]
        checked = check_launch(adjoint, adjoint.name, grid, [*arguments, *given], packed)
    for bar in given:
        bar.allocation.will_write(bar)
    if not grid.threads:
        return
    if grid.threads > pullback.exact_additions:
        pullback.warn_of_rounded_sums(grid.threads)
    with unrecorded():  # as on a tape, halves to which it adds often are rounded once
        totals = {k: given[k].astype(with_scalar(given[k].dtype, float32)) for k in pullback.wide_bars}
        parts += [totals.get(k, bar).packed for k, bar in enumerate(given)]
        pullback.wide_adjoint.run(b"".join(parts))
        for k, total in totals.items():
            given[k].assign(total.astype(given[k].dtype))
    if checked is not None:
        checked.has_run()


def _warn_of_no_adjoints(kernel: Kernel, bars: dict[int, array]) -> None:
    read, written = set(kernel.plan.read), set(kernel.plan.written)
    missing = None if bars.keys() & written else ("writes", "outputs")
    missing = missing if bars.keys() - (written - read) else ("reads", "inputs")
    if missing is not None:
        does, side = missing
        message = f"nothing that `{kernel.name}` {does} has an adjoint: its adjoint changes no gradient"
        warn_at(message, "grad", f"give adj_{side}=, or set requires_grad before the launch")


def _bars(kernel: Kernel, arguments: list[Any], adjoints: list[Any]) -> dict[int, array]:
    bars: dict[int, array] = {}
    parameters = kernel.plan.parameters
    for i, (parameter, argument, bar) in enumerate(zip(parameters, arguments, adjoints, strict=True)):
        if bar is None:
            primal = array_of(argument)
            bar = primal.grad if isinstance(primal, array) and primal.requires_grad else None
        # Callers may pass some number for a parameter that has no adjoint.
        type = parameter.type if isinstance(parameter.type, Array) else Array(parameter.type, 1)
        if bar is not None and is_differentiable(type):
            wanted = Parameter(parameter.kernel, f"{parameter.name}_bar", type, parameter.span)
            bars[i], _ = wanted.convert(bar)
            if type is not parameter.type and bars[i].size != 1:
                message = (
                    f"the adjoint of `{parameter.name}` is an array of one element, not of {bars[i].size}"
                )
                raise LaunchError.of(message, "argument", span=parameter.span)
    return bars


def _keep_given(kernel: Kernel, adjoint: Program, arguments: list[Any], bars: dict[int, array]) -> None:
    """Put copies in the place of adjoints that would be cleared, unless they are the arrays' own gradients.

    A tensor of PyTorch may be the gradient of several results at once.
    """
    for position, (i, bar) in enumerate(list(bars.items()), len(arguments)):
        if position not in adjoint.changed:
            continue
        primal, memory = array_of(arguments[i]), bar.allocation
        is_own = isinstance(primal, array) and primal.allocation.adjoint is memory
        if i in kernel.plan.written and i not in kernel.plan.read and not is_own:
            with unrecorded():
                bars[i] = duplicate(bar, False, "clone")
        elif not memory.writable or memory.folded:
            parameter = kernel.plan.parameters[i]
            require_writable(replace(parameter, name=f"{parameter.name}_bar"), bar)


def _require_place(kernel: Kernel, place: Device, arguments: Sequence[Any]) -> None:
    for name, argument in zip(kernel.loaded.names, arguments, strict=False):
        actual = argument.device if isinstance(argument, array) else None
        if isinstance(argument, np.ndarray):
            actual = CPU
        if actual is not None and actual != place:
            message = f"`{kernel.name}` is to run on {place}, and its argument `{name}` is on {actual}"
            hint = f'a launch runs where its arrays are: leave device= away, or pass {name}.to("{place}")'
            raise LaunchError.of(message, "device", hint, kernel.span)


# ---------------------------------------------------------------------------------- launches without Python


def quick_launch(kernel: Kernel, *, waits: bool = False) -> Callable[..., Any] | None:
    """Native code of grid, inputs, outputs and `record_tape`; None where there is none, or none yet.

    It does for usual arguments what `run` says in Python: returns True where it has launched the kernel, the
    packed arguments where it has checked them for a recorder, and False, with nothing done, where there is
    more to do.  With `waits` it is built now.
    """
    plan, chosen, entry = kernel.plan, settings(), kernel.program.entry
    on_cpu = entry.on_cpu() if isinstance(entry, Placed) else None
    has_more = plan.formals or plan.late_sums or plan.lost_sums or plan.check or OPEN
    if has_more or chosen.print_launches or chosen.check_races or chosen.check:
        return None
    kinds = [_kind(kernel, i) for i in range(len(plan.types))]
    slots = GRID_SLOTS + sum(map(slots_of, plan.types))
    native = on_cpu.native(waits=waits) if isinstance(on_cpu, CpuEntry) else None
    if native is None or None in kinds or slots > MOST_SLOTS:
        return None
    assert isinstance(on_cpu, CpuEntry)
    known = [kind for kind in kinds if kind is not None]
    launched = Launched(
        facts(on_cpu.code(), plan.coordinates, kernel.program.totals, known),
        BLOCKS,
        on_cpu.ended,
        plan.types,
        unrecorded_launch(kernel.name),
        array,
        settings,
        chosen,
        LOG.isEnabledFor,
        logging.DEBUG,
        ENTERED,
        OPEN,
        plan.constants,
        RECORDER.get,
        partial(caller, 1),  # behind it, `launch`
    )
    return native.launching(launched)


def _kind(kernel: Kernel, position: int) -> Kind | None:
    """What native code knows of a parameter; None for one that it does not pack."""
    plan = kernel.plan
    wanted, quick = plan.types[position], plan.quick[position]
    if isinstance(wanted, Array):
        return ARRAY, position in plan.written, position in plan.read
    if not isinstance(wanted, Scalar) or quick is None or wanted.name == "uint64":
        return None
    if wanted.is_float:
        return (FLOAT32 if wanted.bits == 32 else FLOAT64), 0, 0
    return INTEGER | wanted.bits // 8 << 4, int(quick.low), int(quick.high)


# ------------------------------------------------------------------------------------------------------ races


@explains_bad_calls()
def find_races(
    kernel: Kernel, dim: int | Sequence[int], inputs: Sequence[Any] = (), outputs: Sequence[Any] = ()
) -> "Races":
    r"""The data races that a launch of `kernel` with these arguments would have; nothing is changed.

    A race is an element that one thread plainly stores to and another one stores to, reads, or changes by an
    atomic.  There is one `Race` for each array and pair of places, which as text names the element, the lines
    and two threads; what comes back is a tuple of them, empty if there is none.  What C++ snippets change is
    not seen: a warning.  Raises what the launch would raise, and GradientError in a lane of `vmap`.

    >>> text = "def last(x: array[float], y: array[float]):\n    y[0] = x[tid()]"
    >>> (race,) = kl.find_races(kl.compile(text)["last"], 3, [kl.ones(3)], [kl.zeros(1)])
    >>> str(race).splitlines()[0]
    'threads 0 and 2 of `last` both store to y[0]: which value stays there is not defined'
    """
    from kernelab.runtime.launch.races import Races, races_of

    if not isinstance(kernel, Kernel):
        raise no_kernel(kernel)
    require_lists(inputs=inputs, outputs=outputs)
    grid = grid_of(dim)
    arguments = ordered(kernel.loaded, [*inputs, *outputs], {})
    kernel = kernel.of_arguments(arguments)
    parts = [grid.packed]
    bind(kernel, arguments, parts)
    require_arguments_readable(arguments)
    if not grid.threads:
        return Races((), kernel.name)
    return Races(races_of(kernel.program, kernel.name, grid.extents, arguments, parts), kernel.name)
