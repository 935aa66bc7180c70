"""Disassembly of a cubin into SASS by NVIDIA's `nvdisasm`, which needs no GPU.

Knows where the package index and CUDA's toolkit put ``nvdisasm``; must not know kernels.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

from kernelab.errors import BuildError, Diagnostic

PACKAGES = ("nvidia-cuda-nvdisasm", "nvidia-cuda-nvdisasm-cu13", "nvidia-cuda-nvdisasm-cu12")
TOOLKIT = Path("/usr/local/cuda/bin/nvdisasm")
PATIENCE = 60
"""Seconds after which it is given up."""


def sass(cubin: bytes) -> str:
    """The instructions of a cubin, with comments that say of which line of the text they are.

    Raises BuildError where there is no disassembler, or it fails.
    """
    program = find()
    if program is None:
        hint = "pip install nvidia-cuda-nvdisasm installs it"
        raise BuildError(Diagnostic("nvdisasm is not installed", code="nvdisasm", hint=hint))
    with tempfile.TemporaryDirectory(prefix="kernelab-") as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        command = [program, "--print-code", "--print-line-info-inline", str(path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise BuildError(_failed(program, str(problem))) from problem
    if done.returncode:
        raise BuildError(_failed(program, done.stderr.strip()))
    return done.stdout


def find() -> str | None:
    """The path of the program: that of the Python package, one on the path, or the toolkit's."""
    from importlib import metadata  # takes its time, and few ask

    for package in PACKAGES:
        try:
            files = metadata.files(package) or []
        except metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == "nvdisasm":
                return str(file.locate())
    return shutil.which("nvdisasm") or (str(TOOLKIT) if TOOLKIT.is_file() else None)


def _failed(program: str, said: str) -> Diagnostic:
    hint = "its version has to be that of NVRTC, or a later one"
    return Diagnostic(f"{program} could not read the machine code: {said}", code="nvdisasm", hint=hint)
