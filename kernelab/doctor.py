"""Diagnoses the machine: what works, what is missing, how to fix it.

Knows where a compiler, CUDA, Jupyter and the cache are to be found. Must not import Jupyter or CUDA: a broken
installation of either is something to report, not to fail on. Returns findings; printing is the caller's.
"""

import contextlib
import ctypes
import shlex
import sys
import tempfile
from collections.abc import Callable
from enum import Enum
from importlib import metadata
from pathlib import Path

from kernelab import __version__
from kernelab.backend.common.build_cache import cache_dir
from kernelab.backend.common.compiler import (
    Compiler,
    CompilerError,
    NoCompilerError,
    find_compiler,
    open_compiler,
)
from kernelab.backend.cuda.nvrtc import PACKAGES, compile_to_ptx
from kernelab.codegen.cpp.entry import Line, Unit
from kernelab.data_classes import dataclass
from kernelab.errors import BuildError

PROBE = (
    Line('extern "C" int kernelab_probe(int x) {'),
    Line("    return x + 1;"),
    Line("}"),
)
CUDA_PROBE = 'extern "C" __global__ void kernelab_probe() {}'
USE_ANOTHER = "set KERNELAB_CXX to another compiler"


OPTIONAL = (
    ("notebooks", "ipykernel", "for the magic: pip install 'kernelab[jupyter]'"),
    ("live tapes", "ipywidgets", "for tapes that follow a cell: pip install 'kernelab[jupyter]'"),
    ("anywidget", "anywidget", "for live tapes in other editors than JupyterLab: pip install anywidget"),
    ("plots", "matplotlib", "pip install 'kernelab[jupyter]'"),
    ("sparse matrices", "scipy", "pip install 'kernelab[sparse]'"),
    ("bfloat16", "ml_dtypes", "pip install 'kernelab[bfloat16]'"),
)
"""What packages are for that kernelab can do without, and how to get them."""


class Mark(Enum):
    """The state of a finding: present, missing but not needed for kernels on the CPU, or blocking them."""

    OK = "ok"
    OPTIONAL = "--"
    BROKEN = "!!"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report: what was looked for, what was found, what to do where something is missing."""

    mark: Mark
    subject: str
    found: str
    advice: str = ""


def examine() -> tuple[Finding, ...]:
    """Look at everything kernelab can use. Compiles one small library and one CUDA kernel: under a second."""
    return (
        Finding(Mark.OK, "Python", f"{sys.version.split()[0]} at {sys.executable}"),
        Finding(Mark.OK, "kernelab", f"{__version__} at {Path(__file__).parent}"),
        examine_numpy(metadata.version("numpy")),
        examine_compiler(),
        examine_cache(cache_dir()),
        *(examine_package(*of) for of in OPTIONAL),
        examine_package("JupyterLab", "jupyterlab", "pip install 'kernelab[lab]'"),
        examine_front_end(Path(__file__).parent / "jupyter" / "static" / "tape.js"),
        examine_package("cuda-python", "cuda-python", "for NVIDIA GPUs: pip install 'kernelab[cuda]'"),
        examine_nvrtc(),
        examine_driver(),
    )


def cpu_works(findings: tuple[Finding, ...]) -> bool:
    """Whether kernels can be compiled and run on the CPU of this machine."""
    return all(finding.mark is not Mark.BROKEN for finding in findings)


def show(findings: tuple[Finding, ...]) -> str:
    """Text of the report, one finding a line, advice below it."""
    width = max(len(finding.subject) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.mark.value}  {finding.subject:<{width}}  {finding.found}")
        lines += [f"{'':{width + 6}}{finding.advice}"] if finding.advice else []
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------ compiler


def examine_compiler() -> Finding:
    """Build a library of three lines as kernels are built, load it and call it."""
    subject = "C++ compiler"
    try:
        compiler = open_compiler()
        _build_and_call(compiler)
    except (BuildError, OSError, AttributeError) as problem:
        return Finding(Mark.BROKEN, subject, *_explained(problem))
    version = compiler.version.partition("\n")[0]
    found = f"{shlex.join(compiler.command)}, {version}: what it builds loads and runs"
    return Finding(Mark.OK, subject, found)


def _build_and_call(compiler: Compiler) -> None:
    with tempfile.TemporaryDirectory(prefix="kernelab-doctor-") as folder:
        path = Path(folder, "probe.so")
        compiler.compile(Unit(PROBE, entries=()), path)
        # An OSError where nothing was built, an AttributeError where something else was.
        answer = ctypes.CDLL(str(path)).kernelab_probe(41)
    if answer != 42:
        raise OSError(f"what it builds computes 41 + 1 = {answer}")


def _explained(problem: Exception) -> tuple[str, str]:
    match problem:
        case NoCompilerError(diagnostics=(first, *_)):
            return f"{first.message}: kernels run on the NumPy interpreter, slowly", first.hint
        case CompilerError(diagnostics=(first, *_)):
            return f"{find_compiler()} cannot build kernels: {first.message}", USE_ANOTHER
        case BuildError(diagnostics=(first, *_)):
            return first.message, first.hint
        case _:
            return f"{find_compiler()} builds nothing that can be used: {problem}", USE_ANOTHER


# ------------------------------------------------------------------------------------------ cache


def examine_cache(folder: Path) -> Finding:
    """See whether ``folder`` can be written, and count what it holds."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as problem:
        found = f"{folder} cannot be written ({problem.strerror}): every session compiles anew"
        return Finding(Mark.OPTIONAL, "cache", found, "set KERNELAB_CACHE_DIR to a folder of yours")
    sizes = []
    for path in folder.glob("*.so"):
        with contextlib.suppress(FileNotFoundError):  # another session may remove it at this moment
            sizes.append(path.stat().st_size)
    return Finding(Mark.OK, "cache", f"{folder}: {len(sizes)} libraries, {sum(sizes) / 1e6:.1f} MB")


# ------------------------------------------------------------------------------------------ packages, CUDA


def examine_package(subject: str, package: str, advice: str) -> Finding:
    """Look up the version of an installed package, without importing it."""
    version = _version(package)
    if version is None:
        return Finding(Mark.OPTIONAL, subject, "not installed", advice)
    return Finding(Mark.OK, subject, version if subject == package else f"{package} {version}")


def examine_numpy(version: str) -> Finding:
    """Whether NumPy is one whose integers do what kernelab's seeds and constants need."""
    if int(version.partition(".")[0]) < 2:
        return Finding(Mark.BROKEN, "NumPy", f"{version}: it is too old", "pip install 'numpy>=2'")
    return Finding(Mark.OK, "NumPy", version)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def examine_front_end(bundle: Path) -> Finding:
    """See whether the front-end of the widgets was built; JupyterLab needs no extension for it."""
    if bundle.is_file():
        return Finding(Mark.OK, "front-end", f"built, {bundle.stat().st_size / 1e3:.0f} kB")
    found = "not built: tapes show as static pictures and tables"
    return Finding(Mark.OPTIONAL, "front-end", found, "install node with npm, then kernelab again")


def examine_nvrtc() -> Finding:
    """Compile an empty CUDA kernel, which needs NVIDIA's run-time compiler but no GPU."""
    try:
        compile_to_ptx(CUDA_PROBE)
    except BuildError as problem:
        diagnostic = problem.diagnostics[0]
        return Finding(Mark.OPTIONAL, "NVRTC", diagnostic.message, diagnostic.hint)
    version = next(filter(None, map(_version, PACKAGES)), "of the system")
    return Finding(Mark.OK, "NVRTC", f"{version}: compiles CUDA text")


def examine_driver() -> Finding:
    """Load the NVIDIA driver and ask for its version and the names of its GPUs."""
    driver = _load("libcuda.so.1")
    if driver is None or driver.cuInit(0) != 0:
        return Finding(Mark.OPTIONAL, "NVIDIA driver", "no usable GPU; kernels run on the CPU")
    version = _int_from(driver.cuDriverGetVersion)
    names = []
    for device in range(_int_from(driver.cuDeviceGetCount)):
        name = ctypes.create_string_buffer(128)
        driver.cuDeviceGetName(name, len(name), device)  # a device's handle is its index
        names.append(name.value.decode())
    found = f"CUDA {version // 1000}.{version % 1000 // 10}: {', '.join(names) or 'no GPU'}"
    return Finding(Mark.OK, "NVIDIA driver", found)


def _int_from(function: Callable[..., int]) -> int:
    value = ctypes.c_int()
    function(ctypes.byref(value))
    return value.value


def _load(library: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(library)
    except OSError:
        return None
