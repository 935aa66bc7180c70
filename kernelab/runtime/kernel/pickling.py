"""Pickling of kernels and functions: by their text, and the values that it captures from around it.

Where a pickle is read, the text is compiled once in a process, and what is read again is the same object.
"""

import __future__

import ast
import linecache
import sys
import textwrap
import weakref
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, NoReturn
from uuid import uuid4
from weakref import WeakValueDictionary

from kernelab.data_classes import dataclass, field
from kernelab.errors import KernelTypeError, KernelValueError
from kernelab.frontend.definitions.custom_derivatives import Rules
from kernelab.frontend.definitions.functions import UserFunction
from kernelab.frontend.meaning.meanings import (
    BuiltinRef,
    FunctionRef,
    HostArray,
    KernelRef,
    ModuleRef,
    StructRef,
    Typed,
    Weak,
)
from kernelab.frontend.meaning.name_lookup import LIBRARIES, Constant, meaning_of
from kernelab.frontend.meaning.source import annotations_of, keep_text, source_of
from kernelab.frontend.meaning.syntax_trees import expression_of, module_of, parameters, word
from kernelab.lang.structs import StructArray
from kernelab.lang.types import Array, Value
from kernelab.runtime.array.array_attributes import ref
from kernelab.runtime.kernel.loading import Parsed, closure, current, maps_of, same, short

Chain = tuple[str, ...]

_KNOWN: WeakValueDictionary[str, Any] = WeakValueDictionary()
"""What was pickled or read in this process, by its token."""


def token_of(value: Any) -> str:
    """A name for an object that no other process gives to anything else."""
    if value.token is None:
        value.token = uuid4().hex
        _KNOWN[value.token] = value
    return str(value.token)


def by_token(token: str, make: Callable[[], Any]) -> Any:
    """The object of that token, made where this process has none."""
    value = _KNOWN.get(token)
    if value is None:
        value = make()
        value.token = token
        _KNOWN[token] = value
    return value


def version() -> str:
    """The version of kernelab that runs here."""
    return str(sys.modules["kernelab"].__version__)


def require_version(there: str, name: str) -> None:
    """Raise KernelValueError where another version of kernelab wrote a pickle."""
    if there != version():
        message = f"{name} was pickled by kernelab {there}, and this is kernelab {version()}"
        raise KernelValueError.of(message, "version", "install the same version on both sides")


def refuse(name: str, reason: str, hint: str) -> NoReturn:
    """Raise KernelTypeError for what cannot travel."""
    raise KernelTypeError.of(f"{name} cannot be pickled: {reason}", "pickle", hint)


def require_own_rules(functions: Iterable[UserFunction]) -> None:
    """Raise KernelTypeError for a function with a custom derivative that stands in another text."""
    for function in functions:
        rules = function.rules.of.values() if isinstance(function.rules, Rules) else ()
        for rule in rules:
            if rule.template.places.source is not function.source:
                reason = f"its custom derivative {rule.name} stands in another cell"
                refuse(f"the function {function.name}", reason, f"define {rule.name} in the same cell")


@dataclass(frozen=True, slots=True)
class Part:
    """How an object is pickled that is a part of another one, or made of it again."""

    make: Callable[..., Any]
    arguments: tuple[Any, ...]

    def reduced(self, _: Any) -> tuple[Any, ...]:
        return self.make, self.arguments


@dataclass(frozen=True, slots=True)
class Text:
    """A def with what it takes from the names around it, as it stands in a pickle."""

    name: str
    source: str
    label: str
    first_line: int
    names: dict[str, Any]
    annotations: dict[str, Any]
    defaults: tuple[Any, Any]

    def function(self) -> FunctionType:
        """The Python function, whose text Python finds as if it stood in a file of that name."""
        file = f"/kernelab/{uuid4().hex}/{self.label}"
        lines = [*["\n"] * (self.first_line - 1), *self.source.splitlines(keepends=True)]
        linecache.cache[file] = len(self.source), None, lines, file
        tree = ast.increment_lineno(module_of(textwrap.dedent(self.source)), self.first_line - 1)
        names: dict[str, Any] = {**self.names, "__name__": self.label, _WRITTEN: lambda function: function}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                node.decorator_list = [
                    ast.copy_location(ast.Name(_WRITTEN, ast.Load()), one) for one in node.decorator_list
                ]
        exec(compile(tree, file, "exec", __future__.annotations.compiler_flag, dont_inherit=True), names)
        function: FunctionType = names[self.name]
        function.__annotations__ |= self.annotations
        function.__defaults__, function.__kwdefaults__ = self.defaults
        del names[self.name]
        weakref.finalize(function, linecache.cache.pop, file, None)
        return function


_WRITTEN = "__kernelab_written__"


@dataclass(frozen=True, slots=True, eq=False)
class Def:
    """A decorated def, and how what was made of it is made `again` of its text."""

    again: Callable[..., Any]
    function: Callable[..., Any]
    around: Mapping[str, Any]
    early: Parsed | None = None

    def __post_init__(self) -> None:
        keep_text(self.function)

    def reduced(self, value: Any) -> tuple[Any, ...]:
        text, arguments = self.text(value.name, value.constants), {"early": self.early, **value.taken}
        return _again, (version(), token_of(value), self.again, text, arguments)

    def text(self, of: str, constants: Iterable[Constant]) -> Text:
        """The def as it travels; raises KernelError where its text is not kept."""
        function, name = self.function, self.function.__name__
        source, tree = source_of(function)
        around = {**ChainMap(closure(function), *maps_of(self.around))}
        around.pop(name, None)  # a def that calls itself means itself
        tree = self.early.tree if self.early else tree
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                node.decorator_list = []  # they have done their work
        names = captured(tree, around, constants, f"`{of}`")
        stated = {
            argument: _struct(type)
            for argument, type in annotations_of(function).items()
            if isinstance(type, Value | Array | StructArray | ref) or _is_struct(type)
        }
        defaults = getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None)
        return Text(name, source.text, source.label, source.first_line, names, stated, defaults)


def _again(there: str, token: str, make: Callable[..., Any], text: Text, arguments: Mapping[str, Any]) -> Any:
    require_version(there, f"`{text.name}`")
    return by_token(token, lambda: make(text, **arguments))


@dataclass(frozen=True, slots=True)
class Imported:
    """A module, or a name of one, which a pickle imports."""

    module: str
    name: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return _imported, (self.module, self.name)


def _imported(module: str, name: str) -> Any:
    imported = import_module(module)
    return getattr(imported, name) if name else imported


# ------------------------------------------------------------------------------------------ names of a text


def captured(
    tree: ast.AST, around: Mapping[str, Any], constants: Iterable[Constant] = (), of: str = "it"
) -> dict[str, Any]:
    """What a text takes from the names around it, in a form that pickles: modules by name, objects by parts.

    `constants` are what was compiled already, with its values then; raises KernelTypeError where an attribute
    has another value by now.
    """
    names = _Found()
    names.visit(tree)
    taken = {name: _whole(around[name]) for name in names.whole if name in around}
    for name, chains in names.read.items():
        if name in around and name not in taken:
            value = _part(name, around[name], chains, name in names.assigned and name not in names.outer)
            taken |= {} if value is None else {name: value}
    for one in constants:
        if "." not in one.name:
            taken[one.name] = _struct(one.value)
        elif not same(one.value, now := current(one.around, one.name, one.value)):
            reason = f"it was compiled with {one.name} = {short(one.value)}, which is {short(now)} now"
            refuse(of, reason, "define it again")
    return taken


def _whole(value: Any) -> Any:
    if isinstance(value, ModuleType):
        return Imported(value.__name__)
    return _struct(value)


def _struct(value: Any) -> Any:
    """A value; of the class of a struct, its definition."""
    return value.__dict__["__kernelab_struct__"] if isinstance(value, type) and _is_struct(value) else value


def _is_struct(value: Any) -> bool:
    return hasattr(value, "__kernelab_struct__")


def _part(name: str, value: Any, chains: Iterable[Chain], is_local: bool) -> Any:
    """What kernels see of a value, None where they see nothing; of a name that may be local, plain values."""
    meaning = meaning_of(name, value)
    if is_local and not isinstance(meaning, Weak | Typed | HostArray | FunctionRef):
        return None
    match meaning:
        case None | KernelRef():
            return None
        case Weak(number):
            return number
        case StructRef(struct):
            return struct
        case BuiltinRef(operation):
            return Imported("kernelab", operation)
        case ModuleRef():
            return _parts(value, chains)
        case _:
            return value


def _parts(value: Any, chains: Iterable[Chain]) -> Any:
    """A module by its name; of another object, the attributes that the text names."""
    if isinstance(value, ModuleType) and value.__name__.partition(".")[0] in LIBRARIES | {"kernelab", "warp"}:
        return Imported(value.__name__)
    inner: dict[str, list[Chain]] = {}
    for chain in chains:
        if chain and hasattr(value, chain[0]):
            inner.setdefault(chain[0], []).append(chain[1:])
    attributes = {name: _part(name, getattr(value, name), rest, False) for name, rest in inner.items()}
    return SimpleNamespace(**{name: part for name, part in attributes.items() if part is not None})


@dataclass(slots=True)
class _Found(ast.NodeVisitor):
    """The names of a text: with what Python evaluates (`whole`), and in kernels, with their attributes."""

    whole: set[str] = field(default_factory=set)
    read: dict[str, set[Chain]] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)
    outer: set[str] = field(default_factory=set)
    hidden: frozenset[str] = frozenset()
    local: frozenset[str] = frozenset()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.evaluated(*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults))
        for annotation in (node.returns, *(argument.annotation for argument in parameters(node.args))):
            self.annotation(annotation)
        outside = self.hidden, self.local
        self.hidden |= {argument.arg for argument in parameters(node.args)}
        names = (part for part in ast.walk(node) if isinstance(part, ast.Name))
        self.local = frozenset(part.id for part in names if isinstance(part.ctx, ast.Store))
        for stmt in node.body:
            self.visit(stmt)
        self.hidden, self.local = outside

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for stmt in node.body:
            if isinstance(stmt, ast.AnnAssign):
                self.annotation(stmt.annotation)
                self.evaluated(*filter(None, [stmt.value]))

    def visit_Assign(self, node: ast.Assign) -> None:
        if self.hidden or self.local:
            self.generic_visit(node)
        else:
            self.evaluated(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.annotation(node.annotation)
        for part in filter(None, (node.value, node.target)):
            self.visit(part)

    def visit_Call(self, node: ast.Call) -> None:
        if word(node) == "static":
            self.evaluated(*node.args)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        chain: Chain = ()
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            chain, inner = (inner.attr, *chain), inner.value
        if isinstance(inner, ast.Name):
            self.name(inner.id, chain)
        else:
            self.visit(inner)

    def visit_Name(self, node: ast.Name) -> None:
        self.name(node.id, ())

    def name(self, name: str, chain: Chain) -> None:
        if name not in self.hidden:
            self.read.setdefault(name, set()).add(chain)
            (self.assigned if name in self.local else self.outer).add(name)

    def annotation(self, node: ast.expr | None) -> None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = expression_of(node.value)
        for part in [] if node is None else ast.walk(node):
            if isinstance(part, ast.Attribute | ast.Name):
                self.visit(part)

    def evaluated(self, *expressions: ast.expr) -> None:
        names = (part.id for one in expressions for part in ast.walk(one) if isinstance(part, ast.Name))
        self.whole |= set(names) - self.hidden - self.local
