"""DLPack capsules: of device memory, both ways, and of the CPU's as NumPy takes them.

NumPy speaks DLPack for the memory of the CPU; of a device it knows nothing.  The layout is that of DLPack's
header, version 0, and of brain floats also version 1: strides and offsets there count elements.  Knows
ctypes; must not know arrays.
"""

import ctypes
import math
import sys
from typing import Any

from kernelab.data_classes import dataclass
from kernelab.errors import KernelTypeError
from kernelab.lang.types import SCALARS, Scalar

CPU, CUDA, MANAGED = 1, 2, 13
"""Kinds of devices: kDLCPU, kDLCUDA and kDLCUDAManaged."""

_NAME, _USED, _VERSIONED = b"dltensor", b"used_dltensor", b"dltensor_versioned"
_CODES = {"int": 0, "uint": 1, "float": 2, "bool": 6}
_BRAIN = 4


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_api = ctypes.pythonapi
_new = _api.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_rename = _api.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_pointer = _api.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_is_valid = _api.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


@dataclass(frozen=True, slots=True)
class Described:
    """Elements of a device that `owner` keeps alive; strides in bytes, `ordinal` the number of the device."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    scalar: Scalar
    ordinal: int
    owner: object


_held: dict[int, tuple[object, ...]] = {}
"""What capsules describe, by the address of the description, until its holder releases it."""


_waiting: dict[int, Any] = {}
"""Capsules that nobody has taken yet, by the same address."""


_let_go = _Deleter(lambda address: _held.pop(address, None))


def sweep() -> None:
    """Forget what capsules describe that were dropped without having been taken.

    A capsule could say so itself when it goes, but that may be while an exception is on its way, and then no
    Python code can run.
    """
    for address in list(_waiting):
        if not _is_valid(_waiting[address], _NAME):
            del _waiting[address]
        elif sys.getrefcount(_waiting[address]) == 2:  # ours, and that of the question
            del _waiting[address], _held[address]


def capsule_of(described: Described) -> Any:
    """A capsule that describes elements, which live as long as it, or the array made of it, needs them.

    Raises BufferError for strides that are not a whole number of elements, for which DLPack has no words.
    """
    size = described.scalar.dtype.itemsize
    if any(stride % size for stride in described.strides):
        raise BufferError("DLPack cannot describe elements that stand at parts of their size: copy them")
    sweep()
    ndim = len(described.shape)
    extents = (ctypes.c_int64 * max(ndim, 1))(*described.shape)
    steps = (ctypes.c_int64 * max(ndim, 1))(*[stride // size for stride in described.strides])
    managed = _Managed()
    scalar = described.scalar
    code = _BRAIN if scalar.flavor else _CODES[scalar.kind]
    managed.tensor = _Tensor(
        described.address, CUDA, described.ordinal, ndim, code, 8 * size, 1, extents, steps, 0
    )
    managed.deleter = ctypes.cast(_let_go, ctypes.c_void_p)
    address = ctypes.addressof(managed)
    _held[address] = (managed, extents, steps, described.owner)
    capsule = _waiting[address] = _new(address, _NAME, None)
    return capsule


class _Taken:
    """A tensor imported from another library, which is released at the end."""

    def __init__(self, managed: _Managed) -> None:
        self._managed = managed

    def __del__(self) -> None:
        if self._managed.deleter:
            _Deleter(self._managed.deleter)(ctypes.addressof(self._managed))


def taken(capsule: Any) -> Described:
    """Import the tensor of a capsule, which consumes the capsule.

    Raises KernelTypeError for one that was used before, is of no CUDA device, or holds numbers of another
    type than there is here.
    """
    if not _is_valid(capsule, _NAME):
        message = "this DLPack capsule was used before, or is of a kind that is not known here"
        raise KernelTypeError.of(message, "dlpack", "each capsule is used once: pass the array itself")
    managed = _Managed.from_address(_pointer(capsule, _NAME))
    tensor = managed.tensor
    if tensor.device_type not in (CUDA, MANAGED):
        message = f"this DLPack capsule is of a device of kind {tensor.device_type}, not of a CUDA device"
        raise KernelTypeError.of(message, "dlpack", "copy it to the CPU or a CUDA device")
    scalar = _scalar(tensor)
    size, shape = scalar.dtype.itemsize, tuple(tensor.shape[: tensor.ndim])
    if tensor.strides:
        strides = tuple(stride * size for stride in tensor.strides[: tensor.ndim])
    else:
        strides = tuple(size * math.prod(shape[axis + 1 :]) for axis in range(tensor.ndim))
    _rename(capsule, _USED)
    sweep()
    address = (tensor.data or 0) + tensor.byte_offset
    return Described(address, shape, strides, scalar, tensor.device_id, _Taken(managed))


def is_of_the_cpu(capsule: Any) -> bool:
    """Whether a capsule describes memory of the CPU, or is of a kind that NumPy alone may know."""
    if not _is_valid(capsule, _NAME):
        return not _is_valid(capsule, _USED)
    return bool(_Managed.from_address(_pointer(capsule, _NAME)).tensor.device_type == CPU)


def described_as_brain(capsule: Any, brain: bool) -> Any:
    """A capsule of numbers of 16 bits, described as brain floats, or as their bits, which NumPy knows."""
    name, kind = (_VERSIONED, _Versioned) if _is_valid(capsule, _VERSIONED) else (_NAME, _Managed)
    kind.from_address(_pointer(capsule, name)).tensor.code = _BRAIN if brain else _CODES["uint"]
    return capsule


def is_brain(source: Any) -> bool:
    """Whether an array of another library, or a capsule that is not used, holds brain floats."""
    if type(source).__name__ != "PyCapsule":
        return str(getattr(source, "dtype", "")).endswith("bfloat16")
    is_known = _is_valid(source, _NAME)
    return bool(is_known and _Managed.from_address(_pointer(source, _NAME)).tensor.code == _BRAIN)


def _scalar(tensor: _Tensor) -> Scalar:
    for scalar in SCALARS:
        code = _BRAIN if scalar.flavor else _CODES[scalar.kind]
        if (code, scalar.dtype.itemsize * 8, 1) == (tensor.code, tensor.bits, tensor.lanes):
            return scalar
    message = f"there is no type for DLPack's numbers of kind {tensor.code} with {tensor.bits} bits"
    lanes = f", {tensor.lanes} together" if tensor.lanes != 1 else ""
    raise KernelTypeError.of(message + lanes, "dlpack", "convert them on the other side")


class Capsule:
    """A DLPack capsule as an array that hands it over; NumPy looks inside for the device that it is on."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule
        self.dtype = "bfloat16" if is_brain(capsule) else ""

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0


class Bits:
    """Brain floats of another library as an array of their bits, in the DLPack that NumPy asks for."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __dlpack__(self, **options: Any) -> Any:
        return described_as_brain(self._source.__dlpack__(**options), brain=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0
