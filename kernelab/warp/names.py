"""Names that programs written for Warp use: devices, modules, conditions of captured launches, aliases."""

import sys
from collections.abc import Callable, Mapping, MutableMapping
from enum import IntEnum
from typing import Any, TypeVar

from kernelab.backend.common.build_cache import clear
from kernelab.backend.cuda import nvidia, nvrtc
from kernelab.errors import (
    KernelError,
    KernelIndexError,
    KernelNameError,
    KernelTypeError,
    KernelValueError,
    LaunchError,
)
from kernelab.frontend.definitions.definitions import MODULE_DEFAULTS
from kernelab.lang.types import uint64
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import described
from kernelab.runtime.context.recorder import refusal
from kernelab.runtime.kernel.loading import NAMED_OPTIONS, Module, ModuleOptions, options_in, refuse_unknown
from kernelab.runtime.launch.scoped import Graph
from kernelab.runtime.memory.device import Device, get_cuda_devices, get_device
from kernelab.runtime.memory.spaces import OPEN
from kernelab.runtime.memory.streams import Stream

LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR = 10, 20, 30, 40
"""How much is logged, as ``config.log_level`` takes it: kernelab writes no log."""

Int = TypeVar("Int")
Float = TypeVar("Float")
Scalar = TypeVar("Scalar")
"""Annotations of functions and kernels that take numbers of several types, as `Any` does."""

DeviceLike = Device | str | None
"""The annotation of what names a device."""

handle = uint64
"""The number by which Warp names a mesh or a volume; here it is a number like others."""


class DeterministicMode(IntEnum):
    """How alike sums are from run to run: ``config.deterministic`` takes each but the first for True."""

    NOT_GUARANTEED = 0
    RUN_TO_RUN = 1
    GPU_TO_GPU = 2


WarpCodegenError = KernelError
WarpCodegenAttributeError = KernelError
WarpCodegenIndexError = KernelIndexError
WarpCodegenKeyError = KernelNameError
WarpCodegenTypeError = KernelTypeError
WarpCodegenValueError = KernelValueError


def init() -> None:
    """Do nothing: kernelab needs no start."""


def synchronize_device(device: Device | str | None = None) -> None:
    """Return when the launches on a device have finished; raises LaunchError for one that is not there."""
    space = get_device(device).space
    if space is not None:
        space.synchronize()


def is_device_available(device: Device | str | None) -> bool:
    """Whether there is a device of that name."""
    try:
        get_device(device)
    except KernelError:
        return False
    return True


def get_cuda_device_count() -> int:
    """The number of CUDA devices that kernels can run on."""
    return len(get_cuda_devices())


def get_cuda_device(ordinal: int | None = None) -> Device:
    """A CUDA device, the first one unless its number is given; raises LaunchError where there is none."""
    return get_device("cuda" if ordinal is None else f"cuda:{ordinal}")


def get_cuda_driver_version() -> tuple[int, int] | None:
    """The version of CUDA that the driver serves; None where there is no driver."""
    return nvidia.version()


def get_cuda_toolkit_version() -> tuple[int, int] | None:
    """The version of NVRTC, which compiles kernels; None where it is not installed."""
    if not nvrtc.is_installed():
        return None
    major, minor = nvrtc.version().split(".")
    return int(major), int(minor)


def get_cuda_supported_archs() -> list[int]:
    """The CUDA architectures that NVRTC compiles for, such as 90; none where it is not installed."""
    if not nvrtc.is_installed():
        return []
    return [int(name.removeprefix("sm_")) for name in nvrtc.architectures()]


def is_mempool_supported(device: Device | str | None = None) -> bool:
    """Whether a device has a memory pool: the CPU has none."""
    return bool(get_device(device).is_mempool_supported)


is_mempool_enabled = is_mempool_supported


def is_conditional_graph_supported() -> bool:
    """Whether what is captured can branch: it cannot."""
    return False


def can_access(target_device: Device | str, peer: Device | str | array) -> bool:
    """Whether a device gets bytes of another, or of an array, without the host: of itself alone."""
    return get_device(target_device) == (peer.device if isinstance(peer, array) else get_device(peer))


def is_mempool_access_supported(target_device: Device | str, peer_device: Device | str) -> bool:
    """Whether a device can read the memory pool of another: the CPU has none."""
    return can_access(target_device, peer_device) and get_device(target_device).is_cuda


is_mempool_access_enabled = is_mempool_access_supported
is_peer_access_supported = is_mempool_access_supported
is_peer_access_enabled = is_mempool_access_supported


def set_module_options(options: Mapping[str, Any], module: Any = None) -> None:
    """Set options for the kernels of the calling Python module, or of `module`, from then on.

    ``{"enable_backward": False}`` means what it means for one kernel; Warp's other options are accepted and
    change nothing.  Raises KernelValueError for an option that Warp does not have.
    """
    refuse_unknown("kernel", {"module_options": options})
    _options_of(module, sys._getframe(1).f_globals).update(options)


def get_module_options(module: Any = None) -> dict[str, Any]:
    """The options of kernels of the calling Python module, or of `module`: those set, and the defaults."""
    return {**MODULE_DEFAULTS, **_options_of(module, sys._getframe(1).f_globals)}


def get_module(name: str) -> Module:
    """A Python module as what its kernels have in common: its name and the options of its kernels.

    What is set in ``options`` counts for the kernels that are defined from then on: a name that no imported
    module has is for those with `module=name`.
    """
    if name in sys.modules:
        return Module(name, options_in(vars(sys.modules[name])))
    return Module(name, NAMED_OPTIONS.setdefault(name, ModuleOptions()))


def force_load(device: Any = None, modules: Any = None, **_: Any) -> None:
    """Do nothing: each kernel is built by itself when it is first launched."""


def load_module(module: Any = None, device: Any = None, recursive: bool = False, **_: Any) -> None:
    """Do nothing: each kernel is built by itself when it is first launched."""


def clear_kernel_cache() -> None:
    """Remove the kernels that were built earlier from the disk; they are built anew when launched."""
    clear()


def _options_of(module: Any, calling: dict[str, Any]) -> MutableMapping[str, Any]:
    if module is None:
        return options_in(calling)
    if isinstance(module, Module):
        return module.options
    owner = sys.modules.get(module) if isinstance(module, str) else module
    if not hasattr(owner, "__dict__"):
        message = f"there is no module {module!r}"
        hint = "pass a Python module that is imported, kernel.module, or nothing"
        raise KernelValueError.of(message, "module", hint)
    return options_in(vars(owner))


# ------------------------------------------------------------------ conditions that the host evaluates


Body = Callable[..., Any] | Graph


def capture_if(
    condition: array,
    on_true: Body | None = None,
    on_false: Body | None = None,
    stream: Stream | None = None,
    **kwargs: Any,
) -> None:
    """Run `on_true` where the first element of `condition` is not 0, `on_false` otherwise.

    Both are graphs, or functions, which get what is given by name.  Raises LaunchError while launches are
    captured, and for what is neither.
    """
    body = on_true if _holds("capture_if", condition) else on_false
    if body is not None:
        _run("capture_if", body, stream, kwargs)


def capture_while(condition: array, while_body: Body, stream: Stream | None = None, **kwargs: Any) -> None:
    """Run `while_body` as long as the first element of `condition`, which it changes, is not 0.

    It is a graph, or a function, which gets what is given by name.  Raises LaunchError while launches are
    captured, and for what is neither.
    """
    while _holds("capture_while", condition):
        _run("capture_while", while_body, stream, kwargs)


def _holds(word: str, condition: array) -> bool:
    if any(space.capture is not None for space in OPEN.values()):
        message = f"{word} decides by a number in memory, and launches that are captured do not run"
        hint = f"capture what it runs, and call {word} outside of the capture"
        raise refusal(LaunchError, message, "capture", hint)
    if not isinstance(condition, array) or condition.size == 0:
        message = f"{word} decides by the first element of an array, not by {described(condition)}"
        raise refusal(LaunchError, message, "capture", "kl.ones(1, dtype=int)")
    return bool(condition.flatten()[:1].item())


def _run(word: str, body: object, stream: Stream | None, named: dict[str, Any]) -> None:
    if isinstance(body, Graph):
        body.launch(stream)
    elif callable(body):
        body(**named)
    else:
        message = f"{word} runs a function or a graph, not {described(body)}"
        raise refusal(LaunchError, message, "capture", "write a function around it")


__all__ = [
    "LOG_DEBUG", "LOG_ERROR", "LOG_INFO", "LOG_WARNING", "DeterministicMode", "DeviceLike", "Float", "Int",
    "Module", "Scalar", "WarpCodegenAttributeError", "WarpCodegenError", "WarpCodegenIndexError",
    "WarpCodegenKeyError", "WarpCodegenTypeError", "WarpCodegenValueError", "can_access", "capture_if",
    "capture_while", "clear_kernel_cache", "force_load", "get_cuda_device", "get_cuda_device_count",
    "get_cuda_devices", "get_cuda_driver_version", "get_cuda_supported_archs", "get_cuda_toolkit_version",
    "get_module", "get_module_options", "handle", "init", "is_conditional_graph_supported",
    "is_device_available", "is_mempool_access_enabled", "is_mempool_access_supported", "is_mempool_enabled",
    "is_mempool_supported", "is_peer_access_enabled", "is_peer_access_supported", "load_module",
    "set_module_options", "synchronize_device",
]  # fmt: skip


# ------------------------------------------------------------------------------- settings that change nothing


LaunchArrayAccessMode = IntEnum("LaunchArrayAccessMode", "RELAXED CHECKED STRICT", start=0)

_BY_REASON: dict[str, dict[str, object]] = {
    "indices are always checked": {"mode": "release"},
    "ask a tape: tape.backward(check_finite=True)": {"verify_fp": False},
    "what goes wrong on a device is told where the host next waits": {"verify_cuda": False},
    "loops are differentiated as loops, whether they are unrolled or not": {"max_unroll": 16},
    "each kernel is built by itself, when it is first launched": {
        "optimization_level": None, "compile_time_trace": False, "legacy_cpu_linker": False,
        "cpu_compiler_flags": None, "load_module_max_workers": 0,
    },
    "it is always so here": {
        "cache_kernels": True, "enable_vector_component_overwrites": True, "lineinfo": False,
        "line_directives": True, "default_grid_stride": True, "enable_mempools_at_init": True,
    },
    "kernelab writes no log: it speaks by errors and warnings": {
        "verbose": False, "verbose_warnings": False, "quiet": False, "log_level": 20,
    },
    "components of values on the host are NumPy's numbers": {"legacy_scalar_return_types": False},
    "generated text includes no header": {"use_precompiled_headers": True},
    "threads of the CPU run one after another": {"enable_cpu_blocks": False},
    "results are the same with every compiler": {"fast_math": False},
    "a kernel is built for the GPU that it is launched on": {
        "cuda_output": None, "ptx_target_arch": None, "cuda_arch_suffix": None,
    },
    "NVRTC builds kernels for CUDA devices": {"llvm_cuda": False},
    "there are no tiles": {
        "enable_mathdx_gemm": True, "enable_mathdx_solver": True, "enable_mathdx_fft": True,
        "enable_tiles_in_stack_memory": True,
    },
    "what is captured has been built before": {"enable_graph_capture_module_load_by_default": True},
    "memory is freed with its last array": {"track_memory": False},
    "nothing is recorded for it": {"deterministic_max_records": 0, "deterministic_debug": False},
    "a launch takes arrays of its own device alone": {
        "launch_array_access_mode": LaunchArrayAccessMode(2), "LaunchArrayAccessMode": LaunchArrayAccessMode,
    },
}  # fmt: skip

DEFAULTS = {name: value for settings in _BY_REASON.values() for name, value in settings.items()}
"""What each of them is until it is set."""

UNUSED = {name: reason for reason, settings in _BY_REASON.items() for name in settings}
"""Why each of them changes nothing."""

OPTIONS = {"fast_math": "--fast-math", "max_unroll": "--max-unroll"}
"""Those that are options of ``%%kernel``, too, which says that they change nothing."""
