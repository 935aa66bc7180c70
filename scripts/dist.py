"""Builds the sdist and the wheel into dist/, and tries both in clean environments.

    python scripts/dist.py              build and try
    python scripts/dist.py --url URL    the same, with that address of the repository in the metadata, and
                                        absolute links and that to Binder in the README

What is committed or staged goes in, with the built front-end (`KERNELAB_FRONT_END=skip` makes do without it);
the wheel is built from the sdist.  The core is
tried where a path leads to nothing: no node, no compiler, no IPython.  Then the sdist's own tests run.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent
WORK, DIST = ROOT / "build" / "dist", ROOT / "dist"
BUILT = (Path("kernelab", "jupyter", "static"), Path("extension", "labextension"))
TESTS = ("tests/test_tiny.py", "tests/test_core.py", "tests/test_setup.py", "tests/guide")
PROGRAM = """
import kernelab as kl
text = "def square(x: array[float], y: array[float]):\\n    y[tid()] = x[tid()] * x[tid()]"
square = kl.compile(text)["square"]
x, y = kl.array([2.0, 3.0], dtype=float, requires_grad=True), kl.zeros(2, requires_grad=True)
with kl.Tape() as tape:
    kl.launch(square, dim=2, inputs=[x], outputs=[y])
tape.backward(grads={y: kl.ones_like(y)})
assert x.grad.list() == [4.0, 6.0]
assert kl.autograd.gradcheck(square, 2, inputs=[x], outputs=[y])
"""


def run(command: Sequence[str | Path], folder: Path = ROOT, **environment: str) -> None:
    """Run a command that must succeed; `environment` replaces all of it where any is given."""
    shown = [str(part) for part in command]
    print("$", " ".join(part if "\n" not in part else "PROGRAM" for part in shown), flush=True)
    subprocess.run(shown, cwd=folder, env=environment or None, check=True)


def tree(url: str) -> Path:
    """A copy of what is under version control, and the built front-end."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    copied = WORK / "tree"
    for name in filter(None, listed.stdout.split("\0")):
        (copied / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copied / name)
    for built in filter(lambda folder: (ROOT / folder).is_dir(), BUILT):
        shutil.copytree(ROOT / built, copied / built)
    if url:
        edit(copied / "pyproject.toml", r"(?m)^\[project\.scripts\]$", f"{urls(url)}\n\\g<0>")
        edit(copied / "docs" / "teaching.md", r"git\+https://\.\.\.", f"git+{url}")
        publish(copied / "README.md", url)
    return copied


def publish(readme: Path, url: str) -> None:
    """Write the address of the repository into the README, and links that lead somewhere from elsewhere."""
    links = r"(!?)(\[[^]]*\])\((?!https?:|#)([^)]+)\)"
    edit(readme, links, lambda found: absolute(url, *found.groups()))
    edit(readme, r"\s\(This repository has no public address yet\.[^)]*\)", "")
    edit(readme, "gh/OWNER/kernelab", f"git/{quote(url, safe='')}")
    if url.startswith("https://github.com/"):
        edit(readme, "github/OWNER/kernelab", url.removeprefix("https://").replace("github.com", "github"))
    else:  # Colab opens what is on GitHub
        edit(readme, r", or \*\*\[in Colab\].* in front", "")
        edit(readme, r"\n\[colab\]: .*", "")


def urls(url: str) -> str:
    """The addresses of a project at one of its repository."""
    places = {"Repository": "", "Issues": "/issues", "Changelog": "/blob/HEAD/CHANGELOG.md"}
    return "\n".join(["[project.urls]", *(f'{name} = "{url}{place}"' for name, place in places.items()), ""])


def absolute(url: str, mark: str, label: str, place: str) -> str:
    """A link of the README to a file; pictures need the file itself."""
    return f"{mark}{label}({url}/{'raw' if mark else 'blob'}/HEAD/{place})"


def edit(path: Path, pattern: str, replacement: str | Callable[[re.Match[str]], str]) -> None:
    """Replace a pattern that must be there."""
    text, count = re.subn(pattern, replacement, path.read_text(encoding="utf-8"))
    if not count:
        raise ValueError(f"{path.name} has nothing like {pattern}")
    path.write_text(text, encoding="utf-8")


def build(source: Path) -> tuple[Path, Path]:
    """The sdist of a tree, unpacked, and the wheel that is built of it."""
    run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", DIST], source)
    (packed,) = DIST.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(WORK / "sdist", filter="data")
    (unpacked,) = (WORK / "sdist").iterdir()
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", DIST], unpacked)
    (wheel,) = DIST.glob("*.whl")
    return unpacked, wheel


def environment(name: str, *packages: str) -> Path:
    """The folder of programs of a new environment that holds some packages."""
    venv.create(WORK / name, with_pip=True, clear=True)
    programs = WORK / name / ("Scripts" if os.name == "nt" else "bin")
    run([programs / "python", "-m", "pip", "install", "--quiet", *packages])
    return programs


def main() -> None:
    """Build and try."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="", help="the address of the repository")
    url = parser.parse_args().url.rstrip("/")
    os.environ.setdefault("KERNELAB_FRONT_END", "require")
    for folder in (WORK, DIST):
        shutil.rmtree(folder, ignore_errors=True)
    unpacked, wheel = build(tree(url))
    alone = {"PATH": "", "HOME": str(WORK), "KERNELAB_CACHE_DIR": str(WORK / "cache")}
    core = environment("core", str(wheel))
    run([core / "kernelab", "--version"], WORK, **alone)
    run([core / "python", "-W", "ignore", "-c", PROGRAM], WORK, **alone)
    whole = environment("whole", f"{wheel}[jupyter,sparse,bfloat16,matrix]", "hatchling", "playwright")
    run([whole / "python", "-m", "pytest", "-q", "-m", "not nvrtc", *TESTS], unpacked)
    print(*sorted(path.name for path in DIST.iterdir()), sep="\n")


if __name__ == "__main__":
    main()
