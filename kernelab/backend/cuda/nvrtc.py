"""NVIDIA's tools that need no GPU: NVRTC, which compiles CUDA C++, and nvdisasm, which reads machine code.

Must not know devices.  Nothing is loaded before it is used.
"""

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from kernelab.errors import BuildError

PACKAGES = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc-cu12")

FLAGS = (
    "--std=c++17",
    # As on the CPU: nothing is contracted, and divisions, roots and small numbers are exact.
    *("--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false"),
    "--no-source-include",
    # Functions inside of a snippet, such as those of a local struct, do not say where they run.
    "--device-as-default-execution-space",
)

LEAN = ("--minimal",)
"""Without the declarations of textures and of CUDA's runtime, which only snippets might name: the code is
the same, some milliseconds sooner."""

QUICKLY = ("--Ofast-compile=max",)
"""Little optimisation.  What is computed stays the same: it depends on the flags above alone."""

FIRST_QUICK = 13
"""The NVRTC that is known to have it."""

OLDEST = 60
"""The first architecture that has atomics of float64, in which sums are taken."""

LOCATED = ("--generate-line-info",)

DISASSEMBLERS = ("nvidia-cuda-nvdisasm", "nvidia-cuda-nvdisasm-cu13", "nvidia-cuda-nvdisasm-cu12")
TOOLKIT = Path("/usr/local/cuda/bin/nvdisasm")
PATIENCE = 60
"""Seconds after which the disassembler is given up."""


def compile_to_ptx(text: str, architecture: str = "sm_80", located: bool = False) -> str:
    """The PTX of a unit of CUDA C++ for an architecture and later ones.

    With `located` it says of which line of the text each instruction is, by ``.loc``.  Raises BuildError with
    the compiler's log, or where NVRTC is not installed.
    """
    virtual = f"compute_{architecture.removeprefix('sm_')}"
    return _text(_compiled(text, virtual, "nvrtcGetPTX", LOCATED if located else ()))


def compile_to_cubin(text: str, architecture: str, located: bool = False, quickly: bool = False) -> bytes:
    """The machine code of a unit of CUDA C++ for one architecture, such as ``sm_90``.

    With `located` it knows of which line of the text each instruction is; `quickly` it is made with little
    optimisation, where `hurries`.

    Raises BuildError with the compiler's log, where NVRTC is not installed, or for an architecture that it
    does not know.
    """
    _require_known(architecture)
    flags = (*(LOCATED if located else ()), *(QUICKLY if quickly else ()))
    return _compiled(text, architecture, "nvrtcGetCUBIN", flags)


def resources(text: str, architecture: str) -> str:
    """The assembler's report on each kernel of a unit: registers, stack, spills; raises as the others."""
    _require_known(architecture)
    return _text(_compiled(text, architecture, "nvrtcGetProgramLog", ("--ptxas-options=-v",)))


def _require_known(architecture: str) -> None:
    number = _number(architecture)
    if number < OLDEST:
        message = f"a device of {architecture} is too old: it cannot add float64 numbers by atomics"
        hint = f'kernelab needs sm_{OLDEST} (of 2016) or later: use device="cpu"'
        raise BuildError.of(message, "nvrtc", hint)
    supported = architectures()
    if architecture not in supported:
        message = f"NVRTC {version()} does not compile for {architecture}"
        age = "an older" if number < int(supported[0].removeprefix("sm_")) else "a newer"
        span = f"{supported[0]} to {supported[-1]}"
        hint = f"it knows {span}: install {age} nvidia-cuda-nvrtc that knows the device"
        raise BuildError.of(message, "nvrtc", hint)


def compile_for(text: str, architecture: str, quickly: bool = False) -> bytes:
    """Code that a driver loads for a device: machine code, or PTX for one that NVRTC does not know yet.

    That is for the newest that it knows before the device, and the driver makes machine code of it.  Raises
    BuildError as the others do.
    """
    number, supported = _number(architecture), architectures()
    before = [other for other in supported if _number(other) < number]
    if architecture in supported or not before:
        return compile_to_cubin(text, architecture, quickly=quickly)
    return compile_to_ptx(text, before[-1]).encode() + b"\0"


def _number(architecture: str) -> int:
    return int(architecture.removeprefix("sm_").rstrip("af"))


def hurries() -> bool:
    """Whether NVRTC has a quick mode; raises BuildError where it is not installed."""
    return int(version().partition(".")[0]) >= FIRST_QUICK


def architectures() -> tuple[str, ...]:
    """The architectures that NVRTC can compile for; raises BuildError where it is not installed."""
    library, count = _library(), ctypes.c_int()
    _check(library, library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    numbers = (ctypes.c_int * count.value)()
    _check(library, library.nvrtcGetSupportedArchs(numbers))
    return tuple(f"sm_{number}" for number in numbers)


def version() -> str:
    """The version of NVRTC; raises BuildError where it is not installed."""
    library, major, minor = _library(), ctypes.c_int(), ctypes.c_int()
    _check(library, library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


def _compiled(text: str, architecture: str, getter: str, flags: Sequence[str] = ()) -> bytes:
    library = _library()
    program = ctypes.c_void_p()
    source = text.encode()
    _check(library, library.nvrtcCreateProgram(ctypes.byref(program), source, b"kernel.cu", 0, None, None))
    try:
        options = (*FLAGS, *flags, f"-arch={architecture}")
        # What is left out may be missed, and an older NVRTC does not know how to leave it out.
        if not _compiles(library, program, (*LEAN, *options)) and not _compiles(library, program, options):
            log = _text(_output(library, "nvrtcGetProgramLog", program))
            raise BuildError.of(f"NVRTC refused the CUDA text that kernelab generated:\n{log}", "nvrtc")
        return _output(library, getter, program)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _compiles(library: ctypes.CDLL, program: ctypes.c_void_p, options: Sequence[str]) -> bool:
    encoded = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    return bool(library.nvrtcCompileProgram(program, len(options), encoded) == 0)


def _text(output: bytes) -> str:
    return output.rstrip(b"\0").decode(errors="replace")


def is_installed() -> bool:
    """Whether NVRTC can be loaded."""
    try:
        _library()
    except BuildError:
        return False
    return True


@cache
def _library() -> ctypes.CDLL:
    for path in (*_installed(PACKAGES, "libnvrtc.so"), "libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"):
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        return library
    raise BuildError.of("NVRTC is not installed", "nvrtc", "pip install 'kernelab[cuda]' installs it")


def _installed(packages: Sequence[str], name: str) -> Iterator[str]:
    """The files of Python packages whose names begin so."""
    from importlib import metadata  # takes its time, and few ask

    for package in packages:
        try:
            files = metadata.files(package) or []
        except metadata.PackageNotFoundError:
            continue
        yield from (str(file.locate()) for file in files if file.name.startswith(name))


def _output(library: ctypes.CDLL, getter: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check(library, library[f"{getter}Size"](program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(library, library[getter](program, buffer))
    return buffer.raw


def _check(library: ctypes.CDLL, code: int) -> None:
    if code != 0:
        raise BuildError.of(f"NVRTC failed: {library.nvrtcGetErrorString(code).decode()}", "nvrtc")


# ---------------------------------------------------------------------------------------- disassembly


def sass(cubin: bytes) -> str:
    """The instructions of a cubin, with comments that say of which line of the text they are.

    Raises BuildError where there is no disassembler, or it fails.
    """
    program = find_disassembler()
    if program is None:
        hint = "pip install nvidia-cuda-nvdisasm installs it"
        raise BuildError.of("nvdisasm is not installed", "nvdisasm", hint)
    with tempfile.TemporaryDirectory(prefix="kernelab-") as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        command = [program, "--print-code", "--print-line-info-inline", str(path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
        except (OSError, subprocess.SubprocessError) as problem:
            said = (
                problem.stderr.strip() if isinstance(problem, subprocess.CalledProcessError) else str(problem)
            )
            hint = "its version has to be that of NVRTC, or a later one"
            message = f"{program} could not read the machine code: {said}"
            raise BuildError.of(message, "nvdisasm", hint) from problem
    return done.stdout


def find_disassembler() -> str | None:
    """The path of nvdisasm: that of the Python package, one on the path, or the toolkit's."""
    packaged = next(_installed(DISASSEMBLERS, "nvdisasm"), None)
    return packaged or shutil.which("nvdisasm") or (str(TOOLKIT) if TOOLKIT.is_file() else None)
