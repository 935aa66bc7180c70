"""Lowers the text of a cell, or of a function in a file, to kernels and functions, and collects all errors.

A def that returns nothing and that no other def of the cell calls is a kernel, every other a function; the
decorators `@kernel` and `@func` say otherwise.  A mistake in one def leaves the others alone.
"""

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from kernelab.data_classes import dataclass, field, replace
from kernelab.errors import (
    Diagnostic,
    KernelError,
    KernelNameError,
    KernelSyntaxError,
    KernelTypeError,
    KernelValueError,
    Related,
    Source,
)
from kernelab.frontend.definitions import custom_derivatives, definitions, native_defs
from kernelab.frontend.definitions.definitions import Template, template
from kernelab.frontend.definitions.functions import Overloads, UserFunction
from kernelab.frontend.definitions.kernels import (
    GenericKernel,
    KernelDefinition,
    is_generic,
    lower_kernel,
    too_deep,
)
from kernelab.frontend.expressions import passing
from kernelab.frontend.meaning.annotations import StructDefinition, lower_class
from kernelab.frontend.meaning.frame import Mistake, as_builtins, evaluated, words_in
from kernelab.frontend.meaning.meanings import FunctionRef, KernelRef, Poison, StructRef
from kernelab.frontend.meaning.name_lookup import Scope, named_in
from kernelab.frontend.meaning.scope import targets
from kernelab.frontend.meaning.source import Places, lambda_of, no_text, parse, source_of
from kernelab.frontend.meaning.syntax_trees import nodes, parameters, returns_value, states_result, word
from kernelab.frontend.meaning.trial import adopt, is_trial, may_run
from kernelab.frontend.meaning.unsupported import refusal_of
from kernelab.guidance.hint_tables import DECORATORS

Definition = KernelDefinition | GenericKernel | UserFunction | StructDefinition
Kind = Literal["kernel", "func"]
Siblings = Callable[[UserFunction], UserFunction]

_ERRORS: dict[str, type[KernelError]] = {
    "syntax": KernelSyntaxError,
    "unsupported": KernelSyntaxError,
    "name": KernelNameError,
    "unset": KernelNameError,
    "value": KernelValueError,
}


@dataclass(frozen=True, slots=True)
class Lowered:
    """The result of lowering a cell: its valid definitions, the constants it assigned, notes, and errors.

    `named` is what the text names of the notebook, as it was then.
    """

    definitions: dict[str, Definition]
    assigned: dict[str, Any]
    diagnostics: tuple[Diagnostic, ...] = ()
    errors: tuple[Diagnostic, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)

    def raise_errors(self) -> None:
        """Raise all mistakes as one error, of the kind of the first."""
        if self.errors:
            raise errors_of(self.errors)


def errors_of(mistakes: Sequence[Diagnostic]) -> KernelError:
    """All mistakes as one error, of the kind of the first."""
    return _ERRORS.get(mistakes[0].code, KernelTypeError)(*mistakes)


def lower_source(source: Source, namespace: Mapping[str, Any]) -> Lowered:
    """Lower every def of a cell, with the names of the notebook around it.

    Text that is not Python comes back as the one error of `Lowered.errors` too.
    """
    try:
        tree = parse(source)
    except KernelSyntaxError as error:
        return Lowered({}, {}, (), error.diagnostics)
    except (RecursionError, MemoryError):  # Python's parser says the one or the other
        return Lowered({}, {}, (), (too_deep("this cell"),))
    return lower_tree(source, tree, namespace)


def lower_tree(
    source: Source,
    tree: ast.Module,
    namespace: Mapping[str, Any],
    around: tuple[Source, ...] = (),
    siblings: Siblings | None = None,
) -> Lowered:
    """Lower a cell that has been parsed; lines of the tree count from 1 at `source.first_line`.

    `around` is the text of the file that the cell is a part of, where snippets may stand.  `siblings` gives
    what a function's own name means in it, where there are more functions of that name elsewhere.
    """
    try:
        cell = _Cell(Places(source), namespace, named_in(tree, namespace), around=around, siblings=siblings)
        return cell.lowered(tree.body)
    except RecursionError:
        return Lowered({}, {}, (), (too_deep("this cell"),))


@dataclass(slots=True)
class _Cell:
    places: Places
    namespace: Mapping[str, Any]
    named: Mapping[str, Any]
    assigned: dict[str, Any] = field(default_factory=dict)
    templates: dict[str, tuple[Template, Kind | None]] = field(default_factory=dict)
    overloads: dict[str, list[Template]] = field(default_factory=dict)
    definitions: dict[str, Definition] = field(default_factory=dict)
    functions: dict[str, UserFunction] = field(default_factory=dict)
    errors: list[Diagnostic] = field(default_factory=list)
    notes: list[Diagnostic] = field(default_factory=list)
    rules: list[ast.FunctionDef] = field(default_factory=list)
    natives: dict[str, native_defs.Texts] = field(default_factory=dict)
    around: tuple[Source, ...] = ()
    siblings: Siblings | None = None
    scope: Scope = field(init=False)
    names: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.names = {**self.namespace}
        self.scope = Scope({}, self.assigned, self.named, self.namespace)

    def error(
        self, node: ast.stmt | ast.expr, message: str, code: str, hint: str, related: tuple[Related, ...] = ()
    ) -> None:
        span = self.places.first_line(node) if isinstance(node, ast.stmt) else self.places(node)
        self.errors.append(Diagnostic(message, span, code, hint=hint, related=related))

    def lowered(self, body: Sequence[ast.stmt]) -> Lowered:
        for stmt in body:
            self.statement(stmt)
        self.classify()
        if self.rules:
            attached = self.rules, self.scope, self.places, self.functions, self.collect
            self.notes += custom_derivatives.attach_all(*attached)
        self.lower()
        are_all_there = self.definitions.keys() >= self.templates.keys()
        assert self.errors or are_all_there or is_trial(), "a def was dropped without a reason"
        notes, errors = _by_line(self.notes), _by_line(self.errors)
        return Lowered(self.definitions, self.assigned, notes, errors, self.named)

    # ---- statements of the cell

    def statement(self, stmt: ast.stmt) -> None:
        match stmt:
            case ast.FunctionDef(decorator_list=[_, *_]) if custom_derivatives.decorator(stmt) is not None:
                self.rules.append(stmt)
            case ast.FunctionDef():
                self.define(stmt)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Import() | ast.ImportFrom():
                self.execute(stmt)
            case ast.Assign(targets=targets) if all(isinstance(target, ast.Name) for target in targets):
                self.execute(stmt)
            case ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as value):
                self.execute(ast.copy_location(ast.Assign([target], value), stmt))
            case ast.ClassDef():
                self.struct(stmt)
            case ast.AsyncFunctionDef():
                refusal = refusal_of("AsyncFunctionDef")
                self.error(stmt, refusal.reason, "unsupported", refusal.hint)
            case _:
                hint = "move this to a cell of its own"
                self.error(stmt, "a kernel cell holds defs, imports and constants only", "unsupported", hint)

    def execute(self, stmt: ast.stmt) -> None:
        """Run an import or the assignment of a constant among the notebook's names."""
        words = words_in(stmt, self.names)
        written: dict[str, Any] = {}
        if not may_run(stmt, {**words, **self.names}):
            self.scope.cell |= {name: Poison(unknown=True) for name in _bound(stmt)}
            return
        module = ast.fix_missing_locations(ast.Module([stmt], []))
        self.names |= as_builtins(words)
        try:
            exec(compile(module, self.places.source.label, "exec"), self.names, written)
        except Exception as error:  # noqa: BLE001 (whatever the user's line raises is reported at its place)
            hint = "a kernel cell may assign constants; move other code to a cell of its own"
            self.error(stmt, f"this line raised {type(error).__name__}: {error}", "value", hint)
            self.scope.cell |= {name: Poison() for name in _bound(stmt)}
            return
        self.names |= written
        self.assigned |= written

    def struct(self, node: ast.ClassDef) -> None:
        """A class is a struct; it is known to what stands below it."""
        if node.name in self.scope.cell or node.name in self.templates:
            self.error(node, f"{node.name} is defined twice in this cell", "name", "rename one of them")
            return
        self.scope.cell[node.name] = Poison()
        definition, errors = lower_class(node, self.places, self.scope, self.evaluate)
        self.collect(errors)
        if definition is not None:
            self.scope.cell[node.name] = StructRef(definition.struct)
            self.definitions[node.name] = definition

    def evaluate(self, node: ast.expr, what: str = "this") -> Any:
        """The value of an expression among the notebook's names; raises Mistake."""
        return evaluated(node, self.places, self.names, what)

    def define(self, node: ast.FunctionDef) -> None:
        kind, chosen = self.decorators(node)
        if isinstance(self.definitions.get(node.name), StructDefinition):
            self.error(node, f"{node.name} is a struct of this cell", "name", "rename one of them")
            return
        definition = template(node, self.places, self.scope, chosen)
        definition = replace(definition, then=named_in(node.args, self.names))
        if node.name in self.templates:
            first, kind_of_first = self.templates[node.name]
            if (
                node.name not in self.natives
                and self.is_overload(definition, kind)
                and self.is_overload(first, kind_of_first)
            ):
                self.overloads.setdefault(node.name, [first]).append(definition)
                return
            message = f"{node.name} is defined twice in this cell"
            hint = "rename one of them"
            self.error(node, message, "name", hint, (Related("the first definition is here", first.span),))
            return
        self.templates[node.name] = definition, kind

    def is_overload(self, definition: Template, kind: Kind | None) -> bool:
        """Whether a def may be one of several of its name: a function whose arguments have types."""
        is_function = kind == "func" or (kind is None and returns_value(definition.body))
        return is_function and all(argument.annotation is not None for argument in definition.arguments)

    def decorators(self, node: ast.FunctionDef) -> tuple[Kind | None, dict[str, Any]]:
        kind: Kind | None = None
        chosen: dict[str, Any] = {}
        for decorator in node.decorator_list:
            match word(decorator):
                case "kernel" | "func" as kind:
                    pass
                case "func_native":
                    kind = "func"
                    self.native(node, decorator)
                    continue
                case _:
                    head = decorator.func if isinstance(decorator, ast.Call) else decorator
                    self.scope.cell[node.name] = Poison()
                    message = f"the decorator @{ast.unparse(head)} is not known here"
                    hint = DECORATORS.hint(ast.unparse(head).rpartition(".")[2])
                    self.error(decorator, message, "name", hint)
            if isinstance(decorator, ast.Call) and kind is not None:
                chosen |= self.options(decorator, kind)
        return kind, chosen

    def native(self, node: ast.FunctionDef, decorator: ast.expr) -> None:
        """Remember the snippets of a function of native C++."""
        try:
            arguments = self.arguments(decorator) if isinstance(decorator, ast.Call) else {}
            sources = (self.places.source, *self.around)
            self.natives[node.name] = native_defs.texts(arguments, node.name, sources)
        except Mistake as mistake:
            self.errors.append(mistake.diagnostic)
        except ValueError as problem:
            hint = 'write @func_native(snippet, adj_snippet), with C++ such as "return x * x;"'
            self.error(decorator, str(problem), "native", hint)
        if node.name not in self.natives:
            self.scope.cell[node.name] = Poison()

    def arguments(self, call: ast.Call) -> dict[str, Any]:
        """The arguments of `func_native` by name; raises Mistake."""
        names = ("snippet", "adj_snippet", "replay_snippet")
        positional = {name: self.evaluate(part) for name, part in zip(names, call.args, strict=False)}
        return positional | {word.arg or "": self.evaluate(word.value) for word in call.keywords}

    def options(self, decorator: ast.Call, kind: Kind) -> dict[str, Any]:
        stated = {}
        for option in decorator.keywords:
            try:
                stated[option.arg or ""] = self.evaluate(option.value, "this option")
            except Mistake as mistake:
                self.errors.append(mistake.diagnostic)
        wrong = definitions.unknown_option(kind, stated)
        if wrong is not None:
            self.error(decorator, wrong[0], "value", wrong[1])
        return definitions.effective_options(stated) if kind == "kernel" else {}

    # ---- kernels and functions

    def classify(self) -> None:
        """Decide what each def is, so that any of them can be named by any other."""
        defs = [first.node for first, _ in self.templates.values()]
        defs += [template.node for several in self.overloads.values() for template in several[1:]]
        called = {name for node in defs for name in _called(node) if name != node.name} | self.ruled()
        for name, (definition, kind) in self.templates.items():
            if name in self.scope.cell:
                continue
            recursive = name in _called(definition.node)
            returns = returns_value(definition.body) or states_result(definition.node)
            is_function = name in called or ((recursive or returns) and not self.asks_for_thread(name))
            if kind == "func" or (kind is None and is_function):
                function = self.functions[name] = self.function_of(name, definition)
                adopt((function, *function.members))
                self.scope.cell[name] = FunctionRef(self.siblings(function) if self.siblings else function)
            else:
                self.scope.cell[name] = KernelRef(name)

    def function_of(self, name: str, template: Template) -> UserFunction:
        if name in self.natives:
            return native_defs.NativeFunction(template, self.natives[name])
        several = self.overloads.get(name)
        return UserFunction(template) if several is None else Overloads(list(map(UserFunction, several)))

    def ruled(self) -> set[str]:
        """The functions that rules belong to or call; what asks for `tid()` is a kernel all the same."""
        names = {name for rule in self.rules for name in custom_derivatives.named(rule) | _called(rule)}
        return {name for name in names if name in self.templates and not self.asks_for_thread(name)}

    def asks_for_thread(self, name: str) -> bool:
        return "tid" in _called(self.templates[name][0].node)

    def lower(self) -> None:
        for name in self.callees_first():
            definition, _ = self.templates[name]
            if name in self.functions:
                self.function(self.functions[name])
            elif isinstance(self.scope.cell[name], KernelRef) and is_generic(definition):
                generic = GenericKernel(definition)
                self.collect(generic.check())
                self.definitions |= {} if generic.check() else {name: generic}
            elif isinstance(self.scope.cell[name], KernelRef):
                outcome = lower_kernel(definition)
                self.collect(outcome.errors)
                self.notes += outcome.notes
                if outcome.kernel is not None:
                    self.definitions[name] = outcome.kernel
        self.definitions = {
            name: definition
            for name, definition in sorted(self.definitions.items(), key=lambda item: item[1].span.line)
            if not isinstance(definition, UserFunction) or definition.is_usable
        }
        self.notes += [
            note
            for function in self.functions.values()
            for member in function.members
            for note in member.notes
        ]

    def callees_first(self) -> list[str]:
        """The names of the defs, each behind the functions that it calls, whose chains may be long."""
        ordered: dict[str, None] = {}
        opened: set[str] = set()
        waiting = [*reversed(self.templates)]
        while waiting:
            name = waiting[-1]
            if name in opened:
                ordered.setdefault(waiting.pop())
                continue
            opened.add(name)
            called = _called(self.templates[name][0].node)
            waiting += [
                callee for callee in sorted(called) if callee in self.functions and callee not in opened
            ]
        return list(ordered)

    def function(self, function: UserFunction) -> None:
        try:
            errors = function.check()
        except RecursionError:
            errors = (too_deep(function.name, function.span),)
        self.collect(errors)
        if not errors:
            self.definitions[function.name] = function

    def collect(self, errors: Sequence[Diagnostic]) -> None:
        self.errors += [error for error in errors if error not in self.errors]


def _bound(stmt: ast.stmt) -> list[str]:
    match stmt:
        case ast.Import(names=imported) | ast.ImportFrom(names=imported):
            return [alias.asname or alias.name.partition(".")[0] for alias in imported]
        case _:
            return [target.id for target in targets(stmt)]


def _by_line(diagnostics: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    def place(diagnostic: Diagnostic) -> tuple[int, int]:
        return (diagnostic.span.line, diagnostic.span.column) if diagnostic.span is not None else (0, 0)

    return tuple(sorted(dict.fromkeys(diagnostics), key=place))


def _functions_of(source: Source) -> Mapping[str, UserFunction]:
    lowered = lower_source(source, {})
    lowered.raise_errors()
    definitions = lowered.definitions.items()
    return {name: function for name, function in definitions if isinstance(function, UserFunction)}


passing.lower_with(_functions_of)


@lru_cache(16)
def _called(node: ast.FunctionDef) -> frozenset[str]:
    calls = (part.func for part in nodes(node) if isinstance(part, ast.Call))
    return frozenset(func.id for func in calls if isinstance(func, ast.Name))


# ---------------------------------------------------------------------------------- plain functions of Python


def lower_python(function: Callable[..., Any], namespace: Mapping[str, Any], label: str) -> UserFunction:
    """A Python function as one that kernels can call; raises KernelError where its text says too much.

    `label` is what messages call the file or cell of a lambda.

    A def that returns nothing, and text that Python does not keep, are errors too.
    """
    name = function.__name__
    source, tree = lambda_of(function, label) if name == "<lambda>" else source_of(function)
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise no_text(name, function)
    if not returns_value(definition.body):
        hint = "return the value of one element"
        raise KernelSyntaxError.of(f"`{name}` returns nothing", "func", hint, Places(source).head(definition))
    fix_defaults(definition, function)
    _drop_annotations(definition)
    lowered = lower_tree(source, tree, namespace)
    lowered.raise_errors()
    user_function = lowered.definitions[definition.name]
    assert isinstance(user_function, UserFunction)
    return user_function


def _drop_annotations(node: ast.FunctionDef) -> None:
    """In plain Python they bind nothing: `x: float` is called with float64 too."""
    node.returns = None
    for argument in parameters(node.args):
        if not (isinstance(argument.annotation, ast.Name) and argument.annotation.id in ("int", "bool")):
            argument.annotation = None


def fix_defaults(definition: ast.FunctionDef, function: Any) -> None:
    """Write values for defaults: Python evaluates them at the def, not when kernelab lowers it."""
    function = inspect.unwrap(function)  # whose text it is
    places, values = definition.args, function.__kwdefaults__ or {}
    pairs = zip(places.defaults, function.__defaults__ or (), strict=True)
    places.defaults = [_fixed(default, value) for default, value in pairs]
    places.kw_defaults = [
        node and _fixed(node, values.get(argument.arg))
        for argument, node in zip(places.kwonlyargs, places.kw_defaults, strict=True)
    ]


def _fixed(node: ast.expr, value: Any) -> ast.expr:
    is_plain = value.__class__ is np.float64
    constant = ast.Constant(float(value) if is_plain else value)
    return ast.copy_location(constant, node)
