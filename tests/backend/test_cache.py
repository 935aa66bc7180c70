"""The cache of compiled libraries: it is found again, never in the way, and never half written."""

import errno
import fcntl
import os
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelab.backend.common import build_cache as module
from kernelab.backend.common.build_cache import Cache, cache_dir, key_of
from kernelab.backend.cpu.cpu_backend import CpuBackend
from kernelab.errors import BuildError, Diagnostic, KernelWarning
from tests.codegen import kernels

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    chosen = tmp_path / "cache"
    monkeypatch.setenv("KERNELAB_CACHE_DIR", str(chosen))
    return chosen


class Builder:
    """Builds a "library" of some text, and counts how often."""

    def __init__(self, text: str = "code") -> None:
        self.text = text
        self.builds = 0

    def build(self, path: Path) -> None:
        self.builds += 1
        path.write_text(self.text)

    def load(self, path: Path) -> str:
        content = path.read_bytes()[:-32].decode()
        if "unloadable" in content:
            raise OSError("not a library")
        return content

    def get(self, cache: Cache, key: str = "key") -> str:
        return cache.library(key, self.build, self.load)


# ------------------------------------------------------------------------------------------ places


def test_the_folder_is_the_one_that_the_variable_names(folder: Path) -> None:
    assert cache_dir() == folder


def test_the_folder_follows_the_convention_of_the_desktop(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KERNELAB_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "kernelab"


def test_the_folder_is_in_the_home_folder_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KERNELAB_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "kernelab"


def test_a_relative_folder_of_caches_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KERNELAB_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "caches")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "kernelab"


def test_without_a_home_the_folder_is_in_the_temporary_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("KERNELAB_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(variable, raising=False)

    def nobody(*_: object) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert cache_dir() == Path(module.tempfile.gettempdir(), f"kernelab-{os.getuid()}")


def test_a_key_depends_on_every_part_and_on_where_each_ends() -> None:
    keys = {key_of("a", "b"), key_of("ab", ""), key_of("a", "c"), key_of("b", "a")}
    assert len(keys) == 4


# ------------------------------------------------------------------------------------------ hits


def test_a_second_session_finds_what_the_first_built() -> None:
    first, second = Builder(), Builder()
    assert first.get(Cache()) == second.get(Cache()) == "code"
    assert (first.builds, second.builds) == (1, 0)


def test_another_key_is_another_library() -> None:
    builder = Builder()
    builder.get(Cache(), "one")
    builder.get(Cache(), "two")
    assert builder.builds == 2


def test_nothing_but_libraries_is_left_behind(folder: Path) -> None:
    Builder().get(Cache())
    assert [path.name for path in folder.iterdir()] == ["key.so"]


def test_a_kernel_of_another_session_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    function = kernels.saxpy().function
    CpuBackend().build([function])
    fresh = CpuBackend()
    compiler = fresh.compiler()
    monkeypatch.setattr(type(compiler), "compile", _refuse)
    assert "saxpy" in fresh.build([function])


def _refuse(*_: object) -> None:
    raise AssertionError("compiled again")


# ------------------------------------------------------------------------------------------ damage


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[1] ^= 1
    path.write_bytes(bytes(data))


def _be_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o700)


@pytest.mark.parametrize("damage", [_truncate, _empty, _flip, _be_a_pipe])
def test_a_damaged_library_is_built_again(damage: Callable[[Path], None], folder: Path) -> None:
    builder = Builder()
    builder.get(Cache())
    damage(folder / "key.so")
    assert builder.get(Cache()) == "code"
    assert builder.builds == 2


def test_a_library_that_cannot_be_loaded_is_built_again(folder: Path) -> None:
    path = folder / "key.so"
    folder.mkdir()
    path.write_bytes(b"unloadable")
    module._seal(path)
    builder = Builder()
    assert builder.get(Cache()) == "code"
    assert builder.builds == 1


def test_a_damaged_kernel_runs_all_the_same(folder: Path) -> None:
    for damage in (lambda path: None, _truncate, _flip):
        # In processes of their own: a library that is loaded cannot be damaged without hurting its process.
        for path in folder.glob("*.so"):
            damage(path)
        process = _start(BUILD_AND_RUN)
        assert process.communicate(timeout=60) == ("[2.0, 2.0, 2.0]\n", "")


def test_a_build_that_fails_leaves_nothing(folder: Path) -> None:
    def fail(path: Path) -> None:
        path.write_text("half of it")
        raise BuildError(Diagnostic("no"))

    with pytest.raises(BuildError, match="no"):
        Cache().library("key", fail, Path.read_text)
    assert list(folder.iterdir()) == []


def test_what_a_killed_build_left_is_removed_after_a_day(folder: Path) -> None:
    folder.mkdir()
    old, new = folder / "build-old", folder / "build-new"
    for path in (old, new):
        path.mkdir()
        (path / "library.so").write_text("half of it")
    yesterday = time.time() - 2 * module.STALE_SECONDS
    os.utime(old, (yesterday, yesterday))
    Builder().get(Cache())
    assert not old.exists()
    assert new.exists()


# ------------------------------------------------------------------------------------------ processes


BUILD_AND_RUN = """
    import sys
    import numpy as np
    from kernelab.backend.cpu.cpu_backend import CpuBackend
    from kernelab.backend.common.backends import pack
    from kernelab.codegen.cpp.entry import layout_of
    from tests.codegen import kernels

    entry = CpuBackend().build([kernels.saxpy().function])["saxpy"]
    x, y = np.ones(3, np.float32), np.zeros(3, np.float32)
    entry(pack(layout_of(kernels.saxpy().function), (3,), {"x": x, "y": y, "a": 2.0}))
    print(y.tolist())
"""


def _start(text: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_processes_that_build_the_same_at_once_all_get_it(folder: Path) -> None:
    processes = [_start(BUILD_AND_RUN) for _ in range(4)]
    results = [process.communicate(timeout=120) for process in processes]
    assert results == [("[2.0, 2.0, 2.0]\n", "")] * 4
    assert len(list(folder.iterdir())) == 1


def test_a_build_that_is_killed_leaves_no_library(folder: Path) -> None:
    text = """
        import os
        from pathlib import Path
        from kernelab.backend.common.build_cache import Cache

        def build(path):
            path.write_text("half of it")
            print("half", flush=True)
            os.kill(os.getpid(), 9)

        Cache().library("key", build, Path.read_text)
    """
    process = _start(text)
    assert process.communicate(timeout=60)[0] == "half\n"
    assert list(folder.glob("*.so")) == []
    assert Builder().get(Cache()) == "code"


# ------------------------------------------------------------------------------------------ refusal


def warned(builder: Builder, cache: Cache) -> str:
    with pytest.warns(KernelWarning) as caught:
        assert builder.get(cache) == builder.text
    assert len(caught) == 1
    return str(caught[0].message)


def test_a_folder_that_cannot_be_made_is_replaced_after_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("KERNELAB_CACHE_DIR", str(tmp_path / "file" / "cache"))
    cache, builder = Cache(), Builder()
    message = warned(builder, cache)
    assert str(tmp_path / "file" / "cache") in message
    assert "KERNELAB_CACHE_DIR" in message
    assert builder.get(cache) == "code"
    assert builder.builds == 1


def test_a_folder_that_is_only_readable_is_replaced_after_one_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Nobody, not even root, can write here.
    monkeypatch.setenv("KERNELAB_CACHE_DIR", "/proc/self")
    assert "/proc/self cannot be used" in warned(Builder(), Cache())


def test_a_folder_that_is_only_readable_still_serves_what_it_holds(folder: Path) -> None:
    Builder().get(Cache())
    folder.chmod(0o500)
    builder = Builder()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert builder.get(Cache()) == "code"
    folder.chmod(0o700)
    assert builder.builds == 0


def test_a_full_disk_is_replaced_after_one_warning(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def full(path: Path) -> None:
        if path.is_relative_to(folder):
            raise OSError(28, "No space left on device")
        original(path)

    original = module._seal
    monkeypatch.setattr(module, "_seal", full)
    assert "No space left on device" in warned(Builder(), Cache())


WRITES = (
    (module.Path, "mkdir"),
    (module, "_private_folder"),
    (module.Path, "chmod"),
    (module.Path, "replace"),
    (module, "_seal"),
)
"""What the cache writes to a disk."""


@pytest.mark.parametrize(("owner", "name"), WRITES, ids=[name for _, name in WRITES])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE])
def test_whatever_write_fails_the_kernel_is_built_elsewhere(
    monkeypatch: pytest.MonkeyPatch, folder: Path, owner: Any, name: str, number: int
) -> None:
    original = getattr(owner, name)

    def fails(*given: Any, **named: Any) -> Any:
        places = [Path(place) for place in (*given, *named.values()) if isinstance(place, str | Path)]
        if any(place.is_relative_to(folder) for place in places):
            raise OSError(number, os.strerror(number))
        return original(*given, **named)

    monkeypatch.setattr(owner, name, fails)
    assert os.strerror(number) in warned(Builder(), Cache())
    assert not [*folder.glob("*")]


def test_the_cache_takes_no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    for name in ("flock", "lockf", "fcntl"):
        monkeypatch.setattr(fcntl, name, no_locks)
    monkeypatch.setattr(os, "link", no_locks)
    builder = Builder()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [builder.get(Cache()), builder.get(Cache())] == ["code", "code"]
    assert builder.builds == 1


@pytest.mark.parametrize("years", [-30, 30])
def test_a_clock_that_is_set_elsewhere_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, folder: Path, years: int
) -> None:
    builder, now = Builder(), time.time()
    assert builder.get(Cache()) == "code"
    monkeypatch.setattr(module.time, "time", lambda: now + years * 365 * 86400)
    os.utime(next(folder.glob("*.so")), (now - years * 1e8, now - years * 1e8))
    assert [builder.get(Cache()), builder.get(Cache(), "other")] == ["code", "code"]
    assert builder.get(Cache()) == "code"
    assert builder.builds == 2


@pytest.mark.parametrize("kept", [0, 1, 4, 31, 32, 33, 35])
def test_an_entry_that_is_cut_off_anywhere_is_built_again(folder: Path, kept: int) -> None:
    builder = Builder()
    builder.get(Cache())
    path = next(folder.glob("*.so"))
    path.write_bytes(path.read_bytes()[:kept])
    assert builder.get(Cache()) == "code"
    assert builder.builds == 2


def test_a_compiler_that_finds_no_room_is_not_blamed(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    builder = Builder()

    def build(path: Path) -> None:
        if path.is_relative_to(folder):
            # As on a full disk: neither the compiler nor anybody else can write there.
            (path.parent / "room").mkdir()
            raise BuildError(Diagnostic("cannot write"))
        builder.build(path)

    with pytest.warns(KernelWarning, match="cannot be used"):
        assert Cache().library("key", build, builder.load) == "code"


def test_where_nothing_can_be_written_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("KERNELAB_CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(module.tempfile, "mkdtemp", _no_room)
    with pytest.warns(KernelWarning), pytest.raises(BuildError, match="set KERNELAB_CACHE_DIR"):
        Builder().get(Cache())


def _no_room(**_: str) -> str:
    raise OSError(28, "No space left on device")


def test_an_own_folder_is_removed_with_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("KERNELAB_CACHE_DIR", str(tmp_path / "file" / "cache"))
    cache = Cache()
    warned(Builder(), cache)
    own = cache._own
    assert own is not None
    assert own.exists()
    del cache
    assert not own.exists()


# ------------------------------------------------------------------------------------------ size


def test_what_was_not_used_for_longest_is_removed_first(folder: Path) -> None:
    first = Cache()
    for age, key in enumerate(["used", "newer", "older"]):
        Builder("x" * 1000).get(first, key)
        then = time.time() - 1000 * (age + 1)
        os.utime(folder / f"{key}.so", (then, then))
    os.utime(folder / "used.so", (0, 0))
    Builder().get(Cache(), "used")
    Builder().get(Cache(limit_bytes=2500), "fresh")
    assert {path.stem for path in folder.glob("*.so")} == {"used", "newer", "fresh"}


# ------------------------------------------------------------------------------------------ other users


def belongs_to(monkeypatch: pytest.MonkeyPatch, path: Path, owner: int) -> None:
    """Let a file or folder seem to belong to a user, which only root could arrange."""
    status = Path.stat

    def seen(self: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        true = status(self, follow_symlinks=follow_symlinks)
        return os.stat_result([*true[:4], owner, *true[5:]]) if self == path else true

    monkeypatch.setattr(Path, "stat", seen)


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_a_folder_that_others_can_write_to_is_refused(folder: Path, mode: int) -> None:
    folder.mkdir()
    folder.chmod(mode)
    assert "other users can write to it" in warned(Builder(), Cache())
    assert list(folder.iterdir()) == []


def test_a_folder_of_another_user_is_refused_with_all_that_it_holds(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Builder("planted").get(Cache())
    belongs_to(monkeypatch, folder, os.getuid() + 1)
    cache, builder = Cache(), Builder()
    assert "it belongs to another user" in warned(builder, cache)
    assert builder.get(cache) == "code"
    assert cache.known("key") == b"code"


def test_a_library_of_another_user_is_built_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Builder("planted").get(Cache())
    belongs_to(monkeypatch, folder / "key.so", os.getuid() + 1)
    builder = Builder("own")
    assert "key.so is not loaded (it belongs to another user)" in warned(builder, Cache())
    assert builder.builds == 1


def test_a_library_that_others_can_write_to_is_built_again(folder: Path) -> None:
    Builder("planted").get(Cache())
    (folder / "key.so").chmod(0o766)
    builder = Builder("own")
    assert "key.so is not loaded (other users can write to it)" in warned(builder, Cache())
    assert builder.get(Cache()) == "own"
    assert (folder / "key.so").stat().st_mode & 0o077 == 0


def test_a_link_that_another_user_made_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    assert Builder().get(Cache()) == "code"
    status = Path.lstat

    def seen(self: Path) -> os.stat_result:
        true = status(self)
        return os.stat_result([*true[:4], os.getuid() + 1, *true[5:]]) if self == folder else true

    monkeypatch.setattr(Path, "lstat", seen)
    assert "it belongs to another user" in warned(Builder(), Cache())


def test_two_who_need_one_library_at_once_build_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    builds: list[Path] = []
    building, waiting = threading.Event(), threading.Event()
    lock = fcntl.flock

    def noted(file: Any, how: int) -> None:
        if building.is_set():
            waiting.set()
        lock(file, how)

    def build(path: Path) -> None:
        builds.append(path)
        building.set()
        waiting.wait(60)
        path.write_text("code")

    monkeypatch.setattr(fcntl, "flock", noted)
    first = threading.Thread(target=lambda: Cache().library("key", build, Path.read_bytes))
    first.start()
    building.wait()
    Cache().library("key", build, Path.read_bytes)
    first.join()
    assert len(builds) == 1
