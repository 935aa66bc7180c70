"""The reference of the kernel language's operations, as Markdown, generated from the table."""

import ast
from collections.abc import Iterable
from itertools import groupby

from kernelab.builtins import library
from kernelab.builtins.table import families, signature, title_of
from kernelab.lang.ops import Op, Undefined, Zero
from kernelab.lang.types import Mat, Vec

SHOWN = ("vec2", "vec3", "vec4", "mat22", "mat33", "mat44", "quat", "transform")
INTRODUCTION = """\
The operations of the kernel language, generated from the table in `kernelab/builtins/`. `Float`, `Number` and
the like stand for a type of that kind, the same wherever the name stands in a signature; `vec[n, Float]` is a
vector of any length."""


def reference() -> str:
    """A page with every operation: by family, then by name, each overload with signature and documentation.

    Of the constructors of vectors and matrices those of float32 stand for all.
    """
    sections = [_section(title, filter(_is_shown, records)) for title, records in families().items()]
    sections.append(_functions())
    return "\n".join(["# Operations", "", INTRODUCTION, "", *sections]).rstrip() + "\n"


def _functions() -> str:
    """The functions that are written in the language, as users call them."""
    words = {meaning: word for (word, _), meaning in library.BY_COUNT.items()}
    words |= {word: word for word in library.WORDS}
    lines = [f"## {title_of(library.__name__)}", ""]
    for node in ast.parse(library.TEXT).body:
        if isinstance(node, ast.FunctionDef) and node.name in words:
            signed = f"{words[node.name]}({ast.unparse(node.args)})"
            lines += [f"### `{signed.partition('(')[0]}`", "", f"`{signed}`", "", _doc(node), ""]
    return "\n".join(lines)


def _doc(node: ast.FunctionDef) -> str:
    return " ".join((ast.get_docstring(node) or "").split())


def _is_shown(op: Op) -> bool:
    """Whether a record is an operation proper, or a constructor that stands for those of other shapes."""
    match op.result:
        case Vec() | Mat() if op.name == str(op.result):
            return op.name in SHOWN
        case _:
            return True


def _section(title: str, records: Iterable[Op]) -> str:
    lines = [f"## {title}", ""]
    by_name = sorted(records, key=lambda op: op.name)
    for name, overloads in groupby(by_name, key=lambda op: op.name):
        lines += [f"### `{name}`", ""]
        for op in overloads:
            lines += [f"`{signature(op)}`", "", _prose(op), ""]
    return "\n".join(lines)


def _prose(op: Op) -> str:
    doc = " ".join(op.doc.split())
    match op.derivative:
        case Undefined(reason):
            return f"{doc} No derivative: {reason}."
        case Zero() if "float" in signature(op).lower():
            return f"{doc} Derivative zero."
        case _:
            return doc


if __name__ == "__main__":
    import sys

    import kernelab.builtins  # noqa: F401 (fills the table)

    sys.stdout.write(reference())
