"""The printed text of a launch: formats values as C's printf or Python would, and writes to `sys.stdout`.

Both backends of the CPU keep what a launch prints and hand it over when the launch has ended, also if it
ended with an error.  Must not know how it was kept.
"""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelab.codegen.common.entry import PRINT_LIMIT, Message
from kernelab.lang.types import Scalar

Numpy = np.ndarray[Any, Any]


class Output:
    """The text of one launch; of more than `PRINT_LIMIT` prints only the number is kept."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.prints = 0

    def add(self, message: Message, values: Sequence[Any]) -> None:
        """One print, with its values as NumPy scalars."""
        self.prints += 1
        if self.prints <= PRINT_LIMIT:
            self._pieces.append(formatted(message, values))

    def flush(self) -> None:
        """Write what was added to where Python prints."""
        left = self.prints - PRINT_LIMIT
        if left > 0:
            line = "" if self._pieces[-1].endswith("\n") else "\n"
            self._pieces.append(f"{line}... and {left:,} more line{'s' * (left != 1)}\n")
        if self._pieces:
            sys.stdout.write("".join(self._pieces))


def formatted(message: Message, values: Sequence[Any]) -> str:
    """The text of one print."""
    triples = zip(message.specs, message.types, values, strict=True)
    shown = [_shown(spec, type, value) for spec, type, value in triples]
    return "".join(text + part for text, part in zip(message.texts, [*shown, ""], strict=True))


def _shown(spec: str, type: Scalar, value: Any) -> str:
    if not spec:
        return str(value)
    number = value.item()
    if type.is_int and number < 0 and spec[-1] in "uxXo":
        number += 1 << type.bits
    return str(spec % number)


def replay(messages: Sequence[Message], words: Numpy, prints: int) -> None:
    """Write what an entry kept: for each print the number of its message, and a word for each value."""
    output = Output()
    position = 0
    while position < len(words):
        message = messages[int(words[position])]
        end = position + 1 + len(message.types)
        kept = words[position + 1 : end]
        output.add(message, [_value(kept[k : k + 1], type) for k, type in enumerate(message.types)])
        position = end
    output.prints = max(output.prints, prints)
    output.flush()


def _value(word: Numpy, type: Scalar) -> Any:
    return word.view(np.uint8)[: type.dtype.itemsize].view(type.dtype)[0]
