"""Devices: where arrays are allocated, and the backend that runs kernels there."""

import os
import re
from contextvars import ContextVar
from typing import Any

from kernelab.backend.common import backends
from kernelab.data_classes import dataclass
from kernelab.errors import LaunchError
from kernelab.guidance.missing_names import DEVICES, Answers
from kernelab.runtime.memory.memory import MemorySpace
from kernelab.runtime.memory.spaces import OPEN, Space

VARIABLE = "KERNELAB_BACKEND"


@dataclass(frozen=True, slots=True)
class Device(Answers):
    """A device by its name: ``cpu``, or ``cuda:0`` and so on."""

    NAMED = "a device"
    HINTS = DEVICES

    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def is_cpu(self) -> bool:
        return self.name == "cpu"

    @property
    def is_cuda(self) -> bool:
        return not self.is_cpu

    @property
    def alias(self) -> str:
        """The name, once more."""
        return self.name

    @property
    def ordinal(self) -> int:
        """The index of the CUDA device; -1 for the CPU."""
        return -1 if self.is_cpu else int(self.name.partition(":")[2])

    @property
    def arch(self) -> str:
        """The architecture that kernels are compiled for, such as ``sm_90``; "" for the CPU."""
        return "" if self.is_cpu else OPEN[self.name].driver.architecture

    @property
    def sm_count(self) -> int:
        """The number of multiprocessors of a CUDA device; 0 for the CPU."""
        return 0 if self.is_cpu else OPEN[self.name].driver.processors

    @property
    def is_capturing(self) -> bool:
        """Whether launches on it are being captured."""
        return self.is_cuda and OPEN[self.name].capture is not None

    @property
    def is_mempool_supported(self) -> bool:
        """Whether arrays on it come from a pool: those of the CPU do not."""
        return self.is_cuda

    is_mempool_enabled = is_mempool_supported

    @property
    def total_memory(self) -> int:
        """The memory of a CUDA device in bytes; 0 for the CPU, which is not asked."""
        return 0 if self.is_cpu else OPEN[self.name].driver.memory()[1]

    @property
    def free_memory(self) -> int:
        """The free memory of a CUDA device in bytes; 0 for the CPU."""
        return 0 if self.is_cpu else OPEN[self.name].driver.memory()[0]

    @property
    def space(self) -> Space | None:
        """The memory of a CUDA device; None for the CPU, whose memory is the host's."""
        return None if self.name == "cpu" else OPEN[self.name]

    @property
    def backend(self) -> backends.Backend:
        """The backend of the device: on the CPU the C++ compiler, or without one the interpreter.

        ``KERNELAB_BACKEND=interp`` asks for the interpreter.  Raises BuildError for another name.
        """
        if self.is_cuda:
            return OPEN[self.name].backend
        return backends.get(os.environ.get(VARIABLE, "").strip() or backends.default())


CPU = Device("cpu")

DEFAULT: ContextVar[Device] = ContextVar("kernelab device", default=CPU)
"""Where arrays are made that do not say where."""


def get_device(device: Device | str | None = None) -> Device:
    """The device of that name, ready to be used; the default one for None.

    Raises LaunchError for one that is not there, and says what is missing.
    """
    if device is None:
        return DEFAULT.get()
    if device is CPU:
        return CPU
    name = str(device)
    if name == "cpu" or name.startswith("cpu:"):
        return CPU
    if re.fullmatch(r"cuda(:\d+)?", name):
        return _cuda(int(name.partition(":")[2] or 0))
    hint = 'the devices are "cpu" and, with an NVIDIA GPU, "cuda", "cuda:1" and so on'
    argument: Any = device
    if isinstance(argument, bool):
        hint = f"write requires_grad={device}: by position this is the device"
    raise LaunchError.of(f"there is no device {name!r}", "device", hint)


def _cuda(ordinal: int) -> Device:
    name = f"cuda:{ordinal}"
    if name not in OPEN:
        from kernelab.backend.cuda.nvidia import open_driver  # which loads cuda-python

        OPEN[name] = Space(name, open_driver(ordinal))
    return Device(name)


def get_devices() -> list[Device]:
    """Every device that kernels can run on."""
    return [CPU, *get_cuda_devices()]


def get_cuda_devices() -> list[Device]:
    """The CUDA devices of this machine; none where cuda-python or the driver is missing."""
    from kernelab.backend.cuda.nvidia import count_devices

    opened = {int(name.partition(":")[2]) for name in OPEN}
    return [_cuda(ordinal) for ordinal in sorted(opened | set(range(count_devices())))]


def device_of(space: MemorySpace | None) -> Device:
    """The device whose memory it is."""
    return CPU if space is None else Device(space.name)
