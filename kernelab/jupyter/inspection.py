"""Completion and Shift-Tab inside a `%%kernel` cell: options, words of the language, kernels, functions."""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher
from IPython.utils.tokenutil import token_at_cursor

from kernelab.errors import KernelError
from kernelab.frontend.meaning.meanings import BuiltinRef, TypeRef
from kernelab.frontend.meaning.name_lookup import PREFIXES, language
from kernelab.jupyter.cell_text import CellText
from kernelab.jupyter.hovering import Sections, described, kinds_at, operation, operation_in_markdown

MAGIC = "%%kernel"
ARRAY_ATTRIBUTES = ("ndim", "shape", "size")

Offer = tuple[str, str]
"""A word and what kind of thing it is."""


def is_kernel_cell(text: str) -> bool:
    """Whether the text of a cell begins with the magic."""
    return re.match(rf"\s*{MAGIC}\b", text) is not None


def matcher(options: Sequence[str], choices: dict[str, Sequence[str]]) -> Any:
    """IPython's matcher for our cells; `choices` are the words that may follow an option."""

    def complete(context: CompletionContext) -> SimpleMatcherResult:
        first = len(context.full_text) - len(context.full_text.lstrip())
        if not is_kernel_cell(context.full_text):
            return _offer([], "", suppress=False)
        before = context.text_until_cursor
        if context.cursor_line == context.full_text[:first].count("\n"):
            token = before.rpartition(" ")[2]
            previous = before.split()[-1 - bool(token)]
            offers = [(option, "option") for option in options if option not in before.split()[:-1]]
            if previous in choices:
                offers = [(choice, "value") for choice in choices[previous]]
            return _offer(offers, token, suppress=True)
        return _offer(_in_body(context.full_text, before), context.token, suppress=False)

    return context_matcher(identifier="kernelab")(complete)


def _offer(offers: Sequence[Offer], token: str, *, suppress: bool) -> SimpleMatcherResult:
    completions = [SimpleCompletion(text=word, type=kind) for word, kind in offers if word.startswith(token)]
    return SimpleMatcherResult(completions=completions, suppress=suppress and bool(completions))


def _in_body(text: str, before: str) -> list[Offer]:
    dotted = re.search(r"(\w+)\.\w*$", before)
    if dotted is None:
        return list(_words())
    name = dotted[1]
    if name in PREFIXES:
        return [(f"{name}.{word}", kind) for word, kind in _words()]
    if re.search(rf"\b{re.escape(name)}\s*:\s*(?:\w+\.)?array", text):
        return [(f"{name}.{attribute}", "property") for attribute in ARRAY_ATTRIBUTES]
    return []


def _words() -> Iterator[Offer]:
    for word, meaning in language().items():
        yield word, "class" if isinstance(meaning, TypeRef) else "function"


# ------------------------------------------------------------------------------------------------ inspection


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
        return answer(reply, code, cursor_pos, self.kernel.shell.user_ns)


async def _later(reply: Any, code: str, cursor_pos: int, names: Mapping[str, Any]) -> Reply:
    return _answer(await reply, code, cursor_pos, names)


def _answer(reply: Reply, code: str, cursor_pos: int, names: Mapping[str, Any]) -> Reply:
    """The type of a variable, the documentation of a word of the language; else the notebook's answer."""
    word = token_at_cursor(code, cursor_pos).rpartition(".")[2]
    before = code[:cursor_pos].split("\n")
    kinds = kinds_at(CellText(code), len(before), names)
    if word in kinds:
        data = {"text/plain": f"{word}: {kinds[word]}"}
    elif isinstance(language().get(word), BuiltinRef) and (text := operation(word)):
        data = {"text/plain": text, "text/markdown": operation_in_markdown(word)}
    else:
        return reply
    return {"status": "ok", "found": True, "data": data, "metadata": {}}


def explain(data: Any, info: Any = None) -> Sections | None:
    """The text of ``name?`` and Shift-Tab for a kernel or a function for kernels; None for all else.

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
    sections = explain(data)
    return sections and [(title, f"<pre>{escape(text)}</pre>") for title, text in sections]
