"""Lowers words that are not operations: `tid`, `len`, `cast`, atomics, `expect_eq`, `print`."""

import ast
import re
from collections.abc import Sequence
from functools import reduce
from itertools import product
from typing import get_args

from kernelab.data_classes import dataclass, field
from kernelab.errors import counted
from kernelab.frontend.expressions import places, struct_values
from kernelab.frontend.expressions.passing import in_order
from kernelab.frontend.meaning import array_views
from kernelab.frontend.meaning.array_views import index_of
from kernelab.frontend.meaning.frame import Frame, threads
from kernelab.frontend.meaning.meanings import (
    Argument,
    Arguments,
    ArrayRef,
    Meaning,
    StructArrayRef,
    TupleOf,
    Typed,
    TypeRef,
    Weak,
    describe,
)
from kernelab.frontend.meaning.promote import as_number, cast, convert, materialise, operate
from kernelab.lang import ops
from kernelab.lang.build import integer
from kernelab.lang.ir import Atom, AtomicKind, Const, Print
from kernelab.lang.types import (
    HALVES,
    Mat,
    Quat,
    Scalar,
    Transform,
    Value,
    Vec,
    bool_,
    float32,
    scalar_of,
    shape_of,
)


def thread_index(frame: Frame, node: ast.Call) -> Typed:
    """`tid()` as one index."""
    return threads(frame, node, ("i",))[0]


def length(frame: Frame, name: str, arguments: Arguments, node: ast.Call) -> Meaning:
    """`len(x)`: an extent, or a number of items, components or rows."""
    match [argument.value for argument in in_order(frame, name, arguments, node)]:
        case [ArrayRef() as array]:
            return array_views.shape(frame, array, 0)
        case [StructArrayRef() as array]:
            return array_views.shape(frame, struct_values.first(array), 0)
        case [TupleOf(items, None)]:
            return Weak(len(items))
        case [Typed() as value] if isinstance(value.type, Vec | Mat):
            return Weak(value.type.n)
        case values:
            shown = ", ".join(describe(value) for value in values)
            match node.args:
                case [ast.Subscript(ast.Name(name))] if isinstance(values[0], Typed):
                    hint = f"{name}[...] is one number: write «len({name})» for the array"
                case _:
                    hint = "write len(x) of an array or a vector x"
            raise frame.error(node, f"len takes one array or vector, not ({shown})", hint=hint)


def misplaced_range(frame: Frame, node: ast.Call) -> Meaning:
    """The mistake of `range(...)` outside of a `for`."""
    raise frame.error(
        node,
        "range(...) stands only behind for ... in",
        hint="write for i in range(n); for a test 0 <= i and i < n",
    )


def constant(frame: Frame, name: str, arguments: Arguments, node: ast.Call) -> Meaning:
    """`constant(x)`: the number itself."""
    match arguments:
        case [Argument(Weak() | Typed(Const()) as value)]:
            return value
        case _:
            message = "constant(...) takes one number that is known when the kernel is compiled"
            hint = "leave constant out: numbers of the notebook are constants anyway"
            raise frame.error(node, message, hint=hint)


def reinterpreted(frame: Frame, name: str, arguments: Arguments, node: ast.Call) -> Meaning:
    """`cast(x, float32)`: the bits of a number as a number of another type."""
    match [argument.value for argument in arguments]:
        case [Typed(atom) as value, TypeRef(Scalar() as wanted)] if isinstance(value.type, Scalar):
            if value.type.kind != "float" and wanted.kind != "float" and value.type.bits == wanted.bits:
                return Typed(cast(frame, atom, wanted))
            if ops.resolve(f"cast_{wanted}", [value.type]) is not None:
                return Typed(frame.builder.apply(f"cast_{wanted}", atom))
    shown = ", ".join(describe(argument.value) for argument in arguments)
    message = f"cast takes a number of 32 or 64 bits and a type as wide, not ({shown})"
    raise frame.error(node, message, hint="write float(x) or int(x) to convert the number itself")


# ------------------------------------------------------------ atomics


_KINDS: dict[str, AtomicKind] = {f"atomic_{kind}": kind for kind in get_args(AtomicKind)}
ATOMICS = (*_KINDS, "atomic_sub")


def atomic(frame: Frame, name: str, arguments: Arguments, node: ast.Call) -> Meaning:
    """Change an element of an array at once; the value is what it held before."""
    arguments = in_order(frame, name, arguments, node)
    wanted = 2 if name == "atomic_cas" else 1
    match arguments:
        case [Argument(ArrayRef() as array, target), *rest] if len(rest) > wanted:
            indices, values = rest[:-wanted], rest[-wanted:]
        case _:
            message = f"{name} takes an array, its indices and {'two values' if wanted == 2 else 'a value'}"
            raise frame.error(node, message, hint=_atomic_hint(frame, name, arguments, wanted))
    if len(indices) != array.ndim:
        message = f"{describe(array)} takes {counted(array.ndim, 'index')}, not {len(indices)}"
        hint = f"write {name}({array.var.hint}, {', '.join('ijkl'[: array.ndim])}, value)"
        raise frame.error(node, message, hint=hint)
    atoms = tuple(index_of(frame, argument.value, argument.node) for argument in indices)
    if array.var in frame.locals:
        hint = f"write {frame.places.text(target)}[i] += value"
        raise frame.error(node, f"{name} works on array parameters, not on a local array", hint=hint)
    at = array_views.at(frame, array, atoms, node).indices
    where = places.Place(target, array.elem, arrays=(array.var,), indices=at)
    operands = [convert(frame, v.value, array.elem, v.node, f"{array.var.hint} holds") for v in values]
    if name in ("atomic_add", "atomic_sub"):
        return accumulate(frame, where, operands[0], name == "atomic_sub", node)
    _refuse_atomic(frame, name, array.elem, node)
    compare = operands[0] if wanted == 2 else None
    return Typed(frame.builder.atomic(_KINDS[name], array.var, where.indices, operands[-1], compare))


def _atomic_hint(frame: Frame, name: str, arguments: Arguments, wanted: int) -> str:
    """The call with an index, where that alone is missing or stands in brackets."""
    texts = [frame.places.text(argument.node) for argument in arguments]
    match [argument.node for argument in arguments[:1]], [argument.value for argument in arguments[:1]]:
        case [ast.Subscript(array, index)], _ if wanted == 1 == len(texts) - 1:
            return f"write «{name}({frame.places.text(array)}, {frame.places.text(index)}, {texts[1]})»"
        case _, [ArrayRef()] if wanted == 1 == len(texts) - 1:
            return f"write {name}({texts[0]}, i, {texts[1]}), where i is the index of the element"
        case _, [Typed()] if wanted < len(texts):
            return f"{texts[0]} is one number: an atomic changes an element of an array"
    return f"write {name}(a, i, {'compare, ' if wanted == 2 else ''}value)"


def _refuse_atomic(frame: Frame, name: str, elem: Value, node: ast.expr) -> None:
    """Raise Mistake where an atomic does not work on elements of a type.

    A vector or matrix is changed component by component: other threads may come between two of them, which
    makes no difference to an extremum or to bits, and every difference to an exchange.
    """
    if not isinstance(elem, Scalar) and name in ("atomic_exch", "atomic_cas"):
        hint = "exchange one number, such as the index of a vector"
        raise frame.error(node, f"{name} works on one number at a time, not on {elem}", hint=hint)
    extremum_of_half = name in ("atomic_min", "atomic_max") and scalar_of(elem) in HALVES
    if isinstance(elem, Quat | Transform) or (scalar_of(elem).bits < 32 and not extremum_of_half):
        hint = "use an array of int, int64, float or float64"
        raise frame.error(node, f"{name} works on numbers of 32 or 64 bits, not {elem}", hint=hint)
    if name in ("atomic_and", "atomic_or", "atomic_xor") and not scalar_of(elem).is_int:
        raise frame.error(node, f"{name} works on integers, not {elem}", hint="use an array of int")


def accumulate(
    frame: Frame, target: places.Place, value: Atom, negate: bool, node: ast.expr | ast.stmt
) -> Typed:
    """Add to an array element, or subtract from it, atomically."""
    if not isinstance(target.held, Scalar | Vec | Mat) or target.type == bool_:
        raise frame.error(node, "a truth value cannot be added to", hint="write b[i] = b[i] or condition")
    if negate:
        value = frame.builder.apply("neg", value)
    return places.accumulate(frame, target, value)


# ------------------------------------------------------------ expectations


_TOLERANCE = 1e-6
"""The tolerance of `expect_near` where the call names none."""


def expect(frame: Frame, node: ast.Call, operator: str, name: str) -> None:
    """`expect_eq(a, b)`, `expect_neq(a, b)`: end the launch with an error unless two values compare so."""
    values, parts = _expected(frame, name, ("a", "b"), node)
    holds = materialise(frame, operate(frame, operator, values, node, parts), node)
    frame.builder.check(holds, "assertion", frame.places.text(node))


def expect_near(frame: Frame, node: ast.Call) -> None:
    """`expect_near(a, b, tolerance)`: end the launch with an error where two values differ by more.

    Vectors and matrices are near where the largest difference of a component is.
    """
    values, parts = _expected(frame, "expect_near", ("a", "b", "tolerance"), node)
    tolerance = values[2] if len(values) == 3 else Weak(_TOLERANCE)
    holds = _near(frame, values[0], values[1], tolerance, node, parts)
    frame.builder.check(holds, "assertion", frame.places.text(node))


def _expected(
    frame: Frame, name: str, names: tuple[str, ...], node: ast.Call
) -> tuple[list[Weak | Typed], tuple[ast.expr, ast.expr]]:
    """The values of an expectation in the order of its arguments, and the two that are compared."""
    written = dict(zip(names, node.args, strict=False)) | {
        word.arg or "": word.value for word in node.keywords
    }
    if len(node.args) > len(names) or not {"a", "b"} <= set(written) <= set(names):
        wanted = "two values and a tolerance" if "tolerance" in names else "two values"
        raise frame.error(node, f"{name} takes {wanted}", hint=f"write {name}({', '.join(names)})")
    values = {part: as_number(frame, frame.value(value), value) for part, value in written.items()}
    return [values[part] for part in names if part in values], (written["a"], written["b"])


def _near(
    frame: Frame,
    a: Weak | Typed,
    b: Weak | Typed,
    tolerance: Weak | Typed,
    node: ast.Call,
    parts: tuple[ast.expr, ast.expr],
) -> Atom:
    difference = operate(frame, "sub", [a, b], node, parts)
    each: Sequence[Weak | Typed] = [difference]
    if isinstance(difference, Typed):  # not by `max`, which passes over a NaN that is not the first component
        each = [Typed(x) for x in frame.builder.components(difference.atom)]
    sizes = [operate(frame, "abs", [one], node, (node,)) for one in each]
    truths = [operate(frame, "le", [size, tolerance], node, (node, node)) for size in sizes]
    atoms = [materialise(frame, truth, node) for truth in truths]
    return reduce(lambda a, b: frame.builder.apply("and", a, b), atoms)


# ------------------------------------------------------------------------------------------------------ print


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
    hint = 'write end=""'
    raise frame.error(word.value, f"{word.arg} of print has to be plain text in a kernel", hint=hint)


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
