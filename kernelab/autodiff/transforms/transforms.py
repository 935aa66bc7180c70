"""Transforms of Python functions over arrays: forward mode and reverse mode.

Each runs the function at a level of its own (`kernelab.autodiff.transforms.levels`), so they compose.  The
function must not change its arguments, and returns arrays; `requires_grad` plays no part.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial, wraps
from itertools import accumulate
from typing import Any

import numpy as np

from kernelab.autodiff.records.adjoint_buffers import Adjoints, fresh
from kernelab.autodiff.records.moves import Move
from kernelab.autodiff.records.provenance import Cut, lost_on_the_host
from kernelab.autodiff.records.zero_chains import ZeroChain, loose_ends, zero_chains
from kernelab.autodiff.transforms.base_level import current
from kernelab.autodiff.transforms.batch_level import Batch, drawing_again
from kernelab.autodiff.transforms.forward_and_reverse import Explaining, Forward, Ran, Reverse
from kernelab.autodiff.transforms.levels import Level
from kernelab.autodiff.transforms.trees import (
    argument_name,
    assembled,
    fields,
    is_struct,
    leaves,
    memories_in,
    parts,
    scalar_shape,
    with_memory,
)
from kernelab.autodiff.transforms.wide_level import Vectors
from kernelab.data_classes import dataclass
from kernelab.errors import Diagnostic, GradientError, KernelValueError, Related, counted, name_of
from kernelab.host.traced import origins, traced
from kernelab.lang.types import Scalar, float64, scalar_of, with_scalar
from kernelab.runtime.array.array import array
from kernelab.runtime.array.transfers import look_at
from kernelab.runtime.context.conversion import HostArray, summed
from kernelab.runtime.context.recorder import caller, made_from_host, refusal
from kernelab.runtime.memory.memory import Allocation

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Flattened:
    """A function, its arguments, and the positions of those chosen, which are all arrays.

    `owners` are the positions of the arguments that these arrays are, or are fields of.
    """

    func: Function
    args: list[Any]
    chosen: tuple[int, ...]
    owners: tuple[int, ...]


def with_flat_structs(func: Function, args: Sequence[Any], chosen: Sequence[int]) -> Flattened:
    """The function with the fields of struct arguments as arguments; itself where there are none."""
    places = dict.fromkeys(n for n in chosen if is_struct(args[n]))
    if not places:
        return Flattened(func, list(args), tuple(chosen), tuple(chosen))
    arguments, taken, names = list(args), {}, {}
    for n in places:
        first = len(arguments)
        arguments += parts(args[n])
        taken[n] = tuple(range(first, len(arguments)))
        names.update({first + k: (n, name) for k, (name, _, _) in enumerate(fields(args[n]))})
    of_parts = _of_parts(func, args, taken)
    of_parts.__kernelab_parts__ = names  # type: ignore[attr-defined]
    pairs = [(k, n) for n in chosen for k in taken.get(n, (n,))]
    return Flattened(of_parts, arguments, tuple(k for k, _ in pairs), tuple(n for _, n in pairs))


def _of_parts(func: Function, args: Sequence[Any], taken: Mapping[int, Sequence[int]]) -> Function:
    @wraps(func)
    def of_parts(*values: Any) -> Any:
        whole = list(values[: len(args)])
        for n, places in taken.items():
            whole[n] = assembled(args[n], iter([values[k] for k in places]))
        members = ((n, name, part) for n in taken for name, _, part in fields(whole[n]))
        arrays = {(n, name): part for n, name, part in members if isinstance(part, array)}
        hint = "write to a new array of structs: kl.clone(ps)"
        with current().unchanged(name_of(func), arrays, member, hint):
            return func(*whole)

    def member(key: tuple[int, str]) -> str:
        return f"{argument_name(func, key[0])}, field {key[1]}"

    return of_parts


# ------------------------------------------------------------------------------------------------ transforms


def call(func: Function, args: Sequence[Any], has_aux: bool) -> tuple[Any, Any]:
    """Call a function: its result and its auxiliary part; GradientError if it changes an argument."""
    arrays = {i: arg for i, arg in enumerate(args) if isinstance(arg, array)}
    hint = "write to a new array: y = kl.zeros_like(x), or y = kl.clone(x)"
    __tracebackhide__ = True  # IPython shows the frames of the user
    with current().unchanged(name_of(func), arrays, partial(argument_name, func), hint):
        result, aux = func(*args), None
    if has_aux:
        if not isinstance(result, tuple) or len(result) != 2:
            message = f"has_aux=True: {name_of(func)} has to return a pair (output, aux)"
            raise refusal(GradientError, message, "aux")
        result, aux = result
    result = with_memory(result)
    level = current()
    if level.has_half_written or level.has_host_reads:
        returned = leaves(result, func)
        level.draw_on(returned)
        level.warn_of_constants(returned)
    level.returned = memories_in((result, aux))
    return result, aux


# ------------------------------------------------------------------------------------------ the two modes


@dataclass(frozen=True, slots=True)
class Recorded:
    """A function that has run in reverse mode: its result, and the copies of its arguments."""

    func: Function
    result: Any
    aux: Any
    outputs: list[array]
    inputs: list[array]
    level: Reverse

    def pull(self, level: Level, seeds: Sequence[array | None], own: bool = False) -> list[array]:
        """The adjoints of the inputs for cotangents of the outputs; `own` ones are changed."""
        bars = Adjoints()
        for output, seed in zip(self.outputs, seeds, strict=True):
            if seed is None:
                continue
            if own and output.allocation not in bars.memory and _stand_alike(seed, output):
                bars.share(output.allocation, seed.allocation)
            else:
                level.move(bars.of(output), seed, add=True)
        with drawing_again(level, self.level.parent):
            self.level.pull(level, bars)
        adjoints = [bars.of(source) for source in self.inputs]
        if isinstance(level, Reverse):
            level.derives(adjoints, self.inputs)
        return adjoints


def _stand_alike(one: array, other: array) -> bool:
    """Whether each of two arrays is all of its memory, with the same bytes at the same places."""
    is_whole = one.is_whole and other.is_whole and one.allocation.nbytes == other.allocation.nbytes
    return is_whole and scalar_of(one.dtype) == scalar_of(other.dtype)


def record(
    func: Function, args: Sequence[Any], chosen: Sequence[int], has_aux: bool = False, own: bool = False
) -> Recorded:
    """Run a function in reverse mode with respect to some arguments; `own` says that no one else has them."""
    __tracebackhide__ = True  # IPython shows the frames of the user
    parent = current()
    arguments, inputs = ([*args], [args[i] for i in chosen]) if own else _copied(parent, args, chosen)
    level = Reverse(parent, inputs, ahead=True)
    with level.active():
        result, aux = call(func, arguments, has_aux)
    outputs = leaves(result, func)
    _warn_of_zeros(func, level, outputs, chosen, inputs)
    return Recorded(func, result, aux, outputs, inputs, level)


def push(
    func: Function, args: Sequence[Any], chosen: Sequence[int], dots: Sequence[array], has_aux: bool = False
) -> tuple[Any, list[array], Any]:
    """Call a function: its result, the tangents of its outputs, and its auxiliary part."""
    __tracebackhide__ = True  # IPython shows the frames of the user
    parent = current()
    level = Forward(parent)
    arguments, inputs = _copied(parent, args, chosen)
    for source, dot in zip(inputs, dots, strict=True):
        parent.move(level.dot(source), dot)
    with level.active():
        result, aux = call(func, arguments, has_aux)
    outputs = leaves(result, func)
    moved = [level.dot(output) for output in outputs]
    # Along one argument, a tangent says that there is a derivative; beside another one it says nothing.
    several = sum([not _is_zero(parent, dot) for dot in dots]) > 1
    if several or all(_is_zero(parent, dot) for dot in moved):
        _warn_of_zeros(func, level, outputs, chosen, inputs)
    return result, moved, aux


def _warn_of_zeros(
    func: Function,
    level: Explaining,
    outputs: Sequence[array],
    chosen: Sequence[int],
    inputs: Sequence[array],
) -> None:
    """Warn where values of the chosen arguments go on though the derivative is zero by construction."""
    ends = any(isinstance(entry, Ran) and entry.program.dead_ends for entry in level.entries)
    if ends or any(level.untold(one.allocation) is not None for one in inputs):
        names = {one.allocation: argument_name(func, n) for n, one in zip(chosen, inputs, strict=True)}
        warn_of_zeros(name_of(func), level, outputs, names)


def warn_of_zeros(
    title: str, level: Explaining, outputs: Sequence[array], names: dict[Allocation, str]
) -> None:
    """Warn where values go on to the outputs though the derivative is zero by construction.

    A condition is reported where nothing else leads back to the inputs, of which these are the names.  So are
    values that the host took of an input from which nothing leads to the outputs.
    """
    entries = level.entries
    reads = {memory: read for memory in names if (read := level.untold(memory)) is not None}
    title = f"the derivative of {title} with respect to"
    for entry in entries:
        if isinstance(entry, Move) and entry.src.allocation in names:
            names.setdefault(entry.dest.allocation, names[entry.src.allocation])
    live, on_the_way, passive = set(), {out.allocation for out in outputs}, set[Allocation]()
    for i, entry in reversed([*enumerate(entries)]):
        written = {target.allocation for target in entry.written}
        if not written.isdisjoint(on_the_way):
            live.add(i)
            on_the_way.update(source.allocation for source in entry.reached)
        if not written.isdisjoint(on_the_way | passive):
            passive.update(source.allocation for source in level.lacking(entry))
    for memory, read in reads.items():
        if memory not in on_the_way:
            lost_on_the_host(f"{title} {names[memory]} is 0", read).warn()
    arrives = not on_the_way.isdisjoint(names)
    found = zero_chains(
        entries, live, on_the_way, lambda _, source: level.carries(source.allocation), passive
    )
    together: dict[object, tuple[ZeroChain, list[str]]] = {}  # those that end at one place
    for memory, zero in {zero.source.allocation: zero for zero in found}.items():
        if memory in names or not (zero.end.is_condition and arrives):
            by = names.get(memory) or f"an array that {zero.entry.title} reads"
            _, several = together.setdefault((zero.end.span, zero.entry.place), (zero, []))
            several.append(by)
    for zero, several in together.values():
        arguments = " and ".join(dict.fromkeys(several))
        Cut(zero.entry.place, zero.end, partial(zero.explain, f"{title} {arguments} is 0")).warn()


def _is_zero(level: Level, elements: array) -> bool:
    """Whether an array is known to hold zeros, in all lanes."""
    while isinstance(level, Batch):
        elements, level = level.view(elements), level.parent
    return level.parent is level and not np.any(elements.seen())


def _copied(parent: Level, args: Sequence[Any], chosen: Sequence[int]) -> tuple[list[Any], list[array]]:
    """The arguments with copies of some; other references to the same arrays are constants."""
    parent.warn_of_constants([args[i] for i in chosen])
    arguments, inputs = list(args), [parent.copy(args[i]) for i in chosen]
    for i, copy in zip(chosen, inputs, strict=True):
        arguments[i] = copy
    return arguments, inputs


# ------------------------------------------------------------------------------------------ gradients


def gradients(
    func: Function, args: Sequence[Any], chosen: Sequence[int], has_aux: bool
) -> tuple[Any, list[array], Any]:
    """Call a function: its result, an array of one number, and its gradients."""
    __tracebackhide__ = True  # IPython shows the frames of the user
    recorded = record(func, args, chosen, has_aux)
    loss = _checked_loss(recorded)
    seed = fresh(loss.shape, loss.dtype, loss)
    seed.host()[...] = 1
    return recorded.result, recorded.pull(current(), [seed], own=True), recorded.aux


def at_vector(
    func: Function, vector: HostArray, like: Sequence[array], args: Sequence[Any]
) -> tuple[float, HostArray]:
    """The value and the gradient of a function of arrays at the numbers of a vector, in float64."""

    def compute(arrays: Sequence[array]) -> list[array]:
        value, grads, _ = gradients(func, [*arrays, *args], range(len(like)), False)
        return [*leaves(value, func), *grads]

    loss, *parts = (result.reshape(-1) for result in Exact(func, [vector], Layout(like)).run(compute))
    return loss.item(), np.concatenate(parts)


class Layout:
    """Where the numbers of a vector stand in arrays like those in `like`: one array after another."""

    def __init__(self, like: Sequence[array]) -> None:
        shapes = [scalar_shape(each) for each in like]
        ends = [*accumulate(math.prod(shape) for shape in shapes)]
        places = map(slice, [0, *ends[:-1]], ends)
        exact = [with_scalar(each.dtype, float64) for each in like]
        self.size = ends[-1]
        self.parts = [*zip(places, shapes, exact, like, strict=True)]
        self.is_exact = all(scalar_of(each.dtype) == float64 for each in like)


class Exact:
    """Arrays of a layout with the numbers of each vector, on which programs run in float64."""

    def __init__(self, func: Function, vectors: Sequence[HostArray], layout: Layout) -> None:
        for vector in vectors:
            if vector.size != layout.size:
                message = f"{name_of(func)} takes {layout.size} numbers, and the vector has {vector.size}"
                raise refusal(KernelValueError, message, "shape", "pass the arrays that it takes as examples")
            if not vector.size:
                message = f"the vector for {name_of(func)} is empty: there is no derivative"
                raise refusal(KernelValueError, message, "shape", "pass a vector with elements")
        self.arrays = []
        for vector in vectors:
            for place, shape, dtype, example in layout.parts:
                self.arrays.append(fresh(example.shape, dtype, example, cleared=False))
                self.arrays[-1].blank()[...] = vector[place].reshape(shape)
                if origins(vector):  # numbers of unknown origin are told where the results come back
                    made_from_host(self.arrays[-1], vector)
        self.level: Vectors | None = None
        if not layout.is_exact:
            self.level = level = Vectors(current())
            with level.active():
                examples = [example for _, _, _, example in layout.parts] * len(vectors)
                pairs = zip(self.arrays, examples, strict=True)
                self.arrays = [level.narrow(part, each.dtype) for part, each in pairs]

    def run(
        self, compute: Callable[[Sequence[array]], Sequence[array]], is_last: bool = True
    ) -> list[HostArray]:
        """The results of `compute` on the arrays, as NumPy arrays that remember what they come from.

        After the last run, arrays that the user holds have what was computed for them.
        """
        with nullcontext() if self.level is None else self.level.active():
            results = compute(self.arrays)
        if self.level is not None:
            results = [self.level.wide(each) for each in results]
        if is_last:
            self.leave()
        return [traced(each.seen(), look_at(each)) for each in results]

    def leave(self) -> None:
        """Give arrays that the user holds what was computed for them."""
        if self.level is not None:
            self.level.leave()


def _checked_loss(recorded: Recorded) -> array:
    name = name_of(recorded.func)
    if len(recorded.outputs) != 1:
        message = f"{name} returned {len(recorded.outputs)} results, and a gradient is that of one number"
        hint = "write has_aux=True where the second is not to be differentiated; or use vjp or jacrev"
        raise refusal(GradientError, message, "loss", hint)
    (loss,) = recorded.outputs
    if loss.size != 1 or not isinstance(loss.dtype, Scalar) or not loss.dtype.is_float:
        found = f"{counted(loss.size, 'element')} of {loss.dtype}"
        message = f"{name} returned {found}, and a gradient is that of one float"
        hint = f"add them up: {summed('y', loss.dtype)}, or use vjp or jacrev"
        raise refusal(GradientError, message, "loss", hint)
    if loss.allocation not in recorded.level.tracked:
        message = f"the result of {name} was not computed from the arguments to differentiate with respect to"
        hint = "let kernels compute it from them: what goes through NumPy, or is compared, has no derivative"
        problem = Diagnostic(message, caller().span, "unreached", hint=hint, related=_ends(recorded))
        raise GradientError(problem)
    return loss


def _ends(recorded: Recorded) -> tuple[Related, ...]:
    """The line where the last value that was computed from the inputs ends."""
    level = recorded.level
    ends = loose_ends((entry.flow() for entry in level.entries), level.inputs, ())
    if not ends:
        return ()
    entry = level.entries[max(ends)]
    text = "what is computed from them ends here: the result does not read it:"
    return (Related(text, entry.place.span),)


# ------------------------------------------------------------------------------------------ Jacobians
