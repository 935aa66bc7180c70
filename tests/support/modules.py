"""The map of the package: every module by what its own docstring says first.

``python -m tests.support.modules`` prints it; `make docs` makes a page of it.
"""

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "kernelab"

FOLDERS = (
    "data_classes",
    "guidance",
    "lang",
    "host",
    "builtins",
    "frontend",
    "frontend/meaning",
    "frontend/expressions",
    "frontend/definitions",
    "passes",
    "passes/access",
    "passes/common",
    "passes/ad",
    "codegen",
    "codegen/cpp",
    "codegen/vectors",
    "codegen/listing",
    "backend",
    "backend/common",
    "backend/cpu",
    "backend/cuda",
    "runtime",
    "runtime/context",
    "runtime/memory",
    "runtime/array",
    "runtime/host",
    "runtime/kernel",
    "runtime/launch",
    "runtime/ops",
    "autodiff",
    "autodiff/records",
    "autodiff/transforms",
    "autodiff/tape",
    "autodiff/rule_checks",
    "autodiff/jacobians",
    "autodiff/checks",
    "autodiff/inspect",
    "views",
    "views/pages",
    "views/kernel",
    "views/tape",
    "views/live",
    "views/checks",
    "warp",
    "teach",
    "interop",
    "jupyter",
    ".",
)
"""From left to right: a folder imports only those before it (`tests/test_layers.py`)."""

INTRODUCTION = """\
# Every module

In the order of the layers: a folder imports only those above it. Each line is the first sentence of the
module itself; `ARCHITECTURE.md` says how they work together.
"""


def page() -> str:
    """The introduction, then a table for each folder."""
    return "\n".join([INTRODUCTION, *map(_section, FOLDERS)])


def modules(folder: str) -> list[Path]:
    """The modules of a folder of the package, in order, but for the folder itself."""
    return sorted(path for path in (PACKAGE / folder).glob("*.py") if path.stem != "__init__")


def _section(folder: str) -> str:
    title = "kernelab/" if folder == "." else f"{folder}/"
    rows = (f"| `{path.stem}` | {_first_sentence(path)} |" for path in modules(folder))
    about = _first_sentence(PACKAGE / folder / "__init__.py")
    return "\n".join([f"## {title}\n", f"{about}\n", "| module | |", "|---|---|", *rows, ""])


def _first_sentence(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    first = " ".join(docstring.partition("\n\n")[0].split())
    return first.replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    import sys

    sys.stdout.write(page())
