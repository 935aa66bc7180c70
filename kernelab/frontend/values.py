"""What an expression of a kernel can stand for while it is lowered.

Most are compile-time only: a number that was written as a literal, a tuple, a function, a type.  What exists
at run time is an atom of the IR (`Typed`) or an array parameter (`ArrayRef`).
"""

from collections.abc import Hashable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from kernelab.errors import Span
from kernelab.lang.ir import Atom, Function, Var
from kernelab.lang.types import Array, Scalar, Type, Value

Origin = tuple[Hashable, ...]
"""Where a weak variable comes from: the loop or branch that made it, and its name."""


@dataclass(frozen=True, slots=True)
class Weak:
    """A Python number: a literal or a captured value; it takes the type of what it meets."""

    number: bool | int | float


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
class ArrayRef:
    """An array parameter, or the row of one that is left by giving only the first indices."""

    var: Var
    indices: tuple[Atom, ...] = ()

    @property
    def elem(self) -> Value:
        assert isinstance(self.var.type, Array)
        return self.var.type.elem

    @property
    def ndim(self) -> int:
        assert isinstance(self.var.type, Array)
        return self.var.type.ndim - len(self.indices)


@dataclass(frozen=True, slots=True)
class TupleOf:
    """Several values at once."""

    items: tuple["Meaning", ...]


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
    """A module as the user calls it; `module` is None for a `kl` or `wp` that was never imported."""

    name: str
    module: ModuleType | None


@dataclass(frozen=True, slots=True, eq=False)
class KernelRef:
    """A kernel, which other code can launch but not call."""

    name: str


@dataclass(frozen=True, slots=True)
class Poison:
    """What is left where a mistake has been reported already."""


@dataclass(frozen=True, slots=True)
class FunctionRef:
    """A function that users wrote."""

    function: "Callee"


Meaning = (
    Weak
    | Typed
    | ArrayRef
    | TupleOf
    | HostArray
    | TypeRef
    | BuiltinRef
    | ModuleRef
    | KernelRef
    | Poison
    | FunctionRef
)
"""What a name or an expression stands for."""

Bound = Type | Weak | TypeRef | BuiltinRef | FunctionRef
"""What decides how a function is instantiated: the type of an argument, or a compile-time value itself."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function that users wrote; without a type it takes the argument's."""

    name: str
    type: Type | None
    default: Meaning | None
    span: Span


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """A function for arguments of certain types; `results` has a placeholder Typed for each yielded value."""

    function: Function
    results: Meaning | None


class Callee(Protocol):
    """What calls need to know of a function that users wrote."""

    @property
    def name(self) -> str: ...

    @property
    def span(self) -> Span: ...

    @property
    def captured(self) -> dict[str, Any]: ...

    def signature(self) -> tuple[Parameter, ...]:
        """Its parameters; raises Poisoned where they were refused."""
        ...

    def instantiate(self, bound: tuple[Bound, ...]) -> Instance:
        """The function for these arguments; raises Poisoned where its body has mistakes."""
        ...


def describe(meaning: Meaning) -> str:
    """A value as a message calls it: its type, or what it is."""
    match meaning:
        case Weak(bool()):
            return "bool"
        case Weak(int()):
            return "int"
        case Weak():
            return "float"
        case Typed():
            return str(meaning.type)
        case ArrayRef(var, ()):
            return str(var.type)
        case ArrayRef():
            return f"a row of {meaning.var.hint}, {Array(meaning.elem, meaning.ndim)}"
        case TupleOf(items):
            return f"({', '.join(describe(item) for item in items)})"
        case HostArray():
            return str(meaning.type)
        case TypeRef(type):
            return f"the type {type}"
        case BuiltinRef(name):
            return f"the function {name}"
        case ModuleRef(name):
            return f"the module {name}"
        case KernelRef(name):
            return f"the kernel {name}"
        case FunctionRef(function):
            return f"the function {function.name}"
        case Poison():
            return "an earlier mistake"


def is_number(meaning: Meaning) -> bool:
    """Whether it is one number at run time or compile time, truth values included."""
    return isinstance(meaning, Weak) or (isinstance(meaning, Typed) and isinstance(meaning.type, Scalar))
