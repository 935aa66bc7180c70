"""Lowers calls of `print` and `printf`."""

import ast
import re
from dataclasses import dataclass, field
from itertools import product

from kernelab.frontend.meaning.frame import Frame, counted
from kernelab.frontend.meaning.meanings import ArrayRef, Meaning, TupleOf, Typed, Weak, describe
from kernelab.frontend.meaning.promote import cast, materialise
from kernelab.lang.build import integer
from kernelab.lang.ir import Atom, Print
from kernelab.lang.types import Scalar, bool_, float32, shape_of

CONVERSION = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\d*(?:\.\d+)?)(?:hh|ll|[hlLqjzt])?(?P<letter>[a-zA-Z%])"
)
"""A conversion of printf: flags, width and precision, a length that says nothing here, and a letter."""

INTEGERS, FLOATS = "diuxXoc", "fFeEgG"
"""The letters that print an integer, and those that print a float."""


@dataclass(slots=True)
class _Line:
    """Text and values in turn, as they are collected."""

    texts: list[str] = field(default_factory=lambda: [""])
    specs: list[str] = field(default_factory=list)
    values: list[Atom] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.texts[-1] += text

    def show(self, value: Atom, spec: str = "") -> None:
        self.specs.append(spec)
        self.values.append(value)
        self.texts.append("")

    def emit(self, frame: Frame) -> None:
        printed = Print(tuple(self.texts), tuple(self.specs), tuple(self.values), frame.builder.span)
        frame.builder.emit(printed)


def print_(frame: Frame, node: ast.Call) -> None:
    """`print(a, "text", b, sep=" ", end="\\n")`, as in Python."""
    for word in node.keywords:
        if word.arg not in ("sep", "end"):
            raise frame.error(word.value, f"print in a kernel has no {word.arg}", hint="leave it out")
    words = {word.arg: _text_of(frame, word) for word in node.keywords}
    line = _Line()
    for position, part in enumerate(node.args):
        if position:
            line.say(words.get("sep", " "))
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            line.say(part.value)
        else:
            _show(frame, line, frame.value(part), part)
    line.say(words.get("end", "\n"))
    line.emit(frame)


def _text_of(frame: Frame, word: ast.keyword) -> str:
    if isinstance(word.value, ast.Constant) and isinstance(word.value.value, str):
        return word.value.value
    raise frame.error(
        word.value, f"{word.arg} of print has to be plain text in a kernel", hint='write end=""'
    )


def _show(frame: Frame, line: _Line, value: Meaning, node: ast.expr) -> None:
    match value:
        case Weak(number):
            line.say(str(number))
        case Typed(atom) if isinstance(value.type, Scalar):
            line.show(atom)
        case Typed():
            _show_components(frame, line, value)
        case TupleOf(items):
            line.say("(")
            for position, item in enumerate(items):
                line.say(", " if position else "")
                _show(frame, line, item, node)
            line.say(",)" if len(items) == 1 else ")")
        case _:
            hint = "print one of its elements" if isinstance(value, ArrayRef) else "print numbers and text"
            raise frame.error(node, f"a kernel cannot print {describe(value)}", hint=hint)


def _show_components(frame: Frame, line: _Line, value: Typed) -> None:
    """A vector as ``[1.0, 2.0]``, a matrix by rows."""
    shape = shape_of(value.type)
    line.say("[" * len(shape))
    for position in product(*map(range, shape)):
        if any(position):
            line.say("], [" if len(shape) > 1 and position[-1] == 0 else ", ")
        indices = [integer(k) for k in position]
        line.show(frame.builder.apply("extract", value.atom, *indices))
    line.say("]" * len(shape))


def printf(frame: Frame, node: ast.Call) -> None:
    """`printf("x = %f\\n", x)`, as in C; each conversion has to suit its value."""
    match node.args:
        case [ast.Constant(value=str() as form), *rest] if not node.keywords:
            pass
        case _:
            hint = 'write printf("x = %f\\n", x), or print(x)'
            raise frame.error(node, "printf takes text first, and then numbers", hint=hint)
    line, position, waiting = _Line(), 0, list(rest)
    conversions = [match for match in CONVERSION.finditer(form) if match["letter"] != "%"]
    if len(conversions) != len(rest):
        message = (
            f"this text has {counted(len(conversions), 'conversion')}, and printf gets {len(rest)} to show"
        )
        raise frame.error(node, message, hint="each %d, %f, ... of the text takes one number")
    for conversion in CONVERSION.finditer(form):
        line.say(form[position : conversion.start()])
        position = conversion.end()
        if conversion["letter"] == "%":
            line.say("%")
            continue
        part = waiting.pop(0)
        spec = f"%{conversion['flags']}{conversion['width']}{conversion['letter']}"
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            if spec[-1] != "s":
                raise frame.error(part, f"%{spec[-1]} shows a number, not text", hint="write %s")
            line.say(spec % part.value)
            continue
        line.show(_converted(frame, frame.value(part), spec, part), spec)
    line.say(form[position:])
    line.emit(frame)


def _converted(frame: Frame, value: Meaning, spec: str, node: ast.expr) -> Atom:
    letter = spec[-1]
    if letter not in INTEGERS + FLOATS:
        hint = "%d shows an integer, %f, %e and %g show a float"
        raise frame.error(node, f"printf in a kernel cannot show a number as %{letter}", "value", hint)
    if not isinstance(value, Weak | Typed) or not isinstance(materialise(frame, value, node).type, Scalar):
        hint = "show its components one by one, or use print"
        raise frame.error(node, f"%{letter} shows one number, not {describe(value)}", hint=hint)
    if isinstance(value, Weak) and isinstance(value.number, int) and letter in FLOATS:
        value = Weak(float(value.number))
    atom = materialise(frame, value, node)
    assert isinstance(atom.type, Scalar)
    if atom.type.is_float != (letter in FLOATS):
        hint = f"write %{'f' if atom.type.is_float else 'd'}"
        raise frame.error(node, f"%{letter} cannot show {describe(value)}", hint=hint)
    if atom.type == bool_ or (atom.type.is_int and atom.type.bits < 32):
        return frame.builder.apply("int32", atom)
    return cast(frame, atom, float32) if atom.type.is_float and atom.type.bits < 32 else atom
