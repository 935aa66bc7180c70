"""Says what a failed cell left: an earlier kernel of the same name, or a kernel read as plain Python.

Knows the text and the error of a cell, and the notebook's names; must not know launches, which pay nothing.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kernelab.errors import Diagnostic, Source, Span
from kernelab.frontend.meaning.name_lookup import language
from kernelab.runtime.kernel.kernel import Kernel


class Mistakes:
    """Remembers the kernels that a failed cell was to replace, until a later cell uses or replaces them."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[Kernel, str]] = {}

    def look(self, cell: Source, error: object, names: Mapping[str, Any]) -> list[Diagnostic]:
        """What there is to say after a cell."""
        self.kept = {name: kept for name, kept in self.kept.items() if names.get(name) is kept[0]}
        if not re.match(r"\s*%%kernel\b", cell.text):
            used = [name for name in self.kept if re.search(rf"\b{name}\b", cell.text)]
            return [*_without_magic(cell, error), *(_kept(name, *self.kept.pop(name)) for name in used)]
        if error is not None:
            for name in re.findall(r"(?m)^def +(\w+)", cell.text):
                one = names.get(name)
                if isinstance(one, Kernel) and one.source.label != cell.label:
                    self.kept[name] = (one, cell.label)
        return []


def _kept(name: str, kernel: Kernel, failed: str) -> Diagnostic:
    message = f"`{name}` is still the kernel of {kernel.source.label}: the new one in {failed} has a mistake"
    hint = f"mend {failed}, and run that again"
    return Diagnostic(message, kernel.span, "stale", "warning", hint=hint)


def _without_magic(cell: Source, error: object) -> Iterator[Diagnostic]:
    """What to say where Python met a word of kernels in the head of a def."""
    name = (error.name if isinstance(error, NameError) else None) or ""
    head = re.search(rf"(?m)^def .*\b(?P<word>{re.escape(name)})\b", cell.text) if name else None
    if name not in language() or head is None:
        return
    line = cell.text.count("\n", 0, head.start()) + 1
    column = head.start("word") - head.start()
    place = Span(cell, line, column, line, column + len(name))
    message = f"{name} is a word of kernels, and this cell is plain Python"
    yield Diagnostic(message, place, "magic", "information", hint="write %%kernel as its first line")
