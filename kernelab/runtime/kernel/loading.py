"""Turns Python functions into definitions; a launch warns of constants and functions that have changed since.

A definition comes from the source text of the def, the names in its scope, and its closure.  A launch
compares the identities of constants and functions, and the bytes of vectors and arrays, in one expression
made of the names.  Kernels of a notebook's cells are compared after each cell instead
(`jupyter.after_cell`), and their launches pay nothing.
"""

import ast
import inspect
import sys
from collections import ChainMap, UserDict
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import reduce
from types import FunctionType
from typing import Any, Literal

import numpy as np

from kernelab.data_classes import dataclass, field, replace
from kernelab.errors import Diagnostic, KernelSyntaxError, KernelValueError, Source
from kernelab.frontend.definitions.cell import Definition, fix_defaults, lower_tree
from kernelab.frontend.definitions.definitions import MODULE_DEFAULTS, effective_options, unknown_option
from kernelab.frontend.definitions.functions import UserFunction
from kernelab.frontend.definitions.kernels import GenericKernel, KernelDefinition
from kernelab.frontend.meaning.annotations import StructDefinition
from kernelab.frontend.meaning.name_lookup import Constant
from kernelab.frontend.meaning.source import Places, annotations_of, file_of, source_of
from kernelab.guidance.missing_names import MODULES, Answers
from kernelab.lang.rounding import is_float_dtype
from kernelab.lang.structs import StructArray
from kernelab.lang.types import Array, Value
from kernelab.runtime.array.array_attributes import ref
from kernelab.runtime.context.recorder import warn_at
from kernelab.runtime.host.host_words import static


def names_around() -> Mapping[str, Any]:
    """The names that the caller's caller sees."""
    frame = sys._getframe(2)
    if frame.f_locals is frame.f_globals:
        return frame.f_globals
    return ChainMap(dict(frame.f_locals), frame.f_globals)


def maps_of(namespace: Mapping[str, Any]) -> list[Any]:
    """The dictionaries behind a namespace."""
    return namespace.maps if isinstance(namespace, ChainMap) else [namespace]


class FreeVariables(UserDict[str, Any]):
    """The free variables of a function, with the values that they have when they are asked for."""

    def __getitem__(self, name: str) -> Any:
        return self.data[name].cell_contents


def closure(function: Callable[..., Any]) -> FreeVariables:
    """The function's free variables; unassigned ones are left out."""
    assigned = {}
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    for name, cell in zip(code.co_freevars if code else (), cells, strict=True):
        try:
            _ = cell.cell_contents
        except ValueError:
            continue
        assigned[name] = cell
    return FreeVariables(assigned)


def evaluated(annotation: Any, function: Callable[..., Any], names: Mapping[str, Any]) -> Any:
    """An annotation as an object: its text is evaluated, where Python has left it as text."""
    if not isinstance(annotation, str):
        return annotation
    return eval(annotation, dict(ChainMap(closure(function), *maps_of(names))))


# --------------------------------------------------------------------------------------------- static values


_WORD = "__static"


@dataclass(frozen=True, slots=True)
class Parsed:
    """A function's text and tree, in which the names of `values` stand for what was evaluated."""

    source: Source
    tree: ast.Module
    values: Mapping[str, Any]


def parsed(function: Callable[..., Any], names: Mapping[str, Any]) -> Parsed | None:
    """The function with its `static(...)` evaluated; None where it has none, or its text is not kept."""
    code = getattr(function, "__code__", None)
    around = ChainMap(closure(function), *maps_of(names))
    if code is None or not any(
        word == "static" or around.get(word) is static for word in (*code.co_names, *code.co_freevars)
    ):
        return None
    try:
        source, tree = source_of(function)
    except KernelSyntaxError:
        return None  # it is reported when the function is needed
    replacing = _Replacing(dict(around), {*code.co_varnames, *code.co_cellvars})
    return Parsed(source, replacing.visit(tree), replacing.values)


@dataclass(slots=True)
class _Replacing(ast.NodeTransformer):
    around: dict[str, Any]
    own: set[str]
    values: dict[str, Any] = field(default_factory=dict)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if len(node.args) == 1 and not node.keywords and self._is_static(node.func):
            return self._evaluated(node)
        return self.generic_visit(node)

    def _is_static(self, callee: ast.expr) -> bool:
        match callee:
            case ast.Name(name):
                return name not in self.own and self.around.get(name) is static
            case ast.Attribute(ast.Name(module), "static"):
                return module not in self.own and getattr(self.around.get(module), "static", None) is static
            case _:
                return False

    def _evaluated(self, node: ast.Call) -> ast.AST:
        expression = node.args[0]
        if any(isinstance(part, ast.Name) and part.id in self.own for part in ast.walk(expression)):
            return node
        try:
            value = eval(compile(ast.Expression(expression), "static", "eval"), self.around)
        except Exception:  # noqa: BLE001 (it is evaluated again, and reported at its place, when it is needed)
            return node
        name = f"{_WORD}_{len(self.values)}"
        self.values |= {_WORD: static, name: value}
        node.func = ast.copy_location(ast.Name(_WORD, ast.Load()), node.func)
        node.args = [ast.copy_location(ast.Name(name, ast.Load()), expression)]
        return node


# --------------------------------------------------------------------------------------------------- loading


MODULE_OPTIONS = "__kernelab_options__"
"""The name under which a Python module keeps the options of its kernels."""


class ModuleOptions(dict[str, Any]):
    """The options that have been set for a module; an index finds the others too, as they are by default."""

    def __missing__(self, name: str) -> Any:
        return MODULE_DEFAULTS[name]


NAMED_OPTIONS: dict[Any, ModuleOptions] = {}
"""The options of groups of kernels that are no Python modules, by the names given with `module=`."""


@dataclass(frozen=True, slots=True)
class Module(Answers):
    """A group of kernels by name, for programs that build by module; each kernel is built by itself."""

    NAMED = "a module of kernels"
    HINTS = MODULES

    name: str
    options: MutableMapping[str, Any] = field(default_factory=ModuleOptions)

    def load(self, device: Any = None, block_dim: Any = None, **_: Any) -> None:
        """Do nothing: each kernel is built by itself when it is first launched."""

    def unload(self) -> None:
        """Do nothing: there is no module that could be unloaded."""

    def mark_modified(self) -> None:
        """Warn, with KernelWarning, that kernels keep the values that they have captured."""
        message = (
            "mark_modified changes nothing: kernels keep the values that they captured when first needed"
        )
        Diagnostic(message, None, "module", "warning", hint="define the kernels again").warn()


def definition_of(
    function: Callable[..., Any],
    namespace: Mapping[str, Any],
    word: Literal["kernel", "func"],
    early: Parsed | None = None,
    siblings: Callable[[UserFunction], UserFunction] | None = None,
) -> KernelDefinition | GenericKernel | UserFunction:
    """The definition of a kernel or function from a Python function of a file; raises KernelError.

    `early` is what was evaluated of it when it was defined, `siblings` as for `lower_tree`.
    """
    if early is None:
        source, tree = source_of(function)
    else:
        source, tree = early.source, early.tree
        namespace = ChainMap({**early.values}, *maps_of(namespace))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            if isinstance(function, FunctionType) and inspect.unwrap(function) is not function:
                message = f"another decorator wraps `{node.name}`, and kernels would run what it wraps"
                hint = f"write @kl.{word} alone above the def"
                raise KernelSyntaxError.of(message, "decorator", hint, Places(source).head(node))
            # The decorator has been evaluated already, whatever it was called there.
            node.decorator_list = [ast.copy_location(ast.Name(word), node)]
            fix_defaults(node, function)
            namespace = _annotated(node, function, namespace)
    lowered = lower_tree(source, tree, namespace, (), siblings)
    lowered.raise_errors()
    warn_of(lowered.diagnostics)
    definition = lowered.definitions[function.__name__]
    assert not isinstance(definition, StructDefinition)
    return definition


def warn_of(notes: Sequence[Diagnostic]) -> None:
    """Warn, with KernelWarning at its line, of code that is valid but probably a mistake.

    Under a cell such notes are shown; a file, or a text, has no other place for them.  What a grad function
    leaves out is reported when it is compared with differences.
    """
    for note in notes:
        if note.severity == "warning" and note.code != "adjoint" and note.span is not None:
            note.warn()


def _annotated(
    node: ast.FunctionDef, function: Callable[..., Any], namespace: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Python has evaluated the annotations of a function: a type counts, whatever its text means by now."""
    types: dict[str, Any] = {}
    stated = annotations_of(function)
    for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
        annotation = stated.get(argument.arg)
        if argument.annotation is not None and isinstance(annotation, ref):
            inner = ast.Name(f"__annotation_{argument.arg}", ast.Load())
            types[inner.id] = annotation.dtype
            handed = ast.Subscript(ast.Name("ref", ast.Load()), inner, ast.Load())
            argument.annotation = ast.fix_missing_locations(ast.copy_location(handed, argument.annotation))
        elif argument.annotation is not None and (
            isinstance(annotation, Value | Array | StructArray) or hasattr(annotation, "__kernelab_struct__")
        ):
            name = f"__annotation_{argument.arg}"
            types[name] = annotation
            argument.annotation = ast.copy_location(ast.Name(name, ast.Load()), argument.annotation)
    return ChainMap(types, *maps_of(namespace)) if types else namespace


def native_of(
    function: Callable[..., Any], namespace: Mapping[str, Any], snippets: Mapping[str, Any]
) -> Definition:
    """The definition of a Python function with snippets of C++; raises KernelError."""
    source, tree = source_of(function)
    words = {f"__native_{word}": value for word, value in snippets.items()}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            keywords = [ast.keyword(word, ast.Name(f"__native_{word}", ast.Load())) for word in snippets]
            call = ast.Call(ast.Name("func_native", ast.Load()), [], keywords)
            node.decorator_list = [ast.fix_missing_locations(ast.copy_location(call, node))]
    lowered = lower_tree(source, tree, ChainMap(words, *maps_of(namespace)), file_of(function))
    lowered.raise_errors()
    return lowered.definitions[function.__name__]


def loader(
    function: Callable[..., Any], names: Mapping[str, Any], options: Mapping[str, Any], early: Parsed | None
) -> Callable[[], KernelDefinition | GenericKernel]:
    """A callable that loads the definition of a decorated kernel on demand, or raises KernelError."""

    def load() -> KernelDefinition | GenericKernel:
        definition = definition_of(function, ChainMap(closure(function), *maps_of(names)), "kernel", early)
        assert not isinstance(definition, UserFunction)
        chosen = chosen_options(function, options)
        if isinstance(definition, GenericKernel):
            definition.options |= chosen
            return definition
        return replace(definition, options=chosen)

    return load


def chosen_options(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a decorated kernel: its own, else those of its module."""
    module = options.get("module")
    shared = getattr(function, "__globals__", {}).get(MODULE_OPTIONS)
    around = module.options if isinstance(module, Module) else NAMED_OPTIONS.get(module, shared)
    return effective_options({"module_options": around}) | effective_options(options)


def module_options(function: Callable[..., Any], options: Mapping[str, Any]) -> MutableMapping[str, Any]:
    """What is set, now or later, for the module of a decorated kernel; the kernel's own, if it has some."""
    module, own = options.get("module"), options.get("module_options")
    if own is not None:
        return ModuleOptions(own)
    if isinstance(module, Module):
        return module.options
    if module in NAMED_OPTIONS:
        return NAMED_OPTIONS[module]
    return options_in(getattr(function, "__globals__", {}))


def options_in(names: dict[str, Any]) -> ModuleOptions:
    """What is set for the kernels of a Python module that has these names."""
    options: ModuleOptions = names.setdefault(MODULE_OPTIONS, ModuleOptions())
    return options


def refuse_unknown(word: Literal["kernel", "func"], options: Mapping[str, Any]) -> None:
    """Raise KernelValueError for an option that the decorator does not have."""
    wrong = unknown_option(word, options)
    if wrong is not None:
        raise KernelValueError.of(wrong[0], "value", wrong[1])


# -------------------------------------------------------------------------------- constants that have changed


MAX_VALUE = 40
"""How many characters of a value are shown."""

_GONE = object()


class Constants:
    """The constants of a kernel of which nothing has been said; `unchanged` looks at their names.

    The rules of the functions that it calls are among them: it was lowered with those that there were.
    """

    def __init__(self, definition: KernelDefinition, constants: Sequence[Constant]) -> None:
        self._definition = definition
        self._watch(constants, definition.callee_rules)

    def _watch(self, constants: Sequence[Constant], rules: Sequence[tuple[UserFunction, Any]]) -> None:
        self._constants = [one for one in constants if current(one.around, one.name, _GONE) is not _GONE]
        self._rules = rules
        of_rules = [Constant({"function": function}, "function.rules", then) for function, then in rules]
        self.unchanged = _comparison([*self._constants, *of_rules])

    def tell(self) -> None:
        """Warn, with KernelWarning, of the names that hold something else; they are not looked at again."""
        values = [current(one.around, one.name, one.value) for one in self._constants]
        values = [now.copy() if isinstance(now, np.ndarray | list | dict) else now for now in values]
        pairs, rules = list(zip(self._constants, values, strict=True)), self._rules
        self._watch(
            [Constant(one.around, one.name, now) for one, now in pairs if same(one.value, now)],
            [(function, function.rules) for function, _ in rules],
        )
        for function, then in rules:
            before, now = ({} if each is None else each.of for each in (then, function.rules))
            late = next((rule.name for kind, rule in now.items() if before.get(kind) is not rule), None)
            if late is not None:
                name = self._definition.name
                message = f"`{name}` was compiled before {late}: its derivatives do without {late}"
                warn_at(message, "stale", f"define {name} again, below {late}", span=self._definition.span)
        for one, now in pairs:
            if not same(one.value, now):
                message = stale(f"`{self._definition.name}` was", one.name, one.value, now)
                is_function = callable(one.value)
                hint = "define" if is_function else f"give the kernel {one.name} as an argument, or define"
                warn_at(message, "stale", f"{hint} it again", span=self._definition.span)


_COMPARISON = """
def unchanged():
    try:
        return {conditions}
    except Exception:
        return False
"""


def _comparison(constants: Sequence[Constant]) -> Callable[[], bool]:
    """A function that says whether every name holds the very object that it held, or an array as it was."""
    names: dict[str, Any] = {}
    conditions = ["True"]
    for k, one in enumerate(constants):
        root, dot, rest = one.name.partition(".")
        is_array = isinstance(one.value, np.ndarray)
        names[f"then_{k}"] = one.value.tobytes() if is_array else one.value
        # The one dictionary that has the name is faster to read than several in turn.
        names[f"names_{k}"] = next(space for space in maps_of(one.around) if root in space)
        expression = f"names_{k}[{root!r}]{dot}{rest}"
        is_same = "==" if isinstance(one.value, list | dict) else "is"
        compared = f"{expression}.tobytes() == then_{k}" if is_array else f"{expression} {is_same} then_{k}"
        conditions.append(compared)
    exec(_COMPARISON.format(conditions=" and ".join(conditions)), names)
    unchanged: Callable[[], bool] = names["unchanged"]
    return unchanged


def constants_of(definition: KernelDefinition) -> Constants | None:
    """The constants that a launch has to compare; None where there are none.  A notebook compares its own."""
    constants = () if definition.source.label.startswith("Cell In[") else definition.constants
    return Constants(definition, constants) if constants or definition.callee_rules else None


def current(names: Mapping[str, Any], name: str, otherwise: Any) -> Any:
    """The value of a name such as `Config.gain` in a namespace; `otherwise` where it has none."""
    root, *parts = name.split(".")
    if root not in names:
        return otherwise
    return reduce(lambda value, part: getattr(value, part, otherwise), parts, names[root])


def same(then: Any, now: Any) -> bool:
    """Whether a kernel that was compiled with one value holds for the other."""
    if then is now:
        return True
    if callable(then):  # a function, of which another one of its name may have been defined for other types
        return any(member is then for member in getattr(now, "members", ()))
    if type(then) is not type(now):
        return False
    if isinstance(then, dict):
        return then.keys() == now.keys() and all(same(value, now[key]) for key, value in then.items())
    if isinstance(then, list | tuple):
        return len(then) == len(now) and all(map(same, then, now))
    return bool(np.array_equal(then, now, equal_nan=is_float_dtype(np.asarray(then).dtype)))


def stale(who: str, name: str, then: Any, now: Any) -> str:
    """That kernels hold what a name meant when they were compiled; `who` ends in "was" or "were"."""
    if isinstance(then, type):
        return f"{who} compiled with an earlier `{name}`"
    if callable(then) and not isinstance(then, Value):
        return f"{who} compiled with an earlier `{name}`, and still calls that"
    return f"{who} compiled with {name} = {short(then)}; {name} is {short(now)} now"


def short(value: Any) -> str:
    """A value in a few characters."""
    text = str(value.tolist()) if isinstance(value, np.generic | np.ndarray) else repr(value)
    return text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 1] + "…"
