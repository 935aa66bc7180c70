"""Kernels: what a definition can do, each program derived and each entry built when it is first needed.

The one module that composes frontend, passes and backend.  Must not know launches or tapes.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Self

from kernelab import hooks
from kernelab.data_classes.turns import cached_property
from kernelab.errors import KernelError, KernelTypeError, LaunchError, Source, Span, label_of, near
from kernelab.frontend.definitions.kernels import GenericKernel, KernelDefinition
from kernelab.frontend.meaning.name_lookup import Constant
from kernelab.hooks import Displayed
from kernelab.host.traced import origins
from kernelab.lang.ir import Custom, Function, of_kind
from kernelab.lang.structs import AnyType, Struct, StructArray
from kernelab.lang.types import is_differentiable
from kernelab.passes.access.access_regions import Region, regions
from kernelab.passes.ad.derivative_rules import read_by_rules
from kernelab.passes.ad.jvp import expand_gradients
from kernelab.passes.ad.primal_replay import LoopStorage, loop_storage
from kernelab.passes.ad.vjp import Vjp
from kernelab.passes.common.copying import lay_out
from kernelab.passes.common.effects import Effects, effects
from kernelab.passes.common.simplify import simplify
from kernelab.passes.common.unroll import unrolled
from kernelab.runtime.array.array import array
from kernelab.runtime.array.array_attributes import KernelHints
from kernelab.runtime.kernel.arguments import LateSums, Loaded, Plan, ordered, parameters, straight
from kernelab.runtime.kernel.facts import Positions
from kernelab.runtime.kernel.loading import (
    Module,
    ModuleOptions,
    Parsed,
    chosen_options,
    constants_of,
    loader,
    module_options,
    names_around,
    parsed,
    refuse_unknown,
)
from kernelab.runtime.kernel.pickling import Def, Part, Text
from kernelab.runtime.kernel.program import Program
from kernelab.runtime.kernel.signature import types_of
from kernelab.settings import Check, settings

if TYPE_CHECKING:
    from kernelab.codegen.listing.listing import Derivation


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
        names, chosen = names_around(), options or {}
        refuse_unknown("kernel", chosen)
        self._decorate(func, names, {**chosen, "name": key})

    @classmethod
    def of(cls, name: str, definition: Loaded) -> Self:
        """The kernel of a definition, under a name."""
        kernel = cls.__new__(cls)
        kernel._begin(name, lambda: definition)
        kernel.__doc__ = definition.doc or kernel.__doc__
        return kernel

    @classmethod
    def of_def(
        cls,
        function: Callable[..., Any],
        names: Mapping[str, Any],
        options: Mapping[str, Any],
        early: Parsed | None = None,
    ) -> Self:
        """The kernel of a Python function; `early` is what was evaluated of it where it was defined."""
        kernel = cls.__new__(cls)
        kernel._decorate(function, names, options, early)
        return kernel

    def _decorate(
        self,
        function: Callable[..., Any],
        names: Mapping[str, Any],
        options: Mapping[str, Any],
        early: Parsed | None = None,
    ) -> None:
        written = Def(_kernel, function, names, early or parsed(function, names))
        name = options.get("name") or function.__name__
        self._begin(name, loader(function, names, options, written.early), function, options)
        self.origin = written
        update_wrapper(self, function, ("__doc__",) if function.__doc__ else (), ())

    @property
    def taken(self) -> dict[str, Any]:
        """What it is made of beside its text."""
        return {"options": {"name": self.name, **self.loaded.options}}

    @property
    def constants(self) -> tuple[Constant, ...]:
        """The values of names around it that it was compiled with; none of a generic kernel."""
        return () if isinstance(self.loaded, GenericKernel) else self.loaded.constants

    def _begin(
        self,
        name: str,
        load: Callable[[], Loaded],
        function: Callable[..., Any] | None = None,
        chosen: Mapping[str, Any] = {},  # it is only read
    ) -> None:
        self._name = name
        self._function, self._chosen = function, chosen
        self._instances: dict[KernelDefinition, Kernel] = {}
        self.__name__ = name
        # Without one of its own, `help` would tell of the class.
        self.__doc__ = (
            f"A kernel: {name}[n](...) launches n threads, kl.show({name}) shows it and its adjoint."
        )
        self._load = load
        self._by_leaves = False
        self.beside: dict[str, Any] = {}
        self.outlines: dict[Hashable, Any] = {}

    __kernelab_kernel__ = True

    launches = 0
    """How many usual launches Python has run."""

    quick: Callable[..., Any] | None = None
    """What launches it without Python, from some launches on (`runtime.launch.launch`)."""

    @property
    def name(self) -> str:
        """What messages and pictures call it."""
        return self._name

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"

    def __getitem__(self, grid: int | tuple[int, ...]) -> Callable[..., None]:
        """The kernel on a grid: call it with its arguments, by position or by name."""
        if type(grid) is tuple and any(isinstance(extent, array) for extent in grid):
            message = f"`{self.name}[...]` takes the number of threads alone, and would not run"
            raise LaunchError.of(message, "dim", f"write {self.name}[n](...), with the arguments behind")

        def launched(*positional: Any, **named: Any) -> None:
            if not named and len(positional) == self.arity:
                hooks.run(self, grid, [*positional])
                return
            arguments = ordered(self.loaded, positional, named)
            hooks.run(self.of_arguments(arguments), grid, arguments)

        return launched

    def __call__(self, *_: Any, **__: Any) -> None:
        """A kernel runs on a grid: raises LaunchError that says how."""
        message = f"`{self.name}` is a kernel: it runs once for each thread of a grid"
        hint = f"write kl.launch({self.name}, dim=n, inputs=[...]) or {self.name}[n](...)"
        raise LaunchError.of(message, "kernel", hint)

    # -------------------------------------------------------------------------------------- what it is

    @cached_property
    def loaded(self) -> Loaded:
        """The definition that the frontend made of the text; raises KernelError where it has mistakes."""
        return self._load()

    @cached_property
    def definition(self) -> KernelDefinition:
        """The kernel for the types of its parameters; raises KernelError where some of them are `Any`."""
        if isinstance(self.loaded, GenericKernel):
            message = f"the types of `{self.name}` are not known before it is launched: it takes Any"
            hint = f"kl.overload({self.name}, [types]) is the kernel for certain types"
            raise KernelTypeError.of(message, "generic", hint, self.loaded.span)
        return self.loaded

    @property
    def is_generic(self) -> bool:
        """Whether the types of some parameters are left to the launch."""
        return isinstance(self.loaded, GenericKernel)

    @property
    def lowered(self) -> "tuple[Kernel, ...]":
        """Itself if it has been lowered; of a generic kernel the kernels for the types that it has met."""
        return (self,) if "definition" in vars(self) else tuple(self._instances.values())

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
        definition = self.loaded.instantiate(types)
        if definition not in self._instances:
            kernel = Kernel.of(self.name, definition)
            if self._function is not None:
                update_wrapper(kernel, self._function, (), ())
            kernel.origin = Part(Kernel.instance, (self, tuple(types)))
            self._instances.setdefault(definition, kernel)
        return self._instances[definition]

    @property
    def key(self) -> str:
        """The name, once more."""
        return self.name

    @property
    def options(self) -> dict[str, Any]:
        """The options of the kernel: whether it has a backward pass; known before its text is read."""
        if self._function is None or "loaded" in vars(self):
            return {"enable_backward": True, **self.loaded.options}
        return {"enable_backward": True, **chosen_options(self._function, self._chosen)}

    @property
    def module(self) -> Module:
        """The Python module where the kernel stands; every kernel is built alone."""
        if self._function is None:
            return Module(self.source.label, ModuleOptions(self.options))
        code = getattr(self._function, "__code__", None)
        label = self.source.label if code is None else label_of(code.co_filename)
        return Module(label, module_options(self._function, self._chosen))

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
    def calling(self) -> Function:
        """The kernel as it is written, with its calls."""
        return expand_gradients(self.definition.function)

    @cached_property
    def text(self) -> Function:
        """The same with calls inlined: what it loads and does not use is still there."""
        return lay_out(self.calling)

    @cached_property
    def program(self) -> Program:
        """The kernel as IR that can run and be differentiated; it holds all that is derived of it."""

        def unmerged() -> Function:
            return simplify(unrolled(lay_out(self.calling, merged=False)), merged=False)

        return Program(simplify(unrolled(self.text)), check=self._check, text=unmerged)

    @property
    def primal(self) -> Function:
        """The kernel as IR, calls inlined and simplified."""
        return self.program.flat

    @property
    def laid_out(self) -> Function:
        """The kernel as it is differentiated: functions with custom derivatives are not inlined."""
        return self.program.function

    @property
    def effects(self) -> Effects:
        """The array parameters that the kernel reads, writes and accumulates into."""
        return self.program.effects

    @cached_property
    def read_by_rules(self) -> tuple[int, ...]:
        """The arrays that the adjoint reads because derivative rules of users do, by position."""
        read = read_by_rules(self.laid_out)
        return tuple(i for i, param in enumerate(self.laid_out.params) if param in read)

    @cached_property
    def regions_read_in_text(self) -> dict[int, Region]:
        """The elements of its array parameters that the kernel's text reads, used or not, by position."""
        return regions(self.text, "read")

    @property
    def has_backward(self) -> bool:
        """Whether the kernel may be differentiated, as far as its options go."""
        return bool(self.definition.options.get("enable_backward", settings().enable_backward))

    @property
    def check(self) -> Check | None:
        """What its launches are checked for: what its options say, or the settings."""
        return self.plan.check or settings().check

    @cached_property
    def plan(self) -> Plan:
        """The facts that a launch needs."""
        params, touched = self.primal.params, self.effects
        named = effects(self.text).reads
        packers = parameters(self.name, params)
        signature = self.definition.signature
        has_structs = any(isinstance(formal.type, Struct | StructArray) for formal in signature)
        arrays = self.program.arrays
        written = tuple(i for i in arrays if params[i] in touched.changed)
        return Plan(
            parameters=packers,
            types=tuple(parameter.type for parameter in packers),
            quick=tuple(parameter.quick for parameter in packers),
            straight=straight(packers, written),
            of_floats=tuple(is_differentiable(params[i].type) for i in arrays),
            of_inputs=tuple(is_differentiable(params[i].type) and i not in written for i in arrays),
            numbers=tuple(i for i, p in enumerate(packers) if i not in arrays and is_differentiable(p.type)),
            read=tuple(i for i in arrays if params[i] in touched.reads),
            read_in_text=tuple(i for i in arrays if self.text.params[i] in named),
            written=written,
            coordinates=len(self.primal.threads),
            formals=signature if has_structs and not self._by_leaves else None,
            constants=constants_of(self.definition),
            origins=origins(*[one.value for one in self.definition.constants], self.definition.captured),
            late_sums=self._late_sums(),
            lost_sums=self.definition.lost_sums,
            check=self.definition.options.get("check"),
        )

    def _late_sums(self) -> LateSums:
        at = {var: i for i, var in enumerate(self.definition.function.params)}
        return tuple(
            (at[late.array], at[var], late.diagnostic)
            for late in self.definition.late_sums
            if late.array in at
            for var in sorted(late.changed.intersection(at), key=lambda var: at[var])
        )

    # -------------------------------------------------------------------------------------- derived programs

    def _check(self, reverse: bool) -> None:
        """Raise KernelError where custom derivatives are wrong, or the adjoint is switched off."""
        if reverse and not self.has_backward:
            message = f"`{self.name}` has no adjoint: its backward pass is switched off"
            hint = "take enable_backward=False away"
            if "enable_backward" not in self.definition.options:
                message += " by kl.config.enable_backward"
                hint = "set kl.config.enable_backward = True"
            raise KernelTypeError.of(message, "backward", hint, self.span)
        if any(of_kind(self.laid_out.body, Custom)):
            hooks.check_rules(self.laid_out)

    def vjp(self, active: Iterable[str]) -> Vjp:
        """The augmented primal and the adjoint with respect to the named parameters."""
        return self.program.pullback(self.positions(active)).vjp

    def jvp(self, active: Iterable[str]) -> Function:
        """The tangent program with respect to the named parameters."""
        return self.program.tangent(self.positions(active)).flat

    def textbook(self, active: Iterable[str] | None = None) -> "Derivation":
        """The derivatives with respect to the named parameters, or by all, as textbooks write them.

        Raises KernelError where there is no adjoint.
        """
        from kernelab.codegen.listing.listing import Derivation, listing  # which no launch needs
        from kernelab.passes.ad.textbook import textbook_adjoint, textbook_tangent

        names_of_floats = self.differentiable
        chosen = [active] if isinstance(active, str) else names_of_floats if active is None else [*active]
        known = {part for name in names_of_floats for part in (name, name.partition(".")[0])}
        for name in chosen:
            if name not in known:
                message = f"{self.name} has no parameter {name} to differentiate by"
                hint = near(name, known, f"it has {', '.join(names_of_floats) or 'none'}")
                raise KernelTypeError.of(message, "derivative", hint, self.span)
        # What the kernel writes is varied, too: its cotangents are what the sweep begins with.
        results = {self.plan.parameters[k].name for k in self.plan.written}.intersection(names_of_floats)
        names = self.program.names(self.positions([*chosen, *results]))
        running = listing(self.vjp(names).adjoint)
        adjoint = textbook_adjoint(self.calling, names)
        try:
            self.jvp(names)
            tangent = listing(textbook_tangent(self.calling, names))
        except KernelError:  # a surrogate gradient that a user wrote has none
            tangent = None
        return Derivation(listing(adjoint.function, adjoint.reverse), tangent, running)

    @property
    def differentiable(self) -> list[str]:
        """The names of the parameters that can carry derivatives."""
        return [param.hint for param in self.primal.params if is_differentiable(param.type)]

    @property
    def spilled(self) -> int:
        """The number of sweeps that used checkpoints because their loops would have saved too much."""
        return sum(pullback.adjoint.spilled for pullback in self.program.pullbacks)

    def loops(self, active: Iterable[str] | None = None) -> tuple[LoopStorage, ...]:
        """The values that the adjoint with respect to the named parameters, or by all, saves of each loop."""
        return loop_storage(self.primal, self.vjp(self.differentiable if active is None else active).adjoint)

    def positions(self, names: Iterable[str]) -> Positions:
        """The positions of the named parameters, and of the floats in the named structs."""
        wanted, positions = frozenset(names), []
        for i, param in enumerate(self.primal.params):
            struct = param.hint.partition(".")[0]
            is_part = struct != param.hint and struct in wanted and is_differentiable(param.type)
            if param.hint in wanted or is_part:
                positions.append(i)
        return tuple(positions)

    @cached_property
    def by_leaves(self) -> "Kernel":
        """The same kernel, launched with the leaves of its structs as arguments."""
        return self if self.plan.formals is None else self._like(self.program)

    def widened(self) -> "Kernel":
        """The same kernel over float64."""
        return self.program.once("widened kernel", lambda: self._like(self.program.widened))

    def _like(self, program: Program) -> "Kernel":
        """The kernel with another program, launched with the leaves of its structs as arguments."""
        kernel = Kernel.of(self.name, self.definition)
        kernel._by_leaves = True
        kernel.program = program
        return kernel


def _kernel(text: Text, early: Parsed | None, options: Mapping[str, Any]) -> Kernel:
    function = text.function()
    return Kernel.of_def(function, function.__globals__, options, early)
