"""The reference of the kernel language's operations, as Markdown, generated from the table."""

from collections.abc import Iterable
from itertools import groupby

from kernelab.builtins import language_words
from kernelab.builtins.table import families, signature
from kernelab.lang.ops import Op, Undefined, Zero
from kernelab.lang.types import Mat, Vec

SHOWN = ("vec2", "vec3", "vec4", "mat22", "mat33", "mat44", "quat", "transform")
FIRST = ("Operators", "Conversions, constructors and components", "Scalar mathematics", "Vectors", "Matrices")
INTRODUCTION = """\
The operations of the kernel language, generated from the table in `kernelab/builtins/`. `Float`, `Number` and
the like stand for a type of that kind, the same wherever the name stands in a signature; `vec[n, Float]` is a
vector of any length. Words whose arguments are arrays, types or the program itself stand at the end."""


def reference() -> str:
    """A page with every operation by family and name, each overload with its documentation, then every word.

    Of the constructors of vectors and matrices those of float32 stand for all.
    """
    records = families()
    titles = [*FIRST, *(title for title in records if title not in FIRST)]
    sections = [_section(title, filter(_is_shown, records[title])) for title in titles]
    library = language_words.library_functions()
    sections.append(_words("Searches, counts and flows of several scales", library))
    sections.append(_words("Words", language_words.WORDS.items()))
    return "\n".join(["# Operations", "", INTRODUCTION, "", *sections]).rstrip() + "\n"


def _words(title: str, said: Iterable[tuple[str, tuple[str, str]]]) -> str:
    """A section on names without a record: functions in the language itself, or words of the language."""
    lines = [f"## {title}", ""]
    for word, (written, meaning) in said:
        lines += [f"### `{word}`", "", f"`{written}`", "", meaning, ""]
    return "\n".join(lines)


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

    sys.stdout.write(reference())
