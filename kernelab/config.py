"""Settings, as attributes of this module: ``kl.config.verify_autograd_array_access = True``.

verify_autograd_array_access    tapes warn of overwritten arrays and go on with the new values, as Warp's do,
                                instead of saving the old ones (`Tape(overwrite=...)` says so for one tape)
loop_memory                     how many bytes a thread of an adjoint may save for its loops, 64 MiB at first;
                                beyond that loops keep checkpoints and run again between them; 0 is any number
kept_memory                     how many bytes a launch may take for what it overwrites and gradients need:
                                half of what is free (None) at first; beyond that it ends; 0 is any
enable_backward                 whether kernels that do not say so themselves have a backward pass
check_races                     each launch first looks for elements at which threads meet, one of them by a
                                plain store: KernelRaceError names the lines and two threads.  A launch then
                                takes several times as long, where its text is no proof that it has none
deterministic                   sums on a CUDA device come out the same to the last bit in every run: threads
                                that add to the same elements run one after another, which is slow; on the CPU
                                it is always so
quick_builds                    a kernel for a CUDA device is first built with little optimisation, and again
                                with all of it in the background; then launches run that, with the same
                                results.  False builds it once, which takes longer before the first launch
print_launches                  each launch prints its kernel, its grid and the line it stands in
kernel_cache_dir                the folder that keeps built kernels, None for the usual one

The other settings that Warp has can be read and set, so that programs which do so run; `UNUSED` says why
each of them changes nothing here.
"""

import difflib
import os
import sys
from types import ModuleType
from typing import Any

import numpy as np

from kernelab.autodiff.hazards import DEFAULT_POLICY
from kernelab.backend.cache import VARIABLE
from kernelab.backend.launch_config import DETERMINISTIC, QUICK
from kernelab.errors import Diagnostic, KernelAttributeError, KernelValueError
from kernelab.runtime.races import CHECK_RACES
from kernelab.runtime.settings import ENABLE_BACKWARD, PRINT_LAUNCHES
from kernelab.runtime.storage import KEPT_MEMORY, LOOP_MEMORY

_ALWAYS = "it is always so here"
_BUILDS = "each kernel is built by itself, when it is first launched"
_DEVICE = "a kernel is built for the GPU that it is launched on"
_NO_LOG = "kernelab writes no log: it speaks by errors and warnings"
_NO_TILES = "there are no tiles"
_UNROLLING = "loops are differentiated as loops, whether they are unrolled or not"

_GIVEN: dict[str, tuple[object, str]] = {
    "mode": ("release", "indices are always checked"),
    "verify_fp": (False, "ask a tape: tape.backward(check_finite=True)"),
    "verify_cuda": (False, "what goes wrong on a device is told where the host next waits"),
    "max_unroll": (16, _UNROLLING),
    "optimization_level": (None, _BUILDS),
    "cache_kernels": (True, _ALWAYS),
    "verbose": (False, _NO_LOG),
    "verbose_warnings": (False, _NO_LOG),
    "quiet": (False, _NO_LOG),
    "log_level": (20, _NO_LOG),
    "enable_vector_component_overwrites": (True, _ALWAYS),
    "legacy_scalar_return_types": (False, "components of values on the host are NumPy's numbers"),
    "lineinfo": (False, _ALWAYS),
    "line_directives": (True, _ALWAYS),
    "compile_time_trace": (False, _BUILDS),
    "use_precompiled_headers": (True, "generated text includes no header"),
    "legacy_cpu_linker": (False, _BUILDS),
    "cpu_compiler_flags": (None, _BUILDS),
    "load_module_max_workers": (0, _BUILDS),
    "enable_cpu_blocks": (False, "threads of the CPU run one after another"),
    "default_grid_stride": (True, _ALWAYS),
    "fast_math": (False, "results are the same with every compiler"),
    "cuda_output": (None, _DEVICE),
    "ptx_target_arch": (None, _DEVICE),
    "cuda_arch_suffix": (None, _DEVICE),
    "llvm_cuda": (False, "NVRTC builds kernels for CUDA devices"),
    "enable_mathdx_gemm": (True, _NO_TILES),
    "enable_mathdx_solver": (True, _NO_TILES),
    "enable_mathdx_fft": (True, _NO_TILES),
    "enable_graph_capture_module_load_by_default": (True, "what is captured has been built before"),
    "enable_mempools_at_init": (True, _ALWAYS),
    "enable_tiles_in_stack_memory": (True, _NO_TILES),
    "track_memory": (False, "memory is freed with its last array"),
    "deterministic_max_records": (0, "nothing is recorded for it"),
    "deterministic_debug": (False, "nothing is recorded for it"),
    "launch_array_access_mode": (None, "tapes know from a kernel what it reads"),
}

UNUSED: dict[str, str] = {name: why for name, (_, why) in _GIVEN.items()}
"""The settings of Warp's that change nothing here, and why."""


class _Config(ModuleType):
    @property
    def verify_autograd_array_access(self) -> bool:
        return DEFAULT_POLICY.get() == "warn"

    @verify_autograd_array_access.setter
    def verify_autograd_array_access(self, wanted: bool) -> None:
        DEFAULT_POLICY.set("warn" if wanted else "save")

    @property
    def loop_memory(self) -> int:
        return LOOP_MEMORY.get()

    @loop_memory.setter
    def loop_memory(self, wanted: int) -> None:
        if not isinstance(wanted, int | np.integer) or isinstance(wanted, bool) or wanted < 0:
            raise _no_bytes(f"loop_memory is a number of bytes, or 0 for any number, not {wanted!r}")
        LOOP_MEMORY.set(int(wanted))

    @property
    def kept_memory(self) -> int | None:
        return KEPT_MEMORY.get()

    @kept_memory.setter
    def kept_memory(self, wanted: int | None) -> None:
        is_number = isinstance(wanted, int | np.integer) and not isinstance(wanted, bool)
        if wanted is not None and (not is_number or wanted < 0):
            told = "kept_memory is a number of bytes, 0 for any number, or None for half of what is free"
            raise _no_bytes(f"{told}, not {wanted!r}")
        KEPT_MEMORY.set(None if wanted is None else int(wanted))

    @property
    def enable_backward(self) -> bool:
        return ENABLE_BACKWARD.get()

    @enable_backward.setter
    def enable_backward(self, wanted: bool) -> None:
        ENABLE_BACKWARD.set(bool(wanted))

    @property
    def check_races(self) -> bool:
        return CHECK_RACES.get()

    @check_races.setter
    def check_races(self, wanted: bool) -> None:
        CHECK_RACES.set(bool(wanted))

    @property
    def deterministic(self) -> bool:
        return DETERMINISTIC.get()

    @deterministic.setter
    def deterministic(self, wanted: bool) -> None:
        DETERMINISTIC.set(bool(wanted))

    @property
    def quick_builds(self) -> bool:
        return QUICK.get()

    @quick_builds.setter
    def quick_builds(self, wanted: bool) -> None:
        QUICK.set(bool(wanted))

    @property
    def print_launches(self) -> bool:
        return PRINT_LAUNCHES.get()

    @print_launches.setter
    def print_launches(self, wanted: bool) -> None:
        PRINT_LAUNCHES.set(bool(wanted))

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
            raise KernelValueError(Diagnostic(message, code="config"))

    @property
    def version(self) -> str:
        """The version of kernelab."""
        return str(sys.modules["kernelab"].__version__)

    def __getattr__(self, name: str) -> object:
        raise _unknown(name)

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_") and name not in _settings():
            raise _unknown(name)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return _settings()

    def __repr__(self) -> str:
        """The settings that change something, each as a line that would set it."""
        lines = [f"kl.config.{name} = {getattr(self, name)!r}" for name in sorted(_acting())]
        return "\n".join(
            [*lines, "help(kl.config) says what they mean, kl.config.UNUSED which change nothing"]
        )


def _acting() -> list[str]:
    """The settings that change something."""
    return [name for name in vars(_Config) if not name.startswith("_") and name != "version"]


def _settings() -> list[str]:
    return sorted({*_acting(), *_GIVEN, "UNUSED", "version"})


def _no_bytes(message: str) -> KernelValueError:
    return KernelValueError(Diagnostic(message, code="setting", hint="write 64 * 2**20 for 64 MiB"))


def _unknown(name: str) -> KernelAttributeError:
    close = difflib.get_close_matches(name, _settings(), 1)
    hint = f"did you mean {close[0]}?" if close else f"there is {', '.join(_acting())}"
    return KernelAttributeError.of(f"there is no setting {name}", hint, name)


for _name, (_value, _) in _GIVEN.items():
    globals()[_name] = _value
sys.modules[__name__].__class__ = _Config
