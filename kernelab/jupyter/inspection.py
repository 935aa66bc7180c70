"""Shift-Tab on a word of the language inside a ``%%kernel`` cell.

IPython looks a name up among the notebook's variables only, and the language's words are not there: they must
not shadow `min` or `float` of the notebook.  So the kernel's answer is asked first, then the table.
"""

import inspect
from typing import Any

from IPython.utils.tokenutil import token_at_cursor

from kernelab.builtins.table import Builtin
from kernelab.frontend.names import language
from kernelab.frontend.values import BuiltinRef
from kernelab.jupyter.completion import is_kernel_cell
from kernelab.lang import ops

Reply = dict[str, Any]


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


def documentation(word: str) -> str:
    """What the table says of a word: every signature with its sentence; empty for an unknown word."""
    if not isinstance(language().get(word), BuiltinRef) or not ops.overloads(word):
        return ""
    return Builtin(word).__doc__
