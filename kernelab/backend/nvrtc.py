"""NVRTC: CUDA C++ to PTX, which needs the library but no GPU.

Knows NVIDIA's run-time compiler through ctypes; must not know devices.  Nothing is loaded before it is used.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from importlib import metadata

from kernelab.errors import BuildError, Diagnostic

PACKAGES = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc-cu12")

FLAGS = (
    "--std=c++17",
    # As on the CPU: nothing is contracted, and divisions, roots and small numbers are exact.
    *("--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false"),
    "--no-source-include",
)


def compile_to_ptx(text: str, architecture: str = "sm_80") -> str:
    """The PTX of a unit of CUDA C++ for an architecture and later ones.

    Raises BuildError with the compiler's log, or where NVRTC is not installed.
    """
    library = _library()
    program = ctypes.c_void_p()
    source = text.encode()
    _check(library, library.nvrtcCreateProgram(ctypes.byref(program), source, b"kernel.cu", 0, None, None))
    try:
        options = [
            option.encode() for option in (*FLAGS, f"-arch=compute_{architecture.removeprefix('sm_')}")
        ]
        given = (ctypes.c_char_p * len(options))(*options)
        if library.nvrtcCompileProgram(program, len(options), given) != 0:
            log = _text(library, "nvrtcGetProgramLog", program)
            raise BuildError(
                Diagnostic(f"NVRTC refused the CUDA text that kernelab generated:\n{log}", code="nvrtc")
            )
        return _text(library, "nvrtcGetPTX", program)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def is_installed() -> bool:
    """Whether NVRTC can be loaded."""
    try:
        _library()
    except BuildError:
        return False
    return True


@cache
def _library() -> ctypes.CDLL:
    for path in (*_packaged(), "libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"):
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        return library
    raise BuildError(
        Diagnostic("NVRTC is not installed", code="nvrtc", hint="pip install 'kernelab[cuda]' installs it")
    )


def _packaged() -> Sequence[str]:
    """Where the packages of the package index keep the library."""
    found: list[str] = []
    for package in PACKAGES:
        try:
            files = metadata.files(package) or []
        except metadata.PackageNotFoundError:
            continue
        found += [str(file.locate()) for file in files if file.name.startswith("libnvrtc.so")]
    return found


def _text(library: ctypes.CDLL, getter: str, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    _check(library, library[f"{getter}Size"](program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(library, library[getter](program, buffer))
    return buffer.value.decode(errors="replace")


def _check(library: ctypes.CDLL, code: int) -> None:
    if code != 0:
        said = library.nvrtcGetErrorString(code).decode()
        raise BuildError(Diagnostic(f"NVRTC failed: {said}", code="nvrtc"))
