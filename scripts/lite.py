"""Builds a JupyterLite site, which runs the lessons in the browser itself: build/lite/site.

    python scripts/lite.py                     the browser fetches Pyodide and its packages from their host
    python scripts/lite.py --pyodide ARCHIVE   the site has them: ARCHIVE is a full Pyodide distribution

The lessons are those for students, with a cell in front that installs kernelab from the site.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from kernelab.teach import lessons

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "lite"
INSTALL = {
    "cell_type": "code",
    "execution_count": None,
    "id": "install",
    "metadata": {},
    "outputs": [],
    "source": "%pip install -q kernelab matplotlib scipy",
}


def contents() -> Path:
    """The folder of the lessons, each with the cell that installs kernelab."""
    folder = WORK / "lessons"
    folder.mkdir()
    for path in lessons.lessons().values():
        copy = lessons.copied(path, folder, "student")
        notebook = lessons.read(copy)
        notebook["cells"].insert(0, INSTALL)
        notebook["metadata"]["kernelspec"] = {"name": "python", "display_name": "Python (Pyodide)"}
        copy.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return folder


def wheel() -> Path:
    """The wheel of kernelab, without widgets: what they show is static where no thread starts."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", WORK, ROOT]
    subprocess.run(list(map(str, command)), env=os.environ | {"KERNELAB_FRONT_END": "skip"}, check=True)
    (built,) = WORK.glob("*-none-any.whl")
    return built


def main() -> None:
    """Build the site."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pyodide", default="", help="an archive of Pyodide with its packages")
    pyodide = parser.parse_args().pyodide
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    options = ["--contents", contents(), "--piplite-wheels", wheel(), "--output-dir", WORK / "site"]
    options += ["--apps", "lab", "--no-sourcemaps", "--no-unused-shared-packages"]
    options += ["--pyodide", Path(pyodide).resolve()] if pyodide else []
    command = [sys.executable, "-m", "jupyterlite_core", "build", *map(str, options)]
    subprocess.run(command, cwd=WORK, check=True)
    print(f"to open it: python -m http.server --directory {(WORK / 'site').relative_to(ROOT)}")
    if not pyodide:
        print("readers need a network: the browser fetches Pyodide from its host, unless --pyodide is given")


if __name__ == "__main__":
    main()
