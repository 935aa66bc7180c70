"""Attributes one element of a gradient to the launches and threads that added to it.

A sweep of its own, which publishes nothing.  Launches that reach the array run by the interpreter, with every
change of the element noted; another record contributes the difference of the element before and after it.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import index as as_index
from typing import Any

import numpy as np

from kernelab.autodiff.inspect.zero_lines import ZeroLine, dead_ends_behind, ends_before, zero_lines
from kernelab.autodiff.records.adjoint_buffers import Adjoints
from kernelab.autodiff.records.backward import BackwardPlan, check, refuse_late, sweep
from kernelab.autodiff.records.coverage import may_touch
from kernelab.autodiff.records.cuts import distinct
from kernelab.autodiff.records.hazards import Guard
from kernelab.autodiff.records.recording import Recording
from kernelab.autodiff.records.records import LaunchRecord, Record
from kernelab.autodiff.tape.seeds import Seeds, seeded
from kernelab.autodiff.tape.tape import Tape
from kernelab.autodiff.transforms.base_level import BASE
from kernelab.autodiff.transforms.host_numbers import varied_inputs
from kernelab.backend.cpu.interpreter import Change, can_interpret, changes_of
from kernelab.backend.cpu.observed_adjoint import OTHER_TAKEN
from kernelab.data_classes import dataclass, replace
from kernelab.errors import LaunchError, Source, Span, TapeError, a_thing, name_of
from kernelab.frontend.definitions.kernels import Formal
from kernelab.guidance.bad_calls import explains_bad_calls
from kernelab.hooks import Printed
from kernelab.lang.build import integer, type_of
from kernelab.lang.ir import Atom, Function, Var
from kernelab.lang.types import Array, Scalar, bfloat16, float16, is_differentiable, scalar_of, shape_of
from kernelab.passes.common.copying import Copier, inline
from kernelab.runtime.array.array import array
from kernelab.runtime.array.layout import is_integer
from kernelab.runtime.context.recorder import refusal, unrecorded
from kernelab.runtime.host.create import clone, ones_like
from kernelab.runtime.host.struct_instances import Instance
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.program import Pullback
from kernelab.runtime.launch.footprint import part
from kernelab.runtime.launch.launch import run
from kernelab.runtime.ops.function_calls import as_launch, leaves_among

_CALL = "write kl.contributions(tape, x, index, loss), of an array x"
_OF_STRUCTS = (
    "name an array in it; for a number set an array of one element before the launch, "
    "s.k = kl.array([2.0], requires_grad=True), and ask for its element 0"
)
_OF_FUNCTION = "write kl.contributions(f, x, index=i), of an array x and a function that returns an array"

Values = np.ndarray[Any, Any]
Place = tuple[Source, int]

EXACTNESS = 1e-4
"""The share of its parts by which the sum may differ from the gradient before the rest is shown."""


@dataclass(frozen=True, slots=True, eq=False)
class Contribution:
    """The amount that one thread of a launch added at a line; `thread` and `line` are None if unknown.

    `record` is its number on the tape, from 1, None for the cotangent that the sweep starts with.
    """

    record: int | None
    title: str
    place: str
    thread: tuple[int, ...] | None
    line: Span | None
    value: Values


@dataclass(frozen=True, slots=True, eq=False)
class Contributions(Printed):
    """All that was added to one element of a gradient, in the order of the sweep, and what it came to.

    `zeros` are the lines at which the products became zero, where all are or those of one component are; else
    those at which a `clamp` or `max` took the other value, and those that are zero by construction.
    """

    index: tuple[int, ...]
    total: Values
    parts: tuple[Contribution, ...]
    zeros: tuple[ZeroLine, ...] = ()

    def __repr__(self) -> str:
        return f"<{len(self.parts)} contributions to the gradient at {list(self.index)}>"


@explains_bad_calls(index=_CALL, primal=_CALL, tape=_CALL)
def contributions(
    tape: Tape,
    primal: array,
    index: int | Sequence[int],
    loss: array | None = None,
    grads: Mapping[array, Any] | None = None,
) -> Contributions:
    """The contributions to the gradient of one element of an array in ``tape.backward(loss, grads)``.

    The element has the dtype of the array: of vectors, each part is a vector.  No gradient changes, and what
    earlier sweeps left in a leaf's `.grad` does not count.  Every thread of the launches that reach the array
    runs by the interpreter.  Raises TapeError where `backward` would, for arrays of halves, and for arrays
    that are not on the CPU; LaunchError for an index outside of the array.
    """
    if not isinstance(tape, Tape):
        raise _refused(f"contributions takes the tape first, not {a_thing(tape)}", _CALL)
    if primal.__class__ is not array:
        given: object = primal
        hint = _OF_STRUCTS if isinstance(given, Instance) else _CALL
        raise _refused(f"contributions takes an array behind the tape, not {a_thing(primal)}", hint)
    position = _position(primal, index)
    if not primal.device.is_cpu:
        raise _refused("the array is not on the CPU", "record the launches on the CPU to look into them")
    if loss is None and grads is None:
        raise _refused("say what the gradient is of", "pass the loss, as to backward, or grads=")
    if not primal.requires_grad:
        raise _refused("the array has no gradient: it does not require one", "set requires_grad=True")
    if scalar_of(primal.dtype) in (float16, bfloat16):
        raise _refused("gradients of halves are added up over launches in float32", "use arrays of float32")
    seeds, records = tape.cotangents(loss, grads), tuple(tape)
    result, memory = _Sweep(records, primal, position).run(seeds), primal.allocation
    offset = _element(primal, position).offset
    if result.parts:
        for cut in distinct(check(BackwardPlan(records, seeds), tape._recording)):
            cut.warn()
        dead, size = np.argwhere(result.total == 0), result.total.itemsize
        zeros = tuple(
            replace(zero, component=tuple(map(int, at)))
            for at in (dead if result.total.ndim else ())
            for start in [offset + size * int(np.ravel_multi_index(tuple(at), result.total.shape))]
            for zero in zero_lines(records, seeds, memory, start, size)
        )
        every = zero_lines(records, seeds, memory, offset, result.total.nbytes) if not dead.size else ()
        beside = (zero for zero in every if zero.reason == OTHER_TAKEN)
        return replace(result, zeros=(*zeros, *beside, *dead_ends_behind(records, memory)))
    zeros = tuple(zero_lines(records, seeds, memory, offset, result.total.nbytes))
    if not zeros and not BackwardPlan(records, seeds, shared=()).reached:
        raise _refused("no gradient reaches an array", "backward says where the chain ends")
    reads = tape._recording.provenance.host_reads
    return replace(result, zeros=zeros or tuple(ends_before(records, seeds, memory, reads)))


def _require_position(argnums: Any) -> None:
    if not is_integer(argnums):
        hint = "argnums is the position of one argument, counted from 0"
        raise _refused(f"argnums={argnums!r} is no argument", hint)


def of_call(function: Any, *values: Any, argnums: int = 0, field: str = "", **named: Any) -> Contributions:
    """The contributions to the derivative of a `@func` with respect to one argument, at some values.

    For a struct `field` names the part: ``"k"``, or ``"body.m"`` of a nested struct.
    """
    _require_position(argnums)
    call = as_launch(function, varied_inputs(function, values), named)
    kernel, given = _by_use(call.kernel), leaves_among([*call.inputs, *call.outputs])
    leaves = dict(zip((formal.name for formal in kernel.definition.signature), given, strict=True))
    name = call.kernel.definition.signature[argnums].name if 0 <= argnums < len(call.inputs) else ""
    primal = leaves.get(f"{name}.{field}" if field else name)
    if not isinstance(primal, array):
        fields = [leaf for leaf, value in leaves.items() if isinstance(value, array) and "." in leaf]
        mine = [leaf.removeprefix(f"{name}.") for leaf in fields if leaf.startswith(f"{name}.")]
        hint = "argnums is the position of a float, a vector or a matrix, counted from 0"
        if mine:
            hint = f"argument {argnums} is a struct: name a field, field={' or '.join(map(repr, mine))}"
        what = f"argument {argnums}" + (f", field {field!r}," if field else "")
        raise _refused(f"{what} of `{call.kernel.name}` has no gradient", hint)
    if len(call.outputs) != 1 or not isinstance(call.outputs[0].dtype, Scalar):
        raise _refused(f"`{call.kernel.name}` does not return one number", "write a function of it that does")
    with Tape() as tape:
        run(kernel, 1, given)
    return contributions(tape, primal, 0, call.outputs[0])


def of_python(
    function: Callable[..., Any],
    *args: Any,
    index: int | Sequence[int] = 0,
    argnums: int = 0,
    field: str = "",
) -> Contributions:
    """The contributions to the gradient of a Python function with respect to one element of an argument.

    The argument is an array, or a struct of which `field` is one.

    What it returns is an array, and the gradient is that of the sum of its elements.
    """
    _require_position(argnums)
    chosen = args[argnums] if 0 <= argnums < len(args) else None
    whole = chosen.copy() if field and isinstance(chosen, Instance) else None
    elements = chosen if whole is None else getattr(whole, field)
    if not isinstance(elements, array):
        hint = 'name an array of the struct: field="k"' if isinstance(chosen, Instance) else _OF_FUNCTION
        raise _refused(f"argument {argnums} of {name_of(function)} is not an array", hint)
    primal = clone(elements, requires_grad=False)
    primal.requires_grad = True
    if whole is not None:
        setattr(whole, field, primal)
    tape = Tape()
    tape._recording = following = _Following(Guard("save", heard=False))
    try:
        with tape:
            result = function(*args[:argnums], primal if whole is None else whole, *args[argnums + 1 :])
        if not isinstance(result, array):
            raise _refused(f"{name_of(function)} returned {a_thing(result)}, not an array", _OF_FUNCTION)
        return contributions(tape, primal, index, grads={result: ones_like(result)})
    finally:
        for each in following.marked:
            each.requires_grad = False


class _Following(Recording):
    """Lets all that is computed from arrays with gradients have gradients, as transforms do."""

    def __init__(self, guard: Guard) -> None:
        super().__init__(guard)
        self.marked: list[array] = []

    def launch(self, call: LaunchRecord) -> None:
        if any(memory.requires_grad for memory in call.memories()):
            self._mark(call.targets)
        super().launch(call)

    def copied(self, dest: array, src: array, how: str) -> None:
        if src.requires_grad:
            self._mark([dest])
        super().copied(dest, src, how)

    def _mark(self, targets: Sequence[array]) -> None:
        new = [one for one in targets if is_differentiable(one.dtype) and not one.requires_grad]
        for target in new:
            target.requires_grad = True
        self.marked += new


def _by_use(kernel: Kernel) -> Kernel:
    """The kernel with its floats in arrays of one element that are read where they are used."""
    function = _ReadsByUse.function_of(kernel.laid_out)
    signature = tuple(Formal(param.hint, param.type, param.span) for param in function.params)
    return Kernel.of(kernel.name, replace(kernel.definition, function=function, signature=signature))


class _ReadsByUse(Copier):
    """Reads parameters that are floats from arrays of one element, at each statement that uses them."""

    arrays: Mapping[Atom, Var]

    @classmethod
    def function_of(cls, function: Function) -> Function:
        rewriter = cls()
        floats = [param for param in function.params if not isinstance(param.type, Array)]
        rewriter.arrays = {
            param: Var(Array(type_of(param), 1), param.hint, param.span)
            for param in floats
            if is_differentiable(param.type)
        }
        copied = rewriter.function(function)
        return replace(copied, params=tuple(rewriter.arrays.get(param, param) for param in function.params))

    def atom(self, atom: Atom) -> Atom:
        array = self.arrays.get(atom)
        return super().atom(atom) if array is None else self.builder.load(array, [integer(0)], array.hint)


class _Sweep:
    """A sweep that notes what changes the one element."""

    def __init__(self, records: Sequence[Record], primal: array, position: tuple[int, ...]) -> None:
        self.records = records
        self.primal = primal
        self.position = position
        self.adjoints = Adjoints()
        self.bar = self.adjoints.of(primal)
        self.parts: list[Contribution] = []
        self.element, start = _element(primal, position), _element(self.bar, position).ptr
        self.bytes = range(start, start + self.now().nbytes)

    def now(self) -> Values:
        """The current value of the element's adjoint."""
        return np.array(self.bar.seen()[self.position])

    def run(self, seeds: Seeds) -> Contributions:
        seeded(seeds, self.adjoints)
        self.keep(None, "the cotangent given to backward", "", [], np.zeros_like(self.now()))
        with unrecorded():
            end = self.end(BackwardPlan(self.records, seeds))
            plan = BackwardPlan(self.records, seeds, shared={self.primal.allocation})
            refuse_late(plan)
            sweep(plan, self.adjoints, BASE, self.pull, end)
        parts = tuple(part for part in self.parts if np.any(part.value != 0))
        return Contributions(self.position, self.now(), parts)

    def end(self, plan: BackwardPlan) -> int:
        """The first record that reads the element: after it, its gradient is published."""
        published = [(i, one) for i, one in plan.publications() if one.elements.overlaps(self.element)]
        published = [(i, one) for i, one in published if not any(map(self.element.overlaps, one.kept))]
        reading = [(i, one.is_input) for i, one in published]
        if not reading:
            return len(self.records)
        return 0 if any(leaf for _, leaf in reading) else min(i for i, _ in reading)

    def pull(self, records: Sequence[Record], i: int, adjoints: Adjoints) -> None:
        """Take the adjoints through a record, and note what the element got."""
        record, before = records[i], self.now()
        changes = self.watched(record)
        if changes is None:
            record.pull(adjoints, BASE)
            mine = self.primal.allocation
            is_written = any(one.allocation is mine and one.overlaps(self.element) for one in record.written)
            if is_written and not np.array_equal(self.now(), before, equal_nan=True):
                # What was written is another value than before: its gradient begins here.
                self.parts.clear()
                before = np.zeros_like(before)
            changes = []
        self.keep(i, record.title, str(record.place), changes, before)

    def watched(self, record: Record) -> list[Change] | None:
        """Run a launch thread by thread if it has the element in reach; None if it has not been run."""
        if not isinstance(record, LaunchRecord) or not isinstance(record.pullback, Pullback):
            return None
        adjoint = inline(record.pullback.unmerged.adjoint)
        near = any(reached.allocation is self.primal.allocation for reached in record.active)
        start = self.element.offset
        near = near and may_touch(record, self.primal.allocation, range(start, start + len(self.bytes)))
        if not near or not can_interpret(adjoint):
            return None
        saved = record.saved()  # alive until the run is over
        args = b"".join(record.adjoint_parts(self.adjoints, saved))
        return changes_of(adjoint, args, self.bytes)

    @np.errstate(invalid="ignore", over="ignore")
    def keep(self, i: int | None, title: str, place: str, changes: list[Change], before: Values) -> None:
        """Note the changes by thread and line, and what is left between them and what the element is now."""
        record, number = (None, None) if i is None else (self.records[i], i + 1)
        lines = {(change.span.source, change.span.line): change.span for change in reversed(changes)}
        added = self.added(changes, before)
        for (thread, line), value in added.items():
            assert isinstance(record, LaunchRecord)  # only its threads have lines
            where = record.grid.position(thread)
            self.parts.append(Contribution(number, title, place, where, lines[line], value))
        rest = np.array(self.now() - sum(added.values(), before))
        sizes = sum(map(np.abs, added.values()), np.abs(before))
        if not np.all(np.abs(rest) <= EXACTNESS * sizes):
            self.parts.append(Contribution(number, title, place, None, None, rest))

    def added(self, changes: Sequence[Change], before: Values) -> dict[tuple[int, Place], Values]:
        """The sum of each thread's additions at each line; a store discards all additions before it."""
        added: dict[tuple[int, Place], Values] = {}
        for change in changes:
            slot = slice(None) if change.component is None else change.component
            if change.is_store:
                # What is stored begins anew: what came before is of another value.
                for values in (before, *added.values(), *(part.value for part in self.parts)):
                    values.reshape(-1)[slot] = 0
                self.parts = [part for part in self.parts if np.any(part.value)]
            line = change.span.source, change.span.line
            own = added.setdefault((change.thread, line), np.zeros_like(before))
            own.reshape(-1)[slot] += np.ravel(change.value) if change.component is None else change.value
        return added


def _element(elements: array, position: tuple[int, ...]) -> array:
    return part(elements, tuple((k, 1, 1) for k in position))


def _position(primal: array, index: int | Sequence[int]) -> tuple[int, ...]:
    try:
        indices = tuple(map(as_index, index)) if isinstance(index, Sequence) else (as_index(index),)
    except TypeError:
        raise _refused(f"an index is an int, or a tuple of ints, not {a_thing(index)}", _CALL) from None
    pairs = list(zip(indices, primal.shape, strict=False))
    if len(indices) != primal.ndim or not all(-n <= k < n for k, n in pairs):
        message = f"there is no element {list(indices)} in an array of shape {primal.shape}"
        hint = "name one element, by as many indices as the array has dimensions"
        if len(indices) > primal.ndim and shape_of(primal.dtype):
            hint = f"write {', '.join(map(str, indices[: primal.ndim]))}: an element has all its components"
        raise refusal(LaunchError, message, "index", hint)
    return tuple(k % n for k, n in pairs)


def _refused(message: str, hint: str) -> TapeError:
    return refusal(TapeError, message, "contributions", hint)
