"""Type promotion: the types of the operands of an operation, and conversions between types.

Literals and captured numbers are weak: they take the type of what they meet.  An int variable with a float
becomes that float.  Two float widths, or two int widths, are a mistake.
"""

import ast
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernelab.errors import Diagnostic
from kernelab.frontend.meaning import unsupported
from kernelab.frontend.meaning.frame import Frame, Mistake, WeakType
from kernelab.frontend.meaning.meanings import (
    ArrayRef,
    Meaning,
    Origin,
    TupleOf,
    Typed,
    Weak,
    describe,
    is_number,
    is_truth,
)
from kernelab.frontend.meaning.source import Place
from kernelab.lang import ops
from kernelab.lang.build import OF_NOTHING, constant
from kernelab.lang.ir import Atom, Const, Var
from kernelab.lang.operators import COMPUTED, SYMBOLS
from kernelab.lang.ops import KindPattern, MatPattern, Pattern, ScalarPattern, VecPattern
from kernelab.lang.promotion import Promotable, promoted
from kernelab.lang.rounding import overflows, rounded
from kernelab.lang.types import (
    Mat,
    Scalar,
    Type,
    Value,
    Vec,
    bool_,
    float64,
    int32,
    int64,
    scalar_of,
    shape_of,
    size_of,
    spelled,
)

Operands = Sequence[Weak | Typed]

_VERBS = {
    "add": "cannot add {0} and {1}",
    "sub": "cannot subtract {1} from {0}",
    "mul": "cannot multiply {0} by {1}",
    "matmul": "cannot multiply {0} by {1}",
    "div": "cannot divide {0} by {1}",
    "floordiv": "cannot divide {0} by {1}",
    "mod": "cannot take {0} modulo {1}",
    "pow": "cannot raise {0} to the power of {1}",
    "neg": "cannot negate {0}",
    "not": "cannot negate {0}",
    "where": "where(condition, a, b) does not take ({0}, {1}, {2})",
} | dict.fromkeys(("lt", "le", "gt", "ge", "eq", "ne"), "cannot compare {0} with {1}")


def weak_constant(frame: Frame, number: bool | int | float, type: Value, node: Place) -> Atom:
    """A literal as a constant of a type; raises Mistake where the type cannot hold it."""
    scalar = scalar_of(type)
    if isinstance(number, bool) != (scalar == bool_):
        one, zero, kind = ("1.0", "0.0", "float") if scalar.is_float else ("1", "0", "int")
        hint = f"write where(condition, {one}, {zero}), or {kind}(condition)"
        hint = hint if isinstance(number, bool) else "write True or False"
        raise frame.error(node, f"{number} cannot stand for {scalar}", hint=hint)
    if isinstance(number, float) and not scalar.is_float:
        hint = f"write «int({number})» to cut it off"
        raise frame.error(node, f"{number} cannot stand for {scalar}", hint=hint)
    if scalar.is_int and not scalar.holds(int(number)):
        hint = f"write «{scalar}({_wrapped(int(number), scalar)})» for its low bits"
        if scalar == int32 and int64.holds(int(number)):
            hint = f"write «int64({number})»"
        raise frame.error(node, f"{_said(number)} does not fit {scalar}", "value", hint)
    if scalar.is_float and overflows(number, scalar.dtype):
        hint = "" if scalar == float64 else "write float64(...)"
        raise frame.error(node, f"{_said(number)} does not fit {scalar}", "value", hint)
    if scalar.is_float and number and not rounded(np.float64(number), scalar.dtype):
        message, hint = f"{number} is rounded to 0 as a {scalar}", "write a larger number, or float64(...)"
        frame.notes.append(Diagnostic(message, frame.places(node), "value", "warning", hint=hint))
    return constant(number, type)


def _wrapped(number: int, scalar: Scalar) -> int:
    low = number & ((1 << scalar.bits) - 1)
    return low - (1 << scalar.bits) if scalar.kind == "int" and low >> (scalar.bits - 1) else low


def _said(number: float) -> str:
    is_long = isinstance(number, int) and number.bit_length() > 128
    return f"an int of {int(number).bit_length()} bits" if is_long else str(number)


def materialise(frame: Frame, value: Weak | Typed, node: Place) -> Atom:
    """The atom of a value; a literal gets the type of its kind."""
    if isinstance(value, Typed):
        return value.atom
    return weak_constant(frame, value.number, value.type, node)


def as_number(frame: Frame, value: Meaning, node: ast.expr) -> Weak | Typed:
    """A value that is a number, vector or matrix; raises Mistake where it is something else."""
    if isinstance(value, Weak | Typed):
        return value
    text = frame.places.text(node)
    hint = unsupported.hint_of_uncalled(value, text)
    if isinstance(value, ArrayRef):
        whole, indices = text.removesuffix("[:]"), ", ".join("ijkl"[: value.ndim])
        hint = f"index it to take one element, such as «{whole}[{indices}]», where {indices} = tid()"
        if re.search(r"\bi\b", text):
            hint = f"index it to take one element, such as «{text}[0]»"
    elif isinstance(value, TupleOf) and value.items and not hint:
        hint = f"take one of its items, such as «{value.first(text)}»"
    raise frame.error(node, f"{text} is {describe(value)}, not a number", hint=hint)


def cast(frame: Frame, atom: Atom, scalar: Scalar) -> Atom:
    """A scalar converted to another scalar type, whatever it loses."""
    hint = atom.hint if isinstance(atom, Var) else ""
    return atom if atom.type == scalar else frame.builder.apply(scalar.name, atom, hint=hint)


def nearest(frame: Frame, atom: Atom, scalar: Scalar) -> Atom:
    """An integer as a signed type; one beyond its numbers becomes the nearest of them."""
    assert isinstance(atom.type, Scalar)
    limit = int(np.iinfo(scalar.dtype).max)
    if np.can_cast(atom.type.dtype, scalar.dtype):
        return cast(frame, atom, scalar)
    if isinstance(atom, Const):
        return Const(min(max(int(atom.value), -limit), limit), scalar)
    within = frame.builder.apply("min", atom, Const(limit, atom.type))
    if atom.type.kind == "int":
        within = frame.builder.apply("max", within, Const(-limit, atom.type))
    return cast(frame, within, scalar)


def convert(frame: Frame, value: Meaning, type: Value, node: Place, purpose: str) -> Atom:
    """Convert a value to an atom of a type where that is implicit; raises Mistake.

    `purpose` completes the message: "out holds", "x is".
    """
    match value:
        case Weak(number) if isinstance(type, Scalar):
            return weak_constant(frame, number, type, node)
        case Typed(atom) if atom.type == type:
            return atom
        case Typed(atom, origins) if isinstance(type, Scalar) and isinstance(atom.type, Scalar):
            alike = _same_kind(atom.type, type)
            if (atom.type.is_int and type.is_float) or (origins and alike):
                if alike:
                    frame.weak_types.require(origins, WeakType(type, False))
                return cast(frame, atom, type)
    hint = _conversion(frame, value, type, node)
    raise frame.error(node, f"{purpose} {type}, not {describe(value)}", hint=hint)


def _same_kind(a: Scalar, b: Scalar) -> bool:
    return (a.is_float and b.is_float) or (a.is_int and b.is_int)


def _conversion(frame: Frame, value: Meaning, type: Value, node: Place) -> str:
    if not isinstance(node, ast.expr):
        return ""
    text = frame.places.text(node)
    match value, type:
        case _, Scalar() if is_number(value):
            named = spelled(type)
            return integer_hint(frame, node, named) if type.is_int else f"write «{named}({text})»"
        case Typed() as typed, Scalar():
            return f"take one component, such as {text}[0]" if typed.type != type else ""
        case Typed() as typed, _ if not is_number(typed) and shape_of(typed.type) != shape_of(type):
            is_row = isinstance(type, Vec) and shape_of(typed.type)[1:] == type.shape
            return f"take one row, such as {text}[0]" if is_row else ""
        case ((Weak() | Typed()), _):
            return f"write «{type}({text})»"
        case ArrayRef(), Vec() | Mat() if isinstance(node, ast.Call):
            return f"an array is no {'vector' if isinstance(type, Vec) else 'matrix'}: write {type}(...)"
        case (ArrayRef(), _) if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            return f"take one element of it, such as «{frame.places.text(node.value)}[i]», where i = tid()"
        case (ArrayRef(_, ()), _):
            return f"write «{text}[i]», where i = tid()"
        case (ArrayRef(), _):
            return f"take one element of it, such as {text.removesuffix(']')}, j], where i, j = tid()"
        case TupleOf(items, None), Vec(_, n) if len(items) == n and text.startswith("("):
            return f"write «{type}{text}»"
        case TupleOf(), _ if isinstance(node, ast.Tuple):
            return "a comma makes several values: a number has a point"
        case TupleOf(), _:
            return f"take one of its values, such as {text}[0]"
        case _:
            return ""


def integer_hint(frame: Frame, node: ast.expr, type: str = "int") -> str:
    """The hint for a number that should be an int: `//` for a quotient."""
    hint = f"write «{type}({frame.places.text(node)})»"
    match node:
        case ast.BinOp(left, ast.Div(), right):
            pass
        case ast.Call(ast.Name("div") | ast.Attribute(attr="div"), [left, right]):
            pass
        case _:
            return hint
    return f"{hint}, or {frame.places.text(left)} // {frame.places.text(right)} of two ints"


def operate(
    frame: Frame, name: str, operands: Operands, node: ast.expr, parts: Sequence[ast.expr]
) -> Weak | Typed:
    """The operation `name` of these operands, promoted; `parts` are the operands as written."""
    if all(isinstance(operand, Weak) for operand in operands):
        folded = _fold(frame, name, [o.number for o in operands if isinstance(o, Weak)], node)
        if folded is not None:
            return folded
    origin: Origin = ("expression", name, frame.places(node))
    by_origin = frame.weak_types.by_origin
    weak_type = by_origin.get(origin) if by_origin else None
    width = weak_type.scalar if weak_type is not None and weak_type.scalar.is_float else None
    resolved = promoted(name, tuple(map(_promotable, operands)), width)
    if resolved is None:
        raise _no_overload(frame, name, operands, node, parts)
    op, type, types = resolved
    empty = next((t for t in types if size_of(t) == 0), None)
    if empty is not None and isinstance(type, Scalar) and name not in OF_NOTHING:
        raise frame.error(node, f"{empty} has no components, so {name} of it is not a number")
    atoms = [_take(frame, o, t, node) for o, t in zip(operands, types, strict=True)]
    return Typed(frame.builder.let(op, atoms, type), _origins(frame, name, operands, type, origin))


def _origins(frame: Frame, name: str, operands: Operands, type: Value, origin: Origin) -> frozenset[Origin]:
    numbers = [o for o in operands if isinstance(o, Typed) and o.type != bool_]
    if not numbers and name == "where" and isinstance(type, Scalar) and type.is_float:
        # Of two literals, as in a conditional expression: the use of the result decides the width.
        return frozenset() if origin in frame.weak_types.by_origin else frozenset({origin})
    return weak_origins(frame, numbers, type, origin)


def weak_origins(frame: Frame, operands: Sequence[Typed], result: Value, origin: Origin) -> frozenset[Origin]:
    """The origins that decide the width of a result: none if some operand has a type of its own.

    Weak floats decide it for a float; a weak int with a float literal leaves it to the operation, `origin`.
    """
    if not isinstance(result, Scalar) or result == bool_ or not operands:
        return frozenset()
    if not all(o.is_weak for o in operands) or origin in frame.weak_types.by_origin:
        return frozenset()
    alike = [o for o in operands if isinstance(o.type, Scalar) and _same_kind(o.type, result)]
    return frozenset[Origin]().union(*(o.origins for o in alike)) or frozenset({origin})


def _take(frame: Frame, operand: Weak | Typed, type: Value, node: ast.expr) -> Atom:
    if isinstance(operand, Weak):
        return weak_constant(frame, operand.number, type, node)
    if operand.type == type:
        return operand.atom
    assert isinstance(type, Scalar)
    assert isinstance(operand.type, Scalar)
    if _same_kind(operand.type, type):
        frame.weak_types.require(operand.origins, WeakType(type, False))
    return cast(frame, operand.atom, type)


def _promotable(operand: Weak | Typed) -> Promotable:
    if isinstance(operand, Weak):
        return operand.type, "literal"
    return operand.type, "weak" if operand.is_weak else "own"


_MOST_BITS = 4096
"""Python's ints grow without end; no type of kernels holds one longer than this."""


def _fold(frame: Frame, name: str, numbers: list[bool | int | float], node: ast.expr) -> Weak | None:
    """The operation on Python numbers, in Python's own precision; None where it is none of scalars."""
    if name in ("pow", "shl") and len(numbers) == 2 and _is_endless(name, *numbers):
        raise frame.error(node, f"this cannot be computed: an int of more than {_MOST_BITS} bits", "value")
    if name in ("min", "max") and len(numbers) != 2:
        return None
    compute = COMPUTED.get(name) or _host_operation(name, numbers)
    if compute is None:
        return None
    try:
        with np.errstate(all="ignore"):
            result = compute(*numbers)
    except ZeroDivisionError:
        raise frame.error(node, "division by zero", "value") from None
    except TypeError:
        return None
    except (OverflowError, ValueError) as error:
        raise frame.error(node, f"this cannot be computed: {error.args[-1]}", "value") from None
    return Weak(result) if isinstance(result, bool | int | float) else None


def _is_endless(name: str, base: float, exponent: float) -> bool:
    if not isinstance(base, int) or not isinstance(exponent, int) or (name == "pow" and abs(base) < 2):
        return False
    bits = base.bit_length()
    return (bits * exponent if name == "pow" else bits + exponent) > _MOST_BITS


def _host_operation(name: str, numbers: list[bool | int | float]) -> Callable[..., Any] | None:
    wide: list[Type] = [
        bool_ if isinstance(x, bool) else int64 if isinstance(x, int) else float64 for x in numbers
    ]
    overload = ops.resolve(name, wide)
    if overload is None:
        wide = [t if t == bool_ else float64 for t in wide]
        overload = ops.resolve(name, wide)
    if overload is None or not isinstance(overload[1], Scalar) or overload[0].cpp is None:
        return None
    numpy, result = overload[0].numpy, overload[1].dtype
    dtypes = [t.dtype for t in wide if isinstance(t, Scalar)]

    def compute(*values: Any) -> Any:
        operands = [dtype.type(value) for dtype, value in zip(dtypes, values, strict=True)]
        return np.asarray(numpy(*operands)).astype(result).item()

    return compute


def _no_overload(
    frame: Frame, name: str, operands: Operands, node: ast.expr, parts: Sequence[ast.expr]
) -> Mistake:
    shown = [describe(o) for o in operands]
    scalars = {scalar_of(o.type) for o in operands if isinstance(o, Typed) and not o.is_weak}
    note = f" {SYMBOLS[name]} ".join(shown) if name in SYMBOLS else ""
    verb = _VERBS.get(name)
    message = (
        verb.format(*shown) if verb is not None and len(shown) == verb.count("{") else _takes_no(name, shown)
    )
    return frame.error(
        node,
        message,
        hint=_widths_hint(frame, scalars, operands, parts)
        or _operator_hint(frame, name, operands, parts)
        or _shape_hint(operands, parts, frame),
        note=note,
    )


def _operator_hint(frame: Frame, name: str, operands: Operands, parts: Sequence[ast.expr]) -> str:
    kinds = [operand.type for operand in operands]
    texts = [frame.places.text(part) for part in parts]
    match kinds, texts:
        case [left, right], [first, second]:
            return unsupported.hint_of_operator(
                name, (first, second), (left, right)
            ) or unsupported.hint_of_call(name, texts)
        case [kind, *others], [text, *more] if isinstance(kind, Vec | Mat) and len(others) != 1:
            numbers = more if all(isinstance(other, Scalar) for other in others) else ()
            return unsupported.hint_of_each_component(name, text, kind, numbers)
        case _:
            return unsupported.hint_of_call(name, texts)


def _takes_no(name: str, operands: list[str]) -> str:
    if name in SYMBOLS:
        return f"{SYMBOLS[name]} does not take {' and '.join(operands)}"
    shapes = ([f"{p.name}: {_wanted(p.pattern)}" for p in op.params] for op in ops.overloads(name))
    wanted = " or ".join(dict.fromkeys(f"({', '.join(shape)})" for shape in shapes))
    return f"{name} takes {wanted}, not ({', '.join(operands)})"


def _wanted(pattern: Pattern) -> str:
    match pattern:
        case ScalarPattern(_, kinds):
            return kinds[0] if len(kinds) == 1 else "int" if set(kinds) == {"int", "uint"} else "number"
        case VecPattern(_, n):
            return f"vec{n}" if isinstance(n, int) else "vector"
        case KindPattern(kind):
            return kind.__name__.lower()
        case MatPattern(_, n, m):
            return f"mat{n}{m}" if isinstance(n, int) and isinstance(m, int) else "matrix"
        case _:
            return str(pattern)


def _widths_hint(frame: Frame, scalars: set[Scalar], operands: Operands, parts: Sequence[ast.expr]) -> str:
    for kind in ("is_float", "is_int"):
        widths = {s for s in scalars if getattr(s, kind)}
        if len(widths) < 2:
            continue
        if hint := _captured_hint(frame, widths, operands, parts):
            return hint
        wide = max(widths, key=lambda s: (s.bits, s.name))
        for operand, part in zip(operands, parts, strict=False):
            if isinstance(operand, Typed) and operand.type in widths and operand.type != wide:
                return f"write «{wide}({frame.places.text(part)})»"
    return ""


def _captured_hint(frame: Frame, widths: set[Scalar], operands: Operands, parts: Sequence[ast.expr]) -> str:
    # A number that NumPy computed is float64 without anybody having asked for it: what stands beside counts.
    pairs = [(o, frame.places.text(part)) for o, part in zip(operands, parts, strict=False)]
    numbers = [(o.type, text) for o, text in pairs if isinstance(o, Typed) and o.type in widths]
    captured = [text for _, text in numbers if text in frame.scope.captured]
    beside = {type for type, text in numbers if text not in captured}
    if len(captured) != 1 or len(beside) != 1:
        return ""
    return f"write «{spelled(beside.pop())}({captured[0]})»"


def _shape_hint(operands: Operands, parts: Sequence[ast.expr], frame: Frame) -> str:
    pairs = list(zip(operands, parts, strict=False))
    if len(operands) == len(pairs) == 2:
        for (whole, _), (other, part) in (pairs, pairs[::-1]):
            if isinstance(whole, Typed) and not is_number(whole) and is_number(other):
                text = frame.places.text(part)
                return f"write «{whole.type}({text})» for the same number in every component"
    if any(map(is_truth, operands)):
        return "turn the truth value into a number with float(...) or int(...), or use and, or, not"
    return ""
