"""Error codes of the CUDA driver: what each means and what to do, as errors for users."""

from kernelab.errors import BuildError, Diagnostic, KernelError, KernelMemoryError


class DriverError(KernelError):
    """A device or its driver refused; the diagnostic says what to do."""


class LostError(DriverError):
    """A kernel has made the device's context unusable: nothing on it can be read any more."""


FAULTS = {
    "CUDA_ERROR_OUT_OF_MEMORY": (
        "there is no memory left on the device",
        "free arrays that are no longer used, or make smaller ones",
    ),
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": (
        "the kernel needs more registers than a block of so many threads has",
        "launch with a smaller block_dim",
    ),
    "CUDA_ERROR_NO_BINARY_FOR_GPU": (
        "the driver cannot run the code that NVRTC made for the device",
        "install the nvidia-cuda-nvrtc that fits the driver, or a newer driver",
    ),
    "CUDA_ERROR_INVALID_IMAGE": (
        "the driver does not know the form of the code that NVRTC made: it is older than NVRTC",
        "install a newer driver, or an older nvidia-cuda-nvrtc",
    ),
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": (
        "the driver is older than NVRTC",
        "install a newer driver, or an older nvidia-cuda-nvrtc",
    ),
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": (
        "the driver's library and the driver that the system runs are of different versions",
        "restart the machine: that is so after the driver was updated",
    ),
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": (
        "the compatibility libraries of CUDA do not serve this device",
        "remove them from LD_LIBRARY_PATH, or install a newer driver",
    ),
    "CUDA_ERROR_NOT_INITIALIZED": (
        "CUDA cannot be used in a process that was forked from one that uses it",
        'start processes anew: multiprocessing.get_context("spawn")',
    ),
    "CUDA_ERROR_NO_DEVICE": ("there is no CUDA device on this machine", 'use device="cpu"'),
}
"""The failures that a user can do something about, and what."""

_ADDRESS = "; a snippet of C++ or an array over a pointer is the likely cause"

LOST = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": ("a kernel used an address outside of all arrays", _ADDRESS),
    "CUDA_ERROR_MISALIGNED_ADDRESS": (
        "a kernel read or wrote a number at an address that is not a multiple of its size",
        _ADDRESS,
    ),
    "CUDA_ERROR_LAUNCH_FAILED": ("a kernel crashed on the device", ""),
    "CUDA_ERROR_LAUNCH_TIMEOUT": (
        "the system ended a kernel that ran for too long",
        ", and launch over fewer threads, or on a device without a display",
    ),
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": ("a kernel met an instruction that the device does not know", ""),
    "CUDA_ERROR_HARDWARE_STACK_ERROR": (
        "a kernel ran out of its stack",
        "; arrays that kernels make for themselves may be too large",
    ),
    "CUDA_ERROR_INVALID_PC": ("a kernel lost its way", ""),
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": (
        "a kernel used an address of another kind of memory",
        "; a snippet of C++ is the likely cause",
    ),
    "CUDA_ERROR_ASSERT": ("an assert in a snippet of C++ did not hold", ""),
    "CUDA_ERROR_ECC_UNCORRECTABLE": (
        "the device's memory is damaged",
        ", and look at nvidia-smi if it comes again",
    ),
}
"""After these the context is of no use any more, so every later call would fail alike: restarting helps."""


def fault(code: str, doing: str, device: str) -> KernelError:
    """The error that a driver's code stands for; `doing` says what was asked of the device."""

    def diagnostic(problem: str, hint: str) -> Diagnostic:
        return Diagnostic(f"{device}: {doing} failed{problem}", code="cuda", hint=hint)

    if code in LOST:
        message, more = LOST[code]
        lost = f": {message}; everything on the device is lost ({code})"
        return LostError(diagnostic(lost, f"restart the notebook's kernel{more}"))
    if code not in FAULTS:
        hint = "this is what the CUDA driver says; if it stays, restart the notebook's kernel"
        return DriverError(diagnostic(f" with {code}", hint))
    message, hint = FAULTS[code]
    explained = diagnostic(f": {message} ({code})", hint)
    if code == "CUDA_ERROR_OUT_OF_MEMORY":
        return KernelMemoryError(explained)
    return (BuildError if doing == "loading a kernel" else DriverError)(explained)
