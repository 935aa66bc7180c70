"""Devices: where arrays live and kernels run, and which backend serves them."""

import os
from dataclasses import dataclass

from kernelab.backend import base
from kernelab.errors import Diagnostic, LaunchError

VARIABLE = "KERNELAB_BACKEND"


@dataclass(frozen=True, slots=True)
class Device:
    """A device by its name; `cpu` is the only one so far."""

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
        """The name, as programs written for Warp ask for it."""
        return self.name

    @property
    def backend(self) -> base.Backend:
        """What builds and runs kernels here: the C++ compiler, or the interpreter where there is none.

        ``KERNELAB_BACKEND=interp`` asks for the interpreter.  Raises BuildError for another name.
        """
        return base.get(os.environ.get(VARIABLE, "").strip() or base.default())


CPU = Device("cpu")


def get_device(device: Device | str | None = None) -> Device:
    """The device of that name; the CPU for None.  Raises LaunchError for one that is not there."""
    if device is None or device is CPU:
        return CPU
    name = str(device)
    if name == "cpu" or name.startswith("cpu:"):
        return CPU
    if name.startswith("cuda"):
        message = f"there is no device {name!r}: this version of kernelab runs kernels on the CPU only"
        raise LaunchError(Diagnostic(message, hint='use device="cpu", or leave device out', code="device"))
    hint = 'the device is "cpu"'
    raise LaunchError(Diagnostic(f"there is no device {name!r}", hint=hint, code="device"))


def get_devices() -> list[Device]:
    """Every device that kernels can run on."""
    return [CPU]
