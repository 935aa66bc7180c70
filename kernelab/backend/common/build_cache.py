"""The cache of compiled libraries on disk, shared by all sessions of a user.

A library is one file named by the hash of everything that decides its content, with a checksum at its end.
It is built in a private folder and renamed into place, so another process sees all of it or nothing; who
needs what another process is building waits for that, by a lock that a killed process lets go.  Where the
folder cannot be used, or other users can write to it, a temporary one serves for the rest of the process.
Knows files, not compilers.
"""

import contextlib
import errno
import functools
import hashlib
import os
import shutil
import stat
import sys
import tempfile
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeVar

from kernelab.errors import BuildError, Diagnostic, KernelWarning

LIMIT_BYTES = 512 * 2**20
"""The size from which the cache removes the least recently used libraries."""

VARIABLE = "KERNELAB_CACHE_DIR"
"""The environment variable that names the cache's folder."""

STALE_SECONDS = 24 * 3600
"""A build that is older than this was killed."""

_CACHES = {"win32": "LOCALAPPDATA", "darwin": ""}
"""The environment variable of a system that names the user's caches, where it is not XDG_CACHE_HOME."""

Loaded = TypeVar("Loaded")

_BUILD = "build-"
_DIGEST_BYTES = 32


def cache_dir() -> Path:
    """The cache's folder, which may not exist: KERNELAB_CACHE_DIR, else ``kernelab`` in the user's caches.

    The latter are ``$XDG_CACHE_HOME`` or ``~/.cache``, on macOS ``~/Library/Caches``, and on Windows
    ``%LOCALAPPDATA%``.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen)
    stated = Path(os.environ.get(_CACHES.get(sys.platform, "XDG_CACHE_HOME"), ""))
    if stated.is_absolute():  # a relative one has no meaning
        return stated / ("kernelab/Cache" if sys.platform == "win32" else "kernelab")
    try:
        return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "kernelab"
    except RuntimeError:  # no home at all
        return Path(tempfile.gettempdir(), f"kernelab-{getattr(os, 'getuid', lambda: '')()}")


def key_of(*parts: str) -> str:
    """A name for what these texts decide."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:40]


class Cache:
    """The libraries of one process: those on disk, and a folder of its own where the disk refuses."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._refused: set[Path] = set()
        self._tidied: set[Path] = set()
        self._own: Path | None = None

    def library(self, key: str, build: Callable[[Path], None], load: Callable[[Path], Loaded]) -> Loaded:
        """Load the library of that key, after building it where it is missing or damaged.

        `build` writes a file; `load` raises OSError for a file that cannot be loaded.  Raises BuildError.
        """
        folder = cache_dir()
        if folder not in self._refused:
            try:
                return self._library_in(folder, key, build, load)
            except OSError as problem:
                self._refuse(folder, problem)
        try:
            return self._library_in(self._own_folder(), key, build, load)
        except OSError as problem:
            raise BuildError(_nowhere(problem)) from problem

    def data(self, key: str, make: Callable[[], bytes]) -> bytes:
        """The bytes of `make`, cached under a key; raises BuildError."""

        def build(path: Path) -> None:
            path.write_bytes(make())

        return self.library(key, build, lambda path: path.read_bytes()[:-_DIGEST_BYTES])

    def known(self, key: str) -> bytes | None:
        """The bytes cached under a key; None where there are none, or they are damaged."""
        for folder in (cache_dir(), self._own):
            if folder is not None and _is_intact(path := folder / f"{key}.so"):
                with contextlib.suppress(OSError):  # somebody may remove the file just now
                    _require_private(folder)
                    data = path.read_bytes()[:-_DIGEST_BYTES]
                    _touch(path)
                    return data
        return None

    def _library_in(
        self, folder: Path, key: str, build: Callable[[Path], None], load: Callable[[Path], Loaded]
    ) -> Loaded:
        path = folder / f"{key}.so"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_private(folder)
        if (loaded := _loaded(path, load)) is not None:
            return loaded
        self._tidy(folder)
        with _alone(folder / f"{_BUILD}{key}.lock"):
            if (loaded := _loaded(path, load)) is not None:
                return loaded
            with _private_folder(folder) as private:
                built = private / "library.so"
                _build(build, built)
                _seal(built)
                built.replace(path)
            return load(path)

    def _tidy(self, folder: Path) -> None:
        """Once a process: remove what killed builds left, and what was not used for longest."""
        if folder in self._tidied:
            return
        self._tidied.add(folder)
        for build in folder.glob(f"{_BUILD}*"):
            with contextlib.suppress(OSError):
                if time.time() - build.stat().st_mtime > STALE_SECONDS:
                    build.unlink() if build.is_file() else shutil.rmtree(build, ignore_errors=True)
        kept = 0
        for _, size, path in sorted(_libraries(folder), reverse=True):
            kept += size
            if kept > self.limit_bytes:
                with contextlib.suppress(OSError):
                    Path(path).unlink()

    def _refuse(self, folder: Path, problem: OSError) -> None:
        self._refused.add(folder)
        said = problem.strerror or str(problem)
        warnings.warn(
            f"the cache {folder} cannot be used ({said}): kernels are compiled anew in every session;"
            " set KERNELAB_CACHE_DIR to a folder that you, and nobody else, can write to",
            KernelWarning,
            stacklevel=2,
        )

    def _own_folder(self) -> Path:
        if self._own is None:
            self._own = Path(tempfile.mkdtemp(prefix="kernelab-"))
            weakref.finalize(self, _remove_own, self._own, os.getpid())
        return self._own


def clear() -> None:
    """Remove every library from the disk; what is loaded stays loaded."""
    with contextlib.suppress(FileNotFoundError):  # there may be no folder yet
        for _, _, path in [*_libraries(cache_dir())]:
            Path(path).unlink(missing_ok=True)


def _remove_own(folder: Path, owner: int) -> None:
    # A forked child inherits the duty to clean up, but the folder is still its parent's.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _require_private(path: Path) -> None:
    """Raise PermissionError for a folder or file that another user could have filled with code to run."""
    if not hasattr(os, "getuid"):
        return
    status = path.stat()
    if not {status.st_uid, path.lstat().st_uid} <= {os.getuid(), 0}:
        raise PermissionError(errno.EPERM, "it belongs to another user")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(errno.EPERM, "other users can write to it")


def _loaded(path: Path, load: Callable[[Path], Loaded]) -> Loaded | None:
    """What a library holds; None where it is missing, or cannot be loaded."""
    if _is_intact(path):
        # Somebody may remove the file just now, or the checksum may fit what another system wrote.
        with contextlib.suppress(OSError):
            loaded = load(path)
            _touch(path)
            return loaded
    return None


@contextlib.contextmanager
def _private_folder(parent: Path) -> Iterator[Path]:
    """A folder for one build; a `TemporaryDirectory` would vanish under it when the interpreter ends."""
    folder = Path(tempfile.mkdtemp(prefix=_BUILD, dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait for the holder of this lock; a process that dies releases it, and some systems have no locks."""
    with path.open("w") as lock:
        _flock(lock, "LOCK_EX")
        try:
            yield
        finally:
            _flock(lock, "LOCK_UN")  # or a process that was forked meanwhile has it as long as the file
            with contextlib.suppress(OSError):  # where a file in use is not removed
                path.unlink()


def _flock(file: IO[str], how: str) -> None:
    with contextlib.suppress(OSError, ImportError):
        import fcntl

        fcntl.flock(file, getattr(fcntl, how))


def _build(build: Callable[[Path], None], path: Path) -> None:
    try:
        build(path)
    except BuildError:
        # A compiler that finds no room says so in words of its own: ask the disk itself.
        (path.parent / "room").write_bytes(bytes(2**20))
        raise


def _seal(path: Path) -> None:
    # Bytes after the end of a shared library do not disturb its loader.
    digest = hashlib.sha256(path.read_bytes()).digest()
    with path.open("ab") as file:
        file.write(digest)
    path.chmod(0o700)


def _is_intact(path: Path) -> bool:
    try:
        if not path.is_file():  # a pipe would be read for ever
            return False
        _require_private(path)
        data = path.read_bytes()
    except PermissionError as problem:
        _warn_of_file(path, problem.strerror)
        return False
    except OSError:
        return False
    return hashlib.sha256(data[:-_DIGEST_BYTES]).digest() == data[-_DIGEST_BYTES:]


@functools.cache  # once for each file
def _warn_of_file(path: Path, said: str) -> None:
    warnings.warn(f"{path} is not loaded ({said}): its kernel is built again", KernelWarning, stacklevel=2)


def _touch(path: Path) -> None:
    # The time of a file is when it was used last; a cache that is only readable keeps the old one.
    with contextlib.suppress(OSError):
        os.utime(path)


def _libraries(folder: Path) -> Iterator[tuple[float, int, str]]:
    with os.scandir(folder) as entries:  # of thousands, for which `Path` takes half a second
        for entry in entries:
            # Another process may prune at the same time.
            with contextlib.suppress(FileNotFoundError):
                if entry.name.endswith(".so"):
                    status = entry.stat()
                    yield status.st_mtime, status.st_size, entry.path


def _nowhere(problem: OSError) -> Diagnostic:
    message = f"there is no folder in which a kernel can be built: {problem}"
    hint = "make room on the disk, or set KERNELAB_CACHE_DIR to a folder that can be written"
    return Diagnostic(message, code="no-room", hint=hint)
