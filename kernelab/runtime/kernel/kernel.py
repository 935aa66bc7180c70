"""Kernels: what a definition can do, each program derived and each entry built when it is first needed.

The one module that composes frontend, passes and backend.  Must not know launches or tapes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self

from kernelab import hooks
from kernelab.backend.common.backends import Entry
from kernelab.codegen.cpp.wide_accumulators import is_deferred
from kernelab.errors import Diagnostic, KernelTypeError, LaunchError, Source, Span
from kernelab.frontend import (
    Definition,
    GenericKernel,
    KernelDefinition,
    Lowered,
    StructDefinition,
    UserFunction,
    lower_source,
)
from kernelab.hooks import Displayed
from kernelab.lang.ir import Custom, Function, Native, Storage, Var, walk
from kernelab.lang.structs import AnyType
from kernelab.lang.types import Array, Type, is_differentiable
from kernelab.passes.access.access_regions import Region, regions
from kernelab.passes.access.integer_casts import Cast, casts
from kernelab.passes.access.no_clobber import Contest, contests
from kernelab.passes.ad.expand_grad import expand_gradients
from kernelab.passes.ad.jvp import jvp
from kernelab.passes.ad.loop_savings import LoopStorage, loop_storage
from kernelab.passes.ad.vjp import Vjp, vjp
from kernelab.passes.common.effects import Effects, effects
from kernelab.passes.common.inline import expanded, lay_out
from kernelab.passes.common.load_forwarding import forward
from kernelab.passes.common.simplify import simplify
from kernelab.passes.common.widen import widen
from kernelab.runtime.arguments.arguments import (
    Loaded,
    Parameter,
    Quick,
    Straight,
    ordered,
    parameters,
    straight,
)
from kernelab.runtime.arguments.signature import Formals, formals_of, types_of
from kernelab.runtime.array.array_attributes import KernelHints
from kernelab.runtime.context.garbage import put_off
from kernelab.runtime.host.struct_instances import Instance, class_of
from kernelab.runtime.kernel.derived import Reverse, Tracing, build, flat, flat_pair, traced
from kernelab.runtime.kernel.loading import Module, loader, names_around, refuse_unknown
from kernelab.runtime.kernel.stale_constants import Constants, constants_of
from kernelab.settings import settings

Groups = tuple[tuple[str, ...], ...]
Kind = Literal["primal", "augmented", "adjoint", "tangent"]


@dataclass(frozen=True, slots=True)
class Plan:
    """The facts of a kernel that a launch needs: parameters, types, positions of some, rank.

    `quick` packs plain numbers, `straight` usual arguments.  `written` are the arrays whose elements the
    kernel changes, `read` those that it loads, `read_in_text` also those whose elements its text loads and
    does not use, `arrays` and `floats` all arrays and all float arrays (`of_floats` says of each of the
    former whether it is among the latter), `numbers` the floats and vectors for which a one-element array may
    stand.  `coordinates` counts the thread indices that it unpacks.  `totals` says that sums reach memory
    late, which arrays that share memory must not see.  `formals` are the parameters as written, where a
    struct is among them: all else counts its leaves.  `constants` are what it captured, where a launch is to
    look whether that has changed.
    """

    parameters: tuple[Parameter, ...]
    types: tuple[Type, ...]
    quick: tuple[Quick | None, ...]
    straight: Straight
    arrays: tuple[int, ...]
    floats: tuple[int, ...]
    of_floats: tuple[bool, ...]
    numbers: tuple[int, ...]
    read: tuple[int, ...]
    read_in_text: tuple[int, ...]
    written: tuple[int, ...]
    coordinates: int
    totals: bool
    formals: Formals | None
    constants: Constants | None


class Kernel(KernelHints, Displayed):
    """A kernel of the user's, compared by identity; ``kernel[grid](*arguments)`` launches it."""

    def __init__(
        self,
        func: Callable[..., Any],
        key: str | None = None,
        module: Any = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a kernel of a Python function under the name `key`; `kernelab.kernel` says what there is more.

        `module` has no meaning here: every kernel is a unit of its own.
        """
        names, chosen = names_around(2), options or {}
        refuse_unknown("kernel", chosen)
        self._begin(key or func.__name__, loader(func, names, chosen))
        self.__doc__ = func.__doc__

    @classmethod
    def of(
        cls, name: str, load: Callable[[], Loaded], widened: bool = False, by_leaves: bool = False
    ) -> Self:
        """The kernel whose definition `load` gives when it is first needed."""
        made = cls.__new__(cls)
        made._begin(name, load, widened, by_leaves)
        return made

    def _begin(
        self, name: str, load: Callable[[], Loaded], widened: bool = False, by_leaves: bool = False
    ) -> None:
        self.name = name
        self._instances: dict[KernelDefinition, Kernel] = {}
        self.__name__ = name
        self._load = load
        self._widened = widened
        self._by_leaves = by_leaves or widened
        self.sharing: dict[tuple[bytes, ...], Groups] = {}
        self._reverse: dict[tuple[tuple[str, ...], Groups, tuple[str, ...]], Reverse] = {}
        self._tangents: dict[tuple[str, ...], Function] = {}
        self._tangent_entries: dict[tuple[str, ...], Entry] = {}
        self.beside: dict[str, Any] = {}

    __kernelab_kernel__ = True

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"

    def __getitem__(self, grid: int | tuple[int, ...]) -> Callable[..., None]:
        """The kernel on a grid: call it with its arguments, by position or by name."""

        def launched(*given: Any, **named: Any) -> None:
            if not named and len(given) == self.arity:
                hooks.run(self, grid, [*given])
                return
            arguments = ordered(self.loaded, given, named)
            hooks.run(self.of_arguments(arguments), grid, arguments)

        return launched

    def __call__(self, *_: Any) -> None:
        """A kernel runs on a grid: raises LaunchError that says how."""
        raise _called_directly(self)

    # -------------------------------------------------------------------------------------- what it is

    @cached_property
    def loaded(self) -> Loaded:
        """The definition that the frontend made of the text; raises KernelError where it has mistakes."""
        return self._load()

    @cached_property
    def definition(self) -> KernelDefinition:
        """The kernel for the types of its parameters; raises KernelError where some of them are `Any`."""
        if isinstance(self.loaded, GenericKernel):
            raise KernelTypeError(_undecided(self.loaded))
        return self.loaded

    @property
    def is_generic(self) -> bool:
        """Whether the types of some parameters are left to the launch."""
        return isinstance(self.loaded, GenericKernel)

    @cached_property
    def arity(self) -> int:
        """The number of arguments, whatever their types; -1 where the types choose the kernel."""
        return len(self.loaded.names) if isinstance(self.loaded, KernelDefinition) else -1

    def of_arguments(self, arguments: Sequence[Any]) -> "Kernel":
        """The kernel for the types of these arguments: itself, unless it is generic.  Raises KernelError."""
        if isinstance(self.loaded, KernelDefinition):
            return self
        return self.instance(types_of(self.loaded, arguments))

    def instance(self, types: Sequence[AnyType | None]) -> "Kernel":
        """A generic kernel for these types of its parameters; raises KernelError."""
        assert isinstance(self.loaded, GenericKernel)
        found = self.loaded.instantiate(types)
        if found not in self._instances:
            self._instances[found] = made = Kernel.of(self.name, lambda: found)
            made.definition = found
        return self._instances[found]

    @property
    def key(self) -> str:
        """The name, once more."""
        return self.name

    @property
    def options(self) -> dict[str, Any]:
        """The options of the kernel: whether it has a backward pass."""
        return {"enable_backward": True, **self.loaded.options}

    @property
    def module(self) -> Module:
        """The Python module where the kernel stands; every kernel is built alone."""
        return Module(self.source.label, self.options)

    @property
    def doc(self) -> str:
        return self.loaded.doc or ""

    @property
    def source(self) -> Source:
        """The text that the kernel stands in."""
        return self.loaded.source

    @property
    def span(self) -> Span:
        return self.loaded.span

    @cached_property
    def primal(self) -> Function:
        """The kernel as IR, calls inlined and simplified."""
        return flat(self.laid_out)

    @cached_property
    def text(self) -> Function:
        """The kernel as it is written, calls inlined: what it loads and does not use is still there."""
        return lay_out(expand_gradients(self.definition.function))

    @cached_property
    def laid_out(self) -> Function:
        """The kernel as it is differentiated: functions with custom derivatives are not inlined."""
        function = simplify(self.text)
        return simplify(widen(function)) if self._widened else function

    @cached_property
    def effects(self) -> Effects:
        """The array parameters that the kernel reads, writes and accumulates into."""
        return effects(self.primal)

    @cached_property
    def regions_read(self) -> dict[int, Region]:
        """The elements of its array parameters that the kernel reads, by position."""
        return regions(self.primal, "read")

    @cached_property
    def regions_read_in_text(self) -> dict[int, Region]:
        """The elements of its array parameters that the kernel's text reads, used or not, by position."""
        return regions(self.text, "read")

    def clearer(self, needed: Region) -> Region:
        """The adjoint's read region, or the kernel's where that is tighter."""
        read = self.regions_read.get(needed.position, needed)
        # What users write as derivatives may read other elements than the kernel does.
        has_rules = any(isinstance(stmt, Custom | Native) for stmt in walk(self.laid_out.body))
        return needed if not needed.vague or read.vague or has_rules else read

    @cached_property
    def regions_changed(self) -> dict[int, Region]:
        """The elements of its array parameters that the kernel changes, by position."""
        return regions(self.primal, "change")

    @cached_property
    def contests(self) -> Mapping[int, tuple[Contest, ...]]:
        """For arrays that the kernel reads and changes, by position: whether it reads what it changes."""
        if self.effects.reads.isdisjoint(self.effects.changed):
            return {}
        return contests(forward(expanded(self.laid_out)))

    @cached_property
    def casts(self) -> tuple[Cast, ...]:
        """The array parameters that reach the kernel's results through an integer."""
        return casts(self.primal)

    @property
    def has_backward(self) -> bool:
        """Whether the kernel may be differentiated, as far as its options go."""
        return bool(self.definition.options.get("enable_backward", settings().enable_backward))

    @cached_property
    def plan(self) -> Plan:
        """The facts that a launch needs."""
        params, found = self.primal.params, self.effects
        named = effects(self.text).reads
        made = parameters(self.name, params)
        arrays = tuple(i for i, param in enumerate(params) if isinstance(param.type, Array))
        written = tuple(i for i in arrays if params[i] in found.changed)
        return Plan(
            parameters=made,
            types=tuple(parameter.type for parameter in made),
            quick=tuple(parameter.quick for parameter in made),
            straight=straight(made, written),
            arrays=arrays,
            floats=tuple(i for i in arrays if is_differentiable(params[i].type)),
            of_floats=tuple(is_differentiable(params[i].type) for i in arrays),
            numbers=tuple(i for i, p in enumerate(made) if i not in arrays and is_differentiable(p.type)),
            read=tuple(i for i in arrays if params[i] in found.reads),
            read_in_text=tuple(i for i in arrays if self.text.params[i] in named),
            written=written,
            coordinates=len(self.primal.threads),
            totals=is_deferred(self.primal),
            formals=None if self._by_leaves else formals_of(self.definition.signature),
            constants=constants_of(self.definition),
        )

    # -------------------------------------------------------------------------------------- derived programs

    def vjp(self, active: Iterable[str], groups: Groups = ()) -> Vjp:
        """The augmented primal and the adjoint with respect to the named parameters."""
        return self.reverse(self._ordered(active), groups).program

    def reverse(self, active: tuple[str, ...], groups: Groups = (), intact: tuple[str, ...] = ()) -> Reverse:
        """Reverse mode with respect to the named parameters; `groups` name arrays that share memory.

        `intact` names arrays that still hold what the kernel has read of them when it is done.
        """
        key = (active, groups, intact)
        if key not in self._reverse:
            if not self.has_backward:
                raise KernelTypeError(_no_backward(self))
            if not self._widened:
                hooks.check_rules(self.laid_out)
            shared = [[self.primal.param(name) for name in group] for group in groups]
            function = replace(self.laid_out, aliased=bool(groups))

            @put_off()
            def derive(storage: Storage, by_line: bool = False) -> Vjp:
                return flat_pair(vjp(function, active, shared, storage, intact, by_line))

            program = derive("save")
            names = [param.hint for param in self.primal.params]
            positions = tuple(i for i, name in enumerate(names) if name in active)
            self._reverse[key] = Reverse(self.primal, program, positions, derive, self.clearer)
        return self._reverse[key]

    @property
    def spilled(self) -> int:
        """The number of sweeps that used checkpoints because their loops would have saved too much."""
        return sum(reverse.spilled for reverse in self._reverse.values())

    def loops(self, active: Iterable[str] | None = None) -> tuple[LoopStorage, ...]:
        """The values that the adjoint by the named parameters, or by all, saves of each loop."""
        every = [param.hint for param in self.primal.params if is_differentiable(param.type)]
        return loop_storage(self.primal, self.vjp(every if active is None else active).adjoint)

    def jvp(self, active: Iterable[str]) -> Function:
        """The tangent program with respect to the named parameters."""
        key = self._ordered(active)
        if key not in self._tangents:
            if not self._widened:
                hooks.check_rules(self.laid_out)
            self._tangents[key] = flat(jvp(self.laid_out, key))
        return self._tangents[key]

    def widened(self) -> "Kernel":
        """The same kernel over float64."""
        return self if self._widened else self._wide

    @cached_property
    def _wide(self) -> "Kernel":
        return Kernel.of(self.name, lambda: self.definition, widened=True)

    @cached_property
    def by_leaves(self) -> "Kernel":
        """The same kernel, launched with the leaves of its structs as arguments."""
        if self.plan.formals is None:
            return self
        return Kernel.of(self.name, lambda: self.definition, by_leaves=True)

    def _ordered(self, active: Iterable[str]) -> tuple[str, ...]:
        names = frozenset(active)
        return tuple(param.hint for param in self.primal.params if _is_named(param, names))

    # -------------------------------------------------------------------------------------- entries

    @cached_property
    def primal_entry(self) -> Entry:
        """The kernel, built."""
        return build(self.primal)

    @cached_property
    def aliased_entry(self) -> Entry:
        """The kernel, built for arrays that share memory: every sum is in memory at once."""
        return build(replace(self.primal, aliased=True))

    @cached_property
    def tracing(self) -> Tracing:
        """The kernel, built to find where values turn NaN or infinite."""
        return traced(self.primal)

    def entry(self, kind: Kind = "primal", active: Iterable[str] = (), groups: Groups = ()) -> Entry:
        """One of the kernel's programs, built: the second and third need the active parameters' names."""
        key = self._ordered(active)
        match kind:
            case "primal":
                return self.primal_entry
            case "augmented":
                return self.reverse(key, groups).primal_entry
            case "adjoint":
                return self.reverse(key, groups).adjoint_entry
            case "tangent":
                if key not in self._tangent_entries:
                    self._tangent_entries[key] = build(self.jvp(key))
                return self._tangent_entries[key]


@dataclass(frozen=True, slots=True)
class Compiled:
    """The result of compiling a text: kernels and functions, assigned constants, notes, mistakes."""

    definitions: dict[str, "Made"]
    assigned: dict[str, Any]
    diagnostics: tuple[Diagnostic, ...] = ()
    errors: tuple[Diagnostic, ...] = ()
    lowered: Lowered | None = None

    def raise_errors(self) -> None:
        """Raise all mistakes as one error, of the kind of the first."""
        if self.lowered is not None:
            self.lowered.raise_errors()


@put_off()
def compile_source(source: Source, namespace: Mapping[str, Any] | None = None, **options: Any) -> Compiled:
    """Compile every def of a text, with the names around it; mistakes are collected, not raised.

    `options` are those of the `kernel` decorator, for every kernel of the text.
    """
    lowered = lower_source(source, {} if namespace is None else namespace)
    definitions = {name: _made(definition, options) for name, definition in lowered.definitions.items()}
    return Compiled(definitions, lowered.assigned, lowered.diagnostics, lowered.errors, lowered)


@hooks.compile_entry.provide
def _entry_of(text: str, name: str) -> Entry:
    compiled = compile_source(Source(text, "kernelab elements"))
    compiled.raise_errors()
    kernel = compiled.definitions[name]
    assert isinstance(kernel, Kernel)
    return kernel.primal_entry


Made = Kernel | UserFunction | type[Instance]
"""What a definition of a text is to its user."""


def _made(definition: Definition, options: Mapping[str, Any]) -> Made:
    if isinstance(definition, StructDefinition):
        return class_of(definition.struct)
    if isinstance(definition, GenericKernel):
        generic = definition
        generic.options |= options
        return Kernel.of(generic.name, lambda: generic)
    if not isinstance(definition, KernelDefinition):
        return definition
    chosen = replace(definition, options={**definition.options, **options})
    made = Kernel.of(chosen.name, lambda: chosen)
    made.definition = chosen
    return made


def _is_named(param: Var, names: frozenset[str]) -> bool:
    """Whether a parameter, or with its name the struct around it, is among some names."""
    around = param.hint.partition(".")[0]
    return param.hint in names or (around != param.hint and around in names and is_differentiable(param.type))


def _no_backward(kernel: Kernel) -> Diagnostic:
    message = f"`{kernel.name}` has no adjoint: its backward pass is switched off"
    hint = "take enable_backward=False away"
    if "enable_backward" not in kernel.definition.options:
        message, hint = f"{message} by kl.config.enable_backward", "set kl.config.enable_backward = True"
    return Diagnostic(message, kernel.span, "backward", hint=hint)


def _undecided(kernel: GenericKernel) -> Diagnostic:
    message = f"the types of `{kernel.name}` are not known before it is launched: it takes Any"
    hint = f"kl.overload({kernel.name}, [types]) is the kernel for certain types"
    return Diagnostic(message, kernel.span, "generic", hint=hint)


def _called_directly(kernel: Kernel) -> Exception:
    message = f"`{kernel.name}` is a kernel: it runs once for each thread of a grid"
    hint = f"write kl.launch({kernel.name}, dim=n, inputs=[...]) or {kernel.name}[n](...)"
    return LaunchError(Diagnostic(message, None, "kernel", hint=hint))
