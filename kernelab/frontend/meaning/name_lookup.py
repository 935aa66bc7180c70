"""Looks up names that a def does not define: in the cell, the language, or the notebook.

In this order: the cell's own defs and constants; kernelab objects, types and modules of the notebook; the
words of the language; numbers, small NumPy arrays of the notebook.
"""

import ast
import re
import sys
from collections.abc import Collection, Mapping
from enum import Enum, EnumType
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from kernelab.builtins.language_words import LIBRARY_WORDS as LIBRARY
from kernelab.builtins.language_words import WORDS as DOCUMENTED
from kernelab.data_classes import dataclass, field
from kernelab.errors import KernelError, closest
from kernelab.frontend.meaning import unsupported
from kernelab.frontend.meaning.meanings import (
    BuiltinRef,
    FunctionRef,
    HostArray,
    KernelRef,
    Meaning,
    ModuleRef,
    StructRef,
    Typed,
    TypeRef,
    Weak,
)
from kernelab.frontend.meaning.syntax_trees import nodes
from kernelab.frontend.meaning.trial import own
from kernelab.guidance.hint_tables import NAMES, OF_MODULES
from kernelab.guidance.missing_names import PUBLIC_NAMES
from kernelab.host.making import BARE, CONSTANTS
from kernelab.host.traced import untraced
from kernelab.host.values import HostValue, type_of
from kernelab.lang import ops
from kernelab.lang.ir import Const
from kernelab.lang.structs import Struct
from kernelab.lang.types import (
    BY_DTYPE,
    LARGEST,
    Mat,
    Scalar,
    Value,
    Vec,
    bool_,
    float32,
    int32,
    named_types,
    type_named,
)

PREFIXES = ("kl", "wp", "kernelab")
_WORD = re.compile(r"[^\W\d]\w*")
SPECIAL = (*DOCUMENTED, *LIBRARY)
"""The words that lowering knows itself."""

_PYTHON_TYPES: dict[str, Value] = {"float": float32, "int": int32, "bool": bool_}
_STRUCTURAL = frozenset({"and", "or", "not", "chain", "chain_both", "rarely", "extract", "insert", "row"})
_FOREIGN = {
    "fabs": "abs",
    "absolute": "abs",
    "maximum": "max",
    "minimum": "min",
    "power": "pow",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arctan2": "atan2",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "round": "rint",
    "around": "rint",
    "clip": "clamp",
    "deg2rad": "radians",
    "rad2deg": "degrees",
    "fmax": "max",
    "fmin": "min",
}
"""The operations of the table that have another name in NumPy and `math`."""
LIBRARIES = frozenset({"math", "numpy", "scipy", "torch", "jax", "cupy"})
"""Whose functions of these names mean the operation; in other modules they mean what their author wrote."""
_OTHERWISE = {
    "sign": "it is 0 at 0, and the sign of a kernel is 1 there",
    "nonzero": "it gives the indices, and the nonzero of a kernel is 0 or 1",
}
"""The names with another meaning in NumPy than in the language."""


def is_word(node: ast.expr, name: str) -> bool:
    """Whether an expression is a word of the language, bare or with a prefix."""
    match node:
        case ast.Name(word):
            return word == name
        case ast.Attribute(value=ast.Name(prefix), attr=word):
            return word == name and prefix in PREFIXES
        case _:
            return False


def language() -> Mapping[str, Meaning]:
    """The words of the language, which need no prefix."""
    return _language(ops.listed())


@lru_cache(1)
def _language(_: int) -> Mapping[str, Meaning]:
    operations = (name for name in ops.names() if name not in _STRUCTURAL)
    words: dict[str, Meaning] = {name: BuiltinRef(name) for name in operations}
    words |= {name: BuiltinRef(name) for name in SPECIAL}
    words |= {name: Weak(CONSTANTS[name]) for name in BARE}
    words |= {name: TypeRef(type) for name, type in (named_types() | _PYTHON_TYPES).items()}
    return words


class Unknown(Exception):
    """A name that means nothing, or something that no kernel can use; the message says which."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A value that a kernel was compiled with, and where it came from: `name`, such as `Config.gain`."""

    around: Mapping[str, Any]
    name: str
    value: Any


Constants = dict[tuple[int, str], Constant]
"""By the identity of the namespace, and the name in it."""


@dataclass(slots=True)
class Scope:
    """The names around the defs of a cell.

    `namespace` holds what the cell names of the notebook, as it was when the cell ran: a function that is
    lowered for new types later still sees that.  `around` is the notebook itself, for suggestions.
    `callee_rules` are the functions that are called, with their custom derivatives.
    """

    cell: dict[str, Meaning]
    assigned: dict[str, Any]
    namespace: Mapping[str, Any]
    around: Mapping[str, Any] = field(default_factory=dict)
    captured: dict[str, Any] = field(default_factory=dict)
    constants: Constants = field(default_factory=dict)
    callee_rules: dict[Any, Any] = field(default_factory=dict)

    def within(self) -> "Scope":
        """The same names, with a list of captured values of its own."""
        return Scope(self.cell, self.assigned, self.namespace, self.around)

    def lookup(self, name: str, also: tuple[str, ...] = ()) -> Meaning:
        """The meaning of a name; raises Unknown, which suggests similar names, those in `also` included."""
        if name in self.cell:
            defined = self.cell[name]
            return FunctionRef(own(defined.function)) if isinstance(defined, FunctionRef) else defined
        if name in self.assigned:
            value = self.assigned[name]
            return self._imported(value) or self._value(name, value, may_change=False)
        words = language()
        if name in self.namespace:
            meaning = meaning_of(name, self.namespace[name])
            if isinstance(meaning, FunctionRef | StructRef):
                return self._value(name, self.namespace[name])
            if isinstance(meaning, TypeRef | BuiltinRef) and meaning != words.get(name):
                self.note(name, self.namespace[name])
            if meaning is not None and not isinstance(meaning, Weak | Typed | HostArray):
                return meaning
        if name in words:
            return words[name]
        if name in self.namespace:
            value = self.namespace[name]
            return self._imported(value) or self._value(name, value)
        shaped = type_named(name)
        if shaped is not None:
            return TypeRef(shaped)
        if name in PREFIXES:
            return ModuleRef(name, None)
        raise Unknown(f"the name {name} is not known here", self._did_you_mean(name, (*words, *also)))

    def number(self, name: str) -> Meaning | None:
        """The number of the notebook that is called like a word of the language, None if there is none."""
        if not isinstance(meaning_of(name, self.namespace.get(name)), Weak | Typed | HostArray):
            return None
        return self._value(name, self.namespace[name])

    def attribute(self, module: ModuleRef, name: str) -> Meaning:
        """The meaning of `module.name`; raises Unknown."""
        if module.module is not None and not _is_of(module.module, ("kernelab", "warp")):
            return self._foreign(module, name)
        words = language()
        if name in words:
            return words[name]
        if name in CONSTANTS:
            return Weak(CONSTANTS[name])
        shaped = type_named(name)
        if shaped is not None:
            return TypeRef(shaped)
        if module.module is not None and hasattr(module.module, name):
            return self._value(f"{module.name}.{name}", getattr(module.module, name))
        missing = NAMES.find(name) or PUBLIC_NAMES.find(name)
        if missing is not None:
            reason = f": {missing.reason}" if missing.reason else ""
            raise Unknown(f"{module.name} has no {name}{reason}", missing.hint)
        raise Unknown(f"{module.name} has no {name}", _closest(name, words))

    def _foreign(self, module: ModuleRef, name: str) -> Meaning:
        """The meaning of a name of NumPy, `math` or another module of the notebook; raises Unknown."""
        words, full = language(), f"{module.name}.{name}"
        if not hasattr(module.module, name):
            raise Unknown(f"{module.name} has no {name}", _closest(name, dir(module.module)))
        value = getattr(module.module, name)
        library = _is_of(module.module, LIBRARIES)
        if library and callable(value) and name in _OTHERWISE:
            why = f"{full} has no meaning in a kernel: {_OTHERWISE[name]}"
            raise Unknown(why, f"write {name}(x), or where(condition, a, b)")
        word = _FOREIGN.get(name, name)
        if library and word in words and callable(value):
            return words[word]
        if meaning_of(full, value) is not None:
            return self._value(full, value, may_change=not library)
        known = library or _is_of(module.module, ("random",))
        hint = (OF_MODULES.hint(name) or NAMES.hint(name) if known else "") or _instead(value)
        raise Unknown(f"{full} has no meaning in a kernel", hint)

    def _imported(self, value: Any) -> Meaning | None:
        """The meaning of a function that was imported by its name from NumPy, `math` or their kin."""
        # The ufuncs of NumPy before 2.2 do not name their module.
        home = getattr(value, "__module__", "numpy" if isinstance(value, np.ufunc) else None)
        name = getattr(value, "__name__", None)
        if not callable(value) or isinstance(value, type) or not isinstance(home, str):
            return None
        module = sys.modules.get(home)
        if module is None or not _is_of(module, LIBRARIES) or not isinstance(name, str):
            return None
        is_its_own = getattr(module, name, None) is value
        return self._foreign(ModuleRef(module.__name__, module), name) if is_its_own else None

    def note(self, name: str, value: Any) -> None:
        """Note that what is compiled depends on what a name around the cell holds."""
        copy = value.copy() if isinstance(value, np.ndarray | list | dict) else value
        self.constants[id(self.around), name] = Constant(self.around, name, copy)

    def _value(self, name: str, value: Any, may_change: bool = True) -> Meaning:
        meaning = meaning_of(name, value)
        if meaning is None:
            raise Unknown(f"{name} is {_kind(value)}, which a kernel cannot use", _instead(value))
        if isinstance(meaning, Weak | Typed | HostArray | FunctionRef):
            self.captured[name] = value
        elif not isinstance(meaning, StructRef):
            return meaning
        if may_change:
            self.note(name, value)
        return meaning

    def _did_you_mean(self, name: str, words: tuple[str, ...]) -> str:
        usable = [
            key
            for key, value in sound(self.around).items()
            if not key.startswith("_") and (isinstance(value, ModuleType) or not _holds_names(value))
            if _is_function(value) or meaning_of(key, value) is not None
        ]
        near = (*words, *self.cell, *self.assigned, *usable)
        return unsupported.hint_of_name(name) or _closest(name, near) or _FIRST


_FIRST = "define it above, or run the cell that defines it first"


def _is_function(value: Any) -> bool:
    """Whether a value is a function for kernels; asking the object itself would load it."""
    return hasattr(type(value), "__kernelab_function__")


def named_in(tree: ast.AST, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a namespace that a piece of text names, also inside the text of annotations."""
    names: set[str] = set()
    for node in nodes(tree):
        match node:
            case ast.Name(name):
                names.add(name)
            case ast.Constant(value=str() as text):
                names.update(_WORD.findall(text))
    # `a + b` of structs means a function that the text does not name.
    operators = {name for name in OF_STRUCTS if _is_function(soundly(namespace.get(name)))}
    return {name: soundly(namespace[name]) for name in names | operators if name in namespace}


def _closest(name: str, names: Any) -> str:
    names = dict.fromkeys(names)
    close = closest(name, names, 0.75) or next((one for one in names if one.lower() == name.lower()), "")
    return f"did you mean «{close}»?" if close else ""


def sound(names: Mapping[str, Any]) -> dict[str, Any]:
    """Names, without objects that raise where one asks what they are, as a dead weak proxy does."""
    return {name: value for name, value in tuple(names.items()) if soundly(value) is value}


class BrokenObject:
    """Stands for an object of the user's that raises where one asks what it is."""


def soundly(value: Any) -> Any:
    """An object, or a BrokenObject in its place."""
    try:
        isinstance(value, Struct)
        _is_function(value)
    except Exception:  # noqa: BLE001 (it is the user's: anything)
        return BrokenObject()
    return value


def meaning_of(name: str, value: Any) -> Meaning | None:
    """The meaning in a kernel of an object of the notebook, None if it has none."""
    try:
        return _meaning_of(name, value)
    except (KernelError, Unknown, RecursionError, MemoryError):
        raise
    except Exception:  # noqa: BLE001 (an object of the user's raises where one looks at it)
        return None


def _meaning_of(name: str, value: Any) -> Meaning | None:
    # Of the object itself: `array` is a word of the language, an array made by it is not.
    word = getattr(value, "__dict__", {}).get("__kernelab_name__")
    if isinstance(word, str):
        return language().get(word, BuiltinRef(word))
    struct = getattr(value, "__kernelab_struct__", None)
    if isinstance(struct, Struct) and isinstance(value, type | Struct):
        return StructRef(struct)
    function = getattr(value, "__kernelab_function__", None)
    if function is not None and not isinstance(value, type):
        return FunctionRef(own(function))
    if getattr(value, "__kernelab_kernel__", None) is not None:
        return KernelRef(name)
    value = value if isinstance(value, HostValue) else untraced(value)
    match value:
        case bool() | int() | float() if type(value) in (bool, int, float):
            return Weak(value)
        case Enum(value=bool() | int() | float() as number):
            return Weak(number)
        case EnumType():
            return ModuleRef(name, value)
        case Scalar() | Vec() | Mat():
            return TypeRef(value)
        case ModuleType():
            return ModuleRef(name, value)
        case np.generic():
            scalar = BY_DTYPE.get(value.dtype)
            return None if scalar is None else Typed(Const(value.item(), scalar))
        case np.ndarray():
            return _numpy_array(value)
        case type():
            return _type(value) or (ModuleRef(name, value) if _holds_names(value) else None)
        case _:
            return ModuleRef(name, value) if _holds_names(value) else None


def _is_of(module: Any, packages: Collection[str]) -> bool:
    return isinstance(module, ModuleType) and module.__name__.partition(".")[0] in packages


def _holds_names(value: Any) -> bool:
    """Whether this is a class or an object of the user's, whose attributes a kernel may name."""
    kind = value if isinstance(value, type) else type(value)
    if (value is not kind and callable(value)) or hasattr(kind, "__kernelab_struct__"):
        return False
    ours = kind.__module__.partition(".")[0] in LIBRARIES | {"builtins", "kernelab", "typing"}
    return not ours and not any(hasattr(kind, word) for word in _ARRAYS)


_ARRAYS = ("__array__", "__array_interface__", "__cuda_array_interface__", "__dlpack__")


def _type(value: type) -> Meaning | None:
    if value in (float, int, bool):
        return TypeRef(_PYTHON_TYPES[value.__name__])
    if issubclass(value, np.generic):
        scalar = BY_DTYPE.get(np.dtype(value))
        return None if scalar is None else TypeRef(scalar)
    return None


def _numpy_array(value: np.ndarray[Any, Any]) -> Meaning | None:
    scalar = BY_DTYPE.get(value.dtype)
    if scalar is None or value.size > LARGEST or np.ma.is_masked(value):
        return None
    type = type_of(value)
    if type is not None:
        return HostArray(np.array(value), type)
    match value.shape:
        case ():
            return Typed(Const(value.item(), scalar))
        case (n,) if n > 1:
            return HostArray(value.copy(), Vec(scalar, n))
        case (n, m) if n > 1 and m > 1:
            return HostArray(value.copy(), Mat(scalar, n, m))
        case _:
            return None


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"a {'masked' if np.ma.is_masked(value) else 'NumPy'} array of shape {value.shape}"
    if callable(value) and not isinstance(value, type):
        return "a function of the notebook"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name} of the notebook"


def _instead(value: Any) -> str:
    if isinstance(value, np.ndarray) or type(value).__module__.startswith("kernelab"):
        return "pass it as an array argument"
    if isinstance(value, type):
        return "the types of a kernel are float, int, vec3, mat33, array[float], array2d[float] and their kin"
    if callable(value):
        return "define the function in a %%kernel cell, or with @func, to call it from a kernel"
    return "a kernel can use numbers, small NumPy vectors, functions of other kernel cells, and its arguments"


OF_STRUCTS = ("add", "sub", "mul", "div", "mod", "neg", "pos")
"""The functions of users that operators between structs mean."""
