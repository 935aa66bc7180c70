"""Blocks of host code that are timed, named on a tape, or run on a device: `ScopedTimer`, `ScopedDevice`."""

import sys
import time
from contextvars import ContextVar, Token
from typing import Any

from kernelab.guidance.bad_calls import telling
from kernelab.runtime.context.recorder import RECORDER, Recorder
from kernelab.runtime.memory.device import CPU, DEFAULT, Device, get_cuda_devices, get_device
from kernelab.runtime.memory.spaces import OPEN

_DEPTH: ContextVar[int] = ContextVar("kernelab timer depth", default=0)


class ScopedTimer:
    """Time a ``with`` block, print how long it took, and name it on the tape that is recording.

    `elapsed` holds the milliseconds afterwards, and `dict`, where given, gets them appended to a list under
    the name.  `detailed` profiles the block by function; `skip_tape` leaves the tape alone; nothing happens
    unless `active`.  `synchronize`, `use_nvtx`, `color` and `cuda_filter` have no effect on the CPU.
    """

    @telling()
    def __init__(
        self,
        name: str,
        active: bool = True,
        print: bool = True,
        detailed: bool = False,
        dict: dict[str, list[float]] | None = None,
        use_nvtx: bool = False,
        color: int | str = "rapids",
        synchronize: bool = False,
        cuda_filter: int = 0,
        skip_tape: bool = False,
    ) -> None:
        self.name = name
        self.active = active
        self.print = print
        self.elapsed = 0.0
        self.dict = dict
        self.skip_tape = skip_tape
        self._profile: Any = None
        if detailed:
            from cProfile import Profile  # which takes time to load, as below

            self._profile = Profile()
        self._recorder: Recorder | None = None
        self._began = 0.0

    def __enter__(self) -> "ScopedTimer":
        if not self.active:
            return self
        self._recorder = None if self.skip_tape else RECORDER.get()
        if self._recorder is not None:
            self._recorder.scope_begin(self.name)
        _DEPTH.set(_DEPTH.get() + 1)
        if self._profile is not None:
            self._profile.enable()
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.active:
            return
        self.elapsed = (time.perf_counter() - self._began) * 1000.0
        if self._profile is not None:
            self._profile.disable()
        _DEPTH.set(_DEPTH.get() - 1)
        if self._recorder is not None:
            self._recorder.scope_end()
        if self.dict is not None:
            self.dict.setdefault(self.name, []).append(self.elapsed)
        self._report()

    def _report(self) -> None:
        indent = "    " * _DEPTH.get()
        if self._profile is not None:
            from pstats import Stats

            Stats(self._profile, stream=sys.stdout).sort_stats("tottime").print_stats(20)
        if self.print:
            sys.stdout.write(f"{indent}{self.name} took {self.elapsed:.2f} ms\n")


class ScopedDevice:
    """Make a device the default for a ``with`` block: arrays that do not say where are made there.

    None keeps the default.  Raises LaunchError for a device that is not there.
    """

    def __init__(self, device: Device | str | None) -> None:
        self.device = get_device(device)
        self._tokens: list[Token[Device]] = []

    def __enter__(self) -> Device:
        self._tokens.append(DEFAULT.set(self.device))
        return self.device

    def __exit__(self, *_: object) -> None:
        DEFAULT.reset(self._tokens.pop())


def set_device(device: Device | str) -> None:
    """Make a device the default, where arrays are made that do not say where.

    Raises LaunchError for one that is not there.
    """
    DEFAULT.set(get_device(device))


def get_preferred_device() -> Device:
    """The device that a program had best run on: the first CUDA device, else the CPU."""
    return next(iter(get_cuda_devices()), CPU)


def synchronize() -> None:
    """Return when every stream of every device has come to its end; raises what went wrong in launches."""
    for space in OPEN.values():
        space.synchronize()


def is_cpu_available() -> bool:
    """Whether kernels can run on the CPU: always."""
    return True


def is_cuda_available() -> bool:
    """Whether kernels can run on a CUDA device."""
    return bool(get_cuda_devices())
