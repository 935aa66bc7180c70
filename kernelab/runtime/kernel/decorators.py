"""Decorators for kernels, functions and structs in Python files.

A decorated function is lowered when it is first needed, with the names that are around it then.
"""

import inspect
import typing
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from types import FunctionType
from typing import Any

from kernelab import hooks
from kernelab.data_classes.turns import Turn, cached_property
from kernelab.errors import Diagnostic, KernelTypeError
from kernelab.frontend.definitions.custom_derivatives import attach, rule_from
from kernelab.frontend.definitions.functions import Overloads, UserFunction
from kernelab.frontend.definitions.kernels import GenericKernel
from kernelab.frontend.meaning.annotations import struct_of
from kernelab.frontend.meaning.name_lookup import Constant
from kernelab.frontend.meaning.source import annotations_of, keep_text
from kernelab.frontend.meaning.trial import no_trial
from kernelab.guidance.missing_names import FunctionHints
from kernelab.host.single import Single
from kernelab.lang.ir import RuleName
from kernelab.runtime.array.array import array
from kernelab.runtime.array.array_attributes import ref
from kernelab.runtime.context.conversion import described
from kernelab.runtime.context.recorder import warn_at
from kernelab.runtime.host.struct_instances import Instance, class_of, holds_arrays
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.loading import (
    Parsed,
    closure,
    definition_of,
    evaluated,
    maps_of,
    names_around,
    native_of,
    parsed,
    refuse_unknown,
    warn_of,
)
from kernelab.runtime.kernel.pickling import Def, Text
from kernelab.runtime.kernel.python_copies import VALUES, with_copies
from kernelab.runtime.kernel.signature import stated

Decorator = Callable[[Callable[..., Any]], Any]
Rule = tuple[Callable[..., Any], Mapping[str, Any], RuleName, bool]
"""A custom derivative: its def, the names around that, its kind, and whether it is compared."""


@typing.overload
def kernel(function: Callable[..., Any], **options: Any) -> Any: ...
@typing.overload
def kernel(function: None = None, **options: Any) -> Decorator: ...
def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Make a kernel of a Python function: ``@kernel``, or ``@kernel(...)`` with options.

    With ``enable_backward=False`` a gradient that would have to pass through the kernel is an error;
    ``name=`` is what messages call it, and with ``check="full"`` each launch is checked, as
    `kernelab.config.check` says for all kernels.  ``module=``, ``module_options=``, ``launch_bounds=`` and
    ``grid_stride=`` are taken, and change nothing but what ``module_options={"enable_backward": ...}`` says.
    Raises KernelValueError for any other option.

    >>> @kl.kernel
    ... def square(x: kl.array[float], y: kl.array[float]):
    ...     i = kl.tid()
    ...     y[i] = x[i] * x[i]
    >>> y = kl.zeros(2)
    >>> square[2](kl.array([2.0, 3.0]), y)
    >>> y.list()
    [4.0, 9.0]
    """
    names = names_around()
    refuse_unknown("kernel", options)

    def decorate(function: Callable[..., Any]) -> Kernel:
        return Kernel.of_def(_require_def(function, "kernel"), names, options)

    return decorate if function is None else decorate(function)


def overload(kernel: Any, types: Sequence[Any] | Mapping[str, Any] | None = None) -> Any:
    """A kernel with parameters of `Any`, for certain types: ``overload(k, [types])``, or ``{"x": type}``.

    The types are those of all parameters, or of the open ones alone.  As a decorator, of a def without a body
    that has the kernel's name: ``@overload`` above ``def scale(x: kl.array[float], s: float): ...``.
    Raises KernelValueError where types are missing or too many, and KernelTypeError for another kernel.

    >>> from typing import Any
    >>> @kl.kernel
    ... def scale(x: kl.array[Any], s: Any):
    ...     i = kl.tid()
    ...     x[i] = x[i] * s
    >>> exact = kl.overload(scale, [kl.array[kl.float64], kl.float64])
    >>> x = kl.ones(2, dtype=kl.float64)
    >>> kl.launch(exact, dim=2, inputs=[x, 0.1])
    >>> x.list()
    [0.1, 0.1]
    """
    if types is None and isinstance(kernel, FunctionType):
        return _of_stub(kernel, names_around())
    name = getattr(kernel, "__name__", repr(kernel))
    generic = _generic(kernel, name, "give one of its parameters the type Any, or launch it as it is")
    return kernel.instance(stated(generic, types or ()))


def _generic(kernel: Any, name: str, hint: str) -> GenericKernel:
    """What a kernel with parameters of `Any` is made of; raises KernelTypeError for anything else."""
    if not isinstance(kernel, Kernel) or not isinstance(kernel.loaded, GenericKernel):
        raise KernelTypeError(Diagnostic(f"{name} is not a kernel with parameters of Any", hint=hint))
    return kernel.loaded


def _of_stub(stub: FunctionType, names: Mapping[str, Any]) -> Kernel:
    kernel: Any = names.get(stub.__name__)
    hint = "define the kernel with Any first, then @overload a def of its name"
    generic = _generic(kernel, stub.__name__, hint)
    parameters = stub.__code__.co_varnames[: stub.__code__.co_argcount]
    annotations = annotations_of(stub)
    annotations = {name: evaluated(annotations.get(name), stub, names) for name in parameters}
    kernel.instance(stated(generic, [annotations[name] for name in parameters]))
    return kernel  # type: ignore[no-any-return]


def func(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Make a function that kernels may call of a Python function; on the host it stays callable.

    The options ``name=``, ``module=`` and ``inline=`` are taken; the last two change nothing.
    Raises KernelValueError for any other option.
    """
    names = names_around()
    refuse_unknown("func", options)

    def decorate(function: Callable[..., Any]) -> Function:
        return Function(_require_def(function, "func"), names)

    return decorate if function is None else decorate(function)


def func_grad(forward_fn: Any, check: bool = True) -> Decorator:
    """Replace the adjoint of a function for kernels: ``@func_grad(f)`` above ``def adj_f(x, adj_ret)``.

    The def takes the arguments of `f`, then the adjoint of each result, and adds to ``adjoint[x]`` for each
    argument that is a float or an array of floats.  It is compared with differences under the cell that has
    it, elsewhere when it is first used;
    ``check=False`` declares that it is a surrogate and not the derivative.

    >>> @kl.func
    ... def root(x: float) -> float:
    ...     return kl.sqrt(x)
    >>> @kl.func_grad(root)
    ... def adj_root(x: float, adj_ret: float):
    ...     kl.adjoint[x] += adj_ret / (2.0 * kl.sqrt(x))
    >>> float(kl.func.grad(root)(4.0))
    0.25
    """
    return _rule(forward_fn, names_around(), "grad", check)


def func_replay(forward_fn: Any, check: bool = True) -> Decorator:
    """Replace what a function for kernels computes in the backward pass: same arguments, same results.

    Its results are compared with those of `f` when it is first used; ``check=False`` says that they differ.
    """
    return _rule(forward_fn, names_around(), "replay", check)


def func_jvp(forward_fn: Any, check: bool = True) -> Decorator:
    """Replace the tangent of a function for kernels: ``@func_jvp(f)`` above ``def f_jvp(x, x_dot)``.

    The def takes the arguments of `f`, then the tangent of each that is a float or an array of floats, and
    returns the tangents of the float results.  It is compared with differences when it is first used;
    ``check=False`` declares that it is a surrogate and not the derivative.

    >>> @kl.func
    ... def root(x: float) -> float:
    ...     return kl.sqrt(x)
    >>> @kl.func_jvp(root)
    ... def root_jvp(x: float, x_dot: float):
    ...     return x_dot / (2.0 * kl.sqrt(x))
    >>> [float(number) for number in kl.func.jvp(root, (4.0,), (1.0,))]
    [2.0, 0.25]
    """
    return _rule(forward_fn, names_around(), "jvp", check)


def func_native(
    snippet: str, adj_snippet: str | None = None, replay_snippet: str | None = None, check: bool = True
) -> Decorator:
    """Make a function for kernels of C++: ``@func_native(text)`` above ``def f(x: float) -> float: ...``.

    The def states the types and has no body.  `snippet` sees the arguments, arrays as ``x[i]``, ``x(i, j)``
    or ``wp::address(x, i, j)`` within their bounds, vectors as ``wp::vec_t``.  `adj_snippet` sees them too,
    and ``adj_ret``; it adds to ``adj_x`` for each float and array of floats.  Without it, a gradient that
    would pass through is an error.  `replay_snippet` returns the result again where the backward pass
    needs it and `snippet` cannot run twice.  What is a function of numbers is compared with differences when
    it is first used; ``check=False`` declares a surrogate.
    An interrupt ends its ``while`` loops; in a long ``for`` write ``if (interrupted()) break;``.
    What the compiler says of a snippet is raised as KernelSyntaxError, at its line.

    >>> @kl.func_native("return x * x;", "adj_x += 2.0f * x * adj_ret;")
    ... def square(x: float) -> float: ...
    >>> kl.map(square, kl.array([2.0, 3.0])).list()
    [4.0, 9.0]
    """
    names = names_around()
    parts = {"snippet": snippet, "adj_snippet": adj_snippet, "replay_snippet": replay_snippet, "check": check}
    return lambda function: NativeFunction(function, names, parts)


def _rule(forward_fn: Any, namespace: Mapping[str, Any], kind: RuleName, check: bool) -> Decorator:
    is_function = isinstance(forward_fn, Function) or hasattr(forward_fn, "__kernelab_function__")
    if hasattr(forward_fn, "__kernelab_kernel__") or not is_function:
        name = getattr(forward_fn, "__name__", repr(forward_fn))
        message = f"{name} is not a function for kernels, so it can have no custom derivative"
        raise KernelTypeError.of(message, "func", "decorate it with @func")

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        keep_text(function)
        if isinstance(forward_fn, Function):
            forward_fn.rules.append((function, namespace, kind, check))
            if forward_fn.lowered is not None:
                forward_fn.attach_rules()  # functions that call it ask what it was lowered to
        else:
            _attach((function, namespace, kind, check), forward_fn.__kernelab_function__)
        return function

    return decorate


def _attach(rule: Rule, target: UserFunction) -> None:
    function, namespace, kind, check = rule
    attach(rule_from(function, ChainMap(closure(function), *maps_of(namespace)), kind, check), target)


def struct(cls: Any) -> type[Instance]:
    """Make a struct of a Python class with annotated fields: ``@struct``; its instances hold such fields.

    Raises KernelTypeError for methods, base classes, and annotations that are not types of kernels.

    >>> @kl.struct
    ... class Particle:
    ...     at: kl.vec3
    ...     mass: float = 1.0
    >>> p = Particle(at=kl.vec3(0.0, 1.0, 0.0))
    >>> float(p.mass), kl.zeros(4, dtype=Particle).shape
    (1.0, (4,))
    """
    if not isinstance(cls, type):
        message = f"struct decorates a class, not {described(cls)}"
        raise KernelTypeError.of(message, "struct", "write @kl.struct above class Particle: mass: float")
    return class_of(struct_of(cls, names_around()))


_LOADING = Turn()
"""One thread loads functions at a time: a text is also checked while a cell runs."""


class Function(FunctionHints, Single, hooks.Displayed):
    """A decorated function: kernels call it, and so does Python."""

    def __init__(
        self, function: Callable[..., Any], namespace: Mapping[str, Any], early: Parsed | None = None
    ) -> None:
        self.name = self.__name__ = function.__name__
        self.__doc__ = function.__doc__ or self.unwritten_doc(self.name)
        self._python = self.__wrapped__ = function
        self._namespace = namespace
        self._early = early or parsed(function, namespace)
        self.lowered: UserFunction | None = None
        self._together: UserFunction | None = None
        self._others = _overloaded(function, namespace.get(function.__name__))
        self.rules: list[Rule] = []
        self._attached = 0
        self._is_told = False
        self.origin = Def(_function, function, namespace, self._early)

    def __repr__(self) -> str:
        return f"<kernelab function {self.name}>"

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What the Python function returns; of arrays what kernels compute, so that derivatives follow."""
        values = (*arguments, *named.values())
        if any(map(holds_arrays, values)) and not self._hands_back(values):
            return hooks.call(self, arguments, named)
        if not self._others:
            return self._run(arguments, named)
        meant = hooks.chosen(self, arguments, named)
        return next(member for member in self.members if member._own is meant)._run(arguments, named)

    def _hands_back(self, values: Iterable[Any]) -> bool:
        """Whether the function changes structs of the caller's, which Python alone does."""
        return bool(self._refs) and not any(isinstance(value, array) for value in values)

    def _run(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self._refs:
            self._tell_of_numbers(arguments, named)
        if any(isinstance(value, VALUES) for value in (*arguments, *named.values())):
            arguments, named = self._copied(arguments, named)
        return self._with_copies(*arguments, **named)

    @cached_property
    def _with_copies(self) -> Callable[..., Any]:
        return with_copies(self._python, self._refs)

    @cached_property
    def _refs(self) -> frozenset[str]:
        """The parameters that are handed back, `ref[...]`, also where their annotations are text."""
        refs = set()
        for name, annotation in annotations_of(self._python).items():
            with suppress(Exception):  # a text may name what is not there, and is then no type
                if isinstance(evaluated(annotation, self._python, self._namespace), ref):
                    refs.add(name)
        return frozenset(refs)

    def _tell_of_numbers(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Warn, once, where a number is to be handed back: Python has no way to change a caller's."""
        given = dict(zip(self._python.__code__.co_varnames, arguments, strict=False)) | named
        lost = [n for n in self._refs if n in given and not isinstance(given[n], VALUES)]
        if lost and not self._is_told:
            self._is_told = True
            message = f"{self.name} hands `{min(lost)}` back in kernels, and a call from Python leaves the "
            message += "caller's number as it was"
            warn_at(message, "ref", "return it, or pass a vector, a struct or an array")

    def _copied(
        self, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments as a kernel passes them: structs, vectors and matrices as copies, but for `ref[...]`."""

        def own(name: str, value: Any) -> Any:
            return value.copy() if isinstance(value, VALUES) and name not in self._refs else value

        pairs = zip_longest(self._python.__code__.co_varnames[: len(arguments)], arguments, fillvalue="")
        return tuple(own(*pair) for pair in pairs), {name: own(name, value) for name, value in named.items()}

    def textbook(self, active: Iterable[str] | None = None) -> Any:
        """Its derivatives with respect to the named parameters, or by all, as textbooks write them."""
        return hooks.textbook(self, active)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._python)

    @property
    def taken(self) -> dict[str, Any]:
        """What it is made of beside its text."""
        rules = [
            (Def(_function, rule, names).text(rule.__name__, ()), kind, check)
            for rule, names, kind, check in self.rules
        ]
        return {"others": self._others, "rules": rules}

    @property
    def constants(self) -> tuple[Constant, ...]:
        """The values of names around it that it was compiled with."""
        return tuple(self._own.constants.values())

    @property
    def members(self) -> "tuple[Function, ...]":
        """The functions of its name that were defined so far, itself the last."""
        return (*self._others, self)

    @property
    def __kernelab_function__(self) -> UserFunction:
        """The function for kernels, with the others of its name."""
        own: UserFunction = self._own
        if not self._others:
            return own
        if self._together is None:
            self._together = Overloads([member._own for member in self.members])
        return self._together

    @property
    def _own(self) -> UserFunction:
        if self.lowered is None or self.awaits_rules:
            self.attach_rules()
        assert self.lowered is not None
        return self.lowered

    def attach_rules(self) -> None:
        """Lower it, and attach its rules: these name it, so they wait until it is there."""
        with _LOADING.lock, no_trial():
            if self.lowered is None:
                self.lowered = self._lower()
            while self.awaits_rules:
                _attach(self.rules[self._attached], self.lowered)
                self._attached += 1

    @property
    def awaits_rules(self) -> bool:
        """Whether rules have been defined for it that are attached when it is next needed."""
        return self._attached < len(self.rules)

    def _lower(self) -> UserFunction:
        names = ChainMap(closure(self._python), *maps_of(self._namespace))
        named = names.get(self.name)
        several = isinstance(named, Function) and self in named.members and len(named.members) > 1

        def siblings(own: UserFunction) -> UserFunction:
            assert isinstance(named, Function)
            self.lowered = own
            return Overloads([member._own for member in named.members])

        definition = definition_of(self._python, names, "func", self._early, siblings if several else None)
        assert isinstance(definition, UserFunction)
        definition.__wrapped__ = self._python  # type: ignore[attr-defined]  # for `inspect`, as of a cell's
        # The body of a function whose types are not stated is lowered when a kernel calls it.
        definition.listener = warn_of
        return definition


def _overloaded(function: Callable[..., Any], before: Any) -> tuple[Function, ...]:
    """The functions of its name and file that take arguments of other types."""
    if not isinstance(before, Function):
        return ()
    both: tuple[Any, Any] = (function, before._python)
    places = {(one.__code__.co_filename, one.__qualname__) for one in both}
    if len(places) > 1 or any(len(_taken(one)) != one.__code__.co_argcount for one in both):
        return ()
    return tuple(other for other in (*before._others, before) if _taken(other._python) != _taken(function))


def _taken(function: Any) -> tuple[str, ...]:
    return tuple(repr(type) for name, type in annotations_of(function).items() if name != "return")


class NativeFunction(Function):
    """A decorated function of C++."""

    def __init__(
        self, function: Callable[..., Any], namespace: Mapping[str, Any], snippets: Mapping[str, Any]
    ) -> None:
        super().__init__(function, namespace)
        self._snippets = snippets

    @property
    def taken(self) -> dict[str, Any]:
        """What it is made of beside its text."""
        return {**super().taken, "snippets": {**self._snippets}}

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return hooks.call(self, arguments, named)

    def _lower(self) -> UserFunction:
        names = ChainMap(closure(self._python), *maps_of(self._namespace))
        definition = native_of(self._python, names, self._snippets)
        assert isinstance(definition, UserFunction)
        return definition


def _require_def(function: Any, word: str) -> Any:
    is_lambda = getattr(function, "__name__", "") == "<lambda>"
    if inspect.isfunction(function) and not is_lambda:
        return function
    message = f"{word} decorates a def, not {'a lambda' if is_lambda else described(function)}"
    raise KernelTypeError.of(message, word, f"write @kl.{word} above def f(...)")


# ------------------------------------------------------------------------------------------------- in pickles


def _function(
    text: Text,
    early: Parsed | None,
    others: tuple[Function, ...],
    rules: Sequence[tuple[Text, RuleName, bool]],
    snippets: Mapping[str, Any] | None = None,
) -> Function:
    """A function for kernels, made again of its text."""
    python = text.function()
    names = python.__globals__
    result = Function(python, names, early) if snippets is None else NativeFunction(python, names, snippets)
    result._others = others
    for rule, kind, check in rules:
        written = rule.function()
        _rule(result, written.__globals__, kind, check)(written)
    return result
