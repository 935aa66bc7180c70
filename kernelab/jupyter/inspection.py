"""Shift-Tab on a kernel, on a function for kernels, and on a word of the language inside a ``%%kernel`` cell.

IPython looks a name up among the notebook's variables only, and the language's words are not there: they must
not shadow `min` or `float` of the notebook.  So the kernel's answer is asked first, then the table.  Of an
object that can be called IPython tells the class and how the class is called: `explain` tells of the kernel.
"""

import ast
import inspect
from html import escape
from typing import Any

from IPython.utils.tokenutil import token_at_cursor

from kernelab.builtins.records.language_words import said_of
from kernelab.builtins.records.table import Builtin
from kernelab.codegen.listing.listing_expressions import spelt
from kernelab.errors import KernelError
from kernelab.frontend import UserFunction
from kernelab.frontend.meaning.meanings import BuiltinRef
from kernelab.frontend.meaning.name_lookup import language
from kernelab.jupyter.completion import is_kernel_cell
from kernelab.lang import ops
from kernelab.runtime.kernel.kernel import Kernel

Reply = dict[str, Any]
Sections = list[tuple[str, str]]
"""Titles and texts, as IPython's inspector shows them."""


class Inspector:
    """Answers `inspect_request` in place of an ipykernel's own method, until it is removed."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.original = kernel.do_inspect

    def install(self) -> None:
        self.kernel.do_inspect = self

    def remove(self) -> None:
        if self.kernel.do_inspect is self:
            self.kernel.do_inspect = self.original

    def __call__(self, code: str, cursor_pos: int, *rest: Any, **named: Any) -> Any:
        reply = self.original(code, cursor_pos, *rest, **named)
        if not is_kernel_cell(code):
            return reply
        answer = _later if inspect.isawaitable(reply) else _answer
        return answer(reply, code, cursor_pos)


async def _later(reply: Any, code: str, cursor_pos: int) -> Reply:
    return _answer(await reply, code, cursor_pos)


def _answer(reply: Reply, code: str, cursor_pos: int) -> Reply:
    """The table's documentation where the name is a word of the language; the notebook's answer otherwise."""
    text = documentation(token_at_cursor(code, cursor_pos).rpartition(".")[2])
    if not text:
        return reply
    return {"status": "ok", "found": True, "data": {"text/plain": text}, "metadata": {}}


def explain(data: Any, info: Any = None) -> Sections | None:
    """What ``name?`` and Shift-Tab show of a kernel or a function for kernels; None for all else.

    IPython's hook for the text of its inspector, which gets the object itself before IPython 8.22.
    """
    if getattr(data, "detail_level", 0) > 0:
        return None
    try:
        return described(getattr(data, "obj", data))
    except KernelError:
        return None


def explain_in_html(data: Any, info: Any = None) -> Sections | None:
    """The same as HTML."""
    found = explain(data)
    return found and [(title, f"<pre>{escape(text)}</pre>") for title, text in found]


def described(shown: object) -> Sections | None:
    """Signature, docstring, how to launch, place; raises KernelError for a decorated kernel with mistakes."""
    match shown:
        case Kernel():
            params = shown.definition.function.params
            head = ", ".join(f"{param.hint}: {spelt(str(param.type))}" for param in params)
            names = ", ".join(param.hint for param in params)
            use = f"{shown.name}[n]({names})\nkl.launch({shown.name}, dim=n, inputs=[{names}])"
            found = [("Signature", f"{shown.name}({head})"), ("Docstring", shown.doc), ("Launch", use)]
        case UserFunction():
            head = ast.unparse(shown.template.node.args)
            found = [("Signature", f"{shown.name}({head})"), ("Docstring", shown.__doc__ or "")]
        case _:
            return None
    return [(title, text) for title, text in (*found, ("Defined in", str(shown.span))) if text]


def documentation(word: str) -> str:
    """What a word of the language means: every signature with its sentence; empty for an unknown word."""
    if not isinstance(language().get(word), BuiltinRef):
        return ""
    return Builtin(word).__doc__ if ops.overloads(word) else said_of(word)
