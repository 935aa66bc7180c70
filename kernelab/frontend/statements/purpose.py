"""Warnings for lines, or whole kernels, without effect, or with an effect that is hardly meant.

y = x               gives the name y to x: the array y stays as it is
def f(x): t = x[0]  reads, and writes nowhere
x =+ 1              assigns + 1, and adds nothing
"""

import ast
from collections.abc import Sequence

from kernelab.errors import Diagnostic, Span
from kernelab.frontend.meaning.frame import Frame
from kernelab.frontend.meaning.meanings import ArrayRef, Meaning, StructArrayRef, View
from kernelab.lang.ir import Append, Assert, Atomic, Block, Call, Native, Print, Store, walk


def note_renamed(frame: Frame, stmt: ast.Assign, target: ast.Name, value: Meaning) -> None:
    """Warn where the name of an array parameter is given to something else that nobody reads."""
    before = frame.env.get(target.id)
    given = frame.facts.assignments.get(target.id, [None])[0]
    if not isinstance(before, ArrayRef | StructArrayRef) or not isinstance(given, ast.arg):
        return
    if target.id in frame.facts.live_after[stmt]:
        return
    index = ", ".join("ijkl"[: before.ndim])
    text = frame.places.text(stmt.value)
    element = f"{text}[{index}]" if isinstance(value, ArrayRef | StructArrayRef | View) else text
    message = f"this gives the name {target.id} to something else: the array {target.id} stays as it is"
    hint = f"write {target.id}[{index}] = {element}"
    frame.notes.append(Diagnostic(message, frame.places(stmt), "unused", "warning", hint=hint))


def note_sign(frame: Frame, stmt: ast.Assign) -> None:
    """Warn where a sign touches the = before it rather than what it belongs to, as in `x =+ 1`."""
    text = frame.places.text(stmt.value)
    if not text.startswith(("+ ", "- ")) or not frame.places.before(stmt.value).endswith("="):
        return
    sign = text[0]
    message = f"={sign} assigns, and {'adds' if sign == '+' else 'subtracts'} nothing"
    hint = f"did you mean {sign}=? If not, put a space before the {sign}"
    frame.notes.append(Diagnostic(message, frame.places(stmt), "sign", "warning", hint=hint))


def note_no_effect(frame: Frame, body: Block, written: Sequence[ast.stmt], span: Span) -> None:
    """Warn where a kernel changes nothing, unless it says so, or a line of it has been pointed out."""
    if all(isinstance(stmt, ast.Pass | ast.Return) or _is_text(stmt) for stmt in written):
        return
    if any(note.code in ("unused", "unreached") for note in frame.notes) or _does_something(body):
        return
    message = f"the kernel {frame.name} changes nothing"
    hint = "store what it computes into an array parameter: y[i] = ..."
    frame.notes.append(Diagnostic(message, span, "unused", "warning", hint=hint))


def _is_text(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)


def _does_something(body: Block) -> bool:
    for stmt in walk(body):
        match stmt:
            case Store() | Atomic() | Append() | Assert() | Print() | Native():
                return True
            case Call(_, function) if _does_something(function.body):
                return True
    return False
