"""The function that `map` applies, and the operands of `map` and of array operators: values and broadcasting.

    lambda x: x * s        the text of the lambda, with the `s` of this moment, lowered for each type
    kl.sin, abs, np.sin    def sin_(x): return sin(x)

An operand is an array, of structs too, or a value that is the same for all elements: a number, a vector, a
matrix, a struct.  Must not know launches.
"""

import inspect
import math
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dis import get_instructions
from functools import lru_cache, wraps
from types import CodeType, ModuleType
from typing import Any, TypeVar

import numpy as np

from kernelab.data_classes import dataclass
from kernelab.data_classes.turns import Turn
from kernelab.errors import KernelTypeError, KernelValueError, LaunchError, Source, label_of
from kernelab.frontend.definitions.cell import errors_of, lower_python, lower_source
from kernelab.frontend.definitions.functions import UserFunction
from kernelab.frontend.meaning.frame import BrokenCall
from kernelab.frontend.meaning.source import codes_of
from kernelab.host.traced import follow, origins, untraced
from kernelab.host.values import type_of, value_of
from kernelab.lang import ops
from kernelab.lang.promotion import default_scalar
from kernelab.lang.rounding import BFLOAT16
from kernelab.lang.structs import AnyType, Struct, StructArray
from kernelab.lang.types import (
    LARGEST,
    Array,
    Mat,
    Scalar,
    Vec,
    float32,
    float64,
    int32,
    named_types,
    scalar_of,
    shape_of,
)
from kernelab.runtime.array.array import array, duplicate
from kernelab.runtime.array.layout import is_picked
from kernelab.runtime.array.transfers import INDICES
from kernelab.runtime.context.conversion import HostArray, converted, described, element, scalar_of_dtype
from kernelab.runtime.context.recorder import name_in_caller, refusal
from kernelab.runtime.host.struct_instances import Instance
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.loading import closure
from kernelab.runtime.kernel.pickling import Part
from kernelab.runtime.memory.device import CPU, Device

Made = TypeVar("Made")


def made_once(maxsize: int) -> Callable[[Callable[..., Made]], Callable[..., Made]]:
    """`lru_cache`, but threads that ask for the same at the same time get one object, not one each."""

    def decorate(make: Callable[..., Made]) -> Callable[..., Made]:
        turn, first = Turn(), lru_cache(maxsize)(make)

        @wraps(make)
        def made(*args: object) -> Made:
            with turn.lock:
                return first(*args)

        return lru_cache(maxsize)(made)

    return decorate


# ----------------------------------------------------------------------------------------------- the function


def callee_of(func: Any, count: int) -> UserFunction:
    """The function of the language that `map` applies; raises KernelTypeError where there is none."""
    function = getattr(func, "__kernelab_function__", None)
    if isinstance(function, UserFunction):
        return function
    word = getattr(func, "__kernelab_name__", None) or (str(func) if isinstance(func, Scalar) else None)
    if isinstance(func, np.ufunc) or (inspect.isbuiltin(func) and func.__module__ == "math"):
        module = ("np", np) if isinstance(func, np.ufunc) else ("math", inspect.getmodule(func))
        return _word(func.__name__, count, module)
    if isinstance(word, str):
        return _word(word, count)
    if inspect.isbuiltin(func) and func in (abs, min, max, round):
        return _word(func.__name__, count)
    if inspect.isfunction(func):
        return _python(func)
    named = getattr(func, "__name__", None)
    hint = "write kl.map(lambda x: x * x, a), or pass a function of a %%kernel cell"
    if isinstance(func, Kernel):
        hint = f"launch a kernel: kl.launch({named}, dim=x.shape, inputs=[x], outputs=[y])"
    message = f"map() takes a function of numbers first, not {f'`{named}`' if named else described(func)}"
    raise KernelTypeError.of(message, "map", hint)


@contextmanager
def mistakes_raised() -> Iterator[None]:
    """Raise the mistakes of a function that is instantiated within it as an error of its user."""
    try:
        yield
    except BrokenCall as broken:
        raise errors_of(broken.diagnostics) from None


def _word(name: str, count: int, *module: tuple[str, ModuleType | None]) -> UserFunction:
    """A function that calls a word of the language, or of a module, on its arguments."""
    names, types = [f"x{k}" if k else "x" for k in range(count)], [""] * count
    if not module and (records := [op.params for op in ops.overloads(name) if len(op.params) == count]):
        names = [param.name for param in records[0]]
        types = [_annotation({params[k].pattern for params in records}) for k in range(count)]
    head = ", ".join(f"{one}{type}" for one, type in zip(names, types, strict=True))
    called = f"{module[0][0]}.{name}" if module else name
    return function_of(name, f"def {name}_({head}):\n    return {called}({', '.join(names)})", module)


def _annotation(patterns: set[ops.Pattern]) -> str:
    """The annotation of an operand for which every record of an operation wants one type of number."""
    match [*patterns]:
        case [Scalar() as type]:
            return f": {type}"
        case _:
            return ""


@made_once(256)
def function_of(title: str, text: str, names: tuple[tuple[str, Any], ...] = ()) -> UserFunction:
    """The one function of a text, which `names` are known to."""
    lowered = lower_source(Source(text, f"<{title}>"), dict(names))
    lowered.raise_errors()
    (function,) = lowered.definitions.values()
    assert isinstance(function, UserFunction)
    function.origin = Part(function_of, (title, text, names))
    return function


def _python(func: Callable[..., Any]) -> UserFunction:
    code: Any = func.__code__
    names = {**func.__globals__, **closure(func)}
    words = (name for one in codes_of(code) for name in (*one.co_names, *one.co_freevars))
    used = {name: names[name] for name in dict.fromkeys(words) if name in names}
    defaults = dict(enumerate(func.__defaults__ or ())) | (func.__kwdefaults__ or {})
    values = [*used.items(), *defaults.items()]
    key = tuple((name, _same(value, _attributes_in(code))) for name, value in values)
    # Code objects can be equal though their texts are not: annotations of variables are not in them.
    return _lowered(Keyed((id(code), repr(defaults), key), (func, used)))


@dataclass(frozen=True, slots=True, eq=False)
class Keyed:
    """A function and the names around it, equal to another with the same code object and the same values."""

    key: Any
    held: tuple[Callable[..., Any], dict[str, Any]]

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keyed) and self.key == other.key


@made_once(256)
def _lowered(keyed: Keyed) -> UserFunction:
    function, used = keyed.held
    around = ChainMap(used, closure(function), function.__globals__)  # annotations name more than the code
    return lower_python(function, around, label_of(function.__code__.co_filename))


@lru_cache(maxsize=256)
def _attributes_in(code: CodeType) -> tuple[str, ...]:
    """The words that the text of a function writes behind dots."""
    steps = (step for one in codes_of(code) for step in get_instructions(one))
    return tuple(dict.fromkeys(step.argval for step in steps if step.opname in ("LOAD_ATTR", "LOAD_METHOD")))


_DEEPEST = 4
"""How many dots a function may write behind a name, as in `scene.water.density`, for a change to count."""


def _same(value: Any, words: tuple[str, ...], depth: int = 0) -> Any:
    """A key of a captured value: equal keys mean the same value for a text of these words."""
    if isinstance(value, bool | int | float | np.generic):
        return type(value), repr(value), origins(value)
    if isinstance(value, np.ndarray):
        content = value.tobytes() if value.size <= LARGEST else id(value)
        return value.dtype.str, value.shape, content, origins(value)
    if depth == _DEEPEST or isinstance(value, UserFunction | Kernel):
        return id(value)
    parts = (word for word in words if hasattr(value, word))
    return id(value), tuple((word, _same(getattr(value, word), words, depth + 1)) for word in parts)


# --------------------------------------------------------------------------------------------------- operands


# Made once: a union of classes takes longer to make than to ask.
_OPERANDS = (
    array,
    int,
    float,
    np.ndarray,
    np.number,
    np.bool_,
    *(() if BFLOAT16.names else (BFLOAT16.type,)),
)
_NUMBERS = (int, float, np.generic, np.ndarray)
_TYPED = (array, Instance)


def is_operand(value: Any) -> bool:
    """Whether an operator of arrays knows what to do with a value."""
    return isinstance(value, _OPERANDS) or is_picked(value)


def plain(value: Any) -> Any:
    """The operand, with picked elements in an array of their own."""
    return value.contiguous() if is_picked(value) else value


def foreign_of(operands: Sequence[Any]) -> HostArray | None:
    """The array of NumPy among operands."""
    return next((one for one in operands if isinstance(one, np.ndarray) and goes_through(one)), None)


def of_foreign(values: HostArray, scalars: Sequence[Scalar]) -> str:
    """The hint for an array of NumPy, often of float64, beside one of kernelab of another type."""
    own = scalar_of_dtype(values.dtype)
    other = next((scalar for scalar in scalars if scalar != own), own)
    return f"convert the NumPy array: kl.array({name_in_caller(values) or '...'}, dtype=kl.{other})"


def goes_through(value: Any) -> bool:
    """Whether an operand has an element for each result: an array, not one value for all."""
    has_axes = isinstance(value, np.ndarray) and value.ndim > 0
    return isinstance(value, array) or (has_axes and not type_of(value))


def arrays_of(values: Sequence[Any]) -> list[array]:
    """The arrays among operands, those of NumPy as such."""
    return [
        value if isinstance(value, array) else array(value, device=CPU, copy=False)
        for value in values
        if goes_through(value)
    ]


def refuse_structs(arrays: Sequence[array]) -> None:
    """Raise KernelTypeError for an array of structs, which have no operators."""
    for elements in arrays:
        elem: Any = elements.dtype
        if isinstance(elem, Struct):
            hint = f"use the arrays of its fields: x['{elem.fields[0].name}'], or kl.map(func, x, ...)"
            raise KernelTypeError.of(f"there is no arithmetic of arrays of {elem}", "struct", hint)


def argument(value: Any, wanted: object, arrays: Sequence[array]) -> Any:
    """The operand as a launch takes it; `wanted` is the type that its parameter states, if it does."""
    if isinstance(value, _TYPED) or type_of(value) is not None:
        return value
    place = next((a.device for a in arrays if a.allocation.space is not None), CPU)
    if isinstance(wanted, Vec | Mat) and isinstance(value, np.ndarray | list | tuple):
        several = isinstance(value, np.ndarray) and value.ndim > len(shape_of(wanted))
        return (
            array(value, wanted, device=place, copy=False)
            if several
            else follow(value_of(wanted, element(untraced(value), wanted)), value)
        )
    if isinstance(value, np.ndarray) and value.ndim:
        return array(value, device=place, copy=False)
    if not isinstance(value, _NUMBERS):
        message = f"arrays, numbers, vectors and structs are mapped over, not {described(value)}"
        hint = "write kl.array(...) around it, or kl.vec3(...) for one vector"
        raise KernelTypeError.of(message, "map", hint)
    number = untraced(value)
    number = number.item() if hasattr(number, "item") else number
    scalar = wanted if isinstance(wanted, Scalar) else _scalar_for(number, arrays)
    if isinstance(number, float) and scalar.is_int:
        hint = "write int(...) around it to drop the fraction"
        raise refusal(KernelTypeError, f"{number} cannot stand for {scalar}", "type", hint)
    if isinstance(number, int) and scalar.is_int and not scalar.holds(number):
        raise KernelValueError.of(f"{number} does not fit {scalar}", "range")
    result = scalar(number)
    if isinstance(number, float) and scalar.is_float and math.isinf(result) and not math.isinf(number):
        converted(np.asarray(number), scalar)  # raises
    return follow(result, value)


def require_place(place: Device | None, values: Sequence[Any], what: str = "map()") -> None:
    """Raise LaunchError where an array is on another device than the one that was asked for."""
    for k, value in enumerate(values):
        if place is not None and isinstance(value, array) and value.device != place:
            message = f"{what} is to run on {place}, and its array {k} is on {value.device}"
            raise LaunchError.of(message, "device", f'move it: x.to("{place}")')


def _scalar_for(number: bool | int | float, arrays: Sequence[array]) -> Scalar:
    """The type of a number combined with arrays: that of the arrays, as for a literal in a kernel."""
    elems: list[Any] = [a.dtype for a in arrays]
    kinds = [scalar_of(elem) for elem in elems if not isinstance(elem, Struct)]
    floats = [kind for kind in kinds if kind.is_float]
    ints = [kind for kind in kinds if kind.is_int]
    if isinstance(number, bool):
        return default_scalar(number)
    if isinstance(number, int):
        return next(iter([*floats, *ints]), int32)
    if floats:
        return floats[0]
    return float64 if any(kind.bits == 64 for kind in ints) else float32


def value_type_of(operand: Any) -> Any:
    """The type of an operand's elements, or of the operand itself."""
    if isinstance(operand, array):
        return operand.dtype
    if isinstance(operand, Instance):
        return operand._struct
    elem = type_of(operand) or scalar_of_dtype(operand.dtype)
    assert elem is not None
    return elem


def broadcast(*operands: Any, within: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """The shape that all operands stretch to; raises KernelValueError where they do not."""
    shapes = [operand.shape for operand in operands if isinstance(operand, array)]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        shape = None
    if shape is None or (within is not None and shape != within):
        shown = " and ".join(str(shape) for shape in shapes)
        message = f"arrays of shapes {shown} do not broadcast"
        hint = (
            "give them axes of equal length, or of length 1"
            if within is None
            else f"the result has to fit {within}"
        )
        raise KernelValueError.of(message, "shape", hint)
    if len(shape) > len(INDICES):
        message = f"operations on elements take arrays of 1 to 4 dimensions, not {len(shape)}"
        raise refusal(KernelValueError, message, "ndim", "give them fewer: x.reshape(-1)")
    return shape


def copied_if_overlapping(values: Any, target: array) -> Any:
    """The operand, or a copy of it where writing `target` would change elements before they are read."""
    if not isinstance(values, array) or values.allocation is not target.allocation:
        return values
    same = (values.offset, values.shape, values.strides) == (target.offset, target.shape, target.strides)
    return values if same or not values.overlaps(target) else duplicate(values, values.requires_grad, "clone")


@dataclass(frozen=True, slots=True)
class Pattern:
    """An operand of a kernel: its type, and its thread indices (None for the only element)."""

    type: AnyType
    axes: tuple[int | None, ...] = ()

    def read(self, name: str) -> str:
        """The element of a parameter of this name that belongs to the thread."""
        indices = ", ".join("0" if axis is None else INDICES[axis] for axis in self.axes)
        return f"{name}[{indices}]" if indices else name


def pattern(operand: Any, shape: tuple[int, ...]) -> Pattern:
    """The pattern of an operand in a kernel over `shape`."""
    if not isinstance(operand, array):
        return Pattern(value_type_of(operand))
    first = len(shape) - operand.ndim
    axes = (None if n == 1 != shape[first + k] else first + k for k, n in enumerate(operand.shape))
    return Pattern(operand.type, tuple(axes))


def declared(names: Sequence[str], types: Sequence[AnyType]) -> tuple[list[str], dict[str, Any]]:
    """Parameters as the text of a kernel declares them, and what the words of their annotations mean."""
    words: dict[Any, str] = {}
    lines = []
    for name, type in zip(names, types, strict=True):
        value = type.elem if isinstance(type, Array | StructArray) else type
        if value not in words:
            # The name of a type, or one for a type that has none: T7 for a vector of seven numbers.
            word = f"T{''.join(character for character in str(value) if character.isalnum())}"
            word = f"{word}_{len(words)}" if word in words.values() else word
            words[value] = str(value) if str(value) in named_types() else word
        lines.append(f"{name}: {_spelled(type, words[value])}")
    return lines, {word: value for value, word in words.items()}


def _spelled(type: AnyType, word: str) -> str:
    if not isinstance(type, Array | StructArray):
        return word
    return f"array[{word}]" if type.ndim == 1 else f"array{type.ndim}d[{word}]"
