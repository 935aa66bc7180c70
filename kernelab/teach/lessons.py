"""The lessons of the course: finds their notebooks, copies one, and makes the student's version and the key.

A lesson is one notebook, the source of all three.  The cells of exercises carry nbgrader's metadata: an
answer stands between ``### BEGIN SOLUTION: stub`` and ``### END SOLUTION``, where `stub` is what a student's
cell has in its place; the cell behind it checks.  Markdown with the tag ``exercise`` states a task, with the
tag ``solution`` it explains an answer.
"""

import copy
import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

Notebook = dict[str, Any]
Version = Literal["lesson", "student", "key"]

_SOLUTION = re.compile(r"( *)### BEGIN SOLUTION: (.*)\n(?:.*\n)*? *### END SOLUTION")
_LINK = re.compile(r"\[([^\]]*)\]\((\.\.?/[^)]*|[^):/]*\.ipynb)\)")


def lessons() -> dict[int, Path]:
    """The notebooks by number, in order: those of an installation, or of a checkout."""
    package = Path(__file__).parents[1]
    folders = (package / "course", package.parent / "notebooks" / "course")
    course = next((folder for folder in folders if folder.is_dir()), package)
    return {int(path.name[:2]): path for path in sorted(course.glob("[0-9][0-9]-*.ipynb"))}


def read(path: Path) -> Notebook:
    notebook: Notebook = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def title(notebook: Notebook) -> str:
    """The first heading."""
    return text_of(notebook["cells"][0]).partition("\n")[0].removeprefix("# ")


def text_of(cell: dict[str, Any]) -> str:
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def version_of(notebook: Notebook, version: Version) -> Notebook:
    """The notebook with solutions, the one without, or the exercises alone, with solutions."""
    result = copy.deepcopy(notebook)
    if version == "student":
        result["cells"] = [_blank(cell) for cell in result["cells"] if "solution" not in _tags(cell)]
    elif version == "key":
        result["cells"] = [_key_head(result), *(cell for cell in result["cells"] if _is_of_exercise(cell))]
    return result


def copied(path: Path, folder: Path, version: Version) -> Path:
    """Copy a lesson into a folder; raises FileExistsError rather than overwrite a student's work."""
    ending = "" if version == "lesson" else f"-{version}"
    target = folder / f"{path.stem}{ending}.ipynb"
    lesson = version_of(read(path), version)
    for cell in lesson["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = _LINK.sub(_without_link, text_of(cell))
    with target.open("x", encoding="utf-8") as file:
        json.dump(lesson, file, indent=1, ensure_ascii=False)
        file.write("\n")
    _trust(target)
    return target


def _trust(path: Path) -> None:
    """Sign a copy, as `jupyter trust` does: JupyterLab shows unsigned outputs without styles and pictures."""
    try:
        nbformat: Any = import_module("nbformat")
        sign: Any = import_module("nbformat.sign")
    except ImportError:
        return
    sign.NotebookNotary().sign(nbformat.read(path, 4))


def without_solution(text: str) -> str:
    """The text of an answer's cell as a student gets it."""
    return _SOLUTION.sub(r"\1# your code here\n\1\2", text)


def _without_link(link: re.Match[str]) -> str:
    """A copy stands elsewhere: what a link led to is named."""
    words, target = link.groups()
    return f"{words} (`{target.removeprefix('../').removeprefix('../')}`)"


def _tags(cell: dict[str, Any]) -> list[str]:
    tags: list[str] = cell["metadata"].get("tags", [])
    return tags


def _is_of_exercise(cell: dict[str, Any]) -> bool:
    return "nbgrader" in cell["metadata"] or bool({"exercise", "solution"} & {*_tags(cell)})


def _blank(cell: dict[str, Any]) -> dict[str, Any]:
    """An answer without its solution; neither it nor its check has run."""
    if "nbgrader" in cell["metadata"]:
        cell |= {"source": without_solution(text_of(cell)), "outputs": [], "execution_count": None}
    return cell


def _key_head(notebook: Notebook) -> dict[str, Any]:
    points = sum(cell["metadata"].get("nbgrader", {}).get("points", 0) for cell in notebook["cells"])
    lines = [
        f"# Key: {title(notebook)}",
        "",
        f"The exercises of this lesson with solutions and checks, {points} points in all. For the teacher.",
    ]
    return {"cell_type": "markdown", "id": "key", "metadata": {}, "source": "\n".join(lines)}
