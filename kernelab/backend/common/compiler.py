"""The C++ compiler of this machine: finds it, runs it, and explains its errors.

Knows command lines and text; must not know kernels.
"""

import contextlib
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from kernelab.backend.common.tiered import compiler_runs
from kernelab.codegen.cpp.entry import Unit
from kernelab.codegen.cpp.snippets import complaints
from kernelab.data_classes import dataclass
from kernelab.errors import BuildError, Diagnostic, KernelSyntaxError, Related

LOG = logging.getLogger(__name__)

VARIABLES = ("KERNELAB_CXX", "CXX")
PROGRAMS = ("g++", "clang++")

FLAGS = (
    *("-x", "c++", "-std=c++17", "-shared", "-fPIC", "-pipe", "-w"),
    # Kernels compute the same everywhere: nothing is contracted, signed integers wrap, bytes have no type.
    *("-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing"),
    # Nobody reads errno or the floating-point flags.  NaN and infinity keep their meaning.
    *("-fno-math-errno", "-fno-trapping-math"),
    *("-fno-exceptions", "-fno-rtti", "-fno-asynchronous-unwind-tables", "-fno-stack-protector"),
    # The driver's start files and libraries would cost more time than a small kernel takes to compile.
    # A library of macOS has to name those that it calls.
    *(() if sys.platform == "darwin" else ("-nostdlib", "-nodefaultlibs")),
)
EXTENSIONS = {"sse4_1": "-msse4.1", "avx2": "-mavx2", "f16c": "-mf16c", "bmi2": "-mbmi2"}
"""Instruction sets used where a processor has them; -march=native would tie the cache to one machine."""

QUICK = ("-Og", "-fira-region=one", "-fcaller-saves", "-fno-use-linker-plugin")
"""The level of g++: code nearly as fast as with -O2, compiled in half of the time, and linked without `lto`.

A loop calls a cold function now and then, and a call takes all vector registers: without ``-fcaller-saves``
every float that lives across the call stays in memory, which costs loops a factor of 2 to 3.
"""

FULL = ("-O2",)
"""The level of other compilers."""

MOST_SECONDS = 600.0
"""After how long a compiler is stopped that builds one kernel: those of a million lines take minutes."""

ANSWER_SECONDS = 60.0
"""After how long a compiler is stopped that was asked for its version."""

INSTALLERS = {
    "apt-get": "sudo apt-get install g++",
    "dnf": "sudo dnf install gcc-c++",
    "apk": "sudo apk add g++",
    "pacman": "sudo pacman -S gcc",
    "zypper": "sudo zypper install gcc-c++",
    "xcode-select": "xcode-select --install",
    "brew": "brew install gcc",
    "conda": "conda install -c conda-forge cxx-compiler",
}
"""What to type for a C++ compiler, by the program that installs it."""


INTERPRETED = {
    "win32": "for compiled kernels, run kernelab in WSL (Windows Subsystem for Linux)",
    "emscripten": "a browser starts no compiler; for compiled kernels, run kernelab outside of it",
}
"""Systems on which kernels always run on the NumPy interpreter, with what to do for compiled ones.

On Windows nobody has tried what a compiler makes of generated code; in Pyodide no process starts.
"""


def advice() -> str:
    """How to get a C++ compiler on this machine."""
    if sys.platform in INTERPRETED:
        return INTERPRETED[sys.platform]
    programs = (("conda",) if os.environ.get("CONDA_PREFIX") else ()) + tuple(INSTALLERS)
    typed = next((INSTALLERS[program] for program in programs if shutil.which(program)), None)
    return "to run at full speed, install a C++ compiler: " + (
        typed or f"on Debian and Ubuntu, {INSTALLERS['apt-get']}"
    )


class NoCompilerError(BuildError):
    """No C++ compiler was found on this machine, and none was asked for."""


class CompilerError(BuildError):
    """The compiler refused generated code: a fault of kernelab, not of its user."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """A compiler that answers: its command, what it calls itself, and which flags suit this machine."""

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]

    @property
    def identity(self) -> str:
        """The compiler, its version and its flags: with the text they determine the library."""
        return "\n".join([*self.command, self.version, *self.flags])

    @property
    def is_gcc(self) -> bool:
        return "clang" not in self.version

    def compile(self, unit: Unit, library: Path, more: tuple[str, ...] = ()) -> None:
        """Write the shared library of a unit; `more` are flags that it needs.

        Raises KernelSyntaxError for C++ that a user wrote, CompilerError for what kernelab did.
        """
        command = [*self.command, *self.flags, *more, "-o", str(library), "-"]
        # Its own temporary files belong where the library goes, and its words are read by a machine.
        environment = _environment() | {"TMPDIR": str(library.parent), "LC_ALL": "C"}
        began = time.perf_counter()
        status, stderr = _run(command, unit.text, environment)
        names, spent = ", ".join(info.name for info in unit.entries), time.perf_counter() - began
        LOG.debug("build of %s: %s, status %s after %.3f s", names, self.command[0], status, spent)
        if status == 0:
            self._require_written(library)
            return
        told = complaints(unit, _places(stderr))
        if told:
            raise KernelSyntaxError(*told)
        if status < 0 or _KILLED.search(stderr):
            raise BuildError(_killed(self, status, stderr))
        raise CompilerError(_complaint(self, unit, stderr))

    def _require_written(self, library: Path) -> None:
        """Raise BuildError where a compiler that reports success has left no library."""
        try:
            with library.open("rb") as file:
                head = file.read(4)
        except FileNotFoundError:
            head = b""
        if not head or (sys.platform == "linux" and head != b"\x7fELF"):
            wrote = "something that is not a library" if head else "nothing"
            message = f"{Path(self.command[-1]).name} reported success, and wrote {wrote}"
            hint = f"it is `{shlex.join(self.command)}`: set KERNELAB_CXX to a C++ compiler that works"
            raise BuildError.of(message, "compiler", hint)


def _environment() -> dict[str, str]:
    """The variables now, one by one: another thread may remove one meanwhile."""
    found = ((name, os.environ.get(name)) for name in os.environ)
    return {name: value for name, value in found if value is not None}


def _run(command: list[str], text: str, environment: dict[str, str]) -> tuple[int, str]:
    """The status and the messages of a compiler, which an interrupt of the terminal does not reach.

    It has a process group of its own: all of it ends where this call does.  Raises BuildError after
    `MOST_SECONDS`.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        process_group=0,
    ) as process:
        try:
            compiler_runs()
            _, stderr = process.communicate(text, MOST_SECONDS)
        except BaseException as problem:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(problem, subprocess.TimeoutExpired):
                raise BuildError(_hangs(shlex.join(command[:1]), MOST_SECONDS)) from None
            raise
    return process.returncode, stderr


def find_compiler() -> str | None:
    """The command that KERNELAB_CXX or CXX names, else g++ or clang++ of the path; None if there is none.

    A variable's command is not tried here: see `open_compiler`.
    """
    if sys.platform in INTERPRETED:
        return None
    named = _named()
    if named is not None:
        return named[1]
    return next((path for program in PROGRAMS if (path := shutil.which(program))), None)


def open_compiler() -> Compiler:
    """The compiler that `find_compiler` finds, asked for its version.

    Raises NoCompilerError if there is none, BuildError if the one that a variable names does not work.
    """
    command = find_compiler()
    if command is None:
        raise NoCompilerError.of("there is no C++ compiler on this machine", "no-compiler", advice())
    words = tuple(shlex.split(command))
    try:
        asked = subprocess.run(
            [*words, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=ANSWER_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise BuildError(_hangs(command, ANSWER_SECONDS)) from None
    except (OSError, subprocess.CalledProcessError) as problem:
        raise BuildError(_useless(command, problem)) from problem
    level = FULL if "clang" in asked.stdout else QUICK
    extensions = (flag for name, flag in EXTENSIONS.items() if name in processor_features())
    return Compiler(words, asked.stdout, (*FLAGS, *level, *extensions))


def _hangs(command: str, seconds: float) -> Diagnostic:
    message = f"the compiler `{command}` was stopped: it had not ended after {seconds:g} s"
    hint = "split a very long kernel; otherwise set KERNELAB_CXX to a C++ compiler that works"
    return Diagnostic(message, code="compiler-hangs", hint=hint)


def _named() -> tuple[str, str] | None:
    """The variable that names a compiler, and what it says."""
    said = ((name, os.environ.get(name, "")) for name in VARIABLES)
    return next(((name, command) for name, command in said if command.strip()), None)


def _useless(command: str, problem: Exception) -> Diagnostic:
    named = _named()
    said = getattr(problem, "stderr", "") or getattr(problem, "strerror", "") or str(problem)
    subject = f"`{command}`" if named is None else f"{named[0]} is set to `{named[1]}`, which"
    hint = advice() if named is None else f"set {named[0]} to a C++ compiler, or unset it"
    message = f"{subject} does not work as a C++ compiler: {said.strip().partition(chr(10))[0]}"
    return Diagnostic(message, code="compiler", hint=hint)


def _places(stderr: str) -> Iterator[tuple[int, int, str]]:
    """Each place that compiler or assembler speak of; of errors outside a snippet, what led there."""
    message = ""
    for line in stderr.splitlines():
        place = re.match(
            r"<stdin>:(\d+):(?:(\d+):)?\s+(?:(?:fatal )?([eE]rror): |(note|required)\b:? ?)(.*)$", line
        )
        if place is None:
            continue
        number, column, is_error, _, text = place.groups()
        message = text if is_error else message or text
        yield int(number), int(column or 1), message


_KILLED = re.compile(r"(Killed|Terminated|Interrupt) signal terminated program")


def _killed(compiler: Compiler, status: int, stderr: str) -> Diagnostic:
    signalled = _KILLED.search(stderr)
    by = signalled.group(1) if signalled else signal.Signals(-status).name
    message = f"{Path(compiler.command[-1]).name} was ended by a signal ({by}) before the kernel was built"
    hint = "the machine may be short of memory: free some, and run it again"
    return Diagnostic(message, code="compiler-killed", hint=hint)


_COMPLAINT = re.compile(r"^<stdin>:(\d+):(?:\d+:)? (?:fatal )?error: (.*)$", re.MULTILINE)
_SHOWN = 5


def _complaint(compiler: Compiler, unit: Unit, stderr: str) -> Diagnostic:
    complaints = [(int(line), text) for line, text in _COMPLAINT.findall(stderr)][:_SHOWN]
    related = tuple(
        Related(f"{text}: {unit.lines[line - 1].text.strip()}", span)
        for line, text in complaints
        if line <= len(unit.lines) and (span := unit.lines[line - 1].span) is not None
    )
    last_lines = "\n".join(stderr.strip().splitlines()[-_SHOWN:])
    first = complaints[0][1] if complaints else last_lines or "it gave no reason"
    message = f"{Path(compiler.command[-1]).name} refused the C++ that kernelab generated: {first}"
    hint = "this is a fault of kernelab: please report it with the kernel that shows it"
    return Diagnostic(message, code="compiler-error", hint=hint, related=related)


@cache
def processor_features() -> frozenset[str]:
    """The features of the processor as Linux names them; none elsewhere."""
    try:
        with Path("/proc/cpuinfo").open() as file:
            first = file.read(8192).partition("\n\n")[0]
    except OSError:
        return frozenset()
    listed = next((line for line in first.splitlines() if line.startswith("flags")), "")
    return frozenset(listed.split())
