"""Builds the widgets' front-end and the JupyterLab extension, where their sources have changed.

    python extension/build.py           without node or npm: says so, and leaves what is there
    python extension/build.py require   without them: fails
    python extension/build.py install   as without a word, and puts the extension into this environment

The widgets' bundle goes to kernelab/jupyter/static/, the extension to extension/labextension/.

Knows npm and where files go; must not know what is in them.  Needs nothing but Python's own library, because
the build of a wheel runs it too.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
BUILT = SOURCES.parent / "kernelab" / "jupyter" / "static"
MARK = BUILT / "SOURCE.sha256"
EXTENSION = SOURCES / "labextension"
INSTALLED = Path(sys.prefix, "share", "jupyter", "labextensions", "kernelab")
REASON = (
    "there is no node with npm (20 or newer), so the JupyterLab extension and the live view of tapes are not "
    "built: static ones are shown"
)


class BuildFailed(Exception):
    """npm has said why."""


def digest() -> str:
    """A digest of all that the build depends on; times of files say nothing after a clone."""
    found = hashlib.sha256()
    settings = [SOURCES / name for name in ("package.json", "package-lock.json", "tsconfig.json")]
    folders = (SOURCES / name for name in ("src", "style", "schema"))
    for path in [
        *settings,
        *sorted(path for folder in folders for path in folder.rglob("*") if path.is_file()),
    ]:
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def is_stale() -> bool:
    """Whether what is built is missing, or made of other sources."""
    is_there = MARK.is_file() and (EXTENSION / "package.json").is_file()
    return not is_there or MARK.read_text(encoding="ascii") != digest()


def has_node() -> bool:
    """Whether node and npm are on the path."""
    return shutil.which("node") is not None and shutil.which("npm") is not None


def fetch() -> None:
    """Get what the build needs, as the lock file says."""
    lock = SOURCES / "node_modules" / ".package-lock.json"
    if not lock.is_file() or lock.stat().st_mtime < (SOURCES / "package-lock.json").stat().st_mtime:
        npm("ci", "--ignore-scripts", "--no-audit", "--no-fund")


def npm(*arguments: str) -> None:
    """Run npm in extension/; raises BuildFailed with what it printed."""
    command = [shutil.which("npm") or "npm", *arguments]
    ran = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise BuildFailed(f"npm {' '.join(arguments)} failed:\n{ran.stdout}{ran.stderr}")


def build() -> str:
    """Build both if they are stale; why that cannot be, or nothing."""
    if not is_stale():
        return ""
    if not has_node():
        return REASON
    fetch()
    shutil.rmtree(EXTENSION, ignore_errors=True)
    npm("run", "build")
    MARK.write_text(digest(), encoding="ascii")
    return ""


def install() -> None:
    """Put the extension where JupyterLab looks; an editable install has copied an older one there."""
    shutil.rmtree(INSTALLED, ignore_errors=True)
    shutil.copytree(EXTENSION, INSTALLED)


def main() -> int:
    """The command: 0 if all is built, or may be missing."""
    try:
        reason = build()
    except BuildFailed as failed:
        reason = str(failed)
    if reason:
        sys.stderr.write(f"kernelab: {reason}\n")
    elif "install" in sys.argv[1:]:
        install()
    return int(bool(reason) and "require" in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
