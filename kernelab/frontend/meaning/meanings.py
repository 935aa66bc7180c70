"""The meanings that an expression of a kernel can have while it is lowered.

Most are compile-time only: a number that was written as a literal, a tuple, a function, a type.  What exists
at run time is an atom of the IR (`Typed`) or an array parameter (`ArrayRef`).
"""

import ast
from collections.abc import Hashable, Iterable, Iterator, Sequence
from enum import EnumType
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from kernelab.data_classes import dataclass, field, replace
from kernelab.errors import Diagnostic, Span
from kernelab.lang.build import ndim_of
from kernelab.lang.ir import Atom, Const, Function, Var
from kernelab.lang.promotion import default_scalar
from kernelab.lang.structs import AnyType, Struct, StructArray, leaves
from kernelab.lang.types import Array, Scalar, Value, bool_, spelled

Origin = tuple[Hashable, ...]
"""The origin of a weak variable: the loop or branch that made it, and its name."""


@dataclass(frozen=True, slots=True)
class Weak:
    """A Python number: a literal or a captured value; it takes the type of what it meets."""

    number: bool | int | float

    def __eq__(self, other: object) -> bool:
        # 1, 1.0 and True mean different things, and so do 0.0 and -0.0.
        return isinstance(other, Weak) and repr(self.number) == repr(other.number)

    def __hash__(self) -> int:
        return hash(repr(self.number))

    @property
    def type(self) -> Scalar:
        """The type of a number that meets nothing."""
        return default_scalar(self.number)


@dataclass(frozen=True, slots=True)
class Typed:
    """A value of the IR; with `origins` it is weak still: a variable that only literals went into."""

    atom: Atom
    origins: frozenset[Origin] = frozenset()

    @property
    def type(self) -> Value:
        assert not isinstance(self.atom.type, Array)
        return self.atom.type

    @property
    def is_weak(self) -> bool:
        return bool(self.origins)


@dataclass(frozen=True, slots=True)
class SliceRange:
    """A slice of an axis: the positions ``start + step * k`` for k from 0 to ``count - 1``.

    The step is a number that is known when the kernel is compiled, or an int32 of the program.
    """

    start: Atom
    step: int | Atom
    count: Atom

    @property
    def atoms(self) -> tuple[Atom, ...]:
        """The parts of it that are known at run time only."""
        return (self.start, self.count) if isinstance(self.step, int) else (self.start, self.count, self.step)


Pick = Atom | SliceRange | None
"""What is picked along an axis of an array: an index, a slice, or all of it."""


@dataclass(frozen=True, slots=True)
class ArrayRef:
    """An array parameter, or a part of one: of each axis an index, a slice, or, as None, all of it.

    The last of `picks` is not None: of the axes behind it all is meant.
    """

    var: Var
    picks: tuple[Pick, ...] = ()

    @property
    def type(self) -> Array:
        """The type of the parameter."""
        assert isinstance(self.var.type, Array)
        return self.var.type

    @property
    def elem(self) -> Value:
        return self.type.elem

    @property
    def ndim(self) -> int:
        """The number of axes that are left."""
        return self.type.ndim - sum(isinstance(pick, Var | Const) for pick in self.picks)

    @property
    def is_row(self) -> bool:
        """Whether it is the whole array, a row or an element, by indices of the first axes alone."""
        return all(isinstance(pick, Var | Const) for pick in self.picks)

    @property
    def indices(self) -> tuple[Atom, ...]:
        """The indices of a row or an element."""
        assert self.is_row
        return tuple(pick for pick in self.picks if isinstance(pick, Var | Const))

    @property
    def atoms(self) -> tuple[Atom, ...]:
        """The parts known at run time only: indices, starts, lengths and perhaps steps of slices."""
        parts = (pick.atoms if isinstance(pick, SliceRange) else (pick,) for pick in self.picks)
        return tuple(atom for part in parts for atom in part if atom is not None)


@dataclass(frozen=True, slots=True)
class ViewType:
    """The key of a view as an argument: the type of an index, the step of a slice, or all of each axis."""

    array: Array
    pattern: tuple[Scalar | int | None, ...]


@dataclass(frozen=True, slots=True)
class TupleType:
    """The key of a tuple as an argument: the keys of its items."""

    items: tuple["Bound", ...]


@dataclass(frozen=True, slots=True)
class TupleOf:
    """Several values at once; those of its fields, where it is a `struct`."""

    items: tuple["Meaning", ...]
    struct: Struct | None = None

    def of(self, items: Iterable["Meaning"]) -> "TupleOf":
        """Other values in the same form."""
        return replace(self, items=tuple(items))

    def first(self, text: str) -> str:
        """The text that takes the first of the items of what `text` stands for."""
        return f"{text}[0]" if self.struct is None else self.label(text, 0)

    def label(self, name: str, k: int) -> str:
        """The name of the item at `k` of the variable `name` in a message or a hint."""
        return name if self.struct is None else f"{name}.{self.struct.fields[k].name}"

    def at(self, path: tuple[int, ...]) -> "Meaning":
        """The item that a path of positions leads to."""
        item = self.items[path[0]]
        return item.at(path[1:]) if isinstance(item, TupleOf) and path[1:] else item

    def replaced(self, path: tuple[int, ...], new: "Meaning") -> "TupleOf":
        """The same with another item at the end of a path."""
        k, rest = path[0], path[1:]
        item = self.items[k]
        inner = item.replaced(rest, new) if isinstance(item, TupleOf) and rest else new
        return self.of((*self.items[:k], inner, *self.items[k + 1 :]))


@dataclass(frozen=True, slots=True)
class StructArrayRef:
    """An array of structs, a row of one, or, with all indices, an element that has not been loaded.

    `vars` are the arrays of its leaves in order, which all take the same indices.
    """

    name: str
    struct: Struct
    vars: tuple[Var, ...]
    indices: tuple[Atom, ...] = ()

    @property
    def ndim(self) -> int:
        return ndim_of(self.vars[0]) - len(self.indices)

    def field(self, k: int) -> "StructArrayRef | ArrayRef":
        """One field of every struct in the array."""
        counts = [len(list(leaves(entry.type, ""))) for entry in self.struct.fields]
        first, entry = sum(counts[:k]), self.struct.fields[k]
        if isinstance(entry.type, Struct):
            vars = self.vars[first : first + counts[k]]
            return StructArrayRef(f"{self.name}.{entry.name}", entry.type, vars, self.indices)
        return ArrayRef(self.vars[first], self.indices)


@dataclass(frozen=True, slots=True)
class NoArray:
    """An array field of a struct that was made in a kernel, before it is set."""

    type: Array | StructArray


@dataclass(frozen=True, slots=True)
class StructRef:
    """A struct, as an annotation or a constructor."""

    struct: Struct


@dataclass(frozen=True, slots=True, eq=False)
class HostArray:
    """A small NumPy array of the notebook: a constant vector or matrix."""

    array: np.ndarray[Any, Any]
    type: Value


@dataclass(frozen=True, slots=True)
class TypeRef:
    """A type, as an annotation, a cast or a constructor."""

    type: Value


@dataclass(frozen=True, slots=True)
class BuiltinRef:
    """A word of the language: an operation of the table or one that lowering knows itself."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class ModuleRef:
    """A module, class or object whose attributes mean something, as the user calls it.

    None stands for a `kl` or `wp` that was never imported.
    """

    name: str
    module: Any


@dataclass(frozen=True, slots=True, eq=False)
class KernelRef:
    """A kernel, which other code can launch but not call."""

    name: str


@dataclass(frozen=True, slots=True)
class Poison:
    """The meaning of an expression whose error has been reported, or, `unknown`, that a trial did not run."""

    unknown: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class FunctionRef:
    """A function that users wrote."""

    function: "Callee"


@dataclass(frozen=True, slots=True)
class GradRef:
    """The derivative of a function or an operation, `grad(f)`."""

    function: FunctionRef | BuiltinRef


Meaning = (
    Weak
    | Typed
    | ArrayRef
    | TupleOf
    | StructArrayRef
    | NoArray
    | StructRef
    | HostArray
    | TypeRef
    | BuiltinRef
    | ModuleRef
    | KernelRef
    | Poison
    | FunctionRef
    | GradRef
)
"""The meaning of a name or an expression."""


class Evaluated(ast.Name):
    """An expression that has been lowered, in place of its syntax: it is not to be evaluated again."""

    def __init__(self, text: str = "", meaning: Meaning | None = None) -> None:
        super().__init__(text, ast.Load())
        self.meaning = meaning


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a call: its value, how it was written, and its keyword."""

    value: Meaning
    node: ast.expr
    keyword: str | None = None


Arguments = Sequence[Argument]


Bound = AnyType | ViewType | TupleType | Weak | TypeRef | BuiltinRef | FunctionRef
"""The key of an argument in a function's instances: its type, or a compile-time value itself."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function that users wrote; without a type it takes the argument's."""

    name: str
    type: AnyType | TupleType | None
    default: Meaning | None
    span: Span


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """A function for arguments of certain types; `results` has a placeholder Typed for each yielded value."""

    function: Function
    results: Meaning | None
    late_sums: "tuple[LateSum, ...]" = ()


@dataclass(frozen=True, slots=True, eq=False)
class LateSum:
    """A ``+=`` whose right side changes other arrays, none of which may share the element added to."""

    array: Var
    changed: frozenset[Var]
    diagnostic: Diagnostic


@dataclass(frozen=True, slots=True)
class RefParameters:
    """The `ref` parameters of a function, for its calls, and whether it returns more."""

    name: str
    parameters: tuple[str, ...]
    refs: frozenset[str]
    gives: bool


class Callee(Protocol):
    """The interface of a user's function that calls need."""

    name: str
    span: Span
    captured: dict[str, Any]
    constants: dict[tuple[int, str], Any]
    rules: Any
    callee_rules: dict[Any, Any]
    ref_parameters: RefParameters | None
    is_native: bool

    def fitting(self, arguments: Arguments, /) -> "Sequence[Callee]":
        """The function that a call means, of several of one name, and those that it may mean as well."""
        ...

    def signature(self) -> tuple[Parameter, ...]:
        """Its parameters; raises Poisoned where they were refused."""
        ...

    def instantiate(self, bound: tuple[Bound, ...]) -> Instance:
        """The function for these arguments; raises Poisoned where its body has mistakes."""
        ...


def parts_of(meaning: Meaning | None) -> Iterator[Meaning]:
    """What a value consists of, tuples and structs taken apart; nothing for None."""
    if isinstance(meaning, TupleOf):
        for item in meaning.items:
            yield from parts_of(item)
    elif meaning is not None:
        yield meaning


def numbers(meaning: Meaning | None) -> list[Atom]:
    """The numbers, vectors and matrices in a value, in order."""
    return [part.atom for part in parts_of(meaning) if isinstance(part, Typed)]


def _kind_of_names(module: Any) -> str:
    match module:
        case None | ModuleType():
            return "module"
        case EnumType():
            return "enumeration"
        case type():
            return "class"
        case _:
            return "object"


def describe(meaning: Meaning) -> str:
    """A value as a message calls it: its type, or what it is."""
    match meaning:
        case Weak():
            return spelled(meaning.type)
        case Typed() | HostArray():
            return str(meaning.type)
        case ArrayRef(var, ()):
            return str(var.type)
        case ArrayRef():
            part = "row" if meaning.is_row else "slice"
            return f"a {part} of {meaning.var.hint}, {Array(meaning.elem, meaning.ndim)}"
        case TupleOf(_, Struct() as struct):
            return str(struct)
        case StructArrayRef(name, struct, _, indices):
            whole = str(StructArray(struct, meaning.ndim) if meaning.ndim else struct)
            return f"a row of {name}, {whole}" if indices and meaning.ndim else whole
        case NoArray(type):
            return f"an {type} that is not set"
        case StructRef(struct):
            return f"the struct {struct}"
        case TupleOf(items):
            return f"({', '.join(describe(item) for item in items)})"
        case TypeRef(type):
            return f"the type {type}"
        case BuiltinRef(name):
            return f"the function {name}"
        case ModuleRef(name, module):
            return f"the {_kind_of_names(module)} {name}"
        case KernelRef(name):
            return f"the kernel {name}"
        case FunctionRef(function):
            return f"the function {function.name}"
        case GradRef(function):
            return f"the derivative of {describe(function).removeprefix('the ')}"
        case Poison():
            return "an earlier mistake"


def is_struct(meaning: Meaning | None) -> bool:
    return isinstance(meaning, StructArrayRef) or (
        isinstance(meaning, TupleOf) and meaning.struct is not None
    )


def is_number(meaning: Meaning) -> bool:
    """Whether it is one number at run time or compile time, truth values included."""
    return isinstance(meaning, Weak | Typed) and isinstance(meaning.type, Scalar)


def is_truth(meaning: Meaning) -> bool:
    """Whether it is a truth value at run time or compile time."""
    return isinstance(meaning, Weak | Typed) and meaning.type == bool_
