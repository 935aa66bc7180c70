"""Checks the arguments of a launch against the kernel's parameters and packs them for the entry.

Every message names the argument and points at the parameter in the kernel's text.
"""

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from kernelab.data_classes import dataclass
from kernelab.errors import Diagnostic, LaunchError, Span, counted, near
from kernelab.frontend.definitions.kernels import Formal, GenericKernel, KernelDefinition
from kernelab.host.traced import Origins, untraced
from kernelab.host.values import refuse_mask, type_of
from kernelab.lang.ir import Var
from kernelab.lang.rounding import largest, overflows, rounded
from kernelab.lang.structs import Struct
from kernelab.lang.types import (
    Array,
    Scalar,
    Type,
    Value,
    float64,
    is_differentiable,
    scalar_of,
    shape_of,
    size_of,
)
from kernelab.runtime.array.array import array
from kernelab.runtime.array.exchange import is_outside
from kernelab.runtime.array.transfers import require_readable, unreadable
from kernelab.runtime.context.conversion import HostArray, array_type, described, itemsize, scalar_of_dtype
from kernelab.runtime.context.recorder import called, name_in_caller
from kernelab.runtime.host.create import from_other
from kernelab.runtime.kernel.loading import Constants
from kernelab.runtime.memory.device import CPU
from kernelab.runtime.memory.memory import Allocation
from kernelab.settings import Check

_FORMATS = {
    "bool": "?7x", "int8": "b7x", "int16": "h6x", "int32": "i4x", "int64": "q",
    "uint8": "B7x", "uint16": "H6x", "uint32": "I4x", "uint64": "Q",
    "float32": "f4x", "float64": "d",
}  # fmt: skip

LARGEST = 2.0**127
"""Up to here every float becomes a float32 without further ado."""

Packed = tuple[Any, bytes]
"""What a launch keeps of an argument, and its slots."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A one-element array passed for a number or a vector: where its gradient goes."""

    array: array


def array_of(argument: Any) -> Any:
    """The array that an argument of a launch is, or that stands for it; any other argument itself."""
    return argument.array if isinstance(argument, Reference) else argument


def row_of_one(single: array) -> array:
    """A one-element array of any number of dimensions as one of a single dimension."""
    return array.over(single.allocation, single.offset, (1,), (itemsize(single.dtype),), single.dtype)


def require_arguments_readable(arguments: Sequence[Any]) -> None:
    """Raise GradientError where an array among the arguments of a launch differs between lanes."""
    for elements in arrays_in(arguments):
        require_readable(elements)


def hold_values(arguments: Sequence[Any]) -> bool:
    """Whether no array among the arguments of a launch differs between lanes."""
    return all(unreadable(elements) is None for elements in arrays_in(arguments))


def arrays_in(arguments: Sequence[Any]) -> Iterator[array]:
    """The arrays among the arguments of a launch, and those that stand for numbers."""
    return (value for value in map(array_of, arguments) if isinstance(value, array))


@dataclass(frozen=True, slots=True)
class Quick:
    """The fast path for plain numbers: accepts exactly this Python type, from `low` to `high`."""

    kind: Any
    low: float
    high: float
    pack: Callable[[Any], bytes]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel, and how an argument for it is checked and packed."""

    kernel: str
    name: str
    type: Value | Array
    span: Span

    def convert(self, argument: Any) -> Packed:
        """The argument as a launch keeps it, and its slots; raises LaunchError where it does not fit."""
        if isinstance(self.type, Array):
            kept = self._array(argument, self.type)
            return kept, kept.packed
        if isinstance(argument, array):
            return self._reference(argument, self.type)
        if isinstance(self.type, Scalar):
            is_0d = isinstance(argument, np.ndarray) and argument.ndim == 0
            number = argument[()] if is_0d else argument
            return number, self._number(number, self.type)
        return argument, self._components(argument, self.type)

    @property
    def quick(self) -> Quick | None:
        """The fast path for numbers of this parameter; None where there is none."""
        wanted = self.type
        if not isinstance(wanted, Scalar) or wanted.name == "bool" or (wanted.is_float and wanted.bits < 32):
            return None
        pack = struct.Struct(_FORMATS[wanted.name]).pack
        if wanted.is_float:
            return Quick(float, -LARGEST, LARGEST, pack)
        limits = np.iinfo(wanted.dtype)
        return Quick(int, int(limits.min), int(limits.max), pack)

    def wrong(self, actual: str, hint: str = "", code: str = "argument") -> LaunchError:
        """The error that something else was expected here."""
        message = (
            f"argument `{self.name}` of kernel `{self.kernel}` expects {_expected(self.type)}, not {actual}"
        )
        return LaunchError(Diagnostic(message, self.span, code, note=f"{self.name}: {self.type}", hint=hint))

    # -------------------------------------------------------------------------------------- arrays

    def _array(self, argument: Any, wanted: Array) -> array:
        if isinstance(argument, array):
            source = argument
        elif argument is None:
            shape = (*(0,) * wanted.ndim, *shape_of(wanted.elem))
            source = array(np.zeros(shape, scalar_of(wanted.elem).dtype), wanted.elem)
        elif hasattr(argument, "gathered"):
            if argument.type != wanted:
                raise self.wrong(f"picked elements of an {argument.type}", code="dtype")
            source = argument.gathered()
        elif isinstance(argument, np.ndarray) or (
            hasattr(argument, "__array_interface__") and not isinstance(argument, np.generic)
        ):
            source = self._borrowed(self._described_by_itself(argument), wanted)
        elif hasattr(argument, "__dlpack__") or is_outside(argument):
            source = self._tensor(argument, wanted)
        else:
            hint = f"make an array of it: kl.array(..., dtype=kl.{wanted.elem})"
            if isinstance(argument, bool | int | float | np.number):
                hint = "inputs, then outputs, fill the parameters in the order of the kernel's definition"
            raise self.wrong(described(argument, by_shape=True), hint, "type")
        if source.dtype != wanted.elem:
            hint = f"annotate {self.name}: {source.type}"
            elems: list[Any] = [source.dtype, wanted.elem]
            if not any(isinstance(elem, Struct) for elem in elems):
                name = name_in_caller(argument) or self.name
                made = _converted(source, wanted, name)
                hint = f"convert it: {name} = {made}, or {hint}" if made else hint
            raise self.wrong(f"an array of {source.dtype}", hint, "dtype")
        if source.ndim != wanted.ndim:
            hint = f"its shape is {source.shape}; reshape or slice it, or annotate {self.name}: {source.type}"
            raise self.wrong(f"an array of {counted(source.ndim, 'dimension')}", hint, "ndim")
        return source

    def _described_by_itself(self, argument: Any) -> HostArray:
        """The memory that an object describes in the terms of NumPy."""
        try:
            return argument if isinstance(argument, np.ndarray) else np.asarray(argument)
        except (TypeError, ValueError) as problem:
            hint = "its __array_interface__ is wrong"
            raise self.wrong(f"{described(argument)}: {problem}", hint, "type") from None

    def _tensor(self, argument: Any, wanted: Array) -> array:
        """The memory of a tensor of another library, shared as that of a NumPy array is."""
        if getattr(argument, "requires_grad", False):
            hint = (
                "kernelab.interop.torch.function(f) hands gradients on to PyTorch; a tape takes "
                f"kl.from_torch({self.name}), and {self.name}.detach() hands over values alone"
            )
            raise self.wrong("a tensor of PyTorch that requires gradients", hint, "grad")
        if "Tracer" in type(argument).__name__:
            hint = "let kernelab.interop.jax.function(f) launch the kernel, and pass it as an argument of f"
            raise self.wrong(f"{described(argument)} of JAX, which has no numbers yet", hint, "type")
        shared = from_other(argument)
        if shared.device.is_cuda:
            return from_other(argument, wanted.elem) if scalar_of(wanted.elem) == shared.dtype else shared
        return self._borrowed(
            shared.host(), wanted, described(argument), f"convert it to {scalar_of(wanted.elem)}"
        )

    def _borrowed(
        self, values: HostArray, wanted: Array, what: str = "a NumPy array", convert: str = ""
    ) -> array:
        scalar, components = scalar_of(wanted.elem), shape_of(wanted.elem)
        if scalar_of_dtype(values.dtype) != scalar:
            name = name_in_caller(values) or self.name
            hint = convert or f"convert it: {name} = {name}.astype(np.{scalar})"
            raise self.wrong(f"{what} of dtype {values.dtype}", hint, "dtype")
        fits = values.ndim == wanted.ndim + len(components)
        if not fits or values.shape[wanted.ndim :] != components:
            axes = (
                "" if not components else f", the last ones {components} for the components of {wanted.elem}"
            )
            hint = f"it needs {counted(wanted.ndim + len(components), 'axis')}{axes}"
            raise self.wrong(f"{what} of shape {values.shape}", hint, "shape")
        shared = array(values, wanted.elem, device=CPU, copy=False)
        if shared.size and not np.shares_memory(shared.host(), values):
            raise self.wrong(f"{what} whose components lie apart", "pass a contiguous copy", "shape")
        return shared

    # -------------------------------------------------------------------------------------- values

    def _reference(self, argument: array, wanted: Value) -> Packed:
        if not is_differentiable(wanted) or argument.dtype != wanted or argument.size != 1:
            is_float = scalar_of(wanted).is_float
            hint = "an array of one element of that type would do"
            if not is_float:
                hint = f"pass its value, or take {self.name}: array[{wanted}], and read {self.name}[0]"
            is_value = argument.size == 1 and not isinstance(argument.dtype, Struct)
            if is_float and is_value and shape_of(argument.dtype) == shape_of(wanted):
                hint = f"write .astype(kl.{wanted}) here, whose gradient follows"
                if scalar_of(wanted) == float64:
                    given = "numpy.float64(x)" if wanted == float64 else f"kl.{wanted}(...)"
                    hint += f"; or, with all digits, {given} as the argument of a transform"
            raise self.wrong(f"an array of {argument.size} {argument.dtype}", hint, "type")
        value = argument.host().reshape(shape_of(wanted))
        if isinstance(wanted, Scalar):
            return Reference(argument), self._number(value.item(), wanted)
        return Reference(argument), self._components(value, wanted)

    def _number(self, argument: Any, wanted: Scalar) -> bytes:
        value = untraced(argument)
        value = value.item() if isinstance(value, np.generic) else value
        if not isinstance(value, (int, float) if wanted.is_float else int):
            raise self.wrong(described(argument, by_shape=True), _number_hint(argument, wanted), "type")
        is_large = not abs(value) <= LARGEST
        shown = "an int of so many digits" if isinstance(value, int) and is_large else str(argument)
        if wanted.is_float and (is_large or wanted.bits < 32):
            if overflows(value, wanted.dtype):
                hint = f"{wanted} holds numbers up to {largest(wanted.dtype):.3g}; infinity is kl.inf"
                raise self.wrong(shown, hint, "range")
            return rounded(np.float64(value), wanted.dtype).tobytes().ljust(8, b"\0")
        try:
            return struct.pack(_FORMATS[wanted.name], value)
        except (struct.error, OverflowError):
            limits = np.iinfo(wanted.dtype)
            hint = f"{wanted} holds {limits.min} to {limits.max}"
            raise self.wrong(shown, hint, "range") from None

    def _components(self, argument: Any, wanted: Value) -> bytes:
        shape, scalar = shape_of(wanted), scalar_of(wanted)
        if type_of(argument) == wanted and not scalar.flavor and (scalar.is_int or scalar.bits >= 32):
            return _packer(scalar.name, size_of(wanted))(*np.asarray(argument).ravel().tolist())
        refuse_mask(argument)
        try:
            values = np.asarray(untraced(argument))
        except (TypeError, ValueError):
            values = np.empty(0)
        if values.shape not in (shape, (size_of(wanted),)):
            hint = f"pass kl.{wanted}(...), a tuple or a NumPy array of shape {shape}"
            raise self.wrong(described(argument, by_shape=True), hint, "shape")
        if values.dtype.kind in "SU" or (scalar.is_int and values.dtype.kind == "f"):
            values = np.asarray(argument, object)  # each component as it was given
        return b"".join(self._number(component, scalar) for component in values.reshape(-1).tolist())


@cache
def _packer(scalar: str, count: int) -> Callable[..., bytes]:
    """What packs so many numbers of a scalar type, each into a slot."""
    return struct.Struct("=" + _FORMATS[scalar] * count).pack


def parameters(kernel: str, params: Sequence[Var]) -> tuple[Parameter, ...]:
    result = []
    for var in params:
        type = array_type(var.type.elem, var.type.ndim) if isinstance(var.type, Array) else var.type
        result.append(Parameter(kernel, var.hint, type, var.span))
    return tuple(result)


def _converted(source: array, wanted: Array, name: str) -> str:
    """What makes an array of the wanted elements, with gradients where it can; "" where nothing does."""
    scalar, components = scalar_of(wanted.elem), shape_of(wanted.elem)
    if shape_of(source.dtype) == components:
        return f"{name}.astype(kl.{wanted.elem})"
    if isinstance(source.dtype, Scalar) and source.shape[wanted.ndim :] == components:
        same = name if source.dtype == scalar else f"{name}.astype(kl.{scalar})"
        return f"{same}.view(kl.{wanted.elem})"
    fits = isinstance(source.dtype, Scalar) and source.ndim and source.shape[-1] % math.prod(components) == 0
    return f"kl.array({name}, dtype=kl.{wanted.elem})" if fits else ""


def wrong_count(
    kernel: str, params: Sequence[Parameter | Formal], arguments: Sequence[Any], span: Span
) -> LaunchError:
    """The error of a launch with more or fewer arguments than the kernel has parameters."""
    count = len(arguments)
    message = f"kernel `{kernel}` takes {counted(len(params), 'argument')}, not {count}"
    hint = f"its signature is {kernel}({', '.join(f'{p.name}: {p.type}' for p in params)})"
    if count < len(params):
        message, span = f"{message}; `{params[count].name}` is missing", params[count].span
    given, extra = {id(one) for one in arguments[: len(params)]}, arguments[len(params) :]
    if extra and all(isinstance(one, array) and id(one) in given for one in extra):
        hint = f"{called(extra[0])} is there twice: what is read and changed is given once, as an input"
    return LaunchError.of(message, "count", hint, span)


def _expected(type: Value | Array) -> str:
    if not isinstance(type, Array):
        return f"{'an' if str(type).startswith('int') else 'a'} {type}"
    return f"an array of {type.elem} with {counted(type.ndim, 'dimension')}"


def _number_hint(argument: Any, wanted: Scalar) -> str:
    if isinstance(argument, float | np.floating):
        return "write int(...) around it to drop the fraction"
    if isinstance(argument, np.ndarray):
        return "pass one of its elements"
    return f"pass a {'float' if wanted.is_float else 'int'}"


# --------------------------------------------------------------------------------------------------- calling


Loaded = KernelDefinition | GenericKernel


def ordered(kernel: Loaded, positional: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """All arguments in order; missing ones at the end are left to the check of their number.

    Raises LaunchError for a name that the kernel does not have or that got a value already, and for a
    parameter without a value before one that has one.
    """
    arguments = list(positional)
    if not named and (not kernel.defaults or len(arguments) >= len(kernel.names)):
        return arguments
    rest = kernel.names[len(arguments) :]
    for name in named:
        if name in rest:
            continue
        if name in kernel.names:
            message, hint = f"kernel `{kernel.name}` gets two values for `{name}`", "leave one of them out"
            raise _error(kernel, message, hint)
        listed = ", ".join(kernel.names)
        hint = near(name, kernel.names, f"its parameters are {listed}")
        if name in ("inputs", "outputs", "dim", "device", "stream", "block_dim"):  # those of `launch`
            own = f", {name}=..." if name in ("device", "stream", "block_dim") else ""
            hint = f"write {kernel.name}[n]({listed}), or kl.launch({kernel.name}, dim=n, inputs=[...]{own})"
        raise _error(kernel, f"kernel `{kernel.name}` has no parameter `{name}`", hint)
    values = {**kernel.defaults, **named}
    for position, name in enumerate(rest):
        if name in values:
            arguments.append(values[name])
        elif any(later in values for later in rest[position:]):
            hint = "pass it by position or name"
            raise _error(kernel, f"kernel `{kernel.name}` needs a value for `{name}`", hint)
        else:
            break
    return arguments


def _error(kernel: Loaded, message: str, hint: str) -> LaunchError:
    return LaunchError.of(message, "count", hint, kernel.span)


# ------------------------------------------------------------------------------------------------- fast pack


Slots = Callable[[Sequence[Any], bytes], list[bytes] | None]
Memories = Callable[[Sequence[Any]], list[Allocation]]
Marks = Callable[[Sequence[Allocation]], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Straight:
    """The functions of one kernel.

    `slots` gives the packed arguments behind those of the grid, None unless all arguments are of the usual
    kind and can be written where the kernel writes; `memories` the allocations of the arrays among the
    arguments; `wanted` and `versions`, of these, whether each requires gradients and how often it was
    written.
    """

    slots: Slots
    memories: Memories
    wanted: Marks
    versions: Marks


def straight(parameters: Sequence[Parameter], written: Sequence[int]) -> Straight:
    """The functions of a kernel with these parameters, some of which it writes, by position."""
    arrays = [i for i, parameter in enumerate(parameters) if isinstance(parameter.type, Array)]
    namespace: dict[str, Any] = {"array": array}
    text = [
        *_slots(parameters, written, namespace),
        "def memories(arguments):",
        f"    return [{', '.join(f'arguments[{i}].allocation' for i in arrays)}]",
        *_marks("wanted", "requires_grad", len(arrays)),
        *_marks("versions", "version", len(arrays)),
    ]
    exec("\n".join(text), namespace)  # made of numbers alone: no word of the user's is in it
    return Straight(namespace["slots"], namespace["memories"], namespace["wanted"], namespace["versions"])


def _slots(parameters: Sequence[Parameter], written: Sequence[int], namespace: dict[str, Any]) -> list[str]:
    # An attribute of an array takes six times as long as one of memory: its class has `__getattr__`.
    conditions, packed = ["True"], ["grid"]
    for i, parameter in enumerate(parameters):
        if isinstance(parameter.type, Array):
            namespace[f"type{i}"] = parameter.type
            conditions += [f"type(a{i}) is array", f"a{i}.type is type{i}"]
            packed.append(f"a{i}.packed")
            continue
        quick = parameter.quick
        if quick is None:
            return ["def slots(arguments, grid):", "    return None"]
        namespace[f"kind{i}"], namespace[f"pack{i}"] = quick.kind, quick.pack
        conditions += [f"type(a{i}) is kind{i}", f"{quick.low!r} <= a{i} <= {quick.high!r}"]
        packed.append(f"pack{i}(a{i})")
    for i in written:
        conditions += [f"(memory := a{i}.allocation).writable", "not memory.folded"]
    return [
        "def slots(arguments, grid):",
        f"    if len(arguments) != {len(parameters)}:",
        "        return None",
        f"    [{', '.join(f'a{i}' for i in range(len(parameters)))}] = arguments",
        f"    if {' and '.join(conditions)}:",
        f"        return [{', '.join(packed)}]",
        "    return None",
    ]


def _marks(name: str, attribute: str, count: int) -> list[str]:
    items = "".join(f"memories[{k}].{attribute}, " for k in range(count))
    return [f"def {name}(memories):", f"    return ({items})"]


Formals = tuple[Formal, ...]


LateSums = tuple[tuple[int, int, Diagnostic], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The facts of a kernel that a launch needs: parameters, types, positions of some, rank.

    `quick` packs plain numbers, `straight` usual arguments.  `written` are the arrays whose elements the
    kernel changes, `read` those that it loads, `read_in_text` also those whose elements its text loads and
    does not use.  `of_floats` says of each array whether it is one of floats, and `of_inputs` whether the
    kernel leaves it as it is besides.  `numbers` are the floats and vectors for which a one-element array may
    stand.  `coordinates` counts the thread indices that it unpacks.  `formals` are the parameters as written,
    where a struct is among them: all else counts its leaves.  `constants` are what it captured, where a
    launch is to look whether that has changed, and `origins` what the host took to make what it captured.
    `late_sums` are pairs of arrays that may not share memory, each with the error otherwise, `lost_sums` the
    warnings of a launch of several threads.  `check` is what the kernel's options say of checks.
    """

    parameters: tuple[Parameter, ...]
    types: tuple[Type, ...]
    quick: tuple[Quick | None, ...]
    straight: Straight
    of_floats: tuple[bool, ...]
    of_inputs: tuple[bool, ...]
    numbers: tuple[int, ...]
    read: tuple[int, ...]
    read_in_text: tuple[int, ...]
    written: tuple[int, ...]
    coordinates: int
    formals: Formals | None
    constants: Constants | None
    origins: Origins
    late_sums: LateSums
    lost_sums: tuple[Diagnostic, ...]
    check: Check | None
