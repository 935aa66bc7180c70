"""Names that programs written for Warp use: devices, modules, conditions of captured launches, aliases."""

import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kernelab.backend.common.build_cache import clear
from kernelab.backend.cuda import nvidia, nvrtc
from kernelab.errors import (
    Diagnostic,
    KernelError,
    KernelIndexError,
    KernelNameError,
    KernelTypeError,
    KernelValueError,
    LaunchError,
)
from kernelab.frontend.syntax.options import MODULE
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import described
from kernelab.runtime.context.recorder import caller
from kernelab.runtime.kernel.loading import MODULE_OPTIONS, Module, refuse_unknown
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
    return bool(get_device(device).is_cuda)


is_mempool_enabled = is_mempool_supported


def is_conditional_graph_supported() -> bool:
    """Whether what is captured can branch: it cannot."""
    return False


def can_access(target_device: Device | str, peer_device: Device | str) -> bool:
    """Whether the first device gets bytes of the second without passing through the host."""
    target, peer = get_device(target_device), get_device(peer_device)
    if target == peer or target.space is None or peer.space is None:
        return target == peer
    return target.space.driver.reaches(peer.space.driver)


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
    _names(module).setdefault(MODULE_OPTIONS, {}).update(options)


def get_module_options(module: Any = None) -> dict[str, Any]:
    """The options of kernels of the calling Python module, or of `module`: those set, and the defaults."""
    return {**MODULE, **_names(module).get(MODULE_OPTIONS, {})}


def get_module(name: str) -> Module:
    """A Python module as what its kernels have in common: its name and the options of its kernels.

    What is set in ``options`` counts for the kernels that are defined from then on.  A name that no imported
    module has is that of a module without kernels.
    """
    return Module(name, _names(name).setdefault(MODULE_OPTIONS, {}) if name in sys.modules else {})


def force_load(device: Any = None, modules: Any = None, **_: Any) -> None:
    """Do nothing: each kernel is built by itself when it is first launched."""


def load_module(module: Any = None, device: Any = None, recursive: bool = False, **_: Any) -> None:
    """Do nothing: each kernel is built by itself when it is first launched."""


def clear_kernel_cache() -> None:
    """Remove the kernels that were built earlier from the disk; they are built anew when launched."""
    clear()


def _names(module: Any) -> dict[str, Any]:
    if module is None:
        return sys._getframe(2).f_globals
    owner = sys.modules.get(module) if isinstance(module, str) else module
    if not hasattr(owner, "__dict__"):
        message = f"there is no module {module!r}"
        hint = "pass a Python module that is imported, or nothing"
        raise KernelValueError(Diagnostic(message, code="module", hint=hint))
    return vars(owner)


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
        raise LaunchError(Diagnostic(message, caller().span, "capture", hint=hint))
    if not isinstance(condition, array) or condition.size == 0:
        message = f"{word} decides by the first element of an array, not by {described(condition)}"
        raise LaunchError(Diagnostic(message, caller().span, "capture", hint="kl.ones(1, dtype=int)"))
    return bool(condition.flatten()[:1].item())


def _run(word: str, body: object, stream: Stream | None, named: dict[str, Any]) -> None:
    if isinstance(body, Graph):
        body.launch(stream)
    elif callable(body):
        body(**named)
    else:
        message = f"{word} runs a function or a graph, not {described(body)}"
        raise LaunchError(Diagnostic(message, caller().span, "capture", hint="write a function around it"))


__all__ = [
    "LOG_DEBUG", "LOG_ERROR", "LOG_INFO", "LOG_WARNING", "Float", "Int", "Scalar",
    "WarpCodegenAttributeError", "WarpCodegenError", "WarpCodegenIndexError", "WarpCodegenKeyError",
    "WarpCodegenTypeError", "WarpCodegenValueError", "can_access", "capture_if", "capture_while",
    "clear_kernel_cache", "force_load", "get_cuda_device", "get_cuda_device_count", "get_cuda_devices",
    "get_cuda_driver_version", "get_cuda_supported_archs", "get_cuda_toolkit_version", "get_module",
    "get_module_options", "init", "is_conditional_graph_supported", "is_device_available",
    "is_mempool_access_enabled", "is_mempool_access_supported", "is_mempool_enabled", "is_mempool_supported",
    "is_peer_access_enabled", "is_peer_access_supported", "load_module", "set_module_options",
    "synchronize_device",
]  # fmt: skip
