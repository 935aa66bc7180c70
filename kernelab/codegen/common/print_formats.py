"""Formats of printed messages, and the `printf` calls that print them on a device.

On a CPU an entry only keeps the values, and the host formats them (`kernelab.backend.common.print_output`);
a device formats them itself.  Must not know who reads the text.
"""

from dataclasses import dataclass

from kernelab.lang.ir import Print
from kernelab.lang.types import Scalar, bool_

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


@dataclass(frozen=True, slots=True)
class Message:
    """The text of a print around its values: `texts` are one more than `specs` and `types`."""

    texts: tuple[str, ...]
    specs: tuple[str, ...]
    types: tuple[Scalar, ...]


def message_of(stmt: Print) -> Message:
    """The message of a print; its values are scalars."""
    types = tuple(value.type for value in stmt.values if isinstance(value.type, Scalar))
    return Message(stmt.texts, stmt.specs, types)


def device_call(message: Message, values: list[str]) -> str:
    """The call of printf on a device; a number without a conversion is shown to nine digits."""
    shown = [_device_spec(spec, type) for spec, type in zip(message.specs, message.types, strict=True)]
    texts = [text.replace("%", "%%") for text in message.texts]
    form = "".join(text + spec for text, spec in zip(texts, [*shown, ""], strict=True))
    arguments = [
        f'{value} ? "True" : "False"' if type == bool_ and not spec else value
        for value, spec, type in zip(values, message.specs, message.types, strict=True)
    ]
    return f"printf({', '.join([_quoted(form), *arguments])});"


def _device_spec(spec: str, type: Scalar) -> str:
    if type == bool_ and not spec:
        return "%s"
    if not spec:
        spec = "%.9g" if type.is_float else "%u" if type.kind == "uint" else "%d"
    return f"{spec[:-1]}ll{spec[-1]}" if type.is_int and type.bits == 64 else spec


def _quoted(text: str) -> str:
    return f'"{"".join(_escaped(character) for character in text)}"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isascii() and character.isprintable():
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode())
