"""Settings, as attributes of this module: ``kl.config.verify_autograd_array_access = True``.

What the main thread sets holds in all threads that have set nothing themselves.

verify_autograd_array_access    tapes warn of overwritten arrays and go on with the new values, instead of
                                saving the old ones (`Tape(overwrite=...)` says so for one tape)
loop_memory                     how many bytes a thread of an adjoint may save for its loops, 64 MiB at first;
                                beyond that loops keep checkpoints and run again between them; 0 is any number
kept_memory                     how many bytes a launch may take for what it overwrites and gradients need,
                                and a tape for what later launches overwrite: half of what is free (None) at
                                first; beyond that a launch ends; 0 is any
enable_backward                 whether kernels that do not say so themselves have a backward pass
check                           "full" runs each launch on copies first: an error names races, reads of what
                                was never written, and the line where a value turns NaN or infinite; a warning
                                says where a launch leaves elements out; `backward` looks at its gradients.  A
                                launch then takes several times as long.  None, at first, checks nothing
check_races                     each launch first looks for elements at which threads meet, one of them by a
                                plain store: KernelRaceError names the lines and two threads.  A launch then
                                takes several times as long, where its text is no proof that it has none
deterministic                   sums on a CUDA device come out the same to the last bit in every run: threads
                                that add to the same elements run one after another, which is slow; on the CPU
                                it is always so, and with it launches of any size give the same, on any
                                processor: none runs vector code
quick_builds                    a kernel for a CUDA device is first built with little optimisation, and again
                                with all of it in the background; then launches run that, with the same
                                results.  False builds it once, which takes longer before the first launch
idle_builds                     kernels of a %%kernel cell, and their adjoints, are built while a notebook
                                waits for the next cell.  False, or live_tapes = False, leaves it to launches
vector_code                     large launches on the CPU run 8 or 16 threads at a time: + - * / and sqrt give
                                the same to the last bit, other functions of float32 are within 4 units in
                                the last place, and sums are taken in another order
threads                         how many cores a launch on the CPU may take: None, at first, is all that the
                                process may use, 1 is one.  Large launches whose threads provably do not meet
                                run on several; results are the same to the last bit for any number of them
print_launches                  each launch prints its kernel, its grid and the line it stands in
live_tapes                      notebooks show tapes and `kl.live` as widgets that follow a cell.  False shows
                                pictures and tables that need no script: for notebooks that become pages.  The
                                environment variable KERNELAB_LIVE_TAPES=0 does the same from outside
negative_index                  "warn": a computed index below zero counts from the end, as in Python, and the
                                first launch in which a line has one warns of the line; "wrap": it counts from
                                the end without a warning; "error": such a launch ends with KernelIndexError.
                                A number that is written out, as in `x[-1]`, counts from the end always
kernel_cache_dir                the folder that keeps built kernels, None for the usual one

The settings in `UNUSED` can be read and set, so that programs for Warp run; it says why each of them changes
nothing here.
"""

import os
import sys
from dataclasses import fields
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from kernelab.backend.common.build_cache import VARIABLE
from kernelab.errors import KernelAttributeError, KernelValueError, near
from kernelab.frontend.definitions.definitions import is_check
from kernelab.settings import NegativeIndex, Settings, change_settings, settings
from kernelab.warp.names import DEFAULTS, UNUSED

_BYTES = {
    "loop_memory": "or 0 for any number",
    "kept_memory": "0 for any number, or None for half of what is free",
}
"""The settings that are numbers of bytes, and what else they can be."""


def _checked(name: str, wanted: Any) -> object:
    """The value of a setting: a number of bytes, what is checked, or whether something is wanted."""
    if name == "check":
        if not is_check(wanted):
            message = f'check is "full", or None for no checks, not {wanted!r}'
            raise KernelValueError.of(message, "setting", 'write kl.config.check = "full"')
        return wanted
    if name == "negative_index":
        if wanted not in get_args(NegativeIndex):
            message = f'negative_index is "warn", "wrap" or "error", not {wanted!r}'
            raise KernelValueError.of(message, "setting")
        return wanted
    if name == "threads":
        is_number = isinstance(wanted, int | np.integer) and not isinstance(wanted, bool) and wanted > 0
        if wanted is not None and not is_number:
            message = f"threads is a number of cores from 1, or None for all of them, not {wanted!r}"
            raise KernelValueError.of(message, "setting", "write kl.config.threads = 1")
        return wanted if wanted is None else int(wanted)
    if name not in _BYTES:
        if isinstance(wanted, str):  # "no" would be true
            message = f"{name} is True or False, not the text {wanted!r}"
            raise KernelValueError.of(message, "setting", f"write kl.config.{name} = False")
        return bool(wanted)
    if wanted is None and name == "kept_memory":
        return None
    if not isinstance(wanted, int | np.integer) or isinstance(wanted, bool) or wanted < 0:
        message = f"{name} is a number of bytes, {_BYTES[name]}, not {wanted!r}"
        raise KernelValueError.of(message, "setting", "write 64 * 2**20 for 64 MiB")
    return int(wanted)


_FIELDS = tuple(field.name for field in fields(Settings) if field.name != "overwrite")
_ACTING = ("verify_autograd_array_access", *_FIELDS, "kernel_cache_dir")


class _Config(ModuleType):
    """This module, whose attributes are the settings."""

    if TYPE_CHECKING:
        loop_memory: int
        kept_memory: int | None
        enable_backward: bool
        check: Literal["full"] | None
        check_races: bool
        deterministic: bool
        quick_builds: bool
        idle_builds: bool
        vector_code: bool
        threads: int | None
        print_launches: bool
        live_tapes: bool

    def __reduce__(self) -> tuple[Any, ...]:
        return import_module, (self.__name__,)

    @property
    def verify_autograd_array_access(self) -> bool:
        return settings().overwrite == "warn"

    @verify_autograd_array_access.setter
    def verify_autograd_array_access(self, wanted: bool) -> None:
        is_wanted = _checked("verify_autograd_array_access", wanted)
        change_settings(overwrite="warn" if is_wanted else "save")

    @property
    def kernel_cache_dir(self) -> str | None:
        return os.environ.get(VARIABLE) or None

    @kernel_cache_dir.setter
    def kernel_cache_dir(self, folder: Any) -> None:
        if folder is None:
            os.environ.pop(VARIABLE, None)
        elif isinstance(folder, str | os.PathLike):
            os.environ[VARIABLE] = os.fspath(folder)
        else:
            message = f"kernel_cache_dir is the path of a folder, or None, not {folder!r}"
            raise KernelValueError.of(message, "config")

    @property
    def version(self) -> str:
        """The version of kernelab."""
        return str(sys.modules["kernelab"].__version__)

    def __getattr__(self, name: str) -> object:
        if name in DEFAULTS:
            return DEFAULTS[name]
        raise _unknown(name)

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_") and name not in _settings():
            raise _unknown(name)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return _settings()

    def __repr__(self) -> str:
        """The settings that change something, each as a line that would set it."""
        lines = [f"kl.config.{name} = {getattr(self, name)!r}" for name in sorted(_ACTING)]
        lines.append("help(kl.config) says what they mean, kl.config.UNUSED which change nothing")
        return "\n".join(lines)


def _field(name: str) -> property:
    """The property of a field of `Settings`; pytest's monkeypatch deletes what it set on plain attributes."""

    def change(_: _Config, wanted: object) -> None:
        change_settings(**{name: _checked(name, wanted)})

    return property(lambda _: getattr(settings(), name), change)


for _name in _FIELDS:
    setattr(_Config, _name, _field(_name))


def _settings() -> list[str]:
    return sorted({*_ACTING, *DEFAULTS, "UNUSED", "version"})


def _unknown(name: str) -> KernelAttributeError:
    hint = near(name, _settings(), f"there is {', '.join(_ACTING)}")
    return KernelAttributeError.of_name(f"there is no setting {name}", hint, name)


__all__ = ["UNUSED"]
sys.modules[__name__].__class__ = _Config
