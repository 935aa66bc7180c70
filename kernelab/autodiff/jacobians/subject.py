"""The function a Jacobian is taken of: a kernel launch or a Python call, on copies of its arguments.

Arguments keep their values, gradients and versions; nothing is recorded.
"""

import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from kernelab.autodiff.transforms.levels import Level
from kernelab.autodiff.transforms.trees import fields, number_count, scalar_shape, with_memory
from kernelab.autodiff.transforms.trees import leaves as arrays_of
from kernelab.data_classes import dataclass, field
from kernelab.errors import Diagnostic, GradientError, KernelTypeError, a_thing, name_of
from kernelab.lang.build import elem_of, is_float
from kernelab.lang.structs import StructArray, leaves
from kernelab.lang.types import Array, is_differentiable
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import RECORDER, refusal, unrecorded
from kernelab.runtime.host.create import from_numpy
from kernelab.runtime.host.struct_instances import Instance, held_in
from kernelab.runtime.host.structarray import structarray
from kernelab.runtime.kernel.arguments import ordered, wrong_count
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.signature import flattened
from kernelab.runtime.launch.call import bind
from kernelab.runtime.launch.footprint import grid_of
from kernelab.runtime.launch.launch import launch
from kernelab.runtime.memory.memory import Allocation, duplicate_of
from kernelab.runtime.ops.indexed import indexedarray

Key = int | str
"""How a result names an argument: by its position in the list given; the field of a struct by its name."""


CHECKS = ("gradcheck", "taylor_test")
"""The functions that compare derivatives and do not return them."""


@dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """An input that is varied, or an output that is looked at."""

    key: Key
    label: str
    elements: array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape with components as last axes."""
        return scalar_shape(self.elements)

    @property
    def count(self) -> int:
        """The number of scalars in it."""
        return number_count(self.elements)


@dataclass(frozen=True, slots=True, eq=False)
class Started:
    """A run that has its copies and has not begun; `go` runs it and returns the outputs."""

    inputs: list[array]
    go: Callable[[Level], list[array]]


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A function from inputs to outputs; `kernel` is set where it is a single launch.

    `outputs` are None where they are known only once a Python function has returned them.  `beside` is where
    facts about the function are kept as long as it lives; `is_gradient` says that it is the gradient of one
    number by what is varied, and `labels` names what a function returns.  `told` says what NumPy warns of in
    the function.
    """

    name: str
    arguments: tuple[Any, ...]
    sources: tuple[Variable, ...]
    outputs: tuple[Variable, ...] | None
    call: Callable[[list[Any]], Any]
    beside: dict[str, Any]
    kernel: Kernel | None = None
    grid: Any = None
    is_gradient: bool = False
    labels: Sequence[str] = ()
    told: Mapping[str, Any] = field(default_factory=np.geterr)

    @property
    def nbytes(self) -> int:
        """The memory of the inputs and of the outputs that are known, in bytes."""
        return sum(v.elements.allocation.nbytes for v in (*self.sources, *(self.outputs or ())))

    def start(self) -> Started:
        """Copy the arguments; arrays over one memory stay over one memory."""
        copier = _Copier()
        arguments = [copier.copy(argument) for argument in self.arguments]
        inputs = [copier.copy(source.elements) for source in self.sources]

        filled = {target.elements.allocation for target in self.outputs or ()}
        pairs = zip(self.sources, inputs, strict=True)
        kept = {one.label: copied for one, copied in pairs if one.elements.allocation not in filled}
        hint = "write to a new array: y = kl.clone(x), or name it in outputs="

        def go(level: Level) -> list[array]:
            named = {} if self.kernel is not None else kept
            with level.active(), level.unchanged(self.name, named, "`{}`".format, hint):
                with np.errstate(**self.told):
                    returned = with_memory(self.call(arguments))
                if self.outputs is None:
                    outputs = self._differentiable(arrays_of(returned, self.call))
                else:
                    outputs = [copier.copy(target.elements) for target in self.outputs]
                level.draw_on(outputs)
                level.warn_of_constants(outputs)
                level.returned = {one.allocation for one in outputs}
            if self.outputs is not None and self.kernel is None:
                self._require_filled(outputs)
            return outputs

        return Started(inputs, go)

    def _require_filled(self, copies: list[array]) -> None:
        """Raise KernelTypeError where a function has written none of its outputs: it got copies of them."""
        given = [target.elements for target in self.outputs or ()]
        pairs = zip(given, copies, strict=True)
        if any(out.allocation.version for out in copies) or any(
            before.host().tobytes() != after.host().tobytes() for before, after in pairs
        ):
            return
        message = f"{self.name} writes to none of the arrays in outputs="
        hint = "let it take copies of them as its last arguments, and write to these, as in def f(x, y); "
        hint += "or leave outputs= away, if it returns what it computes"
        raise refusal(KernelTypeError, message, "result", hint)

    def _differentiable(self, results: list[array]) -> list[array]:
        """Check the results of a function; KernelTypeError unless they are arrays of floats."""
        if not results:
            message = f"{self.name} returned no array"
            raise refusal(KernelTypeError, message, "result", "return what it computes")
        for k, output in enumerate(results):
            if not is_differentiable(output.dtype):
                message = f"output {k} of {self.name} is an array of {output.dtype}, which has no derivative"
                raise refusal(KernelTypeError, message, "result", "return arrays of floats only")
        return results

    def targets(self, outputs: Sequence[array]) -> tuple[Variable, ...]:
        """The outputs, where a run has found them."""
        if self.outputs is not None:
            return self.outputs
        names = [*self.labels, *(f"output {k}" for k in range(len(self.labels), len(outputs)))]
        return tuple(Variable(k, name, a) for k, (name, a) in enumerate(zip(names, outputs, strict=False)))


class _Copier:
    """Copies arrays memory by memory."""

    def __init__(self) -> None:
        self.memories: dict[Allocation, Allocation] = {}

    def copy(self, value: Any) -> Any:
        if isinstance(value, Instance):
            return self._struct(value)
        if isinstance(value, indexedarray):
            return indexedarray(self.copy(value.data), value.indices)
        if not isinstance(value, array) or not hasattr(value, "allocation"):
            return value
        memory = self.memories.get(value.allocation)
        if memory is None:
            memory = self.memories[value.allocation] = duplicate_of(value.allocation)
            memory.requires_grad = value.allocation.requires_grad
        return value.twin(memory)

    def _struct(self, value: Instance) -> Instance:
        """A struct with copies of its arrays, and of those that stand for its numbers."""
        copy = value.copy()
        for entry in value.__kernelab_struct__.fields:
            setattr(copy, entry.name, self.copy(held_in(value, entry.name)))
        return copy


@contextmanager
def outside_transforms(what: str) -> Iterator[None]:
    """A context without recording; GradientError inside a transform, whose lanes it could not see.

    NumPy does not warn of infinite and undefined numbers in it, but in the functions of the user's.
    """
    if isinstance(RECORDER.get(), Level):
        hint = "use kl.func.jacrev or kl.func.jacfwd there: transforms compose with one another"
        raise refusal(GradientError, f"{what} cannot be called inside a transform", "nested", hint)
    with unrecorded(), np.errstate(all="ignore"):
        yield


# ------------------------------------------------------------------------------------------ kernels


def of_kernel(kernel: Kernel, dim: Any, inputs: Sequence[Any], outputs: Sequence[Any], what: str) -> Subject:
    """A launch; sources are the inputs with gradients, outputs those given, else the arrays changed.

    Checks also vary the initial values of those outputs that the kernel reads.
    """
    grid = grid_of(dim).extents  # first: of what stands in the wrong place too few arguments are left
    values, count = ordered(kernel.loaded, [*inputs, *outputs], {}), len(inputs)
    kernel = kernel.of_arguments(values)
    bind(kernel, list(values), [])  # a wrong argument is refused as a launch refuses it
    keys: list[Key] = [*range(count), *range(len(values) - count)] if outputs else [*range(len(values))]
    if kernel.plan.formals is not None:
        formals = kernel.plan.formals
        parts = [list(leaves(formal.type, formal.name)) for formal in formals]
        keys = [
            key if len(part) == 1 else leaf.name
            for key, part in zip(keys, parts, strict=True)
            for leaf in part
        ]
        count = sum(len(part) for part in parts[:count])
        values = flattened(kernel.name, kernel.span, formals, values)
        kernel = kernel.by_leaves
    named = _borrowed(kernel, values)
    variables = [
        Variable(key, name, value)
        for key, (name, value) in zip(keys, named.items(), strict=True)
        if isinstance(value, array) and is_differentiable(value.dtype) and value.size
    ]
    effects, names = kernel.effects, list(named)
    only_changed = {var.hint for var in effects.changed - effects.reads}
    sources = [v for v in variables if v.label in names[:count] and v.label not in only_changed]
    sources = [v for v in sources if v.elements.requires_grad]
    if what in CHECKS:
        read = {var.hint for var in effects.reads} & {*names[count:]}
        sources += _begun_with(v for v in variables if v.label in read)
    changed = {var.hint for var in effects.changed}
    listed = set(names[count:]) or changed
    targets = [v for v in variables if v.label in listed]
    written = [value for name, value in named.items() if name in changed and isinstance(value, array)]
    named_in_vain = [v.label for v in targets]
    if any(v.elements.overlaps(value) for v in targets for value in written):
        named_in_vain = []
    if not outputs:
        targets = [Variable(k, v.label, v.elements) for k, v in enumerate(targets)]
    if not sources or not targets or named_in_vain:
        _refuse_empty(named.items(), what)
        raise GradientError(_no_pair(kernel, bool(sources), what, named_in_vain))

    def run(arguments: list[Any]) -> None:
        launch(kernel, dim, arguments)

    if what == "gradcheck" and 0 in grid:
        message = f"0 pairs checked: the launch of {kernel.name} has no threads"
        raise refusal(GradientError, message, what, "write dim=n, the number of threads")
    arguments = tuple(named.values())
    return Subject(kernel.name, arguments, tuple(sources), tuple(targets), run, kernel.beside, kernel, grid)


def _begun_with(outputs: Iterable[Variable]) -> list[Variable]:
    """The initial values of outputs with gradients, as inputs; those that are not finite are left out."""
    found = [v for v in outputs if v.elements.requires_grad and np.isfinite(v.elements.host()).all()]
    return [Variable(v.label, v.label, v.elements) for v in found]


def _borrowed(kernel: Kernel, values: list[Any]) -> dict[str, Any]:
    """The arguments by the names of the parameters; NumPy arrays as arrays, without a copy."""
    if len(values) != len(kernel.plan.parameters):
        raise wrong_count(kernel.name, kernel.plan.parameters, values, kernel.span)
    named: dict[str, Any] = {}
    for param, value in zip(kernel.primal.params, values, strict=True):
        borrowed = isinstance(param.type, Array) and isinstance(value, np.ndarray)
        named[param.hint] = from_numpy(value, dtype=elem_of(param)) if borrowed else value
    return named


def _refuse_empty(given: Iterable[tuple[str, Any]], what: str) -> None:
    """Raise GradientError for an array of floats without elements."""
    for name, value in given:
        if isinstance(value, array) and is_differentiable(value.dtype) and not value.size:
            message = f"`{name}` has no elements, its shape is {value.shape}: there is no derivative"
            raise refusal(GradientError, message, what, "pass an array with elements, or leave the call out")


def _no_pair(kernel: Kernel, has_sources: bool, what: str, outputs: Sequence[str]) -> Diagnostic:
    nothing = "0 pairs checked" if what.startswith("gradcheck") else "there is no derivative to compute"
    if not has_sources:
        message = f"{nothing}: no argument of {kernel.name} has requires_grad"
        hint = "create the inputs with requires_grad=True"
        field = next((var.hint for var in kernel.primal.params if "." in var.hint and is_float(var)), "")
        if field:
            hint += f"; for {field}, set requires_grad = True of the struct"
    else:
        among = f"of outputs=, {' and '.join(outputs)}" if outputs else "of an array of floats"
        message = f"{nothing}: {kernel.name} changes no element {among}"
        hint = "pass what the kernel writes as outputs="
    return Diagnostic(message, kernel.primal.span, what, hint=hint)


# ------------------------------------------------------------------------------------------ functions


def of_function(
    function: Callable[..., Any], inputs: Sequence[Any], outputs: Sequence[Any], what: str
) -> Subject:
    """A call of a Python function, which returns arrays, or fills those given as `outputs`.

    Checks also vary the initial values of the outputs: the function may read them.
    """
    facts, count = _beside(function), len(inputs) + len(outputs)
    signature = _signature(function, facts)
    labels = _labels(signature, count)
    sources = [
        variable
        for k, value in enumerate(inputs)
        for variable in _variables(k, labels[k], value)
        if variable.elements.requires_grad
    ]
    if not sources:
        _refuse_empty(zip(labels, inputs, strict=False), what)
        message = f"no input of {name_of(function)} is an array with requires_grad"
        hint = "create what is to be varied with requires_grad=True; for a struct, set s.requires_grad = True"
        raise refusal(GradientError, message, what, hint)
    for k, value in enumerate(outputs):
        if not isinstance(value, array) or not is_differentiable(value.dtype):
            message = f"outputs[{k}] of {what} is {a_thing(value)}, not an array of floats"
            raise refusal(KernelTypeError, message, what)
    takes_outputs = _takes(signature, count)
    own = [next((i for i, one in enumerate(inputs) if one is value), -1) for value in outputs]
    named = [labels[len(inputs) + k if takes_outputs or i < 0 else i] for k, i in enumerate(own)]
    targets = tuple(
        Variable(k, name, value) for k, (name, value) in enumerate(zip(named, outputs, strict=True))
    )
    if what in CHECKS and takes_outputs:
        sources += _begun_with(targets)

    def run(arguments: list[Any]) -> Any:
        return function(*(arguments if takes_outputs else arguments[: len(inputs)]))

    run.__name__ = name_of(function)
    arguments = (*inputs, *outputs)
    of_itself = len(sources) == 1 and not outputs and facts.get(GRADIENT) == sources[0].key
    return Subject(
        name_of(function), arguments, tuple(sources), targets or None, run, facts, is_gradient=of_itself
    )


def _beside(function: Callable[..., Any]) -> dict[str, Any]:
    """The cache of facts about a function, stored with the function itself and not with its wrappers."""
    attributes = getattr(function, "__dict__", {})
    facts: _Facts | None = attributes.get("__kernelab_beside__")
    if facts is None or facts.owner is None or facts.owner() is not function:
        facts = attributes["__kernelab_beside__"] = _Facts(weakref.ref(function))
    return facts.found


class _Facts:
    """What is known of a function; where the function is pickled, none of it goes with it."""

    def __init__(self, owner: Callable[[], Any] | None = None) -> None:
        self.owner = owner
        self.found: dict[str, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return _Facts, ()


GRADIENT = "gradient"


def mark_gradient(function: Callable[..., Any], position: int) -> Callable[..., Any]:
    """Note that a function returns a gradient with respect to one of its arguments; the function."""
    _beside(function)[GRADIENT] = position
    return function


def _variables(k: int, label: str, value: Any) -> list[Variable]:
    """The variables of an input: an array of floats, or the float fields of an array of structs."""
    if isinstance(value, Instance):
        named = ((f"{label}.{name}", member) for name, _, member in fields(value))
        return [Variable(name, name, member) for name, member in named if isinstance(member, array)]
    if not isinstance(value, array) or not value.size:
        return []
    if isinstance(value, structarray):
        names = [leaf.name for leaf in leaves(StructArray(value.dtype, value.ndim), label)]
        variables = [Variable(name, name, part) for name, part in zip(names, value.leaves, strict=True)]
    else:
        variables = [Variable(k, label, value)]
    return [variable for variable in variables if is_differentiable(variable.elements.dtype)]


def _signature(function: Callable[..., Any], facts: dict[str, Any]) -> inspect.Signature | None:
    """The signature of a function, None if unknown; looked up once."""
    if "signature" not in facts:
        try:
            facts["signature"] = inspect.signature(function)
        except (TypeError, ValueError):
            facts["signature"] = None
    signature: inspect.Signature | None = facts["signature"]
    return signature


def _labels(signature: inspect.Signature | None, count: int) -> list[str]:
    parameters = () if signature is None else signature.parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [*names[:count], *(f"argument {k}" for k in range(len(names), count))]


def _takes(signature: inspect.Signature | None, count: int) -> bool:
    """Whether a function can be called with so many arguments."""
    try:
        return signature is not None and signature.bind(*[None] * count) is not None
    except TypeError:
        return False
